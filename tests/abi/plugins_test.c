// Real libraries through the real loader: good ones, and ones that are wrong in one way each.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/clock.h"
#include "base/fail.h"
#include "base/mem.h"
#include "base/test_ok.h"
#include "dev/dev.h"

static pgd_dev_registry *open_folder(const char *folder) {
    const pgd_dev_search search = {
        .folders = &folder, .n_folders = 1, .no_env = 1, .no_installed = 1};
    pgd_dev_registry *r = NULL;
    OK(pgd_dev_registry_create(&search, &r));
    return r;
}

static pgd_status try_open(const char *folder, const char *uri, pgd_dev **out) {
    const pgd_dev_desc desc = {.uri = uri, .allow_slow = 1};
    pgd_dev_registry *r = open_folder(folder);
    pgd_status code = pgd_dev_open(r, &desc, out);
    pgd_dev_registry_destroy(r);
    return code;
}

static void check_odd(int32_t number, pgd_status code, const char *sentence) {
    char folder[300];
    pgd_dev *dev = NULL;
    snprintf(folder, sizeof(folder), PGD_TEST_ABI_DIR "/odd%d", number);
    pgd_status found = try_open(folder, "odd", &dev);
    if (found != code || strstr(pgd_fail_text(code), sentence) == NULL) {
        fail_msg("odd%d: %d %s", number, found, pgd_fail_text(found));
    }
    assert_null(dev);
}

static void test_refused(void **state) {
    char text[100];
    (void)state;
    check_odd(1, PGD_INCOMPATIBLE, "build it with the headers of a released pagoda-sdk");
    snprintf(text, sizeof(text), "%016llx", (unsigned long long)PGD_ABI_HASH);
    check_odd(1, PGD_INCOMPATIBLE, text); // the sentence names both hashes
    snprintf(text, sizeof(text), "%016llx", (unsigned long long)PGD_ABI_HASH ^ 1);
    check_odd(1, PGD_INCOMPATIBLE, text);
    check_odd(2, PGD_INCOMPATIBLE, "needs a host of interface 0.9 or later, this host has 0.2");
    check_odd(3, PGD_INCOMPATIBLE, "does not run on a host of interface 0.2");
    check_odd(4, PGD_INVALID, "calls itself 'honest', but its manifest says kind 'odd'");
    check_odd(4, PGD_INVALID, "; correct the manifest, or put the library there");
    check_odd(12, PGD_INVALID, "is version '9.9.9', but its manifest says '0.1.0'; correct the");
    check_odd(13, PGD_INVALID, "has the role layer, but its manifest says backend; correct the");
    check_odd(14, PGD_INVALID, "was built with interface 0.1 and needs 0.1, but its manifest");
    check_odd(16, PGD_INCOMPATIBLE, "says that this is interface 0.0");
    check_odd(5, PGD_INVALID, "mandatory function queue.copy");
    check_odd(8, PGD_NOT_FOUND, "no driver was found");
    check_odd(9, PGD_INCOMPATIBLE, "no symbol pgd_plugin_v0");
    check_odd(10, PGD_INCOMPATIBLE, "bytes, the smallest there ever was has");
    check_odd(11, PGD_UNAVAILABLE, "open its backend");
}

// Shorter and longer tables are fine; what is behind the plugin's size is not looked at.
static void test_other_sizes(void **state) {
    const char *folders[3] = {PGD_TEST_ABI_DIR "/odd6", PGD_TEST_ABI_DIR "/odd7",
                              PGD_TEST_ABI_DIR "/odd15"};
    (void)state;
    for (int32_t i = 0; i < 3; i++) {
        pgd_dev *dev = NULL;
        pgd_queue *q = NULL;
        pgd_buffer *b = NULL;
        OK(try_open(folders[i], "odd:0", &dev));
        const pgd_device *d = pgd_dev_device(dev);
        const pgd_queue_desc queue = {.size = sizeof(queue)};
        const pgd_buffer_desc buffer = {.size = sizeof(buffer), .bytes = 64};
        OK(d->queue->create(d, &queue, &q));
        OK(d->memory->create(d, &buffer, &b));
        const pgd_range range = {.buffer = b, .bytes = 64};
        OK(d->queue->fill(d, q, &range, 5)); // filled by the host
        d->memory->destroy(d, b);
        d->queue->destroy(d, q);
        pgd_dev_close(dev);
    }
}

