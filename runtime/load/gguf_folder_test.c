// The values that a folder's model has in a GGUF file: read back, refused by name where the file
// has no form for them, and memory that runs out at each place where they grow.
#include "load/test_folder.h"

#include "base/mem.h"
#include "load/gguf_inner.h"
#include "load/gguf_write.h"

#define SPLIT(pattern)                                                          \
    "{\"type\":\"Split\",\"pattern\":{\"Regex\":\"" pattern "\"},\"behavior\":" \
    "\"Isolated\",\"invert\":false},"
#define DIGITS SPLIT("\\\\p{N}")
#define GPT2                                                                            \
    SPLIT("'s|'t|'re|'ve|'m|'ll|'d| ?\\\\p{L}+| ?\\\\p{N}+| ?[^\\\\s\\\\p{L}\\\\p{N}]+" \
          "|\\\\s+(?!\\\\S)|\\\\s+")
#define ALONE     "{\"type\":\"Split\",\"pattern\":{\"Regex\":\"a\"},\"behavior\":\"Isolated\"}"
#define BYTES     "{\"type\":\"ByteLevel\",\"use_regex\":false}"
#define PRE(list) "\"pre_tokenizer\":{\"type\":\"Sequence\",\"pretokenizers\":[" list "]}"
#define VOCAB     "\"vocab\":{\"a\":0,\"b\":1,\"ab\":2,\"z\":9}"
#define MODEL     "\"model\":{\"type\":\"BPE\"," VOCAB ",\"merges\":[\"a b\",[\"b\",\"a\"]]}"
#define ADDED                                                                                  \
    "\"added_tokens\":[{\"id\":3,\"content\":\"<s>\",\"special\":true},{\"id\":4,\"content\":" \
    "\"<t>\",\"special\":false},{\"id\":-1,\"content\":\"no\"},7]"
#define TOKENIZER "{" PRE(DIGITS GPT2 BYTES) "," MODEL "," ADDED "}"

static const char config_text[] =
    "{\"architectures\":[\"%s\"],\"hidden_size\":8,\"intermediate_size\":16,"
    "\"num_attention_heads\":2,\"num_key_value_heads\":1,\"num_hidden_layers\":2,"
    "\"vocab_size\":6,\"rms_norm_eps\":1e-5,\"max_position_embeddings\":64,"
    "\"rope_theta\":10000.0,\"hidden_act\":\"silu\",\"tie_word_embeddings\":true%s}";
static const char llama[] = "LlamaForCausalLM";

#define IDS ",\"bos_token_id\":3,\"pad_token_id\":5,\"eos_token_id\":[4,0,1,2]"

typedef struct model {
    test_folder folder;
    pgd_load_config *config;
    pgd_load_gguf_values values;
    char *file; // the values as a GGUF file
} model;

static pgd_load_config *config_of(const char *family, const char *more) {
    pgd_load_config *c = NULL;
    char text[1024];
    int n = snprintf(text, sizeof(text), config_text, family, more);
    pgd_status status = pgd_load_config_parse(text, (size_t)n, NULL, 0, "config.json", &c);
    if (status != PGD_OK) {
        fail_msg("%s", pgd_fail_text(status));
    }
    return c;
}

static void open_model(model *m, const char *family, const char *more, const char *tokenizer,
                       const char *template_file, const char *template_text) {
    *m = (model){0};
    test_folder_make(&m->folder);
    if (tokenizer != NULL) {
        test_folder_write(&m->folder, "tokenizer.json", tokenizer, strlen(tokenizer));
    }
    if (template_file != NULL) {
        test_folder_write(&m->folder, template_file, template_text, strlen(template_text));
    }
    m->config = config_of(family, more);
}

static void close_model(model *m) {
    free(m->file);
    pgd_text_free(&m->values.bytes);
    pgd_load_config_free(m->config);
    test_folder_remove(&m->folder);
    assert_int_equal(pgd_mem_live(), 0);
}

static void read_back(model *m, pgd_load_gguf *g) {
    const uint64_t front[3] = {UINT64_C(3) << 32 | 0x46554747u, 0, m->values.n};
    const size_t n = sizeof(front) + m->values.bytes.len;
    m->file = malloc(n);
    assert_non_null(m->file);
    memcpy(m->file, front, sizeof(front)); // the machines of the tests are little-endian
    memcpy(m->file + sizeof(front), m->values.bytes.ptr, m->values.bytes.len);
    assert_int_equal(pgd_load_gguf_parse(m->file, n, "m.gguf", g), PGD_OK);
}

