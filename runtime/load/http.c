// HTTP over libcurl (see http.h). libcurl is not linked: it would bring two dozen libraries into
// every start of the program (docs/decisions).
#include "load/http.h"

#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "base/fail.h"
#include "base/mem.h"
#include "base/str.h"
#include "os/dl.h"
#include "os/env.h"

static size_t origin_len(const char *url) {
    const char *host = strstr(url, "://");
    return host == NULL ? 0 : (size_t)(host - url) + 3 + strcspn(host + 3, "/?#");
}

static char lower(char c) {
    return c >= 'A' && c <= 'Z' ? (char)(c - 'A' + 'a') : c;
}

int32_t pgd_load_http_same_origin(const char *a, const char *b) {
    size_t n = origin_len(a);
    if (n == 0 || n != origin_len(b)) {
        return 0;
    }
    for (size_t i = 0; i < n; i++) {
        // user@host is never the same as anything: it only serves to deceive.
        if (lower(a[i]) != lower(b[i]) || a[i] == '@') {
            return 0;
        }
    }
    return 1;
}

void pgd_load_http_escape(pgd_str text, char *out, size_t cap) {
    static const char hex[] = "0123456789ABCDEF";
    size_t at = 0;
    for (size_t i = 0; i < text.len && at + 4 <= cap; i++) {
        unsigned char c = (unsigned char)text.ptr[i];
        char l = lower((char)c);
        if ((l >= 'a' && l <= 'z') || (c >= '0' && c <= '9') || strchr("-._~", c) != NULL) {
            out[at++] = (char)c;
        } else {
            out[at++] = '%';
            out[at++] = hex[c >> 4];
            out[at++] = hex[c & 15];
        }
    }
    out[at] = '\0';
}

#ifdef PGD_WITH_CURL

#include <curl/curl.h>

#define LIBRARY         "libcurl.so.4"
#define AGENT           "pagoda"
#define CONNECT_S       15L
#define STALL_S         30L
#define BUFFER_BYTES    (256L << 10)
#define HEADER_NAME_MAX 32
#define MAX_TOKEN       1000

// The functions of libcurl that are used, by the names they have there.
#define CURL_CALLS(X)                                                         \
    X(CURL *, easy_init, (void))                                              \
    X(void, easy_cleanup, (CURL *))                                           \
    X(void, easy_reset, (CURL *))                                             \
    X(CURLcode, easy_setopt, (CURL *, CURLoption, ...))                       \
    X(CURLcode, easy_perform, (CURL *))                                       \
    X(CURLcode, easy_getinfo, (CURL *, CURLINFO, ...))                        \
    X(const char *, easy_strerror, (CURLcode))                                \
    X(struct curl_slist *, slist_append, (struct curl_slist *, const char *)) \
    X(void, slist_free_all, (struct curl_slist *))

typedef struct curl_calls {
#define CALL_FIELD(type, name, args) type(*name) args;
    CURL_CALLS(CALL_FIELD)
#undef CALL_FIELD
} curl_calls;

struct pgd_load_http {
    curl_calls curl;
    CURL *easy;
    // of the request that runs
    const pgd_load_http_request *request;
    pgd_load_http_reply *reply;
    pgd_status sunk; // what the sink said
    char error[CURL_ERROR_SIZE];
};

static pgd_status find_calls(void *lib, curl_calls *out) {
#define CALL_ROW(type, name, args) {"curl_" #name, offsetof(curl_calls, name)},
    static const struct {
        const char *name;
        size_t at;
    } rows[] = {CURL_CALLS(CALL_ROW)};
#undef CALL_ROW
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        void *address = NULL;
        if (pgd_os_dl_symbol(lib, rows[i].name, &address) != PGD_OK) {
            return pgd_fail(PGD_UNSUPPORTED, LIBRARY " has no function %s", rows[i].name);
        }
        // ISO C has no cast from void * to a function.
        memcpy((char *)out + rows[i].at, &address, sizeof(address));
    }
    return PGD_OK;
}

pgd_status pgd_load_http_open(pgd_load_http **out) {
    char why[300];
    void *lib = NULL;
    *out = NULL;
    if (pgd_os_dl_open_system(LIBRARY, &lib, why, sizeof(why)) != PGD_OK) {
        return pgd_fail(PGD_UNSUPPORTED, "downloads need libcurl, and it cannot be loaded: %s",
                        why);
    }
    pgd_load_http *h = pgd_mem_alloc(1, sizeof(*h));
    if (h == NULL) {
        return PGD_MEM_FAIL("a connection", sizeof(*h));
    }
    pgd_status status = find_calls(lib, &h->curl);
    if (status == PGD_OK) {
        h->easy = h->curl.easy_init();
        status = h->easy != NULL ? PGD_OK : pgd_fail(PGD_UNAVAILABLE, "libcurl does not start");
    }
    if (status != PGD_OK) {
        pgd_load_http_close(h);
        return status;
    }
    *out = h;
    return PGD_OK;
}

