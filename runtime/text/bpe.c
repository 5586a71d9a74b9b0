// Byte-pair encoding: a word's characters are merged pair by pair, always the pair of lowest rank,
// the leftmost of equals, until no merge applies (Sennrich, Haddow, Birch 2016).
//
// Short words: the pairs' ranks in an array, searched for the smallest. Long ones: symbols in a
// linked list, candidate pairs in a heap of (rank, position); an entry is stale when its symbol is
// gone or the pair there no longer gives the same id. O(n log n), whatever the text.
//
// A long word is cut first, wherever no merge can reach across: a merge that does would join a
// token that ends in the character before the cut and one that begins with the character behind it,
// so the pairs of such characters, of all merges, are kept as a set of bits (by hash: a bit too
// many only means a cut too few). What models without a pre-tokenizer call a word, a whole text, so
// becomes words again.
//
// Texts say the same words again and again: where the ids of a word lie in the output is
// remembered, one word for each hash.
//
// Merges are one hash table (left id, right id) -> (rank, merged id). For words that are in the
// vocabulary, whether merging them gives just that one id is found once and remembered in a byte
// per id (relaxed atomics: each thread that finds it finds the same).
#include <string.h>

#include "text/bpe_inner.h"

enum { LEAST_JOIN_BITS = 1 << 14 };

// ---- merges ------------------------------------------------------------------------------------

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
    int32_t l = pgd_text_bpe_lookup(b->vocab, left);
    int32_t r = pgd_text_bpe_lookup(b->vocab, right);
    size_t skip = b->prefix_len < right.len ? b->prefix_len : right.len;
    pgd_text_clear(tmp);
    PGD_TRY(pgd_text_add_str(tmp, left));
    PGD_TRY(pgd_text_add(tmp, right.ptr + skip, right.len - skip));
    int32_t id = pgd_text_bpe_lookup(b->vocab, pgd_text_view(tmp));
    if (l < 0 || r < 0 || id < 0) {
        return pgd_fail(PGD_INVALID,
                        "tokenizer.json: merge %u ('%.*s' and '%.*s') has a token that is not in "
                        "the vocabulary",
                        rank, PGD_STR_SHOW(left), PGD_STR_SHOW(right));
    }
    uint32_t i = pgd_text_bpe_slot(b, (uint32_t)l, (uint32_t)r);
    while (b->merges[i].left != UINT32_MAX &&
           (b->merges[i].left != (uint32_t)l || b->merges[i].right != (uint32_t)r)) {
        i = (i + 1) & b->mask;
    }
    b->merges[i] = (merge_entry){.left = (uint32_t)l, .right = (uint32_t)r, .rank = rank, .id = id};
    if (left.len > 0 && right.len > 0) {
        size_t unused = 0;
        uint64_t bit = pgd_text_bpe_join(b, pgd_text_char_before(left, left.len, &unused),
                                         pgd_text_char(right, 0, &unused));
        b->joins[bit / 64] |= (uint64_t)1 << (bit % 64);
    }
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
    b->join_bits = slots > LEAST_JOIN_BITS ? slots : LEAST_JOIN_BITS;
    b->joins = pgd_mem_alloc(b->join_bits / 64, sizeof(*b->joins));
    if (b->merges == NULL || b->joins == NULL) {
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
        b->unk = pgd_text_bpe_lookup(b->vocab, unk);
        if (b->unk < 0) {
            return pgd_fail(PGD_INVALID,
                            "tokenizer.json: unk_token '%.*s' is not in the vocabulary",
                            PGD_STR_SHOW(unk));
        }
    }
    return PGD_OK;
}

static pgd_status fill_tables(pgd_text_bpe *b, int32_t n_ids) {
    static const char hex[] = "0123456789ABCDEF";
    for (uint32_t i = 0; i < 256; i++) {
        char name[6] = {'<', '0', 'x', hex[i >> 4], hex[i & 15], '>'};
        b->byte_ids[i] = pgd_text_bpe_lookup(b->vocab, (pgd_str){name, sizeof(name)});
    }
    b->whole = pgd_mem_alloc((size_t)n_ids + 1, sizeof(*b->whole));
    b->direct = pgd_mem_alloc(DIRECT_CHARS, sizeof(*b->direct));
    if (b->whole == NULL || b->direct == NULL) {
        return PGD_MEM_FAIL("the vocabulary", (size_t)n_ids);
    }
    for (uint32_t cp = 0; cp < DIRECT_CHARS; cp++) {
        char bytes[4];
        b->direct[cp] = pgd_text_bpe_lookup(b->vocab, (pgd_str){bytes, pgd_utf8_encode(cp, bytes)});
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
    pgd_mem_free(bpe->joins);
    pgd_mem_free(bpe->direct);
    pgd_mem_free(bpe->whole);
    pgd_mem_free(bpe->prefix);
    pgd_mem_free(bpe->suffix);
    pgd_mem_free(bpe);
}
