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

pgd_status pgd_os_boot_name(char out[17]) {
    char text[64] = "";
    uint64_t n = 0;
    size_t used = 0;
    out[0] = '\0';
    if (pgd_os_read_file("/proc/sys/kernel/random/boot_id", text, sizeof(text) - 1, &n) != PGD_OK) {
        return PGD_UNSUPPORTED;
    }
    for (uint64_t i = 0; i < n && used < 16; i++) {
        const char c = text[i];
        if ((c >= '0' && c <= '9') || (c >= 'a' && c <= 'f')) {
            out[used++] = c;
        }
    }
    out[used] = '\0';
    return used == 16 ? PGD_OK : PGD_UNSUPPORTED;
}

int64_t pgd_os_process_id(void) {
    return (int64_t)getpid();
}
