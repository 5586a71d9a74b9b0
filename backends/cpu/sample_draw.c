// Draws a token of a row. The numbers are those of kernels/ref/sample.c, so that equal logits give
// equal ids; the way to them differs:
//
//   min_p    becomes a floor, because the distance from the best rises with the logit
//   top_k    becomes a floor: the k-th largest of what is left
//   top_p    the masses of what is left fall into 1024 bins by their keys; the bin in which the
//            share to drop ends is cut into 1024 again, until its keys are one. What weighs less
//            than 2^-40 has no mass and is not looked at. Of many tokens the masses are rough ones
//            first, and what is far from the best is at most so many times the largest of its
//            block, or is summed in f32 where that is too much: that leaves a doubt about a few of
//            them, and only if one of these wins the race exact masses are taken
//   race     64 tokens at a time; those that may win by a cheap bound are computed. The best token
//            runs first: blocks that could not win against it with the loudest noise are left out
//
// Nothing is sorted and nothing is allocated. Compiled without fused multiply-adds.
#include <math.h>
#include <string.h>

#include "sample.h"

#if defined(__clang__)
#pragma STDC FP_CONTRACT OFF
#endif

#define LN2_HIGH 0x1.62e42fee00000p-1
#define LN2_LOW  0x1.a39ef35793c76p-33
#define SQRT2    0x1.6a09e667f3bcdp+0
#define W_NONE   (-27.8) // e^-27.8 < 2^-40
#define W_NEAR   (-12.0) // a share to drop seldom ends farther away
#define LOUDEST  22.9    // -log(-log(1 - 2^-33)) < 22.9

double cpu_log_of(double v) {
    uint64_t bits = 0;
    double f = 0;
    memcpy(&bits, &v, sizeof(bits));
    double k = (double)((int64_t)(bits >> 52) - 1023);
    bits = (bits & ((UINT64_C(1) << 52) - 1)) | UINT64_C(1023) << 52;
    memcpy(&f, &bits, sizeof(f));
    if (f > SQRT2) {
        f = f * 0.5;
        k = k + 1;
    }
    const double s = (f - 1) / (f + 1);
    const double z = s * s;
    double p = 1.0 / 21;
    for (int i = 9; i >= 0; i--) {
        p = p * z + 1.0 / (2 * i + 1);
    }
    return (k * LN2_LOW + 2 * (s * p)) + k * LN2_HIGH;
}

typedef struct draw {
    const cpu_row *row;
    float floor;    // logits below it are dropped
    float sure;     // logits from it on are kept; between the two nobody knows yet
    double inverse; // 1 / temperature
} draw;

static inline double distance(const draw *d, float v) {
    const float max = d->row->max;
    return v == max ? 0 : ((double)v - (double)max) * d->inverse;
}

// The floor, or a higher value if all logits below that lie farther from the best than `gap` (a
// negative distance, kept with a margin for rounding).
static float far_floor(const draw *d, double gap) {
    const double v = (double)d->row->max + gap / d->inverse * 1.0001;
    const double margin = fabs(v) * 0x1p-22;
    if (!isfinite(v) || !(v - margin > (double)d->floor)) {
        return d->floor;
    }
    return (float)(v - margin);
}

// Smallest logit that min_p lets stay.
static float min_p_floor(const draw *d, float min_p) {
    const double nearest = cpu_log_of((double)min_p);
    uint32_t low = cpu_key_of(-INFINITY);
    uint32_t high = cpu_key_of(d->row->max);
    while (low < high) {
        const uint32_t middle = low + (high - low) / 2;
        if (distance(d, cpu_value_of(middle)) >= nearest) {
            high = middle;
        } else {
            low = middle + 1;
        }
    }
    return cpu_value_of(high);
}

// ---- top_p -------------------------------------------------------------------------------------

enum { BIN_BITS = 10, FEW_BLOCKS = 128, FEW_TOKENS = 4096 };
_Static_assert(PGD_CPU_BINS == 1 << BIN_BITS, "bins of a level");

