// Requests: checked and copied at submit, freed at release. See <pagoda/pagoda.h>.
#include "engine/inner.h"

#include <string.h>

#include "base/clock.h"
#include "base/fail.h"
#include "base/mem.h"
#include "base/rng.h"

#define DEFAULT_MAX_TOKENS 16
#define MAX_STOP_IDS       64
#define MAX_SALT           4096

static pgd_status check_desc(const pgd_engine *e, const pgd_request_desc *d) {
    if ((d->prompt == NULL) == (d->ids == NULL)) {
        return pgd_fail(PGD_INVALID, "request: give either a prompt or token ids");
    }
    if (d->prompt != NULL && e->tokenizer == NULL) {
        return pgd_fail(PGD_INVALID,
                        "request: the model has no tokenizer; only token ids are allowed");
    }
    if (d->max_tokens < 0) {
        return pgd_fail(PGD_OUT_OF_RANGE, "max_tokens is %d; 1 or more is allowed", d->max_tokens);
    }
    if (d->n_stop_ids < 0 || d->n_stop_ids > MAX_STOP_IDS) {
        return pgd_fail(PGD_OUT_OF_RANGE, "%d stop ids; 0 to %d are allowed", d->n_stop_ids,
                        MAX_STOP_IDS);
    }
    int32_t max_tokens = d->max_tokens != 0 ? d->max_tokens : DEFAULT_MAX_TOKENS;
    if (d->min_tokens < 0 || d->min_tokens > max_tokens) {
        return pgd_fail(PGD_OUT_OF_RANGE, "min_tokens is %d; 0 to max_tokens (%d) is allowed",
                        d->min_tokens, max_tokens);
    }
    if (!(d->temperature >= 0.0f)) {
        return pgd_fail(PGD_OUT_OF_RANGE, "temperature is %g; 0 (greedy) to 100 is allowed",
                        (double)d->temperature);
    }
    return PGD_OK;
}

static pgd_status read_prompt(const pgd_engine *e, const pgd_request_desc *d, pgd_text_ids *out) {
    if (d->prompt != NULL) {
        size_t len = d->prompt_len != 0 ? d->prompt_len : strlen(d->prompt);
        uint32_t flags = d->no_special ? 0 : PGD_TEXT_ADD_SPECIAL;
        PGD_TRY(pgd_text_encode(e->tokenizer, (pgd_str){d->prompt, len}, flags, out));
    }
    for (int32_t i = 0; i < d->n_ids && d->ids != NULL; i++) {
        PGD_TRY(pgd_text_ids_add(out, d->ids[i]));
    }
    size_t most = (size_t)e->limits.max_model_len - 1;
    if (out->n < 1 || out->n > most) {
        return pgd_fail(PGD_OUT_OF_RANGE,
                        "the prompt has %zu tokens; 1 to %zu are allowed (max_model_len %d, one "
                        "token is left for the answer)",
                        out->n, most, e->limits.max_model_len);
    }
    for (size_t i = 0; i < out->n; i++) {
        if (out->ids[i] < 0 || out->ids[i] >= e->config->vocab) {
            return pgd_fail(PGD_OUT_OF_RANGE, "token id %d at position %zu; 0 to %d is allowed",
                            out->ids[i], i, e->config->vocab - 1);
        }
    }
    return PGD_OK;
}

static pgd_status set_sampling(pgd_request *r, const pgd_request_desc *d) {
    r->seq.sampling = (pgd_sampling){
        .temperature = d->temperature,
        .top_p = d->top_p,
        .min_p = d->min_p,
        .top_k = d->top_k,
        .seed = d->has_seed ? d->seed : pgd_rng_seed(),
        .flags = d->temperature < 1e-5f ? PGD_SAMPLE_GREEDY : 0,
    };
    return pgd_sample_check(&r->seq.sampling);
}

