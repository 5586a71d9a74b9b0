// Synthetic models (see synthetic.h).
//
//   name -> shape's config.json (below, or a file) -> config -> names and shapes of its tensors
//   | tensor 0 ... | tensor 1 ... | ...   one reservation, each tensor from a page of its own
#include "load/synthetic.h"

#include <stdio.h>
#include <string.h>

#include "base/fail.h"
#include "base/mem.h"
#include "load/fields.h"
#include "load/folder.h"
#include "load/plan.h"
#include "os/memory.h"
#include "ref/ref.h"

#define PREFIX      "synthetic:"
#define NAME_CAP    96
#define PATH_CAP    4096
#define MAX_CONFIG  (1u << 20)
#define LEVEL_BITS  12
#define N_LEVELS    (1u << LEVEL_BITS)
#define N_BLOCKS    1024u
#define LEVEL_RANGE 0.034641016151377546 // sqrt(3) * 0.02: a uniform number of that deviation

typedef struct shape_row {
    const char *name;
    const char *config; // NULL: known but not supported
} shape_row;

// The numbers of the models' own config.json files.
static const shape_row shapes[] = {
    {"qwen2.5-0.5b",
     "{\"architectures\":[\"Qwen2ForCausalLM\"],\"model_type\":\"qwen2\",\"hidden_act\":\"silu\","
     "\"hidden_size\":896,\"intermediate_size\":4864,\"num_hidden_layers\":24,"
     "\"num_attention_heads\":14,\"num_key_value_heads\":2,\"vocab_size\":151936,"
     "\"max_position_embeddings\":32768,\"rms_norm_eps\":1e-6,\"rope_theta\":1000000.0,"
     "\"tie_word_embeddings\":true,\"bos_token_id\":151643,\"eos_token_id\":151643}"},
    {"llama-3.2-1b",
     "{\"architectures\":[\"LlamaForCausalLM\"],\"model_type\":\"llama\",\"hidden_act\":\"silu\","
     "\"hidden_size\":2048,\"intermediate_size\":8192,\"num_hidden_layers\":16,"
     "\"num_attention_heads\":32,\"num_key_value_heads\":8,\"head_dim\":64,\"vocab_size\":128256,"
     "\"max_position_embeddings\":131072,\"rms_norm_eps\":1e-5,\"rope_theta\":500000.0,"
     "\"rope_scaling\":{\"rope_type\":\"llama3\",\"factor\":32.0,\"low_freq_factor\":1.0,"
     "\"high_freq_factor\":4.0,\"original_max_position_embeddings\":8192},"
     "\"tie_word_embeddings\":true,\"bos_token_id\":128000,\"eos_token_id\":128001}"},
    {"llama-3.1-8b",
     "{\"architectures\":[\"LlamaForCausalLM\"],\"model_type\":\"llama\",\"hidden_act\":\"silu\","
     "\"hidden_size\":4096,\"intermediate_size\":14336,\"num_hidden_layers\":32,"
     "\"num_attention_heads\":32,\"num_key_value_heads\":8,\"vocab_size\":128256,"
     "\"max_position_embeddings\":131072,\"rms_norm_eps\":1e-5,\"rope_theta\":500000.0,"
     "\"rope_scaling\":{\"rope_type\":\"llama3\",\"factor\":8.0,\"low_freq_factor\":1.0,"
     "\"high_freq_factor\":4.0,\"original_max_position_embeddings\":8192},"
     "\"tie_word_embeddings\":false,\"bos_token_id\":128000,\"eos_token_id\":128001}"},
    {"qwen3-30b-a3b", NULL},
};

#define SHAPES_ALLOWED \
    "qwen2.5-0.5b, llama-3.2-1b, llama-3.1-8b or the path of a config.json is allowed"

typedef struct synthetic_name {
    pgd_str shape;
    int32_t dtype; // of vectors, and of matrices without a scheme
    int32_t scheme;
    uint64_t seed;
} synthetic_name;

