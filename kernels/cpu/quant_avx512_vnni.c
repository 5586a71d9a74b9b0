// Products with quantized weights by dot products of int8 (vpdpbusd); the rest of this instruction
// set is avx512.c.
#include "kernels.h"

#include <string.h>

#define VEC_NAME(n) n##__avx512_vnni
#include "vec_avx512.h"

#include "quant.inc"
