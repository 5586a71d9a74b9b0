// Graphs: recorded once, launched over steps of other sizes; every launch gives the bytes that the
// same calls give one by one. Nothing is checked on a device that records no graphs.
#include "ops.h"

#include <string.h>

#include "base/fail.h"

enum { SEQS = 9, LONGEST = 130, MOST_ROWS = 160 };

typedef struct chain {
    pgd_qkv_rope_write_args qkv;
    pgd_attn_args attn;
    pgd_gather_rows_args gather;
    pgd_argmax_args argmax;
} chain;

static void call_all(ops_fixture *f, const chain *c) {
    ops_run_dev(f, PGD_OP_qkv_rope_write, &c->qkv);
    ops_run_dev(f, PGD_OP_attn, &c->attn);
    ops_run_dev(f, PGD_OP_gather_rows, &c->gather);
    ops_run_dev(f, PGD_OP_argmax, &c->argmax);
}

// NULL: the device has no graphs, or the case is broken.
static pgd_graph *record(ops_fixture *f, const chain *c) {
    const pgd_graph_desc desc = {.size = sizeof(desc), .key = 1};
    pgd_graph *graph = NULL;
    pgd_status code;
    if (f->broken) {
        return NULL;
    }
    code = f->d->graph->begin(f->d, f->queue, &desc);
    if (code == PGD_UNSUPPORTED) {
        return NULL;
    }
    if (code == PGD_OK) {
        call_all(f, c);
        code = f->d->graph->end(f->d, f->queue, &graph);
    }
    if (code != PGD_OK) {
        ops_fail(f, "recording fails: %s", pgd_fail_last());
        f->broken = 1;
    }
    return graph;
}

static void launch(ops_fixture *f, pgd_graph *graph) {
    if (!f->broken && f->d->graph->launch(f->d, f->queue, graph) != PGD_OK) {
        ops_fail(f, "the launch fails: %s", pgd_fail_last());
        f->broken = 1;
    }
}

// A step of some sequences, each with what follows what it has.
static ops_batch_spec draw_step(ops_fixture *f, int32_t *len) {
    ops_batch_spec spec = {.block_tokens = f->block_tokens};
    const int32_t decodes = (int32_t)ops_between(&f->rng, 0, 2);
    int32_t room = MOST_ROWS, s;
    for (s = 0; s < SEQS; s++) {
        const int32_t left = LONGEST - len[s] < room ? LONGEST - len[s] : room;
        const int32_t rows = decodes > 0 ? 1 : (int32_t)ops_between(&f->rng, 1, 40);
        if (left < 1 || ops_between(&f->rng, 0, 2) == 0) {
            continue;
        }
        ops_seq *seq = &spec.seqs[spec.n_seqs++];
        seq->rows = rows < left ? rows : left;
        len[s] += seq->rows;
        seq->kv_len = len[s];
        seq->slot = s;
        seq->out = decodes > 0 || ops_between(&f->rng, 0, 1) == 1;
        room -= seq->rows;
    }
    return spec;
}

static void replay(ops_fixture *f, const chain *c, pgd_graph *graph, const ops_tensor *out,
                   const ops_tensor *rows, const ops_tensor *ids) {
    int32_t len[SEQS] = {0}, step;
    for (step = 0; step < 12 && f->broken + f->wrong == 0; step++) {
        const ops_batch_spec spec = draw_step(f, len);
        ops_batch_fill(f, &spec);
        launch(f, graph);
        ops_fetch(f);
        ops_adopt(f, out);
        ops_adopt(f, rows);
        ops_adopt(f, ids);
        ops_restart(f);
        call_all(f, c);
        ops_fetch(f);
        ops_compare(f, out, f->n_rows, OPS_EXACT, 0);
        ops_compare(f, rows, f->n_out, OPS_EXACT, 0);
        ops_compare(f, ids, f->n_out, OPS_EXACT, 0);
        if (f->wrong) {
            ops_fail(f, "in step %d of %d rows", (int)step, (int)f->n_rows);
        }
    }
}

// The head on the device and in its mirror.
static void upload_head(ops_fixture *f, const pgd_batch_head *head) {
    const ops_memory *m = &f->memories[f->block];
    memcpy(f->mirror, head, sizeof(*head));
    ops_upload(f, m->buffer, 0, m->host, sizeof(*head));
}

// Counts that do not fit fail the launch with a status, and the next one is right. A device may
// read them from the block or, as it cannot wait for itself, from the mirror.
static void refuse(ops_fixture *f, pgd_graph *graph) {
    pgd_batch_head *head = ops_array(f, 0);
    const int32_t rows = head->n_tokens;
    if (f->broken) {
        return;
    }
    head->n_tokens = f->batch[OPS_HOST].cap_tokens + 1;
    upload_head(f, head);
    if (f->d->graph->launch(f->d, f->queue, graph) != PGD_INVALID) {
        ops_fail(f, "a launch over more rows than there are is not refused");
    }
    head->n_tokens = rows;
    upload_head(f, head);
    launch(f, graph);
}

typedef struct tensors {
    ops_tensor x, norm_w, normed, qkv, q, table, out, rows, ids;
    int64_t hq, hkv;
} tensors;

enum { DIM = 32 };

