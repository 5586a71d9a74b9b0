// The tensors of a model folder (see weights.h).
//
//   folder or GGUF set -> files, each mapped and parsed -> one list of tensors, sorted by name
//
// A folder may hold other files with the same tensors under other names; with an index only what
// its weight_map names is looked at.
#include "load/weights.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/fail.h"
#include "base/hash.h"
#include "base/mem.h"
#include "load/fields.h"
#include "load/folder.h"
#include "load/gguf_model.h"
#include "load/safetensors.h"
#include "load/shards.h"
#include "load/synthetic.h"
#include "os/identity.h"
#include "os/memory.h"

#define INDEX_NAME  "model.safetensors.index.json"
#define SINGLE_NAME "model.safetensors"
#define MAX_PATH    4096

typedef struct weight_file {
    char *path;
    pgd_os_identity id; // before it was mapped
    pgd_os_map map;
    pgd_load_safetensors parsed; // of a file of a folder
    pgd_load_gguf gguf;          // of a file of a GGUF set
    uint64_t header_bytes;
} weight_file;

struct pgd_load_weights {
    weight_file *files;              // [n_files]
    const pgd_load_tensor **tensors; // [n] sorted by name
    uint32_t n_files;
    uint32_t n;
    uint64_t bytes;
    pgd_load_synthetic *synthetic; // NULL: files
    int32_t is_gguf;
    int32_t reserved0;
};

static pgd_status map_file(weight_file *f) {
    if (pgd_os_identify(f->path, &f->id) != PGD_OK) {
        f->id = (pgd_os_identity){0}; // mapping says what is wrong
    }
    return pgd_load_folder_map(f->path, 0, &f->map);
}

static pgd_status open_file(const char *folder, pgd_str name, weight_file *f) {
    PGD_TRY(pgd_load_folder_join(folder, name, &f->path));
    PGD_TRY(map_file(f));
    PGD_TRY(pgd_load_safetensors_parse(f->map.ptr, f->map.bytes, f->path, &f->parsed));
    f->header_bytes = f->map.bytes - f->parsed.data_bytes;
    return PGD_OK;
}

static pgd_status alloc_lists(pgd_load_weights *w, uint32_t n_files, uint32_t n_tensors) {
    if (w->files == NULL) {
        w->files = pgd_mem_alloc(n_files, sizeof(w->files[0]));
    }
    if (w->tensors == NULL && n_tensors != 0) {
        w->tensors = pgd_mem_alloc(n_tensors, sizeof(w->tensors[0]));
    }
    if (w->files == NULL || (n_tensors != 0 && w->tensors == NULL)) {
        return pgd_fail(PGD_OUT_OF_MEMORY, "no memory for the list of weights");
    }
    return PGD_OK;
}

static void add_tensor(pgd_load_weights *w, const pgd_load_tensor *t) {
    w->tensors[w->n++] = t;
    w->bytes += t->bytes;
}

static pgd_status open_single(const char *folder, pgd_load_weights *w) {
    PGD_TRY(alloc_lists(w, 1, 0));
    w->n_files = 1;
    PGD_TRY(open_file(folder, PGD_STR(SINGLE_NAME), &w->files[0]));
    const pgd_load_safetensors *s = &w->files[0].parsed;
    PGD_TRY(alloc_lists(w, 1, s->n));
    for (uint32_t i = 0; i < s->n; i++) {
        add_tensor(w, s->by_name[i]);
    }
    return PGD_OK;
}

static int by_name(const void *left, const void *right) {
    const pgd_load_tensor *const *a = left;
    const pgd_load_tensor *const *b = right;
    return pgd_load_safetensors_compare((*a)->name, (*b)->name);
}

