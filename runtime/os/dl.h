// Shared libraries: RTLD_NOW | RTLD_LOCAL, never closed.
#ifndef PGD_OS_DL_H
#define PGD_OS_DL_H

#include <stddef.h>

#include <pagoda/status.h>

// A library by its absolute path. UNAVAILABLE with the loader's reason in why[cap]; INVALID if path
// is not absolute.
pgd_status pgd_os_dl_open(const char *path, void **out, char *why, size_t cap) PGD_MUST_USE;
// A library of the system by its soname ("libx.so.1"), found as the loader finds linked libraries.
pgd_status pgd_os_dl_open_system(const char *soname, void **out, char *why,
                                 size_t cap) PGD_MUST_USE;
// 1 when the loader would find a library by its soname (or the file, if it is a path), without
// opening it: LD_LIBRARY_PATH, the loader's cache, the standard folders. root is put before /etc,
// /lib and /usr: "" for the machine itself, a folder for tests.
int32_t pgd_os_dl_is_installed(const char *root, const char *soname);
// NOT_FOUND when there is no such symbol.
pgd_status pgd_os_dl_symbol(void *lib, const char *name, void **out) PGD_MUST_USE;
// Path of the library or program that holds an address.
pgd_status pgd_os_dl_path_of(const void *address, char *out, size_t cap) PGD_MUST_USE;

#endif
