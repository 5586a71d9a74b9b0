// See describe.h.
#include "api/describe.h"

#include <math.h>
#include <string.h>

#include "base/fail.h"
#include "base/mem.h"

#define MAX_BIAS       100.0
#define MAX_TEXT_BYTES 256 // of a stop string or a bad word

typedef struct reader {
    pgd_api_body *b;
    pgd_api_error *e;
} reader;

void pgd_api_lists_free(pgd_api_lists *l) {
    pgd_mem_free(l->stop_ids);
    pgd_mem_free(l->allowed);
    pgd_mem_free(l->bias_ids);
    pgd_mem_free(l->bias_adds);
    pgd_mem_free((void *)l->stop);
    pgd_mem_free((void *)l->bad_words);
    *l = (pgd_api_lists){0};
}

static const pgd_json *value_of(const reader *r, int32_t field) {
    return r->b->values[field].json;
}

static int32_t no_memory(reader *r) {
    return pgd_api_refuse_status(r->e, PGD_OUT_OF_MEMORY, NULL);
}

static int32_t copy_ids(reader *r, int32_t field, int32_t **out, int32_t *n) {
    const pgd_json *v = value_of(r, field);
    if (v == NULL || v->n == 0) {
        return 0;
    }
    *out = pgd_mem_alloc(v->n, sizeof(**out));
    if (*out == NULL) {
        return no_memory(r);
    }
    for (uint32_t i = 0; i < v->n; i++) {
        (*out)[i] = (int32_t)v->items[i].i;
    }
    *n = (int32_t)v->n;
    return 0;
}

// Strings of the parsed body end with NUL.
static int32_t copy_texts(reader *r, int32_t field, const char ***out, uint32_t *n) {
    const pgd_json *v = value_of(r, field);
    if (v == NULL) {
        return 0;
    }
    const int32_t one = pgd_json_is(v, PGD_JSON_STRING);
    const uint32_t count = one ? 1 : v->n;
    *out = pgd_mem_alloc(count, sizeof(**out));
    if (*out == NULL) {
        return no_memory(r);
    }
    for (uint32_t i = 0; i < count; i++) {
        const pgd_str text = one ? v->str : v->items[i].str;
        if (text.len == 0 || strlen(text.ptr) != text.len) {
            return pgd_api_refuse(r->e, 400, pgd_api_field_at(field)->name, NULL,
                                  "%s has a text that is empty or holds a NUL character",
                                  pgd_api_field_at(field)->name);
        }
        if (text.len > MAX_TEXT_BYTES) {
            return pgd_api_refuse(r->e, 400, pgd_api_field_at(field)->name, NULL,
                                  "%s has a text of %zu bytes; %d are allowed",
                                  pgd_api_field_at(field)->name, text.len, MAX_TEXT_BYTES);
        }
        (*out)[i] = text.ptr;
    }
    *n = count;
    return 0;
}

static int32_t copy_bias(reader *r, pgd_api_lists *l, pgd_request_desc *d) {
    const pgd_json *v = value_of(r, PGD_API_logit_bias);
    if (v == NULL || v->n == 0) {
        return 0;
    }
    l->bias_ids = pgd_mem_alloc(v->n, sizeof(*l->bias_ids));
    l->bias_adds = pgd_mem_alloc(v->n, sizeof(*l->bias_adds));
    if (l->bias_ids == NULL || l->bias_adds == NULL) {
        return no_memory(r);
    }
    for (uint32_t i = 0; i < v->n; i++) {
        int64_t id = 0;
        double add = 0.0;
        (void)pgd_str_to_i64(v->keys[i], &id);
        (void)pgd_json_to_f64(&v->items[i], &add);
        if (!(add >= -MAX_BIAS && add <= MAX_BIAS)) {
            return pgd_api_refuse(r->e, 400, "logit_bias", NULL,
                                  "logit_bias of token %lld is %g; -100 to 100 is allowed",
                                  (long long)id, add);
        }
        l->bias_ids[i] = (int32_t)id;
        l->bias_adds[i] = (float)add;
    }
    d->bias_ids = l->bias_ids;
    d->bias_adds = l->bias_adds;
    d->n_bias = (int32_t)v->n;
    return 0;
}

