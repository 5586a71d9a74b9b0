// attn and attn_plan: softmax(scale * q K^T [softcap, slope, mask]) V over paged keys and values.
//
// The key at cache position j of a sequence lies in block table[seq_slot][j / block_tokens]. The
// i-th of a sequence's n rows in this step sits at position kv_len - n + i: the cache holds the
// step's own rows by then. Entries of the table that no row sees are never read.
//
// Keys are taken in tiles of 64 aligned to position 0 and merged left to right with a running
// maximum (Milakov and Gimelshein 2018). A row that sees nothing gives zeros and lse -infinity.
#include "ref/common.h"

#include <math.h>

// One row and head: what the loops below need to know.
typedef struct attn_row {
    const pgd_attn_args *a;
    const pgd_ref_kv *kv;
    const int32_t *blocks; // of the sequence
    const void *q;         // [k_dim]
    int64_t position;
    int64_t from; // first key seen
    int64_t to;   // one behind the last
    int32_t head;
    int32_t kv_head;
} attn_row;

// Keys seen by a row at `position` of a sequence of kv_len tokens: [*from, *to).
static void visible(const pgd_attn_args *a, int64_t position, int64_t kv_len, int64_t *from,
                    int64_t *to) {
    *from = 0;
    *to = kv_len;
    if (a->causal != 0 && *to > position + 1) {
        *to = position + 1;
    }
    if (a->window_left > 0 && *from < position - a->window_left + 1) {
        *from = position - a->window_left + 1;
    }
    if (a->window_right > 0 && *to > position + a->window_right) {
        *to = position + a->window_right;
    }
    if (*from > *to) {
        *from = *to;
    }
}

static pgd_status check_tensors(const pgd_exec *x, const pgd_attn_args *a, int64_t rows) {
    const pgd_kv_desc *d = &((const pgd_ref_kv *)a->kv)->desc;
    pgd_ref_want want = {"attn q", PGD_REF_FLOATS, 3, rows, {0, -1, d->k_dim}};
    int64_t heads;
    PGD_TRY(pgd_ref_check_tensor(x, &a->q, &want));
    heads = a->q.shape[1];
    if (heads % d->heads != 0) {
        return PGD_REF_FAIL(x, PGD_INVALID, "attn: %lld heads share %d kv heads", (long long)heads,
                            (int)d->heads);
    }
    want = (pgd_ref_want){"attn out", PGD_REF_FLOATS, 3, rows, {0, heads, d->v_dim}};
    PGD_TRY(pgd_ref_check_tensor(x, &a->out, &want));
    if (a->sinks.rank != 0) {
        PGD_TRY(pgd_ref_check_vector(x, "attn sinks", &a->sinks, PGD_REF_F32, heads));
    }
    if (a->slopes.rank != 0) {
        PGD_TRY(pgd_ref_check_vector(x, "attn slopes", &a->slopes, PGD_REF_F32, heads));
    }
    if (a->lse.rank != 0) {
        want = (pgd_ref_want){"attn lse", PGD_REF_F32, 2, rows, {0, heads}};
        PGD_TRY(pgd_ref_check_tensor(x, &a->lse, &want));
    }
    return PGD_OK;
}

// Checks the block table entries that the rows of one sequence will read.
static pgd_status check_sequence(const pgd_exec *x, const pgd_attn_args *a, int64_t s) {
    const pgd_batch *b = a->batch;
    const pgd_ref_kv *kv = (const pgd_ref_kv *)a->kv;
    const int32_t *start = pgd_ref_array(b, b->q_start);
    const int32_t *len = pgd_ref_array(b, b->kv_len);
    const int32_t *slot = pgd_ref_array(b, b->seq_slot);
    const int32_t *table = pgd_ref_array(b, b->block_table[a->group]);
    const int64_t n = (int64_t)start[s + 1] - start[s];
    const int64_t cap = b->cap_blocks[a->group];
    int64_t i, from, to, block;
    if (start[s] < 0 || n < 0 || n > len[s] || slot[s] < 0 || slot[s] >= b->cap_slots) {
        return PGD_REF_FAIL(
            x, PGD_INVALID, "attn: sequence %lld has rows %d to %d, %d tokens and slot %d",
            (long long)s, (int)start[s], (int)start[s + 1], (int)len[s], (int)slot[s]);
    }
    for (i = 0; i < n; i++) {
        visible(a, len[s] - n + i, len[s], &from, &to);
        for (block = from / kv->desc.block_tokens; block * kv->desc.block_tokens < to; block++) {
            int32_t id = block < cap ? table[slot[s] * cap + block] : -1;
            if (from < to && (id < 0 || id >= kv->n_blocks)) {
                return PGD_REF_FAIL(x, PGD_INVALID, "attn: entry %lld of slot %d is block %d of %d",
                                    (long long)block, (int)slot[s], (int)id, (int)kv->n_blocks);
            }
        }
    }
    return PGD_OK;
}

