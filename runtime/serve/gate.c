// See gate.h. evhttp (libevent 2.1) has no call for "a connection was opened": its side is the
// argument of the callbacks that it has just set, read when the accept is over and before the first
// byte.
#include "serve/gate.h"

#include <stdio.h>
#include <string.h>

#include <event2/buffer.h>
#include <event2/bufferevent.h>
#include <event2/event.h>
#include <event2/http.h>

#include "base/clock.h"
#include "base/fail.h"
#include "base/mem.h"
#include "os/socket.h"

#define LINGER_NS      UINT64_C(300000000)  // what still comes is read over: a reset would undo the
#define LINGER_MOST_NS UINT64_C(5000000000) // answer
#define LOOK_MS        20
#define LEAST_BODY     (1 << 10) // bytes of a body a second
#define MAX_VECTORS    8

enum { GATE_OPEN = 0, GATE_WRONG = 1, GATE_REFUSED = 2 };

struct pgd_serve_gate {
    pgd_serve_gates *all;
    pgd_serve_gate *next; // accepted
    struct bufferevent *bev;
    struct evhttp_connection *connection;
    struct event *timer;
    evutil_socket_t fd;
    int32_t state; // GATE_...
    int32_t busy;
    int32_t done;      // the client writes no more
    int32_t timed;     // the timer counts down a request that is not complete
    uint64_t n_body;   // bytes since the timer was set
    uint64_t since_ns; // of the refusal
    void (*closed)(void *arg);
    void *arg;
    pgd_serve_head head;
    pgd_api_error error;
};

static void set_timer(pgd_serve_gate *gate, int64_t ms) {
    const struct timeval when = {.tv_sec = (long)(ms / 1000), .tv_usec = (long)(ms % 1000) * 1000};
    event_add(gate->timer, &when);
}

// ---- refusing ----------------------------------------------------------------------------------

static const char *reason_of(int32_t status) {
    switch (status) {
    case 405: return "Method Not Allowed";
    case 408: return "Request Timeout";
    case 411: return "Length Required";
    case 413: return "Content Too Large";
    case 414: return "URI Too Long";
    case 431: return "Request Header Fields Too Large";
    case 501: return "Not Implemented";
    case 503: return "Service Unavailable";
    case 505: return "HTTP Version Not Supported";
    default: return "Bad Request";
    }
}

static void write_refusal(pgd_serve_gate *gate) {
    pgd_text body = {0};
    const pgd_api_error *e = &gate->error;
    struct evbuffer *out = bufferevent_get_output(gate->bev);
    if (pgd_api_error_add(&body, e) == PGD_OK) {
        evbuffer_add_printf(out,
                            "HTTP/1.1 %d %s\r\nContent-Type: application/json\r\n"
                            "Content-Length: %zu\r\nConnection: close\r\n%s%s\r\n",
                            e->status, reason_of(e->status), body.len,
                            e->status == 405 ? "Allow: GET, HEAD, POST, OPTIONS\r\n" : "",
                            e->retry_after_s > 0 ? "Retry-After: 1\r\n" : "");
        evbuffer_add(out, body.ptr, body.len);
    }
    pgd_text_free(&body);
}

static void on_event(struct bufferevent *bev, short what, void *arg) {
    pgd_serve_gate *gate = arg;
    if ((what & BEV_EVENT_EOF) != 0 && (what & BEV_EVENT_READING) != 0) {
        bufferevent_disable(bev, EV_READ); // it may still read what we say
        gate->done = 1;
    } else if ((what & BEV_EVENT_CONNECTED) == 0) {
        evhttp_connection_free(gate->connection);
    }
}

// Takes the connection from evhttp, which waits for a request.
static void take_over(pgd_serve_gate *gate) {
    bufferevent_setcb(gate->bev, NULL, NULL, on_event, gate);
    bufferevent_set_timeouts(gate->bev, NULL, NULL);
}

static void begin_refusal(pgd_serve_gate *gate) {
    char *peer = NULL;
    ev_uint16_t port = 0;
    gate->state = GATE_REFUSED;
    gate->since_ns = pgd_clock_ns();
    evhttp_connection_get_peer(gate->connection, &peer, &port);
    take_over(gate);
    write_refusal(gate);
    bufferevent_enable(gate->bev, EV_WRITE);
    if (gate->all->refused != NULL) {
        gate->all->refused(gate->all->arg, &gate->error, peer != NULL ? peer : "");
    }
    set_timer(gate, LOOK_MS);
}