// chat: logprobs is a switch and top_logprobs the number; completions: logprobs is the number.
static int32_t set_logprobs(reader *r, pgd_request_desc *d) {
    const pgd_json *v = value_of(r, PGD_API_logprobs);
    const int64_t top = pgd_api_int(r->b, PGD_API_top_logprobs, 0);
    int32_t on = 0;
    int64_t n = 0;
    if (v != NULL && r->b->is_chat) {
        if (!pgd_json_to_bool(v, &on)) {
            return pgd_api_refuse(r->e, 400, "logprobs", NULL,
                                  "logprobs is of type %s; true or false is allowed",
                                  pgd_json_kind_name(v->kind));
        }
        n = top;
    } else if (v != NULL) {
        const int32_t is_off = v->kind == PGD_JSON_FALSE;
        if (!is_off && (!pgd_json_to_i64(v, &n) || n < -1 || n > 20)) {
            return pgd_api_refuse(r->e, 400, "logprobs", NULL,
                                  "logprobs: a whole number from -1 to 20 is allowed");
        }
        on = !is_off;
    }
    if (r->b->is_chat && !on && top != 0) {
        return pgd_api_refuse(r->e, 400, "top_logprobs", NULL,
                              "top_logprobs is only allowed with \"logprobs\": true");
    }
    if (v != NULL || top != 0) {
        d->has_logprobs = (uint32_t)on;
        d->n_logprobs = (int32_t)n;
    }
    const int32_t echo = (int32_t)pgd_api_int(r->b, PGD_API_echo, 0);
    const int32_t scores = value_of(r, PGD_API_prompt_logprobs) != NULL;
    if (scores && pgd_api_int(r->b, PGD_API_stream, 0)) {
        return pgd_api_refuse(r->e, 400, "prompt_logprobs", NULL,
                              "prompt_logprobs is not allowed with \"stream\": true");
    }
    r->b->echoes_logprobs = echo && on;
    r->b->wants_prompt = r->b->echoes_logprobs || scores;
    d->has_prompt_logprobs = (uint32_t)r->b->wants_prompt;
    d->n_prompt_logprobs =
        r->b->echoes_logprobs ? (int32_t)n : (int32_t)pgd_api_int(r->b, PGD_API_prompt_logprobs, 0);
    return 0;
}

static int32_t check_pairs(reader *r) {
    const pgd_json *format = value_of(r, PGD_API_response_format);
    const pgd_json *choice = value_of(r, PGD_API_tool_choice);
    pgd_str text = PGD_STR("text");
    if (format != NULL &&
        (!pgd_json_to_str(pgd_json_get(format, "type"), &text) || !pgd_str_is(text, "text"))) {
        return pgd_api_refuse(r->e, 400, "response_format", "unsupported_parameter",
                              "response_format: only {\"type\": \"text\"} is supported");
    }
    if (choice != NULL && (!pgd_json_to_str(choice, &text) ||
                           (!pgd_str_is(text, "auto") && !pgd_str_is(text, "none")))) {
        return pgd_api_refuse(r->e, 400, "tool_choice", "unsupported_parameter",
                              "tool_choice: only \"auto\" and \"none\" are supported");
    }
    const pgd_json *tools = value_of(r, PGD_API_tools);
    for (uint32_t i = 0; tools != NULL && i < tools->n; i++) {
        const pgd_json *function = pgd_json_get(&tools->items[i], "function");
        if (!pgd_json_is(pgd_json_get(function, "name"), PGD_JSON_STRING)) {
            return pgd_api_refuse(r->e, 400, "tools", NULL,
                                  "tools[%u]: {\"type\": \"function\", \"function\": {\"name\": "
                                  "...}} is allowed",
                                  i);
        }
    }
    if (!pgd_api_int(r->b, PGD_API_spaces_between_special_tokens, 1) &&
        !pgd_api_int(r->b, PGD_API_skip_special_tokens, 1)) {
        return pgd_api_refuse(r->e, 400, "spaces_between_special_tokens", "unsupported_parameter",
                              "spaces_between_special_tokens: only true is supported where "
                              "special tokens are kept");
    }
    const int64_t best_of = pgd_api_int(r->b, PGD_API_best_of, -1);
    if (best_of >= 0 && best_of != pgd_api_int(r->b, PGD_API_n, 1)) {
        return pgd_api_refuse(r->e, 400, "best_of", "unsupported_parameter",
                              "best_of: only the value of n is supported");
    }
    return 0;
}

