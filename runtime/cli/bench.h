// What the benchmarks share: limits of the device around each sample, other people's processor
// time, percentiles, and the head of the JSON document.
//
//   limits[0] | sample 0 | limits[1] | sample 1 | limits[2] ...   shares: sample / mean of both
#ifndef PGD_CLI_BENCH_H
#define PGD_CLI_BENCH_H

#include <pagoda/limits.h>

#include "base/str.h"
#include "cli/common.h"
#include "engine/report.h"
#include "os/usage.h"

typedef struct bench_values {
    int32_t input_len;
    int32_t output_len;
    int32_t batch_size;
    int32_t context;
    int32_t num_prompts;
    int32_t repeat;
    int32_t warmup;
    int32_t limit_ms;
    int32_t json;
    cli_u64 seed;
} bench_values;

extern bench_values cli_bench_flag_values;

// Flags by the name of their value; each benchmark lists those it takes.
#define BENCH_INT_FLAG(name, field, low, high, help)                            \
    {                                                                           \
        name, "N", help, &cli_bench_flag_values.field, low, high, CLI_INT, 0, { \
            0                                                                   \
        }                                                                       \
    }
#define BENCH_COMMON_FLAGS                                                                         \
    BENCH_INT_FLAG("repeat", repeat, 1, 1000, "samples (default 3)"),                              \
        BENCH_INT_FLAG("warmup", warmup, 0, 1000, "runs before them (default 1)"),                 \
        BENCH_INT_FLAG("limit-ms", limit_ms, 1, 60000,                                             \
                       "time for each limit around a sample (default 60)"),                        \
    {                                                                                              \
        "json", NULL, "print one JSON document", &cli_bench_flag_values.json, 0, 0, CLI_SWITCH, 0, \
        {                                                                                          \
            0                                                                                      \
        }                                                                                          \
    }

// Rates of the device at one moment; 0 = it has none.
typedef struct bench_limits {
    double rate[PGD_LIMIT_COUNT];
} bench_limits;

typedef struct bench {
    const char *name; // "latency"
    int argc;         // as the program got them behind "bench"
    char **argv;
    pgd_engine *engine; // NULL where a benchmark makes none
    const pgd_device *d;
    const pgd_limits *limits; // NULL: the device cannot measure them
    pgd_engine_info info;
    pgd_engine_work work;
    char how[PGD_LIMIT_COUNT][32];
    int32_t dot; // PGD_LIMIT_DOT_... that products of this model are judged by
    uint32_t n_workers;
    uint64_t load_ns;        // pgd_engine_create
    uint64_t resident_bytes; // before limits were measured
    uint64_t peak_bytes;
    char arch[32];
} bench;

// Processor time and clock at the begin of a sample, then what the sample saw.
typedef struct bench_watch {
    uint64_t start_ns;
    pgd_os_usage start;
    uint64_t wall_ns;
    uint64_t own_ns;
    uint64_t foreign_ns; // processor time of others and of a hypervisor, in steps of 10 ms
} bench_watch;

// Opens the engine that the flags and `model` describe, sized for n_seqs sequences of max_len.
pgd_status cli_bench_open(bench *b, const char *model, int32_t n_seqs,
                          int32_t max_len) PGD_MUST_USE;
void cli_bench_close(bench *b);
// The part of open that concerns the device: its name and what its limits are measured with.
// b->work.dtype is set.
pgd_status cli_bench_device(bench *b, pgd_dev *dev) PGD_MUST_USE;

// Measures all four limits. A device without them gives zeros.
pgd_status cli_bench_measure(bench *b, bench_limits *out) PGD_MUST_USE;
// Mean of before and after; 0 = unknown.
double cli_bench_limit(const bench_limits *before, const bench_limits *after, int32_t what);
double cli_bench_share(double rate, double limit); // 0 when the limit is unknown

void cli_bench_watch_begin(bench_watch *w);
void cli_bench_watch_end(bench_watch *w);
// Cores that others used, 0 .. all.
double cli_bench_foreign(const bench_watch *w);

// Sorts values; the percentile by nearest rank, 0 of none.
void cli_bench_sort(double *values, int32_t n);
double cli_bench_percentile(const double *sorted, int32_t n, double percent);

// n token ids below vocab, the same for the same seed.
void cli_bench_ids(uint64_t seed, int32_t vocab, int32_t *out, int32_t n);

// {"bench":..,"command":[..],"unix_ms":..,"model":..,"machine":{..},"limits":{..},"samples":[
pgd_status cli_bench_json_head(const bench *b, pgd_text *t) PGD_MUST_USE;
// ,"KEY":{"read":..,"dot_f32":..,...}
pgd_status cli_bench_json_limits(pgd_text *t, const char *key, const bench_limits *l) PGD_MUST_USE;
pgd_status cli_bench_json_watch(pgd_text *t, const bench_watch *w) PGD_MUST_USE;
// ,"KEY":number with enough digits
pgd_status cli_bench_json_number(pgd_text *t, const char *key, double v) PGD_MUST_USE;
// Lines for people: model, device, what the limits are measured with.
void cli_bench_print_head(const bench *b);
void cli_bench_print_limits(const bench *b, const bench_limits *before, const bench_limits *after);

int cli_bench_latency(int argc, char **argv);
int cli_bench_throughput(int argc, char **argv);
int cli_bench_ops(int argc, char **argv);
int cli_bench_startup(int argc, char **argv);
int cli_bench_serve(int argc, char **argv);

#endif
