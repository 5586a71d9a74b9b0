// See bench.h.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/fail.h"
#include "base/json.h"
#include "base/mem.h"
#include "base/rng.h"
#include "cli/bench.h"
#include "os/cpu.h"

#define NS_PER_MS     UINT64_C(1000000)
#define FIRST_LOOK_MS 16

bench_values cli_bench_flag_values = {.repeat = 3, .warmup = 1, .limit_ms = 60};

// ---- opening -----------------------------------------------------------------------------------

// Products of bf16 numbers can be made by the bf16 instruction or, once widened, by the f32 one:
// the faster of the two is the limit. Quantized weights (no dtype) can be multiplied as 8-bit
// numbers where that is faster; other dtypes are widened.
static int32_t dot_of(int32_t dtype, const double *best) {
    if (dtype == PGD_DTYPE_NONE && best[PGD_LIMIT_DOT_I8] > best[PGD_LIMIT_DOT_F32]) {
        return PGD_LIMIT_DOT_I8;
    }
    return dtype == PGD_BF16 && best[PGD_LIMIT_DOT_BF16] > best[PGD_LIMIT_DOT_F32]
               ? PGD_LIMIT_DOT_BF16
               : PGD_LIMIT_DOT_F32;
}

pgd_status cli_bench_device(bench *b, pgd_dev *dev) {
    double best[PGD_LIMIT_COUNT] = {0};
    const pgd_device_info *info = pgd_dev_info(dev);
    snprintf(b->arch, sizeof(b->arch), "%.31s", info->arch);
    b->n_workers = info->units;
    b->hz = pgd_os_cpu_hz();
    b->d = pgd_dev_device(dev);
    b->limits = pgd_dev_extension(dev, PGD_LIMITS_EXTENSION);
    for (int32_t i = 0; i < PGD_LIMIT_COUNT && b->limits != NULL; i++) {
        pgd_limit limit = {.size = sizeof(limit)};
        pgd_status status = b->limits->measure(b->d, i, FIRST_LOOK_MS * NS_PER_MS, &limit);
        if (status != PGD_OK && status != PGD_UNSUPPORTED) {
            return pgd_fail_note(status, "measuring the device's limits");
        }
        best[i] = status == PGD_OK ? limit.best : 0.0;
        snprintf(b->how[i], sizeof(b->how[i]), "%.31s", status == PGD_OK ? limit.how : "");
    }
    b->dot = dot_of(b->work.dtype, best);
    return PGD_OK;
}

pgd_status cli_bench_open(bench *b, const char *model, int32_t n_seqs, int32_t max_len) {
    int32_t block = cli_engine.block_size != 0 ? cli_engine.block_size : 16;
    int64_t blocks = (int64_t)n_seqs * ((max_len + block - 1) / block) + 1;
    if (cli_engine.max_model_len == 0) {
        cli_engine.max_model_len = max_len;
    }
    if (cli_engine.num_blocks == 0 && cli_engine.max_model_len == max_len && blocks < 1 << 24) {
        cli_engine.num_blocks = (int32_t)(blocks < 2 ? 2 : blocks);
    }
    uint64_t start = pgd_clock_ns();
    PGD_TRY(cli_open_engine(model, n_seqs, &b->engine));
    b->load_ns = pgd_clock_ns() - start;
    b->info = (pgd_engine_info){.size = sizeof(b->info)};
    pgd_engine_get_info(b->engine, &b->info);
    pgd_engine_report_work(b->engine, &b->work);
    pgd_os_usage usage;
    pgd_os_usage_read(&usage);
    b->resident_bytes = usage.rss_bytes;
    b->peak_bytes = usage.peak_bytes;
    return cli_bench_device(b, pgd_engine_report_device(b->engine));
}

// ---- limits ------------------------------------------------------------------------------------

// All four limits. A device without them gives zeros.
static pgd_status measure(bench *b, bench_limits *out) {
    uint64_t budget = (uint64_t)cli_bench_flag_values.limit_ms * NS_PER_MS;
    *out = (bench_limits){0};
    for (int32_t i = 0; i < PGD_LIMIT_COUNT; i++) {
        pgd_limit limit = {.size = sizeof(limit)};
        if (b->how[i][0] == '\0') {
            continue;
        }
        PGD_TRY(pgd_fail_note(b->limits->measure(b->d, i, budget, &limit),
                              "measuring the device's limits"));
        out->rate[i] = limit.rate;
    }
    return PGD_OK;
}

