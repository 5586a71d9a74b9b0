// libamdhip64.so for machines without one: the part of HIP's module API that backends/hip calls,
// over the stand-in device of tests/doubles/pocl.
#include <stdio.h>
#include <string.h>

#include "hip/hip.h"
#include "pocl.h"

#define EXPORT __attribute__((visibility("default")))

// Prototypes of exported functions come from nowhere but here.
#pragma GCC diagnostic ignored "-Wmissing-prototypes"

enum { ARCH_AT = 1160 }; // gcnArchName in hipDeviceProp_t of ROCm 6

static int the_module;
static _Thread_local int current; // device 0 to begin with, as HIP has it

static int is_device(int device) {
    return device >= 0 && device < double_settings_get()->devices;
}

EXPORT int hipInit(unsigned flags) {
    return flags != 0 ? DOUBLE_INVALID : double_init();
}

EXPORT const char *hipGetErrorString(int error) {
    const char *text = double_error_text(error);
    return text == NULL ? "unknown error" : text;
}

EXPORT int hipDriverGetVersion(int *out) {
    *out = (int)double_settings_get()->driver;
    return DOUBLE_OK;
}

EXPORT int hipGetDeviceCount(int *out) {
    *out = (int)double_settings_get()->devices;
    return *out > 0 ? DOUBLE_OK : DOUBLE_NO_DEVICE;
}

EXPORT int hipDeviceGet(int *out, int i) {
    *out = i;
    return is_device(i) ? DOUBLE_OK : DOUBLE_INVALID_DEVICE;
}

EXPORT int hipSetDevice(int device) {
    current = is_device(device) ? device : current;
    return is_device(device) ? DOUBLE_OK : DOUBLE_INVALID_DEVICE;
}

EXPORT int hipDeviceGetName(char *out, int bytes, int device) {
    snprintf(out, (size_t)bytes, "Stand-in for a HIP device");
    return is_device(device) ? DOUBLE_OK : DOUBLE_INVALID_DEVICE;
}

EXPORT int hipDeviceTotalMem(size_t *out, int device) {
    *out = (size_t)double_settings_get()->memory << 20;
    return is_device(device) ? DOUBLE_OK : DOUBLE_INVALID_DEVICE;
}

EXPORT int hipDeviceGetUuid(void *out, int device) {
    memcpy(out, "stand-in of hip ", 16);
    ((char *)out)[15] = (char)device;
    return is_device(device) ? DOUBLE_OK : DOUBLE_INVALID_DEVICE;
}

EXPORT int hipDeviceGetPCIBusId(char *out, int bytes, int device) {
    snprintf(out, (size_t)bytes, "0000:%02x:00.0", 0xc3 + (unsigned)device);
    return is_device(device) ? DOUBLE_OK : DOUBLE_INVALID_DEVICE;
}

EXPORT int hipDeviceGetAttribute(int *out, int what, int device) {
    switch (what) {
    case HIP_MULTIPROCESSOR_COUNT: *out = 8; break;
    case HIP_MEMORY_CLOCK_RATE: *out = 2600000; break;
    case HIP_MEMORY_BUS_WIDTH: *out = 8192; break;
    default: return DOUBLE_INVALID;
    }
    return is_device(device) ? DOUBLE_OK : DOUBLE_INVALID_DEVICE;
}

EXPORT int hipGetDevicePropertiesR0600(void *out, int device) {
    const long long chip = double_settings_get()->chip;
    snprintf(out, HIP_PROPERTIES_NAME, "Stand-in for gfx");
    snprintf((char *)out + ARCH_AT, 256, "gfx%lld:sramecc+:xnack-", chip == 0 ? 942 : chip);
    return is_device(device) ? DOUBLE_OK : DOUBLE_INVALID_DEVICE;
}

// ---- kernels and memory ------------------------------------------------------------------------

EXPORT int hipModuleLoadData(void **out, const void *image) {
    *out = &the_module;
    return double_module_load(image);
}

EXPORT int hipModuleUnload(void *module) {
    return module == &the_module ? DOUBLE_OK : DOUBLE_INVALID;
}

EXPORT int hipModuleGetFunction(void **out, void *module, const char *name) {
    return module == &the_module ? double_kernel_find(out, name) : DOUBLE_INVALID;
}

EXPORT int hipModuleLaunchKernel(void *function, unsigned gx, unsigned gy, unsigned gz, unsigned bx,
                                 unsigned by, unsigned bz, unsigned shared, void *stream,
                                 void **params, void **extra) {
    const unsigned groups[3] = {gx, gy, gz};
    return by != 1 || bz != 1 || shared != 0 || extra != NULL
               ? DOUBLE_INVALID
               : double_launch(stream, function, groups, bx, params);
}

