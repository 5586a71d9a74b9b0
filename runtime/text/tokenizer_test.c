// The tokenizer's edges: fast matchers against PCRE2 on random text, hostile input, ill-formed
// UTF-8, damaged files, and the n-th allocation that fails.
#define _POSIX_C_SOURCE 200809L // mkdtemp
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/fail.h"
#include "base/rng.h"
#include "base/team.h"
#include "text/parts.h"
#include "text/stream.h"
#include "text/test_files.h"

static const char *const patterns[] = {
    "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+",
    "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1,3}"
    "| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+",
    "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}"
    "| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+",
};

static const char *const scraps[] = {
    " ",
    "  ",
    "\n",
    "\r",
    "\r\n",
    "\t",
    "a",
    "B",
    "don",
    "'s",
    "'T",
    "'Re",
    "'ll",
    "'",
    "7",
    "12",
    "345",
    ".",
    "!?",
    "_",
    "é",
    "e\xCC\x81",
    "\xC5\xBF",
    "'\xC5\xBF",
    "\xC2\xA0",
    "\xE1\xA0\x8E",
    "\xE3\x80\x80",
    "\xE2\x80\xA8",
    "\xC2\x85",
    "\xE6\xB5\xB7",
    "\xF0\x9F\x99\x82",
    "\xD9\xA3",
    "\xE2\x85\xA3",
    "\xC2\xBD",
    "\xE0\xA4\xBF",
    "\xE2\x80\x8D",
};

static uint64_t seed = 7;

static uint32_t draw(uint32_t n) {
    return (uint32_t)(pgd_rng_next(&seed) % n);
}

static void random_text(pgd_text *t, uint32_t n) {
    pgd_text_clear(t);
    for (uint32_t i = 0; i < n; i++) {
        const char *s = scraps[draw(sizeof(scraps) / sizeof(scraps[0]))];
        assert_int_equal(pgd_text_add_str(t, pgd_str_of(s)), PGD_OK);
    }
}

static void fast_matchers_agree_with_pcre2(void **state) {
    (void)state;
    pgd_text t = {0};
    for (size_t p = 0; p < 3; p++) {
        pgd_text_fast fast = pgd_text_fast_find(pgd_str_of(patterns[p]));
        assert_non_null(fast);
        pgd_text_regex *regex = NULL;
        pgd_text_finder *finder = NULL;
        assert_int_equal(pgd_text_regex_create(pgd_str_of(patterns[p]), 0, "test", &regex), PGD_OK);
        assert_int_equal(pgd_text_finder_create(regex, 0, &finder), PGD_OK);
        for (uint32_t round = 0; round < 20000; round++) {
            random_text(&t, 1 + draw(12));
            pgd_str s = pgd_text_view(&t);
            pgd_text_finder_start(finder, s);
            for (size_t at = 0; at < s.len;) {
                size_t start = 0;
                size_t end = 0;
                int32_t found = 0;
                assert_int_equal(pgd_text_finder_next(finder, &start, &end, &found), PGD_OK);
                size_t mine = fast(s, at);
                if (!found || start != at || end != mine) {
                    fail_msg("pattern %zu, '%s' at %zu: PCRE2 %zu-%zu, fast -%zu", p, s.ptr, at,
                             start, end, mine);
                }
                at = mine;
            }
        }
        pgd_text_finder_destroy(finder);
        pgd_text_regex_destroy(regex);
    }
    assert_null(pgd_text_fast_find(PGD_STR("\\p{N}")));
    pgd_text_free(&t);
}

static void open_family(const char *name, pgd_text_tokenizer **out) {
    char path[600];
    snprintf(path, sizeof(path), "%s/tests/golden/tokenizers/%s", PGD_SOURCE_DIR, name);
    assert_int_equal(pgd_text_tokenizer_open(path, out), PGD_OK);
}

