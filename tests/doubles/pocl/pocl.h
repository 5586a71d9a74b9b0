// A device of streams and events that stands in for hardware: what the stand-in drivers share.
//
//   stream   a worker thread of its own that takes commands in order, after random pauses
//   memory   addresses that the host cannot use by accident; fresh memory holds rubbish
//   kernel   found by name among the portable kernels, run by OpenCL (PoCL) from their source
//   graph    the list of commands that a stream recorded
//
// A missing wait shows: commands run late, so a buffer that is read or changed too early has the
// wrong bytes, and under the thread sanitizer the access itself is reported. Results are error
// numbers of CUDA's driver API, which are HIP's too; a device that is lost stays lost.
//
// PAGODA_DOUBLE in the environment, "key=number,key=number": see double_settings.
#ifndef PGD_TESTS_DOUBLES_POCL_H
#define PGD_TESTS_DOUBLES_POCL_H

#include <stddef.h>
#include <stdint.h>

#include "portable/portable.h"

enum {
    DOUBLE_OK = 0,
    DOUBLE_INVALID = 1,
    DOUBLE_OUT_OF_MEMORY = 2,
    DOUBLE_NO_DEVICE = 100,
    DOUBLE_INVALID_DEVICE = 101,
    DOUBLE_NO_CONTEXT = 201,
    DOUBLE_OLD_DRIVER = 222, // PTX of a newer toolkit
    DOUBLE_NOT_FOUND = 500,
    DOUBLE_NOT_READY = 600,
    DOUBLE_ILLEGAL_ADDRESS = 700,
    DOUBLE_LOST = 719,
    DOUBLE_CAPTURING = 900,
};

typedef struct double_settings {
    int64_t devices;    // 1
    int64_t seed;       // of the pauses
    int64_t pause_us;   // longest pause before a command, 200
    int64_t pauses;     // of 1000 commands, 20
    int64_t memory;     // MiB of a device, 2048
    int64_t driver;     // version, 13000; below it the kernels are too new
    int64_t chip;       // 90; for HIP: 942
    int64_t oom;        // the n-th allocation fails, 0 = none
    int64_t launch_oom; // the n-th launch finds no memory, 0 = none
    int64_t lose;       // the device is lost after n launches, 0 = never
    int64_t hang;       // 1: init does not return
    int64_t f64;        // 0: no double precision (Level Zero only), 1
    int64_t matrix;     // 16: seems to be an Intel chip with a matrix unit (Level Zero only), 0
    int64_t blas_none;  // 1: the library of products knows no algorithm
    int64_t blas_fail;  // its n-th product fails, 0 = none
    int64_t blas_wrong; // 1: its products are wrong
    int64_t no_wait;    // calls that do nothing: 1 what a host waits by, 2 event wait of a stream
} double_settings;

#define DOUBLE_SHARED __attribute__((visibility("default"))) // with another stand-in library

DOUBLE_SHARED const double_settings *double_settings_get(void);
const char *double_error_text(int error);

// Starts the device; hangs if asked to.
int double_init(void);

// ---- memory: addresses of the device -----------------------------------------------------------

int double_alloc(uint64_t *out, size_t bytes);
int double_free(uint64_t address);
int double_host_alloc(void **out, size_t bytes); // the host's and the device's address
int double_host_free(void *ptr);
// 0 when a launch is to find no memory; counts launches.
int double_launch_has_memory(void);
void double_memory_info(size_t *out_free, size_t *out_total);

// ---- kernels, streams, events, graphs ----------------------------------------------------------

// Makes OpenCL and the program ready.
int double_module_load(const void *image);
int double_kernel_find(void **out, const char *name);

typedef struct double_stream double_stream;
typedef struct double_event double_event;
typedef struct double_graph double_graph;

typedef struct double_copy {
    uint64_t dst; // of the device, or the host's where is_host says so
    uint64_t dst_pitch;
    uint64_t src;
    uint64_t src_pitch;
    uint64_t bytes;
    uint64_t rows;
    int dst_is_host;
    int src_is_host;
} double_copy;

int double_stream_create(double_stream **out);
int double_stream_destroy(double_stream *s);
int double_stream_synchronize(double_stream *s);
// params: eight addresses and the kernel's block of parameters, as pointers to them.
int double_launch(double_stream *s, void *kernel, const unsigned groups[3], unsigned items,
                  void *const *params);
int double_copy_rows(double_stream *s, const double_copy *copy);
int double_fill(double_stream *s, uint64_t dst, uint32_t pattern, size_t n);
// One product of a library, in the order of the stream; column-major, as cuBLASLt has it:
// y [n, m] = w^T x + add, w [k, n], x [k, m].
typedef struct double_product {
    uint64_t w, x, add, y; // addresses of the device; add 0: none
    int64_t m, n, k;
    int64_t w_stride, x_stride, add_stride, y_stride;
    int in;  // type of w and x: 2 f16, 14 bf16
    int out; // of add and y: the same, or 0 f32
} double_product;
DOUBLE_SHARED int double_multiply(double_stream *s, const double_product *p);
int double_product_run(const double_product *p); // product.c
int double_event_create(double_event **out);
int double_event_destroy(double_event *e);
int double_event_record(double_event *e, double_stream *s);
int double_event_query(double_event *e);
int double_event_synchronize(double_event *e);
int double_stream_wait_event(double_stream *s, double_event *e);
int double_capture_begin(double_stream *s);
int double_capture_end(double_stream *s, double_graph **out);
int double_graph_launch(double_graph *g, double_stream *s);
int double_graph_retain(double_graph *g);
int double_graph_destroy(double_graph *g); // ends with the last holder

// ---- opencl.c ----------------------------------------------------------------------------------

typedef struct double_cl_queue double_cl_queue;
int double_cl_start(void);
double_cl_queue *double_cl_queue_create(void);
void double_cl_queue_destroy(double_cl_queue *q);
// Host pointers of the eight memories.
int double_cl_run(double_cl_queue *q, int kernel, const unsigned groups[3], void *const memories[],
                  const void *params);
int double_cl_finish(double_cl_queue *q);

// ---- memory.c ----------------------------------------------------------------------------------

// Host pointer of [address, address + bytes) of one allocation; NULL: there is none.
void *double_memory_find(uint64_t address, size_t bytes);

#endif
