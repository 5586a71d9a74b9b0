// See common.h.
#include "cli/common.h"

#include <stdio.h>
#include <string.h>

#include "base/fail.h"
#include "base/json.h"
#include "engine/report.h"

cli_engine_values cli_engine = {
    .enable_prefix_caching = 1,
    .enable_chunked_prefill = 1,
    .reserve_full_prompt = 1,
    .deterministic = 1,
};
cli_sampling_values cli_sampling = {.temperature = -1.0,
                                    .top_p = -1.0,
                                    .min_p = -1.0,
                                    .top_k = -1,
                                    .logprobs = CLI_NO_LOGPROBS,
                                    .repetition = -1.0};

#define I32_MAX 2147483647.0

const cli_flag cli_engine_flags[] = {
    CLI_FLAG_TEXT(0, "device", "NAME", &cli_engine.device,
                  "cpu, null{step_us=5}, trace(cpu) ... (default auto)"),
    CLI_FLAG_TEXT(0, "standby", "NAME", &cli_engine.standby,
                  "where requests go on when the device is lost and does not come back"),
    CLI_FLAG_INT(0, "step-timeout-ms", "N", &cli_engine.step_timeout_ms, 1, I32_MAX,
                 "longest wait for a step, then the device is lost (default 600000)"),
    CLI_FLAG_LIST(0, "plugin", "PATH", &cli_engine.plugins,
                  "one more plugin file; may be repeated"),
    CLI_FLAG_TEXT(0, "memory", "SIZE", &cli_engine.memory,
                  "memory to use: 4GiB or 50% (default 90% of what is free)"),
    CLI_FLAG_INT(0, "num-blocks", "N", &cli_engine.num_blocks, 2, 16777216,
                 "blocks of the KV cache (default: what memory allows)"),
    CLI_FLAG_INT(0, "block-size", "N", &cli_engine.block_size, 1, 1024,
                 "tokens of a block (default 16)"),
    CLI_FLAG_INT(0, "max-model-len", "N", &cli_engine.max_model_len, 2, I32_MAX,
                 "longest prompt and answer (default: the model's own)"),
    CLI_FLAG_INT(0, "max-num-seqs", "N", &cli_engine.max_num_seqs, 1, 65536, "sequences in a step"),
    CLI_FLAG_INT(0, "max-num-batched-tokens", "N", &cli_engine.max_num_batched_tokens, 1, 1048576,
                 "rows of a step (default 2048)"),
    CLI_FLAG_INT(0, "long-prefill-token-threshold", "N", &cli_engine.long_prefill_token_threshold,
                 0, I32_MAX, "most rows of one prompt in a step (default: no limit)"),
    CLI_FLAG_INT(0, "max-logprobs", "N", &cli_engine.max_logprobs, -1, 1024,
                 "most log probabilities a token may ask for (default 20), -1 = the vocabulary"),
    CLI_FLAG_INT(0, "max-stall-ms", "MS", &cli_engine.max_stall_ms, 1, 3600000,
                 "prompts of others may hold a running answer so long (default: no bound)"),
    CLI_FLAG_BOOL(0, "enable-prefix-caching", &cli_engine.enable_prefix_caching,
                  "equal prompts are computed once (default true)"),
    CLI_FLAG_BOOL(0, "enable-chunked-prefill", &cli_engine.enable_chunked_prefill,
                  "prompts may be cut (default true)"),
    CLI_FLAG_TEXT(0, "scheduling-policy", "NAME", &cli_engine.scheduling_policy,
                  "fcfs or priority (default fcfs)"),
    CLI_FLAG_TEXT(0, "async-scheduling", "NAME", &cli_engine.async_scheduling,
                  "on, off: a step is sent before the last one's tokens are seen (default auto)"),
    CLI_FLAG_REAL(0, "watermark", "SHARE", &cli_engine.watermark, 0, 1,
                  "blocks that admission leaves free (default 0)"),
    CLI_FLAG_BOOL(0, "reserve-full-prompt", &cli_engine.reserve_full_prompt,
                  "a prompt starts when all of it fits (default true)"),
    CLI_FLAG_TEXT(0, "kv-cache-dtype", "TYPE", &cli_engine.kv_cache_dtype,
                  "auto, f32, bf16, f16, int8 (default auto: the device's)"),
    CLI_FLAG_TEXT(0, "quant", "TYPE", &cli_engine.quant,
                  "quantize the weights while loading: q8_0, q4_0, q4_k, int8 ... (default none)"),
    CLI_FLAG_INT(0, "threads", "N", &cli_engine.threads, 1, 1024,
                 "threads of the CPU (default: one per core)"),
    CLI_FLAG_SWITCH(0, "allow-slow", &cli_engine.allow_slow,
                    "operations the device lacks may run on the host"),
    CLI_FLAG(CLI_BOOL, 0, "deterministic", "on|off", &cli_engine.deterministic, 0, 0,
             "off: results may depend on the batch where that is faster (default on)"),
    CLI_FLAG_TEXT(0, "cache", "DIR", &cli_engine.cache,
                  "folder of the cache (default XDG_CACHE_HOME/pagoda or ~/.cache/pagoda)"),
    CLI_FLAG_TEXT(0, "weight-cache", "SIZE", &cli_engine.weight_cache,
                  "packed weights kept for the next start: auto (20GiB), off, or bytes"),
    {0},
};

