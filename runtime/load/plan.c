// The weight plan (see plan.h): two tables say what a decoder-only model is made of, one row per
// matrix and per vector; the code below walks them over the layers.
//
// Order of matrices: EMBED, then QKV, O, GATE_UP, DOWN of each layer, then HEAD if it is not tied.
// Order of vectors: FINAL_NORM, then each layer's, in the order of the table.
#include "load/plan.h"

#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "base/fail.h"
#include "base/mem.h"
#include "load/fields.h"
#include "load/gguf_model.h"
#include "load/plan_inner.h"
#include "load/vector.h"

#define MAX_PARTS 3
#define NAME_CAP  96

// Lengths a shape is written with.
enum { DIM_NONE, DIM_HIDDEN, DIM_VOCAB, DIM_Q, DIM_KV, DIM_MLP, DIM_HEAD };

typedef struct matrix_row {
    int32_t role;
    uint32_t uses;
    int32_t k;                    // DIM_...
    const char *name;             // for messages
    const char *parts[MAX_PARTS]; // stored names, behind "model.layers.N."
    int32_t n[MAX_PARTS];         // DIM_... rows of each part
} matrix_row;

typedef struct vector_row {
    int32_t kind;
    size_t flag; // offset of the switch in pgd_load_config; ALWAYS = no switch
    const char *parts[MAX_PARTS];
    int32_t n[MAX_PARTS];
} vector_row;

#define ALWAYS        SIZE_MAX
#define IF_HAS(field) offsetof(pgd_load_config, field)

static const matrix_row embed_row = {PGD_LOAD_W_EMBED,
                                     PGD_USE_EMBED,
                                     DIM_HIDDEN,
                                     "model.embed_tokens",
                                     {"model.embed_tokens.weight"},
                                     {DIM_VOCAB}};
static const matrix_row head_row = {PGD_LOAD_W_HEAD, PGD_USE_GEMM,       DIM_HIDDEN,
                                    "lm_head",       {"lm_head.weight"}, {DIM_VOCAB}};
static const matrix_row layer_matrices[] = {
    {PGD_LOAD_W_QKV,
     PGD_USE_GEMM,
     DIM_HIDDEN,
     "self_attn.qkv_proj",
     {"self_attn.q_proj.weight", "self_attn.k_proj.weight", "self_attn.v_proj.weight"},
     {DIM_Q, DIM_KV, DIM_KV}},
    {PGD_LOAD_W_O,
     PGD_USE_GEMM,
     DIM_Q,
     "self_attn.o_proj",
     {"self_attn.o_proj.weight"},
     {DIM_HIDDEN}},
    {PGD_LOAD_W_GATE_UP,
     PGD_USE_GATE_UP,
     DIM_HIDDEN,
     "mlp.gate_up_proj",
     {"mlp.gate_proj.weight", "mlp.up_proj.weight"},
     {DIM_MLP, DIM_MLP}},
    {PGD_LOAD_W_DOWN,
     PGD_USE_GEMM,
     DIM_MLP,
     "mlp.down_proj",
     {"mlp.down_proj.weight"},
     {DIM_HIDDEN}},
};

static const vector_row final_norm_row = {
    PGD_LOAD_V_FINAL_NORM, ALWAYS, {"model.norm.weight"}, {DIM_HIDDEN}};
static const vector_row layer_vectors[] = {
    {PGD_LOAD_V_INPUT_NORM, ALWAYS, {"input_layernorm.weight"}, {DIM_HIDDEN}},
    {PGD_LOAD_V_POST_NORM, ALWAYS, {"post_attention_layernorm.weight"}, {DIM_HIDDEN}},
    {PGD_LOAD_V_QKV_BIAS,
     IF_HAS(attention_bias),
     {"self_attn.q_proj.bias", "self_attn.k_proj.bias", "self_attn.v_proj.bias"},
     {DIM_Q, DIM_KV, DIM_KV}},
    {PGD_LOAD_V_O_BIAS, IF_HAS(o_bias), {"self_attn.o_proj.bias"}, {DIM_HIDDEN}},
    {PGD_LOAD_V_GATE_UP_BIAS,
     IF_HAS(mlp_bias),
     {"mlp.gate_proj.bias", "mlp.up_proj.bias"},
     {DIM_MLP, DIM_MLP}},
    {PGD_LOAD_V_DOWN_BIAS, IF_HAS(mlp_bias), {"mlp.down_proj.bias"}, {DIM_HIDDEN}},
    {PGD_LOAD_V_Q_NORM, IF_HAS(qk_norm), {"self_attn.q_norm.weight"}, {DIM_HEAD}},
    {PGD_LOAD_V_K_NORM, IF_HAS(qk_norm), {"self_attn.k_norm.weight"}, {DIM_HEAD}},
};

