// The device's side of `pagoda bench ops`: what is opened once, and what each case needs.
#include "cli/bench_ops.h"

#include <math.h>
#include <string.h>

#include "base/fail.h"
#include "base/mem.h"
#include "base/rng.h"
#include "load/name.h"

#define MOST_BYTES   (UINT64_C(1) << 30) // of weights of one kind
#define BLOCK_TOKENS 16
#define SMALL_NUMBER 0x3C003C00u // 0.0078 as f32, bf16 and f16 alike

const ops_row cli_ops_rows[] = {
    {"qkv", PGD_OP_gemm, PGD_LOAD_W_QKV, 0, 0},
    {"o", PGD_OP_gemm, PGD_LOAD_W_O, 0, 0},
    {"gate_up", PGD_OP_gate_up, PGD_LOAD_W_GATE_UP, 0, 0},
    {"down", PGD_OP_gemm, PGD_LOAD_W_DOWN, 0, 0},
    {"head", PGD_OP_gemm, PGD_LOAD_W_HEAD, 0, 0},
    {"qkv_rope_write", PGD_OP_qkv_rope_write, PGD_LOAD_W_QKV, 1, 0},
    {"o_add", PGD_OP_gemm_add, PGD_LOAD_W_O, 1, 0},
    {"norm_gate_up", PGD_OP_gate_up, PGD_LOAD_W_GATE_UP, 1, 0},
    {"down_add", PGD_OP_gemm_add, PGD_LOAD_W_DOWN, 1, 0},
    {"head_sample", PGD_OP_head_sample, PGD_LOAD_W_HEAD, 1, 0},
    {"attn", PGD_OP_attn, -1, 1, 0},
    {"rmsnorm", PGD_OP_rmsnorm, -1, 1, 0},
    {"sample_greedy", PGD_OP_sample, -1, 1, 0},
    {"sample_top_p", PGD_OP_sample, -1, 1, 1},
};
const int32_t cli_ops_n_rows = (int32_t)(sizeof(cli_ops_rows) / sizeof(cli_ops_rows[0]));

#define N_ROWS (sizeof(cli_ops_rows) / sizeof(cli_ops_rows[0]))

const pgd_load_matrix *cli_ops_matrix(const ops_run *r, const ops_row *row, int32_t layer) {
    if (row->role != PGD_LOAD_W_HEAD) {
        return pgd_load_plan_matrix(r->plan, row->role, layer);
    }
    return layer > 0 ? NULL
                     : pgd_load_plan_matrix(
                           r->plan, r->config->tied ? PGD_LOAD_W_EMBED : PGD_LOAD_W_HEAD, -1);
}

static pgd_weight_desc desc_of(const ops_run *r, const pgd_load_matrix *m) {
    return (pgd_weight_desc){
        .size = sizeof(pgd_weight_desc),
        .uses = m->uses,
        .scheme = m->scheme,
        .dtype = m->dtype,
        .act_dtype = m->dtype == PGD_BF16 ? pgd_dev_info(r->dev)->dot_dtype : PGD_DTYPE_NONE,
        .n_parts = m->n_parts,
        .part_stride = sizeof(pgd_weight_part),
        .n = m->n,
        .k = m->k,
        .max_rows = CLI_OPS_TOKENS,
        .parts = m->parts,
        .name = m->name,
    };
}

// ---- arguments ---------------------------------------------------------------------------------

static pgd_tensor tensor(const ops_run *r, int32_t buffer, int64_t rows, int64_t columns) {
    const int32_t dtype = pgd_dev_info(r->dev)->act_dtype;
    return (pgd_tensor){.buffer = r->buffers[buffer],
                        .dtype = dtype != PGD_DTYPE_NONE ? dtype : PGD_F32,
                        .rank = 2,
                        .shape = {rows, columns},
                        .stride = {columns, 1}};
}

static pgd_tensor vector(const ops_run *r, int64_t n) {
    return (pgd_tensor){
        .buffer = r->buffers[OPS_VECTOR], .dtype = PGD_F32, .rank = 1, .shape = {n}, .stride = {1}};
}

