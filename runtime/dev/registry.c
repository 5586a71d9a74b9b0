// The search for plugins: which folders, in which order, and what lies in them.
//
//   --plugin files, given folders, PAGODA_PLUGIN_PATH, <here>/../lib/pagoda, <here>/pagoda
//
// <here> is the folder of the library or program this code is in. A plugin is libpgd-NAME.so with
// libpgd-NAME.json beside it. The first usable plugin of a kind is the one that is used; a later
// one stays in the list with the reason.
#include "dev/inner.h"

#include <stdio.h>
#include <string.h>

#include "base/fail.h"
#include "base/log.h"
#include "base/mem.h"
#include "os/dl.h"
#include "os/env.h"
#include "os/file.h"

#define PATH_BYTES 4096

struct pgd_dev_registry {
    pgd_arena *arena;
    pgd_dev_manifest *items;
    uint32_t n;
    pgd_status code; // of a walk through a folder
    const char *root;
    pgd_team *team;
};

static const char *manifest_of(const pgd_dev_registry *r, const char *path) {
    for (uint32_t i = 0; i < r->n; i++) {
        if (strcmp(r->items[i].path, path) == 0) {
            return r->items[i].path;
        }
    }
    return NULL;
}

static pgd_status add(pgd_dev_registry *r, const pgd_dev_manifest *m) {
    pgd_dev_manifest *grown = pgd_mem_realloc(r->items, (size_t)r->n + 1, sizeof(*grown));
    if (grown == NULL) {
        return PGD_MEM_FAIL("the list of plugins", ((size_t)r->n + 1) * sizeof(*grown));
    }
    r->items = grown;
    r->items[r->n++] = *m;
    return PGD_OK;
}

static pgd_status refuse(pgd_dev_registry *r, pgd_dev_manifest *m, const char *why,
                         const char *what) {
    char text[PATH_BYTES + 100];
    snprintf(text, sizeof(text), why, what);
    pgd_str copy = pgd_arena_copy(r->arena, pgd_str_of(text));
    if (copy.ptr == NULL) {
        return PGD_MEM_FAIL("a plugin's reason", strlen(text));
    }
    m->unusable = copy.ptr;
    return PGD_OK;
}

// Reads one manifest and adds the plugin, whatever state it is in. library is the file that was
// asked for, NULL if the manifest was found by itself.
static pgd_status add_manifest(pgd_dev_registry *r, const char *path, const char *library) {
    pgd_dev_manifest m;
    PGD_TRY(pgd_dev_manifest_read(path, r->arena, &m));
    if (m.unusable == NULL && manifest_of(r, m.path) != NULL) {
        return PGD_OK; // the same library by another way
    }
    if (m.unusable == NULL && library != NULL) {
        char real[PATH_BYTES] = "";
        if (pgd_os_real_path(m.path, real, sizeof(real)) != PGD_OK || strcmp(real, library) != 0) {
            PGD_TRY(refuse(r, &m, "its manifest names another library, %s", m.path));
        }
    }
    if (m.unusable != NULL && library != NULL) {
        pgd_str copy = pgd_arena_copy(r->arena, pgd_str_of(library));
        m.path = copy.ptr == NULL ? m.path : copy.ptr;
    }
    for (uint32_t i = 0; m.unusable == NULL && i < r->n; i++) {
        if (r->items[i].unusable == NULL && strcmp(r->items[i].kind, m.kind) == 0) {
            PGD_TRY(
                refuse(r, &m,
                       "its kind is already given by %s, which comes first; remove one of them, or "
                       "name the one to use with --plugin",
                       r->items[i].path));
        }
    }
    return add(r, &m);
}

static pgd_status add_file(pgd_dev_registry *r, const char *file) {
    char real[PATH_BYTES] = "";
    char json[PATH_BYTES + 8] = "";
    if (pgd_os_real_path(file, real, sizeof(real)) != PGD_OK ||
        pgd_os_kind(real, NULL) != PGD_OS_REGULAR) {
        return pgd_fail(PGD_NOT_FOUND, "plugin '%s': there is no such file", file);
    }
    if (!pgd_str_ends(pgd_str_of(real), PGD_STR(".so"))) {
        return pgd_fail(PGD_INVALID, "plugin '%s': the file's name does not end in .so", file);
    }
    snprintf(json, sizeof(json), "%.*s.json", (int)(strlen(real) - 3), real);
    return add_manifest(r, json, real);
}

typedef struct folder_walk {
    pgd_dev_registry *r;
    const char *folder;
} folder_walk;

static int32_t visit(void *arg, const char *name) {
    folder_walk *w = arg;
    char path[PATH_BYTES] = "";
    char json[PATH_BYTES + 8] = "";
    pgd_str s = pgd_str_of(name);
    if (!pgd_str_starts(s, PGD_STR("libpgd-"))) {
        return 0;
    }
    int n = snprintf(path, sizeof(path), "%s/%s", w->folder, name);
    if (n < 0 || (size_t)n >= sizeof(path)) {
        return 0;
    }
    if (pgd_str_ends(s, PGD_STR(".json"))) {
        w->r->code = add_manifest(w->r, path, NULL);
    } else if (pgd_str_ends(s, PGD_STR(".so"))) {
        snprintf(json, sizeof(json), "%.*s.json", n - 3, path);
        if (pgd_os_kind(json, NULL) == PGD_OS_NONE) {
            w->r->code = add_manifest(w->r, json, path);
        }
    }
    return w->r->code != PGD_OK;
}

