// See choose.h.
//
//   rows   1 ..  8 .. 16 .. 32 .. 64 | .. 512 | ..
//          gemm_small r8 r16 r32 r64 | large  | large
//                                    | t64    | t128
//   in their place on sm_90a: wgmma  | t64    | t128, t192 where the weight is wide
//
// Up to 64 rows a product is bound by reading the weight once: many groups, k cut into slices.
// Beyond, tiles of 128 columns; those of 64 rows as long as tiles of 128 would leave processors
// without work. wgmma counts rows along the first axis, so that the groups that run at a time read
// few columns of the weight, for all rows. All kernels add in one order, so this is a matter of
// speed alone.
#include "choose.h"

#include <stddef.h>
#include <stdio.h>
#include <string.h>

enum { ALIGN = 256, LARGE_ROWS = 512, WIDE_PANELS = 48 * 16, BF16 = K_BF16 };

int32_t cuda_capability(const char *arch) {
    int32_t value = 0;
    if (strncmp(arch, "sm_", 3) != 0 || sscanf(arch + 3, "%d", &value) != 1) {
        return 0;
    }
    return value > 0 ? value : 0;
}

static int32_t ceil_of(int64_t n, int64_t unit) {
    return (int32_t)((n + unit - 1) / unit);
}

// The six kernels of a product with their ranges of rows, the last of each from the table of
// kernels.
static const int32_t kernels[2][CUDA_CHOICES] = {
    {PGD_CUDA_gemm_small_bf16_r8, PGD_CUDA_gemm_small_bf16_r16, PGD_CUDA_gemm_small_bf16_r32,
     PGD_CUDA_gemm_small_bf16_r64, PGD_CUDA_gemm_large_bf16_t64, PGD_CUDA_gemm_large_bf16_t128},
    {PGD_CUDA_gemm_small_f16_r8, PGD_CUDA_gemm_small_f16_r16, PGD_CUDA_gemm_small_f16_r32,
     PGD_CUDA_gemm_small_f16_r64, PGD_CUDA_gemm_large_f16_t64, PGD_CUDA_gemm_large_f16_t128},
};

// t64, t128, t192.
static const int32_t hopper[2][3] = {
    {PGD_CUDA_gemm_wgmma_bf16_t64, PGD_CUDA_gemm_wgmma_bf16_t128, PGD_CUDA_gemm_wgmma_bf16_t192},
    {PGD_CUDA_gemm_wgmma_f16_t64, PGD_CUDA_gemm_wgmma_f16_t128, PGD_CUDA_gemm_wgmma_f16_t192},
};

static cuda_choice choice_of(const cuda_product *p, int32_t kernel, int64_t cap) {
    const pgd_cuda_kernel *k = &pgd_cuda_kernels[kernel];
    const bool is_small = (int32_t)k->rows <= CUDA_SMALL_ROWS && k->shared == 0;
    const bool is_hopper = k->columns == KC_LARGE && k->sm == 90;
    const int64_t rows = is_small ? p->small_cap : cap;
    cuda_choice c = {.kernel = kernel,
                     .rows_axis = is_small    ? 2
                                  : is_hopper ? 0
                                              : 1,
                     .rows_unit = (int32_t)k->rows,
                     .groups = {1, 1, 1}};
    c.groups[is_hopper ? 1 : 0] = (uint32_t)ceil_of(p->panels, k->columns / 8);
    if (is_small) {
        c.groups[1] = (uint32_t)p->n_slices;
    }
    c.groups[c.rows_axis] = (uint32_t)ceil_of(rows, k->rows);
    return c;
}

// Of the choices of a type the last two are of the family. Tiles of 192 rows read less from the
// second cache; they are for weights so wide that they fill the processors often enough.
static int32_t kernel_of(int32_t family, int32_t dtype, int32_t panels, int32_t i) {
    const int32_t type = dtype == BF16 ? 0 : 1;
    if (family != CUDA_WGMMA || i < CUDA_CHOICES - 2) {
        return kernels[type][i];
    }
    return hopper[type][i == CUDA_CHOICES - 2 ? 0 : panels >= WIDE_PANELS ? 2 : 1];
}

void cuda_choose_product(int32_t family, int32_t dtype, int32_t n, int32_t k, bool gated,
                         int64_t cap, cuda_product *out) {
    const int32_t least = 1;
    const int64_t cap_cores = kc_gemm_cores_rows(cap);
    *out = (cuda_product){
        .panels = gated ? ceil_of(n / 2, 4) : ceil_of(n, 8),
        .slice = kc_gemm_slice(n, k),
        .k_pad = ceil_of(k, KC_STEP) * KC_STEP,
        .small_cap = cap < CUDA_SMALL_ROWS ? (int32_t)cap : CUDA_SMALL_ROWS,
    };
    out->n_slices = ceil_of(k, out->slice);
    out->x_step = family == CUDA_WGMMA ? cap_cores * KC_STEP : 0;
    const uint64_t x_rows = (uint64_t)(family == CUDA_WGMMA ? cap_cores : cap);
    const uint64_t x_bytes = x_rows * (uint64_t)out->k_pad * 2;
    out->parts_at = (x_bytes + ALIGN - 1) / ALIGN * ALIGN;
    const uint64_t parts = (uint64_t)out->n_slices * (uint64_t)out->small_cap *
                           (uint64_t)out->panels * 8 * sizeof(float);
    out->scratch_bytes = out->parts_at + (out->n_slices > 1 ? parts : 0);
    int32_t from = least;
    for (int32_t i = 0; i < CUDA_CHOICES; i++) {
        cuda_choice *c = &out->choices[i];
        *c = choice_of(out, kernel_of(family, dtype, out->panels, i), cap);
        c->rows_least = from;
        c->rows_most = i == CUDA_CHOICES - 1   ? INT32_MAX
                       : i == CUDA_CHOICES - 2 ? LARGE_ROWS
                                               : c->rows_unit;
        from = c->rows_most + 1;
    }
}
