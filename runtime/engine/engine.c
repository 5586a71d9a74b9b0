// The engine: opens everything in order, runs steps, closes in reverse. See <pagoda/pagoda.h>.
//
// One step, in the order the struct walks:
//   plan rows -> fill batch -> fill sampling -> upload -> run model -> fetch tokens -> emit
#include "engine/inner.h"

#include <string.h>

#include "base/clock.h"
#include "base/fail.h"
#include "base/mem.h"
#include "load/name.h"
#include "load/synthetic.h"
#include "load/weights.h"

const char *pgd_last_error(void) {
    return pgd_fail_last();
}

const char *pgd_version(void) {
    return "0.1.0";
}

void pgd_free(void *ptr) {
    pgd_mem_free(ptr);
}

static void report(const pgd_engine_options *o, const char *what, uint64_t done, uint64_t total) {
    if (o->progress != NULL) {
        o->progress(o->progress_arg, what, done, total);
    }
}

// A missing tokenizer or template is no failure: token ids still work.
static pgd_status open_text(pgd_engine *e) {
    if (pgd_load_synthetic_is(e->folder)) {
        return PGD_OK;
    }
    pgd_status status = pgd_text_tokenizer_open(e->folder, &e->tokenizer);
    if (status != PGD_OK && status != PGD_NOT_FOUND) {
        return status;
    }
    status = pgd_text_template_open(e->folder, &e->chat);
    return status == PGD_NOT_FOUND ? PGD_OK : status;
}

static pgd_status make_room(pgd_engine *e) {
    const size_t n = (size_t)e->limits.max_num_seqs;
    for (int32_t i = 0; i < ENGINE_FLIGHTS; i++) {
        pgd_step *step = &e->flights[i].step;
        step->cap_rows = e->limits.max_num_seqs;
        step->rows = pgd_mem_alloc(n, sizeof(*step->rows));
        if (step->rows == NULL) {
            return PGD_MEM_FAIL("the step", n * sizeof(*step->rows));
        }
    }
    return PGD_OK;
}

static pgd_status make_sched(pgd_engine *e) {
    const engine_limits *l = &e->limits;
    const pgd_sched_config config = {
        .max_num_batched_tokens = l->max_num_batched_tokens,
        .max_num_seqs = l->max_num_seqs,
        .max_model_len = l->max_model_len,
        .long_prefill_token_threshold = l->long_prefill_token_threshold,
        .policy = l->policy,
        .no_chunked_prefill = l->no_chunked_prefill,
        .no_reserve_full_prompt = l->no_reserve_full_prompt,
        .watermark = l->watermark,
        .max_scored = l->max_scored,
    };
    const pgd_kv_cache_config cache = pgd_engine_cache_config(e);
    PGD_TRY(pgd_kv_cache_create(&cache, &e->cache));
    return pgd_sched_create(&config, e->cache, &e->sched);
}

pgd_status pgd_engine_load(pgd_engine *e, const pgd_load_plan *plan) {
    const engine_limits *l = &e->limits;
    const pgd_dev_batch_desc batch = pgd_engine_batch_desc(e);
    const pgd_queue_desc queue = {.size = sizeof(queue), .role = PGD_QUEUE_COMPUTE};
    const pgd_model_desc desc = pgd_engine_model_desc(e, plan);
    PGD_TRY(e->d->queue->create(e->d, &queue, &e->queue));
    PGD_TRY(pgd_dev_batch_create(e->d, &batch, &e->batch));
    PGD_TRY(pgd_model_create(&desc, pgd_dev_batch_view(e->batch), e->queue, &e->model));
    PGD_TRY(pgd_model_bind(e->model, l->num_blocks));
    PGD_TRY(pgd_dev_exec_create(e->dev, e->queue, e->needs.scratch_bytes, &e->exec));
    PGD_TRY(pgd_engine_make_flights(e));
    e->kv_bytes = pgd_model_kv_bytes(e->model);
    return pgd_model_record(e->model, e->exec);
}

