// Queues: a thread each. Between two barriers commands run in an order drawn from the seed, each
// after a delay now and then, so that who forgets a barrier or a wait sees wrong numbers.
#define _GNU_SOURCE 1
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "double.h"

struct work {
    pthread_t thread;
    uint64_t random;
    command *first; // not begun
    bool is_busy;
    bool is_ending;
};

// One lock and one bell for everything: events, queues, the lost device.
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t bell = PTHREAD_COND_INITIALIZER;
static bool is_lost;
static int64_t n_launches;
static uint64_t n_queues;

bool work_is_lost(void) {
    pthread_mutex_lock(&lock);
    const bool lost = is_lost;
    pthread_mutex_unlock(&lock);
    return lost;
}

command *command_copy(const command *c) {
    command *copy = malloc(sizeof(*copy));
    if (copy == NULL) {
        abort();
    }
    *copy = *c;
    copy->next = NULL;
    if (c->launch != NULL) {
        copy->launch = malloc(sizeof(*copy->launch));
        if (copy->launch == NULL) {
            abort();
        }
        *copy->launch = *c->launch;
    }
    return copy;
}

void command_free(command *first) {
    while (first != NULL) {
        command *next = first->next;
        free(first->launch);
        free(first);
        first = next;
    }
}

// ---- events ------------------------------------------------------------------------------------

void event_reset(ze_event_handle_t e) {
    pthread_mutex_lock(&lock);
    e->is_set = false;
    pthread_mutex_unlock(&lock);
}

ze_result_t event_wait(ze_event_handle_t e, uint64_t timeout_ns) {
    struct timespec end;
    bool in_time = true;
    clock_gettime(CLOCK_REALTIME, &end);
    if (timeout_ns < UINT64_C(1000000000000)) {
        end.tv_sec += (time_t)(timeout_ns / 1000000000);
        end.tv_nsec += (long)(timeout_ns % 1000000000);
        end.tv_sec += end.tv_nsec / 1000000000;
        end.tv_nsec %= 1000000000;
    } else {
        end.tv_sec += 1000;
    }
    pthread_mutex_lock(&lock);
    while (!e->is_set && !is_lost && in_time && timeout_ns > 0) {
        in_time = pthread_cond_timedwait(&bell, &lock, &end) == 0;
    }
    const ze_result_t result = is_lost     ? ZE_RESULT_ERROR_DEVICE_LOST
                               : e->is_set ? ZE_RESULT_SUCCESS
                                           : ZE_RESULT_NOT_READY;
    pthread_mutex_unlock(&lock);
    return result;
}

// ---- what runs next ----------------------------------------------------------------------------

static uint64_t draw(work *w) { // xorshift64 (Marsaglia, 2003)
    w->random ^= w->random << 13;
    w->random ^= w->random >> 7;
    w->random ^= w->random << 17;
    return w->random;
}

static bool is_ready(const command *c) {
    for (uint32_t i = 0; i < c->n_waits; i++) {
        if (!c->waits[i]->is_set) {
            return false;
        }
    }
    return true;
}

// Takes one of the commands that may run: any before the first barrier, or the barrier at the head.
static command *take(work *w) {
    uint32_t n = 0;
    for (const command *c = w->first; c != NULL; c = c->next) {
        if (c->kind == COMMAND_BARRIER) {
            n += c == w->first && is_ready(c);
            break;
        }
        n += is_ready(c);
    }
    uint64_t pick = n == 0 ? 0 : draw(w) % n;
    for (command **at = &w->first; n > 0 && *at != NULL; at = &(*at)->next) {
        command *c = *at;
        if (is_ready(c) && pick-- == 0) {
            *at = c->next;
            c->next = NULL;
            return c;
        }
    }
    return NULL;
}

static void delay(work *w) {
    const double_settings *settings = double_settings_get();
    const uint64_t drawn = draw(w);
    if (settings->pause_us > 0 && (int64_t)(drawn % 1000) < settings->pauses) {
        const uint64_t us = (drawn >> 16) % (uint64_t)settings->pause_us;
        const struct timespec pause = {.tv_nsec = (long)us * 1000};
        nanosleep(&pause, NULL);
    }
}

