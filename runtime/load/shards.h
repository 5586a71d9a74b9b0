// Which files hold a model's tensors: one file, or the shards of an index.
//
//   model.safetensors.index.json: {"weight_map": {"tensor name": "file name", ...}, "metadata": ..}
//
// Source: the sharded checkpoint layout of Hugging Face model folders.
#ifndef PGD_LOAD_SHARDS_H
#define PGD_LOAD_SHARDS_H

#include "base/json.h"

#define PGD_LOAD_MAX_INDEX_BYTES (64u << 20)
#define PGD_LOAD_MAX_SHARDS      4096u
#define PGD_LOAD_MAX_TENSORS     1000000u // of a whole model

typedef struct pgd_load_shard_entry {
    pgd_str tensor;
    pgd_str file; // plain file name
} pgd_load_shard_entry;

typedef struct pgd_load_shards {
    pgd_load_shard_entry *entries; // [n] sorted by file, then tensor; each tensor once
    uint32_t n;
    uint32_t n_files;
    pgd_json_doc *index; // holds the names
} pgd_load_shards;

// text  of the index; file names it in sentences
//   fails  INVALID: no index, a tensor named twice, a file name that leaves the folder, too many
pgd_status pgd_load_shards_parse(pgd_str text, const char *file, pgd_load_shards *out) PGD_MUST_USE;
void pgd_load_shards_free(pgd_load_shards *s);

#endif
