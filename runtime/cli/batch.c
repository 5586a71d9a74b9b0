// pagoda batch: offline OpenAI batch lines. A line is written when its request ends, so a torn run
// goes on where it was: lines whose custom_id already stands in the output are skipped, and an
// unfinished last line is cut off.
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/fail.h"
#include "base/map.h"
#include "base/mem.h"
#include "cli/batch_body.h"
#include "cli/common.h"
#include "os/file.h"

#define DEFAULT_SEQS 64
#define WINDOW       4 // requests queued for each one running

typedef struct batch_values {
    const char *input;
    const char *output;
    int32_t quiet;
} batch_values;

static batch_values values;

static const cli_flag batch_flags[] = {
    CLI_FLAG_TEXT('i', "input", "FILE", &values.input, "lines of requests, - for stdin"),
    CLI_FLAG_TEXT('o', "output", "FILE", &values.output,
                  "lines of answers; finished ones are kept"),
    CLI_FLAG_SWITCH('q', "quiet", &values.quiet, "no figures on stderr"),
    {0},
};

typedef struct batch_item {
    pgd_json_doc *doc;
    pgd_str custom_id;
    const pgd_json *body;
    pgd_request *request;
    int32_t is_chat;
    int32_t done;
} batch_item;

typedef struct batch_job {
    pgd_text input;
    pgd_text old; // the output as it was
    pgd_map *seen;
    batch_item *items;
    size_t n;
    size_t n_done;
    uint64_t n_tokens;
    pgd_os_file out;
    pgd_engine *engine;
    const char *model; // as the engine found it
} batch_job;

// ---- input -------------------------------------------------------------------------------------

static size_t count_lines(pgd_str s) {
    size_t n = 1;
    for (size_t i = 0; i < s.len; i++) {
        n += s.ptr[i] == '\n';
    }
    return n;
}

static pgd_status read_line(batch_job *job, pgd_str line, size_t number) {
    char what[64];
    snprintf(what, sizeof(what), "line %zu of the input", number);
    batch_item *item = &job->items[job->n];
    PGD_TRY(pgd_json_parse(line, what, 0, &item->doc));
    job->n++;
    const pgd_json *root = pgd_json_root(item->doc);
    pgd_str url;
    pgd_str method;
    uint64_t first = 0;
    if (!pgd_json_to_str(pgd_json_get(root, "custom_id"), &item->custom_id)) {
        return pgd_fail(PGD_INVALID, "%s: custom_id is missing; a string is needed", what);
    }
    if (!pgd_json_to_str(pgd_json_get(root, "method"), &method) || !pgd_str_is(method, "POST")) {
        return pgd_fail(PGD_INVALID, "%s: method must be \"POST\"", what);
    }
    if (!pgd_json_to_str(pgd_json_get(root, "url"), &url) ||
        (!pgd_str_is(url, "/v1/chat/completions") && !pgd_str_is(url, "/v1/completions"))) {
        return pgd_fail(PGD_INVALID,
                        "%s: url must be \"/v1/chat/completions\" or \"/v1/completions\"", what);
    }
    item->is_chat = pgd_str_is(url, "/v1/chat/completions");
    item->body = pgd_json_get(root, "body");
    if (!pgd_json_is(item->body, PGD_JSON_OBJECT)) {
        return pgd_fail(PGD_INVALID, "%s: body is missing; an object is needed", what);
    }
    if (pgd_map_get(job->seen, item->custom_id, &first) && first < SIZE_MAX) {
        return pgd_fail(PGD_INVALID, "%s: custom_id \"%s\" stands on line %zu already", what,
                        item->custom_id.ptr, (size_t)first);
    }
    return pgd_map_set(job->seen, item->custom_id, number);
}

static pgd_status read_lines(batch_job *job) {
    PGD_TRY(cli_read_input(values.input, &job->input));
    size_t n_lines = count_lines(pgd_text_view(&job->input));
    job->items = pgd_mem_alloc(n_lines, sizeof(*job->items));
    if (job->items == NULL) {
        return PGD_MEM_FAIL("the batch", n_lines * sizeof(*job->items));
    }
    PGD_TRY(pgd_map_create(n_lines, &job->seen));
    pgd_str rest = pgd_text_view(&job->input);
    for (size_t number = 1; rest.len > 0; number++) {
        pgd_str line = pgd_str_trim(pgd_str_cut(rest, '\n', &rest));
        if (line.len > 0) {
            PGD_TRY(read_line(job, line, number));
        }
    }
    return PGD_OK;
}

// ---- output ------------------------------------------------------------------------------------

static void mark_done(batch_job *job, pgd_str custom_id) {
    for (size_t i = 0; i < job->n; i++) {
        if (!job->items[i].done && pgd_str_equal(job->items[i].custom_id, custom_id)) {
            job->items[i].done = 1;
            job->n_done++;
            return;
        }
    }
}

// Reads what an earlier run wrote; cuts an unfinished last line off.
static pgd_status read_old(batch_job *job) {
    if (pgd_os_kind(values.output, NULL) == PGD_OS_NONE) {
        return PGD_OK;
    }
    PGD_TRY(cli_read_input(values.output, &job->old));
    pgd_str rest = pgd_text_view(&job->old);
    size_t whole = 0;
    for (size_t number = 1; rest.len > 0; number++) {
        pgd_str line = pgd_str_cut(rest, '\n', &rest);
        if (line.ptr + line.len == job->old.ptr + job->old.len) {
            break; // no newline: torn
        }
        whole += line.len + 1;
        pgd_json_doc *doc = NULL;
        pgd_str id;
        PGD_TRY(pgd_fail_note(pgd_json_parse(line, "a line", 0, &doc),
                              "reading line %zu of %s, which no batch wrote", number,
                              values.output));
        if (pgd_json_to_str(pgd_json_get(pgd_json_root(doc), "custom_id"), &id)) {
            mark_done(job, id);
        }
        pgd_json_free(doc);
    }
    return whole < job->old.len ? pgd_os_truncate(values.output, whole) : PGD_OK;
}

