// The body of a request into requests of the engine. Runs on a text worker.
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/fail.h"
#include "base/mem.h"
#include "serve/inner.h"

#define MAX_BIAS 100.0

// Lists of a description; freed when the requests are submitted, which copies them.
typedef struct lists {
    int32_t *stop_ids;
    int32_t *allowed;
    int32_t *bias_ids;
    float *bias_adds;
    const char **stop;
    const char **bad_words;
    const char *salt;
    char *salt_text;
} lists;

static void free_lists(lists *l) {
    pgd_mem_free(l->stop_ids);
    pgd_mem_free(l->allowed);
    pgd_mem_free(l->bias_ids);
    pgd_mem_free(l->bias_adds);
    pgd_mem_free((void *)l->stop);
    pgd_mem_free((void *)l->bad_words);
    pgd_mem_free(l->salt_text);
}

static const pgd_json *value_of(const pgd_serve_call *call, int32_t field) {
    return call->body.values[field].json;
}

static int32_t no_memory(pgd_serve_call *call) {
    return pgd_serve_refuse_status(&call->error, PGD_OUT_OF_MEMORY, NULL);
}

static int32_t copy_ids(pgd_serve_call *call, int32_t field, int32_t **out, int32_t *n) {
    const pgd_json *v = value_of(call, field);
    if (v == NULL || v->n == 0) {
        return 0;
    }
    *out = pgd_mem_alloc(v->n, sizeof(**out));
    if (*out == NULL) {
        return no_memory(call);
    }
    for (uint32_t i = 0; i < v->n; i++) {
        (*out)[i] = (int32_t)v->items[i].i;
    }
    *n = (int32_t)v->n;
    return 0;
}

// Strings of the parsed body end with NUL.
static int32_t copy_texts(pgd_serve_call *call, int32_t field, const char ***out, uint32_t *n) {
    const pgd_json *v = value_of(call, field);
    if (v == NULL) {
        return 0;
    }
    const int32_t one = pgd_json_is(v, PGD_JSON_STRING);
    const uint32_t count = one ? 1 : v->n;
    *out = pgd_mem_alloc(count, sizeof(**out));
    if (*out == NULL) {
        return no_memory(call);
    }
    for (uint32_t i = 0; i < count; i++) {
        const pgd_str text = one ? v->str : v->items[i].str;
        if (text.len == 0 || strlen(text.ptr) != text.len) {
            return pgd_serve_refuse(&call->error, 400, pgd_serve_field_at(field)->name, NULL,
                                    "%s has a text that is empty or holds a NUL character",
                                    pgd_serve_field_at(field)->name);
        }
        (*out)[i] = text.ptr;
    }
    *n = count;
    return 0;
}

static int32_t copy_bias(pgd_serve_call *call, lists *l, pgd_request_desc *d) {
    const pgd_json *v = value_of(call, PGD_SERVE_logit_bias);
    if (v == NULL || v->n == 0) {
        return 0;
    }
    l->bias_ids = pgd_mem_alloc(v->n, sizeof(*l->bias_ids));
    l->bias_adds = pgd_mem_alloc(v->n, sizeof(*l->bias_adds));
    if (l->bias_ids == NULL || l->bias_adds == NULL) {
        return no_memory(call);
    }
    for (uint32_t i = 0; i < v->n; i++) {
        int64_t id = 0;
        double add = 0.0;
        (void)pgd_str_to_i64(v->keys[i], &id);
        (void)pgd_json_to_f64(&v->items[i], &add);
        if (!(add >= -MAX_BIAS && add <= MAX_BIAS)) {
            return pgd_serve_refuse(&call->error, 400, "logit_bias", NULL,
                                    "logit_bias of token %lld is %g; -100 to 100 is allowed",
                                    (long long)id, add);
        }
        l->bias_ids[i] = (int32_t)id;
        l->bias_adds[i] = (float)add;
    }
    d->bias_ids = l->bias_ids;
    d->bias_adds = l->bias_adds;
    d->n_bias = (int32_t)v->n;
    return 0;
}

