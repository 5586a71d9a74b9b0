// By hand: what the interface costs the CPU plugin. One operation on one row, called through the
// device's table (arguments of another size allowed for, shapes checked, batch looked for) and by
// the plugin's own functions, by turns; the least of many runs of each.
//
//   table_bench
#include <stdio.h>
#include <time.h>

#include <pagoda/plugin.h>

#include "base/fail.h"
#include "base/team.h"
#include "cpu.h"
#include "dev/inner.h"

const pgd_plugin *pgd_plugin_v0_cpu(uint32_t host_minor);

enum { WIDTH = 64, CALLS = 20000, TURNS = 50 };

typedef struct place {
    pgd_exec x;
    pgd_add_args a;
} place;

static int64_t now_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

static pgd_status by_table(const place *p) {
    return p->x.dev->ops->add(&p->x, &p->a);
}

static pgd_status direct(const place *p) {
    cpu_op op = {0};
    cpu_phase *phases[CPU_PHASES];
    uint32_t n = 0;
    PGD_TRY(cpu_op_make(&op, &p->x, PGD_OP_add, &p->a));
    PGD_TRY(cpu_op_live(&op));
    cpu_op_list(&op, phases, &n);
    cpu_phases_run(p->x.dev->host, phases, n);
    return PGD_OK;
}

static pgd_status run(pgd_status (*fn)(const place *), const place *p, double *least) {
    const int64_t start = now_ns();
    for (int i = 0; i < CALLS; i++) {
        PGD_TRY(fn(p));
    }
    const double ns = (double)(now_ns() - start) / CALLS;
    *least = ns < *least ? ns : *least;
    return PGD_OK;
}

static pgd_status measure(const pgd_device *d, double *out_table, double *out_direct) {
    static float memory[3][WIDTH];
    const pgd_queue_desc desc = {.size = sizeof(desc)};
    pgd_queue *queue = NULL;
    place p = {.a = {.size = sizeof(p.a), .rows = PGD_ROWS_SHAPE}};
    pgd_tensor *tensors[3] = {&p.a.a, &p.a.b, &p.a.out};
    pgd_status code = d->queue->create(d, &desc, &queue);
    p.x = (pgd_exec){.size = sizeof(p.x), .dev = d, .queue = queue};
    for (int i = 0; i < 3; i++) {
        *tensors[i] = (pgd_tensor){.dtype = PGD_F32,
                                   .rank = 2,
                                   .offset = (uint64_t)(uintptr_t)memory[i],
                                   .shape = {1, WIDTH},
                                   .stride = {WIDTH, 1}};
    }
    for (int i = 0; i < TURNS && code == PGD_OK; i++) {
        code = run(by_table, &p, out_table);
        code = code == PGD_OK ? run(direct, &p, out_direct) : code;
    }
    d->queue->destroy(d, queue);
    return code;
}

int main(void) {
    pgd_team *team = NULL;
    pgd_dev *dev = NULL;
    double table = 1e9;
    double own = 1e9;
    pgd_status code = pgd_team_create(1, &team);
    if (code == PGD_OK) {
        code =
            pgd_dev_open_plugin(pgd_plugin_v0_cpu(PGD_ABI_MINOR), (pgd_str){0}, 0, team, 0, &dev);
    }
    code = code == PGD_OK ? measure(pgd_dev_device(dev), &table, &own) : code;
    if (code == PGD_OK) {
        printf("add of one row of %d: %.1f ns through the table, %.1f ns by the plugin's own "
               "functions\n",
               WIDTH, table, own);
    } else {
        printf("%s\n", pgd_fail_text(code));
    }
    pgd_dev_close(dev);
    pgd_team_destroy(team);
    return code == PGD_OK ? 0 : 1;
}
