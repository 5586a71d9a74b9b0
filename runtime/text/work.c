// The pieces of a text on its way to ids (parts.h draws them), and growing arrays.
#include "text/parts.h"

pgd_status pgd_text_grow(void **items, size_t *cap, size_t need, size_t item_bytes,
                         const char *what) {
    if (need <= *cap) {
        return PGD_OK;
    }
    size_t n = *cap < 16 ? 16 : *cap;
    while (n < need) {
        n *= 2; // of things in memory: their count is far from the largest size_t
    }
    n = pgd_mem_is_armed() ? need : n; // so that the next one asks for memory too
    void *grown = pgd_mem_realloc(*items, n, item_bytes);
    if (grown == NULL) {
        return PGD_MEM_FAIL(what, n * item_bytes);
    }
    *items = grown;
    *cap = n;
    return PGD_OK;
}

void pgd_text_work_free(pgd_text_work *w) {
    pgd_text_free(&w->buf);
    pgd_text_free(&w->spare);
    pgd_text_free(&w->tmp[0]);
    pgd_text_free(&w->tmp[1]);
    pgd_mem_free(w->pieces);
    pgd_mem_free(w->next);
    pgd_mem_free(w->spans);
    *w = (pgd_text_work){0};
}

pgd_status pgd_text_work_put(pgd_text_work *w, size_t at, size_t len, int32_t id, int32_t first) {
    if (len == 0) {
        return PGD_OK;
    }
    if (w->n_next == w->cap_next) {
        void *items = w->next;
        PGD_TRY(pgd_text_grow(&items, &w->cap_next, w->n_next + 1, sizeof(*w->next), "pieces"));
        w->next = items;
    }
    w->next[w->n_next++] = (pgd_text_piece){.at = at, .len = len, .id = id, .first = first};
    return PGD_OK;
}

pgd_status pgd_text_work_span(pgd_text_work *w, size_t start, size_t end, int32_t match) {
    if (w->n_spans == w->cap_spans) {
        void *items = w->spans;
        PGD_TRY(pgd_text_grow(&items, &w->cap_spans, w->n_spans + 1, sizeof(*w->spans), "pieces"));
        w->spans = items;
    }
    w->spans[w->n_spans++] = (pgd_text_span){.start = start, .end = end, .match = match};
    return PGD_OK;
}

void pgd_text_work_split_done(pgd_text_work *w) {
    pgd_text_piece *items = w->pieces;
    size_t cap = w->cap_pieces;
    w->pieces = w->next;
    w->n_pieces = w->n_next;
    w->cap_pieces = w->cap_next;
    w->next = items;
    w->n_next = 0;
    w->cap_next = cap;
}

void pgd_text_work_rewrite_done(pgd_text_work *w) {
    pgd_text_work_split_done(w);
    pgd_text old = w->buf;
    w->buf = w->spare;
    w->spare = old;
    pgd_text_clear(&w->spare);
    w->text = pgd_text_view(&w->buf);
}

pgd_status pgd_text_ids_add(pgd_text_ids *ids, int32_t id) {
    if (ids->n == ids->cap) {
        void *items = ids->ids;
        PGD_TRY(pgd_text_grow(&items, &ids->cap, ids->n + 1, sizeof(*ids->ids), "token ids"));
        ids->ids = items;
    }
    ids->ids[ids->n++] = id;
    return PGD_OK;
}

void pgd_text_ids_free(pgd_text_ids *ids) {
    pgd_mem_free(ids->ids);
    *ids = (pgd_text_ids){0};
}
