// Host programs that break the contract in one way each, over check(null) and check(cpu): the layer
// names the mistake; programs that keep it hear nothing.
#include "layers.h"

#include <pagoda/pagoda.h>

#define BYTES 256

// A device with a queue, an exec and two buffers.
typedef struct program {
    pgd_dev *dev;
    const pgd_device *d;
    pgd_queue *q;
    pgd_exec *x;
    pgd_buffer *a;
    pgd_buffer *b;
} program;

static const char *inner = "null";

static void begin(program *p, const char *layer) {
    char uri[64];
    const pgd_queue_desc queue = {.size = sizeof(queue)};
    const pgd_buffer_desc buffer = {.size = sizeof(buffer), .bytes = BYTES};
    *p = (program){0};
    (void)snprintf(uri, sizeof(uri), "%s(%s)", layer, inner);
    listen_anew();
    OK(open_device(uri, &p->dev));
    p->d = pgd_dev_device(p->dev);
    OK(p->d->queue->create(p->d, &queue, &p->q));
    OK(pgd_dev_exec_create(p->dev, p->q, 0, &p->x));
    OK(p->d->memory->create(p->d, &buffer, &p->a));
    OK(p->d->memory->create(p->d, &buffer, &p->b));
}

static void end(program *p) {
    p->d->queue->destroy(p->d, p->q);
    pgd_dev_exec_destroy(p->dev, p->x);
    p->d->memory->destroy(p->d, p->a);
    p->d->memory->destroy(p->d, p->b);
    pgd_dev_close(p->dev);
}

static void wait_for_all(const program *p) {
    uint64_t value = 0;
    OK(p->d->queue->signal(p->d, p->q, &value));
    OK(p->d->queue->host_wait(p->d, p->q, value, PGD_WAIT_FOREVER));
}

static pgd_copy up(pgd_buffer *to, const void *from, uint64_t bytes) {
    return (pgd_copy){
        .dst = to, .src_offset = (uint64_t)(uintptr_t)from, .bytes = bytes, .rows = 1};
}

static pgd_copy down(pgd_buffer *from, void *to, uint64_t bytes) {
    return (pgd_copy){
        .dst_offset = (uint64_t)(uintptr_t)to, .src = from, .bytes = bytes, .rows = 1};
}

static void send(const program *p, const pgd_copy *copy) {
    OK(p->d->queue->copy(p->d, p->q, copy, 1));
}

static pgd_tensor tensor(pgd_buffer *b, int64_t rows, int64_t columns) {
    return (pgd_tensor){
        .buffer = b, .dtype = PGD_F32, .rank = 2, .shape = {rows, columns}, .stride = {columns, 1}};
}

static void expect_wrong(pgd_status status, const char *sentence) {
    assert_int_equal(status, PGD_INVALID);
    if (strstr(pgd_fail_text(status), sentence) == NULL) {
        fail_msg("\"%s\" was not said, but: %s", sentence, pgd_fail_text(status));
    }
    expect_told(sentence);
}

// ---- programs about time -----------------------------------------------------------------------

static void test_a_good_program(void **state) {
    program p;
    unsigned char from[BYTES];
    unsigned char to[BYTES] = {0};
    uint64_t value = 0;
    (void)state;
    memset(from, 7, sizeof(from));
    begin(&p, "check");
    const pgd_copy there = up(p.a, from, BYTES);
    const pgd_copy across = {.dst = p.b, .src = p.a, .bytes = BYTES, .rows = 1};
    const pgd_copy back = down(p.b, to, BYTES);
    send(&p, &there);
    send(&p, &across);
    send(&p, &back);
    const pgd_range range = {.buffer = p.a, .bytes = BYTES};
    OK(p.d->queue->fill(p.d, p.q, &range, 5));
    wait_for_all(&p);
    assert_memory_equal(to, from, BYTES);
    OK(p.d->queue->done(p.d, p.q, &value));
    assert_true(value >= 1);
    end(&p);
    expect_silence();
}

