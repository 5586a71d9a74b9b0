// pagoda serve: the OpenAI-compatible server.
#define _POSIX_C_SOURCE 200809L

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "base/fail.h"
#include "cli/common.h"
#include "os/env.h"
#include "serve/serve.h"

#define DEFAULT_PORT     8000
#define DEFAULT_SEQS     128
#define DEFAULT_SHUTDOWN 30
#define DEFAULT_WATCHDOG 120
#define POLL_MS          50

typedef struct serve_values {
    const char *host;
    const char *api_key_file;
    const char *cert_file;
    const char *key_file;
    cli_list api_keys;
    cli_list names;
    cli_list origins;
    int32_t port;
    int32_t threads;
    int32_t text_threads;
    int32_t max_queued_requests;
    int32_t max_queued_tokens;
    int32_t max_body_mib;
    int32_t keep_alive;
    int32_t shutdown_timeout;
    int32_t strict_fields;
    int32_t no_page;
    int32_t no_log;
    int32_t max_connections;
    int32_t watchdog;
    int32_t request_timeout;
    int32_t key_requests;
    int32_t key_tokens;
    const char *tool_parser;
    int32_t head_timeout;
    const char *log_format;
} serve_values;

static serve_values values = {
    .port = DEFAULT_PORT, .shutdown_timeout = DEFAULT_SHUTDOWN, .watchdog = DEFAULT_WATCHDOG};

static const cli_flag serve_flags[] = {
    CLI_FLAG_TEXT(0, "host", "ADDRESS", &values.host, "address to listen on (default 127.0.0.1)"),
    CLI_FLAG_INT('p', "port", "N", &values.port, 0, 65535, "port, 0 = any free one (default 8000)"),
    CLI_FLAG_LIST(0, "served-model-name", "NAME", &values.names,
                  "name of the model for clients; may be repeated"),
    CLI_FLAG_LIST(0, "api-key", "KEY", &values.api_keys,
                  "clients must send it; may be repeated (better: PAGODA_API_KEY or the next)"),
    CLI_FLAG_TEXT(0, "api-key-file", "FILE", &values.api_key_file, "a key a line"),
    CLI_FLAG_TEXT(0, "ssl-certfile", "FILE", &values.cert_file, "PEM certificate chain: TLS"),
    CLI_FLAG_TEXT(0, "ssl-keyfile", "FILE", &values.key_file, "PEM key of the certificate"),
    CLI_FLAG_LIST(0, "allowed-origin", "ORIGIN", &values.origins,
                  "web origin that may call the server, * = all; may be repeated (default none)"),
    CLI_FLAG_INT(0, "serve-threads", "N", &values.threads, 1, 64, "event loops (default 1)"),
    CLI_FLAG_INT(0, "text-threads", "N", &values.text_threads, 1, 64,
                 "threads for templates and tokens (default 1)"),
    CLI_FLAG_INT(0, "max-num-queued-reqs", "N", &values.max_queued_requests, 1, 1048576,
                 "most requests that wait for their first token (default 512)"),
    CLI_FLAG_INT(0, "max-num-queued-tokens", "N", &values.max_queued_tokens, 1, 2147483647.0,
                 "most prompt tokens that wait (default: no limit)"),
    CLI_FLAG_INT(0, "max-connections", "N", &values.max_connections, 1, 1048576,
                 "most connections at once (default 4096)"),
    CLI_FLAG_INT(0, "header-timeout", "S", &values.head_timeout, 1, 3600,
                 "seconds for the headers of a request to come (default 10)"),
    CLI_FLAG_INT(0, "request-timeout", "S", &values.request_timeout, 1, 86400,
                 "most seconds of a request (default: no limit)"),
    CLI_FLAG_INT(0, "watchdog-s", "S", &values.watchdog, 0, 86400,
                 "a step that takes longer makes the server unready, 0 = any (default 120)"),
    CLI_FLAG_INT(0, "key-max-requests", "N", &values.key_requests, 1, 1048576,
                 "most requests of one API key at once (default: no limit)"),
    CLI_FLAG_INT(0, "key-tokens-per-minute", "N", &values.key_tokens, 1, 2147483647.0,
                 "most tokens of one API key (default: no limit)"),
    CLI_FLAG_INT(0, "max-body-mib", "N", &values.max_body_mib, 1, 1024,
                 "largest body of a request (default 32)"),
    CLI_FLAG_INT(0, "keep-alive-s", "N", &values.keep_alive, 1, 3600,
                 "a comment into streams silent for so long (default 30)"),
    CLI_FLAG_INT(0, "shutdown-timeout", "S", &values.shutdown_timeout, 0, 86400,
                 "seconds that running requests get behind SIGTERM (default 30)"),
    CLI_FLAG_SWITCH(0, "strict-fields", &values.strict_fields,
                    "unknown fields of a request are an error"),
    CLI_FLAG_TEXT(0, "tool-call-parser", "NAME", &values.tool_parser,
                  "of calls in the model's text: hermes (default), or none"),
    CLI_FLAG_TEXT(0, "log-format", "NAME", &values.log_format,
                  "of the line for each answer: text (default) or json"),
    CLI_FLAG_SWITCH(0, "disable-access-log", &values.no_log, "no line for each answer"),
    CLI_FLAG_SWITCH(0, "no-page", &values.no_page, "no web page at /"),
    {0},
};

