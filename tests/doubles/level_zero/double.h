// A Level Zero driver for the real loader that runs on PoCL.
//
//   api.c     the functions of the API          tables.c  the loader's way to them
//   work.c    queues: a thread each, commands in the wildest order the API allows
//   pocl.c    memory, modules (SPIR-V) and launches, one at a time, on an OpenCL device
//
// Settings, all by environment: PGD_DOUBLE_SEED (of order and delays), PGD_DOUBLE_DEVICES (0 to 4),
// PGD_DOUBLE_F64=0 (no double precision), PGD_DOUBLE_OOM_AT=n (allocation n and those after it
// fail), PGD_DOUBLE_LOST_AFTER=n (the device is lost at launch n), PGD_DOUBLE_HANG (in zeInit).
#ifndef PGD_TESTS_DOUBLES_LEVEL_ZERO_DOUBLE_H
#define PGD_TESTS_DOUBLES_LEVEL_ZERO_DOUBLE_H

#define CL_TARGET_OPENCL_VERSION 200
#include <CL/cl.h>
#include <level_zero/ze_api.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    DOUBLE_ARGS = 16,
    DOUBLE_ARG_BYTES = 512,
    DOUBLE_WAITS = 4,
    DOUBLE_DEVICES = 4,
};

// ---- pocl.c ------------------------------------------------------------------------------------

typedef enum arg_kind { ARG_VALUE = 0, ARG_MEMORY } arg_kind;

typedef struct double_module {
    cl_program program;
    uint32_t *words; // the SPIR-V
    size_t n_words;
    char log[512];
} double_module;

typedef struct double_kernel {
    cl_kernel kernel;
    uint32_t n_args;
    arg_kind kinds[DOUBLE_ARGS];
    uint32_t group[3];
    size_t bytes[DOUBLE_ARGS]; // 0: not set
    _Alignas(8) unsigned char values[DOUBLE_ARGS][DOUBLE_ARG_BYTES];
} double_kernel;

// A number from the environment, or `otherwise`.
int64_t double_setting(const char *name, int64_t otherwise);
// Says what the caller did wrong; the tests look for it.
void double_complain(const char *what);

bool double_open(void); // false: there is no PoCL
ze_result_t double_alloc(size_t bytes, bool on_host, void **out);
ze_result_t double_free(void *ptr);
// Whether [ptr, ptr + bytes) lies in one allocation; 1 device, 2 host, 0 none.
int double_owner(const void *ptr, size_t bytes);
ze_result_t double_module_make(const void *spirv, size_t bytes, double_module *out);
void double_module_end(double_module *m);
ze_result_t double_kernel_make(const double_module *m, const char *name, double_kernel *out);
void double_kernel_end(double_kernel *k);
// Runs it to its end with the arguments that the kernel has.
bool double_run(const double_kernel *k, const uint32_t groups[3]);

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
    ze_event_handle_t waits[DOUBLE_WAITS];
    ze_event_handle_t reset;
    double_kernel *launch; // a copy with its arguments, owned
    uint32_t groups[3];
    unsigned char *dst;
    const unsigned char *src;
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
// Takes the commands, in order.
void work_put(work *w, command *first);
void work_wait(work *w);
bool work_is_lost(void);

command *command_copy(const command *c);
void command_free(command *first);

void event_reset(ze_event_handle_t e);
// NOT_READY when the time is over.
ze_result_t event_wait(ze_event_handle_t e, uint64_t timeout_ns);

#endif
