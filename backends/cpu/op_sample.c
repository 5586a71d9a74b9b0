// sample: one token of each output row, and what is told about it.
//
//   row   look (logits as they are) | best, sum | change into the worker's room, look | draw,
//         count
//
// A row that is only greedy is one pass over its logits; a row that is given and not told is none.
// sample_row.c, sample_draw.c and sample_tell.c have the steps. Room for a changed row and for
// lists of values comes from the call's scratch, a part for each worker.
#include <math.h>
#include <string.h>

#include "sample.h"

enum { ROOM_SLACK = 16 }; // f32_keep writes whole vectors

// Floats of a list or a changed row.
static int64_t room_floats(int64_t n) {
    return (n + 2 * ROOM_SLACK - 1) / ROOM_SLACK * ROOM_SLACK;
}

uint64_t cpu_sample_bytes(const pgd_device *d, int64_t n) {
    return (uint64_t)d->host->team_size(d->host) * 2 * (uint64_t)room_floats(n) * sizeof(float);
}

// Sampling row r; fields a smaller caller does not have are zero.
static pgd_sampling sampling_of(const cpu_batch *b, int64_t r) {
    const uint32_t stride = b->caps.sampling_stride;
    pgd_sampling s;
    memset(&s, 0, sizeof(s));
    memcpy(&s, b->sampling + (uint64_t)r * stride, stride < sizeof(s) ? stride : sizeof(s));
    return s;
}

static bool is_off(float share) {
    return share == 0.0f || share == 1.0f;
}

static bool is_given(const pgd_sampling *s) {
    return (s->flags & PGD_SAMPLE_GIVEN) != 0;
}

static bool is_told(const pgd_sampling *s) {
    return (s->flags & PGD_SAMPLE_LOGPROBS) != 0;
}

static bool has_penalties(const pgd_sampling *s) {
    return s->state_row > 0 &&
           (!is_off(s->repetition) || s->presence != 0.0f || s->frequency != 0.0f);
}

static bool is_changed(const pgd_sampling *s) {
    return !is_given(s) && (s->mask_row > 0 || s->bias_count > 0 || has_penalties(s));
}

// The largest logit is all that is asked for, or not even that.
static bool is_plain(const pgd_sampling *s) {
    return !is_told(s) && !is_changed(s) &&
           (s->flags & (PGD_SAMPLE_GREEDY | PGD_SAMPLE_GIVEN)) != 0;
}

// ---- a row -------------------------------------------------------------------------------------

static const uint32_t *mask_of(const cpu_sample *c, const pgd_sampling *s) {
    return s->mask_row > 0 ? c->batch->mask + (s->mask_row - 1) * ((c->n + 31) / 32) : NULL;
}

static int32_t *state_of(const cpu_sample *c, const pgd_sampling *s) {
    return s->state_row > 0 ? c->state + (s->state_row - 1) * c->state_pitch : NULL;
}

static void add_bias(const cpu_sample *c, const pgd_sampling *s, float *out) {
    const pgd_bias *bias = c->batch->bias + s->bias_start;
    for (int32_t i = 0; i < s->bias_count; i++) {
        float *l = &out[bias[i].id];
        *l = bias[i].add == -INFINITY ? NAN : *l + bias[i].add;
    }
}

// One pass; two where a bias has to come between mask and penalties.
static void change(const cpu_sample *c, const pgd_sampling *s, const float *logits, float *out) {
    const int32_t *state = has_penalties(s) ? state_of(c, s) : NULL;
    const pgd_cpu_penalty how = {.repetition = s->repetition == 0.0f ? 1.0f : s->repetition,
                                 .presence = s->presence,
                                 .frequency = s->frequency};
    if (s->bias_count == 0) {
        c->k->f32_change(logits, c->n, mask_of(c, s), state, &how, out);
        return;
    }
    c->k->f32_change(logits, c->n, mask_of(c, s), NULL, &how, out);
    add_bias(c, s, out);
    if (state != NULL) {
        c->k->f32_change(out, c->n, NULL, state, &how, out);
    }
}

static void count_token(int32_t *state, int32_t token) {
    const int32_t most = (INT32_C(1) << 30) - 1;
    if (state != NULL && token >= 0 && (state[token] & most) < most) {
        state[token]++;
    }
}

static int32_t draw_row(const cpu_row *row, const pgd_sampling *s) {
    return row->best < 0 || (s->flags & PGD_SAMPLE_GREEDY) != 0 ? (int32_t)row->best
                                                                : cpu_draw(row, s);
}

