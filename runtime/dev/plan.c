// Planning: asks the plugin about every op with its exact shapes, then settles the tables.
//
// A question about an op that is composed becomes questions about its parts: the composition runs
// over a table whose slots ask instead of compute, so shapes of parts are never written twice.
// A refusal can break a family and turn more ops into compositions with more parts, so the round
// is repeated until nothing is refused any more.
#include "dev/inner.h"

#include <stdio.h>
#include <string.h>

#include "base/fail.h"
#include "base/mem.h"

typedef struct asking {
    pgd_exec exec; // first: what the compositions are given
    pgd_device device;
    pgd_dev *dev;
    const pgd_query *query; // of the fused op
    pgd_dev_place *place;
    int32_t changed;                // something was refused in this round
    int32_t slow[PGD_OP_COUNT];     // ops that run by copies
    char reasons[PGD_OP_COUNT][96]; // of refused ops
} asking;

// ---- one question ------------------------------------------------------------------------------

static void refuse(asking *s, int32_t op, const char *reason) {
    s->dev->refused[op] = 1;
    s->changed = 1;
    snprintf(s->reasons[op], sizeof(s->reasons[op]), "%s",
             reason[0] == '\0' ? "refused without a reason" : reason);
}

static pgd_status ask_native(asking *s, int32_t op, const void *args) {
    int32_t family = pgd_dev_op_family(op);
    const pgd_device *d = &s->dev->device;
    pgd_query query = {
        .size = sizeof(query),
        .op = op,
        .args = args,
        .weight = (family & PGD_FAMILY_WEIGHT) != 0 ? s->query->weight : NULL,
        .kv = (family & PGD_FAMILY_KV) != 0 ? s->query->kv : NULL,
        .batch = s->query->batch,
    };
    pgd_support support = {.size = sizeof(support)};
    pgd_status code = pgd_dev_since_weight(s->dev, query.weight);
    code = code == PGD_OK ? pgd_dev_since_kv(s->dev, query.kv) : code;
    code = code == PGD_OK ? d->device->support(d, &query, &support) : code;
    support.kernel[sizeof(support.kernel) - 1] = '\0';
    support.reason[sizeof(support.reason) - 1] = '\0';
    if (code == PGD_UNSUPPORTED) {
        refuse(s, op, pgd_fail_text(code));
        return PGD_OK;
    }
    if (code != PGD_OK) {
        return pgd_dev_note(code, s->dev->plugin->name, "say which operations it supports");
    }
    if (support.level != PGD_LEVEL_NATIVE) {
        refuse(s, op, support.reason);
        return PGD_OK;
    }
    s->place->flags &= support.flags;
    s->place->scratch = support.scratch > s->place->scratch ? support.scratch : s->place->scratch;
    if (op == s->query->op) {
        memcpy(s->place->kernel, support.kernel, sizeof(s->place->kernel));
        memcpy(s->place->reason, support.reason, sizeof(s->place->reason));
    }
    return PGD_OK;
}

static const char *why_not_native(const asking *s, int32_t op) {
    int32_t family = pgd_dev_op_family(op);
    if (s->dev->refused[op]) {
        return s->reasons[op];
    }
    if ((family & PGD_FAMILY_WEIGHT) != 0 && !s->dev->weight_native) {
        return s->dev->weight_refused ? s->reasons[PGD_OP_gemm]
                                      : "the weight family has a hole: weights lie in host memory";
    }
    if ((family & PGD_FAMILY_KV) != 0 && !s->dev->kv_native) {
        return s->dev->kv_refused ? s->reasons[PGD_OP_attn]
                                  : "the kv family has a hole: the cache lies in host memory";
    }
    return "the plugin has no such function";
}

static void ask_reference(asking *s, int32_t op) {
    pgd_dev_place *p = s->place;
    int32_t sees = s->dev->maps && (s->dev->info.caps & PGD_CAP_HOST_VISIBLE) != 0;
    int32_t place = sees ? PGD_DEV_F2 : PGD_DEV_F3;
    s->slow[op] |= !sees;
    p->flags &= PGD_SUPPORT_INVARIANT;
    if (place > p->place) {
        p->place = place;
        snprintf(p->reason, sizeof(p->reason), "%s", why_not_native(s, op));
    }
    if (op == s->query->op) {
        snprintf(p->kernel, sizeof(p->kernel), "reference");
    }
}

