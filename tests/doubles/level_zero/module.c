// Modules, kernels and launches, on an OpenCL device of this machine (PoCL).
//
// PoCL has no SPIR-V: the translator turns a module into LLVM bitcode, which PoCL takes.
#define _GNU_SOURCE 1
#include <pthread.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "double.h"

extern char **environ;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; // guards all below, and arguments
static const double_cl *cl;
static cl_command_queue queue;

void zed_complain(const char *what) {
    fprintf(stderr, "the Level Zero double: %s\n", what);
    abort();
}

// ---- device ------------------------------------------------------------------------------------

static bool make_queue(void) {
    cl_int error = CL_SUCCESS;
    cl = double_cl_open();
    if (cl != NULL) {
        queue = cl->clCreateCommandQueue(cl->context, cl->device, 0, &error);
    }
    return cl != NULL && error == CL_SUCCESS;
}

bool zed_open(void) {
    pthread_mutex_lock(&lock);
    const bool made = queue != NULL || make_queue();
    pthread_mutex_unlock(&lock);
    return made;
}

// ---- modules -----------------------------------------------------------------------------------

static bool write_all(const char *path, const void *bytes, size_t n) {
    FILE *f = fopen(path, "wbe");
    if (f == NULL) {
        return false;
    }
    const bool whole = fwrite(bytes, 1, n, f) == n;
    return fclose(f) == 0 && whole;
}

static unsigned char *read_all(const char *path, size_t *out_n) {
    enum { MOST = 64 << 20 };
    unsigned char *bytes = malloc(MOST);
    FILE *f = fopen(path, "rbe");
    *out_n = f == NULL || bytes == NULL ? 0 : fread(bytes, 1, MOST, f);
    if (f != NULL) {
        fclose(f);
    }
    return bytes;
}

static bool translate(const char *from, const char *to) {
    char *const argv[] = {TRANSLATOR, "-r", (char *)(uintptr_t)from, "-o", (char *)(uintptr_t)to,
                          NULL};
    pid_t child = 0;
    int status = -1;
    return posix_spawn(&child, TRANSLATOR, NULL, NULL, argv, environ) == 0 &&
           waitpid(child, &status, 0) == child && status == 0;
}

// Where the bitcode of a module is kept from process to process: beside what PoCL keeps.
static bool kept_at(const void *spirv, size_t bytes, char *out, size_t cap) {
    const char *folder = getenv("POCL_CACHE_DIR");
    uint64_t hash = UINT64_C(0xcbf29ce484222325); // FNV-1a
    for (size_t i = 0; i < bytes; i++) {
        hash = (hash ^ ((const unsigned char *)spirv)[i]) * UINT64_C(0x100000001b3);
    }
    return folder != NULL && (size_t)snprintf(out, cap, "%s/spirv-%016llx-%zu.bc", folder,
                                              (unsigned long long)hash, bytes) < cap;
}

// SPIR-V to LLVM bitcode, by way of two files; an old driver has no translator.
static unsigned char *bitcode_of(const void *spirv, size_t bytes, size_t *out_n) {
    const char *folder = getenv("TMPDIR") == NULL ? "/tmp" : getenv("TMPDIR");
    char kept[512] = "";
    char base[544];
    char from[560];
    char to[560];
    unsigned char *bitcode = NULL;
    if (double_settings_get()->driver < 100) {
        return NULL;
    }
    const bool keep = kept_at(spirv, bytes, kept, sizeof(kept));
    if (keep && access(kept, R_OK) == 0) {
        return read_all(kept, out_n);
    }
    snprintf(base, sizeof(base), keep ? "%s.XXXXXX" : "%s/pgd-double-XXXXXX", keep ? kept : folder);
    const int file = mkstemp(base);
    if (file < 0) {
        return NULL;
    }
    close(file);
    snprintf(from, sizeof(from), "%s.spv", base);
    snprintf(to, sizeof(to), "%s.bc", base);
    if (write_all(from, spirv, bytes) && translate(from, to)) {
        bitcode = read_all(to, out_n);
    }
    if (keep && bitcode != NULL && *out_n > 0) {
        (void)rename(to, kept);
    }
    unlink(base);
    unlink(from);
    unlink(to);
    return bitcode;
}

// Functions of Intel's compiler, which a driver is not to know: PoCL would look for them when a
// kernel runs.
static bool has_all(const void *spirv, size_t bytes) {
    static const char name[] = "intel_sub_group_";
    return memmem(spirv, bytes, name, sizeof(name) - 1) == NULL;
}

