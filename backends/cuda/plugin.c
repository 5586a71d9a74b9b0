// The door of the CUDA plugin.
#include "cuda.h"

static const pgd_option options[] = {
    GPU_OPTION_KERNELS,
    GPU_OPTION_START_SECONDS,
};

GPU_PLUGIN_DEFINE(cuda, cuda_driver, options)
