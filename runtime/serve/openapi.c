// /openapi.json: what is served, written from the table of fields. Source: OpenAPI 3.1.0.
#include <string.h>

#include "base/json.h"
#include "serve/inner.h"

static pgd_status add_limits(pgd_text *t, const char *low_name, const char *high_name,
                             const pgd_api_field *f) {
    return pgd_text_format(t, ",\"%s\":%.0f,\"%s\":%.0f", low_name, f->low, high_name, f->high);
}

static pgd_status add_number_limits(pgd_text *t, const pgd_api_field *f) {
    PGD_TRY(pgd_text_format(t, ",\"minimum\":"));
    PGD_TRY(pgd_json_add_f64(t, f->low));
    PGD_TRY(pgd_text_format(t, ",\"maximum\":"));
    return pgd_json_add_f64(t, f->high);
}

static pgd_status add_type(pgd_text *t, const pgd_api_field *f) {
    switch (f->type) {
    case PGD_API_TYPE_INT:
        PGD_TRY(pgd_text_format(t, "\"type\":[\"integer\",\"null\"]"));
        return add_limits(t, "minimum", "maximum", f);
    case PGD_API_TYPE_NUM:
        PGD_TRY(pgd_text_format(t, "\"type\":[\"number\",\"null\"]"));
        return add_number_limits(t, f);
    case PGD_API_TYPE_BOOL: return pgd_text_format(t, "\"type\":[\"boolean\",\"null\"]");
    case PGD_API_TYPE_STR:
        PGD_TRY(pgd_text_format(t, "\"type\":[\"string\",\"null\"]"));
        return add_limits(t, "minLength", "maxLength", f);
    case PGD_API_TYPE_STRS:
        return pgd_text_format(
            t,
            "\"anyOf\":[{\"type\":\"string\",\"minLength\":1,\"maxLength\":256},{\"type\":"
            "\"array\","
            "\"items\":{\"type\":\"string\",\"minLength\":1,\"maxLength\":256},\"maxItems\":%.0f},"
            "{\"type\":\"null\"}]",
            f->high);
    case PGD_API_TYPE_IDS:
        return pgd_text_format(t,
                               "\"type\":[\"array\",\"null\"],\"items\":{\"type\":\"integer\","
                               "\"minimum\":0},\"maxItems\":%.0f",
                               f->high);
    case PGD_API_TYPE_MAP:
        return pgd_text_format(t, "\"type\":[\"object\",\"null\"],\"additionalProperties\":{"
                                  "\"type\":\"number\",\"minimum\":-100,\"maximum\":100}");
    case PGD_API_TYPE_OBJ: return pgd_text_format(t, "\"type\":[\"object\",\"null\"]");
    case PGD_API_TYPE_LIST:
        PGD_TRY(pgd_text_format(t, "\"type\":[\"array\",\"null\"]"));
        return add_limits(t, "minItems", "maxItems", f);
    default: return pgd_text_format(t, "\"title\":\"%s\"", f->name);
    }
}

// What the table cannot say: a prompt's forms, a message's keys, the names that are served.
static pgd_status add_known(pgd_text *t, const pgd_server *s, int32_t field) {
    if (field == PGD_API_prompt) {
        return pgd_text_format(
            t,
            "\"anyOf\":[{\"type\":\"string\",\"minLength\":1},{\"type\":\"array\",\"minItems\":1,"
            "\"items\":{\"type\":\"string\",\"minLength\":1}},{\"type\":\"array\",\"minItems\":1,"
            "\"items\":{\"type\":\"integer\",\"minimum\":0,\"maximum\":%d}}]",
            s->info.vocab_size - 1);
    }
    if (field == PGD_API_messages) {
        return pgd_text_format(
            t,
            "\"type\":\"array\",\"minItems\":1,\"maxItems\":4096,\"items\":{\"type\":\"object\","
            "\"required\":[\"role\",\"content\"],\"properties\":{\"role\":{\"enum\":[\"system\","
            "\"developer\",\"user\",\"assistant\",\"tool\"]},\"content\":{\"type\":\"string\"}}}");
    }
    PGD_TRY(pgd_text_format(t, "\"enum\":[null"));
    for (uint32_t i = 0; i < s->o.n_names || i == 0; i++) {
        PGD_TRY(pgd_text_add(t, ",", 1));
        PGD_TRY(pgd_json_add_str(t, pgd_str_of(s->o.n_names > 0 ? s->o.names[i] : s->name)));
    }
    return pgd_text_add(t, "]", 1);
}