double cli_bench_limit(const bench_sample *s, int32_t what) {
    return (s->before.rate[what] + s->after.rate[what]) / 2.0;
}

double cli_bench_share(const bench_sample *s, int32_t what, double rate) {
    double limit = cli_bench_limit(s, what);
    return limit > 0.0 ? rate / limit : 0.0;
}

// ---- others' processor time --------------------------------------------------------------------

void cli_bench_watch_begin(bench_watch *w) {
    *w = (bench_watch){0};
    pgd_os_usage_read(&w->start);
    w->start_ns = pgd_clock_ns();
}

void cli_bench_watch_end(bench_watch *w) {
    pgd_os_usage end;
    w->wall_ns = pgd_clock_ns() - w->start_ns;
    pgd_os_usage_read(&end);
    w->own_ns = end.own_ns - w->start.own_ns;
    uint64_t all = end.all_ns - w->start.all_ns;
    w->foreign_ns = all > w->own_ns ? all - w->own_ns : 0;
}

double cli_bench_foreign(const bench_watch *w) {
    double cores = (double)pgd_os_cpu_count();
    double used = w->wall_ns > 0 ? (double)w->foreign_ns / (double)w->wall_ns : 0.0;
    return used < cores ? used : cores;
}

// ---- numbers -----------------------------------------------------------------------------------

static int compare(const void *a, const void *b) {
    double x = *(const double *)a;
    double y = *(const double *)b;
    return (x > y) - (x < y);
}

void cli_bench_sort(double *values, int32_t n) {
    qsort(values, (size_t)n, sizeof(*values), compare);
}

double cli_bench_percentile(const double *sorted, int32_t n, double percent) {
    int32_t rank = (int32_t)((double)n * percent / 100.0 + 0.999999);
    if (n == 0) {
        return 0.0;
    }
    rank = rank < 1 ? 1 : (rank > n ? n : rank);
    return sorted[rank - 1];
}

void cli_bench_ids(uint64_t seed, int32_t vocab, int32_t *out, int32_t n) {
    uint64_t state = seed;
    for (int32_t i = 0; i < n; i++) {
        out[i] = (int32_t)(pgd_rng_next(&state) % (uint64_t)vocab);
    }
}

// ---- reports -----------------------------------------------------------------------------------

pgd_status cli_bench_json_number(pgd_text *t, const char *key, double v) {
    PGD_TRY(pgd_text_format(t, "%s\"%s\":", t->ptr[t->len - 1] == '{' ? "" : ",", key));
    return pgd_json_add_f64(t, v);
}

static pgd_status add_text(pgd_text *t, const char *key, const char *value) {
    PGD_TRY(pgd_text_format(t, "%s\"%s\":", t->ptr[t->len - 1] == '{' ? "" : ",", key));
    return pgd_json_add_str(t, pgd_str_of(value));
}

static const char *limit_name(int32_t what) {
    static const char *const names[] = {
#define LIMIT_NAME(name, number, text) text,
        PGD_LIMIT_LIST(LIMIT_NAME)
#undef LIMIT_NAME
    };
    return names[what];
}

static pgd_status json_limits(pgd_text *t, const char *key, const bench_limits *l) {
    PGD_TRY(pgd_text_format(t, ",\"%s\":{", key));
    for (int32_t i = 0; i < PGD_LIMIT_COUNT; i++) {
        PGD_TRY(cli_bench_json_number(t, limit_name(i), l->rate[i]));
    }
    return pgd_text_format(t, "}");
}

// Cycles at the nominal clock.
static double foreign_cycles(const bench *b, const bench_watch *w) {
    return (double)w->foreign_ns / 1e9 * (double)b->hz;
}

static pgd_status json_watch(const bench *b, pgd_text *t, const bench_watch *w) {
    PGD_TRY(cli_bench_json_number(t, "wall_ms", (double)w->wall_ns / 1e6));
    PGD_TRY(cli_bench_json_number(t, "own_cpu_ms", (double)w->own_ns / 1e6));
    PGD_TRY(cli_bench_json_number(t, "foreign_cpu_ms", (double)w->foreign_ns / 1e6));
    PGD_TRY(cli_bench_json_number(t, "foreign_cycles", foreign_cycles(b, w)));
    return cli_bench_json_number(t, "foreign_cores", cli_bench_foreign(w));
}