// chat: logprobs is a switch and top_logprobs the number; completions: logprobs is the number.
static int32_t set_logprobs(pgd_serve_call *call, pgd_request_desc *d) {
    const pgd_json *v = value_of(call, PGD_SERVE_logprobs);
    const int64_t top = pgd_serve_int(&call->body, PGD_SERVE_top_logprobs, 0);
    int32_t on = 0;
    int64_t n = 0;
    if (v != NULL && call->is_chat) {
        if (!pgd_json_to_bool(v, &on)) {
            return pgd_serve_refuse(&call->error, 400, "logprobs", NULL,
                                    "logprobs is a %s; true or false is allowed",
                                    pgd_json_kind_name(v->kind));
        }
        n = top;
    } else if (v != NULL) {
        const int32_t is_off = v->kind == PGD_JSON_FALSE;
        if (!is_off && (!pgd_json_to_i64(v, &n) || n < 0 || n > 20)) {
            return pgd_serve_refuse(&call->error, 400, "logprobs", NULL,
                                    "logprobs: a whole number from 0 to 20 is allowed");
        }
        on = !is_off;
    }
    if (call->is_chat && !on && top > 0) {
        return pgd_serve_refuse(&call->error, 400, "top_logprobs", NULL,
                                "top_logprobs is only allowed with \"logprobs\": true");
    }
    d->has_logprobs = (uint32_t)on;
    d->n_logprobs = (int32_t)n;
    const int32_t echo = (int32_t)pgd_serve_int(&call->body, PGD_SERVE_echo, 0);
    const int64_t prompt = pgd_serve_int(&call->body, PGD_SERVE_prompt_logprobs, -1);
    if (prompt >= 0 && call->stream) {
        return pgd_serve_refuse(&call->error, 400, "prompt_logprobs", NULL,
                                "prompt_logprobs is not allowed with \"stream\": true");
    }
    call->echoes_logprobs = echo && on;
    call->wants_prompt = call->echoes_logprobs || prompt >= 0;
    d->has_prompt_logprobs = (uint32_t)call->wants_prompt;
    d->n_prompt_logprobs = call->echoes_logprobs ? (int32_t)n : prompt > 0 ? (int32_t)prompt : 0;
    return 0;
}

static int32_t check_pairs(pgd_serve_call *call) {
    const pgd_json *format = value_of(call, PGD_SERVE_response_format);
    const pgd_json *choice = value_of(call, PGD_SERVE_tool_choice);
    pgd_str text = PGD_STR("text");
    if (format != NULL &&
        (!pgd_json_to_str(pgd_json_get(format, "type"), &text) || !pgd_str_is(text, "text"))) {
        return pgd_serve_refuse(&call->error, 400, "response_format", "unsupported_parameter",
                                "response_format: only {\"type\": \"text\"} is supported");
    }
    if (choice != NULL && (!pgd_json_to_str(choice, &text) ||
                           (!pgd_str_is(text, "auto") && !pgd_str_is(text, "none")))) {
        return pgd_serve_refuse(&call->error, 400, "tool_choice", "unsupported_parameter",
                                "tool_choice: only \"auto\" and \"none\" are supported");
    }
    const int64_t best_of = pgd_serve_int(&call->body, PGD_SERVE_best_of, -1);
    if (best_of >= 0 && best_of != pgd_serve_int(&call->body, PGD_SERVE_n, 1)) {
        return pgd_serve_refuse(&call->error, 400, "best_of", "unsupported_parameter",
                                "best_of: only the value of n is supported");
    }
    return 0;
}

