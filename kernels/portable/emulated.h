// The portable kernels compiled as C, in the order of their numbers (portable.h).
#ifndef PGD_KERNELS_PORTABLE_EMULATED_H
#define PGD_KERNELS_PORTABLE_EMULATED_H

#include "portable/emulator.h"

extern const pgd_emulator_kernel pgd_emulated_kernels[];

#endif
