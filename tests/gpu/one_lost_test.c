// one_lost_test DEVICE: two engines on two plugins in one process, step by step in turn. DEVICE is
// lost on the way (PAGODA_DOUBLE): its request ends with an error, the CPU's as it does alone.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include <pagoda/pagoda.h>

#define MODEL    PGD_TEST_SOURCE_DIR "/tests/golden/models/llama-default"
#define N_TOKENS 40

static const char *failing;
static const int32_t prompt[5] = {5, 9, 33, 120, 7};

typedef struct talk {
    pgd_engine *engine;
    pgd_request *request;
} talk;

static talk begin(const char *device) {
    const pgd_engine_options o = {.size = sizeof(o),
                                  .model = MODEL,
                                  .device = device,
                                  .memory = "64MiB",
                                  .max_num_seqs = 2,
                                  .max_model_len = 64,
                                  .threads = 2};
    const pgd_request_desc d = {
        .size = sizeof(d), .ids = prompt, .n_ids = 5, .max_tokens = N_TOKENS, .ignore_eos = 1};
    talk t = {0};
    if (pgd_engine_create(&o, &t.engine) != PGD_OK ||
        pgd_engine_submit(t.engine, &d, &t.request) != PGD_OK) {
        fail_msg("%s: %s", device, pgd_last_error());
    }
    return t;
}

static pgd_output output_of(const talk *t) {
    pgd_output o = {.size = sizeof(o)};
    pgd_request_output(t->request, &o);
    return o;
}

static void others_go_on(void **state) {
    int32_t ids[N_TOKENS];
    int32_t n_failed = 0;
    (void)state;
    talk alone = begin("cpu");
    while (pgd_engine_busy(alone.engine) > 0) {
        assert_int_equal(pgd_engine_step(alone.engine), PGD_OK);
    }
    pgd_output o = output_of(&alone);
    assert_int_equal(o.n_ids, N_TOKENS);
    memcpy(ids, o.ids, sizeof(ids));
    pgd_engine_destroy(alone.engine);

    talk healthy = begin("cpu");
    talk lost = begin(failing);
    while (pgd_engine_busy(healthy.engine) > 0 || pgd_engine_busy(lost.engine) > 0) {
        assert_int_equal(pgd_engine_step(healthy.engine), PGD_OK);
        n_failed += pgd_engine_step(lost.engine) != PGD_OK;
    }
    assert_true(n_failed > 0);
    o = output_of(&lost);
    assert_string_equal(o.finish_reason, "error");
    assert_true(o.n_ids > 0 && o.n_ids < N_TOKENS); // it ran, and no other device ran the rest
    assert_memory_equal(o.ids, ids, (size_t)o.n_ids * sizeof(ids[0]));
    o = output_of(&healthy);
    assert_string_equal(o.finish_reason, "length");
    assert_int_equal(o.n_ids, N_TOKENS);
    assert_memory_equal(o.ids, ids, sizeof(ids));
    pgd_engine_destroy(lost.engine);
    pgd_engine_destroy(healthy.engine);
}

int main(int argc, char **argv) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(others_go_on)};
    if (argc != 2) {
        fprintf(stderr, "usage: one_lost_test DEVICE\n");
        return 2;
    }
    failing = argv[1];
    return cmocka_run_group_tests_name("failures.one_lost", tests, NULL, NULL);
}
