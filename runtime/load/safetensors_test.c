// The safetensors reader: good files, every kind of damage, cuts at each byte, flipped bits.
#include "load/test_folder.h"

#include "base/mem.h"
#include "base/rng.h"
#include "load/safetensors.h"

#define T(dtype, shape, from, to) \
    "{\"dtype\":\"" dtype "\",\"shape\":" shape ",\"data_offsets\":[" #from "," #to "]}"

static pgd_status parse(const char *header, size_t n_data, pgd_load_safetensors *out) {
    size_t n = 0;
    uint8_t *bytes = test_safetensors(header, n_data, &n);
    pgd_status status = pgd_load_safetensors_parse(bytes, n, "f", out);
    free(bytes); // nothing below reads the data
    return status;
}

static void good_files(void **state) {
    (void)state;
    static const struct {
        const char *header;
        size_t n_data;
        uint32_t n;
    } rows[] = {
        {"{}", 0, 0},
        {"{}      ", 0, 0},
        {"{\"__metadata__\":{\"format\":\"pt\"}}", 0, 0},
        {"{\"a\":" T("F32", "[2,3]", 0, 24) "}   ", 24, 1},
        {"{\"a\":" T("F32", "[]", 0, 4) "}", 4, 1},
        {"{\"a\":" T("F32", "[0,7]", 0, 0) "}", 0, 1},
        {"{\"b\":" T("BF16", "[3]", 4, 10) ",\"a\":" T("F16", "[1,2]", 0, 4) "}", 10, 2},
        {"{\"b\":" T("U8", "[3]", 0, 3) ",\"z\":" T("I64", "[0]", 3, 3) ",\"a\":" T("F32", "[1]", 3,
                                                                                    7) "}",
         7, 3},
        {"{\"a\":" T("F4", "[4,2]", 0, 4) "}", 4, 1},
        {"{\"a\":" T("F6_E2M3", "[4]", 0, 3) "}", 3, 1},
        {"{\"a\":" T("F8_E4M3", "[1,1,1,1,1,2]", 0, 2) "}", 2, 1},
        {"{\"\":" T("BOOL", "[1]", 0, 1) ",\"\\u0000\":" T("I8", "[1]", 1, 2) "}", 2, 2},
        {"{\"a\":{\"more\":[1,{}],\"shape\":[1],\"dtype\":\"C64\",\"data_offsets\":[0,8]}}", 8, 1},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        pgd_load_safetensors s;
        pgd_status status = parse(rows[i].header, rows[i].n_data, &s);
        if (status != PGD_OK) {
            fail_msg("%s: %s", rows[i].header, pgd_fail_text(status));
        }
        assert_int_equal(s.n, rows[i].n);
        assert_int_equal(s.data_bytes, rows[i].n_data);
        pgd_load_safetensors_free(&s);
    }
}

static void tensors_are_found(void **state) {
    (void)state;
    pgd_load_safetensors s;
    size_t n = 0;
    uint8_t *bytes =
        test_safetensors("{\"b\":" T("BF16", "[3]", 4, 10) ",\"a\":" T(
                             "F16", "[1,2]", 0, 4) ",\"ab\":" T("I64", "[]", 10, 18) "}",
                         18, &n);
    const uint8_t *data = bytes + n - 18;
    assert_int_equal(pgd_load_safetensors_parse(bytes, n, "file", &s), PGD_OK);
    const pgd_load_tensor *a = pgd_load_safetensors_find(&s, PGD_STR("a"));
    const pgd_load_tensor *b = pgd_load_safetensors_find(&s, PGD_STR("b"));
    const pgd_load_tensor *ab = pgd_load_safetensors_find(&s, PGD_STR("ab"));
    assert_null(pgd_load_safetensors_find(&s, PGD_STR("")));
    assert_null(pgd_load_safetensors_find(&s, PGD_STR("aa")));
    assert_null(pgd_load_safetensors_find(&s, PGD_STR("c")));
    assert_int_equal(a->dtype, PGD_F16);
    assert_int_equal(a->rank, 2);
    assert_int_equal(a->shape[0], 1);
    assert_int_equal(a->shape[1], 2);
    assert_ptr_equal(a->ptr, data);
    assert_int_equal(a->bytes, 4);
    assert_string_equal(a->file, "file");
    assert_int_equal(b->dtype, PGD_BF16);
    assert_ptr_equal(b->ptr, data + 4);
    assert_int_equal(b->bytes, 6);
    assert_int_equal(ab->dtype, PGD_DTYPE_NONE);
    assert_string_equal(ab->stored, "I64");
    assert_int_equal(ab->rank, 0);
    pgd_load_safetensors_free(&s);
    free(bytes);
}

