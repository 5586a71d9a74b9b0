// The store of packed weights: one file for each model and layout, in a folder of the user's cache.
//
//   <folder>/<key>.weights
//   | header 64 B | table: n x {offset, bytes} | pad | entry 0 | entry 1 | ...
//   0             64                            4096-aligned, entries too
//
// A file is written under another name and moved into place, so that nobody sees half of one:
//
//   <key>.weights.<process>.<number>.part   being written
//   <key>.<boot>.fresh                      whole in memory, on its way to the disk: good until the
//                                           system starts anew
//   <key>.weights                           on the disk; a look-up a minute later sees to it
//
// Nobody waits for the disk at the start that writes. At a look-up its magic, version, key, size and
// the checksum of header and table must be right; any other file counts as none and is written anew. Files are only ever removed or
// replaced, never changed, so a mapped one stays what it is.
// The store is limited: the files used longest ago make room.
// Thread rule: one thread a call; processes may share a folder.
#ifndef PGD_DEV_STORE_H
#define PGD_DEV_STORE_H

#include <pagoda/types.h>

#include "base/hash.h"
#include "os/file.h"

#define PGD_DEV_STORE_ALIGN 4096

typedef struct pgd_dev_store {
    const char *folder;  // made when it is first written to
    uint64_t most_bytes; // of all files together
} pgd_dev_store;

// The folder for a user: `given`, or XDG_CACHE_HOME/pagoda, or HOME/.cache/pagoda.
//   fails  NOT_FOUND (none of them), OUT_OF_RANGE (too long)
pgd_status pgd_dev_store_folder(const char *given, char *out, size_t cap) PGD_MUST_USE;

// A file of the store, mapped.
typedef struct pgd_dev_blob {
    pgd_os_map map;
    uint32_t n;
    uint32_t reserved0;
} pgd_dev_blob;

//   fails  NOT_FOUND (none, or one that is not right)
pgd_status pgd_dev_store_find(const pgd_dev_store *s, pgd_hash key, pgd_dev_blob *out) PGD_MUST_USE;
// Entry i: its bytes and where in map they begin. i is below n.
pgd_range pgd_dev_blob_entry(const pgd_dev_blob *b, uint32_t i);
void pgd_dev_blob_close(pgd_dev_blob *b);

typedef struct pgd_dev_store_writer pgd_dev_store_writer;

// Makes room and begins a file of n entries of these sizes.
//   fails  OUT_OF_RANGE (larger than the store or than what is free on the disk), DENIED, and what
//          writing answers
pgd_status pgd_dev_store_begin(const pgd_dev_store *s, pgd_hash key, const uint64_t *sizes,
                               uint32_t n, pgd_dev_store_writer **out) PGD_MUST_USE;
// The next bytes of the entry at hand; an entry that is full is followed by the next.
pgd_status pgd_dev_store_add(pgd_dev_store_writer *w, const void *bytes, uint64_t n) PGD_MUST_USE;
// Puts the file in its place. Frees the writer in any case.
pgd_status pgd_dev_store_finish(pgd_dev_store_writer *w) PGD_MUST_USE;
// Forgets it; NULL is fine.
void pgd_dev_store_drop(pgd_dev_store_writer *w);

#endif
