// The file: one JSON object as Chrome's trace viewer and Perfetto read it.
//
//   {"displayTimeUnit":"ns","traceEvents":[
//   {"name":"gemm_add","cat":"op","ph":"X","ts":12.345,"dur":6.789,"pid":1,"tid":1,
//    "args":{"bytes":1234,"rows":3,"status":0}},
//   ... ]}
//
// Times are microseconds from the opening of the device with three decimals; "tid" is the queue.
#include "trace.h"

#include <inttypes.h>

// Queues are few: their number is found by looking.
static uint32_t queue_number(const void *queue) {
    return queue == NULL ? 0 : 1 + (uint32_t)((uintptr_t)queue >> 4 & 0xffff);
}

static void write_event(trace_self *t, const trace_event *e) {
    const uint64_t at = e->begin_ns - t->begin_ns;
    const uint64_t ns = e->end_ns - e->begin_ns;
    int n = fprintf(
        t->file,
        "%s{\"name\":\"%s\",\"cat\":\"%s\",\"ph\":\"X\",\"ts\":%" PRIu64 ".%03u,"
        "\"dur\":%" PRIu64 ".%03u,\"pid\":1,\"tid\":%" PRIu32 ",\"args\":{\"bytes\":%" PRIu64
        ",\"rows\":%" PRId64 ",\"status\":%" PRId32 "}}",
        t->n_written > 0 ? ",\n" : "", e->name, e->kind, at / 1000, (unsigned)(at % 1000),
        ns / 1000, (unsigned)(ns % 1000), queue_number(e->queue), e->bytes, e->rows, e->status);
    t->failed |= n < 0;
    t->n_written++;
}

static void write_all(trace_self *t) {
    for (uint32_t i = 0; i < t->n; i++) {
        write_event(t, &t->events[i]);
    }
    t->n = 0;
}

void trace_add(trace_self *t, const trace_event *e) {
    while (atomic_flag_test_and_set_explicit(&t->lock, memory_order_acquire)) {
    }
    if (t->n == TRACE_EVENTS) {
        write_all(t);
    }
    t->events[t->n++] = *e;
    atomic_flag_clear_explicit(&t->lock, memory_order_release);
}

int32_t trace_open(trace_self *t, const char *path) {
    t->file = fopen(path, "w");
    return t->file != NULL &&
           fputs("{\"displayTimeUnit\":\"ns\",\"traceEvents\":[\n", t->file) >= 0;
}

int32_t trace_close(trace_self *t) {
    if (t->file == NULL) {
        return 1;
    }
    write_all(t);
    t->failed |= fputs("\n]}\n", t->file) < 0;
    t->failed |= fclose(t->file) != 0;
    t->file = NULL;
    return !t->failed;
}