static void test_template_and_cplusplus(void **state) {
    pgd_dev *dev = NULL;
    (void)state;
    assert_int_equal(try_open(PGD_TEST_BINARY_DIR "/plugins/template", "template", &dev),
                     PGD_NOT_FOUND);
    assert_non_null(strstr(pgd_fail_text(PGD_NOT_FOUND), "drives no device"));
    assert_int_equal(try_open(PGD_TEST_ABI_DIR "/cplusplus", "cplusplus", &dev), PGD_NOT_FOUND);
    assert_non_null(strstr(pgd_fail_text(PGD_NOT_FOUND), "written in C++"));
}

static void test_candidates(void **state) {
    const char *folders[] = {PGD_TEST_ABI_DIR "/minimal", PGD_TEST_ABI_DIR "/odd1",
                             PGD_TEST_BINARY_DIR "/plugins/template"};
    const pgd_dev_search search = {
        .folders = folders, .n_folders = 3, .no_env = 1, .no_installed = 1};
    pgd_dev_registry *r = NULL;
    pgd_dev_candidate *list = NULL;
    uint32_t n = 0;
    (void)state;
    OK(pgd_dev_registry_create(&search, &r));
    OK(pgd_dev_candidates(r, &list, &n));
    assert_int_equal(n, 3);
    assert_true(list[0].usable);
    assert_string_equal(list[0].info.uri, "minimal:0");
    assert_false(list[1].usable);
    assert_non_null(strstr(list[1].reason, "layout"));
    assert_false(list[2].usable);
    assert_non_null(strstr(list[2].reason, "drives no device"));
    pgd_dev_candidates_free(list);
    const pgd_dev_desc desc = {.uri = "auto"};
    pgd_dev *dev = NULL;
    OK(pgd_dev_open(r, &desc, &dev));
    assert_string_equal(pgd_dev_uri(dev), "minimal:0");
    pgd_dev_close(dev);
    pgd_dev_registry_destroy(r);
}

// Opening and closing over and over leaves nothing behind.
static void test_open_again(void **state) {
    (void)state;
    uint64_t live = pgd_mem_live();
    for (int32_t i = 0; i < 200; i++) {
        pgd_dev *dev = NULL;
        OK(try_open(PGD_TEST_ABI_DIR "/minimal", "minimal", &dev));
        pgd_dev_close(dev);
    }
    assert_int_equal(pgd_mem_live(), live);
}

// ---- the null device ---------------------------------------------------------------------------

static pgd_dev *open_null(const char *uri, pgd_queue **q) {
    const pgd_queue_desc desc = {.size = sizeof(desc)};
    pgd_dev *dev = NULL;
    OK(try_open(PGD_TEST_BINARY_DIR "/lib/pagoda", uri, &dev));
    OK(pgd_dev_device(dev)->queue->create(pgd_dev_device(dev), &desc, q));
    return dev;
}

static void test_null_clock(void **state) {
    pgd_queue *q = NULL;
    pgd_exec *x = NULL;
    uint64_t value = 0;
    (void)state;
    pgd_dev *dev = open_null("null{step_us=20000}", &q);
    const pgd_device *d = pgd_dev_device(dev);
    OK(pgd_dev_exec_create(dev, q, 0, &x));
    uint64_t start = pgd_clock_ns();
    OK(d->queue->signal(d, q, &value));
    OK(d->queue->host_wait(d, q, value, 0)); // a signal without a step takes no time
    const pgd_add_args add = {.size = sizeof(add)};
    for (int32_t i = 0; i < 2; i++) {
        OK(d->ops->add(x, &add));
        OK(d->ops->add(x, &add));
        OK(d->queue->signal(d, q, &value));
    }
    assert_int_equal(d->queue->host_wait(d, q, value, 0), PGD_TIMEOUT);
    OK(d->queue->host_wait(d, q, value, PGD_WAIT_FOREVER));
    assert_true(pgd_clock_ns() - start >= 40000000u);
    pgd_dev_exec_destroy(dev, x);
    d->queue->destroy(d, q);
    pgd_dev_close(dev);
}

