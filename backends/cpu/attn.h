// Attention's two files: op_attn.c cuts a step into items, attn_item.c works on one.
#ifndef PGD_BACKENDS_CPU_ATTN_H
#define PGD_BACKENDS_CPU_ATTN_H

#include "cpu.h"

enum {
    ATTN_PIECE = 16, // positions of a piece of a tile
    ATTN_PIECES = PGD_CPU_TILE / ATTN_PIECE,
    ATTN_CURSOR_FLOATS = 32, // how far a worker has come with a step's items
};

// One attn op with its addresses.
typedef struct attn {
    const pgd_attn_args *a;
    const pgd_cpu_kernels *k;
    const pgd_kv *kv;
    const cpu_batch *b;
    cpu_view q, out, lse;
    const float *sinks;  // NULL = none
    const float *slopes; // NULL = none
    pgd_cpu_score how;
    bool dots;     // q and the weights of V are rounded to bf16
    bool direct_k; // pieces are read where they lie; of I8 if there are few rows
    bool direct_v;
    int64_t group;  // query heads of a kv head
    int64_t heads;  // query heads of an item
    int64_t rows;   // rows of an item
    int64_t parts;  // items of a kv head and row block: group / heads, rounded up
    int64_t n_seqs; // live
    int64_t per;    // tiles of an item of a sequence that is split
    uint64_t run;   // number of this run among those over the cache
} attn;

// What one item works on. Query row i * heads + h is row `first + i`, head `head + h`.
typedef struct attn_item {
    int64_t first; // row of the step
    int64_t rows;
    int64_t position; // of the first row
    int64_t kv_len;
    int64_t kv_head;
    int64_t head;
    int64_t heads;
    int64_t from; // positions that its rows see: [from, to)
    int64_t to;
    const int32_t *blocks;
    // room of the worker
    unsigned char *k, *v; // pieces that have to be put together
    float *q, *s, *p, *o, *o_t, *max, *sum, *max_t, *sum_t;
} attn_item;

// The room of one worker, in floats from its start.
typedef struct attn_room {
    uint64_t k, v, q, s, p, o, o_t, state, cursor;
    uint64_t floats;
} attn_room;

attn_room cpu_attn_layout(const pgd_kv_desc *d);

// Positions seen by the row at `position`: [*from, *to).
void cpu_attn_visible(const pgd_attn_args *a, int64_t position, int64_t kv_len, int64_t *from,
                      int64_t *to);

// Floats of a row of o: v_dim, rounded up to whole vectors.
static inline int64_t attn_ld(const pgd_kv_desc *d) {
    return (d->v_dim + ATTN_PIECE - 1) / ATTN_PIECE * ATTN_PIECE;
}

// What a tile leaves for `rows` query rows: their max, sum and o.
static inline int64_t attn_part_floats(const pgd_kv_desc *d, int64_t rows) {
    return rows * (attn_ld(d) + 2);
}

// All tiles of the item, to the end: out and lse.
void cpu_attn_whole(const attn *t, attn_item *it);
// Tiles [tile, end), numbered from that of it->from; each leaves its part behind `parts`.
void cpu_attn_tiles(const attn *t, attn_item *it, int64_t tile, int64_t end, float *parts);
// Merges the n parts from left to right: out and lse. The same bits as cpu_attn_whole.
void cpu_attn_join(const attn *t, attn_item *it, int64_t n, float *parts);

#endif
