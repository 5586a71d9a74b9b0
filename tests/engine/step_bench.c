// What the engine costs beside the device. A program to run by hand, not a test:
//
//   step_bench null MODEL         host time of a decode step with a device that computes nothing
//   step_bench cached MODEL       an answer behind 2,000 cached tokens against a step of 16 rows
//   step_bench caching MODEL      prefix caching where nothing is ever found: planning the same
//                                 requests with and without it, beside their time in the engine
//   step_bench layers MODEL       a call and a step with and without layers around the device
//
// Each figure is the best of several runs, so that a busy machine does not speak in it.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <pagoda/pagoda.h>

#include "base/clock.h"
#include "base/mem.h"
#include "base/rng.h"
#include "dev/inner.h"
#include "sched/sched.h"

#define N_STEPS  200
#define N_RUNS   7
#define CONTEXT  2000
#define N_ROWS   16
#define MAX_SEQS 256

static void fail(const char *what) {
    fprintf(stderr, "step_bench: %s: %s\n", what, pgd_last_error());
    exit(1);
}

static pgd_engine *open_engine(const pgd_engine_options *o) {
    pgd_engine *engine = NULL;
    if (pgd_engine_create(o, &engine) != PGD_OK) {
        fail("opening the engine");
    }
    return engine;
}

static pgd_request *submit(pgd_engine *engine, const pgd_request_desc *d) {
    pgd_request *r = NULL;
    if (pgd_engine_submit(engine, d, &r) != PGD_OK) {
        fail("submitting");
    }
    return r;
}

static double step(pgd_engine *engine) {
    uint64_t begin = pgd_clock_ns();
    if (pgd_engine_step(engine) != PGD_OK) {
        fail("a step");
    }
    return (double)(pgd_clock_ns() - begin) / 1e3;
}

// ---- host cost ---------------------------------------------------------------------------------

static void on_delta(void *arg, pgd_request *request, const pgd_delta *delta) {
    (void)request;
    *(size_t *)arg += delta->text_len;
}

// us a step of n_seqs decoding sequences; the least of the means of runs of N_STEPS.
static double decode_cost(pgd_engine *engine, int32_t n_seqs, const pgd_request_desc *like) {
    pgd_request *requests[MAX_SEQS];
    int32_t ids[64];
    double best = 1e30;
    for (int32_t i = 0; i < n_seqs; i++) {
        for (int32_t k = 0; k < 64; k++) {
            ids[k] = 100 + (i * 7 + k) % 200;
        }
        pgd_request_desc d = *like;
        d.ids = ids;
        d.n_ids = 64;
        requests[i] = submit(engine, &d);
    }
    for (int32_t i = 0; i < 20; i++) {
        (void)step(engine);
    }
    for (int32_t run = 0; run < N_RUNS - 4; run++) {
        double sum = 0.0;
        for (int32_t i = 0; i < N_STEPS; i++) {
            sum += step(engine);
        }
        best = sum / N_STEPS < best ? sum / N_STEPS : best;
    }
    for (int32_t i = 0; i < n_seqs; i++) {
        pgd_request_release(requests[i]);
    }
    return best;
}

static void bench_null(const char *model) {
    static const char *const stops[] = {"\n\nUser:", "</answer>"};
    const pgd_engine_options o = {
        .size = sizeof(o),
        .model = model,
        .device = "null{tokens=words;memory=8GiB}",
        .max_num_seqs = MAX_SEQS,
        .threads = 1,
    };
    size_t heard = 0;
    const pgd_request_desc plain = {.size = sizeof(plain),
                                    .max_tokens = 900,
                                    .ignore_eos = 1,
                                    .on_delta = on_delta,
                                    .arg = &heard};
    pgd_request_desc sampled = plain;
    sampled.temperature = 0.8f;
    sampled.repetition_penalty = 1.1f;
    sampled.stop = stops;
    sampled.n_stop = 2;
    pgd_request_desc told = plain;
    told.has_logprobs = 1;
    told.n_logprobs = 5;
    static const int32_t sizes[] = {1, 32, 256};
    pgd_engine *engine = open_engine(&o);
    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
        printf("%3d sequences: %.1f us a step; with penalties and stop strings %.1f; with 5 log "
               "probabilities %.1f\n",
               sizes[i], decode_cost(engine, sizes[i], &plain),
               decode_cost(engine, sizes[i], &sampled), decode_cost(engine, sizes[i], &told));
    }
    pgd_engine_destroy(engine);
}

