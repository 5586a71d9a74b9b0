// The scheduler's life, its queue, and the ways out of it. Planning is in plan.c. See sched.h.
#include "sched/inner.h"

#include "base/fail.h"
#include "base/mem.h"

static pgd_status check_config(const pgd_sched_config *c) {
    if (c->max_num_seqs < 1) {
        return pgd_fail(PGD_OUT_OF_RANGE, "max_num_seqs is %d; at least 1 is needed",
                        c->max_num_seqs);
    }
    if (c->max_model_len < 2) {
        return pgd_fail(PGD_OUT_OF_RANGE, "max_model_len is %d; at least 2 is needed",
                        c->max_model_len);
    }
    if (c->max_num_batched_tokens < 1) {
        return pgd_fail(PGD_OUT_OF_RANGE, "max_num_batched_tokens is %d; at least 1 is needed",
                        c->max_num_batched_tokens);
    }
    if (c->long_prefill_token_threshold < 0) {
        return pgd_fail(PGD_OUT_OF_RANGE,
                        "long_prefill_token_threshold is %d; 0 (no limit) or more is allowed",
                        c->long_prefill_token_threshold);
    }
    if (c->no_chunked_prefill && c->max_num_batched_tokens < c->max_model_len) {
        return pgd_fail(PGD_OUT_OF_RANGE,
                        "max_num_batched_tokens is %d; with enable_chunked_prefill false it must "
                        "be at least max_model_len (%d)",
                        c->max_num_batched_tokens, c->max_model_len);
    }
    if (!(c->watermark >= 0.0 && c->watermark <= 1.0)) {
        return pgd_fail(PGD_OUT_OF_RANGE, "watermark is %g; 0 to 1 is allowed", c->watermark);
    }
    return PGD_OK;
}

static pgd_status make_room(pgd_sched *s) {
    size_t n = (size_t)s->config.max_num_seqs;
    s->free_slots = pgd_mem_alloc(n, sizeof(int32_t));
    s->turns = pgd_mem_alloc(n, 2 * sizeof(int32_t));
    s->room = pgd_mem_alloc(n, 5 * sizeof(pgd_seq *));
    if (s->free_slots == NULL || s->turns == NULL || s->room == NULL) {
        return PGD_MEM_FAIL("the scheduler", n * 5 * sizeof(pgd_seq *));
    }
    s->finished.items = s->room;
    s->preempted.items = s->room + 2 * n;
    s->admitted.items = s->room + 3 * n;
    s->resumed.items = s->room + 4 * n;
    for (int32_t i = 0; i < s->config.max_num_seqs; i++) {
        s->free_slots[i] = s->config.max_num_seqs - 1 - i;
    }
    s->n_free_slots = s->config.max_num_seqs;
    return PGD_OK;
}

pgd_status pgd_sched_create(const pgd_sched_config *config, pgd_kv_cache *cache, pgd_sched **out) {
    *out = NULL;
    PGD_TRY(check_config(config));
    pgd_sched *s = pgd_mem_alloc(1, sizeof(*s));
    if (s == NULL) {
        return PGD_MEM_FAIL("the scheduler", sizeof(*s));
    }
    s->config = *config;
    s->cache = cache;
    s->pool = pgd_kv_cache_pool(cache);
    s->headroom = (int64_t)(config->watermark * pgd_kv_cache_num_blocks(cache));
    pgd_status status = make_room(s);
    if (status != PGD_OK) {
        pgd_sched_destroy(s);
        return status;
    }
    *out = s;
    return PGD_OK;
}

void pgd_sched_destroy(pgd_sched *s) {
    if (s == NULL) {
        return;
    }
    pgd_mem_free(s->free_slots);
    pgd_mem_free(s->turns);
    pgd_mem_free(s->room);
    pgd_mem_free(s);
}

// The front of the queue is where a preempted sequence returns to under FCFS.
static void enqueue(pgd_sched *s, pgd_seq *seq, int32_t in_front) {
    seq->state = PGD_SEQ_WAITING;
    if (s->config.policy == PGD_SCHED_PRIORITY) {
        pgd_sched_push_sorted(&s->waiting, seq);
    } else if (in_front) {
        pgd_sched_push_head(&s->waiting, seq);
    } else {
        pgd_sched_push_tail(&s->waiting, seq);
    }
}

pgd_status pgd_sched_check(const pgd_sched *s, int32_t n_tokens) {
    if (n_tokens < 1 || n_tokens > s->config.max_model_len - 1) {
        return pgd_fail(PGD_OUT_OF_RANGE,
                        "the prompt has %d tokens; 1 to %d are allowed (max_model_len %d, one "
                        "token is left for the answer)",
                        n_tokens, s->config.max_model_len - 1, s->config.max_model_len);
    }
    int64_t needed = pgd_kv_cache_needed(s->cache, n_tokens);
    if (needed > pgd_kv_pool_usable(s->pool)) {
        return pgd_fail(PGD_OUT_OF_RANGE,
                        "the prompt of %d tokens needs %lld cache blocks of %d; the pool has %d",
                        n_tokens, (long long)needed, pgd_kv_cache_block_size(s->cache),
                        pgd_kv_pool_usable(s->pool));
    }
    return PGD_OK;
}

