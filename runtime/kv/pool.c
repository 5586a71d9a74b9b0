// The pool as one array of 64-byte blocks: free list and map are intrusive. See pool.h.
//
//   free list  circular over prev and next; block 0 is its fake head and tail
//   buckets[i] -> first block of a key -chain-> first block of another key -> ... -> 0
//                     | dup_next, dup_prev: ring of the blocks with the same key, in order
#include "kv/pool.h"

#include <string.h>

#include "base/fail.h"
#include "base/mem.h"

#define NO_GROUP (-1)

typedef struct block {
    int32_t prev;
    int32_t next;
    int32_t count; // holders
    int32_t group; // NO_GROUP = not in the map
    int32_t chain; // first of the next key in the bucket, 0 = end; only in the first of a key
    int32_t dup_prev;
    int32_t dup_next;
    int32_t first; // 1: registered first among the blocks of its key
    pgd_kv_hash hash;
} block;

struct pgd_kv_pool {
    block *blocks;    // [n_blocks]
    int32_t *buckets; // [mask + 1]
    int32_t *evicted; // [n_blocks]
    int32_t n_blocks;
    int32_t n_free;
    int32_t n_evicted;
    uint32_t mask;
};

#define CACHE_LINE 64

static uint32_t bucket_count(int32_t n_blocks) {
    uint32_t n = 16;
    while (n < (uint32_t)n_blocks) {
        n *= 2;
    }
    return n;
}

pgd_status pgd_kv_pool_create(int32_t n_blocks, pgd_kv_pool **out) {
    *out = NULL;
    if (n_blocks < 2) {
        return pgd_fail(PGD_OUT_OF_RANGE,
                        "num_blocks is %d; at least 2 are needed (block 0 is the null block)",
                        n_blocks);
    }
    pgd_kv_pool *pool = pgd_mem_alloc(1, sizeof(*pool));
    if (pool == NULL) {
        return PGD_MEM_FAIL("the block pool", sizeof(*pool));
    }
    size_t n = (size_t)n_blocks;
    pool->n_blocks = n_blocks;
    pool->mask = bucket_count(n_blocks) - 1;
    pool->blocks = pgd_mem_alloc_aligned(n * sizeof(*pool->blocks), CACHE_LINE);
    pool->buckets = pgd_mem_alloc((size_t)pool->mask + 1, sizeof(*pool->buckets));
    pool->evicted = pgd_mem_alloc(n, sizeof(*pool->evicted));
    if (pool->blocks == NULL || pool->buckets == NULL || pool->evicted == NULL) {
        pgd_kv_pool_destroy(pool);
        return PGD_MEM_FAIL("the block pool", n * sizeof(*pool->blocks));
    }
    for (int32_t i = 0; i < n_blocks; i++) {
        pool->blocks[i].prev = i > 0 ? i - 1 : n_blocks - 1;
        pool->blocks[i].next = i < n_blocks - 1 ? i + 1 : 0;
        pool->blocks[i].group = NO_GROUP;
    }
    pool->n_free = n_blocks - 1;
    *out = pool;
    return PGD_OK;
}

void pgd_kv_pool_destroy(pgd_kv_pool *pool) {
    if (pool == NULL) {
        return;
    }
    pgd_mem_free(pool->blocks);
    pgd_mem_free(pool->buckets);
    pgd_mem_free(pool->evicted);
    pgd_mem_free(pool);
}

int32_t pgd_kv_pool_free_count(const pgd_kv_pool *pool) {
    return pool->n_free;
}

int32_t pgd_kv_pool_usable(const pgd_kv_pool *pool) {
    return pool->n_blocks - 1;
}

int32_t pgd_kv_pool_ref_count(const pgd_kv_pool *pool, int32_t id) {
    return id > 0 && id < pool->n_blocks ? pool->blocks[id].count : 0;
}

int32_t pgd_kv_pool_is_cached(const pgd_kv_pool *pool, int32_t id) {
    return pool->blocks[id].group != NO_GROUP;
}

int32_t pgd_kv_pool_next_free(const pgd_kv_pool *pool, int32_t id) {
    return pool->blocks[id].next;
}

// ---- the free list -----------------------------------------------------------------------------

static void unlink_free(pgd_kv_pool *pool, int32_t id) {
    block *b = &pool->blocks[id];
    pool->blocks[b->prev].next = b->next;
    pool->blocks[b->next].prev = b->prev;
    pool->n_free--;
}

