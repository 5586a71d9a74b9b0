// What the files of `pagoda bench ops` share.
//
//   bench_ops.c            cases, timing, reports
//   bench_ops_args.c       the device's side: arguments, weights, cache and batch of a case
//   bench_ops_yardstick.c  other people's libraries on the same shapes
#ifndef PGD_CLI_BENCH_OPS_H
#define PGD_CLI_BENCH_OPS_H

#include <pagoda/ops.h>
#include <pagoda/yardsticks.h>

#include "base/team.h"
#include "cli/bench.h"
#include "dev/batch.h"
#include "load/plan.h"

enum {
    CLI_OPS_TOKENS = 512,  // most rows of x
    CLI_OPS_SEQS = 64,     // most sequences, and rows of the head
    CLI_OPS_LIBRARIES = 4, // most yardsticks
};

// An op of the model in one of its places.
typedef struct ops_row {
    const char *name;
    int32_t op;    // PGD_OP_...
    int32_t role;  // PGD_LOAD_W_..., -1: it has no weight
    int32_t fused; // 1: rows are counted by the batch, with norm, residual or cache write
    int32_t top_p; // sample: draws among the likeliest instead of taking the largest
} ops_row;

typedef struct ops_case {
    const ops_row *row;
    int32_t rows;      // of x
    int32_t n_seqs;    // fused: sequences the rows belong to, equal parts
    int32_t context;   // fused: tokens of each in the cache behind the step
    int32_t yardstick; // number of the library, -1: the device
    int32_t limit;     // PGD_LIMIT_DOT_... that a yardstick is judged by
} ops_case;

typedef struct ops_weight {
    pgd_weight *handle;
    pgd_buffer *buffer;
} ops_weight;

typedef union ops_args {
    pgd_gemm_args gemm;
    pgd_gate_up_args gate_up;
    pgd_qkv_rope_write_args qkv;
    pgd_attn_args attn;
    pgd_head_sample_args head;
    pgd_sample_args sample;
    pgd_rmsnorm_args rmsnorm;
} ops_args;

enum { OPS_X, OPS_Y, OPS_TMP, OPS_NORMED, OPS_VECTOR, OPS_TABLE, OPS_IDS, OPS_N_BUFFERS };

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
    pgd_dev_batch *batch;
    pgd_kv_desc kv_desc;
    pgd_kv *kv;
    pgd_buffer *kv_memory;
    int32_t most_context; // tokens that one sequence may have
    int32_t n_blocks;
    int32_t *table; // room for one sequence's blocks
    pgd_buffer *buffers[OPS_N_BUFFERS];
    const ops_row *prepared; // whose weights are there
    ops_weight *weights;     // [n_layers]
    int32_t n_weights;
    uint64_t set_bytes;                              // of all of them
    const pgd_yardsticks *yardsticks;                // NULL: the device has none
    pgd_yardstick_info libraries[CLI_OPS_LIBRARIES]; // [n_libraries]
    int32_t n_libraries;
    pgd_yardstick *yardstick; // open, of yardstick_case
    ops_case yardstick_case;
    int32_t n_yardstick_weights;
    ops_case *cases;     // [b.n_samples]
    char (*kernels)[32]; // [cli_ops_n_rows]
    double *calls_us;
} ops_run;

extern const ops_row cli_ops_rows[];
extern const int32_t cli_ops_n_rows;

// ---- bench_ops_args.c --------------------------------------------------------------------------

// The matrix of an op in a layer; NULL when there is none.
const pgd_load_matrix *cli_ops_matrix(const ops_run *r, const ops_row *row, int32_t layer);
// Opens device, model, buffers, batch and cache; most_context tokens of one sequence, and
// n_positions in the cache at once.
pgd_status cli_ops_open(ops_run *r, const char *model, int32_t n_positions) PGD_MUST_USE;
void cli_ops_close(ops_run *r);
// Prepares the weights of the case's op (all layers, at most 1 GiB) unless they are there, and
// fills and uploads the batch.
pgd_status cli_ops_prepare(ops_run *r, const ops_case *c) PGD_MUST_USE;
// Calls the op with layer number `at` and waits for its end.
pgd_status cli_ops_call(const ops_run *r, const ops_case *c, int32_t at) PGD_MUST_USE;

// ---- bench_ops_yardstick.c ---------------------------------------------------------------------

// Says for people which library is not there, and why.
void cli_ops_yardstick_list(const ops_run *r);
// The cases of all libraries for one product: at most CLI_OPS_LIBRARIES * PGD_LIMIT_COUNT.
int32_t cli_ops_yardstick_cases(const ops_run *r, const ops_case *like, ops_case *out);
// Makes the case's product ready unless it is.
pgd_status cli_ops_yardstick_prepare(ops_run *r, const ops_case *c) PGD_MUST_USE;
pgd_status cli_ops_yardstick_call(const ops_run *r, int32_t at) PGD_MUST_USE;
void cli_ops_yardstick_close(ops_run *r);
const char *cli_ops_yardstick_name(const ops_run *r, const ops_case *c);
// ,"yardsticks":[{"name":..,"version":..,"reason":..}]
pgd_status cli_ops_yardstick_json(const ops_run *r, pgd_text *t) PGD_MUST_USE;

#endif
