// Ids of a trace as tokens. See simulate.h.
#include "cli/simulate.h"

#include "base/fail.h"
#include "base/mem.h"

#define RUN_BITS 8
#define RUN_MASK ((1 << RUN_BITS) - 1)
#define MAX_RUNS (1 << (31 - RUN_BITS))

pgd_status cli_sim_names_create(sim_names *n) {
    n->last_id = -1;
    PGD_TRY(pgd_arena_create(0, &n->arena));
    return pgd_map_create(1024, &n->runs);
}

void cli_sim_names_free(sim_names *n) {
    pgd_map_destroy(n->runs);
    pgd_arena_destroy(n->arena);
    pgd_mem_free(n->run_ids);
}

static pgd_status add_run(sim_names *n, pgd_str key, int64_t run_id) {
    if (n->n_runs == MAX_RUNS) {
        return pgd_fail(PGD_OUT_OF_RANGE, "the trace has more than %d x %d token ids above 2^31",
                        MAX_RUNS, 1 << RUN_BITS);
    }
    if (n->n_runs == n->cap_runs) {
        int32_t cap = n->cap_runs > 0 ? 2 * n->cap_runs : 1024;
        int64_t *grown = pgd_mem_realloc(n->run_ids, (size_t)cap, sizeof(*grown));
        if (grown == NULL) {
            return PGD_MEM_FAIL("token ids", (size_t)cap * sizeof(*grown));
        }
        n->run_ids = grown;
        n->cap_runs = cap;
    }
    pgd_str kept = pgd_arena_copy(n->arena, key);
    if (kept.ptr == NULL) {
        return PGD_MEM_FAIL("token ids", key.len);
    }
    PGD_TRY(pgd_map_set(n->runs, kept, (uint64_t)n->n_runs));
    n->run_ids[n->n_runs++] = run_id;
    return PGD_OK;
}

pgd_status cli_sim_names_token(sim_names *n, int64_t id, int32_t *out) {
    if (id <= INT32_MAX) {
        *out = (int32_t)id;
        return PGD_OK;
    }
    int64_t run_id = id >> RUN_BITS;
    if (run_id != n->last_id) {
        pgd_str key = {(const char *)&run_id, sizeof(run_id)};
        uint64_t run = (uint64_t)n->n_runs;
        if (!pgd_map_get(n->runs, key, &run)) {
            PGD_TRY(add_run(n, key, run_id));
        }
        n->last_id = run_id;
        n->last_run = (int32_t)run;
    }
    *out = INT32_MIN + (n->last_run << RUN_BITS) + (int32_t)(id & RUN_MASK);
    return PGD_OK;
}

int64_t cli_sim_names_id(const sim_names *n, int32_t token) {
    if (token >= 0) {
        return token;
    }
    int64_t place = (int64_t)token - INT32_MIN;
    return (n->run_ids[place >> RUN_BITS] << RUN_BITS) + (place & RUN_MASK);
}
