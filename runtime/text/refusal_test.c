// What a tokenizer file may hold: every part and option that is known, and a sentence for all else.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/fail.h"
#include "base/mem.h"
#include "text/parts.h"
#include "text/stream.h"

#define VOCAB "\"vocab\":{\"a\":0,\"b\":1,\"ab\":2,\"\xE2\x96\x81\":3,\"<unk>\":4},"
#define MODEL "\"model\":{\"type\":\"BPE\"," VOCAB "\"merges\":[\"a b\"]}"
#define LONG                                                                                    \
    "long long long long long long long long long long long long long long long long long long" \
    "long long long long long long long long long long long long long long long long long long"

typedef struct {
    const char *json;
    pgd_status status;
    const char *names; // part of the sentence
} file_row;

static const file_row rows[] = {
    // the model
    {"{\"model\":{\"type\":\"BPE\",\"merges\":[]}}", PGD_INVALID, "no vocab"},
    {"{\"model\":{\"type\":\"BPE\"," VOCAB "\"merges\":{}}}", PGD_INVALID, "no list of merges"},
    {"{\"model\":{\"type\":\"BPE\"," VOCAB "\"merges\":[\"ab\"]}}", PGD_INVALID, "merge 0"},
    {"{\"model\":{\"type\":\"BPE\"," VOCAB "\"merges\":[\" b\"]}}", PGD_INVALID, "merge 0"},
    {"{\"model\":{\"type\":\"BPE\"," VOCAB "\"merges\":[[\"a\"]]}}", PGD_INVALID, "merge 0"},
    {"{\"model\":{\"type\":\"BPE\"," VOCAB "\"merges\":[[\"a\",1]]}}", PGD_INVALID, "merge 0"},
    {"{\"model\":{\"type\":\"BPE\"," VOCAB "\"merges\":[[1,\"a\"]]}}", PGD_INVALID, "merge 0"},
    {"{\"model\":{\"type\":\"BPE\"," VOCAB "\"merges\":[\"a a\"]}}", PGD_INVALID, "vocabulary"},
    {"{\"model\":{\"type\":\"BPE\"," VOCAB "\"merges\":[\"q b\"]}}", PGD_INVALID, "'q' and 'b'"},
    {"{\"model\":{\"type\":\"BPE\"," VOCAB "\"merges\":[[\"" LONG "\",\"" LONG "\"]]}}",
     PGD_INVALID, "vocabulary"},
    {"{\"model\":{\"type\":\"BPE\"," VOCAB "\"merges\":[\"a b\",[\"a\",\"b\"]]}}", PGD_OK, NULL},
    {"{\"model\":{\"type\":\"BPE\"," VOCAB "\"merges\":[],\"unk_token\":\"" LONG "\"}}",
     PGD_INVALID, "unk_token 'long"},
    {"{\"model\":{\"type\":\"BPE\"," VOCAB "\"merges\":[],\"dropout\":0.0}}", PGD_OK, NULL},
    {"{\"model\":{\"type\":\"" LONG "\"}}", PGD_UNSUPPORTED, "model long"},
    {"{\"model\":{\"vocab\":{}}}", PGD_INVALID, "without a type"},
    {"{\"model\":{\"type\":\"BPE\",\"vocab\":{\"" LONG "\":16777216},\"merges\":[]}}", PGD_INVALID,
     "'long"},
    // added tokens
    {"{\"added_tokens\":{}," MODEL "}", PGD_OK, NULL},
    {"{\"added_tokens\":[{\"id\":-1,\"content\":\"x\"}]," MODEL "}", PGD_INVALID, "'x'"},
    {"{\"added_tokens\":[{\"id\":7,\"content\":\"\"}]," MODEL "}", PGD_OK, NULL},
    {"{\"added_tokens\":[{\"id\":7,\"content\":\"x\"},{\"id\":8,\"content\":\"x\"}]," MODEL "}",
     PGD_OK, NULL},
    {"{\"normalizer\":{\"type\":\"NFC\"},\"added_tokens\":[{\"id\":7,\"content\":\"\","
     "\"normalized\":true}]," MODEL "}",
     PGD_OK, NULL},
    // normalizers
    {"{\"normalizer\":null," MODEL "}", PGD_OK, NULL},
    {"{\"normalizer\":{}," MODEL "}", PGD_INVALID, "normalizer without a type"},
    {"{\"normalizer\":{\"type\":\"Sequence\"}," MODEL "}", PGD_INVALID, "normalizers"},
    {"{\"normalizer\":{\"type\":\"Sequence\",\"normalizers\":[]}," MODEL "}", PGD_OK, NULL},
    {"{\"normalizer\":{\"type\":\"Sequence\",\"normalizers\":[{\"type\":\"Nmt\"}]}," MODEL "}",
     PGD_UNSUPPORTED, "Nmt"},
    {"{\"normalizer\":{\"type\":\"Replace\",\"pattern\":{\"String\":\"\"}}," MODEL "}", PGD_INVALID,
     "Replace"},
    {"{\"normalizer\":{\"type\":\"Replace\",\"pattern\":{\"Regex\":\"[\"}}," MODEL "}", PGD_INVALID,
     "'['"},
    // pre-tokenizers
    {"{\"pre_tokenizer\":{}," MODEL "}", PGD_INVALID, "pre-tokenizer without a type"},
    {"{\"pre_tokenizer\":{\"type\":\"Sequence\"}," MODEL "}", PGD_INVALID, "pretokenizers"},
    {"{\"pre_tokenizer\":{\"type\":\"Split\",\"pattern\":{\"String\":\"a\"}}," MODEL "}",
     PGD_INVALID, "behavior ''"},
    {"{\"pre_tokenizer\":{\"type\":\"Split\",\"behavior\":\"" LONG "\"}," MODEL "}", PGD_INVALID,
     "behavior 'long"},
    {"{\"pre_tokenizer\":{\"type\":\"Punctuation\",\"behavior\":\"Sideways\"}," MODEL "}",
     PGD_INVALID, "'Sideways'"},
    {"{\"pre_tokenizer\":{\"type\":\"Punctuation\",\"behavior\":\"Contiguous\"}," MODEL "}", PGD_OK,
     NULL},
    {"{\"pre_tokenizer\":{\"type\":\"Metaspace\"}," MODEL "}", PGD_INVALID, "one character"},
    {"{\"pre_tokenizer\":{\"type\":\"Metaspace\",\"replacement\":\"__\"}," MODEL "}", PGD_INVALID,
     "one character"},
    {"{\"pre_tokenizer\":{\"type\":\"Metaspace\",\"replacement\":\"_\",\"prepend_scheme\":"
     "\"twice\"}," MODEL "}",
     PGD_INVALID, "'twice'"},
    {"{\"pre_tokenizer\":{\"type\":\"Metaspace\",\"replacement\":\"_\",\"prepend_scheme\":\"" LONG
     "\"}," MODEL "}",
     PGD_INVALID, "'long"},
    {"{\"pre_tokenizer\":{\"type\":\"Metaspace\",\"replacement\":\"_\",\"prepend_scheme\":"
     "\"always\"}," MODEL "}",
     PGD_OK, NULL},
    {"{\"pre_tokenizer\":{\"type\":\"Metaspace\",\"replacement\":\"_\",\"prepend_scheme\":"
     "\"never\",\"split\":false}," MODEL "}",
     PGD_OK, NULL},
    // post-processors
    {"{\"post_processor\":{}," MODEL "}", PGD_INVALID, "post-processor without a type"},
    {"{\"post_processor\":{\"type\":\"TemplateProcessing\"}," MODEL "}", PGD_INVALID, "single"},
    {"{\"post_processor\":{\"type\":\"TemplateProcessing\",\"single\":[{\"SpecialToken\":{\"id\":"
     "\"" LONG "\"}}]}," MODEL "}",
     PGD_INVALID, "'long"},
    {"{\"post_processor\":{\"type\":\"TemplateProcessing\",\"single\":[{\"SpecialToken\":{\"id\":"
     "\"y\"}}],\"special_tokens\":{\"x\":{\"ids\":[0]},\"y\":{\"ids\":[1,2]}}}," MODEL "}",
     PGD_OK, NULL},
    {"{\"post_processor\":{\"type\":\"RobertaProcessing\",\"sep\":[\"a\",0]}," MODEL "}",
     PGD_INVALID, "cls"},
    {"{\"post_processor\":{\"type\":\"BertProcessing\",\"sep\":[\"a\",0],\"cls\":[\"a\"]}," MODEL
     "}",
     PGD_INVALID, "cls"},
    {"{\"post_processor\":{\"type\":\"BertProcessing\",\"sep\":[\"a\",9],\"cls\":[\"a\",0]}," MODEL
     "}",
     PGD_INVALID, "sep"},
    {"{\"post_processor\":{\"type\":\"Sequence\"}," MODEL "}", PGD_INVALID, "processors"},
    // decoders
    {"{\"decoder\":{}," MODEL "}", PGD_INVALID, "decoder without a type"},
    {"{\"decoder\":{\"type\":\"Sequence\"}," MODEL "}", PGD_INVALID, "decoders"},
    {"{\"decoder\":{\"type\":\"Strip\",\"content\":\"xy\",\"start\":0,\"stop\":0}," MODEL "}",
     PGD_INVALID, "Strip"},
    {"{\"decoder\":{\"type\":\"Strip\",\"content\":\"\",\"start\":0,\"stop\":0}," MODEL "}",
     PGD_INVALID, "Strip"},
    {"{\"decoder\":{\"type\":\"Strip\",\"content\":\"x\",\"start\":0,\"stop\":-1}," MODEL "}",
     PGD_INVALID, "Strip"},
    {"{\"decoder\":{\"type\":\"Strip\",\"content\":\"x\",\"start\":0}," MODEL "}", PGD_INVALID,
     "Strip"},
    {"{\"decoder\":{\"type\":\"Replace\",\"pattern\":{\"String\":\"a\"}}," MODEL "}", PGD_OK, NULL},
    {"{\"decoder\":{\"type\":\"Metaspace\",\"replacement\":\"\"}," MODEL "}", PGD_INVALID,
     "Metaspace"},
    {"{\"decoder\":{\"type\":\"Metaspace\",\"replacement\":\"_\",\"prepend_scheme\":\"never\"}"
     "," MODEL "}",
     PGD_OK, NULL},
    {"{\"decoder\":{\"type\":\"Metaspace\",\"replacement\":\"_\"}," MODEL "}", PGD_OK, NULL},
};

