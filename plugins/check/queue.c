// Queues: numbers given, numbers the host has seen reached, and so what work is passed.
#include "check.h"

check_queue *check_queue_of(check_self *c, pgd_queue *q) {
    return (check_queue *)check_find(c, q, CHECK_QUEUE); // the handle is its first member
}

void check_work(check_queue *q) {
    q->work++;
}

void check_used(check_self *c, const void *key, int32_t kind, check_queue *q) {
    check_handle *h = check_find(c, key, kind);
    check_use *to = h != NULL ? &h->uses[0] : NULL;
    for (int32_t i = 0; h != NULL && i < CHECK_MAX_USES; i++) {
        check_use *u = &h->uses[i];
        if (u->queue == q) {
            to = u;
            break;
        }
        if (u->queue == NULL || u->work <= u->queue->passed) {
            to = u;
        }
    }
    if (to != NULL) {
        *to = (check_use){.queue = q, .work = q->work};
    }
}

static pgd_status add_point(check_self *c, check_queue *q, const check_point *p) {
    if (q->n_points == q->cap_points) {
        const uint32_t cap = q->cap_points == 0 ? 64 : 2 * q->cap_points;
        check_point *grown = c->host->alloc(c->host, cap * sizeof(*grown), 0);
        if (grown == NULL) {
            return PGD_HOST_FAIL(c->host, PGD_OUT_OF_MEMORY, "no memory for the check layer");
        }
        if (q->n_points > 0) {
            memcpy(grown, q->points, q->n_points * sizeof(*grown));
        }
        c->host->free(c->host, q->points);
        q->points = grown;
        q->cap_points = cap;
    }
    q->points[q->n_points++] = *p;
    return PGD_OK;
}

// The host knows that q has reached value, and so whatever q had waited for.
static void pass(check_self *c, check_queue *q, uint64_t value) {
    uint32_t n = 0;
    for (uint32_t i = 0; i < q->n_points; i++) {
        const check_point *p = &q->points[i];
        if (p->other == NULL && p->value <= value && p->work > q->passed) {
            q->passed = p->work;
        }
    }
    for (uint32_t i = 0; i < q->n_points; i++) {
        const check_point p = q->points[i];
        if (p.other != NULL && p.work <= q->passed) {
            pass(c, p.other, p.value);
        } else if (p.other != NULL || p.value > value) {
            q->points[n++] = p;
        }
    }
    q->n_points = n;
    check_copies_passed(c, q, 0);
}

static void seen(const pgd_device *d, pgd_queue *queue, uint64_t value) {
    check_self *c = check_of(d);
    check_lock(c);
    check_queue *q = check_queue_of(c, queue);
    if (q != NULL) {
        pass(c, q, value);
    }
    check_unlock(c);
}

// Nothing speaks of a queue that is gone.
static void forget_queue(check_self *c, const check_queue *gone) {
    for (uint32_t i = 0; i < c->handles.cap; i++) {
        check_handle *h = c->handles.values[i];
        for (int32_t k = 0; h != NULL && k < CHECK_MAX_USES; k++) {
            if (h->uses[k].queue == gone) {
                h->uses[k] = (check_use){0};
            }
        }
        if (h != NULL && h->kind == CHECK_QUEUE) {
            check_queue *q = (check_queue *)h;
            uint32_t n = 0;
            for (uint32_t k = 0; k < q->n_points; k++) {
                if (q->points[k].other != gone) {
                    q->points[n++] = q->points[k];
                }
            }
            q->n_points = n;
        }
    }
}

void check_free_queue(check_self *c, check_queue *q) {
    check_copies_passed(c, q, 1);
    c->host->free(c->host, q->points);
    c->host->free(c->host, q);
}

// ---- calls -------------------------------------------------------------------------------------

