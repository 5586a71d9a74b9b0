// Manifests: the JSON beside a plugin's library, read before anything is opened.
//
//   {"schema":1, "kind":"acme", "name":"Acme NPU", "vendor":"Acme", "version":"1.2.0",
//    "role":"backend", "aliases":["accel"], "abi":{"major":0,"minor":1,"min_host_minor":1},
//    "library":"libpgd-acme.so", "sha256":"...", "license":"...",
//    "matches":["pci:1234:*"], "needs":["libacme.so.2"],
//    "options":[{"key":"...","type":"int","default":"...","help":"..."}]}
//
// Unknown keys are ignored. Anything missing or wrong makes the plugin unusable with a reason.
#include "dev/inner.h"

#include <stdio.h>
#include <string.h>

#include "base/digest.h"
#include "base/fail.h"
#include "base/json.h"
#include "base/mem.h"
#include "os/file.h"

#define MAX_KIND_BYTES 24

typedef struct reader {
    pgd_arena *arena;
    pgd_dev_manifest *m;
    const pgd_json *root;
    pgd_status code; // only OUT_OF_MEMORY
    int32_t reserved0;
} reader;

static const char *text_of(reader *r, pgd_str s) {
    pgd_str copy = pgd_arena_copy(r->arena, s);
    if (copy.ptr == NULL) {
        r->code = PGD_MEM_FAIL("a manifest", s.len);
        return "";
    }
    return copy.ptr;
}

static int32_t refuse(reader *r, const char *why, const char *what) {
    char text[400];
    snprintf(text, sizeof(text), why, what);
    if (r->m->unusable == NULL) {
        r->m->unusable = text_of(r, pgd_str_of(text));
    }
    return 0;
}

static int32_t read_text(reader *r, const char *key, int32_t must, const char **out) {
    pgd_str s = {0};
    const pgd_json *v = pgd_json_get(r->root, key);
    *out = "";
    if (v == NULL && !must) {
        return 1;
    }
    if (!pgd_json_to_str(v, &s) || (must && s.len == 0) || memchr(s.ptr, '\0', s.len) != NULL) {
        return refuse(r, "its manifest has no text under \"%s\"", key);
    }
    *out = text_of(r, s);
    return 1;
}

static int32_t read_number(reader *r, const pgd_json *at, const char *key, int64_t *out) {
    if (!pgd_json_to_i64(pgd_json_get(at, key), out) || *out < 0 || *out > 65535) {
        return refuse(r, "its manifest has no number from 0 to 65535 under \"%s\"", key);
    }
    return 1;
}

static int32_t read_schema(reader *r) {
    int64_t schema = 0;
    if (!pgd_json_is(r->root, PGD_JSON_OBJECT)) {
        return refuse(r, "its manifest is no JSON object%s", "");
    }
    if (!read_number(r, r->root, "schema", &schema)) {
        return 0;
    }
    char found[24];
    snprintf(found, sizeof(found), "%lld", (long long)schema);
    return schema == 1 || refuse(r, "its manifest has schema %s, this host reads schema 1", found);
}

static int32_t is_kind(const char *kind) {
    size_t n = strlen(kind);
    if (n == 0 || n > MAX_KIND_BYTES || strcmp(kind, "auto") == 0 || strcmp(kind, "pci") == 0 ||
        strcmp(kind, "uuid") == 0) {
        return 0;
    }
    return strspn(kind, "abcdefghijklmnopqrstuvwxyz0123456789_-") == n;
}

static int32_t read_kind(reader *r) {
    const char *kind = "";
    if (!read_text(r, "kind", 1, &kind)) {
        return 0;
    }
    if (!is_kind(kind)) {
        return refuse(r,
                      "its manifest's kind '%s' is not 1 to 24 of a-z, 0-9, _ and -, or is a "
                      "reserved word",
                      kind);
    }
    r->m->kind = kind;
    return 1;
}

