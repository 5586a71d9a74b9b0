// The GGUF reader: files built byte by byte, every kind of damage, cuts at each byte, flipped bits;
// then files of tests/golden/gguf, which the gguf package wrote.
#include "load/test_folder.h"

#include <signal.h>
#include <unistd.h>

#include <sys/resource.h>
#include <sys/stat.h>

#include "base/mem.h"
#include "base/rng.h"
#include "load/gguf_write.h"
#include "load/plan.h"

// A file that grows.
typedef struct builder {
    uint8_t bytes[4096];
    size_t n;
} builder;

static void put(builder *b, uint64_t v, size_t n) {
    assert_true(b->n + n <= sizeof(b->bytes));
    for (size_t i = 0; i < n; i++) {
        b->bytes[b->n++] = (uint8_t)(v >> (8 * i));
    }
}

static void put_text(builder *b, const char *text) {
    put(b, strlen(text), 8);
    for (const char *c = text; *c != '\0'; c++) {
        put(b, (uint8_t)*c, 1);
    }
}

static void front(builder *b, uint32_t version, uint64_t n_tensors, uint64_t n_values) {
    *b = (builder){0};
    put(b, 0x46554747u, 4);
    put(b, version, 4);
    put(b, n_tensors, 8);
    put(b, n_values, 8);
}

static void put_u32(builder *b, const char *key, uint32_t v) {
    put_text(b, key);
    put(b, PGD_GGUF_U32, 4);
    put(b, v, 4);
}

static void put_tensor(builder *b, const char *name, uint64_t k, uint64_t n, uint32_t type,
                       uint64_t offset) {
    put_text(b, name);
    put(b, 2, 4);
    put(b, k, 8);
    put(b, n, 8);
    put(b, type, 4);
    put(b, offset, 8);
}

static void put_data(builder *b, size_t align, size_t n) {
    while (b->n % align != 0) {
        put(b, 0, 1);
    }
    for (size_t i = 0; i < n; i++) {
        put(b, i, 1);
    }
}

// Parses a copy of exactly n bytes, so that a sanitizer sees every byte too many.
static pgd_status parse_n(const builder *b, size_t n, pgd_load_gguf *out) {
    uint8_t *copy = malloc(n + (n == 0));
    assert_non_null(copy);
    memcpy(copy, b->bytes, n);
    pgd_status status = pgd_load_gguf_parse(copy, n, "f.gguf", out);
    free(copy); // nothing below reads the data
    return status;
}

// Two tensors: a [3, 32] of q8_0 at 0, b [2, 4] of f32 at 128.
static void build_good(builder *b) {
    front(b, 3, 2, 3);
    put_u32(b, "general.alignment", 64);
    put_text(b, "a.list");
    put(b, PGD_GGUF_ARRAY, 4);
    put(b, PGD_GGUF_STRING, 4);
    put(b, 2, 8);
    put_text(b, "one");
    put_text(b, "");
    put_text(b, "a.float");
    put(b, PGD_GGUF_F32, 4);
    put(b, 0x3FC00000u, 4); // 1.5
    put_tensor(b, "a", 32, 3, 8, 0);
    put_tensor(b, "b", 4, 2, 0, 128);
    put_data(b, 64, 128 + 32);
}

