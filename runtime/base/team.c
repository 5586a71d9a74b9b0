// The thread team.
//
//   caller (worker 0)             workers 1 .. n-1
//   func, arg, pending = n - 1
//   epoch++  ------------------>  wait for another epoch (spin, then sleep on epoch)
//   func(arg, 0, n)               func(arg, i, n)
//   wait for pending == 0  <----  pending--
//
// Who sleeps on a word first counts itself in the word's sleepers and is then checked by the
// kernel against the expected value; who changes a word does so before it looks at the sleepers.
// Both in sequentially consistent order, so no wake is lost. The barrier counts arrivals; the last
// one moves the phase, on which the others wait in the same way.
#include "base/team.h"

#include <stdatomic.h>
#include <stdio.h>

#include "base/clock.h"
#include "base/fail.h"
#include "base/mem.h"
#include "os/cpu.h"
#include "os/env.h"
#include "os/thread.h"
#include "os/topology.h"

enum { SPIN_NS = 50000, CROWDED_SPIN_NS = 1000, PAUSES = 32, MOST_WORKERS = 1024, LINE = 64 };

// A word that threads wait for, alone on its cache line.
typedef struct gate {
    _Alignas(LINE) _Atomic uint32_t word;
    _Atomic uint32_t n_sleepers;
} gate;

typedef struct worker {
    pgd_team *team;
    uint32_t index;
    uint32_t node;  // of the system's numbering
    uint32_t place; // the node's first cpu in places
    uint32_t n_places;
    pgd_os_thread thread;
} worker;

struct pgd_team {
    gate epoch;   // one more per run
    gate pending; // workers that have not returned from fn
    gate phase;   // one more per barrier
    _Alignas(LINE) _Atomic uint32_t n_arrived;
    _Alignas(LINE) pgd_team_func fn; // NULL in an epoch: end of the thread
    void *arg;
    _Atomic uint64_t n_runs;
    uint64_t spin_ns;
    uint32_t n_workers;
    uint32_t n_threads; // started so far
    worker *workers;    // [n_workers], of 0 only the node is used
    uint32_t *places;   // cpus by node; NULL: workers are not bound
    pgd_os_mutex run_lock;
};

// How many runs this thread is inside of.
static _Thread_local uint32_t run_depth;

static uint32_t load(gate *g) {
    return atomic_load_explicit(&g->word, memory_order_acquire);
}

// Spins a bounded time; 1 when the word has left `value`.
static int32_t spin_while(gate *g, uint32_t value, uint64_t spin_ns) {
    uint64_t until = 0;
    for (;;) {
        for (int i = 0; i < PAUSES; i++) {
            if (load(g) != value) {
                return 1;
            }
            pgd_os_thread_pause();
        }
        uint64_t moment = pgd_clock_ns();
        until = until == 0 ? moment + spin_ns : until;
        if (moment >= until) {
            return 0;
        }
    }
}

// Returns when the word is not `value`.
static void wait_while(gate *g, uint32_t value, uint64_t spin_ns) {
    if (spin_while(g, value, spin_ns)) {
        return;
    }
    atomic_fetch_add(&g->n_sleepers, 1);
    while (atomic_load(&g->word) == value) {
        (void)pgd_os_futex_wait(&g->word, value, UINT64_MAX);
    }
    atomic_fetch_sub(&g->n_sleepers, 1);
}

static void wake_sleepers(gate *g) {
    if (atomic_load(&g->n_sleepers) > 0) {
        pgd_os_futex_wake(&g->word, UINT32_MAX);
    }
}

static void *worker_main(void *p) {
    const worker *self = p;
    pgd_team *team = self->team;
    uint32_t epoch = 0;
    if (team->places != NULL) {
        pgd_os_thread_bind(team->places + self->place, self->n_places);
    }
    for (;;) {
        wait_while(&team->epoch, epoch, team->spin_ns);
        epoch++;
        if (team->fn == NULL) {
            return NULL;
        }
        run_depth = 1;
        team->fn(team->arg, self->index, team->n_workers);
        run_depth = 0;
        if (atomic_fetch_sub(&team->pending.word, 1) == 1) {
            wake_sleepers(&team->pending);
        }
    }
}

// Ends the threads that were started.
static void stop_threads(pgd_team *team) {
    team->fn = NULL;
    atomic_fetch_add(&team->epoch.word, 1);
    wake_sleepers(&team->epoch);
    for (uint32_t i = 1; i <= team->n_threads; i++) {
        pgd_os_thread_join(team->workers[i].thread);
    }
}

static pgd_status start_threads(pgd_team *team) {
    for (uint32_t i = 1; i < team->n_workers; i++) {
        char name[24];
        (void)snprintf(name, sizeof(name), "pgd-team-%u", (unsigned)i);
        team->workers[i].team = team;
        team->workers[i].index = i;
        pgd_status status =
            pgd_os_thread_start(name, worker_main, &team->workers[i], &team->workers[i].thread);
        if (status != PGD_OK) {
            char reason[128];
            int32_t error = pgd_os_last_error();
            return pgd_fail(status, "team: thread %u of %u cannot be started: %s", (unsigned)i,
                            (unsigned)team->n_workers,
                            pgd_os_error_text(error, reason, sizeof(reason)));
        }
        team->n_threads = i;
    }
    return PGD_OK;
}

