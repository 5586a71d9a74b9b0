// Words to ids: symbols of a word's characters, merged pair by pair. See bpe.c.
#include <string.h>

#include "text/bpe_inner.h"

enum {
    SHORT_WORD = 32,  // symbols
    CUT_FROM = 24,    // bytes: shorter words are not cut
    N_SEEN = 4096,    // a power of two
    MOST_SEEN = 64,   // bytes: longer words are not remembered
    LONG_TEXT = 4096, // bytes: shorter texts remember nothing
};

typedef struct {
    int32_t id; // -1 = merged away
    int32_t prev, next;
} symbol;

typedef struct {
    uint32_t rank;
    int32_t at;
    int32_t id;
} candidate;

// A word and where its ids are in the output.
typedef struct {
    const char *word;
    uint32_t len;
    int32_t is_part;
    size_t at;
    uint32_t n;
    uint32_t reserved0;
} seen_word;

struct pgd_text_bpe_work {
    seen_word *seen; // [N_SEEN], NULL for short texts
    symbol *symbols;
    size_t n;
    size_t cap;
    candidate *heap;
    size_t n_heap;
    size_t cap_heap;
    pgd_text tmp;
};

static const merge_entry *merge_of(const pgd_text_bpe *b, int32_t left, int32_t right) {
    uint32_t l = (uint32_t)left;
    uint32_t r = (uint32_t)right;
    for (uint32_t i = pgd_text_bpe_slot(b, l, r);; i = (i + 1) & b->mask) {
        const merge_entry *m = &b->merges[i];
        if (m->left == UINT32_MAX) {
            return NULL;
        }
        if (m->left == l && m->right == r) {
            return m;
        }
    }
}

static int32_t may_join(const pgd_text_bpe *b, uint32_t last, uint32_t first) {
    uint64_t bit = pgd_text_bpe_join(b, last, first);
    return (int32_t)(b->joins[bit / 64] >> (bit % 64) & 1);
}

pgd_status pgd_text_bpe_work_create(size_t n_bytes, pgd_text_bpe_work **out) {
    *out = NULL;
    pgd_text_bpe_work *w = pgd_mem_alloc(1, sizeof(*w));
    if (w == NULL) {
        return PGD_MEM_FAIL("encoding", sizeof(*w));
    }
    if (n_bytes >= LONG_TEXT) {
        w->seen = pgd_mem_alloc(N_SEEN, sizeof(*w->seen));
        if (w->seen == NULL) {
            pgd_mem_free(w);
            return PGD_MEM_FAIL("encoding", N_SEEN * sizeof(*w->seen));
        }
    }
    *out = w;
    return PGD_OK;
}

void pgd_text_bpe_work_destroy(pgd_text_bpe_work *work) {
    if (work == NULL) {
        return;
    }
    pgd_mem_free(work->seen);
    pgd_mem_free(work->symbols);
    pgd_mem_free(work->heap);
    pgd_text_free(&work->tmp);
    pgd_mem_free(work);
}

// ---- symbols -----------------------------------------------------------------------------------

static pgd_status add_symbol(pgd_text_bpe_work *w, int32_t id) {
    if (w->n == w->cap) {
        void *items = w->symbols;
        PGD_TRY(pgd_text_grow(&items, &w->cap, w->n + 1, sizeof(*w->symbols), "a word"));
        w->symbols = items;
    }
    int32_t i = (int32_t)w->n++;
    w->symbols[i] = (symbol){.id = id, .prev = i - 1, .next = i + 1};
    return PGD_OK;
}