static void set_numbers(pgd_serve_call *call, pgd_request_desc *d) {
    const pgd_serve_body *b = &call->body;
    d->temperature = (float)pgd_serve_number(b, PGD_SERVE_temperature, (double)d->temperature);
    d->top_p = (float)pgd_serve_number(b, PGD_SERVE_top_p, (double)d->top_p);
    d->min_p = (float)pgd_serve_number(b, PGD_SERVE_min_p, (double)d->min_p);
    d->top_k = (int32_t)pgd_serve_int(b, PGD_SERVE_top_k, d->top_k);
    d->top_k = d->top_k < 0 ? 0 : d->top_k;
    d->repetition_penalty =
        (float)pgd_serve_number(b, PGD_SERVE_repetition_penalty, (double)d->repetition_penalty);
    d->presence_penalty = (float)pgd_serve_number(b, PGD_SERVE_presence_penalty, 0.0);
    d->frequency_penalty = (float)pgd_serve_number(b, PGD_SERVE_frequency_penalty, 0.0);
    d->has_seed = value_of(call, PGD_SERVE_seed) != NULL;
    d->seed = (uint64_t)pgd_serve_int(b, PGD_SERVE_seed, 0);
    d->ignore_eos = (uint32_t)pgd_serve_int(b, PGD_SERVE_ignore_eos, 0);
    d->min_tokens = (int32_t)pgd_serve_int(b, PGD_SERVE_min_tokens, 0);
    d->include_stop = (uint32_t)pgd_serve_int(b, PGD_SERVE_include_stop_str_in_output, 0);
    d->keep_special = !pgd_serve_int(b, PGD_SERVE_skip_special_tokens, 1);
    d->priority = (int32_t)pgd_serve_int(b, PGD_SERVE_priority, 0);
    d->n = call->n;
}

// max_tokens 0 (scoring of prompts) makes one token that is not shown.
static int32_t max_tokens_of(pgd_serve_call *call, const pgd_serve_prompt *p) {
    const int64_t left = call->server->info.max_model_len - (int64_t)p->ids.n;
    int64_t most = pgd_serve_int(&call->body, PGD_SERVE_max_tokens, call->is_chat ? left : 16);
    most = pgd_serve_int(&call->body, PGD_SERVE_max_completion_tokens, most);
    call->scores_only = most == 0;
    most = most < 1 ? 1 : most;
    return (int32_t)(most < left ? most : left);
}

static int32_t describe(pgd_serve_call *call, lists *l, pgd_request_desc *d) {
    pgd_engine_defaults(call->server->engine, d);
    set_numbers(call, d);
    uint32_t n_stop = 0;
    uint32_t n_bad = 0;
    if (check_pairs(call) != 0 || set_logprobs(call, d) != 0 ||
        copy_ids(call, PGD_SERVE_stop_token_ids, &l->stop_ids, &d->n_stop_ids) != 0 ||
        copy_ids(call, PGD_SERVE_allowed_token_ids, &l->allowed, &d->n_allowed) != 0 ||
        copy_texts(call, PGD_SERVE_stop, &l->stop, &n_stop) != 0 ||
        copy_texts(call, PGD_SERVE_bad_words, &l->bad_words, &n_bad) != 0 ||
        copy_bias(call, l, d) != 0) {
        return -1;
    }
    d->stop_ids = l->stop_ids;
    d->allowed_ids = l->allowed;
    d->stop = l->stop;
    d->n_stop = n_stop;
    d->bad_words = l->bad_words;
    d->n_bad_words = n_bad;
    const pgd_json *salt = value_of(call, PGD_SERVE_cache_salt);
    d->cache_salt = salt != NULL ? salt->str.ptr : NULL;
    return 0;
}

// Keys do not share cached prompts: what one caller asked must not be told to another by time
// (CVE-2025-46570).
static int32_t set_domain(pgd_serve_call *call, lists *l, pgd_request_desc *d) {
    if (call->key <= 0) {
        return 0;
    }
    const char *salt = d->cache_salt != NULL ? d->cache_salt : "";
    const size_t bytes = strlen(salt) + 24;
    l->salt_text = pgd_mem_alloc(bytes, 1);
    if (l->salt_text == NULL) {
        return no_memory(call);
    }
    (void)snprintf(l->salt_text, bytes, "key %d:%s", call->key, salt);
    d->cache_salt = l->salt_text;
    return 0;
}

