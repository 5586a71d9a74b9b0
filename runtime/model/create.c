// Loading: weights into their resident form, vectors and the rope table copied, activations
// allocated, arguments built once. See model.h.
#include "model/inner.h"

#include <stdio.h>
#include <string.h>

#include "base/fail.h"
#include "base/mem.h"

pgd_status pgd_model_shell(const pgd_model_desc *desc, const pgd_batch *batch, pgd_model **out) {
    *out = NULL;
    pgd_model *m = pgd_mem_alloc(1, sizeof(*m));
    if (m == NULL) {
        return PGD_MEM_FAIL("the model", sizeof(*m));
    }
    const pgd_device_info *info = pgd_dev_info(desc->dev);
    m->desc = *desc;
    m->d = pgd_dev_device(desc->dev);
    m->batch = batch;
    m->n_layers = desc->config->n_layers;
    m->act_dtype = info->act_dtype != PGD_DTYPE_NONE ? info->act_dtype : PGD_F32;
    m->residual_dtype = info->residual_dtype != PGD_DTYPE_NONE ? info->residual_dtype : PGD_F32;
    m->down_dtype = m->act_dtype;
    m->layers = pgd_mem_alloc((size_t)m->n_layers, sizeof(*m->layers));
    if (m->layers == NULL) {
        pgd_mem_free(m);
        return PGD_MEM_FAIL("the layers", (size_t)desc->config->n_layers * sizeof(*m->layers));
    }
    int64_t pairs = desc->config->rope.rot_dim / 2;
    m->rope = (pgd_tensor){.dtype = PGD_F32,
                           .rank = 3,
                           .shape = {desc->max_model_len, pairs, 2},
                           .stride = {2 * pairs, 2, 1}};
    pgd_model_shape_activations(m);
    pgd_model_kv_desc(m);
    const pgd_status status = pgd_model_settle_down(m);
    if (status != PGD_OK) {
        pgd_model_destroy(m);
        return status;
    }
    *out = m;
    return PGD_OK;
}

pgd_status pgd_model_buffer(const pgd_model *m, int32_t use, uint64_t bytes, uint64_t align,
                            pgd_buffer **out) {
    const pgd_buffer_desc desc = {.size = sizeof(desc), .use = use, .bytes = bytes, .align = align};
    return m->d->memory->create(m->d, &desc, out);
}

// No piece of loading takes so long on a device that works.
#define LOAD_WAIT_NS UINT64_C(600000000000)

pgd_status pgd_model_wait(const pgd_model *m, pgd_queue *q) {
    uint64_t value = 0;
    PGD_TRY(m->d->queue->signal(m->d, q, &value));
    return m->d->queue->host_wait(m->d, q, value, LOAD_WAIT_NS);
}

#define SETTLE_NS UINT64_C(10000000000)

// Behind a failure: what is enqueued uses what is about to be destroyed. The sentence stays.
static void settle(const pgd_model *m, pgd_queue *q, pgd_status failure) {
    uint64_t value = 0;
    char text[1400];
    (void)snprintf(text, sizeof(text), "%s", pgd_fail_text(failure));
    if (m->d->queue->signal(m->d, q, &value) != PGD_OK ||
        m->d->queue->host_wait(m->d, q, value, SETTLE_NS) != PGD_OK) {
        pgd_fail_set(failure, text);
    }
}

// Copies host bytes to the start of a buffer and waits for it, also behind a failure: the caller
// frees them.
static pgd_status send(const pgd_model *m, pgd_queue *q, pgd_buffer *to, const void *from,
                       uint64_t bytes) {
    const pgd_copy copy = {
        .dst = to, .src_offset = (uint64_t)(uintptr_t)from, .bytes = bytes, .rows = 1};
    PGD_TRY(m->d->queue->copy(m->d, q, &copy, 1));
    const pgd_status status = pgd_model_wait(m, q);
    if (status != PGD_OK) {
        settle(m, q, status);
    }
    return status;
}

