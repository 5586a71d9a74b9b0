// What a matrix-unit kernel may say beside the portable dialect, in three languages:
//
//   K_HIP      MFMA and WMMA as clang's builtins; the chip says which unit
//   K_OPENCL   DPAS as the functions of cl_intel_subgroup_matrix_multiply_accumulate, for
//              sub-groups of KM_DPAS lanes; the driver's compiler has them
//   K_C        the emulator of kernels/portable: the lanes of a wave meet in km_mul, fragments are
//              laid out as the vendor's documents number them (emulated.h)
//
// km_mul adds a product over 16 k to sums: a from the weight, b from x. A slot of a and the same
// slot of b hold the same k. The kernels fill both by one rule, so of the documents' numbering of k
// nothing is needed; of rows and columns all is (units.h).
#ifndef PGD_KERNELS_MATRIX_DIALECT_H
#define PGD_KERNELS_MATRIX_DIALECT_H

#include "portable/dialect.h"

#include "matrix/params.h"

#if defined(K_HIP) && defined(__GFX12__)
#define KM_UNIT_WMMA12
#elif defined(K_HIP) && defined(__GFX11__)
#define KM_UNIT_WMMA
#elif defined(K_HIP)
#define KM_UNIT_MFMA
#elif defined(K_OPENCL) && KM_DPAS == 16
#define KM_UNIT_DPAS16
#elif defined(K_OPENCL)
#define KM_UNIT_DPAS8
#endif

#include "matrix/units.h"

#if defined(K_HIP)
typedef k_u32 km_u32x2 __attribute__((ext_vector_type(2)));
typedef k_u32 km_u32x4 __attribute__((ext_vector_type(4)));
typedef float km_sums __attribute__((ext_vector_type(KM_N)));
typedef short km_bf16s __attribute__((ext_vector_type(KM_A * 2)));
typedef _Float16 km_f16s __attribute__((ext_vector_type(KM_A * 2)));
typedef k_u32 km_words __attribute__((ext_vector_type(KM_A)));

#define KM_UNROLL             _Pragma("unroll")
#define KM_ROLLED             _Pragma("nounroll")
#define KM_KERNEL(name, P, w) KM_KERNEL_(name, P, w)
#define KM_KERNEL_(name, P, w) \
    extern "C" __global__      \
        __attribute__((amdgpu_flat_work_group_size(w, w))) void pgd_matrix_##name(K_ARGS_(P))

#if defined(KM_UNIT_MFMA)
#define KM_BF16(a, b, c) __builtin_amdgcn_mfma_f32_16x16x16bf16_1k(a, b, c, 0, 0, 0)
#define KM_F16(a, b, c)  __builtin_amdgcn_mfma_f32_16x16x16f16(a, b, c, 0, 0, 0)
#elif defined(KM_UNIT_WMMA)
#define KM_BF16(a, b, c) __builtin_amdgcn_wmma_f32_16x16x16_bf16_w32(a, b, c)
#define KM_F16(a, b, c)  __builtin_amdgcn_wmma_f32_16x16x16_f16_w32(a, b, c)
#else
#define KM_BF16(a, b, c) __builtin_amdgcn_wmma_f32_16x16x16_bf16_w32_gfx12(a, b, c)
#define KM_F16(a, b, c)  __builtin_amdgcn_wmma_f32_16x16x16_f16_w32_gfx12(a, b, c)
#endif

