// The portable kernels on PoCL. Their source is that of the OpenCL plugin, so that PoCL's cache of
// compiled kernels serves both.
#include <pthread.h>
#include <stdlib.h>

#include "cl.h"
#include "pocl.h"

struct double_cl_queue {
    cl_command_queue queue;
    cl_kernel kernels[PGD_PORTABLE_COUNT];
};

static pthread_once_t once = PTHREAD_ONCE_INIT;
static int start_error;
static const double_cl *cl;
static cl_program program;

static int make_program(void) {
    const char *source = pgd_portable_source;
    const size_t bytes = pgd_portable_source_bytes;
    cl_int error = CL_SUCCESS;
    cl = double_cl_open();
    if (cl == NULL) {
        return DOUBLE_NO_DEVICE;
    }
    program = cl->clCreateProgramWithSource(cl->context, 1, &source, &bytes, &error);
    if (error == CL_SUCCESS) {
        error = cl->clBuildProgram(program, 1, &cl->device, "-cl-std=CL1.2", NULL, NULL);
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
    q->queue = cl->clCreateCommandQueue(cl->context, cl->device, 0, &error);
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
    cl->clFinish(q->queue);
    for (int i = 0; i < PGD_PORTABLE_COUNT; i++) {
        if (q->kernels[i] != NULL) {
            cl->clReleaseKernel(q->kernels[i]);
        }
    }
    cl->clReleaseCommandQueue(q->queue);
    free(q);
}

int double_cl_run(double_cl_queue *q, int kernel, const unsigned groups[3], void *const memories[],
                  const void *params) {
    const pgd_portable_kernel *k = &pgd_portable_kernels[kernel];
    const size_t local[3] = {k->n_items, 1, 1};
    cl_int error = CL_SUCCESS;
    if (q->kernels[kernel] == NULL) {
        q->kernels[kernel] = cl->clCreateKernel(program, k->name, &error);
    }
    for (cl_uint i = 0; error == CL_SUCCESS && i < PGD_PORTABLE_MEMORIES; i++) {
        error = cl->clSetKernelArgSVMPointer(q->kernels[kernel], i, memories[i]);
    }
    if (error == CL_SUCCESS) {
        error =
            cl->clSetKernelArg(q->kernels[kernel], PGD_PORTABLE_MEMORIES, k->params_bytes, params);
    }
    if (error == CL_SUCCESS) {
        error = double_cl_launch(q->queue, q->kernels[kernel], groups, local);
    }
    return error == CL_SUCCESS ? DOUBLE_OK : DOUBLE_LOST;
}

int double_cl_finish(double_cl_queue *q) {
    return cl->clFinish(q->queue) == CL_SUCCESS ? DOUBLE_OK : DOUBLE_LOST;
}
