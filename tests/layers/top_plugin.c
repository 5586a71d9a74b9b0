// A layer above the hole filler: counts what the model asks for and tells of it at its end.
#include <pagoda/ops.h>
#include <pagoda/plugin.h>

#include <stdio.h>

typedef struct top_self {
    const pgd_host *host;
    int32_t n[PGD_OP_COUNT];
} top_self;

#define OP(name, family)                                                          \
    static pgd_status top_##name(const pgd_exec *x, const pgd_##name##_args *a) { \
        top_self *t = x->dev->self;                                               \
        t->n[PGD_OP_##name]++;                                                    \
        return x->next->dev->ops->name(x->next, a);                               \
    }
PGD_OP_LIST(OP)
#undef OP

static pgd_status device_open(void *backend, uint32_t i, const pgd_device *next, void **out_self) {
    (void)i;
    *out_self = backend;
    return next != NULL ? PGD_OK : PGD_INTERNAL;
}

static pgd_status plugin_probe(const pgd_host *host, pgd_probe *out) {
    (void)host;
    (void)out;
    return PGD_OK;
}

static pgd_status plugin_open(const pgd_host *host, void **out_backend, pgd_tables *out) {
    static const pgd_device_table device = {.size = sizeof(device), .open = device_open};
    static const pgd_ops ops = {.size = sizeof(ops),
#define SLOT(name, family) .name = top_##name,
                                PGD_OP_LIST(SLOT)
#undef SLOT
    };
    const pgd_tables local = {.size = sizeof(local), .device = &device, .ops = &ops};
    top_self *t = host->alloc(host, sizeof(*t), 0);
    if (t == NULL) {
        return PGD_OUT_OF_MEMORY;
    }
    t->host = host;
    *out_backend = t;
    PGD_OUT(out, local);
    return PGD_OK;
}

static void plugin_close(void *backend) {
    top_self *t = backend;
    char line[200];
    (void)snprintf(line, sizeof(line), "top: gate_up %d gemm %d head_sample %d",
                   t->n[PGD_OP_gate_up], t->n[PGD_OP_gemm], t->n[PGD_OP_head_sample]);
    t->host->log(t->host, PGD_LOG_ERROR, line);
    t->host->free(t->host, t);
}

PGD_PLUGIN_DEFINE(top) {
    static const pgd_plugin plugin = {
        .size = sizeof(plugin),
        .abi_minor = PGD_ABI_MINOR,
        .min_host_minor = 1,
        .role = PGD_ROLE_LAYER,
        .flags = PGD_PLUGIN_TOP,
        .abi_hash = PGD_ABI_HASH,
        .name = "top",
        .vendor = "pagoda",
        .version = "0.1.0",
        .build = "",
        .probe = plugin_probe,
        .open = plugin_open,
        .close = plugin_close,
    };
    (void)host_minor;
    return &plugin;
}
