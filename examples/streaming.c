// A conversation's answer, shown as it comes: the chat template, one request, steps by hand.
//
//   streaming [MODEL [DEVICE [QUESTION]]]
#include <stdio.h>

#include <pagoda/pagoda.h>

static void on_text(void *arg, pgd_request *request, const char *text, size_t len, int32_t done) {
    (void)arg;
    (void)request;
    fwrite(text, 1, len, stdout);
    if (done) {
        fputc('\n', stdout);
    }
    fflush(stdout);
}

// Steps until the request has ended.
static pgd_status run(pgd_engine *engine, const char *prompt) {
    static const char *const stop[] = {"\n\n"};
    pgd_request_desc desc = {.size = sizeof(desc)};
    pgd_engine_defaults(engine, &desc); // what the model's makers recommend
    desc.prompt = prompt;
    desc.no_special = 1; // the template has put them there
    desc.max_tokens = 64;
    desc.temperature = 0.0f;
    desc.stop = stop;
    desc.n_stop = 1;
    desc.on_text = on_text;
    pgd_request *request = NULL;
    pgd_status status = pgd_engine_submit(engine, &desc, &request);
    while (status == PGD_OK && pgd_engine_busy(engine) > 0) {
        status = pgd_engine_step(engine);
    }
    pgd_request_release(request);
    return status;
}

int main(int argc, char **argv) {
    const char *question = argc > 3 ? argv[3] : "What is the capital of France?";
    const pgd_engine_options options = {
        .size = sizeof(options),
        .model = argc > 1 ? argv[1] : NULL,
        .device = argc > 2 ? argv[2] : NULL,
        .memory = "1GiB",
        .max_num_seqs = 1,
    };
    char messages[512];
    char *prompt = NULL;
    pgd_engine *engine = NULL;
    // A question with quotes or backslashes would have to be escaped for JSON here.
    snprintf(messages, sizeof(messages), "[{\"role\":\"user\",\"content\":\"%s\"}]", question);
    pgd_status status = pgd_engine_create(&options, &engine);
    if (status == PGD_OK) {
        status = pgd_engine_chat_prompt(engine, messages, NULL, &prompt);
    }
    if (status == PGD_OK) {
        status = run(engine, prompt);
    }
    if (status != PGD_OK) {
        fprintf(stderr, "streaming: %s\n", pgd_last_error());
    }
    pgd_free(prompt);
    pgd_engine_destroy(engine);
    return status == PGD_OK ? 0 : 1;
}
