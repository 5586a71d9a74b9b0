// The store of packed weights. See store.h.
#include "dev/store.h"

#include <stdio.h>
#include <string.h>

#include "base/fail.h"
#include "base/mem.h"
#include "base/str.h"
#include "os/env.h"
#include "os/folder.h"
#include "os/identity.h"

#define MAGIC       UINT64_C(0x3154484757444750) // "PGDWGHT1"
#define VERSION     1
#define PATH_BYTES  4096
#define SUFFIX      ".weights"
#define UNFINISHED  ".part"
#define FRESH       ".fresh"
#define SETTLED_NS  INT64_C(60000000000)    // by then a system has written what it was given
#define OLD_PART_NS INT64_C(86400000000000) // a day: whoever wrote it is gone
#define MAX_ENTRIES (1u << 20)
#define FREE_MARGIN (UINT64_C(1) << 30) // that stays free on the disk

typedef struct blob_header {
    uint64_t magic;
    uint32_t version;
    uint32_t n;
    uint64_t bytes; // of the file
    pgd_hash key;
    pgd_hash check; // of the header with this field zero, and of the table
    uint64_t reserved0;
} blob_header;

typedef struct blob_entry {
    uint64_t offset;
    uint64_t bytes;
} blob_entry;

struct pgd_dev_store_writer {
    pgd_os_file file;
    blob_header *header; // with the table behind it
    uint64_t at;         // bytes written
    uint32_t entry;      // at hand
    uint32_t reserved0;
    char part[PATH_BYTES];
    char path[PATH_BYTES];  // its name for good
    char fresh[PATH_BYTES]; // until then; "" = none
};

static blob_entry *table_of(const blob_header *h) {
    return (blob_entry *)(uintptr_t)(h + 1);
}

static uint64_t head_bytes(uint32_t n) {
    return sizeof(blob_header) + (uint64_t)n * sizeof(blob_entry);
}

static uint64_t round_up(uint64_t bytes) {
    return (bytes + PGD_DEV_STORE_ALIGN - 1) & ~(uint64_t)(PGD_DEV_STORE_ALIGN - 1);
}

static pgd_hash check_of(const blob_header *h) {
    blob_header head = *h;
    pgd_hash both[2];
    head.check = (pgd_hash){0};
    both[0] = pgd_hash_of(&head, sizeof(head));
    both[1] = pgd_hash_of(table_of(h), (size_t)h->n * sizeof(blob_entry));
    return pgd_hash_of(both, sizeof(both));
}

// ---- names -------------------------------------------------------------------------------------

static pgd_status join(char *out, size_t cap, const char *folder, const char *name,
                       const char *more) {
    int n = snprintf(out, cap, "%s/%s%s", folder, name, more);
    if (n < 0 || (size_t)n >= cap) {
        return pgd_fail(PGD_OUT_OF_RANGE, "the path of the weight cache is too long: %s", folder);
    }
    return PGD_OK;
}

pgd_status pgd_dev_store_folder(const char *given, char *out, size_t cap) {
    const char *cache = pgd_os_env_secure("XDG_CACHE_HOME");
    const char *home = pgd_os_env_secure("HOME");
    if (given != NULL && given[0] != '\0') {
        return join(out, cap, given, "weights", "");
    }
    // XDG: a relative path there is to be ignored.
    if (cache != NULL && cache[0] == '/') {
        return join(out, cap, cache, "pagoda/weights", "");
    }
    if (home != NULL && home[0] == '/') {
        return join(out, cap, home, ".cache/pagoda/weights", "");
    }
    return pgd_fail(PGD_NOT_FOUND, "no folder for a cache: XDG_CACHE_HOME and HOME are unset");
}

static pgd_status path_of(const pgd_dev_store *s, pgd_hash key, const char *more, char *out,
                          size_t cap) {
    char name[64];
    snprintf(name, sizeof(name), "%016llx%016llx", (unsigned long long)key.high,
             (unsigned long long)key.low);
    return join(out, cap, s->folder, name, more);
}

// ".<boot>.fresh"; "" where starts of the system have no name: files are then settled when written.
static void fresh_suffix(char *out, size_t cap) {
    char boot[17];
    out[0] = '\0';
    if (pgd_os_boot_name(boot) == PGD_OK) {
        snprintf(out, cap, ".%s" FRESH, boot);
    }
}

