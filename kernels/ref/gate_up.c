// gate_up: [rmsnorm,] gemm, act_mul, through the tensors normed and tmp.
#include "ref/common.h"

typedef struct parts {
    pgd_rmsnorm_args norm;
    pgd_gemm_args gemm;
    pgd_act_mul_args act;
} parts;

pgd_act_mul_args pgd_ref_act_mul_of(const pgd_gate_up_args *a) {
    return (pgd_act_mul_args){.size = sizeof(pgd_act_mul_args),
                              .rows = a->rows,
                              .batch = a->batch,
                              .x = a->tmp,
                              .out = a->out,
                              .act = a->act,
                              .act_alpha = a->act_alpha,
                              .act_limit = a->act_limit};
}

static void split(const pgd_gate_up_args *a, parts *p) {
    p->norm = (pgd_rmsnorm_args){.size = sizeof(p->norm),
                                 .rows = a->rows,
                                 .batch = a->batch,
                                 .x = a->x,
                                 .w = a->norm_w,
                                 .out = a->normed,
                                 .eps = a->eps};
    p->gemm = (pgd_gemm_args){.size = sizeof(p->gemm),
                              .rows = a->rows,
                              .batch = a->batch,
                              .w = a->w,
                              .x = a->norm_w.rank != 0 ? a->normed : a->x,
                              .y = a->tmp,
                              .bias = a->bias,
                              .x_scale = a->x_scale};
    p->act = pgd_ref_act_mul_of(a);
}

pgd_status pgd_ref_check_gate_up(const pgd_exec *x, const pgd_gate_up_args *args) {
    pgd_gate_up_args local;
    const pgd_gate_up_args *a = PGD_ARGS(pgd_gate_up_args, local, args);
    parts p;
    PGD_REF_TAIL(x, pgd_gate_up_args, args);
    split(a, &p);
    if (a->norm_w.rank != 0) {
        PGD_TRY(pgd_ref_check_rmsnorm(x, &p.norm));
    }
    PGD_TRY(pgd_ref_check_gemm(x, &p.gemm));
    return pgd_ref_check_act_mul(x, &p.act);
}

pgd_status pgd_ref_gate_up(const pgd_exec *x, const pgd_gate_up_args *args) {
    pgd_gate_up_args local;
    const pgd_gate_up_args *a = PGD_ARGS(pgd_gate_up_args, local, args);
    parts p;
    PGD_TRY(pgd_ref_check_gate_up(x, args));
    split(a, &p);
    if (a->norm_w.rank != 0) {
        PGD_TRY(pgd_ref_rmsnorm(x, &p.norm));
    }
    PGD_TRY(pgd_ref_gemm(x, &p.gemm));
    return pgd_ref_act_mul(x, &p.act);
}
