// Phases of work: every item once whatever the nodes, a node's own share first, and a worker that
// lost its core holds up nothing but the chunk it has.
#include "cpu.h" // first: it uses a field of pgd_host, fail, whose name is a macro of cmocka

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <string.h>

#include "base/clock.h"
#include "base/team.h"

enum { MOST_ITEMS = 1000, MOST = 8 };

typedef struct bench {
    pgd_host host; // first
    pgd_team *team;
    const char *nodes; // the option
    // what ran
    _Atomic uint32_t n_runs[MOST_ITEMS];
    uint32_t worker[MOST_ITEMS];
    int64_t order[MOST_ITEMS]; // items as they were taken, when workers run one by one
    int64_t n_order;
    // of the worker that is held
    _Atomic int64_t n_done;
    _Atomic int64_t held_items;
    int64_t n_items;
} bench;

static uint32_t team_size(const pgd_host *h) {
    const bench *b = h->ctx;
    return b->team == NULL ? 4 : pgd_team_size(b->team);
}

// Without a team four workers run one after the other, the last one first.
static void team_run(const pgd_host *h, pgd_team_fn fn, void *arg) {
    const bench *b = h->ctx;
    if (b->team != NULL) {
        pgd_team_run(b->team, fn, arg);
        return;
    }
    for (uint32_t w = 4; w-- > 0;) {
        fn(arg, w, 4);
    }
}

static void team_barrier(const pgd_host *h) {
    const bench *b = h->ctx;
    pgd_team_barrier(b->team);
}

static const char *option(const pgd_host *h, const char *key) {
    const bench *b = h->ctx;
    return strcmp(key, "nodes") == 0 ? b->nodes : NULL;
}

static void open_bench(bench *b, uint32_t n_workers, const char *nodes) {
    memset(b, 0, sizeof(*b));
    b->host = (pgd_host){.size = sizeof(b->host),
                         .ctx = b,
                         .team_size = team_size,
                         .team_run = team_run,
                         .team_barrier = team_barrier,
                         .option = option};
    b->nodes = nodes;
    if (n_workers > 0) {
        assert_int_equal(pgd_team_create(n_workers, &b->team), PGD_OK);
    }
}

static void note_items(void *ctx, int64_t i0, int64_t i1, uint32_t worker) {
    bench *b = ctx;
    for (int64_t i = i0; i < i1; i++) {
        atomic_fetch_add(&b->n_runs[i], 1);
        b->worker[i] = worker;
        if (b->team == NULL) {
            b->order[b->n_order++] = i;
        }
    }
}

static void run(bench *b, const cpu_nodes *nodes, cpu_work_fn fn, int64_t n, int64_t chunk) {
    static cpu_phase phase;
    cpu_phase *const list[1] = {&phase};
    phase = (cpu_phase){.fn = fn, .ctx = b, .nodes = nodes};
    b->n_items = n;
    cpu_phase_set(&phase, n, 1 << 20, chunk); // large: never done by one alone
    cpu_phases_run(&b->host, list, 1);
}

static void every_item_once(void **state) {
    static bench b;
    static cpu_nodes nodes;
    const char *options[] = {"1", "2", "3", "8", "100"};
    const int64_t sizes[] = {5, 8, 61, 64, 997};
    (void)state;
    for (size_t o = 0; o < sizeof(options) / sizeof(options[0]); o++) {
        for (size_t s = 0; s < sizeof(sizes) / sizeof(sizes[0]); s++) {
            open_bench(&b, MOST, options[o]);
            cpu_nodes_find(&b.host, &nodes);
            run(&b, &nodes, note_items, sizes[s], 1 + (int64_t)s % 3);
            for (int64_t i = 0; i < MOST_ITEMS; i++) {
                assert_int_equal(b.n_runs[i], i < sizes[s] ? 1 : 0);
            }
            pgd_team_destroy(b.team);
        }
    }
}

// Workers 0 and 1 lie on node 0, 2 and 3 on node 1; worker 3 comes first and does everything.
static void own_share_first(void **state) {
    static bench b;
    static cpu_nodes nodes;
    (void)state;
    open_bench(&b, 0, "2");
    cpu_nodes_find(&b.host, &nodes);
    assert_int_equal(nodes.n, 2);
    assert_int_equal(nodes.of[1], 0);
    assert_int_equal(nodes.of[2], 1);
    run(&b, &nodes, note_items, 101, 4);
    assert_int_equal(b.n_order, 101);
    for (int64_t i = 0; i < 101; i++) {
        assert_int_equal(b.order[i], (i + 50) % 101); // 50 ... 100, then 0 ... 49
        assert_int_equal(b.worker[i], 3);
    }
}

