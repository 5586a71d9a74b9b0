// Joined weights as the reference ops read them: the parts' slices one under the other, row-major,
// in the bytes of their schemes.
//
//   plain, blocks   | rows of part 0 | rows of part 1 | ...
//   INT8            | rows of all parts | padding to 4 | f32 scale per row |
//   PARTS           | part 0 | part 1 | ... each as above and padded to 4
#include "ref/common.h"

#include <string.h>

uint64_t pgd_ref_row_bytes(int32_t scheme, int32_t dtype, int64_t k) {
    const uint64_t elements = pgd_scheme_elements(scheme);
    if (k <= 0 || k > INT64_MAX / 256) {
        return 0;
    }
    if (scheme == PGD_SCHEME_PLAIN) {
        return (uint64_t)k * pgd_dtype_bytes(dtype);
    }
    if (scheme == PGD_SCHEME_INT8) {
        return (uint64_t)k;
    }
    return elements == 0 || (uint64_t)k % elements != 0
               ? 0
               : (uint64_t)k / elements * pgd_scheme_bytes(scheme);
}

// a * b in *out; 0 if it does not fit.
static int mul_fits(uint64_t a, uint64_t b, uint64_t *out) {
    *out = a * b;
    return a == 0 || *out / a == b;
}

// A part with what the desc says about it filled in.
static const pgd_weight_part *get_part(const pgd_weight_desc *desc, uint32_t i,
                                       pgd_weight_part *local) {
    const unsigned char *p = (const unsigned char *)desc->parts + (size_t)i * desc->part_stride;
    memset(local, 0, sizeof(*local));
    memcpy(local, p, desc->part_stride < sizeof(*local) ? desc->part_stride : sizeof(*local));
    if (desc->scheme != PGD_SCHEME_PARTS) {
        local->scheme = desc->scheme;
        local->dtype = desc->dtype;
    }
    return local;
}

static int is_known(const pgd_weight_part *p) {
    if (p->scheme == PGD_SCHEME_PLAIN) {
        return p->dtype >= 1 && p->dtype <= 31 && (PGD_REF_FLOATS >> p->dtype & 1u) != 0;
    }
    return p->scheme == PGD_SCHEME_INT8 || pgd_scheme_elements(p->scheme) != 0;
}

// Checks the numbers of one slice, not its sources.
static pgd_status check_part(const pgd_weight_part *p, const pgd_weight_desc *desc) {
    const int64_t block = pgd_scheme_elements(p->scheme);
    if (!is_known(p)) {
        return PGD_UNSUPPORTED;
    }
    if (p->rows < 0 || p->cols < 0 || p->row_start < 0 || p->col_start < 0 || p->row_count < 0 ||
        p->row_start > p->rows || p->row_count > p->rows - p->row_start || p->col_start > p->cols ||
        p->col_count != desc->k || p->col_count > p->cols - p->col_start) {
        return PGD_INVALID;
    }
    if (block > 0 && (p->cols % block != 0 || p->col_start % block != 0 || desc->k % block != 0)) {
        return PGD_INVALID;
    }
    return PGD_OK;
}

static int is_pointer(const pgd_source *s) {
    return s->ptr != NULL && s->buffer == NULL && s->file == NULL;
}

static pgd_status check_sources(const pgd_weight_part *p) {
    const uint64_t row = pgd_ref_row_bytes(p->scheme, p->dtype, p->cols);
    const uint64_t rows = (uint64_t)(p->row_start + p->row_count);
    uint64_t bytes;
    if (!is_pointer(&p->data) || (p->scheme == PGD_SCHEME_INT8 && !is_pointer(&p->scales))) {
        return PGD_UNSUPPORTED;
    }
    if ((p->cols > 0 && row == 0) || !mul_fits(rows, row, &bytes) || bytes > p->data.bytes) {
        return PGD_INVALID;
    }
    if (p->scheme == PGD_SCHEME_INT8 && rows > p->scales.bytes / sizeof(float)) {
        return PGD_INVALID;
    }
    return PGD_OK;
}

