// Tables and hits: what is found, what a refusal leaves, what windows give back and need. Numbers
// follow from the rules in cache.h. The same through the program is tests/simulate/cases.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/mem.h"
#include "kv/cache.h"

#define CAP 32

typedef struct holder {
    pgd_seq seq;
    int32_t tokens[CAP * 4];
    int32_t blocks[2 * CAP];
    pgd_kv_hash hashes[CAP];
} holder;

// windows [n_groups], 0 = full.
static pgd_kv_cache *make_sized(int32_t n_blocks, int32_t block_tokens, int32_t n_groups,
                                const int32_t *windows) {
    pgd_kv_cache_config config = {.num_blocks = n_blocks,
                                  .block_size = block_tokens,
                                  .n_groups = n_groups,
                                  .max_num_batched_tokens = 12,
                                  .max_model_len = 64};
    for (int32_t g = 0; g < n_groups; g++) {
        config.windows[g] = windows[g];
    }
    pgd_kv_cache *c = NULL;
    assert_int_equal(pgd_kv_cache_create(&config, &c), PGD_OK);
    return c;
}

static pgd_kv_cache *make(int32_t n_blocks, int32_t n_groups, const int32_t *windows) {
    return make_sized(n_blocks, 4, n_groups, windows);
}

// A sequence of n tokens, the k-th of them `first` + k.
static void start(holder *h, int32_t first, int32_t n) {
    *h = (holder){.seq = {.n_prompt = n, .n_tokens = n, .cap_tokens = 4 * CAP, .cap_blocks = CAP}};
    h->seq.tokens = h->tokens;
    h->seq.blocks = h->blocks;
    h->seq.hashes = h->hashes;
    for (int32_t k = 0; k < 4 * CAP; k++) {
        h->tokens[k] = first + k;
    }
}

// Admits it whole; returns the tokens hit.
static int32_t enter(pgd_kv_cache *c, holder *h) {
    const int32_t n_hit = pgd_kv_cache_match(c, &h->seq);
    const pgd_kv_admission a = {.n_hit = n_hit, .n_new = h->seq.n_tokens - n_hit};
    assert_int_equal(pgd_kv_cache_admit(c, &h->seq, &a), 1);
    h->seq.computed = h->seq.n_tokens;
    return n_hit;
}

static int32_t free_blocks(pgd_kv_cache *c) {
    return pgd_kv_pool_free_count(pgd_kv_cache_pool(c));
}

static int32_t refs(pgd_kv_cache *c, int32_t block) {
    return pgd_kv_pool_ref_count(pgd_kv_cache_pool(c), block);
}

static void check_table(const holder *h, int32_t group, const int32_t *expected, int32_t n) {
    assert_int_equal(h->seq.n_blocks, n);
    for (int32_t i = 0; i < n; i++) {
        assert_int_equal(h->blocks[group * CAP + i], expected[i]);
    }
}

#define CHECK_TABLE(h, group, ...)                                              \
    do {                                                                        \
        const int32_t list[] = {__VA_ARGS__};                                   \
        check_table(h, group, list, (int32_t)(sizeof(list) / sizeof(list[0]))); \
    } while (0)

// ---- hits --------------------------------------------------------------------------------------

// The last known token is computed in any case, so the last block of a full hit is, too.
static void test_a_hit_leaves_a_token_to_compute(void **state) {
    (void)state;
    static const int32_t known[] = {1, 4, 5, 8, 9, 12, 13};
    static const int32_t hits[] = {0, 0, 4, 4, 8, 8, 12};
    pgd_kv_cache *c = make(40, 0, NULL);
    holder a;
    holder b;
    start(&a, 100, 12);
    assert_int_equal(enter(c, &a), 0);
    for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++) {
        start(&b, 100, known[i]);
        assert_int_equal(pgd_kv_cache_match(c, &b.seq), hits[i]);
        assert_int_equal(b.seq.n_blocks, 0); // looked up, not held
        b.seq.n_prompt = 1;                  // an answer is found like a prompt
        b.seq.n_hashes = 0;
        assert_int_equal(pgd_kv_cache_match(c, &b.seq), hits[i]);
    }
    assert_int_equal(free_blocks(c), 39 - 3);
    pgd_kv_cache_destroy(c);
}