static int32_t changed_token(const cpu_sample *c, const pgd_sampling *s, const cpu_row *given) {
    cpu_row row;
    float *room = given->list + room_floats(c->n);
    row.k = c->k;
    row.v = room;
    row.list = given->list;
    row.n = c->n;
    change(c, s, given->v, room);
    cpu_row_look(&row);
    return draw_row(&row, s);
}

// The token of a row that is not plain; told: columns 1 and on are written first.
static int32_t full_token(const cpu_sample *c, int64_t r, const pgd_sampling *s, float *room) {
    cpu_row row;
    double log_sum = 0.0;
    row.k = c->k;
    row.v = c->logits.p + r * c->logits.s0;
    row.list = room;
    row.n = c->n;
    float *logprobs = c->logprobs.p + r * c->logprobs.s0;
    int32_t *ids = c->top_ids + r * c->top_pitch;
    if (is_told(s) || !is_changed(s)) {
        cpu_row_look(&row);
    }
    if (is_told(s)) {
        log_sum = cpu_log_sum(&row);
        cpu_best(&row, log_sum, s->n_logprobs, logprobs + 1, ids + 1);
    }
    const int32_t token = is_given(s)     ? s->given
                          : is_changed(s) ? changed_token(c, s, &row)
                                          : draw_row(&row, s);
    if (is_told(s)) {
        ids[0] = token;
        logprobs[0] = cpu_logprob(&row, log_sum, token);
        c->ranks[r] = cpu_rank(&row, token);
    }
    return token;
}

void cpu_sample_panel(const cpu_sample *c, int64_t index, int64_t cols, int64_t r0, int64_t m,
                      const float *y) {
    for (int64_t i = 0; i < m; i++) {
        const pgd_sampling s = sampling_of(c->batch, r0 + i);
        const float *from = y + i * PGD_CPU_PANEL;
        float *row = c->logits.p + (r0 + i) * c->logits.s0;
        if (!is_plain(&s)) {
            memcpy(row + index * PGD_CPU_PANEL, from, (size_t)cols * sizeof(float));
            continue;
        }
        const int64_t best = c->k->f32_argmax(from, cols);
        const int32_t id = (int32_t)(index * PGD_CPU_PANEL + best);
        row[index] = best < 0 ? NAN : from[best];
        memcpy(row + c->n_panels + index, &id, sizeof(id));
    }
}

// Panels rise with the ids, so the first of the best has the lowest id.
static int32_t plain_token(const cpu_sample *c, int64_t r) {
    const float *row = c->logits.p + r * c->logits.s0;
    if (c->n_plain == 0) {
        return (int32_t)c->k->f32_argmax(row, c->n);
    }
    const int64_t panel = c->k->f32_argmax(row, c->n_panels);
    int32_t id = -1;
    if (panel >= 0) {
        memcpy(&id, row + c->n_panels + panel, sizeof(id));
    }
    return id;
}

void cpu_sample_rows(void *ctx, int64_t r0, int64_t r1, uint32_t worker) {
    const cpu_sample *c = ctx;
    float *room = c->room == NULL ? NULL : c->room + (int64_t)worker * 2 * room_floats(c->n);
    for (int64_t r = r0; r < r1; r++) {
        const pgd_sampling s = sampling_of(c->batch, r);
        int32_t token = s.given;
        if (!is_plain(&s)) {
            token = full_token(c, r, &s, room);
        } else if (!is_given(&s)) {
            token = plain_token(c, r);
        }
        if (!is_given(&s)) {
            count_token(state_of(c, &s), token);
        }
        c->ids[r] = token;
        cpu_put_token(c->batch, r, token);
    }
}

// ---- checks ------------------------------------------------------------------------------------

static pgd_status check_told(const pgd_exec *x, const cpu_sample *c, int64_t r,
                             const pgd_sampling *s) {
    if (c->logprobs.p == NULL || c->top_ids == NULL || c->ranks == NULL) {
        return CPU_FAIL(x->dev, PGD_UNSUPPORTED,
                        "sample: output %lld asks for log probabilities, without the tensors",
                        (long long)r);
    }
    if (s->n_logprobs < 0 || s->n_logprobs >= c->columns) {
        return CPU_FAIL(x->dev, PGD_INVALID, "sample: output %lld asks for the %d best of %lld",
                        (long long)r, (int)s->n_logprobs, (long long)c->columns - 1);
    }
    return PGD_OK;
}