const cli_flag cli_sampling_flags[] = {
    CLI_FLAG_INT('n', "max-tokens", "N", &cli_sampling.max_tokens, 1, I32_MAX,
                 "most tokens to generate"),
    CLI_FLAG_INT(0, "min-tokens", "N", &cli_sampling.min_tokens, 0, I32_MAX,
                 "tokens before a stop token counts"),
    CLI_FLAG_REAL('t', "temperature", "T", &cli_sampling.temperature, 0, 100,
                  "0 is greedy (default: the model's)"),
    CLI_FLAG_INT(0, "top-k", "K", &cli_sampling.top_k, 0, I32_MAX,
                 "sample among the K likeliest, 0 = all"),
    CLI_FLAG_REAL(0, "top-p", "P", &cli_sampling.top_p, 0, 1,
                  "sample among the likeliest that make up P"),
    CLI_FLAG_REAL(0, "min-p", "P", &cli_sampling.min_p, 0, 1,
                  "drop what is less likely than P times the best"),
    CLI_FLAG_REAL(0, "repetition-penalty", "R", &cli_sampling.repetition, 0, 100,
                  "above 1: tokens of prompt and answer get less likely (default: the model's)"),
    CLI_FLAG_REAL(0, "presence-penalty", "P", &cli_sampling.presence, -2, 2,
                  "taken off the logits of tokens the answer has"),
    CLI_FLAG_REAL(0, "frequency-penalty", "F", &cli_sampling.frequency, -2, 2,
                  "the same for each time it has them"),
    CLI_FLAG_LIST(0, "stop", "TEXT", &cli_sampling.stop,
                  "a text that ends the answer; may be repeated"),
    CLI_FLAG_SWITCH(0, "include-stop", &cli_sampling.include_stop,
                    "the answer ends behind what stopped it, not before"),
    CLI_FLAG_LIST(0, "bad-word", "TEXT", &cli_sampling.bad_words,
                  "a text that is never generated; may be repeated"),
    CLI_FLAG_SWITCH(0, "keep-special", &cli_sampling.keep_special,
                    "show special tokens in the text"),
    CLI_FLAG_INT(0, "answers", "N", &cli_sampling.n, 1, 128, "answers to a prompt (default 1)"),
    CLI_FLAG_INT(0, "logprobs", "N", &cli_sampling.logprobs, -1, 1024,
                 "with --json: log probabilities of the tokens and of the N likeliest, -1 = all"),
    CLI_FLAG_U64(0, "seed", "N", &cli_sampling.seed,
                 "equal seeds give equal texts (default: random)"),
    CLI_FLAG_SWITCH(0, "ignore-eos", &cli_sampling.ignore_eos,
                    "the model's end token does not stop it"),
    {0},
};