static pgd_status queue_create(const pgd_device *d, const pgd_queue_desc *desc, pgd_queue **out) {
    check_self *c = check_of(d);
    *out = NULL;
    PGD_TRY(d->next->queue->create(d->next, desc, out));
    check_lock(c);
    check_queue *q = c->host->alloc(c->host, sizeof(*q), 0);
    if (q != NULL) {
        q->handle.kind = CHECK_QUEUE;
        q->queue = *out;
    }
    const pgd_status status = check_add(c, *out, q != NULL ? &q->handle : NULL);
    check_unlock(c);
    if (status != PGD_OK) {
        d->next->queue->destroy(d->next, *out);
        *out = NULL;
    }
    return status;
}

static void queue_destroy(const pgd_device *d, pgd_queue *queue) {
    check_self *c = check_of(d);
    check_lock(c);
    const int32_t known = queue == NULL || check_queue_of(c, queue) != NULL;
    check_unlock(c);
    if (known || !c->stop) {
        d->next->queue->destroy(d->next, queue); // waits for what is enqueued
    }
    check_lock(c);
    check_queue *q = check_queue_of(c, queue);
    check_end(c, queue, CHECK_QUEUE);
    if (q != NULL) {
        forget_queue(c, q);
        check_free_queue(c, q);
    }
    check_unlock(c);
}

static pgd_status queue_copy(const pgd_device *d, pgd_queue *queue, const pgd_copy *list,
                             uint32_t n) {
    check_self *c = check_of(d);
    check_lock(c);
    pgd_status status = check_alive(c, queue, CHECK_QUEUE, "queue.copy");
    for (uint32_t i = 0; i < n && status == PGD_OK; i++) {
        const uint64_t rows = list[i].rows > 1 ? list[i].rows - 1 : 0;
        status = check_range(c, list[i].dst, list[i].dst_offset,
                             rows * list[i].dst_pitch + list[i].bytes, "queue.copy, dst");
        if (status == PGD_OK) {
            status = check_range(c, list[i].src, list[i].src_offset,
                                 rows * list[i].src_pitch + list[i].bytes, "queue.copy, src");
        }
    }
    check_queue *q = check_queue_of(c, queue);
    if (status == PGD_OK && q != NULL) {
        check_work(q);
        for (uint32_t i = 0; i < n; i++) {
            check_used(c, list[i].dst, CHECK_BUFFER, q);
            check_used(c, list[i].src, CHECK_BUFFER, q);
        }
    }
    check_unlock(c);
    PGD_TRY(status);
    return q != NULL ? check_copy_down(d, q, list, n)
                     : d->next->queue->copy(d->next, queue, list, n);
}

static pgd_status queue_fill(const pgd_device *d, pgd_queue *queue, const pgd_range *range,
                             uint32_t pattern) {
    check_self *c = check_of(d);
    check_lock(c);
    pgd_status status = check_alive(c, queue, CHECK_QUEUE, "queue.fill");
    if (status == PGD_OK) {
        status = check_range(c, range->buffer, range->offset, range->bytes, "queue.fill");
    }
    if (status == PGD_OK && (range->offset % 4 != 0 || range->bytes % 4 != 0)) {
        status = check_wrong(c, "queue.fill: %llu bytes at %llu are no multiples of 4",
                             (unsigned long long)range->bytes, (unsigned long long)range->offset);
    }
    check_queue *q = check_queue_of(c, queue);
    if (status == PGD_OK && q != NULL) {
        check_work(q);
        check_used(c, range->buffer, CHECK_BUFFER, q);
    }
    check_unlock(c);
    PGD_TRY(status);
    return d->next->queue->fill(d->next, queue, range, pattern);
}

static pgd_status queue_signal(const pgd_device *d, pgd_queue *queue, uint64_t *out_value) {
    check_self *c = check_of(d);
    check_lock(c);
    pgd_status status = check_alive(c, queue, CHECK_QUEUE, "queue.signal");
    check_unlock(c);
    PGD_TRY(status);
    PGD_TRY(d->next->queue->signal(d->next, queue, out_value));
    check_lock(c);
    check_queue *q = check_queue_of(c, queue);
    if (q != NULL) {
        const check_point p = {.value = *out_value, .work = q->work};
        if (*out_value <= q->given) {
            status = check_wrong(c, "queue.signal: the device gave number %llu after %llu",
                                 (unsigned long long)*out_value, (unsigned long long)q->given);
        }
        q->given = *out_value > q->given ? *out_value : q->given;
        status = status == PGD_OK ? add_point(c, q, &p) : status;
    }
    check_unlock(c);
    return status;
}

