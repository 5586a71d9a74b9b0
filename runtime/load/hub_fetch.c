// One file of a repository: asked for, brought, checked, linked.
//
//   HEAD /org/name/resolve/<commit>/<file>    size and etag; behind a redirect x-linked-*
//   GET  the same, or where it redirects to   Range: bytes=N- when N bytes are here already
//
// The token goes to the endpoint alone. What has come lies in blobs/<etag>.incomplete, under the
// lock of the blob, until its checksum is right: an etag of 64 hex digits is the file's SHA-256,
// one of 40 is the SHA-1 of git's blob (both facts of the hub's protocol).
#include "load/hub_inner.h"

#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/digest.h"
#include "base/fail.h"
#include "load/fields.h"
#include "load/folder.h"
#include "os/env.h"
#include "os/folder.h"

#define MAX_HOPS    5
#define MAX_RETRIES 3
#define PAUSE_NS    UINT64_C(500000000) // before the first retry; doubles
#define REPORT_NS   UINT64_C(50000000)

static void report(const hub_fetch *f, const char *doing, const char *what, uint64_t done) {
    char text[HUB_REPO + HUB_NAME + 32];
    if (f->progress != NULL && f->progress->fn != NULL) {
        (void)snprintf(text, sizeof(text), "%s %s", doing, what);
        f->progress->fn(f->progress->arg, text, done, f->total);
    }
}

// ---- questions ---------------------------------------------------------------------------------

static pgd_status refused(const hub_place *p, const pgd_load_http_reply *r, const char *what) {
    const char *token =
        p->token[0] != '\0' ? "the token in use has no access to it" : "no token is set (HF_TOKEN)";
    if (strcmp(r->error_code, "GatedRepo") == 0) {
        return pgd_fail(PGD_DENIED,
                        "model \"%s\" is gated: ask for access at %s/%s and set HF_TOKEN; %s",
                        p->repo, p->endpoint, p->repo, token);
    }
    if (strcmp(r->error_code, "RevisionNotFound") == 0) {
        return pgd_fail(PGD_NOT_FOUND, "model \"%s\" has no revision \"%s\" at %s", p->repo,
                        p->revision, p->endpoint);
    }
    if (strcmp(r->error_code, "EntryNotFound") == 0) {
        return pgd_fail(PGD_NOT_FOUND, "model \"%s\" has no file %s at %s", p->repo, what,
                        p->endpoint);
    }
    if (strcmp(r->error_code, "RepoNotFound") == 0 || r->status == 401 || r->status == 404) {
        return pgd_fail(PGD_NOT_FOUND,
                        "model \"%s\": there is no such folder, and no such repository at %s, or "
                        "it is private and %s",
                        p->repo, p->endpoint, token);
    }
    if (r->status == 403) {
        return pgd_fail(PGD_DENIED, "model \"%s\": %s refuses %s; %s", p->repo, p->endpoint, what,
                        token);
    }
    return pgd_fail(PGD_UNAVAILABLE, "model \"%s\": %s answers %d to %s", p->repo, p->endpoint,
                    r->status, what);
}

// Where a redirect leads, if one may go there.
static pgd_status follow(const hub_place *p, const pgd_load_http_reply *r, char url[HUB_PATH]) {
    int32_t is_plain = strncmp(r->location, "http://", 7) == 0;
    if (r->location[0] == '\0' || (is_plain && strncmp(p->endpoint, "https://", 8) == 0)) {
        return pgd_fail(PGD_UNAVAILABLE, "model \"%s\": %s redirects to %s", p->repo, p->endpoint,
                        is_plain ? "an unencrypted address" : "nowhere");
    }
    pgd_load_hub_path(url, "%s", r->location);
    return PGD_OK;
}

static int32_t is_redirect(const pgd_load_http_reply *r) {
    return r->status == 301 || r->status == 302 || r->status == 303 || r->status == 307 ||
           r->status == 308;
}

