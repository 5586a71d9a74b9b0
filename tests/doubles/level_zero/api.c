// The functions of the API, as the loader's tables want them: devices, contexts, memory, modules,
// kernels. Those of lists, queues and events are in lists.c.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "api.h"

#define MOST_BYTES (UINT64_C(1) << 30) // of an allocation without the relaxed limit

struct _ze_driver_handle_t {
    int32_t unused;
};
struct _ze_device_handle_t {
    uint32_t number;
};
struct _ze_context_handle_t {
    int32_t n_memories;
};
struct _ze_module_handle_t {
    zed_module module;
};
struct _ze_module_build_log_handle_t {
    char text[512];
};

static struct _ze_driver_handle_t the_driver;
static struct _ze_device_handle_t the_devices[ZED_DEVICES] = {{0}, {1}, {2}, {3}};

// ---- driver and devices ------------------------------------------------------------------------

ze_result_t zed_zeInit(ze_init_flags_t flags) {
    (void)flags;
    (void)double_init(); // hangs if asked to
    return zed_open() ? ZE_RESULT_SUCCESS : ZE_RESULT_ERROR_UNINITIALIZED;
}

ze_result_t zed_zeDriverGet(uint32_t *count, ze_driver_handle_t *list) {
    if (*count > 0 && list != NULL) {
        list[0] = &the_driver;
    }
    *count = 1;
    return ZE_RESULT_SUCCESS;
}

ze_result_t zed_zeDriverGetApiVersion(ze_driver_handle_t driver, ze_api_version_t *out) {
    (void)driver;
    *out = ZE_API_VERSION_CURRENT;
    return ZE_RESULT_SUCCESS;
}

ze_result_t zed_zeDeviceGet(ze_driver_handle_t driver, uint32_t *count, ze_device_handle_t *list) {
    int64_t n = double_settings_get()->devices;
    (void)driver;
    n = n < 0 ? 0 : n > ZED_DEVICES ? ZED_DEVICES : n;
    for (uint32_t i = 0; list != NULL && i < *count && i < (uint32_t)n; i++) {
        list[i] = &the_devices[i];
    }
    *count = *count == 0 || *count > (uint32_t)n ? (uint32_t)n : *count;
    return ZE_RESULT_SUCCESS;
}

ze_result_t zed_zeDeviceGetProperties(ze_device_handle_t device, ze_device_properties_t *out) {
    out->type = ZE_DEVICE_TYPE_GPU;
    out->vendorId = double_settings_get()->matrix != 0 ? 0x8086 : 0x1d0b;
    out->deviceId = 1;
    out->flags = 0;
    out->maxMemAllocSize = MOST_BYTES;
    out->numSlices = 1;
    out->numSubslicesPerSlice = 2;
    out->numEUsPerSubslice = 1;
    memset(out->uuid.id, 0xd0, sizeof(out->uuid.id));
    out->uuid.id[0] = (uint8_t)device->number;
    snprintf(out->name, sizeof(out->name), "Level Zero double %u on PoCL",
             (unsigned)device->number);
    return ZE_RESULT_SUCCESS;
}

ze_result_t zed_zeDeviceGetModuleProperties(ze_device_handle_t device,
                                            ze_device_module_properties_t *out) {
    (void)device;
    out->spirvVersionSupported = ZE_MAKE_VERSION(1, 2);
    out->flags = double_settings_get()->f64 != 0 ? ZE_DEVICE_MODULE_FLAG_FP64 : 0;
    out->maxArgumentsSize = 1024;
    return ZE_RESULT_SUCCESS;
}

ze_result_t zed_zeDeviceGetComputeProperties(ze_device_handle_t device,
                                             ze_device_compute_properties_t *out) {
    (void)device;
    out->maxTotalGroupSize = out->maxGroupSizeX = 1024;
    out->maxGroupSizeY = out->maxGroupSizeZ = 1;
    out->numSubGroupSizes = 1;
    out->subGroupSizes[0] = double_settings_get()->matrix != 0 ? 16 : 8;
    return ZE_RESULT_SUCCESS;
}

ze_result_t zed_zeDeviceGetCommandQueueGroupProperties(ze_device_handle_t device, uint32_t *count,
                                                       ze_command_queue_group_properties_t *list) {
    (void)device;
    for (uint32_t i = 0; list != NULL && i < *count && i < 2; i++) {
        list[i].flags = i == 0 ? ZE_COMMAND_QUEUE_GROUP_PROPERTY_FLAG_COPY
                               : ZE_COMMAND_QUEUE_GROUP_PROPERTY_FLAG_COPY |
                                     ZE_COMMAND_QUEUE_GROUP_PROPERTY_FLAG_COMPUTE;
        list[i].maxMemoryFillPatternSize = 16;
        list[i].numQueues = 1;
    }
    *count = 2;
    return ZE_RESULT_SUCCESS;
}

