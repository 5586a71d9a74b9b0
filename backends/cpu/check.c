// Checks: the shapes each op takes (asked by support before there are addresses, and again by the
// op), the addresses of tensors and of the batch, and how rows are handed to workers.
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "cpu.h"

bool cpu_refuse(cpu_check *c, pgd_status code, const char *fmt, ...) {
    va_list args;
    va_start(args, fmt);
    vsnprintf(c->reason, sizeof(c->reason), fmt, args);
    va_end(args);
    c->code = code;
    return false;
}

// ---- shapes ------------------------------------------------------------------------------------

#define ANY (-1)

static bool want(cpu_check *c, const char *name, const pgd_tensor *t, int32_t dtype, uint32_t rank,
                 int64_t d1, int64_t d2) {
    const int64_t dims[PGD_MAX_RANK] = {ANY, d1, d2, ANY};
    if (t->rank != rank) {
        return cpu_refuse(c, PGD_INVALID, "%s has rank %u, not %u", name, (unsigned)t->rank,
                          (unsigned)rank);
    }
    if (t->dtype != dtype) {
        return cpu_refuse(c, PGD_UNSUPPORTED, "%s is %s, the kernels take %s", name,
                          pgd_dtype_name(t->dtype), pgd_dtype_name(dtype));
    }
    for (uint32_t i = 0; i < rank; i++) {
        if (t->shape[i] < 0 || t->shape[i] > INT32_MAX ||
            (i > 0 && dims[i] != ANY && t->shape[i] != dims[i])) {
            return cpu_refuse(c, PGD_INVALID, "%s: dimension %u is %lld, not %lld", name,
                              (unsigned)i, (long long)t->shape[i], (long long)dims[i]);
        }
    }
    return true;
}

static bool want_vector(cpu_check *c, const char *name, const pgd_tensor *t, int64_t n) {
    if (!want(c, name, t, PGD_F32, 1, ANY, ANY)) {
        return false;
    }
    if (t->shape[0] != n) {
        return cpu_refuse(c, PGD_INVALID, "%s has %lld elements, not %lld", name,
                          (long long)t->shape[0], (long long)n);
    }
    return true;
}

static bool want_absent(cpu_check *c, const char *name, const pgd_tensor *t) {
    return t->rank == 0 || cpu_refuse(c, PGD_UNSUPPORTED, "%s is not supported", name);
}

static bool want_act(cpu_check *c, int32_t act) {
    return (act >= PGD_ACT_NONE && act <= PGD_ACT_RELU) ||
           cpu_refuse(c, PGD_UNSUPPORTED, "act %d", (int)act);
}

static bool is_float(int32_t dtype) {
    return dtype == PGD_F32 || dtype == PGD_BF16 || dtype == PGD_F16;
}

const pgd_weight_part *cpu_weight_part(const pgd_weight_desc *w, uint32_t i,
                                       pgd_weight_part *local) {
    const unsigned char *p = (const unsigned char *)w->parts + (size_t)i * w->part_stride;
    memset(local, 0, sizeof(*local));
    memcpy(local, p, w->part_stride < sizeof(*local) ? w->part_stride : sizeof(*local));
    if (w->scheme != PGD_SCHEME_PARTS) {
        local->scheme = w->scheme;
        local->dtype = w->dtype;
    }
    return local;
}

// A scheme that a weight or one of its parts may have, its columns in whole blocks.
static bool check_scheme(cpu_check *c, int32_t scheme, int32_t dtype, int64_t cols) {
    const int64_t elements = pgd_scheme_elements(scheme);
    if (scheme == PGD_SCHEME_PLAIN) {
        return is_float(dtype) ||
               cpu_refuse(c, PGD_UNSUPPORTED, "weights of %s; f32, bf16 and f16 are supported",
                          pgd_dtype_name(dtype));
    }
    if (pgd_cpu_form_of(scheme).bits == 0) {
        return cpu_refuse(c, PGD_UNSUPPORTED, "weights of scheme %d (%s)", (int)scheme,
                          pgd_scheme_name(scheme));
    }
    return elements == 0 || cols % elements == 0 ||
           cpu_refuse(c, PGD_INVALID, "%lld columns of %s, which has blocks of %lld",
                      (long long)cols, pgd_scheme_name(scheme), (long long)elements);
}

