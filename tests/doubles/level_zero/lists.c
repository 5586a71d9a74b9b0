// The functions of command lists, command queues and events.
#include <stdlib.h>
#include <string.h>

#include "api.h"

struct _ze_command_list_handle_t {
    work *work; // NULL: a list to be executed later
    bool is_synchronous;
    bool is_closed;
    command *first;
    command **last;
};
struct _ze_command_queue_handle_t {
    work *work;
};
struct _ze_event_pool_handle_t {
    uint32_t count;
    uint32_t n_events;
};

// ---- events ------------------------------------------------------------------------------------

ze_result_t zed_zeEventPoolCreate(ze_context_handle_t context, const ze_event_pool_desc_t *desc,
                                  uint32_t n_devices, ze_device_handle_t *devices,
                                  ze_event_pool_handle_t *out) {
    (void)context;
    (void)n_devices;
    (void)devices;
    *out = calloc(1, sizeof(**out));
    if (*out == NULL) {
        return ZE_RESULT_ERROR_OUT_OF_HOST_MEMORY;
    }
    (*out)->count = desc->count;
    return ZE_RESULT_SUCCESS;
}

ze_result_t zed_zeEventPoolDestroy(ze_event_pool_handle_t pool) {
    if (pool->n_events != 0) {
        zed_complain("zeEventPoolDestroy before its events are destroyed");
    }
    free(pool);
    return ZE_RESULT_SUCCESS;
}

ze_result_t zed_zeEventCreate(ze_event_pool_handle_t pool, const ze_event_desc_t *desc,
                              ze_event_handle_t *out) {
    if (desc->index >= pool->count) {
        return ZE_RESULT_ERROR_INVALID_ARGUMENT;
    }
    *out = calloc(1, sizeof(**out));
    if (*out == NULL) {
        return ZE_RESULT_ERROR_OUT_OF_HOST_MEMORY;
    }
    (*out)->pool = pool;
    pool->n_events++;
    return ZE_RESULT_SUCCESS;
}

ze_result_t zed_zeEventDestroy(ze_event_handle_t event) {
    event->pool->n_events--;
    free(event);
    return ZE_RESULT_SUCCESS;
}

ze_result_t zed_zeEventHostReset(ze_event_handle_t event) {
    event_reset(event);
    return ZE_RESULT_SUCCESS;
}

ze_result_t zed_zeEventHostSynchronize(ze_event_handle_t event, uint64_t timeout_ns) {
    return event_wait(event, timeout_ns);
}

// ---- queues and lists --------------------------------------------------------------------------

ze_result_t zed_zeCommandQueueCreate(ze_context_handle_t context, ze_device_handle_t device,
                                     const ze_command_queue_desc_t *desc,
                                     ze_command_queue_handle_t *out) {
    ze_command_queue_handle_t q = calloc(1, sizeof(*q));
    (void)context;
    (void)device;
    (void)desc;
    *out = q;
    if (q == NULL || (q->work = work_create()) == NULL) {
        free(q);
        return ZE_RESULT_ERROR_OUT_OF_HOST_MEMORY;
    }
    return ZE_RESULT_SUCCESS;
}

ze_result_t zed_zeCommandQueueDestroy(ze_command_queue_handle_t queue) {
    work_destroy(queue->work);
    free(queue);
    return ZE_RESULT_SUCCESS;
}

ze_result_t zed_zeCommandQueueExecuteCommandLists(ze_command_queue_handle_t queue, uint32_t n,
                                                  ze_command_list_handle_t *lists,
                                                  ze_fence_handle_t fence) {
    if (fence != NULL) {
        return ZE_RESULT_ERROR_UNSUPPORTED_FEATURE;
    }
    if (work_is_lost()) {
        return ZE_RESULT_ERROR_DEVICE_LOST;
    }
    for (uint32_t i = 0; i < n; i++) {
        if (!lists[i]->is_closed) {
            zed_complain("a list is executed that is not closed");
        }
        for (const command *c = lists[i]->first; c != NULL; c = c->next) {
            work_put(queue->work, command_copy(c));
        }
    }
    return ZE_RESULT_SUCCESS;
}

static ze_result_t make_list(ze_command_list_handle_t *out) {
    *out = calloc(1, sizeof(**out));
    if (*out == NULL) {
        return ZE_RESULT_ERROR_OUT_OF_HOST_MEMORY;
    }
    (*out)->last = &(*out)->first;
    return ZE_RESULT_SUCCESS;
}

ze_result_t zed_zeCommandListCreate(ze_context_handle_t context, ze_device_handle_t device,
                                    const ze_command_list_desc_t *desc,
                                    ze_command_list_handle_t *out) {
    (void)context;
    (void)device;
    (void)desc;
    return make_list(out);
}

ze_result_t zed_zeCommandListCreateImmediate(ze_context_handle_t context, ze_device_handle_t device,
                                             const ze_command_queue_desc_t *desc,
                                             ze_command_list_handle_t *out) {
    (void)context;
    (void)device;
    if (make_list(out) != ZE_RESULT_SUCCESS || ((*out)->work = work_create()) == NULL) {
        free(*out);
        return ZE_RESULT_ERROR_OUT_OF_HOST_MEMORY;
    }
    (*out)->is_synchronous = desc->mode == ZE_COMMAND_QUEUE_MODE_SYNCHRONOUS;
    return ZE_RESULT_SUCCESS;
}