static pgd_status try_file(const char *json, pgd_status want, const char *names) {
    pgd_text_tokenizer *t = NULL;
    pgd_status status = pgd_text_tokenizer_parse(pgd_str_of(json), (pgd_str){0}, &t);
    if (status != want || (names != NULL && strstr(pgd_fail_text(status), names) == NULL)) {
        fail_msg("%s: status %d, '%s'", json, status, pgd_fail_text(status));
    }
    pgd_text_tokenizer_close(t);
    return status;
}

static void files_are_taken_or_refused(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        try_file(rows[i].json, rows[i].status, rows[i].names);
        assert_int_equal(pgd_mem_live(), 0);
    }
}

// "{PART: n sequences in each other around n_items of item, MODEL}"
static pgd_status nested(const char *part, const char *list, const char *item, int n_levels,
                         int n_items) {
    pgd_text json = {0};
    pgd_status ok = pgd_text_format(&json, "{\"%s\":", part);
    for (int i = 0; i < n_levels; i++) {
        ok |= pgd_text_format(&json, "{\"type\":\"Sequence\",\"%s\":[", list);
    }
    for (int i = 0; i < n_items; i++) {
        ok |= pgd_text_format(&json, "%s%s", i == 0 ? "" : ",", item);
    }
    for (int i = 0; i < n_levels; i++) {
        ok |= pgd_text_format(&json, "]}");
    }
    ok |= pgd_text_format(&json, "," MODEL "}");
    assert_int_equal(ok, PGD_OK);
    pgd_text_tokenizer *t = NULL;
    pgd_status status = pgd_text_tokenizer_parse(pgd_text_view(&json), (pgd_str){0}, &t);
    pgd_text_tokenizer_close(t);
    pgd_text_free(&json);
    return status;
}

