// qkv_rope_write: [rmsnorm,] gemm into qkv, [rmsnorm per head of q and k,] rope, kv_write.
#include "ref/common.h"

typedef struct parts {
    pgd_rmsnorm_args norm;
    pgd_gemm_args gemm;
    pgd_rmsnorm_args q_norm;
    pgd_rmsnorm_args k_norm;
    pgd_rope_args rope;
    pgd_kv_write_args write;
} parts;

static pgd_rmsnorm_args norm_args(const pgd_qkv_rope_write_args *a, const pgd_tensor *x,
                                  const pgd_tensor *w, const pgd_tensor *out) {
    return (pgd_rmsnorm_args){.size = sizeof(pgd_rmsnorm_args),
                              .rows = a->rows,
                              .batch = a->batch,
                              .x = *x,
                              .w = *w,
                              .out = *out,
                              .eps = a->eps};
}

static void split(const pgd_qkv_rope_write_args *a, parts *p) {
    int i;
    p->norm = norm_args(a, &a->x, &a->norm_w, &a->normed);
    p->q_norm = norm_args(a, &a->q, &a->q_norm, &a->q);
    p->k_norm = norm_args(a, &a->k, &a->k_norm, &a->k);
    p->gemm = (pgd_gemm_args){.size = sizeof(p->gemm),
                              .rows = a->rows,
                              .batch = a->batch,
                              .w = a->w,
                              .x = a->norm_w.rank != 0 ? a->normed : a->x,
                              .y = a->qkv,
                              .bias = a->bias};
    p->rope = (pgd_rope_args){.size = sizeof(p->rope),
                              .rows = a->rows,
                              .batch = a->batch,
                              .q = a->q,
                              .k = a->k,
                              .table = a->table,
                              .style = a->style,
                              .rot_dim = a->rot_dim};
    for (i = 0; i < 4; i++) {
        p->rope.sections[i] = a->sections[i];
    }
    p->write = (pgd_kv_write_args){.size = sizeof(p->write),
                                   .rows = a->rows,
                                   .batch = a->batch,
                                   .kv = a->kv,
                                   .layer = a->layer,
                                   .group = a->group,
                                   .k = a->k,
                                   .v = a->v};
}

pgd_status pgd_ref_check_qkv_rope_write(const pgd_exec *x, const pgd_qkv_rope_write_args *args) {
    pgd_qkv_rope_write_args local;
    const pgd_qkv_rope_write_args *a = PGD_ARGS(pgd_qkv_rope_write_args, local, args);
    parts p;
    PGD_REF_TAIL(x, pgd_qkv_rope_write_args, args);
    split(a, &p);
    if (a->norm_w.rank != 0) {
        PGD_TRY(pgd_ref_check_rmsnorm(x, &p.norm));
    }
    PGD_TRY(pgd_ref_check_gemm(x, &p.gemm));
    if (a->q_norm.rank != 0) {
        PGD_TRY(pgd_ref_check_rmsnorm(x, &p.q_norm));
    }
    if (a->k_norm.rank != 0) {
        PGD_TRY(pgd_ref_check_rmsnorm(x, &p.k_norm));
    }
    PGD_TRY(pgd_ref_check_rope(x, &p.rope));
    return pgd_ref_check_kv_write(x, &p.write);
}

pgd_status pgd_ref_qkv_rope_write(const pgd_exec *x, const pgd_qkv_rope_write_args *args) {
    pgd_qkv_rope_write_args local;
    const pgd_qkv_rope_write_args *a = PGD_ARGS(pgd_qkv_rope_write_args, local, args);
    parts p;
    PGD_TRY(pgd_ref_check_qkv_rope_write(x, args));
    split(a, &p);
    if (a->norm_w.rank != 0) {
        PGD_TRY(pgd_ref_rmsnorm(x, &p.norm));
    }
    PGD_TRY(pgd_ref_gemm(x, &p.gemm));
    if (a->q_norm.rank != 0) {
        PGD_TRY(pgd_ref_rmsnorm(x, &p.q_norm));
    }
    if (a->k_norm.rank != 0) {
        PGD_TRY(pgd_ref_rmsnorm(x, &p.k_norm));
    }
    PGD_TRY(pgd_ref_rope(x, &p.rope));
    return pgd_ref_kv_write(x, &p.write);
}