K_FN void km_mul(float *c, const k_u32 *a, const k_u32 *b, k_i32 is_bf16) {
    km_words aw, bw;
    km_sums sum;
    k_i32 i;
    KM_UNROLL
    for (i = 0; i < KM_A; i++) {
        aw[i] = a[i];
        bw[i] = b[i];
    }
    KM_UNROLL
    for (i = 0; i < KM_N; i++) {
        sum[i] = c[i];
    }
    sum = is_bf16 ? KM_BF16(__builtin_bit_cast(km_bf16s, aw), __builtin_bit_cast(km_bf16s, bw), sum)
                  : KM_F16(__builtin_bit_cast(km_f16s, aw), __builtin_bit_cast(km_f16s, bw), sum);
    KM_UNROLL
    for (i = 0; i < KM_N; i++) {
        c[i] = sum[i];
    }
}
// The low and the high halves of two words.
K_FN k_u32 km_low(k_u32 a, k_u32 b) {
    return __builtin_amdgcn_perm(b, a, 0x05040100u);
}
K_FN k_u32 km_high(k_u32 a, k_u32 b) {
    return __builtin_amdgcn_perm(b, a, 0x07060302u);
}
K_FN void km_load8(k_u32 *to, const k_u8 *p) {
    km_u32x2 v = *(const km_u32x2 *)p;
    to[0] = v[0];
    to[1] = v[1];
}
K_FN void km_load16(k_u32 *to, const k_u8 *p) {
    km_u32x4 v = *(const km_u32x4 *)p;
    to[0] = v[0];
    to[1] = v[1];
    to[2] = v[2];
    to[3] = v[3];
}
#endif

#if defined(K_OPENCL)
#define KM_UNROLL             _Pragma("unroll")
#define KM_ROLLED             _Pragma("nounroll")
#define KM_KERNEL(name, P, w) KM_KERNEL_(name, P, w)
#define KM_KERNEL_(name, P, w)                                                      \
    __kernel __attribute__((intel_reqd_sub_group_size(KM_LANES)))                   \
    __attribute__((reqd_work_group_size(w, 1, 1))) void pgd_matrix_##name(          \
        __global k_u8 *m0, __global k_u8 *m1, __global k_u8 *m2, __global k_u8 *m3, \
        __global k_u8 *m4, __global k_u8 *m5, __global k_u8 *m6, __global k_u8 *m7, P p)

#if defined(KM_UNIT_DPAS16)
typedef short8 km_a;
#else
typedef int8 km_a;
#endif
float8 __attribute__((overloadable, convergent))
intel_sub_group_bf16_bf16_matrix_mad_k16(km_a a, int8 b, float8 acc);
float8 __attribute__((overloadable, convergent))
intel_sub_group_f16_f16_matrix_mad_k16(km_a a, int8 b, float8 acc);

K_FN void km_mul(float *c, const k_u32 *a, const k_u32 *b, k_i32 is_bf16) {
    float8 sum = (float8)(c[0], c[1], c[2], c[3], c[4], c[5], c[6], c[7]);
    int8 bs = as_int8((uint8)(b[0], b[1], b[2], b[3], b[4], b[5], b[6], b[7]));
#if defined(KM_UNIT_DPAS16)
    short8 as = as_short8((uint4)(a[0], a[1], a[2], a[3]));
#else
    int8 as = as_int8((uint8)(a[0], a[1], a[2], a[3], a[4], a[5], a[6], a[7]));
#endif
    sum = is_bf16 ? intel_sub_group_bf16_bf16_matrix_mad_k16(as, bs, sum)
                  : intel_sub_group_f16_f16_matrix_mad_k16(as, bs, sum);
    c[0] = sum.s0;
    c[1] = sum.s1;
    c[2] = sum.s2;
    c[3] = sum.s3;
    c[4] = sum.s4;
    c[5] = sum.s5;
    c[6] = sum.s6;
    c[7] = sum.s7;
}
K_FN k_u32 km_low(k_u32 a, k_u32 b) {
    return (a & 0xffffu) | b << 16;
}
K_FN k_u32 km_high(k_u32 a, k_u32 b) {
    return a >> 16 | (b & 0xffff0000u);
}
K_FN void km_load16(k_u32 *to, K_GLOBAL const k_u8 *p) {
    uint4 v = *(K_GLOBAL const uint4 *)p;
    to[0] = v.s0;
    to[1] = v.s1;
    to[2] = v.s2;
    to[3] = v.s3;
}
#endif

#if defined(K_C)
#include "matrix/emulated.h"
#endif

#endif
