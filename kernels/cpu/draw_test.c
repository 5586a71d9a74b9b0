// The kernels of sample: Philox against its published numbers, weights against libm, and the test
// of the race against the noise itself.
#include "isa_test.h"

// Philox4x32-10 one round at a time (Salmon et al. 2011).
static void philox(const uint32_t counter[4], const uint32_t key[2], uint32_t out[4]) {
    uint32_t c[4] = {counter[0], counter[1], counter[2], counter[3]};
    for (uint32_t round = 0; round < 10; round++) {
        const uint64_t a = UINT64_C(0xD2511F53) * c[0];
        const uint64_t b = UINT64_C(0xCD9E8D57) * c[2];
        const uint32_t next[4] = {
            (uint32_t)(b >> 32) ^ c[1] ^ (key[0] + round * 0x9E3779B9u), (uint32_t)b,
            (uint32_t)(a >> 32) ^ c[3] ^ (key[1] + round * 0xBB67AE85u), (uint32_t)a};
        memcpy(c, next, sizeof(c));
    }
    memcpy(out, c, sizeof(c));
}

// The known answers of Random123's kat_vectors.
static void philox_is_the_published_one(void **state) {
    static const struct {
        uint32_t counter[4];
        uint32_t key[2];
        uint32_t out[4];
    } known[] = {
        {{0, 0, 0, 0}, {0, 0}, {0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}},
        {{0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff},
         {0xffffffff, 0xffffffff},
         {0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}},
        {{0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344},
         {0xa4093822, 0x299f31d0},
         {0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}},
    };
    uint32_t words[64];
    uint32_t want[4];
    (void)state;
    for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++) {
        philox(known[i].counter, known[i].key, want);
        assert_memory_equal(want, known[i].out, sizeof(want));
    }
    FOR_EACH_ISA(k) {
        for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++) {
            const uint32_t most =
                k->u32_philox_64(known[i].counter, known[i].key, known[i].counter[2], words);
            uint32_t top = 0;
            for (uint32_t j = 0; j < 16; j++) {
                const uint32_t counter[4] = {known[i].counter[0], known[i].counter[1],
                                             known[i].counter[2] + j, 0};
                philox(counter, known[i].key, want);
                assert_memory_equal(words + 4 * j, want, sizeof(want));
                for (int w = 0; w < 4; w++) {
                    top = want[w] > top ? want[w] : top;
                }
            }
            assert_int_equal(most, top);
        }
    }
}

static uint32_t key_of(float v) {
    uint32_t bits;
    v = v == 0 ? 0 : v;
    memcpy(&bits, &v, sizeof(bits));
    return (bits & 0x80000000u) != 0 ? ~bits : bits | 0x80000000u;
}

// floor(2^40 e^d) of each key, at most one off where libm rounds the other way.
static void mass_is_close(void **state) {
    const float max = 3.0f;
    float x[200];
    uint64_t bins[PGD_CPU_BINS + 1];
    (void)state;
    FOR_EACH_ISA(k) {
        for (int n = 1; n <= 200; n += n < 70 ? 1 : 13) {
            for (int i = 0; i < n; i++) {
                x[i] = max - (float)(n - 1 - i) * 0.02f; // keys rise
            }
            const uint32_t first = key_of(x[0]);
            int32_t shift = 0;
            while ((key_of(max) - first) >> shift >= PGD_CPU_BINS) {
                shift++;
            }
            memset(bins, 0, sizeof(bins));
            const pgd_cpu_span s = {.first = first, .last = key_of(max), .shift = shift};
            k->f32_mass_bins(x, n, max, 1.3, &s, bins);
            for (int b = 0; b < PGD_CPU_BINS; b++) {
                double want = 0;
                double room = 0;
                for (int i = 0; i < n; i++) {
                    if ((key_of(x[i]) - first) >> shift == (uint32_t)b) {
                        want += floor(0x1p40 * exp(((double)x[i] - (double)max) * 1.3));
                        room += 1.0;
                    }
                }
                assert_true(fabs((double)bins[b] - want) <= room);
            }
        }
    }
}

