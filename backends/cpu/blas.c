// OpenBLAS, opened when first asked for. See library.h.
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "library.h"

enum { LEAST_ROWS = 32 }; // below it a product is bound by reading the weights

bool cpu_library_open(const char *const *names, uint32_t n, const char *const *symbols,
                      void **targets, uint32_t n_symbols, char *why, size_t cap) {
    void *lib = NULL;
    for (uint32_t i = 0; i < n && lib == NULL; i++) {
        lib = dlopen(names[i], RTLD_NOW | RTLD_LOCAL);
    }
    if (lib == NULL) {
        snprintf(why, cap, "%s is not installed", names[0]);
        return false;
    }
    for (uint32_t i = 0; i < n_symbols; i++) {
        targets[i] = dlsym(lib, symbols[i]);
        if (targets[i] == NULL) {
            snprintf(why, cap, "%s has no function %s", names[0], symbols[i]);
            return false;
        }
    }
    why[0] = '\0';
    return true;
}

static cpu_blas blas;
static pthread_once_t once = PTHREAD_ONCE_INIT;
static pthread_mutex_t calls_mutex = PTHREAD_MUTEX_INITIALIZER; // one call at a time

static void open_blas(void) {
    static const char *const names[] = {"libopenblas.so.0", "libopenblas.so"};
    static const char *const symbols[] = {"cblas_sgemm", "openblas_get_config",
                                          "openblas_get_corename", "openblas_set_num_threads"};
    void *found[4] = {NULL};
    static const char *const wide[] = {"SkylakeX", "Cooperlake", "Sapphirerapids"};
    char *(*get_config)(void) = NULL;
    char *(*get_core)(void) = NULL;
    void (*set_threads)(int) = NULL;
    if (!cpu_library_open(names, 2, symbols, found, 4, blas.reason, sizeof(blas.reason))) {
        return;
    }
    memcpy(&blas.sgemm, &found[0], sizeof(found[0]));
    memcpy(&get_config, &found[1], sizeof(found[1]));
    memcpy(&get_core, &found[2], sizeof(found[2]));
    memcpy(&set_threads, &found[3], sizeof(found[3]));
    set_threads(1);
    // "OpenBLAS 0.3.21 NO_LAPACKE DYNAMIC_ARCH ...": the second word is the version.
    const char *config = get_config();
    const char *space = strchr(config, ' ');
    const char *version = space != NULL ? space + 1 : config;
    snprintf(blas.version, sizeof(blas.version), "%.*s, kernels %.30s",
             (int)(strcspn(version, " ") < 20 ? strcspn(version, " ") : 20), version, get_core());
    for (size_t i = 0; i < sizeof(wide) / sizeof(wide[0]); i++) {
        blas.is_wide = blas.is_wide || strcasecmp(get_core(), wide[i]) == 0;
    }
    // Built for one thread and without locks it hands two callers the same scratch.
    blas.is_safe =
        strstr(config, "SINGLE_THREADED") == NULL || strstr(config, "USE_LOCKING") != NULL;
    blas.usable = true;
}

const cpu_blas *cpu_blas_get(void) {
    (void)pthread_once(&once, open_blas);
    return &blas;
}

const cpu_blas *cpu_blas_wanted(const pgd_host *host, const char *isa) {
    const char *text = host->option == NULL ? NULL : host->option(host, "deterministic");
    if (text == NULL || strcmp(text, "on") == 0 || strcmp(text, "true") == 0 ||
        strcmp(text, "1") == 0) {
        return NULL;
    }
    const cpu_blas *b = cpu_blas_get();
    if (!b->usable) {
        host->log(host, PGD_LOG_INFO, b->reason);
        return NULL;
    }
    // It chooses its kernels by the model of the processor and may not know it: with half the
    // vectors it is slower than what it would replace.
    if (strcmp(isa, "scalar") != 0 && strcmp(isa, "avx2") != 0 && !b->is_wide) {
        host->log(host, PGD_LOG_INFO, "OpenBLAS has no kernels of 512 bits for this processor");
        return NULL;
    }
    return b;
}

bool cpu_blas_panel(const pgd_device *d, const pgd_weight *w, int64_t index, const float *x,
                    int64_t ldx, int64_t m, float *acc) {
    const cpu_blas *b = cpu_self(d)->blas;
    if (b == NULL || cpu_is_quantized(&w->desc) || w->desc.dtype != PGD_F32 || m < LEAST_ROWS ||
        ldx > INT32_MAX) {
        return false;
    }
    // A panel is a row-major matrix [k, 32].
    const void *panel = w->segments[0].data + (uint64_t)index * w->segments[0].panel_bytes;
    if (!b->is_safe) {
        pthread_mutex_lock(&calls_mutex);
    }
    b->sgemm(CPU_BLAS_ROW_MAJOR, CPU_BLAS_PLAIN, CPU_BLAS_PLAIN, (int)m, PGD_CPU_PANEL,
             (int)w->desc.k, 1.0f, x, (int)ldx, panel, PGD_CPU_PANEL, 0.0f, acc, PGD_CPU_PANEL);
    if (!b->is_safe) {
        pthread_mutex_unlock(&calls_mutex);
    }
    return true;
}
