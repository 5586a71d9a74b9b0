// The index of a sharded model: order, and its limits. (weights_test.c has the wrong indexes.)
#include "load/test_folder.h"

#include "base/mem.h"
#include "load/shards.h"

// {"weight_map": {"t0": "FILE", ...}} with n tensors, each in a file of its own if spread is 1.
static char *many(uint32_t n, int spread) {
    size_t cap = (size_t)n * 48 + 64;
    char *text = malloc(cap);
    assert_non_null(text);
    size_t at = (size_t)snprintf(text, cap, "{\"weight_map\":{");
    for (uint32_t i = 0; i < n; i++) {
        at += (size_t)snprintf(text + at, cap - at, "%s\"t%u\":\"s%u.safetensors\"",
                               i == 0 ? "" : ",", (unsigned)i, spread ? (unsigned)i : 0u);
    }
    (void)snprintf(text + at, cap - at, "}}");
    return text;
}

static pgd_status parse_many(uint32_t n, int spread, pgd_load_shards *out) {
    char *text = many(n, spread);
    pgd_status status = pgd_load_shards_parse(pgd_str_of(text), "index", out);
    free(text);
    return status;
}

static void sorted_by_file(void **state) {
    (void)state;
    pgd_load_shards s;
    pgd_str text = PGD_STR("{\"weight_map\":{\"c\":\"1.safetensors\",\"a\":\"2.safetensors\","
                           "\"b\":\"1.safetensors\"}}");
    uint64_t live = pgd_mem_live();
    assert_int_equal(pgd_load_shards_parse(text, "index", &s), PGD_OK);
    assert_int_equal(s.n, 3);
    assert_int_equal(s.n_files, 2);
    assert_true(pgd_str_is(s.entries[0].tensor, "b"));
    assert_true(pgd_str_is(s.entries[1].tensor, "c"));
    assert_true(pgd_str_is(s.entries[2].tensor, "a"));
    assert_true(pgd_str_is(s.entries[2].file, "2.safetensors"));
    pgd_load_shards_free(&s);
    assert_int_equal(pgd_mem_live(), live);
}

static void limits(void **state) {
    (void)state;
    pgd_load_shards s;
    uint64_t live = pgd_mem_live();
    assert_int_equal(parse_many(PGD_LOAD_MAX_SHARDS, 1, &s), PGD_OK);
    assert_int_equal(s.n_files, PGD_LOAD_MAX_SHARDS);
    pgd_load_shards_free(&s);
    assert_int_equal(parse_many(PGD_LOAD_MAX_SHARDS + 1, 1, &s), PGD_INVALID);
    test_says(PGD_INVALID, "names 4097 files; at most 4096");
    assert_int_equal(parse_many(PGD_LOAD_MAX_TENSORS + 1, 0, &s), PGD_INVALID);
    test_says(PGD_INVALID, "has 1000001 tensors; at most 1000000");
    assert_null(s.entries);
    assert_int_equal(pgd_mem_live(), live);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sorted_by_file),
        cmocka_unit_test(limits),
    };
    return cmocka_run_group_tests_name("load.shards", tests, NULL, NULL);
}
