// What the files of the engine room share.
//
//   submit -> request -> choices (a seq each) -> sched -> step -> batch -> model -> ids -> emit ->
//   text
#ifndef PGD_ENGINE_INNER_H
#define PGD_ENGINE_INNER_H

#include <pagoda/pagoda.h>

#include "base/str.h"
#include "base/team.h"
#include "dev/batch.h"
#include "dev/dev.h"
#include "dev/staging.h"
#include "engine/pace.h"
#include "engine/report.h"
#include "kv/cache.h"
#include "load/config.h"
#include "load/plan.h"
#include "load/weights.h"
#include "model/model.h"
#include "sample/sample.h"
#include "sched/sched.h"
#include "text/stop.h"
#include "text/stream.h"
#include "text/template.h"
#include "text/tokenizer.h"

#include <stdatomic.h>

enum { ENGINE_AHEAD_AUTO = 0, ENGINE_AHEAD_ON = 1, ENGINE_AHEAD_OFF = 2 };

// The numbers an engine runs with, after defaults and clipping.
typedef struct engine_limits {
    int32_t max_model_len;
    int32_t max_num_seqs;
    int32_t max_num_batched_tokens;
    int32_t long_prefill_token_threshold;
    int32_t block_size;
    int32_t num_blocks;
    int32_t kv_dtype;
    int32_t keep_logits;
    int32_t max_logprobs;
    int32_t max_scored; // prompt positions of a step that get a log probability
    int32_t no_prefix_caching;
    int32_t no_chunked_prefill;
    int32_t no_reserve_full_prompt;
    int32_t policy; // PGD_SCHED_...
    int32_t ahead;  // ENGINE_AHEAD_...
    int32_t reserved0;
    double watermark;
    pgd_model_groups groups;
} engine_limits;

// Devices by name, for info and for opening again.
typedef struct engine_names {
    char *device;  // as it was opened, options and layers included; owned
    char *standby; // NULL: none; owned
    char *memory;  // NULL: the default; owned
    char *quant;   // NULL: weights as they are stored; owned
    char uri[160]; // of the device in use
    char product[64];
    uint32_t allow_slow;
    uint32_t no_deterministic;
    int32_t on_standby;
    int32_t reserved0;
} engine_names;

// What went wrong since the last step that did not.
typedef struct engine_trouble {
    uint64_t timeout_ns; // of a wait
    int32_t n_lost;
    int32_t n_failed;
} engine_trouble;

// A step from its plan until its tokens have gone to their requests, with host copies of what it
// gives, in memory that the device copies to beside the engine's own work.
typedef struct engine_flight {
    pgd_step step;
    uint64_t began_ns;
    uint64_t point; // of the queue, when the copies are there
    pgd_dev_staging staging;
    int32_t *ids;         // [max_num_seqs]
    float *logits;        // [max_num_seqs, vocab], NULL without keep_logits
    float *logprobs;      // [max_out, 1 + max_logprobs], as the next
    int32_t *logprob_ids; //
    int32_t *ranks;       // [max_out]
    int32_t *counts;      // [ENGINE_COUNT_ROWS, vocab] on their way to the device
} engine_flight;

#define ENGINE_FLIGHTS 2

struct pgd_engine {
    // opened in this order, closed in the reverse
    pgd_team *team;
    pgd_dev_registry *registry;
    pgd_dev *dev; // NULL while a lost device could not be opened again, like all it holds
    const pgd_device *d;
    engine_names names;
    engine_trouble trouble;
    char choice[800]; // why "auto" took this device; "" when there was nothing to choose
    char folder[4096];
    pgd_load_config *config;
    pgd_text_tokenizer *tokenizer; // NULL: the model has none
    pgd_text_template *chat;       // NULL: the model has none
    engine_limits limits;
    pgd_model_needs needs;
    pgd_engine_work work;
    pgd_dev_store store; // of packed weights; folder NULL: none
    char store_folder[4096];
    uint64_t store_least; // bytes of weights below which nothing is kept
    uint64_t parameters;
    uint64_t total_bytes; // of the device
    uint64_t free_bytes;
    uint64_t budget_bytes;
    uint64_t batch_bytes;
    uint64_t kv_bytes;
    pgd_queue *queue;
    pgd_exec *exec;
    pgd_dev_batch *batch;
    pgd_model *model;
    pgd_kv_cache *cache;
    pgd_sched *sched;
    // steps on their way, the oldest at first_flight; a second one only where the engine runs ahead
    engine_flight flights[ENGINE_FLIGHTS];
    int32_t first_flight;
    int32_t n_flights;
    int32_t runs_ahead;
    int32_t step_tokens; // rows of the latest step
    uint64_t n_steps;
    pgd_engine_pace pace;
    pgd_request *requests; // list of all, newest first
    pgd_request *released; // to be freed when the step is over
    int32_t n_busy;        // requests that have not ended
    int32_t in_step;
    void (*on_ended)(void *arg, pgd_request *r); // behind a request's last callback; may be NULL
    void *on_ended_arg;
    _Atomic uint64_t under_way_ns; // [any] when the step under way began, 0 = none is
    uint64_t emit_ns;              // when a step began, then when its tokens were there
    uint64_t landed_ns;            // when the latest step was over
    uint64_t step_allocations;     // made while planning and enqueueing; stays 0
    pgd_engine_stats stats;        // the counters among them
};

