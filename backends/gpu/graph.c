// Graphs: the launches, copies and fills of a step in order.
//
// A driver with graphs of its own records one for each of a ladder of sizes (1, 8, 64, 512 rows,
// the caps; few rows over up to 1024, 8192 or all keys apart): a step takes the smallest that holds
// it, and its kernels read the live counts from the batch block. Without them the list is launched
// one by one, each grid cut to the counts in the batch's mirror. Either way a count that does not
// fit is refused beforehand.
#include <string.h>

#include "gpu.h"

enum { NODE_WORK = 1, NODE_COPY = 2, NODE_FILL = 3 };

typedef struct node {
    struct node *next;
    int32_t kind;
    uint32_t n; // copies, or the pattern of a fill
    _Alignas(16) unsigned char payload[];
} node;

enum { MOST_NATIVES = 20, FACTOR = 8, FIRST_KEYS = 1024 };

typedef struct native {
    gpu_sizes sizes;
    void *graph; // the driver's
} native;

struct pgd_graph {
    node *first;
    node *last;
    const pgd_batch *batch; // that all launches read, NULL: none or several
    int32_t n_natives;      // 0: the driver has no graphs
    native natives[MOST_NATIVES];
};

static pgd_status append(const pgd_device *d, pgd_graph *g, int32_t kind, uint32_t n,
                         const void *bytes, uint64_t n_bytes) {
    node *added = d->host->alloc(d->host, sizeof(*added) + n_bytes, _Alignof(node));
    if (added == NULL) {
        return GPU_FAIL(d, PGD_OUT_OF_MEMORY, "no memory for a graph");
    }
    added->kind = kind;
    added->n = n;
    memcpy(added->payload, bytes, n_bytes);
    if (g->last == NULL) {
        g->first = added;
    } else {
        g->last->next = added;
    }
    g->last = added;
    return PGD_OK;
}

pgd_status gpu_record_work(const pgd_device *d, pgd_graph *g, const gpu_work *w) {
    return append(d, g, NODE_WORK, 0, w, sizeof(*w));
}

pgd_status gpu_record_copies(const pgd_device *d, pgd_graph *g, const pgd_copy *list, uint32_t n) {
    return append(d, g, NODE_COPY, n, list, (uint64_t)n * sizeof(*list));
}

pgd_status gpu_record_fill(const pgd_device *d, pgd_graph *g, const pgd_range *range,
                           uint32_t pattern) {
    return append(d, g, NODE_FILL, pattern, range, sizeof(*range));
}

static void destroy(const pgd_device *d, pgd_graph *g) {
    const gpu_self *self = gpu_of(d);
    if (g == NULL) {
        return;
    }
    while (g->first != NULL) {
        node *next = g->first->next;
        d->host->free(d->host, g->first);
        g->first = next;
    }
    for (int32_t i = 0; i < g->n_natives; i++) {
        self->driver->graph_destroy(d->host, self->device, g->natives[i].graph);
    }
    d->host->free(d->host, g);
}

static pgd_status begin(const pgd_device *d, pgd_queue *q, const pgd_graph_desc *desc) {
    GPU_TAIL(d, pgd_graph_desc, desc);
    PGD_TRY(gpu_not_recording(d, q, "graph begin"));
    q->recording = d->host->alloc(d->host, sizeof(pgd_graph), 0);
    return q->recording != NULL ? PGD_OK : GPU_FAIL(d, PGD_OUT_OF_MEMORY, "no memory for a graph");
}

static pgd_status run(const pgd_device *d, pgd_queue *q, const pgd_graph *g,
                      const gpu_sizes *sizes) {
    for (const node *n = g->first; n != NULL; n = n->next) {
        const void *what = n->payload;
        if (n->kind == NODE_WORK) {
            PGD_TRY(gpu_run(d, q, what, sizes));
        } else if (n->kind == NODE_COPY) {
            PGD_TRY(gpu_copy_now(d, q, what, n->n));
        } else {
            PGD_TRY(gpu_fill_now(d, q, what, n->n));
        }
    }
    return PGD_OK;
}

// The batch that all launches read, NULL if there is none or several; the most rows of a step that
// one of them splits.
static const pgd_batch *batch_of(const pgd_graph *g, int32_t *out_split_rows) {
    const pgd_batch *found = NULL;
    *out_split_rows = 0;
    for (const node *n = g->first; n != NULL; n = n->next) {
        const gpu_work *w = (const gpu_work *)(const void *)n->payload;
        if (n->kind != NODE_WORK || w->batch.size == 0) {
            continue;
        }
        if (found != NULL && found->mirror != w->batch.mirror) {
            return NULL;
        }
        found = &w->batch;
        *out_split_rows = w->split_rows > *out_split_rows ? w->split_rows : *out_split_rows;
    }
    return found;
}

