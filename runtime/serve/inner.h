// What the files of the serve room share.
#ifndef PGD_SERVE_INNER_H
#define PGD_SERVE_INNER_H

#include <stdatomic.h>

#include "api/body.h"
#include "api/error.h"
#include "api/tools.h"
#include "base/rng.h"
#include "engine/text.h"
#include "os/thread.h"
#include "serve/http.h"
#include "serve/keys.h"
#include "serve/metrics.h"
#include "serve/quota.h"
#include "serve/serve.h"
#include "serve/workers.h"

#define PGD_SERVE_MAX_LOOPS 64

typedef struct pgd_serve_call pgd_serve_call;

// What one loop needs of its server.
typedef struct pgd_serve_loop_arg {
    pgd_server *server;
    int32_t index;
    int32_t reserved0;
    pgd_serve_note note; // to end its calls
    pgd_serve_note stuck_note;
} pgd_serve_loop_arg;

struct pgd_server {
    pgd_serve_options o;
    pgd_engine *engine;
    pgd_async *async;
    const pgd_text_tokenizer *tokenizer; // NULL: the model has none
    const pgd_text_template *chat;       // NULL: likewise
    pgd_engine_info info;
    char name[256]; // of the model, when no flag says so
    int64_t created_s;
    uint64_t salt; // of request ids
    pgd_serve_keys *keys;
    pgd_serve_quotas *quotas;
    _Atomic int32_t n_connections;
    pgd_serve_workers *workers;
    pgd_serve_loop *loops[PGD_SERVE_MAX_LOOPS];
    pgd_serve_call *calls[PGD_SERVE_MAX_LOOPS]; // the loop's thread's
    int32_t n_loops;
    pgd_serve_loop_arg *loop_args; // [o.threads]
    pgd_serve_metrics metrics;
    _Atomic uint64_t n_ids;
    _Atomic int32_t waiting; // requests between arrival and their first token
    _Atomic int64_t waiting_tokens;
    _Atomic int32_t draining;
    _Atomic int32_t stuck; // a step takes longer than the watchdog allows
    char fingerprint[32];
    pgd_text openapi;
};

// One prompt's ids on their way to the engine.
typedef struct pgd_serve_prompt {
    pgd_text_ids ids;
    pgd_text text; // with echo
    pgd_request *request;
    int32_t index; // among the prompts of the body
    int32_t done;
    int32_t told; // engine's side: its log probabilities are on their way
    int32_t cached_known;
    int32_t max_tokens;
    int32_t reserved0;
    pgd_serve_call *call;
} pgd_serve_prompt;

// One answer being collected or streamed. Text of a stream is not kept.
typedef struct pgd_serve_choice {
    pgd_text text;
    pgd_text logprobs;   // JSON pieces, comma-separated: see answer.c
    pgd_text tops;       // completions: top_logprobs
    pgd_text offsets;    // completions: text_offset
    pgd_text tokens;     // completions: tokens
    pgd_text ids;        // token ids, comma-separated
    pgd_text prompt;     // prompt_logprobs
    pgd_api_tools tools; // calls in the text, when they are looked for
    int32_t n_calls_sent;
    int32_t reserved1;
    size_t call_sent; // bytes of the last one's arguments
    const char *finish_reason;
    char *stop_text;
    int32_t stop_id;
    int32_t n_output;
    int32_t chars; // of text so far
    int32_t begun; // its first chunk is out
    int32_t echoed;
    int32_t reserved0;
    uint64_t latest_ns; // when its last token was seen, 0 = none yet
} pgd_serve_choice;

// A request to the model, from the moment its body is there to the last byte of its answer. The
// loop's side owns exchange, choices and output; the engine's side only appends to `arrived`.
struct pgd_serve_call {
    pgd_server *server;
    pgd_serve_exchange *x; // NULL: answered, or the client has left
    pgd_serve_loop *loop;
    pgd_serve_call *prev; // among the open ones of its loop
    pgd_serve_call *next;
    pgd_serve_note note;
    pgd_serve_job job;
    pgd_text raw; // the body's text
    pgd_api_body body;
    pgd_api_error error;
    pgd_serve_prompt *prompts;
    pgd_serve_choice *choices; // [n_prompts * n]
    int32_t n_prompts;
    int32_t n;           // answers a prompt
    int32_t n_running;   // prompts that have not ended
    int32_t job_done;    // the text worker is through with it
    int32_t key;         // number of the caller's API key, 0 = none
    int32_t scores_only; // max_tokens 0
    int32_t n_prompt_tokens;
    int32_t n_cached;
    int32_t is_chat;
    int32_t stream;
    int32_t started;     // headers of a stream are out
    int32_t counted;     // among the server's waiting
    int32_t wants_ids;   // return_token_ids
    int32_t wants_calls; // tools are offered: calls are looked for in the text
    int32_t n_waiting_tokens;
    char id[80];
    char trace[132];     // X-Request-Id
    char model[256];     // as the client named it
    pgd_text chunk_head; // what all chunks of the stream begin with
    int64_t created_s;
    uint64_t start_ns;
    uint64_t first_ns;
    uint64_t last_ns;     // of the last bytes
    uint64_t deadline_ns; // 0 = none
    pgd_text out;         // bytes being put together
    pgd_text reading;     // records taken from `arrived`
    _Atomic int32_t gone;
    pgd_os_mutex arrived_mutex; // guards what follows
    pgd_text arrived;           // records: see call.c
    int32_t posted;
    int32_t lost; // no memory for a record
    int32_t lost_ends;
};

