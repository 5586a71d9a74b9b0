// Blocks against what the gguf package makes of them (tests/golden/blocks), types it cannot make
// against the error that their bits allow, and joined weights of every scheme.
#include <stdio.h>
#include <stdlib.h>

#include "ref/ref_test.h"

typedef struct golden_case {
    char *what;
    char *scheme;
    unsigned char *from, *to;
    size_t from_bytes, to_bytes;
} golden_case;

static int digit(char c) {
    return c >= 'a' ? c - 'a' + 10 : c - '0';
}

// Hexadecimal in place; gives the bytes.
static unsigned char *unhex(char *text, size_t *out_n) {
    unsigned char *bytes = (unsigned char *)text;
    size_t i;
    assert_int_equal(strlen(text) % 2, 0);
    *out_n = strlen(text) / 2;
    for (i = 0; i < *out_n; i++) {
        bytes[i] = (unsigned char)(digit(text[2 * i]) << 4 | digit(text[2 * i + 1]));
    }
    return bytes;
}

static int32_t scheme_of(const char *name) {
    int32_t scheme;
    for (scheme = 1; scheme < PGD_SCHEME_INT8; scheme++) {
        if (pgd_scheme_elements(scheme) != 0 && strcmp(pgd_scheme_name(scheme), name) == 0) {
            return scheme;
        }
    }
    return 0;
}

// The next word of a line, ended with NUL; *at goes behind it.
static char *word(char **at) {
    char *start = *at;
    size_t n = strcspn(start, " \n");
    *at = start + n + (start[n] != 0);
    start[n] = 0;
    return start;
}

static int next_case(FILE *f, char *line, int cap, golden_case *out) {
    do {
        if (fgets(line, cap, f) == NULL) {
            return 0;
        }
    } while (line[0] == '#');
    assert_non_null(strchr(line, '\n'));
    out->what = word(&line);
    out->scheme = word(&line);
    out->from = unhex(word(&line), &out->from_bytes);
    out->to = unhex(word(&line), &out->to_bytes);
    return 1;
}

static void as_gguf(void **state) {
    FILE *f = fopen(PGD_TEST_SOURCE_DIR "/tests/golden/blocks/cases.txt", "r");
    static char line[1 << 16];
    int n_read = 0, n_made = 0;
    golden_case c;
    (void)state;
    assert_non_null(f);
    while (next_case(f, line, sizeof(line), &c)) {
        const int32_t scheme = scheme_of(c.scheme);
        unsigned char *got = malloc(c.to_bytes), *from = malloc(c.from_bytes);
        assert_true(got != NULL && from != NULL && scheme != 0);
        memcpy(from, c.from, c.from_bytes); // aligned
        if (strcmp(c.what, "dequantize") == 0) {
            pgd_ref_dequantize(scheme, from, (int64_t)(c.to_bytes / sizeof(float)), (float *)got);
            n_read++;
        } else {
            pgd_ref_quantize(scheme, (const float *)from, (int64_t)(c.from_bytes / sizeof(float)),
                             got);
            n_made++;
        }
        if (memcmp(got, c.to, c.to_bytes) != 0) {
            fail_msg("%s %s differs", c.what, c.scheme);
        }
        free(from);
        free(got);
    }
    assert_int_equal(fclose(f), 0);
    assert_int_equal(n_read, 12);
    assert_int_equal(n_made, 6);
}

// Normal numbers by the sum of twelve uniform ones.
static void normal(float *x, int64_t n, uint32_t seed) {
    int64_t i;
    int j;
    for (i = 0; i < n; i++) {
        float sum = -6;
        for (j = 0; j < 12; j++) {
            seed = seed * UINT32_C(1664525) + UINT32_C(1013904223);
            sum += (float)(seed >> 8) / 16777216.0F;
        }
        x[i] = sum;
    }
}

