// Weights through the ring: a driver that copies as late as it may, when somebody waits for a later
// number. So a slot that is filled again too early, or a copy from the source itself after the
// call, gives other bytes than the plain way.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "gpu.h"
#include "test_host.h"

enum { N = 1100, K = 8192, MOST_LATE = 4096 }; // 17 MiB of bf16: more than the ring has

// ---- a host and a driver -----------------------------------------------------------------------

static pgd_status map_code;    // of map
static int32_t n_created;      // memories of staging
static int32_t n_destroyed;    // the same
static int32_t n_team;         // runs of the team
static int32_t most_in_flight; // copies that waited at once
static int32_t fails_at;       // the n-th copy, 0: none
static int32_t n_copies;

typedef struct late {
    int32_t is_copy;
    gpu_copy copy;
    gpu_launch launch;
} late;

static late *lates;
static int32_t n_lates;
static int32_t n_done;
static int32_t reached[GPU_POINTS]; // lates before each point
static void *staging;

// Three workers, the last first.
static void team_run(const pgd_host *h, pgd_team_fn fn, void *arg) {
    (void)h;
    n_team++;
    for (uint32_t i = 3; i > 0; i--) {
        fn(arg, i - 1, 3);
    }
}

static const pgd_host host = {.size = sizeof(host),
                              .fail = host_fail,
                              .alloc = host_alloc,
                              .free = host_free,
                              .team_run = team_run};

static pgd_status create(const pgd_host *h, void *device, uint64_t bytes, int32_t place,
                         void **out) {
    (void)h;
    (void)device;
    *out = calloc(1, (size_t)bytes);
    if (place == PGD_PLACE_STAGING) {
        n_created++;
        staging = *out;
    }
    return PGD_OK;
}

static void destroy(const pgd_host *h, void *device, void *memory) {
    (void)h;
    (void)device;
    n_destroyed += memory == staging;
    free(memory);
}

static pgd_status map(const pgd_host *h, void *device, void *memory, void **out) {
    (void)h;
    (void)device;
    *out = memory;
    return map_code;
}

static void run_copy(const gpu_copy *c) {
    unsigned char *to = (unsigned char *)c->dst + c->dst_offset;
    const unsigned char *from = c->src == NULL ? (const unsigned char *)(uintptr_t)c->src_offset
                                               : (const unsigned char *)c->src + c->src_offset;
    for (uint64_t i = 0; i < c->rows; i++) {
        memcpy(to + i * c->dst_pitch, from + i * c->src_pitch, c->bytes);
    }
}

// Rows of the source one behind the other, in place of the layout: what is tested is what arrives.
static void run_launch(const gpu_launch *l) {
    const k_pack_params *p = (const k_pack_params *)(const void *)l->params;
    const unsigned char *from = (const unsigned char *)l->memories[1] + p->rows.at;
    unsigned char *to = (unsigned char *)l->memories[2] + (int64_t)p->first * K * 2;
    assert_int_equal(l->kernel, PGD_PORTABLE_pack);
    for (int64_t r = 0; r < p->n; r++) {
        memcpy(to + r * K * 2, from + r * p->rows.s0 * 2, (size_t)K * 2);
    }
}

static pgd_status launch(const pgd_host *h, void *queue, const gpu_launch *l) {
    (void)h;
    (void)queue;
    assert_in_range(n_lates, 0, MOST_LATE - 1);
    lates[n_lates++] = (late){.launch = *l};
    return PGD_OK;
}

static pgd_status copy(const pgd_host *h, void *queue, const gpu_copy *c) {
    int32_t n = 1;
    (void)h;
    (void)queue;
    if (++n_copies == fails_at) {
        return PGD_DEVICE_LOST;
    }
    for (int32_t i = n_done; i < n_lates; i++) {
        n += lates[i].is_copy;
    }
    most_in_flight = n > most_in_flight ? n : most_in_flight;
    assert_in_range(n_lates, 0, MOST_LATE - 1);
    lates[n_lates++] = (late){.is_copy = 1, .copy = *c};
    return PGD_OK;
}

static pgd_status fill_now(const pgd_host *h, void *queue, void *memory, uint64_t offset,
                           uint64_t bytes, uint32_t pattern) {
    (void)h;
    (void)queue;
    assert_int_equal(pattern, 0);
    memset((unsigned char *)memory + offset, 0, bytes);
    return PGD_OK;
}

static pgd_status point(const pgd_host *h, void *queue, uint32_t slot) {
    (void)h;
    (void)queue;
    reached[slot] = n_lates;
    return PGD_OK;
}

static pgd_status point_wait(const pgd_host *h, void *queue, uint32_t slot, uint64_t timeout_ns) {
    (void)h;
    (void)queue;
    (void)timeout_ns;
    for (; n_done < reached[slot]; n_done++) {
        if (lates[n_done].is_copy) {
            run_copy(&lates[n_done].copy);
        } else {
            run_launch(&lates[n_done].launch);
        }
    }
    return PGD_OK;
}

static gpu_driver driver = {.kind = "test",
                            .create = create,
                            .destroy = destroy,
                            .map = map,
                            .queue_create = host_queue_create,
                            .queue_destroy = host_queue_destroy,
                            .launch = launch,
                            .copy = copy,
                            .fill = fill_now,
                            .point = point,
                            .point_wait = point_wait};