typedef struct synthetic_tensor {
    pgd_load_tensor tensor;
    char name[NAME_CAP];
    uint64_t offset; // in the reservation
} synthetic_tensor;

struct pgd_load_synthetic {
    char *file; // the model's name, for sentences
    synthetic_tensor *tensors;
    uint32_t n;
    uint32_t cap;
    unsigned char *room;
    uint64_t room_bytes;
    uint64_t seed;
    int32_t dtype;
    int32_t scheme;
    int32_t tied;
    int32_t reserved0;
    unsigned char *blocks[PGD_SCHEME_INT8]; // [N_BLOCKS] of each scheme in use, made when needed
    unsigned char levels[N_LEVELS * sizeof(float)]; // [N_LEVELS] numbers of dtype
};

// ---- names -------------------------------------------------------------------------------------

int32_t pgd_load_synthetic_is(const char *name) {
    return name != NULL && pgd_str_starts(pgd_str_of(name), PGD_STR(PREFIX));
}

static pgd_status read_option(const char *name, pgd_str option, synthetic_name *out) {
    static const int32_t known[] = {PGD_F32, PGD_BF16, PGD_F16};
    for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++) {
        if (pgd_str_is(option, pgd_dtype_name(known[i]))) {
            out->dtype = known[i];
            return PGD_OK;
        }
    }
    char scheme[16] = "";
    if (option.len < sizeof(scheme)) {
        memcpy(scheme, option.ptr, option.len);
        out->scheme = pgd_load_scheme_of(scheme);
        if (out->scheme != PGD_SCHEME_PLAIN) {
            out->dtype = PGD_F32;
            return PGD_OK;
        }
    }
    pgd_str key = PGD_STR("seed=");
    if (pgd_str_starts(option, key) &&
        pgd_str_to_u64((pgd_str){option.ptr + key.len, option.len - key.len}, &out->seed)) {
        return PGD_OK;
    }
    return pgd_fail(PGD_INVALID,
                    "model \"%.*s\": \"%.*s\" is no dtype and no seed; f32, bf16, f16, "
                    "" PGD_LOAD_SCHEMES " or seed=N is allowed",
                    PGD_LOAD_SHOW(pgd_str_of(name)), PGD_LOAD_SHOW(option));
}

static pgd_status read_name(const char *name, synthetic_name *out) {
    pgd_str rest = pgd_str_of(name);
    pgd_str options = {0};
    *out = (synthetic_name){.dtype = PGD_BF16};
    rest.ptr += sizeof(PREFIX) - 1;
    rest.len -= sizeof(PREFIX) - 1;
    out->shape = pgd_str_cut(rest, ',', &options);
    while (options.len > 0) {
        pgd_str option = pgd_str_cut(options, ',', &options);
        PGD_TRY(read_option(name, option, out));
    }
    return PGD_OK;
}

// ---- configuration -----------------------------------------------------------------------------

static pgd_status read_file(const char *name, pgd_str shape, pgd_load_config **out) {
    char path[PATH_CAP];
    pgd_os_map map = {0};
    if (shape.len >= sizeof(path)) {
        return pgd_fail(PGD_OUT_OF_RANGE, "a model path of %zu bytes; at most %d are allowed",
                        shape.len, PATH_CAP - 1);
    }
    memcpy(path, shape.ptr, shape.len);
    path[shape.len] = '\0';
    int32_t kind = pgd_os_kind(path, NULL);
    if (kind == PGD_OS_FOLDER) {
        return pgd_load_config_read(path, out);
    }
    if (kind != PGD_OS_REGULAR) {
        return pgd_fail(PGD_INVALID,
                        "model \"%.*s\": the shape \"%.*s\" is unknown; " SHAPES_ALLOWED,
                        PGD_LOAD_SHOW(pgd_str_of(name)), PGD_LOAD_SHOW(shape));
    }
    PGD_TRY(pgd_load_folder_map(path, MAX_CONFIG, &map));
    pgd_str text = pgd_load_folder_text(&map);
    pgd_status status = pgd_load_config_parse(text.ptr, text.len, NULL, 0, path, out);
    pgd_os_unmap(&map);
    return status;
}

