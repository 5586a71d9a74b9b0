// What a GGUF file says about its model and its text: files of one small model in which single
// values are changed, refused by name or read as the format means them; and memory that runs out
// at each place where a text could grow.
#include "load/test_folder.h"

#include "base/mem.h"
#include "base/str.h"
#include "load/gguf_model.h"
#include "load/gguf_write.h"

typedef struct entry {
    const char *key;
    const char *spec; // "KIND TEXT"; NULL = not in the file
} entry;

// Kinds: u u32, i i32, h i16, c i8, q u64, f f32, d f64, b bool, s string; U, F, S arrays, "," or "|" between their values.
static const entry base[] = {
    {"general.architecture", "s llama"},
    {"llama.block_count", "u 2"},
    {"llama.embedding_length", "u 8"},
    {"llama.feed_forward_length", "u 16"},
    {"llama.attention.head_count", "u 2"},
    {"llama.attention.head_count_kv", "u 1"},
    {"llama.context_length", "u 64"},
    {"llama.attention.layer_norm_rms_epsilon", "f 0.00001"},
    {"tokenizer.ggml.model", "s llama"},
    {"tokenizer.ggml.pre", "s gpt-2"},
    {"tokenizer.ggml.tokens", "S <unk>|<s>|</s>|a|b|ab|<0x41>|\xC3\xA9"
                              "a|<|x|>|\xC3\xA9"},
    {"tokenizer.ggml.token_type", "U 2,3,3,1,1,1,6,1,4,5"},
    {"tokenizer.ggml.scores", "F 0,0,0,-1,-2,-3,0,-2.5,0,-3"},
    {"tokenizer.ggml.merges", "S a b|b a"},
};
enum { N_BASE = sizeof(base) / sizeof(base[0]), N_CHANGES = 3, N_TOKENS = 10 };

typedef struct file {
    test_folder folder;
    char path[160];
    uint8_t bytes[8192];
    size_t n;
    uint64_t n_values;
} file;

static void put(file *f, uint64_t v, size_t n) {
    assert_true(f->n + n <= sizeof(f->bytes));
    for (size_t i = 0; i < n; i++) {
        f->bytes[f->n++] = (uint8_t)(v >> (8 * i));
    }
}

static void put_text(file *f, const char *text, size_t n) {
    put(f, n, 8);
    assert_true(f->n + n <= sizeof(f->bytes));
    memcpy(f->bytes + f->n, text, n);
    f->n += n;
}

static void put_f32(file *f, const char *text) {
    const float v = strtof(text, NULL);
    uint32_t bits = 0;
    memcpy(&bits, &v, sizeof(bits));
    put(f, bits, 4);
}

static void put_f64(file *f, const char *text) {
    const double v = strtod(text, NULL);
    uint64_t bits = 0;
    memcpy(&bits, &v, sizeof(bits));
    put(f, bits, 8);
}

// An array of what stands between the marks; strings with "|" in them are escaped as "<|x|>".
static void put_list(file *f, char kind, const char *text) {
    const size_t at = f->n + 4;
    uint64_t n = 0;
    put(f, kind == 'U' ? PGD_GGUF_U32 : kind == 'F' ? PGD_GGUF_F32 : PGD_GGUF_STRING, 4);
    put(f, 0, 8);
    while (*text != '\0') {
        size_t len = strncmp(text, "<|x|>", 5) == 0 ? 5 : strcspn(text, kind == 'S' ? "|" : ",");
        if (kind == 'U') {
            put(f, strtoul(text, NULL, 10), 4);
        } else if (kind == 'F') {
            put_f32(f, text);
        } else {
            put_text(f, text, len);
        }
        text += len + (text[len] != '\0');
        n++;
    }
    memcpy(f->bytes + at, &n, sizeof(n)); // the machines of the tests are little-endian
}