#define N_LAYER_MATRICES (uint32_t)(sizeof(layer_matrices) / sizeof(layer_matrices[0]))
#define N_LAYER_VECTORS  (uint32_t)(sizeof(layer_vectors) / sizeof(layer_vectors[0]))

// What a walk over the tables needs.
typedef struct maker {
    const pgd_load_config *c;
    const pgd_load_weights *w;
    pgd_load_plan *plan;
} maker;

static int64_t length_of(const pgd_load_config *c, int32_t dim) {
    switch (dim) {
    case DIM_HIDDEN: return c->hidden;
    case DIM_VOCAB: return c->vocab;
    case DIM_Q: return (int64_t)c->n_heads * c->head_dim;
    case DIM_KV: return (int64_t)c->n_kv_heads * c->head_dim;
    case DIM_MLP: return c->intermediate;
    case DIM_HEAD: return c->head_dim;
    default: return 0;
    }
}

static int32_t is_wanted(const pgd_load_config *c, const vector_row *row) {
    if (row->flag == ALWAYS) {
        return 1;
    }
    int32_t value = 0;
    memcpy(&value, (const char *)c + row->flag, sizeof(value));
    return value != 0;
}

// The stored name of a part: "name" or "model.layers.N.name".
static void write_name(char out[NAME_CAP], int32_t layer, const char *name) {
    if (layer < 0) {
        (void)snprintf(out, NAME_CAP, "%s", name);
    } else {
        (void)snprintf(out, NAME_CAP, "model.layers.%d.%s", (int)layer, name);
    }
}

// Finds a tensor and checks shape [n] (k 0) or [n, k] and dtype.
static pgd_status find_tensor(const maker *m, int32_t layer, const char *part, int64_t n, int64_t k,
                              const pgd_load_tensor **out) {
    char name[NAME_CAP];
    write_name(name, layer, part);
    const pgd_load_tensor *t = pgd_load_weights_find(m->w, name);
    uint32_t rank = k != 0 ? 2 : 1;
    if (pgd_load_weights_gguf(m->w) != NULL) { // sentences say the file's names
        char own[PGD_LOAD_GGUF_NAME];
        pgd_load_gguf_name(name, own);
        (void)snprintf(name, sizeof(name), "%.*s", NAME_CAP - 1, own);
    }
    if (t == NULL) {
        return pgd_fail(PGD_NOT_FOUND, "the model has no tensor \"%s\"; a %s needs it%s", name,
                        m->c->architecture,
                        strcmp(part, head_row.parts[0]) == 0 ? " when tie_word_embeddings is false"
                                                             : "");
    }
    if (t->rank != rank || t->shape[0] != n || (rank == 2 && t->shape[1] != k)) {
        pgd_text shape = {0};
        pgd_status status = pgd_load_vector_show_shape(t, &shape);
        if (status == PGD_OK) {
            char wanted[48];
            (void)snprintf(wanted, sizeof(wanted), k != 0 ? "[%lld, %lld]" : "[%lld]", (long long)n,
                           (long long)k);
            status =
                pgd_fail(PGD_INVALID, "%s: tensor \"%s\" has shape %s; config.json asks for %s",
                         t->file, name, shape.ptr, wanted);
        }
        pgd_text_free(&shape);
        return status;
    }
    const int32_t is_plain = t->scheme == PGD_SCHEME_PLAIN;
    if (k != 0 && t->scheme > PGD_SCHEME_PLAIN) {
        *out = t;
        return PGD_OK;
    }
    if (!is_plain || (t->dtype != PGD_F32 && t->dtype != PGD_BF16 && t->dtype != PGD_F16)) {
        return pgd_fail(
            PGD_UNSUPPORTED,
            "%s: tensor \"%s\" has the type %s, which is not supported%s; F32, BF16 and "
            "F16 are%s",
            t->file, name, t->stored, k == 0 ? " for a vector" : "",
            k != 0 && pgd_load_weights_gguf(m->w) != NULL
                ? ", and Q8_0, Q4_0, Q4_1, Q5_0, Q5_1, Q2_K to Q6_K, IQ4_NL and MXFP4"
                : "");
    }
    *out = t;
    return PGD_OK;
}

