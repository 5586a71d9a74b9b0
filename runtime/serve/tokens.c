// /tokenize, /detokenize, /tokenizer_info. The first two are work for a text worker: a template or
// a long text must not hold an event loop (CVE-2025-62426).
//
//   loop begin -> worker run_job -> loop on_done: answers, or frees only when the client has left
#include "base/fail.h"
#include "base/json.h"
#include "base/mem.h"
#include "serve/inner.h"

typedef struct tokens_job {
    pgd_server *server;
    pgd_serve_exchange *x; // NULL: the client has left; the loop's
    pgd_serve_loop *loop;
    pgd_status (*fn)(pgd_server *s, pgd_str body, pgd_text *t, pgd_api_error *e);
    pgd_serve_note note;
    pgd_serve_job job;
    pgd_text body;
    pgd_text out;
    pgd_api_error error;
} tokens_job;

static void finish(pgd_server *s, pgd_serve_exchange *x, pgd_status status, pgd_text *t,
                   pgd_api_error *e) {
    if (status != PGD_OK && e->status == 0) {
        (void)pgd_api_refuse_status(e, status, NULL);
    }
    if (e->status != 0) {
        pgd_serve_reply_error(s, x, e);
    } else {
        pgd_serve_reply_json(s, x, 200, pgd_text_view(t));
    }
    pgd_text_free(t);
}

static pgd_status add_ids(const pgd_server *s, const pgd_text_ids *ids, int32_t with_texts,
                          pgd_text *t) {
    PGD_TRY(pgd_text_format(t, "{\"count\":%zu,\"max_model_len\":%d,\"tokens\":[", ids->n,
                            s->info.max_model_len));
    for (size_t i = 0; i < ids->n; i++) {
        PGD_TRY(pgd_text_format(t, "%s%d", i > 0 ? "," : "", ids->ids[i]));
    }
    PGD_TRY(pgd_text_add(t, "]", 1));
    if (with_texts) {
        PGD_TRY(pgd_text_format(t, ",\"token_strs\":["));
        for (size_t i = 0; i < ids->n; i++) {
            PGD_TRY(pgd_text_add(t, ",", i > 0 ? 1 : 0));
            PGD_TRY(pgd_json_add_str(t, pgd_text_token_content(s->tokenizer, ids->ids[i])));
        }
        PGD_TRY(pgd_text_add(t, "]", 1));
    } else {
        PGD_TRY(pgd_text_format(t, ",\"token_strs\":null"));
    }
    return pgd_text_add(t, "}", 1);
}

// A body of /tokenize is one of a completion ("prompt") or of a chat ("messages").
static pgd_status tokenize(pgd_server *s, pgd_str body, pgd_text *t, pgd_api_error *e) {
    pgd_json_doc *doc = NULL;
    pgd_serve_call call = {.server = s};
    int32_t with_texts = 0;
    PGD_TRY(pgd_json_parse(body, "the body", 64, &doc));
    call.is_chat = pgd_json_get(pgd_json_root(doc), "messages") != NULL;
    (void)pgd_json_to_bool(pgd_json_get(pgd_json_root(doc), "return_token_strs"), &with_texts);
    pgd_json_free(doc);
    pgd_status status = PGD_OK;
    if (pgd_api_body_read(&call.body, body, call.is_chat ? PGD_API_CHAT : PGD_API_COMPLETION, 0,
                          &call.error) == 0 &&
        pgd_serve_prompt_ids(&call) == 0) {
        status = add_ids(s, &call.prompts[0].ids, with_texts, t);
    }
    *e = call.error;
    pgd_serve_prompts_free(&call);
    pgd_api_body_free(&call.body);
    return status;
}

static pgd_status decode_list(pgd_server *s, const pgd_json *list, pgd_text *t, pgd_api_error *e) {
    pgd_text_ids ids = {0};
    pgd_text text = {0};
    pgd_status status = PGD_OK;
    if (!pgd_json_is(list, PGD_JSON_ARRAY) || s->tokenizer == NULL) {
        (void)pgd_api_refuse(e, 400, "tokens", NULL, "tokens: a list of token ids is needed");
        return PGD_OK;
    }
    for (uint32_t i = 0; i < list->n && status == PGD_OK && e->status == 0; i++) {
        int64_t id = 0;
        if (!pgd_json_to_i64(&list->items[i], &id) || id < 0 || id >= s->info.vocab_size) {
            (void)pgd_api_refuse(e, 400, "tokens", NULL,
                                 "tokens: entry %u is no token id; 0 to %d are allowed", i,
                                 s->info.vocab_size - 1);
        } else {
            status = pgd_text_ids_add(&ids, (int32_t)id);
        }
    }
    if (status == PGD_OK && e->status == 0) {
        status = pgd_text_decode(s->tokenizer, ids.ids, ids.n, 0, &text);
        status = status == PGD_OK ? pgd_text_format(t, "{\"prompt\":") : status;
        status = status == PGD_OK ? pgd_json_add_str(t, pgd_text_view(&text)) : status;
        status = status == PGD_OK ? pgd_text_add(t, "}", 1) : status;
    }
    pgd_text_ids_free(&ids);
    pgd_text_free(&text);
    return status;
}