// The list through the driver's own recording.
static pgd_status add_native(const pgd_device *d, pgd_queue *q, pgd_graph *g, int32_t rows,
                             int32_t keys) {
    const gpu_driver *driver = gpu_of(d)->driver;
    native n = {.sizes = {.rows = rows, .keys = keys}};
    PGD_TRY(driver->graph_begin(d->host, q->queue));
    pgd_status code = run(d, q, g, &n.sizes);
    pgd_status ended = driver->graph_end(d->host, q->queue, &n.graph);
    if (ended == PGD_OK) {
        g->natives[g->n_natives++] = n;
    }
    return code != PGD_OK ? code : ended;
}

// Keys 0: a step of any keys, none of it split. The last is for any step.
static pgd_status make_natives(const pgd_device *d, pgd_queue *q, pgd_graph *g) {
    int32_t split_rows = 0;
    const pgd_batch *batch = g->batch = batch_of(g, &split_rows);
    if (gpu_of(d)->driver->graph_begin == NULL) {
        return PGD_OK;
    }
    for (int32_t rows = 1; batch != NULL && rows < batch->cap_tokens && rows <= 512;
         rows *= FACTOR) {
        if (rows <= split_rows && batch->cap_kv > GPU_SPLIT_KEYS) {
            for (int32_t keys = FIRST_KEYS; keys <= FIRST_KEYS * FACTOR && keys < batch->cap_kv;
                 keys *= FACTOR) {
                PGD_TRY(add_native(d, q, g, rows, keys));
            }
            PGD_TRY(add_native(d, q, g, rows, batch->cap_kv));
        }
        PGD_TRY(add_native(d, q, g, rows, 0));
    }
    return add_native(d, q, g, INT32_MAX, 0);
}

static pgd_status end(const pgd_device *d, pgd_queue *q, pgd_graph **out) {
    pgd_graph *g = q->recording;
    *out = NULL;
    q->recording = NULL;
    if (g == NULL) {
        return GPU_FAIL(d, PGD_PRECONDITION, "graph end without begin");
    }
    pgd_status code = make_natives(d, q, g);
    if (code != PGD_OK) {
        destroy(d, g);
        return code;
    }
    *out = g;
    return PGD_OK;
}

static pgd_status check_counts(const pgd_device *d, const pgd_graph *g) {
    const void *seen = NULL;
    for (const node *n = g->first; n != NULL; n = n->next) {
        const gpu_work *w = (const gpu_work *)(const void *)n->payload;
        if (n->kind == NODE_WORK && w->batch.size != 0 && w->batch.mirror != seen) {
            PGD_TRY(gpu_counts(d, &w->batch));
            seen = w->batch.mirror;
        }
    }
    return PGD_OK;
}

// Natives stand in the order of their rows, those for many keys first. Several batches: the last.
static const native *choose(const pgd_graph *g) {
    const pgd_batch_head *head = g->batch == NULL ? NULL : g->batch->mirror;
    for (int32_t i = 0; head != NULL && i < g->n_natives; i++) {
        const gpu_sizes *s = &g->natives[i].sizes;
        if (head->n_tokens <= s->rows && head->n_out <= s->rows &&
            (s->keys == 0 || (head->max_kv > GPU_SPLIT_KEYS && head->max_kv <= s->keys))) {
            return &g->natives[i];
        }
    }
    return &g->natives[g->n_natives - 1];
}

// Steps of so many rows that the library takes their products go through the list, whose launches
// are long enough to hide it.
static bool is_for_library(const pgd_device *d, const pgd_graph *g) {
    const pgd_batch_head *head = g->batch == NULL ? NULL : g->batch->mirror;
    return gpu_of(d)->library != NULL && head != NULL && head->n_tokens >= gpu_of(d)->library_rows;
}

static pgd_status launch(const pgd_device *d, pgd_queue *q, pgd_graph *g) {
    PGD_TRY(gpu_not_recording(d, q, "graph launch"));
    PGD_TRY(check_counts(d, g));
    return g->n_natives > 0 && !is_for_library(d, g)
               ? gpu_of(d)->driver->graph_launch(d->host, q->queue, choose(g)->graph)
               : run(d, q, g, NULL);
}

const pgd_graph_table gpu_graph_table = {
    .size = sizeof(pgd_graph_table),
    .begin = begin,
    .end = end,
    .launch = launch,
    .destroy = destroy,
};
