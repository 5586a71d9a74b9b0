// Floats to rows of blocks.
//
// The types with one scale a block are defined to the bit, as ggml and the gguf package make them.
// The others have sub-blocks whose scales (and minima) are integers times one or two scales of the
// whole block; any choice of integers is a valid block, and this file takes for each sub-block the
// best of a few steps in the sense of weighted least squares: the range is stretched a little, each
// value goes to its nearest level, and scale and minimum are solved for those levels. Weights are
// x^2 plus the mean square, which favours what moves a product most.
#include "ref/common.h"

#include <math.h>
#include <string.h>

enum { SUPER = 256, MOST = 32 };

static void put_half(unsigned char *p, float v) {
    pgd_ref_store(PGD_F16, p, 0, (double)v);
}

static float get_half(const unsigned char *p) {
    return (float)pgd_ref_load(PGD_F16, p, 0);
}

static int bounded(float v, int low, int high) {
    return !(v > (float)low) ? low : v >= (float)high ? high : (int)v;
}

static int nearest(float v, int low, int high) {
    return bounded(rintf(v), low, high);
}

// The value of largest magnitude, the first of equals.
static float extreme(const float *x, int n) {
    float most = 0, value = 0;
    int i;
    for (i = 0; i < n; i++) {
        if (fabsf(x[i]) > most) {
            most = fabsf(x[i]);
            value = x[i];
        }
    }
    return value;
}

static void range_of(const float *x, int n, float *out_min, float *out_max) {
    int i;
    *out_min = *out_max = x[0];
    for (i = 1; i < n; i++) {
        *out_min = x[i] < *out_min ? x[i] : *out_min;
        *out_max = x[i] > *out_max ? x[i] : *out_max;
    }
}

// 32 integers of `bits` (4 or 5) as nibbles and, for 5, the high bits in qh.
static void put_32(const int *q, unsigned char *qh, unsigned char *qs) {
    int j;
    for (j = 0; j < 16; j++) {
        qs[j] = (unsigned char)((q[j] & 15) | (q[j + 16] & 15) << 4);
    }
    for (j = 0; qh != NULL && j < 32; j++) {
        qh[j / 8] = (unsigned char)((j % 8 == 0 ? 0 : qh[j / 8]) | (q[j] >> 4) << (j % 8));
    }
}

// ---- one scale a block -----------------------------------------------------------------------

static void q8_0(const float *x, unsigned char *b) {
    const float d = fabsf(extreme(x, 32)) / 127, inverse = d == 0 ? 0 : 1 / d;
    int j;
    put_half(b, d);
    for (j = 0; j < 32; j++) {
        b[2 + j] = (unsigned char)bounded(roundf(x[j] * inverse), -128, 127);
    }
}

// The value of largest magnitude becomes the lowest level, -half.
static void symmetric_32(const float *x, int half, unsigned char *d_at, unsigned char *qh,
                         unsigned char *qs) {
    const float d = extreme(x, 32) / (float)-half, inverse = d == 0 ? 0 : 1 / d;
    int q[32], j;
    for (j = 0; j < 32; j++) {
        q[j] = bounded(x[j] * inverse + ((float)half + 0.5F), 0, 2 * half - 1);
    }
    put_half(d_at, d);
    put_32(q, qh, qs);
}

static void affine_32(const float *x, int levels, unsigned char *d_at, unsigned char *qh,
                      unsigned char *qs) {
    float min, max, d, inverse;
    int q[32], j;
    range_of(x, 32, &min, &max);
    d = (max - min) / (float)levels;
    inverse = d == 0 ? 0 : 1 / d;
    for (j = 0; j < 32; j++) {
        q[j] = bounded((x[j] - min) * inverse + 0.5F, 0, levels);
    }
    put_half(d_at, d);
    put_half(d_at + 2, min);
    put_32(q, qh, qs);
}

static void q4_0(const float *x, unsigned char *b) {
    symmetric_32(x, 8, b, NULL, b + 2);
}

static void q4_1(const float *x, unsigned char *b) {
    affine_32(x, 15, b, NULL, b + 4);
}

static void q5_0(const float *x, unsigned char *b) {
    symmetric_32(x, 16, b, b + 2, b + 6);
}

static void q5_1(const float *x, unsigned char *b) {
    affine_32(x, 31, b, b + 4, b + 8);
}

