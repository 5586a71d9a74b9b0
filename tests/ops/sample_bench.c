// What a sampled row costs on a device that computes in host memory. A program to run by hand, not
// a test:
//
//   sample_bench --plugin-dir DIR [--device URI] [--vocab N] [--rows N] [--threads N]
//
// peaked: a normal vocabulary with a dozen tokens far above it, as a trained model's rows are;
// flat: standard normal logits, of which no token has more than a few thousandths. A call has
// `rows` rows (default 1, one worker) of different logits. Each figure is the best of 30 calls, in
// microseconds a row, so that a busy machine does not speak in it.
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/fail.h"
#include "base/team.h"
#include "dev/dev.h"
#include "ops.h"

enum { MAX_ROWS = 64, N_CALLS = 30, N_BEST = 20 };

typedef struct block {
    pgd_batch_head head;
    int32_t out_slot[MAX_ROWS];
    pgd_sampling sampling[MAX_ROWS];
    int32_t last[MAX_ROWS];
    int32_t sampled[MAX_ROWS];
} block;

typedef struct bench {
    const char *folder;
    const char *uri;
    int64_t vocab;
    int64_t rows;
    int64_t threads;
    pgd_team *team;
    pgd_dev_registry *registry;
    pgd_dev *dev;
    pgd_queue *queue;
    pgd_exec *exec;
    block *block; // mask rows behind it
    pgd_batch batch;
    float *logits;
    int32_t *state;
    float logprobs[MAX_ROWS * (1 + N_BEST)];
    int32_t top_ids[MAX_ROWS * (1 + N_BEST)];
    int32_t ranks[MAX_ROWS];
    int32_t ids[MAX_ROWS];
    pgd_sample_args args;
} bench;

static const struct {
    const char *name;
    int32_t masked;
    pgd_sampling s;
} cases[] = {
    {"greedy", 0, {.flags = PGD_SAMPLE_GREEDY}},
    {"temperature 1", 0, {.temperature = 1}},
    {"temperature 0.7", 0, {.temperature = 0.7F}},
    {"top_k 50", 0, {.temperature = 1, .top_k = 50}},
    {"top_p 0.9", 0, {.temperature = 1, .top_p = 0.9F}},
    {"top_k 50, top_p 0.9", 0, {.temperature = 1, .top_k = 50, .top_p = 0.9F}},
    {"min_p 0.05", 0, {.temperature = 1, .min_p = 0.05F}},
    {"greedy, 20 log probabilities",
     0,
     {.flags = PGD_SAMPLE_GREEDY | PGD_SAMPLE_LOGPROBS, .n_logprobs = N_BEST}},
    {"given, its log probability", 0, {.flags = PGD_SAMPLE_GIVEN | PGD_SAMPLE_LOGPROBS}},
    {"greedy, counted", 0, {.flags = PGD_SAMPLE_GREEDY, .state_row = 1}},
    {"greedy, penalties", 0, {.flags = PGD_SAMPLE_GREEDY, .state_row = 1, .repetition = 1.1F}},
    {"top_k 50, top_p 0.9, penalties",
     0,
     {.temperature = 1, .top_k = 50, .top_p = 0.9F, .state_row = 1, .presence = 0.5F}},
    {"greedy, masked", 1, {.flags = PGD_SAMPLE_GREEDY}},
};

static void fill_logits(bench *b, int peaked) {
    ops_rng r = {.state = peaked ? 11 : 12};
    for (int64_t i = 0; i < b->rows * b->vocab; i++) {
        b->logits[i] = (float)(peaked ? ops_normal(&r) * 1.5 - 2 : ops_normal(&r));
    }
    for (int64_t row = 0; peaked && row < b->rows; row++) {
        for (int i = 0; i < 12; i++) {
            b->logits[row * b->vocab + ops_between(&r, 0, b->vocab - 1)] = 18 - (float)i;
        }
    }
}