static pgd_status read_shape(const char *name, pgd_str shape, pgd_load_config **out) {
    for (size_t i = 0; i < sizeof(shapes) / sizeof(shapes[0]); i++) {
        const char *config = shapes[i].config;
        if (!pgd_str_is(shape, shapes[i].name)) {
            continue;
        }
        if (config == NULL) {
            return pgd_fail(PGD_UNSUPPORTED,
                            "model \"%.*s\": a mixture of experts, which is not supported in this "
                            "version; " SHAPES_ALLOWED,
                            PGD_LOAD_SHOW(pgd_str_of(name)));
        }
        return pgd_load_config_parse(config, strlen(config), NULL, 0, shapes[i].name, out);
    }
    return read_file(name, shape, out);
}

pgd_status pgd_load_synthetic_config(const char *name, pgd_load_config **out) {
    synthetic_name parts;
    *out = NULL;
    PGD_TRY(read_name(name, &parts));
    PGD_TRY(read_shape(name, parts.shape, out));
    (*out)->dtype = parts.scheme == PGD_SCHEME_PLAIN ? parts.dtype : PGD_DTYPE_NONE;
    return PGD_OK;
}

// ---- numbers -----------------------------------------------------------------------------------

static uint16_t to_bf16(float v) {
    uint32_t bits = 0;
    memcpy(&bits, &v, sizeof(bits));
    return (uint16_t)((bits + 0x7FFF + (bits >> 16 & 1)) >> 16);
}

// For |v| below 65504; to nearest, ties away from zero below the normal numbers.
static uint16_t to_f16(float v) {
    uint32_t bits = 0;
    memcpy(&bits, &v, sizeof(bits));
    uint32_t sign = bits >> 16 & 0x8000;
    uint32_t rest = bits & 0x7FFFFFFF;
    if (rest < 0x38800000) { // below 2^-14
        double magnitude = (double)(v < 0 ? -v : v);
        return (uint16_t)(sign | (uint32_t)(magnitude * 16777216.0 + 0.5));
    }
    rest += 0x0FFF + (rest >> 13 & 1);
    return (uint16_t)(sign | ((rest - 0x38000000) >> 13));
}

static void put_number(int32_t dtype, float v, unsigned char *out) {
    uint16_t half = 0;
    if (dtype == PGD_F32) {
        memcpy(out, &v, sizeof(v));
        return;
    }
    half = dtype == PGD_BF16 ? to_bf16(v) : to_f16(v);
    memcpy(out, &half, sizeof(half));
}

static void make_levels(pgd_load_synthetic *s) {
    uint32_t bytes = pgd_dtype_bytes(s->dtype);
    for (uint32_t i = 0; i < N_LEVELS; i++) {
        double v = (2.0 * i + 1.0 - N_LEVELS) / N_LEVELS * LEVEL_RANGE;
        put_number(s->dtype, (float)v, s->levels + (size_t)i * bytes);
    }
}

// The finalizer of SplitMix64 (Steele, Lea, Flood 2014).
static uint64_t mix(uint64_t z) {
    z = (z ^ z >> 30) * UINT64_C(0xBF58476D1CE4E5B9);
    z = (z ^ z >> 27) * UINT64_C(0x94D049BB133111EB);
    return z ^ z >> 31;
}

static uint64_t key_of(const pgd_load_synthetic *s, const synthetic_tensor *t) {
    uint64_t key = mix(s->seed + UINT64_C(0x9E3779B97F4A7C15));
    for (const char *c = t->name; *c != '\0'; c++) {
        key = mix(key ^ (uint64_t)(unsigned char)*c) + UINT64_C(0x9E3779B97F4A7C15);
    }
    return key;
}

