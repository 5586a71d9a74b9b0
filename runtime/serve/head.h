// The framing of HTTP/1.1 requests, watched as it arrives. The protocol itself is libevent's; this
// reader stands in front of it and refuses what libevent would answer with a page of HTML, read in
// another way than a proxy did, or keep in memory without end.
//
//   request line -> headers -> body (Content-Length or chunked) -> request line ...
//
// Pure: bytes in, a verdict out; it keeps none of them but short beginnings of two headers.
// Source: RFC 9112; limits: CVE-2025-48956 (huge headers).
#ifndef PGD_SERVE_HEAD_H
#define PGD_SERVE_HEAD_H

#include <stddef.h>
#include <stdint.h>

typedef struct pgd_serve_head_limits {
    int32_t line_bytes;   // of a request line or a header
    int32_t header_bytes; // of all of them
    int32_t headers;
    int32_t reserved0;
    uint64_t body_bytes;
} pgd_serve_head_limits;

typedef struct pgd_serve_head {
    pgd_serve_head_limits limits;
    int32_t state;
    int32_t status;      // of the refusal, 0 = none so far
    const char *problem; // a fixed sentence
    int32_t line_bytes;
    int32_t head_bytes;
    int32_t n_headers;
    int32_t takes_body; // the method may have one
    int32_t chunked;
    int32_t has_length;
    int32_t in_trailer;
    int32_t header; // which of the watched ones this line is
    int32_t n_word; // of `word`
    int32_t reserved0;
    uint64_t length; // of the body, or of the chunk at hand, still to come
    uint64_t n_body; // bytes of a chunked body so far
    char word[32];   // method, version, a header's name, a watched header's value, a chunk's size
} pgd_serve_head;

void pgd_serve_head_init(pgd_serve_head *h, const pgd_serve_head_limits *limits);
// The next bytes of a connection. 0, or the status of a refusal; nothing is read behind one.
int32_t pgd_serve_head_read(pgd_serve_head *h, const char *bytes, size_t n);
// 1: a request has begun and is not complete; and: its head is.
int32_t pgd_serve_head_pending(const pgd_serve_head *h);
int32_t pgd_serve_head_in_body(const pgd_serve_head *h);

#endif