// A pointer to the tensor's data that is aligned to its element: into the file, or to a copy.
static pgd_status align_data(const maker *m, const pgd_load_tensor *t, const void **out) {
    struct pgd_load_plan_inner *inner = m->plan->inner;
    *out = t->ptr;
    if (t->scheme != PGD_SCHEME_PLAIN || (uintptr_t)t->ptr % pgd_dtype_bytes(t->dtype) == 0) {
        return PGD_OK;
    }
    void *copy = pgd_mem_alloc_aligned((size_t)t->bytes, 64);
    if (copy == NULL) {
        return PGD_MEM_FAIL("an aligned copy of a tensor", t->bytes);
    }
    memcpy(copy, t->ptr, (size_t)t->bytes);
    inner->copies[inner->n_copies++] = copy;
    *out = copy;
    return PGD_OK;
}

// The scheme and dtype of x with one more part of t.
static pgd_status join_scheme(pgd_load_matrix *x, const pgd_load_tensor *t) {
    if (x->n_parts == 0) {
        x->scheme = t->scheme;
        x->dtype = t->dtype;
        return PGD_OK;
    }
    if (x->scheme == t->scheme && x->dtype == t->dtype) {
        return PGD_OK;
    }
    if (x->scheme == PGD_SCHEME_PLAIN && t->scheme == PGD_SCHEME_PLAIN) {
        return pgd_fail(PGD_INVALID,
                        "%s: tensor \"%.*s\" is %s, but the others of %s are %s; one dtype for all "
                        "of them is needed",
                        t->file, PGD_LOAD_SHOW(t->name), t->stored, x->name,
                        pgd_dtype_name(x->dtype));
    }
    x->scheme = PGD_SCHEME_PARTS;
    x->dtype = PGD_DTYPE_NONE;
    return PGD_OK;
}

static pgd_status add_part(const maker *m, pgd_load_matrix *x, int32_t layer, const char *part,
                           int64_t n, int64_t k) {
    const pgd_load_tensor *t = NULL;
    PGD_TRY(find_tensor(m, layer, part, n, k, &t));
    PGD_TRY(join_scheme(x, t));
    pgd_weight_part *p = &x->parts[x->n_parts++];
    p->rows = n;
    p->cols = k;
    p->row_count = n;
    p->col_count = k;
    p->data.bytes = t->bytes;
    if (t->scheme == PGD_SCHEME_INT8) { // rows, then their scales (synthetic.c)
        p->data.bytes = (uint64_t)n * (uint64_t)k;
        p->scales.bytes = (uint64_t)n * sizeof(float);
        p->scales.ptr = (const unsigned char *)t->ptr + (t->bytes - p->scales.bytes);
    }
    p->scheme = t->scheme;
    p->dtype = t->dtype;
    PGD_TRY(align_data(m, t, &p->data.ptr));
    x->n += n;
    x->bytes += t->bytes;
    m->plan->weight_bytes += t->bytes;
    m->plan->params += (uint64_t)n * (uint64_t)k;
    return PGD_OK;
}

static pgd_status add_matrix(const maker *m, const matrix_row *row, int32_t layer) {
    pgd_load_matrix *x = &m->plan->matrices[m->plan->n_matrices++];
    x->role = row->role;
    x->layer = layer;
    x->uses = row->uses;
    x->k = length_of(m->c, row->k);
    write_name(x->name, layer, row->name);
    if (row->role == PGD_LOAD_W_EMBED && m->c->tied) {
        x->uses |= PGD_USE_GEMM;
    }
    for (uint32_t i = 0; i < MAX_PARTS && row->parts[i] != NULL; i++) {
        PGD_TRY(add_part(m, x, layer, row->parts[i], length_of(m->c, row->n[i]), x->k));
    }
    for (uint32_t i = 0; i < x->n_parts && x->scheme != PGD_SCHEME_PARTS; i++) {
        x->parts[i].scheme = 0; // said once, by the matrix
        x->parts[i].dtype = 0;
    }
    return PGD_OK;
}

