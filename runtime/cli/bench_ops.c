// pagoda bench ops: the operations of a model's step, alone.
//
//   products   qkv, o, gate_up, down, head over numbers of rows, plain
//   yardsticks other people's libraries on the same products, in the same run
//   fused      the same products with norm, rope, cache write, residual or sampling
//   attention  decode (a row a sequence) and prefill at numbers of tokens in the cache
//   rows       rmsnorm, sample
//
// Calls go round the layers' weights and caches, so that they come from memory where the set is
// larger than the processor's caches; each call is timed to its end.
#include "cli/bench_ops.h"

#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/fail.h"
#include "base/mem.h"

#define MAX_CALLS   4096
#define LEAST_CALLS 3
#define MAX_CASES   512
#define NS_PER_MS   UINT64_C(1000000)

typedef struct ops_sample {
    bench_sample all;
    ops_case what;
    int64_t n; // of the product, 0 if there is none
    int64_t k;
    uint64_t weight_bytes; // of one call, as stored
    uint64_t set_bytes;    // of all weights the calls go round
    double bytes;          // that a call reads at least: weight, cache, rows
    double ops;            // of a call
    int32_t n_calls;
    double mean_us; // rates and shares are by it: limits too are means over slices of time
    double best_us;
    double p50_us;
    double p90_us;
    double p99_us;
} ops_sample;

static struct {
    int32_t rows; // 0: all
    int32_t max_rows;
    int32_t max_context;
    int32_t sample_ms;
    int32_t yardsticks;
    const char *only;
} values = {.max_rows = CLI_OPS_TOKENS, .max_context = 4096, .sample_ms = 60, .yardsticks = 1};

static const cli_flag ops_flags[] = {
    CLI_FLAG_INT(0, "rows", "N", &values.rows, 1, CLI_OPS_TOKENS, "only this number of rows"),
    CLI_FLAG_INT(0, "max-rows", "N", &values.max_rows, 1, CLI_OPS_TOKENS,
                 "most rows (default 512)"),
    CLI_FLAG_INT(0, "max-context", "N", &values.max_context, 16, 1048576,
                 "most tokens of a sequence in the cache (default 4096)"),
    CLI_FLAG_TEXT(0, "only", "NAMES", &values.only, "operations to time, joined by commas"),
    CLI_FLAG_BOOL(0, "yardsticks", &values.yardsticks,
                  "time the libraries that are installed, too (default true)"),
    CLI_FLAG_INT(0, "sample-ms", "N", &values.sample_ms, 1, 60000,
                 "time for each case (default 60)"),
    BENCH_INT_FLAG("limit-ms", limit_ms, 1, 60000,
                   "time for each limit around a sample (default 60)"),
    CLI_FLAG_SWITCH(0, "json", &cli_bench_flag_values.json, "print one JSON document"),
    {0},
};

// ---- cases -------------------------------------------------------------------------------------

static const int32_t product_rows[] = {1, 2, 4, 8, 16, 32, 64, 512};
static const int32_t yardstick_rows[] = {1, 8, 32, 512};
static const int32_t fused_rows[] = {1, 8, 64, 512};
static const struct {
    int32_t rows;
    int32_t n_seqs;
    int32_t context;
} attn_cases[] = {
    {1, 1, 128},  {1, 1, 1024},  {1, 1, 4096},   {8, 8, 128},
    {8, 8, 1024}, {512, 1, 512}, {512, 1, 4096},
};

#define COUNT(list) ((int32_t)(sizeof(list) / sizeof((list)[0])))

static int32_t is_wanted(const char *name) {
    pgd_str rest = pgd_str_of(values.only != NULL ? values.only : "");
    while (rest.len > 0) {
        if (pgd_str_is(pgd_str_trim(pgd_str_cut(rest, ',', &rest)), name)) {
            return 1;
        }
    }
    return values.only == NULL;
}

