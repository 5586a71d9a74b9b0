// Model names (see name.h).
#include "load/name.h"

#include <stdio.h>
#include <string.h>

#include "base/fail.h"
#include "base/str.h"
#include "load/fields.h"
#include "load/gguf.h"
#include "load/hub.h"
#include "load/synthetic.h"
#include "os/dl.h"
#include "os/file.h"

#define PATH_CAP  4096
#define PLACE_CAP 64 // of a place beside the program

static pgd_status put(char *out, size_t cap, pgd_str path) {
    if (path.len >= cap) {
        return pgd_fail(PGD_OUT_OF_RANGE, "a model path of %zu bytes; fewer than %zu are allowed",
                        path.len, cap);
    }
    memcpy(out, path.ptr, path.len);
    out[path.len] = '\0';
    return PGD_OK;
}

// 1 when <folder>/config.json is a file. The folder's path is shorter than PATH_CAP + PLACE_CAP.
static int32_t holds_config(const char *folder) {
    char path[PATH_CAP + PLACE_CAP + sizeof("/config.json")];
    (void)snprintf(path, sizeof(path), "%s/config.json", folder);
    return pgd_os_kind(path, NULL) == PGD_OS_REGULAR;
}

// Tries the places of the default model around a program or library; 1 and out when found.
static int32_t look_beside(const char *program, char out[PATH_CAP]) {
    static const char *const places[] = {"../share/pagoda/models/" PGD_LOAD_DEFAULT_MODEL,
                                         "../../models/" PGD_LOAD_DEFAULT_MODEL};
    const char *slash = strrchr(program, '/');
    if (slash == NULL) {
        return 0;
    }
    for (size_t i = 0; i < sizeof(places) / sizeof(places[0]); i++) {
        char path[PATH_CAP + PLACE_CAP];
        (void)snprintf(path, sizeof(path), "%.*s/%s", (int)(slash - program), program, places[i]);
        if (holds_config(path) && pgd_os_real_path(path, out, PATH_CAP) == PGD_OK) {
            return 1;
        }
    }
    return 0;
}

static pgd_status find_default(char *out, size_t cap) {
    static const char here = 0; // its address tells which library or program this code is in
    char program[PATH_CAP] = "";
    char path[PATH_CAP];
    if (pgd_os_program_path(program, sizeof(program)) == PGD_OK && look_beside(program, path)) {
        return put(out, cap, pgd_str_of(path));
    }
    if (pgd_os_dl_path_of(&here, path, sizeof(path)) == PGD_OK) {
        char library[PATH_CAP];
        if (pgd_os_real_path(path, library, sizeof(library)) == PGD_OK &&
            look_beside(library, path)) {
            return put(out, cap, pgd_str_of(path));
        }
    }
    return pgd_fail(PGD_NOT_FOUND,
                    "the default model " PGD_LOAD_DEFAULT_MODEL
                    " is not installed: no ../share/pagoda/models/" PGD_LOAD_DEFAULT_MODEL
                    " or ../../models/" PGD_LOAD_DEFAULT_MODEL " beside %s; give the folder of a "
                    "model",
                    program);
}

static pgd_status refuse(pgd_str name, int32_t kind) {
    if (kind != PGD_OS_NONE) {
        return pgd_fail(PGD_INVALID,
                        "model \"%.*s\" is no folder; a folder in Hugging Face layout "
                        "(config.json, *.safetensors) or a file FILE.gguf is needed",
                        PGD_LOAD_SHOW(name));
    }
    if (pgd_str_ends(name, PGD_STR(".gguf"))) {
        return pgd_fail(PGD_NOT_FOUND, "model \"%.*s\": no such file", PGD_LOAD_SHOW(name));
    }
    return pgd_fail(PGD_NOT_FOUND,
                    "model \"%.*s\": no such folder; " PGD_LOAD_DEFAULT_MODEL
                    ", a folder in Hugging Face layout, a file FILE.gguf or org/name[@revision] is "
                    "needed",
                    PGD_LOAD_SHOW(name));
}

pgd_status pgd_load_find_model(const char *name, char *out, size_t cap) {
    return pgd_load_fetch_model(name, NULL, out, cap);
}

pgd_status pgd_load_fetch_model(const char *name, const pgd_load_progress *progress, char *out,
                                size_t cap) {
    pgd_str text = pgd_str_of(name);
    if (cap != 0) {
        out[0] = '\0';
    }
    if (text.len == 0 || pgd_str_is(text, PGD_LOAD_DEFAULT_MODEL)) {
        return find_default(out, cap);
    }
    if (pgd_load_synthetic_is(name)) {
        return put(out, cap, text);
    }
    if (text.len >= PATH_CAP) {
        return pgd_fail(PGD_OUT_OF_RANGE, "a model path of %zu bytes; at most %d are allowed",
                        text.len, PATH_CAP - 1);
    }
    int32_t kind = pgd_os_kind(name, NULL);
    if (kind == PGD_OS_REGULAR && pgd_load_gguf_is(name)) {
        return put(out, cap, text);
    }
    if (kind == PGD_OS_NONE && pgd_load_hub_is(text)) {
        return pgd_load_hub_find(text, progress, out, cap);
    }
    if (kind != PGD_OS_FOLDER) {
        return refuse(text, kind);
    }
    if (!holds_config(name)) {
        return pgd_fail(PGD_NOT_FOUND,
                        "model \"%.*s\": no config.json in this folder; a folder in Hugging Face "
                        "layout is needed",
                        PGD_LOAD_SHOW(text));
    }
    return put(out, cap, text);
}
