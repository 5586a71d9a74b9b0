// The draw of sample: the numbers, the filters and the race that sample.c defines.
#include "ref/sample.h"

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

uint32_t pgd_ref_key(float v) {
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
    uint32_t key = pgd_ref_key(d->logits[i]);
    return key != 0 && key >= d->floor && distance(d, i) >= d->nearest;
}

// Tokens left with a key of at least `key`.
static int64_t count_from(const draw *d, uint32_t key) {
    int64_t i, n = 0;
    for (i = 0; i < d->n; i++) {
        n += pgd_ref_key(d->logits[i]) >= key && kept(d, i);
    }
    return n;
}

// Mass (in W) of the tokens left whose key lies in (low, high].
static uint64_t mass_in(const draw *d, uint32_t low, uint32_t high) {
    uint64_t sum = 0;
    int64_t i;
    for (i = 0; i < d->n; i++) {
        uint32_t key = pgd_ref_key(d->logits[i]);
        if (key > low && key <= high && kept(d, i)) {
            sum += (uint64_t)(pgd_ref_exp(distance(d, i)) * W_SCALE);
        }
    }
    return sum;
}

// Raises floor to the k-th largest key left: the largest key with k tokens at or above it.
static void keep_top_k(draw *d, int64_t k) {
    uint64_t low = d->floor > 0 ? d->floor : 1, high = pgd_ref_key(d->max);
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
    uint64_t low = 0,
             high = (uint64_t)pgd_ref_key(d->max) - 1; // low is droppable, above high is not
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

int32_t pgd_ref_draw(const float *logits, int64_t n, const pgd_sampling *s) {
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
