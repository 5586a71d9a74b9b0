// Products of many rows by the vendor's library, where results may depend on the batch.
//
//   weight, packed -> unpack: rows as the library takes them, a few thousand at a time
//                  -> the library -> y                      (with the residual, where there is one)
//                                 -> scratch -> act_mul -> y                          (gated)
//
// A part of a weight fits into the cache of a large chip, so unpacking costs less than a second
// copy of the weight would take memory. An op emits this first and its own kernels behind it: they
// do nothing when the library took the step. It does not take steps of few rows, shapes without an
// algorithm, and what a driver's graph records: that has no live counts.
#include <string.h>

#include "gpu.h"

enum {
    ALIGN = 256,
    COLUMNS_UNIT = 64,     // of all parts but the last
    WORK_BYTES = 32 << 20, // of the library
};

typedef struct library_params {
    k_gemm_params p;
    int64_t part_columns; // of y
    int64_t unpacked_at;  // in scratch, [rows of the weight][k]
    int64_t halves_at;    // [rows][2 * part_columns] f32, of a gated weight
    int64_t work_at;
    int32_t dtype; // of the weight and of x
    int32_t is_gated;
} library_params;

_Static_assert(sizeof(library_params) <= GPU_PARAMS_BYTES, "room for the parameters");

static uint64_t aligned(uint64_t n) {
    return (n + ALIGN - 1) / ALIGN * ALIGN;
}

// Where the parts of scratch lie, from 0. Returns its bytes.
static uint64_t lay_out(const gpu_self *self, const pgd_weight_desc *w, int64_t cap,
                        library_params *l) {
    const bool is_gated = gpu_weight_layout(w) == K_LAYOUT_GATED;
    const int64_t columns = is_gated ? w->n / 2 : w->n;
    const int64_t halves = is_gated ? 2 : 1;
    int64_t part = self->library_part / (w->k * 2 * halves) / COLUMNS_UNIT * COLUMNS_UNIT;
    const int64_t least = self->library_columns / halves;
    part = part < least ? least : part;
    part = part < columns ? part : columns;
    l->part_columns = part;
    l->is_gated = is_gated;
    l->dtype = w->dtype;
    l->unpacked_at = 0;
    l->halves_at = (int64_t)aligned((uint64_t)(part * halves * w->k * 2));
    l->work_at = l->halves_at + (int64_t)(is_gated ? aligned((uint64_t)(cap * part * 2) * 4) : 0);
    return (uint64_t)l->work_at + WORK_BYTES;
}

static bool takes(const pgd_device *d, const pgd_weight_desc *w, const pgd_tensor *x) {
    const int32_t layout = gpu_weight_layout(w);
    return gpu_of(d)->library != NULL && w->scheme == PGD_SCHEME_PLAIN &&
           (w->dtype == PGD_BF16 || w->dtype == PGD_F16) && x->dtype == w->dtype &&
           layout != K_LAYOUT_ROWS && w->n > 0 && w->k > 0 && w->k % 8 == 0 && w->n <= INT32_MAX &&
           w->k <= INT32_MAX && x->shape[0] >= gpu_of(d)->library_rows;
}

const char *gpu_library_product(const pgd_device *d, const pgd_weight_desc *w, const pgd_tensor *x,
                                uint64_t *out_scratch) {
    library_params l;
    *out_scratch = 0;
    if (!takes(d, w, x)) {
        return NULL;
    }
    *out_scratch =
        lay_out(gpu_of(d), w, x->shape[0], &l) + ALIGN; // the beginning of scratch may be odd
    return gpu_of(d)->library;
}

