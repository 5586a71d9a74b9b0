// Control groups read from small trees that look like /proc and /sys of real systems.
#define _GNU_SOURCE // mkdtemp, nftw
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <string.h>

#include "os/cgroup.h"
#include "os/fake_root_test.h"

#define V2_MOUNT                            \
    "22 1 0:20 / /proc rw - proc proc rw\n" \
    "30 22 0:26 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw,nsdelegate\n"

static void nothing_there(void **state) {
    (void)state;
    uint64_t left = 0;
    assert_true(pgd_os_cgroup_cpus(fake_root) == UINT32_MAX);
    assert_true(pgd_os_cgroup_memory(fake_root, &left) == UINT64_MAX);
    assert_true(left == UINT64_MAX);
}

static void version_2(void **state) {
    (void)state;
    uint64_t left = 0;
    fake_put("/proc/self/mountinfo", V2_MOUNT);
    fake_put("/proc/self/cgroup", "0::/a.slice/b\n");
    fake_put("/sys/fs/cgroup/a.slice/b/cpu.max", "max 100000\n");
    fake_put("/sys/fs/cgroup/a.slice/cpu.max", "250000 100000\n");
    fake_put("/sys/fs/cgroup/cpu.max", "400000 100000\n");
    fake_put("/sys/fs/cgroup/a.slice/b/memory.max", "1000000\n");
    fake_put("/sys/fs/cgroup/a.slice/b/memory.current", "700000\n");
    fake_put("/sys/fs/cgroup/a.slice/b/memory.stat",
             "anon 1\nxinactive_file 9\ninactive_file 200000\n");
    fake_put("/sys/fs/cgroup/a.slice/memory.max", "2000000\n");
    fake_put("/sys/fs/cgroup/a.slice/memory.current", "1900000\n");
    fake_put("/sys/fs/cgroup/memory.max", "max\n");
    assert_int_equal(pgd_os_cgroup_cpus(fake_root), 3); // 2.5 cores
    assert_int_equal(pgd_os_cgroup_memory(fake_root, &left), 1000000);
    assert_int_equal(left, 100000); // the parent has less left than 1000000 - 500000
    fake_put("/sys/fs/cgroup/a.slice/b/cpu.max", "5000 100000\n");
    assert_int_equal(pgd_os_cgroup_cpus(fake_root), 1);
    fake_put("/sys/fs/cgroup/a.slice/b/memory.current", "1300000\n");
    (void)pgd_os_cgroup_memory(fake_root, &left);
    assert_int_equal(left, 0);
}

// In a container with its own namespace the path is "/" and the mount's root too.
static void version_2_own_namespace(void **state) {
    (void)state;
    uint64_t left = 0;
    fake_put("/proc/self/mountinfo", V2_MOUNT);
    fake_put("/proc/self/cgroup", "0::/\n");
    fake_put("/sys/fs/cgroup/cpu.max", "400000 100000\n");
    fake_put("/sys/fs/cgroup/memory.max", "8192\n");
    assert_int_equal(pgd_os_cgroup_cpus(fake_root), 4);
    assert_int_equal(pgd_os_cgroup_memory(fake_root, &left), 8192);
    assert_int_equal(left, 8192);
}

// Version 1 in a container: the path is that of the host, the mount's root as well.
static void version_1(void **state) {
    (void)state;
    uint64_t left = 0;
    fake_put("/proc/self/mountinfo",
             "33 32 0:28 /docker/1f /sys/fs/cgroup/cpu,cpuacct ro - cgroup cgroup rw,cpu,cpuacct\n"
             "34 32 0:29 /docker/1f /sys/fs/cgroup/memory ro - cgroup cgroup rw,memory\n"
             "35 32 0:30 / /sys/fs/cgroup/cpuset ro - cgroup cgroup rw,cpuset\n");
    fake_put("/proc/self/cgroup",
             "9:cpuset:/\n5:memory:/docker/1f/x\n4:cpu,cpuacct:/docker/1f\n0::/z\n");
    fake_put("/sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us", "150000\n");
    fake_put("/sys/fs/cgroup/cpu,cpuacct/cpu.cfs_period_us", "100000\n");
    fake_put("/sys/fs/cgroup/memory/x/memory.limit_in_bytes", "9223372036854771712\n");
    fake_put("/sys/fs/cgroup/memory/x/memory.usage_in_bytes", "5\n");
    fake_put("/sys/fs/cgroup/memory/memory.limit_in_bytes", "4096\n");
    fake_put("/sys/fs/cgroup/memory/memory.usage_in_bytes", "1000\n");
    fake_put("/sys/fs/cgroup/memory/memory.stat", "inactive_file 1\ntotal_inactive_file 96\n");
    assert_int_equal(pgd_os_cgroup_cpus(fake_root), 2);
    assert_int_equal(pgd_os_cgroup_memory(fake_root, &left), 4096);
    assert_int_equal(left, 4096 - 904);
    fake_put("/sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us", "-1\n");
    assert_true(pgd_os_cgroup_cpus(fake_root) == UINT32_MAX);
}

// A path outside of the mount's root: only the mount point is read.
static void path_outside(void **state) {
    (void)state;
    fake_put("/proc/self/mountinfo",
             "30 22 0:26 /pod/c /sys/fs/cgroup rw - cgroup2 cgroup2 rw\nbroken line\n30 22 - x\n");
    fake_put("/proc/self/cgroup", "broken\n0::/../other\n");
    fake_put("/sys/fs/cgroup/cpu.max", "200000 100000\n");
    assert_int_equal(pgd_os_cgroup_cpus(fake_root), 2);
    fake_put("/proc/self/cgroup", "0::/pod/code\n");
    assert_int_equal(pgd_os_cgroup_cpus(fake_root), 2);
    fake_put("/proc/self/cgroup", "0::/pod/c/d\n");
    fake_put("/sys/fs/cgroup/d/cpu.max", "100000 100000\n");
    assert_int_equal(pgd_os_cgroup_cpus(fake_root), 1);
    fake_put("/sys/fs/cgroup/d/cpu.max", "rubbish\n");
    assert_int_equal(pgd_os_cgroup_cpus(fake_root), 2);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(nothing_there, fake_make, fake_remove),
        cmocka_unit_test_setup_teardown(version_2, fake_make, fake_remove),
        cmocka_unit_test_setup_teardown(version_2_own_namespace, fake_make, fake_remove),
        cmocka_unit_test_setup_teardown(version_1, fake_make, fake_remove),
        cmocka_unit_test_setup_teardown(path_outside, fake_make, fake_remove),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
