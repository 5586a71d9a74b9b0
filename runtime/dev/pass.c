// Passing through: what a layer leaves empty goes to the level under it.
//
//   level 2   pgd_device { self, next ----. , tables: the layer's slots and passes }
//   level 1   pgd_device { self, next --. |  <' ...}
//   level 0   pgd_device { self, NULL  <'    the plugin's slots, NULL where it has none }
//
// All levels see the same handles. Below the hole filler a slot that is a hole under the layer is
// a hole in it, whatever the layer has there: the filler must see what truly runs.
#include "dev/inner.h"

// X(table, slot, parameters, arguments) of everything that goes down; open, close, count and info
// are the host's to call.
#define PASS_LIST(X)                                                                               \
    X(device, memory, (const pgd_device *d, uint64_t *free_bytes, uint64_t *total),                \
      (d->next, free_bytes, total))                                                                \
    X(device, support, (const pgd_device *d, const pgd_query *query, pgd_support *out),            \
      (d->next, query, out))                                                                       \
    X(device, status, (const pgd_device *d), (d->next))                                            \
    X(memory, create, (const pgd_device *d, const pgd_buffer_desc *desc, pgd_buffer **out),        \
      (d->next, desc, out))                                                                        \
    X(memory, import,                                                                              \
      (const pgd_device *d, const void *ptr, uint64_t bytes, uint32_t flags, pgd_buffer **out),    \
      (d->next, ptr, bytes, flags, out))                                                           \
    X(memory, map, (const pgd_device *d, pgd_buffer *buffer, void **out), (d->next, buffer, out))  \
    X(queue, create, (const pgd_device *d, const pgd_queue_desc *desc, pgd_queue **out),           \
      (d->next, desc, out))                                                                        \
    X(queue, copy, (const pgd_device *d, pgd_queue *q, const pgd_copy *list, uint32_t n),          \
      (d->next, q, list, n))                                                                       \
    X(queue, signal, (const pgd_device *d, pgd_queue *q, uint64_t *out), (d->next, q, out))        \
    X(queue, host_wait, (const pgd_device *d, pgd_queue *q, uint64_t value, uint64_t timeout_ns),  \
      (d->next, q, value, timeout_ns))                                                             \
    X(queue, fill, (const pgd_device *d, pgd_queue *q, const pgd_range *range, uint32_t pattern),  \
      (d->next, q, range, pattern))                                                                \
    X(queue, wait, (const pgd_device *d, pgd_queue *q, pgd_queue *other, uint64_t value),          \
      (d->next, q, other, value))                                                                  \
    X(queue, done, (const pgd_device *d, pgd_queue *q, uint64_t *out), (d->next, q, out))          \
    X(queue, flush, (const pgd_device *d, pgd_queue *q), (d->next, q))                             \
    X(queue, status, (const pgd_device *d, pgd_queue *q, pgd_fault *out), (d->next, q, out))       \
    X(queue, notify,                                                                               \
      (const pgd_device *d, pgd_queue *q, uint64_t value, pgd_notify_fn fn, void *arg),            \
      (d->next, q, value, fn, arg))                                                                \
    X(weight, plan, (const pgd_device *d, const pgd_weight_desc *desc, pgd_weight_plan *out),      \
      (d->next, desc, out))                                                                        \
    X(weight, prepare,                                                                             \
      (const pgd_device *d, pgd_queue *q, const pgd_weight_desc *desc, const pgd_range *dst,       \
       const pgd_range *scratch, pgd_weight **out),                                                \
      (d->next, q, desc, dst, scratch, out))                                                       \
    X(weight, adopt,                                                                               \
      (const pgd_device *d, const pgd_weight_desc *desc, const pgd_range *dst, pgd_weight **out),  \
      (d->next, desc, dst, out))                                                                   \
    X(weight, unpack,                                                                              \
      (const pgd_device *d, pgd_queue *q, pgd_weight *w, int64_t row, const pgd_tensor *out),      \
      (d->next, q, w, row, out))                                                                   \
    X(kv, plan, (const pgd_device *d, const pgd_kv_desc *desc, pgd_kv_plan *out),                  \
      (d->next, desc, out))                                                                        \
    X(kv, bind,                                                                                    \
      (const pgd_device *d, const pgd_kv_desc *desc, const pgd_kv_plan *plan,                      \
       const pgd_range *mem, int32_t n_blocks, pgd_kv **out),                                      \
      (d->next, desc, plan, mem, n_blocks, out))                                                   \
    X(kv, copy_blocks,                                                                             \
      (const pgd_device *d, pgd_queue *q, pgd_kv *kv, const pgd_pair *pairs, uint32_t n),          \
      (d->next, q, kv, pairs, n))                                                                  \
    X(kv, read_blocks, (const pgd_device *d, pgd_queue *q, pgd_kv *kv, const pgd_kv_image *image), \
      (d->next, q, kv, image))                                                                     \
    X(kv, write_blocks,                                                                            \
      (const pgd_device *d, pgd_queue *q, pgd_kv *kv, const pgd_kv_image *image),                  \
      (d->next, q, kv, image))                                                                     \
    X(graph, begin, (const pgd_device *d, pgd_queue *q, const pgd_graph_desc *desc),               \
      (d->next, q, desc))                                                                          \
    X(graph, end, (const pgd_device *d, pgd_queue *q, pgd_graph **out), (d->next, q, out))         \
    X(graph, launch, (const pgd_device *d, pgd_queue *q, pgd_graph *graph), (d->next, q, graph))

// X(table, handle) of everything that ends a handle.
#define DESTROY_LIST(X)   \
    X(memory, pgd_buffer) \
    X(queue, pgd_queue)   \
    X(weight, pgd_weight) \
    X(kv, pgd_kv)         \
    X(graph, pgd_graph)

#define PASS(table, slot, parameters, arguments)         \
    static pgd_status pass_##table##_##slot parameters { \
        return d->next->table->slot arguments;           \
    }
PASS_LIST(PASS)
#undef PASS

#define PASS(table, type)                                               \
    static void pass_##table##_destroy(const pgd_device *d, type *it) { \
        d->next->table->destroy(d->next, it);                           \
    }
DESTROY_LIST(PASS)
#undef PASS

#define PASS(name, family)                                                         \
    static pgd_status pass_##name(const pgd_exec *x, const pgd_##name##_args *a) { \
        return x->next->dev->ops->name(x->next, a);                                \
    }
PGD_OP_LIST(PASS)
#undef PASS

#define SETTLE(slot, under, pass)    \
    do {                             \
        if ((under) == NULL) {       \
            (slot) = NULL;           \
        } else if ((slot) == NULL) { \
            (slot) = (pass);         \
        }                            \
    } while (0)

void pgd_dev_pass(const pgd_dev_tables *under, pgd_dev_tables *t) {
#define SET(table, slot, parameters, arguments) \
    SETTLE(t->table.slot, under->table.slot, pass_##table##_##slot);
    PASS_LIST(SET)
#undef SET
#define SET(table, type) SETTLE(t->table.destroy, under->table.destroy, pass_##table##_destroy);
    DESTROY_LIST(SET)
#undef SET
#define SET(name, family) SETTLE(t->ops.name, under->ops.name, pass_##name);
    PGD_OP_LIST(SET)
#undef SET
}
