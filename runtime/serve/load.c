// See load.h. One connection a request in flight, kept for the next request; events are read as
// they come, so a token's time is when its bytes arrived.
#include "serve/load.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include <event2/buffer.h>
#include <event2/bufferevent.h>
#include <event2/event.h>
#include <event2/http.h>

#include "base/clock.h"
#include "base/fail.h"
#include "base/json.h"
#include "base/mem.h"
#include "base/rng.h"

#define HTTP_OK 200

typedef struct load load;

typedef struct flight {
    load *all;
    struct evhttp_connection *connection;
    int32_t request; // index, -1 = idle
    uint64_t start_ns;
    uint64_t latest_ns; // of the last event with text
    pgd_text rest;      // of an event that has not ended
    struct flight *next_idle;
} flight;

struct load {
    const pgd_serve_load_options *o;
    pgd_serve_load_result *r;
    struct event_base *base;
    struct event *timer;
    flight *flights; // [cap]
    flight *idle;
    int32_t cap;
    int32_t n_made;
    int32_t n_open;
    int32_t n_started;
    int32_t n_done;
    uint64_t rng;
    uint64_t begin_ns;
    double next_s; // arrival of the next request
    pgd_status status;
};

static void start_some(load *l);

static void stop_with(load *l, pgd_status status) {
    l->status = l->status == PGD_OK ? status : l->status;
    event_base_loopbreak(l->base);
}

static void add_gap(load *l, uint64_t ns) {
    pgd_serve_load_result *r = l->r;
    if (r->n_gaps == r->cap_gaps) {
        const size_t cap = r->cap_gaps > 0 ? r->cap_gaps * 2 : 4096;
        uint64_t *grown = pgd_mem_realloc(r->gaps_ns, cap, sizeof(*grown));
        if (grown == NULL) {
            stop_with(l, PGD_MEM_FAIL("token times", cap * sizeof(*grown)));
            return;
        }
        r->gaps_ns = grown;
        r->cap_gaps = cap;
    }
    r->gaps_ns[r->n_gaps++] = ns;
}

static void note_problem(load *l, pgd_str text) {
    if (l->r->problem[0] == '\0') {
        (void)snprintf(l->r->problem, sizeof(l->r->problem), "%.*s",
                       (int)(text.len < 180 ? text.len : 180), text.ptr);
    }
}

// 1 when a choice of the event has text, in the form of chats or of completions.
static int32_t has_text(const pgd_json *event) {
    const pgd_json *choices = pgd_json_get(event, "choices");
    pgd_str text = {"", 0};
    if (!pgd_json_is(choices, PGD_JSON_ARRAY) || choices->n == 0) {
        return 0;
    }
    const pgd_json *choice = &choices->items[0];
    return (pgd_json_to_str(pgd_json_get(choice, "text"), &text) ||
            pgd_json_to_str(pgd_json_get(pgd_json_get(choice, "delta"), "content"), &text)) &&
           text.len > 0;
}

static void read_usage(pgd_serve_load_one *one, const pgd_json *usage) {
    int64_t n = 0;
    if (pgd_json_to_i64(pgd_json_get(usage, "prompt_tokens"), &n)) {
        one->n_prompt = (int32_t)n;
    }
    if (pgd_json_to_i64(pgd_json_get(usage, "completion_tokens"), &n)) {
        one->n_output = (int32_t)n;
    }
}

static void read_event(flight *f, pgd_str data, uint64_t now) {
    pgd_serve_load_one *one = &f->all->r->ones[f->request];
    pgd_json_doc *doc = NULL;
    if (pgd_str_is(data, "[DONE]") || pgd_json_parse(data, "an event", 0, &doc) != PGD_OK) {
        return;
    }
    const pgd_json *event = pgd_json_root(doc);
    if (pgd_json_get(event, "error") != NULL) {
        one->ok = 0;
        note_problem(f->all, data);
    }
    if (has_text(event)) {
        if (one->first_ns == 0) {
            one->first_ns = now - f->start_ns;
        } else {
            add_gap(f->all, now - f->latest_ns);
        }
        f->latest_ns = now;
        one->last_ns = now - f->start_ns;
        one->n_events++;
    }
    read_usage(one, pgd_json_get(event, "usage"));
    pgd_json_free(doc);
}

