// Products by a vendor's library: a driver that runs the portable kernels as plain C and multiplies
// for itself, so that both ways are compared bit by bit. The numbers are small whole ones, whose
// sums are exact in any order.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "gpu.h"
#include "portable/emulated.h"
#include "test_host.h"
#include "test_product.h"

enum { CAP = 6, LIVE = 5 };

// What the library is to do, and what it did.
static int32_t refuses;  // asked, it takes nothing
static int32_t fails_at; // its n-th product fails, 0: none
static int32_t n_asked;
static int32_t n_made;
static int64_t columns_made;
static int32_t n_graph_launches;

// ---- a host and a driver -----------------------------------------------------------------------

static const pgd_host host = {
    .size = sizeof(host), .fail = host_fail, .alloc = host_alloc, .free = host_free};

static pgd_status create(const pgd_host *h, void *device, uint64_t bytes, int32_t place,
                         void **out) {
    (void)h;
    (void)device;
    (void)place;
    *out = aligned_alloc(256, (size_t)bytes);
    memset(*out, 0, (size_t)bytes);
    return PGD_OK;
}

static void destroy(const pgd_host *h, void *device, void *memory) {
    (void)h;
    (void)device;
    free(memory);
}

static int32_t is_captured;

static pgd_status launch(const pgd_host *h, void *queue, const gpu_launch *l) {
    k_u8 *memories[GPU_MEMORIES];
    (void)h;
    (void)queue;
    for (int i = 0; i < GPU_MEMORIES; i++) {
        memories[i] = l->memories[i];
    }
    assert_in_range(l->kernel, 0, PGD_PORTABLE_COUNT - 1);
    return is_captured || TEST_EMULATED(l, memories) == 0 ? PGD_OK : PGD_INTERNAL;
}

static float bf16_at(const gpu_product_matrix *m, int64_t row, int64_t i) {
    uint16_t half = 0;
    float value = 0;
    memcpy(&half, (const char *)m->memory + m->offset + 2 * (row * m->stride + i), sizeof(half));
    const uint32_t bits = (uint32_t)half << 16;
    memcpy(&value, &bits, sizeof(value));
    return value;
}

static char *f32_at(const gpu_product_matrix *m, int64_t row, int64_t i) {
    return (char *)m->memory + m->offset + 4 * (row * m->stride + i);
}

static void multiply(const gpu_product_call *c) {
    for (int64_t m = 0; m < c->m; m++) {
        for (int64_t n = 0; n < c->n; n++) {
            float sum = 0;
            float old = 0;
            for (int64_t k = 0; k < c->k; k++) {
                sum += bf16_at(&c->x, m, k) * bf16_at(&c->w, n, k);
            }
            if (c->add.memory != NULL) {
                memcpy(&old, f32_at(&c->add, m, n), sizeof(old));
                sum += old;
            }
            memcpy(f32_at(&c->y, m, n), &sum, sizeof(sum));
        }
    }
}

static pgd_status product(const pgd_host *h, void *queue, const gpu_product_call *c,
                          bool only_asks) {
    (void)h;
    (void)queue;
    assert_int_equal(is_captured, 0);
    assert_int_equal(c->in, PGD_BF16);
    assert_int_equal(c->out, PGD_F32);
    assert_true(c->scratch_bytes > 0 && c->scratch_offset % 256 == 0);
    if (only_asks) {
        n_asked++;
        return refuses ? PGD_UNSUPPORTED : PGD_OK;
    }
    if (++n_made == fails_at) {
        return PGD_UNSUPPORTED;
    }
    columns_made += c->n;
    multiply(c);
    return PGD_OK;
}

static pgd_status graph_begin(const pgd_host *h, void *queue) {
    (void)h;
    (void)queue;
    is_captured = 1;
    return PGD_OK;
}

static pgd_status graph_end(const pgd_host *h, void *queue, void **out) {
    (void)h;
    is_captured = 0;
    *out = queue;
    return PGD_OK;
}

static pgd_status graph_launch(const pgd_host *h, void *queue, void *graph) {
    (void)h;
    (void)queue;
    (void)graph;
    n_graph_launches++;
    return PGD_OK;
}

static void graph_destroy(const pgd_host *h, void *device, void *graph) {
    (void)h;
    (void)device;
    (void)graph;
}

