// A layer of the OpenCL loader (OPENCL_LAYERS names it; cl_layer.h) that writes down each launch:
// "pgd_add 2 31 1", the kernel and its groups, one line each, behind the file that
// PAGODA_LAUNCHES names.
#define CL_TARGET_OPENCL_VERSION 300
#include <CL/cl_icd.h>
#include <CL/cl_layer.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static cl_icd_dispatch below; // the driver's
static cl_icd_dispatch ours;

static void write_down(cl_kernel kernel, cl_uint n_dims, const size_t *global,
                       const size_t *local) {
    const char *path = getenv("PAGODA_LAUNCHES");
    char name[64] = "?";
    size_t groups[3] = {1, 1, 1};
    FILE *file = path == NULL ? NULL : fopen(path, "a");
    if (file == NULL) {
        return;
    }
    (void)below.clGetKernelInfo(kernel, CL_KERNEL_FUNCTION_NAME, sizeof(name), name, NULL);
    for (cl_uint i = 0; i < n_dims && i < 3; i++) {
        groups[i] = global[i] / (local == NULL ? 1 : local[i]);
    }
    (void)fprintf(file, "%s %zu %zu %zu\n", name, groups[0], groups[1], groups[2]);
    (void)fclose(file);
}

static cl_int CL_API_CALL launch(cl_command_queue queue, cl_kernel kernel, cl_uint n_dims,
                                 const size_t *offset, const size_t *global, const size_t *local,
                                 cl_uint n_waits, const cl_event *waits, cl_event *out_event) {
    write_down(kernel, n_dims, global, local);
    return below.clEnqueueNDRangeKernel(queue, kernel, n_dims, offset, global, local, n_waits,
                                        waits, out_event);
}

CL_API_ENTRY cl_int CL_API_CALL clGetLayerInfo(cl_layer_info name, size_t bytes, void *value,
                                               size_t *out_bytes) {
    const cl_layer_api_version version = CL_LAYER_API_VERSION_100;
    if (name != CL_LAYER_API_VERSION || (value != NULL && bytes < sizeof(version))) {
        return CL_INVALID_VALUE;
    }
    if (value != NULL) {
        memcpy(value, &version, sizeof(version));
    }
    if (out_bytes != NULL) {
        *out_bytes = sizeof(version);
    }
    return CL_SUCCESS;
}

CL_API_ENTRY cl_int CL_API_CALL clInitLayer(cl_uint n, const cl_icd_dispatch *target,
                                            cl_uint *out_n, const cl_icd_dispatch **out) {
    const size_t bytes = n * sizeof(void *);
    if (bytes > sizeof(below)) {
        return CL_INVALID_VALUE;
    }
    memcpy(&below, target, bytes);
    ours = below;
    ours.clEnqueueNDRangeKernel = launch;
    *out_n = n;
    *out = &ours;
    return CL_SUCCESS;
}