// Opens the shards in the order of their names and picks the tensors that the index names.
static pgd_status open_listed(const char *folder, const char *index, const pgd_load_shards *s,
                              pgd_load_weights *w) {
    PGD_TRY(alloc_lists(w, s->n_files, s->n));
    for (uint32_t i = 0; i < s->n; i++) {
        const pgd_load_shard_entry *e = &s->entries[i];
        if (i == 0 || !pgd_str_equal(s->entries[i - 1].file, e->file)) {
            w->n_files++;
            pgd_status status = open_file(folder, e->file, &w->files[w->n_files - 1]);
            if (status != PGD_OK) {
                return pgd_fail_note(status, "while opening a file that %s names", index);
            }
        }
        const weight_file *f = &w->files[w->n_files - 1];
        const pgd_load_tensor *t = pgd_load_safetensors_find(&f->parsed, e->tensor);
        if (t == NULL) {
            return pgd_fail(PGD_DATA_LOSS, "%s: no tensor \"%.*s\" in it, though %s says so",
                            f->path, PGD_LOAD_SHOW(e->tensor), index);
        }
        add_tensor(w, t);
    }
    qsort(w->tensors, w->n, sizeof(w->tensors[0]), by_name);
    return PGD_OK;
}

static pgd_status open_sharded(const char *folder, const char *index, pgd_load_weights *w) {
    pgd_os_map map = {0};
    pgd_load_shards shards = {0};
    PGD_TRY(pgd_load_folder_map(index, PGD_LOAD_MAX_INDEX_BYTES, &map));
    pgd_status status = pgd_load_shards_parse(pgd_load_folder_text(&map), index, &shards);
    if (status == PGD_OK) {
        status = open_listed(folder, index, &shards, w);
    }
    pgd_load_shards_free(&shards);
    pgd_os_unmap(&map);
    return status;
}

static pgd_status kind_in(const char *folder, pgd_str name, int32_t *out) {
    char *path = NULL;
    PGD_TRY(pgd_load_folder_join(folder, name, &path));
    *out = pgd_os_kind(path, NULL);
    pgd_mem_free(path);
    return PGD_OK;
}

static pgd_status no_weights(const char *folder) {
    int32_t pickle = PGD_OS_NONE;
    int32_t pickle_index = PGD_OS_NONE;
    PGD_TRY(kind_in(folder, PGD_STR("pytorch_model.bin"), &pickle));
    PGD_TRY(kind_in(folder, PGD_STR("pytorch_model.bin.index.json"), &pickle_index));
    if (pickle != PGD_OS_NONE || pickle_index != PGD_OS_NONE) {
        return pgd_fail(PGD_UNSUPPORTED,
                        "%s: the weights are pytorch_model.bin, a format that can run code; "
                        "" SINGLE_NAME " or " INDEX_NAME " is needed",
                        folder);
    }
    return pgd_fail(PGD_NOT_FOUND, "%s: no weights; " SINGLE_NAME " or " INDEX_NAME " is needed",
                    folder);
}

static pgd_status open_folder(const char *folder, pgd_load_weights *w) {
    int32_t single = PGD_OS_NONE;
    char *index = NULL;
    PGD_TRY(pgd_load_folder_join(folder, PGD_STR(INDEX_NAME), &index));
    if (pgd_os_kind(index, NULL) != PGD_OS_NONE) {
        pgd_status status = open_sharded(folder, index, w);
        pgd_mem_free(index);
        return status;
    }
    pgd_mem_free(index);
    PGD_TRY(kind_in(folder, PGD_STR(SINGLE_NAME), &single));
    return single != PGD_OS_NONE ? open_single(folder, w) : no_weights(folder);
}

// ---- GGUF sets ---------------------------------------------------------------------------------

static pgd_status open_gguf_file(pgd_load_weights *w, const char *path) {
    weight_file *f = &w->files[w->n_files++];
    PGD_TRY(pgd_mem_copy_text(path, &f->path));
    PGD_TRY(map_file(f));
    PGD_TRY(pgd_load_gguf_parse(f->map.ptr, f->map.bytes, f->path, &f->gguf));
    f->header_bytes = f->gguf.header_bytes;
    return PGD_OK;
}

