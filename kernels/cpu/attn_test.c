// The attention kernels of every instruction set: scores and values against sums in double, in
// every cut of a tile; rows do not matter; softmax against exp of libm; merges.
#include "isa_test.h"

enum { ROWS = 14, LONGEST = 80, LD = 96, PIECES = 4, PIECE = 16 };

typedef void (*scores_fn)(const void *q, int64_t ldq, int64_t m, const void *const *k,
                          const void *const *ahead, int64_t stride, int64_t dim, float *s);
typedef void (*values_fn)(const void *p, int64_t ldp, int64_t m, const void *const *v,
                          const void *const *ahead, int64_t lo, int64_t hi, int64_t dim, float *o,
                          int64_t ldo);

enum { F32, BF16, F16, N_TYPES };

// Exact in bf16 and f16: eight bits.
static float coarse(uint64_t *rng) {
    return (float)((int)(test_next(rng) % 255) - 127) / 64.0f;
}

static uint16_t half_of(int type, float value) {
    uint16_t half = 0;
    const pgd_cpu_kernels *k = pgd_cpu_pick("scalar");
    (type == BF16 ? k->bf16_narrow : k->f16_narrow)(&value, &half, 1);
    return half;
}

// A tile: keys[d][j] and values[j][d] in double, and the same as pieces of a cache of `type`. What
// lies between the pieces, and positions outside of [lo, hi) of V, is NaN.
typedef struct tile {
    double keys[LONGEST][PGD_CPU_TILE];
    double values[PGD_CPU_TILE][LONGEST];
    float k_room[PIECES][LONGEST * 2 * PIECE];
    float v_room[PIECES][PIECE * LONGEST];
    const void *k[PIECES];
    const void *v[PIECES];
} tile;

static void put(int type, void *room, int64_t at, float value) {
    if (type == F32) {
        ((float *)room)[at] = value;
    } else {
        ((uint16_t *)room)[at] = half_of(type, value);
    }
}

// stride: of K, 16 or 32 positions.
static void make_tile(tile *t, int type, int64_t dim, int64_t stride, int lo, int hi,
                      uint64_t seed) {
    uint64_t rng = seed;
    memset(t->k_room, 0xFF, sizeof(t->k_room));
    memset(t->v_room, 0xFF, sizeof(t->v_room));
    for (int i = 0; i < PIECES; i++) {
        t->k[i] = t->k_room[i];
        t->v[i] = t->v_room[i];
    }
    for (int64_t j = 0; j < PGD_CPU_TILE; j++) {
        for (int64_t d = 0; d < dim; d++) {
            const float key = coarse(&rng);
            const float value = coarse(&rng);
            const int64_t in = j % PIECE;
            t->keys[d][j] = (double)key;
            t->values[j][d] = (double)value;
            put(type, t->k_room[j / PIECE],
                type == BF16 ? d / 2 * stride * 2 + in * 2 + d % 2 : d * stride + in, key);
            put(type, t->v_room[j / PIECE],
                type == BF16 ? in / 2 * dim * 2 + d * 2 + in % 2 : in * dim + d,
                j < lo || j >= hi ? NAN : value);
        }
    }
}

static scores_fn scores_of(const pgd_cpu_kernels *k, int type) {
    return type == F32    ? (scores_fn)(void (*)(void))k->f32_attn_scores
           : type == BF16 ? (scores_fn)(void (*)(void))k->bf16_attn_scores
                          : (scores_fn)(void (*)(void))k->f16_attn_scores;
}

static values_fn values_of(const pgd_cpu_kernels *k, int type) {
    return type == F32    ? (values_fn)(void (*)(void))k->f32_attn_values
           : type == BF16 ? (values_fn)(void (*)(void))k->bf16_attn_values
                          : (values_fn)(void (*)(void))k->f16_attn_values;
}

static float q[ROWS * LD];
static float p[ROWS * PGD_CPU_TILE];

static void make_rows(uint64_t seed) {
    for (int i = 0; i < ROWS * LD; i++) {
        q[i] = test_float(&seed);
    }
    for (int i = 0; i < ROWS * PGD_CPU_TILE; i++) {
        p[i] = test_float(&seed);
    }
}

// |got - want| within n roundings of sums of terms as large as `size` in all.
static void close_to(float got, double want, double size) {
    if (!(fabs((double)got - want) <= 0x1p-20 * (size + 1e-30))) {
        fail_msg("%g is not %g", (double)got, want);
    }
}

