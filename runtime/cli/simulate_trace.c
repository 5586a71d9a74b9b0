// Reading of a trace: every line is checked before the first step runs. See simulate.h.
#include <stdio.h>
#include <string.h>

#include "base/fail.h"
#include "base/json.h"
#include "base/mem.h"
#include "cli/common.h"
#include "cli/simulate.h"

#define MAX_ID     INT64_C(9007199254740991) // 2^53 - 1: exact in every JSON reader
#define MAX_SEED   INT64_C(4294967295)
#define SEED_STEP  INT64_C(1000000)
#define MAX_DEPTH  32
#define MAX_TOKENS 1073741824

// Where the reader stands, for sentences.
typedef struct sim_place {
    sim_trace *trace;
    const char *path;
    size_t line;
} sim_place;

#define wrong(p, ...) wrong_at((p), __LINE__, __VA_ARGS__)

// "T.jsonl line 3: " and the rest.
static pgd_status PGD_PRINTF(3, 4)
    wrong_at(const sim_place *p, int32_t source, const char *fmt, ...) {
    char text[600];
    va_list args;
    va_start(args, fmt);
    vsnprintf(text, sizeof(text), fmt, args);
    va_end(args);
    return pgd_fail_at(PGD_INVALID, __FILE__, source, "%s line %zu: %s", p->path, p->line, text);
}

static pgd_status wrong_value(const sim_place *p, const char *key, const pgd_json *v,
                              const char *allowed) {
    pgd_text text = {0};
    pgd_status status = v != NULL ? pgd_json_add(&text, v) : PGD_OK;
    const char *shown = text.ptr != NULL ? text.ptr : "missing";
    status = status == PGD_OK ? wrong(p, "%s is %.120s; %s allowed", key, shown, allowed) : status;
    pgd_text_free(&text);
    return status;
}

static pgd_status no_memory(const sim_place *p, size_t bytes) {
    return pgd_fail(PGD_OUT_OF_MEMORY, "%s line %zu: no memory (%zu bytes)", p->path, p->line,
                    bytes);
}

// ---- values ------------------------------------------------------------------------------------

static pgd_status read_int(const sim_place *p, const char *key, const pgd_json *v, int64_t low,
                           int64_t high, int64_t *out) {
    char allowed[96];
    if (pgd_json_is(v, PGD_JSON_INT) && v->i >= low && v->i <= high) {
        *out = v->i;
        return PGD_OK;
    }
    snprintf(allowed, sizeof(allowed), "a whole number from %lld to %lld is", (long long)low,
             (long long)high);
    return wrong_value(p, key, v, allowed);
}

static pgd_status read_i32(const sim_place *p, const char *key, const pgd_json *v, int32_t low,
                           int32_t high, int32_t *out) {
    int64_t i = 0;
    PGD_TRY(read_int(p, key, v, low, high, &i));
    *out = (int32_t)i;
    return PGD_OK;
}

static pgd_status read_bool(const sim_place *p, const char *key, const pgd_json *v, int32_t *out) {
    return pgd_json_to_bool(v, out) ? PGD_OK : wrong_value(p, key, v, "true, false are");
}

// A text that is kept; null leaves it empty.
static pgd_status read_text(const sim_place *p, const char *key, const pgd_json *v,
                            int32_t nullable, pgd_str *out) {
    pgd_str text = {0};
    if (nullable && pgd_json_is(v, PGD_JSON_NULL)) {
        return PGD_OK;
    }
    if (!pgd_json_to_str(v, &text) || text.len == 0 || text.len > INT32_MAX) {
        return wrong_value(p, key, v,
                           nullable ? "a text that is not empty, or null is"
                                    : "a text that is not empty is");
    }
    *out = pgd_arena_copy(p->trace->arena, text);
    return out->ptr != NULL ? PGD_OK : no_memory(p, text.len);
}

static void see_id(sim_trace *t, int64_t id) {
    t->max_id = id > t->max_id ? id : t->max_id;
}