static pgd_status ask(const pgd_exec *x, int32_t op, const void *args) {
    asking *s = (asking *)(uintptr_t)x; // exec is the first member
    switch (s->dev->how[op]) {
    case PGD_DEV_NATIVE: return ask_native(s, op, args);
    case PGD_DEV_REFERENCE: ask_reference(s, op); return PGD_OK;
    default: break;
    }
    s->place->place = s->place->place > PGD_DEV_F1 ? s->place->place : PGD_DEV_F1;
    if (op == s->query->op) {
        snprintf(s->place->kernel, sizeof(s->place->kernel), "composed");
        snprintf(s->place->reason, sizeof(s->place->reason), "%s", why_not_native(s, op));
    }
    return pgd_dev_call(pgd_dev_composed(), op, x, args);
}

#define ASK(name, family)                                                         \
    static pgd_status ask_##name(const pgd_exec *x, const pgd_##name##_args *a) { \
        return ask(x, PGD_OP_##name, a);                                          \
    }
PGD_OP_LIST(ASK)
#undef ASK

static const pgd_ops ask_ops = {.size = sizeof(pgd_ops),
#define SLOT(name, family) .name = ask_##name,
                                PGD_OP_LIST(SLOT)
#undef SLOT
};

// ---- handles of a query ------------------------------------------------------------------------

// A weight or cache that the plugin's own plan refuses breaks its family.
static pgd_status ask_handles(asking *s) {
    const pgd_device *d = &s->dev->device;
    if (s->query->weight != NULL && s->dev->weight_native) {
        pgd_weight_plan plan = {.size = sizeof(plan)};
        pgd_status code = d->weight->plan(d, s->query->weight, &plan);
        if (code == PGD_UNSUPPORTED) {
            s->dev->weight_refused = 1;
            s->changed = 1;
            snprintf(s->reasons[PGD_OP_gemm], sizeof(s->reasons[0]), "%.95s", pgd_fail_text(code));
        } else if (code != PGD_OK) {
            return pgd_dev_note(code, s->dev->plugin->name, "plan a weight");
        }
    }
    if (s->query->kv != NULL && s->dev->kv_native) {
        pgd_kv_plan plan = {.size = sizeof(plan)};
        pgd_status code = d->kv->plan(d, s->query->kv, &plan);
        if (code == PGD_UNSUPPORTED) {
            s->dev->kv_refused = 1;
            s->changed = 1;
            snprintf(s->reasons[PGD_OP_attn], sizeof(s->reasons[0]), "%.95s", pgd_fail_text(code));
        } else if (code != PGD_OK) {
            return pgd_dev_note(code, s->dev->plugin->name, "plan a cache");
        }
    }
    return PGD_OK;
}

static pgd_status check_query(const pgd_query *q, uint32_t i) {
    int32_t family = pgd_dev_op_family(q->op);
    if (pgd_dev_op_args_bytes(q->op) == 0 || q->args == NULL || q->batch == NULL) {
        return pgd_fail(PGD_INVALID, "query %u: operation %d is unknown or has no args or batch", i,
                        q->op);
    }
    if (((family & PGD_FAMILY_WEIGHT) != 0 && q->weight == NULL) ||
        ((family & PGD_FAMILY_KV) != 0 && q->kv == NULL)) {
        return pgd_fail(PGD_INVALID, "query %u: %s needs the description of its weight or cache", i,
                        pgd_dev_op_name(q->op));
    }
    return PGD_OK;
}

