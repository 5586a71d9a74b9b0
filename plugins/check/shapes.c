// Shapes and dtypes of the operations, as include/pagoda/ops.h has them.
#include "check.h"

// What every check here is given.
typedef struct look {
    check_self *c;
    const char *op;
    const check_handle *w;  // NULL: none, or unknown
    const check_handle *kv; // the same
} look;

static pgd_status want(const look *l, const char *what, int64_t have, int64_t expected) {
    return have == expected ? PGD_OK
                            : check_wrong(l->c, "%s: %s is %lld, it must be %lld", l->op, what,
                                          (long long)have, (long long)expected);
}

static int64_t last(const pgd_tensor *t) {
    return t->rank > 0 ? t->shape[t->rank - 1] : 0;
}

// ---- one tensor --------------------------------------------------------------------------------

static int32_t is_one_of(const char *name, const char *const *names) {
    for (size_t i = 0; names[i] != NULL; i++) {
        if (strcmp(name, names[i]) == 0) {
            return 1;
        }
    }
    return 0;
}

static int32_t may_be_absent(const layer_field *f) {
    static const char *const names[] = {"bias",  "aux",   "x_scale",  "row_map", "sinks",  "slopes",
                                        "lse",   "plan",  "norm_w",   "normed",  "q_norm", "k_norm",
                                        "state", "ranks", "logprobs", "top_ids", NULL};
    return is_one_of(f->name, names) || f->mode == LAYER_TMP ||
           (f->op == PGD_OP_rope && strcmp(f->name, "k") == 0);
}

// The dtype a field must have, 0 = any number that is one.
static int32_t dtype_of(const layer_field *f) {
    static const char *const integers[] = {"ids", "top_ids", "ranks", "state", NULL};
    static const char *const floats[] = {"bias",  "norm_w", "q_norm",   "k_norm",
                                         "sinks", "slopes", "logprobs", "logits",
                                         "table", "lse",    NULL};
    if (is_one_of(f->name, integers) || (f->op == PGD_OP_argmax && strcmp(f->name, "out") == 0)) {
        return PGD_I32;
    }
    if (is_one_of(f->name, floats) ||
        ((f->op == PGD_OP_rmsnorm || f->op == PGD_OP_add_rmsnorm) && strcmp(f->name, "w") == 0)) {
        return PGD_F32;
    }
    return PGD_DTYPE_NONE;
}

// Bytes from the first to the last element; -1 if the shape is none.
static int64_t span(const pgd_tensor *t) {
    int64_t at = 0;
    for (uint32_t i = 0; i < t->rank; i++) {
        if (t->shape[i] < 0 || t->stride[i] < 0) {
            return -1;
        }
        if (t->shape[i] == 0) {
            return 0;
        }
        at += (t->shape[i] - 1) * t->stride[i];
    }
    return (at + 1) * (int64_t)pgd_dtype_bytes(t->dtype);
}

static pgd_status check_tensor(const look *l, const layer_field *f, const pgd_tensor *t) {
    const uint32_t item = pgd_dtype_bytes(t->dtype);
    const int32_t dtype = dtype_of(f);
    if (t->rank == 0) {
        return may_be_absent(f) ? PGD_OK : check_wrong(l->c, "%s: %s is absent", l->op, f->name);
    }
    if (t->rank > PGD_MAX_RANK || item == 0) {
        return check_wrong(l->c, "%s: %s has rank %u and dtype %d", l->op, f->name, t->rank,
                           t->dtype);
    }
    if (dtype != PGD_DTYPE_NONE && t->dtype != dtype) {
        return check_wrong(l->c, "%s: %s is %s, it must be %s", l->op, f->name,
                           pgd_dtype_name(t->dtype), pgd_dtype_name(dtype));
    }
    const int64_t bytes = span(t);
    if (bytes < 0 || t->stride[t->rank - 1] != 1 || t->offset % item != 0) {
        return check_wrong(l->c, "%s: %s has a wrong shape, stride or alignment", l->op, f->name);
    }
    return bytes == 0 ? PGD_OK : check_range(l->c, t->buffer, t->offset, (uint64_t)bytes, l->op);
}

