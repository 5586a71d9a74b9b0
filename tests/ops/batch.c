// The batch of a case: a block with every array, the same on both sides.
#include "ops.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { VOCAB = 1000 };

static uint64_t place(uint64_t *at, uint64_t bytes) {
    uint64_t offset = *at;
    *at = (offset + bytes + 63) / 64 * 64;
    return offset;
}

static uint64_t mask_words(const ops_batch_spec *spec) {
    return ((uint64_t)spec->vocab + 31) / 32;
}

// Caps and offsets; gives the bytes of the block.
static uint64_t lay_out(pgd_batch *b, const ops_batch_spec *spec) {
    const uint64_t i32 = sizeof(int32_t);
    int32_t rows = 0, most = 1, i;
    uint64_t at = sizeof(pgd_batch_head), tokens, seqs = OPS_SEQS;
    for (i = 0; i < spec->n_seqs; i++) {
        rows += spec->seqs[i].rows;
        most = spec->seqs[i].kv_len > most ? spec->seqs[i].kv_len : most;
    }
    *b = (pgd_batch){.size = sizeof(pgd_batch),
                     .cap_tokens = spec->cap_tokens > rows ? spec->cap_tokens : rows,
                     .cap_seqs = OPS_SEQS,
                     .cap_out = OPS_SEQS,
                     .cap_slots = OPS_SEQS,
                     .cap_kv = most,
                     .n_groups = 1,
                     .n_axes = spec->n_axes > 0 ? spec->n_axes : 1,
                     .sampling_stride = sizeof(pgd_sampling)};
    b->cap_tokens = b->cap_tokens > 0 ? b->cap_tokens : 1;
    b->cap_q = b->cap_tokens;
    b->cap_blocks[0] = most / (spec->block_tokens > 0 ? spec->block_tokens : 16) + 2;
    tokens = (uint64_t)b->cap_tokens;
    b->token_ids = place(&at, tokens * i32);
    b->positions = place(&at, tokens * (uint64_t)b->n_axes * i32);
    b->q_start = place(&at, (seqs + 1) * i32);
    b->kv_len = place(&at, seqs * i32);
    b->out_rows = place(&at, seqs * i32);
    b->out_slot = place(&at, seqs * i32);
    b->seq_slot = place(&at, seqs * i32);
    b->slots[0] = place(&at, tokens * i32);
    b->sampling = place(&at, seqs * sizeof(pgd_sampling));
    if (spec->lists) {
        b->mask = place(&at, seqs * mask_words(spec) * sizeof(uint32_t));
        b->bias = place(&at, seqs * OPS_BIASES * sizeof(pgd_bias));
    }
    b->upload_bytes = at;
    b->block_table[0] = place(&at, seqs * (uint64_t)b->cap_blocks[0] * i32);
    b->last = place(&at, seqs * i32);
    b->sampled = place(&at, seqs * i32);
    return at;
}

void *ops_array(const ops_fixture *f, uint64_t offset) {
    return f->memories[f->block].host + offset;
}

// Gives each sequence blocks of its own, in shuffled order; block 0 is nobody's.
static void give_blocks(ops_fixture *f, const ops_batch_spec *spec) {
    const pgd_batch *b = &f->batch[OPS_HOST];
    int32_t *table = ops_array(f, b->block_table[0]);
    int32_t order[4096];
    int32_t n = 0, used = 0, i, j, keep;
    for (i = 0; i < spec->n_seqs; i++) {
        n += (spec->seqs[i].kv_len + spec->block_tokens - 1) / spec->block_tokens;
    }
    if (n >= 4096) {
        ops_fail(f, "%d blocks are too many", (int)n);
        f->broken = 1;
        return;
    }
    for (i = 0; i < n; i++) {
        order[i] = i + 1;
    }
    for (i = n - 1; i > 0; i--) {
        j = (int32_t)ops_between(&f->rng, 0, i);
        keep = order[i], order[i] = order[j], order[j] = keep;
    }
    for (i = 0; i < spec->n_seqs; i++) {
        const ops_seq *s = &spec->seqs[i];
        for (j = 0; j * spec->block_tokens < s->kv_len; j++) {
            table[s->slot * b->cap_blocks[0] + j] = order[used++];
        }
    }
    f->n_blocks = n + 1;
}

