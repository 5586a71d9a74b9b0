// What a tensor-core kernel may say beside the portable dialect, in two languages:
//
//   K_CUDA   PTX (sm_80 and up)
//   K_C      the emulator of kernels/portable: the lanes of a warp meet in each kc_ call that says
//            [warp], and a copy to shared memory arrives when it is waited for, not before
//
// Fragments are laid out as the PTX ISA says (9.7, "Matrix fragments for mma.m16n8k16 with floating
// point type"), g = lane / 4, t = lane % 4, two elements a register, the lower one first:
//
//   a[0] row g     k 2t, 2t+1      a[2] row g     k 2t+8, 2t+9
//   a[1] row g + 8 k 2t, 2t+1      a[3] row g + 8 k 2t+8, 2t+9
//   b0   k 2t, 2t+1  column g      b1   k 2t+8, 2t+9  column g
//   c[0], c[1] row g columns 2t, 2t+1      c[2], c[3] row g + 8
#ifndef PGD_KERNELS_CUDA_DIALECT_H
#define PGD_KERNELS_CUDA_DIALECT_H

#include "portable/dialect.h"

#include "cuda/params.h"

// 1 where the instructions of hopper.h are: sm_90a alone, not what comes after it.
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
#define KC_HAS_HOPPER 1
#endif

typedef struct kc_words {
    k_u32 w[4];
} kc_words;

// What a kernel takes: eight memories and its parameters.
#define KC_ARGS(P) \
    k_u8 *m0, k_u8 *m1, k_u8 *m2, k_u8 *m3, k_u8 *m4, k_u8 *m5, k_u8 *m6, k_u8 *m7, P p

#define KC_LANE (K_ITEM & 31)
#define KC_WARP (K_ITEM >> 5)

#if defined(K_CUDA)

#define KC_KERNEL(name, P, w) KC_KERNEL_(name, P, w)
#define KC_KERNEL_(name, P, w) \
    extern "C" __global__ void __launch_bounds__(w) pgd_cuda_##name(KC_ARGS(P))
// With registers for so many groups on a processor at once.
#define KC_KERNEL_OF(name, P, w, n) KC_KERNEL_OF_(name, P, w, n)
#define KC_KERNEL_OF_(name, P, w, n) \
    extern "C" __global__ void __launch_bounds__(w, n) pgd_cuda_##name(KC_ARGS(P))
#define KC_UNROLL     _Pragma("unroll")
#define KC_ROLLED     _Pragma("unroll 1")
#define KC_DYNAMIC(n) extern __shared__ __align__(128) k_u8 n[]
#define KC_MMA(c, a, b0, b1, T)                                                 \
    asm("mma.sync.aligned.m16n8k16.row.col.f32." T "." T ".f32 {%0,%1,%2,%3}, " \
        "{%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"                                \
        : "+f"((c)[0]), "+f"((c)[1]), "+f"((c)[2]), "+f"((c)[3])                \
        : "r"((a)[0]), "r"((a)[1]), "r"((a)[2]), "r"((a)[3]), "r"(b0), "r"(b1))
K_FN void kc_mma_bf16(float *c, const k_u32 *a, k_u32 b0, k_u32 b1) {
    KC_MMA(c, a, b0, b1, "bf16");
}
K_FN void kc_mma_f16(float *c, const k_u32 *a, k_u32 b0, k_u32 b1) {
    KC_MMA(c, a, b0, b1, "f16");
}
K_FN k_u32 kc_shared_address(const void *p) {
    return (k_u32)__cvta_generic_to_shared(p);
}
K_FN void kc_load_matrix_turned(k_u32 *r, const k_u8 *row) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(kc_shared_address(row))
                 : "memory");
}
K_FN void kc_copy(k_u8 *to, const k_u8 *from, k_i32 valid) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(kc_shared_address(to)),
                 "l"(from), "r"(valid ? 16 : 0)
                 : "memory");
}
K_FN void kc_commit(void) {
    asm volatile("cp.async.commit_group;" ::: "memory");
}
#define kc_wait(n) asm volatile("cp.async.wait_group %0;" ::"n"(n) : "memory")
// 16 bytes that are read once and that no kernel of the queue writes meanwhile.
K_FN kc_words kc_stream(const k_u8 *p) {
    kc_words v;
    asm volatile("ld.global.nc.L1::no_allocate.v4.u32 {%0,%1,%2,%3}, [%4];"
                 : "=r"(v.w[0]), "=r"(v.w[1]), "=r"(v.w[2]), "=r"(v.w[3])
                 : "l"(p));
    return v;
}
K_FN kc_words kc_load(const k_u8 *p) {
    uint4 v = *(const uint4 *)p;
    kc_words r = {{v.x, v.y, v.z, v.w}};
    return r;
}
K_FN void kc_load_pair(k_u32 *to, const k_u8 *p) {
    uint2 v = *(const uint2 *)p;
    to[0] = v.x;
    to[1] = v.y;
}
K_FN void kc_store(k_u8 *p, kc_words v) {
    *(uint4 *)p = make_uint4(v.w[0], v.w[1], v.w[2], v.w[3]);
}
K_FN void kc_store4(float *p, float a, float b, float c, float d) {
    *(float4 *)p = make_float4(a, b, c, d);
}
K_FN float kc_swap(float v, k_i32 mask) {
    return __shfl_xor_sync(0xffffffffu, v, mask);
}
K_FN float kc_from(float v, k_i32 lane) {
    return __shfl_sync(0xffffffffu, v, lane);
}
K_FN k_u32 kc_low(k_u32 a, k_u32 b) {
    return __byte_perm(a, b, 0x5410);
}
K_FN k_u32 kc_high(k_u32 a, k_u32 b) {
    return __byte_perm(a, b, 0x7632);
}
K_FN float kc_exp2(float v) {
    float r;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(r) : "f"(v));
    return r;
}
K_FN float kc_log2(float v) {
    float r;
    asm("lg2.approx.ftz.f32 %0, %1;" : "=f"(r) : "f"(v));
    return r;
}
K_FN k_u32 kc_pair_bf16(float low, float high) {
    k_u32 r;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(r) : "f"(high), "f"(low));
    return r;
}
K_FN k_u32 kc_pair_f16(float low, float high) {
    k_u32 r;
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(r) : "f"(high), "f"(low));
    return r;
}
// The kernel before this one has ended, the one behind it may be brought to the processors. Every
// item says so before it reads what another kernel wrote, and before it ends.
K_FN void kc_after(void) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
    asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}
K_FN k_u32 kc_count(k_u32 *counter) {
    return atomicAdd(counter, 1u);
}
K_FN void kc_add(k_u32 *counter, k_u32 v) {
    atomicAdd(counter, v);
}
K_FN void kc_fence(void) {
    __threadfence();
}
// What other groups of this kernel have written: past the first cache.
K_FN float kc_fresh(const float *p) {
    return __ldcg(p);
}

K_FN float kc_of_f16(k_u32 bits) {
    float v;
    asm("cvt.f32.f16 %0, %1;" : "=f"(v) : "h"((k_u16)bits));
    return v;
}

#else
#include "cuda/emulated.h"
#endif

// The halves of a word as numbers.
K_FN float kc_low_of(k_u32 word, k_i32 is_bf16) {
    return is_bf16 ? k_f32_of(word << 16) : kc_of_f16(word & 0xffffu);
}
K_FN float kc_high_of(k_u32 word, k_i32 is_bf16) {
    return is_bf16 ? k_f32_of(word & 0xffff0000u) : kc_of_f16(word >> 16);
}

#endif
