// The functions of a gpu_driver over an interface of streams (stream.h).
#define _POSIX_C_SOURCE 200809L // nanosleep

#include "stream.h"

#include <string.h>
#include <time.h>

// Flags that mean the same to both vendors.
enum {
    STREAM_NON_BLOCKING = 1,
    EVENT_DISABLE_TIMING = 2,
    HOST_PORTABLE_MAPPED = 3,
    CAPTURE_RELAXED = 2,
    MOST_PITCH = 0x7fffffff,
};

typedef struct memory {
    uint64_t address; // of the device
    void *host;       // of pinned host memory, else NULL
} memory;

typedef struct queue {
    gpu_stream_device *d;
    void *stream;
    void *events[GPU_POINTS];
    gpu_blaslt *blaslt; // NULL: the library has no handle
} queue;

static pgd_status check(const pgd_host *host, gpu_stream_device *d, const char *call, int error) {
    if (error == 0) {
        return PGD_OK;
    }
    pgd_status code = gpu_stream_error(host, d->library, call, error);
    if (code == PGD_DEVICE_LOST) {
        atomic_store(&d->lost, 1);
    }
    return code;
}

#define NAME(d, slot)            ((d)->library->vendor->names[GPU_STREAM_##slot])
#define CALL(host, d, slot, ...) check((host), (d), NAME(d, slot), (d)->api->slot(__VA_ARGS__))
#define MUST(host, d, slot, ...) PGD_TRY(CALL(host, d, slot, __VA_ARGS__))

static pgd_status enter(const pgd_host *host, gpu_stream_device *d) {
    return check(host, d, "making the device current", d->library->vendor->enter(d));
}

// ---- device ------------------------------------------------------------------------------------

void gpu_stream_close(const pgd_host *host, void *device) {
    gpu_stream_device *d = device;
    const gpu_stream_vendor *v = d->library->vendor;
    if (v->enter(d) == 0) {
        if (d->setup != NULL) {
            (void)d->api->stream_destroy(d->setup);
        }
        if (d->module != NULL) {
            (void)d->api->module_unload(d->module);
        }
        if (d->tuned_module != NULL) {
            (void)d->api->module_unload(d->tuned_module);
        }
    }
    if (d->context != NULL) {
        v->context_destroy(d->library, d->number, d->context);
    }
    host->free(host, d);
}

static pgd_status start(const pgd_host *host, gpu_stream_device *d, uint32_t i) {
    const gpu_stream_vendor *v = d->library->vendor;
    char arch[32] = "";
    MUST(host, d, device_get, &d->number, (int)i);
    PGD_TRY(
        check(host, d, "making a context", v->context_create(d->library, d->number, &d->context)));
    PGD_TRY(enter(host, d));
    MUST(host, d, stream_create, &d->setup, STREAM_NON_BLOCKING);
    v->arch(d->library, d->number, arch, sizeof(arch));
    return gpu_stream_load_kernels(host, d, arch);
}

pgd_status gpu_stream_open(const pgd_host *host, void *library, uint32_t i, void **out_device) {
    const gpu_stream_library *l = library;
    gpu_stream_device *d = host->alloc(host, sizeof(*d), 0);
    *out_device = NULL;
    if (d == NULL) {
        return GPU_STREAM_FAIL(host, l->vendor, PGD_OUT_OF_MEMORY, "%s", "no memory for a device");
    }
    d->library = l;
    d->api = &l->api;
    pgd_status code = start(host, d, i);
    if (code != PGD_OK) {
        gpu_stream_close(host, d);
        return code;
    }
    *out_device = d;
    return PGD_OK;
}

pgd_status gpu_stream_memory(const pgd_host *host, void *device, uint64_t *out_free,
                             uint64_t *out_total) {
    gpu_stream_device *d = device;
    size_t n_free = 0;
    size_t n_total = 0;
    PGD_TRY(enter(host, d));
    MUST(host, d, memory_info, &n_free, &n_total);
    *out_free = n_free;
    *out_total = n_total;
    return PGD_OK;
}

pgd_status gpu_stream_status(const pgd_host *host, void *device) {
    const gpu_stream_device *d = device;
    return atomic_load(&d->lost) == 0 ? PGD_OK
                                      : GPU_STREAM_FAIL(host, d->library->vendor, PGD_DEVICE_LOST,
                                                        "%s", "the device is lost");
}

