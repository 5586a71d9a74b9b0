// pagoda chat: a conversation in the terminal.
//
// Answers go to stdout, everything else (prompt, notices, figures) to stderr, so the answers alone
// can be piped on. Every turn sends the whole conversation again; the prefix cache makes what was
// there before free. When it no longer fits the model's context, the oldest turns are left out,
// with a notice; the system message always stays.
#include <stdio.h>
#include <string.h>

#include "base/fail.h"
#include "base/json.h"
#include "cli/chat.h"
#include "cli/common.h"
#include "os/env.h"
#include "os/interrupt.h"

#define ANSWER_SHARE 4 // a turn leaves at least 1/4 of the context for its answer

typedef struct chat_values {
    const char *system;
    int32_t json;
    int32_t quiet;
} chat_values;

static chat_values values;

static const cli_flag chat_flags[] = {
    CLI_FLAG_TEXT(0, "system", "TEXT", &values.system, "system message"),
    CLI_FLAG_SWITCH(0, "json", &values.json, "print one JSON document for each answer"),
    CLI_FLAG_SWITCH('q', "quiet", &values.quiet, "no greeting and no figures"),
    {0},
};

typedef struct chat {
    pgd_engine *engine;
    const char *model; // as it was named
    cli_chat_messages messages;
    cli_chat_lines lines;
    pgd_text line;
    int32_t max_model_len;
    int32_t asks;    // 1: stdin and stderr are a terminal, so there is a prompt
    int32_t edits;   // 1: and it does what escape sequences say
    int32_t colours; // on stderr
    int32_t out_is_terminal;
    int32_t failed; // 1: a turn failed
    int32_t column; // 0: the last answer ended with a newline
} chat;

// ---- what people see ---------------------------------------------------------------------------

// 1 when stderr is a terminal that does what escape sequences say.
static int32_t is_able(void) {
    const char *term = pgd_os_env("TERM");
    return pgd_os_is_terminal(2) && (term == NULL || strcmp(term, "dumb") != 0);
}

static int32_t wants_colours(void) {
    const char *no = pgd_os_env("NO_COLOR");
    return is_able() && (no == NULL || no[0] == '\0');
}

static void notice(const chat *c, const char *text) {
    (void)fprintf(stderr, c->colours ? "\033[2m%s\033[0m\n" : "%s\n", text);
}

static void say_failure(chat *c, pgd_status status) {
    c->failed = 1;
    if (values.json) {
        pgd_text t = {0};
        pgd_status made = pgd_text_format(&t, "{\"error\":");
        made = made == PGD_OK ? pgd_json_add_str(&t, pgd_str_of(pgd_fail_text(status))) : made;
        printf("%s}\n", made == PGD_OK ? t.ptr : "{\"error\":\"no memory\"");
        (void)fflush(stdout);
        pgd_text_free(&t);
        return;
    }
    (void)cli_failed(status);
}

static void on_text(void *arg, pgd_request *request, const char *text, size_t len, int32_t done) {
    chat *c = arg;
    (void)request;
    (void)done;
    if (len > 0) {
        c->column = text[len - 1] != '\n';
        cli_chat_print(stdout, text, len, c->out_is_terminal);
    }
}

static void print_figures(const chat *c, const pgd_output *o) {
    char text[160];
    const char *why = strcmp(o->finish_reason, "abort") == 0    ? " (stopped)"
                      : strcmp(o->finish_reason, "length") == 0 ? " (cut at the limit)"
                                                                : "";
    if (values.quiet || !c->asks) {
        return;
    }
    (void)snprintf(text, sizeof(text), "[%d tokens%s, %.1f tokens/s; prompt %d, %d of it cached]\n",
                   o->n_ids, why, cli_rate_of(o), o->n_prompt, o->n_cached);
    notice(c, text);
}

static pgd_status print_json(const pgd_output *o) {
    pgd_text t = {0};
    pgd_status status = pgd_text_format(&t, "{\"role\":\"assistant\",\"content\":");
    if (status == PGD_OK) {
        status = pgd_json_add_str(&t, (pgd_str){o->text, o->text_len});
    }
    if (status == PGD_OK) {
        status = pgd_text_format(
            &t,
            ",\"finish_reason\":\"%s\",\"usage\":{\"prompt_tokens\":%d,\"completion_tokens\":%d,"
            "\"total_tokens\":%d,\"cached_tokens\":%d},\"timing\":{\"first_token_ms\":%.3f,"
            "\"total_ms\":%.3f,\"tokens_per_s\":%.2f}}",
            o->finish_reason, o->n_prompt, o->n_ids, o->n_prompt + o->n_ids, o->n_cached,
            (double)o->first_ns / 1e6, (double)o->total_ns / 1e6, cli_rate_of(o));
    }
    if (status == PGD_OK) {
        printf("%s\n", t.ptr);
        (void)fflush(stdout);
    }
    pgd_text_free(&t);
    return status;
}

