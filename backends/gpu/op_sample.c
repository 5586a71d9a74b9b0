// Ops that end in a token: argmax, sample, head_sample.
//
// A row's parameters are looked at twice: here, from the mirror, so that what cannot be done is
// refused before anything runs; and by the kernel.
#include <math.h>
#include <string.h>

#include "gpu.h"
#include "tuned.h"

enum { CHUNK = 32 }; // rows that are changed at once: each needs a row of scratch

uint64_t gpu_sample_scratch(const pgd_tensor *logits) {
    const int64_t rows = logits->shape[0] < CHUNK ? logits->shape[0] : CHUNK;
    return (uint64_t)rows * (uint64_t)logits->shape[1] * sizeof(float);
}

// Best columns of rows that a product keeps for the draw: u64 [rows][n] behind the scratch of both.
typedef struct best_columns {
    uint64_t at; // in scratch
    uint64_t bytes;
    int32_t n; // of a row, 0: none
    int32_t rows;
} best_columns;

static best_columns best_of(const pgd_device *d, const pgd_weight_desc *w, const pgd_tensor *x,
                            const pgd_tensor *logits) {
    const gpu_tuned *t = gpu_of(d)->tuned;
    const uint64_t draw = gpu_sample_scratch(logits);
    const uint64_t product = gpu_product_scratch(d, w, x);
    const uint64_t both = product > draw ? product : draw;
    uint64_t bytes = 0;
    best_columns b = {.at = (both + GPU_ALIGN - 1) / GPU_ALIGN * GPU_ALIGN, .bytes = 0};
    if (gpu_tuned_product(d, w, x, &bytes) != NULL && t->best != NULL) {
        b.n = t->best(w, &b.rows);
        b.rows = x->shape[0] < b.rows ? (int32_t)x->shape[0] : b.rows;
        b.bytes = (uint64_t)b.n * (uint64_t)b.rows * sizeof(uint64_t);
    }
    b.at = b.n > 0 ? b.at : both;
    return b;
}

uint64_t gpu_head_scratch(const pgd_device *d, const pgd_weight_desc *w, const pgd_tensor *x,
                          const pgd_tensor *logits) {
    const best_columns b = best_of(d, w, x, logits);
    return b.at + b.bytes;
}

static void bind_tokens(gpu_op *op, k_argmax_params *p) {
    const pgd_batch *b = op->batch;
    const uint64_t item = sizeof(int32_t);
    if (b == NULL) {
        return;
    }
    p->n_slots = b->cap_slots;
    p->cap_out = b->cap_out;
    if (b->sampled != 0) {
        p->sampled_at = gpu_array(op, "sampled", b->sampled, item * (uint64_t)b->cap_out);
    }
    if (b->last != 0 && b->out_slot != 0) {
        p->last_at = gpu_array(op, "last", b->last, item * (uint64_t)b->cap_slots);
        p->out_slot_at = gpu_array(op, "output slots", b->out_slot, item * (uint64_t)b->cap_out);
    }
}

pgd_status gpu_op_argmax(const pgd_exec *x, const pgd_argmax_args *a) {
    gpu_op op;
    gpu_op_open(&op, x, a->batch, a->rows, a->x.shape[0]);
    gpu_work w = gpu_work_of(&op, PGD_PORTABLE_argmax, 1, 1);
    k_argmax_params p = {.x = gpu_bind(&op, &w, 1, "x", &a->x),
                         .ids_at = gpu_bind(&op, &w, 2, "out", &a->out).at,
                         .rows = gpu_rows(&op),
                         .n = (int32_t)a->x.shape[1]};
    bind_tokens(&op, &p);
    if (w.launch.memories[0] == NULL) { // no batch: nothing is read from it, but it has to be bound
        w.launch.memories[0] = w.launch.memories[1];
        p.cap_out = 0;
    }
    gpu_emit(&op, &w, &p);
    return op.code;
}

// ---- what a row asks for -----------------------------------------------------------------------

static pgd_sampling get_sampling(const pgd_batch *b, int64_t r) {
    const unsigned char *from =
        (const unsigned char *)b->mirror + b->sampling + (uint64_t)r * b->sampling_stride;
    pgd_sampling s = {0};
    memcpy(&s, from, b->sampling_stride < sizeof(s) ? b->sampling_stride : sizeof(s));
    return s;
}

// Whether an array of the batch holds `bytes` within what is uploaded.
static bool holds(const pgd_batch *b, uint64_t at, uint64_t bytes) {
    return at != 0 && (at >= b->upload_bytes || bytes <= b->upload_bytes - at);
}

