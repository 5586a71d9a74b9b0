// Descriptions of requests: checked, and turned into what the answers share. See <pagoda/pagoda.h>.
#include "engine/inner.h"

#include <math.h>
#include <string.h>

#include "base/fail.h"
#include "base/mem.h"

#define DEFAULT_MAX_TOKENS 16
#define MAX_N              128
#define MAX_STOP_IDS       64
#define MAX_BAD_WORDS      64
#define MAX_WORD_BYTES     256
#define MAX_SALT           4096
#define MOST_BIAS          100.0f

// ---- checks ------------------------------------------------------------------------------------

static pgd_status check_count(const char *field, int64_t value, int64_t low, int64_t high) {
    if (value < low || value > high) {
        return pgd_fail(PGD_OUT_OF_RANGE, "%s is %lld; %lld to %lld is allowed", field,
                        (long long)value, (long long)low, (long long)high);
    }
    return PGD_OK;
}

// -1 becomes the size of the vocabulary.
static pgd_status read_logprobs(const pgd_engine *e, const char *field, uint32_t has, int32_t *n) {
    const int32_t all = e->config->vocab;
    if (!has) {
        return PGD_OK;
    }
    if (*n == -1 && e->limits.max_logprobs == all) {
        *n = all;
    }
    if (*n == -1) {
        return pgd_fail(PGD_OUT_OF_RANGE,
                        "%s is -1, the whole vocabulary (%d tokens); 0 to %d is allowed, and more "
                        "with max-logprobs -1 of the engine",
                        field, all, e->limits.max_logprobs);
    }
    return check_count(field, *n, 0, e->limits.max_logprobs);
}

static pgd_status check_lengths(const pgd_request_desc *d) {
    PGD_TRY(check_count("max_tokens", d->max_tokens, 1, INT32_MAX));
    if (d->min_tokens < 0 || d->min_tokens > d->max_tokens) {
        return pgd_fail(PGD_OUT_OF_RANGE, "min_tokens is %d; 0 to max_tokens (%d) is allowed",
                        d->min_tokens, d->max_tokens);
    }
    return check_count("n", d->n, 1, MAX_N);
}

static pgd_status check_lists(const pgd_request_desc *d) {
    PGD_TRY(check_count("n_stop_ids", d->n_stop_ids, 0, MAX_STOP_IDS));
    PGD_TRY(check_count("n_bias", d->n_bias, 0, PGD_SAMPLE_MAX_BIAS));
    PGD_TRY(check_count("n_bad_words", d->n_bad_words, 0, MAX_BAD_WORDS));
    if (d->allowed_ids != NULL && d->n_allowed < 1) {
        return pgd_fail(PGD_OUT_OF_RANGE, "n_allowed is %d; 1 or more is allowed (NULL = all)",
                        d->n_allowed);
    }
    return PGD_OK;
}

static pgd_status check_text(const pgd_engine *e, const pgd_request_desc *d) {
    if ((d->prompt == NULL) == (d->ids == NULL)) {
        return pgd_fail(PGD_INVALID, "request: give either a prompt or token ids");
    }
    const char *field = d->prompt != NULL    ? "prompt"
                        : d->n_stop > 0      ? "stop"
                        : d->n_bad_words > 0 ? "bad_words"
                                             : NULL;
    if (field != NULL && e->tokenizer == NULL) {
        return pgd_fail(PGD_INVALID, "%s: the model has no tokenizer; only token ids are allowed",
                        field);
    }
    if (d->on_text != NULL && d->n > 1) {
        return pgd_fail(PGD_INVALID, "on_text hears one answer and n is %d; use on_delta", d->n);
    }
    return PGD_OK;
}

pgd_status pgd_engine_copy_desc(const pgd_engine *e, const pgd_request_desc *desc,
                                pgd_request_desc *out) {
    *out = (pgd_request_desc){0};
    if (desc->size < offsetof(pgd_request_desc, on_text)) {
        return pgd_fail(PGD_INVALID, "request: size is %u; set it to sizeof(desc)", desc->size);
    }
    memcpy(out, desc, desc->size < sizeof(*out) ? desc->size : sizeof(*out));
    out->n = out->n != 0 ? out->n : 1;
    out->max_tokens = out->max_tokens != 0 ? out->max_tokens : DEFAULT_MAX_TOKENS;
    PGD_TRY(check_lengths(out));
    PGD_TRY(check_lists(out));
    PGD_TRY(check_text(e, out));
    PGD_TRY(read_logprobs(e, "n_logprobs", out->has_logprobs, &out->n_logprobs));
    PGD_TRY(
        read_logprobs(e, "n_prompt_logprobs", out->has_prompt_logprobs, &out->n_prompt_logprobs));
    if (!(out->temperature >= 0.0f)) {
        return pgd_fail(PGD_OUT_OF_RANGE, "temperature is %g; 0 (greedy) to 100 is allowed",
                        (double)out->temperature);
    }
    return PGD_OK;
}