// Header, bytes of data, and a piece of the sentence.
static const struct {
    const char *header;
    size_t n_data;
    const char *says;
} damaged[] = {
    {"", 0, "does not begin with {"},
    {" {}", 0, "does not begin with {"},
    {"[]", 0, "does not begin with {"},
    {"{", 0, "no JSON"},
    {"{}x", 0, "no JSON"},
    {"{\"a\":}", 0, "no JSON"},
    {"{\"\xff\":1}", 0, "no JSON"},
    {"{\"a\":[[[[[[[[[[[[[[[[1]]]]]]]]]]]]]]]]}", 0, "no JSON"},
    {"{}", 1, "end at byte 0 of 1"},
    {"{\"a\":1}", 0, "no object"},
    {"{\"a\":null}", 0, "no object"},
    {"{\"a\":{}}", 0, "lacks dtype"},
    {"{\"a\":{\"dtype\":3,\"shape\":[],\"data_offsets\":[0,4]}}", 4, "lacks dtype"},
    {"{\"a\":{\"dtype\":\"F32\",\"shape\":{},\"data_offsets\":[0,4]}}", 4, "lacks dtype"},
    {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":4}}", 4, "lacks dtype"},
    {"{\"a\":{\"dtype\":\"F32\",\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]}}", 4,
     "appears twice"},
    {"{\"a\":" T("F33", "[1]", 0, 4) "}", 4, "\"F33\" is not known"},
    {"{\"a\":" T("f32", "[1]", 0, 4) "}", 4, "\"f32\" is not known"},
    {"{\"a\":" T("F32", "[-1]", 0, 4) "}", 4, "no integer of at least 0"},
    {"{\"a\":" T("F32", "[1.5]", 0, 4) "}", 4, "no integer of at least 0"},
    {"{\"a\":" T("F32", "[\"1\"]", 0, 4) "}", 4, "no integer of at least 0"},
    {"{\"a\":" T("F32", "[9223372036854775808]", 0, 4) "}", 4, "no integer of at least 0"},
    {"{\"a\":" T("F32", "[4294967296,4294967296]", 0, 0) "}", 0, "shape overflows"},
    {"{\"a\":" T("F32", "[1099511627776,1048576]", 0, 0) "}", 0, "size overflows"},
    {"{\"a\":" T("F32", "[4611686018427387904]", 0, 0) "}", 0, "size overflows"},
    {"{\"a\":" T("U8", "[1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1]", 0, 1) "}", 1, "16 dimensions"},
    {"{\"a\":" T("F4", "[3]", 0, 1) "}", 1, "3 elements of F4"},
    {"{\"a\":" T("F32", "[2]", 0, 4) "}", 4, "2 elements of F32 do not fill its 4"},
    {"{\"a\":" T("F32", "[1]", 0, 8) "}", 8, "1 elements of F32"},
    {"{\"a\":" T("F32", "[1]", 4, 0) "}", 4, "lies at bytes 4 to 0"},
    {"{\"a\":" T("F32", "[1]", 0, 4) "}", 3, "cut short"},
    {"{\"a\":" T("F32", "[1]", -4, 0) "}", 4, "data_offsets"},
    {"{\"a\":" T("F32", "[1]", 18446744073709551612, 18446744073709551615) "}", 4, "cut short"},
    {"{\"a\":" T("F32", "[1]", 0, 18446744073709551616) "}", 4, "data_offsets"},
    {"{\"a\":" T("F32", "[1]", 0, 4.0) "}", 4, "data_offsets"},
    {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0]}}", 4, "data_offsets"},
    {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4,8]}}", 4, "data_offsets"},
    {"{\"a\":" T("F32", "[1]", 4, 8) "}", 8, "hole in the data before it"},
    {"{\"a\":" T("F32", "[1]", 0, 4) "}", 8, "end at byte 4 of 8"},
    {"{\"a\":" T("F32", "[1]", 0, 4) ",\"b\":" T("F32", "[1]", 8, 12) "}", 12, "hole"},
    {"{\"a\":" T("F32", "[1]", 0, 4) ",\"b\":" T("F32", "[1]", 0, 4) "}", 4, "overlap"},
    {"{\"a\":" T("F32", "[2]", 0, 8) ",\"b\":" T("F32", "[2]", 4, 12) "}", 12, "overlap"},
    {"{\"a\":" T("F32", "[2]", 0, 8) ",\"b\":" T("F32", "[0]", 4, 4) "}", 8, "overlap"},
    {"{\"a\":" T("F32", "[1]", 0, 4) ",\"a\":" T("F32", "[1]", 4, 8) "}", 8, "name appears twice"},
    {"{\"a\":" T("F32", "[1]", 0, 4) ",\"\\u0061\":" T("F32", "[1]", 4, 8) "}", 8,
     "name appears twice"},
    {"{\"__metadata__\":1}", 0, "__metadata__"},
    {"{\"__metadata__\":{\"a\":1}}", 0, "__metadata__"},
};

