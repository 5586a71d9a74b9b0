// Limits and memory: what the engine will run with, decided before anything is loaded.
//
//   budget = --memory (default 90 % of what is free on the device)
//   | weights | activations | scratch | batch | KV cache: as many blocks as fit |
#include "engine/inner.h"

#include <string.h>

#include "base/fail.h"
#include "base/mem.h"

#define DEFAULT_BLOCK_SIZE     16
#define DEFAULT_SEQS           128
#define DEFAULT_BATCHED_TOKENS 2048
#define DEFAULT_LOGPROBS       20
#define MAX_LOGPROBS           1024
#define SCORED_ROWS            64 // output rows for prompt positions, beside one a sequence
#define MAX_BLOCKS             (1 << 24)

static pgd_status check_range(const char *key, int32_t value, int32_t low, int32_t high) {
    if (value < low || value > high) {
        return pgd_fail(PGD_OUT_OF_RANGE, "%s is %d; %d to %d is allowed", key, value, low, high);
    }
    return PGD_OK;
}

static int32_t or_default(int32_t value, int32_t standard) {
    return value != 0 ? value : standard;
}

static pgd_status read_kv_dtype(const char *text, int32_t *out) {
    *out = PGD_DTYPE_NONE;
    if (text == NULL || strcmp(text, "auto") == 0) {
        return PGD_OK;
    }
    static const int32_t known[] = {PGD_F32, PGD_BF16, PGD_F16, PGD_I8};
    for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++) {
        if (strcmp(text, pgd_dtype_name(known[i])) == 0) {
            *out = known[i];
            return PGD_OK;
        }
    }
    return pgd_fail(PGD_INVALID, "kv-cache-dtype is \"%s\"; auto, f32, bf16, f16, int8 are allowed",
                    text);
}

static pgd_status read_policy(const char *text, int32_t *out) {
    *out = PGD_SCHED_FCFS;
    if (text == NULL || strcmp(text, "fcfs") == 0) {
        return PGD_OK;
    }
    if (strcmp(text, "priority") == 0) {
        *out = PGD_SCHED_PRIORITY;
        return PGD_OK;
    }
    return pgd_fail(PGD_INVALID, "scheduling-policy is \"%s\"; fcfs, priority are allowed", text);
}

// The longest sequence the model is meant for; dynamic NTK is made to go beyond its positions.
static int32_t longest_of(const pgd_load_config *c) {
    if (c->rope.kind != PGD_ROPE_DYNAMIC || c->rope.factor <= 1.0) {
        return c->max_position;
    }
    double longest = (double)c->max_position * c->rope.factor;
    return longest < PGD_LOAD_MAX_POSITION ? (int32_t)longest : PGD_LOAD_MAX_POSITION;
}

static pgd_status read_ahead(const char *text, int32_t *out) {
    static const char *const names[] = {"auto", "on", "off"}; // ENGINE_AHEAD_...
    for (int32_t i = 0; i < 3; i++) {
        if (strcmp(text != NULL ? text : "auto", names[i]) == 0) {
            *out = i;
            return PGD_OK;
        }
    }
    return pgd_fail(PGD_INVALID, "async-scheduling is \"%s\"; auto, on, off are allowed", text);
}

static pgd_status read_limits(pgd_engine *e, const pgd_engine_options *o) {
    engine_limits *l = &e->limits;
    l->block_size = or_default(o->block_size, DEFAULT_BLOCK_SIZE);
    l->max_num_seqs = or_default(o->max_num_seqs, DEFAULT_SEQS);
    int32_t tokens = DEFAULT_BATCHED_TOKENS;
    if (tokens < l->max_num_seqs) {
        tokens = l->max_num_seqs;
    }
    l->max_num_batched_tokens = or_default(o->max_num_batched_tokens, tokens);
    l->max_model_len = or_default(o->max_model_len, e->config->max_position);
    l->long_prefill_token_threshold = o->long_prefill_token_threshold;
    l->num_blocks = o->num_blocks;
    l->keep_logits = o->keep_logits != 0;
    l->max_logprobs =
        o->max_logprobs < 0 ? e->config->vocab : or_default(o->max_logprobs, DEFAULT_LOGPROBS);
    l->max_scored =
        SCORED_ROWS < l->max_num_batched_tokens ? SCORED_ROWS : l->max_num_batched_tokens;
    l->no_prefix_caching = o->no_prefix_caching != 0;
    l->no_chunked_prefill = o->no_chunked_prefill != 0;
    l->no_reserve_full_prompt = o->no_reserve_full_prompt != 0;
    l->watermark = o->watermark;
    PGD_TRY(check_range("block-size", l->block_size, 1, 1024));
    PGD_TRY(check_range("max-num-seqs", l->max_num_seqs, 1, 65536));
    PGD_TRY(
        check_range("max-num-batched-tokens", l->max_num_batched_tokens, l->max_num_seqs, 1 << 20));
    PGD_TRY(check_range("max-model-len", l->max_model_len, 2, longest_of(e->config)));
    PGD_TRY(check_range("max-stall-ms", o->max_stall_ms, 0, 3600000));
    if (o->max_stall_ms > 0 && l->no_chunked_prefill) {
        return pgd_fail(PGD_INVALID,
                        "max-stall-ms is %d; it needs prompts that may be cut "
                        "(enable-chunked-prefill)",
                        o->max_stall_ms);
    }
    e->pace.bound_ns = (uint64_t)o->max_stall_ms * UINT64_C(1000000);
    e->pace.least_tokens = l->block_size;
    PGD_TRY(check_range("max-logprobs", o->max_logprobs, -1, MAX_LOGPROBS));
    if (l->max_logprobs > e->config->vocab) {
        l->max_logprobs = e->config->vocab;
    }
    if (o->num_blocks != 0) {
        PGD_TRY(check_range("num-blocks", o->num_blocks, 2, MAX_BLOCKS));
    }
    pgd_model_group_layers(e->config, l->max_model_len, &l->groups);
    PGD_TRY(read_policy(o->scheduling_policy, &l->policy));
    PGD_TRY(read_ahead(o->async_scheduling, &l->ahead));
    return read_kv_dtype(o->kv_cache_dtype, &l->kv_dtype);
}