static pgd_status check_id(const pgd_engine *e, const char *field, int32_t id, int64_t at) {
    if (id < 0 || id >= e->config->vocab) {
        return pgd_fail(PGD_OUT_OF_RANGE, "%s[%lld] is token %d; 0 to %d is allowed", field,
                        (long long)at, id, e->config->vocab - 1);
    }
    return PGD_OK;
}

// ---- parts -------------------------------------------------------------------------------------

static pgd_status read_prompt(const pgd_engine *e, const pgd_request_desc *d, pgd_text_ids *out) {
    if (d->prompt != NULL) {
        size_t len = d->prompt_len != 0 ? d->prompt_len : strlen(d->prompt);
        uint32_t flags = d->no_special ? 0 : PGD_TEXT_ADD_SPECIAL;
        PGD_TRY(pgd_text_encode(e->tokenizer, (pgd_str){d->prompt, len}, flags, out));
    }
    for (int32_t i = 0; i < d->n_ids && d->ids != NULL; i++) {
        PGD_TRY(check_id(e, "ids", d->ids[i], i));
        PGD_TRY(pgd_text_ids_add(out, d->ids[i]));
    }
    for (size_t i = 0; i < out->n && d->prompt != NULL; i++) {
        PGD_TRY(check_id(e, "prompt", out->ids[i], (int64_t)i));
    }
    return pgd_sched_check(e->sched, out->n < INT32_MAX ? (int32_t)out->n : INT32_MAX);
}

static pgd_status set_stops(pgd_request *r, const pgd_request_desc *d) {
    const pgd_load_config *c = r->engine->config;
    int32_t n_model = d->ignore_eos ? 0 : c->n_eos;
    r->include_stop = d->include_stop != 0;
    r->n_own_stop_ids = d->n_stop_ids;
    r->stop_ids = pgd_mem_alloc((size_t)(d->n_stop_ids + n_model) + 1, sizeof(int32_t));
    if (r->stop_ids == NULL) {
        return PGD_MEM_FAIL("the stop ids", sizeof(int32_t));
    }
    for (int32_t i = 0; i < d->n_stop_ids; i++) {
        PGD_TRY(check_id(r->engine, "stop_ids", d->stop_ids[i], i));
        r->stop_ids[i] = d->stop_ids[i];
    }
    for (int32_t i = 0; i < n_model; i++) {
        r->stop_ids[d->n_stop_ids + i] = c->eos[i];
    }
    return d->n_stop > 0 ? pgd_text_stop_create(d->stop, d->n_stop, &r->stop) : PGD_OK;
}

static pgd_status set_bias(pgd_request *r, const pgd_request_desc *d) {
    if (d->n_bias == 0) {
        return PGD_OK;
    }
    r->bias = pgd_mem_alloc((size_t)d->n_bias, sizeof(*r->bias));
    if (r->bias == NULL) {
        return PGD_MEM_FAIL("the logit bias", (size_t)d->n_bias * sizeof(*r->bias));
    }
    for (int32_t i = 0; i < d->n_bias; i++) {
        PGD_TRY(check_id(r->engine, "bias_ids", d->bias_ids[i], i));
        if (isnan(d->bias_adds[i])) {
            return pgd_fail(PGD_OUT_OF_RANGE, "bias_adds[%d] is NaN; -100 to 100 is allowed", i);
        }
        r->bias[i].id = d->bias_ids[i];
        r->bias[i].add = fminf(fmaxf(d->bias_adds[i], -MOST_BIAS), MOST_BIAS);
    }
    return PGD_OK;
}

static pgd_status set_mask(pgd_request *r, const pgd_request_desc *d) {
    size_t n_words = ((size_t)r->engine->config->vocab + 31) / 32;
    if (d->allowed_ids == NULL) {
        return PGD_OK;
    }
    r->mask = pgd_mem_alloc(n_words, sizeof(*r->mask));
    if (r->mask == NULL) {
        return PGD_MEM_FAIL("the allowed tokens", n_words * sizeof(*r->mask));
    }
    for (int32_t i = 0; i < d->n_allowed; i++) {
        PGD_TRY(check_id(r->engine, "allowed_ids", d->allowed_ids[i], i));
        r->mask[d->allowed_ids[i] / 32] |= UINT32_C(1) << (d->allowed_ids[i] % 32);
    }
    return PGD_OK;
}

// ---- bad words ---------------------------------------------------------------------------------

// Tokens of a word behind `before`, left blanks stripped.
static pgd_status encode_word(const pgd_engine *e, const char *before, pgd_str word,
                              pgd_text_ids *out) {
    pgd_text text = {0};
    out->n = 0;
    pgd_status status = pgd_text_add_str(&text, pgd_str_of(before));
    if (status == PGD_OK) {
        status = pgd_text_add_str(&text, word);
    }
    if (status == PGD_OK) {
        status = pgd_text_encode(e->tokenizer, pgd_text_view(&text), 0, out);
    }
    pgd_text_free(&text);
    return status;
}

