// attn: softmax(scale * q K^T) V over the blocks of each row's sequence (FlashAttention's tiling on
// the pages of PagedAttention).
//
// A work item is (block of rows of one sequence, kv head): all query heads of the group pass over
// each tile of 64 positions while it is at hand, so K and V are read once.
//
//   for each tile, left to right:
//     K tile [2][dim][32], V tile [dim/32][64][32]   from the cache, as f32
//     s = q K^T                                      gemm kernel, all rows and heads of the item
//     p, max, sum = softmax of the tile alone        per row and head, positions it sees
//     o_t = p V                                      gemm kernel over those positions
//     (o, max, sum) = merge of both                  per row and head
//   out = o / sum
//
// A row's bits depend on the tiles it sees and nothing else: decode, prefill and chunks are equal.
#include <math.h>
#include <string.h>

#include "cpu.h"

typedef struct attn {
    const pgd_attn_args *a;
    const pgd_cpu_kernels *k;
    const pgd_kv *kv;
    const cpu_batch *b;
    cpu_view q, out, lse;
    const float *sinks;  // NULL = none
    const float *slopes; // NULL = none
    pgd_cpu_score how;
    int64_t group;   // query heads of a kv head
    int64_t heads;   // query heads of an item
    int64_t rows;    // rows of an item
    int64_t n_parts; // items of a kv head and row block: group / heads, rounded up
    int64_t n_seqs;
    int64_t n_single; // the first sequences have exactly one row
    cpu_attn_room room;
} attn;

// What one item works on. Query row i * heads + h is row `first + i`, head `head + h`.
typedef struct item {
    int64_t seq;
    int64_t first; // row of the step
    int64_t rows;
    int64_t position; // of the first row
    int64_t kv_len;
    int64_t kv_head;
    int64_t head;
    int64_t heads;
    const int32_t *blocks;
    float *k, *v, *q, *s, *o, *o_t;
    float *max, *sum, *max_t, *sum_t;
} item;

// Positions seen by the row at `position`: [*from, *to).
static void visible(const pgd_attn_args *a, int64_t position, int64_t kv_len, int64_t *from,
                    int64_t *to) {
    *from = 0;
    *to = kv_len;
    if (a->causal != 0) {
        *to = cpu_min(*to, position + 1);
    }
    if (a->window_left > 0) {
        *from = cpu_max(*from, position - a->window_left + 1);
    }
    if (a->window_right > 0) {
        *to = cpu_min(*to, position + a->window_right);
    }
    *to = cpu_max(*to, 0);
    *from = cpu_min(*from, *to);
}

// ---- tiles from the cache ----------------------------------------------------------------------

static void load_k(const attn *t, const item *it, int64_t tile, int64_t lo, int64_t hi) {
    const pgd_kv_desc *d = &t->kv->desc;
    const int64_t element = pgd_dtype_bytes(d->k_dtype);
    for (int64_t j = lo; j < hi;) {
        const int64_t at = (tile + j) % d->block_tokens;
        const int64_t n =
            cpu_min(cpu_min(d->block_tokens - at, hi - j), PGD_CPU_PANEL - j % PGD_CPU_PANEL);
        const unsigned char *from =
            cpu_kv_k(t->kv, t->a->layer, it->kv_head, it->blocks[(tile + j) / d->block_tokens]) +
            at * element;
        float *to = it->k + j / PGD_CPU_PANEL * PGD_CPU_PANEL * d->k_dim + j % PGD_CPU_PANEL;
        if (d->k_dtype == PGD_F32) {
            t->k->f32_tile_k(from, d->block_tokens, n, d->k_dim, to);
        } else if (d->k_dtype == PGD_BF16) {
            t->k->bf16_tile_k(from, d->block_tokens, n, d->k_dim, to);
        } else {
            t->k->f16_tile_k(from, d->block_tokens, n, d->k_dim, to);
        }
        j += n;
    }
}

