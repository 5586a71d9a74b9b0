// embed: rows of a table by token id.
//
// Ids -1-s stand for the last token of slot s, which may be known on the device only. An id outside
// the table's slice gives a row of zeros, so that slices of a vocabulary can be summed.
#include "ref/common.h"

// Row of the table for token t, or -1 for zeros.
static int64_t resolve(const pgd_embed_args *a, int64_t t) {
    const pgd_ref_weight *w = (const pgd_ref_weight *)a->w;
    const int32_t *ids = pgd_ref_array(a->batch, a->batch->token_ids);
    const int32_t *last = pgd_ref_array(a->batch, a->batch->last);
    int64_t id = ids[t];
    if (id < 0) {
        id = last[-1 - id];
    }
    id -= a->row_start;
    return id >= 0 && id < w->n ? id : -1;
}

static pgd_status check(const pgd_exec *x, const pgd_embed_args *a, int64_t *out_rows) {
    const pgd_ref_weight *w = (const pgd_ref_weight *)a->w;
    pgd_ref_want want = {"embed out", PGD_REF_FLOATS, 2, 0, {0}};
    const int32_t *ids;
    int64_t t;
    PGD_TRY(pgd_ref_check_batch(x, a->batch));
    PGD_TRY(pgd_ref_check_weight(x, w));
    PGD_TRY(pgd_ref_live(x, a->batch, a->rows, a->out.shape[0], out_rows));
    want.rows = *out_rows;
    want.dims[1] = w->k;
    PGD_TRY(pgd_ref_check_tensor(x, &a->out, &want));
    ids = pgd_ref_array(a->batch, a->batch->token_ids);
    if (ids == NULL || *out_rows > a->batch->cap_tokens) {
        return PGD_REF_FAIL(x, PGD_INVALID, "embed: %lld rows, the batch holds %d token ids",
                            (long long)*out_rows, (int)a->batch->cap_tokens);
    }
    for (t = 0; t < *out_rows; t++) {
        if (ids[t] < 0 && (a->batch->last == 0 || -1 - (int64_t)ids[t] >= a->batch->cap_slots)) {
            return PGD_REF_FAIL(x, PGD_INVALID, "embed: token %lld names slot %lld of %d",
                                (long long)t, -1 - (long long)ids[t], (int)a->batch->cap_slots);
        }
    }
    return PGD_OK;
}

pgd_status pgd_ref_check_embed(const pgd_exec *x, const pgd_embed_args *args) {
    pgd_embed_args local;
    int64_t rows;
    PGD_REF_TAIL(x, pgd_embed_args, args);
    return check(x, PGD_ARGS(pgd_embed_args, local, args), &rows);
}

pgd_status pgd_ref_embed(const pgd_exec *x, const pgd_embed_args *args) {
    pgd_embed_args local;
    const pgd_embed_args *a = PGD_ARGS(pgd_embed_args, local, args);
    const pgd_ref_weight *w = (const pgd_ref_weight *)a->w;
    const double scale = a->scale == 0 ? 1 : (double)a->scale;
    double values[PGD_REF_CHUNK] = {0};
    int64_t rows, t, k0, i;
    PGD_REF_TAIL(x, pgd_embed_args, args);
    PGD_TRY(check(x, a, &rows));
    for (t = 0; t < rows; t++) {
        void *to = pgd_ref_at(&a->out, t, 0, 0);
        int64_t row = resolve(a, t);
        for (k0 = 0; k0 < w->k; k0 += PGD_REF_CHUNK) {
            int64_t n = w->k - k0 < PGD_REF_CHUNK ? w->k - k0 : PGD_REF_CHUNK;
            if (row >= 0) {
                pgd_ref_weight_read(w, row, k0, n, values);
            }
            for (i = 0; i < n; i++) {
                pgd_ref_store(a->out.dtype, to, k0 + i, row < 0 ? 0 : values[i] * scale);
            }
        }
    }
    return PGD_OK;
}
