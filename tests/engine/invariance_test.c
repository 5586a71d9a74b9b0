// Batch invariance: whatever runs beside a request, however its prompt is cut, however many threads
// there are, however often it is preempted and whatever of it is read from the prefix cache, its
// tokens, its logits and what it tells of log probabilities are the same bytes, with penalties and
// several answers too.
//
//   invariance_test [--requests N] DEVICE MODEL...     64
//
// The answer of each request alone is the expectation; every other way to run must equal it.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <pagoda/pagoda.h>

#define MOST_REQUESTS 64
#define MAX_PROMPT    60
#define MAX_NEW       24

typedef struct request_case {
    int32_t ids[MAX_PROMPT];
    int32_t n_ids;
    int32_t max_tokens;
    float temperature;
    uint64_t seed;
    float repetition;
    float presence;
    int32_t n;
    int32_t n_logprobs; // -1 = none, as the next
    int32_t n_prompt_logprobs;
} request_case;

typedef struct answer {
    int32_t ids[MAX_NEW];
    int32_t n_ids;
    uint64_t told; // hash of log probabilities and of the other answers
    float *logits; // [vocab] behind the last token
} answer;

// A way to run. Zero = the engine's default.
typedef struct way {
    const char *name;
    int32_t threads;
    int32_t max_num_seqs;
    int32_t threshold; // most rows of one prompt in a step
    int32_t budget;
    int32_t block_size;
    int32_t num_blocks;
    int32_t wants_preemption;
    int32_t no_cache;
    int32_t rounds; // the requests so often, one after the other; the last answers count
    const char *async_scheduling; // NULL: as the device is
} way;

static const way ways[] = {
    {"alone", 2, 1, 0, 0, 16, 0, 0, 1, 1, NULL},
    {"alone again", 2, 1, 0, 0, 16, 0, 0, 1, 1, NULL},
    {"alone, cached", 2, 1, 0, 0, 16, 0, 0, 0, 1, NULL},
    {"alone, cached, all hit", 2, 1, 0, 0, 4, 0, 0, 0, 2, NULL},
    {"alone, one thread", 1, 1, 0, 0, 16, 0, 0, 1, 1, NULL},
    {"alone, chunks of 1", 2, 1, 1, 0, 16, 0, 0, 1, 1, NULL},
    {"alone, chunks of 7", 2, 1, 7, 0, 16, 0, 0, 0, 1, NULL},
    {"2 together", 2, 2, 0, 0, 16, 0, 0, 1, 1, NULL},
    {"3 together, blocks of 5", 1, 3, 0, 0, 5, 0, 0, 0, 1, NULL},
    {"8 together, chunks of 5", 2, 8, 5, 0, 16, 0, 0, 0, 1, NULL},
    {"17 together, budget of 19", 2, 17, 0, 19, 16, 0, 0, 1, 1, NULL},
    {"64 together", 2, 64, 0, 0, 16, 0, 0, 1, 1, NULL},
    {"64 together, cached, blocks of 1", 2, 64, 0, 0, 1, 0, 0, 0, 2, NULL},
    {"64 together, one thread", 1, 64, 13, 100, 16, 0, 0, 0, 1, NULL},
    {"64 together, little memory", 2, 64, 0, 0, 4, 60, 1, 1, 1, NULL},
    {"64 together, little memory, cached", 2, 64, 0, 0, 4, 60, 1, 0, 2, NULL},
    {"alone, cached, steps ahead", 2, 1, 7, 0, 4, 0, 0, 0, 1, "on"},
    {"17 together, budget of 19, steps ahead", 2, 17, 0, 19, 16, 0, 0, 1, 1, "on"},
    {"64 together, little memory, cached, steps ahead", 2, 64, 0, 0, 4, 60, 1, 0, 2, "on"},
    {"64 together, little memory, cached, no step ahead", 2, 64, 0, 0, 4, 60, 1, 0, 2, "off"},
};

static int32_t n_requests = MOST_REQUESTS;
static int32_t n_passed;
static int32_t n_failed;

static uint64_t next_random(uint64_t *state) {
    *state = *state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return *state >> 33;
}

