// Ops around a product y = x W^T (product.h): gemm, gemm_add, gate_up, qkv_rope_write, head_sample.
//
// Phases: what x needs (norm, rounding) | product | the rest (act_mul, rope, cache, sample).
// A weight with act_dtype BF16 takes x rounded to bf16, a quantized one x as int8: once a row, into
// the scratch.
#include <string.h>

#include "product.h"

typedef struct gate_rest {
    const pgd_cpu_kernels *k;
    cpu_view tmp, out;
    int64_t n;
    pgd_cpu_finish how;
    bool bf16; // out is
} gate_rest;

typedef struct qkv_rest {
    cpu_norm q_norm, k_norm; // n 0 = none
    cpu_rope rope;
    cpu_kv_rows write;
} qkv_rest;

// An op around a product; steps that are absent are not set.
typedef struct fused {
    cpu_product product;
    cpu_norm norm;       // n 0 = none
    int64_t rest_floats; // of a row of the rest, 0 = there is none
    union {
        gate_rest gate;
        qkv_rest qkv;
        cpu_sample sample;
    } rest;
} fused;

enum { FRONT = 0, PRODUCT = 1, REST = 2 };

// A row of x in the form of bf16_round.
static void round_row(const cpu_product *p, int64_t r, unsigned char *to) {
    const int64_t k = p->w->desc.k;
    const uint16_t *from = (const uint16_t *)(const void *)p->x.p + r * p->x.s0;
    float part[PGD_CPU_DEPTH];
    if (!p->x_bf16) {
        p->k->bf16_round(p->x.p + r * p->x.s0, to, k);
        return;
    }
    for (int64_t i = 0; i < k; i += PGD_CPU_DEPTH) {
        const int64_t n = cpu_min(PGD_CPU_DEPTH, k - i);
        p->k->bf16_widen(from + i, part, n);
        p->k->bf16_round(part, to + i * p->k->dot_bytes, n);
    }
}

static void front_rows(void *ctx, int64_t r0, int64_t r1, uint32_t worker) {
    const fused *f = ctx;
    const cpu_product *p = &f->product;
    const int64_t k = p->w->desc.k;
    if (f->norm.n > 0) {
        cpu_norm_rows((void *)(uintptr_t)&f->norm, r0, r1, worker);
    }
    for (int64_t r = r0; p->blocks != NULL && r < r1; r++) {
        p->k->int8_round(p->x.p + r * p->x.s0, p->blocks + r * cpu_int8_ld(k), k);
    }
    for (int64_t r = r0; p->rounds && r < r1; r++) {
        round_row(p, r, p->rounded + r * p->ld_rounded * p->k->dot_bytes);
    }
}

static pgd_status fused_live(cpu_op *op) {
    fused *f = CPU_STATE(fused, op);
    const bool has_front = f->norm.n > 0 || f->product.rounds || f->product.blocks != NULL;
    cpu_phase_set(&op->phases[FRONT], has_front ? op->rows : 0, f->product.w->desc.k, 0);
    cpu_product_live(&f->product, op->rows, &op->phases[PRODUCT]);
    cpu_phase_set(&op->phases[REST], f->rest_floats > 0 ? op->rows : 0, f->rest_floats, 0);
    return PGD_OK;
}

static pgd_status bias_of(const pgd_exec *x, const pgd_tensor *t, const float **out) {
    cpu_view v = {0};
    *out = NULL;
    if (t->rank != 0) {
        PGD_TRY(cpu_view_of(x, "bias", t, false, &v));
        *out = v.p;
    }
    return PGD_OK;
}