static pgd_tensor heads(pgd_tensor t, int64_t first, int64_t n, int64_t dim) {
    t.offset += (uint64_t)(first * dim) * pgd_dtype_bytes(t.dtype);
    t.rank = 3;
    t.shape[1] = n;
    t.shape[2] = dim;
    t.stride[1] = dim;
    t.stride[2] = 1;
    return t;
}

static pgd_tensor ids(const ops_run *r) {
    return (pgd_tensor){.buffer = r->buffers[OPS_IDS],
                        .dtype = PGD_I32,
                        .rank = 1,
                        .shape = {CLI_OPS_SEQS},
                        .stride = {1}};
}

static pgd_tensor logits(const ops_run *r) {
    pgd_tensor t = tensor(r, OPS_Y, CLI_OPS_SEQS, r->config->vocab);
    t.dtype = PGD_F32;
    return t;
}

static pgd_gemm_args gemm_args(const ops_run *r, const ops_row *row, const pgd_load_matrix *m,
                               const ops_case *c, pgd_weight *w) {
    const int64_t rows = row->fused ? CLI_OPS_TOKENS : c->rows;
    pgd_gemm_args a = {.size = sizeof(a),
                       .rows = row->fused ? PGD_ROWS_TOKENS : PGD_ROWS_SHAPE,
                       .batch = row->fused ? pgd_dev_batch_view(r->batch) : NULL,
                       .w = w,
                       .x = tensor(r, OPS_X, rows, m->k),
                       .y = tensor(r, OPS_Y, rows, m->n)};
    if (row->fused) {
        a.aux = a.y;
        a.aux_kind = PGD_AUX_ADD;
    }
    return a;
}

static pgd_gate_up_args gate_up_args(const ops_run *r, const ops_row *row, const pgd_load_matrix *m,
                                     const ops_case *c, pgd_weight *w) {
    const int64_t rows = row->fused ? CLI_OPS_TOKENS : c->rows;
    pgd_gate_up_args a = {.size = sizeof(a),
                          .rows = row->fused ? PGD_ROWS_TOKENS : PGD_ROWS_SHAPE,
                          .batch = row->fused ? pgd_dev_batch_view(r->batch) : NULL,
                          .w = w,
                          .x = tensor(r, OPS_X, rows, m->k),
                          .tmp = tensor(r, OPS_TMP, rows, m->n),
                          .out = tensor(r, OPS_Y, rows, m->n / 2),
                          .eps = (float)r->config->norm_eps,
                          .act = r->config->act};
    if (row->fused) {
        a.norm_w = vector(r, m->k);
        a.normed = tensor(r, OPS_NORMED, rows, m->k);
    }
    return a;
}

static pgd_qkv_rope_write_args qkv_args(const ops_run *r, const pgd_load_matrix *m, int32_t layer,
                                        pgd_weight *w) {
    const pgd_load_config *c = r->config;
    const int64_t pairs = c->rope.rot_dim / 2;
    const pgd_tensor qkv = tensor(r, OPS_Y, CLI_OPS_TOKENS, m->n);
    const pgd_tensor table = {.buffer = r->buffers[OPS_TABLE],
                              .dtype = PGD_F32,
                              .rank = 3,
                              .shape = {r->most_context, pairs, 2},
                              .stride = {2 * pairs, 2, 1}};
    return (pgd_qkv_rope_write_args){
        .size = sizeof(pgd_qkv_rope_write_args),
        .rows = PGD_ROWS_TOKENS,
        .batch = pgd_dev_batch_view(r->batch),
        .w = w,
        .kv = r->kv,
        .layer = layer,
        .x = tensor(r, OPS_X, CLI_OPS_TOKENS, m->k),
        .norm_w = vector(r, m->k),
        .normed = tensor(r, OPS_NORMED, CLI_OPS_TOKENS, m->k),
        .qkv = qkv,
        .q = heads(qkv, 0, c->n_heads, c->head_dim),
        .k = heads(qkv, c->n_heads, c->n_kv_heads, c->head_dim),
        .v = heads(qkv, c->n_heads + c->n_kv_heads, c->n_kv_heads, c->head_dim),
        .table = table,
        .eps = (float)c->norm_eps,
        .style = PGD_ROPE_HALF,
        .rot_dim = c->rope.rot_dim,
    };
}

