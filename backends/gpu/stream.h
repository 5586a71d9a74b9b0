// What CUDA's driver API and HIP's module API have in common: nearly all. The same calls with the
// same arguments and the same error numbers, under two sets of names.
//
//   gpu_stream_vendor   the names, and the few things that differ; one per plugin
//   gpu_stream_*        the functions of a gpu_driver over them
//
// Types are spelled out, because neither vendor's headers are needed to build: handles are void *,
// addresses of the device 64 bits, results int (both are enums of int's size).
//
//   context  made current by each call that needs one: calls come from any thread
//   memory   an address of the device, or pinned host memory that the device sees too (STAGING)
//   queue    a stream that does not wait for the default stream; time points are its events
//   graph    stream capture
#ifndef PGD_BACKENDS_GPU_STREAM_H
#define PGD_BACKENDS_GPU_STREAM_H

#include <stdatomic.h>

#include "blaslt.h"
#include "driver.h"
#include "tuned.h"

// X(slot, parameters): the calls, which all return an error number, 0 = success.
#define GPU_STREAM_CALLS(X)                                                                     \
    X(init, (unsigned flags))                                                                   \
    X(driver_version, (int *out))                                                               \
    X(device_count, (int *out))                                                                 \
    X(device_get, (int *out, int i))                                                            \
    X(device_name, (char *out, int bytes, int device))                                          \
    X(device_bytes, (size_t * out, int device))                                                 \
    X(device_uuid, (void *out, int device))                                                     \
    X(device_attribute, (int *out, int what, int device))                                       \
    X(device_pci, (char *out, int bytes, int device))                                           \
    X(module_load, (void **out, const void *image))                                             \
    X(module_unload, (void *module))                                                            \
    X(module_function, (void **out, void *module, const char *name))                            \
    X(launch, (void *function, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, \
               unsigned bz, unsigned shared, void *stream, void **params, void **extra))        \
    X(alloc, (uint64_t * out, size_t bytes))                                                    \
    X(free, (uint64_t address))                                                                 \
    X(host_alloc, (void **out, size_t bytes, unsigned flags))                                   \
    X(host_free, (void *ptr))                                                                   \
    X(memory_info, (size_t * out_free, size_t * out_total))                                     \
    X(copy_in, (uint64_t dst, const void *src, size_t bytes, void *stream))                     \
    X(copy_out, (void *dst, uint64_t src, size_t bytes, void *stream))                          \
    X(copy_on, (uint64_t dst, uint64_t src, size_t bytes, void *stream))                        \
    X(fill, (uint64_t dst, unsigned pattern, size_t n, void *stream))                           \
    X(stream_create, (void **out, unsigned flags))                                              \
    X(stream_destroy, (void *stream))                                                           \
    X(stream_synchronize, (void *stream))                                                       \
    X(stream_wait_event, (void *stream, void *event, unsigned flags))                           \
    X(capture_begin, (void *stream, int mode))                                                  \
    X(capture_end, (void *stream, void **out_graph))                                            \
    X(event_create, (void **out, unsigned flags))                                               \
    X(event_destroy, (void *event))                                                             \
    X(event_record, (void *event, void *stream))                                                \
    X(event_query, (void *event))                                                               \
    X(event_synchronize, (void *event))                                                         \
    X(graph_launch, (void *exec, void *stream))                                                 \
    X(graph_exec_destroy, (void *exec))                                                         \
    X(graph_destroy, (void *graph))

enum {
#define GPU_STREAM_NUMBER(slot, params) GPU_STREAM_##slot,
    GPU_STREAM_CALLS(GPU_STREAM_NUMBER)
#undef GPU_STREAM_NUMBER
        GPU_STREAM_COUNT,
    GPU_STREAM_OWN = 10, // most calls of a vendor alone
};

// Error numbers that both use.
enum {
    GPU_STREAM_OUT_OF_MEMORY = 2,
    GPU_STREAM_NO_DEVICE = 100,
    GPU_STREAM_INVALID_DEVICE = 101,
    GPU_STREAM_NOT_READY = 600,
};

typedef struct gpu_stream_api {
#define GPU_STREAM_SLOT(slot, params) int(*slot) params;
    GPU_STREAM_CALLS(GPU_STREAM_SLOT)
#undef GPU_STREAM_SLOT
} gpu_stream_api;

typedef void (*gpu_stream_call)(void);

typedef struct gpu_stream_vendor gpu_stream_vendor;

