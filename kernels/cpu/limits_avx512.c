// Limits of AVX-512: 24 independent sums. The bf16 and int8 loops run only where pick says that
// the processor has the instruction.
#include "limits.h"

#include <immintrin.h>

// clang-format off
#define EACH_24(X)                                                                              \
    X(0) X(1) X(2) X(3) X(4) X(5) X(6) X(7) X(8) X(9) X(10) X(11)                               \
    X(12) X(13) X(14) X(15) X(16) X(17) X(18) X(19) X(20) X(21) X(22) X(23)
// clang-format on
#define SUMS_24                                                                                   \
    "zmm0", "zmm1", "zmm2", "zmm3", "zmm4", "zmm5", "zmm6", "zmm7", "zmm8", "zmm9", "zmm10",      \
        "zmm11", "zmm12", "zmm13", "zmm14", "zmm15", "zmm16", "zmm17", "zmm18", "zmm19", "zmm20", \
        "zmm21", "zmm22", "zmm23"

#define ZERO(i)     "vpxord %%zmm" #i ", %%zmm" #i ", %%zmm" #i "\n\t"
#define FMA(i)      "vfmadd231ps %0, %0, %%zmm" #i "\n\t"
#define DOT_BF16(i) "vdpbf16ps %0, %0, %%zmm" #i "\n\t"
#define DOT_I8(i)   "vpdpbusd %0, %0, %%zmm" #i "\n\t"

#define LOOP(name, DOT)                                                            \
    void name(int64_t n) {                                                         \
        __m512i x = _mm512_setzero_si512();                                        \
        __asm__ volatile(EACH_24(ZERO) "1:\n\t" EACH_24(DOT) "dec %1\n\tjg 1b\n\t" \
                         : "+v"(x), "+r"(n)                                        \
                         :                                                         \
                         : "cc", SUMS_24);                                         \
    }

LOOP(f32_dot_peak__avx512, FMA)
LOOP(bf16_dot_peak__avx512, DOT_BF16)
LOOP(i8_dot_peak__avx512, DOT_I8)

uint64_t read_peak__avx512(const void *ptr, int64_t bytes) {
    const __m512i *p = ptr;
    __m512i a = _mm512_setzero_si512();
    __m512i b = a;
    __m512i c = a;
    __m512i d = a;
    for (int64_t i = 0; i < bytes / 64; i += 4) {
        a = _mm512_add_epi64(a, _mm512_load_si512(p + i));
        b = _mm512_add_epi64(b, _mm512_load_si512(p + i + 1));
        c = _mm512_add_epi64(c, _mm512_load_si512(p + i + 2));
        d = _mm512_add_epi64(d, _mm512_load_si512(p + i + 3));
    }
    a = _mm512_add_epi64(_mm512_add_epi64(a, b), _mm512_add_epi64(c, d));
    uint64_t lanes[8];
    uint64_t sum = 0;
    _mm512_storeu_si512(lanes, a);
    for (int i = 0; i < 8; i++) {
        sum += lanes[i];
    }
    return sum;
}
