// What every layer of the OpenCL loader has: the two functions that the loader asks for (entry.c).
// A layer brings `layer_replace`, which puts its own functions into the table that callers get.
#ifndef DOUBLE_OPENCL_ENTRY_H
#define DOUBLE_OPENCL_ENTRY_H

#define CL_TARGET_OPENCL_VERSION 300
#include <CL/cl_icd.h>

extern cl_icd_dispatch layer_below; // the driver's functions, from clInitLayer on

void layer_replace(cl_icd_dispatch *table);

#endif
