// A plugin in C++: the headers, their macros and the entry work there too.
#include <pagoda/ops.h>
#include <pagoda/plugin.h>

namespace {

pgd_status probe(const pgd_host *host, pgd_probe *out) {
    pgd_probe local = {};
    local.size = sizeof(local);
    local.n_devices = 0;
    const char reason[] = "written in C++";
    for (size_t i = 0; i < sizeof(reason); i++) {
        local.reason[i] = reason[i];
    }
    PGD_OUT(out, local);
    host->log(host, PGD_LOG_DEBUG, "probed");
    return PGD_OK;
}

pgd_status add(const pgd_exec *x, const pgd_add_args *a) {
    pgd_add_args local = {};
    const pgd_add_args *known = PGD_ARGS(pgd_add_args, local, a);
    if (!pgd_args_tail_is_zero(a, a->size, static_cast<uint32_t>(sizeof(local)))) {
        return PGD_HOST_FAIL(x->dev->host, PGD_UNSUPPORTED, "%u bytes of arguments", a->size);
    }
    return known->a.rank == 0 ? PGD_INVALID : PGD_OK;
}

pgd_status open(const pgd_host *host, void **out_backend, pgd_tables *out) {
    static pgd_ops ops = {};
    ops.size = sizeof(ops);
    ops.add = add;
    pgd_tables local = {};
    local.size = sizeof(local);
    local.ops = &ops;
    *out_backend = nullptr;
    (void)host;
    PGD_OUT(out, local);
    return PGD_OK;
}

void close(void *backend) {
    (void)backend;
}

pgd_plugin describe() {
    pgd_plugin plugin = {};
    plugin.size = sizeof(plugin);
    plugin.abi_minor = PGD_ABI_MINOR;
    plugin.min_host_minor = 1;
    plugin.abi_hash = PGD_ABI_HASH;
    plugin.name = "cplusplus";
    plugin.vendor = "pagoda";
    plugin.version = "0.1.0";
    plugin.build = "";
    plugin.probe = probe;
    plugin.open = open;
    plugin.close = close;
    return plugin;
}

} // namespace

extern "C" {
PGD_PLUGIN_DEFINE(cplusplus) {
    static const pgd_plugin plugin = describe();
    (void)host_minor;
    return &plugin;
}
}
