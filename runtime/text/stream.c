// The streaming detokenizer: the decoder chain of decode.c, fed id by id.
#include "text/stream.h"

#include "text/parts.h"

struct pgd_text_stream {
    const pgd_text_tokenizer *tokenizer;
    pgd_text_decoding *decoding;
    int32_t skip_special;
};

pgd_status pgd_text_stream_create(const pgd_text_tokenizer *t, const int32_t *prompt_tail, size_t n,
                                  int32_t skip_special, pgd_text_stream **out) {
    *out = NULL;
    pgd_text_stream *s = pgd_mem_alloc(1, sizeof(*s));
    if (s == NULL) {
        return PGD_MEM_FAIL("a stream of text", sizeof(*s));
    }
    s->tokenizer = t;
    s->skip_special = skip_special;
    pgd_text prompt = {0};
    pgd_status status = pgd_text_decoding_create(t->decoder, &s->decoding);
    for (size_t i = 0; i < n && status == PGD_OK; i++) {
        status = pgd_text_stream_push(s, prompt_tail[i], &prompt);
        pgd_text_clear(&prompt);
    }
    pgd_text_free(&prompt);
    if (status != PGD_OK) {
        pgd_text_stream_destroy(s);
        return status;
    }
    *out = s;
    return PGD_OK;
}

pgd_status pgd_text_stream_push(pgd_text_stream *s, int32_t id, pgd_text *out) {
    const pgd_text_tokenizer *t = s->tokenizer;
    if (id < 0 || id >= t->n_ids || t->contents[id].ptr == NULL ||
        (s->skip_special && t->is_special[id])) {
        return PGD_OK;
    }
    return pgd_text_decoding_push(s->decoding, t->contents[id], out);
}

pgd_status pgd_text_stream_finish(pgd_text_stream *s, pgd_text *out) {
    return pgd_text_decoding_finish(s->decoding, out);
}

void pgd_text_stream_destroy(pgd_text_stream *s) {
    if (s == NULL) {
        return;
    }
    pgd_text_decoding_destroy(s->decoding);
    pgd_mem_free(s);
}

pgd_status pgd_text_decode(const pgd_text_tokenizer *t, const int32_t *ids, size_t n,
                           int32_t skip_special, pgd_text *out) {
    size_t old = out->len;
    pgd_text_stream *s = NULL;
    pgd_status status = pgd_text_stream_create(t, NULL, 0, skip_special, &s);
    for (size_t i = 0; i < n && status == PGD_OK; i++) {
        status = pgd_text_stream_push(s, ids[i], out);
    }
    if (status == PGD_OK) {
        status = pgd_text_stream_finish(s, out);
    }
    if (status != PGD_OK && out->len > old) {
        out->len = old;
        out->ptr[old] = 0;
    }
    pgd_text_stream_destroy(s);
    return status;
}