static bool check_parts(cpu_check *c, const pgd_weight_desc *w) {
    pgd_weight_part local;
    int64_t n = 0;
    if (w->n_parts > 0 && (w->parts == NULL || w->part_stride == 0)) {
        return cpu_refuse(c, PGD_INVALID, "%u parts without an address", (unsigned)w->n_parts);
    }
    for (uint32_t i = 0; i < w->n_parts; i++) {
        const pgd_weight_part *p = cpu_weight_part(w, i, &local);
        if (p->rows < 0 || p->cols < 0 || p->row_start < 0 || p->row_count < 0 ||
            p->col_start < 0 || p->row_start > p->rows || p->row_count > p->rows - p->row_start ||
            p->col_start > p->cols || p->col_count != w->k ||
            p->col_count > p->cols - p->col_start || p->row_count > w->n - n) {
            return cpu_refuse(c, PGD_INVALID,
                              "part %u does not lie in its matrix or in [%lld, %lld]", (unsigned)i,
                              (long long)w->n, (long long)w->k);
        }
        if (!check_scheme(c, p->scheme, p->dtype, p->cols) ||
            !check_scheme(c, p->scheme, p->dtype, p->col_start) ||
            !check_scheme(c, p->scheme, p->dtype, p->col_count)) {
            return false;
        }
        n += p->row_count;
    }
    if (w->n_parts > 0 && n != w->n) {
        return cpu_refuse(c, PGD_INVALID, "the parts have %lld rows, the weight %lld", (long long)n,
                          (long long)w->n);
    }
    return true;
}

bool cpu_check_weight(cpu_check *c, const pgd_weight_desc *w) {
    if (w == NULL) {
        return cpu_refuse(c, PGD_INVALID, "the weight is not there");
    }
    if (w->n_experts != 0) {
        return cpu_refuse(c, PGD_UNSUPPORTED, "%u experts", (unsigned)w->n_experts);
    }
    if (w->scheme != PGD_SCHEME_PARTS && !check_scheme(c, w->scheme, w->dtype, w->k)) {
        return false;
    }
    if (cpu_is_quantized(w)) { // x becomes int8: nothing else may be asked for
        if (w->act_dtype != 0 && w->act_dtype != PGD_I8) {
            return cpu_refuse(c, PGD_UNSUPPORTED, "activations rounded to %s for weights of %s",
                              pgd_dtype_name(w->act_dtype), pgd_scheme_name(w->scheme));
        }
    } else if (w->act_dtype != 0 && w->act_dtype != PGD_F32 &&
               !(w->act_dtype == PGD_BF16 && w->dtype == PGD_BF16)) {
        return cpu_refuse(c, PGD_UNSUPPORTED, "activations rounded to %s for weights of %s",
                          pgd_dtype_name(w->act_dtype), pgd_dtype_name(w->dtype));
    }
    if (w->n < 0 || w->k < 0 || w->n > INT32_MAX || w->k > INT32_MAX) {
        return cpu_refuse(c, PGD_INVALID, "a weight of [%lld, %lld]", (long long)w->n,
                          (long long)w->k);
    }
    return check_parts(c, w);
}

bool cpu_is_dot_form(const pgd_cpu_kernels *k, const pgd_weight_desc *w, const pgd_tensor *x) {
    return x->dtype == PGD_BF16 && k->dot_bytes == (int64_t)sizeof(uint16_t) && w->k % 2 == 0;
}

uint64_t cpu_round_bytes(const pgd_cpu_kernels *k, const pgd_weight_desc *w, const pgd_tensor *x) {
    uint64_t row = 0;
    uint64_t bytes = 0;
    if (cpu_is_quantized(w)) {
        row = (uint64_t)cpu_int8_ld(w->k) * sizeof(pgd_cpu_int8);
    } else if (w->act_dtype == PGD_BF16 && !cpu_is_dot_form(k, w, x)) {
        row = (uint64_t)k->dot_bytes * (uint64_t)cpu_round_ld(w->k);
    }
    if (x->shape[0] < 0 || __builtin_mul_overflow((uint64_t)x->shape[0], row, &bytes)) {
        return 0;
    }
    return bytes;
}

