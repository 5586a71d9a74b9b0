// Ops of the null device: all of them, none of them computes. argmax, sample and head_sample give
// tokens that depend only on the token before and its position, so a request gets the same text
// under any load. Its distribution has all its mass on that token.
#include "null.h"

#include <math.h>
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

static pgd_status null_embed(const pgd_exec *x, const pgd_embed_args *a) {
    pgd_batch_head head;
    memcpy(&head, array(a->batch, 0), sizeof(head));
    x->queue->tokens += head.n_tokens > 0 ? (uint64_t)head.n_tokens : 0;
    return skip(x);
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

// The script from its beginning behind a prompt, its next id behind one of its own; behind its end
// the last id for ever.
static int32_t script_token(null_backend *self, int32_t slot, int32_t is_decode, int64_t vocab) {
    int32_t *at = &self->script_at[slot < 0 ? 0 : slot % NULL_SLOTS];
    *at = is_decode ? *at + 1 : 0;
    const int32_t token = self->script[*at < self->n_script ? *at : self->n_script - 1];
    return token < vocab ? token : 0;
}

// Where an op leaves what it has drawn.
typedef struct outputs {
    const pgd_tensor *ids;
    const pgd_tensor *logprobs;
    const pgd_tensor *top_ids;
    const pgd_tensor *ranks;
} outputs;

static void put(const pgd_tensor *t, int32_t row, int32_t column, const void *value) {
    if (t->rank > 0) {
        int64_t at = (int64_t)row * t->stride[0] + column;
        memcpy(null_at(t->buffer, t->offset + (uint64_t)at * 4), value, 4);
    }
}

// The drawn token has probability 1, the others 0, lowest id first.
static void put_logprobs(const outputs *to, int32_t row, int32_t n, int32_t token, int32_t drawn,
                         int64_t vocab) {
    const float certain = 0.0f;
    const float never = -INFINITY;
    const int32_t rank = token == drawn ? 1 : (int32_t)vocab;
    put(to->logprobs, row, 0, token == drawn ? &certain : &never);
    put(to->top_ids, row, 0, &token);
    put(to->ranks, row, 0, &rank);
    for (int32_t i = 0; i < n; i++) {
        int32_t id = i == 0 ? drawn : i - (i <= drawn);
        put(to->logprobs, row, 1 + i, i == 0 ? &certain : &never);
        put(to->top_ids, row, 1 + i, &id);
    }
}

static pgd_sampling sampling_of(const pgd_batch *b, int32_t row) {
    pgd_sampling s = {0};
    const unsigned char *rows = (const unsigned char *)array(b, b->sampling);
    const uint32_t n = b->sampling_stride < sizeof(s) ? b->sampling_stride : (uint32_t)sizeof(s);
    memcpy(&s, rows + (uint64_t)row * b->sampling_stride, b->sampling != 0 ? n : 0);
    return s;
}

static pgd_status draw(const pgd_exec *x, const pgd_batch *b, int64_t vocab, const outputs *to) {
    pgd_batch_head head;
    memcpy(&head, array(b, 0), sizeof(head));
    int32_t *last = array(b, b->last);
    for (int32_t r = 0; r < head.n_out && r < b->cap_out; r++) {
        int32_t row = array(b, b->out_rows)[r];
        int32_t slot = array(b, b->out_slot)[r];
        if (row < 0 || row >= b->cap_tokens || slot < -1 || slot >= b->cap_slots) {
            return NULL_FAIL(x->dev, PGD_OUT_OF_RANGE, "output %d: row %d of %d, slot %d of %d", r,
                             row, b->cap_tokens, slot, b->cap_slots);
        }
        int32_t before = array(b, b->token_ids)[row];
        if (before < 0 && -1 - before < b->cap_slots) {
            before = last[-1 - before];
        }
        int32_t position = array(b, b->positions)[row];
        null_backend *self = null_of(x->dev);
        int32_t drawn = self->tokens == TOKENS_SCRIPT
                            ? script_token(self, slot, row < head.n_decode, vocab)
                            : token_of(self->tokens, before, position, vocab);
        if (before >= 0 && before == self->nan_after) {
            drawn = -1;
        }
        const pgd_sampling s = sampling_of(b, r);
        int32_t token = (s.flags & PGD_SAMPLE_GIVEN) != 0 ? s.given : drawn;
        array(b, b->sampled)[r] = token;
        if (slot >= 0) {
            last[slot] = token;
        }
        put(to->ids, r, 0, &token);
        if ((s.flags & PGD_SAMPLE_LOGPROBS) != 0) {
            put_logprobs(to, r, s.n_logprobs, token, drawn, vocab);
        }
    }
    return skip(x);
}

static pgd_status null_argmax(const pgd_exec *x, const pgd_argmax_args *a) {
    const pgd_tensor none = {.rank = 0};
    const outputs to = {&a->out, &none, &none, &none};
    return draw(x, a->batch, a->x.shape[1], &to);
}

static pgd_status null_sample(const pgd_exec *x, const pgd_sample_args *a) {
    const outputs to = {&a->ids, &a->logprobs, &a->top_ids, &a->ranks};
    return draw(x, a->batch, a->logits.shape[1], &to);
}

static pgd_status null_head_sample(const pgd_exec *x, const pgd_head_sample_args *a) {
    const outputs to = {&a->ids, &a->logprobs, &a->top_ids, &a->ranks};
    return draw(x, a->batch, a->w->n, &to);
}

const pgd_ops *null_ops(void) {
    static const pgd_ops table = {.size = sizeof(table),
#define SLOT(name, family) .name = null_##name,
                                  PGD_OP_LIST(SLOT)
#undef SLOT
    };
    return &table;
}