static pgd_cpu_span span_of(uint32_t first, uint32_t last) {
    pgd_cpu_span s = {.first = first, .last = last};
    while ((last - first) >> s.shift >= PGD_CPU_BINS) {
        s.shift++;
    }
    return s;
}

// Values from low to max. Logits lie evenly by value, not by key: around 0 most keys are of nobody.
static pgd_cpu_span lines_of(const draw *d, float low) {
    const float max = d->row->max;
    pgd_cpu_span s = span_of(cpu_key_of(low), cpu_key_of(max));
    const float width = max - low;
    if (width > 1e-3f && width < 1e6f) {
        s.low = low;
        s.scale = (float)(PGD_CPU_BINS - 1) / width;
    }
    return s;
}

// The smallest key from the span's first on whose bin is at least `bin`; as f32_mass_bins has it.
static uint32_t key_at(const pgd_cpu_span *s, uint32_t bin) {
    uint32_t low = s->first;
    uint32_t high = s->last;
    if (s->scale == 0.0f) {
        return s->first + (bin << s->shift);
    }
    while (low < high) {
        const uint32_t middle = low + (high - low) / 2;
        if ((cpu_value_of(middle) - s->low) * s->scale >= (float)bin) {
            high = middle;
        } else {
            low = middle + 1;
        }
    }
    return low;
}

// The keys of a bin: from *first on to what this gives.
static uint32_t bin_keys(const pgd_cpu_span *s, uint32_t bin, uint32_t *first) {
    *first = key_at(s, bin);
    if (s->scale > 0.0f) {
        return bin + 1 < PGD_CPU_BINS ? key_at(s, bin + 1) - 1 : s->last;
    }
    const uint32_t width = (1u << s->shift) - 1;
    return s->last - *first < width ? s->last : *first + width;
}

// The bin in which *room ends, taken from the lowest on; what lies below it is taken off *room.
static uint32_t find_bin(const pgd_cpu_span *s, const uint64_t *mass, int64_t *room) {
    const uint32_t last = s->scale > 0.0f ? PGD_CPU_BINS - 1 : (s->last - s->first) >> s->shift;
    uint32_t bin = 0;
    while (bin < last && (int64_t)mass[bin] <= *room) {
        *room -= (int64_t)mass[bin];
        bin++;
    }
    return bin;
}

// What may be dropped of a mass `sum`, when the lowest `tail` of more is dropped before.
static int64_t room_of(uint64_t sum, double tail, uint64_t share) {
    const uint64_t below = (uint64_t)tail;
    sum += below;
    return (int64_t)((sum >> 24) * share + (((sum & 0xffffff) * share) >> 24)) - (int64_t)below;
}

// Live values from `low` on, among which the floor is looked for.
typedef struct part {
    cpu_live live;
    float low;
    bool rough;        // by rough masses first
    double tail_least; // mass of what is below low is between these, 0 = nothing
    double tail_most;
} part;

// The least and the most that may be dropped of the part, whose masses fall into these bins. The
// more is below it, the less is dropped above. Rough masses are off in the share to drop and in
// what is taken off it.
static void room_in(const part *p, int64_t n, uint64_t sum, uint64_t share, int64_t *least,
                    int64_t *most) {
    const int64_t wide = p->rough ? (int64_t)(sum >> 16) + n * 2050 : 0;
    *most = room_of(sum, p->tail_least, share) + wide;
    *least = room_of(sum, p->tail_most, share) - wide;
}

static void take_bins(const draw *d, cpu_live live, const pgd_cpu_span *s, bool rough,
                      uint64_t *mass) {
    const cpu_row *row = d->row;
    if (rough) {
        row->k->f32_rough_bins(live.v, live.n, row->max, (float)d->inverse, s, mass);
    } else {
        row->k->f32_mass_bins(live.v, live.n, row->max, d->inverse, s, mass);
    }
}

// From here on the floor is in the keys from that of `low` to `last`.
static void settle(draw *d, float low, uint32_t last) {
    d->floor = low;
    d->sure = cpu_value_of(last);
}