static void test_destroyed_before_the_wait(void **state) {
    program p;
    unsigned char from[BYTES] = {0};
    (void)state;
    begin(&p, "check");
    const pgd_copy there = up(p.a, from, BYTES);
    send(&p, &there);
    uint64_t early = 0;
    OK(p.d->queue->signal(p.d, p.q, &early));
    send(&p, &there);
    OK(p.d->queue->host_wait(p.d, p.q, early, PGD_WAIT_FOREVER)); // not behind the second copy
    p.d->memory->destroy(p.d, p.a);
    expect_told("is in use: nobody has waited");
    p.a = NULL;
    wait_for_all(&p);
    end(&p);
    expect_silence();
}

static void test_read_before_the_wait(void **state) {
    program p;
    unsigned char from[BYTES];
    unsigned char to[BYTES];
    (void)state;
    memset(from, 7, sizeof(from));
    memset(to, 1, sizeof(to));
    begin(&p, "check");
    const pgd_copy there = up(p.a, from, BYTES);
    const pgd_copy back = {.dst_offset = (uint64_t)(uintptr_t)to,
                           .src = p.a,
                           .bytes = 16,
                           .rows = 4,
                           .dst_pitch = 64,
                           .src_pitch = 32};
    send(&p, &there);
    send(&p, &back);
    for (int32_t i = 0; i < BYTES; i++) { // what a hasty host reads is nonsense
        assert_int_equal(to[i], i % 64 < 16 ? 0xA5 : 1);
    }
    wait_for_all(&p);
    for (int32_t i = 0; i < BYTES; i++) {
        assert_int_equal(to[i], i % 64 < 16 ? 7 : 1);
    }
    end(&p);
    expect_silence();
}

static void test_changed_before_the_wait(void **state) {
    program p;
    unsigned char from[BYTES] = {0};
    (void)state;
    begin(&p, "check");
    const pgd_copy there = up(p.a, from, BYTES);
    send(&p, &there);
    from[BYTES - 1] = 1;
    wait_for_all(&p);
    expect_told("were changed before the host had waited");
    end(&p);
    expect_silence();
}

// Two copies that follow each other over host memory need no wait between them.
static void test_through_host_memory(void **state) {
    program p;
    unsigned char from[BYTES];
    unsigned char middle[BYTES] = {0};
    unsigned char to[BYTES] = {0};
    (void)state;
    memset(from, 9, sizeof(from));
    begin(&p, "check");
    const pgd_copy list[] = {up(p.a, from, BYTES), down(p.a, middle, BYTES), up(p.b, middle, BYTES),
                             down(p.b, to, BYTES)};
    for (int32_t i = 0; i < 4; i++) {
        send(&p, &list[i]);
    }
    wait_for_all(&p);
    assert_memory_equal(to, from, BYTES);
    end(&p);
    expect_silence();
}

// What one queue has waited for is passed with it.
static void test_two_queues(void **state) {
    (void)state;
    for (int32_t waits = 0; waits < 2; waits++) {
        program p;
        pgd_queue *other = NULL;
        uint64_t value = 0;
        unsigned char from[BYTES] = {0};
        const pgd_queue_desc desc = {.size = sizeof(desc), .role = PGD_QUEUE_COPY};
        begin(&p, "check");
        OK(p.d->queue->create(p.d, &desc, &other));
        const pgd_copy there = up(p.a, from, BYTES);
        send(&p, &there);
        OK(p.d->queue->signal(p.d, p.q, &value));
        if (waits) {
            OK(p.d->queue->wait(p.d, other, p.q, value));
        }
        OK(p.d->queue->signal(p.d, other, &value));
        OK(p.d->queue->host_wait(p.d, other, value, PGD_WAIT_FOREVER));
        p.d->memory->destroy(p.d, p.a);
        p.a = NULL;
        if (waits) {
            expect_silence();
        } else {
            expect_told("is in use");
        }
        p.d->queue->destroy(p.d, other);
        end(&p);
        expect_silence();
    }
}

