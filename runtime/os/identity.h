// What tells whether a file is still the one that was seen before. Functions return a code and
// leave errno; the caller writes the sentence.
#ifndef PGD_OS_IDENTITY_H
#define PGD_OS_IDENTITY_H

#include <stdint.h>

#include <pagoda/status.h>

// Whatever writes to a file, or puts another in its place, changes one of these; the system sets
// changed_ns and no program can set it back.
typedef struct pgd_os_identity {
    uint64_t bytes;
    uint64_t inode;
    int64_t modified_ns; // since 1970; programs may set it
    int64_t changed_ns;
    int32_t own; // 1: belongs to the user this process runs as
    int32_t reserved0;
} pgd_os_identity;

// Of the file that path leads to. NOT_FOUND, DENIED.
pgd_status pgd_os_identify(const char *path, pgd_os_identity *out) PGD_MUST_USE;
// Sets the time of modification to now: "used at".
pgd_status pgd_os_touch(const char *path) PGD_MUST_USE;
// A name for the time since the system started: 16 letters and NUL; another one after the next
// start. UNSUPPORTED where the system gives none.
pgd_status pgd_os_boot_name(char out[17]) PGD_MUST_USE;
// Number of this process, to name what it writes.
int64_t pgd_os_process_id(void);

#endif
