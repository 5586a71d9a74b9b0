// Names, the environment, and the folders of the cache (see hub.h for the picture).
#include "load/hub_inner.h"

#include <stdio.h>
#include <string.h>

#include "base/fail.h"
#include "load/fields.h"
#include "load/folder.h"
#include "load/shards.h"
#include "os/env.h"
#include "os/folder.h"

#define MAX_REPO    96 // bytes of org/name, as the hub allows
#define DEFAULT_HUB "https://huggingface.co"
#define CONFIG_NAME "config.json"
#define TOKENS_NAME "tokenizer.json"
#define SINGLE_NAME "model.safetensors"
#define INDEX_NAME  "model.safetensors.index.json"
#define MAX_TIMEOUT 3600

const char *const pgd_load_hub_wanted[] = {CONFIG_NAME,           "generation_config.json",
                                           TOKENS_NAME,           "tokenizer_config.json",
                                           "chat_template.jinja", NULL};

// ---- names -------------------------------------------------------------------------------------

static int32_t is_word_char(char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '.' ||
           c == '_' || c == '-';
}

static int32_t is_edge(char c) {
    return c == '.' || c == '-';
}

// One half of org/name. "--" separates the halves in folder names, so it is in none of them.
static int32_t is_word(pgd_str s) {
    if (s.len == 0 || is_edge(s.ptr[0]) || is_edge(s.ptr[s.len - 1])) {
        return 0;
    }
    for (size_t i = 0; i < s.len; i++) {
        if (!is_word_char(s.ptr[i]) || (i > 0 && is_edge(s.ptr[i]) && s.ptr[i] == s.ptr[i - 1])) {
            return 0;
        }
    }
    return 1;
}

// A branch, tag or commit: parts joined by slashes that may all become folders.
static int32_t is_revision(pgd_str s) {
    if (s.len == 0 || s.len >= HUB_REVISION || s.ptr[s.len - 1] == '/') {
        return 0;
    }
    for (size_t i = 0; i < s.len; i++) {
        char c = s.ptr[i];
        int32_t starts = i == 0 || s.ptr[i - 1] == '/';
        if (c <= 0x20 || c == 0x7f || strchr("\\:?*[~^\"<>|", c) != NULL ||
            (starts && (c == '.' || c == '/' || c == '-')) ||
            (c == '.' && i > 0 && s.ptr[i - 1] == '.')) {
            return 0;
        }
    }
    return 1;
}

int32_t pgd_load_hub_is(pgd_str text) {
    pgd_str rest = {0};
    pgd_str revision = {0};
    pgd_str repo = pgd_str_cut(text, '@', &revision);
    pgd_str org = pgd_str_cut(repo, '/', &rest);
    return repo.len <= MAX_REPO && is_word(org) && is_word(rest) &&
           !pgd_str_ends(repo, PGD_STR(".gguf"));
}

int32_t pgd_load_hub_is_commit(pgd_str s) {
    int32_t ok = s.len == HUB_COMMIT - 1;
    for (size_t i = 0; i < s.len; i++) {
        ok &= (s.ptr[i] >= '0' && s.ptr[i] <= '9') || (s.ptr[i] >= 'a' && s.ptr[i] <= 'f');
    }
    return ok;
}

static pgd_status read_name(pgd_str name, hub_place *p) {
    pgd_str revision = {0};
    pgd_str repo = pgd_str_cut(name, '@', &revision);
    if (repo.len == name.len) {
        revision = PGD_STR("main");
    } else if (!is_revision(revision)) {
        return pgd_fail(PGD_INVALID,
                        "model \"%.*s\": behind the @ stands no revision; a branch, a tag or a "
                        "commit is needed",
                        PGD_LOAD_SHOW(name));
    }
    memcpy(p->repo, repo.ptr, repo.len); // checked by pgd_load_hub_is and is_revision
    memcpy(p->revision, revision.ptr, revision.len);
    return PGD_OK;
}

// ---- the environment ---------------------------------------------------------------------------

static const char *env(const char *name) {
    const char *value = pgd_os_env_secure(name);
    return value != NULL && value[0] != '\0' ? value : NULL;
}

static int32_t env_is_true(const char *name) {
    static const char *const yes[] = {"1",   "on",  "ON",   "On",   "yes",
                                      "YES", "Yes", "true", "TRUE", "True"};
    const char *value = env(name);
    for (size_t i = 0; value != NULL && i < sizeof(yes) / sizeof(yes[0]); i++) {
        if (strcmp(value, yes[i]) == 0) {
            return 1;
        }
    }
    return 0;
}

void pgd_load_hub_path(char *out, const char *fmt, ...) {
    va_list args;
    va_start(args, fmt);
    (void)vsnprintf(out, HUB_PATH, fmt, args);
    va_end(args);
}

