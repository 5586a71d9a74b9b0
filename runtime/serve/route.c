// Which function answers which path. Deny by default: every route needs the key when one is set,
// but those marked OPEN (interfaces.md, section 5).
#include <stdio.h>
#include <string.h>

#include <event2/util.h>

#include "base/fail.h"
#include "serve/inner.h"

#define JSON_TYPE "application/json"

static const char one_model[] = "/v1/models/";

typedef struct route {
    const char *path;
    int32_t method; // PGD_SERVE_GET or PGD_SERVE_POST
    int32_t open;   // 1: without a key
    void (*fn)(pgd_server *s, pgd_serve_exchange *x);
} route;

// ---- answers -----------------------------------------------------------------------------------

void pgd_serve_reply_json(pgd_server *s, pgd_serve_exchange *x, int32_t status, pgd_str body) {
    pgd_serve_answered(s, x, status, NULL);
    pgd_serve_exchange_reply(x, status, JSON_TYPE, body);
}

void pgd_serve_reply_error(pgd_server *s, pgd_serve_exchange *x, const pgd_api_error *e) {
    pgd_text t = {0};
    char seconds[16];
    if (e->retry_after_s > 0) {
        (void)snprintf(seconds, sizeof(seconds), "%d", e->retry_after_s);
        pgd_serve_exchange_add(x, "Retry-After", seconds);
    }
    if (e->status == 401) {
        pgd_serve_exchange_add(x, "WWW-Authenticate", "Bearer");
    }
    if (pgd_api_error_add(&t, e) != PGD_OK) {
        pgd_text_free(&t);
    }
    pgd_serve_answered_error(s, x, e, NULL);
    pgd_serve_exchange_reply(x, e->status, JSON_TYPE, pgd_text_view(&t));
    pgd_text_free(&t);
}

// ---- small routes ------------------------------------------------------------------------------

static void reply_text(pgd_server *s, pgd_serve_exchange *x, int32_t status, const char *text) {
    pgd_serve_answered(s, x, status, NULL);
    pgd_serve_exchange_reply(x, status, "text/plain; charset=utf-8", pgd_str_of(text));
}

static void get_live(pgd_server *s, pgd_serve_exchange *x) {
    reply_text(s, x, 200, "ok\n");
}

static void get_ready(pgd_server *s, pgd_serve_exchange *x) {
    const int32_t ready = !s->draining && !s->stuck;
    if (!ready) {
        pgd_serve_exchange_add(x, "Retry-After", "5");
    }
    reply_text(s, x, ready ? 200 : 503, ready ? "ok\n" : s->draining ? "draining\n" : "stuck\n");
}

static void get_openapi(pgd_server *s, pgd_serve_exchange *x) {
    pgd_serve_reply_json(s, x, 200, pgd_text_view(&s->openapi));
}

static void get_all_models(pgd_server *s, pgd_serve_exchange *x) {
    pgd_serve_get_models(s, x, NULL);
}

static void post_chat(pgd_server *s, pgd_serve_exchange *x) {
    pgd_serve_call_begin(s, x, 1);
}

static void post_completion(pgd_server *s, pgd_serve_exchange *x) {
    pgd_serve_call_begin(s, x, 0);
}

static const route routes[] = {
    {"/v1/chat/completions", PGD_SERVE_POST, 0, post_chat},
    {"/v1/completions", PGD_SERVE_POST, 0, post_completion},
    {"/v1/models", PGD_SERVE_GET, 0, get_all_models},
    {"/tokenize", PGD_SERVE_POST, 0, pgd_serve_post_tokenize},
    {"/detokenize", PGD_SERVE_POST, 0, pgd_serve_post_detokenize},
    {"/tokenizer_info", PGD_SERVE_GET, 0, pgd_serve_get_tokenizer_info},
    {"/health", PGD_SERVE_GET, 1, get_ready},
    {"/readyz", PGD_SERVE_GET, 1, get_ready},
    {"/livez", PGD_SERVE_GET, 1, get_live},
    {"/ping", PGD_SERVE_GET, 0, get_ready},
    {"/ping", PGD_SERVE_POST, 0, get_ready},
    {"/version", PGD_SERVE_GET, 0, pgd_serve_get_version},
    {"/load", PGD_SERVE_GET, 0, pgd_serve_get_load},
    {"/metrics", PGD_SERVE_GET, 0, pgd_serve_get_metrics},
    {"/openapi.json", PGD_SERVE_GET, 0, get_openapi},
};

_Static_assert(sizeof(routes) / sizeof(routes[0]) < PGD_SERVE_HANDLERS - 2, "two more: see below");

// Behind the routes: one model by its name, and whatever else is asked for.
int32_t pgd_serve_handler_of(const char *path) {
    const int32_t n = (int32_t)(sizeof(routes) / sizeof(routes[0]));
    int32_t at = 0;
    while (at < n && strcmp(path, routes[at].path) != 0) {
        at++;
    }
    return at < n ? at : strncmp(path, one_model, sizeof(one_model) - 1) == 0 ? n : n + 1;
}

