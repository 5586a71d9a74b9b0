// sample: one token of each output row, drawn so that every backend can give equal ids.
//
// All arithmetic is IEEE double with one rounding per operation (no fused multiply-add: this file
// is compiled with -ffp-contract=off), or integer; no result depends on an order of summation. For
// a row of logits l (f32) with the largest m:
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
#include "ref/common.h"

#include <math.h>
#include <string.h>

#if defined(__clang__)
#pragma STDC FP_CONTRACT OFF
#endif

#define LOG2E    0x1.71547652b82fep+0
#define LN2_HIGH 0x1.62e42fee00000p-1 // 21 trailing zero bits: n * LN2_HIGH is exact
#define LN2_LOW  0x1.a39ef35793c76p-33
#define MAGIC    0x1.8p+52 // adding it rounds to an integer
#define SQRT2    0x1.6a09e667f3bcdp+0
#define W_SCALE  0x1p+40

double pgd_ref_exp(double v) {
    static const double factor[14] = {1.0,
                                      1.0,
                                      1.0 / 2,
                                      1.0 / 6,
                                      1.0 / 24,
                                      1.0 / 120,
                                      1.0 / 720,
                                      1.0 / 5040,
                                      1.0 / 40320,
                                      1.0 / 362880,
                                      1.0 / 3628800,
                                      1.0 / 39916800,
                                      1.0 / 479001600,
                                      1.0 / 6227020800};
    double step, n, r, p;
    int64_t bits;
    int i;
    if (!(v >= -700)) {
        return 0;
    }
    step = v * LOG2E;
    step = step + MAGIC;
    n = step - MAGIC;
    step = n * LN2_HIGH;
    r = v - step;
    step = n * LN2_LOW;
    r = r - step;
    p = factor[13];
    for (i = 12; i >= 0; i--) {
        step = p * r;
        p = step + factor[i];
    }
    memcpy(&bits, &p, sizeof(bits));
    bits += (int64_t)n * (INT64_C(1) << 52);
    memcpy(&p, &bits, sizeof(p));
    return p;
}

double pgd_ref_log(double v) {
    double step, f, s, z, p, k;
    uint64_t bits;
    int i;
    memcpy(&bits, &v, sizeof(bits));
    k = (double)((int64_t)(bits >> 52) - 1023);
    bits = (bits & ((UINT64_C(1) << 52) - 1)) | UINT64_C(1023) << 52;
    memcpy(&f, &bits, sizeof(f));
    if (f > SQRT2) {
        f = f * 0.5;
        k = k + 1;
    }
    s = (f - 1) / (f + 1);
    z = s * s;
    p = 1.0 / 21;
    for (i = 9; i >= 0; i--) {
        step = p * z;
        p = step + 1.0 / (2 * i + 1);
    }
    step = s * p;
    p = 2 * step;
    step = k * LN2_LOW;
    p = step + p;
    step = k * LN2_HIGH;
    return p + step;
}

// A row on its way to a token.
typedef struct draw {
    const float *logits;
    int64_t n;
    float max;
    uint32_t floor; // keys below it are dropped
    double inverse; // 1 / temperature
    double nearest; // smallest d that min_p lets stay, -infinity = off
} draw;

// An integer with the order of the floats; -0 and 0 are one, NaN is 0 and smaller than all.
static uint32_t key_of(float v) {
    uint32_t bits;
    if (v != v) {
        return 0;
    }
    v = v == 0 ? 0 : v;
    memcpy(&bits, &v, sizeof(bits));
    return (bits & UINT32_C(0x80000000)) != 0 ? ~bits : bits | UINT32_C(0x80000000);
}

static double distance(const draw *d, int64_t i) {
    double gap;
    if (d->logits[i] == d->max) {
        return 0;
    }
    gap = (double)d->logits[i] - (double)d->max;
    return gap * d->inverse;
}

// 1 when token i is not dropped so far.
static int kept(const draw *d, int64_t i) {
    uint32_t key = key_of(d->logits[i]);
    return key != 0 && key >= d->floor && distance(d, i) >= d->nearest;
}

