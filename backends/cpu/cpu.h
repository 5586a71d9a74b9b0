// What the files of the CPU plugin share: its handles, checks and the way work is split.
//
// The queue is synchronous: a call returns when the work is done. While a graph is recorded, calls
// are kept (graph.c) and run at launch.
//
//   ops.c     slots, recording, support      check.c  what is taken
//   op_*.c    the ops                        view.c   addresses of tensors and of the batch
//   tape.c    how phases become work         weight.c, kv.c  layouts
#ifndef PGD_BACKENDS_CPU_CPU_H
#define PGD_BACKENDS_CPU_CPU_H

#include <stdatomic.h>
#include <stdbool.h>

#include <pagoda/ops.h>
#include <pagoda/plugin.h>

#include <pagoda/limits.h>

#include "common/common.h"
#include "kernels.h"
#include "quant.h"

#define CPU_ALIGN 64

#define CPU_FAIL(d, code, ...) PGD_HOST_FAIL((d)->host, (code), "cpu: " __VA_ARGS__)

// UNSUPPORTED when a newer caller's struct carries a field this version does not know.
#define CPU_TAIL(d, T, args)                                                          \
    do {                                                                              \
        if (!pgd_args_tail_is_zero((args), (args)->size, (uint32_t)sizeof(T))) {      \
            return CPU_FAIL((d), PGD_UNSUPPORTED, "%u bytes of " #T ", known are %u", \
                            (unsigned)(args)->size, (unsigned)sizeof(T));             \
        }                                                                             \
    } while (0)

// ---- handles -----------------------------------------------------------------------------------

enum { CPU_NODES = 8, CPU_MOST_WORKERS = 1024 };

// NUMA nodes that have workers; n 0 or 1: nothing is placed.
typedef struct cpu_nodes {
    uint32_t n;
    uint32_t n_workers;
    uint32_t first[CPU_NODES + 1]; // workers of the nodes before this one
    uint8_t of[CPU_MOST_WORKERS];  // node of each worker
} cpu_nodes;

typedef struct cpu_backend {
    const pgd_host *host;
    const pgd_cpu_kernels *kernels;
    int32_t dot_dtype;          // of the option act: 0 or BF16
    int32_t attn_dtype;         // of the option attn: 0 or BF16
    unsigned char *limits_room; // of limits.c, NULL until reads are measured
    uint64_t limits_bytes;
    uint64_t bytes_per_s;        // of memory, as it was when the plugin was opened; 0 = not known
    const struct cpu_blas *blas; // NULL: every product by our own kernels
    cpu_nodes nodes;
} cpu_backend;

struct pgd_buffer {
    unsigned char *ptr;
    uint64_t bytes;
    int32_t imported; // read-only, not ours
};

struct pgd_queue {
    _Atomic uint64_t value; // numbers given out, all of them reached
    pgd_graph *recording;
    int32_t role;
};

enum { CPU_LAYOUT_ROWS = 0, CPU_LAYOUT_PANELS = 1, CPU_LAYOUT_GATED = 2 };

// Panels of one scheme: all of a weight, or those of neighbouring parts of PGD_SCHEME_PARTS.
typedef struct cpu_segment {
    int32_t scheme; // PGD_SCHEME_...
    int32_t dtype;  // of a plain one
    int64_t row;    // first
    int64_t n_rows;
    int64_t panel; // first
    int64_t n_panels;
    uint64_t panel_bytes;
    unsigned char *data;
} cpu_segment;

enum { CPU_SEGMENTS = 8 };

struct pgd_weight {
    pgd_weight_desc desc; // without parts and name
    int32_t layout;       // CPU_LAYOUT_...
    uint32_t n_segments;  // at least 1
    int64_t n_panels;
    uint64_t bytes;
    cpu_segment segments[CPU_SEGMENTS];
};

