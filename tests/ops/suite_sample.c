// Ops that end in a token: argmax, sample, head_sample. Ids are equal where logits are.
#include "ops.h"

#include <math.h>
#include <string.h>

// Logits with ties, and now and then NaN, infinities or a row of NaN.
static ops_tensor make_logits(ops_fixture *f, int64_t rows, int64_t live, int64_t vocab) {
    ops_tensor t = ops_make2(f, "logits", PGD_F32, rows, vocab, live, OPS_FILL_NORMAL);
    const pgd_tensor *h = &t.side[OPS_HOST];
    int64_t r, i, kind;
    if (f->broken) {
        return t;
    }
    for (r = 0; r < live; r++) {
        float *row = (float *)(uintptr_t)h->offset + r * h->stride[0];
        kind = ops_between(&f->rng, 0, 7);
        for (i = 0; i < vocab; i++) {
            if (kind < 3) {
                row[i] = rintf(row[i] * 4) / 2; // many ties
            } else if (kind == 3) {
                row[i] = row[i] > 0.5F ? NAN : row[i] < -0.5F ? -INFINITY : row[i];
            } else if (kind == 4 && r % 2 == 0) {
                row[i] = NAN;
            } else {
                row[i] *= kind == 5 ? 3 : 0.5F;
            }
        }
    }
    return t;
}

static int64_t draw_vocab(ops_fixture *f) {
    return ops_is_long(&f->rng, 10) ? 32003 : ops_width(&f->rng);
}

static void run_argmax(ops_fixture *f) {
    ops_batch_spec spec = ops_plain_batch((int32_t)ops_rows(&f->rng, OPS_SEQS));
    const int64_t vocab = draw_vocab(f);
    ops_tensor x, ids;
    pgd_argmax_args a[2];
    int side, i;
    for (i = 0; i < OPS_SEQS; i++) {
        spec.seqs[i].hidden = ops_between(&f->rng, 0, 4) == 0;
    }
    ops_batch(f, &spec);
    x = make_logits(f, f->n_out + ops_between(&f->rng, 0, 3), f->n_out, vocab);
    ids = ops_make1(f, "ids", PGD_I32, x.side[0].shape[0], OPS_FILL_ZERO);
    ops_say(f, " %d rows of %lld", (int)f->n_out, (long long)vocab);
    ops_may_write(f, &ids);
    ops_may_write_tokens(f);
    for (side = 0; side < 2; side++) {
        a[side] = (pgd_argmax_args){.size = sizeof(a[side]),
                                    .rows = PGD_ROWS_OUTPUTS,
                                    .batch = &f->batch[side],
                                    .x = x.side[side],
                                    .out = ids.side[side]};
    }
    ops_ask(f, PGD_OP_argmax, &a[OPS_DEV]);
    ops_ready(f);
    ops_run(f, PGD_OP_argmax, &a[OPS_HOST], &a[OPS_DEV]);
    ops_fetch(f);
    ops_compare(f, &ids, f->n_out, OPS_EXACT, 0);
    ops_compare_tokens(f);
}

typedef struct draw_case {
    ops_tensor logits, ids;
    ops_told told;
    pgd_sample_args a[2];
} draw_case;

static void open_draw(ops_fixture *f, draw_case *c, int64_t vocab, int64_t n_best, int fields) {
    const int64_t cap = f->n_out + ops_between(&f->rng, 0, 3);
    int side;
    c->logits = make_logits(f, cap, f->n_out, vocab);
    c->ids = ops_make1(f, "ids", PGD_I32, cap, OPS_FILL_ZERO);
    ops_may_write(f, &c->ids);
    ops_may_write(f, &c->logits);
    ops_may_write_tokens(f);
    if (fields) {
        c->told = ops_make_told(f, cap, n_best, vocab);
    }
    for (side = 0; side < 2; side++) {
        c->a[side] = (pgd_sample_args){.size = sizeof(c->a[side]),
                                       .rows = PGD_ROWS_OUTPUTS,
                                       .batch = &f->batch[side],
                                       .logits = c->logits.side[side],
                                       .ids = c->ids.side[side],
                                       .logprobs = c->told.logprobs.side[side],
                                       .top_ids = c->told.top_ids.side[side],
                                       .state = c->told.state.side[side],
                                       .ranks = c->told.ranks.side[side]};
    }
    ops_ask(f, PGD_OP_sample, &c->a[OPS_DEV]);
    ops_ready(f);
}

// Many rows: a wrong filter shows only when a token comes out that should not, or the other way.
static void run_sample(ops_fixture *f) {
    ops_batch_spec spec = ops_plain_batch(
        ops_between(&f->rng, 0, 3) == 0 ? (int32_t)ops_rows(&f->rng, OPS_SEQS) : OPS_SEQS);
    const int64_t vocab = draw_vocab(f);
    draw_case c = {0};
    ops_draw_sampling(&f->rng, &spec);
    ops_batch(f, &spec);
    ops_say(f, " %d rows of %lld", (int)f->n_out, (long long)vocab);
    open_draw(f, &c, vocab, 0, 0);
    ops_run(f, PGD_OP_sample, &c.a[OPS_HOST], &c.a[OPS_DEV]);
    ops_fetch(f);
    ops_compare(f, &c.ids, f->n_out, OPS_EXACT, 0);
    ops_compare_tokens(f);
}

