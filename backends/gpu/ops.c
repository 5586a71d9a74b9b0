// The slots: a call is checked for shapes and becomes launches (op_*.c), which run at once or are
// recorded. support asks the same checks before there are addresses.
#include <stdio.h>
#include <string.h>

#include "gpu.h"
#include "tuned.h"

static pgd_status check(const pgd_exec *x, int32_t op, const char *name, const void *args,
                        const pgd_weight *w, const pgd_kv *kv) {
    common_check c = {.rules = &gpu_rules};
    if (!common_check_op(&c, op, args, w == NULL ? NULL : &w->desc,
                         kv == NULL ? NULL : &kv->desc)) {
        return GPU_FAIL(x->dev, c.code, "%s: %s", name, c.reason);
    }
    return PGD_OK;
}

#define HANDLES_NONE(a)      NULL, NULL
#define HANDLES_WEIGHT(a)    (a)->w, NULL
#define HANDLES_KV(a)        NULL, (a)->kv
#define HANDLES_WEIGHT_KV(a) (a)->w, (a)->kv

#define OP_SLOT(name, family)                                                         \
    static pgd_status slot_##name(const pgd_exec *x, const pgd_##name##_args *args) { \
        pgd_##name##_args local;                                                      \
        const pgd_##name##_args *a = PGD_ARGS(pgd_##name##_args, local, args);        \
        GPU_TAIL(x->dev, pgd_##name##_args, args);                                    \
        PGD_TRY(check(x, PGD_OP_##name, #name, a, HANDLES_##family(a)));              \
        return gpu_op_##name(x, a);                                                   \
    }
PGD_OP_LIST(OP_SLOT)
#undef OP_SLOT

#define OP_ENTRY(name, family) .name = slot_##name,
const pgd_ops gpu_ops = {.size = sizeof(pgd_ops), PGD_OP_LIST(OP_ENTRY)};
#undef OP_ENTRY

// ---- support -----------------------------------------------------------------------------------

// x of the op's product, NULL if it has none.
static const pgd_tensor *product_x(int32_t op, const common_args *a) {
    switch (op) {
    case PGD_OP_gemm:
    case PGD_OP_gemm_add: return &a->gemm.x;
    case PGD_OP_gate_up: return a->gate_up.norm_w.rank != 0 ? &a->gate_up.normed : &a->gate_up.x;
    case PGD_OP_qkv_rope_write:
        return a->qkv_rope_write.norm_w.rank != 0 ? &a->qkv_rope_write.normed
                                                  : &a->qkv_rope_write.x;
    case PGD_OP_head_sample:
        return a->head_sample.norm_w.rank != 0 ? &a->head_sample.normed : &a->head_sample.x;
    default: return NULL;
    }
}

static uint64_t scratch_of(const pgd_device *d, const pgd_query *q, const common_args *a,
                           const pgd_weight_desc *w, const pgd_kv_desc *kv) {
    const pgd_tensor *x = product_x(q->op, a);
    uint64_t bytes = x != NULL ? gpu_product_scratch(d, w, x) : 0;
    uint64_t other = 0;
    if (q->op == PGD_OP_attn) {
        other = gpu_attn_scratch(d, &a->attn, kv, q->batch);
    } else if (q->op == PGD_OP_sample) {
        other = gpu_sample_scratch(&a->sample.logits);
    } else if (q->op == PGD_OP_head_sample) {
        other = gpu_head_scratch(d, w, x, &a->head_sample.logits);
    }
    return other > bytes ? other : bytes;
}

// The name of an op's kernels says what weights other than plain ones they read. Beside a portable
// name stands why it is not a tuned one, where the driver has such.
static void name_kernel(const pgd_device *d, const pgd_query *q, const common_args *a,
                        const pgd_weight_desc *w, const pgd_kv_desc *kv, pgd_support *out) {
    const gpu_self *self = gpu_of(d);
    const pgd_tensor *x = product_x(q->op, a);
    const bool is_plain = w == NULL || w->scheme == PGD_SCHEME_PLAIN;
    uint64_t bytes = 0;
    const char *library = x != NULL ? gpu_library_product(d, w, x, &bytes) : NULL;
    const char *tuned = x != NULL              ? gpu_tuned_product(d, w, x, &bytes)
                        : q->op == PGD_OP_attn ? gpu_tuned_attn(d, &a->attn, kv, q->batch, &bytes)
                                               : NULL;
    if (x != NULL && library == NULL) {
        snprintf(out->reason, sizeof(out->reason), "%s", self->library_reason);
    }
    if (library != NULL) {
        out->flags &= ~(uint32_t)PGD_SUPPORT_INVARIANT;
    }
    if (tuned != NULL || library != NULL) {
        snprintf(out->kernel, sizeof(out->kernel), "%s__%s%s", common_op_name(q->op),
                 tuned == NULL ? "portable" : tuned, library == NULL ? "" : "_blaslt");
        return;
    }
    snprintf(out->kernel, sizeof(out->kernel), "%s%s%s__portable", common_op_name(q->op),
             is_plain ? "" : "_", is_plain ? "" : pgd_scheme_name(w->scheme));
    if (out->reason[0] == '\0' && (x != NULL || q->op == PGD_OP_attn) &&
        self->driver->tuned != NULL) {
        snprintf(out->reason, sizeof(out->reason), "%s",
                 self->tuned == NULL ? self->plain_reason
                 : x != NULL ? "tuned kernels take weights of bf16 and f16, with x of that type"
                 : self->tuned->attention == NULL
                     ? "there is no tuned attention for such devices"
                     : "tuned kernels take caches of bf16 and f16, heads of 64 and 128");
    }
}

static bool takes(const pgd_device *d, const pgd_query *q, common_check *c, pgd_support *out) {
    common_args local;
    pgd_weight_desc w_local;
    pgd_kv_desc kv_local;
    const common_args *args = common_query_args(c, q, &local);
    const pgd_weight_desc *w = NULL;
    const pgd_kv_desc *kv = NULL;
    if (args == NULL) {
        return false;
    }
    if (!gpu_of(d)->facts.has_f64 && (q->op == PGD_OP_sample || q->op == PGD_OP_head_sample)) {
        return common_refuse(c, PGD_UNSUPPORTED, "the device has no double precision");
    }
    w = q->weight == NULL ? NULL : PGD_ARGS(pgd_weight_desc, w_local, q->weight);
    kv = q->kv == NULL ? NULL : PGD_ARGS(pgd_kv_desc, kv_local, q->kv);
    if (!common_check_op(c, q->op, args, w, kv)) {
        return false;
    }
    out->level = PGD_LEVEL_NATIVE;
    out->flags = PGD_SUPPORT_CAPTURABLE | PGD_SUPPORT_INVARIANT;
    out->scratch = scratch_of(d, q, args, w, kv);
    name_kernel(d, q, args, w, kv, out);
    return true;
}

pgd_status gpu_support(const pgd_device *d, const pgd_query *query, pgd_support *out) {
    pgd_query local;
    const pgd_query *q = PGD_ARGS(pgd_query, local, query);
    common_check c = {.rules = &gpu_rules};
    pgd_support result = {.size = sizeof(result), .level = PGD_LEVEL_NONE};
    GPU_TAIL(d, pgd_query, query);
    if (!takes(d, q, &c, &result)) {
        snprintf(result.reason, sizeof(result.reason), "%s", c.reason);
    }
    PGD_OUT(out, result);
    return PGD_OK;
}
