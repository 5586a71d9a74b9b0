// Numbers of the reference kernels against their standards.
#include "ref/ref_test.h"

static uint16_t store16(int32_t dtype, double v) {
    uint16_t code;
    pgd_ref_store(dtype, &code, 0, v);
    return code;
}

// Every finite code comes back; midpoints go to the even code, their neighbours to the nearer one.
static void check_all(int32_t dtype, uint16_t infinity) {
    uint32_t code;
    for (code = 0; code < infinity; code++) {
        uint16_t low = (uint16_t)code, high = (uint16_t)(code + 1);
        double a = pgd_ref_load(dtype, &low, 0);
        double b = high == infinity ? 0 : pgd_ref_load(dtype, &high, 0);
        double middle;
        assert_int_equal(store16(dtype, a), low);
        assert_int_equal(store16(dtype, -a), low | 0x8000);
        if (high == infinity) { // the step above the largest number rounds to infinity
            uint16_t before = (uint16_t)(code - 1);
            b = a + (a - pgd_ref_load(dtype, &before, 0));
        }
        assert_true(b > a);
        middle = (a + b) / 2; // exact in double
        assert_int_equal(store16(dtype, middle), (low & 1) == 0 ? low : high);
        assert_int_equal(store16(dtype, nextafter(middle, 0)), low);
        assert_int_equal(store16(dtype, nextafter(middle, INFINITY)), high);
        assert_int_equal(store16(dtype, -nextafter(middle, INFINITY)), high | 0x8000);
    }
    assert_int_equal(store16(dtype, INFINITY), infinity);
    assert_int_equal(store16(dtype, -INFINITY), infinity | 0x8000);
    assert_int_equal(store16(dtype, 1e300), infinity);
    assert_int_equal(store16(dtype, 1e-300), 0);
    assert_int_equal(store16(dtype, -1e-300), 0x8000);
    assert_true((store16(dtype, NAN) & 0x7fff) > infinity);
    assert_int_equal(store16(dtype, 5e-324), 0);
}

static void test_f16(void **state) {
    // codes and values from IEEE 754-2019, binary16
    static const uint16_t codes[] = {0x3c00, 0x7bff, 0x0400, 0x0001,
                                     0x03ff, 0x3555, 0xc000, 0x8000};
    static const double values[] = {1,  65504, 0x1p-14, 0x1p-24, 1023 * 0x1p-24, 1365 * 0x1p-12,
                                    -2, -0.0};
    const uint16_t nan = 0x7e00, infinity = 0x7c00;
    size_t i;
    (void)state;
    for (i = 0; i < sizeof(codes) / sizeof(codes[0]); i++) {
        assert_true(pgd_ref_load(PGD_F16, &codes[i], 0) == values[i]);
    }
    assert_true(signbit(pgd_ref_load(PGD_F16, &codes[7], 0)));
    assert_true(isnan(pgd_ref_load(PGD_F16, &nan, 0)));
    assert_true(isinf(pgd_ref_load(PGD_F16, &infinity, 0)));
    assert_int_equal(store16(PGD_F16, 65519.9), 0x7bff);
    assert_int_equal(store16(PGD_F16, 65520), 0x7c00);
    check_all(PGD_F16, 0x7c00);
}

static void test_bf16(void **state) {
    static const uint16_t codes[] = {0x3f80, 0x7f7f, 0x0080, 0x0001, 0x4049, 0xc000};
    static const double values[] = {1, 0x1.fep+127, 0x1p-126, 0x1p-133, 3.140625, -2};
    size_t i;
    (void)state;
    for (i = 0; i < sizeof(codes) / sizeof(codes[0]); i++) {
        assert_true(pgd_ref_load(PGD_BF16, &codes[i], 0) == values[i]);
    }
    check_all(PGD_BF16, 0x7f80);
    // one rounding: through f32 this would first become the midpoint and then go down
    assert_int_equal(store16(PGD_BF16, 1 + 0x1p-8 + 0x1p-40), 0x3f81);
}

static void test_f32(void **state) {
    float v[3] = {0};
    double back[3];
    (void)state;
    pgd_ref_store(PGD_F32, v, 1, 0.1);
    assert_true(v[1] == 0.1F && v[0] == 0 && v[2] == 0);
    assert_true(pgd_ref_load(PGD_F32, v, 1) == (double)0.1F);
    pgd_ref_read(PGD_F32, v, 1, 2, back);
    assert_true(back[0] == (double)0.1F && back[1] == 0);
}

static void test_read(void **state) {
    uint16_t codes[300];
    double back[300];
    const int32_t dtypes[] = {PGD_BF16, PGD_F16};
    int d, i;
    (void)state;
    for (d = 0; d < 2; d++) {
        for (i = 0; i < 300; i++) {
            pgd_ref_store(dtypes[d], codes, i, i - 100);
        }
        pgd_ref_read(dtypes[d], codes, 7, 200, back);
        for (i = 0; i < 200; i++) {
            assert_true(back[i] == i + 7 - 100);
        }
    }
}

// Known answers of the paper's own code (Random123, kat_vectors, philox4x32 10).
static void test_philox(void **state) {
    static const uint32_t in[3][6] = {
        {0, 0, 0, 0, 0, 0},
        {0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff},
        {0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344, 0xa4093822, 0x299f31d0}};
    static const uint32_t want[3][4] = {{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8},
                                        {0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd},
                                        {0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}};
    uint32_t out[4];
    int i;
    (void)state;
    for (i = 0; i < 3; i++) {
        pgd_ref_philox(in[i], in[i] + 4, out);
        assert_memory_equal(out, want[i], sizeof(out));
    }
}

static void test_rows(void **state) {
    block b = {.head = {.n_tokens = 5, .n_out = 2}};
    const pgd_batch batch = batch_of(&b);
    (void)state;
    assert_int_equal(pgd_ref_rows(NULL, PGD_ROWS_SHAPE, 7), 7);
    assert_int_equal(pgd_ref_rows(&batch, PGD_ROWS_SHAPE, 7), 7);
    assert_int_equal(pgd_ref_rows(&batch, PGD_ROWS_TOKENS, 7), 5);
    assert_int_equal(pgd_ref_rows(&batch, PGD_ROWS_OUTPUTS, 7), 2);
    assert_int_equal(pgd_ref_rows(NULL, PGD_ROWS_TOKENS, 7), -1);
    assert_int_equal(pgd_ref_rows(&batch, 9, 7), -1);
}

static void test_table(void **state) {
    const pgd_ops *ops = pgd_ref_ops();
    (void)state;
    assert_int_equal(ops->size, sizeof(*ops));
#define TEST_SLOT(name, family) assert_ptr_equal(ops->name, pgd_ref_##name);
    PGD_OP_LIST(TEST_SLOT)
#undef TEST_SLOT
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_f16),   cmocka_unit_test(test_bf16),   cmocka_unit_test(test_f32),
        cmocka_unit_test(test_read),  cmocka_unit_test(test_philox), cmocka_unit_test(test_rows),
        cmocka_unit_test(test_table),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
