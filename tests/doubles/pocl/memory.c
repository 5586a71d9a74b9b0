// Memory of the stand-in device: blocks of the host under addresses that the host cannot use, and
// a list to find them by. A host that follows a device's address faults at once.
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "pocl.h"

#define DEVICE_BASE (UINT64_C(1) << 56) // added to the pointer; no address of a process
#define RUBBISH     0xa5
#define ALIGN       256

typedef struct block {
    struct block *next;
    unsigned char *ptr;
    size_t bytes;
    int is_host; // pinned: its address is the pointer itself
} block;

static pthread_mutex_t blocks_lock = PTHREAD_MUTEX_INITIALIZER;
static block *blocks;
static size_t used;
static int64_t n_allocs;
static int64_t n_launches;

static size_t total(void) {
    return (size_t)double_settings_get()->memory << 20;
}

static int take(size_t bytes, int is_host, block **out) {
    const int64_t oom = double_settings_get()->oom;
    const size_t whole = bytes > SIZE_MAX - ALIGN ? SIZE_MAX : (bytes + ALIGN - 1) / ALIGN * ALIGN;
    int error = DOUBLE_OUT_OF_MEMORY;
    block *b = calloc(1, sizeof(*b));
    pthread_mutex_lock(&blocks_lock);
    n_allocs++;
    if (b != NULL && n_allocs != oom && whole <= (is_host ? total() : total() - used)) {
        b->ptr = aligned_alloc(ALIGN, whole);
    }
    if (b != NULL && b->ptr != NULL) {
        memset(b->ptr, RUBBISH, whole);
        b->bytes = bytes;
        b->is_host = is_host;
        b->next = blocks;
        blocks = b;
        used += is_host ? 0 : whole;
        error = DOUBLE_OK;
    }
    pthread_mutex_unlock(&blocks_lock);
    if (error != DOUBLE_OK) {
        free(b);
        return error;
    }
    *out = b;
    return DOUBLE_OK;
}

static int give(const unsigned char *ptr, int is_host) {
    block *found = NULL;
    pthread_mutex_lock(&blocks_lock);
    for (block **at = &blocks; *at != NULL; at = &(*at)->next) {
        if ((*at)->ptr == ptr && (*at)->is_host == is_host) {
            found = *at;
            *at = found->next;
            used -= is_host ? 0 : (found->bytes + ALIGN - 1) / ALIGN * ALIGN;
            break;
        }
    }
    pthread_mutex_unlock(&blocks_lock);
    if (found == NULL) {
        return DOUBLE_INVALID;
    }
    free(found->ptr);
    free(found);
    return DOUBLE_OK;
}

int double_alloc(uint64_t *out, size_t bytes) {
    block *b = NULL;
    if (bytes == 0) {
        return DOUBLE_INVALID;
    }
    const int error = take(bytes, 0, &b);
    *out = error == DOUBLE_OK ? (uint64_t)(uintptr_t)b->ptr + DEVICE_BASE : 0;
    return error;
}

int double_free(uint64_t address) {
    return give((const unsigned char *)(uintptr_t)(address - DEVICE_BASE), 0);
}

int double_host_alloc(void **out, size_t bytes) {
    block *b = NULL;
    const int error = take(bytes == 0 ? 1 : bytes, 1, &b);
    *out = error == DOUBLE_OK ? b->ptr : NULL;
    return error;
}

int double_host_free(void *ptr) {
    return give(ptr, 1);
}

int double_launch_has_memory(void) {
    pthread_mutex_lock(&blocks_lock);
    const int has = ++n_launches != double_settings_get()->launch_oom;
    pthread_mutex_unlock(&blocks_lock);
    return has;
}

void double_memory_info(size_t *out_free, size_t *out_total) {
    pthread_mutex_lock(&blocks_lock);
    *out_total = total();
    *out_free = total() - used;
    pthread_mutex_unlock(&blocks_lock);
}

void *double_memory_find(uint64_t address, size_t bytes) {
    void *found = NULL;
    pthread_mutex_lock(&blocks_lock);
    for (const block *b = blocks; b != NULL && found == NULL; b = b->next) {
        const uint64_t begin = (uint64_t)(uintptr_t)b->ptr + (b->is_host ? 0 : DEVICE_BASE);
        if (address >= begin && address - begin <= b->bytes &&
            bytes <= b->bytes - (address - begin)) {
            found = b->ptr + (address - begin);
        }
    }
    pthread_mutex_unlock(&blocks_lock);
    return found;
}