static void load_v(const attn *t, const item *it, int64_t tile, int64_t lo, int64_t hi) {
    const pgd_kv_desc *d = &t->kv->desc;
    const int64_t element = pgd_dtype_bytes(d->v_dtype);
    for (int64_t j = lo; j < hi;) {
        const int64_t at = (tile + j) % d->block_tokens;
        const int64_t n = cpu_min(d->block_tokens - at, hi - j);
        const unsigned char *from =
            cpu_kv_v(t->kv, t->a->layer, it->kv_head, it->blocks[(tile + j) / d->block_tokens]) +
            at * d->v_dim * element;
        float *to = it->v + j * PGD_CPU_PANEL;
        if (d->v_dtype == PGD_F32) {
            t->k->f32_tile_v(from, n, d->v_dim, to);
        } else if (d->v_dtype == PGD_BF16) {
            t->k->bf16_tile_v(from, n, d->v_dim, to);
        } else {
            t->k->f16_tile_v(from, n, d->v_dim, to);
        }
        j += n;
    }
}

// ---- one item ----------------------------------------------------------------------------------

// Positions of a tile that row i of an item sees, counted from the tile's start.
static void tile_span(const attn *t, const item *it, int64_t i, int64_t tile, int64_t *lo,
                      int64_t *hi) {
    visible(t->a, it->position + i, it->kv_len, lo, hi);
    *lo = cpu_min(cpu_max(*lo - tile, 0), PGD_CPU_TILE);
    *hi = cpu_min(cpu_max(*hi - tile, 0), PGD_CPU_TILE);
    *lo = cpu_min(*lo, *hi);
}

static void load_q(const attn *t, const item *it) {
    const int64_t dim = t->kv->desc.k_dim;
    for (int64_t i = 0; i < it->rows; i++) {
        for (int64_t h = 0; h < it->heads; h++) {
            memcpy(it->q + (i * it->heads + h) * dim,
                   t->q.p + (it->first + i) * t->q.s0 + (it->head + h) * t->q.s1,
                   (size_t)dim * sizeof(float));
        }
    }
}

static void softmax_row(const attn *t, const item *it, int64_t i, int64_t tile, int64_t lo,
                        int64_t hi) {
    const float distance = (float)(it->position + i - tile);
    for (int64_t h = 0; h < it->heads; h++) {
        const int64_t r = i * it->heads + h;
        t->k->f32_softmax_64(it->s + r * PGD_CPU_TILE, lo, hi, &t->how, distance,
                             t->slopes == NULL ? 0.0f : t->slopes[it->head + h], &it->max_t[r],
                             &it->sum_t[r]);
    }
}

// o_t of query rows [r0, r0 + m), which all see positions [lo, hi) of the tile, merged into o.
static void values(const attn *t, const item *it, int64_t r0, int64_t m, int64_t lo, int64_t hi) {
    const int64_t v_dim = t->kv->desc.v_dim;
    const int64_t panels = (v_dim + PGD_CPU_PANEL - 1) / PGD_CPU_PANEL;
    const int64_t ld = panels * PGD_CPU_PANEL;
    for (int64_t p = 0; p < panels; p++) {
        const float *v = it->v + (p * PGD_CPU_TILE + lo) * PGD_CPU_PANEL;
        t->k->f32_gemm_12x32(it->s + r0 * PGD_CPU_TILE + lo, PGD_CPU_TILE, m, v, hi - lo,
                             it->o_t + r0 * ld + p * PGD_CPU_PANEL, ld, 0);
    }
    for (int64_t r = r0; r < r0 + m; r++) {
        t->k->f32_merge(it->o + r * ld, &it->max[r], &it->sum[r], it->o_t + r * ld, it->max_t[r],
                        it->sum_t[r], v_dim);
    }
}

