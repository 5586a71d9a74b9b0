// What the tests of this room share: a scheduler over hand-made sequences, and a model that gives
// every row that asks for it a token.
#ifndef PGD_SCHED_TEST_BENCH_H
#define PGD_SCHED_TEST_BENCH_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/mem.h"
#include "sched/sched.h"

#define N_SEQS 24
#define CAP    256

typedef struct bench {
    pgd_kv_cache *cache;
    pgd_kv_pool *pool;
    pgd_sched *sched;
    pgd_step step;
    pgd_step_row rows[N_SEQS];
    pgd_kv_hash hashes[N_SEQS][CAP];
    pgd_seq seqs[N_SEQS];
    int32_t tokens[N_SEQS][CAP];
    int32_t blocks[N_SEQS][CAP];
} bench;

static const pgd_sched_config plain = {
    .max_num_batched_tokens = 32, .max_num_seqs = 8, .max_model_len = 200};

static inline bench *set_up(int32_t n_blocks, int32_t block_tokens, pgd_sched_config config) {
    bench *b = pgd_mem_alloc(1, sizeof(*b));
    assert_non_null(b);
    const pgd_kv_cache_config cache = {.num_blocks = n_blocks,
                                       .block_size = block_tokens,
                                       .max_num_batched_tokens = config.max_num_batched_tokens,
                                       .max_model_len = config.max_model_len};
    assert_int_equal(pgd_kv_cache_create(&cache, &b->cache), PGD_OK);
    b->pool = pgd_kv_cache_pool(b->cache);
    assert_int_equal(pgd_sched_create(&config, b->cache, &b->sched), PGD_OK);
    b->step.rows = b->rows;
    b->step.cap_rows = N_SEQS;
    return b;
}

static inline void tear_down(bench *b) {
    pgd_sched_destroy(b->sched);
    pgd_kv_cache_destroy(b->cache);
    pgd_mem_free(b);
}

// Prompts have nothing in common.
static inline pgd_seq *make_seq(bench *b, int32_t i, int32_t n_prompt, int32_t max_tokens) {
    pgd_seq *seq = &b->seqs[i];
    *seq = (pgd_seq){.tokens = b->tokens[i],
                     .n_prompt = n_prompt,
                     .n_tokens = n_prompt,
                     .cap_tokens = n_prompt + max_tokens,
                     .blocks = b->blocks[i],
                     .hashes = b->hashes[i],
                     .cap_blocks = CAP};
    for (int32_t k = 0; k < CAP; k++) {
        b->tokens[i][k] = 1000 * i + k;
    }
    return seq;
}

static inline pgd_seq *add(bench *b, int32_t i, int32_t n_prompt, int32_t max_tokens) {
    pgd_seq *seq = make_seq(b, i, n_prompt, max_tokens);
    assert_int_equal(pgd_sched_add(b->sched, seq), PGD_OK);
    return seq;
}

// Plans, then gives every row that asks for it a token, as a model would.
static inline void run_step(bench *b) {
    pgd_sched_plan(b->sched, &b->step);
    for (int32_t i = 0; i < b->step.n_rows; i++) {
        pgd_seq *seq = b->rows[i].seq;
        if (b->rows[i].gives) {
            seq->n_tokens++;
            if (seq->n_tokens == seq->cap_tokens) {
                seq->finish = PGD_FINISH_LENGTH;
                pgd_sched_finish(b->sched, seq);
            }
        }
    }
}

#endif
