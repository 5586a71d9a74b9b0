// The norm: close to kernels/ref, packed as pack_x packs what it wrote, nothing outside its rows
// touched, and a row alone gives the bits it has among others.
#define _POSIX_C_SOURCE 200809L
#include "test_cuda.h"

typedef struct norm {
    int32_t n;
    int32_t rows;
    int32_t x_dtype;
    int32_t residual_dtype; // 0: nothing is added
    int32_t out_dtype;
    int32_t gap; // elements between rows: not a multiple of 8 makes addresses odd
    int32_t dtype;
} norm;

typedef struct bench {
    const norm *is;
    int32_t stride;
    int32_t k_pad;
    int32_t head[8];
    float *w;
    void *x;
    void *residual;
    void *out;
    uint16_t *packed;
} bench;

static size_t size_of(int32_t dtype) {
    return dtype == PGD_F32 ? 4 : 2;
}

static void *room_of(const bench *b, int32_t dtype) {
    return test_room((int64_t)((size_t)(b->is->rows - 1) * (size_t)b->stride + (size_t)b->is->n) *
                     (int64_t)size_of(dtype));
}

static void make(bench *b, const norm *is) {
    *b = (bench){.is = is, .stride = is->n + is->gap, .head = {is->rows, 1, 0, is->rows}};
    b->k_pad = (is->n + KC_STEP - 1) / KC_STEP * KC_STEP;
    b->w = test_numbers(PGD_F32, is->n, 1, 1);
    b->x = test_numbers(is->x_dtype, (int64_t)is->rows * b->stride, 2, 3);
    b->residual = is->residual_dtype == 0
                      ? NULL
                      : test_numbers(is->residual_dtype, (int64_t)is->rows * b->stride, 3, 2);
    b->out = room_of(b, is->out_dtype);
    b->packed = test_room((int64_t)is->rows * b->k_pad * 2);
}

static void drop(bench *b) {
    free(b->w);
    free(b->x);
    free(b->residual);
    free(b->out);
    free(b->packed);
}

static void run(bench *b, int32_t writes) {
    const norm *is = b->is;
    const kc_norm_params p = {.n = {.x = {.s0 = b->stride, .dtype = is->x_dtype},
                                    .residual = {.s0 = b->stride, .dtype = is->residual_dtype},
                                    .out = {.s0 = b->stride, .dtype = is->out_dtype},
                                    .rows = {.mode = 1, .n = is->rows},
                                    .heads = 1,
                                    .n = is->n,
                                    .eps = 1e-5F},
                              .packed_s0 = b->k_pad,
                              .dtype = is->dtype,
                              .adds = is->residual_dtype != 0,
                              .writes = writes};
    void *const m[8] = {b->head, b->x, b->residual, b->w, b->out, b->packed};
    test_launch(PGD_CUDA_norm, 1, (uint32_t)is->rows, 1, m, &p);
}

static void assert_near(bench *b, int32_t dtype, const void *got, const float *want) {
    const double unit = dtype == PGD_F32 ? 0x1p-21 : dtype == PGD_BF16 ? 0x1p-8 : 0x1p-11;
    for (int32_t r = 0; r < b->is->rows; r++) {
        for (int32_t c = 0; c < b->is->n; c++) {
            const int64_t at = (int64_t)r * b->stride + c;
            const double is = pgd_ref_load(dtype, got, at), should = (double)want[at];
            if (!(fabs(is - should) <= fabs(should) * (unit + 0x1p-20) + 1e-7)) {
                fail_msg("n %d: [%d, %d] is %.9g, not %.9g", b->is->n, r, c, is, should);
            }
        }
        for (int32_t c = b->is->n; c < b->stride && r + 1 < b->is->rows && got == b->out; c++) {
            unsigned char gap = 0xee; // between rows nothing is written
            assert_memory_equal((const char *)got +
                                    ((size_t)r * (size_t)b->stride + (size_t)c) * size_of(dtype),
                                &gap, 1);
        }
    }
}

// The reference's out, and its residual in place of want_residual.
static void expect(const bench *b, float *want, float *want_residual) {
    const norm *is = b->is;
    const pgd_tensor w = {.offset = (uint64_t)(uintptr_t)b->w,
                          .dtype = PGD_F32,
                          .rank = 1,
                          .shape = {is->n},
                          .stride = {1}};
    const pgd_tensor out = test_tensor(PGD_F32, want, is->rows, 0, is->n, b->stride);
    pgd_tensor x = test_tensor(is->x_dtype, b->x, is->rows, 0, is->n, b->stride);
    if (is->residual_dtype != 0) { // the sum as it is stored, which is what is normed
        void *stored = malloc((size_t)is->rows * (size_t)b->stride * size_of(is->residual_dtype));
        for (int64_t i = 0; i < (int64_t)is->rows * b->stride; i++) {
            pgd_ref_store(is->residual_dtype, stored, i,
                          pgd_ref_load(is->x_dtype, b->x, i) +
                              pgd_ref_load(is->residual_dtype, b->residual, i));
            want_residual[i] = (float)pgd_ref_load(is->residual_dtype, stored, i);
        }
        x = test_tensor(is->residual_dtype, stored, is->rows, 0, is->n, b->stride);
    }
    const pgd_rmsnorm_args a = {.size = sizeof(a), .x = x, .w = w, .out = out, .eps = 1e-5F};
    assert_int_equal(pgd_ref_rmsnorm(NULL, &a), PGD_OK);
    if (is->residual_dtype != 0) {
        free((void *)(uintptr_t)x.offset); // NOLINT
    }
}

