// Rows of blocks to floats. The bytes of a block are those of GGUF v3 (ggml), element order within
// the block included; products are taken in f32, one rounding each, in the order that the formulas
// at each function show, so the result is defined to the bit.
//
//   d, m   f16 scales of the block        nibbles(qs, 16): element j is the low half of byte j,
//   q      the stored integer              element j + 16 the high half
#include "ref/common.h"

#include <math.h>
#include <string.h>

static float half_at(const unsigned char *p) {
    return (float)pgd_ref_load(PGD_F16, p, 0);
}

// Element j (of 32) of 16 bytes that hold two halves of a block.
static int nibble(const unsigned char *qs, int j) {
    return j < 16 ? qs[j] & 15 : qs[j - 16] >> 4;
}

// Bit j of the 32 in 4 bytes.
static int fifth(const unsigned char *qh, int j) {
    return qh[j / 8] >> (j % 8) & 1;
}

// y = d q
static void q8_0(const unsigned char *b, float *y) {
    const float d = half_at(b);
    int j;
    for (j = 0; j < 32; j++) {
        y[j] = (float)(signed char)b[2 + j] * d;
    }
}

// y = d (q - 8)
static void q4_0(const unsigned char *b, float *y) {
    const float d = half_at(b);
    int j;
    for (j = 0; j < 32; j++) {
        y[j] = (float)(nibble(b + 2, j) - 8) * d;
    }
}

// y = d q + m
static void q4_1(const unsigned char *b, float *y) {
    const float d = half_at(b), m = half_at(b + 2);
    int j;
    for (j = 0; j < 32; j++) {
        y[j] = (float)nibble(b + 4, j) * d + m;
    }
}

// y = d (q - 16)
static void q5_0(const unsigned char *b, float *y) {
    const float d = half_at(b);
    int j;
    for (j = 0; j < 32; j++) {
        y[j] = (float)((nibble(b + 6, j) | fifth(b + 2, j) << 4) - 16) * d;
    }
}

// y = d q + m
static void q5_1(const unsigned char *b, float *y) {
    const float d = half_at(b), m = half_at(b + 2);
    int j;
    for (j = 0; j < 32; j++) {
        y[j] = (float)(nibble(b + 8, j) | fifth(b + 4, j) << 4) * d + m;
    }
}

// 16 sub-blocks of 16, each with 4 bits of scale and of minimum: y = (d s) q - (dmin m).
static void q2_k(const unsigned char *b, float *y) {
    const float d = half_at(b + 80), dmin = half_at(b + 82);
    int i, l;
    for (i = 0; i < 16; i++) {
        const float scale = d * (float)(b[i] & 15), min = dmin * (float)(b[i] >> 4);
        const unsigned char *qs = b + 16 + 32 * (i / 8) + 16 * (i % 2);
        for (l = 0; l < 16; l++) {
            y[16 * i + l] = scale * (float)(qs[l] >> 2 * (i % 8 / 2) & 3) - min;
        }
    }
}

// 16 sub-blocks of 16 with 6 bits of scale: y = (d (s - 32)) q, q in [-4, 3].
static void q3_k(const unsigned char *b, float *y) {
    const float d = half_at(b + 108);
    int i, l;
    for (i = 0; i < 16; i++) {
        const unsigned char *s = b + 96, *qs = b + 32 + 32 * (i / 8) + 16 * (i % 2);
        const int low = i < 8 ? s[i] & 15 : s[i - 8] >> 4;
        const int high = s[8 + (i & 3)] >> 2 * (i >> 2) & 3;
        const float scale = d * (float)((low | high << 4) - 32);
        for (l = 0; l < 16; l++) {
            const int taken = b[16 * (i % 2) + l] >> (i / 2) & 1;
            y[16 * i + l] = scale * (float)((qs[l] >> 2 * (i % 8 / 2) & 3) - (taken ? 0 : 4));
        }
    }
}

void pgd_ref_block_scales(const unsigned char *s, int i, int *out_scale, int *out_min) {
    if (i < 4) {
        *out_scale = s[i] & 63;
        *out_min = s[i + 4] & 63;
    } else {
        *out_scale = (s[i + 4] & 15) | s[i - 4] >> 6 << 4;
        *out_min = s[i + 4] >> 4 | s[i] >> 6 << 4;
    }
}

// 8 sub-blocks of 32 with 6 bits of scale and of minimum: y = (d s) q - (dmin m). `qh` NULL: four
// bits an element, else a fifth in bit i of qh[l].
static void super_block(const unsigned char *b, const unsigned char *qh, const unsigned char *ql,
                        float *y) {
    const float d = half_at(b), dmin = half_at(b + 2);
    int i, l;
    for (i = 0; i < 8; i++) {
        int s, m;
        float scale, min;
        pgd_ref_block_scales(b + 4, i, &s, &m);
        scale = d * (float)s;
        min = dmin * (float)m;
        for (l = 0; l < 32; l++) {
            int q = ql[32 * (i / 2) + l] >> 4 * (i % 2) & 15;
            q |= qh == NULL ? 0 : (qh[l] >> i & 1) << 4;
            y[32 * i + l] = scale * (float)q - min;
        }
    }
}

static void q4_k(const unsigned char *b, float *y) {
    super_block(b, NULL, b + 16, y);
}

static void q5_k(const unsigned char *b, float *y) {
    super_block(b, b + 16, b + 48, y);
}

// 16 sub-blocks of 16 with a signed byte of scale: y = (d s) (q - 32).
static void q6_k(const unsigned char *b, float *y) {
    const float d = half_at(b + 208);
    int e;
    for (e = 0; e < 256; e++) {
        const int n = e / 128, c = e / 32 % 4, l = e % 32;
        const int low = b[64 * n + 32 * (c & 1) + l] >> (c < 2 ? 0 : 4) & 15;
        const int high = b[128 + 32 * n + l] >> 2 * c & 3;
        const float scale = d * (float)(signed char)b[192 + e / 16];
        y[e] = scale * (float)((low | high << 4) - 32);
    }
}

const signed char pgd_ref_iq4_nl[16] = {-127, -104, -83, -65, -49, -35, -22, -10,
                                        1,    13,   25,  38,  53,  69,  89,  113};
const signed char pgd_ref_mxfp4[16] = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};

// y = d T[q]
static void iq4_nl(const unsigned char *b, float *y) {
    const float d = half_at(b);
    int j;
    for (j = 0; j < 32; j++) {
        y[j] = (float)pgd_ref_iq4_nl[nibble(b + 2, j)] * d;
    }
}

// y = 2^(e - 127) F[q]; the table holds 2 F (OCP Microscaling 1.0: E2M1 elements, E8M0 scale).
static void mxfp4(const unsigned char *b, float *y) {
    const float d = ldexpf(1, b[0] - 128);
    int j;
    for (j = 0; j < 32; j++) {
        y[j] = (float)pgd_ref_mxfp4[nibble(b + 1, j)] * d;
    }
}

void pgd_ref_dequantize(int32_t scheme, const void *blocks, int64_t n, float *out) {
    const unsigned char *b = blocks;
    const uint32_t bytes = pgd_scheme_bytes(scheme), elements = pgd_scheme_elements(scheme);
    void (*block)(const unsigned char *, float *) = NULL;
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
        block(b, out + i);
        b += bytes;
    }
}
