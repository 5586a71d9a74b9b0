// Ops that work row by row: rmsnorm, add, act_mul, add_rmsnorm, rope, gather_rows.
#include "ops.h"

static void run_rmsnorm(ops_fixture *f) {
    const ops_rows_case c = ops_draw_rows(f, 131);
    const int32_t dtype = ops_act(f), in_place = (int32_t)ops_between(&f->rng, 0, 1);
    const int64_t heads = ops_between(&f->rng, 0, 2) == 0 ? ops_between(&f->rng, 1, 5) : 0;
    const int64_t width = heads > 0 ? ops_head_dim(&f->rng) : ops_width(&f->rng);
    ops_tensor x =
        ops_make2(f, "x", dtype, c.cap, (heads > 0 ? heads : 1) * width, c.live, OPS_FILL_NORMAL);
    ops_tensor w = ops_make1(f, "w", PGD_F32, width, OPS_FILL_NEAR_ONE), out = x;
    pgd_rmsnorm_args a[2];
    int side;
    if (!in_place) {
        out = ops_make2(f, "out", ops_between(&f->rng, 0, 2) == 0 ? PGD_F32 : dtype, c.cap,
                        (heads > 0 ? heads : 1) * width, c.live, OPS_FILL_NAN);
    }
    if (heads > 0) {
        x = ops_heads(&x, "x", 0, heads, width);
        out = ops_heads(&out, "out", 0, heads, width);
    }
    ops_say(f, " of %lld x %lld %s%s", (long long)heads, (long long)width, pgd_dtype_name(dtype),
            in_place ? " in place" : "");
    ops_may_write(f, &out);
    for (side = 0; side < 2; side++) {
        a[side] = (pgd_rmsnorm_args){.size = sizeof(a[side]),
                                     .rows = c.mode,
                                     .batch = &f->batch[side],
                                     .x = x.side[side],
                                     .w = w.side[side],
                                     .out = out.side[side],
                                     .eps = 1e-5F};
    }
    ops_ask(f, PGD_OP_rmsnorm, &a[OPS_DEV]);
    ops_ready(f);
    ops_run(f, PGD_OP_rmsnorm, &a[OPS_HOST], &a[OPS_DEV]);
    ops_fetch(f);
    ops_compare(f, &out, c.live, OPS_ONE, 0);
}

static void run_add(ops_fixture *f) {
    const ops_rows_case c = ops_draw_rows(f, 131);
    const int32_t dtype = ops_act(f), in_place = (int32_t)ops_between(&f->rng, 0, 2);
    const int64_t width = ops_width(&f->rng);
    ops_tensor u = ops_make2(f, "a", dtype, c.cap, width, c.live, OPS_FILL_NORMAL);
    ops_tensor v = ops_make2(f, "b", ops_between(&f->rng, 0, 3) == 0 ? PGD_F32 : dtype, c.cap,
                             width, c.live, OPS_FILL_NORMAL);
    ops_tensor out = in_place == 1 ? u : v;
    pgd_add_args a[2];
    int side;
    if (in_place == 0) {
        out = ops_make2(f, "out", dtype, c.cap, width, c.live, OPS_FILL_NAN);
    }
    ops_say(f, " of %lld %s, in place %d", (long long)width, pgd_dtype_name(dtype), (int)in_place);
    ops_may_write(f, &out);
    for (side = 0; side < 2; side++) {
        a[side] = (pgd_add_args){.size = sizeof(a[side]),
                                 .rows = c.mode,
                                 .batch = &f->batch[side],
                                 .a = u.side[side],
                                 .b = v.side[side],
                                 .out = out.side[side]};
    }
    ops_ask(f, PGD_OP_add, &a[OPS_DEV]);
    ops_ready(f);
    ops_run(f, PGD_OP_add, &a[OPS_HOST], &a[OPS_DEV]);
    ops_fetch(f);
    ops_compare(f, &out, c.live, OPS_ONE, 0);
}

