// See batch_body.h. Source of the shapes: OpenAI's API reference (batch, chat, completions).
#include "cli/batch_body.h"

#include <string.h>

#include "base/fail.h"
#include "base/mem.h"
#include "cli/common.h"

#define DEFAULT_CHAT_TOKENS       256
#define DEFAULT_COMPLETION_TOKENS 16
#define MAX_STOP_IDS              64

#define MAX_TEXTS 64
#define MAX_BIAS  1024

typedef struct body_fields {
    pgd_request_desc desc;
    int32_t stop_ids[MAX_STOP_IDS];
    const char *stop[MAX_TEXTS];
    const char *bad_words[MAX_TEXTS];
    int32_t bias_ids[MAX_BIAS];
    float bias_adds[MAX_BIAS];
    int32_t *allowed_ids; // owned
    int32_t n_top;        // chat's top_logprobs
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

static pgd_status read_float(const pgd_json *v, const char *key, double low, double high,
                             float *out) {
    double f = 0.0;
    if (!pgd_json_to_f64(v, &f) || !(f >= low && f <= high)) {
        return pgd_fail(PGD_OUT_OF_RANGE, "%s: a number from %g to %g is allowed", key, low, high);
    }
    *out = (float)f;
    return PGD_OK;
}

static pgd_status read_ids(const pgd_json *v, const char *key, uint32_t most, int32_t *out) {
    if (!pgd_json_is(v, PGD_JSON_ARRAY) || v->n > most) {
        return pgd_fail(PGD_OUT_OF_RANGE, "%s: a list of at most %u ids is allowed", key, most);
    }
    for (uint32_t i = 0; i < v->n; i++) {
        PGD_TRY(read_i32(&v->items[i], key, 0, &out[i]));
    }
    return PGD_OK;
}

// A string or a list of strings.
static pgd_status read_texts(const pgd_json *v, const char *key, const char **out,
                             uint32_t *out_n) {
    const pgd_json *items = pgd_json_is(v, PGD_JSON_ARRAY) ? v->items : v;
    uint32_t n = pgd_json_is(v, PGD_JSON_ARRAY) ? v->n : 1;
    pgd_str text;
    if (n > MAX_TEXTS) {
        return pgd_fail(PGD_OUT_OF_RANGE, "%s: at most %d strings are allowed", key, MAX_TEXTS);
    }
    for (uint32_t i = 0; i < n; i++) {
        if (!pgd_json_to_str(&items[i], &text)) {
            return wrong(key, "a string or a list of strings is allowed");
        }
        out[i] = text.ptr;
    }
    *out_n = n;
    return PGD_OK;
}

static pgd_status read_bias(const pgd_json *v, const char *key, body_fields *f) {
    if (!pgd_json_is(v, PGD_JSON_OBJECT) || v->n > MAX_BIAS) {
        return pgd_fail(PGD_OUT_OF_RANGE, "%s: an object of at most %d token ids is allowed", key,
                        MAX_BIAS);
    }
    for (uint32_t i = 0; i < v->n; i++) {
        int64_t id = 0;
        if (!pgd_str_to_i64(v->keys[i], &id) || id < 0 || id > INT32_MAX) {
            return pgd_fail(PGD_INVALID, "%s: \"%s\" is no token id", key, v->keys[i].ptr);
        }
        f->bias_ids[i] = (int32_t)id;
        PGD_TRY(read_float(&v->items[i], key, -100.0, 100.0, &f->bias_adds[i]));
    }
    f->desc.bias_ids = f->bias_ids;
    f->desc.bias_adds = f->bias_adds;
    f->desc.n_bias = (int32_t)v->n;
    return PGD_OK;
}

static pgd_status read_allowed(const pgd_json *v, const char *key, body_fields *f) {
    pgd_mem_free(f->allowed_ids);
    f->allowed_ids = pgd_mem_alloc(v->n, sizeof(*f->allowed_ids));
    if (f->allowed_ids == NULL) {
        return PGD_MEM_FAIL("the allowed tokens", v->n * sizeof(*f->allowed_ids));
    }
    PGD_TRY(read_ids(v, key, INT32_MAX, f->allowed_ids));
    f->desc.allowed_ids = f->allowed_ids;
    f->desc.n_allowed = (int32_t)v->n;
    return PGD_OK;
}

static pgd_status read_flag(const pgd_json *v, const char *key, uint32_t *out) {
    int32_t on = 0;
    int32_t is_bool = pgd_json_to_bool(v, &on);
    *out = (uint32_t)on;
    return is_bool ? PGD_OK : wrong(key, "true or false is allowed");
}

// Chat says {"logprobs": true, "top_logprobs": 5}, a completion {"logprobs": 5}.
static pgd_status read_logprobs(const pgd_json *v, const char *key, int32_t is_chat,
                                body_fields *f) {
    if (is_chat) {
        return read_flag(v, key, &f->desc.has_logprobs);
    }
    f->desc.has_logprobs = 1;
    return read_i32(v, key, 0, &f->desc.n_logprobs);
}

static pgd_status read_seed(const pgd_json *v, const char *key, pgd_request_desc *d) {
    int64_t seed = 0;
    d->has_seed = 1;
    d->seed = pgd_json_to_i64(v, &seed) ? (uint64_t)seed : 0;
    return pgd_json_is(v, PGD_JSON_INT) ? PGD_OK : wrong(key, "a whole number is allowed");
}

// ---- fields ------------------------------------------------------------------------------------

#define NUMBER(name) offsetof(pgd_request_desc, name)

// Fields that are one number of the request.
static const struct {
    const char *key;
    size_t at;
    double low;
    double high; // 0: a whole number from low on
} numbers[] = {
    {"temperature", NUMBER(temperature), 0.0, 2.0},
    {"top_p", NUMBER(top_p), 0.0, 1.0},
    {"min_p", NUMBER(min_p), 0.0, 1.0},
    {"presence_penalty", NUMBER(presence_penalty), -2.0, 2.0},
    {"frequency_penalty", NUMBER(frequency_penalty), -2.0, 2.0},
    {"repetition_penalty", NUMBER(repetition_penalty), 0.01, 100.0},
    {"top_k", NUMBER(top_k), 0.0, 0.0},
    {"max_tokens", NUMBER(max_tokens), 1.0, 0.0},
    {"max_completion_tokens", NUMBER(max_tokens), 1.0, 0.0},
    {"min_tokens", NUMBER(min_tokens), 0.0, 0.0},
    {"n", NUMBER(n), 1.0, 0.0},
    {"priority", NUMBER(priority), -1e9, 0.0},
};

static pgd_status read_number(const pgd_json *v, const char *key, body_fields *f, int32_t *known) {
    for (size_t i = 0; i < sizeof(numbers) / sizeof(numbers[0]); i++) {
        if (strcmp(key, numbers[i].key) != 0) {
            continue;
        }
        unsigned char *at = (unsigned char *)&f->desc + numbers[i].at;
        int32_t whole = 0;
        float real = 0.0f;
        *known = 1;
        if (numbers[i].high != 0.0) {
            PGD_TRY(read_float(v, key, numbers[i].low, numbers[i].high, &real));
            memcpy(at, &real, sizeof(real));
        } else {
            PGD_TRY(read_i32(v, key, (int32_t)numbers[i].low, &whole));
            memcpy(at, &whole, sizeof(whole));
        }
    }
    return PGD_OK;
}

static pgd_status read_list(const pgd_json *v, const char *key, body_fields *f, int32_t *known) {
    pgd_request_desc *d = &f->desc;
    *known = 1;
    if (strcmp(key, "stop") == 0) {
        d->stop = f->stop;
        return read_texts(v, key, f->stop, &d->n_stop);
    }
    if (strcmp(key, "bad_words") == 0) {
        d->bad_words = f->bad_words;
        return read_texts(v, key, f->bad_words, &d->n_bad_words);
    }
    if (strcmp(key, "stop_token_ids") == 0) {
        d->stop_ids = f->stop_ids;
        d->n_stop_ids = (int32_t)v->n;
        return read_ids(v, key, MAX_STOP_IDS, f->stop_ids);
    }
    if (strcmp(key, "logit_bias") == 0) {
        return read_bias(v, key, f);
    }
    if (strcmp(key, "allowed_token_ids") == 0) {
        return pgd_json_is(v, PGD_JSON_ARRAY) ? read_allowed(v, key, f)
                                              : wrong(key, "a list of token ids is allowed");
    }
    *known = 0;
    return PGD_OK;
}

static pgd_status read_switch(const pgd_json *v, const char *key, int32_t is_chat, body_fields *f,
                              int32_t *known) {
    uint32_t on = 0;
    *known = 1;
    if (strcmp(key, "seed") == 0) {
        return read_seed(v, key, &f->desc);
    }
    if (strcmp(key, "ignore_eos") == 0) {
        return read_flag(v, key, &f->desc.ignore_eos);
    }
    if (strcmp(key, "include_stop_str_in_output") == 0) {
        return read_flag(v, key, &f->desc.include_stop);
    }
    if (strcmp(key, "skip_special_tokens") == 0) {
        PGD_TRY(read_flag(v, key, &on));
        f->desc.keep_special = !on;
        return PGD_OK;
    }
    if (strcmp(key, "logprobs") == 0) {
        return read_logprobs(v, key, is_chat, f);
    }
    if (is_chat && strcmp(key, "top_logprobs") == 0) {
        return read_i32(v, key, 0, &f->n_top);
    }
    if (strcmp(key, "stream") == 0) {
        PGD_TRY(read_flag(v, key, &on));
        return on ? wrong(key, "only false is allowed in a batch") : PGD_OK;
    }
    *known = 0;
    return PGD_OK;
}

static pgd_status read_field(const pgd_json *v, const char *key, int32_t is_chat, body_fields *f) {
    int32_t known = 0;
    if (v->kind == PGD_JSON_NULL || strcmp(key, "model") == 0 || strcmp(key, "user") == 0) {
        return PGD_OK;
    }
    PGD_TRY(read_number(v, key, f, &known));
    if (!known) {
        PGD_TRY(read_list(v, key, f, &known));
    }
    if (!known) {
        PGD_TRY(read_switch(v, key, is_chat, f, &known));
    }
    if (known) {
        return PGD_OK;
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

static pgd_status read_body(const pgd_json *body, int32_t is_chat, body_fields *f) {
    for (uint32_t i = 0; i < body->n; i++) {
        PGD_TRY(read_field(&body->items[i], body->keys[i].ptr, is_chat, f));
    }
    if (is_chat) {
        f->desc.n_logprobs = f->n_top > 0 ? f->n_top : f->desc.n_logprobs;
        if (f->n_top > 0 && !f->desc.has_logprobs) {
            return wrong("top_logprobs", "needs \"logprobs\": true");
        }
    }
    return PGD_OK;
}

pgd_status cli_batch_submit(pgd_engine *engine, const pgd_json *body, int32_t is_chat,
                            pgd_request **out) {
    *out = NULL;
    body_fields *f = pgd_mem_alloc(1, sizeof(*f));
    if (f == NULL) {
        return PGD_MEM_FAIL("a body", sizeof(*f));
    }
    f->desc.size = sizeof(f->desc);
    cli_set_sampling(engine, is_chat ? DEFAULT_CHAT_TOKENS : DEFAULT_COMPLETION_TOKENS, &f->desc);
    pgd_status status = read_body(body, is_chat, f);
    if (status == PGD_OK) {
        status = is_chat ? submit_chat(engine, f, out) : submit_completion(engine, f, out);
    }
    pgd_mem_free(f->allowed_ids);
    pgd_mem_free(f);
    return status;
}
