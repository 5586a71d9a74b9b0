// Random traces over a cache that is really written and read: each slot holds a fingerprint of its
// token and all before it, rows read what their tables say, and the next token follows from what
// was read. So a block shared, evicted or freed wrongly changes an answer.
//
// For every trace: no block is lost, counts equal holders, nobody overtakes under FCFS, every
// request gets exactly its tokens, and tiny memory gives the answers of ample memory.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/mem.h"
#include "base/rng.h"
#include "sched/sched.h"

#define N_SEQS     32
#define MAX_LEN    128
#define MAX_BLOCKS 2048
#define MAX_GROUPS 3
#define N_TRACES   600

typedef struct world {
    pgd_kv_cache_config cache_config;
    pgd_sched_config config;
    pgd_kv_cache *cache;
    pgd_kv_pool *pool;
    pgd_sched *sched;
    pgd_step step;
    pgd_step_row rows[N_SEQS];
    pgd_seq seqs[N_SEQS];
    int32_t tokens[N_SEQS][MAX_LEN];
    int32_t blocks[N_SEQS][MAX_GROUPS * MAX_LEN];
    pgd_kv_hash hashes[N_SEQS][MAX_LEN];
    uint64_t memory[MAX_GROUPS][MAX_BLOCKS * 16]; // a slot holds the layers of one group
    int32_t n_admitted;
    uint64_t n_rows;
    uint64_t n_preempted;
    uint64_t n_hit;
} world;

static uint64_t n_request_steps;

static int32_t draw(uint64_t *seed, int32_t n) {
    return (int32_t)(pgd_rng_next(seed) % (uint64_t)n);
}

static uint64_t mix(uint64_t before, int32_t token) {
    uint64_t state = before ^ (uint64_t)(uint32_t)token;
    return pgd_rng_next(&state);
}

static int32_t slot_of(const world *w, const pgd_seq *seq, int32_t group, int32_t position) {
    int32_t size = w->cache_config.block_size;
    int32_t block = seq->blocks[group * seq->cap_blocks + position / size];
    return block == 0 ? -1 : block * size + position % size;
}

// Fingerprints of all tokens of a row's sequence, from the tokens alone.
static void fingerprints(const pgd_seq *seq, int32_t n, uint64_t *out) {
    uint64_t f = 0;
    for (int32_t i = 0; i < n; i++) {
        f = mix(f, seq->tokens[i]);
        out[i] = f;
    }
}

static void write_row(world *w, const pgd_step_row *row) {
    uint64_t expected[MAX_LEN];
    fingerprints(row->seq, row->start + row->n_tokens, expected);
    for (int32_t g = 0; g < pgd_kv_cache_n_groups(w->cache); g++) {
        for (int32_t i = row->start; i < row->start + row->n_tokens; i++) {
            int32_t slot = slot_of(w, row->seq, g, i);
            assert_true(slot >= 0);
            w->memory[g][slot] = expected[i];
        }
    }
}

// Reads what the first of the row's tokens sees in each group; returns what the last one saw.
static uint64_t read_row(world *w, const pgd_step_row *row) {
    uint64_t expected[MAX_LEN];
    uint64_t last = 0;
    int32_t n = row->start + row->n_tokens;
    fingerprints(row->seq, n, expected);
    for (int32_t g = 0; g < pgd_kv_cache_n_groups(w->cache); g++) {
        int32_t window = w->cache_config.n_groups > 0 ? w->cache_config.windows[g] : 0;
        int32_t from = window > 0 && row->start >= window ? row->start - window + 1 : 0;
        for (int32_t i = from; i < n; i++) {
            int32_t slot = slot_of(w, row->seq, g, i);
            assert_true(slot >= 0);
            last = w->memory[g][slot];
            assert_int_equal(last, expected[i]);
        }
    }
    return last;
}

static void check_counts(const world *w) {
    static int32_t held[MAX_BLOCKS];
    int32_t n_held = 0;
    memset(held, 0, sizeof(held));
    for (int32_t i = 0; i < N_SEQS; i++) {
        const pgd_seq *seq = &w->seqs[i];
        for (int32_t g = 0; g < pgd_kv_cache_n_groups(w->cache); g++) {
            for (int32_t k = 0; k < seq->n_blocks; k++) {
                held[seq->blocks[g * seq->cap_blocks + k]]++;
            }
        }
    }
    for (int32_t block = 1; block < w->cache_config.num_blocks; block++) {
        assert_int_equal(pgd_kv_pool_ref_count(w->pool, block), held[block]);
        n_held += held[block] > 0;
    }
    assert_int_equal(n_held + pgd_kv_pool_free_count(w->pool), pgd_kv_pool_usable(w->pool));
}

