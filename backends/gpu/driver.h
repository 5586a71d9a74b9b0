// The driver table: all that differs between one GPU interface and the next.
//
//   memory | module | launch | copy | time point | graph
//
// A vendor's plugin is one file that fills a gpu_driver over the vendor's C API (opened with
// dlopen, never linked), a plugin.c that names it, and a manifest. Everything above (which kernel,
// grid, scratch, layouts, the ABI tables) is in this folder and knows no vendor.
//
// Handles are the driver's own, void * here. A function that fails says why by host->fail and gives
// the code; a lost device is DEVICE_LOST. Functions of one queue are called by one thread at a
// time; point_wait comes from any thread. Optional functions may be NULL.
#ifndef PGD_BACKENDS_GPU_DRIVER_H
#define PGD_BACKENDS_GPU_DRIVER_H

#include <stdbool.h>

#include <pagoda/backend.h>
#include <pagoda/plugin.h>

#include "portable/portable.h"

enum {
    GPU_MEMORIES = PGD_PORTABLE_MEMORIES,
    GPU_PARAMS_BYTES = 512,
    GPU_OTHERS = 3,         // memories of a tuned kernel beyond the eight
    GPU_POINTS = 64,        // time points of a queue that are told apart at once
    GPU_LIBRARY_ROWS = 512, // of a step whose products are the library's, by default
};

// A launch: one of the portable kernels, or of the driver's own, over groups[0] x groups[1] x
// groups[2] groups of its own
// number of items. Everything is read before the call returns.
typedef struct gpu_launch {
    int32_t kernel; // PGD_PORTABLE_..., from PGD_PORTABLE_COUNT on the driver's own
    uint32_t groups[3];
    void *memories[GPU_MEMORIES]; // NULL: the kernel does not use it
    _Alignas(8) unsigned char params[GPU_PARAMS_BYTES];
    // Of a tuned kernel, where n_others > 0: from byte others_at of the parameters on stand offsets
    // (int64_t) into these memories, which the driver makes addresses of. NULL: the offset stays.
    void *others[GPU_OTHERS];
    uint32_t others_at;
    uint32_t n_others;
} gpu_launch;

// pgd_copy with the driver's memories. memory NULL: offset is a host address.
typedef struct gpu_copy {
    void *dst;
    uint64_t dst_offset;
    void *src;
    uint64_t src_offset;
    uint64_t bytes;
    uint64_t rows; // at least 1
    uint64_t dst_pitch;
    uint64_t src_pitch;
} gpu_copy;

// y[m][n] = x[m][k] w[n][k]^T, and + add[m][n] where there is one (it may be y). Summed in f32, in
// an order that nobody promises.
typedef struct gpu_product_matrix {
    void *memory; // NULL: there is none
    uint64_t offset;
    int64_t stride; // elements from row to row
} gpu_product_matrix;

typedef struct gpu_product_call {
    gpu_product_matrix w;
    gpu_product_matrix x;
    gpu_product_matrix y;
    gpu_product_matrix add;
    int64_t m;
    int64_t n;
    int64_t k;
    int32_t in;    // PGD_BF16 or PGD_F16: of w and x
    int32_t out;   // of y and add: the same or PGD_F32
    void *scratch; // memory
    uint64_t scratch_offset;
    uint64_t scratch_bytes;
} gpu_product_call;

// What a device is; the shared part fills in the rest of pgd_device_info.
typedef struct gpu_device_facts {
    char name[64];
    char pci[16];
    char arch[32];
    uint8_t uuid[16];
    uint64_t bytes;       // memory
    uint64_t bytes_per_s; // 0 = unknown
    uint32_t units;
    uint32_t align;  // of the offset of a part of a buffer that stands for itself
    int32_t kind;    // PGD_DEVICE_...
    int32_t has_f64; // 0: sample is left to the host
    int32_t unit;    // of matrix products, a number of the driver's own; 0: none, or unknown
} gpu_device_facts;

typedef struct gpu_tuned gpu_tuned;