static pgd_status check_lists(const pgd_exec *x, const cpu_sample *c, int64_t r,
                              const pgd_sampling *s) {
    const cpu_batch *b = c->batch;
    if (s->mask_row < 0 ||
        (s->mask_row > 0 &&
         (b->mask == NULL ||
          (uint64_t)s->mask_row > b->mask_words / (uint64_t)((c->n + 31) / 32)))) {
        return CPU_FAIL(x->dev, PGD_INVALID, "sample: output %lld has mask row %d", (long long)r,
                        (int)s->mask_row);
    }
    if (s->bias_count == 0) {
        return PGD_OK;
    }
    if (s->bias_start < 0 || s->bias_count < 0 || b->bias == NULL ||
        (uint64_t)s->bias_start + (uint64_t)s->bias_count > b->n_bias) {
        return CPU_FAIL(x->dev, PGD_INVALID, "sample: output %lld has %d biases from %d on",
                        (long long)r, (int)s->bias_count, (int)s->bias_start);
    }
    for (int32_t i = 0; i < s->bias_count; i++) {
        const pgd_bias bias = b->bias[s->bias_start + i];
        if (bias.id < 0 || bias.id >= c->n || isnan(bias.add)) {
            return CPU_FAIL(x->dev, PGD_INVALID, "sample: output %lld adds %g to token %d of %lld",
                            (long long)r, (double)bias.add, (int)bias.id, (long long)c->n);
        }
    }
    return PGD_OK;
}

static pgd_status check_penalties(const pgd_exec *x, const cpu_sample *c, int64_t r,
                                  const pgd_sampling *s) {
    const bool asked = !is_off(s->repetition) || s->presence != 0.0f || s->frequency != 0.0f;
    if (!(s->repetition >= 0.0f && isfinite(s->repetition) && isfinite(s->presence) &&
          isfinite(s->frequency)) ||
        (asked && s->state_row == 0)) {
        return CPU_FAIL(x->dev, PGD_INVALID,
                        "sample: output %lld has repetition %g, presence %g, frequency %g and "
                        "state row %d",
                        (long long)r, (double)s->repetition, (double)s->presence,
                        (double)s->frequency, (int)s->state_row);
    }
    if (s->state_row > 0 && c->state == NULL) {
        return CPU_FAIL(x->dev, PGD_UNSUPPORTED, "sample: output %lld counts tokens, without state",
                        (long long)r);
    }
    if (s->state_row < 0 || s->state_row > c->state_rows) {
        return CPU_FAIL(x->dev, PGD_INVALID, "sample: output %lld has state row %d of %lld",
                        (long long)r, (int)s->state_row, (long long)c->state_rows);
    }
    return PGD_OK;
}

static pgd_status check_drawn(const pgd_exec *x, const cpu_sample *c, int64_t r,
                              const pgd_sampling *s) {
    if (!is_off(s->typical_p)) {
        return CPU_FAIL(x->dev, PGD_UNSUPPORTED, "sample: output %lld asks for typical_p",
                        (long long)r);
    }
    if ((s->flags & PGD_SAMPLE_GREEDY) == 0 &&
        !(s->temperature > 0 && isfinite(s->temperature) && s->top_p >= 0 && s->top_p <= 1 &&
          s->min_p >= 0 && s->min_p <= 1 && s->top_k >= 0)) {
        return CPU_FAIL(x->dev, PGD_INVALID,
                        "sample: output %lld has temperature %g, top_p %g, min_p %g, top_k %d",
                        (long long)r, (double)s->temperature, (double)s->top_p, (double)s->min_p,
                        (int)s->top_k);
    }
    PGD_TRY(check_lists(x, c, r, s));
    return check_penalties(x, c, r, s);
}

static pgd_status check_row(const pgd_exec *x, const cpu_sample *c, int64_t r) {
    const uint32_t known = PGD_SAMPLE_GREEDY | PGD_SAMPLE_LOGPROBS | PGD_SAMPLE_GIVEN;
    const pgd_sampling s = sampling_of(c->batch, r);
    if ((s.flags & ~known) != 0) {
        return CPU_FAIL(x->dev, PGD_UNSUPPORTED, "sample: output %lld has flags %#x", (long long)r,
                        (unsigned)s.flags);
    }
    if (is_told(&s)) {
        PGD_TRY(check_told(x, c, r, &s));
    }
    if (!is_given(&s)) {
        PGD_TRY(check_drawn(x, c, r, &s));
    } else if (s.given < 0 || s.given >= c->n) {
        return CPU_FAIL(x->dev, PGD_INVALID, "sample: output %lld is given token %d", (long long)r,
                        (int)s.given);
    }
    if (c->room == NULL && !is_plain(&s)) {
        return CPU_FAIL(x->dev, PGD_INVALID, "sample: less scratch than support asked for");
    }
    return PGD_OK;
}

