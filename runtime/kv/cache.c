// Block tables, groups and prefix hits. See cache.h.
#include "kv/cache.h"

#include "base/fail.h"
#include "base/mem.h"
#include "kv/hash.h"

typedef struct kv_group {
    int32_t window; // 0 = full
    int32_t serves; // blocks at the end of a hit that must be cached
    int32_t most;   // blocks a sequence can hold at once
} kv_group;

struct pgd_kv_cache {
    pgd_kv_pool *pool;
    pgd_kv_hasher *hasher; // NULL: no prefix caching
    int32_t num_blocks;
    int32_t block_size;
    int32_t n_groups;
    int32_t has_windows;
    kv_group groups[PGD_KV_MAX_GROUPS];
};

static int32_t blocks_of(const pgd_kv_cache *c, int64_t n_tokens) {
    return (int32_t)((n_tokens + c->block_size - 1) / c->block_size);
}

static int32_t *table_of(const pgd_seq *seq, int32_t group) {
    return seq->blocks + (size_t)group * (size_t)seq->cap_blocks;
}

// ---- life --------------------------------------------------------------------------------------

static pgd_status check_config(const pgd_kv_cache_config *k) {
    if (k->block_size < 1) {
        return pgd_fail(PGD_OUT_OF_RANGE, "block_size is %d; at least 1 is needed", k->block_size);
    }
    if (k->n_groups < 0 || k->n_groups > PGD_KV_MAX_GROUPS) {
        return pgd_fail(PGD_OUT_OF_RANGE, "kv_groups has %d groups; 1 to %d are allowed",
                        k->n_groups, PGD_KV_MAX_GROUPS);
    }
    for (int32_t g = 0; g < k->n_groups; g++) {
        if (k->windows[g] < 0) {
            return pgd_fail(PGD_OUT_OF_RANGE, "the window of group %d is %d; at least 1 is needed",
                            g, k->windows[g]);
        }
    }
    return PGD_OK;
}

static void set_groups(pgd_kv_cache *c, const pgd_kv_cache_config *k) {
    c->n_groups = k->n_groups > 0 ? k->n_groups : 1;
    for (int32_t g = 0; g < c->n_groups; g++) {
        kv_group *group = &c->groups[g];
        group->most = INT32_MAX;
        group->window = k->n_groups > 0 ? k->windows[g] : 0;
        if (group->window > 0) {
            int64_t span = (int64_t)group->window - 1 + k->max_num_batched_tokens;
            span = span < k->max_model_len ? span : k->max_model_len;
            group->most = blocks_of(c, span) + 1;
            group->serves = group->window > 1 ? blocks_of(c, group->window - 1) : 1;
            c->has_windows = 1;
        }
    }
}

pgd_status pgd_kv_cache_create(const pgd_kv_cache_config *config, pgd_kv_cache **out) {
    *out = NULL;
    PGD_TRY(check_config(config));
    pgd_kv_cache *c = pgd_mem_alloc(1, sizeof(*c));
    if (c == NULL) {
        return PGD_MEM_FAIL("the KV cache", sizeof(*c));
    }
    c->num_blocks = config->num_blocks;
    c->block_size = config->block_size;
    set_groups(c, config);
    pgd_status status = pgd_kv_pool_create(config->num_blocks, &c->pool);
    if (status == PGD_OK && !config->no_prefix_caching) {
        status = pgd_kv_hasher_create(config->block_size, &c->hasher);
    }
    if (status != PGD_OK) {
        pgd_kv_cache_destroy(c);
        return status;
    }
    *out = c;
    return PGD_OK;
}

void pgd_kv_cache_destroy(pgd_kv_cache *c) {
    if (c == NULL) {
        return;
    }
    pgd_kv_hasher_destroy(c->hasher);
    pgd_kv_pool_destroy(c->pool);
    pgd_mem_free(c);
}

pgd_kv_pool *pgd_kv_cache_pool(pgd_kv_cache *c) {
    return c->pool;
}

int32_t pgd_kv_cache_block_size(const pgd_kv_cache *c) {
    return c->block_size;
}

int32_t pgd_kv_cache_num_blocks(const pgd_kv_cache *c) {
    return c->num_blocks;
}

int32_t pgd_kv_cache_n_groups(const pgd_kv_cache *c) {
    return c->n_groups;
}

int32_t pgd_kv_cache_shares(const pgd_kv_cache *c) {
    return c->hasher != NULL;
}