// Index of the entry of a table of 16 nearest to v, the first of equals.
static int nearest_entry(const signed char *table, float v) {
    int best = 0, i;
    for (i = 1; i < 16; i++) {
        if (fabsf(v - (float)table[i]) < fabsf(v - (float)table[best])) {
            best = i;
        }
    }
    return best;
}

static void mxfp4(const float *x, unsigned char *b) {
    const float most = fabsf(extreme(x, 32));
    int exponent = 0, q[32], j;
    float inverse;
    if (most > 0) {
        (void)frexpf(most, &exponent); // most in [2^(exponent - 1), 2^exponent)
        exponent += 124;               // 2^(exponent - 127) holds it in [4, 8), the last binade
        exponent = exponent < 0 ? 0 : exponent > 254 ? 254 : exponent;
    }
    inverse = ldexpf(1, 128 - exponent);
    for (j = 0; j < 32; j++) {
        q[j] = nearest_entry(pgd_ref_mxfp4, isfinite(inverse) ? x[j] * inverse : 0);
    }
    b[0] = (unsigned char)exponent;
    put_32(q, NULL, b + 1);
}

// ---- fits ------------------------------------------------------------------------------------

static void weights_of(const float *x, int n, float *w) {
    float mean = 0;
    int i;
    for (i = 0; i < n; i++) {
        mean += x[i] * x[i];
    }
    mean /= (float)n;
    for (i = 0; i < n; i++) {
        w[i] = x[i] * x[i] + mean;
    }
}

// Scale s of s q ~ x, q in [-half, half - 1] by rounding; tries a few stretches of the range.
static float fit_symmetric(const float *x, int n, int half) {
    const float top = extreme(x, n);
    float w[MOST], best = 0, best_gain = -1;
    int step, i;
    if (top == 0) {
        return 0;
    }
    weights_of(x, n, w);
    for (step = -6; step <= 6; step++) {
        const float inverse = -((float)half + 0.1F * (float)step) / top;
        float xq = 0, qq = 0;
        for (i = 0; i < n; i++) {
            float q = (float)nearest(x[i] * inverse, -half, half - 1);
            xq += w[i] * x[i] * q;
            qq += w[i] * q * q;
        }
        // The error left is sum w x^2 - xq^2 / qq.
        if (qq > 0 && xq * xq > best_gain * qq) {
            best_gain = xq * xq / qq;
            best = xq / qq;
        }
    }
    return best;
}

typedef struct fit {
    float scale; // >= 0
    float min;   // >= 0: x ~ scale q - min
} fit;

// Scale and minimum for levels q: weighted least squares with min >= 0. 0 when there is none.
static int solve(const float *x, const float *w, const int *q, int n, fit *out) {
    float sw = 0, swx = 0, swq = 0, swxq = 0, swqq = 0, det;
    int i;
    for (i = 0; i < n; i++) {
        const float f = (float)q[i];
        sw += w[i];
        swx += w[i] * x[i];
        swq += w[i] * f;
        swxq += w[i] * x[i] * f;
        swqq += w[i] * f * f;
    }
    det = sw * swqq - swq * swq;
    if (!(det > 0)) {
        return 0;
    }
    out->scale = (sw * swxq - swx * swq) / det;
    out->min = (swq * swxq - swqq * swx) / det;
    if (out->min < 0) {
        out->min = 0;
        out->scale = swqq > 0 ? swxq / swqq : 0;
    }
    return out->scale > 0;
}

static float error_of(const float *x, const float *w, const int *q, int n, const fit *f) {
    float sum = 0;
    int i;
    for (i = 0; i < n; i++) {
        const float e = f->scale * (float)q[i] - f->min - x[i];
        sum += w[i] * e * e;
    }
    return sum;
}

static fit fit_affine(const float *x, int n, int levels) {
    fit best = {0, 0}, f;
    float w[MOST], min, max, least = INFINITY;
    int q[MOST], step, i;
    range_of(x, n, &min, &max);
    min = min > 0 ? 0 : min;
    best.min = -min;
    if (!(max > min)) {
        return best;
    }
    weights_of(x, n, w);
    for (step = -5; step <= 5; step++) {
        const float inverse = ((float)levels + 0.1F * (float)step) / (max - min);
        for (i = 0; i < n; i++) {
            q[i] = nearest((x[i] - min) * inverse, 0, levels);
        }
        if (solve(x, w, q, n, &f) && error_of(x, w, q, n, &f) < least) {
            least = error_of(x, w, q, n, &f);
            best = f;
        }
    }
    return best;
}

