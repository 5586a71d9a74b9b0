// Products with quantized weights, and x as int8; the rest of this instruction set is avx512.c.
#include "kernels.h"

#include <string.h>

#include "vec_avx512.h"

#include "int8.inc"

#include "quant.inc"
