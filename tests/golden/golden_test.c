// Golden models: logits and greedy tokens of other people's software, through the whole engine.
//
//   golden_test [--rounded] [--model FILE.gguf] DEVICE GOLDEN.json...
//
// For each file (made by tools/golden): every prompt alone, then all together with small chunks;
// the logits behind the prompt differ by at most `tolerance` of max|logit|, and the 64 greedy
// tokens are equal (the tool picked prompts whose top-2 gap allows that). --rounded: the device
// rounds activations to bf16 and the reference does not, so logits may differ by what makes a near
// tie (2e-2 of max|logit|). --model: the same model from this file instead of the golden's folder.
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <pagoda/pagoda.h>

#include "base/json.h"

#define MAX_PROMPTS 16
#define MAX_IDS     256
#define NEAR_TIE    0.02

typedef struct golden_case {
    int32_t ids[MAX_IDS];
    int32_t greedy[MAX_IDS];
    int32_t n_ids;
    int32_t n_greedy;
    float *logits; // [vocab]
    double max_abs;
    const char *finish; // NULL: it runs to its last token
} golden_case;

static int32_t n_passed;
static int32_t n_failed;

static void report(int32_t ok, const char *file, const char *what, size_t i, const char *why) {
    if (ok) {
        n_passed++;
        return;
    }
    n_failed++;
    printf("FAILED %s: %s, prompt %zu: %s\n", file, what, i, why);
}

// Value of a base64 digit, -1 for anything else.
static int32_t digit_of(char c) {
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    const char *at = c != '\0' ? strchr(digits, c) : NULL;
    return at != NULL ? (int32_t)(at - digits) : -1;
}

// Decodes n floats (little-endian); 1 = all of them were there.
static int32_t read_floats(pgd_str text, float *out, size_t n) {
    unsigned char *bytes = (unsigned char *)out;
    size_t n_bytes = n * sizeof(float);
    uint32_t bits = 0;
    uint32_t n_bits = 0;
    size_t done = 0;
    for (size_t i = 0; i < text.len && done < n_bytes; i++) {
        int32_t digit = digit_of(text.ptr[i]);
        if (digit < 0) {
            return 0;
        }
        bits = (bits << 6) | (uint32_t)digit;
        n_bits += 6;
        if (n_bits >= 8) {
            n_bits -= 8;
            bytes[done++] = (unsigned char)(bits >> n_bits);
        }
    }
    return done == n_bytes;
}

static int32_t read_ids(const pgd_json *v, int32_t *out) {
    int32_t n = 0;
    for (uint32_t i = 0; pgd_json_is(v, PGD_JSON_ARRAY) && i < v->n && n < MAX_IDS; i++) {
        int64_t id = -1;
        (void)pgd_json_to_i64(&v->items[i], &id);
        out[n++] = (int32_t)id;
    }
    return n;
}

static int32_t read_case(const pgd_json *v, int32_t vocab, golden_case *out) {
    pgd_str text;
    *out = (golden_case){0};
    out->n_ids = read_ids(pgd_json_get(v, "ids"), out->ids);
    out->n_greedy = read_ids(pgd_json_get(v, "greedy"), out->greedy);
    if (pgd_json_to_str(pgd_json_get(v, "finish"), &text)) {
        out->finish = text.ptr;
    }
    out->logits = calloc((size_t)vocab, sizeof(float));
    return pgd_json_to_f64(pgd_json_get(v, "max_abs"), &out->max_abs) && out->logits != NULL &&
           pgd_json_to_str(pgd_json_get(v, "logits"), &text) &&
           read_floats(text, out->logits, (size_t)vocab) && out->n_ids > 0 && out->n_greedy > 0;
}

static int32_t read_cases(const pgd_json *root, const char *key, int32_t vocab, golden_case *out) {
    const pgd_json *list = pgd_json_get(root, key);
    int32_t n = 0;
    for (uint32_t i = 0; pgd_json_is(list, PGD_JSON_ARRAY) && i < list->n; i++) {
        if (n == MAX_PROMPTS || !read_case(&list->items[i], vocab, &out[n])) {
            return -1;
        }
        n++;
    }
    return n;
}

static void check_logits(const char *file, const char *what, size_t i, const golden_case *c,
                         const float *got, int32_t vocab, double tolerance) {
    double worst = 0.0;
    char why[128];
    for (int32_t v = 0; v < vocab; v++) {
        double diff = fabs((double)got[v] - (double)c->logits[v]);
        worst = diff > worst || diff != diff ? diff : worst;
    }
    snprintf(why, sizeof(why), "max|difference| is %.3e of max|logit|, allowed %.1e",
             worst / c->max_abs, tolerance);
    report(worst <= tolerance * c->max_abs, file, what, i, why);
}

static void check_tokens(const char *file, const char *what, size_t i, const golden_case *c,
                         const pgd_request *request) {
    pgd_output o = {.size = sizeof(o)};
    char why[160] = "";
    pgd_request_output(request, &o);
    int32_t same = 0;
    while (same < o.n_ids && same < c->n_greedy && o.ids[same] == c->greedy[same]) {
        same++;
    }
    snprintf(why, sizeof(why), "%d tokens, %d expected, %d equal (%s)", o.n_ids, c->n_greedy, same,
             o.error != NULL           ? o.error
             : o.finish_reason != NULL ? o.finish_reason
                                       : "unfinished");
    report(same == c->n_greedy && o.n_ids == c->n_greedy, file, what, i, why);
    const char *finish = c->finish != NULL ? c->finish : "length";
    report(o.finish_reason != NULL && strcmp(o.finish_reason, finish) == 0, file, what, i, why);
}

