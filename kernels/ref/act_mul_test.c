// act_mul and add against numpy and scipy.
#include "ref/ref_test.h"

static void run(int32_t act, float alpha, float limit, const double *want) {
    float x[10], out[5];
    pgd_act_mul_args a = {.size = sizeof(a), .act = act, .act_alpha = alpha, .act_limit = limit};
    int i;
    for (i = 0; i < 5; i++) {
        x[i] = (float)number(i, 5) * 2;
        x[5 + i] = (float)number(i, 6) * 3;
    }
    a.x = tensor2(PGD_F32, x, 1, 10);
    a.out = tensor2(PGD_F32, out, 1, 5);
    assert_int_equal(pgd_ref_act_mul(NULL, &a), PGD_OK);
    assert_close(out, want, 5);
}

static void test_acts(void **state) {
    static const double silu[5] = {-0.6370998785968703, -0.0, -1.7191710822877135,
                                   -0.5130717857053771, -2.6423912339336475};
    static const double silu_alpha[5] = {-0.5413859451415245, -0.0, -1.910878560508684,
                                         -0.26817037002874544, -2.8577223804673};
    static const double gelu[5] = {-0.520657096600103, -0.0, -1.9575995142960523,
                                   -0.18789525356866338, -2.9317496041554625};
    static const double gelu_tanh[5] = {-0.5207152168401392, -0.0, -1.9573668736839684,
                                        -0.18830329316206323, -2.931896541131662};
    static const double relu[5] = {0.0, 0.0, -2.53125, 0.0, -3.0};
    static const double limited[5] = {-0.2359629179988409, -0.0, -0.6367300304769309,
                                      -0.3420478571369181, -1.2145310330854548};
    (void)state;
    run(PGD_ACT_SILU, 0, 0, silu);
    run(PGD_ACT_SILU, 1.5F, 0, silu_alpha);
    run(PGD_ACT_GELU, 0, 0, gelu);
    run(PGD_ACT_GELU_TANH, 0, 0, gelu_tanh);
    run(PGD_ACT_RELU, 0, 0, relu);
    run(PGD_ACT_SILU, 0, 1.25F, limited);
}

static void test_extremes(void **state) {
    float x[4] = {-1000, 1000, 2, 3}, out[2];
    pgd_act_mul_args a = {.size = sizeof(a), .act = PGD_ACT_SILU};
    (void)state;
    a.x = tensor2(PGD_F32, x, 1, 4);
    a.out = tensor2(PGD_F32, out, 1, 2);
    assert_int_equal(pgd_ref_act_mul(NULL, &a), PGD_OK);
    assert_true(out[0] == 0 && out[1] == 3000);
    a.act = PGD_ACT_NONE;
    assert_int_equal(pgd_ref_act_mul(NULL, &a), PGD_OK);
    assert_true(out[0] == -2000 && out[1] == 3000);
    a.act = 5;
    assert_int_equal(pgd_ref_act_mul(NULL, &a), PGD_UNSUPPORTED);
    a.act = 0;
    a.x.shape[1] = 3;
    assert_int_equal(pgd_ref_act_mul(NULL, &a), PGD_INVALID);
}

static void test_add(void **state) {
    float x[24], y[24];
    uint16_t z[24];
    pgd_add_args a = {.size = sizeof(a)};
    int i;
    (void)state;
    fill(PGD_F32, x, 24, 1);
    fill(PGD_F32, y, 24, 2);
    a.a = (pgd_tensor){.offset = (uint64_t)(uintptr_t)x,
                       .dtype = PGD_F32,
                       .rank = 4,
                       .shape = {2, 2, 2, 3},
                       .stride = {12, 6, 3, 1}};
    a.b = a.a;
    a.b.offset = (uint64_t)(uintptr_t)y;
    a.out = a.a;
    a.out.offset = (uint64_t)(uintptr_t)z;
    a.out.dtype = PGD_F16;
    assert_int_equal(pgd_ref_add(NULL, &a), PGD_OK);
    for (i = 0; i < 24; i++) {
        assert_true(pgd_ref_load(PGD_F16, z, i) == number(i, 1) + number(i, 2));
    }
    a.a = tensor1(PGD_F32, x, 24);
    a.b = tensor1(PGD_F32, y, 24);
    a.out = a.a;
    assert_int_equal(pgd_ref_add(NULL, &a), PGD_OK);
    assert_true(x[23] == (float)(number(23, 1) + number(23, 2)));
    a.b.shape[0] = 23;
    assert_int_equal(pgd_ref_add(NULL, &a), PGD_INVALID);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_acts),
        cmocka_unit_test(test_extremes),
        cmocka_unit_test(test_add),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
