// The products on tensor cores, lane by lane on the emulator: close to kernels/ref, nothing outside
// their tensors touched, and the same bits from every kernel and for every number of rows.
#define _POSIX_C_SOURCE 200809L
#include "test_cuda.h"

typedef test_product product;

typedef struct bench {
    test_operands o;
    void *x_packed;
    void *x_cores; // for gemm_wgmma
    float *parts;
    uint32_t *counters;
} bench;

// Elements of a step of x in cores.
static int64_t cores_step(const product *p) {
    return kc_gemm_cores_rows(p->rows) * KC_STEP;
}

static void pack_x(bench *b) {
    const product *is = b->o.is;
    const int32_t k_pad = (int32_t)test_ceil(is->k, KC_STEP) * KC_STEP;
    kc_pack_x_params p = {.x = {.s0 = is->k, .dtype = PGD_F32},
                          .out_s0 = k_pad,
                          .rows = {.mode = 1, .n = is->rows},
                          .n = is->k,
                          .dtype = is->dtype};
    void *m[8] = {&b->o.head, b->o.x, b->x_packed};
    test_launch(PGD_CUDA_pack_x, test_ceil(k_pad, 512), (uint32_t)is->rows, 1, m, &p);
    p.out_s0 = cores_step(is);
    m[2] = b->x_cores;
    test_launch(PGD_CUDA_pack_x_cores, test_ceil(k_pad, 128), test_ceil(is->rows, 8), 1, m, &p);
}

static void make(bench *b, const product *p) {
    const int64_t steps = test_ceil(p->k, KC_STEP);
    *b = (bench){.parts = NULL};
    test_operands_make(&b->o, p);
    b->x_packed = test_room(p->rows * steps * KC_STEP * 2);
    b->x_cores = test_room(cores_step(p) * 2 * steps);
    if (b->o.n_slices > 1) {
        b->parts = test_room((int64_t)b->o.n_slices * p->rows * b->o.panels * 8 * 4);
    }
    b->counters = calloc(64, sizeof(uint32_t));
    pack_x(b);
}

static void drop(bench *b) {
    test_operands_drop(&b->o);
    free(b->x_packed);
    free(b->x_cores);
    free(b->parts);
    free(b->counters);
}

// y of a kernel, in memory of its own.
static void *run(bench *b, int32_t kernel, int32_t merges) {
    const test_operands *o = &b->o;
    const pgd_cuda_kernel *k = &pgd_cuda_kernels[kernel];
    kc_gemm_params p = {.g = test_gemm_params(o, (int32_t)test_ceil(o->is->k, KC_STEP) * KC_STEP),
                        .slice = o->is->slice,
                        .n_slices = o->n_slices,
                        .panels = o->panels,
                        .merges = merges};
    void *y = test_y(o);
    void *const m[8] = {&b->o.head, o->packed, b->x_packed, y,
                        o->bias,    o->aux,    b->parts,    b->counters};
    const uint32_t rows = test_ceil(o->is->rows, (int32_t)k->rows);
    if (kernel >= PGD_CUDA_gemm_wgmma_bf16_t64) {
        void *const cores[8] = {&b->o.head, o->packed, b->x_cores, y, o->bias, o->aux};
        p.g.x.s0 = cores_step(o->is);
        test_launch(kernel, rows, test_ceil(o->panels, 16), 1, cores, &p);
        return y;
    }
    if (k->n_items == 256) {
        test_launch(kernel, test_ceil(o->panels, 16), rows, 1, m, &p);
        return y;
    }
    test_launch(kernel, test_ceil(o->panels, 32), (uint32_t)p.n_slices, rows, m, &p);
    if (!merges && p.n_slices > 1) {
        test_launch(PGD_CUDA_gemm_merge, test_ceil(o->panels, 32), (uint32_t)o->is->rows, 1, m, &p);
    }
    for (int i = 0; i < 64; i++) {
        assert_int_equal(b->counters[i], 0);
    }
    return y;
}

// Every kernel of the weight's type over one product; then one row alone.
static void check(const product *p) {
    const int32_t first =
        p->dtype == PGD_BF16 ? PGD_CUDA_gemm_large_bf16_t64 : PGD_CUDA_gemm_large_f16_t64;
    const int32_t hopper =
        p->dtype == PGD_BF16 ? PGD_CUDA_gemm_wgmma_bf16_t64 : PGD_CUDA_gemm_wgmma_f16_t64;
    product one = *p;
    bench b, single;
    void *y, *other;
    make(&b, p);
    y = run(&b, first, 0);
    test_assert_near(&b.o, y, "t64");
    for (int32_t i = 1; i < 6; i++) {
        other = run(&b, first + i, i % 2);
        test_assert_near(&b.o, other, pgd_cuda_kernels[first + i].name);
        test_assert_rows_equal(&b.o, y, other, p->rows);
        free(other);
    }
    for (int32_t i = 0; i < 3; i++) {
        other = run(&b, hopper + i, 0);
        test_assert_near(&b.o, other, pgd_cuda_kernels[hopper + i].name);
        test_assert_rows_equal(&b.o, y, other, p->rows);
        free(other);
    }
    one.rows = 1;
    make(&single, &one);
    other = run(&single, first + 2, 1);
    test_assert_rows_equal(&b.o, y, other, 1);
    free(other);
    free(y);
    drop(&single);
    drop(&b);
}

