// See batch_body.h. Source of the shapes: OpenAI's API reference (batch, chat, completions).
#include "cli/batch_body.h"

#include <string.h>

#include "base/clock.h"
#include "base/fail.h"
#include "base/mem.h"
#include "cli/common.h"

#define DEFAULT_CHAT_TOKENS       256
#define DEFAULT_COMPLETION_TOKENS 16
#define MAX_STOP_IDS              64

typedef struct body_fields {
    pgd_request_desc desc;
    int32_t stop_ids[MAX_STOP_IDS];
    const pgd_json *messages;
    const pgd_json *tools;
    const pgd_json *prompt;
} body_fields;

static pgd_status wrong(const char *key, const char *allowed) {
    return pgd_fail(PGD_INVALID, "%s: %s", key, allowed);
}

static pgd_status read_i32(const pgd_json *v, const char *key, int32_t low, int32_t *out) {
    int64_t i = 0;
    if (!pgd_json_to_i64(v, &i) || i < low || i > INT32_MAX) {
        return pgd_fail(PGD_OUT_OF_RANGE, "%s: a whole number from %d to %d is allowed", key, low,
                        INT32_MAX);
    }
    *out = (int32_t)i;
    return PGD_OK;
}

static pgd_status read_float(const pgd_json *v, const char *key, double high, float *out) {
    double f = 0.0;
    if (!pgd_json_to_f64(v, &f) || !(f >= 0.0 && f <= high)) {
        return pgd_fail(PGD_OUT_OF_RANGE, "%s: a number from 0 to %g is allowed", key, high);
    }
    *out = (float)f;
    return PGD_OK;
}

static pgd_status read_stop_ids(const pgd_json *v, body_fields *f) {
    if (!pgd_json_is(v, PGD_JSON_ARRAY) || v->n > MAX_STOP_IDS) {
        return pgd_fail(PGD_OUT_OF_RANGE, "stop_token_ids: a list of at most %d ids is allowed",
                        MAX_STOP_IDS);
    }
    for (uint32_t i = 0; i < v->n; i++) {
        PGD_TRY(read_i32(&v->items[i], "stop_token_ids", 0, &f->stop_ids[i]));
    }
    f->desc.stop_ids = f->stop_ids;
    f->desc.n_stop_ids = (int32_t)v->n;
    return PGD_OK;
}

// A field that may stand there with its only supported value.
static pgd_status expect_off(const pgd_json *v, const char *key) {
    int64_t i = 0;
    int32_t on = 0;
    if ((pgd_json_to_i64(v, &i) && i == 1 && strcmp(key, "n") == 0) ||
        (pgd_json_to_bool(v, &on) && !on)) {
        return PGD_OK;
    }
    return wrong(key, "only its default is allowed in this version");
}

static pgd_status read_sampling(const pgd_json *v, const char *key, body_fields *f,
                                int32_t *known) {
    pgd_request_desc *d = &f->desc;
    int64_t seed = 0;
    int32_t on = 0;
    *known = 1;
    if (strcmp(key, "temperature") == 0) {
        return read_float(v, key, 2.0, &d->temperature);
    }
    if (strcmp(key, "top_p") == 0) {
        return read_float(v, key, 1.0, &d->top_p);
    }
    if (strcmp(key, "min_p") == 0) {
        return read_float(v, key, 1.0, &d->min_p);
    }
    if (strcmp(key, "top_k") == 0) {
        return read_i32(v, key, 0, &d->top_k);
    }
    if (strcmp(key, "seed") == 0) {
        d->has_seed = 1;
        d->seed = pgd_json_to_i64(v, &seed) ? (uint64_t)seed : 0;
        return pgd_json_is(v, PGD_JSON_INT) ? PGD_OK : wrong(key, "a whole number is allowed");
    }
    if (strcmp(key, "ignore_eos") == 0) {
        int32_t is_bool = pgd_json_to_bool(v, &on);
        d->ignore_eos = (uint32_t)on;
        return is_bool ? PGD_OK : wrong(key, "true or false is allowed");
    }
    *known = 0;
    return PGD_OK;
}

static pgd_status read_field(const pgd_json *v, const char *key, int32_t is_chat, body_fields *f) {
    int32_t known = 0;
    if (v->kind == PGD_JSON_NULL || strcmp(key, "model") == 0 || strcmp(key, "user") == 0) {
        return PGD_OK;
    }
    PGD_TRY(read_sampling(v, key, f, &known));
    if (known) {
        return PGD_OK;
    }
    if (strcmp(key, "max_tokens") == 0 || strcmp(key, "max_completion_tokens") == 0) {
        return read_i32(v, key, 1, &f->desc.max_tokens);
    }
    if (strcmp(key, "min_tokens") == 0) {
        return read_i32(v, key, 0, &f->desc.min_tokens);
    }
    if (strcmp(key, "stop_token_ids") == 0) {
        return read_stop_ids(v, f);
    }
    if (strcmp(key, "n") == 0 || strcmp(key, "stream") == 0) {
        return expect_off(v, key);
    }
    if (is_chat && strcmp(key, "messages") == 0) {
        f->messages = v;
        return PGD_OK;
    }
    if (is_chat && strcmp(key, "tools") == 0) {
        f->tools = v;
        return PGD_OK;
    }
    if (!is_chat && strcmp(key, "prompt") == 0) {
        f->prompt = v;
        return PGD_OK;
    }
    return wrong(key, "no such field in this version");
}

