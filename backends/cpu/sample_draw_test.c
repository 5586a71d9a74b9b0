// Draws of long rows against the definition: the ways that do not take exact masses of all tokens
// have to give the same ids.
#include "sample.h" // first: a field of pgd_host, fail, is a macro of cmocka

#include <math.h>

#include "isa_test.h"
#include "ref/sample.h"

enum { N = 5003, N_LONG = 20011, DRAWS = 400 };

typedef struct fixture {
    float logits[N_LONG];
    float list[N_LONG + 64];
    int32_t n;
    cpu_row row;
} fixture;

static void look(fixture *f, const pgd_cpu_kernels *k) {
    f->row.k = k;
    f->row.v = f->logits;
    f->row.list = f->list;
    f->row.n = f->n;
    cpu_row_look(&f->row);
}

// About normal, from a sum of 12; `steps` above 0 rounds to so many values a unit.
static void fill(fixture *f, uint64_t *rng, float steps) {
    for (int i = 0; i < f->n; i++) {
        float sum = 0;
        for (int j = 0; j < 12; j++) {
            sum += test_float(rng) * 0.5f;
        }
        f->logits[i] = steps > 0 ? floorf(sum * steps) / steps : sum;
    }
}

static void compare_from(const fixture *f, uint64_t *rng, float temperature, float least, int n) {
    for (int i = 0; i < n; i++) {
        const float share = (float)(1 + test_next(rng) % 999) / 1000;
        const pgd_sampling s = {.temperature = temperature,
                                .top_p = least + share * (1 - least),
                                .seed = test_next(rng),
                                .counter = (uint64_t)i};
        assert_int_equal(cpu_draw(&f->row, &s), pgd_ref_draw(f->logits, f->n, &s));
    }
}

static void compare(const fixture *f, uint64_t *rng, float temperature) {
    compare_from(f, rng, temperature, 0, DRAWS);
}

static const pgd_cpu_kernels *fastest(void) {
    const pgd_cpu_kernels *best = NULL;
    FOR_EACH_ISA(k) {
        best = k;
    }
    return best;
}

static void flat_rows(void **state) {
    static const float temperatures[] = {0.3f, 1.0f, 4.0f};
    static fixture f = {.n = N};
    uint64_t rng = 3;
    (void)state;
    for (size_t t = 0; t < sizeof(temperatures) / sizeof(temperatures[0]); t++) {
        fill(&f, &rng, 0);
        look(&f, fastest());
        compare(&f, &rng, temperatures[t]);
    }
}

// Equal logits go or stay together.
static void rows_of_ties(void **state) {
    static fixture f = {.n = N};
    uint64_t rng = 4;
    (void)state;
    fill(&f, &rng, 8);
    look(&f, fastest());
    compare(&f, &rng, 1.0f);
}

// A few far above the others, which all together weigh as much.
static void peaked_rows(void **state) {
    static fixture f = {.n = N};
    uint64_t rng = 5;
    (void)state;
    fill(&f, &rng, 0);
    for (int i = 0; i < 9; i++) {
        f.logits[i * 531] = 8.0f + (float)i * 0.25f;
    }
    look(&f, fastest());
    compare(&f, &rng, 1.0f);
    compare(&f, &rng, 0.4f);
}

// The same in rows of so many blocks that what is far from the best is estimated. By the height of
// the few that suffices always, often, seldom; with top_p near 1 seldom anyway.
static void long_peaked_rows(void **state) {
    static const float heights[] = {18, 11, 9};
    static fixture f = {.n = N_LONG};
    uint64_t rng = 6;
    (void)state;
    for (int h = 0; h < 3; h++) {
        fill(&f, &rng, 0);
        for (int i = 0; i < 9; i++) {
            f.logits[i * 2221] = heights[h] + (float)i * 0.5f;
        }
        look(&f, fastest());
        compare_from(&f, &rng, 1.0f, 0, DRAWS / 4);
        compare_from(&f, &rng, 1.0f, 0.99f, DRAWS / 4);
        compare_from(&f, &rng, 0.7f, 0.999f, DRAWS / 4);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(flat_rows),
        cmocka_unit_test(rows_of_ties),
        cmocka_unit_test(peaked_rows),
        cmocka_unit_test(long_peaked_rows),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