typedef struct gpu_driver {
    const char *kind;       // "ocl": the first part of device names
    const gpu_tuned *tuned; // kernels beside the portable ones (tuned.h), NULL: none
    // Optional: the table that the options want in place of this one.
    pgd_status (*choose)(const pgd_host *host, const struct gpu_driver **out_driver);

    // ---- library and devices [setup]
    // Opens the vendor's library. UNAVAILABLE with a sentence when it or its driver is not there.
    pgd_status (*load)(const pgd_host *host, void **out_library);
    void (*unload)(const pgd_host *host, void *library);
    uint32_t (*count)(void *library);
    pgd_status (*facts)(const pgd_host *host, void *library, uint32_t i, gpu_device_facts *out);
    // Makes the context and the module with the kernels.
    pgd_status (*open)(const pgd_host *host, void *library, uint32_t i, void **out_device);
    void (*close)(const pgd_host *host, void *device);
    // Optional: whether an open device took the tuned kernels that its facts promise; if not,
    // `reason` says why.
    bool (*has_tuned)(const pgd_host *host, void *device, char *reason, size_t bytes);
    // Optional: bytes free and in all.
    pgd_status (*memory)(const pgd_host *host, void *device, uint64_t *out_free,
                         uint64_t *out_total);
    // Optional [any]: DEVICE_LOST once a call found it so.
    pgd_status (*status)(const pgd_host *host, void *device);

    // ---- memory [setup]
    // Zeroed; bytes is a multiple of 4, never 0. OUT_OF_MEMORY changes nothing.
    pgd_status (*create)(const pgd_host *host, void *device, uint64_t bytes, int32_t place,
                         void **out_memory);
    void (*destroy)(const pgd_host *host, void *device, void *memory);
    // Optional: host address of the whole memory for its life, coherent at time points.
    pgd_status (*map)(const pgd_host *host, void *device, void *memory, void **out_ptr);

    // ---- queues: in order, asynchronous
    pgd_status (*queue_create)(const pgd_host *host, void *device, int32_t role, void **out_queue);
    // Waits for what is enqueued.
    void (*queue_destroy)(const pgd_host *host, void *queue);
    pgd_status (*launch)(const pgd_host *host, void *queue, const gpu_launch *launch);
    // Host memory lives until the queue has passed the copy. Not host to host.
    pgd_status (*copy)(const pgd_host *host, void *queue, const gpu_copy *copy);
    // offset and bytes are multiples of 4.
    pgd_status (*fill)(const pgd_host *host, void *queue, void *memory, uint64_t offset,
                       uint64_t bytes, uint32_t pattern);
    pgd_status (*flush)(const pgd_host *host, void *queue);

    // ---- time points: slot s of a queue, 0 to GPU_POINTS - 1
    // Slot s is reached when all before is done. The earlier use of the slot has been reached.
    pgd_status (*point)(const pgd_host *host, void *queue, uint32_t slot);
    // [any] TIMEOUT if not reached in time; 0 polls, PGD_WAIT_FOREVER.
    pgd_status (*point_wait)(const pgd_host *host, void *queue, uint32_t slot, uint64_t timeout_ns);
    // The queue goes on after slot `slot` of another queue of the device. Optional.
    pgd_status (*queue_wait)(const pgd_host *host, void *queue, void *other, uint32_t slot);

    // ---- products by the vendor's library. Optional, both or none.
    // [setup] Its name where it is there and wanted; NULL, and why it is not there if it is wanted.
    const char *(*products)(const pgd_host *host, void *library, char *reason, size_t bytes);
    // Not in a graph. UNSUPPORTED, without a sentence: the library does not take it, and nothing is
    // enqueued. only_asks: that answer alone.
    pgd_status (*product)(const pgd_host *host, void *queue, const gpu_product_call *call,
                          bool only_asks);

    // ---- graphs. Optional, all or none: without them recorded launches are launched one by one.
    // What is launched, copied and filled after begin is recorded and does not run.
    pgd_status (*graph_begin)(const pgd_host *host, void *queue);
    pgd_status (*graph_end)(const pgd_host *host, void *queue, void **out_graph);
    pgd_status (*graph_launch)(const pgd_host *host, void *queue, void *graph);
    void (*graph_destroy)(const pgd_host *host, void *device, void *graph);
} gpu_driver;

// ---- the door of a plugin ----------------------------------------------------------------------

pgd_status gpu_plugin_open(const pgd_host *host, const gpu_driver *driver, void **out_backend,
                           pgd_tables *out);
void gpu_plugin_close(void *backend);
pgd_status gpu_plugin_probe(const pgd_host *host, const gpu_driver *driver, pgd_probe *out);

// Options that are read here, for the list of a plugin.
#define GPU_OPTION_KERNELS                                                         \
    {                                                                              \
        .key = "kernels", .type = "str", .value = "",                              \
        .help = "file of compiled kernels that is used in place of those built in" \
    }
#define GPU_OPTION_DETERMINISTIC                                                              \
    {                                                                                         \
        .key = "deterministic", .type = "bool", .value = "on",                                \
        .help = "off: products of many rows may be made by the vendor's library, whose sums " \
                "depend on the number of rows"                                                \
    }
#define GPU_OPTION_LIBRARY_ROWS                                                         \
    {                                                                                   \
        .key = "library_rows", .type = "int", .value = "512",                           \
        .help = "least rows of a step whose products the vendor's library makes, with " \
                "deterministic=off"                                                     \
    }
#define GPU_OPTION_START_SECONDS                              \
    {                                                         \
        .key = "start_seconds", .type = "int", .value = "30", \
        .help = "how long the driver may take to start"       \
    }

// All of plugin.c but its options: what the plugin is, and its entry symbol. kind_name is the
// driver's kind without quotes, option_list an array of pgd_option.
#define GPU_PLUGIN_DEFINE(kind_name, table, option_list)                                       \
    static pgd_status plugin_probe(const pgd_host *host, pgd_probe *out) {                     \
        return gpu_plugin_probe(host, &(table), out);                                          \
    }                                                                                          \
    static pgd_status plugin_open(const pgd_host *host, void **out_backend, pgd_tables *out) { \
        return gpu_plugin_open(host, &(table), out_backend, out);                              \
    }                                                                                          \
    static const pgd_plugin plugin = {                                                         \
        .size = sizeof(plugin),                                                                \
        .abi_minor = PGD_ABI_MINOR,                                                            \
        .min_host_minor = 1,                                                                   \
        .role = PGD_ROLE_BACKEND,                                                              \
        .n_options = sizeof(option_list) / sizeof((option_list)[0]),                           \
        .option_stride = sizeof((option_list)[0]),                                             \
        .abi_hash = PGD_ABI_HASH,                                                              \
        .name = #kind_name,                                                                    \
        .vendor = "pagoda",                                                                    \
        .version = "0.1.0",                                                                    \
        .build = __VERSION__,                                                                  \
        .options = (option_list),                                                              \
        .probe = plugin_probe,                                                                 \
        .open = plugin_open,                                                                   \
        .close = gpu_plugin_close,                                                             \
    };                                                                                         \
    PGD_PLUGIN_DEFINE(kind_name) {                                                             \
        (void)host_minor;                                                                      \
        return &plugin;                                                                        \
    }

#endif