static pgd_status submit(pgd_engine *engine, const golden_case *c, pgd_request **out) {
    const pgd_request_desc desc = {
        .size = sizeof(desc),
        .ids = c->ids,
        .n_ids = c->n_ids,
        .max_tokens = c->finish != NULL ? MAX_IDS : c->n_greedy,
        .ignore_eos = c->finish == NULL,
    };
    return pgd_engine_submit(engine, &desc, out);
}

// Runs cases together; checks each one's first logits as they appear.
static pgd_status run(pgd_engine *engine, const char *file, const char *what,
                      const golden_case *cases, size_t n, int32_t vocab, double tolerance) {
    pgd_request *requests[MAX_PROMPTS] = {0};
    int32_t seen[MAX_PROMPTS] = {0};
    for (size_t i = 0; i < n; i++) {
        PGD_TRY(submit(engine, &cases[i], &requests[i]));
    }
    while (pgd_engine_busy(engine) > 0) {
        PGD_TRY(pgd_engine_step(engine));
        for (size_t i = 0; i < n; i++) {
            pgd_output o = {.size = sizeof(o)};
            pgd_request_output(requests[i], &o);
            if (o.n_ids == 1 && !seen[i]) {
                seen[i] = 1;
                check_logits(file, what, i, &cases[i], pgd_request_logits(requests[i]), vocab,
                             tolerance);
            }
        }
    }
    for (size_t i = 0; i < n; i++) {
        check_tokens(file, what, i, &cases[i], requests[i]);
        report(seen[i], file, what, i, "no logits were seen");
        pgd_request_release(requests[i]);
    }
    return PGD_OK;
}

static pgd_status check_engine(pgd_engine *engine, const char *file, const char *batch_name,
                               const pgd_json *root, double tolerance) {
    static const char *const keys[] = {"prompts", "stops"};
    pgd_engine_info info = {.size = sizeof(info)};
    pgd_engine_get_info(engine, &info);
    for (size_t k = 0; k < 2; k++) {
        golden_case cases[MAX_PROMPTS];
        int32_t n = read_cases(root, keys[k], info.vocab_size, cases);
        report(n > 0 || (k == 1 && n == 0), file, keys[k], 0, "the golden file has no cases");
        pgd_status status = PGD_OK;
        for (int32_t i = 0; i < n && status == PGD_OK; i++) {
            status = run(engine, file, "alone", &cases[i], 1, info.vocab_size, tolerance);
        }
        if (n > 0 && status == PGD_OK) {
            status = run(engine, file, batch_name, cases, (size_t)n, info.vocab_size, tolerance);
        }
        for (int32_t i = 0; i < n; i++) {
            free(cases[i].logits);
        }
        PGD_TRY(status);
    }
    return PGD_OK;
}

static const char *kv_dtype_of(const pgd_json *root) {
    pgd_str kv = {0};
    (void)pgd_json_to_str(pgd_json_get(pgd_json_get(root, "compute"), "kv"), &kv);
    return kv.ptr;
}

// One engine with whole prompts, one with chunks of 7 rows and blocks of 3 tokens.
static pgd_status check_file(const char *device, const char *file, const char *model, int rounded) {
    char folder[4096];
    pgd_json_doc *doc = NULL;
    int64_t max_len = 0;
    double tolerance = 0.0;
    snprintf(folder, sizeof(folder), "%s", file);
    char *slash = strrchr(folder, '/');
    if (slash != NULL) {
        *slash = '\0';
    }
    PGD_TRY(pgd_json_read_file(file, &doc));
    const pgd_json *root = pgd_json_root(doc);
    (void)pgd_json_to_i64(pgd_json_get(root, "max_model_len"), &max_len);
    (void)pgd_json_to_f64(pgd_json_get(root, "tolerance"), &tolerance);
    tolerance = rounded ? NEAR_TIE : tolerance;
    pgd_status status = PGD_OK;
    for (int32_t chunked = 0; chunked < 2 && status == PGD_OK; chunked++) {
        pgd_engine *engine = NULL;
        const pgd_engine_options options = {
            .size = sizeof(options),
            .model = model != NULL ? model : folder,
            .device = device,
            .kv_cache_dtype = kv_dtype_of(root),
            .memory = "1GiB",
            .allow_slow = 1,
            .block_size = chunked ? 3 : 16,
            .max_model_len = (int32_t)max_len,
            .max_num_seqs = chunked ? 3 : MAX_PROMPTS,
            .max_num_batched_tokens = chunked ? 7 : 0,
            .keep_logits = 1,
        };
        status = pgd_engine_create(&options, &engine);
        if (status == PGD_OK) {
            status = check_engine(engine, file, chunked ? "together, chunked" : "together", root,
                                  tolerance);
        }
        pgd_engine_destroy(engine);
    }
    pgd_json_free(doc);
    return status;
}

int main(int argc, char **argv) {
    const int rounded = argc > 1 && strcmp(argv[1], "--rounded") == 0;
    const char *model = NULL;
    int first = 2 + rounded;
    if (argc > first && strcmp(argv[first - 1], "--model") == 0) {
        model = argv[first];
        first += 2;
    }
    if (argc < first + 1) {
        fprintf(stderr, "usage: golden_test [--rounded] [--model FILE] DEVICE GOLDEN.json...\n");
        return 2;
    }
    for (int i = first; i < argc; i++) {
        pgd_status status = check_file(argv[first - 1], argv[i], model, rounded);
        report(status == PGD_OK, argv[i], "engine", 0, pgd_last_error());
    }
    printf("%d passed, %d failed\n", n_passed, n_failed);
    return n_failed == 0 && n_passed > 0 ? 0 : 1;
}
