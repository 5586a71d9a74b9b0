// Level 3, whole models: no slow places, the same tokens under any load, refusals, soak.
#include "engine.h"

#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "dev/inner.h"

#define MODEL "qwen3-window"

void conform_native(conform *c) {
    static const char *const models[] = {"llama-llama3", "qwen2-window", MODEL};
    char model[1200];
    for (size_t i = 0; i < sizeof(models) / sizeof(models[0]); i++) {
        engine_model(c, models[i], model, sizeof(model));
        pgd_engine *e = engine_open(c, model, (pgd_engine_options){.max_model_len = 64});
        pgd_engine_destroy(e);
    }
}

// ---- batches -----------------------------------------------------------------------------------

typedef struct way {
    const char *name;
    int32_t seqs, budget, block, blocks, no_cache;
} way;

static const way ways[] = {
    {"alone again", 1, 0, 16, 0, 1},
    {"24 together", 24, 0, 16, 0, 1},
    {"24 together, cached, blocks of 4", 24, 0, 4, 0, 0},
    {"17 together, 19 rows a step", 17, 19, 16, 0, 1},
    {"9 together, 13 rows a step, blocks of 5, cached", 9, 13, 5, 0, 0},
    {"24 together, little memory", 24, 0, 4, 60, 0},
};

enum { REQUESTS = 24, LONGEST = 60, LENGTH = 96 };

static pgd_engine *open_way(conform *c, const char *model, const way *w) {
    return engine_open(c, model,
                       (pgd_engine_options){.allow_slow = 1,
                                            .max_model_len = LENGTH,
                                            .max_num_seqs = w->seqs,
                                            .max_num_batched_tokens = w->budget,
                                            .block_size = w->block,
                                            .num_blocks = w->blocks,
                                            .no_prefix_caching = (uint32_t)w->no_cache});
}

void conform_batches(conform *c) {
    static engine_case cases[REQUESTS];
    char model[1200];
    pgd_engine_info info = {.size = sizeof(info)};
    conform_open(c);
    const int32_t promised = (pgd_dev_info(c->dev)->caps & PGD_CAP_INVARIANT) != 0;
    conform_close(c);
    if (!promised) {
        conform_skip(c, "the device does not say that it is batch-invariant");
    }
    engine_model(c, MODEL, model, sizeof(model));
    pgd_engine *e = open_way(c, model, &ways[0]);
    pgd_engine_get_info(e, &info);
    engine_draw(c->options->seed, info.vocab_size, LONGEST, cases, REQUESTS);
    engine_learn(c, e, cases, REQUESTS);
    pgd_engine_destroy(e);
    for (size_t i = 0; i < sizeof(ways) / sizeof(ways[0]); i++) {
        e = open_way(c, model, &ways[i]);
        engine_run(c, e, cases, REQUESTS, ways[i].name);
        pgd_engine_destroy(e);
    }
    conform_note(c, "%d requests in %d ways", REQUESTS, (int)(sizeof(ways) / sizeof(ways[0])));
}

// ---- faults ------------------------------------------------------------------------------------

// After each refused call the device goes on: a copy there and back.
static void still_works(conform *c, pgd_queue *q, const char *behind) {
    unsigned char in[256], out[256] = {0};
    char what[160];
    pgd_buffer *b = conform_buffer(c, sizeof(in));
    for (size_t i = 0; i < sizeof(in); i++) {
        in[i] = (unsigned char)(i * 7 + 1);
    }
    conform_put(c, q, b, 0, in, sizeof(in));
    conform_get(c, q, out, b, 0, sizeof(out));
    snprintf(what, sizeof(what), "behind %s", behind);
    MUST(c, memcmp(in, out, sizeof(in)) == 0, "%s a copy gives other bytes", what);
    MUST_OK(c, c->d->device->status(c->d), what);
    c->d->memory->destroy(c->d, b);
}

