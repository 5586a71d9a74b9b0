// JSON of answers: whole ones, and the chunks of streams. Source of the shapes: OpenAI's API
// reference (chat completions, completions), vLLM's additions stop_reason and token_ids.
//
// Absent keys stay absent in deltas: strict clients fail on "content": null.
#include <math.h>
#include <stdio.h>

#include "base/fail.h"
#include "base/json.h"
#include "base/mem.h"
#include "serve/inner.h"

#define LOWEST_LOGPROB (-9999.0) // stands for minus infinity, which JSON has not

static pgd_status add_number(pgd_text *t, double v) {
    return pgd_json_add_f64(t, v >= LOWEST_LOGPROB ? v : LOWEST_LOGPROB);
}

static pgd_status token_text(const pgd_serve_call *call, int32_t id, pgd_text *out) {
    pgd_text_clear(out);
    if (call->server->tokenizer == NULL) {
        return pgd_text_format(out, "token_id:%d", id);
    }
    return pgd_text_decode(call->server->tokenizer, &id, 1, 0, out);
}

// "token":"...","logprob":-0.1,"bytes":[...]
static pgd_status add_chat_token(const pgd_serve_call *call, pgd_text *out, int32_t id,
                                 float logprob, pgd_text *scratch) {
    PGD_TRY(token_text(call, id, scratch));
    PGD_TRY(pgd_text_format(out, "\"token\":"));
    PGD_TRY(pgd_json_add_str(out, pgd_text_view(scratch)));
    PGD_TRY(pgd_text_format(out, ",\"logprob\":"));
    PGD_TRY(add_number(out, (double)logprob));
    PGD_TRY(pgd_text_format(out, ",\"bytes\":["));
    for (size_t i = 0; i < scratch->len; i++) {
        PGD_TRY(pgd_text_format(out, "%s%d", i > 0 ? "," : "", (unsigned char)scratch->ptr[i]));
    }
    return pgd_text_add(out, "]", 1);
}

static pgd_status add_chat_logprobs(pgd_serve_call *call, pgd_serve_choice *c, const pgd_delta *d,
                                    pgd_text *scratch) {
    const int32_t columns = d->n_logprobs + 1;
    pgd_text *out = &c->logprobs;
    for (int32_t i = 0; i < d->n_ids; i++) {
        const float *values = d->logprobs + (size_t)i * (size_t)columns;
        const int32_t *ids = d->logprob_ids + (size_t)i * (size_t)columns;
        PGD_TRY(pgd_text_format(out, "%s{", out->len > 0 ? "," : ""));
        PGD_TRY(add_chat_token(call, out, ids[0], values[0], scratch));
        PGD_TRY(pgd_text_format(out, ",\"top_logprobs\":["));
        for (int32_t k = 1; k < columns; k++) {
            PGD_TRY(pgd_text_format(out, k > 1 ? ",{" : "{"));
            PGD_TRY(add_chat_token(call, out, ids[k], values[k], scratch));
            PGD_TRY(pgd_text_add(out, "}", 1));
        }
        PGD_TRY(pgd_text_format(out, "]}"));
    }
    return PGD_OK;
}

