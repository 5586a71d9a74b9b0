// What the files of the GGUF reader share.
#ifndef PGD_LOAD_GGUF_INNER_H
#define PGD_LOAD_GGUF_INNER_H

#include "load/gguf.h"

// For sentences: the tensor types that can be computed with.
#define PGD_LOAD_GGUF_TYPES                                                                   \
    "F32, F16, BF16, Q8_0, Q4_0, Q4_1, Q5_0, Q5_1, Q2_K, Q3_K, Q4_K, Q5_K, Q6_K, IQ4_NL and " \
    "MXFP4"

// Little-endian number of n bytes.
uint64_t pgd_load_gguf_little(const uint8_t *p, uint32_t n);
// Bytes of an element of a value; 0 for strings, arrays and unknown types.
uint32_t pgd_load_gguf_item(uint32_t type);

#endif
