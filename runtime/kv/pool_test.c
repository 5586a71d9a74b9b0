// The block pool: order of ids, orders of giving, content, duplicates, eviction, reset.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/mem.h"
#include "base/rng.h"
#include "kv/pool.h"

static pgd_kv_pool *make(int32_t n) {
    pgd_kv_pool *pool = NULL;
    assert_int_equal(pgd_kv_pool_create(n, &pool), PGD_OK);
    return pool;
}

static pgd_kv_hash hash_of(uint64_t n) {
    return (pgd_kv_hash){{n, n * 3, 7, n + 9}};
}

static void check_free(const pgd_kv_pool *pool, const int32_t *expected, int32_t n) {
    int32_t id = 0;
    for (int32_t i = 0; i < n; i++) {
        id = pgd_kv_pool_next_free(pool, id);
        assert_int_equal(id, expected[i]);
    }
    assert_int_equal(pgd_kv_pool_next_free(pool, id), 0);
    assert_int_equal(pgd_kv_pool_free_count(pool), n);
}

#define CHECK_FREE(pool, ...)                                              \
    do {                                                                   \
        const int32_t list[] = {__VA_ARGS__};                              \
        check_free(pool, list, (int32_t)(sizeof(list) / sizeof(list[0]))); \
    } while (0)

static void test_new_pool_gives_1_2_3(void **state) {
    (void)state;
    pgd_kv_pool *pool = make(7);
    int32_t a[3];
    CHECK_FREE(pool, 1, 2, 3, 4, 5, 6);
    pgd_kv_pool_take(pool, 3, a);
    assert_int_equal(a[0], 1);
    assert_int_equal(a[2], 3);
    assert_int_equal(pgd_kv_pool_ref_count(pool, 3), 1);
    assert_int_equal(pgd_kv_pool_ref_count(pool, 4), 0);
    assert_int_equal(pgd_kv_pool_ref_count(pool, 0), 0);
    assert_int_equal(pgd_kv_pool_usable(pool), 6);
    CHECK_FREE(pool, 4, 5, 6);
    pgd_kv_pool_destroy(pool);
}

static void test_without_content_to_the_head_as_a_run(void **state) {
    (void)state;
    pgd_kv_pool *pool = make(6);
    int32_t a[3];
    pgd_kv_pool_take(pool, 3, a);
    pgd_kv_pool_give(pool, a, 3);
    CHECK_FREE(pool, 3, 2, 1, 4, 5);
    pgd_kv_pool_destroy(pool);
}

static void test_with_content_to_the_tail_last_first(void **state) {
    (void)state;
    pgd_kv_pool *pool = make(7);
    int32_t a[4];
    pgd_kv_pool_take(pool, 4, a);
    pgd_kv_hash h1 = hash_of(1);
    pgd_kv_hash h2 = hash_of(2);
    pgd_kv_pool_register(pool, 1, &h1, 0);
    pgd_kv_pool_register(pool, 3, &h2, 0);
    pgd_kv_pool_give(pool, a, 4);
    CHECK_FREE(pool, 4, 2, 5, 6, 3, 1);
    assert_int_equal(pgd_kv_pool_find(pool, &h1, 0), 1);
    assert_int_equal(pgd_kv_pool_find(pool, &h1, 1), 0);
    pgd_kv_pool_destroy(pool);
}

static void test_held_blocks_and_nulls_stay(void **state) {
    (void)state;
    pgd_kv_pool *pool = make(5);
    int32_t a[2];
    pgd_kv_pool_take(pool, 2, a);
    pgd_kv_pool_touch(pool, 1);
    const int32_t table[] = {0, 1, 2};
    pgd_kv_pool_give(pool, table, 3);
    CHECK_FREE(pool, 2, 3, 4);
    assert_int_equal(pgd_kv_pool_ref_count(pool, 1), 1);
    pgd_kv_pool_destroy(pool);
}