ze_result_t zed_zeDeviceGetMemoryProperties(ze_device_handle_t device, uint32_t *count,
                                            ze_device_memory_properties_t *list) {
    (void)device;
    if (list != NULL && *count > 0) {
        ze_device_memory_ext_properties_t *more = list[0].pNext;
        const uint64_t total = (uint64_t)double_settings_get()->memory << 20;
        list[0].totalSize = total;
        if (more != NULL && more->stype == ZE_STRUCTURE_TYPE_DEVICE_MEMORY_EXT_PROPERTIES) {
            more->physicalSize = total;
            more->readBandwidth = 10;
            more->writeBandwidth = 10;
            more->bandwidthUnit = ZE_BANDWIDTH_UNIT_BYTES_PER_NANOSEC;
        }
    }
    *count = 1;
    return ZE_RESULT_SUCCESS;
}

ze_result_t zed_zeDevicePciGetPropertiesExt(ze_device_handle_t device,
                                            ze_pci_ext_properties_t *out) {
    out->address = (ze_pci_address_ext_t){.domain = 0, .bus = 0xdb, .device = device->number};
    return ZE_RESULT_SUCCESS;
}

// ---- contexts and memory -----------------------------------------------------------------------

ze_result_t zed_zeContextCreate(ze_driver_handle_t driver, const ze_context_desc_t *desc,
                                ze_context_handle_t *out) {
    (void)driver;
    (void)desc;
    *out = calloc(1, sizeof(**out));
    return *out != NULL ? ZE_RESULT_SUCCESS : ZE_RESULT_ERROR_OUT_OF_HOST_MEMORY;
}

ze_result_t zed_zeContextDestroy(ze_context_handle_t context) {
    if (context->n_memories != 0) {
        zed_complain("zeContextDestroy before its memories are freed");
    }
    free(context);
    return ZE_RESULT_SUCCESS;
}

static ze_result_t result_of(ze_context_handle_t context, int error) {
    context->n_memories += error == DOUBLE_OK;
    return error == DOUBLE_OK ? ZE_RESULT_SUCCESS : ZE_RESULT_ERROR_OUT_OF_DEVICE_MEMORY;
}

ze_result_t zed_zeMemAllocDevice(ze_context_handle_t context,
                                 const ze_device_mem_alloc_desc_t *desc, size_t bytes, size_t align,
                                 ze_device_handle_t device, void **out) {
    const ze_relaxed_allocation_limits_exp_desc_t *relaxed = desc->pNext;
    uint64_t address = 0;
    (void)align;
    (void)device;
    if (bytes > MOST_BYTES &&
        (relaxed == NULL ||
         relaxed->stype != ZE_STRUCTURE_TYPE_RELAXED_ALLOCATION_LIMITS_EXP_DESC ||
         relaxed->flags != ZE_RELAXED_ALLOCATION_LIMITS_EXP_FLAG_MAX_SIZE)) {
        return ZE_RESULT_ERROR_UNSUPPORTED_SIZE;
    }
    if (work_is_lost()) {
        return ZE_RESULT_ERROR_DEVICE_LOST;
    }
    const int error = double_alloc(&address, bytes);
    *out = (void *)(uintptr_t)address;
    return result_of(context, error);
}

ze_result_t zed_zeMemAllocHost(ze_context_handle_t context, const ze_host_mem_alloc_desc_t *desc,
                               size_t bytes, size_t align, void **out) {
    (void)desc;
    (void)align;
    return work_is_lost() ? ZE_RESULT_ERROR_DEVICE_LOST
                          : result_of(context, double_host_alloc(out, bytes));
}

ze_result_t zed_zeMemFree(ze_context_handle_t context, void *ptr) {
    context->n_memories--;
    if (double_free((uint64_t)(uintptr_t)ptr) != DOUBLE_OK && double_host_free(ptr) != DOUBLE_OK) {
        zed_complain("zeMemFree of what was not allocated");
    }
    return ZE_RESULT_SUCCESS;
}

ze_result_t zed_zeMemGetAllocProperties(ze_context_handle_t context, const void *ptr,
                                        ze_memory_allocation_properties_t *out,
                                        ze_device_handle_t *out_device) {
    const void *at = double_memory_find((uint64_t)(uintptr_t)ptr, 0);
    (void)context;
    out->type = at == NULL  ? ZE_MEMORY_TYPE_UNKNOWN
                : at == ptr ? ZE_MEMORY_TYPE_HOST // only those have the host's address
                            : ZE_MEMORY_TYPE_DEVICE;
    if (out_device != NULL) {
        *out_device = at == NULL ? NULL : &the_devices[0];
    }
    return ZE_RESULT_SUCCESS;
}