#define PER_DRAW 5 // numbers of LEVEL_BITS from one draw of 64

static void draw_16(const uint16_t *levels, uint64_t key, uint64_t n, uint16_t *out) {
    for (uint64_t i = 0; i < n; i += PER_DRAW) {
        uint64_t bits = mix(key + i);
        for (uint64_t j = i; j < i + PER_DRAW && j < n; j++) {
            out[j] = levels[bits & (N_LEVELS - 1)];
            bits >>= LEVEL_BITS;
        }
    }
}

static void draw_32(const uint32_t *levels, uint64_t key, uint64_t n, uint32_t *out) {
    for (uint64_t i = 0; i < n; i += PER_DRAW) {
        uint64_t bits = mix(key + i);
        for (uint64_t j = i; j < i + PER_DRAW && j < n; j++) {
            out[j] = levels[bits & (N_LEVELS - 1)];
            bits >>= LEVEL_BITS;
        }
    }
}

static int32_t is_norm(const synthetic_tensor *t) {
    return t->tensor.rank == 1 && pgd_str_ends(t->tensor.name, PGD_STR("norm.weight"));
}

// Blocks of numbers of the levels' range.
static pgd_status make_blocks(pgd_load_synthetic *s, int32_t scheme) {
    const uint32_t bytes = pgd_scheme_bytes(scheme), elements = pgd_scheme_elements(scheme);
    float x[256];
    if (bytes == 0 || s->blocks[scheme] != NULL) {
        return PGD_OK;
    }
    s->blocks[scheme] = pgd_mem_alloc(N_BLOCKS, bytes);
    if (s->blocks[scheme] == NULL) {
        return PGD_MEM_FAIL("blocks of a synthetic model", N_BLOCKS * (size_t)bytes);
    }
    for (uint32_t i = 0; i < N_BLOCKS; i++) {
        for (uint32_t k = 0; k < elements; k++) {
            const double v = (double)(mix(i * 256 + k) >> 11) / 9007199254740992.0; // 2^53
            x[k] = (float)((2 * v - 1) * LEVEL_RANGE);
        }
        pgd_ref_quantize(scheme, x, elements, s->blocks[scheme] + (size_t)i * bytes);
    }
    return PGD_OK;
}

static void draw_blocks(const unsigned char *blocks, uint32_t bytes, uint64_t key, uint64_t n,
                        unsigned char *out) {
    for (uint64_t i = 0; i < n; i++) {
        memcpy(out + i * bytes, blocks + (size_t)(mix(key + i) % N_BLOCKS) * bytes, bytes);
    }
}

static void draw_int8(uint64_t key, uint64_t n_rows, uint64_t n, unsigned char *out,
                      unsigned char *scales) {
    const float scale = (float)(LEVEL_RANGE / 127);
    for (uint64_t i = 0; i < n; i += 8) {
        uint64_t bits = mix(key + i);
        for (uint64_t j = i; j < i + 8 && j < n; j++, bits >>= 8) {
            out[j] = (unsigned char)((bits & 0xFF) == 0x80 ? 0 : bits & 0xFF); // -127 .. 127
        }
    }
    for (uint64_t r = 0; r < n_rows; r++) {
        memcpy(scales + r * sizeof(scale), &scale, sizeof(scale));
    }
}

// A matrix with a scheme.
static void fill_quantized(const pgd_load_synthetic *s, const synthetic_tensor *t) {
    const int32_t scheme = t->tensor.scheme;
    unsigned char *to = s->room + t->offset;
    if (scheme == PGD_SCHEME_INT8) {
        const uint64_t rows = (uint64_t)t->tensor.shape[0];
        draw_int8(key_of(s, t), rows, rows * (uint64_t)t->tensor.shape[1], to,
                  to + t->tensor.bytes - rows * sizeof(float));
    } else {
        const uint32_t bytes = pgd_scheme_bytes(scheme);
        draw_blocks(s->blocks[scheme], bytes, key_of(s, t), t->tensor.bytes / bytes, to);
    }
}

