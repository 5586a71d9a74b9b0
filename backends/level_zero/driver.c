// The driver table on the Level Zero C API. The loader (libze_loader.so.1) is opened by name;
// without it, without a driver or without a GPU there is a sentence and no device.
//
//   memory: USM, its address is the handle    module: SPIR-V made with pagoda    queues: queue.c
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

#include "ze.h"

#define GIB (UINT64_C(1) << 30)

pgd_status ze_error(const pgd_host *host, const char *call, ze_result_t result) {
    switch (result) {
    case ZE_RESULT_SUCCESS: return PGD_OK;
    case ZE_RESULT_NOT_READY: return PGD_TIMEOUT;
    case ZE_RESULT_ERROR_OUT_OF_HOST_MEMORY:
        return ZE_FAIL(host, PGD_OUT_OF_MEMORY, "%s: no memory of the host", call);
    case ZE_RESULT_ERROR_OUT_OF_DEVICE_MEMORY:
        return ZE_FAIL(host, PGD_OUT_OF_MEMORY, "%s: no memory on the device", call);
    case ZE_RESULT_ERROR_UNSUPPORTED_SIZE:
        return ZE_FAIL(host, PGD_OUT_OF_MEMORY, "%s: more than the device has in one piece", call);
    case ZE_RESULT_ERROR_DEVICE_LOST:
    case ZE_RESULT_ERROR_DEVICE_REQUIRES_RESET:
        return ZE_FAIL(host, PGD_DEVICE_LOST, "%s: the device is lost", call);
    default: return ZE_FAIL(host, PGD_INTERNAL, "%s fails with 0x%x", call, (unsigned)result);
    }
}

// ---- library and devices -----------------------------------------------------------------------