ze_result_t zed_module_make(const void *spirv, size_t bytes, zed_module *out) {
    size_t n = 0;
    cl_int error = CL_INVALID_BINARY;
    memset(out, 0, sizeof(*out));
    if (!has_all(spirv, bytes)) {
        snprintf(out->log, sizeof(out->log), "a function is undefined");
        return ZE_RESULT_ERROR_MODULE_BUILD_FAILURE;
    }
    unsigned char *bitcode = bitcode_of(spirv, bytes, &n);
    const unsigned char *list = bitcode;
    pthread_mutex_lock(&lock);
    if (bitcode != NULL && n > 0) {
        out->program =
            cl->clCreateProgramWithBinary(cl->context, 1, &cl->device, &n, &list, NULL, &error);
    }
    if (error == CL_SUCCESS) {
        error =
            cl->clBuildProgram(out->program, 1, &cl->device, "-x spir -spir-std=1.2", NULL, NULL);
    }
    if (error != CL_SUCCESS) {
        snprintf(out->log, sizeof(out->log), "the double cannot build this module (%d)",
                 (int)error);
        if (out->program != NULL) {
            cl->clGetProgramBuildInfo(out->program, cl->device, CL_PROGRAM_BUILD_LOG,
                                      sizeof(out->log) - 1, out->log, NULL);
        }
    }
    pthread_mutex_unlock(&lock);
    free(bitcode);
    out->words = malloc(bytes);
    if (out->words != NULL) {
        memcpy(out->words, spirv, bytes);
        out->n_words = bytes / sizeof(uint32_t);
    }
    return error == CL_SUCCESS && out->words != NULL ? ZE_RESULT_SUCCESS
                                                     : ZE_RESULT_ERROR_MODULE_BUILD_FAILURE;
}

void zed_module_end(zed_module *m) {
    pthread_mutex_lock(&lock);
    if (m->program != NULL) {
        cl->clReleaseProgram(m->program);
    }
    pthread_mutex_unlock(&lock);
    free(m->words);
}

// ---- kernels -----------------------------------------------------------------------------------

// SPIR-V specification 1.2, 2.3 (layout of instructions) and 3.32.
enum { OP_ENTRY_POINT = 15, OP_TYPE_POINTER = 32, OP_FUNCTION = 54, OP_PARAMETER = 55 };
enum { CLASS_CONSTANT = 0, CLASS_GROUPS = 5, HEADER_WORDS = 5 };

// Storage class of a pointer type, -1 if it is none.
static int class_of(const zed_module *m, uint32_t type) {
    for (size_t i = HEADER_WORDS; i < m->n_words; i += m->words[i] >> 16) {
        if ((m->words[i] & 0xffffu) == OP_TYPE_POINTER && m->words[i + 1] == type) {
            return (int)m->words[i + 2];
        }
        if (m->words[i] >> 16 == 0) {
            break;
        }
    }
    return -1;
}

// The arguments of an entry point: memories and values.
static bool find_args(const zed_module *m, const char *name, zed_kernel *k) {
    uint32_t function = 0;
    bool inside = false;
    for (size_t i = HEADER_WORDS; i < m->n_words && m->words[i] >> 16 != 0;
         i += m->words[i] >> 16) {
        const uint32_t *w = &m->words[i];
        const uint32_t op = w[0] & 0xffffu;
        if (op == OP_ENTRY_POINT && strcmp((const char *)&w[3], name) == 0) {
            function = w[2];
        } else if (op == OP_FUNCTION) {
            inside = function != 0 && w[2] == function;
        } else if (op == OP_PARAMETER && inside && k->n_args < ZED_ARGS) {
            const int class = class_of(m, w[1]);
            k->kinds[k->n_args++] =
                class == CLASS_CONSTANT || class == CLASS_GROUPS ? ARG_MEMORY : ARG_VALUE;
        }
    }
    return function != 0;
}

ze_result_t zed_kernel_make(const zed_module *m, const char *name, zed_kernel *out) {
    cl_int error = CL_SUCCESS;
    memset(out, 0, sizeof(*out));
    if (!find_args(m, name, out)) {
        return ZE_RESULT_ERROR_INVALID_KERNEL_NAME;
    }
    pthread_mutex_lock(&lock);
    out->kernel = cl->clCreateKernel(m->program, name, &error);
    pthread_mutex_unlock(&lock);
    return error == CL_SUCCESS ? ZE_RESULT_SUCCESS : ZE_RESULT_ERROR_INVALID_KERNEL_NAME;
}

void zed_kernel_end(zed_kernel *k) {
    pthread_mutex_lock(&lock);
    cl->clReleaseKernel(k->kernel);
    pthread_mutex_unlock(&lock);
}

static cl_int set_args(const zed_kernel *k) {
    for (cl_uint i = 0; i < k->n_args; i++) {
        uint64_t address = 0;
        void *ptr = NULL;
        if (k->kinds[i] == ARG_MEMORY) {
            memcpy(&address, k->values[i], sizeof(address));
            ptr = address == 0 ? NULL : double_memory_find(address, 0);
            if (address != 0 && ptr == NULL) {
                zed_complain("a kernel runs when its memory is freed");
            }
        }
        const cl_int error = k->kinds[i] == ARG_MEMORY
                                 ? cl->clSetKernelArgSVMPointer(k->kernel, i, ptr)
                                 : cl->clSetKernelArg(k->kernel, i, k->bytes[i], k->values[i]);
        if (error != CL_SUCCESS) {
            return error;
        }
    }
    return CL_SUCCESS;
}

void zed_run(const zed_kernel *k, const uint32_t groups[3]) {
    const size_t local[3] = {k->group[0], k->group[1], k->group[2]};
    pthread_mutex_lock(&lock);
    cl_int error = set_args(k);
    if (error == CL_SUCCESS) {
        error = double_cl_launch(queue, k->kernel, groups, local);
    }
    pthread_mutex_unlock(&lock);
    if (error != CL_SUCCESS || cl->clFinish(queue) != CL_SUCCESS) {
        zed_complain("PoCL does not run a launch");
    }
}
