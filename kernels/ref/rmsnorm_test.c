// rmsnorm and add_rmsnorm against numpy.
#include "ref/ref_test.h"

static void test_norm(void **state) {
    static const double norm[14] = {0.0,
                                    -0.35138822171791717,
                                    -0.6832548755626167,
                                    -0.5466039004500933,
                                    -0.39043135746435237,
                                    -0.2147372466053938,
                                    -0.4685176289572229,
                                    1.3234725559438794,
                                    -0.12031568690398903,
                                    -1.5440513152678592,
                                    0.2807366027759744,
                                    0.2807366027759744,
                                    -1.5440513152678592,
                                    -0.12031568690398903};
    float x[3 * 10], w[7], out[14];
    pgd_rmsnorm_args a = {.size = sizeof(a), .eps = 1e-5F};
    int r;
    (void)state;
    fill(PGD_F32, w, 7, 2);
    for (r = 0; r < 2; r++) { // rows 10 apart
        int i;
        for (i = 0; i < 7; i++) {
            x[10 * r + i] = (float)number(7 * r + i, 1);
        }
    }
    a.x = tensor2(PGD_F32, x, 2, 7);
    a.x.stride[0] = 10;
    a.w = tensor1(PGD_F32, w, 7);
    a.out = tensor2(PGD_F32, out, 2, 7);
    assert_int_equal(pgd_ref_rmsnorm(NULL, &a), PGD_OK);
    assert_close(out, norm, 14);
    a.out = a.x; // in place
    assert_int_equal(pgd_ref_rmsnorm(NULL, &a), PGD_OK);
    assert_close(x, norm, 7);
    assert_close(x + 10, norm + 7, 7);
}

// [rows, heads, hd] is [rows * heads, hd] with the same numbers; bf16 is the rounded f32.
static void test_heads(void **state) {
    static const double norm[14] = {0.0,
                                    -0.35138822171791717,
                                    -0.6832548755626167,
                                    -0.5466039004500933,
                                    -0.39043135746435237,
                                    -0.2147372466053938,
                                    -0.4685176289572229,
                                    1.3234725559438794,
                                    -0.12031568690398903,
                                    -1.5440513152678592,
                                    0.2807366027759744,
                                    0.2807366027759744,
                                    -1.5440513152678592,
                                    -0.12031568690398903};
    uint16_t x[14], out[14], want;
    float w[7];
    pgd_rmsnorm_args a = {.size = sizeof(a), .eps = 1e-5F};
    int i;
    (void)state;
    fill(PGD_F32, w, 7, 2);
    fill(PGD_BF16, x, 14, 1);
    a.x = tensor3(PGD_BF16, x, 1, 2, 7);
    a.w = tensor1(PGD_F32, w, 7);
    a.out = tensor3(PGD_BF16, out, 1, 2, 7);
    assert_int_equal(pgd_ref_rmsnorm(NULL, &a), PGD_OK);
    for (i = 0; i < 14; i++) {
        pgd_ref_store(PGD_BF16, &want, 0, norm[i]);
        assert_int_equal(out[i], want);
    }
}

static void test_rows(void **state) {
    block b = {.head = {.n_tokens = 1}};
    const pgd_batch batch = batch_of(&b);
    float x[6] = {3, 4, 0, 1, 1, 1}, w[3] = {1, 1, 1}, out[6] = {9, 9, 9, 9, 9, 9};
    pgd_rmsnorm_args a = {.size = sizeof(a), .rows = PGD_ROWS_TOKENS, .batch = &batch};
    (void)state;
    a.x = tensor2(PGD_F32, x, 2, 3);
    a.w = tensor1(PGD_F32, w, 3);
    a.out = tensor2(PGD_F32, out, 2, 3);
    assert_int_equal(pgd_ref_rmsnorm(NULL, &a), PGD_OK);
    assert_float_equal(out[0], 3 / sqrt(25.0 / 3), 1e-6);
    assert_float_equal(out[3], 9, 0); // behind the live rows
    b.head.n_tokens = 3;
    assert_int_equal(pgd_ref_rmsnorm(NULL, &a), PGD_INVALID);
    b.head.n_tokens = 0;
    a.x.offset = 0;
    assert_int_equal(pgd_ref_rmsnorm(NULL, &a), PGD_OK);
}

