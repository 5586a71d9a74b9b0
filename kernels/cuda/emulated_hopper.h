// The instructions of hopper.h in C11. Nothing arrives before it is waited for:
//
//   a bulk copy    reads its source when somebody waits at its gate; its target is NaN until then
//   a product      reads shared memory when it is issued, and what it read must be the same when
//                  its group is waited for; the accumulator is NaN in between
#ifndef PGD_KERNELS_CUDA_EMULATED_HOPPER_H
#define PGD_KERNELS_CUDA_EMULATED_HOPPER_H

enum {
    KC_BULKS = 256,
    KC_ACCUMULATOR = 128,
    KC_HELD = 64,
    KC_WARPS = KC_ITEMS / PGD_EMULATOR_WARP
};

static inline k_u32 kc_shared_address(const void *p) {
    return (k_u32)((const k_u8 *)p - pgd_emulator_shared);
}

// ---- gates and copies --------------------------------------------------------------------------

typedef struct kc_gate { // the 8 bytes of an mbarrier
    k_u16 count;         // arrivals of a phase
    k_u16 missing;       // of this phase
    k_u32 bytes;         // announced and not there, * 2 + parity of this phase
} kc_gate;
_Static_assert(sizeof(kc_gate) == sizeof(k_u64), "an mbarrier");

typedef struct kc_bulk_copy {
    k_u8 *to;
    const k_u8 *from;
    k_u32 bytes;
    kc_gate *gate;
} kc_bulk_copy;
static kc_bulk_copy kc_bulks[KC_BULKS];
static int kc_n_bulks;

static inline void kc_gate_init(k_u64 *gate, k_i32 count) {
    const kc_gate made = {.count = (k_u16)count, .missing = (k_u16)count};
    memcpy(gate, &made, sizeof(made));
}

static inline void kc_hand_over(void) {
}

static inline void kc_gate_turn(kc_gate *g) {
    if (g->missing == 0 && g->bytes < 2) {
        g->missing = g->count;
        g->bytes ^= 1u;
    }
}

static inline void kc_gate_expect(k_u64 *gate, k_i32 bytes) {
    kc_gate *g = (kc_gate *)(void *)gate;
    if (g->missing == 0 || g->missing > g->count) {
        __builtin_trap(); // more arrivals than the gate was made for
    }
    g->missing--;
    g->bytes += (k_u32)bytes * 2;
    kc_gate_turn(g);
}

static inline void kc_gate_arrive(k_u64 *gate) {
    kc_gate_expect(gate, 0);
}

static inline void kc_bulk(k_u8 *to, const k_u8 *from, k_i32 bytes, k_u64 *gate) {
    kc_gate *g = (kc_gate *)(void *)gate;
    kc_need_after();
    if (kc_n_bulks == KC_BULKS || bytes <= 0 || ((uintptr_t)to & 15) != 0 ||
        ((uintptr_t)from & 15) != 0 || (bytes & 15) != 0 || g->bytes / 2 < (k_u32)bytes) {
        __builtin_trap(); // an address that faults, or bytes nobody announced
    }
    memset(to, 0xff, (size_t)bytes);
    kc_bulks[kc_n_bulks++] = (kc_bulk_copy){to, from, (k_u32)bytes, g};
}

typedef struct kc_waiting {
    kc_gate *gate;
    k_u32 parity;
} kc_waiting;

static inline int kc_gate_ready(void *what) {
    const kc_waiting *w = what;
    int kept = 0;
    for (int i = 0; i < kc_n_bulks; i++) {
        const kc_bulk_copy c = kc_bulks[i];
        if (c.gate == w->gate) {
            memcpy(c.to, c.from, c.bytes);
            c.gate->bytes -= c.bytes * 2;
        } else {
            kc_bulks[kept++] = c;
        }
    }
    if (kept != kc_n_bulks) {
        kc_n_bulks = kept;
        kc_gate_turn(w->gate);
    }
    return (w->gate->bytes & 1u) != w->parity;
}

static inline k_i32 kc_gate_wait(k_u64 *gate, k_i32 parity, k_i32 patience) {
    kc_waiting w = {(kc_gate *)(void *)gate, (k_u32)parity};
    pgd_emulator_wait(kc_gate_ready, &w);
    return patience;
}

static inline k_i32 kc_warp_number(void) {
    return KC_WARP;
}

static inline void kc_nothing(pgd_emulator_lane *lanes) {
    (void)lanes;
}

static inline void kc_warp(void) {
    pgd_emulator_together(kc_nothing);
}

