// pagoda bench serve: load on any OpenAI server, with the numbers of `vllm bench serve`.
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/fail.h"
#include "base/json.h"
#include "base/mem.h"
#include "base/rng.h"
#include "cli/bench.h"
#include "cli/common.h"
#include "serve/load.h"

#define FIRST_ID 10 // lower ids tend to be special ones

typedef struct serve_bench_values {
    const char *base_url;
    const char *endpoint;
    const char *model;
    const char *api_key;
    const char *goodput;
    const char *prompt;
    int32_t num_prompts;
    int32_t input_len;
    int32_t output_len;
    int32_t vocab;
    int32_t concurrency;
    int32_t timeout;
    int32_t keep_eos;
    int32_t json;
    double rate;
    double range_ratio;
    double temperature;
    cli_u64 seed;
} serve_bench_values;

static serve_bench_values values = {
    .base_url = "http://127.0.0.1:8000",
    .endpoint = "/v1/completions",
    .num_prompts = 100,
    .input_len = 256,
    .output_len = 64,
    .vocab = 1000,
    .timeout = 600,
};

static const cli_flag serve_bench_flags[] = {
    CLI_FLAG_TEXT(0, "base-url", "URL", &values.base_url,
                  "server to load (default http://127.0.0.1:8000)"),
    CLI_FLAG_TEXT(0, "endpoint", "PATH", &values.endpoint,
                  "/v1/completions (default) or /v1/chat/completions"),
    CLI_FLAG_TEXT(0, "model", "NAME", &values.model, "model to ask for (default: none is named)"),
    CLI_FLAG_TEXT(0, "api-key", "KEY", &values.api_key, "key of the server"),
    CLI_FLAG_INT(0, "num-prompts", "N", &values.num_prompts, 1, 10000000, "requests (default 100)"),
    CLI_FLAG_INT(0, "random-input-len", "N", &values.input_len, 1, 10000000,
                 "tokens of a prompt (default 256)"),
    CLI_FLAG_INT(0, "random-output-len", "N", &values.output_len, 1, 10000000,
                 "tokens of an answer (default 64)"),
    CLI_FLAG_REAL(0, "random-range-ratio", "R", &values.range_ratio, 0, 1,
                  "lengths vary by this share (default 0)"),
    CLI_FLAG_INT(0, "random-vocab", "N", &values.vocab, 20, 10000000,
                 "token ids of prompts are below it (default 1000)"),
    CLI_FLAG_TEXT(0, "prompt", "TEXT", &values.prompt,
                  "every prompt is this text (chat: the user's message)"),
    CLI_FLAG_REAL(0, "request-rate", "R", &values.rate, 0, 1e9,
                  "arrivals a second, Poisson (default: all at once)"),
    CLI_FLAG_INT(0, "max-concurrency", "N", &values.concurrency, 1, 1000000,
                 "most requests at once (default: no limit)"),
    CLI_FLAG_REAL(0, "temperature", "T", &values.temperature, 0, 2, "(default 0, greedy)"),
    CLI_FLAG_SWITCH(0, "keep-eos", &values.keep_eos, "answers may end before their length"),
    CLI_FLAG_TEXT(0, "goodput", "LIST", &values.goodput,
                  "count requests within limits in ms, for example ttft:200,tpot:50,e2el:5000"),
    CLI_FLAG_INT(0, "timeout-s", "N", &values.timeout, 1, 86400,
                 "longest silence of a connection (default 600)"),
    CLI_FLAG_U64(0, "seed", "N", &values.seed, "of prompts and arrivals (default 0)"),
    CLI_FLAG_SWITCH(0, "json", &values.json, "print one JSON document"),
    {0},
};

typedef struct target {
    char host[256];
    int32_t port;
    int32_t is_chat;
} target;

// The limits of --goodput in milliseconds; 0 = none.
typedef struct goodput {
    double ttft;
    double tpot;
    double e2el;
} goodput;

// Sorted milliseconds of one measure.
typedef struct measure {
    const char *key;
    const char *title;
    double *ms;
    size_t n;
} measure;

enum { TTFT = 0, TPOT = 1, ITL = 2, E2EL = 3, MEASURES = 4 };

typedef struct report {
    pgd_serve_load_result load;
    measure measures[MEASURES];
    int32_t n_ok;
    int32_t n_good;
    uint64_t n_in;
    uint64_t n_out;
} report;

