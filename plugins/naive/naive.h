// What the files of the naive plugin share: its handles, numbers and addresses.
//
//   naive.c    device, memory, queue, entry
//   handles.c  the tables of weights and of the cache
//   ops.c      the operations
#ifndef NAIVE_H
#define NAIVE_H

#include <pagoda/ops.h>
#include <pagoda/plugin.h>

#include <math.h>
#include <string.h>

#define FAIL(d, code, ...) PGD_HOST_FAIL((d)->host, (code), __VA_ARGS__)
#define MEMORY_BYTES       (UINT64_C(1) << 32)
#define MAX_DIM            1024 // of a head

struct pgd_buffer {
    unsigned char *mem;
    uint64_t bytes;
};

struct pgd_queue {
    uint64_t given; // last number given; all before it has run
};

struct pgd_weight {
    int32_t dtype;
    int32_t act_dtype; // what x is rounded to, 0 = not
    int64_t n;
    int64_t k;
    unsigned char *rows; // [n, k]
};

struct pgd_kv {
    pgd_kv_desc desc;
    unsigned char *mem;
};

extern const pgd_weight_table naive_weight_table;
extern const pgd_kv_table naive_kv_table;
extern const pgd_ops naive_ops;

uint64_t naive_block_bytes(const pgd_kv_desc *d);
// The k (0) or v (1) row [heads, dim] of a slot, block * block_tokens + offset.
unsigned char *naive_cache_row(const pgd_kv *kv, int32_t layer, int32_t which, int64_t slot);

// ---- numbers and addresses ---------------------------------------------------------------------
static inline double load(int32_t dtype, const void *base, int64_t i) {
    const unsigned char *p = (const unsigned char *)base + i * (int64_t)pgd_dtype_bytes(dtype);
    uint16_t half = 0;
    uint32_t bits = 0;
    float value = 0;
    int32_t integer = 0;
    switch (dtype) {
    case PGD_F32: memcpy(&value, p, sizeof(value)); return (double)value;
    case PGD_I32: memcpy(&integer, p, sizeof(integer)); return (double)integer;
    case PGD_BF16:
        memcpy(&half, p, sizeof(half));
        bits = (uint32_t)half << 16;
        memcpy(&value, &bits, sizeof(value));
        return (double)value;
    default: break;
    }
    memcpy(&half, p, sizeof(half)); // F16, of weights only
    const int exponent = half >> 10 & 31;
    const double size = exponent == 0 ? ldexp((double)(half & 1023), -24)
                                      : ldexp((double)((half & 1023) | 1024), exponent - 25);
    return (half & 0x8000) != 0 ? -size : size;
}

// Rounds once, to nearest, ties to even: on the way to bf16 the f32 is made odd if it is inexact.
static inline void store(int32_t dtype, void *base, int64_t i, double v) {
    unsigned char *p = (unsigned char *)base + i * (int64_t)pgd_dtype_bytes(dtype);
    float value = (float)v;
    uint32_t bits = 0;
    if (dtype == PGD_F32) {
        memcpy(p, &value, sizeof(value));
        return;
    }
    memcpy(&bits, &value, sizeof(bits));
    if (value != value) {
        bits = UINT32_C(0x7fc00000);
    } else {
        if ((double)value != v && !isinf(value)) {
            bits = (bits - (fabs((double)value) > fabs(v) ? 1u : 0u)) | 1u;
        }
        bits += 0x7fff + (bits >> 16 & 1);
    }
    const uint16_t half = (uint16_t)(bits >> 16);
    memcpy(p, &half, sizeof(half));
}

static inline unsigned char *address(const pgd_buffer *b, uint64_t offset) {
    return b == NULL ? (unsigned char *)(uintptr_t)offset : b->mem + offset;
}

// The row at the leading indices i (and j, of a tensor of rank 3).
static inline void *at(const pgd_tensor *t, int64_t i, int64_t j) {
    int64_t e = t->rank > 1 ? i * t->stride[0] : 0;
    e += t->rank > 2 ? j * t->stride[1] : 0;
    return address(t->buffer, t->offset) + e * (int64_t)pgd_dtype_bytes(t->dtype);
}

static inline const float *vector(const pgd_tensor *t) {
    return t->rank == 0 ? NULL : (const float *)at(t, 0, 0);
}

// An array of the batch's block, NULL when it is absent.
static inline int32_t *array(const pgd_batch *b, uint64_t offset) {
    unsigned char *base = b->mem != NULL ? b->mem->mem : (unsigned char *)(uintptr_t)b->mirror;
    return offset == 0 ? NULL : (int32_t *)(void *)(base + offset);
}

static inline const pgd_batch_head *head_of(const pgd_batch *b) {
    return b->mem != NULL ? (const pgd_batch_head *)(void *)b->mem->mem : b->mirror;
}

// Live rows of an op whose first tensor has shape0 of them.
static inline int64_t live(const pgd_batch *b, int32_t rows, int64_t shape0) {
    return rows == PGD_ROWS_TOKENS    ? head_of(b)->n_tokens
           : rows == PGD_ROWS_OUTPUTS ? head_of(b)->n_out
                                      : shape0;
}

// What this file does not know of a newer host's struct must be zero.
#define KNOWN(d, T, p)                                                                     \
    do {                                                                                   \
        if (!pgd_args_tail_is_zero((p), (p)->size, (uint32_t)sizeof(T))) {                 \
            return FAIL((d), PGD_UNSUPPORTED, "naive: %s has fields of a newer host", #T); \
        }                                                                                  \
    } while (0)

// The args of an op, whichever size the host's have.
#define OP_ARGS(T)                         \
    T local;                               \
    const T *a = PGD_ARGS(T, local, args); \
    KNOWN(x->dev, T, args);

#endif
