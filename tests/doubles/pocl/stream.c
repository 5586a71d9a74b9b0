// Streams, events and graphs of the stand-in device.
//
//   caller: append -> | command | command | ... | -> worker: pause, run, next
//
// An event counts its records; a wait is for the count it had when it was asked for.
#define _POSIX_C_SOURCE 200809L // nanosleep

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "pocl.h"

#define PARAMS_BYTES 512

enum { COMMAND_LAUNCH, COMMAND_COPY, COMMAND_FILL, COMMAND_RECORD, COMMAND_WAIT, COMMAND_PRODUCT };

typedef struct command {
    struct command *next;
    int kind;
    int kernel;
    unsigned groups[3];
    uint64_t addresses[PGD_PORTABLE_MEMORIES];
    unsigned char params[PARAMS_BYTES];
    double_copy copy;
    double_product product;
    uint64_t dst; // of a fill
    uint64_t n;
    uint32_t pattern;
    double_event *event;
    uint64_t count;
} command;

typedef struct list {
    command *first;
    command *last;
} list;

struct double_event {
    uint64_t asked; // records
    uint64_t reached;
    int n_holders; // its owner, and commands that are not done
};

struct double_graph {
    list commands;
    int n_holders;
};

struct double_stream {
    pthread_t worker;
    pthread_mutex_t lock; // guards commands, is_busy and ends
    pthread_cond_t changed;
    list commands;
    int is_busy;
    int ends;
    double_graph *capturing;
    double_cl_queue *cl;
    uint64_t random;
};

static pthread_mutex_t events_lock = PTHREAD_MUTEX_INITIALIZER; // guards all events
static pthread_cond_t events_changed = PTHREAD_COND_INITIALIZER;

static _Atomic int sticky; // the error that the device is lost with
static _Atomic int64_t n_launches;
static _Atomic uint64_t n_streams;

static void lose(int error) {
    int none = DOUBLE_OK;
    atomic_compare_exchange_strong(&sticky, &none, error);
}

static void add(list *l, command *c) {
    c->next = NULL;
    if (l->last == NULL) {
        l->first = c;
    } else {
        l->last->next = c;
    }
    l->last = c;
}

static void hold(double_event *e) {
    if (e != NULL) {
        pthread_mutex_lock(&events_lock);
        e->n_holders++;
        pthread_mutex_unlock(&events_lock);
    }
}

static void let_go(double_event *e) {
    if (e != NULL) {
        pthread_mutex_lock(&events_lock);
        const int n = --e->n_holders;
        pthread_mutex_unlock(&events_lock);
        if (n == 0) {
            free(e);
        }
    }
}

static void clear(list *l) {
    while (l->first != NULL) {
        command *next = l->first->next;
        free(l->first);
        l->first = next;
    }
    l->last = NULL;
}

// ---- the worker --------------------------------------------------------------------------------

static void pause_at_random(double_stream *s) {
    const double_settings *settings = double_settings_get();
    s->random = s->random * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    const uint64_t r = s->random >> 33;
    if (settings->pause_us > 0 && (int64_t)(r % 1000) < settings->pauses) {
        const struct timespec t = {
            .tv_nsec = (long)(1000 * (int64_t)(r / 1000 % (uint64_t)settings->pause_us))};
        nanosleep(&t, NULL);
    }
}

static int run_launch(double_stream *s, const command *c) {
    void *memories[PGD_PORTABLE_MEMORIES];
    const int64_t most = double_settings_get()->lose;
    if (atomic_fetch_add(&n_launches, 1) + 1 > most && most > 0) {
        return DOUBLE_LOST;
    }
    for (int i = 0; i < PGD_PORTABLE_MEMORIES; i++) {
        memories[i] = c->addresses[i] == 0 ? NULL : double_memory_find(c->addresses[i], 0);
        if (memories[i] == NULL && c->addresses[i] != 0) {
            return DOUBLE_ILLEGAL_ADDRESS;
        }
    }
    return double_cl_run(s->cl, c->kernel, c->groups, memories, c->params);
}

static void *side_of(uint64_t address, int is_host, uint64_t pitch, const double_copy *c) {
    return is_host ? (void *)(uintptr_t)address
                   : double_memory_find(address, (c->rows - 1) * pitch + c->bytes);
}

