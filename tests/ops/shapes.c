// The seeded table of shapes, and random numbers (SplitMix64, Steele, Lea and Flood 2014).
#include "ops.h"

#include <math.h>

uint64_t ops_next(ops_rng *r) {
    uint64_t z = r->state += UINT64_C(0x9e3779b97f4a7c15);
    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return z ^ (z >> 31);
}

ops_rng ops_seed(uint64_t seed, const char *name, int32_t number) {
    ops_rng r = {.state = seed};
    for (; *name != '\0'; name++) {
        r.state = ops_next(&r) ^ (unsigned char)*name;
    }
    r.state = ops_next(&r) + (uint64_t)number;
    return r;
}

int64_t ops_between(ops_rng *r, int64_t low, int64_t high) {
    return low + (int64_t)(ops_next(r) % (uint64_t)(high - low + 1));
}

double ops_normal(ops_rng *r) {
    double u = ((double)(ops_next(r) >> 11) + 0.5) * 0x1p-53;
    double v = (double)(ops_next(r) >> 11) * 0x1p-53;
    return sqrt(-2 * log(u)) * cos(6.283185307179586 * v);
}

int64_t ops_rows(ops_rng *r, int64_t most) {
    static const int64_t table[] = {0,  1,  1,  1,  2,  3,  4,  5,  7,  8,   11,  13,
                                    16, 17, 31, 32, 33, 47, 64, 67, 97, 127, 128, 131};
    static const int64_t small[] = {1, 9, 9, 11};
    const int64_t n = (int64_t)(sizeof(table) / sizeof(table[0]));
    int64_t rows;
    if (r->small) {
        return small[ops_between(r, 0, 3)];
    }
    do {
        rows = table[ops_between(r, 0, n - 1)];
    } while (rows > most);
    return rows;
}

int64_t ops_width(ops_rng *r) {
    static const int64_t table[] = {1,  2,  3,  7,   8,   13,  16,  31,  32,  33,  61,  64,
                                    67, 96, 97, 127, 128, 160, 251, 256, 257, 384, 509, 640};
    static const int64_t small[] = {13, 33, 67, 97};
    if (r->small) {
        return small[ops_between(r, 0, 3)];
    }
    return table[ops_between(r, 0, (int64_t)(sizeof(table) / sizeof(table[0])) - 1)];
}

int64_t ops_head_dim(ops_rng *r) {
    static const int64_t table[] = {16, 32, 64, 80, 96, 128};
    if (r->small) {
        return table[0];
    }
    return table[ops_between(r, 0, (int64_t)(sizeof(table) / sizeof(table[0])) - 1)];
}

int64_t ops_vocab(const ops_rng *r) {
    return r->small ? 251 : 1001;
}

int32_t ops_is_long(ops_rng *r, int32_t n) {
    return ops_between(r, 0, n - 1) == 0 && !r->small;
}

int32_t ops_float(ops_rng *r) {
    static const int32_t table[] = {PGD_F32, PGD_BF16, PGD_F16};
    return table[ops_between(r, 0, 2)];
}

int32_t ops_scheme(ops_rng *r) {
    static const int32_t table[] = {
#define SCHEME_NUMBER(name, number, elements, bytes, text) number,
        PGD_SCHEME_LIST(SCHEME_NUMBER)
#undef SCHEME_NUMBER
            PGD_SCHEME_INT8,
        PGD_SCHEME_PLAIN,
    };
    return table[ops_between(r, 0, (int64_t)(sizeof(table) / sizeof(table[0])) - 1)];
}
