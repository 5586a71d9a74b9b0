// Which tuned kernel a product takes, and how it is launched: numbers only, no device.
#ifndef PGD_BACKENDS_CUDA_CHOOSE_H
#define PGD_BACKENDS_CUDA_CHOOSE_H

#include <stdbool.h>

#include "cuda/kernels.h"

// Instructions of the products of many rows: mma.sync, or wgmma on sm_90a.
enum { CUDA_MMA, CUDA_WGMMA };

enum { CUDA_SMALL_ROWS = 64, CUDA_CHOICES = 6 }; // most rows of gemm_small; kernels a product has

// Capability as 10 * major + minor ("sm_90" is 90); 0 for what is no such name.
int32_t cuda_capability(const char *arch);

// One of the kernels of a product, for steps of rows_least to rows_most rows.
typedef struct cuda_choice {
    int32_t kernel; // PGD_CUDA_...
    int32_t rows_least;
    int32_t rows_most;
    int32_t rows_axis; // of groups: which one follows the rows
    int32_t rows_unit; // rows a group takes
    uint32_t groups[3];
} cuda_choice;

// How a product of a weight [n, k] over at most `cap` rows is computed. Offsets are from the start
// of its scratch.
typedef struct cuda_product {
    int32_t panels;    // of 8 columns
    int32_t slice;     // k of a slice
    int32_t n_slices;  // of k
    int32_t k_pad;     // elements of a packed row of x
    int64_t x_step;    // elements from step to step of x in cores, 0: CUDA_MMA
    int32_t small_cap; // rows of a slice in parts
    uint64_t parts_at;
    uint64_t scratch_bytes;
    // Rows 1 to INT32_MAX, without gaps, in order. With x_step those of more than CUDA_SMALL_ROWS
    // rows take x in cores.
    cuda_choice choices[CUDA_CHOICES];
} cuda_product;

// dtype: of the weight and of x, PGD_BF16 or PGD_F16. gated: columns of both halves in a panel.
// family: CUDA_MMA or CUDA_WGMMA.
void cuda_choose_product(int32_t family, int32_t dtype, int32_t n, int32_t k, bool gated,
                         int64_t cap, cuda_product *out);

#endif
