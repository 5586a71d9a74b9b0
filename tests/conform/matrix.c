// Running the cells of a matrix.
#include "matrix.h"

#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

#include "base/clock.h"
#include "engine.h"
#include "os/file.h"

// ---- a cell ------------------------------------------------------------------------------------

// What the child works on and gives back, in memory that both see.
static struct {
    const char *model;
    int32_t check, tokens, repeats;
    matrix_cell *cell;
} job;

static uint64_t hash_ids(uint64_t hash, const int32_t *ids, int32_t n) {
    for (int32_t i = 0; i < n; i++) {
        hash = (hash ^ (uint32_t)ids[i]) * UINT64_C(1099511628211); // FNV-1a
    }
    return hash;
}

static void read_tokens(conform *c, pgd_engine *e) {
    static engine_case cases[4];
    pgd_engine_info info = {.size = sizeof(info)};
    pgd_engine_get_info(e, &info);
    engine_draw(20, info.vocab_size, 20, cases, 4);
    job.cell->tokens = UINT64_C(14695981039346656037);
    for (int32_t i = 0; i < 4; i++) {
        cases[i].temperature = cases[i].penalty = 0;
        cases[i].max_tokens = job.tokens;
    }
    engine_learn(c, e, cases, 4);
    for (int32_t i = 0; i < 4; i++) {
        job.cell->tokens = hash_ids(job.cell->tokens, cases[i].want, cases[i].n_want);
    }
    conform_note(c, "%016llx", (unsigned long long)job.cell->tokens);
}

static void read_speed(conform *c, pgd_engine *e) {
    static engine_case one;
    double rates[50];
    pgd_engine_info info = {.size = sizeof(info)};
    pgd_engine_get_info(e, &info);
    for (int32_t i = -1; i < job.repeats; i++) { // the first one warms up
        engine_draw(7, info.vocab_size, 20, &one, 1);
        one.temperature = one.penalty = 0;
        one.max_tokens = job.tokens;
        const uint64_t start = pgd_clock_ns();
        engine_learn(c, e, &one, 1);
        const double now = job.tokens / ((double)(pgd_clock_ns() - start) * 1e-9);
        int32_t at = i;
        for (; at > 0 && rates[at - 1] > now; at--) {
            rates[at] = rates[at - 1];
        }
        if (i >= 0) {
            rates[at] = now;
        }
    }
    job.cell->low = rates[0];
    job.cell->median = rates[job.repeats / 2];
    job.cell->high = rates[job.repeats - 1];
    conform_note(c, "%.1f tokens/s (%.1f to %.1f)", job.cell->median, job.cell->low,
                 job.cell->high);
}

// The golden logits of the first prompt, base64 of f32.
static int32_t read_logits(pgd_str text, float *out, int32_t n) {
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    unsigned char *to = (unsigned char *)out;
    uint32_t bits = 0, have = 0;
    size_t done = 0;
    for (size_t i = 0; i < text.len && done < (size_t)n * sizeof(float); i++) {
        const char *at = memchr(digits, text.ptr[i], 64);
        bits = bits << 6 | (uint32_t)(at != NULL ? at - digits : 0);
        have += 6;
        if (have >= 8) {
            have -= 8;
            to[done++] = (unsigned char)(bits >> have);
        }
    }
    return done == (size_t)n * sizeof(float);
}

static void read_nmse(conform *c, pgd_engine *e) {
    char path[1200];
    pgd_json_doc *doc = NULL;
    pgd_engine_info info = {.size = sizeof(info)};
    pgd_str text = {0};
    double error = 0, size = 0;
    int32_t ids[ENGINE_IDS], n = 0;
    pgd_engine_get_info(e, &info);
    snprintf(path, sizeof(path), "%s/golden.json", job.model);
    if (pgd_os_kind(path, NULL) != PGD_OS_REGULAR) {
        conform_skip(c, "the model has no golden logits");
    }
    MUST_OK(c, pgd_json_read_file(path, &doc), "reading the golden logits");
    const pgd_json *list = pgd_json_get(pgd_json_root(doc), "prompts");
    const pgd_json *first = pgd_json_is(list, PGD_JSON_ARRAY) && list->n > 0 ? list->items : NULL;
    const pgd_json *prompt = pgd_json_get(first, "ids");
    float *want = conform_room(c, (uint64_t)info.vocab_size * sizeof(*want));
    MUST(c,
         pgd_json_is(prompt, PGD_JSON_ARRAY) &&
             pgd_json_to_str(pgd_json_get(first, "logits"), &text) &&
             read_logits(text, want, info.vocab_size),
         "the golden file has no logits");
    for (uint32_t i = 0; i < prompt->n && n < ENGINE_IDS; i++) {
        int64_t id = 0;
        (void)pgd_json_to_i64(&prompt->items[i], &id);
        ids[n++] = (int32_t)id;
    }
    const pgd_request_desc desc = {
        .size = sizeof(desc), .ids = ids, .n_ids = n, .max_tokens = 1, .ignore_eos = 1};
    pgd_request *r = NULL;
    MUST_OK(c, pgd_engine_submit(e, &desc, &r), "submitting");
    while (pgd_engine_busy(e) > 0) {
        MUST_OK(c, pgd_engine_step(e), "a step");
    }
    const float *got = pgd_request_logits(r);
    for (int32_t i = 0; i < info.vocab_size; i++) {
        error += ((double)got[i] - (double)want[i]) * ((double)got[i] - (double)want[i]);
        size += (double)want[i] * (double)want[i];
    }
    job.cell->nmse = error / size;
    conform_note(c, "NMSE %.2e of the golden logits", job.cell->nmse);
    MUST(c, job.cell->nmse < 1e-3, "NMSE %.2e of the golden logits", job.cell->nmse);
}