// ---- a weight ----------------------------------------------------------------------------------

// The bytes of a weight's rows as they arrive, which lie `cols` apart in the source.
// right: they are those of the source.
static pgd_status packed(int64_t cols, int32_t *out_right) {
    const pgd_queue_desc queue = {.size = sizeof(queue)};
    const uint64_t bytes = (uint64_t)(N * cols * 2);
    unsigned char *source = malloc(bytes);
    gpu_self self = {.host = &host, .driver = &driver};
    pgd_device d = {.size = sizeof(d), .self = &self, .host = &host};
    pgd_weight_desc desc = {
        .size = sizeof(desc), .uses = PGD_USE_GEMM, .dtype = PGD_BF16, .n = N, .k = K};
    const pgd_weight_part part = {.rows = N,
                                  .cols = cols,
                                  .row_count = N,
                                  .col_start = cols - K,
                                  .col_count = K,
                                  .data = {.ptr = source, .bytes = bytes}};
    pgd_weight_plan plan = {.size = sizeof(plan)};
    pgd_buffer *buffer = NULL;
    pgd_buffer *scratch = NULL;
    pgd_queue *q = NULL;
    pgd_weight *w = NULL;
    uint32_t state = 1;
    for (uint64_t i = 0; i < bytes; i++) {
        state = state * 1664525u + 1013904223u;
        source[i] = (unsigned char)(state >> 24);
    }
    desc.parts = &part;
    desc.n_parts = 1;
    desc.part_stride = sizeof(part);
    n_created = n_destroyed = n_team = most_in_flight = n_copies = n_lates = n_done = 0;
    staging = NULL;
    assert_int_equal(gpu_queue_table.create(&d, &queue, &q), PGD_OK);
    assert_int_equal(gpu_weight_table.plan(&d, &desc, &plan), PGD_OK);
    const pgd_buffer_desc room = {.size = sizeof(room), .bytes = plan.bytes};
    const pgd_buffer_desc free_room = {.size = sizeof(free_room), .bytes = plan.scratch};
    assert_int_equal(gpu_memory_table.create(&d, &room, &buffer), PGD_OK);
    assert_int_equal(gpu_memory_table.create(&d, &free_room, &scratch), PGD_OK);
    const pgd_range dst = {buffer, 0, plan.bytes};
    const pgd_range in = {scratch, 0, plan.scratch};
    const pgd_status code = gpu_weight_table.prepare(&d, q, &desc, &dst, &in, &w);
    *out_right = code == PGD_OK;
    for (int64_t r = 0; r < N && *out_right; r++) {
        *out_right = memcmp((unsigned char *)buffer->memory + r * K * 2,
                            source + (r * cols + cols - K) * 2, (size_t)K * 2) == 0;
    }
    gpu_weight_table.destroy(&d, w);
    gpu_queue_table.destroy(&d, q);
    gpu_memory_table.destroy(&d, buffer);
    gpu_memory_table.destroy(&d, scratch);
    free(source);
    return code;
}

static void test_the_ring_gives_the_same_bytes(void **state) {
    static const int64_t widths[] = {K, K + 64}; // rows that follow each other, and a part of rows
    (void)state;
    for (size_t i = 0; i < sizeof(widths) / sizeof(widths[0]); i++) {
        int32_t is_right = 0;
        driver.map = NULL;
        assert_int_equal(packed(widths[i], &is_right), PGD_OK);
        assert_true(is_right);
        assert_int_equal(n_created + n_team, 0);
        driver.map = map;
        assert_int_equal(packed(widths[i], &is_right), PGD_OK);
        assert_true(is_right);
        assert_int_equal(n_created, 1);
        assert_int_equal(n_destroyed, 1);
        assert_int_equal(n_team, 5); // 4 MiB each
        assert_int_equal(n_copies, 5);
        assert_int_equal(most_in_flight, 4);
    }
}

static void test_memory_that_the_host_does_not_see(void **state) {
    (void)state;
    int32_t is_right = 0;
    map_code = PGD_UNSUPPORTED;
    assert_int_equal(packed(K, &is_right), PGD_OK);
    assert_true(is_right);
    assert_int_equal(n_created, 1); // asked once
    assert_int_equal(n_destroyed, 1);
    assert_int_equal(n_team, 0);
    map_code = PGD_OUT_OF_MEMORY;
    assert_int_equal(packed(K, &is_right), PGD_OUT_OF_MEMORY);
    assert_int_equal(n_destroyed, 1);
    map_code = PGD_OK;
}

static void test_a_copy_that_fails(void **state) {
    (void)state;
    int32_t is_right = 0;
    fails_at = 3;
    assert_int_equal(packed(K, &is_right), PGD_DEVICE_LOST);
    assert_int_equal(n_destroyed, 1);
    fails_at = 0;
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_the_ring_gives_the_same_bytes),
        cmocka_unit_test(test_memory_that_the_host_does_not_see),
        cmocka_unit_test(test_a_copy_that_fails),
    };
    lates = calloc(MOST_LATE, sizeof(*lates));
    const int code = cmocka_run_group_tests(tests, NULL, NULL);
    free(lates);
    return code;
}