static void good_file(void **state) {
    builder b;
    pgd_load_gguf g;
    double f = 0;
    int64_t align = 0;
    pgd_str text = {0};
    (void)state;
    build_good(&b);
    assert_int_equal(pgd_load_gguf_parse(b.bytes, b.n, "f.gguf", &g), PGD_OK);
    const pgd_load_tensor *a = pgd_load_gguf_find(&g, PGD_STR("a"));
    const pgd_load_tensor *c = pgd_load_gguf_find(&g, PGD_STR("b"));
    assert_null(pgd_load_gguf_find(&g, PGD_STR("c")));
    assert_int_equal(a->scheme, PGD_SCHEME_Q8_0);
    assert_string_equal(a->stored, "Q8_0");
    assert_int_equal(a->rank, 2);
    assert_int_equal(a->shape[0], 3);
    assert_int_equal(a->shape[1], 32);
    assert_int_equal(a->bytes, 3 * 34);
    assert_ptr_equal(a->ptr, b.bytes + g.header_bytes);
    assert_int_equal(c->scheme, PGD_SCHEME_PLAIN);
    assert_int_equal(c->dtype, PGD_F32);
    assert_int_equal(c->bytes, 32);
    assert_ptr_equal(c->ptr, b.bytes + g.header_bytes + 128);
    assert_int_equal(pgd_load_gguf_float(&g, "a.float", &f), PGD_OK);
    assert_true(f == 1.5);
    assert_int_equal(pgd_load_gguf_int(&g, "general.alignment", 0, 100, &align), PGD_OK);
    assert_int_equal(align, 64);
    assert_int_equal(pgd_load_gguf_int(&g, "none", 0, 100, &align), PGD_OK);
    assert_int_equal(align, 64);
    assert_int_equal(pgd_load_gguf_int(&g, "general.alignment", 0, 63, &align), PGD_INVALID);
    test_says(PGD_INVALID, "is 64; 0 to 63");
    assert_int_equal(pgd_load_gguf_int(&g, "a.float", 0, 100, &align), PGD_INVALID);
    assert_int_equal(pgd_load_gguf_str(&g, "a.list", &text), PGD_INVALID);
    pgd_load_gguf_walk w = {.value = pgd_load_gguf_get(&g, "a.list")};
    assert_int_equal(pgd_load_gguf_next_int(&w, &align), 0); // no integers in it
    assert_int_equal(pgd_load_gguf_next_str(&w, &text), 1);
    assert_true(pgd_str_is(text, "one"));
    assert_int_equal(pgd_load_gguf_next_str(&w, &text), 1);
    assert_int_equal(text.len, 0);
    assert_int_equal(pgd_load_gguf_next_str(&w, &text), 0);
    pgd_load_gguf_free(&g);
}

static void refuse(const builder *b, pgd_status code, const char *piece) {
    pgd_load_gguf g;
    pgd_status status = parse_n(b, b->n, &g);
    if (status != code) {
        fail_msg("%s: %d, not %d", piece, status, code);
    }
    test_says(code, piece);
    assert_null(g.values);
    assert_null(g.tensors);
}

static void counts_and_front(void **state) {
    builder b;
    (void)state;
    front(&b, 3, 0, 0);
    b.bytes[0] = 'X';
    refuse(&b, PGD_DATA_LOSS, "no GGUF file");
    front(&b, 1, 0, 0);
    refuse(&b, PGD_UNSUPPORTED, "version 1");
    front(&b, 0x03000000u, 0, 0);
    refuse(&b, PGD_UNSUPPORTED, "big-endian");
    front(&b, 3, UINT64_MAX, 0);
    refuse(&b, PGD_DATA_LOSS, "tensors and");
    front(&b, 3, 0, UINT64_MAX);
    refuse(&b, PGD_DATA_LOSS, "tensors and");
    front(&b, 3, 100, 0);
    refuse(&b, PGD_DATA_LOSS, "tensors and");
    front(&b, 3, 0, 1);
    put_text(&b, "k");
    put(&b, PGD_GGUF_ARRAY, 4);
    put(&b, PGD_GGUF_U64, 4);
    put(&b, UINT64_MAX / 4, 8); // times 8 overflows
    refuse(&b, PGD_DATA_LOSS, "beyond the end");
    front(&b, 3, 0, 1);
    put_text(&b, "k");
    put(&b, PGD_GGUF_ARRAY, 4);
    put(&b, PGD_GGUF_ARRAY, 4); // an array of arrays
    put(&b, 1, 8);
    refuse(&b, PGD_DATA_LOSS, "unknown type 9");
    front(&b, 3, 0, 1);
    put_text(&b, "k");
    put(&b, PGD_GGUF_STRING, 4);
    put(&b, UINT64_MAX, 8);
    refuse(&b, PGD_DATA_LOSS, "beyond the end");
    front(&b, 3, 0, 1);
    put(&b, UINT64_MAX, 8);
    put(&b, 0, 8);
    refuse(&b, PGD_DATA_LOSS, "bytes of name");
    front(&b, 3, 0, 2);
    put_u32(&b, "k", 1);
    put_u32(&b, "k", 2);
    refuse(&b, PGD_DATA_LOSS, "appears twice");
    front(&b, 3, 0, 1);
    put_u32(&b, "general.alignment", 48);
    refuse(&b, PGD_DATA_LOSS, "no power of two");
    front(&b, 3, 0, 1);
    put_u32(&b, "general.alignment", 0);
    refuse(&b, PGD_INVALID, "general.alignment");
}

