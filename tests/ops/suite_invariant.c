// One order of summation whatever the batch: a row computed alone, in a batch of any size, in a
// chunk or as a decode, beside any neighbours and from any blocks has the same bytes.
//
// Checked on the device alone, where support promises it.
#include "ops.h"

#include <string.h>

enum { MOST_ROWS = 67, MOST_FIELDS = 8 };

// An op whose tensors can be cut by rows.
typedef struct cut {
    int32_t op;
    uint32_t bytes;
    size_t fields[MOST_FIELDS]; // offsets of the tensors in the args
    int32_t n_fields;
} cut;

static void run_part(ops_fixture *f, const cut *c, const void *args, int64_t first, int64_t rows) {
    union {
        pgd_qkv_rope_write_args largest;
        unsigned char bytes[sizeof(pgd_qkv_rope_write_args)];
    } part;
    int32_t i;
    memcpy(&part, args, c->bytes);
    for (i = 0; i < c->n_fields; i++) {
        pgd_tensor *t = (pgd_tensor *)(void *)(part.bytes + c->fields[i]);
        if (t->rank != 0) {
            t->offset += (uint64_t)(first * t->stride[0]) * pgd_dtype_bytes(t->dtype);
            t->shape[0] = rows;
        }
    }
    ops_run_dev(f, c->op, &part);
}

// All rows at once, then in parts of each size; every output is the same.
static void compare_cuts(ops_fixture *f, const cut *c, const void *args, const ops_tensor *out,
                         int32_t n_out) {
    static const int32_t sizes[] = {1,  2,  3,  4,  5,  6,  7,  8,  9,  12,
                                    15, 16, 17, 24, 31, 32, 33, 48, 64, 66};
    size_t s;
    int32_t i;
    int64_t row;
    if (f->broken || !ops_is_invariant(f, 0)) {
        return;
    }
    ops_run_dev(f, c->op, args);
    ops_fetch(f);
    for (i = 0; i < n_out; i++) {
        ops_adopt(f, &out[i]);
    }
    for (s = 0; s < sizeof(sizes) / sizeof(sizes[0]) && f->broken + f->wrong == 0; s++) {
        ops_restart(f);
        for (row = 0; row < MOST_ROWS; row += sizes[s]) {
            run_part(f, c, args, row, MOST_ROWS - row < sizes[s] ? MOST_ROWS - row : sizes[s]);
        }
        ops_fetch(f);
        for (i = 0; i < n_out; i++) {
            ops_compare(f, &out[i], MOST_ROWS, OPS_EXACT, 0);
        }
        if (f->wrong) {
            ops_fail(f, "in parts of %d rows", (int)sizes[s]);
        }
    }
}

static void plain_batch(ops_fixture *f) {
    const ops_batch_spec spec = ops_plain_batch(MOST_ROWS);
    ops_batch(f, &spec);
}

static int64_t draw_long(ops_fixture *f) {
    return ops_between(&f->rng, 0, 2) == 0 ? ops_between(&f->rng, 700, 2100) : ops_width(&f->rng);
}

static void cut_gemm(ops_fixture *f) {
    const int32_t added = (int32_t)ops_between(&f->rng, 0, 1);
    const cut c = {
        added ? PGD_OP_gemm_add : PGD_OP_gemm,
        sizeof(pgd_gemm_args),
        {offsetof(pgd_gemm_args, x), offsetof(pgd_gemm_args, y), offsetof(pgd_gemm_args, aux)},
        3};
    const int32_t scheme = ops_between(&f->rng, 0, 1) == 0 ? ops_scheme(&f->rng) : 0;
    const int32_t dtype = scheme != 0 ? PGD_F32 : ops_act(f), w_dtype = ops_float(&f->rng);
    const int64_t n = ops_width(&f->rng);
    const int64_t k = scheme != 0 ? (draw_long(f) + 255) / 256 * 256 : draw_long(f);
    ops_tensor x, y, bias;
    pgd_gemm_args a = {.size = sizeof(a), .batch = &f->batch[OPS_DEV]};
    plain_batch(f);
    if (scheme != 0) {
        ops_quantized(f, PGD_USE_GEMM, scheme, n, k, 1, MOST_ROWS);
    } else {
        ops_weight(f, PGD_USE_GEMM, w_dtype, ops_rounding(f, w_dtype, dtype), n, k, 1, MOST_ROWS);
    }
    x = ops_make2(f, "x", dtype, MOST_ROWS, k, MOST_ROWS, OPS_FILL_NORMAL);
    y = ops_make2(f, "y", ops_between(&f->rng, 0, 1) == 0 ? PGD_F32 : dtype, MOST_ROWS, n,
                  MOST_ROWS, OPS_FILL_NORMAL);
    bias = ops_make1(f, "bias", PGD_F32, n, OPS_FILL_NORMAL);
    ops_say(f, " %s of %lld x %lld %s, x %s, y %s", ops_name(c.op), (long long)n, (long long)k,
            scheme != 0 ? pgd_scheme_name(scheme) : pgd_dtype_name(w_dtype), pgd_dtype_name(dtype),
            pgd_dtype_name(y.side[0].dtype));
    ops_may_write(f, &y);
    a.x = x.side[OPS_DEV];
    a.y = y.side[OPS_DEV];
    a.bias = bias.side[OPS_DEV];
    if (added) {
        a.aux = a.y;
        a.aux_kind = PGD_AUX_ADD;
    }
    ops_ask(f, c.op, &a);
    ops_ready(f);
    a.w = f->weight[OPS_DEV];
    compare_cuts(f, &c, &a, &y, 1);
}