// call.c: a POST to the model. Takes the exchange.
void pgd_serve_call_begin(pgd_server *s, pgd_serve_exchange *x, int32_t is_chat);
// 0, or -1 with e: draining, stuck, or as many requests wait as may.
int32_t pgd_serve_has_room(pgd_server *s, pgd_api_error *e);
// May end the call.
void pgd_serve_call_tick(pgd_serve_call *call, uint64_t now);
pgd_delta_fn pgd_serve_on_delta(void);
// observe.c: figures; the second: the call waits no longer for its first token.
void pgd_serve_observe_delta(pgd_serve_call *call, pgd_serve_choice *c, const pgd_delta *d,
                             uint64_t now);
void pgd_serve_observe_end(pgd_serve_call *call, pgd_serve_prompt *p, uint64_t now);
void pgd_serve_call_uncount(pgd_serve_call *call);
// server.c: the open calls of a loop.
void pgd_serve_calls_add(pgd_serve_call *call);
void pgd_serve_calls_remove(pgd_serve_call *call);
// submit.c, on a text worker: the body into prompts and requests. 0, or -1 with call->error.
int32_t pgd_serve_call_submit(pgd_serve_call *call);
// On the call's loop: it ends with 503 and this sentence.
void pgd_serve_call_abort(pgd_serve_call *call, const char *why);
// prompt.c: prompts with their ids; the second checks their lengths too. 0, or -1 with call->error.
int32_t pgd_serve_prompt_ids(pgd_serve_call *call);
int32_t pgd_serve_prompts(pgd_serve_call *call);
void pgd_serve_prompts_free(pgd_serve_call *call);
// answer.c: JSON of answers. What a delta brings beside its text goes into the choice.
pgd_status pgd_serve_add_delta(pgd_serve_call *call, pgd_serve_choice *c,
                               const pgd_delta *d) PGD_MUST_USE;
// The prompt's log probabilities before those of the answer.
pgd_status pgd_serve_add_prompt(pgd_serve_call *call, pgd_serve_choice *c,
                                const pgd_output *o) PGD_MUST_USE;
// Events of what a choice holds; it is then empty again.
pgd_status pgd_serve_add_chunk(pgd_serve_call *call, int32_t index, pgd_text *out) PGD_MUST_USE;
pgd_status pgd_serve_add_usage_chunk(pgd_serve_call *call, pgd_text *out) PGD_MUST_USE;
pgd_status pgd_serve_add_answer(pgd_serve_call *call, pgd_text *out) PGD_MUST_USE;
// route.c
void pgd_serve_route(void *server, pgd_serve_exchange *x);
// A route's place among PGD_SERVE_HANDLERS, and the path that stands there ("" = no route).
int32_t pgd_serve_handler_of(const char *path);
const char *pgd_serve_handler_name(int32_t handler);
void pgd_serve_reply_error(pgd_server *s, pgd_serve_exchange *x, const pgd_api_error *e);
void pgd_serve_reply_json(pgd_server *s, pgd_serve_exchange *x, int32_t status, pgd_str body);
// log.c: counts an answer about to be given and writes its line. call NULL: not one of the model.
void pgd_serve_answered(pgd_server *s, const pgd_serve_exchange *x, int32_t status,
                        const pgd_serve_call *call);
// The same for an error, of which the line names field and code.
void pgd_serve_answered_error(pgd_server *s, const pgd_serve_exchange *x, const pgd_api_error *e,
                              const pgd_serve_call *call);
// log.c: what was refused before it was a request; and a line about the server itself.
void pgd_serve_refused(void *server, const pgd_api_error *e, const char *peer);
void pgd_serve_say(pgd_server *s, const char *event, const char *sentence);
// info.c: models, version, metrics ... ; tokens.c: tokenize, detokenize.
void pgd_serve_get_models(pgd_server *s, pgd_serve_exchange *x, const char *id);
void pgd_serve_get_metrics(pgd_server *s, pgd_serve_exchange *x);
void pgd_serve_get_load(pgd_server *s, pgd_serve_exchange *x);
void pgd_serve_get_version(pgd_server *s, pgd_serve_exchange *x);
void pgd_serve_get_tokenizer_info(pgd_server *s, pgd_serve_exchange *x);
void pgd_serve_post_tokenize(pgd_server *s, pgd_serve_exchange *x);
void pgd_serve_post_detokenize(pgd_server *s, pgd_serve_exchange *x);
// 0 when `name` (empty = any) is served, else -1 with e.
int32_t pgd_serve_check_model(const pgd_server *s, pgd_str name, pgd_api_error *e);
// openapi.c
pgd_status pgd_serve_openapi_add(pgd_text *t, const pgd_server *s) PGD_MUST_USE;
// page.c: the web page's files. NULL = no such file.
const char *pgd_serve_page(const char *path, const char **out_type, size_t *out_len);

#endif