// The four lists of a completion's logprobs, each without its brackets. values NULL: no
// probability is known (the first token of a prompt).
static pgd_status add_completion_token(pgd_serve_call *call, pgd_serve_choice *c, int32_t id,
                                       const float *values, const int32_t *ids, int32_t columns,
                                       pgd_text *scratch) {
    const char *comma = c->tokens.len > 0 ? "," : "";
    PGD_TRY(token_text(call, id, scratch));
    PGD_TRY(pgd_text_format(&c->tokens, "%s", comma));
    PGD_TRY(pgd_json_add_str(&c->tokens, pgd_text_view(scratch)));
    PGD_TRY(pgd_text_format(&c->offsets, "%s%d", comma, c->chars));
    for (size_t i = 0; i < scratch->len; i++) {
        c->chars += ((unsigned char)scratch->ptr[i] & 0xC0) != 0x80;
    }
    if (values == NULL) {
        PGD_TRY(pgd_text_format(&c->logprobs, "%snull", comma));
        return pgd_text_format(&c->tops, "%snull", comma);
    }
    PGD_TRY(pgd_text_format(&c->logprobs, "%s", comma));
    PGD_TRY(add_number(&c->logprobs, (double)values[0]));
    PGD_TRY(pgd_text_format(&c->tops, "%s{", comma));
    for (int32_t k = 1; k <= columns; k++) {
        // The token itself stands behind the best ones unless it is one of them.
        const int32_t at = k < columns ? k : 0;
        int32_t known = 0;
        for (int32_t j = 1; at == 0 && j < columns; j++) {
            known |= ids[j] == ids[0];
        }
        if (known) {
            break;
        }
        PGD_TRY(token_text(call, ids[at], scratch));
        PGD_TRY(pgd_text_add(&c->tops, ",", k > 1 ? 1 : 0));
        PGD_TRY(pgd_json_add_str(&c->tops, pgd_text_view(scratch)));
        PGD_TRY(pgd_text_add(&c->tops, ":", 1));
        PGD_TRY(add_number(&c->tops, (double)values[at]));
    }
    return pgd_text_add(&c->tops, "}", 1);
}

// "id":{"logprob":..,"rank":..,"decoded_token":".."}
static pgd_status add_scored(pgd_serve_call *call, pgd_text *out, int32_t id, float logprob,
                             int32_t rank, pgd_text *scratch) {
    PGD_TRY(token_text(call, id, scratch));
    PGD_TRY(pgd_text_format(out, "\"%d\":{\"logprob\":", id));
    PGD_TRY(add_number(out, (double)logprob));
    PGD_TRY(pgd_text_format(out, ",\"rank\":%d,\"decoded_token\":", rank));
    PGD_TRY(pgd_json_add_str(out, pgd_text_view(scratch)));
    return pgd_text_add(out, "}", 1);
}

// The list prompt_logprobs of vLLM: null, then an object for each further token.
static pgd_status add_prompt_list(pgd_serve_call *call, pgd_text *out, const pgd_output *o,
                                  pgd_text *scratch) {
    const int32_t columns = o->n_prompt_logprobs + 1;
    PGD_TRY(pgd_text_format(out, "[null"));
    for (int32_t i = 1; i < o->n_prompt; i++) {
        const float *values = o->prompt_logprobs + (size_t)i * (size_t)columns;
        const int32_t *ids = o->prompt_logprob_ids + (size_t)i * (size_t)columns;
        PGD_TRY(pgd_text_format(out, ",{"));
        PGD_TRY(add_scored(call, out, ids[0], values[0], o->prompt_ranks[i], scratch));
        for (int32_t k = 1; k < columns; k++) {
            if (ids[k] != ids[0]) {
                PGD_TRY(pgd_text_add(out, ",", 1));
                PGD_TRY(add_scored(call, out, ids[k], values[k], k, scratch));
            }
        }
        PGD_TRY(pgd_text_add(out, "}", 1));
    }
    return pgd_text_add(out, "]", 1);
}

pgd_status pgd_serve_add_prompt(pgd_serve_call *call, pgd_serve_choice *c, const pgd_output *o) {
    pgd_text scratch = {0};
    pgd_status status = PGD_OK;
    const int32_t columns = o->n_prompt_logprobs + 1;
    for (int32_t i = 0; call->body.echoes_logprobs && i < o->n_prompt && status == PGD_OK; i++) {
        const size_t row = (size_t)i * (size_t)columns;
        status =
            add_completion_token(call, c, o->prompt_ids[i], i > 0 ? o->prompt_logprobs + row : NULL,
                                 o->prompt_logprob_ids + row, columns, &scratch);
    }
    if (status == PGD_OK && call->body.values[PGD_API_prompt_logprobs].json != NULL) {
        status = add_prompt_list(call, &c->prompt, o, &scratch);
    }
    pgd_text_free(&scratch);
    return status;
}