static double relative_error(int32_t scheme, const float *x, int64_t n) {
    float back[4096];
    unsigned char blocks[8192];
    double error = 0, sum = 0;
    int64_t i;
    pgd_ref_quantize(scheme, x, n, blocks);
    pgd_ref_dequantize(scheme, blocks, n, back);
    for (i = 0; i < n; i++) {
        error += ((double)back[i] - (double)x[i]) * ((double)back[i] - (double)x[i]);
        sum += (double)x[i] * (double)x[i];
    }
    return sqrt(error / sum);
}

// Root mean square errors of normal numbers. A uniform quantizer of b bits over the range of 16 to
// 32 normal numbers (about +-2.1 sigma) has 4.2 / 2^b / sqrt(12); room of a fifth for the scales.
static void errors_of_normal_numbers(void **state) {
    static const struct {
        int32_t scheme;
        double bits;
    } most[] = {
        {PGD_SCHEME_Q8_0, 8}, {PGD_SCHEME_Q4_0, 4}, {PGD_SCHEME_Q4_1, 4},   {PGD_SCHEME_Q5_0, 5},
        {PGD_SCHEME_Q5_1, 5}, {PGD_SCHEME_Q2_K, 2}, {PGD_SCHEME_Q3_K, 3},   {PGD_SCHEME_Q4_K, 4},
        {PGD_SCHEME_Q5_K, 5}, {PGD_SCHEME_Q6_K, 6}, {PGD_SCHEME_IQ4_NL, 4},
    };
    float x[4096];
    size_t i;
    (void)state;
    normal(x, 4096, 7);
    for (i = 0; i < sizeof(most) / sizeof(most[0]); i++) {
        const double bound = 1.2 * 4.2 / exp2(most[i].bits) / sqrt(12);
        const double error = relative_error(most[i].scheme, x, 4096);
        if (!(error < bound)) {
            fail_msg("%s: error %g, not below %g", pgd_scheme_name(most[i].scheme), error, bound);
        }
    }
    assert_true(relative_error(PGD_SCHEME_MXFP4, x, 4096) < 0.15);
}

// Zeros stay zeros, and numbers of one size and sign lose little, in every type.
static void edges(void **state) {
    float x[256] = {0}, back[256];
    unsigned char blocks[1024];
    int32_t scheme;
    int i;
    (void)state;
    for (scheme = 1; pgd_scheme_elements(scheme) != 0; scheme++) {
        memset(x, 0, sizeof(x));
        pgd_ref_quantize(scheme, x, 256, blocks);
        pgd_ref_dequantize(scheme, blocks, 256, back);
        for (i = 0; i < 256; i++) {
            assert_true(back[i] == 0);
        }
        for (i = 0; i < 256; i++) {
            x[i] = -0.75F;
        }
        assert_true(relative_error(scheme, x, 256) < 0.04);
        for (i = 0; i < 256; i++) {
            x[i] = i % 2 == 0 ? NAN : INFINITY; // any bytes, but nothing undefined
        }
        pgd_ref_quantize(scheme, x, 256, blocks);
    }
    assert_int_equal(scheme, 13);
}

static void int8_rows(void **state) {
    const float x[5] = {-2, 1, 0.5F, 0, 2};
    const float zeros[2] = {0, 0};
    int8_t q[5];
    (void)state;
    assert_true(pgd_ref_quantize_int8(x, 5, q) == 2.0F / 127);
    assert_int_equal(q[0], -127);
    assert_int_equal(q[1], 64); // 63.5 to even
    assert_int_equal(q[2], 32); // 31.75
    assert_int_equal(q[3], 0);
    assert_int_equal(q[4], 127);
    assert_true(pgd_ref_quantize_int8(zeros, 2, q) == 0);
    assert_int_equal(q[0], 0);
}

// ---- joined ------------------------------------------------------------------------------------

enum { K = 256, ROWS = 3 };

typedef struct matrix {
    float x[ROWS * 2 * K]; // twice the columns: a part takes the second half
    unsigned char blocks[ROWS * 2 * K * 4];
    float scales[ROWS];
    float back[ROWS * K]; // what the slice holds
} matrix;

