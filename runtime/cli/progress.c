// Progress for people, on stderr: a bar that is redrawn on a terminal, a line now and then
// elsewhere.
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "cli/common.h"
#include "os/env.h"

#define BAR_WIDTH 32
#define REDRAW_NS UINT64_C(50000000)
#define LINE_NS   UINT64_C(10000000000) // between two lines of a log
#define SETTLE_NS UINT64_C(500000000)   // before a rate is worth showing
#define SECOND_NS 1e9

// What is shown at the moment; one at a time.
static struct {
    char what[300];
    uint64_t start_ns;
    uint64_t start_done;
    uint64_t last_ns;
    int32_t ended;
} now_shown;

// 1 when this is the beginning of something else than what was shown.
static int32_t begins(const char *what, uint64_t done, uint64_t now) {
    if (strncmp(now_shown.what, what, sizeof(now_shown.what) - 1) == 0 && !now_shown.ended) {
        return 0;
    }
    (void)snprintf(now_shown.what, sizeof(now_shown.what), "%s", what);
    now_shown.start_ns = now;
    now_shown.start_done = done;
    now_shown.last_ns = 0;
    now_shown.ended = 0;
    return 1;
}

static const char *size_of(uint64_t bytes, char *out, size_t cap) {
    static const char *const units[] = {"B", "kB", "MB", "GB", "TB"};
    double value = (double)bytes;
    size_t unit = 0;
    while (value >= 999.95 && unit + 1 < sizeof(units) / sizeof(units[0])) {
        value /= 1000.0;
        unit++;
    }
    (void)snprintf(out, cap, unit == 0 ? "%.0f %s" : "%.1f %s", value, units[unit]);
    return out;
}

// ", 12.3 MB/s, 1:20 left"
static void put_rate(uint64_t done, uint64_t total, uint64_t now, char *out, size_t cap) {
    char rate[32];
    out[0] = '\0';
    if (now - now_shown.start_ns < SETTLE_NS || done <= now_shown.start_done) {
        return;
    }
    double per_s =
        (double)(done - now_shown.start_done) / ((double)(now - now_shown.start_ns) / SECOND_NS);
    uint64_t left = (uint64_t)((double)(total - done) / per_s);
    if (left < 3600) {
        (void)snprintf(out, cap, ", %s/s, %llu:%02llu left",
                       size_of((uint64_t)per_s, rate, sizeof(rate)),
                       (unsigned long long)(left / 60), (unsigned long long)(left % 60));
    } else {
        (void)snprintf(out, cap, ", %s/s, %llu h left",
                       size_of((uint64_t)per_s, rate, sizeof(rate)),
                       (unsigned long long)((left + 1800) / 3600));
    }
}

static void draw(const char *what, uint64_t done, uint64_t total, const char *unit, uint64_t now) {
    char bar[BAR_WIDTH + 1];
    char have[32];
    char all[32];
    char rate[64] = "";
    uint64_t full = (uint64_t)((double)done / (double)total * BAR_WIDTH);
    for (uint64_t i = 0; i < BAR_WIDTH; i++) {
        bar[i] = i < full ? '#' : '.';
    }
    bar[BAR_WIDTH] = '\0';
    if (strcmp(unit, "bytes") == 0) {
        put_rate(done, total, now, rate, sizeof(rate));
        fprintf(stderr, "\r%s [%s] %s of %s%s\033[K", what, bar, size_of(done, have, sizeof(have)),
                size_of(total, all, sizeof(all)), rate);
    } else {
        fprintf(stderr, "\r%s [%s] %llu of %llu %s\033[K", what, bar, (unsigned long long)done,
                (unsigned long long)total, unit);
    }
}

void cli_progress(const char *what, uint64_t done, uint64_t total, const char *unit) {
    uint64_t now = pgd_clock_ns();
    if (!pgd_os_is_terminal(2) || total == 0) {
        return;
    }
    (void)begins(what, done, now);
    if (done < total && now - now_shown.last_ns < REDRAW_NS) {
        return;
    }
    now_shown.last_ns = now;
    draw(what, done, total, unit, now);
    if (done >= total) {
        fprintf(stderr, "\r\033[K");
        now_shown.ended = 1;
    }
    fflush(stderr);
}

void cli_progress_end(void) {
    if (now_shown.what[0] != '\0' && !now_shown.ended && pgd_os_is_terminal(2)) {
        fprintf(stderr, "\r\033[K");
        fflush(stderr);
    }
    now_shown.ended = 1;
}

// Something without a size: said once.
static void say_once(const char *what, uint64_t now) {
    if (begins(what, 0, now)) {
        fprintf(stderr, pgd_os_is_terminal(2) ? "\r%s ...\033[K" : "%s ...\n", what);
        fflush(stderr);
    }
}

// Lines of a log: the beginning, the end, and one every ten seconds between.
static void say_line(const char *what, uint64_t done, uint64_t total, uint64_t now) {
    char have[32];
    char all[32];
    char rate[64];
    if (begins(what, done, now)) {
        now_shown.last_ns = now;
        fprintf(stderr, "%s: %s\n", what, size_of(total - done, all, sizeof(all)));
    } else if (done >= total || now - now_shown.last_ns >= LINE_NS) {
        now_shown.last_ns = now;
        put_rate(done, total, now, rate, sizeof(rate));
        fprintf(stderr, "%s: %s of %s%s\n", what, size_of(done, have, sizeof(have)),
                size_of(total, all, sizeof(all)), done >= total ? "" : rate);
        now_shown.ended = done >= total;
    }
}

static void on_progress(void *arg, const char *what, uint64_t done, uint64_t total) {
    static const char downloading[] = "downloading ";
    uint64_t now = pgd_clock_ns();
    (void)arg;
    if (total == 0 || strncmp(what, "waiting ", 8) == 0) {
        if (strncmp(what, "loading ", 8) != 0) {
            say_once(what, now);
        }
    } else if (pgd_os_is_terminal(2)) {
        cli_progress(what, done, total, "bytes");
    } else if (strncmp(what, downloading, sizeof(downloading) - 1) == 0) {
        say_line(what, done, total, now);
    }
}

const pgd_load_progress cli_load_progress = {.fn = on_progress};
