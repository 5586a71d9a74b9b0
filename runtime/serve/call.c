// A request to the model, from its body to the last byte of its answer.
//
//   loop      begin: admission, then a job           x ---------------------------+
//   worker    body -> prompts -> requests; job_done   |                           |
//   engine    deltas -> records                       |  arrived | record | ...   |
//   loop      records -> choices -> events or an answer v                           v
//
// The engine only appends records to `arrived` and posts the call's note, once however many records
// wait: one wake-up and one write a step. The loop looks at a call only when its job is done; from
// then on all else belongs to the loop's thread, which also frees the call: when the exchange is
// over, the job is done and every prompt has ended.
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/fail.h"
#include "base/mem.h"
#include "serve/inner.h"

#define MAX_PENDING_BYTES (UINT64_C(1) << 20) // of a stream that nobody reads

enum { RECORD_DELTA = 0, RECORD_PROMPT = 1 };

// Head of a record; behind it ids, floats, text, each array where the reader counts it to be.
typedef struct record {
    uint32_t bytes; // head included, a multiple of 8
    int32_t kind;
    int32_t prompt;
    int32_t reserved0;
    pgd_delta d;
    size_t stop_len;
    size_t error_len;
    int32_t n_rows; // RECORD_PROMPT
    int32_t columns;
} record;

// ---- writing records ---------------------------------------------------------------------------

static void post(pgd_serve_call *call) {
    const int32_t first = !call->posted;
    call->posted = 1;
    pthread_mutex_unlock(&call->arrived_mutex);
    if (first) {
        pgd_serve_loop_post(call->loop, &call->note);
    }
}

static pgd_status add_bytes(pgd_text *t, const void *from, size_t bytes) {
    return from != NULL && bytes > 0 ? pgd_text_add(t, from, bytes) : PGD_OK;
}

// A record that finds no memory is lost; a lost end is made up for by `lost`.
static void append(pgd_serve_call *call, record *r, const void *const parts[], const size_t sizes[],
                   int32_t n) {
    static const char padding[8];
    size_t bytes = sizeof(*r);
    for (int32_t i = 0; i < n; i++) {
        bytes += parts[i] != NULL ? sizes[i] : 0;
    }
    const size_t whole = (bytes + 7) / 8 * 8;
    r->bytes = (uint32_t)whole;
    pthread_mutex_lock(&call->arrived_mutex);
    const size_t before = call->arrived.len;
    pgd_status status = pgd_text_reserve(&call->arrived, before + whole);
    if (status == PGD_OK) {
        status = add_bytes(&call->arrived, r, sizeof(*r));
        for (int32_t i = 0; i < n && status == PGD_OK; i++) {
            status = add_bytes(&call->arrived, parts[i], sizes[i]);
        }
        status = status == PGD_OK ? add_bytes(&call->arrived, padding, whole - bytes) : status;
    }
    if (status != PGD_OK) {
        call->arrived.len = before;
        call->lost = 1;
        call->lost_ends += r->kind == RECORD_DELTA && r->d.done;
    }
    post(call);
}

// The end reasons as literals of ours.
static const char *finish_of(const char *reason) {
    static const char *const all[] = {"stop", "length", "abort"};
    for (size_t i = 0; reason != NULL && i < sizeof(all) / sizeof(all[0]); i++) {
        if (strcmp(reason, all[i]) == 0) {
            return all[i];
        }
    }
    return reason != NULL ? "error" : NULL;
}

static size_t length_of(const char *text) {
    return text != NULL ? strlen(text) : 0;
}

