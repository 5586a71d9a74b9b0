// gemm, gemm_add and gate_up against numpy.
#include "ref/ref_test.h"

typedef struct setup {
    float x[6], rows[12], bias[4], aux[8], y[8];
    pgd_ref_weight w;
    pgd_gemm_args a;
} setup;

static void prepare(setup *s) {
    memset(s, 0, sizeof(*s));
    fill(PGD_F32, s->x, 6, 7);
    fill(PGD_F32, s->rows, 12, 8);
    fill(PGD_F32, s->bias, 4, 9);
    fill(PGD_F32, s->aux, 8, 10);
    s->w = (pgd_ref_weight){.dtype = PGD_F32, .n = 4, .k = 3, .rows = s->rows};
    s->a = (pgd_gemm_args){.size = sizeof(s->a),
                           .w = (pgd_weight *)&s->w,
                           .x = tensor2(PGD_F32, s->x, 2, 3),
                           .y = tensor2(PGD_F32, s->y, 2, 4)};
}

static void test_plain(void **state) {
    static const double plain[8] = {-0.859375, -0.765625, -1.390625, 1.9375,
                                    -0.671875, -1.265625, -1.140625, 1.5};
    static const double biased[8] = {-0.9296875, 0.8671875, -0.5703125, -0.03125,
                                     -0.8359375, 0.6171875, -0.4453125, -0.25};
    setup s;
    uint16_t narrow[12];
    (void)state;
    prepare(&s);
    assert_int_equal(pgd_ref_gemm(NULL, &s.a), PGD_OK);
    assert_close(s.y, plain, 8);
    fill(PGD_F16, narrow, 12, 8); // the same numbers in another dtype
    s.w.rows = narrow;
    s.w.dtype = PGD_F16;
    s.a.alpha = 0.5F;
    s.a.bias = tensor1(PGD_F32, s.bias, 4);
    assert_int_equal(pgd_ref_gemm(NULL, &s.a), PGD_OK);
    assert_close(s.y, biased, 8);
}

static void test_finish(void **state) {
    static const double added[8] = {0.6119094837840472,   0.36063887005655315, -1.5809767545086362,
                                    0.35961912075872515,  -1.0027800456760587, 1.4009118041713633,
                                    -0.29888377135710426, -1.3594558747785506};
    static const double multiplied[8] = {
        -0.23020420168895872, -0.1526597175141383, 0.28321803744937457,  -0.005767829715478074,
        0.18958503425704398,  0.40091180417136324, 0.021735471419638032, 0.1368198434731881};
    setup s;
    (void)state;
    prepare(&s);
    s.a.alpha = 0.5F;
    s.a.bias = tensor1(PGD_F32, s.bias, 4);
    s.a.act = PGD_ACT_SILU;
    s.a.aux = tensor2(PGD_F32, s.aux, 2, 4);
    s.a.aux_kind = PGD_AUX_MUL;
    assert_int_equal(pgd_ref_gemm(NULL, &s.a), PGD_OK);
    assert_close(s.y, multiplied, 8);
    assert_int_equal(pgd_ref_gemm_add(NULL, &s.a), PGD_INVALID); // aux is not added
    s.a.aux_kind = PGD_AUX_ADD;
    s.a.y = s.a.aux; // in place
    assert_int_equal(pgd_ref_gemm_add(NULL, &s.a), PGD_OK);
    assert_close(s.aux, added, 8);
}

// Longer than one chunk both ways: sums of ones.
static void test_long(void **state) {
    static uint16_t rows[300 * 700];
    static float x[700], y[300];
    pgd_ref_weight w = {.dtype = PGD_BF16, .n = 300, .k = 700, .rows = rows};
    pgd_gemm_args a = {.size = sizeof(a), .w = (pgd_weight *)&w};
    int64_t i;
    (void)state;
    for (i = 0; i < 300 * 700; i++) {
        pgd_ref_store(PGD_BF16, rows, i, i % 700 <= i / 700 ? 1 : 0);
    }
    for (i = 0; i < 700; i++) {
        x[i] = (float)(i + 1);
    }
    a.x = tensor2(PGD_F32, x, 1, 700);
    a.y = tensor2(PGD_F32, y, 1, 300);
    assert_int_equal(pgd_ref_gemm(NULL, &a), PGD_OK);
    for (i = 0; i < 300; i++) {
        assert_true(y[i] == (float)((i + 1) * (i + 2) / 2));
    }
}

