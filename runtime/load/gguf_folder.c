// The values that a GGUF file has for a model in Hugging Face layout (see gguf_write.h).
#include <stdio.h>
#include <string.h>

#include "base/fail.h"
#include "base/json.h"
#include "base/mem.h"
#include "load/folder.h"
#include "load/gguf_inner.h"
#include "load/gguf_write.h"

typedef struct maker {
    pgd_load_gguf_values *out;
    const char *arch; // NULL: keys as they are
} maker;

static pgd_status put_key(const maker *m, const char *key, uint32_t type) {
    char name[128];
    (void)snprintf(name, sizeof(name), "%s%s%s", m->arch != NULL ? m->arch : "",
                   m->arch != NULL ? "." : "", key);
    m->out->n++;
    PGD_TRY(pgd_load_gguf_put_str(&m->out->bytes, pgd_str_of(name)));
    return pgd_load_gguf_put(&m->out->bytes, type, 4);
}

static pgd_status put_u32(const maker *m, const char *key, int64_t v) {
    PGD_TRY(put_key(m, key, PGD_GGUF_U32));
    return pgd_load_gguf_put(&m->out->bytes, (uint64_t)v, 4);
}

static pgd_status put_f32(const maker *m, const char *key, double v) {
    const float f = (float)v;
    uint32_t bits = 0;
    memcpy(&bits, &f, sizeof(bits));
    PGD_TRY(put_key(m, key, PGD_GGUF_F32));
    return pgd_load_gguf_put(&m->out->bytes, bits, 4);
}

static pgd_status put_bool(const maker *m, const char *key, int32_t v) {
    PGD_TRY(put_key(m, key, PGD_GGUF_BOOL));
    return pgd_load_gguf_put(&m->out->bytes, v != 0, 1);
}

static pgd_status put_str(const maker *m, const char *key, pgd_str v) {
    PGD_TRY(put_key(m, key, PGD_GGUF_STRING));
    return pgd_load_gguf_put_str(&m->out->bytes, v);
}

static pgd_status put_list(const maker *m, const char *key, uint32_t type, uint64_t n) {
    PGD_TRY(put_key(m, key, PGD_GGUF_ARRAY));
    PGD_TRY(pgd_load_gguf_put(&m->out->bytes, type, 4));
    return pgd_load_gguf_put(&m->out->bytes, n, 8);
}

// ---- configuration -----------------------------------------------------------------------------

static pgd_status put_rope(const maker *m, const pgd_load_config *c) {
    const pgd_load_rope *r = &c->rope;
    PGD_TRY(put_f32(m, "rope.freq_base", r->theta));
    PGD_TRY(put_u32(m, "rope.dimension_count", r->rot_dim));
    if (r->kind == PGD_ROPE_DEFAULT || r->kind == PGD_ROPE_LLAMA3) {
        return PGD_OK; // llama3: a tensor of divisors
    }
    if ((r->kind != PGD_ROPE_LINEAR && r->kind != PGD_ROPE_YARN) || r->attention_factor > 0 ||
        r->mscale > 0 || (r->kind == PGD_ROPE_YARN && !r->truncate)) {
        return pgd_fail(PGD_UNSUPPORTED,
                        "rope of kind %s with these settings has no form in a GGUF file; default, "
                        "linear, llama3 and plain yarn have",
                        pgd_load_rope_name(r->kind));
    }
    PGD_TRY(put_str(m, "rope.scaling.type", pgd_str_of(pgd_load_rope_name(r->kind))));
    PGD_TRY(put_f32(m, "rope.scaling.factor", r->factor));
    if (r->kind == PGD_ROPE_LINEAR) {
        return PGD_OK;
    }
    PGD_TRY(put_u32(m, "rope.scaling.original_context_length", (int64_t)r->original_max));
    PGD_TRY(put_f32(m, "rope.scaling.yarn_beta_fast", r->beta_fast));
    return put_f32(m, "rope.scaling.yarn_beta_slow", r->beta_slow);
}