static void on_chunk(struct evhttp_request *request, void *arg) {
    flight *f = arg;
    struct evbuffer *in = evhttp_request_get_input_buffer(request);
    const uint64_t now = pgd_clock_ns();
    const size_t n = evbuffer_get_length(in);
    const char *bytes = (const char *)evbuffer_pullup(in, -1);
    if (n > 0 && pgd_text_add(&f->rest, bytes, n) != PGD_OK) {
        stop_with(f->all, PGD_OUT_OF_MEMORY);
        return;
    }
    evbuffer_drain(in, n);
    pgd_str rest = pgd_text_view(&f->rest);
    for (;;) {
        const char *end = rest.len > 0 ? memchr(rest.ptr, '\n', rest.len) : NULL;
        if (end == NULL) {
            break;
        }
        pgd_str line = {rest.ptr, (size_t)(end - rest.ptr)};
        rest = (pgd_str){end + 1, rest.len - line.len - 1};
        if (pgd_str_starts(line, PGD_STR("data: "))) {
            read_event(f, pgd_str_trim((pgd_str){line.ptr + 6, line.len - 6}), now);
        }
    }
    if (rest.len < f->rest.len) {
        memmove(f->rest.ptr, rest.ptr, rest.len);
        f->rest.len = rest.len;
    }
}

static void on_done(struct evhttp_request *request, void *arg) {
    flight *f = arg;
    load *l = f->all;
    pgd_serve_load_one *one = &l->r->ones[f->request];
    const int code = request != NULL ? evhttp_request_get_response_code(request) : 0;
    one->total_ns = pgd_clock_ns() - f->start_ns;
    if (code != HTTP_OK) {
        one->ok = 0;
        char text[64];
        (void)snprintf(text, sizeof(text), code == 0 ? "the connection broke" : "status %d", code);
        note_problem(l, f->rest.len > 0 ? pgd_text_view(&f->rest) : pgd_str_of(text));
    }
    one->n_output = one->n_output > 0 ? one->n_output : one->n_events;
    pgd_text_clear(&f->rest);
    f->request = -1;
    f->next_idle = l->idle;
    l->idle = f;
    l->n_open--;
    l->n_done++;
    if (l->o->progress != NULL) {
        l->o->progress(l->o->arg, l->n_done, l->o->n);
    }
    if (l->n_done == l->o->n) {
        event_base_loopbreak(l->base);
    } else {
        start_some(l);
    }
}

static flight *take_flight(load *l) {
    flight *f = l->idle;
    if (f != NULL) {
        l->idle = f->next_idle;
        return f;
    }
    f = &l->flights[l->n_made++];
    f->all = l;
    f->connection = evhttp_connection_base_new(l->base, NULL, l->o->host, (uint16_t)l->o->port);
    if (f->connection != NULL) {
        evhttp_connection_set_timeout(f->connection, l->o->timeout_s);
    }
    return f;
}

