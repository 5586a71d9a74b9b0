// pagoda simulate: the scheduler and the KV cache as they are shipped, over a trace, with a clock
// of whole steps and without a model or a device.
//
//   events of the step -> plan -> line of the state -> the model's tokens -> "finished" of the line
//
// The trace says which ids the model produces; behind them come ids that occur nowhere else.
#include <stdio.h>
#include <string.h>

#include "base/fail.h"
#include "base/mem.h"
#include "cli/simulate.h"
#include "sample/sample.h"

#define FRESH_STEP INT64_C(1000000000) // made-up ids begin at the next multiple above all others

// ---- requests ----------------------------------------------------------------------------------

static void free_request(sim_request *r) {
    if (r != NULL) {
        pgd_mem_free(r->seq.tokens);
        pgd_mem_free(r->seq.blocks);
        pgd_mem_free(r->seq.hashes);
        pgd_mem_free(r->stop);
        pgd_mem_free(r);
    }
}

static pgd_status fill_prompt(sim *s, const sim_add *add, int32_t *tokens) {
    int32_t n = 0;
    for (int32_t i = 0; i < add->n_pieces; i++) {
        const sim_piece *piece = &add->pieces[i];
        for (int64_t k = 0; k < piece->len; k++) {
            int64_t id = piece->ids != NULL ? piece->ids[k] : piece->first + k;
            PGD_TRY(cli_sim_names_token(&s->names, id, &tokens[n++]));
        }
    }
    return PGD_OK;
}

static pgd_status fill_stops(sim *s, sim_request *r) {
    int32_t n = r->add->stop.n;
    r->stop = pgd_mem_alloc((size_t)n + 1, sizeof(*r->stop));
    if (r->stop == NULL) {
        return PGD_MEM_FAIL("the stop ids", ((size_t)n + 1) * sizeof(*r->stop));
    }
    for (int32_t i = 0; i < n; i++) {
        PGD_TRY(cli_sim_names_token(&s->names, r->add->stop.ids[i], &r->stop[i]));
    }
    if (s->config.eos >= 0 && !r->add->ignore_eos) {
        r->stop[n++] = s->config.eos;
    }
    r->seq.stop_ids = r->stop;
    r->seq.n_stop_ids = n;
    r->seq.min_tokens = r->add->min_tokens;
    return PGD_OK;
}

// Room for all tokens and blocks the request can come to hold.
static pgd_status make_room(sim *s, sim_request *r) {
    pgd_seq *seq = &r->seq;
    int64_t most = r->add->n_prompt + r->add->max_tokens;
    most = most < s->config.sched.max_model_len ? most : s->config.sched.max_model_len;
    int32_t block_size = s->config.cache.block_size;
    seq->n_prompt = (int32_t)r->add->n_prompt;
    seq->n_tokens = seq->n_prompt;
    seq->cap_tokens = (int32_t)most;
    seq->cap_blocks = (int32_t)((most + block_size - 1) / block_size);
    size_t n_blocks = (size_t)seq->cap_blocks;
    seq->tokens = pgd_mem_alloc((size_t)most, sizeof(*seq->tokens));
    seq->blocks =
        pgd_mem_alloc(n_blocks * (size_t)pgd_kv_cache_n_groups(s->cache), sizeof(*seq->blocks));
    if (!s->config.cache.no_prefix_caching) {
        seq->hashes = pgd_mem_alloc(n_blocks, sizeof(*seq->hashes));
    }
    if (seq->tokens == NULL || seq->blocks == NULL ||
        (seq->hashes == NULL && !s->config.cache.no_prefix_caching)) {
        return PGD_MEM_FAIL("a request", (size_t)most * sizeof(*seq->tokens));
    }
    PGD_TRY(fill_stops(s, r));
    return fill_prompt(s, r->add, seq->tokens);
}

static void end_request(sim *s, sim_request *r) {
    s->finished[s->n_finished++] = r;
    s->n_live--;
}

static void error_request(sim *s, sim_request *r) {
    r->seq.finish = PGD_FINISH_ERROR;
    r->seq.state = PGD_SEQ_FINISHED;
    end_request(s, r);
}