// The scales of the sub-blocks as integers up to `levels` times one f16; gives that f16 as float.
static float share(const float *scales, int n, int levels, unsigned char *d_at, int *out) {
    const float top = fabsf(extreme(scales, n));
    float d, inverse;
    int i;
    put_half(d_at, top / (float)levels);
    d = get_half(d_at);
    inverse = d > 0 ? 1 / d : 0;
    for (i = 0; i < n; i++) {
        out[i] = nearest(scales[i] * inverse, -levels - 1, levels);
    }
    return d;
}

// Levels of a sub-block under the scales as they are stored.
static void levels_of(const float *x, int n, float scale, float min, int low, int high, int *q) {
    int i;
    for (i = 0; i < n; i++) {
        q[i] = scale == 0 ? (low > 0 ? low : 0) : nearest((x[i] + min) / scale, low, high);
    }
}

// ---- sub-blocks ------------------------------------------------------------------------------

// Fits `n` sub-blocks of SUPER / n elements; s and m: integer scales and minima; q: levels.
static void fit_block(const float *x, int n, int bits, int scale_levels, unsigned char *d_at,
                      int *s, int *m, int *q) {
    const int size = SUPER / n, levels = (1 << bits) - 1;
    float scales[16] = {0}, mins[16] = {0}, d, dmin;
    int i;
    for (i = 0; i < n; i++) {
        const fit f = fit_affine(x + (ptrdiff_t)i * size, size, levels);
        scales[i] = f.scale;
        mins[i] = f.min;
    }
    d = share(scales, n, scale_levels, d_at, s);
    dmin = share(mins, n, scale_levels, d_at + 2, m);
    for (i = 0; i < n; i++) {
        levels_of(x + (ptrdiff_t)i * size, size, d * (float)s[i], dmin * (float)m[i], 0, levels,
                  q + (ptrdiff_t)i * size);
    }
}

static void q2_k(const float *x, unsigned char *b) {
    int s[16], m[16], q[SUPER], i, l;
    fit_block(x, 16, 2, 15, b + 80, s, m, q);
    memset(b + 16, 0, 64);
    for (i = 0; i < 16; i++) {
        unsigned char *qs = b + 16 + 32 * (i / 8) + 16 * (i % 2);
        b[i] = (unsigned char)(s[i] | m[i] << 4);
        for (l = 0; l < 16; l++) {
            qs[l] |= (unsigned char)(q[16 * i + l] << 2 * (i % 8 / 2));
        }
    }
}

static void put_scales(const int *s, const int *m, unsigned char *to) {
    int i;
    for (i = 0; i < 4; i++) {
        to[i] = (unsigned char)(s[i] | s[i + 4] >> 4 << 6);
        to[i + 4] = (unsigned char)(m[i] | m[i + 4] >> 4 << 6);
        to[i + 8] = (unsigned char)((s[i + 4] & 15) | (m[i + 4] & 15) << 4);
    }
}

static void super_block(const float *x, int bits, unsigned char *b, unsigned char *qh,
                        unsigned char *ql) {
    int s[8], m[8], q[SUPER], i, l;
    fit_block(x, 8, bits, 63, b, s, m, q);
    put_scales(s, m, b + 4);
    memset(ql, 0, 128);
    for (i = 0; i < 8; i++) {
        for (l = 0; l < 32; l++) {
            ql[32 * (i / 2) + l] |= (unsigned char)((q[32 * i + l] & 15) << 4 * (i % 2));
            if (qh != NULL) {
                qh[l] = (unsigned char)((i == 0 ? 0 : qh[l]) | (q[32 * i + l] >> 4) << i);
            }
        }
    }
}

static void q4_k(const float *x, unsigned char *b) {
    super_block(x, 4, b, NULL, b + 16);
}

static void q5_k(const float *x, unsigned char *b) {
    super_block(x, 5, b, b + 16, b + 48);
}

// 16 sub-blocks of 16 about zero; s: integer scales in [-levels - 1, levels].
static void fit_centred(const float *x, int half, int levels, unsigned char *d_at, int *s, int *q) {
    float scales[16] = {0}, d;
    int i;
    for (i = 0; i < 16; i++) {
        scales[i] = fit_symmetric(x + 16 * (ptrdiff_t)i, 16, half);
    }
    d = share(scales, 16, levels, d_at, s);
    for (i = 0; i < 16; i++) {
        levels_of(x + 16 * (ptrdiff_t)i, 16, d * (float)s[i], 0, -half, half - 1,
                  q + 16 * (ptrdiff_t)i);
    }
}

