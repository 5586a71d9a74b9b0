// The kernels of a device: built from the embedded source once, then kept as a binary in the cache
// folder under a name made of all that the binary depends on.
//
//   <cache>/ocl-<hash of source, options, device, driver and platform>.bin
//
// A file that the driver does not take is made anew. Without a folder every start builds. PoCL
// keeps what it builds by itself, kernel by kernel, and would have to build all to give a binary:
// its devices use the cache only when the option names a folder.
#define _GNU_SOURCE 1 // secure_getenv

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "ocl.h"

#define OPTIONS     "-cl-std=CL1.2"
#define OPTIONS_F32 "-cl-std=CL1.2 -DK_NO_F64"
#define MOST_BYTES  (64 << 20) // of a binary that is believed
#define FNV_START   UINT64_C(0xcbf29ce484222325)
#define FNV_FACTOR  UINT64_C(0x100000001b3)
#define PATH_BYTES  1024

// FNV-1a (Fowler, Noll, Vo), 64 bits.
static uint64_t hash(uint64_t h, const void *bytes, size_t n) {
    const unsigned char *p = bytes;
    for (size_t i = 0; i < n; i++) {
        h = (h ^ p[i]) * FNV_FACTOR;
    }
    return h;
}

static uint64_t hash_info(const ocl_device *d, cl_device_info what, uint64_t h) {
    char text[512] = "";
    d->cl->clGetDeviceInfo(d->id, what, sizeof(text) - 1, text, NULL);
    return hash(h, text, strlen(text) + 1);
}

static bool has_own_cache(const ocl_device *d) {
    char text[256] = "";
    d->cl->clGetDeviceInfo(d->id, CL_DEVICE_VERSION, sizeof(text) - 1, text, NULL);
    return strstr(text, "PoCL") != NULL || strstr(text, "pocl") != NULL;
}

static const char *options_of(const ocl_device *d) {
    cl_device_fp_config f64 = 0;
    d->cl->clGetDeviceInfo(d->id, CL_DEVICE_DOUBLE_FP_CONFIG, sizeof(f64), &f64, NULL);
    return f64 != 0 ? OPTIONS : OPTIONS_F32;
}

// Path of the binary; empty when nothing is to be kept.
static void find_path(const pgd_host *host, const ocl_device *d, char *out) {
    const char *folder = host->option == NULL ? NULL : host->option(host, "cache");
    const char *home = secure_getenv("XDG_CACHE_HOME");
    const char *below = "";
    uint64_t h = hash(FNV_START, pgd_portable_source, pgd_portable_source_bytes);
    char parent[PATH_BYTES];
    out[0] = '\0';
    if (folder != NULL && strcmp(folder, "off") == 0) {
        return;
    }
    if (folder == NULL || folder[0] == '\0') {
        if (has_own_cache(d)) {
            return;
        }
        below = home != NULL && home[0] == '/' ? "/pagoda" : "/.cache/pagoda";
        folder = home != NULL && home[0] == '/' ? home : secure_getenv("HOME");
    }
    if (folder == NULL || folder[0] != '/') {
        return;
    }
    h = hash(h, options_of(d), strlen(options_of(d)));
    h = hash_info(d, CL_DEVICE_NAME, h);
    h = hash_info(d, CL_DEVICE_VERSION, h);
    h = hash_info(d, CL_DRIVER_VERSION, h);
    if (snprintf(parent, sizeof(parent), "%s%s", folder, below) >= PATH_BYTES - 32) {
        return;
    }
    if (below[0] != '\0' && below[1] == '.') {
        char cache[PATH_BYTES];
        snprintf(cache, sizeof(cache), "%.*s/.cache", PATH_BYTES - 16, folder);
        (void)mkdir(cache, 0700);
    }
    (void)mkdir(parent, 0700);
    snprintf(out, PATH_BYTES, "%.*s/ocl-%016llx.bin", PATH_BYTES - 32, parent,
             (unsigned long long)h);
}

