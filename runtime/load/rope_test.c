// Rope: frequencies and attention factors against those of transformers (tests/golden/rope, made
// by tools/golden/rope.py); the table against cos and sin of the C library.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/fail.h"
#include "base/json.h"
#include "base/mem.h"
#include "load/config.h"

#define GOLDEN PGD_TEST_SOURCE_DIR "/tests/golden/rope/rope.json"

// transformers computes in float32; a case may be this far from double, relatively.
#define TOLERANCE 2e-6

static pgd_load_config *config_of(const pgd_json *v) {
    pgd_text text = {0};
    pgd_load_config *c = NULL;
    assert_int_equal(pgd_json_add(&text, v), PGD_OK);
    pgd_status status = pgd_load_config_parse(text.ptr, text.len, NULL, 0, "golden", &c);
    if (status != PGD_OK) {
        fail_msg("%s", pgd_fail_text(status));
    }
    pgd_text_free(&text);
    return c;
}

static void check_case(const pgd_json *v) {
    pgd_str name = {0};
    int64_t max_pos = 0;
    double wanted_factor = 0;
    double factor = 0;
    const pgd_json *wanted = pgd_json_get(v, "inv_freq");
    assert_true(pgd_json_to_str(pgd_json_get(v, "name"), &name));
    assert_true(pgd_json_to_i64(pgd_json_get(v, "max_pos"), &max_pos));
    assert_true(pgd_json_to_f64(pgd_json_get(v, "attention_factor"), &wanted_factor));
    pgd_load_config *c = config_of(pgd_json_get(v, "config"));
    assert_int_equal(wanted->n, c->rope.rot_dim / 2);
    double *inv_freq = malloc(wanted->n * sizeof(double));
    assert_non_null(inv_freq);
    assert_int_equal(pgd_load_rope_frequencies(c, (int32_t)max_pos, inv_freq, &factor), PGD_OK);
    if (fabs(factor - wanted_factor) > 1e-12 * wanted_factor) {
        fail_msg("%.*s: attention factor %.17g, not %.17g", (int)name.len, name.ptr, factor,
                 wanted_factor);
    }
    for (uint32_t i = 0; i < wanted->n; i++) {
        double x = 0;
        assert_true(pgd_json_to_f64(&wanted->items[i], &x));
        if (!(fabs(inv_freq[i] - x) <= TOLERANCE * x)) {
            fail_msg("%.*s: pair %u: %.9g, not %.9g", (int)name.len, name.ptr, (unsigned)i,
                     inv_freq[i], x);
        }
    }
    free(inv_freq);
    pgd_load_config_free(c);
}

static void golden_frequencies(void **state) {
    (void)state;
    pgd_json_doc *doc = NULL;
    uint64_t live = pgd_mem_live();
    assert_int_equal(pgd_json_read_file(GOLDEN, &doc), PGD_OK);
    const pgd_json *cases = pgd_json_get(pgd_json_root(doc), "cases");
    assert_true(pgd_json_is(cases, PGD_JSON_ARRAY));
    assert_true(cases->n >= 20);
    int32_t kinds = 0;
    for (uint32_t i = 0; i < cases->n; i++) {
        check_case(&cases->items[i]);
        pgd_load_config *c = config_of(pgd_json_get(&cases->items[i], "config"));
        kinds |= 1 << c->rope.kind;
        pgd_load_config_free(c);
    }
    assert_int_equal(kinds, 0x3f); // all six
    pgd_json_free(doc);
    assert_int_equal(pgd_mem_live(), live);
}

// A small model whose table is made for n positions.
static pgd_load_config *small_config(const char *rope_scaling) {
    char text[1024];
    pgd_load_config *c = NULL;
    int n = snprintf(text, sizeof(text),
                     "{\"architectures\":[\"LlamaForCausalLM\"],\"hidden_size\":20,"
                     "\"num_hidden_layers\":1,\"num_attention_heads\":2,\"intermediate_size\":8,"
                     "\"vocab_size\":9,\"max_position_embeddings\":64,\"rope_scaling\":%s}",
                     rope_scaling);
    assert_true(n > 0 && (size_t)n < sizeof(text));
    assert_int_equal(pgd_load_config_parse(text, (size_t)n, NULL, 0, "m", &c), PGD_OK);
    return c;
}

