// The tensors of a model by name: of model.safetensors, of the shards that
// model.safetensors.index.json names, or of a GGUF file or split set. Files are mapped read-only,
// never copied; everything about them is checked before this returns, so a tensor's bytes always
// lie inside its file. Thread rule: open and close on one thread; reads may run together.
#ifndef PGD_LOAD_WEIGHTS_H
#define PGD_LOAD_WEIGHTS_H

#include <pagoda/types.h>

#include "base/str.h"

typedef struct pgd_load_weights pgd_load_weights;

// Borrowed from the weights. `ptr` has the alignment that the file gives it, which may be none.
typedef struct pgd_load_tensor {
    pgd_str name;  // NUL-terminated too
    int32_t dtype; // PGD_F32 ...; PGD_DTYPE_NONE when pagoda has no such dtype, or with a scheme
    uint32_t rank; // may be above PGD_MAX_RANK; then shape holds the first PGD_MAX_RANK
    int64_t shape[PGD_MAX_RANK];
    const void *ptr; // row-major; NULL only when bytes is 0
    uint64_t bytes;
    const char *file;   // path
    const char *stored; // dtype as the file names it: "BF16", "F8_E4M3", "Q4_K" ...
    int32_t scheme;     // PGD_SCHEME_PLAIN, one of blocks, -1 when pagoda has no such scheme
    int32_t reserved0;
} pgd_load_tensor;

struct pgd_load_gguf;

// Opens and checks all files of a folder, a GGUF file (FILE.gguf; of a split set the first), or
// makes room for the tensors of a synthetic:... model. With an index, only tensors of its
// weight_map count.
//   ownership  the caller's: pgd_load_weights_close
//   fails      NOT_FOUND (no weights, or a shard of the index is missing), DATA_LOSS (damaged: the
//              file and what is wrong), INVALID (the index), DENIED, OUT_OF_MEMORY
//   cost       the headers only; the data is not touched
pgd_status pgd_load_weights_open(const char *folder, pgd_load_weights **out) PGD_MUST_USE;
// NULL is fine; every pointer into the files is dead.
void pgd_load_weights_close(pgd_load_weights *w);

// By the name a folder in Hugging Face layout would store it under, also in GGUF files, which have
// names of their own (pgd_load_gguf_name). NULL = none.
const pgd_load_tensor *pgd_load_weights_find(const pgd_load_weights *w, const char *name);
// Binary search in a list sorted by name.
const pgd_load_tensor *pgd_load_weights_search(const pgd_load_tensor *const *by_name, uint32_t n,
                                               pgd_str name);
// The first file of a GGUF set, which has its values; NULL for other models.
const struct pgd_load_gguf *pgd_load_weights_gguf(const pgd_load_weights *w);
uint32_t pgd_load_weights_count(const pgd_load_weights *w);
const pgd_load_tensor *pgd_load_weights_get(const pgd_load_weights *w, uint32_t i); // NULL = none
uint64_t pgd_load_weights_bytes(const pgd_load_weights *w); // of all tensors

// Adds text that tells these numbers from all others without reading them: for each file its inode,
// size, times and header; for a synthetic model its seed, dtype and tensors.
//   fails  PRECONDITION when a file is no longer the one that was opened
pgd_status pgd_load_weights_identity(const pgd_load_weights *w, pgd_text *t) PGD_MUST_USE;

// The numbers of the tensor that begins at ptr are needed, or no longer. A synthetic model makes
// and drops them; of files give drops the pages from this process. One thread.
void pgd_load_weights_take(const pgd_load_weights *w, const void *ptr);
void pgd_load_weights_give(const pgd_load_weights *w, const void *ptr, uint64_t bytes);

#endif
