// tokenizer.json, a line "----", a text: the text and some others are encoded and decoded.
#include <string.h>

#include "base/fail.h"
#include "text/stream.h"
#include "text/tokenizer.h"

#include "fuzz.h"

// Streaming must come to the text of the whole decode.
static pgd_status stream(const pgd_text_tokenizer *t, const pgd_text_ids *ids, pgd_str whole) {
    pgd_text_stream *s = NULL;
    pgd_text out = {0};
    pgd_status status = pgd_text_stream_create(t, NULL, 0, 0, &s);
    for (size_t i = 0; i < ids->n && status == PGD_OK; i++) {
        status = pgd_text_stream_push(s, ids->ids[i], &out);
        FUZZ_CHECK(pgd_utf8_valid(pgd_text_view(&out)));
    }
    if (status == PGD_OK) {
        status = pgd_text_stream_finish(s, &out);
    }
    FUZZ_CHECK(status != PGD_OK || pgd_str_equal(pgd_text_view(&out), whole));
    pgd_text_stream_destroy(s);
    pgd_text_free(&out);
    return status;
}

static pgd_status use(const pgd_text_tokenizer *t, pgd_str text, uint32_t flags) {
    pgd_text_ids ids = {0};
    pgd_text out = {0};
    pgd_status status = pgd_text_encode(t, text, flags, &ids);
    FUZZ_CHECK(status == PGD_OK || ids.n == 0);
    for (size_t i = 0; i < ids.n; i++) {
        FUZZ_CHECK(ids.ids[i] >= 0 && ids.ids[i] < pgd_text_vocab_size(t));
    }
    if (status == PGD_OK) {
        status = pgd_text_decode(t, ids.ids, ids.n, 0, &out);
        FUZZ_CHECK(status != PGD_OK || pgd_utf8_valid(pgd_text_view(&out)));
    }
    if (status == PGD_OK) {
        status = stream(t, &ids, pgd_text_view(&out));
    }
    pgd_text_free(&out);
    pgd_text_ids_free(&ids);
    return status;
}

pgd_status fuzz_one(const uint8_t *data, size_t size) {
    static const char text[] = "ab abab  \xE2\x96\x81 a\n\nAn\x65\xCC\x81 'll 123 <s>a</s>\xF0\x9F";
    pgd_text_tokenizer *t = NULL;
    pgd_str behind;
    pgd_str json = fuzz_cut((pgd_str){(const char *)data, size}, &behind);
    pgd_status status =
        pgd_text_tokenizer_parse(json, PGD_STR("{\"bos_token\":\"a\",\"add_bos_token\":true}"), &t);
    FUZZ_CHECK((status == PGD_OK) == (t != NULL));
    if (status == PGD_OK) {
        status = use(t, behind, PGD_TEXT_ADD_SPECIAL);
    }
    if (status == PGD_OK) {
        status = use(t, PGD_STR(text), PGD_TEXT_NO_PARSE_SPECIAL);
    }
    pgd_text_tokenizer_close(t);
    return status;
}