static void copy_beyond(conform *c, pgd_queue *q) {
    static const struct {
        uint64_t at, bytes, rows, pitch;
    } ranges[] = {{0, 4097, 0, 0},
                  {4000, 97, 0, 0},
                  {UINT64_MAX - 10, 20, 0, 0},
                  {0, 64, 65, 64},
                  {0, 64, UINT64_MAX / 32, 64}};
    static unsigned char bytes[8192];
    pgd_buffer *b = conform_buffer(c, 4096);
    for (size_t i = 0; i < sizeof(ranges) / sizeof(ranges[0]); i++) {
        const pgd_copy copy = {.dst_offset = (uint64_t)(uintptr_t)bytes,
                               .src = b,
                               .src_offset = ranges[i].at,
                               .bytes = ranges[i].bytes,
                               .rows = ranges[i].rows,
                               .dst_pitch = ranges[i].pitch,
                               .src_pitch = ranges[i].pitch};
        pgd_status code = c->d->queue->copy(c->d, q, &copy, 1);
        MUST(c, code == PGD_INVALID || code == PGD_OUT_OF_RANGE,
             "a copy of %llu x %llu bytes at %llu of a buffer of 4096 gives %s",
             (unsigned long long)copy.rows, (unsigned long long)copy.bytes,
             (unsigned long long)copy.src_offset, pgd_status_name(code));
        still_works(c, q, "a copy beyond a buffer");
        // The same as the last one of a list.
        const pgd_copy list[2] = {{.dst_offset = (uint64_t)(uintptr_t)bytes, .src = b, .bytes = 8},
                                  copy};
        code = c->d->queue->copy(c->d, q, list, 2);
        MUST(c, code == PGD_INVALID || code == PGD_OUT_OF_RANGE,
             "a list whose second copy reaches beyond a buffer gives %s", pgd_status_name(code));
        still_works(c, q, "a list with a copy beyond a buffer");
    }
    c->d->memory->destroy(c->d, b);
}

void conform_faults(conform *c) {
    conform_open(c);
    pgd_queue *q = conform_queue(c, PGD_QUEUE_COMPUTE);
    still_works(c, q, "opening");
    copy_beyond(c, q);
    for (int32_t i = 0; i < 3; i++) {
        const pgd_buffer_desc desc = {.size = sizeof(desc), .bytes = UINT64_C(1) << 60};
        pgd_buffer *b = NULL;
        MUST(c, c->d->memory->create(c->d, &desc, &b) == PGD_OUT_OF_MEMORY,
             "a buffer of 2^60 bytes is not OUT_OF_MEMORY");
        still_works(c, q, "OUT_OF_MEMORY");
    }
    // Another device of the same plugin in the same process, closed before this one.
    pgd_dev *other = NULL;
    pgd_status code = conform_try_open(c, &other);
    MUST(c, code == PGD_OK, "a second opening in one process: %s", pgd_fail_text(code));
    still_works(c, q, "a second opening");
    pgd_dev_close(other);
    still_works(c, q, "closing the second");
    c->d->queue->destroy(c->d, q);
    conform_close(c);
}

// ---- soak --------------------------------------------------------------------------------------

enum { POOL = 12, POINTS = 400 };

static uint32_t next(uint64_t *state) {
    *state = *state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (uint32_t)(*state >> 33);
}

typedef struct load {
    pgd_engine *e;
    engine_case pool[POOL];
    pgd_request *requests[POOL];
    uint64_t state;
    int64_t n_done, n_cancelled;
    int32_t exact; // tokens do not depend on the load
} load;

static void start_some(conform *c, load *l) {
    for (int32_t i = 0; i < POOL; i++) {
        if (l->requests[i] == NULL && next(&l->state) % 3 == 0) {
            const engine_case *k = &l->pool[i];
            const pgd_request_desc desc = {.size = sizeof(desc),
                                           .ids = k->ids,
                                           .n_ids = k->n_ids,
                                           .max_tokens = k->max_tokens,
                                           .ignore_eos = 1,
                                           .temperature = k->temperature,
                                           .repetition_penalty = k->penalty,
                                           .has_seed = 1,
                                           .seed = k->seed};
            MUST_OK(c, pgd_engine_submit(l->e, &desc, &l->requests[i]), "submitting");
        }
    }
}