// Nothing follows the sum but the other half or the residual, and rows begin where the library can
// read them.
static bool is_simple(const library_params *l) {
    enum { BYTES = 16 };
    const k_gemm_params *p = &l->p;
    const int64_t y_bytes = (int64_t)pgd_dtype_bytes(p->y.dtype);
    const bool has_sum = p->aux_kind == PGD_AUX_ADD;
    if (p->has_bias != 0 || p->alpha != 1.0f || p->x.at % BYTES != 0 || p->x.s0 * 2 % BYTES != 0) {
        return false;
    }
    if (l->is_gated) { // y is written by act_mul
        return p->aux_kind == PGD_AUX_NONE;
    }
    if (has_sum && (p->aux.dtype != p->y.dtype || p->aux.at % BYTES != 0 ||
                    p->aux.s0 * y_bytes % BYTES != 0)) {
        return false;
    }
    return p->act == 0 && (p->y.dtype == PGD_F32 || p->y.dtype == l->dtype) &&
           p->y.at % BYTES == 0 && p->y.s0 * y_bytes % BYTES == 0 &&
           (p->aux_kind == PGD_AUX_NONE || has_sum);
}

void gpu_library_emit(gpu_op *op, const gpu_work *made, const k_gemm_params *p,
                      const pgd_weight *weight, const pgd_tensor *x) {
    uint64_t bytes = 0;
    gpu_work w = *made;
    library_params l = {.p = *p};
    if (gpu_library_product(op->d, &weight->desc, x, &bytes) == NULL) {
        return;
    }
    const k_view scratch = gpu_bind_scratch(op, &w, 6, bytes);
    l.p.x = gpu_bind(op, &w, 2, "x", x);
    const int64_t from = (int64_t)aligned((uint64_t)scratch.at);
    (void)lay_out(gpu_of(op->d), &weight->desc, x->shape[0], &l);
    l.unpacked_at += from;
    l.halves_at += from;
    l.work_at += from;
    if (op->code != PGD_OK || !is_simple(&l)) {
        return;
    }
    w.launch.kernel = GPU_BY_LIBRARY;
    memcpy(w.launch.params, &l, sizeof(l));
    op->is_own = true;
    gpu_add_work(op, &w);
}

// ---- a step ------------------------------------------------------------------------------------

// Columns [first, first + n) of y.
typedef struct part {
    int64_t first;
    int64_t n;
    int64_t rows;
} part;

static pgd_status unpack(const pgd_device *d, pgd_queue *q, const gpu_work *w,
                         const library_params *l, const part *a, int32_t half) {
    const k_pack_params p = {.w = l->p.w,
                             .rows = {.at = l->unpacked_at + half * a->n * l->p.w.k * 2,
                                      .s0 = l->p.w.k,
                                      .dtype = l->dtype},
                             .first = (int32_t)(half * (l->p.w.n / 2) + a->first),
                             .n = (int32_t)a->n};
    gpu_launch u = {.kernel = PGD_PORTABLE_unpack,
                    .groups = {gpu_ceil(p.w.k, K_SPAN), gpu_ceil(p.n, K_COLUMNS), 1}};
    u.memories[1] = w->launch.memories[1];
    u.memories[2] = w->launch.memories[6];
    memcpy(u.params, &p, sizeof(p));
    return gpu_of(d)->driver->launch(d->host, q->queue, &u);
}

static pgd_status join(const pgd_device *d, pgd_queue *q, const gpu_work *w,
                       const library_params *l, const part *a) {
    const k_gemm_params *g = &l->p;
    const k_pair_params p = {
        .a = {.at = l->halves_at, .s0 = 2 * a->n, .dtype = K_F32},
        .out = {.at = g->y.at + a->first * (int64_t)pgd_dtype_bytes(g->y.dtype),
                .s0 = g->y.s0,
                .dtype = g->y.dtype},
        .rows = g->rows,
        .heads = 1,
        .n = (int32_t)a->n,
        .act = g->act,
        .act_alpha = g->act_alpha,
        .act_limit = g->act_limit,
    };
    gpu_launch j = {.kernel = PGD_PORTABLE_act_mul,
                    .groups = {gpu_ceil(a->n, K_SPAN), (uint32_t)a->rows, 1}};
    j.memories[0] = w->launch.memories[0];
    j.memories[1] = w->launch.memories[6];
    j.memories[3] = w->launch.memories[3];
    memcpy(j.params, &p, sizeof(p));
    return gpu_of(d)->driver->launch(d->host, q->queue, &j);
}

