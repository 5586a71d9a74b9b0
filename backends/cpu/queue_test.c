// queue.copy: pieces, pitches, overlaps and the team give what memmove gives.
#include <pagoda/plugin.h> // first: a field of pgd_host, fail, is a macro of cmocka

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <string.h>

#include "base/mem.h"
#include "base/team.h"
#include "dev/inner.h"

#include "base/fail.h"

const pgd_plugin *pgd_plugin_v0_cpu(uint32_t host_minor);

enum { BYTES = 12 << 20 };

typedef struct place {
    pgd_team *team;
    pgd_dev *dev;
    const pgd_device *d;
    pgd_queue *q;
    pgd_buffer *buffer;
    unsigned char *found; // the buffer's memory
    unsigned char *want;
} place;

static unsigned char pattern(uint64_t i) {
    return (unsigned char)((i * 2654435761u) >> 13);
}

static int open_place(void **state) {
    static place p;
    const pgd_queue_desc queue = {.size = sizeof(queue)};
    const pgd_buffer_desc desc = {.size = sizeof(desc), .bytes = BYTES};
    void *ptr = NULL;
    p = (place){0};
    assert_int_equal(pgd_team_create(3, &p.team), PGD_OK);
    assert_int_equal(
        pgd_dev_open_plugin(pgd_plugin_v0_cpu(PGD_ABI_MINOR), (pgd_str){0}, 0, p.team, 0, &p.dev),
        PGD_OK);
    p.d = pgd_dev_device(p.dev);
    assert_int_equal(p.d->queue->create(p.d, &queue, &p.q), PGD_OK);
    assert_int_equal(p.d->memory->create(p.d, &desc, &p.buffer), PGD_OK);
    assert_int_equal(p.d->memory->map(p.d, p.buffer, &ptr), PGD_OK);
    p.found = ptr;
    p.want = pgd_mem_alloc(BYTES, 1);
    assert_non_null(p.want);
    for (uint64_t i = 0; i < BYTES; i++) {
        p.found[i] = pattern(i);
        p.want[i] = p.found[i];
    }
    *state = &p;
    return 0;
}

static int close_place(void **state) {
    place *p = *state;
    pgd_mem_free(p->want);
    p->d->memory->destroy(p->d, p->buffer);
    p->d->queue->destroy(p->d, p->q);
    pgd_dev_close(p->dev);
    pgd_team_destroy(p->team);
    return 0;
}

// Both sides in the buffer; by_team: 1 must be a run of the team, 0 must not.
static void check(place *p, const pgd_copy *c, uint64_t by_team) {
    const uint64_t rows = c->rows > 1 ? c->rows : 1;
    const uint64_t before = pgd_team_runs(p->team);
    pgd_copy copy = *c;
    copy.dst = p->buffer;
    copy.src = p->buffer;
    for (uint64_t r = 0; r < rows; r++) {
        memmove(p->want + c->dst_offset + r * c->dst_pitch,
                p->want + c->src_offset + r * c->src_pitch, c->bytes);
    }
    assert_int_equal(p->d->queue->copy(p->d, p->q, &copy, 1), PGD_OK);
    assert_int_equal(pgd_team_runs(p->team) - before, by_team);
    assert_int_equal(memcmp(p->found, p->want, BYTES), 0);
}

static void small(void **state) {
    check(*state, &(pgd_copy){.dst_offset = 7, .src_offset = 5000, .bytes = 1001}, 0);
    check(*state, &(pgd_copy){.dst_offset = 3, .src_offset = 4}, 0);
    const pgd_copy rows = {.dst_offset = 100,
                           .src_offset = 1 << 20,
                           .bytes = 33,
                           .rows = 17,
                           .dst_pitch = 50,
                           .src_pitch = 64};
    check(*state, &rows, 0);
}

// One byte more and less than whole pieces.
static void large(void **state) {
    for (int32_t more = -1; more <= 1; more++) {
        pgd_copy c = {.dst_offset = 13, .src_offset = (6 << 20) + 5};
        c.bytes = (uint64_t)((5 << 20) + more);
        check(*state, &c, 1);
    }
    check(*state, &(pgd_copy){.src_offset = 3 << 20, .bytes = 1 << 20}, 1);
}

static void large_rows(void **state) {
    const pgd_copy c = {.dst_offset = 1,
                        .src_offset = 6 << 20,
                        .bytes = 300001,
                        .rows = 17,
                        .dst_pitch = 300011,
                        .src_pitch = 300007};
    check(*state, &c, 1);
    const pgd_copy thin = {.dst_offset = 0,
                           .src_offset = 6 << 20,
                           .bytes = 100,
                           .rows = 20000,
                           .dst_pitch = 128,
                           .src_pitch = 200};
    check(*state, &thin, 1);
}

// One after the other, as memmove: the team would read what it has just written.
static void overlap(void **state) {
    check(*state, &(pgd_copy){.dst_offset = 1000, .src_offset = 0, .bytes = 6 << 20}, 0);
    check(*state, &(pgd_copy){.dst_offset = 0, .src_offset = 1000, .bytes = 6 << 20}, 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(small),
        cmocka_unit_test(large),
        cmocka_unit_test(large_rows),
        cmocka_unit_test(overlap),
    };
    return cmocka_run_group_tests_name("cpu.queue", tests, open_place, close_place);
}
