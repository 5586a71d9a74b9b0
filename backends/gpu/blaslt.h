// cuBLASLt and hipBLASLt: one interface under two sets of names, opened by name and never linked.
//
//   gpu_blaslt_vendor   the names and the numbers that differ; one per plugin
//   gpu_blaslt_library  what dlopen found, or why it found nothing
//   gpu_blaslt          of one queue: a handle, and what the library said about the last shapes
//
// Their sums run in an order that depends on the shape and the version, so this is for
// `deterministic=off` alone. Matrices are column-major there: w [n][k] and x [m][k] are theirs of
// [k, n] (transposed) and [k, m], y of [n, m].
#ifndef PGD_BACKENDS_GPU_BLASLT_H
#define PGD_BACKENDS_GPU_BLASLT_H

#include "driver.h"

// X(slot, name behind the prefix, parameters): calls that all return a status, 0 = success.
#define GPU_BLASLT_CALLS(X)                                                                       \
    X(create, "Create", (void **out))                                                             \
    X(destroy, "Destroy", (void *handle))                                                         \
    X(desc_create, "MatmulDescCreate", (void **out, int compute, int scale))                      \
    X(desc_destroy, "MatmulDescDestroy", (void *desc))                                            \
    X(desc_set, "MatmulDescSetAttribute", (void *desc, int what, const void *from, size_t n))     \
    X(layout_create, "MatrixLayoutCreate",                                                        \
      (void **out, int type, uint64_t rows, uint64_t columns, int64_t stride))                    \
    X(layout_destroy, "MatrixLayoutDestroy", (void *layout))                                      \
    X(wish_create, "MatmulPreferenceCreate", (void **out))                                        \
    X(wish_destroy, "MatmulPreferenceDestroy", (void *wish))                                      \
    X(wish_set, "MatmulPreferenceSetAttribute",                                                   \
      (void *wish, int what, const void *from, size_t n))                                         \
    X(heuristic, "MatmulAlgoGetHeuristic",                                                        \
      (void *handle, void *desc, void *a, void *b, void *c, void *d, void *wish, int most,        \
       void *out, int *out_n))                                                                    \
    X(matmul, "Matmul",                                                                           \
      (void *handle, void *desc, const void *alpha, const void *a, void *a_layout, const void *b, \
       void *b_layout, const void *beta, const void *c, void *c_layout, void *d, void *d_layout,  \
       const void *algorithm, void *scratch, size_t bytes, void *stream))

typedef struct gpu_blaslt_api {
#define GPU_BLASLT_SLOT(slot, name, params) int(*slot) params;
    GPU_BLASLT_CALLS(GPU_BLASLT_SLOT)
#undef GPU_BLASLT_SLOT
} gpu_blaslt_api;

enum { // cudaDataType, hipDataType
    GPU_BLASLT_F32 = 0,
    GPU_BLASLT_F16 = 2,
    GPU_BLASLT_BF16 = 14,
    GPU_BLASLT_RESULT_BYTES = 128, // room for a heuristic's result: algorithm, size_t, status ...
};

typedef struct gpu_blaslt_vendor {
    const char *name; // in a plan
    const char *prefix;
    const char *const *libraries; // to try, up to a NULL
    int compute_f32;
    int transposed; // the operation
    int trans_a;    // attribute of a product
    int scratch;    // attribute of a wish: most bytes of scratch
    int align_a;    // the same: bytes that A starts at; B, C, D follow. -1: there is none
    uint32_t algorithm_bytes;
} gpu_blaslt_vendor;

typedef struct gpu_blaslt_library {
    const gpu_blaslt_vendor *vendor; // NULL: nobody asked for it, or it is not there
    gpu_blaslt_api api;
    char reason[96]; // why it is not there
} gpu_blaslt_library;

// Opens it when the option `deterministic` is off. Never fails: the reason says what is missing.
void gpu_blaslt_load(const pgd_host *host, const gpu_blaslt_vendor *vendor,
                     gpu_blaslt_library *out);

typedef struct gpu_blaslt gpu_blaslt;

// Addresses of the device.
typedef struct gpu_blaslt_call {
    const gpu_product_call *what;
    uint64_t w;
    uint64_t x;
    uint64_t y;
    uint64_t add; // 0: none
    uint64_t scratch;
} gpu_blaslt_call;

// For one queue, NULL when the library has no handle; called by one thread at a time.
gpu_blaslt *gpu_blaslt_create(const pgd_host *host, const gpu_blaslt_library *l);
void gpu_blaslt_destroy(const pgd_host *host, gpu_blaslt *lt);
// As gpu_driver's product. The first call for a shape asks the library, which allocates.
pgd_status gpu_blaslt_product(gpu_blaslt *lt, const gpu_blaslt_call *call, void *stream,
                              bool only_asks) PGD_MUST_USE;

#endif
