// The step into the batch's arrays: ids, positions, starts, lengths, slots, and the block table
// entries that are new. Layout: pgd_batch in <pagoda/types.h>.
#include "engine/inner.h"

typedef struct fill_arrays {
    int32_t *token_ids;
    int32_t *positions;
    int32_t *q_start;
    int32_t *kv_len;
    int32_t *out_rows;
    int32_t *out_slot;
    int32_t *seq_slot;
    int32_t *slots;
} fill_arrays;

static fill_arrays arrays_of(pgd_dev_batch *b) {
    const pgd_batch *v = pgd_dev_batch_view(b);
    return (fill_arrays){
        .token_ids = pgd_dev_batch_array(b, v->token_ids),
        .positions = pgd_dev_batch_array(b, v->positions),
        .q_start = pgd_dev_batch_array(b, v->q_start),
        .kv_len = pgd_dev_batch_array(b, v->kv_len),
        .out_rows = pgd_dev_batch_array(b, v->out_rows),
        .out_slot = pgd_dev_batch_array(b, v->out_slot),
        .seq_slot = pgd_dev_batch_array(b, v->seq_slot),
        .slots = pgd_dev_batch_array(b, v->slots[0]),
    };
}

static void fill_tokens(const pgd_step_row *row, int32_t first, int32_t block_size,
                        const fill_arrays *a) {
    const pgd_seq *seq = row->seq;
    for (int32_t i = 0; i < row->n_tokens; i++) {
        int32_t position = row->start + i;
        a->token_ids[first + i] = seq->tokens[position];
        a->positions[first + i] = position;
        a->slots[first + i] =
            seq->blocks[position / block_size] * block_size + position % block_size;
    }
}

static void send_blocks(pgd_dev_batch *b, pgd_seq *seq) {
    int32_t n = seq->n_blocks - seq->n_blocks_sent;
    if (n > 0) {
        pgd_dev_batch_blocks(b, seq->slot, seq->n_blocks_sent, seq->blocks + seq->n_blocks_sent, n);
        seq->n_blocks_sent = seq->n_blocks;
    }
}

void pgd_engine_fill(pgd_engine *e) {
    const pgd_step *step = &e->step;
    pgd_batch_head *head = pgd_dev_batch_begin(e->batch);
    const fill_arrays a = arrays_of(e->batch);
    int32_t first = 0;
    for (int32_t i = 0; i < step->n_rows; i++) {
        const pgd_step_row *row = &step->rows[i];
        a.q_start[i] = first;
        a.kv_len[i] = row->start + row->n_tokens;
        a.seq_slot[i] = row->seq->slot;
        fill_tokens(row, first, e->limits.block_size, &a);
        send_blocks(e->batch, row->seq);
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
