// What the tests of layers share: devices by name from the build's plugins, and what was logged.
#ifndef PGD_TESTS_LAYERS_H
#define PGD_TESTS_LAYERS_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/log.h"
#include "base/test_ok.h"
#include "dev/dev.h"

#define TINY PGD_TEST_SOURCE_DIR "/tests/golden/models/llama-default"

// Lines of errors since the last look.
typedef struct heard {
    int32_t n;
    char text[4096];
} heard;

static heard told;

static inline void hear(void *arg, int32_t level, const char *text) {
    heard *h = arg;
    if (level == PGD_LEVEL_ERROR) {
        const size_t used = strlen(h->text);
        h->n++;
        (void)snprintf(h->text + used, sizeof(h->text) - used, "%s\n", text);
    }
}

static inline void listen_anew(void) {
    told = (heard){0};
    pgd_log_set(hear, &told, PGD_LEVEL_INFO);
}

static inline void expect_silence(void) {
    if (told.n > 0) {
        fail_msg("unexpected: %s", told.text);
    }
}

static inline void expect_told(const char *what) {
    if (strstr(told.text, what) == NULL) {
        fail_msg("\"%s\" was not told, but: %s", what, told.text);
    }
    listen_anew();
}

// Plugins of the build, the device of tests/abi with its fourteen functions, and the TOP layer.
static inline pgd_status open_device(const char *uri, pgd_dev **out) {
    static const char *const folders[] = {PGD_TEST_BINARY_DIR "/lib/pagoda",
                                          PGD_TEST_BINARY_DIR "/tests/abi/minimal",
                                          PGD_TEST_BINARY_DIR "/tests/layers/top"};
    const pgd_dev_search search = {
        .folders = folders, .n_folders = 3, .no_env = 1, .no_installed = 1};
    const pgd_dev_desc desc = {.uri = uri, .allow_slow = 1};
    pgd_dev_registry *r = NULL;
    *out = NULL;
    PGD_TRY(pgd_dev_registry_create(&search, &r));
    const pgd_status status = pgd_dev_open(r, &desc, out);
    pgd_dev_registry_destroy(r);
    return status;
}

#endif
