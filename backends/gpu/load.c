// Opening a vendor's library, with an end. A driver may wait for ever for a chip that hangs, and
// who only asks which devices there are must not: a thread of its own opens the library, and it is
// given LOAD_SECONDS (option start_seconds). A library that gave no answer is not asked again in
// this process; the thread stays behind, and the host it was lent is taken away from it.
#define _XOPEN_SOURCE 700 // sigaltstack

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "gpu.h"

enum { LOAD_SECONDS = 30 };

typedef struct loading {
    pgd_host host; // lent to the driver; its functions are below
    const gpu_driver *driver;
    pthread_t thread;
    pthread_mutex_t lock; // guards what follows
    pthread_cond_t ended;
    const pgd_host *caller; // NULL: it waits no longer
    bool is_done;
    void *library;
    pgd_status code;
    char text[240];
} loading;

// Kept so that nobody takes it for lost.
static _Atomic(loading *) given_up;

static loading *loading_of(const pgd_host *h) {
    return (loading *)(uintptr_t)h; // host is the first member
}

static pgd_status lent_fail(const pgd_host *h, pgd_status code, const char *file, int32_t line,
                            const char *fmt, ...) PGD_PRINTF(5, 6);

static pgd_status lent_fail(const pgd_host *h, pgd_status code, const char *file, int32_t line,
                            const char *fmt, ...) {
    loading *l = loading_of(h);
    va_list args;
    (void)file;
    (void)line;
    pthread_mutex_lock(&l->lock);
    va_start(args, fmt);
    vsnprintf(l->text, sizeof(l->text), fmt, args);
    va_end(args);
    pthread_mutex_unlock(&l->lock);
    return code;
}

static void lent_log(const pgd_host *h, int32_t level, const char *text) {
    (void)h;
    (void)level;
    (void)text;
}

static void *lent_alloc(const pgd_host *h, uint64_t bytes, uint64_t align) {
    loading *l = loading_of(h);
    pthread_mutex_lock(&l->lock);
    void *ptr = l->caller == NULL ? NULL : l->caller->alloc(l->caller, bytes, align);
    pthread_mutex_unlock(&l->lock);
    return ptr;
}

static void lent_free(const pgd_host *h, void *ptr) {
    loading *l = loading_of(h);
    pthread_mutex_lock(&l->lock);
    if (l->caller != NULL) {
        l->caller->free(l->caller, ptr);
    }
    pthread_mutex_unlock(&l->lock);
}

static const char *lent_option(const pgd_host *h, const char *key) {
    loading *l = loading_of(h);
    pthread_mutex_lock(&l->lock);
    const char *value =
        l->caller == NULL || l->caller->option == NULL ? NULL : l->caller->option(l->caller, key);
    pthread_mutex_unlock(&l->lock);
    return value;
}

static void *open_library(void *arg) {
    loading *l = arg;
    void *library = NULL;
    stack_t before;
    // A driver may give this thread a stack for signals (LLVM does); the thread ends as it began.
    (void)sigaltstack(NULL, &before);
    const pgd_status code = l->driver->load(&l->host, &library);
    (void)sigaltstack(&before, NULL);
    pthread_mutex_lock(&l->lock);
    l->library = library;
    l->code = code;
    l->is_done = true;
    pthread_cond_signal(&l->ended);
    pthread_mutex_unlock(&l->lock);
    return NULL;
}

static loading *start(const pgd_host *host, const gpu_driver *driver) {
    loading *l = calloc(1, sizeof(*l));
    pthread_condattr_t attr;
    if (l == NULL) {
        return NULL;
    }
    l->host = (pgd_host){.size = sizeof(l->host),
                         .minor = host->minor,
                         .log = lent_log,
                         .fail = lent_fail,
                         .clock_ns = host->clock_ns,
                         .alloc = lent_alloc,
                         .free = lent_free,
                         .option = lent_option};
    l->driver = driver;
    l->caller = host;
    pthread_mutex_init(&l->lock, NULL);
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_cond_init(&l->ended, &attr);
    pthread_condattr_destroy(&attr);
    if (pthread_create(&l->thread, NULL, open_library, l) != 0) {
        free(l);
        return NULL;
    }
    return l;
}

// False when the time is over; then the library has no host any more.
static bool wait_for(loading *l, long seconds) {
    struct timespec end;
    int error = 0;
    clock_gettime(CLOCK_MONOTONIC, &end);
    end.tv_sec += seconds;
    pthread_mutex_lock(&l->lock);
    while (!l->is_done && error != ETIMEDOUT) {
        error = pthread_cond_timedwait(&l->ended, &l->lock, &end);
    }
    const bool is_done = l->is_done;
    l->caller = is_done ? l->caller : NULL;
    pthread_mutex_unlock(&l->lock);
    return is_done;
}

pgd_status gpu_load(const pgd_host *host, const gpu_driver *driver, void **out_library,
                    char *out_text, size_t bytes) {
    const char *option = host->option == NULL ? NULL : host->option(host, "start_seconds");
    long seconds = option == NULL ? 0 : strtol(option, NULL, 10);
    loading *l = atomic_load(&given_up) != NULL ? NULL : start(host, driver);
    seconds = seconds > 0 ? seconds : LOAD_SECONDS;
    *out_library = NULL;
    out_text[0] = '\0';
    if (l == NULL && atomic_load(&given_up) == NULL) {
        snprintf(out_text, bytes, "%s: no memory to open the driver", driver->kind);
        return PGD_OUT_OF_MEMORY;
    }
    if (l == NULL || !wait_for(l, seconds)) {
        if (l != NULL) {
            (void)pthread_detach(l->thread);
            atomic_store(&given_up, l);
        }
        snprintf(out_text, bytes, "%s: the driver gave no answer in %ld s", driver->kind, seconds);
        return PGD_UNAVAILABLE;
    }
    (void)pthread_join(l->thread, NULL);
    const pgd_status code = l->code;
    *out_library = l->library;
    snprintf(out_text, bytes, "%s", l->text);
    pthread_cond_destroy(&l->ended);
    pthread_mutex_destroy(&l->lock);
    free(l);
    return code;
}
