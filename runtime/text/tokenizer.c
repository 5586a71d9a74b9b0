// Opening a tokenizer: tokenizer.json and tokenizer_config.json into the parts of this room.
#include "text/tokenizer.h"

#include <string.h>

#include "base/fail.h"
#include "load/gguf_model.h"
#include "text/parts.h"

enum { MAX_ID = 1 << 24 };

// ---- small readers -----------------------------------------------------------------------------

pgd_str pgd_text_member(const pgd_json *json, const char *key) {
    pgd_str s = {0};
    (void)pgd_json_to_str(pgd_json_get(json, key), &s);
    return s;
}

pgd_str pgd_text_type(const pgd_json *json) {
    return pgd_text_member(json, "type");
}

int32_t pgd_text_flag(const pgd_json *json, const char *key, int32_t otherwise) {
    int32_t value = otherwise;
    (void)pgd_json_to_bool(pgd_json_get(json, key), &value);
    return value;
}

pgd_status pgd_text_refuse(const char *kind, const pgd_json *json, const char *known) {
    pgd_str type = pgd_text_type(json);
    if (type.len == 0) {
        return pgd_fail(PGD_INVALID, "tokenizer.json: a %s without a type; known are %s", kind,
                        known);
    }
    return pgd_fail(PGD_UNSUPPORTED, "tokenizer.json: %s %.*s is not supported; known are %s", kind,
                    PGD_STR_SHOW(type), known);
}

// ---- vocabulary --------------------------------------------------------------------------------

static pgd_status check_id(const pgd_json *value, pgd_str name, int32_t *out) {
    int64_t id = -1;
    if (!pgd_json_to_i64(value, &id) || id < 0 || id >= MAX_ID) {
        return pgd_fail(PGD_INVALID,
                        "tokenizer.json: token '%.*s' has no id, or one outside 0 to %d",
                        PGD_STR_SHOW(name), MAX_ID - 1);
    }
    *out = (int32_t)id;
    return PGD_OK;
}

static pgd_status keep(pgd_text_tokenizer *t, pgd_str s, pgd_str *out) {
    *out = pgd_arena_copy(t->arena, s);
    return out->ptr == NULL ? PGD_MEM_FAIL("a token", s.len) : PGD_OK;
}

static pgd_status count_ids(pgd_text_tokenizer *t, const pgd_json *vocab, const pgd_json *added) {
    if (!pgd_json_is(vocab, PGD_JSON_OBJECT)) {
        return pgd_fail(PGD_INVALID, "tokenizer.json: the model has no vocab");
    }
    int32_t id = 0;
    for (uint32_t i = 0; i < vocab->n; i++) {
        PGD_TRY(check_id(&vocab->items[i], vocab->keys[i], &id));
        t->n_ids = id >= t->n_ids ? id + 1 : t->n_ids;
    }
    for (uint32_t i = 0; i < t->n_added; i++) {
        pgd_str content = {0};
        if (!pgd_json_to_str(pgd_json_get(&added->items[i], "content"), &content)) {
            return pgd_fail(PGD_INVALID, "tokenizer.json: added token %u has no content", i);
        }
        PGD_TRY(check_id(pgd_json_get(&added->items[i], "id"), content, &id));
        t->n_ids = id >= t->n_ids ? id + 1 : t->n_ids;
    }
    return PGD_OK;
}

static pgd_status read_vocab(pgd_text_tokenizer *t, const pgd_json *vocab) {
    PGD_TRY(pgd_map_create(vocab->n, &t->vocab));
    PGD_TRY(pgd_map_create((size_t)vocab->n + t->n_added, &t->names));
    t->contents = pgd_mem_alloc((size_t)t->n_ids + 1, sizeof(*t->contents));
    t->is_special = pgd_mem_alloc((size_t)t->n_ids + 1, sizeof(*t->is_special));
    if (t->contents == NULL || t->is_special == NULL) {
        return PGD_MEM_FAIL("the vocabulary", (size_t)t->n_ids * sizeof(*t->contents));
    }
    for (uint32_t i = 0; i < vocab->n; i++) {
        int32_t id = 0;
        pgd_str content;
        PGD_TRY(check_id(&vocab->items[i], vocab->keys[i], &id));
        PGD_TRY(keep(t, vocab->keys[i], &content));
        t->contents[id] = content;
        PGD_TRY(pgd_map_set(t->vocab, content, (uint64_t)id));
        PGD_TRY(pgd_map_set(t->names, content, (uint64_t)id));
    }
    return PGD_OK;
}

// ---- added tokens ------------------------------------------------------------------------------

// The match text of a token that is looked for in normalized text.
static pgd_status normalize_content(pgd_text_tokenizer *t, pgd_text_added_token *token) {
    token->match = token->content;
    if (!token->normalized || t->normalizer == NULL || token->content.len == 0) {
        return PGD_OK;
    }
    pgd_text_work w = {.text = token->content};
    pgd_status status = pgd_text_work_put(&w, 0, token->content.len, -1, 1);
    if (status == PGD_OK) {
        pgd_text_work_split_done(&w);
        status = pgd_text_normalizer_run(t->normalizer, &w);
    }
    if (status == PGD_OK) {
        status = keep(t, w.text, &token->match);
    }
    pgd_text_work_free(&w);
    return status;
}