// ---- looking up --------------------------------------------------------------------------------

static int32_t is_right(const pgd_os_map *map, pgd_hash key) {
    const blob_header *h = map->ptr;
    if (map->bytes < sizeof(*h) || h->magic != MAGIC || h->version != VERSION ||
        h->n > MAX_ENTRIES || h->bytes != map->bytes || head_bytes(h->n) > map->bytes ||
        !pgd_hash_equal(h->key, key) || !pgd_hash_equal(h->check, check_of(h))) {
        return 0;
    }
    for (uint32_t i = 0; i < h->n; i++) {
        const blob_entry *e = &table_of(h)[i];
        if (e->offset % PGD_DEV_STORE_ALIGN != 0 || e->offset > map->bytes ||
            e->bytes > map->bytes - e->offset) {
            return 0;
        }
    }
    return 1;
}

// The file at path, if it is the one.
static int32_t open_right(const char *path, pgd_hash key, pgd_os_identity *id, pgd_dev_blob *out) {
    // Another user's file could say anything.
    if (pgd_os_identify(path, id) != PGD_OK || !id->own ||
        pgd_os_map_file(path, &out->map) != PGD_OK) {
        return 0;
    }
    if (!is_right(&out->map, key)) {
        pgd_dev_blob_close(out);
        return 0;
    }
    out->n = ((const blob_header *)out->map.ptr)->n;
    return 1;
}

// Makes sure that a fresh file is on the disk, and gives it its name for good.
static void settle(const char *fresh, const char *path) {
    pgd_os_file file = {.fd = -1};
    if (pgd_os_open_write(fresh, 1, &file) == PGD_OK && pgd_os_sync(file) == PGD_OK) {
        pgd_status ignored = pgd_os_folder_move(fresh, path); // else it stays fresh
        (void)ignored;
    }
    pgd_os_close(&file);
}

pgd_status pgd_dev_store_find(const pgd_dev_store *s, pgd_hash key, pgd_dev_blob *out) {
    char path[PATH_BYTES];
    char fresh[PATH_BYTES];
    char suffix[32];
    pgd_os_identity id;
    *out = (pgd_dev_blob){0};
    fresh_suffix(suffix, sizeof(suffix));
    PGD_TRY(path_of(s, key, SUFFIX, path, sizeof(path)));
    PGD_TRY(path_of(s, key, suffix, fresh, sizeof(fresh)));
    if (open_right(path, key, &id, out)) {
        // Only the order of eviction suffers when it cannot be set.
        pgd_status ignored = pgd_os_touch(path);
        (void)ignored;
        return PGD_OK;
    }
    if (suffix[0] == '\0' || !open_right(fresh, key, &id, out)) {
        return pgd_fail(PGD_NOT_FOUND, "%s is not there, or damaged", path);
    }
    if (pgd_os_unix_ms() * 1000000 - id.modified_ns > SETTLED_NS) {
        settle(fresh, path);
    }
    return PGD_OK;
}

pgd_range pgd_dev_blob_entry(const pgd_dev_blob *b, uint32_t i) {
    const blob_entry *e = &table_of(b->map.ptr)[i];
    return (pgd_range){.offset = e->offset, .bytes = e->bytes};
}

void pgd_dev_blob_close(pgd_dev_blob *b) {
    pgd_os_unmap(&b->map);
    b->n = 0;
}

// ---- making room -------------------------------------------------------------------------------

typedef struct sweep {
    const char *folder;
    const char *fresh; // suffix of this start of the system
    int64_t now_ns;
    uint64_t bytes; // of all files
    uint64_t oldest_bytes;
    int64_t oldest_ns;
    char oldest[PATH_BYTES]; // "" = none
} sweep;

// What nobody can use: unfinished for long, or fresh when the system went down.
static int32_t is_waste(const sweep *s, pgd_str file, const pgd_os_identity *id) {
    if (pgd_str_ends(file, PGD_STR(UNFINISHED))) {
        return s->now_ns - id->modified_ns > OLD_PART_NS;
    }
    return pgd_str_ends(file, PGD_STR(FRESH)) && !pgd_str_ends(file, pgd_str_of(s->fresh));
}

