// Planning a case and running its ops on both sides.
#include "ops.h"

#include <stdio.h>
#include <string.h>

#include "base/fail.h"

typedef struct op_info {
    const char *name;
    uint32_t bytes;
    int32_t family;
} op_info;

static const op_info ops_table[PGD_OP_COUNT] = {
#define OPS_INFO(name, family) {#name, sizeof(pgd_##name##_args), PGD_FAMILY_##family},
    PGD_OP_LIST(OPS_INFO)
#undef OPS_INFO
};

const char *ops_name(int32_t op) {
    return op >= 0 && op < PGD_OP_COUNT ? ops_table[op].name : "?";
}

static pgd_status call(const pgd_ops *ops, int32_t op, const pgd_exec *x, const void *args) {
    switch (op) {
#define OPS_CALL(name, family) \
    case PGD_OP_##name: return ops->name(x, (const pgd_##name##_args *)args);
        PGD_OP_LIST(OPS_CALL)
#undef OPS_CALL
    default: return PGD_INVALID;
    }
}

// Takes the addresses out of the args of a question.
static void strip(int32_t op_number, void *args) {
#define OPS_STRIP(op, field, mode)  \
    if (op_number == PGD_OP_##op) { \
        pgd_##op##_args *a = args;  \
        a->field.buffer = NULL;     \
        a->field.offset = 0;        \
    }
    PGD_OP_IO(OPS_STRIP)
#undef OPS_STRIP
}

int32_t ops_ask(ops_fixture *f, int32_t op, const void *args) {
    ops_ask_entry *e = &f->asks[f->n_asks];
    if (f->n_asks == OPS_ASKS || ops_table[op].bytes > sizeof(e->args)) {
        f->broken = 1;
        return 0;
    }
    e->op = op;
    memcpy(&e->args, args, ops_table[op].bytes);
    strip(op, &e->args);
    return f->n_asks++;
}

int32_t ops_is_invariant(const ops_fixture *f, int32_t ask) {
    return (f->places[ask].flags & PGD_SUPPORT_INVARIANT) != 0;
}

static void count_places(ops_fixture *f) {
    int32_t i;
    for (i = 0; i < f->n_asks; i++) {
        f->session->planned[f->asks[i].op]++;
        f->session->places[f->asks[i].op][f->places[i].place & 3]++;
        f->session->variant[f->asks[i].op] += !ops_is_invariant(f, i);
        ops_say(f, " [%s%s%s]", f->places[i].kernel, f->places[i].reason[0] != '\0' ? ": " : "",
                f->places[i].reason);
    }
}

void ops_ready(ops_fixture *f) {
    pgd_query queries[OPS_ASKS];
    pgd_queue_desc desc = {.size = sizeof(desc)};
    uint64_t scratch = 0;
    pgd_status code;
    int32_t i;
    if (f->broken) {
        return;
    }
    for (i = 0; i < f->n_asks; i++) {
        int32_t family = ops_table[f->asks[i].op].family;
        queries[i] = (pgd_query){
            .size = sizeof(pgd_query),
            .op = f->asks[i].op,
            .args = &f->asks[i].args,
            .weight = (family & PGD_FAMILY_WEIGHT) != 0 ? &f->weight_desc : NULL,
            .kv = (family & PGD_FAMILY_KV) != 0 ? &f->kv_desc : NULL,
            .batch = &f->batch[OPS_DEV],
        };
    }
    code = pgd_dev_plan(f->dev, queries, (uint32_t)f->n_asks, f->places);
    for (i = 0; code == PGD_OK && i < f->n_asks; i++) {
        scratch = f->places[i].scratch > scratch ? f->places[i].scratch : scratch;
    }
    if (code == PGD_OK) {
        code = f->d->queue->create(f->d, &desc, &f->queue);
    }
    if (code == PGD_OK) {
        code = pgd_dev_exec_create(f->dev, f->queue, scratch, &f->exec);
    }
    if (code != PGD_OK) {
        ops_fail(f, "the case cannot be planned: %s", pgd_fail_last());
        f->broken = 1;
        return;
    }
    count_places(f);
    for (i = 0; i < f->n_memories; i++) {
        ops_memory *m = &f->memories[i];
        memcpy(m->before, m->host, m->bytes);
        ops_upload(f, m->buffer, 0, m->before, m->bytes);
    }
    ops_handles_ready(f);
}

void ops_drain(ops_fixture *f) {
    uint64_t value = 0;
    pgd_status code = f->d->queue->signal(f->d, f->queue, &value);
    if (code == PGD_OK) {
        code = f->d->queue->host_wait(f->d, f->queue, value, PGD_WAIT_FOREVER);
    }
    if (code != PGD_OK) {
        ops_fail(f, "the queue fails: %s", pgd_fail_last());
        f->broken = 1;
    }
}

static void copy(ops_fixture *f, const pgd_copy *c) {
    if (f->broken || f->queue == NULL || c->bytes == 0) {
        return;
    }
    if (f->d->queue->copy(f->d, f->queue, c, 1) != PGD_OK) {
        ops_fail(f, "the copy fails: %s", pgd_fail_last());
        f->broken = 1;
        return;
    }
    ops_drain(f);
}

void ops_upload(ops_fixture *f, pgd_buffer *to, uint64_t offset, const void *from, uint64_t bytes) {
    copy(f, &(pgd_copy){.dst = to,
                        .dst_offset = offset,
                        .src_offset = (uint64_t)(uintptr_t)from,
                        .bytes = bytes});
}

void ops_download(ops_fixture *f, void *to, pgd_buffer *from, uint64_t offset, uint64_t bytes) {
    copy(f, &(pgd_copy){.dst_offset = (uint64_t)(uintptr_t)to,
                        .src = from,
                        .src_offset = offset,
                        .bytes = bytes});
}

void ops_run_dev(ops_fixture *f, int32_t op, const void *dev_args) {
    if (f->broken) {
        return;
    }
    if (call(f->d->ops, op, f->exec, dev_args) != PGD_OK) {
        ops_fail(f, "%s is refused by the device: %s", ops_name(op), pgd_fail_last());
        f->broken = 1;
    }
}

void ops_run(ops_fixture *f, int32_t op, const void *host_args, const void *dev_args) {
    pgd_status code;
    if (f->broken) {
        return;
    }
    code = call(pgd_ref_ops(), op, NULL, host_args);
    if (code != PGD_OK) {
        ops_fail(f, "%s is refused by the reference: %s", ops_name(op), pgd_status_name(code));
        f->broken = 1;
        return;
    }
    ops_run_dev(f, op, dev_args);
}

void ops_fetch(ops_fixture *f) {
    int32_t i;
    uint64_t j;
    if (!f->broken) {
        ops_drain(f);
    }
    for (i = 0; i < f->n_memories && !f->broken; i++) {
        ops_memory *m = &f->memories[i];
        ops_download(f, m->got, m->buffer, 0, m->bytes);
        for (j = 0; j < m->bytes && !f->broken; j++) {
            if (m->mask[j] == 0 && m->got[j] != m->before[j]) {
                ops_fail(f, "memory %d of %d: byte %llu of %llu was written and should not be",
                         (int)i, (int)f->n_memories, (unsigned long long)j,
                         (unsigned long long)m->bytes);
                break;
            }
        }
    }
}

void ops_adopt(ops_fixture *f, const ops_tensor *t) {
    ops_memory *m = &f->memories[t->memory];
    if (!f->broken) {
        memcpy(m->host, m->got, m->bytes);
    }
}
