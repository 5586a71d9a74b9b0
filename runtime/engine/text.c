// Text without a request: chat prompts, token ids, the model's own sampling values. [any] all of
// it: what it reads of the engine never changes. See <pagoda/pagoda.h>.
#include "engine/text.h"
#include "engine/inner.h"

#include <string.h>

#include "base/fail.h"
#include "base/json.h"
#include "base/mem.h"

// ---- token ids ---------------------------------------------------------------------------------

static pgd_status need_tokenizer(const pgd_engine *e) {
    if (e->tokenizer == NULL) {
        return pgd_fail(PGD_NOT_FOUND, "the model %s has no tokenizer", e->folder);
    }
    return PGD_OK;
}

pgd_status pgd_engine_encode(const pgd_engine *e, const char *text, size_t text_len,
                             uint32_t no_special, int32_t **out, int32_t *out_n) {
    pgd_text_ids ids = {0};
    *out = NULL;
    *out_n = 0;
    PGD_TRY(need_tokenizer(e));
    const pgd_str s = {text, text_len != 0 ? text_len : strlen(text)};
    pgd_status status =
        pgd_text_encode(e->tokenizer, s, no_special ? 0 : PGD_TEXT_ADD_SPECIAL, &ids);
    if (status == PGD_OK && ids.n > INT32_MAX) {
        status = pgd_fail(PGD_OUT_OF_RANGE, "the text has %zu tokens; at most %d are allowed",
                          ids.n, INT32_MAX);
    }
    if (status != PGD_OK) {
        pgd_text_ids_free(&ids);
        return status;
    }
    *out = ids.ids;
    *out_n = (int32_t)ids.n;
    return PGD_OK;
}

pgd_status pgd_engine_decode(const pgd_engine *e, const int32_t *ids, size_t n,
                             uint32_t keep_special, char **out) {
    pgd_text text = {0};
    *out = NULL;
    PGD_TRY(need_tokenizer(e));
    pgd_status status = pgd_text_reserve(&text, 1);
    if (status == PGD_OK) {
        status = pgd_text_decode(e->tokenizer, ids, n, keep_special == 0, &text);
    }
    if (status != PGD_OK) {
        pgd_text_free(&text);
        return status;
    }
    *out = text.ptr;
    return PGD_OK;
}

// ---- chat --------------------------------------------------------------------------------------

static pgd_status add_token_var(const pgd_engine *e, const char *key, int32_t id, pgd_text *t) {
    if (id < 0) {
        return PGD_OK;
    }
    PGD_TRY(pgd_text_format(t, ",\"%s\":", key));
    return pgd_json_add_str(t, pgd_text_token_content(e->tokenizer, id));
}

// The variables of a template as one JSON text.
static pgd_status chat_vars(const pgd_engine *e, const char *messages, const char *tools,
                            pgd_text *out) {
    PGD_TRY(pgd_text_format(out, "{\"messages\":%s,\"add_generation_prompt\":true", messages));
    if (tools != NULL) {
        PGD_TRY(pgd_text_format(out, ",\"tools\":%s", tools));
    }
    if (e->tokenizer != NULL) {
        PGD_TRY(add_token_var(e, "bos_token", pgd_text_bos(e->tokenizer), out));
        PGD_TRY(add_token_var(e, "eos_token", pgd_text_eos(e->tokenizer), out));
    }
    return pgd_text_format(out, "}");
}

// messages and tools are checked alone first, so that no text can leave its place.
static pgd_status check_array(const char *text, const char *what) {
    pgd_json_doc *doc = NULL;
    PGD_TRY(pgd_json_parse(pgd_str_of(text), what, 64, &doc));
    int32_t is_array = pgd_json_is(pgd_json_root(doc), PGD_JSON_ARRAY);
    pgd_json_free(doc);
    if (!is_array) {
        return pgd_fail(PGD_INVALID, "%s: a JSON array is needed", what);
    }
    return PGD_OK;
}

pgd_status pgd_engine_chat_prompt(const pgd_engine *e, const char *messages, const char *tools,
                                  char **out) {
    *out = NULL;
    if (e->chat == NULL) {
        return pgd_fail(PGD_NOT_FOUND, "the model %s has no chat template", e->folder);
    }
    PGD_TRY(check_array(messages, "messages"));
    if (tools != NULL) {
        PGD_TRY(check_array(tools, "tools"));
    }
    pgd_text vars = {0};
    pgd_text text = {0};
    pgd_json_doc *doc = NULL;
    pgd_status status = chat_vars(e, messages, tools, &vars);
    if (status == PGD_OK) {
        status = pgd_json_parse(pgd_text_view(&vars), "messages", 66, &doc);
    }
    if (status == PGD_OK) {
        status = pgd_text_template_render(e->chat, pgd_json_root(doc), &text);
    }
    if (status == PGD_OK) {
        status = pgd_mem_copy_text(text.ptr != NULL ? text.ptr : "", out);
    }
    pgd_json_free(doc);
    pgd_text_free(&vars);
    pgd_text_free(&text);
    return status;
}

void pgd_engine_defaults(const pgd_engine *e, pgd_request_desc *desc) {
    const pgd_load_generation *g = &e->config->generation;
    int32_t greedy = g->has_do_sample && !g->do_sample;
    desc->temperature = greedy ? 0.0f : g->has_temperature ? (float)g->temperature : 1.0f;
    if (g->has_top_p) {
        desc->top_p = (float)g->top_p;
    }
    if (g->has_top_k) {
        desc->top_k = g->top_k;
    }
    if (g->has_min_p) {
        desc->min_p = (float)g->min_p;
    }
    if (g->has_repetition_penalty && desc->size > offsetof(pgd_request_desc, repetition_penalty)) {
        desc->repetition_penalty = (float)g->repetition_penalty;
    }
}

const pgd_text_tokenizer *pgd_engine_tokenizer(const pgd_engine *e) {
    return e->tokenizer;
}

const pgd_text_template *pgd_engine_template(const pgd_engine *e) {
    return e->chat;
}
