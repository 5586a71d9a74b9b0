// See http.h. evhttp does the protocol; this file keeps an eye on the connection while an answer is
// being made: evhttp stops reading behind a request, so a client that leaves would be noticed only
// at the next write. Reading is switched on again with no read callback and a watermark, which
// gives the end-of-file event and bounds what is buffered.
#include "serve/http.h"

#include <errno.h>
#include <string.h>

#include <event2/buffer.h>
#include <event2/bufferevent.h>
#include <event2/bufferevent_ssl.h>
#include <event2/event.h>
#include <event2/http.h>
#include <event2/keyvalq_struct.h>
#include <event2/thread.h>
#include <openssl/ssl.h>

#include "base/clock.h"
#include "base/fail.h"
#include "base/mem.h"
#include "os/socket.h"
#include "os/thread.h"
#include "serve/gate.h"

#define READ_AHEAD_BYTES 65536
#define END_LOOK_US      2000
#define WRITE_STALL_S    60
#define ABOVE_OURS       65536 // libevent's own limits lie above ours, which have a sentence

struct pgd_serve_loop {
    pgd_serve_http_options options;
    struct event_base *base;
    struct evhttp *http;
    struct evhttp_bound_socket *bound;
    struct event *wake;
    struct event *tick; // NULL: nobody wants it
    struct event *soon; // a tick before its time
    uint64_t soon_ns;   // when, 0 = none
    SSL_CTX *tls;
    pgd_serve_gates gates;
    int32_t port;
    int32_t running;
    _Atomic int32_t exchanges;
    _Atomic int32_t stopping;
    _Atomic int32_t draining;
    pgd_os_thread thread;
    pgd_os_mutex notes_mutex;
    pgd_serve_note *notes; // newest last
    pgd_serve_note **notes_end;
    pgd_serve_exchange *open; // kept for later
};

struct pgd_serve_exchange {
    pgd_serve_loop *loop;
    struct evhttp_request *request;
    struct evhttp_connection *connection; // NULL = the client has left
    pgd_serve_gate *gate;                 // of the connection
    pgd_serve_exchange *prev;
    pgd_serve_exchange *next;
    void (*on_gone)(void *arg);
    void *arg;
    const char *path;
    char id[132];
    uint64_t start_ns;
    struct event *end_timer; // of an answer that has ended and is not written yet
    int32_t quiet_looks;     // of the timer that found nothing to be written
    int32_t kept;
    int32_t started;
    int32_t reserved0;
};

// ---- loop --------------------------------------------------------------------------------------

static void run_notes(evutil_socket_t fd, short what, void *arg) {
    pgd_serve_loop *loop = arg;
    (void)fd;
    (void)what;
    pthread_mutex_lock(&loop->notes_mutex);
    pgd_serve_note *note = loop->notes;
    loop->notes = NULL;
    loop->notes_end = &loop->notes;
    pthread_mutex_unlock(&loop->notes_mutex);
    while (note != NULL) {
        pgd_serve_note *next = note->next;
        note->fn(note->arg);
        note = next;
    }
    if (loop->draining && loop->bound != NULL) {
        evhttp_del_accept_socket(loop->http, loop->bound);
        loop->bound = NULL;
    }
    if (loop->stopping) {
        event_base_loopbreak(loop->base);
    }
}

void pgd_serve_loop_post(pgd_serve_loop *loop, pgd_serve_note *note) {
    note->next = NULL;
    pthread_mutex_lock(&loop->notes_mutex);
    int32_t was_empty = loop->notes == NULL;
    *loop->notes_end = note;
    loop->notes_end = &note->next;
    pthread_mutex_unlock(&loop->notes_mutex);
    if (was_empty) {
        event_active(loop->wake, EV_READ, 0);
    }
}

static void run_tick(evutil_socket_t fd, short what, void *arg) {
    pgd_serve_loop *loop = arg;
    (void)fd;
    (void)what;
    loop->options.tick(loop->options.tick_arg);
}

static void run_soon(evutil_socket_t fd, short what, void *arg) {
    pgd_serve_loop *loop = arg;
    loop->soon_ns = 0;
    run_tick(fd, what, arg);
}

void pgd_serve_loop_tick_by(pgd_serve_loop *loop, uint64_t ns) {
    if (loop->soon_ns != 0 && loop->soon_ns <= ns) {
        return;
    }
    const uint64_t now = pgd_clock_ns();
    const uint64_t us = ns > now ? (ns - now) / 1000 + 1 : 0;
    const struct timeval when = {.tv_sec = (long)(us / 1000000), .tv_usec = (long)(us % 1000000)};
    loop->soon_ns = ns;
    event_add(loop->soon, &when);
}

