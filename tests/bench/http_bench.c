// memmem is GNU.
#define _GNU_SOURCE
// What HTTP costs at least on this machine: a bare libevent server that sends given bytes, and a
// client that only counts. serve_bench.py measures `pagoda serve` against them.
//
//   http_bench serve BODY EVENT N STEP_US   BODY: file, the whole answer; EVENT: file, one event of
//                                           a stream, sent N times, to all streams every STEP_US
//   http_bench load PORT CONNECTIONS SECONDS REQUEST   REQUEST: file, sent again and again
//
// load prints one line: answers events bytes (a second), p50_us p99_us of the gaps between events,
// p50_us p99_us from a request to the first bytes of its answer. The first fifth of the time is not
// measured.
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <event2/buffer.h>
#include <event2/bufferevent.h>
#include <event2/event.h>
#include <event2/http.h>
#include <netinet/in.h>
#include <netinet/tcp.h>

static struct event_base *base;

static uint64_t now_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * UINT64_C(1000000000) + (uint64_t)t.tv_nsec;
}

static char *read_file(const char *path, size_t *len) {
    FILE *f = fopen(path, "rb");
    char *bytes = malloc(1 << 20);
    if (f == NULL || bytes == NULL) {
        perror(path);
        exit(2);
    }
    *len = fread(bytes, 1, 1 << 20, f);
    fclose(f);
    return bytes;
}

// ---- the bare server ---------------------------------------------------------------------------

typedef struct stream {
    struct evhttp_request *request;
    struct stream *next;
    int left;
} stream;

static char *answer, *event;
static size_t answer_len, event_len;
static int n_events;
static struct timeval step;
static stream *streams;
static struct event *clock_event;

static void send_events(evutil_socket_t fd, short what, void *arg) {
    stream **at = &streams;
    (void)fd;
    (void)what;
    (void)arg;
    while (*at != NULL) {
        stream *s = *at;
        struct evbuffer *piece = evbuffer_new();
        evbuffer_add(piece, event, event_len);
        evhttp_send_reply_chunk(s->request, piece);
        evbuffer_free(piece);
        if (--s->left > 0) {
            at = &s->next;
            continue;
        }
        *at = s->next;
        evhttp_send_reply_end(s->request);
        free(s);
    }
    if (streams != NULL) {
        event_add(clock_event, &step);
    }
}

static void on_request(struct evhttp_request *request, void *arg) {
    struct evbuffer *in = evhttp_request_get_input_buffer(request);
    struct evkeyvalq *headers = evhttp_request_get_output_headers(request);
    const struct evbuffer_ptr found = evbuffer_search(in, "\"stream\"", 8, NULL);
    (void)arg;
    if (found.pos < 0) {
        evhttp_add_header(headers, "Content-Type", "application/json");
        evbuffer_add(evhttp_request_get_output_buffer(request), answer, answer_len);
        evhttp_send_reply(request, 200, NULL, NULL);
        return;
    }
    stream *s = malloc(sizeof(*s));
    if (streams == NULL) {
        event_add(clock_event, &step);
    }
    *s = (stream){request, streams, n_events};
    streams = s;
    evhttp_add_header(headers, "Content-Type", "text/event-stream");
    evhttp_send_reply_start(request, 200, NULL);
}

static int serve(char **argv) {
    answer = read_file(argv[2], &answer_len);
    event = read_file(argv[3], &event_len);
    n_events = (int)strtol(argv[4], NULL, 10);
    step = (struct timeval){.tv_usec = (int)strtol(argv[5], NULL, 10)};
    struct evhttp *http = evhttp_new(base);
    struct evhttp_bound_socket *bound = evhttp_bind_socket_with_handle(http, "127.0.0.1", 0);
    struct sockaddr_in address;
    socklen_t len = sizeof(address);
    clock_event = evtimer_new(base, send_events, NULL);
    evhttp_set_gencb(http, on_request, NULL);
    const int fd = evhttp_bound_socket_get_fd(bound);
    const int on = 1;
    // Connections inherit it: an event leaves at once, as it does from the server measured.
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
    getsockname(fd, (struct sockaddr *)&address, &len);
    printf("%d\n", ntohs(address.sin_port));
    fflush(stdout);
    return event_base_dispatch(base);
}

// ---- the client --------------------------------------------------------------------------------

#define MOST (1 << 22)

// Microseconds.
typedef struct times {
    uint32_t *us;
    uint64_t n;
} times;

static char *request;
static size_t request_len;
static uint64_t n_answers, n_bytes, n_seen;
static uint64_t begin_ns; // of measuring
static times gaps, firsts;

typedef struct client {
    struct bufferevent *bev;
    size_t left; // of a whole answer; SIZE_MAX = a stream, 0 = its head is to come
    uint64_t sent_ns;
    uint64_t last_ns;
} client;

static void add_time(times *t, uint64_t from, uint64_t to) {
    if (from >= begin_ns && t->n < MOST) {
        t->us[t->n++] = (uint32_t)((to - from) / 1000);
    }
}

