// Answers of batch lines. See batch_body.h. Source of the shapes: OpenAI's API reference (chat and
// completions, their log probabilities).
#include "cli/batch_body.h"

#include <math.h>
#include <string.h>

#include "base/clock.h"
#include "base/fail.h"
#include "cli/common.h"

#define LEAST_LOGPROB (-9999.0) // JSON has no infinity

// ---- log probabilities -------------------------------------------------------------------------

static pgd_status add_logprob(pgd_text *t, float p) {
    return pgd_json_add_f64(t, isfinite(p) ? (double)p : LEAST_LOGPROB);
}

static pgd_status add_token(const pgd_engine *engine, pgd_text *t, int32_t id) {
    char *text = NULL;
    PGD_TRY(pgd_engine_decode(engine, &id, 1, 1, &text));
    pgd_status status = pgd_json_add_str(t, pgd_str_of(text));
    pgd_free(text);
    return status;
}

// {"token":..., "logprob":..., "bytes":[...]
static pgd_status add_chat_entry(const pgd_engine *engine, pgd_text *t, int32_t id, float p) {
    char *text = NULL;
    PGD_TRY(pgd_text_format(t, "{\"token\":"));
    PGD_TRY(add_token(engine, t, id));
    PGD_TRY(pgd_text_format(t, ",\"logprob\":"));
    PGD_TRY(add_logprob(t, p));
    PGD_TRY(pgd_engine_decode(engine, &id, 1, 1, &text));
    pgd_status status = pgd_text_format(t, ",\"bytes\":[");
    for (size_t i = 0; status == PGD_OK && text[i] != '\0'; i++) {
        status = pgd_text_format(t, "%s%d", i > 0 ? "," : "", (unsigned char)text[i]);
    }
    pgd_free(text);
    return status == PGD_OK ? pgd_text_format(t, "]") : status;
}

static pgd_status add_chat_logprobs(const pgd_engine *engine, pgd_text *t, const pgd_output *o) {
    const int32_t columns = o->n_logprobs + 1;
    PGD_TRY(pgd_text_format(t, "{\"content\":["));
    for (int32_t i = 0; i < o->n_ids; i++) {
        const int32_t *ids = o->logprob_ids + (size_t)i * (size_t)columns;
        const float *p = o->logprobs + (size_t)i * (size_t)columns;
        PGD_TRY(pgd_text_format(t, i > 0 ? "," : ""));
        PGD_TRY(add_chat_entry(engine, t, ids[0], p[0]));
        PGD_TRY(pgd_text_format(t, ",\"top_logprobs\":["));
        for (int32_t k = 1; k < columns; k++) {
            PGD_TRY(pgd_text_format(t, k > 1 ? "," : ""));
            PGD_TRY(add_chat_entry(engine, t, ids[k], p[k]));
            PGD_TRY(pgd_text_format(t, "}"));
        }
        PGD_TRY(pgd_text_format(t, "]}"));
    }
    return pgd_text_format(t, "]}");
}

// One list of a completion's log probabilities: 0 the tokens, 1 theirs, 2 the likeliest.
static pgd_status add_list(const pgd_engine *engine, pgd_text *t, const pgd_output *o,
                           int32_t which) {
    const int32_t columns = o->n_logprobs + 1;
    for (int32_t i = 0; i < o->n_ids; i++) {
        const int32_t *ids = o->logprob_ids + (size_t)i * (size_t)columns;
        const float *p = o->logprobs + (size_t)i * (size_t)columns;
        PGD_TRY(pgd_text_format(t, i > 0 ? "," : ""));
        if (which == 0) {
            PGD_TRY(add_token(engine, t, ids[0]));
        } else if (which == 1) {
            PGD_TRY(add_logprob(t, p[0]));
        }
        for (int32_t k = 1; which == 2 && k < columns; k++) {
            PGD_TRY(pgd_text_format(t, k > 1 ? "," : "{"));
            PGD_TRY(add_token(engine, t, ids[k]));
            PGD_TRY(pgd_text_format(t, ":"));
            PGD_TRY(add_logprob(t, p[k]));
        }
        PGD_TRY(pgd_text_format(t, which < 2 ? "" : columns > 1 ? "}" : "{}"));
    }
    return PGD_OK;
}

static pgd_status add_offsets(const pgd_engine *engine, pgd_text *t, const pgd_output *o) {
    size_t at = 0;
    for (int32_t i = 0; i < o->n_ids; i++) {
        char *text = NULL;
        PGD_TRY(pgd_text_format(t, "%s%zu", i > 0 ? "," : "", at));
        PGD_TRY(pgd_engine_decode(engine, &o->ids[i], 1, 0, &text));
        for (size_t k = 0; text[k] != '\0'; k++) {
            at += ((unsigned char)text[k] & 0xC0) != 0x80; // characters
        }
        pgd_free(text);
    }
    return PGD_OK;
}

