// Level 2: each operation against kernels/ref, plans as upper bounds, refusals.
#include "ops_session.h"

#include <stdio.h>
#include <string.h>

#include "dev/inner.h"

// ---- operations: the suites of tests/ops -------------------------------------------------------

enum { MOST_LINES = 8 };

// The first few say what is wrong; the note says how many cases there are.
static void take_line(void *arg, const char *line) {
    static int32_t lines;
    conform *c = arg;
    if (lines++ < MOST_LINES) {
        conform_fail(c, "%s", line);
    }
    c->result->state = CONFORM_FAILED;
}

// Judged elsewhere.
static void drop_line(void *arg, const char *line) {
    (void)arg;
    (void)line;
}

static void take_measure(void *arg, int32_t op, int32_t dtype, double worst, double nmse,
                         int32_t bad) {
    // The distance of two numbers of the dtype at the row's largest one, over that number.
    static const double step[CONFORM_DTYPES] = {
        [PGD_F32] = 0x1p-23, [PGD_BF16] = 0x1p-7, [PGD_F16] = 0x1p-10};
    conform *c = arg;
    if (dtype <= 0 || dtype >= CONFORM_DTYPES || step[dtype] == 0) {
        return;
    }
    conform_cell *cell = &c->sheet->cells[op][dtype];
    cell->cases++;
    cell->wrong += bad;
    cell->ulp = worst / step[dtype] > cell->ulp ? worst / step[dtype] : cell->ulp;
    cell->nmse = nmse > cell->nmse ? nmse : cell->nmse;
}

ops_session conform_ops_session(conform *c) {
    return (ops_session){.registry = c->registry,
                         .team = c->team,
                         .uri = c->uri,
                         .only = c->check->part,
                         .seed = c->options->seed,
                         .cases = c->options->cases,
                         .failed_line = take_line,
                         .measured = take_measure,
                         .arg = c};
}

void conform_ops_must(conform *c, ops_fixture *f) {
    if (f->broken || f->wrong) {
        if (c->result->state != CONFORM_FAILED) {
            conform_fail(c, "%s: the case cannot be made", f->title);
        }
        conform_end(c);
    }
}

void conform_ops(conform *c) {
    ops_session s = conform_ops_session(c);
    int32_t op, planned = 0, variant = 0, native = 0, composed = 0, reference = 0;
    ops_suites(&s);
    for (op = 0; op < PGD_OP_COUNT; op++) {
        planned += s.planned[op];
        variant += s.variant[op];
        native += s.places[op][PGD_DEV_F0];
        composed += s.places[op][PGD_DEV_F1];
        reference += s.places[op][PGD_DEV_F2] + s.places[op][PGD_DEV_F3];
        for (int32_t place = 0; place < 4; place++) {
            c->sheet->places[op][place] += s.places[op][place];
        }
        c->sheet->variant[op] += s.variant[op];
    }
    MUST(c, s.passed + s.failed > 0, "no case of %s was run", c->check->part);
    if (strncmp(c->check->part, "cut_", 4) == 0 && s.failed == 0 && variant == planned) {
        conform_skip(c, "not declared");
    }
    conform_note(c, "%d cases: %d native, %d composed, %d by the host%s",
                 (int)(s.passed + s.failed), (int)native, (int)composed, (int)reference,
                 s.failed > 0 ? "; the first failures:" : "");
}

void conform_graph(conform *c) {
    conform_open(c);
    if (c->dev->native.graph.begin == NULL) {
        conform_skip(c, "not offered");
    }
    conform_close(c);
    conform_ops(c);
}

// ---- plans -------------------------------------------------------------------------------------

// Every buffer of a case gets room behind what was asked for, filled with a pattern that must still
// be there at the end: what a plan gives (bytes of weights and caches, scratch) is an upper bound.
enum { GUARD = 512, PATTERN = 0x5eadbeef, GUARDED = 64 };

typedef struct guarded {
    pgd_buffer *buffer;
    uint64_t bytes;
    int32_t use;
    int32_t reserved0;
} guarded;

static struct {
    conform *c;
    pgd_dev *dev;
    pgd_queue *queue;
    const pgd_memory_table *real; // the merged table, which planning may fill anew
    pgd_memory_table table;
    guarded list[GUARDED];
    int32_t n;
    int32_t seen;
} guards;

static pgd_status guarded_create(const pgd_device *d, const pgd_buffer_desc *desc,
                                 pgd_buffer **out) {
    pgd_buffer_desc larger = *desc;
    const uint64_t at = (desc->bytes + 3) / 4 * 4;
    larger.bytes = at + GUARD;
    PGD_TRY(guards.real->create(d, &larger, out));
    if (guards.n < GUARDED) {
        const pgd_range range = {*out, at, GUARD};
        MUST_OK(guards.c, d->queue->fill(d, guards.queue, &range, PATTERN), "queue.fill");
        conform_drain(guards.c, guards.queue);
        guards.list[guards.n++] = (guarded){*out, at, desc->use, 0};
    }
    return PGD_OK;
}

