// An engine on a thread of its own. See <pagoda/pagoda.h>.
//
//   submit, cancel, release: set bits in request.mail; whoever finds it empty pushes the request
//       mail -> r3 -> r1 -> NULL        a stack, taken as a whole and turned round
//   call: the same with nodes on the callers' stacks
//   bell: a futex that counts pushes; the thread sleeps on it while the engine has nothing to do
//
// Nobody waits for the engine thread but callers of drain and call, and it waits for nobody.
#include "engine/inner.h"

#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/fail.h"
#include "base/mem.h"
#include "os/thread.h"

enum {
    MAIL_NEW = 1u << 0,
    MAIL_CANCEL = 1u << 1,
    MAIL_RELEASE = 1u << 2,
};

#define WAIT_NS     UINT64_C(1000000000) // longest wait between two looks
#define STATS_WORDS (sizeof(pgd_engine_stats) / sizeof(uint64_t))
_Static_assert(sizeof(pgd_engine_stats) % sizeof(uint64_t) == 0, "statistics are whole words");

typedef struct async_call {
    struct async_call *next;
    pgd_status (*fn)(void *arg, pgd_engine *engine);
    void *arg;
    pgd_status status;
    _Atomic uint32_t done;
    char text[1024]; // the sentence of a failure
} async_call;

struct pgd_async {
    pgd_engine *engine;
    pgd_os_thread thread;
    _Atomic(pgd_request *) mail;
    _Atomic(async_call *) calls;
    _Atomic uint32_t bell;
    _Atomic uint32_t idle; // 1: the thread sleeps on the bell, or is about to
    _Atomic uint32_t closed;
    _Atomic uint32_t ending;
    _Atomic uint32_t n_live;   // requests handed over that have not ended
    _Atomic uint32_t draining; // threads that wait for n_live to be 0
    _Atomic uint32_t answered; // futex: calls that were run
    _Atomic uint64_t stats[STATS_WORDS];
};

// The engine thread's own; elsewhere NULL.
static _Thread_local const pgd_async *current;

// ---- any thread --------------------------------------------------------------------------------

static void ring(pgd_async *a) {
    atomic_fetch_add(&a->bell, 1);
    if (atomic_load(&a->idle)) {
        pgd_os_futex_wake(&a->bell, 1);
    }
}

static void post(pgd_async *a, pgd_request *r, uint32_t bits) {
    if (atomic_fetch_or(&r->mail, bits) != 0) {
        return; // it is on the stack, or about to be pushed
    }
    pgd_request *head = atomic_load(&a->mail);
    do {
        r->next_mail = head;
    } while (!atomic_compare_exchange_weak(&a->mail, &head, r));
    ring(a);
}

static void leave(pgd_async *a) {
    if (atomic_fetch_sub(&a->n_live, 1) == 1 && atomic_load(&a->draining)) {
        pgd_os_futex_wake(&a->n_live, UINT32_MAX);
    }
}

pgd_status pgd_async_submit(pgd_async *a, const pgd_request_desc *desc, pgd_request **out) {
    *out = NULL;
    atomic_fetch_add(&a->n_live, 1); // before the look at closed: drain misses nobody
    pgd_status status = PGD_OK;
    if (atomic_load(&a->closed)) {
        status = pgd_fail(PGD_UNAVAILABLE, "the engine takes no further requests");
    } else {
        status = pgd_engine_make_request(a->engine, desc, out);
    }
    if (status != PGD_OK) {
        leave(a);
        return status;
    }
    post(a, *out, MAIL_NEW);
    return PGD_OK;
}

void pgd_async_cancel(pgd_async *a, pgd_request *r) {
    post(a, r, MAIL_CANCEL);
}

void pgd_async_release(pgd_async *a, pgd_request *r) {
    if (r != NULL) {
        post(a, r, MAIL_RELEASE);
    }
}

pgd_status pgd_async_drain(pgd_async *a, uint64_t timeout_ns) {
    if (current == a) {
        return pgd_fail(PGD_PRECONDITION, "drain inside a callback would wait for itself");
    }
    atomic_store(&a->closed, 1);
    atomic_fetch_add(&a->draining, 1);
    pgd_status status = PGD_OK;
    const uint64_t begin = pgd_clock_ns();
    for (uint32_t n = atomic_load(&a->n_live); n > 0; n = atomic_load(&a->n_live)) {
        const uint64_t spent = pgd_clock_ns() - begin;
        if (spent >= timeout_ns) {
            status = pgd_fail(PGD_TIMEOUT, "%u requests have not ended within %llu ms", n,
                              (unsigned long long)(timeout_ns / 1000000));
            break;
        }
        const uint64_t left = timeout_ns == UINT64_MAX ? UINT64_MAX : timeout_ns - spent;
        (void)pgd_os_futex_wait(&a->n_live, n, left < WAIT_NS ? left : WAIT_NS);
    }
    atomic_fetch_sub(&a->draining, 1);
    return status;
}

void pgd_async_get_stats(const pgd_async *a, pgd_engine_stats *out) {
    uint64_t words[STATS_WORDS];
    pgd_engine_stats s;
    for (size_t i = 0; i < STATS_WORDS; i++) {
        words[i] = atomic_load_explicit(&a->stats[i], memory_order_relaxed);
    }
    memcpy(&s, words, sizeof(s));
    s.size = out->size;
    memcpy(out, &s, out->size < sizeof(s) ? out->size : sizeof(s));
}

uint64_t pgd_async_step_ns(const pgd_async *a) {
    const uint64_t begin = atomic_load_explicit(&a->engine->under_way_ns, memory_order_relaxed);
    const uint64_t now = pgd_clock_ns();
    return begin > 0 && now > begin ? now - begin : 0;
}

