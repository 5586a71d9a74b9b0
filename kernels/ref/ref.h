// The reference kernels: each op of include/pagoda/ops.h in plain C with double accumulation.
//
// They are the definition, the oracle of every op test and the host's fallback. They take the very
// arguments a backend takes, with two differences: every tensor is host memory (buffer NULL), and
// handles are the structs below. batch->mem is NULL, batch->mirror is the whole block.
// Single-threaded, no allocation except where a function says so. Any op may be called with
// x NULL (then an error has a code and no sentence).
#ifndef PGD_KERNELS_REF_H
#define PGD_KERNELS_REF_H

#include <pagoda/ops.h>
#include <pagoda/plugin.h>

#ifdef __cplusplus
extern "C" {
#endif

// A weight as the reference ops read it: one row-major matrix, or several one under the other.
typedef struct pgd_ref_weight pgd_ref_weight;
struct pgd_ref_weight {
    int32_t dtype;     // F32, BF16, F16; only with PGD_SCHEME_PLAIN
    int32_t act_dtype; // x is rounded to it before the product, 0 = not rounded
    int64_t n;         // rows
    int64_t k;         // columns
    const void *rows;  // [n, k] elements or [n, k / elements] blocks; NULL with PARTS
    int32_t scheme;    // PGD_SCHEME_...
    uint32_t n_parts;
    const float *scales;         // [n], only with INT8
    const pgd_ref_weight *parts; // [n_parts], only with PARTS: none of PARTS, k as here
};

// Bytes of k columns stored by a scheme (a plain one: elements of dtype; INT8: without its scale);
// 0 if k is no whole number of blocks or the scheme has no rows of its own.
uint64_t pgd_ref_row_bytes(int32_t scheme, int32_t dtype, int64_t k);

// Bytes that join writes: all parts' rows one under the other; behind the rows of an INT8 part (of
// all parts when the desc is INT8) padding to 4 bytes and their f32 scales.
//   fails  INVALID for sizes that contradict each other, UNSUPPORTED for what join does not take
pgd_status pgd_ref_weight_bytes(const pgd_weight_desc *desc, uint64_t *out_bytes) PGD_MUST_USE;

// Joins the parts of desc (sources by ptr) into dst, which holds pgd_ref_weight_bytes.
//   fails  INVALID if a slice does not lie in its matrix, starts within a block, or n, k do not
//          match the parts; UNSUPPORTED for an unknown scheme or a source that is not a pointer
pgd_status pgd_ref_weight_join(const pgd_weight_desc *desc, void *dst) PGD_MUST_USE;

// The weight over bytes that join has written (or will write). parts: room for desc->n_parts, used
// with PGD_SCHEME_PARTS only; it and dst live as long as the weight.
pgd_status pgd_ref_weight_view(const pgd_weight_desc *desc, const void *dst, pgd_ref_weight *parts,
                               pgd_ref_weight *out) PGD_MUST_USE;

// Elements [k0, k0 + n) of a row as doubles; k0 is a multiple of 256.
void pgd_ref_weight_read(const pgd_ref_weight *w, int64_t row, int64_t k0, int64_t n, double *out);

// Rows of blocks (PGD_SCHEME_LIST) to floats and back; n: elements, a multiple of the block's.
void pgd_ref_dequantize(int32_t scheme, const void *blocks, int64_t n, float *out);
void pgd_ref_quantize(int32_t scheme, const float *x, int64_t n, void *blocks);
// One row for PGD_SCHEME_INT8 (or a head of an int8 cache): gives its scale, max|x| / 127.
float pgd_ref_quantize_int8(const float *x, int64_t n, int8_t *out);
// Scale and minimum (6 bits each) of sub-block i of a q4_k or q5_k block from its 12 bytes.
void pgd_ref_block_scales(const unsigned char *bytes, int i, int *out_scale, int *out_min);

// A cache as the reference ops read it. Layout, one block after the other:
//   [block][layer][k: block_tokens, heads, k_dim | v: block_tokens, heads, v_dim]
// and, with scales, f32 [block_tokens, heads] behind k and behind v (at any address).
typedef struct pgd_ref_kv {
    pgd_kv_desc desc;
    int32_t n_blocks;
    int32_t reserved0;
    unsigned char *mem;
} pgd_ref_kv;

// 1 when the dtypes are known and go together with the scale mode.
int pgd_ref_kv_is_known(const pgd_kv_desc *desc);

// Bytes of one block id, all layers.
uint64_t pgd_ref_kv_block_bytes(const pgd_kv_desc *desc);

// Address of the k (which 0) or v (which 1) row [heads, dim] of a slot (block * block_tokens + i).
unsigned char *pgd_ref_kv_row(const pgd_ref_kv *kv, int32_t layer, int32_t which, int64_t slot);

// Address of the f32 [heads] scales of that row; only with PGD_KV_SCALE_TOKEN_HEAD, not aligned.
unsigned char *pgd_ref_kv_scales(const pgd_ref_kv *kv, int32_t layer, int32_t which, int64_t slot);

// One element as double, and rounded (nearest even) from double to the dtype.
double pgd_ref_load(int32_t dtype, const void *base, int64_t i);
void pgd_ref_store(int32_t dtype, void *base, int64_t i, double value);

// Live rows of an op: shape[0] of its first tensor, or the batch's count.
int64_t pgd_ref_rows(const pgd_batch *batch, int32_t rows, int64_t shape0);

// Philox4x32-10: 4 words from a 128-bit counter and a 64-bit key (Salmon et al. 2011).
void pgd_ref_philox(const uint32_t counter[4], const uint32_t key[2], uint32_t out[4]);

#define PGD_REF_DECLARE(name, family) \
    pgd_status pgd_ref_##name(const pgd_exec *x, const pgd_##name##_args *a) PGD_MUST_USE;
PGD_OP_LIST(PGD_REF_DECLARE)
#undef PGD_REF_DECLARE

// The last parts of fused ops as args of their own.
pgd_act_mul_args pgd_ref_act_mul_of(const pgd_gate_up_args *a);
pgd_sample_args pgd_ref_sample_of(const pgd_head_sample_args *a);

// All of them as a table.
const pgd_ops *pgd_ref_ops(void);

#ifdef __cplusplus
}
#endif
#endif
