// Operations: the args are copied when they are enqueued, device addresses become host addresses
// when they run, and the reference computes.
#include "good.h"

#include <stddef.h>
#include <string.h>

static const uint32_t args_bytes[PGD_OP_COUNT] = {
#define SIZE(name, family) sizeof(pgd_##name##_args),
    PGD_OP_LIST(SIZE)
#undef SIZE
};

static void place(pgd_tensor *t) {
    if (t->rank != 0) {
        t->offset = (uint64_t)(uintptr_t)good_at(t->buffer, t->offset);
        t->buffer = NULL;
    }
}

static void place_all(good_entry *e) {
#define PLACE(name, field, mode)    \
    if (e->op == PGD_OP_##name) {   \
        place(&e->args.name.field); \
    }
    PGD_OP_IO(PLACE)
#undef PLACE
}

pgd_status good_run_op(good_entry *e) {
    const pgd_ops *ref = pgd_ref_ops();
    place_all(e);
    if (e->batch.mem != NULL) { // what the block says now, when the op runs
        e->batch.mirror = e->batch.mem->mem;
        e->batch.mem = NULL;
    }
    e->args.head.batch = &e->batch;
    switch (e->op) {
#define CALL(name, family) \
    case PGD_OP_##name: return ref->name(NULL, &e->args.name);
        PGD_OP_LIST(CALL)
#undef CALL
    default: return PGD_INTERNAL;
    }
}

int32_t good_takes(int32_t op, const void *args) {
    uint32_t size;
    memcpy(&size, args, sizeof(size));
    return op >= 0 && op < PGD_OP_COUNT && pgd_args_tail_is_zero(args, size, args_bytes[op]);
}

static pgd_status enqueue(const pgd_exec *x, int32_t op, const void *args) {
    uint32_t size;
    memcpy(&size, args, sizeof(size));
    if (!good_takes(op, args)) {
        return PGD_HOST_FAIL(x->dev->host, PGD_UNSUPPORTED,
                             "good: operation %d has a field of a newer interface", (int)op);
    }
    good_entry *e = good_push(x->queue, GOOD_OP);
    e->op = op;
    memset(&e->args, 0, sizeof(e->args));
    memcpy(&e->args, args, size < args_bytes[op] ? size : args_bytes[op]);
    e->args.head.size = args_bytes[op];
    memset(&e->batch, 0, sizeof(e->batch));
    if (e->args.head.batch != NULL) {
        const pgd_batch *b = e->args.head.batch;
        memcpy(&e->batch, b, b->size < sizeof(e->batch) ? b->size : sizeof(e->batch));
    }
    return PGD_OK;
}

#define OP(name, family)                                                         \
    static pgd_status op_##name(const pgd_exec *x, const pgd_##name##_args *a) { \
        return enqueue(x, PGD_OP_##name, a);                                     \
    }
PGD_OP_LIST(OP)
#undef OP

const pgd_ops *good_ops(void) {
    static const pgd_ops table = {.size = sizeof(table),
#define SLOT(name, family) .name = op_##name,
                                  PGD_OP_LIST(SLOT)
#undef SLOT
    };
    return &table;
}
