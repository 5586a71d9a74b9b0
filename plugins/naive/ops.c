// The operations, each as include/pagoda/ops.h words it: sums in double, one order, one rounding.
#include "naive.h"

// ---- with weights ------------------------------------------------------------------------------

static pgd_status op_embed(const pgd_exec *x, const pgd_embed_args *args) {
    OP_ARGS(pgd_embed_args)
    const int32_t *ids = array(a->batch, a->batch->token_ids);
    const int32_t *last = array(a->batch, a->batch->last);
    const double scale = a->scale == 0 ? 1 : (double)a->scale;
    const int64_t n = live(a->batch, a->rows, a->out.shape[0]);
    for (int64_t t = 0; t < n; t++) {
        const int64_t id = (ids[t] < 0 ? last[-1 - ids[t]] : ids[t]) - (int64_t)a->row_start;
        void *to = at(&a->out, t, 0);
        for (int64_t i = 0; i < a->w->k; i++) {
            const double v =
                id < 0 || id >= a->w->n ? 0 : load(a->w->dtype, a->w->rows, id * a->w->k + i);
            store(a->out.dtype, to, i, v * scale);
        }
    }
    return PGD_OK;
}

static double activate(int32_t act, float alpha, double v) {
    switch (act) {
    case PGD_ACT_SILU: return v / (1 + exp(-(alpha == 0 ? 1 : (double)alpha) * v));
    case PGD_ACT_GELU: return 0.5 * v * (1 + erf(v * 0.70710678118654752440));
    case PGD_ACT_GELU_TANH:
        return 0.5 * v * (1 + tanh(0.79788456080286535588 * (v + 0.044715 * v * v * v)));
    case PGD_ACT_RELU: return v < 0 ? 0 : v;
    default: return v;
    }
}

static double product(const pgd_gemm_args *a, int64_t r, int64_t n) {
    const pgd_weight *w = a->w;
    const void *from = at(&a->x, r, 0);
    double sum = 0;
    for (int64_t i = 0; i < w->k; i++) {
        double v = load(a->x.dtype, from, i);
        if (w->act_dtype == PGD_BF16 && a->x.dtype != PGD_BF16) {
            uint16_t rounded;
            store(PGD_BF16, &rounded, 0, v);
            v = load(PGD_BF16, &rounded, 0);
        }
        sum += v * load(w->dtype, w->rows, n * w->k + i);
    }
    return sum;
}

static pgd_status op_gemm(const pgd_exec *x, const pgd_gemm_args *args) {
    OP_ARGS(pgd_gemm_args)
    const float *bias = vector(&a->bias);
    const int64_t rows = live(a->batch, a->rows, a->x.shape[0]);
    for (int64_t r = 0; r < rows; r++) {
        for (int64_t n = 0; n < a->w->n; n++) {
            double v = product(a, r, n) * (a->alpha == 0 ? 1 : (double)a->alpha);
            v += bias == NULL ? 0 : (double)bias[n];
            if (a->act != PGD_ACT_NONE && a->act_limit > 0 && v > (double)a->act_limit) {
                v = (double)a->act_limit;
            }
            v = activate(a->act, a->act_alpha, v);
            if (a->aux_kind != PGD_AUX_NONE) {
                const double u = load(a->aux.dtype, at(&a->aux, r, 0), n);
                v = a->aux_kind == PGD_AUX_ADD ? v + u : v * u;
            }
            store(a->y.dtype, at(&a->y, r, 0), n, v);
        }
    }
    return PGD_OK;
}

// ---- with the cache ----------------------------------------------------------------------------

