// Calls of tools in a model's text: the same calls and the same content however the text is cut,
// and no byte is lost unless it belongs to a call.
#include <string.h>

#include "api/tools.h"
#include "base/fail.h"

#include "fuzz.h"

static pgd_status read_in(pgd_str text, size_t n, pgd_api_tools *t, pgd_text *content) {
    for (size_t at = 0; at < text.len; at += n) {
        const pgd_str piece = {text.ptr + at, n < text.len - at ? n : text.len - at};
        PGD_TRY(pgd_api_tools_read(t, piece, content));
    }
    return pgd_api_tools_end(t, content);
}

pgd_status fuzz_one(const uint8_t *data, size_t size) {
    const pgd_str text = {(const char *)data, size};
    pgd_api_tools a = {0};
    pgd_api_tools b = {0};
    pgd_text content_a = {0};
    pgd_text content_b = {0};
    pgd_status status = read_in(text, size > 0 ? size : 1, &a, &content_a);
    status = status == PGD_OK ? read_in(text, 1, &b, &content_b) : status;
    if (status == PGD_OK) {
        FUZZ_CHECK(pgd_str_equal(pgd_text_view(&content_a), pgd_text_view(&content_b)));
        FUZZ_CHECK(a.n_calls == b.n_calls && a.n_calls <= PGD_API_MAX_CALLS);
        FUZZ_CHECK(pgd_api_tools_shown(&a) == a.n_calls);
        FUZZ_CHECK(a.n_calls > 0 || pgd_str_equal(pgd_text_view(&content_a), text));
        for (int32_t i = 0; i < a.n_calls; i++) {
            FUZZ_CHECK(
                pgd_str_equal(pgd_text_view(&a.calls[i].name), pgd_text_view(&b.calls[i].name)));
            FUZZ_CHECK(pgd_str_equal(pgd_text_view(&a.calls[i].arguments),
                                     pgd_text_view(&b.calls[i].arguments)));
            FUZZ_CHECK(a.calls[i].name.len > 0);
        }
    }
    pgd_text_free(&content_a);
    pgd_text_free(&content_b);
    pgd_api_tools_free(&a);
    pgd_api_tools_free(&b);
    return status;
}
