// sample: one token of each output row, drawn so that every backend can give equal ids.
//
// A row's way: log probabilities (LOGPROBS) | mask, bias, penalties | draw | count. GIVEN rows have
// their token from the batch: nothing is changed, drawn or counted, only told.
//
// All arithmetic is IEEE with one rounding per operation (no fused multiply-add: this file and its
// neighbours are compiled with -ffp-contract=off), or integer; f32 where the logits are changed,
// double where a token is drawn. No id depends on an order of summation.
//
// Log probabilities (sample_logprobs.c), of the logits as they come:
//
//   g(i)      = l(i) - m, m the largest logit; 0 where l(i) = m (also when m is infinite)
//   log p(i)  = g(i) - L(sum of E(g(j)) in the order of j), rounded to f32; -infinity for NaN and
//               for the token -1. A backend sums in its own order: it is within 2^-20 and
//               2^-22 |log p| of this
//   rank      = number of tokens whose logit is at least that of the token, NaN being the smallest
//               of all; 0 for the token -1
//   best      by logit, lowest id on a tie; there are at most V of them
//
// Changes (sample_change.c), in f32, into a copy of the row:
//
//   mask      a token whose bit is 0 becomes NaN: it is never drawn, also when nothing else is left
//   bias      entry by entry: l = l + add; add -infinity makes it NaN
//   penalties repetition r (of tokens in the prompt or the output): l = l > 0 ? l / r : l * r
//             then, if the count c is above 0: l = l - frequency * (float)c, l = l - presence
//   count     c + 1 of the token behind the draw, unless it is -1; it stays below 2^30
//
// The logits themselves stay as they are. pgd_ref_sample takes room for that copy from the C
// library where a row asks for a change (OUT_OF_MEMORY before anything is written);
// nothing else allocates.
//
// The draw (sample_draw.c), for a row of logits l (f32) with the largest m:
//
//   NaN       is never kept; a row of NaN gives -1
//   GREEDY    the largest logit, the lowest id on a tie; the rest is skipped
//   d(i)      = (l(i) - m) * (1 / temperature), and 0 where l(i) = m (also when m is infinite)
//   w(i)      = E(d(i)): the probability of i over that of the best
//   min_p     drops i with d(i) < L(min_p), that is w(i) < min_p
//   top_k     drops what is smaller than the k-th largest logit left; ties with it stay
//   top_p     W(i) = floor(w(i) * 2^40); S = sum of W over what is left;
//             D = floor(S * (2^24 - floor(top_p * 2^24)) / 2^24);
//             drops all i with (sum of W(j) over l(j) <= l(i)) <= D, but never the largest logit:
//             the tail of mass 1 - top_p goes, equal logits go or stay together
//   draw      u(i) = (word(i) + 1/2) * 2^-32, word(i) = word i % 4 of Philox4x32-10 with key
//             {seed low, seed high} and counter {counter low, counter high, i / 4, 0};
//             the token is the largest d(i) - L(-L(u(i))) of what is left, lowest id on a tie
//
// The last line is the exponential race (the smallest Exp(1) / w wins) in the log domain, that is
// the Gumbel-max rule: token i wins with probability w(i) / sum of w.
// A cheaper test with the same result: -L(-L(u)) < ln 2 * (leading zeros of ~word + 1), so most
// tokens lose without E or L.
//
// E(v), exp: 0 if v < -700 (v is never above 0); t = v * LOG2E + MAGIC, n = t - MAGIC,
//   r = (v - n * LN2_HIGH) - n * LN2_LOW, p = sum of r^i / i! for i = 13 down to 0 by Horner's
//   rule, result p with n added to its exponent.
// L(v), log of a positive normal v: v = f * 2^k with f in [1, 2); if f > SQRT2, f = f / 2, k + 1;
//   s = (f - 1) / (f + 1), z = s * s, p = sum of z^i / (2 i + 1) for i = 10 down to 0 by Horner's
//   rule, result (k * LN2_LOW + 2 * (s * p)) + k * LN2_HIGH.
// Both are within 4e-16 relative of the true value for the arguments that occur here.
#include "ref/sample.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

pgd_sampling pgd_ref_sampling(const pgd_batch *batch, int64_t r) {
    const unsigned char *rows = pgd_ref_array(batch, batch->sampling);
    const uint32_t stride = batch->sampling_stride;
    pgd_sampling s;
    memset(&s, 0, sizeof(s));
    memcpy(&s, rows + r * stride, stride < sizeof(s) ? stride : sizeof(s));
    return s;
}