static void check_plan(world *w) {
    int32_t used[N_SEQS] = {0};
    assert_true(w->step.n_tokens <= w->config.max_num_batched_tokens);
    assert_true(pgd_sched_n_running(w->sched) <= w->config.max_num_seqs);
    for (int32_t i = 0; i < w->step.n_rows; i++) {
        const pgd_step_row *row = &w->rows[i];
        assert_in_range(row->seq->slot, 0, w->config.max_num_seqs - 1);
        assert_int_equal(used[row->seq->slot]++, 0);
        assert_true(row->n_tokens >= 1);
        assert_true((i < w->step.n_decode) == (row->kind == PGD_ROW_DECODE));
    }
    for (int32_t i = 0; i < w->step.n_admitted; i++) {
        int32_t index = (int32_t)(w->step.admitted[i] - w->seqs);
        if (w->config.policy == PGD_SCHED_FCFS) {
            assert_int_equal(index, w->n_admitted);
        }
        w->n_admitted++;
    }
}

static void run_step(world *w) {
    uint64_t before = pgd_mem_count();
    pgd_sched_plan(w->sched, &w->step);
    assert_int_equal(pgd_mem_count(), before);
    assert_int_equal(w->step.n_finished, 0);
    check_plan(w);
    check_counts(w);
    w->n_rows += (uint64_t)w->step.n_rows;
    w->n_preempted += (uint64_t)w->step.n_preempted;
    for (int32_t i = 0; i < w->step.n_rows; i++) {
        write_row(w, &w->rows[i]);
    }
    for (int32_t i = 0; i < w->step.n_rows; i++) {
        const pgd_step_row *row = &w->rows[w->step.turns[i]];
        pgd_seq *seq = row->seq;
        uint64_t seen = read_row(w, row);
        if (row->gives) {
            seq->tokens[seq->n_tokens++] = (int32_t)(seen % 1000);
            if (seq->n_tokens == seq->cap_tokens) {
                pgd_sched_finish(w->sched, seq);
            }
        }
    }
}

static void make_seq(world *w, int32_t i, uint64_t *seed) {
    pgd_seq *seq = &w->seqs[i];
    int32_t n_prompt = 1 + draw(seed, 60);
    int32_t n_shared = draw(seed, n_prompt);
    int32_t family = draw(seed, 4);
    for (int32_t k = 0; k < n_prompt; k++) {
        w->tokens[i][k] = k < n_shared ? 10000 * family + k : draw(seed, 3);
    }
    *seq = (pgd_seq){.tokens = w->tokens[i],
                     .n_prompt = n_prompt,
                     .n_tokens = n_prompt,
                     .cap_tokens = n_prompt + 1 + draw(seed, 60),
                     .priority = draw(seed, 3),
                     .arrival = draw(seed, 3),
                     .skip_cache = draw(seed, 8) == 0,
                     .slot = -1,
                     .row = -1,
                     .blocks = w->blocks[i],
                     .hashes = w->hashes[i]};
    seq->cap_blocks = seq->cap_tokens / w->cache_config.block_size + 1;
    assert_int_equal(pgd_sched_add(w->sched, seq), PGD_OK);
}

// Runs the trace of a seed to its end. memory_seed may choose anything but the requests.
static void run_trace(world *w, uint64_t seed) {
    int32_t next = 0;
    int32_t n_steps = 0;
    assert_int_equal(pgd_kv_cache_create(&w->cache_config, &w->cache), PGD_OK);
    w->pool = pgd_kv_cache_pool(w->cache);
    assert_int_equal(pgd_sched_create(&w->config, w->cache, &w->sched), PGD_OK);
    w->step.rows = w->rows;
    w->step.cap_rows = N_SEQS;
    while (next < N_SEQS || pgd_sched_n_running(w->sched) + pgd_sched_n_waiting(w->sched) > 0) {
        while (next < N_SEQS && draw(&seed, 2) == 0) {
            make_seq(w, next++, &seed);
        }
        if (n_steps % 97 == 96) {
            (void)pgd_sched_reset_cache(w->sched, n_steps % 2);
        }
        run_step(w);
        assert_true(++n_steps < 50000);
    }
    for (int32_t i = 0; i < N_SEQS; i++) {
        assert_int_equal(w->seqs[i].state, PGD_SEQ_FINISHED);
        assert_int_equal(w->seqs[i].n_tokens, w->seqs[i].cap_tokens);
    }
    assert_int_equal(w->n_admitted, N_SEQS);
    assert_int_equal(pgd_kv_pool_free_count(w->pool), pgd_kv_pool_usable(w->pool));
    w->n_hit = pgd_sched_get_stats(w->sched)->n_hit;
    n_request_steps += w->n_rows;
    pgd_sched_destroy(w->sched);
    pgd_kv_cache_destroy(w->cache);
}

