// See sample.h. Source of the order and the ranges: vLLM's sampling parameters.
#include "sample/sample.h"

#include <math.h>
#include <string.h>

#include "base/fail.h"

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
    return PGD_OK;
}

void pgd_sample_fill(const pgd_step *step, unsigned char *rows, uint32_t stride) {
    for (int32_t i = 0; i < step->n_rows; i++) {
        const pgd_step_row *row = &step->rows[i];
        if (row->out < 0) {
            continue;
        }
        pgd_sampling p = row->seq->sampling;
        p.counter = (uint64_t)row->seq->n_tokens; // position of the token to draw
        memcpy(rows + (size_t)row->out * stride, &p, sizeof(p));
    }
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