// A weight is packed by panels and multiplied by groups of them: both cut where the nodes do.
static void shares_agree(void **state) {
    static bench b;
    static cpu_nodes nodes;
    (void)state;
    open_bench(&b, 7, "3");
    cpu_nodes_find(&b.host, &nodes);
    assert_int_equal(nodes.n, 3);
    for (int64_t group = 1; group <= 8; group++) {
        const int64_t panels = 1001;
        const int64_t groups = (panels + group - 1) / group;
        for (uint32_t z = 0; z <= 3; z++) {
            int64_t apart = cpu_nodes_first(&nodes, z, groups) * group;
            apart -= cpu_nodes_first(&nodes, z, panels);
            assert_true(apart >= -group && apart <= group);
        }
        assert_int_equal(cpu_nodes_first(&nodes, 3, groups), groups);
    }
    // In proportion to the workers: 3, 2 and 2 of 7.
    assert_int_equal(cpu_nodes_first(&nodes, 1, 700), 300);
    assert_int_equal(cpu_nodes_first(&nodes, 2, 700), 500);
    pgd_team_destroy(b.team);
}

// The first chunk of one worker lasts until all other items are done: it would never end if they
// waited for it.
static void hold_one(void *ctx, int64_t i0, int64_t i1, uint32_t worker) {
    bench *b = ctx;
    const uint64_t start = pgd_clock_ns();
    note_items(ctx, i0, i1, worker);
    if (worker == 1) {
        atomic_fetch_add(&b->held_items, i1 - i0);
        while (atomic_load(&b->n_done) < b->n_items - b->held_items) {
            if (pgd_clock_ns() - start > UINT64_C(60000000000)) {
                return; // the test sees it by held_items
            }
            pgd_clock_sleep_ns(100000);
        }
        return;
    }
    atomic_fetch_add(&b->n_done, i1 - i0);
}

static void preempted_worker(void **state) {
    static bench b;
    static cpu_nodes nodes;
    const char *options[] = {"1", "2"};
    (void)state;
    for (int32_t o = 0; o < 2; o++) {
        for (int32_t round = 0; round < 20; round++) {
            open_bench(&b, 4, options[o]);
            cpu_nodes_find(&b.host, &nodes);
            run(&b, &nodes, hold_one, 400, 4);
            assert_in_range(b.held_items, 0, 4); // one chunk, or it never came in time
            assert_int_equal(b.n_done + b.held_items, 400);
            pgd_team_destroy(b.team);
        }
    }
}

// A step of many phases, another worker held in each: joins wait for its one chunk only, and every
// phase begins when the one before has ended.
enum { HELD_PHASES = 12, HELD_ITEMS = 200, HELD_CHUNK = 3 };

typedef struct held_phase {
    uint32_t victim;
    const struct held_phase *before; // NULL: none
    _Atomic int64_t n_done;          // by all workers
    _Atomic int64_t n_held;          // items of the victim's first chunk, 0: it took none yet
    _Atomic int32_t is_early;        // 1: an item ran before the phase in front had ended
} held_phase;

static void hold_victim(void *ctx, int64_t i0, int64_t i1, uint32_t worker) {
    held_phase *p = ctx;
    const uint64_t start = pgd_clock_ns();
    int64_t none = 0;
    if (p->before != NULL && atomic_load(&p->before->n_done) != HELD_ITEMS) {
        atomic_store(&p->is_early, 1);
    }
    if (worker == p->victim && atomic_compare_exchange_strong(&p->n_held, &none, i1 - i0)) {
        while (atomic_load(&p->n_done) < HELD_ITEMS - (i1 - i0) &&
               pgd_clock_ns() - start < UINT64_C(60000000000)) {
            pgd_clock_sleep_ns(20000);
        }
        if (atomic_load(&p->n_done) < HELD_ITEMS - (i1 - i0)) {
            atomic_store(&p->n_held, HELD_ITEMS); // the others waited for it
        }
    }
    atomic_fetch_add(&p->n_done, i1 - i0);
}

static void one_is_held_in_each_phase(void **state) {
    static bench b;
    static cpu_phase phases[HELD_PHASES];
    static held_phase held[HELD_PHASES];
    cpu_phase *list[HELD_PHASES];
    int64_t n_met = 0;
    (void)state;
    open_bench(&b, 4, "1");
    for (int32_t round = 0; round < 10; round++) {
        for (int32_t i = 0; i < HELD_PHASES; i++) {
            held[i] = (held_phase){.victim = (uint32_t)i % 4};
            held[i].before = i > 0 ? &held[i - 1] : NULL;
            phases[i] = (cpu_phase){.fn = hold_victim, .ctx = &held[i]};
            cpu_phase_set(&phases[i], HELD_ITEMS, 1 << 20, HELD_CHUNK);
            list[i] = &phases[i];
        }
        cpu_phases_run(&b.host, list, HELD_PHASES);
        for (int32_t i = 0; i < HELD_PHASES; i++) {
            assert_int_equal(held[i].n_done, HELD_ITEMS);
            assert_in_range(held[i].n_held, 0, HELD_CHUNK);
            assert_int_equal(held[i].is_early, 0);
            n_met += held[i].n_held > 0;
        }
    }
    assert_true(n_met > 0); // worker 0, the caller, always comes
    pgd_team_destroy(b.team);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_item_once),
        cmocka_unit_test(own_share_first),
        cmocka_unit_test(shares_agree),
        cmocka_unit_test(preempted_worker),
        cmocka_unit_test(one_is_held_in_each_phase),
    };
    return cmocka_run_group_tests_name("cpu.tape", tests, NULL, NULL);
}
