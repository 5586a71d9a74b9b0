// What the scheduler and the KV cache cost. A program to run by hand, not a test:
//
//   sched_bench
//
// Each figure is the best of several runs, so that a busy machine does not speak in it.
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/mem.h"
#include "kv/cache.h"
#include "kv/hash.h"
#include "sched/sched.h"

#define N_RUNS    7
#define N_BLOCKS  65536
#define BLOCK     16
#define TABLE     16
#define N_SEQS    256
#define MAX_LEN   4096
#define PROMPT    512
#define BLOCKS_OF (MAX_LEN / BLOCK)
#define HASH_LEN  32768
#define N_STEPS   2000

static double best_of(double (*measure)(void)) {
    double best = 1e30;
    for (int32_t i = 0; i < N_RUNS; i++) {
        double v = measure();
        best = v < best ? v : best;
    }
    return best;
}

// ns a block: tables of 16 blocks taken and given, without content.
static double alloc_plain(void) {
    pgd_kv_pool *pool = NULL;
    int32_t table[TABLE];
    const int32_t n = 200000;
    if (pgd_kv_pool_create(N_BLOCKS, &pool) != PGD_OK) {
        return 0.0;
    }
    uint64_t begin = pgd_clock_ns();
    for (int32_t i = 0; i < n; i++) {
        pgd_kv_pool_take(pool, TABLE, table);
        pgd_kv_pool_give(pool, table, TABLE);
    }
    uint64_t end = pgd_clock_ns();
    pgd_kv_pool_destroy(pool);
    return (double)(end - begin) / n / TABLE;
}

// ns a block: the same with content, so that each taking evicts; the pool is walked round.
static double alloc_cached(void) {
    pgd_kv_pool *pool = NULL;
    int32_t table[TABLE];
    const int32_t n = 50000;
    uint64_t next = 1;
    if (pgd_kv_pool_create(4096, &pool) != PGD_OK) {
        return 0.0;
    }
    uint64_t begin = pgd_clock_ns();
    for (int32_t i = 0; i < n; i++) {
        pgd_kv_pool_take(pool, TABLE, table);
        for (int32_t k = 0; k < TABLE; k++) {
            pgd_kv_hash hash = {{next * UINT64_C(0x9E3779B97F4A7C15), next, 0, 0}};
            pgd_kv_pool_register(pool, table[k], &hash, 0);
            next++;
        }
        pgd_kv_pool_give(pool, table, TABLE);
        pgd_kv_pool_clear_evicted(pool);
    }
    uint64_t end = pgd_clock_ns();
    pgd_kv_pool_destroy(pool);
    return (double)(end - begin) / n / TABLE;
}

// ns a block of 16: hash of the tokens and lookup, hit of all blocks.
static double hash_and_find(void) {
    const pgd_kv_cache_config config = {.num_blocks = N_BLOCKS, .block_size = BLOCK};
    static int32_t tokens[HASH_LEN];
    static int32_t blocks[HASH_LEN / BLOCK];
    static pgd_kv_hash hashes[HASH_LEN / BLOCK];
    pgd_kv_cache *cache = NULL;
    pgd_seq seq = {.tokens = tokens,
                   .n_tokens = HASH_LEN,
                   .blocks = blocks,
                   .cap_blocks = HASH_LEN / BLOCK,
                   .hashes = hashes};
    for (int32_t i = 0; i < HASH_LEN; i++) {
        tokens[i] = i * 7;
    }
    if (pgd_kv_cache_create(&config, &cache) != PGD_OK ||
        !pgd_kv_cache_grow(cache, &seq, HASH_LEN)) {
        return 0.0;
    }
    pgd_kv_cache_give(cache, &seq);
    seq.n_hashes = 0;
    uint64_t begin = pgd_clock_ns();
    int32_t n = pgd_kv_cache_match(cache, &seq) / BLOCK;
    uint64_t end = pgd_clock_ns();
    pgd_kv_cache_destroy(cache);
    return (double)(end - begin) / (n > 0 ? n : 1);
}

typedef struct load {
    pgd_kv_cache *cache;
    pgd_sched *sched;
    pgd_step step;
    pgd_step_row rows[N_SEQS];
    pgd_seq seqs[N_SEQS];
    int32_t tokens[N_SEQS][MAX_LEN];
    int32_t blocks[N_SEQS][BLOCKS_OF];
    pgd_kv_hash hashes[N_SEQS][BLOCKS_OF];
} load;

static pgd_status start_load(load *l, int32_t no_prefix_caching) {
    const pgd_kv_cache_config cache = {
        .num_blocks = N_BLOCKS, .block_size = BLOCK, .no_prefix_caching = no_prefix_caching};
    const pgd_sched_config sched = {.max_num_batched_tokens = N_SEQS * PROMPT,
                                    .max_num_seqs = N_SEQS,
                                    .max_model_len = MAX_LEN};
    PGD_TRY(pgd_kv_cache_create(&cache, &l->cache));
    PGD_TRY(pgd_sched_create(&sched, l->cache, &l->sched));
    l->step.rows = l->rows;
    l->step.cap_rows = N_SEQS;
    for (int32_t i = 0; i < N_SEQS; i++) {
        for (int32_t k = 0; k < MAX_LEN; k++) {
            l->tokens[i][k] = i * MAX_LEN + k;
        }
        l->seqs[i] = (pgd_seq){.tokens = l->tokens[i],
                               .n_prompt = PROMPT + i,
                               .n_tokens = PROMPT + i,
                               .cap_tokens = MAX_LEN,
                               .blocks = l->blocks[i],
                               .cap_blocks = BLOCKS_OF,
                               .hashes = l->hashes[i]};
        PGD_TRY(pgd_sched_add(l->sched, &l->seqs[i]));
    }
    while (pgd_sched_n_waiting(l->sched) > 0) {
        pgd_sched_plan(l->sched, &l->step);
    }
    return PGD_OK;
}

// us a step of 256 sequences that decode.
static double plan_of(int32_t no_prefix_caching) {
    load *l = pgd_mem_alloc(1, sizeof(*l));
    double us = 0.0;
    if (l != NULL && start_load(l, no_prefix_caching) == PGD_OK) {
        pgd_sched_plan(l->sched, &l->step);
        uint64_t ns = 0;
        for (int32_t i = 0; i < N_STEPS; i++) {
            for (int32_t k = 0; k < N_SEQS; k++) {
                l->seqs[k].n_tokens++;
            }
            uint64_t begin = pgd_clock_ns();
            pgd_sched_plan(l->sched, &l->step);
            ns += pgd_clock_ns() - begin;
        }
        us = (double)ns / N_STEPS / 1e3;
    }
    if (l != NULL) {
        pgd_sched_destroy(l->sched);
        pgd_kv_cache_destroy(l->cache);
    }
    pgd_mem_free(l);
    return us;
}

static double plan_cached(void) {
    return plan_of(0);
}

static double plan_plain(void) {
    return plan_of(1);
}

int main(void) {
    printf("block alloc + free          %7.1f ns\n", best_of(alloc_plain));
    printf("  with content and eviction %7.1f ns\n", best_of(alloc_cached));
    printf("hash + lookup of a block    %7.3f us\n", best_of(hash_and_find) / 1e3);
    printf("step of 256 running         %7.2f us\n", best_of(plan_cached));
    printf("  without prefix caching    %7.2f us\n", best_of(plan_plain));
    return 0;
}
