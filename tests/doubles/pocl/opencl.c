// The portable kernels on PoCL, through the loader libOpenCL.so.1. Their source is that of the
// OpenCL plugin, so that PoCL's cache of compiled kernels serves both.
#define CL_TARGET_OPENCL_VERSION 200
#define CL_USE_DEPRECATED_OPENCL_1_2_APIS
#include <CL/cl.h>

#include <dlfcn.h>
#include <pthread.h>
#include <stdlib.h>

#include "pocl.h"

#define CALLS(X)                 \
    X(clBuildProgram)            \
    X(clCreateCommandQueue)      \
    X(clCreateContext)           \
    X(clCreateKernel)            \
    X(clCreateProgramWithSource) \
    X(clEnqueueNDRangeKernel)    \
    X(clFinish)                  \
    X(clGetDeviceIDs)            \
    X(clGetPlatformIDs)          \
    X(clReleaseCommandQueue)     \
    X(clReleaseKernel)           \
    X(clSetKernelArg)            \
    X(clSetKernelArgSVMPointer)

static struct {
#define SLOT(name) __typeof__(&name) name;
    CALLS(SLOT)
#undef SLOT
} cl;

struct double_cl_queue {
    cl_command_queue queue;
    cl_kernel kernels[PGD_PORTABLE_COUNT];
};

static pthread_once_t once = PTHREAD_ONCE_INIT;
static int start_error;
static cl_device_id device;
static cl_context context;
static cl_program program;

static int find_calls(void) {
    void *handle = dlopen("libOpenCL.so.1", RTLD_NOW | RTLD_LOCAL);
    if (handle == NULL) {
        return DOUBLE_NO_DEVICE;
    }
#define FIND(name)                             \
    *(void **)&cl.name = dlsym(handle, #name); \
    if (cl.name == NULL) {                     \
        return DOUBLE_NO_DEVICE;               \
    }
    CALLS(FIND)
#undef FIND
    return DOUBLE_OK;
}

static int make_program(void) {
    const char *source = pgd_portable_source;
    const size_t bytes = pgd_portable_source_bytes;
    cl_platform_id platform = NULL;
    cl_int error = 0;
    if (find_calls() != DOUBLE_OK || cl.clGetPlatformIDs(1, &platform, NULL) != CL_SUCCESS ||
        cl.clGetDeviceIDs(platform, CL_DEVICE_TYPE_ALL, 1, &device, NULL) != CL_SUCCESS) {
        return DOUBLE_NO_DEVICE;
    }
    context = cl.clCreateContext(NULL, 1, &device, NULL, NULL, &error);
    if (error == CL_SUCCESS) {
        program = cl.clCreateProgramWithSource(context, 1, &source, &bytes, &error);
    }
    if (error == CL_SUCCESS) {
        error = cl.clBuildProgram(program, 1, &device, "-cl-std=CL1.2", NULL, NULL);
    }
    return error == CL_SUCCESS ? DOUBLE_OK : DOUBLE_LOST;
}

static void start(void) {
    start_error = make_program();
}

int double_cl_start(void) {
    pthread_once(&once, start);
    return start_error;
}

double_cl_queue *double_cl_queue_create(void) {
    double_cl_queue *q = calloc(1, sizeof(*q));
    cl_int error = 0;
    if (q == NULL) {
        return NULL;
    }
    q->queue = cl.clCreateCommandQueue(context, device, 0, &error);
    if (error != CL_SUCCESS) {
        free(q);
        return NULL;
    }
    return q;
}

void double_cl_queue_destroy(double_cl_queue *q) {
    if (q == NULL) {
        return;
    }
    cl.clFinish(q->queue);
    for (int i = 0; i < PGD_PORTABLE_COUNT; i++) {
        if (q->kernels[i] != NULL) {
            cl.clReleaseKernel(q->kernels[i]);
        }
    }
    cl.clReleaseCommandQueue(q->queue);
    free(q);
}

int double_cl_run(double_cl_queue *q, int kernel, const unsigned groups[3], void *const memories[],
                  const void *params) {
    const pgd_portable_kernel *k = &pgd_portable_kernels[kernel];
    const size_t local[3] = {k->n_items, 1, 1};
    const size_t global[3] = {(size_t)groups[0] * k->n_items, groups[1], groups[2]};
    cl_int error = CL_SUCCESS;
    if (q->kernels[kernel] == NULL) {
        q->kernels[kernel] = cl.clCreateKernel(program, k->name, &error);
    }
    for (cl_uint i = 0; error == CL_SUCCESS && i < PGD_PORTABLE_MEMORIES; i++) {
        error = cl.clSetKernelArgSVMPointer(q->kernels[kernel], i, memories[i]);
    }
    if (error == CL_SUCCESS) {
        error =
            cl.clSetKernelArg(q->kernels[kernel], PGD_PORTABLE_MEMORIES, k->params_bytes, params);
    }
    if (error == CL_SUCCESS) {
        error = cl.clEnqueueNDRangeKernel(q->queue, q->kernels[kernel], 3, NULL, global, local, 0,
                                          NULL, NULL);
    }
    return error == CL_SUCCESS ? DOUBLE_OK : DOUBLE_LOST;
}

int double_cl_finish(double_cl_queue *q) {
    return cl.clFinish(q->queue) == CL_SUCCESS ? DOUBLE_OK : DOUBLE_LOST;
}
