// The lines of the simulation. See simulate.h.
#include <stdio.h>

#include "base/fail.h"
#include "base/json.h"
#include "cli/simulate.h"

static pgd_status add_text(sim *s, const char *text) {
    return pgd_text_add_str(&s->line, pgd_str_of(text));
}

static pgd_status add_int(sim *s, int64_t v) {
    char digits[24];
    size_t at = sizeof(digits);
    uint64_t rest = v < 0 ? 0 - (uint64_t)v : (uint64_t)v;
    do {
        digits[--at] = (char)('0' + rest % 10);
        rest /= 10;
    } while (rest > 0);
    if (v < 0) {
        digits[--at] = '-';
    }
    return pgd_text_add(&s->line, digits + at, sizeof(digits) - at);
}

// `,"key":` and what opens its value; the comma is left out behind an opening brace.
static pgd_status add_key(sim *s, const char *key, const char *open) {
    if (s->line.ptr[s->line.len - 1] != '{') {
        PGD_TRY(add_text(s, ","));
    }
    PGD_TRY(add_text(s, "\""));
    PGD_TRY(add_text(s, key));
    PGD_TRY(add_text(s, "\":"));
    return add_text(s, open);
}

static pgd_status add_comma(sim *s) {
    char last = s->line.ptr[s->line.len - 1];
    return last == '[' || last == '{' ? PGD_OK : add_text(s, ",");
}

static const sim_request *request_of(const pgd_seq *seq) {
    return seq->owner;
}

static pgd_status add_name(sim *s, const pgd_seq *seq) {
    PGD_TRY(add_comma(s));
    return pgd_json_add_str(&s->line, request_of(seq)->add->id);
}

static pgd_status add_scheduled(sim *s) {
    PGD_TRY(add_key(s, "scheduled", "["));
    for (int32_t i = 0; i < s->step.n_rows; i++) {
        const pgd_step_row *row = &s->step.rows[s->step.turns[i]];
        PGD_TRY(add_comma(s));
        PGD_TRY(add_text(s, "{\"id\":"));
        PGD_TRY(pgd_json_add_str(&s->line, request_of(row->seq)->add->id));
        PGD_TRY(add_text(s, ",\"tokens\":"));
        PGD_TRY(add_int(s, row->n_tokens));
        PGD_TRY(add_text(s, row->kind == PGD_ROW_DECODE ? ",\"kind\":\"decode\"}"
                                                        : ",\"kind\":\"prefill\"}"));
    }
    return add_text(s, "]");
}

static pgd_status add_names(sim *s, const char *key, pgd_seq *const *seqs, int32_t n) {
    PGD_TRY(add_key(s, key, "["));
    for (int32_t i = 0; i < n; i++) {
        PGD_TRY(add_name(s, seqs[i]));
    }
    return add_text(s, "]");
}

static pgd_status add_list(sim *s, const char *key, const pgd_seq *head) {
    PGD_TRY(add_key(s, key, "["));
    for (const pgd_seq *seq = head; seq != NULL; seq = seq->next) {
        PGD_TRY(add_name(s, seq));
    }
    return add_text(s, "]");
}

static pgd_status add_cached(sim *s) {
    PGD_TRY(add_key(s, "cached_tokens", "{"));
    for (const pgd_seq *seq = pgd_sched_running(s->sched); seq != NULL; seq = seq->next) {
        PGD_TRY(add_name(s, seq));
        PGD_TRY(add_text(s, ":"));
        PGD_TRY(add_int(s, seq->cached_tokens));
    }
    return add_text(s, "}");
}

static pgd_status add_evicted(sim *s) {
    int32_t n = 0;
    const int32_t *blocks = pgd_kv_pool_evicted(s->pool, &n);
    PGD_TRY(add_key(s, "evicted", "["));
    for (int32_t i = 0; i < n; i++) {
        PGD_TRY(add_comma(s));
        PGD_TRY(add_int(s, blocks[i]));
    }
    return add_text(s, "]");
}

// ---- tables ------------------------------------------------------------------------------------

