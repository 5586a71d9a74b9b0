// Ops whose rows are independent: embed, gather_rows, rmsnorm, rope, kv_write, act_mul, add,
// add_rmsnorm, argmax.
#include <string.h>

#include "cpu.h"

// ---- embed -------------------------------------------------------------------------------------

typedef struct embed {
    const pgd_cpu_kernels *k;
    const pgd_weight *w;
    const cpu_batch *b;
    cpu_view out;
    float scale;
    int32_t row_start;
} embed;

static void embed_rows(void *ctx, int64_t r0, int64_t r1, uint32_t worker) {
    const embed *e = ctx;
    const int64_t h = e->w->desc.k;
    (void)worker;
    for (int64_t t = r0; t < r1; t++) {
        int64_t id = e->b->token_ids[t];
        float *out = e->out.p + t * e->out.s0;
        if (id < 0) {
            id = e->b->last[-1 - id];
        }
        id -= e->row_start;
        if (id < 0 || id >= e->w->desc.n) {
            memset(out, 0, (size_t)h * sizeof(float));
            continue;
        }
        cpu_weight_row(e->k, e->w, id, 0, h, out);
        if (e->scale != 0.0f && e->scale != 1.0f) {
            e->k->f32_scale(out, e->scale, out, h);
        }
    }
}

static pgd_status embed_live(cpu_op *op) {
    const embed *e = CPU_STATE(embed, op);
    const cpu_batch *b = &op->batch;
    if (op->rows > 0 && (b->token_ids == NULL || op->rows > b->caps.cap_tokens)) {
        return CPU_FAIL(op->x->dev, PGD_INVALID, "embed: %lld rows, the batch holds %d token ids",
                        (long long)op->rows, (int)b->caps.cap_tokens);
    }
    for (int64_t t = 0; t < op->rows; t++) {
        int64_t slot = -1 - (int64_t)b->token_ids[t];
        if (slot >= 0 && (b->last == NULL || slot >= b->caps.cap_slots)) {
            return CPU_FAIL(op->x->dev, PGD_INVALID, "embed: token %lld names slot %lld of %d",
                            (long long)t, (long long)slot, (int)b->caps.cap_slots);
        }
    }
    cpu_phase_set(&op->phases[0], op->rows, e->w->desc.k, 0);
    return PGD_OK;
}

pgd_status cpu_make_embed(cpu_op *op, const pgd_embed_args *a) {
    embed *e = CPU_STATE(embed, op);
    *e = (embed){.k = cpu_kernels(op->x),
                 .w = a->w,
                 .b = &op->batch,
                 .scale = a->scale,
                 .row_start = a->row_start};
    PGD_TRY(cpu_op_open(op, a->batch, a->rows, -1, a->out.shape[0]));
    PGD_TRY(cpu_op_view(op, "embed out", &a->out, true, &e->out));
    op->live = embed_live;
    op->phases[0] = (cpu_phase){.fn = embed_rows, .ctx = e};
    return PGD_OK;
}

// ---- gather_rows -------------------------------------------------------------------------------

typedef struct gather {
    const int32_t *rows;
    cpu_view from, to;
    int64_t from_pitch; // bytes
    int64_t to_pitch;
    int64_t row_bytes;
    int64_t from_rows;
} gather;

static void gather_rows(void *ctx, int64_t r0, int64_t r1, uint32_t worker) {
    const gather *g = ctx;
    (void)worker;
    for (int64_t r = r0; r < r1; r++) {
        memcpy((unsigned char *)g->to.p + r * g->to_pitch,
               (const unsigned char *)g->from.p + g->rows[r] * g->from_pitch, (size_t)g->row_bytes);
    }
}