// Finds the floor in a part, or, where tail or masses are not exact, values between which it is:
// true when these are of one bin.
static bool floor_among(draw *d, const part *p, uint64_t share) {
    const cpu_row *row = d->row;
    cpu_live live = p->live;
    pgd_cpu_span s = lines_of(d, p->low);
    uint64_t enough = 0; // a bin of so little is not worth cutting
    int64_t most = INT64_MIN;
    int64_t least = 0;
    for (;;) {
        uint64_t mass[PGD_CPU_BINS + 1] = {0};
        uint32_t first = 0;
        take_bins(d, live, &s, p->rough && most == INT64_MIN, mass);
        if (most == INT64_MIN) {
            uint64_t sum = 0;
            for (uint32_t i = 0; i < PGD_CPU_BINS; i++) {
                sum += mass[i];
            }
            room_in(p, row->n, sum, share, &least, &most);
            enough = p->rough ? sum >> 8 : 0;
        }
        const bool below = least < 0;
        const uint32_t bin = find_bin(&s, mass, &most);
        const uint32_t low = find_bin(&s, mass, &least);
        const uint32_t last = bin_keys(&s, bin, &first);
        if (below || low != bin) {
            (void)bin_keys(&s, low, &first);
            settle(d, below ? d->floor : cpu_value_of(first), last);
            return false;
        }
        if (first >= last || mass[bin] < enough) {
            settle(d, cpu_value_of(first), last);
            return true;
        }
        s = span_of(first, last);
        live.n = row->k->f32_keep(live.v, live.n, cpu_value_of(s.first), cpu_value_of(s.last),
                                  row->list);
        live.v = row->list;
    }
}

// e^d of the largest of each block, or of `most` where that is larger.
static void exp_of_tops(const draw *d, float most, float *out) {
    const cpu_row *row = d->row;
    const float inverse = (float)d->inverse;
    for (int64_t b = 0; b < row->blocks; b++) {
        out[b] = ((row->top[b] > most ? most : row->top[b]) - row->max) * inverse;
    }
    row->k->f32_exp(out, out, row->blocks);
}

// Finds the floor among the tokens from p.low on, if what lies below them cannot be so much that it
// is open which bin it is in.
static bool few_below(draw *d, part p, uint64_t share) {
    float e[CPU_SAMPLE_BLOCKS];
    const draw before = *d;
    double sum = 0;
    exp_of_tops(d, p.low, e);
    for (int64_t b = 0; b < d->row->blocks; b++) {
        sum += (double)e[b];
    }
    p.tail_most = sum * (double)d->row->block * 1.001 * 0x1p+40;
    if (p.tail_most < 0x1p+50 && floor_among(d, &p, share)) {
        return true;
    }
    *d = before;
    return false;
}

// The same when what lies below is summed in f32: off by 2^-18 of it and by the rounding of each
// token.
static void sum_below(draw *d, part p, uint64_t share) {
    const cpu_row *row = d->row;
    const double tail =
        0x1p+40 * row->k->f32_exp_sum(row->v, row->n, row->max, (float)d->inverse, d->floor, p.low);
    const double off = tail * 0x1p-17 + (double)row->n;
    p.tail_least = tail > off ? tail - off : 0;
    p.tail_most = tail + off;
    (void)floor_among(d, &p, share);
}

// Raises the floor above the largest logit up to which the mass stays within the share to drop,
// never above the largest one. Unless it has to be exact, of many tokens with mass the far ones are
// estimated, or all are rough.
static void keep_top_p(draw *d, float top_p, bool exact) {
    const cpu_row *row = d->row;
    const uint64_t share = (UINT64_C(1) << 24) - (uint64_t)((double)top_p * 0x1p+24);
    const float low = far_floor(d, W_NONE);
    const float near = far_floor(d, W_NEAR);
    part p = {.low = near};
    if (!exact && near > low && row->k->f32_count_ge(row->top, row->blocks, low) > FEW_BLOCKS) {
        p.live = cpu_row_live(row, near);
        if (p.live.v != row->v) {
            if (!few_below(d, p, share)) {
                p.live = cpu_row_live(row, near); // the list was cut
                sum_below(d, p, share);
            }
            return;
        }
    }
    p.low = low;
    p.live = cpu_row_live(row, low);
    p.rough = !exact && p.live.n > FEW_TOKENS && isfinite(low) && isfinite(row->max) &&
              isfinite((float)d->inverse);
    (void)floor_among(d, &p, share);
}

