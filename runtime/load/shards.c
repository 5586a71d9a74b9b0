// Reads the index of a sharded model (see shards.h).
#include "load/shards.h"

#include <stdlib.h>
#include <string.h>

#include "base/fail.h"
#include "base/mem.h"
#include "load/fields.h"
#include "load/safetensors.h"

#define MAX_FILE_NAME 255

// A plain name inside the folder: no path, no hidden file, no control characters.
static int32_t is_plain_name(pgd_str name) {
    if (name.len == 0 || name.len > MAX_FILE_NAME || name.ptr[0] == '.') {
        return 0;
    }
    for (size_t i = 0; i < name.len; i++) {
        unsigned char c = (unsigned char)name.ptr[i];
        if (c < 0x20 || c == 0x7f || c == '/' || c == '\\') {
            return 0;
        }
    }
    return pgd_str_ends(name, PGD_STR(".safetensors"));
}

static int by_tensor(const void *left, const void *right) {
    const pgd_load_shard_entry *a = left;
    const pgd_load_shard_entry *b = right;
    return pgd_load_safetensors_compare(a->tensor, b->tensor);
}

static int by_file(const void *left, const void *right) {
    const pgd_load_shard_entry *a = left;
    const pgd_load_shard_entry *b = right;
    int32_t order = pgd_load_safetensors_compare(a->file, b->file);
    return order != 0 ? order : pgd_load_safetensors_compare(a->tensor, b->tensor);
}

static pgd_status read_map(const pgd_load_fields *f, const pgd_json *map, pgd_load_shards *s) {
    for (uint32_t i = 0; i < map->n; i++) {
        pgd_str file = {0};
        if (!pgd_json_to_str(&map->items[i], &file) || !is_plain_name(file)) {
            return pgd_load_fields_wrong(f, "weight_map", &map->items[i],
                                         "a file name that ends in .safetensors, without a path,");
        }
        s->entries[i] = (pgd_load_shard_entry){.tensor = map->keys[i], .file = file};
    }
    s->n = map->n;
    if (s->n != 0) {
        qsort(s->entries, s->n, sizeof(s->entries[0]), by_tensor);
    }
    for (uint32_t i = 1; i < s->n; i++) {
        if (pgd_str_equal(s->entries[i - 1].tensor, s->entries[i].tensor)) {
            return pgd_fail(PGD_INVALID, "%s: \"weight_map\" names tensor \"%.*s\" twice", f->file,
                            PGD_LOAD_SHOW(s->entries[i].tensor));
        }
    }
    if (s->n != 0) {
        qsort(s->entries, s->n, sizeof(s->entries[0]), by_file);
    }
    for (uint32_t i = 0; i < s->n; i++) {
        s->n_files += i == 0 || !pgd_str_equal(s->entries[i - 1].file, s->entries[i].file);
    }
    if (s->n_files > PGD_LOAD_MAX_SHARDS) {
        return pgd_fail(PGD_INVALID, "%s: \"weight_map\" names %lu files; at most %lu are allowed",
                        f->file, (unsigned long)s->n_files, (unsigned long)PGD_LOAD_MAX_SHARDS);
    }
    return PGD_OK;
}

pgd_status pgd_load_shards_parse(pgd_str text, const char *file, pgd_load_shards *out) {
    pgd_load_shards s = {0};
    *out = s;
    pgd_status status = pgd_json_parse(text, file, 16, &s.index);
    if (status != PGD_OK) {
        goto done;
    }
    pgd_load_fields f = {.file = file, .group = "", .object = pgd_json_root(s.index)};
    const pgd_json *map = pgd_json_get(f.object, "weight_map");
    if (!pgd_json_is(map, PGD_JSON_OBJECT) || map->n == 0) {
        status = pgd_load_fields_wrong(&f, "weight_map", map,
                                       "an object of tensor names and file names");
        goto done;
    }
    if (map->n > PGD_LOAD_MAX_TENSORS) {
        status =
            pgd_fail(PGD_INVALID, "%s: \"weight_map\" has %lu tensors; at most %lu are allowed",
                     file, (unsigned long)map->n, (unsigned long)PGD_LOAD_MAX_TENSORS);
        goto done;
    }
    s.entries = pgd_mem_alloc(map->n, sizeof(s.entries[0]));
    if (s.entries == NULL) {
        status = PGD_MEM_FAIL(file, map->n * sizeof(s.entries[0]));
        goto done;
    }
    status = read_map(&f, map, &s);
done:
    if (status != PGD_OK) {
        pgd_load_shards_free(&s);
        return status;
    }
    *out = s;
    return PGD_OK;
}

void pgd_load_shards_free(pgd_load_shards *s) {
    pgd_mem_free(s->entries);
    pgd_json_free(s->index);
    *s = (pgd_load_shards){0};
}