static void end_some(conform *c, load *l) {
    for (int32_t i = 0; i < POOL; i++) {
        pgd_output o = {.size = sizeof(o)};
        if (l->requests[i] == NULL) {
            continue;
        }
        if (next(&l->state) % 97 == 0) {
            pgd_request_release(l->requests[i]);
            l->requests[i] = NULL;
            l->n_cancelled++;
            continue;
        }
        pgd_request_output(l->requests[i], &o);
        if (!o.done) {
            continue;
        }
        MUST(c, o.error == NULL, "request %d ends with: %s", (int)i, o.error);
        for (int32_t k = 0; k < o.n_ids && l->exact; k++) {
            MUST(c, k < l->pool[i].n_want && o.ids[k] == l->pool[i].want[k],
                 "request %d: token %d is %d under load, %d alone", (int)i, (int)k, (int)o.ids[k],
                 (int)l->pool[i].want[k]);
        }
        MUST(c, o.n_ids == l->pool[i].max_tokens, "request %d ends with %d tokens of %d", (int)i,
             (int)o.n_ids, (int)l->pool[i].max_tokens);
        pgd_request_release(l->requests[i]);
        l->requests[i] = NULL;
        l->n_done++;
    }
}

// Growth over the second half of the time, in bytes.
static double growth(const double *y, int32_t n) {
    return conform_slope(y + n / 2, n - n / 2) * (n - n / 2);
}

static void judge_growth(conform *c, const conform_traces *first, const double *heap,
                         const double *pages, int32_t n) {
    conform_traces last;
    conform_traces_read(&last);
    if (n >= 16 && growth(heap, n) > 256 * 1024) {
        conform_fail(c, "the heap grows by %.0f bytes in the second half", growth(heap, n));
    }
    if (n >= 100 && growth(pages, n) > 16 * 1024 * 1024) {
        conform_fail(c, "resident memory grows by %.0f bytes in the second half", growth(pages, n));
    }
    if (last.threads > first->threads || last.files > first->files) {
        conform_fail(c, "%lld threads and %lld descriptors at the start, %lld and %lld at the end",
                     (long long)first->threads, (long long)first->files, (long long)last.threads,
                     (long long)last.files);
    }
}

void conform_soak(conform *c) {
    static load l;
    static double heap[POINTS], pages[POINTS];
    char model[1200];
    pgd_engine_info info = {.size = sizeof(info)};
    pgd_engine_stats stats = {.size = sizeof(stats)};
    conform_traces first, now;
    int32_t n = 0;
    engine_model(c, MODEL, model, sizeof(model));
    const way w = {"soak", 8, 32, 4, 50, 0};
    l.e = open_way(c, model, &w);
    pgd_engine_get_info(l.e, &info);
    l.state = c->options->seed;
    engine_draw(c->options->seed + 1, info.vocab_size, 40, l.pool, POOL);
    engine_learn(c, l.e, l.pool, POOL);
    conform_open(c);
    l.exact = (pgd_dev_info(c->dev)->caps & PGD_CAP_INVARIANT) != 0;
    conform_close(c);
    conform_traces_read(&first);
    const uint64_t start = pgd_clock_ns(), span = c->options->soak_ns;
    while (pgd_clock_ns() - start < span || l.n_done < POOL) {
        start_some(c, &l);
        MUST_OK(c, pgd_engine_step(l.e), "a step under load");
        end_some(c, &l);
        if (n < POINTS && pgd_clock_ns() - start >= span / POINTS * (uint64_t)n) {
            conform_traces_read(&now);
            heap[n] = (double)now.heap;
            pages[n++] = (double)now.pages;
        }
    }
    judge_growth(c, &first, heap, pages, n);
    pgd_engine_get_stats(l.e, &stats);
    conform_note(c, "%.0f s: %lld requests, %lld cancelled, %llu steps, %llu preemptions",
                 (double)span * 1e-9, (long long)l.n_done, (long long)l.n_cancelled,
                 (unsigned long long)stats.n_steps, (unsigned long long)stats.n_preemptions);
}
