// Threads over pthreads; futexes over Linux's system call, elsewhere short sleeps (a wait may wake
// early, so callers loop anyway).
#define _GNU_SOURCE

#include "os/thread.h"

#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#ifdef __linux__
#include <limits.h>
#include <linux/futex.h>
#include <sys/syscall.h>
#endif

pgd_status pgd_os_thread_start(const char *name, void *(*fn)(void *arg), void *arg,
                               pgd_os_thread *out) {
    // The thread inherits the mask: every signal goes to a thread that the embedder made.
    sigset_t all;
    sigset_t before;
    (void)sigfillset(&all);
    (void)pthread_sigmask(SIG_SETMASK, &all, &before);
    int error = pthread_create(out, NULL, fn, arg);
    (void)pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (error != 0) {
        errno = error;
        return error == ENOMEM ? PGD_OUT_OF_MEMORY : PGD_UNAVAILABLE;
    }
#ifdef __linux__
    char cut[16] = {0};
    memcpy(cut, name, strnlen(name, sizeof(cut) - 1));
    (void)pthread_setname_np(*out, cut);
#else
    (void)name;
#endif
    return PGD_OK;
}

void pgd_os_thread_join(pgd_os_thread thread) {
    (void)pthread_join(thread, NULL);
}

void pgd_os_thread_pause(void) {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#else
    atomic_signal_fence(memory_order_seq_cst);
#endif
}

void pgd_os_thread_yield(void) {
    (void)sched_yield();
}

void pgd_os_thread_bind(const uint32_t *cpus, uint32_t n) {
#ifdef __linux__
    cpu_set_t want[64]; // 65,536 cpus
    memset(want, 0, sizeof(want));
    for (uint32_t i = 0; i < n; i++) {
        CPU_SET_S(cpus[i], sizeof(want), want);
    }
    (void)sched_setaffinity(0, sizeof(want), want);
#else
    (void)cpus;
    (void)n;
#endif
}

void pgd_os_thread_pin(uint32_t cpu) {
#ifdef __linux__
    cpu_set_t have[64]; // 65,536 cpus
    cpu_set_t want[64];
    memset(have, 0, sizeof(have));
    memset(want, 0, sizeof(want));
    if (sched_getaffinity(getpid(), sizeof(have), have) != 0) {
        return;
    }
    int n = CPU_COUNT_S(sizeof(have), have);
    if (n <= 0) {
        return;
    }
    uint32_t skip = cpu % (uint32_t)n;
    for (size_t i = 0; i < sizeof(have) * 8; i++) {
        if (CPU_ISSET_S(i, sizeof(have), have) && skip-- == 0) {
            CPU_SET_S(i, sizeof(want), want);
            (void)sched_setaffinity(0, sizeof(want), want);
            return;
        }
    }
#else
    (void)cpu;
#endif
}

static struct timespec span_of(uint64_t ns) {
    return (struct timespec){.tv_sec = (time_t)(ns / 1000000000u),
                             .tv_nsec = (long)(ns % 1000000000u)};
}

pgd_status pgd_os_futex_wait(_Atomic uint32_t *word, uint32_t expected, uint64_t timeout_ns) {
#ifdef __linux__
    struct timespec span = span_of(timeout_ns);
    long rc = syscall(SYS_futex, word, FUTEX_WAIT_PRIVATE, expected,
                      timeout_ns == UINT64_MAX ? NULL : &span, NULL, 0);
    return rc != 0 && errno == ETIMEDOUT ? PGD_TIMEOUT : PGD_OK;
#else
    const uint64_t nap_ns = 100000;
    if (atomic_load(word) != expected) {
        return PGD_OK;
    }
    struct timespec span = span_of(timeout_ns < nap_ns ? timeout_ns : nap_ns);
    (void)nanosleep(&span, NULL);
    return timeout_ns <= nap_ns && atomic_load(word) == expected ? PGD_TIMEOUT : PGD_OK;
#endif
}

void pgd_os_futex_wake(_Atomic uint32_t *word, uint32_t n) {
#ifdef __linux__
    int count = n > INT_MAX ? INT_MAX : (int)n;
    (void)syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, count, NULL, NULL, 0);
#else
    (void)word;
    (void)n;
#endif
}
