// Post-processors: which ids stand around the text's ids (BOS, EOS). Of a template only the form
// for one text is kept: a list of ids with a place for the text.
//
//   Llama 3   Sequence[ByteLevel, TemplateProcessing]   ->   [128000, TEXT]
#include "text/parts.h"

enum { MAX_NESTING = 8, MAX_ITEMS = 1024 };

#define KNOWN "Sequence, TemplateProcessing, ByteLevel, RobertaProcessing and BertProcessing"

static pgd_status add_item(pgd_text_post *p, int32_t id) {
    if (p->n == MAX_ITEMS) {
        return pgd_fail(PGD_UNSUPPORTED, "tokenizer.json: a template of more than %d items",
                        MAX_ITEMS);
    }
    void *items = p->items;
    PGD_TRY(pgd_text_grow(&items, &p->cap, p->n + 1, sizeof(*p->items), "the post-processor"));
    p->items = items;
    p->items[p->n++] = id;
    return PGD_OK;
}

static pgd_status add_id(pgd_text_post *p, const pgd_json *id, int32_t n_ids) {
    int64_t value = -1;
    if (!pgd_json_to_i64(id, &value) || value < 0 || value >= n_ids) {
        return pgd_fail(PGD_INVALID,
                        "tokenizer.json: the post-processor names id %lld; ids are 0 to %d",
                        (long long)value, n_ids - 1);
    }
    return add_item(p, (int32_t)value);
}

static pgd_status add_text(pgd_text_post *to, const pgd_text_post *inner) {
    for (size_t i = 0; i < inner->n; i++) {
        PGD_TRY(add_item(to, inner->items[i]));
    }
    return PGD_OK;
}

// Replaces *p by `around` a copy of *p: every place for the text in a template takes what the
// processors before it made.
static pgd_status read_template(pgd_text_post *p, const pgd_json *json, int32_t n_ids) {
    const pgd_json *single = pgd_json_get(json, "single");
    const pgd_json *specials = pgd_json_get(json, "special_tokens");
    if (!pgd_json_is(single, PGD_JSON_ARRAY)) {
        return pgd_fail(PGD_INVALID, "tokenizer.json: TemplateProcessing without a list `single`");
    }
    pgd_text_post made = {0};
    pgd_status status = PGD_OK;
    for (uint32_t i = 0; i < single->n && status == PGD_OK; i++) {
        const pgd_json *special = pgd_json_get(&single->items[i], "SpecialToken");
        if (special == NULL) {
            status = add_text(&made, p);
            continue;
        }
        pgd_str name = pgd_text_member(special, "id");
        const pgd_json *ids = NULL;
        for (uint32_t k = 0; pgd_json_is(specials, PGD_JSON_OBJECT) && k < specials->n; k++) {
            if (pgd_str_equal(specials->keys[k], name)) {
                ids = pgd_json_get(&specials->items[k], "ids");
            }
        }
        if (!pgd_json_is(ids, PGD_JSON_ARRAY)) {
            status =
                pgd_fail(PGD_INVALID, "tokenizer.json: TemplateProcessing has no ids for '%.*s'",
                         PGD_STR_SHOW(name));
        }
        for (uint32_t k = 0; status == PGD_OK && k < ids->n; k++) {
            status = add_id(&made, &ids->items[k], n_ids);
        }
    }
    if (status != PGD_OK) {
        pgd_text_post_free(&made);
        return status;
    }
    pgd_text_post_free(p);
    *p = made;
    return PGD_OK;
}

pgd_status pgd_text_post_wrap(pgd_text_post *p, int32_t before, int32_t after) {
    pgd_text_post made = {0};
    pgd_status status = before >= 0 ? add_item(&made, before) : PGD_OK;
    if (status == PGD_OK) {
        status = add_text(&made, p);
    }
    if (status == PGD_OK && after >= 0) {
        status = add_item(&made, after);
    }
    if (status != PGD_OK) {
        pgd_text_post_free(&made);
        return status;
    }
    pgd_text_post_free(p);
    *p = made;
    return PGD_OK;
}

// "sep": ["</s>", 2], "cls": ["<s>", 0]
static pgd_status read_bert(pgd_text_post *p, const pgd_json *json, int32_t n_ids) {
    const pgd_json *pair[2] = {pgd_json_get(json, "cls"), pgd_json_get(json, "sep")};
    int64_t ids[2] = {-1, -1};
    for (int32_t i = 0; i < 2; i++) {
        if (!pgd_json_is(pair[i], PGD_JSON_ARRAY) || pair[i]->n != 2 ||
            !pgd_json_to_i64(&pair[i]->items[1], &ids[i]) || ids[i] < 0 || ids[i] >= n_ids) {
            return pgd_fail(PGD_INVALID,
                            "tokenizer.json: the post-processor needs cls and sep as [token, id]");
        }
    }
    return pgd_text_post_wrap(p, (int32_t)ids[0], (int32_t)ids[1]);
}

static pgd_status read_one(pgd_text_post *p, const pgd_json *json, int32_t n_ids, int32_t level) {
    pgd_str type = pgd_text_type(json);
    if (pgd_str_is(type, "ByteLevel")) {
        return PGD_OK; // offsets only
    }
    if (pgd_str_is(type, "TemplateProcessing")) {
        return read_template(p, json, n_ids);
    }
    if (pgd_str_is(type, "RobertaProcessing") || pgd_str_is(type, "BertProcessing")) {
        return read_bert(p, json, n_ids);
    }
    if (!pgd_str_is(type, "Sequence")) {
        return pgd_text_refuse("post-processor", json, KNOWN);
    }
    const pgd_json *parts = pgd_json_get(json, "processors");
    if (!pgd_json_is(parts, PGD_JSON_ARRAY) || level >= MAX_NESTING) {
        return pgd_fail(PGD_INVALID,
                        "tokenizer.json: post-processor Sequence without a list of "
                        "processors, or nested more than %d deep",
                        MAX_NESTING);
    }
    for (uint32_t i = 0; i < parts->n; i++) {
        PGD_TRY(read_one(p, &parts->items[i], n_ids, level + 1));
    }
    return PGD_OK;
}

pgd_status pgd_text_post_create(const pgd_json *json, int32_t n_ids, pgd_text_post *out) {
    *out = (pgd_text_post){0};
    PGD_TRY(add_item(out, PGD_TEXT_POST_TEXT));
    if (json == NULL || pgd_json_is(json, PGD_JSON_NULL)) {
        return PGD_OK;
    }
    pgd_status status = read_one(out, json, n_ids, 0);
    if (status != PGD_OK) {
        pgd_text_post_free(out);
    }
    return status;
}

void pgd_text_post_free(pgd_text_post *p) {
    pgd_mem_free(p->items);
    *p = (pgd_text_post){0};
}
