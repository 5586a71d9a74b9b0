// Level 1, queues: copies, numbers, timeouts, and order across queues.
#include "conform.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"

static uint32_t next(uint64_t *state) {
    *state = *state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (uint32_t)(*state >> 33);
}

static void fill_random(unsigned char *p, uint64_t n, uint64_t seed) {
    for (uint64_t i = 0; i < n; i++) {
        p[i] = (unsigned char)next(&seed);
    }
}

static void compare(conform *c, const unsigned char *want, const unsigned char *got, uint64_t n,
                    const char *what) {
    for (uint64_t i = 0; i < n; i++) {
        MUST(c, want[i] == got[i], "%s: byte %llu of %llu is %d instead of %d", what,
             (unsigned long long)i, (unsigned long long)n, got[i], want[i]);
    }
}

enum { ROOM = 1 << 18 };

// Three copies in one list, host -> a -> b -> host, over sizes and odd offsets.
void conform_copy(conform *c) {
    static const uint64_t bytes[] = {0, 1, 2, 3, 5, 16, 63, 64, 65, 1000, 4096, 100003, ROOM - 77};
    conform_open(c);
    pgd_queue *q = conform_queue(c, PGD_QUEUE_COPY);
    pgd_buffer *a = conform_buffer(c, ROOM), *b = conform_buffer(c, ROOM);
    unsigned char *in = conform_room(c, ROOM), *out = conform_room(c, ROOM);
    unsigned char *all = conform_room(c, ROOM), *before = conform_room(c, ROOM);
    for (size_t i = 0; i < sizeof(bytes) / sizeof(bytes[0]); i++) {
        const uint64_t x = i * 3 % 40, y = i * 7 % 70, n = bytes[i];
        fill_random(in, ROOM, i);
        memset(out, 7, ROOM);
        conform_get(c, q, before, b, 0, ROOM);
        pgd_copy list[] = {
            {.dst = a, .dst_offset = x, .src_offset = (uint64_t)(uintptr_t)in, .bytes = n},
            {.dst = b, .dst_offset = y, .src = a, .src_offset = x, .bytes = n},
            {.dst_offset = (uint64_t)(uintptr_t)out, .src = b, .src_offset = y, .bytes = n}};
        MUST_OK(c, c->d->queue->copy(c->d, q, list, 3), "queue.copy of a list");
        memset(list, 0, sizeof(list)); // lists are read before the call returns
        conform_drain(c, q);
        compare(c, in, out, n, "a copy to the device, on it and back");
        MUST(c, out[n] == 7, "a copy to the host writes behind its end");
        conform_get(c, q, all, b, 0, ROOM);
        memcpy(before + y, in, n);
        compare(c, before, all, ROOM, "the memory around a copy on the device");
    }
    conform_leave(c, q, a, b);
}

void conform_pitch(conform *c) {
    uint64_t state = c->options->seed + 3;
    conform_open(c);
    pgd_queue *q = conform_queue(c, PGD_QUEUE_COMPUTE);
    pgd_buffer *a = conform_buffer(c, ROOM), *b = conform_buffer(c, ROOM);
    unsigned char *in = conform_room(c, ROOM), *out = conform_room(c, ROOM);
    unsigned char *want = conform_room(c, ROOM), *zero = conform_room(c, ROOM);
    for (int32_t i = 0; i < 60; i++) {
        const uint64_t rows = next(&state) % 40, width = 1 + next(&state) % 300;
        const uint64_t p1 = width + next(&state) % 50, p2 = width + next(&state) % 50;
        const uint64_t p3 = width + next(&state) % 50, at = next(&state) % 64;
        const uint64_t n = rows > 1 ? rows : 1; // 0 and 1: one piece
        fill_random(in, ROOM, state);
        conform_put(c, q, a, 0, zero, ROOM);
        conform_put(c, q, b, 0, zero, ROOM);
        memset(out, 0, ROOM);
        memset(want, 0, ROOM);
        const pgd_copy list[] = {{a, at, NULL, (uint64_t)(uintptr_t)in, width, rows, p2, p1},
                                 {b, 0, a, at, width, rows, p3, p2},
                                 {NULL, (uint64_t)(uintptr_t)out, b, 0, width, rows, p1, p3}};
        MUST_OK(c, c->d->queue->copy(c->d, q, list, 3), "queue.copy with pitches");
        conform_drain(c, q);
        for (uint64_t r = 0; r < n; r++) {
            memcpy(want + r * p1, in + r * p1, width);
        }
        compare(c, want, out, ROOM, "rows copied with pitches");
        memset(want, 0, ROOM);
        for (uint64_t r = 0; r < n; r++) {
            memcpy(want + at + r * p2, in + r * p1, width);
        }
        conform_get(c, q, out, a, 0, ROOM);
        compare(c, want, out, ROOM, "the gaps between rows on the device");
    }
    conform_leave(c, q, a, b);
}