void pgd_load_http_close(pgd_load_http *h) {
    if (h != NULL) {
        if (h->easy != NULL) {
            h->curl.easy_cleanup(h->easy);
        }
        pgd_mem_free(h);
    }
}

static void put(char *out, size_t cap, pgd_str value) {
    // A value that does not fit is no value: half a name would be another one.
    size_t n = value.len < cap ? value.len : 0;
    memcpy(out, value.ptr, n);
    out[n] = '\0';
}

static void put_size(pgd_str text, uint64_t *out) {
    (void)pgd_str_to_u64(text, out);
}

// "bytes 100-199/200" -> 100
static void put_range(pgd_str value, uint64_t *out) {
    pgd_str rest = {0};
    if (pgd_str_starts(value, PGD_STR("bytes "))) {
        value.ptr += 6;
        value.len -= 6;
        put_size(pgd_str_cut(value, '-', &rest), out);
    }
}

static void clear_reply(pgd_load_http_reply *r) {
    *r = (pgd_load_http_reply){.length = PGD_LOAD_HTTP_UNKNOWN,
                               .range_start = PGD_LOAD_HTTP_UNKNOWN,
                               .linked_size = PGD_LOAD_HTTP_UNKNOWN};
}

static size_t on_header(char *bytes, size_t size, size_t n, void *arg) {
    pgd_load_http *h = arg;
    pgd_load_http_reply *r = h->reply;
    pgd_str value = {0};
    pgd_str line = {bytes, size * n};
    char name[HEADER_NAME_MAX];
    if (pgd_str_starts(line, PGD_STR("HTTP/"))) {
        clear_reply(r); // of a proxy or a 100 before the real one
        return size * n;
    }
    pgd_str key = pgd_str_cut(line, ':', &value);
    value = pgd_str_trim(value);
    if (key.len >= sizeof(name)) {
        return size * n;
    }
    put(name, sizeof(name), key);
    for (char *p = name; *p != '\0'; p++) {
        *p = lower(*p);
    }
    if (strcmp(name, "etag") == 0) {
        put(r->etag, sizeof(r->etag), value);
    } else if (strcmp(name, "x-linked-etag") == 0) {
        put(r->linked_etag, sizeof(r->linked_etag), value);
    } else if (strcmp(name, "x-repo-commit") == 0) {
        put(r->commit, sizeof(r->commit), value);
    } else if (strcmp(name, "x-error-code") == 0) {
        put(r->error_code, sizeof(r->error_code), value);
    } else if (strcmp(name, "content-length") == 0) {
        put_size(value, &r->length);
    } else if (strcmp(name, "x-linked-size") == 0) {
        put_size(value, &r->linked_size);
    } else if (strcmp(name, "content-range") == 0) {
        put_range(value, &r->range_start);
    }
    return size * n;
}

static size_t on_body(char *bytes, size_t size, size_t n, void *arg) {
    pgd_load_http *h = arg;
    long code = 0;
    (void)h->curl.easy_getinfo(h->easy, CURLINFO_RESPONSE_CODE, &code);
    h->reply->status = (int32_t)code;
    if ((code != 200 && code != 206) || h->request->sink == NULL) {
        return size * n;
    }
    h->sunk = h->request->sink(h->request->arg, h->reply, bytes, size * n);
    return h->sunk == PGD_OK ? size * n : 0;
}

// The first of these that is set names the file of certificates, as it does for Python's clients.
static const char *certificates(void) {
    static const char *const names[] = {"SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE"};
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        const char *path = pgd_os_env_secure(names[i]);
        if (path != NULL && path[0] != '\0') {
            return path;
        }
    }
    return NULL;
}

static pgd_status set_headers(pgd_load_http *h, struct curl_slist **out) {
    char line[MAX_TOKEN + 32];
    const char *token = h->request->token;
    *out = h->curl.slist_append(NULL, "Accept-Encoding: identity");
    if (token != NULL && *out != NULL) {
        (void)snprintf(line, sizeof(line), "Authorization: Bearer %s", token);
        struct curl_slist *longer = h->curl.slist_append(*out, line);
        if (longer == NULL) {
            h->curl.slist_free_all(*out);
        }
        *out = longer;
    }
    return *out != NULL ? PGD_OK : PGD_MEM_FAIL("the headers of a request", sizeof(line));
}