static pgd_status gather_live(cpu_op *op) {
    const gather *g = CPU_STATE(gather, op);
    if (op->rows > 0 && (g->rows == NULL || op->rows > op->batch.caps.cap_out)) {
        return CPU_FAIL(op->x->dev, PGD_INVALID, "gather_rows: %lld rows, the batch holds %d",
                        (long long)op->rows, (int)op->batch.caps.cap_out);
    }
    for (int64_t r = 0; r < op->rows; r++) {
        if (g->rows[r] < 0 || g->rows[r] >= g->from_rows) {
            return CPU_FAIL(op->x->dev, PGD_INVALID,
                            "gather_rows: output %lld reads row %d of %lld", (long long)r,
                            (int)g->rows[r], (long long)g->from_rows);
        }
    }
    cpu_phase_set(&op->phases[0], op->rows, g->row_bytes / 4, 0);
    return PGD_OK;
}

pgd_status cpu_make_gather_rows(cpu_op *op, const pgd_gather_rows_args *a) {
    const int64_t element = pgd_dtype_bytes(a->x.dtype);
    gather *g = CPU_STATE(gather, op);
    PGD_TRY(cpu_op_open(op, a->batch, a->rows, -1, a->out.shape[0]));
    PGD_TRY(cpu_view_of(op->x, "gather_rows x", &a->x, false, &g->from));
    PGD_TRY(cpu_op_view(op, "gather_rows out", &a->out, true, &g->to));
    g->rows = op->batch.out_rows;
    g->from_pitch = g->from.s0 * element;
    g->to_pitch = g->to.s0 * element;
    g->row_bytes = a->x.shape[1] * element;
    g->from_rows = a->x.shape[0];
    op->live = gather_live;
    op->phases[0] = (cpu_phase){.fn = gather_rows, .ctx = g};
    return PGD_OK;
}

// ---- rmsnorm, add, add_rmsnorm, act_mul --------------------------------------------------------

void cpu_norm_rows(void *ctx, int64_t r0, int64_t r1, uint32_t worker) {
    const cpu_norm *n = ctx;
    (void)worker;
    for (int64_t r = r0; r < r1; r++) {
        for (int64_t h = 0; h < n->heads; h++) {
            n->k->f32_rmsnorm(n->x.p + r * n->x.s0 + h * n->x.s1, n->w,
                              n->out.p + r * n->out.s0 + h * n->out.s1, n->n, n->eps);
        }
    }
}

static pgd_status norm_live(cpu_op *op) {
    const cpu_norm *n = CPU_STATE(cpu_norm, op);
    cpu_phase_set(&op->phases[0], op->rows, n->heads * n->n, 0);
    return PGD_OK;
}

pgd_status cpu_make_rmsnorm(cpu_op *op, const pgd_rmsnorm_args *a) {
    cpu_norm *n = CPU_STATE(cpu_norm, op);
    cpu_view w;
    *n = (cpu_norm){.k = cpu_kernels(op->x),
                    .heads = a->x.rank == 3 ? a->x.shape[1] : 1,
                    .n = a->x.shape[a->x.rank - 1],
                    .eps = a->eps};
    PGD_TRY(cpu_op_open(op, a->batch, a->rows, -1, a->x.shape[0]));
    PGD_TRY(cpu_op_view(op, "rmsnorm x", &a->x, false, &n->x));
    PGD_TRY(cpu_op_view(op, "rmsnorm out", &a->out, true, &n->out));
    PGD_TRY(cpu_view_of(op->x, "rmsnorm w", &a->w, false, &w));
    n->w = w.p;
    op->live = norm_live;
    op->phases[0] = (cpu_phase){.fn = cpu_norm_rows, .ctx = n};
    return PGD_OK;
}

typedef struct pairwise {
    const pgd_cpu_kernels *k;
    cpu_view a, b, out;
    int64_t heads;
    int64_t n;
    int64_t row_floats;
    pgd_cpu_finish act; // act_mul
    const float *w;     // add_rmsnorm
    float eps;
} pairwise;

static pgd_status pairwise_live(cpu_op *op) {
    const pairwise *p = CPU_STATE(pairwise, op);
    cpu_phase_set(&op->phases[0], op->rows, p->row_floats, 0);
    return PGD_OK;
}