// Rows 1 and 2, columns [K, 2 K) of a matrix of 3 rows.
static pgd_weight_part part_of(matrix *m, int32_t scheme, int32_t dtype) {
    const size_t row = (size_t)pgd_ref_row_bytes(scheme, dtype, 2 * K);
    int r, i;
    assert_true(row > 0);
    for (r = 0; r < ROWS; r++) {
        const float *x = m->x + (size_t)r * 2 * K;
        float *back = m->back + (size_t)(r - 1) * K, whole[2 * K];
        unsigned char *to = m->blocks + (size_t)r * row;
        if (scheme == PGD_SCHEME_PLAIN) {
            for (i = 0; i < 2 * K; i++) {
                pgd_ref_store(dtype, to, i, (double)x[i]);
                whole[i] = (float)pgd_ref_load(dtype, to, i);
            }
        } else if (scheme == PGD_SCHEME_INT8) {
            m->scales[r] = pgd_ref_quantize_int8(x, 2 * K, (int8_t *)to);
            for (i = 0; i < 2 * K; i++) {
                whole[i] = (float)((double)(int8_t)to[i] * (double)m->scales[r]);
            }
        } else {
            pgd_ref_quantize(scheme, x, 2 * K, to);
            pgd_ref_dequantize(scheme, to, 2 * K, whole);
        }
        if (r > 0) {
            memcpy(back, whole + K, K * sizeof(float));
        }
    }
    return (pgd_weight_part){.rows = ROWS,
                             .cols = 2 * K,
                             .row_start = 1,
                             .row_count = 2,
                             .col_start = K,
                             .col_count = K,
                             .data = {.ptr = m->blocks, .bytes = ROWS * row},
                             .scales = {.ptr = m->scales, .bytes = sizeof(m->scales)},
                             .scheme = scheme,
                             .dtype = dtype};
}

static void expect_rows(const pgd_ref_weight *w, int64_t first, const matrix *m) {
    double got[K];
    int64_t r;
    int i;
    for (r = 0; r < 2; r++) {
        pgd_ref_weight_read(w, first + r, 0, K, got);
        for (i = 0; i < K; i++) {
            assert_true((float)got[i] == m->back[r * K + i]);
        }
    }
}

static void joined(void **state) {
    enum { N = 6 };
    static const struct {
        int32_t scheme, dtype;
    } kinds[N] = {{PGD_SCHEME_Q4_K, 0}, {PGD_SCHEME_PLAIN, PGD_BF16}, {PGD_SCHEME_INT8, 0},
                  {PGD_SCHEME_Q6_K, 0}, {PGD_SCHEME_PLAIN, PGD_F32},  {PGD_SCHEME_Q8_0, 0}};
    static matrix m[N];
    pgd_weight_part parts[N];
    pgd_ref_weight w, of_parts[N];
    pgd_weight_desc desc = {.size = sizeof(desc),
                            .scheme = PGD_SCHEME_PARTS,
                            .n_parts = N,
                            .part_stride = sizeof(pgd_weight_part),
                            .n = 2 * N,
                            .k = K,
                            .parts = parts};
    uint64_t bytes;
    void *dst;
    int i;
    (void)state;
    for (i = 0; i < N; i++) {
        normal(m[i].x, ROWS * 2 * K, (uint32_t)i + 1);
        parts[i] = part_of(&m[i], kinds[i].scheme, kinds[i].dtype);
    }
    assert_int_equal(pgd_ref_weight_bytes(&desc, &bytes), PGD_OK);
    dst = malloc((size_t)bytes);
    assert_non_null(dst);
    assert_int_equal(pgd_ref_weight_join(&desc, dst), PGD_OK);
    assert_int_equal(pgd_ref_weight_view(&desc, dst, of_parts, &w), PGD_OK);
    assert_int_equal(pgd_ref_check_weight(NULL, &w), PGD_OK);
    for (i = 0; i < N; i++) {
        expect_rows(&w, 2 * i, &m[i]);
    }
    free(dst);
    for (i = 0; i < N; i++) { // and two parts of one scheme each
        pgd_weight_part two[2] = {parts[i], parts[i]};
        desc.scheme = kinds[i].scheme;
        desc.dtype = kinds[i].dtype;
        desc.n = 4;
        desc.n_parts = 2;
        desc.parts = two;
        assert_int_equal(pgd_ref_weight_bytes(&desc, &bytes), PGD_OK);
        dst = malloc((size_t)bytes);
        assert_non_null(dst);
        assert_int_equal(pgd_ref_weight_join(&desc, dst), PGD_OK);
        assert_int_equal(pgd_ref_weight_view(&desc, dst, NULL, &w), PGD_OK);
        expect_rows(&w, 0, &m[i]);
        expect_rows(&w, 2, &m[i]);
        free(dst);
    }
}