// A folder of the environment, with "~/" as the home folder.
static pgd_status put_folder(char *out, const char *folder, const char *more) {
    const char *home = strncmp(folder, "~/", 2) == 0 ? env("HOME") : NULL;
    const size_t n = (home != NULL ? strlen(home) : 0) + strlen(folder) + strlen(more);
    if (n >= HUB_FOLDER) {
        return pgd_fail(PGD_OUT_OF_RANGE,
                        "the model cache's path has %zu bytes; at most %d are "
                        "allowed",
                        n, HUB_FOLDER - 1);
    }
    pgd_load_hub_path(out, "%s%s%s", home != NULL ? home : "", folder + (home != NULL), more);
    return PGD_OK;
}

// HF_HOME, or what stands for it.
static pgd_status find_home(char *out) {
    if (env("HF_HOME") != NULL) {
        return put_folder(out, env("HF_HOME"), "");
    }
    if (env("XDG_CACHE_HOME") != NULL) {
        return put_folder(out, env("XDG_CACHE_HOME"), "/huggingface");
    }
    if (env("HOME") != NULL) {
        return put_folder(out, env("HOME"), "/.cache/huggingface");
    }
    return pgd_fail(PGD_NOT_FOUND, "no folder for models: HF_HUB_CACHE, HF_HOME, XDG_CACHE_HOME "
                                   "and HOME are all unset");
}

static pgd_status find_cache(const char *home, char *out) {
    const char *folder = env("HF_HUB_CACHE");
    folder = folder != NULL ? folder : env("HUGGINGFACE_HUB_CACHE");
    return folder != NULL ? put_folder(out, folder, "") : put_folder(out, home, "/hub");
}

static void put_token(hub_place *p, const char *text, size_t len) {
    pgd_str token = pgd_str_trim((pgd_str){text, len});
    if (token.len < sizeof(p->token)) {
        memcpy(p->token, token.ptr, token.len);
        p->token[token.len] = '\0';
    }
}

static pgd_status find_token(const char *home, hub_place *p) {
    char path[HUB_PATH];
    char text[sizeof(p->token)];
    uint64_t n = 0;
    const char *token = env("HF_TOKEN");
    token = token != NULL ? token : env("HUGGING_FACE_HUB_TOKEN");
    if (env_is_true("HF_HUB_DISABLE_IMPLICIT_TOKEN")) {
        return PGD_OK;
    }
    if (token != NULL) {
        put_token(p, token, strlen(token));
        return PGD_OK;
    }
    PGD_TRY(env("HF_TOKEN_PATH") != NULL ? put_folder(path, env("HF_TOKEN_PATH"), "")
                                         : put_folder(path, home, "/token"));
    if (pgd_os_read_file(path, text, sizeof(text), &n) == PGD_OK) {
        put_token(p, text, (size_t)n);
    }
    return PGD_OK;
}

static pgd_status find_endpoint(hub_place *p) {
    const char *url = env("HF_ENDPOINT");
    pgd_str s = pgd_str_of(url != NULL ? url : DEFAULT_HUB);
    while (s.len > 0 && s.ptr[s.len - 1] == '/') {
        s.len--;
    }
    if ((!pgd_str_starts(s, PGD_STR("http://")) && !pgd_str_starts(s, PGD_STR("https://"))) ||
        s.len >= sizeof(p->endpoint)) {
        return pgd_fail(PGD_INVALID, "HF_ENDPOINT is \"%.*s\"; http://... or https://... is needed",
                        PGD_LOAD_SHOW(s));
    }
    memcpy(p->endpoint, s.ptr, s.len);
    p->endpoint[s.len] = '\0';
    return PGD_OK;
}

pgd_status pgd_load_hub_place(pgd_str name, hub_place *p) {
    char home[HUB_PATH] = "";
    uint64_t timeout = 0;
    *p = (hub_place){0};
    PGD_TRY(read_name(name, p));
    PGD_TRY(find_home(home));
    PGD_TRY(find_cache(home, p->cache));
    PGD_TRY(find_token(home, p));
    PGD_TRY(find_endpoint(p));
    p->offline = env_is_true("HF_HUB_OFFLINE") || env_is_true("TRANSFORMERS_OFFLINE");
    if (pgd_str_to_u64(pgd_str_of(env("HF_HUB_DOWNLOAD_TIMEOUT")), &timeout)) {
        p->timeout_s = timeout < MAX_TIMEOUT ? (int32_t)timeout : MAX_TIMEOUT;
    }
    const char *slash = strchr(p->repo, '/');
    pgd_load_hub_path(p->folder, "%s/models--%.*s--%s", p->cache, (int)(slash - p->repo), p->repo,
                      slash + 1);
    return PGD_OK;
}

// ---- the folders -------------------------------------------------------------------------------

pgd_status pgd_load_hub_os(pgd_status code, const char *path, const char *doing) {
    char text[128];
    if (code == PGD_OK) {
        return PGD_OK;
    }
    const char *why = pgd_os_error_text(pgd_os_last_error(), text, sizeof(text));
    return pgd_fail(code, "%s: cannot %s: %s", path, doing, why);
}

