// Synthetic models: names, shapes against what the model cards say, numbers, memory.
#include "load/test_folder.h"

#include <math.h>

#include "load/plan.h"
#include "load/synthetic.h"
#include "load/vector.h"
#include "os/memory.h"

#define TINY      PGD_TEST_SOURCE_DIR "/tests/golden/models/llama-default"
#define TINY_NAME "synthetic:" TINY

typedef struct opened {
    pgd_load_config *c;
    pgd_load_weights *w;
    pgd_load_plan *p;
} opened;

static void open_model(const char *name, opened *out) {
    *out = (opened){0};
    assert_int_equal(pgd_load_config_read(name, &out->c), PGD_OK);
    assert_int_equal(pgd_load_weights_open(name, &out->w), PGD_OK);
    assert_int_equal(pgd_load_plan_create(out->c, out->w, &out->p), PGD_OK);
}

static void close_model(opened *m) {
    pgd_load_plan_destroy(m->p);
    pgd_load_weights_close(m->w);
    pgd_load_config_free(m->c);
}

// Parameters as the models' own cards count them.
static void test_shapes(void **state) {
    (void)state;
    static const struct {
        const char *name;
        uint64_t params;
        int32_t dtype;
    } rows[] = {
        {"synthetic:qwen2.5-0.5b", 494032768, PGD_BF16},
        {"synthetic:llama-3.2-1b,f32", 1235814400, PGD_F32},
        {"synthetic:llama-3.1-8b,seed=3,f16", 8030261248, PGD_F16},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        opened m;
        open_model(rows[i].name, &m);
        assert_int_equal(m.p->params, rows[i].params);
        assert_int_equal(m.c->dtype, rows[i].dtype);
        assert_int_equal(m.p->matrices[0].dtype, rows[i].dtype);
        close_model(&m);
    }
}

static void test_same_tensors_as_files(void **state) {
    (void)state;
    opened files;
    opened made;
    open_model(TINY, &files);
    open_model(TINY_NAME, &made);
    assert_int_equal(made.p->params, files.p->params);
    assert_int_equal(pgd_load_weights_count(made.w), pgd_load_weights_count(files.w));
    for (uint32_t i = 0; i < pgd_load_weights_count(made.w); i++) {
        const pgd_load_tensor *t = pgd_load_weights_get(made.w, i);
        const pgd_load_tensor *like = pgd_load_weights_find(files.w, t->name.ptr);
        assert_non_null(like);
        assert_int_equal(t->rank, like->rank);
        assert_int_equal(t->shape[0], like->shape[0]);
        assert_int_equal(t->shape[1], like->shape[1]);
    }
    close_model(&made);
    close_model(&files);
}

// All numbers of a matrix as f32; count in *n.
static float *numbers(const opened *m, const char *name, size_t *n) {
    const pgd_load_tensor *t = pgd_load_weights_find(m->w, name);
    assert_non_null(t);
    *n = (size_t)(t->bytes / pgd_dtype_bytes(t->dtype));
    float *out = malloc(*n * sizeof(*out));
    assert_non_null(out);
    pgd_load_weights_take(m->w, t->ptr);
    pgd_load_vector_to_f32(t, out);
    pgd_load_weights_give(m->w, t->ptr, t->bytes);
    return out;
}

static void check_numbers(const char *model) {
    opened m;
    size_t n = 0;
    double sum = 0.0;
    double squares = 0.0;
    open_model(model, &m);
    float *v = numbers(&m, "model.embed_tokens.weight", &n);
    for (size_t i = 0; i < n; i++) {
        assert_true(fabsf(v[i]) <= 0.0348f);
        sum += v[i];
        squares += (double)v[i] * v[i];
    }
    assert_true(fabs(sum / (double)n) < 0.001);
    assert_true(fabs(sqrt(squares / (double)n) - 0.02) < 0.001);
    free(v);
    const pgd_load_vector *norm = pgd_load_plan_vector(m.p, PGD_LOAD_V_FINAL_NORM, -1);
    for (int64_t i = 0; i < norm->n; i++) {
        assert_true(norm->data[i] == 1.0f);
    }
    close_model(&m);
}

static void test_numbers(void **state) {
    (void)state;
    check_numbers(TINY_NAME);
    check_numbers(TINY_NAME ",f32");
    check_numbers(TINY_NAME ",f16");
}

static int differ(const char *a, const char *b, const char *name_a, const char *name_b) {
    opened x;
    opened y;
    size_t n_x = 0;
    size_t n_y = 0;
    open_model(a, &x);
    open_model(b, &y);
    float *u = numbers(&x, name_a, &n_x);
    float *v = numbers(&y, name_b, &n_y);
    assert_int_equal(n_x, n_y);
    int result = memcmp(u, v, n_x * sizeof(*u)) != 0;
    free(u);
    free(v);
    close_model(&x);
    close_model(&y);
    return result;
}

static void test_seed(void **state) {
    (void)state;
    const char *q = "model.layers.0.self_attn.q_proj.weight";
    const char *q_1 = "model.layers.1.self_attn.q_proj.weight";
    assert_int_equal(differ(TINY_NAME, TINY_NAME, q, q), 0);
    assert_int_equal(differ(TINY_NAME, TINY_NAME ",seed=0", q, q), 0);
    assert_int_equal(differ(TINY_NAME, TINY_NAME ",seed=1", q, q), 1);
    assert_int_equal(differ(TINY_NAME, TINY_NAME, q, q_1), 1);
}

// Numbers are gone after give and the same when taken again.
static void test_give(void **state) {
    (void)state;
    opened m;
    open_model(TINY_NAME, &m);
    const pgd_load_matrix *x = &m.p->matrices[0];
    const uint16_t *v = x->parts[0].data.ptr;
    assert_int_equal(pgd_load_plan_take(m.p, x), PGD_OK);
    uint16_t first = v[0];
    assert_int_not_equal(first, 0);
    pgd_load_plan_give(m.p, x);
    if (x->parts[0].data.bytes >= pgd_os_memory_page()) {
        assert_int_equal(v[0], 0);
    }
    assert_int_equal(pgd_load_plan_take(m.p, x), PGD_OK);
    assert_int_equal(v[0], first);
    close_model(&m);
}

static void refuses(const char *name, pgd_status code, const char *piece) {
    pgd_load_config *c = NULL;
    pgd_load_weights *w = NULL;
    assert_int_equal(pgd_load_config_read(name, &c), code);
    test_says(code, piece);
    assert_null(c);
    assert_int_equal(pgd_load_weights_open(name, &w), code);
    assert_null(w);
}

static void test_wrong(void **state) {
    (void)state;
    refuses("synthetic:qwen3-30b-a3b", PGD_UNSUPPORTED, "mixture of experts");
    refuses("synthetic:", PGD_INVALID, "llama-3.2-1b");
    refuses("synthetic:llama", PGD_INVALID, "\"llama\" is unknown");
    refuses("synthetic:llama-3.2-1b,int3", PGD_INVALID, "\"int3\"");
    refuses("synthetic:llama-3.2-1b,seed=x", PGD_INVALID, "seed=N");
    refuses("synthetic:" TINY "/tokenizer.json", PGD_INVALID, "tokenizer.json");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_shapes),  cmocka_unit_test(test_same_tensors_as_files),
        cmocka_unit_test(test_numbers), cmocka_unit_test(test_seed),
        cmocka_unit_test(test_give),    cmocka_unit_test(test_wrong),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
