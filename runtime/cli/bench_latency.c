// pagoda bench latency: one batch of equal requests.
//
//   prefill  input-len tokens each, until every request has its first token
//   decode   prompts of `context` tokens (not timed), then output-len - 1 steps, each timed
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/fail.h"
#include "base/mem.h"
#include "cli/bench.h"

typedef struct latency_sample {
    bench_sample all;
    double ttft_ms;
    double prefill_rate; // tokens/s
    double prefill_ops;  // operations/s
    int32_t n_steps;
    int32_t context; // of the middle step
    double step_p50_ms;
    double step_p90_ms;
    double step_p99_ms;
    double step_best_ms;
    double step_mean_ms; // shares are by it: limits too are means over slices of time
    double decode_rate;  // tokens/s by the mean
    double decode_bytes; // bytes/s by the mean
    double decode_ops;   // operations/s by the mean
} latency_sample;

typedef struct latency_run {
    bench b;
    pgd_request **requests; // [batch_size]
    int32_t *ids;
    double *steps_ms;
} latency_run;

static const cli_flag latency_flags[] = {
    BENCH_INT_FLAG("input-len", input_len, 1, 1048576, "tokens of a prompt (default 128)"),
    BENCH_INT_FLAG("output-len", output_len, 1, 1048576, "tokens to generate (default 32)"),
    BENCH_INT_FLAG("batch-size", batch_size, 1, 65536, "requests side by side (default 1)"),
    BENCH_INT_FLAG("context", context, 1, 1048576,
                   "tokens in the cache when decoding begins (default: input-len)"),
    BENCH_COMMON_FLAGS,
    {0},
};

static pgd_status submit(latency_run *r, int32_t n_ids, int32_t n_out) {
    const bench_values *v = &cli_bench_flag_values;
    for (int32_t i = 0; i < v->batch_size; i++) {
        cli_bench_ids(v->seed.value + (uint64_t)i, r->b.info.vocab_size, r->ids, n_ids);
        const pgd_request_desc desc = {
            .size = sizeof(desc),
            .ids = r->ids,
            .n_ids = n_ids,
            .max_tokens = n_out,
            .ignore_eos = 1,
        };
        PGD_TRY(pgd_engine_submit(r->b.engine, &desc, &r->requests[i]));
    }
    return PGD_OK;
}

static void release(latency_run *r) {
    for (int32_t i = 0; i < cli_bench_flag_values.batch_size; i++) {
        pgd_request_release(r->requests[i]);
        r->requests[i] = NULL;
    }
}

// Requests that have at least one token.
static int32_t count_started(const latency_run *r) {
    int32_t n = 0;
    for (int32_t i = 0; i < cli_bench_flag_values.batch_size; i++) {
        pgd_output o = {.size = sizeof(o)};
        pgd_request_output(r->requests[i], &o);
        n += o.n_ids > 0;
    }
    return n;
}

// Steps until every request has its first token.
static pgd_status run_prefill(latency_run *r) {
    while (count_started(r) < cli_bench_flag_values.batch_size) {
        PGD_TRY(pgd_engine_step(r->b.engine));
    }
    return PGD_OK;
}

static pgd_status sample_prefill(latency_run *r, latency_sample *s) {
    const bench_values *v = &cli_bench_flag_values;
    const pgd_engine_work *w = &r->b.work;
    double n = v->input_len;
    PGD_TRY(submit(r, v->input_len, 1));
    uint64_t start = pgd_clock_ns();
    PGD_TRY(run_prefill(r));
    double seconds = (double)(pgd_clock_ns() - start) / 1e9;
    release(r);
    double ops =
        n * (double)w->row_ops + (double)w->out_ops + n * (n + 1.0) / 2.0 * (double)w->pair_ops;
    s->ttft_ms = seconds * 1e3;
    s->prefill_rate = n * v->batch_size / seconds;
    s->prefill_ops = ops * v->batch_size / seconds;
    return PGD_OK;
}