static pgd_status check_names(void) {
    pgd_str rest = pgd_str_of(values.only != NULL ? values.only : "");
    while (rest.len > 0) {
        int32_t found = 0;
        pgd_str name = pgd_str_trim(pgd_str_cut(rest, ',', &rest));
        for (int32_t i = 0; i < cli_ops_n_rows; i++) {
            found |= pgd_str_is(name, cli_ops_rows[i].name);
        }
        if (!found) {
            pgd_text all = {0};
            for (int32_t i = 0; i < cli_ops_n_rows; i++) {
                PGD_TRY(pgd_text_format(&all, "%s%s", i > 0 ? ", " : "", cli_ops_rows[i].name));
            }
            pgd_status status =
                pgd_fail(PGD_INVALID, "--only: there is no operation \"%.*s\"; allowed are %s",
                         (int)name.len, name.ptr, all.ptr);
            pgd_text_free(&all);
            return status;
        }
    }
    return PGD_OK;
}

static void add_case(ops_run *r, ops_case c) {
    if ((values.rows == 0 || c.rows == values.rows) && c.rows <= values.max_rows &&
        c.context <= values.max_context && r->b.n_samples < MAX_CASES) {
        r->cases[r->b.n_samples++] = c;
    }
}

static void add_product(ops_run *r, const ops_row *row) {
    const int32_t is_head = row->role == PGD_LOAD_W_HEAD;
    ops_case more[CLI_OPS_LIBRARIES * PGD_LIMIT_COUNT];
    for (int32_t i = 0; i < (values.rows > 0 ? 1 : COUNT(product_rows)); i++) {
        const int32_t rows = values.rows > 0 ? values.rows : product_rows[i];
        if (!is_head || rows <= CLI_OPS_SEQS) {
            add_case(r, (ops_case){.row = row, .rows = rows, .yardstick = -1});
        }
    }
    // The head's shape says nothing new, and its f32 form is a gigabyte and more.
    for (int32_t i = 0; !is_head && i < COUNT(yardstick_rows); i++) {
        const ops_case like = {.row = row, .rows = yardstick_rows[i]};
        int32_t n = cli_ops_yardstick_cases(r, &like, more);
        for (int32_t j = 0; j < n; j++) {
            add_case(r, more[j]);
        }
    }
}

// A row a sequence while there are sequences enough, else one sequence.
static void add_fused(ops_run *r, const ops_row *row) {
    const int32_t outputs = row->op == PGD_OP_head_sample || row->op == PGD_OP_sample;
    for (int32_t i = 0; i < COUNT(fused_rows); i++) {
        const int32_t rows = fused_rows[i];
        if (outputs && rows > CLI_OPS_SEQS) {
            continue;
        }
        const int32_t n_seqs = rows <= CLI_OPS_SEQS ? rows : 1;
        const int32_t each = rows / n_seqs;
        add_case(r, (ops_case){.row = row,
                               .rows = rows,
                               .n_seqs = n_seqs,
                               .context = each < 16 ? 16 : each,
                               .yardstick = -1});
    }
}

static void list_cases(ops_run *r) {
    r->b.n_samples = 0;
    for (int32_t i = 0; i < cli_ops_n_rows; i++) {
        const ops_row *row = &cli_ops_rows[i];
        if (!is_wanted(row->name)) {
            continue;
        }
        if (row->op == PGD_OP_attn) {
            for (int32_t j = 0; j < COUNT(attn_cases); j++) {
                add_case(r, (ops_case){.row = row,
                                       .rows = attn_cases[j].rows,
                                       .n_seqs = attn_cases[j].n_seqs,
                                       .context = attn_cases[j].context,
                                       .yardstick = -1});
            }
        } else if (row->fused) {
            add_fused(r, row);
        } else {
            add_product(r, row);
        }
    }
}

// ---- timing ------------------------------------------------------------------------------------