static void add_rows(void *ctx, int64_t r0, int64_t r1, uint32_t worker) {
    const pairwise *p = ctx;
    (void)worker;
    for (int64_t r = r0; r < r1; r++) {
        for (int64_t h = 0; h < p->heads; h++) {
            p->k->f32_add(p->a.p + r * p->a.s0 + h * p->a.s1, p->b.p + r * p->b.s0 + h * p->b.s1,
                          p->out.p + r * p->out.s0 + h * p->out.s1, p->n);
        }
    }
}

// A tensor of rank 1 is taken as one row an element, so that its live rows are its first elements.
pgd_status cpu_make_add(cpu_op *op, const pgd_add_args *a) {
    const uint32_t rank = a->a.rank;
    pairwise *p = CPU_STATE(pairwise, op);
    *p = (pairwise){.k = cpu_kernels(op->x),
                    .heads = rank == 3 ? a->a.shape[1] : 1,
                    .n = rank == 1 ? 1 : a->a.shape[rank - 1]};
    p->row_floats = p->heads * p->n;
    PGD_TRY(cpu_op_open(op, a->batch, a->rows, -1, a->a.shape[0]));
    PGD_TRY(cpu_op_view(op, "add a", &a->a, false, &p->a));
    PGD_TRY(cpu_op_view(op, "add b", &a->b, false, &p->b));
    PGD_TRY(cpu_op_view(op, "add out", &a->out, true, &p->out));
    op->live = pairwise_live;
    op->phases[0] = (cpu_phase){.fn = add_rows, .ctx = p};
    return PGD_OK;
}

static void add_rmsnorm_rows(void *ctx, int64_t r0, int64_t r1, uint32_t worker) {
    const pairwise *p = ctx;
    (void)worker;
    for (int64_t r = r0; r < r1; r++) {
        float *residual = p->b.p + r * p->b.s0;
        p->k->f32_add(residual, p->a.p + r * p->a.s0, residual, p->n);
        p->k->f32_rmsnorm(residual, p->w, p->out.p + r * p->out.s0, p->n, p->eps);
    }
}

pgd_status cpu_make_add_rmsnorm(cpu_op *op, const pgd_add_rmsnorm_args *a) {
    pairwise *p = CPU_STATE(pairwise, op);
    cpu_view w;
    *p = (pairwise){.k = cpu_kernels(op->x), .n = a->x.shape[1], .eps = a->eps};
    p->row_floats = p->n;
    PGD_TRY(cpu_op_open(op, a->batch, a->rows, -1, a->x.shape[0]));
    PGD_TRY(cpu_op_view(op, "add_rmsnorm x", &a->x, false, &p->a));
    PGD_TRY(cpu_op_view(op, "add_rmsnorm residual", &a->residual, true, &p->b));
    PGD_TRY(cpu_op_view(op, "add_rmsnorm out", &a->out, true, &p->out));
    PGD_TRY(cpu_view_of(op->x, "add_rmsnorm w", &a->w, false, &w));
    p->w = w.p;
    op->live = pairwise_live;
    op->phases[0] = (cpu_phase){.fn = add_rmsnorm_rows, .ctx = p};
    return PGD_OK;
}

static void act_mul_rows(void *ctx, int64_t r0, int64_t r1, uint32_t worker) {
    const pairwise *p = ctx;
    (void)worker;
    for (int64_t r = r0; r < r1; r++) {
        const float *gate = p->a.p + r * p->a.s0;
        p->k->f32_act_mul(gate, gate + p->n, p->out.p + r * p->out.s0, p->n, p->act.act,
                          p->act.act_alpha, p->act.act_limit);
    }
}

