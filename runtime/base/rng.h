// Random numbers of the host: seeds for requests that give none. (Sampling itself is an operation
// of the device, see kernels/ref/sample.c.)
#ifndef PGD_BASE_RNG_H
#define PGD_BASE_RNG_H

#include <stdint.h>

// [any] A seed from the operating system.
uint64_t pgd_rng_seed(void);
// SplitMix64 (Steele, Lea, Flood 2014): the next number of the stream in *state.
uint64_t pgd_rng_next(uint64_t *state);

#endif
