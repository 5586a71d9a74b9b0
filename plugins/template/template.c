// A plugin to copy: every function of the interface is here and answers UNSUPPORTED.
//
// How to go on (README.md says more):
//   1. rename "template" to your kind in this file, CMakeLists.txt and the manifest
//   2. probe: count your devices; then device, memory, queue: fourteen functions, and the host runs
//      whole models on your device with its own kernels and copies (--allow-slow)
//   3. weight + embed + gemm, then kv + kv_write + attn, then the rest, in the order of the time
//      that `pagoda plan MODEL --device KIND` shows
//
// A slot in LATER is a hole: the host fills it (a hole is better than a function that fails).
// Write the function, then take LATER away.
#include <pagoda/ops.h>
#include <pagoda/plugin.h>

#define LATER(fn) (1 ? NULL : (fn))

// Puts a sentence into the caller's slot; say the thing, the value and what is allowed.
#define FAIL(d, code, ...) PGD_HOST_FAIL((d)->host, (code), __VA_ARGS__)
#define NOT_YET(d, what)   FAIL((d), PGD_UNSUPPORTED, "template: %s is not written yet", (what))

// State of one open of the plugin, made by plugin_open. Handles are yours to define.
typedef struct template_backend {
    const pgd_host *host;
} template_backend;

struct pgd_buffer {
    uint64_t bytes;
};

struct pgd_queue {
    uint64_t given; // last number given
};

// ---- device ------------------------------------------------------------------------------------

static pgd_status device_count(void *backend, uint32_t *out_n) {
    (void)backend;
    *out_n = 0;
    return PGD_OK;
}

// Sets at least kind, name, bytes, align, the dtype masks and the three preferred dtypes.
static pgd_status device_info(void *backend, uint32_t i, pgd_device_info *out) {
    const template_backend *self = backend;
    pgd_device_info local = {.size = sizeof(local), .kind = PGD_DEVICE_OTHER, .numa = -1};
    PGD_OUT(out, local);
    return PGD_HOST_FAIL(self->host, PGD_NOT_FOUND, "template: there is no device %u", i);
}

// out_self becomes d->self of every later call.
static pgd_status device_open(void *backend, uint32_t i, const pgd_device *next, void **out_self) {
    const template_backend *self = backend;
    (void)next;
    *out_self = NULL;
    return PGD_HOST_FAIL(self->host, PGD_NOT_FOUND, "template: there is no device %u", i);
}

static void device_close(const pgd_device *d) {
    (void)d;
}

static pgd_status device_memory(const pgd_device *d, uint64_t *out_free, uint64_t *out_total) {
    *out_free = 0;
    *out_total = 0;
    return NOT_YET(d, "device.memory");
}

// Answers for exact shapes before a model is loaded. Look at your own functions, never at d->ops:
// those are the merged ones, in which no slot is empty.
static pgd_status device_support(const pgd_device *d, const pgd_query *query, pgd_support *out) {
    pgd_support local = {.size = sizeof(local), .level = PGD_LEVEL_NONE, .reason = "not written"};
    (void)d;
    (void)query;
    PGD_OUT(out, local);
    return PGD_OK;
}

// DEVICE_LOST once the device is gone, and for ever after.
static pgd_status device_status(const pgd_device *d) {
    (void)d;
    return PGD_OK;
}

// ---- memory ------------------------------------------------------------------------------------

// Zeroed. OUT_OF_MEMORY must leave everything as it was.
static pgd_status memory_create(const pgd_device *d, const pgd_buffer_desc *desc,
                                pgd_buffer **out) {
    (void)desc;
    *out = NULL;
    return NOT_YET(d, "memory.create");
}

static void memory_destroy(const pgd_device *d, pgd_buffer *buffer) {
    d->host->free(d->host, buffer);
}

static pgd_status memory_import(const pgd_device *d, const void *ptr, uint64_t bytes,
                                uint32_t flags, pgd_buffer **out) {
    (void)ptr;
    (void)bytes;
    (void)flags;
    *out = NULL;
    return NOT_YET(d, "memory.import");
}

