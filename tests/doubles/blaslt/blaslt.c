// libcublasLt.so.13 and libhipblaslt.so.1 for machines without one: the part that backends/gpu
// calls. Products run in the order of the stand-in device's streams. It is strict: what a call is
// given must be complete, whole numbers of 16 bytes where that was promised, and of this library.
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#if defined(BLASLT_cuda)
#include "cuda/cuda.h"
#define NAME(call) cublasLt##call
enum {
    COMPUTE_F32 = CUDA_COMPUTE_F32,
    TRANSPOSED = CUDA_TRANSPOSED,
    TRANS_A = CUDA_TRANS_A,
    WISH_SCRATCH = CUDA_WISH_SCRATCH,
    WISH_ALIGN = CUDA_WISH_ALIGN_A,
    ALGORITHM_BYTES = CUDA_ALGORITHM_BYTES,
};
#else
#include "hip/hip.h"
#define NAME(call) hipblasLt##call
enum {
    COMPUTE_F32 = HIP_COMPUTE_F32,
    TRANSPOSED = HIP_TRANSPOSED,
    TRANS_A = HIP_TRANS_A,
    WISH_SCRATCH = HIP_WISH_SCRATCH,
    WISH_ALIGN = 1000,
    ALGORITHM_BYTES = HIP_ALGORITHM_BYTES,
};
#endif
#include "pocl.h"

#define EXPORT DOUBLE_SHARED
#pragma GCC diagnostic ignored "-Wmissing-prototypes"

enum { OK = 0, INVALID = 7, FAILED = 13, MOST_ALIGNED = 4 };

typedef struct desc {
    int is_transposed;
} desc;

typedef struct layout {
    int type;
    int64_t rows, columns, stride;
} layout;

typedef struct wish {
    uint64_t scratch;
    int n_aligned;
} wish;

// What the heuristic gives: an algorithm, and behind it what the vendors agree on.
typedef struct result {
    unsigned char algorithm[ALGORITHM_BYTES];
    size_t scratch;
    int state;
    float waves;
    int reserved[4];
} result;

static const char mark[] = "an algorithm";

static void *made(size_t bytes, void **out) {
    *out = calloc(1, bytes);
    return *out;
}

static int gone(void *what) {
    free(what);
    return what == NULL ? INVALID : OK;
}

EXPORT int NAME(Create)(void **out) {
    return made(1, out) == NULL ? FAILED : OK;
}

EXPORT int NAME(Destroy)(void *handle) {
    return gone(handle);
}

EXPORT int NAME(MatmulDescCreate)(void **out, int compute, int scale) {
    return compute != COMPUTE_F32 || scale != GPU_BLASLT_F32 || made(sizeof(desc), out) == NULL
               ? INVALID
               : OK;
}

EXPORT int NAME(MatmulDescDestroy)(void *d) {
    return gone(d);
}

EXPORT int NAME(MatmulDescSetAttribute)(void *d, int what, const void *from, size_t bytes) {
    int32_t value = 0;
    if (what != TRANS_A || bytes != sizeof(value)) {
        return INVALID;
    }
    memcpy(&value, from, sizeof(value));
    ((desc *)d)->is_transposed = value == TRANSPOSED;
    return OK;
}

EXPORT int NAME(MatrixLayoutCreate)(void **out, int type, uint64_t rows, uint64_t columns,
                                    int64_t stride) {
    layout *l = made(sizeof(*l), out);
    if (l == NULL || stride < (int64_t)rows || rows == 0 || columns == 0) {
        return INVALID;
    }
    *l = (layout){type, (int64_t)rows, (int64_t)columns, stride};
    return OK;
}

EXPORT int NAME(MatrixLayoutDestroy)(void *l) {
    return gone(l);
}

EXPORT int NAME(MatmulPreferenceCreate)(void **out) {
    return made(sizeof(wish), out) == NULL ? FAILED : OK;
}

