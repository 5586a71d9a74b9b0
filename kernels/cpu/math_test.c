// e^x, the conversions of 16-bit floats, norm, activations and argmax of each instruction set,
// against libm in double.
#include "isa_test.h"

#include <pagoda/ops.h>

// Distance of two floats in units of the last place of the second.
static double ulps(float got, double want) {
    float f = (float)want;
    double unit = (double)nextafterf(fabsf(f), INFINITY) - (double)fabsf(f);
    return fabs((double)got - want) / unit;
}

static void exp_is_close(void **state) {
    float x[1024];
    float y[1024];
    (void)state;
    FOR_EACH_ISA(k) {
        for (double from = -87.0; from < 88.0; from += 1.0) {
            for (int i = 0; i < 1024; i++) {
                x[i] = (float)(from + i / 1024.0);
            }
            k->f32_exp(x, y, 1021);
            for (int i = 0; i < 1021; i++) {
                assert_true(ulps(y[i], exp((double)x[i])) <= 1.5);
            }
        }
    }
}

static void exp_has_its_ends(void **state) {
    const float x[] = {0.0f,  -0.0f, -104.0f,  -1e30f, -INFINITY,
                       89.0f, 1e30f, INFINITY, NAN,    -100.0f};
    float y[10];
    (void)state;
    FOR_EACH_ISA(k) {
        k->f32_exp(x, y, 10);
        assert_true(y[0] == 1.0f && y[1] == 1.0f);
        assert_true(y[2] == 0.0f && y[3] == 0.0f && y[4] == 0.0f);
        assert_true(isinf(y[5]) && isinf(y[6]) && isinf(y[7]) && isnan(y[8]));
        assert_true(fabs((double)y[9] - exp(-100.0)) <= 0x1p-149); // a subnormal
    }
}

// Value of a code with `mant` fraction bits and `ebits` exponent bits (IEEE 754, section 3.4).
static double value_of(uint32_t code, int mant, int ebits) {
    const int bias = (1 << (ebits - 1)) - 1;
    const int exponent = (int)(code >> mant) & ((1 << ebits) - 1);
    const double fraction = (double)(code & ((1u << mant) - 1));
    const double sign = (code & 0x8000u) != 0 ? -1.0 : 1.0;
    if (exponent == (1 << ebits) - 1) {
        return fraction != 0 ? NAN : sign * INFINITY;
    }
    return exponent == 0 ? sign * ldexp(fraction, 1 - bias - mant)
                         : sign * ldexp(fraction + ldexp(1.0, mant), exponent - bias - mant);
}

static void widens_every_code(void **state) {
    static uint16_t codes[65536];
    static float bf16[65536];
    static float f16[65536];
    (void)state;
    for (uint32_t i = 0; i < 65536; i++) {
        codes[i] = (uint16_t)i;
    }
    FOR_EACH_ISA(k) {
        k->bf16_widen(codes, bf16, 65535);
        k->f16_widen(codes, f16, 65535);
        for (uint32_t i = 0; i < 65535; i++) {
            const double b = value_of(i, 7, 8);
            const double h = value_of(i, 10, 5);
            assert_true(isnan(b) ? isnan(bf16[i]) : (double)bf16[i] == b);
            assert_true(isnan(h) ? isnan(f16[i]) : (double)f16[i] == h);
        }
    }
}

// The code of x lies nearest to it; of two as near the even one.
static void check_narrow(float x, uint16_t code, int mant, int ebits) {
    const double got = value_of(code, mant, ebits);
    if (isnan(x)) {
        assert_true(isnan(got));
        return;
    }
    assert_true((code & 0x8000u) == (signbit(x) ? 0x8000u : 0u));
    const uint32_t infinity = ((1u << ebits) - 1) << mant;
    const uint32_t mag = code & 0x7fffu;
    const double top = ldexp(2.0 - ldexp(0.5, -mant), (1 << (ebits - 1)) - 1);
    if (fabs((double)x) >= top) { // half a step above the largest finite code
        assert_true(mag == infinity);
        return;
    }
    assert_true(mag < infinity);
    const double gap = fabs(got - (double)x);
    for (int step = -1; step <= 1; step += 2) {
        if ((mag == 0 && step < 0) || mag + (uint32_t)step == infinity) {
            continue;
        }
        const uint32_t other = (code & 0x8000u) | (mag + (uint32_t)step);
        const double far = fabs(value_of(other, mant, ebits) - (double)x);
        assert_true(gap < far || (gap == far && (mag & 1u) == 0));
    }
}

