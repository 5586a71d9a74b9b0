// Attention over a tile by dot products of bf16: vdpbf16ps (AVX512_BF16). See attn.inc for the
// tile; a pair is two dims of K or two positions of V, so one vector of either feeds one
// instruction.
#include "kernels.h"

#include <immintrin.h>
#include <string.h>

#define INLINE static inline __attribute__((always_inline))
#if defined(__clang__)
#define UNROLL _Pragma("clang loop unroll(full)")
#else
#define UNROLL _Pragma("GCC unroll 16")
#endif

enum { ROWS = 12, W = 16, MOST = 4, PIECE = 16 };

#define NV(M) ((M) <= 4 ? 4 : 2)

INLINE void begin(const int m, const int nv, __m512 c[ROWS][MOST]) {
    UNROLL for (int i = 0; i < m; i++) {
        UNROLL for (int j = 0; j < nv; j++) {
            c[i][j] = _mm512_setzero_ps();
        }
    }
}

INLINE void end(const int m, const int nv, __m512 c[ROWS][MOST], float *to, int64_t ld) {
    UNROLL for (int i = 0; i < m; i++) {
        UNROLL for (int j = 0; j < nv; j++) {
            _mm512_storeu_ps(to + i * ld + j * W, c[i][j]);
        }
    }
}

// The pair x of each row with nv vectors of pairs.
INLINE void step(const int m, const int nv, __m512 c[ROWS][MOST], const uint16_t *x, int64_t ldx,
                 const __m512bh b[MOST]) {
    UNROLL for (int i = 0; i < m; i++) {
        int32_t pair = 0;
        memcpy(&pair, x + i * ldx, sizeof(pair));
        const __m512bh a = (__m512bh)_mm512_set1_epi32(pair);
        UNROLL for (int j = 0; j < nv; j++) {
            c[i][j] = _mm512_dpbf16_ps(c[i][j], a, b[j]);
        }
    }
}

INLINE void scores_tile(const int m, const int nv, const uint16_t *q, int64_t ldq,
                        const void *const *k, const void *const *ahead, int64_t stride, int64_t dim,
                        int64_t v0, float *s) {
    __m512 c[ROWS][MOST];
    begin(m, nv, c);
    for (int64_t d = 0; d < dim; d += 2) {
        __m512bh b[MOST];
        UNROLL for (int j = 0; j < nv; j++) {
            b[j] = (__m512bh)_mm512_loadu_si512((const uint32_t *)k[v0 + j] + d / 2 * stride);
            __builtin_prefetch((const uint32_t *)ahead[v0 + j] + d / 2 * stride);
        }
        step(m, nv, c, q + d, ldq, b);
    }
    end(m, nv, c, s + v0 * W, PGD_CPU_TILE);
}

// Positions a and a + 1 of a piece; `keep` takes one of them away, which may be anything.
INLINE void values_pair(const int m, const int nv, __m512 c[ROWS][MOST], const uint16_t *p,
                        int64_t ldp, const uint32_t *v, const uint32_t *ahead, uint32_t keep) {
    __m512bh b[MOST];
    UNROLL for (int j = 0; j < nv; j++) {
        const __m512i pairs = _mm512_loadu_si512(v + j * W);
        __builtin_prefetch(ahead + j * W);
        b[j] = (__m512bh)_mm512_and_si512(pairs, _mm512_set1_epi32((int)keep));
    }
    step(m, nv, c, p, ldp, b);
}

INLINE void values_tile(const int m, const int nv, const uint16_t *p, int64_t ldp,
                        const void *const *v, const void *const *ahead, int64_t lo, int64_t hi,
                        int64_t dim, int64_t d, float *o, int64_t ldo) {
    __m512 c[ROWS][MOST];
    begin(m, nv, c);
    for (int64_t t = lo / 2 * 2; t < hi; t += 2) {
        const int64_t in = t % PIECE / 2 * dim + d;
        const uint32_t *at = (const uint32_t *)v[t / PIECE] + in;
        const uint32_t *next = (const uint32_t *)ahead[t / PIECE] + in;
        if (t >= lo && t + 2 <= hi) {
            values_pair(m, nv, c, p + t, ldp, at, next, UINT32_MAX);
        } else {
            values_pair(m, nv, c, p + t, ldp, at, next, t < lo ? 0xffff0000u : 0x0000ffffu);
        }
    }
    end(m, nv, c, o + d, ldo);
}

#define CASES(CASE) \
    CASE(1)         \
    CASE(2) CASE(3) CASE(4) CASE(5) CASE(6) CASE(7) CASE(8) CASE(9) CASE(10) CASE(11) CASE(12)

#define SCORES_CASE(M)                                                  \
    case M:                                                             \
        for (int64_t j = 0; j < PGD_CPU_TILE / W; j += NV(M)) {         \
            scores_tile(M, NV(M), q, ldq, k, ahead, stride, dim, j, s); \
        }                                                               \
        break;

void bf16_attn_dot_scores__avx512_bf16(const void *q_, int64_t ldq, int64_t m, const void *const *k,
                                       const void *const *ahead, int64_t stride, int64_t dim,
                                       float *s) {
    const uint16_t *q = q_;
    for (int64_t n = 0; m > 0; m -= n, q += n * ldq, s += n * PGD_CPU_TILE) {
        n = m < ROWS ? m : ROWS;
        switch (n) {
            CASES(SCORES_CASE)
        default: break;
        }
    }
}

#define VALUES_CASE(M)                                                       \
    case M: {                                                                \
        int64_t d = 0;                                                       \
        for (; d + NV(M) * W <= dim; d += NV(M) * W) {                       \
            values_tile(M, NV(M), p, ldp, v, ahead, lo, hi, dim, d, o, ldo); \
        }                                                                    \
        for (; d < dim; d += W) {                                            \
            values_tile(M, 1, p, ldp, v, ahead, lo, hi, dim, d, o, ldo);     \
        }                                                                    \
    } break;

void bf16_attn_dot_values__avx512_bf16(const void *p_, int64_t ldp, int64_t m, const void *const *v,
                                       const void *const *ahead, int64_t lo, int64_t hi,
                                       int64_t dim, float *o, int64_t ldo) {
    const uint16_t *p = p_;
    for (int64_t n = 0; m > 0; m -= n, p += n * ldp, o += n * ldo) {
        n = m < ROWS ? m : ROWS;
        switch (n) {
            CASES(VALUES_CASE)
        default: break;
        }
    }
}

// Tiles of AMX are made for more rows than these products have.
void bf16_attn_dot_scores__amx(const void *q, int64_t ldq, int64_t m, const void *const *k,
                               const void *const *ahead, int64_t stride, int64_t dim, float *s) {
    bf16_attn_dot_scores__avx512_bf16(q, ldq, m, k, ahead, stride, dim, s);
}

void bf16_attn_dot_values__amx(const void *p, int64_t ldp, int64_t m, const void *const *v,
                               const void *const *ahead, int64_t lo, int64_t hi, int64_t dim,
                               float *o, int64_t ldo) {
    bf16_attn_dot_values__avx512_bf16(p, ldp, m, v, ahead, lo, hi, dim, o, ldo);
}
