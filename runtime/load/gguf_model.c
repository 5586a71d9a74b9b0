// GGUF metadata -> the configuration (see gguf_model.h).
#include "load/gguf_model.h"

#include <stdio.h>
#include <string.h>

#include "base/fail.h"
#include "base/json.h"
#include "base/mem.h"
#include "load/fields.h"
#include "load/vector.h"

// ---- names of tensors --------------------------------------------------------------------------

// X(name in Hugging Face layout, name in GGUF), without the ending .weight or .bias
#define TOP_NAMES(X)                      \
    X("model.embed_tokens", "token_embd") \
    X("model.norm", "output_norm")        \
    X("lm_head", "output")
#define LAYER_NAMES(X)                        \
    X("input_layernorm", "attn_norm")         \
    X("self_attn.q_proj", "attn_q")           \
    X("self_attn.k_proj", "attn_k")           \
    X("self_attn.v_proj", "attn_v")           \
    X("self_attn.o_proj", "attn_output")      \
    X("self_attn.q_norm", "attn_q_norm")      \
    X("self_attn.k_norm", "attn_k_norm")      \
    X("post_attention_layernorm", "ffn_norm") \
    X("mlp.gate_proj", "ffn_gate")            \
    X("mlp.up_proj", "ffn_up")                \
    X("mlp.down_proj", "ffn_down")

#define LAYERS "model.layers."

typedef struct name_row {
    const char *from;
    const char *to;
} name_row;

#define NAME_ROW(from, to) {from, to},
static const name_row top_names[] = {TOP_NAMES(NAME_ROW)};
static const name_row layer_names[] = {LAYER_NAMES(NAME_ROW)};

static const char *translate(const name_row *rows, size_t n, pgd_str stem) {
    for (size_t i = 0; i < n; i++) {
        if (pgd_str_is(stem, rows[i].from)) {
            return rows[i].to;
        }
    }
    return NULL;
}

void pgd_load_gguf_name(const char *name, char out[PGD_LOAD_GGUF_NAME]) {
    const char *ending = strrchr(name, '.');
    pgd_str stem = {name, ending != NULL ? (size_t)(ending - name) : 0};
    const char *to = translate(top_names, sizeof(top_names) / sizeof(top_names[0]), stem);
    if (to != NULL) {
        (void)snprintf(out, PGD_LOAD_GGUF_NAME, "%s%s", to, ending);
        return;
    }
    if (pgd_str_starts(stem, PGD_STR(LAYERS))) {
        pgd_str rest = {stem.ptr + sizeof(LAYERS) - 1, stem.len - (sizeof(LAYERS) - 1)};
        pgd_str layer = pgd_str_cut(rest, '.', &rest);
        to = translate(layer_names, sizeof(layer_names) / sizeof(layer_names[0]), rest);
        if (to != NULL) {
            (void)snprintf(out, PGD_LOAD_GGUF_NAME, "blk.%.*s.%s%s", (int)layer.len, layer.ptr, to,
                           ending);
            return;
        }
    }
    (void)snprintf(out, PGD_LOAD_GGUF_NAME, "%s", name);
}

// ---- split sets --------------------------------------------------------------------------------

#define MAX_PARTS 9999

pgd_status pgd_load_gguf_parts(const pgd_load_gguf *g, int32_t *out_n) {
    int64_t n = 1, number = 0;
    PGD_TRY(pgd_load_gguf_int(g, "split.count", 0, MAX_PARTS, &n));
    PGD_TRY(pgd_load_gguf_int(g, "split.no", 0, MAX_PARTS, &number));
    if (number != 0) {
        return pgd_fail(PGD_INVALID,
                        "%s: part %lld of %lld of a split model; give the first part "
                        "(NAME-00001-of-%05lld.gguf)",
                        g->file, (long long)number + 1, (long long)n, (long long)n);
    }
    *out_n = n == 0 ? 1 : (int32_t)n;
    return PGD_OK;
}

