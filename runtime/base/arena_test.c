// Arenas: zeroes, alignment, reuse after reset, lack of memory.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <string.h>

#include "base/arena.h"
#include "base/mem.h"
#include "base/rng.h"

static int is_zero(const unsigned char *p, size_t n) {
    for (size_t i = 0; i < n; i++) {
        if (p[i] != 0) {
            return 0;
        }
    }
    return 1;
}

// Three rounds of random sizes: every block zeroed, none overlaps another one.
static void random_use(void **state) {
    (void)state;
    enum { N = 500 };
    static unsigned char *blocks[N];
    static size_t sizes[N];
    pgd_arena *arena = NULL;
    uint64_t live = pgd_mem_live();
    uint64_t rng = 3;
    uint64_t count = 0;
    assert_int_equal(pgd_arena_create(256, &arena), PGD_OK);
    for (int round = 0; round < 3; round++) {
        rng = 3;
        for (size_t i = 0; i < N; i++) {
            sizes[i] = (size_t)(pgd_rng_next(&rng) % (i % 50 == 0 ? 5000 : 100));
            blocks[i] = pgd_arena_alloc(arena, sizes[i], 1);
            assert_non_null(blocks[i]);
            assert_int_equal((uintptr_t)blocks[i] % 16, 0);
            assert_true(is_zero(blocks[i], sizes[i]));
            memset(blocks[i], (int)(i % 255) + 1, sizes[i]);
        }
        for (size_t i = 0; i < N; i++) {
            for (size_t k = 0; k < sizes[i]; k++) {
                assert_int_equal(blocks[i][k], i % 255 + 1);
            }
        }
        pgd_arena_reset(arena);
        if (round == 0) {
            count = pgd_mem_count();
        }
    }
    // The same sizes again need no new blocks.
    assert_int_equal(pgd_mem_count(), count);
    pgd_arena_destroy(arena);
    pgd_arena_destroy(NULL);
    assert_int_equal(pgd_mem_live(), live);
}

static void copies(void **state) {
    (void)state;
    pgd_arena *arena = NULL;
    assert_int_equal(pgd_arena_create(0, &arena), PGD_OK);
    pgd_str a = pgd_arena_copy(arena, PGD_STR("abc"));
    pgd_str b = pgd_arena_copy(arena, pgd_str_of(NULL));
    pgd_str c = pgd_arena_copy(arena, PGD_STR("x\0y"));
    assert_string_equal(a.ptr, "abc");
    assert_string_equal(b.ptr, "");
    assert_int_equal(b.len, 0);
    assert_memory_equal(c.ptr, "x\0y", 4);
    assert_int_equal((uintptr_t)pgd_arena_alloc(arena, 1, 1) % 16, 0);
    assert_null(pgd_arena_alloc(arena, SIZE_MAX, 2));
    assert_null(pgd_arena_alloc(arena, SIZE_MAX, 1));
    pgd_arena_destroy(arena);
}

static void no_memory(void **state) {
    (void)state;
    pgd_arena *arena = NULL;
    uint64_t live = pgd_mem_live();
    pgd_mem_fail_nth(1);
    assert_int_equal(pgd_arena_create(0, &arena), PGD_OUT_OF_MEMORY);
    assert_null(arena);
    assert_int_equal(pgd_arena_create(64, &arena), PGD_OK);
    for (uint64_t n = 1; n <= 2; n++) {
        pgd_mem_fail_nth(n);
        assert_null(pgd_arena_alloc(arena, 1000, 1));
        pgd_mem_fail_nth(n);
        assert_null(pgd_arena_copy(arena, PGD_STR("abc")).ptr);
    }
    char *p = pgd_arena_alloc(arena, 1000, 1);
    assert_non_null(p);
    assert_true(is_zero((unsigned char *)p, 1000));
    pgd_arena_destroy(arena);
    assert_int_equal(pgd_mem_live(), live);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(random_use),
        cmocka_unit_test(copies),
        cmocka_unit_test(no_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