// Long chains of dependent copies in lists of any length, without a wait between.
void conform_lists(conform *c) {
    enum { CELLS = 64, CELL = 512, STEPS = 300 };
    uint64_t state = c->options->seed + 11;
    conform_open(c);
    pgd_queue *q = conform_queue(c, PGD_QUEUE_COMPUTE);
    pgd_buffer *b = conform_buffer(c, CELLS * CELL);
    unsigned char *model = conform_room(c, CELLS * CELL), *got = conform_room(c, CELLS * CELL);
    unsigned char *host = conform_room(c, STEPS * CELL);
    fill_random(model, CELLS * CELL, 1);
    conform_put(c, q, b, 0, model, CELLS * CELL);
    for (int32_t i = 0; i < STEPS; i++) {
        pgd_copy list[8];
        const uint32_t n = 1 + next(&state) % 8;
        for (uint32_t k = 0; k < n; k++) {
            const uint64_t to = next(&state) % CELLS, from = next(&state) % CELLS;
            list[k] = (pgd_copy){.dst = b,
                                 .dst_offset = to * CELL,
                                 .src = b,
                                 .src_offset = from * CELL,
                                 .bytes = CELL};
            if (to == from) { // from the host instead, memory that is not used again
                fill_random(host + (uint64_t)i * CELL, CELL, state);
                list[k].src = NULL;
                list[k].src_offset = (uint64_t)(uintptr_t)(host + (uint64_t)i * CELL);
                memcpy(model + to * CELL, host + (uint64_t)i * CELL, CELL);
                list[k].bytes = CELL;
                MUST_OK(c, c->d->queue->copy(c->d, q, list, k + 1), "queue.copy");
                break;
            }
            memcpy(model + to * CELL, model + from * CELL, CELL);
            if (k + 1 == n) {
                MUST_OK(c, c->d->queue->copy(c->d, q, list, n), "queue.copy");
            }
        }
    }
    conform_get(c, q, got, b, 0, CELLS * CELL);
    compare(c, model, got, CELLS * CELL, "a chain of dependent copies in one queue");
    conform_leave(c, q, b, NULL);
}

void conform_fill(conform *c) {
    enum { WORDS = 5000 };
    uint64_t state = 5;
    conform_open(c);
    pgd_queue *q = conform_queue(c, PGD_QUEUE_COMPUTE);
    pgd_buffer *b = conform_buffer(c, WORDS * 4);
    uint32_t *model = conform_room(c, WORDS * 4), *got = conform_room(c, WORDS * 4);
    for (int32_t i = 0; i < 100; i++) {
        const uint64_t at = next(&state) % WORDS, n = next(&state) % (WORDS - at + 1);
        const pgd_range range = {b, at * 4, n * 4};
        const uint32_t pattern = next(&state);
        MUST_OK(c, c->d->queue->fill(c->d, q, &range, pattern), "queue.fill");
        for (uint64_t k = 0; k < n; k++) {
            model[at + k] = pattern;
        }
    }
    conform_get(c, q, got, b, 0, WORDS * 4);
    compare(c, (unsigned char *)model, (unsigned char *)got, WORDS * 4, "fills in order");
    conform_leave(c, q, b, NULL);
}

// ---- numbers -----------------------------------------------------------------------------------

