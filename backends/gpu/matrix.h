// The products of kernels/matrix as a driver with such units asks for them (tuned.h): which of the
// kernels for how many rows, with which grid and scratch.
//
//   x -> pack_x -> gemm_few (a slice of k a group) -> gemm_merge -> y   up to GPU_MATRIX_FEW rows
//               -> gemm_many                                     -> y   beyond
//
// All kernels of a unit add in one order, so the rows are a matter of speed alone.
#ifndef PGD_BACKENDS_GPU_MATRIX_H
#define PGD_BACKENDS_GPU_MATRIX_H

#include "matrix/kernels.h"
#include "tuned.h"

enum { GPU_MATRIX_FEW = 64 }; // most rows of gemm_few: more read the weight too often

// How a product of a weight [n, k] over at most `cap` rows is computed. Offsets are from the start
// of its scratch.
typedef struct gpu_matrix_plan {
    int32_t panels;   // of 8 columns
    int32_t slice;    // k of a slice
    int32_t n_slices; // of k
    int32_t k_pad;    // elements of a packed row of x
    int32_t few_cap;  // rows of a slice in parts
    uint64_t parts_at;
    uint64_t scratch_bytes;
} gpu_matrix_plan;

void gpu_matrix_choose(const pgd_matrix_unit *u, int32_t n, int32_t k, bool is_gated, int64_t cap,
                       gpu_matrix_plan *out);

// gpu_tuned's product and emit_product, for a unit. Units of one vendor agree on the scratch.
const char *gpu_matrix_product(const pgd_matrix_unit *u, const pgd_weight_desc *w,
                               const pgd_tensor *x, uint64_t *out_scratch);
void gpu_matrix_emit(const pgd_matrix_unit *u, gpu_op *op, const gpu_work *made,
                     const k_gemm_params *plain, const pgd_weight *weight, const pgd_tensor *x);

// Rows of gpu_tuned's list of kernels, for units with so many items of a group.
#define GPU_MATRIX_ROW(kernel, items, params) \
    {.name = "pgd_matrix_" #kernel, .n_items = (items), .params_bytes = sizeof(params)},
#define GPU_MATRIX_ROWS(few, many) PGD_MATRIX_KERNELS(GPU_MATRIX_ROW, few, many)

#endif
