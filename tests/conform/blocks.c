// Level 3, the cache: blocks that sequences share, copies of blocks, images.
#include "ops_session.h"

#include <stdlib.h>
#include <string.h>

#include "dev/inner.h"

enum { BLOCK = 16, DIM = 32, HEADS = 2, SHARED = 48 };

typedef struct room {
    ops_fixture f;
    ops_tensor q, out, k, v;
    pgd_attn_args attn[2];
    pgd_kv_write_args write[2];
} room;

static int32_t *table_of(room *r, int32_t slot) {
    const pgd_batch *b = &r->f.batch[OPS_HOST];
    int32_t *table = ops_array(&r->f, b->block_table[0]);
    return table + slot * b->cap_blocks[0];
}

// Four sequences; all but the first begin with the blocks of the first.
static void make_batch(conform *c, room *r, int32_t share) {
    ops_batch_spec spec = {.block_tokens = BLOCK, .n_seqs = 4, .cap_tokens = 80};
    for (int32_t i = 0; i < 4; i++) {
        spec.seqs[i] = (ops_seq){.rows = i == 0 ? 1 : 7 * i,
                                 .kv_len = SHARED + 9 + 13 * i,
                                 .slot = (3 - i) * 4,
                                 .out = 1};
    }
    ops_batch(&r->f, &spec);
    conform_ops_must(c, &r->f);
    for (int32_t i = 1; i < 4 && share; i++) {
        memcpy(table_of(r, spec.seqs[i].slot), table_of(r, spec.seqs[0].slot),
               SHARED / BLOCK * sizeof(int32_t));
    }
}

static void make_ops(room *r, int32_t dtype) {
    ops_fixture *f = &r->f;
    const int64_t q_shape[3] = {80, 2 * HEADS, DIM}, k_shape[3] = {80, HEADS, DIM};
    r->q = ops_make(f, "q", dtype, 3, q_shape, 0, f->n_rows, OPS_FILL_NORMAL);
    r->out = ops_make(f, "out", dtype, 3, q_shape, 0, f->n_rows, OPS_FILL_NAN);
    r->k = ops_make(f, "k", dtype, 3, k_shape, 0, f->n_rows, OPS_FILL_NORMAL);
    r->v = ops_make(f, "v", dtype, 3, k_shape, 0, f->n_rows, OPS_FILL_NORMAL);
    ops_may_write(f, &r->out);
    for (int side = 0; side < 2; side++) {
        r->attn[side] = (pgd_attn_args){.size = sizeof(pgd_attn_args),
                                        .rows = PGD_ROWS_TOKENS,
                                        .batch = &f->batch[side],
                                        .layer = 1,
                                        .q = r->q.side[side],
                                        .out = r->out.side[side],
                                        .scale = 0.2F,
                                        .causal = 1};
        r->write[side] = (pgd_kv_write_args){.size = sizeof(pgd_kv_write_args),
                                             .rows = PGD_ROWS_TOKENS,
                                             .batch = &f->batch[side],
                                             .layer = 1,
                                             .k = r->k.side[side],
                                             .v = r->v.side[side]};
    }
}

static void prepare(conform *c, room *r, ops_session *s, int32_t number, int32_t share) {
    ops_fixture *f = &r->f;
    memset(r, 0, sizeof(*r));
    ops_open(f, s, c->check->name, number);
    conform_ops_must(c, f);
    make_batch(c, r, share);
    ops_cache(f, pgd_dev_info(f->dev)->kv_dtype, 2, HEADS, DIM, 0, 1);
    make_ops(r, pgd_dev_info(f->dev)->act_dtype);
    ops_ask(f, PGD_OP_attn, &r->attn[OPS_DEV]);
    ops_ask(f, PGD_OP_kv_write, &r->write[OPS_DEV]);
    ops_ready(f);
    conform_ops_must(c, f);
    for (int side = 0; side < 2; side++) {
        r->attn[side].kv = f->kv[side];
        r->write[side].kv = f->kv[side];
    }
}

static void compare_attn(conform *c, room *r) {
    ops_run(&r->f, PGD_OP_attn, &r->attn[OPS_HOST], &r->attn[OPS_DEV]);
    ops_fetch(&r->f);
    ops_compare(&r->f, &r->out, r->f.n_rows, OPS_ONE, 0);
    conform_ops_must(c, &r->f);
}

void conform_shared_blocks(conform *c) {
    static room r;
    ops_session s = conform_ops_session(c);
    for (int32_t i = 0; i < c->options->cases; i++) {
        prepare(c, &r, &s, i, 1);
        compare_attn(c, &r);
        // Each writes behind what it shares; the others see nothing of it.
        ops_run(&r.f, PGD_OP_kv_write, &r.write[OPS_HOST], &r.write[OPS_DEV]);
        ops_drain(&r.f);
        compare_attn(c, &r);
        ops_close(&r.f);
    }
}

static void copy_in_reference(room *r, const pgd_pair *pairs, uint32_t n) {
    const uint64_t bytes = pgd_ref_kv_block_bytes(&r->f.kv_desc);
    for (uint32_t i = 0; i < n; i++) {
        memcpy(r->f.ref_kv.mem + (uint64_t)pairs[i].to * bytes,
               r->f.ref_kv.mem + (uint64_t)pairs[i].from * bytes, bytes);
    }
}