static void tell_prompt(pgd_serve_prompt *p, pgd_request *request) {
    pgd_output o = {.size = sizeof(o)};
    pgd_request_choice(request, 0, &o);
    if (o.prompt_logprobs == NULL || o.n_prompt_scored < o.n_prompt) {
        return;
    }
    record r = {.kind = RECORD_PROMPT,
                .prompt = p->index,
                .n_rows = o.n_prompt,
                .columns = o.n_prompt_logprobs + 1};
    const size_t n = (size_t)o.n_prompt;
    const size_t all = n * (size_t)r.columns;
    const void *parts[] = {o.prompt_ids, o.prompt_logprobs, o.prompt_logprob_ids, o.prompt_ranks};
    const size_t sizes[] = {n * 4, all * 4, all * 4, n * 4};
    append(p->call, &r, parts, sizes, 4);
}

// On the engine's thread.
static void on_delta(void *arg, pgd_request *request, const pgd_delta *d) {
    pgd_serve_prompt *p = arg;
    if (p->call->gone && !d->done) {
        pgd_request_cancel(request);
        return;
    }
    if (p->call->body.wants_prompt && !p->told && d->n_ids > 0) {
        p->told = 1;
        tell_prompt(p, request);
    }
    record r = {.kind = RECORD_DELTA,
                .prompt = p->index,
                .d = *d,
                .stop_len = length_of(d->stop_text),
                .error_len = length_of(d->error)};
    r.d.finish_reason = finish_of(d->finish_reason);
    const size_t n = (size_t)d->n_ids;
    const size_t all = n * (size_t)(d->n_logprobs + 1);
    const void *parts[] = {d->ids,  d->logprobs,  d->logprobs != NULL ? d->logprob_ids : NULL,
                           d->text, d->stop_text, d->error};
    const size_t sizes[] = {n * 4, all * 4, all * 4, d->text_len, r.stop_len, r.error_len};
    append(p->call, &r, parts, sizes, 6);
}

pgd_delta_fn pgd_serve_on_delta(void) {
    return on_delta;
}

// On a text worker. What it has written is the loop's to read from here on.
static void run_job(void *arg) {
    pgd_serve_call *call = arg;
    if (!call->gone) {
        (void)pgd_serve_call_submit(call);
    }
    pthread_mutex_lock(&call->arrived_mutex);
    call->job_done = 1;
    post(call);
}

// ---- the loop's side ---------------------------------------------------------------------------

static void release(pgd_serve_call *call, pgd_request *request) {
    if (call->server->async != NULL && request != NULL) {
        pgd_async_release(call->server->async, request);
    } else {
        pgd_request_release(request);
    }
}

static void free_call(pgd_serve_call *call) {
    for (int32_t i = 0; i < call->n_prompts; i++) {
        release(call, call->prompts[i].request);
    }
    for (int32_t i = 0; call->choices != NULL && i < call->n_prompts * call->n; i++) {
        pgd_serve_choice *c = &call->choices[i];
        pgd_text *const texts[] = {&c->text,   &c->logprobs, &c->tops,  &c->offsets,
                                   &c->tokens, &c->ids,      &c->prompt};
        for (size_t k = 0; k < sizeof(texts) / sizeof(texts[0]); k++) {
            pgd_text_free(texts[k]);
        }
        pgd_mem_free(c->stop_text);
        pgd_api_tools_free(&c->tools);
    }
    pgd_serve_prompts_free(call);
    pgd_api_body_free(&call->body);
    pgd_text_free(&call->raw);
    pgd_text_free(&call->out);
    pgd_text_free(&call->chunk_head);
    pgd_text_free(&call->arrived);
    pgd_text_free(&call->reading);
    pthread_mutex_destroy(&call->arrived_mutex);
    pgd_mem_free(call);
}

static int32_t is_submitted(pgd_serve_call *call) {
    pthread_mutex_lock(&call->arrived_mutex);
    const int32_t done = call->job_done;
    pthread_mutex_unlock(&call->arrived_mutex);
    return done;
}

// Frees the call when nobody will come back to it.
static void let_go(pgd_serve_call *call) {
    pthread_mutex_lock(&call->arrived_mutex);
    const int32_t quiet = call->job_done && !call->posted && call->arrived.len == 0;
    pthread_mutex_unlock(&call->arrived_mutex);
    if (call->x == NULL && quiet && call->n_running == 0) {
        free_call(call);
    }
}

