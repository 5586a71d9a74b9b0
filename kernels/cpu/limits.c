// Which loops a table's instruction set has. See limits.h.
#include "limits.h"

#include <string.h>

#if defined(__x86_64__)
#include <cpuid.h>
#include <emmintrin.h>

// The dot instructions beside those that the avx512 table asks for (Intel SDM volume 2, CPUID).
static void look(int *bf16, int *vnni) {
    unsigned a = 0;
    unsigned b = 0;
    unsigned c = 0;
    unsigned d = 0;
    *vnni = __get_cpuid_count(7, 0, &a, &b, &c, &d) && (c & 1u << 11) != 0;
    *bf16 = __get_cpuid_count(7, 1, &a, &b, &c, &d) && (a & 1u << 5) != 0;
}

static void wide_of(const pgd_cpu_kernels *k, pgd_cpu_limits *out) {
    int bf16 = 0;
    int vnni = 0;
    if (strcmp(k->isa, "avx2") == 0) {
        out->f32 = (pgd_cpu_dot){"vfmadd231ps ymm", f32_dot_peak__avx2, PGD_CPU_OPS_F32_AVX2};
        out->i8 =
            (pgd_cpu_dot){"vpmaddubsw + vpmaddwd ymm", i8_dot_peak__avx2, PGD_CPU_OPS_I8_AVX2};
        out->read = read_peak__avx2;
    }
    if (strncmp(k->isa, "avx512", 6) == 0 || strcmp(k->isa, "amx") == 0) {
        look(&bf16, &vnni);
        out->f32 = (pgd_cpu_dot){"vfmadd231ps zmm", f32_dot_peak__avx512, PGD_CPU_OPS_F32_AVX512};
        if (bf16) {
            out->bf16 =
                (pgd_cpu_dot){"vdpbf16ps zmm", bf16_dot_peak__avx512, PGD_CPU_OPS_BF16_AVX512};
        }
        if (vnni) {
            out->i8 = (pgd_cpu_dot){"vpdpbusd zmm", i8_dot_peak__avx512, PGD_CPU_OPS_I8_AVX512};
        }
        out->read = read_peak__avx512;
    }
}

int32_t pgd_cpu_forget(const void *ptr, int64_t bytes) {
    for (int64_t at = 0; at < bytes; at += 64) {
        _mm_clflush((const char *)ptr + at); // of every x86-64
    }
    _mm_mfence();
    return 1;
}
#else
int32_t pgd_cpu_forget(const void *ptr, int64_t bytes) {
    (void)ptr;
    (void)bytes;
    return 0;
}

static void wide_of(const pgd_cpu_kernels *k, pgd_cpu_limits *out) {
    (void)k;
    (void)out;
}
#endif

void pgd_cpu_limits_of(const pgd_cpu_kernels *k, pgd_cpu_limits *out) {
    *out = (pgd_cpu_limits){
        .f32 = {"multiply and add, 4 wide", f32_dot_peak__scalar, PGD_CPU_OPS_F32_SCALAR},
        .read = read_peak__scalar,
    };
    wide_of(k, out);
}
