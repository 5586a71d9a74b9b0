// The kernels of list.inc but for quantized weights (quant_avx512.c) in AVX-512 F, BW, VL and DQ.
#include "kernels.h"

#include <math.h>
#include <string.h>

#include <pagoda/ops.h>

#include "vec_avx512.h"

#include "math.inc"

#include "gemm.inc"

#include "draw.inc"

#include "rows.inc"

#include "attn.inc"