// Words with and without the memory of a long text.
static void remembered_words_are_the_same(void **state) {
    (void)state;
    static const char *const families[] = {"gpt2", "llama3", "llama2", "gemma"};
    for (size_t f = 0; f < sizeof(families) / sizeof(families[0]); f++) {
        enum { N_WORDS = 6000 };
        pgd_text_tokenizer *t = NULL;
        pgd_text_bpe_work *with = NULL;
        pgd_text_ids all = {0};
        pgd_text *words = pgd_mem_alloc(N_WORDS, sizeof(*words));
        open_family(families[f], &t);
        assert_int_equal(pgd_text_bpe_work_create(1 << 20, &with), PGD_OK);
        for (size_t i = 0; i < N_WORDS; i++) {
            pgd_text_bpe_work *without = NULL;
            pgd_text_ids one = {0};
            random_text(&words[i], 1 + draw(3) * draw(8));
            pgd_str word = pgd_text_view(&words[i]);
            size_t at = all.n;
            assert_int_equal(pgd_text_bpe_work_create(0, &without), PGD_OK);
            assert_int_equal(pgd_text_bpe_encode(t->bpe, word, with, &all), PGD_OK);
            assert_int_equal(pgd_text_bpe_encode(t->bpe, word, without, &one), PGD_OK);
            if (all.n - at != one.n ||
                (one.n > 0 && memcmp(all.ids + at, one.ids, one.n * sizeof(int32_t)) != 0)) {
                fail_msg("%s: the word '%s'", families[f], word.ptr);
            }
            pgd_text_ids_free(&one);
            pgd_text_bpe_work_destroy(without);
        }
        for (size_t i = 0; i < N_WORDS; i++) {
            pgd_text_free(&words[i]);
        }
        pgd_mem_free(words);
        pgd_text_ids_free(&all);
        pgd_text_bpe_work_destroy(with);
        pgd_text_tokenizer_close(t);
    }
}

static void a_hostile_pattern_ends_in_a_sentence(void **state) {
    (void)state;
    pgd_text_regex *regex = NULL;
    pgd_text_finder *finder = NULL;
    char text[64];
    memset(text, 'a', sizeof(text));
    assert_int_equal(pgd_text_regex_create(PGD_STR("(a+)+b|(a|aa)+c"), 0, "test", &regex), PGD_OK);
    assert_int_equal(pgd_text_finder_create(regex, sizeof(text), &finder), PGD_OK);
    pgd_text_finder_start(finder, (pgd_str){text, sizeof(text)});
    size_t start = 0;
    size_t end = 0;
    int32_t found = 0;
    assert_int_equal(pgd_text_finder_next(finder, &start, &end, &found), PGD_INVALID);
    pgd_text_finder_destroy(finder);
    pgd_text_regex_destroy(regex);
    assert_int_equal(pgd_text_regex_create(PGD_STR("(a"), 0, "test", &regex), PGD_INVALID);
    assert_int_equal(pgd_text_regex_create(PGD_STR("[a&&b]"), 0, "test", &regex), PGD_UNSUPPORTED);
    assert_int_equal(pgd_text_regex_create(PGD_STR("[a[b]]"), 0, "test", &regex), PGD_UNSUPPORTED);
}

static void ill_formed_text_is_replaced(void **state) {
    (void)state;
    static const struct {
        const char *bad;
        const char *good;
    } pairs[] = {
        {"a\xFF"
         "b",
         "a\xEF\xBF\xBD"
         "b"},
        {"\xE2\x82", "\xEF\xBF\xBD"},
        {"\xF0\x9F\x99x", "\xEF\xBF\xBDx"},
        {"\xED\xA0\x80", "\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBD"},
        {"\xC0\xAF", "\xEF\xBF\xBD\xEF\xBF\xBD"},
    };
    pgd_text_tokenizer *t = NULL;
    open_family("qwen2", &t);
    for (size_t i = 0; i < sizeof(pairs) / sizeof(pairs[0]); i++) {
        pgd_text_ids a = {0};
        pgd_text_ids b = {0};
        assert_int_equal(pgd_text_encode(t, pgd_str_of(pairs[i].bad), 0, &a), PGD_OK);
        assert_int_equal(pgd_text_encode(t, pgd_str_of(pairs[i].good), 0, &b), PGD_OK);
        assert_int_equal(a.n, b.n);
        assert_memory_equal(a.ids, b.ids, a.n * sizeof(int32_t));
        pgd_text_ids_free(&a);
        pgd_text_ids_free(&b);
    }
    pgd_text_tokenizer_close(t);
}

