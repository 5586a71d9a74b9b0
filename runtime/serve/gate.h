// The gate of a loop: every connection from accept to close.
//
//   accept -> gate: counted -> bytes -> head.c -> libevent -> exchange
//                      |                   |
//                      +--- too many       +--- wrong, too large, too slow: an error object, the
//                           of them             rest is read over for a moment, then it is closed
//
// All functions belong to the loop's thread.
#ifndef PGD_SERVE_GATE_H
#define PGD_SERVE_GATE_H

#include <stdatomic.h>

#include "api/error.h"
#include "serve/head.h"

struct bufferevent;
struct event;
struct event_base;
struct evhttp_connection;

typedef struct pgd_serve_gate pgd_serve_gate;

typedef struct pgd_serve_gates {
    struct event_base *base;
    pgd_serve_head_limits limits;
    int32_t head_s;          // time for a request's head, and between signs of life of its body
    int32_t max_connections; // of all loops together
    _Atomic int32_t *n_connections;
    void (*refused)(void *arg, const pgd_api_error *e, const char *peer); // may be NULL
    void *arg;
    // its own
    struct event *adopt;
    pgd_serve_gate *accepted;
    pgd_serve_gate **by_fd;
    int32_t cap_fd;
    int32_t reserved0;
} pgd_serve_gates;

pgd_status pgd_serve_gates_open(pgd_serve_gates *g) PGD_MUST_USE;
// Behind the end of all connections.
void pgd_serve_gates_close(pgd_serve_gates *g);
// A connection that libevent is about to take over. 0 = no memory; it is not watched then.
int32_t pgd_serve_gates_add(pgd_serve_gates *g, struct bufferevent *bev);
// NULL: the connection is not watched.
pgd_serve_gate *pgd_serve_gate_of(pgd_serve_gates *g, struct evhttp_connection *connection);
// While an answer is being made: closed is called when the connection ends first.
void pgd_serve_gate_busy(pgd_serve_gate *gate, void (*closed)(void *arg), void *arg);
void pgd_serve_gate_idle(pgd_serve_gate *gate);

#endif