// Tokens left with a key of at least `key`.
static int64_t count_from(const draw *d, uint32_t key) {
    int64_t i, n = 0;
    for (i = 0; i < d->n; i++) {
        n += key_of(d->logits[i]) >= key && kept(d, i);
    }
    return n;
}

// Mass (in W) of the tokens left whose key lies in (low, high].
static uint64_t mass_in(const draw *d, uint32_t low, uint32_t high) {
    uint64_t sum = 0;
    int64_t i;
    for (i = 0; i < d->n; i++) {
        uint32_t key = key_of(d->logits[i]);
        if (key > low && key <= high && kept(d, i)) {
            sum += (uint64_t)(pgd_ref_exp(distance(d, i)) * W_SCALE);
        }
    }
    return sum;
}

// Raises floor to the k-th largest key left: the largest key with k tokens at or above it.
static void keep_top_k(draw *d, int64_t k) {
    uint64_t low = d->floor > 0 ? d->floor : 1, high = key_of(d->max);
    if (count_from(d, (uint32_t)low) <= k) {
        return;
    }
    while (low < high) {
        uint64_t middle = (low + high + 1) / 2;
        if (count_from(d, (uint32_t)middle) >= k) {
            low = middle;
        } else {
            high = middle - 1;
        }
    }
    d->floor = (uint32_t)low;
}

// Raises floor above the largest key up to which the mass stays within the share to drop.
static void keep_top_p(draw *d, float top_p) {
    const uint64_t share = (UINT64_C(1) << 24) - (uint64_t)((double)top_p * 0x1p+24);
    const uint64_t sum = mass_in(d, 0, UINT32_MAX);
    const uint64_t part = sum & 0xffffff;
    uint64_t room = (sum >> 24) * share + ((part * share) >> 24);
    uint64_t low = 0, high = (uint64_t)key_of(d->max) - 1; // low is droppable, above high is not
    while (low < high) {
        uint64_t middle = (low + high + 1) / 2;
        uint64_t mass = mass_in(d, (uint32_t)low, (uint32_t)middle);
        if (mass <= room) {
            room -= mass;
            low = middle;
        } else {
            high = middle - 1;
        }
    }
    if (low + 1 > d->floor) {
        d->floor = (uint32_t)(low + 1);
    }
}

static int32_t race(const draw *d, uint64_t seed, uint64_t position) {
    const uint32_t key[2] = {(uint32_t)seed, (uint32_t)(seed >> 32)};
    uint32_t counter[4] = {(uint32_t)position, (uint32_t)(position >> 32), 0, 0};
    uint32_t words[4] = {0};
    double best = -INFINITY;
    int32_t winner = -1;
    int64_t i;
    for (i = 0; i < d->n; i++) {
        double u, mark;
        if (i % 4 == 0) {
            counter[2] = (uint32_t)(i / 4);
            pgd_ref_philox(counter, key, words);
        }
        if (!kept(d, i)) {
            continue;
        }
        u = ((double)words[i % 4] + 0.5) * 0x1p-32;
        mark = distance(d, i) - pgd_ref_log(-pgd_ref_log(u));
        if (mark > best) {
            best = mark;
            winner = (int32_t)i;
        }
    }
    return winner;
}

// Sampling row r; fields a smaller caller does not have are zero.
static pgd_sampling get_sampling(const pgd_batch *batch, int64_t r) {
    const unsigned char *rows = pgd_ref_array(batch, batch->sampling);
    const uint32_t stride = batch->sampling_stride;
    pgd_sampling s;
    memset(&s, 0, sizeof(s));
    memcpy(&s, rows + r * stride, stride < sizeof(s) ? stride : sizeof(s));
    return s;
}