// ---- a turn ------------------------------------------------------------------------------------

// Submits the conversation from message `from` on.
static pgd_status submit(chat *c, size_t from, pgd_request **out) {
    pgd_text messages = {0};
    char *rendered = NULL;
    pgd_request_desc desc = {.size = sizeof(desc)};
    *out = NULL;
    pgd_status status = cli_chat_json(&c->messages, from, &messages);
    if (status == PGD_OK) {
        status = pgd_engine_chat_prompt(c->engine, messages.ptr, NULL, &rendered);
    }
    if (status == PGD_OK) {
        cli_set_sampling(c->engine, c->max_model_len, &desc);
        desc.prompt = rendered;
        desc.no_special = 1;
        desc.on_text = values.json ? NULL : on_text;
        desc.arg = c;
        status = pgd_engine_submit(c->engine, &desc, out);
    }
    pgd_free(rendered);
    pgd_text_free(&messages);
    return status;
}

// Room that a turn leaves for its answer.
static int32_t answer_room(const chat *c) {
    int32_t share = c->max_model_len / ANSWER_SHARE;
    int32_t wanted = cli_sampling.max_tokens;
    return wanted > 0 && wanted < share ? wanted : share;
}

// Submits as much of the conversation as fits: all of it, or the youngest turns.
static pgd_status submit_fitting(chat *c, pgd_request **out) {
    cli_chat_messages *m = &c->messages;
    char text[120];
    size_t from = m->first;
    for (;; from += 2) {
        pgd_output o = {.size = sizeof(o)};
        pgd_status status = submit(c, from, out);
        int32_t is_last = from + 2 >= m->n;
        if (status == PGD_OK) {
            pgd_request_output(*out, &o);
            if (is_last || o.n_prompt + answer_room(c) <= c->max_model_len) {
                break;
            }
            pgd_request_release(*out);
            *out = NULL;
        } else if (status != PGD_OUT_OF_RANGE || is_last) {
            return status;
        }
    }
    if (from > m->first) {
        (void)snprintf(text, sizeof(text),
                       "(the context of %d tokens is full: the oldest %zu of %zu messages are left "
                       "out)",
                       c->max_model_len, from, m->n);
        notice(c, text);
        m->first = from;
    }
    return PGD_OK;
}

static pgd_status run(chat *c, pgd_request *request, pgd_output *o) {
    (void)pgd_os_interrupt_taken();
    while (pgd_engine_busy(c->engine) > 0) {
        if (pgd_os_interrupt_taken()) {
            pgd_request_cancel(request);
        }
        PGD_TRY(pgd_engine_step(c->engine));
    }
    pgd_request_output(request, o);
    return o->error != NULL ? pgd_fail(PGD_INTERNAL, "%s", o->error) : PGD_OK;
}

static pgd_status show(chat *c, const pgd_output *o) {
    PGD_TRY(cli_chat_add(&c->messages, "assistant", (pgd_str){o->text, o->text_len}));
    if (values.json) {
        return print_json(o);
    }
    if (c->column || o->text_len == 0) {
        printf("\n");
        (void)fflush(stdout);
    }
    print_figures(c, o);
    return PGD_OK;
}

// A question and its answer. When it fails the conversation is as it was.
static void turn(chat *c, pgd_str question) {
    pgd_request *request = NULL;
    pgd_output o = {.size = sizeof(o)};
    size_t n = c->messages.n;
    c->column = 0;
    pgd_status status = cli_chat_add(&c->messages, "user", question);
    if (status == PGD_OK) {
        status = submit_fitting(c, &request);
    }
    if (status == PGD_OK) {
        status = run(c, request, &o);
    }
    if (status == PGD_OK) {
        status = show(c, &o);
    }
    if (status != PGD_OK) {
        if (c->column) {
            printf("\n");
        }
        say_failure(c, status);
        while (c->messages.n > n) {
            cli_chat_take_back(&c->messages);
        }
    }
    pgd_request_release(request);
}

// ---- orders ------------------------------------------------------------------------------------

static int32_t order_help(chat *c, pgd_str rest) {
    (void)rest;
    notice(c, "/reset         forget the conversation (the system message stays)\n"
              "/system TEXT   set the system message; without TEXT show it, with - remove it\n"
              "/save FILE     write the conversation as JSON\n"
              "/help          this text\n"
              "/exit          end; Ctrl-D does too\n"
              "\"\"\"            begins and ends a message of several lines\n"
              "Ctrl-C         stops an answer, or throws away the line");
    return 0;
}

