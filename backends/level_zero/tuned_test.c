// Which chips get products on matrix units, and what is launched for them.
#include "../gpu/test_matrix.h"
#include "ze.h"

static void test_chips(void **state) {
    static const struct {
        uint32_t vendor;
        uint32_t device;
        uint32_t least;
        int32_t unit;
    } chips[] = {
        {0x8086, 0x0bd5, 16, ZE_UNIT_DPAS16}, // Data Center GPU Max 1550
        {0x8086, 0x0bd4, 16, ZE_UNIT_NONE},   // its kind without the unit
        {0x8086, 0xe20b, 16, ZE_UNIT_DPAS16}, // Arc B580
        {0x8086, 0x64a0, 16, ZE_UNIT_DPAS16}, // Core Ultra 200V
        {0x8086, 0x56a0, 8, ZE_UNIT_DPAS8},   // Arc A770
        {0x8086, 0x56c0, 8, ZE_UNIT_DPAS8},   // Data Center GPU Flex 170
        {0x8086, 0x9a49, 8, ZE_UNIT_NONE},    // Iris Xe
        {0x8086, 0x7d55, 8, ZE_UNIT_NONE},    // Core Ultra 100
        {0x8086, 0x56a0, 0, ZE_UNIT_NONE},    // a driver that does not say
        {0x1d0b, 0x0bd5, 16, ZE_UNIT_NONE},
    };
    (void)state;
    for (size_t i = 0; i < sizeof(chips) / sizeof(chips[0]); i++) {
        assert_int_equal(ze_unit_of(chips[i].vendor, chips[i].device, chips[i].least),
                         chips[i].unit);
    }
}

static void test_launches(void **state) {
    (void)state;
    for (int32_t i = 0; i < 2; i++) {
        const gpu_device_facts f = {.arch = "8086:0bd5",
                                    .unit = i == 0 ? ZE_UNIT_DPAS16 : ZE_UNIT_DPAS8};
        const pgd_matrix_unit *u = &pgd_matrix_units[i == 0 ? PGD_UNIT_dpas16 : PGD_UNIT_dpas8];
        // The items of a group stand in one table for both units.
        assert_int_equal(ze_tuned.kernels[PGD_MATRIX_gemm_few_f16].n_items, u->few_items);
        assert_int_equal(ze_tuned.kernels[PGD_MATRIX_gemm_many_f16].n_items, u->many_items);
        check_launches(&ze_tuned, &f, u);
        check_scratch(&ze_tuned, &f);
    }
}

static void test_who_takes_what(void **state) {
    const gpu_device_facts with = {.arch = "8086:56a0", .unit = ZE_UNIT_DPAS8};
    const gpu_device_facts without = {.arch = "8086:9a49"};
    char reason[96] = "";
    (void)state;
    assert_int_equal(is_tuned(&ze_tuned, &with, PGD_BF16, PGD_BF16, PGD_USE_GEMM), 1);
    assert_int_equal(is_tuned(&ze_tuned, &with, PGD_F32, PGD_F32, PGD_USE_GEMM), 0);
    assert_int_equal(is_tuned(&ze_tuned, &with, PGD_F16, PGD_F32, PGD_USE_GEMM),
                     0); // x is not rounded
    assert_int_equal(is_tuned(&ze_tuned, &without, PGD_BF16, PGD_BF16, PGD_USE_GEMM), 0);
    assert_false(ze_tuned.usable(&host, &without, reason, sizeof(reason)));
    assert_non_null(strstr(reason, "8086:9a49 has no matrix unit"));
    option_tuned = "off";
    assert_int_equal(is_tuned(&ze_tuned, &with, PGD_BF16, PGD_BF16, PGD_USE_GEMM), 0);
    option_tuned = NULL;
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_chips),
        cmocka_unit_test(test_launches),
        cmocka_unit_test(test_who_takes_what),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