static int32_t sample_row(const float *logits, int64_t n, const pgd_sampling *s) {
    draw d = {.logits = logits, .n = n};
    int32_t best = pgd_ref_argmax_row(logits, n);
    if (best < 0 || (s->flags & PGD_SAMPLE_GREEDY) != 0) {
        return best;
    }
    d.max = logits[best];
    d.inverse = 1.0 / (double)s->temperature;
    d.nearest = s->min_p > 0 ? pgd_ref_log((double)s->min_p) : -INFINITY;
    if (s->top_k > 0) {
        keep_top_k(&d, s->top_k);
    }
    if (s->top_p > 0 && s->top_p < 1) {
        keep_top_p(&d, s->top_p);
    }
    return race(&d, s->seed, s->counter);
}

static pgd_status check_sampling(const pgd_exec *x, const pgd_batch *batch, int64_t rows) {
    int64_t r;
    if (rows > 0 &&
        (batch->sampling == 0 || batch->sampling_stride == 0 || rows > batch->cap_out)) {
        return PGD_REF_FAIL(x, PGD_INVALID, "sample: %lld rows without sampling parameters",
                            (long long)rows);
    }
    for (r = 0; r < rows; r++) {
        pgd_sampling s = get_sampling(batch, r);
        if (s.mask_row != 0 || s.state_row != 0 || s.bias_count != 0 || s.n_logprobs != 0 ||
            (s.typical_p != 0 && s.typical_p != 1) || (s.repetition != 0 && s.repetition != 1) ||
            s.presence != 0 || s.frequency != 0) {
            return PGD_REF_FAIL(x, PGD_UNSUPPORTED,
                                "sample: output %lld asks for penalties, typical_p, a mask, a bias "
                                "or log probabilities",
                                (long long)r);
        }
        if ((s.flags & PGD_SAMPLE_GREEDY) == 0 &&
            !(s.temperature > 0 && isfinite(s.temperature) && s.top_p >= 0 && s.top_p <= 1 &&
              s.min_p >= 0 && s.min_p <= 1 && s.top_k >= 0)) {
            return PGD_REF_FAIL(x, PGD_INVALID,
                                "sample: output %lld has temperature %g, top_p %g, min_p %g, "
                                "top_k %d",
                                (long long)r, (double)s.temperature, (double)s.top_p,
                                (double)s.min_p, (int)s.top_k);
        }
    }
    return PGD_OK;
}

static pgd_status check(const pgd_exec *x, const pgd_sample_args *a, int64_t *out_rows) {
    pgd_ref_want want = {"sample logits", PGD_REF_F32, 2, 0, {0, -1}};
    PGD_TRY(pgd_ref_check_absent(x, "sample logprobs", &a->logprobs));
    PGD_TRY(pgd_ref_check_absent(x, "sample top_ids", &a->top_ids));
    PGD_TRY(pgd_ref_check_absent(x, "sample state", &a->state));
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
    PGD_TRY(pgd_ref_check_tokens(x, a->batch, *out_rows));
    return check_sampling(x, a->batch, *out_rows);
}

pgd_status pgd_ref_check_sample(const pgd_exec *x, const pgd_sample_args *args) {
    pgd_sample_args local;
    int64_t rows;
    PGD_REF_TAIL(x, pgd_sample_args, args);
    return check(x, PGD_ARGS(pgd_sample_args, local, args), &rows);
}

pgd_status pgd_ref_sample(const pgd_exec *x, const pgd_sample_args *args) {
    pgd_sample_args local;
    const pgd_sample_args *a = PGD_ARGS(pgd_sample_args, local, args);
    int32_t *ids;
    int64_t rows, r;
    PGD_REF_TAIL(x, pgd_sample_args, args);
    PGD_TRY(check(x, a, &rows));
    ids = pgd_ref_at(&a->ids, 0, 0, 0);
    for (r = 0; r < rows; r++) {
        const pgd_sampling s = get_sampling(a->batch, r);
        ids[r] = sample_row(pgd_ref_at(&a->logits, r, 0, 0), a->logits.shape[1], &s);
        pgd_ref_put_token(a->batch, r, ids[r]);
    }
    return PGD_OK;
}
