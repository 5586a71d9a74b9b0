// Ops that read a weight: embed, gemm, gemm_add, gate_up.
#include "ops.h"

static void run_embed(ops_fixture *f) {
    ops_batch_spec spec = ops_draw_batch(&f->rng, 150, 30);
    const int32_t dtype = ops_float(&f->rng), out_dtype = ops_act(f);
    const int64_t width = ops_width(&f->rng);
    const int64_t vocab = ops_between(&f->rng, 0, 2) == 0 ? ops_width(&f->rng) : ops_vocab(&f->rng);
    const int32_t row_start = ops_between(&f->rng, 0, 2) == 0 ? 5 : 0;
    const float scale = ops_between(&f->rng, 0, 1) == 0 ? 11.3125F : 0;
    const int32_t exact = scale == 0 && (out_dtype == dtype || out_dtype == PGD_F32);
    ops_tensor out;
    pgd_embed_args a[2];
    int side;
    ops_batch(f, &spec);
    ops_weight(f, PGD_USE_EMBED | (ops_between(&f->rng, 0, 1) == 0 ? PGD_USE_GEMM : 0), dtype, 0,
               vocab, width, 1, spec.cap_tokens);
    out = ops_make2(f, "out", out_dtype, f->batch[0].cap_tokens, width, f->n_rows, OPS_FILL_NAN);
    ops_say(f, " %d rows of %lld, %lld ids from %d, %s to %s, scale %g", (int)f->n_rows,
            (long long)width, (long long)vocab, (int)row_start, pgd_dtype_name(dtype),
            pgd_dtype_name(out_dtype), (double)scale);
    ops_may_write(f, &out);
    for (side = 0; side < 2; side++) {
        a[side] = (pgd_embed_args){.size = sizeof(a[side]),
                                   .rows = PGD_ROWS_TOKENS,
                                   .batch = &f->batch[side],
                                   .out = out.side[side],
                                   .scale = scale,
                                   .row_start = row_start};
    }
    ops_ask(f, PGD_OP_embed, &a[OPS_DEV]);
    ops_ready(f);
    a[OPS_HOST].w = f->weight[OPS_HOST];
    a[OPS_DEV].w = f->weight[OPS_DEV];
    ops_run(f, PGD_OP_embed, &a[OPS_HOST], &a[OPS_DEV]);
    ops_fetch(f);
    ops_compare(f, &out, f->n_rows, exact ? OPS_EXACT : OPS_ONE, 0);
}

// n and k: mostly from the table, sometimes long with few rows.
static void draw_matrix(ops_fixture *f, int64_t *most, int64_t *n, int64_t *k) {
    *most = 131;
    *n = ops_width(&f->rng);
    *k = ops_width(&f->rng);
    if (ops_is_long(&f->rng, 6)) {
        *most = 5;
        *k = ops_between(&f->rng, 1, 4) * 1024 + ops_between(&f->rng, 0, 1) * 7;
    }
}

