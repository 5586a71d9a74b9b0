// What tests of kernels on the emulator share: numbers and tensors in host memory; a product with
// weights in panels, what kernels/ref makes of it, and how near a kernel has to come.
#ifndef PGD_KERNELS_PORTABLE_TEST_PRODUCT_H
#define PGD_KERNELS_PORTABLE_TEST_PRODUCT_H

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "portable/params.h"
#include "ref/ref.h"

static inline float test_number(uint64_t *rng) {
    *rng = *rng * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (float)((double)(*rng >> 40) / (double)(1 << 23) - 1.0);
}

// n numbers of a dtype, in memory whose ends the address sanitizer watches.
static inline void *test_numbers(int32_t dtype, int64_t n, uint64_t seed, double scale) {
    uint64_t rng = seed;
    void *p = malloc((size_t)n * (dtype == PGD_F32 ? 4 : 2));
    assert_non_null(p);
    for (int64_t i = 0; i < n; i++) {
        pgd_ref_store(dtype, p, i, (double)test_number(&rng) * scale);
    }
    return p;
}

// Memory of n bytes, all 0xee: not zero, and as a number tiny in every dtype.
static inline void *test_room(int64_t n) {
    void *p = malloc((size_t)n);
    assert_non_null(p);
    memset(p, 0xee, (size_t)n);
    return p;
}

static inline pgd_tensor test_tensor(int32_t dtype, void *p, int64_t rows, int64_t heads, int64_t n,
                                     int64_t stride) {
    pgd_tensor t = {.offset = (uint64_t)(uintptr_t)p, .dtype = dtype, .rank = heads > 0 ? 3 : 2};
    t.shape[0] = rows;
    t.stride[0] = stride;
    if (heads > 0) {
        t.shape[1] = heads;
        t.stride[1] = n;
    }
    t.shape[t.rank - 1] = n;
    t.stride[t.rank - 1] = 1;
    return t;
}

// ---- a product ---------------------------------------------------------------------------------

typedef struct test_product {
    int32_t dtype; // of the weight, and of x as it is multiplied
    int32_t n;
    int32_t k;
    int32_t rows;
    int32_t y_dtype;
    int32_t aux_kind;
    int32_t act;
    int32_t slice;
    bool is_gated;
    bool has_bias;
    bool is_aligned; // rows of y and aux begin at multiples of 16 bytes
    float alpha;
    float act_limit;
} test_product;

// Ragged in each dimension.
static const test_product test_product_shapes[] = {
    {.dtype = PGD_BF16, .n = 8, .k = 1, .rows = 1, .y_dtype = PGD_F32, .slice = 64},
    {.dtype = PGD_BF16, .n = 1, .k = 16, .rows = 2, .y_dtype = PGD_F32, .slice = 64},
    {.dtype = PGD_BF16, .n = 136, .k = 70, .rows = 7, .y_dtype = PGD_F32, .slice = 64},
    {.dtype = PGD_F16, .n = 20, .k = 200, .rows = 13, .y_dtype = PGD_F16, .slice = 128},
    {.dtype = PGD_BF16, .n = 264, .k = 331, .rows = 33, .y_dtype = PGD_BF16, .slice = 128},
    {.dtype = PGD_BF16, .n = 61, .k = 130, .rows = 131, .y_dtype = PGD_F32, .slice = 256},
    {.dtype = PGD_F16, .n = 130, .k = 257, .rows = 66, .y_dtype = PGD_F32, .slice = 64},
};

enum { TEST_PRODUCT_SHAPES = sizeof(test_product_shapes) / sizeof(test_product_shapes[0]) };

static inline void test_shapes(const test_product *shapes, size_t n,
                               void (*check)(const test_product *p)) {
    for (size_t i = 0; i < n; i++) {
        test_product p = shapes[i];
        p.alpha = 1;
        check(&p);
    }
}

// What follows the sums of a product, in every form.
static const test_product test_product_ends[] = {
    {.aux_kind = PGD_AUX_ADD, .y_dtype = PGD_F32, .alpha = 1},
    {.aux_kind = PGD_AUX_ADD, .y_dtype = PGD_BF16, .alpha = 1},
    {.aux_kind = PGD_AUX_MUL, .y_dtype = PGD_F16, .alpha = 0.5F, .has_bias = true},
    {.act = PGD_ACT_SILU, .y_dtype = PGD_F32, .alpha = 1, .has_bias = true, .act_limit = 0.5F},
    {.is_gated = true, .act = PGD_ACT_SILU, .y_dtype = PGD_BF16, .alpha = 1},
    {.is_gated = true, .act = PGD_ACT_GELU_TANH, .y_dtype = PGD_F32, .alpha = 1, .has_bias = true},
};

