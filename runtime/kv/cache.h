// The cache of running sequences: block tables over one pool, groups of layers, prefix hits.
//
//   group 0 (full)       | 1 | 2 | 3 | 9 |      a table per group, all of the same length
//   group 1 (window)     | 0 | 0 | 7 | 8 |      0: left the window, given back
//
// Tables are append-only. A full block enters the map when its tokens are allocated, before they
// are computed, so that requests of one step share. A hit is the longest prefix that every group
// can serve: a full group needs all its blocks, a window group the last ceil((window - 1) / block).
// A refusal changes nothing. Pure: no clock, no device, no thread; allocates only in create.
// Source: vLLM's KV cache manager and hybrid KV cache documents.
#ifndef PGD_KV_CACHE_H
#define PGD_KV_CACHE_H

#include "kv/pool.h"

#define PGD_KV_MAX_GROUPS 8

typedef struct pgd_kv_cache pgd_kv_cache;

typedef struct pgd_kv_cache_config {
    int32_t num_blocks;                 // block 0 counts
    int32_t block_size;                 // tokens
    int32_t n_groups;                   // 0 = one full group
    int32_t windows[PGD_KV_MAX_GROUPS]; // of each group, 0 = full
    int32_t no_prefix_caching;
    int32_t max_num_batched_tokens; // bound what a window group can hold
    int32_t max_model_len;
} pgd_kv_cache_config;

//   fails  OUT_OF_RANGE naming the key, the value and what is allowed; OUT_OF_MEMORY; UNAVAILABLE
pgd_status pgd_kv_cache_create(const pgd_kv_cache_config *config, pgd_kv_cache **out) PGD_MUST_USE;
void pgd_kv_cache_destroy(pgd_kv_cache *c); // NULL is fine

pgd_kv_pool *pgd_kv_cache_pool(pgd_kv_cache *c); // borrow
int32_t pgd_kv_cache_block_size(const pgd_kv_cache *c);
int32_t pgd_kv_cache_num_blocks(const pgd_kv_cache *c);
int32_t pgd_kv_cache_n_groups(const pgd_kv_cache *c);
// 1 = content is kept and found again.
int32_t pgd_kv_cache_shares(const pgd_kv_cache *c);

// Most blocks n_tokens can come to hold at once, over all groups.
int64_t pgd_kv_cache_needed(const pgd_kv_cache *c, int32_t n_tokens);

// [any] The same of a cache that is not made yet; 0 if the config would be refused.
int64_t pgd_kv_cache_would_need(const pgd_kv_cache_config *config, int32_t n_tokens);

// Looks up the known tokens of a sequence without blocks; at least one token is left to compute.
// Returns the tokens hit (whole blocks) and writes their blocks into the table, untouched: nothing
// is held until pgd_kv_cache_admit.
int32_t pgd_kv_cache_match(pgd_kv_cache *c, pgd_seq *seq);

typedef struct pgd_kv_admission {
    int32_t n_hit;     // tokens, from pgd_kv_cache_match
    int32_t n_new;     // tokens of this step
    int32_t n_reserve; // all these known tokens must fit, 0 = only this step's
    int64_t headroom;  // blocks that must stay free
} pgd_kv_admission;

// Holds the hit blocks and takes blocks for the step's tokens. 1 = done, 0 = refused.
int32_t pgd_kv_cache_admit(pgd_kv_cache *c, pgd_seq *seq, const pgd_kv_admission *a);
// Gives back what left the windows, then takes blocks for n_new tokens behind seq->computed.
// 1 = done, 0 = refused (what left the windows is given back all the same).
int32_t pgd_kv_cache_grow(pgd_kv_cache *c, pgd_seq *seq, int32_t n_new);
// Its latest token has been seen: full blocks that are computed can be found from now on. (A token
// that only the device knows names no block.)
void pgd_kv_cache_learn(pgd_kv_cache *c, pgd_seq *seq);
// Gives back all blocks, one group after the other.
void pgd_kv_cache_give(pgd_kv_cache *c, pgd_seq *seq);
// The tokens from `start` on were planned but are not computed: their blocks are not to be found.
void pgd_kv_cache_forget(pgd_kv_cache *c, pgd_seq *seq, int32_t start);
// Forgets all content. 1 = done, 0 = a block is held, nothing changed.
int32_t pgd_kv_cache_reset(pgd_kv_cache *c);

#endif