// Adds a file to the sum, or removes it when it is waste.
static int32_t visit(void *arg, const char *name) {
    sweep *s = arg;
    char path[PATH_BYTES];
    pgd_os_identity id;
    const pgd_str file = pgd_str_of(name);
    const int32_t is_part = pgd_str_ends(file, PGD_STR(UNFINISHED));
    if ((!is_part && !pgd_str_ends(file, PGD_STR(SUFFIX)) && !pgd_str_ends(file, PGD_STR(FRESH))) ||
        join(path, sizeof(path), s->folder, name, "") != PGD_OK ||
        pgd_os_identify(path, &id) != PGD_OK) {
        return 0;
    }
    if (is_waste(s, file, &id) && pgd_os_folder_remove(path) == PGD_OK) {
        return 0;
    }
    s->bytes += id.bytes;
    if (!is_part && (s->oldest[0] == '\0' || id.modified_ns < s->oldest_ns)) {
        s->oldest_ns = id.modified_ns;
        s->oldest_bytes = id.bytes;
        memcpy(s->oldest, path, sizeof(path));
    }
    return 0;
}

static pgd_status make_room(const pgd_dev_store *store, uint64_t bytes) {
    uint64_t room = 0;
    char fresh[32];
    fresh_suffix(fresh, sizeof(fresh));
    if (bytes > store->most_bytes) {
        return pgd_fail(PGD_OUT_OF_RANGE, "%llu bytes are more than the weight cache holds: %llu",
                        (unsigned long long)bytes, (unsigned long long)store->most_bytes);
    }
    for (;;) {
        sweep s = {.folder = store->folder, .fresh = fresh, .now_ns = pgd_os_unix_ms() * 1000000};
        pgd_status status = pgd_os_list(store->folder, visit, &s);
        if (status != PGD_OK) {
            return pgd_fail(status, "the folder %s cannot be read", store->folder);
        }
        status = pgd_os_folder_room(store->folder, &room);
        if (status == PGD_OK && room >= FREE_MARGIN && bytes <= room - FREE_MARGIN &&
            s.bytes <= store->most_bytes - bytes) {
            return PGD_OK;
        }
        if (s.oldest[0] == '\0' || pgd_os_folder_remove(s.oldest) != PGD_OK) {
            return pgd_fail(PGD_OUT_OF_RANGE,
                            "no room for %llu bytes in %s: %llu bytes are free on the disk",
                            (unsigned long long)bytes, store->folder, (unsigned long long)room);
        }
    }
}

// ---- writing -----------------------------------------------------------------------------------

static pgd_status lay_out(pgd_dev_store_writer *w, pgd_hash key, const uint64_t *sizes,
                          uint32_t n) {
    uint64_t at = round_up(head_bytes(n));
    w->header = pgd_mem_alloc(1, (size_t)head_bytes(n));
    if (w->header == NULL) {
        return PGD_MEM_FAIL("the head of a weight cache", head_bytes(n));
    }
    for (uint32_t i = 0; i < n; i++) {
        table_of(w->header)[i] = (blob_entry){.offset = at, .bytes = sizes[i]};
        if (!pgd_size_add(at, sizes[i], &at) || at > INT64_MAX) {
            return pgd_fail(PGD_OUT_OF_RANGE, "the weights are too large for a file");
        }
        at = round_up(at);
    }
    *w->header = (blob_header){.magic = MAGIC, .version = VERSION, .n = n, .bytes = at, .key = key};
    w->header->check = check_of(w->header);
    return PGD_OK;
}

static pgd_status put(pgd_dev_store_writer *w, const void *bytes, uint64_t n) {
    pgd_status status = pgd_os_write(w->file, bytes, (size_t)n);
    if (status != PGD_OK) {
        return pgd_fail(status, "writing %s failed", w->part);
    }
    w->at += n;
    return PGD_OK;
}

// Zeros up to an offset.
static pgd_status pad(pgd_dev_store_writer *w, uint64_t to) {
    static const unsigned char zeros[PGD_DEV_STORE_ALIGN] = {0};
    return to > w->at ? put(w, zeros, to - w->at) : PGD_OK;
}

