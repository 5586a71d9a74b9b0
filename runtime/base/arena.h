// An arena: memory that is given back all at once. Blocks grow; reset keeps them for the next use.
// Single-threaded.
#ifndef PGD_BASE_ARENA_H
#define PGD_BASE_ARENA_H

#include <stddef.h>

#include "base/str.h"

typedef struct pgd_arena pgd_arena;

// block_bytes 0 = 64 KiB.
pgd_status pgd_arena_create(size_t block_bytes, pgd_arena **out) PGD_MUST_USE;
void pgd_arena_destroy(pgd_arena *arena); // NULL is fine
void pgd_arena_reset(pgd_arena *arena);
// Zeroed, 16-byte aligned; NULL when there is no memory or the product overflows.
void *pgd_arena_alloc(pgd_arena *arena, size_t n, size_t item_bytes);
// Copies; .ptr is NUL-terminated; {NULL, 0} when there is no memory.
pgd_str pgd_arena_copy(pgd_arena *arena, pgd_str s);

#endif
