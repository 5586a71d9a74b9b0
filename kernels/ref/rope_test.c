// rope against the formulas of transformers (rotate_half) and of complex numbers.
#include "ref/ref_test.h"

typedef struct setup {
    block b;
    pgd_batch batch;
    float q[36];
    float k[18];
    float table[24];
    pgd_rope_args a;
} setup;

static void prepare(setup *s) {
    static const int32_t positions[2][3] = {{3, 0, 5}, {1, 4, 2}};
    memset(s, 0, sizeof(*s));
    s->b.head.n_tokens = 3;
    memcpy(s->b.positions[0], positions[0], sizeof(positions[0]));
    memcpy(s->b.positions[1], positions[1], sizeof(positions[1]));
    s->batch = batch_of(&s->b);
    fill(PGD_F32, s->q, 36, 3);
    fill(PGD_F32, s->k, 18, 3);
    fill(PGD_F32, s->table, 24, 4); // any numbers do for cos and sin
    s->a = (pgd_rope_args){.size = sizeof(s->a),
                           .rows = PGD_ROWS_TOKENS,
                           .batch = &s->batch,
                           .q = tensor3(PGD_F32, s->q, 3, 2, 6),
                           .k = tensor3(PGD_F32, s->k, 3, 1, 6),
                           .table = tensor3(PGD_F32, s->table, 6, 2, 2),
                           .rot_dim = 4};
}

static void test_half(void **state) {
    static const double half[36] = {
        -0.40625,  -0.625, -0.5,   1.640625,  1.125,   0.0,       1.34375,  1.484375, -0.75,
        -0.9375,   0.125,  -1.0,   0.765625,  0.1875,  1.8125,    -0.53125, -0.875,   0.875,
        -0.359375, 1.9375, 0.4375, -0.28125,  1.0,     -0.125,    1.796875, -1.65625, -0.078125,
        0.0625,    0.0,    -1.125, -1.484375, 0.09375, -1.015625, -0.6875,  -1.0,     0.75};
    setup s;
    (void)state;
    prepare(&s);
    assert_int_equal(pgd_ref_rope(NULL, &s.a), PGD_OK);
    assert_close(s.q, half, 36);
    assert_close(s.k, half, 6); // same numbers, same position
}

static void test_interleaved(void **state) {
    static const double interleaved[36] = {
        1.34375,   0.8125, -0.84375, -0.546875, 1.125,    0.0,      0.21875, -1.59375, 1.625,
        0.46875,   0.125,  -1.0,     0.984375,  -0.375,   -1.5625,  0.78125, -0.875,   0.875,
        -0.140625, -1.75,  0.1875,   1.03125,   1.0,      -0.125,   1.09375, -1.34375, -1.09375,
        -1.34375,  0.0,    -1.125,   -0.390625, 0.953125, -0.78125, 1.5,     -1.0,     0.75};
    setup s;
    (void)state;
    prepare(&s);
    s.a.style = PGD_ROPE_INTERLEAVED;
    s.a.k.rank = 0;
    assert_int_equal(pgd_ref_rope(NULL, &s.a), PGD_OK);
    assert_close(s.q, interleaved, 36);
    assert_true(s.k[0] == (float)number(0, 3));
}

static void test_sections(void **state) {
    static const double sections[36] = {-0.40625,  -0.859375, -0.5,      0.9375,    1.125,  0.0,
                                        1.34375,   1.25,      -0.75,     -0.234375, 0.125,  -1.0,
                                        0.765625,  -0.421875, 1.8125,    0.28125,   -0.875, 0.875,
                                        -0.359375, -1.546875, 0.4375,    -0.84375,  1.0,    -0.125,
                                        1.796875,  -1.109375, -0.078125, -1.359375, 0.0,    -1.125,
                                        -1.484375, 0.640625,  -1.015625, -0.359375, -1.0,   0.75};
    setup s;
    (void)state;
    prepare(&s);
    s.a.sections[0] = 1;
    s.a.sections[1] = 1;
    assert_int_equal(pgd_ref_rope(NULL, &s.a), PGD_OK);
    assert_close(s.q, sections, 36);
}

static void test_refusals(void **state) {
    setup s;
    (void)state;
    prepare(&s);
    s.b.positions[0][2] = 6; // the table ends at 5
    assert_int_equal(pgd_ref_rope(NULL, &s.a), PGD_INVALID);
    prepare(&s);
    s.a.rot_dim = 3;
    assert_int_equal(pgd_ref_rope(NULL, &s.a), PGD_INVALID);
    s.a.rot_dim = 8;
    assert_int_equal(pgd_ref_rope(NULL, &s.a), PGD_INVALID);
    prepare(&s);
    s.a.sections[0] = 1; // one of two pairs
    assert_int_equal(pgd_ref_rope(NULL, &s.a), PGD_INVALID);
    s.a.sections[2] = 1; // the batch has two axes
    assert_int_equal(pgd_ref_rope(NULL, &s.a), PGD_INVALID);
    prepare(&s);
    s.a.batch = NULL;
    assert_int_equal(pgd_ref_rope(NULL, &s.a), PGD_INVALID);
    assert_true(s.q[0] == (float)number(0, 3));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_half),
        cmocka_unit_test(test_interleaved),
        cmocka_unit_test(test_sections),
        cmocka_unit_test(test_refusals),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
