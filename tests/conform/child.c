// A check in its child: the process, the device under test, and what checks say.
#include "conform.h"

#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "dev/inner.h"

// ---- what a check says -------------------------------------------------------------------------

void conform_fail(conform *c, const char *fmt, ...) {
    conform_result *r = c->result;
    size_t used = strlen(r->text);
    va_list args;
    r->state = CONFORM_FAILED;
    if (used + 2 >= sizeof(r->text)) {
        return;
    }
    va_start(args, fmt);
    vsnprintf(r->text + used, sizeof(r->text) - used - 1, fmt, args);
    va_end(args);
    used = strlen(r->text);
    r->text[used] = '\n';
    r->text[used + 1] = '\0';
}

void conform_note(conform *c, const char *fmt, ...) {
    va_list args;
    va_start(args, fmt);
    vsnprintf(c->result->note, sizeof(c->result->note), fmt, args);
    va_end(args);
}

void conform_skip(conform *c, const char *fmt, ...) {
    va_list args;
    va_start(args, fmt);
    vsnprintf(c->result->note, sizeof(c->result->note), fmt, args);
    va_end(args);
    if (c->result->state != CONFORM_FAILED) {
        c->result->state = CONFORM_SKIPPED;
    }
    conform_end(c);
}

void conform_end(conform *c) {
    if (c->result->state == CONFORM_NOT_RUN) {
        c->result->state = CONFORM_PASSED;
    }
    fflush(NULL);
    _exit(0);
}

// ---- the device under test ---------------------------------------------------------------------

const pgd_plugin *conform_load(conform *c) {
    const pgd_plugin *plugin = NULL;
    MUST(c, c->manifest != NULL, "there is no manifest");
    MUST_OK(c, pgd_dev_load(c->manifest, &plugin), "loading the plugin");
    return plugin;
}

pgd_status conform_try_open(conform *c, pgd_dev **out) {
    const pgd_dev_desc desc = {.uri = c->uri, .team = c->team, .allow_slow = 1};
    return pgd_dev_open(c->registry, &desc, out);
}

void conform_open(conform *c) {
    MUST_OK(c, conform_try_open(c, &c->dev), "opening the device");
    c->d = pgd_dev_device(c->dev);
    c->sheet->info = *pgd_dev_info(c->dev);
    c->sheet->seen = 1;
}

void conform_close(conform *c) {
    pgd_dev_close(c->dev);
    c->dev = NULL;
    c->d = NULL;
}

void conform_leave(conform *c, pgd_queue *q, pgd_buffer *a, pgd_buffer *b) {
    c->d->queue->destroy(c->d, q);
    c->d->memory->destroy(c->d, a);
    c->d->memory->destroy(c->d, b);
    conform_close(c);
}

pgd_queue *conform_queue(conform *c, int32_t role) {
    const pgd_queue_desc desc = {.size = sizeof(desc), .role = role};
    pgd_queue *q = NULL;
    MUST_OK(c, c->d->queue->create(c->d, &desc, &q), "queue.create");
    MUST(c, q != NULL, "queue.create gives OK and no queue");
    return q;
}

pgd_buffer *conform_buffer(conform *c, uint64_t bytes) {
    const pgd_buffer_desc desc = {.size = sizeof(desc), .bytes = bytes};
    pgd_buffer *b = NULL;
    MUST_OK(c, c->d->memory->create(c->d, &desc, &b), "memory.create");
    MUST(c, b != NULL, "memory.create gives OK and no buffer");
    return b;
}

void conform_drain(conform *c, pgd_queue *q) {
    uint64_t value = 0;
    MUST_OK(c, c->d->queue->signal(c->d, q, &value), "queue.signal");
    MUST_OK(c, c->d->queue->host_wait(c->d, q, value, PGD_WAIT_FOREVER), "queue.host_wait");
}

void conform_put(conform *c, pgd_queue *q, pgd_buffer *to, uint64_t offset, const void *from,
                 uint64_t bytes) {
    const pgd_copy copy = {
        .dst = to, .dst_offset = offset, .src_offset = (uint64_t)(uintptr_t)from, .bytes = bytes};
    MUST_OK(c, c->d->queue->copy(c->d, q, &copy, 1), "queue.copy to the device");
    conform_drain(c, q);
}

void conform_get(conform *c, pgd_queue *q, void *to, pgd_buffer *from, uint64_t offset,
                 uint64_t bytes) {
    const pgd_copy copy = {
        .dst_offset = (uint64_t)(uintptr_t)to, .src = from, .src_offset = offset, .bytes = bytes};
    MUST_OK(c, c->d->queue->copy(c->d, q, &copy, 1), "queue.copy from the device");
    conform_drain(c, q);
}

void *conform_room(conform *c, uint64_t bytes) {
    void *room = calloc(1, bytes + 1);
    MUST(c, room != NULL, "the tool has no memory for %llu bytes", (unsigned long long)bytes);
    return room;
}