static int run_copy(const double_copy *c) {
    unsigned char *dst = side_of(c->dst, c->dst_is_host, c->dst_pitch, c);
    const unsigned char *src = side_of(c->src, c->src_is_host, c->src_pitch, c);
    if (dst == NULL || src == NULL) {
        return DOUBLE_ILLEGAL_ADDRESS;
    }
    for (uint64_t i = 0; i < c->rows; i++) {
        memmove(dst + i * c->dst_pitch, src + i * c->src_pitch, c->bytes);
    }
    return DOUBLE_OK;
}

static int run_fill(const command *c) {
    unsigned char *dst = double_memory_find(c->dst, c->n * 4);
    if (dst == NULL) {
        return DOUBLE_ILLEGAL_ADDRESS;
    }
    for (uint64_t i = 0; i < c->n; i++) {
        memcpy(dst + 4 * i, &c->pattern, 4);
    }
    return DOUBLE_OK;
}

static int wait_for(double_event *e, uint64_t count) {
    pthread_mutex_lock(&events_lock);
    while (e->reached < count) {
        pthread_cond_wait(&events_changed, &events_lock);
    }
    pthread_mutex_unlock(&events_lock);
    return DOUBLE_OK;
}

static void reach(double_event *e, uint64_t count) {
    pthread_mutex_lock(&events_lock);
    e->reached = count > e->reached ? count : e->reached;
    pthread_cond_broadcast(&events_changed);
    pthread_mutex_unlock(&events_lock);
}

// Launches are handed on to PoCL in order; everything else comes when they are done. On a lost
// device nothing runs, but events are reached, so that nobody waits for ever.
static void run(double_stream *s, const command *c) {
    int error = DOUBLE_OK;
    pause_at_random(s);
    if (c->kind != COMMAND_LAUNCH) {
        error = double_cl_finish(s->cl);
    }
    if (error == DOUBLE_OK && atomic_load(&sticky) == DOUBLE_OK) {
        error = c->kind == COMMAND_LAUNCH    ? run_launch(s, c)
                : c->kind == COMMAND_COPY    ? run_copy(&c->copy)
                : c->kind == COMMAND_FILL    ? run_fill(c)
                : c->kind == COMMAND_WAIT    ? wait_for(c->event, c->count)
                : c->kind == COMMAND_PRODUCT ? double_product_run(&c->product)
                                             : DOUBLE_OK;
    }
    if (error == DOUBLE_ILLEGAL_ADDRESS) {
        fprintf(stderr, "stand-in device: %s reaches outside of its memory\n",
                c->kind == COMMAND_LAUNCH    ? pgd_portable_kernels[c->kernel].name
                : c->kind == COMMAND_COPY    ? "a copy"
                : c->kind == COMMAND_PRODUCT ? "a product"
                                             : "a fill");
    }
    if (error != DOUBLE_OK) {
        lose(error);
    }
    if (c->kind == COMMAND_RECORD) {
        reach(c->event, c->count);
    }
}

static void *work(void *arg) {
    double_stream *s = arg;
    pthread_mutex_lock(&s->lock);
    for (;;) {
        command *c = s->commands.first;
        if (c == NULL) {
            if (s->ends) {
                break;
            }
            pthread_cond_wait(&s->changed, &s->lock);
            continue;
        }
        s->commands.first = c->next;
        s->commands.last = c->next == NULL ? NULL : s->commands.last;
        s->is_busy = 1;
        pthread_mutex_unlock(&s->lock);
        run(s, c);
        let_go(c->event);
        free(c);
        pthread_mutex_lock(&s->lock);
        s->is_busy = 0;
        if (s->commands.first == NULL) {
            pthread_mutex_unlock(&s->lock);
            if (double_cl_finish(s->cl) != DOUBLE_OK) {
                lose(DOUBLE_LOST);
            }
            pthread_mutex_lock(&s->lock);
            pthread_cond_broadcast(&s->changed);
        }
    }
    pthread_mutex_unlock(&s->lock);
    return NULL;
}

// ---- streams -----------------------------------------------------------------------------------