static void on_request(struct evhttp_request *request, void *arg);

static struct bufferevent *make_connection(struct event_base *base, void *arg) {
    pgd_serve_loop *loop = arg;
    struct bufferevent *bev = NULL;
    if (loop->tls == NULL) {
        bev = bufferevent_socket_new(base, -1, BEV_OPT_CLOSE_ON_FREE);
    } else {
        SSL *ssl = SSL_new(loop->tls);
        bev = ssl != NULL ? bufferevent_openssl_socket_new(base, -1, ssl, BUFFEREVENT_SSL_ACCEPTING,
                                                           BEV_OPT_CLOSE_ON_FREE)
                          : NULL;
        if (bev != NULL) {
            bufferevent_openssl_set_allow_dirty_shutdown(bev, 1);
        }
    }
    if (bev != NULL) {
        (void)pgd_serve_gates_add(&loop->gates, bev);
    }
    return bev;
}

static pgd_status open_tls(pgd_serve_loop *loop) {
    const pgd_serve_http_options *o = &loop->options;
    if (o->cert_file == NULL && o->key_file == NULL) {
        return PGD_OK;
    }
    if (o->cert_file == NULL || o->key_file == NULL) {
        return pgd_fail(PGD_INVALID, "TLS needs a certificate and a key; one of them is missing");
    }
    loop->tls = SSL_CTX_new(TLS_server_method());
    if (loop->tls == NULL) {
        return pgd_fail(PGD_OUT_OF_MEMORY, "no memory for TLS");
    }
    SSL_CTX_set_min_proto_version(loop->tls, TLS1_2_VERSION);
    if (SSL_CTX_use_certificate_chain_file(loop->tls, o->cert_file) != 1) {
        return pgd_fail(PGD_INVALID, "%s: not a PEM certificate that can be read", o->cert_file);
    }
    if (SSL_CTX_use_PrivateKey_file(loop->tls, o->key_file, SSL_FILETYPE_PEM) != 1 ||
        SSL_CTX_check_private_key(loop->tls) != 1) {
        return pgd_fail(PGD_INVALID, "%s: not the PEM key of the certificate %s", o->key_file,
                        o->cert_file);
    }
    return PGD_OK;
}

static pgd_status listen_on(pgd_serve_loop *loop) {
    const pgd_serve_http_options *o = &loop->options;
    const char *host = strcmp(o->host, "localhost") == 0 ? "127.0.0.1" : o->host;
    int32_t fd = -1;
    const pgd_status status = pgd_os_socket_listen(host, o->port, o->shared, &fd);
    if (status == PGD_INVALID) {
        return pgd_fail(status, "host \"%s\"; an address is allowed: 127.0.0.1, 0.0.0.0, ::1 ...",
                        o->host);
    }
    if (status != PGD_OK) {
        return pgd_fail(status, "%s:%d cannot be listened on: %s", o->host, o->port,
                        strerror(errno));
    }
    loop->port = pgd_os_socket_port(fd);
    loop->bound = evhttp_accept_socket_with_handle(loop->http, fd);
    if (loop->bound == NULL) {
        evutil_closesocket(fd);
        return pgd_fail(PGD_OUT_OF_MEMORY, "no memory for a listener");
    }
    return PGD_OK;
}

