// The products on tensor cores, lane by lane on the emulator: close to kernels/ref, nothing outside
// their tensors touched, and the same bits from every kernel and for every number of rows.
#define _POSIX_C_SOURCE 200809L
#include "test_cuda.h"

typedef struct product {
    int32_t dtype; // of the weight, and of x after pack_x
    int32_t n;
    int32_t k;
    int32_t rows;
    int32_t gated;
    int32_t y_dtype;
    int32_t aux_kind;
    int32_t act;
    int32_t has_bias;
    int32_t slice;
    int32_t aligned; // 1: rows of y and aux begin at multiples of 16 bytes
    float alpha;
    float act_limit;
} product;

typedef struct bench {
    const product *is;
    int32_t panels;
    int32_t n_out;  // columns of y
    int32_t stride; // of y and aux
    void *w;        // [n, k]
    void *packed;
    float *x;
    float *bias;
    void *aux;
    void *x_packed;
    void *x_cores; // for gemm_wgmma
    float *parts;
    uint32_t *counters;
    int32_t head[8]; // of the batch
    double *want;
    double *room; // by how much an element may be off
} bench;

static void pack(bench *b) {
    const product *p = b->is;
    const int32_t half = p->n / 2;
    const uint16_t *from = b->w;
    uint16_t *to = calloc((size_t)b->panels * 8 * (size_t)p->k, 2);
    b->packed = to;
    for (int32_t row = 0; row < p->n; row++) {
        const int32_t in = p->gated ? row % half : row;
        const int32_t panel = p->gated ? in / 4 : in / 8;
        const int32_t column = p->gated ? in % 4 + (row >= half ? 4 : 0) : in % 8;
        for (int32_t k = 0; k < p->k; k++) {
            to[((size_t)panel * (size_t)p->k + (size_t)k) * 8 + (size_t)column] =
                from[(size_t)row * (size_t)p->k + (size_t)k];
        }
    }
}

// What kernels/ref gives, and the room: f32 sums of k products, rounding of y.
static void expect(bench *b) {
    const product *p = b->is;
    const pgd_ref_weight w = {
        .dtype = p->dtype, .act_dtype = p->dtype, .n = p->n, .k = p->k, .rows = b->w};
    const double unit = p->y_dtype == PGD_F32 ? 0 : p->y_dtype == PGD_BF16 ? 0x1p-8 : 0x1p-11;
    float *y = malloc((size_t)p->rows * (size_t)b->stride * sizeof(float));
    float *tmp = malloc((size_t)p->rows * (size_t)p->n * sizeof(float));
    const pgd_tensor x = test_tensor(PGD_F32, b->x, p->rows, 0, p->k, p->k);
    const pgd_tensor bias = {.offset = (uint64_t)(uintptr_t)b->bias,
                             .dtype = PGD_F32,
                             .rank = p->has_bias ? 1 : 0,
                             .shape = {p->n},
                             .stride = {1}};
    const pgd_tensor out = test_tensor(PGD_F32, y, p->rows, 0, b->n_out, b->stride);
    if (p->gated) {
        const pgd_gate_up_args a = {.size = sizeof(a),
                                    .w = (pgd_weight *)&w,
                                    .x = x,
                                    .bias = bias,
                                    .tmp = test_tensor(PGD_F32, tmp, p->rows, 0, p->n, p->n),
                                    .out = out,
                                    .act = p->act,
                                    .act_limit = p->act_limit};
        assert_int_equal(pgd_ref_gate_up(NULL, &a), PGD_OK);
    } else {
        const pgd_gemm_args a = {
            .size = sizeof(a),
            .w = (pgd_weight *)&w,
            .x = x,
            .y = out,
            .bias = bias,
            .aux = test_tensor(p->y_dtype, b->aux, p->rows, 0, b->n_out, b->stride),
            .act = p->act,
            .aux_kind = p->aux_kind,
            .alpha = p->alpha,
            .act_limit = p->act_limit};
        assert_int_equal(pgd_ref_gemm(NULL, &a), PGD_OK);
    }
    b->want = malloc((size_t)p->rows * (size_t)b->n_out * sizeof(double));
    b->room = malloc((size_t)p->rows * (size_t)b->n_out * sizeof(double));
    for (int32_t r = 0; r < p->rows; r++) {
        for (int32_t c = 0; c < b->n_out; c++) {
            const double v = (double)y[r * b->stride + c];
            b->want[r * b->n_out + c] = v;
            b->room[r * b->n_out + c] = fabs(v) * (unit + 2e-6) + 2e-6 + p->k * 3e-8;
        }
    }
    free(y);
    free(tmp);
}