pgd_status pgd_load_gguf_part(const char *first, int32_t i, int32_t n, char *out, size_t cap) {
    char ending[32];
    pgd_str path = pgd_str_of(first);
    (void)snprintf(ending, sizeof(ending), "-00001-of-%05d.gguf", n);
    if (!pgd_str_ends(path, pgd_str_of(ending))) {
        return pgd_fail(PGD_INVALID,
                        "%s: the first of %d parts of a split model; its name must end in %s, so "
                        "that the others are found",
                        first, n, ending);
    }
    int written = snprintf(out, cap, "%.*s-%05d-of-%05d.gguf", (int)(path.len - strlen(ending)),
                           first, i + 1, n);
    if (written < 0 || (size_t)written >= cap) {
        return pgd_fail(PGD_OUT_OF_RANGE, "a model path of %d bytes; at most %zu are allowed",
                        written, cap - 1);
    }
    return PGD_OK;
}

pgd_status pgd_load_gguf_check_part(const pgd_load_gguf *g, int32_t i, int32_t n) {
    int64_t count = 0, number = -1;
    PGD_TRY(pgd_load_gguf_int(g, "split.count", 0, MAX_PARTS, &count));
    PGD_TRY(pgd_load_gguf_int(g, "split.no", 0, MAX_PARTS, &number));
    if (number != i || count != n) {
        return pgd_fail(PGD_DATA_LOSS,
                        "%s: damaged or of another model: it says part %lld of %lld, its name says "
                        "%d of %d",
                        g->file, (long long)number + 1, (long long)count, i + 1, n);
    }
    return PGD_OK;
}

// ---- configuration -----------------------------------------------------------------------------

// What the readers below need.
typedef struct source {
    const pgd_load_weights *w;
    const pgd_load_gguf *g;
    pgd_str arch;
    pgd_text *t; // the text of config.json
} source;

#define KEY_CAP 128

static const char *key_of(const source *s, const char *name, char out[KEY_CAP]) {
    (void)snprintf(out, KEY_CAP, "%.*s.%s", PGD_LOAD_SHOW(s->arch), name);
    return out;
}

static int32_t has(const source *s, const char *name) {
    char key[KEY_CAP];
    return pgd_load_gguf_get(s->g, key_of(s, name, key)) != NULL;
}

// An integer of the architecture, or an array of equal ones (one per layer).
static pgd_status read_int(const source *s, const char *name, int64_t *io) {
    char key[KEY_CAP];
    pgd_load_gguf_walk w = {.value = pgd_load_gguf_get(s->g, key_of(s, name, key))};
    int64_t v = 0, more = 0;
    if (w.value == NULL || !w.value->is_array) {
        return pgd_load_gguf_int(s->g, key, 0, INT32_MAX, io);
    }
    if (!pgd_load_gguf_next_int(&w, &v) || v < 0 || v > INT32_MAX) {
        return pgd_fail(PGD_INVALID, "%s: the value \"%s\" is no list of integers", s->g->file,
                        key);
    }
    while (pgd_load_gguf_next_int(&w, &more)) {
        if (more != v) {
            return pgd_fail(PGD_UNSUPPORTED,
                            "%s: the value \"%s\" differs between layers, which is not supported",
                            s->g->file, key);
        }
    }
    *io = v;
    return PGD_OK;
}

// Adds ,"to":N when the file has the value.
static pgd_status copy_int(const source *s, const char *name, const char *to) {
    int64_t v = -1;
    PGD_TRY(read_int(s, name, &v));
    return v < 0 ? PGD_OK : pgd_text_format(s->t, ",\"%s\":%lld", to, (long long)v);
}

static pgd_status copy_float(const source *s, const char *name, const char *to) {
    char key[KEY_CAP];
    double v = 0;
    if (!has(s, name)) {
        return PGD_OK;
    }
    PGD_TRY(pgd_load_gguf_float(s->g, key_of(s, name, key), &v));
    PGD_TRY(pgd_text_format(s->t, ",\"%s\":", to));
    return pgd_json_add_f64(s->t, v);
}

