// The reference kernels as ops of any device: what runs where neither the plugin nor a composition
// does.
//
//   args            local copy of args
//   x   (buffer) -> stage: dense rows       device -> host before, all tensors
//   out (buffer) -> stage: dense rows       host -> device after, those that are written
//   batch        -> stage: the block        host -> device after: last, sampled
//
// A tensor in memory that the CPU sees is used where it lies. Tensors that are only written are
// brought over too, so that rows which the op leaves alone keep their contents. Which tensors an
// op has is PGD_OP_IO; nothing here is written per op.
#include "dev/inner.h"

#include <string.h>

#include "base/fail.h"
#include "base/mem.h"

#define STAGE_ALIGN  64
#define MAX_TENSORS  16
#define COPIES       32
#define MAX_ARGS     2048
#define BATCH_COPIES (3 + PGD_MAX_GROUPS)

enum { IO_IN = 0, IO_OUT = 1, IO_IO = 1, IO_TMP = 1 }; // 1: copied back

typedef struct io {
    int32_t op;
    uint32_t offset; // of the tensor in the args
    int32_t back;
} io;

static const io ios[] = {
#define IO(op, field, mode) {PGD_OP_##op, (uint32_t)offsetof(pgd_##op##_args, field), IO_##mode},
    PGD_OP_IO(IO)
#undef IO
};

#define NO_FIELD          UINT32_MAX
#define W_NONE(name)      NO_FIELD
#define W_KV(name)        NO_FIELD
#define W_WEIGHT(name)    (uint32_t) offsetof(pgd_##name##_args, w)
#define W_WEIGHT_KV(name) W_WEIGHT(name)
#define K_NONE(name)      NO_FIELD
#define K_WEIGHT(name)    NO_FIELD
#define K_KV(name)        (uint32_t) offsetof(pgd_##name##_args, kv)
#define K_WEIGHT_KV(name) K_KV(name)

static const uint32_t weight_fields[PGD_OP_COUNT] = {
#define FIELD(name, family) W_##family(name),
    PGD_OP_LIST(FIELD)
#undef FIELD
};

static const uint32_t kv_fields[PGD_OP_COUNT] = {
#define FIELD(name, family) K_##family(name),
    PGD_OP_LIST(FIELD)
#undef FIELD
};

// ---- copies of one tensor ----------------------------------------------------------------------

uint64_t pgd_dev_tensor_bytes(const pgd_tensor *t) {
    uint64_t n = pgd_dtype_bytes(t->dtype);
    for (uint32_t i = 0; i < t->rank; i++) {
        n *= (uint64_t)t->shape[i];
    }
    return t->rank == 0 ? 0 : n;
}

// A tensor as rows of `run` bytes without gaps: dimension `row_dim` (-1: one run) has a pitch, the
// dimensions before it are walked.
typedef struct walk {
    uint64_t run;
    uint64_t rows;
    uint64_t pitch;
    int32_t row_dim;
    int32_t reserved0;
} walk;

static walk walk_of(const pgd_tensor *t) {
    uint64_t item = pgd_dtype_bytes(t->dtype);
    int32_t dim = (int32_t)t->rank - 2;
    walk w = {.run = (uint64_t)t->shape[t->rank - 1] * item, .rows = 1, .row_dim = -1};
    while (dim >= 0 && (t->shape[dim] == 1 || (uint64_t)t->stride[dim] * item == w.run)) {
        w.run *= (uint64_t)t->shape[dim];
        dim--;
    }
    if (dim >= 0) {
        w.row_dim = dim;
        w.rows = (uint64_t)t->shape[dim];
        w.pitch = (uint64_t)t->stride[dim] * item;
    }
    return w;
}

static pgd_copy one_copy(const walk *w, const pgd_tensor *t, uint64_t device, uint64_t host,
                         int32_t out) {
    pgd_copy c = {.bytes = w->run, .rows = w->rows};
    c.dst = out ? t->buffer : NULL;
    c.src = out ? NULL : t->buffer;
    c.dst_offset = out ? device : host;
    c.src_offset = out ? host : device;
    c.dst_pitch = out ? w->pitch : w->run;
    c.src_pitch = out ? w->run : w->pitch;
    return c;
}