static bool check_change(common_check *c, const pgd_batch *b, const pgd_sample_args *a, int64_t r,
                         const pgd_sampling *s) {
    const int64_t n = a->logits.shape[1];
    const uint64_t mask_bytes = (uint64_t)((n + 31) / 32) * 4;
    const bool counts = s->state_row != 0;
    if (s->mask_row < 0 ||
        (s->mask_row > 0 && !holds(b, b->mask, (uint64_t)s->mask_row * mask_bytes))) {
        return common_refuse(c, PGD_INVALID, "output %lld: mask row %d", (long long)r,
                             (int)s->mask_row);
    }
    if (s->bias_count != 0 &&
        (s->bias_start < 0 || s->bias_count < 0 ||
         !holds(b, b->bias, 8 * ((uint64_t)s->bias_start + (uint64_t)s->bias_count)))) {
        return common_refuse(c, PGD_INVALID, "output %lld: %d biases from %d on", (long long)r,
                             (int)s->bias_count, (int)s->bias_start);
    }
    for (int32_t i = 0; i < s->bias_count; i++) {
        pgd_bias bias;
        memcpy(&bias, (const unsigned char *)b->mirror + b->bias + 8 * (s->bias_start + i), 8);
        if (bias.id < 0 || bias.id >= n || isnan(bias.add)) {
            return common_refuse(c, PGD_INVALID, "output %lld: a bias of token %d of %lld",
                                 (long long)r, (int)bias.id, (long long)n);
        }
    }
    if (counts && a->state.rank == 0) {
        return common_refuse(c, PGD_UNSUPPORTED, "output %lld counts tokens, without state",
                             (long long)r);
    }
    const bool penalties =
        (s->repetition != 0 && s->repetition != 1) || s->presence != 0 || s->frequency != 0;
    return (s->repetition >= 0 && isfinite(s->repetition) && isfinite(s->presence) &&
            isfinite(s->frequency) && s->state_row >= 0 && (counts || !penalties) &&
            (!counts || s->state_row <= a->state.shape[0])) ||
           common_refuse(c, PGD_INVALID, "output %lld: penalties %g, %g, %g, state row %d",
                         (long long)r, (double)s->repetition, (double)s->presence,
                         (double)s->frequency, (int)s->state_row);
}

static bool check_row(common_check *c, const pgd_batch *b, const pgd_sample_args *a, int64_t r) {
    const uint32_t known = PGD_SAMPLE_GREEDY | PGD_SAMPLE_LOGPROBS | PGD_SAMPLE_GIVEN;
    const pgd_sampling s = get_sampling(b, r);
    if ((s.flags & ~known) != 0 ||
        ((s.flags & PGD_SAMPLE_GIVEN) == 0 && s.typical_p != 0 && s.typical_p != 1)) {
        return common_refuse(c, PGD_UNSUPPORTED, "output %lld: flags %#x, typical_p %g",
                             (long long)r, (unsigned)s.flags, (double)s.typical_p);
    }
    if ((s.flags & PGD_SAMPLE_LOGPROBS) != 0) {
        if (a->logprobs.rank == 0 || a->top_ids.rank == 0 || a->ranks.rank == 0) {
            return common_refuse(c, PGD_UNSUPPORTED, "output %lld: log probabilities, no tensors",
                                 (long long)r);
        }
        if (s.n_logprobs < 0 || s.n_logprobs >= a->logprobs.shape[1]) {
            return common_refuse(c, PGD_INVALID, "output %lld: the %d best of %lld", (long long)r,
                                 (int)s.n_logprobs, (long long)a->logprobs.shape[1] - 1);
        }
    }
    if ((s.flags & PGD_SAMPLE_GIVEN) != 0) {
        return (s.given >= 0 && s.given < a->logits.shape[1]) ||
               common_refuse(c, PGD_INVALID, "output %lld: given token %d", (long long)r,
                             (int)s.given);
    }
    if ((s.flags & PGD_SAMPLE_GREEDY) == 0 &&
        !(s.temperature > 0 && isfinite(s.temperature) && s.top_p >= 0 && s.top_p <= 1 &&
          s.min_p >= 0 && s.min_p <= 1 && s.top_k >= 0)) {
        return common_refuse(
            c, PGD_INVALID, "output %lld: temperature %g, top_p %g, min_p %g, top_k %d",
            (long long)r, (double)s.temperature, (double)s.top_p, (double)s.min_p, (int)s.top_k);
    }
    return check_change(c, b, a, r, &s);
}

// Looks at the rows of this step; while a graph is recorded there are none yet.
static void check_rows(gpu_op *op, const pgd_sample_args *a) {
    const pgd_batch *b = op->batch;
    common_check c = {.code = PGD_OK};
    if (op->code != PGD_OK || b == NULL || op->x->queue->recording != NULL) {
        return;
    }
    const pgd_batch_head *head = b->mirror;
    int32_t rows = op->rows_mode == PGD_ROWS_OUTPUTS  ? head->n_out
                   : op->rows_mode == PGD_ROWS_TOKENS ? head->n_tokens
                                                      : op->cap;
    if (rows > b->cap_out) {
        op->code = GPU_FAIL(op->d, PGD_INVALID, "sample: %d rows, the batch holds %d", (int)rows,
                            (int)b->cap_out);
        return;
    }
    for (int32_t r = 0; r < rows; r++) {
        if (!check_row(&c, b, a, r)) {
            op->code = GPU_FAIL(op->d, c.code, "sample: %s", c.reason);
            return;
        }
    }
}

