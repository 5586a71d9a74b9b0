// Phases of work, run by the team.
//
//   phase   items that are independent of each other: rows, panels, heads of a sequence
//   tape    phases in order, of one op (eager) or of all ops of a graph; one run of the team
//
//   worker 0     | take items of A | join | take items of C | join | ...
//   worker 1     | take items of A | join + B | take items of C | ...
//
// Items are handed out in chunks by a counter, so that a worker that lost its core holds the others
// up for one chunk at most. A phase with little work (B: the norm of one row) gets no join of its
// own: whoever comes last to the join before it does it alone while the others wait there anyway.
// Those in front of the first large phase are done by the caller before the team is called; when
// all are small there is no run at all.
//
// With NUMA nodes a phase may have a counter for each node's share of the items (nodes.c); whoever
// has emptied its own takes from the others'.
//
// Counters are set by cpu_phase_set before the run and touched by nobody between two runs.
#include "cpu.h"

enum {
    CHUNK_FLOATS = 8192,  // handed out at a time
    SMALL_FLOATS = 16384, // below it a join costs more than it saves
};

typedef struct tape {
    const pgd_host *host;
    cpu_phase *const *phases;
    uint32_t n;
} tape;

static uint32_t n_zones(const cpu_phase *p) {
    return p->nodes != NULL && p->nodes->n > 1 ? p->nodes->n : 1;
}

// First item of a node's share; behind the last node: the end.
static int64_t zone_first(const cpu_phase *p, uint32_t zone) {
    return n_zones(p) > 1 ? cpu_nodes_first(p->nodes, zone, p->n) : zone == 0 ? 0 : p->n;
}

void cpu_phase_set(cpu_phase *p, int64_t n, int64_t item_floats, int64_t chunk) {
    item_floats = cpu_max(1, item_floats);
    p->n = n;
    p->chunk = chunk > 0 ? chunk : cpu_max(1, CHUNK_FLOATS / item_floats);
    if (__builtin_mul_overflow(n, item_floats, &p->floats)) {
        p->floats = INT64_MAX;
    }
    for (uint32_t z = 0; z < n_zones(p); z++) {
        atomic_store_explicit(&p->zones[z].next, zone_first(p, z), memory_order_relaxed);
    }
    atomic_store_explicit(&p->n_arrived, 0, memory_order_relaxed);
}

static bool is_small(const cpu_phase *p) {
    return p->n <= p->chunk || p->floats < SMALL_FLOATS;
}

static void take_items(cpu_phase *p, uint32_t worker) {
    const uint32_t n = n_zones(p);
    const uint32_t own = n > 1 ? p->nodes->of[worker] : 0;
    for (uint32_t i = 0; i < n; i++) {
        const uint32_t z = (own + i) % n;
        const int64_t end = zone_first(p, z + 1);
        for (;;) {
            const int64_t first =
                atomic_fetch_add_explicit(&p->zones[z].next, p->chunk, memory_order_relaxed);
            if (first >= end) {
                break;
            }
            p->fn(p->ctx, first, cpu_min(first + p->chunk, end), worker);
        }
    }
}

// Small phases from i on; the number of the first that is not.
static uint32_t run_small(const tape *t, uint32_t i, uint32_t worker) {
    for (; i < t->n && is_small(t->phases[i]); i++) {
        t->phases[i]->fn(t->phases[i]->ctx, 0, t->phases[i]->n, worker);
    }
    return i;
}

static uint32_t next_large(const tape *t, uint32_t i) {
    while (i < t->n && is_small(t->phases[i])) {
        i++;
    }
    return i;
}

// The first phase is a large one.
static void run_tape(void *arg, uint32_t worker, uint32_t n_workers) {
    const tape *t = arg;
    for (uint32_t i = 0; i < t->n;) {
        cpu_phase *p = t->phases[i];
        take_items(p, worker);
        if (atomic_fetch_add_explicit(&p->n_arrived, 1, memory_order_acq_rel) + 1 == n_workers) {
            (void)run_small(t, i + 1, worker);
        }
        i = next_large(t, i + 1);
        if (i < t->n && n_workers > 1) {
            t->host->team_barrier(t->host);
        }
    }
}

void cpu_phases_run(const pgd_host *host, cpu_phase *const *phases, uint32_t n) {
    tape t = {.host = host, .phases = phases, .n = n};
    uint32_t first = run_small(&t, 0, 0);
    if (first == n) {
        return;
    }
    t.phases += first;
    t.n -= first;
    host->team_run(host, run_tape, &t);
}

void cpu_op_list(cpu_op *op, cpu_phase **list, uint32_t *n) {
    for (uint32_t i = 0; i < CPU_PHASES; i++) {
        if (op->phases[i].n > 0) {
            list[(*n)++] = &op->phases[i];
        }
    }
}
