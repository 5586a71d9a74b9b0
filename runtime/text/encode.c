// Encoding: one text through the parts (parts.h draws the pieces).
#include "text/parts.h"

static pgd_status cut(const pgd_text_tokenizer *t, uint32_t flags, pgd_text_work *w) {
    int32_t no_special = (flags & PGD_TEXT_NO_PARSE_SPECIAL) != 0;
    PGD_TRY(pgd_text_work_put(w, 0, w->text.len, -1, 1));
    pgd_text_work_split_done(w);
    PGD_TRY(pgd_text_trie_split(t->trie_raw, no_special, w));
    if (t->normalizer != NULL) {
        PGD_TRY(pgd_text_normalizer_run(t->normalizer, w));
    }
    PGD_TRY(pgd_text_trie_split(t->trie_normalized, no_special, w));
    return pgd_text_pretokenizer_run(t->pretokenizer, w);
}

static pgd_status add_pieces(const pgd_text_tokenizer *t, const pgd_text_work *w,
                             pgd_text_bpe_work *bpe, pgd_text_ids *out) {
    for (size_t i = 0; i < w->n_pieces; i++) {
        const pgd_text_piece *p = &w->pieces[i];
        if (p->id >= 0) {
            PGD_TRY(pgd_text_ids_add(out, p->id));
        } else {
            PGD_TRY(pgd_text_bpe_encode(t->bpe, (pgd_str){w->text.ptr + p->at, p->len}, bpe, out));
        }
    }
    return PGD_OK;
}

static pgd_status encode(const pgd_text_tokenizer *t, uint32_t flags, pgd_text_work *w,
                         pgd_text_bpe_work *bpe, pgd_text_ids *out) {
    PGD_TRY(cut(t, flags, w));
    for (size_t i = 0; i < t->post.n; i++) {
        int32_t item = t->post.items[i];
        if (item == PGD_TEXT_POST_TEXT) {
            PGD_TRY(add_pieces(t, w, bpe, out));
        } else if (flags & PGD_TEXT_ADD_SPECIAL) {
            PGD_TRY(pgd_text_ids_add(out, item));
        }
    }
    return PGD_OK;
}

pgd_status pgd_text_encode(const pgd_text_tokenizer *t, pgd_str text, uint32_t flags,
                           pgd_text_ids *out) {
    size_t old = out->n;
    pgd_text fixed = {0};
    pgd_text_work w = {.text = text};
    pgd_text_bpe_work *bpe = NULL;
    pgd_status status = pgd_text_bpe_work_create(text.len, &bpe);
    if (status == PGD_OK && !pgd_utf8_valid(text)) {
        status = pgd_utf8_add_lossy(&fixed, text);
        w.text = pgd_text_view(&fixed);
    }
    if (status == PGD_OK) {
        status = encode(t, flags, &w, bpe, out);
    }
    if (status != PGD_OK) {
        out->n = old;
    }
    pgd_text_bpe_work_destroy(bpe);
    pgd_text_work_free(&w);
    pgd_text_free(&fixed);
    return status;
}