// Elements of a step of x in cores.
static int64_t cores_step(const product *p) {
    return kc_gemm_cores_rows(p->rows) * KC_STEP;
}

static void make(bench *b, const product *p) {
    const int64_t k_pad = (p->k + KC_STEP - 1) / KC_STEP * KC_STEP;
    const int32_t slices = (p->k + p->slice - 1) / p->slice;
    *b = (bench){.is = p,
                 .panels = p->gated ? (p->n / 2 + 3) / 4 : (p->n + 7) / 8,
                 .n_out = p->gated ? p->n / 2 : p->n,
                 .head = {p->rows, 1, 0, p->rows}};
    b->stride = b->n_out + (p->aligned ? 8 : 3);
    b->w = test_numbers(p->dtype, (int64_t)p->n * p->k, 1, 0.2);
    b->x = test_numbers(PGD_F32, (int64_t)p->rows * p->k, 2, 1);
    b->bias = test_numbers(PGD_F32, p->n, 3, 1);
    b->aux = test_numbers(p->y_dtype, (int64_t)p->rows * b->stride, 4, 1);
    b->x_packed = test_room(p->rows * k_pad * 2);
    b->x_cores = test_room(cores_step(p) * 2 * (k_pad / KC_STEP));
    b->parts = slices == 1 ? NULL : test_room((int64_t)slices * p->rows * b->panels * 8 * 4);
    b->counters = calloc(64, sizeof(uint32_t));
    pack(b);
    expect(b);
}

static void drop(bench *b) {
    void *all[] = {b->w,       b->packed, b->x,        b->bias, b->aux, b->x_packed,
                   b->x_cores, b->parts,  b->counters, b->want, b->room};
    for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++) {
        free(all[i]);
    }
}

static kc_gemm_params params_of(const bench *b) {
    const product *p = b->is;
    return (kc_gemm_params){
        .g = {.w = {.n = p->n,
                    .k = p->k,
                    .format = p->dtype,
                    .layout = p->gated ? K_LAYOUT_GATED : K_LAYOUT_PANELS},
              .x = {.s0 = (p->k + KC_STEP - 1) / KC_STEP * KC_STEP, .dtype = p->dtype},
              .y = {.s0 = b->stride, .dtype = p->y_dtype},
              .aux = {.s0 = b->stride, .dtype = p->y_dtype},
              .rows = {.mode = 1, .n = p->rows},
              .has_bias = p->has_bias,
              .aux_kind = p->aux_kind,
              .act = p->act,
              .alpha = p->alpha,
              .act_limit = p->act_limit},
        .slice = p->slice,
        .n_slices = (p->k + p->slice - 1) / p->slice,
        .panels = b->panels};
}

static uint32_t ceil_of(int32_t n, int32_t unit) {
    return (uint32_t)((n + unit - 1) / unit);
}

static void pack_x(bench *b) {
    const int32_t k_pad = (int32_t)ceil_of(b->is->k, KC_STEP) * KC_STEP;
    kc_pack_x_params p = {.x = {.s0 = b->is->k, .dtype = PGD_F32},
                          .out_s0 = k_pad,
                          .rows = {.mode = 1, .n = b->is->rows},
                          .n = b->is->k,
                          .dtype = b->is->dtype};
    void *m[8] = {b->head, b->x, b->x_packed};
    test_launch(PGD_CUDA_pack_x, ceil_of(k_pad, 512), (uint32_t)b->is->rows, 1, m, &p);
    p.out_s0 = cores_step(b->is);
    m[2] = b->x_cores;
    test_launch(PGD_CUDA_pack_x_cores, ceil_of(k_pad, 128), ceil_of(b->is->rows, 8), 1, m, &p);
}

// y of a kernel, in memory of its own.
static void *run(bench *b, int32_t kernel, int32_t merges) {
    const pgd_cuda_kernel *k = &pgd_cuda_kernels[kernel];
    const int64_t bytes = (int64_t)(b->is->rows - 1) * b->stride + b->n_out;
    kc_gemm_params p = params_of(b);
    void *y = test_room(bytes * (b->is->y_dtype == PGD_F32 ? 4 : 2));
    void *const m[8] = {b->head, b->packed, b->x_packed, y, b->bias, b->aux, b->parts, b->counters};
    const uint32_t rows = ceil_of(b->is->rows, (int32_t)k->rows);
    p.merges = merges;
    if (kernel >= PGD_CUDA_gemm_wgmma_bf16_t64) {
        void *const cores[8] = {b->head, b->packed, b->x_cores, y, b->bias, b->aux};
        p.g.x.s0 = cores_step(b->is);
        test_launch(kernel, rows, ceil_of(b->panels, 16), 1, cores, &p);
        return y;
    }
    if (k->n_items == 256) {
        test_launch(kernel, ceil_of(b->panels, 16), rows, 1, m, &p);
        return y;
    }
    test_launch(kernel, ceil_of(b->panels, 32), (uint32_t)p.n_slices, rows, m, &p);
    if (!merges && p.n_slices > 1) {
        test_launch(PGD_CUDA_gemm_merge, ceil_of(b->panels, 32), (uint32_t)b->is->rows, 1, m, &p);
    }
    for (int i = 0; i < 64; i++) {
        assert_int_equal(b->counters[i], 0);
    }
    return y;
}