static void check_guard(const guarded *g) {
    static const char *const uses[] = {"general use or scratch", "weights", "the cache",
                                       "the batch"};
    uint32_t got[GUARD / 4];
    conform_get(guards.c, guards.queue, got, g->buffer, g->bytes, GUARD);
    guards.seen++;
    for (int32_t i = 0; i < GUARD / 4; i++) {
        MUST(guards.c, got[i] == PATTERN,
             "a write %d bytes behind a buffer of %llu bytes for %s: the plan is too small", i * 4,
             (unsigned long long)g->bytes, uses[g->use & 3]);
    }
}

static void guarded_destroy(const pgd_device *d, pgd_buffer *buffer) {
    for (int32_t i = 0; i < guards.n; i++) {
        if (guards.list[i].buffer == buffer && buffer != NULL) {
            check_guard(&guards.list[i]);
            guards.list[i] = guards.list[--guards.n];
            break;
        }
    }
    guards.real->destroy(d, buffer);
}

static void guard_device(void *arg, pgd_dev *dev) {
    conform *c = arg;
    guards.c = c;
    guards.dev = dev;
    guards.n = 0;
    guards.real = dev->device.memory;
    guards.table = *guards.real;
    guards.table.create = guarded_create;
    guards.table.destroy = guarded_destroy;
    c->d = pgd_dev_device(dev);
    guards.queue = conform_queue(c, PGD_QUEUE_COPY);
    dev->device.memory = &guards.table;
}

static void leave_device(void *arg, pgd_dev *dev) {
    (void)arg;
    for (int32_t i = 0; i < guards.n; i++) {
        check_guard(&guards.list[i]);
    }
    guards.n = 0;
    dev->device.memory = guards.real;
    dev->device.queue->destroy(&dev->device, guards.queue);
}

void conform_plans(conform *c) {
    static const char *const names[] = {"gemm",           "gate_up",     "attn", "kv_write",
                                        "qkv_rope_write", "head_sample", "embed"};
    ops_session s = conform_ops_session(c);
    int32_t n = 0;
    s.opened = guard_device;
    s.closing = leave_device;
    s.measured = NULL;
    s.failed_line = drop_line;
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        s.only = names[i];
        ops_suites(&s);
    }
    n = s.passed + s.failed;
    conform_note(c, "%d buffers of %d cases", (int)guards.seen, (int)n);
}

// ---- refusals ----------------------------------------------------------------------------------

static void must_refuse(conform *c, pgd_status code, const char *what) {
    MUST(c, code != PGD_OK, "%s is not refused", what);
    MUST(c, code == PGD_UNSUPPORTED || code == PGD_INVALID,
         "%s gives %s; it is UNSUPPORTED (what this version does not know)", what,
         pgd_status_name(code));
    MUST(c, pgd_fail_text(code)[0] != '\0', "%s is refused without a sentence", what);
}

// A struct of a newer host: sizeof(T) bytes and a tail.
#define NEWER(T, name, from) \
    struct {                 \
        T known;             \
        uint64_t tail[2];    \
    } name = {from, {0, 0}}; \
    name.known.size = (uint32_t)sizeof(name)

static void newer_structs(conform *c) {
    const pgd_buffer_desc buffer = {.size = sizeof(buffer), .bytes = 4096};
    const pgd_queue_desc queue = {.size = sizeof(queue)};
    NEWER(pgd_buffer_desc, b, buffer);
    NEWER(pgd_queue_desc, q, queue);
    pgd_buffer *made = NULL;
    pgd_queue *made_queue = NULL;
    MUST_OK(c, c->d->memory->create(c->d, &b.known, &made),
            "memory.create of a newer host with a zero tail");
    c->d->memory->destroy(c->d, made);
    MUST_OK(c, c->d->queue->create(c->d, &q.known, &made_queue),
            "queue.create of a newer host with a zero tail");
    c->d->queue->destroy(c->d, made_queue);
}

static void strange_weights(conform *c) {
    static float rows[8 * 32];
    pgd_weight_part part = {.rows = 8, .cols = 32, .row_count = 8, .col_count = 32};
    pgd_weight_desc desc = {.size = sizeof(desc),
                            .uses = PGD_USE_GEMM,
                            .dtype = PGD_F32,
                            .n_parts = 1,
                            .part_stride = sizeof(part),
                            .n = 8,
                            .k = 32,
                            .max_rows = 4,
                            .parts = &part,
                            .name = "conform.strange"};
    pgd_weight_plan plan = {.size = sizeof(plan)};
    part.data = (pgd_source){.ptr = rows, .bytes = sizeof(rows)};
    NEWER(pgd_weight_desc, newer, desc);
    MUST_OK(c, c->d->weight->plan(c->d, &newer.known, &plan), "weight.plan with a zero tail");
    newer.tail[1] = 1;
    must_refuse(c, c->d->weight->plan(c->d, &newer.known, &plan),
                "weight.plan with a field of a newer host that is not zero");
    desc.scheme = 999;
    must_refuse(c, c->d->weight->plan(c->d, &desc, &plan), "weight.plan of scheme 999");
    desc.scheme = 0;
    desc.dtype = PGD_I32;
    must_refuse(c, c->d->weight->plan(c->d, &desc, &plan), "weight.plan of plain i32");
    desc.dtype = 77;
    must_refuse(c, c->d->weight->plan(c->d, &desc, &plan), "weight.plan of dtype 77");
    desc.dtype = PGD_F32;
    plan = (pgd_weight_plan){.size = sizeof(plan)};
    MUST_OK(c, c->d->weight->plan(c->d, &desc, &plan), "weight.plan behind refusals");
}

