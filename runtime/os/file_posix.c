// Files over POSIX. Every function leaves errno as the failed call set it; a code that no call
// gave (no regular file, too little room) comes with errno EINVAL, ENAMETOOLONG or EFBIG.
#define _GNU_SOURCE

#include "os/file.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

pgd_status pgd_os_code_of(int32_t error) {
    switch (error) {
    case ENOENT:
    case ENOTDIR: return PGD_NOT_FOUND;
    case EACCES:
    case EPERM:
    case EROFS: return PGD_DENIED;
    case EEXIST: return PGD_EXISTS;
    case EWOULDBLOCK: return PGD_PRECONDITION;
    case ENOMEM: return PGD_OUT_OF_MEMORY;
    case EISDIR:
    case EINVAL:
    case ELOOP:
    case ENAMETOOLONG:
    case ENXIO: return PGD_INVALID;
    case EFBIG: return PGD_OUT_OF_RANGE;
    case EIO: return PGD_DATA_LOSS;
    default: return PGD_UNAVAILABLE;
    }
}

static pgd_status fail_with(int error) {
    errno = error;
    return pgd_os_code_of(error);
}

// Closes fd and keeps errno.
static void close_quietly(int fd) {
    int error = errno;
    (void)close(fd);
    errno = error;
}

int32_t pgd_os_kind(const char *path, uint64_t *bytes) {
    struct stat st;
    if (bytes != NULL) {
        *bytes = 0;
    }
    if (stat(path, &st) != 0) {
        return PGD_OS_NONE;
    }
    if (S_ISDIR(st.st_mode)) {
        return PGD_OS_FOLDER;
    }
    if (!S_ISREG(st.st_mode)) {
        return PGD_OS_OTHER;
    }
    if (bytes != NULL) {
        *bytes = (uint64_t)st.st_size;
    }
    return PGD_OS_REGULAR;
}

// Opens a regular file. O_NONBLOCK keeps a pipe in its place from stopping the program.
static pgd_status open_regular(const char *path, int *out_fd, uint64_t *out_bytes) {
    struct stat st;
    int fd;
    do {
        fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    } while (fd < 0 && errno == EINTR);
    if (fd < 0) {
        return pgd_os_code_of(errno);
    }
    if (fstat(fd, &st) != 0) {
        close_quietly(fd);
        return pgd_os_code_of(errno);
    }
    if (!S_ISREG(st.st_mode)) {
        (void)close(fd);
        return fail_with(S_ISDIR(st.st_mode) ? EISDIR : EINVAL);
    }
    *out_fd = fd;
    *out_bytes = (uint64_t)st.st_size;
    return PGD_OK;
}

pgd_status pgd_os_map_file(const char *path, pgd_os_map *out) {
    int fd = -1;
    uint64_t bytes = 0;
    *out = (pgd_os_map){0};
    PGD_TRY(open_regular(path, &fd, &bytes));
    if (bytes == 0) {
        (void)close(fd);
        return PGD_OK;
    }
    if (bytes > SIZE_MAX) {
        (void)close(fd);
        return fail_with(ENOMEM);
    }
    void *ptr = mmap(NULL, (size_t)bytes, PROT_READ, MAP_PRIVATE, fd, 0);
    if (ptr == MAP_FAILED) {
        close_quietly(fd);
        return pgd_os_code_of(errno);
    }
    (void)close(fd);
    out->ptr = ptr;
    out->bytes = bytes;
    return PGD_OK;
}

void pgd_os_unmap(pgd_os_map *map) {
    if (map->ptr != NULL) {
        (void)munmap(map->ptr, (size_t)map->bytes);
    }
    *map = (pgd_os_map){0};
}

