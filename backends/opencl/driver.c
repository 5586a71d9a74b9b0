// The driver table on the OpenCL 1.2 C API. The loader (libOpenCL.so.1) is opened by name; without
// it, or without a device, there is a sentence and no device.
//
//   memory: a cl_mem; kernels get it whole, offsets are parameters
//   queue:  an in-order command queue with kernels of its own (arguments belong to a cl_kernel)
//   time point: a marker's event, one a slot
#define _POSIX_C_SOURCE 200809L // nanosleep

#include "ocl.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

typedef struct ocl_queue {
    ocl_device *d;
    cl_command_queue queue;
    cl_kernel kernels[PGD_PORTABLE_COUNT];
    pthread_mutex_t events_lock; // guards events: waits come from any thread
    cl_event events[GPU_POINTS];
} ocl_queue;

pgd_status ocl_error(const pgd_host *host, const char *call, cl_int error) {
    switch (error) {
    case CL_SUCCESS: return PGD_OK;
    case CL_MEM_OBJECT_ALLOCATION_FAILURE:
    case CL_OUT_OF_HOST_MEMORY:
    case CL_OUT_OF_RESOURCES:
    case CL_INVALID_BUFFER_SIZE:
        return OCL_FAIL(host, PGD_OUT_OF_MEMORY, "%s: no memory (%d)", call, (int)error);
    case CL_DEVICE_NOT_AVAILABLE:
        return OCL_FAIL(host, PGD_DEVICE_LOST, "%s: the device is not available", call);
    default: return OCL_FAIL(host, PGD_INTERNAL, "%s fails with %d", call, (int)error);
    }
}

#define OCL_TRY(host, cl, name, ...) PGD_TRY(ocl_error((host), #name, (cl)->name(__VA_ARGS__)))

// ---- library and devices -----------------------------------------------------------------------