static void depth_and_number_of_parts_have_limits(void **state) {
    (void)state;
    static const struct {
        const char *part, *list, *item;
        int n_most;
    } parts[] = {
        {"normalizer", "normalizers", "{\"type\":\"NFC\"}", 32},
        {"pre_tokenizer", "pretokenizers", "{\"type\":\"Digits\"}", 64},
        {"decoder", "decoders", "{\"type\":\"Fuse\"}", 32},
    };
    for (size_t i = 0; i < sizeof(parts) / sizeof(parts[0]); i++) {
        const char *part = parts[i].part;
        const char *list = parts[i].list;
        int n = parts[i].n_most;
        assert_int_equal(nested(part, list, parts[i].item, 8, 1), PGD_OK);
        assert_int_equal(nested(part, list, parts[i].item, 9, 1), PGD_INVALID);
        assert_int_equal(nested(part, list, parts[i].item, 60, 1), PGD_INVALID);
        assert_int_equal(nested(part, list, parts[i].item, 1, n), PGD_OK);
        assert_int_equal(nested(part, list, parts[i].item, 1, n + 1), PGD_UNSUPPORTED);
    }
    static const char byte_level[] = "{\"type\":\"ByteLevel\",\"add_prefix_space\":true}";
    static const char metaspace[] = "{\"type\":\"Metaspace\",\"replacement\":\"_\"}";
    for (int n = 20; n < 40; n++) { // two or three steps each
        assert_int_equal(nested("pre_tokenizer", "pretokenizers", byte_level, 1, n),
                         n * 3 <= 64 ? PGD_OK : PGD_UNSUPPORTED);
        assert_int_equal(nested("pre_tokenizer", "pretokenizers", metaspace, 1, n),
                         n * 2 <= 64 ? PGD_OK : PGD_UNSUPPORTED);
    }
    assert_int_equal(nested("post_processor", "processors", "{\"type\":\"ByteLevel\"}", 8, 1),
                     PGD_OK);
    assert_int_equal(nested("post_processor", "processors", "{\"type\":\"ByteLevel\"}", 60, 1),
                     PGD_INVALID);
    assert_int_equal(pgd_mem_live(), 0);
}