static void cut_gate_up(ops_fixture *f) {
    const cut c = {PGD_OP_gate_up,
                   sizeof(pgd_gate_up_args),
                   {offsetof(pgd_gate_up_args, x), offsetof(pgd_gate_up_args, normed),
                    offsetof(pgd_gate_up_args, tmp), offsetof(pgd_gate_up_args, out)},
                   4};
    const int32_t dtype = ops_act(f), w_dtype = ops_float(&f->rng);
    const int64_t n = ops_width(&f->rng), k = draw_long(f);
    ops_tensor x, normed, norm_w, tmp, out;
    pgd_gate_up_args a = {.size = sizeof(a), .batch = &f->batch[OPS_DEV]};
    plain_batch(f);
    ops_weight(f, PGD_USE_GATE_UP, w_dtype, ops_rounding(f, w_dtype, dtype), 2 * n, k, 2,
               MOST_ROWS);
    x = ops_make2(f, "x", dtype, MOST_ROWS, k, MOST_ROWS, OPS_FILL_NORMAL);
    normed = ops_make2(f, "normed", dtype, MOST_ROWS, k, MOST_ROWS, OPS_FILL_NAN);
    norm_w = ops_make1(f, "norm_w", PGD_F32, k, OPS_FILL_NEAR_ONE);
    tmp = ops_make2(f, "tmp", dtype, MOST_ROWS, 2 * n, MOST_ROWS, OPS_FILL_NAN);
    out = ops_make2(f, "out", dtype, MOST_ROWS, n, MOST_ROWS, OPS_FILL_NAN);
    ops_say(f, " gate_up of 2 x %lld x %lld %s, x %s", (long long)n, (long long)k,
            pgd_dtype_name(w_dtype), pgd_dtype_name(dtype));
    ops_may_write(f, &normed);
    ops_may_write(f, &tmp);
    ops_may_write(f, &out);
    a.x = x.side[OPS_DEV];
    a.norm_w = norm_w.side[OPS_DEV];
    a.normed = normed.side[OPS_DEV];
    a.tmp = tmp.side[OPS_DEV];
    a.out = out.side[OPS_DEV];
    a.act = PGD_ACT_SILU;
    a.eps = 1e-5F;
    ops_ask(f, c.op, &a);
    ops_ready(f);
    a.w = f->weight[OPS_DEV];
    compare_cuts(f, &c, &a, &out, 1);
}

static void cut_add_rmsnorm(ops_fixture *f) {
    const cut c = {PGD_OP_add_rmsnorm,
                   sizeof(pgd_add_rmsnorm_args),
                   {offsetof(pgd_add_rmsnorm_args, x), offsetof(pgd_add_rmsnorm_args, residual),
                    offsetof(pgd_add_rmsnorm_args, out)},
                   3};
    const int32_t dtype = ops_act(f);
    const int64_t k = draw_long(f);
    ops_tensor x, w, out[2];
    pgd_add_rmsnorm_args a = {.size = sizeof(a), .batch = &f->batch[OPS_DEV], .eps = 1e-5F};
    plain_batch(f);
    x = ops_make2(f, "x", dtype, MOST_ROWS, k, MOST_ROWS, OPS_FILL_NORMAL);
    w = ops_make1(f, "w", PGD_F32, k, OPS_FILL_NEAR_ONE);
    out[0] = ops_make2(f, "residual", dtype, MOST_ROWS, k, MOST_ROWS, OPS_FILL_NORMAL);
    out[1] = ops_make2(f, "out", dtype, MOST_ROWS, k, MOST_ROWS, OPS_FILL_NAN);
    ops_say(f, " add_rmsnorm of %lld %s", (long long)k, pgd_dtype_name(dtype));
    ops_may_write(f, &out[0]);
    ops_may_write(f, &out[1]);
    a.x = x.side[OPS_DEV];
    a.residual = out[0].side[OPS_DEV];
    a.w = w.side[OPS_DEV];
    a.out = out[1].side[OPS_DEV];
    ops_ask(f, c.op, &a);
    ops_ready(f);
    compare_cuts(f, &c, &a, out, 2);
}

