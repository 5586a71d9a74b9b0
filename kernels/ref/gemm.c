// gemm and gemm_add: y = f(alpha * x W^T + bias), then + aux or * aux.
//
// x is rounded to the weight's act_dtype first, if it has one. Each y is one sum in double over
// k = 0, 1, ...; the bias, f and aux follow in double, and there is one rounding at the end.
// act_limit > 0 bounds what goes into f from above, as in act_mul.
#include "ref/common.h"

static pgd_status check(const pgd_exec *x, const pgd_gemm_args *a, int64_t *out_rows) {
    const pgd_ref_weight *w = (const pgd_ref_weight *)a->w;
    pgd_ref_want want = {"gemm x", PGD_REF_FLOATS, 2, 0, {0, 0}};
    PGD_TRY(pgd_ref_check_absent(x, "gemm x_scale", &a->x_scale));
    PGD_TRY(pgd_ref_check_absent(x, "gemm row_map", &a->row_map));
    PGD_TRY(pgd_ref_check_weight(x, w));
    PGD_TRY(pgd_ref_live(x, a->batch, a->rows, a->x.shape[0], out_rows));
    want.rows = *out_rows;
    want.dims[1] = w->k;
    PGD_TRY(pgd_ref_check_tensor(x, &a->x, &want));
    want.name = "gemm y";
    want.dims[1] = w->n;
    PGD_TRY(pgd_ref_check_tensor(x, &a->y, &want));
    if (a->bias.rank != 0) {
        PGD_TRY(pgd_ref_check_vector(x, "gemm bias", &a->bias, PGD_REF_F32, w->n));
    }
    if (a->act < PGD_ACT_NONE || a->act > PGD_ACT_RELU || a->aux_kind < PGD_AUX_NONE ||
        a->aux_kind > PGD_AUX_MUL) {
        return PGD_REF_FAIL(x, PGD_UNSUPPORTED, "gemm: act %d, aux kind %d", (int)a->act,
                            (int)a->aux_kind);
    }
    if (a->aux_kind != PGD_AUX_NONE) {
        want.name = "gemm aux";
        PGD_TRY(pgd_ref_check_tensor(x, &a->aux, &want));
    }
    return PGD_OK;
}

pgd_status pgd_ref_check_gemm(const pgd_exec *x, const pgd_gemm_args *args) {
    pgd_gemm_args local;
    int64_t rows;
    PGD_REF_TAIL(x, pgd_gemm_args, args);
    return check(x, PGD_ARGS(pgd_gemm_args, local, args), &rows);
}

pgd_status pgd_ref_check_gemm_add(const pgd_exec *x, const pgd_gemm_add_args *args) {
    pgd_gemm_args local;
    const pgd_gemm_args *a = PGD_ARGS(pgd_gemm_args, local, args);
    if (a->aux_kind != PGD_AUX_ADD) {
        return PGD_REF_FAIL(x, PGD_INVALID, "gemm_add: aux kind %d, not %d", (int)a->aux_kind,
                            (int)PGD_AUX_ADD);
    }
    return pgd_ref_check_gemm(x, args);
}

// n elements of a row of x, rounded to what the product takes.
static void read_x(const pgd_gemm_args *a, int64_t r, int64_t k0, int64_t n, double *out) {
    const int32_t act = ((const pgd_ref_weight *)a->w)->act_dtype;
    float scratch;
    int64_t i;
    pgd_ref_read(a->x.dtype, pgd_ref_at(&a->x, r, 0, 0), k0, n, out);
    if (act == 0 || act == a->x.dtype) {
        return;
    }
    for (i = 0; i < n; i++) {
        pgd_ref_store(act, &scratch, 0, out[i]);
        out[i] = pgd_ref_load(act, &scratch, 0);
    }
}

// sums[j] = x[r] . W[n0 + j]
static void products(const pgd_gemm_args *a, int64_t r, int64_t n0, int64_t n, double *sums) {
    const pgd_ref_weight *w = (const pgd_ref_weight *)a->w;
    double xs[PGD_REF_CHUNK], ws[PGD_REF_CHUNK];
    int64_t j, k0, i;
    for (j = 0; j < n; j++) {
        sums[j] = 0;
    }
    for (k0 = 0; k0 < w->k; k0 += PGD_REF_CHUNK) {
        int64_t k = w->k - k0 < PGD_REF_CHUNK ? w->k - k0 : PGD_REF_CHUNK;
        read_x(a, r, k0, k, xs);
        for (j = 0; j < n; j++) {
            double sum = sums[j];
            pgd_ref_weight_read(w, n0 + j, k0, k, ws);
            for (i = 0; i < k; i++) {
                sum += xs[i] * ws[i];
            }
            sums[j] = sum;
        }
    }
}

// What follows the sum of one element.
static double finish(const pgd_gemm_args *a, int64_t r, int64_t n, double v) {
    const float *bias = pgd_ref_at(&a->bias, 0, 0, 0);
    v *= a->alpha == 0 ? 1 : (double)a->alpha;
    if (a->bias.rank != 0) {
        v += (double)bias[n];
    }
    if (a->act != PGD_ACT_NONE && a->act_limit > 0 && v > (double)a->act_limit) {
        v = (double)a->act_limit;
    }
    v = pgd_ref_activate(a->act, (double)a->act_alpha, v);
    if (a->aux_kind == PGD_AUX_ADD) {
        v += pgd_ref_load(a->aux.dtype, pgd_ref_at(&a->aux, r, 0, 0), n);
    } else if (a->aux_kind == PGD_AUX_MUL) {
        v *= pgd_ref_load(a->aux.dtype, pgd_ref_at(&a->aux, r, 0, 0), n);
    }
    return v;
}

pgd_status pgd_ref_gemm(const pgd_exec *x, const pgd_gemm_args *args) {
    pgd_gemm_args local;
    const pgd_gemm_args *a = PGD_ARGS(pgd_gemm_args, local, args);
    const pgd_ref_weight *w = (const pgd_ref_weight *)a->w;
    double sums[PGD_REF_CHUNK];
    int64_t rows, r, n0, j;
    PGD_REF_TAIL(x, pgd_gemm_args, args);
    PGD_TRY(check(x, a, &rows));
    for (r = 0; r < rows; r++) {
        void *y = pgd_ref_at(&a->y, r, 0, 0);
        for (n0 = 0; n0 < w->n; n0 += PGD_REF_CHUNK) {
            int64_t n = w->n - n0 < PGD_REF_CHUNK ? w->n - n0 : PGD_REF_CHUNK;
            products(a, r, n0, n, sums);
            for (j = 0; j < n; j++) {
                pgd_ref_store(a->y.dtype, y, n0 + j, finish(a, r, n0 + j, sums[j]));
            }
        }
    }
    return PGD_OK;
}

pgd_status pgd_ref_gemm_add(const pgd_exec *x, const pgd_gemm_add_args *args) {
    PGD_TRY(pgd_ref_check_gemm_add(x, args));
    return pgd_ref_gemm(x, args);
}