// ---- cached prompts ----------------------------------------------------------------------------

static void random_ids(uint64_t *rng, int32_t *ids, int32_t n) {
    for (int32_t i = 0; i < n; i++) {
        ids[i] = (int32_t)(pgd_rng_next(rng) % 200);
    }
}

// us from submit to the first token of a prompt whose first CONTEXT tokens are cached (or, with
// `cut`, of the step that computes its last N_ROWS alone).
static double first_token(pgd_engine *engine, const int32_t *ids, int32_t cut) {
    const pgd_request_desc d = {
        .size = sizeof(d), .ids = ids, .n_ids = CONTEXT + N_ROWS, .max_tokens = 1, .ignore_eos = 1};
    uint64_t begin = pgd_clock_ns();
    pgd_request *r = submit(engine, &d);
    if (cut) {
        (void)step(engine);
        begin = pgd_clock_ns();
    }
    (void)step(engine);
    double us = (double)(pgd_clock_ns() - begin) / 1e3;
    pgd_output out = {.size = sizeof(out)};
    pgd_request_output(r, &out);
    if (!out.done || out.n_cached != (cut ? 0 : CONTEXT)) {
        fprintf(stderr, "step_bench: %d tokens were cached\n", out.n_cached);
        exit(1);
    }
    pgd_request_release(r);
    return us;
}

static void bench_cached(const char *model) {
    pgd_engine_options o = {
        .size = sizeof(o),
        .model = model,
        .device = "cpu",
        .max_num_seqs = 2,
        .max_num_batched_tokens = CONTEXT,
        .max_model_len = CONTEXT + 64,
    };
    static int32_t ids[CONTEXT + N_ROWS];
    uint64_t rng = 1;
    double best[2] = {1e30, 1e30};
    for (int32_t cut = 0; cut < 2; cut++) {
        o.no_prefix_caching = (uint32_t)cut;
        pgd_engine *engine = open_engine(&o);
        random_ids(&rng, ids, CONTEXT + N_ROWS);
        const pgd_request_desc warm = {
            .size = sizeof(warm), .ids = ids, .n_ids = CONTEXT, .max_tokens = 1, .ignore_eos = 1};
        pgd_request *r = submit(engine, &warm);
        while (pgd_engine_busy(engine) > 0) {
            (void)step(engine);
        }
        pgd_request_release(r);
        for (int32_t i = 0; i < (cut ? 2 : 30); i++) {
            random_ids(&rng, ids + CONTEXT, N_ROWS);
            double us = first_token(engine, ids, cut);
            best[cut] = us < best[cut] ? us : best[cut];
        }
        pgd_engine_destroy(engine);
    }
    printf("submit to first token, %d tokens cached and %d new: %.0f us; a step of %d rows at the "
           "same context: %.0f us\n",
           CONTEXT, N_ROWS, best[0], N_ROWS, best[1]);
}

// ---- caching without hits ----------------------------------------------------------------------

// So few blocks that prompts of earlier runs are evicted, as in a server that has run for a while.
enum { N_PROMPTS = 32, PROMPT = 256, ANSWER = 32, LEN = PROMPT + ANSWER, BLOCK = 16, POOL = 1024 };