static int32_t order_reset(chat *c, pgd_str rest) {
    (void)rest;
    cli_chat_reset(&c->messages);
    notice(c, "(a new conversation)");
    return 0;
}

static int32_t order_system(chat *c, pgd_str rest) {
    if (rest.len == 0) {
        notice(c, c->messages.system.len > 0 ? c->messages.system.ptr : "(no system message)");
        return 0;
    }
    pgd_status status =
        cli_chat_set_system(&c->messages, pgd_str_is(rest, "-") ? PGD_STR("") : rest);
    if (status != PGD_OK) {
        say_failure(c, status);
    } else {
        notice(c, c->messages.system.len > 0 ? "(system message set)" : "(no system message)");
    }
    return 0;
}

static int32_t order_save(chat *c, pgd_str rest) {
    char path[4096];
    char text[4200];
    pgd_status status =
        rest.len > 0 && rest.len < sizeof(path)
            ? PGD_OK
            : pgd_fail(PGD_INVALID, "/save needs the name of a file, of at most %zu bytes",
                       sizeof(path) - 1);
    if (status == PGD_OK) {
        (void)snprintf(path, sizeof(path), "%.*s", (int)rest.len, rest.ptr);
        status = cli_chat_save(&c->messages, c->model, path);
    }
    if (status != PGD_OK) {
        say_failure(c, status);
        return 0;
    }
    (void)snprintf(text, sizeof(text), "(%zu messages in %s)", c->messages.n, path);
    notice(c, text);
    return 0;
}

static int32_t order_exit(chat *c, pgd_str rest) {
    (void)c;
    (void)rest;
    return 1;
}

static const struct {
    const char *name;
    int32_t (*run)(chat *c, pgd_str rest); // 1 = end
} orders[] = {
    {"/help", order_help},     {"/?", order_help},    {"/reset", order_reset},
    {"/system", order_system}, {"/save", order_save}, {"/exit", order_exit},
    {"/quit", order_exit},     {"/bye", order_exit},
};

#define N_ORDERS ((int32_t)(sizeof(orders) / sizeof(orders[0])))

// A line that begins with a slash. 1 = end.
static int32_t obey(chat *c, pgd_str line) {
    const char *names[sizeof(orders) / sizeof(orders[0])];
    char word[24];
    pgd_str rest = {0};
    pgd_str name = pgd_str_cut(line, ' ', &rest);
    for (int32_t i = 0; i < N_ORDERS; i++) {
        names[i] = orders[i].name;
        if (pgd_str_is(name, names[i])) {
            return orders[i].run(c, pgd_str_trim(rest));
        }
    }
    (void)snprintf(word, sizeof(word), "%.*s", (int)(name.len < 20 ? name.len : 20), name.ptr);
    const char *near = cli_nearest(word, names, N_ORDERS);
    say_failure(c, pgd_fail(PGD_INVALID, "there is no %s; %s%s", word,
                            near != NULL ? "did you mean " : "/help lists what there is",
                            near != NULL ? near : ""));
    return 0;
}

// ---- the conversation --------------------------------------------------------------------------

// The next line, after a sign of one letter where somebody types.
static pgd_status read_line(chat *c, const char *sign, int32_t *out_kind) {
    char text[32];
    (void)snprintf(text, sizeof(text), c->colours ? "\033[1;32m%s\033[0m " : "%s ", sign);
    if (c->edits) {
        return cli_chat_edit(&c->lines, text, 2, &c->line, out_kind);
    }
    if (c->asks) {
        (void)fputs(text, stderr);
        (void)fflush(stderr);
    }
    return cli_chat_line(&c->lines, &c->line, out_kind);
}

// Reads what is between """ and """ into c->line, whose first line has been read.
static pgd_status read_block(chat *c, int32_t *out_kind) {
    static const char mark[] = "\"\"\"";
    pgd_text all = {0};
    pgd_str rest = pgd_str_trim(pgd_text_view(&c->line));
    pgd_str part = {rest.ptr + 3, rest.len - 3};
    pgd_status status = PGD_OK;
    *out_kind = CLI_LINE;
    while (status == PGD_OK && *out_kind == CLI_LINE && !pgd_str_ends(part, PGD_STR(mark))) {
        status = pgd_text_format(&all, "%.*s\n", (int)part.len, part.ptr);
        if (status == PGD_OK) {
            status = read_line(c, ".", out_kind);
        }
        part = pgd_text_view(&c->line);
    }
    if (status == PGD_OK && *out_kind == CLI_LINE) {
        status = pgd_text_format(&all, "%.*s", (int)part.len - 3, part.ptr);
    }
    if (status == PGD_OK) {
        pgd_text_free(&c->line);
        c->line = all;
        return PGD_OK;
    }
    pgd_text_free(&all);
    return status;
}

