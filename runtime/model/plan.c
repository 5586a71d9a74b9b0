// Planning: the queries of every operation, and the bytes a model needs. See model.h.
#include "model/inner.h"

#include "base/fail.h"
#include "base/mem.h"

static const pgd_weight_desc *desc_of(const pgd_model *m, const pgd_weight_desc *descs,
                                      int32_t role, int32_t layer) {
    for (uint32_t i = 0; i < m->desc.plan->n_matrices; i++) {
        const pgd_load_matrix *matrix = &m->desc.plan->matrices[i];
        if (matrix->role == role && matrix->layer == layer) {
            return &descs[i];
        }
    }
    return NULL;
}

// ---- the dtype between gate_up and down --------------------------------------------------------

static int32_t takes(const pgd_model *m, int32_t op, const void *args, int32_t role,
                     int32_t layer) {
    for (uint32_t i = 0; i < m->desc.plan->n_matrices; i++) {
        const pgd_load_matrix *matrix = &m->desc.plan->matrices[i];
        if (matrix->role == role && matrix->layer == layer) {
            const pgd_weight_desc desc = pgd_model_weight_desc(m, matrix);
            const pgd_query query = {
                .size = sizeof(query), .op = op, .args = args, .weight = &desc, .batch = m->batch};
            return (role != PGD_LOAD_W_DOWN || desc.act_dtype == m->down_dtype) &&
                   pgd_dev_takes(m->desc.dev, &query);
        }
    }
    return 0;
}

static int32_t takes_rounded(const pgd_model *m) {
    for (int32_t i = 0; i < m->n_layers; i++) {
        const pgd_model_layer *l = &m->layers[i];
        if (!takes(m, PGD_OP_gate_up, &l->gate_up, PGD_LOAD_W_GATE_UP, i) ||
            !takes(m, PGD_OP_gemm_add, &l->down, PGD_LOAD_W_DOWN, i)) {
            return 0;
        }
    }
    return 1;
}

pgd_status pgd_model_settle_down(pgd_model *m) {
    const int32_t dot_dtype = pgd_dev_info(m->desc.dev)->dot_dtype;
    if (pgd_dtype_bytes(dot_dtype) == 0 ||
        pgd_dtype_bytes(dot_dtype) >= pgd_dtype_bytes(m->act_dtype)) {
        return PGD_OK;
    }
    m->down_dtype = dot_dtype;
    pgd_model_shape_activations(m);
    PGD_TRY(pgd_model_llama_args(m));
    if (!takes_rounded(m)) {
        m->down_dtype = m->act_dtype;
        pgd_model_shape_activations(m);
    }
    return PGD_OK;
}

// ---- queries -----------------------------------------------------------------------------------

// A list of queries that grows in room counted beforehand.
typedef struct query_list {
    const pgd_model *m;
    pgd_query *items;
    uint32_t n;
} query_list;

static void ask(query_list *list, int32_t op, const void *args, const pgd_weight_desc *weight,
                int32_t kv) {
    list->items[list->n++] = (pgd_query){
        .size = sizeof(pgd_query),
        .op = op,
        .args = args,
        .weight = weight,
        .kv = kv ? &list->m->kv_desc : NULL,
        .batch = list->m->batch,
    };
}

pgd_status pgd_model_queries(const pgd_model *m, pgd_query **out, pgd_weight_desc **out_descs,
                             uint32_t *out_n) {
    const pgd_load_plan *plan = m->desc.plan;
    uint32_t n = 3 + (uint32_t)m->desc.groups.n + 5 * (uint32_t)m->n_layers;
    query_list list = {.m = m, .items = pgd_mem_alloc(n, sizeof(pgd_query))};
    pgd_weight_desc *descs = pgd_mem_alloc(plan->n_matrices, sizeof(*descs));
    if (list.items == NULL || descs == NULL) {
        pgd_mem_free(list.items);
        pgd_mem_free(descs);
        return PGD_MEM_FAIL("the queries of the model", n * sizeof(pgd_query));
    }
    for (uint32_t i = 0; i < plan->n_matrices; i++) {
        descs[i] = pgd_model_weight_desc(m, &plan->matrices[i]);
    }
    ask(&list, PGD_OP_embed, &m->embed, desc_of(m, descs, PGD_LOAD_W_EMBED, -1), 0);
    for (int32_t g = 0; g < m->desc.groups.n; g++) {
        ask(&list, PGD_OP_attn_plan, &m->attn_plans[g], NULL, 1);
    }
    for (int32_t i = 0; i < m->n_layers; i++) {
        const pgd_model_layer *l = &m->layers[i];
        ask(&list, PGD_OP_qkv_rope_write, &l->qkv, desc_of(m, descs, PGD_LOAD_W_QKV, i), 1);
        ask(&list, PGD_OP_attn, &l->attn, NULL, 1);
        ask(&list, PGD_OP_gemm_add, &l->o, desc_of(m, descs, PGD_LOAD_W_O, i), 0);
        ask(&list, PGD_OP_gate_up, &l->gate_up, desc_of(m, descs, PGD_LOAD_W_GATE_UP, i), 0);
        ask(&list, PGD_OP_gemm_add, &l->down, desc_of(m, descs, PGD_LOAD_W_DOWN, i), 0);
    }
    int32_t head = m->desc.config->tied ? PGD_LOAD_W_EMBED : PGD_LOAD_W_HEAD;
    ask(&list, PGD_OP_gather_rows, &m->gather, NULL, 0);
    ask(&list, PGD_OP_head_sample, &m->head, desc_of(m, descs, head, -1), 0);
    *out = list.items;
    *out_descs = descs;
    *out_n = list.n;
    return PGD_OK;
}

