// See matrix.h.
#include "matrix.h"

#include <string.h>

enum { ALIGN = 256, MERGE_PANELS = 64 };

_Static_assert(sizeof(km_gemm_params) <= GPU_PARAMS_BYTES, "room for the parameters");
_Static_assert((int)PGD_MATRIX_COUNT <= (int)GPU_MOST_TUNED, "room for the functions of a device");

void gpu_matrix_choose(const pgd_matrix_unit *u, int32_t n, int32_t k, bool is_gated, int64_t cap,
                       gpu_matrix_plan *out) {
    *out = (gpu_matrix_plan){
        .panels = (int32_t)(is_gated ? gpu_ceil(n / 2, K_COLUMNS / 2) : gpu_ceil(n, K_COLUMNS)),
        .slice = km_gemm_slice(u, n, k),
        .k_pad = (int32_t)gpu_ceil(k, KM_STEP) * KM_STEP,
        .few_cap = cap < GPU_MATRIX_FEW ? (int32_t)cap : GPU_MATRIX_FEW,
    };
    out->n_slices = (int32_t)gpu_ceil(k, out->slice);
    const uint64_t x_bytes = (uint64_t)cap * (uint64_t)out->k_pad * 2;
    const uint64_t parts = (uint64_t)out->n_slices * (uint64_t)out->few_cap *
                           (uint64_t)out->panels * K_COLUMNS * sizeof(float);
    out->parts_at = (x_bytes + ALIGN - 1) / ALIGN * ALIGN;
    out->scratch_bytes = out->parts_at + (out->n_slices > 1 ? parts : 0);
}

const char *gpu_matrix_product(const pgd_matrix_unit *u, const pgd_weight_desc *w,
                               const pgd_tensor *x, uint64_t *out_scratch) {
    gpu_matrix_plan p;
    *out_scratch = 0;
    if (!gpu_tuned_takes(w, x)) {
        return NULL;
    }
    gpu_matrix_choose(u, (int32_t)w->n, (int32_t)w->k, gpu_weight_layout(w) == K_LAYOUT_GATED,
                      x->shape[0], &p);
    *out_scratch = p.scratch_bytes;
    return w->dtype == PGD_BF16 ? "matrix_bf16" : "matrix_f16";
}

// x in the weight's type, at the start of scratch.
static void pack_x(gpu_op *op, const gpu_matrix_plan *p, const pgd_weight_desc *w,
                   const pgd_tensor *x) {
    gpu_work work = gpu_work_of(op, PGD_PORTABLE_COUNT + PGD_MATRIX_pack_x, 1, 1);
    km_pack_x_params params = {.x = gpu_bind(op, &work, 1, "x", x),
                               .out_s0 = p->k_pad,
                               .rows = gpu_rows(op),
                               .n = (int32_t)w->k,
                               .dtype = w->dtype};
    params.out_at = gpu_bind_scratch(op, &work, 2, p->scratch_bytes).at;
    work.launch.groups[0] = gpu_ceil(p->k_pad, KM_PACK);
    gpu_emit(op, &work, &params);
}

// A launch of the kernel for steps of rows_least to rows_most rows, whose groups along an axis take
// rows_unit each.
static gpu_work work_of(const gpu_work *made, int32_t kernel, int32_t rows_axis,
                        int32_t rows_unit) {
    const bool is_many = rows_unit == KM_MANY_ROWS;
    gpu_work work = *made;
    work.launch.kernel = PGD_PORTABLE_COUNT + kernel;
    work.rows_axis = rows_axis;
    work.rows_unit = rows_unit;
    work.when = GPU_IF_BETWEEN;
    work.rows_least = is_many ? GPU_MATRIX_FEW + 1 : 1;
    work.rows_most = is_many ? INT32_MAX : GPU_MATRIX_FEW;
    return work;
}

static void emit_few(const pgd_matrix_unit *u, gpu_op *op, const gpu_work *made,
                     const gpu_matrix_plan *p, km_gemm_params params) {
    const int32_t is_f16 = params.g.w.format == K_F16;
    gpu_work few = work_of(made, PGD_MATRIX_gemm_few_bf16 + is_f16, 2, KM_FEW_ROWS);
    gpu_work merge = work_of(made, PGD_MATRIX_gemm_merge, 1, 1);
    few.launch.groups[0] = gpu_ceil(p->panels, u->few_panels);
    few.launch.groups[1] = (uint32_t)p->n_slices;
    merge.launch.groups[0] = gpu_ceil(p->panels, MERGE_PANELS);
    params.g.rows.n = params.g.rows.n < p->few_cap ? params.g.rows.n : p->few_cap; // of parts
    gpu_emit(op, &few, &params);
    if (p->n_slices > 1) {
        gpu_emit(op, &merge, &params);
    }
}

void gpu_matrix_emit(const pgd_matrix_unit *u, gpu_op *op, const gpu_work *made,
                     const k_gemm_params *plain, const pgd_weight *weight, const pgd_tensor *x) {
    const pgd_weight_desc *w = &weight->desc;
    gpu_matrix_plan p;
    gpu_matrix_choose(u, (int32_t)w->n, (int32_t)w->k, plain->w.layout == K_LAYOUT_GATED,
                      x->shape[0], &p);
    pack_x(op, &p, w, x);
    gpu_work work = *made;
    const k_view scratch = gpu_bind_scratch(op, &work, 2, p.scratch_bytes);
    km_gemm_params params = {.g = *plain,
                             .parts_at = scratch.at + (int64_t)p.parts_at,
                             .slice = p.slice,
                             .n_slices = p.n_slices,
                             .panels = p.panels};
    params.g.x = (k_view){.at = scratch.at, .s0 = p.k_pad, .dtype = w->dtype};
    work.launch.memories[6] = work.launch.memories[2];
    emit_few(u, op, &work, &p, params);
    gpu_work many =
        work_of(&work, PGD_MATRIX_gemm_many_bf16 + (w->dtype == PGD_F16), 1, KM_MANY_ROWS);
    many.launch.groups[0] = gpu_ceil(p.panels, u->panels);
    gpu_emit(op, &many, &params);
}