static double act_bytes(const ops_run *r) {
    const int32_t dtype = pgd_dev_info(r->dev)->act_dtype;
    return pgd_dtype_bytes(dtype != PGD_DTYPE_NONE ? dtype : PGD_F32);
}

// What a call reads and computes at least.
static void count_work(const ops_run *r, ops_sample *s) {
    const ops_case *c = &s->what;
    const pgd_load_config *g = r->config;
    const double heads = 2.0 * (double)g->n_kv_heads * (double)g->head_dim;
    if (c->row->role >= 0) {
        const pgd_load_matrix *m = cli_ops_matrix(r, c->row, 0);
        s->n = m->n;
        s->k = m->k;
        s->weight_bytes = m->bytes;
        s->set_bytes = r->set_bytes;
        if (c->yardstick >= 0) {
            const uint64_t wide[] = {0, 4, 2, 1};
            s->weight_bytes = (uint64_t)m->n * (uint64_t)m->k * wide[c->limit];
            s->set_bytes = s->weight_bytes * (uint64_t)r->n_yardstick_weights;
        }
        s->bytes = (double)s->weight_bytes;
        s->ops = 2.0 * (double)c->rows * (double)m->n * (double)m->k;
    } else if (c->row->op == PGD_OP_attn) {
        const double each = (double)c->rows / c->n_seqs;
        const double pairs = (double)c->rows * ((double)c->context - (each - 1.0) / 2.0);
        s->bytes =
            (double)c->n_seqs * (double)c->context * heads * pgd_dtype_bytes(r->kv_desc.k_dtype);
        s->ops = 4.0 * (double)g->n_heads * (double)g->head_dim * pairs;
    } else if (c->row->op == PGD_OP_sample) {
        s->bytes = (double)c->rows * (double)g->vocab * sizeof(float);
    } else {
        s->bytes = 2.0 * (double)c->rows * (double)g->hidden * act_bytes(r);
    }
}

static pgd_status call(const ops_run *r, const ops_case *c, int32_t at) {
    return c->yardstick >= 0 ? cli_ops_yardstick_call(r, at) : cli_ops_call(r, c, at);
}

// One call to warm up, then calls until the time is over.
static pgd_status sample(bench *b, int32_t index, bench_sample *out) {
    ops_run *r = (ops_run *)b;
    ops_sample *s = (ops_sample *)out;
    const uint64_t length = (uint64_t)values.sample_ms * NS_PER_MS;
    const ops_case *c = &r->cases[index];
    s->what = *c;
    PGD_TRY(c->yardstick >= 0 ? cli_ops_yardstick_prepare(r, c) : cli_ops_prepare(r, c));
    count_work(r, s);
    PGD_TRY(call(r, c, 0));
    cli_bench_watch_begin(&out->watch);
    uint64_t start = pgd_clock_ns();
    uint64_t before = start;
    while (s->n_calls < MAX_CALLS && (s->n_calls < LEAST_CALLS || before - start < length)) {
        PGD_TRY(call(r, c, s->n_calls + 1));
        uint64_t after = pgd_clock_ns();
        r->calls_us[s->n_calls++] = (double)(after - before) / 1e3;
        before = after;
    }
    for (int32_t i = 0; i < s->n_calls; i++) {
        s->mean_us += r->calls_us[i] / s->n_calls;
    }
    cli_bench_sort(r->calls_us, s->n_calls);
    s->best_us = r->calls_us[0];
    s->p50_us = cli_bench_percentile(r->calls_us, s->n_calls, 50);
    s->p90_us = cli_bench_percentile(r->calls_us, s->n_calls, 90);
    s->p99_us = cli_bench_percentile(r->calls_us, s->n_calls, 99);
    if (c->yardstick >= 0) {
        cli_ops_yardstick_close(r);
    }
    return PGD_OK;
}

// ---- reports -----------------------------------------------------------------------------------

static double ops_rate(const ops_sample *s) {
    return s->ops / s->mean_us * 1e6;
}

