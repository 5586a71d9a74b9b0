// An arena is a chain of blocks, filled in order:
//
//   [block: used part | free part] -> [block] -> ... -> NULL
//                      ^ current
//
// reset goes back to the first block. Blocks come zeroed; `touched` is how far a block was ever
// used, so only that part has to be cleared when memory is given out again.
#include "base/arena.h"

#include <string.h>

#include "base/fail.h"
#include "base/mem.h"

enum { ALIGN = 16, DEFAULT_BYTES = 64 << 10, MOST_BYTES = 16 << 20 };

typedef struct block {
    struct block *next;
    char *mem;
    size_t bytes;
    size_t used;
    size_t touched;
} block;

struct pgd_arena {
    block *first; // NULL until the first allocation
    block *current;
    size_t next_bytes; // size of the next block
};

pgd_status pgd_arena_create(size_t block_bytes, pgd_arena **out) {
    pgd_arena *a = pgd_mem_alloc(1, sizeof(*a));
    *out = a;
    if (a == NULL) {
        return PGD_MEM_FAIL("an arena", sizeof(*a));
    }
    a->next_bytes = block_bytes > 0 ? block_bytes : DEFAULT_BYTES;
    return PGD_OK;
}

void pgd_arena_destroy(pgd_arena *arena) {
    if (arena == NULL) {
        return;
    }
    block *b = arena->first;
    while (b != NULL) {
        block *next = b->next;
        pgd_mem_free(b->mem);
        pgd_mem_free(b);
        b = next;
    }
    pgd_mem_free(arena);
}

void pgd_arena_reset(pgd_arena *arena) {
    for (block *b = arena->first; b != NULL; b = b->next) {
        b->used = 0;
    }
    arena->current = arena->first;
}

// A block of at least bytes behind the current one.
static block *add_block(pgd_arena *a, size_t bytes) {
    size_t size = bytes > a->next_bytes ? bytes : a->next_bytes;
    block *b = pgd_mem_alloc(1, sizeof(*b));
    if (b == NULL) {
        return NULL;
    }
    b->mem = pgd_mem_alloc(size, 1);
    if (b->mem == NULL) {
        pgd_mem_free(b);
        return NULL;
    }
    b->bytes = size;
    if (a->current == NULL) {
        a->first = b;
    } else {
        b->next = a->current->next;
        a->current->next = b;
    }
    a->current = b;
    if (a->next_bytes < MOST_BYTES) {
        a->next_bytes *= 2;
    }
    return b;
}

// Where the next allocation begins in a block, if it fits.
static int32_t fits(const block *b, size_t bytes, size_t align, size_t *out_at) {
    size_t at = (b->used + align - 1) & ~(align - 1);
    *out_at = at;
    return at <= b->bytes && bytes <= b->bytes - at;
}

static void *take(pgd_arena *a, size_t bytes, size_t align) {
    size_t at = 0;
    block *b = a->current;
    while (b != NULL && !fits(b, bytes, align, &at)) {
        b = b->next;
    }
    if (b != NULL) {
        a->current = b;
    } else {
        b = add_block(a, bytes);
        at = 0;
    }
    if (b == NULL) {
        return NULL;
    }
    if (at < b->touched) {
        size_t old = b->touched - at;
        memset(b->mem + at, 0, old < bytes ? old : bytes);
    }
    b->used = at + bytes;
    b->touched = b->used > b->touched ? b->used : b->touched;
    return b->mem + at;
}

void *pgd_arena_alloc(pgd_arena *arena, size_t n, size_t item_bytes) {
    uint64_t bytes = 0;
    if (!pgd_size_mul(n, item_bytes, &bytes) || bytes > PTRDIFF_MAX) {
        return NULL;
    }
    return take(arena, bytes > 0 ? (size_t)bytes : 1, ALIGN);
}

pgd_str pgd_arena_copy(pgd_arena *arena, pgd_str s) {
    char *to = s.len < PTRDIFF_MAX ? take(arena, s.len + 1, 1) : NULL;
    if (to == NULL) {
        return (pgd_str){NULL, 0};
    }
    if (s.len > 0) {
        memcpy(to, s.ptr, s.len);
    }
    to[s.len] = '\0';
    return (pgd_str){to, s.len};
}
