// Weights and caches in other places than tests/ops gives them: behind an offset of a larger buffer
// (level 2), and as bytes that were stored, put elsewhere and adopted (level 4, blob reuse).
//
// The device's weight and kv tables are replaced by ones that move what they are given and then
// call the real ones; the cases of tests/ops judge the results.
#include "ops_session.h"

#include <string.h>

#include "dev/inner.h"

enum { AWAY = 8192, SPOILT = 0x7fc07fc0, BUFFERS = 64 };

static struct {
    conform *c;
    pgd_dev *dev;
    pgd_queue *queue;
    pgd_weight_table weight;
    pgd_kv_table kv;
    int32_t adopts;
    int32_t n;
    int32_t n_buffers; // of the open device
    pgd_buffer *buffers[BUFFERS];
} moved;

// A range of `bytes` behind an offset of a new buffer; it lives as long as the device is open.
static pgd_range away(uint64_t bytes, int32_t use) {
    const pgd_device *d = &moved.dev->device;
    const pgd_buffer_desc desc = {.size = sizeof(desc), .use = use, .bytes = AWAY + bytes + AWAY};
    pgd_range range = {NULL, AWAY, bytes};
    MUST(moved.c, moved.n_buffers < BUFFERS, "the tool has no room for a buffer");
    MUST_OK(moved.c, d->memory->create(d, &desc, &range.buffer), "memory.create");
    moved.buffers[moved.n_buffers++] = range.buffer;
    const pgd_range before = {range.buffer, 0, AWAY};
    MUST_OK(moved.c, d->queue->fill(d, moved.queue, &before, SPOILT), "queue.fill");
    conform_drain(moved.c, moved.queue);
    moved.n++;
    return range;
}

// What lies before a range is not the plugin's.
static void check_before(const pgd_range *range) {
    static uint32_t got[AWAY / 4];
    conform_get(moved.c, moved.queue, got, range->buffer, 0, AWAY);
    for (int32_t i = 0; i < AWAY / 4; i++) {
        MUST(moved.c, got[i] == SPOILT,
             "byte %d of a buffer is written; the range given begins at byte %d", i * 4, AWAY);
    }
}

// Reads the resident bytes, puts them elsewhere, spoils the old place, adopts the new one.
static pgd_status adopt_bytes(const pgd_device *d, const pgd_weight_desc *desc,
                              const pgd_range *from, pgd_weight **io) {
    const pgd_range all = {from->buffer, from->offset, from->bytes / 4 * 4};
    unsigned char *bytes = conform_room(moved.c, from->bytes);
    const pgd_range to = away(from->bytes, PGD_USE_WEIGHTS);
    conform_get(moved.c, moved.queue, bytes, from->buffer, from->offset, from->bytes);
    conform_put(moved.c, moved.queue, to.buffer, to.offset, bytes, from->bytes);
    moved.dev->merged.weight.destroy(d, *io);
    *io = NULL;
    MUST_OK(moved.c, d->queue->fill(d, moved.queue, &all, SPOILT), "queue.fill");
    conform_drain(moved.c, moved.queue);
    return moved.dev->merged.weight.adopt(d, desc, &to, io);
}

static pgd_status moved_prepare(const pgd_device *d, pgd_queue *q, const pgd_weight_desc *desc,
                                const pgd_range *dst, const pgd_range *scratch, pgd_weight **out) {
    const pgd_range to = away(dst->bytes, PGD_USE_WEIGHTS);
    PGD_TRY(moved.dev->merged.weight.prepare(d, q, desc, &to, scratch, out));
    conform_drain(moved.c, q);
    check_before(&to);
    return moved.adopts ? adopt_bytes(d, desc, &to, out) : PGD_OK;
}

static pgd_status moved_bind(const pgd_device *d, const pgd_kv_desc *desc, const pgd_kv_plan *plan,
                             const pgd_range *mem, int32_t n_blocks, pgd_kv **out);

// Planning decides whose caches there are, the plugin's or the host's, and so what the merged table
// holds from then on.
static pgd_status moved_kv_plan(const pgd_device *d, const pgd_kv_desc *desc, pgd_kv_plan *out) {
    moved.kv = moved.dev->merged.kv;
    moved.kv.plan = moved_kv_plan;
    moved.kv.bind = moved_bind;
    return moved.dev->merged.kv.plan(d, desc, out);
}

static pgd_status moved_bind(const pgd_device *d, const pgd_kv_desc *desc, const pgd_kv_plan *plan,
                             const pgd_range *mem, int32_t n_blocks, pgd_kv **out) {
    const pgd_range to = away(mem->bytes, PGD_USE_KV);
    return moved.dev->merged.kv.bind(d, desc, plan, &to, n_blocks, out);
}

// Called behind planning, which fills the merged tables.
static pgd_status moved_weight_plan(const pgd_device *d, const pgd_weight_desc *desc,
                                    pgd_weight_plan *out) {
    return moved.dev->merged.weight.plan(d, desc, out);
}

static void move_device(void *arg, pgd_dev *dev) {
    moved.c = arg;
    moved.dev = dev;
    moved.c->d = &dev->device;
    moved.queue = conform_queue(moved.c, PGD_QUEUE_COPY);
    moved.weight = dev->merged.weight;
    moved.weight.plan = moved_weight_plan;
    moved.weight.prepare = moved_prepare;
    moved.kv = dev->merged.kv;
    moved.kv.plan = moved_kv_plan;
    moved.kv.bind = moved_bind;
    dev->device.weight = &moved.weight;
    if (!moved.adopts) {
        dev->device.kv = &moved.kv;
    }
}

static void leave_device(void *arg, pgd_dev *dev) {
    const pgd_device *d = &dev->device;
    (void)arg;
    d->queue->destroy(d, moved.queue);
    while (moved.n_buffers > 0) {
        d->memory->destroy(d, moved.buffers[--moved.n_buffers]);
    }
}

static void run_moved(conform *c, const char *const *names, size_t n) {
    ops_session s = conform_ops_session(c);
    conform_open(c);
    const int32_t own = pgd_dev_weight_is_whole(c->dev);
    conform_close(c);
    if (!own) {
        conform_skip(c, "weights live with the host");
    }
    s.opened = move_device;
    s.closing = leave_device;
    s.measured = NULL;
    for (size_t i = 0; i < n; i++) {
        s.only = names[i];
        ops_suites(&s);
    }
    conform_note(c, "%d places of %d cases", (int)moved.n, (int)(s.passed + s.failed));
}

void conform_offsets(conform *c) {
    static const char *const names[] = {"gemm", "embed", "attn", "kv_write"};
    run_moved(c, names, sizeof(names) / sizeof(names[0]));
}

void conform_adopt(conform *c) {
    static const char *const names[] = {"gemm", "gemm_add", "gate_up", "embed"};
    moved.adopts = 1;
    run_moved(c, names, sizeof(names) / sizeof(names[0]));
}
