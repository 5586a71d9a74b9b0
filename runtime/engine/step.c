// The step loop. See engine.c and <pagoda/pagoda.h>.
#include "engine/inner.h"

#include "base/clock.h"
#include "base/fail.h"
#include "base/mem.h"

static void add_copy(pgd_copy *list, uint32_t *n, const pgd_tensor *from, void *to,
                     uint64_t bytes) {
    list[(*n)++] = (pgd_copy){
        .dst_offset = (uint64_t)(uintptr_t)to,
        .src = from->buffer,
        .src_offset = from->offset,
        .bytes = bytes,
        .rows = 1,
    };
}

static int32_t wants_logprobs(const pgd_step *step) {
    for (int32_t i = 0; i < step->n_rows; i++) {
        const pgd_step_row *row = &step->rows[i];
        if (row->n_scored > 0 ||
            (row->out >= 0 && (row->seq->sampling.flags & PGD_SAMPLE_LOGPROBS) != 0)) {
            return 1;
        }
    }
    return 0;
}

// Brings the step's tokens (logits and log probabilities, if wanted) to the host.
static pgd_status fetch(pgd_engine *e) {
    const uint64_t n_tokens = (uint64_t)e->step.n_tokens_out;
    const uint64_t n_out = (uint64_t)e->step.n_out;
    pgd_copy list[5];
    uint32_t n = 0;
    if (n_tokens > 0) {
        add_copy(list, &n, pgd_model_ids(e->model), e->ids, n_tokens * sizeof(*e->ids));
    }
    if (n_tokens > 0 && e->logits != NULL) {
        const uint64_t row = (uint64_t)e->config->vocab * sizeof(float);
        add_copy(list, &n, pgd_model_logits(e->model), e->logits, n_tokens * row);
    }
    if (wants_logprobs(&e->step)) {
        const uint64_t cells = n_out * ((uint64_t)e->limits.max_logprobs + 1);
        add_copy(list, &n, pgd_model_logprobs(e->model), e->logprobs, cells * sizeof(float));
        add_copy(list, &n, pgd_model_top_ids(e->model), e->logprob_ids, cells * sizeof(int32_t));
        add_copy(list, &n, pgd_model_ranks(e->model), e->ranks, n_out * sizeof(int32_t));
    }
    if (n > 0) {
        PGD_TRY(e->d->queue->copy(e->d, e->queue, list, n));
    }
    uint64_t point = 0;
    PGD_TRY(e->d->queue->signal(e->d, e->queue, &point));
    return pgd_engine_wait(e, point);
}

static pgd_status run(pgd_engine *e) {
    uint64_t before = pgd_mem_thread_count();
    const pgd_batch *batch = pgd_dev_batch_view(e->batch);
    PGD_TRY(pgd_engine_arrive(e));
    pgd_engine_fill(e);
    pgd_sample_arrays arrays = {
        .rows = pgd_dev_batch_array(e->batch, batch->sampling),
        .bias = pgd_dev_batch_array(e->batch, batch->bias),
        .stride = batch->sampling_stride,
    };
    pgd_sample_fill(&e->step, &arrays);
    pgd_dev_batch_bias(e->batch, arrays.n_bias);
    PGD_TRY(pgd_dev_upload_batch(e->batch, e->queue));
    PGD_TRY(pgd_model_run(e->model, e->exec, e->step.n_out));
    PGD_TRY(fetch(e));
    e->step_allocations += pgd_mem_thread_count() - before;
    return PGD_OK;
}

static pgd_status one_step(pgd_engine *e) {
    e->step_ns = pgd_clock_ns();
    e->emit_ns = e->step_ns;
    atomic_store_explicit(&e->under_way_ns, e->step_ns, memory_order_relaxed);
    pgd_sched_limit_prefill(e->sched, pgd_engine_pace_limit(&e->pace));
    PGD_TRY(pgd_engine_ensure_device(e));
    pgd_sched_plan(e->sched, &e->step);
    for (int32_t i = 0; i < e->step.n_finished; i++) {
        pgd_seq *seq = e->step.finished[i];
        pgd_engine_end(seq->owner, seq->finish,
                       seq->finish == PGD_FINISH_ERROR
                           ? "the request has grown larger than the whole KV cache"
                           : NULL);
    }
    if (e->step.n_rows == 0) {
        return PGD_OK;
    }
    const pgd_status status =
        pgd_fail_note(run(e), "running step %llu", (unsigned long long)e->step.number);
    if (status != PGD_OK) {
        return pgd_engine_recover(e, status);
    }
    e->trouble.n_lost = 0;
    e->trouble.n_failed = 0;
    pgd_engine_emit(e);
    pgd_engine_pace_add(&e->pace, e->step.n_decode, e->step.n_tokens - e->step.n_decode,
                        pgd_clock_ns() - e->step_ns);
    return PGD_OK;
}

pgd_status pgd_engine_step(pgd_engine *e) {
    if (e->n_busy == 0) {
        return PGD_OK;
    }
    e->in_step = 1;
    pgd_status status = one_step(e);
    atomic_store_explicit(&e->under_way_ns, 0, memory_order_relaxed);
    e->in_step = 0;
    e->stats.step_status = status;
    while (e->released != NULL) {
        pgd_request *r = e->released;
        e->released = r->next_released;
        pgd_engine_free_request(r);
    }
    return status;
}

int32_t pgd_engine_busy(const pgd_engine *e) {
    return e->n_busy;
}