static void put_entry(file *f, const char *key, const char *spec) {
    static const char kinds[] = "uihcqfdbsUFS";
    static const uint32_t types[] = {PGD_GGUF_U32,   PGD_GGUF_I32,   PGD_GGUF_I16,
                                     PGD_GGUF_I8,    PGD_GGUF_U64,   PGD_GGUF_F32,
                                     PGD_GGUF_F64,   PGD_GGUF_BOOL,  PGD_GGUF_STRING,
                                     PGD_GGUF_ARRAY, PGD_GGUF_ARRAY, PGD_GGUF_ARRAY};
    const char *kind = strchr(kinds, spec[0]);
    const char *text = spec + 2;
    assert_non_null(kind);
    put_text(f, key, strlen(key));
    put(f, types[kind - kinds], 4);
    f->n_values++;
    switch (spec[0]) {
    case 'u': put(f, strtoul(text, NULL, 10), 4); break;
    case 'i': put(f, (uint64_t)strtol(text, NULL, 10), 4); break;
    case 'h': put(f, (uint64_t)strtol(text, NULL, 10), 2); break;
    case 'c': put(f, (uint64_t)strtol(text, NULL, 10), 1); break;
    case 'q': put(f, strtoull(text, NULL, 10), 8); break;
    case 'd': put_f64(f, text); break;
    case 'f': put_f32(f, text); break;
    case 'b': put(f, text[0] == '1', 1); break;
    case 's': put_text(f, text, strlen(text)); break;
    default: put_list(f, spec[0], text); break;
    }
}

// The base with some values changed, left out or added; a vector rope_freqs.weight of `divisors`.
static void make_file(file *f, const entry *changes, int32_t divisors) {
    int used[N_CHANGES] = {0};
    *f = (file){0};
    put(f, 0x46554747u, 4);
    put(f, 3, 4);
    put(f, divisors > 0 ? 2 : 1, 8);
    put(f, 0, 8); // the count of values, below
    for (size_t i = 0; i < N_BASE; i++) {
        const char *spec = base[i].spec;
        for (size_t k = 0; k < N_CHANGES && changes[k].key != NULL; k++) {
            if (strcmp(changes[k].key, base[i].key) == 0) {
                spec = changes[k].spec;
                used[k] = 1;
            }
        }
        if (spec != NULL) {
            put_entry(f, base[i].key, spec);
        }
    }
    for (size_t k = 0; k < N_CHANGES && changes[k].key != NULL; k++) {
        if (!used[k]) {
            put_entry(f, changes[k].key, changes[k].spec);
        }
    }
    memcpy(f->bytes + 16, &f->n_values, 8);
    put_text(f, "token_embd.weight", 17);
    put(f, 2, 4);
    put(f, 8, 8);
    put(f, N_TOKENS, 8);
    put(f, 0, 4); // F32
    put(f, 0, 8);
    if (divisors > 0) {
        put_text(f, "rope_freqs.weight", 17);
        put(f, 1, 4);
        put(f, (uint64_t)divisors, 8);
        put(f, 0, 4);
        put(f, 320, 8);
    }
    while (f->n % 32 != 0) {
        put(f, 0, 1);
    }
    f->n += 320;
    for (int32_t i = 0; i < divisors; i++) {
        put_f32(f, i == 1 ? "4" : "1");
    }
    test_folder_make(&f->folder);
    test_folder_write(&f->folder, "m.gguf", f->bytes, f->n);
    (void)snprintf(f->path, sizeof(f->path), "%s/m.gguf", f->folder.path);
}

// ---- configurations ----------------------------------------------------------------------------

