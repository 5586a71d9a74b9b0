// What the op layer launches where a device has tuned kernels: a driver that only writes down.
// Which kernel runs for how many rows, with which grid, memories and parameters; and when it is the
// portable ones after all.
#include "test_tuned.h"

// The plugin's own list holds images only where there is nvcc.
const gpu_stream_image cuda_tuned_images[] = {{"", "an image"}, {"", NULL}};

static const kc_gemm_params *params_of(const gpu_launch *l) {
    return (const kc_gemm_params *)(const void *)l->params;
}

static void test_a_product_is_a_pack_and_one_kernel(void **state) {
    (void)state;
    static const int32_t rows[] = {1, 8, 9, 40, 64, 65, 512, 513, 1024};
    setup s;
    open_setup(&s, "sm_90", PGD_BF16, PGD_BF16, PGD_USE_GEMM);
    cuda_product want;
    cuda_choose_product(CUDA_MMA, PGD_BF16, N, K, false, CAP, &want);
    assert_true(want.n_slices > 1);
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        assert_int_equal(run(&s, rows[i]), PGD_OK);
        assert_int_equal(n_launches, 2);
        assert_int_equal(launches[0].kernel, PGD_PORTABLE_COUNT + PGD_CUDA_pack_x);
        assert_int_equal(launches[0].groups[1], rows[i]);
        const gpu_launch *l = &launches[1];
        const int32_t number = l->kernel - PGD_PORTABLE_COUNT;
        const pgd_cuda_kernel *k = &pgd_cuda_kernels[number];
        const kc_gemm_params *p = params_of(l);
        const int32_t axis = k->shared == 0 ? 2 : 1;
        assert_int_equal(l->groups[0],
                         (want.panels * 8 + (int32_t)k->columns - 1) / (int32_t)k->columns);
        assert_int_equal(l->groups[axis], (rows[i] + (int32_t)k->rows - 1) / (int32_t)k->rows);
        assert_int_equal(p->n_slices, want.n_slices);
        assert_int_equal(p->g.x.s0, want.k_pad);
        assert_int_equal(p->g.x.at, (int64_t)s.x.scratch.offset);
        assert_int_equal(p->g.rows.n, axis == 2 ? CUDA_SMALL_ROWS : CAP);
        if (axis == 2) {
            assert_int_equal(l->groups[1], want.n_slices);
            assert_ptr_equal(l->memories[7], s.q->counters);
            assert_non_null(l->memories[7]);
            assert_int_equal(p->merges, 1);
            assert_int_equal(p->parts_at - p->g.x.at, (int64_t)want.parts_at);
        }
    }
    product_close(&s);
}

// On a chip whose trial went well: few rows as everywhere, many rows with x in cores.
static void test_wgmma_takes_many_rows(void **state) {
    (void)state;
    static const int32_t rows[] = {1, 64, 65, 512, 513, 1024};
    setup s;
    open_setup(&s, "sm_90", PGD_BF16, PGD_BF16, PGD_USE_GEMM);
    s.self.tuned = &cuda_hopper_tuned;
    cuda_product want;
    cuda_choose_product(CUDA_WGMMA, PGD_BF16, N, K, false, CAP, &want);
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        const bool is_many = rows[i] > CUDA_SMALL_ROWS;
        assert_int_equal(run(&s, rows[i]), PGD_OK);
        assert_int_equal(n_launches, 2);
        assert_int_equal(launches[0].kernel - PGD_PORTABLE_COUNT,
                         is_many ? PGD_CUDA_pack_x_cores : PGD_CUDA_pack_x);
        assert_int_equal(launches[0].groups[1], is_many ? (rows[i] + 7) / 8 : rows[i]);
        assert_true(launches[0].groups[0] * (is_many ? 128U : 512U) >= (uint32_t)want.k_pad);
        const kc_pack_x_params *packed = (const kc_pack_x_params *)(const void *)launches[0].params;
        const kc_gemm_params *p = params_of(&launches[1]);
        assert_int_equal(packed->out_s0, is_many ? want.x_step : want.k_pad);
        assert_int_equal(p->g.x.s0, packed->out_s0);
        assert_int_equal(p->g.x.at, packed->out_at);
        assert_int_equal(p->is_trial, 0);
        if (is_many) {
            const int32_t tile = rows[i] <= 512 ? 64 : 128;
            assert_int_equal(launches[1].kernel - PGD_PORTABLE_COUNT,
                             tile == 64 ? PGD_CUDA_gemm_wgmma_bf16_t64
                                        : PGD_CUDA_gemm_wgmma_bf16_t128);
            assert_int_equal(launches[1].groups[0], (rows[i] + tile - 1) / tile);
            assert_int_equal(launches[1].groups[1], 1);
        }
    }
    uint64_t bytes = 0;
    assert_string_equal(gpu_tuned_product(&s.d, &s.w->desc, &s.args.x, &bytes), "wgmma_bf16");
    assert_int_equal(bytes, want.scratch_bytes);
    product_close(&s);
}

