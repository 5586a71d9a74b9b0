// The door of the CUDA plugin.
#include "cuda.h"

static const pgd_option options[] = {
    {.key = "kernels",
     .type = "str",
     .value = "",
     .help = "file of compiled kernels that is used in place of those built in"},
    {.key = "tuned", .type = "bool", .value = "on", .help = "off: the portable kernels alone"},
    {.key = "start_seconds",
     .type = "int",
     .value = "30",
     .help = "how long the driver may take to start"},
};

static pgd_status probe(const pgd_host *host, pgd_probe *out) {
    return gpu_plugin_probe(host, &cuda_driver, out);
}

static pgd_status plugin_open(const pgd_host *host, void **out_backend, pgd_tables *out) {
    return gpu_plugin_open(host, &cuda_driver, out_backend, out);
}

static const pgd_plugin plugin = {
    .size = sizeof(plugin),
    .abi_minor = PGD_ABI_MINOR,
    .min_host_minor = 1,
    .role = PGD_ROLE_BACKEND,
    .n_options = sizeof(options) / sizeof(options[0]),
    .option_stride = sizeof(options[0]),
    .abi_hash = PGD_ABI_HASH,
    .name = "cuda",
    .vendor = "pagoda",
    .version = "0.1.0",
    .build = __VERSION__,
    .options = options,
    .probe = probe,
    .open = plugin_open,
    .close = gpu_plugin_close,
};

PGD_PLUGIN_DEFINE(cuda) {
    (void)host_minor;
    return &plugin;
}
