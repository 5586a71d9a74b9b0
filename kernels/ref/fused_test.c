// qkv_rope_write and head_sample: the composition by hand, and refusals that leave no trace.
#include "ref/ref_test.h"

// One token, 2 heads on 1 kv head of 2 dims; W makes q = (x0, x1, x1, x0), k = 2 (x0, x1),
// v = (x0 + x1, 1 by the bias).
typedef struct setup {
    block b;
    pgd_batch batch;
    float x[2], norm_w[2], normed[2], rows[16], bias[8], qkv[8], table[2 * 2], q_norm[2], k_norm[2];
    float mem[2 * 2 * 4];
    pgd_ref_weight w;
    pgd_ref_kv kv;
    pgd_qkv_rope_write_args a;
} setup;

static void prepare(setup *s) {
    static const float rows[16] = {1, 0, 0, 1, 0, 1, 1, 0, 2, 0, 0, 2, 1, 1, 0, 0};
    memset(s, 0, sizeof(*s));
    s->b.head.n_tokens = 1;
    s->b.positions[0][0] = 1;
    s->b.slots[0] = 3; // block 1, token 1
    s->batch = batch_of(&s->b);
    memcpy(s->rows, rows, sizeof(rows));
    s->x[0] = 3, s->x[1] = 4;
    s->bias[7] = 1;
    s->table[0] = 1, s->table[1] = 0; // position 0
    s->table[2] = 0, s->table[3] = 1; // position 1: a quarter turn
    s->w = (pgd_ref_weight){.dtype = PGD_F32, .n = 8, .k = 2, .rows = s->rows};
    s->kv = (pgd_ref_kv){.desc = {.layers = 1,
                                  .heads = 1,
                                  .k_dim = 2,
                                  .v_dim = 2,
                                  .k_dtype = PGD_F32,
                                  .v_dtype = PGD_F32,
                                  .block_tokens = 2},
                         .n_blocks = 2,
                         .mem = (unsigned char *)s->mem};
    s->a = (pgd_qkv_rope_write_args){.size = sizeof(s->a),
                                     .rows = PGD_ROWS_TOKENS,
                                     .batch = &s->batch,
                                     .w = (pgd_weight *)&s->w,
                                     .kv = (pgd_kv *)&s->kv,
                                     .x = tensor2(PGD_F32, s->x, 1, 2),
                                     .bias = tensor1(PGD_F32, s->bias, 8),
                                     .qkv = tensor2(PGD_F32, s->qkv, 1, 8),
                                     .q = tensor3(PGD_F32, s->qkv, 1, 2, 2),
                                     .k = tensor3(PGD_F32, s->qkv + 4, 1, 1, 2),
                                     .v = tensor3(PGD_F32, s->qkv + 6, 1, 1, 2),
                                     .table = tensor3(PGD_F32, s->table, 2, 1, 2),
                                     .rot_dim = 2};
    s->a.q.stride[0] = s->a.k.stride[0] = s->a.v.stride[0] = 8;
}

static void test_qkv(void **state) {
    const float q[4] = {-4, 3, -3, 4}, k[2] = {-8, 6}, v[2] = {7, 1};
    setup s;
    (void)state;
    prepare(&s);
    assert_int_equal(pgd_ref_qkv_rope_write(NULL, &s.a), PGD_OK);
    assert_memory_equal(s.qkv, q, sizeof(q));
    assert_memory_equal(s.mem + 8 + 2, k, sizeof(k));     // block 1, k of token 1
    assert_memory_equal(s.mem + 8 + 4 + 2, v, sizeof(v)); // its v
    assert_true(s.mem[0] == 0 && s.mem[8] == 0);
}

// With all norms: (3, 4) has rms 5 / sqrt 2, so has q after it; k's weights are 1 and 10.
static void test_norms(void **state) {
    const double r = sqrt(2.0);
    setup s;
    (void)state;
    prepare(&s);
    s.norm_w[0] = s.norm_w[1] = 1;
    s.q_norm[0] = s.q_norm[1] = 1;
    s.k_norm[0] = 1, s.k_norm[1] = 10;
    s.a.norm_w = tensor1(PGD_F32, s.norm_w, 2);
    s.a.normed = tensor2(PGD_F32, s.normed, 1, 2);
    s.a.q_norm = tensor1(PGD_F32, s.q_norm, 2);
    s.a.k_norm = tensor1(PGD_F32, s.k_norm, 2);
    assert_int_equal(pgd_ref_qkv_rope_write(NULL, &s.a), PGD_OK);
    assert_float_equal(s.qkv[0], -0.8 * r, 1e-6);
    assert_float_equal(s.qkv[3], 0.8 * r, 1e-6);
    assert_float_equal(s.mem[8 + 2], -8 * r, 1e-5);
    assert_float_equal(s.mem[8 + 3], 0.6 * r, 1e-6);
    assert_float_equal(s.mem[8 + 4 + 2], 1.4 * r, 1e-6); // v is not normed
}