// Rows of one sequence: ids, positions, slots.
static void fill_rows(ops_fixture *f, const ops_batch_spec *spec, const ops_seq *s, int32_t start) {
    const pgd_batch *b = &f->batch[OPS_HOST];
    int32_t *ids = ops_array(f, b->token_ids), *slots = ops_array(f, b->slots[0]);
    int32_t *positions = ops_array(f, b->positions);
    const int32_t *table = ops_array(f, b->block_table[0]);
    int32_t i, axis;
    for (i = 0; i < s->rows; i++) {
        int32_t p = s->kv_len - s->rows + i;
        ids[start + i] =
            (int32_t)ops_between(&f->rng, 0, spec->vocab > 0 ? spec->vocab - 1 : VOCAB);
        for (axis = 0; axis < b->n_axes; axis++) {
            positions[axis * b->cap_tokens + start + i] = axis == 0 ? p : p / (axis + 1);
        }
        slots[start + i] =
            table[s->slot * b->cap_blocks[0] + p / spec->block_tokens] * spec->block_tokens +
            p % spec->block_tokens;
    }
    if (s->rows == 1) { // a decode takes what was drawn before
        ids[start] = -1 - s->slot;
    }
}

// Few, half, most, all or none of the bits set; also those behind the vocabulary.
static void fill_mask(ops_fixture *f, uint32_t *row, uint64_t words) {
    const int64_t kind = ops_between(&f->rng, 0, 11);
    uint64_t i;
    for (i = 0; i < words; i++) {
        uint64_t a = ops_next(&f->rng), b = ops_next(&f->rng);
        row[i] = (uint32_t)(kind < 3    ? a & b & a >> 32
                            : kind < 6  ? a
                            : kind < 9  ? a | b
                            : kind < 11 ? UINT64_MAX
                                        : 0);
    }
}

static void fill_lists(ops_fixture *f, const ops_batch_spec *spec) {
    static const float adds[] = {-100, 100, -2, 0.5F, 0};
    const pgd_batch *b = &f->batch[OPS_HOST];
    uint32_t *mask = ops_array(f, b->mask);
    pgd_bias *bias = ops_array(f, b->bias);
    int32_t i;
    for (i = 0; i < OPS_SEQS; i++) {
        fill_mask(f, mask + (uint64_t)i * mask_words(spec), mask_words(spec));
    }
    for (i = 0; i < OPS_SEQS * OPS_BIASES; i++) {
        int64_t kind = ops_between(&f->rng, 0, 7);
        bias[i].id = (int32_t)ops_between(&f->rng, 0, spec->vocab - 1);
        bias[i].add = kind == 0   ? -INFINITY
                      : kind == 1 ? (float)ops_normal(&f->rng)
                                  : adds[ops_between(&f->rng, 0, 4)];
        if (i % OPS_BIASES > 0 && kind == 7) { // twice the same token
            bias[i].id = bias[i - 1].id;
        }
    }
}

void ops_batch_fill(ops_fixture *f, const ops_batch_spec *spec) {
    const pgd_batch *b = &f->batch[OPS_HOST];
    const ops_memory *m = &f->memories[f->block];
    pgd_batch_head *head = ops_array(f, 0);
    int32_t *start, i, row = 0;
    if (f->broken) {
        return;
    }
    memset(head, 0, b->upload_bytes);
    start = ops_array(f, b->q_start);
    f->n_out = 0;
    for (i = 0; i < spec->n_seqs; i++) {
        const ops_seq *s = &spec->seqs[i];
        start[i] = row;
        ((int32_t *)ops_array(f, b->kv_len))[i] = s->kv_len;
        ((int32_t *)ops_array(f, b->seq_slot))[i] = s->slot;
        fill_rows(f, spec, s, row);
        row += s->rows;
        head->n_decode += s->rows == 1 && s->out && head->n_decode == i;
        head->max_q = s->rows > head->max_q ? s->rows : head->max_q;
        head->max_kv = s->kv_len > head->max_kv ? s->kv_len : head->max_kv;
        if (s->out && s->rows > 0) {
            ((int32_t *)ops_array(f, b->out_rows))[f->n_out] = row - 1;
            ((int32_t *)ops_array(f, b->out_slot))[f->n_out] = s->hidden ? -1 : s->slot;
            ((pgd_sampling *)ops_array(f, b->sampling))[f->n_out] = spec->sampling[f->n_out];
            f->n_out++;
        }
    }
    if (spec->lists) {
        fill_lists(f, spec);
    }
    start[spec->n_seqs] = row;
    head->n_tokens = row;
    head->n_seqs = spec->n_seqs;
    head->n_out = f->n_out;
    f->n_rows = row;
    memcpy(f->mirror, m->host, b->upload_bytes);
    memcpy(m->before, m->host, m->bytes);
    ops_upload(f, m->buffer, 0, m->before, m->bytes);
}