static void damaged_files(void **state) {
    (void)state;
    uint64_t live = pgd_mem_live();
    for (size_t i = 0; i < sizeof(damaged) / sizeof(damaged[0]); i++) {
        pgd_load_safetensors s;
        pgd_status status = parse(damaged[i].header, damaged[i].n_data, &s);
        if (status != PGD_DATA_LOSS) {
            fail_msg("%s: status %d", damaged[i].header, (int)status);
        }
        test_says(status, damaged[i].says);
        assert_null(s.tensors);
        assert_null(s.header);
        assert_int_equal(pgd_mem_live(), live);
    }
}

// The length field alone.
static void header_lengths(void **state) {
    (void)state;
    static const uint64_t lengths[] = {0, 3, 100, 33554432, 33554433, 100000001, UINT64_MAX};
    for (size_t i = 0; i < sizeof(lengths) / sizeof(lengths[0]); i++) {
        pgd_load_safetensors s;
        uint8_t bytes[10] = {0, 0, 0, 0, 0, 0, 0, 0, '{', '}'};
        for (int b = 0; b < 8; b++) {
            bytes[b] = (uint8_t)(lengths[i] >> (8 * b));
        }
        assert_int_equal(pgd_load_safetensors_parse(bytes, sizeof(bytes), "f", &s), PGD_DATA_LOSS);
    }
    for (size_t n = 0; n < 8; n++) {
        pgd_load_safetensors s;
        uint8_t *bytes = calloc(n + 1, 1);
        assert_int_equal(pgd_load_safetensors_parse(n == 0 ? NULL : bytes, n, "f", &s),
                         PGD_DATA_LOSS);
        test_says(PGD_DATA_LOSS, "cut short");
        free(bytes);
    }
}

static const char sample[] = "{\"__metadata__\":{\"format\":\"pt\"},\"b\":" T(
    "BF16", "[3]", 4, 10) ",\"a\":" T("F16", "[1,2]", 0, 4) "}   ";