// The least memory in which the longest request can run alone, and a little more.
static void choose_tiny(world *w, uint64_t *seed) {
    static const int32_t sizes[] = {1, 2, 3, 4, 5, 8, 16};
    pgd_kv_cache_config *c = &w->cache_config;
    c->block_size = sizes[draw(seed, 7)];
    c->n_groups = draw(seed, 3) == 0 ? 1 + draw(seed, MAX_GROUPS) : 0;
    for (int32_t g = 0; g < c->n_groups; g++) {
        c->windows[g] = draw(seed, 3) == 0 ? 0 : 1 + draw(seed, 40);
    }
    int32_t groups = c->n_groups > 0 ? c->n_groups : 1;
    c->num_blocks = groups * (MAX_LEN / c->block_size + 3 + draw(seed, 12));
    c->no_prefix_caching = draw(seed, 5) == 0;
    w->config = (pgd_sched_config){
        .max_num_batched_tokens = 1 + draw(seed, 64),
        .max_num_seqs = 1 + draw(seed, 12),
        .max_model_len = MAX_LEN,
        .long_prefill_token_threshold = draw(seed, 3) == 0 ? 1 + draw(seed, 20) : 0,
        .policy = draw(seed, 2),
        .no_reserve_full_prompt = draw(seed, 2),
        .watermark = draw(seed, 3) == 0 ? 0.1 : 0.0,
    };
    c->max_num_batched_tokens = w->config.max_num_batched_tokens;
    c->max_model_len = MAX_LEN;
}

static void choose_ample(world *w) {
    w->cache_config = (pgd_kv_cache_config){.num_blocks = MAX_BLOCKS,
                                            .block_size = 16,
                                            .no_prefix_caching = 1,
                                            .max_num_batched_tokens = 4096,
                                            .max_model_len = MAX_LEN};
    w->config = (pgd_sched_config){
        .max_num_batched_tokens = 4096, .max_num_seqs = N_SEQS, .max_model_len = MAX_LEN};
}

static void test_tiny_memory_gives_the_answers_of_ample_memory(void **state) {
    (void)state;
    uint64_t n_preempted = 0;
    uint64_t n_hit = 0;
    world *tiny = pgd_mem_alloc(1, sizeof(*tiny));
    world *ample = pgd_mem_alloc(1, sizeof(*ample));
    assert_non_null(tiny);
    assert_non_null(ample);
    for (uint64_t trace = 1; trace <= N_TRACES; trace++) {
        uint64_t seed = trace * 7919;
        memset(tiny, 0, sizeof(*tiny));
        memset(ample, 0, sizeof(*ample));
        choose_tiny(tiny, &seed);
        choose_ample(ample);
        run_trace(tiny, trace);
        run_trace(ample, trace);
        assert_int_equal(ample->n_hit, 0);
        for (int32_t i = 0; i < N_SEQS; i++) {
            assert_int_equal(tiny->seqs[i].n_tokens, ample->seqs[i].n_tokens);
            assert_memory_equal(tiny->tokens[i], ample->tokens[i],
                                (size_t)ample->seqs[i].n_tokens * sizeof(int32_t));
        }
        n_preempted += tiny->n_preempted;
        n_hit += tiny->n_hit;
    }
    pgd_mem_free(tiny);
    pgd_mem_free(ample);
    printf("%llu request-steps, %llu preemptions, %llu tokens hit\n",
           (unsigned long long)n_request_steps, (unsigned long long)n_preempted,
           (unsigned long long)n_hit);
    assert_true(n_request_steps > 1000000);
    assert_true(n_preempted > 1000 && n_hit > 10000);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_tiny_memory_gives_the_answers_of_ample_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