pgd_status cpu_make_act_mul(cpu_op *op, const pgd_act_mul_args *a) {
    pairwise *p = CPU_STATE(pairwise, op);
    *p = (pairwise){
        .k = cpu_kernels(op->x), .n = a->out.shape[1], .row_floats = 4 * a->out.shape[1]};
    p->act.act = a->act;
    p->act.act_alpha = a->act_alpha == 0.0f ? 1.0f : a->act_alpha;
    p->act.act_limit = a->act_limit;
    PGD_TRY(cpu_op_open(op, a->batch, a->rows, -1, a->x.shape[0]));
    PGD_TRY(cpu_op_view(op, "act_mul x", &a->x, false, &p->a));
    PGD_TRY(cpu_op_view(op, "act_mul out", &a->out, true, &p->out));
    op->live = pairwise_live;
    op->phases[0] = (cpu_phase){.fn = act_mul_rows, .ctx = p};
    return PGD_OK;
}

// ---- rope --------------------------------------------------------------------------------------

static bool one_axis(const int32_t *sections) {
    return sections[1] == 0 && sections[2] == 0 && sections[3] == 0;
}

// Axis of a pair.
static int32_t axis_of(const int32_t *sections, int64_t pair) {
    for (int32_t axis = 0; axis < 4; axis++) {
        pair -= sections[axis];
        if (pair < 0) {
            return axis;
        }
    }
    return 0;
}

// Turns pairs [i0, i0 + n) of a token's heads, n at most ROPE_CHUNK.
#define ROPE_CHUNK 128

static void rope_token(const cpu_rope *r, int64_t t, int64_t i0, int64_t n) {
    float c[ROPE_CHUNK];
    float s[ROPE_CHUNK];
    const bool one = one_axis(r->sections);
    const float *row = r->table + (int64_t)r->positions[t] * r->pairs * 2;
    for (int64_t i = 0; i < n; i++) {
        if (!one) {
            const int64_t axis = axis_of(r->sections, i0 + i);
            row = r->table + (int64_t)r->positions[axis * r->cap_tokens + t] * r->pairs * 2;
        }
        c[i] = row[2 * (i0 + i)];
        s[i] = row[2 * (i0 + i) + 1];
    }
    if (r->interleaved || n == r->pairs) {
        const int64_t first = r->interleaved ? 2 * i0 : 0;
        r->k->f32_rope(r->q.p + t * r->q.s0 + first, r->q_heads, r->q.s1, c, s, n, r->interleaved);
        r->k->f32_rope(r->key.p + t * r->key.s0 + first, r->k_heads, r->key.s1, c, s, n,
                       r->interleaved);
        return;
    }
    for (int32_t which = 0; which < 2; which++) {
        const cpu_view *v = which == 0 ? &r->q : &r->key;
        for (int64_t h = 0; h < (which == 0 ? r->q_heads : r->k_heads); h++) {
            float *lo = v->p + t * v->s0 + h * v->s1 + i0;
            float *hi = lo + r->pairs;
            for (int64_t i = 0; i < n; i++) {
                const float a = lo[i];
                const float b = hi[i];
                lo[i] = a * c[i] - b * s[i];
                hi[i] = b * c[i] + a * s[i];
            }
        }
    }
}

void cpu_rope_rows(void *ctx, int64_t r0, int64_t r1, uint32_t worker) {
    const cpu_rope *r = ctx;
    (void)worker;
    for (int64_t t = r0; t < r1; t++) {
        for (int64_t i = 0; i < r->pairs; i += ROPE_CHUNK) {
            rope_token(r, t, i, cpu_min(ROPE_CHUNK, r->pairs - i));
        }
    }
}

