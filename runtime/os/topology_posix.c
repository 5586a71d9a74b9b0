// Affinity and NUMA nodes from the files of Linux.
//
//   /proc/self/status                         Cpus_allowed_list: 0-3,8
//   /sys/devices/system/node/online           0-1
//   /sys/devices/system/node/node0/cpulist    0-3
// Source: proc(5), Documentation/ABI/stable/sysfs-devices-node.
#define _GNU_SOURCE

#include "os/topology.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { TEXT_BYTES = 4096 };

typedef struct set {
    unsigned char has[PGD_OS_MOST_CPUS];
} set;

// "0-3,8" into a set; what is no list of numbers ends it.
static void read_list(const char *text, set *out) {
    memset(out, 0, sizeof(*out));
    while (*text >= '0' && *text <= '9') {
        char *end = NULL;
        unsigned long first = strtoul(text, &end, 10);
        unsigned long last = first;
        if (*end == '-') {
            last = strtoul(end + 1, &end, 10);
        }
        for (unsigned long i = first; i <= last && i < PGD_OS_MOST_CPUS; i++) {
            out->has[i] = 1;
        }
        text = *end == ',' ? end + 1 : "";
    }
}

// The first line of root + path that begins with key, behind key and blanks; 0 if there is none.
static int32_t read_line(const char *root, const char *path, const char *key, char *text) {
    char name[TEXT_BYTES];
    int32_t found = 0;
    if (snprintf(name, sizeof(name), "%s%s", root, path) >= (int)sizeof(name)) {
        return 0;
    }
    FILE *f = fopen(name, "re");
    while (f != NULL && !found && fgets(text, TEXT_BYTES, f) != NULL) {
        found = strncmp(text, key, strlen(key)) == 0;
    }
    if (f != NULL) {
        (void)fclose(f);
    }
    if (found) {
        size_t skip = strlen(key);
        skip += strspn(text + skip, " \t");
        memmove(text, text + skip, strlen(text + skip) + 1);
    }
    return found;
}

uint32_t pgd_os_places(const char *root, pgd_os_place *out, uint32_t cap) {
    char text[TEXT_BYTES];
    char path[96];
    set allowed;
    set nodes;
    set cpus;
    uint32_t n = 0;
    if (!read_line(root, "/proc/self/status", "Cpus_allowed_list:", text)) {
        return 0;
    }
    read_list(text, &allowed);
    read_list(read_line(root, "/sys/devices/system/node/online", "", text) ? text : "", &nodes);
    for (uint32_t node = 0; node < PGD_OS_MOST_CPUS; node++) {
        (void)snprintf(path, sizeof(path), "/sys/devices/system/node/node%u/cpulist",
                       (unsigned)node);
        if (!nodes.has[node] || !read_line(root, path, "", text)) {
            continue;
        }
        read_list(text, &cpus);
        for (uint32_t cpu = 0; cpu < PGD_OS_MOST_CPUS; cpu++) {
            if (cpus.has[cpu] && allowed.has[cpu] && n < cap) {
                out[n++] = (pgd_os_place){.cpu = cpu, .node = node};
                allowed.has[cpu] = 0;
            }
        }
    }
    const int32_t no_nodes = n == 0;
    for (uint32_t cpu = 0; no_nodes && cpu < PGD_OS_MOST_CPUS && n < cap; cpu++) {
        if (allowed.has[cpu]) {
            out[n++] = (pgd_os_place){.cpu = cpu};
        }
    }
    return n;
}