static pgd_attn_args attn_args(const ops_run *r, int32_t layer) {
    const pgd_load_config *c = r->config;
    const int64_t width = (int64_t)c->n_heads * c->head_dim;
    return (pgd_attn_args){
        .size = sizeof(pgd_attn_args),
        .rows = PGD_ROWS_TOKENS,
        .batch = pgd_dev_batch_view(r->batch),
        .kv = r->kv,
        .layer = layer,
        .q = heads(tensor(r, OPS_X, CLI_OPS_TOKENS, width), 0, c->n_heads, c->head_dim),
        .out = heads(tensor(r, OPS_Y, CLI_OPS_TOKENS, width), 0, c->n_heads, c->head_dim),
        .scale = (float)(1.0 / sqrt((double)c->head_dim)),
        .causal = 1,
    };
}

static pgd_head_sample_args head_args(const ops_run *r, const pgd_load_matrix *m, pgd_weight *w) {
    return (pgd_head_sample_args){
        .size = sizeof(pgd_head_sample_args),
        .rows = PGD_ROWS_OUTPUTS,
        .batch = pgd_dev_batch_view(r->batch),
        .w = w,
        .x = tensor(r, OPS_X, CLI_OPS_SEQS, m->k),
        .norm_w = vector(r, m->k),
        .normed = tensor(r, OPS_NORMED, CLI_OPS_SEQS, m->k),
        .logits = logits(r),
        .ids = ids(r),
        .eps = (float)r->config->norm_eps,
    };
}

// The arguments of a case; a layer's weight and cache. w and kv may be NULL while planning.
static ops_args args_of(const ops_run *r, const ops_case *c, int32_t layer, pgd_weight *w) {
    const pgd_load_matrix *m = c->row->role >= 0 ? cli_ops_matrix(r, c->row, 0) : NULL;
    const pgd_batch *batch = pgd_dev_batch_view(r->batch);
    ops_args a;
    memset(&a, 0, sizeof(a));
    switch (c->row->op) {
    case PGD_OP_gemm:
    case PGD_OP_gemm_add: a.gemm = gemm_args(r, c->row, m, c, w); break;
    case PGD_OP_gate_up: a.gate_up = gate_up_args(r, c->row, m, c, w); break;
    case PGD_OP_qkv_rope_write: a.qkv = qkv_args(r, m, layer, w); break;
    case PGD_OP_attn: a.attn = attn_args(r, layer); break;
    case PGD_OP_head_sample: a.head = head_args(r, m, w); break;
    case PGD_OP_sample:
        a.sample = (pgd_sample_args){.size = sizeof(a.sample),
                                     .rows = PGD_ROWS_OUTPUTS,
                                     .batch = batch,
                                     .logits = logits(r),
                                     .ids = ids(r)};
        break;
    default:
        a.rmsnorm = (pgd_rmsnorm_args){.size = sizeof(a.rmsnorm),
                                       .rows = PGD_ROWS_TOKENS,
                                       .batch = batch,
                                       .x = tensor(r, OPS_X, CLI_OPS_TOKENS, r->config->hidden),
                                       .w = vector(r, r->config->hidden),
                                       .out = tensor(r, OPS_Y, CLI_OPS_TOKENS, r->config->hidden),
                                       .eps = (float)r->config->norm_eps};
        break;
    }
    return a;
}

static pgd_status wait_all(const ops_run *r) {
    const pgd_device *d = r->b.d;
    uint64_t value = 0;
    PGD_TRY(d->queue->signal(d, r->queue, &value));
    return d->queue->host_wait(d, r->queue, value, PGD_WAIT_FOREVER);
}

