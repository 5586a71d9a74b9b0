// The few asserts that the host of a fossil needs, without a library: a failed one ends the
// program with the line.
#ifndef FOSSIL_CMOCKA_H
#define FOSSIL_CMOCKA_H

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define fail_msg(...)                           \
    do {                                        \
        fprintf(stderr, "line %d: ", __LINE__); \
        fprintf(stderr, __VA_ARGS__);           \
        fputc('\n', stderr);                    \
        exit(1);                                \
    } while (0)
#define assert_true(c)               \
    do {                             \
        if (!(c)) {                  \
            fail_msg("not so: " #c); \
        }                            \
    } while (0)
#define assert_int_equal(a, b) assert_true((a) == (b))

// Words are equal, or are f32 numbers (no small integers) that differ in their last bits: a plugin
// may sum otherwise than the reference does.
static inline int same_words(const void *found, const void *want, size_t bytes) {
    for (size_t i = 0; i + 4 <= bytes; i += 4) {
        float a;
        float b;
        memcpy(&a, (const char *)found + i, 4);
        memcpy(&b, (const char *)want + i, 4);
        const int numbers = fabsf(a) > 1e-20f && fabsf(b) > 1e-20f;
        if (memcmp(&a, &b, 4) != 0 && !(numbers && fabsf(a - b) <= 1e-4f * (1 + fabsf(b)))) {
            return 0;
        }
    }
    return bytes % 4 == 0;
}
#define assert_memory_equal(found, want, bytes) assert_true(same_words((found), (want), (bytes)))

struct CMUnitTest {
    void (*run)(void **state);
};
#define cmocka_unit_test(fn) \
    { fn }
#define cmocka_run_group_tests_name(name, tests, a, b) ((tests)[0].run(NULL), 0)

#endif
