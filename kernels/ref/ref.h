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

// A weight as the reference ops read it: one row-major matrix.
typedef struct pgd_ref_weight {
    int32_t dtype;     // F32, BF16, F16
    int32_t act_dtype; // x is rounded to it before the product, 0 = not rounded
    int64_t n;         // rows
    int64_t k;         // columns
    const void *rows;  // [n, k]
} pgd_ref_weight;

// Joins the parts of desc (sources by ptr) into dst [n, k], dtype of desc.
//   fails  INVALID if a slice does not lie in its matrix or n, k do not match the parts;
//          UNSUPPORTED for a scheme other than PLAIN or a source that is not a pointer
pgd_status pgd_ref_weight_join(const pgd_weight_desc *desc, void *dst) PGD_MUST_USE;

// A cache as the reference ops read it. Layout, one block after the other:
//   [block][layer][k: block_tokens, heads, k_dim | v: block_tokens, heads, v_dim]
typedef struct pgd_ref_kv {
    pgd_kv_desc desc;
    int32_t n_blocks;
    int32_t reserved0;
    unsigned char *mem;
} pgd_ref_kv;

// Bytes of one block id, all layers.
uint64_t pgd_ref_kv_block_bytes(const pgd_kv_desc *desc);

// Address of the k (which 0) or v (which 1) row [heads, dim] of a slot (block * block_tokens + i).
unsigned char *pgd_ref_kv_row(const pgd_ref_kv *kv, int32_t layer, int32_t which, int64_t slot);

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

// All of them as a table.
const pgd_ops *pgd_ref_ops(void);

#ifdef __cplusplus
}
#endif
#endif