static void fill_lists(bench *b) {
    ops_rng r = {.state = 13};
    uint32_t *mask = (uint32_t *)(void *)(b->block + 1);
    for (int64_t i = 0; i < b->rows * ((b->vocab + 31) / 32); i++) {
        mask[i] = (uint32_t)ops_next(&r);
    }
    for (int64_t i = 0; i < b->rows * 500; i++) { // what a long answer has said
        b->state[i / 500 * b->vocab + ops_between(&r, 0, b->vocab - 1)] = 1;
    }
}

static pgd_tensor tensor(const void *p, int32_t dtype, int64_t rows, int64_t columns) {
    pgd_tensor t = {.offset = (uint64_t)(uintptr_t)p, .dtype = dtype, .rank = 2};
    t.shape[0] = rows;
    t.shape[1] = columns;
    t.stride[0] = columns;
    t.stride[1] = 1;
    if (columns == 0) {
        t.rank = 1;
        t.stride[0] = 1;
    }
    return t;
}

static pgd_status open_bench(bench *b) {
    const pgd_dev_search search = {.no_env = 1, .folders = &b->folder, .n_folders = 1};
    const pgd_queue_desc queue = {.size = sizeof(queue)};
    pgd_dev_place place;
    pgd_query query = {.size = sizeof(query), .op = PGD_OP_sample, .args = &b->args};
    PGD_TRY(pgd_dev_registry_create(&search, &b->registry));
    PGD_TRY(pgd_team_create((uint32_t)b->threads, &b->team));
    pgd_dev_desc desc = {.uri = b->uri, .team = b->team, .allow_slow = 1};
    PGD_TRY(pgd_dev_open(b->registry, &desc, &b->dev));
    b->args = (pgd_sample_args){.size = sizeof(b->args),
                                .rows = PGD_ROWS_OUTPUTS,
                                .batch = &b->batch,
                                .logits = tensor(b->logits, PGD_F32, b->rows, b->vocab),
                                .ids = tensor(b->ids, PGD_I32, b->rows, 0),
                                .logprobs = tensor(b->logprobs, PGD_F32, b->rows, 1 + N_BEST),
                                .top_ids = tensor(b->top_ids, PGD_I32, b->rows, 1 + N_BEST),
                                .state = tensor(b->state, PGD_I32, b->rows, b->vocab),
                                .ranks = tensor(b->ranks, PGD_I32, b->rows, 0)};
    query.batch = &b->batch;
    PGD_TRY(pgd_dev_plan(b->dev, &query, 1, &place));
    const pgd_device *d = pgd_dev_device(b->dev);
    PGD_TRY(d->queue->create(d, &queue, &b->queue));
    PGD_TRY(pgd_dev_exec_create(b->dev, b->queue, place.scratch, &b->exec));
    printf("%s, %s, %lld rows of %lld, %lld workers: microseconds a row\n", b->uri, place.kernel,
           (long long)b->rows, (long long)b->vocab, (long long)b->threads);
    return PGD_OK;
}

static pgd_status measure(bench *b, size_t c, double *out_us) {
    const pgd_device *d = pgd_dev_device(b->dev);
    uint64_t best = UINT64_MAX, value = 0;
    for (int64_t r = 0; r < b->rows; r++) {
        b->block->sampling[r] = cases[c].s;
        b->block->sampling[r].seed = (uint64_t)r + 5;
        b->block->sampling[r].state_row = cases[c].s.state_row > 0 ? (int32_t)r + 1 : 0;
        b->block->sampling[r].mask_row = cases[c].masked ? (int32_t)r + 1 : 0;
    }
    for (int i = 0; i < N_CALLS; i++) {
        uint64_t begin = pgd_clock_ns();
        PGD_TRY(d->ops->sample(b->exec, &b->args));
        PGD_TRY(d->queue->signal(d, b->queue, &value));
        PGD_TRY(d->queue->host_wait(d, b->queue, value, PGD_WAIT_FOREVER));
        uint64_t took = pgd_clock_ns() - begin;
        best = took < best ? took : best;
        for (int64_t r = 0; r < b->rows; r++) {
            b->block->sampling[r].counter++;
        }
    }
    *out_us = (double)best / 1e3 / (double)b->rows;
    return PGD_OK;
}