EXPORT int hipMalloc(uint64_t *out, size_t bytes) {
    return double_alloc(out, bytes);
}

EXPORT int hipFree(uint64_t address) {
    return double_free(address);
}

EXPORT int hipHostMalloc(void **out, size_t bytes, unsigned flags) {
    return flags != 3 ? DOUBLE_INVALID : double_host_alloc(out, bytes);
}

EXPORT int hipHostFree(void *ptr) {
    return double_host_free(ptr);
}

EXPORT int hipMemGetInfo(size_t *out_free, size_t *out_total) {
    double_memory_info(out_free, out_total);
    return DOUBLE_OK;
}

// ---- copies ------------------------------------------------------------------------------------

// kind: hipMemcpyKind.
EXPORT int hipMemcpy2DAsync(void *dst, size_t dst_pitch, const void *src, size_t src_pitch,
                            size_t bytes, size_t rows, int kind, void *stream) {
    const double_copy c = {
        .dst = (uint64_t)(uintptr_t)dst,
        .dst_pitch = dst_pitch,
        .src = (uint64_t)(uintptr_t)src,
        .src_pitch = src_pitch,
        .bytes = bytes,
        .rows = rows,
        .dst_is_host = kind == HIP_TO_HOST,
        .src_is_host = kind == HIP_TO_DEVICE,
    };
    return kind < HIP_TO_DEVICE || kind > HIP_ON_DEVICE ? DOUBLE_INVALID
                                                        : double_copy_rows(stream, &c);
}

EXPORT int hipMemcpyHtoDAsync(uint64_t dst, const void *src, size_t bytes, void *stream) {
    return hipMemcpy2DAsync((void *)(uintptr_t)dst, bytes, src, bytes, bytes, 1, HIP_TO_DEVICE,
                            stream);
}

EXPORT int hipMemcpyDtoHAsync(void *dst, uint64_t src, size_t bytes, void *stream) {
    return hipMemcpy2DAsync(dst, bytes, (const void *)(uintptr_t)src, bytes, bytes, 1, HIP_TO_HOST,
                            stream);
}

EXPORT int hipMemcpyDtoDAsync(uint64_t dst, uint64_t src, size_t bytes, void *stream) {
    return hipMemcpy2DAsync((void *)(uintptr_t)dst, bytes, (const void *)(uintptr_t)src, bytes,
                            bytes, 1, HIP_ON_DEVICE, stream);
}

EXPORT int hipMemsetD32Async(uint64_t dst, int pattern, size_t n, void *stream) {
    return double_fill(stream, dst, (uint32_t)pattern, n);
}

// ---- streams, events, graphs -------------------------------------------------------------------

EXPORT int hipStreamCreateWithFlags(void **out, unsigned flags) {
    return flags != 1 ? DOUBLE_INVALID : double_stream_create((double_stream **)out);
}

EXPORT int hipStreamDestroy(void *stream) {
    return double_stream_destroy(stream);
}

EXPORT int hipStreamSynchronize(void *stream) {
    return double_stream_synchronize(stream);
}

EXPORT int hipStreamWaitEvent(void *stream, void *event, unsigned flags) {
    return flags != 0 ? DOUBLE_INVALID : double_stream_wait_event(stream, event);
}

EXPORT int hipStreamBeginCapture(void *stream, int mode) {
    return mode < 0 || mode > 2 ? DOUBLE_INVALID : double_capture_begin(stream);
}

EXPORT int hipStreamEndCapture(void *stream, void **out) {
    return double_capture_end(stream, (double_graph **)out);
}

EXPORT int hipEventCreateWithFlags(void **out, unsigned flags) {
    return flags > 3 ? DOUBLE_INVALID : double_event_create((double_event **)out);
}

EXPORT int hipEventDestroy(void *event) {
    return double_event_destroy(event);
}

EXPORT int hipEventRecord(void *event, void *stream) {
    return double_event_record(event, stream);
}

EXPORT int hipEventQuery(void *event) {
    return double_event_query(event);
}

EXPORT int hipEventSynchronize(void *event) {
    return double_event_synchronize(event);
}

// A graph that can be run is the graph that was recorded.
EXPORT int hipGraphInstantiate(void **out, void *graph, void **out_node, char *log,
                               size_t log_bytes) {
    *out = graph;
    return out_node != NULL || log != NULL || log_bytes != 0 ? DOUBLE_INVALID
                                                             : double_graph_retain(graph);
}

EXPORT int hipGraphLaunch(void *exec, void *stream) {
    return double_graph_launch(exec, stream);
}

EXPORT int hipGraphExecDestroy(void *exec) {
    return double_graph_destroy(exec);
}

EXPORT int hipGraphDestroy(void *graph) {
    return double_graph_destroy(graph);
}
