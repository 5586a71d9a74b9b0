// What is HIP's own in this plugin: the calls that CUDA has in another form, and the kernels.
#ifndef PGD_BACKENDS_HIP_HIP_H
#define PGD_BACKENDS_HIP_HIP_H

#include "../gpu/matrix.h"
#include "../gpu/stream.h"

enum { // hipDeviceAttribute_t, the numbers since ROCm 4.5
    HIP_MEMORY_BUS_WIDTH = 59,
    HIP_MEMORY_CLOCK_RATE = 60, // kHz
    HIP_MULTIPROCESSOR_COUNT = 63,
};

enum { HIP_TO_DEVICE = 1, HIP_TO_HOST = 2, HIP_ON_DEVICE = 3 }; // hipMemcpyKind

enum {                        // of hipBLASLt
    HIP_COMPUTE_F32 = 2,      // hipblasComputeType_t
    HIP_TRANSPOSED = 112,     // hipblasOperation_t
    HIP_TRANS_A = 0,          // hipblasLtMatmulDescAttributes_t
    HIP_WISH_SCRATCH = 1,     // hipblasLtMatmulPreferenceAttributes_t
    HIP_ALGORITHM_BYTES = 24, // hipblasLtMatmulAlgo_t
};

// Room for hipDeviceProp_t, which has 792 bytes up to ROCm 5 and 1472 from ROCm 6 on. Its name is
// the first 256; the name of the chip ("gfx942:sramecc+:xnack-") moved between the two.
enum { HIP_PROPERTIES_BYTES = 8192, HIP_PROPERTIES_NAME = 256 };

typedef const char *(*hip_error_text_fn)(int error);
typedef int (*hip_set_device_fn)(int device);
typedef int (*hip_properties_fn)(void *out, int device);
typedef int (*hip_copy_2d_fn)(void *dst, size_t dst_pitch, const void *src, size_t src_pitch,
                              size_t bytes, size_t rows, int kind, void *stream);
typedef int (*hip_instantiate_fn)(void **out_exec, void *graph, void **out_node, char *log,
                                  size_t log_bytes);

// A code object for each chip, made at build time where there is clang-19; else the list is empty.
extern const gpu_stream_image hip_images[];
// The matrix-unit kernels for those of the chips that have such units.
extern const gpu_stream_image hip_tuned_images[];

// tuned.c: those kernels, and the unit of a chip; NULL: it has none.
extern const gpu_tuned hip_tuned;
const pgd_matrix_unit *hip_matrix_unit(const char *arch);

extern const gpu_driver hip_driver;

#endif