// A file as a whole; NULL when it is not there or too large.
static unsigned char *read_file(const pgd_host *host, const char *path, size_t *out_bytes) {
    FILE *f = fopen(path, "rbe");
    unsigned char *bytes = NULL;
    struct stat s;
    if (f == NULL) {
        return NULL;
    }
    if (fstat(fileno(f), &s) == 0 && s.st_size > 0 && s.st_size <= MOST_BYTES) {
        *out_bytes = (size_t)s.st_size;
        bytes = host->alloc(host, *out_bytes, 0);
    }
    if (bytes != NULL && fread(bytes, 1, *out_bytes, f) != *out_bytes) {
        host->free(host, bytes);
        bytes = NULL;
    }
    fclose(f);
    return bytes;
}

// Beside the file first, then renamed: several processes may start at once.
static void write_file(const char *path, const unsigned char *bytes, size_t n) {
    char draft[PATH_BYTES + 16];
    snprintf(draft, sizeof(draft), "%s.%ld", path, (long)getpid());
    FILE *f = fopen(draft, "wbxe");
    if (f == NULL) {
        return;
    }
    const int whole = fwrite(bytes, 1, n, f) == n;
    if (fclose(f) != 0 || !whole || rename(draft, path) != 0) {
        (void)unlink(draft);
    }
}

static bool load_binary(const pgd_host *host, ocl_device *d, const char *path) {
    size_t n = 0;
    unsigned char *bytes = path[0] == '\0' ? NULL : read_file(host, path, &n);
    const unsigned char *list = bytes;
    cl_int error = CL_SUCCESS;
    if (bytes == NULL) {
        return false;
    }
    d->program = d->cl->clCreateProgramWithBinary(d->context, 1, &d->id, &n, &list, NULL, &error);
    host->free(host, bytes);
    if (error == CL_SUCCESS) {
        error = d->cl->clBuildProgram(d->program, 1, &d->id, options_of(d), NULL, NULL);
    }
    if (error != CL_SUCCESS && d->program != NULL) {
        d->cl->clReleaseProgram(d->program);
        d->program = NULL;
    }
    return error == CL_SUCCESS;
}

static void save_binary(const pgd_host *host, const ocl_device *d, const char *path) {
    size_t n = 0;
    if (path[0] == '\0' ||
        d->cl->clGetProgramInfo(d->program, CL_PROGRAM_BINARY_SIZES, sizeof(n), &n, NULL) !=
            CL_SUCCESS ||
        n == 0 || n > MOST_BYTES) {
        return;
    }
    unsigned char *bytes = host->alloc(host, n, 0);
    if (bytes != NULL && d->cl->clGetProgramInfo(d->program, CL_PROGRAM_BINARIES, sizeof(bytes),
                                                 &bytes, NULL) == CL_SUCCESS) {
        write_file(path, bytes, n);
    }
    host->free(host, bytes);
}

static pgd_status build_source(const pgd_host *host, ocl_device *d) {
    const char *source = pgd_portable_source;
    const size_t bytes = pgd_portable_source_bytes;
    char log[600] = "";
    cl_int error = CL_SUCCESS;
    d->program = d->cl->clCreateProgramWithSource(d->context, 1, &source, &bytes, &error);
    PGD_TRY(ocl_error(host, "clCreateProgramWithSource", error));
    error = d->cl->clBuildProgram(d->program, 1, &d->id, options_of(d), NULL, NULL);
    if (error == CL_SUCCESS) {
        return PGD_OK;
    }
    d->cl->clGetProgramBuildInfo(d->program, d->id, CL_PROGRAM_BUILD_LOG, sizeof(log) - 1, log,
                                 NULL);
    return OCL_FAIL(host, PGD_UNSUPPORTED, "the driver cannot build the kernels (%d): %.300s",
                    (int)error, log);
}

pgd_status ocl_program_make(const pgd_host *host, ocl_device *d) {
    char path[PATH_BYTES];
    find_path(host, d, path);
    if (load_binary(host, d, path)) {
        return PGD_OK;
    }
    PGD_TRY(build_source(host, d));
    save_binary(host, d, path);
    return PGD_OK;
}