static const gpu_driver driver = {.kind = "test",
                                  .create = create,
                                  .destroy = destroy,
                                  .queue_create = host_queue_create,
                                  .queue_destroy = host_queue_destroy,
                                  .launch = launch,
                                  .product = product,
                                  .graph_begin = graph_begin,
                                  .graph_end = graph_end,
                                  .graph_launch = graph_launch,
                                  .graph_destroy = graph_destroy};

// ---- a device with one product -----------------------------------------------------------------

typedef product_setup setup;

// Whole numbers from -1 to 1, as bf16.
static void fill(char *to, int64_t n) {
    static const uint16_t values[] = {0xbf80, 0x0000, 0x3f80, 0x3f80, 0xbf80};
    static uint32_t state = 1;
    for (int64_t i = 0; i < n; i++) {
        state = state * 1664525u + 1013904223u;
        memcpy(to + 2 * i, &values[(state >> 16) % 5], 2);
    }
}

static void open_setup(setup *s, uint32_t uses, int64_t n, int64_t k) {
    const pgd_weight_desc desc = {
        .size = sizeof(desc), .uses = uses, .dtype = PGD_BF16, .n = n, .k = k, .max_rows = CAP};
    const int64_t y_n = (uses & PGD_USE_GATE_UP) != 0 ? n / 2 : n;
    memset(s, 0, sizeof(*s));
    s->self = (gpu_self){.host = &host,
                         .driver = &driver,
                         .library = "testlt",
                         .library_rows = 3,
                         .library_columns = 64,
                         .library_part = 32 << 10};
    assert_int_equal(product_open(s, &desc, PGD_BF16, y_n), PGD_OK);
    fill((char *)s->memory->memory + PRODUCT_WEIGHT, (int64_t)s->w->bytes / 2);
    fill((char *)s->memory->memory + PRODUCT_X, CAP * k);
    s->head.n_tokens = LIVE;
    memcpy(s->memory->memory, &s->head, sizeof(s->head));
    refuses = fails_at = n_asked = n_made = n_graph_launches = 0;
    columns_made = 0;
}

static pgd_status run(setup *s) {
    const pgd_gate_up_args gated = {.size = sizeof(gated),
                                    .rows = PGD_ROWS_TOKENS,
                                    .batch = &s->batch,
                                    .w = s->w,
                                    .x = s->args.x,
                                    .out = s->args.y,
                                    .bias = s->args.bias};
    return s->args.y.shape[1] != s->w->desc.n ? gpu_op_gate_up(&s->x, &gated)
                                              : gpu_op_gemm(&s->x, &s->args);
}

// y with 7 in every element before, by the kernels and as it comes; all CAP rows are compared.
static pgd_status both_ways(setup *s) {
    const int64_t n = CAP * s->args.y.shape[1];
    const size_t bytes = (size_t)n * sizeof(float);
    float *y = (float *)(void *)((char *)s->memory->memory + PRODUCT_Y);
    float *want = malloc(bytes);
    for (int i = 0; i < 2; i++) {
        for (int64_t j = 0; j < n; j++) {
            y[j] = 7.0f;
        }
        s->self.library = i == 0 ? NULL : "testlt";
        const pgd_status code = run(s);
        if (code != PGD_OK) {
            free(want);
            return code;
        }
        if (i == 0) {
            assert_int_equal(n_asked + n_made, 0);
            memcpy(want, y, bytes);
        }
    }
    assert_memory_equal(y, want, bytes);
    free(want);
    return PGD_OK;
}

// ---- tests -------------------------------------------------------------------------------------

static void test_a_product_in_parts(void **state) {
    (void)state;
    setup s;
    open_setup(&s, PGD_USE_GEMM, 300, 64); // 32 KiB are 256 columns
    assert_int_equal(both_ways(&s), PGD_OK);
    assert_int_equal(n_asked, 2);
    assert_int_equal(n_made, 2);
    assert_int_equal(columns_made, 300);
    product_close(&s);
}

static void test_the_residual_is_added_once(void **state) {
    (void)state;
    setup s;
    open_setup(&s, PGD_USE_GEMM, 300, 64);
    s.args.aux_kind = PGD_AUX_ADD;
    s.args.aux = s.args.y;
    assert_int_equal(both_ways(&s), PGD_OK);
    assert_int_equal(n_made, 2);
    refuses = 1; // the second shape alone would do too
    n_asked = n_made = 0;
    assert_int_equal(both_ways(&s), PGD_OK);
    assert_int_equal(n_made, 0);
    product_close(&s);
}