static void test_touch_takes_out_of_the_middle(void **state) {
    (void)state;
    pgd_kv_pool *pool = make(6);
    int32_t a[3];
    pgd_kv_pool_take(pool, 3, a);
    for (int32_t i = 1; i <= 3; i++) {
        pgd_kv_hash h = hash_of((uint64_t)i);
        pgd_kv_pool_register(pool, i, &h, 0);
    }
    pgd_kv_pool_give(pool, a, 3);
    CHECK_FREE(pool, 4, 5, 3, 2, 1);
    pgd_kv_pool_touch(pool, 2);
    CHECK_FREE(pool, 4, 5, 3, 1);
    assert_int_equal(pgd_kv_pool_ref_count(pool, 2), 1);
    pgd_kv_pool_destroy(pool);
}

static void test_taking_evicts(void **state) {
    (void)state;
    pgd_kv_pool *pool = make(3);
    int32_t a[2];
    int32_t n = 0;
    pgd_kv_hash h = hash_of(1);
    pgd_kv_pool_take(pool, 1, a);
    pgd_kv_pool_register(pool, 1, &h, 0);
    pgd_kv_pool_give(pool, a, 1);
    pgd_kv_pool_take(pool, 2, a);
    assert_int_equal(a[0], 2);
    assert_int_equal(a[1], 1);
    assert_int_equal(pgd_kv_pool_find(pool, &h, 0), 0);
    assert_int_equal(pgd_kv_pool_evicted(pool, &n)[0], 1);
    assert_int_equal(n, 1);
    pgd_kv_pool_clear_evicted(pool);
    (void)pgd_kv_pool_evicted(pool, &n);
    assert_int_equal(n, 0);
    pgd_kv_pool_destroy(pool);
}

static void test_of_duplicates_the_first_still_cached_is_found(void **state) {
    (void)state;
    pgd_kv_pool *pool = make(6);
    int32_t a[4];
    pgd_kv_hash h = hash_of(1);
    pgd_kv_pool_take(pool, 4, a);
    pgd_kv_pool_register(pool, 3, &h, 0);
    pgd_kv_pool_register(pool, 1, &h, 0);
    pgd_kv_pool_register(pool, 4, &h, 0);
    assert_int_equal(pgd_kv_pool_find(pool, &h, 0), 3);
    pgd_kv_pool_forget(pool, 1); // in the middle of the ring
    assert_int_equal(pgd_kv_pool_find(pool, &h, 0), 3);
    pgd_kv_pool_forget(pool, 3);
    assert_int_equal(pgd_kv_pool_find(pool, &h, 0), 4);
    pgd_kv_pool_register(pool, 2, &h, 0);
    assert_int_equal(pgd_kv_pool_find(pool, &h, 0), 4);
    pgd_kv_pool_forget(pool, 4);
    pgd_kv_pool_forget(pool, 2);
    pgd_kv_pool_forget(pool, 2);
    assert_int_equal(pgd_kv_pool_find(pool, &h, 0), 0);
    pgd_kv_pool_destroy(pool);
}

static void test_reset_only_when_nothing_is_held(void **state) {
    (void)state;
    pgd_kv_pool *pool = make(4);
    int32_t a[1];
    pgd_kv_hash h = hash_of(1);
    pgd_kv_pool_take(pool, 1, a);
    pgd_kv_pool_register(pool, 1, &h, 0);
    assert_int_equal(pgd_kv_pool_reset(pool), 0);
    assert_int_equal(pgd_kv_pool_find(pool, &h, 0), 1);
    pgd_kv_pool_give(pool, a, 1);
    assert_int_equal(pgd_kv_pool_reset(pool), 1);
    assert_int_equal(pgd_kv_pool_find(pool, &h, 0), 0);
    CHECK_FREE(pool, 2, 3, 1);
    pgd_kv_pool_destroy(pool);
}

#define N_BLOCKS 40
#define N_KEYS   12

// What the pool should hold, kept slowly: who was registered when.
typedef struct shadow {
    int32_t key[N_BLOCKS]; // -1 = none
    uint64_t when[N_BLOCKS];
    int32_t count[N_BLOCKS];
} shadow;

static int32_t shadow_find(const shadow *s, int32_t key) {
    int32_t best = 0;
    for (int32_t i = 1; i < N_BLOCKS; i++) {
        if (s->key[i] == key && (best == 0 || s->when[i] < s->when[best])) {
            best = i;
        }
    }
    return best;
}