pgd_status cpu_sample_live(const cpu_op *op, cpu_sample *c) {
    const cpu_batch *b = &op->batch;
    PGD_TRY(cpu_check_tokens(op->x, b, op->rows));
    if (op->rows > 0 &&
        (b->sampling == NULL || b->caps.sampling_stride == 0 || op->rows > b->caps.cap_out)) {
        return CPU_FAIL(op->x->dev, PGD_INVALID, "sample: %lld rows without sampling parameters",
                        (long long)op->rows);
    }
    c->n_plain = 0;
    for (int64_t r = 0; r < op->rows; r++) {
        const pgd_sampling s = sampling_of(b, r);
        PGD_TRY(check_row(op->x, c, r));
        c->n_plain += c->n_panels > 0 && is_plain(&s);
    }
    return PGD_OK;
}

// ---- the op ------------------------------------------------------------------------------------

// The tensors that may be absent.
static pgd_status open_told(cpu_op *op, const pgd_sample_args *a, cpu_sample *out) {
    cpu_view v;
    if (a->logprobs.rank != 0) {
        PGD_TRY(cpu_op_view(op, "sample logprobs", &a->logprobs, true, &out->logprobs));
        out->columns = a->logprobs.shape[1];
    }
    if (a->top_ids.rank != 0) {
        PGD_TRY(cpu_op_view(op, "sample top_ids", &a->top_ids, true, &v));
        out->top_ids = (int32_t *)(void *)v.p;
        out->top_pitch = v.s0;
    }
    if (a->ranks.rank != 0) {
        PGD_TRY(cpu_op_view(op, "sample ranks", &a->ranks, true, &v));
        out->ranks = (int32_t *)(void *)v.p;
    }
    if (a->state.rank != 0) {
        PGD_TRY(cpu_view_of(op->x, "sample state", &a->state, true, &v));
        out->state = (int32_t *)(void *)v.p;
        out->state_pitch = v.s0;
        out->state_rows = a->state.shape[0];
    }
    return PGD_OK;
}

pgd_status cpu_sample_init(cpu_op *op, const pgd_sample_args *a, cpu_sample *out) {
    const uint64_t bytes = cpu_sample_bytes(op->x->dev, a->logits.shape[1]);
    void *room = NULL;
    cpu_view v;
    *out = (cpu_sample){.k = cpu_kernels(op->x), .batch = &op->batch, .n = a->logits.shape[1]};
    PGD_TRY(cpu_op_view(op, "sample logits", &a->logits, true, &out->logits));
    PGD_TRY(cpu_op_view(op, "sample ids", &a->ids, true, &v));
    out->ids = (int32_t *)(void *)v.p;
    PGD_TRY(open_told(op, a, out));
    if (op->x->scratch.bytes >= bytes) {
        PGD_TRY(cpu_range(op->x->dev, "the scratch", op->x->scratch.buffer, op->x->scratch.offset,
                          bytes, true, &room));
        out->room = room;
    }
    return PGD_OK;
}

static pgd_status sample_live(cpu_op *op) {
    cpu_sample *c = CPU_STATE(cpu_sample, op);
    PGD_TRY(cpu_sample_live(op, c));
    cpu_phase_set(&op->phases[0], op->rows, 4 * c->n, 1);
    return PGD_OK;
}

pgd_status cpu_make_sample(cpu_op *op, const pgd_sample_args *a) {
    cpu_sample *c = CPU_STATE(cpu_sample, op);
    if (a->batch == NULL) {
        return CPU_FAIL(op->x->dev, PGD_INVALID, "sample without a batch");
    }
    PGD_TRY(cpu_op_open(op, a->batch, a->rows, -1, a->logits.shape[0]));
    PGD_TRY(cpu_sample_init(op, a, c));
    op->live = sample_live;
    op->phases[0] = (cpu_phase){.fn = cpu_sample_rows, .ctx = c};
    return PGD_OK;
}