static void cancel_all(pgd_serve_call *call) {
    call->gone = 1;
    for (int32_t i = 0; is_submitted(call) && i < call->n_prompts; i++) {
        pgd_serve_prompt *p = &call->prompts[i];
        if (p->request != NULL && !p->done && call->server->async != NULL) {
            pgd_async_cancel(call->server->async, p->request);
        }
    }
}

static int64_t tokens_made(const pgd_serve_call *call) {
    int64_t made = 0;
    for (int32_t i = 0; call->choices != NULL && i < call->n_prompts * call->n; i++) {
        made += call->choices[i].n_output;
    }
    return made;
}

// The exchange is answered. Until the job is done, what it has made is the text worker's.
static void over(pgd_serve_call *call) {
    pgd_serve_quotas *q = call->server->quotas;
    if (is_submitted(call)) {
        pgd_serve_quota_spend(q, call->key, pgd_clock_ns(), tokens_made(call));
    }
    pgd_serve_quota_leave(q, call->key);
    pgd_serve_call_uncount(call);
    call->x = NULL;
    pgd_serve_calls_remove(call);
}

static void on_gone(void *arg) {
    pgd_serve_call *call = arg;
    call->server->metrics.clients_left++;
    pgd_serve_answered(call->server, call->x, 499, call);
    over(call);
    cancel_all(call);
    let_go(call);
}

static void fail(pgd_serve_call *call) {
    pgd_serve_exchange *x = call->x;
    if (!call->started) {
        over(call);
        pgd_serve_reply_error(call->server, x, &call->error);
        return;
    }
    pgd_text_clear(&call->out);
    if (pgd_text_format(&call->out, "data: ") == PGD_OK &&
        pgd_api_error_add(&call->out, &call->error) == PGD_OK &&
        pgd_text_format(&call->out, "\n\n") == PGD_OK) {
        pgd_serve_exchange_send(x, pgd_text_view(&call->out));
    }
    pgd_serve_answered_error(call->server, x, &call->error, call);
    over(call);
    pgd_serve_exchange_end(x);
}

static const void *take(const char **at, size_t bytes) {
    const void *part = bytes > 0 ? *at : NULL;
    *at += bytes;
    return part;
}

static pgd_status read_prompt_record(pgd_serve_call *call, const record *r) {
    const char *at = (const char *)(r + 1);
    const size_t n = (size_t)r->n_rows;
    const size_t all = n * (size_t)r->columns;
    pgd_output o = {.n_prompt = r->n_rows, .n_prompt_logprobs = r->columns - 1};
    o.prompt_ids = take(&at, n * 4);
    o.prompt_logprobs = take(&at, all * 4);
    o.prompt_logprob_ids = take(&at, all * 4);
    o.prompt_ranks = take(&at, n * 4);
    for (int32_t i = 0; i < call->n; i++) {
        PGD_TRY(pgd_serve_add_prompt(call, &call->choices[r->prompt * call->n + i], &o));
    }
    return PGD_OK;
}

// The one token behind a prompt that is only scored.
static void hide_output(pgd_delta *d) {
    d->n_ids = 0;
    d->logprobs = NULL;
    d->text_len = 0;
    d->n_output = 0;
    d->stop_id = -1;
    d->stop_text = NULL;
    d->finish_reason = d->finish_reason != NULL ? "length" : NULL;
}

// With echo an answer begins with its prompt.
static pgd_status add_echo(pgd_serve_prompt *p, pgd_serve_choice *c) {
    if (c->echoed) {
        return PGD_OK;
    }
    c->echoed = 1;
    return pgd_text_add_str(&c->text, pgd_text_view(&p->text));
}

