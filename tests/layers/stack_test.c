// How layers stand on a device: names, levels, holes, the place of a TOP layer; and that a device
// without layers pays nothing for them.
#include "layers.h"

#include "base/mem.h"
#include "dev/inner.h"

static void expect_refused(const char *uri, const char *sentence) {
    pgd_dev *dev = NULL;
    const pgd_status status = open_device(uri, &dev);
    if (status == PGD_OK || strstr(pgd_fail_text(status), sentence) == NULL) {
        fail_msg("%s: %s", uri, pgd_fail_text(status));
    }
    assert_null(dev);
}

static void test_names(void **state) {
    (void)state;
    expect_refused("nothing(cpu)", "there is no layer 'nothing'; layers are check, fault, trace");
    expect_refused("null(cpu)", "'null' is a device, not a layer");
    expect_refused("check", "'check' is a layer, not a device");
    expect_refused("check(fault)", "'fault' is a layer, not a device");
    expect_refused("check(cpu", "parenthesis");
    expect_refused("check()", "kind is missing");
    expect_refused("check:1(cpu)", "a layer takes no number");
    expect_refused("check{stop=on(cpu)", "brace");
    expect_refused("check{stop=maybe}(cpu)", "'stop' of 'check' is 'maybe'");
    expect_refused("fault{fail=1}(cpu)", "layer 'fault' has no option 'fail'; allowed: op");
    expect_refused("fault{op=nothing}(cpu)", "option op of layer fault is 'nothing'; allowed");
    expect_refused("fault{code=BAD}(cpu)", "option code of layer fault is 'BAD'");
    expect_refused("fault{row=-2}(cpu)", "option row of layer fault is -2; -1 or more");
    expect_refused("fault{reopen=maybe}(cpu)", "ok and fail are allowed");
    expect_refused("fault{id=64}(cpu)", "0 to 63");
    expect_refused("trace{file=/nowhere/t.json}(cpu)", "'/nowhere/t.json' cannot be written");
    expect_refused("check(check(check(check(check(check(check(check(check(cpu)))))))))",
                   "more than 8 layers");
    expect_refused("check(top(cpu))", "layer 'check' stands around 'top'");
}

static void test_auto_within_layers(void **state) {
    pgd_text t = {0};
    (void)state;
    assert_true(pgd_dev_is_auto("check(auto)"));
    assert_true(pgd_dev_is_auto("check{stop=off}( trace(auto{key=value}) )"));
    assert_false(pgd_dev_is_auto("check(cpu)"));
    assert_false(pgd_dev_is_auto("auto(cpu)"));
    OK(pgd_dev_replace_auto("check{stop=off}(trace(auto{key=value}))", "acme:1", &t));
    assert_string_equal(t.ptr, "check{stop=off}(trace(acme:1{key=value}))");
    pgd_text_clear(&t);
    OK(pgd_dev_replace_auto(NULL, "cpu:0", &t));
    assert_string_equal(t.ptr, "cpu:0");
    pgd_text_free(&t);
}

// Without layers each call goes straight to the plugin.
static void test_nothing_is_added_without_layers(void **state) {
    pgd_dev *dev = NULL;
    pgd_exec *x = NULL;
    (void)state;
    OK(open_device("cpu", &dev));
    const pgd_device *d = pgd_dev_device(dev);
    assert_ptr_equal(d, &dev->device);
    assert_null(d->next);
    assert_int_equal(dev->n_levels, 1);
    assert_ptr_equal(d->self, dev->levels[0].device.self);
    assert_ptr_equal(d->queue->copy, dev->levels[0].tables.queue.copy);
    assert_ptr_equal(d->ops->gate_up, dev->levels[0].tables.ops.gate_up);
    pgd_queue *q = NULL;
    const pgd_queue_desc desc = {.size = sizeof(desc)};
    OK(d->queue->create(d, &desc, &q));
    OK(pgd_dev_exec_create(dev, q, 64, &x));
    assert_ptr_equal(x->dev, d);
    assert_null(x->next);
    pgd_dev_exec_destroy(dev, x);
    d->queue->destroy(d, q);
    pgd_dev_close(dev);
}