// The places of the operations, in the caller's hands.
static pgd_status place_ops(pgd_model *m, pgd_dev_place **out, uint32_t *out_n) {
    pgd_query *queries = NULL;
    pgd_weight_desc *descs = NULL;
    uint32_t n = 0;
    PGD_TRY(pgd_model_queries(m, &queries, &descs, &n));
    pgd_status status = PGD_OK;
    pgd_dev_place *places = pgd_mem_alloc(n, sizeof(*places));
    if (places == NULL) {
        status = PGD_MEM_FAIL("the places of the operations", n * sizeof(*places));
    } else {
        status = pgd_dev_plan(m->desc.dev, queries, n, places);
    }
    pgd_mem_free(descs);
    pgd_mem_free(queries);
    if (status != PGD_OK) {
        pgd_mem_free(places);
        return status;
    }
    *out = places;
    *out_n = n;
    return PGD_OK;
}

// The largest scratch of all operations.
static pgd_status place_scratch(pgd_model *m, uint64_t *out) {
    pgd_dev_place *places = NULL;
    uint32_t n = 0;
    *out = 0;
    PGD_TRY(place_ops(m, &places, &n));
    for (uint32_t i = 0; i < n; i++) {
        *out = places[i].scratch > *out ? places[i].scratch : *out;
    }
    pgd_mem_free(places);
    return PGD_OK;
}

static pgd_status sum_weights(const pgd_model *m, uint64_t *out_bytes) {
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < m->desc.plan->n_matrices; i++) {
        const pgd_load_matrix *matrix = &m->desc.plan->matrices[i];
        const pgd_weight_desc desc = pgd_model_weight_desc(m, matrix);
        pgd_weight_plan plan = {.size = sizeof(plan)};
        PGD_TRY(pgd_fail_note(m->d->weight->plan(m->d, &desc, &plan), "planning the weight %s",
                              matrix->name));
        bytes += plan.bytes;
    }
    *out_bytes = bytes;
    return PGD_OK;
}

static pgd_status plan_parts(pgd_model *m, pgd_model_needs *out) {
    PGD_TRY(pgd_model_llama_args(m));
    PGD_TRY(place_scratch(m, &out->scratch_bytes));
    PGD_TRY(sum_weights(m, &out->weight_bytes));
    pgd_kv_plan kv = {.size = sizeof(kv)};
    PGD_TRY(pgd_fail_note(m->d->kv->plan(m->d, &m->kv_desc, &kv), "planning the KV cache"));
    out->kv_block_bytes = kv.block_bytes;
    out->kv_fixed_bytes = kv.fixed_bytes;
    out->kv_align = kv.align;
    return PGD_OK;
}

static pgd_batch caps_of(const pgd_model_desc *desc) {
    return (pgd_batch){
        .size = sizeof(pgd_batch),
        .cap_tokens = desc->max_tokens,
        .cap_seqs = desc->max_seqs,
        .cap_out = desc->max_out,
        .cap_slots = desc->max_seqs,
        .cap_q = desc->max_tokens,
        .cap_kv = desc->max_model_len,
        .n_groups = desc->groups.n,
        .n_axes = 1,
        .sampling_stride = sizeof(pgd_sampling),
    };
}

pgd_status pgd_model_plan(const pgd_model_desc *desc, pgd_model_needs *out) {
    *out = (pgd_model_needs){0};
    const pgd_batch caps = caps_of(desc);
    pgd_model *m = NULL;
    PGD_TRY(pgd_model_shell(desc, &caps, &m));
    out->activation_bytes =
        pgd_model_activation_bytes(m) + pgd_model_vector_bytes(m) + pgd_model_table_bytes(m);
    pgd_status status = plan_parts(m, out);
    pgd_model_destroy(m);
    return status;
}

pgd_status pgd_model_places(const pgd_model_desc *desc, pgd_dev_place **out, uint32_t *out_n) {
    const pgd_batch caps = caps_of(desc);
    pgd_model *m = NULL;
    *out = NULL;
    *out_n = 0;
    PGD_TRY(pgd_model_shell(desc, &caps, &m));
    pgd_status status = pgd_model_llama_args(m);
    if (status == PGD_OK) {
        status = place_ops(m, out, out_n);
    }
    pgd_model_destroy(m);
    return status;
}
