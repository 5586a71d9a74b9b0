// The list of kernels as a table.
#include "portable/portable.h"

const pgd_portable_kernel pgd_portable_kernels[PGD_PORTABLE_COUNT] = {
#define PGD_PORTABLE_ROW(kernel, items, params) \
    {.name = "pgd_" #kernel, .n_items = (items), .params_bytes = sizeof(params)},
    PGD_PORTABLE_KERNELS(PGD_PORTABLE_ROW)
#undef PGD_PORTABLE_ROW
};
