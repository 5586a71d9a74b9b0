// What of the machine this process may use.
#ifndef PGD_OS_CPU_H
#define PGD_OS_CPU_H

#include <stdint.h>

// Cores in the affinity mask, clipped by the cgroup's cpu quota (rounded up), at least 1.
uint32_t pgd_os_cpu_count(void);
// The same of a system whose /proc and /sys lie below root: "" for the machine itself.
uint32_t pgd_os_cpu_count_at(const char *root);
// Cycles a second as the system states them for the first core; 0 = unknown. The true clock moves.
uint64_t pgd_os_cpu_hz(void);
// Physical memory in bytes: all and what is available, clipped by the cgroup's limit; 0 = unknown.
uint64_t pgd_os_memory_total(void);
uint64_t pgd_os_memory_available(void);

#endif
