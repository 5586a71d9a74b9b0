// Cores and memory: the affinity mask and /proc/meminfo, clipped by the control group.
#define _GNU_SOURCE

#include "os/cpu.h"

#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "os/cgroup.h"
#include "os/topology.h"

static uint32_t count_cores(void) {
#ifdef __linux__
    cpu_set_t have[64]; // 65,536 cpus
    memset(have, 0, sizeof(have));
    if (sched_getaffinity(getpid(), sizeof(have), have) == 0) {
        int n = CPU_COUNT_S(sizeof(have), have);
        if (n > 0) {
            return (uint32_t)n;
        }
    }
#endif
    long online = sysconf(_SC_NPROCESSORS_ONLN);
    return online > 0 ? (uint32_t)online : 1;
}

uint32_t pgd_os_cpu_count(void) {
    return pgd_os_cpu_count_at("");
}

uint32_t pgd_os_cpu_count_at(const char *root) {
    pgd_os_place places[PGD_OS_MOST_CPUS];
    uint32_t cores =
        root[0] == '\0' ? count_cores() : pgd_os_places(root, places, PGD_OS_MOST_CPUS);
    uint32_t quota = pgd_os_cgroup_cpus(root);
    uint32_t n = cores < quota ? cores : quota;
    return n > 0 ? n : 1;
}

uint64_t pgd_os_cpu_hz(void) {
    static const char key[] = "cpu MHz";
    char line[256];
    uint64_t hz = 0;
    FILE *f = fopen("/proc/cpuinfo", "re");
    while (f != NULL && hz == 0 && fgets(line, sizeof(line), f) != NULL) {
        const char *value = strchr(line, ':');
        if (strncmp(line, key, sizeof(key) - 1) == 0 && value != NULL) {
            hz = strtoull(value + 1, NULL, 10) * 1000000;
        }
    }
    if (f != NULL) {
        (void)fclose(f);
    }
    return hz;
}

// A line of /proc/meminfo ("MemTotal:  1024 kB") in bytes; 0 if there is none.
static uint64_t read_meminfo(const char *key) {
    char line[256];
    uint64_t bytes = 0;
    size_t n = strlen(key);
    FILE *f = fopen("/proc/meminfo", "re");
    if (f == NULL) {
        return 0;
    }
    while (fgets(line, sizeof(line), f) != NULL) {
        if (strncmp(line, key, n) == 0 && line[n] == ':') {
            bytes = strtoull(line + n + 1, NULL, 10) * 1024;
            break;
        }
    }
    (void)fclose(f);
    return bytes;
}

uint64_t pgd_os_memory_total(void) {
    uint64_t left = 0;
    uint64_t limit = pgd_os_cgroup_memory("", &left);
    uint64_t all = read_meminfo("MemTotal");
    return all < limit ? all : limit;
}

uint64_t pgd_os_memory_available(void) {
    uint64_t left = 0;
    (void)pgd_os_cgroup_memory("", &left);
    uint64_t free_bytes = read_meminfo("MemAvailable");
    return free_bytes < left ? free_bytes : left;
}
