// What to do for a model's name: take the cache, or ask the hub and bring what is missing.
//
//   name -> place -> refs/<revision> -> snapshot whole? -> yes: done
//                                                       -> no: api (commit, list of files)
//                                                              -> heads -> room -> files -> ref
#include "load/hub_inner.h"

#include <stdio.h>
#include <string.h>

#include "base/fail.h"
#include "base/json.h"
#include "base/log.h"
#include "base/mem.h"
#include "load/fields.h"
#include "load/folder.h"
#include "load/shards.h"
#include "os/folder.h"

#define MAX_INFO_BYTES (64u << 20)
#define SINGLE_NAME    "model.safetensors"
#define INDEX_NAME     "model.safetensors.index.json"
#define TOKENS_NAME    "tokenizer.json"

// ---- the list of files -------------------------------------------------------------------------

static pgd_status collect(void *arg, const pgd_load_http_reply *reply, const char *bytes,
                          size_t n) {
    pgd_text *t = arg;
    (void)reply;
    if (n > MAX_INFO_BYTES - t->len) {
        return pgd_fail(PGD_INVALID, "the hub's answer has more than %u bytes", MAX_INFO_BYTES);
    }
    return pgd_text_add(t, bytes, n);
}

// The repository as the hub describes it: {"sha": ..., "siblings": [{"rfilename": ...}, ...]}
static pgd_status read_info(hub_fetch *f, pgd_json_doc **out) {
    hub_place *p = f->place;
    char revision[3 * HUB_REVISION];
    char path[HUB_PATH];
    pgd_text text = {0};
    pgd_load_http_reply reply;
    pgd_str sha = {0};
    pgd_load_http_escape(pgd_str_of(p->revision), revision, sizeof(revision));
    pgd_load_hub_path(path, "/api/models/%s/revision/%s", p->repo, revision);
    pgd_load_http_request request = {.url = path, .sink = collect, .arg = &text};
    pgd_status status = pgd_load_hub_ask(f, &request, &reply);
    if (status == PGD_OK) {
        status = pgd_json_parse(pgd_text_view(&text), "the hub's answer", 64, out);
    }
    pgd_text_free(&text);
    PGD_TRY(status);
    const pgd_json *root = pgd_json_root(*out);
    if (!pgd_json_to_str(pgd_json_get(root, "sha"), &sha) || !pgd_load_hub_is_commit(sha) ||
        !pgd_json_is(pgd_json_get(root, "siblings"), PGD_JSON_ARRAY)) {
        pgd_json_free(*out);
        *out = NULL;
        return pgd_fail(PGD_UNAVAILABLE,
                        "model \"%s\": what %s answers is no description of a repository", p->repo,
                        p->endpoint);
    }
    memcpy(p->commit, sha.ptr, sha.len);
    return PGD_OK;
}

static int32_t is_listed(const pgd_json *info, pgd_str name) {
    const pgd_json *list = pgd_json_get(info, "siblings");
    for (uint32_t i = 0; i < list->n; i++) {
        pgd_str s = {0};
        if (pgd_json_to_str(pgd_json_get(&list->items[i], "rfilename"), &s) &&
            pgd_str_equal(s, name)) {
            return 1;
        }
    }
    return 0;
}

// Adds a file that is not in the snapshot yet.
static pgd_status want(hub_fetch *f, pgd_str name) {
    hub_file file = {0};
    // What the names of shards may be is checked by pgd_load_shards_parse.
    (void)snprintf(file.name, sizeof(file.name), "%.*s", (int)name.len, name.ptr);
    if (pgd_load_hub_has(f->place, file.name)) {
        return PGD_OK;
    }
    if (f->n == f->cap) {
        uint32_t cap = f->cap == 0 ? 16 : 2 * f->cap;
        hub_file *grown = pgd_mem_realloc(f->files, cap, sizeof(*grown));
        if (grown == NULL) {
            return PGD_MEM_FAIL("a list of files", cap * sizeof(*grown));
        }
        f->files = grown;
        f->cap = cap;
    }
    f->files[f->n++] = file;
    return PGD_OK;
}

