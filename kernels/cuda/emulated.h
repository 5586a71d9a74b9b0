// The dialect of the tensor-core kernels in C11 (dialect.h).
#ifndef PGD_KERNELS_CUDA_EMULATED_H
#define PGD_KERNELS_CUDA_EMULATED_H

#define KC_KERNEL(name, P, w) KC_KERNEL_(name, P, w)
#define KC_KERNEL_(name, P, w)                                              \
    static void body_##name(KC_ARGS(P));                                    \
    void pgd_emulated_cuda_##name(k_u8 *const *m, const void *params) {     \
        P local;                                                            \
        memcpy(&local, params, sizeof(local));                              \
        kc_is_after[pgd_emulator_at.item] = 0;                              \
        body_##name(m[0], m[1], m[2], m[3], m[4], m[5], m[6], m[7], local); \
        kc_need_after();                                                    \
        kc_need_quiet();                                                    \
    }                                                                       \
    static void body_##name(KC_ARGS(P))
#define KC_KERNEL_OF(name, P, w, n) KC_KERNEL(name, P, w)
#define KC_HAS_HOPPER               1
#define KC_UNROLL
#define KC_ROLLED
enum { KC_ITEMS = 512 };
// Items that have said kc_after.
static unsigned char kc_is_after[KC_ITEMS];

static inline void kc_after(void) {
    kc_is_after[pgd_emulator_at.item] = 1;
}

static inline void kc_need_after(void) {
    if (!kc_is_after[pgd_emulator_at.item]) {
        __builtin_trap(); // reads what the kernel before may not have written, or ends before it
    }
}

#define KC_DYNAMIC(n) k_u8 *n = pgd_emulator_shared

static inline float kc_half_of(k_u32 word, int high, int is_bf16) {
    const k_u16 code = (k_u16)(high ? word >> 16 : word);
    return is_bf16 ? k_f32_of((k_u32)code << 16) : k_f16_load(&code, 0);
}

// A lane's words: a[4], b[2], c[4]; c comes back. Sums in double, rounded once.
static inline void kc_mma_warp(pgd_emulator_lane *lanes, int is_bf16) {
    float a[16][16], b[16][8];
    for (int lane = 0; lane < PGD_EMULATOR_WARP; lane++) {
        const int g = lane >> 2, t = lane % 4;
        for (int i = 0; i < 8; i++) { // as the PTX ISA numbers a0 to a7
            const int row = (i < 2 || (i >= 4 && i < 6)) ? g : g + 8;
            const int k = t * 2 + (i & 1) + (i >= 4 ? 8 : 0);
            a[row][k] = kc_half_of(lanes[lane].words[i / 2], i & 1, is_bf16);
        }
        for (int i = 0; i < 4; i++) { // b0 to b3
            const int k = t * 2 + (i & 1) + (i >= 2 ? 8 : 0);
            b[k][g] = kc_half_of(lanes[lane].words[4 + i / 2], i & 1, is_bf16);
        }
    }
    for (int lane = 0; lane < PGD_EMULATOR_WARP; lane++) {
        const int g = lane >> 2, t = lane % 4;
        for (int i = 0; i < 4; i++) { // c0 to c3
            const int row = i < 2 ? g : g + 8;
            const int column = t * 2 + (i & 1);
            double sum = (double)lanes[lane].floats[6 + i];
            for (int k = 0; k < 16; k++) {
                sum += (double)a[row][k] * (double)b[k][column];
            }
            lanes[lane].floats[6 + i] = (float)sum;
        }
    }
}

static inline void kc_mma_warp_bf16(pgd_emulator_lane *lanes) {
    kc_mma_warp(lanes, 1);
}

static inline void kc_mma_warp_f16(pgd_emulator_lane *lanes) {
    kc_mma_warp(lanes, 0);
}

static inline void kc_mma(float *c, const k_u32 *a, k_u32 b0, k_u32 b1,
                          void (*f)(pgd_emulator_lane *)) {
    pgd_emulator_lane *own = pgd_emulator_own();
    memcpy(own->words, a, 4 * sizeof(k_u32));
    own->words[4] = b0;
    own->words[5] = b1;
    memcpy(own->floats + 6, c, 4 * sizeof(float));
    pgd_emulator_together(f);
    memcpy(c, own->floats + 6, 4 * sizeof(float));
}

static inline void kc_mma_bf16(float *c, const k_u32 *a, k_u32 b0, k_u32 b1) {
    kc_mma(c, a, b0, b1, kc_mma_warp_bf16);
}

static inline void kc_mma_f16(float *c, const k_u32 *a, k_u32 b0, k_u32 b1) {
    kc_mma(c, a, b0, b1, kc_mma_warp_f16);
}

// Lane 8 m + r gives the address of row r of matrix m; turned, register m of lane (g, t) holds
// elements [2t][g] and [2t + 1][g] of it.
static inline void kc_load_matrix_warp(pgd_emulator_lane *lanes) {
    k_u16 m[4][8][8];
    for (int lane = 0; lane < PGD_EMULATOR_WARP; lane++) {
        memcpy(m[lane / 8][lane % 8], lanes[lane].address, 16);
    }
    for (int lane = 0; lane < PGD_EMULATOR_WARP; lane++) {
        const int g = lane >> 2, t = lane % 4;
        for (int i = 0; i < 4; i++) {
            lanes[lane].words[i] = (k_u32)m[i][2 * t][g] | (k_u32)m[i][2 * t + 1][g] << 16;
        }
    }
}

