// embed, gather_rows and joined weights, by hand.
#include "ref/ref_test.h"

static void test_embed(void **state) {
    uint16_t rows[8];
    float out[12];
    block b = {.head = {.n_tokens = 5},
               .token_ids = {12, -1 - 3, 9, 10, -1 - 0, 77},
               .last = {-1, 0, 0, 11, 0, 0}};
    const pgd_batch batch = batch_of(&b);
    const pgd_ref_weight w = {.dtype = PGD_BF16, .n = 4, .k = 2, .rows = rows};
    pgd_embed_args a = {.size = sizeof(a),
                        .rows = PGD_ROWS_TOKENS,
                        .batch = &batch,
                        .w = (pgd_weight *)(uintptr_t)&w,
                        .out = tensor2(PGD_F32, out, 6, 2),
                        .row_start = 9};
    // ids 9 to 12 are rows 0 to 3; last[3] is 11; last[0] is -1, outside
    const int32_t want[5] = {3, 2, 0, 1, -1};
    int t, i;
    (void)state;
    fill(PGD_BF16, rows, 8, 1);
    for (i = 0; i < 2; i++) {
        a.scale = i == 0 ? 0 : 4;
        out[10] = 123;
        assert_int_equal(pgd_ref_embed(NULL, &a), PGD_OK);
        for (t = 0; t < 5; t++) {
            double scale = i == 0 ? 1 : 4;
            double v = want[t] < 0 ? 0 : number(2 * want[t] + 1, 1);
            assert_true(out[2 * t + 1] == (float)(v * scale));
        }
        assert_true(out[10] == 123);
    }
    b.token_ids[2] = 13; // one behind the slice
    assert_int_equal(pgd_ref_embed(NULL, &a), PGD_OK);
    assert_true(out[4] == 0 && out[5] == 0);
    b.token_ids[2] = 8; // one before
    assert_int_equal(pgd_ref_embed(NULL, &a), PGD_OK);
    assert_true(out[4] == 0 && out[5] == 0);
    b.token_ids[2] = -1 - SLOTS;
    assert_int_equal(pgd_ref_embed(NULL, &a), PGD_INVALID);
    b.token_ids[2] = INT32_MIN;
    assert_int_equal(pgd_ref_embed(NULL, &a), PGD_INVALID);
}

static void test_gather(void **state) {
    uint16_t x[4 * 5], out[3 * 3];
    block b = {.head = {.n_tokens = 4, .n_out = 3}, .out_rows = {3, 0, 3}};
    const pgd_batch batch = batch_of(&b);
    pgd_gather_rows_args a = {.size = sizeof(a), .rows = PGD_ROWS_OUTPUTS, .batch = &batch};
    int i;
    (void)state;
    for (i = 0; i < 20; i++) {
        x[i] = (uint16_t)(0x7f80 + i); // NaN payloads come through as they are
    }
    a.x = tensor2(PGD_BF16, x, 4, 3);
    a.x.stride[0] = 5;
    a.out = tensor2(PGD_BF16, out, 3, 3);
    assert_int_equal(pgd_ref_gather_rows(NULL, &a), PGD_OK);
    assert_memory_equal(out, x + 15, 6);
    assert_memory_equal(out + 3, x, 6);
    assert_memory_equal(out + 6, x + 15, 6);
    b.out_rows[1] = 4;
    assert_int_equal(pgd_ref_gather_rows(NULL, &a), PGD_INVALID);
    b.out_rows[1] = -1;
    assert_int_equal(pgd_ref_gather_rows(NULL, &a), PGD_INVALID);
    b.out_rows[1] = 0;
    a.out.dtype = PGD_F16;
    assert_int_equal(pgd_ref_gather_rows(NULL, &a), PGD_INVALID);
    b.head.n_out = 0;
    a.out.dtype = PGD_BF16;
    assert_int_equal(pgd_ref_gather_rows(NULL, &a), PGD_OK);
}

static void test_join(void **state) {
    float one[6] = {0, 1, 2, 3, 4, 5}, two[8] = {10, 11, 12, 13, 14, 15, 16, 17};
    const float want[6] = {3, 4, 11, 12, 15, 16};
    float dst[6];
    struct {
        pgd_weight_part part;
        uint64_t more;
    } parts[2] = {{.part = {.rows = 2,
                            .cols = 3,
                            .row_start = 1,
                            .row_count = 1,
                            .col_count = 2,
                            .data = {.ptr = one, .bytes = sizeof(one)}}},
                  {.part = {.rows = 2,
                            .cols = 4,
                            .row_count = 2,
                            .col_start = 1,
                            .col_count = 2,
                            .data = {.ptr = two, .bytes = sizeof(two)}}}};
    pgd_weight_desc desc = {.size = sizeof(desc),
                            .dtype = PGD_F32,
                            .n_parts = 2,
                            .part_stride = sizeof(parts[0]),
                            .n = 3,
                            .k = 2,
                            .parts = &parts[0].part};
    (void)state;
    assert_int_equal(pgd_ref_weight_join(&desc, dst), PGD_OK);
    assert_memory_equal(dst, want, sizeof(want));
    parts[1].part.data.bytes -= 1;
    assert_int_equal(pgd_ref_weight_join(&desc, dst), PGD_INVALID);
    parts[1].part.data.bytes += 1;
    parts[1].part.row_start = 1;
    assert_int_equal(pgd_ref_weight_join(&desc, dst), PGD_INVALID);
    parts[1].part.row_start = INT64_MAX;
    assert_int_equal(pgd_ref_weight_join(&desc, dst), PGD_INVALID);
    parts[1].part.row_start = 0;
    parts[1].part.col_start = 3;
    assert_int_equal(pgd_ref_weight_join(&desc, dst), PGD_INVALID);
    parts[1].part.col_start = 1;
    desc.n = 4;
    assert_int_equal(pgd_ref_weight_join(&desc, dst), PGD_INVALID);
    desc.n = 3;
    desc.scheme = 13; // no scheme
    assert_int_equal(pgd_ref_weight_join(&desc, dst), PGD_UNSUPPORTED);
    desc.scheme = PGD_SCHEME_PLAIN;
    parts[0].part.data.ptr = NULL;
    parts[0].part.data.file = "x";
    assert_int_equal(pgd_ref_weight_join(&desc, dst), PGD_UNSUPPORTED);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_embed),
        cmocka_unit_test(test_gather),
        cmocka_unit_test(test_join),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