ze_result_t zed_zeCommandListDestroy(ze_command_list_handle_t list) {
    work_destroy(list->work);
    command_free(list->first);
    free(list);
    return ZE_RESULT_SUCCESS;
}

ze_result_t zed_zeCommandListClose(ze_command_list_handle_t list) {
    list->is_closed = true;
    return ZE_RESULT_SUCCESS;
}

// ---- commands ----------------------------------------------------------------------------------

static ze_result_t append(ze_command_list_handle_t list, command *c, ze_event_handle_t signals,
                          uint32_t n_waits, ze_event_handle_t *waits) {
    if (work_is_lost()) {
        return ZE_RESULT_ERROR_DEVICE_LOST;
    }
    if (list->is_closed || n_waits > ZED_WAITS) {
        zed_complain("a command for a closed list, or one with too many waits");
    }
    c->signals = signals;
    c->n_waits = n_waits;
    for (uint32_t i = 0; i < n_waits; i++) {
        c->waits[i] = waits[i];
    }
    command *copy = command_copy(c);
    if (list->work == NULL) {
        *list->last = copy;
        list->last = &copy->next;
        return ZE_RESULT_SUCCESS;
    }
    work_put(list->work, copy);
    if (list->is_synchronous) {
        work_wait(list->work);
    }
    return work_is_lost() ? ZE_RESULT_ERROR_DEVICE_LOST : ZE_RESULT_SUCCESS;
}

ze_result_t zed_zeCommandListAppendBarrier(ze_command_list_handle_t list, ze_event_handle_t signals,
                                           uint32_t n_waits, ze_event_handle_t *waits) {
    command c = {.kind = COMMAND_BARRIER};
    return append(list, &c, signals, n_waits, waits);
}

ze_result_t zed_zeCommandListAppendEventReset(ze_command_list_handle_t list,
                                              ze_event_handle_t event) {
    command c = {.kind = COMMAND_RESET, .reset = event};
    return append(list, &c, NULL, 0, NULL);
}

ze_result_t zed_zeCommandListAppendMemoryCopy(ze_command_list_handle_t list, void *dst,
                                              const void *src, size_t bytes,
                                              ze_event_handle_t signals, uint32_t n_waits,
                                              ze_event_handle_t *waits) {
    command c = {.kind = COMMAND_COPY,
                 .dst = (uint64_t)(uintptr_t)dst,
                 .src = (uint64_t)(uintptr_t)src,
                 .bytes = bytes,
                 .rows = 1};
    return append(list, &c, signals, n_waits, waits);
}

// Of regions that begin at their origin, in two dimensions.
ze_result_t zed_zeCommandListAppendMemoryCopyRegion(
    ze_command_list_handle_t list, void *dst, const ze_copy_region_t *dst_region,
    uint32_t dst_pitch, uint32_t dst_slice, const void *src, const ze_copy_region_t *src_region,
    uint32_t src_pitch, uint32_t src_slice, ze_event_handle_t signals, uint32_t n_waits,
    ze_event_handle_t *waits) {
    command c = {.kind = COMMAND_COPY,
                 .dst = (uint64_t)(uintptr_t)dst,
                 .src = (uint64_t)(uintptr_t)src,
                 .bytes = dst_region->width,
                 .rows = dst_region->height,
                 .dst_pitch = dst_pitch,
                 .src_pitch = src_pitch};
    if (memcmp(dst_region, src_region, sizeof(*dst_region)) != 0 || dst_region->depth > 1 ||
        dst_region->originX != 0 || dst_region->originY != 0 || dst_slice != 0 || src_slice != 0) {
        return ZE_RESULT_ERROR_UNSUPPORTED_FEATURE;
    }
    return append(list, &c, signals, n_waits, waits);
}

ze_result_t zed_zeCommandListAppendMemoryFill(ze_command_list_handle_t list, void *ptr,
                                              const void *pattern, size_t pattern_bytes,
                                              size_t bytes, ze_event_handle_t signals,
                                              uint32_t n_waits, ze_event_handle_t *waits) {
    command c = {.kind = COMMAND_FILL,
                 .dst = (uint64_t)(uintptr_t)ptr,
                 .bytes = bytes,
                 .pattern_bytes = pattern_bytes};
    if (pattern_bytes == 0 || pattern_bytes > sizeof(c.pattern) || bytes % pattern_bytes != 0) {
        return ZE_RESULT_ERROR_INVALID_SIZE;
    }
    if (double_memory_find(c.dst, bytes) == NULL) {
        zed_complain("a fill outside of a memory");
    }
    memcpy(c.pattern, pattern, pattern_bytes);
    return append(list, &c, signals, n_waits, waits);
}

ze_result_t zed_zeCommandListAppendLaunchKernel(ze_command_list_handle_t list,
                                                ze_kernel_handle_t kernel,
                                                const ze_group_count_t *groups,
                                                ze_event_handle_t signals, uint32_t n_waits,
                                                ze_event_handle_t *waits) {
    command c = {.kind = COMMAND_LAUNCH,
                 .launch = &kernel->kernel,
                 .groups = {groups->groupCountX, groups->groupCountY, groups->groupCountZ}};
    for (uint32_t i = 0; i < kernel->kernel.n_args; i++) {
        if (kernel->kernel.bytes[i] == 0) {
            zed_complain("a launch without all arguments");
        }
    }
    if (!double_launch_has_memory()) {
        return ZE_RESULT_ERROR_OUT_OF_DEVICE_MEMORY;
    }
    return append(list, &c, signals, n_waits, waits);
}