// gemm (added 0) or gemm_add with the residual in place (added 1).
static void run_product(ops_fixture *f, int32_t added) {
    int64_t most, n, k;
    ops_rows_case c;
    const int32_t dtype = ops_float(&f->rng), x_dtype = ops_act(f);
    const int32_t y_dtype = ops_between(&f->rng, 0, 1) == 0 ? PGD_F32 : x_dtype;
    const int32_t act_dtype = ops_rounding(f, dtype, x_dtype);
    const int32_t has_bias = (int32_t)ops_between(&f->rng, 0, 1);
    const int32_t op = added ? PGD_OP_gemm_add : PGD_OP_gemm;
    const int32_t aux_kind = added ? PGD_AUX_ADD : (int32_t)ops_between(&f->rng, 0, 2);
    const int32_t act = added ? 0 : (int32_t)ops_between(&f->rng, 0, 9) % 5;
    const float alpha = ops_between(&f->rng, 0, 3) == 0 ? 0.5F : 0;
    ops_tensor x, y, bias, aux;
    pgd_gemm_args a[2];
    int side;
    draw_matrix(f, &most, &n, &k);
    c = ops_draw_rows(f, most);
    ops_weight(f, PGD_USE_GEMM, dtype, act_dtype, n, k,
               n > 3 ? (int32_t)ops_between(&f->rng, 1, 3) : 1, c.cap);
    x = ops_make2(f, "x", x_dtype, c.cap, k, c.live, OPS_FILL_NORMAL);
    y = ops_make2(f, "y", y_dtype, c.cap, n, c.live, added ? OPS_FILL_NORMAL : OPS_FILL_NAN);
    aux = added ? y : ops_make2(f, "aux", y_dtype, c.cap, n, c.live, OPS_FILL_NORMAL);
    bias = ops_make1(f, "bias", PGD_F32, n, OPS_FILL_NORMAL);
    ops_say(f, " of %lld x %lld %s, x %s, y %s, rounded to %s, bias %d, act %d, aux %d",
            (long long)n, (long long)k, pgd_dtype_name(dtype), pgd_dtype_name(x_dtype),
            pgd_dtype_name(y_dtype), pgd_dtype_name(act_dtype), (int)has_bias, (int)act,
            (int)aux_kind);
    ops_may_write(f, &y);
    for (side = 0; side < 2; side++) {
        a[side] = (pgd_gemm_args){.size = sizeof(a[side]),
                                  .rows = c.mode,
                                  .batch = &f->batch[side],
                                  .x = x.side[side],
                                  .y = y.side[side],
                                  .act = act,
                                  .aux_kind = aux_kind,
                                  .alpha = alpha};
        if (has_bias) {
            a[side].bias = bias.side[side];
        }
        if (aux_kind != PGD_AUX_NONE) {
            a[side].aux = aux.side[side];
        }
    }
    ops_ask(f, op, &a[OPS_DEV]);
    ops_ready(f);
    a[OPS_HOST].w = f->weight[OPS_HOST];
    a[OPS_DEV].w = f->weight[OPS_DEV];
    ops_run(f, op, &a[OPS_HOST], &a[OPS_DEV]);
    ops_fetch(f);
    ops_compare(f, &y, c.live, OPS_ONE, 0);
}

static void run_gemm(ops_fixture *f) {
    run_product(f, 0);
}

static void run_gemm_add(ops_fixture *f) {
    run_product(f, 1);
}

typedef struct gate_up_parts {
    pgd_rmsnorm_args norm;
    pgd_gemm_args gemm;
    pgd_act_mul_args act;
} gate_up_parts;

// The parts of gate_up one by one, over the same tensors.
static gate_up_parts split(const pgd_gate_up_args *a) {
    return (gate_up_parts){
        .norm = {.size = sizeof(pgd_rmsnorm_args),
                 .rows = a->rows,
                 .batch = a->batch,
                 .x = a->x,
                 .w = a->norm_w,
                 .out = a->normed,
                 .eps = a->eps},
        .gemm = {.size = sizeof(pgd_gemm_args),
                 .rows = a->rows,
                 .batch = a->batch,
                 .w = a->w,
                 .x = a->norm_w.rank != 0 ? a->normed : a->x,
                 .y = a->tmp,
                 .bias = a->bias},
        .act = {.size = sizeof(pgd_act_mul_args),
                .rows = a->rows,
                .batch = a->batch,
                .x = a->tmp,
                .out = a->out,
                .act = a->act,
                .act_limit = a->act_limit},
    };
}

static void ask_parts(ops_fixture *f, const pgd_gate_up_args *a) {
    const gate_up_parts p = split(a);
    if (a->norm_w.rank != 0) {
        ops_ask(f, PGD_OP_rmsnorm, &p.norm);
    }
    ops_ask(f, PGD_OP_gemm, &p.gemm);
    ops_ask(f, PGD_OP_act_mul, &p.act);
}

// On the device, composed comes close to fused.
static void compare_parts(ops_fixture *f, const pgd_gate_up_args *a, const ops_tensor *out,
                          int64_t rows) {
    const gate_up_parts p = split(a);
    ops_adopt(f, out);
    if (a->norm_w.rank != 0) {
        ops_run_dev(f, PGD_OP_rmsnorm, &p.norm);
    }
    ops_run_dev(f, PGD_OP_gemm, &p.gemm);
    ops_run_dev(f, PGD_OP_act_mul, &p.act);
    ops_fetch(f);
    ops_compare(f, out, rows, OPS_FUSED, 0);
}

