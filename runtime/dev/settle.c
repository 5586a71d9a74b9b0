// Choosing: which version of each op and family stands in the merged tables.
//
//   op of a whole family (or of none), slot filled, not refused  -> native
//   else, a composition exists                                   -> composed
//   else                                                         -> reference
//
// A family is taken as a whole or not at all, because its handles are opaque: if the weight family
// has a hole, every weight lies in host memory. The exception is in mirror.c.
#include "dev/inner.h"

static int32_t family_is_native(const pgd_dev *dev, int32_t op) {
    int32_t family = pgd_dev_op_family(op);
    return ((family & PGD_FAMILY_WEIGHT) == 0 || dev->weight_native) &&
           ((family & PGD_FAMILY_KV) == 0 || dev->kv_native);
}

static int32_t choose(const pgd_dev *dev, int32_t op) {
    if (pgd_dev_has_op(&dev->native.ops, op) && !dev->refused[op] && family_is_native(dev, op)) {
        return PGD_DEV_NATIVE;
    }
    return pgd_dev_has_op(pgd_dev_composed(), op) ? PGD_DEV_COMPOSED : PGD_DEV_REFERENCE;
}

void pgd_dev_settle(pgd_dev *dev) {
    const pgd_ops *by_how[] = {
        [PGD_DEV_NATIVE] = &dev->native.ops,
        [PGD_DEV_COMPOSED] = pgd_dev_composed(),
        [PGD_DEV_REFERENCE] = pgd_dev_reference(),
    };
    dev->weight_native = pgd_dev_weight_is_whole(dev);
    dev->kv_native = pgd_dev_kv_is_whole(dev);
    for (int32_t op = 0; op < PGD_OP_COUNT; op++) {
        dev->how[op] = choose(dev, op);
    }
    dev->merged.ops.size = sizeof(dev->merged.ops);
#define SET(name, family) dev->merged.ops.name = by_how[dev->how[PGD_OP_##name]]->name;
    PGD_OP_LIST(SET)
#undef SET
    if (dev->weight_native) {
        dev->merged.weight = dev->native.weight;
        pgd_dev_mirror_weight_table(dev);
    } else {
        pgd_dev_host_weight(&dev->merged.weight);
    }
    if (dev->kv_native) {
        dev->merged.kv = dev->native.kv;
        pgd_dev_mirror_kv_table(dev);
    } else {
        pgd_dev_host_kv(&dev->merged.kv);
    }
    pgd_dev_since_tables(dev);
}
