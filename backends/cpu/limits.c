// Extension "x.limits.1": rounds of the whole team, each a few milliseconds; the median counts. And
// the bandwidth that the device's description has, for which there is only a moment.
#include <string.h>
#include <unistd.h>

#include "cpu.h"
#include "limits.h"

enum {
    MAX_ROUNDS = 64,
    PIECE_BYTES = 1 << 20, // between looks at the clock
    PIECE_ROUNDS = 2000,
    LINE = 256,
};

#define ROUND_NS       UINT64_C(8000000)
#define LEAST_BYTES    (UINT64_C(256) << 20)
#define MOST_BYTES     (UINT64_C(1) << 30)
#define CACHE_MULTIPLE 3

// One round: every worker works until the deadline.
typedef struct round_work {
    const pgd_host *host;
    const pgd_cpu_dot *dot; // NULL: reading
    uint64_t (*read)(const void *ptr, int64_t bytes);
    unsigned char *room;
    uint64_t room_bytes;
    uint64_t length_ns;
    uint64_t position; // where in its part each worker begins
    _Atomic uint64_t amount;
    _Atomic uint64_t sink;
    _Atomic uint64_t longest_ns;
} round_work;

static uint64_t do_dots(const round_work *w, uint64_t start) {
    uint64_t n = 0;
    do {
        w->dot->run(PIECE_ROUNDS);
        n += PIECE_ROUNDS;
    } while (w->host->clock_ns(w->host) - start < w->length_ns);
    return n * (uint64_t)w->dot->ops_per_round;
}

static uint64_t do_reads(round_work *w, uint64_t start, uint32_t worker, uint32_t n_workers) {
    const uint64_t pieces = w->room_bytes / n_workers / PIECE_BYTES;
    const unsigned char *part = w->room + worker * pieces * PIECE_BYTES;
    uint64_t sum = 0;
    uint64_t n = 0;
    do {
        sum += w->read(part + (w->position + n) % pieces * PIECE_BYTES, PIECE_BYTES);
        n++;
    } while (w->host->clock_ns(w->host) - start < w->length_ns);
    atomic_fetch_add_explicit(&w->sink, sum, memory_order_relaxed);
    return n * PIECE_BYTES;
}

static void round_team(void *arg, uint32_t worker, uint32_t n_workers) {
    round_work *w = arg;
    if (n_workers > 1) {
        w->host->team_barrier(w->host);
    }
    uint64_t start = w->host->clock_ns(w->host);
    uint64_t n = w->dot != NULL ? do_dots(w, start) : do_reads(w, start, worker, n_workers);
    uint64_t spent = w->host->clock_ns(w->host) - start;
    uint64_t seen = atomic_load_explicit(&w->longest_ns, memory_order_relaxed);
    while (spent > seen && !atomic_compare_exchange_weak(&w->longest_ns, &seen, spent)) {
    }
    atomic_fetch_add_explicit(&w->amount, n, memory_order_relaxed);
}

// ---- memory to read ----------------------------------------------------------------------------

static uint64_t wanted_bytes(void) {
    long cache = sysconf(_SC_LEVEL3_CACHE_SIZE);
    uint64_t bytes = cache > 0 ? (uint64_t)cache * CACHE_MULTIPLE : 0;
    bytes = bytes > LEAST_BYTES ? bytes : LEAST_BYTES;
    return bytes < MOST_BYTES ? bytes : MOST_BYTES;
}

// Touches its part, so that the pages exist and lie near the worker.
static void touch_team(void *arg, uint32_t worker, uint32_t n_workers) {
    const round_work *w = arg;
    const uint64_t part = w->room_bytes / n_workers / PIECE_BYTES * PIECE_BYTES;
    memset(w->room + worker * part, (int)(worker & 0x7F) + 1, part);
}

static pgd_status make_room(const pgd_device *d, cpu_backend *self, round_work *w) {
    if (self->limits_room == NULL) {
        self->limits_bytes = wanted_bytes();
        self->limits_room = d->host->alloc(d->host, self->limits_bytes, 4096);
        if (self->limits_room == NULL) {
            return CPU_FAIL(d, PGD_OUT_OF_MEMORY, "no memory for measuring reads (%llu bytes)",
                            (unsigned long long)self->limits_bytes);
        }
        w->room = self->limits_room;
        w->room_bytes = self->limits_bytes;
        d->host->team_run(d->host, touch_team, w);
    }
    w->room = self->limits_room;
    w->room_bytes = self->limits_bytes;
    return PGD_OK;
}

// ---- measuring ---------------------------------------------------------------------------------

static void sort_rates(double *rates, uint32_t n) {
    for (uint32_t i = 1; i < n; i++) {
        double rate = rates[i];
        uint32_t at = i;
        for (; at > 0 && rates[at - 1] > rate; at--) {
            rates[at] = rates[at - 1];
        }
        rates[at] = rate;
    }
}