void conform_matrix_cell(conform *c) {
    pgd_engine *e = engine_open(
        c, job.model, (pgd_engine_options){.max_model_len = 96, .allow_slow = 1, .keep_logits = 1});
    if (job.check == MATRIX_TOKENS) {
        read_tokens(c, e);
    } else if (job.check == MATRIX_NMSE) {
        read_nmse(c, e);
    } else {
        read_speed(c, e);
    }
    pgd_engine_destroy(e);
}

// ---- all of them -------------------------------------------------------------------------------

static matrix_cell *add_cell(matrix_report *r, const matrix_device *d, const char *model,
                             int32_t check) {
    matrix_cell *cell = &r->cells[r->n < MATRIX_CELLS - 1 ? r->n++ : MATRIX_CELLS - 1];
    *cell = (matrix_cell){.check = check};
    snprintf(cell->device, sizeof(cell->device), "%s", d->uri);
    snprintf(cell->kind, sizeof(cell->kind), "%s", d->kind);
    snprintf(cell->model, sizeof(cell->model), "%s", model);
    return cell;
}

// Every check of the level, quickly.
static void run_level(const conform_options *o, conform_shared *shared, const matrix_device *d,
                      matrix_cell *cell) {
    conform_options quick = *o;
    quick.level = d->level;
    quick.n_only = 0;
    for (int32_t i = 0; i < conform_n_checks; i++) {
        if (conform_checks[i].level <= d->level) {
            conform_run(&quick, &conform_checks[i], shared, &shared->results[i]);
        }
        if (shared->results[i].state == CONFORM_FAILED) {
            cell->state = CONFORM_FAILED;
            snprintf(cell->note, sizeof(cell->note), "%s: %.*s", conform_checks[i].name, 140,
                     shared->results[i].text);
            cell->note[strcspn(cell->note, "\n")] = '\0';
            return;
        }
    }
    cell->state = CONFORM_PASSED;
    snprintf(cell->note, sizeof(cell->note), "level %d reached", (int)d->level);
}

static void run_device(const conform_options *o, const matrix *m, const matrix_device *d,
                       conform_shared *shared, matrix_report *r) {
    const conform_check check = {.name = "matrix", .run = conform_matrix_cell};
    conform_options own = *o;
    own.plugin = d->plugin;
    own.device = d->uri;
    const int32_t no_plugin = d->plugin[0] == '\0';
    const int32_t absent = no_plugin || conform_is_missing(&own);
    for (int32_t k = 0; k < m->n_checks; k++) {
        const int32_t per_model = m->checks[k] != MATRIX_LEVEL;
        for (int32_t i = 0; i < (per_model ? m->n_models : 1); i++) {
            matrix_cell *cell = add_cell(r, d, per_model ? m->model_names[i] : "-", m->checks[k]);
            conform_result *result = &shared->results[0];
            if (absent) {
                cell->state = CONFORM_SKIPPED;
                snprintf(cell->note, sizeof(cell->note), "%s%.150s",
                         no_plugin ? "its plugin is not here: " : "this machine has no such device",
                         no_plugin ? d->searched : "");
                continue;
            }
            if (!per_model) {
                run_level(&own, shared, d, cell);
                continue;
            }
            job.model = m->models[i], job.check = m->checks[k], job.cell = cell;
            job.tokens = m->tokens, job.repeats = m->repeats;
            conform_run(&own, &check, shared, result);
            cell->state = result->state;
            snprintf(cell->note, sizeof(cell->note), "%.199s",
                     result->state == CONFORM_FAILED ? result->text : result->note);
            cell->note[strcspn(cell->note, "\n")] = '\0';
        }
    }
}

// The last line, and the exit status.
static int say_verdict(const matrix_report *r, int32_t worse, int32_t compared) {
    int32_t n[CONFORM_SKIPPED + 1] = {0};
    for (int32_t i = 0; i < r->n; i++) {
        n[r->cells[i].state]++;
    }
    const int32_t passed = n[CONFORM_PASSED], failed = n[CONFORM_FAILED];
    printf("\nverdict: %s (%d passed, %d failed, %d skipped%s",
           failed > 0    ? "failed"
           : worse > 0   ? "worse than before"
           : passed == 0 ? "nothing was run, this machine has none of it"
           : compared    ? "as before or better"
                         : "passed",
           (int)passed, (int)failed, (int)n[CONFORM_SKIPPED], compared ? "" : ")\n");
    if (compared) {
        printf(", %d worse)\n", (int)worse);
    }
    return failed > 0 || worse > 0;
}

int matrix_run(const conform_options *o, const char *path, const char *against) {
    static matrix m;
    pgd_json_doc *saved = NULL;
    conform_shared *shared =
        mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    matrix_report *r =
        mmap(NULL, sizeof(*r), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    int code = matrix_read(o, path, &m);
    code = code == 0 && against != NULL ? matrix_read_saved(against, &saved) : code;
    if (code != 0 || shared == MAP_FAILED || r == MAP_FAILED) {
        return code != 0 ? code : 1;
    }
    for (int32_t i = 0; i < m.n_devices; i++) {
        run_device(o, &m, &m.devices[i], shared, r);
    }
    matrix_print(r);
    if (o->json != NULL && matrix_write(o->json, r) != PGD_OK) {
        fprintf(stderr, "pagoda-conform: %s\n", pgd_fail_last());
        code = 1;
    } else {
        const int32_t worse = saved != NULL ? matrix_compare(against, saved, r) : 0;
        code = say_verdict(r, worse, saved != NULL);
    }
    pgd_json_free(saved);
    return code;
}
