// Ops around a product y = x W^T: gemm, gemm_add, gate_up, qkv_rope_write, head_sample.
//
// Work is cut into items of (group of panels of W) x (block of rows of x), handed out one by one,
// the blocks of a group next to each other, so that W comes from memory once.
//
//   few rows    an item is about 128 KiB of W, read from front to back
//   many rows   blocks of up to 128 rows, groups of up to 4 panels, k in slabs: a slab of x stays
//               in L2 while the panels pass; 512 products of a panel stay in L1 while all rows pass
//
// Each part of a panel (512 products deep) names the part that comes after it, and the kernel
// fetches that while it computes. What the sizes are changes no bit: each element of y is the sum,
// left to right, of chains of 512 products with k rising.
//
// Phases: what x needs (norm, rounding) | product | the rest (act_mul, rope, cache, sample).
// A weight with act_dtype BF16 takes x rounded to bf16, a quantized one x as int8: once a row, into
// the scratch.
#include <string.h>

#include "library.h"

enum {
    ITEM_BYTES = 128 << 10, // of weights in an item, when there are few rows
    FEW_ROWS = 32,          // up to here it is reading W that takes the time
    BLOCK_ROWS = 128,       // most rows of a block
    GROUP = 4,              // panels of an item, when there are many rows
    SLAB_BYTES = 512 << 10, // of x: half of an L2
    ITEMS_A_WORKER = 4,     // at least, so that all end at about the same time
};

typedef struct product {
    const pgd_device *d;
    const pgd_cpu_kernels *k;
    const pgd_weight *w;
    pgd_cpu_product_fn fns[CPU_SEGMENTS]; // of each segment of w
    cpu_view x, y, aux;
    unsigned char *rounded;   // [rows][ld_rounded] of x by bf16_round, NULL = x is taken as it is
    int64_t ld_rounded;       // elements
    bool rounds;              // rounded is the scratch and made of x, else x itself
    bool x_bf16;              // x is bf16
    pgd_cpu_int8 *blocks;     // [rows][cpu_int8_ld] of x by int8_round, for quantized weights
    const float *bias;        // NULL = none
    const cpu_sample *sample; // what takes y panel by panel, NULL = y is written
    pgd_cpu_finish how;
    uint32_t n_workers;
    bool gated;  // y is act(gate) * up, W in gated layout
    bool y_bf16; // and is bf16
    // of the live rows
    int64_t rows;
    int64_t block_rows;
    int64_t n_blocks;
    int64_t group;
    int64_t n_groups;
    int64_t slab;
} product;

// Bytes of an element of x as the kernels read it.
static int64_t x_bytes(const product *p) {
    if (p->blocks != NULL) {
        return (int64_t)sizeof(pgd_cpu_int8) / PGD_CPU_CELL;
    }
    return p->rounded != NULL ? p->k->dot_bytes : (int64_t)sizeof(float);
}

static int64_t panel_bytes(const product *p) {
    return cpu_max(1, (int64_t)p->w->bytes / cpu_max(1, p->w->n_panels));
}

static pgd_cpu_product_fn product_fn(const pgd_cpu_kernels *k, const pgd_weight *w,
                                     const cpu_segment *s) {
    const int32_t x_dtype = w->desc.act_dtype == PGD_BF16 ? PGD_BF16 : PGD_F32;
    const pgd_cpu_product *at = pgd_cpu_products;
    if (s->scheme != PGD_SCHEME_PLAIN) {
        return pgd_cpu_quant_product_of(k, s->scheme);
    }
    while (at->w_dtype != s->dtype || at->x_dtype != x_dtype) {
        at++; // the desc was checked: there is one
    }
    return pgd_cpu_product_at(k, at);
}

static void product_init(product *p, const pgd_exec *x, const pgd_weight *w) {
    const pgd_host *host = x->dev->host;
    p->d = x->dev;
    p->k = cpu_kernels(x);
    p->w = w;
    for (uint32_t i = 0; i < w->n_segments; i++) {
        p->fns[i] = product_fn(p->k, w, &w->segments[i]);
    }
    p->how = (pgd_cpu_finish){.alpha = 1.0f, .act_alpha = 1.0f};
    p->n_workers = host->team_size(host);
}

// Where a walk over the parts of some panels stands: slab by slab, panel by panel.
typedef struct walk {
    int64_t slab; // first k of the slab
    int64_t panel;
    int64_t k;
} walk;

// 0 when that was the last part.
static bool walk_on(const product *p, int64_t p0, int64_t p1, walk *at) {
    at->k += PGD_CPU_DEPTH;
    if (at->k < cpu_min(at->slab + p->slab, p->w->desc.k)) {
        return true;
    }
    at->panel++;
    at->k = at->slab;
    if (at->panel < p1) {
        return true;
    }
    at->panel = p0;
    at->slab += p->slab;
    at->k = at->slab;
    return at->k < p->w->desc.k;
}

