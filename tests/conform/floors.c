// Level 4: floors as shares of what the device's own copies and products reach.
//
//   limits | sample | limits | sample | limits ...       the share of a sample is of the mean of the
//                                                        limits before and after it; the median of
//                                                        the shares is judged
//
// Clocks and neighbours move a machine's limits within seconds, so a share compares what was
// measured side by side. A sample is some steps, of which the median counts; limits are the best of
// some rounds.
//
//   model     synthetic:qwen2.5-0.5b in bf16, unless --model names another one
//   decode    of 1 or 64 sequences at contexts of 128 to 153 tokens; the cache is not counted
//   prefill   of 512 tokens; the head once
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "engine/inner.h"
#include "fast.h"

enum { CONTEXT = 128, PREFILL = 512, SAMPLES = 5, STEPS = 5 };

typedef struct load {
    fast_limits limits;
    pgd_engine *e;
    double bytes; // of the weights
    double body;  // operations of a row up to the head
    double head;  // of a row through the head
    int32_t n_prompts;
} load;

static int compare(const void *a, const void *b) {
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median(double *values, int32_t n) {
    qsort(values, (size_t)n, sizeof(values[0]), compare);
    return values[n / 2];
}

static void load_open(conform *c, int32_t n, int32_t prompt, load *l) {
    const int32_t tokens = n * prompt > PREFILL ? n * prompt : PREFILL;
    const pgd_engine_options options = {.max_model_len = PREFILL + SAMPLES * STEPS,
                                        .max_num_seqs = n,
                                        .max_num_batched_tokens = tokens,
                                        .no_prefix_caching = 1,
                                        .memory = "4GiB"};
    pgd_engine_info info = {.size = sizeof(info)};
    conform_open(c);
    fast_limits_make(c, &l->limits);
    l->e = engine_open(c, c->options->model, options);
    pgd_engine_get_info(l->e, &info);
    const double table = (double)info.vocab_size * l->e->config->hidden;
    l->bytes = (double)info.weight_bytes;
    l->head = 2 * table;
    l->body = 2 * ((double)info.parameters - table * (l->e->config->tied ? 1 : 2));
}

static void submit(conform *c, load *l, int32_t prompt, int32_t n_new) {
    int32_t ids[PREFILL];
    for (int32_t k = 0; k < prompt; k++) {
        ids[k] = (l->n_prompts * 79 + k * 31) % 100 + 10;
    }
    const pgd_request_desc desc = {
        .size = sizeof(desc), .ids = ids, .n_ids = prompt, .max_tokens = n_new, .ignore_eos = 1};
    pgd_request *r = NULL;
    l->n_prompts++;
    MUST_OK(c, pgd_engine_submit(l->e, &desc, &r), "submitting");
}

static double step_seconds(conform *c, load *l) {
    const uint64_t start = pgd_clock_ns();
    MUST_OK(c, pgd_engine_step(l->e), "a step");
    return fast_seconds_since(start);
}

static double decode_sample(conform *c, load *l) {
    double times[STEPS];
    for (int32_t i = 0; i < STEPS; i++) {
        MUST(c, pgd_engine_busy(l->e) > 0, "the requests ended before the samples");
        times[i] = step_seconds(c, l);
    }
    return median(times, STEPS);
}

static double prefill_sample(conform *c, load *l) {
    double seconds = 0;
    submit(c, l, PREFILL, 1);
    while (pgd_engine_busy(l->e) > 0) {
        seconds += step_seconds(c, l);
    }
    return seconds;
}

// ---- shares ------------------------------------------------------------------------------------

// What a sample moves and computes at least; 0: that limit is not looked at.
typedef struct work {
    double bytes, flops;
} work;

typedef double (*sample_fn)(conform *c, load *l);

static double least_seconds(const work *w, const fast_peak *p) {
    const double reading = w->bytes / p->copy, computing = w->flops / p->gemm;
    return reading > computing ? reading : computing;
}

// Shares in percent, sorted; returns the limits' medians.
static fast_peak take_samples(conform *c, load *l, const work *w, sample_fn sample,
                              double *shares) {
    double copies[SAMPLES], products[SAMPLES];
    fast_peak before = fast_limits_read(c, &l->limits);
    for (int32_t i = 0; i < SAMPLES; i++) {
        const double seconds = sample(c, l);
        const fast_peak after = fast_limits_read(c, &l->limits);
        const fast_peak mean = {(before.copy + after.copy) / 2, (before.gemm + after.gemm) / 2};
        shares[i] = 100 * least_seconds(w, &mean) / seconds;
        copies[i] = mean.copy;
        products[i] = mean.gemm;
        before = after;
    }
    (void)median(shares, SAMPLES);
    return (fast_peak){median(copies, SAMPLES), median(products, SAMPLES)};
}

static const char *limit_name(const work *w, const fast_peak *p) {
    if (w->flops == 0) {
        return "copy bandwidth";
    }
    if (w->bytes == 0) {
        return "GEMM peak";
    }
    return w->bytes / p->copy > w->flops / p->gemm ? "the roofline, copy side"
                                                   : "the roofline, gemm side";
}

static void judge(conform *c, load *l, const char *what, const work *w, sample_fn sample,
                  int32_t floor) {
    double shares[SAMPLES];
    const fast_peak p = take_samples(c, l, w, sample, shares);
    const double share = shares[SAMPLES / 2];
    const char *of = limit_name(w, &p);
    conform_note(c, "%.0f %% (%.0f to %.0f) of %s (%.1f GB/s copied, %.0f GFLOP/s gemm)", share,
                 shares[0], shares[SAMPLES - 1], of, p.copy * 1e-9, p.gemm * 1e-9);
    conform_rate(c, what, "%.0f %% (%.0f to %.0f) of %s, floor %d %%", share, shares[0],
                 shares[SAMPLES - 1], of, (int)floor);
    MUST(c, share >= floor, "%s: %.0f %% of %s; the floor is %d %%", what, share, of, (int)floor);
    pgd_engine_destroy(l->e);
}

void conform_decode(conform *c) {
    const int32_t many = strcmp(c->check->part, "64") == 0;
    const int32_t n = many ? 64 : 1;
    static load l;
    load_open(c, n, CONTEXT, &l);
    const work w = {l.bytes, many ? n * (l.body + l.head) : 0};
    for (int32_t i = 0; i < n; i++) {
        submit(c, &l, CONTEXT, SAMPLES * STEPS + 1);
    }
    (void)step_seconds(c, &l); // all prompts
    judge(c, &l, many ? "decode of 64, context 128 to 153" : "decode of 1, context 128 to 153", &w,
          decode_sample, c->options->floors[many]);
}

void conform_prefill(conform *c) {
    static load l;
    load_open(c, 1, PREFILL, &l);
    const work w = {0, PREFILL * l.body + l.head};
    (void)prefill_sample(c, &l); // warms up
    judge(c, &l, "prefill of 512 tokens", &w, prefill_sample, c->options->floors[2]);
}
