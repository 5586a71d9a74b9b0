// A device that runs the portable kernels as plain C, item by item, on the calling thread.
//
// With it the layer that all GPUs share (backends/gpu) and the kernels themselves run under the
// address and undefined-behaviour sanitizers, without any GPU library. Device name: emu:0.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "gpu/driver.h"
#include "portable/emulated.h"

#define FAIL(host, code, ...) PGD_HOST_FAIL((host), (code), "emu: " __VA_ARGS__)

static int the_device;

static pgd_status load(const pgd_host *host, void **out_library) {
    (void)host;
    *out_library = &the_device;
    return PGD_OK;
}

static void unload(const pgd_host *host, void *library) {
    (void)host;
    (void)library;
}

static uint32_t count(void *library) {
    (void)library;
    return 1;
}

static pgd_status facts(const pgd_host *host, void *library, uint32_t i, gpu_device_facts *out) {
    (void)host;
    (void)library;
    (void)i;
    snprintf(out->name, sizeof(out->name), "Emulator of the portable kernels");
    snprintf(out->arch, sizeof(out->arch), "c11");
    out->bytes = UINT64_C(4) << 30;
    out->units = 1;
    out->kind = PGD_DEVICE_OTHER;
    out->has_f64 = 1;
    return PGD_OK;
}

static pgd_status device_open(const pgd_host *host, void *library, uint32_t i, void **out_device) {
    (void)host;
    (void)library;
    (void)i;
    *out_device = &the_device;
    return PGD_OK;
}

static void device_close(const pgd_host *host, void *device) {
    (void)host;
    (void)device;
}

// malloc, so that the sanitizer watches both ends of each memory.
static pgd_status create(const pgd_host *host, void *device, uint64_t bytes, int32_t place,
                         void **out_memory) {
    (void)device;
    (void)place;
    *out_memory = calloc(1, bytes);
    return *out_memory != NULL ? PGD_OK
                               : FAIL(host, PGD_OUT_OF_MEMORY, "no memory for %llu bytes",
                                      (unsigned long long)bytes);
}

static void destroy(const pgd_host *host, void *device, void *memory) {
    (void)host;
    (void)device;
    free(memory);
}

static pgd_status queue_create(const pgd_host *host, void *device, int32_t role, void **out_queue) {
    (void)host;
    (void)role;
    *out_queue = device;
    return PGD_OK;
}

static void queue_destroy(const pgd_host *host, void *queue) {
    (void)host;
    (void)queue;
}

static pgd_status launch(const pgd_host *host, void *queue, const gpu_launch *l) {
    const pgd_portable_kernel *k = &pgd_portable_kernels[l->kernel];
    k_u8 *memories[GPU_MEMORIES];
    (void)queue;
    for (int i = 0; i < GPU_MEMORIES; i++) {
        memories[i] = l->memories[i];
    }
    const int code = pgd_emulator_run(pgd_emulated_kernels[l->kernel], l->groups, k->n_items,
                                      memories, l->params);
    if (code == -1) {
        return FAIL(host, PGD_OUT_OF_MEMORY, "no memory for the items of %s", k->name);
    }
    return code == 0 ? PGD_OK
                     : FAIL(host, PGD_INTERNAL, "%s: an item ended while others wait", k->name);
}

static pgd_status copy(const pgd_host *host, void *queue, const gpu_copy *c) {
    unsigned char *to = (unsigned char *)c->dst;
    const unsigned char *from = (const unsigned char *)c->src;
    (void)host;
    (void)queue;
    to = to == NULL ? (unsigned char *)(uintptr_t)c->dst_offset : to + c->dst_offset;
    from = from == NULL ? (const unsigned char *)(uintptr_t)c->src_offset : from + c->src_offset;
    for (uint64_t i = 0; i < c->rows; i++) {
        memmove(to + i * c->dst_pitch, from + i * c->src_pitch, c->bytes);
    }
    return PGD_OK;
}

static pgd_status fill(const pgd_host *host, void *queue, void *memory, uint64_t offset,
                       uint64_t bytes, uint32_t pattern) {
    (void)host;
    (void)queue;
    for (uint64_t i = 0; i < bytes; i += sizeof(pattern)) {
        memcpy((unsigned char *)memory + offset + i, &pattern, sizeof(pattern));
    }
    return PGD_OK;
}

static pgd_status flush(const pgd_host *host, void *queue) {
    (void)host;
    (void)queue;
    return PGD_OK;
}

static pgd_status point(const pgd_host *host, void *queue, uint32_t slot) {
    (void)slot;
    return flush(host, queue);
}

static pgd_status point_wait(const pgd_host *host, void *queue, uint32_t slot,
                             uint64_t timeout_ns) {
    (void)slot;
    (void)timeout_ns;
    return flush(host, queue);
}

static const gpu_driver driver = {
    .kind = "emu",
    .load = load,
    .unload = unload,
    .count = count,
    .facts = facts,
    .open = device_open,
    .close = device_close,
    .create = create,
    .destroy = destroy,
    .queue_create = queue_create,
    .queue_destroy = queue_destroy,
    .launch = launch,
    .copy = copy,
    .fill = fill,
    .flush = flush,
    .point = point,
    .point_wait = point_wait,
};

static const pgd_option options[] = {GPU_OPTION_START_SECONDS};

GPU_PLUGIN_DEFINE(emu, driver, options)
