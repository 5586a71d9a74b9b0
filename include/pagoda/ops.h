// The operations: one args struct and one slot per op, in table order (append only).
//
// Every op sees the whole batch of the step. Every args struct begins {size, rows, batch}: `rows`
// says which live count bounds the leading dimension of its tensors (SHAPE: the tensors' own).
// A tensor's leading dimension is the cap; rows behind the live count are neither read nor need be
// written. kernels/ref defines each op; an op of a family (weight, kv) is filled or composed with
// its family only. Ops are [queue], asynchronous, in order.
//
// Arithmetic: sums in f32 or better, results rounded once to the tensor's dtype. Each output
// element has one order of summation whatever the batch, where support says INVARIANT.
//
// Letters in shapes: T rows of the step, S sequences, R output rows, H hidden size, V vocabulary,
// hq query heads, hkv kv heads, hd head dim, I intermediate size.
#ifndef PAGODA_OPS_H
#define PAGODA_OPS_H

#include <pagoda/backend.h>

#ifdef __cplusplus
extern "C" {
#endif

enum { PGD_ROWS_SHAPE = 0, PGD_ROWS_TOKENS = 1, PGD_ROWS_OUTPUTS = 2 };
enum {
    PGD_ACT_NONE = 0,
    PGD_ACT_SILU = 1,
    PGD_ACT_GELU = 2,
    PGD_ACT_GELU_TANH = 3,
    PGD_ACT_RELU = 4
};
enum { PGD_AUX_NONE = 0, PGD_AUX_ADD = 1, PGD_AUX_MUL = 2 };
enum { PGD_ROPE_HALF = 0, PGD_ROPE_INTERLEAVED = 1 };

#define PGD_ARGS_HEAD \
    uint32_t size;    \
    int32_t rows;     \
    const pgd_batch *batch

// out[t] = W[row id of token t] * scale. Ids come from the batch; -1-s is resolved through last[s].
// An id outside [row_start, row_start + n) gives zeros (a slice of a vocabulary).
//   out  [T, H] f32 | bf16 | f16
typedef struct pgd_embed_args {
    PGD_ARGS_HEAD;
    pgd_weight *w; // [V, H], uses EMBED
    pgd_tensor out;
    float scale; // 0 = 1
    int32_t row_start;
} pgd_embed_args;

// out[r] = x[out_rows[r]], out_rows from the batch.
//   x [T, H]; out [R, H] same dtype
typedef struct pgd_gather_rows_args {
    PGD_ARGS_HEAD;
    pgd_tensor x;
    pgd_tensor out;
} pgd_gather_rows_args;

// out = x / sqrt(mean(x^2) + eps) * w over the last dimension.
//   x, out [rows, H] or [rows, heads, hd], may be the same; w [H] f32
//   source Zhang and Sennrich 2019
typedef struct pgd_rmsnorm_args {
    PGD_ARGS_HEAD;
    pgd_tensor x;
    pgd_tensor w;
    pgd_tensor out;
    float eps;
    int32_t reserved0;
} pgd_rmsnorm_args;

// Turns the first rot_dim dims of q and k by the table's row of the token's position, in place.
//   q [T, hq, hd], k [T, hkv, hd] (k may be absent); table [max_pos, rot_dim / 2, 2] f32 cos, sin
//   HALF: pairs (i, i + rot_dim / 2); INTERLEAVED: pairs (2i, 2i + 1)
//   sections: pairs of each position axis in turn, all zero = one axis
//   source RoFormer (Su et al. 2021)
typedef struct pgd_rope_args {
    PGD_ARGS_HEAD;
    pgd_tensor q;
    pgd_tensor k;
    pgd_tensor table;
    int32_t style; // PGD_ROPE_...
    int32_t rot_dim;
    int32_t sections[4];
} pgd_rope_args;

// y = f(alpha * x W^T + bias), then + aux or * aux. f is act.
//   x [rows, K]; y [rows, N]; bias [N] f32 or absent; aux [rows, N] or absent, may be y
//   act_limit > 0 bounds the activation's input from above
typedef struct pgd_gemm_args {
    PGD_ARGS_HEAD;
    pgd_weight *w; // [N, K], uses GEMM
    pgd_tensor x;
    pgd_tensor y;
    pgd_tensor bias;
    pgd_tensor aux;
    pgd_tensor x_scale; // scales of a quantized x; absent in this version
    pgd_tensor row_map; // rows of x to use; absent in this version
    int32_t act;        // PGD_ACT_...
    int32_t aux_kind;   // PGD_AUX_...
    float alpha;        // 0 = 1
    float act_alpha;
    float act_limit;
    int32_t reserved0;
} pgd_gemm_args;

// Writes this step's keys and values into their cache slots, rounded to the cache's dtype.
//   k [T, hkv, k_dim], v [T, hkv, v_dim], rows may be strided
//   slots from the batch, group `group`: block * block_tokens + offset
//   source PagedAttention (SOSP 2023), section 4
typedef struct pgd_kv_write_args {
    PGD_ARGS_HEAD;
    pgd_kv *kv;
    int32_t layer; // within the group
    int32_t group;
    pgd_tensor k;
    pgd_tensor v;
} pgd_kv_write_args;

// out = softmax(scale * q K^T [softcap, slope, mask]) V over the blocks of each row's sequence.
//   q [T, hq, k_dim]; out [T, hq, v_dim]; head h reads kv head h / (hq / hkv)
//   position p of row i of n rows of a sequence is kv_len - n + i
//   row at position p sees key positions j: j <= p if causal; j > p - window_left if window_left;
//   j < p + window_right if window_right
//   softcap c: c * tanh(s / c), before slope and mask, 0 = off
//   slopes [hq] f32 or absent: s -= slope * (p - j)
//   sinks [hq] f32 or absent: one more logit in each softmax whose weight is dropped
//   lse [T, hq] f32 or absent: log of the softmax's denominator
//   plan: what attn_plan wrote, absent = none
//   Keys are reduced in tiles of 64 positions aligned to position 0, merged left to right.
typedef struct pgd_attn_args {
    PGD_ARGS_HEAD;
    pgd_kv *kv;
    int32_t layer;
    int32_t group;
    pgd_tensor q;
    pgd_tensor out;
    pgd_tensor sinks;
    pgd_tensor slopes;
    pgd_tensor lse;
    pgd_tensor plan;
    float scale;
    float softcap;
    int32_t window_left;
    int32_t window_right;
    int32_t causal;
    int32_t reserved0;
} pgd_attn_args;

#define PGD_ATTN_TILE 64

// Prepares attn once per step and group; same args, q and out unread.
typedef pgd_attn_args pgd_attn_plan_args;

// out = act(x[:, :I]) * x[:, I:].
//   x [rows, 2 I]; out [rows, I]
//   act_limit > 0: gate = min(gate, limit), up = clamp(up, -limit, limit)
typedef struct pgd_act_mul_args {
    PGD_ARGS_HEAD;
    pgd_tensor x;
    pgd_tensor out;
    int32_t act;
    float act_alpha; // 0 = 1: SILU is x * sigmoid(alpha * x)
    float act_limit; // 0 = off
    int32_t reserved0;
} pgd_act_mul_args;

// out = a + b, same shapes; out may be a or b.
typedef struct pgd_add_args {
    PGD_ARGS_HEAD;
    pgd_tensor a;
    pgd_tensor b;
    pgd_tensor out;
} pgd_add_args;

// out[r] = index of the largest of x[r], lowest on a tie; NaN never wins unless all are NaN (then
// -1). Also written: last[out_slot[r]] and sampled[r] of the batch.
//   x [R, V] f32; out [R] i32
typedef struct pgd_argmax_args {
    PGD_ARGS_HEAD;
    pgd_tensor x;
    pgd_tensor out;
} pgd_argmax_args;

// Draws ids[r] from logits[r] under sampling[r] of the batch; writes last and sampled like argmax.
// Exponential race over Philox4x32-10 (Salmon et al. 2011): key = seed (low, high word), counter
// words = (counter low, counter high, id / 4, 0), word id % 4 of the answer; kernels/ref/sample.c
// defines the numbers to the bit. A row of NaN gives -1.
//   logits [R, V] f32, may be changed; ids [R] i32
//   logprobs [R, 1 + n] f32, top_ids [R, 1 + n] i32, ranks [R] i32: of rows with LOGPROBS, from the
//     logits before any step: column 0 is the token, columns 1 to n_logprobs the best, falling,
//     lowest id first on a tie; ranks counts the tokens that are at least as probable as it.
//     log p(i) = (l(i) - m) - log(sum of exp(l(j) - m)), m the largest; the rest stays unwritten.
//   state [rows, V] i32: bit 30 = in the prompt, bits 0 to 29 = times in the output. A row with a
//     state_row reads its penalties from there and, unless GIVEN, counts its token behind the draw.
//     repetition r, of tokens in prompt or output: l > 0 ? l / r : l * r; then l -= frequency *
//     count and l -= presence where count > 0. Rows of one state_row do not occur in one step.
//   Absent tensors: rows that need them make the call UNSUPPORTED.
typedef struct pgd_sample_args {
    PGD_ARGS_HEAD;
    pgd_tensor logits;
    pgd_tensor ids;
    pgd_tensor logprobs;
    pgd_tensor top_ids;
    pgd_tensor state;
    pgd_tensor ranks;
} pgd_sample_args;

// residual += x; out = rmsnorm(residual) * w.
//   x, residual, out [rows, H]; w [H] f32
typedef struct pgd_add_rmsnorm_args {
    PGD_ARGS_HEAD;
    pgd_tensor x;
    pgd_tensor residual;
    pgd_tensor w;
    pgd_tensor out;
    float eps;
    int32_t reserved0;
} pgd_add_rmsnorm_args;

// normed = rmsnorm(x) (if norm_w); qkv = normed W^T + bias; q, k rmsnorm per head (if q_norm,
// k_norm); rope on q, k; k, v into the cache.
//   x, normed [T, H]; qkv [T, (hq + 2 hkv) hd]; q, k, v are views of qkv
//   norm_w [H], bias [N], q_norm [hd], k_norm [hd] f32 or absent
//   After it only q is promised; normed, k, v may be left unwritten.
typedef struct pgd_qkv_rope_write_args {
    PGD_ARGS_HEAD;
    pgd_weight *w; // q | k | v rows, uses GEMM
    pgd_kv *kv;
    int32_t layer;
    int32_t group;
    pgd_tensor x;
    pgd_tensor norm_w;
    pgd_tensor normed;
    pgd_tensor bias;
    pgd_tensor qkv;
    pgd_tensor q;
    pgd_tensor k;
    pgd_tensor v;
    pgd_tensor table;
    pgd_tensor q_norm;
    pgd_tensor k_norm;
    float eps;
    int32_t style;
    int32_t rot_dim;
    int32_t reserved0;
    int32_t sections[4];
} pgd_qkv_rope_write_args;

// normed = rmsnorm(x) (if norm_w); tmp = normed W^T + bias; out = act(tmp[:, :I]) * tmp[:, I:].
//   x, normed [T, H]; tmp [T, 2 I]; out [T, I]; normed and tmp may be left unwritten
typedef struct pgd_gate_up_args {
    PGD_ARGS_HEAD;
    pgd_weight *w; // gate | up rows, uses GATE_UP
    pgd_tensor x;
    pgd_tensor norm_w;
    pgd_tensor normed;
    pgd_tensor x_scale; // absent in this version
    pgd_tensor bias;
    pgd_tensor tmp;
    pgd_tensor out;
    float eps;
    int32_t act;
    float act_alpha;
    float act_limit;
} pgd_gate_up_args;

// gemm whose aux is the residual: same args, aux_kind ADD.
typedef pgd_gemm_args pgd_gemm_add_args;

// normed = rmsnorm(x) (if norm_w); logits = normed W^T; then sample.
//   x, normed [R, H]; logits [R, V] f32, promised only with keep_logits (before any step of
//   sampling) or when a row asks for more than the largest logit
typedef struct pgd_head_sample_args {
    PGD_ARGS_HEAD;
    pgd_weight *w; // [V, H], uses GEMM
    pgd_tensor x;
    pgd_tensor norm_w;
    pgd_tensor normed;
    pgd_tensor logits;
    pgd_tensor ids;
    pgd_tensor logprobs; // and the next three as in sample
    pgd_tensor top_ids;
    pgd_tensor state;
    pgd_tensor ranks;
    float eps;
    int32_t keep_logits;
} pgd_head_sample_args;

// Every op in table order: X(name, family), family NONE, WEIGHT (has args.w), KV (has args.kv) or
// WEIGHT_KV (has both).
#define PGD_OP_LIST(X)           \
    X(embed, WEIGHT)             \
    X(gather_rows, NONE)         \
    X(rmsnorm, NONE)             \
    X(rope, NONE)                \
    X(gemm, WEIGHT)              \
    X(kv_write, KV)              \
    X(attn_plan, KV)             \
    X(attn, KV)                  \
    X(act_mul, NONE)             \
    X(add, NONE)                 \
    X(argmax, NONE)              \
    X(sample, NONE)              \
    X(add_rmsnorm, NONE)         \
    X(qkv_rope_write, WEIGHT_KV) \
    X(gate_up, WEIGHT)           \
    X(gemm_add, WEIGHT)          \
    X(head_sample, WEIGHT)

enum { PGD_FAMILY_NONE = 0, PGD_FAMILY_WEIGHT = 1, PGD_FAMILY_KV = 2, PGD_FAMILY_WEIGHT_KV = 3 };

enum {
#define PGD_OP_ENUM(name, family) PGD_OP_##name,
    PGD_OP_LIST(PGD_OP_ENUM)
#undef PGD_OP_ENUM
        PGD_OP_COUNT
};

// Which tensors each op reads (IN), writes (OUT), both (IO) or may use as room (TMP):
// PGD_OP_IO(X) gives X(op, field, mode). Beside these, argmax, sample and head_sample write the
// batch's last and sampled; embed reads last.
#define PGD_OP_IO(X)               \
    X(embed, out, OUT)             \
    X(gather_rows, x, IN)          \
    X(gather_rows, out, OUT)       \
    X(rmsnorm, x, IN)              \
    X(rmsnorm, w, IN)              \
    X(rmsnorm, out, OUT)           \
    X(rope, q, IO)                 \
    X(rope, k, IO)                 \
    X(rope, table, IN)             \
    X(gemm, x, IN)                 \
    X(gemm, bias, IN)              \
    X(gemm, aux, IN)               \
    X(gemm, x_scale, IN)           \
    X(gemm, row_map, IN)           \
    X(gemm, y, OUT)                \
    X(kv_write, k, IN)             \
    X(kv_write, v, IN)             \
    X(attn_plan, plan, OUT)        \
    X(attn, q, IN)                 \
    X(attn, sinks, IN)             \
    X(attn, slopes, IN)            \
    X(attn, plan, IN)              \
    X(attn, out, OUT)              \
    X(attn, lse, OUT)              \
    X(act_mul, x, IN)              \
    X(act_mul, out, OUT)           \
    X(add, a, IN)                  \
    X(add, b, IN)                  \
    X(add, out, OUT)               \
    X(argmax, x, IN)               \
    X(argmax, out, OUT)            \
    X(sample, logits, IO)          \
    X(sample, ids, OUT)            \
    X(sample, logprobs, OUT)       \
    X(sample, top_ids, OUT)        \
    X(sample, state, IO)           \
    X(sample, ranks, OUT)          \
    X(add_rmsnorm, x, IN)          \
    X(add_rmsnorm, residual, IO)   \
    X(add_rmsnorm, w, IN)          \
    X(add_rmsnorm, out, OUT)       \
    X(qkv_rope_write, x, IN)       \
    X(qkv_rope_write, norm_w, IN)  \
    X(qkv_rope_write, normed, TMP) \
    X(qkv_rope_write, bias, IN)    \
    X(qkv_rope_write, qkv, TMP)    \
    X(qkv_rope_write, q, OUT)      \
    X(qkv_rope_write, k, TMP)      \
    X(qkv_rope_write, v, TMP)      \
    X(qkv_rope_write, table, IN)   \
    X(qkv_rope_write, q_norm, IN)  \
    X(qkv_rope_write, k_norm, IN)  \
    X(gate_up, x, IN)              \
    X(gate_up, norm_w, IN)         \
    X(gate_up, normed, TMP)        \
    X(gate_up, x_scale, IN)        \
    X(gate_up, bias, IN)           \
    X(gate_up, tmp, TMP)           \
    X(gate_up, out, OUT)           \
    X(gemm_add, x, IN)             \
    X(gemm_add, bias, IN)          \
    X(gemm_add, aux, IN)           \
    X(gemm_add, x_scale, IN)       \
    X(gemm_add, row_map, IN)       \
    X(gemm_add, y, OUT)            \
    X(head_sample, x, IN)          \
    X(head_sample, norm_w, IN)     \
    X(head_sample, normed, TMP)    \
    X(head_sample, logits, OUT)    \
    X(head_sample, ids, OUT)       \
    X(head_sample, logprobs, OUT)  \
    X(head_sample, top_ids, OUT)   \
    X(head_sample, state, IO)      \
    X(head_sample, ranks, OUT)

// The table of ops.
struct pgd_ops {
    uint32_t size;
    uint32_t reserved0;
#define PGD_OP_SLOT(name, family) pgd_status (*name)(const pgd_exec *x, const pgd_##name##_args *a);
    PGD_OP_LIST(PGD_OP_SLOT)
#undef PGD_OP_SLOT
};

#ifdef __cplusplus
}
#endif
#endif
