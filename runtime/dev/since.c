// What a plugin of an earlier minor is not sent.
//
// A plugin drops fields it does not know, so one that changes the result must never reach it: the
// host answers UNSUPPORTED in its place, before the plugin is asked. For a weight or a cache that
// breaks the family like any refusal of the plugin's own. Hints need no entry here.
//
//   0.2  weights of a scheme (blocks, int8, parts of their own), caches of int8 with scales
#include "dev/inner.h"

#include "base/fail.h"

static pgd_status too_new(const pgd_dev *dev, const char *what, const char *name, uint32_t since) {
    return pgd_fail(PGD_UNSUPPORTED,
                    "%s %s is of interface %d.%u, plugin '%s' was built for %d.%u; a build of it "
                    "with newer headers may run it",
                    what, name, PGD_ABI_MAJOR, since, dev->plugin->name, PGD_ABI_MAJOR,
                    dev->plugin->abi_minor);
}

pgd_status pgd_dev_since_weight(const pgd_dev *dev, const pgd_weight_desc *desc) {
    if (dev->plugin->abi_minor >= 2 || desc == NULL) {
        return PGD_OK;
    }
    if (desc->scheme != PGD_SCHEME_PLAIN) {
        return too_new(dev, "weight scheme", pgd_scheme_name(desc->scheme), 2);
    }
    return desc->dtype == PGD_I8 ? too_new(dev, "weight dtype", pgd_dtype_name(PGD_I8), 2) : PGD_OK;
}

pgd_status pgd_dev_since_kv(const pgd_dev *dev, const pgd_kv_desc *desc) {
    if (dev->plugin->abi_minor >= 2 || desc == NULL) {
        return PGD_OK;
    }
    if (desc->scale_mode != PGD_KV_SCALE_NONE || desc->k_dtype == PGD_I8 ||
        desc->v_dtype == PGD_I8) {
        return too_new(dev, "cache dtype", pgd_dtype_name(PGD_I8), 2);
    }
    return PGD_OK;
}

// ---- the tables --------------------------------------------------------------------------------

static const pgd_dev *self_of(const pgd_device *d) {
    return (const pgd_dev *)d; // device is the first member
}

static pgd_status plan_weight(const pgd_device *d, const pgd_weight_desc *desc,
                              pgd_weight_plan *out) {
    PGD_TRY(pgd_dev_since_weight(self_of(d), desc));
    return self_of(d)->settled_weight.plan(d, desc, out);
}

static pgd_status prepare(const pgd_device *d, pgd_queue *q, const pgd_weight_desc *desc,
                          const pgd_range *dst, const pgd_range *scratch, pgd_weight **out) {
    *out = NULL;
    PGD_TRY(pgd_dev_since_weight(self_of(d), desc));
    return self_of(d)->settled_weight.prepare(d, q, desc, dst, scratch, out);
}

static pgd_status adopt(const pgd_device *d, const pgd_weight_desc *desc, const pgd_range *dst,
                        pgd_weight **out) {
    *out = NULL;
    PGD_TRY(pgd_dev_since_weight(self_of(d), desc));
    return self_of(d)->settled_weight.adopt(d, desc, dst, out);
}

static pgd_status plan_kv(const pgd_device *d, const pgd_kv_desc *desc, pgd_kv_plan *out) {
    PGD_TRY(pgd_dev_since_kv(self_of(d), desc));
    return self_of(d)->settled_kv.plan(d, desc, out);
}

static pgd_status bind(const pgd_device *d, const pgd_kv_desc *desc, const pgd_kv_plan *plan,
                       const pgd_range *mem, int32_t n_blocks, pgd_kv **out) {
    *out = NULL;
    PGD_TRY(pgd_dev_since_kv(self_of(d), desc));
    return self_of(d)->settled_kv.bind(d, desc, plan, mem, n_blocks, out);
}

void pgd_dev_since_tables(pgd_dev *dev) {
    if (dev->plugin->abi_minor >= PGD_ABI_MINOR) {
        return;
    }
    if (dev->weight_native) {
        dev->settled_weight = dev->merged.weight;
        dev->merged.weight.plan = plan_weight;
        dev->merged.weight.prepare = prepare;
        dev->merged.weight.adopt = adopt;
    }
    if (dev->kv_native) {
        dev->settled_kv = dev->merged.kv;
        dev->merged.kv.plan = plan_kv;
        dev->merged.kv.bind = bind;
    }
}
