// What the files of the hub share: hub.c decides, hub_cache.c knows the folders, hub_fetch.c brings
// one file.
#ifndef PGD_LOAD_HUB_INNER_H
#define PGD_LOAD_HUB_INNER_H

#include "load/http.h"
#include "load/hub.h"

#define HUB_PATH     4096
#define HUB_FOLDER   3072 // of the cache's own path; what is below it is shorter than the rest
#define HUB_REPO     200
#define HUB_REVISION 128
#define HUB_COMMIT   41 // 40 hex digits
#define HUB_NAME     256

// A model's place in the cache, and what the environment says.
typedef struct hub_place {
    char repo[HUB_REPO]; // org/name
    char revision[HUB_REVISION];
    char commit[HUB_COMMIT]; // "" while it is not known
    char cache[HUB_PATH];    // absolute
    char folder[HUB_PATH];   // <cache>/models--org--name
    char endpoint[512];      // without a slash at its end
    char token[1024];        // "" = none
    int32_t offline;
    int32_t timeout_s; // 0 = default
} hub_place;

// One file of the repository.
typedef struct hub_file {
    char name[HUB_NAME];
    char etag[130]; // its blob's name
    uint64_t bytes; // PGD_LOAD_HTTP_UNKNOWN if the hub did not say
} hub_file;

// A download of several files.
typedef struct hub_fetch {
    hub_place *place;
    pgd_load_http *http;
    const pgd_load_progress *progress; // NULL = none
    hub_file *files;
    uint32_t n;
    uint32_t cap;
    uint64_t done;  // bytes there, of all files
    uint64_t total; // bytes of all files
} hub_fetch;

// ---- hub_cache.c -------------------------------------------------------------------------------

// Reads the name and the environment.
//   fails  INVALID
pgd_status pgd_load_hub_place(pgd_str name, hub_place *out) PGD_MUST_USE;
// snprintf into out[HUB_PATH]: of paths in the cache and at the endpoint, which fit, because names,
// revisions, folders and endpoints are limited where they come in.
void pgd_load_hub_path(char *out, const char *fmt, ...) PGD_PRINTF(2, 3);
// The commit that refs/<revision> names, or the revision itself if it is one. 0 = not known.
int32_t pgd_load_hub_read_ref(hub_place *p);
// 1 when the snapshot has what is needed to run; else 0 and what is missing in missing[HUB_NAME].
int32_t pgd_load_hub_is_whole(const hub_place *p, char *missing);
// 1 when a file of the snapshot is there.
int32_t pgd_load_hub_has(const hub_place *p, const char *name);
// Links snapshots/<commit>/<name> to its blob.
pgd_status pgd_load_hub_link(const hub_place *p, const hub_file *file) PGD_MUST_USE;
// Notes the commit of the revision, and that the repository has no such file.
pgd_status pgd_load_hub_write_ref(const hub_place *p) PGD_MUST_USE;
pgd_status pgd_load_hub_write_absent(const hub_place *p, const char *name) PGD_MUST_USE;
// PGD_OK, or a sentence about a failed call of os/ on a file.
pgd_status pgd_load_hub_os(pgd_status code, const char *path, const char *doing) PGD_MUST_USE;
// 1 for 40 hex digits.
int32_t pgd_load_hub_is_commit(pgd_str text);
// The files that are wanted if the repository has them; weights come on top. Ends with NULL.
extern const char *const pgd_load_hub_wanted[];

// ---- hub_fetch.c -------------------------------------------------------------------------------

// GET or HEAD of a path at the endpoint, with the token; sentences for every answer but 200, 206
// and redirects.
pgd_status pgd_load_hub_ask(hub_fetch *f, pgd_load_http_request *request,
                            pgd_load_http_reply *reply) PGD_MUST_USE;
// Asks for size and checksum of a file.
pgd_status pgd_load_hub_head(hub_fetch *f, hub_file *file) PGD_MUST_USE;
// Brings the blob of a file into the cache, from where an earlier attempt ended, and links it.
pgd_status pgd_load_hub_get(hub_fetch *f, const hub_file *file) PGD_MUST_USE;

#endif