pgd_status pgd_dev_copy_tensor(const pgd_device *d, pgd_queue *q, const pgd_tensor *t,
                               unsigned char *host, int32_t out) {
    walk w = walk_of(t);
    uint64_t item = pgd_dtype_bytes(t->dtype);
    uint64_t n_outer = 1;
    pgd_copy list[COPIES];
    uint32_t n = 0;
    if (pgd_dev_tensor_bytes(t) == 0) {
        return PGD_OK;
    }
    for (int32_t i = 0; i < w.row_dim; i++) {
        n_outer *= (uint64_t)t->shape[i];
    }
    for (uint64_t outer = 0; outer < n_outer; outer++) {
        uint64_t device = t->offset;
        uint64_t left = outer;
        for (int32_t i = w.row_dim - 1; i >= 0; i--) {
            device += left % (uint64_t)t->shape[i] * (uint64_t)t->stride[i] * item;
            left /= (uint64_t)t->shape[i];
        }
        uint64_t at = (uint64_t)(uintptr_t)host + outer * w.rows * w.run;
        list[n++] = one_copy(&w, t, device, at, out);
        if (n == COPIES || outer + 1 == n_outer) {
            PGD_TRY(d->queue->copy(d, q, list, n));
            n = 0;
        }
    }
    return PGD_OK;
}

void *pgd_dev_address(const pgd_device *d, pgd_buffer *buffer, uint64_t offset) {
    void *base = NULL;
    if (buffer == NULL) {
        return (void *)(uintptr_t)offset;
    }
    const pgd_dev *dev = (const pgd_dev *)d; // device is the first member
    if (!dev->maps || dev->native.memory.map(d, buffer, &base) != PGD_OK || base == NULL) {
        return NULL;
    }
    return (unsigned char *)base + offset;
}

// ---- one call ----------------------------------------------------------------------------------

typedef struct staged {
    pgd_tensor device; // as the caller gave it
    uint32_t field;    // offset in the args
    int32_t back;
    uint64_t at; // in the stage
} staged;

typedef struct call {
    const pgd_device *d;
    pgd_dev *dev;
    pgd_queue *queue;
    int32_t op;
    uint32_t n;
    uint64_t bytes; // of the stage
    staged tensors[MAX_TENSORS];
    pgd_batch batch;
    uint64_t batch_at;
    int32_t batch_is_staged;
    uint32_t n_pieces;
    pgd_range pieces[BATCH_COPIES]; // of the batch block
    union {
        unsigned char bytes[MAX_ARGS];
        uint64_t align;
    } args;
} call;

static pgd_tensor *tensor_at(call *c, uint32_t field) {
    return (pgd_tensor *)(void *)(c->args.bytes + field);
}

static uint64_t take(call *c, uint64_t bytes) {
    uint64_t at = c->bytes;
    c->bytes += (bytes + STAGE_ALIGN - 1) / STAGE_ALIGN * STAGE_ALIGN;
    return at;
}

static void make_dense(pgd_tensor *t) {
    int64_t stride = 1;
    for (uint32_t i = t->rank; i-- > 0;) {
        t->stride[i] = stride;
        stride *= t->shape[i];
    }
}

static void find_tensors(call *c) {
    for (size_t i = 0; i < sizeof(ios) / sizeof(ios[0]); i++) {
        if (ios[i].op != c->op) {
            continue;
        }
        pgd_tensor *t = tensor_at(c, ios[i].offset);
        if (t->rank == 0 || t->buffer == NULL) {
            continue;
        }
        void *address = pgd_dev_address(c->d, t->buffer, t->offset);
        if (address != NULL) {
            t->buffer = NULL;
            t->offset = (uint64_t)(uintptr_t)address;
            continue;
        }
        staged *s = &c->tensors[c->n++];
        *s = (staged){.device = *t, .field = ios[i].offset, .back = ios[i].back};
        s->at = take(c, pgd_dev_tensor_bytes(t));
    }
}

