// Host memory of copies. Until the copy is passed it is not the host's:
//
//   device -> host   goes to a stage of the layer's; the host's memory is filled with 0xA5 and gets
//                    its bytes when the host has seen the point reached. Who reads too early reads
//                    nonsense, on every device.
//   host -> device   is remembered by its hash; a change before the point is told of.
#include "check.h"

#define POISON 0xA5

static uint64_t rows_of(const pgd_copy *copy) {
    return copy->rows > 1 ? copy->rows : 1;
}

static uint64_t hash_rows(const check_copy *k) {
    uint64_t h = UINT64_C(0xcbf29ce484222325);
    for (uint64_t row = 0; row < k->rows; row++) {
        for (uint64_t i = 0; i < k->bytes; i++) {
            h = (h ^ k->host[row * k->pitch + i]) * UINT64_C(0x100000001b3);
        }
    }
    return h;
}

static int32_t overlaps(const check_copy *k, const unsigned char *at, uint64_t bytes) {
    const uint64_t own = (k->rows - 1) * k->pitch + k->bytes;
    return at < k->host + own && k->host < at + bytes;
}

// A pending copy of that kind (staged or not) touches these bytes.
static int32_t is_pending(const check_queue *q, const unsigned char *at, uint64_t bytes,
                          int32_t staged) {
    for (const check_copy *k = q->copies; k != NULL; k = k->next) {
        if ((k->stage != NULL) == staged && overlaps(k, at, bytes)) {
            return 1;
        }
    }
    return 0;
}

static void deliver(check_copy *k) {
    for (uint64_t row = 0; row < k->rows; row++) {
        memcpy(k->host + row * k->pitch, k->stage + row * k->bytes, (size_t)k->bytes);
    }
}

static void end_copy(check_self *c, check_copy *k) {
    if (k->stage != NULL) {
        deliver(k);
    } else if (hash_rows(k) != k->hash) {
        (void)check_wrong(c,
                          "queue.copy: %llu bytes at %p, which a copy reads, were changed before "
                          "the host had waited for it",
                          (unsigned long long)(k->rows * k->bytes), (const void *)k->host);
    }
    c->host->free(c->host, k->stage);
    c->host->free(c->host, k);
}

// Oldest first, so that of two copies to one place the later one stays.
void check_copies_passed(check_self *c, check_queue *q, int32_t all) {
    check_copy *oldest = NULL;
    check_copy **link = &q->copies;
    while (*link != NULL) {
        check_copy *k = *link;
        if (all || k->work <= q->passed) {
            *link = k->next;
            k->next = oldest;
            oldest = k;
        } else {
            link = &k->next;
        }
    }
    while (oldest != NULL) {
        check_copy *k = oldest;
        oldest = k->next;
        end_copy(c, k);
    }
}

pgd_status check_deliver(const pgd_device *d, check_queue *q) {
    check_self *c = check_of(d);
    uint64_t value = 0;
    check_lock(c);
    int32_t any = 0;
    for (const check_copy *k = q->copies; k != NULL; k = k->next) {
        any |= k->stage != NULL;
    }
    check_unlock(c);
    if (!any) {
        return PGD_OK;
    }
    PGD_TRY(d->next->queue->signal(d->next, q->queue, &value));
    PGD_TRY(d->next->queue->host_wait(d->next, q->queue, value, PGD_WAIT_FOREVER));
    check_lock(c);
    check_copies_passed(c, q, 1);
    check_unlock(c);
    return PGD_OK;
}

// Remembers the host's side of a copy; a destination is replaced by a stage in *to.
static pgd_status take_host(check_self *c, check_queue *q, const pgd_copy *copy, int32_t is_dst,
                            pgd_copy *to) {
    const uint64_t rows = rows_of(copy);
    check_copy *k = c->host->alloc(c->host, sizeof(*k), 0);
    unsigned char *stage = is_dst ? c->host->alloc(c->host, rows * copy->bytes, 64) : NULL;
    if (k == NULL || (is_dst && stage == NULL)) {
        c->host->free(c->host, k);
        c->host->free(c->host, stage);
        return PGD_HOST_FAIL(c->host, PGD_OUT_OF_MEMORY, "no memory for the check layer");
    }
    *k = (check_copy){
        .next = q->copies,
        .work = q->work,
        .stage = stage,
        .host = (unsigned char *)(uintptr_t)(is_dst ? copy->dst_offset : copy->src_offset),
        .bytes = copy->bytes,
        .rows = rows,
        .pitch = rows == 1 ? 0
                 : is_dst  ? copy->dst_pitch
                           : copy->src_pitch,
    };
    if (is_dst) {
        to->dst_offset = (uint64_t)(uintptr_t)stage;
        to->dst_pitch = copy->bytes;
        for (uint64_t row = 0; row < rows; row++) {
            unsigned char *at = k->host + row * k->pitch;
            if (!is_pending(q, at, copy->bytes, 0)) {
                memset(at, POISON, (size_t)copy->bytes);
            }
        }
    } else {
        k->hash = hash_rows(k);
    }
    q->copies = k;
    return PGD_OK;
}

static int32_t reads_pending(const check_queue *q, const pgd_copy *list, uint32_t n) {
    for (uint32_t i = 0; i < n; i++) {
        const uint64_t bytes = (rows_of(&list[i]) - 1) * list[i].src_pitch + list[i].bytes;
        if (list[i].src == NULL &&
            is_pending(q, (const unsigned char *)(uintptr_t)list[i].src_offset, bytes, 1)) {
            return 1;
        }
    }
    return 0;
}

pgd_status check_copy_down(const pgd_device *d, check_queue *q, const pgd_copy *list, uint32_t n) {
    check_self *c = check_of(d);
    pgd_status status = PGD_OK;
    if (reads_pending(q, list, n)) {
        PGD_TRY(check_deliver(d, q));
    }
    pgd_copy *changed = c->host->alloc(c->host, n * sizeof(*changed), 0);
    if (changed == NULL) {
        return PGD_HOST_FAIL(c->host, PGD_OUT_OF_MEMORY, "no memory for the check layer");
    }
    memcpy(changed, list, n * sizeof(*changed));
    check_lock(c);
    for (uint32_t i = 0; i < n && status == PGD_OK; i++) {
        if (list[i].src == NULL && list[i].bytes > 0) {
            status = take_host(c, q, &list[i], 0, &changed[i]);
        }
        if (status == PGD_OK && list[i].dst == NULL && list[i].bytes > 0) {
            status = take_host(c, q, &list[i], 1, &changed[i]);
        }
    }
    check_unlock(c);
    if (status == PGD_OK) {
        status = d->next->queue->copy(d->next, q->queue, changed, n);
    }
    c->host->free(c->host, changed);
    return status;
}