void conform_numbers(conform *c) {
    uint64_t last = 0, value = 0, reached = 0, before = 0;
    pgd_fault fault = {.code = PGD_INTERNAL};
    conform_open(c);
    pgd_queue *q = conform_queue(c, PGD_QUEUE_COMPUTE);
    pgd_buffer *b = conform_buffer(c, 1 << 16);
    uint32_t *seen = conform_room(c, 401 * sizeof(*seen));
    MUST_OK(c, c->d->queue->host_wait(c->d, q, 0, 0), "host_wait for number 0");
    for (uint32_t i = 0; i < 400; i++) {
        // Step i writes i + 1 into its own word of the host.
        const pgd_range range = {b, 0, sizeof(*seen)};
        const pgd_copy copy = {
            .dst_offset = (uint64_t)(uintptr_t)(seen + i), .src = b, .bytes = sizeof(*seen)};
        MUST_OK(c, c->d->queue->fill(c->d, q, &range, i + 1), "queue.fill");
        MUST_OK(c, c->d->queue->copy(c->d, q, &copy, 1), "queue.copy");
        MUST_OK(c, c->d->queue->signal(c->d, q, &value), "queue.signal");
        MUST(c, value > last, "signal gives %llu behind %llu; it counts up from 1",
             (unsigned long long)value, (unsigned long long)last);
        MUST_OK(c, c->d->queue->done(c->d, q, &reached), "queue.done");
        MUST(c, reached <= value, "done is %llu, given were %llu", (unsigned long long)reached,
             (unsigned long long)value);
        MUST(c, reached >= before, "done falls from %llu to %llu", (unsigned long long)before,
             (unsigned long long)reached);
        MUST(c, reached < value || seen[i] == i + 1,
             "done says that number %llu is reached, and the copy before it is not there",
             (unsigned long long)value);
        before = reached;
        last = value;
        if (i % 7 == 3) {
            MUST_OK(c, c->d->queue->host_wait(c->d, q, value, PGD_WAIT_FOREVER), "host_wait");
            MUST_OK(c, c->d->queue->done(c->d, q, &reached), "queue.done");
            MUST(c, reached >= value, "host_wait for %llu returns, done is %llu",
                 (unsigned long long)value, (unsigned long long)reached);
            before = reached;
            MUST(c, seen[i] == i + 1, "host_wait returns before the copy is there");
        }
    }
    MUST_OK(c, c->d->queue->flush(c->d, q), "queue.flush");
    MUST_OK(c, c->d->queue->host_wait(c->d, q, 1, 0), "a poll for a number long past");
    MUST_OK(c, c->d->queue->host_wait(c->d, q, last, PGD_WAIT_FOREVER), "host_wait for the last");
    MUST_OK(c, c->d->queue->status(c->d, q, &fault), "queue.status");
    MUST(c, fault.code == PGD_OK, "a healthy queue reports the fault %s",
         pgd_status_name(fault.code));
    conform_leave(c, q, b, NULL);
}

void conform_timeouts(conform *c) {
    static const uint64_t limits[] = {0, 1, 1000000, 30000000};
    uint64_t value = 0, start, took, patience_ns = UINT64_C(1000000000);
    conform_open(c);
    pgd_queue *q = conform_queue(c, PGD_QUEUE_COMPUTE);
    pgd_buffer *b = conform_buffer(c, 1 << 24);
    unsigned char *bytes = conform_room(c, 1 << 24);
    // A number that was never given is not reached, however long one waits.
    for (size_t i = 0; i < sizeof(limits) / sizeof(limits[0]); i++) {
        start = pgd_clock_ns();
        pgd_status code = c->d->queue->host_wait(c->d, q, 1000000, limits[i]);
        took = pgd_clock_ns() - start;
        MUST(c, code == PGD_TIMEOUT,
             "host_wait for a number that was not given, %llu ns long, gives %s, not TIMEOUT",
             (unsigned long long)limits[i], pgd_status_name(code));
        MUST(c, took < limits[i] + UINT64_C(2000000000), "host_wait of %llu ns takes %llu ns",
             (unsigned long long)limits[i], (unsigned long long)took);
    }
    // Polls behind long work say TIMEOUT or OK, and OK means done.
    for (int32_t i = 0; i < 8; i++) {
        const pgd_copy copy = {
            .dst = b, .src_offset = (uint64_t)(uintptr_t)bytes, .bytes = 1 << 24};
        memset(bytes, i + 1, 1 << 24);
        MUST_OK(c, c->d->queue->copy(c->d, q, &copy, 1), "queue.copy");
        MUST_OK(c, c->d->queue->signal(c->d, q, &value), "queue.signal");
        pgd_status code = PGD_TIMEOUT;
        start = pgd_clock_ns();
        while (code == PGD_TIMEOUT && pgd_clock_ns() - start < patience_ns) {
            code = c->d->queue->host_wait(c->d, q, value, 0);
        }
        if (code == PGD_TIMEOUT) { // a device may be as late as this
            code = c->d->queue->host_wait(c->d, q, value, PGD_WAIT_FOREVER);
            conform_note(c, "polling alone never reaches a number");
            patience_ns = 0;
        }
        MUST_OK(c, code, "a poll");
        unsigned char got[64];
        memset(bytes, 99, 1 << 24); // the queue has passed the copy, so the memory is ours again
        conform_get(c, q, got, b, (1 << 24) - 64, 64);
        MUST(c, got[63] == i + 1, "a poll says reached before the copy is done");
    }
    conform_leave(c, q, b, NULL);
}

// ---- several queues ----------------------------------------------------------------------------

