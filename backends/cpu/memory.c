// Memory: buffers are host memory, so every buffer has an address.
#include "cpu.h"

static pgd_status create(const pgd_device *d, const pgd_buffer_desc *desc, pgd_buffer **out) {
    pgd_buffer_desc local;
    const pgd_buffer_desc *a = PGD_ARGS(pgd_buffer_desc, local, desc);
    uint64_t align = a->align < CPU_ALIGN ? CPU_ALIGN : a->align;
    pgd_buffer *b = NULL;
    *out = NULL;
    CPU_TAIL(d, pgd_buffer_desc, desc);
    if ((align & (align - 1)) != 0 || align > 4096) {
        return CPU_FAIL(d, PGD_INVALID,
                        "a buffer aligned to %llu bytes; allowed are powers of two "
                        "up to 4096",
                        (unsigned long long)a->align);
    }
    b = d->host->alloc(d->host, sizeof(*b), 0);
    if (b == NULL) {
        return CPU_FAIL(d, PGD_OUT_OF_MEMORY, "no memory for a buffer");
    }
    b->bytes = a->bytes;
    b->ptr = d->host->alloc(d->host, a->bytes == 0 ? CPU_ALIGN : a->bytes, align);
    if (b->ptr == NULL) {
        d->host->free(d->host, b);
        return CPU_FAIL(d, PGD_OUT_OF_MEMORY, "no memory for a buffer of %llu bytes",
                        (unsigned long long)a->bytes);
    }
    *out = b;
    return PGD_OK;
}

static void destroy(const pgd_device *d, pgd_buffer *b) {
    if (b == NULL) {
        return;
    }
    if (!b->imported) {
        d->host->free(d->host, b->ptr);
    }
    d->host->free(d->host, b);
}

static pgd_status import(const pgd_device *d, const void *ptr, uint64_t bytes, uint32_t flags,
                         pgd_buffer **out) {
    pgd_buffer *b = NULL;
    *out = NULL;
    if (ptr == NULL || flags != 0) {
        return CPU_FAIL(d, PGD_INVALID, "import without an address or with flags %u",
                        (unsigned)flags);
    }
    b = d->host->alloc(d->host, sizeof(*b), 0);
    if (b == NULL) {
        return CPU_FAIL(d, PGD_OUT_OF_MEMORY, "no memory for a buffer");
    }
    b->ptr = (unsigned char *)(uintptr_t)ptr;
    b->bytes = bytes;
    b->imported = 1;
    *out = b;
    return PGD_OK;
}

static pgd_status map(const pgd_device *d, pgd_buffer *b, void **out_ptr) {
    (void)d;
    *out_ptr = b->ptr;
    return PGD_OK;
}

pgd_status cpu_range(const pgd_device *d, const char *name, const pgd_buffer *buffer,
                     uint64_t offset, uint64_t bytes, bool write, void **out) {
    *out = NULL;
    if (buffer == NULL) {
        if (offset == 0 && bytes > 0) {
            return CPU_FAIL(d, PGD_INVALID, "%s has no address", name);
        }
        *out = (void *)(uintptr_t)offset;
        return PGD_OK;
    }
    if (offset > buffer->bytes || bytes > buffer->bytes - offset) {
        return CPU_FAIL(d, PGD_INVALID, "%s takes %llu bytes at %llu of a buffer of %llu", name,
                        (unsigned long long)bytes, (unsigned long long)offset,
                        (unsigned long long)buffer->bytes);
    }
    if (write && buffer->imported) {
        return CPU_FAIL(d, PGD_INVALID, "%s would write into an imported buffer", name);
    }
    *out = buffer->ptr + offset;
    return PGD_OK;
}

const pgd_memory_table cpu_memory_table = {
    .size = sizeof(pgd_memory_table),
    .create = create,
    .destroy = destroy,
    .import = import,
    .map = map,
};