#define ENGINE_COUNT_ROWS 4

// One answer of a request: a sequence, and what has come of it.
typedef struct engine_choice {
    pgd_request *request;
    int32_t index;
    int32_t ended;
    pgd_seq seq;
    pgd_text_stream *stream; // NULL: the model has no tokenizer
    pgd_text text;
    size_t text_read;    // bytes searched for stop strings
    size_t text_ready;   // bytes that may go out; the rest may begin a stop string
    size_t text_given;   // bytes the callbacks have had
    int32_t ids_given;   // tokens on_delta has had
    int32_t stop_string; // that ended it, -1 = none
    pgd_text_stop_state stop_state;
    int32_t cap_logprobs; // rows of the next three
    float *logprobs;
    int32_t *logprob_ids;
    int32_t *ranks;
    double cumulative;
    char *error;
    float *logits; // [vocab], NULL without keep_logits
    uint64_t started_ns;
    uint64_t first_ns;
    uint64_t last_ns;
    uint64_t ended_ns;
} engine_choice;

struct pgd_request {
    pgd_engine *engine;
    pgd_request *prev;
    pgd_request *next;
    pgd_request *next_released;
    engine_choice *choices; // [n]
    int32_t n;
    int32_t n_running;
    // what the sequences borrow
    int32_t *stop_ids; // the request's own first, then the model's
    int32_t n_own_stop_ids;
    int32_t n_bad_words;
    int32_t *bad_words;  // n_bad_words times: a length, so many ids
    pgd_bias *bias;      // NULL = none
    uint32_t *mask;      // [ceil(vocab / 32)] of allowed tokens, NULL = all
    char *salt;          // of the prefix cache, NULL = none
    pgd_text_stop *stop; // NULL = none
    int32_t include_stop;
    int32_t released;
    int32_t n_logprobs;        // -1 = none
    int32_t n_prompt_logprobs; // -1 = none
    float *prompt_logprobs;    // [n_prompt, 1 + n_prompt_logprobs], as the next
    int32_t *prompt_logprob_ids;
    int32_t *prompt_ranks; // [n_prompt]
    pgd_text_fn on_text;
    pgd_delta_fn on_delta;
    void *arg;
    uint64_t submitted_ns;
    // async.c: what was asked of the engine thread and has not been read yet
    _Atomic uint32_t mail;
    int32_t to_release; // when it has ended
    pgd_request *next_mail;
};

// engine.c and choose.c, in the order of opening: options of any size into full ones; the device,
// if it was named; the model's files, its plan, the device if it was not named, and the limits.
// weights and plan are the caller's, also on a failure.
pgd_status pgd_engine_copy_options(const pgd_engine_options *options,
                                   pgd_engine_options *out) PGD_MUST_USE;
pgd_status pgd_engine_open_device(pgd_engine *e, const pgd_engine_options *o) PGD_MUST_USE;
pgd_status pgd_engine_open_plan(pgd_engine *e, const pgd_engine_options *o,
                                pgd_load_weights **weights, pgd_load_plan **plan) PGD_MUST_USE;
// engine.c: the model's files and their plan, quantized as the options say.
pgd_status pgd_engine_open_weights(pgd_engine *e, pgd_load_weights **weights,
                                   pgd_load_plan **plan) PGD_MUST_USE;