const char *pgd_serve_handler_name(int32_t handler) {
    const int32_t n = (int32_t)(sizeof(routes) / sizeof(routes[0]));
    return handler < n ? routes[handler].path : handler == n ? "/v1/models/{id}" : "";
}

// ---- checks before any route -------------------------------------------------------------------

// An address: "127.evil.example" is a name that anybody may have.
static int32_t is_loopback(const char *host) {
    return evutil_ascii_strcasecmp(host, "localhost") == 0 ||
           (strncmp(host, "127.", 4) == 0 && host[strspn(host, "0123456789.")] == '\0') ||
           strcmp(host, "::1") == 0 || strcmp(host, "[::1]") == 0;
}

// On loopback only names of loopback are taken: a page of another site cannot make a name of its
// own point here (DNS rebinding, CVE-2024-28224).
static int32_t check_host(const pgd_server *s, pgd_serve_exchange *x, pgd_api_error *e) {
    const char *given = pgd_serve_exchange_header(x, "Host");
    char host[256];
    if (!is_loopback(s->o.host) || given == NULL) {
        return 0;
    }
    (void)snprintf(host, sizeof(host), "%s", given);
    char *port = strrchr(host, ':');
    if (port != NULL && strchr(port, ']') == NULL) {
        *port = '\0';
    }
    if (is_loopback(host) || evutil_ascii_strcasecmp(host, s->o.host) == 0) {
        return 0;
    }
    return pgd_api_refuse(e, 403, NULL, NULL,
                          "the Host header names another host; this server listens on %s",
                          s->o.host);
}

static int32_t allows_origin(const pgd_server *s, const char *origin) {
    for (uint32_t i = 0; i < s->o.n_origins; i++) {
        if (strcmp(s->o.origins[i], "*") == 0 || strcmp(s->o.origins[i], origin) == 0) {
            return 1;
        }
    }
    return 0;
}

// A page of another site may send a POST without being able to read the answer; here it would make
// this machine work for it. A page of ours has the Host in its Origin.
static int32_t check_origin(const pgd_server *s, pgd_serve_exchange *x, pgd_api_error *e) {
    const char *origin = pgd_serve_exchange_header(x, "Origin");
    const char *host = pgd_serve_exchange_header(x, "Host");
    const char *authority = origin != NULL ? strstr(origin, "://") : NULL;
    if (origin == NULL || !is_loopback(s->o.host) ||
        pgd_serve_exchange_method(x) != PGD_SERVE_POST || allows_origin(s, origin) ||
        (host != NULL && authority != NULL && evutil_ascii_strcasecmp(authority + 3, host) == 0)) {
        return 0;
    }
    return pgd_api_refuse(e, 403, NULL, NULL,
                          "the Origin header names another site; --allowed-origin lets one in");
}

static void add_cors(const pgd_server *s, pgd_serve_exchange *x) {
    const char *origin = pgd_serve_exchange_header(x, "Origin");
    if (origin != NULL && allows_origin(s, origin)) {
        pgd_serve_exchange_add(x, "Access-Control-Allow-Origin", origin);
        pgd_serve_exchange_add(x, "Vary", "Origin");
        if (pgd_serve_exchange_method(x) == PGD_SERVE_OPTIONS) {
            pgd_serve_exchange_add(x, "Access-Control-Allow-Methods", "GET, POST, OPTIONS");
            pgd_serve_exchange_add(x, "Access-Control-Allow-Headers",
                                   "Authorization, Content-Type, X-Request-Id");
            pgd_serve_exchange_add(x, "Access-Control-Max-Age", "600");
        }
    }
}

// X-Request-Id of the client when it is short and printable, else one of ours.
static void add_request_id(pgd_server *s, pgd_serve_exchange *x) {
    const char *given = pgd_serve_exchange_header(x, "X-Request-Id");
    size_t n = 0;
    while (given != NULL && given[n] > ' ' && given[n] < 0x7F) {
        n++;
    }
    if (given != NULL && n > 0 && n <= 128 && given[n] == '\0') {
        pgd_serve_exchange_set_id(x, given);
        return;
    }
    char id[40];
    uint64_t state = s->salt ^ 0x5DEECE66Du ^ s->n_ids++;
    (void)snprintf(id, sizeof(id), "req-%016llx", (unsigned long long)pgd_rng_next(&state));
    pgd_serve_exchange_set_id(x, id);
}

static int32_t check_key(const pgd_server *s, pgd_serve_exchange *x, pgd_api_error *e) {
    if (s->keys == NULL ||
        pgd_serve_keys_find(s->keys, pgd_serve_exchange_header(x, "Authorization")) > 0) {
        return 0;
    }
    return pgd_api_refuse(e, 401, NULL, "invalid_api_key",
                          "the API key is missing or wrong; send Authorization: Bearer KEY");
}

