// Operations: what their arguments speak of must live, be large enough, and be of the right shape;
// from then on it is in use.
#include "check.h"

#define ARGS_BYTES 2048 // more than any args struct has

typedef union any_args {
    uint64_t align;
    unsigned char bytes[ARGS_BYTES];
    layer_head head;
} any_args;

static uint32_t size_of(int32_t op) {
    switch (op) {
#define CASE(name, family) \
    case PGD_OP_##name: return (uint32_t)sizeof(pgd_##name##_args);
        PGD_OP_LIST(CASE)
#undef CASE
    default: return 0;
    }
}

// The args as this version knows them: a smaller caller's are filled up with zeros.
static pgd_status read_args(check_self *c, int32_t op, const void *args, any_args *out) {
    const uint32_t known = size_of(op);
    const char *name = layer_op_name(op);
    uint32_t size = 0;
    memset(out, 0, sizeof(*out));
    if (args == NULL) {
        return check_wrong(c, "%s: no arguments", name);
    }
    memcpy(&size, args, sizeof(size));
    if (size < sizeof(layer_head) || known > ARGS_BYTES) {
        return check_wrong(c, "%s: size is %u; set it to sizeof(args)", name, size);
    }
    if (!pgd_args_tail_is_zero(args, size, known)) {
        return check_wrong(c, "%s: fields behind byte %u that nobody knows are set", name, known);
    }
    memcpy(out->bytes, args, size < known ? size : known);
    return PGD_OK;
}

static pgd_status check_count(check_self *c, const char *op, const char *what, int32_t n,
                              int32_t cap) {
    return n >= 0 && n <= cap
               ? PGD_OK
               : check_wrong(c, "%s: the batch has %d %s, its cap is %d", op, n, what, cap);
}

static pgd_status check_batch(check_self *c, const char *op, const layer_head *a) {
    const pgd_batch *b = a->batch;
    const pgd_batch_head *live = layer_live(b);
    if (a->rows < PGD_ROWS_SHAPE || a->rows > PGD_ROWS_OUTPUTS) {
        return check_wrong(c, "%s: rows is %d; 0 to 2 is allowed", op, a->rows);
    }
    if (b == NULL) {
        return a->rows == PGD_ROWS_SHAPE ? PGD_OK : check_wrong(c, "%s: batch is NULL", op);
    }
    if (live == NULL) {
        return PGD_OK;
    }
    if (b->mem != NULL) {
        PGD_TRY(check_alive(c, b->mem, CHECK_BUFFER, op));
    }
    PGD_TRY(check_count(c, op, "tokens", live->n_tokens, b->cap_tokens));
    PGD_TRY(check_count(c, op, "sequences", live->n_seqs, b->cap_seqs));
    PGD_TRY(check_count(c, op, "decode rows", live->n_decode, live->n_seqs));
    return check_count(c, op, "outputs", live->n_out, b->cap_out);
}

// Everything the call speaks of is used by the work that it is.
static void mark_used(check_self *c, check_queue *q, int32_t op, const layer_head *a) {
    uint32_t n = 0;
    pgd_weight *w = NULL;
    pgd_kv *kv = NULL;
    const layer_field *fields = layer_fields(&n);
    check_work(q);
    for (uint32_t i = 0; i < n; i++) {
        const pgd_tensor *t = layer_tensor(&fields[i], a);
        if (fields[i].op == op && t->rank > 0) {
            check_used(c, t->buffer, CHECK_BUFFER, q);
        }
    }
    layer_handles(op, a, &w, &kv);
    const check_handle *weight = check_find(c, w, CHECK_WEIGHT);
    const check_handle *cache = check_find(c, kv, CHECK_KV);
    check_used(c, w, CHECK_WEIGHT, q);
    check_used(c, kv, CHECK_KV, q);
    check_used(c, weight != NULL ? weight->memory : NULL, CHECK_BUFFER, q);
    check_used(c, cache != NULL ? cache->memory : NULL, CHECK_BUFFER, q);
    check_used(c, a->batch != NULL ? a->batch->mem : NULL, CHECK_BUFFER, q);
}

static int32_t touches_host(int32_t op, const void *args) {
    uint32_t n = 0;
    const layer_field *fields = layer_fields(&n);
    for (uint32_t i = 0; i < n; i++) {
        const pgd_tensor *t = layer_tensor(&fields[i], args);
        if (fields[i].op == op && t->rank > 0 && t->buffer == NULL) {
            return 1;
        }
    }
    return 0;
}

static pgd_status look(check_self *c, const pgd_exec *x, int32_t op, const void *args,
                       any_args *a) {
    const char *name = layer_op_name(op);
    PGD_TRY(read_args(c, op, args, a));
    PGD_TRY(check_alive(c, x->queue, CHECK_QUEUE, name));
    PGD_TRY(check_batch(c, name, &a->head));
    PGD_TRY(check_shapes(c, op, a));
    check_queue *q = check_queue_of(c, x->queue);
    if (q != NULL) {
        mark_used(c, q, op, &a->head);
    }
    return PGD_OK;
}

static pgd_status around_op(const pgd_exec *x, int32_t op, const void *args) {
    check_self *c = check_of(x->dev);
    any_args local;
    check_lock(c);
    const pgd_status status = look(c, x, op, args, &local);
    check_queue *q = check_queue_of(c, x->queue);
    check_unlock(c);
    PGD_TRY(status);
    if (q != NULL && touches_host(op, &local)) {
        PGD_TRY(check_deliver(x->dev, q));
    }
    return layer_next(x, op, args);
}

LAYER_OPS;

const pgd_ops *check_ops(void) {
    return &ops;
}