// A value wanders between queues, each step waiting for the one before it in another queue.
static void wander(conform *c, pgd_queue **queues, int32_t n, uint64_t *state) {
    enum { STEPS = 40, BYTES = 40000 };
    unsigned char *in = conform_room(c, BYTES), *out = conform_room(c, BYTES);
    pgd_buffer *chain[STEPS + 1];
    uint64_t value = 0;
    int32_t last = 0;
    for (int32_t i = 0; i <= STEPS; i++) {
        chain[i] = conform_buffer(c, BYTES);
    }
    fill_random(in, BYTES, *state);
    const pgd_copy first = {.dst = chain[0], .src_offset = (uint64_t)(uintptr_t)in, .bytes = BYTES};
    MUST_OK(c, c->d->queue->copy(c->d, queues[0], &first, 1), "queue.copy");
    for (int32_t i = 0; i < STEPS; i++) {
        const int32_t at = (int32_t)(next(state) % (uint32_t)n);
        const pgd_copy copy = {.dst = chain[i + 1], .src = chain[i], .bytes = BYTES};
        if (at != last) {
            MUST_OK(c, c->d->queue->signal(c->d, queues[last], &value), "queue.signal");
            MUST_OK(c, c->d->queue->wait(c->d, queues[at], queues[last], value), "queue.wait");
        }
        MUST_OK(c, c->d->queue->copy(c->d, queues[at], &copy, 1), "queue.copy");
        last = at;
    }
    conform_get(c, queues[last], out, chain[STEPS], 0, BYTES);
    compare(c, in, out, BYTES, "a value that wanders between queues, each waiting for the other");
    for (int32_t i = 0; i <= STEPS; i++) {
        c->d->memory->destroy(c->d, chain[i]);
    }
    free(in);
    free(out);
}

void conform_across(conform *c) {
    static const int32_t roles[] = {PGD_QUEUE_COMPUTE, PGD_QUEUE_COPY, PGD_QUEUE_COPY,
                                    PGD_QUEUE_COMPUTE};
    uint64_t state = c->options->seed + 29;
    pgd_queue *queues[4];
    conform_open(c);
    for (int32_t i = 0; i < 4; i++) {
        queues[i] = conform_queue(c, roles[i]);
    }
    for (int32_t i = 0; i < 12; i++) {
        wander(c, queues, 2 + i % 3, &state);
    }
    for (int32_t i = 0; i < 4; i++) {
        c->d->queue->destroy(c->d, queues[i]);
    }
    conform_close(c);
}

// destroy waits for what is enqueued, and may be called on a queue that did nothing.
void conform_destroy(conform *c) {
    unsigned char *in = conform_room(c, ROOM), *out = conform_room(c, ROOM);
    conform_open(c);
    pgd_buffer *b = conform_buffer(c, ROOM);
    c->d->queue->destroy(c->d, NULL);
    c->d->queue->destroy(c->d, conform_queue(c, PGD_QUEUE_COMPUTE));
    for (int32_t i = 0; i < 10; i++) {
        pgd_queue *q = conform_queue(c, i % 2 == 0 ? PGD_QUEUE_COMPUTE : PGD_QUEUE_COPY);
        fill_random(in, ROOM, (uint64_t)i);
        const pgd_copy list[] = {{.dst = b, .src_offset = (uint64_t)(uintptr_t)in, .bytes = ROOM},
                                 {.dst_offset = (uint64_t)(uintptr_t)out, .src = b, .bytes = ROOM}};
        MUST_OK(c, c->d->queue->copy(c->d, q, list, 2), "queue.copy");
        c->d->queue->destroy(c->d, q);
        compare(c, in, out, ROOM, "copies enqueued before queue.destroy");
    }
    conform_leave(c, NULL, b, NULL);
}

static _Atomic int32_t called;
static _Atomic int32_t told;

static void count_call(void *arg, pgd_status code) {
    (void)arg;
    atomic_store(&told, code);
    atomic_fetch_add(&called, 1);
}

void conform_notify(conform *c) {
    uint64_t value = 0, end;
    unsigned char *bytes = conform_room(c, ROOM);
    conform_open(c);
    pgd_queue *q = conform_queue(c, PGD_QUEUE_COMPUTE);
    pgd_buffer *b = conform_buffer(c, ROOM);
    for (int32_t i = 1; i <= 20; i++) {
        const pgd_copy copy = {.dst = b, .src_offset = (uint64_t)(uintptr_t)bytes, .bytes = ROOM};
        MUST_OK(c, c->d->queue->copy(c->d, q, &copy, 1), "queue.copy");
        MUST_OK(c, c->d->queue->signal(c->d, q, &value), "queue.signal");
        MUST_OK(c, c->d->queue->notify(c->d, q, value, count_call, NULL), "queue.notify");
        MUST_OK(c, c->d->queue->host_wait(c->d, q, value, PGD_WAIT_FOREVER), "host_wait");
        end = pgd_clock_ns() + UINT64_C(5000000000);
        while (atomic_load(&called) < i && pgd_clock_ns() < end) {
        }
        MUST(c, atomic_load(&called) == i, "notify was called %d times for %d numbers",
             (int)atomic_load(&called), (int)i);
        MUST(c, atomic_load(&told) == PGD_OK, "notify says %s", pgd_status_name(told));
    }
    conform_leave(c, q, b, NULL);
}