static pgd_status read_ids(const sim_place *p, const char *key, const pgd_json *v, sim_ids *out) {
    if (!pgd_json_is(v, PGD_JSON_ARRAY) || v->n > INT32_MAX) {
        return wrong_value(p, key, v, "a list of ids is");
    }
    int64_t *ids = pgd_arena_alloc(p->trace->arena, (size_t)v->n + 1, sizeof(*ids));
    if (ids == NULL) {
        return no_memory(p, v->n * sizeof(*ids));
    }
    for (uint32_t i = 0; i < v->n; i++) {
        PGD_TRY(read_int(p, key, &v->items[i], 0, MAX_ID, &ids[i]));
        see_id(p->trace, ids[i]);
    }
    *out = (sim_ids){.ids = ids, .n = (int32_t)v->n};
    return PGD_OK;
}

// ---- prompts -----------------------------------------------------------------------------------

static pgd_status unknown_key(const sim_place *p, const char *where, pgd_str key,
                              const char *allowed) {
    return wrong(p, "unknown key \"%.*s\" in %s; allowed are %s",
                 (int)(key.len < 80 ? key.len : 80), key.ptr, where, allowed);
}

static pgd_status read_seed(const sim_place *p, const pgd_json *v, sim_piece *out) {
    int64_t seed = 0;
    for (uint32_t i = 0; i < v->n; i++) {
        if (!pgd_str_is(v->keys[i], "seed") && !pgd_str_is(v->keys[i], "len")) {
            return unknown_key(p, "a prompt", v->keys[i], "seed, len, concat");
        }
    }
    PGD_TRY(read_int(p, "prompt.seed", pgd_json_get(v, "seed"), 0, MAX_SEED, &seed));
    PGD_TRY(read_int(p, "prompt.len", pgd_json_get(v, "len"), 0, MAX_TOKENS, &out->len));
    out->first = SEED_STEP * (seed + 1);
    see_id(p->trace, out->first + out->len);
    return PGD_OK;
}

// A list of ids, a seed, or (as the whole prompt) a concat of such.
static pgd_status read_piece(const sim_place *p, const pgd_json *v, sim_add *add) {
    sim_piece *piece = &add->pieces[add->n_pieces++];
    if (pgd_json_is(v, PGD_JSON_ARRAY)) {
        sim_ids ids = {0};
        PGD_TRY(read_ids(p, "prompt", v, &ids));
        piece->ids = ids.ids;
        piece->len = ids.n;
    } else if (pgd_json_is(v, PGD_JSON_OBJECT)) {
        PGD_TRY(read_seed(p, v, piece));
    } else {
        return wrong_value(p, "prompt", v, "ids, {\"seed\",\"len\"} or {\"concat\"} of such is");
    }
    add->n_prompt += piece->len;
    return PGD_OK;
}

static pgd_status read_prompt(const sim_place *p, const pgd_json *v, sim_add *add) {
    const pgd_json *concat = pgd_json_get(v, "concat");
    if (concat != NULL && v->n != 1) {
        return wrong_value(p, "prompt", v, "only the key concat, or seed and len are");
    }
    if (concat != NULL && !pgd_json_is(concat, PGD_JSON_ARRAY)) {
        return wrong_value(p, "prompt.concat", concat, "a list is");
    }
    uint32_t n = concat != NULL ? concat->n : 1;
    add->pieces = pgd_arena_alloc(p->trace->arena, (size_t)n + 1, sizeof(*add->pieces));
    if (add->pieces == NULL) {
        return no_memory(p, n * sizeof(*add->pieces));
    }
    for (uint32_t i = 0; i < n; i++) {
        PGD_TRY(read_piece(p, concat != NULL ? &concat->items[i] : v, add));
    }
    if (add->n_prompt < 1) {
        return wrong_value(p, "prompt", v, "(it is empty) at least 1 id is");
    }
    return PGD_OK;
}

// ---- lines -------------------------------------------------------------------------------------

typedef enum add_key {
    KEY_ID,
    KEY_PROMPT,
    KEY_MAX_TOKENS,
    KEY_MIN_TOKENS,
    KEY_IGNORE_EOS,
    KEY_STOP,
    KEY_PRIORITY,
    KEY_ARRIVAL,
    KEY_SALT,
    KEY_LORA,
    KEY_LOGPROBS,
    KEY_OUTPUT,
    N_KEYS,
} add_key;