// Room for x rounded to bf16 or int8, when the weight asks for that.
static pgd_status round_init(cpu_op *op, const pgd_weight *w, const pgd_tensor *x, cpu_product *p) {
    const uint64_t bytes = cpu_round_bytes(p->k, &w->desc, x);
    void *room = NULL;
    p->x_bf16 = x->dtype == PGD_BF16;
    if (cpu_is_dot_form(p->k, &w->desc, x)) {
        p->rounded = (unsigned char *)p->x.p;
        p->ld_rounded = p->x.s0;
    }
    if (bytes == 0) {
        return PGD_OK;
    }
    if (op->x->scratch.bytes < bytes) {
        return CPU_FAIL(op->x->dev, PGD_INVALID, "%llu bytes of scratch, support asked for %llu",
                        (unsigned long long)op->x->scratch.bytes, (unsigned long long)bytes);
    }
    PGD_TRY(cpu_range(op->x->dev, "the scratch", op->x->scratch.buffer, op->x->scratch.offset,
                      bytes, true, &room));
    if (!cpu_is_quantized(&w->desc)) {
        p->rounded = room;
        p->ld_rounded = cpu_round_ld(w->desc.k);
        p->rounds = true;
        return PGD_OK;
    }
    if ((uintptr_t)room % sizeof(float) != 0) {
        return CPU_FAIL(op->x->dev, PGD_INVALID, "scratch that is not aligned");
    }
    p->blocks = room;
    return PGD_OK;
}

// Sets up the norm (if norm_w is there), x and the product.
static pgd_status fused_init(cpu_op *op, const pgd_weight *w, const pgd_tensor *in,
                             const pgd_tensor *norm_w, const pgd_tensor *normed, float eps) {
    fused *f = CPU_STATE(fused, op);
    cpu_view weights = {0};
    cpu_product_init(&f->product, op->x, w);
    PGD_TRY(cpu_op_view(op, "x", in, false, &f->product.x));
    op->live = fused_live;
    PGD_TRY(round_init(op, w, in, &f->product));
    op->phases[FRONT] = (cpu_phase){.fn = front_rows, .ctx = f};
    op->phases[PRODUCT] = (cpu_phase){
        .fn = cpu_product_items, .ctx = &f->product, .nodes = &cpu_self(op->x->dev)->nodes};
    if (norm_w == NULL || norm_w->rank == 0) {
        return PGD_OK;
    }
    PGD_TRY(cpu_view_of(op->x, "norm_w", norm_w, false, &weights));
    f->norm = (cpu_norm){.k = f->product.k,
                         .x = f->product.x,
                         .w = weights.p,
                         .heads = 1,
                         .n = w->desc.k,
                         .eps = eps};
    PGD_TRY(cpu_op_view(op, "normed", normed, true, &f->norm.out));
    f->product.x = f->norm.out;
    return PGD_OK;
}

static void set_rest(cpu_op *op, cpu_work_fn fn, void *ctx, int64_t row_floats) {
    CPU_STATE(fused, op)->rest_floats = cpu_max(1, row_floats);
    op->phases[REST] = (cpu_phase){.fn = fn, .ctx = ctx};
}

// ---- gemm, gemm_add ----------------------------------------------------------------------------

pgd_status cpu_make_gemm(cpu_op *op, const pgd_gemm_args *a) {
    cpu_product *p = &CPU_STATE(fused, op)->product;
    PGD_TRY(cpu_op_open(op, a->batch, a->rows, -1, a->x.shape[0]));
    PGD_TRY(fused_init(op, a->w, &a->x, NULL, NULL, 0.0f));
    PGD_TRY(cpu_op_view(op, "gemm y", &a->y, true, &p->y));
    PGD_TRY(bias_of(op->x, &a->bias, &p->bias));
    if (a->aux_kind != PGD_AUX_NONE) {
        PGD_TRY(cpu_op_view(op, "gemm aux", &a->aux, false, &p->aux));
    }
    p->how.act = a->act;
    p->how.aux_kind = a->aux_kind;
    p->how.alpha = a->alpha == 0.0f ? 1.0f : a->alpha;
    p->how.act_alpha = a->act_alpha == 0.0f ? 1.0f : a->act_alpha;
    p->how.act_limit = a->act == PGD_ACT_NONE ? 0.0f : a->act_limit;
    return PGD_OK;
}

