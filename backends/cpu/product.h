// A product y = x W^T, the step that the ops of op_gemm.c share (product.c).
#ifndef PGD_BACKENDS_CPU_PRODUCT_H
#define PGD_BACKENDS_CPU_PRODUCT_H

#include "cpu.h"

typedef struct cpu_product {
    const pgd_device *d;
    const pgd_cpu_kernels *k;
    const pgd_weight *w;
    pgd_cpu_product_fn fns[CPU_SEGMENTS]; // of each segment of w
    cpu_view x, y, aux;
    unsigned char *rounded;   // [rows][ld_rounded] of x by bf16_round, NULL = x is taken as it is
    int64_t ld_rounded;       // elements
    bool rounds;              // rounded is the scratch and made of x, else x itself
    bool x_bf16;              // x is bf16
    pgd_cpu_int8 *blocks;     // [rows][cpu_int8_ld] of x by int8_round, for quantized weights
    const float *bias;        // NULL = none
    const cpu_sample *sample; // what takes y panel by panel, NULL = y is written
    pgd_cpu_finish how;
    uint32_t n_workers;
    bool gated;  // y is act(gate) * up, W in gated layout
    bool y_bf16; // and is bf16
    // of the live rows
    int64_t rows;
    int64_t block_rows;
    int64_t n_blocks;
    int64_t group;
    int64_t n_groups;
    int64_t slab;
} cpu_product;

// The kernels for the segments of w; an op sets x, y and what comes behind the sums.
void cpu_product_init(cpu_product *p, const pgd_exec *x, const pgd_weight *w);
// Cuts the product for so many live rows and sets its phase.
void cpu_product_live(cpu_product *p, int64_t rows, cpu_phase *phase);
// Items [i0, i1) of a cut product.
void cpu_product_items(void *ctx, int64_t i0, int64_t i1, uint32_t worker);

#endif