static pgd_status add_request(sim *s, const sim_add *add) {
    sim_request *r = pgd_mem_alloc(1, sizeof(*r));
    if (r == NULL) {
        return PGD_MEM_FAIL("a request", sizeof(*r));
    }
    s->requests[s->next_add++] = r;
    s->n_live++;
    r->add = add;
    r->seq.owner = r;
    r->seq.priority = add->priority;
    r->seq.arrival = add->arrival;
    r->seq.skip_cache = add->prompt_logprobs;
    r->seq.cache_salt = add->salt.ptr;
    r->seq.cache_salt_len = (int32_t)add->salt.len;
    r->seq.adapter = add->lora.ptr;
    r->seq.adapter_len = (int32_t)add->lora.len;
    r->seq.stop_id = -1;
    if (add->n_prompt > s->config.sched.max_model_len - 1) {
        error_request(s, r);
        return PGD_OK;
    }
    PGD_TRY(make_room(s, r));
    if (pgd_sched_add(s->sched, &r->seq) != PGD_OK) {
        error_request(s, r);
    }
    return PGD_OK;
}

// Nothing for a request that is unknown, over, or still to come.
static void abort_request(sim *s, pgd_str name) {
    uint64_t index = 0;
    sim_request *r = NULL;
    if (pgd_map_get(s->trace.names, name, &index)) {
        r = s->requests[index];
    }
    if (r != NULL && r->seq.state != PGD_SEQ_FINISHED) {
        pgd_sched_finish(s->sched, &r->seq);
        r->seq.finish = PGD_FINISH_ABORT;
        end_request(s, r);
    }
}

// ---- a step ------------------------------------------------------------------------------------

// Ends what the scheduler has ended, from where the last call stood.
static void end_listed(sim *s, pgd_seq *const *seqs, int32_t n) {
    for (; s->n_listed < n; s->n_listed++) {
        end_request(s, seqs[s->n_listed]->owner);
    }
}

static pgd_status run_events(sim *s) {
    int32_t n = 0;
    while (s->next_event < s->trace.n && s->trace.events[s->next_event].at == s->now) {
        const sim_event *e = &s->trace.events[s->next_event++];
        s->had_event = 1;
        if (e->kind == SIM_ADD) {
            PGD_TRY(add_request(s, e->add));
        } else if (e->kind == SIM_ABORT) {
            abort_request(s, e->abort);
        } else {
            s->reset = pgd_sched_reset_cache(s->sched, e->preempt_running);
            pgd_seq *const *ended = pgd_sched_finished(s->sched, &n);
            end_listed(s, ended, n);
        }
    }
    return PGD_OK;
}

static void count_state(sim *s) {
    int64_t held = pgd_kv_pool_usable(s->pool) - pgd_kv_pool_free_count(s->pool);
    s->sums.peak_blocks = held > s->sums.peak_blocks ? held : s->sums.peak_blocks;
    for (const pgd_seq *seq = pgd_sched_running(s->sched); seq != NULL; seq = seq->next) {
        s->sums.computed += seq->computed;
        s->sums.entries += seq->n_blocks;
    }
}

// The token the trace gives, else one that occurs nowhere else.
static pgd_status next_token(sim *s, const sim_request *r, int32_t *out) {
    int32_t k = r->seq.n_tokens - r->seq.n_prompt;
    int64_t id = k < r->add->output.n ? r->add->output.ids[k] : s->next_fresh++;
    return cli_sim_names_token(&s->names, id, out);
}

static pgd_status apply_tokens(sim *s) {
    for (int32_t i = 0; i < s->step.n_rows; i++) {
        const pgd_step_row *row = &s->step.rows[s->step.turns[i]];
        sim_request *r = row->seq->owner;
        int32_t token = 0;
        if (!row->gives) {
            continue;
        }
        PGD_TRY(next_token(s, r, &token));
        pgd_sample_accept(&r->seq, token);
        if (r->seq.finish != PGD_FINISH_NONE) {
            pgd_sched_finish(s->sched, &r->seq);
            end_request(s, r);
        }
    }
    return PGD_OK;
}

// Counts and frees what ended in this step.
static void drop_finished(sim *s) {
    for (int32_t i = 0; i < s->n_finished; i++) {
        sim_request *r = s->finished[i]->seq.owner;
        uint64_t index = 0;
        s->sums.finished[r->seq.finish]++;
        if (pgd_map_get(s->trace.names, r->add->id, &index)) {
            s->requests[index] = NULL;
        }
        free_request(r);
    }
    s->n_finished = 0;
}

// One step; *out_moved = 1 when the next one may differ.
static pgd_status run_step(sim *s, int32_t *out_moved) {
    s->had_event = 0;
    s->reset = -1;
    s->n_listed = 0;
    PGD_TRY(run_events(s));
    pgd_sched_plan(s->sched, &s->step);
    end_listed(s, s->step.finished, s->step.n_finished);
    count_state(s);
    *out_moved = s->step.n_rows > 0 || s->step.n_preempted > 0;
    int32_t printed = s->had_event || *out_moved;
    s->sums.n_steps = printed ? s->now + 1 : s->sums.n_steps;
    printed = printed && !s->config.summary_only;
    if (printed) {
        PGD_TRY(cli_sim_print_state(s));
    }
    PGD_TRY(apply_tokens(s));
    if (printed) {
        PGD_TRY(cli_sim_print_finished(s));
    }
    drop_finished(s);
    return PGD_OK;
}

