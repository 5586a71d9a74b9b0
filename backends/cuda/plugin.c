// The door of the CUDA plugin.
#include "cuda.h"

static const pgd_option options[] = {
    GPU_OPTION_KERNELS,
    {.key = "tuned", .type = "bool", .value = "on", .help = "off: the portable kernels alone"},
    {.key = "overlap",
     .type = "bool",
     .value = "off",
     .help = "on: tuned kernels start while the one before them ends (sm_90 and up)"},
    GPU_OPTION_DETERMINISTIC,
    GPU_OPTION_LIBRARY_ROWS,
    GPU_OPTION_START_SECONDS,
};

GPU_PLUGIN_DEFINE(cuda, cuda_driver, options)
