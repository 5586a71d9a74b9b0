// A layer of the OpenCL loader (OPENCL_LAYERS names it; cl_layer.h) that writes down each launch:
// "pgd_add 2 31 1", the kernel and its groups, one line each, behind the file that
// PAGODA_LAUNCHES names.
#include <stdio.h>
#include <stdlib.h>

#include "entry.h"

static void write_down(cl_kernel kernel, cl_uint n_dims, const size_t *global,
                       const size_t *local) {
    const char *path = getenv("PAGODA_LAUNCHES");
    char name[64] = "?";
    size_t groups[3] = {1, 1, 1};
    FILE *file = path == NULL ? NULL : fopen(path, "a");
    if (file == NULL) {
        return;
    }
    (void)layer_below.clGetKernelInfo(kernel, CL_KERNEL_FUNCTION_NAME, sizeof(name), name, NULL);
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
    return layer_below.clEnqueueNDRangeKernel(queue, kernel, n_dims, offset, global, local, n_waits,
                                              waits, out_event);
}

void layer_replace(cl_icd_dispatch *table) {
    table->clEnqueueNDRangeKernel = launch;
}