static const char *const add_keys[N_KEYS] = {
    [KEY_ID] = "id",
    [KEY_PROMPT] = "prompt",
    [KEY_MAX_TOKENS] = "max_tokens",
    [KEY_MIN_TOKENS] = "min_tokens",
    [KEY_IGNORE_EOS] = "ignore_eos",
    [KEY_STOP] = "stop_token_ids",
    [KEY_PRIORITY] = "priority",
    [KEY_ARRIVAL] = "arrival",
    [KEY_SALT] = "cache_salt",
    [KEY_LORA] = "lora",
    [KEY_LOGPROBS] = "prompt_logprobs",
    [KEY_OUTPUT] = "output",
};

#define ADD_KEYS                                                                          \
    "id, prompt, max_tokens, min_tokens, ignore_eos, stop_token_ids, priority, arrival, " \
    "cache_salt, lora, prompt_logprobs, output"

static pgd_status read_add_key(const sim_place *p, add_key key, const pgd_json *v, sim_add *add) {
    switch (key) {
    case KEY_ID: return read_text(p, "id", v, 0, &add->id);
    case KEY_PROMPT: return read_prompt(p, v, add);
    case KEY_MAX_TOKENS: return read_i32(p, "max_tokens", v, 1, MAX_TOKENS, &add->max_tokens);
    case KEY_MIN_TOKENS: return read_i32(p, "min_tokens", v, 0, MAX_TOKENS, &add->min_tokens);
    case KEY_IGNORE_EOS: return read_bool(p, "ignore_eos", v, &add->ignore_eos);
    case KEY_STOP: return read_ids(p, "stop_token_ids", v, &add->stop);
    case KEY_PRIORITY: return read_i32(p, "priority", v, INT32_MIN, INT32_MAX, &add->priority);
    case KEY_ARRIVAL:
        return pgd_json_to_f64(v, &add->arrival) ? PGD_OK
                                                 : wrong_value(p, "arrival", v, "a number is");
    case KEY_SALT: return read_text(p, "cache_salt", v, 1, &add->salt);
    case KEY_LORA: return read_text(p, "lora", v, 1, &add->lora);
    case KEY_LOGPROBS: return read_bool(p, "prompt_logprobs", v, &add->prompt_logprobs);
    default: return read_ids(p, "output", v, &add->output);
    }
}

static pgd_status check_add(const sim_place *p, const sim_add *add) {
    uint64_t first = 0;
    if (add->id.ptr == NULL) {
        return wrong(p, "add has no id; a text is needed");
    }
    if (add->pieces == NULL) {
        return wrong(p, "add has no prompt; ids, {\"seed\",\"len\"} or {\"concat\"} is needed");
    }
    if (add->min_tokens > add->max_tokens) {
        return wrong(p, "min_tokens is %d; 0 to max_tokens (%d) is allowed", add->min_tokens,
                     add->max_tokens);
    }
    if (pgd_map_get(p->trace->names, add->id, &first)) {
        return wrong(p, "id \"%.80s\" is added a second time; each id is allowed once",
                     add->id.ptr);
    }
    return pgd_map_set(p->trace->names, add->id, p->trace->n_adds);
}

static pgd_status read_add(const sim_place *p, const pgd_json *v, sim_event *e) {
    if (!pgd_json_is(v, PGD_JSON_OBJECT)) {
        return wrong_value(p, "add", v, "an object is");
    }
    sim_add *add = pgd_arena_alloc(p->trace->arena, 1, sizeof(*add));
    if (add == NULL) {
        return no_memory(p, sizeof(*add));
    }
    add->max_tokens = 16;
    add->arrival = (double)p->trace->n_adds;
    for (uint32_t i = 0; i < v->n; i++) {
        int32_t key = 0;
        while (key < N_KEYS && !pgd_str_is(v->keys[i], add_keys[key])) {
            key++;
        }
        if (key == N_KEYS) {
            return unknown_key(p, "add", v->keys[i], ADD_KEYS);
        }
        PGD_TRY(read_add_key(p, (add_key)key, &v->items[i], add));
    }
    PGD_TRY(check_add(p, add));
    p->trace->n_adds++;
    e->kind = SIM_ADD;
    e->add = add;
    return PGD_OK;
}

