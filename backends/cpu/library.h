// Libraries of other people that this plugin can use when they are installed: opened with dlopen
// when first asked for, never linked.
//
//   blas.c       OpenBLAS: f32 products; for deterministic=off and as a yardstick
//   dnn.c        oneDNN: f32, bf16 and 8-bit products; a yardstick
//   yardstick.c  the extension "x.yardsticks.1" over both
//
// The team's workers share the work: each calls the library for its own columns of y, and the
// library stays on the thread that called it.
#ifndef PGD_BACKENDS_CPU_LIBRARY_H
#define PGD_BACKENDS_CPU_LIBRARY_H

#include <pagoda/yardsticks.h>

#include "cpu.h"

extern const pgd_yardsticks cpu_yardsticks_table;

// Opens the first of n names and looks up n_symbols functions: symbols[i] into targets[i].
// false: why[cap] says what is missing.
bool cpu_library_open(const char *const *names, uint32_t n, const char *const *symbols,
                      void **targets, uint32_t n_symbols, char *why, size_t cap);

// ---- blas.c ------------------------------------------------------------------------------------

typedef struct cpu_blas {
    bool usable;
    bool is_wide; // its kernels for this processor have vectors of 512 bits
    bool is_safe; // several threads may call it at once
    char version[64];
    char reason[160]; // "" when usable
    // C [m, n] += alpha A B, as cblas_sgemm
    void (*sgemm)(int order, int trans_a, int trans_b, int m, int n, int k, float alpha,
                  const float *a, int lda, const float *b, int ldb, float beta, float *c, int ldc);
} cpu_blas;

enum { CPU_BLAS_ROW_MAJOR = 101, CPU_BLAS_PLAIN = 111, CPU_BLAS_TRANSPOSED = 112 };

// [any] Opened once for the process; never NULL.
const cpu_blas *cpu_blas_get(void);
// OpenBLAS, when the option `deterministic` is off and it has kernels as wide as ours; else NULL.
const cpu_blas *cpu_blas_wanted(const pgd_host *host, const char *isa);
// acc [m, 32] = x [m, k] times one f32 panel, if the device's products may be made by OpenBLAS and
// m is large enough for it; else false.
bool cpu_blas_panel(const pgd_device *d, const pgd_weight *w, int64_t index, const float *x,
                    int64_t ldx, int64_t m, float *acc);

// ---- dnn.c -------------------------------------------------------------------------------------

// What a library knows of one worker's columns of a product.
typedef struct cpu_dnn_part cpu_dnn_part;

// "" in reason: usable, with the PGD_LIMIT_DOT_... it can do as bits.
void cpu_dnn_info(pgd_yardstick_info *out);
// x [m, k] of the type; weights are made inside. y: room for [m, n] of 4 bytes.
//   fails  UNAVAILABLE, OUT_OF_MEMORY
pgd_status cpu_dnn_create(const pgd_device *d, const pgd_yardstick_desc *desc, int64_t n, void *x,
                          void *y, cpu_dnn_part **out) PGD_MUST_USE;
int cpu_dnn_run(const cpu_dnn_part *part, uint32_t which); // 0 = done
void cpu_dnn_destroy(const pgd_device *d, cpu_dnn_part *part);

#endif
