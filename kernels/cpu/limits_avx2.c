// Limits of AVX2: 12 independent sums, enough for two units of four or five cycles.
#include "limits.h"

#include <immintrin.h>

#define EACH_12(X) X(0) X(1) X(2) X(3) X(4) X(5) X(6) X(7) X(8) X(9) X(10) X(11)
#define EACH_6(X)  X(0) X(1) X(2) X(3) X(4) X(5)
#define SUMS_12 \
    "ymm0", "ymm1", "ymm2", "ymm3", "ymm4", "ymm5", "ymm6", "ymm7", "ymm8", "ymm9", "ymm10", "ymm11"

#define ZERO(i) "vpxor %%ymm" #i ", %%ymm" #i ", %%ymm" #i "\n\t"
#define FMA(i)  "vfmadd231ps %0, %0, %%ymm" #i "\n\t"

void f32_dot_peak__avx2(int64_t n) {
    __m256 x = _mm256_setzero_ps();
    __asm__ volatile(EACH_12(ZERO) "1:\n\t" EACH_12(FMA) "dec %1\n\tjg 1b\n\t"
                     : "+x"(x), "+r"(n)
                     :
                     : "cc", SUMS_12);
}

// Without a dot instruction: products of bytes to 16 bits, pairs to 32 bits, sum. One input is
// wrapped in a register that no loop value depends on.
#define DOT_I8(i)                     \
    "vpmaddubsw %0, %0, %%ymm6\n\t"   \
    "vpmaddwd %%ymm6, %0, %%ymm7\n\t" \
    "vpaddd %%ymm7, %%ymm" #i ", %%ymm" #i "\n\t"

void i8_dot_peak__avx2(int64_t n) {
    __m256i x = _mm256_setzero_si256();
    __asm__ volatile(EACH_6(ZERO) "1:\n\t" EACH_6(DOT_I8) "dec %1\n\tjg 1b\n\t"
                     : "+x"(x), "+r"(n)
                     :
                     : "cc", SUMS_12);
}

uint64_t read_peak__avx2(const void *ptr, int64_t bytes) {
    const __m256i *p = ptr;
    __m256i a = _mm256_setzero_si256();
    __m256i b = a;
    __m256i c = a;
    __m256i d = a;
    for (int64_t i = 0; i < bytes / 32; i += 4) {
        a = _mm256_add_epi64(a, _mm256_load_si256(p + i));
        b = _mm256_add_epi64(b, _mm256_load_si256(p + i + 1));
        c = _mm256_add_epi64(c, _mm256_load_si256(p + i + 2));
        d = _mm256_add_epi64(d, _mm256_load_si256(p + i + 3));
    }
    a = _mm256_add_epi64(_mm256_add_epi64(a, b), _mm256_add_epi64(c, d));
    return (uint64_t)_mm256_extract_epi64(a, 0) + (uint64_t)_mm256_extract_epi64(a, 1) +
           (uint64_t)_mm256_extract_epi64(a, 2) + (uint64_t)_mm256_extract_epi64(a, 3);
}
