// Bodies of batch lines: OpenAI requests in, OpenAI answers out.
#ifndef PGD_CLI_BATCH_BODY_H
#define PGD_CLI_BATCH_BODY_H

#include <pagoda/pagoda.h>

#include "base/json.h"
#include "base/str.h"

// Submits the request a body describes. Fields it does not know are refused by name.
pgd_status cli_batch_submit(pgd_engine *engine, const pgd_json *body, int32_t is_chat,
                            pgd_request **out) PGD_MUST_USE;

// What a line of the output says.
typedef struct cli_batch_line {
    const pgd_engine *engine;
    const char *model;
    pgd_str custom_id;
    const pgd_request *request; // ended; NULL with a refusal at once
    const char *refusal;        // the sentence of status 400 or 500, else NULL
    int32_t is_chat;
    int32_t reserved0;
} cli_batch_line;

// Appends one output line.
pgd_status cli_batch_add_answer(const cli_batch_line *line, pgd_text *t) PGD_MUST_USE;

#endif
