// Merging: a plugin's tables, of whatever size it was built with, become full-size ones.
//
//   plugin   [size 40 | a | b | c | d]          built earlier: e and f do not exist
//   merged   [size 56 | a | b | c | d | 0 | 0]  holes, filled by fill.c and settle.c
//
// A table of a newer plugin is cut: the host calls nothing that it does not know.
#include "dev/inner.h"

#include <string.h>

#include "base/fail.h"

static void copy_table(const void *from, void *to, uint32_t size) {
    memset(to, 0, size);
    if (from != NULL) {
        uint32_t given = 0;
        memcpy(&given, from, sizeof(given));
        memcpy(to, from, given < size ? given : size);
    }
    memcpy(to, &size, sizeof(size));
}

void pgd_dev_merge(const pgd_tables *from, pgd_dev_tables *to) {
    copy_table(from->device, &to->device, sizeof(to->device));
    copy_table(from->memory, &to->memory, sizeof(to->memory));
    copy_table(from->queue, &to->queue, sizeof(to->queue));
    copy_table(from->weight, &to->weight, sizeof(to->weight));
    copy_table(from->kv, &to->kv, sizeof(to->kv));
    copy_table(from->ops, &to->ops, sizeof(to->ops));
    copy_table(from->graph, &to->graph, sizeof(to->graph));
}

pgd_status pgd_dev_merge_check(const char *kind, const pgd_dev_tables *t) {
    const struct {
        const char *name;
        int32_t there;
    } slots[] = {
        {"device.count", t->device.count != NULL},
        {"device.info", t->device.info != NULL},
        {"device.open", t->device.open != NULL},
        {"device.close", t->device.close != NULL},
        {"memory.create", t->memory.create != NULL},
        {"memory.destroy", t->memory.destroy != NULL},
        {"queue.create", t->queue.create != NULL},
        {"queue.destroy", t->queue.destroy != NULL},
        {"queue.copy", t->queue.copy != NULL},
        {"queue.signal", t->queue.signal != NULL},
        {"queue.host_wait", t->queue.host_wait != NULL},
    };
    for (size_t i = 0; i < sizeof(slots) / sizeof(slots[0]); i++) {
        if (!slots[i].there) {
            return pgd_fail(PGD_INVALID,
                            "plugin '%s' leaves the mandatory function %s empty; a backend must "
                            "fill device (count, info, open, close), memory (create, destroy) and "
                            "queue (create, destroy, copy, signal, host_wait)",
                            kind, slots[i].name);
        }
    }
    return PGD_OK;
}

int32_t pgd_dev_has_op(const pgd_ops *ops, int32_t op) {
    switch (op) {
#define CASE(name, family) \
    case PGD_OP_##name: return ops->name != NULL;
        PGD_OP_LIST(CASE)
#undef CASE
    default: return 0;
    }
}

const char *pgd_dev_op_name(int32_t op) {
    switch (op) {
#define CASE(name, family) \
    case PGD_OP_##name: return #name;
        PGD_OP_LIST(CASE)
#undef CASE
    default: return "?";
    }
}

uint32_t pgd_dev_op_args_bytes(int32_t op) {
    switch (op) {
#define CASE(name, family) \
    case PGD_OP_##name: return (uint32_t)sizeof(pgd_##name##_args);
        PGD_OP_LIST(CASE)
#undef CASE
    default: return 0;
    }
}

int32_t pgd_dev_op_family(int32_t op) {
    switch (op) {
#define CASE(name, family) \
    case PGD_OP_##name: return PGD_FAMILY_##family;
        PGD_OP_LIST(CASE)
#undef CASE
    default: return PGD_FAMILY_NONE;
    }
}

pgd_status pgd_dev_call(const pgd_ops *ops, int32_t op, const pgd_exec *x, const void *args) {
    switch (op) {
#define CASE(name, family) \
    case PGD_OP_##name: return ops->name(x, args);
        PGD_OP_LIST(CASE)
#undef CASE
    default: return pgd_fail(PGD_INVALID, "there is no operation %d", op);
    }
}

static int32_t usable(const pgd_dev *dev, int32_t op) {
    return pgd_dev_has_op(&dev->native.ops, op) && !dev->refused[op];
}

int32_t pgd_dev_weight_is_whole(const pgd_dev *dev) {
    const pgd_weight_table *w = &dev->native.weight;
    int32_t table = w->plan != NULL && w->prepare != NULL && w->adopt != NULL && w->destroy != NULL;
    int32_t ops = usable(dev, PGD_OP_embed) && usable(dev, PGD_OP_gemm);
    return table && !dev->weight_refused && (ops || w->unpack != NULL);
}

int32_t pgd_dev_kv_is_whole(const pgd_dev *dev) {
    const pgd_kv_table *k = &dev->native.kv;
    int32_t table =
        k->plan != NULL && k->bind != NULL && k->destroy != NULL && k->copy_blocks != NULL;
    int32_t ops = usable(dev, PGD_OP_kv_write) && usable(dev, PGD_OP_attn);
    return table && !dev->kv_refused &&
           (ops || (k->read_blocks != NULL && k->write_blocks != NULL));
}
