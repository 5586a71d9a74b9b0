// Ops of the null device: all of them, none of them computes. argmax, sample and head_sample give
// tokens that depend only on the token before and its position, so a request gets the same text
// under any load.
#include "null.h"

#include <string.h>

static pgd_status skip(const pgd_exec *x) {
    x->queue->launches++;
    return PGD_OK;
}

#define SKIP(name)                                                                 \
    static pgd_status null_##name(const pgd_exec *x, const pgd_##name##_args *a) { \
        (void)a;                                                                   \
        return skip(x);                                                            \
    }
SKIP(embed)
SKIP(gather_rows)
SKIP(rmsnorm)
SKIP(rope)
SKIP(gemm)
SKIP(kv_write)
SKIP(attn_plan)
SKIP(attn)
SKIP(act_mul)
SKIP(add)
SKIP(add_rmsnorm)
SKIP(qkv_rope_write)
SKIP(gate_up)
SKIP(gemm_add)

// ---- tokens ------------------------------------------------------------------------------------

// The block's arrays, wherever it lies.
static int32_t *array(const pgd_batch *b, uint64_t offset) {
    unsigned char *block = b->mem == NULL ? (unsigned char *)(uintptr_t)b->mirror : b->mem->mem;
    return (int32_t *)(void *)(block + offset);
}

// SplitMix64's finisher (Steele, Lea, Flood 2014).
static uint64_t mix(uint64_t z) {
    z += UINT64_C(0x9e3779b97f4a7c15);
    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return z ^ (z >> 31);
}

// words: the middle half of the vocabulary, where no tokenizer keeps its special tokens.
static int32_t token_of(int32_t mode, int32_t before, int32_t position, int64_t vocab) {
    uint64_t hash = mix((uint64_t)(uint32_t)before << 32 | (uint32_t)position);
    uint64_t n = (uint64_t)vocab;
    if (mode == TOKENS_ZERO || n == 0) {
        return 0;
    }
    if (mode == TOKENS_HASH || n < 4) {
        return (int32_t)(hash % n);
    }
    return (int32_t)(n / 4 + hash % (n / 2));
}

static pgd_status draw(const pgd_exec *x, const pgd_batch *b, int64_t vocab,
                       const pgd_tensor *ids) {
    pgd_batch_head head;
    memcpy(&head, array(b, 0), sizeof(head));
    int32_t *last = array(b, b->last);
    for (int32_t r = 0; r < head.n_out && r < b->cap_out; r++) {
        int32_t row = array(b, b->out_rows)[r];
        int32_t slot = array(b, b->out_slot)[r];
        if (row < 0 || row >= b->cap_tokens || slot < 0 || slot >= b->cap_slots) {
            return NULL_FAIL(x->dev, PGD_OUT_OF_RANGE, "output %d: row %d of %d, slot %d of %d", r,
                             row, b->cap_tokens, slot, b->cap_slots);
        }
        int32_t before = array(b, b->token_ids)[row];
        if (before < 0 && -1 - before < b->cap_slots) {
            before = last[-1 - before];
        }
        int32_t position = array(b, b->positions)[row];
        int32_t token = token_of(null_of(x->dev)->tokens, before, position, vocab);
        array(b, b->sampled)[r] = token;
        last[slot] = token;
        if (ids->rank > 0) {
            uint64_t at = ids->offset + (uint64_t)r * (uint64_t)ids->stride[0] * sizeof(token);
            memcpy(null_at(ids->buffer, at), &token, sizeof(token));
        }
    }
    return skip(x);
}

static pgd_status null_argmax(const pgd_exec *x, const pgd_argmax_args *a) {
    return draw(x, a->batch, a->x.shape[1], &a->out);
}

static pgd_status null_sample(const pgd_exec *x, const pgd_sample_args *a) {
    return draw(x, a->batch, a->logits.shape[1], &a->ids);
}

static pgd_status null_head_sample(const pgd_exec *x, const pgd_head_sample_args *a) {
    return draw(x, a->batch, a->w->n, &a->ids);
}

const pgd_ops *null_ops(void) {
    static const pgd_ops table = {.size = sizeof(table),
#define SLOT(name, family) .name = null_##name,
                                  PGD_OP_LIST(SLOT)
#undef SLOT
    };
    return &table;
}