static pgd_status add_schema(pgd_text *t, const pgd_server *s, const char *name, int32_t where,
                             const char *needed) {
    int32_t n = 0;
    PGD_TRY(pgd_text_format(t, "\"%s\":{\"type\":\"object\",\"required\":[\"%s\"],\"properties\":{",
                            name, needed));
    for (int32_t i = 0; i < PGD_API_FIELDS; i++) {
        const pgd_api_field *f = pgd_api_field_at(i);
        if ((f->where & where) == 0) {
            continue;
        }
        PGD_TRY(pgd_text_format(t, "%s\"%s\":{\"description\":", n++ > 0 ? "," : "", f->name));
        PGD_TRY(pgd_json_add_str(t, pgd_str_of(f->note)));
        PGD_TRY(pgd_text_format(t, ",\"default\":%s,", f->otherwise));
        const int32_t known = i == PGD_API_prompt || i == PGD_API_messages || i == PGD_API_model;
        PGD_TRY(known ? add_known(t, s, i) : add_type(t, f));
        PGD_TRY(pgd_text_add(t, "}", 1));
    }
    return pgd_text_format(t, "}}");
}

static pgd_status add_answer(pgd_text *t, const char *name, const char *object, const char *part,
                             const char *type) {
    return pgd_text_format(
        t,
        ",\"%s\":{\"type\":\"object\",\"required\":[\"id\",\"object\",\"created\",\"model\","
        "\"choices\",\"usage\"],\"properties\":{\"object\":{\"const\":\"%s\"},\"choices\":{"
        "\"type\":"
        "\"array\",\"minItems\":1,\"items\":{\"type\":\"object\",\"required\":[\"index\",\"%s\","
        "\"logprobs\",\"finish_reason\"],\"properties\":{\"index\":{\"type\":\"integer\"},\"%s\":{"
        "\"type\":\"%s\"},\"finish_reason\":{\"enum\":[\"stop\",\"length\",\"tool_calls\"]}}}},"
        "\"usage\":{\"type\":\"object\",\"required\":[\"prompt_tokens\",\"completion_tokens\","
        "\"total_tokens\"]}}}",
        name, object, part, part, type);
}

static const char answers[] = "\"400\":{\"$ref\":\"#/components/responses/Error\"},"
                              "\"401\":{\"$ref\":\"#/components/responses/Error\"},"
                              "\"403\":{\"$ref\":\"#/components/responses/Error\"},"
                              "\"404\":{\"$ref\":\"#/components/responses/Error\"},"
                              "\"408\":{\"$ref\":\"#/components/responses/Error\"},"
                              "\"413\":{\"$ref\":\"#/components/responses/Error\"},"
                              "\"415\":{\"$ref\":\"#/components/responses/Error\"},"
                              "\"429\":{\"$ref\":\"#/components/responses/Error\"},"
                              "\"503\":{\"$ref\":\"#/components/responses/Error\"}";

static pgd_status add_post(pgd_text *t, const char *path, const char *what, const char *schema) {
    return pgd_text_format(t,
                           ",\"%s\":{\"post\":{\"summary\":\"%s\",\"requestBody\":{\"required\":"
                           "true,\"content\":{\"application/json\":{\"schema\":{\"$ref\":"
                           "\"#/components/schemas/%s\"}}}},\"responses\":{\"200\":{"
                           "\"description\":\"the answer\",\"content\":{\"application/json\":{"
                           "\"schema\":{\"$ref\":\"#/components/schemas/%sAnswer\"}},"
                           "\"text/event-stream\":{}}},%s}}}",
                           path, what, schema, schema, answers);
}