bool cpu_check_kv(cpu_check *c, const pgd_kv_desc *kv) {
    const int32_t limit = 1 << 16;
    if (kv == NULL) {
        return cpu_refuse(c, PGD_INVALID, "the cache is not there");
    }
    const bool int8 = kv->k_dtype == PGD_I8 && kv->v_dtype == PGD_I8;
    if (kv->kind != PGD_KV_ATTENTION ||
        kv->scale_mode != (int8 ? PGD_KV_SCALE_TOKEN_HEAD : PGD_KV_SCALE_NONE)) {
        return cpu_refuse(c, PGD_UNSUPPORTED, "cache kind %d with scale mode %d", (int)kv->kind,
                          (int)kv->scale_mode);
    }
    if (!int8 && (!is_float(kv->k_dtype) || !is_float(kv->v_dtype))) {
        return cpu_refuse(c, PGD_UNSUPPORTED, "a cache of %s and %s", pgd_dtype_name(kv->k_dtype),
                          pgd_dtype_name(kv->v_dtype));
    }
    if (kv->layers < 1 || kv->layers > limit || kv->heads < 1 || kv->heads > 4096 ||
        kv->k_dim < 1 || kv->k_dim > 4096 || kv->v_dim < 1 || kv->v_dim > 4096 ||
        kv->block_tokens < 0 || kv->block_tokens > 4096) {
        return cpu_refuse(c, PGD_INVALID, "%d layers, %d heads of %d and %d, %d tokens a block",
                          (int)kv->layers, (int)kv->heads, (int)kv->k_dim, (int)kv->v_dim,
                          (int)kv->block_tokens);
    }
    return true;
}

static bool check_embed(cpu_check *c, const void *args, const pgd_weight_desc *w,
                        const pgd_kv_desc *kv) {
    const pgd_embed_args *a = args;
    (void)kv;
    return cpu_check_weight(c, w) && want(c, "out", &a->out, PGD_F32, 2, w->k, ANY);
}

static bool check_gather_rows(cpu_check *c, const void *args, const pgd_weight_desc *w,
                              const pgd_kv_desc *kv) {
    const pgd_gather_rows_args *a = args;
    (void)w;
    (void)kv;
    if (pgd_dtype_bytes(a->x.dtype) == 0) {
        return cpu_refuse(c, PGD_INVALID, "x has no dtype");
    }
    return want(c, "x", &a->x, a->x.dtype, 2, ANY, ANY) &&
           want(c, "out", &a->out, a->x.dtype, 2, a->x.shape[1], ANY);
}

static bool check_norm(cpu_check *c, const pgd_tensor *x, const pgd_tensor *w,
                       const pgd_tensor *out) {
    if (x->rank != 2 && x->rank != 3) {
        return cpu_refuse(c, PGD_INVALID, "x of rmsnorm has rank %u, not 2 or 3",
                          (unsigned)x->rank);
    }
    return want(c, "x of rmsnorm", x, PGD_F32, x->rank, ANY, ANY) &&
           want(c, "out of rmsnorm", out, PGD_F32, x->rank, x->shape[1], x->shape[2]) &&
           want_vector(c, "w of rmsnorm", w, x->shape[x->rank - 1]);
}

static bool check_rmsnorm(cpu_check *c, const void *args, const pgd_weight_desc *w,
                          const pgd_kv_desc *kv) {
    const pgd_rmsnorm_args *a = args;
    (void)w;
    (void)kv;
    return check_norm(c, &a->x, &a->w, &a->out);
}

static bool check_turn(cpu_check *c, const pgd_tensor *q, const pgd_tensor *k,
                       const pgd_tensor *table, int32_t style, int32_t rot_dim,
                       const int32_t *sections) {
    int64_t sum = 0;
    if (!want(c, "q", q, PGD_F32, 3, ANY, ANY) ||
        (k->rank != 0 && !want(c, "k", k, PGD_F32, 3, ANY, q->shape[2]))) {
        return false;
    }
    if ((style != PGD_ROPE_HALF && style != PGD_ROPE_INTERLEAVED) || rot_dim < 0 ||
        rot_dim % 2 != 0 || rot_dim > q->shape[2]) {
        return cpu_refuse(c, PGD_INVALID, "rope style %d with %d of %lld dims", (int)style,
                          (int)rot_dim, (long long)q->shape[2]);
    }
    for (int i = 0; i < 4; i++) {
        sum += sections[i];
        if (sections[i] < 0 || sections[i] > rot_dim) {
            return cpu_refuse(c, PGD_INVALID, "rope section of %d pairs", (int)sections[i]);
        }
    }
    if (sum != 0 && sum != rot_dim / 2) {
        return cpu_refuse(c, PGD_INVALID, "rope sections hold %lld pairs, not %d", (long long)sum,
                          (int)(rot_dim / 2));
    }
    return want(c, "table", table, PGD_F32, 3, rot_dim / 2, 2);
}

