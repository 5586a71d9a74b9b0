// Log and clocks, and the random numbers of the host.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/rng.h"

typedef struct seen {
    int n;
    int32_t level;
    char text[2000];
} seen;

static void keep(void *arg, int32_t level, const char *text) {
    seen *s = arg;
    s->n++;
    s->level = level;
    memcpy(s->text, text, strlen(text) + 1);
}

static void levels(void **state) {
    (void)state;
    seen s = {0};
    char longest[1500];
    memset(longest, 'x', sizeof(longest));
    longest[sizeof(longest) - 1] = '\0';
    pgd_log(PGD_LEVEL_ERROR, "nobody listens");
    pgd_log_set(keep, &s, PGD_LEVEL_WARNING);
    pgd_log(PGD_LEVEL_INFO, "too low");
    assert_int_equal(s.n, 0);
    pgd_log(PGD_LEVEL_WARNING, "%d %s", 5, "files");
    assert_int_equal(s.n, 1);
    assert_int_equal(s.level, PGD_LEVEL_WARNING);
    assert_string_equal(s.text, "5 files");
    pgd_log(PGD_LEVEL_ERROR, "%s", longest);
    assert_int_equal(strlen(s.text), 1000);
    pgd_log_set(NULL, NULL, 0);
    pgd_log(PGD_LEVEL_ERROR, "silent");
    assert_int_equal(s.n, 2);
}

static void clocks(void **state) {
    (void)state;
    uint64_t a = pgd_clock_ns();
    pgd_clock_sleep_ns(2000000);
    assert_true(pgd_clock_ns() - a >= 2000000);
    assert_true(pgd_clock_unix_ms() > 1700000000000); // 2023
}

// First outputs for seed 1234567, as published with other implementations of SplitMix64.
static void splitmix(void **state) {
    (void)state;
    const uint64_t want[] = {6457827717110365317u, 3203168211198807973u, 9817491932198370423u,
                             4593380528125082431u, 16408922859458223821u};
    uint64_t s = 1234567;
    for (int i = 0; i < 5; i++) {
        assert_true(pgd_rng_next(&s) == want[i]);
    }
    assert_true(pgd_rng_seed() != pgd_rng_seed());
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(levels),
        cmocka_unit_test(clocks),
        cmocka_unit_test(splitmix),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
