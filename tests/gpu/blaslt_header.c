// What backends/gpu declares of cuBLASLt against cublasLt.h: compiled, never run.
#include <cublasLt.h>

#include "cuda/cuda.h"

#define SAME(a, b) _Static_assert((long)(a) == (long)(b), #a)

SAME(CUDA_COMPUTE_F32, CUBLAS_COMPUTE_32F);
SAME(CUDA_TRANSPOSED, CUBLAS_OP_T);
SAME(CUDA_TRANS_A, CUBLASLT_MATMUL_DESC_TRANSA);
SAME(CUDA_WISH_SCRATCH, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES);
SAME(CUDA_WISH_ALIGN_A, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES);
SAME(CUDA_WISH_ALIGN_A + 1, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES);
SAME(CUDA_WISH_ALIGN_A + 2, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES);
SAME(CUDA_WISH_ALIGN_A + 3, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES);
SAME(CUDA_ALGORITHM_BYTES, sizeof(cublasLtMatmulAlgo_t));
SAME(CUDA_ALGORITHM_BYTES, offsetof(cublasLtMatmulHeuristicResult_t, workspaceSize));
SAME(CUDA_ALGORITHM_BYTES + sizeof(size_t), offsetof(cublasLtMatmulHeuristicResult_t, state));
SAME(CUBLAS_STATUS_SUCCESS, 0);
SAME(GPU_BLASLT_F32, CUDA_R_32F);
SAME(GPU_BLASLT_F16, CUDA_R_16F);
SAME(GPU_BLASLT_BF16, CUDA_R_16BF);
_Static_assert(sizeof(cublasLtMatmulHeuristicResult_t) <= GPU_BLASLT_RESULT_BYTES, "a result");
_Static_assert(sizeof(cublasOperation_t) == sizeof(int32_t), "the value of an attribute");

// Arguments: a call with ours is one of theirs but for the names of types.
#define TAKES(slot, ...) _Static_assert(sizeof(__VA_ARGS__) == sizeof(int), #slot)
#define SLOT(type)       ((type)(void *)0)

TAKES(create, cublasLtCreate(SLOT(cublasLtHandle_t *)));
TAKES(desc_create,
      cublasLtMatmulDescCreate(SLOT(cublasLtMatmulDesc_t *), CUBLAS_COMPUTE_32F, CUDA_R_32F));
TAKES(desc_set,
      cublasLtMatmulDescSetAttribute(SLOT(cublasLtMatmulDesc_t), CUBLASLT_MATMUL_DESC_TRANSA,
                                     SLOT(const void *), (size_t)0));
TAKES(layout_create, cublasLtMatrixLayoutCreate(SLOT(cublasLtMatrixLayout_t *), CUDA_R_32F,
                                                (uint64_t)0, (uint64_t)0, (int64_t)0));
TAKES(wish_set, cublasLtMatmulPreferenceSetAttribute(SLOT(cublasLtMatmulPreference_t),
                                                     CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES,
                                                     SLOT(const void *), (size_t)0));
TAKES(heuristic,
      cublasLtMatmulAlgoGetHeuristic(SLOT(cublasLtHandle_t), SLOT(cublasLtMatmulDesc_t),
                                     SLOT(cublasLtMatrixLayout_t), SLOT(cublasLtMatrixLayout_t),
                                     SLOT(cublasLtMatrixLayout_t), SLOT(cublasLtMatrixLayout_t),
                                     SLOT(cublasLtMatmulPreference_t), 1,
                                     SLOT(cublasLtMatmulHeuristicResult_t *), SLOT(int *)));
TAKES(matmul, cublasLtMatmul(SLOT(cublasLtHandle_t), SLOT(cublasLtMatmulDesc_t), SLOT(const void *),
                             SLOT(const void *), SLOT(cublasLtMatrixLayout_t), SLOT(const void *),
                             SLOT(cublasLtMatrixLayout_t), SLOT(const void *), SLOT(const void *),
                             SLOT(cublasLtMatrixLayout_t), SLOT(void *),
                             SLOT(cublasLtMatrixLayout_t), SLOT(const cublasLtMatmulAlgo_t *),
                             SLOT(void *), (size_t)0, SLOT(cudaStream_t)));