// ---- threads -----------------------------------------------------------------------------------

static const char shared_text[] = "The house, the houses, don't 12 \xE6\xB5\xB7 the house again.";

typedef struct {
    const pgd_text_tokenizer *t;
    pgd_text_ids want;
    uint32_t wrong[4];
} shared_work;

static void encode_many(void *arg, uint32_t worker, uint32_t n_workers) {
    shared_work *w = arg;
    (void)n_workers;
    for (uint32_t i = 0; i < 200; i++) {
        pgd_text_ids ids = {0};
        pgd_status status = pgd_text_encode(w->t, PGD_STR(shared_text), 0, &ids);
        w->wrong[worker] += status != PGD_OK || ids.n != w->want.n ||
                            memcmp(ids.ids, w->want.ids, ids.n * sizeof(int32_t)) != 0;
        pgd_text_ids_free(&ids);
    }
}

// A fresh tokenizer is shared at once, so what it remembers of words is found by several threads.
static void threads_share_a_tokenizer(void **state) {
    (void)state;
    pgd_text_tokenizer *first = NULL;
    pgd_text_tokenizer *t = NULL;
    pgd_team *team = NULL;
    open_family("qwen2", &first);
    open_family("qwen2", &t);
    shared_work w = {.t = t};
    assert_int_equal(pgd_text_encode(first, PGD_STR(shared_text), 0, &w.want), PGD_OK);
    assert_int_equal(pgd_team_create(4, &team), PGD_OK);
    pgd_team_run(team, encode_many, &w);
    pgd_team_destroy(team);
    for (uint32_t i = 0; i < 4; i++) {
        assert_int_equal(w.wrong[i], 0);
    }
    pgd_text_ids_free(&w.want);
    pgd_text_tokenizer_close(t);
    pgd_text_tokenizer_close(first);
}

// ---- damaged files -----------------------------------------------------------------------------

static pgd_status open_text(const char *json) {
    char folder[] = "/tmp/pgd-tokenizer-XXXXXX";
    char path[64];
    assert_non_null(mkdtemp(folder));
    snprintf(path, sizeof(path), "%s/tokenizer.json", folder);
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    fputs(json, f);
    fclose(f);
    pgd_text_tokenizer *t = NULL;
    pgd_status status = pgd_text_tokenizer_open(folder, &t);
    pgd_text_tokenizer_close(t);
    remove(path);
    remove(folder);
    return status;
}

#define MODEL \
    "\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0,\"b\":1,\"ab\":2},\"merges\":[\"a b\"]}"

static void damaged_files_are_refused(void **state) {
    (void)state;
    static const struct {
        const char *json;
        pgd_status status;
        const char *names; // part of the sentence
    } rows[] = {
        {"{" MODEL "}", PGD_OK, NULL},
        {"{", PGD_INVALID, "tokenizer.json"},
        {"[]", PGD_INVALID, "model"},
        {"{\"model\":{\"type\":\"Unigram\",\"vocab\":[]}}", PGD_UNSUPPORTED, "Unigram"},
        {"{\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0},\"merges\":[\"a b\"]}}", PGD_INVALID,
         "merge 0"},
        {"{\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":-1},\"merges\":[]}}", PGD_INVALID, "'a'"},
        {"{\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":4294967296},\"merges\":[]}}", PGD_INVALID,
         "'a'"},
        {"{\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0},\"merges\":[1]}}", PGD_INVALID,
         "merge 0"},
        {"{\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0},\"merges\":[],\"unk_token\":\"u\"}}",
         PGD_INVALID, "'u'"},
        {"{\"model\":{\"type\":\"BPE\",\"vocab\":{},\"merges\":[],\"dropout\":0.5}}",
         PGD_UNSUPPORTED, "dropout"},
        {"{\"added_tokens\":[{\"id\":5}]," MODEL "}", PGD_INVALID, "content"},
        {"{\"normalizer\":{\"type\":\"Nmt\"}," MODEL "}", PGD_UNSUPPORTED, "Nmt"},
        {"{\"pre_tokenizer\":{\"type\":\"Telepathy\"}," MODEL "}", PGD_UNSUPPORTED, "Telepathy"},
        {"{\"pre_tokenizer\":{\"type\":\"Split\",\"pattern\":{\"Regex\":\"(\"},"
         "\"behavior\":\"Isolated\"}," MODEL "}",
         PGD_INVALID, "'('"},
        {"{\"pre_tokenizer\":{\"type\":\"Split\",\"pattern\":{\"String\":\"\"},"
         "\"behavior\":\"Isolated\"}," MODEL "}",
         PGD_INVALID, "pattern"},
        {"{\"post_processor\":{\"type\":\"TemplateProcessing\",\"single\":[{\"SpecialToken\":"
         "{\"id\":\"x\"}}],\"special_tokens\":{\"x\":{\"ids\":[9]}}}," MODEL "}",
         PGD_INVALID, "id 9"},
        {"{\"decoder\":{\"type\":\"CTC\"}," MODEL "}", PGD_UNSUPPORTED, "CTC"},
        {"{\"decoder\":{\"type\":\"Strip\",\"content\":\" \",\"start\":-1,\"stop\":0}," MODEL "}",
         PGD_INVALID, "Strip"},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        pgd_status status = open_text(rows[i].json);
        if (status != rows[i].status ||
            (rows[i].names != NULL && strstr(pgd_fail_text(status), rows[i].names) == NULL)) {
            fail_msg("%s: status %d, '%s'", rows[i].json, status, pgd_fail_text(status));
        }
    }
    pgd_text_tokenizer *t = NULL;
    assert_int_equal(pgd_text_tokenizer_open("/nowhere", &t), PGD_NOT_FOUND);
}