static pgd_status add_text_logprobs(const pgd_engine *engine, pgd_text *t, const pgd_output *o) {
    PGD_TRY(pgd_text_format(t, "{\"tokens\":["));
    PGD_TRY(add_list(engine, t, o, 0));
    PGD_TRY(pgd_text_format(t, "],\"token_logprobs\":["));
    PGD_TRY(add_list(engine, t, o, 1));
    PGD_TRY(pgd_text_format(t, "],\"top_logprobs\":["));
    PGD_TRY(add_list(engine, t, o, 2));
    PGD_TRY(pgd_text_format(t, "],\"text_offset\":["));
    PGD_TRY(add_offsets(engine, t, o));
    return pgd_text_format(t, "]}");
}

// ---- lines -------------------------------------------------------------------------------------

static pgd_status add_stop_reason(pgd_text *t, const pgd_output *o) {
    PGD_TRY(pgd_text_format(t, ",\"stop_reason\":"));
    if (o->stop_text != NULL) {
        return pgd_json_add_str(t, pgd_str_of(o->stop_text));
    }
    return o->stop_id >= 0 ? pgd_text_format(t, "%d", o->stop_id) : pgd_text_format(t, "null");
}

static pgd_status add_choice(const cli_batch_line *line, pgd_text *t, const pgd_output *o) {
    PGD_TRY(pgd_text_format(t, "{\"index\":%d,%s", o->index,
                            line->is_chat ? "\"message\":{\"role\":\"assistant\",\"content\":"
                                          : "\"text\":"));
    PGD_TRY(pgd_json_add_str(t, (pgd_str){o->text, o->text_len}));
    PGD_TRY(pgd_text_format(t, "%s,\"logprobs\":", line->is_chat ? "}" : ""));
    if (o->n_logprobs < 0) {
        PGD_TRY(pgd_text_format(t, "null"));
    } else if (line->is_chat) {
        PGD_TRY(add_chat_logprobs(line->engine, t, o));
    } else {
        PGD_TRY(add_text_logprobs(line->engine, t, o));
    }
    PGD_TRY(pgd_text_format(t, ",\"finish_reason\":\"%s\"", o->finish_reason));
    PGD_TRY(add_stop_reason(t, o));
    return pgd_text_format(t, "}");
}

static pgd_status add_body(const cli_batch_line *line, pgd_text *t) {
    pgd_output o = {.size = sizeof(o)};
    int32_t n_ids = 0;
    PGD_TRY(pgd_text_format(t, "{\"id\":\"%s\",\"object\":\"%s\",\"created\":%lld,\"model\":",
                            line->is_chat ? "chatcmpl" : "cmpl",
                            line->is_chat ? "chat.completion" : "text_completion",
                            (long long)(pgd_clock_unix_ms() / 1000)));
    PGD_TRY(pgd_json_add_str(t, pgd_str_of(line->model)));
    PGD_TRY(pgd_text_format(t, ",\"choices\":["));
    pgd_request_output(line->request, &o);
    for (int32_t i = 0, n = o.n; i < n; i++) {
        pgd_request_choice(line->request, i, &o);
        n_ids += o.n_ids;
        PGD_TRY(pgd_text_format(t, i > 0 ? "," : ""));
        PGD_TRY(add_choice(line, t, &o));
    }
    return pgd_text_format(t,
                           "],\"usage\":{\"prompt_tokens\":%d,\"completion_tokens\":%d,"
                           "\"total_tokens\":%d}}",
                           o.n_prompt, n_ids, o.n_prompt + n_ids);
}

static pgd_status add_refusal(pgd_text *t, const char *refusal) {
    PGD_TRY(pgd_text_format(t, "{\"error\":{\"message\":"));
    PGD_TRY(pgd_json_add_str(t, pgd_str_of(refusal)));
    return pgd_text_format(t, ",\"type\":\"invalid_request_error\",\"param\":null,\"code\":null}}");
}

pgd_status cli_batch_add_answer(const cli_batch_line *line, pgd_text *t) {
    int32_t code = line->refusal == NULL ? 200 : (line->request == NULL ? 400 : 500);
    PGD_TRY(pgd_text_format(t, "{\"id\":"));
    PGD_TRY(pgd_json_add_str(t, line->custom_id));
    PGD_TRY(pgd_text_format(t, ",\"custom_id\":"));
    PGD_TRY(pgd_json_add_str(t, line->custom_id));
    PGD_TRY(pgd_text_format(t, ",\"response\":{\"status_code\":%d,\"request_id\":", code));
    PGD_TRY(pgd_json_add_str(t, line->custom_id));
    PGD_TRY(pgd_text_format(t, ",\"body\":"));
    PGD_TRY(line->refusal != NULL ? add_refusal(t, line->refusal) : add_body(line, t));
    return pgd_text_format(t, "},\"error\":null}\n");
}