typedef struct gpu_stream_library {
    const gpu_stream_vendor *vendor;
    gpu_stream_api api;
    gpu_stream_call own[GPU_STREAM_OWN]; // in the order of own_names
    uint32_t n_devices;
    int version; // of the driver, as it says it
    gpu_blaslt_library blaslt;
} gpu_stream_library;

typedef struct gpu_stream_device {
    const gpu_stream_library *library;
    const gpu_stream_api *api;
    int number;    // the vendor's
    void *context; // NULL where the number is the context
    void *module;
    void *tuned_module; // NULL: the device has only the portable kernels
    void *functions[PGD_PORTABLE_COUNT + GPU_MOST_TUNED];
    bool overlaps;        // tuned kernels may come before the one before them has ended
    void *setup;          // stream that fills new memories
    _Atomic int32_t lost; // 1 once a call said so
} gpu_stream_device;

// A kernel image and the chips it is for.
typedef struct gpu_stream_image {
    const char *arch; // "gfx942"; "" = the driver chooses in it
    const void *data;
} gpu_stream_image;

// A copy of rows, neither end NULL: addresses of the device or of the host.
typedef struct gpu_stream_rows {
    uint64_t dst;
    uint64_t dst_pitch;
    uint64_t src;
    uint64_t src_pitch;
    uint64_t bytes;
    uint64_t rows;
    int32_t dst_is_host;
    int32_t src_is_host;
} gpu_stream_rows;

typedef struct gpu_stream_grid {
    uint32_t groups[3];
    uint32_t items;  // of a group
    uint32_t shared; // bytes of dynamic shared memory
} gpu_stream_grid;

struct gpu_stream_vendor {
    const char *kind;
    const char *driver;             // "NVIDIA driver": in sentences
    const char *const *libraries;   // names to try, up to a NULL
    const char *const *names;       // GPU_STREAM_COUNT symbols
    const char *const *own_names;   // up to a NULL; a leading '?' marks one that may be absent
    const gpu_stream_image *images; // up to one with data NULL
    const gpu_tuned *tuned;         // NULL: none
    const gpu_stream_image *tuned_images;
    const gpu_blaslt_vendor *blaslt; // NULL: none
    // Lets a function have so much dynamic shared memory. An error number.
    int (*allow_shared)(const gpu_stream_device *d, void *function, uint32_t bytes);
    // Optional, both or none: whether tuned kernels of a device may be brought to its processors
    // while the kernel before them runs, for which they wait by themselves; and such a launch.
    bool (*overlaps)(const pgd_host *host, const gpu_stream_library *l, const char *arch);
    int (*launch_overlapping)(const gpu_stream_device *d, void *function, const gpu_stream_grid *g,
                              void *stream, void **params);
    const char *built_with; // compiler of the images, NULL: there are none
    // Text of an error number; NULL is fine.
    const char *(*error_text)(const gpu_stream_library *l, int error);
    // Context of device `number`; made current by enter. Fails with an error number.
    int (*context_create)(const gpu_stream_library *l, int number, void **out);
    void (*context_destroy)(const gpu_stream_library *l, int number, void *context);
    int (*enter)(const gpu_stream_device *d);
    // Numbers of attributes: clock of the memory in kHz, its bus in bits, processors.
    int memory_clock;
    int memory_bus;
    int processors;
    // Name of the chip; empty when it cannot be told.
    void (*arch)(const gpu_stream_library *l, int number, char *out, size_t bytes);
    int (*copy_rows)(const gpu_stream_device *d, const gpu_stream_rows *c, void *stream);
    int (*graph_instantiate)(const gpu_stream_device *d, void *graph, void **out_exec);
};

#define GPU_STREAM_FAIL(host, vendor, code, fmt, ...) \
    PGD_HOST_FAIL((host), (code), "%s: " fmt, (vendor)->kind, __VA_ARGS__)

// A status for an error number, with a sentence that names the call.
pgd_status gpu_stream_error(const pgd_host *host, const gpu_stream_library *l, const char *call,
                            int error) PGD_MUST_USE;

// stream_load.c: library, devices, kernels.
// The image of a list for a chip, NULL: there is none.
const void *gpu_stream_image_of(const gpu_stream_image *images, const char *arch);
// 0 when the device does not say.
int gpu_stream_attribute(const gpu_stream_library *l, int what, int number);
pgd_status gpu_stream_load(const pgd_host *host, const gpu_stream_vendor *vendor,
                           void **out_library) PGD_MUST_USE;
