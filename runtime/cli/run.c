// pagoda run: one completion, streamed.
#include <stdio.h>
#include <string.h>

#include "base/fail.h"
#include "base/json.h"
#include "cli/common.h"
#include "os/env.h"

#define DEFAULT_TOKENS 256

typedef struct run_values {
    const char *prompt;
    const char *file;
    const char *system;
    int32_t chat;
    int32_t json;
    int32_t quiet;
} run_values;

static run_values values;

static const cli_flag run_flags[] = {
    CLI_FLAG_TEXT('p', "prompt", "TEXT", &values.prompt,
                  "the text to go on with, or the user's message"),
    CLI_FLAG_TEXT('f', "file", "FILE", &values.file, "read the text from a file, - for stdin"),
    CLI_FLAG_SWITCH(0, "chat", &values.chat, "apply the model's chat template"),
    CLI_FLAG_TEXT(0, "system", "TEXT", &values.system, "system message, with --chat"),
    CLI_FLAG_SWITCH(0, "json", &values.json, "print one JSON document instead of streaming"),
    CLI_FLAG_SWITCH('q', "quiet", &values.quiet, "no figures on stderr"),
    {0},
};

static void on_text(void *arg, pgd_request *request, const char *text, size_t len, int32_t done) {
    (void)arg;
    (void)request;
    (void)done;
    fwrite(text, 1, len, stdout);
    fflush(stdout);
}

static pgd_status read_prompt(pgd_text *out) {
    if (values.prompt != NULL && values.file != NULL) {
        return pgd_fail(PGD_INVALID, "--prompt and --file are both given; one is allowed");
    }
    if (values.prompt != NULL) {
        PGD_TRY(pgd_text_add_str(out, pgd_str_of(values.prompt)));
    } else if (values.file != NULL) {
        PGD_TRY(cli_read_input(values.file, out));
    } else {
        return pgd_fail(PGD_INVALID, "no prompt; give --prompt TEXT (-p) or --file FILE (-f)");
    }
    if (out->len == 0) {
        return pgd_fail(PGD_INVALID, "the prompt is empty");
    }
    return PGD_OK;
}

// Replaces the prompt by the model's chat template around it.
static pgd_status apply_chat(const pgd_engine *engine, pgd_text *prompt) {
    pgd_text messages = {0};
    char *rendered = NULL;
    pgd_status status = pgd_text_format(&messages, "[");
    if (status == PGD_OK && values.system != NULL) {
        status = cli_add_message(&messages, "system", pgd_str_of(values.system));
    }
    if (status == PGD_OK) {
        status = cli_add_message(&messages, "user", pgd_text_view(prompt));
    }
    if (status == PGD_OK) {
        status = pgd_text_format(&messages, "]");
    }
    if (status == PGD_OK) {
        status = pgd_engine_chat_prompt(engine, messages.ptr, NULL, &rendered);
    }
    if (status == PGD_OK) {
        pgd_text_clear(prompt);
        status = pgd_text_add_str(prompt, pgd_str_of(rendered));
    }
    pgd_free(rendered);
    pgd_text_free(&messages);
    return status;
}

static pgd_status add_i32s(pgd_text *t, const char *key, const int32_t *values_, int32_t n) {
    PGD_TRY(pgd_text_format(t, ",\"%s\":[", key));
    for (int32_t i = 0; i < n; i++) {
        PGD_TRY(pgd_text_format(t, "%s%d", i > 0 ? "," : "", values_[i]));
    }
    return pgd_text_format(t, "]");
}

// One object a token: the likeliest by id, the token itself first.
static pgd_status add_logprobs(pgd_text *t, const pgd_output *o) {
    const int32_t columns = o->n_logprobs + 1;
    PGD_TRY(pgd_text_format(t, ",\"cumulative_logprob\":"));
    PGD_TRY(pgd_json_add_f64(t, o->cumulative_logprob));
    PGD_TRY(add_i32s(t, "ranks", o->ranks, o->n_ids));
    PGD_TRY(pgd_text_format(t, ",\"logprobs\":["));
    for (int32_t i = 0; i < o->n_ids; i++) {
        PGD_TRY(pgd_text_format(t, "%s[", i > 0 ? "," : ""));
        for (int32_t k = 0; k < columns; k++) {
            PGD_TRY(
                pgd_text_format(t, "%s[%d,", k > 0 ? "," : "", o->logprob_ids[i * columns + k]));
            PGD_TRY(pgd_json_add_f64(t, (double)o->logprobs[i * columns + k]));
            PGD_TRY(pgd_text_format(t, "]"));
        }
        PGD_TRY(pgd_text_format(t, "]"));
    }
    return pgd_text_format(t, "]");
}

// The members of an answer, without braces.
static pgd_status add_answer(pgd_text *t, const pgd_output *o) {
    PGD_TRY(pgd_text_format(t, "\"text\":"));
    PGD_TRY(pgd_json_add_str(t, (pgd_str){o->text, o->text_len}));
    PGD_TRY(pgd_text_format(t, ",\"finish_reason\":\"%s\",\"stop_reason\":", o->finish_reason));
    if (o->stop_text != NULL) {
        PGD_TRY(pgd_json_add_str(t, pgd_str_of(o->stop_text)));
    } else if (o->stop_id >= 0) {
        PGD_TRY(pgd_text_format(t, "%d", o->stop_id));
    } else {
        PGD_TRY(pgd_text_format(t, "null"));
    }
    PGD_TRY(add_i32s(t, "token_ids", o->ids, o->n_ids));
    return o->n_logprobs >= 0 ? add_logprobs(t, o) : PGD_OK;
}