// A folder that is not there is no failure; it is the normal state of most of them.
static pgd_status add_folder(pgd_dev_registry *r, const char *folder) {
    char real[PATH_BYTES] = "";
    if (pgd_os_real_path(folder, real, sizeof(real)) != PGD_OK ||
        pgd_os_kind(real, NULL) != PGD_OS_FOLDER) {
        return PGD_OK;
    }
    folder_walk w = {.r = r, .folder = real};
    r->code = PGD_OK;
    pgd_status code = pgd_os_list(real, visit, &w);
    if (code != PGD_OK && r->code == PGD_OK) {
        pgd_log(PGD_LEVEL_WARNING, "plugins: folder %s cannot be read", real);
    }
    return r->code;
}

static pgd_status add_env(pgd_dev_registry *r) {
    pgd_str rest = pgd_str_of(pgd_os_env_secure("PAGODA_PLUGIN_PATH"));
    while (rest.len > 0) {
        char folder[PATH_BYTES] = "";
        pgd_str item = pgd_str_cut(rest, ':', &rest);
        if (item.len == 0) {
            continue;
        }
        if (item.ptr[0] != '/' || item.len >= sizeof(folder)) {
            pgd_log(PGD_LEVEL_WARNING, "PAGODA_PLUGIN_PATH: '%.*s' is no absolute path, ignored",
                    (int)(item.len < 200 ? item.len : 200), item.ptr);
            continue;
        }
        memcpy(folder, item.ptr, item.len);
        PGD_TRY(add_folder(r, folder));
    }
    return PGD_OK;
}

static pgd_status add_installed(pgd_dev_registry *r) {
    static const char here = 0;
    char path[PATH_BYTES] = "";
    char folder[PATH_BYTES + 32] = "";
    if (pgd_os_dl_path_of(&here, path, sizeof(path)) != PGD_OK || path[0] != '/') {
        if (pgd_os_program_path(path, sizeof(path)) != PGD_OK) {
            return PGD_OK;
        }
    }
    char *slash = strrchr(path, '/');
    if (slash == NULL) {
        return PGD_OK;
    }
    *slash = '\0';
    snprintf(folder, sizeof(folder), "%s/../lib/pagoda", path);
    PGD_TRY(add_folder(r, folder));
    snprintf(folder, sizeof(folder), "%s/pagoda", path);
    return add_folder(r, folder);
}

static pgd_status search_all(pgd_dev_registry *r, const pgd_dev_search *search) {
    for (uint32_t i = 0; i < search->n_files; i++) {
        PGD_TRY(add_file(r, search->files[i]));
    }
    for (uint32_t i = 0; i < search->n_folders; i++) {
        if (search->folders[i] != NULL) {
            PGD_TRY(add_folder(r, search->folders[i]));
        }
    }
    if (!search->no_env) {
        PGD_TRY(add_env(r));
    }
    return search->no_installed ? PGD_OK : add_installed(r);
}

pgd_status pgd_dev_registry_create(const pgd_dev_search *search, pgd_dev_registry **out) {
    static const pgd_dev_search nothing = {0};
    *out = NULL;
    pgd_dev_registry *r = pgd_mem_alloc(1, sizeof(*r));
    if (r == NULL) {
        return PGD_MEM_FAIL("the list of plugins", sizeof(*r));
    }
    pgd_status code = pgd_arena_create(0, &r->arena);
    if (code == PGD_OK) {
        r->team = search == NULL ? NULL : search->team;
        r->root = pgd_arena_copy(r->arena, pgd_str_of(search == NULL ? NULL : search->root)).ptr;
        code = r->root != NULL ? PGD_OK : PGD_MEM_FAIL("the list of plugins", sizeof(*r));
    }
    if (code == PGD_OK) {
        code = search_all(r, search == NULL ? &nothing : search);
    }
    if (code != PGD_OK) {
        pgd_dev_registry_destroy(r);
        return code;
    }
    *out = r;
    return PGD_OK;
}

void pgd_dev_registry_destroy(pgd_dev_registry *r) {
    if (r != NULL) {
        pgd_mem_free(r->items);
        pgd_arena_destroy(r->arena);
        pgd_mem_free(r);
    }
}

uint32_t pgd_dev_registry_count(const pgd_dev_registry *r) {
    return r->n;
}

const pgd_dev_manifest *pgd_dev_registry_get(const pgd_dev_registry *r, uint32_t i) {
    return i < r->n ? &r->items[i] : NULL;
}

const char *pgd_dev_registry_root(const pgd_dev_registry *r) {
    return r->root;
}

pgd_team *pgd_dev_registry_team(const pgd_dev_registry *r) {
    return r->team;
}