pgd_status gpu_stream_load_kernels(const pgd_host *host, gpu_stream_device *d,
                                   const char *arch) PGD_MUST_USE;
void gpu_stream_unload(const pgd_host *host, void *library);
uint32_t gpu_stream_count(void *library);
pgd_status gpu_stream_facts(const pgd_host *host, void *library, uint32_t i,
                            gpu_device_facts *out) PGD_MUST_USE;

// stream.c: the other functions of gpu_driver; fills all but kind and load.
pgd_status gpu_stream_open(const pgd_host *host, void *library, uint32_t i,
                           void **out_device) PGD_MUST_USE;
void gpu_stream_close(const pgd_host *host, void *device);
pgd_status gpu_stream_memory(const pgd_host *host, void *device, uint64_t *out_free,
                             uint64_t *out_total) PGD_MUST_USE;
pgd_status gpu_stream_status(const pgd_host *host, void *device) PGD_MUST_USE;
pgd_status gpu_stream_create(const pgd_host *host, void *device, uint64_t bytes, int32_t place,
                             void **out_memory) PGD_MUST_USE;
void gpu_stream_destroy(const pgd_host *host, void *device, void *memory);
pgd_status gpu_stream_map(const pgd_host *host, void *device, void *memory,
                          void **out_ptr) PGD_MUST_USE;
pgd_status gpu_stream_queue_create(const pgd_host *host, void *device, int32_t role,
                                   void **out_queue) PGD_MUST_USE;
void gpu_stream_queue_destroy(const pgd_host *host, void *queue);
pgd_status gpu_stream_launch(const pgd_host *host, void *queue,
                             const gpu_launch *launch) PGD_MUST_USE;
pgd_status gpu_stream_copy(const pgd_host *host, void *queue, const gpu_copy *copy) PGD_MUST_USE;
pgd_status gpu_stream_fill(const pgd_host *host, void *queue, void *memory, uint64_t offset,
                           uint64_t bytes, uint32_t pattern) PGD_MUST_USE;
pgd_status gpu_stream_flush(const pgd_host *host, void *queue) PGD_MUST_USE;
pgd_status gpu_stream_point(const pgd_host *host, void *queue, uint32_t slot) PGD_MUST_USE;
pgd_status gpu_stream_point_wait(const pgd_host *host, void *queue, uint32_t slot,
                                 uint64_t timeout_ns) PGD_MUST_USE;
pgd_status gpu_stream_queue_wait(const pgd_host *host, void *queue, void *other,
                                 uint32_t slot) PGD_MUST_USE;
const char *gpu_stream_products(const pgd_host *host, void *library, char *reason, size_t bytes);
pgd_status gpu_stream_product(const pgd_host *host, void *queue, const gpu_product_call *call,
                              bool only_asks) PGD_MUST_USE;
pgd_status gpu_stream_graph_begin(const pgd_host *host, void *queue) PGD_MUST_USE;
pgd_status gpu_stream_graph_end(const pgd_host *host, void *queue, void **out_graph) PGD_MUST_USE;
pgd_status gpu_stream_graph_launch(const pgd_host *host, void *queue, void *graph) PGD_MUST_USE;
void gpu_stream_graph_destroy(const pgd_host *host, void *device, void *graph);

// All functions of a gpu_driver but load.
#define GPU_STREAM_DRIVER                                                                    \
    .unload = gpu_stream_unload, .count = gpu_stream_count, .facts = gpu_stream_facts,       \
    .open = gpu_stream_open, .close = gpu_stream_close, .memory = gpu_stream_memory,         \
    .status = gpu_stream_status, .create = gpu_stream_create, .destroy = gpu_stream_destroy, \
    .map = gpu_stream_map, .queue_create = gpu_stream_queue_create,                          \
    .queue_destroy = gpu_stream_queue_destroy, .launch = gpu_stream_launch,                  \
    .copy = gpu_stream_copy, .fill = gpu_stream_fill, .flush = gpu_stream_flush,             \
    .point = gpu_stream_point, .point_wait = gpu_stream_point_wait,                          \
    .queue_wait = gpu_stream_queue_wait, .products = gpu_stream_products,                    \
    .product = gpu_stream_product, .graph_begin = gpu_stream_graph_begin,                    \
    .graph_end = gpu_stream_graph_end, .graph_launch = gpu_stream_graph_launch,              \
    .graph_destroy = gpu_stream_graph_destroy

#endif
