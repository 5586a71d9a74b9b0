// What quantizing costs the default model: the mean divergence (Kullback-Leibler, nats a token) of
// its next-token distributions from those of the weights as stored, and the perplexity, over a
// fixed text, for each type of weights and for int8 caches.
//
//   quality_test DEVICE
//
// Bounds: of a distribution whose logits have independent errors of deviation s, the divergence is
// about s^2 / 2, and a token's log probability moves by about s. Logits of this model have a
// deviation of about 3; numbers rounded to b bits are off by about 1 / 2^b of their size (7 bits
// for int8 with its sign), so s = 3 / 2^b. Allowed is twice that divergence and twice that step.
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <pagoda/pagoda.h>

#define MODEL PGD_TEST_SOURCE_DIR "/models/nano"
#define CAP   256

static const char text[] =
    "<|im_start|>user\nTell me a story about a horse named Tom.<|im_end|>\n<|im_start|>assistant\n"
    "Once upon a time there was a happy horse named Tom. The home of Tom was in the forest. More "
    "than anything, Tom loved to sing. One day Tom found a red ball near the river.<|im_end|>\n"
    "<|im_start|>user\nWhat is 3 + 4?<|im_end|>\n<|im_start|>assistant\n3 + 4 = 7<|im_end|>\n";

static const struct {
    const char *quant;
    const char *kv;
    double bits;
} rows[] = {
    {"q8_0", NULL, 7},   {"int8", NULL, 7}, {"q6_k", NULL, 6},   {"q5_k", NULL, 5},
    {"q5_1", NULL, 5},   {"q5_0", NULL, 5}, {"q4_k", NULL, 4},   {"q4_1", NULL, 4},
    {"q4_0", NULL, 4},   {"q3_k", NULL, 3}, {"iq4_nl", NULL, 4}, {"mxfp4", NULL, 3},
    {"none", "int8", 7},
};

#define N_ROWS (sizeof(rows) / sizeof(rows[0]))

static int n_failed;

static void check(pgd_status status, const char *what) {
    if (status != PGD_OK) {
        fprintf(stderr, "%s: %s\n", what, pgd_last_error());
        exit(1);
    }
}

// Log probabilities behind each token of the text: out [n, vocab].
static int32_t run(const char *device, const char *quant, const char *kv, double **out,
                   int32_t *out_vocab, int32_t **out_ids) {
    const pgd_engine_options options = {
        .size = sizeof(options),
        .model = MODEL,
        .device = device,
        .kv_cache_dtype = kv,
        .quant = quant,
        .memory = "1GiB",
        .allow_slow = 1,
        .max_model_len = CAP,
        .max_num_seqs = 8,
        .keep_logits = 1,
    };
    pgd_engine *engine = NULL;
    pgd_engine_info info = {.size = sizeof(info)};
    int32_t n = 0;
    check(pgd_engine_create(&options, &engine), quant);
    pgd_engine_get_info(engine, &info);
    check(pgd_engine_encode(engine, text, 0, 0, out_ids, &n), "encode");
    if (n > CAP - 2) {
        fprintf(stderr, "%d tokens are too many\n", n);
        exit(1);
    }
    *out_vocab = info.vocab_size;
    *out = malloc((size_t)n * (size_t)info.vocab_size * sizeof(double));
    for (int32_t i = 0; i < n; i++) {
        pgd_request *request = NULL;
        const pgd_request_desc desc = {.size = sizeof(desc),
                                       .ids = *out_ids,
                                       .n_ids = i + 1,
                                       .max_tokens = 1,
                                       .ignore_eos = 1};
        check(pgd_engine_submit(engine, &desc, &request), "submit");
        while (pgd_engine_busy(engine) > 0) {
            check(pgd_engine_step(engine), "step");
        }
        const float *logits = pgd_request_logits(request);
        double most = -INFINITY, sum = 0;
        for (int32_t v = 0; v < info.vocab_size; v++) {
            most = (double)logits[v] > most ? (double)logits[v] : most;
        }
        for (int32_t v = 0; v < info.vocab_size; v++) {
            sum += exp((double)logits[v] - most);
        }
        for (int32_t v = 0; v < info.vocab_size; v++) {
            (*out)[(size_t)i * (size_t)info.vocab_size + (size_t)v] =
                (double)logits[v] - most - log(sum);
        }
        pgd_request_release(request);
    }
    pgd_engine_destroy(engine);
    return n;
}

static double perplexity(const double *logp, const int32_t *ids, int32_t n, int32_t vocab) {
    double sum = 0;
    for (int32_t i = 0; i + 1 < n; i++) {
        sum -= logp[(size_t)i * (size_t)vocab + (size_t)ids[i + 1]];
    }
    return exp(sum / (n - 1));
}

// Mean over the tokens of sum p log(p / q).
static double divergence(const double *p, const double *q, int32_t n, int32_t vocab) {
    double sum = 0;
    for (size_t i = 0; i < (size_t)n * (size_t)vocab; i++) {
        sum += exp(p[i]) * (p[i] - q[i]);
    }
    return sum / n;
}

int main(int argc, char **argv) {
    double *base = NULL, *own = NULL;
    int32_t *ids = NULL;
    int32_t vocab = 0;
    if (argc != 2) {
        fprintf(stderr, "usage: quality_test DEVICE\n");
        return 2;
    }
    const int32_t n = run(argv[1], "none", NULL, &base, &vocab, &ids);
    const double right = perplexity(base, ids, n, vocab);
    printf("%d tokens; as stored: perplexity %.4f\n", n, right);
    pgd_free(ids);
    for (size_t i = 0; i < N_ROWS; i++) {
        const double s = 3 / exp2(rows[i].bits), bound = s * s;
        run(argv[1], rows[i].quant, rows[i].kv, &own, &vocab, &ids);
        const double kl = divergence(base, own, n, vocab);
        const double ppl = perplexity(own, ids, n, vocab);
        const int ok = kl >= 0 && kl < bound && fabs(log(ppl / right)) < 2 * s;
        n_failed += !ok;
        printf("%-7s %-5s divergence %.5f (below %.5f), perplexity %.4f%s\n", rows[i].quant,
               rows[i].kv != NULL ? rows[i].kv : "", kl, bound, ppl, ok ? "" : "  FAILED");
        free(own);
        pgd_free(ids);
    }
    free(base);
    return n_failed == 0 ? 0 : 1;
}
