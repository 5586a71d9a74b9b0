// Buffers: the driver's memories with their sizes.
#include "gpu.h"

static pgd_status create(const pgd_device *d, const pgd_buffer_desc *desc, pgd_buffer **out) {
    const gpu_self *self = gpu_of(d);
    pgd_buffer_desc local;
    const pgd_buffer_desc *a = PGD_ARGS(pgd_buffer_desc, local, desc);
    pgd_buffer *b = NULL;
    *out = NULL;
    GPU_TAIL(d, pgd_buffer_desc, desc);
    if ((a->align & (a->align - 1)) != 0 || a->align > 4096) {
        return GPU_FAIL(d, PGD_INVALID,
                        "a buffer aligned to %llu bytes; allowed are powers of two up to 4096",
                        (unsigned long long)a->align);
    }
    if (a->bytes > UINT64_MAX - 3) {
        return GPU_FAIL(d, PGD_OUT_OF_MEMORY, "no memory for a buffer of %llu bytes",
                        (unsigned long long)a->bytes);
    }
    b = d->host->alloc(d->host, sizeof(*b), 0);
    if (b == NULL) {
        return GPU_FAIL(d, PGD_OUT_OF_MEMORY, "no memory for a buffer");
    }
    b->bytes = a->bytes;
    // whole words, and never none: what fills is cut in words, and drivers refuse nothing
    const uint64_t whole = a->bytes == 0 ? 4 : (a->bytes + 3) / 4 * 4;
    pgd_status code = self->driver->create(d->host, self->device, whole, a->place, &b->memory);
    if (code != PGD_OK) {
        d->host->free(d->host, b);
        return code;
    }
    *out = b;
    return PGD_OK;
}

static void destroy(const pgd_device *d, pgd_buffer *b) {
    if (b != NULL) {
        gpu_of(d)->driver->destroy(d->host, gpu_of(d)->device, b->memory);
        d->host->free(d->host, b);
    }
}

static pgd_status map(const pgd_device *d, pgd_buffer *b, void **out_ptr) {
    const gpu_self *self = gpu_of(d);
    *out_ptr = NULL;
    if (self->driver->map == NULL) {
        return GPU_FAIL(d, PGD_UNSUPPORTED, "buffers have no host address");
    }
    return self->driver->map(d->host, self->device, b->memory, out_ptr);
}

pgd_status gpu_range(const pgd_device *d, const char *name, const pgd_buffer *buffer,
                     uint64_t offset, uint64_t bytes) {
    if (buffer == NULL) {
        return GPU_FAIL(d, PGD_INVALID, "%s is not in a buffer of the device", name);
    }
    if (offset > buffer->bytes || bytes > buffer->bytes - offset) {
        return GPU_FAIL(d, PGD_INVALID, "%s takes %llu bytes at %llu of a buffer of %llu", name,
                        (unsigned long long)bytes, (unsigned long long)offset,
                        (unsigned long long)buffer->bytes);
    }
    return PGD_OK;
}

const pgd_memory_table gpu_memory_table = {
    .size = sizeof(pgd_memory_table),
    .create = create,
    .destroy = destroy,
    .map = map,
};
