// Reading a matrix and running its cells.
#include "matrix.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "base/clock.h"
#include "cli/config_file.h"
#include "engine.h"
#include "os/file.h"

const char *const matrix_check_names[MATRIX_CHECKS] = {"level", "tokens", "nmse", "speed"};

// ---- the file ----------------------------------------------------------------------------------

static int bad(const char *path, const char *what, const char *value, const char *allowed) {
    fprintf(stderr, "pagoda-conform: %s: %s '%s': %s\n", path, what, value, allowed);
    return 2;
}

static int only_keys(const char *path, const pgd_json *v, const char *const *keys, size_t n,
                     const char *allowed) {
    for (uint32_t i = 0; pgd_json_is(v, PGD_JSON_OBJECT) && i < v->n; i++) {
        size_t k = 0;
        while (k < n && !pgd_str_is(v->keys[i], keys[k])) {
            k++;
        }
        if (k == n) {
            char key[64];
            snprintf(key, sizeof(key), "%.*s", (int)v->keys[i].len, v->keys[i].ptr);
            return bad(path, "unknown key", key, allowed);
        }
    }
    return 0;
}

static void put(char *to, size_t cap, const pgd_json *v, const char *otherwise) {
    pgd_str text;
    if (pgd_json_to_str(v, &text)) {
        snprintf(to, cap, "%.*s", (int)text.len, text.ptr);
    } else {
        snprintf(to, cap, "%s", otherwise);
    }
}

// A plugin by path (relative: to the matrix), or libpgd-KIND.so in lib/pagoda beside the tool.
static void find_plugin(const char *path, const pgd_json *v, matrix_device *d) {
    char given[600], where[1800], program[1024] = "";
    const size_t kind = strcspn(d->uri, ":{");
    put(given, sizeof(given), v, "");
    const char *base = given[0] != '\0' ? path : program;
    if (given[0] == '\0') {
        if (pgd_os_program_path(program, sizeof(program)) != PGD_OK) {
            program[0] = '\0';
        }
        snprintf(given, sizeof(given), "../lib/pagoda/libpgd-%.*s.so", (int)kind, d->uri);
    }
    const char *slash = strrchr(base, '/');
    if (given[0] == '/' || slash == NULL) {
        snprintf(where, sizeof(where), "%s", given);
    } else {
        snprintf(where, sizeof(where), "%.*s/%s", (int)(slash - base), base, given);
    }
    if (pgd_os_real_path(where, d->plugin, sizeof(d->plugin)) != PGD_OK) {
        d->plugin[0] = '\0';
    }
}

static int read_device(const char *path, const pgd_json *v, matrix_device *d) {
    static const char *const keys[] = {"device", "plugin", "kind", "level"};
    int64_t level = 2;
    if (!pgd_json_is(v, PGD_JSON_OBJECT)) {
        return bad(path, "devices", "", "each is a mapping with the key device");
    }
    if (only_keys(path, v, keys, 4, "a device has device, plugin, kind, level") != 0) {
        return 2;
    }
    put(d->uri, sizeof(d->uri), pgd_json_get(v, "device"), "");
    put(d->kind, sizeof(d->kind), pgd_json_get(v, "kind"), "real");
    if (d->uri[0] == '\0') {
        return bad(path, "device", "", "a device needs its name, for example cpu:0");
    }
    if (strcmp(d->kind, "real") != 0 && strcmp(d->kind, "double") != 0 &&
        strcmp(d->kind, "null") != 0) {
        return bad(path, "kind", d->kind, "allowed are real, double, null");
    }
    if (pgd_json_get(v, "level") != NULL &&
        (!pgd_json_to_i64(pgd_json_get(v, "level"), &level) || level < 0 || level > 4)) {
        return bad(path, "level", d->uri, "a level is 0 to 4");
    }
    d->level = (int32_t)level;
    find_plugin(path, pgd_json_get(v, "plugin"), d);
    return 0;
}

// A model by the name of one that comes with the tool, or a folder (relative: to the matrix).
static int read_model(const conform_options *o, const char *path, const pgd_json *v, matrix *m) {
    char name[600], where[2000], config[2100];
    const char *slash = strrchr(path, '/');
    put(name, sizeof(name), v, "");
    snprintf(where, sizeof(where), "%s/%s", o->folder, name);
    snprintf(config, sizeof(config), "%s/config.json", where);
    if (pgd_os_kind(config, NULL) != PGD_OS_REGULAR) {
        snprintf(where, sizeof(where), "%.*s/%s", slash != NULL ? (int)(slash - path) : 1,
                 slash != NULL ? path : ".", name);
        snprintf(config, sizeof(config), "%s/config.json", name[0] == '/' ? name : where);
    }
    if (name[0] == '\0' || pgd_os_kind(config, NULL) != PGD_OS_REGULAR) {
        return bad(path, "model", name, "there is no such model with the tool, and no such folder");
    }
    *strrchr(config, '/') = '\0';
    snprintf(m->models[m->n_models], sizeof(m->models[0]), "%.1023s", config);
    slash = strrchr(name, '/');
    snprintf(m->model_names[m->n_models], sizeof(m->model_names[0]), "%.63s",
             slash != NULL ? slash + 1 : name);
    m->n_models++;
    return 0;
}

