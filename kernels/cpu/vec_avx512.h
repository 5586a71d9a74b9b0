// Vectors of 16 floats: AVX-512 F, BW, VL, DQ. See vec_scalar.h for what each name means.
#ifndef PGD_KERNELS_CPU_VEC_H
#define PGD_KERNELS_CPU_VEC_H

#include <immintrin.h>
#include <stdint.h>

#define VW 16
#ifndef VEC_NAME
#define VEC_NAME(n) n##__avx512
#endif
#define TILE_M 12 // rows x 2 vectors: 24 sums of 32 registers

typedef __m512 vf;

#define VEC_INLINE static inline __attribute__((always_inline, unused))

VEC_INLINE vf v_set1(float a) {
    return _mm512_set1_ps(a);
}
VEC_INLINE vf v_load(const float *p) {
    return _mm512_loadu_ps(p);
}
VEC_INLINE void v_store(float *p, vf a) {
    _mm512_storeu_ps(p, a);
}
VEC_INLINE __mmask16 v_mask(int64_t n) {
    return (__mmask16)((1u << n) - 1u);
}
VEC_INLINE vf v_load_n(const float *p, int64_t n) {
    return _mm512_maskz_loadu_ps(v_mask(n), p);
}
VEC_INLINE void v_store_n(float *p, vf a, int64_t n) {
    _mm512_mask_storeu_ps(p, v_mask(n), a);
}
VEC_INLINE vf v_add(vf a, vf b) {
    return _mm512_add_ps(a, b);
}
VEC_INLINE vf v_sub(vf a, vf b) {
    return _mm512_sub_ps(a, b);
}
VEC_INLINE vf v_mul(vf a, vf b) {
    return _mm512_mul_ps(a, b);
}
VEC_INLINE vf v_div(vf a, vf b) {
    return _mm512_div_ps(a, b);
}
VEC_INLINE vf v_fma(vf a, vf b, vf c) {
    return _mm512_fmadd_ps(a, b, c);
}
VEC_INLINE vf v_max(vf a, vf b) {
    return _mm512_max_ps(a, b);
}
VEC_INLINE vf v_min(vf a, vf b) {
    return _mm512_min_ps(a, b);
}
VEC_INLINE vf v_round(vf a) {
    return _mm512_roundscale_ps(a, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
}
VEC_INLINE vf v_scale2(vf a, vf n) {
    return _mm512_scalef_ps(a, n);
}
VEC_INLINE vf v_lanes(vf a, vf b, int64_t lo, int64_t hi) {
    __mmask16 m = (__mmask16)(((1u << hi) - 1u) & ~((1u << lo) - 1u));
    return _mm512_mask_blend_ps(m, b, a);
}
VEC_INLINE vf v_load_bf16(const uint16_t *p) {
    __m256i h = _mm256_loadu_si256((const __m256i *)p);
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(h), 16));
}
VEC_INLINE vf v_load_f16(const uint16_t *p) {
    return _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)p));
}
VEC_INLINE vf v_pair_even(const uint32_t *p) {
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_loadu_si512(p), 16));
}
VEC_INLINE vf v_pair_odd(const uint32_t *p) {
    return _mm512_castsi512_ps(
        _mm512_and_si512(_mm512_loadu_si512(p), _mm512_set1_epi32((int)0xffff0000u)));
}
VEC_INLINE void v_store_bf16(uint16_t *p, vf a) {
    __m512i u = _mm512_castps_si512(a);
    __m512i odd = _mm512_and_si512(_mm512_srli_epi32(u, 16), _mm512_set1_epi32(1));
    __m512i r = _mm512_add_epi32(u, _mm512_add_epi32(odd, _mm512_set1_epi32(0x7fff)));
    __m512i quiet = _mm512_or_si512(u, _mm512_set1_epi32(0x400000));
    __mmask16 nan = _mm512_cmp_ps_mask(a, a, _CMP_UNORD_Q);
    r = _mm512_srli_epi32(_mm512_mask_blend_epi32(nan, r, quiet), 16);
    _mm256_storeu_si256((__m256i *)p, _mm512_cvtepi32_epi16(r));
}
VEC_INLINE void v_store_f16(uint16_t *p, vf a) {
    __m256i h = _mm512_cvtps_ph(a, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
    _mm256_storeu_si256((__m256i *)p, h);
}
// The tree of v_sum (math.inc): lane i with lane i + 8, then 4, 2, 1.
#define V_TREE_SUM
VEC_INLINE float v_tree_sum(vf a) {
    __m256 b = _mm256_add_ps(_mm512_castps512_ps256(a), _mm512_extractf32x8_ps(a, 1));
    __m128 c = _mm_add_ps(_mm256_castps256_ps128(b), _mm256_extractf128_ps(b, 1));
    c = _mm_add_ps(c, _mm_movehl_ps(c, c));
    return _mm_cvtss_f32(_mm_add_ss(c, _mm_movehdup_ps(c)));
}
typedef uint64_t vq __attribute__((vector_size(64)));
VEC_INLINE vq q_mul(vq a, vq b) {
    return (vq)_mm512_mul_epu32((__m512i)a, (__m512i)b);
}
VEC_INLINE vq q_zip_even(vq a, vq b) {
    return (vq)_mm512_unpacklo_epi64((__m512i)a, (__m512i)b);
}
VEC_INLINE vq q_zip_odd(vq a, vq b) {
    return (vq)_mm512_unpackhi_epi64((__m512i)a, (__m512i)b);
}
VEC_INLINE uint32_t v_ge_bits(vf a, vf b) {
    return _mm512_cmp_ps_mask(a, b, _CMP_GE_OQ);
}
VEC_INLINE uint32_t v_gt_bits(vf a, vf b) {
    return _mm512_cmp_ps_mask(a, b, _CMP_GT_OQ);
}
VEC_INLINE float v_largest(vf a) {
    return _mm512_reduce_max_ps(a);
}
VEC_INLINE int64_t v_pack(float *p, vf a, uint32_t bits) {
    v_store(p, _mm512_maskz_compress_ps((__mmask16)bits, a)); // to memory it is microcode on Zen 4
    return __builtin_popcount(bits);
}

#endif