int64_t pgd_kv_cache_needed(const pgd_kv_cache *c, int32_t n_tokens) {
    int64_t needed = 0;
    for (int32_t g = 0; g < c->n_groups; g++) {
        int32_t n = blocks_of(c, n_tokens);
        needed += n < c->groups[g].most ? n : c->groups[g].most;
    }
    return needed;
}

int64_t pgd_kv_cache_would_need(const pgd_kv_cache_config *config, int32_t n_tokens) {
    pgd_kv_cache c = {.block_size = config->block_size};
    if (check_config(config) != PGD_OK) {
        return 0;
    }
    set_groups(&c, config);
    return pgd_kv_cache_needed(&c, n_tokens);
}

// ---- hits --------------------------------------------------------------------------------------

// Block i of seq in a group, 0 = not cached.
static int32_t find(pgd_kv_cache *c, pgd_seq *seq, int32_t group, int32_t i) {
    if (!pgd_kv_hasher_extend(c->hasher, seq, i + 1)) {
        return 0;
    }
    return pgd_kv_pool_find(c->pool, &seq->hashes[i], group);
}

// Blocks from the first on that a full group has, at most n.
static int32_t match_full(pgd_kv_cache *c, pgd_seq *seq, int32_t group, int32_t n) {
    for (int32_t i = 0; i < n; i++) {
        int32_t block = find(c, seq, group, i);
        if (block == 0) {
            return i;
        }
        table_of(seq, group)[i] = block;
    }
    return n;
}

// The longest hit of a window group, at most n: searched from the right for enough cached blocks in
// a row; a run that reaches the first block is enough at any length.
static int32_t match_window(pgd_kv_cache *c, pgd_seq *seq, int32_t group, int32_t n) {
    int32_t end = n;
    for (int32_t i = n - 1; i >= 0 && end - i <= c->groups[group].serves; i--) {
        if (find(c, seq, group, i) == 0) {
            end = i;
        }
    }
    return end;
}

static void fill_window(pgd_kv_cache *c, pgd_seq *seq, int32_t group, int32_t n) {
    int32_t first = n - c->groups[group].serves;
    for (int32_t i = 0; i < n; i++) {
        table_of(seq, group)[i] = i < first ? 0 : find(c, seq, group, i);
    }
}

// Shortens n until every window group agrees: what one shortens another may not serve any more.
static int32_t match_windows(pgd_kv_cache *c, pgd_seq *seq, int32_t n) {
    int32_t before = 0;
    do {
        before = n;
        for (int32_t g = 0; g < c->n_groups; g++) {
            n = c->groups[g].window > 0 ? match_window(c, seq, g, n) : n;
        }
    } while (n != before);
    for (int32_t g = 0; g < c->n_groups; g++) {
        if (c->groups[g].window > 0) {
            fill_window(c, seq, g, n);
        }
    }
    return n;
}

int32_t pgd_kv_cache_match(pgd_kv_cache *c, pgd_seq *seq) {
    int32_t n = (seq->n_tokens - 1) / c->block_size;
    if (c->hasher == NULL || seq->hashes == NULL || seq->skip_cache) {
        return 0;
    }
    for (int32_t g = 0; g < c->n_groups; g++) {
        if (c->groups[g].window == 0) {
            n = match_full(c, seq, g, n);
        }
    }
    if (c->has_windows) {
        n = match_windows(c, seq, n);
    }
    return n * c->block_size;
}

// ---- taking ------------------------------------------------------------------------------------

// Blocks to be taken out of the free list for n_tokens of a sequence with n_hit blocks hit.
static int64_t wanted(const pgd_kv_cache *c, const pgd_seq *seq, int32_t n_tokens, int32_t n_hit,
                      int32_t capped) {
    int64_t n = 0;
    for (int32_t g = 0; g < c->n_groups; g++) {
        int32_t total = blocks_of(c, n_tokens);
        if (capped && total > c->groups[g].most) {
            total = c->groups[g].most;
        }
        n += total > n_hit ? total - n_hit : 0;
        for (int32_t i = 0; i < n_hit; i++) {
            int32_t block = table_of(seq, g)[i];
            n += block != 0 && pgd_kv_pool_ref_count(c->pool, block) == 0;
        }
    }
    return n;
}

// The content of the full blocks among the first n_tokens can be found from now on, as far as the
// host knows it.
static void register_full(pgd_kv_cache *c, pgd_seq *seq, int32_t n_tokens) {
    int32_t n = (n_tokens < seq->n_tokens ? n_tokens : seq->n_tokens) / c->block_size;
    if (c->hasher == NULL || n <= seq->n_registered || !pgd_kv_hasher_extend(c->hasher, seq, n)) {
        return;
    }
    for (int32_t i = seq->n_registered; i < n; i++) {
        for (int32_t g = 0; g < c->n_groups; g++) {
            int32_t block = table_of(seq, g)[i];
            if (block != 0) {
                pgd_kv_pool_register(c->pool, block, &seq->hashes[i], g);
            }
        }
    }
    seq->n_registered = n;
}