static void test_refusals(void **state) {
    float x[6] = {0}, w[4] = {0}, out[6] = {7};
    pgd_rmsnorm_args a = {.size = sizeof(a)};
    (void)state;
    a.x = tensor2(PGD_F32, x, 2, 3);
    a.w = tensor1(PGD_F32, w, 4);
    a.out = tensor2(PGD_F32, out, 2, 3);
    assert_int_equal(pgd_ref_rmsnorm(NULL, &a), PGD_INVALID); // w too long
    a.w = tensor1(PGD_F16, w, 3);
    assert_int_equal(pgd_ref_rmsnorm(NULL, &a), PGD_INVALID); // w not f32
    a.w = tensor1(PGD_F32, w, 3);
    a.out.stride[1] = 2;
    assert_int_equal(pgd_ref_rmsnorm(NULL, &a), PGD_INVALID);
    a.out = tensor2(PGD_F32, out, 2, 3);
    a.x.rank = 1;
    assert_int_equal(pgd_ref_rmsnorm(NULL, &a), PGD_INVALID);
    assert_float_equal(out[0], 7, 0);
}

// A newer caller's unknown field is refused unless it is zero; an older caller's is zero.
static void test_growth(void **state) {
    struct {
        pgd_rmsnorm_args a;
        uint64_t more;
    } big = {.a = {.size = sizeof(big)}};
    float x[3] = {1, 2, 2}, w[3] = {1, 1, 1};
    (void)state;
    big.a.x = tensor2(PGD_F32, x, 1, 3);
    big.a.w = tensor1(PGD_F32, w, 3);
    big.a.out = big.a.x;
    assert_int_equal(pgd_ref_rmsnorm(NULL, &big.a), PGD_OK);
    big.more = 1;
    assert_int_equal(pgd_ref_rmsnorm(NULL, &big.a), PGD_UNSUPPORTED);
    big.a.size = offsetof(pgd_rmsnorm_args, eps);
    big.a.eps = 1e9F; // not part of the caller's struct
    x[0] = 1, x[1] = 2, x[2] = 2;
    assert_int_equal(pgd_ref_rmsnorm(NULL, &big.a), PGD_OK);
    assert_float_equal(x[0], 1 / sqrt(3.0), 1e-6);
}

static void test_add_norm(void **state) {
    static const double sums[6] = {1.375, -0.875, -0.25, 0.375, 1.0, -1.25};
    static const double sum_norm[6] = {-0.18054534907262082, 1.1489249486439506,
                                       -0.1313057084164515,  -0.04938174512183989,
                                       -1.316846536582397,   -0.6584232682911985};
    float x[6], r[6], w[3], out[6];
    pgd_add_rmsnorm_args a = {.size = sizeof(a), .eps = 1e-5F};
    (void)state;
    fill(PGD_F32, x, 6, 1);
    fill(PGD_F32, r, 6, 2);
    fill(PGD_F32, w, 3, 3);
    a.x = tensor2(PGD_F32, x, 2, 3);
    a.residual = tensor2(PGD_F32, r, 2, 3);
    a.w = tensor1(PGD_F32, w, 3);
    a.out = tensor2(PGD_F32, out, 2, 3);
    assert_int_equal(pgd_ref_add_rmsnorm(NULL, &a), PGD_OK);
    assert_close(r, sums, 6);
    assert_close(out, sum_norm, 6);
    a.w.shape[0] = 4; // refused in its second part, so nothing happens
    assert_int_equal(pgd_ref_add_rmsnorm(NULL, &a), PGD_INVALID);
    assert_close(r, sums, 6);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_norm),   cmocka_unit_test(test_heads),
        cmocka_unit_test(test_rows),   cmocka_unit_test(test_refusals),
        cmocka_unit_test(test_growth), cmocka_unit_test(test_add_norm),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
