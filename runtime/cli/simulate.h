// pagoda simulate: what its files share.
//
//   trace lines -> events -> scheduler and KV cache, step by step -> a line a step -> summary
#ifndef PGD_CLI_SIMULATE_H
#define PGD_CLI_SIMULATE_H

#include "base/arena.h"
#include "base/map.h"
#include "cli/flags.h"
#include "sched/sched.h"

// ---- simulate_config.c: keys, flags, --config ---------------------------------------------------

enum { SIM_TABLES_ALL = 0, SIM_TABLES_CHANGED = 1, SIM_TABLES_NONE = 2 };

typedef struct sim_config {
    pgd_kv_cache_config cache;
    pgd_sched_config sched;
    int32_t eos; // -1 = none
    int32_t tables;
    int32_t summary_only;
    const char *trace;
} sim_config;

extern const cli_flag cli_sim_file_flags[];
extern const cli_flag cli_sim_config_flags[];
// Reads a config file: the keys of cli_sim_config_flags with underscores, strictly typed.
pgd_status cli_sim_read_config(const char *path) PGD_MUST_USE;
// What defaults, config, environment and flags came to.
//   fails  INVALID, naming the key, the value and what is allowed
pgd_status cli_sim_settle_config(sim_config *out) PGD_MUST_USE;

// ---- simulate_trace.c: lines to events ----------------------------------------------------------

// A part of a prompt: a list of ids, or the first `len` ids of a seed.
typedef struct sim_piece {
    const int64_t *ids; // NULL = of the seed
    int64_t first;      // the seed's first id
    int64_t len;
} sim_piece;

typedef struct sim_ids {
    const int64_t *ids;
    int32_t n;
    int32_t reserved0;
} sim_ids;

typedef struct sim_add {
    pgd_str id;
    sim_piece *pieces;
    int32_t n_pieces;
    int32_t max_tokens;
    int64_t n_prompt;
    int32_t min_tokens;
    int32_t ignore_eos;
    int32_t priority;
    int32_t prompt_logprobs;
    double arrival;
    sim_ids stop;
    sim_ids output;
    pgd_str salt;
    pgd_str lora;
} sim_add;

enum { SIM_ADD = 0, SIM_ABORT = 1, SIM_RESET = 2 };

typedef struct sim_event {
    int64_t at;
    const sim_add *add;
    pgd_str abort;
    int32_t kind;
    int32_t preempt_running;
} sim_event;

typedef struct sim_trace {
    pgd_arena *arena;
    pgd_map *names; // of requests -> index
    sim_event *events;
    size_t n;
    size_t n_adds;
    int64_t max_id; // highest id of prompts, outputs and stop lists
} sim_trace;

// Checks all of a trace.
//   fails  INVALID or OUT_OF_RANGE, naming the line, the key, the value and what is allowed
// Free what was read in any case.
pgd_status cli_sim_trace_parse(pgd_str text, const char *name, sim_trace *out) PGD_MUST_USE;
pgd_status cli_sim_trace_read(const char *path, sim_trace *out) PGD_MUST_USE;
void cli_sim_trace_free(sim_trace *t);

// ---- simulate_ids.c: ids of the trace (64 bits) as tokens (32 bits) -----------------------------

// Ids below 2^31 are tokens as they are; others are numbered in runs of 256 below zero.
typedef struct sim_names {
    pgd_arena *arena;
    pgd_map *runs;    // id / 256 -> number
    int64_t *run_ids; // number -> id / 256
    int32_t n_runs;
    int32_t cap_runs;
    int64_t last_id; // the run looked up last
    int32_t last_run;
    int32_t reserved0;
} sim_names;

pgd_status cli_sim_names_create(sim_names *n) PGD_MUST_USE;
void cli_sim_names_free(sim_names *n);
pgd_status cli_sim_names_token(sim_names *n, int64_t id, int32_t *out) PGD_MUST_USE;
int64_t cli_sim_names_id(const sim_names *n, int32_t token);

// ---- simulate_print.c ---------------------------------------------------------------------------

typedef struct sim_request {
    pgd_seq seq;
    const sim_add *add;
    int32_t *stop;    // [n_stop_ids] tokens, the model's end last
    uint64_t printed; // fingerprint of its table in the last line
} sim_request;

typedef struct sim sim;

typedef struct sim_counts {
    uint64_t finished[5]; // by PGD_FINISH_...
    int64_t n_steps;
    int64_t peak_blocks;
    double computed; // sums over steps and running sequences
    double entries;
} sim_counts;

struct sim {
    sim_config config;
    sim_trace trace;
    sim_names names;
    pgd_kv_cache *cache;
    pgd_kv_pool *pool;
    pgd_sched *sched;
    pgd_step step;
    sim_request **requests;       // [n_adds], NULL before and after its life
    const sim_request **finished; // [n_adds] of this step, freed behind its line
    int32_t *counts;              // [num_blocks] of the last line, for --tables changed
    int32_t n_finished;
    int32_t n_listed; // of the scheduler's list
    int32_t n_live;
    size_t next_event;
    size_t next_add;
    int64_t now;
    int64_t next_fresh; // id of the next token that the trace does not give
    int32_t had_event;
    int32_t reset; // -1 = none, else its result
    sim_counts sums;
    pgd_text line;
};

// The line of this step up to its "finished", from the state behind the plan.
pgd_status cli_sim_print_state(sim *s) PGD_MUST_USE;
// The rest of it; writes the line out.
pgd_status cli_sim_print_finished(sim *s) PGD_MUST_USE;
pgd_status cli_sim_print_summary(sim *s) PGD_MUST_USE;

#endif
