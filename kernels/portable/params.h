// Parameters of the kernels: the same structs on the device and on the host that fills them.
//
// Plain numbers, 8-byte members first, no padding left to the compiler. Offsets (`at`, names that
// end in _at) are bytes from the start of a memory; strides are elements. Dtype numbers are those
// of include/pagoda/types.h.
#ifndef PGD_KERNELS_PORTABLE_PARAMS_H
#define PGD_KERNELS_PORTABLE_PARAMS_H

#ifdef PGD_PORTABLE_HOST
#include <stdint.h>
typedef int32_t k_i32;
typedef uint32_t k_u32;
typedef int64_t k_i64;
typedef uint64_t k_u64;
#endif

#define K_WG        64  // items of a group
#define K_WG_SAMPLE 128 // of the kernels that look through a row of logits
#define K_SPAN      512 // elements of a row that a group of an element-wise kernel takes
#define K_COLUMNS   8   // columns of y in a panel of a packed weight
#define K_ROWS      8   // rows of x that gemm_*_r8 takes at once
#define K_TILE      64  // keys of a tile of attention, PGD_ATTN_TILE
#define K_HEAD_MAX  576 // largest head of attn and of the kernels that turn heads

#define K_F32  1
#define K_BF16 2
#define K_F16  3
#define K_I8   5

// Blocks of a weight: X(name, format, elements, bytes); the format is PGD_SCHEME_name + K_BLOCKS.
#define K_BLOCKS 16
#define K_BLOCK_LIST(X)   \
    X(Q8_0, 17, 32, 34)   \
    X(Q4_0, 18, 32, 18)   \
    X(Q4_1, 19, 32, 20)   \
    X(Q5_0, 20, 32, 22)   \
    X(Q5_1, 21, 32, 24)   \
    X(Q2_K, 22, 256, 84)  \
    X(Q3_K, 23, 256, 110) \
    X(Q4_K, 24, 256, 144) \
    X(Q5_K, 25, 256, 176) \
    X(Q6_K, 26, 256, 210) \
    X(IQ4_NL, 27, 32, 18) \
    X(MXFP4, 28, 32, 17)

enum {
#define K_BLOCK_ENUM(name, number, elements, bytes) K_##name = number,
    K_BLOCK_LIST(K_BLOCK_ENUM)
#undef K_BLOCK_ENUM
};

// Which rows are live: mode 0: n; 1: the step's rows, 2: its outputs, but at most n.
typedef struct k_rows {
    k_i32 mode;
    k_i32 n;
} k_rows;

typedef struct k_view {
    k_i64 at;
    k_i64 s0; // elements from row to row
    k_i64 s1; // from head to head
    k_i32 dtype;
    k_i32 zero;
} k_view;

// Of elements, or of the bytes of blocks.
#define K_LAYOUT_ROWS   0 // [n][k]
#define K_LAYOUT_PANELS 1 // [ceil(n / 8)][k][8]
#define K_LAYOUT_GATED  2 // [ceil(n / 8)][k][4 of the first half, 4 of the second]

typedef struct k_weight {
    k_i64 at;
    k_i64 scales_at; // of K_I8: f32 a row, in the order of the layout
    k_i32 n;
    k_i32 k;
    k_i32 format; // a dtype, or one of K_BLOCK_LIST
    k_i32 layout;
} k_weight;

// Block: layers; layer: K of each head [k_units][tokens][8], then V of each head [tokens][v_dim].
typedef struct k_cache {
    k_i64 at;
    k_i64 block_bytes;
    k_i64 layer_at; // of the layer in a block
    k_i64 v_at;     // of V in a layer
    k_i32 n_blocks;
    k_i32 tokens; // of a block
    k_i32 heads;
    k_i32 k_dim;
    k_i32 v_dim;
    k_i32 k_units; // groups of 8 dims
    k_i32 k_dtype;
    k_i32 v_dtype;
} k_cache;

typedef struct k_embed_params {
    k_view out;
    k_weight w;
    k_i64 ids_at;
    k_i64 last_at;
    k_rows rows;
    k_i32 n_slots;
    k_i32 row_start;
    float scale;
    k_i32 keeps; // 1: a row that is not in w is left as it is, not zeros
} k_embed_params;

typedef struct k_gather_params {
    k_view x;
    k_view out;
    k_i64 from_at;
    k_rows rows;
    k_i32 n;
    k_i32 n_from; // rows of x
} k_gather_params;

