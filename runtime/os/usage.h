// Processor time and memory: this process and the whole machine.
#ifndef PGD_OS_USAGE_H
#define PGD_OS_USAGE_H

#include <stdint.h>

typedef struct pgd_os_usage {
    uint64_t own_ns;     // processor time of this process, all threads, and of its ended children
    uint64_t all_ns;     // of the machine, what a hypervisor took included; 0 = unknown
    uint64_t rss_bytes;  // resident memory of this process; 0 = unknown
    uint64_t peak_bytes; // the most it has been
} pgd_os_usage;

// Counted since the start of the process (own) or the machine (all, in steps of 10 ms or so).
void pgd_os_usage_read(pgd_os_usage *out);

#endif