static void strange_caches(conform *c) {
    const int32_t dtype = pgd_dev_info(c->dev)->kv_dtype;
    pgd_kv_desc desc = {.size = sizeof(desc),
                        .layers = 1,
                        .heads = 2,
                        .k_dim = 16,
                        .v_dim = 16,
                        .k_dtype = dtype,
                        .v_dtype = dtype,
                        .block_tokens = 16};
    pgd_kv_plan plan = {.size = sizeof(plan)};
    NEWER(pgd_kv_desc, newer, desc);
    MUST_OK(c, c->d->kv->plan(c->d, &newer.known, &plan), "kv.plan with a zero tail");
    newer.tail[0] = 5;
    must_refuse(c, c->d->kv->plan(c->d, &newer.known, &plan),
                "kv.plan with a field of a newer host that is not zero");
    desc.kind = 99;
    must_refuse(c, c->d->kv->plan(c->d, &desc, &plan), "kv.plan of kind 99");
    desc.kind = 0;
    desc.k_dtype = PGD_I32;
    must_refuse(c, c->d->kv->plan(c->d, &desc, &plan), "kv.plan of i32");
    desc.k_dtype = dtype;
    MUST_OK(c, c->d->kv->plan(c->d, &desc, &plan), "kv.plan behind refusals");
}

// An op with a field of a newer host: support says none, or the call is UNSUPPORTED. Closes.
static void strange_ops(conform *c) {
    const int64_t shape[2] = {4, 32};
    pgd_tensor t = {.dtype = pgd_dev_info(c->dev)->act_dtype, .rank = 2};
    pgd_dev_place place;
    pgd_exec *x = NULL;
    if (!pgd_dev_has_op(&c->dev->native.ops, PGD_OP_add)) {
        conform_close(c);
        return;
    }
    t.shape[0] = shape[0], t.shape[1] = shape[1];
    t.stride[0] = shape[1], t.stride[1] = 1;
    const pgd_batch batch = {.size = sizeof(batch),
                             .cap_tokens = 4,
                             .cap_seqs = 1,
                             .cap_out = 1,
                             .cap_slots = 1,
                             .mem = conform_buffer(c, 4096),
                             .mirror = conform_room(c, 4096),
                             .upload_bytes = sizeof(pgd_batch_head)};
    const pgd_add_args add = {.size = sizeof(add), .batch = &batch, .a = t, .b = t, .out = t};
    NEWER(pgd_add_args, newer, add);
    const pgd_query query = {
        .size = sizeof(query), .op = PGD_OP_add, .args = &newer.known, .batch = &batch};
    pgd_queue *q = conform_queue(c, PGD_QUEUE_COMPUTE);
    MUST_OK(c, pgd_dev_plan(c->dev, &query, 1, &place), "planning add with a zero tail");
    MUST_OK(c, pgd_dev_exec_create(c->dev, q, place.scratch, &x), "making an exec");
    pgd_buffer *b = conform_buffer(c, 4096);
    newer.known.a.buffer = newer.known.b.buffer = newer.known.out.buffer = b;
    newer.known.out.offset = 1024;
    MUST_OK(c, c->d->ops->add(x, &newer.known), "add with a zero tail");
    newer.tail[0] = 1;
    pgd_support support = {.size = sizeof(support)};
    pgd_status code = c->dev->native.device.support != NULL
                          ? c->dev->native.device.support(c->d, &query, &support)
                          : PGD_OK;
    if (code == PGD_OK && support.level != PGD_LEVEL_NONE) {
        must_refuse(c, c->d->ops->add(x, &newer.known),
                    "add with a field of a newer host that is not zero");
    }
    conform_drain(c, q);
    pgd_dev_exec_destroy(c->dev, x);
    conform_leave(c, q, b, batch.mem);
}

void conform_refusals(conform *c) {
    conform_open(c);
    newer_structs(c);
    if (pgd_dev_weight_is_whole(c->dev)) {
        strange_weights(c);
    }
    if (pgd_dev_kv_is_whole(c->dev)) {
        strange_caches(c);
    }
    strange_ops(c);
}
