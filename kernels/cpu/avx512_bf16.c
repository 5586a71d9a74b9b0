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

// x: ldx elements from row to row.
INLINE void tile(const int m, const uint16_t *x, int64_t ldx, const uint32_t *w, int64_t k,
                 float *acc, int64_t ldacc, int32_t add) {
    __m512 c[ROWS][2];
    UNROLL for (int i = 0; i < m; i++) {
        c[i][0] = _mm512_setzero_ps();
        c[i][1] = _mm512_setzero_ps();
    }
    for (int64_t j = 0; j < k; j += 2) {
        const __m512bh low = (__m512bh)_mm512_loadu_si512(w);
        const __m512bh high = (__m512bh)_mm512_loadu_si512(w + W);
        UNROLL for (int i = 0; i < m; i++) {
            int32_t pair = 0;
            memcpy(&pair, x + i * ldx + j, sizeof(pair));
            const __m512bh a = (__m512bh)_mm512_set1_epi32(pair);
            c[i][0] = _mm512_dpbf16_ps(c[i][0], a, low);
            c[i][1] = _mm512_dpbf16_ps(c[i][1], a, high);
        }
        w += PGD_CPU_PANEL;
    }
    UNROLL for (int i = 0; i < m; i++) {
        for (int v = 0; v < 2; v++) {
            float *to = acc + i * ldacc + v * W;
            _mm512_storeu_ps(to, add ? _mm512_add_ps(_mm512_loadu_ps(to), c[i][v]) : c[i][v]);
        }
    }
}

#define CASE(M) \
    case M: tile(M, x, ldx, w, k, acc, ldacc, add); break;

void bf16_dot_12x32__avx512_bf16(const void *x_, int64_t ldx, int64_t m, const void *w, int64_t k,
                                 float *acc, int64_t ldacc, int32_t add) {
    const uint16_t *x = x_;
    while (m > 0) {
        const int64_t n = m < PGD_CPU_ROWS ? m : PGD_CPU_ROWS;
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
        x += n * ldx;
        acc += n * ldacc;
        m -= n;
    }
}

void bf16_round__avx512_bf16(const float *src, void *dst, int64_t n) {
    uint16_t *to = dst;
    bf16_narrow__avx512(src, to, n);
    if (n % 2 != 0) {
        to[n] = 0;
    }
}