static pgd_status add_get(pgd_text *t, const char *path, const char *what, const char *type,
                          int32_t first) {
    return pgd_text_format(t,
                           "%s\"%s\":{\"get\":{\"summary\":\"%s\",\"responses\":{\"200\":{"
                           "\"description\":\"%s\",\"content\":{\"%s\":{}}},"
                           "\"401\":{\"$ref\":\"#/components/responses/Error\"},"
                           "\"403\":{\"$ref\":\"#/components/responses/Error\"},"
                           "\"503\":{\"description\":\"not ready\"}}}}",
                           first ? "" : ",", path, what, what, type);
}

pgd_status pgd_serve_openapi_add(pgd_text *t, const pgd_server *s) {
    static const char json[] = "application/json";
    static const char plain[] = "text/plain";
    PGD_TRY(pgd_text_format(t,
                            "{\"openapi\":\"3.1.0\",\"info\":{\"title\":\"pagoda\",\"version\":"
                            "\"%s\"},\"paths\":{",
                            pgd_version()));
    PGD_TRY(add_get(t, "/v1/models", "the models served", json, 1));
    PGD_TRY(add_get(t, "/version", "version of the program", json, 0));
    PGD_TRY(add_get(t, "/load", "requests being answered", json, 0));
    PGD_TRY(add_get(t, "/tokenizer_info", "the tokenizer", json, 0));
    PGD_TRY(add_get(t, "/metrics", "figures for Prometheus", plain, 0));
    PGD_TRY(add_get(t, "/health", "ready for requests", plain, 0));
    PGD_TRY(add_get(t, "/readyz", "ready for requests", plain, 0));
    PGD_TRY(add_get(t, "/livez", "the process lives", plain, 0));
    PGD_TRY(add_get(t, "/ping", "ready for requests", plain, 0));
    PGD_TRY(add_post(t, "/v1/chat/completions", "an answer to a conversation", "Chat"));
    PGD_TRY(add_post(t, "/v1/completions", "text that goes on", "Completion"));
    PGD_TRY(add_post(t, "/tokenize", "ids of a text or a conversation", "Tokenize"));
    PGD_TRY(add_post(t, "/detokenize", "text of ids", "Detokenize"));
    PGD_TRY(pgd_text_format(t, "},\"components\":{\"schemas\":{"));
    PGD_TRY(add_schema(t, s, "Chat", PGD_API_CHAT, "messages"));
    PGD_TRY(pgd_text_add(t, ",", 1));
    PGD_TRY(add_schema(t, s, "Completion", PGD_API_COMPLETION, "prompt"));
    PGD_TRY(add_answer(t, "ChatAnswer", "chat.completion", "message", "object"));
    PGD_TRY(add_answer(t, "CompletionAnswer", "text_completion", "text", "string"));
    return pgd_text_format(
        t, ",\"TokenizeAnswer\":{\"type\":\"object\",\"required\":[\"count\",\"tokens\"]},"
           "\"DetokenizeAnswer\":{\"type\":\"object\",\"required\":[\"prompt\"]},"
           "\"Tokenize\":{\"type\":\"object\",\"properties\":{\"prompt\":{\"type\":\"string\"},"
           "\"messages\":{\"type\":\"array\"}}},"
           "\"Detokenize\":{\"type\":\"object\",\"required\":[\"tokens\"],\"properties\":{"
           "\"tokens\":{\"type\":\"array\",\"items\":{\"type\":\"integer\",\"minimum\":0}}}},"
           "\"Error\":{\"type\":\"object\",\"required\":[\"error\"],\"properties\":{\"error\":{"
           "\"type\":\"object\",\"required\":[\"message\",\"type\",\"param\",\"code\"]}}}},"
           "\"responses\":{\"Error\":{\"description\":\"why not\",\"content\":{"
           "\"application/json\":{\"schema\":{\"$ref\":\"#/components/schemas/Error\"}}}}}}}");
}