// "4GiB" or "50%" of what is free.
static pgd_status read_budget(const char *text, uint64_t n_free, uint64_t *out) {
    pgd_str s = pgd_str_of(text != NULL ? text : "90%");
    double share = 0.0;
    uint64_t bytes = 0;
    if (pgd_str_ends(s, PGD_STR("%"))) {
        pgd_str number = {s.ptr, s.len - 1};
        if (pgd_str_to_f64(number, &share) && share > 0.0 && share <= 100.0) {
            *out = (uint64_t)((double)n_free * (share / 100.0));
            return PGD_OK;
        }
    } else if (pgd_str_to_bytes(s, &bytes) && bytes > 0) {
        *out = bytes;
        return PGD_OK;
    }
    return pgd_fail(PGD_INVALID,
                    "memory is \"%s\"; bytes (4GiB, 500MB) or a share (1%% to 100%%) are allowed",
                    text);
}

pgd_model_desc pgd_engine_model_desc(const pgd_engine *e, const pgd_load_plan *plan) {
    return (pgd_model_desc){
        .dev = e->dev,
        .config = e->config,
        .plan = plan,
        .max_tokens = e->limits.max_num_batched_tokens,
        .max_seqs = e->limits.max_num_seqs,
        .max_out = e->limits.max_num_seqs + e->limits.max_scored,
        .max_logprobs = e->limits.max_logprobs,
        .max_model_len = e->limits.max_model_len,
        .groups = e->limits.groups,
        .block_tokens = e->limits.block_size,
        .kv_dtype = e->limits.kv_dtype,
        .keep_logits = e->limits.keep_logits,
        .store = e->store.folder != NULL && plan->weight_bytes >= e->store_least ? &e->store : NULL,
    };
}

static int32_t blocks_of(int32_t n_tokens, int32_t block_size) {
    return (n_tokens + block_size - 1) / block_size;
}

pgd_dev_batch_desc pgd_engine_batch_desc(const pgd_engine *e) {
    const engine_limits *l = &e->limits;
    return (pgd_dev_batch_desc){
        .cap_tokens = l->max_num_batched_tokens,
        .cap_seqs = l->max_num_seqs,
        .cap_kv = l->max_model_len,
        .cap_blocks = blocks_of(l->max_model_len, l->block_size),
        .n_groups = l->groups.n,
        .cap_out = l->max_num_seqs + l->max_scored,
        .cap_bias = l->max_num_seqs * PGD_SAMPLE_ROW_BIAS,
        .vocab = e->config->vocab,
        .n_ahead = e->runs_ahead,
    };
}

pgd_kv_cache_config pgd_engine_cache_config(const pgd_engine *e) {
    const engine_limits *l = &e->limits;
    pgd_kv_cache_config c = {
        .num_blocks = l->num_blocks,
        .block_size = l->block_size,
        .n_groups = l->groups.n,
        .no_prefix_caching = l->no_prefix_caching,
        .max_num_batched_tokens = l->max_num_batched_tokens,
        .max_model_len = l->max_model_len,
    };
    memcpy(c.windows, l->groups.windows, (size_t)l->groups.n * sizeof(c.windows[0]));
    return c;
}

static pgd_status refuse(const pgd_engine *e, uint64_t budget, uint64_t fixed, uint64_t kv) {
    return pgd_fail(PGD_OUT_OF_MEMORY,
                    "the model does not fit on %s: weights %llu, activations %llu, scratch %llu, "
                    "KV cache at least %llu, together %llu bytes; %llu are allowed (memory)",
                    pgd_dev_uri(e->dev), (unsigned long long)e->needs.weight_bytes,
                    (unsigned long long)e->needs.activation_bytes,
                    (unsigned long long)e->needs.scratch_bytes, (unsigned long long)kv,
                    (unsigned long long)(fixed + kv), (unsigned long long)budget);
}

