// Packing of quantized weights: blocks as GGUF v3 defines them to the cells of quant.h, and one row
// back to f32. Plain C for any processor.
#include "quant.h"

#include <string.h>

const uint8_t pgd_cpu_codes_mxfp4[16] = {16, 17, 18, 19, 20, 22, 24, 28,
                                         16, 15, 14, 13, 12, 10, 8,  4};
const uint8_t pgd_cpu_codes_iq4_nl[16] = {1,   24,  45,  63,  79,  93,  106, 118,
                                          129, 141, 153, 166, 181, 197, 217, 241};

int64_t pgd_cpu_quant_bytes(int32_t scheme, int64_t k) {
    const pgd_cpu_form f = pgd_cpu_form_of(scheme);
    const int64_t whole = PGD_CPU_DEPTH / PGD_CPU_CELL;
    const int64_t cells = k % PGD_CPU_DEPTH / PGD_CPU_CELL + (k % PGD_CPU_CELL != 0);
    const int64_t supers =
        (cells + PGD_CPU_SUPER / PGD_CPU_CELL - 1) / (PGD_CPU_SUPER / PGD_CPU_CELL);
    const int64_t part = pgd_cpu_part_head(f) + whole * pgd_cpu_cell_bytes(f) +
                         PGD_CPU_DEPTH / PGD_CPU_SUPER * pgd_cpu_super_head(f);
    int64_t rest = 0;
    if (cells > 0) {
        rest =
            pgd_cpu_part_head(f) + cells * pgd_cpu_cell_bytes(f) + supers * pgd_cpu_super_head(f);
    }
    return k / PGD_CPU_DEPTH * part + rest;
}

// ---- blocks to codes ---------------------------------------------------------------------------

// One row of a cell: codes, and what scales them, as the cell stores it.
typedef struct lane {
    uint8_t codes[PGD_CPU_CELL];
    uint8_t head[2]; // bytes of E8M0 and SUPER
    uint16_t d;      // f16: of the cell, or of its super
    uint16_t m;
} lane;

static uint16_t half_at(const unsigned char *p) {
    uint16_t h = 0;
    memcpy(&h, p, sizeof(h));
    return h;
}

// 16 bytes whose low halves are elements 0 .. 15, the high ones 16 .. 31; bits of `high` above.
static void nibbles(const unsigned char *qs, uint32_t high, lane *to) {
    for (int j = 0; j < 16; j++) {
        to->codes[j] = (uint8_t)((qs[j] & 15) | (high >> j & 1) << 4);
        to->codes[j + 16] = (uint8_t)(qs[j] >> 4 | (high >> (j + 16) & 1) << 4);
    }
}

static void take_32(int32_t scheme, const unsigned char *p, lane *to) {
    uint32_t high = 0;
    to->d = half_at(p);
    switch (scheme) {
    case PGD_SCHEME_Q8_0:
        for (int j = 0; j < PGD_CPU_CELL; j++) {
            to->codes[j] = p[2 + j] ^ 0x80;
        }
        return;
    case PGD_SCHEME_Q4_1:
        to->m = half_at(p + 2);
        nibbles(p + 4, 0, to);
        return;
    case PGD_SCHEME_Q5_0:
        memcpy(&high, p + 2, sizeof(high));
        nibbles(p + 6, high, to);
        return;
    case PGD_SCHEME_Q5_1:
        to->m = half_at(p + 2);
        memcpy(&high, p + 4, sizeof(high));
        nibbles(p + 8, high, to);
        return;
    case PGD_SCHEME_MXFP4:
        to->head[0] = p[0];
        nibbles(p + 1, 0, to);
        return;
    default: nibbles(p + 2, 0, to); return; // Q4_0, IQ4_NL
    }
}