ze_result_t zed_zeContextGetStatus(ze_context_handle_t context) {
    (void)context;
    return work_is_lost() ? ZE_RESULT_ERROR_DEVICE_LOST : ZE_RESULT_SUCCESS;
}

// ---- modules and kernels -----------------------------------------------------------------------

ze_result_t zed_zeModuleCreate(ze_context_handle_t context, ze_device_handle_t device,
                               const ze_module_desc_t *desc, ze_module_handle_t *out,
                               ze_module_build_log_handle_t *out_log) {
    ze_module_handle_t m = calloc(1, sizeof(*m));
    ze_module_build_log_handle_t log = calloc(1, sizeof(*log));
    (void)context;
    (void)device;
    if (m == NULL || log == NULL || desc->format != ZE_MODULE_FORMAT_IL_SPIRV) {
        free(m);
        free(log);
        return ZE_RESULT_ERROR_UNSUPPORTED_FEATURE;
    }
    const ze_result_t result = zed_module_make(desc->pInputModule, desc->inputSize, &m->module);
    memcpy(log->text, m->module.log, sizeof(log->text));
    if (out_log != NULL) {
        *out_log = log;
    } else {
        free(log);
    }
    if (result != ZE_RESULT_SUCCESS) {
        zed_module_end(&m->module);
        free(m);
        m = NULL;
    }
    *out = m;
    return result;
}

ze_result_t zed_zeModuleDestroy(ze_module_handle_t module) {
    zed_module_end(&module->module);
    free(module);
    return ZE_RESULT_SUCCESS;
}

ze_result_t zed_zeModuleBuildLogGetString(ze_module_build_log_handle_t log, size_t *size,
                                          char *out) {
    const size_t n = strlen(log->text) + 1;
    if (out != NULL && *size >= n) {
        memcpy(out, log->text, n);
    }
    *size = n;
    return ZE_RESULT_SUCCESS;
}

ze_result_t zed_zeModuleBuildLogDestroy(ze_module_build_log_handle_t log) {
    free(log);
    return ZE_RESULT_SUCCESS;
}

ze_result_t zed_zeKernelCreate(ze_module_handle_t module, const ze_kernel_desc_t *desc,
                               ze_kernel_handle_t *out) {
    ze_kernel_handle_t k = calloc(1, sizeof(*k));
    if (k == NULL) {
        return ZE_RESULT_ERROR_OUT_OF_HOST_MEMORY;
    }
    const ze_result_t result = zed_kernel_make(&module->module, desc->pKernelName, &k->kernel);
    if (result != ZE_RESULT_SUCCESS) {
        free(k);
        k = NULL;
    }
    *out = k;
    return result;
}

ze_result_t zed_zeKernelDestroy(ze_kernel_handle_t kernel) {
    zed_kernel_end(&kernel->kernel);
    free(kernel);
    return ZE_RESULT_SUCCESS;
}

ze_result_t zed_zeKernelSetGroupSize(ze_kernel_handle_t kernel, uint32_t x, uint32_t y,
                                     uint32_t z) {
    kernel->kernel.group[0] = x;
    kernel->kernel.group[1] = y;
    kernel->kernel.group[2] = z;
    return ZE_RESULT_SUCCESS;
}

ze_result_t zed_zeKernelSetArgumentValue(ze_kernel_handle_t kernel, uint32_t index, size_t size,
                                         const void *value) {
    zed_kernel *k = &kernel->kernel;
    uint64_t address = 0;
    if (index >= k->n_args) {
        return ZE_RESULT_ERROR_INVALID_KERNEL_ARGUMENT_INDEX;
    }
    if (size > ZED_ARG_BYTES || (k->kinds[index] == ARG_MEMORY && size != sizeof(address))) {
        return ZE_RESULT_ERROR_INVALID_KERNEL_ARGUMENT_SIZE;
    }
    if (k->kinds[index] == ARG_MEMORY && value != NULL) {
        memcpy(&address, value, sizeof(address));
        if (address != 0 && double_memory_find(address, 0) == NULL) {
            zed_complain("a kernel is given memory that is not the device's");
        }
    }
    k->bytes[index] = size;
    memset(k->values[index], 0, ZED_ARG_BYTES);
    if (value != NULL) {
        memcpy(k->values[index], value, size);
    }
    return ZE_RESULT_SUCCESS;
}
