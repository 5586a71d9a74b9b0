// The kernels of list.inc but for quantized weights (quant_scalar.c) in plain C.
#include "kernels.h"

#include <math.h>
#include <string.h>

#include <pagoda/ops.h>

#include "vec_scalar.h"

#include "math.inc"

#include "gemm.inc"

#include "draw.inc"

#include "rows.inc"

#include "attn.inc"
