// Tokens to their requests: append, stop rules, text out, rows freed.
//
//   token -> stop ids, length -> text -> stop strings -> callbacks
//
// A stop string that is completed wins over an end in the same step, since its text came first.
#include "engine/inner.h"

#include <string.h>

#include "base/clock.h"
#include "base/fail.h"
#include "base/mem.h"

// ---- text --------------------------------------------------------------------------------------

// Searches the text that is new for stop strings; cuts it at the first.
static void read_text(engine_choice *c) {
    const pgd_request *r = c->request;
    const int32_t may_stop = c->seq.n_tokens - c->seq.n_prompt >= c->seq.min_tokens;
    while (r->stop != NULL && c->stop_string < 0 && c->text_read < c->text.len) {
        int32_t which = -1;
        const pgd_str rest = {c->text.ptr + c->text_read, c->text.len - c->text_read};
        c->text_read += pgd_text_stop_scan(r->stop, &c->stop_state, rest, &which);
        if (which >= 0 && may_stop) {
            c->stop_string = which;
            c->text.len =
                c->text_read - (r->include_stop ? 0 : pgd_text_stop_string(r->stop, which).len);
            c->text.ptr[c->text.len] = '\0';
        }
    }
    size_t held = 0;
    if (r->stop != NULL && !r->include_stop && c->stop_string < 0 && !c->ended) {
        held = pgd_text_stop_held(r->stop, &c->stop_state);
    }
    c->text_ready = c->text.len - held;
}

// The token's text, unless it is a stop token that is to be left out.
static pgd_status add_text(engine_choice *c, int32_t token) {
    if (c->stream == NULL || (c->seq.finish == PGD_FINISH_STOP && !c->request->include_stop)) {
        return PGD_OK;
    }
    PGD_TRY(pgd_text_stream_push(c->stream, token, &c->text));
    read_text(c);
    if (c->stop_string >= 0) {
        c->seq.finish = PGD_FINISH_STOP;
    }
    return PGD_OK;
}

// What the stream has held back, unless a stop string has ended the text.
static pgd_status finish_text(engine_choice *c, int32_t *finish) {
    if (c->stream == NULL || c->stop_string >= 0) {
        return PGD_OK;
    }
    PGD_TRY(pgd_text_stream_finish(c->stream, &c->text));
    if (*finish == PGD_FINISH_STOP || *finish == PGD_FINISH_LENGTH) {
        read_text(c);
        *finish = c->stop_string >= 0 ? PGD_FINISH_STOP : *finish;
    }
    return PGD_OK;
}

// ---- ends --------------------------------------------------------------------------------------

static void count_end(pgd_engine_stats *s, int32_t finish) {
    s->n_stop += finish == PGD_FINISH_STOP;
    s->n_length += finish == PGD_FINISH_LENGTH;
    s->n_abort += finish == PGD_FINISH_ABORT;
    s->n_error += finish == PGD_FINISH_ERROR;
}

void pgd_engine_end(engine_choice *c, int32_t finish, const char *error) {
    pgd_request *r = c->request;
    if (c->ended) {
        return;
    }
    c->ended = 1;
    if (finish_text(c, &finish) != PGD_OK) {
        finish = PGD_FINISH_ERROR;
        error = pgd_fail_last();
    }
    c->text_ready = c->text.len;
    c->seq.finish = finish;
    if (error != NULL && pgd_mem_copy_text(error, &c->error) != PGD_OK) {
        c->error = NULL;
    }
    c->ended_ns = r->engine->emit_ns;
    count_end(&r->engine->stats, finish);
    r->n_running--;
    r->engine->n_busy -= r->n_running == 0;
    pgd_engine_give(c);
    if (r->n_running == 0 && r->engine->on_ended != NULL) {
        r->engine->on_ended(r->engine->on_ended_arg, r);
    }
}

// ---- log probabilities -------------------------------------------------------------------------

// Room for n rows, before the token that needs it is appended: there is a row for each token.
static pgd_status grow_logprobs(engine_choice *c, int32_t n) {
    if (c->request->n_logprobs < 0 || n <= c->cap_logprobs) {
        return PGD_OK;
    }
    const size_t rows = (size_t)n * 2 + 14;
    const size_t cells = rows * ((size_t)c->request->n_logprobs + 1);
    float *logprobs = pgd_mem_realloc(c->logprobs, cells, sizeof(*logprobs));
    c->logprobs = logprobs != NULL ? logprobs : c->logprobs;
    int32_t *ids = pgd_mem_realloc(c->logprob_ids, cells, sizeof(*ids));
    c->logprob_ids = ids != NULL ? ids : c->logprob_ids;
    int32_t *ranks = pgd_mem_realloc(c->ranks, rows, sizeof(*ranks));
    c->ranks = ranks != NULL ? ranks : c->ranks;
    if (logprobs == NULL || ids == NULL || ranks == NULL) {
        return PGD_MEM_FAIL("the log probabilities", cells * sizeof(*logprobs));
    }
    c->cap_logprobs = (int32_t)rows;
    return PGD_OK;
}

// A step whose tokens are there.
typedef struct emission {
    pgd_engine *e;
    const engine_flight *f;
} emission;

