// The JSON body of a request, as a description for the engine: what is taken lies in its range.
#include <math.h>
#include <string.h>

#include "api/describe.h"
#include "base/fail.h"

#include "fuzz.h"

// -1: the whole vocabulary.
static void check_desc(const pgd_request_desc *d) {
    FUZZ_CHECK(d->temperature >= 0 && d->temperature <= 2 && d->top_p >= 0 && d->top_p <= 1);
    FUZZ_CHECK(d->min_p >= 0 && d->min_p <= 1 && d->top_k >= 0 && d->min_tokens >= 0);
    FUZZ_CHECK(d->n >= 1 && d->n <= 128 && d->n_stop <= 16 && d->n_bad_words <= 64);
    FUZZ_CHECK(d->n_logprobs >= -1 && d->n_logprobs <= 20);
    FUZZ_CHECK(d->n_prompt_logprobs >= -1 && d->n_prompt_logprobs <= 20);
    for (uint32_t i = 0; i < d->n_stop; i++) {
        FUZZ_CHECK(d->stop[i][0] != '\0');
    }
    for (int32_t i = 0; i < d->n_stop_ids; i++) {
        FUZZ_CHECK(d->stop_ids[i] >= 0);
    }
    for (int32_t i = 0; i < d->n_bias; i++) {
        FUZZ_CHECK(d->bias_ids[i] >= 0 && fabsf(d->bias_adds[i]) <= 100);
    }
}

static pgd_status read_as(pgd_str text, int32_t where, int32_t strict) {
    pgd_api_body body;
    pgd_api_lists lists = {0};
    pgd_api_error e = {0};
    pgd_request_desc d = {.size = sizeof(d)};
    pgd_text answer = {0};
    pgd_status status = PGD_OK;
    if (pgd_api_body_read(&body, text, where, strict, &e) != 0 ||
        pgd_api_describe(&body, &lists, &d, &e) != 0) {
        FUZZ_CHECK(e.status == 400 || e.status == 503);
        FUZZ_CHECK(e.message[0] != '\0');
        status = e.status == 503 ? PGD_OUT_OF_MEMORY : PGD_INVALID;
        const pgd_status added = pgd_api_error_add(&answer, &e);
        FUZZ_CHECK(added != PGD_OK || pgd_utf8_valid(pgd_text_view(&answer)));
        status = added == PGD_OK ? status : added;
    } else {
        FUZZ_CHECK(e.status == 0);
        check_desc(&d);
        const pgd_json *tools = pgd_api_tools_offered(&body);
        FUZZ_CHECK(tools == NULL || tools->n > 0);
    }
    pgd_text_free(&answer);
    pgd_api_lists_free(&lists);
    pgd_api_body_free(&body);
    return status;
}

pgd_status fuzz_one(const uint8_t *data, size_t size) {
    const pgd_str text = {(const char *)data, size};
    const pgd_status chat = read_as(text, PGD_API_CHAT, 0);
    const pgd_status strict =
        chat == PGD_OUT_OF_MEMORY ? chat : read_as(text, PGD_API_COMPLETION, 1);
    return chat == PGD_OK || chat == PGD_OUT_OF_MEMORY ? chat : strict;
}