static int read_check(const char *path, const pgd_json *v, matrix *m) {
    char name[40];
    put(name, sizeof(name), v, "");
    for (int32_t i = 0; i < MATRIX_CHECKS; i++) {
        if (strcmp(name, matrix_check_names[i]) == 0 && m->n_checks < MATRIX_CHECKS) {
            m->checks[m->n_checks++] = i;
            return 0;
        }
    }
    return bad(path, "check", name, "allowed are level, tokens, nmse, speed");
}

static int read_root(const conform_options *o, const char *path, const pgd_json *root,
                     matrix *out) {
    static const char *const keys[] = {"devices", "models", "checks", "tokens", "repeats"};
    const pgd_json *lists[3];
    int64_t tokens = 32, repeats = 5;
    if (!pgd_json_is(root, PGD_JSON_OBJECT)) {
        return bad(path, "matrix", "", "it is a mapping with devices, models, checks");
    }
    if (only_keys(path, root, keys, 5, "there are devices, models, checks, tokens, repeats")) {
        return 2;
    }
    for (int32_t i = 0; i < 3; i++) {
        lists[i] = pgd_json_get(root, keys[i]);
        if (!pgd_json_is(lists[i], PGD_JSON_ARRAY) || lists[i]->n == 0 ||
            lists[i]->n > MATRIX_LIST) {
            return bad(path, "key", keys[i], "a list of 1 to 32 entries");
        }
    }
    (void)pgd_json_to_i64(pgd_json_get(root, "tokens"), &tokens);
    (void)pgd_json_to_i64(pgd_json_get(root, "repeats"), &repeats);
    if (tokens < 1 || tokens > 64 || repeats < 1 || repeats > 50) {
        return bad(path, "tokens or repeats", "", "tokens are 1 to 64, repeats 1 to 50");
    }
    out->tokens = (int32_t)tokens;
    out->repeats = (int32_t)repeats;
    for (uint32_t i = 0; i < lists[0]->n; i++) {
        if (read_device(path, &lists[0]->items[i], &out->devices[out->n_devices++]) != 0) {
            return 2;
        }
    }
    for (uint32_t i = 0; i < lists[1]->n; i++) {
        if (read_model(o, path, &lists[1]->items[i], out) != 0) {
            return 2;
        }
    }
    for (uint32_t i = 0; i < lists[2]->n; i++) {
        if (read_check(path, &lists[2]->items[i], out) != 0) {
            return 2;
        }
    }
    return 0;
}

int matrix_read(const conform_options *o, const char *path, matrix *out) {
    pgd_json_doc *doc = NULL;
    int code;
    memset(out, 0, sizeof(*out));
    if (cli_config_file_read(path, &doc) != PGD_OK) {
        return bad(path, "matrix", "", pgd_fail_last());
    }
    code = read_root(o, path, pgd_json_root(doc), out);
    pgd_json_free(doc);
    return code;
}

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
    const char *absent = d->plugin[0] == '\0'       ? "its plugin is not here"
                         : conform_is_missing(&own) ? "this machine has no such device"
                                                    : NULL;
    for (int32_t k = 0; k < m->n_checks; k++) {
        const int32_t per_model = m->checks[k] != MATRIX_LEVEL;
        for (int32_t i = 0; i < (per_model ? m->n_models : 1); i++) {
            matrix_cell *cell = add_cell(r, d, per_model ? m->model_names[i] : "-", m->checks[k]);
            conform_result *result = &shared->results[0];
            if (absent != NULL) {
                cell->state = CONFORM_SKIPPED;
                snprintf(cell->note, sizeof(cell->note), "%s", absent);
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

int matrix_run(const conform_options *o, const char *path, const char *against) {
    static matrix m;
    conform_options own = *o;
    conform_shared *shared =
        mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    matrix_report *r =
        mmap(NULL, sizeof(*r), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    int32_t failed = 0, worse = 0;
    int code = matrix_read(o, path, &m);
    if (code != 0 || shared == MAP_FAILED || r == MAP_FAILED) {
        return code != 0 ? code : 1;
    }
    for (int32_t i = 0; i < m.n_devices; i++) {
        run_device(&own, &m, &m.devices[i], shared, r);
    }
    for (int32_t i = 0; i < r->n; i++) {
        failed += r->cells[i].state == CONFORM_FAILED;
    }
    matrix_print(r);
    if (own.json != NULL && matrix_write(own.json, r) != PGD_OK) {
        fprintf(stderr, "pagoda-conform: %s\n", pgd_fail_last());
        return 1;
    }
    if (against != NULL) {
        worse = matrix_compare(against, r);
        if (worse < 0) {
            return 2;
        }
    }
    printf("\nverdict: %s\n", failed > 0        ? "failed"
                              : worse > 0       ? "worse than before"
                              : against != NULL ? "as before or better"
                                                : "passed");
    return failed > 0 || worse > 0;
}