// What runs in an engine beside the device and depends on prefix caching: the scheduler, the cache
// and the memory of the hashes.
typedef struct planner {
    pgd_kv_cache *cache;
    pgd_sched *sched;
    pgd_step step;
    pgd_step_row rows[N_PROMPTS];
    pgd_seq seqs[N_PROMPTS];
    int32_t tokens[N_PROMPTS][LEN];
    int32_t blocks[N_PROMPTS][LEN / BLOCK];
} planner;

static void open_planner(planner *p, int32_t no_prefix_caching) {
    const pgd_kv_cache_config cache = {
        .num_blocks = POOL, .block_size = BLOCK, .no_prefix_caching = no_prefix_caching};
    const pgd_sched_config sched = {
        .max_num_batched_tokens = 2048, .max_num_seqs = N_PROMPTS, .max_model_len = 512};
    if (pgd_kv_cache_create(&cache, &p->cache) != PGD_OK ||
        pgd_sched_create(&sched, p->cache, &p->sched) != PGD_OK) {
        fail("the scheduler");
    }
    p->step.rows = p->rows;
    p->step.cap_rows = N_PROMPTS;
}

static void close_planner(planner *p) {
    pgd_sched_destroy(p->sched);
    pgd_kv_cache_destroy(p->cache);
}

static void add_prompts(planner *p) {
    for (int32_t i = 0; i < N_PROMPTS; i++) {
        p->seqs[i] = (pgd_seq){.tokens = p->tokens[i],
                               .n_prompt = PROMPT,
                               .n_tokens = PROMPT,
                               .cap_tokens = LEN,
                               .blocks = p->blocks[i],
                               .cap_blocks = LEN / BLOCK};
        if (pgd_kv_cache_shares(p->cache)) {
            p->seqs[i].hashes = pgd_mem_alloc(LEN / BLOCK, sizeof(pgd_kv_hash));
            if (p->seqs[i].hashes == NULL) {
                fail("memory of the hashes");
            }
        }
        if (pgd_sched_add(p->sched, &p->seqs[i]) != PGD_OK) {
            fail("adding a prompt");
        }
    }
}

// What emit does with a row.
static void add_token(planner *p, const pgd_step_row *row) {
    pgd_seq *seq = row->seq;
    if (!row->gives) {
        return;
    }
    seq->tokens[seq->n_tokens++] = (int32_t)p->step.number;
    pgd_kv_cache_learn(p->cache, seq);
    if (seq->n_tokens == seq->cap_tokens) {
        pgd_sched_finish(p->sched, seq);
    }
}

// us for all prompts and their answers, without a device.
static double plan_prompts(planner *p, uint64_t seed) {
    uint64_t rng = seed;
    for (int32_t i = 0; i < N_PROMPTS; i++) {
        random_ids(&rng, p->tokens[i], PROMPT);
    }
    const uint64_t begin = pgd_clock_ns();
    add_prompts(p);
    while (pgd_sched_n_running(p->sched) + pgd_sched_n_waiting(p->sched) > 0) {
        pgd_sched_plan(p->sched, &p->step);
        for (int32_t i = 0; i < p->step.n_rows; i++) {
            add_token(p, &p->rows[i]);
        }
    }
    for (int32_t i = 0; i < N_PROMPTS; i++) {
        pgd_mem_free(p->seqs[i].hashes);
    }
    const double us = (double)(pgd_clock_ns() - begin) / 1e3;
    if (pgd_sched_get_stats(p->sched)->n_hit != 0) {
        fprintf(stderr, "step_bench: something was found in the prefix cache\n");
        exit(1);
    }
    return us;
}

// us for the prompts; [0] with prefix caching, [1] without. The first runs fill the pool.
static void best_plans(double *best) {
    enum { FILL = 4, RUNS = 200 };
    static planner planners[2];
    for (int32_t k = 0; k < 2; k++) {
        open_planner(&planners[k], k);
        best[k] = 1e30;
    }
    for (uint64_t i = 1; i <= FILL + RUNS; i++) {
        for (int32_t k = 0; k < 2; k++) { // the same prompts, by turns
            const double us = plan_prompts(&planners[k], i);
            best[k] = i > FILL && us < best[k] ? us : best[k];
        }
    }
    close_planner(&planners[0]);
    close_planner(&planners[1]);
}

