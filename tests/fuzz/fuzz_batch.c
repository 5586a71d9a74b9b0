// Bodies of batch lines, up to the engine, which is played here: it takes every request.
#include <string.h>

#include "base/fail.h"
#include "base/mem.h"
#include "cli/batch_body.h"
#include "cli/common.h"

#include "fuzz.h"

static int the_request;

void cli_set_sampling(const pgd_engine *engine, int32_t max_tokens, pgd_request_desc *desc) {
    FUZZ_CHECK(engine == NULL);
    desc->max_tokens = max_tokens;
}

pgd_status pgd_engine_chat_prompt(const pgd_engine *engine, const char *messages, const char *tools,
                                  char **out) {
    FUZZ_CHECK(engine == NULL && messages != NULL && (tools == NULL || tools[0] != '\0'));
    return pgd_mem_copy_text(messages, out);
}

void pgd_free(void *ptr) {
    pgd_mem_free(ptr);
}

pgd_status pgd_engine_submit(pgd_engine *engine, const pgd_request_desc *d, pgd_request **out) {
    FUZZ_CHECK(engine == NULL && d->size == sizeof(*d));
    FUZZ_CHECK((d->prompt != NULL) != (d->ids != NULL));
    FUZZ_CHECK(d->max_tokens >= 1 && d->min_tokens >= 0 && d->n_stop_ids >= 0 && d->n_ids >= 0);
    FUZZ_CHECK(d->temperature >= 0 && d->temperature <= 2 && d->top_p >= 0 && d->top_p <= 1);
    for (int32_t i = 0; i < d->n_ids; i++) {
        FUZZ_CHECK(d->ids[i] >= 0);
    }
    *out = (pgd_request *)(void *)&the_request;
    return PGD_OK;
}

pgd_status pgd_engine_decode(const pgd_engine *engine, const int32_t *ids, size_t n,
                             uint32_t keep_special, char **out) {
    FUZZ_CHECK(engine == NULL && ids != NULL && n == 1 && keep_special <= 1);
    return pgd_mem_copy_text("t", out);
}

void pgd_request_output(const pgd_request *request, pgd_output *out) {
    FUZZ_CHECK(request != NULL);
    *out = (pgd_output){.size = out->size,
                        .done = 1,
                        .text = "a\"\xFF",
                        .text_len = 3,
                        .finish_reason = "stop",
                        .stop_id = -1,
                        .n = 1,
                        .n_logprobs = -1,
                        .n_prompt_logprobs = -1};
}

void pgd_request_choice(const pgd_request *request, int32_t index, pgd_output *out) {
    FUZZ_CHECK(index == 0);
    pgd_request_output(request, out);
}

pgd_status fuzz_one(const uint8_t *data, size_t size) {
    pgd_json_doc *doc = NULL;
    pgd_text answer = {0};
    pgd_request *request = NULL;
    pgd_status status = pgd_json_parse((pgd_str){(const char *)data, size}, "a line", 0, &doc);
    const pgd_json *root = pgd_json_root(doc);
    int32_t is_chat = pgd_json_get(root, "prompt") == NULL;
    pgd_str id = {0};
    (void)pgd_json_to_str(pgd_json_get(root, "custom_id"), &id);
    if (status == PGD_OK && pgd_json_is(pgd_json_get(root, "body"), PGD_JSON_OBJECT)) {
        root = pgd_json_get(root, "body");
    }
    if (status == PGD_OK && pgd_json_is(root, PGD_JSON_OBJECT)) {
        status = cli_batch_submit(NULL, root, is_chat, &request);
        FUZZ_CHECK((status == PGD_OK) == (request != NULL));
    }
    if (request != NULL) {
        const cli_batch_line line = {
            .model = "m", .custom_id = id, .request = request, .is_chat = is_chat};
        status = cli_batch_add_answer(&line, &answer);
    } else if (status == PGD_INVALID) {
        const cli_batch_line line = {
            .model = "m", .custom_id = id, .refusal = pgd_fail_text(status), .is_chat = is_chat};
        pgd_status added = cli_batch_add_answer(&line, &answer);
        status = added == PGD_OK ? status : added;
    }
    FUZZ_CHECK(pgd_utf8_valid(pgd_text_view(&answer)));
    pgd_text_free(&answer);
    pgd_json_free(doc);
    return status;
}