static pgd_status check(const pgd_exec *x, const pgd_attn_args *a) {
    const pgd_batch *b = a->batch;
    const int32_t *start;
    int64_t rows, s;
    PGD_TRY(pgd_ref_check_kv(x, (const pgd_ref_kv *)a->kv, b, a->layer, a->group));
    PGD_TRY(pgd_ref_live(x, b, a->rows, a->q.shape[0], &rows));
    PGD_TRY(check_tensors(x, a, rows));
    if (pgd_ref_head(b)->n_seqs < 0 || pgd_ref_head(b)->n_seqs > b->cap_seqs) {
        return PGD_REF_FAIL(x, PGD_INVALID, "attn: %d sequences, the batch holds %d",
                            (int)pgd_ref_head(b)->n_seqs, (int)b->cap_seqs);
    }
    if (pgd_ref_head(b)->n_seqs == 0) {
        return PGD_OK;
    }
    start = pgd_ref_array(b, b->q_start);
    if (start == NULL || b->kv_len == 0 || b->seq_slot == 0 || b->block_table[a->group] == 0) {
        return PGD_REF_FAIL(x, PGD_INVALID, "attn: the batch has no sequences or block table");
    }
    for (s = 0; s < pgd_ref_head(b)->n_seqs; s++) {
        PGD_TRY(check_sequence(x, a, s));
    }
    if (start[s] > rows) {
        return PGD_REF_FAIL(x, PGD_INVALID, "attn: sequences have %d rows, the step %lld",
                            (int)start[s], (long long)rows);
    }
    return PGD_OK;
}

pgd_status pgd_ref_check_attn(const pgd_exec *x, const pgd_attn_args *args) {
    pgd_attn_args local;
    PGD_REF_TAIL(x, pgd_attn_args, args);
    return check(x, PGD_ARGS(pgd_attn_args, local, args));
}

pgd_status pgd_ref_check_attn_plan(const pgd_exec *x, const pgd_attn_plan_args *args) {
    PGD_REF_TAIL(x, pgd_attn_args, args);
    return PGD_OK;
}

static unsigned char *key(const attn_row *row, int32_t which, int64_t j, double *unit) {
    const pgd_kv_desc *d = &row->kv->desc;
    const int64_t slot =
        (int64_t)row->blocks[j / d->block_tokens] * d->block_tokens + j % d->block_tokens;
    const int64_t head = which == 0
                             ? (int64_t)row->kv_head * d->k_dim * pgd_dtype_bytes(d->k_dtype)
                             : (int64_t)row->kv_head * d->v_dim * pgd_dtype_bytes(d->v_dtype);
    *unit = 1; // what an element is to be multiplied by
    if (d->scale_mode != PGD_KV_SCALE_NONE) {
        *unit = pgd_ref_load(PGD_F32, pgd_ref_kv_scales(row->kv, row->a->layer, which, slot),
                             row->kv_head);
    }
    return pgd_ref_kv_row(row->kv, row->a->layer, which, slot) + head;
}

static double score(const attn_row *row, int64_t j) {
    const pgd_attn_args *a = row->a;
    const pgd_kv_desc *d = &row->kv->desc;
    double s = 0, unit;
    const unsigned char *k = key(row, 0, j, &unit);
    int64_t i;
    for (i = 0; i < d->k_dim; i++) {
        s += pgd_ref_load(a->q.dtype, row->q, i) * pgd_ref_load(d->k_dtype, k, i);
    }
    s *= unit * (double)a->scale;
    if (a->softcap != 0) {
        s = (double)a->softcap * tanh(s / (double)a->softcap);
    }
    if (a->slopes.rank != 0) {
        const float *slopes = pgd_ref_at(&a->slopes, 0, 0, 0);
        s -= (double)slopes[row->head] * (double)(row->position - j);
    }
    return s;
}

// Running softmax over part of the output dims.
typedef struct attn_sum {
    double max;
    double denominator;
    double out[PGD_REF_CHUNK];
} attn_sum;

