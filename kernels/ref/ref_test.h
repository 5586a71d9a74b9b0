// What the tests of this room share: tensors over host arrays and a small batch block.
#ifndef PGD_KERNELS_REF_TEST_H
#define PGD_KERNELS_REF_TEST_H

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "ref/common.h"

enum { TOKENS = 16, SEQS = 4, SLOTS = 6, BLOCKS = 12, OUTPUTS = 8 };

// A batch block as the host would lay it out.
typedef struct block {
    pgd_batch_head head;
    int32_t token_ids[TOKENS];
    int32_t positions[2][TOKENS];
    int32_t q_start[SEQS + 1];
    int32_t kv_len[SEQS];
    int32_t out_rows[OUTPUTS];
    int32_t out_slot[OUTPUTS];
    int32_t seq_slot[SEQS];
    int32_t slots[TOKENS];
    pgd_sampling sampling[OUTPUTS];
    uint32_t mask[2][2]; // rows of up to 64 tokens
    pgd_bias bias[4];
    int32_t table[SLOTS][BLOCKS];
    int32_t last[SLOTS];
    int32_t sampled[OUTPUTS];
} block;

static inline pgd_batch batch_of(block *b) {
    return (pgd_batch){.size = sizeof(pgd_batch),
                       .cap_tokens = TOKENS,
                       .cap_seqs = SEQS,
                       .cap_out = OUTPUTS,
                       .cap_slots = SLOTS,
                       .n_groups = 1,
                       .n_axes = 2,
                       .sampling_stride = sizeof(pgd_sampling),
                       .cap_blocks = {BLOCKS},
                       .mirror = b,
                       .upload_bytes = offsetof(block, table),
                       .token_ids = offsetof(block, token_ids),
                       .positions = offsetof(block, positions),
                       .q_start = offsetof(block, q_start),
                       .kv_len = offsetof(block, kv_len),
                       .out_rows = offsetof(block, out_rows),
                       .out_slot = offsetof(block, out_slot),
                       .seq_slot = offsetof(block, seq_slot),
                       .sampling = offsetof(block, sampling),
                       .mask = offsetof(block, mask),
                       .bias = offsetof(block, bias),
                       .block_table = {offsetof(block, table)},
                       .slots = {offsetof(block, slots)},
                       .last = offsetof(block, last),
                       .sampled = offsetof(block, sampled)};
}

// Dense tensors; a leading stride can be set afterwards.
static inline pgd_tensor tensor3(int32_t dtype, void *p, int64_t a, int64_t b, int64_t c) {
    return (pgd_tensor){.offset = (uint64_t)(uintptr_t)p,
                        .dtype = dtype,
                        .rank = 3,
                        .shape = {a, b, c},
                        .stride = {b * c, c, 1}};
}

static inline pgd_tensor tensor2(int32_t dtype, void *p, int64_t a, int64_t b) {
    return (pgd_tensor){.offset = (uint64_t)(uintptr_t)p,
                        .dtype = dtype,
                        .rank = 2,
                        .shape = {a, b},
                        .stride = {b, 1}};
}

static inline pgd_tensor tensor1(int32_t dtype, void *p, int64_t a) {
    return (pgd_tensor){
        .offset = (uint64_t)(uintptr_t)p, .dtype = dtype, .rank = 1, .shape = {a}, .stride = {1}};
}

// The numbers the tests feed in: multiples of 1/8 up to 11/8, exact in every dtype. `seed` tells
// tensors apart. Expectations in the tests were computed from the same numbers with numpy 1.24 and
// scipy in float64, by the formulas of the papers and of transformers.
static inline double number(int64_t i, int64_t seed) {
    return (double)((i * 37 + seed * 11) % 23 - 11) / 8;
}

static inline void fill(int32_t dtype, void *p, int64_t n, int64_t seed) {
    int64_t i;
    for (i = 0; i < n; i++) {
        pgd_ref_store(dtype, p, i, number(i, seed));
    }
}

// f32 results against doubles from elsewhere: half a unit in the last place, and a little room for
// the printed digits.
static inline void assert_close(const float *got, const double *want, size_t n) {
    size_t i;
    for (i = 0; i < n; i++) {
        double room = fabs(want[i]) * 6.1e-8 + 1e-12;
        if (!(fabs((double)got[i] - want[i]) <= room)) {
            fail_msg("element %zu is %.9g, not %.9g", i, (double)got[i], want[i]);
        }
    }
}

#endif
