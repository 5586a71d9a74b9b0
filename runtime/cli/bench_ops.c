// pagoda bench ops: the matrix products of a model's shapes, alone, over numbers of rows.
//
//   for qkv, o, gate_up, down, head: all layers' weights (at most 1 GiB) are prepared;
//     for 1, 2, 4 ... rows: calls go round the layers, so that weights come from memory where the
//     set is larger than the caches; each call is timed to its end
#include <stdio.h>
#include <string.h>

#include <pagoda/ops.h>

#include "base/clock.h"
#include "base/fail.h"
#include "base/mem.h"
#include "base/team.h"
#include "cli/bench.h"
#include "load/name.h"
#include "load/plan.h"

#define MOST_BYTES  (UINT64_C(1) << 30) // of weights of one kind
#define HEAD_ROWS   64                  // most rows of the head: one for each sequence
#define MAX_CALLS   4096
#define LEAST_CALLS 3
#define NS_PER_MS   UINT64_C(1000000)

static const int32_t row_counts[] = {1, 2, 4, 8, 16, 32, 64, 512};

typedef struct op_row {
    const char *name;
    int32_t role; // PGD_LOAD_W_...
    int32_t op;   // PGD_OP_...
} op_row;

static const op_row op_rows[] = {
    {"qkv", PGD_LOAD_W_QKV, PGD_OP_gemm},
    {"o", PGD_LOAD_W_O, PGD_OP_gemm},
    {"gate_up", PGD_LOAD_W_GATE_UP, PGD_OP_gate_up},
    {"down", PGD_LOAD_W_DOWN, PGD_OP_gemm},
    {"head", PGD_LOAD_W_HEAD, PGD_OP_gemm},
};

#define N_OPS  ((int32_t)(sizeof(op_rows) / sizeof(op_rows[0])))
#define N_ROWS ((int32_t)(sizeof(row_counts) / sizeof(row_counts[0])))

typedef struct op_weight {
    pgd_weight *handle;
    pgd_buffer *buffer;
} op_weight;

typedef struct op_sample {
    bench_watch watch;
    bench_limits before;
    bench_limits after;
    const op_row *op;
    char kernel[32];
    int64_t n;
    int64_t k;
    uint64_t weight_bytes; // of one call, as stored
    uint64_t set_bytes;    // of all weights the calls go round
    int32_t rows;
    int32_t n_calls;
    double mean_us; // rates and shares are by it: limits too are means over slices of time
    double p50_us;
    double best_us;
} op_sample;

typedef struct ops_run {
    bench b;
    pgd_team *team;
    pgd_dev_registry *registry;
    pgd_dev *dev;
    char model[4096];
    pgd_load_config *config;
    pgd_load_weights *files;
    pgd_load_plan *plan;
    pgd_queue *queue;
    pgd_exec *exec;
    pgd_buffer *x; // inputs, zeros
    pgd_buffer *y;
    pgd_buffer *tmp;
    op_weight *weights; // [n_weights] of the kind at hand
    int32_t n_weights;
    int32_t n_samples;
    op_sample
        samples[sizeof(op_rows) / sizeof(op_rows[0]) * sizeof(row_counts) / sizeof(row_counts[0])];
    char kernels[sizeof(op_rows) / sizeof(op_rows[0])][32];
    double calls_us[MAX_CALLS];
} ops_run;

static struct {
    const char *op;
    int32_t rows;
    int32_t max_rows;
    int32_t sample_ms;
} values = {.max_rows = 512, .sample_ms = 60};

static const cli_flag ops_flags[] = {
    CLI_FLAG_TEXT(0, "op", "NAME", &values.op, "only qkv, o, gate_up, down or head"),
    CLI_FLAG_INT(0, "rows", "N", &values.rows, 1, 512, "only this number of rows"),
    CLI_FLAG_INT(0, "max-rows", "N", &values.max_rows, 1, 512, "most rows (default 512)"),
    CLI_FLAG_INT(0, "sample-ms", "N", &values.sample_ms, 1, 60000,
                 "time for each number of rows (default 60)"),
    BENCH_INT_FLAG("limit-ms", limit_ms, 1, 60000,
                   "time for each limit around a sample (default 60)"),
    CLI_FLAG_SWITCH(0, "json", &cli_bench_flag_values.json, "print one JSON document"),
    {0},
};

