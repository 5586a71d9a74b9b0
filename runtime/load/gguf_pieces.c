// Scores of a SentencePiece vocabulary from the merges of its tokenizer.json (see gguf_inner.h).
#include <string.h>

#include "base/fail.h"
#include "base/map.h"
#include "base/mem.h"
#include "load/gguf_inner.h"

#define NOT_PIECES                                                                               \
    "tokenizer.json: the merges are not those of SentencePiece pieces (all ways to cut a piece " \
    "into two, piece by piece): GGUF has no form for them"

// The two sides of a merge: "a b" or ["a", "b"].
static int32_t read_merge(const pgd_json *item, pgd_str *a, pgd_str *b) {
    pgd_str whole = {0};
    if (pgd_json_is(item, PGD_JSON_ARRAY)) {
        return item->n == 2 && pgd_json_to_str(&item->items[0], a) &&
               pgd_json_to_str(&item->items[1], b);
    }
    const char *space =
        pgd_json_to_str(item, &whole) && whole.len > 0 ? memchr(whole.ptr, ' ', whole.len) : NULL;
    if (space == NULL) {
        return 0;
    }
    *a = (pgd_str){whole.ptr, (size_t)(space - whole.ptr)};
    *b = (pgd_str){space + 1, whole.len - a->len - 1};
    return 1;
}

// Ways to cut a piece into two others.
static uint64_t count_cuts(const pgd_map *ids, pgd_str piece) {
    uint64_t n = 0;
    uint64_t id = 0;
    for (size_t at = 1; at < piece.len; at++) {
        n += ((unsigned char)piece.ptr[at] & 0xC0) != 0x80 &&
             pgd_map_get(ids, (pgd_str){piece.ptr, at}, &id) &&
             pgd_map_get(ids, (pgd_str){piece.ptr + at, piece.len - at}, &id);
    }
    return n;
}

// Ranks: that of the first merge of each piece. *n counts the merges whose three parts are pieces.
static pgd_status read_ranks(const pgd_json *merges, const pgd_map *ids, float *scores,
                             uint64_t *n) {
    const float unset = -(float)merges->n;
    pgd_text both = {0};
    uint64_t last = UINT64_MAX;
    pgd_status status = PGD_OK;
    for (uint32_t i = 0; status == PGD_OK && i < merges->n; i++) {
        pgd_str a = {0}, b = {0};
        uint64_t id = 0;
        uint64_t side = 0;
        if (!read_merge(&merges->items[i], &a, &b)) {
            status = pgd_fail(PGD_INVALID, "tokenizer.json: merge %u is no pair of texts", i);
            break;
        }
        pgd_text_clear(&both);
        status = pgd_text_add_str(&both, a);
        status = status == PGD_OK ? pgd_text_add_str(&both, b) : status;
        if (status != PGD_OK || !pgd_map_get(ids, pgd_text_view(&both), &id) ||
            !pgd_map_get(ids, a, &side) || !pgd_map_get(ids, b, &side)) {
            continue;
        }
        if (id != last && scores[id] > unset) {
            status = pgd_fail(PGD_UNSUPPORTED, "%s", NOT_PIECES);
        } else if (id != last) {
            scores[id] = -(float)i;
        }
        last = id;
        *n += 1;
    }
    pgd_text_free(&both);
    return status;
}

pgd_status pgd_load_gguf_scores(const pgd_json *merges, const pgd_str *texts, const int32_t *kinds,
                                int64_t n, float *scores) {
    pgd_map *ids = NULL;
    uint64_t n_merges = 0;
    uint64_t n_cuts = 0;
    pgd_status status = pgd_map_create((size_t)n, &ids);
    for (int64_t i = 0; i < n; i++) {
        scores[i] = -(float)merges->n - (float)i;
    }
    for (int64_t i = 0; status == PGD_OK && i < n; i++) {
        status =
            kinds[i] == PGD_LOAD_GGUF_NORMAL ? pgd_map_set(ids, texts[i], (uint64_t)i) : PGD_OK;
    }
    status = status == PGD_OK ? read_ranks(merges, ids, scores, &n_merges) : status;
    for (int64_t i = 0; status == PGD_OK && i < n; i++) {
        n_cuts += kinds[i] == PGD_LOAD_GGUF_NORMAL ? count_cuts(ids, texts[i]) : 0;
    }
    if (status == PGD_OK && n_cuts != n_merges) {
        status = pgd_fail(PGD_UNSUPPORTED, "%s", NOT_PIECES);
    }
    pgd_map_destroy(ids);
    return status;
}