static int32_t read_role(reader *r) {
    const char *role = "";
    if (!read_text(r, "role", 1, &role)) {
        return 0;
    }
    r->m->role = strcmp(role, "layer") == 0 ? PGD_ROLE_LAYER : PGD_ROLE_BACKEND;
    return strcmp(role, "layer") == 0 || strcmp(role, "backend") == 0 ||
           refuse(r, "its manifest's role '%s' is neither backend nor layer", role);
}

static int32_t read_abi(reader *r) {
    const pgd_json *abi = pgd_json_get(r->root, "abi");
    int64_t major = 0;
    int64_t minor = 0;
    int64_t lowest = 0;
    char text[160];
    if (!read_number(r, abi, "major", &major) || !read_number(r, abi, "minor", &minor) ||
        !read_number(r, abi, "min_host_minor", &lowest)) {
        return 0;
    }
    r->m->abi_major = (uint32_t)major;
    r->m->abi_minor = (uint32_t)minor;
    r->m->min_host_minor = (uint32_t)lowest;
    if (major != PGD_ABI_MAJOR) {
        snprintf(text, sizeof(text),
                 "it is built for interface version %lld, this host has %d; take a build of the "
                 "plugin for version %d",
                 (long long)major, PGD_ABI_MAJOR, PGD_ABI_MAJOR);
        return refuse(r, "%s", text);
    }
    if (lowest > PGD_ABI_MINOR) {
        snprintf(text, sizeof(text),
                 "it needs a host of interface %lld.%lld or later, this host has %d.%d; take a "
                 "newer pagoda or an older build of the plugin",
                 (long long)major, (long long)lowest, PGD_ABI_MAJOR, PGD_ABI_MINOR);
        return refuse(r, "%s", text);
    }
    return 1;
}

// A list of texts; an absent one is empty.
static int32_t read_list(reader *r, const char *key, const char *const **out, uint32_t *out_n) {
    const pgd_json *list = pgd_json_get(r->root, key);
    if (list == NULL) {
        return 1;
    }
    if (!pgd_json_is(list, PGD_JSON_ARRAY)) {
        return refuse(r, "its manifest has no list under \"%s\"", key);
    }
    const char **names = pgd_arena_alloc(r->arena, (size_t)list->n + 1, sizeof(*names));
    if (names == NULL) {
        r->code = PGD_MEM_FAIL("a manifest", list->n);
        return 0;
    }
    for (uint32_t i = 0; i < list->n; i++) {
        pgd_str s = {0};
        if (!pgd_json_to_str(&list->items[i], &s) || s.len == 0 ||
            memchr(s.ptr, '\0', s.len) != NULL) {
            return refuse(r, "its manifest's list \"%s\" holds something that is no text", key);
        }
        names[i] = text_of(r, s);
    }
    *out = names;
    *out_n = list->n;
    return 1;
}

static int32_t read_aliases(reader *r) {
    if (!read_list(r, "aliases", &r->m->aliases, &r->m->n_aliases)) {
        return 0;
    }
    for (uint32_t i = 0; i < r->m->n_aliases; i++) {
        if (!is_kind(r->m->aliases[i])) {
            return refuse(r, "its manifest's alias '%s' is not 1 to 24 of a-z, 0-9, _ and -",
                          r->m->aliases[i]);
        }
    }
    return 1;
}

static int32_t read_presence(reader *r) {
    pgd_dev_manifest *m = r->m;
    if (!read_list(r, "matches", &m->matches, &m->n_matches) ||
        !read_list(r, "needs", &m->needs, &m->n_needs)) {
        return 0;
    }
    m->drives_no_pci = pgd_json_get(r->root, "matches") != NULL && m->n_matches == 0;
    return 1;
}

static int32_t read_sha256(reader *r) {
    const char *hex = "";
    if (!read_text(r, "sha256", 0, &hex)) {
        return 0;
    }
    size_t n = strlen(hex);
    if (n == 0) {
        return 1;
    }
    r->m->sha256 = hex;
    return (n == PGD_SHA256_HEX && strspn(hex, "0123456789abcdef") == n) ||
           refuse(r, "its manifest's sha256 '%s' is not 64 digits of 0-9 and a-f", hex);
}

