// The products on matrix units, lane by lane on the emulator, for each unit: close to kernels/ref,
// nothing outside their tensors touched, and the same bits from every kernel and for every number
// of rows.
#define _POSIX_C_SOURCE 200809L
#include "matrix/emulated_kernels.h"
#include "matrix/kernels.h"
#include "portable/test_product.h"

static const pgd_emulated_unit *const emulated[PGD_UNIT_COUNT] = {
    [PGD_UNIT_mfma] = &pgd_emulated_mfma,     [PGD_UNIT_wmma] = &pgd_emulated_wmma,
    [PGD_UNIT_wmma12] = &pgd_emulated_wmma12, [PGD_UNIT_dpas16] = &pgd_emulated_dpas16,
    [PGD_UNIT_dpas8] = &pgd_emulated_dpas8,
};

typedef test_product product;

typedef struct bench {
    test_operands o;
    int32_t unit;
    int32_t k_pad;
    void *x_packed;
} bench;

static void launch(const bench *b, int32_t kernel, const uint32_t groups[3], uint32_t n_items,
                   void *const memories[8], const void *params) {
    const pgd_emulated_unit *u = emulated[b->unit];
    k_u8 *m[8];
    memcpy(m, memories, sizeof(m));
    pgd_emulator_warp = u->lanes;
    const int code = pgd_emulator_run(u->kernels[kernel], groups, n_items, m, params);
    pgd_emulator_warp = PGD_EMULATOR_WARP;
    if (code != 0) {
        fail_msg("%s, kernel %d: lanes wait at different places (%d)",
                 pgd_matrix_units[b->unit].name, (int)kernel, code);
    }
}

static void pack_x(bench *b) {
    const product *p = b->o.is;
    const km_pack_x_params params = {.x = {.s0 = p->k, .dtype = PGD_F32},
                                     .out_s0 = b->k_pad,
                                     .rows = {.mode = 1, .n = p->rows},
                                     .n = p->k,
                                     .dtype = p->dtype};
    void *const m[8] = {&b->o.head, b->o.x, b->x_packed};
    const uint32_t groups[3] = {test_ceil(b->k_pad, KM_PACK), (uint32_t)p->rows, 1};
    launch(b, PGD_MATRIX_pack_x, groups, 64, m, &params);
}

static void make(bench *b, const product *p, int32_t unit) {
    *b = (bench){.unit = unit, .k_pad = (int32_t)test_ceil(p->k, KM_STEP) * KM_STEP};
    test_operands_make(&b->o, p);
    b->x_packed = test_room((int64_t)p->rows * b->k_pad * 2);
    pack_x(b);
}

static void drop(bench *b) {
    test_operands_drop(&b->o);
    free(b->x_packed);
}

// y of gemm_few or gemm_many, in memory of its own.
static void *run(bench *b, bool is_few) {
    const test_operands *o = &b->o;
    const product *p = o->is;
    const pgd_matrix_unit *u = &pgd_matrix_units[b->unit];
    const int32_t is_f16 = p->dtype == PGD_F16;
    const km_gemm_params params = {.g = test_gemm_params(o, b->k_pad),
                                   .slice = p->slice,
                                   .n_slices = o->n_slices,
                                   .panels = o->panels};
    float *parts = test_room((int64_t)o->n_slices * p->rows * o->panels * 8 * 4);
    void *y = test_y(o);
    void *const m[8] = {&b->o.head, o->packed, b->x_packed, y, o->bias, o->aux, parts};
    if (is_few) {
        const uint32_t groups[3] = {test_ceil(o->panels, u->few_panels), (uint32_t)o->n_slices,
                                    test_ceil(p->rows, KM_FEW_ROWS)};
        const uint32_t merge[3] = {test_ceil(o->panels, 64), (uint32_t)p->rows, 1};
        launch(b, PGD_MATRIX_gemm_few_bf16 + is_f16, groups, (uint32_t)u->few_items, m, &params);
        if (o->n_slices > 1) {
            launch(b, PGD_MATRIX_gemm_merge, merge, 64, m, &params);
        }
    } else {
        const uint32_t groups[3] = {test_ceil(o->panels, u->panels),
                                    test_ceil(p->rows, KM_MANY_ROWS), 1};
        launch(b, PGD_MATRIX_gemm_many_bf16 + is_f16, groups, (uint32_t)u->many_items, m, &params);
    }
    free(parts);
    return y;
}