// range: NULL or "100-"
static void set_options(pgd_load_http *h, const char *range, const struct curl_slist *headers) {
    const pgd_load_http_request *r = h->request;
    const char *file = certificates();
    CURLcode (*set)(CURL *, CURLoption, ...) = h->curl.easy_setopt;
    h->curl.easy_reset(h->easy);
    (void)set(h->easy, CURLOPT_URL, r->url);
    (void)set(h->easy, CURLOPT_PROTOCOLS_STR, "http,https");
    (void)set(h->easy, CURLOPT_FOLLOWLOCATION, 0L);
    (void)set(h->easy, CURLOPT_NOSIGNAL, 1L);
    (void)set(h->easy, CURLOPT_NOPROGRESS, 1L);
    (void)set(h->easy, CURLOPT_USERAGENT, AGENT);
    (void)set(h->easy, CURLOPT_HTTPHEADER, headers);
    (void)set(h->easy, CURLOPT_NOBODY, r->head ? 1L : 0L);
    (void)set(h->easy, CURLOPT_CONNECTTIMEOUT, CONNECT_S);
    (void)set(h->easy, CURLOPT_LOW_SPEED_LIMIT, 1L);
    (void)set(h->easy, CURLOPT_LOW_SPEED_TIME, r->timeout_s > 0 ? (long)r->timeout_s : STALL_S);
    (void)set(h->easy, CURLOPT_BUFFERSIZE, BUFFER_BYTES);
    (void)set(h->easy, CURLOPT_ERRORBUFFER, h->error);
    (void)set(h->easy, CURLOPT_HEADERFUNCTION, on_header);
    (void)set(h->easy, CURLOPT_HEADERDATA, h);
    (void)set(h->easy, CURLOPT_WRITEFUNCTION, on_body);
    (void)set(h->easy, CURLOPT_WRITEDATA, h);
    if (range != NULL) {
        (void)set(h->easy, CURLOPT_RANGE, range);
    }
    if (file != NULL) {
        (void)set(h->easy, CURLOPT_CAINFO, file);
    }
}

// A line break in a token would be a header of its own.
static pgd_status check_token(const char *token) {
    size_t n = 0;
    for (; token != NULL && token[n] != '\0'; n++) {
        if (token[n] <= 0x20 || token[n] == 0x7f) {
            return pgd_fail(PGD_INVALID, "the token holds white space or a control character");
        }
    }
    if (n > MAX_TOKEN) {
        return pgd_fail(PGD_INVALID, "the token has %zu bytes; at most %d are allowed", n,
                        MAX_TOKEN);
    }
    return PGD_OK;
}

pgd_status pgd_load_http_ask(pgd_load_http *h, const pgd_load_http_request *request,
                             pgd_load_http_reply *out) {
    struct curl_slist *headers = NULL;
    long code = 0;
    char *location = NULL;
    char range[24];
    clear_reply(out);
    PGD_TRY(check_token(request->token));
    h->request = request;
    h->reply = out;
    h->sunk = PGD_OK;
    h->error[0] = '\0';
    PGD_TRY(set_headers(h, &headers));
    (void)snprintf(range, sizeof(range), "%llu-", (unsigned long long)request->from);
    set_options(h, request->from > 0 ? range : NULL, headers);
    CURLcode done = h->curl.easy_perform(h->easy);
    (void)h->curl.easy_getinfo(h->easy, CURLINFO_RESPONSE_CODE, &code);
    (void)h->curl.easy_getinfo(h->easy, CURLINFO_REDIRECT_URL, &location);
    h->curl.slist_free_all(headers);
    out->status = (int32_t)code;
    if (location != NULL) {
        put(out->location, sizeof(out->location), pgd_str_of(location));
    }
    if (h->sunk != PGD_OK) {
        return h->sunk;
    }
    if (done != CURLE_OK) {
        return pgd_fail(PGD_UNAVAILABLE, "%.*s: %s", (int)origin_len(request->url), request->url,
                        h->error[0] != '\0' ? h->error : h->curl.easy_strerror(done));
    }
    return PGD_OK;
}

#else

pgd_status pgd_load_http_open(pgd_load_http **out) {
    *out = NULL;
    return pgd_fail(PGD_UNSUPPORTED, "this build was made without libcurl and downloads nothing");
}

void pgd_load_http_close(pgd_load_http *h) {
    (void)h;
}

pgd_status pgd_load_http_ask(pgd_load_http *h, const pgd_load_http_request *request,
                             pgd_load_http_reply *out) {
    (void)h;
    (void)request;
    (void)out;
    return pgd_fail(PGD_UNSUPPORTED, "this build was made without libcurl and downloads nothing");
}

#endif