static pgd_status ask_all(asking *s, const pgd_query *queries, uint32_t n, pgd_dev_place *out) {
    s->changed = 0;
    memset(s->slow, 0, sizeof(s->slow));
    for (uint32_t i = 0; i < n; i++) {
        s->query = &queries[i];
        s->place = &out[i];
        out[i] = (pgd_dev_place){
            .op = queries[i].op,
            .flags = PGD_SUPPORT_CAPTURABLE | PGD_SUPPORT_INVARIANT,
        };
        pgd_dev_listen();
        PGD_TRY(ask_handles(s));
        PGD_TRY(ask(&s->exec, queries[i].op, queries[i].args));
    }
    return PGD_OK;
}

// " (why)" for an op that the plugin has but refused, else nothing: that it has none says enough.
static void add_reason(const asking *s, int32_t op, char *text, size_t cap) {
    int32_t family = pgd_dev_op_family(op);
    int32_t refused = s->dev->refused[op] ||
                      ((family & PGD_FAMILY_WEIGHT) != 0 && s->dev->weight_refused) ||
                      ((family & PGD_FAMILY_KV) != 0 && s->dev->kv_refused);
    if (refused) {
        snprintf(text, cap, " (%s)", why_not_native(s, op));
    }
}

static pgd_status refuse_slow(const asking *s) {
    char names[700] = "";
    size_t used = 0;
    int32_t n_slow = 0;
    for (int32_t op = 0; op < PGD_OP_COUNT; op++) {
        if (s->slow[op]) {
            char reason[104] = "";
            add_reason(s, op, reason, sizeof(reason));
            int n = snprintf(names + used, sizeof(names) - used, "%s%s%s", used == 0 ? "" : ", ",
                             pgd_dev_op_name(op), reason);
            used += n > 0 ? (size_t)n : 0;
            used = used < sizeof(names) ? used : sizeof(names) - 1;
            n_slow++;
        }
    }
    if (n_slow == 0 || s->dev->allow_slow) {
        return PGD_OK;
    }
    return pgd_fail(PGD_UNSUPPORTED,
                    "device %s would run %d operations of this model slowly, on the host with "
                    "copies to and from the device: %s; --allow-slow permits it",
                    s->dev->uri, n_slow, names);
}

// Recording is possible only if every planned op may be recorded.
static void settle_graph(pgd_dev *dev, const pgd_dev_place *places, uint32_t n) {
    for (uint32_t i = 0; i < n; i++) {
        if ((places[i].flags & PGD_SUPPORT_CAPTURABLE) == 0) {
            pgd_dev_fill_graph(dev);
            return;
        }
    }
}

pgd_status pgd_dev_plan(pgd_dev *dev, const pgd_query *queries, uint32_t n, pgd_dev_place *out) {
    for (uint32_t i = 0; i < n; i++) {
        PGD_TRY(check_query(&queries[i], i));
    }
    asking *s = pgd_mem_alloc(1, sizeof(*s));
    if (s == NULL) {
        return PGD_MEM_FAIL("a plan", sizeof(*s));
    }
    s->dev = dev;
    s->device = dev->device;
    s->device.ops = &ask_ops;
    s->exec = (pgd_exec){.size = sizeof(pgd_exec), .dev = &s->device};
    memset(dev->refused, 0, sizeof(dev->refused));
    dev->weight_refused = 0;
    dev->kv_refused = 0;
    pgd_dev_fill(dev);
    pgd_dev_settle(dev);
    pgd_status code = ask_all(s, queries, n, out);
    while (code == PGD_OK && s->changed) { // each round refuses one thing more, so it ends
        pgd_dev_settle(dev);
        code = ask_all(s, queries, n, out);
    }
    if (code == PGD_OK) {
        settle_graph(dev, out, n);
        code = refuse_slow(s);
    }
    pgd_mem_free(s);
    return code;
}

int32_t pgd_dev_takes(const pgd_dev *dev, const pgd_query *query) {
    const pgd_dev_tables *native = &dev->native;
    pgd_support support = {.size = sizeof(support)};
    return pgd_dev_has_op(&native->ops, query->op) && native->device.support != NULL &&
           pgd_dev_since_weight(dev, query->weight) == PGD_OK &&
           pgd_dev_since_kv(dev, query->kv) == PGD_OK &&
           native->device.support(&dev->device, query, &support) == PGD_OK &&
           support.level == PGD_LEVEL_NATIVE;
}