static void cut_rmsnorm(ops_fixture *f) {
    const cut c = {PGD_OP_rmsnorm,
                   sizeof(pgd_rmsnorm_args),
                   {offsetof(pgd_rmsnorm_args, x), offsetof(pgd_rmsnorm_args, out)},
                   2};
    const int32_t dtype = ops_act(f);
    const int64_t k = draw_long(f);
    ops_tensor x, w, out;
    pgd_rmsnorm_args a = {.size = sizeof(a), .batch = &f->batch[OPS_DEV], .eps = 1e-5F};
    plain_batch(f);
    x = ops_make2(f, "x", dtype, MOST_ROWS, k, MOST_ROWS, OPS_FILL_NORMAL);
    w = ops_make1(f, "w", PGD_F32, k, OPS_FILL_NEAR_ONE);
    out = ops_make2(f, "out", dtype, MOST_ROWS, k, MOST_ROWS, OPS_FILL_NAN);
    ops_say(f, " rmsnorm of %lld %s", (long long)k, pgd_dtype_name(dtype));
    ops_may_write(f, &out);
    a.x = x.side[OPS_DEV];
    a.w = w.side[OPS_DEV];
    a.out = out.side[OPS_DEV];
    ops_ask(f, c.op, &a);
    ops_ready(f);
    compare_cuts(f, &c, &a, &out, 1);
}

// ---- attention: positions matter, so each part is a step of its own ----------------------------

enum { SLOT = 3, TWIN = 8, NEIGHBOUR = 5, SPARE_ROWS = 40 };

// Rows [first, first + rows) of the sequence in `slot`, with or without neighbours behind them.
static ops_batch_spec step_of(const ops_fixture *f, int32_t slot, int32_t first, int32_t rows,
                              int32_t neighbours) {
    ops_batch_spec spec = {.n_seqs = 1, .block_tokens = f->block_tokens};
    spec.seqs[0] = (ops_seq){.rows = rows, .kv_len = first + rows, .slot = slot, .out = 1};
    if (neighbours) {
        spec.seqs[1] = (ops_seq){.rows = 5, .kv_len = 90, .slot = NEIGHBOUR};
        spec.seqs[2] = (ops_seq){.rows = 30, .kv_len = 33, .slot = NEIGHBOUR + 1};
        spec.n_seqs = 3;
    }
    return spec;
}

// The cache of the twin, in other blocks, is the same.
static void copy_twin(ops_fixture *f, int32_t len) {
    const pgd_kv_desc *d = &f->kv_desc;
    const size_t bytes = (size_t)d->heads * (size_t)d->k_dim * pgd_dtype_bytes(d->k_dtype);
    int32_t j, layer, which;
    for (j = 0; j < len && !f->broken; j++) {
        for (layer = 0; layer < d->layers; layer++) {
            for (which = 0; which < 2; which++) {
                memcpy(pgd_ref_kv_row(&f->ref_kv, layer, which, ops_cache_slot(f, TWIN, j)),
                       pgd_ref_kv_row(&f->ref_kv, layer, which, ops_cache_slot(f, SLOT, j)), bytes);
            }
        }
    }
}

// The whole sequence in parts of `size` rows.
static void run_steps(ops_fixture *f, const cut *c, const void *args, int32_t slot, int32_t len,
                      int32_t size, int32_t neighbours) {
    int32_t first;
    for (first = 0; first < len && !f->broken; first += size) {
        const int32_t rows = len - first < size ? len - first : size;
        const ops_batch_spec spec = step_of(f, slot, first, rows, neighbours);
        ops_batch_fill(f, &spec);
        run_part(f, c, args, first, rows + (neighbours ? 35 : 0));
    }
}

