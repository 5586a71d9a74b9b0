// Products: gemm, gemm_add, gate_up.
//
// The kernels take x as f32. x of another type, or rounded first, goes through scratch.
#include "gpu.h"
#include "tuned.h"

static bool is_rounded(const pgd_weight_desc *w, const pgd_tensor *x) {
    return x->dtype != PGD_F32 ||
           (w->act_dtype != 0 && w->act_dtype != PGD_F32 && w->act_dtype != x->dtype);
}

enum { MOST_PADDING = 1024 }; // of k, by kernels that pack x

bool gpu_tuned_takes(const pgd_weight_desc *w, const pgd_tensor *x) {
    return w->scheme == PGD_SCHEME_PLAIN && (w->dtype == PGD_BF16 || w->dtype == PGD_F16) &&
           gpu_weight_layout(w) != K_LAYOUT_ROWS && w->k >= 1 && w->n >= 1 && w->n <= INT32_MAX &&
           w->k <= INT32_MAX - MOST_PADDING && (x->dtype == w->dtype || w->act_dtype == w->dtype);
}

const char *gpu_tuned_product(const pgd_device *d, const pgd_weight_desc *w, const pgd_tensor *x,
                              uint64_t *out_scratch) {
    const gpu_tuned *t = gpu_of(d)->tuned;
    return t != NULL ? t->product(w, x, out_scratch) : NULL;
}

static uint64_t rounded_bytes(const pgd_weight_desc *w, const pgd_tensor *x) {
    return is_rounded(w, x) ? (uint64_t)x->shape[0] * (uint64_t)w->k * sizeof(float) : 0;
}

uint64_t gpu_product_scratch(const pgd_device *d, const pgd_weight_desc *w, const pgd_tensor *x) {
    uint64_t bytes = 0;
    uint64_t by_library = 0;
    (void)gpu_library_product(d, w, x, &by_library);
    bytes = gpu_tuned_product(d, w, x, &bytes) != NULL ? bytes : rounded_bytes(w, x);
    return by_library > bytes ? by_library : bytes;
}

// x as f32 for the kernel: itself, or a rounded copy.
static k_view bind_x(gpu_op *op, gpu_work *w, const pgd_tensor *x, const pgd_weight *weight) {
    const uint64_t bytes = rounded_bytes(&weight->desc, x);
    gpu_work round = gpu_work_of(op, PGD_PORTABLE_round, 1, 1);
    k_round_params p = {
        .rows = gpu_rows(op), .n = (int32_t)weight->desc.k, .dtype = weight->desc.act_dtype};
    if (!is_rounded(&weight->desc, x)) {
        return gpu_bind(op, w, 2, "x", x);
    }
    p.x = gpu_bind(op, &round, 1, "x", x);
    p.out = gpu_bind_scratch(op, &round, 2, bytes);
    p.out.s0 = weight->desc.k;
    w->launch.memories[2] = round.launch.memories[2];
    round.launch.groups[0] = gpu_ceil(p.n, K_SPAN);
    gpu_emit(op, &round, &p);
    return p.out;
}

static int32_t kernel_of(int32_t format, bool one) {
    switch (format) {
    case K_F32: return one ? PGD_PORTABLE_gemm_f32_r1 : PGD_PORTABLE_gemm_f32_r8;
    case K_BF16: return one ? PGD_PORTABLE_gemm_bf16_r1 : PGD_PORTABLE_gemm_bf16_r8;
    case K_F16: return one ? PGD_PORTABLE_gemm_f16_r1 : PGD_PORTABLE_gemm_f16_r8;
    case K_Q8_0: return one ? PGD_PORTABLE_gemm_q8_0_r1 : PGD_PORTABLE_gemm_q8_0_r8;
    case K_Q4_0: return one ? PGD_PORTABLE_gemm_q4_0_r1 : PGD_PORTABLE_gemm_q4_0_r8;
    case K_Q4_K: return one ? PGD_PORTABLE_gemm_q4_k_r1 : PGD_PORTABLE_gemm_q4_k_r8;
    case K_Q6_K: return one ? PGD_PORTABLE_gemm_q6_k_r1 : PGD_PORTABLE_gemm_q6_k_r8;
    default: return one ? PGD_PORTABLE_gemm_blocks_r1 : PGD_PORTABLE_gemm_blocks_r8;
    }
}

// The product for one row, and for more: the same bits from either.
static void emit_matrix(gpu_op *op, const gpu_work *made, const k_gemm_params *p) {
    for (int one = 1; one >= 0; one--) {
        gpu_work w = *made;
        w.when = one ? GPU_IF_ONE_ROW : GPU_IF_ROWS;
        w.launch.kernel = kernel_of(p->w.format, one);
        w.rows_unit = one ? 1 : K_ROWS;
        w.launch.groups[0] = p->w.layout == K_LAYOUT_GATED ? gpu_ceil(p->w.n / 2, K_COLUMNS / 2)
                                                           : gpu_ceil(p->w.n, K_COLUMNS);
        gpu_emit(op, &w, p);
    }
}

// Each matrix of the weight gives the columns of y that are its rows.
static void emit_matrices(gpu_op *op, const gpu_work *made, const k_gemm_params *p,
                          const pgd_weight *weight) {
    for (uint32_t i = 0; i < weight->n_matrices; i++) {
        const gpu_matrix *m = &weight->matrices[i];
        k_gemm_params part = *p;
        part.w = m->w;
        part.y.at += m->first * (int64_t)pgd_dtype_bytes(p->y.dtype);
        part.aux.at += m->first * (int64_t)pgd_dtype_bytes(p->aux.dtype);
        part.bias_at += m->first * (int64_t)sizeof(float);
        emit_matrix(op, made, &part);
    }
}