static void narrows_to_the_nearest(void **state) {
    uint64_t rng = 7;
    float x[37];
    uint16_t bf16[37];
    uint16_t f16[37];
    (void)state;
    FOR_EACH_ISA(k) {
        for (int round = 0; round < 4000; round++) {
            for (int i = 0; i < 37; i++) {
                uint32_t bits = (uint32_t)test_next(&rng);
                memcpy(&x[i], &bits, sizeof(x[i]));
                if (i % 3 == 1) { // ties and the range of f16
                    x[i] = ldexpf((float)(int32_t)(bits >> 18), (int)(bits % 40) - 34);
                }
            }
            k->bf16_narrow(x, bf16, 37);
            k->f16_narrow(x, f16, 37);
            for (int i = 0; i < 37; i++) {
                check_narrow(x[i], bf16[i], 7, 8);
                check_narrow(x[i], f16[i], 10, 5);
            }
        }
    }
}

static double activation(int32_t act, double v) {
    switch (act) {
    case PGD_ACT_SILU: return v / (1 + exp(-v));
    case PGD_ACT_GELU: return v * 0.5 * erfc(-v / sqrt(2.0));
    case PGD_ACT_GELU_TANH:
        return 0.5 * v * (1 + tanh(sqrt(2 / acos(-1.0)) * (v + 0.044715 * v * v * v)));
    case PGD_ACT_RELU: return v > 0 ? v : 0;
    default: return v;
    }
}

static void activations_are_close(void **state) {
    float gate[201];
    float up[201];
    float out[201];
    (void)state;
    for (int i = 0; i < 201; i++) {
        gate[i] = (float)(i - 100) / 8.0f;
        up[i] = 1.0f;
    }
    FOR_EACH_ISA(k) {
        for (int32_t act = PGD_ACT_NONE; act <= PGD_ACT_RELU; act++) {
            k->f32_act_mul(gate, up, out, 201, act, 1.0f, 0.0f);
            for (int i = 0; i < 201; i++) {
                const double want = activation(act, (double)gate[i]);
                assert_true(fabs((double)out[i] - want) <= 1e-6 * (fabs(want) + 0.01));
            }
        }
    }
}

static void rmsnorm_is_close(void **state) {
    uint64_t rng = 3;
    float x[300];
    float w[300];
    float out[300];
    (void)state;
    for (int i = 0; i < 300; i++) {
        x[i] = test_float(&rng);
        w[i] = test_float(&rng);
    }
    FOR_EACH_ISA(k) {
        for (int n = 1; n <= 300; n += 13) {
            double sum = 0;
            k->f32_rmsnorm(x, w, out, n, 1e-5f);
            for (int i = 0; i < n; i++) {
                sum += (double)x[i] * (double)x[i];
            }
            for (int i = 0; i < n; i++) {
                double want = (double)x[i] / sqrt(sum / n + (double)1e-5f) * (double)w[i];
                assert_true(fabs((double)out[i] - want) <= 1e-6);
            }
        }
    }
}

static void argmax_takes_the_first(void **state) {
    float x[200];
    (void)state;
    FOR_EACH_ISA(k) {
        for (int n = 1; n <= 200; n += 7) {
            for (int i = 0; i < n; i++) {
                x[i] = i % 3 == 0 ? NAN : -5.0f;
            }
            assert_int_equal(k->f32_argmax(x, n), n > 1 ? 1 : -1);
            x[n - 1] = 2.0f;
            x[n / 2] = 2.0f;
            assert_int_equal(k->f32_argmax(x, n), n / 2);
        }
        assert_int_equal(k->f32_argmax(x, 0), -1);
        x[0] = NAN;
        x[1] = -INFINITY;
        assert_int_equal(k->f32_argmax(x, 2), 1);
    }
}

static void picks_by_name(void **state) {
    (void)state;
    assert_string_equal(pgd_cpu_pick("scalar")->isa, "scalar");
    assert_non_null(pgd_cpu_pick("auto"));
    assert_ptr_equal(pgd_cpu_pick(NULL), pgd_cpu_pick("auto"));
    assert_null(pgd_cpu_pick("avx1024"));
    assert_null(pgd_cpu_pick(""));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(exp_is_close),           cmocka_unit_test(exp_has_its_ends),
        cmocka_unit_test(widens_every_code),      cmocka_unit_test(narrows_to_the_nearest),
        cmocka_unit_test(activations_are_close),  cmocka_unit_test(rmsnorm_is_close),
        cmocka_unit_test(argmax_takes_the_first), cmocka_unit_test(picks_by_name),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
