// Weights in blocks of integers: embed, gemm, gemm_add and gate_up over every scheme and over parts
// of different ones. A device may round x to int8, so x is of numbers that int8 holds exactly
// (then sums are as close as any), or normal (then what rounding costs is bounded).
#include "ops.h"

#include <stdlib.h>

#include "base/fail.h"

typedef struct quant_case {
    int32_t scheme;
    int64_t n, k;
    int32_t n_parts;
} quant_case;

// wide 1: small shapes are two spans of a row, not more than one.
static quant_case draw_case(ops_fixture *f, int32_t wide) {
    static const int32_t own[] = {PGD_SCHEME_Q8_0, PGD_SCHEME_Q4_0, PGD_SCHEME_Q4_K,
                                  PGD_SCHEME_Q6_K, PGD_SCHEME_INT8}; // kernels of their own
    quant_case c = {.scheme =
                        ops_between(&f->rng, 0, 3) == 0 ? PGD_SCHEME_PARTS : ops_scheme(&f->rng)};
    c.scheme = f->rng.small ? own[ops_between(&f->rng, 0, 4)] : c.scheme;
    const int64_t unit = pgd_scheme_elements(c.scheme);
    if (c.scheme == PGD_SCHEME_PLAIN) {
        c.scheme = PGD_SCHEME_Q8_0;
    }
    c.n = ops_width(&f->rng);
    if (f->rng.small) {
        c.k = wide ? 512 : 0;
        c.k += c.scheme == PGD_SCHEME_PARTS || unit == 256 ? 256 : unit == 32 ? 288 : 265;
    } else if (c.scheme == PGD_SCHEME_PARTS || unit == 256) {
        c.k = 256 * ops_between(&f->rng, 1, 5);
    } else if (c.scheme == PGD_SCHEME_INT8) { // a last block of one number is exact too
        c.k = 32 * ops_between(&f->rng, 0, 20) + 1;
    } else {
        c.k = 32 * ops_between(&f->rng, 1, 40);
    }
    c.n_parts = c.n > 3 && !f->rng.small ? (int32_t)ops_between(&f->rng, 1, 3) : 1;
    return c;
}

// A row of the weight on its own, into host memory.
static void check_row(ops_fixture *f) {
    const int64_t row = ops_between(&f->rng, 0, f->weight_desc.n - 1), k = f->weight_desc.k;
    double *exact = malloc((size_t)k * sizeof(*exact));
    float *want = malloc((size_t)k * sizeof(*want)), *got = malloc((size_t)k * sizeof(*got));
    const pgd_tensor line = {.offset = (uint64_t)(uintptr_t)got,
                             .dtype = PGD_F32,
                             .rank = 1,
                             .shape = {k},
                             .stride = {1}};
    pgd_status code = PGD_OK;
    if (f->broken || exact == NULL || want == NULL || got == NULL) {
        f->broken = 1;
    } else {
        code = f->d->weight->unpack(f->d, f->queue, f->weight[OPS_DEV], row, &line);
        ops_drain(f);
    }
    if (code == PGD_OK && !f->broken) {
        pgd_ref_weight_read(&f->ref_weight, row, 0, k, exact);
        for (int64_t i = 0; i < k; i++) {
            want[i] = (float)exact[i];
        }
        ops_compare_values(f, "a row unpacked", PGD_F32, want, got, k, k, OPS_ONE, 0);
    } else if (code != PGD_UNSUPPORTED && !f->broken) {
        ops_fail(f, "row %lld cannot be unpacked: %s", (long long)row, pgd_fail_last());
    }
    free(exact);
    free(want);
    free(got);
}

static void run_embed(ops_fixture *f) {
    const ops_batch_spec spec = ops_draw_batch(&f->rng, 90, 30);
    const quant_case c = draw_case(f, 1);
    const uint32_t uses = PGD_USE_EMBED | (ops_between(&f->rng, 0, 1) ? PGD_USE_GEMM : 0);
    pgd_embed_args a[2];
    ops_tensor out;
    ops_batch(f, &spec);
    ops_quantized(f, uses, c.scheme, ops_vocab(&f->rng), c.k, c.n_parts, spec.cap_tokens);
    out = ops_make2(f, "out", PGD_F32, f->batch[0].cap_tokens, c.k, f->n_rows, OPS_FILL_NAN);
    ops_say(f, " %d rows of %lld of %s", (int)f->n_rows, (long long)c.k, pgd_scheme_name(c.scheme));
    ops_may_write(f, &out);
    for (int side = 0; side < 2; side++) {
        a[side] = (pgd_embed_args){.size = sizeof(a[side]),
                                   .rows = PGD_ROWS_TOKENS,
                                   .batch = &f->batch[side],
                                   .out = out.side[side],
                                   .scale = 1};
    }
    ops_ask(f, PGD_OP_embed, &a[OPS_DEV]);
    ops_ready(f);
    a[OPS_HOST].w = f->weight[OPS_HOST];
    a[OPS_DEV].w = f->weight[OPS_DEV];
    ops_run(f, PGD_OP_embed, &a[OPS_HOST], &a[OPS_DEV]);
    ops_fetch(f);
    ops_compare(f, &out, f->n_rows, OPS_ONE, 0);
    check_row(f);
}