static void wrong_tensors(void **state) {
    static const struct {
        uint64_t k, n;
        uint32_t type;
        uint64_t offset;
        pgd_status code;
        const char *says;
    } rows[] = {
        {33, 1, 8, 0, PGD_DATA_LOSS, "no whole blocks of Q8_0"},
        {128, 1, 12, 0, PGD_DATA_LOSS, "no whole blocks of Q4_K"},
        {0, 1, 0, 0, PGD_DATA_LOSS, "dimension is 0"},
        {UINT64_MAX, 1, 0, 0, PGD_DATA_LOSS, "overflows"},
        {UINT64_C(1) << 40, UINT64_C(1) << 40, 0, 0, PGD_DATA_LOSS, "overflows"},
        {UINT64_C(1) << 62, 1, 0, 0, PGD_DATA_LOSS, "overflows"},
        {UINT64_C(1) << 56, 1, 8, 0, PGD_DATA_LOSS, "cut short"},
        {32, 1, 8, UINT64_MAX - 31, PGD_DATA_LOSS, "overflows"},
        {32, 1, 8, UINT64_C(1) << 62, PGD_DATA_LOSS, "cut short"},
        {32, 1, 8, 33, PGD_DATA_LOSS, "no multiple of the alignment"},
        {32, 8, 8, 0, PGD_DATA_LOSS, "lies at bytes 0 to 272 of 100"},
        {32, 1, 4, 0, PGD_UNSUPPORTED, "unknown type 4"},
        {32, 1, 0xFFFFFFFFu, 0, PGD_UNSUPPORTED, "unknown type 4294967295"},
    };
    builder b;
    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        front(&b, 3, 1, 0);
        put_tensor(&b, "t", rows[i].k, rows[i].n, rows[i].type, rows[i].offset);
        put_data(&b, 32, 100);
        refuse(&b, rows[i].code, rows[i].says);
    }
    front(&b, 3, 2, 0);
    put_tensor(&b, "t", 4, 1, 0, 0);
    put_tensor(&b, "t", 4, 1, 0, 32);
    put_data(&b, 32, 64);
    refuse(&b, PGD_DATA_LOSS, "name appears twice");
    front(&b, 3, 2, 0);
    put_tensor(&b, "t", 16, 1, 0, 0);
    put_tensor(&b, "u", 4, 1, 0, 32);
    put_data(&b, 32, 64);
    refuse(&b, PGD_DATA_LOSS, "overlap");
    front(&b, 3, 1, 0);
    put_text(&b, "t");
    put(&b, 5, 4); // rank
    for (int i = 0; i < 5; i++) {
        put(&b, 1, 8);
    }
    put(&b, 0, 4);
    put(&b, 0, 8);
    put_data(&b, 32, 100);
    refuse(&b, PGD_DATA_LOSS, "rank is not 1 to 4");
}