struct pgd_kv {
    pgd_kv_desc desc;
    unsigned char *base;
    int32_t n_blocks;
    uint64_t block_bytes;
    uint64_t layer_bytes;
    uint64_t k_bytes; // of one head
    uint64_t v_bytes;
    uint64_t k_scales;         // where the scales of I8 lie behind K: f32 [block_tokens]
    uint64_t v_scales;         // and behind V
    int64_t k_pair;            // 1: dims of K in twos
    int64_t v_pair;            // 1: tokens of V in twos
    float *rooms;              // of attn, one a worker
    float *parts;              // of attn: results of tiles that are merged later
    _Atomic uint32_t *arrived; // [CPU_ATTN_SPLITS] items of a split that are done
    uint64_t room_floats;
    uint64_t n_runs; // of attn, made ready so far
    int64_t parts_floats;
    uint32_t n_workers;
};

extern const pgd_device_table cpu_device_table;
extern const pgd_memory_table cpu_memory_table;
extern const pgd_queue_table cpu_queue_table;
extern const pgd_weight_table cpu_weight_table;
extern const pgd_kv_table cpu_kv_table;
extern const pgd_graph_table cpu_graph_table;
extern const pgd_ops cpu_ops;
extern const pgd_limits cpu_limits_table;

static inline const cpu_backend *cpu_self(const pgd_device *d) {
    return (const cpu_backend *)d->self;
}

static inline const pgd_cpu_kernels *cpu_kernels(const pgd_exec *x) {
    return cpu_self(x->dev)->kernels;
}

static inline int64_t cpu_min(int64_t a, int64_t b) {
    return a < b ? a : b;
}

static inline int64_t cpu_max(int64_t a, int64_t b) {
    return a > b ? a : b;
}

// ---- device.c, memory.c, queue.c, graph.c ------------------------------------------------------

pgd_status cpu_support(const pgd_device *d, const pgd_query *query, pgd_support *out);

// Host address of a part of a buffer, or of host memory when buffer is NULL.
//   fails  INVALID if it does not lie inside, or is to be written and read-only
pgd_status cpu_range(const pgd_device *d, const char *name, const pgd_buffer *buffer,
                     uint64_t offset, uint64_t bytes, bool write, void **out) PGD_MUST_USE;

pgd_status cpu_copy_now(const pgd_device *d, const pgd_copy *list, uint32_t n) PGD_MUST_USE;
pgd_status cpu_fill_now(const pgd_device *d, const pgd_range *range, uint32_t pattern) PGD_MUST_USE;

// PRECONDITION while a graph is recorded on q.
pgd_status cpu_not_recording(const pgd_device *d, const pgd_queue *q,
                             const char *what) PGD_MUST_USE;
pgd_status cpu_graph_add_op(const pgd_exec *x, int32_t op, const void *args,
                            uint32_t bytes) PGD_MUST_USE;
pgd_status cpu_graph_add_copy(const pgd_device *d, pgd_graph *g, const pgd_copy *list,
                              uint32_t n) PGD_MUST_USE;
pgd_status cpu_graph_add_fill(const pgd_device *d, pgd_graph *g, const pgd_range *range,
                              uint32_t pattern) PGD_MUST_USE;

// ---- limits.c ----------------------------------------------------------------------------------

// Bytes a second that the team reads from memory, the best of three short rounds: 8 MiB (256 KiB a
// worker at least) are put out of the caches and read once, one to three milliseconds in all. It
// tells this machine from a device with memory of its own; beside busy neighbours it is as low as
// what they leave. 0: the machine cannot put lines out of its caches, or there was no memory.
uint64_t cpu_bandwidth(const pgd_host *host, const pgd_cpu_kernels *kernels);

// ---- weight.c ----------------------------------------------------------------------------------

