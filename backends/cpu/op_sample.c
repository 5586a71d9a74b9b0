// sample: draws a token of each output row. The numbers are those of kernels/ref/sample.c, so that
// equal logits give equal ids; the way to them differs:
//
//   blocks   the row is cut into at most 2048 blocks; the largest logit of each is known, and
//            blocks below the floor of what is left are passed over
//   min_p    becomes a floor, because the distance from the best rises with the logit
//   top_k    the k-th largest key by radix selection, four passes of eight bits, first among the
//            largest of the blocks for a floor, then among what reaches it
//   top_p    a like descent over the mass of the keys, three passes of 11, 11 and 10 bits; blocks
//            whose weights are below 2^-40 count nothing and cost nothing
//   race     64 tokens at a time; those that may win by a cheap bound are computed
//
// Nothing is sorted and nothing is allocated. Compiled without fused multiply-adds.
#include <math.h>
#include <string.h>

#include "cpu.h"

#if defined(__clang__)
#pragma STDC FP_CONTRACT OFF
#endif

#define LN2_HIGH 0x1.62e42fee00000p-1
#define LN2_LOW  0x1.a39ef35793c76p-33
#define SQRT2    0x1.6a09e667f3bcdp+0
#define W_NONE   (-27.8) // e^-27.8 < 2^-40