static void refused(void **state) {
    static matrix m;
    pgd_weight_part part = part_of(&m, PGD_SCHEME_Q4_K, 0);
    pgd_weight_desc desc = {.size = sizeof(desc),
                            .scheme = PGD_SCHEME_Q4_K,
                            .n_parts = 1,
                            .part_stride = sizeof(pgd_weight_part),
                            .n = 2,
                            .k = K,
                            .parts = &part};
    unsigned char dst[2 * 144];
    uint64_t bytes;
    (void)state;
    assert_int_equal(pgd_ref_weight_join(&desc, dst), PGD_OK);
    part.data.bytes--;
    assert_int_equal(pgd_ref_weight_join(&desc, dst), PGD_INVALID);
    part.data.bytes++;
    part.col_start = 128; // within a block
    assert_int_equal(pgd_ref_weight_join(&desc, dst), PGD_INVALID);
    part.col_start = 0;
    desc.scheme = 13;
    assert_int_equal(pgd_ref_weight_bytes(&desc, &bytes), PGD_UNSUPPORTED);
    desc.scheme = PGD_SCHEME_INT8;
    part.scales.bytes = 8; // two of three
    assert_int_equal(pgd_ref_weight_join(&desc, dst), PGD_INVALID);
    part.scales.ptr = NULL;
    assert_int_equal(pgd_ref_weight_join(&desc, dst), PGD_UNSUPPORTED);
    desc.scheme = PGD_SCHEME_PARTS;
    part.scheme = PGD_SCHEME_PARTS;
    assert_int_equal(pgd_ref_weight_bytes(&desc, &bytes), PGD_UNSUPPORTED);
}

// Products over every scheme are those over the same numbers in f32.
static void products(void **state) {
    static matrix m;
    float x[2 * K], y[4], want[4];
    int32_t scheme;
    int r;
    (void)state;
    normal(m.x, ROWS * 2 * K, 3);
    normal(x, 2 * K, 4);
    for (scheme = 1; pgd_scheme_elements(scheme) != 0; scheme++) {
        pgd_weight_part part = part_of(&m, scheme, 0);
        unsigned char dst[2 * 512];
        pgd_ref_weight w = {.n = 2, .k = K, .rows = dst, .scheme = scheme};
        pgd_ref_weight plain = {.n = 2, .k = K, .rows = m.back, .dtype = PGD_F32};
        pgd_weight_desc desc = {.size = sizeof(desc),
                                .scheme = scheme,
                                .n_parts = 1,
                                .part_stride = sizeof(part),
                                .n = 2,
                                .k = K,
                                .parts = &part};
        pgd_gemm_args a = {.size = sizeof(a),
                           .w = (pgd_weight *)&w,
                           .x = tensor2(PGD_F32, x, 2, K),
                           .y = tensor2(PGD_F32, y, 2, 2)};
        assert_int_equal(pgd_ref_weight_join(&desc, dst), PGD_OK);
        assert_int_equal(pgd_ref_gemm(NULL, &a), PGD_OK);
        a.w = (pgd_weight *)&plain;
        a.y = tensor2(PGD_F32, want, 2, 2);
        assert_int_equal(pgd_ref_gemm(NULL, &a), PGD_OK);
        for (r = 0; r < 4; r++) {
            assert_true(y[r] == want[r]);
        }
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(as_gguf),  cmocka_unit_test(errors_of_normal_numbers),
        cmocka_unit_test(edges),    cmocka_unit_test(int8_rows),
        cmocka_unit_test(joined),   cmocka_unit_test(refused),
        cmocka_unit_test(products),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