pgd_status pgd_serve_add_delta(pgd_serve_call *call, pgd_serve_choice *c, const pgd_delta *d) {
    pgd_text scratch = {0};
    pgd_status status = PGD_OK;
    if (d->logprobs != NULL && call->is_chat) {
        status = add_chat_logprobs(call, c, d, &scratch);
    }
    for (int32_t i = 0; i < d->n_ids && status == PGD_OK; i++) {
        const size_t row = (size_t)i * (size_t)(d->n_logprobs + 1);
        if (d->logprobs != NULL && !call->is_chat) {
            status = add_completion_token(call, c, d->ids[i], d->logprobs + row,
                                          d->logprob_ids + row, d->n_logprobs + 1, &scratch);
        }
        if (status == PGD_OK && call->wants_ids) {
            status = pgd_text_format(&c->ids, "%s%d", c->ids.len > 0 ? "," : "", d->ids[i]);
        }
    }
    c->n_output = d->n_output;
    if (d->finish_reason != NULL) {
        c->finish_reason = d->finish_reason;
        c->stop_id = d->stop_id;
        if (status == PGD_OK && d->stop_text != NULL) {
            status = pgd_mem_copy_text(d->stop_text, &c->stop_text);
        }
    }
    pgd_text_free(&scratch);
    return status;
}

static pgd_status add_logprobs(const pgd_serve_call *call, const pgd_serve_choice *c,
                               pgd_text *out) {
    if (c->logprobs.len == 0) {
        return pgd_text_format(out, ",\"logprobs\":null");
    }
    if (call->is_chat) {
        return pgd_text_format(out, ",\"logprobs\":{\"content\":[%s]}", c->logprobs.ptr);
    }
    return pgd_text_format(out,
                           ",\"logprobs\":{\"tokens\":[%s],\"token_logprobs\":[%s],"
                           "\"top_logprobs\":[%s],\"text_offset\":[%s]}",
                           c->tokens.ptr, c->logprobs.ptr, c->tops.ptr, c->offsets.ptr);
}

static pgd_status add_finish(const pgd_serve_call *call, const pgd_serve_choice *c, pgd_text *out) {
    if (c->finish_reason == NULL) {
        return pgd_text_format(out, ",\"finish_reason\":null,\"stop_reason\":null");
    }
    PGD_TRY(pgd_text_format(out, ",\"finish_reason\":\"%s\",\"stop_reason\":", c->finish_reason));
    if (c->stop_text != NULL) {
        return pgd_json_add_str(out, pgd_str_of(c->stop_text));
    }
    (void)call;
    return c->stop_id >= 0 ? pgd_text_format(out, "%d", c->stop_id) : pgd_text_add(out, "null", 4);
}

static pgd_status add_ids(const pgd_serve_call *call, const pgd_serve_choice *c, pgd_text *out) {
    if (!call->wants_ids) {
        return PGD_OK;
    }
    return pgd_text_format(out, ",\"token_ids\":[%s]", c->ids.len > 0 ? c->ids.ptr : "");
}

static pgd_status add_usage(const pgd_serve_call *call, pgd_text *out) {
    int32_t made = 0;
    for (int32_t i = 0; i < call->n_prompts * call->n; i++) {
        made += call->choices[i].n_output;
    }
    return pgd_text_format(out,
                           "\"usage\":{\"prompt_tokens\":%d,\"total_tokens\":%d,"
                           "\"completion_tokens\":%d,\"prompt_tokens_details\":{"
                           "\"cached_tokens\":%d},\"completion_tokens_details\":{"
                           "\"reasoning_tokens\":0}}",
                           call->n_prompt_tokens, call->n_prompt_tokens + made, made,
                           call->n_cached);
}