static void test_numbers_and_handles(void **state) {
    program p;
    unsigned char from[2 * BYTES] = {0};
    (void)state;
    begin(&p, "check");
    expect_wrong(p.d->queue->host_wait(p.d, p.q, 1000, 1), "number 1000 was never given");
    const pgd_copy far = up(p.a, from, BYTES + 1);
    expect_wrong(p.d->queue->copy(p.d, p.q, &far, 1), "bytes 0 to 257 of a buffer of 256");
    const pgd_copy wild = up((pgd_buffer *)(void *)from, from, 4);
    expect_wrong(p.d->queue->copy(p.d, p.q, &wild, 1), "is no living buffer");
    const pgd_copy nowhere = up(p.a, NULL, 4);
    expect_wrong(p.d->queue->copy(p.d, p.q, &nowhere, 1), "the address is NULL");
    const pgd_range odd = {.buffer = p.a, .offset = 2, .bytes = 4};
    if (strcmp(inner, "cpu") == 0) { // on the null device the host fills
        expect_wrong(p.d->queue->fill(p.d, p.q, &odd, 0), "no multiples of 4");
    }
    const pgd_buffer_desc none = {.size = sizeof(none)};
    pgd_buffer *b = NULL;
    expect_wrong(p.d->memory->create(p.d, &none, &b), "0 bytes");
    p.d->memory->destroy(p.d, p.a);
    const pgd_copy dead = up(p.a, from, 4);
    expect_wrong(p.d->queue->copy(p.d, p.q, &dead, 1), "is no living buffer");
    p.d->memory->destroy(p.d, p.a);
    expect_told("is no living buffer");
    p.a = NULL;
    end(&p);
    expect_silence();
}

static void test_left_behind(void **state) {
    program p;
    const pgd_buffer_desc desc = {.size = sizeof(desc), .bytes = 64};
    pgd_buffer *b = NULL;
    (void)state;
    begin(&p, "check");
    OK(p.d->memory->create(p.d, &desc, &b));
    const pgd_device *below = p.d->next; // so that the test itself leaves nothing behind
    below->memory->destroy(below, b);
    end(&p);
    expect_told("1 buffer is not destroyed");
}

// With stop=off the call is made.
static void test_only_told(void **state) {
    program p;
    pgd_buffer *b = NULL;
    const pgd_buffer_desc odd = {.size = sizeof(odd), .bytes = 64, .align = 3};
    (void)state;
    begin(&p, "check{stop=off}");
    if (p.d->memory->create(p.d, &odd, &b) == PGD_OK) {
        p.d->memory->destroy(p.d, b);
    }
    expect_told("aligned to 3");
    end(&p);
    expect_silence();
}

// ---- operations --------------------------------------------------------------------------------

static pgd_add_args good_add(const program *p) {
    return (pgd_add_args){.size = sizeof(pgd_add_args),
                          .a = tensor(p->a, 4, 8),
                          .b = tensor(p->a, 4, 8),
                          .out = tensor(p->b, 4, 8)};
}

// Only the null device has every operation.
static void test_arguments(void **state) {
    program p;
    (void)state;
    if (strcmp(inner, "null") != 0) {
        return;
    }
    begin(&p, "check");
    pgd_add_args a = good_add(&p);
    OK(p.d->ops->add(p.x, &a));
    a.b.rank = 0;
    expect_wrong(p.d->ops->add(p.x, &a), "add: b is absent");
    a = good_add(&p);
    a.b = tensor(p.a, 4, 4);
    expect_wrong(p.d->ops->add(p.x, &a), "last dimension of b is 4, it must be 8");
    a = good_add(&p);
    a.out = tensor(p.b, 9, 8);
    expect_wrong(p.d->ops->add(p.x, &a), "bytes 0 to 288 of a buffer of 256");
    a = good_add(&p);
    a.out.offset = 2;
    expect_wrong(p.d->ops->add(p.x, &a), "out has a wrong shape, stride or alignment");
    a = good_add(&p);
    a.a.dtype = 77;
    expect_wrong(p.d->ops->add(p.x, &a), "dtype 77");
    a = good_add(&p);
    a.rows = PGD_ROWS_TOKENS;
    expect_wrong(p.d->ops->add(p.x, &a), "batch is NULL");
    a.rows = 3;
    expect_wrong(p.d->ops->add(p.x, &a), "rows is 3");
    a = good_add(&p);
    a.size = 4;
    expect_wrong(p.d->ops->add(p.x, &a), "size is 4");
    struct {
        pgd_add_args a;
        uint64_t later;
    } newer = {.a = good_add(&p), .later = 1};
    newer.a.size = sizeof(newer);
    expect_wrong(p.d->ops->add(p.x, &newer.a), "that nobody knows are set");
    newer.later = 0;
    OK(p.d->ops->add(p.x, &newer.a));
    p.d->memory->destroy(p.d, p.b);
    p.b = NULL;
    expect_told("is in use"); // by add
    wait_for_all(&p);
    end(&p);
    expect_silence();
}

