// add: a + b, element by element.
#include "ref/common.h"

static pgd_status check(const pgd_exec *x, const pgd_add_args *a, int64_t *out_rows) {
    pgd_ref_want want = {"add a", PGD_REF_FLOATS, a->a.rank, 0, {-1, -1, -1, -1}};
    uint32_t i;
    if (a->a.rank < 1 || a->a.rank > PGD_MAX_RANK) {
        return PGD_REF_FAIL(x, PGD_INVALID, "add a has rank %u, not 1 to %d", (unsigned)a->a.rank,
                            PGD_MAX_RANK);
    }
    PGD_TRY(pgd_ref_live(x, a->batch, a->rows, a->a.shape[0], out_rows));
    want.rows = *out_rows;
    PGD_TRY(pgd_ref_check_tensor(x, &a->a, &want));
    for (i = 1; i < a->a.rank; i++) {
        want.dims[i] = a->a.shape[i];
    }
    want.name = "add b";
    PGD_TRY(pgd_ref_check_tensor(x, &a->b, &want));
    want.name = "add out";
    return pgd_ref_check_tensor(x, &a->out, &want);
}

pgd_status pgd_ref_check_add(const pgd_exec *x, const pgd_add_args *args) {
    pgd_add_args local;
    int64_t rows;
    PGD_REF_TAIL(x, pgd_add_args, args);
    return check(x, PGD_ARGS(pgd_add_args, local, args), &rows);
}

// n elements of the last dimension, leading indices i, j, l.
static void add_row(const pgd_add_args *a, int64_t i, int64_t j, int64_t l, int64_t n) {
    const void *u = pgd_ref_at(&a->a, i, j, l);
    const void *v = pgd_ref_at(&a->b, i, j, l);
    void *to = pgd_ref_at(&a->out, i, j, l);
    int64_t e;
    for (e = 0; e < n; e++) {
        pgd_ref_store(a->out.dtype, to, e,
                      pgd_ref_load(a->a.dtype, u, e) + pgd_ref_load(a->b.dtype, v, e));
    }
}

pgd_status pgd_ref_add(const pgd_exec *x, const pgd_add_args *args) {
    pgd_add_args local;
    const pgd_add_args *a = PGD_ARGS(pgd_add_args, local, args);
    int64_t rows, i, j, l, d1, d2;
    PGD_REF_TAIL(x, pgd_add_args, args);
    PGD_TRY(check(x, a, &rows));
    if (a->a.rank == 1) {
        add_row(a, 0, 0, 0, rows);
        return PGD_OK;
    }
    d1 = a->a.rank > 2 ? a->a.shape[1] : 1;
    d2 = a->a.rank > 3 ? a->a.shape[2] : 1;
    for (i = 0; i < rows; i++) {
        for (j = 0; j < d1; j++) {
            for (l = 0; l < d2; l++) {
                add_row(a, i, j, l, a->a.shape[a->a.rank - 1]);
            }
        }
    }
    return PGD_OK;
}
