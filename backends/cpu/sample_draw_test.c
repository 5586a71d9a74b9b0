// Draws of long rows against the definition: the ways that do not take exact masses of all tokens
// have to give the same ids.
#include "sample.h" // first: a field of pgd_host, fail, is a macro of cmocka

#include <math.h>

#include "isa_test.h"
#include "ref/sample.h"

enum { N = 5003, DRAWS = 400 };

typedef struct fixture {
    float logits[N];
    float list[N + 64];
    cpu_row row;
} fixture;

static void look(fixture *f, const pgd_cpu_kernels *k) {
    f->row.k = k;
    f->row.v = f->logits;
    f->row.list = f->list;
    f->row.n = N;
    cpu_row_look(&f->row);
}

// About normal, from a sum of 12; `steps` above 0 rounds to so many values a unit.
static void fill(fixture *f, uint64_t *rng, float steps) {
    for (int i = 0; i < N; i++) {
        float sum = 0;
        for (int j = 0; j < 12; j++) {
            sum += test_float(rng) * 0.5f;
        }
        f->logits[i] = steps > 0 ? floorf(sum * steps) / steps : sum;
    }
}

static void compare(const fixture *f, uint64_t *rng, float temperature) {
    for (int i = 0; i < DRAWS; i++) {
        const pgd_sampling s = {.temperature = temperature,
                                .top_p = (float)(1 + test_next(rng) % 999) / 1000,
                                .seed = test_next(rng),
                                .counter = (uint64_t)i};
        assert_int_equal(cpu_draw(&f->row, &s), pgd_ref_draw(f->logits, N, &s));
    }
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
    static fixture f;
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
    static fixture f;
    uint64_t rng = 4;
    (void)state;
    fill(&f, &rng, 8);
    look(&f, fastest());
    compare(&f, &rng, 1.0f);
}

// A few far above the others, which all together weigh as much.
static void peaked_rows(void **state) {
    static fixture f;
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

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(flat_rows),
        cmocka_unit_test(rows_of_ties),
        cmocka_unit_test(peaked_rows),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
