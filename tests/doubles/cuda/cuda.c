// libcuda.so.1 for machines without one: the part of the driver API that backends/cuda calls, over
// the stand-in device of tests/doubles/pocl. It is strict where drivers are not: calls need a
// context that the thread made current.
#include <stdio.h>
#include <string.h>

#include "cuda/cuda.h"
#include "pocl.h"

#define EXPORT __attribute__((visibility("default")))

// Prototypes of exported functions come from nowhere but here.
#pragma GCC diagnostic ignored "-Wmissing-prototypes"

static int the_context;
static _Thread_local void *current;

#define NEED_CONTEXT()                \
    do {                              \
        if (current == NULL) {        \
            return DOUBLE_NO_CONTEXT; \
        }                             \
    } while (0)

static int is_device(int device) {
    return device >= 0 && device < double_settings_get()->devices;
}

EXPORT int cuInit(unsigned flags) {
    return flags != 0 ? DOUBLE_INVALID : double_init();
}

EXPORT int cuGetErrorString(int error, const char **out) {
    *out = double_error_text(error);
    return *out == NULL ? DOUBLE_INVALID : DOUBLE_OK;
}

EXPORT int cuDriverGetVersion(int *out) {
    *out = (int)double_settings_get()->driver;
    return DOUBLE_OK;
}

EXPORT int cuDeviceGetCount(int *out) {
    *out = (int)double_settings_get()->devices;
    return DOUBLE_OK;
}

EXPORT int cuDeviceGet(int *out, int i) {
    *out = i;
    return is_device(i) ? DOUBLE_OK : DOUBLE_INVALID_DEVICE;
}

EXPORT int cuDeviceGetName(char *out, int bytes, int device) {
    snprintf(out, (size_t)bytes, "Stand-in for a CUDA device");
    return is_device(device) ? DOUBLE_OK : DOUBLE_INVALID_DEVICE;
}

EXPORT int cuDeviceTotalMem_v2(size_t *out, int device) {
    *out = (size_t)double_settings_get()->memory << 20;
    return is_device(device) ? DOUBLE_OK : DOUBLE_INVALID_DEVICE;
}

EXPORT int cuDeviceGetUuid_v2(void *out, int device) {
    memcpy(out, "stand-in of cuda", 16);
    ((char *)out)[15] = (char)device;
    return is_device(device) ? DOUBLE_OK : DOUBLE_INVALID_DEVICE;
}

EXPORT int cuDeviceGetPCIBusId(char *out, int bytes, int device) {
    snprintf(out, (size_t)bytes, "0000:%02x:00.0", 0x65 + (unsigned)device);
    return is_device(device) ? DOUBLE_OK : DOUBLE_INVALID_DEVICE;
}

EXPORT int cuDeviceGetAttribute(int *out, int what, int device) {
    const int64_t chip = double_settings_get()->chip == 0 ? 90 : double_settings_get()->chip;
    switch (what) {
    case CUDA_MULTIPROCESSOR_COUNT: *out = 16; break;
    case CUDA_MEMORY_CLOCK_RATE: *out = 2619000; break;
    case CUDA_GLOBAL_MEMORY_BUS_WIDTH: *out = 5120; break;
    case CUDA_COMPUTE_CAPABILITY_MAJOR: *out = (int)(chip / 10); break;
    case CUDA_COMPUTE_CAPABILITY_MINOR: *out = (int)(chip % 10); break;
    default: return DOUBLE_INVALID;
    }
    return is_device(device) ? DOUBLE_OK : DOUBLE_INVALID_DEVICE;
}

EXPORT int cuDevicePrimaryCtxRetain(void **out, int device) {
    *out = &the_context;
    return is_device(device) ? DOUBLE_OK : DOUBLE_INVALID_DEVICE;
}

EXPORT int cuDevicePrimaryCtxRelease_v2(int device) {
    return is_device(device) ? DOUBLE_OK : DOUBLE_INVALID_DEVICE;
}

EXPORT int cuCtxSetCurrent(void *context) {
    current = context;
    return context == NULL || context == &the_context ? DOUBLE_OK : DOUBLE_NO_CONTEXT;
}

// ---- kernels and memory ------------------------------------------------------------------------

EXPORT int cuModuleLoadData(void **out, const void *image) {
    NEED_CONTEXT();
    *out = &the_context;
    return double_module_load(image);
}

EXPORT int cuModuleUnload(void *module) {
    return module == &the_context ? DOUBLE_OK : DOUBLE_INVALID;
}

EXPORT int cuModuleGetFunction(void **out, void *module, const char *name) {
    return module == &the_context ? double_kernel_find(out, name) : DOUBLE_INVALID;
}

EXPORT int cuLaunchKernel(void *function, unsigned gx, unsigned gy, unsigned gz, unsigned bx,
                          unsigned by, unsigned bz, unsigned shared, void *stream, void **params,
                          void **extra) {
    const unsigned groups[3] = {gx, gy, gz};
    NEED_CONTEXT();
    return by != 1 || bz != 1 || shared != 0 || extra != NULL
               ? DOUBLE_INVALID
               : double_launch(stream, function, groups, bx, params);
}

EXPORT int cuMemAlloc_v2(uint64_t *out, size_t bytes) {
    NEED_CONTEXT();
    return double_alloc(out, bytes);
}

EXPORT int cuMemFree_v2(uint64_t address) {
    NEED_CONTEXT();
    return double_free(address);
}

