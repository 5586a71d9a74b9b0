// pagoda bench: chooses the benchmark.
#include "cli/bench.h"

#include <stdio.h>
#include <string.h>

#include "base/fail.h"

typedef struct bench_row {
    const char *name;
    const char *summary;
    int (*run)(int argc, char **argv);
} bench_row;

static const bench_row rows[] = {
    {"latency", "one batch: time to the first token, then time of each step", cli_bench_latency},
    {"throughput", "many requests at once: tokens a second", cli_bench_throughput},
    {"ops", "the operations of a model's step, each alone", cli_bench_ops},
    {"startup", "from the start of the process to the first token", cli_bench_startup},
#ifdef PGD_HAS_SERVE
    {"serve", "load on an OpenAI server: times of first and further tokens", cli_bench_serve},
#endif
};

#define N_ROWS ((int32_t)(sizeof(rows) / sizeof(rows[0])))

static void print_usage(FILE *to) {
    fprintf(to, "usage: pagoda bench NAME [MODEL] [flags]\n\nbenchmarks:\n");
    for (int32_t i = 0; i < N_ROWS; i++) {
        fprintf(to, "  %-12s %s\n", rows[i].name, rows[i].summary);
    }
    fprintf(to, "\n`pagoda bench NAME --help` lists the flags of one.\n"
                "Each measures the device's own limits around every sample and prints shares.\n");
}

int cli_bench(int argc, char **argv) {
    const char *names[sizeof(rows) / sizeof(rows[0])];
    if (argc < 2) {
        print_usage(stderr);
        return 2;
    }
    if (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0) {
        print_usage(stdout);
        return 0;
    }
    // Runs are repeated with the same prompts, which are to be computed each time.
    cli_engine.enable_prefix_caching = 0;
    for (int32_t i = 0; i < N_ROWS; i++) {
        if (strcmp(argv[1], rows[i].name) == 0) {
            return rows[i].run(argc - 1, argv + 1);
        }
        names[i] = rows[i].name;
    }
    const char *near = cli_nearest(argv[1], names, N_ROWS);
    fprintf(stderr, "pagoda: unknown benchmark \"%s\"; %s%s%s\n", argv[1],
            near != NULL ? "did you mean " : "latency, throughput, ops and startup are there",
            near != NULL ? near : "", near != NULL ? "?" : "");
    return 2;
}
