// The products on matrix units, lane by lane on the emulator, for each unit: close to kernels/ref,
// nothing outside their tensors touched, and the same bits from every kernel and for every number
// of rows.
#define _POSIX_C_SOURCE 200809L
#include <stdbool.h>

#include "cuda/test_cuda.h"
#include "matrix/emulated_kernels.h"
#include "matrix/kernels.h"

static const pgd_emulated_unit *const emulated[PGD_UNIT_COUNT] = {
    [PGD_UNIT_mfma] = &pgd_emulated_mfma,     [PGD_UNIT_wmma] = &pgd_emulated_wmma,
    [PGD_UNIT_wmma12] = &pgd_emulated_wmma12, [PGD_UNIT_dpas16] = &pgd_emulated_dpas16,
    [PGD_UNIT_dpas8] = &pgd_emulated_dpas8,
};

typedef struct product {
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
    float alpha;
    float act_limit;
} product;

typedef struct bench {
    const product *is;
    int32_t unit;
    int32_t panels;
    int32_t columns; // of y
    int32_t stride;  // of y and aux
    int32_t k_pad;
    int32_t n_slices;
    void *w; // [n, k]
    void *packed;
    float *x;
    float *bias;
    void *aux;
    void *x_packed;
    float *want; // [rows, columns]
    pgd_batch_head head;
} bench;

static uint32_t ceil_of(int32_t n, int32_t unit) {
    return (uint32_t)((n + unit - 1) / unit);
}

static size_t bytes_of(int32_t dtype) {
    return dtype == PGD_F32 ? 4 : 2;
}

// As kernels/portable lays a weight out: the definition of its indexes, one by one.
static void pack(bench *b) {
    const product *p = b->is;
    const k_weight w = {.n = p->n,
                        .k = p->k,
                        .format = p->dtype,
                        .layout = p->is_gated ? K_LAYOUT_GATED : K_LAYOUT_PANELS};
    uint16_t *to = NULL;
    const size_t bytes = (size_t)b->panels * 8 * (size_t)p->k * 2;
    assert_int_equal(posix_memalign((void **)&to, 16, bytes), 0);
    memset(to, 0, bytes);
    for (int32_t row = 0; row < p->n; row++) {
        const int32_t half = p->n / 2;
        const int32_t slot = w.layout == K_LAYOUT_PANELS ? row
                             : row < half                ? row / 4 * 8 + row % 4
                                          : (row - half) / 4 * 8 + 4 + (row - half) % 4;
        for (int32_t k = 0; k < p->k; k++) {
            to[((int64_t)(slot / 8) * p->k + k) * 8 + slot % 8] =
                ((const uint16_t *)b->w)[(int64_t)row * p->k + k];
        }
    }
    b->packed = to;
}

// What kernels/ref makes of it, in f32.
static void expect(bench *b) {
    const product *p = b->is;
    const pgd_ref_weight w = {
        .dtype = p->dtype, .act_dtype = p->dtype, .n = p->n, .k = p->k, .rows = b->w};
    float *tmp = malloc((size_t)p->rows * (size_t)p->n * sizeof(float));
    const pgd_tensor x = test_tensor(PGD_F32, b->x, p->rows, 0, p->k, p->k);
    const pgd_tensor bias = {.offset = (uint64_t)(uintptr_t)b->bias,
                             .dtype = PGD_F32,
                             .rank = p->has_bias ? 1 : 0,
                             .shape = {p->n},
                             .stride = {1}};
    b->want = malloc((size_t)p->rows * (size_t)b->columns * sizeof(float));
    const pgd_tensor y = test_tensor(PGD_F32, b->want, p->rows, 0, b->columns, b->columns);
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
        .aux = test_tensor(p->y_dtype, b->aux, p->rows, 0, b->columns, b->stride),
        .act = p->act,
        .aux_kind = p->aux_kind,
        .alpha = p->alpha,
        .act_limit = p->act_limit};
    assert_int_equal(p->is_gated ? pgd_ref_gate_up(NULL, &gated) : pgd_ref_gemm(NULL, &plain),
                     PGD_OK);
    free(tmp);
}

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
    const product *p = b->is;
    const km_pack_x_params params = {.x = {.s0 = p->k, .dtype = PGD_F32},
                                     .out_s0 = b->k_pad,
                                     .rows = {.mode = 1, .n = p->rows},
                                     .n = p->k,
                                     .dtype = p->dtype};
    void *const m[8] = {&b->head, b->x, b->x_packed};
    const uint32_t groups[3] = {ceil_of(b->k_pad, KM_PACK), (uint32_t)p->rows, 1};
    launch(b, PGD_MATRIX_pack_x, groups, 64, m, &params);
}