// Both kernels of each unit over one product; then its first row alone.
static void check(const product *p) {
    for (int32_t unit = 0; unit < PGD_UNIT_COUNT; unit++) {
        product one = *p;
        bench b, single;
        one.rows = 1;
        make(&b, p, unit);
        make(&single, &one, unit);
        void *many = run(&b, false);
        void *few = run(&b, true);
        void *alone = run(&single, true);
        test_assert_near(&b.o, many, pgd_matrix_units[unit].name);
        test_assert_rows_equal(&b.o, many, few, p->rows);
        test_assert_near(&b.o, few, pgd_matrix_units[unit].name);
        test_assert_rows_equal(&b.o, many, alone, 1);
        free(many);
        free(few);
        free(alone);
        drop(&single);
        drop(&b);
    }
}

static void ragged_shapes(void **state) {
    // slices that are a step, and that are not a power of two
    const product all[] = {
        {.dtype = PGD_BF16, .n = 1, .k = 40, .rows = 2, .y_dtype = PGD_F32, .slice = 16},
        {.dtype = PGD_BF16, .n = 20, .k = 331, .rows = 33, .y_dtype = PGD_BF16, .slice = 112},
    };
    (void)state;
    test_shapes(test_product_shapes, TEST_PRODUCT_SHAPES, check);
    test_shapes(all, sizeof(all) / sizeof(all[0]), check);
}

static void what_follows(void **state) {
    (void)state;
    for (int i = 0; i < TEST_PRODUCT_ENDS; i++) {
        const product p = test_product_end(i);
        check(&p);
    }
}

// Rows behind the live ones are neither read nor written, and no live row runs nothing.
static void live_rows(void **state) {
    const product p = {.dtype = PGD_BF16,
                       .n = 24,
                       .k = 64,
                       .rows = 20,
                       .y_dtype = PGD_F32,
                       .slice = 32,
                       .alpha = 1};
    const int32_t live[] = {0, 1, 17};
    (void)state;
    for (int32_t i = 0; i < 3 * PGD_UNIT_COUNT * 2; i++) {
        bench b;
        make(&b, &p, i / 2 % PGD_UNIT_COUNT);
        b.o.head.n_tokens = live[i / 2 / PGD_UNIT_COUNT];
        uint32_t *y = run(&b, i % 2 == 0);
        test_assert_live(&b.o, y, b.o.head.n_tokens);
        free(y);
        drop(&b);
    }
}

// The slices of a weight: whole steps, and enough of them for one row.
static void slices(void **state) {
    const pgd_matrix_unit *mfma = &pgd_matrix_units[PGD_UNIT_mfma];
    const pgd_matrix_unit *dpas = &pgd_matrix_units[PGD_UNIT_dpas16];
    (void)state;
    for (int32_t unit = 0; unit < PGD_UNIT_COUNT; unit++) {
        for (int32_t n = 1; n < 200000; n = n * 3 + 1) {
            for (int32_t k = 1; k < 60000; k = k * 2 + 7) {
                const int32_t slice = km_gemm_slice(&pgd_matrix_units[unit], n, k);
                assert_true(slice >= 256 && slice % KM_STEP == 0);
            }
        }
    }
    assert_int_equal(km_gemm_slice(mfma, 4096, 4096), 256);
    assert_int_equal(km_gemm_slice(dpas, 4096, 4096), 512);
    assert_int_equal(km_gemm_slice(mfma, 128256, 4096), 2048);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ragged_shapes),
        cmocka_unit_test(what_follows),
        cmocka_unit_test(live_rows),
        cmocka_unit_test(slices),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