static void test_who_may_not_read_still_writes(void **state) {
    (void)state;
    pgd_kv_cache *c = make(40, 0, NULL);
    holder a;
    holder b;
    for (int32_t i = 0; i < 2; i++) {
        start(&a, 100, 9);
        a.seq.skip_cache = 1;
        assert_int_equal(enter(c, &a), 0);
        start(&b, 100, 9);
        assert_int_equal(pgd_kv_cache_match(c, &b.seq), 8);
        assert_int_equal(b.blocks[0], 1); // of the one that was first
    }
    assert_int_equal(a.blocks[0], 4);
    assert_int_equal(pgd_kv_cache_reset(c), 0); // blocks are held
    assert_int_equal(pgd_kv_cache_match(c, &b.seq), 8);
    pgd_kv_cache_destroy(c);
}

static void test_a_reset_forgets(void **state) {
    (void)state;
    pgd_kv_cache *c = make(40, 0, NULL);
    holder a;
    start(&a, 100, 9);
    (void)enter(c, &a);
    pgd_kv_cache_give(c, &a.seq);
    assert_int_equal(pgd_kv_cache_match(c, &a.seq), 8);
    assert_int_equal(pgd_kv_cache_reset(c), 1);
    assert_int_equal(pgd_kv_cache_match(c, &a.seq), 0);
    pgd_kv_cache_destroy(c);
}

// A prefix is what comes first: an equal block behind another one is another block. Salts and
// adapters keep apart what is equal.
static void test_what_names_a_block(void **state) {
    (void)state;
    pgd_kv_cache *c = make(60, 0, NULL);
    holder a;
    holder b;
    start(&a, 100, 13);
    (void)enter(c, &a);
    start(&b, 100, 13);
    b.tokens[0] = 7; // the second and the third block are equal
    assert_int_equal(pgd_kv_cache_match(c, &b.seq), 0);
    start(&b, 100, 13);
    b.tokens[9] = 7;
    assert_int_equal(pgd_kv_cache_match(c, &b.seq), 8);
    start(&b, 100, 13);
    b.seq.cache_salt = "s";
    b.seq.cache_salt_len = 1;
    assert_int_equal(enter(c, &b), 0);
    start(&b, 100, 13);
    b.seq.adapter = "s";
    b.seq.adapter_len = 1;
    assert_int_equal(pgd_kv_cache_match(c, &b.seq), 0);
    start(&b, 100, 13);
    b.seq.cache_salt = "s";
    b.seq.cache_salt_len = 1;
    assert_int_equal(pgd_kv_cache_match(c, &b.seq), 12);
    pgd_kv_cache_destroy(c);
}

// Content can be found as soon as its blocks are taken, partial blocks never; what was planned and
// not computed is forgotten from the block on in which it begins.
static void test_content_is_found_from_its_allocation_on(void **state) {
    (void)state;
    pgd_kv_cache *c = make(40, 0, NULL);
    holder a;
    holder b;
    start(&a, 100, 20);
    const pgd_kv_admission chunk = {.n_new = 10};
    assert_int_equal(pgd_kv_cache_admit(c, &a.seq, &chunk), 1);
    start(&b, 100, 20);
    assert_int_equal(pgd_kv_cache_match(c, &b.seq), 8);
    a.seq.computed = 10;
    assert_int_equal(pgd_kv_cache_grow(c, &a.seq, 6), 1);
    assert_int_equal(pgd_kv_cache_match(c, &b.seq), 16);
    pgd_kv_cache_forget(c, &a.seq, 10); // block 2 began before it, but is not whole without it
    assert_int_equal(pgd_kv_cache_match(c, &b.seq), 8);
    pgd_kv_cache_forget(c, &a.seq, 8);
    assert_int_equal(pgd_kv_cache_match(c, &b.seq), 8);
    a.seq.computed = 16;
    pgd_kv_cache_learn(c, &a.seq);
    assert_int_equal(pgd_kv_cache_match(c, &b.seq), 16);
    pgd_kv_cache_destroy(c);
}

// ---- admission ---------------------------------------------------------------------------------