static double one_round(round_work *w) {
    atomic_store(&w->amount, 0);
    atomic_store(&w->longest_ns, 0);
    w->host->team_run(w->host, round_team, w);
    uint64_t ns = atomic_load(&w->longest_ns);
    uint64_t amount = atomic_load(&w->amount);
    w->position += amount / PIECE_BYTES; // what was read last may still lie in a cache
    return ns > 0 ? (double)amount * 1e9 / (double)ns : 0.0;
}

static void measure_rounds(round_work *w, uint64_t budget_ns, pgd_limit *out) {
    double rates[MAX_ROUNDS];
    const uint64_t start = w->host->clock_ns(w->host);
    uint64_t rounds = budget_ns / ROUND_NS;
    rounds = rounds < 1 ? 1 : (rounds > MAX_ROUNDS ? MAX_ROUNDS : rounds);
    w->length_ns = budget_ns / rounds;
    for (uint64_t i = 0; i < rounds; i++) {
        rates[i] = one_round(w);
    }
    sort_rates(rates, (uint32_t)rounds);
    out->rounds = (uint32_t)rounds;
    out->rate = rates[rounds / 2];
    out->best = rates[rounds - 1];
    out->bytes = w->room_bytes;
    out->spent_ns = w->host->clock_ns(w->host) - start;
}

static pgd_status measure(const pgd_device *d, int32_t what, uint64_t budget_ns, pgd_limit *out) {
    cpu_backend *self = d->self;
    pgd_cpu_limits limits;
    pgd_limit local = {.size = sizeof(local)};
    round_work w = {.host = d->host};
    pgd_cpu_limits_of(self->kernels, &limits);
    const pgd_cpu_dot *dots[PGD_LIMIT_COUNT] = {NULL, &limits.f32, &limits.bf16, &limits.i8};
    if (what < 0 || what >= PGD_LIMIT_COUNT) {
        return CPU_FAIL(d, PGD_INVALID, "there is no limit %d", what);
    }
    w.dot = dots[what];
    w.read = limits.read;
    if (w.dot != NULL && w.dot->run == NULL) {
        return CPU_FAIL(d, PGD_UNSUPPORTED, "%s has no such dot instruction", self->kernels->isa);
    }
    const char *how = w.dot != NULL ? w.dot->instruction : self->kernels->isa;
    memcpy(local.how, how, strnlen(how, sizeof(local.how) - 1));
    if (w.dot == NULL) {
        PGD_TRY(make_room(d, self, &w));
    }
    measure_rounds(&w, budget_ns, &local);
    PGD_OUT(out, local);
    return PGD_OK;
}

const pgd_limits cpu_limits_table = {
    .size = sizeof(pgd_limits),
    .measure = measure,
};

// ---- at a glance -------------------------------------------------------------------------------

enum {
    GLANCE_ROUNDS = 3,
    GLANCE_BYTES = 8 << 20, // of all workers
    GLANCE_LEAST = 256 << 10,
};

typedef struct glance {
    const pgd_host *host;
    uint64_t (*read)(const void *ptr, int64_t bytes);
    unsigned char *room;
    int64_t part; // bytes of a worker
    int32_t round;
    _Atomic int32_t is_cached; // 1: nothing takes lines out of the caches here
    _Atomic uint64_t sink;
    _Atomic uint64_t rate; // of all workers in this round
} glance;

// Takes its part out of the caches, waits for the others and reads it once.
static void glance_team(void *arg, uint32_t worker, uint32_t n_workers) {
    glance *g = arg;
    unsigned char *part = g->room + worker * g->part;
    if (g->round == 0) {
        memset(part, (int)(worker & 0x7F) + 1, (size_t)g->part);
    }
    if (!pgd_cpu_forget(part, g->part)) {
        atomic_store(&g->is_cached, 1);
    }
    if (n_workers > 1) {
        g->host->team_barrier(g->host);
    }
    const uint64_t start = g->host->clock_ns(g->host);
    const uint64_t sum = g->read(part, g->part);
    const uint64_t ns = g->host->clock_ns(g->host) - start;
    atomic_fetch_add(&g->sink, sum);
    atomic_fetch_add(&g->rate, (uint64_t)((double)g->part * 1e9 / (double)(ns > 0 ? ns : 1)));
}

uint64_t cpu_bandwidth(const pgd_host *host, const pgd_cpu_kernels *kernels) {
    const uint32_t n = host->team_size(host);
    pgd_cpu_limits limits;
    uint64_t best = 0;
    pgd_cpu_limits_of(kernels, &limits);
    glance g = {.host = host, .read = limits.read};
    g.part = cpu_max(GLANCE_LEAST, GLANCE_BYTES / n / GLANCE_LEAST * GLANCE_LEAST);
    g.room = host->alloc(host, (uint64_t)g.part * n, 4096);
    if (g.room == NULL) {
        return 0;
    }
    for (; g.round < GLANCE_ROUNDS; g.round++) {
        atomic_store(&g.rate, 0);
        host->team_run(host, glance_team, &g);
        const uint64_t rate = atomic_load(&g.rate);
        best = rate > best ? rate : best;
    }
    host->free(host, g.room);
    return atomic_load(&g.is_cached) ? 0 : best;
}