// Cell b (0 .. 7) of a block of q4_k (qh NULL) or q5_k.
static void take_k45(const unsigned char *p, int b, const unsigned char *qh,
                     const unsigned char *qs, lane *to) {
    const unsigned char *s = p + 4;
    to->d = half_at(p);
    to->m = half_at(p + 2);
    to->head[0] = (uint8_t)(b < 4 ? s[b] & 63 : (s[b + 4] & 15) | (s[b - 4] >> 6) << 4);
    to->head[1] = (uint8_t)(b < 4 ? s[b + 4] & 63 : (s[b + 4] >> 4) | (s[b] >> 6) << 4);
    for (int l = 0; l < PGD_CPU_CELL; l++) {
        const int low = qs[32 * (b >> 1) + l] >> (4 * (b & 1)) & 15;
        to->codes[l] = (uint8_t)(low | (qh == NULL ? 0 : qh[l] >> b & 1) << 4);
    }
}

// Scale i (0 .. 15) of a block of q3_k, less 32.
static int scale_k3(const unsigned char *s, int i) {
    const int low = i < 8 ? s[i] & 15 : s[i - 8] >> 4;
    return (low | (s[8 + (i & 3)] >> (2 * (i >> 2)) & 3) << 4) - 32;
}

// Cell b of a block of q2_k or q3_k: half n = b / 4, shift j = b % 4.
static void take_k23(int32_t scheme, const unsigned char *p, int b, lane *to) {
    const int n = b >> 2;
    const int j = b & 3;
    const unsigned char *qs = p + (scheme == PGD_SCHEME_Q2_K ? 16 : 32);
    for (int g = 0; g < 2; g++) {
        const int i = 8 * n + 2 * j + g;
        to->head[g] = scheme == PGD_SCHEME_Q2_K ? p[i] : (uint8_t)(int8_t)scale_k3(p + 96, i);
    }
    to->d = half_at(p + (scheme == PGD_SCHEME_Q2_K ? 80 : 108));
    to->m = scheme == PGD_SCHEME_Q2_K ? half_at(p + 82) : 0;
    for (int l = 0; l < PGD_CPU_CELL; l++) {
        const int high = scheme == PGD_SCHEME_Q3_K ? p[l] >> (4 * n + j) & 1 : 0;
        to->codes[l] = (uint8_t)((qs[32 * n + l] >> (2 * j) & 3) | high << 2);
    }
}

static void take_k6(const unsigned char *p, int b, lane *to) {
    const int n = b >> 2;
    const int c = b & 3;
    const unsigned char *ql = p + 64 * n + 32 * (c & 1);
    const unsigned char *qh = p + 128 + 32 * n;
    to->d = half_at(p + 208);
    to->head[0] = p[192 + 8 * n + 2 * c];
    to->head[1] = p[192 + 8 * n + 2 * c + 1];
    for (int l = 0; l < PGD_CPU_CELL; l++) {
        const int low = c < 2 ? ql[l] & 15 : ql[l] >> 4;
        to->codes[l] = (uint8_t)(low | (qh[l] >> (2 * c) & 3) << 4);
    }
}

// Cell c of a row, n of its 32 elements (less than 32 at the end of INT8).
static void take(int32_t scheme, const unsigned char *row, int64_t c, int64_t n, lane *to) {
    const int64_t bytes = pgd_scheme_bytes(scheme);
    const unsigned char *block = row + c / 8 * bytes;
    const int b = (int)(c % 8);
    memset(to, 0, sizeof(*to));
    switch (scheme) {
    case PGD_SCHEME_INT8:
        for (int64_t j = 0; j < PGD_CPU_CELL; j++) {
            to->codes[j] = (j < n ? row[c * PGD_CPU_CELL + j] : 0) ^ 0x80;
        }
        return;
    case PGD_SCHEME_Q2_K:
    case PGD_SCHEME_Q3_K: take_k23(scheme, block, b, to); return;
    case PGD_SCHEME_Q4_K: take_k45(block, b, NULL, block + 16, to); return;
    case PGD_SCHEME_Q5_K: take_k45(block, b, block + 16, block + 48, to); return;
    case PGD_SCHEME_Q6_K: take_k6(block, b, to); return;
    default: take_32(scheme, row + c * bytes, to); return;
    }
}

// ---- codes to cells ----------------------------------------------------------------------------

