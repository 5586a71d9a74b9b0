// The framing of requests: the same verdict however the bytes are cut, at the same byte, and no
// request is said to be complete that is not.
#include "serve/head.h"

#include "fuzz.h"

#include "base/fail.h"

static const pgd_serve_head_limits limits = {
    .line_bytes = 64, .header_bytes = 256, .headers = 8, .body_bytes = 100};

// Reads in pieces of n bytes; returns how many were read until the refusal.
static size_t read_all(pgd_serve_head *h, const uint8_t *data, size_t size, size_t n) {
    pgd_serve_head_init(h, &limits);
    for (size_t at = 0; at < size; at += n) {
        const size_t len = n < size - at ? n : size - at;
        if (pgd_serve_head_read(h, (const char *)data + at, len) != 0) {
            return at + len;
        }
    }
    return size;
}

pgd_status fuzz_one(const uint8_t *data, size_t size) {
    pgd_serve_head whole;
    pgd_serve_head cut;
    (void)read_all(&whole, data, size, size > 0 ? size : 1);
    const size_t end = read_all(&cut, data, size, 1);
    FUZZ_CHECK(whole.status == cut.status && whole.problem == cut.problem);
    FUZZ_CHECK(whole.state == cut.state && whole.length == cut.length);
    FUZZ_CHECK((cut.status == 0) == (cut.problem == NULL));
    FUZZ_CHECK(cut.status == 0 || (cut.status >= 400 && cut.status <= 505));
    FUZZ_CHECK(cut.head_bytes <= limits.header_bytes + 1 && cut.n_headers <= limits.headers + 1);
    FUZZ_CHECK(cut.status != 0 || cut.length <= limits.body_bytes);
    // Nothing is read behind a refusal.
    pgd_serve_head again = cut;
    FUZZ_CHECK(pgd_serve_head_read(&again, "GET / HTTP/1.1\r\n\r\n", 18) == again.status);
    FUZZ_CHECK(cut.status == 0 || again.state == cut.state);
    // A complete request that is given twice is complete twice.
    if (cut.status == 0 && !pgd_serve_head_pending(&cut) && size > 0) {
        FUZZ_CHECK(end == size);
        FUZZ_CHECK(pgd_serve_head_read(&cut, (const char *)data, size) == 0);
        FUZZ_CHECK(!pgd_serve_head_pending(&cut));
    }
    return cut.status == 0 ? PGD_OK : pgd_fail(PGD_INVALID, "%s", cut.problem);
}
