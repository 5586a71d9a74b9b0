// The report of a matrix: on the terminal, as JSON, and against an earlier one.
#include "matrix.h"

#include <stdio.h>
#include <string.h>

#include "os/file.h"

void matrix_print(const matrix_report *r) {
    printf("%-22s %-7s %-18s %-7s %-8s %s\n", "device", "kind", "model", "check", "", "");
    for (int32_t i = 0; i < r->n; i++) {
        const matrix_cell *c = &r->cells[i];
        printf("%-22s %-7s %-18s %-7s %-8s %s\n", c->device, c->kind, c->model,
               matrix_check_names[c->check], conform_state_name(c->state), c->note);
    }
}

static pgd_status add_text(pgd_text *t, const char *key, const char *value) {
    PGD_TRY(pgd_text_format(t, "\"%s\": ", key));
    PGD_TRY(pgd_json_add_str(t, pgd_str_of(value)));
    return pgd_text_format(t, ", ");
}

static pgd_status add_cell(pgd_text *t, const matrix_cell *c) {
    PGD_TRY(add_text(t, "device", c->device));
    PGD_TRY(add_text(t, "kind", c->kind));
    PGD_TRY(add_text(t, "model", c->model));
    PGD_TRY(add_text(t, "check", matrix_check_names[c->check]));
    PGD_TRY(add_text(t, "result", conform_state_name(c->state)));
    PGD_TRY(add_text(t, "note", c->note));
    PGD_TRY(
        pgd_text_format(t, "\"tokens\": \"%016llx\", \"nmse\": ", (unsigned long long)c->tokens));
    PGD_TRY(pgd_json_add_f64(t, c->nmse));
    PGD_TRY(pgd_text_format(t, ", \"tokens_per_s\": ["));
    PGD_TRY(pgd_json_add_f64(t, c->low));
    PGD_TRY(pgd_text_format(t, ", "));
    PGD_TRY(pgd_json_add_f64(t, c->median));
    PGD_TRY(pgd_text_format(t, ", "));
    PGD_TRY(pgd_json_add_f64(t, c->high));
    return pgd_text_format(t, "]}");
}

pgd_status matrix_write(const char *path, const matrix_report *r) {
    pgd_text t = {0};
    pgd_os_file f = {-1};
    PGD_TRY(pgd_text_format(&t, "{\"schema\": 1, \"matrix\": ["));
    for (int32_t i = 0; i < r->n; i++) {
        PGD_TRY(pgd_text_format(&t, "%s\n {", i > 0 ? "," : ""));
        PGD_TRY(add_cell(&t, &r->cells[i]));
    }
    PGD_TRY(pgd_text_format(&t, "]}\n"));
    pgd_status code = pgd_os_open_write(path, 0, &f);
    if (code == PGD_OK) {
        code = pgd_os_write(f, t.ptr, t.len);
        pgd_os_close(&f);
    }
    pgd_text_free(&t);
    return code == PGD_OK ? code : pgd_fail(code, "%s cannot be written", path);
}

// ---- against an earlier report -----------------------------------------------------------------

static int32_t is(const pgd_json *cell, const char *key, const char *text) {
    pgd_str s;
    return pgd_json_to_str(pgd_json_get(cell, key), &s) && pgd_str_is(s, text);
}

static const pgd_json *find(const pgd_json *list, const matrix_cell *c) {
    for (uint32_t i = 0; i < list->n; i++) {
        const pgd_json *v = &list->items[i];
        if (is(v, "device", c->device) && is(v, "model", c->model) &&
            is(v, "check", matrix_check_names[c->check])) {
            return v;
        }
    }
    return NULL;
}

static void say(const matrix_cell *c, const char *what) {
    printf("  %s %s %s: %s\n", c->device, c->model, matrix_check_names[c->check], what);
}

