// See workers.h.
#include "serve/workers.h"

#include "base/fail.h"
#include "base/mem.h"
#include "os/thread.h"

#define MAX_WORKERS 64

struct pgd_serve_workers {
    pgd_os_mutex jobs_mutex;
    pgd_os_cond jobs_came;
    pgd_serve_job *first;
    pgd_serve_job **end;
    int32_t stopping;
    int32_t n;
    pgd_os_thread threads[MAX_WORKERS];
};

static void *work(void *arg) {
    pgd_serve_workers *w = arg;
    pthread_mutex_lock(&w->jobs_mutex);
    for (;;) {
        pgd_serve_job *job = w->first;
        if (job != NULL) {
            w->first = job->next;
            w->end = w->first == NULL ? &w->first : w->end;
            pthread_mutex_unlock(&w->jobs_mutex);
            job->fn(job->arg);
            pthread_mutex_lock(&w->jobs_mutex);
        } else if (w->stopping) {
            break;
        } else {
            pthread_cond_wait(&w->jobs_came, &w->jobs_mutex);
        }
    }
    pthread_mutex_unlock(&w->jobs_mutex);
    return NULL;
}

pgd_status pgd_serve_workers_start(int32_t n, pgd_serve_workers **out) {
    *out = NULL;
    pgd_serve_workers *w = pgd_mem_alloc(1, sizeof(*w));
    if (w == NULL) {
        return PGD_MEM_FAIL("text workers", sizeof(*w));
    }
    w->end = &w->first;
    pthread_mutex_init(&w->jobs_mutex, NULL);
    pthread_cond_init(&w->jobs_came, NULL);
    n = n < 1 ? 1 : n > MAX_WORKERS ? MAX_WORKERS : n;
    for (; w->n < n; w->n++) {
        pgd_status status = pgd_os_thread_start("pagoda-text", work, w, &w->threads[w->n]);
        if (status != PGD_OK) {
            pgd_serve_workers_stop(w);
            return pgd_fail(status, "no thread for text workers");
        }
    }
    *out = w;
    return PGD_OK;
}

void pgd_serve_workers_add(pgd_serve_workers *w, pgd_serve_job *job) {
    job->next = NULL;
    pthread_mutex_lock(&w->jobs_mutex);
    *w->end = job;
    w->end = &job->next;
    pthread_cond_signal(&w->jobs_came);
    pthread_mutex_unlock(&w->jobs_mutex);
}

void pgd_serve_workers_stop(pgd_serve_workers *w) {
    if (w == NULL) {
        return;
    }
    pthread_mutex_lock(&w->jobs_mutex);
    w->stopping = 1;
    pthread_cond_broadcast(&w->jobs_came);
    pthread_mutex_unlock(&w->jobs_mutex);
    for (int32_t i = 0; i < w->n; i++) {
        pgd_os_thread_join(w->threads[i]);
    }
    pthread_cond_destroy(&w->jobs_came);
    pthread_mutex_destroy(&w->jobs_mutex);
    pgd_mem_free(w);
}
