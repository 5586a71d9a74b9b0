// act_mul: the gate of a gated MLP times its up part; and the activations themselves.
//
//   SILU       v * sigmoid(alpha * v)                         (Elfwing et al. 2017)
//   GELU       v * (1 + erf(v / sqrt 2)) / 2                  (Hendrycks and Gimpel 2016)
//   GELU_TANH  v * (1 + tanh(sqrt(2 / pi) (v + 0.044715 v^3))) / 2
//   RELU       max(v, 0)
#include "ref/common.h"

#include <math.h>

double pgd_ref_activate(int32_t act, double alpha, double v) {
    const double sqrt_half = 0.70710678118654752440, sqrt_2_pi = 0.79788456080286535588;
    switch (act) {
    case PGD_ACT_SILU: return v / (1 + exp(-(alpha == 0 ? 1 : alpha) * v));
    case PGD_ACT_GELU: return 0.5 * v * (1 + erf(v * sqrt_half));
    case PGD_ACT_GELU_TANH: return 0.5 * v * (1 + tanh(sqrt_2_pi * (v + 0.044715 * v * v * v)));
    case PGD_ACT_RELU: return v < 0 ? 0 : v;
    default: return v;
    }
}

static pgd_status check(const pgd_exec *x, const pgd_act_mul_args *a, int64_t *out_rows) {
    pgd_ref_want want = {"act_mul out", PGD_REF_FLOATS, 2, 0, {0, -1}};
    PGD_TRY(pgd_ref_live(x, a->batch, a->rows, a->out.shape[0], out_rows));
    want.rows = *out_rows;
    PGD_TRY(pgd_ref_check_tensor(x, &a->out, &want));
    want.name = "act_mul x";
    want.dims[1] = 2 * a->out.shape[1];
    PGD_TRY(pgd_ref_check_tensor(x, &a->x, &want));
    if (a->act < PGD_ACT_NONE || a->act > PGD_ACT_RELU) {
        return PGD_REF_FAIL(x, PGD_UNSUPPORTED, "act_mul: act %d", (int)a->act);
    }
    return PGD_OK;
}

pgd_status pgd_ref_check_act_mul(const pgd_exec *x, const pgd_act_mul_args *args) {
    pgd_act_mul_args local;
    int64_t rows;
    PGD_REF_TAIL(x, pgd_act_mul_args, args);
    return check(x, PGD_ARGS(pgd_act_mul_args, local, args), &rows);
}

pgd_status pgd_ref_act_mul(const pgd_exec *x, const pgd_act_mul_args *args) {
    pgd_act_mul_args local;
    const pgd_act_mul_args *a = PGD_ARGS(pgd_act_mul_args, local, args);
    const int64_t n = a->out.shape[1];
    const double limit = (double)a->act_limit;
    int64_t rows, r, i;
    PGD_REF_TAIL(x, pgd_act_mul_args, args);
    PGD_TRY(check(x, a, &rows));
    for (r = 0; r < rows; r++) {
        const void *from = pgd_ref_at(&a->x, r, 0, 0);
        void *to = pgd_ref_at(&a->out, r, 0, 0);
        for (i = 0; i < n; i++) {
            double gate = pgd_ref_load(a->x.dtype, from, i);
            double up = pgd_ref_load(a->x.dtype, from, n + i);
            if (limit > 0) {
                gate = gate > limit ? limit : gate;
                up = up > limit ? limit : up < -limit ? -limit : up;
            }
            pgd_ref_store(a->out.dtype, to, i,
                          pgd_ref_activate(a->act, (double)a->act_alpha, gate) * up);
        }
    }
    return PGD_OK;
}