static pgd_status read_url(const char *url, target *out) {
    static const char scheme[] = "http://";
    int64_t port = 80;
    if (strncmp(url, scheme, sizeof(scheme) - 1) != 0) {
        return pgd_fail(PGD_INVALID, "--base-url \"%s\": http://HOST:PORT is allowed", url);
    }
    pgd_str rest = pgd_str_of(url + sizeof(scheme) - 1);
    pgd_str path = {"", 0};
    pgd_str host = pgd_str_cut(rest, '/', &path);
    pgd_str digits = {"", 0};
    pgd_str name = pgd_str_cut(host, ':', &digits);
    if (name.len == 0 || name.len >= sizeof(out->host) || path.len > 0 ||
        (digits.len > 0 && (!pgd_str_to_i64(digits, &port) || port < 1 || port > 65535))) {
        return pgd_fail(PGD_INVALID, "--base-url \"%s\": http://HOST:PORT is allowed", url);
    }
    memcpy(out->host, name.ptr, name.len);
    out->host[name.len] = '\0';
    out->port = (int32_t)port;
    out->is_chat = strstr(values.endpoint, "chat") != NULL;
    return PGD_OK;
}

static pgd_status read_goodput(const char *text, goodput *out) {
    pgd_str rest = pgd_str_of(text);
    while (rest.len > 0) {
        pgd_str number;
        pgd_str part = pgd_str_cut(rest, ',', &rest);
        pgd_str name = pgd_str_cut(part, ':', &number);
        double *to = pgd_str_is(name, "ttft")   ? &out->ttft
                     : pgd_str_is(name, "tpot") ? &out->tpot
                     : pgd_str_is(name, "e2el") ? &out->e2el
                                                : NULL;
        if (to == NULL || !pgd_str_to_f64(number, to) || !(*to > 0.0)) {
            return pgd_fail(PGD_INVALID,
                            "--goodput \"%s\": NAME:MS,... with ttft, tpot and e2el is allowed",
                            text);
        }
    }
    return PGD_OK;
}

// A length between (1 - r) and (1 + r) times `len`.
static int32_t vary(uint64_t *rng, int32_t len) {
    const double u = (double)(pgd_rng_next(rng) >> 11) * 0x1p-53;
    const double varied = (double)len * (1.0 + values.range_ratio * (2.0 * u - 1.0));
    return varied < 1.0 ? 1 : (int32_t)varied;
}

static pgd_status add_prompt(pgd_text *t, uint64_t *rng, int32_t is_chat) {
    const int32_t n = vary(rng, values.input_len);
    if (is_chat || values.prompt != NULL) {
        pgd_text text = {0};
        pgd_status status =
            values.prompt != NULL ? pgd_text_add_str(&text, pgd_str_of(values.prompt)) : PGD_OK;
        for (int32_t i = 0; values.prompt == NULL && i < n && status == PGD_OK; i++) {
            status = pgd_text_format(&text, "%s%d", i > 0 ? " " : "",
                                     (int)(pgd_rng_next(rng) % (uint64_t)values.vocab));
        }
        status = status == PGD_OK
                     ? pgd_text_format(t, is_chat ? "\"messages\":[{\"role\":\"user\",\"content\":"
                                                  : "\"prompt\":")
                     : status;
        status = status == PGD_OK ? pgd_json_add_str(t, pgd_text_view(&text)) : status;
        pgd_text_free(&text);
        return status == PGD_OK ? pgd_text_format(t, is_chat ? "}]" : "") : status;
    }
    PGD_TRY(pgd_text_format(t, "\"prompt\":["));
    for (int32_t i = 0; i < n; i++) {
        PGD_TRY(pgd_text_format(
            t, "%s%d", i > 0 ? "," : "",
            FIRST_ID + (int)(pgd_rng_next(rng) % (uint64_t)(values.vocab - FIRST_ID))));
    }
    return pgd_text_add(t, "]", 1);
}

static pgd_status make_body(void *arg, int32_t i, pgd_text *t) {
    const target *to = arg;
    uint64_t rng = values.seed.value * UINT64_C(0x9E3779B97F4A7C15) + (uint64_t)i + 1;
    PGD_TRY(pgd_text_format(t, "{"));
    if (values.model != NULL) {
        PGD_TRY(pgd_text_format(t, "\"model\":"));
        PGD_TRY(pgd_json_add_str(t, pgd_str_of(values.model)));
        PGD_TRY(pgd_text_add(t, ",", 1));
    }
    PGD_TRY(add_prompt(t, &rng, to->is_chat));
    return pgd_text_format(t,
                           ",\"%s\":%d,\"temperature\":%g,\"ignore_eos\":%s,\"stream\":true,"
                           "\"stream_options\":{\"include_usage\":true}}",
                           to->is_chat ? "max_completion_tokens" : "max_tokens",
                           vary(&rng, values.output_len), values.temperature,
                           values.keep_eos ? "false" : "true");
}