static pgd_status read_added_token(pgd_text_tokenizer *t, const pgd_json *json,
                                   pgd_text_added_token *token) {
    PGD_TRY(keep(t, pgd_text_member(json, "content"), &token->content));
    PGD_TRY(check_id(pgd_json_get(json, "id"), token->content, &token->id));
    uint64_t id = 0;
    if (pgd_map_get(t->vocab, token->content, &id)) {
        token->id = (int32_t)id; // the model's id counts
    }
    token->special = pgd_text_flag(json, "special", 0);
    token->single_word = pgd_text_flag(json, "single_word", 0);
    token->lstrip = pgd_text_flag(json, "lstrip", 0);
    token->rstrip = pgd_text_flag(json, "rstrip", 0);
    token->normalized = pgd_text_flag(json, "normalized", !token->special);
    PGD_TRY(normalize_content(t, token));
    t->contents[token->id] = token->match; // the library decodes to the normalized form too
    t->is_special[token->id] |= (uint8_t)token->special;
    return pgd_map_set(t->names, token->content, (uint64_t)token->id);
}

static pgd_status read_added(pgd_text_tokenizer *t, const pgd_json *added) {
    t->added = pgd_mem_alloc(t->n_added + 1, sizeof(*t->added));
    if (t->added == NULL) {
        return PGD_MEM_FAIL("added tokens", t->n_added * sizeof(*t->added));
    }
    size_t n = 0;
    for (int32_t special = 1; special >= 0; special--) {
        for (uint32_t i = 0; i < t->n_added; i++) {
            if (pgd_text_flag(&added->items[i], "special", 0) == special) {
                PGD_TRY(read_added_token(t, &added->items[i], &t->added[n++]));
            }
        }
    }
    PGD_TRY(pgd_text_trie_create(t->added, n, 0, &t->trie_raw));
    return pgd_text_trie_create(t->added, n, 1, &t->trie_normalized);
}

// ---- files -------------------------------------------------------------------------------------

static pgd_status read_tokenizer(pgd_text_tokenizer *t, const pgd_json *root) {
    const pgd_json *model = pgd_json_get(root, "model");
    const pgd_json *added = pgd_json_get(root, "added_tokens");
    pgd_str type = pgd_text_type(model);
    // old files leave the type of BPE out
    if (!pgd_str_is(type, "BPE") && (type.len != 0 || pgd_json_get(model, "merges") == NULL)) {
        return pgd_text_refuse("model", model, "BPE");
    }
    t->n_added = pgd_json_is(added, PGD_JSON_ARRAY) ? added->n : 0;
    PGD_TRY(count_ids(t, pgd_json_get(model, "vocab"), added));
    PGD_TRY(read_vocab(t, pgd_json_get(model, "vocab")));
    PGD_TRY(pgd_text_normalizer_create(pgd_json_get(root, "normalizer"), &t->normalizer));
    PGD_TRY(read_added(t, added));
    PGD_TRY(pgd_text_pretokenizer_create(pgd_json_get(root, "pre_tokenizer"), &t->pretokenizer));
    PGD_TRY(pgd_text_bpe_create(model, t->vocab, t->n_ids, &t->bpe));
    PGD_TRY(pgd_text_post_create(pgd_json_get(root, "post_processor"), t->n_ids, &t->post));
    return pgd_text_decoder_create(pgd_json_get(root, "decoder"), &t->decoder);
}

// A token named in tokenizer_config.json: a string or {"content": ...}.
static int32_t named_id(const pgd_text_tokenizer *t, const pgd_json *config, const char *key) {
    const pgd_json *value = pgd_json_get(config, key);
    pgd_str name = {0};
    if (!pgd_json_to_str(value, &name)) {
        name = pgd_text_member(value, "content");
    }
    return name.len > 0 ? pgd_text_token_id(t, name) : -1;
}

// add_bos_token and add_eos_token only count where tokenizer.json leaves the question open.
static pgd_status read_config(pgd_text_tokenizer *t, const pgd_json *config) {
    t->bos = named_id(t, config, "bos_token");
    t->eos = named_id(t, config, "eos_token");
    if (t->post.n != 1) {
        return PGD_OK;
    }
    int32_t before = pgd_text_flag(config, "add_bos_token", 0) ? t->bos : -1;
    int32_t after = pgd_text_flag(config, "add_eos_token", 0) ? t->eos : -1;
    return before >= 0 || after >= 0 ? pgd_text_post_wrap(&t->post, before, after) : PGD_OK;
}

static pgd_status read_file(const char *folder, const char *name, pgd_json_doc **out) {
    *out = NULL;
    pgd_text path = {0};
    pgd_status status = pgd_text_format(&path, "%s/%s", folder, name);
    if (status == PGD_OK) {
        status = pgd_json_read_file(path.ptr, out);
    }
    pgd_text_free(&path);
    return status;
}