pgd_status pgd_async_call(pgd_async *a, pgd_status (*fn)(void *arg, pgd_engine *engine),
                          void *arg) {
    if (current == a) {
        return pgd_fail(PGD_PRECONDITION, "a call inside a callback would wait for itself");
    }
    async_call call = {.fn = fn, .arg = arg};
    async_call *head = atomic_load(&a->calls);
    do {
        call.next = head;
    } while (!atomic_compare_exchange_weak(&a->calls, &head, &call));
    ring(a);
    for (;;) {
        const uint32_t seen = atomic_load(&a->answered);
        if (atomic_load(&call.done)) {
            break;
        }
        (void)pgd_os_futex_wait(&a->answered, seen, UINT64_MAX);
    }
    if (call.status != PGD_OK) {
        pgd_fail_set(call.status, call.text);
    }
    return call.status;
}

// ---- the engine thread -------------------------------------------------------------------------

static void on_ended(void *arg, pgd_request *r) {
    if (r->to_release) {
        pgd_request_release(r); // at the end of the step
    }
    leave(arg);
}

static void read_request(pgd_request *r, uint32_t bits) {
    if (bits & MAIL_NEW) {
        pgd_engine_queue_request(r);
    }
    if (bits & MAIL_CANCEL) {
        pgd_request_cancel(r);
    }
    if (bits & MAIL_RELEASE) {
        if (r->n_running == 0) {
            pgd_request_release(r);
            return;
        }
        r->to_release = 1;
        pgd_request_cancel(r);
    }
}

static void read_mail(pgd_async *a) {
    pgd_request *stack = atomic_exchange(&a->mail, NULL);
    pgd_request *first = NULL;
    while (stack != NULL) {
        pgd_request *next = stack->next_mail;
        stack->next_mail = first;
        first = stack;
        stack = next;
    }
    while (first != NULL) {
        pgd_request *r = first;
        first = r->next_mail; // once mail is empty the request may be pushed again
        read_request(r, atomic_exchange(&r->mail, 0));
    }
}

static void run_calls(pgd_async *a) {
    async_call *call = atomic_exchange(&a->calls, NULL);
    while (call != NULL) {
        async_call *next = call->next; // the caller's memory ends with done
        call->status = call->fn(call->arg, a->engine);
        if (call->status != PGD_OK) {
            (void)snprintf(call->text, sizeof(call->text), "%s", pgd_fail_text(call->status));
        }
        atomic_store(&call->done, 1);
        atomic_fetch_add(&a->answered, 1);
        pgd_os_futex_wake(&a->answered, UINT32_MAX);
        call = next;
    }
}

static void publish(pgd_async *a) {
    pgd_engine_stats s = {.size = sizeof(s)};
    uint64_t words[STATS_WORDS];
    pgd_engine_get_stats(a->engine, &s);
    memcpy(words, &s, sizeof(s));
    for (size_t i = 0; i < STATS_WORDS; i++) {
        atomic_store_explicit(&a->stats[i], words[i], memory_order_relaxed);
    }
}

static int32_t has_post(pgd_async *a) {
    return atomic_load(&a->mail) != NULL || atomic_load(&a->calls) != NULL ||
           atomic_load(&a->ending) != 0;
}

static void sleep_until_post(pgd_async *a) {
    const uint32_t heard = atomic_load(&a->bell);
    atomic_store(&a->idle, 1);
    if (!has_post(a)) {
        (void)pgd_os_futex_wait(&a->bell, heard, UINT64_MAX);
    }
    atomic_store(&a->idle, 0);
}

static void abort_all(pgd_async *a) {
    for (pgd_request *r = a->engine->requests; r != NULL; r = r->next) {
        pgd_request_cancel(r);
    }
}

static void *run(void *arg) {
    pgd_async *a = arg;
    pgd_engine *e = a->engine;
    current = a;
    for (;;) {
        const int32_t ending = atomic_load(&a->ending) != 0;
        if (has_post(a)) {
            read_mail(a);
            run_calls(a);
            publish(a);
        }
        if (ending) {
            abort_all(a);
        }
        if (pgd_engine_busy(e) > 0) {
            // A failure is told to the requests it ends, and counted in the statistics.
            (void)!pgd_engine_step(e);
            publish(a);
        } else if (ending) {
            break;
        } else {
            sleep_until_post(a);
        }
    }
    current = NULL;
    return NULL;
}

// ---- life --------------------------------------------------------------------------------------

pgd_status pgd_async_create(pgd_engine *e, pgd_async **out) {
    *out = NULL;
    if (e->n_busy > 0 || e->on_ended != NULL) {
        return pgd_fail(PGD_PRECONDITION, "the engine has requests or a thread already");
    }
    pgd_async *a = pgd_mem_alloc(1, sizeof(*a));
    if (a == NULL) {
        return PGD_MEM_FAIL("the engine's thread", sizeof(*a));
    }
    a->engine = e;
    e->on_ended = on_ended;
    e->on_ended_arg = a;
    publish(a);
    pgd_status status = pgd_os_thread_start("pgd-engine", run, a, &a->thread);
    if (status != PGD_OK) {
        e->on_ended = NULL;
        pgd_mem_free(a);
        return pgd_fail(status, "no thread could be started for the engine");
    }
    *out = a;
    return PGD_OK;
}

void pgd_async_destroy(pgd_async *a) {
    if (a == NULL) {
        return;
    }
    atomic_store(&a->closed, 1);
    atomic_store(&a->ending, 1);
    ring(a);
    pgd_os_thread_join(a->thread);
    a->engine->on_ended = NULL;
    pgd_mem_free(a);
}