static void run_act_mul(ops_fixture *f) {
    const ops_rows_case c = ops_draw_rows(f, 131);
    const int32_t dtype = ops_act(f);
    const int32_t act = (int32_t)ops_between(&f->rng, PGD_ACT_NONE, PGD_ACT_RELU);
    const int64_t width = ops_width(&f->rng);
    const float limit = ops_between(&f->rng, 0, 2) == 0 ? 0.75F : 0;
    const float alpha = ops_between(&f->rng, 0, 2) == 0 ? 1.702F : 0;
    ops_tensor x = ops_make2(f, "x", dtype, c.cap, 2 * width, c.live, OPS_FILL_NORMAL);
    ops_tensor out = ops_make2(f, "out", dtype, c.cap, width, c.live, OPS_FILL_NAN);
    pgd_act_mul_args a[2];
    int side;
    ops_say(f, " of %lld %s, act %d, alpha %g, limit %g", (long long)width, pgd_dtype_name(dtype),
            (int)act, (double)alpha, (double)limit);
    ops_may_write(f, &out);
    for (side = 0; side < 2; side++) {
        a[side] = (pgd_act_mul_args){.size = sizeof(a[side]),
                                     .rows = c.mode,
                                     .batch = &f->batch[side],
                                     .x = x.side[side],
                                     .out = out.side[side],
                                     .act = act,
                                     .act_alpha = alpha,
                                     .act_limit = limit};
    }
    ops_ask(f, PGD_OP_act_mul, &a[OPS_DEV]);
    ops_ready(f);
    ops_run(f, PGD_OP_act_mul, &a[OPS_HOST], &a[OPS_DEV]);
    ops_fetch(f);
    ops_compare(f, &out, c.live, OPS_ONE, 0);
}

static void run_add_rmsnorm(ops_fixture *f) {
    const ops_rows_case c = ops_draw_rows(f, 131);
    const int32_t dtype = ops_act(f);
    const int32_t residual = ops_between(&f->rng, 0, 1) == 0 ? PGD_F32 : dtype;
    const int64_t width = ops_width(&f->rng);
    ops_tensor x = ops_make2(f, "x", dtype, c.cap, width, c.live, OPS_FILL_NORMAL);
    ops_tensor r = ops_make2(f, "residual", residual, c.cap, width, c.live, OPS_FILL_NORMAL);
    ops_tensor w = ops_make1(f, "w", PGD_F32, width, OPS_FILL_NEAR_ONE);
    ops_tensor out = ops_make2(f, "out", dtype, c.cap, width, c.live, OPS_FILL_NAN);
    pgd_add_rmsnorm_args a[2];
    int side;
    ops_say(f, " of %lld %s + %s", (long long)width, pgd_dtype_name(residual),
            pgd_dtype_name(dtype));
    ops_may_write(f, &r);
    ops_may_write(f, &out);
    for (side = 0; side < 2; side++) {
        a[side] = (pgd_add_rmsnorm_args){.size = sizeof(a[side]),
                                         .rows = c.mode,
                                         .batch = &f->batch[side],
                                         .x = x.side[side],
                                         .residual = r.side[side],
                                         .w = w.side[side],
                                         .out = out.side[side],
                                         .eps = 1e-6F};
    }
    ops_ask(f, PGD_OP_add_rmsnorm, &a[OPS_DEV]);
    ops_ready(f);
    ops_run(f, PGD_OP_add_rmsnorm, &a[OPS_HOST], &a[OPS_DEV]);
    ops_fetch(f);
    ops_compare(f, &r, c.live, OPS_ONE, 0);
    ops_compare(f, &out, c.live, OPS_FUSED, residual == PGD_F32 ? 0 : residual);
}