static pgd_status open_loop(pgd_serve_loop *loop) {
    const pgd_serve_http_options *o = &loop->options;
    PGD_TRY(open_tls(loop));
    if (evthread_use_pthreads() != 0) {
        return pgd_fail(PGD_INTERNAL, "libevent was built without threads");
    }
    loop->base = event_base_new();
    loop->http = loop->base != NULL ? evhttp_new(loop->base) : NULL;
    loop->wake = loop->base != NULL ? event_new(loop->base, -1, EV_PERSIST, run_notes, loop) : NULL;
    if (loop->http == NULL || loop->wake == NULL) {
        return pgd_fail(PGD_OUT_OF_MEMORY, "no memory for an event loop");
    }
    loop->gates = (pgd_serve_gates){.base = loop->base,
                                    .limits = o->limits,
                                    .head_s = o->head_s,
                                    .max_connections = o->max_connections,
                                    .n_connections = o->n_connections,
                                    .refused = o->refused,
                                    .arg = o->arg};
    PGD_TRY(pgd_serve_gates_open(&loop->gates));
    if (o->tick != NULL) {
        const struct timeval second = {.tv_sec = 1};
        loop->tick = event_new(loop->base, -1, EV_PERSIST, run_tick, loop);
        loop->soon = evtimer_new(loop->base, run_soon, loop);
        if (loop->tick == NULL || loop->soon == NULL || event_add(loop->tick, &second) != 0) {
            return pgd_fail(PGD_OUT_OF_MEMORY, "no memory for a timer");
        }
    }
    evhttp_set_gencb(loop->http, on_request, loop);
    evhttp_set_bevcb(loop->http, make_connection, loop);
    evhttp_set_allowed_methods(loop->http, EVHTTP_REQ_GET | EVHTTP_REQ_HEAD | EVHTTP_REQ_POST |
                                               EVHTTP_REQ_PUT | EVHTTP_REQ_DELETE |
                                               EVHTTP_REQ_PATCH | EVHTTP_REQ_OPTIONS);
    evhttp_set_max_headers_size(loop->http, o->limits.header_bytes + ABOVE_OURS);
    evhttp_set_max_body_size(loop->http, (ev_ssize_t)(o->limits.body_bytes + ABOVE_OURS));
    evhttp_set_timeout(loop->http, o->idle_s);
    return listen_on(loop);
}

pgd_status pgd_serve_loop_create(const pgd_serve_http_options *o, pgd_serve_loop **out) {
    *out = NULL;
    pgd_serve_loop *loop = pgd_mem_alloc(1, sizeof(*loop));
    if (loop == NULL) {
        return PGD_MEM_FAIL("an event loop", sizeof(*loop));
    }
    loop->options = *o;
    loop->notes_end = &loop->notes;
    pthread_mutex_init(&loop->notes_mutex, NULL);
    pgd_status status = open_loop(loop);
    if (status != PGD_OK) {
        pgd_serve_loop_destroy(loop);
        return status;
    }
    *out = loop;
    return PGD_OK;
}

int32_t pgd_serve_loop_port(const pgd_serve_loop *loop) {
    return loop->port;
}

static void *run_loop(void *arg) {
    pgd_serve_loop *loop = arg;
    event_base_loop(loop->base, EVLOOP_NO_EXIT_ON_EMPTY);
    return NULL;
}

pgd_status pgd_serve_loop_start(pgd_serve_loop *loop) {
    PGD_TRY(pgd_os_thread_start("pagoda-http", run_loop, loop, &loop->thread));
    loop->running = 1;
    return PGD_OK;
}

void pgd_serve_loop_drain(pgd_serve_loop *loop) {
    loop->draining = 1;
    event_active(loop->wake, EV_READ, 0);
}

void pgd_serve_loop_stop(pgd_serve_loop *loop) {
    if (loop->running) {
        loop->stopping = 1;
        event_active(loop->wake, EV_READ, 0);
        pgd_os_thread_join(loop->thread);
        loop->running = 0;
    }
}

void pgd_serve_loop_destroy(pgd_serve_loop *loop) {
    if (loop == NULL) {
        return;
    }
    pgd_serve_loop_stop(loop);
    run_notes(-1, 0, loop);
    if (loop->http != NULL) {
        evhttp_free(loop->http); // closes connections; open exchanges hear of it
    }
    pgd_serve_gates_close(&loop->gates);
    if (loop->wake != NULL) {
        event_free(loop->wake);
    }
    if (loop->tick != NULL) {
        event_free(loop->tick);
    }
    if (loop->soon != NULL) {
        event_free(loop->soon);
    }
    if (loop->base != NULL) {
        event_base_free(loop->base);
    }
    SSL_CTX_free(loop->tls);
    pthread_mutex_destroy(&loop->notes_mutex);
    pgd_mem_free(loop);
}

int32_t pgd_serve_loop_open(const pgd_serve_loop *loop) {
    return ((pgd_serve_loop *)loop)->exchanges;
}

// ---- exchange ----------------------------------------------------------------------------------

static void unlink_exchange(pgd_serve_exchange *x) {
    if (x->prev != NULL) {
        x->prev->next = x->next;
    } else if (x->loop->open == x) {
        x->loop->open = x->next;
    }
    if (x->next != NULL) {
        x->next->prev = x->prev;
    }
    x->loop->exchanges--;
    if (x->end_timer != NULL) {
        event_free(x->end_timer);
    }
    if (x->gate != NULL && x->connection != NULL) {
        pgd_serve_gate_idle(x->gate);
    }
    pgd_mem_free(x);
}

