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
    bench_watch watch;
    double ms[N_MOMENTS]; // since the spawn
} startup_sample;

typedef struct startup_run {
    bench b;
    bench_limits *limits; // [repeat + 1]
    startup_sample *samples;
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

static pgd_status sample(const startup_run *r, startup_sample *s) {
    char line[LINE_CAP];
    int32_t code = -1;
    cli_bench_watch_begin(&s->watch);
    uint64_t start = pgd_clock_ns();
    pgd_status status = pgd_os_process_run(r->arguments, line, sizeof(line), &code);
    cli_bench_watch_end(&s->watch);
    if (status != PGD_OK) {
        return pgd_fail(status, "%s cannot be started", r->program);
    }
    if (code != 0 || !read_moments(line, start, s->ms)) {
        return pgd_fail(code == 2 ? PGD_INVALID : PGD_INTERNAL,
                        "the started program ended with status %d (its reason is above)", code);
    }
    return PGD_OK;
}

static void print_sample(const startup_run *r, int32_t i) {
    const startup_sample *s = &r->samples[i];
    double read = cli_bench_limit(&r->limits[i], &r->limits[i + 1], PGD_LIMIT_READ);
    printf("sample %d: first token after %.1f ms: process %.1f, engine %.1f, token %.1f; others "
           "used %.2f cores\n",
           i + 1, s->ms[FIRST], s->ms[MAIN], s->ms[OPENED] - s->ms[MAIN],
           s->ms[FIRST] - s->ms[OPENED], cli_bench_foreign(&s->watch));
    if (read > 0.0) {
        printf("  reading the weights once takes %.1f ms at %.1f GB/s\n",
               (double)r->b.work.weight_bytes / read * 1e3, read / 1e9);
    }
}

static pgd_status json_sample(const startup_run *r, int32_t i, pgd_text *t) {
    const startup_sample *s = &r->samples[i];
    double read = cli_bench_limit(&r->limits[i], &r->limits[i + 1], PGD_LIMIT_READ);
    PGD_TRY(pgd_text_format(t, "%s{", i > 0 ? "," : ""));
    PGD_TRY(cli_bench_json_watch(t, &s->watch));
    PGD_TRY(cli_bench_json_limits(t, "limits_before", &r->limits[i]));
    PGD_TRY(cli_bench_json_limits(t, "limits_after", &r->limits[i + 1]));
    PGD_TRY(cli_bench_json_number(t, "process_ms", s->ms[MAIN]));
    PGD_TRY(cli_bench_json_number(t, "engine_ms", s->ms[OPENED] - s->ms[MAIN]));
    PGD_TRY(cli_bench_json_number(t, "token_ms", s->ms[FIRST] - s->ms[OPENED]));
    PGD_TRY(cli_bench_json_number(t, "first_token_ms", s->ms[FIRST]));
    PGD_TRY(cli_bench_json_number(t, "read_once_ms",
                                  read > 0.0 ? (double)r->b.work.weight_bytes / read * 1e3 : 0.0));
    return pgd_text_format(t, "}");
}

static pgd_status print_json(const startup_run *r) {
    const bench_values *v = &cli_bench_flag_values;
    pgd_text t = {0};
    pgd_status status = cli_bench_json_head(&r->b, &t);
    for (int32_t i = 0; status == PGD_OK && i < v->repeat; i++) {
        status = json_sample(r, i, &t);
    }
    if (status == PGD_OK) {
        status = pgd_text_format(&t, "],\"input_len\":%d}", v->input_len);
    }
    if (status == PGD_OK) {
        printf("%s\n", t.ptr);
    }
    pgd_text_free(&t);
    return status;
}

// Limits come from an engine of the same model in this process, which does nothing meanwhile.
static pgd_status run(startup_run *r, const char *model) {
    const bench_values *v = &cli_bench_flag_values;
    r->limits = pgd_mem_alloc((size_t)v->repeat + 1, sizeof(*r->limits));
    r->samples = pgd_mem_alloc((size_t)v->repeat, sizeof(*r->samples));
    if (r->limits == NULL || r->samples == NULL) {
        return PGD_MEM_FAIL("the samples", (size_t)v->repeat * sizeof(*r->samples));
    }
    PGD_TRY(make_arguments(r));
    PGD_TRY(cli_bench_open(&r->b, model, 1, v->input_len + 1));
    for (int32_t i = 0; i < v->warmup; i++) {
        startup_sample ignored;
        PGD_TRY(sample(r, &ignored));
    }
    if (!v->json) {
        cli_bench_print_head(&r->b);
    }
    PGD_TRY(cli_bench_measure(&r->b, &r->limits[0]));
    for (int32_t i = 0; i < v->repeat; i++) {
        PGD_TRY(sample(r, &r->samples[i]));
        PGD_TRY(cli_bench_measure(&r->b, &r->limits[i + 1]));
        if (!v->json) {
            print_sample(r, i);
        }
    }
    return v->json ? print_json(r) : PGD_OK;
}

int cli_bench_startup(int argc, char **argv) {
    static const cli_command command = {
        "bench startup", "bench startup [MODEL] [flags]",
        "Times the start of a process up to its first token.",
        "The program starts itself; the model's files are warm after the first time.", NULL};
    uint64_t main_ns = pgd_clock_ns();
    startup_run r = {.b = {.name = "startup", .argc = argc, .argv = argv}};
    cli_args args = {.command = &command,
                     .flags = {startup_flags, cli_engine_flags},
                     .titles = {"benchmark", "engine"},
                     .n_groups = 2,
                     .max_positional = 1};
    cli_bench_flag_values.input_len = 8;
    pgd_status status = cli_parse(&args, argc, argv);
    if (status == PGD_OK && args.help) {
        return 0;
    }
    if (status == PGD_OK) {
        status = is_child ? be_child(args.positional[0], main_ns) : run(&r, args.positional[0]);
    }
    int code = status == PGD_OK ? 0 : cli_failed(status);
    cli_bench_close(&r.b);
    pgd_mem_free(r.samples);
    pgd_mem_free(r.limits);
    return code;
}
