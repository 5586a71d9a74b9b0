// Times the kernels of kernels/cpu/list.inc on one core, from its caches, for every instruction set
// that this machine runs, beside the dot peaks of that instruction set taken by turns.
//
//   kernel_bench [WORD]      kernels whose names have the word; all
//
// Products come from the list, so a new one is timed without a word here. Each figure is the best
// of many short calls: what the core can do when nobody takes it.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <pagoda/types.h>

#include "limits.h"

enum { DEPTH = 512, MOST_ROWS = 64, CALLS = 400, WEIGHT_BYTES = 1 << 17, PEAK_ROUNDS = 500 };

static const int64_t row_counts[] = {1, 4, 8, 16, 32, 64};

enum { N_COUNTS = sizeof(row_counts) / sizeof(row_counts[0]) };

static _Alignas(64) float x[MOST_ROWS * DEPTH];
static _Alignas(64) unsigned char rounded[MOST_ROWS * DEPTH * sizeof(float)];
static _Alignas(64) pgd_cpu_int8 blocks[MOST_ROWS * DEPTH / 32];
static _Alignas(64) unsigned char weights[WEIGHT_BYTES];
static _Alignas(64) float sums[MOST_ROWS * 64];

static double seconds_now(void) {
    struct timespec t;
    (void)clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static double peak_once(const pgd_cpu_dot *dot) {
    const double start = seconds_now();
    dot->run(PEAK_ROUNDS);
    return (double)dot->ops_per_round * PEAK_ROUNDS / (seconds_now() - start);
}

typedef struct call {
    const pgd_cpu_kernels *k;
    void (*run)(const struct call *c);
    pgd_cpu_product_fn product;
    const void *x;
    int64_t ldx;
    int64_t m;
} call;

static void run_product(const call *c) {
    const pgd_cpu_part part = {.m = c->m,
                               .k = DEPTH,
                               .x = c->x,
                               .ldx = c->ldx,
                               .w = weights,
                               .next = weights,
                               .acc = sums,
                               .ldacc = PGD_CPU_PANEL};
    c->product(&part);
}

// A tile of 64 positions of a bf16 cache, heads of 64.
static void run_scores(const call *c) {
    const void *const k[4] = {weights, weights + 2048, weights + 4096, weights + 6144};
    c->k->bf16_attn_scores(x, 64, c->m, k, k, 16, 64, sums);
}

static void run_values(const call *c) {
    const void *const v[4] = {weights, weights + 2048, weights + 4096, weights + 6144};
    c->k->bf16_attn_values(x, 64, c->m, v, v, 0, 64, 64, sums, 64);
}

static void run_softmax(const call *c) {
    const pgd_cpu_score how = {.scale = 0.125f};
    float max[MOST_ROWS], sum[MOST_ROWS];
    c->k->f32_softmax_64(sums, c->m, 0, 64, &how, 0.0f, 0.0f, max, sum);
}

// One line: shares of the peak (NULL: nanoseconds a row) for each number of rows.
static void time_line(const char *name, call *c, double ops_a_row, const pgd_cpu_dot *peak) {
    printf("  %-20s", name);
    for (int32_t i = 0; i < N_COUNTS; i++) {
        double best = 1e9, most = 0;
        c->m = row_counts[i];
        for (int32_t n = 0; n < CALLS; n++) {
            const double start = seconds_now();
            c->run(c);
            const double spent = seconds_now() - start;
            const double rate = peak != NULL && n % 8 == 0 ? peak_once(peak) : 0;
            best = spent < best ? spent : best;
            most = rate > most ? rate : most;
        }
        if (peak != NULL) {
            printf(" %6.1f %%", 100 * ops_a_row * (double)c->m / best / most);
        } else {
            printf(" %6.1f ns", best * 1e9 / (double)c->m);
        }
    }
    printf("\n");
}

static int wanted(int argc, char **argv, const char *name) {
    return argc < 2 || strstr(name, argv[1]) != NULL;
}

static void time_products(int argc, char **argv, const pgd_cpu_kernels *k,
                          const pgd_cpu_limits *l) {
    call c = {.k = k, .run = run_product};
    const double ops = 2.0 * DEPTH * PGD_CPU_PANEL;
    for (const pgd_cpu_product *p = pgd_cpu_products; p->name != NULL; p++) {
        const int bf16 = p->x_dtype == PGD_BF16;
        c.product = pgd_cpu_product_at(k, p);
        c.x = bf16 ? (const void *)rounded : x;
        c.ldx = DEPTH;
        if (wanted(argc, argv, p->name)) {
            time_line(p->name, &c, ops, bf16 && l->bf16.run != NULL ? &l->bf16 : &l->f32);
        }
    }
    for (const pgd_cpu_quant_product *p = pgd_cpu_quant_products; p->name != NULL; p++) {
        c.product = pgd_cpu_quant_product_of(k, p->scheme);
        c.x = blocks;
        c.ldx = DEPTH / 32;
        if (wanted(argc, argv, p->name)) {
            time_line(p->name, &c, ops, l->i8.run != NULL ? &l->i8 : &l->f32);
        }
    }
}

static void time_attention(int argc, char **argv, const pgd_cpu_kernels *k,
                           const pgd_cpu_limits *l) {
    call c = {.k = k, .run = run_scores};
    if (wanted(argc, argv, "bf16_attn_scores")) {
        time_line("bf16_attn_scores", &c, 2.0 * 64 * 64, &l->f32);
    }
    c.run = run_values;
    if (wanted(argc, argv, "bf16_attn_values")) {
        time_line("bf16_attn_values", &c, 2.0 * 64 * 64, &l->f32);
    }
    c.run = run_softmax;
    if (wanted(argc, argv, "f32_softmax_64")) {
        time_line("f32_softmax_64", &c, 0, NULL);
    }
}

int main(int argc, char **argv) {
    for (size_t i = 0; i < sizeof(x) / sizeof(x[0]); i++) {
        x[i] = (float)(i % 17) * 0.0625f - 0.5f;
    }
    for (const char *const *isa = pgd_cpu_isas; *isa != NULL; isa++) {
        const pgd_cpu_kernels *k = pgd_cpu_pick(*isa);
        pgd_cpu_limits l;
        if (k == NULL) {
            printf("%s: not on this machine\n", *isa);
            continue;
        }
        pgd_cpu_limits_of(k, &l);
        k->bf16_round(x, rounded, MOST_ROWS * DEPTH);
        k->int8_round(x, blocks, MOST_ROWS * DEPTH);
        printf("%s: share of the core's peak, rows", *isa);
        for (int32_t i = 0; i < N_COUNTS; i++) {
            printf(" %d", (int)row_counts[i]);
        }
        printf("\n");
        time_products(argc, argv, k, &l);
        time_attention(argc, argv, k, &l);
    }
    return 0;
}