static pgd_status sample_decode(latency_run *r, latency_sample *s) {
    const bench_values *v = &cli_bench_flag_values;
    const pgd_engine_work *w = &r->b.work;
    const double rows = v->batch_size;
    double sum = 0.0;
    PGD_TRY(submit(r, v->context, v->output_len));
    PGD_TRY(run_prefill(r));
    s->n_steps = 0;
    while (pgd_engine_busy(r->b.engine) == v->batch_size) {
        uint64_t start = pgd_clock_ns();
        PGD_TRY(pgd_engine_step(r->b.engine));
        double ms = (double)(pgd_clock_ns() - start) / 1e6;
        if (s->n_steps < v->output_len) {
            r->steps_ms[s->n_steps++] = ms;
            sum += ms;
        }
    }
    while (pgd_engine_busy(r->b.engine) > 0) {
        PGD_TRY(pgd_engine_step(r->b.engine));
    }
    release(r);
    if (s->n_steps == 0) {
        return PGD_OK;
    }
    cli_bench_sort(r->steps_ms, s->n_steps);
    s->context = v->context + s->n_steps / 2;
    s->step_best_ms = r->steps_ms[0];
    s->step_p50_ms = cli_bench_percentile(r->steps_ms, s->n_steps, 50);
    s->step_p90_ms = cli_bench_percentile(r->steps_ms, s->n_steps, 90);
    s->step_p99_ms = cli_bench_percentile(r->steps_ms, s->n_steps, 99);
    s->step_mean_ms = sum / s->n_steps;
    s->decode_rate = rows * 1e3 / s->step_mean_ms;
    double pairs = rows * s->context;
    s->decode_bytes =
        ((double)w->weight_bytes + pairs * (double)w->kv_token_bytes) * 1e3 / s->step_mean_ms;
    s->decode_ops = (rows * (double)(w->row_ops + w->out_ops) + pairs * (double)w->pair_ops) * 1e3 /
                    s->step_mean_ms;
    return PGD_OK;
}

static pgd_status sample(bench *b, int32_t i, bench_sample *out) {
    latency_run *r = (latency_run *)b;
    latency_sample *s = (latency_sample *)out;
    (void)i;
    PGD_TRY(sample_prefill(r, s));
    return cli_bench_flag_values.output_len > 1 ? sample_decode(r, s) : PGD_OK;
}

// ---- reports -----------------------------------------------------------------------------------

static void print(const bench *b, int32_t i, const bench_sample *sample) {
    const latency_sample *s = (const latency_sample *)sample;
    const bench_values *v = &cli_bench_flag_values;
    double dot = 100.0 * cli_bench_share(sample, b->dot, s->prefill_ops);
    printf("sample %d:\n  prefill %d x %d: first token after %.1f ms, %.1f tokens/s, %.1f GFLOP/s",
           i + 1, v->batch_size, v->input_len, s->ttft_ms, s->prefill_rate, s->prefill_ops / 1e9);
    printf(dot > 0.0 ? " (%.1f %% of the dot peak)\n" : "\n", dot);
    if (s->n_steps > 0) {
        printf("  decode %d x %d steps at context %d: %.2f tokens/s; step p50 %.2f, p90 %.2f, "
               "p99 %.2f, best %.2f ms\n",
               v->batch_size, s->n_steps, v->context, s->decode_rate, s->step_p50_ms,
               s->step_p90_ms, s->step_p99_ms, s->step_best_ms);
        printf("    mean: %.1f GB/s (%.1f %% of reads), %.1f GFLOP/s (%.1f %% of the dot peak)\n",
               s->decode_bytes / 1e9,
               100.0 * cli_bench_share(sample, PGD_LIMIT_READ, s->decode_bytes),
               s->decode_ops / 1e9, 100.0 * cli_bench_share(sample, b->dot, s->decode_ops));
    }
}