static void attend_tile(const attn *t, const item *it, int64_t tile, int64_t from, int64_t to) {
    const int64_t dim = t->kv->desc.k_dim;
    const int64_t m = it->rows * it->heads;
    const int64_t lo = cpu_max(from - tile, 0);
    const int64_t hi = cpu_min(to - tile, PGD_CPU_TILE);
    load_k(t, it, tile, lo, hi);
    load_v(t, it, tile, lo, hi);
    for (int64_t half = 0; half < 2; half++) {
        t->k->f32_gemm_12x32(it->q, dim, m, it->k + half * PGD_CPU_PANEL * dim, dim,
                             it->s + half * PGD_CPU_PANEL, PGD_CPU_TILE, 0);
    }
    for (int64_t i = 0; i < it->rows;) {
        int64_t a = 0;
        int64_t b = 0;
        int64_t n = 0;
        tile_span(t, it, i, tile, &a, &b);
        for (; i + n < it->rows; n++) {
            int64_t a_n = 0;
            int64_t b_n = 0;
            tile_span(t, it, i + n, tile, &a_n, &b_n);
            if (a_n != a || b_n != b) {
                break;
            }
            if (a < b) {
                softmax_row(t, it, i + n, tile, a, b);
            }
        }
        if (a < b) {
            values(t, it, i * it->heads, n * it->heads, a, b);
        }
        i += n;
    }
}

// A sink is one more logit whose weight is dropped.
static void finish_row(const attn *t, const item *it, int64_t i, int64_t h) {
    const int64_t v_dim = t->kv->desc.v_dim;
    const int64_t ld = (v_dim + PGD_CPU_PANEL - 1) / PGD_CPU_PANEL * PGD_CPU_PANEL;
    const int64_t r = i * it->heads + h;
    float *o = it->o + r * ld;
    float *out = t->out.p + (it->first + i) * t->out.s0 + (it->head + h) * t->out.s1;
    if (t->sinks != NULL) {
        memset(it->o_t, 0, (size_t)v_dim * sizeof(float));
        t->k->f32_merge(o, &it->max[r], &it->sum[r], it->o_t, t->sinks[it->head + h], 1.0f, v_dim);
    }
    if (it->sum[r] == 0.0f) {
        memset(out, 0, (size_t)v_dim * sizeof(float));
    } else {
        for (int64_t d = 0; d < v_dim; d++) {
            out[d] = o[d] / it->sum[r];
        }
    }
    if (t->lse.p != NULL) {
        t->lse.p[(it->first + i) * t->lse.s0 + it->head + h] =
            it->sum[r] == 0.0f ? -INFINITY : it->max[r] + logf(it->sum[r]);
    }
}

static void attend(const attn *t, const item *it) {
    const int64_t v_dim = t->kv->desc.v_dim;
    const int64_t ld = (v_dim + PGD_CPU_PANEL - 1) / PGD_CPU_PANEL * PGD_CPU_PANEL;
    const int64_t m = it->rows * it->heads;
    int64_t from = INT64_MAX;
    int64_t to = 0;
    for (int64_t i = 0; i < it->rows; i++) {
        int64_t a = 0;
        int64_t b = 0;
        visible(t->a, it->position + i, it->kv_len, &a, &b);
        if (a < b) {
            from = cpu_min(from, a);
            to = cpu_max(to, b);
        }
    }
    memset(it->o, 0, (size_t)(m * ld) * sizeof(float));
    for (int64_t r = 0; r < m; r++) {
        it->max[r] = -INFINITY;
        it->sum[r] = 0.0f;
    }
    if (from < to) {
        load_q(t, it);
        for (int64_t tile = from / PGD_CPU_TILE * PGD_CPU_TILE; tile < to; tile += PGD_CPU_TILE) {
            attend_tile(t, it, tile, from, to);
        }
    }
    for (int64_t i = 0; i < it->rows; i++) {
        for (int64_t h = 0; h < it->heads; h++) {
            finish_row(t, it, i, h);
        }
    }
}

// ---- items handed out --------------------------------------------------------------------------

static int64_t seq_rows(const attn *t, int64_t s) {
    return (int64_t)t->b->q_start[s + 1] - t->b->q_start[s];
}

