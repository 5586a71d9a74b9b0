// The text workers: a queue of jobs and a few threads that run them in order of arrival.
#ifndef PGD_SERVE_WORKERS_H
#define PGD_SERVE_WORKERS_H

#include <pagoda/status.h>

typedef struct pgd_serve_workers pgd_serve_workers;

// A job belongs to the caller; fn may free it.
typedef struct pgd_serve_job pgd_serve_job;
struct pgd_serve_job {
    pgd_serve_job *next;
    void (*fn)(void *arg);
    void *arg;
};

pgd_status pgd_serve_workers_start(int32_t n, pgd_serve_workers **out) PGD_MUST_USE;
void pgd_serve_workers_add(pgd_serve_workers *w, pgd_serve_job *job); // [any]
// Runs what is queued, then ends the threads. NULL is fine.
void pgd_serve_workers_stop(pgd_serve_workers *w);

#endif