static void run_gate_up(ops_fixture *f) {
    int64_t most, n, k;
    ops_rows_case c;
    const int32_t dtype = ops_float(&f->rng), x_dtype = ops_act(f);
    const int32_t residual = ops_between(&f->rng, 0, 1) == 0 ? PGD_F32 : x_dtype;
    // the product that reads it may round it anyway
    const int32_t out_dtype = ops_between(&f->rng, 0, 2) == 0 ? PGD_BF16 : x_dtype;
    const int32_t has_norm = ops_between(&f->rng, 0, 2) > 0;
    const int32_t has_bias = ops_turn(f, 3) == 0;
    // a weight that the plain gemm reads too may not be interleaved
    const int32_t both = (int32_t)ops_between(&f->rng, 0, 1);
    const uint32_t uses = PGD_USE_GATE_UP | (both ? PGD_USE_GEMM : 0);
    const int32_t act = (int32_t)ops_between(&f->rng, PGD_ACT_SILU, PGD_ACT_RELU);
    ops_tensor x, norm_w, normed, bias, tmp, out;
    pgd_gate_up_args a[2];
    int side;
    const int32_t act_dtype = ops_rounding(f, dtype, x_dtype);
    draw_matrix(f, &most, &n, &k);
    c = ops_draw_rows(f, most);
    ops_weight(f, uses, dtype, act_dtype, 2 * n, k, 2, c.cap);
    x = ops_make2(f, "x", has_norm ? residual : x_dtype, c.cap, k, c.live, OPS_FILL_NORMAL);
    norm_w = ops_make1(f, "norm_w", PGD_F32, k, OPS_FILL_NEAR_ONE);
    normed = ops_make2(f, "normed", x_dtype, c.cap, k, c.live, OPS_FILL_NAN);
    bias = ops_make1(f, "bias", PGD_F32, 2 * n, OPS_FILL_NORMAL);
    tmp = ops_make2(f, "tmp", x_dtype, c.cap, 2 * n, c.live, OPS_FILL_NAN);
    out = ops_make2(f, "out", out_dtype, c.cap, n, c.live, OPS_FILL_NAN);
    ops_say(f, " of 2 x %lld x %lld %s, x %s, then %s, %s, norm %d, bias %d, act %d, also gemm %d",
            (long long)n, (long long)k, pgd_dtype_name(dtype), pgd_dtype_name(x.side[0].dtype),
            pgd_dtype_name(x_dtype), pgd_dtype_name(out_dtype), (int)has_norm, (int)has_bias,
            (int)act, (int)both);
    ops_may_write(f, &normed);
    ops_may_write(f, &tmp);
    ops_may_write(f, &out);
    for (side = 0; side < 2; side++) {
        a[side] = (pgd_gate_up_args){.size = sizeof(a[side]),
                                     .rows = c.mode,
                                     .batch = &f->batch[side],
                                     .x = x.side[side],
                                     .tmp = tmp.side[side],
                                     .out = out.side[side],
                                     .eps = 1e-5F,
                                     .act = act};
        if (has_norm) {
            a[side].norm_w = norm_w.side[side];
            a[side].normed = normed.side[side];
        }
        if (has_bias) {
            a[side].bias = bias.side[side];
        }
    }
    ops_ask(f, PGD_OP_gate_up, &a[OPS_DEV]);
    if (both) {
        ask_parts(f, &a[OPS_DEV]);
    }
    ops_ready(f);
    a[OPS_HOST].w = f->weight[OPS_HOST];
    a[OPS_DEV].w = f->weight[OPS_DEV];
    ops_run(f, PGD_OP_gate_up, &a[OPS_HOST], &a[OPS_DEV]);
    ops_fetch(f);
    ops_compare(f, &out, c.live, OPS_FUSED, out_dtype == PGD_BF16 ? PGD_BF16 : act_dtype);
    if (both) {
        compare_parts(f, &a[OPS_DEV], &out, c.live);
    }
}

void ops_suite_gemm(ops_session *s) {
    ops_cases(s, "embed", s->cases, run_embed);
    ops_cases(s, "gemm", 2 * s->cases, run_gemm);
    ops_cases(s, "gemm_add", s->cases, run_gemm_add);
    ops_cases(s, "gate_up", s->cases, run_gate_up);
}
