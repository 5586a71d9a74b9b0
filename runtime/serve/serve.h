// The OpenAI-compatible server.
//
//   socket -> event loop -> text worker -> engine thread -> event loop -> socket
//             (bytes only)  (JSON,         (steps)          (answers)
//                            template, ids)
#ifndef PGD_SERVE_SERVE_H
#define PGD_SERVE_SERVE_H

#include <pagoda/pagoda.h>

#include "base/str.h"

#define PGD_SERVE_MAX_NAMES 16

typedef struct pgd_serve_options {
    pgd_engine_options engine;
    const char *host;                       // NULL = 127.0.0.1
    int32_t port;                           // 0 = any free one
    int32_t threads;                        // event loops, 0 = 1
    int32_t text_threads;                   // 0 = 1
    const char *names[PGD_SERVE_MAX_NAMES]; // --served-model-name; none = the model's own
    uint32_t n_names;
    uint32_t strict_fields;
    const char *const *api_keys; // [n_api_keys]
    uint32_t n_api_keys;
    uint32_t no_page;         // 1: no web page at /
    const char *api_key_file; // a key a line; NULL = none
    const char *cert_file;
    const char *key_file;
    const char *const *origins; // [n_origins] allowed by CORS, "*" = all
    uint32_t n_origins;
    int32_t max_queued_requests; // 0 = 512
    int64_t max_queued_tokens;   // 0 = no limit
    uint64_t max_body_bytes;     // 0 = 32 MiB
    int32_t keep_alive_s;        // of streams: a comment in so many seconds of silence; 0 = 30
    int32_t shutdown_timeout_s;  // time for running requests behind the first signal
    int32_t log_json;            // 1: JSON lines
    int32_t max_connections;     // at once, 0 = 4096
    int32_t watchdog_s;          // a step that takes longer makes the server unready; 0 = none
    int32_t request_timeout_s;   // most time of a request, 0 = no limit
    int32_t key_max_requests;    // of one key at once, 0 = no limit
    int64_t key_tokens_a_minute; // prompts and answers of one key, 0 = no limit
    int32_t no_access_log;       // 1: no line for each answer
    int32_t no_tool_calls;       // 1: calls of tools stay text
    int32_t head_timeout_s;      // for a request's head to come, 0 = 10
    // [any] A line for each answer and for what befalls the server, with its newline; NULL = none.
    void (*log)(void *arg, int32_t status, pgd_str line);
    void *log_arg;
} pgd_serve_options;

typedef struct pgd_server pgd_server;

// Opens the engine, binds, starts all threads. Ready when it returns.
//   fails  as pgd_engine_create does; INVALID, UNAVAILABLE (address), NOT_FOUND (files)
pgd_status pgd_serve_start(const pgd_serve_options *o, pgd_server **out) PGD_MUST_USE;
int32_t pgd_serve_port(const pgd_server *s);
const char *pgd_serve_model(const pgd_server *s); // the name it is served under
void pgd_serve_info(const pgd_server *s, pgd_engine_info *out);
// [any] Not ready any more; no new requests; those that run go on.
void pgd_serve_drain(pgd_server *s);
// [any] Requests being answered.
int32_t pgd_serve_open(const pgd_server *s);
// Ends everything; what still runs is aborted with an error event. NULL is fine.
void pgd_serve_stop(pgd_server *s);

#endif
