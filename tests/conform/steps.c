// Level 3, steps: several of them enqueued before the host waits once, and none takes memory.
//
//   step k:  image k -> batch block;  embed -> gemm -> argmax -> last[slot];  step k + 1 reads last
//
// Arguments are spoilt when a call has returned and the mirror shows the next step at once, so a
// device that reads either of them late, or the block too early, gives other tokens.
#include "ops_session.h"

#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "dev/inner.h"

enum { STEPS = 5, VOCAB = 211, WIDTH = 64 };

typedef struct chain {
    pgd_embed_args embed[2];
    pgd_gather_rows_args gather[2];
    pgd_gemm_args gemm[2];
    pgd_argmax_args argmax[2];
} chain;

typedef struct steps {
    ops_fixture f;
    ops_batch_spec spec[STEPS];
    unsigned char *image[STEPS];
    int32_t rows[STEPS], outs[STEPS];
    ops_tensor x[STEPS], y[STEPS], logits[STEPS], ids[STEPS];
    int32_t want_rows;
    int32_t reserved0;
    chain calls[STEPS];
} steps;

// Sequences that are prefilled in one of the steps and decoded in all behind it, some pausing.
static void draw_steps(steps *s) {
    enum { SEQS = 7 };
    int32_t len[SEQS] = {0};
    for (int32_t k = 0; k < STEPS; k++) {
        ops_batch_spec *spec = &s->spec[k];
        *spec = (ops_batch_spec){.block_tokens = 16, .cap_tokens = 64, .vocab = VOCAB};
        for (int32_t i = 0; i < SEQS; i++) {
            const int32_t pauses = k > 0 && ops_between(&s->f.rng, 0, 3) == 0;
            const int32_t slot = (i * 5) % OPS_SEQS; // slot 0 is one of them
            if (pauses || (len[i] == 0 && i > k + 2)) {
                continue;
            }
            ops_seq *seq = &spec->seqs[spec->n_seqs++];
            seq->rows = len[i] == 0 ? (int32_t)ops_between(&s->f.rng, 2, 7) : 1;
            len[i] += seq->rows;
            *seq = (ops_seq){.rows = seq->rows, .kv_len = len[i], .slot = slot, .out = 1};
        }
    }
}

static void make_tensors(steps *s) {
    ops_fixture *f = &s->f;
    for (int32_t k = 0; k < STEPS; k++) {
        s->x[k] = ops_make2(f, "x", PGD_F32, 64, WIDTH, 64, OPS_FILL_ZERO);
        s->y[k] = ops_make2(f, "rows", PGD_F32, OPS_SEQS, WIDTH, OPS_SEQS, OPS_FILL_ZERO);
        s->logits[k] = ops_make2(f, "logits", PGD_F32, OPS_SEQS, VOCAB, OPS_SEQS, OPS_FILL_ZERO);
        s->ids[k] = ops_make1(f, "ids", PGD_I32, OPS_SEQS, OPS_FILL_ZERO);
        ops_may_write(f, &s->x[k]);
        ops_may_write(f, &s->y[k]);
        ops_may_write(f, &s->logits[k]);
        ops_may_write(f, &s->ids[k]);
    }
    ops_may_write_tokens(f);
}

static void make_calls(steps *s) {
    for (int32_t k = 0; k < STEPS; k++) {
        chain *c = &s->calls[k];
        for (int side = 0; side < 2; side++) {
            const pgd_batch *batch = &s->f.batch[side];
            c->embed[side] = (pgd_embed_args){.size = sizeof(pgd_embed_args),
                                              .rows = PGD_ROWS_TOKENS,
                                              .batch = batch,
                                              .w = s->f.weight[side],
                                              .out = s->x[k].side[side]};
            c->gather[side] = (pgd_gather_rows_args){.size = sizeof(pgd_gather_rows_args),
                                                     .rows = PGD_ROWS_OUTPUTS,
                                                     .batch = batch,
                                                     .x = s->x[k].side[side],
                                                     .out = s->y[k].side[side]};
            c->gemm[side] = (pgd_gemm_args){.size = sizeof(pgd_gemm_args),
                                            .rows = PGD_ROWS_OUTPUTS,
                                            .batch = batch,
                                            .w = s->f.weight[side],
                                            .x = s->y[k].side[side],
                                            .y = s->logits[k].side[side],
                                            .act = PGD_ACT_NONE,
                                            .alpha = -1};
            c->argmax[side] = (pgd_argmax_args){.size = sizeof(pgd_argmax_args),
                                                .rows = PGD_ROWS_OUTPUTS,
                                                .batch = batch,
                                                .x = s->logits[k].side[side],
                                                .out = s->ids[k].side[side]};
        }
    }
}

// The images of the steps, and the fixture ready to run them from its first state.
static void prepare(conform *c, steps *s, ops_session *session, int32_t number) {
    ops_fixture *f = &s->f;
    ops_batch_spec most = {
        .block_tokens = 16, .cap_tokens = 64, .n_seqs = OPS_SEQS, .vocab = VOCAB};
    ops_open(f, session, "queued steps", number);
    conform_ops_must(c, f);
    draw_steps(s);
    for (int32_t i = 0; i < OPS_SEQS; i++) {
        most.seqs[i] = (ops_seq){.kv_len = 48, .slot = i};
    }
    ops_batch(f, &most);
    ops_weight(f, PGD_USE_EMBED | PGD_USE_GEMM, PGD_F32, 0, VOCAB, WIDTH, 1, 64);
    make_tensors(s);
    make_calls(s);
    ops_ask(f, PGD_OP_embed, &s->calls[0].embed[OPS_DEV]);
    ops_ask(f, PGD_OP_gather_rows, &s->calls[0].gather[OPS_DEV]);
    ops_ask(f, PGD_OP_gemm, &s->calls[0].gemm[OPS_DEV]);
    ops_ask(f, PGD_OP_argmax, &s->calls[0].argmax[OPS_DEV]);
    ops_ready(f);
    conform_ops_must(c, f);
    make_calls(s);
    for (int32_t k = 0; k < STEPS; k++) {
        const uint64_t bytes = f->batch[OPS_HOST].upload_bytes;
        ops_batch_fill(f, &s->spec[k]);
        s->image[k] = conform_room(c, bytes);
        memcpy(s->image[k], f->memories[f->block].host, bytes);
        s->rows[k] = f->n_rows;
        s->outs[k] = f->n_out;
    }
    ops_restart(f);
    conform_ops_must(c, f);
}

