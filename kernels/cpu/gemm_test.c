// The gemm tiles of each instruction set: close to a sum in double, and the same bits whatever the
// number of rows they are computed with. The attention tiles likewise.
#include "isa_test.h"

#include <pagoda/ops.h>

enum { ROWS = 25, DEPTH = 150, LDX = DEPTH + 3 };

typedef void (*tile_fn)(const float *x, int64_t ldx, int64_t m, const void *w, int64_t k,
                        float *acc, int64_t ldacc, int32_t add);

static float x[ROWS * LDX];
static float weights[PGD_CPU_PANEL][DEPTH]; // exact in bf16 and in f16
static union panel {
    float f32[DEPTH * PGD_CPU_PANEL];
    uint16_t f16[DEPTH * PGD_CPU_PANEL];
    uint16_t bf16[DEPTH * PGD_CPU_PANEL];
} panels[3];

static const tile_fn *tiles_of(const pgd_cpu_kernels *k) {
    static tile_fn t[3];
    t[0] = k->f32_gemm_12x32;
    t[1] = k->f16_gemm_12x32;
    t[2] = k->bf16_gemm_12x32;
    return t;
}

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

static void tiles_are_close(void **state) {
    float acc[ROWS * PGD_CPU_PANEL];
    (void)state;
    fill();
    FOR_EACH_ISA(kernels) {
        for (int dtype = 0; dtype < 3; dtype++) {
            for (int64_t k = 0; k <= DEPTH; k += k < 5 ? 1 : 29) {
                tiles_of(kernels)[dtype](x, LDX, ROWS, &panels[dtype], k, acc, PGD_CPU_PANEL, 0);
                for (int i = 0; i < ROWS * PGD_CPU_PANEL; i++) {
                    double want = 0;
                    for (int64_t j = 0; j < k; j++) {
                        want += (double)x[i / PGD_CPU_PANEL * LDX + j] *
                                (double)weights[i % PGD_CPU_PANEL][j];
                    }
                    assert_true(fabs((double)acc[i] - want) <= 2e-5);
                }
            }
        }
    }
}

static void rows_do_not_matter(void **state) {
    float all[ROWS * PGD_CPU_PANEL];
    float some[ROWS * PGD_CPU_PANEL];
    (void)state;
    fill();
    FOR_EACH_ISA(kernels) {
        for (int dtype = 0; dtype < 3; dtype++) {
            const tile_fn tile = tiles_of(kernels)[dtype];
            tile(x, LDX, ROWS, &panels[dtype], DEPTH - 1, all, PGD_CPU_PANEL, 0);
            for (int m = 1; m < ROWS; m++) {
                const int first = ROWS - m;
                tile(x + first * LDX, LDX, m, &panels[dtype], DEPTH - 1, some, PGD_CPU_PANEL, 0);
                assert_memory_equal(some, all + first * PGD_CPU_PANEL,
                                    sizeof(float) * (size_t)m * PGD_CPU_PANEL);
            }
        }
    }
}

// bf16 by bf16, against a sum in double of the same numbers; bits do not depend on the rows.
static void dots_of_bf16(void **state) {
    static uint16_t rounded[ROWS * LDX];
    static float form[ROWS * LDX + 1]; // large enough for 2 and 4 bytes an element
    float all[ROWS * PGD_CPU_PANEL];
    float some[ROWS * PGD_CPU_PANEL];
    (void)state;
    fill();
    FOR_EACH_ISA(kernels) {
        kernels->bf16_narrow(x, rounded, ROWS * LDX);
        kernels->bf16_round(x, form, ROWS * LDX);
        for (int64_t k = 0; k <= DEPTH; k += k < 6 ? 2 : 24) {
            kernels->bf16_dot_12x32(form, LDX, ROWS, &panels[2], k, all, PGD_CPU_PANEL, 0);
            for (int i = 0; i < ROWS * PGD_CPU_PANEL; i++) {
                double want = 0;
                for (int64_t j = 0; j < k; j++) {
                    const uint32_t bits = (uint32_t)rounded[i / PGD_CPU_PANEL * LDX + j] << 16;
                    float v = 0.0f;
                    memcpy(&v, &bits, sizeof(v));
                    want += (double)v * (double)weights[i % PGD_CPU_PANEL][j];
                }
                assert_true(fabs((double)all[i] - want) <= 2e-5);
            }
            for (int m = 1; m < ROWS; m++) {
                const int first = ROWS - m;
                kernels->bf16_dot_12x32((char *)form + first * LDX * kernels->dot_bytes, LDX, m,
                                        &panels[2], k, some, PGD_CPU_PANEL, 0);
                assert_memory_equal(some, all + first * PGD_CPU_PANEL,
                                    sizeof(float) * (size_t)m * PGD_CPU_PANEL);
            }
        }
    }
}

static void adds_to_what_is_there(void **state) {
    float once[3 * PGD_CPU_PANEL];
    float twice[3 * PGD_CPU_PANEL];
    (void)state;
    fill();
    FOR_EACH_ISA(kernels) {
        kernels->f32_gemm_12x32(x, LDX, 3, &panels[0], DEPTH, once, PGD_CPU_PANEL, 0);
        memcpy(twice, once, sizeof(once));
        kernels->f32_gemm_12x32(x, LDX, 3, &panels[0], DEPTH, twice, PGD_CPU_PANEL, 1);
        for (int i = 0; i < 3 * PGD_CPU_PANEL; i++) {
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

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(tiles_are_close), cmocka_unit_test(rows_do_not_matter),
        cmocka_unit_test(dots_of_bf16),    cmocka_unit_test(adds_to_what_is_there),
        cmocka_unit_test(finishes),

    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