// q and k are views of one joined matrix; now and then there are three position axes.
static void run_rope(ops_fixture *f) {
    ops_batch_spec spec = ops_draw_batch(&f->rng, 150, 300);
    const int32_t dtype = ops_act(f), style = (int32_t)ops_between(&f->rng, 0, 1);
    const int64_t share = INT64_C(1) << ops_between(&f->rng, 0, 3);
    const int64_t hkv = ops_between(&f->rng, 1, 3), dim = ops_head_dim(&f->rng);
    const int64_t hq = hkv * share, rot = ops_between(&f->rng, 0, 2) == 0 ? dim / 2 : dim;
    const int64_t table_shape[3] = {400, rot / 2, 2};
    const int32_t has_k = ops_between(&f->rng, 0, 4) > 0;
    const int32_t sections[4] = {(int32_t)rot / 8, (int32_t)rot / 8, (int32_t)(rot / 2 - rot / 4)};
    ops_tensor qkv, q, k, table;
    pgd_rope_args a[2];
    int side, i;
    spec.n_axes = ops_between(&f->rng, 0, 3) == 0 ? 3 : 1;
    ops_batch(f, &spec);
    qkv = ops_make2(f, "qkv", dtype, f->batch[0].cap_tokens, (hq + 2 * hkv) * dim, f->n_rows,
                    OPS_FILL_NORMAL);
    q = ops_heads(&qkv, "q", 0, hq, dim);
    k = ops_heads(&qkv, "k", hq * dim, hkv, dim);
    table = ops_make(f, "table", PGD_F32, 3, table_shape, 0, 400, OPS_FILL_NORMAL);
    ops_say(f, " %d rows, %lld + %lld heads of %lld, %lld turned, style %d, %s, %d axes",
            (int)f->n_rows, (long long)hq, (long long)hkv, (long long)dim, (long long)rot,
            (int)style, pgd_dtype_name(dtype), (int)spec.n_axes);
    ops_may_write(f, &q);
    if (has_k) {
        ops_may_write(f, &k);
    }
    for (side = 0; side < 2; side++) {
        a[side] = (pgd_rope_args){.size = sizeof(a[side]),
                                  .rows = PGD_ROWS_TOKENS,
                                  .batch = &f->batch[side],
                                  .q = q.side[side],
                                  .table = table.side[side],
                                  .style = style,
                                  .rot_dim = (int32_t)rot};
        if (has_k) {
            a[side].k = k.side[side];
        }
        for (i = 0; i < 4 && spec.n_axes > 1; i++) {
            a[side].sections[i] = sections[i];
        }
    }
    ops_ask(f, PGD_OP_rope, &a[OPS_DEV]);
    ops_ready(f);
    ops_run(f, PGD_OP_rope, &a[OPS_HOST], &a[OPS_DEV]);
    ops_fetch(f);
    ops_compare(f, &q, f->n_rows, OPS_ONE, 0);
    ops_compare(f, &k, f->n_rows, has_k ? OPS_ONE : OPS_EXACT, 0);
}

static void run_gather_rows(ops_fixture *f) {
    const ops_batch_spec spec = ops_draw_batch(&f->rng, 150, 30);
    const int32_t dtype = ops_act(f);
    const int64_t width = ops_width(&f->rng);
    ops_tensor x, out;
    pgd_gather_rows_args a[2];
    int side;
    ops_batch(f, &spec);
    x = ops_make2(f, "x", dtype, f->batch[0].cap_tokens, width, f->n_rows, OPS_FILL_NORMAL);
    out = ops_make2(f, "out", dtype, f->batch[0].cap_out, width, f->n_out, OPS_FILL_NAN);
    ops_say(f, " %d of %d rows of %lld %s", (int)f->n_out, (int)f->n_rows, (long long)width,
            pgd_dtype_name(dtype));
    ops_may_write(f, &out);
    for (side = 0; side < 2; side++) {
        a[side] = (pgd_gather_rows_args){.size = sizeof(a[side]),
                                         .rows = PGD_ROWS_OUTPUTS,
                                         .batch = &f->batch[side],
                                         .x = x.side[side],
                                         .out = out.side[side]};
    }
    ops_ask(f, PGD_OP_gather_rows, &a[OPS_DEV]);
    ops_ready(f);
    ops_run(f, PGD_OP_gather_rows, &a[OPS_HOST], &a[OPS_DEV]);
    ops_fetch(f);
    ops_compare(f, &out, f->n_out, OPS_EXACT, 0);
}

void ops_suite_rows(ops_session *s) {
    ops_cases(s, "rmsnorm", s->cases, run_rmsnorm);
    ops_cases(s, "add", s->cases, run_add);
    ops_cases(s, "act_mul", s->cases, run_act_mul);
    ops_cases(s, "add_rmsnorm", s->cases, run_add_rmsnorm);
    ops_cases(s, "rope", s->cases, run_rope);
    ops_cases(s, "gather_rows", s->cases, run_gather_rows);
}
