// rope: turns pairs of dims by the angle of the token's position (Su et al. 2021).
//
// The table holds cos and sin of each position and pair; how the angles scale is the host's
// business. With several position axes, pair i uses the axis whose section it falls into.
#include "ref/common.h"

// Axis of a pair.
static int32_t axis_of(const pgd_rope_args *a, int64_t pair) {
    int32_t axis;
    for (axis = 0; axis < 4; axis++) {
        pair -= a->sections[axis];
        if (pair < 0) {
            return axis;
        }
    }
    return 0;
}

static pgd_status check_sections(const pgd_exec *x, const pgd_rope_args *a) {
    int64_t sum = 0;
    int32_t axis;
    for (axis = 0; axis < 4; axis++) {
        if (a->sections[axis] < 0 || (a->sections[axis] > 0 && axis >= a->batch->n_axes)) {
            return PGD_REF_FAIL(x, PGD_INVALID, "rope: section %d of a batch with %d axes",
                                (int)axis, (int)a->batch->n_axes);
        }
        sum += a->sections[axis];
    }
    if (sum != 0 && sum != a->rot_dim / 2) {
        return PGD_REF_FAIL(x, PGD_INVALID, "rope: sections hold %lld pairs, not %d",
                            (long long)sum, (int)(a->rot_dim / 2));
    }
    return PGD_OK;
}

static pgd_status check_positions(const pgd_exec *x, const pgd_rope_args *a, int64_t rows) {
    const int32_t *positions = pgd_ref_array(a->batch, a->batch->positions);
    int64_t t, axis;
    if (positions == NULL || rows > a->batch->cap_tokens || a->batch->n_axes < 1) {
        return PGD_REF_FAIL(x, PGD_INVALID, "rope: %lld rows, the batch holds %d positions",
                            (long long)rows, (int)a->batch->cap_tokens);
    }
    for (axis = 0; axis < a->batch->n_axes && axis < 4; axis++) {
        if (axis > 0 && a->sections[axis] == 0) {
            continue;
        }
        for (t = 0; t < rows; t++) {
            int32_t p = positions[axis * a->batch->cap_tokens + t];
            if (p < 0 || p >= a->table.shape[0]) {
                return PGD_REF_FAIL(x, PGD_INVALID, "rope: position %d, the table holds %lld",
                                    (int)p, (long long)a->table.shape[0]);
            }
        }
    }
    return PGD_OK;
}

static pgd_status check(const pgd_exec *x, const pgd_rope_args *a, int64_t *out_rows) {
    pgd_ref_want want = {"rope q", PGD_REF_FLOATS, 3, 0, {-1, -1, -1}};
    PGD_TRY(pgd_ref_check_batch(x, a->batch));
    PGD_TRY(pgd_ref_live(x, a->batch, a->rows, a->q.shape[0], out_rows));
    want.rows = *out_rows;
    PGD_TRY(pgd_ref_check_tensor(x, &a->q, &want));
    if (a->k.rank != 0) {
        want.name = "rope k";
        want.dims[2] = a->q.shape[2];
        PGD_TRY(pgd_ref_check_tensor(x, &a->k, &want));
    }
    if ((a->style != PGD_ROPE_HALF && a->style != PGD_ROPE_INTERLEAVED) || a->rot_dim < 0 ||
        a->rot_dim % 2 != 0 || a->rot_dim > a->q.shape[2]) {
        return PGD_REF_FAIL(x, PGD_INVALID, "rope: style %d with %d of %lld dims", (int)a->style,
                            (int)a->rot_dim, (long long)a->q.shape[2]);
    }
    want = (pgd_ref_want){"rope table", PGD_REF_F32, 3, -1, {-1, a->rot_dim / 2, 2}};
    if (*out_rows == 0) {
        return PGD_OK;
    }
    PGD_TRY(pgd_ref_check_tensor(x, &a->table, &want));
    PGD_TRY(check_sections(x, a));
    return check_positions(x, a, *out_rows);
}

pgd_status pgd_ref_check_rope(const pgd_exec *x, const pgd_rope_args *args) {
    pgd_rope_args local;
    int64_t rows;
    PGD_REF_TAIL(x, pgd_rope_args, args);
    return check(x, PGD_ARGS(pgd_rope_args, local, args), &rows);
}

static void turn(const pgd_rope_args *a, const pgd_tensor *t, int64_t row) {
    const int32_t *positions = pgd_ref_array(a->batch, a->batch->positions);
    const int64_t half = a->rot_dim / 2;
    int64_t head, pair;
    for (head = 0; head < t->shape[1]; head++) {
        void *v = pgd_ref_at(t, row, head, 0);
        for (pair = 0; pair < half; pair++) {
            int64_t axis = axis_of(a, pair);
            int64_t p = positions[axis * a->batch->cap_tokens + row];
            const float *angle = pgd_ref_at(&a->table, p, pair, 0);
            int64_t i = a->style == PGD_ROPE_HALF ? pair : 2 * pair;
            int64_t j = a->style == PGD_ROPE_HALF ? pair + half : 2 * pair + 1;
            double v0 = pgd_ref_load(t->dtype, v, i);
            double v1 = pgd_ref_load(t->dtype, v, j);
            double c = (double)angle[0], s = (double)angle[1];
            pgd_ref_store(t->dtype, v, i, v0 * c - v1 * s);
            pgd_ref_store(t->dtype, v, j, v1 * c + v0 * s);
        }
    }
}

pgd_status pgd_ref_rope(const pgd_exec *x, const pgd_rope_args *args) {
    pgd_rope_args local;
    const pgd_rope_args *a = PGD_ARGS(pgd_rope_args, local, args);
    int64_t rows, t;
    PGD_REF_TAIL(x, pgd_rope_args, args);
    PGD_TRY(check(x, a, &rows));
    for (t = 0; t < rows; t++) {
        turn(a, &a->q, t);
        if (a->k.rank != 0) {
            turn(a, &a->k, t);
        }
    }
    return PGD_OK;
}
