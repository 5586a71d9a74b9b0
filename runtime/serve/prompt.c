// The prompts of a request: messages through the model's own template, texts through its tokenizer,
// token ids as they are.
#include <stdio.h>
#include <string.h>

#include "base/fail.h"
#include "base/mem.h"
#include "serve/inner.h"

#define MAX_PROMPTS 1024
#define VARS_DEPTH  80

static const pgd_json *value_of(const pgd_serve_call *call, int32_t field) {
    return call->body.values[field].json;
}

// ---- chat --------------------------------------------------------------------------------------

static int32_t refuse_part(pgd_serve_call *call, uint32_t at, pgd_str type) {
    return pgd_api_refuse(&call->error, 400, "messages", NULL,
                          "messages[%u]: a content part of type \"%.*s\" is not supported; "
                          "\"text\" is allowed",
                          at, (int)(type.len < 32 ? type.len : 32), type.ptr);
}

// A content of parts becomes one string, its texts on lines of their own.
static int32_t add_content(pgd_serve_call *call, uint32_t at, const pgd_json *v, pgd_text *out,
                           pgd_status *status) {
    pgd_text joined = {0};
    if (!pgd_json_is(v, PGD_JSON_ARRAY)) {
        *status = pgd_json_add(out, v);
        return 0;
    }
    for (uint32_t i = 0; i < v->n && *status == PGD_OK; i++) {
        pgd_str type = PGD_STR("text");
        pgd_str text = {"", 0};
        const pgd_json *part = &v->items[i];
        (void)pgd_json_to_str(pgd_json_get(part, "type"), &type);
        if (!pgd_str_is(type, "text") || !pgd_json_to_str(pgd_json_get(part, "text"), &text)) {
            pgd_text_free(&joined);
            return refuse_part(call, at, type);
        }
        *status = i > 0 ? pgd_text_add(&joined, "\n", 1) : PGD_OK;
        *status = *status == PGD_OK ? pgd_text_add_str(&joined, text) : *status;
    }
    *status = *status == PGD_OK ? pgd_json_add_str(out, pgd_text_view(&joined)) : *status;
    pgd_text_free(&joined);
    return 0;
}

// Templates want the arguments of earlier calls as an object; clients send them as a string.
static pgd_status add_arguments(pgd_text *out, const pgd_json *v) {
    pgd_json_doc *doc = NULL;
    pgd_str text;
    if (pgd_json_to_str(v, &text) && pgd_json_parse(text, "arguments", 64, &doc) == PGD_OK) {
        pgd_status status = pgd_json_add(out, pgd_json_root(doc));
        pgd_json_free(doc);
        return status;
    }
    return pgd_json_add(out, v);
}

static pgd_status add_object_with(pgd_text *out, const pgd_json *v, const char *special,
                                  pgd_status (*add)(pgd_text *, const pgd_json *)) {
    PGD_TRY(pgd_text_add(out, "{", 1));
    for (uint32_t i = 0; i < v->n; i++) {
        PGD_TRY(pgd_text_add(out, ",", i > 0 ? 1 : 0));
        PGD_TRY(pgd_json_add_str(out, v->keys[i]));
        PGD_TRY(pgd_text_add(out, ":", 1));
        PGD_TRY(pgd_str_is(v->keys[i], special) ? add(out, &v->items[i])
                                                : pgd_json_add(out, &v->items[i]));
    }
    return pgd_text_add(out, "}", 1);
}

static pgd_status add_function(pgd_text *out, const pgd_json *v) {
    return pgd_json_is(v, PGD_JSON_OBJECT) ? add_object_with(out, v, "arguments", add_arguments)
                                           : pgd_json_add(out, v);
}

