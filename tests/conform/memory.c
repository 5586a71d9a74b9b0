// Level 1, memory: buffers, imports, maps, and what happens when there is none.
#include "conform.h"

#include <string.h>

#include "base/mem.h"
#include "dev/inner.h"

static const uint64_t sizes[] = {1, 3, 4, 64, 4095, 4096, 65537, 1 << 20};
enum { SIZES = sizeof(sizes) / sizeof(sizes[0]) };

static void pattern(unsigned char *p, uint64_t n, uint32_t seed) {
    for (uint64_t i = 0; i < n; i++) {
        seed = seed * 1664525u + 1013904223u;
        p[i] = (unsigned char)(seed >> 24);
    }
}

static void zeroed(conform *c, pgd_queue *q, pgd_buffer *b, uint64_t bytes) {
    unsigned char *got = conform_room(c, bytes);
    memset(got, 1, bytes);
    conform_get(c, q, got, b, 0, bytes);
    for (uint64_t i = 0; i < bytes; i++) {
        MUST(c, got[i] == 0, "byte %llu of a fresh buffer of %llu is %d, not 0",
             (unsigned long long)i, (unsigned long long)bytes, got[i]);
    }
}

static void one_buffer(conform *c, pgd_queue *q, int32_t place, int32_t use, uint64_t bytes) {
    const pgd_buffer_desc desc = {.size = sizeof(desc),
                                  .place = place,
                                  .use = use,
                                  .bytes = bytes,
                                  .align = use == PGD_USE_WEIGHTS ? 256 : 0};
    const uint64_t align = desc.align > 0 ? desc.align : pgd_dev_info(c->dev)->align;
    unsigned char *in = conform_room(c, bytes), *out = conform_room(c, bytes);
    pgd_buffer *b = NULL;
    void *address = NULL;
    pgd_status code = c->d->memory->create(c->d, &desc, &b);
    MUST(c, code == PGD_OK && b != NULL, "memory.create of %llu bytes, place %d, use %d: %s",
         (unsigned long long)bytes, (int)place, (int)use, pgd_fail_text(code));
    zeroed(c, q, b, bytes);
    if (c->d->memory->map(c->d, b, &address) == PGD_OK && align > 0) {
        MUST(c, (uintptr_t)address % align == 0, "a buffer lies at %p, not aligned to %llu",
             address, (unsigned long long)align);
    }
    pattern(in, bytes, (uint32_t)bytes);
    conform_put(c, q, b, 0, in, bytes);
    conform_get(c, q, out, b, 0, bytes);
    MUST(c, memcmp(in, out, bytes) == 0, "a buffer of %llu bytes does not keep what is copied in",
         (unsigned long long)bytes);
    c->d->memory->destroy(c->d, b);
}

void conform_buffers(conform *c) {
    int32_t place, use, i;
    conform_open(c);
    pgd_queue *q = conform_queue(c, PGD_QUEUE_COMPUTE);
    for (place = PGD_PLACE_DEVICE; place <= PGD_PLACE_STAGING; place++) {
        for (use = PGD_USE_GENERAL; use <= PGD_USE_BATCH; use++) {
            for (i = 0; i < SIZES; i++) {
                one_buffer(c, q, place, use, sizes[i]);
            }
        }
    }
    // Dirty memory that comes back must be zero again.
    for (i = 0; i < 8; i++) {
        one_buffer(c, q, PGD_PLACE_DEVICE, PGD_USE_GENERAL, 65536);
    }
    c->d->memory->destroy(c->d, NULL);
    conform_leave(c, q, NULL, NULL);
}

void conform_import(conform *c) {
    pgd_buffer *b = NULL, *other;
    conform_open(c);
    unsigned char *in = conform_room(c, 1 << 17), *out = conform_room(c, 1 << 17);
    unsigned char *page = in + 4096 - (uintptr_t)in % 4096;
    pgd_queue *q = conform_queue(c, PGD_QUEUE_COMPUTE);
    pattern(page, 65536, 5);
    pgd_status code = c->d->memory->import(c->d, page, 65536, 0, &b);
    if (code == PGD_UNSUPPORTED) {
        MUST(c, b == NULL, "import is UNSUPPORTED and gives a buffer");
        conform_skip(c, "not offered");
    }
    MUST_OK(c, code, "memory.import");
    conform_get(c, q, out, b, 100, 65000);
    MUST(c, memcmp(page + 100, out, 65000) == 0, "an imported buffer does not show its memory");
    other = conform_buffer(c, 65536);
    const pgd_copy copy = {.dst = other, .src = b, .bytes = 65536};
    MUST_OK(c, c->d->queue->copy(c->d, q, &copy, 1), "a copy from an imported buffer");
    conform_get(c, q, out, other, 0, 65536);
    MUST(c, memcmp(page, out, 65536) == 0, "a copy from an imported buffer has other bytes");
    c->d->memory->destroy(c->d, b);
    page[0] ^= 1; // the memory is the caller's again
    conform_leave(c, q, other, NULL);
}

