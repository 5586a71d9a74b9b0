// Types that cross the plugin boundary: dtypes, tensors, copies and the batch of a step.
//
// Rules for every struct here and in backend.h, ops.h and plugin.h:
//   - plain data, 64-bit little-endian, fixed-width integers, explicit padding, zero = default
//   - structs that begin with `size` are passed by pointer only and may grow at their end
//   - structs without `size` are leaves: frozen, passed by value or in arrays
//   - strings are UTF-8 and end with NUL
#ifndef PAGODA_TYPES_H
#define PAGODA_TYPES_H

#include <stddef.h>
#include <stdint.h>

#include <pagoda/status.h>

#ifdef __cplusplus
extern "C" {
#endif

#define PGD_MAX_RANK   4
#define PGD_MAX_GROUPS 8

// X(NAME, number, bytes per element, name in files)
// I8 since 0.2: elements of int8 weights and caches, beside their scales.
#define PGD_DTYPE_LIST(X) \
    X(F32, 1, 4, "f32")   \
    X(BF16, 2, 2, "bf16") \
    X(F16, 3, 2, "f16")   \
    X(I32, 4, 4, "i32")   \
    X(I8, 5, 1, "int8")

enum {
    PGD_DTYPE_NONE = 0,
#define PGD_DTYPE_ENUM(name, number, bytes, text) PGD_##name = number,
    PGD_DTYPE_LIST(PGD_DTYPE_ENUM)
#undef PGD_DTYPE_ENUM
};

// Bytes of one element; 0 for a number that is no dtype.
static inline uint32_t pgd_dtype_bytes(int32_t dtype) {
    switch (dtype) {
#define PGD_DTYPE_CASE(name, number, bytes, text) \
    case number: return bytes;
        PGD_DTYPE_LIST(PGD_DTYPE_CASE)
#undef PGD_DTYPE_CASE
    default: return 0;
    }
}

// Name of a dtype as users write it; "?" for a number that is no dtype.
static inline const char *pgd_dtype_name(int32_t dtype) {
    switch (dtype) {
#define PGD_DTYPE_CASE(name, number, bytes, text) \
    case number: return text;
        PGD_DTYPE_LIST(PGD_DTYPE_CASE)
#undef PGD_DTYPE_CASE
    default: return "?";
    }
}

// How a weight is stored: blocks along the columns of a row-major matrix, rows one under the other,
// the bytes of a block as GGUF v3 (ggml) defines them. Since 0.2.
// X(NAME, number, elements per block, bytes per block, name in files)
#define PGD_SCHEME_LIST(X)          \
    X(Q8_0, 1, 32, 34, "q8_0")      \
    X(Q4_0, 2, 32, 18, "q4_0")      \
    X(Q4_1, 3, 32, 20, "q4_1")      \
    X(Q5_0, 4, 32, 22, "q5_0")      \
    X(Q5_1, 5, 32, 24, "q5_1")      \
    X(Q2_K, 6, 256, 84, "q2_k")     \
    X(Q3_K, 7, 256, 110, "q3_k")    \
    X(Q4_K, 8, 256, 144, "q4_k")    \
    X(Q5_K, 9, 256, 176, "q5_k")    \
    X(Q6_K, 10, 256, 210, "q6_k")   \
    X(IQ4_NL, 11, 32, 18, "iq4_nl") \
    X(MXFP4, 12, 32, 17, "mxfp4")

enum {
    PGD_SCHEME_PLAIN = 0, // elements of `dtype`, row-major
#define PGD_SCHEME_ENUM(name, number, elements, bytes, text) PGD_SCHEME_##name = number,
    PGD_SCHEME_LIST(PGD_SCHEME_ENUM)
#undef PGD_SCHEME_ENUM
        PGD_SCHEME_INT8 = 64, // elements of PGD_I8 row-major; `scales`: f32 [rows], w = q * scale
    PGD_SCHEME_PARTS = 65,    // each part has a scheme (and, when plain, a dtype) of its own
};

// Elements of a block of a scheme made of blocks; 0 for any other number.
static inline uint32_t pgd_scheme_elements(int32_t scheme) {
    switch (scheme) {
#define PGD_SCHEME_CASE(name, number, elements, bytes, text) \
    case number: return elements;
        PGD_SCHEME_LIST(PGD_SCHEME_CASE)
#undef PGD_SCHEME_CASE
    default: return 0;
    }
}

// Bytes of a block of a scheme made of blocks; 0 for any other number.
static inline uint32_t pgd_scheme_bytes(int32_t scheme) {
    switch (scheme) {
#define PGD_SCHEME_CASE(name, number, elements, bytes, text) \
    case number: return bytes;
        PGD_SCHEME_LIST(PGD_SCHEME_CASE)
#undef PGD_SCHEME_CASE
    default: return 0;
    }
}

// Name of a scheme as users write it; "?" for a number that is no scheme.
static inline const char *pgd_scheme_name(int32_t scheme) {
    switch (scheme) {
    case PGD_SCHEME_PLAIN: return "plain";
    case PGD_SCHEME_INT8: return "int8";
    case PGD_SCHEME_PARTS: return "mixed";
#define PGD_SCHEME_CASE(name, number, elements, bytes, text) \
    case number: return text;
        PGD_SCHEME_LIST(PGD_SCHEME_CASE)
#undef PGD_SCHEME_CASE
    default: return "?";
    }
}

// Handles: made by a backend, opaque to everybody else.
typedef struct pgd_buffer pgd_buffer;
typedef struct pgd_queue pgd_queue;
typedef struct pgd_weight pgd_weight;
typedef struct pgd_kv pgd_kv;
typedef struct pgd_graph pgd_graph;

// A part of a buffer. buffer NULL: `offset` is a host address.
typedef struct pgd_range {
    pgd_buffer *buffer;
    uint64_t offset; // bytes
    uint64_t bytes;
} pgd_range;

// A view of memory, by value in op arguments. Leaf, 88 bytes.
// buffer NULL: `offset` is a host address (0 while planning: only the shape counts).
// rank 0: the tensor is absent.
typedef struct pgd_tensor {
    pgd_buffer *buffer;
    uint64_t offset; // bytes
    int32_t dtype;
    uint32_t rank;
    int64_t shape[PGD_MAX_RANK];
    int64_t stride[PGD_MAX_RANK]; // elements; the last one is 1
} pgd_tensor;

// One copy of a list: `rows` rows of `bytes` each (rows 0 or 1: one piece).
typedef struct pgd_copy {
    pgd_buffer *dst; // NULL: dst_offset is a host address
    uint64_t dst_offset;
    pgd_buffer *src; // NULL: src_offset is a host address
    uint64_t src_offset;
    uint64_t bytes;
    uint64_t rows;
    uint64_t dst_pitch; // bytes from row to row
    uint64_t src_pitch;
} pgd_copy;

// Where bytes come from: exactly one of ptr, buffer, file is set.
typedef struct pgd_source {
    const void *ptr;
    pgd_buffer *buffer;
    const char *file; // path; read at offset
    uint64_t offset;  // into buffer or file
    uint64_t bytes;
} pgd_source;

typedef struct pgd_pair {
    int32_t from;
    int32_t to;
} pgd_pair;

// An asynchronous fault as queue.status reports it.
typedef struct pgd_fault {
    pgd_status code;
    int32_t op;    // PGD_OP_..., -1 unknown
    int32_t layer; // -1 unknown
    uint32_t flags;
    int64_t value; // meaning depends on code; 0 unknown
} pgd_fault;

// Live counts of a step: the first 64 bytes of the batch block on the device (and of its mirror).
typedef struct pgd_batch_head {
    int32_t n_tokens; // rows of the step
    int32_t n_seqs;   // sequences; those with one row and output come first
    int32_t n_decode; // the first n_decode sequences have exactly one row
    int32_t n_out;    // rows that give logits
    int32_t max_q;    // most rows of one sequence
    int32_t max_kv;   // longest kv_len
    int32_t reserved[10];
} pgd_batch_head;

enum {
    PGD_SAMPLE_GREEDY = 1u << 0,   // take the largest logit, lowest id on a tie
    PGD_SAMPLE_LOGPROBS = 1u << 1, // log probabilities of the token and of the n_logprobs best
    PGD_SAMPLE_GIVEN = 1u << 2,    // the token is `given`; nothing is drawn (prompt logprobs)
};

// One entry of the batch's bias array: add -INFINITY to forbid a token.
typedef struct pgd_bias {
    int32_t id;
    float add;
} pgd_bias;

// Sampling parameters of one output row; rows lie `sampling_stride` bytes apart.
// The order of the steps is: log probabilities of the logits as they are, mask, bias, penalties,
// then the largest (GREEDY) or temperature, min_p, top_k, top_p, draw; last the count in `state`.
typedef struct pgd_sampling {
    float temperature;  // > 0 unless GREEDY
    float top_p;        // 0 or 1 = off
    float min_p;        // 0 = off
    float typical_p;    // 0 or 1 = off
    float repetition;   // 0 or 1 = off
    float presence;     // 0 = off
    float frequency;    // 0 = off
    int32_t top_k;      // 0 = off
    uint64_t seed;      // key of Philox4x32-10
    uint64_t counter;   // position of the token to draw
    uint32_t flags;     // PGD_SAMPLE_...
    int32_t mask_row;   // row of the mask array + 1, 0 = none
    int32_t state_row;  // row of the token count state + 1, 0 = none
    int32_t bias_start; // first entry in the bias array
    int32_t bias_count;
    int32_t n_logprobs; // with LOGPROBS: best entries wanted beside the token
    int32_t given;      // with GIVEN: the token
    int32_t reserved0;
} pgd_sampling;

// The batch: one block of i32 arrays on the device, laid out by the host, at fixed addresses.
// Caps are frozen for the life of the struct; live counts are in pgd_batch_head.
//
//   mem:  | head 64 B | token_ids | positions | q_start | ... | last | sampled |
//         ^ 0           ^ byte offsets below; 0 = array absent
//
// Of the first upload_bytes everything that changed travels to the device in each step; block
// tables, last and sampled lie behind that and live on the device. `mirror` is the host's copy of
// this step.
// mem NULL: `mirror` is the whole block in host memory, and ops write last and sampled there.
typedef struct pgd_batch {
    uint32_t size;
    uint32_t flags;
    int32_t cap_tokens;
    int32_t cap_seqs;
    int32_t cap_out;
    int32_t cap_slots; // stable sequence slots, rows of the block tables and of last
    int32_t cap_q;
    int32_t cap_kv;
    int32_t n_groups; // kv groups, at most PGD_MAX_GROUPS
    int32_t n_axes;   // position axes, 1 for text
    uint32_t sampling_stride;
    uint32_t reserved0;
    int32_t cap_blocks[PGD_MAX_GROUPS]; // entries of a block table row
    pgd_buffer *mem;
    const void *mirror; // host copy of the first upload_bytes, valid until the next step is filled
    uint64_t upload_bytes;
    uint64_t token_ids;                   // [cap_tokens] i32; -1-s = last token of slot s
    uint64_t positions;                   // [n_axes, cap_tokens] i32
    uint64_t q_start;                     // [cap_seqs + 1] i32, first row of each sequence
    uint64_t kv_len;                      // [cap_seqs] i32, tokens in the cache after this step
    uint64_t out_rows;                    // [cap_out] i32, token rows that give logits
    uint64_t out_slot;                    // [cap_out] i32, slot of `last` to write, -1 = none
    uint64_t seq_slot;                    // [cap_seqs] i32
    uint64_t adapter;                     // [cap_seqs] i32, 0 = none
    uint64_t sampling;                    // [cap_out] pgd_sampling
    uint64_t block_table[PGD_MAX_GROUPS]; // [cap_slots, cap_blocks[g]] i32, on the device only
    uint64_t slots[PGD_MAX_GROUPS];       // [cap_tokens] i32, block * block_tokens + offset
    uint64_t mask;                        // [rows, ceil(vocab / 32)] u32, bit 1 = allowed
    uint64_t bias;                        // [entries] pgd_bias
    uint64_t tree;                        // attention tree of drafts
    uint64_t last;                        // [cap_slots] i32, on the device only
    uint64_t sampled;                     // [cap_out] i32, on the device only
} pgd_batch;

#ifdef __cplusplus
}
#endif
#endif