static void test_null_memory(void **state) {
    pgd_queue *q = NULL;
    pgd_buffer *b = NULL;
    uint64_t left = 0;
    uint64_t total = 0;
    (void)state;
    pgd_dev *dev = open_null("null{memory=1TiB}", &q);
    const pgd_device *d = pgd_dev_device(dev);
    pgd_buffer_desc desc = {.size = sizeof(desc), .bytes = UINT64_C(1) << 39};
    OK(d->memory->create(d, &desc, &b));
    OK(d->device->memory(d, &left, &total));
    assert_int_equal(total, UINT64_C(1) << 40);
    assert_int_equal(left, UINT64_C(1) << 39);
    desc.bytes++;
    pgd_buffer *more = b;
    assert_int_equal(d->memory->create(d, &desc, &more), PGD_OUT_OF_MEMORY);
    assert_null(more);
    d->memory->destroy(d, b);
    d->queue->destroy(d, q);
    pgd_dev_close(dev);
}

// Tokens depend on the token before and its position only, and lie where words do.
static void test_null_tokens(void **state) {
    static int32_t block[64];
    pgd_queue *q = NULL;
    pgd_exec *x = NULL;
    (void)state;
    pgd_dev *dev = open_null("null", &q);
    const pgd_device *d = pgd_dev_device(dev);
    OK(pgd_dev_exec_create(dev, q, 0, &x));
    const pgd_batch batch = {
        .size = sizeof(batch),
        .cap_tokens = 4,
        .cap_out = 4,
        .cap_slots = 4,
        .mirror = block,
        .token_ids = 64,
        .positions = 80,
        .out_rows = 96,
        .out_slot = 112,
        .last = 128,
        .sampled = 144,
    };
    block[3] = 3; // head.n_out
    const int32_t rows[3][4] = {{7, 5, 0, 0}, {9, 5, 1, 1}, {-1 - 3, 5, 2, 2}};
    for (int32_t i = 0; i < 3; i++) {
        for (int32_t k = 0; k < 4; k++) {
            block[16 + 4 * k + i] = rows[i][k];
        }
    }
    block[32 + 3] = 7; // last of slot 3: the same token before as row 0
    pgd_argmax_args a = {.size = sizeof(a), .batch = &batch};
    a.x = (pgd_tensor){.dtype = PGD_F32, .rank = 2, .shape = {4, 1000}, .stride = {1000, 1}};
    OK(d->ops->argmax(x, &a));
    assert_int_equal(block[36], block[32]);
    assert_int_equal(block[36], block[38]);
    assert_int_not_equal(block[36], block[37]);
    assert_in_range(block[36], 250, 749);
    assert_in_range(block[37], 250, 749);
    pgd_dev_exec_destroy(dev, x);
    d->queue->destroy(d, q);
    pgd_dev_close(dev);
}

static void test_null_options(void **state) {
    pgd_dev *dev = NULL;
    const char *bad[] = {"null{memory=0}", "null{tokens=prose}", "null{step_us=99999999999}",
                         "null{steps=1}", "null{step_us=1ms}"};
    (void)state;
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        assert_int_equal(try_open(PGD_TEST_BINARY_DIR "/lib/pagoda", bad[i], &dev), PGD_INVALID);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_refused),
        cmocka_unit_test(test_other_sizes),
        cmocka_unit_test(test_template_and_cplusplus),
        cmocka_unit_test(test_candidates),
        cmocka_unit_test(test_open_again),
        cmocka_unit_test(test_null_clock),
        cmocka_unit_test(test_null_memory),
        cmocka_unit_test(test_null_tokens),
        cmocka_unit_test(test_null_options),
    };
    return cmocka_run_group_tests_name("abi.plugins", tests, NULL, NULL);
}
