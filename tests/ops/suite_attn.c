// Ops that touch the cache: kv_write, attn, qkv_rope_write.
#include "ops.h"

#include <string.h>

typedef struct heads {
    int64_t hq;
    int64_t hkv;
    int64_t dim;
} heads;

static heads draw_heads(ops_fixture *f) {
    const int32_t most = f->rng.small ? 1 : 3;
    heads h = {.hkv = ops_between(&f->rng, 1, most), .dim = ops_head_dim(&f->rng)};
    h.hq = h.hkv << ops_between(&f->rng, 0, most);
    return h;
}

static void run_kv_write(ops_fixture *f) {
    const ops_batch_spec spec = ops_draw_batch(&f->rng, 150, 100);
    const int32_t drawn = ops_act(f), cache = ops_cached(f);
    // the host's fallback does not write into int8 caches, and kernels may take f32 alone
    const int32_t dtype = cache == PGD_I8 ? PGD_F32 : drawn;
    const int32_t layers = (int32_t)ops_between(&f->rng, 1, f->rng.small ? 1 : 3);
    const heads h = draw_heads(f);
    ops_tensor qkv, k, v;
    pgd_kv_write_args a[2];
    int side;
    ops_batch(f, &spec);
    ops_cache(f, cache, layers, (int32_t)h.hkv, (int32_t)h.dim, 0, 0);
    qkv = ops_make2(f, "qkv", dtype, f->batch[0].cap_tokens, (h.hq + 2 * h.hkv) * h.dim, f->n_rows,
                    OPS_FILL_NORMAL);
    k = ops_heads(&qkv, "k", h.hq * h.dim, h.hkv, h.dim);
    v = ops_heads(&qkv, "v", (h.hq + h.hkv) * h.dim, h.hkv, h.dim);
    ops_say(f, " %d rows, %lld heads of %lld, %s into %s, blocks of %d", (int)f->n_rows,
            (long long)h.hkv, (long long)h.dim, pgd_dtype_name(dtype), pgd_dtype_name(cache),
            (int)f->block_tokens);
    for (side = 0; side < 2; side++) {
        a[side] = (pgd_kv_write_args){.size = sizeof(a[side]),
                                      .rows = PGD_ROWS_TOKENS,
                                      .batch = &f->batch[side],
                                      .layer = layers - 1,
                                      .k = k.side[side],
                                      .v = v.side[side]};
    }
    ops_ask(f, PGD_OP_kv_write, &a[OPS_DEV]);
    ops_ready(f);
    a[OPS_HOST].kv = f->kv[OPS_HOST];
    a[OPS_DEV].kv = f->kv[OPS_DEV];
    ops_run(f, PGD_OP_kv_write, &a[OPS_HOST], &a[OPS_DEV]);
    ops_fetch(f);
    ops_compare_cache(f, OPS_EXACT, 0);
}

// What a row sees, and what happens to its scores.
static void draw_rules(ops_fixture *f, pgd_attn_args *a) {
    a->causal = 1;
    switch (ops_turn(f, 7)) {
    case 0: a->causal = 0; break;
    case 1:
        a->causal = 0;
        a->window_left = (int32_t)ops_between(&f->rng, 1, 90);
        a->window_right = (int32_t)ops_between(&f->rng, 1, 90);
        break;
    case 2: a->window_left = (int32_t)ops_between(&f->rng, 1, 9); break;
    case 3: a->window_left = (int32_t)ops_between(&f->rng, 10, 300); break;
    default: break;
    }
    a->softcap = ops_turn(f, 5) == 0 ? 5 : 0;
}

