// Opening, parsing and rendering a chat template.
#include "text/template.h"

#include <string.h>

#include "load/gguf_model.h"
#include "os/file.h"
#include "text/template_parts.h"

// Line ends become \n, and one at the very end goes, before anything is read.
static pgd_status clean_source(pgd_str s, pgd_arena *arena, pgd_str *out) {
    if (s.len > TPL_MAX_SOURCE) {
        return pgd_fail(PGD_INVALID, "chat template: %zu bytes; at most %d are allowed", s.len,
                        TPL_MAX_SOURCE);
    }
    if (!pgd_utf8_valid(s)) {
        return pgd_fail(PGD_INVALID, "chat template: not well-formed UTF-8");
    }
    char *text = pgd_arena_alloc(arena, s.len + 1, 1);
    if (text == NULL) {
        return PGD_MEM_FAIL("a chat template", s.len);
    }
    size_t n = 0;
    for (size_t i = 0; i < s.len; i++) {
        if (s.ptr[i] == '\r') {
            text[n++] = '\n';
            i += i + 1 < s.len && s.ptr[i + 1] == '\n';
        } else {
            text[n++] = s.ptr[i];
        }
    }
    *out = (pgd_str){text, n > 0 && text[n - 1] == '\n' ? n - 1 : n};
    return PGD_OK;
}

static pgd_status parse(pgd_str source, pgd_text_template *t) {
    PGD_TRY(pgd_arena_create(0, &t->arena));
    pgd_str clean = {0};
    PGD_TRY(clean_source(source, t->arena, &clean));
    tokens found = {0};
    pgd_status status = pgd_text_template_lex(clean, t->arena, &found);
    if (status == PGD_OK) {
        status = pgd_text_template_build(&found, t->arena, &t->body);
    }
    pgd_mem_free(found.items);
    return status;
}

pgd_status pgd_text_template_parse(pgd_str source, pgd_text_template **out) {
    *out = NULL;
    pgd_text_template *t = pgd_mem_alloc(1, sizeof(*t));
    if (t == NULL) {
        return PGD_MEM_FAIL("a chat template", sizeof(*t));
    }
    pgd_status status = parse(source, t);
    if (status != PGD_OK) {
        pgd_text_template_close(t);
        return status;
    }
    *out = t;
    return PGD_OK;
}

void pgd_text_template_close(pgd_text_template *t) {
    if (t == NULL) {
        return;
    }
    pgd_arena_destroy(t->arena);
    pgd_mem_free(t);
}

// ---- files -------------------------------------------------------------------------------------

static pgd_status open_file(const char *path, uint64_t bytes, pgd_text_template **out) {
    if (bytes > TPL_MAX_SOURCE) {
        return pgd_fail(PGD_INVALID, "%s: %llu bytes; at most %d are allowed", path,
                        (unsigned long long)bytes, TPL_MAX_SOURCE);
    }
    char *text = pgd_mem_alloc(1, (size_t)bytes + 1);
    if (text == NULL) {
        return PGD_MEM_FAIL("a chat template", bytes);
    }
    uint64_t n = 0;
    pgd_status status = pgd_os_read_file(path, text, bytes, &n);
    if (status != PGD_OK) {
        status = pgd_fail(status, "%s cannot be read", path);
    } else {
        status = pgd_text_template_parse((pgd_str){text, (size_t)n}, out);
    }
    pgd_mem_free(text);
    return status;
}

// chat_template of tokenizer_config.json: a string, or a list of {name, template}.
static pgd_status open_config(const char *path, pgd_text_template **out) {
    pgd_json_doc *doc = NULL;
    PGD_TRY(pgd_json_read_file(path, &doc));
    const pgd_json *entry = pgd_json_get(pgd_json_root(doc), "chat_template");
    pgd_str source = {0};
    int32_t found = pgd_json_to_str(entry, &source);
    for (uint32_t i = 0; !found && pgd_json_is(entry, PGD_JSON_ARRAY) && i < entry->n; i++) {
        pgd_str name = {0};
        if (pgd_json_to_str(pgd_json_get(&entry->items[i], "name"), &name) &&
            pgd_str_is(name, "default")) {
            found = pgd_json_to_str(pgd_json_get(&entry->items[i], "template"), &source);
        }
    }
    pgd_status status = found ? pgd_text_template_parse(source, out)
                              : pgd_fail(PGD_NOT_FOUND, "%s: no chat_template", path);
    pgd_json_free(doc);
    return status;
}

static pgd_status open_gguf(const char *path, pgd_text_template **out) {
    pgd_text source = {0};
    pgd_status status = pgd_load_gguf_template(path, &source);
    if (status == PGD_OK && source.len > TPL_MAX_SOURCE) {
        status = pgd_fail(PGD_INVALID, "%s: a chat template of %zu bytes; at most %d are allowed",
                          path, source.len, TPL_MAX_SOURCE);
    }
    if (status == PGD_OK) {
        status = pgd_text_template_parse(pgd_text_view(&source), out);
    }
    pgd_text_free(&source);
    return pgd_fail_note(status, "while opening the chat template in %s", path);
}

pgd_status pgd_text_template_open(const char *folder, pgd_text_template **out) {
    *out = NULL;
    if (pgd_load_gguf_is(folder)) {
        return open_gguf(folder, out);
    }
    pgd_text path = {0};
    uint64_t bytes = 0;
    pgd_status status = pgd_text_format(&path, "%s/chat_template.jinja", folder);
    if (status == PGD_OK && pgd_os_kind(path.ptr, &bytes) == PGD_OS_REGULAR) {
        status = open_file(path.ptr, bytes, out);
    } else if (status == PGD_OK) {
        pgd_text_clear(&path);
        status = pgd_text_format(&path, "%s/tokenizer_config.json", folder);
        if (status == PGD_OK) {
            status = open_config(path.ptr, out);
        }
    }
    pgd_text_free(&path);
    return pgd_fail_note(status, "while opening the chat template in %s", folder);
}

// ---- rendering ---------------------------------------------------------------------------------

static pgd_status run(render *r, const pgd_text_template *t, const pgd_json *vars, pgd_text *out) {
    PGD_TRY(pgd_text_template_new_scope(r, NULL, &r->global));
    if (!pgd_json_is(vars, PGD_JSON_OBJECT)) {
        return pgd_fail(PGD_INVALID, "chat template: the variables must be a JSON object");
    }
    for (uint32_t i = 0; i < vars->n; i++) {
        value v;
        PGD_TRY(pgd_text_template_from_json(r, &vars->items[i], &v));
        PGD_TRY(pgd_text_template_set(r, r->global, vars->keys[i], v));
    }
    return pgd_text_template_run(r, r->global, &t->body, out);
}

pgd_status pgd_text_template_render(const pgd_text_template *t, const pgd_json *vars,
                                    pgd_text *out) {
    size_t old = out->len;
    render r = {.line = 1};
    PGD_TRY(pgd_arena_create(0, &r.arena));
    pgd_status status = run(&r, t, vars, out);
    if (status != PGD_OK && out->len > old) {
        out->len = old;
        out->ptr[old] = 0;
    }
    pgd_arena_destroy(r.arena);
    return status;
}