static void assert_near(const bench *b, const void *y, const char *name) {
    for (int32_t r = 0; r < b->is->rows; r++) {
        for (int32_t c = 0; c < b->n_out; c++) {
            const double got = pgd_ref_load(b->is->y_dtype, y, (int64_t)r * b->stride + c);
            const double want = b->want[r * b->n_out + c];
            if (!(fabs(got - want) <= b->room[r * b->n_out + c])) {
                fail_msg("%s, rows %d, n %d, k %d: [%d, %d] is %.9g, not %.9g", name, b->is->rows,
                         b->is->n, b->is->k, r, c, got, want);
            }
        }
        for (int32_t c = b->n_out; c < b->stride && r + 1 < b->is->rows; c++) { // between rows
            const uint32_t gap = b->is->y_dtype == PGD_F32
                                     ? ((const uint32_t *)y)[r * b->stride + c]
                                     : ((const uint16_t *)y)[r * b->stride + c] * UINT32_C(0x10001);
            assert_int_equal(gap, UINT32_C(0xeeeeeeee));
        }
    }
}

static void assert_rows_equal(const bench *b, const void *a, const void *c, int32_t rows) {
    const size_t item = b->is->y_dtype == PGD_F32 ? 4 : 2;
    for (int32_t r = 0; r < rows; r++) {
        const size_t at = (size_t)r * (size_t)b->stride * item;
        assert_memory_equal((const char *)a + at, (const char *)c + at, (size_t)b->n_out * item);
    }
}

// Every kernel of the weight's type over one product; then one row alone.
static void check(const product *p) {
    const int32_t first =
        p->dtype == PGD_BF16 ? PGD_CUDA_gemm_large_bf16_t64 : PGD_CUDA_gemm_large_f16_t64;
    const int32_t hopper =
        p->dtype == PGD_BF16 ? PGD_CUDA_gemm_wgmma_bf16_t64 : PGD_CUDA_gemm_wgmma_f16_t64;
    product one = *p;
    bench b, single;
    void *y, *other;
    make(&b, p);
    pack_x(&b);
    y = run(&b, first, 0);
    assert_near(&b, y, "t64");
    for (int32_t i = 1; i < 6; i++) {
        other = run(&b, first + i, i % 2);
        assert_near(&b, other, pgd_cuda_kernels[first + i].name);
        assert_rows_equal(&b, y, other, p->rows);
        free(other);
    }
    for (int32_t i = 0; i < 3; i++) {
        other = run(&b, hopper + i, 0);
        assert_near(&b, other, pgd_cuda_kernels[hopper + i].name);
        assert_rows_equal(&b, y, other, p->rows);
        free(other);
    }
    one.rows = 1;
    make(&single, &one);
    pack_x(&single);
    other = run(&single, first + 2, 1);
    assert_rows_equal(&b, y, other, 1);
    free(other);
    free(y);
    drop(&single);
    drop(&b);
}

static void ragged_shapes(void **state) {
    const product all[] = {
        {.dtype = PGD_BF16, .n = 8, .k = 1, .rows = 1, .y_dtype = PGD_F32, .slice = 64},
        {.dtype = PGD_BF16, .n = 136, .k = 70, .rows = 7, .y_dtype = PGD_F32, .slice = 64},
        {.dtype = PGD_F16, .n = 20, .k = 200, .rows = 13, .y_dtype = PGD_F16, .slice = 128},
        {.dtype = PGD_BF16, .n = 264, .k = 331, .rows = 33, .y_dtype = PGD_BF16, .slice = 128},
        {.dtype = PGD_BF16, .n = 61, .k = 130, .rows = 131, .y_dtype = PGD_F32, .slice = 256},
        {.dtype = PGD_F16, .n = 130, .k = 257, .rows = 66, .y_dtype = PGD_F32, .slice = 64},
        // the stages of gemm_wgmma come round three times
        {.dtype = PGD_BF16, .n = 24, .k = 770, .rows = 9, .y_dtype = PGD_F32, .slice = 320},
        {.dtype = PGD_F16, .n = 24, .k = 704, .rows = 9, .y_dtype = PGD_F32, .slice = 704},
    };
    (void)state;
    for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++) {
        product p = all[i];
        p.alpha = 1;
        check(&p);
    }
}

