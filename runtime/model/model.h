// Models: a model is a list of calls to operations over fixed addresses.
//
//   plan    what the model needs in bytes, and whether the device runs its operations
//   create  weights prepared, vectors and rope table copied, activations allocated, args built once
//   bind    the KV cache, with as many blocks as memory allows
//   record  the step as a graph, where the device has graphs
//   run     one step: enqueues the operations; reads like the paper
//
// There is no `if (backend)` here: holes were filled when the plugin was loaded.
// Single-threaded; run allocates nothing.
#ifndef PGD_MODEL_MODEL_H
#define PGD_MODEL_MODEL_H

#include "dev/batch.h"
#include "dev/dev.h"
#include "dev/store.h"
#include "load/config.h"
#include "load/plan.h"

typedef struct pgd_model pgd_model;

// Layers of one kind of attention in groups of about the same size; each group has its own block
// tables over one pool, and layer i of every group the same place in a block.
//
//   full     layers 0 3 6          group 0
//   window   layers 1 2 4 5 7 8 9  groups 1, 2, 3 (of 3, 2 and 2 layers)
typedef struct pgd_model_groups {
    int32_t n;
    int32_t layers;  // of the largest group
    int32_t longest; // windows of so many tokens and more count as none
    int32_t reserved0;
    int32_t windows[PGD_MAX_GROUPS]; // tokens a row of the group sees, itself included; 0 = all
    int32_t n_layers[PGD_MAX_GROUPS];
} pgd_model_groups;

// Source: vLLM's hybrid KV cache document.
void pgd_model_group_layers(const pgd_load_config *config, int32_t max_model_len,
                            pgd_model_groups *out);

typedef struct pgd_model_desc {
    pgd_dev *dev;
    const pgd_load_config *config;
    const pgd_load_plan *plan;
    int32_t max_tokens;    // rows of a step
    int32_t max_seqs;      // sequences of a step, and rows of the counts
    int32_t max_out;       // output rows of a step
    int32_t max_logprobs;  // likeliest tokens an output row can list
    int32_t max_model_len; // positions of the rope table
    pgd_model_groups groups;
    int32_t block_tokens;
    int32_t kv_dtype;    // 0 = the device's own
    int32_t keep_logits; // 1: logits are always written
    void (*progress)(void *arg, const char *what, uint64_t done, uint64_t total); // may be NULL
    void *progress_arg;
    const pgd_dev_store *store; // where packed weights are kept; NULL = nowhere. Read in create.
} pgd_model_desc;

typedef struct pgd_model_needs {
    uint64_t weight_bytes;
    uint64_t activation_bytes; // with norm vectors and the rope table
    uint64_t scratch_bytes;    // pgd_exec.scratch
    uint64_t kv_block_bytes;
    uint64_t kv_fixed_bytes;
    uint64_t kv_align;
} pgd_model_needs;

// Checks the model against the device and sums what it needs; nothing is allocated on the device.
//   fails  UNSUPPORTED, naming the operation or dtype and the reason
pgd_status pgd_model_plan(const pgd_model_desc *desc, pgd_model_needs *out) PGD_MUST_USE;

// The place of every operation in the order of a step, one entry a call; *out by pgd_mem_free.
//   fails  as pgd_model_plan
pgd_status pgd_model_places(const pgd_model_desc *desc, pgd_dev_place **out,
                            uint32_t *out_n) PGD_MUST_USE;

// Loads it. batch: what op arguments will point to; outlives the model. queue: used to copy.
// The desc's plan and its file mapping may be closed once create and bind have returned.
pgd_status pgd_model_create(const pgd_model_desc *desc, const pgd_batch *batch, pgd_queue *queue,
                            pgd_model **out) PGD_MUST_USE;
pgd_status pgd_model_bind(pgd_model *m, int32_t n_blocks) PGD_MUST_USE;
// Records the step, so that run launches it. Does nothing on a device without graphs. After bind;
// run is called with an exec on the same queue from then on.
pgd_status pgd_model_record(pgd_model *m, const pgd_exec *x) PGD_MUST_USE;
void pgd_model_destroy(pgd_model *m); // NULL is fine; the queue has passed every use

// Enqueues one step over the batch. n_out: rows of the step that give logits; 0 skips the head.
pgd_status pgd_model_run(const pgd_model *m, const pgd_exec *x, int32_t n_out) PGD_MUST_USE;

// Where run leaves its results.
const pgd_tensor *pgd_model_ids(const pgd_model *m);      // [max_out] i32
const pgd_tensor *pgd_model_logits(const pgd_model *m);   // [max_out, vocab] f32
const pgd_tensor *pgd_model_logprobs(const pgd_model *m); // [max_out, 1 + max_logprobs] f32
const pgd_tensor *pgd_model_top_ids(const pgd_model *m);  // [max_out, 1 + max_logprobs] i32
const pgd_tensor *pgd_model_ranks(const pgd_model *m);    // [max_out] i32
// The counts that penalties read, a row a slot; set when a sequence takes the slot.
const pgd_tensor *pgd_model_counts(const pgd_model *m); // [max_seqs, vocab] i32
// All keys and values bytes on the device, after bind.
uint64_t pgd_model_kv_bytes(const pgd_model *m);

#endif