EXPORT int NAME(MatmulPreferenceDestroy)(void *w) {
    return gone(w);
}

EXPORT int NAME(MatmulPreferenceSetAttribute)(void *to, int what, const void *from, size_t bytes) {
    wish *w = to;
    uint32_t align = 0;
    if (what == WISH_SCRATCH && bytes == sizeof(w->scratch)) {
        memcpy(&w->scratch, from, sizeof(w->scratch));
        return OK;
    }
    if (what < WISH_ALIGN || what >= WISH_ALIGN + MOST_ALIGNED || bytes != sizeof(align)) {
        return INVALID;
    }
    memcpy(&align, from, sizeof(align));
    w->n_aligned += align == 16;
    return OK;
}

// The shapes of a product fit each other.
static int fits(const desc *d, const layout *a, const layout *b, const layout *c, const layout *y) {
    return d->is_transposed && a->rows == b->rows && a->columns == y->rows &&
           b->columns == y->columns && c->rows == y->rows && c->columns == y->columns &&
           a->type == b->type && c->type == y->type &&
           (a->type == GPU_BLASLT_F16 || a->type == GPU_BLASLT_BF16) &&
           (y->type == GPU_BLASLT_F32 || y->type == a->type);
}

EXPORT int NAME(MatmulAlgoGetHeuristic)(void *handle, void *d, void *a, void *b, void *c, void *y,
                                        void *wanted, int most, void *out, int *out_n) {
    const wish *w = wanted;
    result *r = out;
    *out_n = 0;
    if (handle == NULL || most < 1 || !fits(d, a, b, c, y) ||
        (WISH_ALIGN < 1000 && w->n_aligned != MOST_ALIGNED)) {
        return INVALID;
    }
    if (double_settings_get()->blas_none != 0) {
        return OK;
    }
    *r = (result){.scratch = w->scratch / 2};
    memcpy(r->algorithm, mark, sizeof(mark));
    *out_n = 1;
    return OK;
}

static int is_aligned(const void *address, const layout *l) {
    const int64_t bytes = l->type == GPU_BLASLT_F32 ? 4 : 2;
    return (uintptr_t)address % 16 == 0 && (l->columns == 1 || l->stride * bytes % 16 == 0);
}

EXPORT int NAME(Matmul)(void *handle, void *d, const float *alpha, const void *a, void *a_layout,
                        const void *b, void *b_layout, const float *beta, const void *c,
                        void *c_layout, void *y, void *y_layout, const void *algorithm,
                        void *scratch, size_t bytes, void *stream) {
    static _Atomic int64_t n_products;
    const layout *la = a_layout;
    const layout *lb = b_layout;
    const layout *lc = c_layout;
    const layout *ly = y_layout;
    const int64_t failing = double_settings_get()->blas_fail;
    if (handle == NULL || !fits(d, la, lb, lc, ly) || *alpha != 1.0f || scratch == NULL ||
        bytes < 1 || memcmp(algorithm, mark, sizeof(mark)) != 0 || !is_aligned(a, la) ||
        !is_aligned(b, lb) || !is_aligned(c, lc) || !is_aligned(y, ly) ||
        (uintptr_t)scratch % 16 != 0 || (c == y && lc->stride != ly->stride)) {
        return INVALID;
    }
    if (++n_products == failing) {
        return FAILED;
    }
    const double_product p = {.w = (uintptr_t)a,
                              .x = (uintptr_t)b,
                              .add = *beta == 0.0f ? 0 : (uintptr_t)c,
                              .y = (uintptr_t)y,
                              .m = ly->columns,
                              .n = ly->rows,
                              .k = la->rows,
                              .w_stride = la->stride,
                              .x_stride = lb->stride,
                              .add_stride = lc->stride,
                              .y_stride = ly->stride,
                              .in = la->type,
                              .out = ly->type};
    return double_multiply(stream, &p) == DOUBLE_OK ? OK : FAILED;
}