static pgd_status detokenize(pgd_server *s, pgd_str body, pgd_text *t, pgd_api_error *e) {
    pgd_json_doc *doc = NULL;
    PGD_TRY(pgd_json_parse(body, "the body", 64, &doc));
    const pgd_status status = decode_list(s, pgd_json_get(pgd_json_root(doc), "tokens"), t, e);
    pgd_json_free(doc);
    return status;
}

// ---- the job -----------------------------------------------------------------------------------

static void free_job(tokens_job *j) {
    pgd_text_free(&j->body);
    pgd_text_free(&j->out);
    pgd_mem_free(j);
}

static void on_done(void *arg) {
    tokens_job *j = arg;
    j->server->waiting--;
    if (j->x != NULL) {
        finish(j->server, j->x, PGD_OK, &j->out, &j->error);
    }
    free_job(j);
}

static void on_left(void *arg) {
    tokens_job *j = arg;
    j->server->metrics.clients_left++;
    pgd_serve_answered(j->server, j->x, 499, NULL);
    j->x = NULL;
}

static void run_job(void *arg) {
    tokens_job *j = arg;
    const pgd_status status = j->fn(j->server, pgd_text_view(&j->body), &j->out, &j->error);
    if (status != PGD_OK && j->error.status == 0) {
        (void)pgd_api_refuse_status(&j->error, status, NULL);
    }
    pgd_serve_loop_post(j->loop, &j->note);
}

static void begin(pgd_server *s, pgd_serve_exchange *x,
                  pgd_status (*fn)(pgd_server *s, pgd_str body, pgd_text *t, pgd_api_error *e)) {
    pgd_api_error e = {0};
    tokens_job *j = NULL;
    if (pgd_serve_has_room(s, &e) == 0) {
        j = pgd_mem_alloc(1, sizeof(*j));
        if (j == NULL || pgd_text_add_str(&j->body, pgd_serve_exchange_body(x)) != PGD_OK) {
            (void)pgd_api_refuse_status(&e, PGD_OUT_OF_MEMORY, NULL);
        }
    }
    if (e.status != 0) {
        pgd_mem_free(j);
        pgd_serve_reply_error(s, x, &e);
        return;
    }
    j->server = s;
    j->x = x;
    j->fn = fn;
    j->loop = pgd_serve_exchange_loop(x);
    j->note = (pgd_serve_note){.fn = on_done, .arg = j};
    j->job = (pgd_serve_job){.fn = run_job, .arg = j};
    s->waiting++;
    pgd_serve_exchange_keep(x, on_left, j);
    pgd_serve_workers_add(s->workers, &j->job);
}

void pgd_serve_post_tokenize(pgd_server *s, pgd_serve_exchange *x) {
    begin(s, x, tokenize);
}

void pgd_serve_post_detokenize(pgd_server *s, pgd_serve_exchange *x) {
    begin(s, x, detokenize);
}

// ---- the tokenizer -----------------------------------------------------------------------------

static pgd_status add_special(const pgd_server *s, const char *name, int32_t id, pgd_text *t) {
    PGD_TRY(pgd_text_format(t, ",\"%s\":", name));
    return id >= 0 ? pgd_json_add_str(t, pgd_text_token_content(s->tokenizer, id))
                   : pgd_text_add(t, "null", 4);
}

static pgd_status add_tokenizer(const pgd_server *s, pgd_text *t) {
    const int32_t bos = s->tokenizer != NULL ? pgd_text_bos(s->tokenizer) : -1;
    const int32_t eos = s->tokenizer != NULL ? pgd_text_eos(s->tokenizer) : -1;
    PGD_TRY(pgd_text_format(t, "{\"vocab_size\":%d,\"model_max_length\":%d", s->info.vocab_size,
                            s->info.max_model_len));
    PGD_TRY(add_special(s, "bos_token", bos, t));
    PGD_TRY(add_special(s, "eos_token", eos, t));
    return pgd_text_format(t, ",\"bos_token_id\":%d,\"eos_token_id\":%d}", bos, eos);
}

void pgd_serve_get_tokenizer_info(pgd_server *s, pgd_serve_exchange *x) {
    pgd_text t = {0};
    pgd_api_error e = {0};
    const pgd_status status = add_tokenizer(s, &t);
    finish(s, x, status, &t, &e);
}