static void add_piece(call *c, uint64_t offset, uint64_t bytes, uint64_t *end) {
    if (bytes > 0) {
        c->pieces[c->n_pieces++] = (pgd_range){.offset = offset, .bytes = bytes};
        *end = offset + bytes > *end ? offset + bytes : *end;
    }
}

// The block keeps its layout in the stage; only the pieces an op of this kind reads are filled.
static void find_batch(call *c, const pgd_batch *given) {
    uint64_t end = 0;
    c->batch = *given;
    if (given->mem == NULL) {
        return;
    }
    c->batch.mem = NULL;
    c->batch.mirror = pgd_dev_address(c->d, given->mem, 0);
    if (c->batch.mirror != NULL) {
        return;
    }
    c->batch_is_staged = 1;
    add_piece(c, 0, given->upload_bytes, &end);
    if (given->last != 0) {
        add_piece(c, given->last, 4 * (uint64_t)given->cap_slots, &end);
    }
    if (given->sampled != 0) {
        add_piece(c, given->sampled, 4 * (uint64_t)given->cap_out, &end);
    }
    for (int32_t g = 0; g < given->n_groups && g < PGD_MAX_GROUPS; g++) {
        if (given->block_table[g] != 0 && kv_fields[c->op] != NO_FIELD) {
            uint64_t n = (uint64_t)given->cap_slots * (uint64_t)given->cap_blocks[g];
            add_piece(c, given->block_table[g], 4 * n, &end);
        }
    }
    c->batch_at = take(c, end);
}

static pgd_status copy_piece(call *c, pgd_buffer *mem, unsigned char *block, pgd_range piece,
                             int32_t out) {
    uint64_t host = (uint64_t)(uintptr_t)(block + piece.offset);
    pgd_copy copy = {
        .dst = out ? mem : NULL,
        .dst_offset = out ? piece.offset : host,
        .src = out ? NULL : mem,
        .src_offset = out ? host : piece.offset,
        .bytes = piece.bytes,
    };
    return c->d->queue->copy(c->d, c->queue, &copy, 1);
}

static pgd_status grow_stage(const pgd_exec *x, uint64_t bytes) {
    pgd_dev_exec *own = (pgd_dev_exec *)(uintptr_t)x; // exec is the first member
    if (bytes <= own->stage_bytes) {
        return PGD_OK;
    }
    PGD_TRY(pgd_dev_drain(x->dev, x->queue)); // copies out of the old stage may be under way
    unsigned char *grown = pgd_mem_alloc_aligned((size_t)bytes, STAGE_ALIGN);
    if (grown == NULL) {
        return PGD_MEM_FAIL("tensors of an operation that runs on the host", bytes);
    }
    pgd_mem_free(own->stage);
    own->stage = grown;
    own->stage_bytes = bytes;
    return PGD_OK;
}

// Brings everything over and points the local args at it.
static pgd_status bring(call *c, const pgd_exec *x, const pgd_batch *given) {
    PGD_TRY(grow_stage(x, c->bytes));
    unsigned char *stage = ((pgd_dev_exec *)(uintptr_t)x)->stage;
    for (uint32_t i = 0; i < c->n; i++) {
        staged *s = &c->tensors[i];
        pgd_tensor *t = tensor_at(c, s->field);
        PGD_TRY(pgd_dev_copy_tensor(c->d, c->queue, &s->device, stage + s->at, 0));
        t->buffer = NULL;
        t->offset = (uint64_t)(uintptr_t)(stage + s->at);
        make_dense(t);
    }
    for (uint32_t i = 0; i < c->n_pieces; i++) {
        PGD_TRY(copy_piece(c, given->mem, stage + c->batch_at, c->pieces[i], 0));
    }
    if (c->batch_is_staged) {
        c->batch.mirror = stage + c->batch_at;
    }
    return pgd_dev_drain(c->d, c->queue);
}