const cpu_segment *cpu_segment_of(const pgd_weight *w, int64_t p);
// Bytes of the first k of a panel, k a multiple of PGD_CPU_DEPTH or all; UINT64_MAX for too many.
uint64_t cpu_panel_bytes(const cpu_segment *s, int64_t k);
// Columns of y that panel p makes: [*first, *first + count).
int64_t cpu_panel_columns(const pgd_weight *w, int64_t p, int64_t *first);
// Elements [k0, k0 + n) of a row as f32.
void cpu_weight_row(const pgd_cpu_kernels *k, const pgd_weight *w, int64_t row, int64_t k0,
                    int64_t n, float *out);

// ---- kv.c --------------------------------------------------------------------------------------

unsigned char *cpu_kv_k(const pgd_kv *kv, int32_t layer, int64_t head, int64_t block);
unsigned char *cpu_kv_v(const pgd_kv *kv, int32_t layer, int64_t head, int64_t block);
// The n rows of a head from a token of a block of I8 on, V as [n][v_dim], K (which 0) as [k_dim][16]
// where 16 divides token and tokens of a block, and their scales. The block holds them all.
const int8_t *cpu_kv_int8_rows(const pgd_kv *kv, int32_t layer, int32_t which, int64_t head,
                               int64_t slot, int64_t n, float *scales);
// Elements [d0, d0 + n) of the row of a head and token in a block of I8, which 0: K, as f32.
void cpu_kv_int8(const pgd_kv *kv, int32_t layer, int32_t which, int64_t head, int64_t slot,
                 int64_t d0, int64_t n, float *out);
// Rounds one head's row of `slot` into the cache.
void cpu_kv_store(const pgd_cpu_kernels *k, const pgd_kv *kv, int32_t layer, int32_t which,
                  int64_t head, int64_t slot, const float *row);

enum {
    CPU_ATTN_ROWS = 64,     // query rows (rows x heads) of a work item
    CPU_ATTN_SPLITS = 4096, // kv heads of sequences that are split over positions, at most
};
// What attn needs beside the cache; false: no memory, nothing is held.
bool cpu_attn_room_make(const pgd_host *host, pgd_kv *kv);
void cpu_attn_room_free(const pgd_host *host, pgd_kv *kv);

// ---- check.c, view.c: what is taken, and addresses ----------------------------------------------

enum { CPU_HEAD_MOST = 4096 }; // dims
extern const common_rules cpu_rules;

// Elements from row to row of x rounded to bf16: room for a pair at the end of an odd k, and no
// multiple of a page, whose lines would all fall into the same few places of a first cache.
static inline int64_t cpu_round_ld(int64_t k) {
    return (k + 31) / 32 * 32 + 32;
}
// Blocks of int8 from row to row of x for quantized weights: an odd number, for the same reason.
static inline int64_t cpu_int8_ld(int64_t k) {
    return (k + PGD_CPU_CELL - 1) / PGD_CPU_CELL / 2 * 2 + 3;
}
static inline bool cpu_is_quantized(const pgd_weight_desc *w) {
    return w->scheme != PGD_SCHEME_PLAIN;
}
// Whether rows of x are what dot products take already.
bool cpu_is_dot_form(const pgd_cpu_kernels *k, const pgd_weight_desc *w, const pgd_tensor *x);
// Bytes of scratch for x [rows, k] rounded to the weight's act_dtype, or to int8 for quantized
// weights; 0 = not rounded, or it is already.
uint64_t cpu_round_bytes(const pgd_cpu_kernels *k, const pgd_weight_desc *w, const pgd_tensor *x);

// A tensor at its host address. Missing dims have stride 0.
typedef struct cpu_view {
    float *p;
    int64_t s0;
    int64_t s1;
} cpu_view;

// Address of a whole tensor.
pgd_status cpu_view_of(const pgd_exec *x, const char *name, const pgd_tensor *t, bool write,
                       cpu_view *out) PGD_MUST_USE;

