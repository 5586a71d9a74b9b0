// The door of a layer: cl_layer.h of the OpenCL loader.
#include "entry.h"

#include <CL/cl_layer.h>
#include <string.h>

cl_icd_dispatch layer_below;
static cl_icd_dispatch ours;

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
    if (bytes > sizeof(layer_below)) {
        return CL_INVALID_VALUE;
    }
    memcpy(&layer_below, target, bytes);
    ours = layer_below;
    layer_replace(&ours);
    *out_n = n;
    *out = &ours;
    return CL_SUCCESS;
}
