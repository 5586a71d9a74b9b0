// One item of attention: up to 64 query rows (rows of a sequence x query heads of a kv head)
// against the tiles of one kv head.
//
//   for each tile of 64 positions, left to right:
//     pieces of K and V              where they lie in the cache, or copied together
//     s = q K^T                      all query rows
//     p, max_t, sum_t = softmax      of the tile alone, over the positions a row sees
//     o_t = p V                      over those positions
//     (o, max, sum) = merge          whole items; parts are kept and merged later, in this order
//   out = o / sum
//
// A row's bits depend on the tiles it sees and nothing else: decode, prefill, chunks and splits are
// equal.
#include <math.h>
#include <string.h>

#include "attn.h"

static int64_t round_up(int64_t n, int64_t to) {
    return (n + to - 1) / to * to;
}

attn_room cpu_attn_layout(const pgd_kv_desc *d) {
    const uint64_t k = (uint64_t)round_up(d->k_dim, 2);
    const uint64_t v = (uint64_t)attn_ld(d);
    attn_room r = {0};
    r.v = r.k + k * PGD_CPU_TILE;
    r.q = r.v + v * PGD_CPU_TILE;
    r.s = r.q + (uint64_t)round_up((int64_t)k * CPU_ATTN_ROWS, 16);
    r.p = r.s + (uint64_t)CPU_ATTN_ROWS * PGD_CPU_TILE;
    r.o = r.p + (uint64_t)CPU_ATTN_ROWS * PGD_CPU_TILE + v; // a row of zeros at least
    r.o_t = r.o + v * CPU_ATTN_ROWS;
    r.state = r.o_t + v * CPU_ATTN_ROWS;
    r.cursor = r.state + (uint64_t)4 * CPU_ATTN_ROWS;
    r.floats = r.cursor + ATTN_CURSOR_FLOATS;
    return r;
}

