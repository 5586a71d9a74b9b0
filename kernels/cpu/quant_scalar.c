// Products with quantized weights, and x as int8; the rest of this instruction set is scalar.c.
#include "kernels.h"

#include <string.h>

#include "vec_scalar.h"

#include "int8.inc"

#include "quant.inc"
