// Steps of a device with known costs: none but the first may be longer than the bound.
#include <stdint.h>
#include <stdlib.h>

#include "engine/pace.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#define MS UINT64_C(1000000)

typedef struct device {
    uint64_t base_ns;
    uint64_t token_ns;
} device;

static uint64_t time_of(const device *d, int32_t n_prefill, uint64_t noise) {
    return d->base_ns + (uint64_t)n_prefill * d->token_ns + noise;
}

// Prompts of 8192 tokens one behind the other beside streams; the longest step.
static uint64_t longest(pgd_engine_pace *p, const device *d, int32_t most, int32_t n_steps) {
    uint64_t found = 0;
    int32_t left = 8192;
    for (int32_t i = 0; i < n_steps; i++) {
        const int32_t limit = pgd_engine_pace_limit(p);
        int32_t n = limit > 0 && limit < most ? limit : most;
        n = n < left ? n : left;
        left = left > n ? left - n : 8192;
        const uint64_t ns = time_of(d, n, 0);
        pgd_engine_pace_add(p, 30, n, ns);
        found = ns > found ? ns : found;
    }
    return found;
}

static void test_no_bound(void **state) {
    (void)state;
    pgd_engine_pace p = {.least_tokens = 16};
    pgd_engine_pace_add(&p, 5, 100, 50 * MS);
    pgd_engine_pace_add(&p, 5, 0, 80 * MS);
    assert_int_equal(pgd_engine_pace_limit(&p), 0);
    assert_int_equal(p.longest_ns, 50 * MS);
}

// Measured first by the streams' own short prompts, as a server is.
static void test_bound_holds(void **state) {
    static const device devices[] = {{5 * MS, 20000}, {2 * MS, 100000}, {20 * MS, 5000}, {0, 1000}};
    (void)state;
    for (size_t i = 0; i < sizeof(devices) / sizeof(devices[0]); i++) {
        pgd_engine_pace p = {.bound_ns = 50 * MS, .least_tokens = 16};
        for (int32_t k = 0; k < 30; k++) {
            pgd_engine_pace_add(&p, 0, 10, time_of(&devices[i], 10, 0));
            pgd_engine_pace_add(&p, k + 1, 0, time_of(&devices[i], 0, 0));
        }
        assert_true(longest(&p, &devices[i], 2048, 500) <= 50 * MS);
        // And what the bound leaves is used: at least 80 % of it, once it has settled.
        const uint64_t full = time_of(&devices[i], 2048, 0);
        const uint64_t want = full < 40 * MS ? full : 40 * MS;
        const int32_t n = pgd_engine_pace_limit(&p) < 2048 ? pgd_engine_pace_limit(&p) : 2048;
        assert_true(time_of(&devices[i], n, 0) >= want);
        assert_int_equal(p.longest_ns <= 50 * MS, 1);
    }
}

static void test_dearer_tokens_are_answered_at_once(void **state) {
    (void)state;
    device d = {5 * MS, 20000};
    pgd_engine_pace p = {.bound_ns = 50 * MS, .least_tokens = 16};
    (void)longest(&p, &d, 2048, 100);
    d.token_ns = 60000;
    const uint64_t first = longest(&p, &d, 2048, 1);
    assert_true(first > 50 * MS); // nobody could know
    assert_true(longest(&p, &d, 2048, 200) <= 50 * MS);
}

static void test_noise_passes(void **state) {
    (void)state;
    const device d = {5 * MS, 20000};
    pgd_engine_pace p = {.bound_ns = 50 * MS, .least_tokens = 16};
    (void)longest(&p, &d, 2048, 100);
    const int32_t before = pgd_engine_pace_limit(&p);
    pgd_engine_pace_add(&p, 30, before, time_of(&d, before, 200 * MS));
    assert_true(pgd_engine_pace_limit(&p) < before / 2);
    (void)longest(&p, &d, 2048, 40);
    assert_true(pgd_engine_pace_limit(&p) > before * 9 / 10);
}

// A device that is too slow for its streams alone: prompts still go on.
static void test_least(void **state) {
    (void)state;
    const device d = {80 * MS, 1 * MS};
    pgd_engine_pace p = {.bound_ns = 50 * MS, .least_tokens = 16};
    (void)longest(&p, &d, 2048, 10);
    pgd_engine_pace_add(&p, 30, 0, 80 * MS);
    (void)longest(&p, &d, 2048, 100);
    assert_int_equal(pgd_engine_pace_limit(&p), 16);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_no_bound),
        cmocka_unit_test(test_bound_holds),
        cmocka_unit_test(test_dearer_tokens_are_answered_at_once),
        cmocka_unit_test(test_noise_passes),
        cmocka_unit_test(test_least),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