static pgd_status prepare_weight(pgd_model *m, pgd_queue *q, const pgd_load_matrix *matrix,
                                 pgd_model_weight *out) {
    const pgd_weight_desc desc = pgd_model_weight_desc(m, matrix);
    pgd_weight_plan plan = {.size = sizeof(plan)};
    PGD_TRY(m->d->weight->plan(m->d, &desc, &plan));
    pgd_buffer *scratch = NULL;
    if (plan.bytes > 0) {
        PGD_TRY(pgd_model_buffer(m, PGD_USE_WEIGHTS, plan.bytes, plan.align, &out->buffer));
    }
    if (plan.scratch > 0) {
        PGD_TRY(pgd_model_buffer(m, PGD_USE_GENERAL, plan.scratch, plan.align, &scratch));
    }
    const pgd_range dst = {.buffer = out->buffer, .bytes = plan.bytes};
    const pgd_range room = {.buffer = scratch, .bytes = plan.scratch};
    pgd_status status = pgd_load_plan_take(m->desc.plan, matrix);
    if (status == PGD_OK) {
        status = pgd_load_plan_check(matrix);
    }
    if (status == PGD_OK) {
        status = m->d->weight->prepare(m->d, q, &desc, &dst, &room, &out->handle);
    }
    if (status == PGD_OK) {
        status = pgd_model_wait(m, q);
    }
    pgd_load_plan_give(m->desc.plan, matrix);
    m->d->memory->destroy(m->d, scratch);
    return status;
}

static pgd_status prepare_each(pgd_model *m, pgd_queue *q) {
    const pgd_load_plan *plan = m->desc.plan;
    uint64_t done = 0;
    for (uint32_t i = 0; i < plan->n_matrices; i++) {
        const pgd_load_matrix *matrix = &plan->matrices[i];
        PGD_TRY(pgd_fail_note(prepare_weight(m, q, matrix, &m->weights[i]),
                              "preparing the weight %s", matrix->name));
        done += matrix->bytes;
        if (m->desc.progress != NULL) {
            m->desc.progress(m->desc.progress_arg, "loading weights", done, plan->weight_bytes);
        }
    }
    return PGD_OK;
}

static pgd_status prepare_weights(pgd_model *m, pgd_queue *q) {
    const pgd_load_plan *plan = m->desc.plan;
    pgd_model_packed packed = {0};
    m->weights = pgd_mem_alloc(plan->n_matrices, sizeof(*m->weights));
    if (m->weights == NULL) {
        return PGD_MEM_FAIL("the weights' handles", plan->n_matrices * sizeof(*m->weights));
    }
    m->n_weights = (int32_t)plan->n_matrices;
    pgd_model_packed_open(m, &packed);
    pgd_status status = PGD_OK;
    if (!pgd_model_packed_find(m, &packed, q)) {
        status = prepare_each(m, q);
        if (status == PGD_OK) {
            pgd_model_packed_keep(m, &packed, q);
        }
    }
    pgd_model_packed_close(&packed);
    return status;
}

static pgd_status make_vectors(pgd_model *m, pgd_queue *q) {
    uint64_t bytes = pgd_model_vector_bytes(m);
    unsigned char *host = pgd_mem_alloc(1, bytes);
    if (host == NULL) {
        return PGD_MEM_FAIL("the norm weights", bytes);
    }
    pgd_status status = pgd_model_buffer(m, PGD_USE_WEIGHTS, bytes, 0, &m->vectors);
    for (uint32_t i = 0; status == PGD_OK && i < m->desc.plan->n_vectors; i++) {
        const pgd_load_vector *v = &m->desc.plan->vectors[i];
        pgd_tensor t = pgd_model_vector(m, v->kind, v->layer);
        memcpy(host + t.offset, v->data, (size_t)v->n * sizeof(float));
    }
    if (status == PGD_OK) {
        status = send(m, q, m->vectors, host, bytes);
    }
    pgd_mem_free(host);
    return status;
}

static pgd_status make_table(pgd_model *m, pgd_queue *q) {
    uint64_t bytes = pgd_model_table_bytes(m);
    float *host = pgd_mem_alloc(1, bytes);
    if (host == NULL) {
        return PGD_MEM_FAIL("the rope table", bytes);
    }
    pgd_status status = pgd_load_rope_table(m->desc.config, m->desc.max_model_len, host);
    if (status == PGD_OK) {
        status = pgd_model_buffer(m, PGD_USE_GENERAL, bytes, 0, &m->table);
    }
    if (status == PGD_OK) {
        status = send(m, q, m->table, host, bytes);
        m->rope.buffer = m->table;
    }
    pgd_mem_free(host);
    return status;
}

static pgd_status make_activations(pgd_model *m) {
    for (int32_t i = 0; i < PGD_MODEL_N_ACTIVATIONS; i++) {
        if (pgd_model_home(i) == i) {
            PGD_TRY(pgd_model_buffer(m, PGD_USE_GENERAL, pgd_model_home_bytes(m, i), 0,
                                     &m->activations[i].buffer));
        }
    }
    for (int32_t i = 0; i < PGD_MODEL_N_ACTIVATIONS; i++) {
        m->activations[i].buffer = m->activations[pgd_model_home(i)].buffer;
    }
    return PGD_OK;
}

