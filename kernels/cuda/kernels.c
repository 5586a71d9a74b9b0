// The list of kernels as a table.
#include "cuda/kernels.h"

const pgd_cuda_kernel pgd_cuda_kernels[PGD_CUDA_COUNT] = {
#define PGD_CUDA_ROW(kernel, items, params, bytes, r, c, least) \
    {.name = "pgd_cuda_" #kernel,                               \
     .n_items = (items),                                        \
     .params_bytes = sizeof(params),                            \
     .shared = (bytes),                                         \
     .rows = (r),                                               \
     .columns = (c),                                            \
     .sm = (least)},
    PGD_CUDA_KERNELS(PGD_CUDA_ROW)
#undef PGD_CUDA_ROW
};