typedef struct k_norm_params {
    k_view x;
    k_view residual; // of add_rmsnorm: residual += x comes first
    k_view out;
    k_i64 w_at;
    k_rows rows;
    k_i32 heads;
    k_i32 n;
    float eps;
    k_i32 zero;
} k_norm_params;

typedef struct k_pair_params {
    k_view a;
    k_view b; // of add
    k_view out;
    k_rows rows;
    k_i32 heads;
    k_i32 n;
    k_i32 act; // of act_mul: PGD_ACT_...
    float act_alpha;
    float act_limit;
    k_i32 zero;
} k_pair_params;

// q and k of a step: norm, turn, and k and v into the cache; each part if asked for.
typedef struct k_heads_params {
    k_view q;
    k_view k;
    k_view v;
    k_cache cache;
    k_i64 table_at;
    k_i64 positions_at;
    k_i64 slots_at;
    k_i64 q_norm_at;
    k_i64 k_norm_at;
    k_rows rows;
    k_i32 q_heads;
    k_i32 k_heads;
    k_i32 q_dim;
    k_i32 k_dim;
    k_i32 v_dim;
    k_i32 table_rows;
    k_i32 cap_tokens;
    k_i32 rot_dim; // 0 = not turned
    k_i32 style;   // PGD_ROPE_...
    k_i32 sections[4];
    k_i32 has_norms; // bit 0: q, bit 1: k
    k_i32 writes;    // 1: k and v go into the cache
    float eps;
    k_i32 zero[2];
} k_heads_params;

typedef struct k_gemm_params {
    k_weight w;
    k_view x; // f32
    k_view y;
    k_view aux;
    k_i64 bias_at;
    k_rows rows;
    k_i32 has_bias;
    k_i32 aux_kind; // PGD_AUX_...
    k_i32 act;
    float alpha;
    float act_alpha;
    float act_limit;
} k_gemm_params;

typedef struct k_round_params {
    k_view x;
    k_view out; // f32
    k_rows rows;
    k_i32 n;
    k_i32 dtype; // x is rounded to it, 0 = not rounded
} k_round_params;

typedef struct k_attn_params {
    k_view q;
    k_view out;
    k_cache cache;
    k_i64 sinks_at;
    k_i64 slopes_at;
    k_i64 lse_at;
    k_i64 lse_stride;
    k_i64 q_start_at;
    k_i64 kv_len_at;
    k_i64 seq_slot_at;
    k_i64 table_at;
    k_i64 parts_at; // of attn_part and attn_merge: [rows][heads][n_parts][v_dim + 2] f32
    k_rows rows;
    k_i32 heads;
    k_i32 cap_seqs;
    k_i32 cap_blocks;
    k_i32 n_slots;
    k_i32 has; // bit 0: sinks, 1: slopes, 2: lse
    float scale;
    float softcap;
    k_i32 window_left;
    k_i32 window_right;
    k_i32 causal;
    k_i32 n_parts;
    k_i32 zero;
} k_attn_params;

typedef struct k_argmax_params {
    k_view x;
    k_i64 ids_at;
    k_i64 out_slot_at; // 0 = absent, and the next two
    k_i64 last_at;
    k_i64 sampled_at;
    k_rows rows;
    k_i32 n;
    k_i32 n_slots;
    k_i32 cap_out;
    k_i32 zero;
} k_argmax_params;

// Of sample: rows [first, first + groups) of the step's outputs.
typedef struct k_sample_params {
    k_argmax_params draw;
    k_view work; // a row of f32 for each group: the changed logits
    k_view logprobs;
    k_view top_ids;
    k_view state;
    k_i64 ranks_at;
    k_i64 sampling_at;
    k_i64 mask_at;
    k_i64 bias_at;
    k_i32 sampling_stride;
    k_i32 first;
    k_i32 n_state;   // rows of the state
    k_i32 n_columns; // of logprobs, 0 = absent
} k_sample_params;

// Rows of a stored matrix into a packed weight, or one packed row out as f32.
typedef struct k_pack_params {
    k_weight w;
    k_view rows; // of the matrix; dtype is the weight's (pack; blocks: bytes) or a float (unpack)
    k_i32 first; // row of the weight that rows begin with
    k_i32 n;
} k_pack_params;

// One block of the cache and its tokens in a canonical image.
typedef struct k_image_params {
    k_cache cache;
    k_i64 image_at;
    k_i64 n_tokens; // of the image
    k_i64 first;    // token of the image that the block begins with
    k_i64 layer_bytes;
    k_i32 block;
    k_i32 n;     // tokens of the block in the image
    k_i32 dtype; // of the image
    k_i32 read;  // 1: cache to image
} k_image_params;

#endif