// Every cut fails; flipped bits never lead outside (the sanitizers look).
static void cuts_and_flips(void **state) {
    builder b;
    pgd_load_gguf g;
    uint64_t rng = 5;
    (void)state;
    build_good(&b);
    for (size_t n = 0; n < b.n; n++) {
        assert_int_not_equal(parse_n(&b, n, &g), PGD_OK);
    }
    for (int i = 0; i < 3000; i++) {
        builder bad = b;
        for (int k = 0; k < 1 + i % 3; k++) {
            bad.bytes[pgd_rng_next(&rng) % bad.n] ^= (uint8_t)(1u << (pgd_rng_next(&rng) % 8));
        }
        if (parse_n(&bad, bad.n, &g) == PGD_OK) {
            pgd_load_gguf_free(&g);
        }
    }
}

static void no_memory(void **state) {
    builder b;
    pgd_load_gguf g;
    pgd_status status = PGD_OUT_OF_MEMORY;
    (void)state;
    build_good(&b);
    for (uint64_t n = 1; status == PGD_OUT_OF_MEMORY; n++) {
        const uint64_t live = pgd_mem_live();
        pgd_mem_fail_nth(n);
        status = parse_n(&b, b.n, &g);
        pgd_mem_fail_nth(0);
        if (status == PGD_OK) {
            assert_true(n > 3);
            pgd_load_gguf_free(&g);
        }
        assert_int_equal(pgd_mem_live(), live);
    }
    assert_int_equal(status, PGD_OK);
}

static void names(void **state) {
    static const char *const rows[][2] = {
        {"model.embed_tokens.weight", "token_embd.weight"},
        {"lm_head.weight", "output.weight"},
        {"model.norm.weight", "output_norm.weight"},
        {"model.layers.12.self_attn.q_proj.bias", "blk.12.attn_q.bias"},
        {"model.layers.0.post_attention_layernorm.weight", "blk.0.ffn_norm.weight"},
        {"model.layers.0.other.weight", "model.layers.0.other.weight"},
        {"rope_freqs.weight", "rope_freqs.weight"},
        {"weight", "weight"},
        {"", ""},
    };
    char out[PGD_LOAD_GGUF_NAME];
    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        pgd_load_gguf_name(rows[i][0], out);
        assert_string_equal(out, rows[i][1]);
    }
}

// ---- files of the gguf package -----------------------------------------------------------------

#define GOLDEN PGD_TEST_SOURCE_DIR "/tests/golden/gguf/"

static void split_sets(void **state) {
    pgd_load_weights *w = NULL;
    test_folder f;
    char to[160];
    static uint8_t bytes[1 << 18];
    (void)state;
    assert_int_equal(pgd_load_weights_open(GOLDEN "llama-default-00002-of-00003.gguf", &w),
                     PGD_INVALID);
    test_says(PGD_INVALID, "give the first part");
    assert_int_equal(pgd_load_weights_open(GOLDEN "llama-default-00001-of-00003.gguf", &w), PGD_OK);
    assert_non_null(pgd_load_weights_find(w, "model.layers.1.mlp.down_proj.weight"));
    assert_non_null(pgd_load_weights_find(w, "lm_head.weight"));
    pgd_load_weights_close(w);
    test_folder_make(&f);
    FILE *from = fopen(GOLDEN "llama-default-00001-of-00003.gguf", "rb");
    assert_non_null(from);
    size_t n = fread(bytes, 1, sizeof(bytes), from);
    assert_int_equal(fclose(from), 0);
    test_folder_write(&f, "m-00001-of-00003.gguf", bytes, n);
    test_folder_write(&f, "alone.gguf", bytes, n);
    (void)snprintf(to, sizeof(to), "%s/m-00001-of-00003.gguf", f.path);
    assert_int_equal(pgd_load_weights_open(to, &w), PGD_NOT_FOUND);
    test_says(PGD_NOT_FOUND, "m-00002-of-00003.gguf");
    (void)snprintf(to, sizeof(to), "%s/alone.gguf", f.path);
    assert_int_equal(pgd_load_weights_open(to, &w), PGD_INVALID);
    test_says(PGD_INVALID, "must end in -00001-of-00003.gguf");
    test_folder_write(&f, "m-00002-of-00003.gguf", bytes, n); // the first once more
    (void)snprintf(to, sizeof(to), "%s/m-00001-of-00003.gguf", f.path);
    assert_int_equal(pgd_load_weights_open(to, &w), PGD_DATA_LOSS);
    test_says(PGD_DATA_LOSS, "of another model");
    test_folder_remove(&f);
}

