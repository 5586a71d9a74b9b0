// Vectors of VW integers of 32 bits, to and from bytes: beside vec_*.h, for int8.inc and quant.inc.
//
//   i_bytes, i_signed  VW bytes, unsigned or signed, widened
//   i_round            VW floats to the nearest integers, ties to even
//   i_narrow           VW integers within int8 stored as bytes
//   i_sum16            sum of 16 int8
//   i_float            back to floats
#ifndef PGD_KERNELS_CPU_VEC_INT_H
#define PGD_KERNELS_CPU_VEC_INT_H

typedef int32_t vint __attribute__((vector_size(4 * VW)));

#if VW == 16

VEC_INLINE vint i_bytes(const void *p) {
    return (vint)_mm512_cvtepu8_epi32(_mm_loadu_si128((const __m128i *)p));
}
VEC_INLINE vint i_signed(const void *p) {
    return (vint)_mm512_cvtepi8_epi32(_mm_loadu_si128((const __m128i *)p));
}
VEC_INLINE vint i_round(vf a) {
    return (vint)_mm512_cvtps_epi32(a);
}
VEC_INLINE void i_narrow(void *p, vint a) {
    _mm_storeu_si128((__m128i *)p, _mm512_cvtepi32_epi8((__m512i)a));
}
VEC_INLINE vf i_float(vint a) {
    return _mm512_cvtepi32_ps((__m512i)a);
}

#elif VW == 8

VEC_INLINE vint i_bytes(const void *p) {
    return (vint)_mm256_cvtepu8_epi32(_mm_loadl_epi64((const __m128i *)p));
}
VEC_INLINE vint i_signed(const void *p) {
    return (vint)_mm256_cvtepi8_epi32(_mm_loadl_epi64((const __m128i *)p));
}
VEC_INLINE vint i_round(vf a) {
    return (vint)_mm256_cvtps_epi32(a);
}
VEC_INLINE void i_narrow(void *p, vint a) {
    const __m128i low = _mm256_castsi256_si128((__m256i)a);
    const __m128i halves = _mm_packs_epi32(low, _mm256_extracti128_si256((__m256i)a, 1));
    _mm_storel_epi64((__m128i *)p, _mm_packs_epi16(halves, halves));
}
VEC_INLINE vf i_float(vint a) {
    return _mm256_cvtepi32_ps((__m256i)a);
}

#else

VEC_INLINE vint i_bytes(const void *p) {
    const uint8_t *b = p;
    return (vint){b[0], b[1], b[2], b[3]};
}
VEC_INLINE vint i_signed(const void *p) {
    const int8_t *b = p;
    return (vint){b[0], b[1], b[2], b[3]};
}
VEC_INLINE vint i_round(vf a) {
    return __builtin_convertvector(v_round(a), vint);
}
VEC_INLINE void i_narrow(void *p, vint a) {
    int8_t *b = p;
    for (int i = 0; i < VW; i++) {
        b[i] = (int8_t)a[i];
    }
}
VEC_INLINE vf i_float(vint a) {
    return __builtin_convertvector(a, vf);
}

#endif

VEC_INLINE int32_t i_sum16(const int8_t *q) {
#if defined(__SSE2__)
    const __m128i from =
        _mm_xor_si128(_mm_loadu_si128((const __m128i *)(const void *)q), _mm_set1_epi8((char)0x80));
    const __m128i halves = _mm_sad_epu8(from, _mm_setzero_si128());
    return _mm_cvtsi128_si32(halves) + _mm_extract_epi16(halves, 4) - 16 * 128;
#else
    int32_t sum = 0;
    for (int i = 0; i < 16; i++) {
        sum += q[i];
    }
    return sum;
#endif
}

#endif