// The delta's text into content and calls of tools.
static pgd_status add_text(pgd_serve_call *call, pgd_serve_choice *c, const pgd_delta *d) {
    if (!call->wants_calls) {
        return add_bytes(&c->text, d->text, d->text_len);
    }
    if (!pgd_api_int(&call->body, PGD_API_parallel_tool_calls, 1)) {
        c->tools.most = 1;
    }
    PGD_TRY(pgd_api_tools_read(&c->tools, (pgd_str){d->text, d->text_len}, &c->text));
    if (c->finish_reason == NULL) {
        return PGD_OK;
    }
    if (strcmp(c->finish_reason, "stop") == 0 && pgd_api_tools_shown(&c->tools) > 0) {
        c->finish_reason = "tool_calls";
    }
    return pgd_api_tools_end(&c->tools, &c->text);
}

static pgd_status read_delta_record(pgd_serve_call *call, const record *r) {
    const char *at = (const char *)(r + 1);
    pgd_serve_prompt *p = &call->prompts[r->prompt];
    pgd_delta d = r->d;
    const size_t n = (size_t)d.n_ids;
    const size_t all = n * (size_t)(d.n_logprobs + 1);
    const int32_t scored = d.logprobs != NULL;
    d.ids = take(&at, d.ids != NULL ? n * 4 : 0);
    d.logprobs = take(&at, scored ? all * 4 : 0);
    d.logprob_ids = take(&at, scored ? all * 4 : 0);
    d.text = take(&at, d.text_len);
    pgd_str stop = {take(&at, r->stop_len), r->stop_len};
    const int32_t index = r->prompt * call->n + d.index;
    pgd_serve_choice *c = &call->choices[index];
    const uint64_t now = pgd_clock_ns();
    pgd_text stop_text = {0};
    pgd_status status = stop.len > 0 ? pgd_text_add_str(&stop_text, stop) : PGD_OK;
    d.stop_text = stop_text.ptr;
    if (call->scores_only) {
        hide_output(&d);
    }
    if (!p->cached_known && d.n_ids > 0) {
        p->cached_known = 1;
        call->n_cached += d.n_cached;
    }
    pgd_serve_observe_delta(call, c, &d, now);
    status = status == PGD_OK ? add_echo(p, c) : status;
    status = status == PGD_OK ? pgd_serve_add_delta(call, c, &d) : status;
    status = status == PGD_OK ? add_text(call, c, &d) : status;
    if (status == PGD_OK && call->stream) {
        status = pgd_serve_add_chunk(call, index, &call->out);
    }
    pgd_text_free(&stop_text);
    if (c->finish_reason != NULL && call->error.status == 0 &&
        (strcmp(c->finish_reason, "error") == 0 || strcmp(c->finish_reason, "abort") == 0)) {
        const int32_t lost = strcmp(c->finish_reason, "error") == 0;
        (void)pgd_api_refuse(&call->error, lost ? 500 : 503, NULL, NULL,
                             lost ? "the engine failed on this request"
                                  : "the server ended this request; it is shutting down");
    }
    if (d.done) {
        p->done = 1;
        call->n_running--;
        pgd_serve_observe_end(call, p, now);
    }
    return status;
}

static void read_records(pgd_serve_call *call) {
    pgd_status status = PGD_OK;
    for (size_t at = 0; at < call->reading.len;) {
        const record *r = (const record *)(const void *)(call->reading.ptr + at);
        at += r->bytes;
        if (r->kind == RECORD_DELTA && (call->x == NULL || call->error.status != 0)) {
            call->prompts[r->prompt].done |= r->d.done;
            call->n_running -= r->d.done;
        } else if (status == PGD_OK) {
            status =
                r->kind == RECORD_PROMPT ? read_prompt_record(call, r) : read_delta_record(call, r);
        }
    }
    pgd_text_clear(&call->reading);
    if (status != PGD_OK || call->lost) {
        (void)pgd_api_refuse_status(&call->error, PGD_OUT_OF_MEMORY, NULL);
    }
}

