// OpenCL as the stand-ins use it: its calls, the first device of the loader (PoCL), a context.
#ifndef PGD_TESTS_DOUBLES_POCL_CL_H
#define PGD_TESTS_DOUBLES_POCL_CL_H

#define CL_TARGET_OPENCL_VERSION 200
#define CL_USE_DEPRECATED_OPENCL_1_2_APIS
#include <CL/cl.h>

#define DOUBLE_CL_CALLS(X)       \
    X(clBuildProgram)            \
    X(clCreateCommandQueue)      \
    X(clCreateContext)           \
    X(clCreateKernel)            \
    X(clCreateProgramWithBinary) \
    X(clCreateProgramWithSource) \
    X(clEnqueueNDRangeKernel)    \
    X(clFinish)                  \
    X(clGetDeviceIDs)            \
    X(clGetPlatformIDs)          \
    X(clGetProgramBuildInfo)     \
    X(clReleaseCommandQueue)     \
    X(clReleaseKernel)           \
    X(clReleaseProgram)          \
    X(clSetKernelArg)            \
    X(clSetKernelArgSVMPointer)

typedef struct double_cl {
#define DOUBLE_CL_SLOT(name) __typeof__(&name) name;
    DOUBLE_CL_CALLS(DOUBLE_CL_SLOT)
#undef DOUBLE_CL_SLOT
    cl_device_id device;
    cl_context context;
} double_cl;

// Opened once and kept; NULL when there is no loader or no device. [any]
const double_cl *double_cl_open(void);

// groups[0] x groups[1] x groups[2] groups of local[0] x local[1] x local[2] items.
cl_int double_cl_launch(cl_command_queue queue, cl_kernel kernel, const unsigned groups[3],
                        const size_t local[3]);

#endif