// Bits [shift, shift + bits) of a lane's codes into a plane: byte t of the 4 * bits that a lane has
// there holds elements t, t + 4 * bits, ...
static inline __attribute__((always_inline)) void put_plane(const lane *from, int shift,
                                                            const int bits, int64_t row,
                                                            unsigned char *plane) {
    for (int t = 0; t < 4 * bits; t++) {
        int v = 0;
        for (int i = 0; i < 8 / bits; i++) {
            v |= (from->codes[t + 4 * bits * i] >> shift & ((1 << bits) - 1)) << (bits * i);
        }
        plane[t / 4 * 128 + row * 4 + t % 4] = (unsigned char)v;
    }
}

static void put_codes(pgd_cpu_form f, const lane *from, int64_t row, unsigned char *codes) {
    unsigned char *high = codes + f.bits * PGD_CPU_CODES / 8;
    if (f.bits == 8) {
        put_plane(from, 0, 8, row, codes);
    } else if (f.bits == 4) {
        put_plane(from, 0, 4, row, codes);
    } else {
        put_plane(from, 0, 2, row, codes);
    }
    if (f.high == 1) {
        put_plane(from, f.bits, 1, row, high);
    } else if (f.high == 2) {
        put_plane(from, f.bits, 2, row, high);
    }
}

static void put_half(unsigned char *head, int64_t at, uint16_t h) {
    memcpy(head + 2 * at, &h, sizeof(h));
}

// The scales of a lane; first: its cell begins a super.
static void put_head(pgd_cpu_form f, const lane *from, int64_t row, unsigned char *super,
                     unsigned char *cell) {
    unsigned char *halves = f.scale == PGD_CPU_SCALE_SUPER ? super : cell;
    if (f.scale == PGD_CPU_SCALE_HALF || f.scale == PGD_CPU_SCALE_SUPER) {
        put_half(halves, row, from->d);
        if (f.min) {
            put_half(halves, PGD_CPU_PANEL + row, from->m);
        }
    }
    if (f.scale == PGD_CPU_SCALE_SUPER || f.scale == PGD_CPU_SCALE_E8M0) {
        cell[row] = from->head[0];
        if (pgd_cpu_cell_head(f) > PGD_CPU_PANEL) {
            cell[PGD_CPU_PANEL + row] = from->head[1];
        }
    }
}

void pgd_cpu_quant_pack(int32_t scheme, const unsigned char *const rows[PGD_CPU_PANEL],
                        const float *scales, int64_t k, unsigned char *panel) {
    const pgd_cpu_form f = pgd_cpu_form_of(scheme);
    const lane none = {0};
    lane one;
    for (int64_t k0 = 0; k0 < k; k0 += PGD_CPU_CELL) {
        unsigned char *part =
            panel + pgd_cpu_quant_bytes(scheme, k0 / PGD_CPU_DEPTH * PGD_CPU_DEPTH);
        const int64_t c = k0 % PGD_CPU_DEPTH / PGD_CPU_CELL;
        unsigned char *cell = part + pgd_cpu_cell_at(f, c);
        for (int64_t r = 0; r < PGD_CPU_PANEL; r++) {
            const lane *from = &none;
            if (rows[r] != NULL) {
                take(scheme, rows[r], k0 / PGD_CPU_CELL, k - k0, &one);
                from = &one;
            }
            if (f.scale == PGD_CPU_SCALE_PART) {
                const float s = rows[r] == NULL ? 0.0f : scales[r];
                memcpy(part + 4 * r, &s, sizeof(s));
            }
            put_head(f, from, r, part + pgd_cpu_super_at(f, c), cell);
            put_codes(f, from, r, cell + pgd_cpu_cell_head(f));
        }
    }
}

// ---- a row back --------------------------------------------------------------------------------