static pgd_status create(pgd_text_tokenizer **out) {
    *out = NULL;
    pgd_text_tokenizer *t = pgd_mem_alloc(1, sizeof(*t));
    if (t == NULL) {
        return PGD_MEM_FAIL("a tokenizer", sizeof(*t));
    }
    t->bos = -1;
    t->eos = -1;
    pgd_status status = pgd_arena_create(0, &t->arena);
    if (status != PGD_OK) {
        pgd_mem_free(t);
        return status;
    }
    *out = t;
    return PGD_OK;
}

static pgd_status fill(pgd_text_tokenizer *t, const char *folder) {
    pgd_json_doc *doc = NULL;
    PGD_TRY(read_file(folder, "tokenizer.json", &doc));
    pgd_status status = read_tokenizer(t, pgd_json_root(doc));
    pgd_json_free(doc);
    PGD_TRY(status);
    status = read_file(folder, "tokenizer_config.json", &doc);
    if (status == PGD_NOT_FOUND) {
        return PGD_OK;
    }
    if (status == PGD_OK) {
        status = read_config(t, pgd_json_root(doc));
        pgd_json_free(doc);
    }
    return status;
}

// The texts of a GGUF file's tokenizer, parsed.
static pgd_status open_gguf(const char *path, pgd_text_tokenizer **out) {
    pgd_text tokenizer = {0};
    pgd_text config = {0};
    *out = NULL;
    pgd_status status = pgd_load_gguf_tokenizer(path, &tokenizer, &config);
    if (status == PGD_OK) {
        status = pgd_text_tokenizer_parse(pgd_text_view(&tokenizer), pgd_text_view(&config), out);
    }
    pgd_text_free(&tokenizer);
    pgd_text_free(&config);
    return pgd_fail_note(status, "while opening the tokenizer in %s", path);
}

pgd_status pgd_text_tokenizer_open(const char *folder, pgd_text_tokenizer **out) {
    if (pgd_load_gguf_is(folder)) {
        return open_gguf(folder, out);
    }
    PGD_TRY(create(out));
    pgd_status status = fill(*out, folder);
    if (status != PGD_OK) {
        pgd_text_tokenizer_close(*out);
        *out = NULL;
    }
    return pgd_fail_note(status, "while opening the tokenizer in %s", folder);
}

static pgd_status fill_parsed(pgd_text_tokenizer *t, pgd_str tokenizer, pgd_str config) {
    pgd_json_doc *doc = NULL;
    PGD_TRY(pgd_json_parse(tokenizer, "tokenizer.json", 0, &doc));
    pgd_status status = read_tokenizer(t, pgd_json_root(doc));
    pgd_json_free(doc);
    if (status == PGD_OK && config.len > 0) {
        PGD_TRY(pgd_json_parse(config, "tokenizer_config.json", 0, &doc));
        status = read_config(t, pgd_json_root(doc));
        pgd_json_free(doc);
    }
    return status;
}

pgd_status pgd_text_tokenizer_parse(pgd_str tokenizer, pgd_str config, pgd_text_tokenizer **out) {
    PGD_TRY(create(out));
    pgd_status status = fill_parsed(*out, tokenizer, config);
    if (status != PGD_OK) {
        pgd_text_tokenizer_close(*out);
        *out = NULL;
    }
    return status;
}

void pgd_text_tokenizer_close(pgd_text_tokenizer *t) {
    if (t == NULL) {
        return;
    }
    pgd_text_decoder_destroy(t->decoder);
    pgd_text_post_free(&t->post);
    pgd_text_bpe_destroy(t->bpe);
    pgd_text_pretokenizer_destroy(t->pretokenizer);
    pgd_text_normalizer_destroy(t->normalizer);
    pgd_text_trie_destroy(t->trie_raw);
    pgd_text_trie_destroy(t->trie_normalized);
    pgd_mem_free(t->added);
    pgd_mem_free(t->contents);
    pgd_mem_free(t->is_special);
    pgd_map_destroy(t->vocab);
    pgd_map_destroy(t->names);
    pgd_arena_destroy(t->arena);
    pgd_mem_free(t);
}

// ---- questions ---------------------------------------------------------------------------------

int32_t pgd_text_vocab_size(const pgd_text_tokenizer *t) {
    return t->n_ids;
}

int32_t pgd_text_token_id(const pgd_text_tokenizer *t, pgd_str content) {
    uint64_t id = 0;
    return pgd_map_get(t->names, content, &id) ? (int32_t)id : -1;
}

pgd_str pgd_text_token_content(const pgd_text_tokenizer *t, int32_t id) {
    return id >= 0 && id < t->n_ids ? t->contents[id] : (pgd_str){0};
}

int32_t pgd_text_token_is_special(const pgd_text_tokenizer *t, int32_t id) {
    return id >= 0 && id < t->n_ids ? t->is_special[id] : 0;
}

int32_t pgd_text_bos(const pgd_text_tokenizer *t) {
    return t->bos;
}

int32_t pgd_text_eos(const pgd_text_tokenizer *t) {
    return t->eos;
}