static void run_reference(conform *c, steps *s) {
    const pgd_ops *ref = pgd_ref_ops();
    ops_fixture *f = &s->f;
    for (int32_t k = 0; k < STEPS; k++) {
        memcpy(f->memories[f->block].host, s->image[k], f->batch[OPS_HOST].upload_bytes);
        MUST(c,
             ref->embed(NULL, &s->calls[k].embed[OPS_HOST]) == PGD_OK &&
                 ref->gather_rows(NULL, &s->calls[k].gather[OPS_HOST]) == PGD_OK &&
                 ref->gemm(NULL, &s->calls[k].gemm[OPS_HOST]) == PGD_OK &&
                 ref->argmax(NULL, &s->calls[k].argmax[OPS_HOST]) == PGD_OK,
             "the reference refuses step %d", (int)k);
    }
}

static void run_device(conform *c, steps *s) {
    ops_fixture *f = &s->f;
    const pgd_device *d = f->d;
    const uint64_t bytes = f->batch[OPS_DEV].upload_bytes;
    for (int32_t k = 0; k < STEPS; k++) {
        chain *a = &s->calls[k];
        const pgd_copy copy = {.dst = f->memories[f->block].buffer,
                               .src_offset = (uint64_t)(uintptr_t)s->image[k],
                               .bytes = bytes};
        memcpy(f->mirror, s->image[k], bytes);
        MUST_OK(c, d->queue->copy(d, f->queue, &copy, 1), "queue.copy of a batch");
        MUST_OK(c, d->ops->embed(f->exec, &a->embed[OPS_DEV]), "embed");
        MUST_OK(c, d->ops->gather_rows(f->exec, &a->gather[OPS_DEV]), "gather_rows");
        MUST_OK(c, d->ops->gemm(f->exec, &a->gemm[OPS_DEV]), "gemm");
        MUST_OK(c, d->ops->argmax(f->exec, &a->argmax[OPS_DEV]), "argmax");
        memset(a->embed, 0x5a, sizeof(a->embed)); // read before the calls returned
        memset(a->gather, 0x5a, sizeof(a->gather));
        memset(a->gemm, 0x5a, sizeof(a->gemm));
        memset(a->argmax, 0x5a, sizeof(a->argmax));
    }
    memset(f->mirror, 0x5a, bytes);
}

void conform_queued(conform *c) {
    static steps s;
    ops_session session = conform_ops_session(c);
    for (int32_t i = 0; i < c->options->cases; i++) {
        memset(&s, 0, sizeof(s));
        prepare(c, &s, &session, i);
        run_reference(c, &s);
        run_device(c, &s);
        // The block's uploaded part is what came last.
        ops_memory *m = &s.f.memories[s.f.block];
        memcpy(m->before, s.image[STEPS - 1], s.f.batch[OPS_HOST].upload_bytes);
        ops_fetch(&s.f);
        for (int32_t k = 0; k < STEPS; k++) {
            ops_compare(&s.f, &s.x[k], s.rows[k], OPS_EXACT, 0);
            ops_compare(&s.f, &s.logits[k], s.outs[k], OPS_ONE, 0);
            ops_compare(&s.f, &s.ids[k], s.outs[k], OPS_EXACT, 0);
            if (s.f.wrong) {
                ops_fail(&s.f, "in step %d of %d, enqueued without a wait", (int)k, STEPS);
            }
            conform_ops_must(c, &s.f);
        }
        s.f.n_out = s.outs[STEPS - 1];
        ops_compare_tokens(&s.f);
        conform_ops_must(c, &s.f);
        ops_close(&s.f);
    }
    conform_note(c, "%d times %d steps", (int)c->options->cases, STEPS);
}

// From the copy of a batch to the signal nothing is allocated.
void conform_allocations(conform *c) {
    static steps s;
    ops_session session = conform_ops_session(c);
    uint64_t before, after, value;
    prepare(c, &s, &session, 0);
    for (int32_t i = 0; i < 4; i++) {
        run_device(c, &s); // the first rounds may grow what stays
        make_calls(&s);
        conform_ops_must(c, &s.f);
        ops_drain(&s.f);
    }
    before = pgd_mem_count();
    run_device(c, &s);
    MUST_OK(c, s.f.d->queue->signal(s.f.d, s.f.queue, &value), "queue.signal");
    after = pgd_mem_count();
    ops_drain(&s.f);
    int32_t host = 0;
    for (int32_t i = 0; i < s.f.n_asks; i++) {
        host |= s.f.places[i].place >= PGD_DEV_F2;
    }
    if (host) {
        conform_skip(c, "operations run on the host, which may take room");
    }
    MUST(c, before == after, "%llu allocations of the host table in %d steps",
         (unsigned long long)(after - before), STEPS);
}
