// Models without files: random weights of an exact shape, made when they are asked for.
//
//   synthetic:SHAPE[,DTYPE][,seed=N]
//   SHAPE  qwen2.5-0.5b, llama-3.2-1b, llama-3.1-8b, or the path of a config.json or its folder
//          (a path must not hold a comma)
//   DTYPE  bf16 (default), f32, f16, or a scheme of blocks (q8_0, q4_0, q4_k ...) or int8; then
//          vectors are f32, and the head and rows of no whole blocks as pgd_load_scheme_for says
//   seed   default 0
//
// Tensors have addresses from the start, but no memory: fill makes one tensor's numbers, drop gives
// their memory back. Norm weights are 1; all else is uniform around 0 with standard deviation 0.02,
// of blocks one of 1024 that such numbers were quantized to.
// A number depends on the seed, the tensor's name and its index alone.
#ifndef PGD_LOAD_SYNTHETIC_H
#define PGD_LOAD_SYNTHETIC_H

#include "load/config.h"
#include "load/weights.h"

typedef struct pgd_load_synthetic pgd_load_synthetic;

// 1 when a model is called synthetic:...
int32_t pgd_load_synthetic_is(const char *name);
// The configuration a name stands for, its dtype set.
//   fails  INVALID (shape, dtype, seed, naming what is allowed), UNSUPPORTED (mixture of experts),
//          and what reading a config.json answers
pgd_status pgd_load_synthetic_config(const char *name, pgd_load_config **out) PGD_MUST_USE;

// Address room for all tensors of the model; vectors (rank 1) are filled at once.
pgd_status pgd_load_synthetic_create(const char *name, pgd_load_synthetic **out) PGD_MUST_USE;
void pgd_load_synthetic_destroy(pgd_load_synthetic *s); // NULL is fine
uint32_t pgd_load_synthetic_count(const pgd_load_synthetic *s);
const pgd_load_tensor *pgd_load_synthetic_get(const pgd_load_synthetic *s, uint32_t i);
// Adds text that tells its numbers from those of every other synthetic model.
pgd_status pgd_load_synthetic_identity(const pgd_load_synthetic *s, pgd_text *t) PGD_MUST_USE;
// The tensor that begins at ptr; nothing if none does.
void pgd_load_synthetic_fill(pgd_load_synthetic *s, const void *ptr);
void pgd_load_synthetic_drop(pgd_load_synthetic *s, const void *ptr);

#endif
