// Parameters of the matrix-unit kernels: those of the portable product, and what the faster one
// wants to know beside them. The same structs on the device and on the host.
#ifndef PGD_KERNELS_MATRIX_PARAMS_H
#define PGD_KERNELS_MATRIX_PARAMS_H

#include "portable/params.h"

#define KM_STEP      16  // k of an instruction; x is padded to it with zeros
#define KM_FEW_ROWS  16  // rows of x that a group of gemm_few takes
#define KM_MANY_ROWS 128 // of gemm_many
#define KM_PACK      512 // elements of a row that a group of pack_x takes

// x as the products read it: rows of 16-bit numbers, zeros up to a multiple of KM_STEP.
typedef struct km_pack_x_params {
    k_view x;
    k_i64 out_at;
    k_i64 out_s0; // elements from row to row: k rounded up to KM_STEP
    k_rows rows;
    k_i32 n;     // k
    k_i32 dtype; // K_BF16 | K_F16: of the weight
} km_pack_x_params;

typedef struct km_gemm_params {
    k_gemm_params g; // x: what pack_x wrote (at, s0)
    k_i64 parts_at;  // [n_slices][rows.n][panels * 8] f32: gemm_few with n_slices > 1
    k_i32 slice;     // k of a slice, km_gemm_slice
    k_i32 n_slices;  // ceil(k / slice)
    k_i32 panels;    // of the packed weight
    k_i32 zero;
} km_gemm_params;

#endif