static bool check_rope(cpu_check *c, const void *args, const pgd_weight_desc *w,
                       const pgd_kv_desc *kv) {
    const pgd_rope_args *a = args;
    (void)w;
    (void)kv;
    return check_turn(c, &a->q, &a->k, &a->table, a->style, a->rot_dim, a->sections);
}

// f32, or bf16 when it may be.
static int32_t dtype_of(const pgd_tensor *t, bool bf16) {
    return bf16 && t->dtype == PGD_BF16 ? PGD_BF16 : PGD_F32;
}

// x that is rounded to bf16 anyway may lie in bf16.
static bool check_product(cpu_check *c, const pgd_weight_desc *w, const pgd_tensor *x,
                          const pgd_tensor *y, const pgd_tensor *bias) {
    return cpu_check_weight(c, w) &&
           want(c, "x", x, dtype_of(x, w->act_dtype == PGD_BF16), 2, w->k, ANY) &&
           want(c, "y", y, PGD_F32, 2, w->n, ANY) &&
           (bias == NULL || bias->rank == 0 || want_vector(c, "bias", bias, w->n));
}

static bool check_gemm(cpu_check *c, const void *args, const pgd_weight_desc *w,
                       const pgd_kv_desc *kv) {
    const pgd_gemm_args *a = args;
    (void)kv;
    if (!want_absent(c, "x_scale", &a->x_scale) || !want_absent(c, "row_map", &a->row_map) ||
        !check_product(c, w, &a->x, &a->y, &a->bias) || !want_act(c, a->act)) {
        return false;
    }
    if (w->uses == PGD_USE_EMBED) {
        return cpu_refuse(c, PGD_INVALID, "the weight was made for embed only");
    }
    if (a->aux_kind < PGD_AUX_NONE || a->aux_kind > PGD_AUX_MUL) {
        return cpu_refuse(c, PGD_UNSUPPORTED, "aux kind %d", (int)a->aux_kind);
    }
    return a->aux_kind == PGD_AUX_NONE || want(c, "aux", &a->aux, PGD_F32, 2, w->n, ANY);
}

static bool check_gemm_add(cpu_check *c, const void *args, const pgd_weight_desc *w,
                           const pgd_kv_desc *kv) {
    const pgd_gemm_args *a = args;
    if (a->aux_kind != PGD_AUX_ADD) {
        return cpu_refuse(c, PGD_INVALID, "aux kind %d, not %d", (int)a->aux_kind,
                          (int)PGD_AUX_ADD);
    }
    return check_gemm(c, args, w, kv);
}

static bool check_cache_rows(cpu_check *c, const pgd_kv_desc *kv, int32_t layer, int32_t group,
                             const pgd_tensor *k, const pgd_tensor *v) {
    if (!cpu_check_kv(c, kv)) {
        return false;
    }
    if (layer < 0 || layer >= kv->layers || group < 0 || group >= PGD_MAX_GROUPS) {
        return cpu_refuse(c, PGD_INVALID, "layer %d of %d, group %d", (int)layer, (int)kv->layers,
                          (int)group);
    }
    return want(c, "k", k, PGD_F32, 3, kv->heads, kv->k_dim) &&
           want(c, "v", v, PGD_F32, 3, kv->heads, kv->v_dim);
}

static bool check_kv_write(cpu_check *c, const void *args, const pgd_weight_desc *w,
                           const pgd_kv_desc *kv) {
    const pgd_kv_write_args *a = args;
    (void)w;
    return check_cache_rows(c, kv, a->layer, a->group, &a->k, &a->v);
}

