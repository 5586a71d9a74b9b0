// Checks: the shapes each op takes, asked by support before there are addresses and by the op; the
// weights, caches and images that go with them; copies. Where plugins differ stands in their rules.
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "common.h"

#define ANY  (-1)
#define ACTS (c->rules->acts)
#define F32  (1u << PGD_F32)
#define I32  (1u << PGD_I32)

bool common_refuse(common_check *c, pgd_status code, const char *fmt, ...) {
    va_list args;
    va_start(args, fmt);
    vsnprintf(c->reason, sizeof(c->reason), fmt, args);
    va_end(args);
    c->code = code;
    return false;
}

// ---- tensors -----------------------------------------------------------------------------------

static bool want(common_check *c, const char *name, const pgd_tensor *t, uint32_t dtypes,
                 uint32_t rank, int64_t d1, int64_t d2) {
    const int64_t dims[PGD_MAX_RANK] = {ANY, d1, d2, ANY};
    if (t->rank != rank) {
        return common_refuse(c, PGD_INVALID, "%s has %u dimensions, not %u", name,
                             (unsigned)t->rank, (unsigned)rank);
    }
    if (t->dtype < 0 || t->dtype > 31 || (dtypes >> t->dtype & 1u) == 0) {
        return common_refuse(c, PGD_UNSUPPORTED, "%s is %s", name, pgd_dtype_name(t->dtype));
    }
    for (uint32_t i = 0; i < rank; i++) {
        const int64_t n = t->shape[i];
        if (n < 0 || n > INT32_MAX || (i > 0 && dims[i] != ANY && n != dims[i])) {
            return common_refuse(c, PGD_INVALID, "%s: %lld in dimension %u, not %lld", name,
                                 (long long)n, (unsigned)i, (long long)dims[i]);
        }
    }
    return true;
}

static bool want_vector(common_check *c, const char *name, const pgd_tensor *t, int64_t n) {
    return want(c, name, t, F32, 1, ANY, ANY) &&
           (t->shape[0] == n || common_refuse(c, PGD_INVALID, "%s: %lld elements, not %lld", name,
                                              (long long)t->shape[0], (long long)n));
}

static bool maybe_vector(common_check *c, const char *name, const pgd_tensor *t, int64_t n) {
    return t->rank == 0 || want_vector(c, name, t, n);
}

static bool want_none(common_check *c, const char *name, const pgd_tensor *t) {
    return t->rank == 0 || common_refuse(c, PGD_UNSUPPORTED, "%s is given", name);
}

static bool want_act(common_check *c, int32_t act) {
    return (act >= PGD_ACT_NONE && act <= PGD_ACT_RELU) ||
           common_refuse(c, PGD_UNSUPPORTED, "activation %d", (int)act);
}

static bool is_float(int32_t dtype) {
    return dtype == PGD_F32 || dtype == PGD_BF16 || dtype == PGD_F16;
}

// ---- handles -----------------------------------------------------------------------------------

pgd_weight_part common_weight_part(const pgd_weight_desc *w, uint32_t i) {
    const unsigned char *from = (const unsigned char *)w->parts + (size_t)i * w->part_stride;
    pgd_weight_part p = {0};
    memcpy(&p, from, w->part_stride < sizeof(p) ? w->part_stride : sizeof(p));
    if (w->scheme != PGD_SCHEME_PARTS) {
        p.scheme = w->scheme;
        p.dtype = w->dtype;
    }
    return p;
}

// Whether [start, start + count) lies in [0, n).
static bool lies_in(int64_t start, int64_t count, int64_t n) {
    return n >= 0 && start >= 0 && count >= 0 && start <= n && count <= n - start;
}

// A scheme that a weight or one of its parts may have, its columns in whole blocks.
static bool check_scheme(common_check *c, int32_t scheme, int32_t dtype, int64_t cols) {
    const int64_t elements = pgd_scheme_elements(scheme);
    if (scheme == PGD_SCHEME_PLAIN) {
        return is_float(dtype) ||
               common_refuse(c, PGD_UNSUPPORTED, "weights of %s", pgd_dtype_name(dtype));
    }
    if (elements == 0 && scheme != PGD_SCHEME_INT8) {
        return common_refuse(c, PGD_UNSUPPORTED, "weights of scheme %d", (int)scheme);
    }
    return elements == 0 || cols % elements == 0 ||
           common_refuse(c, PGD_INVALID, "%lld columns of %s, which has blocks of %lld",
                         (long long)cols, pgd_scheme_name(scheme), (long long)elements);
}