// The first answer's members stand at the top; with several, all stand in "answers" too.
static pgd_status add_answers(pgd_text *t, const pgd_request *request, int32_t n) {
    pgd_output o = {.size = sizeof(o)};
    pgd_request_output(request, &o);
    PGD_TRY(add_answer(t, &o));
    for (int32_t i = 0; i < n && n > 1; i++) {
        pgd_request_choice(request, i, &o);
        PGD_TRY(pgd_text_format(t, "%s{\"index\":%d,", i > 0 ? "," : ",\"answers\":[", i));
        PGD_TRY(add_answer(t, &o));
        PGD_TRY(pgd_text_format(t, i + 1 < n ? "}" : "}]"));
    }
    return PGD_OK;
}

static pgd_status add_usage(pgd_text *t, const pgd_request *request, const char *device) {
    pgd_output o = {.size = sizeof(o)};
    int32_t n_ids = 0;
    pgd_request_output(request, &o);
    for (int32_t i = 0; i < o.n; i++) {
        pgd_request_choice(request, i, &o);
        n_ids += o.n_ids;
    }
    pgd_request_output(request, &o);
    return pgd_text_format(
        t,
        ",\"usage\":{\"prompt_tokens\":%d,\"completion_tokens\":%d,\"total_tokens\":%d},"
        "\"timing\":{\"first_token_ms\":%.3f,\"total_ms\":%.3f,\"tokens_per_s\":%.2f},"
        "\"device\":\"%s\"}",
        o.n_prompt, n_ids, o.n_prompt + n_ids, (double)o.first_ns / 1e6, (double)o.total_ns / 1e6,
        cli_rate_of(&o), device);
}

static pgd_status print_json(const pgd_engine *engine, const pgd_request *request, int32_t n) {
    pgd_engine_info info = {.size = sizeof(info)};
    pgd_engine_get_info(engine, &info);
    pgd_text t = {0};
    pgd_status status = pgd_text_format(&t, "{");
    if (status == PGD_OK) {
        status = add_answers(&t, request, n);
    }
    if (status == PGD_OK) {
        status = add_usage(&t, request, info.device);
    }
    if (status == PGD_OK) {
        printf("%s\n", t.ptr);
    }
    pgd_text_free(&t);
    return status;
}

// Several answers cannot stream into one another; they come when all have ended.
static void print_answers(const pgd_request *request, int32_t n) {
    for (int32_t i = 0; i < n; i++) {
        pgd_output o = {.size = sizeof(o)};
        pgd_request_choice(request, i, &o);
        printf("%s[%d]%.*s\n", i > 0 ? "\n" : "", i, (int)o.text_len, o.text);
    }
}

static pgd_status finish(const pgd_engine *engine, const pgd_request *request) {
    pgd_output o = {.size = sizeof(o)};
    pgd_request_output(request, &o);
    if (o.error != NULL) {
        return pgd_fail(PGD_INTERNAL, "%s", o.error);
    }
    if (values.json) {
        return print_json(engine, request, o.n);
    }
    if (o.n > 1) {
        print_answers(request, o.n);
    } else {
        printf("\n");
    }
    fflush(stdout);
    if (!values.quiet) {
        fprintf(stderr, "[%d tokens, %s; first token after %.1f ms, then %.1f tokens/s]\n", o.n_ids,
                o.finish_reason, (double)o.first_ns / 1e6, cli_rate_of(&o));
    }
    return PGD_OK;
}

static pgd_status generate(pgd_engine *engine, pgd_text *prompt) {
    pgd_request_desc desc = {.size = sizeof(desc)};
    if (values.chat) {
        PGD_TRY(apply_chat(engine, prompt));
    }
    cli_set_sampling(engine, DEFAULT_TOKENS, &desc);
    desc.prompt = prompt->ptr;
    desc.prompt_len = prompt->len;
    desc.no_special = values.chat != 0;
    desc.on_text = values.json || desc.n > 1 ? NULL : on_text;
    pgd_request *request = NULL;
    PGD_TRY(pgd_engine_submit(engine, &desc, &request));
    while (pgd_engine_busy(engine) > 0) {
        PGD_TRY(pgd_engine_step(engine));
    }
    return finish(engine, request);
}

int cli_run(int argc, char **argv) {
    cli_args args = {
        .command = cli_find("run"),
        .flags = {run_flags, cli_sampling_flags, cli_engine_flags},
        .titles = {"input and output", "sampling", "engine"},
        .n_groups = 3,
        .max_positional = 1,
    };
    pgd_text prompt = {0};
    pgd_engine *engine = NULL;
    pgd_status status = cli_parse(&args, argc, argv);
    if (status == PGD_OK && args.help) {
        return 0;
    }
    if (status == PGD_OK) {
        status = read_prompt(&prompt);
    }
    if (status == PGD_OK) {
        status = cli_open_engine(args.positional[0], 1, &engine);
    }
    if (status == PGD_OK) {
        status = generate(engine, &prompt);
    }
    int code = status == PGD_OK ? 0 : cli_failed(status);
    pgd_engine_destroy(engine);
    pgd_text_free(&prompt);
    return code;
}