// All files of the set that begins with path, each with its number in it.
static pgd_status open_parts(pgd_load_weights *w, const char *path, int32_t n) {
    weight_file *first = w->files;
    w->files = pgd_mem_alloc((size_t)n, sizeof(w->files[0]));
    if (w->files == NULL) {
        w->files = first;
        return PGD_MEM_FAIL("the files of a split model", (size_t)n * sizeof(w->files[0]));
    }
    w->files[0] = *first;
    pgd_mem_free(first);
    for (int32_t i = 1; i < n; i++) {
        char part[MAX_PATH];
        PGD_TRY(pgd_load_gguf_part(path, i, n, part, sizeof(part)));
        PGD_TRY(pgd_fail_note(open_gguf_file(w, part), "while opening part %d of %d of %s", i + 1,
                              n, path));
        PGD_TRY(pgd_load_gguf_check_part(&w->files[i].gguf, i, n));
    }
    return PGD_OK;
}

static pgd_status open_gguf(const char *path, pgd_load_weights *w) {
    int32_t n_files = 1;
    uint64_t n = 0;
    PGD_TRY(alloc_lists(w, 1, 0));
    w->is_gguf = 1;
    PGD_TRY(open_gguf_file(w, path));
    PGD_TRY(pgd_load_gguf_parts(&w->files[0].gguf, &n_files));
    if (n_files > 1) {
        PGD_TRY(open_parts(w, path, n_files));
    }
    for (uint32_t i = 0; i < w->n_files; i++) {
        n += w->files[i].gguf.n;
    }
    if (n > PGD_LOAD_GGUF_MAX_TENSORS) {
        return pgd_fail(PGD_DATA_LOSS, "%s: more than %u tensors in all parts", path,
                        PGD_LOAD_GGUF_MAX_TENSORS);
    }
    PGD_TRY(alloc_lists(w, 1, (uint32_t)n));
    for (uint32_t i = 0; i < w->n_files; i++) {
        for (uint32_t k = 0; k < w->files[i].gguf.n; k++) {
            add_tensor(w, &w->files[i].gguf.tensors[k]);
        }
    }
    if (w->n != 0) {
        qsort(w->tensors, w->n, sizeof(w->tensors[0]), by_name);
    }
    for (uint32_t i = 1; i < w->n; i++) {
        if (pgd_str_equal(w->tensors[i - 1]->name, w->tensors[i]->name)) {
            return pgd_fail(PGD_DATA_LOSS, "%s: damaged: tensor \"%.*s\" is in %s too",
                            w->tensors[i]->file, PGD_LOAD_SHOW(w->tensors[i]->name),
                            w->tensors[i - 1]->file);
        }
    }
    return PGD_OK;
}

const pgd_load_gguf *pgd_load_weights_gguf(const pgd_load_weights *w) {
    return w->is_gguf ? &w->files[0].gguf : NULL;
}

static pgd_status open_synthetic(const char *name, pgd_load_weights *w) {
    PGD_TRY(pgd_load_synthetic_create(name, &w->synthetic));
    uint32_t n = pgd_load_synthetic_count(w->synthetic);
    PGD_TRY(alloc_lists(w, 1, n));
    for (uint32_t i = 0; i < n; i++) {
        add_tensor(w, pgd_load_synthetic_get(w->synthetic, i));
    }
    qsort(w->tensors, w->n, sizeof(w->tensors[0]), by_name);
    return PGD_OK;
}

pgd_status pgd_load_weights_open(const char *folder, pgd_load_weights **out) {
    *out = NULL;
    pgd_load_weights *w = pgd_mem_alloc(1, sizeof(*w));
    if (w == NULL) {
        return PGD_MEM_FAIL("the weights", sizeof(*w));
    }
    pgd_status status = pgd_load_synthetic_is(folder) ? open_synthetic(folder, w)
                        : pgd_load_gguf_is(folder)    ? open_gguf(folder, w)
                                                      : open_folder(folder, w);
    if (status != PGD_OK) {
        pgd_load_weights_close(w);
        return status;
    }
    *out = w;
    return PGD_OK;
}