static float half_value(const unsigned char *p) {
    const uint32_t h = half_at(p);
    const uint32_t special = (h & 0x7c00) == 0x7c00 ? 0x7f800000 : 0;
    uint32_t bits = (h & 0x7fff) << 13;
    float v = 0.0f;
    memcpy(&v, &bits, sizeof(v));
    v *= 0x1p112f;
    memcpy(&bits, &v, sizeof(bits));
    bits |= special | (h & 0x8000) << 16;
    memcpy(&v, &bits, sizeof(v));
    return v;
}

// 2^(e - 128); e 255 is no number.
static float power_value(uint32_t e) {
    uint32_t bits = e < 2 ? 0x200000u << e : e == 255 ? 0x7fc00000u : (e - 1) << 23;
    float v = 0.0f;
    memcpy(&v, &bits, sizeof(v));
    return v;
}

// Factor and minimum of group g of a cell.
static void get_scale(pgd_cpu_form f, const unsigned char *part, int64_t c, int64_t g, int64_t row,
                      float *d, float *m) {
    const unsigned char *cell = part + pgd_cpu_cell_at(f, c);
    const unsigned char *super = part + pgd_cpu_super_at(f, c);
    const int one = cell[g * PGD_CPU_PANEL + row];
    *m = 0.0f;
    switch (f.scale) {
    case PGD_CPU_SCALE_HALF:
        *d = half_value(cell + 2 * row);
        *m = f.min ? half_value(cell + 2 * (PGD_CPU_PANEL + row)) : 0.0f;
        return;
    case PGD_CPU_SCALE_E8M0: *d = power_value(cell[row]); return;
    case PGD_CPU_SCALE_PART: memcpy(d, part + 4 * row, sizeof(*d)); return;
    default: break;
    }
    const int both = f.groups == 2 && f.min; // q2_k
    const int scale = f.wide ? (int8_t)one : both ? one & 15 : one;
    const int min = both ? one >> 4 : cell[PGD_CPU_PANEL + row];
    *d = half_value(super + 2 * row) * (float)scale;
    *m = f.min ? -(half_value(super + 2 * (PGD_CPU_PANEL + row)) * (float)min) : 0.0f;
}

static int get_bits(const unsigned char *plane, int bits, int64_t code) {
    const int64_t bytes = (int64_t)bits * PGD_CPU_CODES / 8;
    return plane[code % bytes] >> (bits * (code / bytes)) & ((1 << bits) - 1);
}

static int get_code(pgd_cpu_form f, const unsigned char *codes, int64_t code) {
    const int low = get_bits(codes, f.bits, code);
    if (f.codes == PGD_CPU_CODES_IQ4_NL) {
        return pgd_cpu_codes_iq4_nl[low];
    }
    if (f.codes == PGD_CPU_CODES_MXFP4) {
        return pgd_cpu_codes_mxfp4[low];
    }
    return f.high == 0 ? low
                       : low | get_bits(codes + f.bits * PGD_CPU_CODES / 8, f.high, code) << f.bits;
}

void pgd_cpu_quant_row(int32_t scheme, const unsigned char *panel, int64_t row, int64_t k0,
                       int64_t n, float *out) {
    const pgd_cpu_form f = pgd_cpu_form_of(scheme);
    const int64_t span = PGD_CPU_CELL / f.groups;
    const int64_t end = k0 + n;
    while (k0 < end) {
        const int64_t stop = k0 / span * span + span < end ? k0 / span * span + span : end;
        const unsigned char *part =
            panel + pgd_cpu_quant_bytes(scheme, k0 / PGD_CPU_DEPTH * PGD_CPU_DEPTH);
        const int64_t c = k0 % PGD_CPU_DEPTH / PGD_CPU_CELL;
        const unsigned char *codes = part + pgd_cpu_cell_at(f, c) + pgd_cpu_cell_head(f);
        float d = 0.0f;
        float m = 0.0f;
        get_scale(f, part, c, k0 % PGD_CPU_CELL / span, row, &d, &m);
        for (; k0 < stop; k0++) {
            const int64_t i = k0 % PGD_CPU_CELL;
            const int code = get_code(f, codes, i / 4 * 128 + row * 4 + i % 4);
            *out++ = d * (float)(code - f.offset) + m;
        }
    }
}
