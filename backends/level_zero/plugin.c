// The door of the Level Zero plugin.
#include <string.h>

#include "ze.h"

static const pgd_option options[] = {
    {.key = "graphs",
     .type = "str",
     .value = "off",
     .help = "on = recorded steps are command lists at full size; off = launches cut to the step"},
    {.key = "start_seconds",
     .type = "int",
     .value = "30",
     .help = "how long the driver may take to start"},
};

static pgd_status probe(const pgd_host *host, pgd_probe *out) {
    return gpu_plugin_probe(host, &ze_driver, out);
}

static pgd_status plugin_open(const pgd_host *host, void **out_backend, pgd_tables *out) {
    const char *graphs = host->option == NULL ? NULL : host->option(host, "graphs");
    const int wants = graphs != NULL && strcmp(graphs, "on") == 0;
    *out_backend = NULL;
    if (graphs != NULL && !wants && graphs[0] != '\0' && strcmp(graphs, "off") != 0) {
        return ZE_FAIL(host, PGD_INVALID, "graphs=%.20s; allowed are: on, off", graphs);
    }
    return gpu_plugin_open(host, wants ? &ze_driver_graphs : &ze_driver, out_backend, out);
}

static const pgd_plugin plugin = {
    .size = sizeof(plugin),
    .abi_minor = PGD_ABI_MINOR,
    .min_host_minor = 1,
    .role = PGD_ROLE_BACKEND,
    .n_options = sizeof(options) / sizeof(options[0]),
    .option_stride = sizeof(options[0]),
    .abi_hash = PGD_ABI_HASH,
    .name = "ze",
    .vendor = "pagoda",
    .version = "0.1.0",
    .build = __VERSION__,
    .options = options,
    .probe = probe,
    .open = plugin_open,
    .close = gpu_plugin_close,
};

PGD_PLUGIN_DEFINE(ze) {
    (void)host_minor;
    return &plugin;
}