static const unsigned char *part_of(const product *p, const walk *at) {
    const cpu_segment *s = cpu_segment_of(p->w, at->panel);
    return s->data + (uint64_t)(at->panel - s->panel) * s->panel_bytes + cpu_panel_bytes(s, at->k);
}

// x of a row from k on, as a segment's kernel reads it; *ldx from row to row, in its elements.
static const void *x_of(const product *p, const cpu_segment *s, int64_t row, int64_t k,
                        int64_t *ldx) {
    if (s->scheme != PGD_SCHEME_PLAIN) {
        *ldx = cpu_int8_ld(p->w->desc.k);
        return p->blocks + row * *ldx + k / PGD_CPU_CELL;
    }
    if (p->rounded != NULL) {
        *ldx = p->ld_rounded;
        return p->rounded + (row * *ldx + k) * p->k->dot_bytes;
    }
    *ldx = p->x.s0;
    return p->x.p + row * *ldx + k;
}

// The same as sums, where that is OpenBLAS's to make; else false.
static bool sums_by_blas(const product *p, int64_t p0, int64_t p1, int64_t r0, int64_t m,
                         float *acc) {
    bool done = true;
    for (int64_t i = p0; done && i < p1; i++) {
        done = cpu_blas_panel(p->d, p->w, i, p->x.p + r0 * p->x.s0, p->x.s0, m,
                              acc + (i - p0) * m * PGD_CPU_PANEL);
    }
    return done;
}

// acc [p1 - p0][m][32] = x W^T of rows [r0, r0 + m) and panels [p0, p1).
static void sums(const product *p, int64_t p0, int64_t p1, int64_t r0, int64_t m, float *acc) {
    const bool follows = p->n_blocks == 1 && p1 < p->w->n_panels;
    walk at = {.panel = p0};
    bool more = !sums_by_blas(p, p0, p1, r0, m, acc);
    while (more) {
        walk next = at;
        const cpu_segment *s = cpu_segment_of(p->w, at.panel);
        pgd_cpu_part part = {
            .m = m,
            .k = cpu_min(PGD_CPU_DEPTH, p->w->desc.k - at.k),
            .w = part_of(p, &at),
            .acc = acc + (at.panel - p0) * m * PGD_CPU_PANEL,
            .ldacc = PGD_CPU_PANEL,
            .add = at.k > 0,
        };
        more = walk_on(p, p0, p1, &next);
        if (!more && follows) {
            part.next = part_of(p, &(walk){.panel = p1});
        } else if (more) {
            part.next = part_of(p, &next);
        }
        part.x = x_of(p, s, r0, at.k, &part.ldx);
        p->fns[s - p->w->segments](&part);
        at = next;
    }
}

static void plain_end(const product *p, int64_t index, int64_t r0, int64_t m, float *acc) {
    pgd_cpu_finish how = p->how;
    int64_t first = 0;
    const int64_t cols = cpu_panel_columns(p->w, index, &first);
    if (p->sample != NULL && p->sample->n_plain > 0) {
        p->k->f32_finish_32(acc, PGD_CPU_PANEL, m, cols, acc, PGD_CPU_PANEL, &how);
        cpu_sample_panel(p->sample, index, cols, r0, m, acc);
        return;
    }
    how.bias = p->bias == NULL ? NULL : p->bias + first;
    how.aux = p->aux.p == NULL ? NULL : p->aux.p + r0 * p->aux.s0 + first;
    how.ldaux = p->aux.s0;
    p->k->f32_finish_32(acc, PGD_CPU_PANEL, m, cols, p->y.p + r0 * p->y.s0 + first, p->y.s0, &how);
}

// act(gate) * up of n columns of a row of y, from column `first` on.
static void act_mul_put(const pgd_cpu_kernels *k, const pgd_cpu_finish *how, const float *gate,
                        const float *up, int64_t n, const cpu_view *y, bool bf16, int64_t row,
                        int64_t first) {
    float *at = y->p + row * y->s0 + first;
    uint16_t *narrow = (uint16_t *)(void *)y->p + row * y->s0 + first;
    float part[PGD_CPU_PANEL];
    if (!bf16) {
        k->f32_act_mul(gate, up, at, n, how->act, how->act_alpha, how->act_limit);
        return;
    }
    for (int64_t i = 0; i < n; i += PGD_CPU_PANEL) {
        const int64_t m = cpu_min(PGD_CPU_PANEL, n - i);
        k->f32_act_mul(gate + i, up + i, part, m, how->act, how->act_alpha, how->act_limit);
        k->bf16_narrow(part, narrow + i, m);
    }
}

