// Tokens to their requests: append, stop rules, text out, rows freed.
#include "engine/inner.h"

#include <string.h>

#include "base/clock.h"
#include "base/fail.h"
#include "base/mem.h"

// Hands on_text what it has not had yet.
static void give_text(pgd_request *r, int32_t done) {
    size_t n = r->text.len - r->text_given;
    if (r->on_text != NULL && (n > 0 || done)) {
        const char *from = n > 0 ? r->text.ptr + r->text_given : "";
        r->text_given = r->text.len;
        r->on_text(r->arg, r, from, n, done);
    }
}

void pgd_engine_end(pgd_request *r, int32_t finish, const char *error) {
    if (r->ended) {
        return;
    }
    if (r->stream != NULL && pgd_text_stream_finish(r->stream, &r->text) != PGD_OK) {
        finish = PGD_FINISH_ERROR;
        error = pgd_fail_last();
    }
    r->seq.finish = finish;
    if (error != NULL && pgd_mem_copy_text(error, &r->error) != PGD_OK) {
        r->error = NULL;
    }
    r->ended = 1;
    r->ended_ns = pgd_clock_ns();
    r->engine->n_busy--;
    give_text(r, 1);
}

// The token's text into the request, unless it is the stop token.
static pgd_status add_text(pgd_request *r, int32_t token) {
    if (r->stream == NULL || r->seq.finish == PGD_FINISH_STOP) {
        return PGD_OK;
    }
    return pgd_text_stream_push(r->stream, token, &r->text);
}

static void emit_row(pgd_engine *e, const pgd_step_row *row) {
    pgd_seq *seq = row->seq;
    pgd_request *r = seq->owner;
    if (r->started_ns == 0) {
        r->started_ns = pgd_clock_ns();
    }
    if (row->out < 0) {
        return;
    }
    int32_t token = e->ids[row->out];
    if (e->logits != NULL) {
        size_t vocab = (size_t)e->config->vocab;
        memcpy(r->logits, e->logits + (size_t)row->out * vocab, vocab * sizeof(float));
    }
    const char *error = NULL;
    if (token < 0 || token >= e->config->vocab) {
        seq->finish = PGD_FINISH_ERROR;
        error = "the model's logits are not numbers (NaN)";
    } else {
        pgd_sample_accept(seq, token);
        if (r->first_ns == 0) {
            r->first_ns = pgd_clock_ns();
        }
        if (add_text(r, token) != PGD_OK) {
            seq->finish = PGD_FINISH_ERROR;
            error = pgd_fail_last();
        }
    }
    if (seq->finish != PGD_FINISH_NONE) {
        pgd_sched_finish(e->sched, seq);
        pgd_engine_end(r, seq->finish, error);
    } else {
        give_text(r, 0);
    }
}

// In the order of scheduling, in which blocks are to be given back.
void pgd_engine_emit(pgd_engine *e) {
    for (int32_t i = 0; i < e->step.n_rows; i++) {
        emit_row(e, &e->step.rows[e->step.turns[i]]);
    }
}