// ---- shapes ------------------------------------------------------------------------------------

static const pgd_load_matrix *matrix_of(const ops_run *r, const op_row *op, int32_t layer) {
    if (op->role != PGD_LOAD_W_HEAD) {
        return pgd_load_plan_matrix(r->plan, op->role, layer);
    }
    return layer > 0 ? NULL
                     : pgd_load_plan_matrix(
                           r->plan, r->config->tied ? PGD_LOAD_W_EMBED : PGD_LOAD_W_HEAD, -1);
}

static pgd_weight_desc desc_of(const ops_run *r, const pgd_load_matrix *m) {
    const int32_t dot_dtype = pgd_dev_info(r->dev)->dot_dtype;
    return (pgd_weight_desc){
        .size = sizeof(pgd_weight_desc),
        .uses = m->uses,
        .scheme = PGD_SCHEME_PLAIN,
        .dtype = m->dtype,
        .act_dtype = m->dtype == PGD_BF16 ? dot_dtype : PGD_DTYPE_NONE,
        .n_parts = m->n_parts,
        .part_stride = sizeof(pgd_weight_part),
        .n = m->n,
        .k = m->k,
        .max_rows = row_counts[N_ROWS - 1],
        .parts = m->parts,
        .name = m->name,
    };
}

static int32_t rows_of(const op_row *op, int32_t rows) {
    int32_t most = op->role == PGD_LOAD_W_HEAD ? HEAD_ROWS : row_counts[N_ROWS - 1];
    return rows < most ? rows : most;
}

static pgd_tensor tensor(const ops_run *r, pgd_buffer *buffer, int64_t rows, int64_t columns) {
    int32_t dtype = pgd_dev_info(r->dev)->act_dtype;
    return (pgd_tensor){.buffer = buffer,
                        .dtype = dtype != PGD_DTYPE_NONE ? dtype : PGD_F32,
                        .rank = 2,
                        .shape = {rows, columns},
                        .stride = {columns, 1}};
}

typedef union op_args {
    pgd_gemm_args gemm;
    pgd_gate_up_args gate_up;
} op_args;

static op_args args_of(const ops_run *r, const op_row *op, const pgd_load_matrix *m,
                       pgd_weight *weight, int32_t rows) {
    op_args a;
    memset(&a, 0, sizeof(a));
    if (op->op == PGD_OP_gate_up) {
        a.gate_up = (pgd_gate_up_args){
            .size = sizeof(a.gate_up),
            .rows = PGD_ROWS_SHAPE,
            .w = weight,
            .x = tensor(r, r->x, rows, m->k),
            .tmp = tensor(r, r->tmp, rows, m->n),
            .out = tensor(r, r->y, rows, m->n / 2),
            .act = r->config->act,
        };
    } else {
        a.gemm = (pgd_gemm_args){
            .size = sizeof(a.gemm),
            .rows = PGD_ROWS_SHAPE,
            .w = weight,
            .x = tensor(r, r->x, rows, m->k),
            .y = tensor(r, r->y, rows, m->n),
        };
    }
    return a;
}

// ---- opening -----------------------------------------------------------------------------------

static pgd_status open_device(ops_run *r) {
    const cli_engine_values *v = &cli_engine;
    const pgd_dev_search search = {.files = v->plugins.items, .n_files = v->plugins.n};
    PGD_TRY(pgd_team_open((uint32_t)v->threads, &r->team));
    PGD_TRY(pgd_dev_registry_create(&search, &r->registry));
    const pgd_dev_desc desc = {.uri = v->device != NULL ? v->device : "auto",
                               .team = r->team,
                               .allow_slow = (uint32_t)v->allow_slow};
    return pgd_dev_open(r->registry, &desc, &r->dev);
}

static pgd_status open_model(ops_run *r, const char *model) {
    PGD_TRY(pgd_load_find_model(model, r->model, sizeof(r->model)));
    PGD_TRY(pgd_load_config_read(r->model, &r->config));
    PGD_TRY(pgd_load_weights_open(r->model, &r->files));
    return pgd_load_plan_create(r->config, r->files, &r->plan);
}

