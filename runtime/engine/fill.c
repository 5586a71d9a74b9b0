// The step into the batch's arrays: ids, positions, starts, lengths, slots, and what is new: block
// table entries; masks and counts of sequences that have got a slot. Layout: pgd_batch in
// <pagoda/types.h>.
#include "engine/inner.h"

// ---- who has got a slot ------------------------------------------------------------------------

// Counts are large, so they go a few rows at a time; the device must have read them before they are
// overwritten.
static pgd_status send_counts(pgd_engine *e, const pgd_copy *list, uint32_t n, int32_t again) {
    if (n == 0) {
        return PGD_OK;
    }
    PGD_TRY(e->d->queue->copy(e->d, e->queue, list, n));
    if (!again) {
        return PGD_OK;
    }
    uint64_t point = 0;
    PGD_TRY(e->d->queue->signal(e->d, e->queue, &point));
    return pgd_engine_wait(e, point);
}

pgd_status pgd_engine_arrive(pgd_engine *e, engine_flight *f) {
    const pgd_tensor *device = pgd_model_counts(e->model);
    const int32_t vocab = e->config->vocab;
    const uint64_t bytes = (uint64_t)vocab * sizeof(*f->counts);
    pgd_copy list[ENGINE_COUNT_ROWS];
    uint32_t n = 0;
    for (int32_t i = 0; i < f->step.n_rows; i++) {
        const pgd_seq *seq = f->step.rows[i].seq;
        if (seq->n_blocks_sent > 0 || !seq->has_counts) {
            continue;
        }
        if (n == ENGINE_COUNT_ROWS) {
            PGD_TRY(send_counts(e, list, n, 1));
            n = 0;
        }
        int32_t *row = f->counts + (size_t)n * (size_t)vocab;
        pgd_sample_count(seq, row, vocab);
        list[n++] = (pgd_copy){
            .dst = device->buffer,
            .dst_offset = device->offset + (uint64_t)seq->slot * bytes,
            .src_offset = (uint64_t)(uintptr_t)row,
            .bytes = bytes,
            .rows = 1,
        };
    }
    return send_counts(e, list, n, 0);
}

// ---- arrays ------------------------------------------------------------------------------------

typedef struct fill_arrays {
    int32_t *token_ids;
    int32_t *positions;
    int32_t *q_start;
    int32_t *kv_len;
    int32_t *out_rows;
    int32_t *out_slot;
    int32_t *seq_slot;
    int32_t *slots[PGD_MAX_GROUPS];
    int32_t n_groups;
} fill_arrays;

static fill_arrays arrays_of(pgd_dev_batch *b) {
    const pgd_batch *v = pgd_dev_batch_view(b);
    fill_arrays a = {
        .token_ids = pgd_dev_batch_array(b, v->token_ids),
        .positions = pgd_dev_batch_array(b, v->positions),
        .q_start = pgd_dev_batch_array(b, v->q_start),
        .kv_len = pgd_dev_batch_array(b, v->kv_len),
        .out_rows = pgd_dev_batch_array(b, v->out_rows),
        .out_slot = pgd_dev_batch_array(b, v->out_slot),
        .seq_slot = pgd_dev_batch_array(b, v->seq_slot),
        .n_groups = v->n_groups,
    };
    for (int32_t g = 0; g < v->n_groups; g++) {
        a.slots[g] = pgd_dev_batch_array(b, v->slots[g]);
    }
    return a;
}

static void fill_tokens(const pgd_step_row *row, int32_t first, int32_t block_size,
                        const fill_arrays *a) {
    const pgd_seq *seq = row->seq;
    for (int32_t i = 0; i < row->n_tokens; i++) {
        int32_t position = row->start + i;
        // a token that the host has not seen yet: the last one of the slot
        a->token_ids[first + i] = position < seq->n_tokens ? seq->tokens[position] : -1 - seq->slot;
        a->positions[first + i] = position;
    }
    for (int32_t g = 0; g < a->n_groups; g++) {
        const int32_t *table = seq->blocks + (size_t)g * (size_t)seq->cap_blocks;
        for (int32_t i = 0; i < row->n_tokens; i++) {
            int32_t position = row->start + i;
            a->slots[g][first + i] =
                table[position / block_size] * block_size + position % block_size;
        }
    }
}

static void send_mask(pgd_dev_batch *b, const pgd_seq *seq) {
    const engine_choice *c = seq->owner;
    if (seq->n_blocks_sent == 0 && seq->has_mask) {
        pgd_dev_batch_mask(b, seq->slot, c->request->mask);
    }
}

static void send_blocks(pgd_dev_batch *b, pgd_seq *seq, int32_t n_groups) {
    const int32_t first = seq->n_blocks_sent;
    const int32_t n = seq->n_blocks - first;
    for (int32_t g = 0; g < n_groups && n > 0; g++) {
        const int32_t *table = seq->blocks + (size_t)g * (size_t)seq->cap_blocks;
        pgd_dev_batch_blocks(b, g, seq->slot, first, table + first, n);
    }
    seq->n_blocks_sent = seq->n_blocks;
}

// Rows whose prompt token behind them is scored; no slot hears of them.
static void fill_scored(const pgd_step_row *row, int32_t first, const fill_arrays *a) {
    for (int32_t i = 0; i < row->n_scored; i++) {
        a->out_rows[row->out_scored + i] = first + row->scored - 1 - row->start + i;
        a->out_slot[row->out_scored + i] = -1;
    }
}

void pgd_engine_fill(pgd_engine *e, const engine_flight *f) {
    const pgd_step *step = &f->step;
    pgd_batch_head *head = pgd_dev_batch_begin(e->batch);
    const fill_arrays a = arrays_of(e->batch);
    int32_t first = 0;
    for (int32_t i = 0; i < step->n_rows; i++) {
        const pgd_step_row *row = &step->rows[i];
        a.q_start[i] = first;
        a.kv_len[i] = row->start + row->n_tokens;
        a.seq_slot[i] = row->seq->slot;
        fill_tokens(row, first, e->limits.block_size, &a);
        fill_scored(row, first, &a);
        send_mask(e->batch, row->seq);
        send_blocks(e->batch, row->seq, a.n_groups);
        first += row->n_tokens;
        if (row->out >= 0) {
            a.out_rows[row->out] = first - 1;
            a.out_slot[row->out] = row->seq->slot;
        }
        head->max_q = row->n_tokens > head->max_q ? row->n_tokens : head->max_q;
        head->max_kv = a.kv_len[i] > head->max_kv ? a.kv_len[i] : head->max_kv;
    }
    a.q_start[step->n_rows] = first;
    head->n_tokens = step->n_tokens;
    head->n_seqs = step->n_rows;
    head->n_decode = step->n_decode;
    head->n_out = step->n_out;
}
