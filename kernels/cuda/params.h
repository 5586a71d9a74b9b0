// Parameters of the tensor-core kernels: those of the portable kernel of the same op, and what the
// faster one wants to know beside them. The same structs on the device and on the host.
#ifndef PGD_KERNELS_CUDA_PARAMS_H
#define PGD_KERNELS_CUDA_PARAMS_H

#include "portable/params.h"

#define KC_STEP    64  // k of a stage of gemm_large; x is padded to it with zeros
#define KC_LARGE   128 // columns of a group of gemm_large, packed: panels * 8
#define KC_SMALL   256 // of gemm_small: 64 for each of 4 warps
#define KC_CHUNK   256 // keys of a group of attn_decode: a tile of 64 for each of 4 warps
#define KC_HEADS   16  // most query heads a group of attn_decode takes
#define KC_PREFILL 64  // rows (token, head) of a group of attn_prefill
#define KC_NORM    256 // items of norm: each takes 8 neighbours of every 2048
#define KC_DRAW    512 // items of draw: each takes 4 neighbours of every 2048

// What gemm_small does with the columns of a group behind their sums.
#define KC_TAIL_STORE 0 // y
#define KC_TAIL_HEADS 1 // qkv: norms, rope, q into y, k and v into the cache
#define KC_TAIL_BEST  2 // logits: y, and the best column of each row

// Dynamic shared memory: three stages of gemm_large, [16 panels][KC_STEP][8] of the weight and
// [2][R rows][32] (each half 64 bytes apart more) of x; two stages of attn_prefill, K in units of 8
// dims with 32 bytes behind each, V in rows with 16 bytes behind each.
#define KC_STAGES         3
#define KC_X_HALF(R)      ((R)*64 + 64)
#define KC_LARGE_STAGE(R) (KC_LARGE * KC_STEP * 2 + 2 * KC_X_HALF(R))
#define KC_LARGE_BYTES(R) (KC_STAGES * KC_LARGE_STAGE(R))
#define KC_K_UNIT         (K_TILE * 16 + 32)
#define KC_V_ROW(D)       ((D)*2 + 16)
#define KC_ATTN_STAGE(D)  ((D) / 8 * KC_K_UNIT + K_TILE * KC_V_ROW(D))
#define KC_ATTN_BYTES(D)  (2 * KC_ATTN_STAGE(D))

// gemm_wgmma: four stages of [16 panels][KC_STEP][8] of the weight and [R / 8][KC_STEP / 8][8][8]
// of x, and two gates for each. With 64 rows two groups share a processor, with 192 the
// accumulators want more registers than each of 3 warps on a quarter of it can have.
#define KC_WGMMA_STAGES 4
// Two warpgroups that multiply, and one warp that brings; a whole warpgroup where it is to give
// registers away.
#define KC_WGMMA_ITEMS(R)  ((R) == 192 ? 384 : 288)
#define KC_WGMMA_STAGE(R)  ((KC_LARGE + (R)) * KC_STEP * 2)
#define KC_WGMMA_BYTES(R)  (KC_WGMMA_STAGES * (KC_WGMMA_STAGE(R) + 16))
#define KC_WGMMA_GROUPS(R) ((R) == 64 ? 2 : 1)
#define KC_CORE            128 // bytes of a core matrix

// x as the products read it: 16-bit, zeros up to a multiple of KC_STEP of k.
//
//   [row][k / 32][t: 4][s: 2][h: 2] words, word = x[16 s + 8 h + t] | x[16 s + 8 h + t + 4] << 16
//
// so that a lane finds what it feeds two instructions with in 16 bytes. As gemm_wgmma reads it
// (pack_x_cores), kc_gemm_cores_rows rows:
//
//   [k / 64][row / 8][k / 8 % 8][row % 8][k % 8]
typedef struct kc_pack_x_params {
    k_view x;
    k_i64 out_at;
    k_i64 out_s0; // elements from row to row: k rounded up to KC_STEP; of cores: from step to step
    k_rows rows;
    k_i32 n;     // k
    k_i32 dtype; // K_BF16 | K_F16: of the weight
} kc_pack_x_params;

// A norm of rows, with what comes before and behind it. Addresses of rows may be odd: only what
// begins at multiples of 16 bytes is read 16 bytes at a time.
typedef struct kc_norm_params {
    k_norm_params n; // out.dtype: the norm is rounded to it, written or not
    k_i64 packed_at; // the same as pack_x would write it
    k_i64 packed_s0; // elements from row to row, 0: not packed
    k_i32 dtype;     // of the packed
    k_i32 adds;      // 1: residual += x first, and the norm is the residual's
    k_i32 writes;    // 1: into out
    k_i32 zero;
} kc_norm_params;

// What follows the product of qkv: k_heads_params, as far as columns of y do not say it. The first
// three are addresses: their memories are beyond the eight (gpu_launch, others).
#define KC_HEADS_OTHERS 3
typedef struct kc_heads {
    k_i64 table;  // f32 [table_rows, rot_dim / 2, 2]
    k_i64 q_norm; // f32 [dim]
    k_i64 k_norm;
    k_cache cache;      // memory 5
    k_i64 positions_at; // of the batch
    k_i64 slots_at;
    k_i32 q_heads;
    k_i32 kv_heads;
    k_i32 dim; // of every head: 64 or 128
    k_i32 table_rows;
    k_i32 cap_tokens;
    k_i32 rot_dim;
    k_i32 style;
    k_i32 sections[4];
    k_i32 has_norms; // bit 0: q, bit 1: k
    float eps;
    k_i32 zero;
} kc_heads;

// A draw: change and draw in one.
typedef struct kc_draw_params {
    k_sample_params s;
    k_i64 best_at; // [rows][n_best] u64 of memory 2: the best columns of each row (KC_TAIL_BEST)
    k_i32 n_best;  // 0: the logits are looked through
    k_i32 zero;
} kc_draw_params;

typedef struct kc_gemm_params {
    k_gemm_params g;   // x: what pack_x wrote (at, s0), or with x_plain x itself
    k_i64 parts_at;    // [n_slices][rows.n][panels * 8] f32: gemm_small with n_slices > 1
    k_i64 counters_at; // [groups 0 * groups 2] u32 of gemm_small when it merges
    k_i32 slice;       // k of a slice, kc_gemm_slice
    k_i32 n_slices;    // ceil(k / slice)
    k_i32 panels;      // of the packed weight
    k_i32 merges;      // 1: gemm_small's last group of a column merges; 0: gemm_merge follows
    k_i64 best_at;     // KC_TAIL_BEST: [rows.n][groups 0] u64 of memory 6, kc_best_of
    k_i32 tail;        // KC_TAIL_..., of gemm_small with merges or one slice
    k_i32 x_plain;  // 1: x in the weight's dtype, not packed; gemm_small_*_r8, k a multiple of 64
    k_i32 is_trial; // 1: gemm_wgmma ends with wrong sums where it would end the process
    k_i32 reserved0;
    kc_heads heads; // KC_TAIL_HEADS
} kc_gemm_params;

typedef struct kc_attn_params {
    k_attn_params a;   // parts_at: [rows][heads][n_parts][v_dim + 2] f32, attn_decode only
    k_i64 counters_at; // [rows][groups 1] u32, attn_decode only
    k_i32 few;         // sequences of at most so many rows belong to attn_decode, others to prefill
    k_i32 token_shift; // log2 of the tokens of a block
} kc_attn_params;

#endif
