// The door of the CUDA plugin.
#include "cuda.h"

static const pgd_option options[] = {
    GPU_OPTION_KERNELS,
    {.key = "tuned", .type = "bool", .value = "on", .help = "off: the portable kernels alone"},
    {.key = "overlap",
     .type = "bool",
     .value = "off",
     .help = "on: tuned kernels start while the one before them ends (sm_90 and up)"},
    {.key = "wgmma",
     .type = "bool",
     .value = "on",
     .help = "on: products of many rows by wgmma (sm_90), if a trial gives the bits of mma.sync"},
    GPU_OPTION_DETERMINISTIC,
    GPU_OPTION_LIBRARY_ROWS,
    GPU_OPTION_START_SECONDS,
};

GPU_PLUGIN_DEFINE(cuda, cuda_driver, options)