static void test_levels(void **state) {
    pgd_dev *dev = NULL;
    pgd_exec *x = NULL;
    pgd_queue *q = NULL;
    const pgd_queue_desc desc = {.size = sizeof(desc)};
    (void)state;
    listen_anew();
    OK(open_device("top(fault{slow_us=1}(check(null{step_us=3})))", &dev));
    assert_string_equal(pgd_dev_uri(dev), "top(fault(check(null:0)))");
    assert_string_equal(pgd_dev_info(dev)->uri, "null:0");
    assert_null(pgd_dev_extension(dev, "x.limits.1"));
    const char *const names[] = {"null", "check", "fault", "top"};
    for (uint32_t i = 0; i < 4; i++) {
        assert_string_equal(dev->levels[i].plugin->name, names[i]);
    }
    assert_int_equal(dev->n_below, 3);
    const pgd_device *d = pgd_dev_device(dev);
    assert_ptr_equal(d, &dev->levels[3].device);
    assert_ptr_equal(d->next, &dev->device); // the filler
    assert_ptr_equal(d->next->self, dev->levels[2].device.self);
    assert_ptr_equal(d->next->next, &dev->levels[1].device);
    assert_ptr_equal(d->next->next->next, &dev->levels[0].device);
    assert_null(d->next->next->next->next);
    OK(d->queue->create(d, &desc, &q));
    OK(pgd_dev_exec_create(dev, q, 64, &x));
    const pgd_exec *at = x;
    for (const pgd_device *level = d; level != NULL; level = level->next) {
        assert_ptr_equal(at->dev, level);
        assert_ptr_equal(at->queue, q);
        assert_int_equal(at->scratch.bytes, 64);
        at = at->next;
    }
    assert_null(at);
    pgd_dev_exec_destroy(dev, x);
    d->queue->destroy(d, q);
    expect_silence();
    pgd_dev_close(dev);
    expect_told("top: gate_up 0");
}

// A layer fills no hole: what the device lacks is composed or runs on the host, as without it.
static void test_holes_stay_holes(void **state) {
    pgd_dev *plain = NULL;
    pgd_dev *dev = NULL;
    (void)state;
    listen_anew();
    OK(open_device("minimal", &plain));
    OK(open_device("check(fault(minimal))", &dev));
    for (int32_t op = 0; op < PGD_OP_COUNT; op++) {
        assert_int_equal(dev->how[op], plain->how[op]);
        assert_false(pgd_dev_has_op(&dev->native.ops, op));
    }
    assert_null(dev->native.memory.map);
    assert_null(dev->native.queue.fill);
    assert_null(dev->native.weight.prepare);
    assert_null(dev->native.kv.destroy);
    assert_null(dev->native.graph.begin);
    assert_int_equal(dev->weight_native, 0);
    pgd_dev_close(dev);
    pgd_dev_close(plain);
    expect_silence();
}

static void test_open_again(void **state) {
    (void)state;
    listen_anew();
    const uint64_t live = pgd_mem_live();
    for (int32_t i = 0; i < 50; i++) {
        pgd_dev *dev = NULL;
        OK(open_device("fault(check(null))", &dev));
        pgd_dev_close(dev);
    }
    assert_int_equal(pgd_mem_live(), live);
    expect_silence();
}

// Each allocation of opening fails.
static void test_allocations(void **state) {
    (void)state;
    uint64_t n = 1;
    for (;; n++) {
        pgd_dev *dev = NULL;
        const uint64_t live = pgd_mem_live();
        pgd_mem_fail_nth(n);
        const pgd_status status = open_device("fault(check(null))", &dev);
        pgd_mem_fail_nth(0);
        pgd_dev_close(dev);
        assert_int_equal(pgd_mem_live(), live);
        if (status == PGD_OK) {
            break;
        }
    }
    assert_true(n > 10);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_names),
        cmocka_unit_test(test_auto_within_layers),
        cmocka_unit_test(test_nothing_is_added_without_layers),
        cmocka_unit_test(test_levels),
        cmocka_unit_test(test_holes_stay_holes),
        cmocka_unit_test(test_open_again),
        cmocka_unit_test(test_allocations),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
