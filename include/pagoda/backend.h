// The backend's tables: device, memory, queue, weight, kv, graph.
//
// How it fits together: open() of a plugin fills a pgd_tables. The host copies each table into its
// own full-size one (min of both sizes), fills every hole with a composed or reference version, and
// from then on nobody tests a slot for NULL. Every function takes the pgd_device first: an open
// struct of the host that carries the plugin's state (self), the merged tables, the host, and the
// device one level down (next; NULL at the bottom) for layers.
//
//   model -> [TOP layer] -> merged tables -> [layer] -> plugin
//
// Time: a queue counts up; signal returns a number; wait, done and host_wait use it.
// Call contract: args, lists and descs are read before the call returns; handles, device memory,
// host memory named in a copy, and dst live until the queue has passed the point.
// OUT_OF_MEMORY and UNSUPPORTED change nothing. DEVICE_LOST is sticky.
//
// Thread tags: [any] any thread; [queue] one thread at a time per queue; [setup] while no queue of
// the device runs. Marks: M mandatory, H the host fills the hole.
#ifndef PAGODA_BACKEND_H
#define PAGODA_BACKEND_H

#include <pagoda/types.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct pgd_host pgd_host;
typedef struct pgd_device pgd_device;
typedef struct pgd_exec pgd_exec;
typedef struct pgd_ops pgd_ops;

// ---- growth of structs in both directions ----------------------------------------------------

// Gives a view of at least `size` bytes of an argument struct: the caller's own when it is large
// enough, else a zero-filled copy in `local`.
static inline const void *pgd_args_view(void *local, uint32_t size, const void *args,
                                        uint32_t args_size) {
    unsigned char *to = (unsigned char *)local;
    const unsigned char *from = (const unsigned char *)args;
    uint32_t i;
    if (args_size >= size) {
        return args;
    }
    for (i = 0; i < size; i++) {
        to[i] = i < args_size ? from[i] : 0;
    }
    return local;
}

// 1 when the bytes behind `size` (fields of a newer caller) are all zero, else 0.
static inline int32_t pgd_args_tail_is_zero(const void *args, uint32_t args_size, uint32_t size) {
    const unsigned char *p = (const unsigned char *)args;
    uint32_t i;
    for (i = size; i < args_size; i++) {
        if (p[i] != 0) {
            return 0;
        }
    }
    return 1;
}

// Writes a filled local out-struct into the caller's, which may be older (smaller) or newer; the
// caller's `size` stays.
static inline void pgd_out_write(void *out, uint32_t out_size, const void *local, uint32_t size) {
    unsigned char *to = (unsigned char *)out;
    const unsigned char *from = (const unsigned char *)local;
    uint32_t n = out_size < size ? out_size : size;
    uint32_t i;
    for (i = (uint32_t)sizeof(uint32_t); i < n; i++) {
        to[i] = from[i];
    }
}

#define PGD_ARGS(T, local, args) \
    ((const T *)pgd_args_view(&(local), (uint32_t)sizeof(T), (args), (args)->size))
#define PGD_OUT(out, local) pgd_out_write((out), (out)->size, &(local), (uint32_t)sizeof(local))

// ---- device ----------------------------------------------------------------------------------

enum {
    PGD_DEVICE_CPU = 1,
    PGD_DEVICE_GPU = 2,
    PGD_DEVICE_NPU = 3,
    PGD_DEVICE_OTHER = 4,
};

enum {
    PGD_CAP_HOST_VISIBLE = 1u << 0, // every buffer maps to a host address
    PGD_CAP_INVARIANT = 1u << 1,    // deterministic, batch-invariant by default
};

