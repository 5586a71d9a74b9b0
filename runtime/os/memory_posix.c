// Pages over mmap and madvise. See memory.h.
#define _GNU_SOURCE

#include "os/memory.h"

#include <stddef.h>
#include <sys/mman.h>
#include <unistd.h>

#define SMALLEST_PAGE 4096

uint64_t pgd_os_memory_page(void) {
    long bytes = sysconf(_SC_PAGESIZE);
    return bytes > 0 ? (uint64_t)bytes : SMALLEST_PAGE;
}

pgd_status pgd_os_memory_reserve(uint64_t bytes, void **out) {
    *out = NULL;
    if (bytes == 0) {
        return PGD_OK;
    }
    if (bytes > SIZE_MAX / 2) {
        return PGD_OUT_OF_MEMORY;
    }
    void *ptr = mmap(NULL, (size_t)bytes, PROT_READ | PROT_WRITE,
                     MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (ptr == MAP_FAILED) {
        return PGD_OUT_OF_MEMORY;
    }
    *out = ptr;
    return PGD_OK;
}

void pgd_os_memory_release(void *ptr, uint64_t bytes) {
    if (ptr != NULL) {
        (void)munmap(ptr, (size_t)bytes);
    }
}

void pgd_os_memory_drop(const void *ptr, uint64_t bytes) {
    uintptr_t page = (uintptr_t)pgd_os_memory_page();
    uintptr_t first = ((uintptr_t)ptr + page - 1) & ~(page - 1);
    uintptr_t end = ((uintptr_t)ptr + (uintptr_t)bytes) & ~(page - 1);
    if (ptr != NULL && end > first) {
        (void)madvise((void *)first, end - first, MADV_DONTNEED);
    }
}
