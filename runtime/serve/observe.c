// What a call tells the figures of /metrics: when its tokens came, and how it ended.
#include <string.h>

#include "serve/inner.h"

void pgd_serve_call_uncount(pgd_serve_call *call) {
    if (call->counted) {
        call->counted = 0;
        call->server->waiting--;
        call->server->waiting_tokens -= call->n_waiting_tokens;
    }
}

// Each answer is a request of its own in these figures, as with vLLM.
void pgd_serve_observe_delta(pgd_serve_call *call, pgd_serve_choice *c, const pgd_delta *d,
                             uint64_t now) {
    pgd_serve_metrics *m = &call->server->metrics;
    if (d->n_ids == 0) {
        return;
    }
    if (call->first_ns == 0) {
        call->first_ns = now;
        pgd_serve_call_uncount(call);
    }
    if (c->latest_ns == 0) {
        pgd_serve_observe(m, PGD_SERVE_H_time_to_first_token_seconds,
                          (double)(now - call->start_ns) / 1e9);
    } else {
        pgd_serve_observe(m, PGD_SERVE_H_inter_token_latency_seconds,
                          (double)(now - c->latest_ns) / 1e9 / d->n_ids);
    }
    c->latest_ns = now;
}

void pgd_serve_observe_end(pgd_serve_call *call, pgd_serve_prompt *p, uint64_t now) {
    pgd_serve_metrics *m = &call->server->metrics;
    int32_t made = 0;
    int32_t most = 0;
    for (int32_t i = 0; i < call->n; i++) {
        pgd_serve_choice *c = &call->choices[p->index * call->n + i];
        const char *reason = c->finish_reason != NULL ? c->finish_reason : "error";
        const int32_t said = strcmp(reason, "stop") == 0 || strcmp(reason, "tool_calls") == 0;
        const int32_t end = said                            ? PGD_SERVE_END_stop
                            : strcmp(reason, "length") == 0 ? PGD_SERVE_END_length
                            : strcmp(reason, "abort") == 0  ? PGD_SERVE_END_abort
                                                            : PGD_SERVE_END_error;
        m->ended[end]++;
        made += c->n_output;
        most = c->n_output > most ? c->n_output : most;
        pgd_serve_observe(m, PGD_SERVE_H_request_generation_tokens, c->n_output);
    }
    pgd_output o = {.size = sizeof(o)};
    pgd_request_output(p->request, &o);
    const double total = (double)(now - call->start_ns) / 1e9;
    pgd_serve_observe(m, PGD_SERVE_H_e2e_request_latency_seconds, total);
    pgd_serve_observe(m, PGD_SERVE_H_request_prompt_tokens, (double)p->ids.n);
    pgd_serve_observe(m, PGD_SERVE_H_request_max_num_generation_tokens, most);
    pgd_serve_observe(m, PGD_SERVE_H_request_params_n, call->n);
    pgd_serve_observe(m, PGD_SERVE_H_request_params_max_tokens, p->max_tokens);
    if (o.first_ns == 0 || o.first_ns < o.queued_ns) {
        return;
    }
    pgd_serve_observe(m, PGD_SERVE_H_request_queue_time_seconds, (double)o.queued_ns / 1e9);
    pgd_serve_observe(m, PGD_SERVE_H_request_prefill_time_seconds,
                      (double)(o.first_ns - o.queued_ns) / 1e9);
    pgd_serve_observe(m, PGD_SERVE_H_request_decode_time_seconds,
                      (double)(o.total_ns - o.first_ns) / 1e9);
    pgd_serve_observe(m, PGD_SERVE_H_request_inference_time_seconds,
                      (double)(o.total_ns - o.queued_ns) / 1e9);
    if (made > call->n) {
        pgd_serve_observe(m, PGD_SERVE_H_request_time_per_output_token_seconds,
                          (double)(o.total_ns - o.first_ns) / 1e9 / (made - call->n) * call->n);
    }
}