static int32_t read_option(reader *r, const pgd_json *item, pgd_option *out) {
    const char *fields[4] = {"key", "type", "default", "help"};
    const char *values[4] = {"", "", "", ""};
    for (int32_t i = 0; i < 4; i++) {
        pgd_str s = {0};
        const pgd_json *v = pgd_json_get(item, fields[i]);
        if (v == NULL && i >= 2) {
            continue;
        }
        if (!pgd_json_to_str(v, &s)) {
            return refuse(r, "its manifest has an option without text under \"%s\"", fields[i]);
        }
        values[i] = text_of(r, s);
    }
    *out = (pgd_option){.key = values[0], .type = values[1], .value = values[2], .help = values[3]};
    return 1;
}

static int32_t read_options(reader *r) {
    const pgd_json *list = pgd_json_get(r->root, "options");
    if (list == NULL) {
        return 1;
    }
    if (!pgd_json_is(list, PGD_JSON_ARRAY)) {
        return refuse(r, "its manifest has no list under \"%s\"", "options");
    }
    pgd_option *options = pgd_arena_alloc(r->arena, (size_t)list->n + 1, sizeof(*options));
    if (options == NULL) {
        r->code = PGD_MEM_FAIL("a manifest", list->n);
        return 0;
    }
    for (uint32_t i = 0; i < list->n; i++) {
        if (!read_option(r, &list->items[i], &options[i])) {
            return 0;
        }
    }
    r->m->options = options;
    r->m->n_options = list->n;
    return 1;
}

// The library's path: relative to the manifest's folder, or absolute.
static int32_t read_library(reader *r, const char *path) {
    char text[4096];
    const char *library = "";
    const char *slash = strrchr(path, '/');
    int32_t folder = slash == NULL ? 0 : (int32_t)(slash - path) + 1;
    if (!read_text(r, "library", 1, &library)) {
        return 0;
    }
    int n = snprintf(text, sizeof(text), "%.*s%s", library[0] == '/' ? 0 : folder, path, library);
    if (n < 0 || (size_t)n >= sizeof(text)) {
        return refuse(r, "its library's path is too long%s", "");
    }
    r->m->path = text_of(r, pgd_str_of(text));
    return pgd_os_kind(r->m->path, NULL) == PGD_OS_REGULAR ||
           refuse(r, "its library %s is not there", r->m->path);
}

static int32_t read_all(reader *r, const char *path) {
    return read_schema(r) && read_kind(r) && read_text(r, "name", 1, &r->m->name) &&
           read_text(r, "vendor", 1, &r->m->vendor) && read_text(r, "version", 1, &r->m->version) &&
           read_text(r, "license", 0, &r->m->license) && read_role(r) && read_abi(r) &&
           read_aliases(r) && read_presence(r) && read_sha256(r) && read_options(r) &&
           read_library(r, path);
}

pgd_status pgd_dev_manifest_read(const char *path, pgd_arena *arena, pgd_dev_manifest *out) {
    pgd_json_doc *doc = NULL;
    reader r = {.arena = arena, .m = out, .code = PGD_OK};
    *out = (pgd_dev_manifest){.kind = "", .name = "", .vendor = "", .version = "", .license = ""};
    out->path = text_of(&r, pgd_str_of(path));
    if (pgd_os_kind(path, NULL) == PGD_OS_NONE) {
        refuse(&r, "it has no manifest %s; put the plugin's JSON file there", path);
        return r.code;
    }
    pgd_status code = pgd_json_read_file(path, &doc);
    if (code == PGD_OUT_OF_MEMORY) {
        return code;
    }
    if (code != PGD_OK) {
        refuse(&r, "its manifest cannot be read: %s", pgd_fail_text(code));
        return r.code;
    }
    r.root = pgd_json_root(doc);
    read_all(&r, path);
    pgd_json_free(doc);
    return r.code;
}