static double byte_rate(const ops_sample *s) {
    return s->bytes / s->mean_us * 1e6;
}

// The limit that the case's operations are judged by.
static int32_t judge_of(const bench *b, const ops_sample *s) {
    return s->what.yardstick >= 0 ? s->what.limit : b->dot;
}

static const char *kernel_of(const ops_run *r, const ops_case *c) {
    return c->yardstick >= 0 ? cli_ops_yardstick_name(r, c) : r->kernels[c->row - cli_ops_rows];
}

static void print(const bench *b, int32_t i, const bench_sample *sample) {
    static const char *const types[] = {"", " f32", " bf16", " int8"};
    const ops_run *r = (const ops_run *)b;
    const ops_sample *s = (const ops_sample *)sample;
    const ops_case *c = &s->what;
    if (i == 0 || r->cases[i - 1].row != c->row) {
        printf("%s", c->row->name);
        if (s->n > 0) {
            printf(" [%lld, %lld], %.1f MB a call of %.1f MB", (long long)s->n, (long long)s->k,
                   (double)s->weight_bytes / 1e6, (double)s->set_bytes / 1e6);
        }
        printf(", kernel %s\n", kernel_of(r, c));
    }
    if (c->yardstick >= 0) {
        printf("    %s%s", cli_ops_yardstick_name(r, c), types[c->limit]);
    }
    if (c->row->op == PGD_OP_attn) {
        printf("  %d x %d rows at %d tokens", c->n_seqs, c->rows / c->n_seqs, c->context);
    } else {
        printf("  %4d rows", c->rows);
    }
    printf("  p50 %9.1f  p99 %9.1f  mean %9.1f us  %6.1f GB/s (%5.1f %% of reads)", s->p50_us,
           s->p99_us, s->mean_us, byte_rate(s) / 1e9,
           100.0 * cli_bench_share(sample, PGD_LIMIT_READ, byte_rate(s)));
    if (s->ops > 0.0) {
        printf("  %7.1f GFLOP/s (%5.1f %% of the dot peak)", ops_rate(s) / 1e9,
               100.0 * cli_bench_share(sample, judge_of(b, s), ops_rate(s)));
    }
    printf("\n");
}

static pgd_status json(const bench *b, const bench_sample *sample, pgd_text *t) {
    static const char *const shares[] = {"share_read", "share_dot_f32", "share_dot_bf16",
                                         "share_dot_i8"};
    const ops_run *r = (const ops_run *)b;
    const ops_sample *s = (const ops_sample *)sample;
    const ops_case *c = &s->what;
    PGD_TRY(pgd_text_format(t,
                            ",\"op\":\"%s\",\"kernel\":\"%s\",\"yardstick\":%s,\"n\":%lld,\"k\":"
                            "%lld,\"rows\":%d,\"sequences\":%d,\"context\":%d,\"calls\":%d,"
                            "\"weight_bytes\":%llu,\"weight_set_bytes\":%llu",
                            c->row->name, kernel_of(r, c), c->yardstick >= 0 ? "true" : "false",
                            (long long)s->n, (long long)s->k, c->rows, c->n_seqs, c->context,
                            s->n_calls, (unsigned long long)s->weight_bytes,
                            (unsigned long long)s->set_bytes));
    PGD_TRY(pgd_text_format(t, ",\"judged_by\":\"%s\"", shares[judge_of(b, s)] + 6));
    PGD_TRY(cli_bench_json_number(t, "mean_us", s->mean_us));
    PGD_TRY(cli_bench_json_number(t, "best_us", s->best_us));
    PGD_TRY(cli_bench_json_number(t, "p50_us", s->p50_us));
    PGD_TRY(cli_bench_json_number(t, "p90_us", s->p90_us));
    PGD_TRY(cli_bench_json_number(t, "p99_us", s->p99_us));
    PGD_TRY(cli_bench_json_number(t, "bytes_per_s", byte_rate(s)));
    PGD_TRY(cli_bench_json_number(t, "ops_per_s", ops_rate(s)));
    PGD_TRY(cli_bench_json_number(t, "share_dot",
                                  cli_bench_share(sample, judge_of(b, s), ops_rate(s))));
    for (int32_t i = 0; i < PGD_LIMIT_COUNT; i++) {
        double rate = i == PGD_LIMIT_READ ? byte_rate(s) : ops_rate(s);
        PGD_TRY(cli_bench_json_number(t, shares[i], cli_bench_share(sample, i, rate)));
    }
    return PGD_OK;
}

