// Loops of the limits: reads see every byte of the piece, and no loop outruns what a core can
// issue.
#include "isa_test.h"

#include <stdlib.h>
#include <time.h>

#include "limits.h"

enum { PIECE = 4096, TIMED_ROUNDS = 200000 };

static void reads_see_every_word(void **state) {
    (void)state;
    uint64_t *words = aligned_alloc(64, PIECE);
    uint64_t seed = 1;
    uint64_t sum = 0;
    assert_non_null(words);
    for (size_t i = 0; i < PIECE / sizeof(*words); i++) {
        words[i] = test_next(&seed);
        sum += words[i];
    }
    FOR_EACH_ISA(k) {
        pgd_cpu_limits l;
        pgd_cpu_limits_of(k, &l);
        assert_int_equal(l.read(words, PIECE), sum);
        assert_int_equal(l.read(words, 256),
                         l.read(words, 512) - l.read(words + 256 / sizeof(*words), 256));
    }
    free(words);
}

static double rate_of(const pgd_cpu_dot *dot) {
    clock_t start = clock(); // processor time: others do not count
    dot->run(TIMED_ROUNDS);
    clock_t ticks = clock() - start;
    double seconds = (double)(ticks > 0 ? ticks : 1) / CLOCKS_PER_SEC;
    return (double)dot->ops_per_round * TIMED_ROUNDS / seconds;
}

// Two vectors of 64 bytes a cycle at 8 GHz bound every loop: a wrong count of operations shows.
static void check_dot(const pgd_cpu_dot *dot, int64_t ops_per_byte) {
    if (dot->run == NULL) {
        return;
    }
    double rate = rate_of(dot);
    assert_non_null(dot->instruction);
    assert_true(rate > 1e7);
    assert_true(rate < 2.0 * 64.0 * 8e9 * (double)ops_per_byte);
}

static void dots_are_possible(void **state) {
    (void)state;
    FOR_EACH_ISA(k) {
        pgd_cpu_limits l;
        pgd_cpu_limits_of(k, &l);
        assert_non_null(l.f32.run);
        check_dot(&l.f32, 1);  // a product and a sum for 4 bytes: below 1
        check_dot(&l.bf16, 1); // for 2 bytes
        check_dot(&l.i8, 2);
    }
}

// Put out of the caches is still what it was.
static void forgotten_is_kept(void **state) {
    (void)state;
    unsigned char *bytes = aligned_alloc(64, PIECE);
    assert_non_null(bytes);
    for (size_t i = 0; i < PIECE; i++) {
        bytes[i] = (unsigned char)(i * 7);
    }
    (void)pgd_cpu_forget(bytes + 64, PIECE - 128);
    for (size_t i = 0; i < PIECE; i++) {
        assert_int_equal(bytes[i], (unsigned char)(i * 7));
    }
    free(bytes);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(reads_see_every_word),
        cmocka_unit_test(dots_are_possible),
        cmocka_unit_test(forgotten_is_kept),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