int double_stream_create(double_stream **out) {
    double_stream *s = calloc(1, sizeof(*s));
    *out = NULL;
    int error = s == NULL ? DOUBLE_OUT_OF_MEMORY : double_cl_start();
    if (error != DOUBLE_OK) {
        free(s);
        return error;
    }
    pthread_mutex_init(&s->lock, NULL);
    pthread_cond_init(&s->changed, NULL);
    s->random = (uint64_t)double_settings_get()->seed * 7919 + atomic_fetch_add(&n_streams, 1);
    s->cl = double_cl_queue_create();
    if (s->cl == NULL || pthread_create(&s->worker, NULL, work, s) != 0) {
        double_cl_queue_destroy(s->cl);
        free(s);
        return DOUBLE_OUT_OF_MEMORY;
    }
    *out = s;
    return DOUBLE_OK;
}

int double_stream_destroy(double_stream *s) {
    pthread_mutex_lock(&s->lock);
    s->ends = 1;
    pthread_cond_broadcast(&s->changed);
    pthread_mutex_unlock(&s->lock);
    pthread_join(s->worker, NULL);
    double_cl_queue_destroy(s->cl);
    (void)double_graph_destroy(s->capturing);
    pthread_cond_destroy(&s->changed);
    pthread_mutex_destroy(&s->lock);
    free(s);
    return DOUBLE_OK;
}

int double_stream_synchronize(double_stream *s) {
    if (s->capturing != NULL) {
        return DOUBLE_CAPTURING;
    }
    pthread_mutex_lock(&s->lock);
    while (s->commands.first != NULL || s->is_busy) {
        pthread_cond_wait(&s->changed, &s->lock);
    }
    pthread_mutex_unlock(&s->lock);
    if (double_cl_finish(s->cl) != DOUBLE_OK) {
        lose(DOUBLE_LOST);
    }
    return atomic_load(&sticky);
}

static int append(double_stream *s, const command *what) {
    const int error = atomic_load(&sticky);
    command *c = error == DOUBLE_OK ? malloc(sizeof(*c)) : NULL;
    if (c == NULL) {
        return error == DOUBLE_OK ? DOUBLE_OUT_OF_MEMORY : error;
    }
    *c = *what;
    hold(c->event);
    if (s->capturing != NULL) {
        add(&s->capturing->commands, c);
        return DOUBLE_OK;
    }
    pthread_mutex_lock(&s->lock);
    add(&s->commands, c);
    pthread_cond_broadcast(&s->changed);
    pthread_mutex_unlock(&s->lock);
    return DOUBLE_OK;
}

int double_launch(double_stream *s, void *kernel, const unsigned groups[3], unsigned items,
                  void *const *params) {
    const pgd_portable_kernel *k = kernel;
    command c = {.kind = COMMAND_LAUNCH, .kernel = (int)(k - pgd_portable_kernels)};
    if (items != k->n_items || groups[0] == 0 || groups[1] == 0 || groups[2] == 0 ||
        groups[1] > 65535 || groups[2] > 65535 || k->params_bytes > PARAMS_BYTES) {
        return DOUBLE_INVALID;
    }
    memcpy(c.groups, groups, sizeof(c.groups));
    for (int i = 0; i < PGD_PORTABLE_MEMORIES; i++) {
        memcpy(&c.addresses[i], params[i], sizeof(c.addresses[i]));
    }
    memcpy(c.params, params[PGD_PORTABLE_MEMORIES], k->params_bytes);
    return s->capturing != NULL || double_launch_has_memory() ? append(s, &c)
                                                              : DOUBLE_OUT_OF_MEMORY;
}

int double_copy_rows(double_stream *s, const double_copy *copy) {
    const command c = {.kind = COMMAND_COPY, .copy = *copy};
    if (copy->rows > 1 && (copy->dst_pitch < copy->bytes || copy->src_pitch < copy->bytes)) {
        return DOUBLE_INVALID;
    }
    return copy->rows == 0 || copy->bytes == 0 ? DOUBLE_OK : append(s, &c);
}

int double_fill(double_stream *s, uint64_t dst, uint32_t pattern, size_t n) {
    const command c = {.kind = COMMAND_FILL, .dst = dst, .n = n, .pattern = pattern};
    return dst % 4 != 0 ? DOUBLE_INVALID : append(s, &c);
}

int double_multiply(double_stream *s, const double_product *p) {
    const command c = {.kind = COMMAND_PRODUCT, .product = *p};
    return s->capturing != NULL ? DOUBLE_CAPTURING : append(s, &c);
}