static void fill(const pgd_load_synthetic *s, const synthetic_tensor *t) {
    if (t->tensor.scheme != PGD_SCHEME_PLAIN) {
        fill_quantized(s, t);
        return;
    }
    uint32_t bytes = pgd_dtype_bytes(s->dtype);
    unsigned char *to = s->room + t->offset;
    uint64_t n = t->tensor.bytes / bytes;
    if (is_norm(t)) {
        for (uint64_t i = 0; i < n; i++) {
            put_number(s->dtype, 1.0f, to + i * bytes);
        }
    } else if (s->dtype == PGD_F32) {
        draw_32((const uint32_t *)(const void *)s->levels, key_of(s, t), n, (uint32_t *)(void *)to);
    } else {
        draw_16((const uint16_t *)(const void *)s->levels, key_of(s, t), n, (uint16_t *)(void *)to);
    }
}

// ---- tensors -----------------------------------------------------------------------------------

static pgd_status add_tensor(void *arg, const char *name, int64_t n, int64_t k) {
    pgd_load_synthetic *s = arg;
    if (s->n == s->cap) {
        uint32_t cap = s->cap != 0 ? 2 * s->cap : 64;
        synthetic_tensor *more = pgd_mem_realloc(s->tensors, cap, sizeof(*more));
        if (more == NULL) {
            return PGD_MEM_FAIL("the list of tensors", (size_t)cap * sizeof(*more));
        }
        s->tensors = more;
        s->cap = cap;
    }
    synthetic_tensor *t = &s->tensors[s->n++];
    uint64_t page = pgd_os_memory_page();
    *t = (synthetic_tensor){.offset = s->room_bytes};
    (void)snprintf(t->name, sizeof(t->name), "%s", name);
    t->tensor = (pgd_load_tensor){.dtype = s->dtype,
                                  .rank = k != 0 ? 2 : 1,
                                  .shape = {n, k},
                                  .bytes = (uint64_t)n * (uint64_t)(k != 0 ? k : 1) *
                                           pgd_dtype_bytes(s->dtype)};
    if (k != 0 && s->scheme != PGD_SCHEME_PLAIN) {
        const int32_t is_head = strcmp(name, "lm_head.weight") == 0 ||
                                (s->tied && strcmp(name, "model.embed_tokens.weight") == 0);
        t->tensor.scheme = pgd_load_scheme_for(s->scheme, k, is_head);
    }
    if (t->tensor.scheme != PGD_SCHEME_PLAIN) {
        t->tensor.dtype = PGD_DTYPE_NONE;
        t->tensor.bytes = (uint64_t)n * pgd_ref_row_bytes(t->tensor.scheme, 0, k);
        if (t->tensor.scheme == PGD_SCHEME_INT8) { // rows, padding to 4, scales
            t->tensor.bytes = (t->tensor.bytes + 3) / 4 * 4 + (uint64_t)n * sizeof(float);
        }
        PGD_TRY(make_blocks(s, t->tensor.scheme));
    }
    s->room_bytes += (t->tensor.bytes + page - 1) / page * page;
    return PGD_OK;
}

static const char *stored_name(int32_t scheme, int32_t dtype) {
    if (scheme != PGD_SCHEME_PLAIN) {
        return pgd_scheme_name(scheme);
    }
    return dtype == PGD_F32 ? "F32" : (dtype == PGD_BF16 ? "BF16" : "F16");
}

