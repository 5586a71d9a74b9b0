// Fused ops made of core ops of the same table on the same queue, so that models always call the
// fused name. Every intermediate is a tensor of the args; nothing is allocated.
//
//   add_rmsnorm     add, rmsnorm
//   qkv_rope_write  [rmsnorm] gemm [rmsnorm q] [rmsnorm k] [rope] kv_write
//   gate_up         [rmsnorm] gemm act_mul
//   gemm_add        gemm
//   head_sample     [rmsnorm] gemm sample [gemm, for logits to keep]
//   attn_plan       nothing: attn takes an absent plan
#include "dev/inner.h"

#include "base/fail.h"

// normed = rmsnorm(x) where a norm is given; *out is what the product reads.
static pgd_status norm_first(const pgd_exec *x, int32_t rows, const pgd_batch *batch,
                             const pgd_tensor *from, const pgd_tensor *w, const pgd_tensor *normed,
                             float eps, pgd_tensor *out) {
    *out = *from;
    if (w->rank == 0) {
        return PGD_OK;
    }
    pgd_rmsnorm_args a = {
        .size = sizeof(a),
        .rows = rows,
        .batch = batch,
        .x = *from,
        .w = *w,
        .out = *normed,
        .eps = eps,
    };
    *out = *normed;
    return x->dev->ops->rmsnorm(x, &a);
}

static pgd_status composed_add_rmsnorm(const pgd_exec *x, const pgd_add_rmsnorm_args *a) {
    pgd_tensor ignored = {0};
    pgd_add_args add = {
        .size = sizeof(add),
        .rows = a->rows,
        .batch = a->batch,
        .a = a->residual,
        .b = a->x,
        .out = a->residual,
    };
    PGD_TRY(x->dev->ops->add(x, &add));
    return norm_first(x, a->rows, a->batch, &a->residual, &a->w, &a->out, a->eps, &ignored);
}

static pgd_status composed_gate_up(const pgd_exec *x, const pgd_gate_up_args *a) {
    pgd_gemm_args gemm = {
        .size = sizeof(gemm),
        .rows = a->rows,
        .batch = a->batch,
        .w = a->w,
        .y = a->tmp,
        .bias = a->bias,
        .x_scale = a->x_scale,
    };
    const pgd_act_mul_args act = pgd_ref_act_mul_of(a);
    PGD_TRY(norm_first(x, a->rows, a->batch, &a->x, &a->norm_w, &a->normed, a->eps, &gemm.x));
    PGD_TRY(x->dev->ops->gemm(x, &gemm));
    return x->dev->ops->act_mul(x, &act);
}

static pgd_status composed_gemm_add(const pgd_exec *x, const pgd_gemm_add_args *a) {
    return x->dev->ops->gemm(x, a);
}

static pgd_status composed_head_sample(const pgd_exec *x, const pgd_head_sample_args *a) {
    pgd_gemm_args gemm = {
        .size = sizeof(gemm),
        .rows = a->rows,
        .batch = a->batch,
        .w = a->w,
        .y = a->logits,
    };
    const pgd_sample_args sample = pgd_ref_sample_of(a);
    PGD_TRY(norm_first(x, a->rows, a->batch, &a->x, &a->norm_w, &a->normed, a->eps, &gemm.x));
    PGD_TRY(x->dev->ops->gemm(x, &gemm));
    PGD_TRY(x->dev->ops->sample(x, &sample));
    // sample may change the logits; those to keep are those before it
    return a->keep_logits ? x->dev->ops->gemm(x, &gemm) : PGD_OK;
}

static pgd_status rope_and_write(const pgd_exec *x, const pgd_qkv_rope_write_args *a) {
    if (a->table.rank != 0) {
        pgd_rope_args rope = {
            .size = sizeof(rope),
            .rows = a->rows,
            .batch = a->batch,
            .q = a->q,
            .k = a->k,
            .table = a->table,
            .style = a->style,
            .rot_dim = a->rot_dim,
            .sections = {a->sections[0], a->sections[1], a->sections[2], a->sections[3]},
        };
        PGD_TRY(x->dev->ops->rope(x, &rope));
    }
    pgd_kv_write_args write = {
        .size = sizeof(write),
        .rows = a->rows,
        .batch = a->batch,
        .kv = a->kv,
        .layer = a->layer,
        .group = a->group,
        .k = a->k,
        .v = a->v,
    };
    return x->dev->ops->kv_write(x, &write);
}

static pgd_status composed_qkv_rope_write(const pgd_exec *x, const pgd_qkv_rope_write_args *a) {
    pgd_tensor ignored = {0};
    pgd_gemm_args gemm = {
        .size = sizeof(gemm),
        .rows = a->rows,
        .batch = a->batch,
        .w = a->w,
        .y = a->qkv,
        .bias = a->bias,
    };
    PGD_TRY(norm_first(x, a->rows, a->batch, &a->x, &a->norm_w, &a->normed, a->eps, &gemm.x));
    PGD_TRY(x->dev->ops->gemm(x, &gemm));
    PGD_TRY(norm_first(x, a->rows, a->batch, &a->q, &a->q_norm, &a->q, a->eps, &ignored));
    PGD_TRY(norm_first(x, a->rows, a->batch, &a->k, &a->k_norm, &a->k, a->eps, &ignored));
    return rope_and_write(x, a);
}

static pgd_status composed_attn_plan(const pgd_exec *x, const pgd_attn_plan_args *a) {
    (void)x;
    (void)a;
    return PGD_OK;
}

const pgd_ops *pgd_dev_composed(void) {
    static const pgd_ops ops = {
        .size = sizeof(pgd_ops),
        .attn_plan = composed_attn_plan,
        .add_rmsnorm = composed_add_rmsnorm,
        .qkv_rope_write = composed_qkv_rope_write,
        .gate_up = composed_gate_up,
        .gemm_add = composed_gemm_add,
        .head_sample = composed_head_sample,
    };
    return &ops;
}