// Red for what failed, yellow for what was refused, where it is a terminal and may have colours.
static void write_log(void *arg, int32_t status, pgd_str line) {
    const int32_t *colour = arg;
    const char *begin = status >= 500 ? "\033[31m" : status >= 400 ? "\033[33m" : "";
    if (*colour && begin[0] != '\0') {
        fprintf(stderr, "%s%.*s\033[0m\n", begin, (int)line.len - 1, line.ptr); // ends with \n
    } else {
        fwrite(line.ptr, 1, line.len, stderr);
    }
}

static int32_t use_colour;

static pgd_status read_log_format(int32_t *json) {
    const char *name = values.log_format != NULL ? values.log_format : "text";
    *json = strcmp(name, "json") == 0;
    if (!*json && strcmp(name, "text") != 0) {
        return pgd_fail(PGD_INVALID, "--log-format \"%s\"; text and json are allowed", name);
    }
    use_colour = !*json && pgd_os_is_terminal(2) && pgd_os_env("NO_COLOR") == NULL;
    return PGD_OK;
}

static pgd_status read_tool_parser(int32_t *none) {
    const char *name = values.tool_parser != NULL ? values.tool_parser : "hermes";
    *none = strcmp(name, "none") == 0;
    if (!*none && strcmp(name, "hermes") != 0) {
        return pgd_fail(PGD_INVALID, "--tool-call-parser \"%s\"; hermes and none are allowed",
                        name);
    }
    return PGD_OK;
}

static pgd_serve_options make_options(const char *model) {
    pgd_serve_options o = {
        .engine = cli_engine_options(model, DEFAULT_SEQS),
        .host = values.host,
        .port = values.port,
        .threads = values.threads,
        .text_threads = values.text_threads,
        .n_names = values.names.n,
        .strict_fields = (uint32_t)values.strict_fields,
        .api_keys = values.api_keys.items,
        .n_api_keys = values.api_keys.n,
        .no_page = (uint32_t)values.no_page,
        .api_key_file = values.api_key_file,
        .cert_file = values.cert_file,
        .key_file = values.key_file,
        .origins = values.origins.items,
        .n_origins = values.origins.n,
        .max_queued_requests = values.max_queued_requests,
        .max_queued_tokens = values.max_queued_tokens,
        .max_body_bytes = (uint64_t)values.max_body_mib << 20,
        .keep_alive_s = values.keep_alive,
        .max_connections = values.max_connections,
        .watchdog_s = values.watchdog,
        .request_timeout_s = values.request_timeout,
        .key_max_requests = values.key_requests,
        .key_tokens_a_minute = values.key_tokens,
        .no_access_log = values.no_log,
        .head_timeout_s = values.head_timeout,
        .log = write_log,
        .log_arg = &use_colour,
    };
    memcpy(o.names, values.names.items, sizeof(values.names.items));
    return o;
}

static void say_ready(const pgd_server *s) {
    pgd_engine_info info = {.size = sizeof(info)};
    const char *host = values.host != NULL ? values.host : "127.0.0.1";
    const char *scheme = values.cert_file != NULL ? "https" : "http";
    pgd_serve_info(s, &info);
    fprintf(stderr, "pagoda: serving %s on %s, context %d tokens, %d blocks of %d\n",
            pgd_serve_model(s), info.device, info.max_model_len, info.num_blocks, info.block_size);
    fprintf(stderr, "pagoda: %s://%s:%d/v1\n", scheme, host, pgd_serve_port(s));
    if (!values.no_page) {
        fprintf(stderr, "pagoda: web page at %s://%s:%d/; Ctrl-C ends the server\n", scheme, host,
                pgd_serve_port(s));
    }
}

// The first signal drains: what runs gets its time. A second one ends it at once.
static void wait_for_end(pgd_server *s, const sigset_t *signals) {
    int signal_number = 0;
    while (sigwait(signals, &signal_number) != 0) {
    }
    const int32_t open = pgd_serve_open(s);
    if (open > 0) {
        fprintf(stderr, "pagoda: ending; %d %s %d s to finish (a second signal ends at once)\n",
                open, open == 1 ? "request has" : "requests have", values.shutdown_timeout);
    } else {
        fprintf(stderr, "pagoda: ending\n");
    }
    pgd_serve_drain(s);
    const uint64_t until =
        pgd_clock_ns() + (uint64_t)values.shutdown_timeout * UINT64_C(1000000000);
    const struct timespec poll = {.tv_nsec = POLL_MS * 1000000L};
    while (pgd_serve_open(s) > 0 && pgd_clock_ns() < until) {
        if (sigtimedwait(signals, NULL, &poll) > 0) {
            break;
        }
    }
}

static pgd_status serve(const char *model) {
    pgd_server *s = NULL;
    sigset_t signals;
    sigemptyset(&signals);
    sigaddset(&signals, SIGINT);
    sigaddset(&signals, SIGTERM);
    pgd_serve_options o = make_options(model);
    PGD_TRY(read_log_format(&o.log_json));
    PGD_TRY(read_tool_parser(&o.no_tool_calls));
    PGD_TRY(pgd_serve_start(&o, &s));
    sigprocmask(SIG_BLOCK, &signals, NULL);
    say_ready(s);
    wait_for_end(s, &signals);
    pgd_serve_stop(s);
    return PGD_OK;
}

int cli_serve(int argc, char **argv) {
    cli_args args = {
        .command = cli_find("serve"),
        .flags = {serve_flags, cli_engine_flags},
        .titles = {"server", "engine"},
        .n_groups = 2,
        .max_positional = 1,
    };
    pgd_status status = cli_parse(&args, argc, argv);
    if (status == PGD_OK && args.help) {
        return 0;
    }
    if (status == PGD_OK) {
        status = serve(args.positional[0]);
    }
    return status == PGD_OK ? 0 : cli_failed(status);
}
