// pagoda bench throughput: many requests at once, until the last has ended.
#include <stdio.h>

#include "base/clock.h"
#include "base/fail.h"
#include "base/mem.h"
#include "cli/bench.h"

typedef struct throughput_sample {
    bench_sample all;
    double seconds;
    double output_rate; // tokens/s generated
    double total_rate;  // tokens/s, prompts included
    double ops_rate;    // operations/s
    double ttft_p50_ms;
    double ttft_p99_ms;
    double request_p50_ms;
    double request_p99_ms;
    uint64_t n_steps;
    uint64_t n_preemptions;
} throughput_sample;

typedef struct throughput_run {
    bench b;
    pgd_request_desc *descs; // [num_prompts]
    pgd_request **requests;  // [num_prompts]
    int32_t *ids;            // [num_prompts, input_len]
    double *times_ms;        // [num_prompts]
} throughput_run;

static const cli_flag throughput_flags[] = {
    BENCH_INT_FLAG("num-prompts", num_prompts, 1, 65536, "requests (default 16)"),
    BENCH_INT_FLAG("input-len", input_len, 1, 1048576, "tokens of a prompt (default 128)"),
    BENCH_INT_FLAG("output-len", output_len, 1, 1048576, "tokens to generate (default 32)"),
    BENCH_COMMON_FLAGS,
    {0},
};

// Operations of all requests: products of every row, the head of every token, attention.
static double count_ops(const bench *b) {
    const bench_values *v = &cli_bench_flag_values;
    const pgd_engine_work *w = &b->work;
    double rows = (double)v->input_len + v->output_len - 1.0;
    double one = rows * (double)w->row_ops + (double)v->output_len * (double)w->out_ops +
                 rows * (rows + 1.0) / 2.0 * (double)w->pair_ops;
    return one * v->num_prompts;
}

// Percentiles of the first token's time (which 0) or the whole request's (1).
static void take_times(throughput_run *r, int32_t which, double *out_p50, double *out_p99) {
    int32_t n = cli_bench_flag_values.num_prompts;
    for (int32_t i = 0; i < n; i++) {
        pgd_output o = {.size = sizeof(o)};
        pgd_request_output(r->requests[i], &o);
        r->times_ms[i] = (double)(which == 0 ? o.first_ns : o.total_ns) / 1e6;
    }
    cli_bench_sort(r->times_ms, n);
    *out_p50 = cli_bench_percentile(r->times_ms, n, 50);
    *out_p99 = cli_bench_percentile(r->times_ms, n, 99);
}

static pgd_status sample(bench *b, int32_t index, bench_sample *out) {
    throughput_run *r = (throughput_run *)b;
    throughput_sample *s = (throughput_sample *)out;
    const bench_values *v = &cli_bench_flag_values;
    pgd_engine_info before = {.size = sizeof(before)};
    pgd_engine_info after = {.size = sizeof(after)};
    (void)index;
    pgd_engine_get_info(r->b.engine, &before);
    uint64_t start = pgd_clock_ns();
    PGD_TRY(pgd_engine_generate(r->b.engine, r->descs, (size_t)v->num_prompts, NULL, NULL,
                                r->requests));
    s->seconds = (double)(pgd_clock_ns() - start) / 1e9;
    pgd_engine_get_info(r->b.engine, &after);
    double n_out = (double)v->num_prompts * v->output_len;
    s->output_rate = n_out / s->seconds;
    s->total_rate = (n_out + (double)v->num_prompts * v->input_len) / s->seconds;
    s->ops_rate = count_ops(&r->b) / s->seconds;
    s->n_steps = after.n_steps - before.n_steps;
    s->n_preemptions = after.n_preemptions - before.n_preemptions;
    take_times(r, 0, &s->ttft_p50_ms, &s->ttft_p99_ms);
    take_times(r, 1, &s->request_p50_ms, &s->request_p99_ms);
    for (int32_t i = 0; i < v->num_prompts; i++) {
        pgd_request_release(r->requests[i]);
        r->requests[i] = NULL;
    }
    return PGD_OK;
}

// ---- reports -----------------------------------------------------------------------------------

static void print(const bench *b, int32_t i, const bench_sample *sample) {
    const throughput_sample *s = (const throughput_sample *)sample;
    printf("sample %d:\n  %d requests of %d + %d tokens in %.2f s, %llu steps, %llu preemptions\n",
           i + 1, cli_bench_flag_values.num_prompts, cli_bench_flag_values.input_len,
           cli_bench_flag_values.output_len, s->seconds, (unsigned long long)s->n_steps,
           (unsigned long long)s->n_preemptions);
    printf("  %.1f tokens/s generated, %.1f with prompts; %.1f GFLOP/s (%.1f %% of the dot peak)\n",
           s->output_rate, s->total_rate, s->ops_rate / 1e9,
           100.0 * cli_bench_share(sample, b->dot, s->ops_rate));
    printf("  first token p50 %.1f, p99 %.1f ms; request p50 %.1f, p99 %.1f ms\n", s->ttft_p50_ms,
           s->ttft_p99_ms, s->request_p50_ms, s->request_p99_ms);
}

