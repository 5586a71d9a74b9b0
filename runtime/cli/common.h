// What several commands share: engine and sampling flags, progress bars, reading of input.
#ifndef PGD_CLI_COMMON_H
#define PGD_CLI_COMMON_H

#include <pagoda/pagoda.h>

#include "base/str.h"
#include "cli/flags.h"
#include "load/name.h"

typedef struct cli_engine_values {
    const char *device;
    const char *standby;
    const char *memory;
    const char *kv_cache_dtype;
    const char *quant;
    cli_list plugins;
    int32_t num_blocks;
    int32_t block_size;
    int32_t max_model_len;
    int32_t max_num_seqs;
    int32_t max_logprobs;
    int32_t max_num_batched_tokens;
    int32_t long_prefill_token_threshold;
    int32_t max_stall_ms;
    const char *async_scheduling;
    int32_t threads;
    int32_t allow_slow;
    int32_t enable_prefix_caching;
    int32_t enable_chunked_prefill;
    int32_t reserve_full_prompt;
    double watermark;
    const char *scheduling_policy;
    const char *cache;
    const char *weight_cache;
    int32_t deterministic;
    int32_t step_timeout_ms;
} cli_engine_values;

#define CLI_NO_LOGPROBS INT32_MIN

typedef struct cli_sampling_values {
    double temperature; // below 0: not given
    double top_p;
    double min_p;
    int32_t top_k;
    int32_t max_tokens; // 0: not given
    int32_t min_tokens;
    int32_t ignore_eos;
    int32_t n;         // answers, 0: not given
    int32_t logprobs;  // CLI_NO_LOGPROBS: not given; -1 = the whole vocabulary
    double repetition; // below 0: not given
    double presence;
    double frequency;
    cli_list stop;
    cli_list bad_words;
    int32_t include_stop;
    int32_t keep_special;
    cli_u64 seed;
} cli_sampling_values;

extern cli_engine_values cli_engine;
extern cli_sampling_values cli_sampling;
extern const cli_flag cli_engine_flags[];
extern const cli_flag cli_sampling_flags[];

// The options that the flags describe. max_num_seqs: when no flag says so.
pgd_engine_options cli_engine_options(const char *model, int32_t max_num_seqs);
// Opens the engine the flags describe, with a progress bar. max_num_seqs: when no flag says so.
pgd_status cli_open_engine(const char *model, int32_t max_num_seqs, pgd_engine **out) PGD_MUST_USE;

// The model's defaults, then the flags, into a request.
void cli_set_sampling(const pgd_engine *engine, int32_t max_tokens, pgd_request_desc *desc);

// Appends {"role":..., "content":...} to a text that holds the beginning of a JSON array.
pgd_status cli_add_message(pgd_text *t, const char *role, pgd_str content) PGD_MUST_USE;
// Tokens a second behind the first one.
double cli_rate_of(const pgd_output *o);

// A file, or stdin for "-".
pgd_status cli_read_input(const char *path, pgd_text *out) PGD_MUST_USE;

// A bar on a terminal's stderr, nothing elsewhere. done == total ends it.
void cli_progress(const char *what, uint64_t done, uint64_t total, const char *unit);
// Takes away a bar that did not come to its end.
void cli_progress_end(void);
// The same for opening a model; downloads are also told of in lines where there is no terminal.
extern const pgd_load_progress cli_load_progress;

#endif
