// Ops that end in a token: argmax, sample, head_sample. Ids are equal where logits are.
#include "ops.h"

#include <math.h>

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
    return ops_between(&f->rng, 0, 9) == 0 ? 32003 : ops_width(&f->rng);
}

static void run_argmax(ops_fixture *f) {
    ops_batch_spec spec = ops_plain_batch((int32_t)ops_rows(&f->rng, OPS_SEQS));
    const int64_t vocab = draw_vocab(f);
    ops_tensor x, ids;
    pgd_argmax_args a[2];
    int side;
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

// Many rows: a wrong filter shows only when a token comes out that should not, or the other way.
static void run_sample(ops_fixture *f) {
    ops_batch_spec spec = ops_plain_batch(
        ops_between(&f->rng, 0, 3) == 0 ? (int32_t)ops_rows(&f->rng, OPS_SEQS) : OPS_SEQS);
    const int64_t vocab = draw_vocab(f);
    ops_tensor logits, ids;
    pgd_sample_args a[2];
    int side;
    ops_draw_sampling(&f->rng, &spec);
    ops_batch(f, &spec);
    logits = make_logits(f, f->n_out + ops_between(&f->rng, 0, 3), f->n_out, vocab);
    ids = ops_make1(f, "ids", PGD_I32, logits.side[0].shape[0], OPS_FILL_ZERO);
    ops_say(f, " %d rows of %lld", (int)f->n_out, (long long)vocab);
    ops_may_write(f, &ids);
    ops_may_write(f, &logits);
    ops_may_write_tokens(f);
    for (side = 0; side < 2; side++) {
        a[side] = (pgd_sample_args){.size = sizeof(a[side]),
                                    .rows = PGD_ROWS_OUTPUTS,
                                    .batch = &f->batch[side],
                                    .logits = logits.side[side],
                                    .ids = ids.side[side]};
    }
    ops_ask(f, PGD_OP_sample, &a[OPS_DEV]);
    ops_ready(f);
    ops_run(f, PGD_OP_sample, &a[OPS_HOST], &a[OPS_DEV]);
    ops_fetch(f);
    ops_compare(f, &ids, f->n_out, OPS_EXACT, 0);
    ops_compare_tokens(f);
}

// Without logits: the device's id is as good as the best, as far as rounding can tell.
static void compare_greedy(ops_fixture *f, const pgd_head_sample_args *host,
                           const ops_tensor *ids) {
    const int32_t *got;
    int64_t r, i;
    if (f->broken) {
        return;
    }
    got = (const int32_t *)(const void *)(f->memories[ids->memory].got + ids->side[OPS_DEV].offset);
    for (r = 0; r < f->n_out; r++) {
        const float *row =
            (const float *)(uintptr_t)host->logits.offset + r * host->logits.stride[0];
        float best = row[0], size = 0;
        for (i = 0; i < host->logits.shape[1]; i++) {
            best = row[i] > best ? row[i] : best;
            size = fabsf(row[i]) > size ? fabsf(row[i]) : size;
        }
        if (got[r] < 0 || got[r] >= host->logits.shape[1] || row[got[r]] < best - size * 0x1p-6F) {
            ops_fail(f, "ids [%lld]: device %d is not the best", (long long)r, (int)got[r]);
        }
    }
}

// The device's own logits through the reference give the device's ids.
static void compare_drawn(ops_fixture *f, const pgd_head_sample_args *host,
                          const ops_tensor *logits, const ops_tensor *ids, int32_t narrowest) {
    const pgd_sample_args a = {.size = sizeof(a),
                               .rows = host->rows,
                               .batch = host->batch,
                               .logits = host->logits,
                               .ids = host->ids};
    ops_compare(f, logits, f->n_out, OPS_FUSED, narrowest);
    ops_adopt(f, logits);
    if (!f->broken && pgd_ref_sample(NULL, &a) != PGD_OK) {
        ops_fail(f, "the reference refuses the device's logits");
    }
    ops_compare(f, ids, f->n_out, OPS_EXACT, 0);
    ops_compare_tokens(f);
}

static void run_head_sample(ops_fixture *f) {
    ops_batch_spec spec = ops_plain_batch((int32_t)ops_rows(&f->rng, OPS_SEQS));
    const int32_t dtype = ops_act(f), greedy = (int32_t)ops_between(&f->rng, 0, 1);
    const int32_t keep = !greedy || ops_between(&f->rng, 0, 1) == 0;
    const int32_t has_norm = ops_between(&f->rng, 0, 2) > 0;
    const int32_t residual = has_norm && ops_between(&f->rng, 0, 1) == 0 ? PGD_F32 : dtype;
    const int64_t vocab = ops_between(&f->rng, 0, 5) == 0 ? 4099 : ops_width(&f->rng);
    const int64_t width = ops_width(&f->rng);
    ops_tensor x, norm_w, normed, logits, ids;
    pgd_head_sample_args a[2];
    int64_t cap;
    int side, i;
    ops_draw_sampling(&f->rng, &spec);
    for (i = 0; i < OPS_SEQS && greedy; i++) {
        spec.sampling[i].flags = PGD_SAMPLE_GREEDY;
    }
    ops_batch(f, &spec);
    cap = f->n_out + ops_between(&f->rng, 0, 3);
    ops_weight(f, PGD_USE_GEMM | (ops_between(&f->rng, 0, 1) == 0 ? PGD_USE_EMBED : 0),
               ops_float(&f->rng), 0, vocab, width, 1, cap);
    x = ops_make2(f, "x", residual, cap, width, f->n_out, OPS_FILL_NORMAL);
    norm_w = ops_make1(f, "norm_w", PGD_F32, width, OPS_FILL_NEAR_ONE);
    normed = ops_make2(f, "normed", dtype, cap, width, f->n_out, OPS_FILL_NAN);
    logits = ops_make2(f, "logits", PGD_F32, cap, vocab, f->n_out, OPS_FILL_NAN);
    ids = ops_make1(f, "ids", PGD_I32, cap, OPS_FILL_ZERO);
    ops_say(f, " %d rows of %lld x %lld, x %s, then %s, norm %d, greedy %d, logits kept %d",
            (int)f->n_out, (long long)vocab, (long long)width, pgd_dtype_name(residual),
            pgd_dtype_name(dtype), (int)has_norm, (int)greedy, (int)keep);
    ops_may_write(f, &normed);
    ops_may_write(f, &logits);
    ops_may_write(f, &ids);
    ops_may_write_tokens(f);
    for (side = 0; side < 2; side++) {
        a[side] = (pgd_head_sample_args){.size = sizeof(a[side]),
                                         .rows = PGD_ROWS_OUTPUTS,
                                         .batch = &f->batch[side],
                                         .x = x.side[side],
                                         .logits = logits.side[side],
                                         .ids = ids.side[side],
                                         .eps = 1e-5F,
                                         .keep_logits = keep};
        if (has_norm) {
            a[side].norm_w = norm_w.side[side];
            a[side].normed = normed.side[side];
        }
    }
    ops_ask(f, PGD_OP_head_sample, &a[OPS_DEV]);
    ops_ready(f);
    a[OPS_HOST].w = f->weight[OPS_HOST];
    a[OPS_DEV].w = f->weight[OPS_DEV];
    ops_run(f, PGD_OP_head_sample, &a[OPS_HOST], &a[OPS_DEV]);
    ops_fetch(f);
    if (keep) {
        compare_drawn(f, &a[OPS_HOST], &logits, &ids, has_norm ? dtype : 0);
    } else {
        compare_greedy(f, &a[OPS_HOST], &ids);
    }
}

void ops_suite_sample(ops_session *s) {
    ops_cases(s, "argmax", s->cases, run_argmax);
    ops_cases(s, "sample", 3 * s->cases, run_sample);
    ops_cases(s, "head_sample", s->cases, run_head_sample);
}