static pgd_status json_end(const bench *b, pgd_text *t) {
    PGD_TRY(cli_ops_yardstick_json((const ops_run *)b, t));
    return pgd_text_format(t, ",\"max_rows\":%d,\"max_context\":%d", values.max_rows,
                           values.max_context);
}

// ---- the run -----------------------------------------------------------------------------------

static pgd_status find_libraries(ops_run *r) {
    r->yardsticks = values.yardsticks ? pgd_dev_extension(r->dev, PGD_YARDSTICKS_EXTENSION) : NULL;
    for (uint32_t i = 0; r->yardsticks != NULL && i < r->yardsticks->n; i++) {
        if (r->n_libraries == CLI_OPS_LIBRARIES) {
            break;
        }
        pgd_yardstick_info *info = &r->libraries[r->n_libraries++];
        info->size = sizeof(*info);
        PGD_TRY(r->yardsticks->info(r->b.d, i, info));
    }
    return PGD_OK;
}

// Most tokens in the cache at once over all cases.
static int32_t most_positions(void) {
    int32_t most = CLI_OPS_TOKENS;
    for (int32_t i = 0; i < COUNT(attn_cases); i++) {
        const int32_t n = attn_cases[i].n_seqs * attn_cases[i].context;
        most = attn_cases[i].context <= values.max_context && n > most ? n : most;
    }
    return most;
}

static pgd_status open(bench *b, const char *model) {
    ops_run *r = (ops_run *)b;
    PGD_TRY(check_names());
    r->cases = pgd_mem_alloc(MAX_CASES, sizeof(*r->cases));
    r->calls_us = pgd_mem_alloc(MAX_CALLS, sizeof(*r->calls_us));
    if (r->cases == NULL || r->calls_us == NULL) {
        return PGD_MEM_FAIL("the samples", MAX_CASES * sizeof(*r->cases));
    }
    r->most_context = values.max_context < CLI_OPS_TOKENS ? CLI_OPS_TOKENS : values.max_context;
    PGD_TRY(cli_ops_open(r, model, most_positions()));
    values.max_context =
        values.max_context < r->most_context ? values.max_context : r->most_context;
    PGD_TRY(find_libraries(r));
    list_cases(r);
    b->n_warmup = 0;
    if (!cli_bench_flag_values.json) {
        cli_ops_yardstick_list(r);
    }
    return PGD_OK;
}

static void close(bench *b) {
    ops_run *r = (ops_run *)b;
    cli_ops_yardstick_close(r);
    cli_ops_close(r);
    pgd_mem_free(r->cases);
    pgd_mem_free(r->calls_us);
}

int cli_bench_ops(int argc, char **argv) {
    static const bench_kind kind = {
        .command = {"bench ops", "bench ops [MODEL] [flags]",
                    "Times the operations of a model's step, each alone.",
                    "Of the engine's flags --device, --plugin, --threads, --allow-slow and "
                    "--deterministic count.",
                    NULL},
        .flags = ops_flags,
        .sample_bytes = sizeof(ops_sample),
        .open = open,
        .sample = sample,
        .print = print,
        .json = json,
        .json_end = json_end,
        .close = close,
    };
    static ops_run r;
    r.b = (bench){.name = "ops"};
    return cli_bench_run(&kind, &r.b, argc, argv);
}
