// config.json -> pgd_load_config: family, shapes and switches (see config.h).
//
// Keys, and what a missing key means, follow the config classes of transformers 5, which read old
// files the same way. Shapes have no default: a file without them is refused. The rope section is
// in config_rope.c; token ids and generation_config.json are in config_generation.c.
#include "load/config.h"

#include <stdio.h>
#include <string.h>

#include "base/fail.h"
#include "base/json.h"
#include "base/mem.h"
#include "load/config_inner.h"
#include "load/folder.h"
#include "load/gguf_model.h"
#include "load/synthetic.h"

#define CONFIG_NAME     "config.json"
#define GENERATION_NAME "generation_config.json"
#define MAX_FILE_BYTES  (16u << 20)
#define MAX_JSON_DEPTH  32
#define DEFAULT_WINDOW  4096
#define DEFAULT_EPS     1e-6

// What a family does, and what it assumes where config.json is silent.
typedef struct family_row {
    int32_t max_position;
    int32_t n_kv_heads; // 0 = n_heads
    int32_t head_dim;   // 0 = hidden / n_heads
    int32_t eos;        // -1 = none
    int32_t bos;
    int32_t has_attention_bias; // the key attention_bias counts: q, k, v and o
    int32_t has_mlp_bias;       // the key mlp_bias counts
    int32_t always_qkv_bias;
    int32_t qk_norm;
} family_row;

static const family_row families[] = {
    [PGD_LOAD_LLAMA] =
        {.max_position = 2048, .eos = 2, .bos = 1, .has_attention_bias = 1, .has_mlp_bias = 1},
    [PGD_LOAD_MISTRAL] = {.max_position = 131072, .n_kv_heads = 8, .eos = 2, .bos = 1},
    [PGD_LOAD_QWEN2] =
        {.max_position = 32768, .n_kv_heads = 32, .eos = -1, .bos = -1, .always_qkv_bias = 1},
    [PGD_LOAD_QWEN3] = {.max_position = 32768,
                        .n_kv_heads = 32,
                        .head_dim = 128,
                        .eos = -1,
                        .bos = -1,
                        .has_attention_bias = 1,
                        .qk_norm = 1},
};

#define COMMA_NAME(name, number, architecture, type) ", " architecture
static const char known_architectures[] = PGD_LOAD_FAMILY_LIST(COMMA_NAME);
#undef COMMA_NAME

const char *pgd_load_family_name(int32_t family) {
    switch (family) {
#define FAMILY_CASE(name, number, architecture, type) \
    case number: return architecture;
        PGD_LOAD_FAMILY_LIST(FAMILY_CASE)
#undef FAMILY_CASE
    default: return "?";
    }
}

// Family of an architecture (is_type 0) or a model_type (1); -1 when there is none.
static int32_t family_of(pgd_str text, int32_t is_type) {
#define FAMILY_TEST(name, number, architecture, type)      \
    if (pgd_str_is(text, is_type ? type : architecture)) { \
        return number;                                     \
    }
    PGD_LOAD_FAMILY_LIST(FAMILY_TEST)
#undef FAMILY_TEST
    return -1;
}

static pgd_status read_family(const pgd_load_fields *f, pgd_load_config *c) {
    const pgd_json *list = pgd_json_get(f->object, "architectures");
    pgd_str text = {0};
    int32_t is_type = 0;
    if (!pgd_json_is(list, PGD_JSON_ARRAY) || list->n == 0 ||
        !pgd_json_to_str(&list->items[0], &text)) {
        if (list != NULL && !pgd_json_is(list, PGD_JSON_NULL)) {
            return pgd_load_fields_wrong(f, "architectures", list, "a list with a name in it");
        }
        is_type = 1;
        PGD_TRY(pgd_load_fields_str(f, "model_type", PGD_LOAD_REQUIRED, &text));
    }
    c->family = family_of(text, is_type);
    if (c->family < 0) {
        return pgd_fail(PGD_UNSUPPORTED, "%s: the %s \"%.*s\" is not known; known are %s", f->file,
                        is_type ? "model_type" : "architecture", PGD_LOAD_SHOW(text),
                        known_architectures + 2);
    }
    (void)snprintf(c->architecture, sizeof(c->architecture), "%s", pgd_load_family_name(c->family));
    return PGD_OK;
}

static pgd_status check_quantization(const pgd_load_fields *f) {
    pgd_str method = PGD_STR("(no quant_method)");
    if (!pgd_load_fields_has(f, "quantization_config")) {
        return PGD_OK;
    }
    const pgd_json *v = pgd_json_get(f->object, "quantization_config");
    (void)pgd_json_to_str(pgd_json_get(v, "quant_method"), &method);
    return pgd_fail(PGD_UNSUPPORTED,
                    "%s: the weights are quantized with \"%.*s\", which is not supported; plain "
                    "f32, bf16 and f16 are",
                    f->file, PGD_LOAD_SHOW(method));
}