// The vocabulary's name of the character [at, end) of a word: with prefix and suffix.
static pgd_status char_name(const pgd_text_bpe *b, pgd_str word, size_t at, size_t end,
                            pgd_text_bpe_work *w, pgd_str *out) {
    *out = (pgd_str){word.ptr + at, end - at};
    if (b->prefix_len + b->suffix_len == 0) {
        return PGD_OK;
    }
    pgd_text_clear(&w->tmp);
    if (at > 0 && b->prefix_len > 0) {
        PGD_TRY(pgd_text_add(&w->tmp, b->prefix, b->prefix_len));
    }
    PGD_TRY(pgd_text_add_str(&w->tmp, *out));
    if (end == word.len && b->suffix_len > 0) {
        PGD_TRY(pgd_text_add(&w->tmp, b->suffix, b->suffix_len));
    }
    *out = pgd_text_view(&w->tmp);
    return PGD_OK;
}

static int32_t bytes_known(const pgd_text_bpe *b, pgd_str s) {
    for (size_t i = 0; i < s.len; i++) {
        if (b->byte_ids[(uint8_t)s.ptr[i]] < 0) {
            return 0;
        }
    }
    return b->byte_fallback;
}

// A character that is no token: its bytes, else unk (held back in *open so that neighbours can be
// fused), else nothing.
static pgd_status add_unknown(const pgd_text_bpe *b, pgd_str name, pgd_text_bpe_work *w,
                              int32_t *open) {
    if (bytes_known(b, name)) {
        for (size_t i = 0; i < name.len; i++) {
            PGD_TRY(add_symbol(w, b->byte_ids[(uint8_t)name.ptr[i]]));
        }
        return PGD_OK;
    }
    if (b->unk < 0) {
        return PGD_OK;
    }
    if (*open && !b->fuse_unk) {
        PGD_TRY(add_symbol(w, b->unk));
    }
    *open = 1;
    return PGD_OK;
}

static pgd_status fill_symbols(const pgd_text_bpe *b, pgd_str word, pgd_text_bpe_work *w) {
    w->n = 0;
    int32_t open_unk = 0;
    int32_t plain = b->prefix_len + b->suffix_len == 0;
    size_t end = 0;
    for (size_t at = 0; at < word.len; at = end) {
        uint32_t cp = pgd_text_char(word, at, &end);
        pgd_str name = {word.ptr + at, end - at};
        int32_t id = -1;
        if (plain && cp < DIRECT_CHARS) {
            id = b->direct[cp];
        } else {
            PGD_TRY(char_name(b, word, at, end, w, &name));
            id = pgd_text_bpe_lookup(b->vocab, name);
        }
        if (id < 0) {
            PGD_TRY(add_unknown(b, name, w, &open_unk));
            continue;
        }
        if (open_unk) {
            PGD_TRY(add_symbol(w, b->unk));
            open_unk = 0;
        }
        PGD_TRY(add_symbol(w, id));
    }
    return open_unk ? add_symbol(w, b->unk) : PGD_OK;
}

// ---- merging short words -----------------------------------------------------------------------

// The rank of a pair and the id it becomes, as one number that orders by rank.
static uint64_t pair_key(const pgd_text_bpe *b, int32_t left, int32_t right) {
    const merge_entry *m = merge_of(b, left, right);
    return m != NULL ? (uint64_t)m->rank << 32 | (uint32_t)m->id : UINT64_MAX;
}

static void merge_short(const pgd_text_bpe *b, pgd_text_bpe_work *w) {
    uint64_t pair[SHORT_WORD]; // pair[i]: symbols i and i + 1
    size_t n = w->n;
    symbol *s = w->symbols;
    for (size_t i = 0; i + 1 < n; i++) {
        pair[i] = pair_key(b, s[i].id, s[i + 1].id);
    }
    while (n > 1) {
        size_t best = 0;
        uint64_t key = pair[0];
        for (size_t i = 1; i + 1 < n; i++) {
            // equal keys are equal merges: the first of them stays
            best = pair[i] < key ? i : best;
            key = pair[i] < key ? pair[i] : key;
        }
        if (key == UINT64_MAX) {
            break;
        }
        n--;
        s[best].id = (int32_t)(key & UINT32_MAX);
        for (size_t i = best + 1; i < n; i++) {
            s[i].id = s[i + 1].id;
        }
        for (size_t i = best; i + 1 < n; i++) {
            pair[i] = pair[i + 1];
        }
        if (best > 0) {
            pair[best - 1] = pair_key(b, s[best - 1].id, s[best].id);
        }
        if (best + 1 < n) {
            pair[best] = pair_key(b, s[best].id, s[best + 1].id);
        }
    }
    w->n = n;
}

