// A product y = x W^T: how it is cut and run (product.h).
//
// Work is cut into items of (group of panels of W) x (block of rows of x), handed out one by one,
// the blocks of a group next to each other, so that W comes from memory once.
//
//   few rows    an item is about 512 KiB of W, read from front to back
//   many rows   blocks of up to 128 rows, groups of up to 4 panels, k in slabs: a slab of x stays
//               in L2 while the panels pass; 512 products of a panel stay in L1 while all rows pass
//
// Each part of a panel (512 products deep) names the part that comes after it, and the kernel
// fetches that while it computes. What the sizes are changes no bit: each element of y is the sum,
// left to right, of chains of 512 products with k rising.
#include "product.h"

#include <string.h>

#include "library.h"

enum {
    ITEM_BYTES = 512 << 10, // of weights in an item, when there are few rows
    FEW_ROWS = 32,          // up to here it is reading W that takes the time
    BLOCK_ROWS = 128,       // most rows of a block
    GROUP = 4,              // panels of an item, when there are many rows
    SLAB_BYTES = 512 << 10, // of x: half of an L2
    ITEMS_A_WORKER = 4,     // at least, so that all end at about the same time
};

// Bytes of an element of x as the kernels read it.
static int64_t x_bytes(const cpu_product *p) {
    if (p->blocks != NULL) {
        return (int64_t)sizeof(pgd_cpu_int8) / PGD_CPU_CELL;
    }
    return p->rounded != NULL ? p->k->dot_bytes : (int64_t)sizeof(float);
}

static int64_t panel_bytes(const cpu_product *p) {
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

void cpu_product_init(cpu_product *p, const pgd_exec *x, const pgd_weight *w) {
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
static bool walk_on(const cpu_product *p, int64_t p0, int64_t p1, walk *at) {
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

static const unsigned char *part_of(const cpu_product *p, const walk *at) {
    const cpu_segment *s = cpu_segment_of(p->w, at->panel);
    return s->data + (uint64_t)(at->panel - s->panel) * s->panel_bytes + cpu_panel_bytes(s, at->k);
}

// x of a row from k on, as a segment's kernel reads it; *ldx from row to row, in its elements.
static const void *x_of(const cpu_product *p, const cpu_segment *s, int64_t row, int64_t k,
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
static bool sums_by_blas(const cpu_product *p, int64_t p0, int64_t p1, int64_t r0, int64_t m,
                         float *acc) {
    bool done = true;
    for (int64_t i = p0; done && i < p1; i++) {
        done = cpu_blas_panel(p->d, p->w, i, p->x.p + r0 * p->x.s0, p->x.s0, m,
                              acc + (i - p0) * m * PGD_CPU_PANEL);
    }
    return done;
}

// acc [p1 - p0][m][32] = x W^T of rows [r0, r0 + m) and panels [p0, p1). Panel `after` comes next.
static void sums(const cpu_product *p, int64_t p0, int64_t p1, int64_t after, int64_t r0, int64_t m,
                 float *acc) {
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
        if (!more) {
            next = (walk){.panel = after};
        }
        part.next = next.panel < p->w->n_panels ? part_of(p, &next) : NULL;
        part.x = x_of(p, s, r0, at.k, &part.ldx);
        p->fns[s - p->w->segments](&part);
        at = next;
    }
}

static void plain_end(const cpu_product *p, int64_t index, int64_t r0, int64_t m, float *acc) {
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

// cols columns of a row of y, from column `first` on.
static void put_row(const cpu_product *p, const float *from, int64_t cols, int64_t row,
                    int64_t first) {
    const int64_t at = row * p->y.s0 + first;
    if (p->y_bf16) {
        p->k->bf16_narrow(from, (uint16_t *)(void *)p->y.p + at, cols);
    } else {
        memcpy(p->y.p + at, from, (size_t)cols * sizeof(float));
    }
}

// Sums of panels index (gate) and index + 1 (up).
static void gated_end(const cpu_product *p, int64_t index, int64_t r0, int64_t m, float *acc) {
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
    // All rows in one call: a row of a panel is too short to hide how long e^x takes. Columns behind
    // `cols` are made as well, and not kept.
    p->k->f32_act_mul(acc, up, acc, m * PGD_CPU_PANEL, p->how.act, p->how.act_alpha,
                      p->how.act_limit);
    for (int64_t i = 0; i < m; i++) {
        put_row(p, acc + i * PGD_CPU_PANEL, cols, r0 + i, first[0]);
    }
}

static void product_item(const cpu_product *p, int64_t item) {
    float acc[GROUP * BLOCK_ROWS * PGD_CPU_PANEL];
    const int64_t r0 = item % p->n_blocks * p->block_rows;
    const int64_t m = cpu_min(p->block_rows, p->rows - r0);
    const int64_t first = item / p->n_blocks * p->group;
    const int64_t end = cpu_min(first + p->group, p->w->n_panels);
    // Workers take items in turns: the next one of this worker is as far as there are workers.
    const int64_t ahead = (item + p->n_workers) / p->n_blocks * p->group;
    const int64_t width = p->gated ? 2 : 1;
    const int64_t together = p->slab < p->w->desc.k ? GROUP : width;
    for (int64_t p0 = first; p0 < end; p0 += together) {
        const int64_t p1 = cpu_min(p0 + together, end);
        sums(p, p0, p1, p1 < end ? p1 : ahead, r0, m, acc);
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

void cpu_product_items(void *ctx, int64_t i0, int64_t i1, uint32_t worker) {
    (void)worker;
    for (int64_t i = i0; i < i1; i++) {
        product_item(ctx, i);
    }
}

// How the product is cut for that many rows.
static void product_cut(cpu_product *p, int64_t rows) {
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

void cpu_product_live(cpu_product *p, int64_t rows, cpu_phase *phase) {
    int64_t n = 0;
    int64_t floats = 0;
    product_cut(p, rows);
    n = rows > 0 ? p->n_blocks * p->n_groups : 0;
    if (__builtin_mul_overflow(rows * cpu_max(1, p->w->desc.k / 16), p->w->desc.n, &floats)) {
        floats = INT64_MAX;
    }
    cpu_phase_set(phase, n, n > 0 ? floats / n : 0, 1);
}