// Every field of a sampling row, mixed; three calls, so that what was counted counts.
static void run_fields(ops_fixture *f) {
    const int64_t kind = ops_between(&f->rng, 0, 11);
    const int64_t vocab = kind == 0 ? 131072 : kind == 1 ? 151936 : draw_vocab(f);
    const int64_t best = vocab < 700 && ops_between(&f->rng, 0, 1) == 0 ? vocab + 2 : 20;
    ops_batch_spec spec = ops_plain_batch(vocab > 100000 ? 3 : OPS_SEQS);
    draw_case c = {0};
    int call;
    spec.vocab = (int32_t)vocab;
    spec.lists = 1;
    ops_draw_sampling(&f->rng, &spec);
    ops_draw_fields(&f->rng, &spec, (int32_t)best);
    ops_batch(f, &spec);
    ops_say(f, " %d rows of %lld, %lld best", (int)f->n_out, (long long)vocab, (long long)best);
    open_draw(f, &c, vocab, best, 1);
    for (call = 0; call < 3 && !f->broken; call++) {
        const ops_memory *m = &f->memories[c.logits.memory]; // a device may change its logits
        ops_upload(f, m->buffer, 0, m->before, m->bytes);
        ops_run(f, PGD_OP_sample, &c.a[OPS_HOST], &c.a[OPS_DEV]);
    }
    ops_fetch(f);
    ops_compare(f, &c.ids, f->n_out, OPS_EXACT, 0);
    ops_compare_told(f, &c.told);
    ops_compare_tokens(f);
}

typedef struct head_case {
    int32_t dtype, residual;
    int32_t keep, has_norm, fields;
    int64_t vocab, width, best;
    ops_tensor x, norm_w, normed, logits, ids;
    ops_told told;
    pgd_head_sample_args a[2];
} head_case;

// 1 when the logits of such a row are promised.
static int asks_more(const pgd_sampling *s) {
    const int penalties =
        (s->repetition != 0 && s->repetition != 1) || s->presence != 0 || s->frequency != 0;
    if ((s->flags & PGD_SAMPLE_LOGPROBS) != 0) {
        return 1;
    }
    return (s->flags & PGD_SAMPLE_GIVEN) == 0 &&
           ((s->flags & PGD_SAMPLE_GREEDY) == 0 || s->mask_row > 0 || s->bias_count > 0 ||
            (s->state_row > 0 && penalties));
}

// Without logits: the device's id is as good as the best, as far as rounding can tell. Then it is
// made the best of the reference's row.
static void take_greedy(ops_fixture *f, const head_case *c, int64_t r, float *row) {
    const unsigned char *ids = f->memories[c->ids.memory].got + c->ids.side[OPS_DEV].offset;
    const int32_t got = ((const int32_t *)(const void *)ids)[r];
    float best = row[0], size = 0;
    int64_t i;
    for (i = 0; i < c->vocab; i++) {
        best = row[i] > best ? row[i] : best;
        size = fabsf(row[i]) > size ? fabsf(row[i]) : size;
    }
    if (got < 0 || got >= c->vocab || row[got] < best - size * 0x1p-6F) {
        ops_fail(f, "ids [%lld]: device %d is not the best", (long long)r, (int)got);
        return;
    }
    row[got] = INFINITY;
}

// The device's own logits through the reference give what the device gives.
static void compare_head(ops_fixture *f, const head_case *c) {
    const pgd_head_sample_args *h = &c->a[OPS_HOST];
    const pgd_sample_args a = {.size = sizeof(a),
                               .rows = h->rows,
                               .batch = h->batch,
                               .logits = h->logits,
                               .ids = h->ids,
                               .logprobs = h->logprobs,
                               .top_ids = h->top_ids,
                               .state = h->state,
                               .ranks = h->ranks};
    const pgd_sampling *sampling = ops_array(f, f->batch[OPS_HOST].sampling);
    const int32_t narrowest = c->has_norm ? c->dtype : 0;
    int64_t r;
    for (r = 0; r < f->n_out && !f->broken; r++) {
        float *row = (float *)(uintptr_t)h->logits.offset + r * h->logits.stride[0];
        const unsigned char *got = f->memories[c->logits.memory].got +
                                   c->logits.side[OPS_DEV].offset +
                                   (size_t)(r * h->logits.stride[0]) * sizeof(float);
        if (c->keep || asks_more(&sampling[r])) {
            ops_compare_values(f, "logits", PGD_F32, row, got, c->vocab, c->vocab, OPS_FUSED,
                               narrowest);
            memcpy(row, got, (size_t)c->vocab * sizeof(float));
        } else if ((sampling[r].flags & PGD_SAMPLE_GIVEN) == 0) {
            take_greedy(f, c, r, row);
        }
    }
    if (c->fields) {
        ops_told_restart(f, &c->told);
    }
    if (!f->broken && pgd_ref_sample(NULL, &a) != PGD_OK) {
        ops_fail(f, "the reference refuses the device's logits");
    }
    ops_compare(f, &c->ids, f->n_out, OPS_EXACT, 0);
    ops_compare_tokens(f);
    if (c->fields) {
        ops_compare_told(f, &c->told);
    }
}

