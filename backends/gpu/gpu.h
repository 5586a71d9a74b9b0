// What the files of this folder share: handles, addresses, and how an op becomes launches.
//
//   ops.c    slots, support        check.c  what is taken
//   op_*.c   the ops               emit.c   addresses, live rows, launches
//   device.c memory.c queue.c graph.c weight.c kv.c   the other tables
//
// The functions here are hidden in each plugin, so that several of them live in one process.
#ifndef PGD_BACKENDS_GPU_GPU_H
#define PGD_BACKENDS_GPU_GPU_H

#include <stdatomic.h>
#include <stdbool.h>

#include <pagoda/ops.h>
#include <pagoda/plugin.h>

#include "common/common.h"
#include "driver.h"

#define GPU_ALIGN 128

#define GPU_FAIL(d, code, ...) gpu_fail((d), __FILE__, __LINE__, (code), __VA_ARGS__)

// UNSUPPORTED when a newer caller's struct carries a field this version does not know.
#define GPU_TAIL(d, T, args)                                                          \
    do {                                                                              \
        if (!pgd_args_tail_is_zero((args), (args)->size, (uint32_t)sizeof(T))) {      \
            return GPU_FAIL((d), PGD_UNSUPPORTED, "%u bytes of " #T ", known are %u", \
                            (unsigned)(args)->size, (unsigned)sizeof(T));             \
        }                                                                             \
    } while (0)

typedef struct gpu_backend {
    const pgd_host *host;
    const gpu_driver *driver;
    void *library;
    uint32_t n_devices;
} gpu_backend;

typedef struct gpu_self {
    const pgd_host *host;
    const gpu_driver *driver;
    void *device; // the driver's
    gpu_device_facts facts;
    const gpu_tuned *tuned; // NULL: only the portable kernels, and why
    char plain_reason[96];
    const char *library; // name of the vendor's library of products, NULL: none, and why
    char library_reason[96];
    int32_t library_columns; // of a part of a weight, at least (both halves of a gated one)
    int64_t library_part;    // bytes of a part that is wider
    int32_t library_rows;    // least rows of a step whose products are the library's
} gpu_self;

struct pgd_buffer {
    void *memory; // the driver's
    uint64_t bytes;
};

typedef struct gpu_ring gpu_ring;

struct pgd_queue {
    void *queue;              // the driver's
    _Atomic uint64_t given;   // highest number given out
    _Atomic uint64_t reached; // highest number known to be reached
    void *counters;           // GPU_COUNTERS_BYTES of zeros for tuned kernels, else NULL
    pgd_graph *recording;
    gpu_ring *ring;        // of weights on their way, NULL until the first
    bool has_no_ring;      // the driver has no memory that the host sees too
    bool by_library;       // the last product that asked it was the library's
    _Atomic int32_t fault; // first failure of a launch or copy, PGD_OK
};

// Rows of a weight of one format; the first is row `first` of the weight.
typedef struct gpu_matrix {
    int64_t first;
    k_weight w;
} gpu_matrix;

enum { GPU_MATRICES = 4 };

struct pgd_weight {
    pgd_weight_desc desc; // without parts and name
    pgd_buffer *buffer;
    uint64_t bytes;
    uint32_t n_matrices; // at least 1; more than 1 with PGD_SCHEME_PARTS only
    gpu_matrix matrices[GPU_MATRICES];
};

// The matrix that holds a row.
static inline const gpu_matrix *gpu_weight_matrix(const pgd_weight *w, int64_t row) {
    uint32_t i = 0;
    while (i + 1 < w->n_matrices && row >= w->matrices[i + 1].first) {
        i++;
    }
    return &w->matrices[i];
}

struct pgd_kv {
    pgd_kv_desc desc;
    pgd_buffer *buffer;
    uint64_t layer_bytes;
    k_cache cache; // of layer 0
};

extern const pgd_device_table gpu_device_table;
extern const pgd_memory_table gpu_memory_table;
extern const pgd_queue_table gpu_queue_table;
extern const pgd_weight_table gpu_weight_table;
extern const pgd_kv_table gpu_kv_table;
extern const pgd_graph_table gpu_graph_table;
extern const pgd_ops gpu_ops;

static inline const gpu_self *gpu_of(const pgd_device *d) {
    return (const gpu_self *)d->self;
}

pgd_status gpu_fail(const pgd_device *d, const char *file, int32_t line, pgd_status code,
                    const char *fmt, ...) PGD_PRINTF(5, 6) PGD_MUST_USE;

// load.c: the driver's load, with an end. A failure's sentence comes as text. [any]
pgd_status gpu_load(const pgd_host *host, const gpu_driver *driver, void **out_library,
                    char *out_text, size_t bytes) PGD_MUST_USE;

// ---- ops.c, memory.c, queue.c ------------------------------------------------------------------

pgd_status gpu_support(const pgd_device *d, const pgd_query *query, pgd_support *out);

