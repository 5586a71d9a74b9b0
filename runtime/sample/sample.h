// Sampling on the host's side: request parameters into the batch's sampling rows, and the stop
// rules of a new token. The draw itself is an operation of the device.
#ifndef PGD_SAMPLE_SAMPLE_H
#define PGD_SAMPLE_SAMPLE_H

#include "kv/step.h"

// Checks a request's parameters.
//   fails  OUT_OF_RANGE, naming the field, the value and what is allowed
pgd_status pgd_sample_check(const pgd_sampling *p) PGD_MUST_USE;

// Writes the sampling row of each row of the step that gives a token.
//   rows  [n_out] pgd_sampling in the batch's mirror, `stride` bytes apart
void pgd_sample_fill(const pgd_step *step, unsigned char *rows, uint32_t stride);

// Appends a new token to its sequence and applies the stop rules in the order: stop ids (not before
// min_tokens), then length. Sets seq->finish and seq->stop_id.
void pgd_sample_accept(pgd_seq *seq, int32_t token);

#endif