pgd_status cli_ops_call(const ops_run *r, const ops_case *c, int32_t at) {
    const pgd_ops *ops = r->b.d->ops;
    pgd_weight *w = c->row->role >= 0 ? r->weights[at % r->n_weights].handle : NULL;
    const ops_args a = args_of(r, c, at % r->config->n_layers, w);
    switch (c->row->op) {
    case PGD_OP_gemm: PGD_TRY(ops->gemm(r->exec, &a.gemm)); break;
    case PGD_OP_gemm_add: PGD_TRY(ops->gemm_add(r->exec, &a.gemm)); break;
    case PGD_OP_gate_up: PGD_TRY(ops->gate_up(r->exec, &a.gate_up)); break;
    case PGD_OP_qkv_rope_write: PGD_TRY(ops->qkv_rope_write(r->exec, &a.qkv)); break;
    case PGD_OP_attn: PGD_TRY(ops->attn(r->exec, &a.attn)); break;
    case PGD_OP_head_sample: PGD_TRY(ops->head_sample(r->exec, &a.head)); break;
    case PGD_OP_sample: PGD_TRY(ops->sample(r->exec, &a.sample)); break;
    default: PGD_TRY(ops->rmsnorm(r->exec, &a.rmsnorm)); break;
    }
    return wait_all(r);
}

// ---- opening -----------------------------------------------------------------------------------

static pgd_status open_device(ops_run *r) {
    const cli_engine_values *v = &cli_engine;
    const pgd_dev_search search = {.files = v->plugins.items, .n_files = v->plugins.n};
    PGD_TRY(pgd_team_open((uint32_t)v->threads, &r->team));
    PGD_TRY(pgd_dev_registry_create(&search, &r->registry));
    const pgd_dev_desc desc = {.uri = v->device != NULL ? v->device : "auto",
                               .team = r->team,
                               .allow_slow = (uint32_t)v->allow_slow,
                               .no_deterministic = !v->deterministic};
    return pgd_dev_open(r->registry, &desc, &r->dev);
}

static pgd_status open_model(ops_run *r, const char *model) {
    PGD_TRY(pgd_load_find_model(model, r->model, sizeof(r->model)));
    PGD_TRY(pgd_load_config_read(r->model, &r->config));
    PGD_TRY(pgd_load_weights_open(r->model, &r->files));
    PGD_TRY(pgd_load_plan_create(r->config, r->files, &r->plan));
    r->b.work.stored = pgd_load_matrix_stored(&r->plan->matrices[2]);
    r->b.work.dtype = r->plan->matrices[2].dtype;
    r->b.work.weight_bytes = r->plan->weight_bytes;
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
    r->kernels = pgd_mem_alloc(N_ROWS, sizeof(*r->kernels));
    if (r->weights == NULL || r->kernels == NULL) {
        return PGD_MEM_FAIL("the weights", (size_t)r->config->n_layers * sizeof(*r->weights));
    }
    return PGD_OK;
}