static pgd_status read_heads(const pgd_load_fields *f, pgd_load_config *c) {
    const family_row *row = &families[c->family];
    int32_t given = pgd_json_get(f->object, "num_key_value_heads") != NULL;
    PGD_TRY(pgd_load_fields_i32(f, "num_attention_heads", PGD_LOAD_REQUIRED, 1, PGD_LOAD_MAX_HEADS,
                                &c->n_heads));
    c->n_kv_heads = given || row->n_kv_heads == 0 ? c->n_heads : row->n_kv_heads;
    PGD_TRY(pgd_load_fields_i32(f, "num_key_value_heads", PGD_LOAD_OPTIONAL, 1, PGD_LOAD_MAX_HEADS,
                                &c->n_kv_heads));
    if (c->n_heads % c->n_kv_heads != 0) {
        return pgd_fail(PGD_INVALID,
                        "%s: \"num_key_value_heads\" is %d%s; a divisor of num_attention_heads "
                        "(%d) is needed",
                        f->file, (int)c->n_kv_heads, given ? "" : " (by default)", (int)c->n_heads);
    }
    if (pgd_load_fields_has(f, "head_dim")) {
        PGD_TRY(pgd_load_fields_i32(f, "head_dim", PGD_LOAD_REQUIRED, 2, PGD_LOAD_MAX_HEAD_DIM,
                                    &c->head_dim));
    } else if (row->head_dim != 0 && pgd_json_get(f->object, "head_dim") == NULL) {
        c->head_dim = row->head_dim;
    } else {
        if (c->hidden % c->n_heads != 0) {
            return pgd_fail(PGD_INVALID,
                            "%s: \"hidden_size\" is %d; without head_dim a multiple of "
                            "num_attention_heads (%d) is needed",
                            f->file, (int)c->hidden, (int)c->n_heads);
        }
        c->head_dim = c->hidden / c->n_heads;
    }
    if (c->head_dim % 2 != 0 || c->head_dim < 2 || c->head_dim > PGD_LOAD_MAX_HEAD_DIM) {
        return pgd_fail(PGD_INVALID,
                        "%s: \"head_dim\" is %d; an even number from 2 to %d is needed", f->file,
                        (int)c->head_dim, PGD_LOAD_MAX_HEAD_DIM);
    }
    return PGD_OK;
}

static pgd_status read_shapes(const pgd_load_fields *f, pgd_load_config *c) {
    c->max_position = families[c->family].max_position;
    c->norm_eps = DEFAULT_EPS;
    PGD_TRY(pgd_load_fields_i32(f, "num_hidden_layers", PGD_LOAD_REQUIRED, 1, PGD_LOAD_MAX_LAYERS,
                                &c->n_layers));
    PGD_TRY(pgd_load_fields_i32(f, "hidden_size", PGD_LOAD_REQUIRED, 1, PGD_LOAD_MAX_HIDDEN,
                                &c->hidden));
    PGD_TRY(pgd_load_fields_i32(f, "intermediate_size", PGD_LOAD_REQUIRED, 1, PGD_LOAD_MAX_WIDTH,
                                &c->intermediate));
    PGD_TRY(
        pgd_load_fields_i32(f, "vocab_size", PGD_LOAD_REQUIRED, 1, PGD_LOAD_MAX_VOCAB, &c->vocab));
    PGD_TRY(pgd_load_fields_i32(f, "max_position_embeddings", PGD_LOAD_OPTIONAL, 1,
                                PGD_LOAD_MAX_POSITION, &c->max_position));
    PGD_TRY(pgd_load_fields_f64(f, "rms_norm_eps", PGD_LOAD_OPTIONAL, 0, 1, &c->norm_eps));
    return read_heads(f, c);
}

static pgd_status read_act(const pgd_load_fields *f, pgd_load_config *c) {
    static const struct {
        const char *name;
        int32_t act;
    } acts[] = {
        {"silu", PGD_ACT_SILU},          {"swish", PGD_ACT_SILU},
        {"gelu", PGD_ACT_GELU},          {"gelu_pytorch_tanh", PGD_ACT_GELU_TANH},
        {"gelu_new", PGD_ACT_GELU_TANH}, {"relu", PGD_ACT_RELU},
    };
    pgd_str text = PGD_STR("silu");
    PGD_TRY(pgd_load_fields_str(f, "hidden_act", PGD_LOAD_OPTIONAL, &text));
    for (size_t i = 0; i < sizeof(acts) / sizeof(acts[0]); i++) {
        if (pgd_str_is(text, acts[i].name)) {
            c->act = acts[i].act;
            return PGD_OK;
        }
    }
    return pgd_fail(PGD_UNSUPPORTED,
                    "%s: \"hidden_act\" is \"%.*s\", which is not supported; silu, gelu, "
                    "gelu_pytorch_tanh, gelu_new and relu are",
                    f->file, PGD_LOAD_SHOW(text));
}

