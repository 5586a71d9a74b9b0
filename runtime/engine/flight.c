// Steps on their way: their memory, and who is in them.
//
// Where the device works beside the CPU the engine runs ahead: step N + 1 is planned and enqueued
// while N runs, its rows' tokens still on the device, which puts them in (pgd_batch.token_ids).
//
//   host     plan N+1 . wait N . emit N . plan N+2 . wait N+1 . emit N+1
//   device   ===== N =====|======== N+1 =========|======== N+2 ====
//
// An answer that stops with N has a row in N + 1 that nobody hears of. What that row writes is what
// belongs there, and the queue is in order: blocks and slots that are given on are written by a
// later step.
#include "engine/inner.h"

#include "base/fail.h"

static void *take(unsigned char *base, uint64_t *end, uint64_t bytes) {
    const uint64_t at = *end;
    *end = at + ((bytes + 63) & ~(uint64_t)63);
    return base != NULL && bytes > 0 ? base + at : NULL;
}

// The arrays of a flight one after the other, base NULL: only their bytes, which it returns.
static uint64_t lay_out(const pgd_engine *e, engine_flight *f, unsigned char *base) {
    const engine_limits *l = &e->limits;
    const uint64_t n = (uint64_t)l->max_num_seqs;
    const uint64_t n_out = n + (uint64_t)l->max_scored;
    const uint64_t cells = n_out * ((uint64_t)l->max_logprobs + 1);
    const uint64_t vocab = (uint64_t)e->config->vocab;
    uint64_t end = 0;
    f->ids = take(base, &end, n * sizeof(*f->ids));
    f->logprobs = take(base, &end, cells * sizeof(*f->logprobs));
    f->logprob_ids = take(base, &end, cells * sizeof(*f->logprob_ids));
    f->ranks = take(base, &end, n_out * sizeof(*f->ranks));
    f->counts = take(base, &end, ENGINE_COUNT_ROWS * vocab * sizeof(*f->counts));
    f->logits = take(base, &end, l->keep_logits ? n * vocab * sizeof(*f->logits) : 0);
    return end;
}

static pgd_status make_flight(pgd_engine *e, engine_flight *f) {
    PGD_TRY(pgd_dev_staging_create(e->d, lay_out(e, f, NULL), &f->staging));
    (void)lay_out(e, f, f->staging.host);
    return PGD_OK;
}

pgd_status pgd_engine_make_flights(pgd_engine *e) {
    for (int32_t i = 0; i < 1 + e->runs_ahead; i++) {
        PGD_TRY(make_flight(e, &e->flights[i]));
    }
    return PGD_OK;
}

void pgd_engine_free_flights(pgd_engine *e) {
    for (int32_t i = 0; i < ENGINE_FLIGHTS; i++) {
        pgd_dev_staging_destroy(e->d, &e->flights[i].staging);
    }
    e->n_flights = 0;
    e->first_flight = 0;
}

engine_flight *pgd_engine_flight(pgd_engine *e, int32_t i) {
    return &e->flights[(e->first_flight + i) % (1 + e->runs_ahead)];
}

void pgd_engine_forget_rows(pgd_engine *e, const pgd_seq *seq) {
    for (int32_t i = 0; i < e->n_flights; i++) {
        const pgd_step *step = &pgd_engine_flight(e, i)->step;
        for (int32_t r = 0; r < step->n_rows; r++) {
            if (step->rows[r].seq == seq) {
                step->rows[r].seq = NULL;
            }
        }
    }
}
