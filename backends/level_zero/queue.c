// Queues: an immediate command list and, for graphs, a command queue beside it.
//
// Commands of a list may overlap; a barrier behind each keeps them in order. (The flag for lists
// that are in order by themselves is younger than the API this is written for, 1.4.)
//
//   time point   a barrier that signals the slot's event
//   graph        a closed command list, between two events of its queue:
//                  list:   .. signal START           | wait DONE, reset DONE ..
//                  graph:     wait START, reset START, its commands, signal DONE
#include <stdio.h>
#include <string.h>

#include "ze.h"

enum {
    EVENT_START = GPU_POINTS,
    EVENT_DONE,
    EVENT_LAST, // of queue_destroy
    EVENTS,
};

enum { KERNELS = (int)PGD_PORTABLE_COUNT + (int)PGD_MATRIX_COUNT };

typedef struct ze_queue {
    const ze_device *d;
    const ze_api *ze;
    ze_command_list_handle_t immediate;
    ze_command_list_handle_t list;    // commands go here: the immediate list or a graph's
    ze_command_queue_handle_t graphs; // made with the first graph
    ze_event_pool_handle_t pool;
    ze_event_handle_t events[EVENTS];
    // Arguments belong to a kernel. Behind the portable ones the tuned, where the device has them.
    ze_kernel_handle_t kernels[KERNELS];
} ze_queue;

// ---- kernels -----------------------------------------------------------------------------------

// What the compiler said goes to text, "" if nothing.
static ze_result_t build(const ze_device *d, const ze_kernels *k, const char *flags,
                         ze_module_handle_t *out, char *text, size_t bytes) {
    const ze_module_desc_t desc = {.stype = ZE_STRUCTURE_TYPE_MODULE_DESC,
                                   .format = ZE_MODULE_FORMAT_IL_SPIRV,
                                   .inputSize = k->n_bytes,
                                   .pInputModule = k->bytes,
                                   .pBuildFlags = flags};
    ze_module_build_log_handle_t log = NULL;
    size_t n = 0;
    const ze_result_t result = d->ze->zeModuleCreate(d->context, d->device, &desc, out, &log);
    text[0] = '\0';
    if (result != ZE_RESULT_SUCCESS) {
        *out = NULL;
        if (log != NULL && d->ze->zeModuleBuildLogGetString(log, &n, NULL) == ZE_RESULT_SUCCESS &&
            n < bytes) {
            (void)d->ze->zeModuleBuildLogGetString(log, &n, text);
            text[bytes - 1] = '\0';
        }
    }
    if (log != NULL) {
        (void)d->ze->zeModuleBuildLogDestroy(log);
    }
    return result;
}

// Memories may be larger than 4 GiB, hence the flag.
#define FLAGS "-ze-opt-greater-than-4GB-buffer-required"

static pgd_status make_module(const pgd_host *host, ze_device *d) {
    char text[600];
    const ze_result_t result = build(d, d->has_f64 ? &ze_kernels_f64 : &ze_kernels_f32, FLAGS,
                                     &d->module, text, sizeof(text));
    if (result == ZE_RESULT_ERROR_MODULE_BUILD_FAILURE) {
        return ZE_FAIL(host, PGD_UNSUPPORTED, "the driver cannot build the kernels: %.300s", text);
    }
    return ze_error(host, "zeModuleCreate", result);
}

// The sums of gemm_many take more than the usual half of the registers.
bool ze_has_tuned(const pgd_host *host, void *device, char *reason, size_t bytes) {
    ze_device *d = device;
    char text[600];
    (void)host;
    const ze_result_t result =
        build(d, d->unit == ZE_UNIT_DPAS8 ? &ze_kernels_dpas8 : &ze_kernels_dpas16,
              FLAGS " -ze-opt-large-register-file", &d->tuned, text, sizeof(text));
    if (result != ZE_RESULT_SUCCESS) {
        snprintf(reason, bytes, "the driver cannot build the matrix kernels (0x%x) %.30s",
                 (unsigned)result, text);
    }
    return result == ZE_RESULT_SUCCESS;
}

