// Device names and their options.
#include "dev/odd_test.h" // first, see there

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "dev/inner.h"

#include "base/fail.h"
#include "base/mem.h"

static void check_uri(const char *uri, const char *kind, int32_t index, const char *options) {
    pgd_dev_uri_parts parts;
    assert_int_equal(pgd_dev_uri_parse(uri, &parts), PGD_OK);
    assert_true(pgd_str_is(parts.kind, kind));
    assert_int_equal(parts.has_index, index >= 0);
    assert_int_equal(parts.index, index >= 0 ? index : 0);
    assert_true(pgd_str_is(parts.options, options));
}

static void test_uri(void **state) {
    pgd_dev_uri_parts parts;
    const char *bad[] = {"",
                         ":0",
                         "CPU",
                         "cpu:",
                         "cpu:x",
                         "cpu:-1",
                         "cpu:0x",
                         "cpu{",
                         "cpu:0{a=1}b",
                         "cpu:65536",
                         "cpu 0",
                         "cpu()",
                         "check(cpu)",
                         "a23456789012345678901234567"};
    (void)state;
    check_uri("cpu", "cpu", -1, "");
    check_uri(" acme:12 ", "acme", 12, "");
    check_uri("null{step_us=5;memory=4GiB}", "null", -1, "step_us=5;memory=4GiB");
    check_uri("my-chip_2:3{a=b}", "my-chip_2", 3, "a=b");
    check_uri("null{}", "null", -1, "");
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        assert_int_equal(pgd_dev_uri_parse(bad[i], &parts), PGD_INVALID);
        assert_non_null(strstr(pgd_fail_text(PGD_INVALID), "KIND[:N]"));
    }
}

static void test_chips(void **state) {
    static const char *const bad[] = {"pci",
                                      "pci:",
                                      "pci:0",
                                      "pci:65:00",
                                      "pci:65:00.",
                                      "pci:065:00.0",
                                      "pci:65:0.0",
                                      "pci:0000:65:00.0:1",
                                      "pci{a=b}",
                                      "uuid",
                                      "uuid:",
                                      "uuid:GPU-0123",
                                      "uuid:0123456789abcdef0123456789abcdef0",
                                      "uuid:0123456789abcdef0123456789abcdeg"};
    const pgd_dev_pci wanted = {.domain = 0x12, .bus = 0xab, .slot = 0x1f, .function = 7};
    pgd_dev_uri_parts parts;
    pgd_dev_pci pci;
    (void)state;
    assert_int_equal(pgd_dev_uri_parse("pci:0012:ab:1F.7{a=b}", &parts), PGD_OK);
    assert_int_equal(parts.by, PGD_DEV_BY_PCI);
    assert_true(pgd_dev_uri_same_pci(&parts.pci, &wanted));
    assert_true(pgd_str_is(parts.options, "a=b"));
    assert_true(pgd_dev_uri_pci(PGD_STR("00000012:AB:1f.7"), &pci));
    assert_true(pgd_dev_uri_same_pci(&pci, &wanted));
    assert_true(pgd_dev_uri_pci(PGD_STR("ab:1f.7"), &pci));
    assert_int_equal(pci.domain, 0);
    assert_false(pgd_dev_uri_pci(PGD_STR(""), &pci));
    assert_int_equal(pgd_dev_uri_parse("uuid:GPU-00010203-0405-0607-0809-0a0b0c0D0E0f", &parts),
                     PGD_OK);
    assert_int_equal(parts.by, PGD_DEV_BY_UUID);
    for (int32_t i = 0; i < 16; i++) {
        assert_int_equal(parts.uuid[i], i);
    }
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        if (pgd_dev_uri_parse(bad[i], &parts) != PGD_INVALID) {
            fail_msg("%s", bad[i]);
        }
    }
    assert_true(pgd_dev_is_auto(NULL));
    assert_true(pgd_dev_is_auto("auto{a=b}"));
    assert_false(pgd_dev_is_auto("autos"));
}

static void test_options(void **state) {
    pgd_dev_host *h = NULL;
    (void)state;
    assert_int_equal(pgd_dev_host_create(PGD_STR("x"), PGD_STR(" a = 1 ;;bc=d e;f="), NULL, &h),
                     PGD_OK);
    const pgd_host *host = &h->host;
    assert_string_equal(host->option(host, "a"), "1");
    assert_string_equal(host->option(host, "bc"), "d e");
    assert_string_equal(host->option(host, "f"), "");
    assert_null(host->option(host, "b"));
    pgd_dev_host_destroy(h);
    assert_int_equal(pgd_dev_host_create(PGD_STR("x"), PGD_STR("a"), NULL, &h), PGD_INVALID);
    assert_int_equal(pgd_dev_host_create(PGD_STR("x"), PGD_STR("=1"), NULL, &h), PGD_INVALID);
    assert_int_equal(pgd_dev_host_create(PGD_STR("x"), PGD_STR("a=1;a=2"), NULL, &h), PGD_INVALID);
    assert_null(h);
}