typedef struct pgd_device_info {
    uint32_t size;
    uint32_t kind;          // PGD_DEVICE_...
    char name[64];          // product name
    char uri[32];           // KIND:N
    char pci[16];           // "0000:65:00.0" or ""
    char arch[32];          // instruction set or chip generation
    uint8_t uuid[16];       // zero = none
    uint64_t bytes;         // memory
    uint64_t bytes_per_s;   // memory bandwidth, 0 = unknown
    uint64_t flops;         // peak of the best dot instruction, 0 = unknown
    uint32_t units;         // cores, SMs
    int32_t numa;           // node, -1 unknown
    uint64_t align;         // of buffers
    uint64_t caps;          // PGD_CAP_...
    uint32_t weight_dtypes; // bit d set: dtype d may be stored
    uint32_t act_dtypes;
    uint32_t kv_dtypes;
    int32_t act_dtype;      // what activations should be
    int32_t residual_dtype; // what the residual stream should be
    int32_t kv_dtype;       // what the cache should be by default
    int32_t dot_dtype;      // what x is rounded to before a product with bf16 weights, 0 = not
    uint32_t reserved0;
} pgd_device_info;

enum { PGD_LEVEL_NONE = 0, PGD_LEVEL_NATIVE = 1 };
enum {
    PGD_SUPPORT_CAPTURABLE = 1u << 0, // may run inside graph begin/end
    PGD_SUPPORT_INVARIANT = 1u << 1,  // one order of summation whatever the batch
};

typedef struct pgd_weight_desc pgd_weight_desc;
typedef struct pgd_kv_desc pgd_kv_desc;

// "Would you run this?" Shapes in args are exact in all but rows, which are the most there will be.
typedef struct pgd_query {
    uint32_t size;
    int32_t op;                    // PGD_OP_...
    const void *args;              // pgd_OP_args without addresses
    const pgd_weight_desc *weight; // of args->w, NULL if the op has none
    const pgd_kv_desc *kv;         // of args->kv, NULL if the op has none
    const pgd_batch *batch;        // caps only
} pgd_query;

typedef struct pgd_support {
    uint32_t size;
    int32_t level;  // PGD_LEVEL_...
    uint32_t flags; // PGD_SUPPORT_...
    uint32_t reserved0;
    uint64_t scratch; // bytes of pgd_exec.scratch, the most over all row counts
    uint64_t est_ns;  // estimate at the most rows, 0 = unknown
    char kernel[32];  // name of the kernel
    char reason[96];  // why not
} pgd_support;

typedef struct pgd_device_table {
    uint32_t size;
    uint32_t reserved0;
    // M [any] devices that open() takes.
    pgd_status (*count)(void *backend, uint32_t *out_n);
    // M [any]
    pgd_status (*info)(void *backend, uint32_t i, pgd_device_info *out);
    // M [setup] next: the device one level down for layers, else NULL.
    pgd_status (*open)(void *backend, uint32_t i, const pgd_device *next, void **out_self);
    // M [setup] all handles of the device are destroyed by then.
    void (*close)(const pgd_device *d);
    // H [any] bytes; the filler answers from info.
    pgd_status (*memory)(const pgd_device *d, uint64_t *out_free, uint64_t *out_total);
    // H [any] asked only for slots that the plugin filled; the filler says native.
    pgd_status (*support)(const pgd_device *d, const pgd_query *query, pgd_support *out);
    // H [any] PGD_OK or DEVICE_LOST.
    pgd_status (*status)(const pgd_device *d);
} pgd_device_table;

// ---- memory ----------------------------------------------------------------------------------

enum { PGD_PLACE_DEVICE = 0, PGD_PLACE_STAGING = 1 }; // STAGING: host memory the device copies fast
enum { PGD_USE_GENERAL = 0, PGD_USE_WEIGHTS = 1, PGD_USE_KV = 2, PGD_USE_BATCH = 3 };

typedef struct pgd_buffer_desc {
    uint32_t size;
    int32_t place; // PGD_PLACE_...
    int32_t use;   // PGD_USE_...
    uint32_t flags;
    uint64_t bytes;
    uint64_t align; // 0 = the device's own
} pgd_buffer_desc;

typedef struct pgd_memory_table {
    uint32_t size;
    uint32_t reserved0;
    // M [setup] zeroed. OUT_OF_MEMORY changes nothing.
    pgd_status (*create)(const pgd_device *d, const pgd_buffer_desc *desc, pgd_buffer **out);
    // M [setup] NULL is fine; the queue has passed every use.
    void (*destroy)(const pgd_device *d, pgd_buffer *buffer);
    // H [setup] makes a buffer of host memory that outlives it, read-only. Filler: UNSUPPORTED.
    pgd_status (*import)(const pgd_device *d, const void *ptr, uint64_t bytes, uint32_t flags,
                         pgd_buffer **out);
    // H [any] host address of the whole buffer, for its life, coherent at queue points.
    // Filler: UNSUPPORTED.
    pgd_status (*map)(const pgd_device *d, pgd_buffer *buffer, void **out_ptr);
} pgd_memory_table;