void ops_batch(ops_fixture *f, const ops_batch_spec *given) {
    ops_batch_spec spec = *given;
    pgd_batch *b = &f->batch[OPS_HOST];
    uint64_t bytes;
    int32_t i;
    if (f->broken) {
        return;
    }
    spec.block_tokens = spec.block_tokens > 0 ? spec.block_tokens : 16;
    f->block_tokens = spec.block_tokens;
    bytes = lay_out(b, &spec);
    f->block = ops_make_block(f, bytes);
    f->mirror = malloc(b->upload_bytes);
    if (f->broken || f->mirror == NULL) {
        f->broken = 1;
        return;
    }
    f->batch[OPS_DEV] = *b;
    b->mirror = f->memories[f->block].host;
    f->batch[OPS_DEV].mem = f->memories[f->block].buffer;
    f->batch[OPS_DEV].mirror = f->mirror;
    for (i = 0; i < OPS_SEQS; i++) {
        ((int32_t *)ops_array(f, b->last))[i] = (int32_t)ops_between(&f->rng, 0, VOCAB);
    }
    give_blocks(f, &spec);
    ops_batch_fill(f, &spec);
}

void ops_may_write_tokens(ops_fixture *f) {
    const pgd_batch *b = &f->batch[OPS_HOST];
    if (!f->broken) {
        memset(f->memories[f->block].mask + b->last, 1, OPS_SEQS * sizeof(int32_t));
        memset(f->memories[f->block].mask + b->sampled, 1, OPS_SEQS * sizeof(int32_t));
    }
}

void ops_compare_tokens(ops_fixture *f) {
    const pgd_batch *b = &f->batch[OPS_HOST];
    const unsigned char *got = f->memories[f->block].got;
    if (f->broken) {
        return;
    }
    ops_compare_values(f, "last", PGD_I32, ops_array(f, b->last), got + b->last, OPS_SEQS, 1,
                       OPS_EXACT, 0);
    ops_compare_values(f, "sampled", PGD_I32, ops_array(f, b->sampled), got + b->sampled, f->n_out,
                       1, OPS_EXACT, 0);
}

ops_batch_spec ops_plain_batch(int32_t rows) {
    ops_batch_spec spec = {.block_tokens = 16};
    int32_t n = rows < OPS_SEQS ? rows : OPS_SEQS, i;
    for (i = 0; i < n; i++) {
        int32_t more = i == n - 1 ? rows - n : 0;
        spec.seqs[i] = (ops_seq){.rows = 1 + more, .kv_len = 1 + more, .slot = n - 1 - i, .out = 1};
    }
    spec.n_seqs = n;
    return spec;
}

ops_rows_case ops_draw_rows(ops_fixture *f, int64_t most) {
    static const char *const names[] = {"shape", "tokens", "outputs"};
    ops_rows_case c = {.mode = (int32_t)ops_between(&f->rng, PGD_ROWS_SHAPE, PGD_ROWS_OUTPUTS)};
    ops_batch_spec spec;
    c.live = ops_rows(&f->rng, c.mode == PGD_ROWS_OUTPUTS && most > OPS_SEQS ? OPS_SEQS : most);
    c.cap = c.live + (c.mode == PGD_ROWS_SHAPE ? 0 : ops_between(&f->rng, 0, 5));
    spec = ops_plain_batch((int32_t)c.live);
    ops_batch(f, &spec);
    ops_say(f, " %lld rows of %lld by %s", (long long)c.live, (long long)c.cap, names[c.mode]);
    return c;
}

