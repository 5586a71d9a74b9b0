// attn: softmax(scale * q K^T) V over the blocks of each row's sequence (FlashAttention's tiling on
// the pages of PagedAttention).
//
// A work item is (block of rows of one sequence, kv head): all query heads of the group pass over
// each tile of 64 positions while it is at hand, so K and V are read once. A sequence that is long
// beside the rest of its step, and has few rows, is split over positions as well:
//
//   item 0   tiles 0 .. 15   -> parts 0 .. 15
//   item 1   tiles 16 .. 31  -> parts 16 .. 31
//   item 2   tiles 32 .. 40  -> parts 32 .. 40, and whoever is last merges all, left to right
//
// Merging is the same whether the parts were kept or not, so how a step is cut changes no bit.
#include <math.h>
#include <string.h>

#include "attn.h"

enum {
    LEAST_TILES = 4,       // of an item of a split sequence
    ITEMS_OF_A_WORKER = 8, // that a step is cut into, at least
    PARTS_BYTES = 32 << 20,
    SMALL_BYTES = 1 << 20,
};

// ---- room --------------------------------------------------------------------------------------

// Parts for one sequence over the whole cache and eight query heads a kv head; less when that is
// much: what finds no room is not split. A large block costs memory only where it is touched.
static uint64_t parts_bytes(const pgd_kv *kv) {
    const uint64_t tiles =
        (uint64_t)kv->n_blocks * (uint64_t)kv->desc.block_tokens / PGD_CPU_TILE + 1;
    const uint64_t bytes =
        tiles * (uint64_t)kv->desc.heads * (uint64_t)attn_part_floats(&kv->desc, 8) * sizeof(float);
    return bytes < SMALL_BYTES ? bytes : PARTS_BYTES;
}

bool cpu_attn_room_make(const pgd_host *host, pgd_kv *kv) {
    const uint64_t parts = parts_bytes(kv);
    kv->n_workers = host->team_size(host);
    kv->room_floats = cpu_attn_layout(&kv->desc).floats;
    kv->parts_floats = (int64_t)(parts / sizeof(float));
    kv->rooms = host->alloc(host, kv->n_workers * kv->room_floats * sizeof(float), CPU_ALIGN);
    kv->parts = host->alloc(host, parts, CPU_ALIGN);
    kv->arrived = host->alloc(host, CPU_ATTN_SPLITS * sizeof(*kv->arrived), CPU_ALIGN);
    if (kv->rooms == NULL || kv->parts == NULL || kv->arrived == NULL) {
        cpu_attn_room_free(host, kv);
        return false;
    }
    return true;
}

void cpu_attn_room_free(const pgd_host *host, pgd_kv *kv) {
    host->free(host, kv->rooms);
    host->free(host, kv->parts);
    host->free(host, (void *)kv->arrived);
}

// ---- how a step is cut -------------------------------------------------------------------------

// A walk over the sequences of a step: what comes before sequence s, and s itself.
typedef struct walk {
    uint64_t run; // of attn over this cache
    int64_t s;
    int64_t items;  // of the sequences before s
    int64_t floats; // of parts before those of s
    int64_t splits; // kv heads of split sequences before s
    // sequence s
    int64_t n;      // items
    int64_t chunks; // items of a kv head when it is split, else 1
    int64_t tiles;  // of a split sequence
} walk;

_Static_assert(sizeof(walk) <= ATTN_CURSOR_FLOATS * sizeof(float),
               "a worker's room keeps its walk");

static int64_t seq_rows(const attn *t, int64_t s) {
    return (int64_t)t->b->q_start[s + 1] - t->b->q_start[s];
}

// Positions that rows [first, first + n) of sequence s see together.
static void rows_see(const attn *t, int64_t s, int64_t first, int64_t n, int64_t *from,
                     int64_t *to) {
    const int64_t kv_len = t->b->kv_len[s];
    const int64_t position = kv_len - seq_rows(t, s) + first;
    int64_t unused = 0;
    cpu_attn_visible(t->a, position, kv_len, from, &unused);
    cpu_attn_visible(t->a, position + n - 1, kv_len, &unused, to);
}