// The batch block on the host, arrays checked against its end. NULL = absent.
typedef struct cpu_batch {
    pgd_batch caps;
    unsigned char *base;
    const pgd_batch_head *head;
    const int32_t *token_ids;
    const int32_t *positions;
    const int32_t *q_start;
    const int32_t *kv_len;
    const int32_t *out_rows;
    const int32_t *out_slot;
    const int32_t *seq_slot;
    const int32_t *slots; // of the group asked for
    const int32_t *table; // of the group asked for
    const unsigned char *sampling;
    const uint32_t *mask;
    uint64_t mask_words; // at most, of all rows
    const pgd_bias *bias;
    uint64_t n_bias; // at most
    int32_t *last;
    int32_t *sampled;
} cpu_batch;

pgd_status cpu_batch_open(const pgd_exec *x, const pgd_batch *batch, int32_t group,
                          cpu_batch *out) PGD_MUST_USE;
void cpu_put_token(const cpu_batch *b, int64_t r, int32_t id);
pgd_status cpu_check_tokens(const pgd_exec *x, const cpu_batch *b, int64_t n) PGD_MUST_USE;

// ---- nodes.c: NUMA -----------------------------------------------------------------------------

// Asks every worker of the team where it is, or takes the option `nodes` at its word.
void cpu_nodes_find(const pgd_host *host, cpu_nodes *out);
// First of n items that belong to a node; of node `nodes->n`: n.
int64_t cpu_nodes_first(const cpu_nodes *nodes, uint32_t zone, int64_t n);

// ---- tape.c: phases of work --------------------------------------------------------------------

typedef void (*cpu_work_fn)(void *ctx, int64_t first, int64_t end, uint32_t worker);

// Items that may run in any order and at the same time. Workers take `chunk` of them at a time.
typedef struct cpu_phase {
    cpu_work_fn fn;
    void *ctx;
    const cpu_nodes
        *nodes; // items are parted by nodes: a node's workers take its own first; or NULL
    int64_t n;  // 0: nothing to do
    int64_t chunk;
    int64_t floats; // of all items: what they cost, roughly
    struct {
        _Alignas(64) _Atomic int64_t next;
    } zones[CPU_NODES]; // only the first is used without nodes
    _Atomic uint32_t n_arrived;
} cpu_phase;

// Sets what is to do and takes the counters back. item_floats: cost of one; chunk 0 = from that.
void cpu_phase_set(cpu_phase *p, int64_t n, int64_t item_floats, int64_t chunk);
// Runs phases one after the other, each behind the end of the one before: at most one run of the
// team for all of them.
void cpu_phases_run(const pgd_host *host, cpu_phase *const *phases, uint32_t n);

enum { CPU_PHASES = 3, CPU_STATE_BYTES = 1024 };

// An op with its addresses: made once (cpu_make_...), run often.
//   make   views of whole tensors, the batch's arrays; live row counts are not looked at
//   live   reads the counts, checks every index of the batch, sets the phases; writes nothing else
//   phases the work
typedef struct cpu_op {
    const pgd_exec *x;
    pgd_status (*live)(struct cpu_op *op);
    cpu_batch batch;
    int32_t rows_mode; // PGD_ROWS_...
    int32_t reserved0;
    int64_t shape_rows; // with PGD_ROWS_SHAPE
    int64_t cap_rows;   // that all its tensors hold
    int64_t rows;       // live
    cpu_phase phases[CPU_PHASES];
    _Alignas(64) unsigned char state[CPU_STATE_BYTES];
} cpu_op;

// The state of an op as its file's own type.
#define CPU_STATE(T, op) \
    (((void)sizeof(char[sizeof(T) <= CPU_STATE_BYTES ? 1 : -1])), (T *)(void *)(op)->state)

// Opens the batch. shape_rows: rows of the tensor that PGD_ROWS_SHAPE counts.
pgd_status cpu_op_open(cpu_op *op, const pgd_batch *batch, int32_t rows_mode, int32_t group,
                       int64_t shape_rows) PGD_MUST_USE;
// Address of a tensor whose leading dimension the live rows count.
pgd_status cpu_op_view(cpu_op *op, const char *name, const pgd_tensor *t, bool write,
                       cpu_view *out) PGD_MUST_USE;