// Where rows begin at multiples of 16 bytes, 8 columns are stored at a time: the same bits as one
// by one, of which the last panel has but 4.
static void aligned_rows(void **state) {
    static const int32_t dtypes[] = {PGD_F32, PGD_BF16, PGD_F16};
    (void)state;
    for (int32_t i = 0; i < 6; i++) {
        const product p = {.dtype = i % 2 != 0 ? PGD_F16 : PGD_BF16,
                           .n = i == 5 ? 40 : 44 - 4 * (i % 3 == 0),
                           .k = 72,
                           .rows = 11,
                           .y_dtype = dtypes[i % 3],
                           .aux_kind = i < 3 ? PGD_AUX_ADD : PGD_AUX_NONE,
                           .slice = 64,
                           .aligned = 1,
                           .alpha = 1};
        check(&p);
    }
}

static void what_follows(void **state) {
    const product all[] = {
        {.aux_kind = PGD_AUX_ADD, .y_dtype = PGD_F32, .alpha = 1},
        {.aux_kind = PGD_AUX_ADD, .y_dtype = PGD_BF16, .alpha = 1},
        {.aux_kind = PGD_AUX_MUL, .y_dtype = PGD_F16, .alpha = 0.5F, .has_bias = 1},
        {.act = PGD_ACT_SILU, .y_dtype = PGD_F32, .alpha = 1, .has_bias = 1, .act_limit = 0.5F},
        {.gated = 1, .act = PGD_ACT_SILU, .y_dtype = PGD_BF16, .alpha = 1},
        {.gated = 1, .act = PGD_ACT_GELU_TANH, .y_dtype = PGD_F32, .alpha = 1, .has_bias = 1},
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

// A barrier that is missing between warps shows when they run in the other order.
static void other_order(void **state) {
    pgd_emulator_backwards = 1;
    what_follows(state);
    aligned_rows(state);
    pgd_emulator_backwards = 0;
}

// Rows behind the live ones are neither read nor written, and no live row runs nothing.
static void live_rows(void **state) {
    const product p = {.dtype = PGD_BF16,
                       .n = 24,
                       .k = 64,
                       .rows = 20,
                       .y_dtype = PGD_F32,
                       .slice = 64,
                       .alpha = 1};
    static const int32_t bf16[] = {
        PGD_CUDA_gemm_large_bf16_t64, PGD_CUDA_gemm_large_bf16_t128, PGD_CUDA_gemm_small_bf16_r8,
        PGD_CUDA_gemm_small_bf16_r16, PGD_CUDA_gemm_small_bf16_r32,  PGD_CUDA_gemm_small_bf16_r64,
        PGD_CUDA_gemm_wgmma_bf16_t64, PGD_CUDA_gemm_wgmma_bf16_t128, PGD_CUDA_gemm_wgmma_bf16_t192,
    };
    enum { N_BF16 = sizeof(bf16) / sizeof(bf16[0]) };
    const int32_t live[] = {0, 1, 17};
    bench b;
    (void)state;
    make(&b, &p);
    pack_x(&b);
    for (int i = 0; i < 3; i++) {
        for (int32_t k = 0; k < N_BF16; k++) {
            b.head[0] = live[i];
            uint32_t *y = run(&b, bf16[k], 1);
            for (int32_t r = 0; r < p.rows; r++) {
                for (int32_t c = 0; c < p.n; c++) {
                    const uint32_t bits = y[r * b.stride + c];
                    assert_true((bits == UINT32_C(0xeeeeeeee)) == (r >= live[i]));
                }
            }
            free(y);
        }
    }
    drop(&b);
}

// The slices of a weight: whole steps, and enough of them for one row.
static void slices(void **state) {
    (void)state;
    for (int32_t n = 1; n < 200000; n = n * 3 + 1) {
        for (int32_t k = 1; k < 60000; k = k * 2 + 7) {
            const int32_t slice = kc_gemm_slice(n, k);
            assert_true(slice >= 256 && slice % KC_STEP == 0);
        }
    }
    assert_int_equal(kc_gemm_slice(4096, 4096), 512);
    assert_int_equal(kc_gemm_slice(128256, 4096), 4096);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ragged_shapes), cmocka_unit_test(aligned_rows),
        cmocka_unit_test(what_follows),  cmocka_unit_test(other_order),
        cmocka_unit_test(live_rows),     cmocka_unit_test(slices),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