static pgd_status find_functions(const pgd_host *host, ocl_library *l) {
#define OCL_FIND(name)                                                                      \
    *(void **)&l->cl.name = dlsym(l->handle, #name);                                        \
    if (l->cl.name == NULL) {                                                               \
        return OCL_FAIL(host, PGD_UNAVAILABLE, "libOpenCL.so.1 has no function %s", #name); \
    }
    OCL_FUNCTIONS(OCL_FIND)
#undef OCL_FIND
    return PGD_OK;
}

static void find_devices(ocl_library *l) {
    cl_platform_id platforms[OCL_DEVICES];
    cl_uint n_platforms = 0;
    if (l->cl.clGetPlatformIDs(OCL_DEVICES, platforms, &n_platforms) != CL_SUCCESS) {
        return;
    }
    for (cl_uint p = 0; p < n_platforms && p < OCL_DEVICES; p++) {
        cl_uint n = 0;
        const cl_uint room = OCL_DEVICES - l->n_devices;
        if (room > 0 && l->cl.clGetDeviceIDs(platforms[p], CL_DEVICE_TYPE_ALL, room,
                                             l->devices + l->n_devices, &n) == CL_SUCCESS) {
            l->n_devices += n < room ? n : room;
        }
    }
}

static void unload(const pgd_host *host, void *library) {
    host->free(host, library); // the loader itself stays: its drivers may have threads
}

static pgd_status load(const pgd_host *host, void **out_library) {
    ocl_library *l = host->alloc(host, sizeof(*l), 0);
    *out_library = NULL;
    if (l == NULL) {
        return OCL_FAIL(host, PGD_OUT_OF_MEMORY, "no memory for the list of devices");
    }
    l->handle = dlopen("libOpenCL.so.1", RTLD_NOW | RTLD_LOCAL);
    if (l->handle == NULL) {
        host->free(host, l);
        return OCL_FAIL(host, PGD_UNAVAILABLE, "the OpenCL loader libOpenCL.so.1 is not installed");
    }
    pgd_status code = find_functions(host, l);
    if (code != PGD_OK) {
        host->free(host, l);
        return code;
    }
    find_devices(l);
    *out_library = l;
    return PGD_OK;
}

static uint32_t count(void *library) {
    return ((const ocl_library *)library)->n_devices;
}

static void read_text(const ocl_library *l, cl_device_id id, cl_device_info what, char *out,
                      size_t bytes) {
    char text[256] = "";
    l->cl.clGetDeviceInfo(id, what, sizeof(text) - 1, text, NULL);
    snprintf(out, bytes, "%.*s", (int)bytes - 1, text);
}

static pgd_status facts(const pgd_host *host, void *library, uint32_t i, gpu_device_facts *out) {
    const ocl_library *l = library;
    cl_device_id id = l->devices[i];
    cl_device_type type = 0;
    cl_ulong bytes = 0;
    cl_uint units = 0;
    cl_device_fp_config f64 = 0;
    OCL_TRY(host, &l->cl, clGetDeviceInfo, id, CL_DEVICE_TYPE, sizeof(type), &type, NULL);
    OCL_TRY(host, &l->cl, clGetDeviceInfo, id, CL_DEVICE_GLOBAL_MEM_SIZE, sizeof(bytes), &bytes,
            NULL);
    l->cl.clGetDeviceInfo(id, CL_DEVICE_MAX_COMPUTE_UNITS, sizeof(units), &units, NULL);
    l->cl.clGetDeviceInfo(id, CL_DEVICE_DOUBLE_FP_CONFIG, sizeof(f64), &f64, NULL);
    read_text(l, id, CL_DEVICE_NAME, out->name, sizeof(out->name));
    read_text(l, id, CL_DEVICE_VERSION, out->arch, sizeof(out->arch));
    out->bytes = bytes;
    out->units = units;
    out->kind = (type & CL_DEVICE_TYPE_GPU) != 0   ? PGD_DEVICE_GPU
                : (type & CL_DEVICE_TYPE_CPU) != 0 ? PGD_DEVICE_CPU
                                                   : PGD_DEVICE_OTHER;
    out->has_f64 = f64 != 0;
    return PGD_OK;
}

static void device_close(const pgd_host *host, void *device) {
    ocl_device *d = device;
    if (d->setup != NULL) {
        d->cl->clReleaseCommandQueue(d->setup);
    }
    if (d->program != NULL) {
        d->cl->clReleaseProgram(d->program);
    }
    if (d->context != NULL) {
        d->cl->clReleaseContext(d->context);
    }
    host->free(host, d);
}

static pgd_status make_device(const pgd_host *host, ocl_device *d) {
    cl_int error = CL_SUCCESS;
    d->context = d->cl->clCreateContext(NULL, 1, &d->id, NULL, NULL, &error);
    PGD_TRY(ocl_error(host, "clCreateContext", error));
    d->setup = d->cl->clCreateCommandQueue(d->context, d->id, 0, &error);
    return ocl_error(host, "clCreateCommandQueue", error);
}

static pgd_status device_open(const pgd_host *host, void *library, uint32_t i, void **out_device) {
    const ocl_library *l = library;
    ocl_device *d = host->alloc(host, sizeof(*d), 0);
    *out_device = NULL;
    if (d == NULL) {
        return OCL_FAIL(host, PGD_OUT_OF_MEMORY, "no memory for a device");
    }
    d->library = l;
    d->cl = &l->cl;
    d->id = l->devices[i];
    pgd_status code = make_device(host, d);
    if (code != PGD_OK) {
        device_close(host, d);
        return code;
    }
    *out_device = d;
    return PGD_OK;
}

// ---- memory ------------------------------------------------------------------------------------

static void destroy(const pgd_host *host, void *device, void *memory) {
    (void)host;
    ((ocl_device *)device)->cl->clReleaseMemObject(memory);
}

static pgd_status create(const pgd_host *host, void *device, uint64_t bytes, int32_t place,
                         void **out_memory) {
    ocl_device *d = device;
    const cl_mem_flags flags =
        CL_MEM_READ_WRITE | (place == PGD_PLACE_STAGING ? CL_MEM_ALLOC_HOST_PTR : 0);
    const cl_uint zero = 0;
    cl_int error = CL_SUCCESS;
    *out_memory = NULL;
    cl_mem m = d->cl->clCreateBuffer(d->context, flags, bytes, NULL, &error);
    PGD_TRY(ocl_error(host, "clCreateBuffer", error));
    error = d->cl->clEnqueueFillBuffer(d->setup, m, &zero, sizeof(zero), 0, bytes, 0, NULL, NULL);
    if (error == CL_SUCCESS) { // memory that is only found missing when it is used
        error = d->cl->clFinish(d->setup);
    }
    if (error != CL_SUCCESS) {
        destroy(host, d, m);
        return ocl_error(host, "zeroing a buffer", error);
    }
    *out_memory = m;
    return PGD_OK;
}

// ---- queues ------------------------------------------------------------------------------------

static void queue_destroy(const pgd_host *host, void *queue) {
    ocl_queue *q = queue;
    const ocl_api *cl = q->d->cl;
    if (q->queue != NULL) {
        cl->clFinish(q->queue);
    }
    for (int i = 0; i < GPU_POINTS; i++) {
        if (q->events[i] != NULL) {
            cl->clReleaseEvent(q->events[i]);
        }
    }
    for (int i = 0; i < PGD_PORTABLE_COUNT; i++) {
        if (q->kernels[i] != NULL) {
            cl->clReleaseKernel(q->kernels[i]);
        }
    }
    if (q->queue != NULL) {
        cl->clReleaseCommandQueue(q->queue);
    }
    pthread_mutex_destroy(&q->events_lock);
    host->free(host, q);
}

static pgd_status make_queue(const pgd_host *host, ocl_queue *q, const gpu_device_facts *facts) {
    const ocl_device *d = q->d;
    cl_int error = CL_SUCCESS;
    q->queue = d->cl->clCreateCommandQueue(d->context, d->id, 0, &error);
    PGD_TRY(ocl_error(host, "clCreateCommandQueue", error));
    for (int i = 0; i < PGD_PORTABLE_COUNT; i++) {
        if (!facts->has_f64 &&
            (i == PGD_PORTABLE_change || i == PGD_PORTABLE_draw || i == PGD_PORTABLE_tell)) {
            continue;
        }
        q->kernels[i] = d->cl->clCreateKernel(d->program, pgd_portable_kernels[i].name, &error);
        PGD_TRY(ocl_error(host, pgd_portable_kernels[i].name, error));
    }
    return PGD_OK;
}

static pgd_status queue_create(const pgd_host *host, void *device, int32_t role, void **out_queue) {
    ocl_queue *q = host->alloc(host, sizeof(*q), 0);
    gpu_device_facts f = {0};
    cl_device_fp_config f64 = 0;
    (void)role;
    *out_queue = NULL;
    if (q == NULL) {
        return OCL_FAIL(host, PGD_OUT_OF_MEMORY, "no memory for a queue");
    }
    q->d = device;
    pthread_mutex_init(&q->events_lock, NULL);
    q->d->cl->clGetDeviceInfo(q->d->id, CL_DEVICE_DOUBLE_FP_CONFIG, sizeof(f64), &f64, NULL);
    f.has_f64 = f64 != 0;
    // Kernels are built with the first queue: who only lists devices does not wait for that.
    pgd_status code = q->d->program == NULL ? ocl_program_make(host, q->d) : PGD_OK;
    code = code == PGD_OK ? make_queue(host, q, &f) : code;
    if (code != PGD_OK) {
        queue_destroy(host, q);
        return code;
    }
    *out_queue = q;
    return PGD_OK;
}

static pgd_status launch(const pgd_host *host, void *queue, const gpu_launch *l) {
    ocl_queue *q = queue;
    const ocl_api *cl = q->d->cl;
    const pgd_portable_kernel *k = &pgd_portable_kernels[l->kernel];
    cl_kernel kernel = q->kernels[l->kernel];
    const size_t local[3] = {k->n_items, 1, 1};
    const size_t global[3] = {(size_t)l->groups[0] * k->n_items, l->groups[1], l->groups[2]};
    for (cl_uint i = 0; i < GPU_MEMORIES; i++) {
        cl_mem m = l->memories[i];
        OCL_TRY(host, cl, clSetKernelArg, kernel, i, sizeof(m), &m);
    }
    OCL_TRY(host, cl, clSetKernelArg, kernel, GPU_MEMORIES, k->params_bytes, l->params);
    return ocl_error(
        host, k->name,
        cl->clEnqueueNDRangeKernel(q->queue, kernel, 3, NULL, global, local, 0, NULL, NULL));
}

static pgd_status copy_rows(const pgd_host *host, ocl_queue *q, const gpu_copy *c) {
    const ocl_api *cl = q->d->cl;
    const size_t zero[3] = {0, 0, 0};
    const size_t region[3] = {c->bytes, c->rows, 1};
    const size_t dst[3] = {c->dst_offset % c->dst_pitch, c->dst_offset / c->dst_pitch, 0};
    const size_t src[3] = {c->src_offset % c->src_pitch, c->src_offset / c->src_pitch, 0};
    if (c->dst == NULL) {
        OCL_TRY(host, cl, clEnqueueReadBufferRect, q->queue, c->src, CL_FALSE, src, zero, region,
                c->src_pitch, 0, c->dst_pitch, 0, (void *)(uintptr_t)c->dst_offset, 0, NULL, NULL);
    } else if (c->src == NULL) {
        OCL_TRY(host, cl, clEnqueueWriteBufferRect, q->queue, c->dst, CL_FALSE, dst, zero, region,
                c->dst_pitch, 0, c->src_pitch, 0, (const void *)(uintptr_t)c->src_offset, 0, NULL,
                NULL);
    } else {
        OCL_TRY(host, cl, clEnqueueCopyBufferRect, q->queue, c->src, c->dst, src, dst, region,
                c->src_pitch, 0, c->dst_pitch, 0, 0, NULL, NULL);
    }
    return PGD_OK;
}

static pgd_status copy_one(const pgd_host *host, ocl_queue *q, const gpu_copy *c) {
    const ocl_api *cl = q->d->cl;
    if (c->dst == NULL) {
        OCL_TRY(host, cl, clEnqueueReadBuffer, q->queue, c->src, CL_FALSE, c->src_offset, c->bytes,
                (void *)(uintptr_t)c->dst_offset, 0, NULL, NULL);
    } else if (c->src == NULL) {
        OCL_TRY(host, cl, clEnqueueWriteBuffer, q->queue, c->dst, CL_FALSE, c->dst_offset, c->bytes,
                (const void *)(uintptr_t)c->src_offset, 0, NULL, NULL);
    } else {
        OCL_TRY(host, cl, clEnqueueCopyBuffer, q->queue, c->src, c->dst, c->src_offset,
                c->dst_offset, c->bytes, 0, NULL, NULL);
    }
    return PGD_OK;
}

// A rectangle may not pass the end of a row: rows that do are copied one by one.
static pgd_status copy(const pgd_host *host, void *queue, const gpu_copy *c) {
    if (c->rows <= 1) {
        return copy_one(host, queue, c);
    }
    if ((c->dst == NULL || c->dst_offset % c->dst_pitch + c->bytes <= c->dst_pitch) &&
        (c->src == NULL || c->src_offset % c->src_pitch + c->bytes <= c->src_pitch)) {
        return copy_rows(host, queue, c);
    }
    for (uint64_t i = 0; i < c->rows; i++) {
        gpu_copy row = *c;
        row.dst_offset += i * c->dst_pitch;
        row.src_offset += i * c->src_pitch;
        PGD_TRY(copy_one(host, queue, &row));
    }
    return PGD_OK;
}

static pgd_status fill(const pgd_host *host, void *queue, void *memory, uint64_t offset,
                       uint64_t bytes, uint32_t pattern) {
    ocl_queue *q = queue;
    OCL_TRY(host, q->d->cl, clEnqueueFillBuffer, q->queue, memory, &pattern, sizeof(pattern),
            offset, bytes, 0, NULL, NULL);
    return PGD_OK;
}

static pgd_status flush(const pgd_host *host, void *queue) {
    ocl_queue *q = queue;
    OCL_TRY(host, q->d->cl, clFlush, q->queue);
    return PGD_OK;
}

// ---- time points -------------------------------------------------------------------------------

static pgd_status point(const pgd_host *host, void *queue, uint32_t slot) {
    ocl_queue *q = queue;
    const ocl_api *cl = q->d->cl;
    cl_event event = NULL;
    OCL_TRY(host, cl, clEnqueueMarkerWithWaitList, q->queue, 0, NULL, &event);
    pthread_mutex_lock(&q->events_lock);
    cl_event old = q->events[slot];
    q->events[slot] = event;
    pthread_mutex_unlock(&q->events_lock);
    if (old != NULL) {
        cl->clReleaseEvent(old);
    }
    return flush(host, q);
}

static cl_event take_event(ocl_queue *q, uint32_t slot) {
    pthread_mutex_lock(&q->events_lock);
    cl_event event = q->events[slot];
    if (event != NULL) {
        q->d->cl->clRetainEvent(event);
    }
    pthread_mutex_unlock(&q->events_lock);
    return event;
}

// OpenCL has no wait with an end: it is asked again and again.
static pgd_status poll(const pgd_host *host, const ocl_api *cl, cl_event event,
                       uint64_t timeout_ns) {
    const uint64_t begin = host->clock_ns(host);
    const struct timespec pause = {.tv_nsec = 20000};
    for (;;) {
        cl_int status = CL_QUEUED;
        OCL_TRY(host, cl, clGetEventInfo, event, CL_EVENT_COMMAND_EXECUTION_STATUS, sizeof(status),
                &status, NULL);
        if (status <= CL_COMPLETE) {
            return ocl_error(host, "the queue", status);
        }
        if (host->clock_ns(host) - begin >= timeout_ns) {
            return PGD_TIMEOUT;
        }
        nanosleep(&pause, NULL);
    }
}

static pgd_status point_wait(const pgd_host *host, void *queue, uint32_t slot,
                             uint64_t timeout_ns) {
    ocl_queue *q = queue;
    const ocl_api *cl = q->d->cl;
    cl_event event = take_event(q, slot);
    pgd_status code = PGD_OK;
    if (event == NULL) {
        return PGD_OK;
    }
    code = timeout_ns == PGD_WAIT_FOREVER
               ? ocl_error(host, "clWaitForEvents", cl->clWaitForEvents(1, &event))
               : poll(host, cl, event, timeout_ns);
    cl->clReleaseEvent(event);
    return code;
}

static pgd_status queue_wait(const pgd_host *host, void *queue, void *other, uint32_t slot) {
    ocl_queue *q = queue;
    const ocl_api *cl = q->d->cl;
    cl_event event = take_event(other, slot);
    if (event == NULL) {
        return PGD_OK;
    }
    const cl_int error = cl->clEnqueueBarrierWithWaitList(q->queue, 1, &event, NULL);
    cl->clReleaseEvent(event);
    return ocl_error(host, "clEnqueueBarrierWithWaitList", error);
}

const gpu_driver ocl_driver = {
    .kind = "ocl",
    .load = load,
    .unload = unload,
    .count = count,
    .facts = facts,
    .open = device_open,
    .close = device_close,
    .create = create,
    .destroy = destroy,
    .queue_create = queue_create,
    .queue_destroy = queue_destroy,
    .launch = launch,
    .copy = copy,
    .fill = fill,
    .flush = flush,
    .point = point,
    .point_wait = point_wait,
    .queue_wait = queue_wait,
};