void conform_map(conform *c) {
    void *first = NULL, *second = NULL;
    conform_open(c);
    pgd_queue *q = conform_queue(c, PGD_QUEUE_COMPUTE);
    pgd_buffer *b = conform_buffer(c, 65536);
    unsigned char *in = conform_room(c, 65536), *out = conform_room(c, 65536);
    const int32_t promised = (pgd_dev_info(c->dev)->caps & PGD_CAP_HOST_VISIBLE) != 0;
    pgd_status code = c->d->memory->map(c->d, b, &first);
    if (code == PGD_UNSUPPORTED) {
        MUST(c, !promised, "the device says HOST_VISIBLE and maps no buffer");
        conform_skip(c, "not offered");
    }
    MUST_OK(c, code, "memory.map");
    MUST_OK(c, c->d->memory->map(c->d, b, &second), "memory.map again");
    MUST(c, first != NULL && first == second, "a buffer's address changes from %p to %p", first,
         second);
    pattern(in, 65536, 9);
    conform_put(c, q, b, 0, in, 65536);
    MUST(c, memcmp(first, in, 65536) == 0, "the address does not show what a copy wrote");
    pattern(first, 65536, 10);
    conform_get(c, q, out, b, 0, 65536);
    MUST(c, memcmp(first, out, 65536) == 0, "a copy does not see what was written at the address");
    conform_leave(c, q, b, NULL);
}

// More than there is.
void conform_too_much(conform *c) {
    static const uint64_t asked[] = {UINT64_MAX, UINT64_MAX - 63, INT64_MAX, UINT64_C(1) << 56};
    pgd_status code;
    conform_open(c);
    for (size_t i = 0; i < sizeof(asked) / sizeof(asked[0]); i++) {
        const pgd_buffer_desc desc = {.size = sizeof(desc), .bytes = asked[i]};
        pgd_buffer *b = (pgd_buffer *)(uintptr_t)1;
        code = c->d->memory->create(c->d, &desc, &b);
        MUST(c, code == PGD_OUT_OF_MEMORY,
             "memory.create of %llu bytes gives %s instead of OUT_OF_MEMORY",
             (unsigned long long)asked[i], pgd_status_name(code));
        MUST(c, b == NULL, "memory.create is OUT_OF_MEMORY and leaves a handle");
        MUST(c, pgd_fail_text(code)[0] != '\0', "OUT_OF_MEMORY without a sentence");
        c->d->memory->destroy(c->d, conform_buffer(c, 4096));
    }
    conform_close(c);
}

// ---- the n-th allocation fails -----------------------------------------------------------------

typedef struct step {
    pgd_buffer *buffer, *source;
    pgd_queue *queue, *fresh;
    pgd_weight *weight;
    pgd_kv *kv;
    pgd_weight_desc weight_desc;
    pgd_weight_plan weight_plan;
    pgd_kv_desc kv_desc;
    pgd_kv_plan kv_plan;
    pgd_range weight_mem, kv_mem;
    void *out; // what the call made, for destroy
} step;

static pgd_status make_buffer(conform *c, step *s) {
    const pgd_buffer_desc desc = {.size = sizeof(desc), .bytes = 70000};
    pgd_status code = c->d->memory->create(c->d, &desc, &s->buffer);
    s->out = s->buffer;
    return code;
}

static void drop_buffer(conform *c, step *s) {
    c->d->memory->destroy(c->d, s->buffer);
}

static pgd_status make_import(conform *c, step *s) {
    static unsigned char bytes[4096];
    pgd_status code = c->d->memory->import(c->d, bytes, sizeof(bytes), 0, &s->buffer);
    s->out = s->buffer;
    return code;
}