static void configs(void **state) {
    pgd_load_config *c = NULL;
    (void)state;
    assert_int_equal(pgd_load_config_read(GOLDEN "llama-llama3.gguf", &c), PGD_OK);
    assert_int_equal(c->rope.style, PGD_ROPE_INTERLEAVED);
    assert_int_equal(c->rope.kind, PGD_ROPE_LONGROPE);
    assert_int_equal(c->rope.n_factors, c->head_dim / 2);
    pgd_load_config_free(c);
    assert_int_equal(pgd_load_config_read(GOLDEN "qwen2.gguf", &c), PGD_OK);
    assert_string_equal(c->architecture, "Qwen2ForCausalLM");
    assert_int_equal(c->rope.style, PGD_ROPE_HALF);
    assert_int_equal(c->attention_bias, 1);
    assert_int_equal(c->tied, 1);
    pgd_load_config_free(c);
}

// What this tree writes of a golden model is what the gguf package wrote of it, tensor by tensor.
static void written(void **state) {
    static const char *const models[] = {"llama-llama3", "llama-bias", "qwen2", "qwen3"};
    (void)state;
    for (size_t i = 0; i < sizeof(models) / sizeof(models[0]); i++) {
        test_folder f;
        char from[256], to[160], golden[256];
        pgd_load_weights *own = NULL, *other = NULL;
        uint32_t n = 0;
        test_folder_make(&f);
        (void)snprintf(from, sizeof(from), PGD_TEST_SOURCE_DIR "/tests/golden/models/%s",
                       models[i]);
        (void)snprintf(golden, sizeof(golden), GOLDEN "%s.gguf", models[i]);
        (void)snprintf(to, sizeof(to), "%s/new.gguf", f.path);
        const pgd_load_gguf_write_desc desc = {.from = from, .to = to, .type = "f32"};
        assert_int_equal(pgd_load_gguf_write(&desc), PGD_OK);
        assert_int_equal(pgd_load_weights_open(to, &own), PGD_OK);
        assert_int_equal(pgd_load_weights_open(golden, &other), PGD_OK);
        for (uint32_t k = 0; k < pgd_load_weights_count(other); k++) {
            const pgd_load_tensor *want = pgd_load_weights_get(other, k);
            const pgd_load_tensor *got = pgd_load_weights_get(own, k);
            assert_true(pgd_str_equal(got->name, want->name));
            assert_int_equal(got->rank, want->rank);
            assert_int_equal(got->shape[0], want->shape[0]);
            assert_int_equal(got->bytes, want->bytes);
            if (!pgd_str_is(want->name, "rope_freqs.weight")) {
                assert_memory_equal(got->ptr, want->ptr, want->bytes);
                n++;
            }
        }
        assert_int_equal(pgd_load_weights_count(own), pgd_load_weights_count(other));
        assert_true(n > 10);
        pgd_load_weights_close(own);
        pgd_load_weights_close(other);
        assert_int_equal(remove(to), 0);
        test_folder_remove(&f);
    }
}

