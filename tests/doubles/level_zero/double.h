// A Level Zero driver for the real loader that runs on PoCL.
//
//   api.c lists.c   the functions of the API       tables.c  the loader's way to them
//   work.c          queues: a thread each, commands in the wildest order the API allows
//   module.c        modules (SPIR-V) and launches, on an OpenCL device
//   ../pocl         memory and settings (PAGODA_DOUBLE), shared with the other drivers
//
// What a caller does wrong ends the process with a sentence.
#ifndef PGD_TESTS_DOUBLES_LEVEL_ZERO_DOUBLE_H
#define PGD_TESTS_DOUBLES_LEVEL_ZERO_DOUBLE_H

#include <level_zero/ze_api.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "cl.h"
#include "pocl.h"

enum {
    ZED_ARGS = 16,
    ZED_ARG_BYTES = 512,
    ZED_WAITS = 4,
    ZED_DEVICES = 4,
};

_Noreturn void zed_complain(const char *what);

// ---- module.c ----------------------------------------------------------------------------------

typedef enum arg_kind { ARG_VALUE = 0, ARG_MEMORY } arg_kind;

typedef struct zed_module {
    cl_program program;
    uint32_t *words; // the SPIR-V
    size_t n_words;
    char log[512];
} zed_module;

typedef struct zed_kernel {
    cl_kernel kernel;
    uint32_t n_args;
    arg_kind kinds[ZED_ARGS];
    uint32_t group[3];
    size_t bytes[ZED_ARGS]; // 0: not set
    _Alignas(8) unsigned char values[ZED_ARGS][ZED_ARG_BYTES];
} zed_kernel;

bool zed_open(void); // false: there is no PoCL
ze_result_t zed_module_make(const void *spirv, size_t bytes, zed_module *out);
void zed_module_end(zed_module *m);
ze_result_t zed_kernel_make(const zed_module *m, const char *name, zed_kernel *out);
void zed_kernel_end(zed_kernel *k);
// Runs it to its end with the arguments that the kernel has.
void zed_run(const zed_kernel *k, const uint32_t groups[3]);

// ---- work.c ------------------------------------------------------------------------------------

struct _ze_event_handle_t {
    ze_event_pool_handle_t pool;
    bool is_set; // guarded by the lock of work.c
};

typedef enum command_kind {
    COMMAND_BARRIER = 0,
    COMMAND_LAUNCH,
    COMMAND_COPY,
    COMMAND_FILL,
    COMMAND_RESET,
} command_kind;

typedef struct command {
    struct command *next;
    command_kind kind;
    ze_event_handle_t signals; // NULL: nothing
    uint32_t n_waits;
    ze_event_handle_t waits[ZED_WAITS];
    ze_event_handle_t reset;
    zed_kernel *launch; // a copy with its arguments, owned
    uint32_t groups[3];
    uint64_t dst; // addresses of the host or the device
    uint64_t src;
    size_t bytes;
    size_t rows;
    size_t dst_pitch;
    size_t src_pitch;
    size_t pattern_bytes;
    unsigned char pattern[16];
} command;

typedef struct work work; // a queue and its thread

work *work_create(void);
void work_destroy(work *w); // waits
// Takes the command to the end.
void work_put(work *w, command *c);
void work_wait(work *w);
bool work_is_lost(void);

command *command_copy(const command *c);
void command_free(command *first);

void event_reset(ze_event_handle_t e);
// NOT_READY when the time is over.
ze_result_t event_wait(ze_event_handle_t e, uint64_t timeout_ns);

#endif