static pgd_status make_kernel(const pgd_host *host, ze_queue *q, int32_t number,
                              ze_module_handle_t module, const char *name, uint32_t n_items) {
    const ze_kernel_desc_t desc = {.stype = ZE_STRUCTURE_TYPE_KERNEL_DESC, .pKernelName = name};
    PGD_TRY(ze_error(host, name, q->ze->zeKernelCreate(module, &desc, &q->kernels[number])));
    ZE_TRY(host, q->ze, zeKernelSetGroupSize, q->kernels[number], n_items, 1, 1);
    return PGD_OK;
}

static pgd_status make_kernels(const pgd_host *host, ze_queue *q) {
    for (int i = 0; i < PGD_PORTABLE_COUNT; i++) {
        const pgd_portable_kernel *k = &pgd_portable_kernels[i];
        if (!q->d->has_f64 &&
            (i == PGD_PORTABLE_change || i == PGD_PORTABLE_draw || i == PGD_PORTABLE_tell)) {
            continue;
        }
        PGD_TRY(make_kernel(host, q, i, q->d->module, k->name, k->n_items));
    }
    for (int i = 0; i < PGD_MATRIX_COUNT && q->d->tuned != NULL; i++) {
        const gpu_kernel *k = &ze_tuned.kernels[i];
        PGD_TRY(make_kernel(host, q, PGD_PORTABLE_COUNT + i, q->d->tuned, k->name, k->n_items));
    }
    return PGD_OK;
}

// ---- making and ending a queue -----------------------------------------------------------------

static pgd_status make_events(const pgd_host *host, ze_queue *q) {
    const ze_event_pool_desc_t desc = {.stype = ZE_STRUCTURE_TYPE_EVENT_POOL_DESC,
                                       .flags = ZE_EVENT_POOL_FLAG_HOST_VISIBLE,
                                       .count = EVENTS};
    ze_device_handle_t device = q->d->device;
    ZE_TRY(host, q->ze, zeEventPoolCreate, q->d->context, &desc, 1, &device, &q->pool);
    for (uint32_t i = 0; i < EVENTS; i++) {
        const ze_event_desc_t event = {.stype = ZE_STRUCTURE_TYPE_EVENT_DESC,
                                       .index = i,
                                       .signal = ZE_EVENT_SCOPE_FLAG_HOST,
                                       .wait = ZE_EVENT_SCOPE_FLAG_HOST};
        ZE_TRY(host, q->ze, zeEventCreate, q->pool, &event, &q->events[i]);
    }
    return PGD_OK;
}

static ze_command_queue_desc_t queue_desc(const ze_device *d) {
    return (ze_command_queue_desc_t){.stype = ZE_STRUCTURE_TYPE_COMMAND_QUEUE_DESC,
                                     .ordinal = d->ordinal,
                                     .mode = ZE_COMMAND_QUEUE_MODE_ASYNCHRONOUS,
                                     .priority = ZE_COMMAND_QUEUE_PRIORITY_NORMAL};
}

static pgd_status make_queue(const pgd_host *host, ze_queue *q, ze_device *d) {
    const ze_command_queue_desc_t desc = queue_desc(d);
    if (d->module == NULL) { // who only lists devices does not wait for that
        PGD_TRY(make_module(host, d));
    }
    ZE_TRY(host, q->ze, zeCommandListCreateImmediate, d->context, d->device, &desc, &q->immediate);
    q->list = q->immediate;
    PGD_TRY(make_events(host, q));
    return make_kernels(host, q);
}

static void drain(const ze_queue *q) {
    ze_event_handle_t last = q->events[EVENT_LAST];
    if (last != NULL && q->immediate != NULL &&
        q->ze->zeCommandListAppendBarrier(q->immediate, last, 0, NULL) == ZE_RESULT_SUCCESS) {
        (void)q->ze->zeEventHostSynchronize(last, UINT64_MAX);
    }
}

void ze_queue_destroy(const pgd_host *host, void *queue) {
    ze_queue *q = queue;
    drain(q);
    for (int i = 0; i < KERNELS; i++) {
        if (q->kernels[i] != NULL) {
            (void)q->ze->zeKernelDestroy(q->kernels[i]);
        }
    }
    if (q->graphs != NULL) {
        (void)q->ze->zeCommandQueueDestroy(q->graphs);
    }
    if (q->immediate != NULL) {
        (void)q->ze->zeCommandListDestroy(q->immediate);
    }
    for (int i = 0; i < EVENTS; i++) {
        if (q->events[i] != NULL) {
            (void)q->ze->zeEventDestroy(q->events[i]);
        }
    }
    if (q->pool != NULL) {
        (void)q->ze->zeEventPoolDestroy(q->pool);
    }
    host->free(host, q);
}