// The client's request_id behind our prefix, or an id of ours.
static pgd_status add_id(const pgd_serve_call *call, pgd_text *out) {
    const pgd_json *given = call->body.values[PGD_API_request_id].json;
    pgd_text id = {0};
    if (given == NULL) {
        return pgd_json_add_str(out, pgd_str_of(call->id));
    }
    pgd_status status = pgd_text_format(&id, call->is_chat ? "chatcmpl-" : "cmpl-");
    status = status == PGD_OK ? pgd_text_add_str(&id, given->str) : status;
    status = status == PGD_OK ? pgd_json_add_str(out, pgd_text_view(&id)) : status;
    pgd_text_free(&id);
    return status;
}

static pgd_status add_head(const pgd_serve_call *call, const char *object, pgd_text *out) {
    PGD_TRY(pgd_text_format(out, "{\"id\":"));
    PGD_TRY(add_id(call, out));
    PGD_TRY(pgd_text_format(out, ",\"object\":\"%s\",\"created\":%lld,\"model\":", object,
                            (long long)call->created_s));
    PGD_TRY(pgd_json_add_str(out, pgd_str_of(call->model)));
    return pgd_text_format(out, ",\"system_fingerprint\":\"%s\"", call->server->fingerprint);
}

// ---- streams -----------------------------------------------------------------------------------

static pgd_status begin_chunk(pgd_serve_call *call, pgd_text *out) {
    if (call->chunk_head.len == 0) {
        PGD_TRY(add_head(call, call->is_chat ? "chat.completion.chunk" : "text_completion",
                         &call->chunk_head));
    }
    PGD_TRY(pgd_text_add(out, "data: ", 6));
    return pgd_text_add_str(out, pgd_text_view(&call->chunk_head));
}

static pgd_status end_chunk(const pgd_serve_call *call, pgd_text *out) {
    if (call->body.continuous_usage) {
        PGD_TRY(pgd_text_add(out, ",", 1));
        PGD_TRY(add_usage(call, out));
    } else if (call->body.include_usage) {
        PGD_TRY(pgd_text_format(out, ",\"usage\":null"));
    }
    return pgd_text_add(out, "}\n\n", 3);
}

static pgd_status add_chat_chunk(pgd_serve_call *call, int32_t index, const char *role,
                                 const pgd_str *text, const pgd_serve_choice *finished,
                                 pgd_text *out) {
    PGD_TRY(begin_chunk(call, out));
    PGD_TRY(pgd_text_format(out, ",\"choices\":[{\"index\":%d,\"delta\":{", index));
    if (role != NULL) {
        PGD_TRY(pgd_text_format(out, "\"role\":\"%s\",", role));
    }
    if (text != NULL) {
        PGD_TRY(pgd_text_format(out, "\"content\":"));
        PGD_TRY(pgd_json_add_str(out, *text));
    }
    PGD_TRY(pgd_text_add(out, "}", 1));
    const pgd_serve_choice *c = &call->choices[index];
    if (text != NULL && role == NULL) {
        PGD_TRY(add_logprobs(call, c, out));
        PGD_TRY(add_ids(call, c, out));
    } else {
        PGD_TRY(pgd_text_format(out, ",\"logprobs\":null"));
    }
    if (finished != NULL) {
        PGD_TRY(add_finish(call, finished, out));
    } else {
        PGD_TRY(pgd_text_format(out, ",\"finish_reason\":null"));
    }
    PGD_TRY(pgd_text_format(out, "}]"));
    return end_chunk(call, out);
}