static pgd_status add_word(pgd_request *r, const pgd_text_ids *word, pgd_text_ids *list) {
    PGD_TRY(pgd_text_ids_add(list, (int32_t)word->n));
    for (size_t i = 0; i < word->n; i++) {
        PGD_TRY(check_id(r->engine, "bad_words", word->ids[i], (int64_t)i));
        PGD_TRY(pgd_text_ids_add(list, word->ids[i]));
    }
    r->n_bad_words++;
    return PGD_OK;
}

// A word as it is; and with a space in front, when that gives as many tokens with another first.
static pgd_status add_forms(pgd_request *r, pgd_str word, pgd_text_ids *plain, pgd_text_ids *spaced,
                            pgd_text_ids *list) {
    PGD_TRY(encode_word(r->engine, "", word, plain));
    PGD_TRY(encode_word(r->engine, " ", word, spaced));
    if (plain->n > 0) {
        PGD_TRY(add_word(r, plain, list));
    }
    if (plain->n > 0 && plain->n == spaced->n && plain->ids[0] != spaced->ids[0]) {
        PGD_TRY(add_word(r, spaced, list));
    }
    return PGD_OK;
}

static pgd_status check_word(const char *text, uint32_t i, pgd_str *out) {
    pgd_str word = pgd_str_of(text);
    if (word.len < 1 || word.len > MAX_WORD_BYTES) {
        return pgd_fail(PGD_OUT_OF_RANGE, "bad_words[%u] has %zu bytes; 1 to %d are allowed", i,
                        word.len, MAX_WORD_BYTES);
    }
    while (word.len > 0 && strchr(" \t\n\r\f\v", word.ptr[0]) != NULL) {
        word = (pgd_str){word.ptr + 1, word.len - 1};
    }
    if (word.len == 0) {
        return pgd_fail(PGD_INVALID, "bad_words[%u] is blank", i);
    }
    *out = word;
    return PGD_OK;
}

static pgd_status set_bad_words(pgd_request *r, const pgd_request_desc *d) {
    pgd_text_ids plain = {0};
    pgd_text_ids spaced = {0};
    pgd_text_ids list = {0};
    pgd_status status = PGD_OK;
    for (uint32_t i = 0; i < d->n_bad_words && status == PGD_OK; i++) {
        pgd_str word;
        status = check_word(d->bad_words[i], i, &word);
        if (status == PGD_OK) {
            status = add_forms(r, word, &plain, &spaced, &list);
        }
    }
    pgd_text_ids_free(&plain);
    pgd_text_ids_free(&spaced);
    r->bad_words = list.ids; // freed with the request
    return status;
}

// ---- all of it ---------------------------------------------------------------------------------

static pgd_status set_salt(pgd_request *r, const pgd_request_desc *d) {
    if (d->cache_salt == NULL) {
        return PGD_OK;
    }
    size_t len = strlen(d->cache_salt);
    if (len < 1 || len > MAX_SALT) {
        return pgd_fail(PGD_OUT_OF_RANGE, "cache_salt has %zu bytes; 1 to %d are allowed", len,
                        MAX_SALT);
    }
    return pgd_mem_copy_text(d->cache_salt, &r->salt);
}

static pgd_status set_scores(pgd_request *r, const pgd_request_desc *d, size_t n_prompt) {
    r->n_logprobs = d->has_logprobs ? d->n_logprobs : -1;
    r->n_prompt_logprobs = d->has_prompt_logprobs ? d->n_prompt_logprobs : -1;
    if (!d->has_prompt_logprobs) {
        return PGD_OK;
    }
    size_t columns = 1 + (size_t)d->n_prompt_logprobs;
    r->prompt_logprobs = pgd_mem_alloc(n_prompt * columns, sizeof(*r->prompt_logprobs));
    r->prompt_logprob_ids = pgd_mem_alloc(n_prompt * columns, sizeof(*r->prompt_logprob_ids));
    r->prompt_ranks = pgd_mem_alloc(n_prompt, sizeof(*r->prompt_ranks));
    if (r->prompt_logprobs == NULL || r->prompt_logprob_ids == NULL || r->prompt_ranks == NULL) {
        return PGD_MEM_FAIL("the prompt's log probabilities", n_prompt * columns * sizeof(float));
    }
    return PGD_OK;
}

pgd_status pgd_engine_describe(pgd_request *r, const pgd_request_desc *d, pgd_text_ids *ids) {
    r->on_text = d->on_text;
    r->on_delta = d->on_delta;
    r->arg = d->arg;
    PGD_TRY(read_prompt(r->engine, d, ids));
    PGD_TRY(set_stops(r, d));
    PGD_TRY(set_bias(r, d));
    PGD_TRY(set_mask(r, d));
    PGD_TRY(set_bad_words(r, d));
    PGD_TRY(set_salt(r, d));
    return set_scores(r, d, ids->n);
}