static void check_scores(const tile *t, const float *s, int64_t m, int64_t dim) {
    for (int64_t i = 0; i < m; i++) {
        for (int64_t j = 0; j < PGD_CPU_TILE; j++) {
            double want = 0.0;
            double size = 0.0;
            for (int64_t d = 0; d < dim; d++) {
                want += (double)q[i * LD + d] * t->keys[d][j];
                size += fabs((double)q[i * LD + d] * t->keys[d][j]);
            }
            close_to(s[i * PGD_CPU_TILE + j], want, size);
        }
    }
}

// Every count of rows, and the bits of a row are those it has alone.
static void scores_are_close(void **state) {
    static tile t;
    static const int64_t dims[] = {2, 6, 16, 34, 64, 80};
    float s[ROWS * PGD_CPU_TILE];
    float one[PGD_CPU_TILE];
    (void)state;
    make_rows(3);
    FOR_EACH_ISA(kernels) {
        for (int type = 0; type < N_TYPES; type++) {
            const scores_fn scores = scores_of(kernels, type);
            for (size_t i = 0; i < sizeof(dims) / sizeof(dims[0]); i++) {
                const int64_t stride = i % 2 == 0 ? 16 : 32;
                make_tile(&t, type, dims[i], stride, 0, 64, i + 1);
                for (int64_t m = 0; m <= ROWS; m++) {
                    scores(q, LD, m, t.k, t.k, stride, dims[i], s);
                    check_scores(&t, s, m, dims[i]);
                    for (int64_t r = 0; r < m; r++) {
                        scores(q + r * LD, LD, 1, t.k, t.k, stride, dims[i], one);
                        assert_memory_equal(one, s + r * PGD_CPU_TILE, sizeof(one));
                    }
                }
            }
        }
    }
}

static void check_values(const tile *t, const float *o, int64_t m, int64_t dim, int lo, int hi) {
    for (int64_t i = 0; i < m; i++) {
        for (int64_t d = 0; d < dim; d++) {
            double want = 0.0;
            double size = 0.0;
            for (int j = lo; j < hi; j++) {
                want += (double)p[i * PGD_CPU_TILE + j] * t->values[j][d];
                size += fabs((double)p[i * PGD_CPU_TILE + j] * t->values[j][d]);
            }
            close_to(o[i * LD + d], want, size);
        }
    }
}

static void values_are_close(void **state) {
    static tile t;
    static const int64_t dims[] = {16, 48, 64, 80};
    static const int cuts[][2] = {{0, 64}, {0, 1},   {0, 63},  {5, 6},
                                  {7, 40}, {17, 64}, {16, 32}, {33, 35}};
    float o[ROWS * LD];
    float one[LD];
    (void)state;
    make_rows(4);
    FOR_EACH_ISA(kernels) {
        for (size_t n = 0; n < N_TYPES * 4 * sizeof(cuts) / sizeof(cuts[0]); n++) {
            const int type = (int)(n % N_TYPES);
            const int64_t dim = dims[n / N_TYPES % 4];
            const int *cut = cuts[n / N_TYPES / 4];
            const values_fn values = values_of(kernels, type);
            make_tile(&t, type, dim, 16, cut[0], cut[1], n + 1);
            for (int64_t m = 0; m <= ROWS; m++) {
                values(p, PGD_CPU_TILE, m, t.v, t.v, cut[0], cut[1], dim, o, LD);
                check_values(&t, o, m, dim, cut[0], cut[1]);
                for (int64_t r = 0; r < m; r++) {
                    values(p + r * PGD_CPU_TILE, PGD_CPU_TILE, 1, t.v, t.v, cut[0], cut[1], dim,
                           one, LD);
                    assert_memory_equal(one, o + r * LD, (size_t)dim * sizeof(float));
                }
            }
        }
    }
}