static void begin_stream(pgd_serve_call *call) {
    if (call->started) {
        return;
    }
    call->started = 1;
    pgd_serve_exchange_add(call->x, "Cache-Control", "no-cache");
    pgd_serve_exchange_add(call->x, "X-Accel-Buffering", "no");
    pgd_serve_exchange_start(call->x, 200, "text/event-stream");
}

// The end of a stream, or the whole answer.
static void finish(pgd_serve_call *call) {
    pgd_serve_exchange *x = call->x;
    pgd_status status = PGD_OK;
    if (!call->stream) {
        status = pgd_serve_add_answer(call, &call->out);
        if (status != PGD_OK) {
            (void)pgd_api_refuse_status(&call->error, status, NULL);
            fail(call);
            return;
        }
        over(call);
        pgd_serve_answered(call->server, x, 200, call);
        pgd_serve_exchange_reply(x, 200, "application/json", pgd_text_view(&call->out));
        return;
    }
    if (call->body.include_usage) {
        status = pgd_serve_add_usage_chunk(call, &call->out);
    }
    if (status == PGD_OK && pgd_text_format(&call->out, "data: [DONE]\n\n") == PGD_OK) {
        pgd_serve_exchange_send(x, pgd_text_view(&call->out));
    }
    pgd_serve_answered(call->server, x, 200, call);
    over(call);
    pgd_serve_exchange_end(x);
}

// Sends what is there; a client that does not read loses its request, not the memory of others.
static void send_out(pgd_serve_call *call) {
    pgd_serve_exchange *x = call->x;
    pgd_serve_exchange_send(x, pgd_text_view(&call->out));
    pgd_text_clear(&call->out);
    call->last_ns = pgd_clock_ns();
    if (pgd_serve_exchange_pending(x) > MAX_PENDING_BYTES) {
        call->server->metrics.slow_readers++;
        pgd_serve_answered(call->server, x, 499, call);
        over(call);
        cancel_all(call);
        pgd_serve_exchange_cut(x);
    }
}

static void answer(pgd_serve_call *call) {
    if (call->error.status != 0) {
        fail(call);
        cancel_all(call);
        return;
    }
    if (call->stream) {
        begin_stream(call);
    }
    if (call->n_running == 0) {
        finish(call);
    } else if (call->out.len > 0) {
        send_out(call);
    }
}

static void on_arrived(void *arg) {
    pgd_serve_call *call = arg;
    pthread_mutex_lock(&call->arrived_mutex);
    call->posted = 0;
    if (!call->job_done) {
        pthread_mutex_unlock(&call->arrived_mutex);
        return;
    }
    pgd_text swap = call->reading;
    if (call->x != NULL && call->deadline_ns > 0) {
        pgd_serve_loop_tick_by(call->loop, call->deadline_ns);
    }
    call->reading = call->arrived;
    call->arrived = swap;
    const int32_t lost_ends = call->lost_ends;
    call->lost_ends = 0;
    pthread_mutex_unlock(&call->arrived_mutex);
    read_records(call);
    call->n_running -= lost_ends;
    if (call->x != NULL) {
        answer(call);
    } else {
        cancel_all(call);
    }
    let_go(call);
}

static void end_with_error(pgd_serve_call *call) {
    fail(call);
    cancel_all(call);
    let_go(call);
}

// Called about once a second for each open call, and at its deadline: ends it then; else a comment
// into silent streams.
void pgd_serve_call_tick(pgd_serve_call *call, uint64_t now) {
    if (is_submitted(call) && call->deadline_ns > 0) {
        if (now >= call->deadline_ns) {
            call->server->metrics.timeouts++;
            (void)pgd_api_refuse(&call->error, 408, NULL, "timeout",
                                 "the request has reached its deadline");
            end_with_error(call);
            return;
        }
        pgd_serve_loop_tick_by(call->loop, call->deadline_ns);
    }
    const uint64_t silence = (uint64_t)call->server->o.keep_alive_s * UINT64_C(1000000000);
    if (is_submitted(call) && call->stream && now - call->last_ns >= silence) {
        begin_stream(call);
        pgd_serve_exchange_send(call->x, PGD_STR(": ping\n\n"));
        call->last_ns = now;
    }
}

