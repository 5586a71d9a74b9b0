// Files of a model folder: paths and whole-file reads with sentences.
#ifndef PGD_LOAD_FOLDER_H
#define PGD_LOAD_FOLDER_H

#include "base/str.h"
#include "os/file.h"

// out = folder "/" name in memory of pgd_mem_free.
pgd_status pgd_load_folder_join(const char *folder, pgd_str name, char **out) PGD_MUST_USE;
// Maps a regular file of at most max_bytes (0 = any size).
//   fails  NOT_FOUND, DENIED, INVALID (no regular file, too large), OUT_OF_MEMORY, by name
pgd_status pgd_load_folder_map(const char *path, uint64_t max_bytes, pgd_os_map *out) PGD_MUST_USE;
// What a map holds, as text.
pgd_str pgd_load_folder_text(const pgd_os_map *map);

#endif