pgd_status cpu_rope_live(const cpu_op *op, const cpu_rope *r) {
    const cpu_batch *b = &op->batch;
    const int64_t rows = op->rows;
    if (rows > 0 && (b->positions == NULL || rows > b->caps.cap_tokens || b->caps.n_axes < 1)) {
        return CPU_FAIL(op->x->dev, PGD_INVALID, "rope: %lld rows, the batch holds %d positions",
                        (long long)rows, (int)b->caps.cap_tokens);
    }
    for (int32_t axis = 0; axis < 4 && rows > 0; axis++) {
        if (axis > 0 && r->sections[axis] == 0) {
            continue;
        }
        if (axis >= b->caps.n_axes) {
            return CPU_FAIL(op->x->dev, PGD_INVALID, "rope: section %d of a batch with %d axes",
                            (int)axis, (int)b->caps.n_axes);
        }
        for (int64_t t = 0; t < rows; t++) {
            int32_t p = b->positions[(int64_t)axis * b->caps.cap_tokens + t];
            if (p < 0 || p >= r->table_rows) {
                return CPU_FAIL(op->x->dev, PGD_INVALID, "rope: position %d, the table holds %lld",
                                (int)p, (long long)r->table_rows);
            }
        }
    }
    return PGD_OK;
}

pgd_status cpu_rope_make(cpu_op *op, const pgd_rope_args *a, cpu_rope *out) {
    cpu_view table;
    *out = (cpu_rope){.k = cpu_kernels(op->x),
                      .q_heads = a->q.shape[1],
                      .positions = op->batch.positions,
                      .cap_tokens = op->batch.caps.cap_tokens,
                      .table_rows = a->table.shape[0],
                      .pairs = a->rot_dim / 2,
                      .interleaved = a->style == PGD_ROPE_INTERLEAVED};
    memcpy(out->sections, a->sections, sizeof(out->sections));
    PGD_TRY(cpu_op_view(op, "rope q", &a->q, true, &out->q));
    PGD_TRY(cpu_view_of(op->x, "rope table", &a->table, false, &table));
    if ((a->table.shape[0] > 1 && out->pairs > 0 && table.s0 != a->rot_dim) ||
        (out->pairs > 1 && table.s1 != 2)) {
        return CPU_FAIL(op->x->dev, PGD_UNSUPPORTED, "rope: a table with strides %lld and %lld",
                        (long long)table.s0, (long long)table.s1);
    }
    out->table = table.p;
    if (a->k.rank != 0) {
        out->k_heads = a->k.shape[1];
        PGD_TRY(cpu_op_view(op, "rope k", &a->k, true, &out->key));
    }
    return PGD_OK;
}

static pgd_status rope_live(cpu_op *op) {
    const cpu_rope *r = CPU_STATE(cpu_rope, op);
    PGD_TRY(cpu_rope_live(op, r));
    cpu_phase_set(&op->phases[0], op->rows, (r->q_heads + r->k_heads) * r->pairs * 2, 0);
    return PGD_OK;
}

pgd_status cpu_make_rope(cpu_op *op, const pgd_rope_args *a) {
    cpu_rope *r = CPU_STATE(cpu_rope, op);
    if (a->batch == NULL) {
        return CPU_FAIL(op->x->dev, PGD_INVALID, "rope without a batch");
    }
    PGD_TRY(cpu_op_open(op, a->batch, a->rows, -1, a->q.shape[0]));
    PGD_TRY(cpu_rope_make(op, a, r));
    op->live = rope_live;
    op->phases[0] = (cpu_phase){.fn = cpu_rope_rows, .ctx = r};
    return PGD_OK;
}

// ---- kv_write ----------------------------------------------------------------------------------

void cpu_kv_write_rows(void *ctx, int64_t r0, int64_t r1, uint32_t worker) {
    const cpu_kv_rows *w = ctx;
    (void)worker;
    for (int64_t t = r0; t < r1; t++) {
        for (int64_t h = 0; h < w->kv->desc.heads; h++) {
            cpu_kv_store(w->kernels, w->kv, w->layer, 0, h, w->slots[t],
                         w->k.p + t * w->k.s0 + h * w->k.s1);
            cpu_kv_store(w->kernels, w->kv, w->layer, 1, h, w->slots[t],
                         w->v.p + t * w->v.s0 + h * w->v.s1);
        }
    }
}