// Nothing is brought that does not fit: a full disk is told of before the first byte.
static pgd_status check_room(const hub_fetch *f) {
    uint64_t room = 0;
    uint64_t here = 0;
    char path[HUB_PATH];
    for (uint32_t i = 0; i < f->n; i++) {
        uint64_t bytes = 0;
        pgd_load_hub_path(path, "%s/blobs/%s.incomplete", f->place->folder, f->files[i].etag);
        (void)pgd_os_kind(path, &bytes);
        here += bytes;
    }
    if (pgd_os_folder_room(f->place->cache, &room) == PGD_OK && f->total > here &&
        f->total - here > room) {
        return pgd_fail(PGD_UNAVAILABLE,
                        "model \"%s\": %llu bytes are to be downloaded, and %llu are free in %s",
                        f->place->repo, (unsigned long long)(f->total - here),
                        (unsigned long long)room, f->place->cache);
    }
    return PGD_OK;
}

// Brings the files of the list; it is empty afterwards.
static pgd_status bring(hub_fetch *f) {
    f->done = 0;
    f->total = 0;
    for (uint32_t i = 0; i < f->n; i++) {
        PGD_TRY(pgd_load_hub_head(f, &f->files[i]));
        if (f->files[i].bytes != PGD_LOAD_HTTP_UNKNOWN &&
            !pgd_size_add(f->total, f->files[i].bytes, &f->total)) {
            return pgd_fail(PGD_OUT_OF_RANGE,
                            "model \"%s\": its files' sizes add up to more than "
                            "64 bits hold",
                            f->place->repo);
        }
    }
    PGD_TRY(pgd_load_hub_os(pgd_os_folder_make(f->place->folder), f->place->folder, "be made"));
    PGD_TRY(check_room(f));
    for (uint32_t i = 0; i < f->n; i++) {
        PGD_TRY(pgd_load_hub_get(f, &f->files[i]));
    }
    f->n = 0;
    return PGD_OK;
}

// ---- what is wanted ----------------------------------------------------------------------------

static pgd_status want_shards(hub_fetch *f, const pgd_json *info) {
    char path[HUB_PATH];
    pgd_os_map map = {0};
    pgd_load_shards shards = {0};
    pgd_load_hub_path(path, "%s/snapshots/%s/" INDEX_NAME, f->place->folder, f->place->commit);
    PGD_TRY(pgd_load_folder_map(path, PGD_LOAD_MAX_INDEX_BYTES, &map));
    pgd_status status = pgd_load_shards_parse(pgd_load_folder_text(&map), path, &shards);
    for (uint32_t i = 0; status == PGD_OK && i < shards.n; i++) {
        pgd_str name = shards.entries[i].file;
        if (i > 0 && pgd_str_equal(shards.entries[i - 1].file, name)) {
            continue;
        }
        status = is_listed(info, name)
                     ? want(f, name)
                     : pgd_fail(PGD_NOT_FOUND,
                                "model \"%s\": " INDEX_NAME " names %.*s, which the repository "
                                "does not have",
                                f->place->repo, PGD_LOAD_SHOW(name));
    }
    pgd_load_shards_free(&shards);
    pgd_os_unmap(&map);
    return status;
}

static pgd_status no_weights(const hub_place *p, const pgd_json *info) {
    const char *instead = is_listed(info, PGD_STR("pytorch_model.bin")) ||
                                  is_listed(info, PGD_STR("pytorch_model.bin.index.json"))
                              ? "; it has pytorch_model.bin, a format that can run code"
                              : "";
    return pgd_fail(PGD_UNSUPPORTED,
                    "model \"%s\": the repository has neither " SINGLE_NAME " nor " INDEX_NAME "%s",
                    p->repo, instead);
}

