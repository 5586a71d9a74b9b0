// Graphs: a list of ops made ready (addresses, no counts) and of copies and fills, in order.
//
//   launch: ops up to the next copy | live counts, checks | one run of the team | copy | ...
//
// Live counts are read from the batch block at launch, so one graph serves every row count up to
// the caps. A wrong count or index is found before any op of its run has written: the launch fails
// with its status. A launch allocates nothing.
//
//   node: | kind | exec | op | next | arguments |
#include <string.h>

#include "cpu.h"

enum { NODE_OP = 1, NODE_COPY = 2, NODE_FILL = 3 };

typedef struct node {
    cpu_op op; // its exec is the node's
    pgd_exec exec;
    int32_t kind;
    uint32_t n; // copies, or the pattern of a fill
    struct node *next;
    _Alignas(16) unsigned char payload[];
} node;

struct pgd_graph {
    uint64_t key;
    node *first;
    node *last;
    cpu_phase **phases; // room for those of all ops
    uint32_t n_ops;
};

static node *make_node(const pgd_device *d, int32_t kind, const void *bytes, uint64_t n_bytes) {
    node *n = d->host->alloc(d->host, sizeof(*n) + n_bytes, _Alignof(node));
    if (n != NULL) {
        n->kind = kind;
        memcpy(n->payload, bytes, n_bytes);
    }
    return n;
}

static void append(pgd_graph *g, node *n) {
    if (g->last == NULL) {
        g->first = n;
    } else {
        g->last->next = n;
    }
    g->last = n;
}

pgd_status cpu_graph_add_op(const pgd_exec *x, int32_t op, const void *args, uint32_t bytes) {
    const pgd_device *d = x->dev;
    node *n = make_node(d, NODE_OP, args, bytes);
    if (n == NULL) {
        return CPU_FAIL(d, PGD_OUT_OF_MEMORY, "no memory for a graph of ops");
    }
    n->exec = *x;
    pgd_status code = cpu_op_make(&n->op, &n->exec, op, n->payload);
    if (code != PGD_OK) {
        d->host->free(d->host, n);
        return code;
    }
    append(x->queue->recording, n);
    x->queue->recording->n_ops++;
    return PGD_OK;
}

pgd_status cpu_graph_add_copy(const pgd_device *d, pgd_graph *g, const pgd_copy *list,
                              uint32_t n_copies) {
    node *n = make_node(d, NODE_COPY, list, (uint64_t)n_copies * sizeof(*list));
    if (n == NULL) {
        return CPU_FAIL(d, PGD_OUT_OF_MEMORY, "no memory for a graph of copies");
    }
    n->n = n_copies;
    append(g, n);
    return PGD_OK;
}

pgd_status cpu_graph_add_fill(const pgd_device *d, pgd_graph *g, const pgd_range *range,
                              uint32_t pattern) {
    node *n = make_node(d, NODE_FILL, range, sizeof(*range));
    if (n == NULL) {
        return CPU_FAIL(d, PGD_OUT_OF_MEMORY, "no memory for a graph of fills");
    }
    n->n = pattern;
    append(g, n);
    return PGD_OK;
}

static void destroy(const pgd_device *d, pgd_graph *g) {
    if (g == NULL) {
        return;
    }
    while (g->first != NULL) {
        node *next = g->first->next;
        d->host->free(d->host, g->first);
        g->first = next;
    }
    d->host->free(d->host, (void *)g->phases);
    d->host->free(d->host, g);
}

static pgd_status begin(const pgd_device *d, pgd_queue *q, const pgd_graph_desc *desc) {
    pgd_graph_desc local;
    const pgd_graph_desc *a = PGD_ARGS(pgd_graph_desc, local, desc);
    CPU_TAIL(d, pgd_graph_desc, desc);
    PGD_TRY(cpu_not_recording(d, q, "graph begin"));
    q->recording = d->host->alloc(d->host, sizeof(pgd_graph), 0);
    if (q->recording == NULL) {
        return CPU_FAIL(d, PGD_OUT_OF_MEMORY, "no memory for a graph");
    }
    q->recording->key = a->key;
    return PGD_OK;
}

static pgd_status end(const pgd_device *d, pgd_queue *q, pgd_graph **out) {
    pgd_graph *g = q->recording;
    *out = NULL;
    q->recording = NULL;
    if (g == NULL) {
        return CPU_FAIL(d, PGD_PRECONDITION, "graph end without begin");
    }
    g->phases = d->host->alloc(d->host, ((uint64_t)g->n_ops * CPU_PHASES + 1) * sizeof(void *), 0);
    if (g->phases == NULL) {
        destroy(d, g);
        return CPU_FAIL(d, PGD_OUT_OF_MEMORY, "no memory for the phases of a graph");
    }
    *out = g;
    return PGD_OK;
}

// Runs the ops from *first up to the next copy or fill.
static pgd_status run_ops(const pgd_device *d, pgd_graph *g, node **first) {
    uint32_t n = 0;
    for (; *first != NULL && (*first)->kind == NODE_OP; *first = (*first)->next) {
        PGD_TRY(cpu_op_live(&(*first)->op));
        cpu_op_list(&(*first)->op, g->phases, &n);
    }
    cpu_phases_run(d->host, g->phases, n);
    return PGD_OK;
}

static pgd_status launch(const pgd_device *d, pgd_queue *q, pgd_graph *g) {
    PGD_TRY(cpu_not_recording(d, q, "graph launch"));
    for (node *n = g->first; n != NULL;) {
        if (n->kind == NODE_OP) {
            PGD_TRY(run_ops(d, g, &n));
            continue;
        }
        if (n->kind == NODE_COPY) {
            PGD_TRY(cpu_copy_now(d, (const pgd_copy *)(const void *)n->payload, n->n));
        } else {
            PGD_TRY(cpu_fill_now(d, (const pgd_range *)(const void *)n->payload, n->n));
        }
        n = n->next;
    }
    return PGD_OK;
}

const pgd_graph_table cpu_graph_table = {
    .size = sizeof(pgd_graph_table),
    .begin = begin,
    .end = end,
    .launch = launch,
    .destroy = destroy,
};