void pgd_load_weights_close(pgd_load_weights *w) {
    if (w == NULL) {
        return;
    }
    for (uint32_t i = 0; i < w->n_files; i++) {
        pgd_load_safetensors_free(&w->files[i].parsed);
        pgd_load_gguf_free(&w->files[i].gguf);
        pgd_os_unmap(&w->files[i].map);
        pgd_mem_free(w->files[i].path);
    }
    pgd_load_synthetic_destroy(w->synthetic);
    pgd_mem_free(w->tensors);
    pgd_mem_free(w->files);
    pgd_mem_free(w);
}

const pgd_load_tensor *pgd_load_weights_search(const pgd_load_tensor *const *by_name_list,
                                               uint32_t n, pgd_str name) {
    uint32_t low = 0;
    uint32_t high = n;
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        int32_t order = pgd_load_safetensors_compare(by_name_list[middle]->name, name);
        if (order == 0) {
            return by_name_list[middle];
        }
        if (order < 0) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return NULL;
}

const pgd_load_tensor *pgd_load_weights_find(const pgd_load_weights *w, const char *name) {
    char own[PGD_LOAD_GGUF_NAME];
    if (w->is_gguf) {
        pgd_load_gguf_name(name, own);
        name = own;
    }
    return pgd_load_weights_search(w->tensors, w->n, pgd_str_of(name));
}

uint32_t pgd_load_weights_count(const pgd_load_weights *w) {
    return w->n;
}

const pgd_load_tensor *pgd_load_weights_get(const pgd_load_weights *w, uint32_t i) {
    return i < w->n ? w->tensors[i] : NULL;
}

uint64_t pgd_load_weights_bytes(const pgd_load_weights *w) {
    return w->bytes;
}

// The header names every tensor, its shape, dtype and place.
static pgd_status add_file(const weight_file *f, pgd_text *t) {
    pgd_os_identity id;
    pgd_status status = pgd_os_identify(f->path, &id);
    if (status != PGD_OK || id.bytes != f->id.bytes || id.inode != f->id.inode ||
        id.modified_ns != f->id.modified_ns || id.changed_ns != f->id.changed_ns) {
        return pgd_fail(PGD_PRECONDITION, "%s changed while it was read", f->path);
    }
    pgd_hash header = pgd_hash_of(f->map.ptr, (size_t)f->header_bytes);
    return pgd_text_format(t, "file %llu %llu %lld %lld %016llx%016llx\n",
                           (unsigned long long)id.bytes, (unsigned long long)id.inode,
                           (long long)id.modified_ns, (long long)id.changed_ns,
                           (unsigned long long)header.high, (unsigned long long)header.low);
}

pgd_status pgd_load_weights_identity(const pgd_load_weights *w, pgd_text *t) {
    if (w->synthetic != NULL) {
        return pgd_load_synthetic_identity(w->synthetic, t);
    }
    for (uint32_t i = 0; i < w->n_files; i++) {
        PGD_TRY(add_file(&w->files[i], t));
    }
    return PGD_OK;
}

void pgd_load_weights_take(const pgd_load_weights *w, const void *ptr) {
    if (w->synthetic != NULL) {
        pgd_load_synthetic_fill(w->synthetic, ptr);
    }
}

// Only bytes inside a mapped file: a copy of a tensor is not given back here.
void pgd_load_weights_give(const pgd_load_weights *w, const void *ptr, uint64_t bytes) {
    if (w->synthetic != NULL) {
        pgd_load_synthetic_drop(w->synthetic, ptr);
        return;
    }
    uintptr_t at = (uintptr_t)ptr;
    for (uint32_t i = 0; i < w->n_files; i++) {
        uintptr_t first = (uintptr_t)w->files[i].map.ptr;
        if (at >= first && at - first < w->files[i].map.bytes) {
            pgd_os_memory_drop(ptr, bytes);
            return;
        }
    }
}