static inline void kc_load_matrix_turned(k_u32 *r, const k_u8 *row) {
    pgd_emulator_lane *own = pgd_emulator_own();
    own->address = row;
    pgd_emulator_together(kc_load_matrix_warp);
    memcpy(r, own->words, 4 * sizeof(k_u32));
}

static inline void kc_swap_warp(pgd_emulator_lane *lanes) {
    for (k_u32 lane = 0; lane < PGD_EMULATOR_WARP; lane++) {
        lanes[lane].words[2] = lanes[lane ^ lanes[lane].words[1]].words[0];
    }
}

static inline float kc_swap(float v, k_i32 mask) {
    pgd_emulator_lane *own = pgd_emulator_own();
    own->floats[0] = v;
    own->words[1] = (k_u32)mask;
    pgd_emulator_together(kc_swap_warp);
    return own->floats[2];
}

static inline void kc_from_warp(pgd_emulator_lane *lanes) {
    for (k_u32 lane = 0; lane < PGD_EMULATOR_WARP; lane++) {
        lanes[lane].words[2] = lanes[lanes[lane].words[1] % PGD_EMULATOR_WARP].words[0];
    }
}

static inline float kc_from(float v, k_i32 lane) {
    pgd_emulator_lane *own = pgd_emulator_own();
    own->floats[0] = v;
    own->words[1] = (k_u32)lane;
    pgd_emulator_together(kc_from_warp);
    return own->floats[2];
}

// Copies of an item on their way, in groups. What they will overwrite is NaN until then.
enum { KC_COPIES = 256 };
typedef struct kc_copies {
    k_u8 *to[KC_COPIES];
    k_u8 bytes[KC_COPIES][16];
    int group[KC_COPIES];
    int n;
    int groups; // committed
} kc_copies;
static kc_copies kc_way[KC_ITEMS];

static inline void kc_copy(k_u8 *to, const k_u8 *from, k_i32 valid) {
    kc_copies *w = &kc_way[pgd_emulator_at.item];
    kc_need_after();
    if (w->n == KC_COPIES || ((uintptr_t)to & 15) != 0 || (valid && ((uintptr_t)from & 15) != 0)) {
        __builtin_trap(); // a GPU would fault on the address
    }
    w->to[w->n] = to;
    memset(w->bytes[w->n], 0, 16);
    if (valid) {
        memcpy(w->bytes[w->n], from, 16);
    }
    w->group[w->n++] = w->groups;
    memset(to, 0xff, 16);
}

static inline void kc_commit(void) {
    kc_way[pgd_emulator_at.item].groups++;
}

// All but the n groups committed last have arrived.
static inline void kc_wait(int n) {
    kc_copies *w = &kc_way[pgd_emulator_at.item];
    int kept = 0;
    for (int i = 0; i < w->n; i++) {
        if (w->group[i] < w->groups - n) {
            memcpy(w->to[i], w->bytes[i], 16);
        } else {
            w->to[kept] = w->to[i];
            memmove(w->bytes[kept], w->bytes[i], 16);
            w->group[kept++] = w->group[i];
        }
    }
    w->n = kept;
}

static inline kc_words kc_load(const k_u8 *p) {
    kc_words v;
    if (((uintptr_t)p & 15) != 0) {
        __builtin_trap();
    }
    memcpy(v.w, p, sizeof(v.w));
    return v;
}

static inline void kc_store(k_u8 *p, kc_words v) {
    if (((uintptr_t)p & 15) != 0) {
        __builtin_trap();
    }
    memcpy(p, v.w, sizeof(v.w));
}

static inline void kc_load_pair(k_u32 *to, const k_u8 *p) {
    kc_need_after();
    if (((uintptr_t)p & 7) != 0) {
        __builtin_trap();
    }
    memcpy(to, p, 8);
}

static inline kc_words kc_stream(const k_u8 *p) {
    return kc_load(p);
}

static inline void kc_store4(float *p, float a, float b, float c, float d) {
    if (((uintptr_t)p & 15) != 0) {
        __builtin_trap();
    }
    p[0] = a;
    p[1] = b;
    p[2] = c;
    p[3] = d;
}

static inline k_u32 kc_low(k_u32 a, k_u32 b) {
    return (a & 0xffffu) | b << 16;
}

static inline k_u32 kc_high(k_u32 a, k_u32 b) {
    return a >> 16 | (b & 0xffff0000u);
}

static inline float kc_exp2(float v) {
    return exp2f(v);
}

static inline float kc_log2(float v) {
    return log2f(v);
}

static inline k_u32 kc_pair_bf16(float low, float high) {
    const float v[2] = {low, high};
    k_u32 code[2];
    for (int i = 0; i < 2; i++) {
        const k_u32 bits = k_bits_of(v[i]);
        code[i] = (bits & 0x7fffffffu) > 0x7f800000u ? 0x7fffu
                                                     : (bits + 0x7fffu + (bits >> 16 & 1u)) >> 16;
    }
    return code[0] | code[1] << 16;
}

static inline k_u32 kc_pair_f16(float low, float high) {
    k_u16 code[2];
    k_f16_store(code, 0, low);
    k_f16_store(code, 1, high);
    return (k_u32)code[0] | (k_u32)code[1] << 16;
}

static inline float kc_of_f16(k_u32 bits) {
    const k_u16 code = (k_u16)bits;
    return k_f16_load(&code, 0);
}

static inline k_u32 kc_count(k_u32 *counter) {
    return (*counter)++;
}

static inline void kc_add(k_u32 *counter, k_u32 v) {
    *counter += v;
}

static inline void kc_fence(void) {
}

static inline float kc_fresh(const float *p) {
    return *p;
}

#endif
