// The tokenizer and the chat template of a GGUF file (see gguf_model.h).
//
//   "gpt2"   byte-level BPE: tokens and merges as they are, split patterns by the name in
//            tokenizer.ggml.pre
//   "llama"  SentencePiece BPE: tokens with scores; the merges are all ways to cut a token into two
//            tokens, in the order of the scores, as the converters of such models make them
//
// Tokens that are no ordinary text (control, unknown, user-defined) become added tokens.
#include <stdlib.h>
#include <string.h>

#include "base/fail.h"
#include "base/json.h"
#include "base/map.h"
#include "base/mem.h"
#include "load/fields.h"
#include "load/gguf_inner.h"
#include "load/gguf_model.h"
#include "load/gguf_write.h"

#define MAX_TOKENS (1u << 24)
#define MAX_PIECE  512u // bytes of a token that merges are made for

#define CONTRACTIONS "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
#define GPT2                                         \
    "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?" \
    "[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+"
#define LLAMA3                                                                                \
    CONTRACTIONS "|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1,3}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|" \
                 "\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"
#define QWEN2                                                                            \
    CONTRACTIONS "|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|" \
                 "\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"
#define TEKKEN                                                                                   \
    "[^\\r\\n\\p{L}\\p{N}]?[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]*[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]+|" \
    "[^\\r\\n\\p{L}\\p{N}]?[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]+[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]*|" \
    "\\p{N}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"

typedef struct pre_row {
    const char *name;
    const char *patterns[2]; // one after the other, each on the pieces of the one before
    int32_t add_bos;
    int32_t ignore_merges;
    int32_t nfc;
    int32_t reserved0;
} pre_row;

static const pre_row pres[] = {
    {.name = "gpt-2", .patterns = {GPT2}},
    {.name = "gpt2", .patterns = {GPT2}},
    {.name = "llama-bpe", .patterns = {LLAMA3}, .add_bos = 1, .ignore_merges = 1},
    {.name = "llama3", .patterns = {LLAMA3}, .add_bos = 1, .ignore_merges = 1},
    {.name = "llama-v3", .patterns = {LLAMA3}, .add_bos = 1, .ignore_merges = 1},
    {.name = "smaug-bpe", .patterns = {LLAMA3}},
    {.name = "dbrx", .patterns = {LLAMA3}},
    {.name = "qwen2", .patterns = {QWEN2}, .nfc = 1},
    {.name = "deepseek-r1-qwen", .patterns = {QWEN2}},
    {.name = "stablelm2", .patterns = {QWEN2}},
    {.name = "smollm", .patterns = {"\\p{N}", GPT2}},
    {.name = "starcoder", .patterns = {"\\p{N}", GPT2}},
    {.name = "tekken", .patterns = {TEKKEN}, .add_bos = 1, .ignore_merges = 1},
};

#define PRES_KNOWN                                                                              \
    "gpt-2, llama-bpe, smaug-bpe, dbrx, qwen2, deepseek-r1-qwen, stablelm2, smollm, starcoder " \
    "and tekken"

// The tokens of a file: contents, kinds and scores, each [n].
typedef struct tokens {
    const pgd_load_gguf *g;
    pgd_str *texts;
    int32_t *kinds;
    float *scores;
    uint32_t n;
    uint32_t reserved0;
} tokens;

static void free_tokens(tokens *v) {
    pgd_mem_free(v->texts);
    pgd_mem_free(v->kinds);
    pgd_mem_free(v->scores);
}