// ---- memory ------------------------------------------------------------------------------------

static void give(gpu_stream_device *d, const memory *m) {
    if (m->host != NULL) {
        (void)d->api->host_free(m->host);
    } else if (m->address != 0) {
        (void)d->api->free(m->address);
    }
}

void gpu_stream_destroy(const pgd_host *host, void *device, void *what) {
    gpu_stream_device *d = device;
    if (d->library->vendor->enter(d) == 0) {
        give(d, what);
    }
    host->free(host, what);
}

static pgd_status take(const pgd_host *host, gpu_stream_device *d, uint64_t bytes, int32_t place,
                       memory *m) {
    if (place == PGD_PLACE_STAGING) {
        MUST(host, d, host_alloc, &m->host, bytes, HOST_PORTABLE_MAPPED);
        m->address = (uint64_t)(uintptr_t)m->host; // one address for both sides
        memset(m->host, 0, bytes);
        return PGD_OK;
    }
    MUST(host, d, alloc, &m->address, bytes);
    pgd_status code = CALL(host, d, fill, m->address, 0, bytes / 4, d->setup);
    code = code == PGD_OK ? CALL(host, d, stream_synchronize, d->setup) : code;
    if (code != PGD_OK) {
        give(d, m);
    }
    return code;
}

pgd_status gpu_stream_create(const pgd_host *host, void *device, uint64_t bytes, int32_t place,
                             void **out_memory) {
    gpu_stream_device *d = device;
    *out_memory = NULL;
    PGD_TRY(enter(host, d));
    memory *m = host->alloc(host, sizeof(*m), 0);
    if (m == NULL) {
        return GPU_STREAM_FAIL(host, d->library->vendor, PGD_OUT_OF_MEMORY, "%s",
                               "no memory for a buffer");
    }
    pgd_status code = take(host, d, bytes, place, m);
    if (code != PGD_OK) {
        host->free(host, m);
        return code;
    }
    *out_memory = m;
    return PGD_OK;
}

pgd_status gpu_stream_map(const pgd_host *host, void *device, void *what, void **out_ptr) {
    const memory *m = what;
    *out_ptr = m->host;
    return m->host != NULL
               ? PGD_OK
               : GPU_STREAM_FAIL(host, ((gpu_stream_device *)device)->library->vendor,
                                 PGD_UNSUPPORTED, "%s", "memory of the device has no host address");
}

// ---- queues ------------------------------------------------------------------------------------

void gpu_stream_queue_destroy(const pgd_host *host, void *what) {
    queue *q = what;
    gpu_stream_device *d = q->d;
    if (d->library->vendor->enter(d) == 0 && q->stream != NULL) {
        (void)d->api->stream_synchronize(q->stream);
        gpu_blaslt_destroy(host, q->blaslt);
        for (int i = 0; i < GPU_POINTS; i++) {
            if (q->events[i] != NULL) {
                (void)d->api->event_destroy(q->events[i]);
            }
        }
        (void)d->api->stream_destroy(q->stream);
    }
    host->free(host, q);
}

static pgd_status make_queue(const pgd_host *host, queue *q) {
    PGD_TRY(enter(host, q->d));
    MUST(host, q->d, stream_create, &q->stream, STREAM_NON_BLOCKING);
    for (int i = 0; i < GPU_POINTS; i++) {
        MUST(host, q->d, event_create, &q->events[i], EVENT_DISABLE_TIMING);
    }
    q->blaslt = gpu_blaslt_create(host, &q->d->library->blaslt);
    return PGD_OK;
}

pgd_status gpu_stream_queue_create(const pgd_host *host, void *device, int32_t role,
                                   void **out_queue) {
    gpu_stream_device *d = device;
    queue *q = host->alloc(host, sizeof(*q), 0);
    (void)role;
    *out_queue = NULL;
    if (q == NULL) {
        return GPU_STREAM_FAIL(host, d->library->vendor, PGD_OUT_OF_MEMORY, "%s",
                               "no memory for a queue");
    }
    q->d = d;
    pgd_status code = make_queue(host, q);
    if (code != PGD_OK) {
        gpu_stream_queue_destroy(host, q);
        return code;
    }
    *out_queue = q;
    return PGD_OK;
}

