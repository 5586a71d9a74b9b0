// The driver table on HIP's module API: names, and the little that is HIP's own.
//
// libamdhip64.so comes with ROCm and is opened by name, the newest first; neither ROCm nor its
// headers are needed to build.
#include <stdio.h>
#include <string.h>

#include "hip.h"

static const char *const names[GPU_STREAM_COUNT] = {
    [GPU_STREAM_init] = "hipInit",
    [GPU_STREAM_driver_version] = "hipDriverGetVersion",
    [GPU_STREAM_device_count] = "hipGetDeviceCount",
    [GPU_STREAM_device_get] = "hipDeviceGet",
    [GPU_STREAM_device_name] = "hipDeviceGetName",
    [GPU_STREAM_device_bytes] = "hipDeviceTotalMem",
    [GPU_STREAM_device_uuid] = "hipDeviceGetUuid",
    [GPU_STREAM_device_attribute] = "hipDeviceGetAttribute",
    [GPU_STREAM_device_pci] = "hipDeviceGetPCIBusId",
    [GPU_STREAM_module_load] = "hipModuleLoadData",
    [GPU_STREAM_module_unload] = "hipModuleUnload",
    [GPU_STREAM_module_function] = "hipModuleGetFunction",
    [GPU_STREAM_launch] = "hipModuleLaunchKernel",
    [GPU_STREAM_alloc] = "hipMalloc",
    [GPU_STREAM_free] = "hipFree",
    [GPU_STREAM_host_alloc] = "hipHostMalloc",
    [GPU_STREAM_host_free] = "hipHostFree",
    [GPU_STREAM_memory_info] = "hipMemGetInfo",
    [GPU_STREAM_copy_in] = "hipMemcpyHtoDAsync",
    [GPU_STREAM_copy_out] = "hipMemcpyDtoHAsync",
    [GPU_STREAM_copy_on] = "hipMemcpyDtoDAsync",
    [GPU_STREAM_fill] = "hipMemsetD32Async",
    [GPU_STREAM_stream_create] = "hipStreamCreateWithFlags",
    [GPU_STREAM_stream_destroy] = "hipStreamDestroy",
    [GPU_STREAM_stream_synchronize] = "hipStreamSynchronize",
    [GPU_STREAM_stream_wait_event] = "hipStreamWaitEvent",
    [GPU_STREAM_capture_begin] = "hipStreamBeginCapture",
    [GPU_STREAM_capture_end] = "hipStreamEndCapture",
    [GPU_STREAM_event_create] = "hipEventCreateWithFlags",
    [GPU_STREAM_event_destroy] = "hipEventDestroy",
    [GPU_STREAM_event_record] = "hipEventRecord",
    [GPU_STREAM_event_query] = "hipEventQuery",
    [GPU_STREAM_event_synchronize] = "hipEventSynchronize",
    [GPU_STREAM_graph_launch] = "hipGraphLaunch",
    [GPU_STREAM_graph_exec_destroy] = "hipGraphExecDestroy",
    [GPU_STREAM_graph_destroy] = "hipGraphDestroy",
};

enum { OWN_TEXT, OWN_SET_DEVICE, OWN_PROPERTIES_6, OWN_PROPERTIES, OWN_COPY_2D, OWN_INSTANTIATE };

static const char *const own_names[] = {
    [OWN_TEXT] = "hipGetErrorString",
    [OWN_SET_DEVICE] = "hipSetDevice",
    [OWN_PROPERTIES_6] = "?hipGetDevicePropertiesR0600",
    [OWN_PROPERTIES] = "?hipGetDeviceProperties",
    [OWN_COPY_2D] = "hipMemcpy2DAsync",
    [OWN_INSTANTIATE] = "hipGraphInstantiate",
    NULL,
};

static const char *error_text(const gpu_stream_library *l, int error) {
    return ((hip_error_text_fn)l->own[OWN_TEXT])(error);
}