// Only if the CPU sees the memory; then set PGD_CAP_HOST_VISIBLE in device_info.
static pgd_status memory_map(const pgd_device *d, pgd_buffer *buffer, void **out_ptr) {
    (void)buffer;
    *out_ptr = NULL;
    return NOT_YET(d, "memory.map");
}

// ---- queue -------------------------------------------------------------------------------------

static pgd_status queue_create(const pgd_device *d, const pgd_queue_desc *desc, pgd_queue **out) {
    (void)desc;
    *out = NULL;
    return NOT_YET(d, "queue.create");
}

static void queue_destroy(const pgd_device *d, pgd_queue *q) {
    d->host->free(d->host, q);
}

// Lists are read before the return; host memory named in them lives until the queue point.
// dst or src NULL: the offset is a host address. rows > 1: rows of `bytes`, pitches apart.
static pgd_status queue_copy(const pgd_device *d, pgd_queue *q, const pgd_copy *list, uint32_t n) {
    (void)q;
    (void)list;
    (void)n;
    return NOT_YET(d, "queue.copy");
}

static pgd_status queue_signal(const pgd_device *d, pgd_queue *q, uint64_t *out_value) {
    (void)q;
    *out_value = 0;
    return NOT_YET(d, "queue.signal");
}

// TIMEOUT if the number is not reached in time; 0 polls.
static pgd_status queue_host_wait(const pgd_device *d, pgd_queue *q, uint64_t value,
                                  uint64_t timeout_ns) {
    (void)q;
    (void)value;
    (void)timeout_ns;
    return NOT_YET(d, "queue.host_wait");
}

static pgd_status queue_fill(const pgd_device *d, pgd_queue *q, const pgd_range *range,
                             uint32_t pattern) {
    (void)q;
    (void)range;
    (void)pattern;
    return NOT_YET(d, "queue.fill");
}

static pgd_status queue_wait(const pgd_device *d, pgd_queue *q, pgd_queue *other, uint64_t value) {
    (void)q;
    (void)other;
    (void)value;
    return NOT_YET(d, "queue.wait");
}

static pgd_status queue_done(const pgd_device *d, pgd_queue *q, uint64_t *out_value) {
    (void)q;
    *out_value = 0;
    return NOT_YET(d, "queue.done");
}

static pgd_status queue_flush(const pgd_device *d, pgd_queue *q) {
    (void)q;
    return NOT_YET(d, "queue.flush");
}

static pgd_status queue_status(const pgd_device *d, pgd_queue *q, pgd_fault *out) {
    (void)q;
    *out = (pgd_fault){.code = PGD_OK, .op = -1, .layer = -1};
    return NOT_YET(d, "queue.status");
}

static pgd_status queue_notify(const pgd_device *d, pgd_queue *q, uint64_t value, pgd_notify_fn fn,
                               void *arg) {
    (void)q;
    (void)value;
    (void)fn;
    (void)arg;
    return NOT_YET(d, "queue.notify");
}

// ---- weights: a family with embed, gemm and the fused forms of gemm -----------------------------

// How large the resident form is. The sources are not read here.
static pgd_status weight_plan(const pgd_device *d, const pgd_weight_desc *desc,
                              pgd_weight_plan *out) {
    (void)desc;
    (void)out;
    return NOT_YET(d, "weight.plan");
}

// Brings the parts' rows, one under the other, into dst in your own layout.
static pgd_status weight_prepare(const pgd_device *d, pgd_queue *q, const pgd_weight_desc *desc,
                                 const pgd_range *dst, const pgd_range *scratch, pgd_weight **out) {
    (void)q;
    (void)desc;
    (void)dst;
    (void)scratch;
    *out = NULL;
    return NOT_YET(d, "weight.prepare");
}

// The resident bytes are in dst already.
static pgd_status weight_adopt(const pgd_device *d, const pgd_weight_desc *desc,
                               const pgd_range *dst, pgd_weight **out) {
    (void)desc;
    (void)dst;
    *out = NULL;
    return NOT_YET(d, "weight.adopt");
}

static pgd_status weight_unpack(const pgd_device *d, pgd_queue *q, pgd_weight *w, int64_t row,
                                const pgd_tensor *out) {
    (void)q;
    (void)w;
    (void)row;
    (void)out;
    return NOT_YET(d, "weight.unpack");
}

