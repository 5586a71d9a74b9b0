// A layer of the OpenCL loader (OPENCL_LAYERS names it; cl_layer.h) that lets a driver fail.
//
// PAGODA_DOUBLE: devices=0 (a driver without a device), hang=1 (no answer to the first question),
// driver=1 (too old for the kernels), oom=n (no memory at the n-th buffer), launch_oom=n (nor at
// the n-th launch), lose=n (the device is gone after n launches).
#include <pthread.h>
#include <stdbool.h>

#include "entry.h"
#include "pocl.h"

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; // guards what follows
static int64_t n_allocations;
static int64_t n_launches;

static bool has_memory(void) {
    pthread_mutex_lock(&lock);
    const bool has = ++n_allocations != double_settings_get()->oom;
    pthread_mutex_unlock(&lock);
    return has;
}

static bool is_lost(void) {
    const int64_t most = double_settings_get()->lose;
    pthread_mutex_lock(&lock);
    const bool lost = ++n_launches > most && most > 0;
    pthread_mutex_unlock(&lock);
    return lost;
}

static cl_int CL_API_CALL get_devices(cl_platform_id platform, cl_device_type type, cl_uint n,
                                      cl_device_id *list, cl_uint *out_n) {
    if (double_init() != DOUBLE_OK) {
        return CL_DEVICE_NOT_FOUND;
    }
    return layer_below.clGetDeviceIDs(platform, type, n, list, out_n);
}

static cl_int CL_API_CALL build(cl_program program, cl_uint n, const cl_device_id *devices,
                                const char *options, void(CL_CALLBACK *notify)(cl_program, void *),
                                void *arg) {
    return double_settings_get()->driver < 100
               ? CL_BUILD_PROGRAM_FAILURE
               : layer_below.clBuildProgram(program, n, devices, options, notify, arg);
}

static cl_mem CL_API_CALL create_buffer(cl_context context, cl_mem_flags flags, size_t bytes,
                                        void *ptr, cl_int *out_error) {
    if (!has_memory()) {
        *out_error = CL_MEM_OBJECT_ALLOCATION_FAILURE;
        return NULL;
    }
    return layer_below.clCreateBuffer(context, flags, bytes, ptr, out_error);
}

static cl_int CL_API_CALL launch(cl_command_queue queue, cl_kernel kernel, cl_uint n_dims,
                                 const size_t *offset, const size_t *global, const size_t *local,
                                 cl_uint n_waits, const cl_event *waits, cl_event *out_event) {
    if (is_lost()) {
        return CL_DEVICE_NOT_AVAILABLE;
    }
    if (!double_launch_has_memory()) {
        return CL_OUT_OF_RESOURCES;
    }
    return layer_below.clEnqueueNDRangeKernel(queue, kernel, n_dims, offset, global, local, n_waits,
                                              waits, out_event);
}

void layer_replace(cl_icd_dispatch *table) {
    table->clGetDeviceIDs = get_devices;
    table->clBuildProgram = build;
    table->clCreateBuffer = create_buffer;
    table->clEnqueueNDRangeKernel = launch;
}