static pgd_status make(const char *name, pgd_load_synthetic *s) {
    synthetic_name parts;
    pgd_load_config *config = NULL;
    void *room = NULL;
    PGD_TRY(read_name(name, &parts));
    PGD_TRY(pgd_mem_copy_text(name, &s->file));
    s->seed = parts.seed;
    s->dtype = parts.dtype;
    s->scheme = parts.scheme;
    PGD_TRY(pgd_load_synthetic_config(name, &config));
    s->tied = config->tied;
    pgd_status status = pgd_load_plan_walk(config, add_tensor, s);
    pgd_load_config_free(config);
    PGD_TRY(status);
    if (pgd_os_memory_reserve(s->room_bytes, &room) != PGD_OK) {
        return PGD_MEM_FAIL("the address room of a synthetic model", s->room_bytes);
    }
    s->room = room;
    make_levels(s);
    for (uint32_t i = 0; i < s->n; i++) {
        synthetic_tensor *t = &s->tensors[i];
        t->tensor.name = pgd_str_of(t->name);
        t->tensor.ptr = s->room + t->offset;
        t->tensor.file = s->file;
        t->tensor.stored = stored_name(t->tensor.scheme, s->dtype);
        if (t->tensor.rank == 1) {
            fill(s, t);
        }
    }
    return PGD_OK;
}

pgd_status pgd_load_synthetic_create(const char *name, pgd_load_synthetic **out) {
    *out = NULL;
    pgd_load_synthetic *s = pgd_mem_alloc(1, sizeof(*s));
    if (s == NULL) {
        return PGD_MEM_FAIL("a synthetic model", sizeof(*s));
    }
    pgd_status status = make(name, s);
    if (status != PGD_OK) {
        pgd_load_synthetic_destroy(s);
        return status;
    }
    *out = s;
    return PGD_OK;
}

void pgd_load_synthetic_destroy(pgd_load_synthetic *s) {
    if (s == NULL) {
        return;
    }
    pgd_os_memory_release(s->room, s->room_bytes);
    for (int32_t i = 0; i < PGD_SCHEME_INT8; i++) {
        pgd_mem_free(s->blocks[i]);
    }
    pgd_mem_free(s->tensors);
    pgd_mem_free(s->file);
    pgd_mem_free(s);
}

uint32_t pgd_load_synthetic_count(const pgd_load_synthetic *s) {
    return s->n;
}

const pgd_load_tensor *pgd_load_synthetic_get(const pgd_load_synthetic *s, uint32_t i) {
    return i < s->n ? &s->tensors[i].tensor : NULL;
}

// NUMBERS is raised with each change of how numbers are made.
#define NUMBERS 1
pgd_status pgd_load_synthetic_identity(const pgd_load_synthetic *s, pgd_text *t) {
    PGD_TRY(pgd_text_format(t, "synthetic %d %llu %s\n", NUMBERS, (unsigned long long)s->seed,
                            s->scheme != PGD_SCHEME_PLAIN ? pgd_scheme_name(s->scheme)
                                                          : pgd_dtype_name(s->dtype)));
    for (uint32_t i = 0; i < s->n; i++) {
        const synthetic_tensor *x = &s->tensors[i];
        PGD_TRY(pgd_text_format(t, "%s %lld %lld\n", x->name, (long long)x->tensor.shape[0],
                                (long long)x->tensor.shape[1]));
    }
    return PGD_OK;
}

static const synthetic_tensor *find(const pgd_load_synthetic *s, const void *ptr) {
    for (uint32_t i = 0; i < s->n; i++) {
        if (s->tensors[i].tensor.ptr == ptr) {
            return &s->tensors[i];
        }
    }
    return NULL;
}

void pgd_load_synthetic_fill(pgd_load_synthetic *s, const void *ptr) {
    const synthetic_tensor *t = find(s, ptr);
    if (t != NULL) {
        fill(s, t);
    }
}

void pgd_load_synthetic_drop(pgd_load_synthetic *s, const void *ptr) {
    const synthetic_tensor *t = find(s, ptr);
    if (t != NULL && t->tensor.rank != 1) {
        pgd_os_memory_drop(t->tensor.ptr, t->tensor.bytes);
    }
}