static int64_t tiles_of(int64_t from, int64_t to) {
    return from < to ? (to - 1) / PGD_CPU_TILE - from / PGD_CPU_TILE + 1 : 0;
}

// Items of a kv head and row block, times the kv heads.
static int64_t across(const attn *t) {
    return t->kv->desc.heads * t->parts;
}

static int64_t seq_floats(const attn *t, const walk *w) {
    return w->tiles * across(t) * attn_part_floats(&t->kv->desc, t->rows * t->heads);
}

// Looks at sequence w->s.
static void look(const attn *t, walk *w) {
    const int64_t rows = seq_rows(t, w->s);
    const int64_t blocks = (rows + t->rows - 1) / t->rows;
    int64_t from = 0;
    int64_t to = 0;
    w->n = blocks * across(t);
    w->chunks = 1;
    w->tiles = 0;
    if (blocks != 1) {
        return;
    }
    rows_see(t, w->s, 0, rows, &from, &to);
    w->tiles = tiles_of(from, to);
    if (w->tiles > t->per && w->splits + across(t) <= CPU_ATTN_SPLITS &&
        w->floats + seq_floats(t, w) <= t->kv->parts_floats) {
        w->chunks = (w->tiles + t->per - 1) / t->per;
        w->n *= w->chunks;
    }
}

static void begin_walk(const attn *t, walk *w) {
    *w = (walk){.run = t->run};
    if (t->n_seqs > 0) {
        look(t, w);
    }
}

static void step_walk(const attn *t, walk *w) {
    w->items += w->n;
    if (w->chunks > 1) {
        w->floats += seq_floats(t, w);
        w->splits += across(t);
    }
    if (++w->s < t->n_seqs) {
        look(t, w);
    }
}

// ---- items handed out --------------------------------------------------------------------------

// The item with number `index` within the sequence of w. Later row blocks, which see more, go
// first. Gives the number of its chunk.
static int64_t open_item(const attn *t, const walk *w, int64_t index, attn_item *it) {
    const int64_t n = seq_rows(t, w->s);
    const int64_t outer = index / across(t); // row block or chunk
    const int64_t block = w->chunks > 1 ? 0 : (n + t->rows - 1) / t->rows - 1 - outer;
    const int64_t part = index % t->parts;
    it->first = t->b->q_start[w->s] + block * t->rows;
    it->rows = cpu_min(t->rows, n - block * t->rows);
    it->kv_len = t->b->kv_len[w->s];
    it->position = it->kv_len - n + block * t->rows;
    it->kv_head = index % across(t) / t->parts;
    it->head = it->kv_head * t->group + part * t->heads;
    it->heads = cpu_min(t->heads, t->group - part * t->heads);
    it->blocks = t->b->table + (int64_t)t->b->seq_slot[w->s] * t->b->caps.cap_blocks[t->a->group];
    rows_see(t, w->s, block * t->rows, it->rows, &it->from, &it->to);
    return w->chunks > 1 ? outer : 0;
}

static void open_room(const attn *t, float *room, attn_item *it) {
    const attn_room r = cpu_attn_layout(&t->kv->desc);
    it->k = (unsigned char *)(room + r.k);
    it->v = (unsigned char *)(room + r.v);
    it->q = room + r.q;
    it->s = room + r.s;
    it->p = room + r.p;
    it->o = room + r.o;
    it->o_t = room + r.o_t;
    it->max = room + r.state;
    it->sum = it->max + CPU_ATTN_ROWS;
    it->max_t = it->sum + CPU_ATTN_ROWS;
    it->sum_t = it->max_t + CPU_ATTN_ROWS;
}

