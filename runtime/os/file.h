// Files. Functions return a code and leave errno; the caller writes the sentence.
#ifndef PGD_OS_FILE_H
#define PGD_OS_FILE_H

#include <stddef.h>

#include <pagoda/status.h>

enum { PGD_OS_NONE = 0, PGD_OS_REGULAR = 1, PGD_OS_FOLDER = 2, PGD_OS_OTHER = 3 };

typedef struct pgd_os_map {
    void *ptr; // NULL for an empty file
    uint64_t bytes;
} pgd_os_map;

typedef struct pgd_os_file {
    int32_t fd; // -1 = closed
} pgd_os_file;

// The code of an errno.
pgd_status pgd_os_code_of(int32_t error);
// What lies at path (links followed); NONE if nothing. bytes may be NULL.
int32_t pgd_os_kind(const char *path, uint64_t *bytes);
// Whole regular file, read-only. NOT_FOUND, DENIED, INVALID (no regular file), OUT_OF_MEMORY.
pgd_status pgd_os_map_file(const char *path, pgd_os_map *out) PGD_MUST_USE;
void pgd_os_unmap(pgd_os_map *map);
// Whole regular file into memory of the caller's allocator: two calls, size first.
pgd_status pgd_os_read_file(const char *path, void *to, uint64_t bytes,
                            uint64_t *out_read) PGD_MUST_USE;
// Opens for writing: creates, truncates (append 0) or appends (append 1).
pgd_status pgd_os_open_write(const char *path, int32_t append, pgd_os_file *out) PGD_MUST_USE;
pgd_status pgd_os_write(pgd_os_file f, const void *bytes, size_t n) PGD_MUST_USE; // all of it
// Cuts a regular file to its first `bytes`.
pgd_status pgd_os_truncate(const char *path, uint64_t bytes) PGD_MUST_USE;
pgd_status pgd_os_sync(pgd_os_file f) PGD_MUST_USE;
void pgd_os_close(pgd_os_file *f);
// Calls fn for each entry of a folder (not . and ..), in sorted order of names; a non-zero return
// of fn ends the walk. NOT_FOUND, DENIED.
pgd_status pgd_os_list(const char *path, int32_t (*fn)(void *arg, const char *name),
                       void *arg) PGD_MUST_USE;
// Absolute path with links resolved into out[cap]. NOT_FOUND, OUT_OF_RANGE.
pgd_status pgd_os_real_path(const char *path, char *out, size_t cap) PGD_MUST_USE;
// Absolute path of the running program.
pgd_status pgd_os_program_path(char *out, size_t cap) PGD_MUST_USE;

#endif
