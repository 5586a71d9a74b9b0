// What the tests of this folder share: every instruction set this machine runs, and numbers.
#ifndef PGD_KERNELS_CPU_ISA_TEST_H
#define PGD_KERNELS_CPU_ISA_TEST_H

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "kernels.h"

// Runs body with k = the table of each instruction set of this machine.
#define FOR_EACH_ISA(k)                                                 \
    for (const char *const *isa_ = pgd_cpu_isas; *isa_ != NULL; isa_++) \
        for (const pgd_cpu_kernels *k = pgd_cpu_pick(*isa_); k != NULL; k = NULL)

// Steps of a generator of test numbers (Steele and Vigna's SplitMix64).
static inline uint64_t test_next(uint64_t *state) {
    uint64_t z = *state += UINT64_C(0x9E3779B97F4A7C15);
    z = (z ^ (z >> 30)) * UINT64_C(0xBF58476D1CE4E5B9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94D049BB133111EB);
    return z ^ (z >> 31);
}

// In [-1, 1).
static inline float test_float(uint64_t *state) {
    return (float)((double)(test_next(state) >> 11) * 0x1p-52 - 1.0);
}

#endif
