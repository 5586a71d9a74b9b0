// rmsnorm: x / sqrt(mean(x^2) + eps) * w over the last dimension (Zhang and Sennrich 2019).
//
// One rounding at the end: the normalised value is not rounded before it meets w.
#include "ref/common.h"

#include <math.h>

static pgd_status check(const pgd_exec *x, const pgd_rmsnorm_args *a, int64_t *out_rows) {
    pgd_ref_want want = {"rmsnorm x", PGD_REF_FLOATS, a->x.rank, 0, {-1, -1, -1, -1}};
    if (a->x.rank != 2 && a->x.rank != 3) {
        return PGD_REF_FAIL(x, PGD_INVALID, "rmsnorm x has rank %u, not 2 or 3",
                            (unsigned)a->x.rank);
    }
    PGD_TRY(pgd_ref_live(x, a->batch, a->rows, a->x.shape[0], out_rows));
    want.rows = *out_rows;
    PGD_TRY(pgd_ref_check_tensor(x, &a->x, &want));
    want.name = "rmsnorm out";
    want.dims[1] = a->x.shape[1];
    want.dims[2] = a->x.shape[2];
    PGD_TRY(pgd_ref_check_tensor(x, &a->out, &want));
    return pgd_ref_check_vector(x, "rmsnorm w", &a->w, PGD_REF_F32, a->x.shape[a->x.rank - 1]);
}

pgd_status pgd_ref_check_rmsnorm(const pgd_exec *x, const pgd_rmsnorm_args *args) {
    pgd_rmsnorm_args local;
    int64_t rows;
    PGD_REF_TAIL(x, pgd_rmsnorm_args, args);
    return check(x, PGD_ARGS(pgd_rmsnorm_args, local, args), &rows);
}

static void norm_row(const pgd_rmsnorm_args *a, int64_t r, int64_t head) {
    const int64_t n = a->x.shape[a->x.rank - 1];
    const void *from = pgd_ref_at(&a->x, r, head, 0);
    void *to = pgd_ref_at(&a->out, r, head, 0);
    const float *w = pgd_ref_at(&a->w, 0, 0, 0);
    double sum = 0, inverse;
    int64_t i;
    for (i = 0; i < n; i++) {
        double v = pgd_ref_load(a->x.dtype, from, i);
        sum += v * v;
    }
    inverse = 1 / sqrt(sum / (double)n + (double)a->eps);
    for (i = 0; i < n; i++) {
        pgd_ref_store(a->out.dtype, to, i,
                      pgd_ref_load(a->x.dtype, from, i) * inverse * (double)w[i]);
    }
}

pgd_status pgd_ref_rmsnorm(const pgd_exec *x, const pgd_rmsnorm_args *args) {
    pgd_rmsnorm_args local;
    const pgd_rmsnorm_args *a = PGD_ARGS(pgd_rmsnorm_args, local, args);
    int64_t rows, r, head;
    PGD_REF_TAIL(x, pgd_rmsnorm_args, args);
    PGD_TRY(check(x, a, &rows));
    for (r = 0; r < rows; r++) {
        if (a->x.rank == 2) {
            norm_row(a, r, 0);
            continue;
        }
        for (head = 0; head < a->x.shape[1]; head++) {
            norm_row(a, r, head);
        }
    }
    return PGD_OK;
}