// exact 1: x as int8 holds it.
static void run_product(ops_fixture *f, int32_t op, int32_t exact) {
    const quant_case q = draw_case(f, 0);
    const int32_t added = op == PGD_OP_gemm_add;
    const ops_rows_case c = ops_draw_rows(f, 131);
    pgd_gemm_args a[2];
    ops_tensor x, y, bias;
    ops_quantized(f, PGD_USE_GEMM, q.scheme, q.n, q.k, q.n_parts, c.cap);
    x = ops_make2(f, "x", PGD_F32, c.cap, q.k, c.live, exact ? OPS_FILL_INT8 : OPS_FILL_NORMAL);
    y = ops_make2(f, "y", PGD_F32, c.cap, q.n, c.live, added ? OPS_FILL_NORMAL : OPS_FILL_NAN);
    bias = ops_make1(f, "bias", PGD_F32, q.n, OPS_FILL_NORMAL);
    ops_say(f, " of %lld x %lld %s in %d parts, %s x", (long long)q.n, (long long)q.k,
            pgd_scheme_name(q.scheme), (int)q.n_parts, exact ? "exact" : "normal");
    ops_may_write(f, &y);
    for (int side = 0; side < 2; side++) {
        a[side] = (pgd_gemm_args){.size = sizeof(a[side]),
                                  .rows = c.mode,
                                  .batch = &f->batch[side],
                                  .x = x.side[side],
                                  .y = y.side[side],
                                  .aux_kind = added ? PGD_AUX_ADD : PGD_AUX_NONE};
        if (exact) {
            a[side].bias = bias.side[side];
        }
        if (added) {
            a[side].aux = y.side[side];
        }
    }
    ops_ask(f, op, &a[OPS_DEV]);
    ops_ready(f);
    a[OPS_HOST].w = f->weight[OPS_HOST];
    a[OPS_DEV].w = f->weight[OPS_DEV];
    ops_run(f, op, &a[OPS_HOST], &a[OPS_DEV]);
    ops_fetch(f);
    ops_compare(f, &y, c.live, exact ? OPS_ONE : OPS_INT8, 0);
}

static void run_gemm(ops_fixture *f) {
    run_product(f, PGD_OP_gemm, 1);
}

static void run_gemm_add(ops_fixture *f) {
    run_product(f, PGD_OP_gemm_add, 1);
}

static void run_rounded(ops_fixture *f) {
    run_product(f, PGD_OP_gemm, 0);
}

static void run_gate_up(ops_fixture *f) {
    const quant_case q = draw_case(f, 0);
    const ops_rows_case c = ops_draw_rows(f, 70);
    const int32_t both = (int32_t)ops_between(&f->rng, 0, 1);
    pgd_gate_up_args a[2];
    ops_tensor x, norm_w, normed, tmp, out;
    ops_quantized(f, PGD_USE_GATE_UP | (both ? PGD_USE_GEMM : 0), q.scheme, 2 * q.n, q.k, 2, c.cap);
    x = ops_make2(f, "x", PGD_F32, c.cap, q.k, c.live, OPS_FILL_NORMAL);
    norm_w = ops_make1(f, "norm_w", PGD_F32, q.k, OPS_FILL_NEAR_ONE);
    normed = ops_make2(f, "normed", PGD_F32, c.cap, q.k, c.live, OPS_FILL_NAN);
    tmp = ops_make2(f, "tmp", PGD_F32, c.cap, 2 * q.n, c.live, OPS_FILL_NAN);
    out = ops_make2(f, "out", PGD_F32, c.cap, q.n, c.live, OPS_FILL_NAN);
    ops_say(f, " of 2 x %lld x %lld %s, also gemm %d", (long long)q.n, (long long)q.k,
            pgd_scheme_name(q.scheme), (int)both);
    ops_may_write(f, &normed);
    ops_may_write(f, &tmp);
    ops_may_write(f, &out);
    for (int side = 0; side < 2; side++) {
        a[side] = (pgd_gate_up_args){.size = sizeof(a[side]),
                                     .rows = c.mode,
                                     .batch = &f->batch[side],
                                     .x = x.side[side],
                                     .norm_w = norm_w.side[side],
                                     .normed = normed.side[side],
                                     .tmp = tmp.side[side],
                                     .out = out.side[side],
                                     .eps = 1e-5F,
                                     .act = PGD_ACT_SILU};
    }
    ops_ask(f, PGD_OP_gate_up, &a[OPS_DEV]);
    ops_ready(f);
    a[OPS_HOST].w = f->weight[OPS_HOST];
    a[OPS_DEV].w = f->weight[OPS_DEV];
    ops_run(f, PGD_OP_gate_up, &a[OPS_HOST], &a[OPS_DEV]);
    ops_fetch(f);
    ops_compare(f, &out, c.live, OPS_INT8_FUSED, 0);
}

void ops_suite_quant(ops_session *s) {
    ops_cases(s, "quant_embed", s->cases, run_embed);
    ops_cases(s, "quant_gemm", 2 * s->cases, run_gemm);
    ops_cases(s, "quant_gemm_add", s->cases, run_gemm_add);
    ops_cases(s, "quant_rounded", s->cases, run_rounded);
    ops_cases(s, "quant_gate_up", s->cases, run_gate_up);
}