// The longest sequence, at most `most`, that so many blocks hold.
static int32_t longest_in(const pgd_kv_cache_config *cache, int64_t n_blocks, int32_t most) {
    int32_t low = 0;
    int32_t high = most;
    while (low < high) {
        int32_t middle = high - (high - low) / 2;
        if (pgd_kv_cache_would_need(cache, middle) <= n_blocks) {
            low = middle;
        } else {
            high = middle - 1;
        }
    }
    return low;
}

// Blocks and length: what fits, what is useful, what was asked for.
static pgd_status settle_kv(pgd_engine *e, const pgd_engine_options *o, uint64_t budget,
                            uint64_t fixed) {
    engine_limits *l = &e->limits;
    uint64_t block = e->needs.kv_block_bytes;
    uint64_t room = budget > fixed ? budget - fixed : 0;
    uint64_t fit = block > 0 ? room / block : MAX_BLOCKS;
    if (fixed >= budget || fit < 2) {
        return refuse(e, budget, fixed, 2 * block);
    }
    if (o->num_blocks != 0 && (uint64_t)o->num_blocks > fit) {
        return pgd_fail(PGD_OUT_OF_RANGE,
                        "num-blocks is %d (%llu bytes a block); 2 to %llu fit into the memory left",
                        o->num_blocks, (unsigned long long)block, (unsigned long long)fit);
    }
    const pgd_kv_cache_config cache = pgd_engine_cache_config(e);
    if (o->num_blocks == 0) {
        uint64_t useful = (uint64_t)l->max_num_seqs *
                              (uint64_t)pgd_kv_cache_would_need(&cache, l->max_model_len) +
                          1;
        uint64_t n = fit < useful ? fit : useful;
        l->num_blocks = n < MAX_BLOCKS ? (int32_t)n : MAX_BLOCKS;
    }
    int32_t longest = longest_in(&cache, l->num_blocks - 1, l->max_model_len);
    if (longest < l->max_model_len) {
        if (o->max_model_len != 0) {
            return pgd_fail(PGD_OUT_OF_RANGE,
                            "max-model-len is %d; with %d blocks of %d tokens 2 to %d is allowed",
                            l->max_model_len, l->num_blocks, l->block_size, longest);
        }
        l->max_model_len = longest;
        return check_range("max-model-len (clipped to the KV cache)", l->max_model_len, 2,
                           e->config->max_position);
    }
    return PGD_OK;
}

// Every device takes tokens that it has drawn itself; it gains where it works beside the CPU. One
// whose memory the CPU shares computes in the call, and so does an operation that runs on the host.
static int32_t pays_ahead(const pgd_engine *e) {
    const int32_t shared = (pgd_dev_info(e->dev)->caps & PGD_CAP_HOST_VISIBLE) != 0;
    return e->limits.ahead == ENGINE_AHEAD_ON ||
           (e->limits.ahead == ENGINE_AHEAD_AUTO && !shared && !e->names.allow_slow);
}

// What the model needs on the device, and what it may have. *out_fixed: all but the KV cache.
static pgd_status sum_needs(pgd_engine *e, const char *memory, const pgd_load_plan *plan,
                            uint64_t *out_fixed) {
    const pgd_model_desc desc = pgd_engine_model_desc(e, plan);
    e->runs_ahead = pays_ahead(e);
    PGD_TRY(pgd_model_plan(&desc, &e->needs));
    PGD_TRY(e->d->device->memory(e->d, &e->free_bytes, &e->total_bytes));
    PGD_TRY(read_budget(memory, e->free_bytes, &e->budget_bytes));
    const pgd_dev_batch_desc batch = pgd_engine_batch_desc(e);
    e->batch_bytes = pgd_dev_batch_bytes(&batch);
    *out_fixed = e->needs.weight_bytes + e->needs.activation_bytes + e->needs.scratch_bytes +
                 e->needs.kv_fixed_bytes + e->batch_bytes;
    return PGD_OK;
}

pgd_status pgd_engine_plan(pgd_engine *e, const pgd_engine_options *o, const pgd_load_plan *plan) {
    uint64_t fixed = 0;
    PGD_TRY(read_limits(e, o));
    PGD_TRY(sum_needs(e, o->memory, plan, &fixed));
    return settle_kv(e, o, e->budget_bytes, fixed);
}

pgd_status pgd_engine_plan_again(pgd_engine *e, const pgd_load_plan *plan) {
    uint64_t fixed = 0;
    uint64_t kv = 0;
    PGD_TRY(sum_needs(e, e->names.memory, plan, &fixed));
    if (!pgd_size_mul(e->needs.kv_block_bytes, (uint64_t)e->limits.num_blocks, &kv) ||
        kv > e->budget_bytes || fixed > e->budget_bytes - kv) {
        return refuse(e, e->budget_bytes, fixed, kv);
    }
    return PGD_OK;
}