static pgd_status op_kv_write(const pgd_exec *x, const pgd_kv_write_args *args) {
    OP_ARGS(pgd_kv_write_args)
    const pgd_kv_desc *d = &a->kv->desc;
    const int32_t *slots = array(a->batch, a->batch->slots[a->group]);
    const int64_t rows = live(a->batch, a->rows, a->k.shape[0]);
    for (int64_t t = 0; t < rows; t++) {
        for (int32_t which = 0; which < 2; which++) {
            const pgd_tensor *from = which == 0 ? &a->k : &a->v;
            unsigned char *to = naive_cache_row(a->kv, a->layer, which, slots[t]);
            const int64_t dim = from->shape[2];
            for (int64_t i = 0; i < d->heads * dim; i++) {
                store(which == 0 ? d->k_dtype : d->v_dtype, to, i,
                      load(from->dtype, at(from, t, i / dim), i % dim));
            }
        }
    }
    return PGD_OK;
}

// One row of one head, [from, to) the key positions it sees.
typedef struct attn_row {
    const pgd_attn_args *a;
    const int32_t *blocks;
    const void *q;
    int64_t position;
    int64_t from;
    int64_t to;
    int64_t head;
    int64_t kv_head;
} attn_row;

static const unsigned char *cached(const attn_row *row, int32_t which, int64_t j) {
    const int64_t n = row->a->kv->desc.block_tokens;
    return naive_cache_row(row->a->kv, row->a->layer, which, row->blocks[j / n] * n + j % n);
}

static double score(const attn_row *row, int64_t j) {
    const pgd_attn_args *a = row->a;
    const pgd_kv_desc *d = &a->kv->desc;
    const unsigned char *k = cached(row, 0, j);
    const float *slopes = vector(&a->slopes);
    double s = 0;
    for (int64_t i = 0; i < d->k_dim; i++) {
        s += load(a->q.dtype, row->q, i) * load(d->k_dtype, k, row->kv_head * d->k_dim + i);
    }
    s *= (double)a->scale;
    s = a->softcap == 0 ? s : (double)a->softcap * tanh(s / (double)a->softcap);
    return slopes == NULL ? s : s - (double)slopes[row->head] * (double)(row->position - j);
}

// A running softmax, keys from left to right: the same sums whatever else the step holds.
static void attend(const attn_row *row, int64_t t) {
    const pgd_attn_args *a = row->a;
    const pgd_kv_desc *d = &a->kv->desc;
    const float *sinks = vector(&a->sinks);
    double sums[MAX_DIM] = {0};
    double max = sinks == NULL ? -INFINITY : (double)sinks[row->head];
    double denominator = sinks == NULL ? 0 : 1;
    for (int64_t j = row->from; j < row->to; j++) {
        const unsigned char *v = cached(row, 1, j);
        const double s = score(row, j);
        const double shrink = s > max ? exp(max - s) : 1;
        max = s > max ? s : max;
        const double p = exp(s - max);
        denominator = denominator * shrink + p;
        for (int64_t i = 0; i < d->v_dim; i++) {
            sums[i] = sums[i] * shrink + p * load(d->v_dtype, v, row->kv_head * d->v_dim + i);
        }
    }
    for (int64_t i = 0; i < d->v_dim; i++) {
        store(a->out.dtype, at(&a->out, t, row->head), i,
              denominator == 0 ? 0 : sums[i] / denominator);
    }
    if (a->lse.rank != 0) {
        store(PGD_F32, at(&a->lse, t, 0), row->head,
              denominator == 0 ? -INFINITY : max + log(denominator));
    }
}