static void show_progress(void *arg, int32_t done, int32_t n) {
    (void)arg;
    cli_progress("requests", (uint64_t)done, (uint64_t)n, "requests");
}

// ---- report ------------------------------------------------------------------------------------

static pgd_status make_measures(report *r) {
    static const char *const keys[] = {"ttft", "tpot", "itl", "e2el"};
    static const char *const titles[] = {"Time to First Token",
                                         "Time per Output Token (excl. 1st token)",
                                         "Inter-token Latency", "End-to-end Latency"};
    for (int32_t i = 0; i < MEASURES; i++) {
        const size_t most = i == ITL ? r->load.n_gaps : (size_t)values.num_prompts;
        r->measures[i] = (measure){.key = keys[i], .title = titles[i]};
        r->measures[i].ms = pgd_mem_alloc(most, sizeof(double));
        if (r->measures[i].ms == NULL) {
            return PGD_MEM_FAIL("the report", most * sizeof(double));
        }
    }
    return PGD_OK;
}

static void add_value(measure *m, double ms) {
    m->ms[m->n++] = ms;
}

static int32_t is_good(const goodput *g, double ttft, double tpot, double e2el) {
    return (g->ttft <= 0.0 || ttft <= g->ttft) && (g->tpot <= 0.0 || tpot <= g->tpot) &&
           (g->e2el <= 0.0 || e2el <= g->e2el);
}

static pgd_status collect(report *r, const goodput *g) {
    PGD_TRY(make_measures(r));
    for (int32_t i = 0; i < values.num_prompts; i++) {
        const pgd_serve_load_one *one = &r->load.ones[i];
        if (!one->ok || one->first_ns == 0) {
            continue;
        }
        const double ttft = (double)one->first_ns / 1e6;
        const double e2el = (double)one->total_ns / 1e6;
        double tpot = 0.0;
        r->n_ok++;
        r->n_in += (uint64_t)one->n_prompt;
        r->n_out += (uint64_t)one->n_output;
        add_value(&r->measures[TTFT], ttft);
        add_value(&r->measures[E2EL], e2el);
        if (one->n_output > 1) {
            tpot = (double)(one->last_ns - one->first_ns) / 1e6 / (one->n_output - 1);
            add_value(&r->measures[TPOT], tpot);
        }
        r->n_good += is_good(g, ttft, tpot, e2el);
    }
    for (size_t i = 0; i < r->load.n_gaps; i++) {
        add_value(&r->measures[ITL], (double)r->load.gaps_ns[i] / 1e6);
    }
    for (int32_t i = 0; i < MEASURES; i++) {
        cli_bench_sort(r->measures[i].ms, (int32_t)r->measures[i].n);
    }
    return PGD_OK;
}

static double mean_of(const measure *m) {
    double sum = 0.0;
    for (size_t i = 0; i < m->n; i++) {
        sum += m->ms[i];
    }
    return m->n > 0 ? sum / (double)m->n : 0.0;
}

static double percentile_of(const measure *m, double percent) {
    return cli_bench_percentile(m->ms, (int32_t)m->n, percent);
}

static double seconds_of(const report *r) {
    return (double)r->load.duration_ns / 1e9;
}

static pgd_status print_json(const report *r, int32_t has_goodput) {
    const double s = seconds_of(r);
    pgd_text t = {0};
    pgd_status status = pgd_text_format(
        &t,
        "{\"duration\":%.6f,\"completed\":%d,\"failed\":%d,\"total_input_tokens\":%llu,"
        "\"total_output_tokens\":%llu,\"request_throughput\":%.6f,\"output_throughput\":%.6f,"
        "\"total_token_throughput\":%.6f,\"max_concurrent_requests\":%d",
        s, r->n_ok, values.num_prompts - r->n_ok, (unsigned long long)r->n_in,
        (unsigned long long)r->n_out, r->n_ok / s, (double)r->n_out / s,
        (double)(r->n_in + r->n_out) / s, r->load.most_open);
    if (status == PGD_OK && has_goodput) {
        status = pgd_text_format(&t, ",\"request_goodput\":%.6f", r->n_good / s);
    }
    for (int32_t i = 0; i < MEASURES && status == PGD_OK; i++) {
        const measure *m = &r->measures[i];
        status = pgd_text_format(&t,
                                 ",\"mean_%s_ms\":%.6f,\"median_%s_ms\":%.6f,\"p90_%s_ms\":%.6f,"
                                 "\"p99_%s_ms\":%.6f",
                                 m->key, mean_of(m), m->key, percentile_of(m, 50), m->key,
                                 percentile_of(m, 90), m->key, percentile_of(m, 99));
    }
    if (status == PGD_OK) {
        printf("%s}\n", t.ptr);
    }
    pgd_text_free(&t);
    return status;
}