static void test_qkv_refusals(void **state) {
    setup s;
    (void)state;
    prepare(&s);
    s.b.slots[0] = 4; // refused by the last part
    assert_int_equal(pgd_ref_qkv_rope_write(NULL, &s.a), PGD_INVALID);
    assert_true(s.qkv[0] == 0 && s.qkv[6] == 0);
    prepare(&s);
    s.b.head.n_tokens = 0;
    assert_int_equal(pgd_ref_qkv_rope_write(NULL, &s.a), PGD_OK);
    assert_true(s.qkv[0] == 0);
}

static void test_head(void **state) {
    float x[4] = {3, 4, 4, 3}, norm_w[2] = {1, 1}, normed[4], logits[6] = {0};
    float rows[6] = {1, 0, 0, 1, -1, -1};
    float logprobs[2] = {7, 7};
    int32_t ids[2] = {9, 9}, top_ids[2] = {7, 7}, ranks[2] = {7, 7}, counts[3] = {0};
    block b = {.head = {.n_out = 2}, .out_slot = {5, 2}};
    const pgd_batch batch = batch_of(&b);
    pgd_ref_weight w = {.dtype = PGD_F32, .n = 3, .k = 2, .rows = rows};
    pgd_head_sample_args a = {.size = sizeof(a),
                              .rows = PGD_ROWS_OUTPUTS,
                              .batch = &batch,
                              .w = (pgd_weight *)&w,
                              .x = tensor2(PGD_F32, x, 2, 2),
                              .norm_w = tensor1(PGD_F32, norm_w, 2),
                              .normed = tensor2(PGD_F32, normed, 2, 2),
                              .logits = tensor2(PGD_F32, logits, 2, 3),
                              .ids = tensor1(PGD_I32, ids, 2)};
    (void)state;
    b.sampling[0].flags = PGD_SAMPLE_GREEDY;
    b.sampling[1].flags = PGD_SAMPLE_GREEDY;
    b.sampling[1].flags |= PGD_SAMPLE_LOGPROBS;
    assert_int_equal(pgd_ref_head_sample(NULL, &a), PGD_UNSUPPORTED);
    assert_true(logits[0] == 0 && ids[0] == 9);
    b.sampling[1].flags = PGD_SAMPLE_GREEDY;
    assert_int_equal(pgd_ref_head_sample(NULL, &a), PGD_OK);
    assert_float_equal(logits[0], 0.6 * sqrt(2.0), 1e-6);
    assert_float_equal(logits[5], -1.4 * sqrt(2.0), 1e-6);
    assert_int_equal(ids[0], 1);
    assert_int_equal(ids[1], 0);
    assert_int_equal(b.sampled[0], 1);
    assert_int_equal(b.last[5], 1);
    assert_int_equal(b.last[2], 0);
    b.sampling[1].flags |= PGD_SAMPLE_LOGPROBS;
    b.sampling[1].state_row = 1;
    a.logprobs = tensor2(PGD_F32, logprobs, 2, 1);
    a.top_ids = tensor2(PGD_I32, top_ids, 2, 1);
    a.ranks = tensor1(PGD_I32, ranks, 2);
    a.state = tensor2(PGD_I32, counts, 1, 3);
    assert_int_equal(pgd_ref_head_sample(NULL, &a), PGD_OK);
    assert_true(logprobs[0] == 7 && top_ids[0] == 7 && ranks[0] == 7); // not asked for
    assert_int_equal(top_ids[1], 0);
    assert_int_equal(ranks[1], 1);
    assert_int_equal(counts[0], 1);
    // logits 0.8, 0.6 and -1.4 times the square root of 2
    assert_float_equal(logprobs[1], -log(1 + exp(-0.2 * sqrt(2.0)) + exp(-2.2 * sqrt(2.0))), 1e-6);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_qkv),
        cmocka_unit_test(test_norms),
        cmocka_unit_test(test_qkv_refusals),
        cmocka_unit_test(test_head),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
