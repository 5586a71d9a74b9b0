// SIGINT by way of a pipe: the handler writes a byte, whoever waits polls the pipe beside its own
// descriptor, so no interrupt falls between a check and a wait.
#define _GNU_SOURCE

#include "os/interrupt.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <unistd.h>

#include "os/file.h"

static int pipe_ends[2] = {-1, -1};

static void on_interrupt(int number) {
    int error = errno;
    (void)number;
    // A full pipe holds an interrupt already.
    ssize_t ignored = write(pipe_ends[1], "", 1);
    (void)ignored;
    errno = error;
}

pgd_status pgd_os_interrupt_catch(void) {
    struct sigaction action = {.sa_handler = on_interrupt, .sa_flags = SA_RESTART};
    if (pipe_ends[0] < 0 && pipe2(pipe_ends, O_CLOEXEC | O_NONBLOCK) != 0) {
        return pgd_os_code_of(errno);
    }
    (void)sigemptyset(&action.sa_mask);
    return sigaction(SIGINT, &action, NULL) == 0 ? PGD_OK : pgd_os_code_of(errno);
}

int32_t pgd_os_interrupt_taken(void) {
    char bytes[64];
    int32_t any = 0;
    while (pipe_ends[0] >= 0 && read(pipe_ends[0], bytes, sizeof(bytes)) > 0) {
        any = 1;
    }
    return any;
}

int64_t pgd_os_interrupt_read(int32_t fd, void *to, size_t cap) {
    for (;;) {
        struct pollfd both[2] = {{.fd = fd, .events = POLLIN},
                                 {.fd = pipe_ends[0], .events = POLLIN}};
        int n = poll(both, 2, -1);
        if (n < 0 && errno != EINTR) {
            return PGD_OS_READ_FAILED;
        }
        if (n > 0 && both[1].revents != 0 && pgd_os_interrupt_taken()) {
            return PGD_OS_READ_INTERRUPTED;
        }
        if (n <= 0 || both[0].revents == 0) {
            continue;
        }
        ssize_t got = read(fd, to, cap);
        if (got >= 0) {
            return got;
        }
        if (errno != EINTR && errno != EAGAIN) {
            // A terminal whose other side is gone is at its end.
            return errno == EIO ? 0 : PGD_OS_READ_FAILED;
        }
    }
}
