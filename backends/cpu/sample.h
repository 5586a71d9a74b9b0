// What the files of sample share: a row of logits as the draw and the log probabilities see it.
#ifndef PGD_BACKENDS_CPU_SAMPLE_H
#define PGD_BACKENDS_CPU_SAMPLE_H

#include <math.h>
#include <string.h>

#include "cpu.h"

#define CPU_SAMPLE_BLOCKS 2048
#define CPU_SAMPLE_STEP   64 // tokens the kernels take at a time

// A row, cut into blocks whose largest logits are known.
typedef struct cpu_row {
    const pgd_cpu_kernels *k;
    const float *v;
    float *list; // room for the row's values
    int64_t n;
    int64_t block;  // tokens of a block, a multiple of CPU_SAMPLE_STEP
    int64_t blocks; // number of blocks
    int64_t best;   // first of the largest, -1 when all are NaN
    float max;
    float top[CPU_SAMPLE_BLOCKS];
} cpu_row;

// Values of a row that are looked at further: the row itself or its list.
typedef struct cpu_live {
    const float *v;
    int64_t n;
} cpu_live;

// An integer with the order of the floats; -0 and 0 are one. v is no NaN.
static inline uint32_t cpu_key_of(float v) {
    uint32_t bits = 0;
    v = v == 0.0f ? 0.0f : v;
    memcpy(&bits, &v, sizeof(bits));
    return (bits & UINT32_C(0x80000000)) != 0 ? ~bits : bits | UINT32_C(0x80000000);
}

// The logit of a key; keys below that of -infinity are -infinity.
static inline float cpu_value_of(uint32_t key) {
    uint32_t bits = (key & UINT32_C(0x80000000)) != 0 ? key & UINT32_C(0x7fffffff) : ~key;
    float v = 0.0f;
    if (key < cpu_key_of(-INFINITY)) {
        return -INFINITY;
    }
    memcpy(&v, &bits, sizeof(v));
    return v;
}

// ---- sample_row.c ------------------------------------------------------------------------------

// Sets top, max and best; k, v, n and list are set.
void cpu_row_look(cpu_row *row);
// All values that reach floor, and perhaps others.
cpu_live cpu_row_live(const cpu_row *row, float floor);
// The k-th largest of the values that reach floor; the floor itself when there are k or fewer.
float cpu_row_kth(const cpu_row *row, float floor, int64_t k);
int64_t cpu_row_count(const cpu_row *row, float floor);

// ---- sample_draw.c -----------------------------------------------------------------------------

// L(v) of kernels/ref/sample.c.
double cpu_log_of(double v);
// The token of a row that has a best one.
int32_t cpu_draw(const cpu_row *row, const pgd_sampling *s);

// ---- sample_tell.c -----------------------------------------------------------------------------

// log of the sum of e^(l - max); the row has been looked at.
double cpu_log_sum(const cpu_row *row);
float cpu_logprob(const cpu_row *row, double log_sum, int64_t i);
int32_t cpu_rank(const cpu_row *row, int64_t i);
void cpu_best(const cpu_row *row, double log_sum, int64_t n_best, float *logprobs, int32_t *ids);

#endif