pgd_status cpu_kv_rows_make(cpu_op *op, const pgd_kv_write_args *a, cpu_kv_rows *out) {
    *out = (cpu_kv_rows){
        .kernels = cpu_kernels(op->x), .kv = a->kv, .layer = a->layer, .slots = op->batch.slots};
    PGD_TRY(cpu_op_view(op, "kv_write k", &a->k, false, &out->k));
    return cpu_op_view(op, "kv_write v", &a->v, false, &out->v);
}

pgd_status cpu_kv_rows_live(const cpu_op *op, const cpu_kv_rows *w) {
    if (op->rows > 0 && (w->slots == NULL || op->rows > op->batch.caps.cap_tokens)) {
        return CPU_FAIL(op->x->dev, PGD_INVALID, "kv_write: %lld rows, the batch holds %d slots",
                        (long long)op->rows, (int)op->batch.caps.cap_tokens);
    }
    for (int64_t t = 0; t < op->rows; t++) {
        if (w->slots[t] < 0 || w->slots[t] / w->kv->desc.block_tokens >= w->kv->n_blocks) {
            return CPU_FAIL(op->x->dev, PGD_INVALID, "kv_write: slot %d of %d blocks",
                            (int)w->slots[t], (int)w->kv->n_blocks);
        }
    }
    return PGD_OK;
}

static pgd_status kv_write_live(cpu_op *op) {
    const cpu_kv_rows *w = CPU_STATE(cpu_kv_rows, op);
    const pgd_kv_desc *d = &w->kv->desc;
    PGD_TRY(cpu_kv_rows_live(op, w));
    cpu_phase_set(&op->phases[0], op->rows, (int64_t)d->heads * (d->k_dim + d->v_dim), 0);
    return PGD_OK;
}

pgd_status cpu_make_kv_write(cpu_op *op, const pgd_kv_write_args *a) {
    cpu_kv_rows *w = CPU_STATE(cpu_kv_rows, op);
    PGD_TRY(cpu_op_open(op, a->batch, a->rows, a->group, a->k.shape[0]));
    PGD_TRY(cpu_kv_rows_make(op, a, w));
    op->live = kv_write_live;
    op->phases[0] = (cpu_phase){.fn = cpu_kv_write_rows, .ctx = w};
    return PGD_OK;
}

// ---- argmax ------------------------------------------------------------------------------------

typedef struct argmax {
    const pgd_cpu_kernels *k;
    cpu_view x;
    int64_t n;
    int32_t *out;
    const cpu_batch *b;
} argmax;

static void argmax_rows(void *ctx, int64_t r0, int64_t r1, uint32_t worker) {
    const argmax *a = ctx;
    (void)worker;
    for (int64_t r = r0; r < r1; r++) {
        a->out[r] = (int32_t)a->k->f32_argmax(a->x.p + r * a->x.s0, a->n);
        cpu_put_token(a->b, r, a->out[r]);
    }
}

static pgd_status argmax_live(cpu_op *op) {
    const argmax *m = CPU_STATE(argmax, op);
    PGD_TRY(cpu_check_tokens(op->x, &op->batch, op->rows));
    cpu_phase_set(&op->phases[0], op->rows, m->n, 0);
    return PGD_OK;
}

pgd_status cpu_make_argmax(cpu_op *op, const pgd_argmax_args *a) {
    argmax *m = CPU_STATE(argmax, op);
    cpu_view out;
    *m = (argmax){.k = cpu_kernels(op->x), .n = a->x.shape[1], .b = &op->batch};
    PGD_TRY(cpu_op_open(op, a->batch, a->rows, -1, a->x.shape[0]));
    PGD_TRY(cpu_op_view(op, "argmax x", &a->x, false, &m->x));
    PGD_TRY(cpu_op_view(op, "argmax out", &a->out, true, &out));
    m->out = (int32_t *)(void *)out.p;
    op->live = argmax_live;
    op->phases[0] = (cpu_phase){.fn = argmax_rows, .ctx = m};
    return PGD_OK;
}
