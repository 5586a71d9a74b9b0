// LD_PRELOAD: CLOCK_MONOTONIC 28 s behind the kernel's, so that a wait until "now and 30 s" ends
// after 2. What is measured by differences stays right.
#define _GNU_SOURCE
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

int clock_gettime(clockid_t clock, struct timespec *out);

int clock_gettime(clockid_t clock, struct timespec *out) {
    const int code = (int)syscall(SYS_clock_gettime, clock, out);
    if (code == 0 && clock == CLOCK_MONOTONIC) {
        out->tv_sec -= 28;
    }
    return code;
}
