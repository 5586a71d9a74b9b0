// The products of a stand-in library: computed on the host, in double precision, when their turn
// comes. Nothing of the backends' arithmetic is used.
#include <math.h>
#include <string.h>

#include "pocl.h"

enum { TYPE_F32 = 0, TYPE_F16 = 2, TYPE_BF16 = 14 };

static double half_of(uint16_t h) {
    const int exponent = h >> 10 & 31;
    const int fraction = h & 1023;
    const double sign = (h & 0x8000) != 0 ? -1.0 : 1.0;
    if (exponent == 31) {
        return fraction != 0 ? NAN : sign * INFINITY;
    }
    return sign * (exponent == 0 ? ldexp(fraction, -24) : ldexp(1024 + fraction, exponent - 25));
}

static double read_at(const unsigned char *from, int type, int64_t i) {
    uint16_t half = 0;
    uint32_t bits = 0;
    float value = 0;
    if (type == TYPE_F32) {
        memcpy(&value, from + 4 * i, sizeof(value));
        return value;
    }
    memcpy(&half, from + 2 * i, sizeof(half));
    if (type == TYPE_F16) {
        return half_of(half);
    }
    bits = (uint32_t)half << 16;
    memcpy(&value, &bits, sizeof(value));
    return value;
}

// The nearest half, by its own definition: a whole number of steps of its binade.
static uint16_t to_half(double v) {
    const uint16_t sign = signbit(v) != 0 ? 0x8000 : 0;
    int exponent = 0;
    v = fabs(v);
    if (isnan(v)) {
        return 0x7e00;
    }
    (void)frexp(v, &exponent);
    exponent = exponent < -13 ? -13 : exponent; // denormals are those of the lowest binade
    const double steps = nearbyint(ldexp(v, 11 - exponent));
    if (ldexp(steps, exponent - 11) > 65504.0) {
        return sign | 0x7c00;
    }
    return (uint16_t)(sign | (uint16_t)((exponent + 13) * 1024 + (int)steps));
}

static void write_at(unsigned char *to, int type, int64_t i, double v) {
    const float value = (float)v;
    uint32_t bits = 0;
    uint16_t half = 0;
    memcpy(&bits, &value, sizeof(bits));
    if (type == TYPE_F32) {
        memcpy(to + 4 * i, &bits, sizeof(bits));
        return;
    }
    half = type == TYPE_F16 ? to_half(v)
                            : (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16); // to even
    memcpy(to + 2 * i, &half, sizeof(half));
}

static void *matrix(uint64_t address, int64_t columns, int64_t stride, int64_t rows, int type) {
    const int64_t items = (columns - 1) * stride + rows;
    return double_memory_find(address, (size_t)(items * (type == TYPE_F32 ? 4 : 2)));
}

int double_product_run(const double_product *p) {
    const unsigned char *w = matrix(p->w, p->n, p->w_stride, p->k, p->in);
    const unsigned char *x = matrix(p->x, p->m, p->x_stride, p->k, p->in);
    const unsigned char *add =
        p->add == 0 ? NULL : matrix(p->add, p->m, p->add_stride, p->n, p->out);
    unsigned char *y = matrix(p->y, p->m, p->y_stride, p->n, p->out);
    const double factor = double_settings_get()->blas_wrong != 0 ? 1.5 : 1.0;
    if (w == NULL || x == NULL || y == NULL || (p->add != 0 && add == NULL)) {
        return DOUBLE_ILLEGAL_ADDRESS;
    }
    for (int64_t m = 0; m < p->m; m++) {
        for (int64_t n = 0; n < p->n; n++) {
            double sum = 0;
            for (int64_t k = p->k - 1; k >= 0; k--) { // another order than ours
                sum +=
                    read_at(w, p->in, n * p->w_stride + k) * read_at(x, p->in, m * p->x_stride + k);
            }
            sum *= factor;
            sum += add == NULL ? 0 : read_at(add, p->out, m * p->add_stride + n);
            write_at(y, p->out, m * p->y_stride + n, sum);
        }
    }
    return DOUBLE_OK;
}