// The parameters with addresses of the memories beyond the eight.
static void add_others(const gpu_launch *l, unsigned char *params) {
    memcpy(params, l->params, sizeof(l->params));
    for (uint32_t i = 0; i < l->n_others; i++) {
        const memory *m = l->others[i];
        unsigned char *at = params + l->others_at + i * sizeof(uint64_t);
        uint64_t address = 0;
        memcpy(&address, at, sizeof(address));
        address += m == NULL ? 0 : m->address;
        memcpy(at, &address, sizeof(address));
    }
}

pgd_status gpu_stream_launch(const pgd_host *host, void *what, const gpu_launch *l) {
    queue *q = what;
    const int32_t own = l->kernel - PGD_PORTABLE_COUNT;
    const gpu_kernel *tuned = own >= 0 ? &q->d->library->vendor->tuned->kernels[own] : NULL;
    const uint32_t n_items = own >= 0 ? tuned->n_items : pgd_portable_kernels[l->kernel].n_items;
    uint64_t addresses[GPU_MEMORIES];
    void *params[GPU_MEMORIES + 1];
    PGD_TRY(enter(host, q->d));
    for (int i = 0; i < GPU_MEMORIES; i++) {
        const memory *m = l->memories[i];
        addresses[i] = m == NULL ? 0 : m->address;
        params[i] = &addresses[i];
    }
    _Alignas(8) unsigned char with_others[GPU_PARAMS_BYTES];
    params[GPU_MEMORIES] = (void *)(uintptr_t)l->params; // read before the call returns
    if (l->n_others > 0) {
        add_others(l, with_others);
        params[GPU_MEMORIES] = with_others;
    }
    if (own >= 0 && q->d->overlaps) {
        const gpu_stream_grid grid = {
            {l->groups[0], l->groups[1], l->groups[2]}, n_items, tuned->shared};
        return check(host, q->d, "a launch that may overlap",
                     q->d->library->vendor->launch_overlapping(q->d, q->d->functions[l->kernel],
                                                               &grid, q->stream, params));
    }
    return CALL(host, q->d, launch, q->d->functions[l->kernel], l->groups[0], l->groups[1],
                l->groups[2], n_items, 1, 1, own >= 0 ? tuned->shared : 0, q->stream, params, NULL);
}

static pgd_status copy_row(const pgd_host *host, queue *q, const gpu_stream_rows *c) {
    if (c->dst_is_host) {
        return CALL(host, q->d, copy_out, (void *)(uintptr_t)c->dst, c->src, c->bytes, q->stream);
    }
    if (c->src_is_host) {
        return CALL(host, q->d, copy_in, c->dst, (const void *)(uintptr_t)c->src, c->bytes,
                    q->stream);
    }
    return CALL(host, q->d, copy_on, c->dst, c->src, c->bytes, q->stream);
}

pgd_status gpu_stream_copy(const pgd_host *host, void *what, const gpu_copy *copy) {
    queue *q = what;
    const memory *dst = copy->dst;
    const memory *src = copy->src;
    gpu_stream_rows c = {
        .dst = copy->dst_offset + (dst == NULL ? 0 : dst->address),
        .dst_pitch = copy->dst_pitch,
        .src = copy->src_offset + (src == NULL ? 0 : src->address),
        .src_pitch = copy->src_pitch,
        .bytes = copy->bytes,
        .rows = copy->rows,
        .dst_is_host = dst == NULL,
        .src_is_host = src == NULL,
    };
    PGD_TRY(enter(host, q->d));
    if (c.rows > 1 && c.dst_pitch <= MOST_PITCH && c.src_pitch <= MOST_PITCH) {
        return check(host, q->d, "a copy of rows",
                     q->d->library->vendor->copy_rows(q->d, &c, q->stream));
    }
    for (uint64_t i = 0; i < copy->rows; i++) {
        PGD_TRY(copy_row(host, q, &c));
        c.dst += c.dst_pitch;
        c.src += c.src_pitch;
    }
    return PGD_OK;
}