static pgd_status make_queue(conform *c, step *s) {
    const pgd_queue_desc desc = {.size = sizeof(desc), .role = PGD_QUEUE_COPY};
    pgd_status code = c->d->queue->create(c->d, &desc, &s->fresh);
    s->out = s->fresh;
    return code;
}

static void drop_queue(conform *c, step *s) {
    c->d->queue->destroy(c->d, s->fresh);
}

static pgd_status make_weight(conform *c, step *s) {
    pgd_range none = {0};
    pgd_status code =
        c->d->weight->prepare(c->d, s->queue, &s->weight_desc, &s->weight_mem, &none, &s->weight);
    s->out = s->weight;
    return code;
}

static pgd_status make_adopted(conform *c, step *s) {
    pgd_status code = c->d->weight->adopt(c->d, &s->weight_desc, &s->weight_mem, &s->weight);
    s->out = s->weight;
    return code;
}

static void drop_weight(conform *c, step *s) {
    c->d->weight->destroy(c->d, s->weight);
}

static pgd_status make_kv(conform *c, step *s) {
    pgd_status code = c->d->kv->bind(c->d, &s->kv_desc, &s->kv_plan, &s->kv_mem, 4, &s->kv);
    s->out = s->kv;
    return code;
}

static void drop_kv(conform *c, step *s) {
    c->d->kv->destroy(c->d, s->kv);
}

typedef pgd_status (*make_fn)(conform *c, step *s);
typedef void (*drop_fn)(conform *c, step *s);

// Fails each allocation of the call in turn: OUT_OF_MEMORY, no handle, nothing left behind; and
// behind the last one the call works.
static int32_t fail_each(conform *c, step *s, const char *what, make_fn make, drop_fn drop) {
    for (uint64_t n = 1; n < 1000; n++) {
        const uint64_t before = pgd_mem_live();
        uint64_t count = pgd_mem_count();
        s->out = NULL;
        pgd_mem_fail_nth(n);
        pgd_status code = make(c, s);
        pgd_mem_fail_nth(0);
        count = pgd_mem_count() - count;
        if (code == PGD_UNSUPPORTED) {
            return 0;
        }
        if (code == PGD_OK) {
            MUST(c, s->out != NULL, "%s gives OK and no handle", what);
            MUST(c, count < n, "%s says OK although its allocation %llu failed", what,
                 (unsigned long long)n);
            conform_drain(c, s->queue);
            drop(c, s);
            MUST(c, pgd_mem_live() <= before, "%s and its destroy leave %lld allocation(s) behind",
                 what, (long long)(pgd_mem_live() - before));
            return (int32_t)n - 1;
        }
        MUST(c, code == PGD_OUT_OF_MEMORY, "%s gives %s when allocation %llu fails: %s", what,
             pgd_status_name(code), (unsigned long long)n, pgd_fail_text(code));
        MUST(c, s->out == NULL, "%s is OUT_OF_MEMORY and leaves a handle", what);
        MUST(c, pgd_mem_live() == before,
             "%s is OUT_OF_MEMORY and leaves %lld allocation(s) behind (allocation %llu failed)",
             what, (long long)(pgd_mem_live() - before), (unsigned long long)n);
    }
    return 0;
}

static void describe(conform *c, step *s) {
    static float rows[16 * 32];
    static pgd_weight_part part;
    pgd_buffer_desc desc = {.size = sizeof(desc)};
    part = (pgd_weight_part){.rows = 16, .cols = 32, .row_count = 16, .col_count = 32};
    part.data = (pgd_source){.ptr = rows, .bytes = sizeof(rows)};
    s->weight_desc = (pgd_weight_desc){.size = sizeof(pgd_weight_desc),
                                       .uses = PGD_USE_GEMM,
                                       .dtype = PGD_F32,
                                       .n_parts = 1,
                                       .part_stride = sizeof(part),
                                       .n = 16,
                                       .k = 32,
                                       .max_rows = 4,
                                       .parts = &part,
                                       .name = "conform.weight"};
    s->weight_plan.size = sizeof(s->weight_plan);
    MUST_OK(c, c->d->weight->plan(c->d, &s->weight_desc, &s->weight_plan), "weight.plan");
    desc.bytes = s->weight_plan.bytes > 0 ? s->weight_plan.bytes : 1;
    MUST_OK(c, c->d->memory->create(c->d, &desc, &s->weight_mem.buffer), "memory.create");
    s->weight_mem.bytes = s->weight_plan.bytes;
    s->kv_desc = (pgd_kv_desc){.size = sizeof(pgd_kv_desc),
                               .layers = 1,
                               .heads = 2,
                               .k_dim = 16,
                               .v_dim = 16,
                               .k_dtype = pgd_dev_info(c->dev)->kv_dtype,
                               .v_dtype = pgd_dev_info(c->dev)->kv_dtype,
                               .block_tokens = 16};
    s->kv_plan.size = sizeof(s->kv_plan);
    MUST_OK(c, c->d->kv->plan(c->d, &s->kv_desc, &s->kv_plan), "kv.plan");
    desc.bytes = s->kv_plan.fixed_bytes + 4 * s->kv_plan.block_bytes + 1;
    MUST_OK(c, c->d->memory->create(c->d, &desc, &s->kv_mem.buffer), "memory.create");
    s->kv_mem.bytes = desc.bytes - 1;
}