// store.c: where packed weights are kept.
pgd_status pgd_engine_open_store(pgd_engine *e, const pgd_engine_options *o) PGD_MUST_USE;
// choose.c: the plan on the device that was named, or on the best one that takes it.
pgd_status pgd_engine_choose(pgd_engine *e, const pgd_engine_options *o,
                             const pgd_load_plan *plan) PGD_MUST_USE;
// choose.c: opens a device by its whole name and keeps the name.
pgd_status pgd_engine_open_named(pgd_engine *e, const char *uri) PGD_MUST_USE;
// engine.c: the model on the device that is open, and away from it.
pgd_status pgd_engine_load(pgd_engine *e, const pgd_load_plan *plan) PGD_MUST_USE;
void pgd_engine_unload(pgd_engine *e);
// plan.c: the limits as they are on the device that is open now.
pgd_status pgd_engine_plan_again(pgd_engine *e, const pgd_load_plan *plan) PGD_MUST_USE;
// recover.c: waits for a point in time, no longer than a step may take.
pgd_status pgd_engine_wait(pgd_engine *e, uint64_t point) PGD_MUST_USE;
// recover.c: after a step that failed: PGD_OK if its requests will be computed again.
pgd_status pgd_engine_recover(pgd_engine *e, pgd_status status) PGD_MUST_USE;
// recover.c: opens a device when there is none; ends all requests if that fails.
pgd_status pgd_engine_ensure_device(pgd_engine *e) PGD_MUST_USE;
// report.c: what a step costs at least.
void pgd_engine_work_of(pgd_engine *e, const pgd_load_plan *plan);
// plan.c: limits from the options, the model and the device's memory.
pgd_status pgd_engine_plan(pgd_engine *e, const pgd_engine_options *o,
                           const pgd_load_plan *plan) PGD_MUST_USE;
pgd_model_desc pgd_engine_model_desc(const pgd_engine *e, const pgd_load_plan *plan);
pgd_dev_batch_desc pgd_engine_batch_desc(const pgd_engine *e);
pgd_kv_cache_config pgd_engine_cache_config(const pgd_engine *e);
// flight.c: memory for steps on their way, and away with it.
pgd_status pgd_engine_make_flights(pgd_engine *e) PGD_MUST_USE;
void pgd_engine_free_flights(pgd_engine *e);
// Flight i, the oldest first.
engine_flight *pgd_engine_flight(pgd_engine *e, int32_t i);
// Takes a sequence that is to be freed out of them.
void pgd_engine_forget_rows(pgd_engine *e, const pgd_seq *seq);
// fill.c: sequences that have got a slot: their masks and counts to the device. Before fill.
pgd_status pgd_engine_arrive(pgd_engine *e, engine_flight *f) PGD_MUST_USE;
// fill.c: the step into the batch's arrays.
void pgd_engine_fill(pgd_engine *e, const engine_flight *f);
// emit.c: tokens of the step to their requests; ends what has ended.
void pgd_engine_emit(pgd_engine *e, const engine_flight *f);
// error: the sentence for PGD_FINISH_ERROR, else NULL.
void pgd_engine_end(engine_choice *c, int32_t finish, const char *error);
// describe.c: a description of any size into a full one, checked.
pgd_status pgd_engine_copy_desc(const pgd_engine *e, const pgd_request_desc *desc,
                                pgd_request_desc *out) PGD_MUST_USE;
// describe.c: what all answers of a request share; `ids` gets the prompt.
pgd_status pgd_engine_describe(pgd_request *r, const pgd_request_desc *d,
                               pgd_text_ids *ids) PGD_MUST_USE;
// request.c: [any] builds a request without queueing it; the engine thread queues it, which cannot
// fail.
pgd_status pgd_engine_make_request(pgd_engine *e, const pgd_request_desc *desc,
                                   pgd_request **out) PGD_MUST_USE;
void pgd_engine_queue_request(pgd_request *r);
// Frees a request that was not queued, or whose answers have ended or are taken out here.
void pgd_engine_free_parts(pgd_request *r);
void pgd_engine_free_request(pgd_request *r);
// output.c: hands the callbacks what they have not had yet.
void pgd_engine_give(engine_choice *c);

#endif