// Spreads the workers over the nodes by the number of their cpus, when there is more than one node
// and a cpu for each worker.
static pgd_status spread(const char *root, pgd_team *team) {
    pgd_os_place places[PGD_OS_MOST_CPUS];
    uint32_t n = pgd_os_places(root, places, PGD_OS_MOST_CPUS);
    if (n < team->n_workers || n == 0 || places[0].node == places[n - 1].node) {
        return PGD_OK;
    }
    team->places = pgd_mem_alloc(n, sizeof(*team->places));
    if (team->places == NULL) {
        return PGD_MEM_FAIL("the cpus of the thread team", n * sizeof(*team->places));
    }
    for (uint32_t i = 0; i < n; i++) {
        team->places[i] = places[i].cpu;
    }
    for (uint32_t i = 0; i < team->n_workers; i++) {
        worker *w = &team->workers[i];
        const uint32_t at = (uint32_t)((uint64_t)i * n / team->n_workers);
        w->node = places[at].node;
        w->place = at;
        while (w->place > 0 && places[w->place - 1].node == w->node) {
            w->place--;
        }
        while (w->place + w->n_places < n && places[w->place + w->n_places].node == w->node) {
            w->n_places++;
        }
    }
    return PGD_OK;
}

pgd_status pgd_team_create(uint32_t n_workers, pgd_team **out) {
    return pgd_team_create_at("", n_workers, out);
}

pgd_status pgd_team_create_at(const char *root, uint32_t n_workers, pgd_team **out) {
    *out = NULL;
    uint32_t n_cores = pgd_os_cpu_count_at(root);
    if (n_workers == 0) {
        n_workers = n_cores < MOST_WORKERS ? n_cores : MOST_WORKERS;
    }
    if (n_workers > MOST_WORKERS) {
        return pgd_fail(PGD_INVALID, "team: %u workers, at most %d are allowed",
                        (unsigned)n_workers, MOST_WORKERS);
    }
    pgd_team *team = pgd_mem_alloc_aligned(sizeof(*team), LINE);
    if (team == NULL) {
        return PGD_MEM_FAIL("the thread team", sizeof(*team));
    }
    team->workers = pgd_mem_alloc(n_workers, sizeof(worker));
    if (team->workers == NULL) {
        pgd_mem_free(team);
        return PGD_MEM_FAIL("the workers of the thread team", n_workers * sizeof(worker));
    }
    team->n_workers = n_workers;
    // With more workers than cores a spinning one takes the core from one that works.
    team->spin_ns = n_workers <= n_cores ? SPIN_NS : CROWDED_SPIN_NS;
    (void)pthread_mutex_init(&team->run_lock, NULL);
    pgd_status status = spread(root, team);
    if (status == PGD_OK) {
        status = start_threads(team);
    }
    if (status != PGD_OK) {
        pgd_team_destroy(team);
        return status;
    }
    *out = team;
    return PGD_OK;
}

void pgd_team_destroy(pgd_team *team) {
    if (team == NULL) {
        return;
    }
    stop_threads(team);
    (void)pthread_mutex_destroy(&team->run_lock);
    pgd_mem_free(team->places);
    pgd_mem_free(team->workers);
    pgd_mem_free(team);
}

static pgd_os_mutex shared_mutex = PTHREAD_MUTEX_INITIALIZER; // guards shared_team and its users
static pgd_team *shared_team;
static uint32_t n_shared_users;

pgd_status pgd_team_open(uint32_t n_workers, pgd_team **out) {
    pgd_status status = PGD_OK;
    *out = NULL;
    (void)pthread_mutex_lock(&shared_mutex);
    if (shared_team == NULL) {
        status = pgd_team_create(n_workers, &shared_team);
    }
    if (status == PGD_OK) {
        n_shared_users++;
        *out = shared_team;
    }
    (void)pthread_mutex_unlock(&shared_mutex);
    return status;
}

void pgd_team_close(pgd_team *team) {
    if (team == NULL) {
        return;
    }
    (void)pthread_mutex_lock(&shared_mutex);
    if (--n_shared_users == 0) {
        pgd_team_destroy(shared_team);
        shared_team = NULL;
    }
    (void)pthread_mutex_unlock(&shared_mutex);
}

uint32_t pgd_team_size(const pgd_team *team) {
    return team->n_workers;
}

uint32_t pgd_team_node(const pgd_team *team, uint32_t index) {
    return index < team->n_workers ? team->workers[index].node : 0;
}

uint64_t pgd_team_runs(const pgd_team *team) {
    return atomic_load(&team->n_runs);
}

void pgd_team_run(pgd_team *team, pgd_team_func fn, void *arg) {
    if (run_depth > 0) {
        run_depth++;
        fn(arg, 0, 1);
        run_depth--;
        return;
    }
    (void)pthread_mutex_lock(&team->run_lock);
    team->fn = fn;
    team->arg = arg;
    atomic_fetch_add_explicit(&team->n_runs, 1, memory_order_relaxed);
    atomic_store(&team->pending.word, team->n_workers - 1);
    atomic_fetch_add(&team->epoch.word, 1);
    wake_sleepers(&team->epoch);
    run_depth = 1;
    fn(arg, 0, team->n_workers);
    run_depth = 0;
    for (uint32_t left = load(&team->pending); left > 0; left = load(&team->pending)) {
        wait_while(&team->pending, left, team->spin_ns);
    }
    (void)pthread_mutex_unlock(&team->run_lock);
}

void pgd_team_barrier(pgd_team *team) {
    if (run_depth != 1 || team->n_workers == 1) {
        return;
    }
    uint32_t phase = load(&team->phase);
    if (atomic_fetch_add(&team->n_arrived, 1) + 1 < team->n_workers) {
        wait_while(&team->phase, phase, team->spin_ns);
        return;
    }
    atomic_store_explicit(&team->n_arrived, 0, memory_order_relaxed);
    atomic_fetch_add(&team->phase.word, 1);
    wake_sleepers(&team->phase);
}