enum { TEST_PRODUCT_ENDS = sizeof(test_product_ends) / sizeof(test_product_ends[0]) };

// Ragged, in 3 slices; a gated one has 45 columns, so that its last panel holds one.
static inline test_product test_product_end(int i) {
    test_product p = test_product_ends[i];
    p.dtype = PGD_BF16;
    p.n = 90;
    p.k = 150;
    p.rows = 19;
    p.slice = 64;
    return p;
}

typedef struct test_operands {
    const test_product *is;
    int32_t panels;
    int32_t columns; // of y
    int32_t stride;  // of y and aux
    int32_t n_slices;
    void *w;      // [n, k]
    void *packed; // in panels
    float *x;     // [rows, k]
    float *bias;
    void *aux;
    float *want; // [rows, columns]
    pgd_batch_head head;
} test_operands;

static inline uint32_t test_ceil(int32_t n, int32_t unit) {
    return (uint32_t)((n + unit - 1) / unit);
}

static inline size_t test_bytes_of(int32_t dtype) {
    return dtype == PGD_F32 ? 4 : 2;
}

// As kernels/portable lays a weight out: the definition of its indexes, one by one.
static inline void test_pack(test_operands *o) {
    const test_product *p = o->is;
    const int32_t half = p->n / 2;
    const uint16_t *from = o->w;
    const size_t bytes = (size_t)o->panels * 8 * (size_t)p->k * 2;
    uint16_t *to = NULL;
    assert_int_equal(posix_memalign((void **)&to, 16, bytes), 0);
    memset(to, 0, bytes);
    for (int32_t row = 0; row < p->n; row++) {
        const int32_t in = p->is_gated ? row % half : row;
        const int32_t panel = p->is_gated ? in / 4 : in / 8;
        const int32_t column = p->is_gated ? in % 4 + (row >= half ? 4 : 0) : in % 8;
        for (int32_t k = 0; k < p->k; k++) {
            to[((size_t)panel * (size_t)p->k + (size_t)k) * 8 + (size_t)column] =
                from[(size_t)row * (size_t)p->k + (size_t)k];
        }
    }
    o->packed = to;
}

// What kernels/ref makes of it, in f32.
static inline void test_expect(test_operands *o) {
    const test_product *p = o->is;
    const pgd_ref_weight w = {
        .dtype = p->dtype, .act_dtype = p->dtype, .n = p->n, .k = p->k, .rows = o->w};
    float *tmp = malloc((size_t)p->rows * (size_t)p->n * sizeof(float));
    const pgd_tensor x = test_tensor(PGD_F32, o->x, p->rows, 0, p->k, p->k);
    const pgd_tensor bias = {.offset = (uint64_t)(uintptr_t)o->bias,
                             .dtype = PGD_F32,
                             .rank = p->has_bias ? 1 : 0,
                             .shape = {p->n},
                             .stride = {1}};
    o->want = malloc((size_t)p->rows * (size_t)o->columns * sizeof(float));
    const pgd_tensor y = test_tensor(PGD_F32, o->want, p->rows, 0, o->columns, o->columns);
    const pgd_gate_up_args gated = {.size = sizeof(gated),
                                    .w = (pgd_weight *)&w,
                                    .x = x,
                                    .bias = bias,
                                    .tmp = test_tensor(PGD_F32, tmp, p->rows, 0, p->n, p->n),
                                    .out = y,
                                    .act = p->act,
                                    .act_limit = p->act_limit};
    const pgd_gemm_args plain = {
        .size = sizeof(plain),
        .w = (pgd_weight *)&w,
        .x = x,
        .y = y,
        .bias = bias,
        .aux = test_tensor(p->y_dtype, o->aux, p->rows, 0, o->columns, o->stride),
        .act = p->act,
        .aux_kind = p->aux_kind,
        .alpha = p->alpha,
        .act_limit = p->act_limit};
    assert_int_equal(p->is_gated ? pgd_ref_gate_up(NULL, &gated) : pgd_ref_gemm(NULL, &plain),
                     PGD_OK);
    free(tmp);
}

