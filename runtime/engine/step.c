// The step loop. See engine.c and <pagoda/pagoda.h>.
#include "engine/inner.h"

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

// Brings the step's tokens (and logits, if wanted) to the host.
static pgd_status fetch(pgd_engine *e) {
    uint64_t n_out = (uint64_t)e->step.n_out;
    pgd_copy list[2];
    uint32_t n = 0;
    if (n_out > 0) {
        add_copy(list, &n, pgd_model_ids(e->model), e->ids, n_out * sizeof(*e->ids));
        if (e->logits != NULL) {
            uint64_t row = (uint64_t)e->config->vocab * sizeof(float);
            add_copy(list, &n, pgd_model_logits(e->model), e->logits, n_out * row);
        }
        PGD_TRY(e->d->queue->copy(e->d, e->queue, list, n));
    }
    uint64_t point = 0;
    PGD_TRY(e->d->queue->signal(e->d, e->queue, &point));
    return e->d->queue->host_wait(e->d, e->queue, point, PGD_WAIT_FOREVER);
}

static pgd_status run(pgd_engine *e) {
    uint64_t before = pgd_mem_thread_count();
    pgd_engine_fill(e);
    const pgd_batch *batch = pgd_dev_batch_view(e->batch);
    pgd_sample_fill(&e->step, pgd_dev_batch_array(e->batch, batch->sampling),
                    batch->sampling_stride);
    PGD_TRY(pgd_dev_upload_batch(e->batch, e->queue));
    PGD_TRY(pgd_model_run(e->model, e->exec, e->step.n_out));
    PGD_TRY(fetch(e));
    e->step_allocations += pgd_mem_thread_count() - before;
    return PGD_OK;
}

// Ends every request of a step that failed, with the sentence of the failure.
static void fail_rows(pgd_engine *e, pgd_status status) {
    pgd_sched_discard(e->sched, &e->step);
    for (int32_t i = 0; i < e->step.n_rows; i++) {
        pgd_seq *seq = e->step.rows[i].seq;
        pgd_sched_finish(e->sched, seq);
        pgd_engine_end(seq->owner, PGD_FINISH_ERROR, pgd_fail_text(status));
    }
}

pgd_status pgd_engine_step(pgd_engine *e) {
    if (e->n_busy == 0) {
        return PGD_OK;
    }
    pgd_sched_plan(e->sched, &e->step);
    e->n_preemptions += (uint64_t)e->step.n_preempted;
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
    pgd_status status = run(e);
    if (status != PGD_OK) {
        fail_rows(e, status);
        return pgd_fail_note(status, "running step %llu", (unsigned long long)e->step.number);
    }
    pgd_engine_emit(e);
    return PGD_OK;
}

int32_t pgd_engine_busy(const pgd_engine *e) {
    return e->n_busy;
}