// ---- queue -----------------------------------------------------------------------------------

enum { PGD_QUEUE_COMPUTE = 0, PGD_QUEUE_COPY = 1 };

typedef struct pgd_queue_desc {
    uint32_t size;
    int32_t role; // PGD_QUEUE_...
    int32_t priority;
    uint32_t flags;
} pgd_queue_desc;

typedef void (*pgd_notify_fn)(void *arg, pgd_status code);

#define PGD_WAIT_FOREVER UINT64_MAX

typedef struct pgd_queue_table {
    uint32_t size;
    uint32_t reserved0;
    // M [setup]
    pgd_status (*create)(const pgd_device *d, const pgd_queue_desc *desc, pgd_queue **out);
    // M [setup] waits for what is enqueued; NULL is fine.
    void (*destroy)(const pgd_device *d, pgd_queue *q);
    // M [queue] asynchronous, in order.
    pgd_status (*copy)(const pgd_device *d, pgd_queue *q, const pgd_copy *list, uint32_t n);
    // M [queue] the number the queue will have reached when all before is done; counts up from 1.
    pgd_status (*signal)(const pgd_device *d, pgd_queue *q, uint64_t *out_value);
    // M [any] TIMEOUT if not reached in timeout_ns (0 polls, PGD_WAIT_FOREVER).
    pgd_status (*host_wait)(const pgd_device *d, pgd_queue *q, uint64_t value, uint64_t timeout_ns);
    // H [queue] fills a range with a 32-bit pattern; offset and bytes are multiples of 4.
    pgd_status (*fill)(const pgd_device *d, pgd_queue *q, const pgd_range *range, uint32_t pattern);
    // H [queue] q goes on after `other` (same device) has reached value. Filler: host_wait.
    pgd_status (*wait)(const pgd_device *d, pgd_queue *q, pgd_queue *other, uint64_t value);
    // H [any] highest number reached. Filler: unknown numbers are polled with host_wait.
    pgd_status (*done)(const pgd_device *d, pgd_queue *q, uint64_t *out_value);
    // H [queue] hands what is enqueued to the device.
    pgd_status (*flush)(const pgd_device *d, pgd_queue *q);
    // H [any] first fault since creation; code PGD_OK when there is none.
    pgd_status (*status)(const pgd_device *d, pgd_queue *q, pgd_fault *out);
    // H [queue] calls fn(arg) from any thread once value is reached. Filler: waits, then calls.
    pgd_status (*notify)(const pgd_device *d, pgd_queue *q, uint64_t value, pgd_notify_fn fn,
                         void *arg);
} pgd_queue_table;

// ---- weight: a family with embed, gemm and the fused forms of gemm -----------------------------

enum {
    PGD_USE_GEMM = 1u << 0,
    PGD_USE_EMBED = 1u << 1,   // rows are read by embed
    PGD_USE_GATE_UP = 1u << 2, // only gate_up reads it: parts 0 and 1 may be interleaved
};

// One matrix of a joined weight: rows [row_start, row_start + row_count) and the same for columns
// of a stored [rows, cols] matrix. Rows lie `part_stride` bytes apart in desc->parts.
typedef struct pgd_weight_part {
    int64_t rows;
    int64_t cols;
    int64_t row_start;
    int64_t row_count;
    int64_t col_start;
    int64_t col_count;
    pgd_source data;
    pgd_source scales; // only for PGD_SCHEME_INT8
    pgd_source zeros;
    pgd_source order;
    int32_t scheme; // since 0.2, with PGD_SCHEME_PARTS in the desc; else 0
    int32_t dtype;  // since 0.2, of a plain part with PGD_SCHEME_PARTS; else 0
} pgd_weight_part;