// ---- failing allocations -----------------------------------------------------------------------

static pgd_status everything(const char *folder) {
    static const char text[] = "Hello <|plain|>  Ane\xCC\x81 w\xC3\xB6rld 12345\xFF\n\n'LL "
                               "pagodahousepagodahousepagodahousepagodahouse";
    pgd_text_tokenizer *t = NULL;
    pgd_text_ids ids = {0};
    pgd_text out = {0};
    pgd_text_stream *s = NULL;
    pgd_status status = pgd_text_tokenizer_open(folder, &t);
    if (status == PGD_OK) {
        status = pgd_text_encode(t, PGD_STR(text), PGD_TEXT_ADD_SPECIAL, &ids);
    }
    if (status == PGD_OK) {
        status = pgd_text_decode(t, ids.ids, ids.n, 0, &out);
    }
    if (status == PGD_OK) {
        status = pgd_text_stream_create(t, ids.ids, 2, 1, &s);
    }
    for (size_t i = 2; i < ids.n && status == PGD_OK; i++) {
        status = pgd_text_stream_push(s, ids.ids[i], &out);
    }
    if (status == PGD_OK) {
        status = pgd_text_stream_finish(s, &out);
    }
    pgd_text_stream_destroy(s);
    pgd_text_free(&out);
    pgd_text_ids_free(&ids);
    pgd_text_tokenizer_close(t);
    return status;
}

static void failing_allocations_leak_nothing(void **state) {
    (void)state;
    static const char *const families[] = {"llama2-metaspace", "qwen2", "deepseek"};
    for (size_t f = 0; f < 3; f++) {
        char path[600];
        snprintf(path, sizeof(path), "%s/tests/golden/tokenizers/%s", PGD_SOURCE_DIR, families[f]);
        uint64_t failed = 0;
        for (uint64_t n = 1;; n++) {
            pgd_mem_fail_nth(n);
            pgd_status status = everything(path);
            pgd_mem_fail_nth(0);
            assert_int_equal(pgd_mem_live(), 0);
            if (status == PGD_OK) {
                break;
            }
            assert_int_equal(status, PGD_OUT_OF_MEMORY);
            failed++;
        }
        assert_true(failed > 20);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(fast_matchers_agree_with_pcre2),
        cmocka_unit_test(remembered_words_are_the_same),
        cmocka_unit_test(a_hostile_pattern_ends_in_a_sentence),
        cmocka_unit_test(ill_formed_text_is_replaced),
        cmocka_unit_test(threads_share_a_tokenizer),
        cmocka_unit_test(damaged_files_are_refused),
        cmocka_unit_test(failing_allocations_leak_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
