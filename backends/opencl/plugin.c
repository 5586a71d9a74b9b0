// The door of the OpenCL plugin.
#include "ocl.h"

static const pgd_option options[] = {
    {.key = "cache",
     .type = "str",
     .value = "",
     .help = "folder of built kernels; off = none (default: the user's cache folder)"},
    GPU_OPTION_START_SECONDS,
};

GPU_PLUGIN_DEFINE(ocl, ocl_driver, options)