// of: NULL, or what stands before and behind the product.
static void emit_product(gpu_op *op, gpu_work *made, k_gemm_params *p, const pgd_weight *weight,
                         const pgd_tensor *x, gpu_product *of) {
    const gpu_tuned *tuned = gpu_of(op->d)->tuned;
    uint64_t bytes = 0;
    if (gpu_tuned_product(op->d, &weight->desc, x, &bytes) == NULL) {
        tuned = NULL;
    }
    if (tuned != NULL && tuned->emit_front != NULL && of != NULL && of->norm_w->rank != 0) {
        tuned->emit_front(op, of, gpu_library_product(op->d, &weight->desc, x, &bytes) != NULL);
    }
    gpu_library_emit(op, made, p, weight, x);
    if (tuned != NULL) {
        tuned->emit_product(op, made, p, weight, x, of);
        return;
    }
    p->x = bind_x(op, made, x, weight);
    emit_matrices(op, made, p, weight);
}

static pgd_status run_gemm(const pgd_exec *x, const pgd_gemm_args *a, gpu_product *of) {
    gpu_op op;
    gpu_op_open(&op, x, a->batch, a->rows, a->x.shape[0]);
    gpu_work w = gpu_work_of(&op, 0, 1, 1);
    k_gemm_params p = {.w = gpu_bind_weight(&op, &w, 1, a->w),
                       .y = gpu_bind(&op, &w, 3, "y", &a->y),
                       .bias_at = gpu_bind(&op, &w, 4, "bias", &a->bias).at,
                       .rows = gpu_rows(&op),
                       .has_bias = a->bias.rank != 0,
                       .aux_kind = a->aux_kind,
                       .act = a->act,
                       .alpha = a->alpha == 0 ? 1.0F : a->alpha,
                       .act_alpha = a->act_alpha,
                       .act_limit = a->act_limit};
    if (a->aux_kind != PGD_AUX_NONE) {
        p.aux = gpu_bind(&op, &w, 5, "aux", &a->aux);
    }
    emit_product(&op, &w, &p, a->w, &a->x, of);
    return op.code;
}

pgd_status gpu_op_gemm(const pgd_exec *x, const pgd_gemm_args *a) {
    return run_gemm(x, a, NULL);
}

pgd_status gpu_op_gemm_add(const pgd_exec *x, const pgd_gemm_add_args *a) {
    return gpu_op_gemm(x, a);
}

// The norm, unless the product's kernels make it.
static pgd_status run_front(const pgd_exec *x, const gpu_product *p) {
    const gpu_tuned *tuned = gpu_of(x->dev)->tuned;
    uint64_t bytes = 0;
    if (p->norm_w->rank == 0 ||
        (tuned != NULL && tuned->emit_front != NULL &&
         gpu_tuned_product(x->dev, &p->w->desc, p->normed, &bytes) != NULL)) {
        return PGD_OK;
    }
    const pgd_rmsnorm_args norm = {.size = sizeof(norm),
                                   .rows = p->rows,
                                   .batch = p->batch,
                                   .x = *p->x,
                                   .w = *p->norm_w,
                                   .out = *p->normed,
                                   .eps = p->eps};
    return gpu_op_rmsnorm(x, &norm);
}

pgd_status gpu_run_product(const pgd_exec *x, gpu_product *p) {
    pgd_gemm_args gemm = {.size = sizeof(gemm),
                          .rows = p->rows,
                          .batch = p->batch,
                          .w = p->w,
                          .x = p->norm_w->rank != 0 ? *p->normed : *p->x,
                          .y = *p->y};
    if (p->bias != NULL) {
        gemm.bias = *p->bias;
    }
    PGD_TRY(run_front(x, p));
    return run_gemm(x, &gemm, p);
}

// Both halves in one launch, without tmp.
static pgd_status run_gated(const pgd_exec *x, const pgd_gate_up_args *a, gpu_product *of) {
    const pgd_tensor *from = of->norm_w->rank != 0 ? of->normed : of->x;
    gpu_op op;
    gpu_op_open(&op, x, a->batch, a->rows, from->shape[0]);
    gpu_work w = gpu_work_of(&op, 0, 1, 1);
    k_gemm_params p = {.w = gpu_bind_weight(&op, &w, 1, a->w),
                       .y = gpu_bind(&op, &w, 3, "out", &a->out),
                       .bias_at = gpu_bind(&op, &w, 4, "bias", &a->bias).at,
                       .rows = gpu_rows(&op),
                       .has_bias = a->bias.rank != 0,
                       .act = a->act,
                       .alpha = 1,
                       .act_alpha = a->act_alpha,
                       .act_limit = a->act_limit};
    emit_product(&op, &w, &p, a->w, from, of);
    return op.code;
}

pgd_status gpu_op_gate_up(const pgd_exec *x, const pgd_gate_up_args *a) {
    gpu_product product = {.rows = a->rows,
                           .eps = a->eps,
                           .batch = a->batch,
                           .w = a->w,
                           .x = &a->x,
                           .norm_w = &a->norm_w,
                           .normed = &a->normed,
                           .bias = &a->bias,
                           .y = &a->tmp};
    const pgd_act_mul_args act = {.size = sizeof(act),
                                  .rows = a->rows,
                                  .batch = a->batch,
                                  .x = a->tmp,
                                  .out = a->out,
                                  .act = a->act,
                                  .act_alpha = a->act_alpha,
                                  .act_limit = a->act_limit};
    if (gpu_weight_layout(&a->w->desc) == K_LAYOUT_GATED) {
        PGD_TRY(run_front(x, &product));
        return run_gated(x, a, &product);
    }
    PGD_TRY(gpu_run_product(x, &product));
    return gpu_op_act_mul(x, &act);
}
