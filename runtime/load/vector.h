// Small stored tensors as f32, and shapes as text.
#ifndef PGD_LOAD_VECTOR_H
#define PGD_LOAD_VECTOR_H

#include "load/weights.h"

// Converts all elements of an f32, bf16 or f16 tensor; exact. The data need not be aligned.
//   out  [product of shape] f32
void pgd_load_vector_to_f32(const pgd_load_tensor *t, float *out);

// Appends "[2, 3]".
pgd_status pgd_load_vector_show_shape(const pgd_load_tensor *t, pgd_text *out) PGD_MUST_USE;

#endif