// Asks where each product runs and keeps the kernel's name; the largest scratch.
static pgd_status place_ops(ops_run *r, uint64_t *out_scratch) {
    pgd_query queries[N_OPS];
    pgd_weight_desc descs[N_OPS];
    op_args args[N_OPS];
    pgd_dev_place places[N_OPS];
    const pgd_batch caps = {.size = sizeof(caps),
                            .cap_tokens = row_counts[N_ROWS - 1],
                            .cap_seqs = 1,
                            .cap_out = HEAD_ROWS,
                            .n_axes = 1};
    for (int32_t i = 0; i < N_OPS; i++) {
        const pgd_load_matrix *m = matrix_of(r, &op_rows[i], 0);
        descs[i] = desc_of(r, m);
        args[i] = args_of(r, &op_rows[i], m, NULL, rows_of(&op_rows[i], row_counts[N_ROWS - 1]));
        queries[i] = (pgd_query){.size = sizeof(queries[i]),
                                 .op = op_rows[i].op,
                                 .args = &args[i],
                                 .weight = &descs[i],
                                 .batch = &caps};
    }
    PGD_TRY(pgd_dev_plan(r->dev, queries, (uint32_t)N_OPS, places));
    *out_scratch = 0;
    for (int32_t i = 0; i < N_OPS; i++) {
        *out_scratch = places[i].scratch > *out_scratch ? places[i].scratch : *out_scratch;
        memcpy(r->kernels[i], places[i].kernel, sizeof(r->kernels[i]));
    }
    return PGD_OK;
}

static pgd_status make_buffer(const ops_run *r, int32_t use, uint64_t bytes, uint64_t align,
                              pgd_buffer **out) {
    const pgd_device *d = r->b.d;
    const pgd_buffer_desc desc = {.size = sizeof(desc), .use = use, .bytes = bytes, .align = align};
    return d->memory->create(d, &desc, out);
}

static pgd_status make_buffers(ops_run *r) {
    uint64_t widest_x = 0;
    uint64_t widest_y = 0;
    for (int32_t i = 0; i < N_OPS; i++) {
        const pgd_load_matrix *m = matrix_of(r, &op_rows[i], 0);
        uint64_t rows = (uint64_t)rows_of(&op_rows[i], values.max_rows);
        uint64_t x = rows * (uint64_t)m->k * sizeof(float);
        uint64_t y = rows * (uint64_t)m->n * sizeof(float);
        widest_x = x > widest_x ? x : widest_x;
        widest_y = y > widest_y ? y : widest_y;
    }
    PGD_TRY(make_buffer(r, PGD_USE_GENERAL, widest_x, 0, &r->x));
    PGD_TRY(make_buffer(r, PGD_USE_GENERAL, widest_y, 0, &r->y));
    return make_buffer(r, PGD_USE_GENERAL, widest_y, 0, &r->tmp);
}

static pgd_status open_all(ops_run *r, const char *model) {
    const pgd_queue_desc queue = {.size = sizeof(queue), .role = PGD_QUEUE_COMPUTE};
    uint64_t scratch = 0;
    PGD_TRY(open_device(r));
    PGD_TRY(open_model(r, model));
    r->b.work.dtype = r->plan->matrices[0].dtype;
    r->b.info = (pgd_engine_info){
        .size = sizeof(r->b.info),
        .model = r->model,
        .architecture = r->config->architecture,
        .device = pgd_dev_uri(r->dev),
        .device_name = pgd_dev_info(r->dev)->name,
        .parameters = r->plan->params,
        .weight_bytes = r->plan->weight_bytes,
    };
    r->weights = pgd_mem_alloc((size_t)r->config->n_layers, sizeof(*r->weights));
    if (r->weights == NULL) {
        return PGD_MEM_FAIL("the weights", (size_t)r->config->n_layers * sizeof(*r->weights));
    }
    PGD_TRY(cli_bench_device(&r->b, r->dev));
    PGD_TRY(place_ops(r, &scratch));
    PGD_TRY(r->b.d->queue->create(r->b.d, &queue, &r->queue));
    PGD_TRY(pgd_dev_exec_create(r->dev, r->queue, scratch, &r->exec));
    return make_buffers(r);
}

