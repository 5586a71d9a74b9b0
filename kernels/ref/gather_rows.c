// gather_rows: the rows that give logits, by out_rows of the batch; a copy, bit for bit.
#include "ref/common.h"

#include <string.h>

static pgd_status check(const pgd_exec *x, const pgd_gather_rows_args *a, int64_t *out_rows) {
    pgd_ref_want want = {"gather_rows x", PGD_REF_FLOATS | PGD_REF_I32, 2, -1, {-1, -1}};
    const int32_t *from;
    int64_t r;
    PGD_TRY(pgd_ref_check_batch(x, a->batch));
    PGD_TRY(pgd_ref_live(x, a->batch, a->rows, a->out.shape[0], out_rows));
    if (*out_rows > 0) {
        PGD_TRY(pgd_ref_check_tensor(x, &a->x, &want));
    }
    want = (pgd_ref_want){"gather_rows out", 1u << a->x.dtype, 2, *out_rows, {0, a->x.shape[1]}};
    PGD_TRY(pgd_ref_check_tensor(x, &a->out, &want));
    from = pgd_ref_array(a->batch, a->batch->out_rows);
    if (*out_rows > 0 && (from == NULL || *out_rows > a->batch->cap_out)) {
        return PGD_REF_FAIL(x, PGD_INVALID, "gather_rows: %lld rows, the batch holds %d",
                            (long long)*out_rows, (int)a->batch->cap_out);
    }
    for (r = 0; r < *out_rows; r++) {
        if (from[r] < 0 || from[r] >= a->x.shape[0]) {
            return PGD_REF_FAIL(x, PGD_INVALID, "gather_rows: output %lld reads row %d of %lld",
                                (long long)r, (int)from[r], (long long)a->x.shape[0]);
        }
    }
    return PGD_OK;
}

pgd_status pgd_ref_check_gather_rows(const pgd_exec *x, const pgd_gather_rows_args *args) {
    pgd_gather_rows_args local;
    int64_t rows;
    PGD_REF_TAIL(x, pgd_gather_rows_args, args);
    return check(x, PGD_ARGS(pgd_gather_rows_args, local, args), &rows);
}

pgd_status pgd_ref_gather_rows(const pgd_exec *x, const pgd_gather_rows_args *args) {
    pgd_gather_rows_args local;
    const pgd_gather_rows_args *a = PGD_ARGS(pgd_gather_rows_args, local, args);
    const int32_t *from;
    int64_t rows, r;
    PGD_REF_TAIL(x, pgd_gather_rows_args, args);
    PGD_TRY(check(x, a, &rows));
    from = pgd_ref_array(a->batch, a->batch->out_rows);
    for (r = 0; r < rows; r++) {
        memcpy(pgd_ref_at(&a->out, r, 0, 0), pgd_ref_at(&a->x, from[r], 0, 0),
               (size_t)a->x.shape[1] * pgd_dtype_bytes(a->x.dtype));
    }
    return PGD_OK;
}
