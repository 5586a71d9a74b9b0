// Shared libraries over dlopen.
#define _GNU_SOURCE

#include "os/dl.h"

#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#ifdef __linux__
#include <sys/auxv.h>
#endif

#include "os/env.h"
#include "os/file.h"

static void put_text(char *to, size_t cap, const char *text) {
    if (cap == 0) {
        return;
    }
    size_t n = strlen(text);
    n = n < cap ? n : cap - 1;
    memcpy(to, text, n);
    to[n] = '\0';
}

static pgd_status open_library(const char *name, void **out, char *why, size_t cap) {
    void *lib = dlopen(name, RTLD_NOW | RTLD_LOCAL);
    if (lib == NULL) {
        const char *reason = dlerror();
        put_text(why, cap, reason != NULL ? reason : "the loader gave no reason");
        return PGD_UNAVAILABLE;
    }
    *out = lib;
    return PGD_OK;
}

pgd_status pgd_os_dl_open(const char *path, void **out, char *why, size_t cap) {
    *out = NULL;
    put_text(why, cap, "");
    if (path == NULL || path[0] != '/') {
        put_text(why, cap, "the path of a library must be absolute");
        return PGD_INVALID;
    }
    return open_library(path, out, why, cap);
}

pgd_status pgd_os_dl_open_system(const char *soname, void **out, char *why, size_t cap) {
    *out = NULL;
    put_text(why, cap, "");
    if (strchr(soname, '/') != NULL) {
        put_text(why, cap, "the name of a system library has no folder");
        return PGD_INVALID;
    }
    return open_library(soname, out, why, cap);
}

pgd_status pgd_os_dl_symbol(void *lib, const char *name, void **out) {
    *out = NULL;
    (void)dlerror();
    void *address = dlsym(lib, name);
    if (address == NULL || dlerror() != NULL) {
        return PGD_NOT_FOUND;
    }
    *out = address;
    return PGD_OK;
}

pgd_status pgd_os_dl_path_of(const void *address, char *out, size_t cap) {
    Dl_info info;
    put_text(out, cap, "");
    if (dladdr(address, &info) == 0 || info.dli_fname == NULL) {
        return PGD_NOT_FOUND;
    }
#ifdef __linux__
    // For the program itself dladdr gives argv[0], which may be anything: compare load addresses.
    Dl_info program;
    const void *program_header = (const void *)(uintptr_t)getauxval(AT_PHDR);
    if (dladdr(program_header, &program) != 0 && program.dli_fbase == info.dli_fbase) {
        return pgd_os_program_path(out, cap);
    }
#endif
    return pgd_os_real_path(info.dli_fname, out, cap);
}

#define PATH_BYTES 4096

static int32_t is_in(const char *root, const char *folder, size_t folder_len, const char *soname) {
    char path[PATH_BYTES];
    int n = snprintf(path, sizeof(path), "%s%.*s/%s", root, (int)folder_len, folder, soname);
    return n > 0 && (size_t)n < sizeof(path) && pgd_os_kind(path, NULL) == PGD_OS_REGULAR;
}

// The cache that ldconfig writes holds NUL-terminated names; a name may be the end of a path.
static int32_t is_in_cache(const char *root, const char *soname) {
    char path[PATH_BYTES];
    pgd_os_map map = {0};
    int32_t found = 0;
    size_t n = strlen(soname) + 1;
    int len = snprintf(path, sizeof(path), "%s/etc/ld.so.cache", root);
    if (len < 0 || (size_t)len >= sizeof(path) || pgd_os_map_file(path, &map) != PGD_OK) {
        return 0;
    }
    const char *at = map.ptr;
    const char *end = at + map.bytes;
    while (!found && at != NULL && (at = memmem(at, (size_t)(end - at), soname, n)) != NULL) {
        found = at > (const char *)map.ptr && (at[-1] == '\0' || at[-1] == '/');
        at++;
    }
    pgd_os_unmap(&map);
    return found;
}

int32_t pgd_os_dl_is_installed(const char *root, const char *soname) {
    static const char *const standard[] = {"/lib", "/usr/lib", "/lib64", "/usr/lib64",
                                           "/usr/local/lib"};
    const char *path = pgd_os_env_secure("LD_LIBRARY_PATH");
    if (strchr(soname, '/') != NULL) {
        return is_in(root, soname, (size_t)(strrchr(soname, '/') - soname),
                     strrchr(soname, '/') + 1);
    }
    while (path != NULL && path[0] != '\0') {
        size_t n = strcspn(path, ":;");
        if (n > 0 && is_in("", path, n, soname)) {
            return 1;
        }
        path += n + (path[n] != '\0');
    }
    for (size_t i = 0; i < sizeof(standard) / sizeof(standard[0]); i++) {
        if (is_in(root, standard[i], strlen(standard[i]), soname)) {
            return 1;
        }
    }
    return is_in_cache(root, soname);
}
