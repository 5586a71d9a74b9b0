// The steps of sampling against distributions from elsewhere (tools/golden/sampling.py, which
// writes the file this reads):
//
//   sampling_test tests/golden/sampling/cases.txt
//
// Of each case the log probabilities of all tokens are compared, then a token is drawn under many
// seeds: one that cannot come never does, and the counts of the others pass a chi-square test at
// 0.9999. Seeds are fixed, so this passes always or never.
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ref/ref.h"

enum { MOST = 64, MOST_BIAS = 8, DRAWS = 40000, LEAST = 8 };

typedef struct block {
    pgd_batch_head head;
    pgd_sampling sampling;
    uint32_t mask[MOST / 32];
    pgd_bias bias[MOST_BIAS];
} block;

typedef struct test_case {
    char name[32];
    int n;
    block b;
    pgd_batch batch;
    float logits[MOST];
    int32_t state[MOST];
    double logprobs[MOST];
    double probs[MOST];
    // what sample writes
    int32_t ids[1];
    int32_t ranks[1];
    float told[1 + MOST];
    int32_t top_ids[1 + MOST];
} test_case;

static int n_failed;

static void fail(const test_case *c, const char *what, double got, double want) {
    printf("FAIL %s: %s is %.9g, not %.9g\n", c->name, what, got, want);
    n_failed++;
}

static int read_word(FILE *in, const char *word) {
    char text[16];
    return fscanf(in, "%15s", text) == 1 && strcmp(text, word) == 0;
}

static int read_doubles(FILE *in, const char *word, double *out, int n) {
    int i, ok = read_word(in, word);
    for (i = 0; i < n && ok; i++) {
        ok = fscanf(in, "%lf", &out[i]) == 1;
    }
    return ok;
}

static int read_lists(FILE *in, test_case *c) {
    pgd_sampling *s = &c->b.sampling;
    int ok = read_word(in, "mask"), i, bit;
    for (i = 0; i < c->n && ok; i++) {
        ok = fscanf(in, "%d", &bit) == 1;
        c->b.mask[i / 32] |= (uint32_t)bit << i % 32;
    }
    ok = ok && read_word(in, "bias") && fscanf(in, "%d", &s->bias_count) == 1 &&
         s->bias_count <= MOST_BIAS;
    for (i = 0; i < s->bias_count && ok; i++) {
        ok = fscanf(in, "%d %f", &c->b.bias[i].id, &c->b.bias[i].add) == 2;
    }
    return ok;
}

static int read_case(FILE *in, test_case *c) {
    pgd_sampling *s = &c->b.sampling;
    double logits[MOST];
    int greedy = 0, i, ok;
    memset(c, 0, sizeof(*c));
    ok = fscanf(in, " case %31s %d %f %d %f %f %f %f %f %d", c->name, &c->n, &s->temperature,
                &s->top_k, &s->top_p, &s->min_p, &s->repetition, &s->presence, &s->frequency,
                &greedy) == 10 &&
         c->n > 0 && c->n <= MOST && read_doubles(in, "logits", logits, c->n) &&
         read_word(in, "state");
    for (i = 0; i < c->n && ok; i++) {
        c->logits[i] = (float)logits[i];
        ok = fscanf(in, "%d", &c->state[i]) == 1;
    }
    s->flags = greedy ? PGD_SAMPLE_GREEDY : 0;
    s->mask_row = 1;
    s->state_row = 1;
    return ok && read_lists(in, c) && read_doubles(in, "logprobs", c->logprobs, c->n) &&
           read_doubles(in, "probs", c->probs, c->n);
}

static pgd_tensor tensor(void *p, int32_t dtype, uint32_t rank, int64_t columns) {
    return (pgd_tensor){.offset = (uint64_t)(uintptr_t)p,
                        .dtype = dtype,
                        .rank = rank,
                        .shape = {1, columns},
                        .stride = {rank == 1 ? 1 : columns, 1}};
}

