// When the device fails: what is tried again, and who is told.
//
//   a step fails, the device is there   once: everything that runs goes back to the queue, tokens
//                                       kept, and is computed again; the next time: the requests of
//                                       the step end with the sentence of the failure (and those
//                                       of a step that was on its way behind it)
//   the device is lost, or a step       closed, opened again (or the standby), weights loaded again
//   takes too long                      or adopted from the store, prefix cache forgotten,
//                                       everything that ran is computed again from its tokens
//   no device can be opened             every request ends with an error; the next one tries again
//
// Sampling depends on a seed and a position, so a sequence that is computed again goes on with the
// tokens it would have had.
#include "engine/inner.h"

#include <stdio.h>

#include "base/fail.h"
#include "base/log.h"
#include "base/mem.h"
#include "load/weights.h"

#define MAX_LOSSES 4 // in a row, without a step between them

pgd_status pgd_engine_wait(pgd_engine *e, uint64_t point) {
    const uint64_t ns = e->trouble.timeout_ns;
    const pgd_status status = e->d->queue->host_wait(e->d, e->queue, point, ns);
    return pgd_fail_note(status, "the device had %llu ms for the step",
                         (unsigned long long)(ns / 1000000));
}

// ---- ends --------------------------------------------------------------------------------------

// The sentence of a failure, which the next failure would overwrite.
typedef struct sentence {
    char text[1400];
} sentence;

static sentence sentence_of(pgd_status status) {
    sentence s;
    (void)snprintf(s.text, sizeof(s.text), "%s", pgd_fail_text(status));
    return s;
}

static void discard_flights(pgd_engine *e) {
    for (int32_t i = 0; i < e->n_flights; i++) {
        pgd_sched_discard(e->sched, &pgd_engine_flight(e, i)->step);
    }
}

// Ends the requests of the steps on their way.
static void end_flights(pgd_engine *e, pgd_status status) {
    const sentence why = sentence_of(status);
    discard_flights(e);
    for (int32_t i = 0; i < e->n_flights; i++) {
        const pgd_step *step = &pgd_engine_flight(e, i)->step;
        for (int32_t r = 0; r < step->n_rows; r++) {
            pgd_seq *seq = step->rows[r].seq;
            if (seq != NULL) {
                pgd_sched_finish(e->sched, seq);
                pgd_engine_end(seq->owner, PGD_FINISH_ERROR, why.text);
            }
        }
    }
    e->n_flights = 0;
    pgd_fail_set(status, why.text);
}

// Everything that runs goes back to the queue. Where steps overlap, a block of a failed one may
// belong to nobody any more and still be findable, so the prefix cache is forgotten.
static void requeue(pgd_engine *e) {
    discard_flights(e);
    e->n_flights = 0;
    pgd_sched_requeue(e->sched);
    if (e->runs_ahead) {
        (void)pgd_sched_reset_cache(e->sched, 1);
    }
}

// Ends every request. Callbacks may submit further ones, which stand before these in the list, and
// release, which waits for the end of the step.
static void end_all(pgd_engine *e, pgd_status status) {
    const sentence why = sentence_of(status);
    for (pgd_request *r = e->requests; r != NULL; r = r->next) {
        for (int32_t i = 0; i < r->n; i++) {
            pgd_sched_finish(e->sched, &r->choices[i].seq);
            pgd_engine_end(&r->choices[i], PGD_FINISH_ERROR, why.text);
        }
    }
    pgd_fail_set(status, why.text);
}

// ---- another device ----------------------------------------------------------------------------

static pgd_status load_again(pgd_engine *e, const char *name) {
    pgd_load_weights *weights = NULL;
    pgd_load_plan *plan = NULL;
    pgd_status status = pgd_engine_open_named(e, name);
    if (status == PGD_OK) {
        status = pgd_engine_open_weights(e, &weights, &plan);
    }
    if (status == PGD_OK) {
        status = pgd_engine_plan_again(e, plan);
    }
    if (status == PGD_OK) {
        status = pgd_engine_load(e, plan);
    }
    pgd_load_plan_destroy(plan);
    pgd_load_weights_close(weights);
    if (status != PGD_OK) {
        pgd_engine_unload(e);
    }
    return pgd_fail_note(status, "opening the device %s again", name);
}

// Opens what is to be tried; the one that was lost first, unless it was lost without a step done.
static pgd_status open_some(pgd_engine *e) {
    engine_names *n = &e->names;
    const int32_t change = n->standby != NULL && e->trouble.n_lost % 2 == 0;
    const int32_t first = n->on_standby ^ change;
    pgd_status status = PGD_OK;
    for (int32_t i = 0; i < (n->standby != NULL ? 2 : 1); i++) {
        const int32_t on_standby = first ^ i;
        status = load_again(e, on_standby ? n->standby : n->device);
        if (status == PGD_OK) {
            n->on_standby = on_standby;
            e->stats.n_device_opened++;
            pgd_log(PGD_LEVEL_WARNING, "device %s is open; %d sequences are computed again", n->uri,
                    pgd_sched_n_waiting(e->sched));
            return PGD_OK;
        }
        pgd_log(PGD_LEVEL_ERROR, "%s", pgd_fail_text(status));
    }
    n->uri[0] = '\0';
    return status;
}

static pgd_status reopen(pgd_engine *e, pgd_status lost) {
    const pgd_status status = e->trouble.n_lost <= MAX_LOSSES ? open_some(e) : lost;
    if (status != PGD_OK) {
        e->trouble.n_lost = 0; // the next request may try anew
        end_all(e, status);
    }
    return status;
}

pgd_status pgd_engine_ensure_device(pgd_engine *e) {
    return e->dev != NULL ? PGD_OK : reopen(e, PGD_UNAVAILABLE);
}

// ---- after a failure ---------------------------------------------------------------------------

static int32_t is_lost(const pgd_engine *e, pgd_status status) {
    return status == PGD_DEVICE_LOST || status == PGD_TIMEOUT ||
           e->d->device->status(e->d) == PGD_DEVICE_LOST;
}

static pgd_status recover_device(pgd_engine *e, pgd_status status) {
    e->stats.n_device_lost++;
    e->trouble.n_lost++;
    pgd_log(PGD_LEVEL_ERROR, "device %s is lost: %s", e->names.uri, pgd_fail_text(status));
    requeue(e);
    (void)pgd_sched_reset_cache(e->sched, 1); // nothing runs, so it is always forgotten
    pgd_engine_unload(e);
    return reopen(e, status);
}

// What the failed step has enqueued may still read the batch's mirror, which the next one fills.
static pgd_status drain(pgd_engine *e) {
    uint64_t point = 0;
    PGD_TRY(e->d->queue->signal(e->d, e->queue, &point));
    return pgd_engine_wait(e, point);
}

pgd_status pgd_engine_recover(pgd_engine *e, pgd_status status) {
    const sentence why = sentence_of(status);
    if (is_lost(e, status)) {
        pgd_fail_set(status, why.text);
        return recover_device(e, status);
    }
    const pgd_status drained = drain(e);
    if (drained != PGD_OK && is_lost(e, drained)) {
        return recover_device(e, drained);
    }
    pgd_fail_set(status, why.text);
    e->trouble.n_failed++;
    if (e->trouble.n_failed > 1) {
        e->trouble.n_failed = 0;
        end_flights(e, status);
        return status;
    }
    e->stats.n_step_retries++;
    pgd_log(PGD_LEVEL_WARNING, "%s; it is computed again", pgd_fail_text(status));
    requeue(e);
    return PGD_OK;
}