// ---- events ------------------------------------------------------------------------------------

int double_event_create(double_event **out) {
    double_event *e = calloc(1, sizeof(*e));
    *out = e;
    if (e == NULL) {
        return DOUBLE_OUT_OF_MEMORY;
    }
    e->n_holders = 1;
    return DOUBLE_OK;
}

int double_event_destroy(double_event *e) {
    let_go(e);
    return e == NULL ? DOUBLE_INVALID : DOUBLE_OK;
}

int double_event_record(double_event *e, double_stream *s) {
    command c = {.kind = COMMAND_RECORD, .event = e};
    if (s->capturing != NULL) {
        return DOUBLE_CAPTURING;
    }
    pthread_mutex_lock(&events_lock);
    c.count = ++e->asked;
    pthread_mutex_unlock(&events_lock);
    const int error = append(s, &c);
    if (error != DOUBLE_OK) {
        reach(e, c.count);
    }
    return error;
}

int double_event_query(double_event *e) {
    pthread_mutex_lock(&events_lock);
    const int is_reached = e->reached >= e->asked || (double_settings_get()->no_wait & 1) != 0;
    pthread_mutex_unlock(&events_lock);
    const int error = atomic_load(&sticky);
    return error != DOUBLE_OK ? error : is_reached ? DOUBLE_OK : DOUBLE_NOT_READY;
}

int double_event_synchronize(double_event *e) {
    pthread_mutex_lock(&events_lock);
    const uint64_t count = e->asked;
    pthread_mutex_unlock(&events_lock);
    if ((double_settings_get()->no_wait & 1) == 0) {
        (void)wait_for(e, count);
    }
    return atomic_load(&sticky);
}

int double_stream_wait_event(double_stream *s, double_event *e) {
    command c = {.kind = COMMAND_WAIT, .event = e};
    if ((double_settings_get()->no_wait & 2) != 0) {
        return DOUBLE_OK;
    }
    if (s->capturing != NULL) {
        return DOUBLE_CAPTURING;
    }
    pthread_mutex_lock(&events_lock);
    c.count = e->asked;
    pthread_mutex_unlock(&events_lock);
    return append(s, &c);
}

// ---- graphs ------------------------------------------------------------------------------------

int double_capture_begin(double_stream *s) {
    if (s->capturing != NULL) {
        return DOUBLE_CAPTURING;
    }
    s->capturing = calloc(1, sizeof(*s->capturing));
    if (s->capturing == NULL) {
        return DOUBLE_OUT_OF_MEMORY;
    }
    s->capturing->n_holders = 1;
    return DOUBLE_OK;
}

int double_capture_end(double_stream *s, double_graph **out) {
    *out = s->capturing;
    s->capturing = NULL;
    return *out == NULL ? DOUBLE_INVALID : atomic_load(&sticky);
}

int double_graph_launch(double_graph *g, double_stream *s) {
    if (!double_launch_has_memory()) {
        return DOUBLE_OUT_OF_MEMORY;
    }
    for (const command *c = g->commands.first; c != NULL; c = c->next) {
        const int error = append(s, c);
        if (error != DOUBLE_OK) {
            return error;
        }
    }
    return DOUBLE_OK;
}

int double_graph_retain(double_graph *g) {
    g->n_holders++;
    return DOUBLE_OK;
}

int double_graph_destroy(double_graph *g) {
    if (g != NULL && --g->n_holders == 0) {
        clear(&g->commands);
        free(g);
    }
    return DOUBLE_OK;
}

// ---- kernels -----------------------------------------------------------------------------------

int double_module_load(const void *image) {
    if (image == NULL) {
        return DOUBLE_INVALID;
    }
    return double_settings_get()->driver < 13000 ? DOUBLE_OLD_DRIVER : double_cl_start();
}

int double_kernel_find(void **out, const char *name) {
    for (int i = 0; i < PGD_PORTABLE_COUNT; i++) {
        if (strcmp(pgd_portable_kernels[i].name, name) == 0) {
            *out = (void *)(uintptr_t)&pgd_portable_kernels[i];
            return DOUBLE_OK;
        }
    }
    return DOUBLE_NOT_FOUND;
}