static void ask(client *c) {
    c->sent_ns = now_ns();
    bufferevent_write(c->bev, request, request_len);
}

static void count_events(client *c, const char *bytes, size_t n) {
    const uint64_t now = now_ns();
    uint64_t found = 0;
    for (const char *at = bytes;
         (at = memmem(at, n - (size_t)(at - bytes), "\ndata: {", 8)) != NULL; at += 8) {
        found++;
    }
    for (uint64_t i = 0; i < found; i++) {
        if (c->last_ns != 0) {
            add_time(&gaps, c->last_ns, now);
        }
        c->last_ns = now;
    }
    n_seen += now >= begin_ns ? found : 0;
}

// One answer at a time is under way, so what has come is its head, its middle or its end.
static void on_read(struct bufferevent *bev, void *arg) {
    client *c = arg;
    struct evbuffer *in = bufferevent_get_input(bev);
    size_t n = evbuffer_get_length(in);
    const char *bytes = (const char *)evbuffer_pullup(in, -1);
    int over = 0;
    if (c->left == 0) {
        const char *end = memmem(bytes, n, "\r\n\r\n", 4);
        if (end == NULL) {
            return;
        }
        const char *length = memmem(bytes, (size_t)(end - bytes), "Content-Length: ", 16);
        c->left = length != NULL ? strtoul(length + 16, NULL, 10) : SIZE_MAX;
        c->last_ns = 0;
        add_time(&firsts, c->sent_ns, now_ns());
        const size_t head = (size_t)(end - bytes) + (c->left == SIZE_MAX ? 2 : 4);
        bytes += head;
        n -= head;
        evbuffer_drain(in, head);
    }
    if (c->left == SIZE_MAX) {
        count_events(c, bytes, n);
        over = n >= 7 && memcmp(bytes + n - 7, "\r\n0\r\n\r\n", 7) == 0;
    } else {
        over = n >= c->left;
        c->left -= over ? 0 : n;
    }
    const int counts = now_ns() >= begin_ns;
    n_bytes += counts ? n : 0;
    evbuffer_drain(in, n);
    if (over) {
        c->left = 0;
        n_answers += counts ? 1 : 0;
        ask(c);
    }
}

static void on_event(struct bufferevent *bev, short what, void *arg) {
    (void)bev;
    (void)arg;
    if (what & (BEV_EVENT_EOF | BEV_EVENT_ERROR)) {
        fprintf(stderr, "a connection ended\n");
        exit(1);
    }
}

static int compare(const void *a, const void *b) {
    const uint32_t x = *(const uint32_t *)a;
    const uint32_t y = *(const uint32_t *)b;
    return (x > y) - (x < y);
}

static void print_times(times *t) {
    qsort(t->us, t->n, sizeof(*t->us), compare);
    printf(" %u %u", t->n > 0 ? t->us[t->n / 2] : 0, t->n > 0 ? t->us[t->n * 99 / 100] : 0);
}

static int load(char **argv) {
    const int n = (int)strtol(argv[3], NULL, 10);
    const struct timeval seconds = {.tv_sec = (int)strtol(argv[4], NULL, 10)};
    const uint64_t start_ns = now_ns();
    struct sockaddr_in to = {.sin_family = AF_INET};
    to.sin_port = htons((uint16_t)strtol(argv[2], NULL, 10));
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    request = read_file(argv[5], &request_len);
    gaps.us = malloc(MOST * sizeof(*gaps.us));
    firsts.us = malloc(MOST * sizeof(*firsts.us));
    begin_ns = start_ns + (uint64_t)seconds.tv_sec * UINT64_C(200000000);
    client *all = calloc((size_t)n, sizeof(*all));
    for (int i = 0; i < n; i++) {
        all[i].bev = bufferevent_socket_new(base, -1, BEV_OPT_CLOSE_ON_FREE);
        bufferevent_setcb(all[i].bev, on_read, NULL, on_event, &all[i]);
        bufferevent_enable(all[i].bev, EV_READ | EV_WRITE);
        bufferevent_socket_connect(all[i].bev, (struct sockaddr *)&to, sizeof(to));
        ask(&all[i]);
    }
    event_base_loopexit(base, &seconds);
    event_base_dispatch(base);
    const double took = (double)(now_ns() - begin_ns) / 1e9;
    printf("%.1f %.1f %.1f", (double)n_answers / took, (double)n_seen / took,
           (double)n_bytes / took);
    print_times(&gaps);
    print_times(&firsts);
    printf("\n");
    return 0;
}

int main(int argc, char **argv) {
    base = event_base_new();
    signal(SIGPIPE, SIG_IGN); // clients leave in the middle of streams
    if (argc == 6 && strcmp(argv[1], "serve") == 0) {
        return serve(argv);
    }
    if (argc == 6 && strcmp(argv[1], "load") == 0) {
        return load(argv);
    }
    fprintf(stderr, "see the top of http_bench.c\n");
    return 2;
}