// Blocks that are hit and held by nobody count as needed; a refusal leaves all counts.
static void test_a_refusal_changes_nothing(void **state) {
    (void)state;
    pgd_kv_cache *c = make(8, 0, NULL); // 7 blocks
    holder a;
    holder b;
    holder d;
    start(&a, 100, 8);
    (void)enter(c, &a);
    pgd_kv_cache_give(c, &a.seq); // 1 and 2 are free and remembered
    start(&d, 500, 12);
    (void)enter(c, &d);
    start(&b, 100, 20); // 2 hit, 3 more; 4 are free
    assert_int_equal(pgd_kv_cache_match(c, &b.seq), 8);
    const pgd_kv_admission all = {.n_hit = 8, .n_new = 12};
    assert_int_equal(pgd_kv_cache_admit(c, &b.seq, &all), 0);
    assert_int_equal(free_blocks(c), 4);
    assert_int_equal(refs(c, 1) + refs(c, 2), 0);
    assert_int_equal(b.seq.n_blocks, 0);
    const pgd_kv_admission later = {.n_hit = 8, .n_new = 1, .n_reserve = 20};
    assert_int_equal(pgd_kv_cache_admit(c, &b.seq, &later), 0);
    const pgd_kv_admission room = {.n_hit = 8, .n_new = 8, .headroom = 1};
    assert_int_equal(pgd_kv_cache_admit(c, &b.seq, &room), 0);
    const pgd_kv_admission fits = {.n_hit = 8, .n_new = 8, .n_reserve = 16};
    assert_int_equal(pgd_kv_cache_admit(c, &b.seq, &fits), 1);
    assert_int_equal(free_blocks(c), 0);
    assert_int_equal(refs(c, b.blocks[0]), 1);
    pgd_kv_cache_destroy(c);
}

// Hit blocks that somebody holds cost nothing.
static void test_held_hits_are_free(void **state) {
    (void)state;
    pgd_kv_cache *c = make(5, 0, NULL); // 4 blocks
    holder a;
    holder b;
    start(&a, 100, 12);
    (void)enter(c, &a);
    start(&b, 100, 13);
    assert_int_equal(enter(c, &b), 12); // 3 held ones and the last free one
    assert_int_equal(refs(c, 1), 2);
    assert_int_equal(free_blocks(c), 0);
    b.seq.computed = 16;
    assert_int_equal(pgd_kv_cache_grow(c, &b.seq, 0), 1);
    assert_int_equal(pgd_kv_cache_grow(c, &b.seq, 1), 0);
    assert_int_equal(b.seq.n_blocks, 4);
    pgd_kv_cache_give(c, &a.seq);
    assert_int_equal(free_blocks(c), 0);
    pgd_kv_cache_give(c, &b.seq);
    assert_int_equal(free_blocks(c), 4);
    pgd_kv_cache_destroy(c);
}

// ---- groups and windows ------------------------------------------------------------------------

// Window 6: the token at position p sees p - 5 to p. A block leaves when all of it is older.
static void test_blocks_leave_the_window(void **state) {
    (void)state;
    static const int32_t windows[] = {0, 6};
    pgd_kv_cache *c = make(40, 2, windows);
    holder a;
    start(&a, 100, 8);
    (void)enter(c, &a);
    CHECK_TABLE(&a, 0, 1, 2);
    CHECK_TABLE(&a, 1, 3, 4);
    assert_int_equal(pgd_kv_cache_grow(c, &a.seq, 1), 1); // position 8 sees 3: block 0 stays
    CHECK_TABLE(&a, 1, 3, 4, 6);
    a.seq.computed = 9; // position 9 sees 4 to 9
    assert_int_equal(pgd_kv_cache_grow(c, &a.seq, 1), 1);
    CHECK_TABLE(&a, 0, 1, 2, 5);
    CHECK_TABLE(&a, 1, 0, 4, 6);
    assert_int_equal(refs(c, 3), 0);
    assert_int_equal(refs(c, 1), 1);
    a.seq.computed = 17; // sees 12: blocks 1 and 2 leave together
    assert_int_equal(pgd_kv_cache_grow(c, &a.seq, 1), 1);
    assert_int_equal(a.seq.n_blocks, 5);
    assert_int_equal(a.blocks[CAP + 2], 0);
    assert_true(a.blocks[CAP + 3] != 0);
    pgd_kv_cache_give(c, &a.seq);
    assert_int_equal(free_blocks(c), 39);
    pgd_kv_cache_destroy(c);
}

