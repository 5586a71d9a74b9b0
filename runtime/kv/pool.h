// The block pool: who holds which block of the paged cache, and what free blocks still remember.
//
//   ids      0        1 2 3 ... n-1
//            |null|   free list, or held by ref_count holders
//
//   free list  head -> [no content] [no content] ... [content, oldest] ... [content, latest] <-
// tail
//              used next
//
//   map        (hash, group) -> blocks with that content, the one registered first is found
//
// Block 0 is the null block: never taken, never freed; padding rows are dumped there, and it stands
// in tables for blocks that left a window. A free block keeps its content until it is taken again
// (then it is evicted), so the free list is the LRU list of the prefix cache. Taking, touching and
// giving are O(1) a block. Source: PagedAttention (SOSP 2023), section 4; vLLM's prefix caching
// design. Pure: no clock, no device, no thread; allocates only in create.
#ifndef PGD_KV_POOL_H
#define PGD_KV_POOL_H

#include "kv/step.h"

typedef struct pgd_kv_pool pgd_kv_pool;

//   fails  OUT_OF_RANGE if n_blocks < 2
pgd_status pgd_kv_pool_create(int32_t n_blocks, pgd_kv_pool **out) PGD_MUST_USE;
void pgd_kv_pool_destroy(pgd_kv_pool *pool); // NULL is fine

int32_t pgd_kv_pool_free_count(const pgd_kv_pool *pool);
int32_t pgd_kv_pool_usable(const pgd_kv_pool *pool); // n_blocks - 1
int32_t pgd_kv_pool_ref_count(const pgd_kv_pool *pool, int32_t block);
// 1 = the block's content can be found.
int32_t pgd_kv_pool_is_cached(const pgd_kv_pool *pool, int32_t block);
// The block behind `block` in the free list, 0 = it was the last; of block 0: the head.
int32_t pgd_kv_pool_next_free(const pgd_kv_pool *pool, int32_t block);

// Takes n blocks from the head; the caller has seen that so many are free.
void pgd_kv_pool_take(pgd_kv_pool *pool, int32_t n, int32_t *out);
// One more holder of a block that was found.
void pgd_kv_pool_touch(pgd_kv_pool *pool, int32_t block);
// One holder less for each entry of a table's part, in table order, zeros skipped. Blocks that
// nobody holds then: without content to the head of the free list as a run, last entry first; with
// content to the tail, last entry first.
void pgd_kv_pool_give(pgd_kv_pool *pool, const int32_t *blocks, int32_t n);

// The content of a held block can be found from now on.
void pgd_kv_pool_register(pgd_kv_pool *pool, int32_t block, const pgd_kv_hash *hash, int32_t group);
// A block with that content, 0 = none.
int32_t pgd_kv_pool_find(const pgd_kv_pool *pool, const pgd_kv_hash *hash, int32_t group);
// The content is not to be found any more; nothing if it was not.
void pgd_kv_pool_forget(pgd_kv_pool *pool, int32_t block);
// Forgets all content. 1 = done, 0 = a block is held, nothing changed.
int32_t pgd_kv_pool_reset(pgd_kv_pool *pool);

// Blocks evicted since the last clear, in order; at most one mention a block and step.
const int32_t *pgd_kv_pool_evicted(const pgd_kv_pool *pool, int32_t *out_n);
void pgd_kv_pool_clear_evicted(pgd_kv_pool *pool);

#endif