// ---- weights -----------------------------------------------------------------------------------

static pgd_status wait_all(const ops_run *r) {
    const pgd_device *d = r->b.d;
    uint64_t value = 0;
    PGD_TRY(d->queue->signal(d, r->queue, &value));
    return d->queue->host_wait(d, r->queue, value, PGD_WAIT_FOREVER);
}

static pgd_status prepare(ops_run *r, const pgd_load_matrix *m, op_weight *out) {
    const pgd_device *d = r->b.d;
    const pgd_weight_desc desc = desc_of(r, m);
    pgd_weight_plan plan = {.size = sizeof(plan)};
    pgd_buffer *scratch = NULL;
    PGD_TRY(d->weight->plan(d, &desc, &plan));
    if (plan.bytes > 0) {
        PGD_TRY(make_buffer(r, PGD_USE_WEIGHTS, plan.bytes, plan.align, &out->buffer));
    }
    if (plan.scratch > 0) {
        PGD_TRY(make_buffer(r, PGD_USE_GENERAL, plan.scratch, plan.align, &scratch));
    }
    const pgd_range dst = {.buffer = out->buffer, .bytes = plan.bytes};
    const pgd_range room = {.buffer = scratch, .bytes = plan.scratch};
    pgd_load_plan_take(r->plan, m);
    pgd_status status = d->weight->prepare(d, r->queue, &desc, &dst, &room, &out->handle);
    if (status == PGD_OK) {
        status = wait_all(r);
    }
    pgd_load_plan_give(r->plan, m);
    d->memory->destroy(d, scratch);
    return status;
}

static void drop_weights(ops_run *r) {
    const pgd_device *d = r->b.d;
    for (int32_t i = 0; i < r->n_weights; i++) {
        if (r->weights[i].handle != NULL) {
            d->weight->destroy(d, r->weights[i].handle);
        }
        d->memory->destroy(d, r->weights[i].buffer);
        r->weights[i] = (op_weight){0};
    }
    r->n_weights = 0;
}

static uint64_t bytes_of(const pgd_load_matrix *m) {
    return (uint64_t)m->n * (uint64_t)m->k * pgd_dtype_bytes(m->dtype);
}

static pgd_status prepare_all(ops_run *r, const op_row *op, uint64_t *out_bytes) {
    *out_bytes = 0;
    for (int32_t layer = 0; layer < r->config->n_layers; layer++) {
        const pgd_load_matrix *m = matrix_of(r, op, layer);
        if (m == NULL || (layer > 0 && *out_bytes + bytes_of(m) > MOST_BYTES)) {
            break;
        }
        r->n_weights++;
        PGD_TRY(pgd_fail_note(prepare(r, m, &r->weights[layer]), "preparing %s", m->name));
        *out_bytes += bytes_of(m);
    }
    return PGD_OK;
}

// ---- timing ------------------------------------------------------------------------------------

static pgd_status call(const ops_run *r, const op_row *op, const op_args *a) {
    const pgd_ops *ops = r->b.d->ops;
    if (op->op == PGD_OP_gate_up) {
        PGD_TRY(ops->gate_up(r->exec, &a->gate_up));
    } else {
        PGD_TRY(ops->gemm(r->exec, &a->gemm));
    }
    return wait_all(r);
}