static pgd_status open_part(const pgd_dev_store *s, pgd_dev_store_writer *w) {
    char more[64];
    uint64_t number = 0;
    (void)pgd_os_random(&number, sizeof(number));
    snprintf(more, sizeof(more), ".%lld.%llx" UNFINISHED, (long long)pgd_os_process_id(),
             (unsigned long long)number);
    int n = snprintf(w->part, sizeof(w->part), "%s%s", w->path, more);
    if (n < 0 || (size_t)n >= sizeof(w->part)) {
        return pgd_fail(PGD_OUT_OF_RANGE, "the path of the weight cache is too long: %s",
                        s->folder);
    }
    PGD_TRY(make_room(s, w->header->bytes));
    pgd_status status = pgd_os_open_write(w->part, 0, &w->file);
    if (status != PGD_OK) {
        w->part[0] = '\0';
        return pgd_fail(status, "the folder %s cannot be written to", s->folder);
    }
    PGD_TRY(put(w, w->header, head_bytes(w->header->n)));
    return pad(w, round_up(w->at));
}

pgd_status pgd_dev_store_begin(const pgd_dev_store *s, pgd_hash key, const uint64_t *sizes,
                               uint32_t n, pgd_dev_store_writer **out) {
    *out = NULL;
    pgd_status status = pgd_os_folder_make(s->folder);
    if (status != PGD_OK) {
        return pgd_fail(status, "the folder %s cannot be made", s->folder);
    }
    pgd_dev_store_writer *w = pgd_mem_alloc(1, sizeof(*w));
    if (w == NULL) {
        return PGD_MEM_FAIL("the writer of a weight cache", sizeof(*w));
    }
    w->file.fd = -1;
    char suffix[32];
    fresh_suffix(suffix, sizeof(suffix));
    status = path_of(s, key, SUFFIX, w->path, sizeof(w->path));
    if (status == PGD_OK && suffix[0] != '\0') {
        status = path_of(s, key, suffix, w->fresh, sizeof(w->fresh));
    }
    if (status == PGD_OK) {
        status = lay_out(w, key, sizes, n);
    }
    if (status == PGD_OK) {
        status = open_part(s, w);
    }
    if (status != PGD_OK) {
        pgd_dev_store_drop(w);
        return status;
    }
    *out = w;
    return PGD_OK;
}

pgd_status pgd_dev_store_add(pgd_dev_store_writer *w, const void *bytes, uint64_t n) {
    const unsigned char *from = bytes;
    while (n > 0) {
        if (w->entry == w->header->n) {
            return pgd_fail(PGD_INTERNAL, "more bytes than entries of %s", w->path);
        }
        const blob_entry *e = &table_of(w->header)[w->entry];
        PGD_TRY(pad(w, e->offset));
        const uint64_t left = e->offset + e->bytes - w->at;
        const uint64_t take = n < left ? n : left;
        PGD_TRY(put(w, from, take));
        from += take;
        n -= take;
        w->entry += take == left;
    }
    return PGD_OK;
}

pgd_status pgd_dev_store_finish(pgd_dev_store_writer *w) {
    pgd_status status = PGD_OK;
    while (w->entry < w->header->n && table_of(w->header)[w->entry].bytes == 0) {
        w->entry++;
    }
    if (w->entry != w->header->n) {
        status = pgd_fail(PGD_INTERNAL, "%s ends before its last entry", w->path);
    }
    if (status == PGD_OK) {
        status = pad(w, w->header->bytes);
    }
    if (status == PGD_OK) {
        const int32_t is_fresh = w->fresh[0] != '\0';
        status = is_fresh ? PGD_OK : pgd_os_sync(w->file);
        status =
            status == PGD_OK ? pgd_os_folder_move(w->part, is_fresh ? w->fresh : w->path) : status;
        if (status == PGD_OK) {
            w->part[0] = '\0';
        } else {
            status = pgd_fail(status, "%s cannot be put in its place", w->path);
        }
    }
    pgd_dev_store_drop(w);
    return status;
}

void pgd_dev_store_drop(pgd_dev_store_writer *w) {
    if (w == NULL) {
        return;
    }
    pgd_os_close(&w->file);
    if (w->part[0] != '\0') {
        pgd_status ignored = pgd_os_folder_remove(w->part);
        (void)ignored;
    }
    pgd_mem_free(w->header);
    pgd_mem_free(w);
}