static void test_live_rows(void **state) {
    program p;
    const pgd_batch_head head = {.n_tokens = 5, .n_seqs = 1};
    pgd_batch batch = {.size = sizeof(batch), .cap_tokens = 8, .cap_seqs = 1, .mirror = &head};
    (void)state;
    if (strcmp(inner, "null") != 0) {
        return;
    }
    begin(&p, "check");
    pgd_add_args a = good_add(&p);
    a.batch = &batch;
    a.rows = PGD_ROWS_TOKENS;
    expect_wrong(p.d->ops->add(p.x, &a), "has 4 rows, the step has 5");
    a.a = a.b = tensor(p.a, 8, 8);
    a.out = tensor(p.b, 8, 8);
    OK(p.d->ops->add(p.x, &a));
    batch.cap_tokens = 4;
    expect_wrong(p.d->ops->add(p.x, &a), "5 tokens, its cap is 4");
    end(&p);
    expect_silence();
}

static void test_weights(void **state) {
    program p;
    static const float numbers[8 * 4];
    const pgd_weight_part part = {
        .rows = 8,
        .cols = 4,
        .row_count = 8,
        .col_count = 4,
        .data = {.ptr = numbers, .bytes = sizeof(numbers)},
    };
    const pgd_weight_desc desc = {.size = sizeof(desc),
                                  .uses = PGD_USE_GEMM,
                                  .dtype = PGD_F32,
                                  .n_parts = 1,
                                  .part_stride = sizeof(part),
                                  .n = 8,
                                  .k = 4,
                                  .max_rows = 4,
                                  .parts = &part,
                                  .name = "w"};
    pgd_weight_plan plan = {.size = sizeof(plan)};
    pgd_weight *w = NULL;
    (void)state;
    if (strcmp(inner, "null") != 0) {
        return;
    }
    begin(&p, "check");
    OK(p.d->weight->plan(p.d, &desc, &plan));
    const pgd_range none = {0};
    const pgd_range small = {.buffer = p.a, .bytes = plan.bytes - 1};
    expect_wrong(p.d->weight->prepare(p.d, p.q, &desc, &small, &none, &w), "the plan says");
    const pgd_range dst = {.buffer = p.a, .bytes = plan.bytes};
    OK(p.d->weight->prepare(p.d, p.q, &desc, &dst, &none, &w));
    pgd_gemm_args a = {.size = sizeof(a), .w = w, .x = tensor(p.b, 2, 4), .y = tensor(p.b, 2, 8)};
    a.y.offset = 64;
    OK(p.d->ops->gemm(p.x, &a));
    a.x = tensor(p.b, 2, 5);
    expect_wrong(p.d->ops->gemm(p.x, &a), "last dimension of x is 5, it must be 4");
    a.x = tensor(p.b, 2, 4);
    a.y = tensor(p.b, 2, 7);
    expect_wrong(p.d->ops->gemm(p.x, &a), "the product is 7, it must be 8");
    pgd_embed_args e = {.size = sizeof(e), .w = w, .out = tensor(p.b, 2, 4)};
    expect_wrong(p.d->ops->embed(p.x, &e), "the weight was not made for embed");
    p.d->weight->destroy(p.d, w);
    expect_told("the weight");
    a.y = tensor(p.b, 2, 8);
    expect_wrong(p.d->ops->gemm(p.x, &a), "is no living weight");
    wait_for_all(&p);
    OK(p.d->weight->prepare(p.d, p.q, &desc, &dst, &none, &w));
    wait_for_all(&p);
    p.d->memory->destroy(p.d, p.a);
    expect_told("a living weight lies in the buffer");
    p.a = NULL;
    p.d->weight->destroy(p.d, w);
    end(&p);
    expect_silence();
}