// Far logits and NaN have no mass, the largest has 2^40 also when it is infinite, -0 is 0, and what
// lies outside of the bins is not in them.
static void mass_of_the_odd_ones(void **state) {
    const float x[] = {-INFINITY, -1e30f, NAN, -NAN, 0.0f, -0.0f, INFINITY};
    const float near[] = {-2.0f, -4.0f, 0.0f, 0.0f};
    const pgd_cpu_span all = {.first = 0, .last = UINT32_MAX, .shift = 22};
    const pgd_cpu_span none = {.first = key_of(0.5f), .last = key_of(0.7f)};
    const pgd_cpu_span wide = {.first = key_of(-1.68f), .last = key_of(3.0f), .shift = 22};
    const pgd_cpu_span top = {.first = key_of(INFINITY), .last = key_of(INFINITY)};
    uint64_t bins[PGD_CPU_BINS + 1];
    (void)state;
    FOR_EACH_ISA(k) {
        memset(bins, 0, sizeof(bins));
        k->f32_mass_bins(x, 6, 0.0f, 1.0, &all, bins);
        for (int b = 0; b < PGD_CPU_BINS; b++) {
            assert_true(bins[b] == (b == (int)(0x80000000u >> 22) ? UINT64_C(1) << 41 : 0));
        }
        memset(bins, 0, sizeof(bins));
        k->f32_mass_bins(x, 6, 0.0f, 1.0, &none, bins);
        for (int b = 0; b < PGD_CPU_BINS; b++) {
            assert_true(bins[b] == 0);
        }
        // what is below the first key is no matter how wide the bins are
        memset(bins, 0, sizeof(bins));
        k->f32_mass_bins(near, 4, 0.0f, 1.0, &wide, bins);
        for (int b = 0; b < PGD_CPU_BINS; b++) {
            assert_true(bins[b] == 0 || bins[b] == UINT64_C(1) << 41);
        }
        memset(bins, 0, sizeof(bins));
        k->f32_mass_bins(x, 7, INFINITY, 1.0, &top, bins);
        assert_true(bins[0] == UINT64_C(1) << 40);
    }
}

// Bins by value: a token's bin is that of its line, also at the ends; NaN and lower ones are out.
static void mass_by_lines(void **state) {
    float x[131];
    uint64_t bins[PGD_CPU_BINS + 1];
    uint64_t want[PGD_CPU_BINS + 1];
    const pgd_cpu_span s = {.low = -7.3f, .scale = 93.7f};
    const pgd_cpu_span all = {.last = UINT32_MAX, .shift = 22};
    (void)state;
    FOR_EACH_ISA(k) {
        for (int i = 0; i < 131; i++) {
            x[i] = i % 19 == 3 ? NAN : i % 23 == 5 ? -INFINITY : 3.0f - (float)i * 0.1f;
        }
        memset(want, 0, sizeof(want));
        for (int i = 0; i < 131; i++) {
            uint64_t alone[PGD_CPU_BINS + 1] = {0};
            uint64_t mass = 0;
            k->f32_mass_bins(x + i, 1, 3.0f, 0.9, &all, alone);
            for (int b = 0; b < PGD_CPU_BINS; b++) {
                mass += alone[b];
            }
            if (x[i] >= s.low) {
                const float at = (x[i] - s.low) * s.scale;
                want[at > PGD_CPU_BINS - 1 ? PGD_CPU_BINS - 1 : (int)at] += mass;
            }
        }
        memset(bins, 0, sizeof(bins));
        k->f32_mass_bins(x, 131, 3.0f, 0.9, &s, bins);
        assert_memory_equal(bins, want, PGD_CPU_BINS * sizeof(bins[0]));
    }
}

// Rough masses are within 2^-17 of e^d and 2^10, from the best to where nothing has mass, and fall
// into the bins that exact ones fall into.
static void rough_masses(void **state) {
    const pgd_cpu_span s = {.low = -40.0f, .scale = 25.0f};
    const float max = 0.75f;
    (void)state;
    FOR_EACH_ISA(k) {
        for (int i = 0; i < 4000; i++) {
            uint64_t bins[PGD_CPU_BINS + 1] = {0};
            uint64_t exact[PGD_CPU_BINS + 1] = {0};
            const float x = max - (float)i * 0.0101f;
            const double want = 0x1p40 * exp(((double)x - (double)max) * 0.7);
            uint64_t sum = 0;
            k->f32_rough_bins(&x, 1, max, 0.7f, &s, bins);
            k->f32_mass_bins(&x, 1, max, 0.7, &s, exact);
            for (int b = 0; b < PGD_CPU_BINS; b++) {
                assert_true(exact[b] > 0 || bins[b] == 0);
                sum += bins[b];
            }
            if (x >= s.low) {
                assert_true(fabs((double)sum - want) <= want * 0x1p-17 + 0x1p10);
            } else {
                assert_true(sum == 0);
            }
        }
    }
}

