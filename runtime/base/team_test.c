// The thread team: every worker once, barriers, nesting, several callers, idle costs nothing.
#define _GNU_SOURCE // getrusage, mkdtemp, nftw
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>

#include "base/clock.h"
#include "base/mem.h"
#include "base/team.h"
#include "os/cpu.h"
#include "os/fake_root_test.h"
#include "os/thread.h"

enum { MOST = 8, ROUNDS = 300 };

typedef struct job {
    pgd_team *team;
    _Atomic uint32_t n_calls[MOST];
    uint32_t n_workers_seen[MOST];
    uint64_t cells[MOST]; // plain memory: the barrier must order it
    _Atomic uint32_t n_wrong;
    _Atomic uint32_t n_nested;
} job;

static void count_call(void *arg, uint32_t worker, uint32_t n_workers) {
    job *j = arg;
    atomic_fetch_add(&j->n_calls[worker], 1);
    j->n_workers_seen[worker] = n_workers;
}

static void each_worker_once(void **state) {
    (void)state;
    uint64_t live = pgd_mem_live();
    for (uint32_t n = 1; n <= MOST; n++) {
        job j = {0};
        assert_int_equal(pgd_team_create(n, &j.team), PGD_OK);
        assert_int_equal(pgd_team_size(j.team), n);
        for (uint32_t round = 1; round <= ROUNDS; round++) {
            pgd_team_run(j.team, count_call, &j);
            for (uint32_t w = 0; w < MOST; w++) {
                assert_int_equal(j.n_calls[w], w < n ? round : 0);
                assert_int_equal(j.n_workers_seen[w], w < n ? n : 0);
            }
        }
        pgd_team_destroy(j.team);
    }
    pgd_team_destroy(NULL);
    assert_int_equal(pgd_mem_live(), live);
}

// Each round every worker writes its cell, and after a barrier reads all others.
static void pass_barriers(void *arg, uint32_t worker, uint32_t n_workers) {
    job *j = arg;
    for (uint64_t round = 1; round <= ROUNDS; round++) {
        j->cells[worker] = round;
        pgd_team_barrier(j->team);
        for (uint32_t w = 0; w < n_workers; w++) {
            if (j->cells[w] != round) {
                atomic_fetch_add(&j->n_wrong, 1);
            }
        }
        pgd_team_barrier(j->team);
    }
}

static void barriers(void **state) {
    (void)state;
    for (uint32_t n = 1; n <= MOST; n++) {
        job j = {0};
        assert_int_equal(pgd_team_create(n, &j.team), PGD_OK);
        for (int i = 0; i < 3; i++) {
            pgd_team_run(j.team, pass_barriers, &j);
        }
        assert_int_equal(j.n_wrong, 0);
        pgd_team_destroy(j.team);
    }
}

static void inner(void *arg, uint32_t worker, uint32_t n_workers) {
    job *j = arg;
    atomic_fetch_add(&j->n_wrong, worker != 0 || n_workers != 1);
    atomic_fetch_add(&j->n_nested, 1);
    pgd_team_barrier(j->team); // alone: returns at once
}

static void outer(void *arg, uint32_t worker, uint32_t n_workers) {
    job *j = arg;
    (void)worker;
    (void)n_workers;
    pgd_team_run(j->team, inner, j);
    pgd_team_barrier(j->team); // of the outer run
    pgd_team_run(j->team, inner, j);
}

static void nested_runs(void **state) {
    (void)state;
    job j = {0};
    assert_int_equal(pgd_team_create(4, &j.team), PGD_OK);
    pgd_team_run(j.team, outer, &j);
    assert_int_equal(j.n_wrong, 0);
    assert_int_equal(j.n_nested, 8);
    pgd_team_run(j.team, count_call, &j);
    assert_int_equal(j.n_workers_seen[3], 4);
    pgd_team_destroy(j.team);
}

static void *call_often(void *arg) {
    job *j = arg;
    for (int i = 0; i < ROUNDS; i++) {
        pgd_team_run(j->team, count_call, j);
    }
    return NULL;
}