static pgd_status put_config(pgd_load_gguf_values *out, const pgd_load_config *c, pgd_str name) {
    static const char *const archs[] = {
        [PGD_LOAD_LLAMA] = "llama",
        [PGD_LOAD_MISTRAL] = "llama",
        [PGD_LOAD_QWEN2] = "qwen2",
        [PGD_LOAD_QWEN3] = "qwen3",
    };
    const maker top = {.out = out};
    const maker m = {.out = out, .arch = archs[c->family]};
    if (c->act != PGD_ACT_SILU) {
        return pgd_fail(PGD_UNSUPPORTED,
                        "an activation other than silu has no form in a GGUF file");
    }
    PGD_TRY(put_str(&top, "general.architecture", pgd_str_of(m.arch)));
    PGD_TRY(put_str(&top, "general.type", PGD_STR("model")));
    PGD_TRY(put_str(&top, "general.name", name));
    PGD_TRY(put_u32(&m, "context_length", c->max_position));
    PGD_TRY(put_u32(&m, "embedding_length", c->hidden));
    PGD_TRY(put_u32(&m, "block_count", c->n_layers));
    PGD_TRY(put_u32(&m, "feed_forward_length", c->intermediate));
    PGD_TRY(put_u32(&m, "vocab_size", c->vocab));
    PGD_TRY(put_u32(&m, "attention.head_count", c->n_heads));
    PGD_TRY(put_u32(&m, "attention.head_count_kv", c->n_kv_heads));
    PGD_TRY(put_u32(&m, "attention.key_length", c->head_dim));
    PGD_TRY(put_u32(&m, "attention.value_length", c->head_dim));
    PGD_TRY(put_f32(&m, "attention.layer_norm_rms_epsilon", c->norm_eps));
    for (int32_t i = 1; i < c->n_layers; i++) {
        if (c->window[i] != c->window[0]) {
            return pgd_fail(PGD_UNSUPPORTED, "windows that differ between layers are not written");
        }
    }
    if (c->window[0] != 0) {
        PGD_TRY(put_u32(&m, "attention.sliding_window", c->window[0]));
    }
    return put_rope(&m, c);
}

// ---- tokenizer ---------------------------------------------------------------------------------

// The patterns of the splits before ByteLevel; 0 when it is another kind of pre-tokenizer.
static size_t read_patterns(const pgd_json *pre, pgd_str *out, size_t cap) {
    const pgd_json *list = pgd_json_get(pre, "pretokenizers");
    size_t n = 0;
    pgd_str type = {0};
    int32_t own = 1;
    if (!pgd_json_is(list, PGD_JSON_ARRAY)) {
        return 0;
    }
    for (uint32_t i = 0; i < list->n; i++) {
        const pgd_json *item = &list->items[i];
        pgd_str behavior = {0};
        (void)pgd_json_to_str(pgd_json_get(item, "type"), &type);
        (void)pgd_json_to_str(pgd_json_get(item, "behavior"), &behavior);
        if (pgd_str_is(type, "ByteLevel")) {
            (void)pgd_json_to_bool(pgd_json_get(item, "use_regex"), &own);
            return i + 1 == list->n && !own ? n : 0;
        }
        if (!pgd_str_is(type, "Split") || !pgd_str_is(behavior, "Isolated") || n == cap ||
            !pgd_json_to_str(pgd_json_get(pgd_json_get(item, "pattern"), "Regex"), &out[n])) {
            return 0;
        }
        n++;
    }
    return 0;
}

// Texts and kinds of all ids of the model.
typedef struct vocabulary {
    pgd_str *texts;
    int32_t *kinds;
    int64_t n;
} vocabulary;

static void set_token(vocabulary *v, const pgd_json *id, pgd_str text, int32_t kind) {
    int64_t i = -1;
    if (pgd_json_to_i64(id, &i) && i >= 0 && i < v->n) {
        v->texts[i] = text;
        v->kinds[i] = kind;
    }
}

