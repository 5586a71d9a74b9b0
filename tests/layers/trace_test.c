// The trace: it parses, and its events and bytes are those of the calls that were made.
#include "layers.h"

#include "base/json.h"
#include "engine/inner.h"

#define FILE_NAME PGD_TEST_BINARY_DIR "/tests/layers/trace.json"

// What the test counts between the engine and the layer.
typedef struct counts {
    int64_t ops[PGD_OP_COUNT];
    int64_t rows_embedded;
    int64_t gathered_bytes;
    int64_t copies;
    int64_t copied_bytes;
} counts;

static counts made;
static pgd_ops ops; // as they were
static pgd_queue_table queue;

#define COUNTED(name, family)                                                         \
    static pgd_status counted_##name(const pgd_exec *x, const pgd_##name##_args *a) { \
        const pgd_batch_head *live = a->batch->mirror;                                \
        made.ops[PGD_OP_##name]++;                                                    \
        made.rows_embedded += PGD_OP_##name == PGD_OP_embed ? live->n_tokens : 0;     \
        return ops.name(x, a);                                                        \
    }
PGD_OP_LIST(COUNTED)
#undef COUNTED

static pgd_status gather(const pgd_exec *x, const pgd_gather_rows_args *a) {
    const pgd_batch_head *live = a->batch->mirror;
    // read once, written once
    made.gathered_bytes += 2 * live->n_out * a->out.shape[1] * pgd_dtype_bytes(a->out.dtype);
    return counted_gather_rows(x, a);
}

static pgd_status copy(const pgd_device *d, pgd_queue *q, const pgd_copy *list, uint32_t n) {
    made.copies++;
    for (uint32_t i = 0; i < n; i++) {
        made.copied_bytes += (int64_t)(list[i].bytes * (list[i].rows > 1 ? list[i].rows : 1));
    }
    return queue.copy(d, q, list, n);
}

static void count_from_here(pgd_engine *engine) {
    pgd_ops *o = (pgd_ops *)(uintptr_t)engine->d->ops;
    pgd_queue_table *q = (pgd_queue_table *)(uintptr_t)engine->d->queue;
    made = (counts){0};
    ops = *o;
    queue = *q;
#define SET(name, family) o->name = counted_##name;
    PGD_OP_LIST(SET)
#undef SET
    o->gather_rows = gather;
    q->copy = copy;
}

static int64_t number(const pgd_json *v, const char *key) {
    int64_t n = -1;
    assert_true(pgd_json_to_i64(pgd_json_get(v, key), &n));
    return n;
}

static double real(const pgd_json *v, const char *key) {
    double r = -1.0;
    assert_true(pgd_json_to_f64(pgd_json_get(v, key), &r));
    return r;
}

static int32_t is_named(const pgd_json *e, const char *name) {
    pgd_str s = {0};
    assert_true(pgd_json_to_str(pgd_json_get(e, "name"), &s));
    return pgd_str_is(s, name);
}

// Events of that name from `first` on, and the sum of their bytes.
static int64_t events_of(const pgd_json *list, uint32_t first, const char *name,
                         int64_t *out_bytes) {
    int64_t n = 0;
    *out_bytes = 0;
    for (uint32_t i = first; i < list->n; i++) {
        if (is_named(&list->items[i], name)) {
            const pgd_json *args = pgd_json_get(&list->items[i], "args");
            assert_int_equal(number(args, "status"), 0);
            *out_bytes += number(args, "bytes");
            n++;
        }
    }
    return n;
}

// The first event behind loading: the batch's first upload, before the first embed.
static uint32_t first_step(const pgd_json *list) {
    uint32_t at = 0;
    while (at < list->n && !is_named(&list->items[at], "embed")) {
        at++;
    }
    while (at > 0 && !is_named(&list->items[at], "copy")) {
        at--;
    }
    return at;
}