static void not_written(void **state) {
    static const struct {
        const char *from, *to, *type;
        pgd_status code;
        const char *says;
    } rows[] = {
        {GOLDEN "qwen2.gguf", "/tmp/x.gguf", "q9", PGD_INVALID, "type is \"q9\""},
        {GOLDEN "qwen2.gguf", "/tmp/x.gguf", "int8", PGD_INVALID, "type is \"int8\""},
        {GOLDEN "qwen2.gguf", "/tmp/x", "f16", PGD_INVALID, "ends in .gguf"},
        {GOLDEN "qwen2.gguf", "/nowhere/x.gguf", "f16", PGD_NOT_FOUND, "cannot be made"},
        {PGD_TEST_SOURCE_DIR "/tests/golden/models/llama-longrope", "/tmp/x.gguf", "f16",
         PGD_UNSUPPORTED, "longrope"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        const pgd_load_gguf_write_desc desc = {
            .from = rows[i].from, .to = rows[i].to, .type = rows[i].type};
        assert_int_equal(pgd_load_gguf_write(&desc), rows[i].code);
        test_says(rows[i].code, rows[i].says);
    }
}

static pgd_status write_to(const char *from, const char *to, const char *type) {
    const pgd_load_gguf_write_desc desc = {.from = from, .to = to, .type = type};
    return pgd_load_gguf_write(&desc);
}

// A disk that is full at any place, a folder in the way, a path that is too long.
static void no_place_to_write(void **state) {
    static const rlim_t sizes[] = {0, 64, 1500, 3000, 20000, 60000};
    struct rlimit before;
    test_folder f;
    char to[160], part[180], folder[200];
    static char longest[5000];
    (void)state;
    test_folder_make(&f);
    (void)snprintf(to, sizeof(to), "%s/new.gguf", f.path);
    (void)snprintf(part, sizeof(part), "%s.part", to);
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
    (void)signal(SIGXFSZ, SIG_IGN);
    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
        const struct rlimit small = {.rlim_cur = sizes[i], .rlim_max = before.rlim_max};
        assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
        const pgd_status status = write_to(GOLDEN "llama-llama3.gguf", to, "f32");
        assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
        assert_int_not_equal(status, PGD_OK);
        test_says(status, "cannot be written");
        assert_int_not_equal(access(part, F_OK), 0);
        assert_int_not_equal(access(to, F_OK), 0);
    }
    assert_int_equal(mkdir(to, 0700), 0);
    (void)snprintf(folder, sizeof(folder), "%s/in", to);
    assert_int_equal(mkdir(folder, 0700), 0);
    assert_int_equal(write_to(GOLDEN "qwen2.gguf", to, "f16"), PGD_UNAVAILABLE);
    test_says(PGD_UNAVAILABLE, "cannot be moved to");
    assert_int_equal(rmdir(folder), 0);
    assert_int_equal(rmdir(to), 0);
    memset(longest, 'a', sizeof(longest) - 1);
    memcpy(longest + sizeof(longest) - 6, ".gguf", 6);
    assert_int_equal(write_to(GOLDEN "qwen2.gguf", longest, "f16"), PGD_OUT_OF_RANGE);
    test_says(PGD_OUT_OF_RANGE, "a path of 5004 bytes");
    test_folder_remove(&f);
}

// Models whose files do not agree, and blocks, which are not quantized again.
static void unfit_to_write(void **state) {
    static const struct {
        const char *edit, *says;
        pgd_status code;
    } rows[] = {
        {"s/\"num_hidden_layers\": *[0-9]*/\"num_hidden_layers\": 7/", "no tensor", PGD_NOT_FOUND},
        {"s/\"vocab_size\": *[0-9]*/\"vocab_size\": 255/", "another shape", PGD_INVALID},
        {"s/\"intermediate_size\": *[0-9]*/\"intermediate_size\": 32/", "another shape",
         PGD_INVALID},
    };
    test_folder f;
    char command[900], to[160], again[160];
    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        test_folder_make(&f);
        (void)snprintf(command, sizeof(command),
                       "cp " PGD_TEST_SOURCE_DIR "/tests/golden/models/llama-default/* '%s' && "
                       "sed -i '%s' '%s/config.json'",
                       f.path, rows[i].edit, f.path);
        assert_int_equal(system(command), 0);
        (void)snprintf(to, sizeof(to), "%s/new.gguf", f.path);
        const pgd_status status = write_to(f.path, to, "f16");
        if (status != rows[i].code) {
            fail_msg("row %zu: %d: %s", i, (int)status, pgd_fail_text(status));
        }
        test_says(rows[i].code, rows[i].says);
        (void)snprintf(command, sizeof(command), "rm -r '%s'", f.path);
        assert_int_equal(system(command), 0);
    }
    test_folder_make(&f);
    (void)snprintf(to, sizeof(to), "%s/a.gguf", f.path);
    (void)snprintf(again, sizeof(again), "%s/b.gguf", f.path);
    assert_int_equal(write_to(GOLDEN "llama-llama3.gguf", to, "q8_0"), PGD_OK);
    assert_int_equal(write_to(to, again, "q4_0"), PGD_INVALID);
    test_says(PGD_INVALID, "only F32, F16 and BF16 are quantized");
    assert_int_equal(remove(to), 0);
    test_folder_remove(&f);
}