static pgd_status json(const bench *b, const bench_sample *sample, pgd_text *t) {
    const latency_sample *s = (const latency_sample *)sample;
    PGD_TRY(pgd_text_format(t, ",\"prefill\":{"));
    PGD_TRY(cli_bench_json_number(t, "ttft_ms", s->ttft_ms));
    PGD_TRY(cli_bench_json_number(t, "tokens_per_s", s->prefill_rate));
    PGD_TRY(cli_bench_json_number(t, "ops_per_s", s->prefill_ops));
    PGD_TRY(cli_bench_json_number(t, "share_dot", cli_bench_share(sample, b->dot, s->prefill_ops)));
    PGD_TRY(pgd_text_format(t, "},\"decode\":{\"steps\":%d,\"mid_context\":%d", s->n_steps,
                            s->context));
    PGD_TRY(cli_bench_json_number(t, "tokens_per_s", s->decode_rate));
    PGD_TRY(cli_bench_json_number(t, "step_p50_ms", s->step_p50_ms));
    PGD_TRY(cli_bench_json_number(t, "step_p90_ms", s->step_p90_ms));
    PGD_TRY(cli_bench_json_number(t, "step_p99_ms", s->step_p99_ms));
    PGD_TRY(cli_bench_json_number(t, "step_best_ms", s->step_best_ms));
    PGD_TRY(cli_bench_json_number(t, "step_mean_ms", s->step_mean_ms));
    PGD_TRY(cli_bench_json_number(t, "bytes_per_s", s->decode_bytes));
    PGD_TRY(cli_bench_json_number(t, "ops_per_s", s->decode_ops));
    PGD_TRY(cli_bench_json_number(t, "share_read",
                                  cli_bench_share(sample, PGD_LIMIT_READ, s->decode_bytes)));
    PGD_TRY(cli_bench_json_number(t, "share_dot", cli_bench_share(sample, b->dot, s->decode_ops)));
    return pgd_text_format(t, "}");
}

static pgd_status json_end(const bench *b, pgd_text *t) {
    const bench_values *v = &cli_bench_flag_values;
    (void)b;
    return pgd_text_format(t,
                           ",\"input_len\":%d,\"output_len\":%d,\"batch_size\":%d,\"context\":%d",
                           v->input_len, v->output_len, v->batch_size, v->context);
}

// ---- the run -----------------------------------------------------------------------------------

static pgd_status open(bench *b, const char *model) {
    latency_run *r = (latency_run *)b;
    bench_values *v = &cli_bench_flag_values;
    v->context = v->context != 0 ? v->context : v->input_len;
    int32_t longest = v->input_len > v->context ? v->input_len : v->context;
    int32_t most = v->context + v->output_len;
    most = v->input_len + 1 > most ? v->input_len + 1 : most;
    r->requests = pgd_mem_alloc((size_t)v->batch_size, sizeof(pgd_request *));
    r->ids = pgd_mem_alloc((size_t)longest, sizeof(*r->ids));
    r->steps_ms = pgd_mem_alloc((size_t)v->output_len, sizeof(*r->steps_ms));
    if (r->requests == NULL || r->ids == NULL || r->steps_ms == NULL) {
        return PGD_MEM_FAIL("the requests", (size_t)longest * sizeof(*r->ids));
    }
    return cli_bench_open(b, model, v->batch_size, most);
}

static void close(bench *b) {
    latency_run *r = (latency_run *)b;
    pgd_mem_free(r->steps_ms);
    pgd_mem_free(r->ids);
    pgd_mem_free(r->requests);
}

int cli_bench_latency(int argc, char **argv) {
    static const bench_kind kind = {
        .command = {"bench latency", "bench latency [MODEL] [flags]",
                    "Times one batch: its first token, then every step.",
                    "MODEL may be synthetic:SHAPE[,DTYPE], for example synthetic:llama-3.2-1b.",
                    NULL},
        .flags = latency_flags,
        .sample_bytes = sizeof(latency_sample),
        .open = open,
        .sample = sample,
        .print = print,
        .json = json,
        .json_end = json_end,
        .close = close,
    };
    latency_run r = {.b = {.name = "latency"}};
    cli_bench_flag_values.input_len = 128;
    cli_bench_flag_values.output_len = 32;
    cli_bench_flag_values.batch_size = 1;
    return cli_bench_run(&kind, &r.b, argc, argv);
}