// Sums of many are those of each alone, what was in the bins stays, NaN has no mass.
static void rough_sums(void **state) {
    const pgd_cpu_span s = {.first = key_of(-9.0f), .last = key_of(2.0f), .shift = 22};
    float x[331];
    (void)state;
    FOR_EACH_ISA(k) {
        for (int n = 0; n <= 331; n += n < 70 ? 1 : 29) {
            uint64_t bins[PGD_CPU_BINS + 1] = {7, 9};
            uint64_t want[PGD_CPU_BINS + 1] = {7, 9};
            for (int i = 0; i < n; i++) {
                x[i] = i % 17 == 3 ? NAN : i % 19 == 4 ? -INFINITY : 2.0f - (float)(i % 50) * 0.3f;
                k->f32_rough_bins(x + i, 1, 2.0f, 0.9f, &s, want);
            }
            k->f32_rough_bins(x, n, 2.0f, 0.9f, &s, bins);
            assert_memory_equal(bins, want, PGD_CPU_BINS * sizeof(bins[0]));
        }
    }
}

enum { ROW = 331 };

static void random_row(uint64_t *rng, float *x, int n) {
    for (int i = 0; i < n; i++) {
        x[i] = i % 29 == 7 ? NAN : (float)(int)(16.0f * test_float(rng)) / 4.0f;
    }
}

// Searches of a row against the plain way, at every length.
static void searches(void **state) {
    uint64_t rng = 5;
    float x[ROW];
    float out[ROW + 16];
    float tops[ROW / 64 + 2];
    (void)state;
    FOR_EACH_ISA(k) {
        for (int n = 0; n <= ROW; n += n < 40 ? 1 : 17) {
            const float v = (float)(int)(12.0f * test_float(&rng)) / 4.0f;
            int64_t first = -1, count = 0, kept = 0;
            random_row(&rng, x, n);
            for (int i = n - 1; i >= 0; i--) {
                first = x[i] >= v ? i : first;
                count += x[i] >= v;
            }
            assert_int_equal(k->f32_first_ge(x, n, v), first);
            assert_int_equal(k->f32_count_ge(x, n, v), count);
            const int64_t got = k->f32_keep(x, n, v, v + 1.0f, out);
            for (int i = 0; i < n; i++) {
                if (x[i] >= v && x[i] <= v + 1.0f) {
                    assert_true(kept < got && out[kept] == x[i]);
                    kept++;
                }
            }
            assert_int_equal(got, kept);
            memcpy(out, x, (size_t)n * sizeof(float));
            assert_int_equal(k->f32_keep(out, n, v, INFINITY, out), count); // in place
            k->f32_tops(x, n, 64, tops);
            for (int b = 0; b * 64 < n; b++) {
                assert_true(tops[b] == k->f32_max(x + b * 64, n - b * 64 < 64 ? n - b * 64 : 64));
            }
        }
    }
}

static void exp_sum_is_close(void **state) {
    uint64_t rng = 6;
    float x[ROW];
    (void)state;
    FOR_EACH_ISA(k) {
        for (int n = 0; n <= ROW; n += n < 40 ? 1 : 17) {
            double all = 0;
            double some = 0;
            random_row(&rng, x, n);
            for (int i = 0; i < n; i++) {
                all += x[i] == x[i] ? exp((double)x[i] - 5.0) : 0.0;
                some += x[i] >= -2.0f && x[i] < 1.5f ? exp(((double)x[i] - 5.0) * 1.7) : 0.0;
            }
            const double got = k->f32_exp_sum(x, n, 5.0f, 1.0f, -INFINITY, INFINITY);
            assert_true(fabs(got - all) <= 0x1p-20 * all);
            const double part = k->f32_exp_sum(x, n, 5.0f, 1.7f, -2.0f, 1.5f);
            assert_true(fabs(part - some) <= 0x1p-18 * some);
        }
    }
}