static pgd_status stuck(const sim *s) {
    pgd_text names = {0};
    pgd_status status = PGD_OK;
    for (size_t i = 0; i < s->next_add && status == PGD_OK && names.len < 800; i++) {
        if (s->requests[i] != NULL) {
            status = pgd_text_format(&names, "%s%s", names.len > 0 ? ", " : "",
                                     s->requests[i]->add->id.ptr);
        }
    }
    status = pgd_fail(PGD_INTERNAL,
                      "step %lld: nothing can be scheduled and no event is left, but "
                      "these requests live: %s",
                      (long long)s->now, names.len > 0 ? names.ptr : "");
    pgd_text_free(&names);
    return status;
}

static pgd_status run_trace(sim *s) {
    int32_t moved = 0;
    while (s->next_event < s->trace.n || s->n_live > 0) {
        if (!moved || s->n_live == 0) {
            if (s->next_event == s->trace.n) {
                return stuck(s);
            }
            s->now = s->trace.events[s->next_event].at;
        }
        PGD_TRY(run_step(s, &moved));
        s->now++;
    }
    return cli_sim_print_summary(s);
}

// ---- the command -------------------------------------------------------------------------------

static pgd_status set_up(sim *s) {
    size_t n = (size_t)s->config.sched.max_num_seqs;
    PGD_TRY(cli_sim_settle_config(&s->config));
    PGD_TRY(pgd_kv_cache_create(&s->config.cache, &s->cache));
    PGD_TRY(pgd_sched_create(&s->config.sched, s->cache, &s->sched));
    PGD_TRY(cli_sim_trace_read(s->config.trace, &s->trace));
    PGD_TRY(cli_sim_names_create(&s->names));
    n = (size_t)s->config.sched.max_num_seqs;
    s->pool = pgd_kv_cache_pool(s->cache);
    s->step.cap_rows = s->config.sched.max_num_seqs;
    s->step.rows = pgd_mem_alloc(n, sizeof(*s->step.rows));
    s->requests = pgd_mem_alloc(s->trace.n_adds + 1, sizeof(*s->requests));
    s->finished = pgd_mem_alloc(s->trace.n_adds + 1, sizeof(*s->finished));
    s->counts = pgd_mem_alloc((size_t)s->config.cache.num_blocks, sizeof(*s->counts));
    if (s->step.rows == NULL || s->requests == NULL || s->finished == NULL || s->counts == NULL) {
        return PGD_MEM_FAIL("the simulation", n * sizeof(*s->step.rows));
    }
    int64_t highest = s->trace.max_id > s->config.eos ? s->trace.max_id : s->config.eos;
    s->next_fresh = (highest / FRESH_STEP + 1) * FRESH_STEP;
    return PGD_OK;
}

static void tear_down(sim *s) {
    for (size_t i = 0; s->requests != NULL && i < s->trace.n_adds; i++) {
        free_request(s->requests[i]);
    }
    pgd_mem_free(s->step.rows);
    pgd_mem_free(s->requests);
    pgd_mem_free(s->finished);
    pgd_mem_free(s->counts);
    pgd_text_free(&s->line);
    pgd_sched_destroy(s->sched);
    pgd_kv_cache_destroy(s->cache);
    cli_sim_names_free(&s->names);
    cli_sim_trace_free(&s->trace);
}

int cli_simulate(int argc, char **argv) {
    cli_args args = {
        .command = cli_find("simulate"),
        .flags = {cli_sim_file_flags, cli_sim_config_flags},
        .titles = {"input and output", "scheduler and KV cache"},
        .n_groups = 2,
        .read_config = cli_sim_read_config,
    };
    sim s = {.names = {.last_id = -1}};
    pgd_status status = cli_parse(&args, argc, argv);
    if (status == PGD_OK && args.help) {
        return 0;
    }
    if (status == PGD_OK) {
        status = set_up(&s);
    }
    if (status == PGD_OK) {
        status = run_trace(&s);
    }
    if (fflush(stdout) != 0 && status == PGD_OK) {
        status = pgd_fail(PGD_UNAVAILABLE, "writing to stdout failed");
    }
    int code = status == PGD_OK ? 0 : cli_failed(status);
    tear_down(&s);
    return code;
}
