// head_sample: [rmsnorm,] gemm into logits, sample. The logits are always written here, and stay as
// they are: sample changes copies.
#include "ref/common.h"

typedef struct parts {
    pgd_rmsnorm_args norm;
    pgd_gemm_args gemm;
    pgd_sample_args sample;
} parts;

pgd_sample_args pgd_ref_sample_of(const pgd_head_sample_args *a) {
    return (pgd_sample_args){.size = sizeof(pgd_sample_args),
                             .rows = a->rows,
                             .batch = a->batch,
                             .logits = a->logits,
                             .ids = a->ids,
                             .logprobs = a->logprobs,
                             .top_ids = a->top_ids,
                             .state = a->state,
                             .ranks = a->ranks};
}

static void split(const pgd_head_sample_args *a, parts *p) {
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
                              .y = a->logits};
    p->sample = pgd_ref_sample_of(a);
}

pgd_status pgd_ref_check_head_sample(const pgd_exec *x, const pgd_head_sample_args *args) {
    pgd_head_sample_args local;
    const pgd_head_sample_args *a = PGD_ARGS(pgd_head_sample_args, local, args);
    parts p;
    PGD_REF_TAIL(x, pgd_head_sample_args, args);
    split(a, &p);
    if (a->norm_w.rank != 0) {
        PGD_TRY(pgd_ref_check_rmsnorm(x, &p.norm));
    }
    PGD_TRY(pgd_ref_check_gemm(x, &p.gemm));
    return pgd_ref_check_sample(x, &p.sample);
}

pgd_status pgd_ref_head_sample(const pgd_exec *x, const pgd_head_sample_args *args) {
    pgd_head_sample_args local;
    const pgd_head_sample_args *a = PGD_ARGS(pgd_head_sample_args, local, args);
    parts p;
    PGD_TRY(pgd_ref_check_head_sample(x, args));
    split(a, &p);
    if (a->norm_w.rank != 0) {
        PGD_TRY(pgd_ref_rmsnorm(x, &p.norm));
    }
    PGD_TRY(pgd_ref_gemm(x, &p.gemm));
    return pgd_ref_sample(x, &p.sample);
}
