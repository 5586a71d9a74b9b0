// The dialect: what a kernel file may say, in each language it is compiled as.
//
//   OpenCL C 1.2   K_OPENCL   embedded source, built by the driver
//   CUDA C++       K_CUDA     nvcc -fmad=false
//   HIP            K_HIP      clang -x hip -nogpuinc -nogpulib -ffp-contract=off
//   C11            K_C        the emulator (emulator.h), for sanitizers; -ffp-contract=off
//
// Rules: every kernel takes eight memories and one block of parameters; local arrays stand at the
// top of a kernel; no `half` arithmetic; every item of a group reaches every K_SYNC, and none
// stands in a branch (a compiler for processors copies what follows it); a product that is to be
// fused with its sum says k_fma, nothing else is fused. So a number depends on the kernel alone,
// not on the compiler's taste.
#ifndef PGD_KERNELS_PORTABLE_DIALECT_H
#define PGD_KERNELS_PORTABLE_DIALECT_H

#if defined(__OPENCL_C_VERSION__) || defined(__OPENCL_VERSION__)
#define K_OPENCL 1
#elif defined(__CUDACC__) && !defined(__HIP__)
#define K_CUDA 1
#elif defined(__HIP__)
#define K_HIP 1
#else
#define K_C 1
#endif

#if defined(K_OPENCL)
#ifndef K_NO_F64
#pragma OPENCL EXTENSION cl_khr_fp64 : enable
#endif
#pragma OPENCL FP_CONTRACT OFF
typedef int k_i32;
typedef uint k_u32;
typedef ushort k_u16;
typedef uchar k_u8;
typedef long k_i64;
typedef ulong k_u64;
#ifndef K_FN // SPIR-V is made with all of a kernel in one function
#define K_FN static
#endif
#define K_CONST  __constant
#define K_GLOBAL __global
#define K_LOCAL  __local
// PoCL 3.1 takes some local arrays for variables of the whole process, shared by its threads, when
// their address is a constant; the number of dimensions of a launch (3) is not known to it.
#define K_SHARED(T, n, c)   \
    __local T n##_array[c]; \
    __local T *n = n##_array + ((int)get_work_dim() - 3)
#define K_ITEM    ((k_i32)get_local_id(0))
#define K_GROUP_X ((k_i32)get_group_id(0))
#define K_GROUP_Y ((k_i32)get_group_id(1))
#define K_GROUP_Z ((k_i32)get_group_id(2))
#define K_SYNC    barrier(CLK_LOCAL_MEM_FENCE | CLK_GLOBAL_MEM_FENCE)
#define K_KERNEL(name, P, w)                                                        \
    __kernel __attribute__((reqd_work_group_size(w, 1, 1))) void pgd_##name(        \
        __global k_u8 *m0, __global k_u8 *m1, __global k_u8 *m2, __global k_u8 *m3, \
        __global k_u8 *m4, __global k_u8 *m5, __global k_u8 *m6, __global k_u8 *m7, P p)
#define k_fma(a, b, c) fma((float)(a), (float)(b), (float)(c))
#define k_sqrt(v)      sqrt((float)(v))
#define k_exp(v)       exp((float)(v))
#define k_log(v)       log((float)(v))
#define k_tanh(v)      tanh((float)(v))
#define k_erf(v)       erf((float)(v))
#define k_f32_of(u)    as_float((k_u32)(u))
#define k_bits_of(f)   as_uint((float)(f))
#define k_f64_of(u)    as_double((k_u64)(u))
#define k_bits64_of(f) as_ulong((double)(f))
#define K_INFINITY     INFINITY
K_FN float k_f16_load(K_GLOBAL const k_u16 *p, k_i64 i) {
    return vload_half(i, (K_GLOBAL const half *)p);
}
K_FN float k_f16_of(k_u32 code) {
    k_u16 bits = (k_u16)code;
    return vload_half(0, (const half *)&bits);
}
K_FN void k_f16_store(K_GLOBAL k_u16 *p, k_i64 i, float v) {
    vstore_half_rte(v, i, (K_GLOBAL half *)p);
}
#endif

#if defined(K_CUDA) || defined(K_HIP)
typedef int k_i32;
typedef unsigned k_u32;
typedef unsigned short k_u16;
typedef unsigned char k_u8;
typedef long long k_i64;
typedef unsigned long long k_u64;
#define K_CONST static __constant__ const
#define K_GLOBAL
#define K_LOCAL
#define K_INFINITY     __builtin_huge_valf()
#define k_f32_of(u)    k_f32_of_(u)
#define k_bits_of(f)   k_bits_of_(f)
#define k_f64_of(u)    k_f64_of_(u)
#define k_bits64_of(f) k_bits64_of_(f)
#define K_ARGS_(P) \
    k_u8 *m0, k_u8 *m1, k_u8 *m2, k_u8 *m3, k_u8 *m4, k_u8 *m5, k_u8 *m6, k_u8 *m7, P p
#endif