EXPORT int cuMemHostAlloc(void **out, size_t bytes, unsigned flags) {
    NEED_CONTEXT();
    return flags != 3 ? DOUBLE_INVALID : double_host_alloc(out, bytes);
}

EXPORT int cuMemFreeHost(void *ptr) {
    NEED_CONTEXT();
    return double_host_free(ptr);
}

EXPORT int cuMemGetInfo_v2(size_t *out_free, size_t *out_total) {
    NEED_CONTEXT();
    double_memory_info(out_free, out_total);
    return DOUBLE_OK;
}

// ---- copies ------------------------------------------------------------------------------------

static int copy(void *stream, const double_copy *c) {
    NEED_CONTEXT();
    return double_copy_rows(stream, c);
}

EXPORT int cuMemcpyHtoDAsync_v2(uint64_t dst, const void *src, size_t bytes, void *stream) {
    const double_copy c = {
        .dst = dst, .src = (uint64_t)(uintptr_t)src, .bytes = bytes, .rows = 1, .src_is_host = 1};
    return copy(stream, &c);
}

EXPORT int cuMemcpyDtoHAsync_v2(void *dst, uint64_t src, size_t bytes, void *stream) {
    const double_copy c = {
        .dst = (uint64_t)(uintptr_t)dst, .src = src, .bytes = bytes, .rows = 1, .dst_is_host = 1};
    return copy(stream, &c);
}

EXPORT int cuMemcpyDtoDAsync_v2(uint64_t dst, uint64_t src, size_t bytes, void *stream) {
    const double_copy c = {.dst = dst, .src = src, .bytes = bytes, .rows = 1};
    return copy(stream, &c);
}

EXPORT int cuMemcpy2DAsync_v2(const cuda_copy_2d *what, void *stream) {
    const int dst_is_host = what->dst_kind == CUDA_HOST;
    const int src_is_host = what->src_kind == CUDA_HOST;
    const double_copy c = {
        .dst = dst_is_host ? (uint64_t)(uintptr_t)what->dst_host : what->dst_device,
        .dst_pitch = what->dst_pitch,
        .src = src_is_host ? (uint64_t)(uintptr_t)what->src_host : what->src_device,
        .src_pitch = what->src_pitch,
        .bytes = what->bytes,
        .rows = what->rows,
        .dst_is_host = dst_is_host,
        .src_is_host = src_is_host,
    };
    return what->dst_x + what->dst_y + what->src_x + what->src_y != 0 ? DOUBLE_INVALID
                                                                      : copy(stream, &c);
}

EXPORT int cuMemsetD32Async(uint64_t dst, unsigned pattern, size_t n, void *stream) {
    NEED_CONTEXT();
    return double_fill(stream, dst, pattern, n);
}

// ---- streams, events, graphs -------------------------------------------------------------------

EXPORT int cuStreamCreate(void **out, unsigned flags) {
    NEED_CONTEXT();
    return flags != 1 ? DOUBLE_INVALID : double_stream_create((double_stream **)out);
}

EXPORT int cuStreamDestroy_v2(void *stream) {
    return double_stream_destroy(stream);
}

EXPORT int cuStreamSynchronize(void *stream) {
    NEED_CONTEXT();
    return double_stream_synchronize(stream);
}

EXPORT int cuStreamWaitEvent(void *stream, void *event, unsigned flags) {
    NEED_CONTEXT();
    return flags != 0 ? DOUBLE_INVALID : double_stream_wait_event(stream, event);
}

EXPORT int cuStreamBeginCapture_v2(void *stream, int mode) {
    NEED_CONTEXT();
    return mode < 0 || mode > 2 ? DOUBLE_INVALID : double_capture_begin(stream);
}

EXPORT int cuStreamEndCapture(void *stream, void **out) {
    NEED_CONTEXT();
    return double_capture_end(stream, (double_graph **)out);
}

EXPORT int cuEventCreate(void **out, unsigned flags) {
    NEED_CONTEXT();
    return flags > 3 ? DOUBLE_INVALID : double_event_create((double_event **)out);
}

EXPORT int cuEventDestroy_v2(void *event) {
    return double_event_destroy(event);
}

EXPORT int cuEventRecord(void *event, void *stream) {
    NEED_CONTEXT();
    return double_event_record(event, stream);
}

EXPORT int cuEventQuery(void *event) {
    return double_event_query(event);
}

EXPORT int cuEventSynchronize(void *event) {
    return double_event_synchronize(event);
}

// A graph that can be run is the graph that was recorded.
// Functions of the portable kernels need no more shared memory than they are built with.
EXPORT int cuFuncSetAttribute(void *function, int what, int value) {
    (void)function;
    (void)what;
    (void)value;
    return DOUBLE_INVALID;
}

EXPORT int cuGraphInstantiateWithFlags(void **out, void *graph, unsigned long long flags) {
    NEED_CONTEXT();
    *out = graph;
    return flags != 0 ? DOUBLE_INVALID : double_graph_retain(graph);
}

EXPORT int cuGraphLaunch(void *exec, void *stream) {
    NEED_CONTEXT();
    return double_graph_launch(exec, stream);
}

EXPORT int cuGraphExecDestroy(void *exec) {
    return double_graph_destroy(exec);
}

EXPORT int cuGraphDestroy(void *graph) {
    return double_graph_destroy(graph);
}
