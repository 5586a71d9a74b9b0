// Memory and queues of a device by themselves: what an order of copies and fills leaves, two queues
// that wait for each other, time points, rows with pitches, graphs.
//
//   gpu_queue_test DEVICE
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <pagoda/pagoda.h>

#include "base/fail.h"
#include "dev/dev.h"

enum { BYTES = 1 << 20, ROUNDS = 40 };

static const char *uri;
static pgd_dev_registry *registry;
static pgd_dev *dev;
static const pgd_device *d;

static void ok(pgd_status code) {
    if (code != PGD_OK) {
        fail_msg("%s", pgd_fail_last());
    }
}

static int open_device(void **state) {
    const pgd_dev_search search = {0};
    const pgd_dev_desc desc = {.uri = uri, .allow_slow = 1};
    (void)state;
    ok(pgd_dev_registry_create(&search, &registry));
    ok(pgd_dev_open(registry, &desc, &dev));
    d = pgd_dev_device(dev);
    return 0;
}

static int close_device(void **state) {
    (void)state;
    pgd_dev_close(dev);
    pgd_dev_registry_destroy(registry);
    return 0;
}

static pgd_buffer *new_buffer(int32_t place, uint64_t bytes) {
    const pgd_buffer_desc desc = {.size = sizeof(desc), .place = place, .bytes = bytes};
    pgd_buffer *b = NULL;
    ok(d->memory->create(d, &desc, &b));
    return b;
}

static pgd_queue *new_queue(int32_t role) {
    const pgd_queue_desc desc = {.size = sizeof(desc), .role = role};
    pgd_queue *q = NULL;
    ok(d->queue->create(d, &desc, &q));
    return q;
}

static uint64_t host_of(const void *ptr) {
    return (uint64_t)(uintptr_t)ptr;
}

static void copy(pgd_queue *q, pgd_copy c) {
    ok(d->queue->copy(d, q, &c, 1));
}

static uint64_t signal_of(pgd_queue *q) {
    uint64_t value = 0;
    ok(d->queue->signal(d, q, &value));
    return value;
}

static void drain(pgd_queue *q) {
    ok(d->queue->host_wait(d, q, signal_of(q), PGD_WAIT_FOREVER));
}

// What a stand-in driver is told to say: those of an H100 and of an MI300X.
static void test_facts(void **state) {
    (void)state;
    static const struct {
        const char *kind, *pci, *arch;
        uint64_t bytes_per_s;
        uint32_t units;
    } known[] = {{"cuda:0", "0000:65:00.0", "sm_90", UINT64_C(3352320000000), 16},
                 {"hip:0", "0000:c3:00.0", "gfx942:sramecc+:xnack-", UINT64_C(5324800000000), 8}};
    const pgd_device_info *info = pgd_dev_info(dev);
    for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++) {
        if (strcmp(info->uri, known[i].kind) == 0) {
            assert_string_equal(info->pci, known[i].pci);
            assert_string_equal(info->arch, known[i].arch);
            assert_int_equal(info->bytes_per_s, known[i].bytes_per_s);
            assert_int_equal(info->units, known[i].units);
            assert_int_equal(info->kind, PGD_DEVICE_GPU);
            assert_memory_equal(info->uuid, "stand-in of ", 12);
        }
    }
    assert_true(info->bytes > 0);
    assert_true(info->name[0] != '\0');
}

static void test_new_memory_is_zero_and_counted(void **state) {
    (void)state;
    uint64_t n_free = 0, n_total = 0, n_less = 0;
    unsigned char *got = malloc(BYTES);
    pgd_queue *q = new_queue(PGD_QUEUE_COMPUTE);
    ok(d->device->memory(d, &n_free, &n_total));
    pgd_buffer *b = new_buffer(PGD_PLACE_DEVICE, BYTES);
    ok(d->device->memory(d, &n_less, &n_total));
    assert_in_range(n_less, 1, n_free);
    assert_in_range(n_free, n_less, n_total);
    memset(got, 1, BYTES);
    copy(q, (pgd_copy){.src = b, .dst_offset = host_of(got), .bytes = BYTES});
    drain(q);
    for (int32_t i = 0; i < BYTES; i++) {
        assert_int_equal(got[i], 0);
    }
    d->memory->destroy(d, b);
    d->queue->destroy(d, q);
    free(got);
}

