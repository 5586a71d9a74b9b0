// What the tests of drivers with matrix units share.
#ifndef PGD_BACKENDS_GPU_TEST_MATRIX_H
#define PGD_BACKENDS_GPU_TEST_MATRIX_H

#include "matrix.h"
#include "test_launches.h"

static void assert_groups(const gpu_launch *l, int32_t kernel, uint32_t x, uint32_t y, uint32_t z) {
    const uint32_t groups[3] = {x, y, z};
    assert_int_equal(l->kernel, PGD_PORTABLE_COUNT + kernel);
    assert_memory_equal(l->groups, groups, sizeof(groups));
}

// For every number of rows: what is launched, how often, and on what.
static void check_launches(const gpu_tuned *tuned, const gpu_device_facts *facts,
                           const pgd_matrix_unit *u) {
    static const int32_t rows[] = {1, 16, 17, 64, 65, 128, 129, 1024};
    gpu_matrix_plan want;
    setup s;
    open_sized(&s, tuned, facts, PGD_BF16, PGD_BF16, PGD_USE_GEMM, N, K);
    gpu_matrix_choose(u, N, K, false, CAP, &want);
    assert_int_equal(want.panels, N / 8);
    assert_true(want.n_slices > 1);
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        const uint32_t n = (uint32_t)rows[i];
        const bool is_few = n <= GPU_MATRIX_FEW;
        assert_int_equal(run(&s, rows[i]), PGD_OK);
        assert_int_equal(n_launches, is_few ? 3 : 2);
        assert_groups(&launches[0], PGD_MATRIX_pack_x, gpu_ceil(want.k_pad, 512), n, 1);
        if (is_few) {
            assert_groups(&launches[1], PGD_MATRIX_gemm_few_bf16,
                          gpu_ceil(want.panels, u->few_panels), (uint32_t)want.n_slices,
                          gpu_ceil(n, 16));
            assert_groups(&launches[2], PGD_MATRIX_gemm_merge, 1, n, 1);
        } else {
            assert_groups(&launches[1], PGD_MATRIX_gemm_many_bf16, gpu_ceil(want.panels, u->panels),
                          gpu_ceil(n, 128), 1);
        }
        const km_gemm_params *p = (const km_gemm_params *)(const void *)launches[1].params;
        assert_int_equal(p->n_slices, want.n_slices);
        assert_int_equal(p->slice, want.slice);
        assert_int_equal(p->g.x.s0, want.k_pad);
        assert_int_equal(p->g.x.at, (int64_t)s.x.scratch.offset);
        assert_int_equal(p->g.rows.n, is_few ? GPU_MATRIX_FEW : CAP);
        assert_int_equal(p->parts_at - p->g.x.at, (int64_t)want.parts_at);
        assert_ptr_equal(launches[1].memories[6], s.x.scratch.buffer->memory);
        assert_ptr_equal(launches[1].memories[2], launches[0].memories[2]);
    }
    product_close(&s);
}

// The scratch that support promises is what a step takes: one byte less is refused.
static void check_scratch(const gpu_tuned *tuned, const gpu_device_facts *facts) {
    setup s;
    open_sized(&s, tuned, facts, PGD_F16, PGD_F16, PGD_USE_GEMM, N, K);
    s.x.scratch.bytes = gpu_product_scratch(&s.d, &s.w->desc, &s.args.x);
    assert_int_equal(run(&s, 7), PGD_OK);
    assert_int_equal(n_launches, 3);
    assert_int_equal(launches[1].kernel, PGD_PORTABLE_COUNT + PGD_MATRIX_gemm_few_f16);
    s.x.scratch.bytes--;
    assert_int_equal(run(&s, 7), PGD_INVALID);
    assert_int_equal(n_launches, 0);
    product_close(&s);
}

#endif