// ---- merging long words ------------------------------------------------------------------------

static int32_t before(const candidate *a, const candidate *b) {
    return a->rank != b->rank ? a->rank < b->rank : a->at < b->at;
}

static pgd_status push(pgd_text_bpe_work *w, const merge_entry *m, int32_t at) {
    if (m == NULL) {
        return PGD_OK;
    }
    if (w->n_heap == w->cap_heap) {
        void *items = w->heap;
        PGD_TRY(pgd_text_grow(&items, &w->cap_heap, w->n_heap + 1, sizeof(*w->heap), "a word"));
        w->heap = items;
    }
    candidate c = {.rank = m->rank, .at = at, .id = m->id};
    size_t i = w->n_heap++;
    while (i > 0 && before(&c, &w->heap[(i - 1) / 2])) {
        w->heap[i] = w->heap[(i - 1) / 2];
        i = (i - 1) / 2;
    }
    w->heap[i] = c;
    return PGD_OK;
}

static candidate pop(pgd_text_bpe_work *w) {
    candidate top = w->heap[0];
    candidate last = w->heap[--w->n_heap];
    size_t i = 0;
    for (;;) {
        size_t child = 2 * i + 1;
        if (child >= w->n_heap) {
            break;
        }
        if (child + 1 < w->n_heap && before(&w->heap[child + 1], &w->heap[child])) {
            child++;
        }
        if (!before(&w->heap[child], &last)) {
            break;
        }
        w->heap[i] = w->heap[child];
        i = child;
    }
    w->heap[i] = last;
    return top;
}

static pgd_status merge_long(const pgd_text_bpe *b, pgd_text_bpe_work *w) {
    int32_t n = (int32_t)w->n;
    symbol *s = w->symbols;
    w->n_heap = 0;
    for (int32_t i = 0; i + 1 < n; i++) {
        PGD_TRY(push(w, merge_of(b, s[i].id, s[i + 1].id), i));
    }
    while (w->n_heap > 0) {
        candidate c = pop(w);
        int32_t right = s[c.at].next;
        if (s[c.at].id < 0 || right >= n) {
            continue;
        }
        const merge_entry *m = merge_of(b, s[c.at].id, s[right].id);
        if (m == NULL || m->id != c.id) {
            continue;
        }
        int32_t behind = s[right].next;
        s[c.at].id = c.id;
        s[c.at].next = behind;
        s[right].id = -1;
        if (behind < n) {
            s[behind].prev = c.at;
            PGD_TRY(push(w, merge_of(b, c.id, s[behind].id), c.at));
        }
        if (s[c.at].prev >= 0) {
            PGD_TRY(push(w, merge_of(b, s[s[c.at].prev].id, c.id), s[c.at].prev));
        }
    }
    size_t kept = 0;
    for (int32_t i = 0; i < n; i = s[i].next) {
        s[kept++].id = s[i].id;
    }
    w->n = kept;
    return PGD_OK;
}

// ---- a word ------------------------------------------------------------------------------------

static pgd_status encode_word(const pgd_text_bpe *b, pgd_str word, int32_t is_part,
                              pgd_text_bpe_work *w, pgd_text_ids *out) {
    int32_t id = pgd_text_bpe_lookup(b->vocab, word);
    if (id >= 0 && b->ignore_merges && !is_part) {
        return pgd_text_ids_add(out, id);
    }
    uint8_t known = id >= 0 ? atomic_load_explicit(&b->whole[id], memory_order_relaxed) : 0;
    if (known == WHOLE) {
        return pgd_text_ids_add(out, id);
    }
    PGD_TRY(fill_symbols(b, word, w));
    if (w->n <= SHORT_WORD) {
        merge_short(b, w);
    } else {
        PGD_TRY(merge_long(b, w));
    }
    if (id >= 0 && known == 0) {
        uint8_t now = w->n == 1 && w->symbols[0].id == id ? WHOLE : NOT_WHOLE;
        atomic_store_explicit(&b->whole[id], now, memory_order_relaxed);
    }
    for (size_t i = 0; i < w->n; i++) {
        PGD_TRY(pgd_text_ids_add(out, w->symbols[i].id));
    }
    return PGD_OK;
}