// Columns [0, n] of output row `out` into row `at` of the three arrays.
static void copy_logprobs(const emission *m, int32_t out, size_t columns, size_t at,
                          float *logprobs, int32_t *ids, int32_t *ranks) {
    const engine_flight *f = m->f;
    const size_t from = (size_t)out * ((size_t)m->e->limits.max_logprobs + 1);
    memcpy(logprobs + at * columns, f->logprobs + from, columns * sizeof(*logprobs));
    memcpy(ids + at * columns, f->logprob_ids + from, columns * sizeof(*ids));
    ranks[at] = f->ranks[out];
}

static void add_logprobs(const emission *m, engine_choice *c, int32_t out) {
    if (c->request->n_logprobs < 0) {
        return;
    }
    const int32_t n = c->seq.n_tokens - c->seq.n_prompt;
    copy_logprobs(m, out, (size_t)c->request->n_logprobs + 1, (size_t)n - 1, c->logprobs,
                  c->logprob_ids, c->ranks);
    c->cumulative += (double)m->f->logprobs[(size_t)out * ((size_t)m->e->limits.max_logprobs + 1)];
}

static void add_scores(const emission *m, const pgd_step_row *row) {
    const engine_choice *c = row->seq->owner;
    pgd_request *r = c->request;
    for (int32_t i = 0; i < row->n_scored; i++) {
        copy_logprobs(m, row->out_scored + i, (size_t)r->n_prompt_logprobs + 1,
                      (size_t)(row->scored + i), r->prompt_logprobs, r->prompt_logprob_ids,
                      r->prompt_ranks);
    }
}

// ---- a row -------------------------------------------------------------------------------------

static void count_token(pgd_engine *e, engine_choice *c) {
    c->last_ns = e->emit_ns;
    if (c->first_ns == 0) {
        c->first_ns = c->last_ns;
        e->stats.n_prompt_tokens += c->index == 0 ? (uint64_t)c->seq.n_prompt : 0;
    }
    e->stats.n_generated_tokens++;
}

static pgd_status add_token(const emission *m, engine_choice *c, int32_t out) {
    pgd_engine *e = m->e;
    const int32_t token = m->f->ids[out];
    if (token < 0 || token >= e->config->vocab) {
        // What it wrote into the cache may be no numbers either: nobody is to find it.
        pgd_kv_cache_forget(e->cache, &c->seq, 0);
        e->stats.n_corrupt++;
        return pgd_fail(PGD_INTERNAL, "the model's logits are not numbers (NaN)");
    }
    PGD_TRY(grow_logprobs(c, c->seq.n_tokens - c->seq.n_prompt + 1));
    pgd_sample_accept(&c->seq, token);
    pgd_kv_cache_learn(e->cache, &c->seq);
    count_token(e, c);
    add_logprobs(m, c, out);
    return add_text(c, token);
}

// A row whose answer has ended since (one that stopped while its next token was on its way, or was
// cancelled) gives nothing.
static void emit_row(const emission *m, const pgd_step_row *row) {
    pgd_engine *e = m->e;
    pgd_seq *seq = row->seq;
    engine_choice *c = seq != NULL ? seq->owner : NULL;
    if (c == NULL || c->ended) {
        return;
    }
    if (c->started_ns == 0) {
        c->started_ns = m->f->began_ns;
    }
    add_scores(m, row);
    if (row->out < 0) {
        return;
    }
    seq->n_ahead--;
    if (c->logits != NULL) {
        size_t vocab = (size_t)e->config->vocab;
        memcpy(c->logits, m->f->logits + (size_t)row->out * vocab, vocab * sizeof(float));
    }
    const char *error = NULL;
    if (add_token(m, c, row->out) != PGD_OK) {
        seq->finish = PGD_FINISH_ERROR;
        error = pgd_fail_last();
    }
    if (seq->finish != PGD_FINISH_NONE) {
        pgd_sched_finish(e->sched, seq);
        pgd_engine_end(c, seq->finish, error);
    } else {
        pgd_engine_give(c);
    }
}

static uint64_t tokens_counted(const pgd_engine_stats *s) {
    return s->n_prompt_tokens + s->n_generated_tokens;
}

static void count_step(pgd_engine_stats *s, uint64_t tokens) {
    const uint32_t last = sizeof(s->n_steps_by_tokens) / sizeof(s->n_steps_by_tokens[0]) - 1;
    uint32_t i = 0;
    while (i < last && tokens > UINT64_C(1) << i) {
        i++;
    }
    s->n_steps_by_tokens[i] += tokens > 0;
}

// In the order of scheduling, in which blocks are to be given back.
void pgd_engine_emit(pgd_engine *e, const engine_flight *f) {
    const emission m = {.e = e, .f = f};
    const uint64_t before = tokens_counted(&e->stats);
    e->emit_ns = pgd_clock_ns();
    for (int32_t i = 0; i < f->step.n_rows; i++) {
        emit_row(&m, &f->step.rows[f->step.turns[i]]);
    }
    count_step(&e->stats, tokens_counted(&e->stats) - before);
}