static void make_sequences(ops_fixture *f, int32_t len) {
    static const int32_t blocks[] = {4, 16, 64};
    ops_batch_spec spec = {.n_seqs = 4,
                           .block_tokens = blocks[ops_between(&f->rng, 0, 2)],
                           .cap_tokens = len + SPARE_ROWS};
    spec.seqs[0] = (ops_seq){.kv_len = len, .slot = SLOT};
    spec.seqs[1] = (ops_seq){.kv_len = len, .slot = TWIN};
    spec.seqs[2] = (ops_seq){.kv_len = 90, .slot = NEIGHBOUR};
    spec.seqs[3] = (ops_seq){.kv_len = 33, .slot = NEIGHBOUR + 1};
    ops_batch(f, &spec);
}

// Prefill, chunks and decodes, alone and with neighbours, from either set of blocks.
static void compare_steps(ops_fixture *f, const cut *c, const void *args, const ops_tensor *out,
                          int32_t len) {
    static const int32_t sizes[] = {1, 1, 2, 3, 7, 16, 37, 64, 100, 1000};
    size_t s;
    if (f->broken || !ops_is_invariant(f, 0)) {
        return;
    }
    run_steps(f, c, args, SLOT, len, len, 0);
    ops_fetch(f);
    ops_adopt(f, out);
    for (s = 0; s < sizeof(sizes) / sizeof(sizes[0]) && f->broken + f->wrong == 0; s++) {
        ops_restart(f);
        run_steps(f, c, args, s % 2 == 0 ? TWIN : SLOT, len, sizes[s], s % 2 == 0);
        ops_fetch(f);
        ops_compare(f, out, len, OPS_EXACT, 0);
        if (f->wrong) {
            ops_fail(f, "in steps of %d rows, %s", (int)sizes[s],
                     s % 2 == 0 ? "neighbours, other blocks" : "alone");
        }
    }
}

static void cut_attn(ops_fixture *f) {
    const cut c = {PGD_OP_attn,
                   sizeof(pgd_attn_args),
                   {offsetof(pgd_attn_args, q), offsetof(pgd_attn_args, out)},
                   2};
    // Long ones so that a device may split a row's positions over its units.
    const int32_t most = ops_between(&f->rng, 0, 4) == 0 ? 640 : 210;
    const int32_t len = (int32_t)ops_between(&f->rng, 1, most), dtype = ops_act(f);
    const int32_t cache = ops_float(&f->rng), hkv = (int32_t)ops_between(&f->rng, 1, 2);
    const int64_t dim = ops_head_dim(&f->rng), hq = hkv << ops_between(&f->rng, 0, 3);
    const int64_t shape[3] = {len + SPARE_ROWS, hq, dim};
    ops_tensor q, out;
    pgd_attn_args a = {.size = sizeof(a),
                       .rows = PGD_ROWS_TOKENS,
                       .batch = &f->batch[OPS_DEV],
                       .scale = 0.125F,
                       .causal = 1};
    a.window_left = ops_between(&f->rng, 0, 2) == 0 ? (int32_t)ops_between(&f->rng, 1, 100) : 0;
    make_sequences(f, len);
    ops_cache(f, cache, 1, hkv, (int32_t)dim, 0, 1);
    copy_twin(f, len);
    q = ops_make(f, "q", dtype, 3, shape, 0, shape[0], OPS_FILL_NORMAL);
    out = ops_make(f, "out", dtype, 3, shape, 0, shape[0], OPS_FILL_NAN);
    ops_say(f, " attn of %d rows, %lld on %d heads of %lld, %s over %s, blocks of %d, window %d",
            (int)len, (long long)hq, (int)hkv, (long long)dim, pgd_dtype_name(dtype),
            pgd_dtype_name(cache), (int)f->block_tokens, (int)a.window_left);
    ops_may_write(f, &out);
    a.q = q.side[OPS_DEV];
    a.out = out.side[OPS_DEV];
    ops_ask(f, c.op, &a);
    ops_ready(f);
    a.kv = f->kv[OPS_DEV];
    compare_steps(f, &c, &a, &out, len);
}

// The cache as well: written whole, then cleared and written in parts.
static void compare_writes(ops_fixture *f, const cut *c, const void *args, const ops_tensor *q,
                           int32_t len) {
    static const int32_t sizes[] = {1, 2, 5, 16, 33, 64};
    size_t s;
    if (f->broken || !ops_is_invariant(f, 0)) {
        return;
    }
    run_steps(f, c, args, SLOT, len, len, 0);
    ops_fetch(f);
    ops_adopt(f, q);
    ops_cache_adopt(f);
    for (s = 0; s < sizeof(sizes) / sizeof(sizes[0]) && f->broken + f->wrong == 0; s++) {
        ops_restart(f);
        ops_cache_clear(f);
        run_steps(f, c, args, SLOT, len, sizes[s], 0);
        ops_fetch(f);
        ops_compare(f, q, len, OPS_EXACT, 0);
        ops_compare_cache(f, OPS_EXACT, 0);
        if (f->wrong) {
            ops_fail(f, "in steps of %d rows", (int)sizes[s]);
        }
    }
}

