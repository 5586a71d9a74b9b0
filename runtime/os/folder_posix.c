// Folders over POSIX and flock. Every function leaves errno as the failed call set it.
#define _GNU_SOURCE

#include "os/folder.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#define PATH_BYTES 4096

// Keeps errno.
static int32_t is_folder(const char *path) {
    struct stat st;
    int error = errno;
    int32_t yes = stat(path, &st) == 0 && S_ISDIR(st.st_mode);
    errno = error;
    return yes;
}

pgd_status pgd_os_folder_make(const char *path) {
    char part[PATH_BYTES];
    size_t n = strlen(path);
    if (n == 0 || n >= sizeof(part)) {
        errno = ENAMETOOLONG;
        return PGD_OUT_OF_RANGE;
    }
    memcpy(part, path, n + 1);
    for (size_t i = 1; i <= n; i++) {
        if (part[i] != '/' && part[i] != '\0') {
            continue;
        }
        part[i] = '\0';
        // A folder above may not be writable, and need not be when it is there.
        if (mkdir(part, 0777) != 0 && !is_folder(part)) {
            return pgd_os_code_of(errno);
        }
        part[i] = i < n ? '/' : '\0';
    }
    return PGD_OK;
}

pgd_status pgd_os_folder_link(const char *text, const char *path) {
    char beside[PATH_BYTES];
    int n = snprintf(beside, sizeof(beside), "%s.%ld.link", path, (long)getpid());
    if (n < 0 || (size_t)n >= sizeof(beside)) {
        errno = ENAMETOOLONG;
        return PGD_OUT_OF_RANGE;
    }
    (void)unlink(beside);
    if (symlink(text, beside) != 0) {
        return pgd_os_code_of(errno);
    }
    if (rename(beside, path) != 0) {
        int error = errno;
        (void)unlink(beside);
        errno = error;
        return pgd_os_code_of(error);
    }
    return PGD_OK;
}

pgd_status pgd_os_folder_move(const char *from, const char *to) {
    return rename(from, to) == 0 ? PGD_OK : pgd_os_code_of(errno);
}

pgd_status pgd_os_folder_remove(const char *path) {
    return unlink(path) == 0 ? PGD_OK : pgd_os_code_of(errno);
}

pgd_status pgd_os_folder_room(const char *path, uint64_t *out_bytes) {
    struct statvfs fs;
    *out_bytes = 0;
    while (statvfs(path, &fs) != 0) {
        if (errno != EINTR) {
            return pgd_os_code_of(errno);
        }
    }
    *out_bytes = (uint64_t)fs.f_bavail * (uint64_t)fs.f_frsize;
    return PGD_OK;
}

// 1 when path still leads to the file that fd is: another process may have removed it meanwhile.
static int32_t is_same_file(int fd, const char *path) {
    struct stat mine;
    struct stat there;
    return fstat(fd, &mine) == 0 && stat(path, &there) == 0 && mine.st_ino == there.st_ino &&
           mine.st_dev == there.st_dev;
}

pgd_status pgd_os_folder_lock(const char *path, int32_t wait, pgd_os_file *out) {
    out->fd = -1;
    for (;;) {
        int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOCTTY, 0666);
        if (fd < 0) {
            if (errno == EINTR) {
                continue;
            }
            return pgd_os_code_of(errno);
        }
        while (flock(fd, LOCK_EX | (wait ? 0 : LOCK_NB)) != 0) {
            int error = errno;
            if (error != EINTR) {
                (void)close(fd);
                errno = error;
                return pgd_os_code_of(error);
            }
        }
        if (is_same_file(fd, path)) {
            out->fd = fd;
            return PGD_OK;
        }
        (void)close(fd);
    }
}
