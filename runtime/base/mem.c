// Memory over the C library. Blocks have no header, so that ASan and valgrind see their true
// bounds; counters are the only bookkeeping. Large aligned blocks are pages of their own,
// which the system clears when they are touched (a KV cache is mostly never touched); they start on
// a page, and a list knows them:
//
//   | page: {bytes, next} | block ... |
#include "base/mem.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "base/fail.h"
#include "os/memory.h"
#include "os/thread.h"

// malloc gives 16-byte alignment on 64-bit systems.
_Static_assert(sizeof(void *) == 8, "pagoda needs a 64-bit system");

static _Atomic uint64_t n_live;
static _Atomic uint64_t n_all;
static _Atomic uint64_t fail_in; // allocations until the failing one, 0 = off
static _Thread_local uint64_t n_thread;

// 1 when a test wants this allocation to fail.
static int32_t must_fail(void) {
    uint64_t left = atomic_load_explicit(&fail_in, memory_order_relaxed);
    while (left > 0) {
        if (atomic_compare_exchange_weak(&fail_in, &left, left - 1)) {
            return left == 1;
        }
    }
    return 0;
}

enum { PAGE_BYTES = 4096, LARGE_BYTES = 1 << 20 };

typedef struct large_block {
    uint64_t bytes; // with the page in front
    struct large_block *next;
} large_block;

static pgd_os_mutex large_mutex = PTHREAD_MUTEX_INITIALIZER; // guards large_list
static large_block *large_list;

static void *large_alloc(uint64_t bytes) {
    void *pages = NULL;
    if (pgd_os_memory_reserve(bytes + PAGE_BYTES, &pages) != PGD_OK) {
        return NULL;
    }
    large_block *block = pages;
    block->bytes = bytes + PAGE_BYTES;
    pthread_mutex_lock(&large_mutex);
    block->next = large_list;
    large_list = block;
    pthread_mutex_unlock(&large_mutex);
    return (unsigned char *)pages + PAGE_BYTES;
}

// 1 when ptr was a large block and is gone.
static int32_t large_free(void *ptr) {
    if (((uintptr_t)ptr & (PAGE_BYTES - 1)) != 0) {
        return 0;
    }
    large_block *found = NULL;
    pthread_mutex_lock(&large_mutex);
    for (large_block **at = &large_list; *at != NULL; at = &(*at)->next) {
        if ((unsigned char *)*at + PAGE_BYTES == ptr) {
            found = *at;
            *at = found->next;
            break;
        }
    }
    pthread_mutex_unlock(&large_mutex);
    if (found != NULL) {
        pgd_os_memory_release(found, found->bytes);
    }
    return found != NULL;
}

static void *count_block(void *ptr) {
    if (ptr != NULL) {
        atomic_fetch_add_explicit(&n_live, 1, memory_order_relaxed);
        atomic_fetch_add_explicit(&n_all, 1, memory_order_relaxed);
        n_thread++;
    }
    return ptr;
}

void *pgd_mem_alloc(size_t n, size_t item_bytes) {
    uint64_t bytes = 0;
    if (must_fail() || !pgd_size_mul(n, item_bytes, &bytes) || bytes > PTRDIFF_MAX) {
        return NULL;
    }
    return count_block(calloc(bytes > 0 ? (size_t)bytes : 1, 1));
}

void *pgd_mem_alloc_aligned(size_t bytes, size_t align) {
    const size_t least = 16;
    const size_t most = 4096;
    if (must_fail() || align > most || (align & (align - 1)) != 0) {
        return NULL;
    }
    align = align < least ? least : align;
    if (bytes > PTRDIFF_MAX - most) {
        return NULL;
    }
    if (bytes >= LARGE_BYTES) {
        return count_block(large_alloc(bytes));
    }
    size_t whole = bytes == 0 ? align : (bytes + align - 1) & ~(align - 1);
    void *ptr = aligned_alloc(align, whole);
    if (ptr != NULL) {
        memset(ptr, 0, whole);
    }
    return count_block(ptr);
}

void *pgd_mem_realloc(void *ptr, size_t n, size_t item_bytes) {
    uint64_t bytes = 0;
    if (ptr == NULL) {
        return pgd_mem_alloc(n, item_bytes);
    }
    if (must_fail() || !pgd_size_mul(n, item_bytes, &bytes) || bytes > PTRDIFF_MAX) {
        return NULL;
    }
    void *grown = realloc(ptr, bytes > 0 ? (size_t)bytes : 1);
    if (grown != NULL) {
        atomic_fetch_add_explicit(&n_all, 1, memory_order_relaxed);
        n_thread++;
    }
    return grown;
}

void pgd_mem_free(void *ptr) {
    if (ptr != NULL) {
        atomic_fetch_sub_explicit(&n_live, 1, memory_order_relaxed);
        if (!large_free(ptr)) {
            free(ptr);
        }
    }
}

pgd_status pgd_mem_copy_text(const char *text, char **out) {
    size_t n = strlen(text) + 1;
    *out = pgd_mem_alloc(n, 1);
    if (*out == NULL) {
        return PGD_MEM_FAIL("a text", n);
    }
    memcpy(*out, text, n);
    return PGD_OK;
}

int32_t pgd_size_add(uint64_t a, uint64_t b, uint64_t *out) {
    if (a > UINT64_MAX - b) {
        return 0;
    }
    *out = a + b;
    return 1;
}

int32_t pgd_size_mul(uint64_t a, uint64_t b, uint64_t *out) {
    if (b != 0 && a > UINT64_MAX / b) {
        return 0;
    }
    *out = a * b;
    return 1;
}

void pgd_mem_fail_nth(uint64_t n) {
    atomic_store(&fail_in, n);
}

int32_t pgd_mem_is_armed(void) {
    return atomic_load_explicit(&fail_in, memory_order_relaxed) > 0;
}

uint64_t pgd_mem_live(void) {
    return atomic_load_explicit(&n_live, memory_order_relaxed);
}

uint64_t pgd_mem_count(void) {
    return atomic_load_explicit(&n_all, memory_order_relaxed);
}

uint64_t pgd_mem_thread_count(void) {
    return n_thread;
}
