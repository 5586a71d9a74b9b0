// The weight plan: which stored tensors make which weight of the model.
//
//   q_proj, k_proj, v_proj  -> one QKV matrix of three parts      biases, norms -> f32 vectors
//   gate_proj, up_proj      -> one GATE_UP matrix of two parts    (joined in the same order)
//
// Matrices point into the mapped files and are brought to the device by its weight table; vectors
// are small, converted to f32 here and owned by the plan. Every tensor the model needs is checked
// for presence, shape and dtype; stored tensors it does not need are left alone.
// Thread rule: one thread makes it; reads may run together.
#ifndef PGD_LOAD_PLAN_H
#define PGD_LOAD_PLAN_H

#include <pagoda/backend.h>

#include "base/team.h"
#include "load/config.h"
#include "load/weights.h"

enum {
    PGD_LOAD_W_EMBED = 0,
    PGD_LOAD_W_QKV = 1,
    PGD_LOAD_W_O = 2,
    PGD_LOAD_W_GATE_UP = 3,
    PGD_LOAD_W_DOWN = 4,
    PGD_LOAD_W_HEAD = 5, // absent when the head is tied: EMBED then has PGD_USE_GEMM too
};

enum {
    PGD_LOAD_V_INPUT_NORM = 0,   // [hidden]
    PGD_LOAD_V_POST_NORM = 1,    // [hidden] before the MLP
    PGD_LOAD_V_FINAL_NORM = 2,   // [hidden]
    PGD_LOAD_V_QKV_BIAS = 3,     // [(n_heads + 2 n_kv_heads) head_dim] q, k, v
    PGD_LOAD_V_O_BIAS = 4,       // [hidden]
    PGD_LOAD_V_GATE_UP_BIAS = 5, // [2 intermediate] gate, up
    PGD_LOAD_V_DOWN_BIAS = 6,    // [hidden]
    PGD_LOAD_V_Q_NORM = 7,       // [head_dim]
    PGD_LOAD_V_K_NORM = 8,       // [head_dim]
};

typedef struct pgd_load_matrix {
    int32_t role;  // PGD_LOAD_W_...
    int32_t layer; // -1 for EMBED and HEAD
    uint32_t uses; // PGD_USE_...
    int32_t dtype; // of all parts; PGD_DTYPE_NONE with a scheme
    int64_t n;     // rows of all parts
    int64_t k;     // columns
    uint32_t n_parts;
    int32_t scheme;           // PGD_SCHEME_...; PARTS when the parts' schemes differ
    uint64_t bytes;           // as stored, all parts
    pgd_weight_part parts[3]; // whole matrices; data.ptr aligned to the element
    char name[96];            // for messages: "model.layers.0.self_attn.{q,k,v}_proj.weight"
} pgd_load_matrix;

// How a matrix is stored, for messages: "bf16", "q4_k", "mixed".
const char *pgd_load_matrix_stored(const pgd_load_matrix *matrix);

typedef struct pgd_load_vector {
    int32_t kind;  // PGD_LOAD_V_...
    int32_t layer; // -1 for FINAL_NORM
    int64_t n;
    float *data; // [n], owned by the plan
} pgd_load_vector;

typedef struct pgd_load_plan {
    pgd_load_matrix *matrices; // [n_matrices]
    pgd_load_vector *vectors;  // [n_vectors]
    uint32_t n_matrices;
    uint32_t n_vectors;
    uint64_t weight_bytes; // matrices as stored and vectors as f32
    uint64_t params;       // numbers in the model, each counted once
    struct pgd_load_plan_inner *inner;
} pgd_load_plan;

// c and w must live as long as the plan (names and data are borrowed from w).
//   fails  NOT_FOUND (a tensor is missing), INVALID (shape, or plain dtypes differ within one
//          joined matrix), UNSUPPORTED (dtype or type of blocks): each names the tensor, the file,
//          and what is allowed
pgd_status pgd_load_plan_create(const pgd_load_config *c, const pgd_load_weights *w,
                                pgd_load_plan **out) PGD_MUST_USE;
void pgd_load_plan_destroy(pgd_load_plan *plan); // NULL is fine

// Every matrix of plain numbers becomes one of `scheme` (blocks, or INT8), made when it is taken;
// the head, and an embedding that is the head too, has at least 6 bits; rows that hold no whole
// blocks are q8_0 or stay plain. team: the workers that make them, borrowed; NULL = the caller
// alone.
//   fails  INVALID (a matrix is quantized already), OUT_OF_MEMORY; the plan is only good for
//          destroy
pgd_status pgd_load_plan_quantize(pgd_load_plan *plan, int32_t scheme, pgd_team *team) PGD_MUST_USE;
// The scheme of a name ("q4_k", "int8"); PGD_SCHEME_PLAIN when it is none.
int32_t pgd_load_scheme_of(const char *name);
// The scheme a matrix of k columns gets when `scheme` is asked for, by the rules above.
int32_t pgd_load_scheme_for(int32_t scheme, int64_t k, int32_t is_head);
#define PGD_LOAD_SCHEMES \
    "q8_0, q4_0, q4_1, q5_0, q5_1, q2_k, q3_k, q4_k, q5_k, q6_k, iq4_nl, mxfp4 and int8"

// Before and after a matrix's parts are read: weights that are made on demand get their numbers by
// take and lose them by give; of mapped files give lets the pages go. One thread.
//   fails  OUT_OF_MEMORY
pgd_status pgd_load_plan_take(const pgd_load_plan *plan,
                              const pgd_load_matrix *matrix) PGD_MUST_USE;
void pgd_load_plan_give(const pgd_load_plan *plan, const pgd_load_matrix *matrix);

// Looks at every block of a matrix for scales that are no finite numbers.
//   fails  DATA_LOSS, naming the matrix and the block
//   cost   reads the matrix once
pgd_status pgd_load_plan_check(const pgd_load_matrix *matrix) PGD_MUST_USE;

// pgd_load_weights_identity of the weights behind the plan.
pgd_status pgd_load_plan_identity(const pgd_load_plan *plan, pgd_text *t) PGD_MUST_USE;

// Calls fn for each tensor a model of this configuration stores: [n, k], or [n] with k 0.
// Ends with the first failure of fn and returns it.
typedef pgd_status (*pgd_load_plan_visit)(void *arg, const char *name, int64_t n, int64_t k);
pgd_status pgd_load_plan_walk(const pgd_load_config *c, pgd_load_plan_visit fn,
                              void *arg) PGD_MUST_USE;

// layer -1 for what belongs to no layer; NULL = the model has none.
const pgd_load_matrix *pgd_load_plan_matrix(const pgd_load_plan *plan, int32_t role, int32_t layer);
const pgd_load_vector *pgd_load_plan_vector(const pgd_load_plan *plan, int32_t kind, int32_t layer);

#endif