// Takes the blocks that are missing for n_tokens; the caller has seen that they are free.
static void take(pgd_kv_cache *c, pgd_seq *seq, int32_t n_tokens) {
    int32_t n = blocks_of(c, n_tokens);
    if (n > seq->n_blocks) {
        for (int32_t g = 0; g < c->n_groups; g++) {
            pgd_kv_pool_take(c->pool, n - seq->n_blocks, table_of(seq, g) + seq->n_blocks);
        }
        seq->n_blocks = n;
    }
    register_full(c, seq, n_tokens);
}

int32_t pgd_kv_cache_admit(pgd_kv_cache *c, pgd_seq *seq, const pgd_kv_admission *a) {
    int32_t n_hit = a->n_hit / c->block_size;
    int32_t n_tokens = a->n_hit + a->n_new;
    int64_t room = pgd_kv_pool_free_count(c->pool) - a->headroom;
    if (blocks_of(c, n_tokens) > seq->cap_blocks || wanted(c, seq, n_tokens, n_hit, 0) > room ||
        (a->n_reserve > 0 && wanted(c, seq, a->n_reserve, n_hit, 1) > room)) {
        return 0;
    }
    for (int32_t g = 0; g < c->n_groups; g++) {
        for (int32_t i = 0; i < n_hit; i++) {
            int32_t block = table_of(seq, g)[i];
            if (block != 0) {
                pgd_kv_pool_touch(c->pool, block);
            }
        }
    }
    seq->n_blocks = n_hit;
    seq->n_registered = n_hit;
    take(c, seq, n_tokens);
    return 1;
}

// Gives back the blocks all of whose tokens are older than the window of the next token.
static void leave_windows(pgd_kv_cache *c, pgd_seq *seq) {
    for (int32_t g = 0; g < c->n_groups; g++) {
        if (c->groups[g].window == 0 || seq->computed < c->groups[g].window) {
            continue;
        }
        int32_t *table = table_of(seq, g);
        int32_t end = (seq->computed - c->groups[g].window + 1) / c->block_size;
        int32_t first = end;
        while (first > 0 && table[first - 1] != 0) {
            first--;
        }
        pgd_kv_pool_give(c->pool, table + first, end - first);
        for (int32_t i = first; i < end; i++) {
            table[i] = 0;
        }
    }
}

int32_t pgd_kv_cache_grow(pgd_kv_cache *c, pgd_seq *seq, int32_t n_new) {
    if (c->has_windows) {
        leave_windows(c, seq);
    }
    int32_t n_tokens = seq->computed + n_new;
    int32_t n = blocks_of(c, n_tokens);
    int64_t missing = n > seq->n_blocks ? (int64_t)(n - seq->n_blocks) * c->n_groups : 0;
    if (n > seq->cap_blocks || missing > pgd_kv_pool_free_count(c->pool)) {
        return 0;
    }
    take(c, seq, n_tokens);
    return 1;
}

void pgd_kv_cache_learn(pgd_kv_cache *c, pgd_seq *seq) {
    if (seq->n_blocks > 0) {
        register_full(c, seq, seq->computed);
    }
}

// ---- giving ------------------------------------------------------------------------------------

void pgd_kv_cache_give(pgd_kv_cache *c, pgd_seq *seq) {
    for (int32_t g = 0; g < c->n_groups; g++) {
        pgd_kv_pool_give(c->pool, table_of(seq, g), seq->n_blocks);
    }
    seq->n_blocks = 0;
    seq->n_blocks_sent = 0;
    seq->n_registered = 0;
}

void pgd_kv_cache_forget(pgd_kv_cache *c, pgd_seq *seq, int32_t start) {
    int32_t first = start / c->block_size;
    for (int32_t i = first; i < seq->n_registered; i++) {
        for (int32_t g = 0; g < c->n_groups; g++) {
            int32_t block = table_of(seq, g)[i];
            if (block != 0) {
                pgd_kv_pool_forget(c->pool, block);
            }
        }
    }
    seq->n_registered = seq->n_registered < first ? seq->n_registered : first;
}

int32_t pgd_kv_cache_reset(pgd_kv_cache *c) {
    return pgd_kv_pool_reset(c->pool);
}