// ---- a program that is right: the engine -------------------------------------------------------

static void run_engine(const char *device, int32_t expect_ids) {
    const pgd_engine_options o = {.size = sizeof(o),
                                  .model = TINY,
                                  .device = device,
                                  .allow_slow = 1,
                                  .memory = "64MiB",
                                  .block_size = 4,
                                  .max_num_seqs = 3,
                                  .max_num_batched_tokens = 16,
                                  .max_model_len = 64,
                                  .threads = 1,
                                  .weight_cache = "off"};
    static const int32_t ids[] = {5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
    pgd_engine *engine = NULL;
    pgd_request *r[4];
    listen_anew();
    OK(pgd_engine_create(&o, &engine));
    for (int32_t i = 0; i < 4; i++) {
        const pgd_request_desc d = {.size = sizeof(d),
                                    .ids = ids,
                                    .n_ids = 5 + 2 * i,
                                    .max_tokens = 12,
                                    .temperature = i % 2 == 0 ? 0.0f : 0.8f,
                                    .has_seed = 1,
                                    .n = i == 1 ? 2 : 1,
                                    .repetition_penalty = i == 2 ? 1.1f : 1.0f,
                                    .has_logprobs = 1,
                                    .n_logprobs = 2,
                                    .has_prompt_logprobs = i == 3,
                                    .ignore_eos = 1};
        OK(pgd_engine_submit(engine, &d, &r[i]));
    }
    while (pgd_engine_busy(engine) > 0) {
        OK(pgd_engine_step(engine));
    }
    for (int32_t i = 0; i < 4; i++) {
        pgd_output out = {.size = sizeof(out)};
        pgd_request_output(r[i], &out);
        assert_int_equal(out.n_ids, expect_ids);
        pgd_request_release(r[i]);
    }
    pgd_engine_destroy(engine);
    expect_silence();
}

static void test_the_engine_keeps_the_contract(void **state) {
    (void)state;
    run_engine("check(cpu)", 12);
    run_engine("check(null)", 12);
    run_engine("check(minimal)", 12);
    // Failures below the layer too: what was enqueued is waited for.
    run_engine("check(fault{op=attn;fail_nth=9;repeat=on}(cpu))", 12);
    run_engine("check(fault{op=copy;fail_nth=61;repeat=on}(cpu))", 12);
}

static int use_null(void **state) {
    (void)state;
    inner = "null";
    return 0;
}

static int use_cpu(void **state) {
    (void)state;
    inner = "cpu";
    return 0;
}

#define BOTH(test)                               \
    cmocka_unit_test_setup(test, use_null), {    \
        "cpu: " #test, test, use_cpu, NULL, NULL \
    }

int main(void) {
    const struct CMUnitTest tests[] = {
        BOTH(test_a_good_program),
        BOTH(test_destroyed_before_the_wait),
        BOTH(test_read_before_the_wait),
        BOTH(test_changed_before_the_wait),
        BOTH(test_through_host_memory),
        BOTH(test_two_queues),
        BOTH(test_numbers_and_handles),
        BOTH(test_left_behind),
        BOTH(test_only_told),
        cmocka_unit_test_setup(test_arguments, use_null),
        cmocka_unit_test_setup(test_live_rows, use_null),
        cmocka_unit_test_setup(test_weights, use_null),
        cmocka_unit_test(test_the_engine_keeps_the_contract),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
