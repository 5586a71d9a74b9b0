// An engine on its own thread: the main thread submits, looks on and waits; callbacks collect what
// comes. A server does the same, and its callbacks write to its event loop's queues.
//
//   async [MODEL [DEVICE]]
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include <pagoda/pagoda.h>

#define N_REQUESTS 4

typedef struct job {
    char text[1024];
    size_t len;
    int32_t n_tokens;
    char reason[16];
    pgd_request *request;
} job;

// On the engine's thread: copies and returns.
static void on_delta(void *arg, pgd_request *request, const pgd_delta *delta) {
    job *j = arg;
    (void)request;
    size_t room = sizeof(j->text) - 1 - j->len;
    size_t n = delta->text_len < room ? delta->text_len : room;
    memcpy(j->text + j->len, delta->text, n);
    j->len += n;
    j->n_tokens = delta->n_output;
    if (delta->done) {
        snprintf(j->reason, sizeof(j->reason), "%s", delta->finish_reason);
    }
}

static pgd_status submit_all(pgd_async *async, job *jobs) {
    static const char *const prompts[N_REQUESTS] = {"Once upon a time", "The little dog",
                                                    "In the morning, Tom", "Far away"};
    for (int i = 0; i < N_REQUESTS; i++) {
        const pgd_request_desc desc = {
            .size = sizeof(desc),
            .prompt = prompts[i],
            .max_tokens = i == N_REQUESTS - 1 ? 100 : 24,
            .ignore_eos = 1,
            .on_delta = on_delta,
            .arg = &jobs[i],
        };
        PGD_TRY(pgd_async_submit(async, &desc, &jobs[i].request));
    }
    pgd_async_cancel(async, jobs[N_REQUESTS - 1].request); // somebody has gone away
    return PGD_OK;
}

int main(int argc, char **argv) {
    static job jobs[N_REQUESTS];
    const pgd_engine_options options = {
        .size = sizeof(options),
        .model = argc > 1 ? argv[1] : NULL,
        .device = argc > 2 ? argv[2] : NULL,
        .memory = "1GiB",
        .max_num_seqs = 4,
    };
    pgd_engine *engine = NULL;
    pgd_async *async = NULL;
    pgd_status status = pgd_engine_create(&options, &engine);
    if (status == PGD_OK) {
        status = pgd_async_create(engine, &async);
    }
    if (status == PGD_OK) {
        status = submit_all(async, jobs);
    }
    if (status == PGD_OK) {
        status = pgd_async_drain(async, UINT64_MAX);
    }
    if (status != PGD_OK) {
        fprintf(stderr, "async: %s\n", pgd_last_error());
    }
    pgd_async_destroy(async); // all callbacks have been called
    for (int i = 0; i < N_REQUESTS && status == PGD_OK; i++) {
        printf("%s: %" PRId32 " tokens:%.*s\n", jobs[i].reason, jobs[i].n_tokens, (int)jobs[i].len,
               jobs[i].text);
    }
    pgd_engine_destroy(engine); // with the requests that were not released
    return status == PGD_OK ? 0 : 1;
}