// ---- the race ----------------------------------------------------------------------------------

typedef struct leader {
    double mark;
    int32_t id;
    float reach; // e^-mark, a little more
} leader;

static void run(const draw *d, int32_t id, uint32_t word, leader *best) {
    const double u = ((double)word + 0.5) * 0x1p-32;
    const double mark = distance(d, d->row->v[id]) - cpu_log_of(-cpu_log_of(u));
    if (mark > best->mark || (mark == best->mark && id < best->id)) {
        best->mark = mark;
        best->id = id;
        best->reach = 1.01f * expf((float)-mark);
    }
}

// The 64 tokens from `start` on, fewer at the end of the row.
static void run_step(const draw *d, int64_t start, const uint32_t *words, leader *best) {
    const cpu_row *row = d->row;
    const float *v = row->v + start;
    float padded[CPU_SAMPLE_STEP];
    if (row->n - start < CPU_SAMPLE_STEP) {
        for (int64_t j = 0; j < CPU_SAMPLE_STEP; j++) {
            padded[j] = j < row->n - start ? v[j] : NAN;
        }
        v = padded;
    }
    uint64_t may =
        row->k->f32_race_64(v, words, row->max, (float)d->inverse, (float)best->mark, d->floor);
    for (; may != 0; may &= may - 1) {
        const int i = __builtin_ctzll(may);
        run(d, (int32_t)(start + i), words[i], best);
    }
}

// Whether the loudest of 64 words may win at the distance of `reach`; see f32_race_64.
static bool may_win(uint32_t loudest, float reach) {
    return !((float)(int32_t)(~loudest >> 1) * 0x1p-31f > reach);
}

static int32_t race(draw *d, uint64_t seed, uint64_t position) {
    const cpu_row *row = d->row;
    const uint32_t key[2] = {(uint32_t)seed, (uint32_t)(seed >> 32)};
    const uint32_t counter[2] = {(uint32_t)position, (uint32_t)(position >> 32)};
    leader best = {.mark = -INFINITY, .id = -1};
    uint32_t words[CPU_SAMPLE_STEP];
    float reach[CPU_SAMPLE_BLOCKS];
    row->k->u32_philox_64(counter, key, (uint32_t)(row->best / 4), words);
    run(d, (int32_t)row->best, words[row->best % 4], &best);
    d->floor = far_floor(d, best.mark - LOUDEST);
    exp_of_tops(d, INFINITY, reach); // how far the noise has to reach
    for (int64_t b = 0; b < row->blocks; b++) {
        const int64_t end = cpu_min(row->n, (b + 1) * row->block);
        if (!(row->top[b] >= d->floor)) {
            continue;
        }
        for (int64_t i = b * row->block; i < end; i += CPU_SAMPLE_STEP) {
            const uint32_t loudest = row->k->u32_philox_64(counter, key, (uint32_t)(i / 4), words);
            if (may_win(loudest, reach[b] * best.reach)) {
                run_step(d, i, words, &best);
            }
        }
    }
    return best.id;
}

int32_t cpu_draw(const cpu_row *row, const pgd_sampling *s) {
    draw d = {.row = row, .floor = -INFINITY, .inverse = 1.0 / (double)s->temperature};
    if (s->min_p > 0) {
        d.floor = min_p_floor(&d, s->min_p);
    }
    if (s->top_k > 0) {
        d.floor = cpu_row_kth(row, d.floor, s->top_k);
    }
    if (!(s->top_p > 0 && s->top_p < 1)) {
        return race(&d, s->seed, s->counter);
    }
    const float floor = d.floor;
    keep_top_p(&d, s->top_p, false);
    const int32_t id = race(&d, s->seed, s->counter);
    if (row->v[id] >= d.sure) {
        return id;
    }
    d.floor = floor;
    keep_top_p(&d, s->top_p, true);
    return race(&d, s->seed, s->counter);
}