// The device is the context.
static int context_create(const gpu_stream_library *l, int number, void **out) {
    (void)l;
    (void)number;
    *out = NULL;
    return 0;
}

static void context_destroy(const gpu_stream_library *l, int number, void *context) {
    (void)l;
    (void)number;
    (void)context;
}

static int enter(const gpu_stream_device *d) {
    return ((hip_set_device_fn)d->library->own[OWN_SET_DEVICE])(d->number);
}

// The one fact without a call of its own; its place in the struct depends on the version, its
// first letters do not.
static void arch(const gpu_stream_library *l, int number, char *out, size_t out_bytes) {
    static const char head[] = "gfx";
    char bytes[HIP_PROPERTIES_BYTES + 1] = "";
    const hip_properties_fn newer = (hip_properties_fn)l->own[OWN_PROPERTIES_6];
    const hip_properties_fn call =
        newer != NULL ? newer : (hip_properties_fn)l->own[OWN_PROPERTIES];
    if (call == NULL || call(bytes, number) != 0) {
        return;
    }
    for (size_t i = HIP_PROPERTIES_NAME; i + sizeof(head) < HIP_PROPERTIES_BYTES; i++) {
        if (memcmp(bytes + i, head, sizeof(head) - 1) == 0) {
            snprintf(out, out_bytes, "%.31s", bytes + i);
            return;
        }
    }
}

static int copy_rows(const gpu_stream_device *d, const gpu_stream_rows *c, void *stream) {
    const int kind = c->dst_is_host ? HIP_TO_HOST : c->src_is_host ? HIP_TO_DEVICE : HIP_ON_DEVICE;
    return ((hip_copy_2d_fn)d->library->own[OWN_COPY_2D])(
        (void *)(uintptr_t)c->dst, c->dst_pitch, (const void *)(uintptr_t)c->src, c->src_pitch,
        c->bytes, c->rows, kind, stream);
}

static int graph_instantiate(const gpu_stream_device *d, void *graph, void **out_exec) {
    return ((hip_instantiate_fn)d->library->own[OWN_INSTANTIATE])(out_exec, graph, NULL, NULL, 0);
}

static const char *const libraries[] = {"libamdhip64.so.7", "libamdhip64.so.6", "libamdhip64.so.5",
                                        "libamdhip64.so", NULL};

// hipBLASLt's numbers, from its public headers; not compared by a test.
static const char *const blaslt_libraries[] = {"libhipblaslt.so.1", "libhipblaslt.so.0", NULL};

static const gpu_blaslt_vendor blaslt = {
    .name = "hipblaslt",
    .prefix = "hipblasLt",
    .libraries = blaslt_libraries,
    .compute_f32 = HIP_COMPUTE_F32,
    .transposed = HIP_TRANSPOSED,
    .trans_a = HIP_TRANS_A,
    .scratch = HIP_WISH_SCRATCH,
    .align_a = -1,
    .algorithm_bytes = HIP_ALGORITHM_BYTES,
};

static const gpu_stream_vendor vendor = {
    .kind = "hip",
    .driver = "ROCm runtime",
    .libraries = libraries,
    .names = names,
    .own_names = own_names,
    .images = hip_images,
    .tuned = &hip_tuned,
    .tuned_images = hip_tuned_images,
    .blaslt = &blaslt,
    .built_with = HIP_BUILT_WITH,
    .error_text = error_text,
    .context_create = context_create,
    .context_destroy = context_destroy,
    .enter = enter,
    .memory_clock = HIP_MEMORY_CLOCK_RATE,
    .memory_bus = HIP_MEMORY_BUS_WIDTH,
    .processors = HIP_MULTIPROCESSOR_COUNT,
    .arch = arch,
    .copy_rows = copy_rows,
    .graph_instantiate = graph_instantiate,
};

static pgd_status load(const pgd_host *host, void **out_library) {
    return gpu_stream_load(host, &vendor, out_library);
}

const gpu_driver hip_driver = {.kind = "hip", .tuned = &hip_tuned, .load = load, GPU_STREAM_DRIVER};