// Copies back what the op may have written. The stage is not touched before the next drain.
static pgd_status give_back(call *c, const pgd_exec *x, const pgd_batch *given) {
    unsigned char *stage = ((pgd_dev_exec *)(uintptr_t)x)->stage;
    for (uint32_t i = 0; i < c->n; i++) {
        const staged *s = &c->tensors[i];
        if (s->back) {
            PGD_TRY(pgd_dev_copy_tensor(c->d, c->queue, &s->device, stage + s->at, 1));
        }
    }
    if (!c->batch_is_staged || (c->op != PGD_OP_argmax && c->op != PGD_OP_sample)) {
        return PGD_OK;
    }
    for (uint32_t i = 0; i < c->n_pieces; i++) {
        pgd_range p = c->pieces[i];
        if (p.offset == given->last || p.offset == given->sampled) {
            PGD_TRY(copy_piece(c, given->mem, stage + c->batch_at, p, 1));
        }
    }
    return PGD_OK;
}

// Handles of a family in host memory are what the kernels read; native ones have a mirror.
static pgd_status find_handles(call *c) {
    uint32_t w = weight_fields[c->op];
    uint32_t k = kv_fields[c->op];
    if (w != NO_FIELD && c->dev->weight_native) {
        pgd_weight **slot = (pgd_weight **)(void *)(c->args.bytes + w);
        const pgd_ref_weight *ref = NULL;
        PGD_TRY(pgd_dev_mirror_weight(c->dev, c->queue, *slot, &ref));
        *slot = (pgd_weight *)(uintptr_t)ref;
    }
    if (k != NO_FIELD && c->dev->kv_native) {
        pgd_kv **slot = (pgd_kv **)(void *)(c->args.bytes + k);
        const pgd_ref_kv *ref = NULL;
        PGD_TRY(pgd_dev_mirror_kv(c->dev, c->queue, *slot, &ref));
        *slot = (pgd_kv *)(uintptr_t)ref;
    }
    return PGD_OK;
}

static pgd_status call_reference(int32_t op, const pgd_exec *x, const void *args) {
    switch (op) {
#define CASE(name, family) \
    case PGD_OP_##name: return pgd_ref_##name(x, args);
        PGD_OP_LIST(CASE)
#undef CASE
    default: return PGD_INVALID;
    }
}

// Every args struct begins like this.
typedef struct args_head {
    PGD_ARGS_HEAD;
} args_head;

static pgd_status run(const pgd_exec *x, int32_t op, const void *args) {
    args_head head;
    call c = {.d = x->dev, .dev = (pgd_dev *)(uintptr_t)x->dev, .queue = x->queue, .op = op};
    uint32_t bytes = pgd_dev_op_args_bytes(op);
    memcpy(&head, args, sizeof(head));
    if (!pgd_args_tail_is_zero(args, head.size, bytes)) {
        return pgd_fail(PGD_UNSUPPORTED, "%s: arguments of a newer host", pgd_dev_op_name(op));
    }
    memcpy(c.args.bytes, args, head.size < bytes ? head.size : bytes);
    const pgd_batch *given = head.batch;
    head.size = bytes;
    find_tensors(&c);
    if (given != NULL) {
        find_batch(&c, given);
        head.batch = &c.batch;
    }
    memcpy(c.args.bytes, &head, sizeof(head));
    PGD_TRY(bring(&c, x, given));
    pgd_kv *kv = NULL;
    if (kv_fields[op] != NO_FIELD) {
        memcpy(&kv, c.args.bytes + kv_fields[op], sizeof(pgd_kv *));
    }
    PGD_TRY(find_handles(&c));
    PGD_TRY(call_reference(op, x, c.args.bytes));
    if (op == PGD_OP_kv_write && c.dev->kv_native) {
        PGD_TRY(pgd_dev_mirror_kv_store(c.dev, c.queue, kv));
    }
    return give_back(&c, x, given);
}

#define RUN(name, family)                                                         \
    static pgd_status run_##name(const pgd_exec *x, const pgd_##name##_args *a) { \
        return run(x, PGD_OP_##name, a);                                          \
    }
PGD_OP_LIST(RUN)
#undef RUN

const pgd_ops *pgd_dev_reference(void) {
    static const pgd_ops ops = {.size = sizeof(pgd_ops),
#define SLOT(name, family) .name = run_##name,
                                PGD_OP_LIST(SLOT)
#undef SLOT
    };
    return &ops;
}
