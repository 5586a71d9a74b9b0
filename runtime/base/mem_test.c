// Memory: zeroes, alignment, counters, failures on demand.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <string.h>

#include "base/fail.h"
#include "base/mem.h"

static int is_zero(const unsigned char *p, size_t n) {
    for (size_t i = 0; i < n; i++) {
        if (p[i] != 0) {
            return 0;
        }
    }
    return 1;
}

static void blocks(void **state) {
    (void)state;
    uint64_t live = pgd_mem_live();
    uint64_t count = pgd_mem_count();
    uint64_t mine = pgd_mem_thread_count();
    for (size_t n = 0; n < 300; n += 37) {
        unsigned char *p = pgd_mem_alloc(n, 3);
        assert_non_null(p);
        assert_int_equal((uintptr_t)p % 16, 0);
        assert_true(is_zero(p, n * 3));
        memset(p, 1, n * 3);
        pgd_mem_free(p);
    }
    for (size_t align = 1; align <= 4096; align *= 2) {
        unsigned char *p = pgd_mem_alloc_aligned(align + 5, align);
        assert_non_null(p);
        assert_int_equal((uintptr_t)p % align, 0);
        assert_true(is_zero(p, align + 5));
        pgd_mem_free(p);
    }
    assert_int_equal(pgd_mem_live(), live);
    assert_int_equal(pgd_mem_count(), count + 9 + 13);
    assert_int_equal(pgd_mem_thread_count(), mine + 9 + 13);
    pgd_mem_free(NULL);
    void *p = pgd_mem_alloc_aligned(0, 64);
    assert_non_null(p);
    assert_int_equal(pgd_mem_live(), live + 1);
    pgd_mem_free(p);
}

static void impossible_sizes(void **state) {
    (void)state;
    assert_null(pgd_mem_alloc(SIZE_MAX / 2, 3));
    assert_null(pgd_mem_alloc(SIZE_MAX, 2));
    assert_null(pgd_mem_alloc_aligned(SIZE_MAX, 64));
    assert_null(pgd_mem_alloc_aligned(8, 24));
    assert_null(pgd_mem_alloc_aligned(8, 8192));
    void *p = pgd_mem_alloc(4, 4);
    assert_null(pgd_mem_realloc(p, SIZE_MAX, SIZE_MAX));
    pgd_mem_free(p);
}

static void grown_blocks(void **state) {
    (void)state;
    uint64_t live = pgd_mem_live();
    char *p = pgd_mem_realloc(NULL, 4, 1);
    memcpy(p, "abc", 4);
    p = pgd_mem_realloc(p, 100000, 1);
    assert_string_equal(p, "abc");
    assert_int_equal(pgd_mem_live(), live + 1);
    pgd_mem_fail_nth(1);
    assert_null(pgd_mem_realloc(p, 200000, 1));
    assert_string_equal(p, "abc");
    p = pgd_mem_realloc(p, 0, 1);
    assert_non_null(p);
    pgd_mem_free(p);
    assert_int_equal(pgd_mem_live(), live);
}

static void failure_on_demand(void **state) {
    (void)state;
    char *text = NULL;
    pgd_mem_fail_nth(2);
    void *p = pgd_mem_alloc(1, 1);
    assert_non_null(p);
    assert_int_equal(pgd_mem_copy_text("abc", &text), PGD_OUT_OF_MEMORY);
    assert_null(text);
    assert_string_equal(pgd_fail_text(PGD_OUT_OF_MEMORY), "no memory for a text (4 bytes)");
    assert_int_equal(pgd_mem_copy_text("abc", &text), PGD_OK);
    assert_string_equal(text, "abc");
    pgd_mem_fail_nth(1);
    pgd_mem_fail_nth(0);
    void *q = pgd_mem_alloc_aligned(1, 1);
    assert_non_null(q);
    pgd_mem_fail_nth(1);
    assert_null(pgd_mem_alloc_aligned(1, 1));
    pgd_mem_free(p);
    pgd_mem_free(q);
    pgd_mem_free(text);
}

static void checked_sizes(void **state) {
    (void)state;
    uint64_t v = 5;
    assert_int_equal(pgd_size_add(UINT64_MAX, 0, &v), 1);
    assert_true(v == UINT64_MAX);
    assert_int_equal(pgd_size_add(UINT64_MAX, 1, &v), 0);
    assert_true(v == UINT64_MAX);
    assert_int_equal(pgd_size_mul(1ull << 32, 1ull << 32, &v), 0);
    assert_int_equal(pgd_size_mul((1ull << 32) - 1, (1ull << 32) + 1, &v), 1);
    assert_true(v == UINT64_MAX);
    assert_int_equal(pgd_size_mul(0, UINT64_MAX, &v), 1);
    assert_int_equal(pgd_size_mul(UINT64_MAX, 0, &v), 1);
    assert_int_equal(v, 0);
}

static void test_large_blocks_are_zero_and_counted(void **state) {
    (void)state;
    const size_t bytes = (size_t)40 << 20;
    uint64_t live = pgd_mem_live();
    unsigned char *a = pgd_mem_alloc_aligned(bytes, 4096);
    unsigned char *b = pgd_mem_alloc_aligned(bytes, 64);
    assert_non_null(a);
    assert_non_null(b);
    assert_int_equal(pgd_mem_live(), live + 2);
    assert_int_equal((uintptr_t)a % 4096, 0);
    assert_int_equal((uintptr_t)b % 64, 0);
    for (size_t i = 0; i < bytes; i += 4093) {
        assert_int_equal(a[i] | b[i], 0);
    }
    a[bytes - 1] = 1;
    b[0] = 1;
    pgd_mem_free(a);
    assert_int_equal(b[0], 1);
    pgd_mem_free(b);
    assert_int_equal(pgd_mem_live(), live);
    pgd_mem_fail_nth(1);
    assert_null(pgd_mem_alloc_aligned(bytes, 64));
    pgd_mem_fail_nth(0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_large_blocks_are_zero_and_counted),
        cmocka_unit_test(blocks),
        cmocka_unit_test(impossible_sizes),
        cmocka_unit_test(grown_blocks),
        cmocka_unit_test(failure_on_demand),
        cmocka_unit_test(checked_sizes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
