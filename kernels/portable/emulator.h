// The dialect in C11: a group's items are fibers on one thread, K_SYNC goes on to the next one.
//
// Memory errors and undefined behaviour of a kernel are then seen by the sanitizers of a host
// compiler, with the kernel's own lines. One kernel runs at a time in a process.
#ifndef PGD_KERNELS_PORTABLE_EMULATOR_H
#define PGD_KERNELS_PORTABLE_EMULATOR_H

#include <math.h>
#include <stdint.h>
#include <string.h>

typedef int32_t k_i32;
typedef uint32_t k_u32;
typedef uint16_t k_u16;
typedef uint8_t k_u8;
typedef int64_t k_i64;
typedef uint64_t k_u64;

// Where the item that runs stands.
typedef struct pgd_emulator_place {
    k_i32 item;
    k_i32 group[3];
} pgd_emulator_place;

extern pgd_emulator_place pgd_emulator_at;

// Goes on when every item of the group has come here.
void pgd_emulator_sync(void);

// Warps, for kernels that know them (kernels/cuda, kernels/matrix): neighbouring items meet without
// the others. 32 of them, where the caller of pgd_emulator_run has not set another number.
enum { PGD_EMULATOR_WARP = 32, PGD_EMULATOR_LANE_BYTES = 96 };
extern k_i32 pgd_emulator_warp;

// What the items of a warp hand each other: a lane reads and writes its own, f all of them.
typedef union pgd_emulator_lane {
    k_u32 words[PGD_EMULATOR_LANE_BYTES / 4];
    float floats[PGD_EMULATOR_LANE_BYTES / 4];
    const k_u8 *address;
} pgd_emulator_lane;
pgd_emulator_lane *pgd_emulator_own(void);

// Goes on when all items of the warp have come here and the last of them has run f on their
// lanes. A lane that is at another barrier, or has ended, makes the run fail.
void pgd_emulator_together(void (*f)(pgd_emulator_lane *lanes));

// Goes on when ready says so, which is asked again and again while other warps run; the lanes of a
// warp must be of one mind. Makes the run fail when all that is left waits like this.
void pgd_emulator_wait(int (*ready)(void *what), void *what);

// Shared memory whose size a launch says: set by the caller of pgd_emulator_run.
extern k_u8 *pgd_emulator_shared;
// 1: the warps of a group take turns from the last to the first, so that a barrier that is missing
// shows in one of the two orders.
extern int pgd_emulator_backwards;

// A kernel: eight memories and its parameters.
typedef void (*pgd_emulator_kernel)(k_u8 *const *m, const void *params);

// Runs all groups, one after the other, of n_items items each.
//   fails  -1 if there is no memory for the fibers' stacks, -2 if items wait at different barriers
int pgd_emulator_run(pgd_emulator_kernel kernel, const k_u32 groups[3], k_u32 n_items,
                     k_u8 *const *m, const void *params);

#define K_FN    static
#define K_CONST static const
#define K_GLOBAL
#define K_LOCAL
#define K_SHARED(T, n, c) static T n[c]
#define K_ITEM            (pgd_emulator_at.item)
#define K_GROUP_X         (pgd_emulator_at.group[0])
#define K_GROUP_Y         (pgd_emulator_at.group[1])
#define K_GROUP_Z         (pgd_emulator_at.group[2])
#define K_SYNC            pgd_emulator_sync()
#define K_INFINITY        INFINITY
#define K_KERNEL(name, P, w)                                                                      \
    static void body_##name(k_u8 *m0, k_u8 *m1, k_u8 *m2, k_u8 *m3, k_u8 *m4, k_u8 *m5, k_u8 *m6, \
                            k_u8 *m7, P p);                                                       \
    void pgd_emulated_##name(k_u8 *const *m, const void *params) {                                \
        P local;                                                                                  \
        memcpy(&local, params, sizeof(local));                                                    \
        body_##name(m[0], m[1], m[2], m[3], m[4], m[5], m[6], m[7], local);                       \
    }                                                                                             \
    static void body_##name(k_u8 *m0, k_u8 *m1, k_u8 *m2, k_u8 *m3, k_u8 *m4, k_u8 *m5, k_u8 *m6, \
                            k_u8 *m7, P p)

#define k_fma(a, b, c) fmaf((a), (b), (c))
#define k_sqrt(v)      sqrtf(v)
#define k_exp(v)       expf(v)
#define k_log(v)       logf(v)
#define k_tanh(v)      tanhf(v)
#define k_erf(v)       erff(v)

static inline float k_f32_of(k_u32 u) {
    float f;
    memcpy(&f, &u, sizeof(f));
    return f;
}

static inline k_u32 k_bits_of(float f) {
    k_u32 u;
    memcpy(&u, &f, sizeof(u));
    return u;
}

static inline double k_f64_of(k_u64 u) {
    double f;
    memcpy(&f, &u, sizeof(f));
    return f;
}

static inline k_u64 k_bits64_of(double f) {
    k_u64 u;
    memcpy(&u, &f, sizeof(u));
    return u;
}

static inline float k_f16_of(k_u32 code) {
    const k_u32 sign = (code & 0x8000u) << 16;
    const k_u32 exponent = code >> 10 & 0x1fu;
    const k_u32 fraction = code & 0x3ffu;
    float v;
    if (exponent == 0) {
        v = (float)fraction * 0x1p-24F;
        return sign != 0 ? -v : v;
    }
    return k_f32_of(sign | (exponent == 31 ? 255u : exponent + 112u) << 23 | fraction << 13);
}

static inline float k_f16_load(const k_u16 *p, k_i64 i) {
    return k_f16_of(p[i]);
}

// Nearest, ties to even.
static inline void k_f16_store(k_u16 *p, k_i64 i, float v) {
    const k_u32 bits = k_bits_of(v);
    const k_u32 sign = bits >> 16 & 0x8000u;
    const k_u32 size = bits & 0x7fffffffu;
    k_u32 code;
    if (size > 0x7f800000u) {
        code = 0x7e00u;
    } else if (size >= 0x477ff000u) {
        code = 0x7c00u;
    } else if (size < 0x38800000u) { // a subnormal: the sum rounds it
        code = k_bits_of(k_f32_of(size) + 0.5F) - 0x3f000000u;
    } else {
        code = (size - 0x38000000u + 0xfffu + (size >> 13 & 1u)) >> 13;
    }
    p[i] = (k_u16)(sign | code);
}

#endif