// W [n, k]: the parts' rows one under the other, y = W x.
struct pgd_weight_desc {
    uint32_t size;
    uint32_t uses;  // PGD_USE_...
    int32_t scheme; // PGD_SCHEME_...
    int32_t dtype;  // of the stored elements
    int32_t scale_dtype;
    int32_t act_dtype; // what x is rounded to before the product, 0 = not rounded
    int32_t group_n;
    int32_t group_k;
    uint32_t n_experts; // 0 = no experts; else parts are expert-major
    uint32_t n_parts;
    uint32_t part_stride;
    uint32_t flags;
    int64_t n;        // rows of all parts
    int64_t k;        // columns
    int64_t max_rows; // most rows of x in a call
    const pgd_weight_part *parts;
    const char *name; // for messages
};

enum {
    PGD_WEIGHT_IN_PLACE = 1u << 0,     // resident bytes are the source's own
    PGD_WEIGHT_KEEPS_SOURCE = 1u << 1, // the sources must live as long as the weight
};

typedef struct pgd_weight_plan {
    uint32_t size;
    uint32_t flags; // PGD_WEIGHT_...
    uint64_t bytes; // resident
    uint64_t align;
    uint64_t scratch; // during prepare
    // Equal desc (but for max_rows, parts' sources and name) and fingerprint: equal resident bytes,
    // which may be stored and adopted later by any process.
    uint64_t fingerprint;
} pgd_weight_plan;

typedef struct pgd_weight_table {
    uint32_t size;
    uint32_t reserved0;
    // [any] UNSUPPORTED names what is not; data sources are not read.
    pgd_status (*plan)(const pgd_device *d, const pgd_weight_desc *desc, pgd_weight_plan *out);
    // [queue] brings the sources into dst (resident layout) and makes the handle.
    pgd_status (*prepare)(const pgd_device *d, pgd_queue *q, const pgd_weight_desc *desc,
                          const pgd_range *dst, const pgd_range *scratch, pgd_weight **out);
    // [setup] makes the handle of resident bytes that already lie in dst.
    pgd_status (*adopt)(const pgd_device *d, const pgd_weight_desc *desc, const pgd_range *dst,
                        pgd_weight **out);
    // H [queue] one row as f32 [k] into out.
    pgd_status (*unpack)(const pgd_device *d, pgd_queue *q, pgd_weight *w, int64_t row,
                         const pgd_tensor *out);
    // [setup] frees the handle, not dst; NULL is fine.
    void (*destroy)(const pgd_device *d, pgd_weight *w);
} pgd_weight_table;

// ---- kv: a family with kv_write and attn -------------------------------------------------------

enum { PGD_KV_ATTENTION = 0 };
enum {
    PGD_KV_SCALE_NONE = 0,
    // Since 0.2, for k_dtype and v_dtype PGD_I8: each head of each token has an f32 scale, the
    // largest magnitude / 127, and elements round(x / scale), ties to even; all zero: scale 0.
    PGD_KV_SCALE_TOKEN_HEAD = 1,
};

// The cache of one group of layers. Block ids are the host's; block 0 is the dump block.
struct pgd_kv_desc {
    uint32_t size;
    int32_t kind; // PGD_KV_...
    int32_t layers;
    int32_t heads; // kv heads
    int32_t k_dim;
    int32_t v_dim;
    int32_t k_dtype;
    int32_t v_dtype;
    int32_t scale_mode; // PGD_KV_SCALE_...
    int32_t block_tokens;
    int32_t window; // tokens a row sees, itself included; 0 = all
    uint32_t flags;
};

typedef struct pgd_kv_plan {
    uint32_t size;
    int32_t block_tokens;
    uint64_t block_bytes; // of one block id, all layers
    uint64_t fixed_bytes; // beside the blocks
    uint64_t align;
    uint64_t fingerprint;
} pgd_kv_plan;

enum {
    PGD_KV_NATIVE = 0,    // [n_ids][block_bytes], readable by an equal fingerprint only
    PGD_KV_CANONICAL = 1, // [layer][k, v][token][head][dim] of `dtype` over n_tokens
};

