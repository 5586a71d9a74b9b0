// What bpe.c (the model) and bpe_encode.c (words through it) share.
#ifndef PGD_TEXT_BPE_INNER_H
#define PGD_TEXT_BPE_INNER_H

#include <stdatomic.h>

#include "text/parts.h"

enum {
    DIRECT_CHARS = 0x3000, // code points with a direct table of ids
    NOT_WHOLE = 1,
    WHOLE = 2,
};

typedef struct {
    uint32_t left, right; // left UINT32_MAX = free
    uint32_t rank;
    int32_t id;
} merge_entry;

struct pgd_text_bpe {
    const pgd_map *vocab;
    merge_entry *merges;
    uint32_t mask;         // slots - 1
    uint64_t *joins;       // [join_bits / 64] pairs of characters that some merge joins
    uint64_t join_bits;    // a power of two
    int32_t *direct;       // [DIRECT_CHARS] id or -1; not used with prefix or suffix
    atomic_uchar *whole;   // [n_ids]
    int32_t byte_ids[256]; // "<0xHH>", -1 = none
    char *prefix, *suffix; // NULL = none
    size_t prefix_len, suffix_len;
    int32_t unk; // -1 = none
    int32_t fuse_unk, byte_fallback, ignore_merges;
};

// The first cell to look at for a merge.
static inline uint32_t pgd_text_bpe_slot(const pgd_text_bpe *b, uint32_t left, uint32_t right) {
    uint64_t h = (((uint64_t)left << 32) | right) * 0x9E3779B97F4A7C15u;
    return (uint32_t)(h >> 32) & b->mask;
}

// The bit of a pair of characters.
static inline uint64_t pgd_text_bpe_join(const pgd_text_bpe *b, uint32_t last, uint32_t first) {
    uint64_t h = (((uint64_t)last << 21) ^ first) * 0x9E3779B97F4A7C15u;
    return (h >> 32) & (b->join_bits - 1);
}

static inline int32_t pgd_text_bpe_lookup(const pgd_map *vocab, pgd_str s) {
    uint64_t id = 0;
    return pgd_map_get(vocab, s, &id) ? (int32_t)id : -1;
}

#endif