static int64_t seq_items(const attn *t, int64_t s) {
    return (seq_rows(t, s) + t->rows - 1) / t->rows * t->kv->desc.heads * t->n_parts;
}

// Fills the item with number `index` within sequence s. Later row blocks, which see more, go first.
static void item_of(const attn *t, int64_t s, int64_t index, item *it) {
    const int64_t per_block = t->kv->desc.heads * t->n_parts;
    const int64_t n = seq_rows(t, s);
    const int64_t block = (n + t->rows - 1) / t->rows - 1 - index / per_block;
    const int64_t part = index % t->n_parts;
    it->seq = s;
    it->first = t->b->q_start[s] + block * t->rows;
    it->rows = cpu_min(t->rows, n - block * t->rows);
    it->kv_len = t->b->kv_len[s];
    it->position = it->kv_len - n + block * t->rows;
    it->kv_head = index % per_block / t->n_parts;
    it->head = it->kv_head * t->group + part * t->heads;
    it->heads = cpu_min(t->heads, t->group - part * t->heads);
    it->blocks = t->b->table + (int64_t)t->b->seq_slot[s] * t->b->caps.cap_blocks[t->a->group];
}

// Sequence of the item with number *index; *index within it.
static int64_t find_sequence(const attn *t, int64_t *index) {
    const int64_t per_row = t->kv->desc.heads * t->n_parts;
    int64_t s = cpu_min(*index / per_row, t->n_single);
    *index -= s * per_row;
    for (; *index >= seq_items(t, s); s++) {
        *index -= seq_items(t, s);
    }
    return s;
}

static void attn_items(void *ctx, int64_t i0, int64_t i1, uint32_t worker) {
    const attn *t = ctx;
    float *room = t->kv->scratch + worker * t->kv->scratch_floats;
    item it = {.k = room + t->room.k,
               .v = room + t->room.v,
               .q = room + t->room.q,
               .s = room + t->room.s,
               .o = room + t->room.o,
               .o_t = room + t->room.o_t};
    it.max = room + t->room.state;
    it.sum = it.max + CPU_ATTN_ROWS;
    it.max_t = it.sum + CPU_ATTN_ROWS;
    it.sum_t = it.max_t + CPU_ATTN_ROWS;
    for (int64_t i = i0; i < i1; i++) {
        int64_t index = i;
        const int64_t s = find_sequence(t, &index);
        item_of(t, s, index, &it);
        attend(t, &it);
    }
}

// ---- checks ------------------------------------------------------------------------------------

// Blocks that the rows of sequence s read are blocks of the cache.
static pgd_status check_sequence(const pgd_exec *x, const attn *t, int64_t s, int64_t rows) {
    const int64_t n = seq_rows(t, s);
    const int64_t kv_len = t->b->kv_len[s];
    const int64_t slot = t->b->seq_slot[s];
    const int64_t cap = t->b->caps.cap_blocks[t->a->group];
    const int64_t tokens = t->kv->desc.block_tokens;
    int64_t from = 0;
    int64_t to = 0;
    int64_t unused = 0;
    if (t->b->q_start[s] < 0 || n < 0 || t->b->q_start[s + 1] > rows || n > kv_len || slot < 0 ||
        slot >= t->b->caps.cap_slots) {
        return CPU_FAIL(x->dev, PGD_INVALID,
                        "attn: sequence %lld has rows %d to %d of %lld, %lld tokens and slot %lld",
                        (long long)s, (int)t->b->q_start[s], (int)t->b->q_start[s + 1],
                        (long long)rows, (long long)kv_len, (long long)slot);
    }
    if (n == 0) {
        return PGD_OK;
    }
    visible(t->a, kv_len - n, kv_len, &from, &unused);
    visible(t->a, kv_len - 1, kv_len, &unused, &to);
    for (int64_t i = from / tokens; i * tokens < to; i++) {
        const int64_t id = i < cap ? t->b->table[slot * cap + i] : -1;
        if (id < 0 || id >= t->kv->n_blocks) {
            return CPU_FAIL(x->dev, PGD_INVALID,
                            "attn: entry %lld of slot %lld is block %lld of %d", (long long)i,
                            (long long)slot, (long long)id, (int)t->kv->n_blocks);
        }
    }
    return PGD_OK;
}

