// One request after the other over libcurl, which is opened when it is first needed: the program
// starts without it and runs without it.
//
// Nothing is followed by itself: a redirect is an answer. So whoever asks decides, host by host,
// whether the next one may see the token.
#ifndef PGD_LOAD_HTTP_H
#define PGD_LOAD_HTTP_H

#include "base/str.h"

#define PGD_LOAD_HTTP_URL     4096
#define PGD_LOAD_HTTP_UNKNOWN UINT64_MAX // a size that was not said

typedef struct pgd_load_http pgd_load_http;

typedef struct pgd_load_http_reply {
    int32_t status; // 200, 206, 302, 404 ...
    int32_t reserved0;
    uint64_t length;      // of this body, UNKNOWN when the server did not say
    uint64_t range_start; // of a 206, UNKNOWN when the server did not say
    uint64_t linked_size; // x-linked-size: of the file behind a redirect
    char etag[160];       // as sent: "..." or W/"..."
    char linked_etag[160];
    char commit[64]; // x-repo-commit
    char error_code[64];
    char location[PGD_LOAD_HTTP_URL]; // of a redirect, absolute
} pgd_load_http_reply;

typedef struct pgd_load_http_request {
    const char *url;   // http:// or https://
    const char *token; // sent as a bearer token; NULL = none
    int32_t head;      // 1: only the headers
    int32_t timeout_s; // of a connection on which nothing moves; 0 = 30
    uint64_t from;     // first byte asked for, 0 = all
    // Takes the body, of answers 200 and 206 only, piece by piece; the reply is complete up to the
    // body. A failure ends the transfer and is what the request returns.
    pgd_status (*sink)(void *arg, const pgd_load_http_reply *reply, const char *bytes, size_t n);
    void *arg;
} pgd_load_http_request;

//   fails  UNSUPPORTED when this build or this system has no libcurl
pgd_status pgd_load_http_open(pgd_load_http **out) PGD_MUST_USE;
void pgd_load_http_close(pgd_load_http *h); // NULL is fine

// Any answer of the server is PGD_OK; out->status says which.
//   fails  UNAVAILABLE (no connection, or it broke: the reason in words), INVALID (the url or the
//          token), the failure of the sink
pgd_status pgd_load_http_ask(pgd_load_http *h, const pgd_load_http_request *request,
                             pgd_load_http_reply *out) PGD_MUST_USE;

// Percent-encodes all but letters, digits, - . _ ~; cut at cap.
void pgd_load_http_escape(pgd_str text, char *out, size_t cap);
// 1 when two urls have the same scheme, host and port.
int32_t pgd_load_http_same_origin(const char *a, const char *b);

#endif