static pgd_status op_attn(const pgd_exec *x, const pgd_attn_args *args) {
    OP_ARGS(pgd_attn_args)
    const pgd_batch *b = a->batch;
    const int32_t *start = array(b, b->q_start);
    const int32_t *len = array(b, b->kv_len);
    const int32_t *slot = array(b, b->seq_slot);
    const int32_t *table = array(b, b->block_table[a->group]);
    for (int64_t s = 0; s < head_of(b)->n_seqs; s++) {
        attn_row row = {.a = a, .blocks = table + (int64_t)slot[s] * b->cap_blocks[a->group]};
        for (int64_t t = start[s]; t < start[s + 1]; t++) {
            const int64_t p = (int64_t)len[s] - start[s + 1] + t;
            row.position = p;
            row.from = a->window_left > 0 && p >= a->window_left ? p - a->window_left + 1 : 0;
            row.to = a->causal != 0 && len[s] > p + 1 ? p + 1 : len[s];
            if (a->window_right > 0 && row.to > p + a->window_right) {
                row.to = p + a->window_right;
            }
            for (row.head = 0; row.head < a->q.shape[1]; row.head++) {
                row.kv_head = row.head / (a->q.shape[1] / a->kv->desc.heads);
                row.q = at(&a->q, t, row.head);
                attend(&row, t);
            }
        }
    }
    return PGD_OK;
}

// ---- rows --------------------------------------------------------------------------------------
static pgd_status op_gather_rows(const pgd_exec *x, const pgd_gather_rows_args *args) {
    OP_ARGS(pgd_gather_rows_args)
    const int32_t *from = array(a->batch, a->batch->out_rows);
    const int64_t n = live(a->batch, a->rows, a->out.shape[0]);
    for (int64_t r = 0; r < n; r++) {
        memcpy(at(&a->out, r, 0), at(&a->x, from[r], 0),
               (size_t)a->x.shape[1] * pgd_dtype_bytes(a->x.dtype));
    }
    return PGD_OK;
}

static pgd_status op_rmsnorm(const pgd_exec *x, const pgd_rmsnorm_args *args) {
    OP_ARGS(pgd_rmsnorm_args)
    const int64_t rows = live(a->batch, a->rows, a->x.shape[0]);
    const int64_t heads = a->x.rank == 3 ? a->x.shape[1] : 1;
    const int64_t n = a->x.shape[a->x.rank - 1];
    const float *w = vector(&a->w);
    for (int64_t r = 0; r < rows * heads; r++) {
        const void *from = at(&a->x, r / heads, r % heads);
        void *to = at(&a->out, r / heads, r % heads);
        double sum = 0;
        for (int64_t i = 0; i < n; i++) {
            sum += load(a->x.dtype, from, i) * load(a->x.dtype, from, i);
        }
        const double inverse = 1 / sqrt(sum / (double)n + (double)a->eps);
        for (int64_t i = 0; i < n; i++) {
            store(a->out.dtype, to, i, load(a->x.dtype, from, i) * inverse * (double)w[i]);
        }
    }
    return PGD_OK;
}

// The position axis of a pair: sections hold so many pairs of each axis, all zero = one axis.
static int64_t axis_of(const pgd_rope_args *a, int64_t pair) {
    for (int64_t axis = 0; axis < 4; axis++) {
        pair -= a->sections[axis];
        if (pair < 0) {
            return axis;
        }
    }
    return 0;
}

static void turn(const pgd_rope_args *a, const pgd_tensor *t, int64_t row) {
    const int32_t *positions = array(a->batch, a->batch->positions);
    const int64_t half = a->rot_dim / 2;
    for (int64_t i = 0; t->rank != 0 && i < t->shape[1] * half; i++) {
        const int64_t pair = i % half;
        const int32_t p = positions[axis_of(a, pair) * a->batch->cap_tokens + row];
        const float *angle = (const float *)at(&a->table, p, pair);
        const int64_t u = a->style == PGD_ROPE_HALF ? pair : 2 * pair;
        const int64_t v = a->style == PGD_ROPE_HALF ? pair + half : 2 * pair + 1;
        void *to = at(t, row, i / half);
        const double x = load(t->dtype, to, u);
        const double y = load(t->dtype, to, v);
        store(t->dtype, to, u, x * (double)angle[0] - y * (double)angle[1]);
        store(t->dtype, to, v, y * (double)angle[0] + x * (double)angle[1]);
    }
}