// What join takes, all numbers but the sources'.
static pgd_status check_desc(const pgd_weight_desc *desc, const pgd_weight_desc *d) {
    pgd_weight_part part;
    int64_t n = 0;
    uint32_t i;
    if (d->n_experts != 0 || !pgd_args_tail_is_zero(desc, desc->size, (uint32_t)sizeof(*d))) {
        return PGD_UNSUPPORTED;
    }
    if (d->n < 0 || d->k < 0 || d->part_stride == 0 || (d->n_parts > 0 && d->parts == NULL)) {
        return PGD_INVALID;
    }
    if (d->n_parts == 0 && d->scheme != PGD_SCHEME_PARTS) {
        pgd_weight_part none = {.scheme = d->scheme, .dtype = d->dtype};
        if (!is_known(&none)) {
            return PGD_UNSUPPORTED;
        }
    }
    for (i = 0; i < d->n_parts; i++) {
        PGD_TRY(check_part(get_part(d, i, &part), d));
        if (part.row_count > d->n - n) {
            return PGD_INVALID;
        }
        n += part.row_count;
    }
    return n == d->n ? PGD_OK : PGD_INVALID;
}

// Bytes of n rows of k columns with their scales, a multiple of 4 where `padded`.
static int matrix_bytes(int32_t scheme, int32_t dtype, int64_t n, int64_t k, int padded,
                        uint64_t *out_rows, uint64_t *out_bytes) {
    const uint64_t row = pgd_ref_row_bytes(scheme, dtype, k);
    *out_rows = *out_bytes = 0;
    if ((row == 0 && k > 0) || !mul_fits(row, (uint64_t)n, out_rows) ||
        *out_rows > UINT64_MAX / 4 || (uint64_t)n > UINT64_MAX / 64) {
        return 0;
    }
    *out_bytes = *out_rows;
    if (scheme == PGD_SCHEME_INT8 || padded) {
        *out_rows = *out_bytes = (*out_rows + 3) & ~UINT64_C(3);
    }
    *out_bytes += scheme == PGD_SCHEME_INT8 ? (uint64_t)n * sizeof(float) : 0;
    return 1;
}

pgd_status pgd_ref_weight_bytes(const pgd_weight_desc *desc, uint64_t *out_bytes) {
    pgd_weight_desc local;
    const pgd_weight_desc *d = PGD_ARGS(pgd_weight_desc, local, desc);
    pgd_weight_part part;
    uint64_t rows, bytes;
    uint32_t i;
    *out_bytes = 0;
    PGD_TRY(check_desc(desc, d));
    if (d->scheme != PGD_SCHEME_PARTS) {
        return matrix_bytes(d->scheme, d->dtype, d->n, d->k, 0, &rows, out_bytes) ? PGD_OK
                                                                                  : PGD_INVALID;
    }
    for (i = 0; i < d->n_parts; i++) {
        get_part(d, i, &part);
        if (!matrix_bytes(part.scheme, part.dtype, part.row_count, d->k, 1, &rows, &bytes) ||
            bytes > UINT64_MAX - *out_bytes) {
            return PGD_INVALID;
        }
        *out_bytes += bytes;
    }
    return PGD_OK;
}

pgd_status pgd_ref_weight_view(const pgd_weight_desc *desc, const void *dst, pgd_ref_weight *parts,
                               pgd_ref_weight *out) {
    pgd_weight_desc local;
    const pgd_weight_desc *d = PGD_ARGS(pgd_weight_desc, local, desc);
    const unsigned char *at = dst;
    pgd_weight_part part;
    uint64_t rows, bytes;
    uint32_t i;
    memset(out, 0, sizeof(*out));
    PGD_TRY(pgd_ref_weight_bytes(desc, &bytes));
    *out = (pgd_ref_weight){
        .act_dtype = d->act_dtype, .n = d->n, .k = d->k, .scheme = d->scheme, .rows = dst};
    if (d->scheme != PGD_SCHEME_PARTS) {
        (void)matrix_bytes(d->scheme, d->dtype, d->n, d->k, 0, &rows, &bytes);
        out->dtype = d->dtype;
        out->scales = d->scheme == PGD_SCHEME_INT8 ? (const void *)(at + rows) : NULL;
        return PGD_OK;
    }
    out->rows = NULL;
    out->parts = parts;
    out->n_parts = d->n_parts;
    for (i = 0; i < d->n_parts; i++) {
        get_part(d, i, &part);
        (void)matrix_bytes(part.scheme, part.dtype, part.row_count, d->k, 1, &rows, &bytes);
        parts[i] = (pgd_ref_weight){
            .dtype = part.dtype,
            .n = part.row_count,
            .k = d->k,
            .rows = at,
            .scheme = part.scheme,
            .scales = part.scheme == PGD_SCHEME_INT8 ? (const void *)(at + rows) : NULL,
        };
        at += bytes;
    }
    return PGD_OK;
}