// attn alone over a cache that is loaded already; what no row sees is NaN there.
static void attend(ops_fixture *f, int32_t dtype, int32_t cache) {
    const ops_batch_spec spec = ops_draw_batch(&f->rng, 120, f->rng.small ? 350 : 400);
    const int32_t layers = (int32_t)ops_between(&f->rng, 1, f->rng.small ? 1 : 2);
    const int32_t has_sinks = ops_turn(f, 6) == 1;
    const int32_t has_slopes = ops_turn(f, 6) == 4;
    const int32_t has_lse = ops_turn(f, 4) == 2;
    const heads h = draw_heads(f);
    const int64_t out_shape[3] = {spec.cap_tokens, h.hq, h.dim};
    ops_tensor qkv, q, out, sinks, slopes, lse;
    pgd_attn_args a[2] = {{.size = sizeof(a[0])}, {0}};
    int side;
    draw_rules(f, &a[0]);
    ops_batch(f, &spec);
    ops_cache(f, cache, layers, (int32_t)h.hkv, (int32_t)h.dim, 0, 1);
    qkv = ops_make2(f, "qkv", dtype, spec.cap_tokens, (h.hq + 2 * h.hkv) * h.dim, f->n_rows,
                    OPS_FILL_NORMAL);
    q = ops_heads(&qkv, "q", 0, h.hq, h.dim);
    out = ops_make(f, "out", dtype, 3, out_shape, 0, f->n_rows, OPS_FILL_NAN);
    sinks = ops_make1(f, "sinks", PGD_F32, h.hq, OPS_FILL_NORMAL);
    slopes = ops_make1(f, "slopes", PGD_F32, h.hq, OPS_FILL_NEAR_ONE);
    lse = ops_make2(f, "lse", PGD_F32, spec.cap_tokens, h.hq, f->n_rows, OPS_FILL_NAN);
    ops_say(f,
            " %d rows of %d sequences, %lld on %lld heads of %lld, %s over %s, blocks of %d, "
            "causal %d, windows %d %d, cap %g, sinks %d, slopes %d, lse %d",
            (int)f->n_rows, (int)spec.n_seqs, (long long)h.hq, (long long)h.hkv, (long long)h.dim,
            pgd_dtype_name(dtype), pgd_dtype_name(cache), (int)f->block_tokens, (int)a[0].causal,
            (int)a[0].window_left, (int)a[0].window_right, (double)a[0].softcap, (int)has_sinks,
            (int)has_slopes, (int)has_lse);
    ops_may_write(f, &out);
    ops_may_write(f, &lse);
    a[0].rows = PGD_ROWS_TOKENS;
    a[0].layer = layers - 1;
    a[0].scale = 1 / 8.0F;
    for (side = 1; side >= 0; side--) {
        a[side] = a[0];
        a[side].batch = &f->batch[side];
        a[side].q = q.side[side];
        a[side].out = out.side[side];
        a[side].sinks = has_sinks ? sinks.side[side] : (pgd_tensor){0};
        a[side].slopes = has_slopes ? slopes.side[side] : (pgd_tensor){0};
        a[side].lse = has_lse ? lse.side[side] : (pgd_tensor){0};
    }
    ops_ask(f, PGD_OP_attn, &a[OPS_DEV]);
    ops_ready(f);
    a[OPS_HOST].kv = f->kv[OPS_HOST];
    a[OPS_DEV].kv = f->kv[OPS_DEV];
    ops_run(f, PGD_OP_attn, &a[OPS_HOST], &a[OPS_DEV]);
    ops_fetch(f);
    ops_compare(f, &out, f->n_rows, OPS_ONE, 0);
    if (has_lse) {
        ops_compare(f, &lse, f->n_rows, OPS_ONE, 0);
    }
}

static void run_attn(ops_fixture *f) {
    const int32_t dtype = ops_act(f);
    attend(f, dtype, ops_cached(f));
}

// Every type of q over a cache of int8, also types that the device leaves to the host.
static void run_attn_int8(ops_fixture *f) {
    attend(f, ops_float(&f->rng), PGD_I8);
}

typedef struct qkv_case {
    heads h;
    int32_t dtype;
    int32_t residual;
    int32_t cache;
    int32_t layers;
    int32_t norms; // bit 0: norm_w, bit 1: q_norm and k_norm
    int32_t bias;
    int32_t style;
    int64_t width;
} qkv_case;

static qkv_case draw_qkv(ops_fixture *f) {
    qkv_case c = {.h = draw_heads(f),
                  .dtype = ops_act(f),
                  .cache = ops_float(&f->rng),
                  .layers = (int32_t)ops_between(&f->rng, 1, 2),
                  .norms = (int32_t)ops_between(&f->rng, 0, 3),
                  .bias = (int32_t)ops_between(&f->rng, 0, 1),
                  .style = (int32_t)ops_between(&f->rng, 0, 1),
                  .width = ops_width(&f->rng)};
    c.residual = (c.norms & 1) != 0 && ops_between(&f->rng, 0, 1) == 0 ? PGD_F32 : c.dtype;
    return c;
}