static pgd_status op_rope(const pgd_exec *x, const pgd_rope_args *args) {
    OP_ARGS(pgd_rope_args)
    const int64_t rows = live(a->batch, a->rows, a->q.shape[0]);
    for (int64_t t = 0; t < rows && a->rot_dim > 0; t++) {
        turn(a, &a->q, t);
        turn(a, &a->k, t);
    }
    return PGD_OK;
}

static pgd_status op_act_mul(const pgd_exec *x, const pgd_act_mul_args *args) {
    OP_ARGS(pgd_act_mul_args)
    const int64_t rows = live(a->batch, a->rows, a->out.shape[0]);
    const int64_t n = a->out.shape[1];
    const double limit = (double)a->act_limit;
    for (int64_t r = 0; r < rows; r++) {
        for (int64_t i = 0; i < n; i++) {
            double gate = load(a->x.dtype, at(&a->x, r, 0), i);
            double up = load(a->x.dtype, at(&a->x, r, 0), n + i);
            if (limit > 0) {
                gate = gate > limit ? limit : gate;
                up = up > limit ? limit : up < -limit ? -limit : up;
            }
            store(a->out.dtype, at(&a->out, r, 0), i, activate(a->act, a->act_alpha, gate) * up);
        }
    }
    return PGD_OK;
}

static pgd_status op_add(const pgd_exec *x, const pgd_add_args *args) {
    OP_ARGS(pgd_add_args)
    const int64_t rows = live(a->batch, a->rows, a->a.shape[0]);
    const uint32_t rank = a->a.rank;
    const int64_t n = rank == 1 ? rows : a->a.shape[rank - 1];
    const int64_t middle = rank == 3 ? a->a.shape[1] : 1;
    if (rank > 3) {
        return FAIL(x->dev, PGD_UNSUPPORTED, "naive: add of rank %u", rank);
    }
    for (int64_t r = 0; r < (rank == 1 ? 1 : rows) * middle; r++) {
        const int64_t i = r / middle, j = r % middle;
        for (int64_t e = 0; e < n; e++) {
            store(a->out.dtype, at(&a->out, i, j), e,
                  load(a->a.dtype, at(&a->a, i, j), e) + load(a->b.dtype, at(&a->b, i, j), e));
        }
    }
    return PGD_OK;
}

static pgd_status op_argmax(const pgd_exec *x, const pgd_argmax_args *args) {
    OP_ARGS(pgd_argmax_args)
    const int64_t rows = live(a->batch, a->rows, a->x.shape[0]);
    int32_t *out = (int32_t *)at(&a->out, 0, 0);
    for (int64_t r = 0; r < rows; r++) {
        const float *logits = (const float *)at(&a->x, r, 0);
        int32_t best = -1;
        for (int64_t i = 0; i < a->x.shape[1]; i++) {
            if (logits[i] == logits[i] && (best < 0 || logits[i] > logits[best])) {
                best = (int32_t)i;
            }
        }
        out[r] = best;
        if (a->batch == NULL || r >= head_of(a->batch)->n_out) {
            continue;
        }
        int32_t *sampled = array(a->batch, a->batch->sampled);
        int32_t *last = array(a->batch, a->batch->last);
        const int32_t *slot = array(a->batch, a->batch->out_slot);
        if (sampled != NULL) {
            sampled[r] = best;
        }
        if (last != NULL && slot != NULL && slot[r] >= 0) {
            last[slot[r]] = best;
        }
    }
    return PGD_OK;
}

const pgd_ops naive_ops = {
    .size = sizeof(naive_ops),
    .embed = op_embed,
    .gather_rows = op_gather_rows,
    .rmsnorm = op_rmsnorm,
    .rope = op_rope,
    .gemm = op_gemm,
    .kv_write = op_kv_write,
    .attn = op_attn,
    .act_mul = op_act_mul,
    .add = op_add,
    .argmax = op_argmax,
};