static inline void test_operands_make(test_operands *o, const test_product *p) {
    *o = (test_operands){.is = p,
                         .panels =
                             (int32_t)(p->is_gated ? test_ceil(p->n / 2, 4) : test_ceil(p->n, 8)),
                         .columns = p->is_gated ? p->n / 2 : p->n,
                         .n_slices = (int32_t)test_ceil(p->k, p->slice),
                         .head = {.n_tokens = p->rows, .n_seqs = 1, .n_out = p->rows}};
    o->stride = o->columns + (p->is_aligned ? 8 : 3);
    o->w = test_numbers(p->dtype, (int64_t)p->n * p->k, 1, 0.2);
    o->x = test_numbers(PGD_F32, (int64_t)p->rows * p->k, 2, 1);
    o->bias = test_numbers(PGD_F32, p->n, 3, 1);
    o->aux = test_numbers(p->y_dtype, (int64_t)p->rows * o->stride, 4, 1);
    test_pack(o);
    test_expect(o);
}

static inline void test_operands_drop(test_operands *o) {
    void *all[] = {o->w, o->packed, o->x, o->bias, o->aux, o->want};
    for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++) {
        free(all[i]);
    }
}

// Parameters that kernels of products have in common; x is packed with so many elements a row.
static inline k_gemm_params test_gemm_params(const test_operands *o, int32_t k_pad) {
    const test_product *p = o->is;
    return (k_gemm_params){.w = {.n = p->n,
                                 .k = p->k,
                                 .format = p->dtype,
                                 .layout = p->is_gated ? K_LAYOUT_GATED : K_LAYOUT_PANELS},
                           .x = {.s0 = k_pad, .dtype = p->dtype},
                           .y = {.s0 = o->stride, .dtype = p->y_dtype},
                           .aux = {.s0 = o->stride, .dtype = p->y_dtype},
                           .rows = {.mode = 1, .n = p->rows},
                           .has_bias = p->has_bias,
                           .aux_kind = p->aux_kind,
                           .act = p->act,
                           .alpha = p->alpha,
                           .act_limit = p->act_limit};
}

// Room for y that ends with its last element.
static inline void *test_y(const test_operands *o) {
    const int64_t elements = (int64_t)(o->is->rows - 1) * o->stride + o->columns;
    return test_room(elements * (int64_t)test_bytes_of(o->is->y_dtype));
}

// Room for f32 sums of k products and the rounding of y; what lies between rows is untouched.
static inline void test_assert_near(const test_operands *o, const void *y, const char *name) {
    const test_product *p = o->is;
    const double unit = p->y_dtype == PGD_F32 ? 0 : p->y_dtype == PGD_BF16 ? 0x1p-8 : 0x1p-11;
    const size_t item = test_bytes_of(p->y_dtype);
    for (int32_t r = 0; r < p->rows; r++) {
        for (int32_t c = 0; c < o->columns; c++) {
            const double got = pgd_ref_load(p->y_dtype, y, (int64_t)r * o->stride + c);
            const double want = (double)o->want[(int64_t)r * o->columns + c];
            if (!(fabs(got - want) <= fabs(want) * (unit + 2e-6) + 2e-6 + p->k * 3e-8)) {
                fail_msg("%s, rows %d, n %d, k %d: [%d, %d] is %.9g, not %.9g", name, p->rows, p->n,
                         p->k, r, c, got, want);
            }
        }
        for (int32_t c = o->columns; c < o->stride && r + 1 < p->rows; c++) {
            const uint32_t gap = UINT32_C(0xeeeeeeee);
            const size_t at = ((size_t)r * (size_t)o->stride + (size_t)c) * item;
            assert_memory_equal((const char *)y + at, &gap, item);
        }
    }
}

static inline void test_assert_rows_equal(const test_operands *o, const void *a, const void *b,
                                          int32_t rows) {
    const size_t item = test_bytes_of(o->is->y_dtype);
    for (int32_t r = 0; r < rows; r++) {
        const size_t at = (size_t)r * (size_t)o->stride * item;
        assert_memory_equal((const char *)a + at, (const char *)b + at, (size_t)o->columns * item);
    }
}

// Of y in f32 exactly the first rows are written.
static inline void test_assert_live(const test_operands *o, const uint32_t *y, int32_t live) {
    for (int32_t r = 0; r < o->is->rows; r++) {
        for (int32_t c = 0; c < o->columns; c++) {
            const bool is_untouched = y[r * o->stride + c] == UINT32_C(0xeeeeeeee);
            assert_true(is_untouched == (r >= live));
        }
    }
}

#endif
