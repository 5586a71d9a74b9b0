// What the files of the engine room share.
//
//   submit -> request (seq inside) -> sched -> step -> batch -> model -> ids -> emit -> text
#ifndef PGD_ENGINE_INNER_H
#define PGD_ENGINE_INNER_H

#include <pagoda/pagoda.h>

#include "base/str.h"
#include "base/team.h"
#include "dev/batch.h"
#include "dev/dev.h"
#include "engine/report.h"
#include "kv/cache.h"
#include "load/config.h"
#include "load/plan.h"
#include "load/weights.h"
#include "model/model.h"
#include "sample/sample.h"
#include "sched/sched.h"
#include "text/stream.h"
#include "text/template.h"
#include "text/tokenizer.h"

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
    int32_t no_prefix_caching;
    int32_t no_chunked_prefill;
    int32_t no_reserve_full_prompt;
    int32_t policy; // PGD_SCHED_...
    double watermark;
} engine_limits;

struct pgd_engine {
    // opened in this order, closed in the reverse
    pgd_team *team;
    pgd_dev_registry *registry;
    pgd_dev *dev;
    const pgd_device *d;
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
    pgd_queue *queue;
    pgd_exec *exec;
    pgd_dev_batch *batch;
    pgd_model *model;
    pgd_kv_cache *cache;
    pgd_sched *sched;
    pgd_step step;
    int32_t *ids;          // [max_num_seqs] host copy of the step's tokens
    float *logits;         // [max_num_seqs, vocab] host copy, NULL without keep_logits
    pgd_request *requests; // list of all, newest first
    int32_t n_busy;
    uint64_t n_preemptions;
    uint64_t step_allocations; // made while planning and enqueueing; stays 0
};

struct pgd_request {
    pgd_engine *engine;
    pgd_request *prev;
    pgd_request *next;
    pgd_seq seq;
    int32_t *stop_ids; // the request's own first, then the model's
    int32_t n_own_stop_ids;
    int32_t ended;
    pgd_text_stream *stream; // NULL: the model has no tokenizer
    pgd_text text;
    size_t text_given; // bytes on_text has had
    char *error;
    char *salt;    // of the prefix cache, NULL = none
    float *logits; // [vocab], NULL without keep_logits
    pgd_text_fn on_text;
    void *arg;
    uint64_t submitted_ns;
    uint64_t started_ns;
    uint64_t first_ns;
    uint64_t ended_ns;
};

// engine.c, in the order of opening: options of any size into full ones; the device; the model's
// files, its plan and the limits. weights and plan are the caller's, also on a failure.
pgd_status pgd_engine_copy_options(const pgd_engine_options *options,
                                   pgd_engine_options *out) PGD_MUST_USE;
pgd_status pgd_engine_open_device(pgd_engine *e, const pgd_engine_options *o) PGD_MUST_USE;
pgd_status pgd_engine_open_plan(pgd_engine *e, const pgd_engine_options *o,
                                pgd_load_weights **weights, pgd_load_plan **plan) PGD_MUST_USE;
// store.c: where packed weights are kept.
pgd_status pgd_engine_open_store(pgd_engine *e, const pgd_engine_options *o) PGD_MUST_USE;
// report.c: what a step costs at least.
void pgd_engine_work_of(pgd_engine *e, const pgd_load_plan *plan);
// plan.c: limits from the options, the model and the device's memory.
pgd_status pgd_engine_plan(pgd_engine *e, const pgd_engine_options *o,
                           const pgd_load_plan *plan) PGD_MUST_USE;
pgd_model_desc pgd_engine_model_desc(const pgd_engine *e, const pgd_load_plan *plan);
// fill.c: the step into the batch's arrays.
void pgd_engine_fill(pgd_engine *e);
// emit.c: tokens of the step to their requests; ends what has ended.
void pgd_engine_emit(pgd_engine *e);
void pgd_engine_end(pgd_request *r, int32_t finish, const char *error);
// request.c
void pgd_engine_free_request(pgd_request *r);

#endif