static pgd_status add_tool_calls(pgd_text *out, const pgd_json *v) {
    if (!pgd_json_is(v, PGD_JSON_ARRAY)) {
        return pgd_json_add(out, v);
    }
    PGD_TRY(pgd_text_add(out, "[", 1));
    for (uint32_t i = 0; i < v->n; i++) {
        PGD_TRY(pgd_text_add(out, ",", i > 0 ? 1 : 0));
        PGD_TRY(pgd_json_is(&v->items[i], PGD_JSON_OBJECT)
                    ? add_object_with(out, &v->items[i], "function", add_function)
                    : pgd_json_add(out, &v->items[i]));
    }
    return pgd_text_add(out, "]", 1);
}

// "developer" is the newer name of "system", which templates know.
static pgd_status add_role(pgd_text *out, const pgd_json *v) {
    pgd_str role;
    if (pgd_json_to_str(v, &role) && pgd_str_is(role, "developer")) {
        return pgd_text_format(out, "\"system\"");
    }
    return pgd_json_add(out, v);
}

static int32_t add_message(pgd_serve_call *call, uint32_t at, const pgd_json *m, pgd_text *out,
                           pgd_status *status) {
    pgd_str role;
    if (!pgd_json_is(m, PGD_JSON_OBJECT) || !pgd_json_to_str(pgd_json_get(m, "role"), &role)) {
        return pgd_api_refuse(&call->error, 400, "messages", NULL,
                              "messages[%u]: an object with a \"role\" is allowed", at);
    }
    *status = pgd_text_add(out, at > 0 ? ",{" : "{", at > 0 ? 2 : 1);
    for (uint32_t i = 0; i < m->n && *status == PGD_OK; i++) {
        const pgd_json *v = &m->items[i];
        *status = pgd_text_add(out, ",", i > 0 ? 1 : 0);
        *status = *status == PGD_OK ? pgd_json_add_str(out, m->keys[i]) : *status;
        *status = *status == PGD_OK ? pgd_text_add(out, ":", 1) : *status;
        if (*status != PGD_OK) {
            break;
        }
        if (pgd_str_is(m->keys[i], "content")) {
            if (add_content(call, at, v, out, status) != 0) {
                return -1;
            }
        } else if (pgd_str_is(m->keys[i], "tool_calls")) {
            *status = add_tool_calls(out, v);
        } else if (pgd_str_is(m->keys[i], "role")) {
            *status = add_role(out, v);
        } else {
            *status = pgd_json_add(out, v);
        }
    }
    *status = *status == PGD_OK ? pgd_text_add(out, "}", 1) : *status;
    return 0;
}

static pgd_status add_token(pgd_text *out, const char *name, const pgd_text_tokenizer *t,
                            int32_t id) {
    if (id < 0) {
        return PGD_OK;
    }
    PGD_TRY(pgd_text_format(out, ",\"%s\":", name));
    return pgd_json_add_str(out, pgd_text_token_content(t, id));
}

// Variables of the template behind the messages.
static pgd_status add_rest(pgd_serve_call *call, pgd_text *out) {
    const pgd_text_tokenizer *t = call->server->tokenizer;
    const pgd_json *more = value_of(call, PGD_API_chat_template_kwargs);
    const int32_t continues = (int32_t)pgd_api_int(&call->body, PGD_API_continue_final_message, 0);
    const int64_t opens = pgd_api_int(&call->body, PGD_API_add_generation_prompt, !continues);
    PGD_TRY(pgd_text_format(out, "],\"add_generation_prompt\":%s", opens ? "true" : "false"));
    PGD_TRY(add_token(out, "bos_token", t, pgd_text_bos(t)));
    PGD_TRY(add_token(out, "eos_token", t, pgd_text_eos(t)));
    const struct {
        const char *name;
        int32_t field;
    } lists[] = {{"tools", PGD_API_tools}, {"documents", PGD_API_documents}};
    for (int32_t i = 0; i < 2; i++) {
        const pgd_json *v = lists[i].field == PGD_API_tools ? pgd_api_tools_offered(&call->body)
                                                            : value_of(call, lists[i].field);
        if (v != NULL && v->n > 0) {
            PGD_TRY(pgd_text_format(out, ",\"%s\":", lists[i].name));
            PGD_TRY(pgd_json_add(out, v));
        }
    }
    const pgd_json *effort = value_of(call, PGD_API_reasoning_effort);
    if (effort != NULL) {
        PGD_TRY(pgd_text_format(out, ",\"reasoning_effort\":"));
        PGD_TRY(pgd_json_add(out, effort));
    }
    for (uint32_t i = 0; more != NULL && i < more->n; i++) {
        PGD_TRY(pgd_text_add(out, ",", 1));
        PGD_TRY(pgd_json_add_str(out, more->keys[i]));
        PGD_TRY(pgd_text_add(out, ":", 1));
        PGD_TRY(pgd_json_add(out, &more->items[i]));
    }
    return pgd_text_add(out, "}", 1);
}