typedef struct pgd_kv_image {
    uint32_t size;
    int32_t format; // PGD_KV_NATIVE or PGD_KV_CANONICAL
    int32_t dtype;  // canonical only
    int32_t n_ids;
    int32_t n_tokens; // canonical only: tokens in the blocks, in order
    uint32_t reserved0;
    const int32_t *ids; // [n_ids]
    pgd_range mem;
} pgd_kv_image;

typedef struct pgd_kv_table {
    uint32_t size;
    uint32_t reserved0;
    // [any]
    pgd_status (*plan)(const pgd_device *d, const pgd_kv_desc *desc, pgd_kv_plan *out);
    // [setup] mem holds fixed_bytes + n_blocks * block_bytes.
    pgd_status (*bind)(const pgd_device *d, const pgd_kv_desc *desc, const pgd_kv_plan *plan,
                       const pgd_range *mem, int32_t n_blocks, pgd_kv **out);
    // [setup] NULL is fine.
    void (*destroy)(const pgd_device *d, pgd_kv *kv);
    // [queue] whole blocks, all layers, in list order.
    pgd_status (*copy_blocks)(const pgd_device *d, pgd_queue *q, pgd_kv *kv, const pgd_pair *pairs,
                              uint32_t n);
    // H [queue] blocks -> image memory.
    pgd_status (*read_blocks)(const pgd_device *d, pgd_queue *q, pgd_kv *kv,
                              const pgd_kv_image *image);
    // H [queue] image memory -> blocks.
    pgd_status (*write_blocks)(const pgd_device *d, pgd_queue *q, pgd_kv *kv,
                               const pgd_kv_image *image);
} pgd_kv_table;

// ---- graph: record once, launch often ----------------------------------------------------------

typedef struct pgd_graph_desc {
    uint32_t size;
    uint32_t flags;
    uint64_t key; // names the graph; equal key: equal ops, args and addresses
} pgd_graph_desc;

// A hole as a whole means: the host runs eagerly.
typedef struct pgd_graph_table {
    uint32_t size;
    uint32_t reserved0;
    // [queue] ops after this are recorded and not run. UNSUPPORTED: run eagerly.
    pgd_status (*begin)(const pgd_device *d, pgd_queue *q, const pgd_graph_desc *desc);
    // [queue] on a failure no graph exists and the queue is out of recording.
    pgd_status (*end)(const pgd_device *d, pgd_queue *q, pgd_graph **out);
    // [queue] live counts are read from the batch block when it runs.
    pgd_status (*launch)(const pgd_device *d, pgd_queue *q, pgd_graph *graph);
    // [setup] NULL is fine.
    void (*destroy)(const pgd_device *d, pgd_graph *graph);
} pgd_graph_table;

// ---- all together ------------------------------------------------------------------------------

// What open() of a plugin gives. NULL tables are holes.
typedef struct pgd_tables {
    uint32_t size;
    uint32_t reserved0;
    const pgd_device_table *device;
    const pgd_memory_table *memory;
    const pgd_queue_table *queue;
    const pgd_weight_table *weight;
    const pgd_kv_table *kv;
    const pgd_ops *ops;
    const pgd_graph_table *graph;
    // H [any] a named, versioned table ("vendor.name.N") or NULL.
    const void *(*extension)(void *backend, const char *name);
} pgd_tables;

// A device at one level: made and owned by the host, tables merged.
struct pgd_device {
    uint32_t size;
    uint32_t flags;
    void *self; // what device.open gave
    const pgd_host *host;
    const pgd_device *next; // one level down, NULL at the bottom
    const pgd_device_table *device;
    const pgd_memory_table *memory;
    const pgd_queue_table *queue;
    const pgd_weight_table *weight;
    const pgd_kv_table *kv;
    const pgd_ops *ops;
    const pgd_graph_table *graph;
};

// How ops run: made and owned by the host, one per queue and level.
struct pgd_exec {
    uint32_t size;
    uint32_t flags;
    const pgd_device *dev;
    pgd_queue *queue;
    const pgd_exec *next; // one level down, NULL at the bottom
    pgd_range scratch;    // for native ops only, as large as support asked for
};

#ifdef __cplusplus
}
#endif
#endif