// Family by architecture; a llama with a window is a Mistral.
static pgd_status add_family(const source *s) {
    static const char *const known[3] = {"llama", "qwen2", "qwen3"};
    static const char *const names[3] = {"LlamaForCausalLM", "Qwen2ForCausalLM",
                                         "Qwen3ForCausalLM"};
    int64_t experts = 0, window = 0;
    PGD_TRY(read_int(s, "expert_count", &experts));
    PGD_TRY(read_int(s, "attention.sliding_window", &window));
    for (size_t i = 0; i < 3; i++) {
        if (!pgd_str_is(s->arch, known[i])) {
            continue;
        }
        if (experts != 0) {
            return pgd_fail(PGD_UNSUPPORTED,
                            "%s: a mixture of %lld experts, which is not supported in this version",
                            s->g->file, (long long)experts);
        }
        if (i == 0 && window != 0) {
            return pgd_text_format(s->t,
                                   "{\"architectures\":[\"MistralForCausalLM\"],"
                                   "\"sliding_window\":%lld",
                                   (long long)window);
        }
        if (window != 0) {
            PGD_TRY(pgd_text_format(s->t,
                                    "{\"sliding_window\":%lld,\"use_sliding_window\":true,"
                                    "\"max_window_layers\":0",
                                    (long long)window));
            return pgd_text_format(s->t, ",\"architectures\":[\"%s\"]", names[i]);
        }
        return pgd_text_format(s->t, "{\"architectures\":[\"%s\"]", names[i]);
    }
    return pgd_fail(PGD_UNSUPPORTED,
                    "%s: the architecture \"%.*s\" is not known; known are llama, qwen2 and qwen3",
                    s->g->file, PGD_LOAD_SHOW(s->arch));
}

static pgd_status add_shapes(const source *s) {
    const pgd_load_tensor *embed = pgd_load_weights_find(s->w, "model.embed_tokens.weight");
    int64_t k_dim = 0, v_dim = 0, turned = 0;
    if (embed == NULL || embed->rank != 2) {
        return pgd_fail(PGD_NOT_FOUND, "%s: no matrix \"token_embd.weight\"", s->g->file);
    }
    PGD_TRY(pgd_text_format(s->t, ",\"vocab_size\":%lld", (long long)embed->shape[0]));
    PGD_TRY(copy_int(s, "block_count", "num_hidden_layers"));
    PGD_TRY(copy_int(s, "embedding_length", "hidden_size"));
    PGD_TRY(copy_int(s, "feed_forward_length", "intermediate_size"));
    PGD_TRY(copy_int(s, "attention.head_count", "num_attention_heads"));
    PGD_TRY(has(s, "attention.head_count_kv")
                ? copy_int(s, "attention.head_count_kv", "num_key_value_heads")
                : copy_int(s, "attention.head_count", "num_key_value_heads"));
    PGD_TRY(copy_int(s, "context_length", "max_position_embeddings"));
    PGD_TRY(copy_float(s, "attention.layer_norm_rms_epsilon", "rms_norm_eps"));
    PGD_TRY(read_int(s, "attention.key_length", &k_dim));
    PGD_TRY(read_int(s, "attention.value_length", &v_dim));
    if (v_dim != 0 && v_dim != k_dim && k_dim != 0) {
        return pgd_fail(PGD_UNSUPPORTED,
                        "%s: keys of %lld and values of %lld numbers a head; equal ones are "
                        "supported",
                        s->g->file, (long long)k_dim, (long long)v_dim);
    }
    if (k_dim == 0) { // by default the width over the heads, which families do not all say
        int64_t hidden = 0, heads = 0;
        PGD_TRY(read_int(s, "embedding_length", &hidden));
        PGD_TRY(read_int(s, "attention.head_count", &heads));
        k_dim = heads > 0 && hidden % heads == 0 ? hidden / heads : 0;
    }
    if (k_dim == 0) {
        return pgd_fail(PGD_INVALID, "%s: \"%.*s.attention.head_count\" does not divide the width",
                        s->g->file, PGD_LOAD_SHOW(s->arch));
    }
    PGD_TRY(pgd_text_format(s->t, ",\"head_dim\":%lld", (long long)k_dim));
    PGD_TRY(read_int(s, "rope.dimension_count", &turned));
    if (turned != 0 && turned != k_dim) {
        PGD_TRY(pgd_text_format(s->t, ",\"partial_rotary_factor\":"));
        PGD_TRY(pgd_json_add_f64(s->t, (double)turned / (double)k_dim));
    }
    return pgd_text_format(s->t, ",\"tie_word_embeddings\":%s",
                           pgd_load_weights_find(s->w, "lm_head.weight") == NULL ? "true"
                                                                                 : "false");
}

