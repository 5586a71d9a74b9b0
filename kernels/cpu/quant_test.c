// Products with quantized weights: near the sum in double of what the blocks mean (by the
// reference's reading of them), the same bits by every instruction set and for any number of rows.
// The bodies for AMX are among them over tile instructions in plain C.
#define TILES_INT8
#include "tiles_test.h"

#include <stdio.h>
#include <stdlib.h>

#include <pagoda/ops.h>

#include "quant.h"
#include "ref/ref.h"

// ---- the bodies for AMX ------------------------------------------------------------------------

#define PGD_CPU_KERNEL(name, result, params)
#define PGD_CPU_QUANT_PRODUCT(name, scheme) void name##__tiles(const pgd_cpu_part *part);
#include "list.inc"

#include "vec_scalar.h"

#undef VEC_NAME
#define VEC_NAME(n) n##__tiles
#define Q_TILES
#include "quant.inc"

#define PGD_CPU_KERNEL(name, result, params) .name = name##__scalar,
#define PGD_CPU_QUANT_PRODUCT(name, scheme)  .name = name##__tiles,
static const pgd_cpu_kernels in_tiles = {
    .isa = "amx in plain C",
#include "list.inc"
};

// That one and those of this machine's instruction sets.
static const pgd_cpu_kernels *table(int i) {
    return i == 0 ? &in_tiles : pgd_cpu_pick(pgd_cpu_isas[i - 1]);
}

#define FOR_EACH_TABLE(k)                                           \
    for (int t_ = 0; t_ == 0 || pgd_cpu_isas[t_ - 1] != NULL; t_++) \
        for (const pgd_cpu_kernels *k = table(t_); k != NULL; k = NULL)

// ---- the products ------------------------------------------------------------------------------

enum { ROWS = 37, MOST_K = 1024, N = PGD_CPU_PANEL, BLOCKS = MOST_K / 32 + 1, LANES = 31 };

static float x[ROWS * MOST_K];
static pgd_cpu_int8 rounded[ROWS * BLOCKS];
static unsigned char *source; // [LANES] rows of the scheme
static float scales[N];
static float weights[LANES][MOST_K];
static unsigned char *panel;
static int64_t row_bytes;

// Outliers here and there, a block of zeros: what a scale a block must cope with.
static void fill_x(void) {
    uint64_t rng = 5;
    for (int i = 0; i < ROWS * MOST_K; i++) {
        const float wild = test_next(&rng) % 97 == 0 ? 20.0f : 1.0f;
        x[i] = i / 32 % 29 == 7 ? 0.0f : wild * test_float(&rng);
    }
}

// A row of the scheme by the reference, and what it means.
static void fill_weights(int32_t scheme, int64_t k) {
    uint64_t rng = (uint64_t)(100 + scheme);
    float row[MOST_K];
    row_bytes = scheme == PGD_SCHEME_INT8 ? k : (int64_t)pgd_ref_row_bytes(scheme, 0, k);
    source = test_malloc((size_t)(LANES * row_bytes));
    for (int r = 0; r < LANES; r++) {
        for (int64_t i = 0; i < k; i++) {
            row[i] = test_float(&rng) * (float)(1 + (i / 16 + r) % 7);
        }
        if (scheme == PGD_SCHEME_INT8) {
            int8_t *q = (int8_t *)source + r * row_bytes;
            scales[r] = pgd_ref_quantize_int8(row, k, q);
            q[k / 2] = -128; // a file may hold it
            for (int64_t i = 0; i < k; i++) {
                weights[r][i] = (float)q[i] * scales[r];
            }
        } else {
            pgd_ref_quantize(scheme, row, k, source + r * row_bytes);
            if (scheme == PGD_SCHEME_Q8_0) {
                source[r * row_bytes + 2] = 0x80;
            }
            pgd_ref_dequantize(scheme, source + r * row_bytes, k, weights[r]);
        }
    }
}

static void pack(int32_t scheme, int64_t k) {
    const unsigned char *rows[N] = {NULL};
    fill_weights(scheme, k);
    for (int r = 0; r < LANES; r++) {
        rows[r] = source + r * row_bytes;
    }
    panel = test_malloc((size_t)pgd_cpu_quant_bytes(scheme, k));
    pgd_cpu_quant_pack(scheme, rows, scales, k, panel);
}

static void drop(void) {
    test_free(source);
    test_free(panel);
}

