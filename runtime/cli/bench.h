// What the benchmarks share: limits of the device around each sample, other people's processor
// time, percentiles, and the head of the JSON document.
//
//   flags -> open -> warm-up -> limits | sample 0 | limits | sample 1 | limits ... -> report
//
// cli_bench_run is that line; what a benchmark does in it stands in its bench_kind. Limits between
// two samples belong to both: shares are a sample's rate over the mean of before and after.
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
    const char *name;  // "latency"
    int32_t n_samples; // set by open; before it --repeat
    int32_t n_warmup;  // set by open; before it --warmup
    int32_t done;      // set by open: nothing is left to measure or print
    int argc;          // as the program got them behind "bench"
    char **argv;
    pgd_engine *engine; // NULL where a benchmark makes none
    const pgd_device *d;
    const pgd_limits *limits; // NULL: the device cannot measure them
    pgd_engine_info info;
    pgd_engine_work work;
    char how[PGD_LIMIT_COUNT][32];
    int32_t dot; // PGD_LIMIT_DOT_... that products of this model are judged by
    uint32_t n_workers;
    uint64_t hz;             // nominal clock, 0 = unknown
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

// What every benchmark's sample begins with; the driver fills it.
typedef struct bench_sample {
    bench_watch watch; // of the whole sample, unless it began the watch again
    bench_limits before;
    bench_limits after;
} bench_sample;

// What is a benchmark's own. `b` is the first member of the benchmark's own struct.
typedef struct bench_kind {
    cli_command command;
    const cli_flag *flags; // its own; the engine's follow
    size_t sample_bytes;   // of its struct, whose first member is a bench_sample
    // Behind the flags: memory and the engine.
    pgd_status (*open)(bench *b, const char *model);
    // Sample i, -1 for a warm-up; *s is zero.
    pgd_status (*sample)(bench *b, int32_t i, bench_sample *s);
    // Lines for people.
    void (*print)(const bench *b, int32_t i, const bench_sample *s);
    // ,"KEY":value behind what all samples have.
    pgd_status (*json)(const bench *b, const bench_sample *s, pgd_text *t);
    // ,"KEY":value behind the list of samples.
    pgd_status (*json_end)(const bench *b, pgd_text *t);
    void (*close)(bench *b); // also after a failed open; may be NULL
} bench_kind;

// Parses the flags, opens, warms up, samples, reports and closes; gives the exit status.
int cli_bench_run(const bench_kind *kind, bench *b, int argc, char **argv);

// Opens the engine that the flags and `model` describe, sized for n_seqs sequences of max_len.
pgd_status cli_bench_open(bench *b, const char *model, int32_t n_seqs,
                          int32_t max_len) PGD_MUST_USE;
// The part of open that concerns the device: its name and what its limits are measured with.
// b->work.dtype is set.
pgd_status cli_bench_device(bench *b, pgd_dev *dev) PGD_MUST_USE;

// Mean of the limit before and after a sample; 0 = unknown.
double cli_bench_limit(const bench_sample *s, int32_t what);
// rate over that limit; 0 = unknown.
double cli_bench_share(const bench_sample *s, int32_t what, double rate);

void cli_bench_watch_begin(bench_watch *w);
void cli_bench_watch_end(bench_watch *w);
// Cores that others used, 0 .. all.
double cli_bench_foreign(const bench_watch *w);

// Sorts values; the percentile by nearest rank, 0 of none.
void cli_bench_sort(double *values, int32_t n);
double cli_bench_percentile(const double *sorted, int32_t n, double percent);

// n token ids below vocab, the same for the same seed.
void cli_bench_ids(uint64_t seed, int32_t vocab, int32_t *out, int32_t n);

// ,"KEY":number with enough digits
pgd_status cli_bench_json_number(pgd_text *t, const char *key, double v) PGD_MUST_USE;
int cli_bench_latency(int argc, char **argv);
int cli_bench_throughput(int argc, char **argv);
int cli_bench_ops(int argc, char **argv);
int cli_bench_startup(int argc, char **argv);
int cli_bench_serve(int argc, char **argv);

#endif