static void the_longest_added_token_has_a_limit(void **state) {
    (void)state;
    for (int n = 1024; n <= 1025; n++) {
        pgd_text json = {0};
        char *content = pgd_mem_alloc((size_t)n + 1, 1);
        memset(content, 'x', (size_t)n);
        assert_int_equal(
            pgd_text_format(&json, "{\"added_tokens\":[{\"id\":7,\"content\":\"%s\"}]," MODEL "}",
                            content),
            PGD_OK);
        try_file(json.ptr, n <= 1024 ? PGD_OK : PGD_UNSUPPORTED, n <= 1024 ? NULL : "1025 bytes");
        pgd_mem_free(content);
        pgd_text_free(&json);
    }
}

// ---- patterns ----------------------------------------------------------------------------------

static pgd_status first_match(const char *pattern, const char *text, size_t *start, size_t *end) {
    pgd_text_regex *regex = NULL;
    pgd_text_finder *finder = NULL;
    int32_t found = 0;
    pgd_status status = pgd_text_regex_create(pgd_str_of(pattern), 0, "test", &regex);
    *start = *end = 99;
    if (status == PGD_OK) {
        assert_int_equal(pgd_text_finder_create(regex, strlen(text), &finder), PGD_OK);
        pgd_text_finder_start(finder, pgd_str_of(text));
        status = pgd_text_finder_next(finder, start, end, &found);
        assert_int_equal(found, status == PGD_OK && *start != 99);
    }
    pgd_text_finder_destroy(finder);
    pgd_text_regex_destroy(regex);
    return status;
}

