// Opening and ending the server. See serve.h.
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/fail.h"
#include "base/mem.h"
#include "base/rng.h"
#include "serve/inner.h"

#define FLUSH_MS     500
#define HEADER_BYTES 32768
#define LINE_BYTES   8192
#define MAX_HEADERS  100
#define HEAD_S       10
#define IDLE_S       75
#define CONNECTIONS  4096

// ---- open calls --------------------------------------------------------------------------------

static int32_t loop_index(const pgd_server *s, const pgd_serve_loop *loop) {
    int32_t i = 0;
    while (i < s->n_loops - 1 && s->loops[i] != loop) {
        i++;
    }
    return i;
}

void pgd_serve_calls_add(pgd_serve_call *call) {
    pgd_serve_call **first = &call->server->calls[loop_index(call->server, call->loop)];
    call->prev = NULL;
    call->next = *first;
    if (*first != NULL) {
        (*first)->prev = call;
    }
    *first = call;
}

void pgd_serve_calls_remove(pgd_serve_call *call) {
    pgd_serve_call **first = &call->server->calls[loop_index(call->server, call->loop)];
    if (call->prev != NULL) {
        call->prev->next = call->next;
    } else if (*first == call) {
        *first = call->next;
    }
    if (call->next != NULL) {
        call->next->prev = call->prev;
    }
    call->prev = NULL;
    call->next = NULL;
}

static void abort_all_of(pgd_serve_loop_arg *a, const char *why) {
    while (a->server->calls[a->index] != NULL) {
        pgd_serve_call_abort(a->server->calls[a->index], why);
    }
}

static void abort_calls(void *arg) {
    abort_all_of(arg, "the server ended this request; it is shutting down");
}

static void abort_stuck(void *arg) {
    abort_all_of(arg, "the server ended this request; the device does not answer");
}

// A step that does not end: those who wait are told, nobody new is taken, until it ends after all.
static void look_at_step(pgd_server *s) {
    const uint64_t most = (uint64_t)s->o.watchdog_s * UINT64_C(1000000000);
    const int32_t stuck = most > 0 && pgd_async_step_ns(s->async) > most;
    if (stuck == s->stuck) {
        return;
    }
    s->stuck = stuck;
    if (!stuck) {
        pgd_serve_say(s, "watchdog", "the step has ended; the server is ready again");
        return;
    }
    s->metrics.stuck_steps++;
    pgd_serve_say(s, "watchdog", "a step takes longer than --watchdog-s allows; not ready");
    for (int32_t i = 0; i < s->n_loops; i++) {
        pgd_serve_loop_post(s->loops[i], &s->loop_args[i].stuck_note);
    }
}

static void tick(void *arg) {
    pgd_serve_loop_arg *a = arg;
    const uint64_t now = pgd_clock_ns();
    pgd_serve_call *next = NULL;
    for (pgd_serve_call *c = a->server->calls[a->index]; c != NULL; c = next) {
        next = c->next;
        pgd_serve_call_tick(c, now);
    }
    if (a->index == 0) {
        look_at_step(a->server);
    }
}

// ---- opening -----------------------------------------------------------------------------------

// The last part of a path or of a name, which clients send back as `model`.
static void name_model(pgd_server *s) {
    const char *from = s->o.engine.model != NULL ? s->o.engine.model : "nano";
    size_t n = strlen(from);
    while (n > 1 && from[n - 1] == '/') {
        n--;
    }
    (void)snprintf(s->name, sizeof(s->name), "%.*s", (int)(n < 250 ? n : 250), from);
}

static void set_defaults(pgd_server *s) {
    pgd_serve_options *o = &s->o;
    o->host = o->host != NULL ? o->host : "127.0.0.1";
    o->threads = o->threads < 1 ? 1 : o->threads;
    o->threads = o->threads > PGD_SERVE_MAX_LOOPS ? PGD_SERVE_MAX_LOOPS : o->threads;
    o->text_threads = o->text_threads < 1 ? 1 : o->text_threads;
    o->max_queued_requests = o->max_queued_requests > 0 ? o->max_queued_requests : 512;
    o->max_body_bytes = o->max_body_bytes > 0 ? o->max_body_bytes : UINT64_C(32) << 20;
    o->keep_alive_s = o->keep_alive_s > 0 ? o->keep_alive_s : 30;
    o->max_connections = o->max_connections > 0 ? o->max_connections : CONNECTIONS;
}

static pgd_status open_engine(pgd_server *s) {
    PGD_TRY(pgd_engine_create(&s->o.engine, &s->engine));
    s->info.size = sizeof(s->info);
    pgd_engine_get_info(s->engine, &s->info);
    s->tokenizer = pgd_engine_tokenizer(s->engine);
    s->chat = pgd_engine_template(s->engine);
    s->created_s = pgd_clock_unix_ms() / 1000;
    s->salt = pgd_rng_seed();
    (void)snprintf(s->fingerprint, sizeof(s->fingerprint), "pagoda-%s", pgd_version());
    PGD_TRY(pgd_serve_openapi_add(&s->openapi, s));
    return pgd_async_create(s->engine, &s->async);
}

