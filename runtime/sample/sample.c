// See sample.h. Source of the order and the ranges: vLLM's sampling parameters.
#include "sample/sample.h"

#include <float.h>
#include <math.h>
#include <string.h>

#include "base/fail.h"

#define IN_PROMPT (1 << 30)

// A penalty that is subtracted.
static pgd_status check_penalty(const char *name, float value) {
    if (!(value >= -2.0f && value <= 2.0f)) {
        return pgd_fail(PGD_OUT_OF_RANGE, "%s is %g; -2 to 2 is allowed", name, (double)value);
    }
    return PGD_OK;
}

pgd_status pgd_sample_check(const pgd_sampling *p) {
    if (!(p->flags & PGD_SAMPLE_GREEDY) && !(p->temperature > 0.0f && p->temperature <= 100.0f)) {
        return pgd_fail(PGD_OUT_OF_RANGE, "temperature is %g; 0 (greedy) to 100 is allowed",
                        (double)p->temperature);
    }
    if (!(p->top_p >= 0.0f && p->top_p <= 1.0f)) {
        return pgd_fail(PGD_OUT_OF_RANGE, "top_p is %g; above 0 to 1 is allowed", (double)p->top_p);
    }
    if (!(p->min_p >= 0.0f && p->min_p <= 1.0f)) {
        return pgd_fail(PGD_OUT_OF_RANGE, "min_p is %g; 0 to 1 is allowed", (double)p->min_p);
    }
    if (p->top_k < 0) {
        return pgd_fail(PGD_OUT_OF_RANGE, "top_k is %d; 0 (off) or more is allowed", p->top_k);
    }
    if (!(p->repetition >= 0.0f && p->repetition <= FLT_MAX)) {
        return pgd_fail(PGD_OUT_OF_RANGE,
                        "repetition_penalty is %g; a finite number above 0 is allowed",
                        (double)p->repetition);
    }
    PGD_TRY(check_penalty("presence_penalty", p->presence));
    return check_penalty("frequency_penalty", p->frequency);
}

// ---- bias of a row -----------------------------------------------------------------------------

static void add_bias(pgd_sample_arrays *a, int32_t id, float add) {
    a->bias[a->n_bias++] = (pgd_bias){.id = id, .add = add};
}

// Forbids the last token of each bad word whose others are the latest of the output.
static void add_bad_words(const pgd_seq *seq, pgd_sample_arrays *a) {
    const int32_t *word = seq->bad_words;
    for (int32_t i = 0; i < seq->n_bad_words; i++) {
        int32_t before = word[0] - 1;
        if (before <= seq->n_tokens - seq->n_prompt &&
            memcmp(seq->tokens + seq->n_tokens - before, word + 1,
                   (size_t)before * sizeof(*word)) == 0) {
            add_bias(a, word[1 + before], -INFINITY);
        }
        word += 1 + word[0];
    }
}

static void set_bias(const pgd_seq *seq, pgd_sample_arrays *a, pgd_sampling *p) {
    p->bias_start = a->n_bias;
    for (int32_t i = 0; i < seq->n_bias; i++) {
        a->bias[a->n_bias++] = seq->bias[i];
    }
    if (pgd_kv_seq_known(seq) - seq->n_prompt < seq->min_tokens) {
        for (int32_t i = 0; i < seq->n_stop_ids; i++) {
            add_bias(a, seq->stop_ids[i], -INFINITY);
        }
    }
    add_bad_words(seq, a);
    p->bias_count = a->n_bias - p->bias_start;
}

// ---- rows --------------------------------------------------------------------------------------

static void put_row(pgd_sample_arrays *a, int32_t out, const pgd_sampling *p) {
    memcpy(a->rows + (size_t)out * a->stride, p, sizeof(*p));
}

static void fill_scored(const pgd_step_row *row, pgd_sample_arrays *a) {
    for (int32_t i = 0; i < row->n_scored; i++) {
        const pgd_sampling p = {
            .flags = PGD_SAMPLE_GREEDY | PGD_SAMPLE_GIVEN | PGD_SAMPLE_LOGPROBS,
            .n_logprobs = row->seq->n_prompt_logprobs,
            .given = row->seq->tokens[row->scored + i],
        };
        put_row(a, row->out_scored + i, &p);
    }
}

void pgd_sample_fill(const pgd_step *step, pgd_sample_arrays *a) {
    a->n_bias = 0;
    for (int32_t i = 0; i < step->n_rows; i++) {
        const pgd_step_row *row = &step->rows[i];
        const pgd_seq *seq = row->seq;
        fill_scored(row, a);
        if (row->out < 0) {
            continue;
        }
        pgd_sampling p = seq->sampling;
        p.counter = (uint64_t)pgd_kv_seq_known(seq); // position of the token to draw
        p.mask_row = seq->has_mask ? seq->slot + 1 : 0;
        p.state_row = seq->has_counts ? seq->slot + 1 : 0;
        set_bias(seq, a, &p);
        put_row(a, row->out, &p);
    }
}

void pgd_sample_count(const pgd_seq *seq, int32_t *counts, int32_t vocab) {
    memset(counts, 0, (size_t)vocab * sizeof(*counts));
    for (int32_t i = 0; i < seq->n_prompt; i++) {
        counts[seq->tokens[i]] = IN_PROMPT;
    }
    for (int32_t i = seq->n_prompt; i < seq->n_tokens; i++) {
        counts[seq->tokens[i]]++;
    }
}

int32_t pgd_sample_reads_tokens(const pgd_seq *seq) {
    const int32_t *word = seq->bad_words;
    for (int32_t i = 0; i < seq->n_bad_words; i++) {
        if (word[0] > 1) {
            return 1;
        }
        word += 1 + word[0];
    }
    return 0;
}

static int32_t is_stop(const pgd_seq *seq, int32_t token) {
    for (int32_t i = 0; i < seq->n_stop_ids; i++) {
        if (seq->stop_ids[i] == token) {
            return 1;
        }
    }
    return 0;
}

void pgd_sample_accept(pgd_seq *seq, int32_t token) {
    seq->tokens[seq->n_tokens++] = token;
    if (seq->n_tokens - seq->n_prompt >= seq->min_tokens && is_stop(seq, token)) {
        seq->finish = PGD_FINISH_STOP;
        seq->stop_id = token;
    } else if (seq->n_tokens >= seq->cap_tokens) {
        seq->finish = PGD_FINISH_LENGTH;
    }
}