// Reads the live counts, checks and sets the phases.
pgd_status cpu_op_live(cpu_op *op) PGD_MUST_USE;
// Puts the op's phases that have work behind *n in the list.
void cpu_op_list(cpu_op *op, cpu_phase **list, uint32_t *n);
// Makes op number `number` in *op; args outlive it (ops.c).
pgd_status cpu_op_make(cpu_op *op, const pgd_exec *x, int32_t number,
                       const void *args) PGD_MUST_USE;

// ---- steps that fused ops reuse ----------------------------------------------------------------

typedef struct cpu_norm {
    const pgd_cpu_kernels *k;
    cpu_view x, out;
    const float *w;
    int64_t heads; // 1 for rank 2
    int64_t n;
    float eps;
} cpu_norm;
void cpu_norm_rows(void *ctx, int64_t r0, int64_t r1, uint32_t worker);

typedef struct cpu_rope {
    const pgd_cpu_kernels *k;
    cpu_view q, key;
    int64_t q_heads, k_heads; // k_heads 0 = no k
    const float *table;
    const int32_t *positions;
    int64_t cap_tokens;
    int64_t table_rows;
    int64_t pairs;
    int32_t sections[4];
    int32_t interleaved;
} cpu_rope;
pgd_status cpu_rope_make(cpu_op *op, const pgd_rope_args *a, cpu_rope *out) PGD_MUST_USE;
pgd_status cpu_rope_live(const cpu_op *op, const cpu_rope *r) PGD_MUST_USE;
void cpu_rope_rows(void *ctx, int64_t r0, int64_t r1, uint32_t worker);

typedef struct cpu_kv_rows {
    const pgd_cpu_kernels *kernels;
    const pgd_kv *kv;
    int32_t layer;
    cpu_view k, v;
    const int32_t *slots;
} cpu_kv_rows;
pgd_status cpu_kv_rows_make(cpu_op *op, const pgd_kv_write_args *a, cpu_kv_rows *out) PGD_MUST_USE;
pgd_status cpu_kv_rows_live(const cpu_op *op, const cpu_kv_rows *w) PGD_MUST_USE;
void cpu_kv_write_rows(void *ctx, int64_t r0, int64_t r1, uint32_t worker);

// Absent tensors are NULL.
typedef struct cpu_sample {
    const pgd_cpu_kernels *k;
    const cpu_batch *batch;
    cpu_view logits, logprobs;
    int64_t n;
    int64_t columns; // of logprobs
    int32_t *ids;
    int32_t *top_ids;
    int64_t top_pitch;
    int32_t *ranks;
    int32_t *state;
    int64_t state_pitch, state_rows;
    float *room;      // the scratch, a part for each worker; NULL = there is none
    int64_t n_panels; // of a head that gives the best of its panels, 0 = logits are all written
    int64_t n_plain;  // live rows of which only the largest logit counts, 0 without panels
} cpu_sample;
// Bytes of scratch for rows of n logits.
uint64_t cpu_sample_bytes(const pgd_device *d, int64_t n);
pgd_status cpu_sample_init(cpu_op *op, const pgd_sample_args *a, cpu_sample *out) PGD_MUST_USE;
pgd_status cpu_sample_live(const cpu_op *op, cpu_sample *c) PGD_MUST_USE;
// Takes columns [32 index, 32 index + cols) of rows [r0, r0 + m), y [m][32]: the best of rows of
// which only that counts, all of the others.
void cpu_sample_panel(const cpu_sample *c, int64_t index, int64_t cols, int64_t r0, int64_t m,
                      const float *y);
void cpu_sample_rows(void *ctx, int64_t r0, int64_t r1, uint32_t worker);

#define CPU_OP_DECLARE(name, family) \
    pgd_status cpu_make_##name(cpu_op *op, const pgd_##name##_args *a) PGD_MUST_USE;
PGD_OP_LIST(CPU_OP_DECLARE)
#undef CPU_OP_DECLARE

#endif