// rope.scaling of the file as rope_scaling.
static pgd_status add_scaling(const source *s) {
    char key[KEY_CAP];
    pgd_str type = PGD_STR("none");
    double linear = 1, attn = 1, factor = 1;
    PGD_TRY(pgd_load_gguf_str(s->g, key_of(s, "rope.scaling.type", key), &type));
    PGD_TRY(pgd_load_gguf_float(s->g, key_of(s, "rope.scale_linear", key), &linear));
    PGD_TRY(pgd_load_gguf_float(s->g, key_of(s, "rope.scaling.attn_factor", key), &attn));
    PGD_TRY(pgd_load_gguf_float(s->g, key_of(s, "rope.scaling.factor", key), &factor));
    if (pgd_str_is(type, "none") && !has(s, "rope.scaling.type") && linear > 0 &&
        (linear > 1 || linear < 1)) {
        PGD_TRY(pgd_text_format(s->t, ",\"rope_scaling\":{\"rope_type\":\"linear\",\"factor\":"));
        PGD_TRY(pgd_json_add_f64(s->t, linear));
        return pgd_text_format(s->t, "}");
    }
    if (pgd_str_is(type, "none")) {
        return PGD_OK;
    }
    if (!pgd_str_is(type, "linear") && !pgd_str_is(type, "yarn")) {
        return pgd_fail(PGD_UNSUPPORTED,
                        "%s: rope scaling \"%.*s\" is not supported; none, linear and yarn are",
                        s->g->file, PGD_LOAD_SHOW(type));
    }
    PGD_TRY(pgd_text_format(s->t, ",\"rope_scaling\":{\"rope_type\":\"%.*s\"", (int)type.len,
                            type.ptr));
    PGD_TRY(copy_float(s, "rope.scaling.factor", "factor"));
    if (pgd_str_is(type, "yarn")) {
        PGD_TRY(copy_int(s, "rope.scaling.original_context_length",
                         "original_max_position_embeddings"));
        PGD_TRY(copy_float(s, "rope.scaling.yarn_beta_fast", "beta_fast"));
        PGD_TRY(copy_float(s, "rope.scaling.yarn_beta_slow", "beta_slow"));
        if (attn < 1 || attn > 1) {
            PGD_TRY(pgd_fail(PGD_UNSUPPORTED, "%s: rope.scaling.attn_factor is %g; 1 is supported",
                             s->g->file, attn));
        }
    }
    return pgd_text_format(s->t, "}");
}

static pgd_status add_ids(const source *s) {
    int64_t bos = -1;
    int32_t ends[PGD_LOAD_MAX_EOS];
    int32_t n = 0;
    PGD_TRY(pgd_load_gguf_int(s->g, "tokenizer.ggml.bos_token_id", -1, INT32_MAX, &bos));
    PGD_TRY(pgd_load_gguf_ends(s->g, ends, &n));
    PGD_TRY(bos >= 0 ? pgd_text_format(s->t, ",\"bos_token_id\":%lld", (long long)bos)
                     : pgd_text_format(s->t, ",\"bos_token_id\":null"));
    if (n == 0) {
        return pgd_text_format(s->t, ",\"eos_token_id\":null}");
    }
    PGD_TRY(pgd_text_format(s->t, ",\"eos_token_id\":["));
    for (int32_t i = 0; i < n; i++) {
        PGD_TRY(pgd_text_format(s->t, "%s%d", i == 0 ? "" : ",", ends[i]));
    }
    return pgd_text_format(s->t, "]}");
}

