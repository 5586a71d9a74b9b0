// Attention: whole rows, or split over the tiles of their keys when a step has few rows over many
// keys. Both give the same bits (kernels/portable/attn.k).
#include "gpu.h"
#include "tuned.h"

enum { SPLIT_ROWS = 16 };
#define SPLIT_BYTES (UINT64_C(64) << 20) // most scratch for the tiles

static uint64_t row_bytes(int64_t heads, int64_t v_dim, const pgd_batch *b) {
    return (uint64_t)heads * gpu_ceil(b->cap_kv, K_TILE) * (uint64_t)(v_dim + 2) * sizeof(float);
}

int32_t gpu_attn_rows(const pgd_attn_args *a, const pgd_kv_desc *kv, const pgd_batch *b,
                      int64_t rows, uint64_t most, uint64_t *out_bytes) {
    *out_bytes = 0;
    if (b == NULL || b->cap_kv <= 0 || a->rows == PGD_ROWS_SHAPE) {
        return 0;
    }
    const uint64_t bytes = row_bytes(a->q.shape[1], kv->v_dim, b);
    rows = a->q.shape[0] < rows ? a->q.shape[0] : rows;
    rows = (uint64_t)rows * bytes <= most ? rows : (int64_t)(most / bytes);
    *out_bytes = (uint64_t)rows * bytes;
    return (int32_t)rows;
}

const char *gpu_tuned_attn(const pgd_device *d, const pgd_attn_args *a, const pgd_kv_desc *kv,
                           const pgd_batch *b, uint64_t *out_scratch) {
    const gpu_tuned *t = gpu_of(d)->tuned;
    return t != NULL && t->attention != NULL ? t->attention(a, kv, b, out_scratch) : NULL;
}

uint64_t gpu_attn_scratch(const pgd_device *d, const pgd_attn_args *a, const pgd_kv_desc *kv,
                          const pgd_batch *batch) {
    uint64_t bytes = 0;
    if (gpu_tuned_attn(d, a, kv, batch, &bytes) == NULL) {
        (void)gpu_attn_rows(a, kv, batch, SPLIT_ROWS, SPLIT_BYTES, &bytes);
    }
    return bytes;
}

static void bind_batch(gpu_op *op, k_attn_params *p, int32_t group) {
    const pgd_batch *b = op->batch;
    const uint64_t item = sizeof(int32_t);
    if (b == NULL) {
        (void)gpu_array(op, "sequences", 0, 0);
        return;
    }
    p->cap_seqs = b->cap_seqs;
    p->cap_blocks = b->cap_blocks[group];
    p->n_slots = b->cap_slots;
    p->q_start_at = gpu_array(op, "first rows", b->q_start, item * ((uint64_t)b->cap_seqs + 1));
    p->kv_len_at = gpu_array(op, "lengths", b->kv_len, item * (uint64_t)b->cap_seqs);
    p->seq_slot_at = gpu_array(op, "slots", b->seq_slot, item * (uint64_t)b->cap_seqs);
    p->table_at = gpu_array(op, "block table", b->block_table[group],
                            item * (uint64_t)b->cap_slots * (uint64_t)p->cap_blocks);
}

// The two launches of a step that is split.
static void emit_split(gpu_op *op, const gpu_work *made, k_attn_params *p, int32_t rows,
                       uint64_t bytes) {
    gpu_work part = *made;
    gpu_work merge = *made;
    p->parts_at = gpu_bind_scratch(op, &part, 7, bytes).at;
    merge.launch.memories[7] = part.launch.memories[7];
    part.when = merge.when = GPU_IF_SPLIT;
    part.split_rows = merge.split_rows = rows;
    part.launch.kernel = PGD_PORTABLE_attn_part;
    merge.launch.kernel = PGD_PORTABLE_attn_merge;
    part.launch.groups[0] = (uint32_t)p->n_parts;
    part.launch.groups[2] = (uint32_t)p->heads;
    part.keys_axis = 0;
    gpu_emit(op, &part, p);
    gpu_emit(op, &merge, p);
}

pgd_status gpu_op_attn(const pgd_exec *x, const pgd_attn_args *a) {
    gpu_op op;
    gpu_op_open(&op, x, a->batch, a->rows, a->q.shape[0]);
    gpu_work w = gpu_work_of(&op, PGD_PORTABLE_attn, 1, 1);
    uint64_t bytes = 0;
    uint64_t tuned_bytes = 0;
    const int32_t rows = gpu_attn_rows(a, &a->kv->desc, op.batch, SPLIT_ROWS, SPLIT_BYTES, &bytes);
    k_attn_params p = {.q = gpu_bind(&op, &w, 1, "q", &a->q),
                       .cache = gpu_bind_cache(&op, &w, 2, a->kv, a->layer),
                       .out = gpu_bind(&op, &w, 3, "out", &a->out),
                       .sinks_at = gpu_bind(&op, &w, 4, "sinks", &a->sinks).at,
                       .slopes_at = gpu_bind(&op, &w, 5, "slopes", &a->slopes).at,
                       .rows = gpu_rows(&op),
                       .heads = (int32_t)a->q.shape[1],
                       .has = (a->sinks.rank != 0) | (a->slopes.rank != 0) << 1 |
                              (a->lse.rank != 0) << 2,
                       .scale = a->scale,
                       .softcap = a->softcap,
                       .window_left = a->window_left,
                       .window_right = a->window_right,
                       .causal = a->causal};
    const k_view lse = gpu_bind(&op, &w, 6, "lse", &a->lse);
    p.lse_at = lse.at;
    p.lse_stride = lse.s0;
    bind_batch(&op, &p, a->group);
    if (gpu_tuned_attn(op.d, a, &a->kv->desc, op.batch, &tuned_bytes) != NULL) {
        gpu_of(op.d)->tuned->emit_attention(&op, &w, &p, a);
        return op.code;
    }
    w.launch.groups[0] = (uint32_t)p.heads;
    if (rows > 0 && op.code == PGD_OK) {
        p.n_parts = (int32_t)gpu_ceil(op.batch->cap_kv, K_TILE);
        emit_split(&op, &w, &p, rows, bytes);
        w.when = GPU_IF_WHOLE;
        w.split_rows = rows;
    }
    gpu_emit(&op, &w, &p);
    return op.code;
}

// The plan is made by the host from the batch's mirror when attn is launched.
pgd_status gpu_op_attn_plan(const pgd_exec *x, const pgd_attn_plan_args *a) {
    (void)x;
    (void)a;
    return PGD_OK;
}
