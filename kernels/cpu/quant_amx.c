// Products with quantized weights in the tile registers of AMX; one row by dot products of int8.
#include "kernels.h"

#include <string.h>

#define VEC_NAME(n) n##__amx
#include "vec_avx512.h"

#define tile_config(c)             _tile_loadconfig(c)
#define tile_release()             _tile_release()
#define tile_zero(t)               _tile_zero(t)
#define tile_load(t, from, stride) _tile_loadd(t, from, stride)
#define tile_store(t, to, stride)  _tile_stored(t, to, stride)
#define tile_dot_int8(c, a, b)     _tile_dpbsud(c, a, b)

#define Q_TILES
#include "quant.inc"
