// Reading the file of a matrix. What is wrong is named with its value and with what is allowed.
#include "matrix.h"

#include <stdio.h>
#include <string.h>

#include "base/arena.h"
#include "cli/config_file.h"
#include "dev/inner.h"
#include "os/file.h"

enum { MODEL_NAMES = 800 };

const char *const matrix_check_names[MATRIX_CHECKS] = {"level", "tokens", "nmse", "speed"};

// value "": the sentence does without.
static int bad(const char *path, const char *what, const char *value, const char *allowed) {
    const char *quote = value[0] != '\0' ? "'" : "";
    fprintf(stderr, "pagoda-conform: %s: %s%s%s%s%s: %s\n", path, what, value[0] != '\0' ? " " : "",
            quote, value, quote, allowed);
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

// Text of at most cap - 1 bytes; a value that is absent gives `otherwise`, NULL = it must be there.
static int read_text(const char *path, const char *what, const pgd_json *v, char *to, size_t cap,
                     const char *otherwise) {
    pgd_str text;
    if (v == NULL && otherwise != NULL) {
        snprintf(to, cap, "%s", otherwise);
        return 0;
    }
    if (!pgd_json_to_str(v, &text) || text.len == 0 || text.len >= cap) {
        return bad(path, what, "", "must be there, as text (a number in quotes)");
    }
    snprintf(to, cap, "%.*s", (int)text.len, text.ptr);
    return 0;
}

// A whole number from least to most; absent: *out stays.
static int read_number(const char *path, const char *what, const pgd_json *v, int64_t least,
                       int64_t most, int32_t *out) {
    char value[64], allowed[64];
    pgd_str text;
    int64_t number = 0;
    if (v == NULL) {
        return 0;
    }
    if (pgd_json_to_i64(v, &number) && number >= least && number <= most) {
        *out = (int32_t)number;
        return 0;
    }
    snprintf(value, sizeof(value), "%lld", (long long)number);
    if (pgd_json_to_str(v, &text)) {
        snprintf(value, sizeof(value), "%.*s", (int)(text.len < 40 ? text.len : 40), text.ptr);
    } else if (!pgd_json_to_i64(v, &number)) {
        value[0] = '\0';
    }
    snprintf(allowed, sizeof(allowed), "a whole number from %lld to %lld", (long long)least,
             (long long)most);
    return bad(path, what, value, allowed);
}

// A plugin by path (relative: to the matrix), or libpgd-KIND.so in lib/pagoda beside the tool.
static void find_plugin(const char *path, const char *given_path, matrix_device *d) {
    char given[600], program[1024] = "";
    char *where = d->searched;
    const size_t kind = strcspn(d->uri, ":{");
    snprintf(given, sizeof(given), "%s", given_path);
    const char *base = given[0] != '\0' ? path : program;
    if (given[0] == '\0') {
        if (pgd_os_program_path(program, sizeof(program)) != PGD_OK) {
            program[0] = '\0';
        }
        snprintf(given, sizeof(given), "../lib/pagoda/libpgd-%.*s.so", (int)kind, d->uri);
    }
    const char *slash = strrchr(base, '/');
    if (given[0] == '/' || slash == NULL) {
        snprintf(where, sizeof(d->searched), "%s", given);
    } else {
        snprintf(where, sizeof(d->searched), "%.*s/%s", (int)(slash - base), base, given);
    }
    if (pgd_os_real_path(where, d->plugin, sizeof(d->plugin)) != PGD_OK) {
        d->plugin[0] = '\0';
    }
}

// The options in the device's name are those of its manifest; a plugin that is not here has none.
static int check_options(const char *path, const matrix_device *d) {
    char manifest[1040], allowed[400] = "the device has no options";
    pgd_dev_uri_parts parts;
    pgd_dev_manifest m;
    int code = 0;
    if (strchr(d->uri, '(') != NULL) {
        return bad(path, "device", d->uri, "layers are not for a matrix; name the device alone");
    }
    if (pgd_dev_uri_parse(d->uri, &parts) != PGD_OK) {
        return bad(path, "device", d->uri, pgd_fail_last());
    }
    pgd_arena *arena = NULL;
    if (d->plugin[0] == '\0' || pgd_arena_create(0, &arena) != PGD_OK) {
        return 0;
    }
    snprintf(manifest, sizeof(manifest), "%.*s.json", (int)(strlen(d->plugin) - 3), d->plugin);
    if (pgd_dev_manifest_read(manifest, arena, &m) == PGD_OK && m.unusable == NULL) {
        size_t used = 0;
        for (uint32_t i = 0; i < m.n_options && used < sizeof(allowed); i++) {
            used += (size_t)snprintf(allowed + used, sizeof(allowed) - used, "%s%s",
                                     i == 0 ? "its options are " : ", ", m.options[i].key);
        }
        for (pgd_str rest = parts.options; rest.len > 0 && code == 0;) {
            pgd_str value = {0};
            const pgd_str item = pgd_str_cut(rest, ';', &rest);
            const pgd_str key = pgd_str_trim(pgd_str_cut(item, '=', &value));
            uint32_t i = 0;
            while (i < m.n_options && !pgd_str_is(key, m.options[i].key)) {
                i++;
            }
            code = i == m.n_options && key.len > 0 ? bad(path, "device", d->uri, allowed) : 0;
        }
    }
    pgd_arena_destroy(arena);
    return code;
}

static int read_device(const char *path, const pgd_json *v, matrix_device *d) {
    static const char *const keys[] = {"device", "plugin", "kind", "level"};
    char plugin[600];
    d->level = 2;
    if (!pgd_json_is(v, PGD_JSON_OBJECT)) {
        return bad(path, "devices", "", "each is a mapping with the key device");
    }
    if (only_keys(path, v, keys, 4, "a device has device, plugin, kind, level") != 0 ||
        read_text(path, "device", pgd_json_get(v, "device"), d->uri, sizeof(d->uri), NULL) != 0 ||
        read_text(path, "plugin", pgd_json_get(v, "plugin"), plugin, sizeof(plugin), "") != 0 ||
        read_text(path, "kind", pgd_json_get(v, "kind"), d->kind, sizeof(d->kind), "real") != 0 ||
        read_number(path, "level", pgd_json_get(v, "level"), 0, CONFORM_LEVELS - 1, &d->level)) {
        return 2;
    }
    if (strcmp(d->kind, "real") != 0 && strcmp(d->kind, "double") != 0 &&
        strcmp(d->kind, "null") != 0) {
        return bad(path, "kind", d->kind, "allowed are real, double, null");
    }
    find_plugin(path, plugin, d);
    return check_options(path, d);
}

// " NAME, NAME", into text[MODEL_NAMES].
static int32_t add_name(void *text, const char *name) {
    const size_t used = strlen(text);
    snprintf((char *)text + used, MODEL_NAMES - used, "%s %s", used > 0 ? "," : "", name);
    return 0;
}

// A model by the name of one that comes with the tool, or a folder (relative: to the matrix).
static int read_model(const conform_options *o, const char *path, const pgd_json *v, matrix *m) {
    char name[600], where[2000], config[2100];
    const char *slash = strrchr(path, '/');
    if (read_text(path, "model", v, name, sizeof(name), NULL) != 0) {
        return 2;
    }
    snprintf(where, sizeof(where), "%s/%s", o->folder, name);
    snprintf(config, sizeof(config), "%s/config.json", where);
    if (pgd_os_kind(config, NULL) != PGD_OS_REGULAR) {
        snprintf(where, sizeof(where), "%.*s/%s", slash != NULL ? (int)(slash - path) : 1,
                 slash != NULL ? path : ".", name);
        snprintf(config, sizeof(config), "%s/config.json", name[0] == '/' ? name : where);
    }
    if (pgd_os_kind(config, NULL) != PGD_OS_REGULAR) {
        char names[MODEL_NAMES] = "", text[MODEL_NAMES + 2300];
        if (pgd_os_list(o->folder, add_name, names) != PGD_OK) {
            names[0] = '\0';
        }
        snprintf(text, sizeof(text),
                 "%s is not there; name a folder with a config.json, or one of the tool's own "
                 "models:%s",
                 config, names[0] != '\0' ? names : " none, they are not installed");
        return bad(path, "model", name, text);
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
    if (read_text(path, "check", v, name, sizeof(name), NULL) != 0) {
        return 2;
    }
    for (int32_t i = 0; i < m->n_checks; i++) {
        if (strcmp(name, matrix_check_names[m->checks[i]]) == 0) {
            return bad(path, "check", name, "is named twice; once is enough");
        }
    }
    for (int32_t i = 0; i < MATRIX_CHECKS; i++) {
        if (strcmp(name, matrix_check_names[i]) == 0) {
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
    out->tokens = 32;
    out->repeats = 5;
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
            return bad(path, "key", keys[i], "must be there, as a list of 1 to 32 entries");
        }
    }
    if (read_number(path, "tokens", pgd_json_get(root, "tokens"), 1, 64, &out->tokens) != 0 ||
        read_number(path, "repeats", pgd_json_get(root, "repeats"), 1, 50, &out->repeats) != 0) {
        return 2;
    }
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