pgd_engine_options cli_engine_options(const char *model, int32_t max_num_seqs) {
    const cli_engine_values *v = &cli_engine;
    return (pgd_engine_options){
        .size = sizeof(pgd_engine_options),
        .threads = v->threads,
        .model = model,
        .device = v->device,
        .plugins = v->plugins.items,
        .n_plugins = v->plugins.n,
        .allow_slow = (uint32_t)v->allow_slow,
        .kv_cache_dtype = v->kv_cache_dtype,
        .memory = v->memory,
        .num_blocks = v->num_blocks,
        .block_size = v->block_size,
        .max_model_len = v->max_model_len,
        .max_num_seqs = v->max_num_seqs != 0 ? v->max_num_seqs : max_num_seqs,
        .max_logprobs = v->max_logprobs,
        .max_num_batched_tokens = v->max_num_batched_tokens,
        .long_prefill_token_threshold = v->long_prefill_token_threshold,
        .max_stall_ms = v->max_stall_ms,
        .scheduling_policy = v->scheduling_policy,
        .watermark = v->watermark,
        .no_prefix_caching = !v->enable_prefix_caching,
        .no_chunked_prefill = !v->enable_chunked_prefill,
        .no_reserve_full_prompt = !v->reserve_full_prompt,
        .cache = v->cache,
        .weight_cache = v->weight_cache,
        .no_deterministic = !v->deterministic,
        .step_timeout_ms = (uint32_t)v->step_timeout_ms,
        .standby = v->standby,
        .async_scheduling = v->async_scheduling,
        .quant = v->quant,
        .progress = cli_load_progress.fn,
    };
}

pgd_status cli_open_engine(const char *model, int32_t max_num_seqs, pgd_engine **out) {
    const pgd_engine_options options = cli_engine_options(model, max_num_seqs);
    pgd_status status = pgd_engine_create(&options, out);
    cli_progress_end();
    if (status == PGD_OK && pgd_engine_report_choice(*out)[0] != '\0') {
        fprintf(stderr, "pagoda: %s\n", pgd_engine_report_choice(*out));
    }
    return status;
}

void cli_set_sampling(const pgd_engine *engine, int32_t max_tokens, pgd_request_desc *desc) {
    const cli_sampling_values *v = &cli_sampling;
    pgd_engine_defaults(engine, desc);
    desc->max_tokens = v->max_tokens != 0 ? v->max_tokens : max_tokens;
    desc->min_tokens = v->min_tokens;
    desc->ignore_eos = (uint32_t)v->ignore_eos;
    if (v->temperature >= 0.0) {
        desc->temperature = (float)v->temperature;
    }
    if (v->top_p >= 0.0) {
        desc->top_p = (float)v->top_p;
    }
    if (v->min_p >= 0.0) {
        desc->min_p = (float)v->min_p;
    }
    if (v->top_k >= 0) {
        desc->top_k = v->top_k;
    }
    if (v->repetition >= 0.0) {
        desc->repetition_penalty = (float)v->repetition;
    }
    desc->presence_penalty = (float)v->presence;
    desc->frequency_penalty = (float)v->frequency;
    desc->stop = v->stop.items;
    desc->n_stop = v->stop.n;
    desc->include_stop = (uint32_t)v->include_stop;
    desc->bad_words = v->bad_words.items;
    desc->n_bad_words = v->bad_words.n;
    desc->keep_special = (uint32_t)v->keep_special;
    desc->n = v->n;
    desc->has_logprobs = v->logprobs != CLI_NO_LOGPROBS;
    desc->n_logprobs = desc->has_logprobs ? v->logprobs : 0;
    desc->has_seed = (uint32_t)v->seed.given;
    desc->seed = v->seed.value;
}

pgd_status cli_add_message(pgd_text *t, const char *role, pgd_str content) {
    PGD_TRY(pgd_text_format(
        t, "%s{\"role\":\"%s\",\"content\":", t->ptr[t->len - 1] == '[' ? "" : ",", role));
    PGD_TRY(pgd_json_add_str(t, content));
    return pgd_text_format(t, "}");
}

double cli_rate_of(const pgd_output *o) {
    double seconds = (double)(o->total_ns - o->first_ns) / 1e9;
    return o->n_ids > 1 && seconds > 0.0 ? (double)(o->n_ids - 1) / seconds : 0.0;
}