static void make_tensors(ops_fixture *f, tensors *t, int64_t n, int64_t k) {
    const int64_t table_shape[3] = {LONGEST, DIM / 2, 2};
    const int32_t cap = f->batch[0].cap_tokens;
    t->x = ops_make2(f, "x", PGD_F32, cap, k, cap, OPS_FILL_NORMAL);
    t->norm_w = ops_make1(f, "norm_w", PGD_F32, k, OPS_FILL_NEAR_ONE);
    t->normed = ops_make2(f, "normed", PGD_F32, cap, k, 0, OPS_FILL_NAN);
    t->qkv = ops_make2(f, "qkv", PGD_F32, cap, n, 0, OPS_FILL_NAN);
    t->q = ops_heads(&t->qkv, "q", 0, t->hq, DIM);
    t->table = ops_make(f, "table", PGD_F32, 3, table_shape, 0, LONGEST, OPS_FILL_NORMAL);
    t->out = ops_make2(f, "out", PGD_F32, cap, t->hq * DIM, 0, OPS_FILL_NAN);
    t->rows = ops_make2(f, "rows", PGD_F32, OPS_SEQS, t->hq * DIM, 0, OPS_FILL_NAN);
    t->ids = ops_make1(f, "ids", PGD_I32, OPS_SEQS, OPS_FILL_ZERO);
    ops_may_write(f, &t->normed);
    ops_may_write(f, &t->qkv);
    ops_may_write(f, &t->out);
    ops_may_write(f, &t->rows);
    ops_may_write(f, &t->ids);
    ops_may_write_tokens(f);
}

static void chain_of(ops_fixture *f, const tensors *t, chain *c) {
    const pgd_batch *batch = &f->batch[OPS_DEV];
    const ops_tensor k = ops_heads(&t->qkv, "k", t->hq * DIM, t->hkv, DIM);
    const ops_tensor v = ops_heads(&t->qkv, "v", (t->hq + t->hkv) * DIM, t->hkv, DIM);
    c->qkv = (pgd_qkv_rope_write_args){.size = sizeof(c->qkv),
                                       .rows = PGD_ROWS_TOKENS,
                                       .batch = batch,
                                       .x = t->x.side[OPS_DEV],
                                       .norm_w = t->norm_w.side[OPS_DEV],
                                       .normed = t->normed.side[OPS_DEV],
                                       .qkv = t->qkv.side[OPS_DEV],
                                       .q = t->q.side[OPS_DEV],
                                       .k = k.side[OPS_DEV],
                                       .v = v.side[OPS_DEV],
                                       .table = t->table.side[OPS_DEV],
                                       .rot_dim = DIM,
                                       .eps = 1e-5F};
    c->attn = (pgd_attn_args){.size = sizeof(c->attn),
                              .rows = PGD_ROWS_TOKENS,
                              .batch = batch,
                              .q = t->q.side[OPS_DEV],
                              .out = ops_heads(&t->out, "out", 0, t->hq, DIM).side[OPS_DEV],
                              .scale = 0.2F,
                              .causal = 1};
    c->gather = (pgd_gather_rows_args){.size = sizeof(c->gather),
                                       .rows = PGD_ROWS_OUTPUTS,
                                       .batch = batch,
                                       .x = t->out.side[OPS_DEV],
                                       .out = t->rows.side[OPS_DEV]};
    c->argmax = (pgd_argmax_args){.size = sizeof(c->argmax),
                                  .rows = PGD_ROWS_OUTPUTS,
                                  .batch = batch,
                                  .x = t->rows.side[OPS_DEV],
                                  .out = t->ids.side[OPS_DEV]};
}

static void run_graph(ops_fixture *f) {
    ops_batch_spec spec = {.block_tokens = 16, .n_seqs = SEQS, .cap_tokens = SEQS * LONGEST};
    const int64_t k = ops_between(&f->rng, 0, 1) == 0 ? 256 : 77;
    const int32_t dtype = ops_float(&f->rng);
    tensors t = {.hkv = ops_between(&f->rng, 1, 2)};
    pgd_graph *graph;
    int64_t n;
    chain c;
    int32_t s;
    t.hq = t.hkv << ops_between(&f->rng, 0, 2);
    n = (t.hq + 2 * t.hkv) * DIM;
    for (s = 0; s < SEQS; s++) {
        spec.seqs[s] = (ops_seq){.kv_len = LONGEST, .slot = s};
    }
    ops_batch(f, &spec);
    ops_weight(f, PGD_USE_GEMM, dtype, ops_rounding(f, dtype, PGD_F32), n, k, 3, spec.cap_tokens);
    ops_cache(f, ops_float(&f->rng), 1, (int32_t)t.hkv, DIM, 0, 0);
    make_tensors(f, &t, n, k);
    ops_say(f, " %lld on %lld heads, width %lld", (long long)t.hq, (long long)t.hkv, (long long)k);
    chain_of(f, &t, &c);
    ops_ask(f, PGD_OP_qkv_rope_write, &c.qkv);
    ops_ask(f, PGD_OP_attn, &c.attn);
    ops_ask(f, PGD_OP_gather_rows, &c.gather);
    ops_ask(f, PGD_OP_argmax, &c.argmax);
    ops_ready(f);
    c.qkv.w = f->weight[OPS_DEV];
    c.qkv.kv = c.attn.kv = f->kv[OPS_DEV];
    graph = record(f, &c);
    if (graph != NULL) {
        replay(f, &c, graph, &t.out, &t.rows, &t.ids);
        refuse(f, graph);
        f->d->graph->destroy(f->d, graph);
    }
}

void ops_suite_graph(ops_session *s) {
    ops_cases(s, "graph", s->cases, run_graph);
}
