// Queues of the null device: copies run at once, numbers are reached on a clock, at
//
//   signal after ops:   max(now, time of the number before) + step_us + rows * token_us
//   signal after none:  with the number before
#include "null.h"

#include <string.h>
#include <time.h>

#define RING (sizeof(((pgd_queue *)0)->times) / sizeof(uint64_t))

static pgd_status queue_create(const pgd_device *d, const pgd_queue_desc *desc, pgd_queue **out) {
    (void)desc;
    *out = d->host->alloc(d->host, sizeof(**out), 0);
    return *out != NULL ? PGD_OK : NULL_FAIL(d, PGD_OUT_OF_MEMORY, "no memory for a queue");
}

static void queue_destroy(const pgd_device *d, pgd_queue *q) {
    d->host->free(d->host, q);
}

static pgd_status check_side(const pgd_device *d, const pgd_buffer *b, uint64_t offset,
                             uint64_t pitch, const pgd_copy *c) {
    uint64_t rows = c->rows > 1 ? c->rows : 1;
    uint64_t end = offset + (rows - 1) * pitch + c->bytes;
    if (b != NULL && (end > b->bytes || end < offset)) {
        return NULL_FAIL(d, PGD_OUT_OF_RANGE, "a copy reaches byte %llu of a buffer of %llu",
                         (unsigned long long)end, (unsigned long long)b->bytes);
    }
    return PGD_OK;
}

static pgd_status queue_copy(const pgd_device *d, pgd_queue *q, const pgd_copy *list, uint32_t n) {
    (void)q;
    for (uint32_t i = 0; i < n; i++) {
        PGD_TRY(check_side(d, list[i].dst, list[i].dst_offset, list[i].dst_pitch, &list[i]));
        PGD_TRY(check_side(d, list[i].src, list[i].src_offset, list[i].src_pitch, &list[i]));
    }
    for (uint32_t i = 0; i < n; i++) {
        const pgd_copy *c = &list[i];
        uint64_t rows = c->rows > 1 ? c->rows : 1;
        for (uint64_t row = 0; row < rows && c->bytes > 0; row++) {
            memmove(null_at(c->dst, c->dst_offset + row * c->dst_pitch),
                    null_at(c->src, c->src_offset + row * c->src_pitch), (size_t)c->bytes);
        }
    }
    return PGD_OK;
}

static pgd_status queue_signal(const pgd_device *d, pgd_queue *q, uint64_t *out_value) {
    uint64_t step_ns = null_of(d)->step_ns + q->tokens * null_of(d)->token_ns;
    if (q->launches > 0 && step_ns > 0) {
        uint64_t now = d->host->clock_ns(d->host);
        q->ready_ns = (q->ready_ns > now ? q->ready_ns : now) + step_ns;
    }
    q->launches = 0;
    q->tokens = 0;
    q->given++;
    q->times[q->given % RING] = q->ready_ns;
    *out_value = q->given;
    return PGD_OK;
}

// Numbers older than the ring are long past.
static uint64_t time_of(const pgd_queue *q, uint64_t value) {
    return q->given - value < RING ? q->times[value % RING] : q->times[(q->given + 1) % RING];
}

static void sleep_ns(uint64_t ns) {
    struct timespec left = {
        .tv_sec = (time_t)(ns / 1000000000u),
        .tv_nsec = (long)(ns % 1000000000u),
    };
    nanosleep(&left, NULL);
}

static pgd_status queue_host_wait(const pgd_device *d, pgd_queue *q, uint64_t value,
                                  uint64_t timeout_ns) {
    uint64_t now = d->host->clock_ns(d->host);
    uint64_t end = timeout_ns > UINT64_MAX - now ? UINT64_MAX : now + timeout_ns;
    if (value > q->given) {
        return NULL_FAIL(d, PGD_TIMEOUT, "number %llu was not given, the last is %llu",
                         (unsigned long long)value, (unsigned long long)q->given);
    }
    uint64_t ready = time_of(q, value);
    while (now < ready) {
        if (now >= end) {
            return NULL_FAIL(d, PGD_TIMEOUT, "number %llu is not reached yet",
                             (unsigned long long)value);
        }
        sleep_ns((ready < end ? ready : end) - now);
        now = d->host->clock_ns(d->host);
    }
    return PGD_OK;
}

static pgd_status queue_wait(const pgd_device *d, pgd_queue *q, pgd_queue *other, uint64_t value) {
    (void)d;
    uint64_t ready = value <= other->given ? time_of(other, value) : 0;
    q->ready_ns = ready > q->ready_ns ? ready : q->ready_ns;
    return PGD_OK;
}

const pgd_queue_table *null_queue(void) {
    static const pgd_queue_table table = {
        .size = sizeof(table),
        .create = queue_create,
        .destroy = queue_destroy,
        .copy = queue_copy,
        .signal = queue_signal,
        .host_wait = queue_host_wait,
        .wait = queue_wait,
    };
    return &table;
}