// Bands that overlap are noise. 1 = slower.
static int32_t compare_speed(const matrix_cell *c, const pgd_json *was) {
    const pgd_json *band = pgd_json_get(was, "tokens_per_s");
    double low = 0, median = 0, high = 0;
    char text[160];
    if (!pgd_json_is(band, PGD_JSON_ARRAY) || band->n != 3 ||
        !pgd_json_to_f64(&band->items[0], &low) || !pgd_json_to_f64(&band->items[1], &median) ||
        !pgd_json_to_f64(&band->items[2], &high)) {
        return 0;
    }
    const int32_t slower = c->high < low && c->median < 0.95 * median;
    snprintf(text, sizeof(text), "%s: %.1f tokens/s (%.1f to %.1f), was %.1f (%.1f to %.1f)",
             slower                                       ? "SLOWER"
             : c->low > high && c->median > 1.05 * median ? "faster"
                                                          : "as fast, within the noise",
             c->median, c->low, c->high, median, low, high);
    say(c, text);
    return slower;
}

static int32_t compare_cell(const matrix_cell *c, const pgd_json *was) {
    char tokens[32], text[160];
    double nmse = 0;
    snprintf(tokens, sizeof(tokens), "%016llx", (unsigned long long)c->tokens);
    if (c->state != CONFORM_PASSED) {
        say(c, c->state == CONFORM_FAILED ? "FAILED, it passed" : "NOT RUN, it passed");
        return 1;
    }
    if (c->check == MATRIX_TOKENS && !is(was, "tokens", tokens)) {
        say(c, "OTHER TOKENS than before");
        return 1;
    }
    (void)pgd_json_to_f64(pgd_json_get(was, "nmse"), &nmse);
    if (c->check == MATRIX_NMSE && c->nmse > 4 * nmse + 1e-12) {
        snprintf(text, sizeof(text), "LESS EXACT: NMSE %.2e, was %.2e", c->nmse, nmse);
        say(c, text);
        return 1;
    }
    return c->check == MATRIX_SPEED ? compare_speed(c, was) : 0;
}

int matrix_read_saved(const char *path, pgd_json_doc **out) {
    if (pgd_json_read_file(path, out) != PGD_OK) {
        fprintf(stderr, "pagoda-conform: --against: %s\n", pgd_fail_last());
        return 2;
    }
    if (!pgd_json_is(pgd_json_get(pgd_json_root(*out), "matrix"), PGD_JSON_ARRAY)) {
        fprintf(stderr,
                "pagoda-conform: --against '%s': it is no report of a matrix; --matrix FILE --json "
                "REPORT writes one\n",
                path);
        pgd_json_free(*out);
        *out = NULL;
        return 2;
    }
    return 0;
}

static int32_t is_there(const matrix_report *now, const pgd_json *was) {
    for (int32_t i = 0; i < now->n; i++) {
        const matrix_cell *c = &now->cells[i];
        if (is(was, "device", c->device) && is(was, "model", c->model) &&
            is(was, "check", matrix_check_names[c->check])) {
            return 1;
        }
    }
    return 0;
}

// What passed and is not in the matrix any more. Number of such cells.
static int32_t find_gone(const pgd_json *list, const matrix_report *now) {
    int32_t n = 0;
    for (uint32_t i = 0; i < list->n; i++) {
        const pgd_json *was = &list->items[i];
        pgd_str device = {0}, model = {0}, check = {0};
        if (is(was, "result", "passed") && !is_there(now, was)) {
            (void)pgd_json_to_str(pgd_json_get(was, "device"), &device);
            (void)pgd_json_to_str(pgd_json_get(was, "model"), &model);
            (void)pgd_json_to_str(pgd_json_get(was, "check"), &check);
            printf("  %.*s %.*s %.*s: NOT IN THE MATRIX any more, it passed\n", (int)device.len,
                   device.ptr, (int)model.len, model.ptr, (int)check.len, check.ptr);
            n++;
        }
    }
    return n;
}

int32_t matrix_compare(const char *path, const pgd_json_doc *saved, const matrix_report *now) {
    const pgd_json *list = pgd_json_get(pgd_json_root(saved), "matrix");
    int32_t worse = 0;
    printf("\nagainst %s\n", path);
    for (int32_t i = 0; i < now->n; i++) {
        const pgd_json *was = find(list, &now->cells[i]);
        if (was == NULL) {
            say(&now->cells[i], "new");
        } else if (is(was, "result", "passed")) {
            worse += compare_cell(&now->cells[i], was);
        }
    }
    return worse + find_gone(list, now);
}
