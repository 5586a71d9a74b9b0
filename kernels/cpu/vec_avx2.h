// Vectors of 8 floats: AVX2, FMA, F16C. See vec_scalar.h for what each name means.
#ifndef PGD_KERNELS_CPU_VEC_H
#define PGD_KERNELS_CPU_VEC_H

#include <immintrin.h>
#include <stdint.h>
#include <string.h>

#define VW 8
#ifndef VEC_NAME
#define VEC_NAME(n) n##__avx2
#endif
#define TILE_M 6 // rows x 2 vectors: 12 sums of 16 registers

typedef __m256 vf;

#define VEC_INLINE static inline __attribute__((always_inline, unused))

VEC_INLINE vf v_set1(float a) {
    return _mm256_set1_ps(a);
}
VEC_INLINE vf v_load(const float *p) {
    return _mm256_loadu_ps(p);
}
VEC_INLINE void v_store(float *p, vf a) {
    _mm256_storeu_ps(p, a);
}
VEC_INLINE vf v_load_n(const float *p, int64_t n) {
    float t[VW] = {0};
    memcpy(t, p, (size_t)n * sizeof(float));
    return v_load(t);
}
VEC_INLINE void v_store_n(float *p, vf a, int64_t n) {
    float t[VW];
    v_store(t, a);
    memcpy(p, t, (size_t)n * sizeof(float));
}
VEC_INLINE vf v_add(vf a, vf b) {
    return _mm256_add_ps(a, b);
}
VEC_INLINE vf v_sub(vf a, vf b) {
    return _mm256_sub_ps(a, b);
}
VEC_INLINE vf v_mul(vf a, vf b) {
    return _mm256_mul_ps(a, b);
}
VEC_INLINE vf v_div(vf a, vf b) {
    return _mm256_div_ps(a, b);
}
VEC_INLINE vf v_fma(vf a, vf b, vf c) {
    return _mm256_fmadd_ps(a, b, c);
}
VEC_INLINE vf v_max(vf a, vf b) {
    return _mm256_max_ps(a, b);
}
VEC_INLINE vf v_min(vf a, vf b) {
    return _mm256_min_ps(a, b);
}
VEC_INLINE vf v_round(vf a) {
    return _mm256_round_ps(a, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
}
VEC_INLINE vf v_scale2(vf a, vf n) {
    __m256i i = _mm256_cvtps_epi32(n);
    __m256i half = _mm256_srai_epi32(i, 1);
    __m256i rest = _mm256_sub_epi32(i, half);
    __m256i bias = _mm256_set1_epi32(127);
    vf s0 = _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_add_epi32(half, bias), 23));
    vf s1 = _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_add_epi32(rest, bias), 23));
    return _mm256_mul_ps(_mm256_mul_ps(a, s0), s1);
}
VEC_INLINE vf v_lanes(vf a, vf b, int64_t lo, int64_t hi) {
    __m256i i = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
    __m256i ge = _mm256_cmpgt_epi32(i, _mm256_set1_epi32((int)lo - 1));
    __m256i lt = _mm256_cmpgt_epi32(_mm256_set1_epi32((int)hi), i);
    return _mm256_blendv_ps(b, a, _mm256_castsi256_ps(_mm256_and_si256(ge, lt)));
}
VEC_INLINE vf v_load_bf16(const uint16_t *p) {
    __m128i h = _mm_loadu_si128((const __m128i *)p);
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(h), 16));
}
VEC_INLINE vf v_load_f16(const uint16_t *p) {
    return _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)p));
}
VEC_INLINE vf v_pair_even(const uint32_t *p) {
    __m256i u = _mm256_loadu_si256((const __m256i *)p);
    return _mm256_castsi256_ps(_mm256_slli_epi32(u, 16));
}
VEC_INLINE vf v_pair_odd(const uint32_t *p) {
    __m256i u = _mm256_loadu_si256((const __m256i *)p);
    return _mm256_castsi256_ps(_mm256_and_si256(u, _mm256_set1_epi32((int)0xffff0000u)));
}
VEC_INLINE void v_store_bf16(uint16_t *p, vf a) {
    __m256i u = _mm256_castps_si256(a);
    __m256i odd = _mm256_and_si256(_mm256_srli_epi32(u, 16), _mm256_set1_epi32(1));
    __m256i r = _mm256_add_epi32(u, _mm256_add_epi32(odd, _mm256_set1_epi32(0x7fff)));
    __m256i quiet = _mm256_or_si256(u, _mm256_set1_epi32(0x400000));
    __m256i nan = _mm256_castps_si256(_mm256_cmp_ps(a, a, _CMP_UNORD_Q));
    r = _mm256_srli_epi32(_mm256_blendv_epi8(r, quiet, nan), 16);
    r = _mm256_permute4x64_epi64(_mm256_packus_epi32(r, r), 0x08);
    _mm_storeu_si128((__m128i *)p, _mm256_castsi256_si128(r));
}
VEC_INLINE void v_store_f16(uint16_t *p, vf a) {
    __m128i h = _mm256_cvtps_ph(a, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
    _mm_storeu_si128((__m128i *)p, h);
}
// The tree of v_sum (math.inc): lane i with lane i + 4, then 2, 1.
#define V_TREE_SUM
VEC_INLINE float v_tree_sum(vf a) {
    __m128 c = _mm_add_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
    c = _mm_add_ps(c, _mm_movehl_ps(c, c));
    return _mm_cvtss_f32(_mm_add_ss(c, _mm_movehdup_ps(c)));
}
typedef uint64_t vq __attribute__((vector_size(32)));
VEC_INLINE vq q_mul(vq a, vq b) {
    return (vq)_mm256_mul_epu32((__m256i)a, (__m256i)b);
}
VEC_INLINE vq q_zip_even(vq a, vq b) {
    return (vq)_mm256_unpacklo_epi64((__m256i)a, (__m256i)b);
}
VEC_INLINE vq q_zip_odd(vq a, vq b) {
    return (vq)_mm256_unpackhi_epi64((__m256i)a, (__m256i)b);
}
VEC_INLINE uint32_t v_ge_bits(vf a, vf b) {
    return (uint32_t)_mm256_movemask_ps(_mm256_cmp_ps(a, b, _CMP_GE_OQ));
}
VEC_INLINE uint32_t v_gt_bits(vf a, vf b) {
    return (uint32_t)_mm256_movemask_ps(_mm256_cmp_ps(a, b, _CMP_GT_OQ));
}
VEC_INLINE float v_largest(vf a) {
    __m128 h = _mm_max_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
    h = _mm_max_ps(h, _mm_movehl_ps(h, h));
    return _mm_cvtss_f32(_mm_max_ss(h, _mm_movehdup_ps(h)));
}
VEC_INLINE int64_t v_pack(float *p, vf a, uint32_t bits) {
    float t[VW];
    int64_t n = 0;
    v_store(t, a);
    for (; bits != 0; bits &= bits - 1) {
        p[n++] = t[__builtin_ctz(bits)];
    }
    return n;
}

#endif
