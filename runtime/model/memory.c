// Shapes and sizes: activations, vectors, weights and cache of a model. See inner.h.
#include "model/inner.h"

#include "base/mem.h"

#define VECTOR_ALIGN 64
// Between the rows of an activation that products read as it lies: rows a multiple of a page apart
// would all fall into the same few places of a cache.
#define ROW_GAP_BYTES 64

// Row-major [rows, columns] without memory.
static pgd_tensor shape_of(int64_t rows, int64_t columns, int32_t dtype) {
    return (pgd_tensor){
        .dtype = dtype, .rank = 2, .shape = {rows, columns}, .stride = {columns, 1}};
}

void pgd_model_shape_activations(pgd_model *m) {
    const pgd_load_config *c = m->desc.config;
    const int64_t T = m->desc.max_tokens;
    const int64_t R = m->desc.max_out;
    const int64_t S = m->desc.max_seqs;
    const int64_t tops = 1 + (int64_t)m->desc.max_logprobs;
    const int64_t hidden = c->hidden;
    const int64_t attn = (int64_t)c->n_heads * c->head_dim;
    const int64_t qkv = attn + 2 * (int64_t)c->n_kv_heads * c->head_dim;
    const int64_t intermediate = c->intermediate;
    const int64_t gate_up = 2 * intermediate;
    const int64_t vocab = c->vocab;
    const int32_t act_dtype = m->act_dtype;
    const int32_t residual_dtype = m->residual_dtype;
    const int32_t down_dtype = m->down_dtype;
#define SHAPE(name, rows, columns, dtype, home) \
    m->activations[PGD_MODEL_##name] = shape_of(rows, columns, dtype);
    PGD_MODEL_ACTIVATIONS(SHAPE)
#undef SHAPE
    if (down_dtype != act_dtype) {
        m->activations[PGD_MODEL_act].stride[0] += ROW_GAP_BYTES / pgd_dtype_bytes(down_dtype);
    }
}

int32_t pgd_model_home(int32_t i) {
    static const int32_t homes[] = {
#define HOME(name, rows, columns, dtype, home) PGD_MODEL_##home,
        PGD_MODEL_ACTIVATIONS(HOME)
#undef HOME
    };
    return homes[i];
}

uint64_t pgd_model_home_bytes(const pgd_model *m, int32_t i) {
    uint64_t most = 0;
    for (int32_t k = 0; k < PGD_MODEL_N_ACTIVATIONS; k++) {
        const pgd_tensor *t = &m->activations[k];
        const uint64_t bytes =
            (uint64_t)t->shape[0] * (uint64_t)t->stride[0] * pgd_dtype_bytes(t->dtype);
        if (pgd_model_home(k) == i && bytes > most) {
            most = bytes;
        }
    }
    return most;
}

uint64_t pgd_model_activation_bytes(const pgd_model *m) {
    uint64_t bytes = 0;
    for (int32_t i = 0; i < PGD_MODEL_N_ACTIVATIONS; i++) {
        bytes += pgd_model_home_bytes(m, i);
    }
    return bytes;
}

static uint64_t vector_room(int64_t n) {
    return ((uint64_t)n * sizeof(float) + VECTOR_ALIGN - 1) & ~(uint64_t)(VECTOR_ALIGN - 1);
}

uint64_t pgd_model_vector_bytes(const pgd_model *m) {
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < m->desc.plan->n_vectors; i++) {
        bytes += vector_room(m->desc.plan->vectors[i].n);
    }
    return bytes;
}

uint64_t pgd_model_table_bytes(const pgd_model *m) {
    return (uint64_t)m->desc.max_model_len * (uint64_t)m->desc.config->rope.rot_dim * sizeof(float);
}

pgd_tensor pgd_model_vector(const pgd_model *m, int32_t kind, int32_t layer) {
    uint64_t offset = 0;
    for (uint32_t i = 0; i < m->desc.plan->n_vectors; i++) {
        const pgd_load_vector *v = &m->desc.plan->vectors[i];
        if (v->kind == kind && v->layer == layer) {
            return (pgd_tensor){.buffer = m->vectors,
                                .offset = m->vectors != NULL ? offset : 0,
                                .dtype = PGD_F32,
                                .rank = 1,
                                .shape = {v->n},
                                .stride = {1}};
        }
        offset += vector_room(v->n);
    }
    return (pgd_tensor){.rank = 0};
}

pgd_weight *pgd_model_handle(const pgd_model *m, int32_t role, int32_t layer) {
    for (uint32_t i = 0; m->weights != NULL && i < m->desc.plan->n_matrices; i++) {
        const pgd_load_matrix *matrix = &m->desc.plan->matrices[i];
        if (matrix->role == role && matrix->layer == layer) {
            return m->weights[i].handle;
        }
    }
    return NULL;
}

pgd_weight_desc pgd_model_weight_desc(const pgd_model *m, const pgd_load_matrix *matrix) {
    const int32_t dot_dtype = pgd_dev_info(m->desc.dev)->dot_dtype;
    return (pgd_weight_desc){
        .size = sizeof(pgd_weight_desc),
        .uses = matrix->uses,
        .scheme = matrix->scheme,
        .dtype = matrix->dtype,
        .act_dtype = matrix->dtype == PGD_BF16 ? dot_dtype : PGD_DTYPE_NONE,
        .n_parts = matrix->n_parts,
        .part_stride = sizeof(pgd_weight_part),
        .n = matrix->n,
        .k = matrix->k,
        .max_rows = m->desc.max_tokens,
        .parts = matrix->parts,
        .name = matrix->name,
    };
}

void pgd_model_kv_desc(pgd_model *m) {
    const pgd_load_config *c = m->desc.config;
    int32_t dtype = m->desc.kv_dtype;
    if (dtype == PGD_DTYPE_NONE) {
        dtype = pgd_dev_info(m->desc.dev)->kv_dtype;
    }
    if (dtype == PGD_DTYPE_NONE) {
        dtype = PGD_F32;
    }
    m->kv_desc = (pgd_kv_desc){
        .size = sizeof(pgd_kv_desc),
        .kind = PGD_KV_ATTENTION,
        .layers = m->desc.groups.layers,
        .heads = c->n_kv_heads,
        .k_dim = c->head_dim,
        .v_dim = c->head_dim,
        .k_dtype = dtype,
        .v_dtype = dtype,
        .scale_mode = dtype == PGD_I8 ? PGD_KV_SCALE_TOKEN_HEAD : PGD_KV_SCALE_NONE,
        .block_tokens = m->desc.block_tokens,
    };
}