static pgd_status read_tokens(const pgd_load_gguf *g, tokens *v) {
    pgd_load_gguf_walk texts = {.value = pgd_load_gguf_get(g, "tokenizer.ggml.tokens")};
    pgd_load_gguf_walk kinds = {.value = pgd_load_gguf_get(g, "tokenizer.ggml.token_type")};
    pgd_load_gguf_walk scores = {.value = pgd_load_gguf_get(g, "tokenizer.ggml.scores")};
    *v = (tokens){.g = g};
    if (texts.value == NULL) {
        return pgd_fail(PGD_NOT_FOUND, "%s: no tokenizer in the file", g->file);
    }
    if (texts.value->type != PGD_GGUF_STRING || !texts.value->is_array ||
        texts.value->n > MAX_TOKENS) {
        return pgd_fail(PGD_INVALID, "%s: tokenizer.ggml.tokens is no list of at most %u strings",
                        g->file, MAX_TOKENS);
    }
    v->n = (uint32_t)texts.value->n;
    v->texts = pgd_mem_alloc((size_t)v->n + 1, sizeof(*v->texts));
    v->kinds = pgd_mem_alloc((size_t)v->n + 1, sizeof(*v->kinds));
    v->scores = pgd_mem_alloc((size_t)v->n + 1, sizeof(*v->scores));
    if (v->texts == NULL || v->kinds == NULL || v->scores == NULL) {
        return PGD_MEM_FAIL("the tokens", (size_t)v->n * sizeof(*v->texts));
    }
    for (uint32_t i = 0; i < v->n; i++) {
        int64_t kind = PGD_LOAD_GGUF_NORMAL;
        double score = 0;
        (void)pgd_load_gguf_next_str(&texts, &v->texts[i]);
        (void)pgd_load_gguf_next_int(&kinds, &kind);
        (void)pgd_load_gguf_next_float(&scores, &score);
        v->kinds[i] = kind >= PGD_LOAD_GGUF_NORMAL && kind <= PGD_LOAD_GGUF_BYTE
                          ? (int32_t)kind
                          : PGD_LOAD_GGUF_NORMAL;
        v->scores[i] = (float)score;
    }
    return PGD_OK;
}

static int32_t is_added(int32_t kind) {
    return kind == PGD_LOAD_GGUF_CONTROL || kind == PGD_LOAD_GGUF_UNKNOWN ||
           kind == PGD_LOAD_GGUF_USER;
}

// "vocab":{...} of the tokens that are text; with_unknown: the unknown token too.
static pgd_status add_vocab(const tokens *v, int32_t with_unknown, pgd_text *t) {
    int32_t first = 1;
    PGD_TRY(pgd_text_format(t, "\"vocab\":{"));
    for (uint32_t i = 0; i < v->n; i++) {
        if (is_added(v->kinds[i]) && !(with_unknown && v->kinds[i] == PGD_LOAD_GGUF_UNKNOWN)) {
            continue;
        }
        PGD_TRY(pgd_text_format(t, "%s", first ? "" : ","));
        PGD_TRY(pgd_json_add_str(t, v->texts[i]));
        PGD_TRY(pgd_text_format(t, ":%u", i));
        first = 0;
    }
    return pgd_text_format(t, "}");
}

static pgd_status add_added(const tokens *v, pgd_text *t) {
    int32_t first = 1;
    PGD_TRY(pgd_text_format(t, ",\"added_tokens\":["));
    for (uint32_t i = 0; i < v->n; i++) {
        if (!is_added(v->kinds[i]) || v->texts[i].len == 0) {
            continue;
        }
        PGD_TRY(pgd_text_format(t, "%s{\"id\":%u,\"content\":", first ? "" : ",", i));
        PGD_TRY(pgd_json_add_str(t, v->texts[i]));
        PGD_TRY(pgd_text_format(t, ",\"normalized\":false,\"special\":%s}",
                                v->kinds[i] == PGD_LOAD_GGUF_USER ? "false" : "true"));
        first = 0;
    }
    return pgd_text_format(t, "]");
}

// ---- byte-level BPE ----------------------------------------------------------------------------

static pgd_status find_pre(const pgd_load_gguf *g, const pre_row **out) {
    pgd_str name = {0};
    PGD_TRY(pgd_load_gguf_str(g, "tokenizer.ggml.pre", &name));
    for (size_t i = 0; i < sizeof(pres) / sizeof(pres[0]); i++) {
        if (pgd_str_is(name, pres[i].name)) {
            *out = &pres[i];
            return PGD_OK;
        }
    }
    return pgd_fail(PGD_UNSUPPORTED,
                    "%s: the pre-tokenizer \"%.*s\" (tokenizer.ggml.pre) is not known; known are "
                    "" PRES_KNOWN,
                    g->file, PGD_LOAD_SHOW(name));
}

const char *pgd_load_gguf_pre_of(const pgd_str *patterns, size_t n) {
    for (size_t i = 0; n != 0 && i < sizeof(pres) / sizeof(pres[0]); i++) {
        const size_t own = pres[i].patterns[1] != NULL ? 2 : 1;
        if (own == n && pgd_str_is(patterns[0], pres[i].patterns[0]) &&
            (n == 1 || pgd_str_is(patterns[1], pres[i].patterns[1]))) {
            return pres[i].name;
        }
    }
    return NULL;
}