static double run_prompts(pgd_engine *engine, uint64_t seed) {
    static int32_t ids[N_PROMPTS][PROMPT];
    pgd_request_desc descs[N_PROMPTS];
    pgd_request *out[N_PROMPTS];
    uint64_t rng = seed;
    for (int32_t i = 0; i < N_PROMPTS; i++) {
        random_ids(&rng, ids[i], PROMPT);
        descs[i] = (pgd_request_desc){.size = sizeof(descs[i]),
                                      .ids = ids[i],
                                      .n_ids = PROMPT,
                                      .max_tokens = ANSWER,
                                      .ignore_eos = 1};
    }
    uint64_t begin = pgd_clock_ns();
    if (pgd_engine_generate(engine, descs, N_PROMPTS, NULL, NULL, out) != PGD_OK) {
        fail("generating");
    }
    double ms = (double)(pgd_clock_ns() - begin) / 1e6;
    for (int32_t i = 0; i < N_PROMPTS; i++) {
        pgd_request_release(out[i]);
    }
    return ms;
}

// ms in the engine; [0] with prefix caching, [1] without.
static void best_runs(const char *model, double *best) {
    pgd_engine *engines[2];
    for (int32_t i = 0; i < 2; i++) {
        const pgd_engine_options o = {.size = sizeof(o),
                                      .model = model,
                                      .device = "cpu",
                                      .num_blocks = POOL,
                                      .max_num_seqs = N_PROMPTS,
                                      .max_model_len = 512,
                                      .no_prefix_caching = (uint32_t)i};
        engines[i] = open_engine(&o);
        best[i] = 1e30;
    }
    for (uint64_t i = 0; i < 2 * N_RUNS; i++) {
        for (uint64_t k = 0; k < 2; k++) { // the same prompts, who begins by turns
            const uint64_t which = (i + k) % 2;
            double ms = run_prompts(engines[which], i + 1);
            best[which] = ms < best[which] ? ms : best[which];
        }
    }
    pgd_engine_destroy(engines[0]);
    pgd_engine_destroy(engines[1]);
}

static void bench_caching(const char *model) {
    double plans[2];
    double runs[2];
    best_plans(plans);
    best_runs(model, runs);
    const double more = plans[0] - plans[1];
    const double token_ns = more * 1e3 / (N_PROMPTS * LEN);
    printf("%d prompts of %d tokens, %d tokens each, nothing found\n", N_PROMPTS, PROMPT, ANSWER);
    printf("  planning alone: %.1f us with prefix caching, %.1f without: %.1f ns a token more\n",
           plans[0], plans[1], token_ns);
    printf("  the engine: %.2f ms with, %.2f without, of which that is %.3f %%\n", runs[0], runs[1],
           more / (runs[1] * 1e3) * 100.0);
    printf("  below 0.5 %% wherever a token takes more than %.1f us\n", token_ns / 0.005 / 1e3);
}

// ---- layers ------------------------------------------------------------------------------------

#define N_CALLS  200000
#define N_ROUNDS 25
#define N_AROUND 4

// Nothing around the device first. These layers pass on what they are called with.
static const char *const around[N_AROUND] = {
    "null{tokens=words;memory=1GiB}", "fault(null{tokens=words;memory=1GiB})",
    "check(null{tokens=words;memory=1GiB})",
    "trace{file=/dev/null}(null{tokens=words;memory=1GiB})"};
static const char *const around_names[N_AROUND] = {"no layer", "fault", "check", "trace"};

