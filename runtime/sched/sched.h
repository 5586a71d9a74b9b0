// The scheduler: who runs in this step.
//
//   waiting (queue) --admit--> running (list, oldest first) --> finished
//          ^------------------preempt-----------|
//
// One budget of tokens per step. Running sequences first, in order: each gets the tokens it is
// behind (a decode row is one token behind). When the pool has no block left, a victim is
// preempted: its blocks are freed, it goes back to the queue with its tokens kept, and is
// recomputed later, mostly from the prefix cache. Under "fcfs" the victim is the youngest and
// returns to the front; under "priority" it is the last of the running by (priority, arrival, order
// of adding) and returns to its sorted place; what it was to run in this step is given back. When
// the victim is the one that asked, the running loop ends. The queue is served only in steps
// without a preemption, in order, nobody overtakes. A step may be planned before the tokens of the
// one on its way are seen: they count (pgd_kv_seq_known), and a sequence whose last one is among
// them is left out. Source: the continuous batching of Orca (OSDI 2022) and vLLM's V1 scheduler.
// Pure: no clock, no device, no thread; allocates only in create.
#ifndef PGD_SCHED_SCHED_H
#define PGD_SCHED_SCHED_H

#include "kv/cache.h"

typedef struct pgd_sched pgd_sched;

enum { PGD_SCHED_FCFS = 0, PGD_SCHED_PRIORITY = 1 };

typedef struct pgd_sched_config {
    int32_t max_num_batched_tokens; // budget of a step
    int32_t max_num_seqs;           // running at once
    int32_t max_model_len;
    int32_t long_prefill_token_threshold; // most tokens of one sequence in a step, 0 = no limit
    int32_t policy;                       // PGD_SCHED_...
    int32_t no_chunked_prefill;           // 1: a prompt that exceeds the budget waits
    int32_t no_reserve_full_prompt; // 1: admission looks at this step's tokens only, not at all
    int32_t max_scored; // most prompt positions of a step that get a log probability, 0 = no limit
    double watermark;   // share of the blocks that admission leaves free while something runs
} pgd_sched_config;

typedef struct pgd_sched_stats {
    uint64_t n_preemptions;
    uint64_t n_lookups; // requests looked up in the prefix cache, once each
    uint64_t n_asked;   // their prompt tokens
    uint64_t n_hit;     // tokens found
} pgd_sched_stats;

// The cache is borrowed.
//   fails  OUT_OF_RANGE, naming the key, the value and what is allowed
pgd_status pgd_sched_create(const pgd_sched_config *config, pgd_kv_cache *cache,
                            pgd_sched **out) PGD_MUST_USE;
void pgd_sched_destroy(pgd_sched *s); // NULL is fine; sequences are the engine's

// [any] Whether a sequence of n_tokens may be queued: 1 to max_model_len - 1 tokens are allowed.
//   fails  OUT_OF_RANGE if it is too long, or needs more blocks than the pool has
pgd_status pgd_sched_check(const pgd_sched *s, int32_t n_tokens) PGD_MUST_USE;
// Queues a sequence: at the end, or at its sorted place.
//   fails  as pgd_sched_check
pgd_status pgd_sched_add(pgd_sched *s, pgd_seq *seq) PGD_MUST_USE;

// Plans a step: fills step->rows (decode rows first), n_*, turns and the lists of who moved. Slots
// are given to admitted sequences, blocks to all rows; `computed` is advanced.
void pgd_sched_plan(pgd_sched *s, pgd_step *step);
// Rows that do more than a running sequence's next token get at most so many tokens of a step while
// such sequences run: what they wait for is bounded by whoever knows what a token costs. 0 = no
// limit; holds until it is set again.
void pgd_sched_limit_prefill(pgd_sched *s, int32_t tokens);

// Takes a sequence out: frees its blocks and its slot. Nothing if it is out already.
void pgd_sched_finish(pgd_sched *s, pgd_seq *seq);
// The rows of a planned step were not computed (a failure of the device): what they would have
// written is not to be found in the prefix cache, and their tokens do not come.
void pgd_sched_discard(pgd_sched *s, const pgd_step *step);
// Behind discard: everything that runs goes back to the queue, from the end, as if preempted, to be
// computed again.
void pgd_sched_requeue(pgd_sched *s);
// The sequence ends with reason "abort" at the next plan; nothing if it has ended.
void pgd_sched_cancel(pgd_sched *s, pgd_seq *seq);
// Forgets the prefix cache. 1 = done, 0 = something runs. With preempt_running everything that runs
// is preempted first, from the end, and listed in the next step.
int32_t pgd_sched_reset_cache(pgd_sched *s, int32_t preempt_running);

int32_t pgd_sched_n_running(const pgd_sched *s);
int32_t pgd_sched_n_waiting(const pgd_sched *s);
// Heads of the lists, in order through seq->next.
const pgd_seq *pgd_sched_running(const pgd_sched *s);
const pgd_seq *pgd_sched_waiting(const pgd_sched *s);
// What a reset ended since the last plan; listed again in the next step.
pgd_seq *const *pgd_sched_finished(const pgd_sched *s, int32_t *out_n);
const pgd_sched_stats *pgd_sched_get_stats(const pgd_sched *s);

#endif
