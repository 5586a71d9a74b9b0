// Dot products of bf16: vdpbf16ps (AVX512_BF16). The rest of this instruction set is avx512.c.
//
// A register tile is up to 12 rows by the 32 columns of a panel: 24 sums, two vectors of weights
// and the pair of x read by broadcast. One chain a sum: pairs with k rising, whatever the tile.
#include "kernels.h"

#include <immintrin.h>
#include <string.h>

#define INLINE static inline __attribute__((always_inline))
#if defined(__clang__)
#define UNROLL _Pragma("clang loop unroll(full)")
#else
#define UNROLL _Pragma("GCC unroll 16")
#endif

enum { ROWS = 12, W = 16 };

// next: what is fetched meanwhile, `step` bytes for each pair of k.
INLINE void tile(const int m, const uint16_t *x, const pgd_cpu_part *p, float *acc,
                 const char *next, int64_t step) {
    const uint32_t *w = p->w;
    __m512 c[ROWS][2];
    UNROLL for (int i = 0; i < m; i++) {
        c[i][0] = _mm512_setzero_ps();
        c[i][1] = _mm512_setzero_ps();
    }
    for (int64_t j = 0; j < p->k; j += 2) {
        const __m512bh low = (__m512bh)_mm512_loadu_si512(w);
        const __m512bh high = (__m512bh)_mm512_loadu_si512(w + W);
        _mm_prefetch(next, _MM_HINT_T1);
        _mm_prefetch(next + 64, _MM_HINT_T1);
        UNROLL for (int i = 0; i < m; i++) {
            int32_t pair = 0;
            memcpy(&pair, x + i * p->ldx + j, sizeof(pair));
            const __m512bh a = (__m512bh)_mm512_set1_epi32(pair);
            c[i][0] = _mm512_dpbf16_ps(c[i][0], a, low);
            c[i][1] = _mm512_dpbf16_ps(c[i][1], a, high);
        }
        w += PGD_CPU_PANEL;
        next += step;
    }
    UNROLL for (int i = 0; i < m; i++) {
        for (int v = 0; v < 2; v++) {
            float *to = acc + i * p->ldacc + v * W;
            _mm512_storeu_ps(to, p->add ? _mm512_add_ps(_mm512_loadu_ps(to), c[i][v]) : c[i][v]);
        }
    }
}

#define CASE(M) \
    case M: tile(M, x, p, acc, next, step); break;

void bf16_dot_12x32__avx512_bf16(const pgd_cpu_part *p) {
    const int64_t n_tiles = (p->m + ROWS - 1) / ROWS;
    const int64_t step = n_tiles > 0 ? 4 * PGD_CPU_PANEL / n_tiles : 0;
    const char *next = p->next != NULL ? p->next : p->w;
    const uint16_t *x = p->x;
    float *acc = p->acc;
    for (int64_t t = 0; t < n_tiles; t++) {
        const int64_t n = (p->m + t) / n_tiles;
        switch (n) {
            CASE(1)
            CASE(2)
            CASE(3)
            CASE(4)
            CASE(5)
            CASE(6)
            CASE(7)
            CASE(8)
            CASE(9)
            CASE(10)
            CASE(11)
            CASE(12)
        default: break;
        }
        x += n * p->ldx;
        acc += n * p->ldacc;
        next += step * ((p->k + 1) / 2);
    }
}

void bf16_round__avx512_bf16(const float *src, void *dst, int64_t n) {
    uint16_t *to = dst;
    bf16_narrow__avx512(src, to, n);
    if (n % 2 != 0) {
        to[n] = 0;
    }
}
