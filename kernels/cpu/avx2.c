// The kernels of list.inc but for quantized weights (quant_avx2.c) in AVX2, FMA and F16C.
#include "kernels.h"

#include <math.h>
#include <string.h>

#include <pagoda/ops.h>

#include "vec_avx2.h"

#include "math.inc"

#include "gemm.inc"

#include "draw.inc"

#include "rows.inc"

#include "attn.inc"
