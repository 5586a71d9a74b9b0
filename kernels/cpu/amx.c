// Dot products of bf16 in the tile registers of AMX. The rest of this instruction set is avx512.c.
#include "kernels.h"

#include <immintrin.h>

#define tile_config(c)             _tile_loadconfig(c)
#define tile_release()             _tile_release()
#define tile_zero(t)               _tile_zero(t)
#define tile_load(t, from, stride) _tile_loadd(t, from, stride)
#define tile_store(t, to, stride)  _tile_stored(t, to, stride)
#define tile_dot(c, a, b)          _tile_dpbf16ps(c, a, b)

#include "amx.inc"

void bf16_dot_12x32__amx(const pgd_cpu_part *part) {
    dot_tiles(part);
}
