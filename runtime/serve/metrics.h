// Figures for Prometheus.
#ifndef PGD_SERVE_METRICS_H
#define PGD_SERVE_METRICS_H

#include <stdatomic.h>
#include <stdint.h>

#include "base/str.h"

#define PGD_SERVE_MAX_BUCKETS 24

enum {
#define HISTOGRAM(name, scale, help, ...) PGD_SERVE_H_##name,
#include "serve/metrics.inc"
#undef HISTOGRAM
    PGD_SERVE_HISTOGRAMS
};

enum {
#define FINISHED(name) PGD_SERVE_END_##name,
#include "serve/metrics.inc"
#undef FINISHED
    PGD_SERVE_ENDS
};

// Answers are counted by route (of route.c; the last: none of them), method and status.
enum { PGD_SERVE_HANDLERS = 24, PGD_SERVE_METHODS = 4, PGD_SERVE_STATUSES = 24 };

// How long answers took, by route and method. Streams: to their end.
typedef struct pgd_serve_durations {
    _Atomic uint64_t counts[4]; // up to 0.1, 0.5, 1 s and longer
    _Atomic uint64_t ns;
} pgd_serve_durations;

typedef struct pgd_serve_histogram {
    _Atomic uint64_t counts[PGD_SERVE_MAX_BUCKETS + 1]; // the last: above all buckets
    _Atomic uint64_t sum;
} pgd_serve_histogram;

typedef struct pgd_serve_metrics {
    pgd_serve_histogram histograms[PGD_SERVE_HISTOGRAMS];
    _Atomic uint64_t ended[PGD_SERVE_ENDS];
    _Atomic uint64_t answered[PGD_SERVE_HANDLERS][PGD_SERVE_METHODS][PGD_SERVE_STATUSES];
    pgd_serve_durations took[PGD_SERVE_HANDLERS][PGD_SERVE_METHODS];
    _Atomic uint64_t rejected_queue;
    _Atomic uint64_t rejected_tokens;
    _Atomic uint64_t unknown_fields;
    _Atomic uint64_t clients_left;
    _Atomic uint64_t slow_readers;
    _Atomic uint64_t rejected_keys;
    _Atomic uint64_t timeouts;
    _Atomic uint64_t stuck_steps;
} pgd_serve_metrics;

// What the engine tells at the moment of asking.
typedef struct pgd_serve_gauges {
    const char *model;
    const char *version;
    int32_t running;
    int32_t waiting;
    int32_t open; // exchanges
    int32_t connections;
    int32_t block_size;
    int32_t num_blocks;
    double kv_usage; // 0 to 1
    uint64_t prompt_tokens;
    uint64_t prompt_tokens_cached;
    uint64_t generation_tokens;
    uint64_t preemptions;
    uint64_t cache_queries; // tokens
    uint64_t cache_hits;
    uint64_t steps;
    uint64_t max_stall_ns; // longest step that held running streams
    uint64_t stall_bound_ns;
    uint64_t limited_steps;
    int32_t prefill_limit;
    int32_t stuck; // 1: the step under way has taken longer than the watchdog allows
    int32_t max_model_len;
    int32_t reserved0;
    uint64_t device_lost;
    uint64_t device_opened;
    uint64_t step_retries;
    uint64_t corrupt;
    const uint64_t *steps_by_tokens; // [16] as pgd_engine_stats has them
    uint64_t resident_bytes;         // of the process
    double cpu_seconds;
    int64_t start_s;             // of Unix time
    const char *const *handlers; // [PGD_SERVE_HANDLERS] paths; "" = none of them
} pgd_serve_gauges;

// [any] value in the unit of the name (seconds, tokens).
void pgd_serve_observe(pgd_serve_metrics *m, int32_t histogram, double value);
// [any] Counts an answer. handler and method: as in `answered`.
void pgd_serve_count(pgd_serve_metrics *m, int32_t handler, int32_t method, int32_t status);
// [any] And how long it took.
void pgd_serve_took(pgd_serve_metrics *m, int32_t handler, int32_t method, uint64_t ns);
// [any] Appends the text of /metrics. Source: Prometheus text format 0.0.4.
pgd_status pgd_serve_metrics_add(pgd_text *t, const pgd_serve_metrics *m,
                                 const pgd_serve_gauges *g) PGD_MUST_USE;

#endif
