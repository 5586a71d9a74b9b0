// Keys of the simulation, which are the engine's: each a key of --config, an environment variable
// and a flag. See simulate.h.
#include <stdio.h>
#include <string.h>

#include "base/fail.h"
#include "base/json.h"
#include "cli/config_file.h"
#include "cli/simulate.h"

#define MAX_TOKENS 1073741824

typedef struct sim_values {
    int32_t block_size;
    int32_t num_blocks;
    int32_t max_num_batched_tokens;
    int32_t max_num_seqs;
    int32_t max_model_len;
    int32_t enable_chunked_prefill;
    int32_t enable_prefix_caching;
    int32_t long_prefill_token_threshold;
    int32_t reserve_full_prompt;
    int32_t eos_token_id;   // -1 = none
    int32_t sliding_window; // 0 = none
    int32_t summary_only;
    int32_t json;
    double watermark;
    const char *scheduling_policy;
    const char *kv_groups; // JSON text, NULL = none
    const char *tables;
    const char *trace;
} sim_values;

static sim_values values = {
    .block_size = 16,
    .num_blocks = 1024,
    .max_num_batched_tokens = 2048,
    .max_num_seqs = 128,
    .max_model_len = 8192,
    .enable_chunked_prefill = 1,
    .enable_prefix_caching = 1,
    .reserve_full_prompt = 1,
    .eos_token_id = -1,
    .scheduling_policy = "fcfs",
    .tables = "all",
};

const cli_flag cli_sim_file_flags[] = {
    CLI_FLAG_TEXT(0, "trace", "FILE", &values.trace, "JSON Lines of events, - for stdin"),
    CLI_FLAG_TEXT(0, "tables", "WHICH", &values.tables,
                  "tables and counts in each line: none, changed, all (default all)"),
    CLI_FLAG_SWITCH(0, "summary-only", &values.summary_only, "only the last line"),
    CLI_FLAG_SWITCH(0, "json", &values.json, "the output is JSON Lines in any case"),
    {0},
};

const cli_flag cli_sim_config_flags[] = {
    CLI_FLAG_INT(0, "block-size", "N", &values.block_size, 1, 1048576,
                 "tokens of a block (default 16)"),
    CLI_FLAG_INT(0, "num-blocks", "N", &values.num_blocks, 2, 16777216,
                 "blocks, the null block included (default 1024)"),
    CLI_FLAG_INT(0, "max-num-batched-tokens", "N", &values.max_num_batched_tokens, 1, MAX_TOKENS,
                 "rows of a step (default 2048)"),
    CLI_FLAG_INT(0, "max-num-seqs", "N", &values.max_num_seqs, 1, 1048576,
                 "sequences in a step (default 128)"),
    CLI_FLAG_INT(0, "max-model-len", "N", &values.max_model_len, 2, MAX_TOKENS,
                 "longest prompt and answer (default 8192)"),
    CLI_FLAG_TEXT(0, "scheduling-policy", "NAME", &values.scheduling_policy,
                  "fcfs or priority (default fcfs)"),
    CLI_FLAG_BOOL(0, "enable-chunked-prefill", &values.enable_chunked_prefill,
                  "prompts may be cut (default true)"),
    CLI_FLAG_BOOL(0, "enable-prefix-caching", &values.enable_prefix_caching,
                  "equal prompts share blocks (default true)"),
    CLI_FLAG_INT(0, "long-prefill-token-threshold", "N", &values.long_prefill_token_threshold, 0,
                 MAX_TOKENS, "most rows of one prompt in a step (default 0: no limit)"),
    CLI_FLAG_REAL(0, "watermark", "SHARE", &values.watermark, 0, 1,
                  "blocks that admission leaves free (default 0)"),
    CLI_FLAG_BOOL(0, "reserve-full-prompt", &values.reserve_full_prompt,
                  "a prompt starts when all of it fits (default true)"),
    CLI_FLAG_INT(0, "eos-token-id", "ID", &values.eos_token_id, 0, 2147483647,
                 "id that ends an answer (default: none)"),
    CLI_FLAG_INT(0, "sliding-window", "W", &values.sliding_window, 1, MAX_TOKENS,
                 "all layers see W tokens (default: all)"),
    CLI_FLAG_TEXT(0, "kv-groups", "JSON", &values.kv_groups,
                  "[{\"kind\":\"full\"},{\"kind\":\"window\",\"window\":W}, ...]"),
    {0},
};

// ---- the file ----------------------------------------------------------------------------------

static int32_t is_key(pgd_str key, const char *name) {
    size_t n = strlen(name);
    for (size_t i = 0; i < n && i < key.len; i++) {
        char c = name[i] == '-' ? '_' : name[i];
        if (key.ptr[i] != c) {
            return 0;
        }
    }
    return key.len == n;
}

