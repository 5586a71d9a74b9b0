// The body of a request into requests of the engine. Runs on a text worker.
#include <stdio.h>
#include <string.h>

#include "api/describe.h"
#include "base/clock.h"
#include "base/fail.h"
#include "base/mem.h"
#include "serve/inner.h"

static const pgd_json *value_of(const pgd_serve_call *call, int32_t field) {
    return call->body.values[field].json;
}

static int32_t no_memory(pgd_serve_call *call) {
    return pgd_api_refuse_status(&call->error, PGD_OUT_OF_MEMORY, NULL);
}

// max_tokens 0 (scoring of prompts) makes one token that is not shown.
static int32_t max_tokens_of(pgd_serve_call *call, const pgd_serve_prompt *p) {
    const int64_t left = call->server->info.max_model_len - (int64_t)p->ids.n;
    int64_t most = pgd_api_int(&call->body, PGD_API_max_tokens, call->is_chat ? left : 16);
    most = pgd_api_int(&call->body, PGD_API_max_completion_tokens, most);
    call->scores_only = most == 0;
    most = most < 1 ? 1 : most;
    return (int32_t)(most < left ? most : left);
}

// Keys do not share cached prompts: what one caller asked must not be told to another by time
// (CVE-2025-46570).
static int32_t set_domain(pgd_serve_call *call, char **salt_text, pgd_request_desc *d) {
    if (call->key <= 0) {
        return 0;
    }
    const char *salt = d->cache_salt != NULL ? d->cache_salt : "";
    const size_t bytes = strlen(salt) + 24;
    *salt_text = pgd_mem_alloc(bytes, 1);
    if (*salt_text == NULL) {
        return no_memory(call);
    }
    (void)snprintf(*salt_text, bytes, "key %d:%s", call->key, salt);
    d->cache_salt = *salt_text;
    return 0;
}

static int32_t submit_all(pgd_serve_call *call, pgd_request_desc *d) {
    for (int32_t i = 0; i < call->n_prompts; i++) {
        pgd_serve_prompt *p = &call->prompts[i];
        d->ids = p->ids.ids;
        d->n_ids = (int32_t)p->ids.n;
        d->max_tokens = max_tokens_of(call, p);
        p->max_tokens = d->max_tokens;
        if (d->min_tokens > d->max_tokens) {
            return pgd_api_refuse(&call->error, 400, "min_tokens", NULL,
                                  "min_tokens is %d; 0 to max_tokens (%d) is allowed",
                                  d->min_tokens, d->max_tokens);
        }
        d->on_delta = pgd_serve_on_delta();
        d->arg = p;
        call->n_running++;
        pgd_status status = pgd_async_submit(call->server->async, d, &p->request);
        if (status != PGD_OK) {
            call->n_running--;
            return pgd_api_refuse_status(&call->error, status, NULL);
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
        return pgd_api_refuse(&call->error, 429, NULL, "queue_full",
                              "prompts of %lld tokens are waiting; %lld are allowed",
                              (long long)(now - call->n_waiting_tokens),
                              (long long)s->o.max_queued_tokens);
    }
    return 0;
}

// The caller's deadline, or the server's where that comes first.
static void set_deadline(pgd_serve_call *call) {
    const double most = call->server->o.request_timeout_s;
    double seconds = pgd_api_number(&call->body, PGD_API_timeout, 0.0);
    seconds = most > 0.0 && (seconds <= 0.0 || most < seconds) ? most : seconds;
    call->deadline_ns = seconds > 0.0 ? call->start_ns + (uint64_t)(seconds * 1e9) : 0;
}

int32_t pgd_serve_call_submit(pgd_serve_call *call) {
    pgd_request_desc d = {.size = sizeof(d), .no_special = 1};
    pgd_api_lists l = {0};
    char *salt_text = NULL;
    const int32_t where = call->is_chat ? PGD_API_CHAT : PGD_API_COMPLETION;
    if (pgd_api_body_read(&call->body, pgd_text_view(&call->raw), where,
                          (int32_t)call->server->o.strict_fields, &call->error) != 0) {
        return -1;
    }
    call->server->metrics.unknown_fields += (uint64_t)call->body.n_unknown;
    set_deadline(call);
    call->stream = (int32_t)pgd_api_int(&call->body, PGD_API_stream, 0);
    call->wants_ids = (int32_t)pgd_api_int(&call->body, PGD_API_return_token_ids, 0);
    call->wants_calls = call->is_chat && call->server->o.no_tool_calls == 0 &&
                        pgd_api_tools_offered(&call->body) != NULL;
    const pgd_json *model = value_of(call, PGD_API_model);
    const pgd_str name = model != NULL ? model->str : (pgd_str){"", 0};
    if (pgd_serve_check_model(call->server, name, &call->error) != 0) {
        return -1;
    }
    (void)snprintf(call->model, sizeof(call->model), "%s",
                   name.len > 0 ? name.ptr : pgd_serve_model(call->server));
    int32_t result = pgd_serve_prompts(call);
    result = result == 0 ? admit(call) : result;
    pgd_engine_defaults(call->server->engine, &d);
    result = result == 0 ? pgd_api_describe(&call->body, &l, &d, &call->error) : result;
    result = result == 0 ? set_domain(call, &salt_text, &d) : result;
    result = result == 0 ? submit_all(call, &d) : result;
    pgd_api_lists_free(&l);
    pgd_mem_free(salt_text);
    return result;
}
