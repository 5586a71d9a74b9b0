// What backends/cuda declares of CUDA's driver API against cuda.h: compiled, never run.
#include <cuda.h>

#include "cuda/cuda.h"

#define SAME(a, b) _Static_assert((int)(a) == (int)(b), #a)
#define AT(ours, theirs) \
    _Static_assert(offsetof(cuda_copy_2d, ours) == offsetof(CUDA_MEMCPY2D, theirs), #ours)

SAME(CUDA_MULTIPROCESSOR_COUNT, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT);
SAME(CUDA_MEMORY_CLOCK_RATE, CU_DEVICE_ATTRIBUTE_MEMORY_CLOCK_RATE);
SAME(CUDA_GLOBAL_MEMORY_BUS_WIDTH, CU_DEVICE_ATTRIBUTE_GLOBAL_MEMORY_BUS_WIDTH);
SAME(CUDA_COMPUTE_CAPABILITY_MAJOR, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR);
SAME(CUDA_COMPUTE_CAPABILITY_MINOR, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR);
SAME(CUDA_HOST, CU_MEMORYTYPE_HOST);
SAME(CUDA_DEVICE, CU_MEMORYTYPE_DEVICE);
SAME(GPU_STREAM_OUT_OF_MEMORY, CUDA_ERROR_OUT_OF_MEMORY);
SAME(GPU_STREAM_NO_DEVICE, CUDA_ERROR_NO_DEVICE);
SAME(GPU_STREAM_INVALID_DEVICE, CUDA_ERROR_INVALID_DEVICE);
SAME(GPU_STREAM_NOT_READY, CUDA_ERROR_NOT_READY);
SAME(1, CU_STREAM_NON_BLOCKING); // the flags of backends/gpu/stream.c
SAME(2, CU_EVENT_DISABLE_TIMING);
SAME(3, CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP);
SAME(2, CU_STREAM_CAPTURE_MODE_RELAXED);

_Static_assert(sizeof(cuda_copy_2d) == sizeof(CUDA_MEMCPY2D), "CUDA_MEMCPY2D");
AT(src_kind, srcMemoryType);
AT(src_host, srcHost);
AT(src_device, srcDevice);
AT(src_pitch, srcPitch);
AT(dst_x, dstXInBytes);
AT(dst_kind, dstMemoryType);
AT(dst_host, dstHost);
AT(dst_device, dstDevice);
AT(dst_pitch, dstPitch);
AT(bytes, WidthInBytes);
AT(rows, Height);

// Numbers and sizes of arguments: a call with ours is one of theirs but for the names of types.
#define TAKES(slot, ...)                                                                       \
    _Static_assert(sizeof(__VA_ARGS__) == sizeof(CUresult) && sizeof(CUresult) == sizeof(int), \
                   #slot)

static const gpu_stream_api api;

TAKES(init, cuInit(0));
TAKES(device_get, cuDeviceGet((CUdevice *)(int *)0, 0));
TAKES(device_bytes, cuDeviceTotalMem((size_t *)0, 0));
TAKES(device_uuid, cuDeviceGetUuid((CUuuid *)0, 0));
TAKES(device_pci, cuDeviceGetPCIBusId((char *)0, 0, 0));
TAKES(launch, cuLaunchKernel((CUfunction)0, 0u, 0u, 0u, 0u, 0u, 0u, 0u, (CUstream)0, (void **)0,
                             (void **)0));
TAKES(alloc, cuMemAlloc((CUdeviceptr *)0, (size_t)0));
TAKES(host_alloc, cuMemHostAlloc((void **)0, (size_t)0, 0u));
TAKES(copy_in, cuMemcpyHtoDAsync((CUdeviceptr)0, (const void *)0, (size_t)0, (CUstream)0));
TAKES(copy_out, cuMemcpyDtoHAsync((void *)0, (CUdeviceptr)0, (size_t)0, (CUstream)0));
TAKES(copy_on, cuMemcpyDtoDAsync((CUdeviceptr)0, (CUdeviceptr)0, (size_t)0, (CUstream)0));
TAKES(fill, cuMemsetD32Async((CUdeviceptr)0, 0u, (size_t)0, (CUstream)0));
TAKES(stream_create, cuStreamCreate((CUstream *)0, 0u));
TAKES(stream_wait_event, cuStreamWaitEvent((CUstream)0, (CUevent)0, 0u));
TAKES(capture_begin, cuStreamBeginCapture((CUstream)0, CU_STREAM_CAPTURE_MODE_RELAXED));
TAKES(capture_end, cuStreamEndCapture((CUstream)0, (CUgraph *)0));
TAKES(event_create, cuEventCreate((CUevent *)0, 0u));
TAKES(event_record, cuEventRecord((CUevent)0, (CUstream)0));
TAKES(graph_launch, cuGraphLaunch((CUgraphExec)0, (CUstream)0));
SAME(CUDA_MAX_DYNAMIC_SHARED, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES);
TAKES(set_attribute, cuFuncSetAttribute((CUfunction)0, (CUfunction_attribute)8, 0));
SAME(CUDA_PROGRAMMATIC_SERIALIZATION, CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION);
_Static_assert(sizeof(cuda_attribute) == sizeof(CUlaunchAttribute), "CUlaunchAttribute");
_Static_assert(offsetof(cuda_attribute, value) == offsetof(CUlaunchAttribute, value), "its value");
SAME(sizeof(((CUlaunchAttributeValue *)0)->programmaticStreamSerializationAllowed), 4);
_Static_assert(sizeof(cuda_launch_config) == sizeof(CUlaunchConfig), "CUlaunchConfig");
#define LAUNCH_AT(ours, theirs) \
    _Static_assert(offsetof(cuda_launch_config, ours) == offsetof(CUlaunchConfig, theirs), #ours)
LAUNCH_AT(items, blockDimX);
LAUNCH_AT(shared, sharedMemBytes);
LAUNCH_AT(stream, hStream);
LAUNCH_AT(attributes, attrs);
LAUNCH_AT(n_attributes, numAttrs);
TAKES(launch_ex,
      cuLaunchKernelEx((const CUlaunchConfig *)0, (CUfunction)0, (void **)0, (void **)0));
TAKES(instantiate, cuGraphInstantiateWithFlags((CUgraphExec *)0, (CUgraph)0, 0ull));
_Static_assert(sizeof(CUdeviceptr) == sizeof(uint64_t) && sizeof(CUdevice) == sizeof(int), "sizes");
_Static_assert(sizeof(CUuuid) == 16 && sizeof(api.init) == sizeof(void *), "sizes");