#if defined(K_CUDA)
#define K_FN                 static __device__ __forceinline__
#define K_SHARED(T, n, c)    __shared__ T n[c]
#define K_ITEM               ((k_i32)threadIdx.x)
#define K_GROUP_X            ((k_i32)blockIdx.x)
#define K_GROUP_Y            ((k_i32)blockIdx.y)
#define K_GROUP_Z            ((k_i32)blockIdx.z)
#define K_SYNC               __syncthreads()
#define K_KERNEL(name, P, w) extern "C" __global__ void __launch_bounds__(w) pgd_##name(K_ARGS_(P))
#define k_fma(a, b, c)       __fmaf_rn((a), (b), (c))
#define k_sqrt(v)            sqrtf(v)
#define k_exp(v)             expf(v)
#define k_log(v)             logf(v)
#define k_tanh(v)            tanhf(v)
#define k_erf(v)             erff(v)
K_FN float k_f32_of_(k_u32 u) {
    return __uint_as_float(u);
}
K_FN k_u32 k_bits_of_(float f) {
    return __float_as_uint(f);
}
K_FN double k_f64_of_(k_u64 u) {
    return __longlong_as_double((k_i64)u);
}
K_FN k_u64 k_bits64_of_(double f) {
    return (k_u64)__double_as_longlong(f);
}
K_FN float k_f16_of(k_u32 code) {
    float v;
    asm("cvt.f32.f16 %0, %1;" : "=f"(v) : "h"((k_u16)code));
    return v;
}
K_FN float k_f16_load(const k_u16 *p, k_i64 i) {
    return k_f16_of(p[i]);
}
K_FN void k_f16_store(k_u16 *p, k_i64 i, float v) {
    k_u16 code;
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(code) : "f"(v));
    p[i] = code;
}
#endif

#if defined(K_HIP)
#define __device__        __attribute__((device))
#define __global__        __attribute__((global))
#define __shared__        __attribute__((shared))
#define __constant__      __attribute__((constant))
#define K_FN              static __device__ inline __attribute__((always_inline))
#define K_SHARED(T, n, c) __shared__ T n[c]
#define K_ITEM            ((k_i32)__builtin_amdgcn_workitem_id_x())
#define K_GROUP_X         ((k_i32)__builtin_amdgcn_workgroup_id_x())
#define K_GROUP_Y         ((k_i32)__builtin_amdgcn_workgroup_id_y())
#define K_GROUP_Z         ((k_i32)__builtin_amdgcn_workgroup_id_z())
#define K_SYNC                                                 \
    do {                                                       \
        __builtin_amdgcn_fence(__ATOMIC_RELEASE, "workgroup"); \
        __builtin_amdgcn_s_barrier();                          \
        __builtin_amdgcn_fence(__ATOMIC_ACQUIRE, "workgroup"); \
    } while (0)
#define K_KERNEL(name, P, w) \
    extern "C" __global__    \
        __attribute__((amdgpu_flat_work_group_size(w, w))) void pgd_##name(K_ARGS_(P))
#define k_fma(a, b, c) __builtin_fmaf((a), (b), (c))
#define k_sqrt(v)      __builtin_sqrtf(v)
#define k_exp(v)       __builtin_expf(v)
#define k_log(v)       __builtin_logf(v)
K_FN float k_f32_of_(k_u32 u) {
    return __builtin_bit_cast(float, u);
}
K_FN k_u32 k_bits_of_(float f) {
    return __builtin_bit_cast(k_u32, f);
}
K_FN double k_f64_of_(k_u64 u) {
    return __builtin_bit_cast(double, u);
}
K_FN k_u64 k_bits64_of_(double f) {
    return __builtin_bit_cast(k_u64, f);
}
K_FN float k_f16_of(k_u32 code) {
    return (float)__builtin_bit_cast(_Float16, (k_u16)code);
}
K_FN float k_f16_load(const k_u16 *p, k_i64 i) {
    return k_f16_of(p[i]);
}
K_FN void k_f16_store(k_u16 *p, k_i64 i, float v) {
    p[i] = __builtin_bit_cast(k_u16, (_Float16)v);
}
// No device library: tanh and erf from exp. (Abramowitz and Stegun 7.1.26 has 1.5e-7.)
K_FN float k_tanh(float v) {
    float a = v < 0 ? -v : v, z = v * v, e;
    if (a < 0.25f) {
        e = v * (1.0f + z * (-0.333333333f + z * (0.133333333f + z * -0.0539682540f)));
        return e;
    }
    e = k_exp(-2.0f * a);
    e = (1.0f - e) / (1.0f + e);
    return v < 0 ? -e : e;
}
K_FN float k_erf(float v) {
    float a = v < 0 ? -v : v, t = 1.0f / (1.0f + 0.3275911f * a), y;
    y = t * (0.254829592f +
             t * (-0.284496736f + t * (1.421413741f + t * (-1.453152027f + t * 1.061405429f))));
    y = 1.0f - y * k_exp(-a * a);
    return v < 0 ? -y : y;
}
#endif

#if defined(K_C)
#include "portable/emulator.h"
#endif

#endif