static void test_staging_has_an_address(void **state) {
    (void)state;
    uint32_t got[4] = {0};
    void *ptr = NULL;
    pgd_queue *q = new_queue(PGD_QUEUE_COMPUTE);
    pgd_buffer *b = new_buffer(PGD_PLACE_STAGING, 64);
    if (d->memory->map(d, b, &ptr) == PGD_OK) {
        memcpy(ptr, (const uint32_t[4]){1, 2, 3, 4}, 16);
        copy(q, (pgd_copy){.src = b, .dst_offset = host_of(got), .bytes = 16});
        ok(d->queue->fill(d, q, &(pgd_range){b, 0, 8}, 7));
        drain(q);
        assert_memory_equal(got, ((const uint32_t[4]){1, 2, 3, 4}), 16);
        assert_memory_equal(ptr, ((const uint32_t[4]){7, 7, 3, 4}), 16);
    }
    d->memory->destroy(d, b);
    d->queue->destroy(d, q);
}

// Rows of 3 words: from the host 5 apart, on the device 4, back 3; and past the end of a pitch.
static void test_rows_with_pitches(void **state) {
    (void)state;
    uint32_t from[50], to[30];
    pgd_queue *q = new_queue(PGD_QUEUE_COMPUTE);
    pgd_buffer *b = new_buffer(PGD_PLACE_DEVICE, 1024);
    pgd_buffer *c = new_buffer(PGD_PLACE_DEVICE, 1024);
    for (uint32_t i = 0; i < 50; i++) {
        from[i] = i;
    }
    copy(q, (pgd_copy){.dst = b,
                       .dst_offset = 8,
                       .src_offset = host_of(from),
                       .bytes = 12,
                       .rows = 10,
                       .dst_pitch = 16,
                       .src_pitch = 20});
    copy(q, (pgd_copy){.dst = c,
                       .dst_offset = 4,
                       .src = b,
                       .src_offset = 8,
                       .bytes = 12,
                       .rows = 10,
                       .dst_pitch = 24,
                       .src_pitch = 16});
    copy(q, (pgd_copy){.dst_offset = host_of(to),
                       .src = c,
                       .src_offset = 4,
                       .bytes = 12,
                       .rows = 10,
                       .dst_pitch = 12,
                       .src_pitch = 24});
    drain(q);
    for (uint32_t i = 0; i < 30; i++) {
        assert_int_equal(to[i], i / 3 * 5 + i % 3);
    }
    d->memory->destroy(d, b);
    d->memory->destroy(d, c);
    d->queue->destroy(d, q);
}

// One queue writes, the other goes on behind it and reads; round after round, so that it shows if
// it does not wait.
static void test_a_queue_waits_for_another(void **state) {
    (void)state;
    pgd_queue *writer = new_queue(PGD_QUEUE_COPY);
    pgd_queue *reader = new_queue(PGD_QUEUE_COMPUTE);
    pgd_buffer *b = new_buffer(PGD_PLACE_DEVICE, BYTES);
    pgd_buffer *c = new_buffer(PGD_PLACE_DEVICE, BYTES);
    for (uint32_t round = 1; round <= ROUNDS; round++) {
        uint32_t got[2] = {0};
        ok(d->queue->fill(d, writer, &(pgd_range){b, 0, BYTES}, round));
        copy(writer, (pgd_copy){.dst = c, .src = b, .bytes = BYTES});
        ok(d->queue->wait(d, reader, writer, signal_of(writer)));
        copy(reader, (pgd_copy){.dst_offset = host_of(&got[0]), .src = c, .bytes = 4});
        copy(reader,
             (pgd_copy){
                 .dst_offset = host_of(&got[1]), .src = c, .src_offset = BYTES - 4, .bytes = 4});
        drain(reader);
        assert_int_equal(got[0], round);
        assert_int_equal(got[1], round);
    }
    d->memory->destroy(d, b);
    d->memory->destroy(d, c);
    d->queue->destroy(d, writer);
    d->queue->destroy(d, reader);
}

static void test_time_points(void **state) {
    (void)state;
    uint64_t done = 0, last = 0;
    pgd_queue *q = new_queue(PGD_QUEUE_COMPUTE);
    pgd_buffer *b = new_buffer(PGD_PLACE_DEVICE, BYTES);
    for (uint64_t i = 1; i <= 200; i++) { // more than the driver tells apart at once
        ok(d->queue->fill(d, q, &(pgd_range){b, 0, BYTES}, (uint32_t)i));
        last = signal_of(q);
        assert_int_equal(last, i);
    }
    assert_int_equal(d->queue->host_wait(d, q, last + 1, 1000), PGD_TIMEOUT);
    ok(d->queue->host_wait(d, q, 3, PGD_WAIT_FOREVER));
    ok(d->queue->host_wait(d, q, last, UINT64_C(60000000000)));
    ok(d->queue->done(d, q, &done));
    assert_int_equal(done, last);
    pgd_fault fault = {.code = 1};
    ok(d->queue->status(d, q, &fault));
    assert_int_equal(fault.code, PGD_OK);
    ok(d->device->status(d));
    d->memory->destroy(d, b);
    d->queue->destroy(d, q);
}

