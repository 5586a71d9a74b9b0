// The tensor-core kernels as CUDA C++:
//   nvcc -fmad=false -O3 -arch=sm_80 --cubin -I kernels kernels/cuda/device.cu
#include "cuda/all.k"
