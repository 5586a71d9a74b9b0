// What the files of the trace layer share.
#ifndef PGD_PLUGINS_TRACE_H
#define PGD_PLUGINS_TRACE_H

#include "../layer/layer.h"

#include <stdio.h>

#define TRACE_EVENTS 4096 // kept in memory before they are written

typedef struct trace_event {
    const char *name; // static
    const char *kind; // static: op, queue, memory, weight, kv
    const void *queue;
    uint64_t begin_ns;
    uint64_t end_ns;
    uint64_t bytes;
    int64_t rows; // -1: it has none
    int32_t status;
    int32_t reserved0;
} trace_event;

typedef struct trace_self {
    const pgd_host *host;
    FILE *file;
    uint64_t begin_ns; // of the trace
    int32_t sync;
    uint32_t n_written; // events in the file
    atomic_flag lock;   // guards what follows
    int32_t failed;     // the file could not be written
    uint32_t n;
    trace_event events[TRACE_EVENTS];
    layer_map weights; // -> trace_weight
    layer_map caches;  // -> pgd_kv_desc
} trace_self;

// [any] Keeps an event; writes when the room is full.
void trace_add(trace_self *t, const trace_event *e);
// Opens the file and writes its beginning. 0: it cannot be written.
int32_t trace_open(trace_self *t, const char *path);
// Writes what is left and the end, closes the file. 0: something could not be written.
int32_t trace_close(trace_self *t);

#endif
