// Threads and futexes.
#define _GNU_SOURCE // pthread_getname_np, sched_getaffinity
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <sched.h>
#include <signal.h>
#include <string.h>

#include "os/env.h"
#include "os/thread.h"

typedef struct seen {
    _Atomic uint32_t go;
    char name[32];
    int n_signals_open;
    int n_cpus;
} seen;

static void *look(void *arg) {
    seen *s = arg;
    sigset_t mask;
    cpu_set_t cpus;
    while (atomic_load(&s->go) == 0) {
        (void)pgd_os_futex_wait(&s->go, 0, UINT64_MAX);
    }
    (void)pthread_getname_np(pthread_self(), s->name, sizeof(s->name));
    (void)pthread_sigmask(SIG_SETMASK, NULL, &mask);
    for (int i = 1; i < 32; i++) {
        s->n_signals_open += i != SIGKILL && i != SIGSTOP && !sigismember(&mask, i);
    }
    pgd_os_thread_pin(1000003);
    CPU_ZERO(&cpus);
    (void)sched_getaffinity(0, sizeof(cpus), &cpus);
    s->n_cpus = CPU_COUNT(&cpus);
    pgd_os_thread_yield();
    return NULL;
}

static void a_thread(void **state) {
    (void)state;
    seen s = {0};
    sigset_t before;
    sigset_t after;
    pgd_os_thread thread;
    (void)pthread_sigmask(SIG_SETMASK, NULL, &before);
    assert_int_equal(pgd_os_thread_start("a-name-that-is-too-long", look, &s, &thread), PGD_OK);
    (void)pthread_sigmask(SIG_SETMASK, NULL, &after);
    for (int i = 1; i < 32; i++) {
        assert_int_equal(sigismember(&before, i), sigismember(&after, i));
    }
    atomic_store(&s.go, 1);
    pgd_os_futex_wake(&s.go, UINT32_MAX);
    pgd_os_thread_join(thread);
    assert_string_equal(s.name, "a-name-that-is-");
    assert_int_equal(s.n_signals_open, 0);
    assert_int_equal(s.n_cpus, 1);
}

static void futex_times(void **state) {
    (void)state;
    _Atomic uint32_t word = 5;
    assert_int_equal(pgd_os_futex_wait(&word, 4, UINT64_MAX), PGD_OK);
    uint64_t start = pgd_os_monotonic_ns();
    pgd_status status = PGD_OK;
    while (status == PGD_OK) { // may wake early
        status = pgd_os_futex_wait(&word, 5, 20000000);
    }
    assert_int_equal(status, PGD_TIMEOUT);
    assert_true(pgd_os_monotonic_ns() - start >= 19000000);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_thread),
        cmocka_unit_test(futex_times),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
