// Dot products of codes and int8, and tables of 16 bytes, as each instruction set has them.
// Included by quant.inc.
//
//   q_dot(offset, sum, w, x)  sum + in each lane the 4 products of w (codes) and x (int8, from -127
//                             on). Codes go up to 255 with offset 128, else to 63.
//   Q_SIGNED 1                with offset 128 the sum is of w - 128
//   Q_ROWS                    rows of a tile of 2 vectors
//   q_look_up(table, i)       table[i], i below 16

#if VW == 16 && defined(__AVX512VNNI__)

#define Q_SIGNED 0
#define Q_ROWS   6 // 12 integer sums, 12 sums, 2 of weights, 1 of x of 32 registers

VEC_INLINE qi q_dot(const int offset, qi sum, qb w, qb x) {
    (void)offset;
    return (qi)_mm512_dpbusd_epi32((__m512i)sum, (__m512i)w, (__m512i)x);
}

#elif VW == 16

#define Q_SIGNED 1
#define Q_ROWS   6

// Pairs are summed in 16 bits that saturate: 63 * 127 * 2 fits, and 128 * 127 * 2.
VEC_INLINE qi q_dot(const int offset, qi sum, qb w, qb x) {
    const __m512i one = _mm512_set1_epi16(1);
    __m512i a = (__m512i)w;
    __m512i b = (__m512i)x;
    if (offset == 128) {
        a = _mm512_xor_si512(a, _mm512_set1_epi8((char)0x80));
        b = _mm512_mask_sub_epi8(b, _mm512_movepi8_mask(a), _mm512_setzero_si512(), b);
        a = _mm512_abs_epi8(a);
    }
    return sum + (qi)_mm512_madd_epi16(_mm512_maddubs_epi16(a, b), one);
}

#elif VW == 8 && defined(__AVXVNNI__)

#define Q_SIGNED 0
#define Q_ROWS   3 // 6 integer sums, 6 sums, 2 of weights, 1 of x of 16 registers

VEC_INLINE qi q_dot(const int offset, qi sum, qb w, qb x) {
    (void)offset;
    return (qi)_mm256_dpbusd_avx_epi32((__m256i)sum, (__m256i)w, (__m256i)x);
}

#elif VW == 8

#define Q_SIGNED 1
#define Q_ROWS   3

VEC_INLINE qi q_dot(const int offset, qi sum, qb w, qb x) {
    const __m256i one = _mm256_set1_epi16(1);
    __m256i a = (__m256i)w;
    __m256i b = (__m256i)x;
    if (offset == 128) {
        a = _mm256_xor_si256(a, _mm256_set1_epi8((char)0x80));
        b = _mm256_sign_epi8(b, a);
        a = _mm256_abs_epi8(a);
    }
    return sum + (qi)_mm256_madd_epi16(_mm256_maddubs_epi16(a, b), one);
}

#else

#define Q_SIGNED 0
#define Q_ROWS   2

VEC_INLINE qi q_dot(const int offset, qi sum, qb w, qb x) {
    (void)offset;
    for (int i = 0; i < VW; i++) {
        for (int j = 0; j < 4; j++) {
            sum[i] += (int32_t)w[4 * i + j] * (int8_t)x[4 * i + j];
        }
    }
    return sum;
}

#endif

#if VW == 16

VEC_INLINE qb q_look_up(const uint8_t *table, qb i) {
    const __m128i t = _mm_loadu_si128((const __m128i *)(const void *)table);
    return (qb)_mm512_shuffle_epi8(_mm512_broadcast_i32x4(t), (__m512i)i);
}

#elif VW == 8

VEC_INLINE qb q_look_up(const uint8_t *table, qb i) {
    const __m128i t = _mm_loadu_si128((const __m128i *)(const void *)table);
    return (qb)_mm256_shuffle_epi8(_mm256_broadcastsi128_si256(t), (__m256i)i);
}

#else

VEC_INLINE qb q_look_up(const uint8_t *table, qb i) {
    qb v;
    for (int j = 0; j < QB; j++) {
        v[j] = table[i[j]];
    }
    return v;
}

#endif