// Oniguruma's meaning of what PCRE2 reads otherwise.
static void patterns_mean_what_oniguruma_means(void **state) {
    (void)state;
    static const struct {
        const char *pattern, *text;
        size_t start, end; // 99 = none
    } hits[] = {
        {"\\h+", "xyzBEEFq", 3, 7},
        {"\\H+", "beefxyz", 4, 7},
        {"[\\h]+", "xyz09q", 3, 5},
        {"\\w+", "-e\xCC\x81_7-", 1, 6},
        {"\\W", "ab-", 2, 3},
        {"[\\w-]+", " a-b ", 1, 4},
        {"\\s", "a\xE1\xA0\x8E ", 4, 5},
        {"\\S+", "  ab", 2, 4},
        {"[^\\S]", "ab c", 2, 3},
        {"[]a]+", "x]a]", 1, 4},
        {"[^]a]+", "]ax]", 2, 3},
        {"[[:digit:]a]+", "x12a", 1, 4},
        {"[a&b]+", "x&b", 1, 3},
        {"\\[x", "a[x", 1, 3},
        {"^b$", "a\nb\nc", 2, 3},
        {"q", "abc", 99, 99},
    };
    size_t start = 0;
    size_t end = 0;
    for (size_t i = 0; i < sizeof(hits) / sizeof(hits[0]); i++) {
        assert_int_equal(first_match(hits[i].pattern, hits[i].text, &start, &end), PGD_OK);
        if (start != hits[i].start || end != hits[i].end) {
            fail_msg("'%s' in '%s': %zu-%zu", hits[i].pattern, hits[i].text, start, end);
        }
    }
    assert_int_equal(first_match("[\\W]", "a", &start, &end), PGD_UNSUPPORTED);
    assert_int_equal(first_match("[\\H]", "a", &start, &end), PGD_UNSUPPORTED);
    assert_int_equal(first_match("[a[b", "a", &start, &end), PGD_UNSUPPORTED);
    assert_int_equal(first_match("[a[", "a", &start, &end), PGD_INVALID);
    assert_int_equal(first_match("[a&", "a", &start, &end), PGD_INVALID);
    assert_int_equal(first_match("[", "a", &start, &end), PGD_INVALID);
    assert_int_equal(first_match("[^", "a", &start, &end), PGD_INVALID);
    assert_int_equal(first_match("a\\", "a", &start, &end), PGD_INVALID);
    assert_int_equal(first_match("[[:x", "a", &start, &end), PGD_INVALID);
    assert_int_equal(first_match("(" LONG, "a", &start, &end), PGD_INVALID);
    assert_int_equal(first_match("\\C", "a", &start, &end), PGD_INVALID);
}

static void patterns_have_a_length(void **state) {
    (void)state;
    enum { MOST = 1 << 16 };
    pgd_text_regex *regex = NULL;
    char *text = pgd_mem_alloc(MOST + 1, 1);
    memset(text, 'a', MOST + 1);
    assert_int_equal(pgd_text_regex_create((pgd_str){text, MOST}, 1, "test", &regex), PGD_OK);
    pgd_text_regex_destroy(regex);
    assert_int_equal(pgd_text_regex_create((pgd_str){text, MOST + 1}, 1, "test", &regex),
                     PGD_INVALID);
    pgd_mem_free(text);
}

// ---- beginnings of characters ------------------------------------------------------------------

// How many bytes at the end may still become a character: table 3-7 of the Unicode standard.
static void open_tails_are_recognised(void **state) {
    (void)state;
    static const struct {
        const char *text;
        size_t open;
    } tails[] = {
        {"", 0},
        {"a", 0},
        {"\xC2", 1},
        {"\xC1", 0},
        {"\xC2\x80", 0},
        {"\xE0", 1},
        {"\xE0\xA0", 2},
        {"\xE0\x9F", 0},
        {"\xE0\xC0", 0},
        {"\xED\x9F", 2},
        {"\xED\xA0", 0},
        {"\xED\x7F", 0},
        {"\xEE\x80", 2},
        {"\xEE\x7F", 0},
        {"\xEE\xC2", 1},
        {"\xF0\x90\x80", 3},
        {"\xF0\x8F\x80", 0},
        {"\xF0\xC0", 0},
        {"\xF1\x80", 2},
        {"\xF4\x8F\xBF", 3},
        {"\xF4\x90\x80", 0},
        {"\xF4\x7F", 0},
        {"\xF5", 0},
        {"\xF5\x80", 0},
        {"\x80\x80\x80", 0},
        {"a\xE2\x82\xAC", 0},
        {"\xFF", 0},
    };
    for (size_t i = 0; i < sizeof(tails) / sizeof(tails[0]); i++) {
        if (pgd_text_open_tail(pgd_str_of(tails[i].text)) != tails[i].open) {
            fail_msg("row %zu: %zu", i, pgd_text_open_tail(pgd_str_of(tails[i].text)));
        }
    }
    assert_int_equal(pgd_text_class(0x110000), 0);
    assert_int_equal(pgd_text_class(PGD_UTF8_BAD), 0);
    assert_int_equal(pgd_text_class(0x10FFFF), 0);
}

