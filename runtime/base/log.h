// The log: lines of text to a sink that the embedder sets; none is set by default, so the library
// is silent. Never called in the step loop.
#ifndef PGD_BASE_LOG_H
#define PGD_BASE_LOG_H

#include <pagoda/status.h>

enum { PGD_LEVEL_ERROR = 0, PGD_LEVEL_WARNING = 1, PGD_LEVEL_INFO = 2, PGD_LEVEL_DEBUG = 3 };

typedef void (*pgd_log_sink)(void *arg, int32_t level, const char *text);

// [setup] sink NULL = silent. Lines above max_level are dropped.
void pgd_log_set(pgd_log_sink sink, void *arg, int32_t max_level);
// [any] one line, without newline; cut at 1,000 bytes.
void pgd_log(int32_t level, const char *fmt, ...) PGD_PRINTF(2, 3);

#endif
