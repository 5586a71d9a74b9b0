// Planning of a step: running sequences, then the queue, then the order of rows. See sched.h.
#include "sched/inner.h"

static int32_t min_i32(int32_t a, int32_t b) {
    return a < b ? a : b;
}

// Takes out what was cancelled since the last plan; the rest waits for the next one.
static void sweep(pgd_sched *s, seq_list *list) {
    for (pgd_seq *seq = list->head, *next; seq != NULL && s->n_cancelled > 0; seq = next) {
        next = seq->next;
        if (seq->cancelled && s->finished.n < s->config.max_num_seqs) {
            pgd_sched_end(s, seq, PGD_FINISH_ABORT);
        }
    }
}

// Tokens of one sequence in a step before the budget is looked at.
static int32_t below_threshold(const pgd_sched *s, int32_t n) {
    int32_t most = s->config.long_prefill_token_threshold;
    return most > 0 && n > most ? most : n;
}

// What a step may still take.
typedef struct step_room {
    int32_t tokens;
    int32_t prefill; // of these, for rows that do more than give the next token of an answer
    int32_t scored;  // prompt positions that get a log probability
} step_room;

static int32_t first_scored_row(const pgd_seq *seq, int32_t start) {
    return start > seq->n_scored - 1 ? start : seq->n_scored - 1;
}

// How many of the n rows from `start` on score the prompt token behind them.
static int32_t scored_rows(const pgd_seq *seq, int32_t start, int32_t n) {
    int32_t end = min_i32(start + n, seq->n_prompt - 1);
    int32_t rows = end - first_scored_row(seq, start);
    return seq->scores_prompt && rows > 0 ? rows : 0;
}

static int32_t is_decode(const pgd_seq *seq, int32_t start, int32_t n) {
    const int32_t known = pgd_kv_seq_known(seq);
    return n == 1 && start + 1 == known && known > seq->n_prompt;
}

// Rows of a sequence from `start` on, at most n, that fit into the step.
static int32_t fit(const pgd_seq *seq, int32_t start, int32_t n, const step_room *room) {
    n = min_i32(n, is_decode(seq, start, n) ? room->tokens : min_i32(room->tokens, room->prefill));
    if (scored_rows(seq, start, n) > room->scored) {
        n = first_scored_row(seq, start) + room->scored - start;
    }
    return n;
}

static void take_room(step_room *room, const pgd_seq *seq, int32_t start, int32_t n) {
    room->tokens -= n;
    room->prefill -= is_decode(seq, start, n) ? 0 : n;
    room->scored -= scored_rows(seq, start, n);
}

static void add_row(pgd_step *step, pgd_seq *seq, int32_t n_tokens) {
    seq->row = step->n_rows;
    int32_t last = seq->computed + n_tokens == pgd_kv_seq_known(seq);
    step->rows[step->n_rows++] = (pgd_step_row){
        .seq = seq,
        .start = seq->computed,
        .n_tokens = n_tokens,
        .kind = is_decode(seq, seq->computed, n_tokens) ? PGD_ROW_DECODE : PGD_ROW_PREFILL,
        .gives = last,
        .out = -1,
    };
}

static void remove_row(pgd_step *step, int32_t row) {
    step->rows[row].seq->row = -1;
    step->n_rows--;
    for (int32_t i = row; i < step->n_rows; i++) {
        step->rows[i] = step->rows[i + 1];
        step->rows[i].seq->row = i;
    }
}

static pgd_seq *choose_victim(const pgd_sched *s) {
    pgd_seq *victim = s->running.tail;
    if (s->config.policy == PGD_SCHED_PRIORITY) {
        for (pgd_seq *seq = s->running.head; seq != NULL; seq = seq->next) {
            victim = pgd_sched_before(victim, seq) ? seq : victim;
        }
    }
    return victim;
}

