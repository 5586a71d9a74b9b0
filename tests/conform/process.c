// What a plugin leaves behind in its process: threads, descriptors, memory, and the settings that
// belong to the program.
#include "conform.h"

#include <dirent.h>
#include <fenv.h>
#include <locale.h>
#include <malloc.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/mem.h"
#include "os/usage.h"

extern char **environ;

static int64_t count_entries(const char *path) {
    DIR *folder = opendir(path);
    int64_t n = 0;
    if (folder == NULL) {
        return -1;
    }
    while (readdir(folder) != NULL) {
        n++;
    }
    closedir(folder);
    return n - 2;
}

void conform_traces_read(conform_traces *out) {
    pgd_os_usage usage = {0};
    pgd_os_usage_read(&usage);
    *out = (conform_traces){
        .threads = count_entries("/proc/self/task"),
        .files = count_entries("/proc/self/fd"),
        .heap = -1,
        .pages = (int64_t)usage.rss_bytes,
        .lent = (int64_t)pgd_mem_live(),
    };
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
    out->pages = 0; // freed memory is kept back by the sanitizer
#elif defined(__GLIBC__) && (__GLIBC__ > 2 || __GLIBC_MINOR__ >= 33)
    struct mallinfo2 m = mallinfo2();
    out->heap = (int64_t)(m.uordblks + m.hblkhd);
#endif
}

double conform_slope(const double *y, int32_t n) {
    const double mean = (n - 1) / 2.0;
    double top = 0, bottom = 0;
    for (int32_t i = 0; i < n; i++) {
        top += (i - mean) * y[i];
        bottom += (i - mean) * (i - mean);
    }
    return bottom > 0 ? top / bottom : 0;
}

// ---- manners -----------------------------------------------------------------------------------

enum { SIGNALS = 32, ENVIRONMENT = 1 << 16 };

struct conform_settings {
    char locale[200];
    char folder[1024];
    char environment[ENVIRONMENT];
    void (*handlers[SIGNALS])(int);
    int32_t rounding;
    int32_t denormals; // 1: they are kept
    mode_t mask;
    int32_t reserved0;
};

// Flush-to-zero and denormals-are-zero make both sums 0.
static int32_t keeps_denormals(void) {
    volatile float small = 1e-38F, half = 0.01F;
    volatile double little = 1e-308, part = 0.01;
    return small * half != 0 && little * part != 0;
}

static void read_environment(char *to, size_t cap) {
    size_t used = 0;
    for (char **e = environ; e != NULL && *e != NULL && used + 2 < cap; e++) {
        int n = snprintf(to + used, cap - used, "%s\n", *e);
        used += n > 0 ? (size_t)n : 0;
    }
}

conform_settings *conform_settings_read(conform *c) {
    conform_settings *m = conform_room(c, sizeof(*m));
    snprintf(m->locale, sizeof(m->locale), "%s", setlocale(LC_ALL, NULL));
    if (getcwd(m->folder, sizeof(m->folder)) == NULL) {
        m->folder[0] = '\0';
    }
    read_environment(m->environment, sizeof(m->environment));
    for (int i = 1; i < SIGNALS; i++) {
        struct sigaction action = {0};
        if (sigaction(i, NULL, &action) == 0) {
            m->handlers[i] = action.sa_handler;
        }
    }
    m->rounding = fegetround();
    m->denormals = keeps_denormals();
    m->mask = umask(0);
    umask(m->mask);
    return m;
}

// Signals and environment are not judged behind a vendor's driver, which may change them by itself.
void conform_settings_compare(conform *c, const conform_settings *before, const char *when) {
    const conform_settings *m = conform_settings_read(c);
    if (strcmp(m->locale, before->locale) != 0) {
        conform_fail(c, "%s the locale is %s, it was %s", when, m->locale, before->locale);
    }
    if (strcmp(m->folder, before->folder) != 0) {
        conform_fail(c, "%s the current folder is another", when);
    }
    if (!c->driver && strcmp(m->environment, before->environment) != 0) {
        conform_fail(c, "%s the environment is another", when);
    }
    for (int i = 1; i < SIGNALS && !c->driver; i++) {
        if (m->handlers[i] != before->handlers[i]) {
            conform_fail(c, "%s signal %d (%s) has another handler", when, i, strsignal(i));
        }
    }
    if (m->rounding != before->rounding) {
        conform_fail(c, "%s floating point rounds otherwise", when);
    }
    if (m->denormals != before->denormals) {
        conform_fail(c, "%s denormal numbers are flushed to zero", when);
    }
    if (m->mask != before->mask) {
        conform_fail(c, "%s the mask of new files is another", when);
    }
}