static pgd_status add_file_merges(const pgd_load_gguf *g, pgd_text *t) {
    pgd_load_gguf_walk w = {.value = pgd_load_gguf_get(g, "tokenizer.ggml.merges")};
    pgd_str merge;
    if (w.value == NULL || w.value->type != PGD_GGUF_STRING) {
        return pgd_fail(PGD_INVALID, "%s: no list of strings tokenizer.ggml.merges", g->file);
    }
    PGD_TRY(pgd_text_format(t, ",\"merges\":["));
    for (uint64_t i = 0; pgd_load_gguf_next_str(&w, &merge); i++) {
        PGD_TRY(pgd_text_format(t, "%s", i == 0 ? "" : ","));
        PGD_TRY(pgd_json_add_str(t, merge));
    }
    return pgd_text_format(t, "]");
}

static pgd_status add_bytes_bpe(const tokens *v, const pre_row *pre, pgd_text *t) {
    PGD_TRY(pgd_text_format(t, "{\"model\":{\"type\":\"BPE\",\"ignore_merges\":%s,",
                            pre->ignore_merges ? "true" : "false"));
    PGD_TRY(add_vocab(v, 0, t));
    PGD_TRY(add_file_merges(v->g, t));
    PGD_TRY(pgd_text_format(t, "}"));
    PGD_TRY(add_added(v, t));
    PGD_TRY(pgd_text_format(t, ",\"normalizer\":%s", pre->nfc ? "{\"type\":\"NFC\"}" : "null"));
    PGD_TRY(pgd_text_format(t, ",\"pre_tokenizer\":{\"type\":\"Sequence\",\"pretokenizers\":["));
    for (size_t i = 0; i < 2 && pre->patterns[i] != NULL; i++) {
        PGD_TRY(pgd_text_format(t, "{\"type\":\"Split\",\"pattern\":{\"Regex\":"));
        PGD_TRY(pgd_json_add_str(t, pgd_str_of(pre->patterns[i])));
        PGD_TRY(pgd_text_format(t, "},\"behavior\":\"Isolated\",\"invert\":false},"));
    }
    return pgd_text_format(t, "{\"type\":\"ByteLevel\",\"add_prefix_space\":false,"
                              "\"use_regex\":false}]},\"decoder\":{\"type\":\"ByteLevel\"}}");
}

// ---- SentencePiece BPE -------------------------------------------------------------------------

typedef struct ranked {
    float score;
    uint32_t id;
} ranked;

static int by_score(const void *left, const void *right) {
    const ranked *a = left;
    const ranked *b = right;
    if (a->score > b->score || a->score < b->score) {
        return a->score > b->score ? -1 : 1;
    }
    return a->id < b->id ? -1 : a->id > b->id;
}

// All cuts of one token into two tokens.
static pgd_status add_cuts(const pgd_map *ids, pgd_str piece, int32_t *first, pgd_text *t) {
    uint64_t id = 0;
    for (size_t at = 1; at < piece.len; at++) {
        pgd_str left = {piece.ptr, at};
        pgd_str right = {piece.ptr + at, piece.len - at};
        if (((unsigned char)piece.ptr[at] & 0xC0) == 0x80 || !pgd_map_get(ids, left, &id) ||
            !pgd_map_get(ids, right, &id)) {
            continue;
        }
        PGD_TRY(pgd_text_format(t, "%s[", *first ? "" : ","));
        PGD_TRY(pgd_json_add_str(t, left));
        PGD_TRY(pgd_text_format(t, ","));
        PGD_TRY(pgd_json_add_str(t, right));
        PGD_TRY(pgd_text_format(t, "]"));
        *first = 0;
    }
    return PGD_OK;
}

static pgd_status fill_ranks(const tokens *v, pgd_map *ids, ranked *list, uint32_t *out_n) {
    uint32_t n = 0;
    for (uint32_t i = 0; i < v->n; i++) {
        if (v->kinds[i] != PGD_LOAD_GGUF_NORMAL && v->kinds[i] != PGD_LOAD_GGUF_UNUSED) {
            continue;
        }
        PGD_TRY(pgd_map_set(ids, v->texts[i], i));
        if (v->texts[i].len > 1 && v->texts[i].len <= MAX_PIECE) {
            list[n++] = (ranked){v->scores[i], i};
        }
    }
    *out_n = n;
    return PGD_OK;
}