static int32_t is_taken(const char *arch, int32_t dtype, int32_t x_dtype, uint32_t uses) {
    const gpu_device_facts f = chip(arch);
    return is_tuned(&cuda_tuned, &f, dtype, x_dtype, uses);
}

static void test_who_takes_what(void **state) {
    (void)state;
    assert_int_equal(is_taken("sm_90", PGD_BF16, PGD_BF16, PGD_USE_GEMM), 1);
    assert_int_equal(is_taken("sm_80", PGD_F16, PGD_F16, PGD_USE_GEMM), 1);
    assert_int_equal(is_taken("sm_120", PGD_BF16, PGD_BF16, PGD_USE_GEMM | PGD_USE_EMBED), 1);
    assert_int_equal(is_taken("sm_75", PGD_BF16, PGD_BF16, PGD_USE_GEMM), 0);
    assert_int_equal(is_taken("", PGD_BF16, PGD_BF16, PGD_USE_GEMM), 0);
    assert_int_equal(is_taken("sm_90", PGD_F32, PGD_F32, PGD_USE_GEMM), 0);
    assert_int_equal(is_taken("sm_90", PGD_BF16, PGD_F32, PGD_USE_GEMM), 0); // x is not rounded
    option_tuned = "off";
    assert_int_equal(is_taken("sm_90", PGD_BF16, PGD_BF16, PGD_USE_GEMM), 0);
    option_tuned = "on";
    option_kernels = "a file";
    assert_int_equal(is_taken("sm_90", PGD_BF16, PGD_BF16, PGD_USE_GEMM), 0);
    option_kernels = NULL;
    option_tuned = NULL;
}

// What is loaded on every chip fits into the shared memory of the smallest (99 KiB), and the
// kernels of one chip are those of one table.
static void test_kernels_of_one_chip(void **state) {
    (void)state;
    assert_ptr_equal(cuda_tuned.kernels, cuda_hopper_tuned.kernels);
    for (uint32_t i = 0; i < cuda_tuned.n_kernels; i++) {
        const gpu_kernel *k = &cuda_tuned.kernels[i];
        assert_true(k->shared <= 99 << 10 || k->arch != NULL);
        assert_int_equal(k->arch != NULL, strstr(k->name, "wgmma") != NULL);
    }
}

static void test_reasons_are_given(void **state) {
    (void)state;
    gpu_device_facts f = {.arch = "sm_75"};
    char reason[96] = "";
    assert_false(cuda_tuned.usable(&host, &f, reason, sizeof(reason)));
    assert_non_null(strstr(reason, "sm_80"));
    option_kernels = "x";
    assert_false(cuda_tuned.usable(&host, &f, reason, sizeof(reason)));
    assert_non_null(strstr(reason, "file"));
    option_kernels = NULL;
}

// The scratch that support promises is what a step takes: one byte less is refused.
static void test_scratch_is_planned(void **state) {
    (void)state;
    setup s;
    open_setup(&s, "sm_90", PGD_BF16, PGD_BF16, PGD_USE_GEMM);
    s.x.scratch.bytes = gpu_product_scratch(&s.d, &s.w->desc, &s.args.x);
    assert_int_equal(run(&s, 7), PGD_OK);
    assert_int_equal(n_launches, 2);
    s.x.scratch.bytes--;
    n_launches = 0;
    assert_int_equal(gpu_op_gemm(&s.x, &s.args), PGD_INVALID);
    assert_int_equal(n_launches, 0);
    product_close(&s);
}