static bool check_attn(cpu_check *c, const void *args, const pgd_weight_desc *w,
                       const pgd_kv_desc *kv) {
    const pgd_attn_args *a = args;
    int64_t heads = 0;
    (void)w;
    if (!cpu_check_kv(c, kv) || !want(c, "q", &a->q, PGD_F32, 3, ANY, kv->k_dim)) {
        return false;
    }
    heads = a->q.shape[1];
    if (heads < 1 || heads % kv->heads != 0) {
        return cpu_refuse(c, PGD_INVALID, "%lld heads share %d kv heads", (long long)heads,
                          (int)kv->heads);
    }
    if (a->layer < 0 || a->layer >= kv->layers || a->group < 0 || a->group >= PGD_MAX_GROUPS) {
        return cpu_refuse(c, PGD_INVALID, "layer %d of %d, group %d", (int)a->layer,
                          (int)kv->layers, (int)a->group);
    }
    return want(c, "out", &a->out, PGD_F32, 3, heads, kv->v_dim) &&
           (a->sinks.rank == 0 || want_vector(c, "sinks", &a->sinks, heads)) &&
           (a->slopes.rank == 0 || want_vector(c, "slopes", &a->slopes, heads)) &&
           (a->lse.rank == 0 || want(c, "lse", &a->lse, PGD_F32, 2, heads, ANY));
}

static bool check_attn_plan(cpu_check *c, const void *args, const pgd_weight_desc *w,
                            const pgd_kv_desc *kv) {
    (void)args;
    (void)w;
    return cpu_check_kv(c, kv);
}

static bool check_act_mul(cpu_check *c, const void *args, const pgd_weight_desc *w,
                          const pgd_kv_desc *kv) {
    const pgd_act_mul_args *a = args;
    (void)w;
    (void)kv;
    return want_act(c, a->act) && want(c, "out", &a->out, PGD_F32, 2, ANY, ANY) &&
           want(c, "x", &a->x, PGD_F32, 2, 2 * a->out.shape[1], ANY);
}

static bool check_same(cpu_check *c, const pgd_tensor *a, const pgd_tensor *b,
                       const pgd_tensor *out) {
    if (a->rank < 1 || a->rank > 3) {
        return cpu_refuse(c, PGD_UNSUPPORTED, "a has rank %u, not 1 to 3", (unsigned)a->rank);
    }
    return want(c, "a", a, PGD_F32, a->rank, ANY, ANY) &&
           want(c, "b", b, PGD_F32, a->rank, a->shape[1], a->shape[2]) &&
           want(c, "out", out, PGD_F32, a->rank, a->shape[1], a->shape[2]);
}

static bool check_add(cpu_check *c, const void *args, const pgd_weight_desc *w,
                      const pgd_kv_desc *kv) {
    const pgd_add_args *a = args;
    (void)w;
    (void)kv;
    return check_same(c, &a->a, &a->b, &a->out);
}

static bool check_argmax(cpu_check *c, const void *args, const pgd_weight_desc *w,
                         const pgd_kv_desc *kv) {
    const pgd_argmax_args *a = args;
    (void)w;
    (void)kv;
    return want(c, "x", &a->x, PGD_F32, 2, ANY, ANY) &&
           want(c, "out", &a->out, PGD_I32, 1, ANY, ANY);
}

// sample, and the end of head_sample.
static bool check_draw(cpu_check *c, const pgd_sample_args *a) {
    const int64_t columns = a->logprobs.rank == 2 ? a->logprobs.shape[1] : ANY;
    if (!want(c, "logits", &a->logits, PGD_F32, 2, ANY, ANY) ||
        !want(c, "ids", &a->ids, PGD_I32, 1, ANY, ANY) ||
        (a->logprobs.rank != 0 && !want(c, "logprobs", &a->logprobs, PGD_F32, 2, ANY, ANY)) ||
        (a->top_ids.rank != 0 && !want(c, "top_ids", &a->top_ids, PGD_I32, 2, columns, ANY)) ||
        (a->ranks.rank != 0 && !want(c, "ranks", &a->ranks, PGD_I32, 1, ANY, ANY)) ||
        (a->state.rank != 0 && !want(c, "state", &a->state, PGD_I32, 2, a->logits.shape[1], ANY))) {
        return false;
    }
    if (a->logits.shape[1] >= 1 << 22) { // the mass of a row has to fit in 64 bits
        return cpu_refuse(c, PGD_UNSUPPORTED, "%lld logits a row", (long long)a->logits.shape[1]);
    }
    return true;
}