static pgd_status start_one(load *l) {
    const int32_t i = l->n_started++;
    flight *f = take_flight(l);
    pgd_text body = {0};
    PGD_TRY(l->o->body(l->o->arg, i, &body));
    struct evhttp_request *request = evhttp_request_new(on_done, f);
    if (request == NULL || f->connection == NULL) {
        pgd_text_free(&body);
        return pgd_fail(PGD_OUT_OF_MEMORY, "no memory for a request");
    }
    struct evkeyvalq *headers = evhttp_request_get_output_headers(request);
    evhttp_request_set_chunked_cb(request, on_chunk);
    evhttp_add_header(headers, "Host", l->o->host);
    evhttp_add_header(headers, "Content-Type", "application/json");
    if (l->o->api_key != NULL) {
        char bearer[512];
        (void)snprintf(bearer, sizeof(bearer), "Bearer %s", l->o->api_key);
        evhttp_add_header(headers, "Authorization", bearer);
    }
    evbuffer_add(evhttp_request_get_output_buffer(request), body.ptr, body.len);
    pgd_text_free(&body);
    f->request = i;
    f->start_ns = pgd_clock_ns();
    l->r->ones[i].ok = 1;
    l->n_open++;
    l->r->most_open = l->n_open > l->r->most_open ? l->n_open : l->r->most_open;
    if (evhttp_make_request(f->connection, request, EVHTTP_REQ_POST, l->o->path) != 0) {
        return pgd_fail(PGD_UNAVAILABLE, "no request can be made to %s:%d", l->o->host, l->o->port);
    }
    return PGD_OK;
}

// Exponential gaps: arrivals of a Poisson process.
static double next_gap(load *l) {
    const double u = ((double)(pgd_rng_next(&l->rng) >> 11) + 0.5) * 0x1p-53;
    return -log(u) / l->o->rate;
}

static void start_some(load *l) {
    const int32_t most = l->o->concurrency > 0 ? l->o->concurrency : l->o->n;
    const double now = (double)(pgd_clock_ns() - l->begin_ns) / 1e9;
    while (l->n_started < l->o->n && l->n_open < most && l->status == PGD_OK) {
        if (l->o->rate > 0.0 && l->next_s > now) {
            const double wait = l->next_s - now;
            const struct timeval when = {.tv_sec = (long)wait,
                                         .tv_usec = (long)((wait - floor(wait)) * 1e6)};
            event_add(l->timer, &when);
            return;
        }
        const pgd_status status = start_one(l);
        if (status != PGD_OK) {
            stop_with(l, status);
        }
        l->next_s += l->o->rate > 0.0 ? next_gap(l) : 0.0;
    }
}

static void on_timer(evutil_socket_t fd, short what, void *arg) {
    (void)fd;
    (void)what;
    start_some(arg);
}

pgd_status pgd_serve_load_run(const pgd_serve_load_options *o, pgd_serve_load_result *out) {
    load l = {.o = o, .r = out, .rng = o->seed, .cap = o->n};
    *out = (pgd_serve_load_result){0};
    l.cap = o->concurrency > 0 && o->concurrency < o->n ? o->concurrency : o->n;
    out->ones = pgd_mem_alloc((size_t)o->n, sizeof(*out->ones));
    l.flights = pgd_mem_alloc((size_t)l.cap, sizeof(*l.flights));
    l.base = event_base_new();
    l.timer = l.base != NULL ? evtimer_new(l.base, on_timer, &l) : NULL;
    if (out->ones == NULL || l.flights == NULL || l.timer == NULL) {
        l.status = pgd_fail(PGD_OUT_OF_MEMORY, "no memory for %d requests", o->n);
    } else {
        l.begin_ns = pgd_clock_ns();
        start_some(&l);
        if (l.status == PGD_OK) {
            event_base_loop(l.base, EVLOOP_NO_EXIT_ON_EMPTY);
        }
        out->duration_ns = pgd_clock_ns() - l.begin_ns;
    }
    for (int32_t i = 0; i < l.n_made; i++) {
        if (l.flights[i].connection != NULL) {
            evhttp_connection_free(l.flights[i].connection);
        }
        pgd_text_free(&l.flights[i].rest);
    }
    pgd_mem_free(l.flights);
    if (l.timer != NULL) {
        event_free(l.timer);
    }
    if (l.base != NULL) {
        event_base_free(l.base);
    }
    if (l.status != PGD_OK) {
        pgd_serve_load_free(out);
    }
    return l.status;
}

void pgd_serve_load_free(pgd_serve_load_result *r) {
    pgd_mem_free(r->ones);
    pgd_mem_free(r->gaps_ns);
    *r = (pgd_serve_load_result){0};
}