static void callers_queue(void **state) {
    (void)state;
    enum { CALLERS = 4 };
    job j = {0};
    pgd_os_thread threads[CALLERS];
    assert_int_equal(pgd_team_create(3, &j.team), PGD_OK);
    for (int i = 0; i < CALLERS; i++) {
        assert_int_equal(pgd_os_thread_start("caller", call_often, &j, &threads[i]), PGD_OK);
    }
    for (int i = 0; i < CALLERS; i++) {
        pgd_os_thread_join(threads[i]);
    }
    for (uint32_t w = 0; w < 3; w++) {
        assert_int_equal(j.n_calls[w], CALLERS * ROUNDS);
    }
    pgd_team_destroy(j.team);
}

// Sleeps between runs and in them, so that workers, the barrier and the caller really sleep.
static void slow_worker(void *arg, uint32_t worker, uint32_t n_workers) {
    job *j = arg;
    for (uint32_t w = 0; w < n_workers; w++) {
        if (w == worker) {
            pgd_clock_sleep_ns(400000);
        }
        j->cells[worker]++;
        pgd_team_barrier(j->team);
    }
    if (worker == n_workers - 1) {
        pgd_clock_sleep_ns(400000);
    }
}

static void sleepers_wake(void **state) {
    (void)state;
    job j = {0};
    assert_int_equal(pgd_team_create(4, &j.team), PGD_OK);
    for (int i = 0; i < 30; i++) {
        pgd_team_run(j.team, slow_worker, &j);
        pgd_clock_sleep_ns(300000);
    }
    for (uint32_t w = 0; w < 4; w++) {
        assert_int_equal(j.cells[w], 30 * 4);
    }
    pgd_team_destroy(j.team);
}

static uint64_t cpu_ns(void) {
    struct rusage u;
    assert_int_equal(getrusage(RUSAGE_SELF, &u), 0);
    return (uint64_t)(u.ru_utime.tv_sec + u.ru_stime.tv_sec) * 1000000000u +
           (uint64_t)(u.ru_utime.tv_usec + u.ru_stime.tv_usec) * 1000u;
}

static void idle_costs_nothing(void **state) {
    (void)state;
    const uint64_t idle_ns = 500000000;
    job j = {0};
    assert_int_equal(pgd_team_create(MOST, &j.team), PGD_OK);
    pgd_team_run(j.team, count_call, &j);
    pgd_clock_sleep_ns(50000000);
    uint64_t before = cpu_ns();
    pgd_clock_sleep_ns(idle_ns);
    uint64_t used = cpu_ns() - before;
    if (used > idle_ns / 50) {
        fail_msg("idle workers used %llu ns of %llu", (unsigned long long)used,
                 (unsigned long long)idle_ns);
    }
    pgd_team_destroy(j.team);
}

static void sizes(void **state) {
    (void)state;
    pgd_team *team = NULL;
    assert_int_equal(pgd_team_create(0, &team), PGD_OK);
    assert_int_equal(pgd_team_size(team), pgd_os_cpu_count());
    pgd_team_destroy(team);
    assert_int_equal(pgd_team_create(UINT32_MAX, &team), PGD_INVALID);
    assert_null(team);
}

static void no_memory(void **state) {
    (void)state;
    uint64_t live = pgd_mem_live();
    for (uint64_t n = 1; n <= 2; n++) {
        pgd_team *team = NULL;
        pgd_mem_fail_nth(n);
        assert_int_equal(pgd_team_create(2, &team), PGD_OUT_OF_MEMORY);
        assert_null(team);
        assert_int_equal(pgd_mem_live(), live);
    }
}

static void one_team_for_the_process(void **state) {
    (void)state;
    uint64_t live = pgd_mem_live();
    pgd_team *a = NULL;
    pgd_team *b = NULL;
    assert_int_equal(pgd_team_open(3, &a), PGD_OK);
    assert_int_equal(pgd_team_open(7, &b), PGD_OK);
    assert_ptr_equal(a, b);
    assert_int_equal(pgd_team_size(b), 3);
    pgd_team_close(a);
    assert_int_equal(pgd_team_size(b), 3);
    pgd_team_close(b);
    assert_int_equal(pgd_mem_live(), live);
    assert_int_equal(pgd_team_open(2, &a), PGD_OK);
    assert_int_equal(pgd_team_size(a), 2);
    pgd_team_close(a);
    pgd_mem_fail_nth(1);
    assert_int_equal(pgd_team_open(2, &a), PGD_OUT_OF_MEMORY);
    pgd_mem_fail_nth(0);
    assert_null(a);
    assert_int_equal(pgd_mem_live(), live);
}

