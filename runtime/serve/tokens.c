// /tokenize, /detokenize, /tokenizer_info. Answered by the loop: what they cost is bounded by the
// size of a body.
#include "base/fail.h"
#include "base/json.h"
#include "serve/inner.h"

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

void pgd_serve_post_tokenize(pgd_server *s, pgd_serve_exchange *x) {
    pgd_text t = {0};
    pgd_api_error e = {0};
    const pgd_status status = tokenize(s, pgd_serve_exchange_body(x), &t, &e);
    finish(s, x, status, &t, &e);
}

static pgd_status detokenize(pgd_server *s, const pgd_json *list, pgd_text *t, pgd_api_error *e) {
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

void pgd_serve_post_detokenize(pgd_server *s, pgd_serve_exchange *x) {
    pgd_text t = {0};
    pgd_api_error e = {0};
    pgd_json_doc *doc = NULL;
    pgd_status status = pgd_json_parse(pgd_serve_exchange_body(x), "the body", 64, &doc);
    if (status == PGD_OK) {
        status = detokenize(s, pgd_json_get(pgd_json_root(doc), "tokens"), &t, &e);
    }
    pgd_json_free(doc);
    finish(s, x, status, &t, &e);
}

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