static void refuse(pgd_serve_gate *gate, int32_t status, const char *problem) {
    (void)pgd_api_refuse(&gate->error, status, NULL, NULL, "%s", problem);
    gate->error.retry_after_s = status == 503;
    gate->state = GATE_WRONG;
    gate->timed = 0;
    if (!gate->busy) {
        take_over(gate);
    }
    set_timer(gate, 0); // not in the midst of a callback of the buffer
}

// A request that does not come to its end.
static void look_at_pace(pgd_serve_gate *gate) {
    gate->timed = pgd_serve_head_pending(&gate->head);
    if (!gate->timed) {
        return;
    }
    const uint64_t least = (uint64_t)gate->all->head_s * LEAST_BODY;
    if (!gate->busy && (!pgd_serve_head_in_body(&gate->head) || gate->n_body < least)) {
        refuse(gate, 408, "the request came too slowly");
        return;
    }
    gate->n_body = 0;
    set_timer(gate, gate->all->head_s * INT64_C(1000));
}

static void on_timer(evutil_socket_t fd, short what, void *arg) {
    pgd_serve_gate *gate = arg;
    (void)fd;
    (void)what;
    if (gate->state == GATE_OPEN) {
        look_at_pace(gate);
    } else if (gate->state == GATE_WRONG) {
        if (!gate->busy) {
            begin_refusal(gate);
        }
    } else {
        const uint64_t spent = pgd_clock_ns() - gate->since_ns;
        const size_t left = evbuffer_get_length(bufferevent_get_output(gate->bev));
        if (spent > LINGER_MOST_NS || (left == 0 && (gate->done || spent > LINGER_NS))) {
            evhttp_connection_free(gate->connection);
        } else {
            set_timer(gate, LOOK_MS);
        }
    }
}

// ---- bytes -------------------------------------------------------------------------------------

static void read_new(pgd_serve_gate *gate, struct evbuffer *in, size_t n) {
    struct evbuffer_ptr at;
    struct evbuffer_iovec vectors[MAX_VECTORS];
    while (n > 0 && gate->head.status == 0) {
        evbuffer_ptr_set(in, &at, evbuffer_get_length(in) - n, EVBUFFER_PTR_SET);
        int count = evbuffer_peek(in, (ev_ssize_t)n, &at, vectors, MAX_VECTORS);
        count = count < MAX_VECTORS ? count : MAX_VECTORS;
        for (int i = 0; i < count && n > 0; i++) {
            const size_t len = vectors[i].iov_len < n ? vectors[i].iov_len : n;
            (void)pgd_serve_head_read(&gate->head, vectors[i].iov_base, len);
            n -= len;
        }
    }
}

static void on_input(struct evbuffer *in, const struct evbuffer_cb_info *info, void *arg) {
    pgd_serve_gate *gate = arg;
    if (info->n_added == 0) {
        return;
    }
    if (gate->state == GATE_OPEN) {
        gate->n_body += info->n_added;
        read_new(gate, in, info->n_added);
        if (gate->head.status != 0) {
            refuse(gate, gate->head.status, gate->head.problem);
        } else if (!gate->timed && pgd_serve_head_pending(&gate->head)) {
            gate->timed = 1;
            gate->n_body = 0;
            set_timer(gate, gate->all->head_s * INT64_C(1000));
        }
    }
    if (gate->state != GATE_OPEN) {
        evbuffer_drain(in, evbuffer_get_length(in));
    }
}

// ---- life --------------------------------------------------------------------------------------

static void free_gate(pgd_serve_gate *gate) {
    event_free(gate->timer);
    (*gate->all->n_connections)--;
    pgd_mem_free(gate);
}

static void on_closed(struct evhttp_connection *connection, void *arg) {
    pgd_serve_gate *gate = arg;
    evhttp_connection_set_closecb(connection, NULL, NULL);
    evbuffer_remove_cb(bufferevent_get_input(gate->bev), on_input, gate);
    if (gate->all->by_fd[gate->fd] == gate) {
        gate->all->by_fd[gate->fd] = NULL;
    }
    if (gate->closed != NULL) {
        gate->closed(gate->arg);
    }
    free_gate(gate);
}