pgd_status cpu_make_gemm_add(cpu_op *op, const pgd_gemm_add_args *a) {
    return cpu_make_gemm(op, a);
}

// ---- gate_up -----------------------------------------------------------------------------------

static void gate_rest_rows(void *ctx, int64_t r0, int64_t r1, uint32_t worker) {
    const gate_rest *g = ctx;
    (void)worker;
    for (int64_t r = r0; r < r1; r++) {
        const pgd_cpu_finish *how = &g->how;
        float *gate = g->tmp.p + r * g->tmp.s0;
        float *out = g->out.p + r * g->out.s0;
        if (!g->bf16) {
            g->k->f32_act_mul(gate, gate + g->n, out, g->n, how->act, how->act_alpha,
                              how->act_limit);
            continue;
        }
        g->k->f32_act_mul(gate, gate + g->n, gate, g->n, how->act, how->act_alpha, how->act_limit);
        g->k->bf16_narrow(gate, (uint16_t *)(void *)g->out.p + r * g->out.s0, g->n);
    }
}

pgd_status cpu_make_gate_up(cpu_op *op, const pgd_gate_up_args *a) {
    fused *f = CPU_STATE(fused, op);
    gate_rest *rest = &f->rest.gate;
    cpu_view out;
    PGD_TRY(cpu_op_open(op, a->batch, a->rows, -1, a->x.shape[0]));
    PGD_TRY(fused_init(op, a->w, &a->x, &a->norm_w, &a->normed, a->eps));
    PGD_TRY(bias_of(op->x, &a->bias, &f->product.bias));
    PGD_TRY(cpu_op_view(op, "gate_up out", &a->out, true, &out));
    *rest = (gate_rest){.k = f->product.k, .n = a->w->desc.n / 2, .how = f->product.how};
    rest->how.act = a->act;
    rest->how.act_alpha = a->act_alpha == 0.0f ? 1.0f : a->act_alpha;
    rest->how.act_limit = a->act_limit;
    if (a->w->layout == CPU_LAYOUT_GATED) {
        f->product.gated = true;
        f->product.y_bf16 = a->out.dtype == PGD_BF16;
        f->product.how = rest->how;
        f->product.y = out;
        return PGD_OK;
    }
    PGD_TRY(cpu_op_view(op, "gate_up tmp", &a->tmp, true, &f->product.y));
    rest->tmp = f->product.y;
    rest->out = out;
    rest->bf16 = a->out.dtype == PGD_BF16;
    set_rest(op, gate_rest_rows, rest, 4 * rest->n);
    return PGD_OK;
}

// ---- qkv_rope_write ----------------------------------------------------------------------------

static void qkv_rest_rows(void *ctx, int64_t r0, int64_t r1, uint32_t worker) {
    qkv_rest *q = ctx;
    if (q->q_norm.n > 0) {
        cpu_norm_rows(&q->q_norm, r0, r1, worker);
    }
    if (q->k_norm.n > 0) {
        cpu_norm_rows(&q->k_norm, r0, r1, worker);
    }
    cpu_rope_rows(&q->rope, r0, r1, worker);
    cpu_kv_write_rows(&q->write, r0, r1, worker);
}

static pgd_status head_norm(cpu_op *op, const pgd_tensor *t, const pgd_tensor *w, float eps,
                            cpu_norm *out) {
    cpu_view weights = {0};
    if (w->rank == 0) {
        return PGD_OK;
    }
    *out = (cpu_norm){.k = cpu_kernels(op->x),
                      .heads = t->rank == 3 ? t->shape[1] : 1,
                      .n = t->shape[t->rank - 1],
                      .eps = eps};
    PGD_TRY(cpu_view_of(op->x, "the weight of a head's norm", w, false, &weights));
    PGD_TRY(cpu_op_view(op, "q or k", t, true, &out->x));
    out->out = out->x;
    out->w = weights.p;
    return PGD_OK;
}

