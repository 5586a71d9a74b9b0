// Bodies of batch lines: OpenAI requests in, OpenAI answers out.
#ifndef PGD_CLI_BATCH_BODY_H
#define PGD_CLI_BATCH_BODY_H

#include <pagoda/pagoda.h>

#include "base/json.h"
#include "base/str.h"

// Submits the request a body describes. Fields it does not know are refused by name.
pgd_status cli_batch_submit(pgd_engine *engine, const pgd_json *body, int32_t is_chat,
                            pgd_request **out) PGD_MUST_USE;

// Appends one output line. refusal: the sentence of status 400, else NULL; o may then be NULL.
pgd_status cli_batch_add_answer(pgd_text *t, pgd_str custom_id, int32_t is_chat, const char *model,
                                const pgd_output *o, const char *refusal) PGD_MUST_USE;

#endif
