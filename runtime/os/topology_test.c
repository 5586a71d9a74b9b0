// Affinity and nodes read from small trees that look like /proc and /sys of real systems.
#define _GNU_SOURCE // mkdtemp, nftw, sched_setaffinity
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <string.h>

#ifdef __linux__
#include <sched.h>
#endif

#include "os/cpu.h"
#include "os/fake_root_test.h"
#include "os/topology.h"

static void check(const pgd_os_place *want, uint32_t n) {
    pgd_os_place found[16];
    assert_int_equal(pgd_os_places(fake_root, found, 16), n);
    for (uint32_t i = 0; i < n; i++) {
        assert_int_equal(found[i].cpu, want[i].cpu);
        assert_int_equal(found[i].node, want[i].node);
    }
}

static void nothing_there(void **state) {
    (void)state;
    check(NULL, 0);
    fake_put("/proc/self/status", "Name:\tx\n");
    check(NULL, 0);
}

static void no_nodes(void **state) {
    (void)state;
    const pgd_os_place want[3] = {{1, 0}, {4, 0}, {5, 0}};
    fake_put("/proc/self/status", "Name:\tx\nCpus_allowed_list:\t1,4-5\nMems_allowed:\t1\n");
    check(want, 3);
    assert_int_equal(pgd_os_cpu_count_at(fake_root), 3);
}

// Nodes need not be 0, 1 ..., nor hold neighbours; the mask cuts both.
static void two_nodes(void **state) {
    (void)state;
    const pgd_os_place want[5] = {{0, 0}, {2, 0}, {1, 3}, {3, 3}, {7, 3}};
    pgd_os_place some[2];
    fake_put("/proc/self/status", "Cpus_allowed_list:\t0-3,7\n");
    fake_put("/sys/devices/system/node/online", "0,2-3\n");
    fake_put("/sys/devices/system/node/node0/cpulist", "0,2,4,6\n");
    fake_put("/sys/devices/system/node/node2/cpulist", "\n"); // memory only
    fake_put("/sys/devices/system/node/node3/cpulist", "1,3,5,7\n");
    check(want, 5);
    assert_int_equal(pgd_os_places(fake_root, some, 2), 2);
}

// The quota of the control group counts where it is smaller than the mask.
static void quota(void **state) {
    (void)state;
    fake_put("/proc/self/status", "Cpus_allowed_list:\t0-7\n");
    fake_put("/proc/self/cgroup", "0::/a\n");
    fake_put("/proc/self/mountinfo",
             "30 22 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw,nsdelegate\n");
    fake_put("/sys/fs/cgroup/a/cpu.max", "250000 100000\n");
    assert_int_equal(pgd_os_cpu_count_at(fake_root), 3); // two and a half
    fake_put("/sys/fs/cgroup/a/cpu.max", "1600000 100000\n");
    assert_int_equal(pgd_os_cpu_count_at(fake_root), 8);
}

#ifdef __linux__
static void own_mask(void **state) {
    (void)state;
    cpu_set_t before;
    cpu_set_t one;
    pgd_os_place found[2];
    assert_int_equal(sched_getaffinity(0, sizeof(before), &before), 0);
    int cpu = 0;
    while (!CPU_ISSET(cpu, &before)) {
        cpu++;
    }
    CPU_ZERO(&one);
    CPU_SET(cpu, &one);
    assert_int_equal(sched_setaffinity(0, sizeof(one), &one), 0);
    assert_int_equal(pgd_os_cpu_count(), 1);
    assert_int_equal(pgd_os_places("", found, 2), 1);
    assert_int_equal(found[0].cpu, cpu);
    assert_int_equal(sched_setaffinity(0, sizeof(before), &before), 0);
}
#endif

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(nothing_there, fake_make, fake_remove),
        cmocka_unit_test_setup_teardown(no_nodes, fake_make, fake_remove),
        cmocka_unit_test_setup_teardown(two_nodes, fake_make, fake_remove),
        cmocka_unit_test_setup_teardown(quota, fake_make, fake_remove),
#ifdef __linux__
        cmocka_unit_test(own_mask),
#endif
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