static pgd_status add_machine(const bench *b, pgd_text *t) {
    PGD_TRY(pgd_text_format(t, ",\"machine\":{"));
    PGD_TRY(add_text(t, "device", b->info.device));
    PGD_TRY(add_text(t, "name", b->info.device_name));
    PGD_TRY(add_text(t, "arch", b->arch));
    return pgd_text_format(
        t, ",\"workers\":%u,\"cores\":%u,\"nominal_hz\":%llu,\"memory_bytes\":%llu}", b->n_workers,
        pgd_os_cpu_count(), (unsigned long long)b->hz, (unsigned long long)pgd_os_memory_total());
}

static pgd_status add_model(const bench *b, pgd_text *t) {
    const pgd_engine_work *w = &b->work;
    PGD_TRY(add_text(t, "model", b->info.model));
    PGD_TRY(add_text(t, "architecture", b->info.architecture));
    PGD_TRY(add_text(t, "dtype", w->stored));
    PGD_TRY(add_text(t, "kv_dtype", pgd_dtype_name(w->kv_dtype)));
    return pgd_text_format(
        t,
        ",\"parameters\":%llu,\"weight_bytes\":%llu,\"step_weight_bytes\":%llu,"
        "\"kv_token_bytes\":%llu,\"kv_bytes\":%llu,\"load_ms\":%.3f,\"resident_bytes\":%llu,"
        "\"peak_bytes\":%llu",
        (unsigned long long)b->info.parameters, (unsigned long long)b->info.weight_bytes,
        (unsigned long long)w->weight_bytes, (unsigned long long)w->kv_token_bytes,
        (unsigned long long)b->info.kv_bytes, (double)b->load_ns / 1e6,
        (unsigned long long)b->resident_bytes, (unsigned long long)b->peak_bytes);
}

static pgd_status json_head(const bench *b, pgd_text *t) {
    PGD_TRY(pgd_text_format(t, "{\"bench\":\"%s\",\"pagoda\":\"%s\",\"unix_ms\":%lld,\"command\":[",
                            b->name, pgd_version(), (long long)pgd_clock_unix_ms()));
    PGD_TRY(pgd_text_format(t, "\"pagoda\",\"bench\""));
    for (int i = 0; i < b->argc; i++) {
        PGD_TRY(pgd_text_format(t, ","));
        PGD_TRY(pgd_json_add_str(t, pgd_str_of(b->argv[i])));
    }
    PGD_TRY(pgd_text_format(t, "]"));
    PGD_TRY(add_model(b, t));
    PGD_TRY(add_machine(b, t));
    PGD_TRY(pgd_text_format(t,
                            ",\"limits\":{\"unit\":\"bytes/s and operations/s\",\"judged_by\":"
                            "\"%s\"",
                            limit_name(b->dot)));
    for (int32_t i = 0; i < PGD_LIMIT_COUNT; i++) {
        PGD_TRY(add_text(t, limit_name(i), b->how[i]));
    }
    return pgd_text_format(t, "},\"samples\":[");
}

static void print_head(const bench *b) {
    printf("model   %s (%s), %.1f M parameters, %.1f MB of weights\n", b->info.model,
           b->work.stored, (double)b->info.parameters / 1e6, (double)b->work.weight_bytes / 1e6);
    printf("device  %s %s, %s, %u workers", b->info.device, b->info.device_name, b->arch,
           b->n_workers);
    if (b->engine != NULL) {
        printf("; loaded in %.0f ms, %.0f MB resident", (double)b->load_ns / 1e6,
               (double)b->resident_bytes / 1e6);
    }
    printf("\n");
    if (b->limits == NULL) {
        printf("limits  this device cannot measure them: no shares\n");
    }
}

static void print_surroundings(const bench *b, const bench_sample *s) {
    printf("  ");
    if (b->limits != NULL) {
        printf("limits alongside: read %.1f GB/s", cli_bench_limit(s, PGD_LIMIT_READ) / 1e9);
    }
    for (int32_t i = PGD_LIMIT_DOT_F32; b->limits != NULL && i < PGD_LIMIT_COUNT; i++) {
        if (b->how[i][0] != '\0') {
            printf(", %s %.0f G/s", limit_name(i), cli_bench_limit(s, i) / 1e9);
        }
    }
    printf("%sothers used %.2f cores, %.2f G cycles\n", b->limits != NULL ? "; " : "",
           cli_bench_foreign(&s->watch), foreign_cycles(b, &s->watch) / 1e9);
}

