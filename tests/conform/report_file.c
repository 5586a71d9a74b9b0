// Files for programs: JSON and JUnit XML.
#include "conform.h"

#include <string.h>

#include "os/file.h"

static pgd_status write_file(const char *path, const pgd_text *t) {
    pgd_os_file f = {-1};
    pgd_status code = pgd_os_open_write(path, 0, &f);
    if (code == PGD_OK) {
        code = pgd_os_write(f, t->ptr, t->len);
        pgd_os_close(&f);
    }
    return code == PGD_OK ? code : pgd_fail(code, "%s cannot be written", path);
}

static pgd_status json_text(pgd_text *t, const char *key, const char *value, const char *end) {
    PGD_TRY(pgd_text_format(t, "\"%s\": ", key));
    PGD_TRY(pgd_json_add_str(t, pgd_str_of(value)));
    return pgd_text_format(t, "%s", end);
}

static pgd_status json_check(pgd_text *t, const conform_check *check, const conform_result *r,
                             int32_t first) {
    PGD_TRY(pgd_text_format(t, "%s\n  {", first ? "" : ","));
    PGD_TRY(json_text(t, "name", check->name, ", "));
    PGD_TRY(pgd_text_format(t, "\"level\": %d, \"ms\": %.1f, ", (int)check->level,
                            (double)r->ns * 1e-6));
    PGD_TRY(json_text(t, "result", conform_state_name(r->state), ", "));
    PGD_TRY(json_text(t, "note", r->note, ", "));
    return json_text(t, "failures", r->text, "}");
}

static pgd_status json_ops(pgd_text *t, const conform_sheet *s) {
    static const char *const names[PGD_OP_COUNT] = {
#define NAME(name, family) #name,
        PGD_OP_LIST(NAME)
#undef NAME
    };
    int32_t first = 1;
    PGD_TRY(pgd_text_format(t, ",\n \"operations\": ["));
    for (int32_t op = 0; op < PGD_OP_COUNT; op++) {
        for (int32_t dtype = 1; dtype < CONFORM_DTYPES; dtype++) {
            const conform_cell *cell = &s->cells[op][dtype];
            if (cell->cases == 0) {
                continue;
            }
            PGD_TRY(pgd_text_format(
                t, "%s\n  {\"op\": \"%s\", \"dtype\": \"%s\", \"cases\": %d, \"wrong\": %d, ",
                first ? "" : ",", names[op], pgd_dtype_name(dtype), (int)cell->cases,
                (int)cell->wrong));
            PGD_TRY(pgd_text_format(t, "\"ulp\": %.3f, \"nmse\": %.3g}", cell->ulp, cell->nmse));
            first = 0;
        }
    }
    return pgd_text_format(t, "]");
}

static pgd_status write_json(const conform_options *o, const conform_shared *shared) {
    pgd_text t = {0};
    int32_t first = 1;
    PGD_TRY(pgd_text_format(&t, "{\"schema\": 1, "));
    PGD_TRY(json_text(&t, "plugin", o->plugin, ", "));
    PGD_TRY(json_text(&t, "device", shared->sheet.seen ? shared->sheet.info.name : "", ", "));
    PGD_TRY(pgd_text_format(&t, "\"asked\": %d, \"reached\": %d, \"interface\": \"%d.%d\",\n",
                            (int)o->level, (int)(o->n_only > 0 ? -1 : conform_reached(o, shared)),
                            PGD_ABI_MAJOR, PGD_ABI_MINOR));
    PGD_TRY(pgd_text_format(&t, " \"checks\": ["));
    for (int32_t i = 0; i < conform_n_checks; i++) {
        if (conform_checks[i].level <= o->level && conform_wanted(o, &conform_checks[i])) {
            PGD_TRY(json_check(&t, &conform_checks[i], &shared->results[i], first));
            first = 0;
        }
    }
    PGD_TRY(pgd_text_format(&t, "]"));
    PGD_TRY(json_ops(&t, &shared->sheet));
    PGD_TRY(pgd_text_format(&t, "}\n"));
    PGD_TRY(write_file(o->json, &t));
    pgd_text_free(&t);
    return PGD_OK;
}

// ---- JUnit -------------------------------------------------------------------------------------

static pgd_status xml_text(pgd_text *t, const char *text) {
    for (const char *p = text; *p != '\0'; p++) {
        const unsigned char ch = (unsigned char)*p;
        const char *as = ch == '<'               ? "&lt;"
                         : ch == '>'             ? "&gt;"
                         : ch == '&'             ? "&amp;"
                         : ch == '"'             ? "&quot;"
                         : ch < 32 && ch != '\n' ? "?"
                                                 : NULL;
        PGD_TRY(as != NULL ? pgd_text_format(t, "%s", as) : pgd_text_add(t, p, 1));
    }
    return PGD_OK;
}

static pgd_status junit_check(pgd_text *t, const conform_check *check, const conform_result *r) {
    PGD_TRY(pgd_text_format(t, "  <testcase classname=\"level%d.%s\" name=\"%s\" time=\"%.3f\">",
                            (int)check->level, conform_level_names[check->level], check->name,
                            (double)r->ns * 1e-9));
    if (r->state == CONFORM_FAILED) {
        PGD_TRY(pgd_text_format(t, "<failure message=\"%s\">", check->what));
        PGD_TRY(xml_text(t, r->text));
        PGD_TRY(pgd_text_format(t, "</failure>"));
    } else if (r->state != CONFORM_PASSED) {
        PGD_TRY(pgd_text_format(t, "<skipped message=\""));
        PGD_TRY(xml_text(t, r->state == CONFORM_SKIPPED ? r->note : "a check before it failed"));
        PGD_TRY(pgd_text_format(t, "\"/>"));
    }
    return pgd_text_format(t, "</testcase>\n");
}

static pgd_status write_junit(const conform_options *o, const conform_shared *shared) {
    pgd_text t = {0};
    int32_t n[4] = {0};
    for (int32_t level = 0; level <= o->level; level++) {
        for (int32_t state = 0; state < 4; state++) {
            n[state] += conform_count(o, shared, level, state);
        }
    }
    PGD_TRY(pgd_text_format(&t,
                            "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<testsuite "
                            "name=\"pagoda-conform\" tests=\"%d\" failures=\"%d\" skipped=\"%d\">"
                            "\n",
                            (int)(n[0] + n[1] + n[2] + n[3]), (int)n[CONFORM_FAILED],
                            (int)(n[CONFORM_SKIPPED] + n[CONFORM_NOT_RUN])));
    for (int32_t i = 0; i < conform_n_checks; i++) {
        if (conform_checks[i].level <= o->level && conform_wanted(o, &conform_checks[i])) {
            PGD_TRY(junit_check(&t, &conform_checks[i], &shared->results[i]));
        }
    }
    PGD_TRY(pgd_text_format(&t, "</testsuite>\n"));
    PGD_TRY(write_file(o->junit, &t));
    pgd_text_free(&t);
    return PGD_OK;
}

pgd_status conform_write_files(const conform_options *o, const conform_shared *shared) {
    if (o->json != NULL) {
        PGD_TRY(write_json(o, shared));
    }
    if (o->junit != NULL) {
        PGD_TRY(write_junit(o, shared));
    }
    if (o->sheet != NULL) {
        PGD_TRY(conform_write_sheet(o, shared));
    }
    return PGD_OK;
}