static pgd_status read_reset(const sim_place *p, const pgd_json *v, sim_event *e) {
    if (!pgd_json_is(v, PGD_JSON_OBJECT)) {
        return wrong_value(p, "reset_prefix_cache", v, "an object is");
    }
    for (uint32_t i = 0; i < v->n; i++) {
        if (!pgd_str_is(v->keys[i], "preempt_running")) {
            return unknown_key(p, "reset_prefix_cache", v->keys[i], "preempt_running");
        }
        PGD_TRY(read_bool(p, "preempt_running", &v->items[i], &e->preempt_running));
    }
    e->kind = SIM_RESET;
    return PGD_OK;
}

static pgd_status read_event(const sim_place *p, const pgd_json *root, sim_event *e) {
    int64_t last = p->trace->n > 0 ? p->trace->events[p->trace->n - 1].at : 0;
    int32_t n_kinds = 0;
    if (!pgd_json_is(root, PGD_JSON_OBJECT)) {
        return wrong_value(p, "the line", root, "an object is");
    }
    PGD_TRY(read_int(p, "at", pgd_json_get(root, "at"), 0, MAX_ID, &e->at));
    if (e->at < last) {
        return wrong(p, "at is %lld; it goes back: %lld or more is allowed", (long long)e->at,
                     (long long)last);
    }
    for (uint32_t i = 0; i < root->n; i++) {
        const pgd_json *v = &root->items[i];
        if (pgd_str_is(root->keys[i], "at")) {
            continue;
        }
        n_kinds++;
        if (pgd_str_is(root->keys[i], "add")) {
            PGD_TRY(read_add(p, v, e));
        } else if (pgd_str_is(root->keys[i], "abort")) {
            e->kind = SIM_ABORT;
            PGD_TRY(read_text(p, "abort", v, 0, &e->abort));
        } else if (pgd_str_is(root->keys[i], "reset_prefix_cache")) {
            PGD_TRY(read_reset(p, v, e));
        } else {
            return unknown_key(p, "the line", root->keys[i], "at, add, abort, reset_prefix_cache");
        }
    }
    return n_kinds == 1
               ? PGD_OK
               : wrong(p, "%d events; one of add, abort, reset_prefix_cache is allowed", n_kinds);
}

static pgd_status read_line(const sim_place *p, pgd_str line) {
    char what[300];
    snprintf(what, sizeof(what), "%.200s line %zu", p->path, p->line);
    pgd_json_doc *doc = NULL;
    PGD_TRY(pgd_json_parse(line, what, MAX_DEPTH, &doc));
    sim_event event = {0};
    pgd_status status = read_event(p, pgd_json_root(doc), &event);
    pgd_json_free(doc);
    if (status == PGD_OK) {
        p->trace->events[p->trace->n++] = event;
    }
    return status;
}

static pgd_status read_lines(sim_place *p, pgd_str rest) {
    size_t n_lines = 1;
    for (size_t i = 0; i < rest.len; i++) {
        n_lines += rest.ptr[i] == '\n';
    }
    p->trace->events = pgd_mem_alloc(n_lines, sizeof(*p->trace->events));
    if (p->trace->events == NULL) {
        return PGD_MEM_FAIL("the trace", n_lines * sizeof(*p->trace->events));
    }
    PGD_TRY(pgd_map_create(n_lines, &p->trace->names));
    for (p->line = 1; rest.len > 0; p->line++) {
        pgd_str line = pgd_str_trim(pgd_str_cut(rest, '\n', &rest));
        if (line.len > 0) {
            PGD_TRY(read_line(p, line));
        }
    }
    return PGD_OK;
}

pgd_status cli_sim_trace_parse(pgd_str text, const char *name, sim_trace *out) {
    sim_place p = {.trace = out, .path = name};
    PGD_TRY(pgd_arena_create(0, &out->arena));
    return read_lines(&p, text);
}

pgd_status cli_sim_trace_read(const char *path, sim_trace *out) {
    pgd_text text = {0};
    pgd_status status = cli_read_input(path, &text);
    if (status == PGD_OK) {
        status = cli_sim_trace_parse(pgd_text_view(&text), path, out);
    }
    pgd_text_free(&text);
    return status;
}

void cli_sim_trace_free(sim_trace *t) {
    pgd_map_destroy(t->names);
    pgd_mem_free(t->events);
    pgd_arena_destroy(t->arena);
}