// A connection that failed has let go of its request, which is ours then; one that evhttp_free
// closes frees it itself.
static void on_closed(void *arg) {
    pgd_serve_exchange *x = arg;
    struct evhttp_request *request = x->request;
    x->connection = NULL;
    if (x->on_gone != NULL) {
        x->on_gone(x->arg);
    }
    unlink_exchange(x);
    if (evhttp_request_get_connection(request) == NULL) {
        evhttp_request_free(request);
    }
}

static void set_idle_timeout(pgd_serve_exchange *x, int32_t read_s) {
    const struct timeval reads = {.tv_sec = read_s};
    const struct timeval writes = {.tv_sec = WRITE_STALL_S};
    struct bufferevent *bev = evhttp_connection_get_bufferevent(x->connection);
    bufferevent_set_timeouts(bev, read_s > 0 ? &reads : NULL, &writes);
}

// Sees the client leave while nothing is written, see the top of the file.
static void watch(pgd_serve_exchange *x) {
    struct bufferevent *bev = evhttp_connection_get_bufferevent(x->connection);
    bufferevent_data_cb on_read = NULL;
    bufferevent_data_cb on_write = NULL;
    bufferevent_event_cb on_event = NULL;
    void *arg = NULL;
    bufferevent_getcb(bev, &on_read, &on_write, &on_event, &arg);
    bufferevent_setcb(bev, NULL, on_write, on_event, arg);
    bufferevent_setwatermark(bev, EV_READ, 0, READ_AHEAD_BYTES);
    set_idle_timeout(x, 0);
    bufferevent_enable(bev, EV_READ);
}

// Gives the connection back to evhttp for its next request.
static void unwatch(pgd_serve_exchange *x) {
    struct bufferevent *bev = evhttp_connection_get_bufferevent(x->connection);
    pgd_serve_gate_idle(x->gate); // sending may end the connection, and the gate with it
    x->gate = NULL;
    bufferevent_setwatermark(bev, EV_READ, 0, 0);
    set_idle_timeout(x, x->loop->options.idle_s);
}

static void on_request(struct evhttp_request *request, void *arg) {
    pgd_serve_loop *loop = arg;
    pgd_serve_exchange *x = pgd_mem_alloc(1, sizeof(*x));
    struct evhttp_connection *connection = evhttp_request_get_connection(request);
    pgd_serve_gate *gate = pgd_serve_gate_of(&loop->gates, connection);
    if (x == NULL || gate == NULL) {
        pgd_mem_free(x);
        evhttp_connection_free(connection); // no memory, even for saying so
        return;
    }
    pgd_serve_gate_busy(gate, NULL, NULL);
    const struct evhttp_uri *uri = evhttp_request_get_evhttp_uri(request);
    x->loop = loop;
    x->request = request;
    x->connection = connection;
    x->gate = gate;
    x->path = uri != NULL ? evhttp_uri_get_path(uri) : NULL;
    x->path = x->path != NULL && x->path[0] != '\0' ? x->path : "/";
    x->start_ns = pgd_clock_ns();
    x->next = loop->open;
    if (loop->open != NULL) {
        loop->open->prev = x;
    }
    loop->open = x;
    loop->exchanges++;
    loop->options.handler(loop->options.arg, x);
}

pgd_serve_loop *pgd_serve_exchange_loop(pgd_serve_exchange *x) {
    return x->loop;
}

int32_t pgd_serve_exchange_method(const pgd_serve_exchange *x) {
    switch (evhttp_request_get_command(x->request)) {
    case EVHTTP_REQ_GET:
    case EVHTTP_REQ_HEAD: return PGD_SERVE_GET;
    case EVHTTP_REQ_POST: return PGD_SERVE_POST;
    case EVHTTP_REQ_OPTIONS: return PGD_SERVE_OPTIONS;
    default: return PGD_SERVE_OTHER;
    }
}

const char *pgd_serve_exchange_path(const pgd_serve_exchange *x) {
    return x->path;
}

const char *pgd_serve_exchange_header(const pgd_serve_exchange *x, const char *name) {
    return evhttp_find_header(evhttp_request_get_input_headers(x->request), name);
}

pgd_str pgd_serve_exchange_body(pgd_serve_exchange *x) {
    struct evbuffer *in = evhttp_request_get_input_buffer(x->request);
    size_t n = evbuffer_get_length(in);
    const char *bytes = n > 0 ? (const char *)evbuffer_pullup(in, -1) : "";
    return (pgd_str){bytes != NULL ? bytes : "", bytes != NULL ? n : 0};
}

