// argmax: the largest logit of each output row; the lowest id wins a tie, NaN never wins.
#include "ref/common.h"

int32_t pgd_ref_argmax_row(const float *x, int64_t n) {
    int32_t best = -1;
    int64_t i;
    for (i = 0; i < n; i++) {
        if (x[i] == x[i] && (best < 0 || x[i] > x[best])) {
            best = (int32_t)i;
        }
    }
    return best;
}

static pgd_status check(const pgd_exec *x, const pgd_argmax_args *a, int64_t *out_rows) {
    pgd_ref_want want = {"argmax x", PGD_REF_F32, 2, 0, {0, -1}};
    PGD_TRY(pgd_ref_live(x, a->batch, a->rows, a->x.shape[0], out_rows));
    want.rows = *out_rows;
    PGD_TRY(pgd_ref_check_tensor(x, &a->x, &want));
    if (a->x.shape[1] > INT32_MAX) {
        return PGD_REF_FAIL(x, PGD_INVALID, "argmax: %lld columns", (long long)a->x.shape[1]);
    }
    want = (pgd_ref_want){"argmax out", PGD_REF_I32, 1, *out_rows, {0}};
    PGD_TRY(pgd_ref_check_tensor(x, &a->out, &want));
    return pgd_ref_check_tokens(x, a->batch, *out_rows);
}

pgd_status pgd_ref_check_argmax(const pgd_exec *x, const pgd_argmax_args *args) {
    pgd_argmax_args local;
    int64_t rows;
    PGD_REF_TAIL(x, pgd_argmax_args, args);
    return check(x, PGD_ARGS(pgd_argmax_args, local, args), &rows);
}

pgd_status pgd_ref_argmax(const pgd_exec *x, const pgd_argmax_args *args) {
    pgd_argmax_args local;
    const pgd_argmax_args *a = PGD_ARGS(pgd_argmax_args, local, args);
    int32_t *out;
    int64_t rows, r;
    PGD_REF_TAIL(x, pgd_argmax_args, args);
    PGD_TRY(check(x, a, &rows));
    out = pgd_ref_at(&a->out, 0, 0, 0);
    for (r = 0; r < rows; r++) {
        out[r] = pgd_ref_argmax_row(pgd_ref_at(&a->x, r, 0, 0), a->x.shape[1]);
        pgd_ref_put_token(a->batch, r, out[r]);
    }
    return PGD_OK;
}