static void make_cases(int32_t vocab, request_case *cases) {
    uint64_t state = 20240607;
    for (int32_t i = 0; i < n_requests; i++) {
        request_case *c = &cases[i];
        c->n_ids = 1 + (int32_t)(next_random(&state) % MAX_PROMPT);
        c->max_tokens = 1 + (int32_t)(next_random(&state) % MAX_NEW);
        c->temperature = i % 2 == 0 ? 0.0f : 0.8f;
        c->seed = next_random(&state);
        c->repetition = i % 4 == 1 ? 1.2f : 0.0f;
        c->presence = i % 5 == 2 ? 0.7f : 0.0f;
        c->n = i % 8 == 5 ? 3 : 1;
        c->n_logprobs = i % 3 == 0 ? i % 4 : -1;
        c->n_prompt_logprobs = i % 7 == 4 ? i % 3 : -1;
        for (int32_t k = 0; k < c->n_ids; k++) {
            c->ids[k] = (int32_t)(next_random(&state) % (uint64_t)vocab);
        }
        // Two of three begin like an earlier one.
        if (i % 3 != 0) {
            const request_case *other = &cases[next_random(&state) % (uint64_t)i];
            int32_t n = other->n_ids < c->n_ids ? other->n_ids : c->n_ids;
            memcpy(c->ids, other->ids, (size_t)n * sizeof(c->ids[0]));
        }
    }
}

static pgd_status open_engine(const char *device, const char *model, const way *w,
                              pgd_engine **out) {
    const pgd_engine_options options = {
        .size = sizeof(options),
        .threads = w->threads,
        .async_scheduling = w->async_scheduling,
        .model = model,
        .device = device,
        .memory = "1GiB",
        .num_blocks = w->num_blocks,
        .block_size = w->block_size,
        .max_model_len = MAX_PROMPT + MAX_NEW,
        .max_num_seqs = w->max_num_seqs,
        .max_num_batched_tokens = w->budget,
        .long_prefill_token_threshold = w->threshold,
        .keep_logits = 1,
        .no_prefix_caching = (uint32_t)w->no_cache,
    };
    return pgd_engine_create(&options, out);
}

static uint64_t hash_bytes(uint64_t hash, const void *bytes, size_t n) {
    const unsigned char *p = bytes;
    for (size_t i = 0; i < n; i++) {
        hash = (hash ^ p[i]) * UINT64_C(1099511628211); // FNV-1a
    }
    return hash;
}

static uint64_t hash_rows(uint64_t hash, const float *p, const int32_t *ids, const int32_t *ranks,
                          int32_t n_rows, int32_t n) {
    if (n < 0) {
        return hash;
    }
    const size_t cells = (size_t)n_rows * ((size_t)n + 1);
    hash = hash_bytes(hash, p, cells * sizeof(*p));
    hash = hash_bytes(hash, ids, cells * sizeof(*ids));
    return hash_bytes(hash, ranks, (size_t)n_rows * sizeof(*ranks));
}

static uint64_t hash_told(const pgd_request *r, int32_t n) {
    uint64_t hash = UINT64_C(14695981039346656037);
    for (int32_t i = 0; i < n; i++) {
        pgd_output o = {.size = sizeof(o)};
        pgd_request_choice(r, i, &o);
        hash = hash_bytes(hash, o.ids, (size_t)o.n_ids * sizeof(*o.ids));
        hash = hash_rows(hash, o.logprobs, o.logprob_ids, o.ranks, o.n_ids, o.n_logprobs);
        hash = hash_rows(hash, o.prompt_logprobs, o.prompt_logprob_ids, o.prompt_ranks, o.n_prompt,
                         o.n_prompt_logprobs);
    }
    return hash;
}

static pgd_status run_way(pgd_engine *engine, const request_case *cases, answer *answers,
                          int32_t vocab) {
    pgd_request_desc descs[MOST_REQUESTS];
    pgd_request *requests[MOST_REQUESTS] = {0};
    for (int32_t i = 0; i < n_requests; i++) {
        descs[i] = (pgd_request_desc){
            .size = sizeof(descs[i]),
            .ids = cases[i].ids,
            .n_ids = cases[i].n_ids,
            .max_tokens = cases[i].max_tokens,
            .temperature = cases[i].temperature,
            .top_p = 0.95f,
            .has_seed = 1,
            .seed = cases[i].seed,
            .ignore_eos = 1,
            .n = cases[i].n,
            .repetition_penalty = cases[i].repetition,
            .presence_penalty = cases[i].presence,
            .has_logprobs = cases[i].n_logprobs >= 0,
            .n_logprobs = cases[i].n_logprobs,
            .has_prompt_logprobs = cases[i].n_prompt_logprobs >= 0,
            .n_prompt_logprobs = cases[i].n_prompt_logprobs,
        };
    }
    PGD_TRY(pgd_engine_generate(engine, descs, n_requests, NULL, NULL, requests));
    for (int32_t i = 0; i < n_requests; i++) {
        pgd_output o = {.size = sizeof(o)};
        pgd_request_output(requests[i], &o);
        answers[i].n_ids = o.n_ids;
        memcpy(answers[i].ids, o.ids, (size_t)o.n_ids * sizeof(int32_t));
        memcpy(answers[i].logits, pgd_request_logits(requests[i]), (size_t)vocab * sizeof(float));
        answers[i].told = hash_told(requests[i], cases[i].n);
        pgd_request_release(requests[i]);
    }
    return PGD_OK;
}