// ---- attention ---------------------------------------------------------------------------------

static void test_attention_by_rows_and_keys(void **state) {
    (void)state;
    static const struct {
        int32_t rows, keys, kernel;
        uint32_t groups[3];
    } want[] = {
        {1, 257, PGD_CUDA_attn_decode_bf16_d128, {2, 2, 1}},
        {7, 1000, PGD_CUDA_attn_decode_bf16_d128, {4, 2, 7}},
        {7, 256, PGD_CUDA_attn_prefill_bf16_d128, {1, 2, 1}},
        {900, 900, PGD_CUDA_attn_prefill_bf16_d128, {57, 2, 1}},
    };
    setup s;
    open_setup(&s, "sm_90", PGD_BF16, PGD_BF16, PGD_USE_GEMM);
    const pgd_kv_desc desc = {.size = sizeof(desc),
                              .layers = 1,
                              .heads = 2,
                              .k_dim = 128,
                              .v_dim = 128,
                              .k_dtype = PGD_BF16,
                              .v_dtype = PGD_BF16,
                              .block_tokens = 16};
    pgd_kv_plan plan = {.size = sizeof(plan)};
    pgd_kv *kv = NULL;
    assert_int_equal(gpu_kv_table.plan(&s.d, &desc, &plan), PGD_OK);
    const pgd_range mem = {s.memory, 0, UINT64_C(1) << 20};
    assert_int_equal(gpu_kv_table.bind(&s.d, &desc, &plan, &mem, 4, &kv), PGD_OK);
    s.batch.cap_kv = 2048;
    s.batch.cap_blocks[0] = 128;
    s.batch.cap_slots = 1;
    s.batch.n_groups = 1;
    s.batch.q_start = s.batch.kv_len = s.batch.seq_slot = s.batch.block_table[0] = 4096;
    pgd_attn_args a = {.size = sizeof(a),
                       .rows = PGD_ROWS_TOKENS,
                       .batch = &s.batch,
                       .kv = kv,
                       .q = product_tensor(s.memory, PRODUCT_X, PGD_BF16, CAP, 1024),
                       .scale = 1.0f,
                       .causal = 1};
    a.q.rank = 3;
    a.q.shape[1] = 8;
    a.q.shape[2] = 128;
    a.q.stride[1] = 128;
    a.q.stride[2] = 1;
    a.out = a.q;
    for (size_t i = 0; i < sizeof(want) / sizeof(want[0]); i++) {
        s.head.n_tokens = want[i].rows;
        s.head.max_kv = want[i].keys;
        n_launches = 0;
        assert_int_equal(gpu_op_attn(&s.x, &a), PGD_OK);
        assert_int_equal(n_launches, 1);
        assert_int_equal(launches[0].kernel, PGD_PORTABLE_COUNT + want[i].kernel);
        assert_memory_equal(launches[0].groups, want[i].groups, sizeof(want[i].groups));
        const kc_attn_params *p = (const kc_attn_params *)(const void *)launches[0].params;
        assert_int_equal(p->few, want[i].groups[0] <= 4 && want[i].keys > 256 ? INT32_MAX : 0);
        assert_int_equal(1 << p->token_shift, 16);
        assert_ptr_equal(launches[0].memories[5], s.q->counters);
    }
    gpu_kv_table.destroy(&s.d, kv);
    product_close(&s);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_product_is_a_pack_and_one_kernel),
        cmocka_unit_test(test_wgmma_takes_many_rows),
        cmocka_unit_test(test_who_takes_what),
        cmocka_unit_test(test_kernels_of_one_chip),
        cmocka_unit_test(test_reasons_are_given),
        cmocka_unit_test(test_scratch_is_planned),
        cmocka_unit_test(test_attention_by_rows_and_keys),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