pgd_status pgd_os_read_file(const char *path, void *to, uint64_t bytes, uint64_t *out_read) {
    int fd = -1;
    uint64_t size = 0;
    uint64_t done = 0;
    *out_read = 0;
    PGD_TRY(open_regular(path, &fd, &size));
    while (done < bytes) {
        // Linux moves at most 2 GiB a call.
        uint64_t want = bytes - done < 1u << 30 ? bytes - done : 1u << 30;
        ssize_t n = read(fd, (char *)to + done, (size_t)want);
        if (n < 0 && errno == EINTR) {
            continue;
        }
        if (n < 0) {
            close_quietly(fd);
            return pgd_os_code_of(errno);
        }
        if (n == 0) {
            break;
        }
        done += (uint64_t)n;
    }
    (void)close(fd);
    *out_read = done;
    return PGD_OK;
}

pgd_status pgd_os_open_write(const char *path, int32_t append, pgd_os_file *out) {
    int flags = O_WRONLY | O_CREAT | O_CLOEXEC | O_NOCTTY | (append ? O_APPEND : O_TRUNC);
    int fd;
    out->fd = -1;
    do {
        fd = open(path, flags, 0666);
    } while (fd < 0 && errno == EINTR);
    if (fd < 0) {
        return pgd_os_code_of(errno);
    }
    out->fd = fd;
    return PGD_OK;
}

pgd_status pgd_os_write(pgd_os_file f, const void *bytes, size_t n) {
    size_t done = 0;
    while (done < n) {
        ssize_t k = write(f.fd, (const char *)bytes + done, n - done);
        if (k < 0 && errno == EINTR) {
            continue;
        }
        if (k < 0) {
            return pgd_os_code_of(errno);
        }
        done += (size_t)k;
    }
    return PGD_OK;
}

pgd_status pgd_os_truncate(const char *path, uint64_t bytes) {
    if (bytes > INT64_MAX) {
        return PGD_OUT_OF_RANGE;
    }
    while (truncate(path, (off_t)bytes) != 0) {
        if (errno != EINTR) {
            return pgd_os_code_of(errno);
        }
    }
    return PGD_OK;
}

pgd_status pgd_os_sync(pgd_os_file f) {
    while (fsync(f.fd) != 0) {
        if (errno != EINTR) {
            return pgd_os_code_of(errno);
        }
    }
    return PGD_OK;
}

void pgd_os_close(pgd_os_file *f) {
    if (f->fd >= 0) {
        (void)close(f->fd);
    }
    f->fd = -1;
}

static int keep_entry(const struct dirent *e) {
    return strcmp(e->d_name, ".") != 0 && strcmp(e->d_name, "..") != 0;
}

// By bytes, so that the order does not depend on the locale.
static int by_name(const struct dirent **a, const struct dirent **b) {
    return strcmp((*a)->d_name, (*b)->d_name);
}

pgd_status pgd_os_list(const char *path, int32_t (*fn)(void *arg, const char *name), void *arg) {
    struct dirent **entries = NULL;
    int n = scandir(path, &entries, keep_entry, by_name);
    if (n < 0) {
        return pgd_os_code_of(errno);
    }
    int32_t stop = 0;
    for (int i = 0; i < n; i++) {
        if (!stop) {
            stop = fn(arg, entries[i]->d_name);
        }
        free(entries[i]);
    }
    free(entries);
    return PGD_OK;
}

// Copies with its NUL; OUT_OF_RANGE if it does not fit.
static pgd_status put_path(const char *path, char *out, size_t cap) {
    size_t n = strlen(path) + 1;
    if (n > cap) {
        errno = ENAMETOOLONG;
        return PGD_OUT_OF_RANGE;
    }
    memcpy(out, path, n);
    return PGD_OK;
}

pgd_status pgd_os_real_path(const char *path, char *out, size_t cap) {
    if (cap > 0) {
        out[0] = '\0';
    }
    char *full = realpath(path, NULL);
    if (full == NULL) {
        return pgd_os_code_of(errno);
    }
    pgd_status status = put_path(full, out, cap);
    free(full);
    return status;
}

pgd_status pgd_os_program_path(char *out, size_t cap) {
#ifdef __linux__
    return pgd_os_real_path("/proc/self/exe", out, cap);
#else
    if (cap > 0) {
        out[0] = '\0';
    }
    errno = ENOSYS;
    return PGD_UNSUPPORTED;
#endif
}
