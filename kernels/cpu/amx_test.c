// The tile kernel over tile instructions in plain C, since few machines have them: bits of the
// order of docs/decisions/0002, for any number of rows. Where the processor has AMX, the real one
// too.
#include "isa_test.h"

#include <stdlib.h>

enum { ROWS = 70, MOST_K = 512, LDX = MOST_K + 32 };

#include "tiles_test.h"

#include "amx.inc"

// ---- the order ---------------------------------------------------------------------------------

static float exact_x[ROWS][MOST_K]; // values of bf16
static float exact_w[PGD_CPU_PANEL][MOST_K];
static uint16_t x[ROWS * LDX];
static uint16_t panel[MOST_K / 2 * PGD_CPU_PANEL * 2];

static uint16_t upper_half(float v) {
    uint32_t bits = 0;
    memcpy(&bits, &v, sizeof(bits));
    return (uint16_t)(bits >> 16);
}

static float draw(uint64_t *rng) {
    const uint32_t bits = (uint32_t)upper_half(test_float(rng)) << 16;
    float v = 0.0f;
    memcpy(&v, &bits, sizeof(v));
    return v;
}

// k values count, what lies behind them in x is no number; an odd k has a zero in x and weights.
static void fill(int64_t k) {
    uint64_t rng = 31;
    memset(x, 0xff, sizeof(x));
    memset(panel, 0xff, sizeof(panel));
    for (int64_t i = 0; i < ROWS; i++) {
        for (int64_t j = 0; j < k + k % 2; j++) {
            exact_x[i][j] = j < k ? draw(&rng) : 0.0f;
            x[i * LDX + j] = upper_half(exact_x[i][j]);
        }
    }
    for (int64_t n = 0; n < PGD_CPU_PANEL; n++) {
        for (int64_t j = 0; j < k + k % 2; j++) {
            exact_w[n][j] = j < k ? draw(&rng) : 0.0f;
            panel[(j / 2 * PGD_CPU_PANEL + n) * 2 + j % 2] = upper_half(exact_w[n][j]);
        }
    }
}

// docs/decisions/0002: blocks of 32, k rising; in a block the even and the odd products apart.
static float sum_of(int64_t i, int64_t n, int64_t k) {
    float sum = 0.0f;
    for (int64_t first = 0; first < k; first += 32) {
        float even = 0.0f;
        float odd = 0.0f;
        for (int64_t j = first; j < first + 32 && j < k; j += 2) {
            even = fmaf(exact_x[i][j], exact_w[n][j], even);
            odd = j + 1 < k ? fmaf(exact_x[i][j + 1], exact_w[n][j + 1], odd) : odd;
        }
        sum += even + odd;
    }
    return sum;
}

static void check_rows(pgd_cpu_product_fn fn, int64_t m, int64_t k, int32_t add) {
    static float acc[(ROWS + 1) * PGD_CPU_PANEL];
    const int64_t first = ROWS - m;
    const pgd_cpu_part part = {.x = x + first * LDX,
                               .ldx = LDX,
                               .m = m,
                               .k = k,
                               .w = panel,
                               .next = m % 2 == 0 ? panel : NULL,
                               .acc = acc,
                               .ldacc = PGD_CPU_PANEL,
                               .add = add};
    for (int64_t i = 0; i < (ROWS + 1) * PGD_CPU_PANEL; i++) {
        acc[i] = add ? 0.625f : NAN;
    }
    fn(&part);
    for (int64_t i = 0; i < m * PGD_CPU_PANEL; i++) {
        const float sum = sum_of(first + i / PGD_CPU_PANEL, i % PGD_CPU_PANEL, k);
        assert_true(acc[i] == (add ? 0.625f + sum : sum));
    }
    for (int64_t i = m * PGD_CPU_PANEL; i < (m + 1) * PGD_CPU_PANEL; i++) {
        assert_true(add ? acc[i] == 0.625f : isnan(acc[i]));
    }
}

static void check_all(pgd_cpu_product_fn fn) {
    static const int64_t lengths[] = {0, 1, 2, 31, 32, 33, 97, 150, 511, 512};
    for (size_t i = 0; i < sizeof(lengths) / sizeof(lengths[0]); i++) {
        fill(lengths[i]);
        for (int64_t m = 0; m <= ROWS; m += m < 4 || lengths[i] < 40 ? 1 : 11) {
            check_rows(fn, m, lengths[i], m % 3 == 1);
        }
    }
}

static void tiles_in_plain_c(void **state) {
    (void)state;
    n_configured = n_released = 0;
    check_all(dot_tiles);
    assert_true(n_configured > n_released && n_released > 0);
}

static void tiles_of_the_processor(void **state) {
    const pgd_cpu_kernels *k = pgd_cpu_pick("amx");
    (void)state;
    if (k == NULL) {
        skip();
    }
    check_all(k->bf16_dot_12x32);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(tiles_in_plain_c),
        cmocka_unit_test(tiles_of_the_processor),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