static int32_t submit_all(pgd_serve_call *call, pgd_request_desc *d) {
    for (int32_t i = 0; i < call->n_prompts; i++) {
        pgd_serve_prompt *p = &call->prompts[i];
        d->ids = p->ids.ids;
        d->n_ids = (int32_t)p->ids.n;
        d->max_tokens = max_tokens_of(call, p);
        d->on_delta = pgd_serve_on_delta();
        d->arg = p;
        call->n_running++;
        pgd_status status = pgd_async_submit(call->server->async, d, &p->request);
        if (status != PGD_OK) {
            call->n_running--;
            return pgd_serve_refuse_status(&call->error, status, NULL);
        }
    }
    return 0;
}

static int32_t admit(pgd_serve_call *call) {
    pgd_server *s = call->server;
    call->n_waiting_tokens = call->n_prompt_tokens;
    s->waiting_tokens += call->n_waiting_tokens;
    const int64_t now = s->waiting_tokens;
    pgd_serve_quota_spend(s->quotas, call->key, pgd_clock_ns(), call->n_prompt_tokens);
    if (s->o.max_queued_tokens > 0 && now > s->o.max_queued_tokens &&
        now > call->n_waiting_tokens) {
        s->metrics.rejected_tokens++;
        call->error.retry_after_s = 1;
        return pgd_serve_refuse(&call->error, 429, NULL, "queue_full",
                                "prompts of %lld tokens are waiting; %lld are allowed",
                                (long long)(now - call->n_waiting_tokens),
                                (long long)s->o.max_queued_tokens);
    }
    return 0;
}

// The caller's deadline, or the server's where that comes first.
static void set_deadline(pgd_serve_call *call) {
    const double most = call->server->o.request_timeout_s;
    double seconds = pgd_serve_number(&call->body, PGD_SERVE_timeout, 0.0);
    seconds = most > 0.0 && (seconds <= 0.0 || most < seconds) ? most : seconds;
    call->deadline_ns = seconds > 0.0 ? call->start_ns + (uint64_t)(seconds * 1e9) : 0;
}

int32_t pgd_serve_call_submit(pgd_serve_call *call) {
    pgd_request_desc d = {.size = sizeof(d), .no_special = 1};
    lists l = {0};
    const int32_t where = call->is_chat ? PGD_SERVE_CHAT : PGD_SERVE_COMPLETION;
    if (pgd_serve_body_read(&call->body, pgd_text_view(&call->raw), where,
                            (int32_t)call->server->o.strict_fields, &call->error) != 0) {
        return -1;
    }
    call->server->metrics.unknown_fields += (uint64_t)call->body.n_unknown;
    set_deadline(call);
    call->stream = (int32_t)pgd_serve_int(&call->body, PGD_SERVE_stream, 0);
    call->wants_ids = (int32_t)pgd_serve_int(&call->body, PGD_SERVE_return_token_ids, 0);
    const pgd_json *model = value_of(call, PGD_SERVE_model);
    const pgd_str name = model != NULL ? model->str : (pgd_str){"", 0};
    if (pgd_serve_check_model(call->server, name, &call->error) != 0) {
        return -1;
    }
    (void)snprintf(call->model, sizeof(call->model), "%s",
                   name.len > 0 ? name.ptr : pgd_serve_model(call->server));
    int32_t result = pgd_serve_prompts(call);
    result = result == 0 ? admit(call) : result;
    result = result == 0 ? describe(call, &l, &d) : result;
    result = result == 0 ? set_domain(call, &l, &d) : result;
    result = result == 0 ? submit_all(call, &d) : result;
    free_lists(&l);
    return result;
}
