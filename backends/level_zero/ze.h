// The driver table over the Level Zero C API: what driver.c, queue.c and plugin.c share.
#ifndef PGD_BACKENDS_LEVEL_ZERO_ZE_H
#define PGD_BACKENDS_LEVEL_ZERO_ZE_H

#include <level_zero/ze_api.h>

#include "../gpu/driver.h"
#include "../gpu/matrix.h"

// Every function of the API that is used: found by name in the loader's library.
#define ZE_FUNCTIONS(X)                       \
    X(zeCommandListAppendBarrier)             \
    X(zeCommandListAppendEventReset)          \
    X(zeCommandListAppendLaunchKernel)        \
    X(zeCommandListAppendMemoryCopy)          \
    X(zeCommandListAppendMemoryCopyRegion)    \
    X(zeCommandListAppendMemoryFill)          \
    X(zeCommandListClose)                     \
    X(zeCommandListCreate)                    \
    X(zeCommandListCreateImmediate)           \
    X(zeCommandListDestroy)                   \
    X(zeCommandQueueCreate)                   \
    X(zeCommandQueueDestroy)                  \
    X(zeCommandQueueExecuteCommandLists)      \
    X(zeContextCreate)                        \
    X(zeContextDestroy)                       \
    X(zeContextGetStatus)                     \
    X(zeDeviceGet)                            \
    X(zeDeviceGetComputeProperties)           \
    X(zeDeviceGetCommandQueueGroupProperties) \
    X(zeDeviceGetMemoryProperties)            \
    X(zeDeviceGetModuleProperties)            \
    X(zeDeviceGetProperties)                  \
    X(zeDevicePciGetPropertiesExt)            \
    X(zeDriverGet)                            \
    X(zeEventCreate)                          \
    X(zeEventDestroy)                         \
    X(zeEventHostReset)                       \
    X(zeEventHostSynchronize)                 \
    X(zeEventPoolCreate)                      \
    X(zeEventPoolDestroy)                     \
    X(zeInit)                                 \
    X(zeKernelCreate)                         \
    X(zeKernelDestroy)                        \
    X(zeKernelSetArgumentValue)               \
    X(zeKernelSetGroupSize)                   \
    X(zeMemAllocDevice)                       \
    X(zeMemAllocHost)                         \
    X(zeMemFree)                              \
    X(zeMemGetAllocProperties)                \
    X(zeModuleBuildLogDestroy)                \
    X(zeModuleBuildLogGetString)              \
    X(zeModuleCreate)                         \
    X(zeModuleDestroy)

typedef struct ze_api {
#define ZE_SLOT(name) __typeof__(&name) name;
    ZE_FUNCTIONS(ZE_SLOT)
#undef ZE_SLOT
} ze_api;

enum { ZE_DEVICES = 32 };

typedef struct ze_library {
    void *handle;
    ze_api ze;
    uint32_t n_devices;
    ze_driver_handle_t drivers[ZE_DEVICES]; // of each device
    ze_device_handle_t devices[ZE_DEVICES]; // GPUs of all drivers, in the loader's order
} ze_library;

typedef struct ze_device {
    const ze_api *ze;
    ze_device_handle_t device;
    ze_context_handle_t context;
    ze_module_handle_t module;      // made with the first queue
    ze_module_handle_t tuned;       // kernels/matrix; NULL: the portable kernels alone
    ze_command_list_handle_t setup; // runs each command before it returns: for zeroing memories
    uint32_t ordinal;               // of the queues that take kernels
    int32_t has_f64;
    int32_t unit;        // ZE_UNIT_...
    uint64_t most_bytes; // of an allocation within the driver's usual limits
} ze_device;

#define ZE_FAIL(host, code, ...) PGD_HOST_FAIL((host), (code), "ze: " __VA_ARGS__)

// A status for a Level Zero result, with a sentence that names the call.
pgd_status ze_error(const pgd_host *host, const char *call, ze_result_t result) PGD_MUST_USE;

#define ZE_TRY(host, ze, name, ...) PGD_TRY(ze_error((host), #name, (ze)->name(__VA_ARGS__)))

// The kernels as SPIR-V (made at build time): with double precision and without.
typedef struct ze_kernels {
    const unsigned char *bytes;
    uint64_t n_bytes;
} ze_kernels;
extern const ze_kernels ze_kernels_f64;
extern const ze_kernels ze_kernels_f32;
// The matrix-unit kernels, for sub-groups of 16 and of 8.
extern const ze_kernels ze_kernels_dpas16;
extern const ze_kernels ze_kernels_dpas8;

// ---- tuned.c: those kernels --------------------------------------------------------------------

enum { ZE_UNIT_NONE, ZE_UNIT_DPAS16, ZE_UNIT_DPAS8 }; // gpu_device_facts.unit

extern const gpu_tuned ze_tuned;
// The unit of a chip, by its PCI numbers and the least size of its sub-groups (0: unknown).
int32_t ze_unit_of(uint32_t vendor, uint32_t device, uint32_t least_lanes);

// ---- queue.c: what driver.c puts into the table ------------------------------------------------

// Builds the tuned kernels of a device that has such a unit.
bool ze_has_tuned(const pgd_host *host, void *device, char *reason, size_t bytes);

pgd_status ze_queue_create(const pgd_host *host, void *device, int32_t role,
                           void **out_queue) PGD_MUST_USE;
void ze_queue_destroy(const pgd_host *host, void *queue);
pgd_status ze_queue_launch(const pgd_host *host, void *queue, const gpu_launch *l) PGD_MUST_USE;
pgd_status ze_queue_copy(const pgd_host *host, void *queue, const gpu_copy *c) PGD_MUST_USE;
pgd_status ze_queue_fill(const pgd_host *host, void *queue, void *memory, uint64_t offset,
                         uint64_t bytes, uint32_t pattern) PGD_MUST_USE;
pgd_status ze_queue_flush(const pgd_host *host, void *queue) PGD_MUST_USE;
pgd_status ze_queue_point(const pgd_host *host, void *queue, uint32_t slot) PGD_MUST_USE;
pgd_status ze_queue_point_wait(const pgd_host *host, void *queue, uint32_t slot,
                               uint64_t timeout_ns) PGD_MUST_USE;
pgd_status ze_graph_begin(const pgd_host *host, void *queue) PGD_MUST_USE;
pgd_status ze_graph_end(const pgd_host *host, void *queue, void **out_graph) PGD_MUST_USE;
pgd_status ze_graph_launch(const pgd_host *host, void *queue, void *graph) PGD_MUST_USE;
void ze_graph_destroy(const pgd_host *host, void *device, void *graph);

extern const gpu_driver ze_driver;

#endif
