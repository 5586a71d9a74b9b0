// The step: the one struct that walks through the house. Each room fills its own fields and hands
// it on; nobody reaches back.
//
//   sched   step.rows[]                      which sequences run, how many tokens each
//   kv      seq.blocks                       blocks for them, taken transactionally
//   sample  batch sampling rows              parameters of the rows that give a token
//   engine  batch arrays, upload
//   model   enqueues the operations
//   engine  tokens back, stop rules, text
//
// A sequence is known up to n_tokens; its cache holds the first `computed` of them. Running it
// means closing that gap: prefill, decode and recompute after preemption are the same thing.
//
//   tokens   | prompt ............ | output ...... |
//            0            computed ^      n_tokens ^ cap
#ifndef PGD_KV_STEP_H
#define PGD_KV_STEP_H

#include <pagoda/types.h>

enum { PGD_SEQ_WAITING = 0, PGD_SEQ_RUNNING = 1, PGD_SEQ_FINISHED = 2 };
enum {
    PGD_FINISH_NONE = 0,
    PGD_FINISH_STOP = 1,   // end-of-sequence or a stop id
    PGD_FINISH_LENGTH = 2, // max_tokens or max_model_len
    PGD_FINISH_ABORT = 3,
    PGD_FINISH_ERROR = 4,
};

// SHA-256 of a full block: its tokens and all before it. See hash.h.
typedef struct pgd_kv_hash {
    uint64_t words[4];
} pgd_kv_hash;

typedef struct pgd_seq pgd_seq;
struct pgd_seq {
    // engine: tokens known so far, memory of the engine
    int32_t *tokens;
    int32_t n_prompt;
    int32_t n_tokens;
    int32_t n_ahead;    // tokens behind these that the device has drawn or will: steps on their way
    int32_t cap_tokens; // n_prompt + max_tokens, clipped to max_model_len
    int32_t slot;       // stable row in the device's tables while running, -1 = none
    // engine: what else names the content of its blocks, borrowed; length 0 = none
    const char *cache_salt; // [cache_salt_len] bytes: only requests with the same salt share
    const char *adapter;    // [adapter_len] bytes: name of the adapter its weights have
    int32_t cache_salt_len;
    int32_t adapter_len;
    int32_t skip_cache; // 1: reads no cached block (prompt log probabilities need every row)
    // engine: order under the policy "priority": lower first, then earlier arrival
    int32_t priority;
    double arrival;
    // sched
    int32_t cancelled; // by pgd_sched_cancel; taken out at the next plan
    int32_t state;     // PGD_SEQ_...
    int32_t computed;  // tokens whose keys and values are in the cache (this step's included)
    int32_t n_preempted;
    int32_t cached_tokens; // read from the prefix cache at the first admission, -1 = not admitted
    int32_t row;           // its row while a step is planned, -1 = none
    uint64_t order;        // of adding
    pgd_seq *prev;
    pgd_seq *next;
    // kv
    int32_t *blocks;  // [n_groups, cap_blocks] ids, memory of the engine; 0 = out of the window
    int32_t n_blocks; // entries in use, the same in every group
    int32_t cap_blocks;
    int32_t n_blocks_sent; // entries the device's table has
    int32_t n_hashes;
    int32_t n_registered; // blocks whose content is known to the prefix cache
    pgd_kv_hash *hashes;  // [cap_blocks] of full blocks, memory of the engine; NULL = not cached
    // sample
    pgd_sampling sampling; // counter is set per step
    const int32_t *stop_ids;
    int32_t n_stop_ids;
    int32_t min_tokens;
    const pgd_bias *bias;     // [n_bias] for every token, memory of the engine
    const int32_t *bad_words; // n_bad_words times: a length, so many ids; memory of the engine
    int32_t n_bias;
    int32_t n_bad_words;
    int32_t has_counts;    // 1: penalties read and count in row `slot` of the device's counts
    int32_t has_mask;      // 1: row `slot` of the batch's masks is its own
    int32_t scores_prompt; // 1: prompt rows give the log probability of the token behind them
    int32_t n_prompt_logprobs;
    int32_t n_scored; // with scores_prompt: prompt positions done or planned, position 0 included
    int32_t finish;   // PGD_FINISH_...
    int32_t stop_id;  // the id that stopped it, -1 = none
    void *owner;      // the engine's answer
};

// Tokens there are, seen by the host or not: what is planned and drawn counts from here. The last
// one may be on the device only, where it is the slot's entry of the batch's `last`.
static inline int32_t pgd_kv_seq_known(const pgd_seq *seq) {
    return seq->n_tokens + seq->n_ahead;
}

enum { PGD_ROW_PREFILL = 0, PGD_ROW_DECODE = 1 };

typedef struct pgd_step_row {
    pgd_seq *seq;       // NULL: released since
    int32_t start;      // computed before this step
    int32_t n_tokens;   // rows of the batch it takes
    int32_t kind;       // PGD_ROW_...
    int32_t gives;      // 1: its last token gives a new one
    int32_t out;        // index among the outputs, -1 = none
    int32_t turn;       // place in the order of scheduling
    int32_t n_scored;   // prompt positions that get their log probability
    int32_t scored;     // the first of them
    int32_t out_scored; // index of its output; the others follow
} pgd_step_row;

typedef struct pgd_step {
    uint64_t number;
    pgd_step_row *rows; // [cap_rows] memory of the engine; decode rows first
    int32_t n_rows;
    int32_t cap_rows; // at least max_num_seqs
    int32_t n_tokens;
    int32_t n_decode;
    int32_t n_out;        // outputs: first those that give tokens, then those of scored positions
    int32_t n_tokens_out; // those that give tokens
    // Who moved, in the order in which it happened; arrays of the scheduler, valid until its next
    // plan.
    int32_t n_finished; // ended by the plan itself (cancelled, impossible)
    int32_t n_preempted;
    int32_t n_admitted; // for the first time
    int32_t n_resumed;  // after a preemption
    pgd_seq **finished;
    pgd_seq **preempted;
    pgd_seq **admitted;
    pgd_seq **resumed;
    // [n_rows] rows in the order of scheduling; of the scheduler, valid one plan longer
    const int32_t *turns;
} pgd_step;

#endif
