// What the server tells of itself: models, version, load, metrics.
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/fail.h"
#include "base/json.h"
#include "os/usage.h"
#include "serve/inner.h"

static const char *name_at(const pgd_server *s, uint32_t i) {
    return s->o.n_names > 0 ? s->o.names[i] : s->name;
}

static uint32_t n_names(const pgd_server *s) {
    return s->o.n_names > 0 ? s->o.n_names : 1;
}

const char *pgd_serve_model(const pgd_server *s) {
    return name_at(s, 0);
}

int32_t pgd_serve_check_model(const pgd_server *s, pgd_str name, pgd_api_error *e) {
    if (name.len == 0) {
        return 0;
    }
    pgd_text list = {0};
    pgd_status status = PGD_OK;
    for (uint32_t i = 0; i < n_names(s); i++) {
        if (pgd_str_is(name, name_at(s, i))) {
            pgd_text_free(&list);
            return 0;
        }
        status = status == PGD_OK
                     ? pgd_text_format(&list, "%s\"%s\"", i > 0 ? ", " : "", name_at(s, i))
                     : status;
    }
    (void)pgd_api_refuse(
        e, 404, "model", "model_not_found", "the model \"%.*s\" is not served here; %s is",
        (int)(name.len < 128 ? name.len : 128), name.ptr, status == PGD_OK ? list.ptr : "another");
    pgd_text_free(&list);
    return -1;
}

static pgd_status add_model(const pgd_server *s, const char *name, pgd_text *t) {
    PGD_TRY(pgd_text_format(t, "{\"id\":"));
    PGD_TRY(pgd_json_add_str(t, pgd_str_of(name)));
    PGD_TRY(pgd_text_format(t,
                            ",\"object\":\"model\",\"created\":%lld,\"owned_by\":\"pagoda\","
                            "\"root\":",
                            (long long)s->created_s));
    PGD_TRY(pgd_json_add_str(t, pgd_str_of(pgd_serve_model(s))));
    return pgd_text_format(t, ",\"parent\":null,\"max_model_len\":%d}", s->info.max_model_len);
}

static pgd_status add_models(const pgd_server *s, pgd_text *t) {
    PGD_TRY(pgd_text_format(t, "{\"object\":\"list\",\"data\":["));
    for (uint32_t i = 0; i < n_names(s); i++) {
        PGD_TRY(pgd_text_add(t, ",", i > 0 ? 1 : 0));
        PGD_TRY(add_model(s, name_at(s, i), t));
    }
    return pgd_text_add(t, "]}", 2);
}

// Replies with t, or with 500 when it could not be made.
static void reply(pgd_server *s, pgd_serve_exchange *x, pgd_status status, pgd_text *t) {
    pgd_api_error e = {0};
    if (status == PGD_OK) {
        pgd_serve_reply_json(s, x, 200, pgd_text_view(t));
    } else {
        (void)pgd_api_refuse_status(&e, status, NULL);
        pgd_serve_reply_error(s, x, &e);
    }
    pgd_text_free(t);
}

void pgd_serve_get_models(pgd_server *s, pgd_serve_exchange *x, const char *id) {
    pgd_text t = {0};
    pgd_api_error e = {0};
    if (id != NULL && pgd_serve_check_model(s, pgd_str_of(id), &e) != 0) {
        pgd_serve_reply_error(s, x, &e);
        return;
    }
    const pgd_status status = id != NULL ? add_model(s, id, &t) : add_models(s, &t);
    reply(s, x, status, &t);
}

void pgd_serve_get_version(pgd_server *s, pgd_serve_exchange *x) {
    pgd_text t = {0};
    const pgd_status status = pgd_text_format(&t, "{\"version\":\"%s\"}", pgd_version());
    reply(s, x, status, &t);
}

void pgd_serve_get_load(pgd_server *s, pgd_serve_exchange *x) {
    pgd_text t = {0};
    pgd_status status =
        pgd_text_format(&t, "{\"server_load\":%d,\"device\":", pgd_serve_open(s) - 1);
    status = status == PGD_OK ? pgd_json_add_str(&t, pgd_str_of(s->info.device)) : status;
    status = status == PGD_OK ? pgd_text_add(&t, "}", 1) : status;
    reply(s, x, status, &t);
}

void pgd_serve_get_metrics(pgd_server *s, pgd_serve_exchange *x) {
    pgd_text t = {0};
    pgd_engine_stats stats = {.size = sizeof(stats)};
    pgd_os_usage usage = {0};
    const char *handlers[PGD_SERVE_HANDLERS];
    pgd_async_get_stats(s->async, &stats);
    pgd_os_usage_read(&usage);
    for (int32_t i = 0; i < PGD_SERVE_HANDLERS; i++) {
        handlers[i] = pgd_serve_handler_name(i);
    }
    const pgd_serve_gauges g = {
        .model = pgd_serve_model(s),
        .version = pgd_version(),
        .running = stats.n_running,
        .waiting = stats.n_waiting,
        .open = pgd_serve_open(s),
        .connections = s->n_connections,
        .block_size = s->info.block_size,
        .num_blocks = s->info.num_blocks,
        .kv_usage = stats.num_blocks > 0 ? (double)stats.blocks_used / stats.num_blocks : 0.0,
        .prompt_tokens = stats.n_prompt_tokens,
        .prompt_tokens_cached = stats.n_prompt_tokens_cached,
        .generation_tokens = stats.n_generated_tokens,
        .preemptions = stats.n_preemptions,
        .cache_queries = stats.n_prompt_tokens_asked,
        .cache_hits = stats.n_prompt_tokens_cached,
        .steps = stats.n_steps,
        .max_stall_ns = stats.max_stall_ns,
        .stall_bound_ns = (uint64_t)s->o.engine.max_stall_ms * UINT64_C(1000000),
        .limited_steps = stats.n_limited_steps,
        .prefill_limit = stats.prefill_limit,
        .stuck = s->stuck,
        .max_model_len = s->info.max_model_len,
        .device_lost = stats.n_device_lost,
        .device_opened = stats.n_device_opened,
        .step_retries = stats.n_step_retries,
        .corrupt = stats.n_corrupt,
        .steps_by_tokens = stats.n_steps_by_tokens,
        .resident_bytes = usage.rss_bytes,
        .cpu_seconds = (double)usage.own_ns / 1e9,
        .start_s = s->created_s,
        .handlers = handlers,
    };
    const pgd_status status = pgd_serve_metrics_add(&t, &s->metrics, &g);
    if (status != PGD_OK) {
        reply(s, x, status, &t);
        return;
    }
    pgd_serve_answered(s, x, 200, NULL);
    pgd_serve_exchange_reply(x, 200, "text/plain; version=0.0.4; charset=utf-8", pgd_text_view(&t));
    pgd_text_free(&t);
}