// Preempts a victim; what it was to run in this step goes back to the room.
static pgd_seq *preempt_one(pgd_sched *s, pgd_step *step, step_room *room) {
    pgd_seq *victim = choose_victim(s);
    if (victim->row >= 0) {
        const pgd_step_row *row = &step->rows[victim->row];
        room->tokens += row->n_tokens;
        room->prefill += row->kind == PGD_ROW_DECODE ? 0 : row->n_tokens;
        room->scored += scored_rows(victim, row->start, row->n_tokens);
        pgd_kv_cache_forget(s->cache, victim, row->start);
        remove_row(step, victim->row);
    }
    pgd_sched_preempt(s, victim);
    return victim;
}

// Tokens a running sequence is behind; none when the one on its way will be its last.
static int32_t behind(const pgd_seq *seq) {
    const int32_t known = pgd_kv_seq_known(seq);
    return seq->n_ahead > 0 && known >= seq->cap_tokens ? 0 : known - seq->computed;
}

static void plan_running(pgd_sched *s, pgd_step *step, step_room *room) {
    for (pgd_seq *seq = s->running.head; seq != NULL && room->tokens > 0; seq = seq->next) {
        int32_t n = below_threshold(s, behind(seq));
        n = fit(seq, seq->computed, n, room);
        if (n == 0) {
            continue;
        }
        while (!pgd_kv_cache_grow(s->cache, seq, n)) {
            if (preempt_one(s, step, room) == seq) {
                return;
            }
        }
        add_row(step, seq, n);
        take_room(room, seq, seq->computed, n);
    }
}

// The prefix cache is asked about prompts once, however often a sequence is admitted.
static void count_admission(pgd_sched *s, pgd_seq *seq, int32_t n_hit) {
    if (seq->cached_tokens >= 0) {
        s->resumed.items[s->resumed.n++] = seq;
        return;
    }
    seq->cached_tokens = n_hit;
    s->admitted.items[s->admitted.n++] = seq;
    if (pgd_kv_cache_shares(s->cache) && !seq->skip_cache) {
        s->stats.n_lookups++;
        s->stats.n_asked += (uint64_t)seq->n_prompt;
        s->stats.n_hit += (uint64_t)n_hit;
    }
}

// Admits the head of the queue; returns its tokens in this step, 0 = admission stops.
static int32_t admit_head(pgd_sched *s, pgd_step *step, const step_room *room) {
    pgd_seq *seq = s->waiting.head;
    if (seq->n_ahead > 0) {
        return 0; // preempted, and a token of it is on its way
    }
    int32_t n_hit = pgd_kv_cache_match(s->cache, seq);
    int32_t n = below_threshold(s, seq->n_tokens - n_hit);
    if (s->config.no_chunked_prefill && n > min_i32(room->tokens, room->prefill)) {
        return 0;
    }
    n = fit(seq, n_hit, n, room);
    if (n == 0) {
        return 0;
    }
    const pgd_kv_admission a = {
        .n_hit = n_hit,
        .n_new = n,
        .n_reserve = s->config.no_reserve_full_prompt ? 0 : seq->n_tokens,
        .headroom = s->running.n > 0 ? s->headroom : 0,
    };
    if (!pgd_kv_cache_admit(s->cache, seq, &a)) {
        return 0;
    }
    pgd_sched_remove(&s->waiting, seq);
    pgd_sched_push_tail(&s->running, seq);
    seq->state = PGD_SEQ_RUNNING;
    seq->slot = s->free_slots[--s->n_free_slots];
    seq->computed = n_hit;
    count_admission(s, seq, n_hit);
    add_row(step, seq, n);
    return n;
}

static void plan_waiting(pgd_sched *s, pgd_step *step, step_room *room) {
    while (room->tokens > 0 && s->waiting.head != NULL && s->n_free_slots > 0) {
        pgd_seq *seq = s->waiting.head;
        if (pgd_sched_outgrown(s, seq) && s->finished.n < 2 * s->config.max_num_seqs) {
            pgd_sched_end(s, seq, PGD_FINISH_ERROR);
            continue;
        }
        int32_t n = admit_head(s, step, room);
        if (n == 0) {
            return;
        }
        take_room(room, seq, seq->computed, n);
    }
}

// Two lists in turn, so that a step that is on its way keeps its own while the next is planned.
static int32_t *turns_of(const pgd_sched *s, const pgd_step *step) {
    return s->turns + (size_t)(step->number % 2) * (size_t)s->config.max_num_seqs;
}

