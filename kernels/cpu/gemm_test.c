// The gemm tiles of each instruction set: close to a sum in double, and the same bits whatever the
// number of rows they are computed with. The attention tiles likewise.
#include "isa_test.h"

#include <pagoda/ops.h>

enum { ROWS = 37, DEPTH = 150, LDX = DEPTH + 3, COUNT = ROWS * PGD_CPU_PANEL };

static float x[ROWS * LDX];
static uint16_t rounded[ROWS * LDX];
static float form[ROWS * LDX + 1];          // by bf16_round: room for 2 and 4 bytes an element
static float weights[PGD_CPU_PANEL][DEPTH]; // exact in bf16 and in f16
static union panel {
    float f32[DEPTH * PGD_CPU_PANEL];
    uint16_t f16[DEPTH * PGD_CPU_PANEL];
    uint16_t bf16[DEPTH * PGD_CPU_PANEL];
} panels[3];

// Multiples of 1/64 below 2 have the same meaning in all three dtypes.
static void fill(void) {
    uint64_t rng = 11;
    for (int i = 0; i < ROWS * LDX; i++) {
        x[i] = test_float(&rng);
    }
    memset(panels, 0, sizeof(panels));
    for (int n = 0; n < PGD_CPU_PANEL; n++) {
        for (int k = 0; k < DEPTH; k++) {
            const float w = (float)((int)(test_next(&rng) % 255) - 127) / 64.0f;
            uint32_t bits = 0;
            weights[n][k] = w;
            memcpy(&bits, &w, sizeof(bits));
            panels[0].f32[k * PGD_CPU_PANEL + n] = w;
            panels[2].bf16[(k / 2 * PGD_CPU_PANEL + n) * 2 + k % 2] = (uint16_t)(bits >> 16);
            const uint32_t exponent = (bits >> 23 & 0xff) - 127 + 15;
            panels[1].f16[k * PGD_CPU_PANEL + n] =
                w == 0.0f
                    ? 0
                    : (uint16_t)((bits >> 16 & 0x8000) | exponent << 10 | (bits >> 13 & 0x3ff));
        }
    }
}

// What the product reads as element k of row i.
static double x_of(const pgd_cpu_product *product, int i, int64_t k) {
    const uint32_t bits = (uint32_t)rounded[i * LDX + k] << 16;
    float v = x[i * LDX + k];
    if (product->x_dtype == PGD_BF16) {
        memcpy(&v, &bits, sizeof(v));
    }
    return (double)v;
}

// Rows [first, first + m) of the product over k.
static void run(const pgd_cpu_kernels *kernels, const pgd_cpu_product *product, int first,
                int64_t m, int64_t k, int32_t add, float *acc) {
    const int dot = product->x_dtype == PGD_BF16;
    const int64_t bytes = dot ? kernels->dot_bytes : (int64_t)sizeof(float);
    const pgd_cpu_part part = {
        .x = (const char *)(dot ? form : x) + first * LDX * bytes,
        .ldx = LDX,
        .m = m,
        .k = k,
        .w = &panels[product->w_dtype == PGD_F32   ? 0
                     : product->w_dtype == PGD_F16 ? 1
                                                   : 2],
        .next = m % 2 == 0 ? &panels : NULL,
        .acc = acc,
        .ldacc = PGD_CPU_PANEL,
        .add = add,
    };
    pgd_cpu_product_at(kernels, product)(&part);
}

#define FOR_EACH_PRODUCT(kernels, product) \
    FOR_EACH_ISA(kernels)                  \
    for (const pgd_cpu_product *product = prepare(kernels); product->name != NULL; product++)

static const pgd_cpu_product *prepare(const pgd_cpu_kernels *kernels) {
    fill();
    kernels->bf16_narrow(x, rounded, ROWS * LDX);
    kernels->bf16_round(x, form, ROWS * LDX);
    return pgd_cpu_products;
}

// Rows of x by bf16_round end in a zero behind an odd k, so only even k are asked of dot products.
static int64_t taken(const pgd_cpu_product *product, int64_t k) {
    return product->x_dtype == PGD_BF16 ? k / 2 * 2 : k;
}