static pgd_status submit_chat(pgd_engine *engine, body_fields *f, pgd_request **out) {
    pgd_text messages = {0};
    pgd_text tools = {0};
    char *prompt = NULL;
    pgd_status status = PGD_OK;
    if (f->messages == NULL) {
        status = wrong("messages", "is missing; a list is needed");
    } else {
        status = pgd_json_add(&messages, f->messages);
    }
    if (status == PGD_OK && f->tools != NULL) {
        status = pgd_json_add(&tools, f->tools);
    }
    if (status == PGD_OK) {
        status = pgd_engine_chat_prompt(engine, messages.ptr, tools.ptr, &prompt);
    }
    if (status == PGD_OK) {
        f->desc.prompt = prompt;
        f->desc.no_special = 1;
        status = pgd_engine_submit(engine, &f->desc, out);
    }
    pgd_free(prompt);
    pgd_text_free(&messages);
    pgd_text_free(&tools);
    return status;
}

static pgd_status submit_completion(pgd_engine *engine, body_fields *f, pgd_request **out) {
    pgd_str text;
    if (pgd_json_to_str(f->prompt, &text)) {
        f->desc.prompt = text.ptr;
        f->desc.prompt_len = text.len;
        return pgd_engine_submit(engine, &f->desc, out);
    }
    if (!pgd_json_is(f->prompt, PGD_JSON_ARRAY)) {
        return wrong("prompt", "is missing; a string or a list of token ids is needed");
    }
    int32_t *ids = pgd_mem_alloc(f->prompt->n, sizeof(*ids));
    if (ids == NULL) {
        return PGD_MEM_FAIL("the prompt", f->prompt->n * sizeof(*ids));
    }
    pgd_status status = PGD_OK;
    for (uint32_t i = 0; i < f->prompt->n && status == PGD_OK; i++) {
        status = read_i32(&f->prompt->items[i], "prompt", 0, &ids[i]);
    }
    if (status == PGD_OK) {
        f->desc.ids = ids;
        f->desc.n_ids = (int32_t)f->prompt->n;
        status = pgd_engine_submit(engine, &f->desc, out);
    }
    pgd_mem_free(ids);
    return status;
}

pgd_status cli_batch_submit(pgd_engine *engine, const pgd_json *body, int32_t is_chat,
                            pgd_request **out) {
    body_fields f = {.desc = {.size = sizeof(pgd_request_desc)}};
    *out = NULL;
    cli_set_sampling(engine, is_chat ? DEFAULT_CHAT_TOKENS : DEFAULT_COMPLETION_TOKENS, &f.desc);
    for (uint32_t i = 0; i < body->n; i++) {
        PGD_TRY(read_field(&body->items[i], body->keys[i].ptr, is_chat, &f));
    }
    return is_chat ? submit_chat(engine, &f, out) : submit_completion(engine, &f, out);
}

static pgd_status add_body(pgd_text *t, int32_t is_chat, const char *model, const pgd_output *o) {
    PGD_TRY(pgd_text_format(t, "{\"id\":\"%s\",\"object\":\"%s\",\"created\":%lld,\"model\":",
                            is_chat ? "chatcmpl" : "cmpl",
                            is_chat ? "chat.completion" : "text_completion",
                            (long long)(pgd_clock_unix_ms() / 1000)));
    PGD_TRY(pgd_json_add_str(t, pgd_str_of(model)));
    PGD_TRY(pgd_text_format(t, ",\"choices\":[{\"index\":0,%s",
                            is_chat ? "\"message\":{\"role\":\"assistant\",\"content\":"
                                    : "\"text\":"));
    PGD_TRY(pgd_json_add_str(t, (pgd_str){o->text, o->text_len}));
    return pgd_text_format(t,
                           "%s,\"logprobs\":null,\"finish_reason\":\"%s\"}],\"usage\":{"
                           "\"prompt_tokens\":%d,\"completion_tokens\":%d,\"total_tokens\":%d}}",
                           is_chat ? "}" : "", o->finish_reason, o->n_prompt, o->n_ids,
                           o->n_prompt + o->n_ids);
}

static pgd_status add_refusal(pgd_text *t, const char *refusal) {
    PGD_TRY(pgd_text_format(t, "{\"error\":{\"message\":"));
    PGD_TRY(pgd_json_add_str(t, pgd_str_of(refusal)));
    return pgd_text_format(t, ",\"type\":\"invalid_request_error\",\"param\":null,\"code\":null}}");
}

pgd_status cli_batch_add_answer(pgd_text *t, pgd_str custom_id, int32_t is_chat, const char *model,
                                const pgd_output *o, const char *refusal) {
    int32_t code = refusal == NULL ? 200 : (o == NULL ? 400 : 500);
    PGD_TRY(pgd_text_format(t, "{\"id\":"));
    PGD_TRY(pgd_json_add_str(t, custom_id));
    PGD_TRY(pgd_text_format(t, ",\"custom_id\":"));
    PGD_TRY(pgd_json_add_str(t, custom_id));
    PGD_TRY(pgd_text_format(t, ",\"response\":{\"status_code\":%d,\"request_id\":", code));
    PGD_TRY(pgd_json_add_str(t, custom_id));
    PGD_TRY(pgd_text_format(t, ",\"body\":"));
    PGD_TRY(refusal != NULL ? add_refusal(t, refusal) : add_body(t, is_chat, model, o));
    return pgd_text_format(t, "},\"error\":null}\n");
}
