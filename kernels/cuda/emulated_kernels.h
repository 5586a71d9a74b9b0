// The tensor-core kernels as the emulator runs them, by PGD_CUDA_ number (kernels.h).
#ifndef PGD_KERNELS_CUDA_EMULATED_KERNELS_H
#define PGD_KERNELS_CUDA_EMULATED_KERNELS_H

#include "portable/emulator.h"

extern const pgd_emulator_kernel pgd_emulated_cuda_kernels[];

#endif
