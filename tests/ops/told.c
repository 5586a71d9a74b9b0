// What sample tells beside a token, and the counts it keeps.
#include "ops.h"

#include <math.h>
#include <string.h>

// Counts: most tokens never seen, some in the prompt, some in the output, some in both; one near
// the end of its range.
static void fill_state(ops_fixture *f, const ops_tensor *t) {
    const pgd_tensor *h = &t->side[OPS_HOST];
    int64_t row, i;
    for (row = 0; row < h->shape[0]; row++) {
        int32_t *state = (int32_t *)(uintptr_t)h->offset + row * h->stride[0];
        for (i = 0; i < h->shape[1]; i++) {
            int64_t kind = ops_between(&f->rng, 0, 19);
            state[i] = kind < 2   ? 1 << 30
                       : kind < 4 ? (int32_t)ops_between(&f->rng, 1, 9)
                       : kind < 5 ? 1 << 30 | (int32_t)ops_between(&f->rng, 1, 9)
                                  : 0;
            if (kind == 19 && i % 7 == 3) {
                state[i] = (1 << 30) - 1 - (int32_t)ops_between(&f->rng, 0, 1);
            }
        }
    }
}

ops_told ops_make_told(ops_fixture *f, int64_t cap, int64_t n_best, int64_t vocab) {
    ops_told t = {.rows = (int32_t)cap};
    t.logprobs = ops_make2(f, "logprobs", PGD_F32, cap, 1 + n_best, cap, OPS_FILL_NAN);
    t.top_ids = ops_make2(f, "top_ids", PGD_I32, cap, 1 + n_best, cap, OPS_FILL_ZERO);
    t.ranks = ops_make1(f, "ranks", PGD_I32, cap, OPS_FILL_ZERO);
    t.state = ops_make2(f, "state", PGD_I32, OPS_SEQS, vocab, OPS_SEQS, OPS_FILL_ZERO);
    if (!f->broken) {
        fill_state(f, &t.state);
    }
    ops_may_write(f, &t.logprobs);
    ops_may_write(f, &t.top_ids);
    ops_may_write(f, &t.ranks);
    ops_may_write(f, &t.state);
    return t;
}

void ops_told_restart(ops_fixture *f, const ops_told *t) {
    if (!f->broken) {
        const ops_memory *m = &f->memories[t->state.memory];
        memcpy(m->host, m->before, m->bytes);
    }
}

// kernels/ref/sample.c states the bound. Elements that are not written stay NaN.
static void compare_logprobs(ops_fixture *f, const ops_tensor *t) {
    const pgd_tensor *h = &t->side[OPS_HOST];
    const unsigned char *got = f->memories[t->memory].got + t->side[OPS_DEV].offset;
    int64_t r, i;
    for (r = 0; r < h->shape[0]; r++) {
        for (i = 0; i < h->shape[1]; i++) {
            double want =
                pgd_ref_load(PGD_F32, (const void *)(uintptr_t)h->offset, r * h->stride[0] + i);
            double have = pgd_ref_load(PGD_F32, got, r * h->stride[0] + i);
            if (want != have && !(isnan(want) && isnan(have)) &&
                !(fabs(want - have) <= 0x1p-20 + 0x1p-22 * fabs(want))) {
                ops_fail(f, "logprobs [%lld, %lld]: device %.9g, reference %.9g", (long long)r,
                         (long long)i, have, want);
                return;
            }
        }
    }
}

void ops_compare_told(ops_fixture *f, const ops_told *t) {
    if (f->broken) {
        return;
    }
    compare_logprobs(f, &t->logprobs);
    ops_compare(f, &t->top_ids, t->rows, OPS_EXACT, 0);
    ops_compare(f, &t->ranks, t->rows, OPS_EXACT, 0);
    ops_compare(f, &t->state, OPS_SEQS, OPS_EXACT, 0);
}
