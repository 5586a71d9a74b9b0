// Memory of the null device: pages that take room only once they are written, so a device of any
// size can be stood in for.
#include "null.h"

#include <sys/mman.h>

#define PAGE_BYTES UINT64_C(4096)

static pgd_status memory_create(const pgd_device *d, const pgd_buffer_desc *desc,
                                pgd_buffer **out) {
    null_backend *self = null_of(d);
    *out = NULL;
    if (desc->bytes > self->bytes - self->used) {
        return NULL_FAIL(d, PGD_OUT_OF_MEMORY,
                         "the null device has %llu of %llu bytes free, asked for %llu",
                         (unsigned long long)(self->bytes - self->used),
                         (unsigned long long)self->bytes, (unsigned long long)desc->bytes);
    }
    pgd_buffer *b = d->host->alloc(d->host, sizeof(*b), 0);
    if (b == NULL) {
        return NULL_FAIL(d, PGD_OUT_OF_MEMORY, "no memory for a buffer");
    }
    b->bytes = desc->bytes;
    b->mapped = (desc->bytes / PAGE_BYTES + 1) * PAGE_BYTES;
    b->mem = mmap(NULL, (size_t)b->mapped, PROT_READ | PROT_WRITE,
                  MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (b->mem == MAP_FAILED) {
        d->host->free(d->host, b);
        return NULL_FAIL(d, PGD_OUT_OF_MEMORY, "no address space for %llu bytes",
                         (unsigned long long)desc->bytes);
    }
    self->used += b->bytes;
    *out = b;
    return PGD_OK;
}

static void memory_destroy(const pgd_device *d, pgd_buffer *b) {
    if (b != NULL) {
        null_of(d)->used -= b->bytes;
        munmap(b->mem, (size_t)b->mapped);
        d->host->free(d->host, b);
    }
}

static pgd_status memory_map(const pgd_device *d, pgd_buffer *b, void **out_ptr) {
    (void)d;
    *out_ptr = b->mem;
    return PGD_OK;
}

const pgd_memory_table *null_memory(void) {
    static const pgd_memory_table table = {
        .size = sizeof(table),
        .create = memory_create,
        .destroy = memory_destroy,
        .map = memory_map,
    };
    return &table;
}