static const cli_flag *find_key(pgd_str key) {
    for (const cli_flag *f = cli_sim_config_flags; f->name != NULL; f++) {
        if (is_key(key, f->name)) {
            return f;
        }
    }
    return NULL;
}

static pgd_status unknown_key(const char *path, pgd_str key) {
    pgd_text known = {0};
    pgd_status status = PGD_OK;
    for (const cli_flag *f = cli_sim_config_flags; f->name != NULL && status == PGD_OK; f++) {
        status = pgd_text_format(&known, "%s%s", known.len > 0 ? ", " : "", f->name);
    }
    for (size_t i = 0; i < known.len; i++) {
        known.ptr[i] = known.ptr[i] == '-' ? '_' : known.ptr[i];
    }
    status = pgd_fail(PGD_INVALID, "%s: unknown key \"%.*s\"; allowed are %s", path,
                      (int)(key.len < 80 ? key.len : 80), key.ptr, known.len > 0 ? known.ptr : "");
    pgd_text_free(&known);
    return status;
}

static pgd_status wrong_value(const char *path, pgd_str key, const cli_flag *f, const pgd_json *v) {
    pgd_text text = {0};
    pgd_status status = pgd_json_add(&text, v);
    const char *shown = status == PGD_OK ? text.ptr : "?";
    const char *nullable = f->target == &values.eos_token_id ||
                                   f->target == &values.sliding_window ||
                                   f->target == &values.kv_groups
                               ? " or null"
                               : "";
    char allowed[96];
    switch (f->kind) {
    case CLI_INT:
        snprintf(allowed, sizeof(allowed), "a whole number from %.0f to %.0f%s is", f->low, f->high,
                 nullable);
        break;
    case CLI_REAL:
        snprintf(allowed, sizeof(allowed), "a number from %g to %g is", f->low, f->high);
        break;
    case CLI_BOOL: snprintf(allowed, sizeof(allowed), "true, false are"); break;
    default: snprintf(allowed, sizeof(allowed), "\"fcfs\", \"priority\" are"); break;
    }
    status = pgd_fail(PGD_INVALID, "%s: %.*s is %.200s; %s allowed", path, (int)key.len, key.ptr,
                      shown, allowed);
    pgd_text_free(&text);
    return status;
}

static int32_t set_key(const cli_flag *f, const pgd_json *v) {
    int64_t i = 0;
    double r = 0.0;
    switch (f->kind) {
    case CLI_INT:
        if (v->kind == PGD_JSON_NULL &&
            (f->target == &values.eos_token_id || f->target == &values.sliding_window)) {
            *(int32_t *)f->target = f->target == &values.eos_token_id ? -1 : 0;
            return 1;
        }
        if (!pgd_json_to_i64(v, &i) || (double)i < f->low || (double)i > f->high) {
            return 0;
        }
        *(int32_t *)f->target = (int32_t)i;
        return 1;
    case CLI_REAL:
        if (!pgd_json_to_f64(v, &r) || !(r >= f->low && r <= f->high)) {
            return 0;
        }
        *(double *)f->target = r;
        return 1;
    default: return pgd_json_to_bool(v, f->target);
    }
}

// Texts of a config file live until the program ends.
static pgd_text kept_groups;

static pgd_status read_key(const char *path, pgd_str key, const pgd_json *v) {
    const cli_flag *f = find_key(key);
    pgd_str text = {0};
    if (f == NULL) {
        return unknown_key(path, key);
    }
    if (f->target == &values.kv_groups) {
        pgd_text_clear(&kept_groups);
        PGD_TRY(pgd_json_add(&kept_groups, v));
        values.kv_groups = v->kind == PGD_JSON_NULL ? NULL : kept_groups.ptr;
        return PGD_OK;
    }
    if (f->target == &values.scheduling_policy) {
        int32_t is_text = pgd_json_to_str(v, &text);
        int32_t known = pgd_str_is(text, "fcfs") || pgd_str_is(text, "priority");
        values.scheduling_policy = pgd_str_is(text, "priority") ? "priority" : "fcfs";
        return is_text && known ? PGD_OK : wrong_value(path, key, f, v);
    }
    return set_key(f, v) ? PGD_OK : wrong_value(path, key, f, v);
}

pgd_status cli_sim_read_config(const char *path) {
    pgd_json_doc *doc = NULL;
    PGD_TRY(cli_config_file_read(path, &doc));
    const pgd_json *root = pgd_json_root(doc);
    pgd_status status = PGD_OK;
    if (!pgd_json_is(root, PGD_JSON_OBJECT)) {
        status = pgd_fail(PGD_INVALID, "%s: a JSON object is needed", path);
    } else {
        for (uint32_t i = 0; i < root->n && status == PGD_OK; i++) {
            status = read_key(path, root->keys[i], &root->items[i]);
        }
    }
    pgd_json_free(doc);
    return status;
}