static void test_option_types(void **state) {
    static const pgd_option options[] = {
        {"n", "int", "", ""},   {"t", "us", "", ""},  {"size", "bytes", "", ""},
        {"on", "bool", "", ""}, {"s", "str", "", ""},
    };
    const pgd_plugin plugin = {
        .options = options, .n_options = 5, .option_stride = sizeof(options[0])};
    const struct {
        const char *text;
        pgd_status code;
    } cases[] = {
        {"n=-5;t=7;size=4GiB;on=true;s=x", PGD_OK},
        {"n=5x", PGD_INVALID},
        {"t=-1", PGD_INVALID},
        {"size=big", PGD_INVALID},
        {"on=maybe", PGD_INVALID},
        {"other=1", PGD_INVALID},
    };
    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        pgd_dev_host *h = NULL;
        assert_int_equal(pgd_dev_host_create(PGD_STR("x"), pgd_str_of(cases[i].text), NULL, &h),
                         PGD_OK);
        assert_int_equal(pgd_dev_host_check(h, &plugin), cases[i].code);
        pgd_dev_host_destroy(h);
    }
    assert_non_null(strstr(pgd_fail_text(PGD_INVALID), "allowed: n, t, size, on, s"));
}

typedef struct team_arg {
    const pgd_host *host;
    uint32_t seen[8];
} team_arg;

static void worker(void *arg, uint32_t index, uint32_t n_workers) {
    team_arg *a = arg;
    a->seen[index] = n_workers;
    a->host->team_barrier(a->host);
    for (uint32_t i = 0; i < n_workers; i++) {
        a->seen[4 + index] += a->seen[i];
    }
}

static void test_host(void **state) {
    pgd_dev_host *h = NULL;
    pgd_team *team = NULL;
    (void)state;
    assert_int_equal(pgd_team_create(2, &team), PGD_OK);
    for (int32_t with = 0; with < 2; with++) {
        uint32_t n = with ? 2 : 1;
        assert_int_equal(pgd_dev_host_create(PGD_STR("x"), PGD_STR(""), with ? team : NULL, &h),
                         PGD_OK);
        const pgd_host *host = &h->host;
        team_arg a = {.host = host};
        assert_int_equal(host->team_size(host), n);
        host->team_run(host, worker, &a);
        assert_int_equal(a.seen[4], n * n);
        assert_int_equal(a.seen[5], with ? n * n : 0);
        unsigned char *p = host->alloc(host, 100, 256);
        assert_non_null(p);
        assert_int_equal((uintptr_t)p % 256, 0);
        assert_int_equal(p[99], 0);
        host->free(host, p);
        assert_null(host->alloc(host, 100, 3));
        assert_true(host->clock_ns(host) > 0);
        assert_int_equal((host->fail)(host, PGD_DENIED, "vendor.c", 12, "no %d", 7), PGD_DENIED);
        assert_string_equal(pgd_fail_text(PGD_DENIED), "no 7");
        assert_string_equal(pgd_fail_file(), "vendor.c");
        assert_int_equal(pgd_fail_line(), 12);
        pgd_dev_host_destroy(h);
    }
    pgd_team_destroy(team);
}

// What a device says about its holes and its plugin's faults while it is opened.
static void test_open_plugin(void **state) {
    pgd_dev *dev = NULL;
    (void)state;
    const pgd_plugin *plugin = odd_plugin(ODD_MINIMAL);
    assert_int_equal(pgd_dev_open_plugin(plugin, PGD_STR("a=1"), 0, NULL, 0, &dev), PGD_INVALID);
    assert_non_null(strstr(pgd_fail_text(PGD_INVALID), "allowed: none"));
    assert_int_equal(pgd_dev_open_plugin(plugin, PGD_STR(""), 1, NULL, 0, &dev), PGD_NOT_FOUND);
    assert_null(dev);
    assert_int_equal(pgd_dev_open_plugin(plugin, PGD_STR(""), 0, NULL, 0, &dev), PGD_OK);
    assert_string_equal(pgd_dev_uri(dev), "minimal:0");
    assert_string_equal(pgd_dev_info(dev)->uri, "minimal:0");
    const void *const *slots = (const void *const *)(const void *)pgd_dev_device(dev)->ops;
    for (size_t i = 1; i < sizeof(pgd_ops) / sizeof(void *); i++) {
        assert_non_null(slots[i]);
    }
    pgd_dev_close(dev);
    assert_int_equal(pgd_mem_live(), 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_uri),     cmocka_unit_test(test_chips),
        cmocka_unit_test(test_options), cmocka_unit_test(test_option_types),
        cmocka_unit_test(test_host),    cmocka_unit_test(test_open_plugin),
    };
    return cmocka_run_group_tests_name("dev.uri", tests, NULL, NULL);
}