static int32_t has_room(pgd_serve_gates *g, evutil_socket_t fd) {
    if (fd < g->cap_fd) {
        return 1;
    }
    const int32_t cap = (int32_t)fd * 2 + 64;
    pgd_serve_gate **grown = pgd_mem_realloc(g->by_fd, (size_t)cap, sizeof(*grown));
    if (grown == NULL) {
        return 0;
    }
    memset(grown + g->cap_fd, 0, (size_t)(cap - g->cap_fd) * sizeof(*grown));
    g->by_fd = grown;
    g->cap_fd = cap;
    return 1;
}

static void adopt(pgd_serve_gate *gate) {
    pgd_serve_gates *g = gate->all;
    bufferevent_data_cb on_read = NULL;
    bufferevent_data_cb on_write = NULL;
    bufferevent_event_cb event = NULL;
    void *owner = NULL;
    bufferevent_getcb(gate->bev, &on_read, &on_write, &event, &owner);
    gate->fd = bufferevent_getfd(gate->bev);
    if (owner == NULL || gate->fd < 0 || !has_room(g, gate->fd)) {
        bufferevent_decref(gate->bev);
        free_gate(gate);
        return;
    }
    gate->connection = owner;
    g->by_fd[gate->fd] = gate;
    evhttp_connection_set_closecb(gate->connection, on_closed, gate);
    evbuffer_add_cb(bufferevent_get_input(gate->bev), on_input, gate);
    bufferevent_decref(gate->bev);
    pgd_os_socket_no_delay((int32_t)gate->fd);
    if (*g->n_connections > g->max_connections) {
        refuse(gate, 503, "this server has as many connections as it takes");
    }
}

static void on_accepted(evutil_socket_t fd, short what, void *arg) {
    pgd_serve_gates *g = arg;
    (void)fd;
    (void)what;
    while (g->accepted != NULL) {
        pgd_serve_gate *gate = g->accepted;
        g->accepted = gate->next;
        adopt(gate);
    }
}

int32_t pgd_serve_gates_add(pgd_serve_gates *g, struct bufferevent *bev) {
    pgd_serve_gate *gate = pgd_mem_alloc(1, sizeof(*gate));
    struct event *timer = gate != NULL ? evtimer_new(g->base, on_timer, gate) : NULL;
    if (timer == NULL) {
        pgd_mem_free(gate);
        return 0;
    }
    *gate = (pgd_serve_gate){.all = g, .next = g->accepted, .bev = bev, .timer = timer};
    pgd_serve_head_init(&gate->head, &g->limits);
    g->accepted = gate;
    (*g->n_connections)++;
    bufferevent_incref(bev);
    event_active(g->adopt, EV_READ, 0);
    return 1;
}

pgd_status pgd_serve_gates_open(pgd_serve_gates *g) {
    g->adopt = event_new(g->base, -1, EV_PERSIST, on_accepted, g);
    return g->adopt != NULL ? PGD_OK : pgd_fail(PGD_OUT_OF_MEMORY, "no memory for connections");
}

void pgd_serve_gates_close(pgd_serve_gates *g) {
    while (g->accepted != NULL) {
        pgd_serve_gate *gate = g->accepted;
        g->accepted = gate->next;
        bufferevent_decref(gate->bev);
        free_gate(gate);
    }
    if (g->adopt != NULL) {
        event_free(g->adopt);
    }
    pgd_mem_free(g->by_fd);
}

pgd_serve_gate *pgd_serve_gate_of(pgd_serve_gates *g, struct evhttp_connection *connection) {
    const evutil_socket_t fd = bufferevent_getfd(evhttp_connection_get_bufferevent(connection));
    pgd_serve_gate *gate = fd >= 0 && fd < g->cap_fd ? g->by_fd[fd] : NULL;
    return gate != NULL && gate->connection == connection ? gate : NULL;
}

void pgd_serve_gate_busy(pgd_serve_gate *gate, void (*closed)(void *arg), void *arg) {
    gate->busy = 1;
    gate->closed = closed;
    gate->arg = arg;
}

void pgd_serve_gate_idle(pgd_serve_gate *gate) {
    gate->busy = 0;
    gate->closed = NULL;
    if (gate->state == GATE_WRONG) {
        set_timer(gate, 0);
    }
}
