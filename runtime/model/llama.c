// The Llama family: Llama, Mistral, Qwen2, Qwen3. They differ in facts, not in code: biases, norms
// of q and k, windows, rope. Source: the model cards and "Llama 2" (arXiv 2307.09288).
//
//   h = embed(token)
//   for each layer:
//     q, k, v = norm(h) Wqkv + b; [norm q, k]; rope; k, v -> cache
//     h = h + attn(q) Wo
//     h = h + (silu(norm(h) Wgate) * norm(h) Wup) Wdown
//   token = sample(norm(h) Whead)
#include <math.h>

#include "model/inner.h"

static pgd_tensor view(pgd_tensor t, int64_t first_column, int64_t heads, int64_t dim) {
    t.offset += (uint64_t)first_column * pgd_dtype_bytes(t.dtype);
    t.rank = 3;
    t.shape[1] = heads;
    t.shape[2] = dim;
    t.stride[1] = dim;
    t.stride[2] = 1;
    return t;
}

static void qkv_args(pgd_model *m, int32_t layer, pgd_qkv_rope_write_args *a) {
    const pgd_load_config *c = m->desc.config;
    int32_t place = 0;
    const int32_t group = pgd_model_group_of(m, layer, &place);
    pgd_tensor qkv = m->activations[PGD_MODEL_qkv];
    int64_t hd = c->head_dim;
    *a = (pgd_qkv_rope_write_args){
        .size = sizeof(*a),
        .rows = PGD_ROWS_TOKENS,
        .batch = m->batch,
        .w = pgd_model_handle(m, PGD_LOAD_W_QKV, layer),
        .kv = m->kv,
        .layer = place,
        .group = group,
        .x = m->activations[PGD_MODEL_residual],
        .norm_w = pgd_model_vector(m, PGD_LOAD_V_INPUT_NORM, layer),
        .normed = m->activations[PGD_MODEL_normed],
        .bias = pgd_model_vector(m, PGD_LOAD_V_QKV_BIAS, layer),
        .qkv = qkv,
        .q = view(qkv, 0, c->n_heads, hd),
        .k = view(qkv, c->n_heads * hd, c->n_kv_heads, hd),
        .v = view(qkv, (c->n_heads + c->n_kv_heads) * hd, c->n_kv_heads, hd),
        .table = m->rope,
        .q_norm = pgd_model_vector(m, PGD_LOAD_V_Q_NORM, layer),
        .k_norm = pgd_model_vector(m, PGD_LOAD_V_K_NORM, layer),
        .eps = (float)c->norm_eps,
        .style = c->rope.style,
        .rot_dim = c->rope.rot_dim,
    };
}

static void attn_args(pgd_model *m, int32_t layer, const pgd_qkv_rope_write_args *qkv,
                      pgd_attn_args *a) {
    const pgd_load_config *c = m->desc.config;
    *a = (pgd_attn_args){
        .size = sizeof(*a),
        .rows = PGD_ROWS_TOKENS,
        .batch = m->batch,
        .kv = m->kv,
        .layer = qkv->layer,
        .group = qkv->group,
        .q = qkv->q,
        .out = view(m->activations[PGD_MODEL_attn], 0, c->n_heads, c->head_dim),
        .scale = (float)(1.0 / sqrt((double)c->head_dim)),
        .window_left = c->window[layer],
        .causal = 1,
    };
}

static void gemm_add_args(pgd_model *m, int32_t role, int32_t bias, int32_t layer, pgd_tensor x,
                          pgd_gemm_args *a) {
    *a = (pgd_gemm_args){
        .size = sizeof(*a),
        .rows = PGD_ROWS_TOKENS,
        .batch = m->batch,
        .w = pgd_model_handle(m, role, layer),
        .x = x,
        .y = m->activations[PGD_MODEL_residual],
        .bias = pgd_model_vector(m, bias, layer),
        .aux = m->activations[PGD_MODEL_residual],
        .aux_kind = PGD_AUX_ADD,
    };
}