const char *pgd_serve_exchange_peer(const pgd_serve_exchange *x) {
    char *address = NULL;
    ev_uint16_t port = 0;
    if (x->connection != NULL) {
        evhttp_connection_get_peer(x->connection, &address, &port);
    }
    return address != NULL ? address : "";
}

uint64_t pgd_serve_exchange_start_ns(const pgd_serve_exchange *x) {
    return x->start_ns;
}

void pgd_serve_exchange_keep(pgd_serve_exchange *x, void (*on_gone)(void *arg), void *arg) {
    x->on_gone = on_gone;
    x->arg = arg;
    x->kept = 1;
    pgd_serve_gate_busy(x->gate, on_closed, x);
    watch(x);
}

void pgd_serve_exchange_set_id(pgd_serve_exchange *x, const char *id) {
    evutil_snprintf(x->id, sizeof(x->id), "%s", id);
    pgd_serve_exchange_add(x, "X-Request-Id", x->id);
}

const char *pgd_serve_exchange_id(const pgd_serve_exchange *x) {
    return x->id;
}

void pgd_serve_exchange_add(pgd_serve_exchange *x, const char *name, const char *value) {
    // evhttp refuses line breaks that would begin a header of somebody else's.
    (void)evhttp_add_header(evhttp_request_get_output_headers(x->request), name, value);
}

// A draining server, and a client that asked so, gets its connection closed behind the answer.
static void finish_headers(pgd_serve_exchange *x, const char *type) {
    pgd_serve_exchange_add(x, "Content-Type", type);
    if (x->loop->draining) {
        pgd_serve_exchange_add(x, "Connection", "close");
    }
}

void pgd_serve_exchange_reply(pgd_serve_exchange *x, int32_t status, const char *type,
                              pgd_str body) {
    struct evbuffer *out = evhttp_request_get_output_buffer(x->request);
    finish_headers(x, type);
    evbuffer_add(out, body.ptr, body.len);
    unwatch(x);
    evhttp_send_reply(x->request, status, NULL, NULL);
    unlink_exchange(x);
}

void pgd_serve_exchange_start(pgd_serve_exchange *x, int32_t status, const char *type) {
    finish_headers(x, type);
    x->started = 1;
    evhttp_send_reply_start(x->request, status, NULL);
}

void pgd_serve_exchange_send(pgd_serve_exchange *x, pgd_str bytes) {
    struct evbuffer *piece = evbuffer_new();
    if (piece == NULL || bytes.len == 0) {
        if (piece != NULL) {
            evbuffer_free(piece);
        }
        return;
    }
    evbuffer_add(piece, bytes.ptr, bytes.len);
    evhttp_send_reply_chunk(x->request, piece);
    evbuffer_free(piece);
}

static void end_now(pgd_serve_exchange *x) {
    unwatch(x);
    evhttp_send_reply_end(x->request);
    unlink_exchange(x);
}

static void try_end(evutil_socket_t fd, short what, void *arg) {
    pgd_serve_exchange *x = arg;
    const struct timeval soon = {.tv_usec = END_LOOK_US};
    (void)fd;
    (void)what;
    x->quiet_looks = pgd_serve_exchange_pending(x) == 0 ? x->quiet_looks + 1 : 0;
    if (x->quiet_looks > 1) {
        end_now(x);
    } else {
        event_add(x->end_timer, &soon);
    }
}

// Under TLS libevent tells evhttp late that all was written. Told behind the end of an answer about
// bytes before it, evhttp would take the connection for idle and never write the rest; so the end
// waits until nothing is left to be written, and a turn of the loop longer.
void pgd_serve_exchange_end(pgd_serve_exchange *x) {
    x->on_gone = NULL;
    if (x->loop->tls != NULL) {
        x->end_timer = evtimer_new(x->loop->base, try_end, x);
    }
    if (x->end_timer != NULL) {
        try_end(-1, 0, x);
    } else {
        end_now(x);
    }
}

void pgd_serve_exchange_cut(pgd_serve_exchange *x) {
    struct evhttp_connection *connection = x->connection;
    unlink_exchange(x);
    evhttp_connection_free(connection); // frees the request with it
}

uint64_t pgd_serve_exchange_pending(const pgd_serve_exchange *x) {
    struct bufferevent *bev = evhttp_connection_get_bufferevent(x->connection);
    return evbuffer_get_length(bufferevent_get_output(bev));
}