// k in parts, as callers cut it.
static void run(const pgd_cpu_kernels *kernels, int32_t scheme, int64_t first, int64_t m, int64_t k,
                float *acc) {
    pgd_cpu_product_fn fn = pgd_cpu_quant_product_of(kernels, scheme);
    assert_non_null(fn);
    for (int64_t k0 = 0; k0 < k; k0 += PGD_CPU_DEPTH) {
        const pgd_cpu_part part = {
            .x = rounded + first * BLOCKS + k0 / PGD_CPU_CELL,
            .ldx = BLOCKS,
            .m = m,
            .k = k - k0 < PGD_CPU_DEPTH ? k - k0 : PGD_CPU_DEPTH,
            .w = panel + pgd_cpu_quant_bytes(scheme, k0),
            .next = m % 2 == 0 ? panel : NULL,
            .acc = acc,
            .ldacc = N,
            .add = k0 > 0,
        };
        fn(&part);
    }
}

static void round_x(const pgd_cpu_kernels *kernels, int64_t k) {
    memset(rounded, 0xff, sizeof(rounded));
    for (int64_t r = 0; r < ROWS; r++) {
        kernels->int8_round(x + r * MOST_K, rounded + r * BLOCKS, k);
    }
}

static int64_t k_of(int32_t scheme, int i) {
    static const int64_t of_int8[] = {1, 31, 37, 256, 523, 1000};
    static const int64_t of_32[] = {32, 64, 224, 544, 800, 1024};
    static const int64_t of_256[] = {256, 512, 768, 1024, 0, 0};
    return scheme == PGD_SCHEME_INT8            ? of_int8[i]
           : pgd_scheme_elements(scheme) == 256 ? of_256[i]
                                                : of_32[i];
}

#define FOR_EACH_CASE(p, k)                                                             \
    for (const pgd_cpu_quant_product *p = pgd_cpu_quant_products; p->name != NULL; p++) \
        for (int i_ = 0; i_ < 6; i_++)                                                  \
            for (int64_t k = k_of(p->scheme, i_); k > 0; k = 0)

// x = d * q within half a step; sums are those of q.
static void x_is_rounded(void **state) {
    (void)state;
    fill_x();
    FOR_EACH_ISA(kernels) {
        round_x(kernels, 1000);
        for (int64_t i = 0; i < 1024; i++) {
            const pgd_cpu_int8 *b = &rounded[3 * BLOCKS + i / 32];
            const float want = i < 1000 ? x[3 * MOST_K + i] : 0.0f;
            assert_true(fabsf(b->d * (float)b->q[i % 32] - want) <= 0.5001f * b->d);
        }
        for (int64_t i = 0; i < 1024; i += 32) {
            const pgd_cpu_int8 *b = &rounded[3 * BLOCKS + i / 32];
            int32_t sum[3] = {0};
            for (int j = 0; j < 32; j++) {
                sum[0] += b->q[j];
                sum[1 + j / 16] += b->q[j];
            }
            for (int j = 0; j < 3; j++) {
                assert_int_equal(b->c[j], -128 * sum[j]);
                assert_true(b->s[j] == b->d * (float)sum[j]);
            }
        }
    }
}

static void strange_numbers_are_kept(void **state) {
    float bad[64] = {1.0f};
    pgd_cpu_int8 out[2];
    (void)state;
    FOR_EACH_ISA(kernels) {
        for (int i = 0; i < 3; i++) {
            bad[17] = i == 0 ? NAN : i == 1 ? INFINITY : 1e-44f;
            kernels->int8_round(bad, out, 64);
            assert_true(i == 2 ? out[0].q[0] == 127 && out[0].q[17] == 0 : isnan(out[0].d));
            assert_true(out[1].d == 0.0f && out[1].q[3] == 0);
        }
    }
}

static void rows_of_caches(void **state) {
    enum { MOST = 83, LD = 96 };
    static int8_t q[16 * MOST];
    static float side[16 * LD];
    static float turned[16 * MOST];
    float row_scales[16];
    uint64_t rng = 9;
    (void)state;
    for (int i = 0; i < 16 * MOST; i++) {
        q[i] = (int8_t)test_next(&rng);
    }
    for (int i = 0; i < 16; i++) {
        row_scales[i] = test_float(&rng);
    }
    FOR_EACH_ISA(kernels) {
        for (int64_t dim = 1; dim <= MOST; dim += dim < 20 ? 1 : 9) {
            for (int i = 0; i < 16 * LD; i++) {
                side[i] = 0.5f;
            }
            kernels->int8_rows(q, row_scales, 16, dim, side, LD);
            kernels->int8_turned_16(q, row_scales, dim, turned);
            for (int64_t i = 0; i < 16; i++) {
                for (int64_t d = 0; d < dim; d++) {
                    assert_true(side[i * LD + d] == (float)q[i * dim + d] * row_scales[i]);
                    assert_true(turned[d * 16 + i] == (float)q[d * 16 + i] * row_scales[i]);
                }
                assert_true(side[i * LD + dim] == 0.5f);
            }
        }
    }
}

