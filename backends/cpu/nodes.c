// NUMA: which node each worker of the team computes on, and whose share of the items is whose.
//
//   items of a phase   0 ........ n * 4/6 ........ n        6 workers, 4 of them on the first node
//   owner              | node A          | node B |
//
// Weights are cut by rows of panels in the same shares, when they are packed and in every product:
// the pages of a panel are touched first by the node that reads it later. A worker takes items of
// its own node first and then helps the others, so the shares change no bit and no wait.
// The host binds workers to nodes; here they only say where they are.
#include <stdlib.h>

#ifdef __linux__
#include <sys/syscall.h>
#include <unistd.h>
#endif

#include "cpu.h"

typedef struct asking {
    uint32_t node[CPU_MOST_WORKERS]; // of the system's numbering
} asking;

static void say_node(void *arg, uint32_t worker, uint32_t n_workers) {
    asking *a = arg;
    unsigned cpu = 0;
    unsigned node = 0;
    (void)n_workers;
#ifdef __linux__
    if (syscall(SYS_getcpu, &cpu, &node, NULL) != 0) {
        node = 0;
    }
#endif
    (void)cpu;
    if (worker < CPU_MOST_WORKERS) {
        a->node[worker] = node;
    }
}

// Numbers the nodes that have workers from 0, in the order of the workers.
static void number(const asking *a, uint32_t n_workers, cpu_nodes *out) {
    uint32_t known[CPU_NODES];
    for (uint32_t w = 0; w < n_workers; w++) {
        uint32_t z = 0;
        while (z < out->n && known[z] != a->node[w]) {
            z++;
        }
        if (z == out->n && out->n < CPU_NODES) {
            known[out->n++] = a->node[w];
        }
        z = z < CPU_NODES ? z : CPU_NODES - 1;
        out->of[w] = (uint8_t)z;
        out->first[z + 1]++;
    }
    for (uint32_t z = 0; z < out->n; z++) {
        out->first[z + 1] += out->first[z];
    }
}

void cpu_nodes_find(const pgd_host *host, cpu_nodes *out) {
    const char *option = host->option == NULL ? NULL : host->option(host, "nodes");
    const unsigned long asked = option == NULL ? 0 : strtoul(option, NULL, 10);
    const uint32_t n_workers = host->team_size(host);
    asking a = {{0}};
    *out = (cpu_nodes){.n_workers = n_workers};
    if (n_workers < 2 || n_workers > CPU_MOST_WORKERS || asked == 1) {
        return;
    }
    if (asked == 0) {
        host->team_run(host, say_node, &a);
    }
    for (uint32_t w = 0; asked > 1 && w < n_workers; w++) {
        a.node[w] = (uint32_t)(w * (asked < CPU_NODES ? asked : CPU_NODES) / n_workers);
    }
    number(&a, n_workers, out);
}

int64_t cpu_nodes_first(const cpu_nodes *nodes, uint32_t zone, int64_t n) {
    const int64_t w = nodes->n_workers;
    return n / w * nodes->first[zone] + n % w * nodes->first[zone] / w;
}