static void set_numbers(reader *r, pgd_request_desc *d) {
    const pgd_api_body *b = r->b;
    d->temperature = (float)pgd_api_number(b, PGD_API_temperature, (double)d->temperature);
    d->top_p = (float)pgd_api_number(b, PGD_API_top_p, (double)d->top_p);
    d->min_p = (float)pgd_api_number(b, PGD_API_min_p, (double)d->min_p);
    d->top_k = (int32_t)pgd_api_int(b, PGD_API_top_k, d->top_k);
    d->top_k = d->top_k < 0 ? 0 : d->top_k;
    d->repetition_penalty =
        (float)pgd_api_number(b, PGD_API_repetition_penalty, (double)d->repetition_penalty);
    d->presence_penalty =
        (float)pgd_api_number(b, PGD_API_presence_penalty, (double)d->presence_penalty);
    d->frequency_penalty =
        (float)pgd_api_number(b, PGD_API_frequency_penalty, (double)d->frequency_penalty);
    d->has_seed |= value_of(r, PGD_API_seed) != NULL;
    d->seed = (uint64_t)pgd_api_int(b, PGD_API_seed, (int64_t)d->seed);
    d->ignore_eos = (uint32_t)pgd_api_int(b, PGD_API_ignore_eos, d->ignore_eos);
    d->min_tokens = (int32_t)pgd_api_int(b, PGD_API_min_tokens, d->min_tokens);
    d->include_stop = (uint32_t)pgd_api_int(b, PGD_API_include_stop_str_in_output, d->include_stop);
    d->keep_special = !pgd_api_int(b, PGD_API_skip_special_tokens, !d->keep_special);
    d->priority = (int32_t)pgd_api_int(b, PGD_API_priority, d->priority);
    d->n = (int32_t)pgd_api_int(b, PGD_API_n, d->n > 0 ? d->n : 1);
}

int32_t pgd_api_describe(pgd_api_body *b, pgd_api_lists *l, pgd_request_desc *d, pgd_api_error *e) {
    reader all = {b, e};
    reader *r = &all;
    uint32_t n_stop = 0;
    uint32_t n_bad = 0;
    set_numbers(r, d);
    if (check_pairs(r) != 0 || set_logprobs(r, d) != 0 ||
        copy_ids(r, PGD_API_stop_token_ids, &l->stop_ids, &d->n_stop_ids) != 0 ||
        copy_ids(r, PGD_API_allowed_token_ids, &l->allowed, &d->n_allowed) != 0 ||
        copy_texts(r, PGD_API_stop, &l->stop, &n_stop) != 0 ||
        copy_texts(r, PGD_API_bad_words, &l->bad_words, &n_bad) != 0 || copy_bias(r, l, d) != 0) {
        return -1;
    }
    d->stop_ids = l->stop_ids != NULL ? l->stop_ids : d->stop_ids;
    d->allowed_ids = l->allowed;
    if (l->stop != NULL) {
        d->stop = l->stop;
        d->n_stop = n_stop;
    }
    if (l->bad_words != NULL) {
        d->bad_words = l->bad_words;
        d->n_bad_words = n_bad;
    }
    const pgd_json *salt = value_of(r, PGD_API_cache_salt);
    d->cache_salt = salt != NULL ? salt->str.ptr : NULL;
    return 0;
}
