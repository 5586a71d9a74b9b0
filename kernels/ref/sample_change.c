// What changes logits before the draw: mask, bias, penalties, and the count behind it; see
// sample.c.
#include "ref/sample.h"

#include <math.h>

#if defined(__clang__)
#pragma STDC FP_CONTRACT OFF
#endif

#define IN_PROMPT  (INT32_C(1) << 30)
#define COUNT_BITS (IN_PROMPT - 1)

static uint64_t mask_bytes(int64_t n) {
    return (uint64_t)((n + 31) / 32) * sizeof(uint32_t);
}

// `bytes` from an offset of the block on; arrays in the uploaded part have to end there.
static int lies_inside(const pgd_batch *batch, uint64_t offset, uint64_t bytes) {
    return offset != 0 && (offset >= batch->upload_bytes || bytes <= batch->upload_bytes - offset);
}

static pgd_status check_bias(const pgd_exec *x, const pgd_batch *batch, int64_t n, int64_t r,
                             const pgd_sampling *s) {
    const uint64_t end = sizeof(pgd_bias) * ((uint64_t)s->bias_start + (uint64_t)s->bias_count);
    const pgd_bias *bias = pgd_ref_array(batch, batch->bias);
    int32_t i;
    if (s->bias_start < 0 || s->bias_count < 0 || !lies_inside(batch, batch->bias, end)) {
        return PGD_REF_FAIL(x, PGD_INVALID, "sample: output %lld has %d biases from %d on",
                            (long long)r, (int)s->bias_count, (int)s->bias_start);
    }
    for (i = 0; i < s->bias_count; i++) {
        pgd_bias b = bias[s->bias_start + i];
        if (b.id < 0 || b.id >= n || b.add != b.add) {
            return PGD_REF_FAIL(x, PGD_INVALID, "sample: output %lld adds %g to token %d of %lld",
                                (long long)r, (double)b.add, (int)b.id, (long long)n);
        }
    }
    return PGD_OK;
}

static pgd_status check_penalties(const pgd_exec *x, const pgd_tensor *state, int64_t r,
                                  const pgd_sampling *s) {
    int asked = (s->repetition != 0 && s->repetition != 1) || s->presence != 0 || s->frequency != 0;
    if (!(s->repetition >= 0 && isfinite(s->repetition) && isfinite(s->presence) &&
          isfinite(s->frequency)) ||
        (asked && s->state_row == 0)) {
        return PGD_REF_FAIL(x, PGD_INVALID,
                            "sample: output %lld has repetition %g, presence %g, frequency %g and "
                            "state row %d",
                            (long long)r, (double)s->repetition, (double)s->presence,
                            (double)s->frequency, (int)s->state_row);
    }
    if (s->state_row > 0 && state->rank == 0) {
        return PGD_REF_FAIL(x, PGD_UNSUPPORTED, "sample: output %lld counts tokens, without state",
                            (long long)r);
    }
    if (s->state_row < 0 || (s->state_row > 0 && s->state_row > state->shape[0])) {
        return PGD_REF_FAIL(x, PGD_INVALID, "sample: output %lld has state row %d of %lld",
                            (long long)r, (int)s->state_row, (long long)state->shape[0]);
    }
    return PGD_OK;
}

pgd_status pgd_ref_check_change(const pgd_exec *x, const pgd_sample_args *a, int64_t r,
                                const pgd_sampling *s) {
    const int64_t n = a->logits.shape[1];
    if (s->mask_row < 0 ||
        (s->mask_row > 0 &&
         !lies_inside(a->batch, a->batch->mask, (uint64_t)s->mask_row * mask_bytes(n)))) {
        return PGD_REF_FAIL(x, PGD_INVALID, "sample: output %lld has mask row %d", (long long)r,
                            (int)s->mask_row);
    }
    if (s->bias_count != 0) {
        PGD_TRY(check_bias(x, a->batch, n, r, s));
    }
    return check_penalties(x, &a->state, r, s);
}

static void apply_mask(const uint32_t *mask, float *logits, int64_t n) {
    int64_t i;
    for (i = 0; i < n; i++) {
        if ((mask[i / 32] >> i % 32 & 1) == 0) {
            logits[i] = NAN;
        }
    }
}

static void apply_penalties(const pgd_sampling *s, const int32_t *state, float *logits, int64_t n) {
    const float repetition = s->repetition == 0 ? 1 : s->repetition;
    int64_t i;
    for (i = 0; i < n; i++) {
        const int32_t count = state[i] & COUNT_BITS;
        float l = logits[i], step;
        if ((state[i] & (COUNT_BITS | IN_PROMPT)) != 0) {
            l = l > 0 ? l / repetition : l * repetition;
        }
        if (count > 0) {
            step = s->frequency * (float)count;
            l = l - step;
            l = l - s->presence;
        }
        logits[i] = l;
    }
}

void pgd_ref_change(const pgd_batch *batch, const pgd_sampling *s, const int32_t *state,
                    float *logits, int64_t n) {
    int32_t i;
    if (s->mask_row > 0) {
        const unsigned char *rows = pgd_ref_array(batch, batch->mask);
        const unsigned char *row = rows + (uint64_t)(s->mask_row - 1) * mask_bytes(n);
        apply_mask((const uint32_t *)(const void *)row, logits, n);
    }
    if (s->bias_count > 0) {
        const pgd_bias *bias = pgd_ref_array(batch, batch->bias);
        for (i = s->bias_start; i < s->bias_start + s->bias_count; i++) {
            float *l = &logits[bias[i].id];
            *l = bias[i].add == -INFINITY ? NAN : *l + bias[i].add;
        }
    }
    if (state != NULL) {
        apply_penalties(s, state, logits, n);
    }
}

void pgd_ref_count(int32_t *state, int32_t token) {
    if (token >= 0 && (state[token] & COUNT_BITS) < COUNT_BITS) {
        state[token]++;
    }
}