static bool check_sample(cpu_check *c, const void *args, const pgd_weight_desc *w,
                         const pgd_kv_desc *kv) {
    (void)w;
    (void)kv;
    return check_draw(c, args);
}

static bool check_add_rmsnorm(cpu_check *c, const void *args, const pgd_weight_desc *w,
                              const pgd_kv_desc *kv) {
    const pgd_add_rmsnorm_args *a = args;
    (void)w;
    (void)kv;
    return want(c, "x", &a->x, PGD_F32, 2, ANY, ANY) &&
           want(c, "residual", &a->residual, PGD_F32, 2, a->x.shape[1], ANY) &&
           want(c, "out", &a->out, PGD_F32, 2, a->x.shape[1], ANY) &&
           want_vector(c, "w", &a->w, a->x.shape[1]);
}

static bool check_qkv_rope_write(cpu_check *c, const void *args, const pgd_weight_desc *w,
                                 const pgd_kv_desc *kv) {
    const pgd_qkv_rope_write_args *a = args;
    const pgd_tensor *x = a->norm_w.rank != 0 ? &a->normed : &a->x;
    if (a->norm_w.rank != 0 && !check_norm(c, &a->x, &a->norm_w, &a->normed)) {
        return false;
    }
    if (w != NULL && w->uses == PGD_USE_EMBED) {
        return cpu_refuse(c, PGD_INVALID, "the weight was made for embed only");
    }
    return check_product(c, w, x, &a->qkv, &a->bias) &&
           (a->q_norm.rank == 0 || check_norm(c, &a->q, &a->q_norm, &a->q)) &&
           (a->k_norm.rank == 0 || check_norm(c, &a->k, &a->k_norm, &a->k)) &&
           check_turn(c, &a->q, &a->k, &a->table, a->style, a->rot_dim, a->sections) &&
           check_cache_rows(c, kv, a->layer, a->group, &a->k, &a->v);
}

static bool check_gate_up(cpu_check *c, const void *args, const pgd_weight_desc *w,
                          const pgd_kv_desc *kv) {
    const pgd_gate_up_args *a = args;
    const pgd_tensor *x = a->norm_w.rank != 0 ? &a->normed : &a->x;
    (void)kv;
    if (a->norm_w.rank != 0 && !check_norm(c, &a->x, &a->norm_w, &a->normed)) {
        return false;
    }
    if (w != NULL && (w->uses == PGD_USE_EMBED || w->n % 2 != 0)) {
        return cpu_refuse(c, PGD_INVALID, "a weight of %lld rows with uses %u", (long long)w->n,
                          (unsigned)w->uses);
    }
    return want_absent(c, "x_scale", &a->x_scale) && want_act(c, a->act) &&
           check_product(c, w, x, &a->tmp, &a->bias) &&
           want(c, "out", &a->out, dtype_of(&a->out, true), 2, w->n / 2, ANY);
}

static bool check_head_sample(cpu_check *c, const void *args, const pgd_weight_desc *w,
                              const pgd_kv_desc *kv) {
    const pgd_head_sample_args *a = args;
    const pgd_tensor *x = a->norm_w.rank != 0 ? &a->normed : &a->x;
    const pgd_sample_args sample = cpu_sample_of(a);
    (void)kv;
    if (a->norm_w.rank != 0 && !check_norm(c, &a->x, &a->norm_w, &a->normed)) {
        return false;
    }
    if (w != NULL && w->uses == PGD_USE_EMBED) {
        return cpu_refuse(c, PGD_INVALID, "the weight was made for embed only");
    }
    return check_product(c, w, x, &a->logits, NULL) && check_draw(c, &sample);
}

#define CHECK_SLOT(name, family) [PGD_OP_##name] = check_##name,
const cpu_check_fn cpu_checks[PGD_OP_COUNT] = {PGD_OP_LIST(CHECK_SLOT)};
#undef CHECK_SLOT