static void has_int(const pgd_load_gguf *g, const char *key, int64_t want) {
    int64_t v = -7;
    assert_int_equal(pgd_load_gguf_int(g, key, INT32_MIN, INT32_MAX, &v), PGD_OK);
    assert_int_equal(v, want);
}

static void has_float(const pgd_load_gguf *g, const char *key, double want) {
    double v = -7;
    assert_int_equal(pgd_load_gguf_float(g, key, &v), PGD_OK);
    assert_true(v > want - 1e-6 && v < want + 1e-6);
}

static void has_str(const pgd_load_gguf *g, const char *key, const char *want) {
    pgd_str v = {0};
    assert_int_equal(pgd_load_gguf_str(g, key, &v), PGD_OK);
    assert_true(pgd_str_is(v, want));
}

static void has_strs(const pgd_load_gguf *g, const char *key, const char *const *want, size_t n) {
    pgd_load_gguf_walk w = {.value = pgd_load_gguf_get(g, key)};
    pgd_str v = {0};
    for (size_t i = 0; i < n; i++) {
        assert_true(pgd_load_gguf_next_str(&w, &v) && pgd_str_is(v, want[i]));
    }
    assert_false(pgd_load_gguf_next_str(&w, &v));
}

static void whole(void **state) {
    static const char *const tokens[] = {"a", "b", "ab", "<s>", "<t>", "[PAD5]"};
    static const char *const merges[] = {"a b", "b a"};
    static const int64_t kinds[] = {1, 1, 1, 3, 4, 5};
    pgd_load_gguf g = {0};
    int64_t kind = 0;
    model m;
    (void)state;
    open_model(&m, llama, IDS, TOKENIZER, "tokenizer_config.json", "{\"chat_template\":\"hi\"}");
    assert_int_equal(pgd_load_gguf_folder_values(m.folder.path, m.config, &m.values), PGD_OK);
    read_back(&m, &g);
    has_str(&g, "general.architecture", "llama");
    has_str(&g, "general.name", strrchr(m.folder.path, '/') + 1);
    has_int(&g, "llama.embedding_length", 8);
    has_int(&g, "llama.attention.key_length", 4);
    assert_null(pgd_load_gguf_get(&g, "llama.attention.sliding_window"));
    assert_null(pgd_load_gguf_get(&g, "llama.rope.scaling.type"));
    has_str(&g, "tokenizer.ggml.pre", "smollm");
    has_strs(&g, "tokenizer.ggml.tokens", tokens, 6);
    has_strs(&g, "tokenizer.ggml.merges", merges, 2);
    pgd_load_gguf_walk w = {.value = pgd_load_gguf_get(&g, "tokenizer.ggml.token_type")};
    for (size_t i = 0; i < 6; i++) {
        assert_true(pgd_load_gguf_next_int(&w, &kind) && kind == kinds[i]);
    }
    has_int(&g, "tokenizer.ggml.bos_token_id", 3);
    has_int(&g, "tokenizer.ggml.padding_token_id", 5);
    has_int(&g, "tokenizer.ggml.eos_token_id", 4);
    has_int(&g, "tokenizer.ggml.eom_token_id", 1);
    has_str(&g, "tokenizer.chat_template", "hi");
    pgd_load_gguf_free(&g);
    close_model(&m);
}

// Windows and ways to scale rope; no tokenizer; a template of its own; post-processors.
static void variants(void **state) {
    static const char wrapped[] =
        "{" PRE(GPT2 BYTES) "," MODEL ",\"post_processor\":{\"single\":[]}}";
    pgd_load_gguf g = {0};
    int32_t add = 0;
    model m;
    (void)state;
    open_model(&m, "MistralForCausalLM",
               ",\"sliding_window\":16,\"rope_scaling\":{\"rope_type\":\"linear\",\"factor\":2.0}",
               NULL, "chat_template.jinja", "{{ 1 }}");
    assert_int_equal(pgd_load_gguf_folder_values(m.folder.path, m.config, &m.values), PGD_OK);
    read_back(&m, &g);
    has_int(&g, "llama.attention.sliding_window", 16);
    has_str(&g, "llama.rope.scaling.type", "linear");
    has_float(&g, "llama.rope.scaling.factor", 2);
    has_str(&g, "tokenizer.chat_template", "{{ 1 }}");
    assert_null(pgd_load_gguf_get(&g, "tokenizer.ggml.tokens"));
    assert_null(pgd_load_gguf_get(&g, "tokenizer.ggml.padding_token_id"));
    pgd_load_gguf_free(&g);
    close_model(&m);
    open_model(&m, "Qwen2ForCausalLM",
               IDS ",\"rope_scaling\":{\"rope_type\":\"yarn\",\"factor\":4.0,"
                   "\"original_max_position_embeddings\":16}",
               wrapped, NULL, NULL);
    assert_int_equal(pgd_load_gguf_folder_values(m.folder.path, m.config, &m.values), PGD_OK);
    read_back(&m, &g);
    has_str(&g, "qwen2.rope.scaling.type", "yarn");
    has_int(&g, "qwen2.rope.scaling.original_context_length", 16);
    has_float(&g, "qwen2.rope.scaling.yarn_beta_fast", 32);
    has_str(&g, "tokenizer.ggml.pre", "gpt-2");
    assert_int_equal(pgd_load_gguf_bool(&g, "tokenizer.ggml.add_bos_token", &add), PGD_OK);
    assert_int_equal(add, 1);
    pgd_load_gguf_free(&g);
    close_model(&m);
}