static pgd_status put_vocabulary(const maker *m, const vocabulary *v) {
    char unused[32];
    PGD_TRY(put_list(m, "tokenizer.ggml.tokens", PGD_GGUF_STRING, (uint64_t)v->n));
    for (int64_t i = 0; i < v->n; i++) {
        (void)snprintf(unused, sizeof(unused), "[PAD%lld]", (long long)i);
        PGD_TRY(pgd_load_gguf_put_str(&m->out->bytes, v->kinds[i] == PGD_LOAD_GGUF_UNUSED
                                                          ? pgd_str_of(unused)
                                                          : v->texts[i]));
    }
    PGD_TRY(put_list(m, "tokenizer.ggml.token_type", PGD_GGUF_I32, (uint64_t)v->n));
    for (int64_t i = 0; i < v->n; i++) {
        PGD_TRY(pgd_load_gguf_put(&m->out->bytes, (uint64_t)v->kinds[i], 4));
    }
    return PGD_OK;
}

static int32_t is_byte(pgd_str text) {
    return text.len == 6 && memcmp(text.ptr, "<0x", 3) == 0 && text.ptr[5] == '>';
}

// scored: of SentencePiece, with bytes and an unknown token.
static void read_vocabulary(const pgd_json *root, int32_t scored, vocabulary *v) {
    const pgd_json *model = pgd_json_get(root, "model");
    const pgd_json *vocab = pgd_json_get(model, "vocab");
    const pgd_json *added = pgd_json_get(root, "added_tokens");
    pgd_str unknown = {0};
    (void)pgd_json_to_str(pgd_json_get(model, "unk_token"), &unknown);
    for (int64_t i = 0; i < v->n; i++) {
        v->kinds[i] = PGD_LOAD_GGUF_UNUSED;
    }
    for (uint32_t i = 0; pgd_json_is(vocab, PGD_JSON_OBJECT) && i < vocab->n; i++) {
        set_token(v, &vocab->items[i], vocab->keys[i],
                  scored && is_byte(vocab->keys[i]) ? PGD_LOAD_GGUF_BYTE : PGD_LOAD_GGUF_NORMAL);
    }
    for (uint32_t i = 0; pgd_json_is(added, PGD_JSON_ARRAY) && i < added->n; i++) {
        int32_t special = 0;
        pgd_str text = {0};
        (void)pgd_json_to_bool(pgd_json_get(&added->items[i], "special"), &special);
        (void)pgd_json_to_str(pgd_json_get(&added->items[i], "content"), &text);
        set_token(v, pgd_json_get(&added->items[i], "id"), text,
                  special ? PGD_LOAD_GGUF_CONTROL : PGD_LOAD_GGUF_USER);
    }
    for (int64_t i = 0; scored && unknown.len > 0 && i < v->n; i++) {
        v->kinds[i] = pgd_str_equal(v->texts[i], unknown) ? PGD_LOAD_GGUF_UNKNOWN : v->kinds[i];
    }
}

static pgd_status put_scores(const maker *m, const vocabulary *v, const pgd_json *merges) {
    float *scores = pgd_mem_alloc((size_t)v->n, sizeof(*scores));
    pgd_status status = scores == NULL
                            ? PGD_MEM_FAIL("the scores", (size_t)v->n * sizeof(*scores))
                            : pgd_load_gguf_scores(merges, v->texts, v->kinds, v->n, scores);
    if (status == PGD_OK) {
        status = put_list(m, "tokenizer.ggml.scores", PGD_GGUF_F32, (uint64_t)v->n);
    }
    for (int64_t i = 0; status == PGD_OK && i < v->n; i++) {
        uint32_t bits = 0;
        memcpy(&bits, &scores[i], sizeof(bits));
        status = pgd_load_gguf_put(&m->out->bytes, bits, 4);
    }
    pgd_mem_free(scores);
    return status;
}

// merges: of SentencePiece, whose scores are written; NULL for byte-level BPE.
static pgd_status put_tokens(const maker *m, const pgd_json *root, const pgd_json *merges,
                             const pgd_load_config *c) {
    vocabulary v = {.n = c->vocab};
    v.texts = pgd_mem_alloc((size_t)c->vocab, sizeof(*v.texts));
    v.kinds = pgd_mem_alloc((size_t)c->vocab, sizeof(*v.kinds));
    pgd_status status = v.texts == NULL || v.kinds == NULL
                            ? PGD_MEM_FAIL("the tokens", (size_t)c->vocab * sizeof(*v.texts))
                            : PGD_OK;
    if (status == PGD_OK) {
        read_vocabulary(root, merges != NULL, &v);
        status = put_vocabulary(m, &v);
    }
    if (status == PGD_OK && merges != NULL) {
        status = put_scores(m, &v, merges);
    }
    pgd_mem_free(v.texts);
    pgd_mem_free(v.kinds);
    return status;
}