// One rounding an operation: the numbers of plain f32 arithmetic.
static float changed(float l, const uint32_t *mask, int32_t state, int i,
                     const pgd_cpu_penalty *p) {
    const int32_t count = state & 0x3fffffff;
    if (mask != NULL && (mask[i / 32] >> i % 32 & 1) == 0) {
        return NAN;
    }
    if ((state & 0x7fffffff) != 0) {
        l = l > 0 ? l / p->repetition : l * p->repetition;
    }
    if (count > 0) {
        const float step = p->frequency * (float)count;
        l = l - step;
        l = l - p->presence;
    }
    return l;
}

static void changes_are_exact(void **state) {
    const pgd_cpu_penalty p = {.repetition = 1.3f, .presence = 0.7f, .frequency = -0.11f};
    uint64_t rng = 9;
    float x[ROW];
    float out[ROW];
    uint32_t mask[ROW / 32 + 1];
    int32_t counts[ROW];
    (void)state;
    FOR_EACH_ISA(k) {
        for (int n = 0; n <= ROW; n += n < 70 ? 1 : 17) {
            for (int way = 0; way < 4; way++) {
                const uint32_t *m = way % 2 == 0 ? NULL : mask;
                random_row(&rng, x, n);
                for (int i = 0; i < ROW; i++) {
                    const uint64_t r = test_next(&rng);
                    const int32_t prompt = r % 8 == 2 ? 1 << 30 : 0;
                    mask[i / 32] = (uint32_t)(r >> 32);
                    counts[i] = r % 4 == 0 ? (int32_t)(r >> 40 & 0xffffff) | prompt : prompt;
                    counts[i] = i / 64 % 2 == 1 ? 0 : counts[i];
                }
                k->f32_change(x, n, m, way < 2 ? NULL : counts, &p, out);
                for (int i = 0; i < n; i++) {
                    const float want = changed(x[i], m, way < 2 ? 0 : counts[i], i, &p);
                    assert_true(out[i] == want || (out[i] != out[i] && want != want));
                }
            }
        }
    }
}

// Who beats the best is always named; most of the others are not.
static void race_misses_nobody(void **state) {
    uint64_t rng = 17;
    float x[64];
    uint32_t words[64];
    (void)state;
    FOR_EACH_ISA(k) {
        int named = 0;
        int needed = 0;
        for (int round = 0; round < 3000; round++) {
            const float best = 3.0f + 4.0f * test_float(&rng);
            const float floor = -6.0f;
            for (int i = 0; i < 64; i++) {
                x[i] = i == 9 ? NAN : 8.0f * test_float(&rng);
                words[i] = (uint32_t)test_next(&rng);
                if (round % 8 == 0) {
                    words[i] |= 0xfffff000u; // loud noise
                }
            }
            const uint64_t may = k->f32_race_64(x, words, 8.0f, 1.5f, best, floor);
            for (int i = 0; i < 64; i++) {
                const double u = ((double)words[i] + 0.5) * 0x1p-32;
                const double mark = ((double)x[i] - 8.0) * 1.5 - log(-log(u));
                const int wins = x[i] >= floor && mark > (double)best;
                const int is_named = (int)(may >> i & 1);
                assert_true(is_named || !wins);
                assert_true(!is_named || x[i] >= floor);
                named += is_named;
                needed += wins;
            }
        }
        assert_true(needed > 0 && named < 2 * needed);
    }
}

static void between_has_both_ends(void **state) {
    float x[64];
    (void)state;
    for (int i = 0; i < 64; i++) {
        x[i] = i == 30 ? NAN : (float)i;
    }
    FOR_EACH_ISA(k) {
        const uint64_t want = ((UINT64_C(1) << 41) - (UINT64_C(1) << 21)) & ~(UINT64_C(1) << 30);
        assert_true(k->f32_between_64(x, 21.0f, 40.0f) == want);
        assert_true(k->f32_between_64(x, 70.0f, 80.0f) == 0);
        assert_true(k->f32_max(x, 64) == 63.0f);
        assert_true(k->f32_max(x, 0) == -INFINITY);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(philox_is_the_published_one),
        cmocka_unit_test(mass_is_close),
        cmocka_unit_test(mass_of_the_odd_ones),
        cmocka_unit_test(mass_by_lines),
        cmocka_unit_test(rough_masses),
        cmocka_unit_test(rough_sums),
        cmocka_unit_test(searches),
        cmocka_unit_test(exp_sum_is_close),
        cmocka_unit_test(changes_are_exact),
        cmocka_unit_test(race_misses_nobody),
        cmocka_unit_test(between_has_both_ends),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