// Merges keys [j0, j1), one tile, into sum; output dims [i0, i0 + n).
static void add_tile(const attn_row *row, int64_t j0, int64_t j1, int64_t i0, int64_t n,
                     attn_sum *sum) {
    const pgd_kv_desc *d = &row->kv->desc;
    double scores[PGD_ATTN_TILE], max = sum->max, shrink;
    int64_t j, i;
    for (j = j0; j < j1; j++) {
        scores[j - j0] = score(row, j);
        max = scores[j - j0] > max ? scores[j - j0] : max;
    }
    shrink = sum->max == max ? 1 : exp(sum->max - max);
    sum->max = max;
    sum->denominator *= shrink;
    for (i = 0; i < n; i++) {
        sum->out[i] *= shrink;
    }
    for (j = j0; j < j1; j++) {
        double p = scores[j - j0] == max ? 1 : exp(scores[j - j0] - max), unit;
        const unsigned char *v = key(row, 1, j, &unit);
        sum->denominator += p;
        p *= unit;
        for (i = 0; i < n; i++) {
            sum->out[i] += p * pgd_ref_load(d->v_dtype, v, i0 + i);
        }
    }
}

// Output dims [i0, i0 + n) of one row and head; also the lse when i0 is 0.
static void attend(const attn_row *row, int64_t t, int64_t i0, int64_t n) {
    const pgd_attn_args *a = row->a;
    void *out = pgd_ref_at(&a->out, t, row->head, 0);
    attn_sum sum = {.max = -INFINITY};
    int64_t j, i;
    if (a->sinks.rank != 0) {
        sum.max = (double)((const float *)pgd_ref_at(&a->sinks, 0, 0, 0))[row->head];
        sum.denominator = 1;
    }
    for (j = row->from; j < row->to; j = (j / PGD_ATTN_TILE + 1) * PGD_ATTN_TILE) {
        int64_t end = (j / PGD_ATTN_TILE + 1) * PGD_ATTN_TILE;
        add_tile(row, j, end < row->to ? end : row->to, i0, n, &sum);
    }
    for (i = 0; i < n; i++) {
        pgd_ref_store(a->out.dtype, out, i0 + i,
                      sum.denominator == 0 ? 0 : sum.out[i] / sum.denominator);
    }
    if (a->lse.rank != 0 && i0 == 0) {
        pgd_ref_store(PGD_F32, pgd_ref_at(&a->lse, t, 0, 0), row->head,
                      sum.denominator == 0 ? -INFINITY : sum.max + log(sum.denominator));
    }
}

static void attend_sequence(const pgd_attn_args *a, int64_t s) {
    const pgd_batch *b = a->batch;
    const pgd_ref_kv *kv = (const pgd_ref_kv *)a->kv;
    const int32_t *start = pgd_ref_array(b, b->q_start);
    const int32_t *len = pgd_ref_array(b, b->kv_len);
    const int32_t *slot = pgd_ref_array(b, b->seq_slot);
    const int32_t *table = pgd_ref_array(b, b->block_table[a->group]);
    const int32_t share = (int32_t)(a->q.shape[1] / kv->desc.heads);
    attn_row row = {.a = a, .kv = kv};
    int64_t t, i0;
    row.blocks = table + (int64_t)slot[s] * b->cap_blocks[a->group];
    for (t = start[s]; t < start[s + 1]; t++) {
        row.position = (int64_t)len[s] - start[s + 1] + t;
        visible(a, row.position, len[s], &row.from, &row.to);
        for (row.head = 0; row.head < a->q.shape[1]; row.head++) {
            row.kv_head = row.head / share;
            row.q = pgd_ref_at(&a->q, t, row.head, 0);
            for (i0 = 0; i0 < kv->desc.v_dim; i0 += PGD_REF_CHUNK) {
                int64_t n = kv->desc.v_dim - i0;
                attend(&row, t, i0, n < PGD_REF_CHUNK ? n : PGD_REF_CHUNK);
            }
        }
    }
}

pgd_status pgd_ref_attn(const pgd_exec *x, const pgd_attn_args *args) {
    pgd_attn_args local;
    const pgd_attn_args *a = PGD_ARGS(pgd_attn_args, local, args);
    int64_t s;
    PGD_TRY(pgd_ref_check_attn(x, args));
    for (s = 0; s < pgd_ref_head(a->batch)->n_seqs; s++) {
        attend_sequence(a, s);
    }
    return PGD_OK;
}

pgd_status pgd_ref_attn_plan(const pgd_exec *x, const pgd_attn_plan_args *args) {
    return pgd_ref_check_attn_plan(x, args);
}