static void run_qkv_rope_write(ops_fixture *f) {
    const ops_batch_spec spec = ops_draw_batch(&f->rng, 100, 200);
    const qkv_case c = draw_qkv(f);
    const int64_t n = (c.h.hq + 2 * c.h.hkv) * c.h.dim;
    const int64_t table_shape[3] = {400, c.h.dim / 2, 2};
    ops_tensor x, norm_w, normed, bias, qkv, q, k, v, table, q_norm, k_norm;
    pgd_qkv_rope_write_args a[2];
    int side;
    ops_batch(f, &spec);
    const int32_t w_dtype = ops_float(&f->rng), act_dtype = ops_rounding(f, w_dtype, c.dtype);
    ops_weight(f, PGD_USE_GEMM, w_dtype, act_dtype, n, c.width, 3, spec.cap_tokens);
    ops_cache(f, c.cache, c.layers, (int32_t)c.h.hkv, (int32_t)c.h.dim, 0, 0);
    x = ops_make2(f, "x", c.residual, spec.cap_tokens, c.width, f->n_rows, OPS_FILL_NORMAL);
    norm_w = ops_make1(f, "norm_w", PGD_F32, c.width, OPS_FILL_NEAR_ONE);
    normed = ops_make2(f, "normed", c.dtype, spec.cap_tokens, c.width, f->n_rows, OPS_FILL_NAN);
    bias = ops_make1(f, "bias", PGD_F32, n, OPS_FILL_NORMAL);
    qkv = ops_make2(f, "qkv", c.dtype, spec.cap_tokens, n, f->n_rows, OPS_FILL_NAN);
    q = ops_heads(&qkv, "q", 0, c.h.hq, c.h.dim);
    k = ops_heads(&qkv, "k", c.h.hq * c.h.dim, c.h.hkv, c.h.dim);
    v = ops_heads(&qkv, "v", (c.h.hq + c.h.hkv) * c.h.dim, c.h.hkv, c.h.dim);
    table = ops_make(f, "table", PGD_F32, 3, table_shape, 0, 400, OPS_FILL_NORMAL);
    q_norm = ops_make1(f, "q_norm", PGD_F32, c.h.dim, OPS_FILL_NEAR_ONE);
    k_norm = ops_make1(f, "k_norm", PGD_F32, c.h.dim, OPS_FILL_NEAR_ONE);
    ops_say(f, " %d rows of %lld %s, %lld on %lld heads of %lld %s, cache %s, norms %d, bias %d",
            (int)f->n_rows, (long long)c.width, pgd_dtype_name(c.residual), (long long)c.h.hq,
            (long long)c.h.hkv, (long long)c.h.dim, pgd_dtype_name(c.dtype),
            pgd_dtype_name(c.cache), (int)c.norms, (int)c.bias);
    ops_may_write(f, &normed);
    ops_may_write(f, &qkv);
    for (side = 0; side < 2; side++) {
        a[side] = (pgd_qkv_rope_write_args){
            .size = sizeof(a[side]),
            .rows = PGD_ROWS_TOKENS,
            .batch = &f->batch[side],
            .layer = c.layers - 1,
            .x = x.side[side],
            .norm_w = (c.norms & 1) != 0 ? norm_w.side[side] : (pgd_tensor){0},
            .normed = (c.norms & 1) != 0 ? normed.side[side] : (pgd_tensor){0},
            .bias = c.bias ? bias.side[side] : (pgd_tensor){0},
            .qkv = qkv.side[side],
            .q = q.side[side],
            .k = k.side[side],
            .v = v.side[side],
            .table = table.side[side],
            .q_norm = (c.norms & 2) != 0 ? q_norm.side[side] : (pgd_tensor){0},
            .k_norm = (c.norms & 2) != 0 ? k_norm.side[side] : (pgd_tensor){0},
            .eps = 1e-5F,
            .style = c.style,
            .rot_dim = (int32_t)c.h.dim,
        };
    }
    ops_ask(f, PGD_OP_qkv_rope_write, &a[OPS_DEV]);
    ops_ready(f);
    for (side = 0; side < 2; side++) {
        a[side].w = f->weight[side], a[side].kv = f->kv[side];
    }
    ops_run(f, PGD_OP_qkv_rope_write, &a[OPS_HOST], &a[OPS_DEV]);
    ops_fetch(f);
    ops_compare(f, &q, f->n_rows, OPS_FUSED, act_dtype);
    ops_compare_cache(f, OPS_FUSED,
                      act_dtype == PGD_BF16 || c.dtype == PGD_BF16 ? PGD_BF16
                      : c.cache == PGD_F32                         ? c.dtype
                                                                   : c.cache);
}

void ops_suite_attn(ops_session *s) {
    ops_cases(s, "kv_write", s->cases, run_kv_write);
    ops_cases(s, "attn", 3 * s->cases, run_attn);
    ops_cases(s, "attn_int8", s->cases, run_attn_int8);
    ops_cases(s, "qkv_rope_write", s->cases, run_qkv_rope_write);
}