static pgd_status open_loops(pgd_server *s) {
    pgd_serve_http_options h = {
        .host = s->o.host,
        .port = s->o.port,
        .head_s = s->o.head_timeout_s > 0 ? s->o.head_timeout_s : HEAD_S,
        .limits = {.line_bytes = LINE_BYTES,
                   .header_bytes = HEADER_BYTES,
                   .headers = MAX_HEADERS,
                   .body_bytes = s->o.max_body_bytes},
        .idle_s = IDLE_S,
        .max_connections = s->o.max_connections,
        .n_connections = &s->n_connections,
        .refused = pgd_serve_refused,
        .cert_file = s->o.cert_file,
        .key_file = s->o.key_file,
        .handler = pgd_serve_route,
        .arg = s,
        .tick = tick,
    };
    s->loop_args = pgd_mem_alloc((size_t)s->o.threads, sizeof(*s->loop_args));
    if (s->loop_args == NULL) {
        return PGD_MEM_FAIL("event loops", (size_t)s->o.threads * sizeof(*s->loop_args));
    }
    for (; s->n_loops < s->o.threads; s->n_loops++) {
        pgd_serve_loop_arg *a = &s->loop_args[s->n_loops];
        *a = (pgd_serve_loop_arg){.server = s, .index = s->n_loops};
        a->note = (pgd_serve_note){.fn = abort_calls, .arg = a};
        a->stuck_note = (pgd_serve_note){.fn = abort_stuck, .arg = a};
        h.tick_arg = a;
        PGD_TRY(pgd_serve_loop_create(&h, &s->loops[s->n_loops]));
        h.port = pgd_serve_loop_port(s->loops[0]);
        h.shared = 1;
    }
    for (int32_t i = 0; i < s->n_loops; i++) {
        PGD_TRY(pgd_serve_loop_start(s->loops[i]));
    }
    return PGD_OK;
}

static pgd_status open_all(pgd_server *s) {
    PGD_TRY(pgd_serve_keys_open(s->o.api_keys, s->o.n_api_keys, s->o.api_key_file, &s->keys));
    const pgd_serve_quota_limits limits = {.requests = s->o.key_max_requests,
                                           .tokens = s->o.key_tokens_a_minute};
    PGD_TRY(pgd_serve_quotas_open(&limits, pgd_serve_keys_count(s->keys), &s->quotas));
    PGD_TRY(open_engine(s));
    PGD_TRY(pgd_serve_workers_start(s->o.text_threads, &s->workers));
    return open_loops(s);
}

pgd_status pgd_serve_start(const pgd_serve_options *o, pgd_server **out) {
    *out = NULL;
    pgd_server *s = pgd_mem_alloc(1, sizeof(*s));
    if (s == NULL) {
        return PGD_MEM_FAIL("the server", sizeof(*s));
    }
    s->o = *o;
    set_defaults(s);
    name_model(s);
    const pgd_status status = open_all(s);
    if (status != PGD_OK) {
        pgd_serve_stop(s);
        return status;
    }
    *out = s;
    return PGD_OK;
}

int32_t pgd_serve_port(const pgd_server *s) {
    return pgd_serve_loop_port(s->loops[0]);
}

void pgd_serve_info(const pgd_server *s, pgd_engine_info *out) {
    *out = s->info;
}

int32_t pgd_serve_open(const pgd_server *s) {
    int32_t n = 0;
    for (int32_t i = 0; i < s->n_loops; i++) {
        n += pgd_serve_loop_open(s->loops[i]);
    }
    return n;
}

// ---- ending ------------------------------------------------------------------------------------

void pgd_serve_drain(pgd_server *s) {
    s->draining = 1;
    for (int32_t i = 0; i < s->n_loops; i++) {
        pgd_serve_loop_drain(s->loops[i]);
    }
}

// Lets the loops tell the clients of what still runs, and write it.
static void abort_all(pgd_server *s) {
    for (int32_t i = 0; s->loop_args != NULL && i < s->n_loops; i++) {
        pgd_serve_loop_post(s->loops[i], &s->loop_args[i].note);
    }
    for (int32_t ms = 0; ms < FLUSH_MS && pgd_serve_open(s) > 0; ms += 10) {
        pgd_clock_sleep_ns(10 * UINT64_C(1000000));
    }
}

// Threads end from the outside in: workers, loops, engine. What the engine's end still posts is
// read when the loops are destroyed.
void pgd_serve_stop(pgd_server *s) {
    if (s == NULL) {
        return;
    }
    pgd_serve_drain(s);
    abort_all(s);
    pgd_serve_workers_stop(s->workers);
    for (int32_t i = 0; i < s->n_loops; i++) {
        pgd_serve_loop_stop(s->loops[i]);
    }
    pgd_async_destroy(s->async);
    s->async = NULL;
    for (int32_t i = 0; i < PGD_SERVE_MAX_LOOPS; i++) {
        pgd_serve_loop_destroy(s->loops[i]);
    }
    pgd_engine_destroy(s->engine);
    pgd_serve_keys_close(s->keys);
    pgd_serve_quotas_close(s->quotas);
    pgd_text_free(&s->openapi);
    pgd_mem_free(s->loop_args);
    pgd_mem_free(s);
}
