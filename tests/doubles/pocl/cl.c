// The loader libOpenCL.so.1 and its first device.
#include "cl.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdbool.h>

static pthread_once_t once = PTHREAD_ONCE_INIT;
static double_cl cl;
static bool is_open;

static bool find_calls(void) {
    void *handle = dlopen("libOpenCL.so.1", RTLD_NOW | RTLD_LOCAL);
    if (handle == NULL) {
        return false;
    }
#define FIND(name)                             \
    *(void **)&cl.name = dlsym(handle, #name); \
    if (cl.name == NULL) {                     \
        return false;                          \
    }
    DOUBLE_CL_CALLS(FIND)
#undef FIND
    return true;
}

static void open_once(void) {
    cl_platform_id platform = NULL;
    cl_int error = CL_SUCCESS;
    if (find_calls() && cl.clGetPlatformIDs(1, &platform, NULL) == CL_SUCCESS &&
        cl.clGetDeviceIDs(platform, CL_DEVICE_TYPE_ALL, 1, &cl.device, NULL) == CL_SUCCESS) {
        cl.context = cl.clCreateContext(NULL, 1, &cl.device, NULL, NULL, &error);
        is_open = error == CL_SUCCESS;
    }
}

const double_cl *double_cl_open(void) {
    pthread_once(&once, open_once);
    return is_open ? &cl : NULL;
}

cl_int double_cl_launch(cl_command_queue queue, cl_kernel kernel, const unsigned groups[3],
                        const size_t local[3]) {
    const size_t global[3] = {groups[0] * local[0], groups[1] * local[1], groups[2] * local[2]};
    return cl.clEnqueueNDRangeKernel(queue, kernel, 3, NULL, global, local, 0, NULL, NULL);
}
