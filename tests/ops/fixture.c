// Memory and tensors of a case, once for the reference and once for the device.
//
//   | guard 64 B | elements | guard 64 B |
//
// Guards, gaps between strided rows and whole inputs must come back from the device as they were.
#include "ops.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/fail.h"

enum { GUARD = 64 };

void ops_say(ops_fixture *f, const char *fmt, ...) {
    size_t used = strlen(f->title);
    va_list args;
    va_start(args, fmt);
    vsnprintf(f->title + used, sizeof(f->title) - used, fmt, args);
    va_end(args);
}

static void say_line(const ops_session *s, const char *line) {
    if (s->failed_line != NULL) {
        s->failed_line(s->arg, line);
    } else {
        printf("%s\n", line);
    }
}

void ops_fail(ops_fixture *f, const char *fmt, ...) {
    char line[600];
    va_list args;
    if (f->wrong + f->broken == 0) {
        snprintf(line, sizeof(line), "FAIL %s", f->title);
        say_line(f->session, line);
    }
    memcpy(line, "     ", 5);
    va_start(args, fmt);
    vsnprintf(line + 5, sizeof(line) - 5, fmt, args);
    va_end(args);
    say_line(f->session, line);
    f->wrong++;
}

void ops_open(ops_fixture *f, ops_session *s, const char *name, int32_t number) {
    pgd_dev_desc desc = {.uri = s->uri, .team = s->team, .allow_slow = 1};
    memset(f, 0, sizeof(*f));
    f->session = s;
    f->number = number;
    f->rng = ops_seed(s->seed, name, number);
    f->rng.small = s->small;
    ops_say(f, "%s %d:", name, (int)number);
    if (pgd_dev_open(s->registry, &desc, &f->dev) != PGD_OK) {
        ops_fail(f, "the device cannot be opened: %s", pgd_fail_last());
        f->broken = 1;
        return;
    }
    f->d = pgd_dev_device(f->dev);
    if (s->opened != NULL) {
        s->opened(s->arg, f->dev);
    }
}

int32_t ops_turn(const ops_fixture *f, int32_t n) {
    return f->number % n;
}

// A case that ends early may have left work behind.
static void drain(const ops_fixture *f) {
    uint64_t value = 0;
    if (f->queue != NULL && f->d->queue->signal(f->d, f->queue, &value) == PGD_OK) {
        (void)f->d->queue->host_wait(f->d, f->queue, value, PGD_WAIT_FOREVER);
    }
}

void ops_close(ops_fixture *f) {
    ops_session *s = f->session;
    int32_t i;
    if (!f->broken && f->queue != NULL) { // handles and memories go when the queue has passed them
        ops_drain(f);
    }
    if (f->broken || f->wrong) {
        s->failed++;
    } else {
        s->passed++;
        if (s->verbose) {
            printf("ok   %s\n", f->title);
        }
    }
    if (f->dev != NULL) {
        drain(f);
        ops_handles_close(f);
        pgd_dev_exec_destroy(f->dev, f->exec);
        f->d->queue->destroy(f->d, f->queue);
    }
    for (i = 0; i < f->n_memories; i++) {
        ops_memory *m = &f->memories[i];
        if (f->dev != NULL) {
            f->d->memory->destroy(f->d, m->buffer);
        }
        free(m->host);
        free(m->before);
        free(m->got);
        free(m->mask);
    }
    free(f->mirror);
    if (f->dev != NULL && s->closing != NULL) {
        s->closing(s->arg, f->dev);
    }
    pgd_dev_close(f->dev);
}

// A memory of `bytes` with guards; -1 if there is none.
static int32_t add_memory(ops_fixture *f, uint64_t bytes, uint64_t guards) {
    pgd_buffer_desc desc = {.size = sizeof(desc), .bytes = bytes + guards};
    ops_memory *m = &f->memories[f->n_memories];
    if (f->broken || f->n_memories == OPS_MEMORIES) {
        f->broken = 1;
        return -1;
    }
    m->bytes = desc.bytes;
    m->host = malloc(m->bytes);
    m->before = malloc(m->bytes);
    m->got = malloc(m->bytes);
    m->mask = calloc(1, m->bytes);
    f->n_memories++;
    if (m->host == NULL || m->before == NULL || m->got == NULL || m->mask == NULL ||
        f->d->memory->create(f->d, &desc, &m->buffer) != PGD_OK) {
        ops_fail(f, "no memory for %llu bytes", (unsigned long long)m->bytes);
        f->broken = 1;
        return -1;
    }
    memset(m->host, 0xa5, m->bytes);
    return f->n_memories - 1;
}

int32_t ops_act(ops_fixture *f) {
    const uint32_t taken = pgd_dev_info(f->dev)->act_dtypes;
    const int32_t any = ops_between(&f->rng, 0, 7) == 0;
    int32_t dtype;
    do {
        dtype = ops_float(&f->rng);
    } while (!any && (taken >> dtype & 1u) == 0 &&
             (taken & (1u << PGD_F32 | 1u << PGD_BF16 | 1u << PGD_F16)) != 0);
    return dtype;
}

int32_t ops_rounding(ops_fixture *f, int32_t dtype, int32_t x_dtype) {
    const int32_t choice = (int32_t)ops_between(&f->rng, 0, 2);
    if (choice == 0) {
        return 0;
    }
    return choice == 1 && dtype == PGD_BF16 ? PGD_BF16 : x_dtype;
}

