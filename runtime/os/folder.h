// Folders: making them, links, locks, moving and removing files, room on the disk. Functions return
// a code and leave errno; the caller writes the sentence.
#ifndef PGD_OS_FOLDER_H
#define PGD_OS_FOLDER_H

#include "os/file.h"

// Makes a folder and those above it; one that is there is fine.
pgd_status pgd_os_folder_make(const char *path) PGD_MUST_USE;
// Puts a symbolic link with this text at path, in one move: what lay there (a link, a file) is
// replaced, and nobody ever sees the place empty.
pgd_status pgd_os_folder_link(const char *text, const char *path) PGD_MUST_USE;
// Moves a file within a file system; what lay at `to` is replaced.
pgd_status pgd_os_folder_move(const char *from, const char *to) PGD_MUST_USE;
// Removes a file or a link. NOT_FOUND when there is none.
pgd_status pgd_os_folder_remove(const char *path) PGD_MUST_USE;
// Bytes that this user may still write to the file system of path.
pgd_status pgd_os_folder_room(const char *path, uint64_t *out_bytes) PGD_MUST_USE;
// Locks a file (made when it is not there) for this open descriptor, against every process that
// locks it the same way (flock). wait 0: PRECONDITION when another holds it. The lock ends with
// pgd_os_close or with the process.
pgd_status pgd_os_folder_lock(const char *path, int32_t wait, pgd_os_file *out) PGD_MUST_USE;

#endif