static void weight_destroy(const pgd_device *d, pgd_weight *w) {
    d->host->free(d->host, w);
}

// ---- the cache: a family with kv_write and attn -------------------------------------------------

static pgd_status kv_plan(const pgd_device *d, const pgd_kv_desc *desc, pgd_kv_plan *out) {
    (void)desc;
    (void)out;
    return NOT_YET(d, "kv.plan");
}

static pgd_status kv_bind(const pgd_device *d, const pgd_kv_desc *desc, const pgd_kv_plan *plan,
                          const pgd_range *mem, int32_t n_blocks, pgd_kv **out) {
    (void)desc;
    (void)plan;
    (void)mem;
    (void)n_blocks;
    *out = NULL;
    return NOT_YET(d, "kv.bind");
}

static void kv_destroy(const pgd_device *d, pgd_kv *kv) {
    d->host->free(d->host, kv);
}

static pgd_status kv_copy_blocks(const pgd_device *d, pgd_queue *q, pgd_kv *kv,
                                 const pgd_pair *pairs, uint32_t n) {
    (void)q;
    (void)kv;
    (void)pairs;
    (void)n;
    return NOT_YET(d, "kv.copy_blocks");
}

static pgd_status kv_read_blocks(const pgd_device *d, pgd_queue *q, pgd_kv *kv,
                                 const pgd_kv_image *image) {
    (void)q;
    (void)kv;
    (void)image;
    return NOT_YET(d, "kv.read_blocks");
}

static pgd_status kv_write_blocks(const pgd_device *d, pgd_queue *q, pgd_kv *kv,
                                  const pgd_kv_image *image) {
    (void)q;
    (void)kv;
    (void)image;
    return NOT_YET(d, "kv.write_blocks");
}

// ---- graphs ------------------------------------------------------------------------------------

static pgd_status graph_begin(const pgd_device *d, pgd_queue *q, const pgd_graph_desc *desc) {
    (void)q;
    (void)desc;
    return NOT_YET(d, "graph.begin");
}

static pgd_status graph_end(const pgd_device *d, pgd_queue *q, pgd_graph **out) {
    (void)q;
    *out = NULL;
    return NOT_YET(d, "graph.end");
}

static pgd_status graph_launch(const pgd_device *d, pgd_queue *q, pgd_graph *graph) {
    (void)q;
    (void)graph;
    return NOT_YET(d, "graph.launch");
}

static void graph_destroy(const pgd_device *d, pgd_graph *graph) {
    d->host->free(d->host, graph);
}

// ---- ops: one function for each name of PGD_OP_LIST ---------------------------------------------

// Replace the line of an op by a function of that name. Its args are in <pagoda/ops.h>, its
// definition in kernels/ref. Live row counts are in the batch block on the device.
#define OP(name)                                                                 \
    static pgd_status op_##name(const pgd_exec *x, const pgd_##name##_args *a) { \
        (void)a;                                                                 \
        return NOT_YET(x->dev, #name);                                           \
    }

OP(embed)
OP(gather_rows)
OP(rmsnorm)
OP(rope)
OP(gemm)
OP(kv_write)
OP(attn_plan)
OP(attn)
OP(act_mul)
OP(add)
OP(argmax)
OP(sample)
OP(add_rmsnorm)
OP(qkv_rope_write)
OP(gate_up)
OP(gemm_add)
OP(head_sample)

// ---- tables ------------------------------------------------------------------------------------

static const pgd_device_table device_table = {
    .size = sizeof(device_table),
    .count = device_count,
    .info = device_info,
    .open = device_open,
    .close = device_close,
    .memory = LATER(device_memory),
    .support = device_support,
    .status = device_status,
};

static const pgd_memory_table memory_table = {
    .size = sizeof(memory_table),
    .create = memory_create,
    .destroy = memory_destroy,
    .import = LATER(memory_import),
    .map = LATER(memory_map),
};

static const pgd_queue_table queue_table = {
    .size = sizeof(queue_table),
    .create = queue_create,
    .destroy = queue_destroy,
    .copy = queue_copy,
    .signal = queue_signal,
    .host_wait = queue_host_wait,
    .fill = LATER(queue_fill),
    .wait = LATER(queue_wait),
    .done = LATER(queue_done),
    .flush = LATER(queue_flush),
    .status = LATER(queue_status),
    .notify = LATER(queue_notify),
};

