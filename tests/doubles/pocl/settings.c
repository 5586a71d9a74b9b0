// What the environment asks of the stand-in device.
#define _POSIX_C_SOURCE 200809L // pause, strdup

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "pocl.h"

static pthread_once_t once = PTHREAD_ONCE_INIT;
static double_settings settings = {.devices = 1,
                                   .seed = 1,
                                   .pause_us = 200,
                                   .pauses = 20,
                                   .memory = 2048,
                                   .driver = 13000,
                                   .chip = 0,
                                   .f64 = 1};

static const struct {
    const char *key;
    size_t at;
} keys[] = {
    {"devices", offsetof(double_settings, devices)},
    {"seed", offsetof(double_settings, seed)},
    {"pause_us", offsetof(double_settings, pause_us)},
    {"pauses", offsetof(double_settings, pauses)},
    {"memory", offsetof(double_settings, memory)},
    {"driver", offsetof(double_settings, driver)},
    {"chip", offsetof(double_settings, chip)},
    {"oom", offsetof(double_settings, oom)},
    {"launch_oom", offsetof(double_settings, launch_oom)},
    {"lose", offsetof(double_settings, lose)},
    {"hang", offsetof(double_settings, hang)},
    {"f64", offsetof(double_settings, f64)},
    {"matrix", offsetof(double_settings, matrix)},
    {"blas_none", offsetof(double_settings, blas_none)},
    {"blas_fail", offsetof(double_settings, blas_fail)},
    {"blas_wrong", offsetof(double_settings, blas_wrong)},
    {"no_wait", offsetof(double_settings, no_wait)},
};

static void set(const char *item) {
    for (size_t i = 0; i < sizeof(keys) / sizeof(keys[0]); i++) {
        const size_t n = strlen(keys[i].key);
        if (strncmp(item, keys[i].key, n) == 0 && item[n] == '=') {
            const int64_t value = strtoll(item + n + 1, NULL, 10);
            memcpy((char *)&settings + keys[i].at, &value, sizeof(value));
            return;
        }
    }
    fprintf(stderr, "PAGODA_DOUBLE: '%s' is not known\n", item);
    abort(); // a test that asks for what is not there would prove nothing
}

static void read_environment(void) {
    const char *text = getenv("PAGODA_DOUBLE");
    char *copy = text == NULL ? NULL : strdup(text);
    char *rest = NULL;
    if (copy == NULL) {
        return;
    }
    char *item = strtok_r(copy, ",;", &rest);
    while (item != NULL) {
        set(item);
        item = strtok_r(NULL, ",;", &rest);
    }
    free(copy);
}

const double_settings *double_settings_get(void) {
    pthread_once(&once, read_environment);
    return &settings;
}

int double_init(void) {
    while (double_settings_get()->hang != 0) {
        pause();
    }
    return double_settings_get()->devices > 0 ? DOUBLE_OK : DOUBLE_NO_DEVICE;
}

const char *double_error_text(int error) {
    switch (error) {
    case DOUBLE_OK: return "no error";
    case DOUBLE_INVALID: return "invalid argument";
    case DOUBLE_OUT_OF_MEMORY: return "out of memory";
    case DOUBLE_NO_DEVICE: return "no device";
    case DOUBLE_INVALID_DEVICE: return "invalid device ordinal";
    case DOUBLE_NO_CONTEXT: return "invalid device context";
    case DOUBLE_OLD_DRIVER: return "the provided PTX was compiled with an unsupported toolchain.";
    case DOUBLE_NOT_FOUND: return "named symbol not found";
    case DOUBLE_NOT_READY: return "device not ready";
    case DOUBLE_ILLEGAL_ADDRESS: return "an illegal memory access was encountered";
    case DOUBLE_LOST: return "unspecified launch failure";
    case DOUBLE_CAPTURING: return "operation not permitted when stream is capturing";
    default: return NULL;
    }
}