static void products_are_close(void **state) {
    float acc[COUNT];
    (void)state;
    FOR_EACH_PRODUCT(kernels, product) {
        for (int64_t step = 0; step <= DEPTH; step += step < 5 ? 1 : 29) {
            const int64_t k = taken(product, step);
            run(kernels, product, 0, ROWS, k, 0, acc);
            for (int i = 0; i < COUNT; i++) {
                double want = 0;
                for (int64_t j = 0; j < k; j++) {
                    want +=
                        x_of(product, i / PGD_CPU_PANEL, j) * (double)weights[i % PGD_CPU_PANEL][j];
                }
                assert_true(fabs((double)acc[i] - want) <= 2e-5);
            }
        }
    }
}

static void rows_do_not_matter(void **state) {
    float all[COUNT];
    float some[COUNT];
    (void)state;
    FOR_EACH_PRODUCT(kernels, product) {
        const int64_t k = taken(product, DEPTH - 1);
        run(kernels, product, 0, ROWS, k, 0, all);
        for (int m = 1; m < ROWS; m++) {
            const int first = ROWS - m;
            run(kernels, product, first, m, k, 0, some);
            assert_memory_equal(some, all + first * PGD_CPU_PANEL,
                                sizeof(float) * (size_t)m * PGD_CPU_PANEL);
        }
    }
}

// What list.inc promises: an instruction set changes no bit of a product of bf16 by bf16.
static void isas_agree(void **state) {
    float want[COUNT];
    float got[COUNT];
    (void)state;
    FOR_EACH_PRODUCT(kernels, product) {
        const pgd_cpu_kernels *scalar = pgd_cpu_pick("scalar");
        const int64_t k = taken(product, DEPTH - 1);
        if (product->x_dtype != PGD_BF16 || strcmp(kernels->isa, "amx") == 0) {
            continue; // amx_test.c has the order of amx
        }
        run(kernels, product, 0, ROWS, k, 0, got);
        (void)prepare(scalar);
        run(scalar, product, 0, ROWS, k, 0, want);
        (void)prepare(kernels);
        assert_memory_equal(got, want, sizeof(want));
    }
}

static void adds_to_what_is_there(void **state) {
    float once[COUNT];
    float twice[COUNT];
    (void)state;
    FOR_EACH_PRODUCT(kernels, product) {
        run(kernels, product, 0, ROWS, DEPTH, 0, once);
        memcpy(twice, once, sizeof(once));
        run(kernels, product, 0, ROWS, DEPTH, 1, twice);
        for (int i = 0; i < COUNT; i++) {
            assert_true(twice[i] == 2.0f * once[i]);
        }
    }
}

static void finishes(void **state) {
    const pgd_cpu_finish f = {.act = PGD_ACT_RELU,
                              .aux_kind = PGD_AUX_MUL,
                              .alpha = 0.5f,
                              .act_alpha = 1.0f,
                              .act_limit = 3.0f};
    float acc[2 * PGD_CPU_PANEL];
    float bias[PGD_CPU_PANEL];
    float aux[2 * PGD_CPU_PANEL];
    float y[2 * PGD_CPU_PANEL];
    (void)state;
    for (int i = 0; i < 2 * PGD_CPU_PANEL; i++) {
        acc[i] = (float)(i % 16) - 8.0f;
        bias[i % PGD_CPU_PANEL] = 1.0f;
        aux[i] = 2.0f;
    }
    FOR_EACH_ISA(kernels) {
        for (int cols = 1; cols <= PGD_CPU_PANEL; cols++) {
            pgd_cpu_finish how = f;
            how.bias = bias;
            how.aux = aux;
            how.ldaux = PGD_CPU_PANEL;
            for (int i = 0; i < 2 * PGD_CPU_PANEL; i++) {
                y[i] = -1.0f;
            }
            kernels->f32_finish_32(acc, PGD_CPU_PANEL, 2, cols, y, PGD_CPU_PANEL, &how);
            for (int i = 0; i < 2 * PGD_CPU_PANEL; i++) {
                float want = 0.5f * acc[i] + 1.0f;
                want = want > 3.0f ? 3.0f : (want < 0.0f ? 0.0f : want);
                assert_true(y[i] == (i % PGD_CPU_PANEL < cols ? 2.0f * want : -1.0f));
            }
        }
    }
}