// Links id between prev and its follower.
static void link_free(pgd_kv_pool *pool, int32_t id, int32_t prev) {
    int32_t next = pool->blocks[prev].next;
    pool->blocks[id].prev = prev;
    pool->blocks[id].next = next;
    pool->blocks[prev].next = id;
    pool->blocks[next].prev = id;
    pool->n_free++;
}

void pgd_kv_pool_take(pgd_kv_pool *pool, int32_t n, int32_t *out) {
    for (int32_t i = 0; i < n; i++) {
        int32_t id = pool->blocks[0].next;
        unlink_free(pool, id);
        if (pool->blocks[id].group != NO_GROUP) {
            pgd_kv_pool_forget(pool, id);
            pool->evicted[pool->n_evicted++] = id;
        }
        pool->blocks[id].count = 1;
        out[i] = id;
    }
}

void pgd_kv_pool_touch(pgd_kv_pool *pool, int32_t id) {
    if (pool->blocks[id].count++ == 0) {
        unlink_free(pool, id);
    }
}

void pgd_kv_pool_give(pgd_kv_pool *pool, const int32_t *blocks, int32_t n) {
    for (int32_t i = 0; i < n; i++) {
        int32_t id = blocks[i];
        if (id != 0 && --pool->blocks[id].count == 0 && pool->blocks[id].group == NO_GROUP) {
            link_free(pool, id, 0);
        }
    }
    for (int32_t i = n - 1; i >= 0; i--) {
        const block *b = &pool->blocks[blocks[i]];
        if (blocks[i] != 0 && b->count == 0 && b->group != NO_GROUP) {
            link_free(pool, blocks[i], pool->blocks[0].prev);
        }
    }
}

// ---- the map -----------------------------------------------------------------------------------

static int32_t *bucket_of(const pgd_kv_pool *pool, const pgd_kv_hash *hash, int32_t group) {
    return &pool->buckets[((uint32_t)hash->words[0] + (uint32_t)group * 0x9E3779B9U) & pool->mask];
}

int32_t pgd_kv_pool_find(const pgd_kv_pool *pool, const pgd_kv_hash *hash, int32_t group) {
    int32_t id = *bucket_of(pool, hash, group);
    while (id != 0) {
        const block *b = &pool->blocks[id];
        if (b->group == group && memcmp(&b->hash, hash, sizeof(*hash)) == 0) {
            return id;
        }
        id = b->chain;
    }
    return 0;
}

void pgd_kv_pool_register(pgd_kv_pool *pool, int32_t id, const pgd_kv_hash *hash, int32_t group) {
    block *b = &pool->blocks[id];
    int32_t first = pgd_kv_pool_find(pool, hash, group);
    b->hash = *hash;
    b->group = group;
    b->first = first == 0;
    if (first == 0) {
        int32_t *bucket = bucket_of(pool, hash, group);
        b->dup_prev = id;
        b->dup_next = id;
        b->chain = *bucket;
        *bucket = id;
        return;
    }
    int32_t last = pool->blocks[first].dup_prev;
    b->dup_prev = last;
    b->dup_next = first;
    pool->blocks[last].dup_next = id;
    pool->blocks[first].dup_prev = id;
}

void pgd_kv_pool_forget(pgd_kv_pool *pool, int32_t id) {
    block *b = &pool->blocks[id];
    if (b->group == NO_GROUP) {
        return;
    }
    int32_t heir = b->dup_next;
    pool->blocks[b->dup_prev].dup_next = heir;
    pool->blocks[heir].dup_prev = b->dup_prev;
    if (b->first) {
        int32_t *link = bucket_of(pool, &b->hash, b->group);
        while (*link != id) {
            link = &pool->blocks[*link].chain;
        }
        *link = b->chain;
        if (heir != id) {
            pool->blocks[heir].first = 1;
            pool->blocks[heir].chain = b->chain;
            *link = heir;
        }
    }
    b->group = NO_GROUP;
}

int32_t pgd_kv_pool_reset(pgd_kv_pool *pool) {
    if (pool->n_free != pool->n_blocks - 1) {
        return 0;
    }
    for (int32_t i = 1; i < pool->n_blocks; i++) {
        pool->blocks[i].group = NO_GROUP;
    }
    memset(pool->buckets, 0, ((size_t)pool->mask + 1) * sizeof(*pool->buckets));
    return 1;
}

const int32_t *pgd_kv_pool_evicted(const pgd_kv_pool *pool, int32_t *out_n) {
    *out_n = pool->n_evicted;
    return pool->evicted;
}

void pgd_kv_pool_clear_evicted(pgd_kv_pool *pool) {
    pool->n_evicted = 0;
}