static void make(bench *b, const product *p, int32_t unit) {
    *b = (bench){.is = p,
                 .unit = unit,
                 .panels = (int32_t)(p->is_gated ? ceil_of(p->n / 2, 4) : ceil_of(p->n, 8)),
                 .columns = p->is_gated ? p->n / 2 : p->n,
                 .k_pad = (int32_t)ceil_of(p->k, KM_STEP) * KM_STEP,
                 .n_slices = (int32_t)ceil_of(p->k, p->slice),
                 .head = {.n_tokens = p->rows, .n_seqs = 1, .n_out = p->rows}};
    b->stride = b->columns + 3;
    b->w = test_numbers(p->dtype, (int64_t)p->n * p->k, 1, 0.2);
    b->x = test_numbers(PGD_F32, (int64_t)p->rows * p->k, 2, 1);
    b->bias = test_numbers(PGD_F32, p->n, 3, 1);
    b->aux = test_numbers(p->y_dtype, (int64_t)p->rows * b->stride, 4, 1);
    b->x_packed = test_room((int64_t)p->rows * b->k_pad * 2);
    pack(b);
    expect(b);
    pack_x(b);
}

static void drop(bench *b) {
    void *all[] = {b->w, b->packed, b->x, b->bias, b->aux, b->x_packed, b->want};
    for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++) {
        free(all[i]);
    }
}

// y of gemm_few or gemm_many, in memory of its own that ends with its last element.
static void *run(bench *b, bool is_few) {
    const product *p = b->is;
    const pgd_matrix_unit *u = &pgd_matrix_units[b->unit];
    const int32_t is_f16 = p->dtype == PGD_F16;
    const km_gemm_params params = {
        .g = {.w = {.n = p->n,
                    .k = p->k,
                    .format = p->dtype,
                    .layout = p->is_gated ? K_LAYOUT_GATED : K_LAYOUT_PANELS},
              .x = {.s0 = b->k_pad, .dtype = p->dtype},
              .y = {.s0 = b->stride, .dtype = p->y_dtype},
              .aux = {.s0 = b->stride, .dtype = p->y_dtype},
              .rows = {.mode = 1, .n = p->rows},
              .has_bias = p->has_bias,
              .aux_kind = p->aux_kind,
              .act = p->act,
              .alpha = p->alpha,
              .act_limit = p->act_limit},
        .slice = p->slice,
        .n_slices = b->n_slices,
        .panels = b->panels};
    const int64_t elements = (int64_t)(p->rows - 1) * b->stride + b->columns;
    float *parts = test_room((int64_t)b->n_slices * p->rows * b->panels * 8 * 4);
    void *y = test_room(elements * (int64_t)bytes_of(p->y_dtype));
    void *const m[8] = {&b->head, b->packed, b->x_packed, y, b->bias, b->aux, parts};
    if (is_few) {
        const uint32_t groups[3] = {ceil_of(b->panels, u->few_panels), (uint32_t)b->n_slices,
                                    ceil_of(p->rows, KM_FEW_ROWS)};
        const uint32_t merge[3] = {ceil_of(b->panels, 64), (uint32_t)p->rows, 1};
        launch(b, PGD_MATRIX_gemm_few_bf16 + is_f16, groups, (uint32_t)u->few_items, m, &params);
        if (b->n_slices > 1) {
            launch(b, PGD_MATRIX_gemm_merge, merge, 64, m, &params);
        }
    } else {
        const uint32_t groups[3] = {ceil_of(b->panels, u->panels), ceil_of(p->rows, KM_MANY_ROWS),
                                    1};
        launch(b, PGD_MATRIX_gemm_many_bf16 + is_f16, groups, (uint32_t)u->many_items, m, &params);
    }
    free(parts);
    return y;
}