// Blocks of one token: the first leaves as soon as as many as the window are computed.
static void test_small_blocks_leave_one_by_one(void **state) {
    (void)state;
    static const int32_t windows[] = {3};
    pgd_kv_cache *c = make_sized(20, 1, 1, windows);
    holder a;
    start(&a, 100, 2);
    (void)enter(c, &a);
    for (int32_t n = 2; n < 9; n++) {
        a.seq.computed = n;
        assert_int_equal(pgd_kv_cache_grow(c, &a.seq, 1), 1); // sees n - 2 to n
        for (int32_t i = 0; i <= n; i++) {
            assert_int_equal(a.blocks[i] != 0, i >= n - 2);
        }
    }
    pgd_kv_cache_destroy(c);
}

// What leaves the window serves the step's own blocks; a step takes blocks for every group or none.
static void test_what_left_the_window_is_there_for_the_step(void **state) {
    (void)state;
    static const int32_t windows[] = {4, 4};
    pgd_kv_cache *c = make(6, 2, windows); // 5 blocks
    holder a;
    start(&a, 100, 7);
    (void)enter(c, &a); // two in each group
    assert_int_equal(free_blocks(c), 1);
    assert_int_equal(pgd_kv_cache_grow(c, &a.seq, 1), 1);
    a.seq.computed = 8; // sees 5: block 0 of both leaves
    assert_int_equal(pgd_kv_cache_grow(c, &a.seq, 1), 1);
    assert_int_equal(a.seq.n_blocks, 3);
    assert_int_equal(free_blocks(c), 1);
    a.seq.computed = 9;
    assert_int_equal(pgd_kv_cache_grow(c, &a.seq, 4), 0); // one for each group, one there is
    assert_int_equal(a.seq.n_blocks, 3);
    pgd_kv_cache_destroy(c);
}

// ceil(min(window - 1 + 12, 64) / 4) + 1 blocks at most, and never more than the tokens fill.
static void test_what_a_window_needs(void **state) {
    (void)state;
    static const int32_t windows[] = {0, 6, 5, 60};
    static const int32_t most[] = {1000, 6, 5, 17};
    for (int32_t i = 0; i < 4; i++) {
        pgd_kv_cache *c = make(40, 1, &windows[i]);
        for (int32_t n = 1; n <= 80; n++) {
            const int32_t all = (n + 3) / 4;
            assert_int_equal(pgd_kv_cache_needed(c, n), all < most[i] ? all : most[i]);
        }
        pgd_kv_cache_destroy(c);
    }
    // Both groups of a sequence count. The prompt's reserve is capped, its chunk is not.
    pgd_kv_cache *c = make(8, 1, &windows[2]); // 7 blocks, a sequence holds 5
    holder a;
    start(&a, 100, 60);
    pgd_kv_admission entry = {.n_new = 12, .n_reserve = 60, .headroom = 3};
    assert_int_equal(pgd_kv_cache_admit(c, &a.seq, &entry), 0);
    entry.headroom = 2;
    assert_int_equal(pgd_kv_cache_admit(c, &a.seq, &entry), 1);
    pgd_kv_cache_give(c, &a.seq);
    entry = (pgd_kv_admission){.n_new = 32};
    assert_int_equal(pgd_kv_cache_admit(c, &a.seq, &entry), 0); // 8 blocks
    pgd_kv_cache_destroy(c);
}

// A window group needs its last ceil((window - 1) / 4) blocks, in a row, or all from the first on.
static void test_hits_of_windows(void **state) {
    (void)state;
    static const int32_t windows[] = {6};
    for (int32_t lost = -1; lost < 5; lost++) {
        pgd_kv_cache *c = make(40, 1, windows);
        holder a;
        holder b;
        start(&a, 100, 20);
        (void)enter(c, &a); // blocks 1 to 5
        if (lost >= 0) {
            pgd_kv_pool_forget(pgd_kv_cache_pool(c), 1 + lost);
        }
        start(&b, 100, 21);
        // window 6 needs 2 blocks behind the hit: 5 of them unless 3 or 4 is lost, then up to it
        static const int32_t hits[] = {20, 20, 20, 20, 12, 16};
        assert_int_equal(pgd_kv_cache_match(c, &b.seq), hits[1 + lost]);
        assert_int_equal(enter(c, &b), hits[1 + lost]);
        const int32_t n = hits[1 + lost] / 4;
        for (int32_t i = 0; i < n; i++) {
            assert_int_equal(b.blocks[i], i < n - 2 ? 0 : 1 + i);
            assert_int_equal(refs(c, 1 + i), i < n - 2 ? 1 : 2);
        }
        pgd_kv_cache_destroy(c);
    }
}

