// The driver table on CUDA's driver API: names, and the little that is CUDA's own.
//
// libcuda.so.1 comes with the driver and is opened by name; the toolkit is not needed to run, nor
// its headers to build (tests/gpu compares what is declared here with cuda.h). Devices share the
// primary context with everything else in the process.
#include <stdio.h>
#include <string.h>

#include "cuda.h"

// In the order of GPU_STREAM_CALLS: the versioned names that cuda.h gives these calls.
static const char *const names[GPU_STREAM_COUNT] = {
    [GPU_STREAM_init] = "cuInit",
    [GPU_STREAM_driver_version] = "cuDriverGetVersion",
    [GPU_STREAM_device_count] = "cuDeviceGetCount",
    [GPU_STREAM_device_get] = "cuDeviceGet",
    [GPU_STREAM_device_name] = "cuDeviceGetName",
    [GPU_STREAM_device_bytes] = "cuDeviceTotalMem_v2",
    [GPU_STREAM_device_uuid] = "cuDeviceGetUuid_v2",
    [GPU_STREAM_device_attribute] = "cuDeviceGetAttribute",
    [GPU_STREAM_device_pci] = "cuDeviceGetPCIBusId",
    [GPU_STREAM_module_load] = "cuModuleLoadData",
    [GPU_STREAM_module_unload] = "cuModuleUnload",
    [GPU_STREAM_module_function] = "cuModuleGetFunction",
    [GPU_STREAM_launch] = "cuLaunchKernel",
    [GPU_STREAM_alloc] = "cuMemAlloc_v2",
    [GPU_STREAM_free] = "cuMemFree_v2",
    [GPU_STREAM_host_alloc] = "cuMemHostAlloc",
    [GPU_STREAM_host_free] = "cuMemFreeHost",
    [GPU_STREAM_memory_info] = "cuMemGetInfo_v2",
    [GPU_STREAM_copy_in] = "cuMemcpyHtoDAsync_v2",
    [GPU_STREAM_copy_out] = "cuMemcpyDtoHAsync_v2",
    [GPU_STREAM_copy_on] = "cuMemcpyDtoDAsync_v2",
    [GPU_STREAM_fill] = "cuMemsetD32Async",
    [GPU_STREAM_stream_create] = "cuStreamCreate",
    [GPU_STREAM_stream_destroy] = "cuStreamDestroy_v2",
    [GPU_STREAM_stream_synchronize] = "cuStreamSynchronize",
    [GPU_STREAM_stream_wait_event] = "cuStreamWaitEvent",
    [GPU_STREAM_capture_begin] = "cuStreamBeginCapture_v2",
    [GPU_STREAM_capture_end] = "cuStreamEndCapture",
    [GPU_STREAM_event_create] = "cuEventCreate",
    [GPU_STREAM_event_destroy] = "cuEventDestroy_v2",
    [GPU_STREAM_event_record] = "cuEventRecord",
    [GPU_STREAM_event_query] = "cuEventQuery",
    [GPU_STREAM_event_synchronize] = "cuEventSynchronize",
    [GPU_STREAM_graph_launch] = "cuGraphLaunch",
    [GPU_STREAM_graph_exec_destroy] = "cuGraphExecDestroy",
    [GPU_STREAM_graph_destroy] = "cuGraphDestroy",
};

enum {
    OWN_TEXT,
    OWN_RETAIN,
    OWN_RELEASE,
    OWN_CURRENT,
    OWN_COPY_2D,
    OWN_INSTANTIATE,
    OWN_SET_ATTRIBUTE,
    OWN_LAUNCH_EX
};

static const char *const own_names[] = {
    [OWN_TEXT] = "cuGetErrorString",
    [OWN_RETAIN] = "cuDevicePrimaryCtxRetain",
    [OWN_RELEASE] = "cuDevicePrimaryCtxRelease_v2",
    [OWN_CURRENT] = "cuCtxSetCurrent",
    [OWN_COPY_2D] = "cuMemcpy2DAsync_v2",
    [OWN_INSTANTIATE] = "cuGraphInstantiateWithFlags",
    [OWN_SET_ATTRIBUTE] = "cuFuncSetAttribute",
    [OWN_LAUNCH_EX] = "?cuLaunchKernelEx",
    NULL,
};

static const char *error_text(const gpu_stream_library *l, int error) {
    const char *text = NULL;
    return ((cuda_error_text_fn)l->own[OWN_TEXT])(error, &text) == 0 ? text : NULL;
}

static int context_create(const gpu_stream_library *l, int number, void **out) {
    return ((cuda_retain_fn)l->own[OWN_RETAIN])(out, number);
}

