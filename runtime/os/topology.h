// Which cpus this process may run on, and how they lie on NUMA nodes.
//
// root is put before /proc and /sys: "" for the machine itself, a folder for tests.
#ifndef PGD_OS_TOPOLOGY_H
#define PGD_OS_TOPOLOGY_H

#include <stdint.h>

enum { PGD_OS_MOST_CPUS = 4096 }; // cpus with higher numbers are not seen

typedef struct pgd_os_place {
    uint32_t cpu;
    uint32_t node; // of the system's own numbering
} pgd_os_place;

// Cpus of the affinity mask, by node and then by number; returns how many, at most cap. Where the
// system tells of no nodes all lie on node 0; where it tells of no mask there are none.
uint32_t pgd_os_places(const char *root, pgd_os_place *out, uint32_t cap);

#endif
