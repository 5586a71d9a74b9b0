// Identity of files over stat. See identity.h.
#define _GNU_SOURCE

#include "os/identity.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "os/file.h"

#define NS_PER_S INT64_C(1000000000)

pgd_status pgd_os_identify(const char *path, pgd_os_identity *out) {
    struct stat st;
    *out = (pgd_os_identity){0};
    if (stat(path, &st) != 0) {
        return pgd_os_code_of(errno);
    }
    out->bytes = (uint64_t)st.st_size;
    out->inode = (uint64_t)st.st_ino;
    out->modified_ns = (int64_t)st.st_mtim.tv_sec * NS_PER_S + st.st_mtim.tv_nsec;
    out->changed_ns = (int64_t)st.st_ctim.tv_sec * NS_PER_S + st.st_ctim.tv_nsec;
    out->own = st.st_uid == geteuid();
    return PGD_OK;
}

pgd_status pgd_os_touch(const char *path) {
    return utimensat(AT_FDCWD, path, NULL, 0) == 0 ? PGD_OK : pgd_os_code_of(errno);
}

int64_t pgd_os_process_id(void) {
    return (int64_t)getpid();
}