static pgd_status json_sample(const bench_kind *kind, const bench *b, const bench_sample *s,
                              pgd_text *t) {
    PGD_TRY(pgd_text_format(t, "%s{", t->ptr[t->len - 1] == '[' ? "" : ","));
    PGD_TRY(json_watch(b, t, &s->watch));
    PGD_TRY(json_limits(t, "limits_before", &s->before));
    PGD_TRY(json_limits(t, "limits_after", &s->after));
    PGD_TRY(kind->json(b, s, t));
    return pgd_text_format(t, "}");
}

// ---- the run -----------------------------------------------------------------------------------

static bench_sample *sample_at(const bench_kind *kind, void *samples, int32_t i) {
    unsigned char *base = samples;
    return (bench_sample *)(void *)(base + (size_t)i * kind->sample_bytes);
}

static pgd_status print_json(const bench_kind *kind, const bench *b, void *samples) {
    pgd_text t = {0};
    pgd_status status = json_head(b, &t);
    for (int32_t i = 0; status == PGD_OK && i < b->n_samples; i++) {
        status = json_sample(kind, b, sample_at(kind, samples, i), &t);
    }
    if (status == PGD_OK) {
        status = pgd_text_format(&t, "]");
    }
    if (status == PGD_OK) {
        status = kind->json_end(b, &t);
    }
    if (status == PGD_OK) {
        printf("%s}\n", t.ptr);
    }
    pgd_text_free(&t);
    return status;
}

static pgd_status take_sample(const bench_kind *kind, bench *b, int32_t i, bench_sample *s) {
    cli_bench_watch_begin(&s->watch);
    PGD_TRY(kind->sample(b, i, s));
    cli_bench_watch_end(&s->watch);
    return PGD_OK;
}

// samples: [n_samples + 1], the last one is for warming up.
static pgd_status take_samples(const bench_kind *kind, bench *b, void *samples) {
    const int32_t for_people = !cli_bench_flag_values.json;
    bench_limits limits = {{0}};
    for (int32_t i = 0; i < b->n_warmup; i++) {
        bench_sample *s = sample_at(kind, samples, b->n_samples);
        memset(s, 0, kind->sample_bytes);
        PGD_TRY(take_sample(kind, b, -1, s));
    }
    if (for_people) {
        print_head(b);
    }
    PGD_TRY(measure(b, &limits));
    for (int32_t i = 0; i < b->n_samples; i++) {
        bench_sample *s = sample_at(kind, samples, i);
        s->before = limits;
        PGD_TRY(take_sample(kind, b, i, s));
        PGD_TRY(measure(b, &limits));
        s->after = limits;
        if (for_people) {
            kind->print(b, i, s);
            print_surroundings(b, s);
            fflush(stdout);
        }
    }
    return for_people ? PGD_OK : print_json(kind, b, samples);
}

static pgd_status open_and_sample(const bench_kind *kind, bench *b, const char *model) {
    b->n_samples = cli_bench_flag_values.repeat;
    b->n_warmup = cli_bench_flag_values.warmup;
    PGD_TRY(kind->open(b, model));
    if (b->done) {
        return PGD_OK;
    }
    size_t n = (size_t)b->n_samples + 1;
    void *samples = pgd_mem_alloc(n, kind->sample_bytes);
    if (samples == NULL) {
        return PGD_MEM_FAIL("the samples", n * kind->sample_bytes);
    }
    pgd_status status = take_samples(kind, b, samples);
    pgd_mem_free(samples);
    return status;
}

int cli_bench_run(const bench_kind *kind, bench *b, int argc, char **argv) {
    cli_args args = {.command = &kind->command,
                     .flags = {kind->flags, cli_engine_flags},
                     .titles = {"benchmark", "engine"},
                     .n_groups = 2,
                     .max_positional = 1};
    b->argc = argc;
    b->argv = argv;
    pgd_status status = cli_parse(&args, argc, argv);
    if (status == PGD_OK && args.help) {
        return 0;
    }
    if (status == PGD_OK) {
        status = open_and_sample(kind, b, args.positional[0]);
    }
    int code = status == PGD_OK ? 0 : cli_failed(status);
    if (kind->close != NULL) {
        kind->close(b);
    }
    pgd_engine_destroy(b->engine);
    return code;
}