static uint32_t hash_of(pgd_str word) {
    uint64_t h = word.len;
    for (size_t i = 0; i < word.len; i += 8) {
        uint64_t eight = 0;
        memcpy(&eight, word.ptr + i, word.len - i < 8 ? word.len - i : 8);
        h = (h ^ eight) * 0x9E3779B97F4A7C15u;
        h ^= h >> 29;
    }
    return (uint32_t)(h >> 32);
}

// A word, or a part of one that was cut (of which ignore_merges knows nothing).
static pgd_status encode_seen(const pgd_text_bpe *b, pgd_str word, int32_t is_part,
                              pgd_text_bpe_work *w, pgd_text_ids *out) {
    if (w->seen == NULL || word.len > MOST_SEEN) {
        return encode_word(b, word, is_part, w, out);
    }
    seen_word *s = &w->seen[hash_of(word) & (N_SEEN - 1)];
    if (s->len == word.len && s->is_part == is_part && memcmp(s->word, word.ptr, word.len) == 0) {
        for (uint32_t i = 0; i < s->n; i++) {
            PGD_TRY(pgd_text_ids_add(out, out->ids[s->at + i]));
        }
        return PGD_OK;
    }
    size_t at = out->n;
    PGD_TRY(encode_word(b, word, is_part, w, out));
    *s = (seen_word){.word = word.ptr,
                     .len = (uint32_t)word.len,
                     .is_part = is_part,
                     .at = at,
                     .n = (uint32_t)(out->n - at)};
    return PGD_OK;
}

static int32_t is_known_char(const pgd_text_bpe *b, pgd_str word, size_t at, size_t end,
                             uint32_t cp) {
    return cp < DIRECT_CHARS
               ? b->direct[cp] >= 0
               : pgd_text_bpe_lookup(b->vocab, (pgd_str){word.ptr + at, end - at}) >= 0;
}

// Unknown characters are not cut from their neighbours, since a run of them may become one token.
static pgd_status encode_parts(const pgd_text_bpe *b, pgd_str word, pgd_text_bpe_work *w,
                               pgd_text_ids *out) {
    size_t start = 0;
    size_t end = 0;
    uint32_t last = 0;
    int32_t last_known = 0;
    for (size_t at = 0; at < word.len; at = end) {
        uint32_t cp = pgd_text_char(word, at, &end);
        int32_t known = is_known_char(b, word, at, end, cp);
        if (known && last_known && !may_join(b, last, cp)) {
            pgd_str part = {word.ptr + start, at - start};
            PGD_TRY(encode_seen(b, part, 1, w, out));
            start = at;
        }
        last = cp;
        last_known = known;
    }
    pgd_str part = {word.ptr + start, word.len - start};
    return encode_seen(b, part, 1, w, out);
}

pgd_status pgd_text_bpe_encode(const pgd_text_bpe *bpe, pgd_str word, pgd_text_bpe_work *work,
                               pgd_text_ids *out) {
    if (word.len > (size_t)INT32_MAX / 4) {
        return pgd_fail(PGD_INVALID, "a word of %zu bytes; at most %d are allowed", word.len,
                        INT32_MAX / 4);
    }
    if (word.len >= CUT_FROM && bpe->prefix_len + bpe->suffix_len == 0 &&
        (!bpe->ignore_merges || pgd_text_bpe_lookup(bpe->vocab, word) < 0)) {
        return encode_parts(bpe, word, work, out);
    }
    return encode_seen(bpe, word, 0, work, out);
}