void conform_no_memory(conform *c) {
    step s = {0};
    int32_t n = 0;
    uint64_t fails;
    conform_open(c);
    s.queue = conform_queue(c, PGD_QUEUE_COMPUTE);
    describe(c, &s);
    n += fail_each(c, &s, "memory.create", make_buffer, drop_buffer);
    n += fail_each(c, &s, "memory.import", make_import, drop_buffer);
    n += fail_each(c, &s, "queue.create", make_queue, drop_queue);
    if (s.weight_plan.scratch == 0) {
        n += fail_each(c, &s, "weight.prepare", make_weight, drop_weight);
    }
    n += fail_each(c, &s, "weight.adopt", make_adopted, drop_weight);
    n += fail_each(c, &s, "kv.bind", make_kv, drop_kv);
    c->d->memory->destroy(c->d, s.weight_mem.buffer);
    c->d->memory->destroy(c->d, s.kv_mem.buffer);
    c->d->queue->destroy(c->d, s.queue);
    conform_close(c);
    // Opening as a whole: the loader's own allocations are failed with the plugin's.
    const uint64_t before = pgd_mem_live();
    for (fails = 1; fails < 500; fails++) {
        pgd_dev *dev = NULL;
        pgd_mem_fail_nth(fails);
        pgd_status code = conform_try_open(c, &dev);
        pgd_mem_fail_nth(0);
        pgd_dev_close(dev);
        MUST(c, pgd_mem_live() == before,
             "opening leaves %lld allocation(s) behind when allocation %llu fails",
             (long long)(pgd_mem_live() - before), (unsigned long long)fails);
        if (code == PGD_OK) {
            break;
        }
        // A probe that has no memory finds no device.
        MUST(c, code == PGD_OUT_OF_MEMORY || code == PGD_NOT_FOUND,
             "opening gives %s when allocation %llu fails: %s", pgd_status_name(code),
             (unsigned long long)fails, pgd_fail_text(code));
    }
    conform_note(c, "%d allocations of handles, %d of opening", (int)n, (int)fails - 1);
}

// Handles made and destroyed over and over on one open device.
void conform_handles_leak(conform *c) {
    double heap[10], lent[10];
    conform_traces t;
    step s = {0};
    conform_open(c);
    s.queue = conform_queue(c, PGD_QUEUE_COMPUTE);
    describe(c, &s);
    for (int32_t i = 0; i < 12; i++) {
        for (int32_t k = 0; k < 20; k++) {
            MUST_OK(c, make_buffer(c, &s), "memory.create");
            drop_buffer(c, &s);
            MUST_OK(c, make_queue(c, &s), "queue.create");
            drop_queue(c, &s);
            MUST_OK(c, make_kv(c, &s), "kv.bind");
            drop_kv(c, &s);
            if (s.weight_plan.scratch == 0) {
                MUST_OK(c, make_weight(c, &s), "weight.prepare");
                conform_drain(c, s.queue);
                drop_weight(c, &s);
            }
        }
        conform_traces_read(&t);
        if (i >= 2) {
            heap[i - 2] = (double)t.heap / 20;
            lent[i - 2] = (double)t.lent / 20;
        }
    }
    MUST(c, conform_slope(lent, 10) < 0.01, "%.2f allocations stay of each round of handles",
         conform_slope(lent, 10));
    MUST(c, conform_slope(heap, 10) < (c->driver ? 4096 : 8),
         "%.0f bytes of the heap stay of each round of handles", conform_slope(heap, 10));
    conform_note(c, "%.1f bytes of heap a round", conform_slope(heap, 10));
}