// act_dtype rounds x first: 1 + 2^-9 is 1 in bf16.
static void test_act_dtype(void **state) {
    float x[1] = {1 + 0x1p-9F}, one[1] = {1}, y[1];
    pgd_ref_weight w = {.dtype = PGD_F32, .n = 1, .k = 1, .rows = one};
    pgd_gemm_args a = {.size = sizeof(a), .w = (pgd_weight *)&w};
    (void)state;
    a.x = tensor2(PGD_F32, x, 1, 1);
    a.y = tensor2(PGD_F32, y, 1, 1);
    assert_int_equal(pgd_ref_gemm(NULL, &a), PGD_OK);
    assert_true(y[0] == x[0]);
    w.act_dtype = PGD_BF16;
    assert_int_equal(pgd_ref_gemm(NULL, &a), PGD_OK);
    assert_true(y[0] == 1);
}

static void test_refusals(void **state) {
    setup s;
    (void)state;
    prepare(&s);
    s.a.row_map = tensor1(PGD_I32, s.aux, 2);
    assert_int_equal(pgd_ref_gemm(NULL, &s.a), PGD_UNSUPPORTED);
    prepare(&s);
    s.a.x_scale = tensor1(PGD_F32, s.aux, 2);
    assert_int_equal(pgd_ref_gemm(NULL, &s.a), PGD_UNSUPPORTED);
    prepare(&s);
    s.a.w = NULL;
    assert_int_equal(pgd_ref_gemm(NULL, &s.a), PGD_INVALID);
    prepare(&s);
    s.w.k = 2;
    assert_int_equal(pgd_ref_gemm(NULL, &s.a), PGD_INVALID);
    prepare(&s);
    s.a.aux_kind = PGD_AUX_ADD; // without aux
    assert_int_equal(pgd_ref_gemm(NULL, &s.a), PGD_INVALID);
    assert_true(s.y[0] == 0);
}

// By hand: rms of (3, 4) is 5 / sqrt 2; gate and up are then sqrt 2 * (0.6, 0.8).
static void test_gate_up(void **state) {
    float x[2] = {3, 4}, w_norm[2] = {1, 1}, rows[4] = {1, 0, 0, 1}, normed[2], tmp[2], out[1];
    pgd_ref_weight w = {.dtype = PGD_F32, .n = 2, .k = 2, .rows = rows};
    pgd_gate_up_args a = {.size = sizeof(a), .w = (pgd_weight *)&w, .act = PGD_ACT_RELU};
    (void)state;
    a.x = tensor2(PGD_F32, x, 1, 2);
    a.tmp = tensor2(PGD_F32, tmp, 1, 2);
    a.out = tensor2(PGD_F32, out, 1, 1);
    assert_int_equal(pgd_ref_gate_up(NULL, &a), PGD_OK);
    assert_true(out[0] == 12);
    a.norm_w = tensor1(PGD_F32, w_norm, 2);
    assert_int_equal(pgd_ref_gate_up(NULL, &a), PGD_INVALID); // nowhere to put normed
    a.normed = tensor2(PGD_F32, normed, 1, 2);
    assert_int_equal(pgd_ref_gate_up(NULL, &a), PGD_OK);
    assert_float_equal(out[0], 0.96, 1e-6);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_plain),    cmocka_unit_test(test_finish),
        cmocka_unit_test(test_long),     cmocka_unit_test(test_act_dtype),
        cmocka_unit_test(test_refusals), cmocka_unit_test(test_gate_up),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