static void q3_k(const float *x, unsigned char *b) {
    unsigned char *to = b + 96;
    int s[16], q[SUPER], i, l;
    fit_centred(x, 4, 31, b + 108, s, q);
    memset(b, 0, 108);
    for (i = 0; i < 16; i++) {
        unsigned char *qs = b + 32 + 32 * (i / 8) + 16 * (i % 2);
        const int code = s[i] + 32;
        to[i % 8] |= (unsigned char)((code & 15) << (i < 8 ? 0 : 4));
        to[8 + (i & 3)] |= (unsigned char)(code >> 4 << 2 * (i >> 2));
        for (l = 0; l < 16; l++) {
            const int v = q[16 * i + l] + 4;
            qs[l] |= (unsigned char)((v & 3) << 2 * (i % 8 / 2));
            b[16 * (i % 2) + l] |= (unsigned char)((v >> 2) << (i / 2));
        }
    }
}

static void q6_k(const float *x, unsigned char *b) {
    int s[16], q[SUPER], e;
    fit_centred(x, 32, 127, b + 208, s, q);
    memset(b, 0, 192);
    for (e = 0; e < SUPER; e++) {
        const int n = e / 128, c = e / 32 % 4, l = e % 32, v = q[e] + 32;
        b[64 * n + 32 * (c & 1) + l] |= (unsigned char)((v & 15) << (c < 2 ? 0 : 4));
        b[128 + 32 * n + l] |= (unsigned char)(v >> 4 << 2 * c);
        b[192 + e / 16] = (unsigned char)s[e / 16];
    }
}

static void iq4_nl(const float *x, unsigned char *b) {
    const float top = extreme(x, 32);
    float w[32], d = 0, best_gain = -1;
    int q[32], step, j;
    weights_of(x, 32, w);
    for (step = -6; top != 0 && step <= 6; step++) {
        const float inverse = ((float)pgd_ref_iq4_nl[0] + (float)step) / top;
        float xq = 0, qq = 0;
        for (j = 0; j < 32; j++) {
            const float v = (float)pgd_ref_iq4_nl[nearest_entry(pgd_ref_iq4_nl, x[j] * inverse)];
            xq += w[j] * x[j] * v;
            qq += w[j] * v * v;
        }
        if (qq > 0 && xq * xq > best_gain * qq) {
            best_gain = xq * xq / qq;
            d = xq / qq;
        }
    }
    put_half(b, d);
    d = get_half(b);
    for (j = 0; j < 32; j++) {
        q[j] = nearest_entry(pgd_ref_iq4_nl, d == 0 ? 0 : x[j] / d);
    }
    put_32(q, NULL, b + 2);
}

// ---- rows ------------------------------------------------------------------------------------

void pgd_ref_quantize(int32_t scheme, const float *x, int64_t n, void *blocks) {
    unsigned char *b = blocks;
    const uint32_t bytes = pgd_scheme_bytes(scheme), elements = pgd_scheme_elements(scheme);
    void (*block)(const float *, unsigned char *) = NULL;
    int64_t i;
    switch (scheme) {
    case PGD_SCHEME_Q8_0: block = q8_0; break;
    case PGD_SCHEME_Q4_0: block = q4_0; break;
    case PGD_SCHEME_Q4_1: block = q4_1; break;
    case PGD_SCHEME_Q5_0: block = q5_0; break;
    case PGD_SCHEME_Q5_1: block = q5_1; break;
    case PGD_SCHEME_Q2_K: block = q2_k; break;
    case PGD_SCHEME_Q3_K: block = q3_k; break;
    case PGD_SCHEME_Q4_K: block = q4_k; break;
    case PGD_SCHEME_Q5_K: block = q5_k; break;
    case PGD_SCHEME_Q6_K: block = q6_k; break;
    case PGD_SCHEME_IQ4_NL: block = iq4_nl; break;
    case PGD_SCHEME_MXFP4: block = mxfp4; break;
    default: return;
    }
    for (i = 0; i < n; i += elements) {
        block(x + i, b);
        b += bytes;
    }
}

float pgd_ref_quantize_int8(const float *x, int64_t n, int8_t *out) {
    float most = 0, scale;
    int64_t i;
    for (i = 0; i < n; i++) {
        most = fabsf(x[i]) > most ? fabsf(x[i]) : most;
    }
    scale = most / 127;
    for (i = 0; i < n; i++) {
        out[i] = (int8_t)(scale == 0 ? 0 : nearest(x[i] / scale, -127, 127));
    }
    return scale;
}