// ---- questions and odd tokens ------------------------------------------------------------------

static void questions_have_answers_for_any_id(void **state) {
    (void)state;
    pgd_text_tokenizer *t = NULL;
    assert_int_equal(
        pgd_text_tokenizer_parse(
            PGD_STR("{\"added_tokens\":[{\"id\":9,\"content\":\"</s>\",\"special\":true}]," MODEL
                    "}"),
            PGD_STR("{\"eos_token\":{\"content\":\"</s>\"},\"bos_token\":\"none\","
                    "\"add_eos_token\":true,\"add_bos_token\":true}"),
            &t),
        PGD_OK);
    assert_int_equal(pgd_text_eos(t), 9);
    assert_int_equal(pgd_text_bos(t), -1);
    assert_int_equal(pgd_text_vocab_size(t), 10);
    assert_int_equal(pgd_text_token_is_special(t, 9), 1);
    assert_int_equal(pgd_text_token_is_special(t, 2), 0);
    assert_int_equal(pgd_text_token_is_special(t, -1), 0);
    assert_int_equal(pgd_text_token_is_special(t, 10), 0);
    assert_int_equal(pgd_text_token_content(t, -1).len, 0);
    assert_int_equal(pgd_text_token_content(t, 10).len, 0);
    assert_int_equal(pgd_text_token_content(t, 7).len, 0);
    assert_true(pgd_str_is(pgd_text_token_content(t, 2), "ab"));
    assert_int_equal(pgd_text_token_id(t, PGD_STR("ab")), 2);
    assert_int_equal(pgd_text_token_id(t, PGD_STR("ba")), -1);
    pgd_text_ids ids = {0};
    assert_int_equal(pgd_text_encode(t, PGD_STR("ab"), PGD_TEXT_ADD_SPECIAL, &ids), PGD_OK);
    assert_int_equal(ids.n, 2); // the end that tokenizer_config.json asks for
    assert_int_equal(ids.ids[1], 9);
    static const int32_t odd[] = {-1, 2, 10, 7, INT32_MAX, 0};
    pgd_text out = {0};
    assert_int_equal(pgd_text_decode(t, odd, 6, 0, &out), PGD_OK);
    assert_string_equal(out.ptr, "ab a");
    pgd_text_free(&out);
    pgd_text_ids_free(&ids);
    pgd_text_tokenizer_close(t);
    assert_int_equal(pgd_text_tokenizer_parse(PGD_STR("{" MODEL "}"), PGD_STR("{"), &t),
                     PGD_INVALID);
    assert_null(t);
}

// What counts as a byte token; hexadecimal digits of either case, and "+" as the library has it.
static void byte_tokens_are_recognised(void **state) {
    (void)state;
    static const char json[] =
        "{\"decoder\":{\"type\":\"ByteFallback\"},\"model\":{\"type\":\"BPE\",\"vocab\":{"
        "\"<0x4a>\":0,\"<0x4B>\":1,\"<0x+9>\":2,\"<0xG1>\":3,\"<0x1G>\":4,\"<0x41)\":5,"
        "\"(0x41>\":6,\"<0x411>\":7,\"<0x:1>\":8,\"<0x/1>\":9,\"<0x1`>\":10,\"<0xFF>\":11},"
        "\"merges\":[]}}";
    static const char *const want[] = {"J",      "K",      "\t",     "<0xG1>",
                                       "<0x1G>", "<0x41)", "(0x41>", "<0x411>",
                                       "<0x:1>", "<0x/1>", "<0x1`>", "\xEF\xBF\xBD"};
    pgd_text_tokenizer *t = NULL;
    assert_int_equal(pgd_text_tokenizer_parse(PGD_STR(json), (pgd_str){0}, &t), PGD_OK);
    for (int32_t id = 0; id < 12; id++) {
        pgd_text out = {0};
        assert_int_equal(pgd_text_decode(t, &id, 1, 0, &out), PGD_OK);
        assert_string_equal(out.ptr, want[id]);
        pgd_text_free(&out);
    }
    pgd_text_tokenizer_close(t);
}