static pgd_status add_vector(const maker *m, const vector_row *row, int32_t layer) {
    pgd_load_vector *v = &m->plan->vectors[m->plan->n_vectors++];
    v->kind = row->kind;
    v->layer = layer;
    for (uint32_t i = 0; i < MAX_PARTS && row->parts[i] != NULL; i++) {
        v->n += length_of(m->c, row->n[i]);
    }
    v->data = pgd_mem_alloc((size_t)v->n, sizeof(float));
    if (v->data == NULL) {
        return PGD_MEM_FAIL(row->parts[0], (size_t)v->n * sizeof(float));
    }
    float *to = v->data;
    for (uint32_t i = 0; i < MAX_PARTS && row->parts[i] != NULL; i++) {
        const pgd_load_tensor *t = NULL;
        int64_t n = length_of(m->c, row->n[i]);
        PGD_TRY(find_tensor(m, layer, row->parts[i], n, 0, &t));
        pgd_load_vector_to_f32(t, to);
        to += n;
    }
    m->plan->weight_bytes += (uint64_t)v->n * sizeof(float);
    m->plan->params += (uint64_t)v->n;
    return PGD_OK;
}

static pgd_status add_layer(const maker *m, int32_t layer) {
    for (uint32_t i = 0; i < N_LAYER_MATRICES; i++) {
        PGD_TRY(add_matrix(m, &layer_matrices[i], layer));
    }
    for (uint32_t i = 0; i < N_LAYER_VECTORS; i++) {
        if (is_wanted(m->c, &layer_vectors[i])) {
            PGD_TRY(add_vector(m, &layer_vectors[i], layer));
        }
    }
    return PGD_OK;
}

// Room for all rows: shapes are bounded by config.h, so the counts fit 32 bits.
static pgd_status alloc_plan(const pgd_load_config *c, pgd_load_plan *plan) {
    plan->inner = pgd_mem_alloc(1, sizeof(*plan->inner));
    if (plan->inner == NULL) {
        return PGD_MEM_FAIL("the weight plan", sizeof(*plan->inner));
    }
    plan->inner->n_layers = c->n_layers;
    for (uint32_t i = 0; i < N_LAYER_VECTORS; i++) {
        plan->inner->vectors_per_layer += (uint32_t)is_wanted(c, &layer_vectors[i]);
    }
    size_t n_matrices = 2 + (size_t)c->n_layers * N_LAYER_MATRICES;
    size_t n_vectors = 1 + (size_t)c->n_layers * plan->inner->vectors_per_layer;
    plan->matrices = pgd_mem_alloc(n_matrices, sizeof(plan->matrices[0]));
    plan->vectors = pgd_mem_alloc(n_vectors, sizeof(plan->vectors[0]));
    plan->inner->copies = pgd_mem_alloc(n_matrices * MAX_PARTS, sizeof(void *));
    if (plan->matrices == NULL || plan->vectors == NULL || plan->inner->copies == NULL) {
        return PGD_MEM_FAIL("the weight plan", n_matrices * sizeof(plan->matrices[0]));
    }
    return PGD_OK;
}

static pgd_status fill_plan(const maker *m) {
    PGD_TRY(alloc_plan(m->c, m->plan));
    m->plan->inner->weights = m->w;
    PGD_TRY(add_matrix(m, &embed_row, -1));
    PGD_TRY(add_vector(m, &final_norm_row, -1));
    for (int32_t layer = 0; layer < m->c->n_layers; layer++) {
        PGD_TRY(add_layer(m, layer));
    }
    return m->c->tied ? PGD_OK : add_matrix(m, &head_row, -1);
}

pgd_status pgd_load_plan_create(const pgd_load_config *c, const pgd_load_weights *w,
                                pgd_load_plan **out) {
    *out = NULL;
    pgd_load_plan *plan = pgd_mem_alloc(1, sizeof(*plan));
    if (plan == NULL) {
        return PGD_MEM_FAIL("the weight plan", sizeof(*plan));
    }
    maker m = {.c = c, .w = w, .plan = plan};
    pgd_status status = fill_plan(&m);
    if (status != PGD_OK) {
        pgd_load_plan_destroy(plan);
        return status;
    }
    *out = plan;
    return PGD_OK;
}

void pgd_load_plan_destroy(pgd_load_plan *plan) {
    if (plan == NULL) {
        return;
    }
    for (uint32_t i = 0; i < plan->n_vectors; i++) {
        pgd_mem_free(plan->vectors[i].data);
    }
    for (uint32_t i = 0; plan->inner != NULL && i < plan->inner->n_copies; i++) {
        pgd_mem_free(plan->inner->copies[i]);
    }
    if (plan->inner != NULL) {
        pgd_mem_free(plan->inner->copies);
        pgd_load_quantized_free(plan->inner->quantized);
    }
    pgd_mem_free(plan->inner);
    pgd_mem_free(plan->vectors);
    pgd_mem_free(plan->matrices);
    pgd_mem_free(plan);
}

