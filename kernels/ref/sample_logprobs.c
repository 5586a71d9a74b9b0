// Log probabilities of a row of logits, before any step of sampling; see sample.c.
#include "ref/sample.h"

#include <math.h>

#if defined(__clang__)
#pragma STDC FP_CONTRACT OFF
#endif

static double gap_of(const pgd_ref_logprobs *p, int64_t i) {
    if (i < 0 || p->logits[i] != p->logits[i]) {
        return -INFINITY;
    }
    return p->logits[i] == p->max ? 0 : (double)p->logits[i] - (double)p->max;
}

pgd_ref_logprobs pgd_ref_logprobs_of(const float *logits, int64_t n) {
    pgd_ref_logprobs p = {.logits = logits, .n = n, .max = NAN};
    int64_t best = pgd_ref_argmax_row(logits, n), i;
    double sum = 0;
    if (best < 0) {
        return p; // every token is a NaN
    }
    p.max = logits[best];
    for (i = 0; i < n; i++) {
        sum = sum + pgd_ref_exp(gap_of(&p, i));
    }
    p.log_sum = pgd_ref_log(sum);
    return p;
}

float pgd_ref_logprob(const pgd_ref_logprobs *p, int64_t i) {
    double v = gap_of(p, i) - p->log_sum;
    return (float)v;
}

int32_t pgd_ref_rank(const pgd_ref_logprobs *p, int64_t i) {
    int32_t rank = 0;
    int64_t j;
    for (j = 0; i >= 0 && j < p->n; j++) {
        rank += pgd_ref_key(p->logits[j]) >= pgd_ref_key(p->logits[i]);
    }
    return rank;
}

// ids is a list in order, into which each token is put at its place.
void pgd_ref_best(const pgd_ref_logprobs *p, int64_t n_best, float *logprobs, int32_t *ids) {
    int64_t used = 0, i, at;
    for (i = 0; i < p->n && n_best > 0; i++) {
        uint32_t key = pgd_ref_key(p->logits[i]);
        if (used == n_best && pgd_ref_key(p->logits[ids[used - 1]]) >= key) {
            continue;
        }
        used += used < n_best;
        for (at = used - 1; at > 0 && pgd_ref_key(p->logits[ids[at - 1]]) < key; at--) {
            ids[at] = ids[at - 1];
        }
        ids[at] = (int32_t)i;
    }
    for (i = 0; i < used; i++) {
        logprobs[i] = pgd_ref_logprob(p, ids[i]);
    }
}