static pgd_status quantize(const pgd_engine *e, const char *name, pgd_load_plan *plan) {
    if (name == NULL || strcmp(name, "none") == 0) {
        return PGD_OK;
    }
    const int32_t scheme = pgd_load_scheme_of(name);
    if (scheme == PGD_SCHEME_PLAIN) {
        return pgd_fail(PGD_INVALID, "quant is \"%s\"; none, " PGD_LOAD_SCHEMES " are allowed",
                        name);
    }
    return pgd_load_plan_quantize(plan, scheme, e->team);
}

pgd_status pgd_engine_open_weights(pgd_engine *e, pgd_load_weights **weights,
                                   pgd_load_plan **plan) {
    PGD_TRY(pgd_load_weights_open(e->folder, weights));
    PGD_TRY(pgd_load_plan_create(e->config, *weights, plan));
    return quantize(e, e->names.quant, *plan);
}

pgd_status pgd_engine_open_plan(pgd_engine *e, const pgd_engine_options *o,
                                pgd_load_weights **weights, pgd_load_plan **plan) {
    const pgd_load_progress progress = {.fn = o->progress, .arg = o->progress_arg};
    PGD_TRY(pgd_load_fetch_model(o->model, &progress, e->folder, sizeof(e->folder)));
    PGD_TRY(pgd_load_config_read(e->folder, &e->config));
    PGD_TRY(open_text(e));
    PGD_TRY(pgd_engine_open_weights(e, weights, plan));
    e->parameters = (*plan)->params;
    PGD_TRY(pgd_engine_choose(e, o, *plan));
    pgd_engine_work_of(e, *plan);
    return PGD_OK;
}

static pgd_status open_model(pgd_engine *e, const pgd_engine_options *o) {
    pgd_load_weights *weights = NULL;
    pgd_load_plan *plan = NULL;
    pgd_status status = pgd_engine_open_plan(e, o, &weights, &plan);
    if (status == PGD_OK) {
        report(o, "loading weights", 0, plan->weight_bytes);
        status = make_sched(e);
    }
    if (status == PGD_OK) {
        status = make_room(e);
    }
    if (status == PGD_OK) {
        status = pgd_engine_load(e, plan);
    }
    pgd_load_plan_destroy(plan);
    pgd_load_weights_close(weights);
    return status;
}

pgd_status pgd_engine_copy_options(const pgd_engine_options *o, pgd_engine_options *out) {
    if (o->size < offsetof(pgd_engine_options, progress)) {
        return pgd_fail(PGD_INVALID, "engine options: size is %u; set it to sizeof(options)",
                        o->size);
    }
    memcpy(out, o, o->size < sizeof(*out) ? o->size : sizeof(*out));
    return PGD_OK;
}

pgd_status pgd_engine_create(const pgd_engine_options *options, pgd_engine **out) {
    *out = NULL;
    pgd_engine_options o = {0};
    PGD_TRY(pgd_engine_copy_options(options, &o));
    pgd_engine *e = pgd_mem_alloc(1, sizeof(*e));
    if (e == NULL) {
        return PGD_MEM_FAIL("the engine", sizeof(*e));
    }
    pgd_status status = pgd_engine_open_store(e, &o);
    if (status == PGD_OK) {
        status = pgd_engine_open_device(e, &o);
    }
    if (status == PGD_OK) {
        status = pgd_fail_note(open_model(e, &o), "opening the model %s",
                               o.model != NULL && o.model[0] != '\0' ? o.model : "nano");
    }
    if (status != PGD_OK) {
        pgd_engine_destroy(e);
        return status;
    }
    *out = e;
    return PGD_OK;
}

// The queue goes first: that waits for what is enqueued, so that nothing is in use any more.
void pgd_engine_unload(pgd_engine *e) {
    if (e->queue != NULL) {
        e->d->queue->destroy(e->d, e->queue);
    }
    pgd_dev_exec_destroy(e->dev, e->exec);
    pgd_model_destroy(e->model);
    pgd_dev_batch_destroy(e->batch);
    pgd_engine_free_flights(e);
    pgd_dev_close(e->dev);
    e->exec = NULL;
    e->model = NULL;
    e->batch = NULL;
    e->queue = NULL;
    e->dev = NULL;
    e->d = NULL;
}

