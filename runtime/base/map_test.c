// The map against a plain table.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>
#include <string.h>

#include "base/map.h"
#include "base/mem.h"

enum { N = 5000 };
static char names[N][16];

static pgd_str name_of(size_t i) {
    (void)snprintf(names[i], sizeof(names[i]), "key %zu", i * 7919 % 100003);
    return pgd_str_of(names[i]);
}

static void fill_and_ask(void **state) {
    (void)state;
    pgd_map *map = NULL;
    uint64_t live = pgd_mem_live();
    uint64_t v = 0;
    assert_int_equal(pgd_map_create(0, &map), PGD_OK);
    assert_int_equal(pgd_map_get(map, PGD_STR("key 0"), &v), 0);
    for (size_t i = 0; i < N; i++) {
        assert_int_equal(pgd_map_set(map, name_of(i), i), PGD_OK);
        assert_int_equal(pgd_map_count(map), i + 1);
    }
    for (size_t i = 0; i < N; i += 3) {
        assert_int_equal(pgd_map_set(map, pgd_str_of(names[i]), i + N), PGD_OK);
    }
    assert_int_equal(pgd_map_count(map), N);
    for (size_t i = 0; i < N; i++) {
        assert_int_equal(pgd_map_get(map, pgd_str_of(names[i]), &v), 1);
        assert_int_equal(v, i % 3 == 0 ? i + N : i);
    }
    v = 77;
    assert_int_equal(pgd_map_get(map, PGD_STR("key"), &v), 0);
    assert_int_equal(v, 77);
    pgd_map_destroy(map);
    pgd_map_destroy(NULL);
    assert_int_equal(pgd_mem_live(), live);
}

static void odd_keys(void **state) {
    (void)state;
    pgd_map *map = NULL;
    uint64_t v = 0;
    assert_int_equal(pgd_map_create(3, &map), PGD_OK);
    assert_int_equal(pgd_map_set(map, pgd_str_of(NULL), 1), PGD_OK);
    assert_int_equal(pgd_map_set(map, PGD_STR("\0"), 2), PGD_OK);
    assert_int_equal(pgd_map_set(map, PGD_STR("\0\0"), 3), PGD_OK);
    assert_int_equal(pgd_map_get(map, PGD_STR(""), &v), 1);
    assert_int_equal(v, 1);
    assert_int_equal(pgd_map_get(map, PGD_STR("\0"), &v), 1);
    assert_int_equal(v, 2);
    assert_int_equal(pgd_map_count(map), 3);
    pgd_map_destroy(map);
}

static void sized_map_does_not_grow(void **state) {
    (void)state;
    pgd_map *map = NULL;
    assert_int_equal(pgd_map_create(N, &map), PGD_OK);
    uint64_t count = pgd_mem_count();
    for (size_t i = 0; i < N; i++) {
        assert_int_equal(pgd_map_set(map, name_of(i), i), PGD_OK);
    }
    assert_int_equal(pgd_mem_count(), count);
    pgd_map_destroy(map);
    assert_int_equal(pgd_map_create(SIZE_MAX, &map), PGD_OUT_OF_MEMORY);
    assert_null(map);
}

// Every allocation fails once; entries set before stay.
static void no_memory(void **state) {
    (void)state;
    uint64_t live = pgd_mem_live();
    for (uint64_t n = 1;; n++) {
        pgd_map *map = NULL;
        uint64_t v = 0;
        size_t i = 0;
        pgd_mem_fail_nth(n);
        pgd_status status = pgd_map_create(0, &map);
        for (; status == PGD_OK && i < 200; i++) {
            status = pgd_map_set(map, name_of(i), i);
        }
        pgd_mem_fail_nth(0);
        if (status == PGD_OK) {
            pgd_map_destroy(map);
            break;
        }
        assert_int_equal(status, PGD_OUT_OF_MEMORY);
        if (map != NULL) {
            assert_int_equal(pgd_map_count(map), i - 1);
            assert_int_equal(pgd_map_get(map, pgd_str_of(names[0]), &v), 1);
            assert_int_equal(pgd_map_get(map, pgd_str_of(names[i - 1]), &v), 0);
        }
        pgd_map_destroy(map);
        assert_true(n < 20);
    }
    assert_int_equal(pgd_mem_live(), live);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(fill_and_ask),
        cmocka_unit_test(odd_keys),
        cmocka_unit_test(sized_map_does_not_grow),
        cmocka_unit_test(no_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
