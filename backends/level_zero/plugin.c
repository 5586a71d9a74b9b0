// The door of the Level Zero plugin.
#include "ze.h"

static const pgd_option options[] = {
    {.key = "graphs",
     .type = "str",
     .value = "off",
     .help = "on = recorded steps are command lists at full size; off = launches cut to the step"},
    {.key = "tuned", .type = "bool", .value = "on", .help = "off: the portable kernels alone"},
    GPU_OPTION_START_SECONDS,
};

GPU_PLUGIN_DEFINE(ze, ze_driver, options)