// Copies the slice of one part to `to`, its scales to `scales`.
static void copy_part(const pgd_weight_part *p, unsigned char *to, unsigned char *scales) {
    const uint64_t whole = pgd_ref_row_bytes(p->scheme, p->dtype, p->cols);
    const uint64_t before = pgd_ref_row_bytes(p->scheme, p->dtype, p->col_start);
    const uint64_t bytes = pgd_ref_row_bytes(p->scheme, p->dtype, p->col_count);
    const unsigned char *from = p->data.ptr;
    int64_t r;
    for (r = 0; r < p->row_count; r++) {
        memcpy(to, from + (uint64_t)(p->row_start + r) * whole + before, bytes);
        to += bytes;
    }
    if (p->scheme == PGD_SCHEME_INT8) {
        memcpy(scales, (const unsigned char *)p->scales.ptr + (size_t)p->row_start * sizeof(float),
               (size_t)p->row_count * sizeof(float));
    }
}

pgd_status pgd_ref_weight_join(const pgd_weight_desc *desc, void *dst) {
    pgd_weight_desc local;
    const pgd_weight_desc *d = PGD_ARGS(pgd_weight_desc, local, desc);
    const int apart = d->scheme == PGD_SCHEME_PARTS;
    unsigned char *to = dst, *scales;
    pgd_weight_part part;
    uint64_t rows, bytes;
    uint32_t i;
    PGD_TRY(pgd_ref_weight_bytes(desc, &bytes));
    for (i = 0; i < d->n_parts; i++) {
        PGD_TRY(check_sources(get_part(d, i, &part)));
    }
    (void)matrix_bytes(d->scheme, d->dtype, d->n, d->k, 0, &rows, &bytes);
    scales = to + rows;
    for (i = 0; i < d->n_parts; i++) {
        get_part(d, i, &part);
        if (apart) {
            (void)matrix_bytes(part.scheme, part.dtype, part.row_count, d->k, 1, &rows, &bytes);
            scales = to + rows;
        } else {
            bytes = (uint64_t)part.row_count * pgd_ref_row_bytes(part.scheme, part.dtype, d->k);
        }
        copy_part(&part, to, scales);
        to += bytes;
        scales += apart ? 0 : (size_t)part.row_count * sizeof(float);
    }
    return PGD_OK;
}

// The matrix that holds a row, and the row's place in it.
static const pgd_ref_weight *find(const pgd_ref_weight *w, int64_t *row) {
    uint32_t i;
    if (w->scheme != PGD_SCHEME_PARTS) {
        return w;
    }
    for (i = 0; i + 1 < w->n_parts && *row >= w->parts[i].n; i++) {
        *row -= w->parts[i].n;
    }
    return &w->parts[i];
}

void pgd_ref_weight_read(const pgd_ref_weight *w, int64_t row, int64_t k0, int64_t n, double *out) {
    const pgd_ref_weight *m = find(w, &row);
    const unsigned char *at;
    float values[PGD_REF_CHUNK];
    int64_t i, j;
    if (m->scheme == PGD_SCHEME_PLAIN) {
        pgd_ref_read(m->dtype, m->rows, row * m->k + k0, n, out);
        return;
    }
    at = (const unsigned char *)m->rows +
         (uint64_t)row * pgd_ref_row_bytes(m->scheme, m->dtype, m->k);
    if (m->scheme == PGD_SCHEME_INT8) {
        for (i = 0; i < n; i++) {
            out[i] = (double)(signed char)at[k0 + i] * (double)m->scales[row];
        }
        return;
    }
    at += pgd_ref_row_bytes(m->scheme, 0, k0);
    for (i = 0; i < n; i += PGD_REF_CHUNK) {
        const int64_t count = n - i < PGD_REF_CHUNK ? n - i : PGD_REF_CHUNK;
        pgd_ref_dequantize(m->scheme, at + pgd_ref_row_bytes(m->scheme, 0, i), count, values);
        for (j = 0; j < count; j++) {
            out[i + j] = (double)values[j];
        }
    }
}
