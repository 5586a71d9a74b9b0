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
            k->f32_mass_bins(x, n, max, 1.3, first, key_of(max), shift, bins);
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
    uint64_t bins[PGD_CPU_BINS + 1];
    (void)state;
    FOR_EACH_ISA(k) {
        memset(bins, 0, sizeof(bins));
        k->f32_mass_bins(x, 6, 0.0f, 1.0, 0, UINT32_MAX, 22, bins);
        for (int b = 0; b < PGD_CPU_BINS; b++) {
            assert_true(bins[b] == (b == (int)(0x80000000u >> 22) ? UINT64_C(1) << 41 : 0));
        }
        memset(bins, 0, sizeof(bins));
        k->f32_mass_bins(x, 6, 0.0f, 1.0, key_of(0.5f), key_of(0.7f), 0, bins);
        for (int b = 0; b < PGD_CPU_BINS; b++) {
            assert_true(bins[b] == 0);
        }
        // what is below the first key is no matter how wide the bins are
        memset(bins, 0, sizeof(bins));
        k->f32_mass_bins(near, 4, 0.0f, 1.0, key_of(-1.68f), key_of(3.0f), 22, bins);
        for (int b = 0; b < PGD_CPU_BINS; b++) {
            assert_true(bins[b] == 0 || bins[b] == UINT64_C(1) << 41);
        }
        memset(bins, 0, sizeof(bins));
        k->f32_mass_bins(x, 7, INFINITY, 1.0, key_of(INFINITY), key_of(INFINITY),
                         0, bins);
        assert_true(bins[0] == UINT64_C(1) << 40);
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
        cmocka_unit_test(race_misses_nobody),
        cmocka_unit_test(between_has_both_ends),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