static void test_both_halves(void **state) {
    (void)state;
    setup s;
    open_setup(&s, PGD_USE_GATE_UP, 2 * 150, 64); // parts of 128 columns of y
    assert_int_equal(both_ways(&s), PGD_OK);
    assert_int_equal(n_made, 2);
    assert_int_equal(columns_made, 2 * 150);
    product_close(&s);
}

static void test_a_failure_at_first_is_made_good(void **state) {
    (void)state;
    setup s;
    open_setup(&s, PGD_USE_GEMM, 100, 64);
    s.args.aux_kind = PGD_AUX_ADD;
    s.args.aux = s.args.y;
    fails_at = 1;
    assert_int_equal(both_ways(&s), PGD_OK);
    assert_int_equal(n_made, 1);
    product_close(&s);
}

static void test_a_failure_in_the_middle_is_told(void **state) {
    (void)state;
    setup s;
    open_setup(&s, PGD_USE_GEMM, 300, 64);
    fails_at = 2;
    assert_int_equal(both_ways(&s), PGD_INTERNAL);
    assert_int_equal(atomic_load(&s.q->fault), PGD_INTERNAL);
    product_close(&s);
}

static void test_what_is_not_the_librarys(void **state) {
    (void)state;
    setup s;
    open_setup(&s, PGD_USE_GEMM, 100, 64);
    s.head.n_tokens = 2; // few rows
    memcpy(s.memory->memory, &s.head, sizeof(s.head));
    assert_int_equal(both_ways(&s), PGD_OK);
    s.head.n_tokens = LIVE;
    memcpy(s.memory->memory, &s.head, sizeof(s.head));
    s.args.bias = product_tensor(s.memory, PRODUCT_BIAS, PGD_F32, 1, 100);
    s.args.bias.rank = 1;
    s.args.bias.shape[0] = 100;
    s.args.bias.stride[0] = 1;
    assert_int_equal(both_ways(&s), PGD_OK);
    s.args.bias = (pgd_tensor){0};
    s.args.act = PGD_ACT_SILU;
    assert_int_equal(both_ways(&s), PGD_OK);
    s.args.act = 0;
    s.args.alpha = 0.5f;
    assert_int_equal(both_ways(&s), PGD_OK);
    assert_int_equal(n_asked + n_made, 0);
    s.args.alpha = 1.0f; // and the same without all that is
    assert_int_equal(both_ways(&s), PGD_OK);
    assert_int_equal(n_made, 1);
    product_close(&s);
}

static void test_scratch_is_planned(void **state) {
    (void)state;
    setup s;
    open_setup(&s, PGD_USE_GEMM, 300, 64);
    s.x.scratch.bytes = gpu_product_scratch(&s.d, &s.w->desc, &s.args.x);
    assert_int_equal(run(&s), PGD_OK);
    s.x.scratch.bytes--;
    assert_int_equal(run(&s), PGD_INVALID);
    product_close(&s);
}

// A driver's graph has the own kernels for any count; steps for the library go through the list.
static void test_recorded_steps(void **state) {
    (void)state;
    const pgd_graph_desc desc = {.size = sizeof(desc)};
    pgd_graph *g = NULL;
    setup s;
    open_setup(&s, PGD_USE_GEMM, 100, 64);
    assert_int_equal(gpu_graph_table.begin(&s.d, s.q, &desc), PGD_OK);
    assert_int_equal(run(&s), PGD_OK);
    assert_int_equal(gpu_graph_table.end(&s.d, s.q, &g), PGD_OK);
    assert_int_equal(n_asked + n_made, 0);
    s.head.n_tokens = 2;
    assert_int_equal(gpu_graph_table.launch(&s.d, s.q, g), PGD_OK);
    assert_int_equal(n_graph_launches, 1);
    assert_int_equal(n_made, 0);
    s.head.n_tokens = LIVE;
    assert_int_equal(gpu_graph_table.launch(&s.d, s.q, g), PGD_OK);
    assert_int_equal(n_graph_launches, 1);
    assert_int_equal(n_made, 1);
    gpu_graph_table.destroy(&s.d, g);
    product_close(&s);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_product_in_parts),
        cmocka_unit_test(test_the_residual_is_added_once),
        cmocka_unit_test(test_both_halves),
        cmocka_unit_test(test_a_failure_at_first_is_made_good),
        cmocka_unit_test(test_a_failure_in_the_middle_is_told),
        cmocka_unit_test(test_what_is_not_the_librarys),
        cmocka_unit_test(test_scratch_is_planned),
        cmocka_unit_test(test_recorded_steps),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
