// What the files of the model room share: the model's parts and its prebuilt arguments.
#ifndef PGD_MODEL_INNER_H
#define PGD_MODEL_INNER_H

#include "model/model.h"

// Activations at fixed addresses. Shapes: T = max_tokens, R = max_out, S = max_seqs. `home` is the
// one in whose memory it lies: two that never hold something needed at the same time share it. Of a
// layer:
//   normed -> qkv -> attn -> (residual) -> normed -> gate_up -> act -> (residual)
// attn is written when normed was used up, act when qkv was; no operation has both of a pair. act,
// the widest, lies as down's product rounds it anyway where the device takes that (down_dtype).
//   X(name, rows, columns, dtype, home)
#define PGD_MODEL_ACTIVATIONS(X)                     \
    X(residual, T, hidden, residual_dtype, residual) \
    X(normed, T, hidden, act_dtype, normed)          \
    X(qkv, T, qkv, act_dtype, act)                   \
    X(attn, T, attn, act_dtype, normed)              \
    X(gate_up, T, gate_up, act_dtype, gate_up)       \
    X(act, T, intermediate, down_dtype, act)         \
    X(out, R, hidden, residual_dtype, out)           \
    X(out_normed, R, hidden, act_dtype, out_normed)  \
    X(logits, R, vocab, PGD_F32, logits)             \
    X(ids, R, 1, PGD_I32, ids)                       \
    X(logprobs, R, tops, PGD_F32, logprobs)          \
    X(top_ids, R, tops, PGD_I32, top_ids)            \
    X(ranks, R, 1, PGD_I32, ranks)                   \
    X(counts, S, vocab, PGD_I32, counts)

enum {
#define PGD_MODEL_ENUM(name, rows, columns, dtype, home) PGD_MODEL_##name,
    PGD_MODEL_ACTIVATIONS(PGD_MODEL_ENUM)
#undef PGD_MODEL_ENUM
        PGD_MODEL_N_ACTIVATIONS
};

// A weight and the memory its bytes live in.
typedef struct pgd_model_weight {
    pgd_weight *handle;
    pgd_buffer *buffer;
} pgd_model_weight;

typedef struct pgd_model_layer {
    pgd_qkv_rope_write_args qkv;
    pgd_attn_args attn;
    pgd_gemm_args o;
    pgd_gate_up_args gate_up;
    pgd_gemm_args down;
} pgd_model_layer;

struct pgd_model {
    pgd_model_desc desc; // config and plan are read in create and bind only
    const pgd_device *d;
    const pgd_batch *batch;
    int32_t n_layers;
    int32_t n_weights;
    int32_t act_dtype;
    int32_t residual_dtype;
    int32_t down_dtype; // of act
    int32_t reserved0;
    pgd_model_weight *weights; // in the order of the plan's matrices
    pgd_dev_blob packed;       // of the store; weights lie in it while packed_buffer is there
    pgd_buffer *packed_buffer;
    pgd_tensor activations[PGD_MODEL_N_ACTIVATIONS];
    pgd_buffer *vectors; // norm weights and biases, f32, one after the other
    pgd_buffer *table;   // rope
    pgd_tensor rope;
    pgd_kv *kv;
    pgd_buffer *kv_memory;
    pgd_kv_desc kv_desc;
    uint64_t kv_bytes;
    pgd_embed_args embed;
    pgd_attn_args attn_plans[PGD_MAX_GROUPS]; // of each group, the args of its first layer
    pgd_model_layer *layers;
    pgd_gather_rows_args gather;
    pgd_head_sample_args head;
    pgd_graph *graphs[2]; // steps without and with output rows; NULL: run eagerly
};

// create.c: a model without memory on the device: shapes and dtypes only.
pgd_status pgd_model_shell(const pgd_model_desc *desc, const pgd_batch *batch,
                           pgd_model **out) PGD_MUST_USE;

// llama.c: builds the arguments over the model's addresses (handles and buffers may still be NULL:
// then only shapes are set, which is what planning needs).
pgd_status pgd_model_llama_args(pgd_model *m) PGD_MUST_USE;
// Calls the operations of a step in order; n_out 0 skips the head.
pgd_status pgd_model_llama_run(const pgd_model *m, const pgd_exec *x, int32_t n_out) PGD_MUST_USE;

// groups.c: which group a layer is in, and its number there.
int32_t pgd_model_group_of(const pgd_model *m, int32_t layer, int32_t *out_index);
// create.c
pgd_status pgd_model_buffer(const pgd_model *m, int32_t use, uint64_t bytes, uint64_t align,
                            pgd_buffer **out) PGD_MUST_USE;
pgd_status pgd_model_wait(const pgd_model *m, pgd_queue *q) PGD_MUST_USE;

// packed.c: weights as they lie on the device, from the store and into it. Nothing that fails here
// keeps a model from loading: find then finds nothing, keep keeps nothing, the log says why.
typedef struct pgd_model_packed {
    const pgd_dev_store *store; // NULL: not used for this model
    pgd_hash key;
    uint64_t *sizes; // [n_weights]
} pgd_model_packed;

// The key: what the numbers are and how this device lays them out.
void pgd_model_packed_open(pgd_model *m, pgd_model_packed *p);
// 1 when all weights were found and adopted.
int32_t pgd_model_packed_find(pgd_model *m, const pgd_model_packed *p, pgd_queue *q);
// Writes the weights that were prepared.
void pgd_model_packed_keep(pgd_model *m, const pgd_model_packed *p, pgd_queue *q);
void pgd_model_packed_close(pgd_model_packed *p);

// memory.c
pgd_weight_desc pgd_model_weight_desc(const pgd_model *m, const pgd_load_matrix *matrix);
// Sets shapes, dtypes and strides of all activations, without buffers.
void pgd_model_shape_activations(pgd_model *m);
// The one whose memory activation i lies in.
int32_t pgd_model_home(int32_t i);
// Bytes of the memory of home i: those of the largest that lies there; 0 when i is none.
uint64_t pgd_model_home_bytes(const pgd_model *m, int32_t i);
uint64_t pgd_model_activation_bytes(const pgd_model *m); // of all
// The view of a norm weight or bias; rank 0 when the model has none.
pgd_tensor pgd_model_vector(const pgd_model *m, int32_t kind, int32_t layer);
pgd_weight *pgd_model_handle(const pgd_model *m, int32_t role, int32_t layer);
uint64_t pgd_model_vector_bytes(const pgd_model *m);
uint64_t pgd_model_table_bytes(const pgd_model *m); // of the rope table
void pgd_model_kv_desc(pgd_model *m);
// plan.c: sets down_dtype and act's shape: what every layer's down rounds its x to, when the device
// writes and reads that; the same bits come out. Else act_dtype.
pgd_status pgd_model_settle_down(pgd_model *m) PGD_MUST_USE;
// The queries of every operation of the model, for pgd_dev_plan.
pgd_status pgd_model_queries(const pgd_model *m, pgd_query **out, pgd_weight_desc **out_descs,
                             uint32_t *out_n) PGD_MUST_USE;

#endif