static void print_title(const char *title, char fill) {
    const int width = 50;
    const int n = (int)strlen(title);
    const int left = (width - n) / 2;
    for (int i = 0; i < width - n; i++) {
        if (i == left) {
            printf("%s", title);
        }
        putchar(fill);
    }
    printf("%s\n", left == width - n ? title : "");
}

static void print_row(const char *name, const char *more, double v) {
    char label[64];
    (void)snprintf(label, sizeof(label), "%s%s:", name, more);
    printf("%-40s %-9.2f\n", label, v);
}

static void print_table(const report *r, int32_t has_goodput) {
    static const char *const short_names[] = {"TTFT", "TPOT", "ITL", "E2EL"};
    const double s = seconds_of(r);
    print_title(" Serving Benchmark Result ", '=');
    printf("%-40s %-9d\n", "Successful requests:", r->n_ok);
    printf("%-40s %-9d\n", "Failed requests:", values.num_prompts - r->n_ok);
    print_row("Benchmark duration", " (s)", s);
    printf("%-40s %-9llu\n", "Total input tokens:", (unsigned long long)r->n_in);
    printf("%-40s %-9llu\n", "Total generated tokens:", (unsigned long long)r->n_out);
    print_row("Request throughput", " (req/s)", r->n_ok / s);
    if (has_goodput) {
        print_row("Request goodput", " (req/s)", r->n_good / s);
    }
    print_row("Output token throughput", " (tok/s)", (double)r->n_out / s);
    print_row("Total token throughput", " (tok/s)", (double)(r->n_in + r->n_out) / s);
    printf("%-40s %-9d\n", "Peak concurrent requests:", r->load.most_open);
    for (int32_t i = 0; i < MEASURES; i++) {
        const measure *m = &r->measures[i];
        char name[32];
        print_title(m->title, '-');
        (void)snprintf(name, sizeof(name), " %s (ms)", short_names[i]);
        print_row("Mean", name, mean_of(m));
        print_row("Median", name, percentile_of(m, 50));
        print_row("P90", name, percentile_of(m, 90));
        print_row("P99", name, percentile_of(m, 99));
    }
    print_title("", '=');
}

static pgd_status run(report *r) {
    target to = {0};
    goodput g = {0};
    PGD_TRY(read_url(values.base_url, &to));
    if (values.goodput != NULL) {
        PGD_TRY(read_goodput(values.goodput, &g));
    }
    const pgd_serve_load_options o = {
        .host = to.host,
        .path = values.endpoint,
        .api_key = values.api_key,
        .port = to.port,
        .n = values.num_prompts,
        .concurrency = values.concurrency,
        .timeout_s = values.timeout,
        .rate = values.rate,
        .seed = values.seed.value,
        .body = make_body,
        .progress = show_progress,
        .arg = &to,
    };
    PGD_TRY(pgd_serve_load_run(&o, &r->load));
    PGD_TRY(collect(r, &g));
    if (r->load.problem[0] != '\0') {
        fprintf(stderr, "pagoda: the first request that failed: %s\n", r->load.problem);
    }
    if (r->n_ok == 0) {
        return pgd_fail(PGD_INTERNAL, "no request to %s succeeded", values.base_url);
    }
    if (values.json) {
        return print_json(r, values.goodput != NULL);
    }
    print_table(r, values.goodput != NULL);
    return PGD_OK;
}

int cli_bench_serve(int argc, char **argv) {
    static const cli_command command = {
        "bench serve", "bench serve [flags]",
        "Loads an OpenAI server with streaming requests and measures its answers.",
        "The server is any that speaks /v1/completions with token ids, or chats.", cli_bench_serve};
    cli_args args = {
        .command = &command,
        .flags = {serve_bench_flags},
        .titles = {"load"},
        .n_groups = 1,
    };
    report r = {0};
    pgd_status status = cli_parse(&args, argc, argv);
    if (status == PGD_OK && args.help) {
        return 0;
    }
    status = status == PGD_OK ? run(&r) : status;
    for (int32_t i = 0; i < MEASURES; i++) {
        pgd_mem_free(r.measures[i].ms);
    }
    pgd_serve_load_free(&r.load);
    return status == PGD_OK ? 0 : cli_failed(status);
}
