// Names of a hub and what is found in the cache, offline. Downloads are tested in tests/hub.
#include "load/test_folder.h"

#include "base/mem.h"
#include "load/hub.h"

#define COMMIT "0123456789abcdef0123456789abcdef01234567"

static void names(void **state) {
    static const struct {
        const char *name;
        int32_t is;
    } cases[] = {
        {"org/name", 1},      {"Qwen/Qwen3-0.6B", 1},
        {"a/b", 1},           {"o_r.g/n-a.m_e", 1},
        {"org/name@main", 1}, {"org/name@a/b", 1},
        {"org/name@", 1},     {"name", 0},
        {"org/", 0},          {"/name", 0},
        {"org/name/more", 0}, {"./name", 0},
        {"../name", 0},       {"org/..", 0},
        {"org/a..b", 0},      {"org/a--b", 0},
        {"org/-a", 0},        {"org/a.", 0},
        {"org/a b", 0},       {"org/model.gguf", 0},
        {"org/a\\b", 0},      {"", 0},
        {"@main", 0},         {"org/\xc3\xa4", 0},
    };
    char longest[120];
    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        if (pgd_load_hub_is(pgd_str_of(cases[i].name)) != cases[i].is) {
            fail_msg("%s", cases[i].name);
        }
    }
    memset(longest, 'a', sizeof(longest));
    longest[3] = '/';
    assert_true(pgd_load_hub_is((pgd_str){longest, 96}));
    assert_false(pgd_load_hub_is((pgd_str){longest, 97}));
}

static void shell(const char *format, const char *folder) {
    char command[900];
    (void)snprintf(command, sizeof(command), format, folder);
    assert_int_equal(system(command), 0);
}

// A cache with one model of two shards.
static void make_cache(test_folder *f) {
    test_folder_make(f);
    shell("set -e; cd '%s'; mkdir -p models--org--name/refs/pr models--org--name/snapshots/" COMMIT
          "; cd models--org--name; printf " COMMIT " > refs/main; cp refs/main refs/pr/1;"
          "cd snapshots/" COMMIT "; echo '{}' > config.json; touch a.safetensors b.safetensors;"
          "touch tokenizer.json; echo '{\"weight_map\":{\"x\":\"a.safetensors\","
          "\"y\":\"b.safetensors\"}}' > model.safetensors.index.json",
          f->path);
    assert_int_equal(setenv("HF_HUB_CACHE", f->path, 1), 0);
    assert_int_equal(setenv("HF_HUB_OFFLINE", "1", 1), 0);
}

static void expect(const char *name, pgd_status wanted, const char *says) {
    char out[512] = "";
    pgd_status status = pgd_load_hub_find(pgd_str_of(name), NULL, out, sizeof(out));
    if (status != wanted) {
        fail_msg("%s: status %d: %s", name, (int)status, pgd_fail_text(status));
    }
    if (status == PGD_OK) {
        assert_non_null(strstr(out, says));
    } else {
        test_says(status, says);
    }
}

static void remove_file(const test_folder *f, const char *name) {
    char path[300];
    (void)snprintf(path, sizeof(path), "%s/models--org--name/snapshots/" COMMIT "/%s", f->path,
                   name);
    assert_int_equal(remove(path), 0);
}

static void in_the_cache(void **state) {
    test_folder f;
    (void)state;
    make_cache(&f);
    expect("org/name", PGD_OK, "models--org--name/snapshots/" COMMIT);
    expect("org/name@pr/1", PGD_OK, "snapshots/" COMMIT);
    expect("org/name@" COMMIT, PGD_OK, "snapshots/" COMMIT);
    expect("org/name@v1", PGD_NOT_FOUND, "v1");
    expect("org/name@../../x", PGD_INVALID, "revision");
    expect("org/other", PGD_NOT_FOUND, "HF_HUB_OFFLINE");
    char small[20];
    assert_int_equal(pgd_load_hub_find(PGD_STR("org/name"), NULL, small, sizeof(small)),
                     PGD_OUT_OF_RANGE);
    remove_file(&f, "tokenizer.json");
    expect("org/name", PGD_OK, "snapshots/" COMMIT); // token ids do without
    remove_file(&f, "b.safetensors");
    expect("org/name", PGD_NOT_FOUND, "b.safetensors");
    remove_file(&f, "config.json");
    expect("org/name", PGD_NOT_FOUND, "config.json");
    shell("printf ../../../etc > '%s/models--org--name/refs/main'", f.path);
    expect("org/name", PGD_NOT_FOUND, "main");
    shell("rm -r '%s'", f.path);
}

static void out_of_memory(void **state) {
    test_folder f;
    char out[512];
    pgd_status status = PGD_OUT_OF_MEMORY;
    uint64_t live = pgd_mem_live();
    uint64_t n = 1;
    (void)state;
    make_cache(&f);
    remove_file(&f, "tokenizer.json");
    // An index that cannot be read is for the reader of weights to complain of, so a failing
    // allocation may be passed over here; nothing may be lost or crash.
    for (; n < 50; n++) {
        pgd_mem_fail_nth(n);
        status = pgd_load_hub_find(PGD_STR("org/name"), NULL, out, sizeof(out));
        pgd_mem_fail_nth(0);
        assert_true(status == PGD_OK || status == PGD_OUT_OF_MEMORY);
        assert_int_equal(pgd_mem_live(), live);
    }
    assert_int_equal(status, PGD_OK);
    shell("rm -r '%s'", f.path);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(names), cmocka_unit_test(in_the_cache),
                                       cmocka_unit_test(out_of_memory)};
    return cmocka_run_group_tests_name("load.hub", tests, NULL, NULL);
}