static void cut_at_each_byte(void **state) {
    (void)state;
    size_t n = 0;
    uint8_t *bytes = test_safetensors(sample, 10, &n);
    for (size_t cut = 0; cut < n; cut++) {
        pgd_load_safetensors s;
        uint8_t *part = malloc(cut + 1);
        memcpy(part, bytes, cut);
        part = realloc(part, cut == 0 ? 1 : cut);
        assert_int_equal(pgd_load_safetensors_parse(part, cut, "f", &s), PGD_DATA_LOSS);
        free(part);
    }
    free(bytes);
}

// Whatever a flipped byte gives, accepted tensors lie inside the file.
static void flipped_bytes(void **state) {
    (void)state;
    size_t n = 0;
    uint64_t seed = 7;
    uint64_t live = pgd_mem_live();
    uint8_t *bytes = test_safetensors(sample, 10, &n);
    for (int round = 0; round < 20000; round++) {
        pgd_load_safetensors s;
        size_t at = (size_t)(pgd_rng_next(&seed) % n);
        uint8_t old = bytes[at];
        bytes[at] = (uint8_t)pgd_rng_next(&seed);
        if (pgd_load_safetensors_parse(bytes, n, "f", &s) == PGD_OK) {
            for (uint32_t i = 0; i < s.n; i++) {
                const uint8_t *p = s.tensors[i].ptr;
                assert_true(p == NULL || (p >= bytes && p + s.tensors[i].bytes <= bytes + n));
            }
            pgd_load_safetensors_free(&s);
        }
        bytes[at] = old;
    }
    free(bytes);
    assert_int_equal(pgd_mem_live(), live);
}

// n tensors of one byte each.
static char *many_entries(uint32_t n) {
    size_t cap = (size_t)n * 72 + 8;
    char *text = malloc(cap);
    size_t at = 0;
    assert_non_null(text);
    text[at++] = '{';
    for (uint32_t i = 0; i < n; i++) {
        at +=
            (size_t)snprintf(text + at, cap - at,
                             "%s\"t%u\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[%u,%u]}",
                             i == 0 ? "" : ",", (unsigned)i, (unsigned)i, (unsigned)i + 1);
    }
    text[at++] = '}';
    text[at] = '\0';
    return text;
}

static void huge_counts(void **state) {
    (void)state;
    pgd_load_safetensors s;
    char *text = many_entries(50000);
    assert_int_equal(parse(text, 50000, &s), PGD_OK);
    assert_int_equal(s.n, 50000);
    assert_non_null(pgd_load_safetensors_find(&s, PGD_STR("t49999")));
    pgd_load_safetensors_free(&s);
    free(text);
    text = many_entries(PGD_LOAD_SAFETENSORS_MAX_TENSORS + 1);
    assert_int_equal(parse(text, PGD_LOAD_SAFETENSORS_MAX_TENSORS + 1, &s), PGD_DATA_LOSS);
    test_says(PGD_DATA_LOSS, "at most 200000");
    free(text);
}

static void each_allocation_fails(void **state) {
    (void)state;
    uint64_t live = pgd_mem_live();
    size_t n = 0;
    uint8_t *bytes = test_safetensors(sample, 10, &n);
    for (uint64_t nth = 1;; nth++) {
        pgd_load_safetensors s;
        pgd_mem_fail_nth(nth);
        pgd_status status = pgd_load_safetensors_parse(bytes, n, "f", &s);
        pgd_mem_fail_nth(0);
        if (status == PGD_OK) {
            assert_true(nth > 3);
            pgd_load_safetensors_free(&s);
            break;
        }
        assert_int_equal(status, PGD_OUT_OF_MEMORY);
        assert_int_equal(pgd_mem_live(), live);
    }
    free(bytes);
    assert_int_equal(pgd_mem_live(), live);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(good_files),       cmocka_unit_test(tensors_are_found),
        cmocka_unit_test(damaged_files),    cmocka_unit_test(header_lengths),
        cmocka_unit_test(cut_at_each_byte), cmocka_unit_test(flipped_bytes),
        cmocka_unit_test(huge_counts),      cmocka_unit_test(each_allocation_fails),
    };
    return cmocka_run_group_tests_name("load.safetensors", tests, NULL, NULL);
}
