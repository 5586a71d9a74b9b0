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
    const char *kv_cache_dtype;     // NULL or "auto" = the device's; "f32", "bf16", "f16"
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
    uint32_t reserved1;
    const char *cache; // folder; NULL = XDG_CACHE_HOME/pagoda, or HOME/.cache/pagoda
    // Weights as the device lays them out, kept in the cache for the next start. NULL or "auto": of
    // models of 64 MiB and more, 20 GiB in all; "off"; or bytes ("4GiB"): of all models, so many.
    const char *weight_cache;
    uint32_t no_deterministic; // 1: results may depend on what else is in the batch, if faster
    uint32_t reserved2;
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
    const char *device;       // "cpu:0"
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

// Strings live as long as the engine.
PGD_API void pgd_engine_get_info(const pgd_engine *engine, pgd_engine_info *out);

// ---- requests ----------------------------------------------------------------------------------

// New text of a request, complete UTF-8, not NUL-terminated; `len` 0 and `done` 1 at its end.
typedef void (*pgd_text_fn)(void *arg, pgd_request *request, const char *text, size_t len,
                            int32_t done);

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
    uint64_t queued_ns; // from submit to the first step
    uint64_t first_ns;  // from submit to the first token
    uint64_t total_ns;  // from submit to the end, or until now
    int32_t n_cached;   // prompt tokens read from the prefix cache
    uint32_t reserved0;
} pgd_output;

// Pointers live until the next step or the release of the request.
PGD_API void pgd_request_output(const pgd_request *request, pgd_output *out);
// The logits [vocab_size] f32 behind the request's latest token; NULL without keep_logits.
PGD_API const float *pgd_request_logits(const pgd_request *request);

// One step: plans, runs, hands out tokens. Nothing to do is PGD_OK.
//   fails  with what the device answered; the requests of that step end with reason "error", the
//          others go on
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

// ---- text --------------------------------------------------------------------------------------

// Renders the model's chat template. messages: a JSON array of {"role", "content", ...}; tools: a
// JSON array or NULL. *out is NUL-terminated, freed with pgd_free.
//   fails  NOT_FOUND if the model has no template, INVALID with the template's or the JSON's reason
PGD_API pgd_status pgd_engine_chat_prompt(const pgd_engine *engine, const char *messages,
                                          const char *tools, char **out) PGD_MUST_USE;
// The sampling values of the model's generation_config.json, into a zeroed or partly set desc:
// temperature, top_p, top_k, min_p where the file gives them.
PGD_API void pgd_engine_defaults(const pgd_engine *engine, pgd_request_desc *desc);
PGD_API void pgd_free(void *ptr);

#ifdef __cplusplus
}
#endif
#endif