// Items 0 to 255 in turns; a turn ends when the last has come.
enum { KC_PAIR = 256 };
static k_u32 kc_pair_arrived;

static inline int kc_pair_ready(void *turn) {
    return kc_pair_arrived >= *(k_u32 *)turn;
}

static inline void kc_pair_sync(void) {
    k_u32 turn = (kc_pair_arrived / KC_PAIR + 1) * KC_PAIR;
    if (pgd_emulator_at.item >= KC_PAIR) {
        __builtin_trap();
    }
    kc_pair_arrived++;
    kc_warp(); // its lanes find the turn ended, or not, alike
    pgd_emulator_wait(kc_pair_ready, &turn);
}

#define kc_fewer_registers(n) (void)(n)
#define kc_more_registers(n)  (void)(n)

static inline void kc_give_up(void) {
    __builtin_trap();
}

// ---- products of a warpgroup -------------------------------------------------------------------

// What an item knows of its accumulator while products are on their way.
typedef struct kc_accumulator {
    float *visible; // NULL: none is on its way
    int n;
    float is[KC_ACCUMULATOR];
} kc_accumulator;
static kc_accumulator kc_sums[KC_ITEMS];
static unsigned char kc_is_fenced[KC_ITEMS];

// Products of a warp whose operands must stay as they are.
typedef struct kc_held {
    k_u64 a, b;
    int n;
    int group;
    k_u64 hash;
} kc_held;
static kc_held kc_hold[KC_WARPS][KC_HELD];
static int kc_n_held[KC_WARPS];
static int kc_group_number[KC_WARPS];

static inline const k_u8 *kc_core(k_u64 matrix, int mn, int k) {
    if (matrix >> 46 != 0) {
        __builtin_trap(); // a swizzle, or an offset of the base
    }
    const k_u64 lead = (matrix >> 16 & 0x3fffu) << 4, stride = (matrix >> 32 & 0x3fffu) << 4;
    return pgd_emulator_shared + ((matrix & 0x3fffu) << 4) + (k_u64)(mn / 8) * stride +
           (k_u64)(k / 8) * lead;
}

static inline float kc_element(const k_u8 *core, int row, int in, int is_bf16) {
    k_u16 code;
    memcpy(&code, core + row * 16 + in * 2, sizeof(code));
    return kc_half_of(code, 0, is_bf16);
}

static inline k_u64 kc_hash(k_u64 hash, k_u64 matrix, int mn) {
    for (int i = 0; i < mn; i += 8) {
        for (int k = 0; k < 16; k += 8) {
            const k_u8 *core = kc_core(matrix, i, k);
            for (int w = 0; w < 128; w += 8) {
                k_u64 word;
                memcpy(&word, core + w, sizeof(word));
                hash = (hash ^ word) * 0x100000001b3u;
                hash ^= hash >> 29;
            }
        }
    }
    return hash;
}

// A lane's words: a and b (2 each), keep, n, bf16. Sums in double, rounded once, as kc_mma_warp.
static inline void kc_group_warp(pgd_emulator_lane *lanes) {
    static float b[16][256];
    const int item = pgd_emulator_at.item & ~(PGD_EMULATOR_WARP - 1);
    const int warp = item / PGD_EMULATOR_WARP, n = (int)lanes[0].words[5];
    const int is_bf16 = (int)lanes[0].words[6];
    float a[16][16];
    kc_held h = {.n = n, .group = kc_group_number[warp]};
    memcpy(&h.a, lanes[0].words, sizeof(h.a));
    memcpy(&h.b, lanes[0].words + 2, sizeof(h.b));
    h.hash = kc_hash(kc_hash(0, h.a, 64), h.b, n);
    if (kc_n_held[warp] == KC_HELD) {
        __builtin_trap();
    }
    kc_hold[warp][kc_n_held[warp]++] = h;
    for (int k = 0; k < 16; k++) {
        for (int i = 0; i < 16; i++) {
            const int row = warp % 4 * 16 + i;
            a[i][k] = kc_element(kc_core(h.a, row, k), k % 8, row % 8, is_bf16);
        }
        for (int i = 0; i < n; i++) {
            b[k][i] = kc_element(kc_core(h.b, i, k), i % 8, k % 8, is_bf16);
        }
    }
    for (int lane = 0; lane < PGD_EMULATOR_WARP; lane++) {
        kc_accumulator *to = &kc_sums[item + lane];
        const int g = lane >> 2, t = lane % 4;
        if (memcmp(lanes[lane].words, lanes[0].words, 7 * sizeof(k_u32)) != 0) {
            __builtin_trap(); // lanes of two minds
        }
        for (int j = 0; j < n / 2; j++) {
            const int row = g + (j >> 1 & 1) * 8, column = j / 4 * 8 + t * 2 + (j & 1);
            double sum = lanes[0].words[4] != 0 ? (double)to->is[j] : 0;
            for (int k = 0; k < 16; k++) {
                sum += (double)a[row][k] * (double)b[k][column];
            }
            to->is[j] = (float)sum;
        }
    }
}

