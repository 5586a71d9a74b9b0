// The CPU's micro-kernels: arithmetic on host memory, no threads, no policy, no allocation.
//
// list.inc names them; scalar.c, avx2.c and avx512.c compile the same bodies (*.inc) over one of
// the three vector layers (vec_*.h); avx512_bf16.c has what dot products of bf16 do better; pick.c
// chooses a table for the machine it runs on.
#ifndef PGD_KERNELS_CPU_KERNELS_H
#define PGD_KERNELS_CPU_KERNELS_H

#include <stddef.h>
#include <stdint.h>

enum {
    PGD_CPU_PANEL = 32,  // rows of W in a panel
    PGD_CPU_ROWS = 12,   // rows of x in a gemm tile
    PGD_CPU_DEPTH = 512, // longest sum in one chain: products with a larger k are cut here
    PGD_CPU_TILE = 64,   // positions in an attention tile
    PGD_CPU_BINS = 1024, // of masses
};

// What follows the sum of a gemm. Pointers stand at the first row and column of the tile.
typedef struct pgd_cpu_finish {
    const float *bias; // [cols] or NULL
    const float *aux;  // [m, cols] or NULL
    int64_t ldaux;
    int32_t act;      // PGD_ACT_...
    int32_t aux_kind; // PGD_AUX_...
    float alpha;
    float act_alpha; // not 0
    float act_limit; // > 0: an upper bound of what goes into act
} pgd_cpu_finish;

// A part of a product: m rows of x by k values of the rows of one panel.
typedef struct pgd_cpu_part {
    const void *x; // [m][ldx]; of quantized weights pgd_cpu_int8, ldx of them a row
    int64_t ldx;
    int64_t m;
    int64_t k;
    const void *w;    // the panel, from the first of the k on
    const void *next; // the part that is read after this one, to be fetched meanwhile, or NULL
    float *acc;       // [m][ldacc], 32 columns
    int64_t ldacc;
    int32_t add; // 1: to what is in acc
    int32_t reserved0;
} pgd_cpu_part;

// 32 values of x as int8: x = d * q. A row of k values is ceil(k / 32) of them, zeros at the end.
typedef struct pgd_cpu_int8 {
    int8_t q[32];
    float d;      // largest magnitude / 127
    int32_t c[3]; // -128 * sum of q: of all, of the first 16, of the others
    float s[3];   // d * sum of q, likewise
    int32_t reserved0;
} pgd_cpu_int8;

typedef void (*pgd_cpu_product_fn)(const pgd_cpu_part *part);

// How a score becomes a logit.
typedef struct pgd_cpu_score {
    float scale;
    float softcap; // 0 = off
} pgd_cpu_score;

// How tokens fall into bins: by their keys in [first, last], 2^shift of them a bin; or, with a
// scale, by floor((x - low) * scale) in f32, x >= low, the last bin taking what is above.
typedef struct pgd_cpu_span {
    uint32_t first;
    uint32_t last;
    int32_t shift;
    float low;
    float scale; // 0 = by keys
} pgd_cpu_span;

// Penalties of sample; repetition is not 0.
typedef struct pgd_cpu_penalty {
    float repetition;
    float presence;
    float frequency;
} pgd_cpu_penalty;

// One instruction set's kernels.
typedef struct pgd_cpu_kernels {
    const char *isa;
    int64_t dot_bytes; // of an element of x in bf16_dot_12x32
#define PGD_CPU_KERNEL(name, result, params) result(*name) params;
#include "list.inc"
} pgd_cpu_kernels;

#define PGD_CPU_KERNEL(name, result, params) \
    result name##__scalar params;            \
    result name##__avx2 params;              \
    result name##__avx512 params;
#include "list.inc"

#define PGD_CPU_KERNEL(name, result, params)
#define PGD_CPU_KERNEL_INT8(name, result, params) \
    result name##__avx2_vnni params;              \
    result name##__avx512_vnni params;            \
    result name##__amx params;
#include "list.inc"

#define PGD_CPU_KERNEL(name, result, params)
#define PGD_CPU_KERNEL_DOT(name, result, params) result name##__avx512_bf16 params;
#include "list.inc"

void bf16_dot_12x32__amx(const pgd_cpu_part *part);

// Names of the instruction sets, slowest first, behind the last NULL.
extern const char *const pgd_cpu_isas[];

// A product of the list.
typedef struct pgd_cpu_product {
    const char *name;
    int32_t w_dtype;
    int32_t x_dtype; // PGD_BF16: rows made by bf16_round
    uint64_t slot;   // offset in pgd_cpu_kernels
} pgd_cpu_product;

// All of them; the last has no name.
extern const pgd_cpu_product pgd_cpu_products[];

// A product with quantized weights.
typedef struct pgd_cpu_quant_product {
    const char *name;
    int32_t scheme;
    int32_t reserved0;
    uint64_t slot; // offset in pgd_cpu_kernels
} pgd_cpu_quant_product;

// All of them; the last has no name.
extern const pgd_cpu_quant_product pgd_cpu_quant_products[];

// The product of a scheme, NULL where there is none.
pgd_cpu_product_fn pgd_cpu_quant_product_of(const pgd_cpu_kernels *k, int32_t scheme);

pgd_cpu_product_fn pgd_cpu_product_at(const pgd_cpu_kernels *k, const pgd_cpu_product *product);

// The table of `isa` (of pgd_cpu_isas, "auto" or NULL), or NULL when this machine or its system
// cannot run it (or there is no such name). "auto" takes the fastest and is never NULL. Where the
// processor has AMX, the first call asks the system to let this process use it.
const pgd_cpu_kernels *pgd_cpu_pick(const char *isa);

// Asks the system to let this process use tile registers; 1 when it may. (tiles.c)
int pgd_cpu_ask_for_tiles(void);

// 1 when products of bf16 by bf16 (bf16_dot_12x32) are faster with k, on this processor, than those
// of f32 by bf16.
int pgd_cpu_dot_pays(const pgd_cpu_kernels *k);

#endif