const pgd_load_matrix *pgd_load_plan_matrix(const pgd_load_plan *plan, int32_t role,
                                            int32_t layer) {
    uint32_t i = 0;
    if (layer >= 0) {
        if (layer >= plan->inner->n_layers || role < PGD_LOAD_W_QKV || role > PGD_LOAD_W_DOWN) {
            return NULL;
        }
        i = 1 + (uint32_t)layer * N_LAYER_MATRICES + (uint32_t)(role - PGD_LOAD_W_QKV);
    } else if (role == PGD_LOAD_W_HEAD) {
        i = plan->n_matrices - 1;
    }
    return plan->matrices[i].role == role ? &plan->matrices[i] : NULL;
}

const pgd_load_vector *pgd_load_plan_vector(const pgd_load_plan *plan, int32_t kind,
                                            int32_t layer) {
    uint32_t n = plan->inner->vectors_per_layer;
    if (layer < 0) {
        return kind == PGD_LOAD_V_FINAL_NORM ? &plan->vectors[0] : NULL;
    }
    if (layer >= plan->inner->n_layers) {
        return NULL;
    }
    const pgd_load_vector *first = &plan->vectors[1 + (uint32_t)layer * n];
    for (uint32_t i = 0; i < n; i++) {
        if (first[i].kind == kind) {
            return &first[i];
        }
    }
    return NULL;
}

const char *pgd_load_matrix_stored(const pgd_load_matrix *matrix) {
    return matrix->scheme == PGD_SCHEME_PLAIN ? pgd_dtype_name(matrix->dtype)
                                              : pgd_scheme_name(matrix->scheme);
}

pgd_status pgd_load_plan_take(const pgd_load_plan *plan, const pgd_load_matrix *matrix) {
    int32_t made = 0;
    PGD_TRY(pgd_load_quantized_take(plan, matrix, &made));
    for (uint32_t i = 0; !made && i < matrix->n_parts; i++) {
        pgd_load_weights_take(plan->inner->weights, matrix->parts[i].data.ptr);
    }
    return PGD_OK;
}

void pgd_load_plan_give(const pgd_load_plan *plan, const pgd_load_matrix *matrix) {
    if (pgd_load_quantized_give(plan, matrix)) {
        return;
    }
    for (uint32_t i = 0; i < matrix->n_parts; i++) {
        const pgd_source *source = &matrix->parts[i].data;
        pgd_load_weights_give(plan->inner->weights, source->ptr, source->bytes);
    }
}

pgd_status pgd_load_plan_identity(const pgd_load_plan *plan, pgd_text *t) {
    return pgd_load_weights_identity(plan->inner->weights, t);
}

// ---- walking without weights -------------------------------------------------------------------

static pgd_status visit_parts(const pgd_load_config *c, int32_t layer, const char *const *parts,
                              const int32_t *n, int64_t k, pgd_load_plan_visit fn, void *arg) {
    for (uint32_t i = 0; i < MAX_PARTS && parts[i] != NULL; i++) {
        char name[NAME_CAP];
        write_name(name, layer, parts[i]);
        PGD_TRY(fn(arg, name, length_of(c, n[i]), k));
    }
    return PGD_OK;
}

static pgd_status visit_matrix(const pgd_load_config *c, const matrix_row *row, int32_t layer,
                               pgd_load_plan_visit fn, void *arg) {
    return visit_parts(c, layer, row->parts, row->n, length_of(c, row->k), fn, arg);
}

pgd_status pgd_load_plan_walk(const pgd_load_config *c, pgd_load_plan_visit fn, void *arg) {
    PGD_TRY(visit_matrix(c, &embed_row, -1, fn, arg));
    PGD_TRY(visit_parts(c, -1, final_norm_row.parts, final_norm_row.n, 0, fn, arg));
    for (int32_t layer = 0; layer < c->n_layers; layer++) {
        for (uint32_t i = 0; i < N_LAYER_MATRICES; i++) {
            PGD_TRY(visit_matrix(c, &layer_matrices[i], layer, fn, arg));
        }
        for (uint32_t i = 0; i < N_LAYER_VECTORS; i++) {
            const vector_row *row = &layer_vectors[i];
            if (is_wanted(c, row)) {
                PGD_TRY(visit_parts(c, layer, row->parts, row->n, 0, fn, arg));
            }
        }
    }
    return c->tied ? PGD_OK : visit_matrix(c, &head_row, -1, fn, arg);
}
