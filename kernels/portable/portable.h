// The portable kernels as their host sees them: numbers, names, sizes, and the OpenCL source.
#ifndef PGD_KERNELS_PORTABLE_PORTABLE_H
#define PGD_KERNELS_PORTABLE_PORTABLE_H

#ifndef PGD_PORTABLE_HOST
#define PGD_PORTABLE_HOST 1
#endif
#include "portable/params.h"

#ifdef __cplusplus
extern "C" {
#endif

#include "portable/list.inc"

#define PGD_PORTABLE_MEMORIES 8

enum {
#define PGD_PORTABLE_ENUM(name, items, params) PGD_PORTABLE_##name,
    PGD_PORTABLE_KERNELS(PGD_PORTABLE_ENUM)
#undef PGD_PORTABLE_ENUM
        PGD_PORTABLE_COUNT
};

typedef struct pgd_portable_kernel {
    const char *name; // of the compiled function: "pgd_embed"
    uint32_t n_items; // of a group
    uint32_t params_bytes;
} pgd_portable_kernel;

// One row for each PGD_PORTABLE_ number.
extern const pgd_portable_kernel pgd_portable_kernels[PGD_PORTABLE_COUNT];

// The text of all kernels as OpenCL C 1.2 (portable_source.c, made at build time).
extern const char pgd_portable_source[];
extern const uint64_t pgd_portable_source_bytes;

#ifdef __cplusplus
}
#endif
#endif
