// What the tests of requests share: an engine with a tiny model, a prompt, its answers.
#ifndef PGD_TESTS_ENGINE_REQUEST_H
#define PGD_TESTS_ENGINE_REQUEST_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <pagoda/pagoda.h>

#define MODEL PGD_TEST_SOURCE_DIR "/tests/golden/models/llama-default"
#define NANO  PGD_TEST_SOURCE_DIR "/models/nano"
#define BLOCK 4
#define N_NEW 24

static inline pgd_engine *open_engine(const char *model, const char *device) {
    const pgd_engine_options o = {
        .size = sizeof(o),
        .model = model,
        .device = device,
        .memory = "256MiB",
        .block_size = BLOCK,
        .max_num_seqs = 4,
        .max_model_len = 96,
        .threads = 1,
        .keep_logits = 1,
    };
    pgd_engine *engine = NULL;
    if (pgd_engine_create(&o, &engine) != PGD_OK) {
        fail_msg("%s", pgd_last_error());
    }
    return engine;
}

static const int32_t prompt[] = {5, 9, 33, 120, 7, 8, 11, 9, 4, 4, 17};
#define N_PROMPT ((int32_t)(sizeof(prompt) / sizeof(prompt[0])))

static inline pgd_request_desc desc_of(void) {
    return (pgd_request_desc){
        .size = sizeof(pgd_request_desc),
        .ids = prompt,
        .n_ids = N_PROMPT,
        .max_tokens = N_NEW,
        .ignore_eos = 1,
    };
}

static inline pgd_request *submit(pgd_engine *engine, const pgd_request_desc *d) {
    pgd_request *r = NULL;
    if (pgd_engine_submit(engine, d, &r) != PGD_OK) {
        fail_msg("%s", pgd_last_error());
    }
    return r;
}

static inline void run(pgd_engine *engine) {
    while (pgd_engine_busy(engine) > 0) {
        assert_int_equal(pgd_engine_step(engine), PGD_OK);
    }
}

static inline pgd_output choice(const pgd_request *r, int32_t index) {
    pgd_output o = {.size = sizeof(o)};
    pgd_request_choice(r, index, &o);
    return o;
}

#endif