// With continue_final_message the prompt ends behind the text of the last message.
static int32_t cut_behind_last(pgd_serve_call *call, const pgd_json *messages, pgd_text *text) {
    pgd_str last = {"", 0};
    (void)pgd_json_to_str(pgd_json_get(&messages->items[messages->n - 1], "content"), &last);
    last = pgd_str_trim(last);
    for (size_t end = text->len; last.len > 0 && end >= last.len; end--) {
        if (memcmp(text->ptr + end - last.len, last.ptr, last.len) == 0) {
            text->len = end;
            return 0;
        }
    }
    return pgd_api_refuse(&call->error, 400, "continue_final_message", NULL,
                          "the template does not show the last message, so it cannot be "
                          "gone on with");
}

static int32_t render(pgd_serve_call *call, const pgd_json *messages, pgd_text *out) {
    pgd_text vars = {0};
    pgd_json_doc *doc = NULL;
    pgd_status status = pgd_text_format(&vars, "{\"messages\":[");
    int32_t result = 0;
    for (uint32_t i = 0; i < messages->n && status == PGD_OK && result == 0; i++) {
        result = add_message(call, i, &messages->items[i], &vars, &status);
    }
    if (result == 0 && status == PGD_OK) {
        status = add_rest(call, &vars);
        status = status == PGD_OK
                     ? pgd_json_parse(pgd_text_view(&vars), "messages", VARS_DEPTH, &doc)
                     : status;
        status = status == PGD_OK
                     ? pgd_text_template_render(call->server->chat, pgd_json_root(doc), out)
                     : status;
    }
    if (result == 0 && status != PGD_OK) {
        result = pgd_api_refuse_status(&call->error, status, "messages");
    }
    if (result == 0 && pgd_api_int(&call->body, PGD_API_continue_final_message, 0)) {
        result = cut_behind_last(call, messages, out);
    }
    pgd_json_free(doc);
    pgd_text_free(&vars);
    return result;
}

static int32_t encode(pgd_serve_call *call, pgd_str text, int32_t add_special, pgd_text_ids *out) {
    pgd_status status = call->server->tokenizer == NULL
                            ? pgd_fail(PGD_UNSUPPORTED, "this model has no tokenizer; token ids "
                                                        "are allowed")
                            : pgd_text_encode(call->server->tokenizer, text,
                                              add_special ? PGD_TEXT_ADD_SPECIAL : 0, out);
    return status == PGD_OK
               ? 0
               : pgd_api_refuse_status(&call->error, status, call->is_chat ? "messages" : "prompt");
}

// Further variables cannot stand in for what the server itself tells the template
// (CVE-2025-61620).
static int32_t check_kwargs(pgd_serve_call *call) {
    static const char *const ours[] = {
        "messages",  "tools",     "documents",     "add_generation_prompt",
        "bos_token", "eos_token", "chat_template", "tokenize"};
    const pgd_json *more = value_of(call, PGD_API_chat_template_kwargs);
    for (size_t i = 0; i < sizeof(ours) / sizeof(ours[0]); i++) {
        if (more != NULL && pgd_json_get(more, ours[i]) != NULL) {
            return pgd_api_refuse(&call->error, 400, "chat_template_kwargs", NULL,
                                  "chat_template_kwargs: \"%s\" is the server's", ours[i]);
        }
    }
    return 0;
}