static void draw_head(ops_fixture *f, head_case *c, ops_batch_spec *spec) {
    const int64_t greedy = ops_between(&f->rng, 0, 2); // none, some, all
    int i;
    c->dtype = ops_act(f);
    c->has_norm = ops_between(&f->rng, 0, 2) > 0;
    c->residual = c->has_norm && ops_between(&f->rng, 0, 1) == 0 ? PGD_F32 : c->dtype;
    c->vocab = ops_is_long(&f->rng, 6) ? 4099 : ops_width(&f->rng);
    c->width = ops_width(&f->rng);
    c->keep = ops_between(&f->rng, 0, 2) == 0;
    c->fields = ops_between(&f->rng, 0, 1) == 0;
    c->best = 7;
    spec->vocab = (int32_t)c->vocab;
    spec->lists = c->fields;
    ops_draw_sampling(&f->rng, spec);
    for (i = 0; i < OPS_SEQS; i++) {
        if (greedy == 2 || (greedy == 1 && ops_between(&f->rng, 0, 1) == 0)) {
            spec->sampling[i].flags = PGD_SAMPLE_GREEDY;
        }
    }
    if (c->fields) {
        ops_draw_fields(&f->rng, spec, (int32_t)c->best);
    }
    ops_say(f, " %lld x %lld, x %s, then %s, norm %d, greedy %d, fields %d, logits kept %d",
            (long long)c->vocab, (long long)c->width, pgd_dtype_name(c->residual),
            pgd_dtype_name(c->dtype), (int)c->has_norm, (int)greedy, (int)c->fields, (int)c->keep);
}

static void make_head(ops_fixture *f, head_case *c, int64_t cap) {
    c->x = ops_make2(f, "x", c->residual, cap, c->width, f->n_out, OPS_FILL_NORMAL);
    c->norm_w = ops_make1(f, "norm_w", PGD_F32, c->width, OPS_FILL_NEAR_ONE);
    c->normed = ops_make2(f, "normed", c->dtype, cap, c->width, f->n_out, OPS_FILL_NAN);
    c->logits = ops_make2(f, "logits", PGD_F32, cap, c->vocab, f->n_out, OPS_FILL_NAN);
    c->ids = ops_make1(f, "ids", PGD_I32, cap, OPS_FILL_ZERO);
    ops_may_write(f, &c->normed);
    ops_may_write(f, &c->logits);
    ops_may_write(f, &c->ids);
    ops_may_write_tokens(f);
    if (c->fields) {
        c->told = ops_make_told(f, cap, c->best, c->vocab);
    }
}

static void run_head_sample(ops_fixture *f) {
    ops_batch_spec spec = ops_plain_batch((int32_t)ops_rows(&f->rng, OPS_SEQS));
    head_case c = {0};
    int64_t cap;
    int side;
    draw_head(f, &c, &spec);
    ops_batch(f, &spec);
    cap = f->n_out + ops_between(&f->rng, 0, 3);
    ops_say(f, ", %d rows", (int)f->n_out);
    ops_weight(f, PGD_USE_GEMM | (ops_between(&f->rng, 0, 1) == 0 ? PGD_USE_EMBED : 0),
               ops_float(&f->rng), 0, c.vocab, c.width, 1, cap);
    make_head(f, &c, cap);
    for (side = 0; side < 2; side++) {
        c.a[side] = (pgd_head_sample_args){.size = sizeof(c.a[side]),
                                           .rows = PGD_ROWS_OUTPUTS,
                                           .batch = &f->batch[side],
                                           .x = c.x.side[side],
                                           .logits = c.logits.side[side],
                                           .ids = c.ids.side[side],
                                           .logprobs = c.told.logprobs.side[side],
                                           .top_ids = c.told.top_ids.side[side],
                                           .state = c.told.state.side[side],
                                           .ranks = c.told.ranks.side[side],
                                           .eps = 1e-5F,
                                           .keep_logits = c.keep};
        if (c.has_norm) {
            c.a[side].norm_w = c.norm_w.side[side];
            c.a[side].normed = c.normed.side[side];
        }
    }
    ops_ask(f, PGD_OP_head_sample, &c.a[OPS_DEV]);
    ops_ready(f);
    c.a[OPS_HOST].w = f->weight[OPS_HOST];
    c.a[OPS_DEV].w = f->weight[OPS_DEV];
    ops_run(f, PGD_OP_head_sample, &c.a[OPS_HOST], &c.a[OPS_DEV]);
    ops_fetch(f);
    compare_head(f, &c);
}

void ops_suite_sample(ops_session *s) {
    ops_cases(s, "argmax", s->cases, run_argmax);
    ops_cases(s, "sample", 3 * s->cases, run_sample);
    ops_cases(s, "sample_fields", 3 * s->cases, run_fields);
    ops_cases(s, "head_sample", 2 * s->cases, run_head_sample);
}