static pgd_status run(bench *b) {
    const size_t n = sizeof(cases) / sizeof(cases[0]);
    double us[2][sizeof(cases) / sizeof(cases[0])];
    PGD_TRY(open_bench(b));
    for (int flat = 0; flat < 2; flat++) {
        fill_logits(b, !flat);
        for (size_t c = 0; c < n; c++) {
            PGD_TRY(measure(b, c, &us[flat][c]));
        }
    }
    printf("%-32s %10s %10s\n", "", "peaked", "flat");
    for (size_t c = 0; c < n; c++) {
        printf("%-32s %10.1f %10.1f\n", cases[c].name, us[0][c], us[1][c]);
    }
    return PGD_OK;
}

static int read_args(int argc, char **argv, bench *b) {
    for (int i = 1; i + 1 < argc; i += 2) {
        const char *name = argv[i];
        if (strcmp(name, "--plugin-dir") == 0) {
            b->folder = argv[i + 1];
        } else if (strcmp(name, "--device") == 0) {
            b->uri = argv[i + 1];
        } else {
            int64_t *to = strcmp(name, "--vocab") == 0     ? &b->vocab
                          : strcmp(name, "--rows") == 0    ? &b->rows
                          : strcmp(name, "--threads") == 0 ? &b->threads
                                                           : NULL;
            if (to == NULL) {
                return 0;
            }
            *to = strtoll(argv[i + 1], NULL, 10);
        }
    }
    return b->folder != NULL && b->rows > 0 && b->rows <= MAX_ROWS && b->vocab > 0 &&
           b->vocab < 1 << 22 && b->threads > 0;
}

int main(int argc, char **argv) {
    static bench b = {.uri = "cpu", .vocab = 131072, .rows = 1, .threads = 1};
    if (!read_args(argc, argv, &b)) {
        fprintf(stderr, "usage: sample_bench --plugin-dir DIR [--device URI] [--vocab N] "
                        "[--rows N] [--threads N]\n");
        return 2;
    }
    const size_t cells = (size_t)(b.rows * b.vocab);
    b.block = calloc(1, sizeof(block) + (size_t)b.rows * (size_t)((b.vocab + 31) / 32) * 4);
    b.logits = aligned_alloc(64, (cells * 4 + 63) / 64 * 64);
    b.state = calloc(cells, 4);
    if (b.block == NULL || b.logits == NULL || b.state == NULL) {
        fprintf(stderr, "no memory\n");
        return 1;
    }
    b.block->head.n_out = (int32_t)b.rows;
    b.batch = (pgd_batch){.size = sizeof(pgd_batch),
                          .cap_out = MAX_ROWS,
                          .cap_slots = MAX_ROWS,
                          .sampling_stride = sizeof(pgd_sampling),
                          .mirror = b.block,
                          .out_slot = offsetof(block, out_slot),
                          .sampling = offsetof(block, sampling),
                          .mask = sizeof(block),
                          .last = offsetof(block, last),
                          .sampled = offsetof(block, sampled)};
    fill_lists(&b);
    const pgd_status code = run(&b);
    if (code != PGD_OK) {
        fprintf(stderr, "%s\n", pgd_fail_text(code));
    }
    const pgd_device *d = b.dev == NULL ? NULL : pgd_dev_device(b.dev);
    pgd_dev_exec_destroy(b.dev, b.exec);
    if (d != NULL) {
        d->queue->destroy(d, b.queue);
    }
    pgd_dev_close(b.dev);
    pgd_team_destroy(b.team);
    pgd_dev_registry_destroy(b.registry);
    free(b.block);
    free(b.logits);
    free(b.state);
    return code == PGD_OK ? 0 : 1;
}