// ---- what it comes to --------------------------------------------------------------------------

static pgd_status read_group(const pgd_json *v, uint32_t index, int32_t *window) {
    pgd_str kind = {0};
    int64_t w = 0;
    for (uint32_t i = 0; pgd_json_is(v, PGD_JSON_OBJECT) && i < v->n; i++) {
        if (!pgd_str_is(v->keys[i], "kind") && !pgd_str_is(v->keys[i], "window")) {
            return pgd_fail(PGD_INVALID,
                            "kv_groups: group %u has the unknown key \"%.*s\"; kind, window are "
                            "allowed",
                            index, (int)v->keys[i].len, v->keys[i].ptr);
        }
    }
    const pgd_json *size = pgd_json_get(v, "window");
    int32_t has_kind = pgd_json_to_str(pgd_json_get(v, "kind"), &kind);
    if (has_kind && pgd_str_is(kind, "full") && size == NULL) {
        *window = 0;
        return PGD_OK;
    }
    if (has_kind && pgd_str_is(kind, "window") && pgd_json_to_i64(size, &w) && w >= 1 &&
        w <= MAX_TOKENS) {
        *window = (int32_t)w;
        return PGD_OK;
    }
    return pgd_fail(
        PGD_INVALID,
        "kv_groups: group %u: {\"kind\":\"full\"} or {\"kind\":\"window\",\"window\":W} "
        "with W from 1 to %d is allowed",
        index, MAX_TOKENS);
}

static pgd_status read_groups(pgd_kv_cache_config *c) {
    pgd_json_doc *doc = NULL;
    PGD_TRY(pgd_json_parse(pgd_str_of(values.kv_groups), "kv_groups", 8, &doc));
    const pgd_json *root = pgd_json_root(doc);
    pgd_status status = PGD_OK;
    if (!pgd_json_is(root, PGD_JSON_ARRAY) || root->n < 1 || root->n > PGD_KV_MAX_GROUPS) {
        status = pgd_fail(PGD_INVALID, "kv_groups is %.200s; a list of 1 to %d groups is allowed",
                          values.kv_groups, PGD_KV_MAX_GROUPS);
    } else {
        c->n_groups = (int32_t)root->n;
        for (uint32_t i = 0; i < root->n && status == PGD_OK; i++) {
            status = read_group(&root->items[i], i, &c->windows[i]);
        }
    }
    pgd_json_free(doc);
    return status;
}

static pgd_status settle_groups(pgd_kv_cache_config *c) {
    if (values.kv_groups != NULL && values.sliding_window != 0) {
        return pgd_fail(PGD_INVALID,
                        "sliding_window is %d and kv_groups is given too; one of them "
                        "is allowed",
                        values.sliding_window);
    }
    if (values.kv_groups != NULL) {
        return read_groups(c);
    }
    if (values.sliding_window != 0) {
        c->n_groups = 1;
        c->windows[0] = values.sliding_window;
    }
    return PGD_OK;
}

static pgd_status choose(const char *key, const char *value, const char *const *names, int32_t n,
                         const char *allowed, int32_t *out) {
    for (int32_t i = 0; i < n; i++) {
        if (strcmp(value, names[i]) == 0) {
            *out = i;
            return PGD_OK;
        }
    }
    return pgd_fail(PGD_INVALID, "%s is \"%s\"; %s are allowed", key, value, allowed);
}

pgd_status cli_sim_settle_config(sim_config *out) {
    static const char *const policies[] = {"fcfs", "priority"};
    static const char *const tables[] = {"all", "changed", "none"};
    *out = (sim_config){
        .cache = {.num_blocks = values.num_blocks,
                  .block_size = values.block_size,
                  .no_prefix_caching = !values.enable_prefix_caching,
                  .max_num_batched_tokens = values.max_num_batched_tokens,
                  .max_model_len = values.max_model_len},
        .sched = {.max_num_batched_tokens = values.max_num_batched_tokens,
                  .max_num_seqs = values.max_num_seqs,
                  .max_model_len = values.max_model_len,
                  .long_prefill_token_threshold = values.long_prefill_token_threshold,
                  .no_chunked_prefill = !values.enable_chunked_prefill,
                  .no_reserve_full_prompt = !values.reserve_full_prompt,
                  .watermark = values.watermark},
        .eos = values.eos_token_id,
        .summary_only = values.summary_only,
        .trace = values.trace,
    };
    if (values.trace == NULL) {
        return pgd_fail(PGD_INVALID, "no trace; give --trace FILE");
    }
    PGD_TRY(choose("scheduling_policy", values.scheduling_policy, policies, 2, "fcfs, priority",
                   &out->sched.policy));
    PGD_TRY(choose("tables", values.tables, tables, 3, "none, changed, all", &out->tables));
    return settle_groups(&out->cache);
}