static void expect_normalized(const char *type, const char *in, const char *want) {
    pgd_text json = {0};
    pgd_json_doc *doc = NULL;
    pgd_text_normalizer *n = NULL;
    pgd_text_work w = {.text = pgd_str_of(in)};
    assert_int_equal(pgd_text_format(&json, "{%s}", type), PGD_OK);
    assert_int_equal(pgd_json_parse(pgd_text_view(&json), "test", 0, &doc), PGD_OK);
    assert_int_equal(pgd_text_normalizer_create(pgd_json_root(doc), &n), PGD_OK);
    assert_int_equal(pgd_text_work_put(&w, 0, w.text.len, -1, 1), PGD_OK);
    pgd_text_work_split_done(&w);
    assert_int_equal(pgd_text_normalizer_run(n, &w), PGD_OK);
    if (!pgd_str_is(w.text, want)) {
        fail_msg("%s of '%s': '%.*s'", type, in, (int)w.text.len, w.text.ptr);
    }
    pgd_text_work_free(&w);
    pgd_text_normalizer_destroy(n);
    pgd_json_free(doc);
    pgd_text_free(&json);
}

// Letters of two parts from scripts that the library's normal forms do not know: each stays as it
// is (said by the tokenizers package).
static void young_scripts_pass_through(void **state) {
    (void)state;
    static const char *const inert[] = {
        "\xF0\x90\x97\x92\xCC\x87",         // Todhri 105D2 0307, not 105C9
        "\xF0\x90\x97\x89",                 // 105C9
        "\xF0\x91\x8E\x84\xF0\x91\x8E\xBB", // Tulu-Tigalari 11384 113BB
        "\xF0\x91\xA4\xB5\xF0\x91\xA4\xB0", // Dives Akuru 11935 11930
        "\xF0\x91\xA4\xB8",                 // 11938
        "\xF0\x96\x84\x9E\xF0\x96\x84\x9E", // Gurung Khema 1611E 1611E
        "\xF0\x96\xB5\xA7\xF0\x96\xB5\xA7", // Kirat Rai 16D67 16D67
        "\xE0\xA3\x93\xCC\x96",
        "e\xE1\xAB\x81\xCC\x81x", // marks of Unicode 11 and 14
        "\xF0\x96\xB6\x80\xF0\x90\x98\x80\xF0\x91\x90\x80\xF0\x91\xA5\xA0\xF0\x96\x85\x80",
    };
    for (size_t i = 0; i < sizeof(inert) / sizeof(inert[0]); i++) {
        expect_normalized("\"type\":\"NFC\"", inert[i], inert[i]);
        expect_normalized("\"type\":\"NFD\"", inert[i], inert[i]);
    }
    expect_normalized("\"type\":\"NFC\"", "e\xCC\x81", "\xC3\xA9");
    expect_normalized("\"type\":\"NFD\"", "\xC3\xA9", "e\xCC\x81");
    expect_normalized("\"type\":\"NFD\"", "a\xCC\x81\xCC\xA3", "a\xCC\xA3\xCC\x81");
    expect_normalized("\"type\":\"Strip\"", " \t ", "");
    expect_normalized("\"type\":\"Strip\"", " \xE3\x80\x80x y\n", "x y");
    expect_normalized("\"type\":\"Strip\",\"strip_left\":false", " x ", " x");
    expect_normalized("\"type\":\"Strip\",\"strip_right\":false", " x ", "x ");
    expect_normalized("\"type\":\"Replace\",\"pattern\":{\"String\":\"ab\"},\"content\":\"c\"",
                      "aabacabab", "acaccc");
}

// ---- failing allocations while texts grow ------------------------------------------------------