// Each allocation fails once: the status says so, nothing is left, neither memory nor a file.
static void not_written_without_memory(void **state) {
    static const char *const from[] = {PGD_TEST_SOURCE_DIR "/tests/golden/models/llama-llama3",
                                       GOLDEN "llama-llama3.gguf"};
    (void)state;
    for (size_t i = 0; i < 2; i++) {
        pgd_status status = PGD_OUT_OF_MEMORY;
        test_folder f;
        char to[160];
        test_folder_make(&f);
        (void)snprintf(to, sizeof(to), "%s/new.gguf", f.path);
        const pgd_load_gguf_write_desc desc = {.from = from[i], .to = to, .type = "f16"};
        for (uint64_t n = 1; status != PGD_OK; n++) {
            pgd_mem_fail_nth(n);
            status = pgd_load_gguf_write(&desc);
            pgd_mem_fail_nth(0);
            assert_true(status == PGD_OK || status == PGD_OUT_OF_MEMORY);
            assert_int_equal(pgd_mem_live(), 0);
            assert_int_equal(remove(to) == 0, status == PGD_OK);
        }
        test_folder_remove(&f); // which holds nothing
    }
}

// A scale that is no number is found when the matrix is about to be read.
static void bad_scales(void **state) {
    uint8_t blocks[3 * 144] = {0};
    pgd_load_matrix m = {.scheme = PGD_SCHEME_Q4_K, .n_parts = 1, .name = "w"};
    (void)state;
    m.parts[0].data = (pgd_source){.ptr = blocks, .bytes = sizeof(blocks)};
    assert_int_equal(pgd_load_plan_check(&m), PGD_OK);
    blocks[2 * 144 + 3] = 0x7E; // dmin of block 2: NaN
    assert_int_equal(pgd_load_plan_check(&m), PGD_DATA_LOSS);
    test_says(PGD_DATA_LOSS, "block 2 of part 0 (q4_k)");
    blocks[2 * 144 + 3] = 0xFC; // minus infinity
    assert_int_equal(pgd_load_plan_check(&m), PGD_DATA_LOSS);
    m.scheme = PGD_SCHEME_MXFP4;
    m.parts[0].data.bytes = 3 * 17;
    assert_int_equal(pgd_load_plan_check(&m), PGD_OK);
    blocks[17] = 0xFF;
    assert_int_equal(pgd_load_plan_check(&m), PGD_DATA_LOSS);
    m.scheme = PGD_SCHEME_PLAIN;
    assert_int_equal(pgd_load_plan_check(&m), PGD_OK);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(good_file),         cmocka_unit_test(counts_and_front),
        cmocka_unit_test(wrong_tensors),     cmocka_unit_test(cuts_and_flips),
        cmocka_unit_test(no_memory),         cmocka_unit_test(names),
        cmocka_unit_test(split_sets),        cmocka_unit_test(configs),
        cmocka_unit_test(bad_scales),        cmocka_unit_test(written),
        cmocka_unit_test(not_written),       cmocka_unit_test(not_written_without_memory),
        cmocka_unit_test(no_place_to_write), cmocka_unit_test(unfit_to_write),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