// Divisors of the frequencies, when the file has them, as factors of longrope.
static pgd_status read_divisors(const source *s, pgd_load_config *c) {
    const pgd_load_tensor *t = pgd_load_weights_find(s->w, "rope_freqs.weight");
    const int32_t n = c->rope.rot_dim / 2;
    if (t == NULL) {
        return PGD_OK;
    }
    if (c->rope.kind != PGD_ROPE_DEFAULT || t->dtype != PGD_F32 || t->rank != 1 ||
        t->shape[0] != n) {
        return pgd_fail(PGD_UNSUPPORTED,
                        "%s: tensor \"rope_freqs.weight\" is %s; %d numbers of F32 and no other "
                        "rope scaling are supported",
                        t->file, t->stored, n);
    }
    float values[PGD_LOAD_MAX_HEAD_DIM / 2];
    pgd_load_vector_to_f32(t, values);
    c->rope.short_factor = pgd_mem_alloc((size_t)n, sizeof(double));
    c->rope.long_factor = pgd_mem_alloc((size_t)n, sizeof(double));
    if (c->rope.short_factor == NULL || c->rope.long_factor == NULL) {
        return PGD_MEM_FAIL("the rope factors", (size_t)n * sizeof(double));
    }
    for (int32_t i = 0; i < n; i++) {
        if (!(values[i] >= 1e-6F && values[i] <= 1e9F)) {
            return pgd_fail(PGD_INVALID, "%s: rope_freqs.weight[%d] is %g; 1e-6 to 1e9 is allowed",
                            t->file, i, (double)values[i]);
        }
        c->rope.short_factor[i] = c->rope.long_factor[i] = (double)values[i];
    }
    c->rope.kind = PGD_ROPE_LONGROPE;
    c->rope.n_factors = n;
    c->rope.attention_factor = 1;
    return PGD_OK;
}

static int32_t has_layer_tensor(const source *s, const char *name) {
    return pgd_load_weights_find(s->w, name) != NULL;
}

// What the file shows and a config.json would say in words.
static void set_parts(const source *s, pgd_load_config *c) {
    c->attention_bias = has_layer_tensor(s, "model.layers.0.self_attn.q_proj.bias");
    c->o_bias = has_layer_tensor(s, "model.layers.0.self_attn.o_proj.bias");
    c->mlp_bias = has_layer_tensor(s, "model.layers.0.mlp.gate_proj.bias");
    c->rope.style = pgd_str_is(s->arch, "llama") ? PGD_ROPE_INTERLEAVED : PGD_ROPE_HALF;
}

static pgd_status read_config(const source *s, const char *path, pgd_load_config **out) {
    pgd_str type = PGD_STR("model");
    PGD_TRY(pgd_load_gguf_str(s->g, "general.type", &type));
    if (!pgd_str_is(type, "model")) {
        return pgd_fail(PGD_UNSUPPORTED, "%s: general.type is \"%.*s\"; \"model\" is needed", path,
                        PGD_LOAD_SHOW(type));
    }
    if (s->arch.len == 0) {
        return pgd_fail(PGD_INVALID, "%s: no general.architecture", path);
    }
    PGD_TRY(add_family(s));
    PGD_TRY(add_shapes(s));
    PGD_TRY(has(s, "rope.freq_base") ? copy_float(s, "rope.freq_base", "rope_theta")
                                     : pgd_text_format(s->t, ",\"rope_theta\":10000.0"));
    PGD_TRY(add_scaling(s));
    PGD_TRY(add_ids(s));
    PGD_TRY(pgd_load_config_parse(s->t->ptr, s->t->len, NULL, 0, path, out));
    set_parts(s, *out);
    return read_divisors(s, *out);
}

pgd_status pgd_load_gguf_config(const char *path, pgd_load_config **out) {
    pgd_load_weights *w = NULL;
    pgd_text t = {0};
    *out = NULL;
    PGD_TRY(pgd_load_weights_open(path, &w));
    source s = {.w = w, .g = pgd_load_weights_gguf(w), .t = &t};
    pgd_status status = pgd_load_gguf_str(s.g, "general.architecture", &s.arch);
    if (status == PGD_OK) {
        status = read_config(&s, path, out);
    }
    if (status != PGD_OK) {
        pgd_load_config_free(*out);
        *out = NULL;
    }
    pgd_text_free(&t);
    pgd_load_weights_close(w);
    return status;
}