static pgd_status check_logprobs(const pgd_exec *x, const pgd_sample_args *a, int64_t r,
                                 const pgd_sampling *s) {
    if (a->logprobs.rank == 0 || a->top_ids.rank == 0 || a->ranks.rank == 0) {
        return PGD_REF_FAIL(x, PGD_UNSUPPORTED,
                            "sample: output %lld asks for log probabilities, without the tensors",
                            (long long)r);
    }
    if (s->n_logprobs < 0 || s->n_logprobs >= a->logprobs.shape[1]) {
        return PGD_REF_FAIL(x, PGD_INVALID, "sample: output %lld asks for the %d best of %lld",
                            (long long)r, (int)s->n_logprobs, (long long)a->logprobs.shape[1] - 1);
    }
    return PGD_OK;
}

static pgd_status check_row(const pgd_exec *x, const pgd_sample_args *a, int64_t r) {
    const pgd_sampling s = pgd_ref_sampling(a->batch, r);
    if ((s.flags & ~(uint32_t)(PGD_SAMPLE_GREEDY | PGD_SAMPLE_LOGPROBS | PGD_SAMPLE_GIVEN)) != 0) {
        return PGD_REF_FAIL(x, PGD_UNSUPPORTED, "sample: output %lld has flags %#x", (long long)r,
                            (unsigned)s.flags);
    }
    if ((s.flags & PGD_SAMPLE_LOGPROBS) != 0) {
        PGD_TRY(check_logprobs(x, a, r, &s));
    }
    if ((s.flags & PGD_SAMPLE_GIVEN) != 0) {
        return s.given >= 0 && s.given < a->logits.shape[1]
                   ? PGD_OK
                   : PGD_REF_FAIL(x, PGD_INVALID, "sample: output %lld is given token %d",
                                  (long long)r, (int)s.given);
    }
    if (s.typical_p != 0 && s.typical_p != 1) {
        return PGD_REF_FAIL(x, PGD_UNSUPPORTED, "sample: output %lld asks for typical_p",
                            (long long)r);
    }
    if ((s.flags & PGD_SAMPLE_GREEDY) == 0 &&
        !(s.temperature > 0 && isfinite(s.temperature) && s.top_p >= 0 && s.top_p <= 1 &&
          s.min_p >= 0 && s.min_p <= 1 && s.top_k >= 0)) {
        return PGD_REF_FAIL(
            x, PGD_INVALID, "sample: output %lld has temperature %g, top_p %g, min_p %g, top_k %d",
            (long long)r, (double)s.temperature, (double)s.top_p, (double)s.min_p, (int)s.top_k);
    }
    return pgd_ref_check_change(x, a, r, &s);
}

// The tensors that may be absent.
static pgd_status check_tensors(const pgd_exec *x, const pgd_sample_args *a, int64_t rows) {
    const int64_t columns = a->logprobs.rank == 2 ? a->logprobs.shape[1] : -1;
    pgd_ref_want want = {"sample logprobs", PGD_REF_F32, 2, rows, {0, -1}};
    if (a->logprobs.rank != 0) {
        PGD_TRY(pgd_ref_check_tensor(x, &a->logprobs, &want));
    }
    want = (pgd_ref_want){"sample top_ids", PGD_REF_I32, 2, rows, {0, columns}};
    if (a->top_ids.rank != 0) {
        PGD_TRY(pgd_ref_check_tensor(x, &a->top_ids, &want));
    }
    want = (pgd_ref_want){"sample ranks", PGD_REF_I32, 1, rows, {0}};
    if (a->ranks.rank != 0) {
        PGD_TRY(pgd_ref_check_tensor(x, &a->ranks, &want));
    }
    want = (pgd_ref_want){"sample state", PGD_REF_I32, 2, -1, {-1, a->logits.shape[1]}};
    return a->state.rank != 0 ? pgd_ref_check_tensor(x, &a->state, &want) : PGD_OK;
}

static pgd_status check(const pgd_exec *x, const pgd_sample_args *a, int64_t *out_rows) {
    pgd_ref_want want = {"sample logits", PGD_REF_F32, 2, 0, {0, -1}};
    int64_t r;
    PGD_TRY(pgd_ref_check_batch(x, a->batch));
    PGD_TRY(pgd_ref_live(x, a->batch, a->rows, a->logits.shape[0], out_rows));
    want.rows = *out_rows;
    PGD_TRY(pgd_ref_check_tensor(x, &a->logits, &want));
    if (a->logits.shape[1] >= 1 << 22) { // the mass of a row has to fit in 64 bits
        return PGD_REF_FAIL(x, PGD_UNSUPPORTED, "sample: %lld columns",
                            (long long)a->logits.shape[1]);
    }
    want = (pgd_ref_want){"sample ids", PGD_REF_I32, 1, *out_rows, {0}};
    PGD_TRY(pgd_ref_check_tensor(x, &a->ids, &want));
    PGD_TRY(check_tensors(x, a, *out_rows));
    PGD_TRY(pgd_ref_check_tokens(x, a->batch, *out_rows));
    if (*out_rows > 0 && (a->batch->sampling == 0 || a->batch->sampling_stride == 0 ||
                          *out_rows > a->batch->cap_out)) {
        return PGD_REF_FAIL(x, PGD_INVALID, "sample: %lld rows without sampling parameters",
                            (long long)*out_rows);
    }
    for (r = 0; r < *out_rows; r++) {
        PGD_TRY(check_row(x, a, r));
    }
    return PGD_OK;
}

