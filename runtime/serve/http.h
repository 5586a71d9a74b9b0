// HTTP on event loops that only move bytes.
//
//   socket -> loop (one thread, libevent) -> handler(exchange)
//                 ^                            |  answers at once, or later from the loop's thread
//                 +---- pgd_serve_loop_post ---+  the one door from other threads
//
// An exchange is one request and its answer. It lives on its loop until it is answered (reply, or
// start and end) or its client leaves; on_gone tells the owner of an exchange kept for later. All
// functions but post and stop belong to the loop's thread.
#ifndef PGD_SERVE_HTTP_H
#define PGD_SERVE_HTTP_H

#include <stdint.h>

#include "api/error.h"
#include "base/str.h"
#include "serve/head.h"

typedef struct pgd_serve_loop pgd_serve_loop;
typedef struct pgd_serve_exchange pgd_serve_exchange;

typedef struct pgd_serve_http_options {
    const char *host;
    int32_t port;   // 0 = any free one
    int32_t shared; // 1: another loop has this port
    int32_t head_s; // for a request's head to come
    pgd_serve_head_limits limits;
    int32_t idle_s; // of a connection without a request
    int32_t max_connections;
    _Atomic int32_t *n_connections; // of all loops together
    // What never became an exchange: broken, too large, too slow, one connection too many.
    void (*refused)(void *arg, const pgd_api_error *e, const char *peer);
    const char *cert_file; // PEM, both or none: TLS
    const char *key_file;
    void (*handler)(void *arg, pgd_serve_exchange *x);
    void *arg;
    void (*tick)(void *arg); // once a second, and when it was asked for; may be NULL
    void *tick_arg;
} pgd_serve_http_options;

// Binds and listens; several loops may share one port. Nothing runs yet.
//   fails  INVALID (host), UNAVAILABLE (port taken), NOT_FOUND or INVALID (TLS files)
pgd_status pgd_serve_loop_create(const pgd_serve_http_options *o,
                                 pgd_serve_loop **out) PGD_MUST_USE;
int32_t pgd_serve_loop_port(const pgd_serve_loop *loop);
// Starts the loop's thread.
pgd_status pgd_serve_loop_start(pgd_serve_loop *loop) PGD_MUST_USE;
// [any] No new connections; those without a request are closed.
void pgd_serve_loop_drain(pgd_serve_loop *loop);
// [any] Ends the thread at once and joins it; open exchanges are gone.
void pgd_serve_loop_stop(pgd_serve_loop *loop);
void pgd_serve_loop_destroy(pgd_serve_loop *loop);       // NULL is fine
int32_t pgd_serve_loop_open(const pgd_serve_loop *loop); // [any] exchanges

// A tick at that time, beside those of every second; the loop's thread.
void pgd_serve_loop_tick_by(pgd_serve_loop *loop, uint64_t ns);

// Work for the loop's thread. The note belongs to the caller and may be posted again only after fn
// was entered.
typedef struct pgd_serve_note pgd_serve_note;
struct pgd_serve_note {
    pgd_serve_note *next;
    void (*fn)(void *arg);
    void *arg;
};
// [any] Notes run in the order in which they were posted.
void pgd_serve_loop_post(pgd_serve_loop *loop, pgd_serve_note *note);
// ---- an exchange -------------------------------------------------------------------------------

enum { PGD_SERVE_GET = 0, PGD_SERVE_POST = 1, PGD_SERVE_OPTIONS = 2, PGD_SERVE_OTHER = 3 };

pgd_serve_loop *pgd_serve_exchange_loop(pgd_serve_exchange *x);
int32_t pgd_serve_exchange_method(const pgd_serve_exchange *x);   // HEAD counts as GET
const char *pgd_serve_exchange_path(const pgd_serve_exchange *x); // without the query
// A header of the request, NULL if there is none.
const char *pgd_serve_exchange_header(const pgd_serve_exchange *x, const char *name);
pgd_str pgd_serve_exchange_body(pgd_serve_exchange *x);
const char *pgd_serve_exchange_peer(const pgd_serve_exchange *x); // address of the client
uint64_t pgd_serve_exchange_start_ns(const pgd_serve_exchange *x);

// Keeps the exchange beyond the handler. on_gone is called once if its client leaves first; the
// exchange is then freed when it returns.
void pgd_serve_exchange_keep(pgd_serve_exchange *x, void (*on_gone)(void *arg), void *arg);
// The id of the exchange, at most 128 bytes: kept, and a header of the answer.
void pgd_serve_exchange_set_id(pgd_serve_exchange *x, const char *id);
const char *pgd_serve_exchange_id(const pgd_serve_exchange *x);
// Adds a header to the answer; before reply or start. Values with line breaks are left out.
void pgd_serve_exchange_add(pgd_serve_exchange *x, const char *name, const char *value);
// The whole answer; the exchange is freed.
void pgd_serve_exchange_reply(pgd_serve_exchange *x, int32_t status, const char *type,
                              pgd_str body);
// An answer in pieces.
void pgd_serve_exchange_start(pgd_serve_exchange *x, int32_t status, const char *type);
void pgd_serve_exchange_send(pgd_serve_exchange *x, pgd_str bytes);
void pgd_serve_exchange_end(pgd_serve_exchange *x); // frees
// Closes the connection in the midst of an answer; frees.
void pgd_serve_exchange_cut(pgd_serve_exchange *x);
// Bytes that the client has not taken yet.
uint64_t pgd_serve_exchange_pending(const pgd_serve_exchange *x);

#endif