static pgd_status optional(const pgd_exec *x, const char *name, const pgd_tensor *v,
                           const float **out) {
    cpu_view view = {0};
    if (v->rank != 0) {
        PGD_TRY(cpu_view_of(x, name, v, false, &view));
    }
    *out = view.p;
    return PGD_OK;
}

static pgd_status check_counts(const cpu_op *op) {
    const cpu_batch *b = &op->batch;
    const int64_t n = b->head->n_seqs;
    if (n < 0 || n > b->caps.cap_seqs) {
        return CPU_FAIL(op->x->dev, PGD_INVALID, "attn: %lld sequences, the batch holds %d",
                        (long long)n, (int)b->caps.cap_seqs);
    }
    if (n > 0 &&
        (b->q_start == NULL || b->kv_len == NULL || b->seq_slot == NULL || b->table == NULL)) {
        return CPU_FAIL(op->x->dev, PGD_INVALID, "attn: the batch has no sequences or block table");
    }
    return PGD_OK;
}

static pgd_status attn_live(cpu_op *op) {
    attn *t = CPU_STATE(attn, op);
    int64_t floats = 0;
    int64_t items = 0;
    PGD_TRY(check_counts(op));
    t->n_seqs = op->batch.head->n_seqs;
    t->n_single = 0;
    for (int64_t s = 0; s < t->n_seqs; s++) {
        PGD_TRY(check_sequence(op->x, t, s, op->rows));
        floats += seq_rows(t, s) * t->b->kv_len[s] * t->a->q.shape[1] * 8;
        items += seq_items(t, s);
        t->n_single += t->n_single == s && seq_rows(t, s) == 1;
    }
    cpu_phase_set(&op->phases[0], items, items > 0 ? floats / items : 0, 1);
    return PGD_OK;
}

pgd_status cpu_make_attn(cpu_op *op, const pgd_attn_args *a) {
    attn *t = CPU_STATE(attn, op);
    *t = (attn){.a = a, .k = cpu_kernels(op->x), .kv = a->kv, .b = &op->batch};
    if (a->batch == NULL) {
        return CPU_FAIL(op->x->dev, PGD_INVALID, "attn without a batch");
    }
    PGD_TRY(cpu_op_open(op, a->batch, a->rows, a->group, a->q.shape[0]));
    PGD_TRY(cpu_op_view(op, "attn q", &a->q, false, &t->q));
    PGD_TRY(cpu_op_view(op, "attn out", &a->out, true, &t->out));
    if (a->lse.rank != 0) {
        PGD_TRY(cpu_op_view(op, "attn lse", &a->lse, true, &t->lse));
    }
    PGD_TRY(optional(op->x, "attn sinks", &a->sinks, &t->sinks));
    PGD_TRY(optional(op->x, "attn slopes", &a->slopes, &t->slopes));
    t->how = (pgd_cpu_score){.scale = a->scale, .softcap = a->softcap};
    t->group = a->q.shape[1] / a->kv->desc.heads;
    t->heads = cpu_min(t->group, CPU_ATTN_ROWS);
    t->rows = cpu_max(1, CPU_ATTN_ROWS / t->heads);
    t->n_parts = (t->group + t->heads - 1) / t->heads;
    t->room = cpu_attn_layout(&a->kv->desc);
    op->live = attn_live;
    op->phases[0] = (cpu_phase){.fn = attn_items, .ctx = t};
    return PGD_OK;
}

// There is nothing to prepare: items are found while they are handed out.
pgd_status cpu_make_attn_plan(cpu_op *op, const pgd_attn_plan_args *a) {
    (void)op;
    (void)a;
    return PGD_OK;
}