// L(v), v positive and normal.
static double log_of(double v) {
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

#define BLOCKS 2048
#define STEP   64 // tokens the kernels take at a time

typedef struct draw {
    const pgd_cpu_kernels *k;
    const float *logits;
    int64_t n;
    int64_t block;  // tokens of a block, a multiple of STEP
    int64_t blocks; // number of blocks
    float max;
    float floor;    // logits below it are dropped
    double inverse; // 1 / temperature
    float top[BLOCKS];
} draw;

// An integer with the order of the floats; -0 and 0 are one. v is no NaN.
static inline uint32_t key_of(float v) {
    uint32_t bits = 0;
    v = v == 0.0f ? 0.0f : v;
    memcpy(&bits, &v, sizeof(bits));
    return (bits & UINT32_C(0x80000000)) != 0 ? ~bits : bits | UINT32_C(0x80000000);
}

// The logit of a key; keys below that of -infinity are -infinity.
static float value_of(uint32_t key) {
    uint32_t bits = (key & UINT32_C(0x80000000)) != 0 ? key & UINT32_C(0x7fffffff) : ~key;
    float v = 0.0f;
    if (key < key_of(-INFINITY)) {
        return -INFINITY;
    }
    memcpy(&v, &bits, sizeof(v));
    return v;
}

static inline double distance(const draw *d, float v) {
    return v == d->max ? 0 : ((double)v - (double)d->max) * d->inverse;
}

static void find_tops(draw *d) {
    d->block = STEP * cpu_max(1, (d->n + STEP * BLOCKS - 1) / (STEP * BLOCKS));
    d->blocks = (d->n + d->block - 1) / d->block;
    for (int64_t i = 0; i < d->blocks; i++) {
        const int64_t start = i * d->block;
        d->top[i] = d->k->f32_max(d->logits + start, cpu_min(d->block, d->n - start));
    }
}

// Smallest logit that min_p lets stay.
static float min_p_floor(const draw *d, float min_p) {
    const double nearest = log_of((double)min_p);
    uint32_t low = key_of(-INFINITY);
    uint32_t high = key_of(d->max);
    while (low < high) {
        const uint32_t middle = low + (high - low) / 2;
        if (distance(d, value_of(middle)) >= nearest) {
            high = middle;
        } else {
            low = middle + 1;
        }
    }
    return value_of(high);
}

// ---- top_k -------------------------------------------------------------------------------------

static int64_t count_digits(const float *v, int64_t n, float floor, uint32_t mask, uint32_t prefix,
                            int shift, int64_t count[256]) {
    int64_t total = 0;
    for (int64_t i = 0; i < n; i++) {
        if (v[i] >= floor) {
            const uint32_t key = key_of(v[i]);
            if ((key & mask) == prefix) {
                count[key >> shift & 255]++;
                total++;
            }
        }
    }
    return total;
}

// The k-th largest key of the row's tokens, or of the tops of its blocks, that reach `floor`; the
// floor itself when there are k or fewer.
static float kth_largest(const draw *d, bool tops, float floor, int64_t k) {
    uint32_t prefix = 0;
    int64_t left = k; // rank of the key looked for among those with the prefix
    for (int shift = 24; shift >= 0; shift -= 8) {
        const uint32_t mask = shift == 24 ? 0 : UINT32_MAX << (shift + 8);
        int64_t count[256] = {0};
        int64_t total = 0;
        int digit = 255;
        if (tops) {
            total = count_digits(d->top, d->blocks, floor, mask, prefix, shift, count);
        }
        for (int64_t b = 0; !tops && b < d->blocks; b++) {
            if (d->top[b] >= floor) {
                total +=
                    count_digits(d->logits + b * d->block, cpu_min(d->block, d->n - b * d->block),
                                 floor, mask, prefix, shift, count);
            }
        }
        if (shift == 24 && total <= k) {
            return floor;
        }
        while (digit > 0 && count[digit] < left) {
            left -= count[digit];
            digit--;
        }
        prefix |= (uint32_t)digit << shift;
    }
    return value_of(prefix);
}

// Of k blocks whose tops reach a value, k tokens do: a floor that leaves little to look at.
static void keep_top_k(draw *d, int64_t k) {
    d->floor = kth_largest(d, true, d->floor, k);
    d->floor = kth_largest(d, false, d->floor, k);
}

// ---- top_p -------------------------------------------------------------------------------------

// A range of keys on the way down: those from `first` on that differ from it only below bit `top`,
// told apart by the digit at bit `shift`.
typedef struct digits {
    uint32_t first;
    int top;
    int shift;
    float low; // the range as logits, cut at the floor
    float high;
} digits;

static uint32_t digit_of(const digits *g, float v) {
    return (key_of(v) - g->first) >> g->shift;
}

// Logits of a range that wait for their masses.
typedef struct waiting {
    float v[2 * STEP];
    int64_t n;
} waiting;

static void add_waiting(const draw *d, const digits *g, waiting *w, uint64_t *mass) {
    const int64_t n = cpu_min(w->n, STEP);
    double weight[STEP];
    d->k->f64_mass_64(w->v, n, d->max, d->inverse, weight);
    for (int64_t i = 0; i < n; i++) {
        mass[digit_of(g, w->v[i])] += (uint64_t)weight[i];
    }
    w->n -= n;
    memmove(w->v, w->v + n, (size_t)w->n * sizeof(w->v[0]));
}

// Adds the masses of the row's tokens in the range, by their digits.
static void add_masses(const draw *d, const digits *g, uint64_t *mass) {
    waiting w;
    w.n = 0;
    for (int64_t i = 0; i < d->n; i += STEP) {
        const int64_t n = cpu_min(STEP, d->n - i);
        const float top = d->top[i / d->block];
        if (!(top >= g->low) || distance(d, top) < W_NONE) {
            continue;
        }
        if (n == STEP) {
            uint64_t in = d->k->f32_between_64(d->logits + i, g->low, g->high);
            for (; in != 0; in &= in - 1) {
                w.v[w.n++] = d->logits[i + __builtin_ctzll(in)];
            }
        }
        for (int64_t j = 0; n < STEP && j < n; j++) {
            if (d->logits[i + j] >= g->low && d->logits[i + j] <= g->high) {
                w.v[w.n++] = d->logits[i + j];
            }
        }
        while (w.n >= STEP) {
            add_waiting(d, g, &w, mass);
        }
    }
    add_waiting(d, g, &w, mass);
}

static digits digits_at(const draw *d, uint32_t first, int top, int shift) {
    const uint32_t last = first + (uint32_t)((UINT64_C(1) << top) - 1);
    digits g = {.first = first, .top = top, .shift = shift};
    g.low = value_of(first);
    g.low = g.low > d->floor ? g.low : d->floor;
    g.high = last < key_of(d->max) ? value_of(last) : d->max;
    return g;
}

// Raises the floor above the largest logit up to which the mass stays within the share to drop,
// never above the largest one.
static void keep_top_p(draw *d, float top_p) {
    static const int shifts[4] = {32, 21, 10, 0};
    const uint64_t share = (UINT64_C(1) << 24) - (uint64_t)((double)top_p * 0x1p+24);
    uint64_t room = 0;
    uint32_t first = 0;
    for (int level = 1; level < 4; level++) {
        const digits g = digits_at(d, first, shifts[level - 1], shifts[level]);
        const uint32_t last = (1u << (shifts[level - 1] - shifts[level])) - 1;
        uint64_t mass[2048] = {0};
        uint32_t digit = 0;
        add_masses(d, &g, mass);
        if (level == 1) {
            uint64_t sum = 0;
            for (uint32_t i = 0; i <= last; i++) {
                sum += mass[i];
            }
            room = (sum >> 24) * share + (((sum & 0xffffff) * share) >> 24);
        }
        while (digit < last && mass[digit] <= room) {
            room -= mass[digit];
            digit++;
        }
        first |= digit << g.shift;
    }
    const float floor = first < key_of(d->max) ? value_of(first) : d->max;
    d->floor = floor > d->floor ? floor : d->floor;
}

// ---- the race ----------------------------------------------------------------------------------

typedef struct leader {
    double mark;
    int32_t id;
} leader;

// The 64 tokens from `start` on; v is padded with NaN behind the row.
static void race_step(const draw *d, const float *v, int64_t start, const uint32_t *words,
                      leader *best) {
    uint64_t may =
        d->k->f32_race_64(v, words, d->max, (float)d->inverse, (float)best->mark, d->floor);
    for (; may != 0; may &= may - 1) {
        const int i = __builtin_ctzll(may);
        const double u = ((double)words[i] + 0.5) * 0x1p-32;
        const double mark = distance(d, v[i]) - log_of(-log_of(u));
        if (mark > best->mark) {
            best->mark = mark;
            best->id = (int32_t)(start + i);
        }
    }
}

static int32_t race(const draw *d, uint64_t seed, uint64_t position) {
    const uint32_t key[2] = {(uint32_t)seed, (uint32_t)(seed >> 32)};
    const uint32_t counter[2] = {(uint32_t)position, (uint32_t)(position >> 32)};
    leader best = {.mark = -INFINITY, .id = -1};
    uint32_t words[STEP];
    for (int64_t b = 0; b < d->blocks; b++) {
        const int64_t end = cpu_min(d->n, (b + 1) * d->block);
        if (!(d->top[b] >= d->floor)) {
            continue;
        }
        for (int64_t i = b * d->block; i < end; i += STEP) {
            float padded[STEP];
            const float *v = d->logits + i;
            if (end - i < STEP) {
                for (int64_t j = 0; j < STEP; j++) {
                    padded[j] = j < end - i ? v[j] : NAN;
                }
                v = padded;
            }
            d->k->u32_philox_64(counter, key, (uint32_t)(i / 4), words);
            race_step(d, v, i, words, &best);
        }
    }
    return best.id;
}

// Sampling row r; fields a smaller caller does not have are zero.
static pgd_sampling sampling_of(const cpu_batch *b, int64_t r) {
    const uint32_t stride = b->caps.sampling_stride;
    pgd_sampling s;
    memset(&s, 0, sizeof(s));
    memcpy(&s, b->sampling + (uint64_t)r * stride, stride < sizeof(s) ? stride : sizeof(s));
    return s;
}

static int32_t sample_row(const cpu_sample *c, const float *logits, const pgd_sampling *s) {
    draw d;
    const int64_t best = c->k->f32_argmax(logits, c->n);
    if (best < 0 || (s->flags & PGD_SAMPLE_GREEDY) != 0) {
        return (int32_t)best;
    }
    d.k = c->k;
    d.logits = logits;
    d.n = c->n;
    d.max = logits[best];
    d.floor = -INFINITY;
    d.inverse = 1.0 / (double)s->temperature;
    find_tops(&d);
    if (s->min_p > 0) {
        d.floor = min_p_floor(&d, s->min_p);
    }
    if (s->top_k > 0) {
        keep_top_k(&d, s->top_k);
    }
    if (s->top_p > 0 && s->top_p < 1) {
        keep_top_p(&d, s->top_p);
    }
    return race(&d, s->seed, s->counter);
}

void cpu_sample_rows(void *ctx, int64_t r0, int64_t r1, uint32_t worker) {
    const cpu_sample *c = ctx;
    (void)worker;
    for (int64_t r = r0; r < r1; r++) {
        const pgd_sampling s = sampling_of(c->batch, r);
        c->ids[r] = sample_row(c, c->logits.p + r * c->logits.s0, &s);
        cpu_put_token(c->batch, r, c->ids[r]);
    }
}

static bool is_off(float share) {
    return share == 0.0f || share == 1.0f;
}

static pgd_status check_sampling(const pgd_exec *x, const cpu_batch *b, int64_t rows) {
    if (rows > 0 &&
        (b->sampling == NULL || b->caps.sampling_stride == 0 || rows > b->caps.cap_out)) {
        return CPU_FAIL(x->dev, PGD_INVALID, "sample: %lld rows without sampling parameters",
                        (long long)rows);
    }
    for (int64_t r = 0; r < rows; r++) {
        const pgd_sampling s = sampling_of(b, r);
        if (s.mask_row != 0 || s.state_row != 0 || s.bias_count != 0 || s.n_logprobs != 0 ||
            !is_off(s.typical_p) || !is_off(s.repetition) || s.presence != 0.0f ||
            s.frequency != 0.0f) {
            return CPU_FAIL(x->dev, PGD_UNSUPPORTED,
                            "sample: output %lld asks for penalties, typical_p, a mask, a bias or "
                            "log probabilities",
                            (long long)r);
        }
        if ((s.flags & PGD_SAMPLE_GREEDY) == 0 &&
            !(s.temperature > 0 && isfinite(s.temperature) && s.top_p >= 0 && s.top_p <= 1 &&
              s.min_p >= 0 && s.min_p <= 1 && s.top_k >= 0)) {
            return CPU_FAIL(x->dev, PGD_INVALID,
                            "sample: output %lld has temperature %g, top_p "
                            "%g, min_p %g, top_k %d",
                            (long long)r, (double)s.temperature, (double)s.top_p, (double)s.min_p,
                            (int)s.top_k);
        }
    }
    return PGD_OK;
}

pgd_status cpu_sample_init(cpu_op *op, const pgd_tensor *logits, const pgd_tensor *ids,
                           cpu_sample *out) {
    cpu_view v;
    PGD_TRY(cpu_op_view(op, "sample logits", logits, true, &out->logits));
    PGD_TRY(cpu_op_view(op, "sample ids", ids, true, &v));
    out->k = cpu_kernels(op->x);
    out->batch = &op->batch;
    out->ids = (int32_t *)(void *)v.p;
    out->n = logits->shape[1];
    return PGD_OK;
}

pgd_status cpu_sample_live(const cpu_op *op) {
    PGD_TRY(cpu_check_tokens(op->x, &op->batch, op->rows));
    return check_sampling(op->x, &op->batch, op->rows);
}

static pgd_status sample_live(cpu_op *op) {
    const cpu_sample *c = CPU_STATE(cpu_sample, op);
    PGD_TRY(cpu_sample_live(op));
    cpu_phase_set(&op->phases[0], op->rows, 4 * c->n, 1);
    return PGD_OK;
}

pgd_status cpu_make_sample(cpu_op *op, const pgd_sample_args *a) {
    cpu_sample *c = CPU_STATE(cpu_sample, op);
    if (a->batch == NULL) {
        return CPU_FAIL(op->x->dev, PGD_INVALID, "sample without a batch");
    }
    PGD_TRY(cpu_op_open(op, a->batch, a->rows, -1, a->logits.shape[0]));
    PGD_TRY(cpu_sample_init(op, &a->logits, &a->ids, c));
    op->live = sample_live;
    op->phases[0] = (cpu_phase){.fn = cpu_sample_rows, .ctx = c};
    return PGD_OK;
}