// OK when [offset, offset + bytes) lies in the buffer.
pgd_status gpu_range(const pgd_device *d, const char *name, const pgd_buffer *buffer,
                     uint64_t offset, uint64_t bytes) PGD_MUST_USE;
// Keeps the queue's first fault.
void gpu_fault(pgd_queue *q, pgd_status code);
// Waits until the queue has done everything.
pgd_status gpu_drain(const pgd_device *d, pgd_queue *q) PGD_MUST_USE;
pgd_status gpu_not_recording(const pgd_device *d, const pgd_queue *q,
                             const char *what) PGD_MUST_USE;
pgd_status gpu_copy_now(const pgd_device *d, pgd_queue *q, const pgd_copy *list,
                        uint32_t n) PGD_MUST_USE;
pgd_status gpu_fill_now(const pgd_device *d, pgd_queue *q, const pgd_range *range,
                        uint32_t pattern) PGD_MUST_USE;

// ---- upload.c: weights from the host's pages ---------------------------------------------------

// Rows of host memory, one behind the other in `to` afterwards.
typedef struct gpu_upload_rows {
    const void *from;
    uint64_t bytes; // of a row
    uint64_t pitch; // in from
    uint64_t rows;
    pgd_buffer *to;
    uint64_t to_offset;
} gpu_upload_rows;

// Most rows of so many bytes that gpu_upload takes at once, 0: none, the driver copies them.
pgd_status gpu_upload_most(const pgd_device *d, pgd_queue *q, uint64_t bytes,
                           int64_t *out_rows) PGD_MUST_USE;
// The source is free when it returns. It waits for a slot of the ring, and for nothing else.
pgd_status gpu_upload(const pgd_device *d, pgd_queue *q, const gpu_upload_rows *u) PGD_MUST_USE;
void gpu_ring_destroy(const pgd_device *d, gpu_ring *r);

// ---- check.c, weight.c -------------------------------------------------------------------------

extern const common_rules gpu_rules;
// Layout of a weight by what it is used for.
int32_t gpu_weight_layout(const pgd_weight_desc *w);

// ---- emit.c: addresses, live rows, launches ----------------------------------------------------

// When a launch is wanted: a step of few rows over many keys is split, others are not; a product of
// one row has a kernel of its own; tuned kernels have a range of rows each.
enum { GPU_ALWAYS = 0, GPU_IF_SPLIT, GPU_IF_WHOLE, GPU_IF_ONE_ROW, GPU_IF_ROWS, GPU_IF_BETWEEN };

// In place of a kernel: a product by the vendor's library, and its parameters (op_library.c).
enum { GPU_BY_LIBRARY = -1 };

// A launch and what makes its grid follow the live counts.
typedef struct gpu_work {
    gpu_launch launch;
    bool is_own;     // not wanted when the library took the product
    pgd_batch batch; // size 0: no batch
    int32_t rows_mode;
    int32_t rows_cap;
    int32_t rows_axis; // of groups, -1: the grid is fixed
    int32_t rows_unit; // rows a group takes along that axis
    int32_t rows_from; // rows before it belong to other launches
    int32_t when;
    int32_t split_rows; // most rows of a step that is split
    int32_t rows_least; // of GPU_IF_BETWEEN, both included
    int32_t rows_most;
    int32_t keys_axis; // of groups: tiles of keys of the longest sequence, -1: none
    int32_t keys_unit; // keys a group takes, 0: K_TILE
} gpu_work;

// An op on its way to its launches. A failed step makes the further ones do nothing.
typedef struct gpu_op {
    const pgd_exec *x;
    const pgd_device *d;
    const pgd_batch *batch; // local, NULL: none
    pgd_batch local;
    int32_t rows_mode;
    int32_t cap; // rows the tensors hold
    bool is_own; // of the launches from here on
    pgd_status code;
} gpu_op;

// Opens an op: its batch and rows. shape_rows: rows of the tensor that PGD_ROWS_SHAPE counts.
void gpu_op_open(gpu_op *op, const pgd_exec *x, const pgd_batch *batch, int32_t rows_mode,
                 int64_t shape_rows);
// A launch of `kernel` with rows along an axis in units; groups of the other axes are set by the
// caller.
gpu_work gpu_work_of(const gpu_op *op, int32_t kernel, int32_t rows_axis, int32_t rows_unit);
// A tensor as memory `i` of the launch. An absent one is a view of nothing.
k_view gpu_bind(gpu_op *op, gpu_work *w, int i, const char *name, const pgd_tensor *t);
// The first matrix of a weight, a cache, and the exec's scratch.
k_weight gpu_bind_weight(gpu_op *op, gpu_work *w, int i, const pgd_weight *weight);
k_cache gpu_bind_cache(gpu_op *op, gpu_work *w, int i, const pgd_kv *kv, int32_t layer);
k_view gpu_bind_scratch(gpu_op *op, gpu_work *w, int i, uint64_t bytes);
k_rows gpu_rows(const gpu_op *op);
// Offset of an array of the batch of at least `bytes`; it fails when the array is absent.
int64_t gpu_array(gpu_op *op, const char *name, uint64_t offset, uint64_t bytes);
// Runs or records the launch. params: the kernel's own struct.
void gpu_emit(gpu_op *op, gpu_work *w, const void *params);
// The same for work whose parameters stand in it.
void gpu_add_work(gpu_op *op, gpu_work *w);
// Most rows and keys of the steps that a driver's graph is recorded for.
typedef struct gpu_sizes {
    int32_t rows;
    int32_t keys;
} gpu_sizes;