static bool check_parts(common_check *c, const pgd_weight_desc *w) {
    int64_t left = w->n;
    if (w->n_parts > 0 && (w->parts == NULL || w->part_stride == 0)) {
        return common_refuse(c, PGD_INVALID, "%u parts that are nowhere", (unsigned)w->n_parts);
    }
    for (uint32_t i = 0; i < w->n_parts; i++) {
        const pgd_weight_part p = common_weight_part(w, i);
        if (!lies_in(p.row_start, p.row_count, p.rows) || p.row_count > left ||
            p.col_count != w->k || !lies_in(p.col_start, p.col_count, p.cols)) {
            return common_refuse(c, PGD_INVALID,
                                 "part %u is no slice of its matrix for [%lld, %lld]", (unsigned)i,
                                 (long long)w->n, (long long)w->k);
        }
        if (!check_scheme(c, p.scheme, p.dtype, p.cols) ||
            !check_scheme(c, p.scheme, p.dtype, p.col_start) ||
            !check_scheme(c, p.scheme, p.dtype, p.col_count)) {
            return false;
        }
        left -= p.row_count;
    }
    return w->n_parts == 0 || left == 0 ||
           common_refuse(c, PGD_INVALID, "the parts lack %lld of %lld rows", (long long)left,
                         (long long)w->n);
}

bool common_check_weight(common_check *c, const pgd_weight_desc *w) {
    if (w == NULL) {
        return common_refuse(c, PGD_INVALID, "there is no weight");
    }
    if (w->n_experts != 0) {
        return common_refuse(c, PGD_UNSUPPORTED, "%u experts", (unsigned)w->n_experts);
    }
    if (w->scheme != PGD_SCHEME_PARTS && !check_scheme(c, w->scheme, w->dtype, w->k)) {
        return false;
    }
    if (!c->rules->rounding(c, w)) {
        return false;
    }
    if (w->n < 0 || w->k < 0 || w->n > c->rules->n_most || w->k > c->rules->k_most) {
        return common_refuse(c, PGD_INVALID, "%lld rows of %lld", (long long)w->n, (long long)w->k);
    }
    return check_parts(c, w);
}

bool common_check_kv(common_check *c, const pgd_kv_desc *kv) {
    if (kv == NULL) {
        return common_refuse(c, PGD_INVALID, "there is no cache");
    }
    const bool int8 = c->rules->int8_cache && kv->k_dtype == PGD_I8 && kv->v_dtype == PGD_I8;
    if (kv->kind != PGD_KV_ATTENTION ||
        kv->scale_mode != (int8 ? PGD_KV_SCALE_TOKEN_HEAD : PGD_KV_SCALE_NONE) ||
        (!int8 && (!is_float(kv->k_dtype) || !is_float(kv->v_dtype)))) {
        return common_refuse(c, PGD_UNSUPPORTED, "cache kind %d, scales %d, %s and %s",
                             (int)kv->kind, (int)kv->scale_mode, pgd_dtype_name(kv->k_dtype),
                             pgd_dtype_name(kv->v_dtype));
    }
    if (kv->k_dim > c->rules->head_most || kv->v_dim > c->rules->head_most) {
        return common_refuse(c, PGD_UNSUPPORTED, "heads of %d and %d, the kernels take %d",
                             (int)kv->k_dim, (int)kv->v_dim, (int)c->rules->head_most);
    }
    if (kv->layers < 1 || kv->layers > 1 << 16 || kv->heads < 1 || kv->heads > 4096 ||
        kv->k_dim < 1 || kv->v_dim < 1 || kv->block_tokens < 0 || kv->block_tokens > 4096) {
        return common_refuse(c, PGD_INVALID, "%d layers, %d heads of %d and %d, blocks of %d",
                             (int)kv->layers, (int)kv->heads, (int)kv->k_dim, (int)kv->v_dim,
                             (int)kv->block_tokens);
    }
    return true;
}