static pgd_status read_dtype(const pgd_load_fields *f, pgd_load_config *c) {
    const char *key = pgd_load_fields_has(f, "dtype") ? "dtype" : "torch_dtype";
    pgd_str text = {0};
    c->dtype = PGD_DTYPE_NONE;
    PGD_TRY(pgd_load_fields_str(f, key, PGD_LOAD_OPTIONAL, &text));
    if (text.ptr == NULL) {
        return PGD_OK;
    }
    c->dtype = pgd_str_is(text, "float32")    ? PGD_F32
               : pgd_str_is(text, "bfloat16") ? PGD_BF16
               : pgd_str_is(text, "float16")  ? PGD_F16
                                              : PGD_DTYPE_NONE;
    if (c->dtype == PGD_DTYPE_NONE) {
        return pgd_fail(PGD_UNSUPPORTED,
                        "%s: \"%s\" is \"%.*s\", which is not supported; float32, bfloat16 and "
                        "float16 are",
                        f->file, key, PGD_LOAD_SHOW(text));
    }
    return PGD_OK;
}

static pgd_status read_switches(const pgd_load_fields *f, pgd_load_config *c) {
    const family_row *row = &families[c->family];
    int32_t attention_bias = 0;
    PGD_TRY(pgd_load_fields_bool(f, "tie_word_embeddings", PGD_LOAD_OPTIONAL, &c->tied));
    if (row->has_attention_bias) {
        PGD_TRY(pgd_load_fields_bool(f, "attention_bias", PGD_LOAD_OPTIONAL, &attention_bias));
    }
    if (row->has_mlp_bias) {
        PGD_TRY(pgd_load_fields_bool(f, "mlp_bias", PGD_LOAD_OPTIONAL, &c->mlp_bias));
    }
    c->attention_bias = attention_bias || row->always_qkv_bias;
    c->o_bias = attention_bias;
    c->qk_norm = row->qk_norm;
    PGD_TRY(read_act(f, c));
    return read_dtype(f, c);
}

// Marks the layers that layer_types calls sliding.
static pgd_status read_layer_types(const pgd_load_fields *f, int32_t window, pgd_load_config *c) {
    const pgd_json *list = pgd_json_get(f->object, "layer_types");
    if (!pgd_json_is(list, PGD_JSON_ARRAY) || list->n != (uint32_t)c->n_layers) {
        return pgd_load_fields_wrong(f, "layer_types", list, "a list with one entry per layer");
    }
    for (int32_t i = 0; i < c->n_layers; i++) {
        pgd_str text = {0};
        int32_t is_str = pgd_json_to_str(&list->items[i], &text);
        if (is_str && pgd_str_is(text, "sliding_attention")) {
            c->window[i] = window;
        } else if (!is_str || !pgd_str_is(text, "full_attention")) {
            return pgd_load_fields_wrong(f, "layer_types", &list->items[i],
                                         "\"full_attention\" or \"sliding_attention\"");
        }
    }
    return PGD_OK;
}

// Mistral: every layer slides unless sliding_window is null. Qwen: only with use_sliding_window,
// the layers from max_window_layers on, or those of layer_types. Llama: none.
static pgd_status read_windows(const pgd_load_fields *f, pgd_load_config *c) {
    const pgd_json *given = pgd_json_get(f->object, "sliding_window");
    int32_t window = given == NULL ? DEFAULT_WINDOW : 0;
    int32_t first = 0;
    int32_t used = c->family == PGD_LOAD_MISTRAL;
    c->window = pgd_mem_alloc((size_t)c->n_layers, sizeof(c->window[0]));
    if (c->window == NULL) {
        return PGD_MEM_FAIL("the windows of the layers", (size_t)c->n_layers * sizeof(int32_t));
    }
    if (c->family == PGD_LOAD_LLAMA) {
        return PGD_OK;
    }
    if (c->family != PGD_LOAD_MISTRAL) {
        first = 28;
        PGD_TRY(pgd_load_fields_bool(f, "use_sliding_window", PGD_LOAD_OPTIONAL, &used));
        PGD_TRY(
            pgd_load_fields_i32(f, "max_window_layers", PGD_LOAD_OPTIONAL, 0, INT32_MAX, &first));
    }
    if (!used) {
        return PGD_OK;
    }
    PGD_TRY(pgd_load_fields_i32(f, "sliding_window", PGD_LOAD_OPTIONAL, 1, INT32_MAX, &window));
    if (c->family != PGD_LOAD_MISTRAL && pgd_load_fields_has(f, "layer_types")) {
        return read_layer_types(f, window, c);
    }
    for (int32_t i = first; i < c->n_layers; i++) {
        c->window[i] = window;
    }
    return PGD_OK;
}

