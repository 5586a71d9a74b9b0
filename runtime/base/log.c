// The log: three words that are set up once and a formatter.
#include "base/log.h"

#include <stdarg.h>
#include <stdio.h>

enum { LINE_BYTES = 1000 };

static struct {
    pgd_log_sink sink;
    void *arg;
    int32_t max_level;
} log_to;

void pgd_log_set(pgd_log_sink sink, void *arg, int32_t max_level) {
    log_to.sink = sink;
    log_to.arg = arg;
    log_to.max_level = max_level;
}

void pgd_log(int32_t level, const char *fmt, ...) {
    char line[LINE_BYTES + 1];
    va_list args;
    if (log_to.sink == NULL || level > log_to.max_level) {
        return;
    }
    va_start(args, fmt);
    int n = vsnprintf(line, sizeof(line), fmt, args);
    va_end(args);
    if (n >= 0) {
        log_to.sink(log_to.arg, level, line);
    }
}