// A number that was never given is reached by nobody; polling for one is allowed.
static pgd_status check_number(check_self *c, pgd_queue *queue, uint64_t value, const char *where) {
    PGD_TRY(check_alive(c, queue, CHECK_QUEUE, where));
    const check_queue *q = check_queue_of(c, queue);
    return q == NULL || value <= q->given
               ? PGD_OK
               : check_wrong(c, "%s: number %llu was never given, the last is %llu", where,
                             (unsigned long long)value, (unsigned long long)q->given);
}

static pgd_status queue_host_wait(const pgd_device *d, pgd_queue *queue, uint64_t value,
                                  uint64_t timeout_ns) {
    check_self *c = check_of(d);
    check_lock(c);
    pgd_status status = timeout_ns > 0 ? check_number(c, queue, value, "queue.host_wait")
                                       : check_alive(c, queue, CHECK_QUEUE, "queue.host_wait");
    check_unlock(c);
    PGD_TRY(status);
    PGD_TRY(d->next->queue->host_wait(d->next, queue, value, timeout_ns));
    seen(d, queue, value);
    return PGD_OK;
}

static pgd_status queue_wait(const pgd_device *d, pgd_queue *queue, pgd_queue *other,
                             uint64_t value) {
    check_self *c = check_of(d);
    check_lock(c);
    pgd_status status = check_alive(c, queue, CHECK_QUEUE, "queue.wait");
    if (status == PGD_OK) {
        status = check_number(c, other, value, "queue.wait");
    }
    check_queue *q = check_queue_of(c, queue);
    check_queue *of = check_queue_of(c, other);
    if (status == PGD_OK && q != NULL && of != NULL) {
        check_work(q);
        const check_point p = {.value = value, .work = q->work, .other = of};
        status = add_point(c, q, &p);
    }
    check_unlock(c);
    PGD_TRY(status);
    return d->next->queue->wait(d->next, queue, other, value);
}

static pgd_status queue_done(const pgd_device *d, pgd_queue *queue, uint64_t *out_value) {
    PGD_TRY(d->next->queue->done(d->next, queue, out_value));
    seen(d, queue, *out_value);
    return PGD_OK;
}

typedef struct told {
    const pgd_device *d;
    pgd_queue *queue;
    uint64_t value;
    pgd_notify_fn fn;
    void *arg;
} told;

static void tell(void *arg, pgd_status code) {
    const told t = *(const told *)arg;
    t.d->host->free(t.d->host, arg);
    if (code == PGD_OK) {
        seen(t.d, t.queue, t.value);
    }
    t.fn(t.arg, code);
}

static pgd_status queue_notify(const pgd_device *d, pgd_queue *queue, uint64_t value,
                               pgd_notify_fn fn, void *arg) {
    check_self *c = check_of(d);
    check_lock(c);
    pgd_status status = check_number(c, queue, value, "queue.notify");
    check_unlock(c);
    PGD_TRY(status);
    told *t = c->host->alloc(c->host, sizeof(*t), 0);
    if (t == NULL) {
        return PGD_HOST_FAIL(c->host, PGD_OUT_OF_MEMORY, "no memory for the check layer");
    }
    *t = (told){.d = d, .queue = queue, .value = value, .fn = fn, .arg = arg};
    status = d->next->queue->notify(d->next, queue, value, tell, t);
    if (status != PGD_OK) {
        c->host->free(c->host, t);
    }
    return status;
}

const pgd_queue_table *check_queues(void) {
    static const pgd_queue_table table = {.size = sizeof(table),
                                          .create = queue_create,
                                          .destroy = queue_destroy,
                                          .copy = queue_copy,
                                          .signal = queue_signal,
                                          .host_wait = queue_host_wait,
                                          .fill = queue_fill,
                                          .wait = queue_wait,
                                          .done = queue_done,
                                          .notify = queue_notify};
    return &table;
}
