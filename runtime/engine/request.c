// Requests: built at submit with all the memory they can come to need, freed at release. A request
// of n answers is n sequences, which share the prompt's blocks through the prefix cache. See
// <pagoda/pagoda.h>.
#include "engine/inner.h"

#include <assert.h>
#include <string.h>

#include "base/clock.h"
#include "base/fail.h"
#include "base/mem.h"
#include "base/rng.h"

static int32_t is_on(float factor) {
    return factor != 0.0f && factor != 1.0f;
}

static pgd_status set_sampling(engine_choice *c, const pgd_request_desc *d) {
    const pgd_request *r = c->request;
    pgd_sampling *p = &c->seq.sampling;
    *p = (pgd_sampling){
        .temperature = d->temperature,
        .top_p = d->top_p,
        .min_p = d->min_p,
        .top_k = d->top_k,
        .repetition = d->repetition_penalty,
        .presence = d->presence_penalty,
        .frequency = d->frequency_penalty,
        .seed = d->has_seed ? d->seed + (uint64_t)c->index : pgd_rng_seed(),
        .flags = d->temperature < 1e-5f ? PGD_SAMPLE_GREEDY : 0,
    };
    if (r->n_logprobs >= 0) {
        p->flags |= PGD_SAMPLE_LOGPROBS;
        p->n_logprobs = r->n_logprobs;
    }
    c->seq.has_counts = is_on(p->repetition) || p->presence != 0.0f || p->frequency != 0.0f;
    c->seq.has_mask = r->mask != NULL;
    c->seq.bias = r->bias;
    c->seq.n_bias = d->n_bias;
    c->seq.bad_words = r->bad_words;
    c->seq.n_bad_words = r->n_bad_words;
    c->seq.stop_ids = r->stop_ids;
    c->seq.n_stop_ids = d->n_stop_ids + (d->ignore_eos ? 0 : r->engine->config->n_eos);
    c->seq.min_tokens = d->min_tokens;
    return pgd_sample_check(p);
}

// Room for every token and block the answer can come to hold.
static pgd_status set_tokens(engine_choice *c, const pgd_text_ids *ids, int32_t max_tokens) {
    const engine_limits *l = &c->request->engine->limits;
    pgd_seq *seq = &c->seq;
    int32_t n = (int32_t)ids->n;
    seq->n_prompt = n;
    seq->n_tokens = n;
    seq->cap_tokens = max_tokens > l->max_model_len - n ? l->max_model_len : n + max_tokens;
    seq->cap_blocks = (seq->cap_tokens + l->block_size - 1) / l->block_size;
    seq->tokens = pgd_mem_alloc((size_t)seq->cap_tokens, sizeof(int32_t));
    seq->blocks = pgd_mem_alloc((size_t)l->groups.n * (size_t)seq->cap_blocks, sizeof(int32_t));
    if (!l->no_prefix_caching) {
        seq->hashes = pgd_mem_alloc((size_t)seq->cap_blocks, sizeof(*seq->hashes));
    }
    if (seq->tokens == NULL || seq->blocks == NULL ||
        (seq->hashes == NULL && !l->no_prefix_caching)) {
        return PGD_MEM_FAIL("the tokens", (size_t)seq->cap_tokens * sizeof(int32_t));
    }
    memcpy(seq->tokens, ids->ids, ids->n * sizeof(int32_t));
    return PGD_OK;
}

// What decides when it runs and with whom it shares cached blocks. The prompt is scored once.
static void set_place(engine_choice *c, const pgd_request_desc *d) {
    const pgd_request *r = c->request;
    pgd_seq *seq = &c->seq;
    seq->slot = -1;
    seq->stop_id = -1;
    seq->owner = c;
    seq->priority = d->priority;
    seq->arrival = (double)r->submitted_ns;
    seq->cache_salt = r->salt;
    seq->cache_salt_len = r->salt != NULL ? (int32_t)strlen(r->salt) : 0;
    if (r->n_prompt_logprobs >= 0 && c->index == 0) {
        seq->scores_prompt = 1;
        seq->skip_cache = 1;
        seq->n_scored = 1;
        seq->n_prompt_logprobs = r->n_prompt_logprobs;
    }
}

static pgd_status set_output(engine_choice *c, const pgd_request_desc *d, const pgd_text_ids *ids) {
    pgd_engine *e = c->request->engine;
    if (e->tokenizer != NULL) {
        PGD_TRY(pgd_text_stream_create(e->tokenizer, ids->ids, ids->n, d->keep_special == 0,
                                       &c->stream));
    }
    if (e->limits.keep_logits) {
        c->logits = pgd_mem_alloc((size_t)e->config->vocab, sizeof(float));
        if (c->logits == NULL) {
            return PGD_MEM_FAIL("the logits", (size_t)e->config->vocab * sizeof(float));
        }
    }
    return pgd_text_reserve(&c->text, 256);
}