// Sequences longer than this are worth splitting.
enum { GPU_SPLIT_KEYS = 256 };

// Launches recorded or fresh work for the counts in the batch's mirror, or for sizes if not NULL.
pgd_status gpu_run(const pgd_device *d, pgd_queue *q, const gpu_work *w,
                   const gpu_sizes *sizes) PGD_MUST_USE;
// OK when the counts in the mirror fit the caps.
pgd_status gpu_counts(const pgd_device *d, const pgd_batch *batch) PGD_MUST_USE;

static inline uint32_t gpu_ceil(int64_t n, int64_t unit) {
    return (uint32_t)((n + unit - 1) / unit);
}

// ---- graph.c -----------------------------------------------------------------------------------

pgd_status gpu_record_work(const pgd_device *d, pgd_graph *g, const gpu_work *w) PGD_MUST_USE;
pgd_status gpu_record_copies(const pgd_device *d, pgd_graph *g, const pgd_copy *list,
                             uint32_t n) PGD_MUST_USE;
pgd_status gpu_record_fill(const pgd_device *d, pgd_graph *g, const pgd_range *range,
                           uint32_t pattern) PGD_MUST_USE;

// ---- the ops and the scratch they want ---------------------------------------------------------

// A product with an optional norm in front, as the fused ops have it.
typedef struct gpu_product {
    int32_t rows;
    float eps;
    const pgd_batch *batch;
    pgd_weight *w;
    const pgd_tensor *x;
    const pgd_tensor *norm_w; // rank 0: no norm
    const pgd_tensor *normed;
    const pgd_tensor *bias; // NULL: none
    const pgd_tensor *y;
    // What follows it, which tuned kernels may do in the same launch: of qkv the launch that
    // portable kernels need and its parameters; of logits where the best columns of rows go.
    const gpu_work *heads_work; // NULL: none
    const k_heads_params *heads;
    int64_t best_at;   // in scratch, 0: none
    int32_t tail_rows; // out: steps of up to so many rows have it done, 0: none
} gpu_product;
pgd_status gpu_run_product(const pgd_exec *x, gpu_product *p) PGD_MUST_USE;

// Bytes for x of a product as f32: 0 when it is taken as it lies.
uint64_t gpu_product_scratch(const pgd_device *d, const pgd_weight_desc *w, const pgd_tensor *x);
// The tuned kernels of a product and their scratch; NULL: the portable ones.
const char *gpu_tuned_product(const pgd_device *d, const pgd_weight_desc *w, const pgd_tensor *x,
                              uint64_t *out_scratch);
// op_library.c: the library's name and the scratch, NULL: it takes no step of this product.
const char *gpu_library_product(const pgd_device *d, const pgd_weight_desc *w, const pgd_tensor *x,
                                uint64_t *out_scratch);
// Before the launches of a product, which it makes `own` where the library may take steps.
void gpu_library_emit(gpu_op *op, const gpu_work *made, const k_gemm_params *p,
                      const pgd_weight *weight, const pgd_tensor *x);
pgd_status gpu_library_run(const pgd_device *d, pgd_queue *q, const gpu_work *w,
                           int32_t rows) PGD_MUST_USE;
uint64_t gpu_attn_scratch(const pgd_device *d, const pgd_attn_args *a, const pgd_kv_desc *kv,
                          const pgd_batch *batch);
const char *gpu_tuned_attn(const pgd_device *d, const pgd_attn_args *a, const pgd_kv_desc *kv,
                           const pgd_batch *b, uint64_t *out_scratch);
// Rows of a step whose tiles of keys fit into `most` bytes, [rows][heads][tiles][v_dim + 2] f32, at
// most `rows`; 0: no step is split.
int32_t gpu_attn_rows(const pgd_attn_args *a, const pgd_kv_desc *kv, const pgd_batch *b,
                      int64_t rows, uint64_t most, uint64_t *out_bytes);
uint64_t gpu_sample_scratch(const pgd_tensor *logits);
// Of head_sample, product and draw together.
uint64_t gpu_head_scratch(const pgd_device *d, const pgd_weight_desc *w, const pgd_tensor *x,
                          const pgd_tensor *logits);

#define GPU_OP_DECLARE(name, family) \
    pgd_status gpu_op_##name(const pgd_exec *x, const pgd_##name##_args *a) PGD_MUST_USE;
PGD_OP_LIST(GPU_OP_DECLARE)
#undef GPU_OP_DECLARE

#endif
