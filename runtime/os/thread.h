// Threads, mutexes, futexes.
#ifndef PGD_OS_THREAD_H
#define PGD_OS_THREAD_H

#include <pthread.h>
#include <stdatomic.h>

#include <pagoda/status.h>

typedef pthread_t pgd_os_thread;
typedef pthread_mutex_t pgd_os_mutex;
typedef pthread_cond_t pgd_os_cond;

// name: at most 15 bytes, shown by tools. All signals are blocked in the thread.
pgd_status pgd_os_thread_start(const char *name, void *(*fn)(void *arg), void *arg,
                               pgd_os_thread *out) PGD_MUST_USE;
void pgd_os_thread_join(pgd_os_thread thread);
void pgd_os_thread_yield(void);
// Tells the core that this is a spin loop.
void pgd_os_thread_pause(void);
// Binds the calling thread to one cpu of the process's set; no failure is reported.
void pgd_os_thread_pin(uint32_t cpu);
// Binds the calling thread to those of these cpus that there are; no failure is reported.
void pgd_os_thread_bind(const uint32_t *cpus, uint32_t n);

// Sleeps while *word == expected; TIMEOUT after timeout_ns (UINT64_MAX = never); may wake early.
pgd_status pgd_os_futex_wait(_Atomic uint32_t *word, uint32_t expected, uint64_t timeout_ns);
void pgd_os_futex_wake(_Atomic uint32_t *word, uint32_t n); // UINT32_MAX = all

#endif
