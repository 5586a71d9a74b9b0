// Every golden case of tests/golden/tokenizers: ids, decoded text, and streaming against decode.
// The cases were made with the tokenizers library (tools/golden).
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/fail.h"
#include "base/json.h"
#include "base/mem.h"
#include "text/stream.h"
#include "text/test_files.h"
#include "text/tokenizer.h"

static const char *const families[] = {"gpt2",   "llama3",           "qwen2", "o200k", "deepseek",
                                       "llama2", "llama2-metaspace", "gemma"};

typedef struct {
    pgd_text_tokenizer *t;
    const char *family;
    uint32_t line;
    uint32_t wrong;
    uint32_t done;
} golden;

static void complain(golden *g, const char *what, pgd_str text, pgd_str want, pgd_str got) {
    if (g->wrong++ < 5) {
        print_message("%s line %u: %s of '%.*s'\n  want '%.*s'\n  got  '%.*s'\n", g->family,
                      g->line, what, (int)text.len, text.ptr, (int)want.len, want.ptr, (int)got.len,
                      got.ptr ? got.ptr : "");
    }
}

static pgd_str show(pgd_text *t, const pgd_text_ids *ids) {
    for (size_t i = 0; i < ids->n; i++) {
        assert_int_equal(pgd_text_format(t, "%d ", ids->ids[i]), PGD_OK);
    }
    return pgd_text_view(t);
}

static void ids_of(const pgd_json *json, pgd_text_ids *out) {
    assert_true(pgd_json_is(json, PGD_JSON_ARRAY));
    for (uint32_t i = 0; i < json->n; i++) {
        int64_t id = -1;
        assert_true(pgd_json_to_i64(&json->items[i], &id));
        assert_int_equal(pgd_text_ids_add(out, (int32_t)id), PGD_OK);
    }
}

static void check_ids(golden *g, const pgd_json *row, const char *key, uint32_t flags) {
    pgd_str text = {0};
    assert_true(pgd_json_to_str(pgd_json_get(row, "text"), &text));
    pgd_text_ids want = {0};
    pgd_text_ids got = {0};
    ids_of(pgd_json_get(row, key), &want);
    assert_int_equal(pgd_text_encode(g->t, text, flags, &got), PGD_OK);
    if (want.n != got.n || (want.n > 0 && memcmp(want.ids, got.ids, want.n * sizeof(int32_t)))) {
        pgd_text a = {0};
        pgd_text b = {0};
        complain(g, key, text, show(&a, &want), show(&b, &got));
        pgd_text_free(&a);
        pgd_text_free(&b);
    }
    pgd_text_ids_free(&want);
    pgd_text_ids_free(&got);
}

// The text of ids behind the first n_prompt, piece by piece.
static void stream_all(const pgd_text_tokenizer *t, const pgd_text_ids *ids, size_t n_prompt,
                       int32_t skip, pgd_text *out) {
    pgd_text_stream *s = NULL;
    assert_int_equal(pgd_text_stream_create(t, ids->ids, n_prompt, skip, &s), PGD_OK);
    for (size_t i = n_prompt; i < ids->n; i++) {
        size_t old = out->len;
        assert_int_equal(pgd_text_stream_push(s, ids->ids[i], out), PGD_OK);
        assert_true(out->len == old || pgd_utf8_valid((pgd_str){out->ptr + old, out->len - old}));
    }
    assert_int_equal(pgd_text_stream_finish(s, out), PGD_OK);
    pgd_text_stream_destroy(s);
}

static void check_decode(golden *g, const pgd_json *row, const char *key, int32_t skip) {
    pgd_str want = {0};
    assert_true(pgd_json_to_str(pgd_json_get(row, key), &want));
    pgd_text_ids ids = {0};
    ids_of(pgd_json_get(row, "ids_special"), &ids);
    pgd_text got = {0};
    assert_int_equal(pgd_text_decode(g->t, ids.ids, ids.n, skip, &got), PGD_OK);
    if (!pgd_str_equal(want, pgd_text_view(&got))) {
        complain(g, key, PGD_STR("its ids"), want, pgd_text_view(&got));
    }
    pgd_text_clear(&got);
    stream_all(g->t, &ids, 0, skip, &got);
    if (!pgd_str_equal(want, pgd_text_view(&got))) {
        complain(g, "streaming", PGD_STR("its ids"), want, pgd_text_view(&got));
    }
    pgd_text_free(&got);
    pgd_text_ids_free(&ids);
}

