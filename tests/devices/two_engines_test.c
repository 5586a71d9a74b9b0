// Two engines on two plugins in one process, step by step in turn: each gives what it gives alone.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include <pagoda/pagoda.h>

#define MODEL    PGD_TEST_SOURCE_DIR "/tests/golden/models/llama-default"
#define N_TOKENS 24

static const char *const plugins[] = {PGD_TEST_CHIPS "/libpgd-beta.so"};
static const int32_t prompts[2][5] = {{5, 9, 33, 120, 7}, {44, 3, 90, 12, 8}};

typedef struct talk {
    pgd_engine *engine;
    pgd_request *request;
    int32_t ids[N_TOKENS];
    int32_t n;
} talk;

#define OK(call)                                         \
    do {                                                 \
        if ((call) != PGD_OK) {                          \
            fail_msg("%s: %s", #call, pgd_last_error()); \
        }                                                \
    } while (0)

static void open_talk(talk *t, const char *device, int32_t which) {
    const pgd_engine_options o = {.size = sizeof(o),
                                  .model = MODEL,
                                  .device = device,
                                  .plugins = plugins,
                                  .n_plugins = 1,
                                  .allow_slow = 1,
                                  .memory = "64MiB",
                                  .max_num_seqs = 2,
                                  .max_model_len = 64,
                                  .threads = 2};
    const pgd_request_desc d = {.size = sizeof(d),
                                .ids = prompts[which],
                                .n_ids = 5,
                                .max_tokens = N_TOKENS,
                                .temperature = which ? 0.8f : 0.0f,
                                .has_seed = 1,
                                .seed = 7,
                                .ignore_eos = 1};
    *t = (talk){0};
    OK(pgd_engine_create(&o, &t->engine));
    pgd_engine_info info = {.size = sizeof(info)};
    pgd_engine_get_info(t->engine, &info);
    assert_memory_equal(info.device, device, strlen(device));
    OK(pgd_engine_submit(t->engine, &d, &t->request));
}

static void close_talk(talk *t) {
    pgd_output o = {.size = sizeof(o)};
    pgd_request_output(t->request, &o);
    assert_string_equal(o.finish_reason, "length");
    assert_int_equal(o.n_ids, N_TOKENS);
    memcpy(t->ids, o.ids, sizeof(t->ids));
    t->n = o.n_ids;
    pgd_engine_destroy(t->engine);
}

static void alone(const char *device, int32_t which, talk *out) {
    open_talk(out, device, which);
    while (pgd_engine_busy(out->engine) > 0) {
        OK(pgd_engine_step(out->engine));
    }
    close_talk(out);
}

static void in_turn(void **state) {
    static const char *const devices[2] = {"cpu", "beta:1"};
    (void)state;
    for (int32_t which = 0; which < 2; which++) {
        talk solo[2];
        talk both[2];
        for (int32_t i = 0; i < 2; i++) {
            alone(devices[i], which, &solo[i]);
            open_talk(&both[i], devices[i], which);
        }
        while (pgd_engine_busy(both[0].engine) > 0 || pgd_engine_busy(both[1].engine) > 0) {
            OK(pgd_engine_step(both[0].engine));
            OK(pgd_engine_step(both[1].engine));
        }
        for (int32_t i = 0; i < 2; i++) {
            close_talk(&both[i]);
            assert_memory_equal(both[i].ids, solo[i].ids, sizeof(solo[i].ids));
        }
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(in_turn)};
    return cmocka_run_group_tests_name("devices.two_engines", tests, NULL, NULL);
}