static pgd_status add_score_merges(const tokens *v, pgd_text *t) {
    pgd_map *ids = NULL;
    uint32_t n = 0;
    int32_t first = 1;
    PGD_TRY(pgd_map_create(v->n, &ids));
    ranked *list = pgd_mem_alloc((size_t)v->n + 1, sizeof(*list));
    pgd_status status = list == NULL ? PGD_MEM_FAIL("the merges", v->n * sizeof(*list))
                                     : fill_ranks(v, ids, list, &n);
    if (status == PGD_OK) {
        qsort(list, n, sizeof(*list), by_score);
        status = pgd_text_format(t, ",\"merges\":[");
    }
    for (uint32_t i = 0; status == PGD_OK && i < n; i++) {
        status = add_cuts(ids, v->texts[list[i].id], &first, t);
    }
    pgd_mem_free(list);
    pgd_map_destroy(ids);
    return status == PGD_OK ? pgd_text_format(t, "]") : status;
}

static pgd_status add_pieces_bpe(const tokens *v, pgd_text *t) {
    int32_t space = 1;
    PGD_TRY(pgd_load_gguf_bool(v->g, "tokenizer.ggml.add_space_prefix", &space));
    PGD_TRY(pgd_text_format(t, "{\"model\":{\"type\":\"BPE\",\"byte_fallback\":true,"
                               "\"fuse_unk\":true,"));
    for (uint32_t i = 0; i < v->n; i++) {
        if (v->kinds[i] == PGD_LOAD_GGUF_UNKNOWN) {
            PGD_TRY(pgd_text_format(t, "\"unk_token\":"));
            PGD_TRY(pgd_json_add_str(t, v->texts[i]));
            PGD_TRY(pgd_text_format(t, ","));
            break;
        }
    }
    PGD_TRY(add_vocab(v, 1, t));
    PGD_TRY(add_score_merges(v, t));
    PGD_TRY(pgd_text_format(t, "}"));
    PGD_TRY(add_added(v, t));
    PGD_TRY(pgd_text_format(
        t,
        ",\"normalizer\":{\"type\":\"Sequence\",\"normalizers\":[%s{\"type\":\"Replace\","
        "\"pattern\":{\"String\":\" \"},\"content\":\"\xE2\x96\x81\"}]},\"pre_tokenizer\":null",
        space ? "{\"type\":\"Prepend\",\"prepend\":\"\xE2\x96\x81\"}," : ""));
    return pgd_text_format(
        t,
        ",\"decoder\":{\"type\":\"Sequence\",\"decoders\":[{\"type\":\"Replace\",\"pattern\":"
        "{\"String\":\"\xE2\x96\x81\"},\"content\":\" \"},{\"type\":\"ByteFallback\"},"
        "{\"type\":\"Fuse\"}%s]}}",
        space ? ",{\"type\":\"Strip\",\"content\":\" \",\"start\":1,\"stop\":0}" : "");
}

// ---- both --------------------------------------------------------------------------------------

static pgd_status add_named(const tokens *v, const char *key, const char *name, int64_t otherwise,
                            pgd_text *t) {
    int64_t id = otherwise;
    PGD_TRY(pgd_load_gguf_int(v->g, key, -1, INT32_MAX, &id));
    if (id < 0 || id >= (int64_t)v->n) {
        return PGD_OK;
    }
    PGD_TRY(pgd_text_format(t, "\"%s\":", name));
    PGD_TRY(pgd_json_add_str(t, v->texts[id]));
    return pgd_text_format(t, ",");
}

// The text of tokenizer_config.json.
static pgd_status add_config(const tokens *v, int32_t bos_id, int32_t eos_id, int32_t add_bos,
                             pgd_text *t) {
    int32_t add_eos = 0;
    PGD_TRY(pgd_load_gguf_bool(v->g, "tokenizer.ggml.add_bos_token", &add_bos));
    PGD_TRY(pgd_load_gguf_bool(v->g, "tokenizer.ggml.add_eos_token", &add_eos));
    PGD_TRY(pgd_text_format(t, "{"));
    PGD_TRY(add_named(v, "tokenizer.ggml.bos_token_id", "bos_token", bos_id, t));
    PGD_TRY(add_named(v, "tokenizer.ggml.eos_token_id", "eos_token", eos_id, t));
    return pgd_text_format(t, "\"add_bos_token\":%s,\"add_eos_token\":%s}",
                           add_bos ? "true" : "false", add_eos ? "true" : "false");
}