// FNV-1a over the table; a table of a new admission differs, since it was none in between.
static uint64_t fingerprint(const sim *s, const pgd_seq *seq) {
    uint64_t hash = UINT64_C(14695981039346656037);
    for (int32_t g = 0; g < pgd_kv_cache_n_groups(s->cache); g++) {
        const int32_t *table = seq->blocks + (size_t)g * (size_t)seq->cap_blocks;
        for (int32_t i = 0; i < seq->n_blocks; i++) {
            hash = (hash ^ (uint64_t)(uint32_t)table[i]) * UINT64_C(1099511628211);
        }
    }
    return hash ^ (uint64_t)(uint32_t)seq->n_preempted << 32;
}

static pgd_status add_table(sim *s, const pgd_seq *seq) {
    int32_t n_groups = pgd_kv_cache_n_groups(s->cache);
    PGD_TRY(add_name(s, seq));
    PGD_TRY(add_text(s, n_groups > 1 ? ":[" : ":"));
    for (int32_t g = 0; g < n_groups; g++) {
        const int32_t *table = seq->blocks + (size_t)g * (size_t)seq->cap_blocks;
        PGD_TRY(add_text(s, g > 0 ? ",[" : "["));
        for (int32_t i = 0; i < seq->n_blocks; i++) {
            PGD_TRY(add_text(s, i > 0 ? "," : ""));
            PGD_TRY(add_int(s, table[i]));
        }
        PGD_TRY(add_text(s, "]"));
    }
    return add_text(s, n_groups > 1 ? "]" : "");
}

static pgd_status add_tables(sim *s) {
    PGD_TRY(add_key(s, "block_tables", "{"));
    for (const pgd_seq *seq = pgd_sched_running(s->sched); seq != NULL; seq = seq->next) {
        sim_request *r = seq->owner;
        uint64_t print = s->config.tables == SIM_TABLES_CHANGED ? fingerprint(s, seq) : 0;
        if (s->config.tables == SIM_TABLES_ALL || print != r->printed) {
            r->printed = print;
            PGD_TRY(add_table(s, seq));
        }
    }
    return add_text(s, "}");
}

static pgd_status add_counts(sim *s) {
    int32_t all = s->config.tables == SIM_TABLES_ALL;
    PGD_TRY(add_key(s, "ref_counts", "{"));
    for (int32_t block = 1; block <= pgd_kv_pool_usable(s->pool); block++) {
        int32_t count = pgd_kv_pool_ref_count(s->pool, block);
        if (all ? count == 0 : count == s->counts[block]) {
            continue;
        }
        s->counts[block] = count;
        PGD_TRY(add_comma(s));
        PGD_TRY(add_text(s, "\""));
        PGD_TRY(add_int(s, block));
        PGD_TRY(add_text(s, "\":"));
        PGD_TRY(add_int(s, count));
    }
    return add_text(s, "}");
}

// ---- lines -------------------------------------------------------------------------------------

pgd_status cli_sim_print_state(sim *s) {
    const pgd_step *step = &s->step;
    pgd_text_clear(&s->line);
    PGD_TRY(add_text(s, "{\"step\":"));
    PGD_TRY(add_int(s, s->now));
    if (s->reset >= 0) {
        PGD_TRY(add_key(s, "reset_prefix_cache", s->reset ? "true" : "false"));
    }
    PGD_TRY(add_scheduled(s));
    PGD_TRY(add_names(s, "admitted", step->admitted, step->n_admitted));
    PGD_TRY(add_names(s, "resumed", step->resumed, step->n_resumed));
    PGD_TRY(add_names(s, "preempted", step->preempted, step->n_preempted));
    PGD_TRY(add_key(s, "copies", "[]"));
    PGD_TRY(add_evicted(s));
    PGD_TRY(add_cached(s));
    PGD_TRY(add_list(s, "running", pgd_sched_running(s->sched)));
    PGD_TRY(add_list(s, "waiting", pgd_sched_waiting(s->sched)));
    PGD_TRY(add_key(s, "free_blocks", ""));
    PGD_TRY(add_int(s, pgd_kv_pool_free_count(s->pool)));
    if (s->config.tables != SIM_TABLES_NONE) {
        PGD_TRY(add_tables(s));
        PGD_TRY(add_counts(s));
    }
    return PGD_OK;
}