pgd_status gpu_stream_fill(const pgd_host *host, void *what, void *where, uint64_t offset,
                           uint64_t bytes, uint32_t pattern) {
    queue *q = what;
    const memory *m = where;
    PGD_TRY(enter(host, q->d));
    return CALL(host, q->d, fill, m->address + offset, pattern, bytes / 4, q->stream);
}

static uint64_t address_of(const gpu_product_matrix *m) {
    return m->memory == NULL ? 0 : ((const memory *)m->memory)->address + m->offset;
}

pgd_status gpu_stream_product(const pgd_host *host, void *what, const gpu_product_call *c,
                              bool only_asks) {
    queue *q = what;
    const gpu_product_matrix scratch = {c->scratch, c->scratch_offset, 0};
    const gpu_blaslt_call call = {.what = c,
                                  .w = address_of(&c->w),
                                  .x = address_of(&c->x),
                                  .y = address_of(&c->y),
                                  .add = address_of(&c->add),
                                  .scratch = address_of(&scratch)};
    if (q->blaslt == NULL) {
        return PGD_UNSUPPORTED;
    }
    PGD_TRY(enter(host, q->d));
    return gpu_blaslt_product(q->blaslt, &call, q->stream, only_asks);
}

pgd_status gpu_stream_flush(const pgd_host *host, void *what) {
    (void)host;
    (void)what; // a stream starts by itself
    return PGD_OK;
}

// ---- time points -------------------------------------------------------------------------------

pgd_status gpu_stream_point(const pgd_host *host, void *what, uint32_t slot) {
    queue *q = what;
    PGD_TRY(enter(host, q->d));
    return CALL(host, q->d, event_record, q->events[slot], q->stream);
}

// There is no wait with an end: it is asked again and again.
static pgd_status poll(const pgd_host *host, gpu_stream_device *d, void *event,
                       uint64_t timeout_ns) {
    const uint64_t begin = host->clock_ns(host);
    const struct timespec pause = {.tv_nsec = 20000};
    for (;;) {
        const int error = d->api->event_query(event);
        if (error != GPU_STREAM_NOT_READY) {
            return check(host, d, NAME(d, event_query), error);
        }
        if (host->clock_ns(host) - begin >= timeout_ns) {
            return PGD_TIMEOUT;
        }
        nanosleep(&pause, NULL);
    }
}

pgd_status gpu_stream_point_wait(const pgd_host *host, void *what, uint32_t slot,
                                 uint64_t timeout_ns) {
    queue *q = what;
    PGD_TRY(enter(host, q->d));
    return timeout_ns == PGD_WAIT_FOREVER ? CALL(host, q->d, event_synchronize, q->events[slot])
                                          : poll(host, q->d, q->events[slot], timeout_ns);
}

pgd_status gpu_stream_queue_wait(const pgd_host *host, void *what, void *other, uint32_t slot) {
    queue *q = what;
    PGD_TRY(enter(host, q->d));
    return CALL(host, q->d, stream_wait_event, q->stream, ((queue *)other)->events[slot], 0);
}

// ---- graphs ------------------------------------------------------------------------------------

pgd_status gpu_stream_graph_begin(const pgd_host *host, void *what) {
    queue *q = what;
    PGD_TRY(enter(host, q->d));
    return CALL(host, q->d, capture_begin, q->stream, CAPTURE_RELAXED);
}

pgd_status gpu_stream_graph_end(const pgd_host *host, void *what, void **out_graph) {
    queue *q = what;
    gpu_stream_device *d = q->d;
    void *graph = NULL;
    *out_graph = NULL;
    PGD_TRY(enter(host, d));
    MUST(host, d, capture_end, q->stream, &graph);
    const int error = d->library->vendor->graph_instantiate(d, graph, out_graph);
    (void)d->api->graph_destroy(graph);
    return check(host, d, "making a graph", error);
}

pgd_status gpu_stream_graph_launch(const pgd_host *host, void *what, void *graph) {
    queue *q = what;
    PGD_TRY(enter(host, q->d));
    return CALL(host, q->d, graph_launch, graph, q->stream);
}

void gpu_stream_graph_destroy(const pgd_host *host, void *device, void *graph) {
    gpu_stream_device *d = device;
    (void)host;
    if (d->library->vendor->enter(d) == 0) {
        (void)d->api->graph_exec_destroy(graph);
    }
}
