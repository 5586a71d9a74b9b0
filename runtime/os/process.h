// Child processes.
#ifndef PGD_OS_PROCESS_H
#define PGD_OS_PROCESS_H

#include <stddef.h>

#include <pagoda/status.h>

// Runs argv[0] (a path) with the arguments up to NULL, collects its standard output into out[cap]
// (NUL-terminated; more is read and dropped) and waits for its end. Standard error is shared.
// *out_exit: its exit status, -1 = ended by a signal. UNAVAILABLE when it cannot be started.
pgd_status pgd_os_process_run(char *const *argv, char *out, size_t cap,
                              int32_t *out_exit) PGD_MUST_USE;

#endif