// A chunk of rows by portable kernels, and by tuned ones. best NULL: nothing is kept.
static void emit_chunk(gpu_op *op, gpu_work *w, const k_sample_params *p,
                       const best_columns *best) {
    static const int32_t kernels[3] = {PGD_PORTABLE_change, PGD_PORTABLE_draw, PGD_PORTABLE_tell};
    const gpu_tuned *t = p->draw.n < GPU_DRAW_TOKENS ? gpu_of(op->d)->tuned : NULL;
    t = t != NULL && t->emit_draw != NULL ? t : NULL;
    if (t != NULL && best != NULL) { // steps of few rows have it
        gpu_work few = *w;
        few.when = GPU_IF_BETWEEN;
        few.rows_least = 1;
        few.rows_most = best->rows;
        t->emit_draw(op, &few, p, (int64_t)(op->x->scratch.offset + best->at), best->n);
        few.rows_least = best->rows + 1;
        few.rows_most = INT32_MAX;
        t->emit_draw(op, &few, p, 0, 0);
    } else if (t != NULL) {
        t->emit_draw(op, w, p, 0, 0);
    }
    for (int i = t != NULL ? 2 : 0; i < 3; i++) {
        w->launch.kernel = kernels[i];
        if (kernels[i] != PGD_PORTABLE_tell || p->n_columns > 0) {
            gpu_emit(op, w, p);
        }
    }
}

static pgd_status run_sample(const pgd_exec *x, const pgd_sample_args *a,
                             const best_columns *best) {
    gpu_op op;
    gpu_op_open(&op, x, a->batch, a->rows, a->logits.shape[0]);
    gpu_work w = gpu_work_of(&op, PGD_PORTABLE_draw, 0, 1);
    k_sample_params p = {.draw = {.x = gpu_bind(&op, &w, 1, "logits", &a->logits),
                                  .ids_at = gpu_bind(&op, &w, 3, "ids", &a->ids).at,
                                  .rows = gpu_rows(&op),
                                  .n = (int32_t)a->logits.shape[1]},
                         .work = gpu_bind_scratch(&op, &w, 2, gpu_sample_scratch(&a->logits)),
                         .logprobs = gpu_bind(&op, &w, 4, "logprobs", &a->logprobs),
                         .top_ids = gpu_bind(&op, &w, 5, "top_ids", &a->top_ids),
                         .ranks_at = gpu_bind(&op, &w, 6, "ranks", &a->ranks).at,
                         .state = gpu_bind(&op, &w, 7, "state", &a->state),
                         .n_state = a->state.rank != 0 ? (int32_t)a->state.shape[0] : 0};
    const bool tells = a->logprobs.rank != 0 && a->top_ids.rank != 0 && a->ranks.rank != 0;
    const pgd_batch *b = op.batch;
    p.n_columns = tells ? (int32_t)a->logprobs.shape[1] : 0;
    p.work.s0 = p.draw.n;
    bind_tokens(&op, &p.draw);
    p.sampling_stride = b == NULL ? 0 : (int32_t)b->sampling_stride;
    p.sampling_at = gpu_array(&op, "sampling parameters", b == NULL ? 0 : b->sampling,
                              b == NULL ? 0 : (uint64_t)b->cap_out * b->sampling_stride);
    p.mask_at = b == NULL ? 0 : (int64_t)b->mask;
    p.bias_at = b == NULL ? 0 : (int64_t)b->bias;
    check_rows(&op, a);
    for (p.first = 0; p.first < op.cap; p.first += CHUNK) {
        w.launch.groups[0] = (uint32_t)(op.cap - p.first < CHUNK ? op.cap - p.first : CHUNK);
        w.rows_from = p.first;
        emit_chunk(&op, &w, &p, best);
    }
    return op.code;
}

pgd_status gpu_op_sample(const pgd_exec *x, const pgd_sample_args *a) {
    return run_sample(x, a, NULL);
}

pgd_status gpu_op_head_sample(const pgd_exec *x, const pgd_head_sample_args *a) {
    gpu_product product = {.rows = a->rows,
                           .eps = a->eps,
                           .batch = a->batch,
                           .w = a->w,
                           .x = &a->x,
                           .norm_w = &a->norm_w,
                           .normed = &a->normed,
                           .y = &a->logits};
    const best_columns best =
        best_of(x->dev, &a->w->desc, a->norm_w.rank != 0 ? &a->normed : &a->x, &a->logits);
    const pgd_sample_args draw = common_sample_of(a);
    gpu_op op;
    gpu_op_open(&op, x, a->batch, a->rows, a->logits.shape[0]);
    check_rows(&op, &draw);
    PGD_TRY(op.code); // before the first launch
    product.best_at = best.n > 0 ? (int64_t)best.at : 0;
    PGD_TRY(gpu_run_product(x, &product));
    return run_sample(x, &draw, product.tail_rows > 0 ? &best : NULL);
}