static const char *const growing[] = {
    // byte level with an added space and a template
    "{\"pre_tokenizer\":{\"type\":\"ByteLevel\",\"add_prefix_space\":true},\"decoder\":{\"type\":"
    "\"ByteLevel\"},\"added_tokens\":[{\"id\":9,\"content\":\"zz\",\"lstrip\":true}]," MODEL "}",
    // marks, byte fallback and a late replacement
    "{\"normalizer\":{\"type\":\"Sequence\",\"normalizers\":[{\"type\":\"Lowercase\"},{\"type\":"
    "\"NFD\"},{\"type\":\"StripAccents\"},{\"type\":\"Replace\",\"pattern\":{\"Regex\":\"b+\"},"
    "\"content\":\"ab\"},{\"type\":\"NFC\"},{\"type\":\"Prepend\",\"prepend\":\"_\"}]},"
    "\"pre_tokenizer\":{\"type\":\"Metaspace\",\"replacement\":\"_\"},\"decoder\":{\"type\":"
    "\"Sequence\",\"decoders\":[{\"type\":\"ByteFallback\"},{\"type\":\"Metaspace\","
    "\"replacement\":\"a\"},{\"type\":\"Fuse\"},{\"type\":\"Replace\",\"pattern\":{\"String\":"
    "\"b\"},\"content\":\"cc\"}]},\"added_tokens\":[{\"id\":9,\"content\":\"ZZ\",\"normalized\":"
    "true}],\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0,\"b\":1,\"ab\":2,\"_\":3,\"<unk>\":4,"
    "\"<0xCE>\":5,\"<0xB1>\":6},\"merges\":[\"a b\"],\"byte_fallback\":true,\"unk_token\":"
    "\"<unk>\"}}",
    // affixes, punctuation, digits
    "{\"pre_tokenizer\":{\"type\":\"Sequence\",\"pretokenizers\":[{\"type\":\"Punctuation\"},"
    "{\"type\":\"Digits\",\"individual_digits\":true},{\"type\":\"Whitespace\"}]},\"model\":"
    "{\"type\":\"BPE\",\"vocab\":{\"a\":0,\"##a\":1,\"##b\":2,\"##b</w>\":3,\"a##b\":4},"
    "\"merges\":[],\"continuing_subword_prefix\":\"##\",\"end_of_word_suffix\":\"</w>\","
    "\"unk_token\":\"a\"}}",
};

static pgd_status there_and_back(const pgd_text_tokenizer *t, pgd_str text) {
    pgd_text_ids ids = {0};
    pgd_text out = {0};
    pgd_status status = pgd_text_encode(t, text, PGD_TEXT_ADD_SPECIAL, &ids);
    if (status == PGD_OK) {
        status = pgd_text_decode(t, ids.ids, ids.n, 0, &out);
    }
    pgd_text_free(&out);
    pgd_text_ids_free(&ids);
    return status;
}

// Texts of many lengths, so that every buffer comes to its end at every place that adds to it.
static void growing_buffers_fail_cleanly(void **state) {
    (void)state;
    static const char scraps[] = "ab \xCE\xB1zz\xC3\xA9 ZZ, bbA1\xC4\xB0";
    for (size_t i = 0; i < sizeof(growing) / sizeof(growing[0]); i++) {
        pgd_text_tokenizer *t = NULL;
        assert_int_equal(pgd_text_tokenizer_parse(pgd_str_of(growing[i]), (pgd_str){0}, &t),
                         PGD_OK);
        uint64_t live = pgd_mem_live();
        for (size_t len = 1; len < 150; len++) {
            char text[150];
            for (size_t k = 0; k < len; k++) {
                text[k] = scraps[k % (sizeof(scraps) - 1)];
            }
            pgd_status status = PGD_OUT_OF_MEMORY;
            for (uint64_t n = 1; status != PGD_OK; n++) {
                pgd_mem_fail_nth(n);
                status = there_and_back(t, (pgd_str){text, len});
                pgd_mem_fail_nth(0);
                assert_true(status == PGD_OK || status == PGD_OUT_OF_MEMORY);
                assert_int_equal(pgd_mem_live(), live);
            }
        }
        pgd_text_tokenizer_close(t);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(files_are_taken_or_refused),
        cmocka_unit_test(depth_and_number_of_parts_have_limits),
        cmocka_unit_test(the_longest_added_token_has_a_limit),
        cmocka_unit_test(patterns_mean_what_oniguruma_means),
        cmocka_unit_test(patterns_have_a_length),
        cmocka_unit_test(open_tails_are_recognised),
        cmocka_unit_test(questions_have_answers_for_any_id),
        cmocka_unit_test(byte_tokens_are_recognised),
        cmocka_unit_test(young_scripts_pass_through),
        cmocka_unit_test(growing_buffers_fail_cleanly),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