static pgd_status bring_all(hub_fetch *f, const pgd_json *info) {
    int32_t sharded = is_listed(info, PGD_STR(INDEX_NAME));
    if (!sharded && !is_listed(info, PGD_STR(SINGLE_NAME))) {
        return no_weights(f->place, info);
    }
    for (const char *const *name = pgd_load_hub_wanted; *name != NULL; name++) {
        if (is_listed(info, pgd_str_of(*name))) {
            PGD_TRY(want(f, pgd_str_of(*name)));
        }
    }
    if (sharded) {
        PGD_TRY(want(f, PGD_STR(INDEX_NAME)));
        PGD_TRY(bring(f));
        PGD_TRY(want_shards(f, info));
    } else {
        PGD_TRY(want(f, PGD_STR(SINGLE_NAME)));
    }
    PGD_TRY(bring(f));
    for (const char *const *name = pgd_load_hub_wanted; *name != NULL; name++) {
        if (!is_listed(info, pgd_str_of(*name))) {
            PGD_TRY(pgd_load_hub_write_absent(f->place, *name));
        }
    }
    return pgd_load_hub_write_ref(f->place);
}

static pgd_status download(hub_place *p, const pgd_load_progress *progress) {
    hub_fetch f = {.place = p, .progress = progress};
    pgd_json_doc *info = NULL;
    char missing[HUB_NAME];
    pgd_status status = pgd_load_http_open(&f.http);
    if (status == PGD_OK) {
        status = read_info(&f, &info);
    }
    if (status == PGD_OK) {
        status = bring_all(&f, pgd_json_root(info));
    }
    if (status == PGD_OK && !pgd_load_hub_is_whole(p, missing)) {
        status = pgd_fail(PGD_NOT_FOUND, "model \"%s\": the repository at %s has no %s", p->repo,
                          p->endpoint, missing);
    }
    pgd_json_free(info);
    pgd_mem_free(f.files);
    pgd_load_http_close(f.http);
    return status;
}

// ---- the cache or the hub ----------------------------------------------------------------------

static pgd_status offline(const hub_place *p, int32_t known, const char *missing) {
    if (!known) {
        return pgd_fail(PGD_NOT_FOUND,
                        "model \"%s\": there is no such folder, revision %s is not in the cache "
                        "%s, and HF_HUB_OFFLINE forbids asking the hub",
                        p->repo, p->revision, p->cache);
    }
    return pgd_fail(PGD_NOT_FOUND,
                    "model \"%s\": %s is not in the cache %s/snapshots/%s, and HF_HUB_OFFLINE "
                    "forbids asking the hub",
                    p->repo, missing, p->folder, p->commit);
}

pgd_status pgd_load_hub_find(pgd_str name, const pgd_load_progress *progress, char *out,
                             size_t cap) {
    hub_place p;
    char path[HUB_PATH];
    char missing[HUB_NAME] = "";
    PGD_TRY(pgd_load_hub_place(name, &p));
    int32_t known = pgd_load_hub_read_ref(&p);
    int32_t whole = known && pgd_load_hub_is_whole(&p, missing);
    // Weights without a tokenizer run too, for whoever brings token ids.
    int32_t enough = whole || (known && strcmp(missing, TOKENS_NAME) == 0);
    char commit[HUB_COMMIT];
    memcpy(commit, p.commit, sizeof(commit));
    if (!whole && p.offline && !enough) {
        return offline(&p, known, missing);
    }
    if (!whole && !p.offline) {
        pgd_status status = download(&p, progress);
        if (status != PGD_OK && (!enough || status != PGD_UNAVAILABLE)) {
            return status;
        }
        if (status != PGD_OK) {
            pgd_log(PGD_LEVEL_WARNING, "%s; taking what is in the cache", pgd_fail_text(status));
            memcpy(p.commit, commit, sizeof(commit));
        }
    }
    pgd_load_hub_path(path, "%s/snapshots/%s", p.folder, p.commit);
    size_t n = strlen(path);
    if (n >= cap) {
        return pgd_fail(PGD_OUT_OF_RANGE, "a model path of %zu bytes; fewer than %zu are allowed",
                        n, cap);
    }
    memcpy(out, path, n + 1);
    return PGD_OK;
}