// Rows of the step must fit into tensors that have a row for each.
static pgd_status check_rows(const look *l, const layer_head *a, const layer_field *f,
                             const pgd_tensor *t) {
    static const char *const own[] = {"bias",    "norm_w",  "q_norm", "k_norm", "sinks",
                                      "slopes",  "table",   "w",      "state",  "plan",
                                      "x_scale", "row_map", NULL};
    const pgd_batch_head *live = layer_live(a->batch);
    const int32_t gathers = f->op == PGD_OP_gather_rows && strcmp(f->name, "x") == 0;
    if (live == NULL || t->rank == 0 || is_one_of(f->name, own)) {
        return PGD_OK;
    }
    const int64_t n = a->rows == PGD_ROWS_TOKENS || gathers ? live->n_tokens
                      : a->rows == PGD_ROWS_OUTPUTS         ? live->n_out
                                                            : 0;
    return t->shape[0] >= n ? PGD_OK
                            : check_wrong(l->c, "%s: %s has %lld rows, the step has %lld", l->op,
                                          f->name, (long long)t->shape[0], (long long)n);
}

static pgd_status check_tensors(const look *l, int32_t op, const layer_head *a) {
    uint32_t n = 0;
    const layer_field *fields = layer_fields(&n);
    for (uint32_t i = 0; i < n; i++) {
        if (fields[i].op == op) {
            PGD_TRY(check_tensor(l, &fields[i], layer_tensor(&fields[i], a)));
            PGD_TRY(check_rows(l, a, &fields[i], layer_tensor(&fields[i], a)));
        }
    }
    return PGD_OK;
}

// ---- families ----------------------------------------------------------------------------------

static pgd_status check_uses(const look *l, uint32_t use, const char *name) {
    return l->w == NULL || (l->w->weight.uses & use) != 0
               ? PGD_OK
               : check_wrong(l->c, "%s: the weight was not made for %s", l->op, name);
}

static pgd_status check_product(const look *l, const pgd_tensor *x, const pgd_tensor *y) {
    if (l->w == NULL) {
        return PGD_OK;
    }
    PGD_TRY(want(l, "the last dimension of x", last(x), l->w->weight.k));
    return y->rank == 0 ? PGD_OK
                        : want(l, "the last dimension of the product", last(y), l->w->weight.n);
}

static pgd_status check_place(const look *l, const layer_head *a, int32_t layer, int32_t group) {
    if (l->kv != NULL && (layer < 0 || layer >= l->kv->kv.layers)) {
        return check_wrong(l->c, "%s: layer %d of a cache of %d", l->op, layer, l->kv->kv.layers);
    }
    if (a->batch == NULL || group < 0 || group >= a->batch->n_groups) {
        return check_wrong(l->c, "%s: group %d of %d", l->op, group,
                           a->batch == NULL ? 0 : a->batch->n_groups);
    }
    return PGD_OK;
}

static pgd_status check_heads(const look *l, const pgd_tensor *t, const char *what, int32_t heads,
                              int32_t dim) {
    if (t->rank != 3 || t->shape[1] % heads != 0 || t->shape[2] != dim) {
        return check_wrong(l->c, "%s: %s is no [rows, %d or a multiple, %d]", l->op, what, heads,
                           dim);
    }
    return PGD_OK;
}

static pgd_status check_cache(const look *l, const pgd_tensor *q, const pgd_tensor *out) {
    if (l->kv == NULL) {
        return PGD_OK;
    }
    const pgd_kv_desc *kv = &l->kv->kv;
    PGD_TRY(check_heads(l, q, "q or k", kv->heads, kv->k_dim));
    return check_heads(l, out, "out or v", kv->heads, kv->v_dim);
}

static pgd_status check_qkv(const look *l, const pgd_qkv_rope_write_args *a) {
    const pgd_tensor none = {0};
    PGD_TRY(check_uses(l, PGD_USE_GEMM, "gemm"));
    PGD_TRY(check_product(l, &a->x, a->qkv.rank > 0 ? &a->qkv : &none));
    if (l->kv != NULL) {
        PGD_TRY(check_heads(l, &a->q, "q", l->kv->kv.heads, l->kv->kv.k_dim));
    }
    return check_place(l, (const layer_head *)(const void *)a, a->layer, a->group);
}

