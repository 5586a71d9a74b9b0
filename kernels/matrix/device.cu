// The matrix-unit kernels as HIP, or as OpenCL C for SPIR-V:
//   clang-19 -x hip --offload-arch=gfx942 -nogpulib -nogpuinc --cuda-device-only
//            --no-gpu-bundle-output -O3 -ffp-contract=off -I kernels -c
//   clang-15 -target spir64 -x cl -cl-std=CL1.2 -DKM_DPAS=16 ... (backends/level_zero/spirv.cmake)
#include "matrix/dialect.h"

#include "portable/numbers.k"

#include "portable/finish.k"

#include "matrix/gemm.k"
