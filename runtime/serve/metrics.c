// See metrics.h.
#include "serve/metrics.h"

#include <math.h>
#include <stdio.h>

typedef struct histogram_kind {
    const char *name;
    const char *help;
    double scale; // of the sum
    double buckets[PGD_SERVE_MAX_BUCKETS];
} histogram_kind;

static const histogram_kind kinds[] = {
#define HISTOGRAM(name_, scale_, help_, ...) \
    {.name = #name_, .help = (help_), .scale = (scale_), .buckets = {__VA_ARGS__}},
#include "serve/metrics.inc"
#undef HISTOGRAM
};

static const char *const ends[] = {
#define FINISHED(name) #name,
#include "serve/metrics.inc"
#undef FINISHED
};

static const int32_t statuses[] = {200, 204, 400, 401, 403, 404, 405, 408, 411, 413,
                                   414, 415, 429, 431, 499, 500, 501, 503, 505};

_Static_assert(sizeof(statuses) / sizeof(statuses[0]) < PGD_SERVE_STATUSES, "one more: others");

void pgd_serve_count(pgd_serve_metrics *m, int32_t handler, int32_t method, int32_t status) {
    const int32_t n = (int32_t)(sizeof(statuses) / sizeof(statuses[0]));
    int32_t at = 0;
    while (at < n && statuses[at] != status) {
        at++;
    }
    atomic_fetch_add_explicit(&m->answered[handler][method][at], 1, memory_order_relaxed);
}

// As prometheus-fastapi-instrumentator has them, from which vLLM has the name.
static const double durations[] = {0.1, 0.5, 1.0};

void pgd_serve_took(pgd_serve_metrics *m, int32_t handler, int32_t method, uint64_t ns) {
    pgd_serve_durations *d = &m->took[handler][method];
    int32_t at = 0;
    while (at < 3 && (double)ns / 1e9 > durations[at]) {
        at++;
    }
    atomic_fetch_add_explicit(&d->counts[at], 1, memory_order_relaxed);
    atomic_fetch_add_explicit(&d->ns, ns, memory_order_relaxed);
}

static int32_t n_buckets(const histogram_kind *k) {
    int32_t n = 0;
    while (n < PGD_SERVE_MAX_BUCKETS && k->buckets[n] > 0.0) {
        n++;
    }
    return n;
}

void pgd_serve_observe(pgd_serve_metrics *m, int32_t histogram, double value) {
    const histogram_kind *k = &kinds[histogram];
    pgd_serve_histogram *h = &m->histograms[histogram];
    const int32_t n = n_buckets(k);
    int32_t at = 0;
    while (at < n && value > k->buckets[at]) {
        at++;
    }
    atomic_fetch_add_explicit(&h->counts[at], 1, memory_order_relaxed);
    if (value > 0.0) {
        atomic_fetch_add_explicit(&h->sum, (uint64_t)(value * k->scale), memory_order_relaxed);
    }
}

// As Python's clients write them: "0.5", "1.0", "1e+06".
static void format_edge(double edge, char out[32]) {
    const int32_t whole = edge < 1e6 && edge == (double)(int32_t)edge;
    (void)snprintf(out, 32, whole ? "%.1f" : "%g", edge);
}

// Buckets of counts (not of seconds) that are beyond `most` are left out.
static pgd_status add_histogram(pgd_text *t, const pgd_serve_histogram *h, const histogram_kind *k,
                                double most, const char *labels) {
    const int32_t n = n_buckets(k);
    uint64_t total = 0;
    char edge[32];
    PGD_TRY(pgd_text_format(t, "# HELP vllm:%s %s\n# TYPE vllm:%s histogram\n", k->name, k->help,
                            k->name));
    for (int32_t i = 0; i <= n; i++) {
        total += h->counts[i];
        if (i < n && (k->scale > 1 || k->buckets[i] <= most)) {
            format_edge(k->buckets[i], edge);
            PGD_TRY(pgd_text_format(t, "vllm:%s_bucket{%s,le=\"%s\"} %llu\n", k->name, labels, edge,
                                    (unsigned long long)total));
        }
    }
    return pgd_text_format(t,
                           "vllm:%s_bucket{%s,le=\"+Inf\"} %llu\nvllm:%s_sum{%s} %.9g\n"
                           "vllm:%s_count{%s} %llu\n",
                           k->name, labels, (unsigned long long)total, k->name, labels,
                           (double)h->sum / k->scale, k->name, labels, (unsigned long long)total);
}

static pgd_status add_value(pgd_text *t, const char *prefix, const char *name, const char *type,
                            const char *help, const char *labels, double value) {
    return pgd_text_format(t, "# HELP %s:%s %s\n# TYPE %s:%s %s\n%s:%s{%s} %.17g\n", prefix, name,
                           help, prefix, name, type, prefix, name, labels, value);
}

static pgd_status add_engine(pgd_text *t, const pgd_serve_gauges *g, const char *labels) {
    const struct {
        const char *prefix;
        const char *name;
        const char *type;
        const char *help;
        double value;
    } rows[] = {
        {"vllm", "num_requests_running", "gauge", "requests in the batch", g->running},
        {"vllm", "num_requests_waiting", "gauge", "requests in the queue", g->waiting},
        {"vllm", "kv_cache_usage_perc", "gauge", "share of the KV blocks in use, 0 to 1",
         g->kv_usage},
        {"vllm", "corrupted_requests_total", "counter",
         "answers ended because the model's logits were no numbers", (double)g->corrupt},
        {"vllm", "prompt_tokens_total", "counter", "prompt tokens taken", (double)g->prompt_tokens},
        {"vllm", "prompt_tokens_cached_total", "counter", "prompt tokens read from the cache",
         (double)g->prompt_tokens_cached},
        {"vllm", "generation_tokens_total", "counter", "tokens made", (double)g->generation_tokens},
        {"vllm", "num_preemptions_total", "counter", "requests sent back to the queue",
         (double)g->preemptions},
        {"vllm", "prefix_cache_queries_total", "counter", "tokens looked up in the prefix cache",
         (double)g->cache_queries},
        {"vllm", "prefix_cache_hits_total", "counter", "tokens found there", (double)g->cache_hits},
        {"pagoda", "steps_total", "counter", "steps of the engine", (double)g->steps},
        {"pagoda", "max_stall_seconds", "gauge",
         "longest step in which running answers waited for prompts of others",
         (double)g->max_stall_ns / 1e9},
        {"pagoda", "stall_bound_seconds", "gauge", "what --max-stall-ms allows, 0 = no bound",
         (double)g->stall_bound_ns / 1e9},
        {"pagoda", "prefill_limit_tokens", "gauge",
         "prompt tokens the next step may take beside running answers, 0 = any", g->prefill_limit},
        {"pagoda", "limited_steps_total", "counter", "steps that took as many as that",
         (double)g->limited_steps},
        {"pagoda", "stuck", "gauge", "1: a step takes longer than --watchdog-s allows", g->stuck},
        {"pagoda", "device_lost_total", "counter", "times the device was lost",
         (double)g->device_lost},
        {"pagoda", "device_opened_total", "counter", "times it, or the standby, was opened again",
         (double)g->device_opened},
        {"pagoda", "step_retries_total", "counter", "steps that failed and were computed again",
         (double)g->step_retries},
        {"pagoda", "open_connections", "gauge", "connections of clients", g->connections},
        {"pagoda", "open_exchanges", "gauge", "requests being answered", g->open},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        PGD_TRY(add_value(t, rows[i].prefix, rows[i].name, rows[i].type, rows[i].help, labels,
                          rows[i].value));
    }
    return PGD_OK;
}

// Lines with labels of their own. Nobody is put off while there is room: all who wait, wait for it.
static pgd_status add_labelled(pgd_text *t, const pgd_serve_gauges *g, const char *labels) {
    return pgd_text_format(t,
                           "# HELP vllm:num_requests_waiting_by_reason the queue by its reasons\n"
                           "# TYPE vllm:num_requests_waiting_by_reason gauge\n"
                           "vllm:num_requests_waiting_by_reason{%s,reason=\"capacity\"} %d\n"
                           "vllm:num_requests_waiting_by_reason{%s,reason=\"deferred\"} 0\n"
                           "# HELP vllm:cache_config_info sizes of the KV cache\n"
                           "# TYPE vllm:cache_config_info gauge\n"
                           "vllm:cache_config_info{engine=\"0\",block_size=\"%d\","
                           "num_gpu_blocks=\"%d\"} 1\n"
                           "# HELP pagoda:build_info the program\n"
                           "# TYPE pagoda:build_info gauge\npagoda:build_info{version=\"%s\"} 1\n",
                           labels, g->waiting, labels, g->block_size, g->num_blocks, g->version);
}

// The engine counts steps by powers of two, of which these are some.
static pgd_status add_iterations(pgd_text *t, const pgd_serve_gauges *g, const char *labels) {
    static const histogram_kind kind = {
        .name = "iteration_tokens_total",
        .help = "tokens of a step: of prompts that ended in it, and made",
        .scale = 1,
        .buckets = {1, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384}};
    pgd_serve_histogram h = {.sum = g->prompt_tokens + g->generation_tokens};
    int32_t at = 0;
    for (int32_t i = 0; i < 16; i++) {
        at += at < n_buckets(&kind) && (double)(1 << i) > kind.buckets[at];
        h.counts[at] += g->steps_by_tokens[i];
    }
    return add_histogram(t, &h, &kind, HUGE_VAL, labels);
}

static const char *const methods[PGD_SERVE_METHODS] = {"GET", "POST", "OPTIONS", "OTHER"};

static pgd_status add_took(pgd_text *t, const pgd_serve_durations *d, const char *handler,
                           const char *method) {
    static const char *const edges[] = {"0.1", "0.5", "1.0", "+Inf"};
    uint64_t total = 0;
    for (int32_t i = 0; i < 4; i++) {
        total += d->counts[i];
        PGD_TRY(pgd_text_format(
            t,
            "http_request_duration_seconds_bucket{handler=\"%s\",method=\"%s\",le=\"%s\"} %llu\n",
            handler, method, edges[i], (unsigned long long)total));
    }
    return pgd_text_format(
        t,
        "http_request_duration_seconds_sum{handler=\"%s\",method=\"%s\"} %.9g\n"
        "http_request_duration_seconds_count{handler=\"%s\",method=\"%s\"} %llu\n",
        handler, method, (double)d->ns / 1e9, handler, method, (unsigned long long)total);
}

static pgd_status add_all_took(pgd_text *t, const pgd_serve_metrics *m, const pgd_serve_gauges *g) {
    PGD_TRY(pgd_text_format(t,
                            "# HELP http_request_duration_seconds from a request's headers to the "
                            "end of its answer\n"
                            "# TYPE http_request_duration_seconds histogram\n"));
    for (int32_t i = 0; i < PGD_SERVE_HANDLERS * PGD_SERVE_METHODS; i++) {
        const int32_t method = i % PGD_SERVE_METHODS;
        const int32_t handler = i / PGD_SERVE_METHODS;
        const pgd_serve_durations *d = &m->took[handler][method];
        if (d->counts[0] + d->counts[1] + d->counts[2] + d->counts[3] > 0) {
            PGD_TRY(add_took(t, d, g->handlers[handler], methods[method]));
        }
    }
    return PGD_OK;
}

static pgd_status add_answered(pgd_text *t, const pgd_serve_metrics *m, const pgd_serve_gauges *g) {
    const int32_t n = (int32_t)(sizeof(statuses) / sizeof(statuses[0]));
    PGD_TRY(pgd_text_format(t, "# HELP http_requests_total answers by route, method and status\n"
                               "# TYPE http_requests_total counter\n"));
    for (int32_t i = 0; i < PGD_SERVE_HANDLERS * PGD_SERVE_METHODS * PGD_SERVE_STATUSES; i++) {
        const int32_t at = i % PGD_SERVE_STATUSES;
        const int32_t method = i / PGD_SERVE_STATUSES % PGD_SERVE_METHODS;
        const int32_t handler = i / PGD_SERVE_STATUSES / PGD_SERVE_METHODS;
        const uint64_t count = m->answered[handler][method][at];
        if (count > 0) {
            PGD_TRY(pgd_text_format(
                t, "http_requests_total{handler=\"%s\",method=\"%s\",status=\"%d\"} %llu\n",
                g->handlers[handler], methods[method], at < n ? statuses[at] : 0,
                (unsigned long long)count));
        }
    }
    return PGD_OK;
}

static pgd_status add_process(pgd_text *t, const pgd_serve_gauges *g) {
    return pgd_text_format(
        t,
        "# HELP process_resident_memory_bytes memory of the process\n"
        "# TYPE process_resident_memory_bytes gauge\nprocess_resident_memory_bytes %llu\n"
        "# HELP process_cpu_seconds_total processor time of the process\n"
        "# TYPE process_cpu_seconds_total counter\nprocess_cpu_seconds_total %.3f\n"
        "# HELP process_start_time_seconds when the server began, Unix time\n"
        "# TYPE process_start_time_seconds gauge\nprocess_start_time_seconds %lld\n",
        (unsigned long long)g->resident_bytes, g->cpu_seconds, (long long)g->start_s);
}

static pgd_status add_server(pgd_text *t, const pgd_serve_metrics *m, const char *labels) {
    PGD_TRY(pgd_text_format(t, "# HELP vllm:request_success_total answers by their end\n"
                               "# TYPE vllm:request_success_total counter\n"));
    for (int32_t i = 0; i < PGD_SERVE_ENDS; i++) {
        PGD_TRY(pgd_text_format(t, "vllm:request_success_total{%s,finished_reason=\"%s\"} %llu\n",
                                labels, ends[i], (unsigned long long)m->ended[i]));
    }
    PGD_TRY(pgd_text_format(t,
                            "# HELP vllm:admission_rejections_total requests refused\n"
                            "# TYPE vllm:admission_rejections_total counter\n"
                            "vllm:admission_rejections_total{%s,reason=\"requests\"} %llu\n"
                            "vllm:admission_rejections_total{%s,reason=\"tokens\"} %llu\n"
                            "vllm:admission_rejections_total{%s,reason=\"key\"} %llu\n",
                            labels, (unsigned long long)m->rejected_queue, labels,
                            (unsigned long long)m->rejected_tokens, labels,
                            (unsigned long long)m->rejected_keys));
    PGD_TRY(add_value(t, "pagoda", "unknown_fields_total", "counter", "request fields nobody knows",
                      labels, (double)m->unknown_fields));
    PGD_TRY(add_value(t, "pagoda", "clients_left_total", "counter",
                      "clients that left before the end", labels, (double)m->clients_left));
    PGD_TRY(add_value(t, "pagoda", "request_timeouts_total", "counter",
                      "requests ended by their deadline", labels, (double)m->timeouts));
    PGD_TRY(add_value(t, "pagoda", "stuck_steps_total", "counter",
                      "steps that took longer than --watchdog-s allows", labels,
                      (double)m->stuck_steps));
    return add_value(t, "pagoda", "slow_readers_total", "counter",
                     "streams ended because nobody read them", labels, (double)m->slow_readers);
}

pgd_status pgd_serve_metrics_add(pgd_text *t, const pgd_serve_metrics *m,
                                 const pgd_serve_gauges *g) {
    pgd_text labels = {0};
    pgd_status status = pgd_text_format(&labels, "model_name=\"");
    for (const char *c = g->model; status == PGD_OK && *c != '\0'; c++) {
        status = *c == '\\' || *c == '"' ? pgd_text_format(&labels, "\\%c", *c)
                                         : pgd_text_add(&labels, *c == '\n' ? " " : c, 1);
    }
    status = status == PGD_OK ? pgd_text_format(&labels, "\",engine=\"0\"") : status;
    status = status == PGD_OK ? add_engine(t, g, labels.ptr) : status;
    status = status == PGD_OK ? add_labelled(t, g, labels.ptr) : status;
    status = status == PGD_OK ? add_iterations(t, g, labels.ptr) : status;
    for (int32_t i = 0; i < PGD_SERVE_HISTOGRAMS && status == PGD_OK; i++) {
        status =
            add_histogram(t, &m->histograms[i], &kinds[i], (double)g->max_model_len, labels.ptr);
    }
    status = status == PGD_OK ? add_server(t, m, labels.ptr) : status;
    status = status == PGD_OK ? add_answered(t, m, g) : status;
    status = status == PGD_OK ? add_all_took(t, m, g) : status;
    status = status == PGD_OK ? add_process(t, g) : status;
    pgd_text_free(&labels);
    return status;
}