static int32_t chat_prompt(pgd_serve_call *call) {
    const pgd_json *messages = value_of(call, PGD_API_messages);
    pgd_text text = {0};
    if (messages == NULL) {
        return pgd_api_refuse(&call->error, 400, "messages", NULL,
                              "messages is missing; a list of messages is needed");
    }
    if (call->server->chat == NULL) {
        return pgd_api_refuse(&call->error, 400, "messages", NULL,
                              "this model has no chat template; /v1/completions is allowed");
    }
    int32_t result = check_kwargs(call);
    result = result == 0 ? render(call, messages, &text) : result;
    if (result == 0) {
        result = encode(call, pgd_text_view(&text),
                        (int32_t)pgd_api_int(&call->body, PGD_API_add_special_tokens, 0),
                        &call->prompts[0].ids);
    }
    pgd_text_free(&text);
    return result;
}

// ---- completions -------------------------------------------------------------------------------

static int32_t read_ids(pgd_serve_call *call, const pgd_json *list, pgd_text_ids *out) {
    for (uint32_t i = 0; i < list->n; i++) {
        int64_t id = 0;
        if (!pgd_json_to_i64(&list->items[i], &id) || id < 0 ||
            id >= call->server->info.vocab_size) {
            return pgd_api_refuse(&call->error, 400, "prompt", NULL,
                                  "prompt: entry %u is no token id; 0 to %d are allowed", i,
                                  call->server->info.vocab_size - 1);
        }
        if (pgd_text_ids_add(out, (int32_t)id) != PGD_OK) {
            return pgd_api_refuse_status(&call->error, PGD_OUT_OF_MEMORY, NULL);
        }
    }
    return 0;
}

static int32_t completion_prompt(pgd_serve_call *call, const pgd_json *v, pgd_text_ids *out) {
    pgd_str text;
    if (pgd_json_to_str(v, &text)) {
        return encode(call, text, (int32_t)pgd_api_int(&call->body, PGD_API_add_special_tokens, 1),
                      out);
    }
    if (pgd_json_is(v, PGD_JSON_ARRAY)) {
        return read_ids(call, v, out);
    }
    return pgd_api_refuse(&call->error, 400, "prompt", NULL,
                          "prompt has an entry of type %s; strings and lists of token ids are "
                          "allowed",
                          pgd_json_kind_name(v->kind));
}

// 1 when the prompt is a list of prompts, not one list of ids.
static int32_t is_batch(const pgd_json *v) {
    return pgd_json_is(v, PGD_JSON_ARRAY) && v->n > 0 &&
           (pgd_json_is(&v->items[0], PGD_JSON_STRING) ||
            pgd_json_is(&v->items[0], PGD_JSON_ARRAY));
}

static int32_t make_prompts(pgd_serve_call *call, uint32_t n) {
    if (n > MAX_PROMPTS) {
        return pgd_api_refuse(&call->error, 400, "prompt", NULL,
                              "prompt has %u entries; 1 to %d are allowed", n, MAX_PROMPTS);
    }
    call->n = (int32_t)pgd_api_int(&call->body, PGD_API_n, 1);
    call->prompts = pgd_mem_alloc(n, sizeof(*call->prompts));
    call->choices = pgd_mem_alloc((size_t)n * (size_t)call->n, sizeof(*call->choices));
    if (call->prompts == NULL || call->choices == NULL) {
        return pgd_api_refuse_status(&call->error, PGD_OUT_OF_MEMORY, NULL);
    }
    call->n_prompts = (int32_t)n;
    for (uint32_t i = 0; i < n; i++) {
        call->prompts[i].index = (int32_t)i;
        call->prompts[i].call = call;
    }
    return 0;
}