ops_batch_spec ops_draw_batch(ops_rng *r, int32_t most_rows, int32_t most_kv) {
    static const int32_t blocks[] = {4, 8, 16, 32, 64};
    const int64_t block = ops_between(r, 0, 4);
    ops_batch_spec spec = {.block_tokens = r->small ? 64 : blocks[block]};
    int32_t n = (int32_t)ops_between(r, r->small, r->small ? 3 : 9), i;
    const int32_t n_decode = (int32_t)ops_between(r, 0, n);
    int32_t room = r->small ? 5 : most_rows;
    const int32_t shift = (int32_t)ops_between(r, 0, OPS_SEQS - 1);
    for (i = 0; i < n && room > 0; i++) {
        ops_seq *s = &spec.seqs[i];
        s->slot = (shift + 5 * i) % OPS_SEQS;
        s->rows = i < n_decode ? 1 : (int32_t)ops_between(r, 1, room < 70 ? room : 70);
        s->kv_len = s->rows;
        if (ops_between(r, 0, 2) > 0) { // a decode or a later chunk
            s->kv_len += (int32_t)ops_between(r, r->small && i == 0 ? most_kv - most_kv / 4 : 0,
                                              r->small && i > 0 ? 9 : most_kv);
        }
        s->out = i < n_decode || ops_between(r, 0, 1) == 1;
        room -= s->rows;
    }
    spec.n_seqs = i;
    spec.cap_tokens = most_rows + (int32_t)ops_between(r, 0, 9);
    return spec;
}

void ops_draw_sampling(ops_rng *r, ops_batch_spec *spec) {
    static const float temperatures[] = {0.25F, 0.7F, 1, 1.5F, 3};
    int32_t i;
    for (i = 0; i < OPS_SEQS; i++) {
        pgd_sampling *s = &spec->sampling[i];
        *s = (pgd_sampling){.temperature = temperatures[ops_between(r, 0, 4)],
                            .seed = ops_next(r),
                            .counter = ops_next(r) >> ops_between(r, 0, 60)};
        s->flags = ops_between(r, 0, 3) == 0 ? PGD_SAMPLE_GREEDY : 0;
        if (ops_between(r, 0, 1) == 0) {
            s->top_k = (int32_t)ops_between(r, 1, ops_between(r, 0, 1) == 0 ? 5 : 60);
        }
        if (ops_between(r, 0, 1) == 0) {
            s->top_p = (float)ops_between(r, 1, 100) / 100;
        }
        if (ops_between(r, 0, 2) == 0) {
            s->min_p = (float)ops_between(r, 1, 50) / 100;
        }
    }
}

static void draw_penalties(ops_rng *r, pgd_sampling *s) {
    static const float repetitions[] = {0, 1, 0.5F, 1.1F, 1.3F, 7};
    s->repetition = repetitions[ops_between(r, 0, 5)];
    s->presence = ops_between(r, 0, 1) == 0 ? (float)ops_normal(r) : 0;
    s->frequency = ops_between(r, 0, 1) == 0 ? (float)ops_normal(r) : 0;
}

void ops_draw_fields(ops_rng *r, ops_batch_spec *spec, int32_t most_best) {
    static const int32_t few[] = {0, 1, 5, 20};
    int32_t i;
    for (i = 0; i < OPS_SEQS; i++) {
        pgd_sampling *s = &spec->sampling[i];
        if (ops_between(r, 0, 2) == 0) {
            s->mask_row = i + 1;
        }
        if (ops_between(r, 0, 2) == 0) {
            s->bias_start = i * OPS_BIASES;
            s->bias_count = (int32_t)ops_between(r, 0, OPS_BIASES);
        }
        if (ops_between(r, 0, 1) == 0) {
            s->state_row = (i * 5 + 7) % OPS_SEQS + 1; // 5 and 24 share no factor
            draw_penalties(r, s);
        }
        if (ops_between(r, 0, 3) == 0) {
            s->flags |= PGD_SAMPLE_GIVEN;
            s->given = (int32_t)ops_between(r, 0, spec->vocab - 1);
        }
        if (ops_between(r, 0, 1) == 0) {
            int32_t best = few[ops_between(r, 0, 3)];
            s->flags |= PGD_SAMPLE_LOGPROBS;
            s->n_logprobs = best < most_best && ops_between(r, 0, 3) > 0 ? best : most_best;
        }
        spec->seqs[i].hidden = ops_between(r, 0, 5) == 0;
    }
}