// Weights and sum of positions [lo, hi) of a tile, against exp of libm; then two tiles merged.
static void softmax_of_a_tile(void **state) {
    const pgd_cpu_score how = {.scale = 0.25f, .softcap = 0.0f};
    uint64_t rng = 5;
    float s[PGD_CPU_TILE];
    float p[PGD_CPU_TILE];
    (void)state;
    for (int i = 0; i < PGD_CPU_TILE; i++) {
        s[i] = 20.0f * test_float(&rng);
    }
    FOR_EACH_ISA(kernels) {
        for (int lo = 0; lo < PGD_CPU_TILE; lo += 5) {
            for (int hi = lo + 1; hi <= PGD_CPU_TILE; hi += 3) {
                float max = 0.0f;
                float sum = 0.0f;
                double top = -INFINITY;
                double total = 0.0;
                memcpy(p, s, sizeof(p));
                kernels->f32_softmax_64(p, lo, hi, &how, 0.0f, 0.0f, &max, &sum);
                for (int i = lo; i < hi; i++) {
                    top = fmax(top, 0.25 * (double)s[i]);
                }
                assert_true((double)max == top);
                for (int i = 0; i < PGD_CPU_TILE; i++) {
                    const double want = i < lo || i >= hi ? 0.0 : exp(0.25 * (double)s[i] - top);
                    assert_true(fabs((double)p[i] - want) <= 3e-7);
                    total += want;
                }
                assert_true(fabs((double)sum - total) <= 1e-5);
            }
        }
    }
}

static void merges_two_tiles(void **state) {
    float o[40];
    float o_t[40];
    (void)state;
    FOR_EACH_ISA(kernels) {
        float max = 1.0f;
        float sum = 2.0f;
        for (int i = 0; i < 40; i++) {
            o[i] = 1.0f;
            o_t[i] = (float)i;
        }
        kernels->f32_merge(o, &max, &sum, o_t, 2.0f, 3.0f, 37);
        assert_true(max == 2.0f);
        assert_true(fabs((double)sum - (2.0 * exp(-1.0) + 3.0)) <= 1e-6);
        for (int i = 0; i < 37; i++) {
            assert_true(fabs((double)o[i] - (exp(-1.0) + i)) <= 4e-6);
        }
        assert_true(o[37] == 1.0f);
    }
}

// A tile's keys come out turned and its values in panels, whatever the count of tokens.
static void tiles_from_the_cache(void **state) {
    enum { DIM = 45, TOKENS = 20 };
    static float keys[DIM][TOKENS];
    static float values[TOKENS][DIM];
    static float k_tile[DIM * PGD_CPU_PANEL];
    static float v_tile[2 * PGD_CPU_PANEL * PGD_CPU_TILE];
    (void)state;
    for (int d = 0; d < DIM; d++) {
        for (int t = 0; t < TOKENS; t++) {
            keys[d][t] = values[t][d] = (float)(1000 * d + t);
        }
    }
    FOR_EACH_ISA(kernels) {
        for (int n = 1; n <= TOKENS; n++) {
            memset(k_tile, 0, sizeof(k_tile));
            memset(v_tile, 0, sizeof(v_tile));
            kernels->f32_tile_k(keys, TOKENS, n, DIM, k_tile + 7);
            kernels->f32_tile_v(values, n, DIM, v_tile + 3 * PGD_CPU_PANEL);
            for (int d = 0; d < DIM; d++) {
                const float *v = v_tile + d / PGD_CPU_PANEL * PGD_CPU_PANEL * PGD_CPU_TILE;
                for (int t = 0; t < TOKENS; t++) {
                    const float want = t < n ? keys[d][t] : 0.0f;
                    assert_true(t + 7 >= PGD_CPU_PANEL ||
                                k_tile[d * PGD_CPU_PANEL + 7 + t] == want);
                    assert_true(v[(3 + t) * PGD_CPU_PANEL + d % PGD_CPU_PANEL] == want);
                }
            }
        }
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(products_are_close), cmocka_unit_test(rows_do_not_matter),
        cmocka_unit_test(isas_agree),         cmocka_unit_test(adds_to_what_is_there),
        cmocka_unit_test(finishes),           cmocka_unit_test(softmax_of_a_tile),
        cmocka_unit_test(merges_two_tiles),   cmocka_unit_test(tiles_from_the_cache),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