pgd_status pgd_load_hub_ask(hub_fetch *f, pgd_load_http_request *request,
                            pgd_load_http_reply *reply) {
    hub_place *p = f->place;
    char url[HUB_PATH];
    const char *what = request->url; // a path
    pgd_load_hub_path(url, "%s%s", p->endpoint, what);
    request->timeout_s = p->timeout_s;
    for (int32_t hop = 0; hop < MAX_HOPS; hop++) {
        int32_t home = pgd_load_http_same_origin(url, p->endpoint);
        request->url = url;
        request->token = home && p->token[0] != '\0' ? p->token : NULL;
        pgd_status status = pgd_load_http_ask(f->http, request, reply);
        request->url = what;
        PGD_TRY(status);
        if (!is_redirect(reply)) {
            return reply->status == 200 || reply->status == 206 || reply->status == 416
                       ? PGD_OK
                       : refused(p, reply, what);
        }
        // What is wanted of a HEAD stands in the hub's own redirect.
        if (request->head && reply->linked_etag[0] != '\0') {
            return PGD_OK;
        }
        PGD_TRY(follow(p, reply, url));
    }
    return pgd_fail(PGD_UNAVAILABLE, "model \"%s\": %s redirects more than %d times", p->repo,
                    p->endpoint, MAX_HOPS);
}

// A request to try again: nothing was answered, or the server is at its limit.
static int32_t is_passing(pgd_status status, const pgd_load_http_reply *r) {
    return status == PGD_UNAVAILABLE &&
           (r->status < 400 || r->status == 408 || r->status == 429 || r->status >= 500);
}

static void resolve_path(const hub_fetch *f, const char *name, char *out) {
    char escaped[3 * HUB_NAME];
    pgd_load_http_escape(pgd_str_of(name), escaped, sizeof(escaped));
    pgd_load_hub_path(out, "/%s/resolve/%s/%s", f->place->repo, f->place->commit, escaped);
}

