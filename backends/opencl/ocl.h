// The driver table over the OpenCL C API, for plugin.c.
#ifndef PGD_BACKENDS_OPENCL_OCL_H
#define PGD_BACKENDS_OPENCL_OCL_H

#define CL_TARGET_OPENCL_VERSION 120
#define CL_USE_DEPRECATED_OPENCL_1_2_APIS
#include <CL/cl.h>

#include "../gpu/driver.h"

// Every function of the API that is used: found by name in the loader's library.
#define OCL_FUNCTIONS(X)            \
    X(clBuildProgram)               \
    X(clCreateBuffer)               \
    X(clCreateCommandQueue)         \
    X(clCreateContext)              \
    X(clCreateKernel)               \
    X(clCreateProgramWithBinary)    \
    X(clCreateProgramWithSource)    \
    X(clEnqueueBarrierWithWaitList) \
    X(clEnqueueCopyBuffer)          \
    X(clEnqueueCopyBufferRect)      \
    X(clEnqueueFillBuffer)          \
    X(clEnqueueMarkerWithWaitList)  \
    X(clEnqueueNDRangeKernel)       \
    X(clEnqueueReadBuffer)          \
    X(clEnqueueReadBufferRect)      \
    X(clEnqueueWriteBuffer)         \
    X(clEnqueueWriteBufferRect)     \
    X(clFinish)                     \
    X(clFlush)                      \
    X(clGetDeviceIDs)               \
    X(clGetDeviceInfo)              \
    X(clGetEventInfo)               \
    X(clGetPlatformIDs)             \
    X(clGetProgramBuildInfo)        \
    X(clGetProgramInfo)             \
    X(clReleaseCommandQueue)        \
    X(clReleaseContext)             \
    X(clReleaseEvent)               \
    X(clReleaseKernel)              \
    X(clReleaseMemObject)           \
    X(clReleaseProgram)             \
    X(clRetainEvent)                \
    X(clSetKernelArg)               \
    X(clWaitForEvents)

typedef struct ocl_api {
#define OCL_SLOT(name) __typeof__(&name) name;
    OCL_FUNCTIONS(OCL_SLOT)
#undef OCL_SLOT
} ocl_api;

enum { OCL_DEVICES = 32 };

typedef struct ocl_library {
    void *handle;
    ocl_api cl;
    uint32_t n_devices;
    cl_device_id devices[OCL_DEVICES]; // of all platforms, in the loader's order
} ocl_library;

typedef struct ocl_device {
    const ocl_library *library;
    const ocl_api *cl;
    cl_device_id id;
    cl_context context;
    cl_program program;
    cl_command_queue setup; // for filling new memories
} ocl_device;

#define OCL_FAIL(host, code, ...) PGD_HOST_FAIL((host), (code), "ocl: " __VA_ARGS__)

// A status for an OpenCL error, with a sentence that names the call.
pgd_status ocl_error(const pgd_host *host, const char *call, cl_int error) PGD_MUST_USE;

// program.c: the kernels, from the cache of binaries or from source.
pgd_status ocl_program_make(const pgd_host *host, ocl_device *d) PGD_MUST_USE;

extern const gpu_driver ocl_driver;

#endif
