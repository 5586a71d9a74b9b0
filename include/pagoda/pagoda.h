// pagoda for programs: an engine, requests, streams of tokens.
//
//   pgd_engine *engine;
//   pgd_engine_options options = {.size = sizeof(options), .model = "nano", .device = "cpu"};
//   if (pgd_engine_create(&options, &engine) != PGD_OK) { puts(pgd_last_error()); ... }
//   pgd_request_desc d = {.size = sizeof(d), .prompt = "Once upon a time", .max_tokens = 64};
//   pgd_request *request;
//   pgd_engine_submit(engine, &d, &request);
//   while (pgd_engine_busy(engine)) { pgd_engine_step(engine); }
//   pgd_output out = {.size = sizeof(out)};
//   pgd_request_output(request, &out);
//
// Handles are opaque. Structs begin with `size` = sizeof and zero means default. Every function
// that can fail returns a status; pgd_last_error() has its sentence, per thread.
// Thread rule: an engine and its requests belong to one thread at a time; engines are independent.
#ifndef PAGODA_PAGODA_H
#define PAGODA_PAGODA_H

#include <stddef.h>
#include <stdint.h>

#include <pagoda/status.h>

#ifdef __cplusplus
extern "C" {
#endif

#if defined(_WIN32)
#define PGD_API
#else
#define PGD_API __attribute__((visibility("default")))
#endif

typedef struct pgd_engine pgd_engine;
typedef struct pgd_request pgd_request;

// The last failure's sentence on this thread; "" if there was none. Borrow until the next failure.
PGD_API const char *pgd_last_error(void);
// "OUT_OF_MEMORY" ...; "UNKNOWN" for a number that is no code.
PGD_API const char *pgd_status_name(pgd_status code);
// "0.1.0"
PGD_API const char *pgd_version(void);

// ---- engine ------------------------------------------------------------------------------------

// Progress of loading: `what` is a short phrase; done and total in bytes.
typedef void (*pgd_progress_fn)(void *arg, const char *what, uint64_t done, uint64_t total);

typedef struct pgd_engine_options {
    uint32_t size;
    int32_t threads;    // workers of the process's one team, 0 = one per usable core; the first
                        // engine decides
    const char *model;  // NULL or "nano" = the default model; a folder
    const char *device; // NULL or "auto"; "cpu", "cuda:0", "null{step_us=5}" ...
    const char *const *plugins; // further plugin files
    uint32_t n_plugins;
    uint32_t allow_slow;            // 1: operations without a fast place may run on the host
    const char *kv_cache_dtype;     // NULL or "auto" = the device's; "f32", "bf16", "f16", "int8"
    const char *memory;             // NULL = "90%" of what is free; "4GiB", "50%"
    int32_t num_blocks;             // of the KV cache, block 0 included; 0 = what memory allows
    int32_t block_size;             // tokens of a block, 0 = 16
    int32_t max_model_len;          // 0 = the model's own, clipped to what fits
    int32_t max_num_seqs;           // sequences in a step, 0 = 128
    int32_t max_num_batched_tokens; // rows of a step, 0 = 2048
    int32_t long_prefill_token_threshold; // most rows of one prompt in a step, 0 = no limit
    uint32_t keep_logits;                 // 1: pgd_request_logits works (for tests and evaluation)
    uint32_t reserved0;
    pgd_progress_fn progress; // may be NULL
    void *progress_arg;
    const char *scheduling_policy;   // NULL or "fcfs"; "priority"
    double watermark;                // share of the blocks admission leaves free, 0 to 1
    uint32_t no_prefix_caching;      // 1: prompts are always computed, never read from the cache
    uint32_t no_chunked_prefill;     // 1: a prompt runs in one step or waits
    uint32_t no_reserve_full_prompt; // 1: a prompt starts when its first chunk fits
    int32_t max_logprobs; // most log probabilities a request may ask for: up to 1024, 0 = 20,
                          // -1 = those of the whole vocabulary
    const char *cache;               // folder; NULL = XDG_CACHE_HOME/pagoda, or HOME/.cache/pagoda
    // Weights as the device lays them out, kept in the cache for the next start. NULL or "auto": of
    // models of 64 MiB and more, 20 GiB in all; "off"; or bytes ("4GiB"): of all models, so many.
    const char *weight_cache;
    uint32_t no_deterministic; // 1: results may depend on what else is in the batch, if faster
    uint32_t step_timeout_ms;  // longest wait for a step, then the device counts as lost; 0 = 10
                               // minutes
    // Where the requests go on when the device is lost and cannot be opened again; NULL = nowhere,
    // then they end with reason "error". Not "auto".
    const char *standby;
    int32_t max_stall_ms; // prompts of others may hold the next token of a running answer so long;
                          // 0 = no bound. From measured steps, so the first ones may miss it
    uint32_t reserved2;
    // Weights of f32, bf16 and f16 are quantized while they are loaded: "q8_0", "q4_0", "q4_k",
    // "int8" ...; NULL or "none" = as they are stored.
    const char *quant;
    // A step is planned and sent to the device before the tokens of the one before are seen, which
    // the device puts in by itself. NULL or "auto": on devices that work beside the CPU (their
    // memory is their own); "on"; "off". The tokens are the same.
    const char *async_scheduling;
} pgd_engine_options;

// Opens the device, plans memory, loads the model.
//   fails  INVALID, OUT_OF_RANGE, NOT_FOUND, UNSUPPORTED (wrong use or wrong input, before any long
//          work), OUT_OF_MEMORY (with numbers), and what the device answers
PGD_API pgd_status pgd_engine_create(const pgd_engine_options *options,
                                     pgd_engine **out) PGD_MUST_USE;
// Requests of the engine are released by it. NULL is fine.
PGD_API void pgd_engine_destroy(pgd_engine *engine);

typedef struct pgd_engine_info {
    uint32_t size;
    int32_t max_model_len;
    const char *model;        // as it was found: a folder
    const char *architecture; // of config.json
    const char *device;       // "cpu:0"; "" while a lost one could not be opened again
    const char *device_name;
    uint64_t parameters;
    uint64_t weight_bytes; // resident
    uint64_t kv_bytes;
    uint64_t activation_bytes;
    int32_t num_blocks;
    int32_t block_size;
    int32_t vocab_size;
    int32_t n_layers;
    uint64_t n_steps;
    uint64_t n_preemptions;
    uint64_t n_prompt_tokens_asked;  // of requests looked up in the prefix cache
    uint64_t n_prompt_tokens_cached; // of these, found there
} pgd_engine_info;

// Strings live as long as the engine; those of the device change when it is lost.
PGD_API void pgd_engine_get_info(const pgd_engine *engine, pgd_engine_info *out);

// What the engine is doing, for metrics. Counters count from the start.
typedef struct pgd_engine_stats {
    uint32_t size;
    int32_t n_running; // sequences: an answer each
    int32_t n_waiting;
    int32_t num_blocks;    // that sequences can hold
    int32_t blocks_used;   // that they hold, shared ones once
    int32_t step_tokens;   // rows of the latest step
    int32_t step_status;   // what it returned, a pgd_status
    int32_t prefill_limit; // prompt tokens the next step may take beside running answers, 0 = any
    uint64_t n_steps;
    uint64_t n_preemptions;
    uint64_t n_prompt_tokens;        // of prompts that were computed or read to their end
    uint64_t n_prompt_tokens_asked;  // looked up in the prefix cache
    uint64_t n_prompt_tokens_cached; // of these, found there
    uint64_t n_generated_tokens;
    uint64_t n_stop; // answers that ended so, and the next three
    uint64_t n_length;
    uint64_t n_abort;
    uint64_t n_error;
    uint64_t n_device_lost;   // a step found the device gone, or waited in vain
    uint64_t n_device_opened; // again, or the standby, so that requests went on
    uint64_t n_step_retries;  // steps that failed on a healthy device and were computed again
    uint64_t max_stall_ns;    // longest step in which running answers waited for prompt tokens
    uint64_t n_limited_steps; // steps that took as many of these as they were allowed
    uint64_t n_steps_ahead;   // steps sent to the device while the one before was on its way
    uint64_t n_corrupt;       // answers that ended because the model's logits were no numbers
    // Steps that gave tokens, by how many: prompts that came to their end in them and tokens made.
    // [i]: at most 2^i and more than [i - 1]; the last: any more. Their sum is n_prompt_tokens +
    // n_generated_tokens.
    uint64_t n_steps_by_tokens[16];
} pgd_engine_stats;

PGD_API void pgd_engine_get_stats(const pgd_engine *engine, pgd_engine_stats *out);

// Forgets the prefix cache. With preempt_running everything that runs is preempted first and
// computed again.
//   fails  PRECONDITION while something runs (without preempt_running)
PGD_API pgd_status pgd_engine_reset_prefix_cache(pgd_engine *engine,
                                                 uint32_t preempt_running) PGD_MUST_USE;

// ---- requests ----------------------------------------------------------------------------------

// New text of a request with one answer, complete UTF-8, not NUL-terminated; `done` 1 at its end.
typedef void (*pgd_text_fn)(void *arg, pgd_request *request, const char *text, size_t len,
                            int32_t done);

// What one answer of a request has got in a step. Pointers live until the callback returns.
typedef struct pgd_delta {
    uint32_t size;
    int32_t index;         // which answer, 0 to n - 1
    const char *text;      // further text, complete UTF-8, not NUL-terminated
    size_t text_len;       // 0 is possible: an incomplete character, or a stop string's beginning
    const int32_t *ids;    // further tokens
    const float *logprobs; // [n_ids, 1 + n_logprobs] as in pgd_output, NULL = not asked for
    const int32_t *logprob_ids;
    const int32_t *ranks; // [n_ids]
    int32_t n_ids;
    int32_t n_logprobs;
    const char *finish_reason; // NULL while the answer runs
    const char *stop_text;     // as in pgd_output, with a finish_reason
    const char *error;
    int32_t stop_id;
    int32_t n_prompt; // tokens so far: of the prompt, of these cached, of this answer
    int32_t n_cached;
    int32_t n_output;
    int32_t done; // 1: the last one of the request; all its answers have ended
    int32_t reserved0;
} pgd_delta;

// Called inside a step, on the thread that runs it; it must not block. It may submit, cancel and
// release requests.
typedef void (*pgd_delta_fn)(void *arg, pgd_request *request, const pgd_delta *delta);

typedef struct pgd_request_desc {
    uint32_t size;
    uint32_t no_special; // 1: the tokenizer adds no special tokens to `prompt`
    const char *prompt;  // UTF-8; or
    const int32_t *ids;  // token ids
    size_t prompt_len;   // bytes, 0 = up to NUL
    int32_t n_ids;
    int32_t max_tokens; // 0 = 16
    int32_t min_tokens;
    float temperature; // 0 = greedy
    float top_p;       // 0 or 1 = off
    float min_p;       // 0 = off
    int32_t top_k;     // 0 = off
    uint32_t has_seed; // 1: `seed` is set; else a random one
    uint64_t seed;
    uint32_t ignore_eos; // 1: the model's end-of-sequence ids do not stop it
    int32_t n_stop_ids;
    const int32_t *stop_ids; // further ids that stop it
    pgd_text_fn on_text;     // may be NULL; called inside pgd_engine_step
    void *arg;
    const char *cache_salt; // NULL = none; only requests with the same salt share cached prompts
    int32_t priority;       // lower runs first under the policy "priority"
    int32_t n;              // answers to the prompt, 0 = 1, at most 128; answer i has seed + i
    pgd_delta_fn on_delta;  // may be NULL
    // Order and formulas: docs/sampling.md
    float repetition_penalty;     // above 0; 0 or 1 = off
    float presence_penalty;       // -2 to 2
    float frequency_penalty;      // -2 to 2
    int32_t n_bias;               // at most 1024
    const int32_t *bias_ids;      // tokens and what their logits get added,
    const float *bias_adds;       // cut to -100 to 100
    const int32_t *allowed_ids;   // [n_allowed] no other token is generated; NULL = all are allowed
    const char *const *bad_words; // [n_bad_words] texts that are never generated
    const char *const *stop;      // [n_stop] texts that end an answer
    int32_t n_allowed;            //
    uint32_t n_bad_words;         // at most 64, each 1 to 256 bytes
    uint32_t n_stop;              // at most 16, each 1 to 256 bytes
    uint32_t include_stop;        // 1: the text ends behind what stopped it, not before
    uint32_t keep_special;        // 1: special tokens are part of the text
    uint32_t has_logprobs;        // 1: log probabilities of the tokens,
    int32_t n_logprobs;           // and of the likeliest so many (0 to max_logprobs; -1 = all)
    uint32_t has_prompt_logprobs; // 1: the same for the prompt; it is computed, not read
    int32_t n_prompt_logprobs;    // from the prefix cache
    uint32_t reserved0;
} pgd_request_desc;

// Copies the description and queues the request.
//   fails  INVALID or OUT_OF_RANGE, naming the field, the value and what is allowed
PGD_API pgd_status pgd_engine_submit(pgd_engine *engine, const pgd_request_desc *desc,
                                     pgd_request **out) PGD_MUST_USE;
// The request ends with reason "abort" at the next step; nothing if it has ended.
PGD_API void pgd_request_cancel(pgd_request *request);
// Cancels if need be and frees. NULL is fine.
PGD_API void pgd_request_release(pgd_request *request);

typedef struct pgd_output {
    uint32_t size;
    int32_t done;              // 1: ended
    const char *finish_reason; // "stop", "length", "abort", "error"; NULL while it runs
    const char *error;         // sentence for "error", else NULL
    const char *text;          // NUL-terminated; without the stop token
    size_t text_len;
    const int32_t *ids; // generated, the stop token included
    int32_t n_ids;
    int32_t n_prompt;
    int32_t stop_id; // the id that stopped it, -1 = none or the model's own end
    int32_t n_preempted;
    uint64_t queued_ns;        // from submit to the first step
    uint64_t first_ns;         // from submit to the first token
    uint64_t total_ns;         // from submit to the end, or until now
    int32_t n_cached;          // prompt tokens read from the prefix cache
    int32_t index;             // which answer
    int32_t n;                 // answers of the request
    int32_t n_running;         // of these, not ended
    const char *stop_text;     // the stop string that ended it, else NULL
    uint64_t last_ns;          // from submit to the latest token
    const int32_t *prompt_ids; // [n_prompt]
    double cumulative_logprob; // sum over the tokens; 0 without logprobs
    // Log probabilities under the model's own distribution, before any step of sampling. Column 0
    // is the token itself, the others are the likeliest, falling. ranks: tokens at least as likely.
    int32_t n_logprobs;                // columns behind the first, -1 = not asked for
    int32_t n_prompt_logprobs;         // the same
    const float *logprobs;             // [n_ids, 1 + n_logprobs]
    const int32_t *logprob_ids;        // [n_ids, 1 + n_logprobs]
    const int32_t *ranks;              // [n_ids]
    const float *prompt_logprobs;      // [n_prompt, 1 + n_prompt_logprobs]; row 0 is empty
    const int32_t *prompt_logprob_ids; // [n_prompt, 1 + n_prompt_logprobs]
    const int32_t *prompt_ranks;       // [n_prompt]
    int32_t n_prompt_scored;           // rows of these three that are there, row 0 included
    uint32_t reserved0;
} pgd_output;

// The first answer. Pointers live until the next step or the release of the request.
PGD_API void pgd_request_output(const pgd_request *request, pgd_output *out);
// Answer `index`, 0 to n - 1; another number gives the first.
PGD_API void pgd_request_choice(const pgd_request *request, int32_t index, pgd_output *out);
// The logits [vocab_size] f32 behind the first answer's latest token; NULL without keep_logits.
PGD_API const float *pgd_request_logits(const pgd_request *request);

// One step: plans, runs, hands out tokens. Nothing to do is PGD_OK.
// A step that fails is computed again: its requests go back to the queue, their tokens kept. When
// the device is lost it (or the standby) is opened and loaded first, which takes as long as create.
//   fails  when that fails too, with what the device answered: the requests of the step, or all if
//          there is no device, end with reason "error"; the engine lives
PGD_API pgd_status pgd_engine_step(pgd_engine *engine) PGD_MUST_USE;
// Requests that have not ended.
PGD_API int32_t pgd_engine_busy(const pgd_engine *engine);

// Offline batch: submits all, steps until all have ended. out[i] belongs to descs[i]; release each.
// descs: an array whose elements are descs[0].size bytes apart.
// on_done (may be NULL) is called after each request's end with the count so far. On failure
// nothing is left and every out[i] is NULL.
PGD_API pgd_status pgd_engine_generate(pgd_engine *engine, const pgd_request_desc *descs, size_t n,
                                       void (*on_done)(void *arg, size_t n_done, size_t n),
                                       void *arg, pgd_request **out) PGD_MUST_USE;

// ---- an engine on a thread of its own ----------------------------------------------------------
//
//   any thread   submit, cancel, release  --inbox-->  engine thread: steps while there is work,
//                                                     sleeps while there is none
//   callbacks    on_text, on_delta        <---------  on the engine thread
//
// [any] marks what may be called from any thread, callbacks included unless said otherwise.

typedef struct pgd_async pgd_async;

// Starts the thread. Until destroy the engine belongs to it: of the functions above only
// pgd_request_output and its like may be called, inside callbacks; those marked [any] everywhere.
//   fails  PRECONDITION if the engine has requests, OUT_OF_MEMORY, UNAVAILABLE (no thread)
PGD_API pgd_status pgd_async_create(pgd_engine *engine, pgd_async **out) PGD_MUST_USE;
// Ends what runs with reason "abort" (its callbacks are called), then the thread. The engine, with
// requests that were not released, is the caller's again. Not inside a callback; no other call is
// under way. NULL is fine.
PGD_API void pgd_async_destroy(pgd_async *async);

// [any] Builds the request on the calling thread (tokenizing included) and hands it over. Each
// request gets exactly one callback with `done`; desc->arg must live until then.
//   fails  as pgd_engine_submit; UNAVAILABLE behind pgd_async_drain
PGD_API pgd_status pgd_async_submit(pgd_async *async, const pgd_request_desc *desc,
                                    pgd_request **out) PGD_MUST_USE;
// [any] The request ends with reason "abort" before the next step; nothing if it has ended.
PGD_API void pgd_async_cancel(pgd_async *async, pgd_request *request);
// [any] Gives the handle back, once: the request is cancelled if need be, told so by its last
// callback, and freed. Behind that callback and before the release pgd_request_output may be called
// by the thread that releases it.
PGD_API void pgd_async_release(pgd_async *async, pgd_request *request);
// [any] Refuses further requests from now on and waits until all have ended. Not inside a callback.
//   fails  TIMEOUT (UINT64_MAX = never)
PGD_API pgd_status pgd_async_drain(pgd_async *async, uint64_t timeout_ns) PGD_MUST_USE;
// [any] As they were behind the latest step; each number for itself is right.
PGD_API void pgd_async_get_stats(const pgd_async *async, pgd_engine_stats *out);
// [any] How long the step under way has been running, 0 = none is: for watchdogs.
PGD_API uint64_t pgd_async_step_ns(const pgd_async *async);
// [any] Runs fn on the engine thread between two steps, waits for it and returns what it returns,
// its sentence included. Not inside a callback.
//   fails  PRECONDITION on the engine thread
PGD_API pgd_status pgd_async_call(pgd_async *async, pgd_status (*fn)(void *arg, pgd_engine *engine),
                                  void *arg) PGD_MUST_USE;

// ---- text --------------------------------------------------------------------------------------

// [any] Renders the model's chat template. messages: a JSON array of {"role", "content", ...};
// tools: a JSON array or NULL. *out is NUL-terminated, freed with pgd_free.
//   fails  NOT_FOUND if the model has no template, INVALID with the template's or the JSON's reason
PGD_API pgd_status pgd_engine_chat_prompt(const pgd_engine *engine, const char *messages,
                                          const char *tools, char **out) PGD_MUST_USE;
// [any] Text to token ids. text_len 0 = up to NUL; no_special as in pgd_request_desc. *out [*out_n]
// is freed with pgd_free.
//   fails  NOT_FOUND if the model has no tokenizer
PGD_API pgd_status pgd_engine_encode(const pgd_engine *engine, const char *text, size_t text_len,
                                     uint32_t no_special, int32_t **out,
                                     int32_t *out_n) PGD_MUST_USE;
// [any] Token ids to text; keep_special as in pgd_request_desc. *out is NUL-terminated, freed with
// pgd_free; an incomplete character is U+FFFD.
//   fails  NOT_FOUND if the model has no tokenizer
PGD_API pgd_status pgd_engine_decode(const pgd_engine *engine, const int32_t *ids, size_t n,
                                     uint32_t keep_special, char **out) PGD_MUST_USE;
// [any] The sampling values of the model's generation_config.json, into a zeroed or partly set
// desc: temperature, top_p, top_k, min_p, repetition_penalty where the file gives them.
PGD_API void pgd_engine_defaults(const pgd_engine *engine, pgd_request_desc *desc);
PGD_API void pgd_free(void *ptr);

#ifdef __cplusplus
}
#endif
#endif