static pgd_status read_tokens(const pgd_load_fields *f, pgd_load_config *c) {
    const family_row *row = &families[c->family];
    c->bos = pgd_json_get(f->object, "bos_token_id") == NULL ? row->bos : -1;
    c->pad = -1;
    if (row->eos >= 0 && pgd_json_get(f->object, "eos_token_id") == NULL) {
        c->eos[0] = row->eos;
        c->n_eos = 1;
    }
    return pgd_load_config_tokens(f, c);
}

static pgd_status read_config(const pgd_load_fields *f, pgd_load_config *c) {
    PGD_TRY(read_family(f, c));
    PGD_TRY(check_quantization(f));
    PGD_TRY(read_shapes(f, c));
    PGD_TRY(read_switches(f, c));
    PGD_TRY(read_windows(f, c));
    PGD_TRY(pgd_load_config_rope(f, c));
    return read_tokens(f, c);
}

typedef pgd_status (*part_reader)(const pgd_load_fields *f, pgd_load_config *c);

// Parses one file's text and hands its object to fn.
static pgd_status read_part(pgd_str text, const char *folder, const char *name, part_reader fn,
                            pgd_load_config *c) {
    pgd_json_doc *doc = NULL;
    char *path = NULL;
    PGD_TRY(pgd_load_folder_join(folder, pgd_str_of(name), &path));
    pgd_status status = pgd_json_parse(text, path, MAX_JSON_DEPTH, &doc);
    if (status == PGD_OK) {
        pgd_load_fields f = {.file = path, .group = "", .object = pgd_json_root(doc)};
        status = pgd_json_is(f.object, PGD_JSON_OBJECT)
                     ? fn(&f, c)
                     : pgd_fail(PGD_INVALID, "%s: a JSON object is needed", path);
    }
    pgd_json_free(doc);
    pgd_mem_free(path);
    return status;
}

pgd_status pgd_load_config_parse(const char *config, size_t config_len, const char *generation,
                                 size_t generation_len, const char *what, pgd_load_config **out) {
    *out = NULL;
    pgd_load_config *c = pgd_mem_alloc(1, sizeof(*c));
    if (c == NULL) {
        return PGD_MEM_FAIL("the model's configuration", sizeof(*c));
    }
    pgd_status status = read_part((pgd_str){config, config_len}, what, CONFIG_NAME, read_config, c);
    if (status == PGD_OK && generation_len != 0) {
        status = read_part((pgd_str){generation, generation_len}, what, GENERATION_NAME,
                           pgd_load_config_generation, c);
    }
    if (status != PGD_OK) {
        pgd_load_config_free(c);
        return status;
    }
    *out = c;
    return PGD_OK;
}

void pgd_load_config_free(pgd_load_config *c) {
    if (c == NULL) {
        return;
    }
    pgd_mem_free(c->rope.short_factor);
    pgd_mem_free(c->rope.long_factor);
    pgd_mem_free(c->window);
    pgd_mem_free(c);
}

pgd_status pgd_load_config_read(const char *folder, pgd_load_config **out) {
    char *config_path = NULL;
    char *generation_path = NULL;
    pgd_os_map config = {0};
    pgd_os_map generation = {0};
    *out = NULL;
    if (pgd_load_synthetic_is(folder)) {
        return pgd_load_synthetic_config(folder, out);
    }
    if (pgd_load_gguf_is(folder)) {
        return pgd_load_gguf_config(folder, out);
    }
    pgd_status status = pgd_load_folder_join(folder, PGD_STR(CONFIG_NAME), &config_path);
    if (status == PGD_OK) {
        status = pgd_load_folder_join(folder, PGD_STR(GENERATION_NAME), &generation_path);
    }
    if (status == PGD_OK) {
        status = pgd_load_folder_map(config_path, MAX_FILE_BYTES, &config);
    }
    if (status == PGD_OK && pgd_os_kind(generation_path, NULL) != PGD_OS_NONE) {
        status = pgd_load_folder_map(generation_path, MAX_FILE_BYTES, &generation);
    }
    if (status == PGD_OK) {
        pgd_str text = pgd_load_folder_text(&config);
        pgd_str more = pgd_load_folder_text(&generation);
        status = pgd_load_config_parse(text.ptr, text.len, more.ptr, more.len, folder, out);
    }
    pgd_os_unmap(&generation);
    pgd_os_unmap(&config);
    pgd_mem_free(generation_path);
    pgd_mem_free(config_path);
    return status;
}
