// What has come of a request: outputs, and the deltas of the callbacks. See <pagoda/pagoda.h>.
#include "engine/inner.h"

#include <string.h>

#include "base/clock.h"

static const char *reason_of(const engine_choice *c) {
    static const char *const names[] = {NULL, "stop", "length", "abort", "error"};
    return c->ended ? names[c->seq.finish] : NULL;
}

static int32_t own_stop_id(const engine_choice *c) {
    const pgd_request *r = c->request;
    for (int32_t i = 0; i < r->n_own_stop_ids && c->stop_string < 0; i++) {
        if (r->stop_ids[i] == c->seq.stop_id) {
            return c->seq.stop_id;
        }
    }
    return -1;
}

static const char *stop_text(const engine_choice *c) {
    return c->stop_string >= 0 ? pgd_text_stop_string(c->request->stop, c->stop_string).ptr : NULL;
}

static int32_t n_output(const engine_choice *c) {
    return c->seq.n_tokens - c->seq.n_prompt;
}

static int32_t n_cached(const engine_choice *c) {
    return c->seq.cached_tokens > 0 ? c->seq.cached_tokens : 0;
}

void pgd_engine_give(engine_choice *c) {
    pgd_request *r = c->request;
    const size_t n_text = c->text_ready - c->text_given;
    const char *text = n_text > 0 ? c->text.ptr + c->text_given : "";
    const int32_t first = c->ids_given;
    c->text_given = c->text_ready;
    c->ids_given = n_output(c);
    if (r->on_text != NULL && (n_text > 0 || c->ended)) {
        r->on_text(r->arg, r, text, n_text, c->ended);
    }
    if (r->on_delta == NULL || (first == c->ids_given && n_text == 0 && !c->ended)) {
        return;
    }
    const size_t columns = (size_t)r->n_logprobs + 1;
    const int32_t has_logprobs = c->logprobs != NULL;
    const pgd_delta delta = {
        .size = sizeof(delta),
        .index = c->index,
        .text = text,
        .text_len = n_text,
        .ids = c->seq.tokens + c->seq.n_prompt + first,
        .logprobs = has_logprobs ? c->logprobs + (size_t)first * columns : NULL,
        .logprob_ids = has_logprobs ? c->logprob_ids + (size_t)first * columns : NULL,
        .ranks = has_logprobs ? c->ranks + first : NULL,
        .n_ids = c->ids_given - first,
        .n_logprobs = r->n_logprobs,
        .finish_reason = reason_of(c),
        .stop_text = stop_text(c),
        .error = c->error,
        .stop_id = own_stop_id(c),
        .n_prompt = c->seq.n_prompt,
        .n_cached = n_cached(c),
        .n_output = c->ids_given,
        .done = r->n_running == 0,
    };
    r->on_delta(r->arg, r, &delta);
}

static uint64_t since(const pgd_request *r, uint64_t ns) {
    return ns != 0 ? ns - r->submitted_ns : 0;
}

void pgd_request_choice(const pgd_request *r, int32_t index, pgd_output *out) {
    const engine_choice *c = &r->choices[index >= 0 && index < r->n ? index : 0];
    const pgd_output full = {
        .size = out->size,
        .done = c->ended,
        .finish_reason = reason_of(c),
        .error = c->error,
        .text = c->text.ptr != NULL ? c->text.ptr : "",
        .text_len = c->text.len,
        .ids = c->seq.tokens + c->seq.n_prompt,
        .n_ids = n_output(c),
        .n_prompt = c->seq.n_prompt,
        .stop_id = own_stop_id(c),
        .n_preempted = c->seq.n_preempted,
        .queued_ns = since(r, c->started_ns),
        .first_ns = since(r, c->first_ns),
        .total_ns = since(r, c->ended ? c->ended_ns : pgd_clock_ns()),
        .n_cached = n_cached(c),
        .index = c->index,
        .n = r->n,
        .n_running = r->n_running,
        .stop_text = stop_text(c),
        .last_ns = since(r, c->last_ns),
        .prompt_ids = c->seq.tokens,
        .cumulative_logprob = c->cumulative,
        .n_logprobs = r->n_logprobs,
        .n_prompt_logprobs = r->n_prompt_logprobs,
        .logprobs = c->logprobs,
        .logprob_ids = c->logprob_ids,
        .ranks = c->ranks,
        .prompt_logprobs = r->prompt_logprobs,
        .prompt_logprob_ids = r->prompt_logprob_ids,
        .prompt_ranks = r->prompt_ranks,
        .n_prompt_scored = r->choices[0].seq.n_scored,
    };
    memcpy(out, &full, out->size < sizeof(full) ? out->size : sizeof(full));
}

void pgd_request_output(const pgd_request *r, pgd_output *out) {
    pgd_request_choice(r, 0, out);
}

const float *pgd_request_logits(const pgd_request *r) {
    return r->choices[0].logits;
}