static pgd_status add_completion_chunk(pgd_serve_call *call, int32_t index, pgd_str text,
                                       pgd_text *out) {
    const pgd_serve_choice *c = &call->choices[index];
    PGD_TRY(begin_chunk(call, out));
    PGD_TRY(pgd_text_format(out, ",\"choices\":[{\"index\":%d,\"text\":", index));
    PGD_TRY(pgd_json_add_str(out, text));
    PGD_TRY(add_logprobs(call, c, out));
    PGD_TRY(add_finish(call, c, out));
    PGD_TRY(add_ids(call, c, out));
    PGD_TRY(pgd_text_format(out, "}]"));
    return end_chunk(call, out);
}

static pgd_status add_call_id(const pgd_serve_call *call, int32_t index, int32_t at,
                              pgd_text *out) {
    return pgd_text_format(out, "\"id\":\"call_%.20s%02x%02x\",\"type\":\"function\"", call->id + 9,
                           (unsigned)index, (unsigned)at);
}

// One delta of a call: its id and name first, then pieces of its arguments.
static pgd_status add_call_chunk(pgd_serve_call *call, int32_t index, int32_t at, pgd_str piece,
                                 int32_t first, pgd_text *out) {
    const pgd_api_tool_call *t = &call->choices[index].tools.calls[at];
    PGD_TRY(begin_chunk(call, out));
    PGD_TRY(pgd_text_format(
        out, ",\"choices\":[{\"index\":%d,\"delta\":{\"tool_calls\":[{\"index\":%d,", index, at));
    if (first) {
        PGD_TRY(add_call_id(call, index, at, out));
        PGD_TRY(pgd_text_format(out, ",\"function\":{\"name\":"));
        PGD_TRY(pgd_json_add_str(out, pgd_text_view(&t->name)));
        PGD_TRY(pgd_text_add(out, ",", 1));
    } else {
        PGD_TRY(pgd_text_format(out, "\"function\":{"));
    }
    PGD_TRY(pgd_text_format(out, "\"arguments\":"));
    PGD_TRY(pgd_json_add_str(out, piece));
    PGD_TRY(pgd_text_format(out, "}}]},\"logprobs\":null,\"finish_reason\":null}]"));
    return end_chunk(call, out);
}

// What has come of the calls since the last time.
static pgd_status add_call_chunks(pgd_serve_call *call, int32_t index, pgd_text *out) {
    pgd_serve_choice *c = &call->choices[index];
    const int32_t n = pgd_api_tools_shown(&c->tools);
    for (int32_t at = c->n_calls_sent > 0 ? c->n_calls_sent - 1 : 0; at < n; at++) {
        const pgd_str all = pgd_text_view(&c->tools.calls[at].arguments);
        if (at == c->n_calls_sent) {
            PGD_TRY(add_call_chunk(call, index, at, (pgd_str){"", 0}, 1, out));
            c->n_calls_sent++;
            c->call_sent = 0;
        }
        if (all.len > c->call_sent) {
            const pgd_str piece = {all.ptr + c->call_sent, all.len - c->call_sent};
            PGD_TRY(add_call_chunk(call, index, at, piece, 0, out));
            c->call_sent = all.len;
        }
    }
    return PGD_OK;
}

// What a chunk has shown is not shown again.
static void clear_shown(pgd_serve_choice *c) {
    pgd_text_clear(&c->text);
    pgd_text_clear(&c->logprobs);
    pgd_text_clear(&c->tops);
    pgd_text_clear(&c->offsets);
    pgd_text_clear(&c->tokens);
    pgd_text_clear(&c->ids);
}

pgd_status pgd_serve_add_chunk(pgd_serve_call *call, int32_t index, pgd_text *out) {
    pgd_serve_choice *c = &call->choices[index];
    const pgd_str text = c->text.len > 0 ? pgd_text_view(&c->text) : (pgd_str){"", 0};
    pgd_status status = PGD_OK;
    const pgd_str empty = {"", 0};
    const int32_t says = text.len > 0 || c->logprobs.len > 0 || c->ids.len > 0;
    if (!call->is_chat) {
        if (says || c->finish_reason != NULL) {
            status = add_completion_chunk(call, index, text, out);
        }
        clear_shown(c);
        return status;
    }
    if (!c->begun) {
        c->begun = 1;
        PGD_TRY(add_chat_chunk(call, index, "assistant", &empty, NULL, out));
    }
    if (says) {
        PGD_TRY(add_chat_chunk(call, index, NULL, &text, NULL, out));
    }
    clear_shown(c);
    PGD_TRY(add_call_chunks(call, index, out));
    return c->finish_reason != NULL ? add_chat_chunk(call, index, NULL, NULL, c, out) : PGD_OK;
}