static pgd_status set_stops(pgd_request *r, const pgd_request_desc *d) {
    const pgd_load_config *c = r->engine->config;
    int32_t n_model = d->ignore_eos ? 0 : c->n_eos;
    r->stop_ids = pgd_mem_alloc((size_t)(d->n_stop_ids + n_model) + 1, sizeof(int32_t));
    if (r->stop_ids == NULL) {
        return PGD_MEM_FAIL("the stop ids", sizeof(int32_t));
    }
    for (int32_t i = 0; i < d->n_stop_ids; i++) {
        r->stop_ids[i] = d->stop_ids[i];
    }
    for (int32_t i = 0; i < n_model; i++) {
        r->stop_ids[d->n_stop_ids + i] = c->eos[i];
    }
    r->n_own_stop_ids = d->n_stop_ids;
    r->seq.stop_ids = r->stop_ids;
    r->seq.n_stop_ids = d->n_stop_ids + n_model;
    r->seq.min_tokens = d->min_tokens;
    return PGD_OK;
}

// Room for every token and block the request can come to hold.
static pgd_status set_tokens(pgd_request *r, const pgd_text_ids *ids, int32_t max_tokens) {
    const engine_limits *l = &r->engine->limits;
    pgd_seq *seq = &r->seq;
    int32_t n = (int32_t)ids->n;
    seq->n_prompt = n;
    seq->n_tokens = n;
    seq->cap_tokens = max_tokens > l->max_model_len - n ? l->max_model_len : n + max_tokens;
    seq->cap_blocks = (seq->cap_tokens + l->block_size - 1) / l->block_size;
    seq->tokens = pgd_mem_alloc((size_t)seq->cap_tokens, sizeof(int32_t));
    seq->blocks = pgd_mem_alloc((size_t)seq->cap_blocks, sizeof(int32_t));
    if (!l->no_prefix_caching) {
        seq->hashes = pgd_mem_alloc((size_t)seq->cap_blocks, sizeof(*seq->hashes));
    }
    if (seq->tokens == NULL || seq->blocks == NULL ||
        (seq->hashes == NULL && !l->no_prefix_caching)) {
        return PGD_MEM_FAIL("the tokens", (size_t)seq->cap_tokens * sizeof(int32_t));
    }
    memcpy(seq->tokens, ids->ids, ids->n * sizeof(int32_t));
    seq->slot = -1;
    seq->stop_id = -1;
    seq->owner = r;
    return PGD_OK;
}

// What decides when it runs and with whom it shares cached blocks.
static pgd_status set_place(pgd_request *r, const pgd_request_desc *d) {
    r->seq.priority = d->priority;
    r->seq.arrival = (double)r->submitted_ns;
    if (d->cache_salt == NULL) {
        return PGD_OK;
    }
    size_t len = strlen(d->cache_salt);
    if (len < 1 || len > MAX_SALT) {
        return pgd_fail(PGD_OUT_OF_RANGE, "cache_salt has %zu bytes; 1 to %d are allowed", len,
                        MAX_SALT);
    }
    PGD_TRY(pgd_mem_copy_text(d->cache_salt, &r->salt));
    r->seq.cache_salt = r->salt;
    r->seq.cache_salt_len = (int32_t)len;
    return PGD_OK;
}

static pgd_status set_output(pgd_request *r, const pgd_text_ids *ids) {
    pgd_engine *e = r->engine;
    if (e->tokenizer != NULL) {
        PGD_TRY(pgd_text_stream_create(e->tokenizer, ids->ids, ids->n, 1, &r->stream));
    }
    if (e->limits.keep_logits) {
        r->logits = pgd_mem_alloc((size_t)e->config->vocab, sizeof(float));
        if (r->logits == NULL) {
            return PGD_MEM_FAIL("the logits", (size_t)e->config->vocab * sizeof(float));
        }
    }
    return pgd_text_reserve(&r->text, 256);
}

static pgd_status build(pgd_request *r, const pgd_request_desc *d, pgd_text_ids *ids) {
    PGD_TRY(read_prompt(r->engine, d, ids));
    PGD_TRY(set_sampling(r, d));
    PGD_TRY(set_stops(r, d));
    PGD_TRY(set_tokens(r, ids, d->max_tokens != 0 ? d->max_tokens : DEFAULT_MAX_TOKENS));
    PGD_TRY(set_place(r, d));
    PGD_TRY(set_output(r, ids));
    return pgd_sched_add(r->engine->sched, &r->seq);
}