// The library's product for a part, or whether it would take it.
static pgd_status multiply(const pgd_device *d, pgd_queue *q, const gpu_work *w,
                           const library_params *l, const part *a, bool only_asks) {
    const k_gemm_params *p = &l->p;
    const gpu_launch *k = &w->launch;
    const int64_t n = l->is_gated ? 2 * a->n : a->n;
    const uint64_t at = (uint64_t)a->first * pgd_dtype_bytes(p->y.dtype);
    const bool has_sum = p->aux_kind == PGD_AUX_ADD;
    const gpu_product_matrix halves = {k->memories[6], (uint64_t)l->halves_at, n};
    const gpu_product_matrix y = {k->memories[3], (uint64_t)p->y.at + at, p->y.s0};
    const gpu_product_matrix sum = {k->memories[5], (uint64_t)p->aux.at + at, p->aux.s0};
    const gpu_product_call call = {
        .w = {k->memories[6], (uint64_t)l->unpacked_at, p->w.k},
        .x = {k->memories[2], (uint64_t)p->x.at, p->x.s0},
        .y = l->is_gated ? halves : y,
        .add = has_sum ? sum : (gpu_product_matrix){0},
        .m = a->rows,
        .n = n,
        .k = p->w.k,
        .in = l->dtype,
        .out = l->is_gated ? PGD_F32 : p->y.dtype,
        .scratch = k->memories[6],
        .scratch_offset = (uint64_t)l->work_at,
        .scratch_bytes = WORK_BYTES,
    };
    return gpu_of(d)->driver->product(d->host, q->queue, &call, only_asks);
}

static pgd_status run_part(const pgd_device *d, pgd_queue *q, const gpu_work *w,
                           const library_params *l, const part *a) {
    PGD_TRY(unpack(d, q, w, l, a, 0));
    if (l->is_gated) {
        PGD_TRY(unpack(d, q, w, l, a, 1));
    }
    PGD_TRY(multiply(d, q, w, l, a, false));
    return l->is_gated ? join(d, q, w, l, a) : PGD_OK;
}

static part part_at(const library_params *l, int64_t first, int64_t columns, int64_t rows) {
    const int64_t rest = columns - first;
    return (part){
        .first = first, .n = rest < l->part_columns ? rest : l->part_columns, .rows = rows};
}

// All shapes are asked for before anything runs, so that a residual is not added twice.
pgd_status gpu_library_run(const pgd_device *d, pgd_queue *q, const gpu_work *w, int32_t rows) {
    library_params l;
    memcpy(&l, w->launch.params, sizeof(l));
    const int64_t columns = l.is_gated ? l.p.w.n / 2 : l.p.w.n;
    const int64_t last = (columns - 1) / l.part_columns * l.part_columns;
    q->by_library = false;
    if (rows < gpu_of(d)->library_rows) {
        return PGD_OK;
    }
    for (int64_t first = 0; first <= last; first += last > 0 ? last : 1) {
        const part a = part_at(&l, first, columns, rows);
        const pgd_status code = multiply(d, q, w, &l, &a, true);
        if (code != PGD_OK) {
            return code == PGD_UNSUPPORTED ? PGD_OK : code;
        }
    }
    for (int64_t first = 0; first < columns; first += l.part_columns) {
        const part a = part_at(&l, first, columns, rows);
        const pgd_status code = run_part(d, q, w, &l, &a);
        if (code == PGD_UNSUPPORTED) {
            return first == 0 ? PGD_OK
                              : GPU_FAIL(d, PGD_INTERNAL,
                                         "%s failed in the middle of a product of %d rows",
                                         gpu_of(d)->library, (int)rows);
        }
        PGD_TRY(code);
    }
    q->by_library = true;
    return PGD_OK;
}