// ---- on systems that are not this one ----------------------------------------------------------

static void size_by_mask_and_quota(void **state) {
    (void)state;
    pgd_team *team = NULL;
    fake_put("/proc/self/status", "Cpus_allowed_list:\t0-5\n");
    assert_int_equal(pgd_team_create_at(fake_root, 0, &team), PGD_OK);
    assert_int_equal(pgd_team_size(team), 6);
    pgd_team_destroy(team);
    fake_put("/proc/self/cgroup", "0::/a\n");
    fake_put("/proc/self/mountinfo",
             "30 22 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw,nsdelegate\n");
    fake_put("/sys/fs/cgroup/a/cpu.max", "250000 100000\n");
    assert_int_equal(pgd_team_create_at(fake_root, 0, &team), PGD_OK);
    assert_int_equal(pgd_team_size(team), 3);
    pgd_team_destroy(team);
    assert_int_equal(pgd_team_create_at(fake_root, 5, &team), PGD_OK); // asked for: taken
    assert_int_equal(pgd_team_size(team), 5);
    pgd_team_destroy(team);
}

// Node 0 has four cpus, node 2 two of those that the mask leaves.
static void workers_on_nodes(void **state) {
    (void)state;
    const uint32_t want[6] = {0, 0, 0, 0, 2, 2};
    pgd_team *team = NULL;
    job j = {0};
    uint64_t live = pgd_mem_live();
    fake_put("/proc/self/status", "Cpus_allowed_list:\t0-5\n");
    fake_put("/sys/devices/system/node/online", "0,2\n");
    fake_put("/sys/devices/system/node/node0/cpulist", "0-3\n");
    fake_put("/sys/devices/system/node/node2/cpulist", "4-7\n");
    assert_int_equal(pgd_team_create_at(fake_root, 0, &team), PGD_OK);
    assert_int_equal(pgd_team_size(team), 6);
    for (uint32_t i = 0; i < 6; i++) {
        assert_int_equal(pgd_team_node(team, i), want[i]);
    }
    pgd_team_run(team, count_call, &j); // cpus that are not there bind nobody
    for (uint32_t i = 0; i < 6; i++) {
        assert_int_equal(j.n_calls[i], 1);
    }
    pgd_team_destroy(team);
    assert_int_equal(pgd_team_create_at(fake_root, 3, &team), PGD_OK);
    assert_int_equal(pgd_team_node(team, 1), 0);
    assert_int_equal(pgd_team_node(team, 2), 2);
    assert_int_equal(pgd_team_node(team, 3), 0); // there is no such worker
    pgd_team_destroy(team);
    assert_int_equal(pgd_team_create_at(fake_root, 7, &team), PGD_OK); // more workers than cpus
    assert_int_equal(pgd_team_node(team, 6), 0);
    pgd_team_destroy(team);
    pgd_mem_fail_nth(3);
    assert_int_equal(pgd_team_create_at(fake_root, 2, &team), PGD_OUT_OF_MEMORY);
    pgd_mem_fail_nth(0);
    assert_int_equal(pgd_mem_live(), live);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_team_for_the_process),
        cmocka_unit_test(each_worker_once),
        cmocka_unit_test(barriers),
        cmocka_unit_test(nested_runs),
        cmocka_unit_test(callers_queue),
        cmocka_unit_test(sleepers_wake),
        cmocka_unit_test(idle_costs_nothing),
        cmocka_unit_test(sizes),
        cmocka_unit_test(no_memory),
        cmocka_unit_test_setup_teardown(size_by_mask_and_quota, fake_make, fake_remove),
        cmocka_unit_test_setup_teardown(workers_on_nodes, fake_make, fake_remove),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
