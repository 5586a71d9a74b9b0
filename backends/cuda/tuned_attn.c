// Attention on tensor cores (kernels/cuda/attn.k): a step of few rows over many keys goes to
// attn_decode, any other to attn_prefill. Both give the same bits, so that is a matter of speed.
#include "../gpu/tuned.h"

#include <string.h>

#include "cuda.h"
#include "cuda/kernels.h"

enum { FEW_ROWS = 512, LEAST_BLOCK = 8, MOST_SHARE = KC_PREFILL };
#define FEW_BYTES (UINT64_C(256) << 20) // most scratch for tiles of keys

_Static_assert(sizeof(kc_attn_params) <= GPU_PARAMS_BYTES, "room for the parameters");

static int32_t share_of(const pgd_attn_args *a, const pgd_kv_desc *kv) {
    return (int32_t)(a->q.shape[1] / kv->heads);
}

// Groups of query heads of attn_decode.
static int32_t decode_heads(const pgd_attn_args *a, const pgd_kv_desc *kv) {
    return kv->heads * (int32_t)gpu_ceil(share_of(a, kv), KC_HEADS);
}

static int32_t few_rows(const pgd_attn_args *a, const pgd_kv_desc *kv, const pgd_batch *b,
                        uint64_t *out_bytes) {
    const int64_t counted = GPU_COUNTERS_BYTES / (int64_t)sizeof(uint32_t) / decode_heads(a, kv);
    return gpu_attn_rows(a, kv, b, counted < FEW_ROWS ? counted : FEW_ROWS, FEW_BYTES, out_bytes);
}

static bool is_power_of_two(int32_t n) {
    return n > 0 && (n & (n - 1)) == 0;
}

const char *cuda_tuned_attention(const pgd_attn_args *a, const pgd_kv_desc *kv, const pgd_batch *b,
                                 uint64_t *out_scratch) {
    const bool has_type = kv->k_dtype == PGD_BF16 || kv->k_dtype == PGD_F16;
    const bool has_dim = kv->k_dim == 64 || kv->k_dim == 128;
    *out_scratch = 0;
    if (b == NULL || a->rows != PGD_ROWS_TOKENS || !has_type || !has_dim ||
        kv->v_dtype != kv->k_dtype || kv->v_dim != kv->k_dim || a->q.dtype != kv->k_dtype ||
        kv->heads < 1 || a->q.shape[1] % kv->heads != 0 || share_of(a, kv) > MOST_SHARE ||
        kv->block_tokens < LEAST_BLOCK || !is_power_of_two(kv->block_tokens) ||
        a->slopes.rank != 0) {
        return NULL;
    }
    (void)few_rows(a, kv, b, out_scratch);
    return kv->k_dtype == PGD_BF16 ? "mma_bf16" : "mma_f16";
}

static int32_t kernel_of(const pgd_kv_desc *kv, bool few) {
    static const int32_t kernels[2][2][2] = {
        {{PGD_CUDA_attn_prefill_bf16_d64, PGD_CUDA_attn_decode_bf16_d64},
         {PGD_CUDA_attn_prefill_bf16_d128, PGD_CUDA_attn_decode_bf16_d128}},
        {{PGD_CUDA_attn_prefill_f16_d64, PGD_CUDA_attn_decode_f16_d64},
         {PGD_CUDA_attn_prefill_f16_d128, PGD_CUDA_attn_decode_f16_d128}},
    };
    return PGD_PORTABLE_COUNT + kernels[kv->k_dtype != PGD_BF16][kv->k_dim == 128][few];
}

void cuda_tuned_emit_attention(gpu_op *op, const gpu_work *made, const k_attn_params *plain,
                               const pgd_attn_args *a) {
    const pgd_kv_desc *kv = &a->kv->desc;
    uint64_t bytes = 0;
    const int32_t few = op->batch == NULL ? 0 : few_rows(a, kv, op->batch, &bytes);
    gpu_work work = *made;
    kc_attn_params p = {.a = *plain};
    while (1 << p.token_shift < kv->block_tokens) {
        p.token_shift++;
    }
    work.launch.memories[5] = op->x->queue->counters;
    work.split_rows = few;
    if (few > 0) {
        gpu_work decode = work;
        p.few = INT32_MAX; // every sequence of such a step
        p.a.n_parts = (int32_t)gpu_ceil(op->batch->cap_kv, K_TILE);
        p.a.parts_at = gpu_bind_scratch(op, &decode, 7, bytes).at;
        decode.when = GPU_IF_SPLIT;
        decode.launch.kernel = kernel_of(kv, true);
        decode.launch.groups[1] = (uint32_t)decode_heads(a, kv);
        decode.rows_axis = 2;
        decode.keys_axis = 0;
        decode.keys_unit = KC_CHUNK;
        gpu_emit(op, &decode, &p);
        work.when = GPU_IF_WHOLE;
    }
    p.few = 0; // none
    p.a.n_parts = 0;
    p.a.parts_at = 0;
    work.launch.kernel = kernel_of(kv, false);
    work.launch.groups[1] = (uint32_t)kv->heads;
    work.rows_axis = 0;
    work.rows_unit = KC_PREFILL / share_of(a, kv);
    gpu_emit(op, &work, &p);
}