void cpu_attn_visible(const pgd_attn_args *a, int64_t position, int64_t kv_len, int64_t *from,
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

// ---- pieces of a tile --------------------------------------------------------------------------

// Position j of the item's sequence: its block, and *at within it.
static int64_t block_of(const attn *t, const attn_item *it, int64_t j, int64_t *at) {
    const int64_t tokens = t->kv->desc.block_tokens;
    *at = j % tokens;
    return it->blocks[j / tokens];
}

// A row of a cache of I8 as f32, `step` floats from dim to dim.
static void gather_int8(const attn *t, const attn_item *it, int32_t which, int64_t slot,
                        int64_t step, float *to) {
    const int64_t dim = which == 0 ? t->kv->desc.k_dim : t->kv->desc.v_dim;
    float row[64];
    for (int64_t d0 = 0; d0 < dim; d0 += 64) {
        const int64_t n = cpu_min(64, dim - d0);
        cpu_kv_int8(t->kv, t->a->layer, which, it->kv_head, slot, d0, n, row);
        for (int64_t i = 0; i < n; i++) {
            to[(d0 + i) * step] = row[i];
        }
    }
}

// Pieces of a cache of I8 that positions [lo, hi) of a tile lie in. Blocks hold whole pieces.
static void gather_int8_pieces(const attn *t, const attn_item *it, int32_t which, int64_t tile,
                               int64_t lo, int64_t hi) {
    const pgd_kv_desc *d = &t->kv->desc;
    const int64_t dim = which == 0 ? d->k_dim : d->v_dim;
    const int64_t ld = which == 0 ? dim : attn_ld(d);
    float *to = (float *)(void *)(which == 0 ? it->k : it->v);
    for (int64_t j = lo / ATTN_PIECE * ATTN_PIECE; j < hi; j += ATTN_PIECE) {
        float scales[ATTN_PIECE];
        int64_t at = 0;
        const int64_t block = block_of(t, it, tile + j, &at);
        const int8_t *q = cpu_kv_int8_rows(t->kv, t->a->layer, which, it->kv_head,
                                           block * d->block_tokens + at, ATTN_PIECE, scales);
        if (which == 0) {
            t->k->int8_turned_16(q, scales, dim, to + j * ld);
        } else {
            t->k->int8_rows(q, scales, ATTN_PIECE, dim, to + j * ld, ld);
        }
    }
}

// Keys [lo, hi) of a tile copied to [piece][dims][16].
static void gather_k(const attn *t, const attn_item *it, int64_t tile, int64_t lo, int64_t hi) {
    const pgd_kv_desc *d = &t->kv->desc;
    const int64_t bytes = pgd_dtype_bytes(d->k_dtype) * (1 + t->kv->k_pair);
    const int64_t dims = (d->k_dim + t->kv->k_pair) / (1 + t->kv->k_pair);
    if (d->k_dtype == PGD_I8 && d->block_tokens % ATTN_PIECE == 0) {
        gather_int8_pieces(t, it, 0, tile, lo, hi);
        return;
    }
    for (int64_t j = lo; j < hi; j++) {
        int64_t at = 0;
        const int64_t block = block_of(t, it, tile + j, &at);
        if (d->k_dtype == PGD_I8) {
            gather_int8(t, it, 0, block * d->block_tokens + at, ATTN_PIECE,
                        (float *)(void *)it->k + j / ATTN_PIECE * d->k_dim * ATTN_PIECE +
                            j % ATTN_PIECE);
            continue;
        }
        const unsigned char *from = cpu_kv_k(t->kv, t->a->layer, it->kv_head, block) + at * bytes;
        unsigned char *to = it->k + (j / ATTN_PIECE * dims * ATTN_PIECE + j % ATTN_PIECE) * bytes;
        for (int64_t i = 0; i < dims; i++) {
            memcpy(to + i * ATTN_PIECE * bytes, from + i * d->block_tokens * bytes, (size_t)bytes);
        }
    }
}

// Values [lo, hi) of a tile copied to [piece][16][dim], or [piece][8][dim][2].
static void gather_v(const attn *t, const attn_item *it, int64_t tile, int64_t lo, int64_t hi) {
    const pgd_kv_desc *d = &t->kv->desc;
    const int64_t bytes = pgd_dtype_bytes(d->v_dtype);
    const int64_t dim = attn_ld(d);
    if (d->v_dtype == PGD_I8 && d->block_tokens % ATTN_PIECE == 0) {
        gather_int8_pieces(t, it, 1, tile, lo, hi);
        return;
    }
    for (int64_t j = lo; j < hi; j++) {
        int64_t at = 0;
        const int64_t block = block_of(t, it, tile + j, &at);
        const unsigned char *from = cpu_kv_v(t->kv, t->a->layer, it->kv_head, block);
        unsigned char *to = it->v;
        if (d->v_dtype == PGD_I8) {
            gather_int8(t, it, 1, block * d->block_tokens + at, 1,
                        (float *)(void *)it->v + j * dim);
            continue;
        }
        if (t->kv->v_pair == 0) {
            memcpy(to + j * dim * bytes, from + at * d->v_dim * bytes, (size_t)(d->v_dim * bytes));
            continue;
        }
        from += (at / 2 * d->v_dim * 2 + at % 2) * bytes;
        to += (j / 2 * dim * 2 + j % 2) * bytes;
        for (int64_t i = 0; i < d->v_dim; i++) {
            memcpy(to + i * 2 * bytes, from + i * 2 * bytes, (size_t)bytes);
        }
    }
}

// Where the pieces of positions [lo, hi) of a tile lie. Pieces that nobody sees may have no block:
// another one stands for them.
typedef struct attn_tile {
    const void *k[ATTN_PIECES];
    const void *v[ATTN_PIECES];
    const float *k_scales[ATTN_PIECES]; // of I8
    const float *v_scales[ATTN_PIECES];
    int64_t position;
    int64_t stride; // of K
    int64_t dim;    // of V
} attn_tile;

// Up to so many rows read int8 where it lies: more share tiles that are widened once.
enum { INT8_ROWS = 24 };

static bool few_rows(const attn *t, const attn_item *it) {
    return t->kv->desc.k_dtype != PGD_I8 || it->rows * it->heads <= INT8_ROWS;
}

static bool direct_k(const attn *t, const attn_item *it) {
    return t->direct_k && few_rows(t, it);
}

static bool direct_v(const attn *t, const attn_item *it) {
    return t->direct_v && few_rows(t, it);
}

// Bytes of an element of a piece that was put together: I8 is f32 then.
static int64_t attn_bytes(int32_t dtype) {
    return dtype == PGD_I8 ? (int64_t)sizeof(float) : (int64_t)pgd_dtype_bytes(dtype);
}

// Points piece i of a tile at the cache, where position `at` of `block` lies.
static void direct_piece(const attn *t, const attn_item *it, int64_t i, int64_t block, int64_t at,
                         attn_tile *out) {
    const pgd_kv_desc *d = &t->kv->desc;
    const unsigned char *k = cpu_kv_k(t->kv, t->a->layer, it->kv_head, block);
    const unsigned char *v = k + t->kv->k_bytes;
    const size_t scale = (size_t)at * sizeof(float);
    if (direct_k(t, it)) {
        const int64_t step =
            d->k_dtype == PGD_I8 ? d->k_dim : pgd_dtype_bytes(d->k_dtype) * (1 + t->kv->k_pair);
        out->k[i] = k + at * step;
    }
    if (direct_v(t, it)) {
        out->v[i] = v + at * d->v_dim * (int64_t)pgd_dtype_bytes(d->v_dtype);
    }
    out->k_scales[i] = (const float *)(const void *)(k + t->kv->k_scales + scale);
    out->v_scales[i] = (const float *)(const void *)(v + t->kv->v_scales + scale);
}

static void find_tile(const attn *t, const attn_item *it, int64_t tile, attn_tile *out) {
    const int64_t lo = cpu_max(it->from - tile, 0);
    const int64_t hi = cpu_min(it->to - tile, PGD_CPU_TILE);
    const pgd_kv_desc *d = &t->kv->desc;
    const int64_t k_bytes = attn_bytes(d->k_dtype);
    const int64_t v_bytes = attn_bytes(d->v_dtype);
    const int64_t k_piece = (d->k_dim + (d->k_dim & t->kv->k_pair)) * ATTN_PIECE * k_bytes;
    out->position = tile;
    out->stride = direct_k(t, it) ? d->block_tokens : ATTN_PIECE;
    out->dim = direct_v(t, it) ? d->v_dim : attn_ld(d);
    if (!direct_k(t, it)) {
        gather_k(t, it, tile, lo, hi);
    }
    if (!direct_v(t, it)) {
        gather_v(t, it, tile, lo, hi);
    }
    for (int64_t i = 0; i < ATTN_PIECES; i++) {
        const int64_t seen =
            cpu_min(cpu_max(i, lo / ATTN_PIECE), (hi - 1) / ATTN_PIECE) * ATTN_PIECE;
        int64_t at = 0;
        const int64_t block = block_of(t, it, tile + seen, &at);
        out->k[i] = it->k + i * k_piece;
        out->v[i] = it->v + i * ATTN_PIECE * out->dim * v_bytes;
        direct_piece(t, it, i, block, at, out);
    }
}

// ---- one tile ----------------------------------------------------------------------------------

// Positions of a tile that row i of an item sees, counted from the tile's start.
static void tile_span(const attn *t, const attn_item *it, int64_t i, int64_t tile, int64_t *lo,
                      int64_t *hi) {
    cpu_attn_visible(t->a, it->position + i, it->kv_len, lo, hi);
    *lo = cpu_min(cpu_max(*lo - tile, 0), PGD_CPU_TILE);
    *hi = cpu_min(cpu_max(*hi - tile, 0), PGD_CPU_TILE);
    *lo = cpu_min(*lo, *hi);
}

static int64_t q_ld(const attn *t) {
    return t->kv->desc.k_dim + (t->kv->desc.k_dim & t->kv->k_pair);
}

static void load_q(const attn *t, const attn_item *it) {
    const int64_t dim = t->kv->desc.k_dim;
    const int64_t ld = q_ld(t);
    for (int64_t i = 0; i < it->rows; i++) {
        for (int64_t h = 0; h < it->heads; h++) {
            const float *from = t->q.p + (it->first + i) * t->q.s0 + (it->head + h) * t->q.s1;
            const int64_t r = i * it->heads + h;
            if (t->dots) {
                t->k->bf16_round(from, (unsigned char *)it->q + r * ld * t->k->dot_bytes, dim);
                continue;
            }
            memcpy(it->q + r * ld, from, (size_t)dim * sizeof(float));
            if (ld > dim) {
                it->q[r * ld + dim] = 0.0f;
            }
        }
    }
}

static void scores(const attn *t, const attn_item *it, const attn_tile *tile,
                   const attn_tile *next) {
    const int64_t m = it->rows * it->heads;
    const int64_t dim = q_ld(t);
    if (t->dots) {
        t->k->bf16_attn_dot_scores(it->q, dim, m, tile->k, next->k, tile->stride, dim, it->s);
    } else if (t->kv->desc.k_dtype == PGD_I8 && direct_k(t, it)) {
        t->k->int8_attn_scores(it->q, dim, m, tile->k, next->k, tile->k_scales, dim, it->s);
    } else if (t->kv->desc.k_dtype == PGD_F32 || t->kv->desc.k_dtype == PGD_I8) {
        t->k->f32_attn_scores(it->q, dim, m, tile->k, next->k, tile->stride, dim, it->s);
    } else if (t->kv->desc.k_dtype == PGD_BF16) {
        t->k->bf16_attn_scores(it->q, dim, m, tile->k, next->k, tile->stride, dim, it->s);
    } else {
        t->k->f16_attn_scores(it->q, dim, m, tile->k, next->k, tile->stride, dim, it->s);
    }
}

// o_t of query rows [r, r + m), which all see positions [lo, hi) of the tile.
static void values(const attn *t, const attn_item *it, const attn_tile *tile, const attn_tile *next,
                   int64_t r, int64_t m, int64_t lo, int64_t hi) {
    const int64_t ld = attn_ld(&t->kv->desc);
    const float *p = it->s + r * PGD_CPU_TILE;
    float *o = it->o_t + r * ld;
    if (t->dots) {
        unsigned char *rounded = (unsigned char *)it->p;
        for (int64_t i = 0; i < m; i++) {
            t->k->bf16_round(p + i * PGD_CPU_TILE, rounded + i * PGD_CPU_TILE * t->k->dot_bytes,
                             PGD_CPU_TILE);
        }
        t->k->bf16_attn_dot_values(rounded, PGD_CPU_TILE, m, tile->v, next->v, lo, hi, tile->dim, o,
                                   ld);
    } else if (t->kv->desc.v_dtype == PGD_I8 && direct_v(t, it)) {
        t->k->int8_attn_values(p, PGD_CPU_TILE, m, tile->v, next->v, tile->v_scales, lo, hi,
                               tile->dim, o, ld);
    } else if (t->kv->desc.v_dtype == PGD_F32 || t->kv->desc.v_dtype == PGD_I8) {
        t->k->f32_attn_values(p, PGD_CPU_TILE, m, tile->v, next->v, lo, hi, tile->dim, o, ld);
    } else if (t->kv->desc.v_dtype == PGD_BF16) {
        t->k->bf16_attn_values(p, PGD_CPU_TILE, m, tile->v, next->v, lo, hi, tile->dim, o, ld);
    } else {
        t->k->f16_attn_values(p, PGD_CPU_TILE, m, tile->v, next->v, lo, hi, tile->dim, o, ld);
    }
}

// Rows [i, i + n) of the item, which all see positions [lo, hi) of the tile.
static void softmax_rows(const attn *t, const attn_item *it, int64_t i, int64_t n, int64_t tile,
                         int64_t lo, int64_t hi) {
    const int64_t first = i * it->heads;
    const int64_t end = (i + n) * it->heads;
    if (lo >= hi) {
        for (int64_t r = first; r < end; r++) {
            it->max_t[r] = -INFINITY;
            it->sum_t[r] = 0.0f;
        }
        return;
    }
    if (t->slopes == NULL) {
        t->k->f32_softmax_64(it->s + first * PGD_CPU_TILE, end - first, lo, hi, &t->how, 0.0f, 0.0f,
                             it->max_t + first, it->sum_t + first);
        return;
    }
    for (int64_t r = first; r < end; r++) {
        t->k->f32_softmax_64(it->s + r * PGD_CPU_TILE, 1, lo, hi, &t->how,
                             (float)(it->position + r / it->heads - tile),
                             t->slopes[it->head + r % it->heads], it->max_t + r, it->sum_t + r);
    }
}

// max_t, sum_t and o_t of a tile for all query rows. `next`: the tile that comes after it.
static void attend_tile(const attn *t, const attn_item *it, const attn_tile *where,
                        const attn_tile *next) {
    scores(t, it, where, next);
    for (int64_t i = 0; i < it->rows;) {
        int64_t lo = 0;
        int64_t hi = 0;
        int64_t n = 1;
        tile_span(t, it, i, where->position, &lo, &hi);
        for (; i + n < it->rows; n++) {
            int64_t a = 0;
            int64_t b = 0;
            tile_span(t, it, i + n, where->position, &a, &b);
            if (a != lo || b != hi) {
                break;
            }
        }
        softmax_rows(t, it, i, n, where->position, lo, hi);
        if (lo < hi) {
            values(t, it, where, next, i * it->heads, n * it->heads, lo, hi);
        }
        i += n;
    }
}

// ---- rows --------------------------------------------------------------------------------------

static void begin_rows(const attn *t, const attn_item *it) {
    const int64_t m = it->rows * it->heads;
    memset(it->o, 0, (size_t)(m * attn_ld(&t->kv->desc)) * sizeof(float));
    for (int64_t r = 0; r < m; r++) {
        it->max[r] = -INFINITY;
        it->sum[r] = 0.0f;
    }
}

static void merge_rows(const attn *t, const attn_item *it) {
    t->k->f32_merge(it->o, it->o_t, attn_ld(&t->kv->desc), it->rows * it->heads, it->max, it->sum,
                    it->max_t, it->sum_t);
}

// A sink is one more logit whose weight is dropped.
static void finish_row(const attn *t, const attn_item *it, int64_t i, int64_t h) {
    const int64_t v_dim = t->kv->desc.v_dim;
    const int64_t ld = attn_ld(&t->kv->desc);
    const int64_t r = i * it->heads + h;
    float *o = it->o + r * ld;
    float *out = t->out.p + (it->first + i) * t->out.s0 + (it->head + h) * t->out.s1;
    if (t->sinks != NULL) {
        const float one = 1.0f;
        memset(it->p, 0, (size_t)ld * sizeof(float));
        t->k->f32_merge(o, it->p, ld, 1, &it->max[r], &it->sum[r], &t->sinks[it->head + h], &one);
    }
    if (it->sum[r] == 0.0f) {
        memset(out, 0, (size_t)v_dim * sizeof(float));
    } else {
        t->k->f32_scale(o, 1.0f / it->sum[r], out, v_dim);
    }
    if (t->lse.p != NULL) {
        t->lse.p[(it->first + i) * t->lse.s0 + it->head + h] =
            it->sum[r] == 0.0f ? -INFINITY : it->max[r] + logf(it->sum[r]);
    }
}

static void finish_rows(const attn *t, const attn_item *it) {
    for (int64_t i = 0; i < it->rows; i++) {
        for (int64_t h = 0; h < it->heads; h++) {
            finish_row(t, it, i, h);
        }
    }
}

// Points the tile's results at part i.
static void open_part(const attn *t, attn_item *it, float *parts, int64_t i) {
    const int64_t m = it->rows * it->heads;
    it->max_t = parts + i * attn_part_floats(&t->kv->desc, m);
    it->sum_t = it->max_t + m;
    it->o_t = it->sum_t + m;
}

// Tiles [tile, end), numbered from that of it->from: kept in `parts`, or merged (NULL).
static void attend(const attn *t, attn_item *it, int64_t tile, int64_t end, float *parts) {
    const int64_t first = it->from / PGD_CPU_TILE;
    attn_tile tiles[2];
    load_q(t, it);
    find_tile(t, it, (first + tile) * PGD_CPU_TILE, &tiles[tile % 2]);
    for (; tile < end; tile++) {
        const attn_tile *here = &tiles[tile % 2];
        attn_tile *next = &tiles[(tile + 1) % 2];
        // Pieces that are put together have one place only.
        const bool ahead = tile + 1 < end && direct_k(t, it) && direct_v(t, it);
        if (ahead) {
            find_tile(t, it, here->position + PGD_CPU_TILE, next);
        }
        if (parts != NULL) {
            open_part(t, it, parts, tile);
        }
        attend_tile(t, it, here, ahead ? next : here);
        if (parts == NULL) {
            merge_rows(t, it);
        }
        if (!ahead && tile + 1 < end) {
            find_tile(t, it, here->position + PGD_CPU_TILE, next);
        }
    }
}

void cpu_attn_whole(const attn *t, attn_item *it) {
    begin_rows(t, it);
    if (it->from < it->to) {
        attend(t, it, 0, (it->to - 1) / PGD_CPU_TILE - it->from / PGD_CPU_TILE + 1, NULL);
    }
    finish_rows(t, it);
}

void cpu_attn_tiles(const attn *t, attn_item *it, int64_t tile, int64_t end, float *parts) {
    attend(t, it, tile, end, parts);
}

void cpu_attn_join(const attn *t, attn_item *it, int64_t n, float *parts) {
    begin_rows(t, it);
    for (int64_t i = 0; i < n; i++) {
        open_part(t, it, parts, i);
        merge_rows(t, it);
    }
    finish_rows(t, it);
}
