// Sampling on the host's side: request parameters into the batch's arrays, and the stop rules of a
// new token. The draw itself is an operation of the device.
#ifndef PGD_SAMPLE_SAMPLE_H
#define PGD_SAMPLE_SAMPLE_H

#include "kv/step.h"

#define PGD_SAMPLE_MAX_BIAS 1024 // entries of a request's logit bias
#define PGD_SAMPLE_ROW_BIAS 1536 // entries of a row: bias, stop ids held back, bad words

// Where a step's parameters go, in the batch's mirror.
typedef struct pgd_sample_arrays {
    unsigned char *rows; // [n_out] pgd_sampling, `stride` bytes apart
    pgd_bias *bias;      // PGD_SAMPLE_ROW_BIAS for each sequence of the step
    uint32_t stride;
    int32_t n_bias; // entries written
} pgd_sample_arrays;

// Checks a request's parameters.
//   fails  OUT_OF_RANGE, naming the field, the value and what is allowed
pgd_status pgd_sample_check(const pgd_sampling *p) PGD_MUST_USE;

// Writes the sampling row of each output of the step: of rows that give a token, with the bias that
// holds at this place; of scored prompt positions, whose token is given.
void pgd_sample_fill(const pgd_step *step, pgd_sample_arrays *a);

// 1: the row of the sequence's next token depends on its latest tokens (bad words of several), so
// the host has to have seen them. All else is a matter of position, or counted on the device.
int32_t pgd_sample_reads_tokens(const pgd_seq *seq);

// Fills a row of the device's counts from a sequence's tokens, which is what the device has counted
// by itself when the sequence ran on.
//   counts  [vocab] i32: bit 30 = in the prompt, bits 0 to 29 = times in the output
void pgd_sample_count(const pgd_seq *seq, int32_t *counts, int32_t vocab);

// Appends a new token to its sequence and applies the stop rules in the order: stop ids (not before
// min_tokens), then length. Sets seq->finish and seq->stop_id.
void pgd_sample_accept(pgd_seq *seq, int32_t token);

#endif