static void test_a_graph_of_copies_runs_when_launched(void **state) {
    (void)state;
    const pgd_graph_desc desc = {.size = sizeof(desc), .key = 9};
    uint32_t got[2] = {5, 5};
    pgd_graph *graph = NULL;
    pgd_queue *q = new_queue(PGD_QUEUE_COMPUTE);
    pgd_buffer *b = new_buffer(PGD_PLACE_DEVICE, 64);
    pgd_buffer *c = new_buffer(PGD_PLACE_DEVICE, 64);
    ok(d->graph->begin(d, q, &desc));
    copy(q, (pgd_copy){.dst = c, .src = b, .bytes = 64});
    ok(d->queue->fill(d, q, &(pgd_range){b, 0, 64}, 11));
    ok(d->graph->end(d, q, &graph));
    for (uint32_t i = 0; i < 2; i++) {
        copy(q, (pgd_copy){.dst_offset = host_of(&got[i]), .src = c, .bytes = 4});
        ok(d->graph->launch(d, q, graph));
    }
    drain(q);
    assert_int_equal(got[0], 0); // recording runs nothing
    assert_int_equal(got[1], 0); // the first launch copied before it filled
    copy(q, (pgd_copy){.dst_offset = host_of(&got[1]), .src = c, .bytes = 4});
    drain(q);
    assert_int_equal(got[1], 11);
    d->graph->destroy(d, graph);
    d->memory->destroy(d, b);
    d->memory->destroy(d, c);
    d->queue->destroy(d, q);
}

// More rows than a grid has groups along an axis.
static void test_a_weight_of_many_rows(void **state) {
    (void)state;
    enum { N = 70001, K = 3 };
    float *values = malloc((size_t)N * K * sizeof(float));
    float got[K] = {0};
    pgd_weight *w = NULL;
    pgd_weight_plan plan = {.size = sizeof(plan)};
    const pgd_weight_part part = {.rows = N,
                                  .cols = K,
                                  .row_count = N,
                                  .col_count = K,
                                  .data = {.ptr = values, .bytes = (uint64_t)N * K * 4}};
    const pgd_weight_desc desc = {.size = sizeof(desc),
                                  .uses = PGD_USE_EMBED,
                                  .dtype = PGD_F32,
                                  .n_parts = 1,
                                  .part_stride = sizeof(part),
                                  .n = N,
                                  .k = K,
                                  .max_rows = 1,
                                  .parts = &part};
    const int64_t rows[3] = {0, 65536, N - 1};
    for (int32_t i = 0; i < N * K; i++) {
        values[i] = (float)i;
    }
    pgd_queue *q = new_queue(PGD_QUEUE_COMPUTE);
    ok(d->weight->plan(d, &desc, &plan));
    pgd_buffer *b = new_buffer(PGD_PLACE_DEVICE, plan.bytes);
    pgd_buffer *scratch = new_buffer(PGD_PLACE_DEVICE, plan.scratch);
    pgd_buffer *out = new_buffer(PGD_PLACE_DEVICE, sizeof(got));
    ok(d->weight->prepare(d, q, &desc, &(pgd_range){b, 0, plan.bytes},
                          &(pgd_range){scratch, 0, plan.scratch}, &w));
    for (int32_t i = 0; i < 3; i++) {
        const pgd_tensor t = {
            .buffer = out, .dtype = PGD_F32, .rank = 1, .shape = {K}, .stride = {1}};
        ok(d->weight->unpack(d, q, w, rows[i], &t));
        copy(q, (pgd_copy){.src = out, .dst_offset = host_of(got), .bytes = sizeof(got)});
        drain(q);
        assert_memory_equal(got, values + rows[i] * K, sizeof(got));
    }
    d->weight->destroy(d, w);
    d->memory->destroy(d, b);
    d->memory->destroy(d, scratch);
    d->memory->destroy(d, out);
    d->queue->destroy(d, q);
    free(values);
}

int main(int argc, char **argv) {
    uri = argc > 1 ? argv[1] : "cpu";
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_facts),
        cmocka_unit_test(test_new_memory_is_zero_and_counted),
        cmocka_unit_test(test_staging_has_an_address),
        cmocka_unit_test(test_rows_with_pitches),
        cmocka_unit_test(test_a_queue_waits_for_another),
        cmocka_unit_test(test_time_points),
        cmocka_unit_test(test_a_graph_of_copies_runs_when_launched),
        cmocka_unit_test(test_a_weight_of_many_rows),
    };
    return cmocka_run_group_tests(tests, open_device, close_device);
}