// Pieces of int8 give the bits of the same pieces widened to f32, whatever the rows.
static void int8_is_f32_widened(void **state) {
    static const int cuts[][2] = {{0, 64}, {5, 6}, {7, 40}, {16, 33}};
    static int8_t codes[PIECES][PIECE * LONGEST];
    static float wide_k[PIECES][PIECE * LONGEST];
    static float wide_v[PIECES][PIECE * LONGEST];
    static float got[ROWS * LD], want[ROWS * LD];
    float factors[PIECES][PIECE];
    const void *q8[PIECES], *k32[PIECES], *v32[PIECES];
    const float *scales[PIECES];
    uint64_t rng = 12;
    (void)state;
    make_rows(8);
    for (int i = 0; i < PIECES; i++) {
        for (int j = 0; j < PIECE * LONGEST; j++) {
            codes[i][j] = (int8_t)test_next(&rng);
        }
        for (int j = 0; j < PIECE; j++) {
            factors[i][j] = test_float(&rng);
        }
        q8[i] = codes[i];
        k32[i] = wide_k[i];
        v32[i] = wide_v[i];
        scales[i] = factors[i];
    }
    FOR_EACH_ISA(k) {
        for (int64_t dim = 16; dim <= LONGEST; dim += 16) {
            for (int i = 0; i < PIECES; i++) {
                k->int8_turned_16(codes[i], factors[i], dim, wide_k[i]);
                k->int8_rows(codes[i], factors[i], PIECE, dim, wide_v[i], dim);
            }
            for (int64_t m = 0; m <= ROWS; m++) {
                const size_t bytes = (size_t)m * PGD_CPU_TILE * sizeof(float);
                k->int8_attn_scores(q, LD, m, q8, q8, scales, dim, got);
                k->f32_attn_scores(q, LD, m, k32, k32, PIECE, dim, want);
                assert_memory_equal(got, want, bytes);
                for (size_t c = 0; c < sizeof(cuts) / sizeof(cuts[0]); c++) {
                    const int *cut = cuts[c];
                    memset(got, 0, sizeof(got));
                    memset(want, 0, sizeof(want));
                    k->int8_attn_values(p, PGD_CPU_TILE, m, q8, q8, scales, cut[0], cut[1], dim,
                                        got, LD);
                    k->f32_attn_values(p, PGD_CPU_TILE, m, v32, v32, cut[0], cut[1], dim, want, LD);
                    assert_memory_equal(got, want, sizeof(got));
                }
            }
        }
    }
}

// The dot products of every instruction set against those of the scalar one, which multiplies and
// adds in f32: the same up to the rounding of a fused product.
static void dots_are_close(void **state) {
    static tile t;
    static const int cuts[][2] = {{0, 64}, {1, 64}, {0, 63}, {31, 32}};
    uint16_t rows[ROWS * LD * 2 + 4];
    float s[ROWS * PGD_CPU_TILE];
    float o[ROWS * LD];
    (void)state;
    make_rows(5);
    for (int i = 0; i < ROWS * LD; i++) {
        uint64_t seed = (uint64_t)i;
        q[i] = coarse(&seed);
    }
    for (int i = 0; i < ROWS * PGD_CPU_TILE; i++) {
        uint64_t seed = (uint64_t)i;
        p[i] = coarse(&seed);
    }
    FOR_EACH_ISA(kernels) {
        for (size_t n = 0; n < sizeof(cuts) / sizeof(cuts[0]); n++) {
            const int *cut = cuts[n];
            make_tile(&t, BF16, 64, 16, cut[0], cut[1], n + 1);
            kernels->bf16_round(q, rows, ROWS * LD);
            kernels->bf16_attn_dot_scores(rows, LD, ROWS, t.k, t.k, 16, 64, s);
            check_scores(&t, s, ROWS, 64);
            for (int i = 0; i < ROWS * PGD_CPU_TILE; i++) {
                const int j = i % PGD_CPU_TILE;
                p[i] = j < cut[0] || j >= cut[1] ? 0.0f : p[i];
            }
            kernels->bf16_round(p, rows, ROWS * PGD_CPU_TILE);
            kernels->bf16_attn_dot_values(rows, PGD_CPU_TILE, ROWS, t.v, t.v, cut[0], cut[1], 64, o,
                                          LD);
            check_values(&t, o, ROWS, 64, cut[0], cut[1]);
        }
    }
}

