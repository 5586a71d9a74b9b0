// What the files of level 4 share: the device's own limits, as it reaches them itself.
#ifndef PGD_TESTS_CONFORM_FAST_H
#define PGD_TESTS_CONFORM_FAST_H

#include "engine.h"

// A product of 512 rows by weights of bf16.
typedef struct fast_product {
    pgd_weight_desc desc;
    pgd_weight_part part;
    pgd_weight *w;
    pgd_gemm_args args;
    pgd_batch batch;
    pgd_exec *x;
    pgd_queue *q;
} fast_product;

typedef struct fast_limits {
    fast_product product;
    pgd_queue *q;
    pgd_buffer *from, *to;
} fast_limits;

typedef struct fast_peak {
    double copy; // bytes read and written a second
    double gemm; // operations a second
} fast_peak;

double fast_seconds_since(uint64_t start);
// Takes 512 MiB and a weight of 32 MiB on the device that is open.
void fast_limits_make(conform *c, fast_limits *l);
fast_peak fast_limits_read(conform *c, fast_limits *l);

// A line of the data sheet.
void conform_rate(conform *c, const char *name, const char *fmt, ...) PGD_PRINTF(3, 4);

#endif