int32_t ops_make_block(ops_fixture *f, uint64_t bytes) {
    int32_t i = add_memory(f, bytes, GUARD);
    if (i >= 0) {
        memset(f->memories[i].host, 0, bytes);
    }
    return i;
}

static double value(ops_fixture *f, int32_t fill) {
    switch (fill) {
    case OPS_FILL_NAN: return NAN;
    case OPS_FILL_ZERO: return 0;
    case OPS_FILL_NEAR_ONE: return 1 + 0.25 * ops_normal(&f->rng);
    case OPS_FILL_INT8: {
        const int64_t n = ops_between(&f->rng, -300, 300);
        return (double)(n > 127 ? 127 : n < -127 ? -127 : n) / 64;
    }
    default: return ops_normal(&f->rng);
    }
}

static void fill_tensor(ops_fixture *f, const ops_tensor *t, int64_t live, int32_t fill) {
    const pgd_tensor *h = &t->side[OPS_HOST];
    const int64_t rows = h->rank > 1 ? h->shape[0] : 1;
    const int64_t pitch = h->rank > 1 ? h->stride[0] : 0;
    int64_t width = h->rank > 1 ? 1 : h->shape[0];
    int64_t r, i;
    uint32_t dim;
    for (dim = 1; dim < h->rank; dim++) {
        width *= h->shape[dim];
    }
    for (r = 0; r < rows; r++) {
        for (i = 0; i < width; i++) {
            double v = h->dtype == PGD_I32 ? -77 : r < live ? value(f, fill) : NAN;
            pgd_ref_store(h->dtype, (void *)(uintptr_t)h->offset, r * pitch + i, v);
        }
    }
}

ops_tensor ops_make(ops_fixture *f, const char *name, int32_t dtype, uint32_t rank,
                    const int64_t *shape, int64_t pitch, int64_t live, int32_t fill) {
    ops_tensor t = {.name = name, .memory = -1};
    pgd_tensor *h = &t.side[OPS_HOST];
    int64_t elements = 1;
    uint32_t i;
    h->dtype = dtype;
    h->rank = rank;
    for (i = rank; i-- > 0;) {
        h->shape[i] = shape[i];
        h->stride[i] = elements;
        elements *= shape[i];
    }
    if (pitch != 0 && rank > 1) {
        h->stride[0] = pitch;
        elements = pitch * shape[0];
    }
    t.memory = add_memory(f, (uint64_t)elements * pgd_dtype_bytes(dtype), 2 * GUARD);
    t.side[OPS_DEV] = *h;
    if (t.memory < 0) {
        return t;
    }
    h->offset = (uint64_t)(uintptr_t)f->memories[t.memory].host + GUARD;
    t.side[OPS_DEV].buffer = f->memories[t.memory].buffer;
    t.side[OPS_DEV].offset = GUARD;
    fill_tensor(f, &t, rank > 1 ? live : 1, fill);
    return t;
}

ops_tensor ops_make2(ops_fixture *f, const char *name, int32_t dtype, int64_t rows, int64_t columns,
                     int64_t live, int32_t fill) {
    const int64_t shape[2] = {rows, columns};
    return ops_make(f, name, dtype, 2, shape, columns + ops_between(&f->rng, 0, 1) * 24, live,
                    fill);
}

ops_tensor ops_make1(ops_fixture *f, const char *name, int32_t dtype, int64_t n, int32_t fill) {
    return ops_make(f, name, dtype, 1, &n, 0, 1, fill);
}

ops_tensor ops_heads(const ops_tensor *t, const char *name, int64_t from, int64_t heads,
                     int64_t dim) {
    ops_tensor view = *t;
    int side;
    view.name = name;
    for (side = 0; side < 2; side++) {
        pgd_tensor *v = &view.side[side];
        v->offset += (uint64_t)from * pgd_dtype_bytes(v->dtype);
        v->rank = 3;
        v->shape[1] = heads;
        v->shape[2] = dim;
        v->stride[1] = dim;
        v->stride[2] = 1;
    }
    return view;
}

void ops_may_write(ops_fixture *f, const ops_tensor *t) {
    const pgd_tensor *d = &t->side[OPS_DEV];
    const uint64_t e = pgd_dtype_bytes(d->dtype);
    const int64_t rows = d->rank > 1 ? d->shape[0] : 1;
    uint64_t width = d->rank > 1 ? 1 : (uint64_t)d->shape[0];
    int64_t r;
    uint32_t dim;
    if (f->broken) {
        return;
    }
    for (dim = 1; dim < d->rank; dim++) {
        width *= (uint64_t)d->shape[dim];
    }
    for (r = 0; r < rows; r++) {
        uint64_t at = d->offset + (d->rank > 1 ? (uint64_t)(r * d->stride[0]) * e : 0);
        memset(f->memories[t->memory].mask + at, 1, width * e);
    }
}

void ops_restart(ops_fixture *f) {
    int32_t i;
    for (i = 0; i < f->n_memories && !f->broken; i++) {
        ops_memory *m = &f->memories[i];
        ops_upload(f, m->buffer, 0, m->before, m->bytes);
    }
}