pgd_status pgd_sched_add(pgd_sched *s, pgd_seq *seq) {
    seq->state = PGD_SEQ_FINISHED;
    PGD_TRY(pgd_sched_check(s, seq->n_tokens));
    seq->slot = -1;
    seq->row = -1;
    seq->cached_tokens = -1;
    seq->order = s->n_added++;
    enqueue(s, seq, 0);
    return PGD_OK;
}

// A sequence that ended outside of a plan is not to be told of when it is gone by then.
static void forget_finished(pgd_sched *s, const pgd_seq *seq) {
    int32_t n = 0;
    for (int32_t i = 0; i < s->finished.n; i++) {
        if (s->finished.items[i] != seq) {
            s->finished.items[n++] = s->finished.items[i];
        }
    }
    s->finished.n = n;
}

void pgd_sched_finish(pgd_sched *s, pgd_seq *seq) {
    if (seq->state == PGD_SEQ_FINISHED) {
        if (!s->closed) {
            forget_finished(s, seq);
        }
        return;
    }
    pgd_sched_remove(seq->state == PGD_SEQ_RUNNING ? &s->running : &s->waiting, seq);
    pgd_kv_cache_give(s->cache, seq);
    if (seq->slot >= 0) {
        s->free_slots[s->n_free_slots++] = seq->slot;
        seq->slot = -1;
    }
    s->n_cancelled -= seq->cancelled != 0;
    seq->state = PGD_SEQ_FINISHED;
}

void pgd_sched_end(pgd_sched *s, pgd_seq *seq, int32_t reason) {
    pgd_sched_finish(s, seq);
    seq->finish = reason;
    s->finished.items[s->finished.n++] = seq;
}

int32_t pgd_sched_outgrown(const pgd_sched *s, const pgd_seq *seq) {
    return seq->n_ahead == 0 &&
           pgd_kv_cache_needed(s->cache, seq->n_tokens) > pgd_kv_pool_usable(s->pool);
}

void pgd_sched_preempt(pgd_sched *s, pgd_seq *seq) {
    pgd_sched_remove(&s->running, seq);
    pgd_kv_cache_give(s->cache, seq);
    s->free_slots[s->n_free_slots++] = seq->slot;
    seq->slot = -1;
    seq->computed = 0;
    seq->n_preempted++;
    enqueue(s, seq, 1);
    s->preempted.items[s->preempted.n++] = seq;
    s->stats.n_preemptions++;
    if (pgd_sched_outgrown(s, seq)) {
        pgd_sched_end(s, seq, PGD_FINISH_ERROR);
    }
}

void pgd_sched_open_step(pgd_sched *s) {
    if (s->closed) {
        s->closed = 0;
        s->finished.n = 0;
        s->preempted.n = 0;
        s->admitted.n = 0;
        s->resumed.n = 0;
        pgd_kv_pool_clear_evicted(s->pool);
    }
}

void pgd_sched_discard(pgd_sched *s, const pgd_step *step) {
    for (int32_t i = 0; i < step->n_rows; i++) {
        const pgd_step_row *row = &step->rows[i];
        if (row->seq != NULL) {
            pgd_kv_cache_forget(s->cache, row->seq, row->start);
            row->seq->n_scored -= row->n_scored;
            row->seq->n_ahead = 0;
        }
    }
}

static void preempt_all(pgd_sched *s) {
    pgd_sched_open_step(s);
    while (s->running.tail != NULL) {
        pgd_sched_preempt(s, s->running.tail);
    }
}

void pgd_sched_requeue(pgd_sched *s) {
    preempt_all(s);
}

void pgd_sched_cancel(pgd_sched *s, pgd_seq *seq) {
    if (seq->state != PGD_SEQ_FINISHED && !seq->cancelled) {
        seq->cancelled = 1;
        s->n_cancelled++;
    }
}

int32_t pgd_sched_reset_cache(pgd_sched *s, int32_t preempt_running) {
    pgd_sched_open_step(s);
    if (preempt_running) {
        preempt_all(s);
    }
    return s->running.n == 0 && pgd_kv_cache_reset(s->cache);
}

int32_t pgd_sched_n_running(const pgd_sched *s) {
    return s->running.n;
}

int32_t pgd_sched_n_waiting(const pgd_sched *s) {
    return s->waiting.n;
}

const pgd_seq *pgd_sched_running(const pgd_sched *s) {
    return s->running.head;
}

const pgd_seq *pgd_sched_waiting(const pgd_sched *s) {
    return s->waiting.head;
}

pgd_seq *const *pgd_sched_finished(const pgd_sched *s, int32_t *out_n) {
    *out_n = s->closed ? 0 : s->finished.n;
    return s->finished.items;
}

const pgd_sched_stats *pgd_sched_get_stats(const pgd_sched *s) {
    return &s->stats;
}