static void refused_configs(void **state) {
    static const struct {
        entry changes[N_CHANGES];
        int32_t divisors;
        pgd_status code;
        const char *says;
    } rows[] = {
        {{{"general.architecture", NULL}}, 0, PGD_INVALID, "no general.architecture"},
        {{{"general.architecture", "u 7"}}, 0, PGD_INVALID, "general.architecture"},
        {{{"general.architecture", "s mamba"}}, 0, PGD_UNSUPPORTED, "known are llama, qwen2"},
        {{{"general.type", "s adapter"}}, 0, PGD_UNSUPPORTED, "general.type is \"adapter\""},
        {{{"general.type", "f 1"}}, 0, PGD_INVALID, "general.type"},
        {{{"llama.expert_count", "u 8"}}, 0, PGD_UNSUPPORTED, "a mixture of 8 experts"},
        {{{"llama.expert_count", "s 8"}}, 0, PGD_INVALID, "llama.expert_count"},
        {{{"llama.attention.sliding_window", "s w"}}, 0, PGD_INVALID, "sliding_window"},
        {{{"llama.block_count", NULL}}, 0, PGD_INVALID, "num_hidden_layers"},
        {{{"llama.block_count", "s two"}}, 0, PGD_INVALID, "llama.block_count"},
        {{{"llama.embedding_length", "S 8"}}, 0, PGD_INVALID, "no list of integers"},
        {{{"llama.feed_forward_length", "U 16,8"}}, 0, PGD_UNSUPPORTED, "differs between layers"},
        {{{"llama.attention.head_count", "u 3"}}, 0, PGD_INVALID, "does not divide the width"},
        {{{"llama.attention.head_count", "s x"}}, 0, PGD_INVALID, "head_count"},
        {{{"llama.attention.head_count_kv", "f 1"}}, 0, PGD_INVALID, "head_count_kv"},
        {{{"llama.context_length", "s x"}}, 0, PGD_INVALID, "context_length"},
        {{{"llama.attention.layer_norm_rms_epsilon", "s x"}}, 0, PGD_INVALID, "rms_epsilon"},
        {{{"llama.attention.key_length", "u 4"}, {"llama.attention.value_length", "u 8"}},
         0,
         PGD_UNSUPPORTED,
         "keys of 4 and values of 8 numbers a head"},
        {{{"llama.attention.key_length", "s x"}}, 0, PGD_INVALID, "key_length"},
        {{{"llama.attention.value_length", "s x"}}, 0, PGD_INVALID, "value_length"},
        {{{"llama.rope.dimension_count", "s x"}}, 0, PGD_INVALID, "rope.dimension_count"},
        {{{"llama.rope.freq_base", "s x"}}, 0, PGD_INVALID, "rope.freq_base"},
        {{{"llama.rope.scaling.type", "u 1"}}, 0, PGD_INVALID, "rope.scaling.type"},
        {{{"llama.rope.scaling.type", "s su"}}, 0, PGD_UNSUPPORTED, "none, linear and yarn are"},
        {{{"llama.rope.scale_linear", "s x"}}, 0, PGD_INVALID, "rope.scale_linear"},
        {{{"llama.rope.scaling.factor", "s x"}}, 0, PGD_INVALID, "rope.scaling.factor"},
        {{{"llama.rope.scaling.type", "s yarn"},
          {"llama.rope.scaling.factor", "f 2"},
          {"llama.rope.scaling.attn_factor", "f 1.5"}},
         0,
         PGD_UNSUPPORTED,
         "attn_factor is 1.5"},
        {{{"llama.rope.scaling.attn_factor", "s x"}}, 0, PGD_INVALID, "attn_factor"},
        {{{"tokenizer.ggml.bos_token_id", "s x"}}, 0, PGD_INVALID, "bos_token_id"},
        {{{"tokenizer.ggml.eos_token_id", "s x"}}, 0, PGD_INVALID, "eos_token_id"},
        {{{"split.count", "s x"}}, 0, PGD_INVALID, "split.count"},
        {{{"split.no", "U 0"}}, 0, PGD_INVALID, "split.no"},
        {{{"split.no", "u 1"}}, 0, PGD_INVALID, "part 2 of"},
        {{{"llama.block_count", "q 18446744073709551615"}}, 0, PGD_INVALID, "block_count"},
        {{{"llama.block_count", "c -1"}}, 0, PGD_INVALID, "is -1; 0 to"},
        {{{"llama.rope.freq_base", "F 1,2"}}, 0, PGD_INVALID, "is no number"},
        {{{"general.type", "S model"}}, 0, PGD_INVALID, "is no string"},
        {{{"llama.feed_forward_length", "F 16,16"}}, 0, PGD_INVALID, "no list of integers"},
        {{{"llama.feed_forward_length", "U 4294967295"}}, 0, PGD_INVALID, "no list of integers"},
        {{{"llama.embedding_length", "s x"}}, 0, PGD_INVALID, "embedding_length"},
        {{{"llama.attention.head_count", "u 0"}}, 0, PGD_INVALID, "does not divide the width"},
        {{{"llama.attention.value_length", "u 8"}, {"llama.attention.head_count", "u 3"}},
         0,
         PGD_INVALID,
         "does not divide the width"},
        {{{"llama.rope.scaling.type", "s yarn"},
          {"llama.rope.scaling.factor", "f 2"},
          {"llama.rope.scaling.original_context_length", "s x"}},
         0,
         PGD_INVALID,
         "original_context_length"},
        {{{"llama.rope.scaling.type", "s yarn"},
          {"llama.rope.scaling.factor", "f 2"},
          {"llama.rope.scaling.yarn_beta_fast", "s x"}},
         0,
         PGD_INVALID,
         "yarn_beta_fast"},
        {{{"llama.rope.scaling.type", "s yarn"},
          {"llama.rope.scaling.factor", "f 2"},
          {"llama.rope.scaling.yarn_beta_slow", "s x"}},
         0,
         PGD_INVALID,
         "yarn_beta_slow"},
        {{{"llama.rope.scaling.type", "s yarn"},
          {"llama.rope.scaling.factor", "f 2"},
          {"llama.rope.scaling.attn_factor", "f 0.5"}},
         0,
         PGD_UNSUPPORTED,
         "attn_factor is 0.5"},
        {{{NULL, NULL}}, 3, PGD_UNSUPPORTED, "2 numbers of F32"},
        {{{"llama.rope.scaling.type", "s linear"}, {"llama.rope.scaling.factor", "f 2"}},
         2,
         PGD_UNSUPPORTED,
         "no other rope scaling"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        pgd_load_config *c = NULL;
        file f;
        make_file(&f, rows[i].changes, rows[i].divisors);
        pgd_status status = pgd_load_gguf_config(f.path, &c);
        if (status != rows[i].code || c != NULL) {
            fail_msg("row %zu: status %d: %s", i, (int)status, pgd_fail_text(status));
        }
        test_says(status, rows[i].says);
        test_folder_remove(&f.folder);
        assert_int_equal(pgd_mem_live(), 0);
    }
}

static pgd_load_config *config_of(const entry *changes, int32_t divisors) {
    pgd_load_config *c = NULL;
    file f;
    make_file(&f, changes, divisors);
    pgd_status status = pgd_load_gguf_config(f.path, &c);
    if (status != PGD_OK) {
        fail_msg("%s", pgd_fail_text(status));
    }
    test_folder_remove(&f.folder);
    return c;
}

// Defaults, lists of equal numbers, windows by family, ways to scale rope, divisors, ends.
static void configs(void **state) {
    const entry plain[N_CHANGES] = {{"llama.attention.head_count_kv", NULL},
                                    {"llama.feed_forward_length", "U 16,16"},
                                    {"tokenizer.ggml.tokens", "S a|<|im_end|"}};
    const entry window[N_CHANGES] = {{"llama.attention.sliding_window", "u 32"},
                                     {"tokenizer.ggml.bos_token_id", "u 1"},
                                     {"tokenizer.ggml.eos_token_id", "i 2"}};
    const entry part[N_CHANGES] = {{"llama.rope.dimension_count", "u 2"},
                                   {"llama.attention.key_length", "u 4"},
                                   {"llama.rope.scale_linear", "f 4"}};
    const entry yarn[N_CHANGES] = {{"llama.rope.scaling.type", "s yarn"},
                                   {"llama.rope.scaling.factor", "f 2"},
                                   {"llama.rope.scaling.original_context_length", "u 32"}};
    const entry shrunk[N_CHANGES] = {{"llama.rope.scale_linear", "f 0.5"},
                                     {"llama.attention.key_length", "u 4"},
                                     {"llama.attention.value_length", "u 4"}};
    const entry as_is[N_CHANGES] = {{"llama.rope.scaling.type", "s none"},
                                    {"llama.rope.scale_linear", "f 4"},
                                    {"tokenizer.ggml.bos_token_id", "u 1"}};
    const entry numbers[N_CHANGES] = {{"llama.block_count", "h 2"},
                                      {"llama.context_length", "q 64"},
                                      {"llama.rope.freq_base", "d 5000"}};
    const entry whole[N_CHANGES] = {
        {"llama.block_count", "c 2"}, {"llama.rope.freq_base", "u 7000"}, {"split.count", "u 0"}};
    const entry no_scale[N_CHANGES] = {{"llama.rope.scale_linear", "f 0"}};
    const entry nothing[N_CHANGES] = {{NULL, NULL}};
    (void)state;
    pgd_load_config *c = config_of(shrunk, 0);
    assert_int_equal(c->rope.kind, PGD_ROPE_LINEAR);
    assert_true(c->rope.factor > 0.49 && c->rope.factor < 0.51);
    assert_int_equal(c->head_dim, 4);
    pgd_load_config_free(c);
    c = config_of(as_is, 0); // a type that is said goes before the old key
    assert_int_equal(c->rope.kind, PGD_ROPE_DEFAULT);
    pgd_load_config_free(c);
    c = config_of(numbers, 0);
    assert_int_equal(c->n_layers, 2);
    assert_int_equal(c->max_position, 64);
    assert_true(c->rope.theta > 4999 && c->rope.theta < 5001);
    pgd_load_config_free(c);
    c = config_of(whole, 0);
    assert_int_equal(c->n_layers, 2);
    assert_true(c->rope.theta > 6999 && c->rope.theta < 7001);
    pgd_load_config_free(c);
    c = config_of(no_scale, 0);
    assert_int_equal(c->rope.kind, PGD_ROPE_DEFAULT);
    pgd_load_config_free(c);
    c = config_of(plain, 0);
    assert_string_equal(c->architecture, "LlamaForCausalLM");
    assert_int_equal(c->n_kv_heads, 2);
    assert_int_equal(c->head_dim, 4);
    assert_int_equal(c->vocab, N_TOKENS);
    assert_int_equal(c->n_eos, 0);
    assert_int_equal(c->tied, 1);
    pgd_load_config_free(c);
    c = config_of(window, 0);
    assert_string_equal(c->architecture, "MistralForCausalLM");
    assert_int_equal(c->n_eos, 1);
    assert_int_equal(c->eos[0], 2);
    pgd_load_config_free(c);
    c = config_of(part, 0);
    assert_int_equal(c->rope.rot_dim, 2);
    assert_int_equal(c->rope.kind, PGD_ROPE_LINEAR);
    assert_true(c->rope.factor > 3.99 && c->rope.factor < 4.01);
    pgd_load_config_free(c);
    c = config_of(yarn, 0);
    assert_int_equal(c->rope.kind, PGD_ROPE_YARN);
    pgd_load_config_free(c);
    c = config_of(nothing, 2);
    assert_int_equal(c->rope.kind, PGD_ROPE_LONGROPE);
    assert_true(c->rope.long_factor[1] > 3.99 && c->rope.long_factor[1] < 4.01);
    pgd_load_config_free(c);
    assert_int_equal(pgd_mem_live(), 0);
}

// ---- tokenizers --------------------------------------------------------------------------------

static void refused_tokenizers(void **state) {
    static const struct {
        entry changes[N_CHANGES];
        pgd_status code;
        const char *says;
    } rows[] = {
        {{{"tokenizer.ggml.tokens", NULL}}, PGD_NOT_FOUND, "no tokenizer in the file"},
        {{{"tokenizer.ggml.tokens", "s a"}}, PGD_INVALID, "no list of at most"},
        {{{"tokenizer.ggml.tokens", "U 1,2"}}, PGD_INVALID, "no list of at most"},
        {{{"tokenizer.ggml.model", "s bert"}}, PGD_UNSUPPORTED, "gpt2 and llama are"},
        {{{"tokenizer.ggml.model", "u 1"}}, PGD_INVALID, "tokenizer.ggml.model"},
        {{{"tokenizer.ggml.model", "s gpt2"}, {"tokenizer.ggml.pre", "s new"}},
         PGD_UNSUPPORTED,
         "\"new\" (tokenizer.ggml.pre) is not known"},
        {{{"tokenizer.ggml.model", "s gpt2"}, {"tokenizer.ggml.pre", "u 1"}},
         PGD_INVALID,
         "tokenizer.ggml.pre"},
        {{{"tokenizer.ggml.model", "s gpt2"}, {"tokenizer.ggml.merges", NULL}},
         PGD_INVALID,
         "no list of strings tokenizer.ggml.merges"},
        {{{"tokenizer.ggml.model", "s gpt2"}, {"tokenizer.ggml.merges", "U 1"}},
         PGD_INVALID,
         "no list of strings tokenizer.ggml.merges"},
        {{{"tokenizer.ggml.add_space_prefix", "s x"}}, PGD_INVALID, "add_space_prefix"},
        {{{"tokenizer.ggml.add_bos_token", "s x"}}, PGD_INVALID, "add_bos_token"},
        {{{"tokenizer.ggml.add_eos_token", "s x"}}, PGD_INVALID, "add_eos_token"},
        {{{"tokenizer.ggml.bos_token_id", "s x"}}, PGD_INVALID, "bos_token_id"},
        {{{"tokenizer.ggml.eos_token_id", "s x"}}, PGD_INVALID, "eos_token_id"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        pgd_text tokenizer = {0}, config = {0};
        file f;
        make_file(&f, rows[i].changes, 0);
        pgd_status status = pgd_load_gguf_tokenizer(f.path, &tokenizer, &config);
        if (status != rows[i].code) {
            fail_msg("row %zu: status %d: %s", i, (int)status, pgd_fail_text(status));
        }
        test_says(status, rows[i].says);
        pgd_text_free(&tokenizer);
        pgd_text_free(&config);
        test_folder_remove(&f.folder);
        assert_int_equal(pgd_mem_live(), 0);
    }
}

static void expect(const pgd_text *t, const char *piece) {
    if (t->ptr == NULL || strstr(t->ptr, piece) == NULL) {
        fail_msg("\"%s\" is not in \"%s\"", piece, t->ptr);
    }
}

// Scores make merges, likeliest first, never inside a character; kinds make added tokens.
static void tokenizers(void **state) {
    const entry pieces[N_CHANGES] = {{"tokenizer.ggml.add_space_prefix", "b 0"},
                                     {"tokenizer.ggml.eos_token_id", "u 99"}};
    const entry bytes[N_CHANGES] = {{"tokenizer.ggml.model", "s gpt2"},
                                    {"tokenizer.ggml.pre", "s smollm"},
                                    {"tokenizer.ggml.eos_token_id", "u 2"}};
    pgd_text tokenizer = {0}, config = {0};
    file f;
    (void)state;
    make_file(&f, pieces, 0);
    assert_int_equal(pgd_load_gguf_tokenizer(f.path, &tokenizer, &config), PGD_OK);
    expect(&tokenizer, "\"unk_token\":\"<unk>\"");
    expect(&tokenizer, "\"merges\":[[\"\xC3\xA9\",\"a\"],[\"a\",\"b\"]]");
    expect(&tokenizer, "{\"id\":8,\"content\":\"<|x|>\",\"normalized\":false,\"special\":false}");
    expect(&tokenizer, "\"normalizers\":[{\"type\":\"Replace\"");
    expect(&config, "{\"bos_token\":\"<s>\",\"add_bos_token\":true,\"add_eos_token\":false}");
    test_folder_remove(&f.folder);
    pgd_text_clear(&tokenizer);
    pgd_text_clear(&config);
    make_file(&f, bytes, 0);
    assert_int_equal(pgd_load_gguf_tokenizer(f.path, &tokenizer, &config), PGD_OK);
    expect(&tokenizer, "\"merges\":[\"a b\",\"b a\"]}");
    expect(&tokenizer, "{\"Regex\":\"\\\\p{N}\"}");
    expect(&config, "{\"eos_token\":\"</s>\",\"add_bos_token\":false,\"add_eos_token\":false}");
    test_folder_remove(&f.folder);
    pgd_text_free(&tokenizer);
    pgd_text_free(&config);
}

static void templates(void **state) {
    const entry there[N_CHANGES] = {{"tokenizer.chat_template", "s {{ x }}"}};
    const entry not_there[N_CHANGES] = {{NULL, NULL}};
    const entry wrong[N_CHANGES] = {{"tokenizer.chat_template", "u 1"}};
    pgd_text t = {0};
    file f;
    (void)state;
    make_file(&f, there, 0);
    assert_int_equal(pgd_load_gguf_template(f.path, &t), PGD_OK);
    assert_string_equal(t.ptr, "{{ x }}");
    test_folder_remove(&f.folder);
    make_file(&f, not_there, 0);
    assert_int_equal(pgd_load_gguf_template(f.path, &t), PGD_NOT_FOUND);
    test_folder_remove(&f.folder);
    make_file(&f, wrong, 0);
    assert_int_equal(pgd_load_gguf_template(f.path, &t), PGD_INVALID);
    test_folder_remove(&f.folder);
    assert_int_equal(pgd_load_gguf_template("/nowhere/m.gguf", &t), PGD_NOT_FOUND);
    pgd_text_free(&t);
}

// ---- written again -----------------------------------------------------------------------------

static void hear(void *arg, const char *what, uint64_t done, uint64_t all) {
    uint64_t *last = arg;
    assert_string_equal(what, "quantizing");
    assert_true(done > *last && done <= all);
    *last = done;
}

// All values go over, but those that speak of the old file's form.
static void written(void **state) {
    const entry changes[N_CHANGES] = {{"general.file_type", "u 1"},
                                      {"general.quantization_version", "u 9"},
                                      {"general.alignment", "u 32"}};
    static const char *const types[] = {"f16", "q8_0"};
    (void)state;
    for (size_t i = 0; i < 2; i++) {
        pgd_status status = PGD_OUT_OF_MEMORY;
        char to[180];
        file f;
        make_file(&f, changes, 2);
        (void)snprintf(to, sizeof(to), "%s/new.gguf", f.folder.path);
        for (uint64_t nth = 1; status != PGD_OK; nth++) {
            uint64_t last = 0;
            const pgd_load_progress progress = {.fn = hear, .arg = &last};
            const pgd_load_gguf_write_desc desc = {
                .from = f.path, .to = to, .type = types[i], .progress = &progress};
            pgd_mem_fail_nth(nth);
            status = pgd_load_gguf_write(&desc);
            pgd_mem_fail_nth(0);
            assert_true(status == PGD_OK || status == PGD_OUT_OF_MEMORY);
            assert_true(status != PGD_OK || last > 0);
            assert_int_equal(pgd_mem_live(), 0);
        }
        pgd_load_weights *w = NULL;
        pgd_str text = {0};
        int64_t version = -1;
        assert_int_equal(pgd_load_weights_open(to, &w), PGD_OK);
        const pgd_load_gguf *g = pgd_load_weights_gguf(w);
        assert_null(pgd_load_gguf_get(g, "general.file_type"));
        assert_null(pgd_load_gguf_get(g, "general.alignment"));
        assert_int_equal(pgd_load_gguf_int(g, "general.quantization_version", 0, 9, &version),
                         PGD_OK);
        assert_int_equal(version, i == 0 ? -1 : 2);
        assert_int_equal(pgd_load_gguf_get(g, "tokenizer.ggml.tokens")->n, N_TOKENS);
        pgd_load_gguf_walk walk = {.value = pgd_load_gguf_get(g, "tokenizer.ggml.merges")};
        assert_true(pgd_load_gguf_next_str(&walk, &text) && pgd_str_is(text, "a b"));
        pgd_load_weights_close(w);
        assert_int_equal(remove(to), 0);
        test_folder_remove(&f.folder);
    }
}

// ---- no memory ---------------------------------------------------------------------------------

static pgd_status tokenizer_in(const char *path, uint64_t nth) {
    pgd_text tokenizer = {0}, config = {0};
    pgd_mem_fail_nth(nth);
    pgd_status status = pgd_load_gguf_tokenizer(path, &tokenizer, &config);
    pgd_mem_fail_nth(0);
    pgd_text_free(&tokenizer);
    pgd_text_free(&config);
    return status;
}

static pgd_status config_in(const char *path, uint64_t nth) {
    pgd_load_config *c = NULL;
    pgd_mem_fail_nth(nth);
    pgd_status status = pgd_load_gguf_config(path, &c);
    pgd_mem_fail_nth(0);
    pgd_load_config_free(c);
    return status;
}

// Fails at every place where something is allocated or a text grows; at least `least` of them.
static void fails_everywhere(pgd_status (*read)(const char *path, uint64_t nth), const file *f,
                             uint64_t least) {
    pgd_status status = PGD_OUT_OF_MEMORY;
    uint64_t nth = 0;
    while (status != PGD_OK) {
        status = read(f->path, ++nth);
        assert_true(status == PGD_OK || status == PGD_OUT_OF_MEMORY);
        assert_int_equal(pgd_mem_live(), 0);
    }
    assert_true(nth > least);
}

static void no_memory(void **state) {
    const entry kinds[][N_CHANGES] = {
        {{NULL, NULL}},
        {{"tokenizer.ggml.model", "s gpt2"}, {"tokenizer.ggml.pre", "s smollm"}},
        {{"llama.rope.dimension_count", "u 2"}, {"llama.rope.scale_linear", "f 4"}},
        {{"llama.rope.scaling.type", "s yarn"},
         {"llama.rope.scaling.factor", "f 2"},
         {"llama.rope.scaling.original_context_length", "u 32"}},
        {{"llama.attention.sliding_window", "u 32"}, {"tokenizer.ggml.eos_token_id", "i 2"}},
    };
    (void)state;
    for (size_t kind = 0; kind < sizeof(kinds) / sizeof(kinds[0]); kind++) {
        file f;
        make_file(&f, kinds[kind], kind == 0 ? 2 : 0);
        fails_everywhere(config_in, &f, 20);
        if (kind < 2) {
            fails_everywhere(tokenizer_in, &f, 100);
        }
        test_folder_remove(&f.folder);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(refused_configs),    cmocka_unit_test(configs),
        cmocka_unit_test(refused_tokenizers), cmocka_unit_test(tokenizers),
        cmocka_unit_test(templates),          cmocka_unit_test(written),
        cmocka_unit_test(no_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