static pgd_status put_merges(const maker *m, const pgd_json *merges) {
    pgd_text pair = {0};
    pgd_status status = put_list(m, "tokenizer.ggml.merges", PGD_GGUF_STRING, merges->n);
    for (uint32_t i = 0; status == PGD_OK && i < merges->n; i++) {
        const pgd_json *item = &merges->items[i];
        pgd_str whole = {0}, a = {0}, b = {0};
        if (!pgd_json_to_str(item, &whole) && pgd_json_is(item, PGD_JSON_ARRAY) && item->n == 2 &&
            pgd_json_to_str(&item->items[0], &a) && pgd_json_to_str(&item->items[1], &b)) {
            pgd_text_clear(&pair);
            status = pgd_text_add_str(&pair, a);
            status = status == PGD_OK ? pgd_text_add(&pair, " ", 1) : status;
            status = status == PGD_OK ? pgd_text_add_str(&pair, b) : status;
            whole = pgd_text_view(&pair);
        }
        status = status == PGD_OK ? pgd_load_gguf_put_str(&m->out->bytes, whole) : status;
    }
    pgd_text_free(&pair);
    return status;
}

// Whether a tokenizer is SentencePiece's: bytes for what is no piece, spaces as marks, which a text
// begins with (*space 1) or not.
static int32_t is_pieces(const pgd_json *root, int32_t *space) {
    const pgd_json *normalizer = pgd_json_get(root, "normalizer");
    const pgd_json *pre = pgd_json_get(root, "pre_tokenizer");
    const pgd_json *list = pgd_json_get(normalizer, "normalizers");
    int32_t fallback = 0;
    pgd_str type = {0}, scheme = {0};
    (void)pgd_json_to_bool(pgd_json_get(pgd_json_get(root, "model"), "byte_fallback"), &fallback);
    *space = 0;
    if (!fallback) {
        return 0;
    }
    if (pgd_json_to_str(pgd_json_get(pre, "prepend_scheme"), &scheme)) { // Metaspace
        *space = !pgd_str_is(scheme, "never");
        return normalizer == NULL || pgd_json_is(normalizer, PGD_JSON_NULL);
    }
    for (uint32_t i = 0; pgd_json_is(list, PGD_JSON_ARRAY) && i < list->n; i++) {
        (void)pgd_json_to_str(pgd_json_get(&list->items[i], "type"), &type);
        *space |= pgd_str_is(type, "Prepend");
        if (!pgd_str_is(type, "Prepend") && !pgd_str_is(type, "Replace")) {
            return 0;
        }
    }
    (void)pgd_json_to_str(pgd_json_get(normalizer, "type"), &type);
    return pgd_str_is(type, "Replace") || pgd_str_is(type, "Sequence");
}

static pgd_status put_tokenizer(pgd_load_gguf_values *out, const pgd_json *root,
                                const pgd_load_config *c) {
    const maker m = {.out = out};
    const pgd_json *merges = pgd_json_get(pgd_json_get(root, "model"), "merges");
    const pgd_json *post = pgd_json_get(root, "post_processor");
    pgd_str patterns[2];
    const size_t n = read_patterns(pgd_json_get(root, "pre_tokenizer"), patterns, 2);
    const char *pre = pgd_load_gguf_pre_of(patterns, n);
    int32_t space = 0;
    const int32_t pieces = is_pieces(root, &space);
    if ((pre == NULL && !pieces) || !pgd_json_is(merges, PGD_JSON_ARRAY)) {
        return pgd_fail(
            PGD_UNSUPPORTED,
            "tokenizer.json: only byte-level BPE that splits like GPT-2, Llama 3, Qwen2, "
            "StarCoder or Tekken, and SentencePiece as of Llama 2 and Gemma, are written to GGUF "
            "files");
    }
    // A template begins with the token that is put before a text.
    const int32_t is_wrapped =
        post != NULL &&
        (pgd_json_get(post, "single") != NULL || pgd_json_get(post, "processors") != NULL) &&
        c->bos >= 0;
    PGD_TRY(put_str(&m, "tokenizer.ggml.model", pieces ? PGD_STR("llama") : PGD_STR("gpt2")));
    PGD_TRY(put_str(&m, "tokenizer.ggml.pre", pieces ? PGD_STR("default") : pgd_str_of(pre)));
    PGD_TRY(put_tokens(&m, root, pieces ? merges : NULL, c));
    PGD_TRY(pieces ? put_bool(&m, "tokenizer.ggml.add_space_prefix", space)
                   : put_merges(&m, merges));
    return put_bool(&m, "tokenizer.ggml.add_bos_token", is_wrapped);
}