static void check_case(void *arg, uint32_t line, const pgd_json *row) {
    golden *g = arg;
    g->line = line;
    check_ids(g, row, "ids", 0);
    check_ids(g, row, "ids_special", PGD_TEXT_ADD_SPECIAL);
    check_decode(g, row, "decoded", 0);
    check_decode(g, row, "decoded_skip", 1);
    g->done++;
}

// A stream behind a prompt: `text` is what decode() has behind the text of the prompt.
static void check_stream(void *arg, uint32_t line, const pgd_json *row) {
    golden *g = arg;
    g->line = line;
    int32_t skip = 0;
    pgd_str want = {0};
    assert_true(pgd_json_to_bool(pgd_json_get(row, "skip"), &skip));
    assert_true(pgd_json_to_str(pgd_json_get(row, "text"), &want));
    pgd_text_ids ids = {0};
    ids_of(pgd_json_get(row, "prompt"), &ids);
    size_t n_prompt = ids.n;
    ids_of(pgd_json_get(row, "ids"), &ids);
    pgd_text whole = {0};
    pgd_text prompt = {0};
    pgd_text got = {0};
    assert_int_equal(pgd_text_decode(g->t, ids.ids, ids.n, skip, &whole), PGD_OK);
    assert_int_equal(pgd_text_decode(g->t, ids.ids, n_prompt, skip, &prompt), PGD_OK);
    stream_all(g->t, &ids, n_prompt, skip, &got);
    pgd_str rest = pgd_text_view(&whole);
    if (pgd_str_starts(rest, pgd_text_view(&prompt))) {
        if (prompt.len > 0) {
            rest.ptr += prompt.len;
            rest.len -= prompt.len;
        }
        if (!pgd_str_equal(rest, pgd_text_view(&got))) {
            complain(g, "stream against decode", PGD_STR("its ids"), rest, pgd_text_view(&got));
        }
    }
    // the library's own stream never completes a run that ends in a broken character
    if (n_prompt == 0 && !pgd_str_equal(want, pgd_text_view(&whole))) {
        complain(g, "decode", PGD_STR("its ids"), want, pgd_text_view(&whole));
    }
    pgd_text_free(&whole);
    pgd_text_free(&prompt);
    pgd_text_free(&got);
    pgd_text_ids_free(&ids);
    g->done++;
}

static void run_family(golden *g, const char *file, test_line fn) {
    char path[600];
    snprintf(path, sizeof(path), "%s/tests/golden/tokenizers/%s", PGD_SOURCE_DIR, g->family);
    pgd_status status = pgd_text_tokenizer_open(path, &g->t);
    if (status != PGD_OK) {
        fail_msg("%s", pgd_fail_text(status));
    }
    snprintf(path, sizeof(path), "%s/tests/golden/tokenizers/%s/%s", PGD_SOURCE_DIR, g->family,
             file);
    test_each_line(path, fn, g);
    pgd_text_tokenizer_close(g->t);
    print_message("%s %s: %u cases, %u wrong\n", g->family, file, g->done, g->wrong);
    assert_true(g->done > 0);
}

static void encodes_and_decodes(void **state) {
    (void)state;
    uint32_t wrong = 0;
    for (size_t i = 0; i < sizeof(families) / sizeof(families[0]); i++) {
        golden g = {.family = families[i]};
        run_family(&g, "cases.jsonl", check_case);
        wrong += g.wrong;
    }
    assert_int_equal(wrong, 0);
}

static void streams(void **state) {
    (void)state;
    uint32_t wrong = 0;
    for (size_t i = 0; i < sizeof(families) / sizeof(families[0]); i++) {
        golden g = {.family = families[i]};
        run_family(&g, "stream.jsonl", check_stream);
        wrong += g.wrong;
    }
    assert_int_equal(wrong, 0);
}

static void nothing_leaks(void **state) {
    (void)state;
    assert_int_equal(pgd_mem_live(), 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(encodes_and_decodes),
        cmocka_unit_test(streams),
        cmocka_unit_test(nothing_leaks),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