static void check_table(const pgd_load_config *c, int32_t max_pos) {
    double inv_freq[5];
    double factor = 0;
    int64_t n = c->rope.rot_dim / 2;
    assert_int_equal(n, 5);
    float *table = malloc((size_t)max_pos * 5 * 2 * sizeof(float));
    assert_non_null(table);
    assert_int_equal(pgd_load_rope_table(c, max_pos, table), PGD_OK);
    assert_int_equal(pgd_load_rope_frequencies(c, max_pos, inv_freq, &factor), PGD_OK);
    for (int64_t p = 0; p < max_pos; p++) {
        for (int64_t i = 0; i < n; i++) {
            double x = factor * cos((double)p * inv_freq[i]);
            double y = factor * sin((double)p * inv_freq[i]);
            // One rounding to float of numbers of at most `factor`.
            assert_true(fabs(table[(p * n + i) * 2] - x) <= 0.6e-7 * factor);
            assert_true(fabs(table[(p * n + i) * 2 + 1] - y) <= 0.6e-7 * factor);
        }
    }
    for (int64_t i = 0; i < n; i++) {
        assert_true(table[2 * i] == (float)factor);
        assert_true(table[2 * i + 1] == 0.0f);
    }
    free(table);
}

static void table_is_cos_and_sin(void **state) {
    (void)state;
    static const int32_t lengths[] = {1, 2, 63, 64, 65, 128, 1000, 40961};
    static const char *const kinds[] = {
        "null",
        "{\"type\":\"dynamic\",\"factor\":2}",
        "{\"type\":\"yarn\",\"factor\":4,\"original_max_position_embeddings\":32}",
        ("{\"type\":\"su\",\"short_factor\":[1,1,1,1.5,2],\"long_factor\":[1,2,3,4,5],"
         "\"original_max_position_embeddings\":64,\"factor\":8}"),
    };
    uint64_t live = pgd_mem_live();
    for (size_t k = 0; k < sizeof(kinds) / sizeof(kinds[0]); k++) {
        pgd_load_config *c = small_config(kinds[k]);
        for (size_t i = 0; i < sizeof(lengths) / sizeof(lengths[0]); i++) {
            check_table(c, lengths[i]);
        }
        pgd_load_config_free(c);
    }
    assert_int_equal(pgd_mem_live(), live);
}

static void policy(void **state) {
    (void)state;
    double short_freq[5];
    double long_freq[5];
    double a = 0;
    pgd_load_config *c = small_config(
        "{\"type\":\"longrope\",\"short_factor\":[1,1,1,1,1],\"long_factor\":[2,2,2,2,2],"
        "\"original_max_position_embeddings\":64}");
    assert_int_equal(pgd_load_rope_frequencies(c, 64, short_freq, &a), PGD_OK);
    assert_int_equal(pgd_load_rope_frequencies(c, 65, long_freq, &a), PGD_OK);
    for (int i = 0; i < 5; i++) {
        assert_true(short_freq[i] == 2 * long_freq[i]);
    }
    pgd_load_config_free(c);
    c = small_config("{\"type\":\"dynamic\",\"factor\":2}");
    assert_int_equal(pgd_load_rope_frequencies(c, 1, short_freq, &a), PGD_OK);
    assert_int_equal(pgd_load_rope_frequencies(c, 64, long_freq, &a), PGD_OK);
    assert_memory_equal(short_freq, long_freq, sizeof(short_freq));
    assert_int_equal(pgd_load_rope_frequencies(c, 65, long_freq, &a), PGD_OK);
    assert_true(long_freq[1] < short_freq[1]);
    pgd_load_config_free(c);
}

static void refusals(void **state) {
    (void)state;
    float out[10];
    pgd_load_config *c = small_config("null");
    uint64_t live = pgd_mem_live();
    assert_int_equal(pgd_load_rope_table(c, 0, out), PGD_INVALID);
    assert_int_equal(pgd_load_rope_table(c, -1, out), PGD_INVALID);
    assert_int_equal(pgd_load_rope_table(c, PGD_LOAD_MAX_POSITION + 1, out), PGD_INVALID);
    pgd_mem_fail_nth(1);
    assert_int_equal(pgd_load_rope_table(c, 1, out), PGD_OUT_OF_MEMORY);
    assert_int_equal(pgd_load_rope_table(c, 1, out), PGD_OK);
    assert_int_equal(pgd_mem_live(), live);
    pgd_load_config_free(c);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(golden_frequencies),
        cmocka_unit_test(table_is_cos_and_sin),
        cmocka_unit_test(policy),
        cmocka_unit_test(refusals),
    };
    return cmocka_run_group_tests_name("load.rope", tests, NULL, NULL);
}