static void run_requests(const char *device) {
    const pgd_engine_options o = {.size = sizeof(o),
                                  .model = TINY,
                                  .device = device,
                                  .memory = "64MiB",
                                  .max_num_seqs = 3,
                                  .max_num_batched_tokens = 8,
                                  .max_model_len = 64,
                                  .threads = 1,
                                  .weight_cache = "off"};
    static const int32_t ids[] = {5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
    pgd_engine *engine = NULL;
    pgd_request *r[3];
    OK(pgd_engine_create(&o, &engine));
    count_from_here(engine);
    for (int32_t i = 0; i < 3; i++) {
        const pgd_request_desc d = {
            .size = sizeof(d), .ids = ids, .n_ids = 5 + 3 * i, .max_tokens = 7, .ignore_eos = 1};
        OK(pgd_engine_submit(engine, &d, &r[i]));
    }
    while (pgd_engine_busy(engine) > 0) {
        OK(pgd_engine_step(engine));
    }
    pgd_engine_destroy(engine);
}

static void compare(const char *op, const pgd_json *list, uint32_t first, int64_t n) {
    int64_t bytes = 0;
    if (events_of(list, first, op, &bytes) != n) {
        fail_msg("%s: %lld calls and %lld events", op, (long long)n,
                 (long long)events_of(list, first, op, &bytes));
    }
    assert_true(n == 0 || bytes > 0 || strcmp(op, "attn_plan") == 0);
}

static void test_sums(void **state) {
    pgd_json_doc *doc = NULL;
    int64_t bytes = 0;
    (void)state;
    run_requests("trace{file=" FILE_NAME "}(cpu)");
    OK(pgd_json_read_file(FILE_NAME, &doc));
    const pgd_json *list = pgd_json_get(pgd_json_root(doc), "traceEvents");
    assert_true(pgd_json_is(list, PGD_JSON_ARRAY));
    const uint32_t first = first_step(list);
    assert_true(made.ops[PGD_OP_embed] >= 9 && made.ops[PGD_OP_gate_up] >= 18);
#define COMPARE(name, family) compare(#name, list, first, made.ops[PGD_OP_##name]);
    PGD_OP_LIST(COMPARE)
#undef COMPARE
    assert_int_equal(events_of(list, first, "copy", &bytes), made.copies);
    assert_int_equal(bytes, made.copied_bytes);
    (void)events_of(list, first, "gather_rows", &bytes);
    assert_int_equal(bytes, made.gathered_bytes);
    int64_t rows = 0;
    double end = 0.0;
    for (uint32_t i = 0; i < list->n; i++) {
        const pgd_json *e = &list->items[i];
        rows += is_named(e, "embed") ? number(pgd_json_get(e, "args"), "rows") : 0;
        // One after the other: each operation is waited for.
        assert_true(real(e, "ts") + 0.0005 >= end && real(e, "dur") >= 0.0);
        end = is_named(e, "host_wait") ? end : real(e, "ts") + real(e, "dur");
    }
    assert_int_equal(rows, made.rows_embedded);
    assert_int_equal(rows, 5 + 8 + 11 + 3 * 6); // prompts, and each answer but its last token
    pgd_json_free(doc);
}

// More events than are kept in memory; without waiting for each.
static void test_long(void **state) {
    pgd_json_doc *doc = NULL;
    int64_t bytes = 0;
    (void)state;
    const pgd_engine_options o = {.size = sizeof(o),
                                  .model = TINY,
                                  .device = "trace{file=" FILE_NAME ";sync=off}(null)",
                                  .memory = "64MiB",
                                  .threads = 1,
                                  .weight_cache = "off"};
    const int32_t ids[] = {5, 6, 7};
    const pgd_request_desc d = {
        .size = sizeof(d), .ids = ids, .n_ids = 3, .max_tokens = 400, .ignore_eos = 1};
    pgd_engine *engine = NULL;
    pgd_request *r = NULL;
    OK(pgd_engine_create(&o, &engine));
    const int32_t n = d.max_tokens < engine->limits.max_model_len - 3
                          ? d.max_tokens
                          : engine->limits.max_model_len - 3;
    OK(pgd_engine_generate(engine, &d, 1, NULL, NULL, &r));
    pgd_engine_destroy(engine);
    OK(pgd_json_read_file(FILE_NAME, &doc));
    const pgd_json *list = pgd_json_get(pgd_json_root(doc), "traceEvents");
    assert_int_equal(events_of(list, 0, "embed", &bytes), n);
    assert_true(list->n > 4096);
    pgd_json_free(doc);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_sums),
        cmocka_unit_test(test_long),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
