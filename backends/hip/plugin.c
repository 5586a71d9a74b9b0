// The door of the HIP plugin.
#include "hip.h"

static const pgd_option options[] = {
    GPU_OPTION_KERNELS,
    {.key = "tuned", .type = "bool", .value = "on", .help = "off: the portable kernels alone"},
    GPU_OPTION_DETERMINISTIC,
    GPU_OPTION_LIBRARY_ROWS,
    GPU_OPTION_START_SECONDS,
};

GPU_PLUGIN_DEFINE(hip, hip_driver, options)