static int32_t check_body(const pgd_server *s, pgd_serve_exchange *x, pgd_api_error *e) {
    const char *type = pgd_serve_exchange_header(x, "Content-Type");
    const size_t bytes = pgd_serve_exchange_body(x).len;
    if (bytes > s->o.max_body_bytes) {
        return pgd_api_refuse(e, 413, NULL, NULL, "the body has %zu bytes; %llu are allowed", bytes,
                              (unsigned long long)s->o.max_body_bytes);
    }
    if (type != NULL && evutil_ascii_strncasecmp(type, JSON_TYPE, sizeof(JSON_TYPE) - 1) != 0 &&
        bytes > 0) {
        return pgd_api_refuse(e, 415, NULL, NULL,
                              "Content-Type is %.64s; application/json is allowed", type);
    }
    return 0;
}

// ---- routing -----------------------------------------------------------------------------------

static int32_t serve_page(pgd_server *s, pgd_serve_exchange *x, const char *path) {
    const char *type = NULL;
    size_t len = 0;
    const char *file = s->o.no_page || pgd_serve_exchange_method(x) != PGD_SERVE_GET
                           ? NULL
                           : pgd_serve_page(path, &type, &len);
    if (file == NULL) {
        return 0;
    }
    pgd_serve_exchange_add(x, "Content-Security-Policy",
                           "default-src 'none'; script-src 'self'; style-src 'self'; "
                           "img-src 'self' data:; connect-src 'self'; base-uri 'none'; "
                           "form-action 'none'; frame-ancestors 'none'");
    pgd_serve_exchange_add(x, "X-Content-Type-Options", "nosniff");
    pgd_serve_exchange_add(x, "Referrer-Policy", "no-referrer");
    pgd_serve_exchange_add(x, "Cache-Control", "no-cache");
    pgd_serve_answered(s, x, 200, NULL);
    pgd_serve_exchange_reply(x, 200, type, (pgd_str){file, len});
    return 1;
}

// known: the methods that the path takes, a bit each.
static const route *find_route(const char *path, int32_t method, uint32_t *known) {
    *known = 0;
    for (size_t i = 0; i < sizeof(routes) / sizeof(routes[0]); i++) {
        if (strcmp(path, routes[i].path) == 0) {
            *known |= 1u << routes[i].method;
            if (routes[i].method == method) {
                return &routes[i];
            }
        }
    }
    return NULL;
}

static void refuse_route(pgd_server *s, pgd_serve_exchange *x, uint32_t known, pgd_api_error *e) {
    const uint32_t get = 1u << PGD_SERVE_GET;
    if (known != 0) {
        pgd_serve_exchange_add(x, "Allow",
                               known == get  ? "GET, HEAD"
                               : known & get ? "GET, HEAD, POST"
                                             : "POST");
    }
    (void)pgd_api_refuse(e, known ? 405 : 404, NULL, NULL,
                         known ? "%.128s does not take this method" : "%.128s: no such route",
                         pgd_serve_exchange_path(x));
    pgd_serve_reply_error(s, x, e);
}

static void dispatch(pgd_server *s, pgd_serve_exchange *x, pgd_api_error *e) {
    const char *path = pgd_serve_exchange_path(x);
    const int32_t method = pgd_serve_exchange_method(x);
    uint32_t known = 0;
    const route *r = find_route(path, method, &known);
    if (r == NULL && method == PGD_SERVE_OPTIONS && s->o.n_origins > 0) {
        pgd_serve_answered(s, x, 204, NULL);
        pgd_serve_exchange_reply(x, 204, "text/plain", (pgd_str){"", 0});
        return;
    }
    if (r == NULL && !known && serve_page(s, x, path)) {
        return;
    }
    if ((r == NULL || !r->open) && check_key(s, x, e) != 0) {
        pgd_serve_reply_error(s, x, e);
        return;
    }
    if (r != NULL && method == PGD_SERVE_POST && check_body(s, x, e) != 0) {
        pgd_serve_reply_error(s, x, e);
        return;
    }
    if (r != NULL) {
        r->fn(s, x);
    } else if (method == PGD_SERVE_GET && strncmp(path, one_model, sizeof(one_model) - 1) == 0) {
        pgd_serve_get_models(s, x, path + sizeof(one_model) - 1);
    } else {
        refuse_route(s, x, known, e);
    }
}

void pgd_serve_route(void *server, pgd_serve_exchange *x) {
    pgd_server *s = server;
    pgd_api_error e = {0};
    add_request_id(s, x);
    add_cors(s, x);
    if (check_host(s, x, &e) != 0 || check_origin(s, x, &e) != 0) {
        pgd_serve_reply_error(s, x, &e);
        return;
    }
    dispatch(s, x, &e);
}