static pgd_status check_gate_up(const look *l, const pgd_gate_up_args *a) {
    const pgd_tensor none = {0};
    PGD_TRY(check_uses(l, PGD_USE_GATE_UP | PGD_USE_GEMM, "gate_up"));
    PGD_TRY(check_product(l, &a->x, a->tmp.rank > 0 ? &a->tmp : &none));
    return l->w == NULL
               ? PGD_OK
               : want(l, "twice the last dimension of out", 2 * last(&a->out), l->w->weight.n);
}

// ---- all of one operation ----------------------------------------------------------------------

static pgd_status check_gemm(const look *l, const pgd_gemm_args *a) {
    PGD_TRY(check_uses(l, PGD_USE_GEMM, "gemm"));
    PGD_TRY(check_product(l, &a->x, &a->y));
    return a->aux.rank == 0 ? PGD_OK
                            : want(l, "the last dimension of aux", last(&a->aux), last(&a->y));
}

static pgd_status check_attn(const look *l, const pgd_attn_args *a) {
    PGD_TRY(check_cache(l, &a->q, &a->out));
    return check_place(l, (const layer_head *)(const void *)a, a->layer, a->group);
}

static pgd_status check_op(const look *l, int32_t op, const void *args) {
    switch (op) {
    case PGD_OP_embed: {
        const pgd_embed_args *a = args;
        PGD_TRY(check_uses(l, PGD_USE_EMBED, "embed"));
        return l->w == NULL ? PGD_OK
                            : want(l, "the last dimension of out", last(&a->out), l->w->weight.k);
    }
    case PGD_OP_gemm:
    case PGD_OP_gemm_add: return check_gemm(l, args);
    case PGD_OP_gate_up: return check_gate_up(l, args);
    case PGD_OP_qkv_rope_write: return check_qkv(l, args);
    case PGD_OP_head_sample: {
        const pgd_head_sample_args *a = args;
        PGD_TRY(check_uses(l, PGD_USE_GEMM, "gemm"));
        return check_product(l, &a->x, &a->logits);
    }
    case PGD_OP_kv_write: {
        const pgd_kv_write_args *a = args;
        PGD_TRY(check_cache(l, &a->k, &a->v));
        return check_place(l, args, a->layer, a->group);
    }
    case PGD_OP_attn: return check_attn(l, args);
    case PGD_OP_act_mul: {
        const pgd_act_mul_args *a = args;
        return want(l, "the last dimension of x", last(&a->x), 2 * last(&a->out));
    }
    case PGD_OP_add: {
        const pgd_add_args *a = args;
        PGD_TRY(want(l, "the last dimension of b", last(&a->b), last(&a->a)));
        return want(l, "the last dimension of out", last(&a->out), last(&a->a));
    }
    case PGD_OP_rmsnorm: {
        const pgd_rmsnorm_args *a = args;
        PGD_TRY(want(l, "the length of w", last(&a->w), last(&a->x)));
        return want(l, "the last dimension of out", last(&a->out), last(&a->x));
    }
    case PGD_OP_add_rmsnorm: {
        const pgd_add_rmsnorm_args *a = args;
        PGD_TRY(want(l, "the length of w", last(&a->w), last(&a->x)));
        return want(l, "the last dimension of residual", last(&a->residual), last(&a->x));
    }
    case PGD_OP_gather_rows: {
        const pgd_gather_rows_args *a = args;
        return want(l, "the last dimension of out", last(&a->out), last(&a->x));
    }
    default: return PGD_OK;
    }
}

pgd_status check_shapes(check_self *c, int32_t op, const void *args) {
    look l = {.c = c, .op = layer_op_name(op)};
    pgd_weight *w = NULL;
    pgd_kv *kv = NULL;
    int32_t family = PGD_FAMILY_NONE;
    layer_handles(op, args, &w, &kv);
    switch (op) {
#define CASE(name, of) \
    case PGD_OP_##name: family = PGD_FAMILY_##of; break;
        PGD_OP_LIST(CASE)
#undef CASE
    default: break;
    }
    if ((family & PGD_FAMILY_WEIGHT) != 0) {
        PGD_TRY(check_alive(c, w, CHECK_WEIGHT, l.op));
    }
    if ((family & PGD_FAMILY_KV) != 0) {
        PGD_TRY(check_alive(c, kv, CHECK_KV, l.op));
    }
    l.w = check_find(c, w, CHECK_WEIGHT);
    l.kv = check_find(c, kv, CHECK_KV);
    PGD_TRY(check_tensors(&l, op, args));
    return check_op(&l, op, args);
}
