// Products with quantized weights in a processor with AMX.
#include "kernels.h"

#include <string.h>

#define VEC_NAME(n) n##__amx
#include "vec_avx512.h"

#include "quant.inc"