static pgd_status qkv_rest_make(cpu_op *op, const pgd_qkv_rope_write_args *a, qkv_rest *out) {
    const pgd_kv_write_args write = {.size = sizeof(write),
                                     .kv = a->kv,
                                     .layer = a->layer,
                                     .group = a->group,
                                     .k = a->k,
                                     .v = a->v};
    pgd_rope_args rope = {.size = sizeof(rope),
                          .q = a->q,
                          .k = a->k,
                          .table = a->table,
                          .style = a->style,
                          .rot_dim = a->rot_dim};
    memcpy(rope.sections, a->sections, sizeof(rope.sections));
    PGD_TRY(head_norm(op, &a->q, &a->q_norm, a->eps, &out->q_norm));
    PGD_TRY(head_norm(op, &a->k, &a->k_norm, a->eps, &out->k_norm));
    PGD_TRY(cpu_rope_make(op, &rope, &out->rope));
    return cpu_kv_rows_make(op, &write, &out->write);
}

static pgd_status qkv_live(cpu_op *op) {
    const qkv_rest *q = &CPU_STATE(fused, op)->rest.qkv;
    PGD_TRY(cpu_rope_live(op, &q->rope));
    PGD_TRY(cpu_kv_rows_live(op, &q->write));
    return fused_live(op);
}

pgd_status cpu_make_qkv_rope_write(cpu_op *op, const pgd_qkv_rope_write_args *a) {
    fused *f = CPU_STATE(fused, op);
    if (a->batch == NULL) {
        return CPU_FAIL(op->x->dev, PGD_INVALID, "qkv_rope_write without a batch");
    }
    PGD_TRY(cpu_op_open(op, a->batch, a->rows, a->group, a->x.shape[0]));
    PGD_TRY(fused_init(op, a->w, &a->x, &a->norm_w, &a->normed, a->eps));
    PGD_TRY(bias_of(op->x, &a->bias, &f->product.bias));
    PGD_TRY(cpu_op_view(op, "qkv", &a->qkv, true, &f->product.y));
    PGD_TRY(qkv_rest_make(op, a, &f->rest.qkv));
    set_rest(op, qkv_rest_rows, &f->rest.qkv, a->w->desc.n);
    op->live = qkv_live;
    return PGD_OK;
}

// ---- head_sample -------------------------------------------------------------------------------

static pgd_status head_live(cpu_op *op) {
    fused *f = CPU_STATE(fused, op);
    cpu_sample *c = &f->rest.sample;
    PGD_TRY(cpu_sample_live(op, c));
    f->rest_floats = c->n_plain == op->rows ? cpu_max(1, c->n_panels) : 4 * c->n;
    return fused_live(op);
}

// Only panels that lie one behind the other are ids in order.
static bool takes_panels(const pgd_head_sample_args *a) {
    return !a->keep_logits && a->w->layout == CPU_LAYOUT_PANELS && a->w->n_segments == 1 &&
           a->w->desc.n > 1;
}

pgd_status cpu_make_head_sample(cpu_op *op, const pgd_head_sample_args *a) {
    fused *f = CPU_STATE(fused, op);
    const pgd_sample_args sample = common_sample_of(a);
    if (a->batch == NULL) {
        return CPU_FAIL(op->x->dev, PGD_INVALID, "head_sample without a batch");
    }
    PGD_TRY(cpu_op_open(op, a->batch, a->rows, -1, a->logits.shape[0]));
    PGD_TRY(fused_init(op, a->w, &a->x, &a->norm_w, &a->normed, a->eps));
    PGD_TRY(cpu_sample_init(op, &sample, &f->rest.sample));
    f->product.y = f->rest.sample.logits;
    if (takes_panels(a)) {
        f->rest.sample.n_panels = a->w->n_panels;
        f->product.sample = &f->rest.sample;
    }
    set_rest(op, cpu_sample_rows, &f->rest.sample, 4 * a->w->desc.n);
    op->live = head_live;
    return PGD_OK;
}