static pgd_status make_choice(pgd_request *r, int32_t index, const pgd_request_desc *d,
                              const pgd_text_ids *ids) {
    engine_choice *c = &r->choices[index];
    c->request = r;
    c->index = index;
    c->stop_string = -1;
    PGD_TRY(set_sampling(c, d));
    PGD_TRY(set_tokens(c, ids, d->max_tokens));
    set_place(c, d);
    return set_output(c, d, ids);
}

static pgd_status make_choices(pgd_request *r, const pgd_request_desc *d, const pgd_text_ids *ids) {
    r->choices = pgd_mem_alloc((size_t)d->n, sizeof(*r->choices));
    if (r->choices == NULL) {
        return PGD_MEM_FAIL("the answers", (size_t)d->n * sizeof(*r->choices));
    }
    r->n = d->n;
    r->n_running = d->n;
    for (int32_t i = 0; i < d->n; i++) {
        PGD_TRY(make_choice(r, i, d, ids));
    }
    return PGD_OK;
}

pgd_status pgd_engine_make_request(pgd_engine *e, const pgd_request_desc *desc, pgd_request **out) {
    pgd_request_desc d;
    *out = NULL;
    PGD_TRY(pgd_engine_copy_desc(e, desc, &d));
    pgd_request *r = pgd_mem_alloc(1, sizeof(*r));
    if (r == NULL) {
        return PGD_MEM_FAIL("the request", sizeof(*r));
    }
    r->engine = e;
    r->submitted_ns = pgd_clock_ns();
    pgd_text_ids ids = {0};
    pgd_status status = pgd_engine_describe(r, &d, &ids);
    if (status == PGD_OK) {
        status = make_choices(r, &d, &ids);
    }
    pgd_text_ids_free(&ids);
    if (status != PGD_OK) {
        pgd_engine_free_parts(r);
        return status;
    }
    *out = r;
    return PGD_OK;
}

void pgd_engine_queue_request(pgd_request *r) {
    pgd_engine *e = r->engine;
    for (int32_t i = 0; i < r->n; i++) {
        pgd_status status = pgd_sched_add(e->sched, &r->choices[i].seq);
        assert(status == PGD_OK); // the prompt was checked when the request was made
        (void)status;
    }
    r->next = e->requests;
    if (e->requests != NULL) {
        e->requests->prev = r;
    }
    e->requests = r;
    e->n_busy++;
}

pgd_status pgd_engine_submit(pgd_engine *e, const pgd_request_desc *desc, pgd_request **out) {
    PGD_TRY(pgd_engine_make_request(e, desc, out));
    pgd_engine_queue_request(*out);
    return PGD_OK;
}

void pgd_request_cancel(pgd_request *r) {
    for (int32_t i = 0; i < r->n; i++) {
        pgd_sched_cancel(r->engine->sched, &r->choices[i].seq);
    }
}

static void free_choice(engine_choice *c) {
    pgd_text_stream_destroy(c->stream);
    pgd_text_free(&c->text);
    pgd_mem_free(c->error);
    pgd_mem_free(c->logits);
    pgd_mem_free(c->logprobs);
    pgd_mem_free(c->logprob_ids);
    pgd_mem_free(c->ranks);
    pgd_mem_free(c->seq.tokens);
    pgd_mem_free(c->seq.blocks);
    pgd_mem_free(c->seq.hashes);
}

void pgd_engine_free_parts(pgd_request *r) {
    for (int32_t i = 0; i < r->n; i++) {
        free_choice(&r->choices[i]);
    }
    pgd_mem_free(r->choices);
    pgd_text_stop_destroy(r->stop);
    pgd_mem_free(r->prompt_logprobs);
    pgd_mem_free(r->prompt_logprob_ids);
    pgd_mem_free(r->prompt_ranks);
    pgd_mem_free(r->stop_ids);
    pgd_mem_free(r->bad_words);
    pgd_mem_free(r->bias);
    pgd_mem_free(r->mask);
    pgd_mem_free(r->salt);
    pgd_mem_free(r);
}

void pgd_engine_free_request(pgd_request *r) {
    pgd_engine *e = r->engine;
    for (int32_t i = 0; i < r->n; i++) {
        pgd_sched_finish(e->sched, &r->choices[i].seq);
        pgd_engine_forget_rows(e, &r->choices[i].seq);
    }
    e->n_busy -= r->n_running > 0;
    if (r->prev != NULL) {
        r->prev->next = r->next;
    } else {
        e->requests = r->next;
    }
    if (r->next != NULL) {
        r->next->prev = r->prev;
    }
    pgd_engine_free_parts(r);
}

void pgd_request_release(pgd_request *r) {
    if (r == NULL || r->released) {
        return;
    }
    pgd_engine *e = r->engine;
    if (!e->in_step) {
        pgd_engine_free_request(r);
        return;
    }
    // A callback asks: the step still holds its sequences.
    pgd_request_cancel(r);
    r->released = 1;
    r->next_released = e->released;
    e->released = r;
}