// truncate_prompt_tokens: only the last ids stay.
static int32_t check_length(pgd_serve_call *call, pgd_serve_prompt *p) {
    const int64_t most = call->server->info.max_model_len - 1;
    int64_t keep = pgd_api_int(&call->body, PGD_API_truncate_prompt_tokens, INT32_MAX);
    keep = keep == -1 ? most : keep;
    if (keep < 1) {
        return pgd_api_refuse(&call->error, 400, "truncate_prompt_tokens", NULL,
                              "truncate_prompt_tokens is 0; -1 or 1 and more are allowed");
    }
    if ((int64_t)p->ids.n > keep) {
        memmove(p->ids.ids, p->ids.ids + p->ids.n - keep, (size_t)keep * sizeof(int32_t));
        p->ids.n = (size_t)keep;
    }
    if (p->ids.n == 0) {
        return pgd_api_refuse(&call->error, 400, call->is_chat ? "messages" : "prompt", NULL,
                              "the prompt has no token; at least one is needed");
    }
    if ((int64_t)p->ids.n > most) {
        return pgd_api_refuse(&call->error, 400, call->is_chat ? "messages" : "prompt",
                              "context_length_exceeded",
                              // Clients know this error by its first words.
                              "this model's maximum context length is %lld tokens; the prompt "
                              "has %zu, and the answer needs at least one",
                              (long long)most + 1, p->ids.n);
    }
    call->n_prompt_tokens += (int32_t)p->ids.n;
    return 0;
}

// With echo the prompt's text stands before the answer: as it was sent, or that of its ids.
static int32_t keep_text(pgd_serve_call *call, pgd_serve_prompt *p, const pgd_json *v) {
    pgd_str text;
    pgd_status status = PGD_OK;
    if (!pgd_api_int(&call->body, PGD_API_echo, 0)) {
        return 0;
    }
    if (pgd_json_to_str(v, &text)) {
        status = pgd_text_add_str(&p->text, text);
    } else if (call->server->tokenizer != NULL) {
        status = pgd_text_decode(call->server->tokenizer, p->ids.ids, p->ids.n, 0, &p->text);
    }
    return status == PGD_OK ? 0 : pgd_api_refuse_status(&call->error, status, NULL);
}

int32_t pgd_serve_prompt_ids(pgd_serve_call *call) {
    const pgd_json *v = value_of(call, PGD_API_prompt);
    const int32_t batch = !call->is_chat && is_batch(v);
    if (!call->is_chat && v == NULL) {
        return pgd_api_refuse(&call->error, 400, "prompt", NULL,
                              "prompt is missing; a string, a list of strings, of ids or of "
                              "lists of ids is needed");
    }
    if (make_prompts(call, batch ? v->n : 1) != 0) {
        return -1;
    }
    if (call->is_chat) {
        return chat_prompt(call);
    }
    for (int32_t i = 0; i < call->n_prompts; i++) {
        pgd_serve_prompt *p = &call->prompts[i];
        const pgd_json *one = batch ? &v->items[i] : v;
        if (completion_prompt(call, one, &p->ids) != 0 || keep_text(call, p, one) != 0) {
            return -1;
        }
    }
    return 0;
}

int32_t pgd_serve_prompts(pgd_serve_call *call) {
    if (pgd_serve_prompt_ids(call) != 0) {
        return -1;
    }
    for (int32_t i = 0; i < call->n_prompts; i++) {
        if (check_length(call, &call->prompts[i]) != 0) {
            return -1;
        }
    }
    return 0;
}

void pgd_serve_prompts_free(pgd_serve_call *call) {
    for (int32_t i = 0; i < call->n_prompts; i++) {
        pgd_text_ids_free(&call->prompts[i].ids);
        pgd_text_free(&call->prompts[i].text);
    }
    pgd_mem_free(call->prompts);
    pgd_mem_free(call->choices);
}
