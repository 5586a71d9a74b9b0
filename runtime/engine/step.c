// The step loop. See engine.c and <pagoda/pagoda.h>; steps on their way: flight.c.
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

// Enqueues the step's tokens (logits and log probabilities, if wanted) on their way to the host.
static pgd_status fetch(pgd_engine *e, engine_flight *f) {
    const uint64_t n_tokens = (uint64_t)f->step.n_tokens_out;
    const uint64_t n_out = (uint64_t)f->step.n_out;
    pgd_copy list[5];
    uint32_t n = 0;
    if (n_tokens > 0) {
        add_copy(list, &n, pgd_model_ids(e->model), f->ids, n_tokens * sizeof(*f->ids));
    }
    if (n_tokens > 0 && f->logits != NULL) {
        const uint64_t row = (uint64_t)e->config->vocab * sizeof(float);
        add_copy(list, &n, pgd_model_logits(e->model), f->logits, n_tokens * row);
    }
    if (wants_logprobs(&f->step)) {
        const uint64_t cells = n_out * ((uint64_t)e->limits.max_logprobs + 1);
        add_copy(list, &n, pgd_model_logprobs(e->model), f->logprobs, cells * sizeof(float));
        add_copy(list, &n, pgd_model_top_ids(e->model), f->logprob_ids, cells * sizeof(int32_t));
        add_copy(list, &n, pgd_model_ranks(e->model), f->ranks, n_out * sizeof(int32_t));
    }
    if (n > 0) {
        PGD_TRY(e->d->queue->copy(e->d, e->queue, list, n));
    }
    return e->d->queue->signal(e->d, e->queue, &f->point);
}

// The planned step onto the queue.
static pgd_status enqueue(pgd_engine *e, engine_flight *f) {
    uint64_t before = pgd_mem_thread_count();
    const pgd_batch *batch = pgd_dev_batch_view(e->batch);
    PGD_TRY(pgd_engine_arrive(e, f));
    pgd_engine_fill(e, f);
    pgd_sample_arrays arrays = {
        .rows = pgd_dev_batch_array(e->batch, batch->sampling),
        .bias = pgd_dev_batch_array(e->batch, batch->bias),
        .stride = batch->sampling_stride,
    };
    pgd_sample_fill(&f->step, &arrays);
    pgd_dev_batch_bias(e->batch, arrays.n_bias);
    PGD_TRY(pgd_dev_upload_batch(e->batch, e->queue));
    PGD_TRY(pgd_model_run(e->model, e->exec, f->step.n_out));
    PGD_TRY(fetch(e, f));
    PGD_TRY(e->d->queue->flush(e->d, e->queue));
    for (int32_t i = 0; i < f->step.n_rows; i++) {
        f->step.rows[i].seq->n_ahead += f->step.rows[i].out >= 0;
    }
    e->step_allocations += pgd_mem_thread_count() - before;
    return PGD_OK;
}

// Plans the next step and sends it off; without rows there is none.
static pgd_status start(pgd_engine *e) {
    engine_flight *f = pgd_engine_flight(e, e->n_flights);
    f->began_ns = pgd_clock_ns();
    e->emit_ns = f->began_ns;
    f->step.number = e->n_steps;
    pgd_sched_limit_prefill(e->sched, pgd_engine_pace_limit(&e->pace));
    pgd_sched_plan(e->sched, &f->step);
    e->n_steps = f->step.number;
    e->step_tokens = f->step.n_tokens;
    for (int32_t i = 0; i < f->step.n_finished; i++) {
        pgd_seq *seq = f->step.finished[i];
        pgd_engine_end(seq->owner, seq->finish,
                       seq->finish == PGD_FINISH_ERROR
                           ? "the request has grown larger than the whole KV cache"
                           : NULL);
    }
    if (f->step.n_rows == 0) {
        return PGD_OK;
    }
    e->stats.n_steps_ahead += e->n_flights > 0;
    e->n_flights++;
    return pgd_fail_note(enqueue(e, f), "running step %llu", (unsigned long long)f->step.number);
}

// Whether the step behind the one on its way can be planned before its tokens are seen.
static int32_t may_run_ahead(const pgd_engine *e) {
    const pgd_step *step = &e->flights[e->first_flight].step;
    for (int32_t i = 0; e->runs_ahead && i < step->n_rows; i++) {
        const pgd_step_row *row = &step->rows[i];
        if (row->seq != NULL && row->out >= 0 && pgd_sample_reads_tokens(row->seq)) {
            return 0;
        }
    }
    return e->runs_ahead;
}

// Waits for the oldest step and hands out its tokens.
static pgd_status land(pgd_engine *e) {
    engine_flight *f = pgd_engine_flight(e, 0);
    const uint64_t free_ns = f->began_ns > e->landed_ns ? f->began_ns : e->landed_ns;
    PGD_TRY(pgd_fail_note(pgd_engine_wait(e, f->point), "running step %llu",
                          (unsigned long long)f->step.number));
    e->trouble.n_lost = 0;
    e->trouble.n_failed = 0;
    pgd_engine_emit(e, f);
    e->landed_ns = pgd_clock_ns();
    pgd_engine_pace_add(&e->pace, f->step.n_decode, f->step.n_tokens - f->step.n_decode,
                        e->landed_ns - free_ns);
    e->first_flight = (e->first_flight + 1) % (1 + e->runs_ahead);
    e->n_flights--;
    return PGD_OK;
}

static pgd_status one_step(pgd_engine *e) {
    PGD_TRY(pgd_engine_ensure_device(e));
    pgd_status status = PGD_OK;
    if (e->n_flights == 0) {
        status = start(e);
    }
    if (status == PGD_OK && e->n_flights == 1 && may_run_ahead(e)) {
        status = start(e);
    }
    if (status == PGD_OK && e->n_flights > 0) {
        status = land(e);
    }
    return status == PGD_OK ? PGD_OK : pgd_engine_recover(e, status);
}

pgd_status pgd_engine_step(pgd_engine *e) {
    if (e->n_busy == 0) {
        return PGD_OK;
    }
    e->in_step = 1;
    atomic_store_explicit(&e->under_way_ns, pgd_clock_ns(), memory_order_relaxed);
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