static void cut_qkv(ops_fixture *f) {
    const cut c = {PGD_OP_qkv_rope_write,
                   sizeof(pgd_qkv_rope_write_args),
                   {offsetof(pgd_qkv_rope_write_args, x), offsetof(pgd_qkv_rope_write_args, normed),
                    offsetof(pgd_qkv_rope_write_args, qkv), offsetof(pgd_qkv_rope_write_args, q),
                    offsetof(pgd_qkv_rope_write_args, k), offsetof(pgd_qkv_rope_write_args, v)},
                   6};
    const int32_t len = (int32_t)ops_between(&f->rng, 1, 100), dtype = ops_act(f);
    const int32_t hkv = (int32_t)ops_between(&f->rng, 1, 2), cap = len + SPARE_ROWS;
    const int64_t dim = ops_head_dim(&f->rng), hq = hkv << ops_between(&f->rng, 0, 2);
    const int64_t n = (hq + 2 * hkv) * dim, k = ops_width(&f->rng);
    const int64_t table_shape[3] = {200, dim / 2, 2};
    ops_tensor x, norm_w, normed, qkv, q, table;
    pgd_qkv_rope_write_args a = {.size = sizeof(a),
                                 .rows = PGD_ROWS_TOKENS,
                                 .batch = &f->batch[OPS_DEV],
                                 .rot_dim = (int32_t)dim,
                                 .eps = 1e-5F};
    make_sequences(f, len);
    const int32_t w_dtype = ops_float(&f->rng);
    ops_weight(f, PGD_USE_GEMM, w_dtype, ops_rounding(f, w_dtype, dtype), n, k, 3, cap);
    ops_cache(f, ops_float(&f->rng), 1, hkv, (int32_t)dim, 0, 0);
    x = ops_make2(f, "x", dtype, cap, k, cap, OPS_FILL_NORMAL);
    norm_w = ops_make1(f, "norm_w", PGD_F32, k, OPS_FILL_NEAR_ONE);
    normed = ops_make2(f, "normed", dtype, cap, k, cap, OPS_FILL_NAN);
    qkv = ops_make2(f, "qkv", dtype, cap, n, cap, OPS_FILL_NAN);
    q = ops_heads(&qkv, "q", 0, hq, dim);
    table = ops_make(f, "table", PGD_F32, 3, table_shape, 0, 200, OPS_FILL_NORMAL);
    ops_say(f, " qkv_rope_write of %d rows of %lld, %lld on %d heads of %lld, %s", (int)len,
            (long long)k, (long long)hq, (int)hkv, (long long)dim, pgd_dtype_name(dtype));
    ops_may_write(f, &normed);
    ops_may_write(f, &qkv);
    a.x = x.side[OPS_DEV];
    a.norm_w = norm_w.side[OPS_DEV];
    a.normed = normed.side[OPS_DEV];
    a.qkv = qkv.side[OPS_DEV];
    a.q = q.side[OPS_DEV];
    a.k = ops_heads(&qkv, "k", hq * dim, hkv, dim).side[OPS_DEV];
    a.v = ops_heads(&qkv, "v", (hq + hkv) * dim, hkv, dim).side[OPS_DEV];
    a.table = table.side[OPS_DEV];
    ops_ask(f, c.op, &a);
    ops_ready(f);
    a.w = f->weight[OPS_DEV];
    a.kv = f->kv[OPS_DEV];
    compare_writes(f, &c, &a, &q, len);
}

void ops_suite_invariant(ops_session *s) {
    ops_cases(s, "cut_gemm", s->cases, cut_gemm);
    ops_cases(s, "cut_gate_up", s->cases / 2, cut_gate_up);
    ops_cases(s, "cut_rmsnorm", s->cases / 2, cut_rmsnorm);
    ops_cases(s, "cut_add_rmsnorm", s->cases / 2, cut_add_rmsnorm);
    ops_cases(s, "cut_attn", s->cases, cut_attn);
    ops_cases(s, "cut_qkv_rope_write", s->cases / 2, cut_qkv);
}