static inline void kc_group(float *d, k_u64 a, k_u64 b, k_i32 keep, int n, int is_bf16) {
    pgd_emulator_lane *own = pgd_emulator_own();
    kc_accumulator *sum = &kc_sums[pgd_emulator_at.item];
    if (sum->visible == NULL) {
        if (!kc_is_fenced[pgd_emulator_at.item]) {
            __builtin_trap(); // kc_group_fence is missing
        }
        memcpy(sum->is, d, (size_t)n / 2 * sizeof(float));
        memset(d, 0xff, (size_t)n / 2 * sizeof(float));
        sum->visible = d;
        sum->n = n / 2;
    } else if (sum->visible != d || sum->n != n / 2) {
        __builtin_trap(); // one accumulator at a time is all that is emulated
    }
    memcpy(own->words, &a, sizeof(a));
    memcpy(own->words + 2, &b, sizeof(b));
    own->words[4] = keep != 0;
    own->words[5] = (k_u32)n;
    own->words[6] = (k_u32)is_bf16;
    pgd_emulator_together(kc_group_warp);
}

#define KC_GROUP_FN(T, N)                                                           \
    static inline void kc_group_##T##_##N(float *d, k_u64 a, k_u64 b, k_i32 keep) { \
        kc_group(d, a, b, keep, N, sizeof(#T) == sizeof("bf16"));                   \
    }
KC_GROUP_FN(bf16, 64)
KC_GROUP_FN(bf16, 128)
KC_GROUP_FN(bf16, 192)
KC_GROUP_FN(f16, 64)
KC_GROUP_FN(f16, 128)
KC_GROUP_FN(f16, 192)

static inline void kc_group_fence(void) {
    kc_is_fenced[pgd_emulator_at.item] = 1;
}

static inline void kc_group_commit_warp(pgd_emulator_lane *lanes) {
    (void)lanes;
    kc_group_number[pgd_emulator_at.item / PGD_EMULATOR_WARP]++;
}

static inline void kc_group_commit(void) {
    pgd_emulator_together(kc_group_commit_warp);
}

// Lets go of all groups but the last lanes[0].words[0].
static inline void kc_group_wait_warp(pgd_emulator_lane *lanes) {
    const int warp = pgd_emulator_at.item / PGD_EMULATOR_WARP;
    int kept = 0;
    for (int i = 0; i < kc_n_held[warp]; i++) {
        const kc_held h = kc_hold[warp][i];
        if (h.group == kc_group_number[warp] ||
            h.group >= kc_group_number[warp] - (int)lanes[0].words[0]) {
            kc_hold[warp][kept++] = h;
        } else if (kc_hash(kc_hash(0, h.a, 64), h.b, h.n) != h.hash) {
            __builtin_trap(); // an operand was written over while a product may read it
        }
    }
    kc_n_held[warp] = kept;
}

static inline void kc_group_wait(int n) {
    kc_accumulator *sum = &kc_sums[pgd_emulator_at.item];
    pgd_emulator_own()->words[0] = (k_u32)n;
    pgd_emulator_together(kc_group_wait_warp);
    if (kc_n_held[pgd_emulator_at.item / PGD_EMULATOR_WARP] == 0 && sum->visible != NULL) {
        memcpy(sum->visible, sum->is, (size_t)sum->n * sizeof(float));
        sum->visible = NULL;
        kc_is_fenced[pgd_emulator_at.item] = 0;
    }
}

#define KC_ARRIVED(d, n) (void)(d)

// At the end of an item: what is on its way would arrive nowhere, or in another group's memory. A
// warp that only brings may end before the others, of which item 0 is one.
static inline void kc_need_quiet(void) {
    if ((pgd_emulator_at.item == 0 && kc_n_bulks != 0) ||
        kc_sums[pgd_emulator_at.item].visible != NULL) {
        __builtin_trap();
    }
}

#endif