static void free_parts(pgd_request *r) {
    pgd_text_stream_destroy(r->stream);
    pgd_text_free(&r->text);
    pgd_mem_free(r->error);
    pgd_mem_free(r->logits);
    pgd_mem_free(r->stop_ids);
    pgd_mem_free(r->seq.tokens);
    pgd_mem_free(r->seq.blocks);
    pgd_mem_free(r->seq.hashes);
    pgd_mem_free(r->salt);
    pgd_mem_free(r);
}

pgd_status pgd_engine_submit(pgd_engine *e, const pgd_request_desc *desc, pgd_request **out) {
    *out = NULL;
    pgd_request_desc d = {0};
    if (desc->size < offsetof(pgd_request_desc, on_text)) {
        return pgd_fail(PGD_INVALID, "request: size is %u; set it to sizeof(desc)", desc->size);
    }
    memcpy(&d, desc, desc->size < sizeof(d) ? desc->size : sizeof(d));
    PGD_TRY(check_desc(e, &d));
    pgd_request *r = pgd_mem_alloc(1, sizeof(*r));
    if (r == NULL) {
        return PGD_MEM_FAIL("the request", sizeof(*r));
    }
    r->engine = e;
    r->on_text = d.on_text;
    r->arg = d.arg;
    r->submitted_ns = pgd_clock_ns();
    pgd_text_ids ids = {0};
    pgd_status status = build(r, &d, &ids);
    pgd_text_ids_free(&ids);
    if (status != PGD_OK) {
        free_parts(r);
        return status;
    }
    r->next = e->requests;
    if (e->requests != NULL) {
        e->requests->prev = r;
    }
    e->requests = r;
    e->n_busy++;
    *out = r;
    return PGD_OK;
}

void pgd_request_cancel(pgd_request *r) {
    pgd_sched_cancel(r->engine->sched, &r->seq);
}

void pgd_engine_free_request(pgd_request *r) {
    pgd_engine *e = r->engine;
    if (!r->ended) {
        pgd_sched_finish(e->sched, &r->seq);
        e->n_busy--;
    }
    if (r->prev != NULL) {
        r->prev->next = r->next;
    } else {
        e->requests = r->next;
    }
    if (r->next != NULL) {
        r->next->prev = r->prev;
    }
    free_parts(r);
}

void pgd_request_release(pgd_request *r) {
    if (r != NULL) {
        pgd_engine_free_request(r);
    }
}

static const char *reason_of(const pgd_request *r) {
    static const char *const names[] = {NULL, "stop", "length", "abort", "error"};
    return r->ended ? names[r->seq.finish] : NULL;
}

static int32_t own_stop_id(const pgd_request *r) {
    for (int32_t i = 0; i < r->n_own_stop_ids; i++) {
        if (r->stop_ids[i] == r->seq.stop_id) {
            return r->seq.stop_id;
        }
    }
    return -1;
}

static uint64_t since(const pgd_request *r, uint64_t ns) {
    return ns != 0 ? ns - r->submitted_ns : 0;
}

void pgd_request_output(const pgd_request *r, pgd_output *out) {
    const pgd_output full = {
        .size = out->size,
        .done = r->ended,
        .finish_reason = reason_of(r),
        .error = r->error,
        .text = r->text.ptr != NULL ? r->text.ptr : "",
        .text_len = r->text.len,
        .ids = r->seq.tokens + r->seq.n_prompt,
        .n_ids = r->seq.n_tokens - r->seq.n_prompt,
        .n_prompt = r->seq.n_prompt,
        .stop_id = own_stop_id(r),
        .n_preempted = r->seq.n_preempted,
        .queued_ns = since(r, r->started_ns),
        .first_ns = since(r, r->first_ns),
        .total_ns = since(r, r->ended ? r->ended_ns : pgd_clock_ns()),
        .n_cached = r->seq.cached_tokens > 0 ? r->seq.cached_tokens : 0,
    };
    memcpy(out, &full, out->size < sizeof(full) ? out->size : sizeof(full));
}

const float *pgd_request_logits(const pgd_request *r) {
    return r->logits;
}