// One chunk of a split; the last of its kv head to be done merges them all.
static void split_item(const attn *t, const walk *w, int64_t index, int64_t chunk, attn_item *it) {
    const int64_t head = index % across(t);
    float *parts = t->kv->parts + w->floats + head * (seq_floats(t, w) / across(t));
    _Atomic uint32_t *arrived = &t->kv->arrived[w->splits + head];
    cpu_attn_tiles(t, it, chunk * t->per, cpu_min((chunk + 1) * t->per, w->tiles), parts);
    if (atomic_fetch_add_explicit(arrived, 1, memory_order_acq_rel) + 1 == (uint32_t)w->chunks) {
        atomic_store_explicit(arrived, 0, memory_order_relaxed);
        cpu_attn_join(t, it, w->tiles, parts);
    }
}

// Numbers a worker is given only rise, so its walk goes on where it stopped.
static void attn_items(void *ctx, int64_t i0, int64_t i1, uint32_t worker) {
    const attn *t = ctx;
    float *room = t->kv->rooms + worker * t->kv->room_floats;
    walk *w = (walk *)(void *)(room + cpu_attn_layout(&t->kv->desc).cursor);
    attn_item it;
    if (w->run != t->run) {
        begin_walk(t, w);
    }
    for (int64_t i = i0; i < i1; i++) {
        while (i >= w->items + w->n) {
            step_walk(t, w);
        }
        open_room(t, room, &it);
        const int64_t chunk = open_item(t, w, i - w->items, &it);
        if (w->chunks > 1) {
            split_item(t, w, i - w->items, chunk, &it);
        } else {
            cpu_attn_whole(t, &it);
        }
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
    rows_see(t, s, 0, n, &from, &to);
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

// Tiles of an item of a split sequence, so that every worker gets several items.
static void set_cut(attn *t, int64_t tiles) {
    t->per = INT64_MAX;
    if (t->kv->n_workers > 1) {
        t->per = cpu_max(LEAST_TILES, tiles / (ITEMS_OF_A_WORKER * (int64_t)t->kv->n_workers) + 1);
    }
}

static pgd_status attn_live(cpu_op *op) {
    attn *t = CPU_STATE(attn, op);
    int64_t floats = 0;
    int64_t tiles = 0;
    walk w;
    PGD_TRY(check_counts(op));
    t->n_seqs = op->batch.head->n_seqs;
    t->run = ++t->a->kv->n_runs;
    for (int64_t s = 0; s < t->n_seqs; s++) {
        const int64_t rows = seq_rows(t, s);
        int64_t from = 0;
        int64_t to = 0;
        PGD_TRY(check_sequence(op->x, t, s, op->rows));
        if (rows > 0) {
            rows_see(t, s, 0, rows, &from, &to);
            tiles += (rows + t->rows - 1) / t->rows * tiles_of(from, to) * across(t);
            floats += rows * t->b->kv_len[s] * t->a->q.shape[1] * 8;
        }
    }
    set_cut(t, tiles);
    for (begin_walk(t, &w); w.s < t->n_seqs;) {
        step_walk(t, &w);
    }
    cpu_phase_set(&op->phases[0], w.items, w.items > 0 ? floats / w.items : 0, 1);
    return PGD_OK;
}

// q and p are rounded when the option attn says so and the cache is one of bf16.
static void choose_kernels(attn *t, const cpu_backend *self) {
    const pgd_kv_desc *d = &t->kv->desc;
    t->dots = self->attn_dtype == PGD_BF16 && d->k_dtype == PGD_BF16 && d->v_dtype == PGD_BF16;
    t->direct_k = d->block_tokens % ATTN_PIECE == 0;
    t->direct_v = t->direct_k && d->v_dim % ATTN_PIECE == 0;
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
    t->parts = (t->group + t->heads - 1) / t->heads;
    choose_kernels(t, cpu_self(op->x->dev));
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
