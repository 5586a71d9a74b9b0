// Child processes over posix_spawn. See process.h.
#define _GNU_SOURCE

#include "os/process.h"

#include <errno.h>
#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

// Reads to the end; what does not fit is dropped.
static void collect(int fd, char *out, size_t cap) {
    size_t n = 0;
    char rest[256];
    for (;;) {
        int32_t fits = n + 1 < cap;
        ssize_t got = read(fd, fits ? out + n : rest, fits ? cap - 1 - n : sizeof(rest));
        if (got > 0 && fits) {
            n += (size_t)got;
        } else if (got == 0 || (got < 0 && errno != EINTR)) {
            break;
        }
    }
    if (cap > 0) {
        out[n] = '\0';
    }
}

static int32_t wait_for(pid_t child) {
    int how = 0;
    pid_t got;
    do {
        got = waitpid(child, &how, 0);
    } while (got < 0 && errno == EINTR);
    return got == child && WIFEXITED(how) ? WEXITSTATUS(how) : -1;
}

pgd_status pgd_os_process_run(char *const *argv, char *out, size_t cap, int32_t *out_exit) {
    posix_spawn_file_actions_t actions;
    int ends[2];
    pid_t child = 0;
    *out_exit = -1;
    if (pipe2(ends, O_CLOEXEC) != 0) {
        return PGD_UNAVAILABLE;
    }
    int error = posix_spawn_file_actions_init(&actions);
    if (error == 0) {
        error = posix_spawn_file_actions_adddup2(&actions, ends[1], STDOUT_FILENO);
        if (error == 0) {
            error = posix_spawn(&child, argv[0], &actions, NULL, argv, environ);
        }
        (void)posix_spawn_file_actions_destroy(&actions);
    }
    (void)close(ends[1]);
    if (error == 0) {
        collect(ends[0], out, cap);
        *out_exit = wait_for(child);
    }
    (void)close(ends[0]);
    errno = error;
    return error == 0 ? PGD_OK : PGD_UNAVAILABLE;
}
