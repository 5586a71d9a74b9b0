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

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(products_are_close), cmocka_unit_test(rows_do_not_matter),
        cmocka_unit_test(isas_agree),         cmocka_unit_test(adds_to_what_is_there),
        cmocka_unit_test(finishes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
