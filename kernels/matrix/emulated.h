// The dialect of the matrix-unit kernels in C11 (dialect.h).
//
// Where the numbers of a fragment lie, element e (16-bit of a and b, float of d) of a lane:
//
//   mfma    CDNA ISA, "dense matrix operations": the k of a lane are 4 neighbours, rows of d too
//   wmma    RDNA3 ISA, "WMMA matrix register layout": lanes 16 to 31 repeat a and b of the others,
//           rows of d alternate between the halves
//   wmma12  RDNA4 ISA: the k of a half come in fours, rows of d are 8 neighbours
//   dpas    cl_intel_subgroup_matrix_multiply_accumulate: a lane is a column of b and d, and of a
//           one k (16 lanes) or two of them (8 lanes)
#ifndef PGD_KERNELS_MATRIX_EMULATED_H
#define PGD_KERNELS_MATRIX_EMULATED_H

#define KM_UNROLL
#define KM_ROLLED
#define KM_KERNEL(name, P, w) KM_KERNEL_(name, P, w)
#define KM_KERNEL_(name, P, w)                                                                    \
    static void body_##name(k_u8 *m0, k_u8 *m1, k_u8 *m2, k_u8 *m3, k_u8 *m4, k_u8 *m5, k_u8 *m6, \
                            k_u8 *m7, P p);                                                       \
    static void run_##name(k_u8 *const *m, const void *params) {                                  \
        P local;                                                                                  \
        memcpy(&local, params, sizeof(local));                                                    \
        body_##name(m[0], m[1], m[2], m[3], m[4], m[5], m[6], m[7], local);                       \
    }                                                                                             \
    static void body_##name(k_u8 *m0, k_u8 *m1, k_u8 *m2, k_u8 *m3, k_u8 *m4, k_u8 *m5, k_u8 *m6, \
                            k_u8 *m7, P p)

typedef struct km_place {
    int row; // of a and d; k of b
    int column;
} km_place;

static inline km_place km_place_a(int lane, int e) {
#if defined(KM_UNIT_MFMA)
    return (km_place){lane % 16, lane / 16 * 4 + e};
#elif defined(KM_UNIT_WMMA)
    return (km_place){lane % 16, e};
#elif defined(KM_UNIT_WMMA12)
    return (km_place){lane % 16, e / 4 * 8 + lane / 16 * 4 + e % 4};
#elif defined(KM_UNIT_DPAS16)
    return (km_place){e, lane};
#else
    return (km_place){e / 2, lane * 2 + e % 2};
#endif
}

static inline km_place km_place_b(int lane, int e) {
#if defined(KM_UNIT_DPAS16) || defined(KM_UNIT_DPAS8)
    return (km_place){e, lane};
#else
    const km_place turned = km_place_a(lane, e);
    return (km_place){turned.column, turned.row};
#endif
}

static inline km_place km_place_d(int lane, int e) {
#if defined(KM_UNIT_MFMA)
    return (km_place){lane / 16 * 4 + e, lane % 16};
#elif defined(KM_UNIT_WMMA)
    return (km_place){e * 2 + lane / 16, lane % 16};
#elif defined(KM_UNIT_WMMA12)
    return (km_place){lane / 16 * 8 + e, lane % 16};
#else
    return (km_place){e, lane};
#endif
}

// A lane's words: a, b, then its sums, which come back.
enum { KM_WORDS = KM_A + KM_B, KM_HALVES_A = KM_A * 2, KM_HALVES_B = KM_B * 2 };
_Static_assert((KM_WORDS + KM_N) * 4 <= PGD_EMULATOR_LANE_BYTES, "room for a lane");

static inline double km_half(k_u32 word, int high, int is_bf16) {
    const k_u16 code = (k_u16)(high ? word >> 16 : word);
    return (double)(is_bf16 ? k_f32_of((k_u32)code << 16) : k_f16_load(&code, 0));
}

// Sums in double, rounded once. A slot that two lanes have must be the same in both.
static inline void km_mul_wave(pgd_emulator_lane *lanes, int is_bf16) {
    double a[16][16], b[16][16];
    unsigned char has_a[16][16] = {{0}}, has_b[16][16] = {{0}};
    for (int lane = 0; lane < KM_LANES; lane++) {
        for (int e = 0; e < KM_HALVES_A; e++) {
            const km_place at = km_place_a(lane, e);
            const double v = km_half(lanes[lane].words[e / 2], e % 2, is_bf16);
            if (has_a[at.row][at.column]++ && memcmp(&a[at.row][at.column], &v, sizeof(v)) != 0) {
                __builtin_trap();
            }
            a[at.row][at.column] = v;
        }
        for (int e = 0; e < KM_HALVES_B; e++) {
            const km_place at = km_place_b(lane, e);
            const double v = km_half(lanes[lane].words[KM_A + e / 2], e % 2, is_bf16);
            if (has_b[at.row][at.column]++ && memcmp(&b[at.row][at.column], &v, sizeof(v)) != 0) {
                __builtin_trap();
            }
            b[at.row][at.column] = v;
        }
    }
    for (int lane = 0; lane < KM_LANES; lane++) {
        for (int e = 0; e < KM_N; e++) {
            const km_place at = km_place_d(lane, e);
            double sum = (double)lanes[lane].floats[KM_WORDS + e];
            for (int k = 0; k < KM_STEP; k++) {
                sum += a[at.row][k] * b[k][at.column];
            }
            lanes[lane].floats[KM_WORDS + e] = (float)sum;
        }
    }
}

static inline void km_mul_bf16(pgd_emulator_lane *lanes) {
    km_mul_wave(lanes, 1);
}

static inline void km_mul_f16(pgd_emulator_lane *lanes) {
    km_mul_wave(lanes, 0);
}

static inline void km_mul(float *c, const k_u32 *a, const k_u32 *b, k_i32 is_bf16) {
    pgd_emulator_lane *own = pgd_emulator_own();
    memcpy(own->words, a, KM_A * sizeof(k_u32));
    memcpy(own->words + KM_A, b, KM_B * sizeof(k_u32));
    memcpy(own->floats + KM_WORDS, c, KM_N * sizeof(float));
    pgd_emulator_together(is_bf16 ? km_mul_bf16 : km_mul_f16);
    memcpy(c, own->floats + KM_WORDS, KM_N * sizeof(float));
}

static inline k_u32 km_low(k_u32 a, k_u32 b) {
    return (a & 0xffffu) | b << 16;
}

static inline k_u32 km_high(k_u32 a, k_u32 b) {
    return a >> 16 | (b & 0xffff0000u);
}

// An address that is no multiple of the bytes would fault, or be cut, on a GPU.
static inline void km_load(k_u32 *to, const k_u8 *p, uintptr_t bytes) {
    if (((uintptr_t)p & (bytes - 1)) != 0) {
        __builtin_trap();
    }
    memcpy(to, p, bytes);
}

static inline void km_load8(k_u32 *to, const k_u8 *p) {
    km_load(to, p, 8);
}

static inline void km_load16(k_u32 *to, const k_u8 *p) {
    km_load(to, p, 16);
}

#endif
