// The door of the OpenCL plugin.
#include "ocl.h"

static const pgd_option options[] = {
    {.key = "cache",
     .type = "str",
     .value = "",
     .help = "folder of built kernels; off = none (default: the user's cache folder)"},
    {.key = "start_seconds",
     .type = "int",
     .value = "30",
     .help = "how long the driver may take to start"},
};

static pgd_status probe(const pgd_host *host, pgd_probe *out) {
    return gpu_plugin_probe(host, &ocl_driver, out);
}

static pgd_status plugin_open(const pgd_host *host, void **out_backend, pgd_tables *out) {
    return gpu_plugin_open(host, &ocl_driver, out_backend, out);
}

static const pgd_plugin plugin = {
    .size = sizeof(plugin),
    .abi_minor = PGD_ABI_MINOR,
    .min_host_minor = 1,
    .role = PGD_ROLE_BACKEND,
    .n_options = sizeof(options) / sizeof(options[0]),
    .option_stride = sizeof(options[0]),
    .abi_hash = PGD_ABI_HASH,
    .name = "ocl",
    .vendor = "pagoda",
    .version = "0.1.0",
    .build = __VERSION__,
    .options = options,
    .probe = probe,
    .open = plugin_open,
    .close = gpu_plugin_close,
};

PGD_PLUGIN_DEFINE(ocl) {
    (void)host_minor;
    return &plugin;
}
