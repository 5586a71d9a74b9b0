// pagoda bench startup: the program starts itself again and again and notes the moments.
//
//   spawn -> main -> engine open (device, files, weights, cache) -> first token
//
// The child prints three moments of the monotonic clock, which all processes share.
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/fail.h"
#include "base/json.h"
#include "base/mem.h"
#include "cli/bench.h"
#include "os/file.h"
#include "os/process.h"

#define MAX_ARGUMENTS 64
#define PATH_CAP      4096
#define LINE_CAP      256

enum { MAIN = 0, OPENED = 1, FIRST = 2, N_MOMENTS = 3 };

typedef struct startup_sample {
    bench_sample all;
    double ms[N_MOMENTS]; // since the spawn
} startup_sample;

typedef struct startup_run {
    bench b;
    uint64_t main_ns;
    double *first_ms; // [repeat] of all samples so far
    int32_t n_first;
    char program[PATH_CAP];
    char *arguments[MAX_ARGUMENTS];
} startup_run;

static int32_t is_child;

static const cli_flag startup_flags[] = {
    BENCH_INT_FLAG("input-len", input_len, 1, 1048576, "tokens of the prompt (default 8)"),
    CLI_FLAG_SWITCH(0, "child", &is_child, "be the process that is started: print its moments"),
    BENCH_COMMON_FLAGS,
    {0},
};

// ---- the child ---------------------------------------------------------------------------------

static pgd_status first_token(pgd_engine *engine) {
    const bench_values *v = &cli_bench_flag_values;
    pgd_engine_info info = {.size = sizeof(info)};
    pgd_engine_get_info(engine, &info);
    int32_t *ids = pgd_mem_alloc((size_t)v->input_len, sizeof(*ids));
    if (ids == NULL) {
        return PGD_MEM_FAIL("the prompt", (size_t)v->input_len * sizeof(*ids));
    }
    cli_bench_ids(0, info.vocab_size, ids, v->input_len);
    const pgd_request_desc desc = {
        .size = sizeof(desc), .ids = ids, .n_ids = v->input_len, .max_tokens = 1, .ignore_eos = 1};
    pgd_request *request = NULL;
    pgd_status status = pgd_engine_submit(engine, &desc, &request);
    pgd_mem_free(ids);
    while (status == PGD_OK && pgd_engine_busy(engine) > 0) {
        status = pgd_engine_step(engine);
    }
    return status;
}

static pgd_status be_child(const char *model, uint64_t main_ns) {
    pgd_engine *engine = NULL;
    uint64_t opened_ns = 0;
    if (cli_engine.max_model_len == 0) {
        cli_engine.max_model_len = cli_bench_flag_values.input_len + 1;
    }
    pgd_status status = cli_open_engine(model, 1, &engine);
    opened_ns = pgd_clock_ns();
    if (status == PGD_OK) {
        status = first_token(engine);
    }
    if (status == PGD_OK) {
        printf("%llu %llu %llu\n", (unsigned long long)main_ns, (unsigned long long)opened_ns,
               (unsigned long long)pgd_clock_ns());
        fflush(stdout);
    }
    pgd_engine_destroy(engine);
    return status;
}

// ---- the parent --------------------------------------------------------------------------------

// The same command with --child.
static pgd_status make_arguments(startup_run *r) {
    static char words[3][12] = {"bench", "startup", "--child=1"};
    int n = 0;
    if (r->b.argc + 3 >= MAX_ARGUMENTS) {
        return pgd_fail(PGD_INVALID, "%d arguments; at most %d are allowed", r->b.argc,
                        MAX_ARGUMENTS - 4);
    }
    if (pgd_os_program_path(r->program, sizeof(r->program)) != PGD_OK) {
        return pgd_fail(PGD_UNAVAILABLE, "the path of this program is unknown");
    }
    r->arguments[n++] = r->program;
    r->arguments[n++] = words[0];
    r->arguments[n++] = words[1];
    r->arguments[n++] = words[2];
    for (int i = 1; i < r->b.argc; i++) {
        r->arguments[n++] = r->b.argv[i];
    }
    r->arguments[n] = NULL;
    return PGD_OK;
}

static int32_t read_moments(const char *line, uint64_t start, double *out_ms) {
    pgd_str rest = pgd_str_trim(pgd_str_of(line));
    for (int32_t i = 0; i < N_MOMENTS; i++) {
        uint64_t ns = 0;
        pgd_str word = pgd_str_cut(rest, ' ', &rest);
        if (!pgd_str_to_u64(word, &ns) || ns < start) {
            return 0;
        }
        out_ms[i] = (double)(ns - start) / 1e6;
    }
    return 1;
}

