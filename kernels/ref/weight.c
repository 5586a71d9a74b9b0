// Joined weights as the reference ops read them: the parts' slices one under the other, row-major.
#include "ref/common.h"

#include <string.h>

// a * b in *out; 0 if it does not fit.
static int mul_fits(uint64_t a, uint64_t b, uint64_t *out) {
    *out = a * b;
    return a == 0 || *out / a == b;
}

// Checks one slice; gives the bytes of a row of its matrix.
static pgd_status check_part(const pgd_weight_part *p, const pgd_weight_desc *desc) {
    const uint64_t e = pgd_dtype_bytes(desc->dtype);
    uint64_t elements, bytes;
    if (p->data.ptr == NULL || p->data.buffer != NULL || p->data.file != NULL) {
        return PGD_UNSUPPORTED;
    }
    if (p->rows < 0 || p->cols < 0 || p->row_start < 0 || p->col_start < 0 || p->row_count < 0 ||
        p->row_start > p->rows || p->row_count > p->rows - p->row_start || p->col_start > p->cols ||
        p->col_count != desc->k || p->col_count > p->cols - p->col_start) {
        return PGD_INVALID;
    }
    if (!mul_fits((uint64_t)(p->row_start + p->row_count), (uint64_t)p->cols, &elements) ||
        !mul_fits(elements, e, &bytes) || bytes > p->data.bytes) {
        return PGD_INVALID;
    }
    return PGD_OK;
}

static const pgd_weight_part *get_part(const pgd_weight_desc *desc, uint32_t i,
                                       pgd_weight_part *local) {
    const unsigned char *p = (const unsigned char *)desc->parts + (size_t)i * desc->part_stride;
    memset(local, 0, sizeof(*local));
    memcpy(local, p, desc->part_stride < sizeof(*local) ? desc->part_stride : sizeof(*local));
    return local;
}

pgd_status pgd_ref_weight_join(const pgd_weight_desc *desc, void *dst) {
    pgd_weight_desc local;
    const pgd_weight_desc *d = PGD_ARGS(pgd_weight_desc, local, desc);
    const size_t e = pgd_dtype_bytes(d->dtype);
    unsigned char *to = dst;
    pgd_weight_part part;
    int64_t n = 0, r;
    uint32_t i;
    if (d->scheme != PGD_SCHEME_PLAIN || d->n_experts != 0 || e == 0 ||
        (PGD_REF_FLOATS >> d->dtype & 1u) == 0 ||
        !pgd_args_tail_is_zero(desc, desc->size, (uint32_t)sizeof(*d))) {
        return PGD_UNSUPPORTED;
    }
    if (d->n < 0 || d->k < 0 || d->part_stride == 0 || (d->n_parts > 0 && d->parts == NULL)) {
        return PGD_INVALID;
    }
    for (i = 0; i < d->n_parts; i++) {
        PGD_TRY(check_part(get_part(d, i, &part), d));
        if (part.row_count > d->n - n) {
            return PGD_INVALID;
        }
        n += part.row_count;
    }
    if (n != d->n) {
        return PGD_INVALID;
    }
    for (i = 0; i < d->n_parts; i++) {
        get_part(d, i, &part);
        for (r = 0; r < part.row_count; r++) {
            size_t at = (size_t)((part.row_start + r) * part.cols + part.col_start);
            memcpy(to, (const unsigned char *)part.data.ptr + at * e, (size_t)d->k * e);
            to += (size_t)d->k * e;
        }
    }
    return PGD_OK;
}