// Reads one message or order. CLI_LINE_... in out_kind.
static pgd_status read_message(chat *c, int32_t *out_kind) {
    PGD_TRY(read_line(c, ">", out_kind));
    pgd_str line = pgd_str_trim(pgd_text_view(&c->line));
    if (*out_kind == CLI_LINE && pgd_str_starts(line, PGD_STR("\"\"\""))) {
        return read_block(c, out_kind);
    }
    return PGD_OK;
}

static void talk(chat *c) {
    int32_t kind = CLI_LINE;
    int32_t end = 0;
    while (!end) {
        pgd_status status = read_message(c, &kind);
        if (status != PGD_OK) {
            say_failure(c, status);
            end = status != PGD_INVALID;
            continue;
        }
        if (kind == CLI_LINE_INTERRUPTED) {
            if (c->asks) {
                (void)fprintf(stderr, "\n");
                notice(c, "(Ctrl-D or /exit ends)");
            }
            continue;
        }
        pgd_str line = pgd_str_trim(pgd_text_view(&c->line));
        if (line.len > 0 && line.ptr[0] == '/') {
            end = obey(c, line);
        } else if (line.len > 0) {
            turn(c, line);
        }
        end |= kind == CLI_LINE_END;
    }
    if (c->asks && kind == CLI_LINE_END) {
        (void)fprintf(stderr, "\n");
    }
}

// A model without a template, or whose template knows no such message, is refused at the start.
static pgd_status check_template(chat *c) {
    pgd_text messages = {0};
    char *rendered = NULL;
    pgd_status status = cli_chat_add(&c->messages, "user", PGD_STR("hello"));
    if (status == PGD_OK) {
        status = cli_chat_json(&c->messages, 0, &messages);
    }
    if (status == PGD_OK) {
        status = pgd_engine_chat_prompt(c->engine, messages.ptr, NULL, &rendered);
    }
    cli_chat_reset(&c->messages);
    pgd_free(rendered);
    pgd_text_free(&messages);
    return status;
}

static pgd_status open_chat(chat *c, const char *model) {
    pgd_engine_info info = {.size = sizeof(info)};
    char text[400];
    PGD_TRY(cli_chat_set_system(&c->messages, pgd_str_of(values.system)));
    PGD_TRY(cli_open_engine(model, 1, &c->engine));
    PGD_TRY(check_template(c));
    pgd_engine_get_info(c->engine, &info);
    c->model = model != NULL ? model : PGD_LOAD_DEFAULT_MODEL;
    c->max_model_len = info.max_model_len;
    c->asks = pgd_os_is_terminal(0) && pgd_os_is_terminal(2);
    c->edits = c->asks && is_able();
    c->out_is_terminal = pgd_os_is_terminal(1);
    c->colours = wants_colours();
    if (pgd_os_interrupt_catch() != PGD_OK) {
        return pgd_fail(PGD_UNAVAILABLE, "Ctrl-C cannot be caught");
    }
    if (c->asks && !values.quiet) {
        (void)snprintf(text, sizeof(text),
                       "%.100s on %s (%.64s), %d tokens of context\n"
                       "/help lists what there is; Ctrl-C stops an answer, Ctrl-D ends\n",
                       c->model, info.device, info.device_name, info.max_model_len);
        notice(c, text);
    }
    return PGD_OK;
}

int cli_chat(int argc, char **argv) {
    cli_args args = {.command = cli_find("chat"),
                     .flags = {chat_flags, cli_sampling_flags, cli_engine_flags},
                     .titles = {"conversation", "sampling", "engine"},
                     .n_groups = 3,
                     .max_positional = 1};
    chat c = {0};
    pgd_status status = cli_parse(&args, argc, argv);
    if (status == PGD_OK && args.help) {
        return 0;
    }
    if (status == PGD_OK) {
        status = open_chat(&c, args.positional[0]);
    }
    int code = status == PGD_OK ? 0 : cli_failed(status);
    if (status == PGD_OK) {
        talk(&c);
        // Whoever types sees what failed; a script learns it from the exit status.
        code = c.failed && !c.asks;
    }
    pgd_engine_destroy(c.engine);
    cli_chat_free(&c.messages);
    cli_chat_lines_free(&c.lines);
    pgd_text_free(&c.line);
    return code;
}
