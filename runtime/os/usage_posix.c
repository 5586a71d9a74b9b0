// Usage from getrusage and /proc. See usage.h.
#define _GNU_SOURCE

#include "os/usage.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#define NS_PER_S 1000000000u

static uint64_t tick_ns(void) {
    long hz = sysconf(_SC_CLK_TCK);
    return hz > 0 ? NS_PER_S / (uint64_t)hz : NS_PER_S / 100;
}

// user, nice, system, irq, softirq and steal of the first line of /proc/stat; idle and iowait are
// fields 3 and 4, guest time is part of user.
static uint64_t machine_ns(void) {
    enum { N_FIELDS = 8, IDLE = 3, IOWAIT = 4 };
    char line[512];
    uint64_t ticks = 0;
    FILE *f = fopen("/proc/stat", "re");
    if (f == NULL) {
        return 0;
    }
    if (fgets(line, sizeof(line), f) != NULL && strncmp(line, "cpu ", 4) == 0) {
        char *at = line + 4;
        for (int i = 0; i < N_FIELDS; i++) {
            uint64_t value = strtoull(at, &at, 10);
            ticks += i == IDLE || i == IOWAIT ? 0 : value;
        }
    }
    (void)fclose(f);
    return ticks * tick_ns();
}

static uint64_t resident_bytes(void) {
    unsigned long long pages = 0;
    FILE *f = fopen("/proc/self/statm", "re");
    if (f == NULL) {
        return 0;
    }
    if (fscanf(f, "%*u %llu", &pages) != 1) {
        pages = 0;
    }
    (void)fclose(f);
    long page = sysconf(_SC_PAGESIZE);
    return page > 0 ? (uint64_t)pages * (uint64_t)page : 0;
}

static uint64_t ns_of(struct timeval t) {
    return (uint64_t)t.tv_sec * NS_PER_S + (uint64_t)t.tv_usec * 1000u;
}

void pgd_os_usage_read(pgd_os_usage *out) {
    struct rusage r;
    *out = (pgd_os_usage){.all_ns = machine_ns(), .rss_bytes = resident_bytes()};
    if (getrusage(RUSAGE_CHILDREN, &r) == 0) {
        out->own_ns = ns_of(r.ru_utime) + ns_of(r.ru_stime);
    }
    if (getrusage(RUSAGE_SELF, &r) == 0) {
        out->own_ns += ns_of(r.ru_utime) + ns_of(r.ru_stime);
        out->peak_bytes = (uint64_t)r.ru_maxrss * 1024u;
    }
}