// Stable partition: decode rows first, then the others; outputs are numbered in that order.
// Sequences know their row, so rows are moved to their places in cycles of swaps.
static void order_rows(const pgd_sched *s, pgd_step *step) {
    int32_t *turns = turns_of(s, step);
    int32_t n_decode = 0;
    for (int32_t i = 0; i < step->n_rows; i++) {
        n_decode += step->rows[i].kind == PGD_ROW_DECODE;
    }
    int32_t decode = 0;
    int32_t prefill = n_decode;
    for (int32_t i = 0; i < step->n_rows; i++) {
        step->rows[i].turn = i;
        step->rows[i].seq->row = -1;
        turns[i] = step->rows[i].kind == PGD_ROW_DECODE ? decode++ : prefill++;
    }
    step->n_decode = n_decode;
    for (int32_t i = 0; i < step->n_rows; i++) {
        for (int32_t to = turns[step->rows[i].turn]; to != i; to = turns[step->rows[i].turn]) {
            pgd_step_row row = step->rows[to];
            step->rows[to] = step->rows[i];
            step->rows[i] = row;
        }
    }
}

// Scored positions get the outputs behind those that give tokens.
static void number_scored(pgd_step *step, pgd_step_row *row) {
    pgd_seq *seq = row->seq;
    row->n_scored = scored_rows(seq, row->start, row->n_tokens);
    row->scored = first_scored_row(seq, row->start) + 1;
    row->out_scored = step->n_out;
    step->n_out += row->n_scored;
    seq->n_scored += row->n_scored;
}

static void close_step(pgd_sched *s, pgd_step *step) {
    for (int32_t i = 0; i < step->n_rows; i++) {
        pgd_step_row *row = &step->rows[i];
        row->out = row->gives ? step->n_tokens_out++ : -1;
        step->n_tokens += row->n_tokens;
        row->seq->computed += row->n_tokens;
    }
    step->n_out = step->n_tokens_out;
    for (int32_t i = 0; i < step->n_rows; i++) {
        number_scored(step, &step->rows[i]);
    }
    step->turns = turns_of(s, step);
    step->n_finished = s->finished.n;
    step->n_preempted = s->preempted.n;
    step->n_admitted = s->admitted.n;
    step->n_resumed = s->resumed.n;
    step->finished = s->finished.items;
    step->preempted = s->preempted.items;
    step->admitted = s->admitted.items;
    step->resumed = s->resumed.items;
    s->closed = 1;
}

void pgd_sched_limit_prefill(pgd_sched *s, int32_t tokens) {
    s->prefill_limit = tokens;
}

// Tokens for prefill: at least one while there is room, so that nobody waits for ever.
static int32_t prefill_room(const pgd_sched *s) {
    const int32_t tokens = s->config.max_num_batched_tokens;
    int32_t n_streams = 0;
    for (const pgd_seq *seq = s->running.head; s->prefill_limit > 0 && seq != NULL;
         seq = seq->next) {
        n_streams += is_decode(seq, seq->computed, behind(seq));
    }
    if (n_streams == 0) {
        return tokens;
    }
    const int32_t left = min_i32(tokens - n_streams, s->prefill_limit);
    return left > 0 ? left : 1;
}

void pgd_sched_plan(pgd_sched *s, pgd_step *step) {
    pgd_sched_open_step(s);
    step->number++;
    step->n_rows = 0;
    step->n_tokens = 0;
    step->n_decode = 0;
    step->n_out = 0;
    step->n_tokens_out = 0;
    if (s->n_cancelled > 0) {
        sweep(s, &s->running);
        sweep(s, &s->waiting);
    }
    int32_t n_preempted = s->preempted.n;
    step_room room = {
        .tokens = s->config.max_num_batched_tokens,
        .prefill = prefill_room(s),
        .scored = s->config.max_scored > 0 ? s->config.max_scored : INT32_MAX,
    };
    plan_running(s, step, &room);
    if (s->preempted.n == n_preempted) {
        plan_waiting(s, step, &room);
    }
    order_rows(s, step);
    close_step(s, step);
}