// "abc" or W/"abc" -> abc, as long as it can be the name of a file.
static int32_t take_etag(const char *text, char *out, size_t cap) {
    pgd_str s = pgd_str_of(text);
    if (pgd_str_starts(s, PGD_STR("W/"))) {
        s.ptr += 2;
        s.len -= 2;
    }
    if (s.len >= 2 && s.ptr[0] == '"' && s.ptr[s.len - 1] == '"') {
        s.ptr++;
        s.len -= 2;
    }
    if (s.len == 0 || s.len >= cap || s.ptr[0] == '.') {
        return 0;
    }
    for (size_t i = 0; i < s.len; i++) {
        char c = s.ptr[i];
        if (!((c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
              c == '-' || c == '_' || c == '.')) {
            return 0;
        }
    }
    memcpy(out, s.ptr, s.len);
    out[s.len] = '\0';
    return 1;
}

pgd_status pgd_load_hub_head(hub_fetch *f, hub_file *file) {
    char path[HUB_PATH];
    pgd_load_http_reply reply;
    resolve_path(f, file->name, path);
    uint64_t pause = PAUSE_NS;
    pgd_status status = PGD_OK;
    for (int32_t turn = 0;; turn++, pause *= 2) {
        pgd_load_http_request request = {.url = path, .head = 1};
        status = pgd_load_hub_ask(f, &request, &reply);
        if (status == PGD_OK || !is_passing(status, &reply) || turn == MAX_RETRIES) {
            break;
        }
        pgd_os_sleep_ns(pause);
    }
    PGD_TRY(status);
    const char *etag = reply.linked_etag[0] != '\0' ? reply.linked_etag : reply.etag;
    if (!take_etag(etag, file->etag, sizeof(file->etag))) {
        return pgd_fail(PGD_UNAVAILABLE, "model \"%s\": %s gives no checksum (etag) for %s",
                        f->place->repo, f->place->endpoint, file->name);
    }
    file->bytes = reply.linked_size != PGD_LOAD_HTTP_UNKNOWN ? reply.linked_size : reply.length;
    return PGD_OK;
}

// ---- bytes -------------------------------------------------------------------------------------

typedef struct part {
    hub_fetch *f;
    const hub_file *file;
    const char *path; // of the incomplete file
    pgd_os_file out;  // open while bytes come
    uint64_t have;    // bytes in it
    uint64_t last_ns; // of the last report
    int32_t begun;    // 1: the answer to this request was looked at
    int32_t stop;     // 1: the sink failed, asking again does not help
} part;

// The answer to a question for the rest may be the whole.
static pgd_status begin(part *p, const pgd_load_http_reply *reply) {
    p->begun = 1;
    if (reply->status == 206 && p->have > 0 && reply->range_start != p->have) {
        return pgd_fail(PGD_UNAVAILABLE, "%s: asked for bytes from %llu, got others", p->file->name,
                        (unsigned long long)p->have);
    }
    if (reply->status == 200 && p->have > 0) {
        PGD_TRY(pgd_load_hub_os(pgd_os_truncate(p->path, 0), p->path, "be begun again"));
        p->f->done -= p->have;
        p->have = 0;
    }
    return PGD_OK;
}

static pgd_status take(part *p, const pgd_load_http_reply *reply, const char *bytes, size_t n) {
    if (!p->begun) {
        PGD_TRY(begin(p, reply));
    }
    if (p->file->bytes != PGD_LOAD_HTTP_UNKNOWN && n > p->file->bytes - p->have) {
        return pgd_fail(PGD_DATA_LOSS, "%s: more than the %llu bytes that were announced",
                        p->file->name, (unsigned long long)p->file->bytes);
    }
    PGD_TRY(pgd_load_hub_os(pgd_os_write(p->out, bytes, n), p->path, "be written"));
    p->have += n;
    p->f->done += n;
    uint64_t now = pgd_clock_ns();
    if (now - p->last_ns > REPORT_NS) {
        p->last_ns = now;
        report(p->f, "downloading", p->f->place->repo, p->f->done);
    }
    return PGD_OK;
}

static pgd_status sink(void *arg, const pgd_load_http_reply *reply, const char *bytes, size_t n) {
    part *p = arg;
    pgd_status status = take(p, reply, bytes, n);
    p->stop = status != PGD_OK;
    return status;
}

static pgd_status ask_once(part *p, pgd_load_http_reply *reply) {
    char path[HUB_PATH];
    resolve_path(p->f, p->file->name, path);
    pgd_load_http_request request = {.url = path, .from = p->have, .sink = sink, .arg = p};
    p->begun = 0;
    pgd_status status = pgd_load_hub_ask(p->f, &request, reply);
    if (status == PGD_OK && reply->status == 416) {
        // What is here is longer than the file: it cannot be a part of it.
        PGD_TRY(pgd_load_hub_os(pgd_os_truncate(p->path, 0), p->path, "be begun again"));
        p->f->done -= p->have;
        p->have = 0;
        reply->status = 0; // to be asked again
        return pgd_fail(PGD_UNAVAILABLE, "%s: begins again", p->file->name);
    }
    return status;
}

static int32_t is_complete(const part *p, pgd_status last) {
    return p->file->bytes != PGD_LOAD_HTTP_UNKNOWN ? p->have == p->file->bytes : last == PGD_OK;
}

// Asks until all is here. A connection that broke is asked again as long as something came.
static pgd_status transfer(part *p) {
    pgd_load_http_reply reply = {0};
    pgd_status status = PGD_UNAVAILABLE;
    uint64_t pause = PAUSE_NS;
    int32_t retries = 0;
    if (p->file->bytes != PGD_LOAD_HTTP_UNKNOWN && p->have == p->file->bytes) {
        return PGD_OK;
    }
    for (;;) {
        uint64_t before = p->have;
        status = ask_once(p, &reply);
        if (is_complete(p, status)) {
            return PGD_OK;
        }
        if (status == PGD_OK) {
            reply.status = 0;
            status = pgd_fail(PGD_UNAVAILABLE, "the connection ended early");
        }
        if (p->have > before) {
            retries = 0;
            pause = PAUSE_NS;
        }
        if (p->stop || !is_passing(status, &reply) || retries++ == MAX_RETRIES) {
            break;
        }
        pgd_os_sleep_ns(pause);
        pause *= 2;
    }
    char all[32] = "";
    if (p->file->bytes != PGD_LOAD_HTTP_UNKNOWN) {
        (void)snprintf(all, sizeof(all), " of %llu", (unsigned long long)p->file->bytes);
    }
    return pgd_fail_note(status,
                         "downloading %s: %llu%s bytes are kept and the next run goes on from "
                         "there",
                         p->file->name, (unsigned long long)p->have, all);
}

// ---- checksums ---------------------------------------------------------------------------------

static int32_t is_hex(const char *text) {
    return text[strspn(text, "0123456789abcdef")] == '\0';
}

static pgd_status digest(const pgd_os_map *map, size_t hex, char *out) {
    char head[40];
    if (hex == PGD_SHA256_HEX) {
        return pgd_sha256_hex((pgd_str){"", 0}, pgd_load_folder_text(map), out);
    }
    int n = snprintf(head, sizeof(head), "blob %llu", (unsigned long long)map->bytes);
    return pgd_sha1_hex((pgd_str){head, (size_t)n + 1}, pgd_load_folder_text(map), out);
}

// What lies on the disk is checked, not what went over the wire.
static pgd_status check(const part *p) {
    char found[PGD_SHA256_HEX + 1] = "";
    pgd_os_map map = {0};
    size_t hex = strlen(p->file->etag);
    pgd_status status = PGD_OK;
    if ((hex != PGD_SHA256_HEX && hex != PGD_SHA1_HEX) || !is_hex(p->file->etag)) {
        return PGD_OK;
    }
    report(p->f, "checking", p->file->name, p->f->done);
    PGD_TRY(pgd_load_folder_map(p->path, 0, &map));
    status = digest(&map, hex, found);
    if (status == PGD_OK && strcmp(found, p->file->etag) != 0) {
        status = pgd_fail(PGD_DATA_LOSS,
                          "%s: its checksum is %s, and the hub says %s; what was downloaded is "
                          "thrown away",
                          p->file->name, found, p->file->etag);
    }
    pgd_os_unmap(&map);
    return status;
}

// ---- one blob ----------------------------------------------------------------------------------

static pgd_status fill_blob(part *p, const char *blob) {
    pgd_status code = PGD_OK;
    if (pgd_os_kind(p->path, &p->have) == PGD_OS_REGULAR &&
        p->file->bytes != PGD_LOAD_HTTP_UNKNOWN && p->have > p->file->bytes) {
        p->have = 0;
        code = pgd_os_truncate(p->path, 0);
    }
    p->f->done += p->have;
    code = code == PGD_OK ? pgd_os_open_write(p->path, 1, &p->out) : code;
    PGD_TRY(pgd_load_hub_os(code, p->path, "be written"));
    pgd_status status = transfer(p);
    if (status == PGD_OK) {
        status = pgd_load_hub_os(pgd_os_sync(p->out), p->path, "be written");
    }
    pgd_os_close(&p->out);
    PGD_TRY(status);
    status = check(p);
    if (status == PGD_DATA_LOSS) {
        PGD_TRY(pgd_load_hub_os(pgd_os_folder_remove(p->path), p->path, "be removed"));
    }
    PGD_TRY(status);
    return pgd_load_hub_os(pgd_os_folder_move(p->path, blob), blob, "be written");
}

// Waits until nobody else downloads this blob.
static pgd_status lock(hub_fetch *f, const hub_file *file, pgd_os_file *out) {
    char path[HUB_PATH];
    char folder[HUB_PATH];
    const char *name = strrchr(f->place->folder, '/') + 1;
    pgd_load_hub_path(folder, "%s/.locks/%s", f->place->cache, name);
    pgd_load_hub_path(path, "%s/%s.lock", folder, file->etag);
    PGD_TRY(pgd_load_hub_os(pgd_os_folder_make(folder), folder, "be made"));
    pgd_status code = pgd_os_folder_lock(path, 0, out);
    if (code == PGD_PRECONDITION) {
        report(f, "waiting for another download of", file->name, f->done);
        code = pgd_os_folder_lock(path, 1, out);
    }
    return pgd_load_hub_os(code, path, "be locked");
}

pgd_status pgd_load_hub_get(hub_fetch *f, const hub_file *file) {
    char blob[HUB_PATH];
    char path[HUB_PATH];
    pgd_os_file held = {-1};
    pgd_status status = PGD_OK;
    pgd_load_hub_path(path, "%s/blobs", f->place->folder);
    PGD_TRY(pgd_load_hub_os(pgd_os_folder_make(path), path, "be made"));
    pgd_load_hub_path(blob, "%s/blobs/%s", f->place->folder, file->etag);
    pgd_load_hub_path(path, "%s.incomplete", blob);
    PGD_TRY(lock(f, file, &held));
    uint64_t bytes = 0;
    if (pgd_os_kind(blob, &bytes) != PGD_OS_REGULAR) {
        part p = {.f = f, .file = file, .path = path, .out = {-1}};
        status = fill_blob(&p, blob);
    } else {
        f->done += bytes; // another process, or another file of the same content
    }
    pgd_os_close(&held);
    PGD_TRY(status);
    report(f, "downloading", f->place->repo, f->done);
    return pgd_load_hub_link(f->place, file);
}