static pgd_status make_texts(const tokens *v, pgd_text *tokenizer, pgd_text *config) {
    pgd_str model = {0};
    const pre_row *pre = NULL;
    PGD_TRY(pgd_load_gguf_str(v->g, "tokenizer.ggml.model", &model));
    if (pgd_str_is(model, "gpt2")) {
        PGD_TRY(find_pre(v->g, &pre));
        PGD_TRY(add_bytes_bpe(v, pre, tokenizer));
        return add_config(v, -1, -1, pre->add_bos, config);
    }
    if (pgd_str_is(model, "llama")) {
        PGD_TRY(add_pieces_bpe(v, tokenizer));
        return add_config(v, 1, 2, 1, config);
    }
    return pgd_fail(PGD_UNSUPPORTED,
                    "%s: the tokenizer \"%.*s\" (tokenizer.ggml.model) is not supported; gpt2 and "
                    "llama are",
                    v->g->file, PGD_LOAD_SHOW(model));
}

pgd_status pgd_load_gguf_tokenizer(const char *path, pgd_text *tokenizer, pgd_text *config) {
    pgd_load_weights *w = NULL;
    tokens v = {0};
    PGD_TRY(pgd_load_weights_open(path, &w));
    pgd_status status = read_tokens(pgd_load_weights_gguf(w), &v);
    if (status == PGD_OK) {
        status = make_texts(&v, tokenizer, config);
    }
    free_tokens(&v);
    pgd_load_weights_close(w);
    return status;
}

pgd_status pgd_load_gguf_template(const char *path, pgd_text *out) {
    pgd_load_weights *w = NULL;
    pgd_str text = {0};
    PGD_TRY(pgd_load_weights_open(path, &w));
    pgd_status status =
        pgd_load_gguf_str(pgd_load_weights_gguf(w), "tokenizer.chat_template", &text);
    if (status == PGD_OK) {
        status = text.len != 0 ? pgd_text_add_str(out, text)
                               : pgd_fail(PGD_NOT_FOUND, "%s: no chat template in the file", path);
    }
    pgd_load_weights_close(w);
    return status;
}

// ---- ends of an answer -------------------------------------------------------------------------

static void add_end(int32_t *ids, int32_t *n, int64_t id) {
    for (int32_t i = 0; i < *n; i++) {
        if (ids[i] == id) {
            return;
        }
    }
    if (id >= 0 && id <= INT32_MAX && *n < PGD_LOAD_MAX_EOS) {
        ids[(*n)++] = (int32_t)id;
    }
}

pgd_status pgd_load_gguf_ends(const pgd_load_gguf *g, int32_t *ids, int32_t *out_n) {
    static const char *const keys[] = {"tokenizer.ggml.eos_token_id", "tokenizer.ggml.eot_token_id",
                                       "tokenizer.ggml.eom_token_id"};
    static const char *const names[] = {"<|eot_id|>",    "<|im_end|>",    "<|end|>",
                                        "<|endoftext|>", "<end_of_turn>", "<|end_of_text|>",
                                        "<EOT>",         "<|eom_id|>"};
    pgd_load_gguf_walk w = {.value = pgd_load_gguf_get(g, "tokenizer.ggml.tokens")};
    pgd_str text;
    *out_n = 0;
    for (size_t i = 0; i < sizeof(keys) / sizeof(keys[0]); i++) {
        int64_t id = -1;
        PGD_TRY(pgd_load_gguf_int(g, keys[i], -1, INT32_MAX, &id));
        add_end(ids, out_n, id);
    }
    for (int64_t id = 0; pgd_load_gguf_next_str(&w, &text); id++) {
        for (size_t i = 0; text.len > 4 && i < sizeof(names) / sizeof(names[0]); i++) {
            if (text.ptr[0] == '<' && pgd_str_is(text, names[i])) {
                add_end(ids, out_n, id);
            }
        }
    }
    return PGD_OK;
}
