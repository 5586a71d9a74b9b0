// See batch_body.h. Source of the shapes: OpenAI's API reference (batch, chat, completions).
#include "cli/batch_body.h"

#include <string.h>

#include "api/describe.h"
#include "base/fail.h"
#include "base/mem.h"
#include "cli/common.h"

#define DEFAULT_CHAT_TOKENS       256
#define DEFAULT_COMPLETION_TOKENS 16

typedef struct batch_body {
    pgd_api_body body;
    pgd_api_lists lists;
    pgd_api_error error;
    pgd_request_desc desc;
} batch_body;

static pgd_status wrong(const char *key, const char *allowed) {
    return pgd_fail(PGD_INVALID, "%s: %s", key, allowed);
}

static const pgd_json *value_of(const batch_body *f, int32_t field) {
    return f->body.values[field].json;
}

static pgd_status submit_chat(pgd_engine *engine, batch_body *f, pgd_request **out) {
    pgd_text messages = {0};
    pgd_text tools = {0};
    char *prompt = NULL;
    pgd_status status = PGD_OK;
    if (value_of(f, PGD_API_messages) == NULL) {
        status = wrong("messages", "is missing; a list is needed");
    } else {
        status = pgd_json_add(&messages, value_of(f, PGD_API_messages));
    }
    if (status == PGD_OK && value_of(f, PGD_API_tools) != NULL) {
        status = pgd_json_add(&tools, value_of(f, PGD_API_tools));
    }
    if (status == PGD_OK) {
        status = pgd_engine_chat_prompt(engine, messages.ptr, tools.ptr, &prompt);
    }
    if (status == PGD_OK) {
        f->desc.prompt = prompt;
        f->desc.no_special = 1;
        status = pgd_engine_submit(engine, &f->desc, out);
    }
    pgd_free(prompt);
    pgd_text_free(&messages);
    pgd_text_free(&tools);
    return status;
}

static pgd_status submit_completion(pgd_engine *engine, batch_body *f, pgd_request **out) {
    pgd_str text;
    const pgd_json *prompt = value_of(f, PGD_API_prompt);
    if (pgd_json_to_str(prompt, &text)) {
        f->desc.prompt = text.ptr;
        f->desc.prompt_len = text.len;
        return pgd_engine_submit(engine, &f->desc, out);
    }
    if (!pgd_json_is(prompt, PGD_JSON_ARRAY)) {
        return wrong("prompt", "is missing; a string or a list of token ids is needed");
    }
    int32_t *ids = pgd_mem_alloc(prompt->n, sizeof(*ids));
    if (ids == NULL) {
        return PGD_MEM_FAIL("the prompt", prompt->n * sizeof(*ids));
    }
    pgd_status status = PGD_OK;
    for (uint32_t i = 0; i < prompt->n && status == PGD_OK; i++) {
        int64_t id = 0;
        if (!pgd_json_to_i64(&prompt->items[i], &id) || id < 0 || id > INT32_MAX) {
            status = wrong("prompt", "a string or a list of token ids is allowed");
        }
        ids[i] = (int32_t)id;
    }
    if (status == PGD_OK) {
        f->desc.ids = ids;
        f->desc.n_ids = (int32_t)prompt->n;
        status = pgd_engine_submit(engine, &f->desc, out);
    }
    pgd_mem_free(ids);
    return status;
}

// A batch answers whole, one prompt a line, and renders templates as they are.
static pgd_status check_batch(const batch_body *f) {
    static const int32_t refused[] = {
        PGD_API_echo,
        PGD_API_prompt_logprobs,
        PGD_API_truncate_prompt_tokens,
        PGD_API_documents,
        PGD_API_add_generation_prompt,
        PGD_API_continue_final_message,
        PGD_API_timeout,
        PGD_API_add_special_tokens,
        PGD_API_chat_template_kwargs,
        PGD_API_return_token_ids,
    };
    for (size_t i = 0; i < sizeof(refused) / sizeof(refused[0]); i++) {
        if (value_of(f, refused[i]) != NULL) {
            return wrong(pgd_api_field_at(refused[i])->name, "no such field in a batch");
        }
    }
    return pgd_api_int(&f->body, PGD_API_stream, 0) ? wrong("stream", "only false is allowed in a "
                                                                      "batch")
                                                    : PGD_OK;
}

static pgd_status read_body(const pgd_json *root, int32_t is_chat, batch_body *f) {
    const int32_t where = is_chat ? PGD_API_CHAT : PGD_API_COMPLETION;
    if (pgd_api_body_check(&f->body, root, where, 1, &f->error) != 0 ||
        pgd_api_describe(&f->body, &f->lists, &f->desc, &f->error) != 0) {
        return pgd_fail(f->error.status >= 500 ? PGD_OUT_OF_MEMORY : PGD_INVALID, "%s",
                        f->error.message);
    }
    int64_t most = pgd_api_int(&f->body, PGD_API_max_tokens, f->desc.max_tokens);
    most = pgd_api_int(&f->body, PGD_API_max_completion_tokens, most);
    if (most < 1) {
        return wrong("max_tokens", "1 and more are allowed in a batch");
    }
    f->desc.max_tokens = (int32_t)most;
    return check_batch(f);
}

pgd_status cli_batch_submit(pgd_engine *engine, const pgd_json *body, int32_t is_chat,
                            pgd_request **out) {
    *out = NULL;
    batch_body *f = pgd_mem_alloc(1, sizeof(*f));
    if (f == NULL) {
        return PGD_MEM_FAIL("a body", sizeof(*f));
    }
    f->desc.size = sizeof(f->desc);
    cli_set_sampling(engine, is_chat ? DEFAULT_CHAT_TOKENS : DEFAULT_COMPLETION_TOKENS, &f->desc);
    pgd_status status = read_body(body, is_chat, f);
    if (status == PGD_OK) {
        status = is_chat ? submit_chat(engine, f, out) : submit_completion(engine, f, out);
    }
    pgd_api_lists_free(&f->lists);
    pgd_mem_free(f);
    return status;
}
