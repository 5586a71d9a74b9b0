// The slots: what is common to all ops. A call is checked for shapes and made (addresses); then it
// runs, or is kept while a graph is recorded. support asks the same checks before there are
// addresses.
#include <stdio.h>
#include <string.h>

#include "cpu.h"

static pgd_status check(const pgd_exec *x, int32_t op, const char *name, const void *args,
                        const pgd_weight *w, const pgd_kv *kv) {
    common_check c = {.rules = &cpu_rules};
    if (!common_check_op(&c, op, args, w == NULL ? NULL : &w->desc,
                         kv == NULL ? NULL : &kv->desc)) {
        return CPU_FAIL(x->dev, c.code, "%s: %s", name, c.reason);
    }
    return PGD_OK;
}

#define HANDLES_NONE(a)      NULL, NULL
#define HANDLES_WEIGHT(a)    (a)->w, NULL
#define HANDLES_KV(a)        NULL, (a)->kv
#define HANDLES_WEIGHT_KV(a) (a)->w, (a)->kv

static pgd_status now(const pgd_exec *x, int32_t number, const void *args) {
    cpu_op op = {0};
    cpu_phase *phases[CPU_PHASES];
    uint32_t n = 0;
    PGD_TRY(cpu_op_make(&op, x, number, args));
    PGD_TRY(cpu_op_live(&op));
    cpu_op_list(&op, phases, &n);
    cpu_phases_run(x->dev->host, phases, n);
    return PGD_OK;
}

#define OP_SLOT(name, family)                                                         \
    static pgd_status make_##name(cpu_op *op, const void *args) {                     \
        return cpu_make_##name(op, args);                                             \
    }                                                                                 \
    static pgd_status slot_##name(const pgd_exec *x, const pgd_##name##_args *args) { \
        pgd_##name##_args local;                                                      \
        const pgd_##name##_args *a = PGD_ARGS(pgd_##name##_args, local, args);        \
        CPU_TAIL(x->dev, pgd_##name##_args, args);                                    \
        PGD_TRY(check(x, PGD_OP_##name, #name, a, HANDLES_##family(a)));              \
        if (x->queue != NULL && x->queue->recording != NULL) {                        \
            return cpu_graph_add_op(x, PGD_OP_##name, a, sizeof(*a));                 \
        }                                                                             \
        return now(x, PGD_OP_##name, a);                                              \
    }

typedef pgd_status (*make_fn)(cpu_op *op, const void *args);

static const make_fn makers[PGD_OP_COUNT];

pgd_status cpu_op_make(cpu_op *op, const pgd_exec *x, int32_t number, const void *args) {
    op->x = x;
    return makers[number](op, args);
}

PGD_OP_LIST(OP_SLOT)
#undef OP_SLOT

#define OP_MAKER(op, family) [PGD_OP_##op] = make_##op,
static const make_fn makers[PGD_OP_COUNT] = {PGD_OP_LIST(OP_MAKER)};
#undef OP_MAKER

#define OP_ENTRY(name, family) .name = slot_##name,
const pgd_ops cpu_ops = {.size = sizeof(pgd_ops), PGD_OP_LIST(OP_ENTRY)};
#undef OP_ENTRY

// ---- support -----------------------------------------------------------------------------------

// Whether a product of many rows is made by OpenBLAS.
static bool by_blas(const pgd_device *d, const pgd_query *q) {
    return cpu_self(d)->blas != NULL && q->weight != NULL && !cpu_is_quantized(q->weight) &&
           q->weight->dtype == PGD_F32 && q->op != PGD_OP_embed;
}

static void name_kernel(const pgd_device *d, const pgd_query *q, pgd_support *out) {
    const char *isa = cpu_self(d)->kernels->isa;
    const char *dtype = "f32";
    const char *tile = "";
    if (by_blas(d, q)) {
        isa = "openblas";
    } else if (q->weight != NULL && q->op != PGD_OP_embed) {
        const bool quantized = cpu_is_quantized(q->weight);
        dtype = quantized ? pgd_scheme_name(q->weight->scheme) : pgd_dtype_name(q->weight->dtype);
        tile = quantized ? "_32" : q->weight->act_dtype == PGD_BF16 ? "_dot" : "_12x32";
    } else if (q->op == PGD_OP_attn && q->kv != NULL) {
        dtype = pgd_dtype_name(q->kv->k_dtype);
        tile = "_64";
    }
    snprintf(out->kernel, sizeof(out->kernel), "%s_%s%s__%s", dtype, common_op_name(q->op), tile,
             isa);
}

// x of the ops around a product, before its norm; NULL for others.
static const pgd_tensor *product_x(int32_t op, const common_args *a) {
    switch (op) {
    case PGD_OP_gemm:
    case PGD_OP_gemm_add: return &a->gemm.x;
    case PGD_OP_gate_up: return &a->gate_up.x;
    case PGD_OP_qkv_rope_write: return &a->qkv_rope_write.x;
    case PGD_OP_head_sample: return &a->head_sample.x;
    default: return NULL;
    }
}

// Bytes of scratch the end of an op takes; those of its front are no longer in use.
static uint64_t sample_bytes(const pgd_device *d, int32_t op, const common_args *a) {
    switch (op) {
    case PGD_OP_sample: return cpu_sample_bytes(d, a->sample.logits.shape[1]);
    case PGD_OP_head_sample: return cpu_sample_bytes(d, a->head_sample.logits.shape[1]);
    default: return 0;
    }
}

static bool takes(const pgd_device *d, const pgd_query *q, common_check *c, uint64_t *out_scratch) {
    common_args local;
    const common_args *args = common_query_args(c, q, &local);
    const pgd_weight_desc *w = NULL;
    const pgd_tensor *x = NULL;
    pgd_weight_desc weight;
    pgd_kv_desc kv;
    if (args == NULL) {
        return false;
    }
    w = q->weight == NULL ? NULL : PGD_ARGS(pgd_weight_desc, weight, q->weight);
    if (!common_check_op(c, q->op, args, w,
                         q->kv == NULL ? NULL : PGD_ARGS(pgd_kv_desc, kv, q->kv))) {
        return false;
    }
    x = product_x(q->op, args);
    const uint64_t front = w != NULL && x != NULL ? cpu_round_bytes(cpu_self(d)->kernels, w, x) : 0;
    const uint64_t rest = sample_bytes(d, q->op, args);
    *out_scratch = front > rest ? front : rest;
    return true;
}

pgd_status cpu_support(const pgd_device *d, const pgd_query *query, pgd_support *out) {
    pgd_query local;
    const pgd_query *q = PGD_ARGS(pgd_query, local, query);
    common_check c = {.rules = &cpu_rules};
    pgd_support result = {.size = sizeof(result), .level = PGD_LEVEL_NONE};
    CPU_TAIL(d, pgd_query, query);
    if (takes(d, q, &c, &result.scratch)) {
        result.level = PGD_LEVEL_NATIVE;
        result.flags = PGD_SUPPORT_CAPTURABLE;
        result.flags |= by_blas(d, q) ? 0u : PGD_SUPPORT_INVARIANT;
        name_kernel(d, q, &result);
    } else {
        snprintf(result.reason, sizeof(result.reason), "%s", c.reason);
    }
    PGD_OUT(out, result);
    return PGD_OK;
}
