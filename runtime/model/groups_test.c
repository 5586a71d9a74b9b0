// Layers in groups: sizes by hand, from vLLM's document on hybrid caches.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "model/inner.h"

#define MOST_LAYERS 64

// windows: one letter a layer, '.' full, 'a' a window of 10 tokens, 'b' of 11 ...
static void expect(const char *layers, int32_t max_model_len, int32_t n, const int32_t *sizes) {
    int32_t windows[MOST_LAYERS];
    pgd_load_config config = {.window = windows};
    for (; layers[config.n_layers] != '\0'; config.n_layers++) {
        char c = layers[config.n_layers];
        windows[config.n_layers] = c == '.' ? 0 : 10 + c - 'a';
    }
    pgd_model m = {.desc = {.config = &config}};
    pgd_model_group_layers(&config, max_model_len, &m.desc.groups);
    const pgd_model_groups *g = &m.desc.groups;
    int32_t seen[PGD_MAX_GROUPS] = {0};
    assert_int_equal(g->n, n);
    for (int32_t i = 0; i < n; i++) {
        assert_int_equal(g->n_layers[i], sizes[i]);
        assert_true(g->n_layers[i] <= g->layers);
    }
    // Each layer has a place of its own, in a group of its kind, in order.
    for (int32_t i = 0; i < config.n_layers; i++) {
        int32_t place = -1;
        int32_t group = pgd_model_group_of(&m, i, &place);
        assert_true(group >= 0 && group < n);
        assert_int_equal(place, seen[group]++);
        if (n > 1) {
            assert_int_equal(g->windows[group], windows[i] < max_model_len ? windows[i] : 0);
        }
    }
    for (int32_t i = 0; i < n; i++) {
        assert_int_equal(seen[i], sizes[i]);
    }
}

static void test_one_kind_is_one_group(void **state) {
    (void)state;
    expect(".....", 100, 1, (const int32_t[]){5});
    expect("aaaa", 100, 1, (const int32_t[]){4});
    expect("a.a.", 10, 1, (const int32_t[]){4}); // no sequence is longer than the window
}

static void test_kinds_are_cut_to_the_smaller(void **state) {
    (void)state;
    expect(".aa.aa.aaa", 100, 4, (const int32_t[]){3, 3, 2, 2});
    expect("......aaaaa", 100, 2, (const int32_t[]){6, 5});
    expect("aaa...", 100, 2, (const int32_t[]){3, 3});
    expect(".ab", 100, 3, (const int32_t[]){1, 1, 1});
}

static void test_never_more_groups_than_a_batch_has(void **state) {
    (void)state;
    expect(".aaaaaaaaaaaaaaaaaaaaaaaaaaa", 100, 8, (const int32_t[]){1, 4, 4, 4, 4, 4, 4, 3});
    expect("abcdefghi", 100, 1, (const int32_t[]){9}); // nine kinds
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_one_kind_is_one_group),
        cmocka_unit_test(test_kinds_are_cut_to_the_smaller),
        cmocka_unit_test(test_never_more_groups_than_a_batch_has),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