// Pairs in list order: what one pair writes the next one reads.
void conform_copied_blocks(conform *c) {
    static room r;
    ops_session s = conform_ops_session(c);
    for (int32_t i = 0; i < c->options->cases; i++) {
        pgd_pair pairs[6];
        prepare(c, &r, &s, i, 0);
        const int32_t last = r.f.n_blocks - 1;
        for (int32_t k = 0; k < 6; k++) {
            pairs[k].from =
                k > 0 && k % 2 == 1 ? pairs[k - 1].to : (int32_t)ops_between(&r.f.rng, 1, last);
            do {
                pairs[k].to = (int32_t)ops_between(&r.f.rng, 1, last);
            } while (pairs[k].to == pairs[k].from);
        }
        copy_in_reference(&r, pairs, 6);
        MUST_OK(c, r.f.d->kv->copy_blocks(r.f.d, r.f.queue, r.f.kv[OPS_DEV], pairs, 6),
                "kv.copy_blocks");
        memset(pairs, 0, sizeof(pairs)); // read before the return
        ops_compare_cache(&r.f, OPS_EXACT, 0);
        conform_ops_must(c, &r.f);
        // A sequence goes on in its copy; the original stays as it is.
        ops_run(&r.f, PGD_OP_kv_write, &r.write[OPS_HOST], &r.write[OPS_DEV]);
        ops_compare_cache(&r.f, OPS_EXACT, 0);
        conform_ops_must(c, &r.f);
        ops_close(&r.f);
    }
}

// ---- images ------------------------------------------------------------------------------------

static void move(conform *c, room *r, const pgd_kv_image *image, int32_t write) {
    const pgd_kv_table *kv = r->f.d->kv;
    pgd_status code = write ? kv->write_blocks(r->f.d, r->f.queue, r->f.kv[OPS_DEV], image)
                            : kv->read_blocks(r->f.d, r->f.queue, r->f.kv[OPS_DEV], image);
    MUST_OK(c, code, write ? "kv.write_blocks" : "kv.read_blocks");
    ops_drain(&r->f);
}

// Native bytes of some blocks, put into others of the same cache.
static void native_image(conform *c, room *r) {
    enum { N = 3 };
    pgd_kv_plan plan = {.size = sizeof(plan)};
    int32_t from[N], to[N];
    pgd_pair pairs[N];
    for (int32_t i = 0; i < N; i++) {
        from[i] = 1 + i;
        to[i] = r->f.n_blocks - 1 - i;
        pairs[i] = (pgd_pair){from[i], to[i]};
    }
    MUST_OK(c, r->f.d->kv->plan(r->f.d, &r->f.kv_desc, &plan), "kv.plan");
    pgd_kv_image image = {.size = sizeof(image), .format = PGD_KV_NATIVE, .n_ids = N, .ids = from};
    image.mem.bytes = N * plan.block_bytes;
    image.mem.buffer = conform_buffer(c, image.mem.bytes);
    move(c, r, &image, 0);
    image.ids = to;
    move(c, r, &image, 1);
    copy_in_reference(r, pairs, N);
    ops_compare_cache(&r->f, OPS_EXACT, 0);
    conform_ops_must(c, &r->f);
    c->d->memory->destroy(c->d, image.mem.buffer);
}

// A canonical image of f32 holds exactly what the cache holds, over a count of tokens that ends
// within a block.
static void canonical_image(conform *c, room *r) {
    enum { N = 3, TOKENS = 2 * BLOCK + 5 };
    const pgd_kv_desc *d = &r->f.kv_desc;
    const int64_t width = (int64_t)d->heads * d->k_dim;
    const uint64_t bytes = (uint64_t)(d->layers * 2 * TOKENS * width) * sizeof(float);
    const int32_t *table = table_of(r, 12);
    int32_t ids[N];
    float *got = conform_room(c, bytes);
    memcpy(ids, table, sizeof(ids));
    pgd_kv_image image = {.size = sizeof(image),
                          .format = PGD_KV_CANONICAL,
                          .dtype = PGD_F32,
                          .n_ids = N,
                          .n_tokens = TOKENS,
                          .ids = ids};
    image.mem = (pgd_range){conform_buffer(c, bytes), 0, bytes};
    move(c, r, &image, 0);
    ops_download(&r->f, got, image.mem.buffer, 0, bytes);
    for (int64_t i = 0; i < (int64_t)(bytes / sizeof(float)); i++) {
        const int64_t row = i / width, layer = row / (2 * TOKENS), which = row / TOKENS % 2;
        const int64_t token = row % TOKENS;
        const double want =
            pgd_ref_load(d->k_dtype,
                         pgd_ref_kv_row(&r->f.ref_kv, (int32_t)layer, (int32_t)which,
                                        (int64_t)ids[token / BLOCK] * BLOCK + token % BLOCK),
                         i % width);
        MUST(c, (double)got[i] == want,
             "kv.read_blocks, canonical: layer %d, %s, token %d, element %d is %g instead of %g",
             (int)layer, which == 0 ? "k" : "v", (int)token, (int)(i % width), (double)got[i],
             want);
    }
    move(c, r, &image, 1);
    ops_compare_cache(&r->f, OPS_EXACT, 0);
    conform_ops_must(c, &r->f);
    c->d->memory->destroy(c->d, image.mem.buffer);
}

void conform_images(conform *c) {
    static room r;
    ops_session s = conform_ops_session(c);
    for (int32_t i = 0; i < 3; i++) {
        prepare(c, &r, &s, i, 0);
        c->dev = r.f.dev;
        c->d = r.f.d;
        canonical_image(c, &r);
        native_image(c, &r);
        ops_close(&r.f);
    }
}