// ns a call of queue.signal, which the null device answers at once.
static double call_cost(const pgd_device *d, pgd_queue *q) {
    uint64_t value = 0;
    const uint64_t begin = pgd_clock_ns();
    for (int32_t i = 0; i < N_CALLS; i++) {
        if (d->queue->signal(d, q, &value) != PGD_OK) {
            fail("queue.signal");
        }
    }
    return (double)(pgd_clock_ns() - begin) / N_CALLS;
}

// The plugin's own table against the device that was opened, by turns; then with layers.
static void bench_calls(void) {
    const pgd_dev_search search = {0};
    const pgd_queue_desc desc = {.size = sizeof(desc)};
    pgd_dev_registry *registry = NULL;
    pgd_dev *devices[N_AROUND];
    pgd_queue *queues[N_AROUND];
    double best[1 + N_AROUND];
    if (pgd_dev_registry_create(&search, &registry) != PGD_OK) {
        fail("looking for plugins");
    }
    for (int32_t i = 0; i < N_AROUND; i++) {
        const pgd_dev_desc what = {.uri = around[i]};
        if (pgd_dev_open(registry, &what, &devices[i]) != PGD_OK ||
            pgd_dev_device(devices[i])
                    ->queue->create(pgd_dev_device(devices[i]), &desc, &queues[i]) != PGD_OK) {
            fail(around[i]);
        }
        best[i] = best[N_AROUND] = 1e30;
    }
    for (int32_t round = 0; round < N_ROUNDS; round++) {
        for (int32_t i = 0; i <= N_AROUND; i++) {
            const pgd_device *d =
                i < N_AROUND ? pgd_dev_device(devices[i]) : &devices[0]->levels[0].device;
            const double ns = call_cost(d, queues[i % N_AROUND]);
            best[i] = ns < best[i] ? ns : best[i];
        }
    }
    printf("a call of queue.signal, null device: %.2f ns through the plugin's own table\n",
           best[N_AROUND]);
    for (int32_t i = 0; i < N_AROUND; i++) {
        printf("    opened with %-9s %.2f ns\n", around_names[i], best[i]);
        pgd_dev_device(devices[i])->queue->destroy(pgd_dev_device(devices[i]), queues[i]);
        pgd_dev_close(devices[i]);
    }
    pgd_dev_registry_destroy(registry);
}

static void bench_layers(const char *model) {
    const pgd_request_desc plain = {.size = sizeof(plain), .max_tokens = 900, .ignore_eos = 1};
    pgd_engine *engines[N_AROUND];
    double best[N_AROUND];
    bench_calls();
    for (int32_t i = 0; i < N_AROUND; i++) {
        const pgd_engine_options o = {.size = sizeof(o),
                                      .model = model,
                                      .device = around[i],
                                      .max_num_seqs = N_ROWS,
                                      .threads = 1};
        engines[i] = open_engine(&o);
        best[i] = 1e30;
    }
    for (int32_t round = 0; round < N_RUNS; round++) {
        for (int32_t i = 0; i < N_AROUND; i++) {
            const double us = decode_cost(engines[i], N_ROWS, &plain);
            best[i] = us < best[i] ? us : best[i];
        }
    }
    printf("a decode step of %d sequences, null device:\n", N_ROWS);
    for (int32_t i = 0; i < N_AROUND; i++) {
        printf("    %-9s %.2f us\n", around_names[i], best[i]);
        pgd_engine_destroy(engines[i]);
    }
}

int main(int argc, char **argv) {
    if (argc == 3 && strcmp(argv[1], "null") == 0) {
        bench_null(argv[2]);
    } else if (argc == 3 && strcmp(argv[1], "cached") == 0) {
        bench_cached(argv[2]);
    } else if (argc == 3 && strcmp(argv[1], "caching") == 0) {
        bench_caching(argv[2]);
    } else if (argc == 3 && strcmp(argv[1], "layers") == 0) {
        bench_layers(argv[2]);
    } else {
        fprintf(stderr,
                "usage: step_bench null MODEL | cached MODEL | caching MODEL | layers MODEL\n");
        return 2;
    }
    return 0;
}
