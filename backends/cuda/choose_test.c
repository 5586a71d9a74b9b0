// The choice of a kernel over many shapes: every row count has exactly one kernel, its grid covers
// y, its slices cover k, and it fits into the shared memory of each chip that is built for.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "choose.h"

// Most dynamic shared memory of a group, in bytes. Source: CUDA C++ Programming Guide, table of
// technical specifications per compute capability.
static const struct {
    int32_t capability;
    uint32_t shared;
} chips[] = {{80, 163 << 10}, {89, 99 << 10}, {90, 227 << 10}, {100, 227 << 10}, {120, 99 << 10}};

static const int32_t ns[] = {1, 4, 7, 8, 63, 64, 65, 127, 128, 576, 2048, 4096, 14336, 128256};
static const int32_t ks[] = {1, 15, 16, 64, 65, 127, 256, 576, 2048, 4096, 14336, 65537};
static const int32_t caps[] = {1, 2, 63, 64, 65, 512, 2048, 8192};

enum { HOPPER = 2 }; // of chips

#define N(list) (sizeof(list) / sizeof((list)[0]))

static void check_choice(const cuda_product *p, const cuda_choice *c, int32_t n, int32_t cap,
                         int gated) {
    const pgd_cuda_kernel *k = &pgd_cuda_kernels[c->kernel];
    const bool is_hopper = c->kernel >= PGD_CUDA_gemm_wgmma_bf16_t64;
    const int64_t columns = (int64_t)c->groups[is_hopper ? 1 : 0] * k->columns;
    assert_true(columns >= n && columns >= (int64_t)p->panels * 8);
    assert_true(columns - (int64_t)p->panels * 8 < (int64_t)k->columns);
    assert_int_equal(p->panels, gated ? (n / 2 + 3) / 4 : (n + 7) / 8);
    const int32_t most = c->rows_most < cap ? c->rows_most : cap;
    if (c->rows_least <= cap) {
        assert_true((int64_t)c->groups[c->rows_axis] * c->rows_unit >= most);
    }
    assert_int_equal(c->rows_unit, k->rows);
    for (size_t i = 0; i < N(chips) && !is_hopper; i++) {
        assert_true(k->shared <= chips[i].shared && (int32_t)k->sm <= chips[i].capability);
    }
    for (int32_t axis = 0; axis < 3; axis++) {
        assert_in_range(c->groups[axis], 1, axis == 0 ? INT32_MAX : 65535);
    }
    assert_int_equal(is_hopper, p->x_step > 0 && c->rows_least > CUDA_SMALL_ROWS);
    assert_true(!is_hopper || (c->rows_axis == 0 && k->shared <= chips[HOPPER].shared));
}

static void check_product(int32_t family, int32_t dtype, int32_t n, int32_t k, int32_t cap,
                          int gated) {
    cuda_product p;
    cuda_choose_product(family, dtype, n, k, gated != 0, cap, &p);
    assert_true((int64_t)p.slice * p.n_slices >= k && (int64_t)p.slice * (p.n_slices - 1) < k);
    assert_int_equal(p.slice % KC_STEP, 0);
    assert_true(p.k_pad >= k && p.k_pad % KC_STEP == 0 && p.k_pad - k < KC_STEP);
    assert_true(p.parts_at >= (uint64_t)cap * (uint64_t)p.k_pad * 2);
    if (family == CUDA_WGMMA) { // whole tiles of x: the last choice's
        const int64_t tile = p.choices[CUDA_CHOICES - 1].rows_unit;
        assert_true((cap + tile - 1) / tile * tile * KC_STEP <= p.x_step);
        assert_true(p.x_step >= (int64_t)cap * KC_STEP && p.x_step % (64 * KC_STEP) == 0);
        assert_true(p.parts_at >= (uint64_t)p.x_step * (uint64_t)(p.k_pad / KC_STEP) * 2);
    } else {
        assert_int_equal(p.x_step, 0);
    }
    int32_t next = 1;
    for (int32_t i = 0; i < CUDA_CHOICES; i++) {
        const cuda_choice *c = &p.choices[i];
        assert_int_equal(c->rows_least, next);
        assert_true(c->rows_most >= c->rows_least);
        check_choice(&p, c, n, cap, gated);
        if (c->rows_axis == 2) { // slices of few rows go through scratch
            assert_true(c->rows_most <= CUDA_SMALL_ROWS);
            assert_int_equal(c->groups[1], p.n_slices);
        }
        next = c->rows_most == INT32_MAX ? 0 : c->rows_most + 1;
    }
    assert_int_equal(next, 0);
    const uint64_t rows = (uint64_t)(cap < CUDA_SMALL_ROWS ? cap : CUDA_SMALL_ROWS);
    const uint64_t parts = (uint64_t)p.n_slices * rows * (uint64_t)p.panels * 32;
    assert_int_equal(p.scratch_bytes, p.parts_at + (p.n_slices > 1 ? parts : 0));
}