static void ragged_shapes(void **state) {
    const product all[] = {
        // the stages of gemm_wgmma come round three times
        {.dtype = PGD_BF16, .n = 24, .k = 770, .rows = 9, .y_dtype = PGD_F32, .slice = 320},
        {.dtype = PGD_F16, .n = 24, .k = 704, .rows = 9, .y_dtype = PGD_F32, .slice = 704},
    };
    (void)state;
    test_shapes(test_product_shapes, TEST_PRODUCT_SHAPES, check);
    test_shapes(all, sizeof(all) / sizeof(all[0]), check);
}

// Where rows begin at multiples of 16 bytes, 8 columns are stored at a time: the same bits as one
// by one, of which the last panel has but 4.
static void aligned_rows(void **state) {
    static const int32_t dtypes[] = {PGD_F32, PGD_BF16, PGD_F16};
    (void)state;
    for (int32_t i = 0; i < 6; i++) {
        const product p = {.dtype = i % 2 != 0 ? PGD_F16 : PGD_BF16,
                           .n = i == 5 ? 40 : 44 - 4 * (i % 3 == 0),
                           .k = 72,
                           .rows = 11,
                           .y_dtype = dtypes[i % 3],
                           .aux_kind = i < 3 ? PGD_AUX_ADD : PGD_AUX_NONE,
                           .slice = 64,
                           .is_aligned = true,
                           .alpha = 1};
        check(&p);
    }
}

static void what_follows(void **state) {
    (void)state;
    for (int i = 0; i < TEST_PRODUCT_ENDS; i++) {
        const product p = test_product_end(i);
        check(&p);
    }
}

// A barrier that is missing between warps shows when they run in the other order.
static void other_order(void **state) {
    pgd_emulator_backwards = 1;
    what_follows(state);
    aligned_rows(state);
    pgd_emulator_backwards = 0;
}

// Rows behind the live ones are neither read nor written, and no live row runs nothing.
static void live_rows(void **state) {
    const product p = {.dtype = PGD_BF16,
                       .n = 24,
                       .k = 64,
                       .rows = 20,
                       .y_dtype = PGD_F32,
                       .slice = 64,
                       .alpha = 1};
    static const int32_t bf16[] = {
        PGD_CUDA_gemm_large_bf16_t64, PGD_CUDA_gemm_large_bf16_t128, PGD_CUDA_gemm_small_bf16_r8,
        PGD_CUDA_gemm_small_bf16_r16, PGD_CUDA_gemm_small_bf16_r32,  PGD_CUDA_gemm_small_bf16_r64,
        PGD_CUDA_gemm_wgmma_bf16_t64, PGD_CUDA_gemm_wgmma_bf16_t128, PGD_CUDA_gemm_wgmma_bf16_t192,
    };
    enum { N_BF16 = sizeof(bf16) / sizeof(bf16[0]) };
    const int32_t live[] = {0, 1, 17};
    bench b;
    (void)state;
    make(&b, &p);
    for (int i = 0; i < 3; i++) {
        for (int32_t k = 0; k < N_BF16; k++) {
            b.o.head.n_tokens = live[i];
            uint32_t *y = run(&b, bf16[k], 1);
            test_assert_live(&b.o, y, live[i]);
            free(y);
        }
    }
    drop(&b);
}

// The slices of a weight: whole steps, and enough of them for one row.
static void slices(void **state) {
    (void)state;
    for (int32_t n = 1; n < 200000; n = n * 3 + 1) {
        for (int32_t k = 1; k < 60000; k = k * 2 + 7) {
            const int32_t slice = kc_gemm_slice(n, k);
            assert_true(slice >= 256 && slice % KC_STEP == 0);
        }
    }
    assert_int_equal(kc_gemm_slice(4096, 4096), 512);
    assert_int_equal(kc_gemm_slice(128256, 4096), 4096);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ragged_shapes), cmocka_unit_test(aligned_rows),
        cmocka_unit_test(what_follows),  cmocka_unit_test(other_order),
        cmocka_unit_test(live_rows),     cmocka_unit_test(slices),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
