// Byte-pair encoding: a word's characters are merged pair by pair, always the pair of lowest rank,
// the leftmost of equals, until no merge applies (Sennrich, Haddow, Birch 2016).
//
// Short words: the pairs' ranks in an array, searched for the smallest. Long ones: symbols in a
// linked list, candidate pairs in a heap of (rank, position); an entry is stale when its symbol is
// gone or the pair there no longer gives the same id. O(n log n), whatever the text.
//
// Merges are one hash table (left id, right id) -> (rank, merged id). For words that are in the
// vocabulary, whether merging them gives just that one id is found once and remembered in a byte
// per id (relaxed atomics: each thread that finds it finds the same).
#include <stdatomic.h>
#include <string.h>

#include "text/parts.h"

enum {
    SHORT_WORD = 32,      // symbols
    DIRECT_CHARS = 0x800, // code points with a direct table of ids
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
    int32_t *direct;       // [DIRECT_CHARS] id or -1; not used with prefix or suffix
    atomic_uchar *whole;   // [n_ids]
    int32_t byte_ids[256]; // "<0xHH>", -1 = none
    char *prefix, *suffix; // NULL = none
    size_t prefix_len, suffix_len;
    int32_t unk; // -1 = none
    int32_t fuse_unk, byte_fallback, ignore_merges;
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

struct pgd_text_bpe_work {
    symbol *symbols;
    size_t n;
    size_t cap;
    candidate *heap;
    size_t n_heap;
    size_t cap_heap;
    pgd_text tmp;
};

// ---- merges ------------------------------------------------------------------------------------

static uint32_t slot_of(const pgd_text_bpe *b, uint32_t left, uint32_t right) {
    uint64_t h = (((uint64_t)left << 32) | right) * 0x9E3779B97F4A7C15u;
    return (uint32_t)(h >> 32) & b->mask;
}

static const merge_entry *merge_of(const pgd_text_bpe *b, int32_t left, int32_t right) {
    uint32_t l = (uint32_t)left;
    uint32_t r = (uint32_t)right;
    for (uint32_t i = slot_of(b, l, r);; i = (i + 1) & b->mask) {
        const merge_entry *m = &b->merges[i];
        if (m->left == UINT32_MAX) {
            return NULL;
        }
        if (m->left == l && m->right == r) {
            return m;
        }
    }
}

static int32_t lookup(const pgd_map *vocab, pgd_str s) {
    uint64_t id = 0;
    return pgd_map_get(vocab, s, &id) ? (int32_t)id : -1;
}

static int32_t pair_of(const pgd_json *merge, pgd_str *a, pgd_str *b) {
    pgd_str whole;
    if (pgd_json_to_str(merge, &whole)) {
        *a = pgd_str_cut(whole, ' ', b);
        return a->len > 0 && b->len > 0;
    }
    return pgd_json_is(merge, PGD_JSON_ARRAY) && merge->n == 2 &&
           pgd_json_to_str(&merge->items[0], a) && pgd_json_to_str(&merge->items[1], b);
}

static pgd_status add_merge(pgd_text_bpe *b, const pgd_json *merge, uint32_t rank, pgd_text *tmp) {
    pgd_str left = {0};
    pgd_str right = {0};
    if (!pair_of(merge, &left, &right)) {
        return pgd_fail(PGD_INVALID, "tokenizer.json: merge %u is not a pair of tokens", rank);
    }
    int32_t l = lookup(b->vocab, left);
    int32_t r = lookup(b->vocab, right);
    size_t skip = b->prefix_len < right.len ? b->prefix_len : right.len;
    pgd_text_clear(tmp);
    PGD_TRY(pgd_text_add_str(tmp, left));
    PGD_TRY(pgd_text_add(tmp, right.ptr + skip, right.len - skip));
    int32_t id = lookup(b->vocab, pgd_text_view(tmp));
    if (l < 0 || r < 0 || id < 0) {
        return pgd_fail(PGD_INVALID,
                        "tokenizer.json: merge %u ('%.*s' and '%.*s') has a token that is not in "
                        "the vocabulary",
                        rank, (int)(left.len < 80 ? left.len : 80), left.ptr,
                        (int)(right.len < 80 ? right.len : 80), right.ptr);
    }
    uint32_t i = slot_of(b, (uint32_t)l, (uint32_t)r);
    while (b->merges[i].left != UINT32_MAX &&
           (b->merges[i].left != (uint32_t)l || b->merges[i].right != (uint32_t)r)) {
        i = (i + 1) & b->mask;
    }
    b->merges[i] = (merge_entry){.left = (uint32_t)l, .right = (uint32_t)r, .rank = rank, .id = id};
    return PGD_OK;
}

static pgd_status read_merges(pgd_text_bpe *b, const pgd_json *merges) {
    if (!pgd_json_is(merges, PGD_JSON_ARRAY)) {
        return pgd_fail(PGD_INVALID, "tokenizer.json: the model has no list of merges");
    }
    if (merges->n > (1u << 28)) {
        return pgd_fail(PGD_INVALID, "tokenizer.json: %u merges; at most %u are allowed", merges->n,
                        1u << 28);
    }
    uint32_t slots = 16;
    while (slots / 2 < merges->n) {
        slots *= 2;
    }
    b->merges = pgd_mem_alloc(slots, sizeof(*b->merges));
    if (b->merges == NULL) {
        return PGD_MEM_FAIL("the merges", (size_t)slots * sizeof(*b->merges));
    }
    b->mask = slots - 1;
    for (uint32_t i = 0; i < slots; i++) {
        b->merges[i].left = UINT32_MAX;
    }
    pgd_text tmp = {0};
    pgd_status status = PGD_OK;
    for (uint32_t i = 0; i < merges->n && status == PGD_OK; i++) {
        status = add_merge(b, &merges->items[i], i, &tmp);
    }
    pgd_text_free(&tmp);
    return status;
}

// ---- from the file -----------------------------------------------------------------------------

static pgd_status copy_affix(const pgd_json *json, const char *key, char **out, size_t *out_len) {
    pgd_str s = pgd_text_member(json, key);
    if (s.len == 0) {
        return PGD_OK;
    }
    *out = pgd_mem_alloc(1, s.len);
    if (*out == NULL) {
        return PGD_MEM_FAIL(key, s.len);
    }
    memcpy(*out, s.ptr, s.len);
    *out_len = s.len;
    return PGD_OK;
}

static pgd_status read_options(pgd_text_bpe *b, const pgd_json *json) {
    double dropout = 0;
    if (pgd_json_to_f64(pgd_json_get(json, "dropout"), &dropout) && dropout != 0) {
        return pgd_fail(PGD_UNSUPPORTED,
                        "tokenizer.json: BPE with dropout %g is not supported; only 0 or null",
                        dropout);
    }
    b->fuse_unk = pgd_text_flag(json, "fuse_unk", 0);
    b->byte_fallback = pgd_text_flag(json, "byte_fallback", 0);
    b->ignore_merges = pgd_text_flag(json, "ignore_merges", 0);
    PGD_TRY(copy_affix(json, "continuing_subword_prefix", &b->prefix, &b->prefix_len));
    PGD_TRY(copy_affix(json, "end_of_word_suffix", &b->suffix, &b->suffix_len));
    pgd_str unk = {0};
    b->unk = -1;
    if (pgd_json_to_str(pgd_json_get(json, "unk_token"), &unk)) {
        b->unk = lookup(b->vocab, unk);
        if (b->unk < 0) {
            return pgd_fail(PGD_INVALID,
                            "tokenizer.json: unk_token '%.*s' is not in the vocabulary",
                            (int)(unk.len < 100 ? unk.len : 100), unk.ptr);
        }
    }
    return PGD_OK;
}

static pgd_status fill_tables(pgd_text_bpe *b, int32_t n_ids) {
    static const char hex[] = "0123456789ABCDEF";
    for (uint32_t i = 0; i < 256; i++) {
        char name[6] = {'<', '0', 'x', hex[i >> 4], hex[i & 15], '>'};
        b->byte_ids[i] = lookup(b->vocab, (pgd_str){name, sizeof(name)});
    }
    b->whole = pgd_mem_alloc((size_t)n_ids + 1, sizeof(*b->whole));
    b->direct = pgd_mem_alloc(DIRECT_CHARS, sizeof(*b->direct));
    if (b->whole == NULL || b->direct == NULL) {
        return PGD_MEM_FAIL("the vocabulary", (size_t)n_ids);
    }
    for (uint32_t cp = 0; cp < DIRECT_CHARS; cp++) {
        char bytes[4];
        b->direct[cp] = lookup(b->vocab, (pgd_str){bytes, pgd_utf8_encode(cp, bytes)});
    }
    return PGD_OK;
}

pgd_status pgd_text_bpe_create(const pgd_json *json, const pgd_map *vocab, int32_t n_ids,
                               pgd_text_bpe **out) {
    *out = NULL;
    pgd_text_bpe *b = pgd_mem_alloc(1, sizeof(*b));
    if (b == NULL) {
        return PGD_MEM_FAIL("the model", sizeof(*b));
    }
    b->vocab = vocab;
    pgd_status status = read_options(b, json);
    if (status == PGD_OK) {
        status = fill_tables(b, n_ids);
    }
    if (status == PGD_OK) {
        status = read_merges(b, pgd_json_get(json, "merges"));
    }
    if (status != PGD_OK) {
        pgd_text_bpe_destroy(b);
        return status;
    }
    *out = b;
    return PGD_OK;
}

void pgd_text_bpe_destroy(pgd_text_bpe *bpe) {
    if (bpe == NULL) {
        return;
    }
    pgd_mem_free(bpe->merges);
    pgd_mem_free(bpe->direct);
    pgd_mem_free(bpe->whole);
    pgd_mem_free(bpe->prefix);
    pgd_mem_free(bpe->suffix);
    pgd_mem_free(bpe);
}

pgd_status pgd_text_bpe_work_create(pgd_text_bpe_work **out) {
    *out = pgd_mem_alloc(1, sizeof(**out));
    return *out == NULL ? PGD_MEM_FAIL("encoding", sizeof(**out)) : PGD_OK;
}

void pgd_text_bpe_work_destroy(pgd_text_bpe_work *work) {
    if (work == NULL) {
        return;
    }
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
            id = lookup(b->vocab, name);
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

static void merge_short(const pgd_text_bpe *b, pgd_text_bpe_work *w) {
    const merge_entry *pair[SHORT_WORD]; // pair[i]: symbols i and i + 1
    size_t n = w->n;
    symbol *s = w->symbols;
    for (size_t i = 0; i + 1 < n; i++) {
        pair[i] = merge_of(b, s[i].id, s[i + 1].id);
    }
    for (;;) {
        size_t best = n;
        uint32_t rank = UINT32_MAX;
        for (size_t i = 0; i + 1 < n; i++) {
            if (pair[i] != NULL && pair[i]->rank < rank) {
                rank = pair[i]->rank;
                best = i;
            }
        }
        if (best == n) {
            break;
        }
        s[best].id = pair[best]->id;
        for (size_t i = best + 1; i + 1 < n; i++) {
            s[i].id = s[i + 1].id;
            pair[i] = i + 2 < n ? pair[i + 1] : NULL;
        }
        n--;
        if (best > 0) {
            pair[best - 1] = merge_of(b, s[best - 1].id, s[best].id);
        }
        if (best + 1 < n) {
            pair[best] = merge_of(b, s[best].id, s[best + 1].id);
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

pgd_status pgd_text_bpe_encode(const pgd_text_bpe *bpe, pgd_str word, pgd_text_bpe_work *work,
                               pgd_text_ids *out) {
    int32_t id = lookup(bpe->vocab, word);
    uint8_t known = 0;
    if (id >= 0) {
        known = bpe->ignore_merges ? WHOLE
                                   : atomic_load_explicit(&bpe->whole[id], memory_order_relaxed);
        if (known == WHOLE) {
            return pgd_text_ids_add(out, id);
        }
    }
    if (word.len > (size_t)INT32_MAX / 4) {
        return pgd_fail(PGD_INVALID, "a word of %zu bytes; at most %d are allowed", word.len,
                        INT32_MAX / 4);
    }
    PGD_TRY(fill_symbols(bpe, word, work));
    if (work->n <= SHORT_WORD) {
        merge_short(bpe, work);
    } else {
        PGD_TRY(merge_long(bpe, work));
    }
    if (id >= 0 && known == 0) {
        uint8_t now = work->n == 1 && work->symbols[0].id == id ? WHOLE : NOT_WHOLE;
        atomic_store_explicit(&bpe->whole[id], now, memory_order_relaxed);
    }
    for (size_t i = 0; i < work->n; i++) {
        PGD_TRY(pgd_text_ids_add(out, work->symbols[i].id));
    }
    return PGD_OK;
}