static void check_every_row_count(int32_t family) {
    for (size_t i = 0; i < N(ns); i++) {
        for (size_t j = 0; j < N(ks); j++) {
            for (size_t c = 0; c < N(caps); c++) {
                check_product(family, K_BF16, ns[i], ks[j], caps[c], 0);
                check_product(family, K_F16, ns[i], ks[j], caps[c], 0);
                if (ns[i] % 2 == 0) {
                    check_product(family, K_BF16, ns[i], ks[j], caps[c], 1);
                }
            }
        }
    }
}

static void test_every_row_count_has_one_kernel(void **state) {
    (void)state;
    check_every_row_count(CUDA_MMA);
    check_every_row_count(CUDA_WGMMA);
}

// The order of summation is a matter of the weight alone.
static void test_slices_do_not_depend_on_rows(void **state) {
    (void)state;
    for (size_t i = 0; i < N(ns); i++) {
        for (size_t j = 0; j < N(ks); j++) {
            cuda_product one;
            cuda_product many;
            cuda_choose_product(CUDA_MMA, K_BF16, ns[i], ks[j], false, 1, &one);
            cuda_choose_product(CUDA_WGMMA, K_BF16, ns[i], ks[j], false, 8192, &many);
            assert_int_equal(one.slice, many.slice);
            assert_int_equal(one.n_slices, many.n_slices);
        }
    }
}

static int32_t kernel_at(const cuda_product *p, int32_t rows) {
    for (int32_t i = 0; i < CUDA_CHOICES; i++) {
        if (rows >= p->choices[i].rows_least && rows <= p->choices[i].rows_most) {
            return p->choices[i].kernel;
        }
    }
    return -1;
}

static void test_kernels_by_rows(void **state) {
    (void)state;
    static const struct {
        int32_t rows, bf16, f16;
    } want[] = {
        {1, PGD_CUDA_gemm_small_bf16_r8, PGD_CUDA_gemm_small_f16_r8},
        {8, PGD_CUDA_gemm_small_bf16_r8, PGD_CUDA_gemm_small_f16_r8},
        {9, PGD_CUDA_gemm_small_bf16_r16, PGD_CUDA_gemm_small_f16_r16},
        {32, PGD_CUDA_gemm_small_bf16_r32, PGD_CUDA_gemm_small_f16_r32},
        {33, PGD_CUDA_gemm_small_bf16_r64, PGD_CUDA_gemm_small_f16_r64},
        {64, PGD_CUDA_gemm_small_bf16_r64, PGD_CUDA_gemm_small_f16_r64},
        {65, PGD_CUDA_gemm_large_bf16_t64, PGD_CUDA_gemm_large_f16_t64},
        {512, PGD_CUDA_gemm_large_bf16_t64, PGD_CUDA_gemm_large_f16_t64},
        {513, PGD_CUDA_gemm_large_bf16_t128, PGD_CUDA_gemm_large_f16_t128},
    };
    cuda_product bf16;
    cuda_product f16;
    cuda_product hopper;
    cuda_choose_product(CUDA_MMA, K_BF16, 4096, 4096, false, 2048, &bf16);
    cuda_choose_product(CUDA_MMA, K_F16, 4096, 4096, false, 2048, &f16);
    cuda_choose_product(CUDA_WGMMA, K_BF16, 4096, 4096, false, 2048, &hopper);
    for (size_t i = 0; i < N(want); i++) {
        assert_int_equal(kernel_at(&bf16, want[i].rows), want[i].bf16);
        assert_int_equal(kernel_at(&f16, want[i].rows), want[i].f16);
        assert_int_equal(kernel_at(&hopper, want[i].rows), want[i].rows <= 64 ? want[i].bf16
                                                           : want[i].rows <= 512
                                                               ? PGD_CUDA_gemm_wgmma_bf16_t64
                                                               : PGD_CUDA_gemm_wgmma_bf16_t128);
    }
    cuda_choose_product(CUDA_WGMMA, K_F16, 28672, 4096, true, 2048, &hopper);
    assert_int_equal(kernel_at(&hopper, 2048), PGD_CUDA_gemm_wgmma_f16_t192);
    assert_int_equal(kernel_at(&hopper, 512), PGD_CUDA_gemm_wgmma_f16_t64);
}

static void test_capabilities(void **state) {
    (void)state;
    assert_int_equal(cuda_capability("sm_80"), 80);
    assert_int_equal(cuda_capability("sm_120"), 120);
    assert_int_equal(cuda_capability("sm_"), 0);
    assert_int_equal(cuda_capability("gfx942"), 0);
    assert_int_equal(cuda_capability(""), 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_row_count_has_one_kernel),
        cmocka_unit_test(test_slices_do_not_depend_on_rows),
        cmocka_unit_test(test_kernels_by_rows),
        cmocka_unit_test(test_capabilities),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
