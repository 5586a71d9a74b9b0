// What the host does in small holes: fill, done, flush, map, graph, and the copies of tensors.
#include "dev/odd_test.h" // first, see there

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "dev/inner.h"

#include "base/mem.h"
#include "base/test_ok.h"

typedef struct rig {
    pgd_dev *dev;
    const pgd_device *d;
    pgd_queue *q;
    pgd_buffer *buffer;
} rig;

static int open_rig(void **state) {
    static rig r;
    const pgd_queue_desc queue = {.size = sizeof(queue)};
    const pgd_buffer_desc buffer = {.size = sizeof(buffer), .bytes = 4096};
    OK(pgd_dev_open_plugin(odd_plugin(ODD_MINIMAL), (pgd_str){0}, 0, NULL, 1, &r.dev));
    r.d = pgd_dev_device(r.dev);
    OK(r.d->queue->create(r.d, &queue, &r.q));
    OK(r.d->memory->create(r.d, &buffer, &r.buffer));
    *state = &r;
    return 0;
}

static int close_rig(void **state) {
    rig *r = *state;
    r->d->queue->destroy(r->d, r->q);
    r->d->memory->destroy(r->d, r->buffer);
    pgd_dev_close(r->dev);
    assert_int_equal(pgd_mem_live(), 0);
    return 0;
}

static void copy_bytes(const rig *r, void *host, uint64_t bytes, int32_t out) {
    pgd_copy copy = {.bytes = bytes};
    copy.dst = out ? r->buffer : NULL;
    copy.src = out ? NULL : r->buffer;
    copy.dst_offset = out ? 0 : (uint64_t)(uintptr_t)host;
    copy.src_offset = out ? (uint64_t)(uintptr_t)host : 0;
    OK(r->d->queue->copy(r->d, r->q, &copy, 1));
    OK(pgd_dev_drain(r->d, r->q));
}

// Rows between and behind a strided tensor keep their contents.
static void test_copy_tensor_strides(void **state) {
    const rig *w = *state;
    float rows[4 * 12];
    float dense[2 * 3 * 2];
    float back[4 * 12];
    for (uint32_t i = 0; i < 48; i++) {
        rows[i] = (float)i;
    }
    copy_bytes(w, rows, sizeof(rows), 1);
    const pgd_tensor t = {
        .buffer = w->buffer,
        .offset = 4,
        .dtype = PGD_F32,
        .rank = 3,
        .shape = {2, 3, 2},
        .stride = {24, 5, 1},
    };
    OK(pgd_dev_copy_tensor(w->d, w->q, &t, (unsigned char *)dense, 0));
    OK(pgd_dev_drain(w->d, w->q));
    const float want[12] = {1, 2, 6, 7, 11, 12, 25, 26, 30, 31, 35, 36};
    assert_memory_equal(dense, want, sizeof(want));
    for (uint32_t i = 0; i < 12; i++) {
        dense[i] = -dense[i];
        rows[(int)want[i]] = -want[i];
    }
    OK(pgd_dev_copy_tensor(w->d, w->q, &t, (unsigned char *)dense, 1));
    copy_bytes(w, back, sizeof(back), 0);
    assert_memory_equal(back, rows, sizeof(rows));
}

static void test_fillers(void **state) {
    const rig *w = *state;
    uint32_t words[8] = {0};
    uint64_t value = 0;
    pgd_fault fault;
    pgd_range range = {.buffer = w->buffer, .offset = 8, .bytes = 16};
    OK(w->d->queue->fill(w->d, w->q, &range, 0xabcdef01u));
    copy_bytes(w, words, sizeof(words), 0);
    const uint32_t want[8] = {0, 0, 0xabcdef01u, 0xabcdef01u, 0xabcdef01u, 0xabcdef01u, 0, 0};
    assert_memory_equal(words, want, sizeof(want));
    range.bytes = 3;
    assert_int_equal(w->d->queue->fill(w->d, w->q, &range, 1), PGD_INVALID);
    uint64_t last = 0;
    for (int32_t i = 0; i < 37; i++) {
        OK(w->d->queue->signal(w->d, w->q, &last));
    }
    OK(w->d->queue->host_wait(w->d, w->q, last - 20, PGD_WAIT_FOREVER));
    OK(w->d->queue->done(w->d, w->q, &value));
    assert_int_equal(value, last - 20);
    OK(w->d->queue->flush(w->d, w->q));
    OK(w->d->queue->status(w->d, w->q, &fault));
    assert_int_equal(fault.code, PGD_OK);
    OK(w->d->device->status(w->d));
    uint64_t bytes[2] = {0};
    OK(w->d->device->memory(w->d, &bytes[0], &bytes[1]));
    assert_int_equal(bytes[1], MINIMAL_BYTES);
    void *ptr = words;
    assert_int_equal(w->d->memory->map(w->d, w->buffer, &ptr), PGD_UNSUPPORTED);
    assert_null(ptr);
    pgd_graph_desc graph = {.size = sizeof(graph)};
    assert_int_equal(w->d->graph->begin(w->d, w->q, &graph), PGD_UNSUPPORTED);
}

#define WITH_RIG(test) cmocka_unit_test_setup_teardown(test, open_rig, close_rig)

int main(void) {
    const struct CMUnitTest tests[] = {
        WITH_RIG(test_copy_tensor_strides),
        WITH_RIG(test_fillers),
    };
    return cmocka_run_group_tests_name("dev.fill", tests, NULL, NULL);
}