static pgd_status put_ids(pgd_load_gguf_values *out, const pgd_load_config *c) {
    static const char *const keys[] = {"tokenizer.ggml.eos_token_id", "tokenizer.ggml.eot_token_id",
                                       "tokenizer.ggml.eom_token_id"};
    const maker m = {.out = out};
    if (c->bos >= 0) {
        PGD_TRY(put_u32(&m, "tokenizer.ggml.bos_token_id", c->bos));
    }
    if (c->pad >= 0) {
        PGD_TRY(put_u32(&m, "tokenizer.ggml.padding_token_id", c->pad));
    }
    for (int32_t i = 0; i < c->n_eos && i < 3; i++) {
        PGD_TRY(put_u32(&m, keys[i], c->eos[i]));
    }
    return PGD_OK;
}

// ---- the folder --------------------------------------------------------------------------------

// Parses a file of the folder; *out NULL when there is none.
static pgd_status read_json(const char *folder, const char *name, pgd_json_doc **out) {
    char *path = NULL;
    *out = NULL;
    PGD_TRY(pgd_load_folder_join(folder, pgd_str_of(name), &path));
    pgd_status status =
        pgd_os_kind(path, NULL) == PGD_OS_NONE ? PGD_OK : pgd_json_read_file(path, out);
    pgd_mem_free(path);
    return status;
}

static pgd_status put_template(pgd_load_gguf_values *out, const char *folder) {
    const maker m = {.out = out};
    char *path = NULL;
    pgd_os_map map = {0};
    pgd_json_doc *doc = NULL;
    pgd_str text = {0};
    PGD_TRY(pgd_load_folder_join(folder, PGD_STR("chat_template.jinja"), &path));
    pgd_status status = PGD_OK;
    if (pgd_os_kind(path, NULL) == PGD_OS_REGULAR) {
        status = pgd_load_folder_map(path, 1u << 20, &map);
        text = pgd_load_folder_text(&map);
    } else {
        status = read_json(folder, "tokenizer_config.json", &doc);
        if (doc != NULL) {
            (void)pgd_json_to_str(pgd_json_get(pgd_json_root(doc), "chat_template"), &text);
        }
    }
    if (status == PGD_OK && text.len != 0) {
        status = put_str(&m, "tokenizer.chat_template", text);
    }
    pgd_json_free(doc);
    pgd_os_unmap(&map);
    pgd_mem_free(path);
    return status;
}

pgd_status pgd_load_gguf_folder_values(const char *folder, const pgd_load_config *c,
                                       pgd_load_gguf_values *out) {
    pgd_json_doc *doc = NULL;
    const char *slash = strrchr(folder, '/');
    PGD_TRY(put_config(out, c, pgd_str_of(slash != NULL && slash[1] != '\0' ? slash + 1 : folder)));
    PGD_TRY(read_json(folder, "tokenizer.json", &doc));
    pgd_status status = doc != NULL ? put_tokenizer(out, pgd_json_root(doc), c) : PGD_OK;
    pgd_json_free(doc);
    PGD_TRY(pgd_fail_note(status, "while writing the tokenizer of %s", folder));
    PGD_TRY(put_ids(out, c));
    return put_template(out, folder);
}
