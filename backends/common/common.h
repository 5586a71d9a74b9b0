// What every backend of this tree asks before it works, written once: do the shapes of an op fit,
// the description of a weight, a cache, an image of its blocks, a copy. Where backends differ
// stands in their rules. Nothing here knows a device, holds memory or fails by itself: an answer is
// a code and a sentence, and the caller says whose it is.
//
// The functions are hidden in each plugin. They may be called from any thread.
#ifndef PGD_BACKENDS_COMMON_COMMON_H
#define PGD_BACKENDS_COMMON_COMMON_H

#include <stdbool.h>

#include <pagoda/ops.h>
#include <pagoda/plugin.h>

struct common_check;

// What a backend takes.
typedef struct common_rules {
    uint32_t acts;     // 1 << dtype of activations
    uint32_t rounded;  // besides: what x of a product may be already that is rounded to it anyway,
                       // and out of gate_up, which is for such a product
    uint32_t rows;     // 1 << dtype of rows that gather_rows moves
    int32_t head_most; // dims of a head, at most 4096
    int64_t n_most;    // rows of a weight
    int64_t k_most;    // columns of a weight
    bool int8_cache;   // PGD_I8 with a scale a head of a token
    // Whether it rounds activations as the weight asks (act_dtype).
    bool (*rounding)(struct common_check *c, const pgd_weight_desc *w);
} common_rules;

// A question; after a "no" it holds why.
typedef struct common_check {
    const common_rules *rules; // those of copies and images need none
    pgd_status code;
    char reason[96];
} common_check;

// Puts the answer "no".
bool common_refuse(common_check *c, pgd_status code, const char *fmt, ...) PGD_PRINTF(3, 4);

// ---- check.c: ops and what they read -----------------------------------------------------------

// Whether op number `op` takes these shapes. args: as large as this version's struct; w and kv as
// the op needs them, else NULL.
bool common_check_op(common_check *c, int32_t op, const void *args, const pgd_weight_desc *w,
                     const pgd_kv_desc *kv);
bool common_check_weight(common_check *c, const pgd_weight_desc *w);
// Bounds each number, so that the bytes of a block fit in 64 bits.
bool common_check_kv(common_check *c, const pgd_kv_desc *kv);

// Part i of a desc, with the desc's scheme and dtype where it has none of its own; fields that a
// smaller caller does not have are zero.
pgd_weight_part common_weight_part(const pgd_weight_desc *w, uint32_t i);
// The args of sample at the end of head_sample.
pgd_sample_args common_sample_of(const pgd_head_sample_args *a);

// The largest of the args structs, for those of an older caller.
typedef union common_args {
    uint64_t align;
#define COMMON_ARGS_MEMBER(name, family) pgd_##name##_args name;
    PGD_OP_LIST(COMMON_ARGS_MEMBER)
#undef COMMON_ARGS_MEMBER
} common_args;

// The args of a query as this version knows them, in *local or where they are; NULL: refused.
const common_args *common_query_args(common_check *c, const pgd_query *q, common_args *local);
// "gemm"; op is a number of an op.
const char *common_op_name(int32_t op);

// ---- move.c: blocks, images, copies ------------------------------------------------------------

bool common_check_pairs(common_check *c, const pgd_pair *pairs, uint32_t n, int32_t n_blocks);
// out_bytes: what the image takes; its memory is as long, at least.
bool common_check_image(common_check *c, const pgd_kv_desc *kv, int32_t n_blocks,
                        uint64_t block_bytes, const pgd_kv_image *a, uint64_t *out_bytes);
// Bytes from the first to the last touched byte of both sides of a copy.
bool common_check_copy(common_check *c, const pgd_copy *copy, uint64_t *out_dst, uint64_t *out_src);
// A fill is of whole words.
bool common_check_fill(common_check *c, const pgd_range *range);

#endif