void pgd_engine_destroy(pgd_engine *e) {
    if (e == NULL) {
        return;
    }
    while (e->requests != NULL) {
        pgd_engine_free_request(e->requests);
    }
    pgd_engine_unload(e);
    pgd_sched_destroy(e->sched);
    pgd_kv_cache_destroy(e->cache);
    for (int32_t i = 0; i < ENGINE_FLIGHTS; i++) {
        pgd_mem_free(e->flights[i].step.rows);
    }
    pgd_text_template_close(e->chat);
    pgd_text_tokenizer_close(e->tokenizer);
    pgd_load_config_free(e->config);
    pgd_mem_free(e->names.device);
    pgd_mem_free(e->names.standby);
    pgd_mem_free(e->names.memory);
    pgd_mem_free(e->names.quant);
    pgd_dev_registry_destroy(e->registry);
    pgd_team_close(e->team);
    pgd_mem_free(e);
}

void pgd_engine_get_info(const pgd_engine *e, pgd_engine_info *out) {
    const pgd_engine_info info = {
        .size = out->size,
        .max_model_len = e->limits.max_model_len,
        .model = e->folder,
        .architecture = e->config->architecture,
        .device = e->names.uri,
        .device_name = e->names.product,
        .parameters = e->parameters,
        .weight_bytes = e->needs.weight_bytes,
        .kv_bytes = e->kv_bytes,
        .activation_bytes = e->needs.activation_bytes,
        .num_blocks = e->limits.num_blocks,
        .block_size = e->limits.block_size,
        .vocab_size = e->config->vocab,
        .n_layers = e->config->n_layers,
        .n_steps = e->n_steps,
        .n_preemptions = pgd_sched_get_stats(e->sched)->n_preemptions,
        .n_prompt_tokens_asked = pgd_sched_get_stats(e->sched)->n_asked,
        .n_prompt_tokens_cached = pgd_sched_get_stats(e->sched)->n_hit,
    };
    memcpy(out, &info, out->size < sizeof(info) ? out->size : sizeof(info));
}

void pgd_engine_get_stats(const pgd_engine *e, pgd_engine_stats *out) {
    const pgd_sched_stats *sched = pgd_sched_get_stats(e->sched);
    const pgd_kv_pool *pool = pgd_kv_cache_pool(e->cache);
    pgd_engine_stats s = e->stats;
    s.size = out->size;
    s.n_running = pgd_sched_n_running(e->sched);
    s.n_waiting = pgd_sched_n_waiting(e->sched);
    s.num_blocks = pgd_kv_pool_usable(pool);
    s.blocks_used = s.num_blocks - pgd_kv_pool_free_count(pool);
    s.step_tokens = e->step_tokens;
    s.n_steps = e->n_steps;
    s.prefill_limit = pgd_engine_pace_limit(&e->pace);
    s.max_stall_ns = e->pace.longest_ns;
    s.n_limited_steps = e->pace.n_limited;
    s.n_preemptions = sched->n_preemptions;
    s.n_prompt_tokens_asked = sched->n_asked;
    s.n_prompt_tokens_cached = sched->n_hit;
    memcpy(out, &s, out->size < sizeof(s) ? out->size : sizeof(s));
}

pgd_status pgd_engine_reset_prefix_cache(pgd_engine *e, uint32_t preempt_running) {
    if (e->in_step || !pgd_sched_reset_cache(e->sched, preempt_running != 0)) {
        return pgd_fail(PGD_PRECONDITION,
                        "the prefix cache is in use by %d running sequences; wait for their end, "
                        "or reset with preempt_running",
                        pgd_sched_n_running(e->sched));
    }
    return PGD_OK;
}
