// Environment, terminal, time and randomness over POSIX.
#define _GNU_SOURCE

#include "os/env.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <time.h>
#include <unistd.h>

const char *pgd_os_env(const char *name) {
    return getenv(name);
}

const char *pgd_os_env_secure(const char *name) {
#ifdef __linux__
    return secure_getenv(name);
#else
    return issetugid() ? NULL : getenv(name);
#endif
}

int32_t pgd_os_is_terminal(int32_t fd) {
    return isatty(fd) == 1;
}

uint64_t pgd_os_monotonic_ns(void) {
    struct timespec t = {0};
    (void)clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

int64_t pgd_os_unix_ms(void) {
    struct timespec t = {0};
    (void)clock_gettime(CLOCK_REALTIME, &t);
    return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

void pgd_os_sleep_ns(uint64_t ns) {
    struct timespec t = {.tv_sec = (time_t)(ns / 1000000000u), .tv_nsec = (long)(ns % 1000000000u)};
    while (nanosleep(&t, &t) != 0 && errno == EINTR) {
    }
}

int32_t pgd_os_random(void *out, size_t bytes) {
    const size_t most = 256; // getentropy gives no more in one call
    unsigned char *to = out;
    while (bytes > 0) {
        size_t n = bytes < most ? bytes : most;
        if (getentropy(to, n) != 0) {
            return 0;
        }
        to += n;
        bytes -= n;
    }
    return 1;
}

int32_t pgd_os_last_error(void) {
    return errno;
}

const char *pgd_os_error_text(int32_t error, char *buffer, size_t cap) {
#ifdef __GLIBC__
    return strerror_r(error, buffer, cap);
#else
    return strerror_r(error, buffer, cap) == 0 ? buffer : "unknown error";
#endif
}