// One round over the weights to warm up, then calls until the time is over.
static pgd_status time_calls(ops_run *r, op_sample *s) {
    const pgd_load_matrix *m = matrix_of(r, s->op, 0);
    const uint64_t length = (uint64_t)values.sample_ms * NS_PER_MS;
    int32_t at = 0;
    op_args a = args_of(r, s->op, m, r->weights[0].handle, s->rows);
    PGD_TRY(call(r, s->op, &a));
    cli_bench_watch_begin(&s->watch);
    uint64_t start = pgd_clock_ns();
    uint64_t before = start;
    while (s->n_calls < MAX_CALLS && (s->n_calls < LEAST_CALLS || before - start < length)) {
        at = (at + 1) % r->n_weights;
        a = args_of(r, s->op, m, r->weights[at].handle, s->rows);
        before = pgd_clock_ns();
        PGD_TRY(call(r, s->op, &a));
        uint64_t after = pgd_clock_ns();
        r->calls_us[s->n_calls++] = (double)(after - before) / 1e3;
        before = after;
    }
    cli_bench_watch_end(&s->watch);
    for (int32_t i = 0; i < s->n_calls; i++) {
        s->mean_us += r->calls_us[i] / s->n_calls;
    }
    cli_bench_sort(r->calls_us, s->n_calls);
    s->p50_us = cli_bench_percentile(r->calls_us, s->n_calls, 50);
    s->best_us = r->calls_us[0];
    return PGD_OK;
}

// ---- reports -----------------------------------------------------------------------------------

static double ops_rate(const op_sample *s) {
    return 2.0 * (double)s->rows * (double)s->n * (double)s->k / s->mean_us * 1e6;
}

static double byte_rate(const op_sample *s) {
    return (double)s->weight_bytes / s->mean_us * 1e6;
}

static void print_sample(const ops_run *r, const op_sample *s) {
    double read = cli_bench_limit(&s->before, &s->after, PGD_LIMIT_READ);
    double dot = cli_bench_limit(&s->before, &s->after, r->b.dot);
    if (s->rows == (values.rows > 0 ? values.rows : row_counts[0])) {
        printf("%s [%lld, %lld], kernel %s, %d weights of %.1f MB\n", s->op->name, (long long)s->n,
               (long long)s->k, s->kernel, r->n_weights, (double)s->weight_bytes / 1e6);
    }
    printf("  %4d rows  p50 %9.1f  mean %9.1f us  %6.1f GB/s (%5.1f %% of reads)  %7.1f GFLOP/s "
           "(%5.1f %% of the dot peak)  others %.2f cores\n",
           s->rows, s->p50_us, s->mean_us, byte_rate(s) / 1e9,
           100.0 * cli_bench_share(byte_rate(s), read), ops_rate(s) / 1e9,
           100.0 * cli_bench_share(ops_rate(s), dot), cli_bench_foreign(&s->watch));
}

static pgd_status json_sample(const ops_run *r, const op_sample *s, pgd_text *t) {
    double read = cli_bench_limit(&s->before, &s->after, PGD_LIMIT_READ);
    double dot = cli_bench_limit(&s->before, &s->after, r->b.dot);
    PGD_TRY(pgd_text_format(t,
                            "%s{\"op\":\"%s\",\"kernel\":\"%s\",\"n\":%lld,\"k\":%lld,\"rows\":%d,"
                            "\"calls\":%d,\"weight_bytes\":%llu,\"weight_set_bytes\":%llu",
                            s == r->samples ? "" : ",", s->op->name, s->kernel, (long long)s->n,
                            (long long)s->k, s->rows, s->n_calls,
                            (unsigned long long)s->weight_bytes, (unsigned long long)s->set_bytes));
    PGD_TRY(cli_bench_json_watch(t, &s->watch));
    PGD_TRY(cli_bench_json_limits(t, "limits_before", &s->before));
    PGD_TRY(cli_bench_json_limits(t, "limits_after", &s->after));
    PGD_TRY(cli_bench_json_number(t, "mean_us", s->mean_us));
    PGD_TRY(cli_bench_json_number(t, "p50_us", s->p50_us));
    PGD_TRY(cli_bench_json_number(t, "best_us", s->best_us));
    PGD_TRY(cli_bench_json_number(t, "bytes_per_s", byte_rate(s)));
    PGD_TRY(cli_bench_json_number(t, "ops_per_s", ops_rate(s)));
    PGD_TRY(cli_bench_json_number(t, "share_read", cli_bench_share(byte_rate(s), read)));
    PGD_TRY(cli_bench_json_number(t, "share_dot", cli_bench_share(ops_rate(s), dot)));
    return pgd_text_format(t, "}");
}