static const pgd_weight_table weight_table = {
    .size = sizeof(weight_table),
    .plan = LATER(weight_plan),
    .prepare = LATER(weight_prepare),
    .adopt = LATER(weight_adopt),
    .unpack = LATER(weight_unpack),
    .destroy = LATER(weight_destroy),
};

static const pgd_kv_table kv_table = {
    .size = sizeof(kv_table),
    .plan = LATER(kv_plan),
    .bind = LATER(kv_bind),
    .destroy = LATER(kv_destroy),
    .copy_blocks = LATER(kv_copy_blocks),
    .read_blocks = LATER(kv_read_blocks),
    .write_blocks = LATER(kv_write_blocks),
};

static const pgd_graph_table graph_table = {
    .size = sizeof(graph_table),
    .begin = LATER(graph_begin),
    .end = LATER(graph_end),
    .launch = LATER(graph_launch),
    .destroy = LATER(graph_destroy),
};

static const pgd_ops ops_table = {
    .size = sizeof(ops_table),
    .embed = LATER(op_embed),
    .gather_rows = LATER(op_gather_rows),
    .rmsnorm = LATER(op_rmsnorm),
    .rope = LATER(op_rope),
    .gemm = LATER(op_gemm),
    .kv_write = LATER(op_kv_write),
    .attn_plan = LATER(op_attn_plan),
    .attn = LATER(op_attn),
    .act_mul = LATER(op_act_mul),
    .add = LATER(op_add),
    .argmax = LATER(op_argmax),
    .sample = LATER(op_sample),
    .add_rmsnorm = LATER(op_add_rmsnorm),
    .qkv_rope_write = LATER(op_qkv_rope_write),
    .gate_up = LATER(op_gate_up),
    .gemm_add = LATER(op_gemm_add),
    .head_sample = LATER(op_head_sample),
};

// ---- entry -------------------------------------------------------------------------------------

// Options a user may give in braces behind the device's name; the host refuses all others.
static const pgd_option options[] = {
    {"driver", "str", "", "path of the vendor's driver library; empty: the usual one"},
};

// Looks for devices without opening any. Open the vendor's driver with dlopen: on a machine without
// it the user gets this sentence, not a loader's error.
static pgd_status plugin_probe(const pgd_host *host, pgd_probe *out) {
    pgd_probe local = {
        .size = sizeof(local),
        .reason = "the template is there to be copied and drives no device",
    };
    (void)host;
    PGD_OUT(out, local);
    return PGD_OK;
}

static pgd_status plugin_open(const pgd_host *host, void **out_backend, pgd_tables *out) {
    pgd_tables local = {
        .size = sizeof(local),
        .device = &device_table,
        .memory = &memory_table,
        .queue = &queue_table,
        .weight = &weight_table,
        .kv = &kv_table,
        .ops = &ops_table,
        .graph = &graph_table,
    };
    template_backend *self = host->alloc(host, sizeof(*self), 0);
    *out_backend = self;
    if (self == NULL) {
        return PGD_HOST_FAIL(host, PGD_OUT_OF_MEMORY, "template: no memory for the backend");
    }
    self->host = host;
    PGD_OUT(out, local);
    return PGD_OK;
}

static void plugin_close(void *backend) {
    template_backend *self = backend;
    self->host->free(self->host, self);
}

PGD_PLUGIN_DEFINE(template) {
    static const pgd_plugin plugin = {
        .size = sizeof(plugin),
        .abi_minor = PGD_ABI_MINOR,
        .min_host_minor = 1,
        .role = PGD_ROLE_BACKEND,
        .n_options = sizeof(options) / sizeof(options[0]),
        .option_stride = sizeof(options[0]),
        .abi_hash = PGD_ABI_HASH,
        .name = "template",
        .vendor = "pagoda",
        .version = "0.1.0",
        .build = "",
        .options = options,
        .probe = plugin_probe,
        .open = plugin_open,
        .close = plugin_close,
    };
    (void)host_minor;
    return &plugin;
}