// Asks where each op runs and keeps the kernel's name; the largest scratch.
static pgd_status place_ops(ops_run *r, uint64_t *out_scratch) {
    pgd_query queries[N_ROWS];
    pgd_weight_desc descs[N_ROWS];
    ops_args args[N_ROWS];
    pgd_dev_place places[N_ROWS];
    for (size_t i = 0; i < N_ROWS; i++) {
        const ops_row *row = &cli_ops_rows[i];
        const ops_case most = {
            .row = row, .rows = row->role == PGD_LOAD_W_HEAD ? CLI_OPS_SEQS : CLI_OPS_TOKENS};
        const pgd_load_matrix *m = row->role >= 0 ? cli_ops_matrix(r, row, 0) : NULL;
        args[i] = args_of(r, &most, 0, NULL);
        queries[i] = (pgd_query){.size = sizeof(queries[i]),
                                 .op = row->op,
                                 .args = &args[i],
                                 .batch = pgd_dev_batch_view(r->batch)};
        if (m != NULL) {
            descs[i] = desc_of(r, m);
            queries[i].weight = &descs[i];
        }
        if (row->op == PGD_OP_attn || row->op == PGD_OP_qkv_rope_write) {
            queries[i].kv = &r->kv_desc;
        }
    }
    PGD_TRY(pgd_dev_plan(r->dev, queries, (uint32_t)N_ROWS, places));
    *out_scratch = 0;
    for (size_t i = 0; i < N_ROWS; i++) {
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
    const pgd_device *d = r->b.d;
    const uint64_t logit_bytes = (uint64_t)CLI_OPS_SEQS * (uint64_t)r->config->vocab * 4;
    uint64_t widest = (uint64_t)r->config->hidden;
    for (size_t i = 0; i < N_ROWS; i++) {
        const ops_row *row = &cli_ops_rows[i];
        const pgd_load_matrix *m = cli_ops_matrix(r, row, 0);
        if (m != NULL) {
            uint64_t wide = row->role == PGD_LOAD_W_HEAD ? 0 : (uint64_t)m->n;
            wide = wide > (uint64_t)m->k ? wide : (uint64_t)m->k;
            widest = wide > widest ? wide : widest;
        }
    }
    const uint64_t rows_bytes = widest * CLI_OPS_TOKENS * sizeof(float);
    const uint64_t bytes[OPS_N_BUFFERS] = {
        [OPS_X] = rows_bytes,
        [OPS_Y] = rows_bytes > logit_bytes ? rows_bytes : logit_bytes,
        [OPS_TMP] = rows_bytes,
        [OPS_NORMED] = rows_bytes,
        [OPS_VECTOR] = widest * sizeof(float),
        [OPS_TABLE] = (uint64_t)r->most_context * (uint64_t)r->config->rope.rot_dim * sizeof(float),
        [OPS_IDS] = CLI_OPS_SEQS * sizeof(int32_t),
    };
    for (int32_t i = 0; i < OPS_N_BUFFERS; i++) {
        PGD_TRY(make_buffer(r, PGD_USE_GENERAL, bytes[i], 0, &r->buffers[i]));
        const pgd_range all = {.buffer = r->buffers[i], .bytes = bytes[i] & ~UINT64_C(3)};
        PGD_TRY(d->queue->fill(d, r->queue, &all, SMALL_NUMBER));
    }
    return wait_all(r);
}

static pgd_status make_cache(ops_run *r) {
    const pgd_device *d = r->b.d;
    pgd_kv_plan plan = {.size = sizeof(plan)};
    PGD_TRY(d->kv->plan(d, &r->kv_desc, &plan));
    const uint64_t bytes = plan.fixed_bytes + plan.block_bytes * (uint64_t)r->n_blocks;
    PGD_TRY(make_buffer(r, PGD_USE_KV, bytes, plan.align, &r->kv_memory));
    const pgd_range all = {.buffer = r->kv_memory, .bytes = bytes};
    const pgd_range pages = {.buffer = r->kv_memory, .bytes = bytes & ~UINT64_C(3)};
    // Numbers, not zeros: pages that were never written may all be one page of memory.
    PGD_TRY(d->queue->fill(d, r->queue, &pages, SMALL_NUMBER));
    PGD_TRY(wait_all(r));
    return d->kv->bind(d, &r->kv_desc, &plan, &all, r->n_blocks, &r->kv);
}

static void describe_cache(ops_run *r, int32_t n_positions) {
    int32_t dtype = pgd_dev_info(r->dev)->kv_dtype;
    r->kv_desc = (pgd_kv_desc){
        .size = sizeof(r->kv_desc),
        .kind = PGD_KV_ATTENTION,
        .layers = r->config->n_layers,
        .heads = r->config->n_kv_heads,
        .k_dim = r->config->head_dim,
        .v_dim = r->config->head_dim,
        .k_dtype = dtype != PGD_DTYPE_NONE ? dtype : PGD_F32,
        .v_dtype = dtype != PGD_DTYPE_NONE ? dtype : PGD_F32,
        .block_tokens = BLOCK_TOKENS,
    };
    r->n_blocks = 1 + n_positions / BLOCK_TOKENS + CLI_OPS_SEQS;
}

pgd_status cli_ops_open(ops_run *r, const char *model, int32_t n_positions) {
    const pgd_queue_desc queue = {.size = sizeof(queue), .role = PGD_QUEUE_COMPUTE};
    uint64_t scratch = 0;
    PGD_TRY(open_device(r));
    PGD_TRY(open_model(r, model));
    PGD_TRY(cli_bench_device(&r->b, r->dev));
    if (r->most_context > r->config->max_position) {
        r->most_context = r->config->max_position;
    }
    describe_cache(r, n_positions);
    const pgd_dev_batch_desc batch = {
        .cap_tokens = CLI_OPS_TOKENS,
        .cap_seqs = CLI_OPS_SEQS,
        .cap_kv = r->most_context,
        .cap_blocks = (r->most_context + BLOCK_TOKENS - 1) / BLOCK_TOKENS,
    };
    r->table = pgd_mem_alloc((size_t)batch.cap_blocks, sizeof(*r->table));
    if (r->table == NULL) {
        return PGD_MEM_FAIL("a block table", (size_t)batch.cap_blocks * sizeof(*r->table));
    }
    PGD_TRY(pgd_dev_batch_create(r->b.d, &batch, &r->batch));
    PGD_TRY(place_ops(r, &scratch));
    PGD_TRY(r->b.d->queue->create(r->b.d, &queue, &r->queue));
    PGD_TRY(pgd_dev_exec_create(r->dev, r->queue, scratch, &r->exec));
    PGD_TRY(make_buffers(r));
    return make_cache(r);
}

// ---- weights -----------------------------------------------------------------------------------

static pgd_status prepare_weight(ops_run *r, const pgd_load_matrix *m, ops_weight *out) {
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
    pgd_status status = pgd_load_plan_take(r->plan, m);
    if (status == PGD_OK) {
        status = d->weight->prepare(d, r->queue, &desc, &dst, &room, &out->handle);
    }
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
        r->weights[i] = (ops_weight){0};
    }
    r->n_weights = 0;
    r->set_bytes = 0;
    r->prepared = NULL;
}