static void gate_up_args(pgd_model *m, int32_t layer, pgd_gate_up_args *a) {
    const pgd_load_config *c = m->desc.config;
    *a = (pgd_gate_up_args){
        .size = sizeof(*a),
        .rows = PGD_ROWS_TOKENS,
        .batch = m->batch,
        .w = pgd_model_handle(m, PGD_LOAD_W_GATE_UP, layer),
        .x = m->activations[PGD_MODEL_residual],
        .norm_w = pgd_model_vector(m, PGD_LOAD_V_POST_NORM, layer),
        .normed = m->activations[PGD_MODEL_normed],
        .bias = pgd_model_vector(m, PGD_LOAD_V_GATE_UP_BIAS, layer),
        .tmp = m->activations[PGD_MODEL_gate_up],
        .out = m->activations[PGD_MODEL_act],
        .eps = (float)c->norm_eps,
        .act = c->act,
    };
}

// An activation of one column as a vector.
static pgd_tensor column_of(const pgd_model *m, int32_t which) {
    pgd_tensor t = m->activations[which];
    t.rank = 1;
    return t;
}

static void ends_args(pgd_model *m) {
    const pgd_load_config *c = m->desc.config;
    m->embed = (pgd_embed_args){
        .size = sizeof(m->embed),
        .rows = PGD_ROWS_TOKENS,
        .batch = m->batch,
        .w = pgd_model_handle(m, PGD_LOAD_W_EMBED, -1),
        .out = m->activations[PGD_MODEL_residual],
    };
    m->gather = (pgd_gather_rows_args){
        .size = sizeof(m->gather),
        .rows = PGD_ROWS_OUTPUTS,
        .batch = m->batch,
        .x = m->activations[PGD_MODEL_residual],
        .out = m->activations[PGD_MODEL_out],
    };
    m->head = (pgd_head_sample_args){
        .size = sizeof(m->head),
        .rows = PGD_ROWS_OUTPUTS,
        .batch = m->batch,
        .w = pgd_model_handle(m, c->tied ? PGD_LOAD_W_EMBED : PGD_LOAD_W_HEAD, -1),
        .x = m->activations[PGD_MODEL_out],
        .norm_w = pgd_model_vector(m, PGD_LOAD_V_FINAL_NORM, -1),
        .normed = m->activations[PGD_MODEL_out_normed],
        .logits = m->activations[PGD_MODEL_logits],
        .ids = column_of(m, PGD_MODEL_ids),
        .logprobs = m->activations[PGD_MODEL_logprobs],
        .top_ids = m->activations[PGD_MODEL_top_ids],
        .state = m->activations[PGD_MODEL_counts],
        .ranks = column_of(m, PGD_MODEL_ranks),
        .eps = (float)c->norm_eps,
        .keep_logits = m->desc.keep_logits,
    };
}

pgd_status pgd_model_llama_args(pgd_model *m) {
    for (int32_t i = 0; i < m->n_layers; i++) {
        pgd_model_layer *layer = &m->layers[i];
        qkv_args(m, i, &layer->qkv);
        attn_args(m, i, &layer->qkv, &layer->attn);
        gemm_add_args(m, PGD_LOAD_W_O, PGD_LOAD_V_O_BIAS, i, m->activations[PGD_MODEL_attn],
                      &layer->o);
        gate_up_args(m, i, &layer->gate_up);
        gemm_add_args(m, PGD_LOAD_W_DOWN, PGD_LOAD_V_DOWN_BIAS, i, m->activations[PGD_MODEL_act],
                      &layer->down);
    }
    for (int32_t i = m->n_layers - 1; i >= 0; i--) {
        m->attn_plans[m->layers[i].attn.group] = m->layers[i].attn;
    }
    ends_args(m);
    return PGD_OK;
}

pgd_status pgd_model_llama_run(const pgd_model *m, const pgd_exec *x, int32_t n_out) {
    const pgd_ops *op = x->dev->ops;
    PGD_TRY(op->embed(x, &m->embed));
    for (int32_t g = 0; g < m->desc.groups.n; g++) {
        PGD_TRY(op->attn_plan(x, &m->attn_plans[g]));
    }
    for (int32_t i = 0; i < m->n_layers; i++) {
        const pgd_model_layer *layer = &m->layers[i];
        PGD_TRY(op->qkv_rope_write(x, &layer->qkv));
        PGD_TRY(op->attn(x, &layer->attn));
        PGD_TRY(op->gemm_add(x, &layer->o));
        PGD_TRY(op->gate_up(x, &layer->gate_up));
        PGD_TRY(op->gemm_add(x, &layer->down));
    }
    if (n_out > 0) {
        PGD_TRY(op->gather_rows(x, &m->gather));
        PGD_TRY(op->head_sample(x, &m->head));
    }
    return PGD_OK;
}