// Sums of panels index (gate) and index + 1 (up).
static void gated_end(const product *p, int64_t index, int64_t r0, int64_t m, float *acc) {
    float *up = acc + m * PGD_CPU_PANEL;
    int64_t first[2];
    int64_t cols = 0;
    for (int64_t side = 0; side < 2; side++) {
        pgd_cpu_finish how = {.alpha = 1.0f, .act_alpha = 1.0f};
        float *half = side == 0 ? acc : up;
        cols = cpu_panel_columns(p->w, index + side, &first[side]);
        if (p->bias != NULL) {
            how.bias = p->bias + first[side];
            p->k->f32_finish_32(half, PGD_CPU_PANEL, m, cols, half, PGD_CPU_PANEL, &how);
        }
    }
    for (int64_t i = 0; i < m; i++) {
        act_mul_put(p->k, &p->how, acc + i * PGD_CPU_PANEL, up + i * PGD_CPU_PANEL, cols, &p->y,
                    p->y_bf16, r0 + i, first[0]);
    }
}

static void product_item(const product *p, int64_t item) {
    float acc[GROUP * BLOCK_ROWS * PGD_CPU_PANEL];
    const int64_t r0 = item % p->n_blocks * p->block_rows;
    const int64_t m = cpu_min(p->block_rows, p->rows - r0);
    const int64_t first = item / p->n_blocks * p->group;
    const int64_t end = cpu_min(first + p->group, p->w->n_panels);
    const int64_t width = p->gated ? 2 : 1;
    const int64_t together = p->slab < p->w->desc.k ? GROUP : width;
    for (int64_t p0 = first; p0 < end; p0 += together) {
        const int64_t p1 = cpu_min(p0 + together, end);
        sums(p, p0, p1, r0, m, acc);
        for (int64_t i = p0; i < p1; i += width) {
            float *of_panel = acc + (i - p0) * m * PGD_CPU_PANEL;
            if (p->gated) {
                gated_end(p, i, r0, m, of_panel);
            } else {
                plain_end(p, i, r0, m, of_panel);
            }
        }
    }
}

static void product_items(void *ctx, int64_t i0, int64_t i1, uint32_t worker) {
    (void)worker;
    for (int64_t i = i0; i < i1; i++) {
        product_item(ctx, i);
    }
}

// How the product is cut for that many rows.
static void product_cut(product *p, int64_t rows) {
    const int64_t k = p->w->desc.k;
    const int64_t width = p->gated ? 2 : 1;
    p->rows = rows;
    p->n_blocks = cpu_max(1, (rows + BLOCK_ROWS - 1) / BLOCK_ROWS);
    p->block_rows = cpu_max(1, (rows + p->n_blocks - 1) / p->n_blocks);
    p->slab = cpu_max(1, k);
    p->group = cpu_max(width, ITEM_BYTES / panel_bytes(p) / width * width);
    if (rows > FEW_ROWS) {
        const int64_t fits = SLAB_BYTES / (p->block_rows * x_bytes(p) * PGD_CPU_DEPTH);
        p->slab = cpu_max(1, fits) * PGD_CPU_DEPTH;
        p->group = GROUP;
    }
    while (p->group > width &&
           p->n_blocks * p->w->n_panels / p->group < ITEMS_A_WORKER * (int64_t)p->n_workers) {
        p->group = p->group / (2 * width) * width;
    }
    p->n_groups = (p->w->n_panels + p->group - 1) / p->group;
}

static void product_live(product *p, int64_t rows, cpu_phase *phase) {
    int64_t n = 0;
    int64_t floats = 0;
    product_cut(p, rows);
    n = rows > 0 ? p->n_blocks * p->n_groups : 0;
    if (__builtin_mul_overflow(rows * cpu_max(1, p->w->desc.k / 16), p->w->desc.n, &floats)) {
        floats = INT64_MAX;
    }
    cpu_phase_set(phase, n, n > 0 ? floats / n : 0, 1);
}

// ---- all of them -------------------------------------------------------------------------------

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
    product product;
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
static void round_row(const product *p, int64_t r, unsigned char *to) {
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
    const product *p = &f->product;
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
    product_live(&f->product, op->rows, &op->phases[PRODUCT]);
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
static pgd_status round_init(cpu_op *op, const pgd_weight *w, const pgd_tensor *x, product *p) {
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
    product_init(&f->product, op->x, w);
    PGD_TRY(cpu_op_view(op, "x", in, false, &f->product.x));
    op->live = fused_live;
    PGD_TRY(round_init(op, w, in, &f->product));
    op->phases[FRONT] = (cpu_phase){.fn = front_rows, .ctx = f};
    op->phases[PRODUCT] =
        (cpu_phase){.fn = product_items, .ctx = &f->product, .nodes = &cpu_self(op->x->dev)->nodes};
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
    product *p = &CPU_STATE(fused, op)->product;
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
        const float *gate = g->tmp.p + r * g->tmp.s0;
        act_mul_put(g->k, &g->how, gate, gate + g->n, g->n, &g->out, g->bf16, r, 0);
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