static int sample(test_case *c) {
    const pgd_sample_args a = {.size = sizeof(a),
                               .rows = PGD_ROWS_OUTPUTS,
                               .batch = &c->batch,
                               .logits = tensor(c->logits, PGD_F32, 2, c->n),
                               .ids = tensor(c->ids, PGD_I32, 1, 0),
                               .logprobs = tensor(c->told, PGD_F32, 2, 1 + c->n),
                               .top_ids = tensor(c->top_ids, PGD_I32, 2, 1 + c->n),
                               .state = tensor(c->state, PGD_I32, 2, c->n),
                               .ranks = tensor(c->ranks, PGD_I32, 1, 0)};
    c->b.head.n_out = 1;
    c->batch = (pgd_batch){.size = sizeof(pgd_batch),
                           .cap_out = 1,
                           .sampling_stride = sizeof(pgd_sampling),
                           .mirror = &c->b,
                           .upload_bytes = sizeof(c->b),
                           .sampling = offsetof(block, sampling),
                           .mask = offsetof(block, mask),
                           .bias = offsetof(block, bias)};
    if (pgd_ref_sample(NULL, &a) == PGD_OK) {
        return 1;
    }
    fail(c, "what sample answers", 1, 0);
    return 0;
}

// All log probabilities, falling; the rank of the token counts from them.
static void check_told(test_case *c) {
    int i, at_least = 0;
    c->b.sampling.flags |= PGD_SAMPLE_LOGPROBS;
    c->b.sampling.n_logprobs = c->n;
    if (!sample(c)) {
        return;
    }
    for (i = 0; i < c->n; i++) {
        const double want = c->logprobs[c->top_ids[1 + i]];
        if (!(fabs((double)c->told[1 + i] - want) <= 2e-7 * (1 + fabs(want)))) {
            fail(c, "a log probability", (double)c->told[1 + i], want);
        }
        if (i > 0 && !(c->told[1 + i] <= c->told[i])) {
            fail(c, "the order at", i, 0);
        }
        at_least += c->logprobs[i] >= c->logprobs[c->ids[0]];
    }
    if (c->ranks[0] != at_least) {
        fail(c, "the rank", c->ranks[0], at_least);
    }
    c->b.sampling.flags &= ~(uint32_t)PGD_SAMPLE_LOGPROBS;
}

// The 0.9999 quantile of chi-square (Wilson and Hilferty 1931).
static double quantile(int freedom) {
    const double a = 2.0 / (9.0 * freedom);
    return freedom * pow(1 - a + 3.719 * sqrt(a), 3);
}

static void check_counts(const test_case *c, const int *count, int draws) {
    double chi = 0, rest_want = 0, rest_got = 0;
    int i, cells = 0;
    for (i = 0; i < c->n; i++) {
        const double want = c->probs[i] * draws;
        if (c->probs[i] == 0 && count[i] > 0) {
            fail(c, "the count of a token that is out", count[i], 0);
        } else if (want < LEAST) {
            rest_want += want;
            rest_got += count[i];
        } else {
            chi += (count[i] - want) * (count[i] - want) / want;
            cells++;
        }
    }
    if (rest_want >= LEAST) {
        chi += (rest_got - rest_want) * (rest_got - rest_want) / rest_want;
        cells++;
    }
    if (cells > 1 && chi > quantile(cells - 1)) {
        fail(c, "chi-square", chi, quantile(cells - 1));
    }
}

static void check_draws(test_case *c) {
    const int draws = (c->b.sampling.flags & PGD_SAMPLE_GREEDY) != 0 ? 10 : DRAWS;
    int count[MOST] = {0};
    int i;
    for (i = 0; i < draws; i++) {
        int32_t before[MOST];
        memcpy(before, c->state, sizeof(before));
        c->b.sampling.seed = (uint64_t)i * UINT64_C(0x9E3779B97F4A7C15);
        c->b.sampling.counter = 17;
        if (!sample(c)) {
            return;
        }
        if (c->ids[0] < 0 || c->ids[0] >= c->n) {
            fail(c, "a token", c->ids[0], 0);
            return;
        }
        if (c->state[c->ids[0]] != before[c->ids[0]] + 1) {
            fail(c, "a count", c->state[c->ids[0]], before[c->ids[0]] + 1);
        }
        count[c->ids[0]]++;
        memcpy(c->state, before, sizeof(before));
    }
    check_counts(c, count, draws);
}

int main(int argc, char **argv) {
    static test_case c;
    FILE *in = argc == 2 ? fopen(argv[1], "r") : NULL;
    int n = 0;
    if (in == NULL) {
        fprintf(stderr, "usage: sampling_test CASES\n");
        return 2;
    }
    while (read_case(in, &c)) {
        check_draws(&c);
        check_told(&c);
        n++;
    }
    if (!feof(in) || n == 0) {
        printf("FAIL case %d of the file cannot be read\n", n + 1);
        n_failed++;
    }
    fclose(in);
    printf("%d cases, %d failures\n", n, n_failed);
    return n_failed > 0;
}