// Rounding of x: NMSE 2e-4 at most here, one value in 97 being 20 times the others.
static void products_are_close(void **state) {
    static float acc[ROWS * N];
    (void)state;
    fill_x();
    FOR_EACH_CASE(p, k) {
        pack(p->scheme, k);
        FOR_EACH_TABLE(kernels) {
            double error = 0;
            double power = 0;
            round_x(kernels, k);
            run(kernels, p->scheme, 0, ROWS, k, acc);
            for (int64_t i = 0; i < ROWS * N; i++) {
                double exact = 0;
                double same = 0;
                double size = 0;
                for (int64_t j = 0; j < k && i % N < LANES; j++) {
                    const pgd_cpu_int8 *b = &rounded[i / N * BLOCKS + j / 32];
                    const double w = (double)weights[i % N][j];
                    const double rounded_x = (double)b->d * b->q[j % 32];
                    exact += (double)x[i / N * MOST_K + j] * w;
                    same += rounded_x * w;
                    size += fabs(rounded_x * w);
                }
                // minimums make large terms that cancel
                assert_true(fabs((double)acc[i] - same) <= 1e-6 * (8 * size + 1e-30));
                error += ((double)acc[i] - exact) * ((double)acc[i] - exact);
                power += exact * exact;
            }
            assert_true(error <= 2e-4 * power);
        }
        drop();
    }
}

static void isas_agree(void **state) {
    static float want[ROWS * N];
    static float got[ROWS * N];
    static pgd_cpu_int8 kept[ROWS * BLOCKS];
    (void)state;
    fill_x();
    FOR_EACH_CASE(p, k) {
        const pgd_cpu_kernels *scalar = pgd_cpu_pick("scalar");
        pack(p->scheme, k);
        round_x(scalar, k);
        memcpy(kept, rounded, sizeof(kept));
        run(scalar, p->scheme, 0, ROWS, k, want);
        FOR_EACH_TABLE(kernels) {
            round_x(kernels, k);
            assert_memory_equal(rounded, kept, sizeof(kept));
            run(kernels, p->scheme, 0, ROWS, k, got);
            assert_memory_equal(got, want, sizeof(want));
        }
        drop();
    }
}

static void rows_do_not_matter(void **state) {
    static float all[ROWS * N];
    static float some[ROWS * N];
    (void)state;
    fill_x();
    FOR_EACH_CASE(p, k) {
        if (i_ != 3) {
            continue;
        }
        pack(p->scheme, k);
        FOR_EACH_TABLE(kernels) {
            round_x(kernels, k);
            run(kernels, p->scheme, 0, ROWS, k, all);
            for (int64_t m = 1; m < ROWS; m++) {
                run(kernels, p->scheme, ROWS - m, m, k, some);
                assert_memory_equal(some, all + (ROWS - m) * N, sizeof(float) * (size_t)(m * N));
            }
        }
        drop();
    }
}

static void rows_come_back(void **state) {
    float out[MOST_K];
    (void)state;
    FOR_EACH_CASE(p, k) {
        pack(p->scheme, k);
        for (int64_t r = 0; r < LANES; r += 5) {
            const int64_t from = k / 3;
            pgd_cpu_quant_row(p->scheme, panel, r, from, k - from, out);
            for (int64_t i = from; i < k; i++) {
                const float want = weights[r][i];
                assert_true(fabsf(out[i - from] - want) <= 1e-6f * fabsf(want) + 1e-6f);
            }
        }
        drop();
    }
}

// Resident bytes stay within 1.05 times those of the file.
static void panels_are_small(void **state) {
    (void)state;
    for (const pgd_cpu_quant_product *p = pgd_cpu_quant_products; p->name != NULL; p++) {
        const int64_t k = 4096;
        const int64_t file =
            p->scheme == PGD_SCHEME_INT8 ? k + 4 : (int64_t)pgd_ref_row_bytes(p->scheme, 0, k);
        assert_true((double)pgd_cpu_quant_bytes(p->scheme, k) <= 1.05 * (double)(N * file));
    }
    assert_null(pgd_cpu_quant_product_of(pgd_cpu_pick("scalar"), PGD_SCHEME_PLAIN));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(x_is_rounded),       cmocka_unit_test(strange_numbers_are_kept),
        cmocka_unit_test(products_are_close), cmocka_unit_test(isas_agree),
        cmocka_unit_test(rows_do_not_matter), cmocka_unit_test(rows_come_back),
        cmocka_unit_test(panels_are_small),   cmocka_unit_test(rows_of_caches),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
