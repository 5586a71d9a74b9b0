// Two devices, one model: greedy tokens are equal, but for near ties.
//
//   near_tie_test [--prompts N] [--quant SCHEME] REFERENCE DEVICE THRESHOLD MODEL...
//
// The rule: two runs may differ at a token only if the reference's gap between its two largest
// logits there is below THRESHOLD of max|logit|; the comparison goes on with the reference's token;
// at most 1 % of positions; all are listed. THRESHOLD 0: no difference is allowed. A prompt gives
// 64 positions; differences come in clusters, so a share near 1 % wants many prompts.
// --quant: both quantize the weights while they are loaded, and DEVICE has no operation in a slow
// place.
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <pagoda/pagoda.h>

#define MOST_PROMPTS 64
#define MAX_IDS      160
#define N_NEW        64
#define MOST         0.01

static int32_t n_prompts = 6;
static const char *quant; // NULL: weights as they are stored

typedef struct reference_run {
    int32_t ids[MAX_IDS]; // prompt, then the reference's tokens
    int32_t n_prompt;
    double gaps[N_NEW]; // share of max|logit|
} reference_run;

static uint64_t next_random(uint64_t *state) {
    *state = *state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return *state >> 33;
}

static pgd_status open_engine(const char *device, const char *model, int32_t allow_slow,
                              pgd_engine **out) {
    const pgd_engine_options options = {
        .size = sizeof(options),
        .model = model,
        .device = device,
        .kv_cache_dtype = "f32",
        .memory = "1GiB",
        .allow_slow = allow_slow,
        .quant = quant,
        .max_model_len = 128,
        .max_num_seqs = 1,
        .max_num_batched_tokens = 128,
        .keep_logits = 1,
    };
    return pgd_engine_create(&options, out);
}

static double gap_of(const float *logits, int32_t vocab) {
    double first = -INFINITY;
    double second = -INFINITY;
    double largest = 0.0;
    for (int32_t i = 0; i < vocab; i++) {
        double v = logits[i];
        if (v > first) {
            second = first;
            first = v;
        } else if (v > second) {
            second = v;
        }
        largest = fabs(v) > largest ? fabs(v) : largest;
    }
    return (first - second) / largest;
}

// Greedy tokens behind ids[0, n_ids); gaps may be NULL.
static pgd_status generate(pgd_engine *engine, const int32_t *ids, int32_t n_ids, int32_t n_new,
                           int32_t *out, double *gaps) {
    pgd_engine_info info = {.size = sizeof(info)};
    pgd_engine_get_info(engine, &info);
    const pgd_request_desc desc = {
        .size = sizeof(desc), .ids = ids, .n_ids = n_ids, .max_tokens = n_new, .ignore_eos = 1};
    pgd_request *request = NULL;
    PGD_TRY(pgd_engine_submit(engine, &desc, &request));
    while (pgd_engine_busy(engine) > 0) {
        PGD_TRY(pgd_engine_step(engine));
        pgd_output o = {.size = sizeof(o)};
        pgd_request_output(request, &o);
        if (o.n_ids > 0) {
            out[o.n_ids - 1] = o.ids[o.n_ids - 1];
            if (gaps != NULL) {
                gaps[o.n_ids - 1] = gap_of(pgd_request_logits(request), info.vocab_size);
            }
        }
    }
    pgd_request_release(request);
    return PGD_OK;
}

static pgd_status run_reference(const char *device, const char *model, reference_run *runs) {
    pgd_engine *engine = NULL;
    pgd_engine_info info = {.size = sizeof(info)};
    PGD_TRY(open_engine(device, model, 1, &engine));
    pgd_engine_get_info(engine, &info);
    uint64_t state = 77;
    pgd_status status = PGD_OK;
    for (int32_t i = 0; i < n_prompts && status == PGD_OK; i++) {
        reference_run *r = &runs[i];
        r->n_prompt = 1 + (int32_t)(next_random(&state) % 40);
        for (int32_t k = 0; k < r->n_prompt; k++) {
            r->ids[k] = (int32_t)(next_random(&state) % (uint64_t)info.vocab_size);
        }
        status = generate(engine, r->ids, r->n_prompt, N_NEW, r->ids + r->n_prompt, r->gaps);
    }
    pgd_engine_destroy(engine);
    return status;
}

// Follows one reference run; returns how many positions differ, or -1 if one may not.
static pgd_status follow(pgd_engine *engine, const reference_run *r, int32_t number,
                         double threshold, int32_t *n_differ, int32_t *n_wrong) {
    int32_t done = 0;
    while (done < N_NEW) {
        int32_t got[N_NEW];
        const int32_t *expected = r->ids + r->n_prompt + done;
        PGD_TRY(generate(engine, r->ids, r->n_prompt + done, N_NEW - done, got, NULL));
        int32_t same = 0;
        while (same < N_NEW - done && got[same] == expected[same]) {
            same++;
        }
        if (same == N_NEW - done) {
            break;
        }
        int32_t at = done + same;
        int32_t near = r->gaps[at] < threshold;
        printf("  prompt %d, token %d: %d, reference %d, gap %.2e of max|logit|: %s\n", number, at,
               got[same], expected[same], r->gaps[at], near ? "near tie" : "WRONG");
        (*n_differ)++;
        *n_wrong += !near;
        done = at + 1;
    }
    return PGD_OK;
}

static pgd_status check_model(char **argv, const char *model, int32_t *n_failed) {
    static reference_run runs[MOST_PROMPTS];
    double threshold = strtod(argv[3], NULL);
    int32_t n_differ = 0;
    int32_t n_wrong = 0;
    PGD_TRY(run_reference(argv[1], model, runs));
    pgd_engine *engine = NULL;
    PGD_TRY(open_engine(argv[2], model, quant == NULL, &engine));
    pgd_status status = PGD_OK;
    for (int32_t i = 0; i < n_prompts && status == PGD_OK; i++) {
        status = follow(engine, &runs[i], i, threshold, &n_differ, &n_wrong);
    }
    pgd_engine_destroy(engine);
    double share = (double)n_differ / (n_prompts * N_NEW);
    int32_t ok = status == PGD_OK && n_wrong == 0 && share <= MOST;
    printf("%s: %s and %s differ at %d of %d positions: %s\n", model, argv[1], argv[2], n_differ,
           n_prompts * N_NEW, ok ? "ok" : "FAILED");
    *n_failed += !ok;
    return status;
}

int main(int argc, char **argv) {
    while (argc > 2 && strncmp(argv[1], "--", 2) == 0) {
        if (strcmp(argv[1], "--quant") == 0) {
            quant = argv[2];
        } else {
            n_prompts = strcmp(argv[1], "--prompts") == 0 ? (int32_t)strtol(argv[2], NULL, 10) : 0;
        }
        argv += 2;
        argc -= 2;
    }
    if (argc < 5 || n_prompts < 1 || n_prompts > MOST_PROMPTS) {
        fprintf(stderr, "usage: near_tie_test [--prompts 1..64] [--quant SCHEME] REFERENCE DEVICE "
                        "THRESHOLD MODEL...\n");
        return 2;
    }
    int32_t n_failed = 0;
    for (int i = 4; i < argc; i++) {
        if (check_model(argv, argv[i], &n_failed) != PGD_OK) {
            printf("FAILED %s: %s\n", argv[i], pgd_last_error());
            n_failed += n_failed == 0;
        }
    }
    printf("%d passed, %d failed\n", argc - 4 - n_failed, n_failed);
    return n_failed == 0 ? 0 : 1;
}