// Both roles get a queue that takes kernels: the cache is read and written by some.
pgd_status ze_queue_create(const pgd_host *host, void *device, int32_t role, void **out_queue) {
    ze_device *d = device;
    ze_queue *q = host->alloc(host, sizeof(*q), 0);
    (void)role;
    *out_queue = NULL;
    if (q == NULL) {
        return ZE_FAIL(host, PGD_OUT_OF_MEMORY, "no memory for a queue");
    }
    q->d = d;
    q->ze = d->ze;
    pgd_status code = make_queue(host, q, d);
    if (code != PGD_OK) {
        ze_queue_destroy(host, q);
        return code;
    }
    *out_queue = q;
    return PGD_OK;
}

// ---- commands ----------------------------------------------------------------------------------

// What comes behind begins when all before is done.
static pgd_status barrier(const pgd_host *host, const ze_queue *q) {
    ZE_TRY(host, q->ze, zeCommandListAppendBarrier, q->list, NULL, 0, NULL);
    return PGD_OK;
}

pgd_status ze_queue_launch(const pgd_host *host, void *queue, const gpu_launch *l) {
    const ze_queue *q = queue;
    const int32_t own = l->kernel - PGD_PORTABLE_COUNT;
    const char *name = own >= 0 ? ze_tuned.kernels[own].name : pgd_portable_kernels[l->kernel].name;
    const uint32_t params_bytes = own >= 0 ? ze_tuned.kernels[own].params_bytes
                                           : pgd_portable_kernels[l->kernel].params_bytes;
    ze_kernel_handle_t kernel = q->kernels[l->kernel];
    const ze_group_count_t groups = {l->groups[0], l->groups[1], l->groups[2]};
    for (uint32_t i = 0; i < GPU_MEMORIES; i++) {
        ZE_TRY(host, q->ze, zeKernelSetArgumentValue, kernel, i, sizeof(l->memories[i]),
               &l->memories[i]);
    }
    ZE_TRY(host, q->ze, zeKernelSetArgumentValue, kernel, GPU_MEMORIES, params_bytes, l->params);
    PGD_TRY(
        ze_error(host, name,
                 q->ze->zeCommandListAppendLaunchKernel(q->list, kernel, &groups, NULL, 0, NULL)));
    return barrier(host, q);
}

static void *address(void *memory, uint64_t offset) {
    return memory == NULL ? (void *)(uintptr_t)offset : (unsigned char *)memory + offset;
}

static pgd_status copy_rows(const pgd_host *host, const ze_queue *q, const gpu_copy *c) {
    const ze_copy_region_t region = {.width = (uint32_t)c->bytes, .height = (uint32_t)c->rows};
    ZE_TRY(host, q->ze, zeCommandListAppendMemoryCopyRegion, q->list,
           address(c->dst, c->dst_offset), &region, (uint32_t)c->dst_pitch, 0,
           address(c->src, c->src_offset), &region, (uint32_t)c->src_pitch, 0, NULL, 0, NULL);
    return PGD_OK;
}

// A region's sizes have 32 bits: larger ones are copied row by row.
pgd_status ze_queue_copy(const pgd_host *host, void *queue, const gpu_copy *c) {
    const ze_queue *q = queue;
    if (c->rows > 1 && c->rows <= UINT32_MAX && c->dst_pitch <= UINT32_MAX &&
        c->src_pitch <= UINT32_MAX) {
        PGD_TRY(copy_rows(host, q, c));
        return barrier(host, q);
    }
    for (uint64_t i = 0; i < c->rows; i++) {
        ZE_TRY(host, q->ze, zeCommandListAppendMemoryCopy, q->list,
               address(c->dst, c->dst_offset + i * c->dst_pitch),
               address(c->src, c->src_offset + i * c->src_pitch), c->bytes, NULL, 0, NULL);
    }
    return barrier(host, q);
}