static const char *reason_of(int32_t finish) {
    static const char *const names[] = {"", "stop", "length", "abort", "error"};
    return names[finish];
}

// The model's end has no stop_reason, an id of the request's own list has.
static pgd_status add_stop_reason(sim *s, const sim_request *r) {
    int32_t is_eos = s->config.eos >= 0 && !r->add->ignore_eos && r->seq.stop_id == s->config.eos;
    if (r->seq.finish != PGD_FINISH_STOP || is_eos) {
        return add_text(s, "null");
    }
    return add_int(s, cli_sim_names_id(&s->names, r->seq.stop_id));
}

static pgd_status flush(sim *s) {
    PGD_TRY(add_text(s, "}\n"));
    if (fwrite(s->line.ptr, 1, s->line.len, stdout) != s->line.len) {
        return pgd_fail(PGD_UNAVAILABLE, "writing to stdout failed");
    }
    return PGD_OK;
}

pgd_status cli_sim_print_finished(sim *s) {
    PGD_TRY(add_key(s, "finished", "["));
    for (int32_t i = 0; i < s->n_finished; i++) {
        const sim_request *r = s->finished[i];
        PGD_TRY(add_comma(s));
        PGD_TRY(add_text(s, "{\"id\":"));
        PGD_TRY(pgd_json_add_str(&s->line, r->add->id));
        PGD_TRY(add_text(s, ",\"reason\":\""));
        PGD_TRY(add_text(s, reason_of(r->seq.finish)));
        PGD_TRY(add_text(s, "\",\"stop_reason\":"));
        PGD_TRY(add_stop_reason(s, r));
        PGD_TRY(add_text(s, ",\"output\":["));
        for (int32_t k = r->seq.n_prompt; k < r->seq.n_tokens; k++) {
            PGD_TRY(add_text(s, k > r->seq.n_prompt ? "," : ""));
            PGD_TRY(add_int(s, cli_sim_names_id(&s->names, r->seq.tokens[k])));
        }
        PGD_TRY(add_text(s, "]}"));
    }
    PGD_TRY(add_text(s, "]"));
    return flush(s);
}

pgd_status cli_sim_print_summary(sim *s) {
    const pgd_sched_stats *stats = pgd_sched_get_stats(s->sched);
    const sim_counts *c = &s->sums;
    int32_t one_full = s->config.cache.n_groups == 0 ||
                       (s->config.cache.n_groups == 1 && s->config.cache.windows[0] == 0);
    double waste = 0.0;
    if (one_full && c->entries > 0.0) {
        waste = 1.0 - c->computed / (c->entries * s->config.cache.block_size);
    }
    pgd_text_clear(&s->line);
    PGD_TRY(pgd_text_format(
        &s->line,
        "{\"summary\":{\"steps\":%lld,\"preemptions\":%llu,\"prefix_cache\":{\"requests\":%llu,"
        "\"queries\":%llu,\"hits\":%llu},",
        (long long)c->n_steps, (unsigned long long)stats->n_preemptions,
        (unsigned long long)stats->n_lookups, (unsigned long long)stats->n_asked,
        (unsigned long long)stats->n_hit));
    PGD_TRY(pgd_text_format(
        &s->line, "\"finished\":{\"stop\":%llu,\"length\":%llu,\"abort\":%llu,\"error\":%llu},",
        (unsigned long long)c->finished[PGD_FINISH_STOP],
        (unsigned long long)c->finished[PGD_FINISH_LENGTH],
        (unsigned long long)c->finished[PGD_FINISH_ABORT],
        (unsigned long long)c->finished[PGD_FINISH_ERROR]));
    PGD_TRY(pgd_text_format(&s->line, "\"peak_blocks\":%lld,\"kv_waste\":%.6f,\"free_blocks\":%d}",
                            (long long)c->peak_blocks, waste, pgd_kv_pool_free_count(s->pool)));
    return flush(s);
}