// ---- the process -------------------------------------------------------------------------------

static void prepare(conform *c) {
    const pgd_dev_search search = {
        .files = &c->options->plugin, .n_files = 1, .no_env = 1, .no_installed = 1};
    MUST_OK(c, pgd_dev_registry_create(&search, &c->registry), "looking for the plugin");
    if (pgd_dev_registry_count(c->registry) > 0) {
        c->manifest = pgd_dev_registry_get(c->registry, 0);
        c->driver = c->manifest->n_needs > 0;
    }
    if (c->options->device != NULL) {
        snprintf(c->uri, sizeof(c->uri), "%s", c->options->device);
    } else if (c->manifest != NULL) {
        snprintf(c->uri, sizeof(c->uri), "%s:0", c->manifest->kind);
    }
    MUST_OK(c, pgd_team_create(c->options->threads, &c->team), "starting the compute team");
}

static _Noreturn void run_child(const conform_options *o, const conform_check *check,
                                conform_shared *shared, conform_result *result, int out) {
    conform c = {.options = o, .check = check, .result = result, .sheet = &shared->sheet};
    dup2(out, STDOUT_FILENO);
    dup2(out, STDERR_FILENO);
    close(out);
    prepare(&c);
    check->run(&c);
    conform_end(&c);
}

// What the child prints into text[cap] until it ends or its time is over; 1: it is over.
static int32_t listen_to(int in, uint64_t limit_ns, char *text, size_t cap) {
    const uint64_t end = pgd_clock_ns() + limit_ns;
    size_t used = 0;
    for (;;) {
        struct pollfd p = {.fd = in, .events = POLLIN};
        const uint64_t now = pgd_clock_ns();
        char piece[512];
        ssize_t n;
        if (now >= end) {
            return 1;
        }
        if (poll(&p, 1, (int)((end - now) / 1000000 < 1000 ? (end - now) / 1000000 + 1 : 1000)) <=
            0) {
            continue;
        }
        n = read(in, piece, sizeof(piece));
        if (n <= 0) {
            return 0;
        }
        for (ssize_t i = 0; i < n && used + 1 < cap; i++) {
            text[used++] = piece[i];
        }
        text[used] = '\0';
    }
}

static void judge_end(const conform_options *o, conform_result *r, int status, int32_t late,
                      const char *printed) {
    conform c = {.options = o, .result = r};
    char line[600];
    snprintf(line, sizeof(line), "%.590s", printed);
    if (late) {
        conform_fail(&c, "no end within %.0f s: the process hangs", (double)o->limit_ns * 1e-9);
    } else if (WIFSIGNALED(status)) {
        conform_fail(&c, "the process crashed with signal %d (%s) %s", WTERMSIG(status),
                     strsignal(WTERMSIG(status)), line);
    } else if (WEXITSTATUS(status) != 0) {
        conform_fail(&c, "the process ended itself with status %d: a plugin does not exit %s",
                     WEXITSTATUS(status), line);
    } else if (r->state == CONFORM_NOT_RUN) {
        conform_fail(&c, "the process ended before the check did: a plugin does not exit");
    } else if (line[0] != '\0') {
        conform_fail(&c, "a plugin does not print: \"%s\"", line);
    }
}

void conform_run(const conform_options *o, const conform_check *check, conform_shared *shared,
                 conform_result *result) {
    const uint64_t start = pgd_clock_ns();
    conform c = {.options = o, .result = result};
    char printed[2000] = "";
    int ends[2], status = 0;
    int32_t late;
    pid_t child;
    memset(result, 0, sizeof(*result));
    fflush(NULL);
    if (pipe(ends) != 0 || (child = fork()) < 0) {
        conform_fail(&c, "the tool cannot start a process");
        return;
    }
    if (child == 0) {
        close(ends[0]);
        run_child(o, check, shared, result, ends[1]);
    }
    close(ends[1]);
    late = listen_to(ends[0], o->limit_ns, printed, sizeof(printed));
    if (late) {
        kill(child, SIGKILL);
    }
    close(ends[0]);
    waitpid(child, &status, 0);
    judge_end(o, result, status, late, printed);
    result->ns = pgd_clock_ns() - start;
}

static void look(conform *c) {
    pgd_dev *dev = NULL;
    if (conform_try_open(c, &dev) == PGD_NOT_FOUND) {
        conform_skip(c, "no device");
    }
}

int32_t conform_is_missing(const conform_options *o) {
    const conform_check check = {.name = "look", .run = look};
    conform_shared *shared =
        mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    int32_t missing = 0;
    if (shared != MAP_FAILED) {
        conform_run(o, &check, shared, &shared->results[0]);
        missing = shared->results[0].state == CONFORM_SKIPPED;
        munmap(shared, sizeof(*shared));
    }
    return missing;
}