static pgd_status print_json(const ops_run *r) {
    pgd_text t = {0};
    pgd_status status = cli_bench_json_head(&r->b, &t);
    for (int32_t i = 0; status == PGD_OK && i < r->n_samples; i++) {
        status = json_sample(r, &r->samples[i], &t);
    }
    if (status == PGD_OK) {
        status = pgd_text_format(&t, "],\"max_rows\":%d}", values.max_rows);
    }
    if (status == PGD_OK) {
        printf("%s\n", t.ptr);
    }
    pgd_text_free(&t);
    return status;
}

// ---- the run -----------------------------------------------------------------------------------

static pgd_status run_op(ops_run *r, int32_t index, bench_limits *io_limits) {
    const op_row *op = &op_rows[index];
    const pgd_load_matrix *m = matrix_of(r, op, 0);
    uint64_t set_bytes = 0;
    PGD_TRY(prepare_all(r, op, &set_bytes));
    const int32_t n_counts = values.rows > 0 ? 1 : N_ROWS;
    for (int32_t i = 0; i < n_counts; i++) {
        const int32_t rows = values.rows > 0 ? values.rows : row_counts[i];
        if (rows_of(op, rows) != rows || rows > values.max_rows) {
            break;
        }
        op_sample *s = &r->samples[r->n_samples++];
        *s = (op_sample){.before = *io_limits,
                         .op = op,
                         .n = m->n,
                         .k = m->k,
                         .weight_bytes = bytes_of(m),
                         .set_bytes = set_bytes,
                         .rows = rows};
        memcpy(s->kernel, r->kernels[index], sizeof(s->kernel));
        PGD_TRY(time_calls(r, s));
        PGD_TRY(cli_bench_measure(&r->b, io_limits));
        s->after = *io_limits;
        if (!cli_bench_flag_values.json) {
            print_sample(r, s);
        }
    }
    drop_weights(r);
    return PGD_OK;
}

static pgd_status run(ops_run *r, const char *model) {
    bench_limits limits = {{0}};
    PGD_TRY(open_all(r, model));
    PGD_TRY(cli_bench_measure(&r->b, &limits));
    int32_t n_run = 0;
    for (int32_t i = 0; i < N_OPS; i++) {
        if (values.op == NULL || strcmp(values.op, op_rows[i].name) == 0) {
            PGD_TRY(run_op(r, i, &limits));
            n_run++;
        }
    }
    if (n_run == 0) {
        return pgd_fail(PGD_INVALID, "there is no product \"%s\": qkv, o, gate_up, down or head",
                        values.op);
    }
    return cli_bench_flag_values.json ? print_json(r) : PGD_OK;
}

static void close_all(ops_run *r) {
    const pgd_device *d = r->b.d;
    if (d != NULL) {
        drop_weights(r);
        pgd_dev_exec_destroy(r->dev, r->exec);
        d->memory->destroy(d, r->x);
        d->memory->destroy(d, r->y);
        d->memory->destroy(d, r->tmp);
        if (r->queue != NULL) {
            d->queue->destroy(d, r->queue);
        }
    }
    pgd_mem_free(r->weights);
    pgd_load_plan_destroy(r->plan);
    pgd_load_weights_close(r->files);
    pgd_load_config_free(r->config);
    pgd_dev_close(r->dev);
    pgd_dev_registry_destroy(r->registry);
    pgd_team_close(r->team);
}

int cli_bench_ops(int argc, char **argv) {
    static const cli_command command = {
        "bench ops", "bench ops [MODEL] [flags]",
        "Times the matrix products of a model's shapes over numbers of rows.",
        "Of the engine's flags --device, --plugin, --threads and --allow-slow count.", NULL};
    static ops_run r;
    r.b = (bench){.name = "ops", .argc = argc, .argv = argv};
    cli_args args = {.command = &command,
                     .flags = {ops_flags, cli_engine_flags},
                     .titles = {"benchmark", "engine"},
                     .n_groups = 2,
                     .max_positional = 1};
    pgd_status status = cli_parse(&args, argc, argv);
    if (status == PGD_OK && args.help) {
        return 0;
    }
    if (status == PGD_OK) {
        status = run(&r, args.positional[0]);
    }
    int code = status == PGD_OK ? 0 : cli_failed(status);
    close_all(&r);
    return code;
}