pgd_status pgd_ref_check_sample(const pgd_exec *x, const pgd_sample_args *args) {
    pgd_sample_args local;
    int64_t rows;
    PGD_REF_TAIL(x, pgd_sample_args, args);
    return check(x, PGD_ARGS(pgd_sample_args, local, args), &rows);
}

static int has_changes(const pgd_sampling *s) {
    return (s->flags & PGD_SAMPLE_GIVEN) == 0 &&
           (s->mask_row > 0 || s->bias_count > 0 || s->state_row > 0);
}

// Room for a changed row, NULL when no row needs it.
static pgd_status make_room(const pgd_exec *x, const pgd_sample_args *a, int64_t rows,
                            float **out) {
    const size_t bytes = (size_t)a->logits.shape[1] * sizeof(float);
    int64_t r;
    *out = NULL;
    for (r = 0; r < rows; r++) {
        const pgd_sampling s = pgd_ref_sampling(a->batch, r);
        if (has_changes(&s) && bytes > 0) {
            *out = malloc(bytes);
            return *out != NULL ? PGD_OK
                                : PGD_REF_FAIL(x, PGD_OUT_OF_MEMORY,
                                               "sample: no memory for a row of %llu bytes",
                                               (unsigned long long)bytes);
        }
    }
    return PGD_OK;
}

// The token of a row that is not GIVEN.
static int32_t sample_row(const pgd_sample_args *a, const pgd_sampling *s, const float *logits,
                          float *room) {
    const int64_t n = a->logits.shape[1];
    int32_t *state = s->state_row > 0 ? pgd_ref_at(&a->state, s->state_row - 1, 0, 0) : NULL;
    int32_t token;
    if (has_changes(s) && n > 0) {
        memcpy(room, logits, (size_t)n * sizeof(float));
        pgd_ref_change(a->batch, s, state, room, n);
        logits = room;
    }
    token = pgd_ref_draw(logits, n, s);
    if (state != NULL) {
        pgd_ref_count(state, token);
    }
    return token;
}

static void tell_row(const pgd_sample_args *a, int64_t r, const pgd_sampling *s,
                     const float *logits, int32_t token) {
    const pgd_ref_logprobs p = pgd_ref_logprobs_of(logits, a->logits.shape[1]);
    float *logprobs = pgd_ref_at(&a->logprobs, r, 0, 0);
    int32_t *ids = pgd_ref_at(&a->top_ids, r, 0, 0);
    int32_t *ranks = pgd_ref_at(&a->ranks, 0, 0, 0);
    ids[0] = token;
    logprobs[0] = pgd_ref_logprob(&p, token);
    ranks[r] = pgd_ref_rank(&p, token);
    pgd_ref_best(&p, s->n_logprobs, logprobs + 1, ids + 1);
}

static void run_row(const pgd_sample_args *a, int64_t r, float *room) {
    const pgd_sampling s = pgd_ref_sampling(a->batch, r);
    const float *logits = pgd_ref_at(&a->logits, r, 0, 0);
    int32_t *ids = pgd_ref_at(&a->ids, 0, 0, 0);
    ids[r] = (s.flags & PGD_SAMPLE_GIVEN) != 0 ? s.given : sample_row(a, &s, logits, room);
    if ((s.flags & PGD_SAMPLE_LOGPROBS) != 0) {
        tell_row(a, r, &s, logits, ids[r]);
    }
    pgd_ref_put_token(a->batch, r, ids[r]);
}

pgd_status pgd_ref_sample(const pgd_exec *x, const pgd_sample_args *args) {
    pgd_sample_args local;
    const pgd_sample_args *a = PGD_ARGS(pgd_sample_args, local, args);
    float *room = NULL;
    int64_t rows, r;
    PGD_REF_TAIL(x, pgd_sample_args, args);
    PGD_TRY(check(x, a, &rows));
    PGD_TRY(make_room(x, a, rows, &room));
    for (r = 0; r < rows; r++) {
        run_row(a, r, room);
    }
    free(room);
    return PGD_OK;
}