static pgd_status prepare_weights(ops_run *r, const ops_row *row) {
    drop_weights(r);
    for (int32_t layer = 0; layer < r->config->n_layers; layer++) {
        const pgd_load_matrix *m = cli_ops_matrix(r, row, layer);
        const uint64_t bytes = m == NULL ? 0 : m->bytes;
        if (m == NULL || (layer > 0 && r->set_bytes + bytes > MOST_BYTES)) {
            break;
        }
        r->n_weights++;
        PGD_TRY(pgd_fail_note(prepare_weight(r, m, &r->weights[layer]), "preparing %s", m->name));
        r->set_bytes += bytes;
    }
    r->prepared = row;
    return PGD_OK;
}

// ---- the batch ---------------------------------------------------------------------------------

static void fill_sequence(ops_run *r, const ops_case *c, int32_t s) {
    const pgd_batch *v = pgd_dev_batch_view(r->batch);
    const int32_t n = c->rows / c->n_seqs;
    const int32_t n_blocks = (c->context + BLOCK_TOKENS - 1) / BLOCK_TOKENS;
    int32_t *positions = pgd_dev_batch_array(r->batch, v->positions);
    int32_t *slots = pgd_dev_batch_array(r->batch, v->slots[0]);
    int32_t *table = r->table;
    for (int32_t i = 0; i < n_blocks; i++) {
        table[i] = 1 + s * n_blocks + i;
    }
    pgd_dev_batch_blocks(r->batch, 0, s, 0, table, n_blocks);
    for (int32_t i = 0; i < n; i++) {
        const int32_t position = c->context - n + i;
        positions[s * n + i] = position;
        slots[s * n + i] = table[position / BLOCK_TOKENS] * BLOCK_TOKENS + position % BLOCK_TOKENS;
    }
    ((int32_t *)pgd_dev_batch_array(r->batch, v->q_start))[s + 1] = (s + 1) * n;
    ((int32_t *)pgd_dev_batch_array(r->batch, v->kv_len))[s] = c->context;
    ((int32_t *)pgd_dev_batch_array(r->batch, v->seq_slot))[s] = s;
    ((int32_t *)pgd_dev_batch_array(r->batch, v->out_rows))[s] = (s + 1) * n - 1;
    ((int32_t *)pgd_dev_batch_array(r->batch, v->out_slot))[s] = s;
    ((pgd_sampling *)pgd_dev_batch_array(r->batch, v->sampling))[s] =
        c->row->top_p ? (pgd_sampling){.temperature = 1.0f, .top_p = 0.9f, .seed = 1}
                      : (pgd_sampling){.flags = PGD_SAMPLE_GREEDY};
}