// A window of 5 is served by one block, of 6 by two, of 1 by one.
static void test_how_many_blocks_serve_a_window(void **state) {
    (void)state;
    static const int32_t windows[] = {1, 2, 5, 6, 9, 10};
    static const int32_t serves[] = {1, 1, 1, 2, 2, 3};
    for (int32_t i = 0; i < 6; i++) {
        pgd_kv_cache *c = make(40, 1, &windows[i]);
        holder a;
        holder b;
        start(&a, 100, 20);
        (void)enter(c, &a);
        start(&b, 100, 21);
        assert_int_equal(enter(c, &b), 20);
        for (int32_t k = 0; k < 5; k++) {
            assert_int_equal(b.blocks[k] != 0, k >= 5 - serves[i]);
        }
        pgd_kv_cache_destroy(c);
    }
}

// What one window group shortens another may not serve any more: both are asked again.
static void test_hits_hold_in_every_group(void **state) {
    (void)state;
    static const int32_t windows[] = {6, 10}; // two and three blocks
    pgd_kv_cache *c = make(60, 2, windows);
    pgd_kv_pool *pool = pgd_kv_cache_pool(c);
    holder a;
    holder b;
    start(&a, 100, 28);
    (void)enter(c, &a);                          // 1 to 7 and 8 to 14
    pgd_kv_pool_forget(pool, a.blocks[CAP + 5]); // the second group: at most 5 blocks
    pgd_kv_pool_forget(pool, a.blocks[3]);       // the first: not 5 and not 4, but 3
    start(&b, 100, 29);
    assert_int_equal(pgd_kv_cache_match(c, &b.seq), 12);
    pgd_kv_pool_forget(pool, a.blocks[CAP + 1]); // the second: not 3, not 2, but 1; the first: 1
    start(&b, 100, 29);
    assert_int_equal(pgd_kv_cache_match(c, &b.seq), 4);
    pgd_kv_cache_destroy(c);
}

static void test_wrong_configs_are_refused(void **state) {
    (void)state;
    pgd_kv_cache *c = NULL;
    pgd_kv_cache_config config = {.num_blocks = 10, .block_size = 0};
    assert_int_equal(pgd_kv_cache_create(&config, &c), PGD_OUT_OF_RANGE);
    assert_int_equal(pgd_kv_cache_would_need(&config, 9), 0);
    config = (pgd_kv_cache_config){.num_blocks = 1, .block_size = 4};
    assert_int_equal(pgd_kv_cache_create(&config, &c), PGD_OUT_OF_RANGE);
    config = (pgd_kv_cache_config){.num_blocks = 10, .block_size = 4, .n_groups = 9};
    assert_int_equal(pgd_kv_cache_create(&config, &c), PGD_OUT_OF_RANGE);
    config =
        (pgd_kv_cache_config){.num_blocks = 10, .block_size = 4, .n_groups = 1, .windows = {-1}};
    assert_int_equal(pgd_kv_cache_create(&config, &c), PGD_OUT_OF_RANGE);
    assert_null(c);
    config.windows[0] = 0;
    assert_int_equal(pgd_kv_cache_would_need(&config, 9), 3);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_hit_leaves_a_token_to_compute),
        cmocka_unit_test(test_who_may_not_read_still_writes),
        cmocka_unit_test(test_a_reset_forgets),
        cmocka_unit_test(test_what_names_a_block),
        cmocka_unit_test(test_content_is_found_from_its_allocation_on),
        cmocka_unit_test(test_a_refusal_changes_nothing),
        cmocka_unit_test(test_held_hits_are_free),
        cmocka_unit_test(test_blocks_leave_the_window),
        cmocka_unit_test(test_small_blocks_leave_one_by_one),
        cmocka_unit_test(test_what_left_the_window_is_there_for_the_step),
        cmocka_unit_test(test_what_a_window_needs),
        cmocka_unit_test(test_hits_of_windows),
        cmocka_unit_test(test_how_many_blocks_serve_a_window),
        cmocka_unit_test(test_hits_hold_in_every_group),
        cmocka_unit_test(test_wrong_configs_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