static pgd_status json(const bench *b, const bench_sample *sample, pgd_text *t) {
    const throughput_sample *s = (const throughput_sample *)sample;
    PGD_TRY(cli_bench_json_number(t, "seconds", s->seconds));
    PGD_TRY(cli_bench_json_number(t, "output_tokens_per_s", s->output_rate));
    PGD_TRY(cli_bench_json_number(t, "total_tokens_per_s", s->total_rate));
    PGD_TRY(cli_bench_json_number(t, "ops_per_s", s->ops_rate));
    PGD_TRY(cli_bench_json_number(t, "share_dot", cli_bench_share(sample, b->dot, s->ops_rate)));
    PGD_TRY(cli_bench_json_number(t, "ttft_p50_ms", s->ttft_p50_ms));
    PGD_TRY(cli_bench_json_number(t, "ttft_p99_ms", s->ttft_p99_ms));
    PGD_TRY(cli_bench_json_number(t, "request_p50_ms", s->request_p50_ms));
    PGD_TRY(cli_bench_json_number(t, "request_p99_ms", s->request_p99_ms));
    return pgd_text_format(t, ",\"steps\":%llu,\"preemptions\":%llu",
                           (unsigned long long)s->n_steps, (unsigned long long)s->n_preemptions);
}

static pgd_status json_end(const bench *b, pgd_text *t) {
    const bench_values *v = &cli_bench_flag_values;
    (void)b;
    return pgd_text_format(t, ",\"num_prompts\":%d,\"input_len\":%d,\"output_len\":%d",
                           v->num_prompts, v->input_len, v->output_len);
}

// ---- the run -----------------------------------------------------------------------------------

static pgd_status make_room(throughput_run *r) {
    const bench_values *v = &cli_bench_flag_values;
    size_t n = (size_t)v->num_prompts;
    r->descs = pgd_mem_alloc(n, sizeof(*r->descs));
    r->requests = pgd_mem_alloc(n, sizeof(pgd_request *));
    r->ids = pgd_mem_alloc(n, (size_t)v->input_len * sizeof(*r->ids));
    r->times_ms = pgd_mem_alloc(n, sizeof(*r->times_ms));
    if (r->descs == NULL || r->requests == NULL || r->ids == NULL || r->times_ms == NULL) {
        return PGD_MEM_FAIL("the requests", n * (size_t)v->input_len * sizeof(*r->ids));
    }
    return PGD_OK;
}

static void describe_requests(throughput_run *r) {
    const bench_values *v = &cli_bench_flag_values;
    for (int32_t i = 0; i < v->num_prompts; i++) {
        int32_t *ids = r->ids + (size_t)i * (size_t)v->input_len;
        cli_bench_ids((uint64_t)i, r->b.info.vocab_size, ids, v->input_len);
        r->descs[i] = (pgd_request_desc){
            .size = sizeof(r->descs[i]),
            .ids = ids,
            .n_ids = v->input_len,
            .max_tokens = v->output_len,
            .ignore_eos = 1,
        };
    }
}

static pgd_status open(bench *b, const char *model) {
    throughput_run *r = (throughput_run *)b;
    const bench_values *v = &cli_bench_flag_values;
    PGD_TRY(make_room(r));
    PGD_TRY(cli_bench_open(b, model, v->num_prompts, v->input_len + v->output_len));
    describe_requests(r);
    return PGD_OK;
}

static void close(bench *b) {
    throughput_run *r = (throughput_run *)b;
    pgd_mem_free(r->times_ms);
    pgd_mem_free(r->ids);
    pgd_mem_free(r->requests);
    pgd_mem_free(r->descs);
}

int cli_bench_throughput(int argc, char **argv) {
    static const bench_kind kind = {
        .command = {"bench throughput", "bench throughput [MODEL] [flags]",
                    "Runs many requests at once and counts tokens a second.",
                    "MODEL may be synthetic:SHAPE[,DTYPE], for example synthetic:llama-3.2-1b.",
                    NULL},
        .flags = throughput_flags,
        .sample_bytes = sizeof(throughput_sample),
        .open = open,
        .sample = sample,
        .print = print,
        .json = json,
        .json_end = json_end,
        .close = close,
    };
    throughput_run r = {.b = {.name = "throughput"}};
    cli_bench_flag_values.num_prompts = 16;
    cli_bench_flag_values.input_len = 128;
    cli_bench_flag_values.output_len = 32;
    return cli_bench_run(&kind, &r.b, argc, argv);
}