static void refused(void **state) {
    static const struct {
        const char *family, *more, *tokenizer;
        pgd_status code;
        const char *says;
    } rows[] = {
        {llama,
         ",\"rope_scaling\":{\"rope_type\":\"yarn\",\"factor\":2.0,\"attention_factor\":1.5,"
         "\"original_max_position_embeddings\":32}",
         TOKENIZER, PGD_UNSUPPORTED, "rope of kind yarn with these settings"},
        {llama,
         ",\"rope_scaling\":{\"rope_type\":\"yarn\",\"factor\":2.0,\"truncate\":false,"
         "\"original_max_position_embeddings\":32}",
         TOKENIZER, PGD_UNSUPPORTED, "rope of kind yarn with these settings"},
        {"Qwen2ForCausalLM",
         ",\"use_sliding_window\":true,\"sliding_window\":16,\"max_window_layers\":1", TOKENIZER,
         PGD_UNSUPPORTED, "windows that differ between layers"},
        {llama, "", "{", PGD_INVALID, "tokenizer.json"},
        {llama, "", "{" MODEL "}", PGD_UNSUPPORTED, "only byte-level BPE"},
        {llama, "", "{" PRE(ALONE) "," MODEL "}", PGD_UNSUPPORTED, "only byte-level BPE"},
        {llama, "", "{" PRE(BYTES) "," MODEL "}", PGD_UNSUPPORTED, "only byte-level BPE"},
        {llama, "", "{" PRE(BYTES "," GPT2 BYTES) "," MODEL "}", PGD_UNSUPPORTED, "only byte"},
        {llama, "", "{" PRE(GPT2 DIGITS GPT2 BYTES) "," MODEL "}", PGD_UNSUPPORTED, "only byte"},
        {llama, "", "{" PRE(GPT2 DIGITS BYTES) "," MODEL "}", PGD_UNSUPPORTED, "only byte-level"},
        {llama, "", "{" PRE("{\"type\":\"Digits\"}," BYTES) "," MODEL "}", PGD_UNSUPPORTED, "only"},
        {llama, "", "{" PRE("{\"type\":\"Split\"}," BYTES) "," MODEL "}", PGD_UNSUPPORTED, "only"},
        {llama, "", "{" PRE("{\"type\":\"Split\",\"behavior\":\"Isolated\"}," BYTES) "," MODEL "}",
         PGD_UNSUPPORTED, "only byte-level BPE"},
        {llama, "", "{" PRE(GPT2 "{\"type\":\"ByteLevel\"}") "," MODEL "}", PGD_UNSUPPORTED,
         "only byte-level BPE"},
        {llama, "", "{" PRE(GPT2 BYTES) ",\"model\":{" VOCAB "}}", PGD_UNSUPPORTED, "only byte"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        model m;
        open_model(&m, rows[i].family, rows[i].more, rows[i].tokenizer, NULL, NULL);
        pgd_status status = pgd_load_gguf_folder_values(m.folder.path, m.config, &m.values);
        if (status != rows[i].code) {
            fail_msg("row %zu: status %d: %s", i, (int)status, pgd_fail_text(status));
        }
        test_says(status, rows[i].says);
        close_model(&m);
    }
}

// ---- scores from merges ------------------------------------------------------------------------

static pgd_status scores_of(const char *json, float scores[4]) {
    static const char *const names[] = {"a", "b", "ab", "<x>"};
    static const int32_t kinds[] = {PGD_LOAD_GGUF_NORMAL, PGD_LOAD_GGUF_NORMAL,
                                    PGD_LOAD_GGUF_NORMAL, PGD_LOAD_GGUF_CONTROL};
    pgd_json_doc *doc = NULL;
    pgd_str texts[4];
    for (size_t i = 0; i < 4; i++) {
        texts[i] = pgd_str_of(names[i]);
    }
    assert_int_equal(pgd_json_parse(pgd_str_of(json), "merges", 8, &doc), PGD_OK);
    pgd_status status = pgd_load_gguf_scores(pgd_json_root(doc), texts, kinds, 4, scores);
    pgd_json_free(doc);
    return status;
}

static void scores(void **state) {
    static const struct {
        const char *json;
        pgd_status code;
        const char *says;
    } rows[] = {
        {"[\"a b\"]", PGD_OK, NULL},
        {"[[\"a\",\"b\"]]", PGD_OK, NULL},
        {"[\"a b\",\"a x\",\"x b\",\"a <x>\"]", PGD_OK, NULL},
        {"[\"ab\"]", PGD_INVALID, "merge 0 is no pair"},
        {"[\"a b\",\"\"]", PGD_INVALID, "merge 1 is no pair"},
        {"[7]", PGD_INVALID, "merge 0 is no pair"},
        {"[[\"a\"]]", PGD_INVALID, "merge 0 is no pair"},
        {"[[\"a\",7]]", PGD_INVALID, "merge 0 is no pair"},
        {"[[7,\"b\"]]", PGD_INVALID, "merge 0 is no pair"},
        {"[]", PGD_UNSUPPORTED, "not those of SentencePiece"},
        {"[\"a b\",\"x y\",\"a b\"]", PGD_UNSUPPORTED, "not those of SentencePiece"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        float out[4] = {7, 7, 7, 7};
        const pgd_status status = scores_of(rows[i].json, out);
        if (status != rows[i].code) {
            fail_msg("row %zu: status %d", i, (int)status);
        }
        if (status == PGD_OK) {
            assert_true(out[2] > out[0] && out[0] > out[1]); // a merge's rank, then the order
        } else {
            test_says(status, rows[i].says);
        }
        assert_int_equal(pgd_mem_live(), 0);
    }
    pgd_status status = PGD_OUT_OF_MEMORY;
    for (uint64_t nth = 1; status != PGD_OK; nth++) {
        static const char *const texts[] = {"a", "b", "ab"};
        static const int32_t kinds[] = {PGD_LOAD_GGUF_NORMAL, PGD_LOAD_GGUF_NORMAL,
                                        PGD_LOAD_GGUF_NORMAL};
        pgd_str views[3];
        float out[3];
        pgd_json_doc *doc = NULL;
        for (size_t i = 0; i < 3; i++) {
            views[i] = pgd_str_of(texts[i]);
        }
        assert_int_equal(pgd_json_parse(PGD_STR("[\"a b\"]"), "merges", 8, &doc), PGD_OK);
        pgd_mem_fail_nth(nth);
        status = pgd_load_gguf_scores(pgd_json_root(doc), views, kinds, 3, out);
        pgd_mem_fail_nth(0);
        pgd_json_free(doc);
        assert_true(status == PGD_OK || status == PGD_OUT_OF_MEMORY);
        assert_int_equal(pgd_mem_live(), 0);
    }
}

static void no_memory(void **state) {
    static const char yarn[] = IDS ",\"rope_scaling\":{\"rope_type\":\"yarn\",\"factor\":4.0,"
                                   "\"original_max_position_embeddings\":16}";
    static const char window[] = IDS ",\"sliding_window\":16";
    (void)state;
    for (int kind = 0; kind < 2; kind++) {
        int failed = 0;
        model m;
        open_model(&m, kind == 0 ? llama : "MistralForCausalLM", kind == 0 ? yarn : window,
                   TOKENIZER, kind == 0 ? "chat_template.jinja" : "tokenizer_config.json",
                   kind == 0 ? "hi" : "{\"chat_template\":\"hi\"}");
        const uint64_t before = pgd_mem_live();
        pgd_status status = PGD_OUT_OF_MEMORY;
        for (uint64_t nth = 1; status != PGD_OK; nth++) {
            pgd_load_gguf_values v = {0};
            pgd_mem_fail_nth(nth);
            status = pgd_load_gguf_folder_values(m.folder.path, m.config, &v);
            pgd_mem_fail_nth(0);
            pgd_text_free(&v.bytes);
            assert_true(status == PGD_OK || status == PGD_OUT_OF_MEMORY);
            assert_int_equal(pgd_mem_live(), before);
            failed += status != PGD_OK;
        }
        assert_true(failed > 100); // every place where the values grow
        close_model(&m);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(whole),  cmocka_unit_test(variants),  cmocka_unit_test(refused),
        cmocka_unit_test(scores), cmocka_unit_test(no_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