pgd_sample_args common_sample_of(const pgd_head_sample_args *a) {
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

// ---- parts that ops share ----------------------------------------------------------------------

static bool check_norm(common_check *c, const pgd_tensor *x, const pgd_tensor *w,
                       const pgd_tensor *out) {
    if (x->rank < 2 || x->rank > 3) {
        return common_refuse(c, PGD_INVALID, "x of a norm has %u dimensions", (unsigned)x->rank);
    }
    return want(c, "x of a norm", x, ACTS, x->rank, ANY, ANY) &&
           want(c, "out of a norm", out, ACTS, x->rank, x->shape[1], x->shape[2]) &&
           want_vector(c, "w of a norm", w, x->shape[x->rank - 1]);
}

// The optional norm in front of a product.
static bool check_front(common_check *c, const pgd_tensor *x, const pgd_tensor *w,
                        const pgd_tensor *out) {
    return w->rank == 0 || check_norm(c, x, w, out);
}

static bool check_turn(common_check *c, const pgd_tensor *q, const pgd_tensor *k,
                       const pgd_tensor *table, int32_t style, int32_t rot_dim,
                       const int32_t *sections) {
    int64_t sum = 0;
    if (!want(c, "q", q, ACTS, 3, ANY, ANY) ||
        (k->rank != 0 && !want(c, "k", k, ACTS, 3, ANY, q->shape[2]))) {
        return false;
    }
    if (q->shape[2] > c->rules->head_most) {
        return common_refuse(c, PGD_UNSUPPORTED, "heads of %lld, the kernels take %d",
                             (long long)q->shape[2], (int)c->rules->head_most);
    }
    for (int i = 0; i < 4; i++) {
        sum += sections[i];
        if (sections[i] < 0 || sections[i] > rot_dim) {
            return common_refuse(c, PGD_INVALID, "a rope section of %d", (int)sections[i]);
        }
    }
    if (style < PGD_ROPE_HALF || style > PGD_ROPE_INTERLEAVED || rot_dim < 0 || rot_dim % 2 != 0 ||
        rot_dim > q->shape[2] || (sum != 0 && sum != rot_dim / 2)) {
        return common_refuse(c, PGD_INVALID, "rope style %d turns %d of %lld dims, sections %lld",
                             (int)style, (int)rot_dim, (long long)q->shape[2], (long long)sum);
    }
    return want(c, "table", table, F32, 3, rot_dim / 2, 2);
}

// use: what the weight was made for, or gemm, or nothing in particular; a weight for gate_up alone
// has its rows in another order.
static bool check_product(common_check *c, const pgd_weight_desc *w, uint32_t use,
                          const pgd_tensor *x, const pgd_tensor *y, const pgd_tensor *bias) {
    if (!common_check_weight(c, w)) {
        return false;
    }
    const bool rounds = w->act_dtype > 0 && w->act_dtype < 32;
    const uint32_t already = c->rules->rounded & (rounds ? 1u << w->act_dtype : 0);
    return (w->uses == 0 || (w->uses & (use | PGD_USE_GEMM)) != 0 ||
            common_refuse(c, PGD_INVALID, "the weight has uses %u", (unsigned)w->uses)) &&
           want(c, "x", x, ACTS | already, 2, w->k, ANY) && want(c, "y", y, ACTS, 2, w->n, ANY) &&
           maybe_vector(c, "bias", bias, w->n);
}

static bool check_layer(common_check *c, const pgd_kv_desc *kv, int32_t layer, int32_t group) {
    return common_check_kv(c, kv) &&
           ((layer >= 0 && layer < kv->layers && group >= 0 && group < PGD_MAX_GROUPS) ||
            common_refuse(c, PGD_INVALID, "layer %d of %d, group %d", (int)layer, (int)kv->layers,
                          (int)group));
}

static bool check_cache_rows(common_check *c, const pgd_kv_desc *kv, int32_t layer, int32_t group,
                             const pgd_tensor *k, const pgd_tensor *v) {
    return check_layer(c, kv, layer, group) && want(c, "k", k, ACTS, 3, kv->heads, kv->k_dim) &&
           want(c, "v", v, ACTS, 3, kv->heads, kv->v_dim);
}

// Each of logprobs, top_ids, ranks and state may be absent.
static bool check_draw(common_check *c, const pgd_sample_args *a) {
    const pgd_tensor *logits = &a->logits;
    const int64_t columns = a->logprobs.rank == 2 ? a->logprobs.shape[1] : ANY;
    if (!want(c, "logits", logits, F32, 2, ANY, ANY) || !want(c, "ids", &a->ids, I32, 1, 0, 0)) {
        return false;
    }
    if (logits->shape[1] >= 1 << 22) { // the mass of a row has to fit in 64 bits
        return common_refuse(c, PGD_UNSUPPORTED, "%lld logits a row", (long long)logits->shape[1]);
    }
    return (a->logprobs.rank == 0 || want(c, "logprobs", &a->logprobs, F32, 2, ANY, ANY)) &&
           (a->top_ids.rank == 0 || want(c, "top_ids", &a->top_ids, I32, 2, columns, ANY)) &&
           (a->ranks.rank == 0 || want(c, "ranks", &a->ranks, I32, 1, ANY, ANY)) &&
           (a->state.rank == 0 || want(c, "state", &a->state, I32, 2, logits->shape[1], ANY));
}

// ---- ops ---------------------------------------------------------------------------------------

#define CHECK(name)                                                                     \
    static bool check_##name(common_check *c, const pgd_##name##_args *a,               \
                             const pgd_weight_desc *w, const pgd_kv_desc *kv);          \
    static bool ask_##name(common_check *c, const void *args, const pgd_weight_desc *w, \
                           const pgd_kv_desc *kv) {                                     \
        return check_##name(c, args, w, kv);                                            \
    }                                                                                   \
    static bool check_##name(common_check *c, const pgd_##name##_args *a,               \
                             const pgd_weight_desc *w, const pgd_kv_desc *kv)

