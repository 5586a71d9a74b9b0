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
    const uint64_t drawn = draw(w);
    if (drawn % 16 == 0) {
        const struct timespec pause = {.tv_nsec = (long)(drawn >> 8) % 150000 + 1000};
        nanosleep(&pause, NULL);
    }
}

static void fill(const command *c) {
    for (size_t i = 0; i < c->bytes; i += c->pattern_bytes) {
        memcpy(c->dst + i, c->pattern, c->pattern_bytes);
    }
}

static void run(const command *c) {
    if (c->kind == COMMAND_LAUNCH) {
        (void)double_run(c->launch, c->groups);
    } else if (c->kind == COMMAND_COPY) {
        for (size_t i = 0; i < c->rows; i++) {
            memmove(c->dst + i * c->dst_pitch, c->src + i * c->src_pitch, c->bytes);
        }
    } else if (c->kind == COMMAND_FILL) {
        fill(c);
    }
}

// Runs with the lock held; it is given up meanwhile.
static void run_one(work *w, command *c) {
    const int64_t lost_at = double_setting("PGD_DOUBLE_LOST_AFTER", 0);
    w->is_busy = true;
    n_launches += c->kind == COMMAND_LAUNCH;
    is_lost = is_lost || (lost_at > 0 && n_launches >= lost_at);
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
    w->random =
        (uint64_t)double_setting("PGD_DOUBLE_SEED", 1) * UINT64_C(0x9e3779b97f4a7c15) + ++n_queues;
    w->random |= 1;
    pthread_mutex_unlock(&lock);
    if (pthread_create(&w->thread, NULL, thread, w) != 0) {
        free(w);
        return NULL;
    }
    return w;
}

void work_put(work *w, command *first) {
    pthread_mutex_lock(&lock);
    command **last = &w->first;
    while (*last != NULL) {
        last = &(*last)->next;
    }
    *last = first;
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