static void context_destroy(const gpu_stream_library *l, int number, void *context) {
    (void)context;
    (void)((cuda_release_fn)l->own[OWN_RELEASE])(number);
}

static int enter(const gpu_stream_device *d) {
    return ((cuda_current_fn)d->library->own[OWN_CURRENT])(d->context);
}

static void arch(const gpu_stream_library *l, int number, char *out, size_t bytes) {
    snprintf(out, bytes, "sm_%d%d", gpu_stream_attribute(l, CUDA_COMPUTE_CAPABILITY_MAJOR, number),
             gpu_stream_attribute(l, CUDA_COMPUTE_CAPABILITY_MINOR, number));
}

static int copy_rows(const gpu_stream_device *d, const gpu_stream_rows *c, void *stream) {
    const cuda_copy_2d copy = {
        .src_kind = c->src_is_host ? CUDA_HOST : CUDA_DEVICE,
        .src_host = c->src_is_host ? (const void *)(uintptr_t)c->src : NULL,
        .src_device = c->src_is_host ? 0 : c->src,
        .src_pitch = c->src_pitch,
        .dst_kind = c->dst_is_host ? CUDA_HOST : CUDA_DEVICE,
        .dst_host = c->dst_is_host ? (void *)(uintptr_t)c->dst : NULL,
        .dst_device = c->dst_is_host ? 0 : c->dst,
        .dst_pitch = c->dst_pitch,
        .bytes = c->bytes,
        .rows = c->rows,
    };
    return ((cuda_copy_2d_fn)d->library->own[OWN_COPY_2D])(&copy, stream);
}

static int graph_instantiate(const gpu_stream_device *d, void *graph, void **out_exec) {
    return ((cuda_instantiate_fn)d->library->own[OWN_INSTANTIATE])(out_exec, graph, 0);
}

static int allow_shared(const gpu_stream_device *d, void *function, uint32_t bytes) {
    return ((cuda_set_attribute_fn)d->library->own[OWN_SET_ATTRIBUTE])(
        function, CUDA_MAX_DYNAMIC_SHARED, (int)bytes);
}

static bool overlaps(const pgd_host *host, const gpu_stream_library *l, const char *arch_name) {
    return l->own[OWN_LAUNCH_EX] != NULL &&
           cuda_overlaps(host, CUDA_BUILT_CHIPS, l->version, arch_name);
}

static int launch_overlapping(const gpu_stream_device *d, void *function, const gpu_stream_grid *g,
                              void *stream, void **params) {
    return cuda_launch_overlapping((cuda_launch_ex_fn)d->library->own[OWN_LAUNCH_EX], function, g,
                                   stream, params);
}

static const char *const libraries[] = {"libcuda.so.1", NULL};

// cuBLASLt's numbers: cuda.h of this folder.
static const char *const blaslt_libraries[] = {"libcublasLt.so.13", "libcublasLt.so.12", NULL};

static const gpu_blaslt_vendor blaslt = {
    .name = "cublaslt",
    .prefix = "cublasLt",
    .libraries = blaslt_libraries,
    .compute_f32 = CUDA_COMPUTE_F32,
    .transposed = CUDA_TRANSPOSED,
    .trans_a = CUDA_TRANS_A,
    .scratch = CUDA_WISH_SCRATCH,
    .align_a = CUDA_WISH_ALIGN_A,
    .algorithm_bytes = CUDA_ALGORITHM_BYTES,
};

static const gpu_stream_vendor vendor = {
    .kind = "cuda",
    .driver = "NVIDIA driver",
    .libraries = libraries,
    .names = names,
    .own_names = own_names,
    .images = cuda_images,
    .tuned = &cuda_tuned,
    .tuned_images = cuda_tuned_images,
    .blaslt = &blaslt,
    .allow_shared = allow_shared,
    .overlaps = overlaps,
    .launch_overlapping = launch_overlapping,
    .built_with = CUDA_BUILT_WITH,
    .error_text = error_text,
    .context_create = context_create,
    .context_destroy = context_destroy,
    .enter = enter,
    .memory_clock = CUDA_MEMORY_CLOCK_RATE,
    .memory_bus = CUDA_GLOBAL_MEMORY_BUS_WIDTH,
    .processors = CUDA_MULTIPROCESSOR_COUNT,
    .arch = arch,
    .copy_rows = copy_rows,
    .graph_instantiate = graph_instantiate,
};

static pgd_status load(const pgd_host *host, void **out_library) {
    return gpu_stream_load(host, &vendor, out_library);
}

const gpu_driver cuda_driver = {
    .kind = "cuda", .tuned = &cuda_tuned, .load = load, GPU_STREAM_DRIVER};