// Room for f32 sums of k products and the rounding of y; what lies between rows is untouched.
static void assert_near(const bench *b, const void *y, const char *name) {
    const product *p = b->is;
    const double unit = p->y_dtype == PGD_F32 ? 0 : p->y_dtype == PGD_BF16 ? 0x1p-8 : 0x1p-11;
    const uint64_t gap = UINT64_C(0xeeeeeeeeeeeeeeee);
    for (int32_t r = 0; r < p->rows; r++) {
        for (int32_t c = 0; c < b->columns; c++) {
            const double got = pgd_ref_load(p->y_dtype, y, (int64_t)r * b->stride + c);
            const double want = (double)b->want[(int64_t)r * b->columns + c];
            if (!(fabs(got - want) <= fabs(want) * (unit + 2e-6) + 2e-6 + p->k * 3e-8)) {
                fail_msg("%s %s, rows %d, n %d, k %d: [%d, %d] is %.9g, not %.9g",
                         pgd_matrix_units[b->unit].name, name, p->rows, p->n, p->k, r, c, got,
                         want);
            }
        }
        if (r + 1 < p->rows) {
            const size_t at = ((size_t)r * (size_t)b->stride + (size_t)b->columns);
            const size_t item = bytes_of(p->y_dtype);
            assert_memory_equal((const char *)y + at * item, &gap, 4);
            assert_memory_equal((const char *)y + (at + 1) * item, &gap, 2 * item);
        }
    }
}

static void assert_rows_equal(const bench *b, const void *a, const void *c, int32_t rows) {
    const size_t item = bytes_of(b->is->y_dtype);
    for (int32_t r = 0; r < rows; r++) {
        const size_t at = (size_t)r * (size_t)b->stride * item;
        assert_memory_equal((const char *)a + at, (const char *)c + at, (size_t)b->columns * item);
    }
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
        assert_near(&b, many, "many");
        assert_rows_equal(&b, many, few, p->rows);
        assert_near(&b, few, "few");
        assert_rows_equal(&b, many, alone, 1);
        free(many);
        free(few);
        free(alone);
        drop(&single);
        drop(&b);
    }
}

static void ragged_shapes(void **state) {
    const product all[] = {
        {.dtype = PGD_BF16, .n = 8, .k = 1, .rows = 1, .y_dtype = PGD_F32, .slice = 64},
        {.dtype = PGD_BF16, .n = 1, .k = 16, .rows = 2, .y_dtype = PGD_F32, .slice = 16},
        {.dtype = PGD_BF16, .n = 136, .k = 70, .rows = 7, .y_dtype = PGD_F32, .slice = 64},
        {.dtype = PGD_F16, .n = 20, .k = 200, .rows = 13, .y_dtype = PGD_F16, .slice = 128},
        {.dtype = PGD_BF16, .n = 264, .k = 331, .rows = 33, .y_dtype = PGD_BF16, .slice = 112},
        {.dtype = PGD_BF16, .n = 61, .k = 130, .rows = 131, .y_dtype = PGD_F32, .slice = 256},
        {.dtype = PGD_F16, .n = 130, .k = 257, .rows = 66, .y_dtype = PGD_F32, .slice = 64},
    };
    (void)state;
    for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++) {
        product p = all[i];
        p.alpha = 1;
        check(&p);
    }
}

static void what_follows(void **state) {
    const product all[] = {
        {.aux_kind = PGD_AUX_ADD, .y_dtype = PGD_F32, .alpha = 1},
        {.aux_kind = PGD_AUX_ADD, .y_dtype = PGD_BF16, .alpha = 1},
        {.aux_kind = PGD_AUX_MUL, .y_dtype = PGD_F16, .alpha = 0.5F, .has_bias = true},
        {.act = PGD_ACT_SILU, .y_dtype = PGD_F32, .alpha = 1, .has_bias = true, .act_limit = 0.5F},
        {.is_gated = true, .act = PGD_ACT_SILU, .y_dtype = PGD_BF16, .alpha = 1},
        {.is_gated = true,
         .act = PGD_ACT_GELU_TANH,
         .y_dtype = PGD_F32,
         .alpha = 1,
         .has_bias = true},
    };
    (void)state;
    for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++) {
        product p = all[i];
        p.dtype = PGD_BF16;
        p.n = 90; // 45 outputs of a gated one: its last panel holds one
        p.k = 150;
        p.rows = 19;
        p.slice = 64;
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
        b.head.n_tokens = live[i / 2 / PGD_UNIT_COUNT];
        uint32_t *y = run(&b, i % 2 == 0);
        for (int32_t r = 0; r < p.rows; r++) {
            for (int32_t c = 0; c < p.n; c++) {
                const bool is_untouched = y[r * b.stride + c] == UINT32_C(0xeeeeeeee);
                assert_true(is_untouched == (r >= b.head.n_tokens));
            }
        }
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
