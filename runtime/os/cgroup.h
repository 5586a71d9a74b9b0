// Limits that Linux control groups (versions 1 and 2) put on this process.
//
// root is put before /proc and the mount points: "" for the machine itself, a folder for tests.
// The limit of a group is the smallest one on its way up to the mount point.
#ifndef PGD_OS_CGROUP_H
#define PGD_OS_CGROUP_H

#include <stdint.h>

// Cpu quota in cores, rounded up; UINT32_MAX = none.
uint32_t pgd_os_cgroup_cpus(const char *root);
// Memory limit in bytes and what is left of it; UINT64_MAX = none. Page cache that the kernel can
// drop at once (inactive_file) counts as left.
uint64_t pgd_os_cgroup_memory(const char *root, uint64_t *out_left);

#endif