static pgd_status write_line(batch_job *job, batch_item *item, const char *refusal) {
    pgd_text t = {0};
    const cli_batch_line line = {
        .engine = job->engine,
        .model = job->model,
        .custom_id = item->custom_id,
        .request = item->request,
        .refusal = refusal,
        .is_chat = item->is_chat,
    };
    pgd_status status = cli_batch_add_answer(&line, &t);
    if (status == PGD_OK && pgd_os_write(job->out, t.ptr, t.len) != PGD_OK) {
        status = pgd_fail(PGD_UNAVAILABLE, "%s cannot be written", values.output);
    }
    pgd_text_free(&t);
    item->done = 1;
    job->n_done++;
    cli_progress("batch", job->n_done, job->n, "requests");
    return status;
}

// ---- the run -----------------------------------------------------------------------------------

static pgd_status start(batch_job *job, batch_item *item) {
    pgd_status status = cli_batch_submit(job->engine, item->body, item->is_chat, &item->request);
    if (status == PGD_OK) {
        return PGD_OK;
    }
    if (status != PGD_INVALID && status != PGD_OUT_OF_RANGE && status != PGD_UNSUPPORTED &&
        status != PGD_NOT_FOUND) {
        return status;
    }
    return write_line(job, item, pgd_fail_text(status));
}

static pgd_status collect(batch_job *job, batch_item *item) {
    pgd_output o = {.size = sizeof(o)};
    const char *error = NULL;
    pgd_request_output(item->request, &o);
    if (o.n_running > 0) {
        return PGD_OK;
    }
    for (int32_t i = 0, n = o.n; i < n; i++) {
        pgd_request_choice(item->request, i, &o);
        job->n_tokens += (uint64_t)o.n_ids;
        error = o.error != NULL ? o.error : error;
    }
    pgd_status status = write_line(job, item, error);
    pgd_request_release(item->request);
    item->request = NULL;
    return status;
}

static pgd_status run_items(batch_job *job, int32_t max_queued) {
    pgd_engine_info info = {.size = sizeof(info)};
    pgd_engine_get_info(job->engine, &info);
    job->model = info.model;
    size_t next = 0;
    size_t oldest = 0;
    while (job->n_done < job->n) {
        for (; next < job->n && pgd_engine_busy(job->engine) < max_queued; next++) {
            if (!job->items[next].done) {
                PGD_TRY(start(job, &job->items[next]));
            }
        }
        PGD_TRY(pgd_engine_step(job->engine));
        for (size_t i = oldest; i < next; i++) {
            if (job->items[i].request != NULL) {
                PGD_TRY(collect(job, &job->items[i]));
            }
            oldest += i == oldest && job->items[i].done;
        }
    }
    return PGD_OK;
}

static pgd_status run_job(batch_job *job, const char *model) {
    PGD_TRY(read_lines(job));
    PGD_TRY(read_old(job));
    size_t n_before = job->n_done;
    if (n_before == job->n) {
        return PGD_OK;
    }
    int32_t seqs = cli_engine.max_num_seqs != 0 ? cli_engine.max_num_seqs : DEFAULT_SEQS;
    PGD_TRY(cli_open_engine(model, seqs, &job->engine));
    uint64_t begin = pgd_clock_ns();
    pgd_status status = pgd_os_open_write(values.output, 1, &job->out);
    if (status != PGD_OK) {
        status = pgd_fail(status, "%s cannot be written", values.output);
    } else {
        status = run_items(job, seqs * WINDOW);
    }
    double seconds = (double)(pgd_clock_ns() - begin) / 1e9;
    if (status == PGD_OK && !values.quiet) {
        fprintf(stderr, "[%zu requests (%zu were done before), %llu tokens, %.1f tokens/s]\n",
                job->n, n_before, (unsigned long long)job->n_tokens,
                (double)job->n_tokens / seconds);
    }
    pgd_os_close(&job->out);
    pgd_engine_destroy(job->engine);
    return status;
}

static void free_job(batch_job *job) {
    for (size_t i = 0; job->items != NULL && i < job->n; i++) {
        pgd_json_free(job->items[i].doc);
    }
    pgd_mem_free(job->items);
    pgd_map_destroy(job->seen);
    pgd_text_free(&job->input);
    pgd_text_free(&job->old);
}

static pgd_status check_values(void) {
    if (values.input == NULL) {
        return pgd_fail(PGD_INVALID, "no input; give --input FILE (-i)");
    }
    if (values.output == NULL) {
        return pgd_fail(PGD_INVALID, "no output; give --output FILE (-o)");
    }
    return PGD_OK;
}

int cli_batch(int argc, char **argv) {
    cli_args args = {
        .command = cli_find("batch"),
        .flags = {batch_flags, cli_sampling_flags, cli_engine_flags},
        .titles = {"input and output", "sampling, where a line does not say", "engine"},
        .n_groups = 3,
        .max_positional = 1,
    };
    batch_job job = {.out = {-1}};
    pgd_status status = cli_parse(&args, argc, argv);
    if (status == PGD_OK && args.help) {
        return 0;
    }
    if (status == PGD_OK) {
        status = check_values();
    }
    if (status == PGD_OK) {
        status = run_job(&job, args.positional[0]);
    }
    int code = status == PGD_OK ? 0 : cli_failed(status);
    free_job(&job);
    return code;
}