pgd_status ze_queue_fill(const pgd_host *host, void *queue, void *memory, uint64_t offset,
                         uint64_t bytes, uint32_t pattern) {
    const ze_queue *q = queue;
    ZE_TRY(host, q->ze, zeCommandListAppendMemoryFill, q->list, address(memory, offset), &pattern,
           sizeof(pattern), bytes, NULL, 0, NULL);
    return barrier(host, q);
}

// An immediate list hands its commands over as they come.
pgd_status ze_queue_flush(const pgd_host *host, void *queue) {
    (void)host;
    (void)queue;
    return PGD_OK;
}

// ---- time points -------------------------------------------------------------------------------

pgd_status ze_queue_point(const pgd_host *host, void *queue, uint32_t slot) {
    const ze_queue *q = queue;
    ZE_TRY(host, q->ze, zeEventHostReset, q->events[slot]);
    ZE_TRY(host, q->ze, zeCommandListAppendBarrier, q->immediate, q->events[slot], 0, NULL);
    return PGD_OK;
}

pgd_status ze_queue_point_wait(const pgd_host *host, void *queue, uint32_t slot,
                               uint64_t timeout_ns) {
    const ze_queue *q = queue;
    ZE_TRY(host, q->ze, zeEventHostSynchronize, q->events[slot], timeout_ns);
    return PGD_OK;
}

// ---- graphs ------------------------------------------------------------------------------------

static pgd_status wait_and_reset(const pgd_host *host, const ze_queue *q,
                                 ze_command_list_handle_t list, ze_event_handle_t event) {
    ZE_TRY(host, q->ze, zeCommandListAppendBarrier, list, NULL, 1, &event);
    ZE_TRY(host, q->ze, zeCommandListAppendEventReset, list, event);
    ZE_TRY(host, q->ze, zeCommandListAppendBarrier, list, NULL, 0, NULL);
    return PGD_OK;
}

pgd_status ze_graph_begin(const pgd_host *host, void *queue) {
    ze_queue *q = queue;
    const ze_device *d = q->d;
    const ze_command_list_desc_t desc = {.stype = ZE_STRUCTURE_TYPE_COMMAND_LIST_DESC,
                                         .commandQueueGroupOrdinal = d->ordinal};
    const ze_command_queue_desc_t graphs = queue_desc(d);
    ze_command_list_handle_t list = NULL;
    if (q->graphs == NULL) {
        ZE_TRY(host, q->ze, zeCommandQueueCreate, d->context, d->device, &graphs, &q->graphs);
    }
    ZE_TRY(host, q->ze, zeCommandListCreate, d->context, d->device, &desc, &list);
    pgd_status code = wait_and_reset(host, q, list, q->events[EVENT_START]);
    if (code != PGD_OK) {
        (void)q->ze->zeCommandListDestroy(list);
        return code;
    }
    q->list = list;
    return PGD_OK;
}

static pgd_status close_list(const pgd_host *host, const ze_queue *q,
                             ze_command_list_handle_t list) {
    ZE_TRY(host, q->ze, zeCommandListAppendBarrier, list, q->events[EVENT_DONE], 0, NULL);
    ZE_TRY(host, q->ze, zeCommandListClose, list);
    return PGD_OK;
}

pgd_status ze_graph_end(const pgd_host *host, void *queue, void **out_graph) {
    ze_queue *q = queue;
    ze_command_list_handle_t list = q->list;
    pgd_status code = close_list(host, q, list);
    q->list = q->immediate;
    *out_graph = NULL;
    if (code != PGD_OK) {
        (void)q->ze->zeCommandListDestroy(list);
        return code;
    }
    *out_graph = list;
    return PGD_OK;
}

pgd_status ze_graph_launch(const pgd_host *host, void *queue, void *graph) {
    const ze_queue *q = queue;
    ze_command_list_handle_t list = graph;
    ZE_TRY(host, q->ze, zeCommandListAppendBarrier, q->immediate, q->events[EVENT_START], 0, NULL);
    ZE_TRY(host, q->ze, zeCommandQueueExecuteCommandLists, q->graphs, 1, &list, NULL);
    return wait_and_reset(host, q, q->immediate, q->events[EVENT_DONE]);
}

void ze_graph_destroy(const pgd_host *host, void *device, void *graph) {
    (void)host;
    (void)((const ze_device *)device)->ze->zeCommandListDestroy(graph);
}
