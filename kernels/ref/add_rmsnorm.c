// add_rmsnorm: add, then rmsnorm of the sum as it was stored.
#include "ref/common.h"

static void split(const pgd_add_rmsnorm_args *a, pgd_add_args *add, pgd_rmsnorm_args *norm) {
    *add = (pgd_add_args){.size = sizeof(*add),
                          .rows = a->rows,
                          .batch = a->batch,
                          .a = a->residual,
                          .b = a->x,
                          .out = a->residual};
    *norm = (pgd_rmsnorm_args){.size = sizeof(*norm),
                               .rows = a->rows,
                               .batch = a->batch,
                               .x = a->residual,
                               .w = a->w,
                               .out = a->out,
                               .eps = a->eps};
}

pgd_status pgd_ref_check_add_rmsnorm(const pgd_exec *x, const pgd_add_rmsnorm_args *args) {
    pgd_add_rmsnorm_args local;
    pgd_add_args add;
    pgd_rmsnorm_args norm;
    PGD_REF_TAIL(x, pgd_add_rmsnorm_args, args);
    split(PGD_ARGS(pgd_add_rmsnorm_args, local, args), &add, &norm);
    PGD_TRY(pgd_ref_check_add(x, &add));
    return pgd_ref_check_rmsnorm(x, &norm);
}

pgd_status pgd_ref_add_rmsnorm(const pgd_exec *x, const pgd_add_rmsnorm_args *args) {
    pgd_add_rmsnorm_args local;
    pgd_add_args add;
    pgd_rmsnorm_args norm;
    PGD_TRY(pgd_ref_check_add_rmsnorm(x, args));
    split(PGD_ARGS(pgd_add_rmsnorm_args, local, args), &add, &norm);
    PGD_TRY(pgd_ref_add(x, &add));
    return pgd_ref_rmsnorm(x, &norm);
}