static void random_action(pgd_kv_pool *pool, shadow *s, uint64_t *seed, uint64_t now) {
    int32_t id = 1 + (int32_t)(pgd_rng_next(seed) % (N_BLOCKS - 1));
    int32_t key = (int32_t)(pgd_rng_next(seed) % N_KEYS);
    pgd_kv_hash h = hash_of((uint64_t)key % 3); // few buckets, many collisions
    h.words[3] = (uint64_t)key;
    switch (pgd_rng_next(seed) % 4) {
    case 0:
        if (pgd_kv_pool_free_count(pool) > 0) {
            pgd_kv_pool_take(pool, 1, &id);
            assert_int_equal(s->count[id], 0);
            s->count[id] = 1;
            s->key[id] = -1;
        }
        break;
    case 1:
        if (s->count[id] > 0) {
            pgd_kv_pool_give(pool, &id, 1);
            s->count[id]--;
        }
        break;
    case 2:
        if (s->count[id] > 0 && s->key[id] < 0) {
            pgd_kv_pool_register(pool, id, &h, 0);
            s->key[id] = key;
            s->when[id] = now;
        }
        break;
    default:
        id = pgd_kv_pool_find(pool, &h, 0);
        assert_int_equal(id, shadow_find(s, key));
        if (id != 0 && key % 2 == 0) {
            pgd_kv_pool_touch(pool, id);
            s->count[id]++;
        } else if (id != 0 && s->count[id] > 0) {
            pgd_kv_pool_forget(pool, id);
            s->key[id] = -1;
        }
        break;
    }
}

static void test_random_actions_agree_with_a_slow_pool(void **state) {
    (void)state;
    for (uint64_t seed = 1; seed <= 50; seed++) {
        uint64_t stream = seed;
        shadow s = {0};
        pgd_kv_pool *pool = make(N_BLOCKS);
        for (int32_t i = 0; i < N_BLOCKS; i++) {
            s.key[i] = -1;
        }
        for (uint64_t now = 1; now < 4000; now++) {
            random_action(pool, &s, &stream, now);
            pgd_kv_pool_clear_evicted(pool);
        }
        int32_t n_free = 0;
        for (int32_t i = 1; i < N_BLOCKS; i++) {
            assert_int_equal(pgd_kv_pool_ref_count(pool, i), s.count[i]);
            assert_int_equal(pgd_kv_pool_is_cached(pool, i), s.key[i] >= 0);
            n_free += s.count[i] == 0;
        }
        assert_int_equal(pgd_kv_pool_free_count(pool), n_free);
        pgd_kv_pool_destroy(pool);
    }
}

static void test_impossible_sizes_are_refused(void **state) {
    (void)state;
    pgd_kv_pool *pool = NULL;
    assert_int_equal(pgd_kv_pool_create(1, &pool), PGD_OUT_OF_RANGE);
    assert_null(pool);
}

static void test_failed_allocations_leak_nothing(void **state) {
    (void)state;
    uint64_t live = pgd_mem_live();
    for (uint64_t n = 1;; n++) {
        pgd_kv_pool *pool = NULL;
        pgd_mem_fail_nth(n);
        pgd_status status = pgd_kv_pool_create(100, &pool);
        pgd_mem_fail_nth(0);
        pgd_kv_pool_destroy(pool);
        assert_int_equal(pgd_mem_live(), live);
        if (status == PGD_OK) {
            assert_int_equal(n, 5);
            break;
        }
        assert_int_equal(status, PGD_OUT_OF_MEMORY);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_new_pool_gives_1_2_3),
        cmocka_unit_test(test_without_content_to_the_head_as_a_run),
        cmocka_unit_test(test_with_content_to_the_tail_last_first),
        cmocka_unit_test(test_held_blocks_and_nulls_stay),
        cmocka_unit_test(test_touch_takes_out_of_the_middle),
        cmocka_unit_test(test_taking_evicts),
        cmocka_unit_test(test_of_duplicates_the_first_still_cached_is_found),
        cmocka_unit_test(test_reset_only_when_nothing_is_held),
        cmocka_unit_test(test_random_actions_agree_with_a_slow_pool),
        cmocka_unit_test(test_impossible_sizes_are_refused),
        cmocka_unit_test(test_failed_allocations_leak_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
