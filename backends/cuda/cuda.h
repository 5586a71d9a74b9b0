// What is CUDA's own in this plugin: the calls that HIP has in another form, in CUDA's binary
// layout, and the kernels.
#ifndef PGD_BACKENDS_CUDA_CUDA_H
#define PGD_BACKENDS_CUDA_CUDA_H

#include "../gpu/stream.h"
#include "cuda/kernels.h"

enum { // CUdevice_attribute
    CUDA_MULTIPROCESSOR_COUNT = 16,
    CUDA_MEMORY_CLOCK_RATE = 36, // kHz
    CUDA_GLOBAL_MEMORY_BUS_WIDTH = 37,
    CUDA_COMPUTE_CAPABILITY_MAJOR = 75,
    CUDA_COMPUTE_CAPABILITY_MINOR = 76,
};

enum { CUDA_HOST = 1, CUDA_DEVICE = 2 }; // CUmemorytype
enum { CUDA_MAX_DYNAMIC_SHARED = 8 };    // CUfunction_attribute

enum {                     // of cuBLASLt
    CUDA_COMPUTE_F32 = 68, // cublasComputeType_t
    CUDA_TRANSPOSED = 1,   // cublasOperation_t
    CUDA_TRANS_A = 3,      // cublasLtMatmulDescAttributes_t
    CUDA_WISH_SCRATCH = 1, // cublasLtMatmulPreferenceAttributes_t
    CUDA_WISH_ALIGN_A = 5,
    CUDA_ALGORITHM_BYTES = 64, // cublasLtMatmulAlgo_t
};

enum { CUDA_PROGRAMMATIC_SERIALIZATION = 6 }; // CUlaunchAttributeID

typedef struct cuda_attribute { // CUlaunchAttribute
    int32_t id;
    int32_t reserved0;
    _Alignas(8) unsigned char value[64];
} cuda_attribute;

typedef struct cuda_launch_config { // CUlaunchConfig
    uint32_t groups[3];
    uint32_t items[3];
    uint32_t shared;
    void *stream;
    cuda_attribute *attributes;
    uint32_t n_attributes;
} cuda_launch_config;

typedef struct cuda_copy_2d { // CUDA_MEMCPY2D
    size_t src_x;
    size_t src_y;
    int32_t src_kind;
    const void *src_host;
    uint64_t src_device;
    void *src_array;
    size_t src_pitch;
    size_t dst_x;
    size_t dst_y;
    int32_t dst_kind;
    void *dst_host;
    uint64_t dst_device;
    void *dst_array;
    size_t dst_pitch;
    size_t bytes; // of a row
    size_t rows;
} cuda_copy_2d;

typedef int (*cuda_error_text_fn)(int error, const char **out);
typedef int (*cuda_retain_fn)(void **out_context, int device);
typedef int (*cuda_release_fn)(int device);
typedef int (*cuda_current_fn)(void *context);
typedef int (*cuda_copy_2d_fn)(const cuda_copy_2d *copy, void *stream);
typedef int (*cuda_launch_ex_fn)(const cuda_launch_config *config, void *function, void **params,
                                 void **extra);
typedef int (*cuda_set_attribute_fn)(void *function, int what, int value);
typedef int (*cuda_instantiate_fn)(void **out_exec, void *graph, unsigned long long flags);

// The fat binary, made at build time where there is nvcc; else the list is empty.
extern const gpu_stream_image cuda_images[];
extern const gpu_stream_image cuda_tuned_images[];

// overlap.c: whether the option and the device allow it; chips: those with code, "80 90a".
bool cuda_overlaps(const pgd_host *host, const char *chips, int version, const char *arch);
int cuda_launch_overlapping(cuda_launch_ex_fn call, void *function, const gpu_stream_grid *g,
                            void *stream, void **params);

// tuned.c
extern const gpu_tuned cuda_tuned;
extern const gpu_tuned cuda_hopper_tuned; // with wgmma
// trial.c: cuda_hopper_tuned where a device has it and gives the same bits with it, else NULL.
const gpu_tuned *cuda_better(const pgd_host *host, const gpu_driver *driver, void *device,
                             const gpu_device_facts *facts);
// tuned_attn.c: what tuned.h says of them.
const char *cuda_tuned_attention(const pgd_attn_args *a, const pgd_kv_desc *kv, const pgd_batch *b,
                                 uint64_t *out_scratch);
void cuda_tuned_emit_attention(gpu_op *op, const gpu_work *made, const k_attn_params *p,
                               const pgd_attn_args *a);
// tuned_fused.c: as in tuned.h, but the last.
void cuda_tuned_emit_norm(gpu_op *op, const gpu_work *made, const k_norm_params *p);
void cuda_tuned_emit_front(gpu_op *op, const gpu_product *of, bool writes);
int32_t cuda_tuned_best(const pgd_weight_desc *w, int32_t *out_rows);
void cuda_tuned_emit_draw(gpu_op *op, const gpu_work *made, const k_sample_params *p,
                          int64_t best_at, int32_t n_best);
// What follows a product of few rows, if `of` asks for it (NULL: nothing) and it fits.
void cuda_tuned_set_tail(gpu_op *op, gpu_work *work, kc_gemm_params *p, gpu_product *of);

extern const gpu_driver cuda_driver;

#endif
