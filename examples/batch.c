// Many prompts at once, with progress: pgd_engine_generate.
//
//   batch [MODEL [DEVICE]]
#include <inttypes.h>
#include <stdio.h>

#include <pagoda/pagoda.h>

#define N_PROMPTS 3
#define N_ANSWERS 2

static void on_done(void *arg, size_t n_done, size_t n) {
    (void)arg;
    fprintf(stderr, "%zu of %zu\n", n_done, n);
}

static void print_answers(pgd_request *const *requests, const pgd_request_desc *descs) {
    for (int i = 0; i < N_PROMPTS; i++) {
        pgd_output out = {.size = sizeof(out)};
        pgd_request_output(requests[i], &out);
        for (int32_t k = 0; k < out.n; k++) {
            pgd_request_choice(requests[i], k, &out);
            printf("%s[%s]\n    %" PRId32 " tokens, %s, log probability %.2f\n", descs[i].prompt,
                   out.text, out.n_ids, out.finish_reason, out.cumulative_logprob);
        }
    }
}

int main(int argc, char **argv) {
    static const char *const prompts[N_PROMPTS] = {"Once upon a time", "The little dog",
                                                   "In the morning, Tom"};
    const pgd_engine_options options = {
        .size = sizeof(options),
        .model = argc > 1 ? argv[1] : NULL, // NULL: the model that comes with pagoda
        .device = argc > 2 ? argv[2] : NULL,
        .memory = "1GiB",
        .max_num_seqs = 16,
    };
    pgd_engine *engine = NULL;
    if (pgd_engine_create(&options, &engine) != PGD_OK) {
        fprintf(stderr, "batch: %s\n", pgd_last_error());
        return 1;
    }
    pgd_request_desc descs[N_PROMPTS];
    pgd_request *requests[N_PROMPTS];
    for (int i = 0; i < N_PROMPTS; i++) {
        descs[i] = (pgd_request_desc){
            .size = sizeof(descs[i]),
            .prompt = prompts[i],
            .max_tokens = 24,
            .temperature = 0.8f,
            .has_seed = 1, // equal texts in each run
            .seed = 7,
            .n = N_ANSWERS,
            .has_logprobs = 1,
        };
    }
    pgd_status status = pgd_engine_generate(engine, descs, N_PROMPTS, on_done, NULL, requests);
    if (status == PGD_OK) {
        print_answers(requests, descs);
    } else {
        fprintf(stderr, "batch: %s\n", pgd_last_error());
    }
    for (int i = 0; i < N_PROMPTS; i++) {
        pgd_request_release(requests[i]);
    }
    pgd_engine_destroy(engine);
    return status == PGD_OK ? 0 : 1;
}
