// Loops that do one thing as fast as a core can: what limits are measured with.
#ifndef PGD_KERNELS_CPU_LIMITS_H
#define PGD_KERNELS_CPU_LIMITS_H

#include "kernels.h"

// One kind of dot product in registers. run does n rounds of ops_per_round operations (a product
// and a sum are two); run NULL: the instruction set has none.
typedef struct pgd_cpu_dot {
    const char *instruction;
    void (*run)(int64_t n);
    int64_t ops_per_round;
} pgd_cpu_dot;

typedef struct pgd_cpu_limits {
    pgd_cpu_dot f32;
    pgd_cpu_dot bf16;
    pgd_cpu_dot i8;
    // Reads bytes (a multiple of 256) of memory aligned to 64; what it returns keeps the reads.
    uint64_t (*read)(const void *ptr, int64_t bytes);
} pgd_cpu_limits;

// Takes bytes (a multiple of 64) of memory aligned to 64 out of all caches, so that the next read
// comes from memory. 0: the machine has no such instruction, nothing was done.
int32_t pgd_cpu_forget(const void *ptr, int64_t bytes);

// The loops of a table's instruction set, what the machine cannot run left out.
void pgd_cpu_limits_of(const pgd_cpu_kernels *k, pgd_cpu_limits *out);

void f32_dot_peak__scalar(int64_t n);
void f32_dot_peak__avx2(int64_t n);
void i8_dot_peak__avx2(int64_t n);
void f32_dot_peak__avx512(int64_t n);
void bf16_dot_peak__avx512(int64_t n);
void i8_dot_peak__avx512(int64_t n);
uint64_t read_peak__scalar(const void *ptr, int64_t bytes);
uint64_t read_peak__avx2(const void *ptr, int64_t bytes);
uint64_t read_peak__avx512(const void *ptr, int64_t bytes);

// Operations of one round of each loop.
enum {
    PGD_CPU_OPS_F32_SCALAR = 8 * 4 * 2,
    PGD_CPU_OPS_F32_AVX2 = 12 * 8 * 2,
    PGD_CPU_OPS_I8_AVX2 = 6 * 32 * 2,
    PGD_CPU_OPS_F32_AVX512 = 24 * 16 * 2,
    PGD_CPU_OPS_BF16_AVX512 = 24 * 32 * 2,
    PGD_CPU_OPS_I8_AVX512 = 24 * 64 * 2,
};

#endif