CHECK(embed) {
    (void)kv;
    return common_check_weight(c, w) && want(c, "out", &a->out, ACTS, 2, w->k, ANY);
}

CHECK(gather_rows) {
    (void)w;
    (void)kv;
    return (pgd_dtype_bytes(a->x.dtype) != 0 || common_refuse(c, PGD_INVALID, "x has no dtype")) &&
           want(c, "x", &a->x, c->rules->rows, 2, ANY, ANY) &&
           want(c, "out", &a->out, 1u << a->x.dtype, 2, a->x.shape[1], ANY);
}

CHECK(rmsnorm) {
    (void)w;
    (void)kv;
    return check_norm(c, &a->x, &a->w, &a->out);
}

CHECK(rope) {
    (void)w;
    (void)kv;
    return check_turn(c, &a->q, &a->k, &a->table, a->style, a->rot_dim, a->sections);
}

CHECK(gemm) {
    (void)kv;
    return want_none(c, "x_scale", &a->x_scale) && want_none(c, "row_map", &a->row_map) &&
           check_product(c, w, PGD_USE_GEMM, &a->x, &a->y, &a->bias) && want_act(c, a->act) &&
           ((a->aux_kind >= PGD_AUX_NONE && a->aux_kind <= PGD_AUX_MUL) ||
            common_refuse(c, PGD_UNSUPPORTED, "aux kind %d", (int)a->aux_kind)) &&
           (a->aux_kind == PGD_AUX_NONE || want(c, "aux", &a->aux, ACTS, 2, w->n, ANY));
}

CHECK(gemm_add) {
    return (a->aux_kind == PGD_AUX_ADD ||
            common_refuse(c, PGD_INVALID, "aux kind %d of gemm_add", (int)a->aux_kind)) &&
           check_gemm(c, a, w, kv);
}

CHECK(kv_write) {
    (void)w;
    return check_cache_rows(c, kv, a->layer, a->group, &a->k, &a->v);
}

CHECK(attn) {
    int64_t heads = a->q.shape[1];
    (void)w;
    return check_layer(c, kv, a->layer, a->group) && want(c, "q", &a->q, ACTS, 3, ANY, kv->k_dim) &&
           ((heads > 0 && heads % kv->heads == 0) ||
            common_refuse(c, PGD_INVALID, "%lld heads over %d kv heads", (long long)heads,
                          (int)kv->heads)) &&
           want(c, "out", &a->out, ACTS, 3, heads, kv->v_dim) &&
           maybe_vector(c, "sinks", &a->sinks, heads) &&
           maybe_vector(c, "slopes", &a->slopes, heads) &&
           (a->lse.rank == 0 || want(c, "lse", &a->lse, F32, 2, heads, ANY));
}

CHECK(attn_plan) {
    (void)a;
    (void)w;
    return common_check_kv(c, kv);
}

CHECK(act_mul) {
    (void)w;
    (void)kv;
    return want_act(c, a->act) && want(c, "out", &a->out, ACTS, 2, ANY, ANY) &&
           want(c, "x", &a->x, ACTS, 2, 2 * a->out.shape[1], ANY);
}

