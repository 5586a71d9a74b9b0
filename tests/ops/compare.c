// How close is close enough.
//
// Two measures: the largest error of an element over the largest number of its row, and the sum of
// squared errors over the sum of squares (NMSE), which sees a small error everywhere.
//
//   f32   sums of up to some thousand products in another order: sqrt(n) * 2^-24 of the row's size,
//         and functions good to a few units in the last place
//   bf16  a sum close to the middle of two bf16 numbers may go either way: one step, which is up to
//   f16   2^-7 of the number (f16: 2^-10); seldom, so the NMSE stays far below a rounding of all
//   fused what lies between the ops may be rounded (as in the reference) or kept: noise of 2^-9
//         (2^-12) relative on every element of the input of the next sum
//   int8  steps of 1 / 127 of the largest of 32 numbers: of normal ones an NMSE of about 2.5e-5;
//         single elements of a small row may be far off, so that only
//         the sum over many counts; a product of two such sums has the errors of both
#include "ops.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static const struct {
    int32_t dtype;
    double largest[4]; // one op, fused, rounded to int8, product of two such
    double nmse[4];
} ops_tolerance[] = {
    {PGD_F32, {2e-5, 6e-5, INFINITY, INFINITY}, {1e-11, 1e-10, 1e-4, 3e-4}},
    {PGD_BF16, {0x1p-7 + 2e-5, 0x1p-5, INFINITY, INFINITY}, {1e-6, 5e-5, 1e-4, 3e-4}},
    {PGD_F16, {0x1p-10 + 2e-5, 0x1p-8, INFINITY, INFINITY}, {2e-8, 1e-6, 1e-4, 3e-4}},
};

typedef struct measure {
    double error; // sum of squares
    double size;
    double worst; // over the row's largest
    int64_t at;
} measure;

// 1 when both are the same infinity or both NaN; 0 when both are finite; -1 when they differ.
static int same_special(double want, double got) {
    if (isfinite(want) && isfinite(got)) {
        return 0;
    }
    return (isnan(want) && isnan(got)) || want == got ? 1 : -1;
}

// One row into m; index of a wrong special value or -1.
static int64_t measure_row(int32_t dtype, const void *want, const void *got, int64_t from,
                           int64_t n, measure *m) {
    double largest = 0;
    int64_t i;
    for (i = from; i < from + n; i++) {
        double w = fabs(pgd_ref_load(dtype, want, i));
        largest = isfinite(w) && w > largest ? w : largest;
    }
    for (i = from; i < from + n; i++) {
        double w = pgd_ref_load(dtype, want, i), g = pgd_ref_load(dtype, got, i), error;
        int special = same_special(w, g);
        if (special < 0) {
            return i;
        }
        if (special > 0) {
            continue;
        }
        error = fabs(w - g);
        m->error += error * error;
        m->size += w * w;
        if (error > m->worst * largest) {
            m->worst = largest > 0 ? error / largest : INFINITY;
            m->at = i;
        }
    }
    return -1;
}

// What the device itself computed, not the host in its place.
static void tell(ops_fixture *f, int32_t dtype, double worst, double nmse, int32_t bad) {
    if (f->session->measured != NULL && f->n_asks > 0 && f->places[0].place <= PGD_DEV_F1) {
        f->session->measured(f->session->arg, f->asks[0].op, dtype, worst, nmse, bad);
    }
}

static void compare_exact(ops_fixture *f, const char *name, int32_t dtype, const void *want,
                          const void *got, int64_t n, int64_t width) {
    const size_t e = pgd_dtype_bytes(dtype);
    int64_t i;
    tell(f, dtype, 0, 0, n > 0 && memcmp(want, got, (size_t)n * e) != 0);
    for (i = 0; i < n; i++) {
        if (memcmp((const char *)want + (size_t)i * e, (const char *)got + (size_t)i * e, e) != 0) {
            ops_fail(f, "%s [%lld, %lld]: device %.9g, reference %.9g, must be equal", name,
                     (long long)(i / width), (long long)(i % width), pgd_ref_load(dtype, got, i),
                     pgd_ref_load(dtype, want, i));
            return;
        }
    }
}

void ops_compare_values(ops_fixture *f, const char *name, int32_t dtype, const void *want,
                        const void *got, int64_t n, int64_t width, int32_t tolerance,
                        int32_t narrowest) {
    const int32_t judge = narrowest != 0 ? narrowest : dtype;
    measure m = {0};
    int64_t i;
    size_t row = 0;
    if (f->broken) {
        return;
    }
    if (tolerance == OPS_EXACT) {
        compare_exact(f, name, dtype, want, got, n, width);
        return;
    }
    for (i = 0; i < n; i += width) {
        int64_t bad = measure_row(dtype, want, got, i, width < n - i ? width : n - i, &m);
        if (bad >= 0) {
            ops_fail(f, "%s [%lld, %lld]: device %g, reference %g", name, (long long)(bad / width),
                     (long long)(bad % width), pgd_ref_load(dtype, got, bad),
                     pgd_ref_load(dtype, want, bad));
            return;
        }
    }
    while (ops_tolerance[row].dtype != judge && row < 2) {
        row++;
    }
    tell(f, judge, m.worst, m.size > 0 ? m.error / m.size : 0,
         m.worst > ops_tolerance[row].largest[tolerance - 1]);
    if (m.worst > ops_tolerance[row].largest[tolerance - 1]) {
        ops_fail(f, "%s [%lld, %lld]: device %.9g, reference %.9g, off by %.2g of the row (%.2g)",
                 name, (long long)(m.at / width), (long long)(m.at % width),
                 pgd_ref_load(dtype, got, m.at), pgd_ref_load(dtype, want, m.at), m.worst,
                 ops_tolerance[row].largest[tolerance - 1]);
    } else if (n >= 64 && m.error > ops_tolerance[row].nmse[tolerance - 1] * m.size) {
        ops_fail(f, "%s: NMSE %.2g (%.2g)", name, m.error / m.size,
                 ops_tolerance[row].nmse[tolerance - 1]);
    }
}

void ops_compare(ops_fixture *f, const ops_tensor *t, int64_t rows, int32_t tolerance,
                 int32_t narrowest) {
    const pgd_tensor *h = &t->side[OPS_HOST];
    const uint64_t e = pgd_dtype_bytes(h->dtype);
    const ops_memory *m = &f->memories[t->memory];
    unsigned char *want, *got;
    int64_t width = 1, r;
    uint64_t bytes;
    uint32_t dim;
    if (f->broken) {
        return;
    }
    for (dim = 1; dim < h->rank; dim++) {
        width *= h->shape[dim];
    }
    bytes = (uint64_t)width * e;
    want = malloc(bytes * (uint64_t)rows + 1);
    got = malloc(bytes * (uint64_t)rows + 1);
    for (r = 0; r < rows && want != NULL && got != NULL; r++) {
        uint64_t at = t->side[OPS_DEV].offset + (uint64_t)(r * h->stride[0]) * e;
        memcpy(want + (uint64_t)r * bytes, m->host + at, bytes);
        memcpy(got + (uint64_t)r * bytes, m->got + at, bytes);
    }
    if (want == NULL || got == NULL) {
        f->broken = 1;
    } else {
        ops_compare_values(f, t->name, h->dtype, want, got, rows * width, width, tolerance,
                           narrowest);
    }
    free(want);
    free(got);
}