void pgd_serve_call_abort(pgd_serve_call *call, const char *why) {
    call->error.retry_after_s = 5;
    (void)pgd_api_refuse(&call->error, 503, NULL, NULL, "%s", why);
    end_with_error(call);
}

static void name_call(pgd_serve_call *call) {
    pgd_server *s = call->server;
    uint64_t state = s->salt + s->n_ids++;
    const uint64_t a = pgd_rng_next(&state);
    const uint64_t b = pgd_rng_next(&state);
    (void)snprintf(call->id, sizeof(call->id), "%s-%016llx%016llx",
                   call->is_chat ? "chatcmpl" : "cmpl", (unsigned long long)a,
                   (unsigned long long)b);
}

int32_t pgd_serve_has_room(pgd_server *s, pgd_api_error *e) {
    e->retry_after_s = 5;
    if (s->draining) {
        return pgd_api_refuse(e, 503, NULL, NULL, "the server is shutting down");
    }
    if (s->stuck) {
        return pgd_api_refuse(e, 503, NULL, "stuck", "the device does not answer");
    }
    e->retry_after_s = 0;
    if (s->waiting < s->o.max_queued_requests) {
        return 0;
    }
    e->retry_after_s = 1;
    s->metrics.rejected_queue++;
    return pgd_api_refuse(e, 429, NULL, "queue_full",
                          "%d requests are waiting, which is the most allowed",
                          s->o.max_queued_requests);
}

void pgd_serve_call_begin(pgd_server *s, pgd_serve_exchange *x, int32_t is_chat) {
    pgd_api_error e = {0};
    (void)pgd_serve_has_room(s, &e);
    const int32_t key =
        s->keys != NULL
            ? pgd_serve_keys_find(s->keys, pgd_serve_exchange_header(x, "Authorization"))
            : 0;
    if (e.status == 0 &&
        pgd_serve_quota_enter(s->quotas, key, pgd_serve_exchange_start_ns(x), &e) != 0) {
        s->metrics.rejected_keys++;
    }
    pgd_serve_call *call = e.status == 0 ? pgd_mem_alloc(1, sizeof(*call)) : NULL;
    if (call == NULL) {
        if (e.status == 0) {
            pgd_serve_quota_leave(s->quotas, key);
            (void)pgd_api_refuse_status(&e, PGD_OUT_OF_MEMORY, NULL);
        }
        pgd_serve_reply_error(s, x, &e);
        return;
    }
    call->server = s;
    call->x = x;
    call->key = key;
    call->is_chat = is_chat;
    call->loop = pgd_serve_exchange_loop(x);
    call->note = (pgd_serve_note){.fn = on_arrived, .arg = call};
    call->job = (pgd_serve_job){.fn = run_job, .arg = call};
    call->start_ns = pgd_serve_exchange_start_ns(x);
    call->last_ns = call->start_ns;
    call->created_s = pgd_clock_unix_ms() / 1000;
    pthread_mutex_init(&call->arrived_mutex, NULL);
    name_call(call);
    pgd_serve_exchange_keep(x, on_gone, call);
    pgd_serve_calls_add(call);
    if (pgd_text_add_str(&call->raw, pgd_serve_exchange_body(x)) != PGD_OK) {
        (void)pgd_api_refuse_status(&call->error, PGD_OUT_OF_MEMORY, NULL);
        call->job_done = 1;
        fail(call);
        let_go(call);
        return;
    }
    call->counted = 1;
    s->waiting++;
    pgd_serve_workers_add(s->workers, &call->job);
}