int32_t pgd_load_hub_read_ref(hub_place *p) {
    char path[HUB_PATH];
    char text[64];
    uint64_t n = 0;
    pgd_str commit = pgd_str_of(p->revision);
    if (!pgd_load_hub_is_commit(commit)) {
        pgd_load_hub_path(path, "%s/refs/%s", p->folder, p->revision);
        if (pgd_os_read_file(path, text, sizeof(text), &n) != PGD_OK) {
            return 0;
        }
        commit = pgd_str_trim((pgd_str){text, (size_t)n});
    }
    if (!pgd_load_hub_is_commit(commit)) {
        return 0;
    }
    memcpy(p->commit, commit.ptr, commit.len);
    return 1;
}

int32_t pgd_load_hub_has(const hub_place *p, const char *name) {
    char path[HUB_PATH];
    pgd_load_hub_path(path, "%s/snapshots/%s/%s", p->folder, p->commit, name);
    return pgd_os_kind(path, NULL) == PGD_OS_REGULAR;
}

static int32_t is_known_absent(const hub_place *p, const char *name) {
    char path[HUB_PATH];
    pgd_load_hub_path(path, "%s/.no_exist/%s/%s", p->folder, p->commit, name);
    return pgd_os_kind(path, NULL) == PGD_OS_REGULAR;
}

// 1 when every shard of the index is there. An index that cannot be read is not asked: the reader
// of weights says what is wrong with it.
static int32_t has_shards(const hub_place *p, char *missing) {
    char path[HUB_PATH];
    pgd_os_map map = {0};
    pgd_load_shards shards = {0};
    int32_t whole = 1;
    pgd_load_hub_path(path, "%s/snapshots/%s/%s", p->folder, p->commit, INDEX_NAME);
    if (pgd_load_folder_map(path, PGD_LOAD_MAX_INDEX_BYTES, &map) != PGD_OK) {
        return 1;
    }
    if (pgd_load_shards_parse(pgd_load_folder_text(&map), path, &shards) == PGD_OK) {
        for (uint32_t i = 0; whole && i < shards.n; i++) {
            (void)snprintf(missing, HUB_NAME, "%.*s", (int)shards.entries[i].file.len,
                           shards.entries[i].file.ptr);
            whole = pgd_load_hub_has(p, missing);
        }
        pgd_load_shards_free(&shards);
    }
    pgd_os_unmap(&map);
    return whole;
}

int32_t pgd_load_hub_is_whole(const hub_place *p, char *missing) {
    if (!pgd_load_hub_has(p, CONFIG_NAME)) {
        (void)snprintf(missing, HUB_NAME, CONFIG_NAME);
        return 0;
    }
    if (pgd_load_hub_has(p, INDEX_NAME)) {
        if (!has_shards(p, missing)) {
            return 0;
        }
    } else if (!pgd_load_hub_has(p, SINGLE_NAME)) {
        (void)snprintf(missing, HUB_NAME, SINGLE_NAME);
        return 0;
    }
    (void)snprintf(missing, HUB_NAME, TOKENS_NAME);
    return pgd_load_hub_has(p, TOKENS_NAME) || is_known_absent(p, TOKENS_NAME);
}

// Makes the folder that path lies in.
static pgd_status make_parent(const char *path) {
    char folder[HUB_PATH];
    const char *slash = strrchr(path, '/');
    pgd_load_hub_path(folder, "%.*s", (int)(slash - path), path);
    return pgd_load_hub_os(pgd_os_folder_make(folder), folder, "be made");
}

pgd_status pgd_load_hub_link(const hub_place *p, const hub_file *file) {
    char path[HUB_PATH];
    char text[HUB_PATH];
    pgd_load_hub_path(path, "%s/snapshots/%s/%s", p->folder, p->commit, file->name);
    pgd_load_hub_path(text, "../../blobs/%s", file->etag);
    PGD_TRY(make_parent(path));
    return pgd_load_hub_os(pgd_os_folder_link(text, path), path, "be made a link");
}

// Writes a small file in one move.
static pgd_status write_whole(const char *path, const char *text) {
    char beside[HUB_PATH];
    unsigned char salt[4] = {0};
    pgd_os_file f = {-1};
    (void)pgd_os_random(salt, sizeof(salt));
    pgd_load_hub_path(beside, "%s.%02x%02x%02x%02x", path, salt[0], salt[1], salt[2], salt[3]);
    PGD_TRY(make_parent(path));
    pgd_status code = pgd_os_open_write(beside, 0, &f);
    if (code == PGD_OK) {
        code = pgd_os_write(f, text, strlen(text));
        pgd_os_close(&f);
    }
    if (code == PGD_OK) {
        code = pgd_os_folder_move(beside, path);
    }
    return pgd_load_hub_os(code, path, "be written");
}

pgd_status pgd_load_hub_write_ref(const hub_place *p) {
    char path[HUB_PATH];
    if (pgd_load_hub_is_commit(pgd_str_of(p->revision))) {
        return PGD_OK;
    }
    pgd_load_hub_path(path, "%s/refs/%s", p->folder, p->revision);
    return write_whole(path, p->commit);
}

pgd_status pgd_load_hub_write_absent(const hub_place *p, const char *name) {
    char path[HUB_PATH];
    pgd_load_hub_path(path, "%s/.no_exist/%s/%s", p->folder, p->commit, name);
    return write_whole(path, "");
}