// Bell-shaped numbers of deviation 3, as logits are; a draw may have changed what was there.
static pgd_status send_logits(ops_run *r, int32_t rows) {
    const int64_t n = (int64_t)rows * r->config->vocab;
    const double scale = 3.0 * 1.7320508 / 4294967296.0; // of a sum of four: deviation 3
    uint64_t state = 1;
    float *host = pgd_mem_alloc((size_t)n, sizeof(*host));
    if (host == NULL) {
        return PGD_MEM_FAIL("the logits", (size_t)n * sizeof(*host));
    }
    for (int64_t i = 0; i < n; i++) {
        uint64_t a = pgd_rng_next(&state);
        uint64_t b = pgd_rng_next(&state);
        uint64_t sum = (a >> 32) + (a & UINT32_MAX) + (b >> 32) + (b & UINT32_MAX);
        host[i] = (float)(((double)sum - 8589934592.0) * scale);
    }
    const pgd_copy copy = {.dst = r->buffers[OPS_Y],
                           .src_offset = (uint64_t)(uintptr_t)host,
                           .bytes = (uint64_t)n * sizeof(*host),
                           .rows = 1};
    pgd_status status = r->b.d->queue->copy(r->b.d, r->queue, &copy, 1);
    status = status == PGD_OK ? wait_all(r) : status;
    pgd_mem_free(host);
    return status;
}

static pgd_status fill_batch(ops_run *r, const ops_case *c) {
    pgd_batch_head *head = pgd_dev_batch_begin(r->batch);
    for (int32_t s = 0; s < c->n_seqs; s++) {
        fill_sequence(r, c, s);
    }
    head->n_tokens = c->rows;
    head->n_seqs = c->n_seqs;
    head->n_decode = c->rows == c->n_seqs ? c->n_seqs : 0;
    head->n_out = c->n_seqs;
    head->max_q = c->rows / c->n_seqs;
    head->max_kv = c->context;
    PGD_TRY(pgd_dev_upload_batch(r->batch, r->queue));
    return wait_all(r);
}

pgd_status cli_ops_prepare(ops_run *r, const ops_case *c) {
    if (c->row->role >= 0 && r->prepared != c->row) {
        PGD_TRY(prepare_weights(r, c->row));
    }
    if (c->row->op == PGD_OP_sample) {
        PGD_TRY(send_logits(r, c->rows));
    }
    return c->row->fused ? fill_batch(r, c) : PGD_OK;
}

void cli_ops_close(ops_run *r) {
    const pgd_device *d = r->b.d;
    if (d != NULL) {
        if (r->weights != NULL) {
            drop_weights(r);
        }
        if (r->kv != NULL) {
            d->kv->destroy(d, r->kv);
        }
        d->memory->destroy(d, r->kv_memory);
        pgd_dev_exec_destroy(r->dev, r->exec);
        pgd_dev_batch_destroy(r->batch);
        for (int32_t i = 0; i < OPS_N_BUFFERS; i++) {
            d->memory->destroy(d, r->buffers[i]);
        }
        if (r->queue != NULL) {
            d->queue->destroy(d, r->queue);
        }
    }
    pgd_mem_free(r->weights);
    pgd_mem_free(r->kernels);
    pgd_mem_free(r->table);
    pgd_load_plan_destroy(r->plan);
    pgd_load_weights_close(r->files);
    pgd_load_config_free(r->config);
    pgd_dev_close(r->dev);
    pgd_dev_registry_destroy(r->registry);
    pgd_team_close(r->team);
}