static pgd_status sample(bench *b, int32_t i, bench_sample *out) {
    startup_run *r = (startup_run *)b;
    startup_sample *s = (startup_sample *)out;
    char line[LINE_CAP];
    int32_t code = -1;
    uint64_t start = pgd_clock_ns();
    pgd_status status = pgd_os_process_run(r->arguments, line, sizeof(line), &code);
    if (status != PGD_OK) {
        return pgd_fail(status, "%s cannot be started", r->program);
    }
    if (code != 0 || !read_moments(line, start, s->ms)) {
        return pgd_fail(code == 2 ? PGD_INVALID : PGD_INTERNAL,
                        "the started program ended with status %d (its reason is above)", code);
    }
    if (i >= 0) {
        r->first_ms[r->n_first++] = s->ms[FIRST];
        cli_bench_sort(r->first_ms, r->n_first);
    }
    return PGD_OK;
}

// Milliseconds that reading the weights once takes; 0 = unknown.
static double read_once_ms(const bench *b, const bench_sample *s) {
    double read = cli_bench_limit(s, PGD_LIMIT_READ);
    return read > 0.0 ? (double)b->work.weight_bytes / read * 1e3 : 0.0;
}

static void print(const bench *b, int32_t i, const bench_sample *sample) {
    const startup_sample *s = (const startup_sample *)sample;
    printf("sample %d: first token after %.1f ms: process %.1f, engine %.1f, token %.1f\n", i + 1,
           s->ms[FIRST], s->ms[MAIN], s->ms[OPENED] - s->ms[MAIN], s->ms[FIRST] - s->ms[OPENED]);
    if (b->limits != NULL) {
        printf("  reading the weights once takes %.1f ms\n", read_once_ms(b, sample));
    }
    if (i == b->n_samples - 1) {
        const startup_run *r = (const startup_run *)b;
        printf("first token of all %d starts: best %.1f, p50 %.1f, p90 %.1f, p99 %.1f ms\n",
               r->n_first, r->first_ms[0], cli_bench_percentile(r->first_ms, r->n_first, 50),
               cli_bench_percentile(r->first_ms, r->n_first, 90),
               cli_bench_percentile(r->first_ms, r->n_first, 99));
    }
}

static pgd_status json(const bench *b, const bench_sample *sample, pgd_text *t) {
    const startup_sample *s = (const startup_sample *)sample;
    PGD_TRY(cli_bench_json_number(t, "process_ms", s->ms[MAIN]));
    PGD_TRY(cli_bench_json_number(t, "engine_ms", s->ms[OPENED] - s->ms[MAIN]));
    PGD_TRY(cli_bench_json_number(t, "token_ms", s->ms[FIRST] - s->ms[OPENED]));
    PGD_TRY(cli_bench_json_number(t, "first_token_ms", s->ms[FIRST]));
    return cli_bench_json_number(t, "read_once_ms", read_once_ms(b, sample));
}

static pgd_status json_end(const bench *b, pgd_text *t) {
    const startup_run *r = (const startup_run *)b;
    PGD_TRY(pgd_text_format(t, ",\"first_token\":{"));
    PGD_TRY(cli_bench_json_number(t, "best_ms", r->first_ms[0]));
    PGD_TRY(cli_bench_json_number(t, "p50_ms", cli_bench_percentile(r->first_ms, r->n_first, 50)));
    PGD_TRY(cli_bench_json_number(t, "p90_ms", cli_bench_percentile(r->first_ms, r->n_first, 90)));
    PGD_TRY(cli_bench_json_number(t, "p99_ms", cli_bench_percentile(r->first_ms, r->n_first, 99)));
    PGD_TRY(pgd_text_format(t, "}"));
    return pgd_text_format(t, ",\"input_len\":%d", cli_bench_flag_values.input_len);
}

// Limits come from an engine of the same model in this process, which does nothing meanwhile.
static pgd_status open(bench *b, const char *model) {
    startup_run *r = (startup_run *)b;
    if (is_child) {
        b->done = 1;
        return be_child(model, r->main_ns);
    }
    PGD_TRY(make_arguments(r));
    r->first_ms = pgd_mem_alloc((size_t)b->n_samples, sizeof(*r->first_ms));
    if (r->first_ms == NULL) {
        return PGD_MEM_FAIL("the samples", (size_t)b->n_samples * sizeof(*r->first_ms));
    }
    return cli_bench_open(b, model, 1, cli_bench_flag_values.input_len + 1);
}

static void close(bench *b) {
    pgd_mem_free(((startup_run *)b)->first_ms);
}

int cli_bench_startup(int argc, char **argv) {
    static const bench_kind kind = {
        .command = {"bench startup", "bench startup [MODEL] [flags]",
                    "Times the start of a process up to its first token.",
                    "The program starts itself; the model's files are warm after the first time.",
                    NULL},
        .flags = startup_flags,
        .sample_bytes = sizeof(startup_sample),
        .open = open,
        .sample = sample,
        .print = print,
        .json = json,
        .json_end = json_end,
        .close = close,
    };
    startup_run r = {.b = {.name = "startup"}, .main_ns = pgd_clock_ns()};
    cli_bench_flag_values.input_len = 8;
    return cli_bench_run(&kind, &r.b, argc, argv);
}
