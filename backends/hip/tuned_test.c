// Which chips get products on matrix units, and what is launched for them.
#include "../gpu/test_matrix.h"
#include "hip.h"

// The plugin's own list holds images only where there is clang-19.
const gpu_stream_image hip_tuned_images[] = {
    {"gfx90a", "an image"}, {"gfx1100", "one more"}, {"gfx1201", "the last"}, {"", NULL}};

static void test_launches(void **state) {
    const char *const chips[] = {"gfx90a:sramecc+:xnack-", "gfx1100", "gfx1201"};
    (void)state;
    for (size_t i = 0; i < sizeof(chips) / sizeof(chips[0]); i++) {
        const gpu_device_facts f = chip(chips[i]);
        const pgd_matrix_unit *u = hip_matrix_unit(f.arch);
        assert_int_equal(u - pgd_matrix_units, PGD_UNIT_mfma + (int)i);
        // The items of a group stand in one table for all units.
        assert_int_equal(hip_tuned.kernels[PGD_MATRIX_gemm_few_f16].n_items, u->few_items);
        assert_int_equal(hip_tuned.kernels[PGD_MATRIX_gemm_many_f16].n_items, u->many_items);
        check_launches(&hip_tuned, &f, u);
        check_scratch(&hip_tuned, &f);
    }
}

static void test_who_takes_what(void **state) {
    const gpu_device_facts mfma = chip("gfx90a");
    const gpu_device_facts none = chip("gfx1030");
    const gpu_device_facts absent = chip("gfx942"); // has a unit, but no image here
    (void)state;
    assert_int_equal(is_tuned(&hip_tuned, &mfma, PGD_BF16, PGD_BF16, PGD_USE_GEMM), 1);
    assert_int_equal(is_tuned(&hip_tuned, &mfma, PGD_F16, PGD_F16, PGD_USE_GEMM), 1);
    assert_int_equal(is_tuned(&hip_tuned, &mfma, PGD_F32, PGD_F32, PGD_USE_GEMM), 0);
    assert_int_equal(is_tuned(&hip_tuned, &mfma, PGD_BF16, PGD_F32, PGD_USE_GEMM),
                     0); // x is not rounded
    assert_int_equal(is_tuned(&hip_tuned, &none, PGD_BF16, PGD_BF16, PGD_USE_GEMM), 0);
    assert_int_equal(is_tuned(&hip_tuned, &absent, PGD_BF16, PGD_BF16, PGD_USE_GEMM), 0);
    option_tuned = "off";
    assert_int_equal(is_tuned(&hip_tuned, &mfma, PGD_BF16, PGD_BF16, PGD_USE_GEMM), 0);
    option_tuned = "on";
    option_kernels = "a file";
    assert_int_equal(is_tuned(&hip_tuned, &mfma, PGD_BF16, PGD_BF16, PGD_USE_GEMM), 0);
    option_kernels = NULL;
    option_tuned = NULL;
}

static void assert_reason(const char *arch, const char *part) {
    const gpu_device_facts f = chip(arch);
    char reason[96] = "";
    assert_false(hip_tuned.usable(&host, &f, reason, sizeof(reason)));
    if (strstr(reason, part) == NULL) {
        fail_msg("%s: %s", arch, reason);
    }
}

static void test_reasons_are_given(void **state) {
    (void)state;
    assert_reason("gfx1030", "gfx1030 has no matrix unit");
    assert_reason("gfx942:sramecc+", "no tuned kernels for gfx942");
    assert_reason("", "no matrix unit");
    option_kernels = "x";
    assert_reason("gfx90a", "file");
    option_kernels = NULL;
    option_tuned = "off";
    assert_reason("gfx90a", "off");
    option_tuned = NULL;
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_launches),
        cmocka_unit_test(test_who_takes_what),
        cmocka_unit_test(test_reasons_are_given),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
