// What the files of sample share; see sample.c for what the numbers mean.
#ifndef PGD_KERNELS_REF_SAMPLE_H
#define PGD_KERNELS_REF_SAMPLE_H

#include "ref/common.h"

// An integer with the order of the floats; -0 and 0 are one, NaN is 0 and smaller than all.
uint32_t pgd_ref_key(float v);

// Sampling row r; fields a smaller caller does not have are zero.
pgd_sampling pgd_ref_sampling(const pgd_batch *batch, int64_t r);

// sample_change.c: mask, bias and penalties in place. state: the row's counts or NULL.
//   fails (the check)  INVALID for indexes outside of their arrays and numbers that are none
pgd_status pgd_ref_check_change(const pgd_exec *x, const pgd_sample_args *a, int64_t r,
                                const pgd_sampling *s) PGD_MUST_USE;
void pgd_ref_change(const pgd_batch *batch, const pgd_sampling *s, const int32_t *state,
                    float *logits, int64_t n);
// Adds the token to the counts of its row.
void pgd_ref_count(int32_t *state, int32_t token);

// sample_draw.c: the token of a row; GIVEN and LOGPROBS are not looked at.
int32_t pgd_ref_draw(const float *logits, int64_t n, const pgd_sampling *s);

// sample_logprobs.c: columns 1 to n_best of row r, and what column 0 needs once there is a token.
typedef struct pgd_ref_logprobs {
    const float *logits;
    int64_t n;
    float max;
    int32_t reserved0;
    double log_sum;
} pgd_ref_logprobs;

pgd_ref_logprobs pgd_ref_logprobs_of(const float *logits, int64_t n);
// Log probability of token i; -1 and NaN give -infinity.
float pgd_ref_logprob(const pgd_ref_logprobs *p, int64_t i);
// Tokens whose logit is at least that of token i; 0 for -1.
int32_t pgd_ref_rank(const pgd_ref_logprobs *p, int64_t i);
// The n_best best of the row, falling, lowest id first on a tie; at most n are written.
void pgd_ref_best(const pgd_ref_logprobs *p, int64_t n_best, float *logprobs, int32_t *ids);

#endif