static void compare(const char *model, const way *w, const request_case *cases,
                    const answer *expected, const answer *got, int32_t vocab) {
    for (int32_t i = 0; i < n_requests; i++) {
        const answer *a = &expected[i];
        const answer *b = &got[i];
        size_t n = (size_t)a->n_ids * sizeof(int32_t);
        int32_t same_ids = a->n_ids == cases[i].max_tokens && a->n_ids == b->n_ids &&
                           memcmp(a->ids, b->ids, n) == 0;
        int32_t same_logits = memcmp(a->logits, b->logits, (size_t)vocab * sizeof(float)) == 0;
        if (same_ids && same_logits && a->told == b->told) {
            n_passed++;
            continue;
        }
        n_failed++;
        printf("FAILED %s, %s, request %d (%d tokens): %s differ\n", model, w->name, i,
               cases[i].n_ids,
               !same_ids      ? "tokens"
               : !same_logits ? "logits"
                              : "log probabilities or further answers");
    }
}

static int32_t make_answers(answer *answers, int32_t vocab) {
    for (int32_t i = 0; i < n_requests; i++) {
        answers[i].logits = calloc((size_t)vocab, sizeof(float));
        if (answers[i].logits == NULL) {
            return 0;
        }
    }
    return 1;
}

static void free_answers(answer *answers) {
    for (int32_t i = 0; i < n_requests; i++) {
        free(answers[i].logits);
    }
}

static pgd_status check_model(const char *device, const char *model) {
    static request_case cases[MOST_REQUESTS];
    answer expected[MOST_REQUESTS] = {0};
    answer got[MOST_REQUESTS] = {0};
    pgd_status status = PGD_OK;
    int32_t vocab = 0;
    for (size_t w = 0; w < sizeof(ways) / sizeof(ways[0]) && status == PGD_OK; w++) {
        pgd_engine *engine = NULL;
        pgd_engine_info info = {.size = sizeof(info)};
        status = open_engine(device, model, &ways[w], &engine);
        if (status == PGD_OK && w == 0) {
            pgd_engine_get_info(engine, &info);
            vocab = info.vocab_size;
            make_cases(vocab, cases);
            if (!make_answers(expected, vocab) || !make_answers(got, vocab)) {
                status = PGD_OUT_OF_MEMORY;
            }
        }
        if (status == PGD_OK) {
            for (int32_t k = 0; k < ways[w].rounds && status == PGD_OK; k++) {
                status = run_way(engine, cases, w == 0 ? expected : got, vocab);
            }
        }
        if (status == PGD_OK) {
            compare(model, &ways[w], cases, expected, w == 0 ? expected : got, vocab);
            pgd_engine_get_info(engine, &info);
            if (ways[w].wants_preemption && info.n_preemptions == 0) {
                n_failed++;
                printf("FAILED %s, %s: nothing was preempted\n", model, ways[w].name);
            }
            if (ways[w].no_cache != (info.n_prompt_tokens_cached == 0)) {
                n_failed++;
                printf("FAILED %s, %s: %llu prompt tokens were cached\n", model, ways[w].name,
                       (unsigned long long)info.n_prompt_tokens_cached);
            }
        }
        pgd_engine_destroy(engine);
    }
    free_answers(expected);
    free_answers(got);
    return status;
}

int main(int argc, char **argv) {
    if (argc > 3 && strcmp(argv[1], "--requests") == 0) {
        const long n = strtol(argv[2], NULL, 10);
        n_requests = n > 0 && n <= MOST_REQUESTS ? (int32_t)n : MOST_REQUESTS;
        argc -= 2;
        argv += 2;
    }
    if (argc < 3) {
        fprintf(stderr, "usage: invariance_test [--requests N] DEVICE MODEL...\n");
        return 2;
    }
    for (int i = 2; i < argc; i++) {
        if (check_model(argv[1], argv[i]) != PGD_OK) {
            n_failed++;
            printf("FAILED %s: %s\n", argv[i], pgd_last_error());
        }
    }
    printf("%d passed, %d failed\n", n_passed, n_failed);
    return n_failed == 0 && n_passed > 0 ? 0 : 1;
}