static pgd_status find_functions(const pgd_host *host, ze_library *l) {
#define ZE_FIND(name)                                                                         \
    *(void **)&l->ze.name = dlsym(l->handle, #name);                                          \
    if (l->ze.name == NULL) {                                                                 \
        return ZE_FAIL(host, PGD_UNAVAILABLE, "libze_loader.so.1 has no function %s", #name); \
    }
    ZE_FUNCTIONS(ZE_FIND)
#undef ZE_FIND
    return PGD_OK;
}

static void find_devices_of(ze_library *l, ze_driver_handle_t driver) {
    ze_device_handle_t list[ZE_DEVICES];
    uint32_t n = ZE_DEVICES;
    if (l->ze.zeDeviceGet(driver, &n, list) != ZE_RESULT_SUCCESS) {
        return;
    }
    for (uint32_t i = 0; i < n && l->n_devices < ZE_DEVICES; i++) {
        ze_device_properties_t p = {.stype = ZE_STRUCTURE_TYPE_DEVICE_PROPERTIES};
        if (l->ze.zeDeviceGetProperties(list[i], &p) == ZE_RESULT_SUCCESS &&
            p.type == ZE_DEVICE_TYPE_GPU) {
            l->drivers[l->n_devices] = driver;
            l->devices[l->n_devices++] = list[i];
        }
    }
}

static pgd_status find_devices(const pgd_host *host, ze_library *l) {
    ze_driver_handle_t drivers[ZE_DEVICES];
    uint32_t n = ZE_DEVICES;
    const ze_result_t result = l->ze.zeInit(ZE_INIT_FLAG_GPU_ONLY);
    if (result != ZE_RESULT_SUCCESS) {
        return ZE_FAIL(host, PGD_UNAVAILABLE,
                       "the loader finds no driver with a GPU (zeInit gives 0x%x)",
                       (unsigned)result);
    }
    if (l->ze.zeDriverGet(&n, drivers) != ZE_RESULT_SUCCESS || n == 0) {
        return ZE_FAIL(host, PGD_UNAVAILABLE, "the loader has no driver");
    }
    for (uint32_t i = 0; i < n && i < ZE_DEVICES; i++) {
        find_devices_of(l, drivers[i]);
    }
    return PGD_OK;
}

static void unload(const pgd_host *host, void *library) {
    host->free(host, library); // the loader itself stays: its drivers may have threads
}

static pgd_status load(const pgd_host *host, void **out_library) {
    ze_library *l = host->alloc(host, sizeof(*l), 0);
    *out_library = NULL;
    if (l == NULL) {
        return ZE_FAIL(host, PGD_OUT_OF_MEMORY, "no memory for the list of devices");
    }
    l->handle = dlopen("libze_loader.so.1", RTLD_NOW | RTLD_LOCAL);
    pgd_status code =
        l->handle != NULL
            ? find_functions(host, l)
            : ZE_FAIL(host, PGD_UNAVAILABLE,
                      "the Level Zero loader libze_loader.so.1 is not installed (%s)", dlerror());
    code = code == PGD_OK ? find_devices(host, l) : code;
    if (code != PGD_OK) {
        host->free(host, l);
        return code;
    }
    *out_library = l;
    return PGD_OK;
}

static uint32_t count(void *library) {
    return ((const ze_library *)library)->n_devices;
}

static int32_t has_f64(const ze_api *ze, ze_device_handle_t device) {
    ze_device_module_properties_t p = {.stype = ZE_STRUCTURE_TYPE_DEVICE_MODULE_PROPERTIES};
    return ze->zeDeviceGetModuleProperties(device, &p) == ZE_RESULT_SUCCESS &&
           (p.flags & ZE_DEVICE_MODULE_FLAG_FP64) != 0;
}

static int32_t unit_of(const ze_api *ze, ze_device_handle_t device,
                       const ze_device_properties_t *p) {
    ze_device_compute_properties_t c = {.stype = ZE_STRUCTURE_TYPE_DEVICE_COMPUTE_PROPERTIES};
    uint32_t least = 0;
    if (ze->zeDeviceGetComputeProperties(device, &c) != ZE_RESULT_SUCCESS) {
        return ZE_UNIT_NONE;
    }
    for (uint32_t i = 0; i < c.numSubGroupSizes && i < ZE_SUBGROUPSIZE_COUNT; i++) {
        least = least == 0 || c.subGroupSizes[i] < least ? c.subGroupSizes[i] : least;
    }
    return ze_unit_of(p->vendorId, p->deviceId, least);
}

// Sum of the device's memories, and the bandwidth of the fastest; a driver that does not know the
// extension leaves that unknown.
static pgd_status memory_facts(const pgd_host *host, const ze_api *ze, ze_device_handle_t device,
                               gpu_device_facts *out) {
    enum { MOST = 8 };
    ze_device_memory_properties_t list[MOST];
    ze_device_memory_ext_properties_t more[MOST];
    uint32_t n = MOST;
    memset(list, 0, sizeof(list));
    memset(more, 0, sizeof(more));
    for (int i = 0; i < MOST; i++) {
        more[i].stype = ZE_STRUCTURE_TYPE_DEVICE_MEMORY_EXT_PROPERTIES;
        list[i].stype = ZE_STRUCTURE_TYPE_DEVICE_MEMORY_PROPERTIES;
        list[i].pNext = &more[i];
    }
    ZE_TRY(host, ze, zeDeviceGetMemoryProperties, device, &n, list);
    for (uint32_t i = 0; i < n && i < MOST; i++) {
        const uint64_t per_s = more[i].bandwidthUnit == ZE_BANDWIDTH_UNIT_BYTES_PER_NANOSEC
                                   ? more[i].readBandwidth * UINT64_C(1000000000)
                                   : 0;
        out->bytes += list[i].totalSize;
        out->bytes_per_s = per_s > out->bytes_per_s ? per_s : out->bytes_per_s;
    }
    return PGD_OK;
}

static pgd_status facts(const pgd_host *host, void *library, uint32_t i, gpu_device_facts *out) {
    const ze_library *l = library;
    ze_device_handle_t device = l->devices[i];
    ze_device_properties_t p = {.stype = ZE_STRUCTURE_TYPE_DEVICE_PROPERTIES};
    ze_pci_ext_properties_t pci = {.stype = ZE_STRUCTURE_TYPE_PCI_EXT_PROPERTIES};
    ZE_TRY(host, &l->ze, zeDeviceGetProperties, device, &p);
    snprintf(out->name, sizeof(out->name), "%.*s", (int)sizeof(out->name) - 1, p.name);
    snprintf(out->arch, sizeof(out->arch), "%04x:%04x", (unsigned)p.vendorId & 0xffffu,
             (unsigned)p.deviceId & 0xffffu);
    if (l->ze.zeDevicePciGetPropertiesExt(device, &pci) == ZE_RESULT_SUCCESS) {
        snprintf(out->pci, sizeof(out->pci), "%04x:%02x:%02x.%x",
                 (unsigned)pci.address.domain & 0xffffu, (unsigned)pci.address.bus & 0xffu,
                 (unsigned)pci.address.device & 0xffu, (unsigned)pci.address.function & 0xfu);
    }
    memcpy(out->uuid, p.uuid.id, sizeof(out->uuid));
    out->units = p.numSlices * p.numSubslicesPerSlice;
    out->kind = PGD_DEVICE_GPU;
    out->has_f64 = has_f64(&l->ze, device);
    out->unit = unit_of(&l->ze, device, &p);
    return memory_facts(host, &l->ze, device, out);
}

// The first group of queues that takes kernels.
static pgd_status find_ordinal(const pgd_host *host, ze_device *d) {
    enum { MOST = 16 };
    ze_command_queue_group_properties_t groups[MOST];
    uint32_t n = MOST;
    memset(groups, 0, sizeof(groups));
    for (int i = 0; i < MOST; i++) {
        groups[i].stype = ZE_STRUCTURE_TYPE_COMMAND_QUEUE_GROUP_PROPERTIES;
    }
    ZE_TRY(host, d->ze, zeDeviceGetCommandQueueGroupProperties, d->device, &n, groups);
    for (uint32_t i = 0; i < n && i < MOST; i++) {
        if ((groups[i].flags & ZE_COMMAND_QUEUE_GROUP_PROPERTY_FLAG_COMPUTE) != 0) {
            d->ordinal = i;
            return PGD_OK;
        }
    }
    return ZE_FAIL(host, PGD_UNSUPPORTED, "the device has no queue for kernels");
}

static void device_close(const pgd_host *host, void *device) {
    ze_device *d = device;
    if (d->setup != NULL) {
        (void)d->ze->zeCommandListDestroy(d->setup);
    }
    if (d->module != NULL) {
        (void)d->ze->zeModuleDestroy(d->module);
    }
    if (d->tuned != NULL) {
        (void)d->ze->zeModuleDestroy(d->tuned);
    }
    if (d->context != NULL) {
        (void)d->ze->zeContextDestroy(d->context);
    }
    host->free(host, d);
}

static pgd_status make_device(const pgd_host *host, ze_device *d, ze_driver_handle_t driver) {
    const ze_context_desc_t context = {.stype = ZE_STRUCTURE_TYPE_CONTEXT_DESC};
    ze_device_properties_t p = {.stype = ZE_STRUCTURE_TYPE_DEVICE_PROPERTIES};
    ze_command_queue_desc_t setup = {.stype = ZE_STRUCTURE_TYPE_COMMAND_QUEUE_DESC,
                                     .mode = ZE_COMMAND_QUEUE_MODE_SYNCHRONOUS,
                                     .priority = ZE_COMMAND_QUEUE_PRIORITY_NORMAL};
    ZE_TRY(host, d->ze, zeDeviceGetProperties, d->device, &p);
    d->most_bytes = p.maxMemAllocSize;
    d->has_f64 = has_f64(d->ze, d->device);
    d->unit = unit_of(d->ze, d->device, &p);
    PGD_TRY(find_ordinal(host, d));
    setup.ordinal = d->ordinal;
    ZE_TRY(host, d->ze, zeContextCreate, driver, &context, &d->context);
    ZE_TRY(host, d->ze, zeCommandListCreateImmediate, d->context, d->device, &setup, &d->setup);
    return PGD_OK;
}

static pgd_status device_open(const pgd_host *host, void *library, uint32_t i, void **out_device) {
    const ze_library *l = library;
    ze_device *d = host->alloc(host, sizeof(*d), 0);
    *out_device = NULL;
    if (d == NULL) {
        return ZE_FAIL(host, PGD_OUT_OF_MEMORY, "no memory for a device");
    }
    d->ze = &l->ze;
    d->device = l->devices[i];
    pgd_status code = make_device(host, d, l->drivers[i]);
    if (code != PGD_OK) {
        device_close(host, d);
        return code;
    }
    *out_device = d;
    return PGD_OK;
}

static pgd_status status(const pgd_host *host, void *device) {
    const ze_device *d = device;
    ZE_TRY(host, d->ze, zeContextGetStatus, d->context);
    return PGD_OK;
}

// ---- memory ------------------------------------------------------------------------------------

static void destroy(const pgd_host *host, void *device, void *memory) {
    const ze_device *d = device;
    (void)host;
    (void)d->ze->zeMemFree(d->context, memory);
}

// Weights and the cache may be larger than the driver's usual limit of one allocation.
static ze_result_t allocate(const ze_device *d, uint64_t bytes, int32_t place, void **out) {
    const ze_relaxed_allocation_limits_exp_desc_t relaxed = {
        .stype = ZE_STRUCTURE_TYPE_RELAXED_ALLOCATION_LIMITS_EXP_DESC,
        .flags = ZE_RELAXED_ALLOCATION_LIMITS_EXP_FLAG_MAX_SIZE};
    const ze_host_mem_alloc_desc_t on_host = {.stype = ZE_STRUCTURE_TYPE_HOST_MEM_ALLOC_DESC};
    const ze_device_mem_alloc_desc_t on_device = {.stype = ZE_STRUCTURE_TYPE_DEVICE_MEM_ALLOC_DESC,
                                                  .pNext = bytes > d->most_bytes ? &relaxed : NULL};
    return place == PGD_PLACE_STAGING
               ? d->ze->zeMemAllocHost(d->context, &on_host, bytes, 0, out)
               : d->ze->zeMemAllocDevice(d->context, &on_device, bytes, 0, d->device, out);
}

static pgd_status create(const pgd_host *host, void *device, uint64_t bytes, int32_t place,
                         void **out_memory) {
    const ze_device *d = device;
    const uint32_t zero = 0;
    void *m = NULL;
    *out_memory = NULL;
    const ze_result_t result = allocate(d, bytes, place, &m);
    if (result != ZE_RESULT_SUCCESS) {
        char call[64];
        snprintf(call, sizeof(call), "a memory of %llu bytes", (unsigned long long)bytes);
        return ze_error(host, call, result);
    }
    pgd_status code = ze_error(host, "zeroing a memory",
                               d->ze->zeCommandListAppendMemoryFill(
                                   d->setup, m, &zero, sizeof(zero), bytes, NULL, 0, NULL));
    if (code != PGD_OK) {
        destroy(host, device, m);
        return code;
    }
    *out_memory = m;
    return PGD_OK;
}

static pgd_status map(const pgd_host *host, void *device, void *memory, void **out_ptr) {
    const ze_device *d = device;
    ze_memory_allocation_properties_t p = {.stype = ZE_STRUCTURE_TYPE_MEMORY_ALLOCATION_PROPERTIES};
    ZE_TRY(host, d->ze, zeMemGetAllocProperties, d->context, memory, &p, NULL);
    if (p.type != ZE_MEMORY_TYPE_HOST) {
        return ZE_FAIL(host, PGD_UNSUPPORTED, "memory of the device has no host address");
    }
    *out_ptr = memory;
    return PGD_OK;
}

#define ZE_COMMON                                                                                 \
    .kind = "ze", .tuned = &ze_tuned, .has_tuned = ze_has_tuned, .load = load, .unload = unload,  \
    .count = count, .facts = facts, .open = device_open, .close = device_close, .create = create, \
    .destroy = destroy, .status = status, .map = map, .queue_create = ze_queue_create,            \
    .queue_destroy = ze_queue_destroy, .launch = ze_queue_launch, .copy = ze_queue_copy,          \
    .fill = ze_queue_fill, .flush = ze_queue_flush, .point = ze_queue_point,                      \
    .point_wait = ze_queue_point_wait

// Recorded launches are a command list.
static const gpu_driver with_graphs = {
    ZE_COMMON,
    .graph_begin = ze_graph_begin,
    .graph_end = ze_graph_end,
    .graph_launch = ze_graph_launch,
    .graph_destroy = ze_graph_destroy,
};

static pgd_status choose(const pgd_host *host, const gpu_driver **out_driver) {
    const char *graphs = host->option == NULL ? NULL : host->option(host, "graphs");
    if (graphs == NULL || graphs[0] == '\0' || strcmp(graphs, "off") == 0) {
        return PGD_OK;
    }
    if (strcmp(graphs, "on") != 0) {
        return ZE_FAIL(host, PGD_INVALID, "graphs=%.20s; allowed are: on, off", graphs);
    }
    *out_driver = &with_graphs;
    return PGD_OK;
}

// Recorded launches are launched one by one.
const gpu_driver ze_driver = {ZE_COMMON, .choose = choose};