CHECK(add) {
    const uint32_t rank = a->a.rank;
    (void)w;
    (void)kv;
    return ((rank >= 1 && rank <= 3) ||
            common_refuse(c, PGD_UNSUPPORTED, "a has %u dimensions", (unsigned)rank)) &&
           want(c, "a", &a->a, ACTS, rank, ANY, ANY) &&
           want(c, "b", &a->b, ACTS, rank, a->a.shape[1], a->a.shape[2]) &&
           want(c, "out", &a->out, ACTS, rank, a->a.shape[1], a->a.shape[2]);
}

CHECK(argmax) {
    (void)w;
    (void)kv;
    return want(c, "x", &a->x, F32, 2, ANY, ANY) && want(c, "out", &a->out, I32, 1, ANY, ANY);
}

CHECK(sample) {
    (void)w;
    (void)kv;
    return check_draw(c, a);
}

CHECK(add_rmsnorm) {
    (void)w;
    (void)kv;
    return want(c, "x", &a->x, ACTS, 2, ANY, ANY) &&
           want(c, "residual", &a->residual, ACTS, 2, a->x.shape[1], ANY) &&
           want(c, "out", &a->out, ACTS, 2, a->x.shape[1], ANY) &&
           want_vector(c, "w", &a->w, a->x.shape[1]);
}

CHECK(qkv_rope_write) {
    const pgd_tensor *x = a->norm_w.rank != 0 ? &a->normed : &a->x;
    return check_front(c, &a->x, &a->norm_w, &a->normed) &&
           check_product(c, w, PGD_USE_GEMM, x, &a->qkv, &a->bias) &&
           check_turn(c, &a->q, &a->k, &a->table, a->style, a->rot_dim, a->sections) &&
           maybe_vector(c, "q_norm", &a->q_norm, a->q.shape[2]) &&
           maybe_vector(c, "k_norm", &a->k_norm, a->q.shape[2]) &&
           check_cache_rows(c, kv, a->layer, a->group, &a->k, &a->v);
}

CHECK(gate_up) {
    const pgd_tensor *x = a->norm_w.rank != 0 ? &a->normed : &a->x;
    (void)kv;
    return check_front(c, &a->x, &a->norm_w, &a->normed) && want_none(c, "x_scale", &a->x_scale) &&
           want_act(c, a->act) && check_product(c, w, PGD_USE_GATE_UP, x, &a->tmp, &a->bias) &&
           (w->n % 2 == 0 ||
            common_refuse(c, PGD_INVALID, "%lld rows have no halves", (long long)w->n)) &&
           want(c, "out", &a->out, ACTS | c->rules->rounded, 2, w->n / 2, ANY);
}

CHECK(head_sample) {
    const pgd_tensor *x = a->norm_w.rank != 0 ? &a->normed : &a->x;
    const pgd_sample_args draw = common_sample_of(a);
    const pgd_tensor none = {0};
    (void)kv;
    return check_front(c, &a->x, &a->norm_w, &a->normed) &&
           check_product(c, w, PGD_USE_GEMM, x, &a->logits, &none) && check_draw(c, &draw);
}

typedef bool (*check_fn)(common_check *c, const void *args, const pgd_weight_desc *w,
                         const pgd_kv_desc *kv);

typedef struct op_row {
    check_fn check;
    const char *name;
    uint32_t bytes; // of its args
} op_row;

static const op_row op_rows[PGD_OP_COUNT] = {
#define OP_ROW(op, family) \
    [PGD_OP_##op] = {.check = ask_##op, .name = #op, .bytes = sizeof(pgd_##op##_args)},
    PGD_OP_LIST(OP_ROW)
#undef OP_ROW
};

bool common_check_op(common_check *c, int32_t op, const void *args, const pgd_weight_desc *w,
                     const pgd_kv_desc *kv) {
    return op_rows[op].check(c, args, w, kv);
}

const char *common_op_name(int32_t op) {
    return op_rows[op].name;
}

const common_args *common_query_args(common_check *c, const pgd_query *q, common_args *local) {
    uint32_t size = 0;
    if (q->op < 0 || q->op >= PGD_OP_COUNT || q->args == NULL) {
        common_refuse(c, PGD_UNSUPPORTED, "operation %d", (int)q->op);
        return NULL;
    }
    memcpy(&size, q->args, sizeof(size));
    if (!pgd_args_tail_is_zero(q->args, size, op_rows[q->op].bytes)) {
        common_refuse(c, PGD_UNSUPPORTED, "%u bytes of arguments, known are %u", (unsigned)size,
                      (unsigned)op_rows[q->op].bytes);
        return NULL;
    }
    return pgd_args_view(local, op_rows[q->op].bytes, q->args, size);
}
