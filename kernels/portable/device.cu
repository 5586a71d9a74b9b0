// All kernels as CUDA C++ or HIP:
//   nvcc -fmad=false -O3 -arch=sm_80 --cubin -I kernels
//   clang-19 -x hip --offload-arch=gfx942 -nogpulib -nogpuinc --cuda-device-only
//            --no-gpu-bundle-output -O3 -ffp-contract=off -I kernels -c
#include "portable/dialect.h"
#include "portable/params.h"

#include "portable/numbers.k"

#include "portable/block.k"

#include "portable/attn.k"
#include "portable/finish.k"
#include "portable/gemm.k"
#include "portable/move.k"
#include "portable/rows.k"
#include "portable/sample.k"