// Weights and sum of positions [lo, hi) of a tile, against exp of libm.
static void softmax_of_a_tile(void **state) {
    const pgd_cpu_score how = {.scale = 0.25f, .softcap = 0.0f};
    uint64_t rng = 5;
    float s[2 * PGD_CPU_TILE];
    float w[2 * PGD_CPU_TILE];
    (void)state;
    for (int i = 0; i < 2 * PGD_CPU_TILE; i++) {
        s[i] = 20.0f * test_float(&rng);
    }
    FOR_EACH_ISA(kernels) {
        for (int cut = 0; cut < 64 * 65; cut += 7) {
            const int lo = cut / 65;
            const int hi = cut % 65;
            float max[2] = {0};
            float sum[2] = {0};
            memcpy(w, s, sizeof(w));
            if (lo >= hi) {
                continue;
            }
            kernels->f32_softmax_64(w, 2, lo, hi, &how, 0.0f, 0.0f, max, sum);
            for (int r = 0; r < 2; r++) {
                const float *row = s + (ptrdiff_t)r * PGD_CPU_TILE;
                double top = -INFINITY;
                double total = 0.0;
                for (int i = lo; i < hi; i++) {
                    top = fmax(top, 0.25 * (double)row[i]);
                }
                assert_true((double)max[r] == top);
                for (int i = 0; i < PGD_CPU_TILE; i++) {
                    const double want = i < lo || i >= hi ? 0.0 : exp(0.25 * (double)row[i] - top);
                    assert_true(fabs((double)w[r * PGD_CPU_TILE + i] - want) <= 3e-7);
                    total += want;
                }
                assert_true(fabs((double)sum[r] - total) <= 1e-5);
            }
        }
    }
}

// Softcap, then the slope, in front of the softmax.
static void softmax_of_other_scores(void **state) {
    const pgd_cpu_score how = {.scale = 0.5f, .softcap = 3.0f};
    const double slope = 0.125;
    const double distance = 70.0;
    (void)state;
    FOR_EACH_ISA(kernels) {
        uint64_t rng = 6;
        float s[PGD_CPU_TILE];
        double want[PGD_CPU_TILE];
        double top = -INFINITY;
        float max = 0.0f;
        float sum = 0.0f;
        for (int i = 0; i < PGD_CPU_TILE; i++) {
            s[i] = 9.0f * test_float(&rng);
            want[i] = 3.0 * tanh(0.5 * (double)s[i] / 3.0) - slope * (distance - i);
            top = fmax(top, want[i]);
        }
        kernels->f32_softmax_64(s, 1, 0, 64, &how, 70.0f, 0.125f, &max, &sum);
        assert_true(fabs((double)max - top) <= 2e-6);
        for (int i = 0; i < PGD_CPU_TILE; i++) {
            assert_true(fabs((double)s[i] - exp(want[i] - top)) <= 4e-6);
        }
    }
}

// Rows of many kinds at once: larger and smaller maxima, one that saw nothing, one that was empty.
static void merges_tiles(void **state) {
    enum { M = 21, WIDTH = 32 };
    static float o[M * WIDTH];
    static float o_t[M * WIDTH];
    (void)state;
    FOR_EACH_ISA(kernels) {
        float max[M];
        float sum[M];
        float max_t[M];
        float sum_t[M];
        for (int r = 0; r < M; r++) {
            max[r] = r == 3 ? -INFINITY : 1.0f;
            sum[r] = r == 3 ? 0.0f : 2.0f;
            max_t[r] = r == 5 ? -INFINITY : (float)(r % 4);
            sum_t[r] = r == 5 ? 0.0f : 3.0f;
            for (int d = 0; d < WIDTH; d++) {
                o[r * WIDTH + d] = r == 3 ? 0.0f : 1.0f;
                o_t[r * WIDTH + d] = r == 5 ? NAN : (float)d;
            }
        }
        kernels->f32_merge(o, o_t, WIDTH, M, max, sum, max_t, sum_t);
        for (int r = 0; r < M; r++) {
            const double top = r == 5 ? 1.0 : (r == 3 ? 3.0 : fmax(1.0, r % 4));
            const double a = r == 3 ? 0.0 : exp(1.0 - top);
            const double b = r == 5 ? 0.0 : exp(r % 4 - top);
            assert_true((double)max[r] == top);
            assert_true(fabs((double)sum[r] - (2.0 * a + 3.0 * b)) <= 1e-6);
            for (int d = 0; d < WIDTH; d++) {
                assert_true(fabs((double)o[r * WIDTH + d] - (a + d * b)) <= 8e-6);
            }
        }
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(scores_are_close),    cmocka_unit_test(values_are_close),
        cmocka_unit_test(int8_is_f32_widened), cmocka_unit_test(dots_are_close),
        cmocka_unit_test(softmax_of_a_tile),   cmocka_unit_test(softmax_of_other_scores),
        cmocka_unit_test(merges_tiles),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
