// Shared libraries over dlopen.
#define _GNU_SOURCE

#include "os/dl.h"

#include <dlfcn.h>
#include <stdint.h>
#include <string.h>
#ifdef __linux__
#include <sys/auxv.h>
#endif

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
