// Vectors of 4 floats in plain C with vector types: runs on any processor; the compiler lowers them
// to what the base instruction set has. Also the place where the names of the layer are explained.
#ifndef PGD_KERNELS_CPU_VEC_H
#define PGD_KERNELS_CPU_VEC_H

#include <stdint.h>
#include <string.h>

#if defined(__SSE2__)
#include <emmintrin.h>
#endif

#define VW          4 // floats in a vector, a divisor of 32
#define VEC_NAME(n) n##__scalar
#define TILE_M      6 // rows of a register tile of 2 vectors, a divisor of 12

typedef float vf __attribute__((vector_size(16)));
typedef int32_t vi __attribute__((vector_size(16)));
typedef uint32_t vu __attribute__((vector_size(16)));
typedef uint16_t vh __attribute__((vector_size(8)));

#define VEC_INLINE static inline __attribute__((always_inline, unused))

VEC_INLINE vf v_set1(float a) {
    return (vf){a, a, a, a};
}
VEC_INLINE vf v_load(const float *p) {
    vf a;
    memcpy(&a, p, sizeof a);
    return a;
}
VEC_INLINE void v_store(float *p, vf a) {
    memcpy(p, &a, sizeof a);
}
// The first n (< VW) lanes, zero behind.
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
    return a + b;
}
VEC_INLINE vf v_sub(vf a, vf b) {
    return a - b;
}
VEC_INLINE vf v_mul(vf a, vf b) {
    return a * b;
}
VEC_INLINE vf v_div(vf a, vf b) {
    return a / b;
}
// a * b + c, fused where the instruction set has it.
VEC_INLINE vf v_fma(vf a, vf b, vf c) {
    return a * b + c;
}
VEC_INLINE vf v_pick(vi mask, vf a, vf b) {
    return (vf)((mask & (vi)a) | (~mask & (vi)b));
}
// Larger lane; b where a lane is NaN.
VEC_INLINE vf v_max(vf a, vf b) {
    return v_pick(a > b, a, b);
}
// Smaller lane; b where a lane is NaN.
VEC_INLINE vf v_min(vf a, vf b) {
    return v_pick(a < b, a, b);
}
// Nearest integer, ties to even, |a| < 2^22.
VEC_INLINE vf v_round(vf a) {
    vf magic = v_set1(12582912.0f); // 1.5 * 2^23
    return (a + magic) - magic;
}
// a * 2^n for an integral n in [-252, 254]; rounds at most once.
VEC_INLINE vf v_scale2(vf a, vf n) {
    vi i = __builtin_convertvector(n, vi);
    vi half = i >> 1;
    vi rest = i - half;
    return a * (vf)((half + 127) << 23) * (vf)((rest + 127) << 23);
}
// a in lanes [lo, hi), 0 <= lo <= hi <= VW; b in the others.
VEC_INLINE vf v_lanes(vf a, vf b, int64_t lo, int64_t hi) {
    vi i = {0, 1, 2, 3};
    return v_pick((i >= (int32_t)lo) & (i < (int32_t)hi), a, b);
}
VEC_INLINE vf v_load_bf16(const uint16_t *p) {
    vh h;
    memcpy(&h, p, sizeof h);
    return (vf)(__builtin_convertvector(h, vu) << 16);
}
VEC_INLINE vf v_load_f16(const uint16_t *p) {
    vh h;
    memcpy(&h, p, sizeof h);
    vu u = __builtin_convertvector(h, vu);
    vf a = (vf)((u & 0x7fffu) << 13) * v_set1(0x1p112f); // moves the exponent's bias from 15 to 127
    vu special = (vu)((u & 0x7c00u) == 0x7c00u);
    return (vf)((vu)a | (special & 0x7f800000u) | ((u & 0x8000u) << 16));
}
// Lanes of the even and of the odd elements of VW pairs of bf16.
VEC_INLINE vf v_pair_even(const uint32_t *p) {
    vu u;
    memcpy(&u, p, sizeof u);
    return (vf)(u << 16);
}
VEC_INLINE vf v_pair_odd(const uint32_t *p) {
    vu u;
    memcpy(&u, p, sizeof u);
    return (vf)(u & 0xffff0000u);
}
// Nearest even; a NaN stays a quiet NaN.
VEC_INLINE void v_store_bf16(uint16_t *p, vf a) {
    vu u = (vu)a;
    vu r = u + ((u >> 16) & 1u) + 0x7fffu;
    vu nan = (vu)(a != a);
    r = ((nan & (u | 0x400000u)) | (~nan & r)) >> 16;
    vh h = __builtin_convertvector(r, vh);
    memcpy(p, &h, sizeof h);
}
VEC_INLINE uint16_t v_half(float a) {
    uint32_t u;
    memcpy(&u, &a, sizeof u);
    uint32_t sign = (u >> 16) & 0x8000u;
    uint32_t mag = u & 0x7fffffffu;
    if (mag > 0x7f800000u) {
        return (uint16_t)(sign | 0x7e00u | ((mag >> 13) & 0x3ffu));
    }
    if (mag >= 0x47800000u) { // 65536 and more
        return (uint16_t)(sign | 0x7c00u);
    }
    if (mag < 0x38800000u) { // below 2^-14: a multiple of 2^-24, found by adding 0.5
        float f;
        memcpy(&f, &mag, sizeof f);
        f += 0.5f;
        memcpy(&mag, &f, sizeof mag);
        return (uint16_t)(sign | (mag - 0x3f000000u));
    }
    mag += 0xfffu + ((mag >> 13) & 1u); // 65520 and more carries into infinity
    return (uint16_t)(sign | ((mag - 0x38000000u) >> 13));
}
VEC_INLINE void v_store_f16(uint16_t *p, vf a) {
    for (int i = 0; i < VW; i++) {
        p[i] = v_half(a[i]);
    }
}
// Lanes of 64 bits, and the product of their low halves.
typedef uint64_t vq __attribute__((vector_size(16)));
VEC_INLINE vq q_mul(vq a, vq b) {
#if defined(__SSE2__)
    return (vq)_mm_mul_epu32((__m128i)a, (__m128i)b); // which compilers do not find on their own
#else
    return (a & 0xffffffffu) * (b & 0xffffffffu);
#endif
}
// a[0], b[0], a[2], b[2] ... and a[1], b[1], a[3], b[3] ...
VEC_INLINE vq q_zip_even(vq a, vq b) {
    return (vq){a[0], b[0]};
}
VEC_INLINE vq q_zip_odd(vq a, vq b) {
    return (vq){a[1], b[1]};
}
// Bit i set: lane i of a is at least (more than) that of b; never for a NaN.
VEC_INLINE uint32_t v_bits(vi m) {
    return (uint32_t)((m[0] & 1) | (m[1] & 2) | (m[2] & 4) | (m[3] & 8));
}
VEC_INLINE uint32_t v_ge_bits(vf a, vf b) {
    return v_bits(a >= b);
}
VEC_INLINE uint32_t v_gt_bits(vf a, vf b) {
    return v_bits(a > b);
}
// Largest lane; no lane is NaN.
VEC_INLINE float v_largest(vf a) {
    float lo = a[0] > a[1] ? a[0] : a[1];
    float hi = a[2] > a[3] ? a[2] : a[3];
    return lo > hi ? lo : hi;
}
// The lanes of `bits` at p, in order; writes up to VW floats. Gives how many there are.
VEC_INLINE int64_t v_pack(float *p, vf a, uint32_t bits) {
    int64_t n = 0;
    for (int i = 0; i < VW; i++) {
        p[n] = a[i];
        n += bits >> i & 1;
    }
    return n;
}

#endif