// What pack_x makes of the rows that the norm wrote.
static void assert_packed(bench *b) {
    const kc_pack_x_params p = {.x = {.s0 = b->stride, .dtype = b->is->out_dtype},
                                .out_s0 = b->k_pad,
                                .rows = {.mode = 1, .n = b->is->rows},
                                .n = b->is->n,
                                .dtype = b->is->dtype};
    const size_t bytes = (size_t)b->is->rows * (size_t)b->k_pad * 2;
    void *packed = test_room((int64_t)bytes);
    void *const m[8] = {b->head, b->out, packed};
    test_launch(PGD_CUDA_pack_x, (uint32_t)(b->k_pad + 511) / 512, (uint32_t)b->is->rows, 1, m, &p);
    assert_memory_equal(packed, b->packed, bytes);
    free(packed);
}

static void check(const norm *is) {
    const size_t n = (size_t)is->rows * (size_t)(is->n + is->gap);
    float *want = calloc(n, sizeof(float)), *sum = calloc(n, sizeof(float));
    norm one = *is;
    bench b, single;
    make(&b, is);
    expect(&b, want, sum);
    run(&b, 1);
    assert_near(&b, is->out_dtype, b.out, want);
    if (is->residual_dtype != 0) {
        assert_near(&b, is->residual_dtype, b.residual, sum);
    }
    assert_packed(&b);
    one.rows = 1;
    make(&single, &one);
    run(&single, 0); // packed alone: out stays as it is
    assert_memory_equal(single.packed, b.packed, (size_t)b.k_pad * 2);
    assert_int_equal(*(unsigned char *)single.out, 0xee);
    drop(&single);
    drop(&b);
    free(want);
    free(sum);
}

static void norms(void **state) {
    static const norm all[] = {
        {1, 2, PGD_BF16, 0, PGD_BF16, 3, PGD_BF16},
        {2048, 3, PGD_BF16, 0, PGD_BF16, 0, PGD_BF16},
        {2100, 2, PGD_F32, 0, PGD_BF16, 4, PGD_BF16},
        {576, 3, PGD_F16, 0, PGD_F32, 8, PGD_F16},
        {777, 3, PGD_BF16, 0, PGD_F16, 1, PGD_BF16},
        {4096, 2, PGD_BF16, PGD_F32, PGD_BF16, 0, PGD_BF16},
        {1000, 3, PGD_BF16, PGD_BF16, PGD_BF16, 5, PGD_BF16},
        {8192 + 2048 + 9, 2, PGD_F32, PGD_BF16, PGD_BF16, 7, PGD_BF16}, // beyond what is held
        {12288, 1, PGD_BF16, 0, PGD_F16, 0, PGD_F16},
    };
    (void)state;
    for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++) {
        check(&all[i]);
    }
}

static void other_order(void **state) {
    pgd_emulator_backwards = 1;
    norms(state);
    pgd_emulator_backwards = 0;
}

// The order of the sum, spelled out: an item's chain, lanes 16 to 1 apart, warps in a row.
static void order_of_summation(void **state) {
    static float x[2304], w[2304], out[2304], lanes[256];
    const norm is = {2304, 1, PGD_F32, 0, PGD_F32, 0, PGD_BF16};
    uint64_t rng = 9;
    float sum = 0;
    bench b;
    (void)state;
    for (int i = 0; i < 2304; i++) {
        x[i] = test_number(&rng);
        w[i] = 1;
    }
    for (int i = 0; i < 2304; i++) {
        lanes[i / 8 % 256] = fmaf(x[i], x[i], lanes[i / 8 % 256]);
    }
    for (int mask = 16; mask > 0; mask /= 2) {
        for (int i = 0; i < 256; i++) {
            if ((i & mask) == 0) {
                lanes[i] = lanes[i ^ mask] = lanes[i] + lanes[i ^ mask];
            }
        }
    }
    for (int i = 0; i < 256; i += 32) {
        sum = sum + lanes[i];
    }
    sum = 1.0F / sqrtf(sum / 2304.0F + 1e-5F);
    make(&b, &is);
    memcpy(b.x, x, sizeof(x));
    memcpy(b.w, w, sizeof(w));
    run(&b, 1);
    for (int i = 0; i < 2304; i++) {
        out[i] = x[i] * sum * 1.0F;
    }
    assert_memory_equal(b.out, out, sizeof(out));
    drop(&b);
}

static void live_rows(void **state) {
    const norm is = {64, 4, PGD_BF16, 0, PGD_F32, 0, PGD_BF16};
    bench b;
    (void)state;
    make(&b, &is);
    b.head[0] = 2;
    run(&b, 1);
    for (int32_t r = 0; r < 4; r++) {
        for (int32_t c = 0; c < 64; c++) {
            assert_true((((uint32_t *)b.out)[r * 64 + c] == UINT32_C(0xeeeeeeee)) == (r >= 2));
            assert_true((b.packed[r * 64 + c] == 0xeeee) == (r >= 2));
        }
    }
    drop(&b);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(norms),
        cmocka_unit_test(other_order),
        cmocka_unit_test(order_of_summation),
        cmocka_unit_test(live_rows),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