pgd_status pgd_serve_add_usage_chunk(pgd_serve_call *call, pgd_text *out) {
    PGD_TRY(begin_chunk(call, out));
    PGD_TRY(pgd_text_format(out, ",\"choices\":[],"));
    PGD_TRY(add_usage(call, out));
    return pgd_text_add(out, "}\n\n", 3);
}

// ---- whole answers -----------------------------------------------------------------------------

static pgd_status add_calls(const pgd_serve_call *call, int32_t index, pgd_text *out) {
    const pgd_api_tools *t = &call->choices[index].tools;
    const int32_t n = pgd_api_tools_shown(t);
    for (int32_t at = 0; at < n; at++) {
        PGD_TRY(pgd_text_format(out, at > 0 ? ",{" : ",\"tool_calls\":[{"));
        PGD_TRY(add_call_id(call, index, at, out));
        PGD_TRY(pgd_text_format(out, ",\"function\":{\"name\":"));
        PGD_TRY(pgd_json_add_str(out, pgd_text_view(&t->calls[at].name)));
        PGD_TRY(pgd_text_format(out, ",\"arguments\":"));
        PGD_TRY(pgd_json_add_str(out, pgd_text_view(&t->calls[at].arguments)));
        PGD_TRY(pgd_text_format(out, at + 1 < n ? "}}" : "}}]"));
    }
    return PGD_OK;
}

static pgd_status add_choice(const pgd_serve_call *call, int32_t index, pgd_text *out) {
    const pgd_serve_choice *c = &call->choices[index];
    PGD_TRY(pgd_text_format(out, "%s{\"index\":%d,%s", index > 0 ? "," : "", index,
                            call->is_chat ? "\"message\":{\"role\":\"assistant\",\"content\":"
                                          : "\"text\":"));
    if (c->text.len == 0 && pgd_api_tools_shown(&c->tools) > 0) {
        PGD_TRY(pgd_text_format(out, "null"));
    } else {
        PGD_TRY(pgd_json_add_str(out, pgd_text_view(&c->text)));
    }
    PGD_TRY(add_calls(call, index, out));
    PGD_TRY(pgd_text_add(out, "}", call->is_chat ? 1 : 0));
    PGD_TRY(add_logprobs(call, c, out));
    PGD_TRY(add_finish(call, c, out));
    PGD_TRY(add_ids(call, c, out));
    if (!call->is_chat && c->prompt.len > 0) {
        PGD_TRY(pgd_text_format(out, ",\"prompt_logprobs\":%s", c->prompt.ptr));
    }
    return pgd_text_add(out, "}", 1);
}

pgd_status pgd_serve_add_answer(pgd_serve_call *call, pgd_text *out) {
    PGD_TRY(add_head(call, call->is_chat ? "chat.completion" : "text_completion", out));
    PGD_TRY(pgd_text_format(out, ",\"choices\":["));
    for (int32_t i = 0; i < call->n_prompts * call->n; i++) {
        PGD_TRY(add_choice(call, i, out));
    }
    PGD_TRY(pgd_text_format(out, "],"));
    if (call->is_chat && call->choices[0].prompt.len > 0) {
        PGD_TRY(pgd_text_format(out, "\"prompt_logprobs\":%s,", call->choices[0].prompt.ptr));
    }
    PGD_TRY(add_usage(call, out));
    return pgd_text_add(out, "}", 1);
}