// An address of the device; or of the host, which a copy may name too.
static unsigned char *pointer_of(uint64_t address, size_t bytes) {
    unsigned char *ptr = double_memory_find(address, bytes);
    if (ptr == NULL && (address >> 48 != 0 || double_memory_find(address, 0) != NULL)) {
        zed_complain("a copy outside of a memory");
    }
    return ptr != NULL ? ptr : (unsigned char *)(uintptr_t)address;
}

static void copy(const command *c) {
    const size_t rest = c->rows - 1;
    unsigned char *dst = pointer_of(c->dst, rest * c->dst_pitch + c->bytes);
    const unsigned char *src = pointer_of(c->src, rest * c->src_pitch + c->bytes);
    for (size_t i = 0; i < c->rows; i++) {
        memmove(dst + i * c->dst_pitch, src + i * c->src_pitch, c->bytes);
    }
}

static void fill(const command *c) {
    unsigned char *dst = pointer_of(c->dst, c->bytes);
    for (size_t i = 0; i < c->bytes; i += c->pattern_bytes) {
        memcpy(dst + i, c->pattern, c->pattern_bytes);
    }
}

static void run(const command *c) {
    switch (c->kind) {
    case COMMAND_LAUNCH: zed_run(c->launch, c->groups); break;
    case COMMAND_COPY: copy(c); break;
    case COMMAND_FILL: fill(c); break;
    default: break;
    }
}

// Runs with the lock held; it is given up meanwhile.
static void run_one(work *w, command *c) {
    const int64_t most = double_settings_get()->lose;
    w->is_busy = true;
    n_launches += c->kind == COMMAND_LAUNCH;
    is_lost = is_lost || (most > 0 && n_launches > most);
    if (!is_lost) {
        pthread_mutex_unlock(&lock);
        delay(w);
        run(c);
        pthread_mutex_lock(&lock);
        if (c->reset != NULL) {
            c->reset->is_set = false;
        }
        if (c->signals != NULL) {
            c->signals->is_set = true;
        }
    }
    w->is_busy = false;
    command_free(c);
    pthread_cond_broadcast(&bell);
}

static void *thread(void *arg) {
    work *w = arg;
    pthread_mutex_lock(&lock);
    while (!w->is_ending) {
        if (is_lost) {
            command_free(w->first);
            w->first = NULL;
            pthread_cond_broadcast(&bell);
        }
        command *c = take(w);
        if (c != NULL) {
            run_one(w, c);
        } else {
            pthread_cond_wait(&bell, &lock);
        }
    }
    pthread_mutex_unlock(&lock);
    return NULL;
}

// ---- queues ------------------------------------------------------------------------------------

work *work_create(void) {
    work *w = calloc(1, sizeof(*w));
    if (w == NULL) {
        return NULL;
    }
    pthread_mutex_lock(&lock);
    w->random = (uint64_t)double_settings_get()->seed * UINT64_C(0x9e3779b97f4a7c15) + ++n_queues;
    w->random |= 1;
    pthread_mutex_unlock(&lock);
    if (pthread_create(&w->thread, NULL, thread, w) != 0) {
        free(w);
        return NULL;
    }
    return w;
}

void work_put(work *w, command *c) {
    pthread_mutex_lock(&lock);
    command **last = &w->first;
    while (*last != NULL) {
        last = &(*last)->next;
    }
    *last = c;
    pthread_cond_broadcast(&bell);
    pthread_mutex_unlock(&lock);
}

void work_wait(work *w) {
    pthread_mutex_lock(&lock);
    while ((w->first != NULL || w->is_busy) && !is_lost) {
        pthread_cond_wait(&bell, &lock);
    }
    pthread_mutex_unlock(&lock);
}

void work_destroy(work *w) {
    if (w == NULL) {
        return;
    }
    work_wait(w);
    pthread_mutex_lock(&lock);
    w->is_ending = true;
    pthread_cond_broadcast(&bell);
    pthread_mutex_unlock(&lock);
    pthread_join(w->thread, NULL);
    command_free(w->first);
    free(w);
}