static pgd_status load(pgd_model *m, pgd_queue *q) {
    PGD_TRY(prepare_weights(m, q));
    PGD_TRY(make_vectors(m, q));
    PGD_TRY(make_table(m, q));
    PGD_TRY(make_activations(m));
    return pgd_model_llama_args(m);
}

pgd_status pgd_model_create(const pgd_model_desc *desc, const pgd_batch *batch, pgd_queue *queue,
                            pgd_model **out) {
    PGD_TRY(pgd_model_shell(desc, batch, out));
    pgd_status status = load(*out, queue);
    if (status != PGD_OK) {
        settle(*out, queue, status);
        pgd_model_destroy(*out);
        *out = NULL;
    }
    return status;
}

pgd_status pgd_model_bind(pgd_model *m, int32_t n_blocks) {
    pgd_kv_plan plan = {.size = sizeof(plan)};
    PGD_TRY(m->d->kv->plan(m->d, &m->kv_desc, &plan));
    uint64_t bytes = 0;
    if (!pgd_size_mul(plan.block_bytes, (uint64_t)n_blocks, &bytes) ||
        !pgd_size_add(bytes, plan.fixed_bytes, &bytes)) {
        return pgd_fail(PGD_OUT_OF_RANGE, "num_blocks is %d; %llu bytes a block do not fit",
                        n_blocks, (unsigned long long)plan.block_bytes);
    }
    if (bytes > 0) {
        PGD_TRY(pgd_fail_note(pgd_model_buffer(m, PGD_USE_KV, bytes, plan.align, &m->kv_memory),
                              "making the KV cache of %llu bytes", (unsigned long long)bytes));
    }
    const pgd_range mem = {.buffer = m->kv_memory, .bytes = bytes};
    PGD_TRY(m->d->kv->bind(m->d, &m->kv_desc, &plan, &mem, n_blocks, &m->kv));
    m->kv_bytes = bytes;
    for (int32_t g = 0; g < m->desc.groups.n; g++) {
        m->attn_plans[g].kv = m->kv;
    }
    for (int32_t i = 0; i < m->n_layers; i++) {
        m->layers[i].qkv.kv = m->kv;
        m->layers[i].attn.kv = m->kv;
    }
    return PGD_OK;
}

void pgd_model_destroy(pgd_model *m) {
    if (m == NULL) {
        return;
    }
    for (int32_t i = 0; i < 2; i++) {
        if (m->graphs[i] != NULL) {
            m->d->graph->destroy(m->d, m->graphs[i]);
        }
    }
    if (m->kv != NULL) {
        m->d->kv->destroy(m->d, m->kv);
    }
    m->d->memory->destroy(m->d, m->kv_memory);
    for (int32_t i = 0; i < PGD_MODEL_N_ACTIVATIONS; i++) {
        if (pgd_model_home(i) == i) {
            m->d->memory->destroy(m->d, m->activations[i].buffer);
        }
    }
    m->d->memory->destroy(m->d, m->table);
    m->d->memory->destroy(m->d, m->vectors);
    for (int32_t i = 0; i < m->n_weights; i++) {
        if (m->weights[i].handle != NULL) {
            m->d->weight->destroy(m->d, m->weights[i].handle);
        }
        m->d->memory->destroy(m->d, m->weights[i].buffer);
    }
    m->d->memory->destroy(m->d, m->packed_buffer);
    pgd_dev_blob_close(&m->packed);
    pgd_mem_free(m->weights);
    pgd_mem_free(m->layers);
    pgd_mem_free(m);
}

const pgd_tensor *pgd_model_ids(const pgd_model *m) {
    return &m->activations[PGD_MODEL_ids];
}

const pgd_tensor *pgd_model_logits(const pgd_model *m) {
    return &m->activations[PGD_MODEL_logits];
}

const pgd_tensor *pgd_model_logprobs(const pgd_model *m) {
    return &m->activations[PGD_MODEL_logprobs];
}

const pgd_tensor *pgd_model_top_ids(const pgd_model *m) {
    return &m->activations[PGD_MODEL_top_ids];
}

const pgd_tensor *pgd_model_ranks(const pgd_model *m) {
    return &m->activations[PGD_MODEL_ranks];
}

const pgd_tensor *pgd_model_counts(const pgd_model *m) {
    return &m->activations[PGD_MODEL_counts];
}

uint64_t pgd_model_kv_bytes(const pgd_model *m) {
    return m->kv_bytes;
}
