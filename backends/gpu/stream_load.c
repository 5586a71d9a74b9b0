// The vendor's library, what its devices are, and the kernels for one.
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "stream.h"

#define MOST_BYTES (UINT64_C(256) << 20) // of a file of kernels

// ---- errors ------------------------------------------------------------------------------------

// What stands behind an error number, for the host. Both vendors number alike.
static pgd_status status_of(int error) {
    switch (error) {
    case 0: return PGD_OK;
    case GPU_STREAM_OUT_OF_MEMORY: return PGD_OUT_OF_MEMORY;
    case 34: // the stub of a toolkit
    case 35: // driver older than the library
    case 36:
    case GPU_STREAM_NO_DEVICE:
    case GPU_STREAM_INVALID_DEVICE:
    case 802: // system not ready
    case 803: // driver and library do not match
    case 804: return PGD_UNAVAILABLE;
    case 200: // image, no binary for the chip, PTX, PTX too new, no PTX compiler
    case 209:
    case 218:
    case 221:
    case 222:
    case 223: return PGD_UNSUPPORTED;
    case 4:   // the library is shut down
    case 46:  // device unavailable
    case 53:  // a launch before failed
    case 201: // the context is gone, and 709
    case 214: // memory error
    case 220: // link error
    case 226:
    case 700: // illegal address
    case 702: // launch takes too long
    case 709:
    case 710:
    case 714:
    case 715:
    case 716:
    case 717:
    case 718:
    case 719:
    case 721: return PGD_DEVICE_LOST;
    default: return PGD_INTERNAL;
    }
}

static const char *name_of(pgd_status code) {
    return code == PGD_DEVICE_LOST     ? "the device is lost"
           : code == PGD_OUT_OF_MEMORY ? "out of memory"
                                       : "failed";
}

pgd_status gpu_stream_error(const pgd_host *host, const gpu_stream_library *l, const char *call,
                            int error) {
    const pgd_status code = status_of(error);
    if (code == PGD_OK) {
        return PGD_OK;
    }
    if (error == 34) {
        return GPU_STREAM_FAIL(host, l->vendor, code,
                               "the library is the toolkit's stub, made for linking only; the %s "
                               "is not installed, or stands behind the stub in LD_LIBRARY_PATH",
                               l->vendor->driver);
    }
    const char *text = l->vendor->error_text(l, error);
    return GPU_STREAM_FAIL(host, l->vendor, code, "%s: %s: %s (%d)", call, name_of(code),
                           text == NULL ? "no text" : text, error);
}

// ---- library -----------------------------------------------------------------------------------

static pgd_status find_calls(const pgd_host *host, void *handle, gpu_stream_library *l) {
    const gpu_stream_vendor *v = l->vendor;
    gpu_stream_call calls[GPU_STREAM_COUNT];
    for (int i = 0; i < GPU_STREAM_COUNT; i++) {
        *(void **)&calls[i] = dlsym(handle, v->names[i]);
        if (calls[i] == NULL) {
            return GPU_STREAM_FAIL(host, v, PGD_UNAVAILABLE,
                                   "the %s is too old: its library has no %s", v->driver,
                                   v->names[i]);
        }
    }
    for (int i = 0; v->own_names[i] != NULL; i++) {
        const int is_optional = v->own_names[i][0] == '?';
        *(void **)&l->own[i] = dlsym(handle, v->own_names[i] + is_optional);
        if (l->own[i] == NULL && !is_optional) {
            return GPU_STREAM_FAIL(host, v, PGD_UNAVAILABLE,
                                   "the %s is too old: its library has no %s", v->driver,
                                   v->own_names[i]);
        }
    }
    _Static_assert(sizeof(calls) == sizeof(l->api), "a table of function pointers");
    memcpy(&l->api, calls, sizeof(calls));
    return PGD_OK;
}

// No device is no failure: the list is empty then.
static pgd_status start(const pgd_host *host, gpu_stream_library *l) {
    int n = 0;
    int error = l->api.init(0);
    if (error == GPU_STREAM_NO_DEVICE || error == GPU_STREAM_INVALID_DEVICE) {
        return PGD_OK;
    }
    if (error != 0 && error != 34) {
        pgd_status code = status_of(error) == PGD_INTERNAL ? PGD_UNAVAILABLE : status_of(error);
        const char *text = l->vendor->error_text(l, error);
        return GPU_STREAM_FAIL(host, l->vendor, code, "the %s does not start: %s (%d)",
                               l->vendor->driver, text == NULL ? "no text" : text, error);
    }
    PGD_TRY(gpu_stream_error(host, l, l->vendor->names[GPU_STREAM_init], error));
    (void)l->api.driver_version(&l->version);
    error = l->api.device_count(&n);
    if (error == GPU_STREAM_NO_DEVICE || error == GPU_STREAM_INVALID_DEVICE) {
        return PGD_OK;
    }
    l->n_devices = n > 0 ? (uint32_t)n : 0;
    return gpu_stream_error(host, l, l->vendor->names[GPU_STREAM_device_count], error);
}

pgd_status gpu_stream_load(const pgd_host *host, const gpu_stream_vendor *v, void **out_library) {
    gpu_stream_library *l = host->alloc(host, sizeof(*l), 0);
    void *handle = NULL;
    *out_library = NULL;
    if (l == NULL) {
        return GPU_STREAM_FAIL(host, v, PGD_OUT_OF_MEMORY, "%s", "no memory for the library");
    }
    l->vendor = v;
    for (int i = 0; handle == NULL && v->libraries[i] != NULL; i++) {
        handle = dlopen(v->libraries[i], RTLD_NOW | RTLD_LOCAL);
    }
    pgd_status code = PGD_OK;
    if (handle == NULL) {
        code = GPU_STREAM_FAIL(host, v, PGD_UNAVAILABLE, "the %s is not installed: there is no %s",
                               v->driver, v->libraries[0]);
    }
    code = code == PGD_OK ? find_calls(host, handle, l) : code;
    code = code == PGD_OK ? start(host, l) : code;
    if (code != PGD_OK) {
        host->free(host, l);
        return code;
    }
    gpu_blaslt_load(host, v->blaslt, &l->blaslt);
    *out_library = l;
    return PGD_OK;
}

const char *gpu_stream_products(const pgd_host *host, void *library, char *reason, size_t bytes) {
    const gpu_blaslt_library *l = &((const gpu_stream_library *)library)->blaslt;
    (void)host;
    snprintf(reason, bytes, "%s", l->reason);
    return l->vendor == NULL ? NULL : l->vendor->name;
}

void gpu_stream_unload(const pgd_host *host, void *library) {
    host->free(host, library); // the vendor's library stays: it may have threads
}

uint32_t gpu_stream_count(void *library) {
    return ((const gpu_stream_library *)library)->n_devices;
}

int gpu_stream_attribute(const gpu_stream_library *l, int what, int number) {
    int value = 0;
    return l->api.device_attribute(&value, what, number) == 0 && value > 0 ? value : 0;
}

pgd_status gpu_stream_facts(const pgd_host *host, void *library, uint32_t i,
                            gpu_device_facts *out) {
    const gpu_stream_library *l = library;
    const gpu_stream_api *api = &l->api;
    const char *const *names = l->vendor->names;
    int number = 0;
    size_t bytes = 0;
    PGD_TRY(
        gpu_stream_error(host, l, names[GPU_STREAM_device_get], api->device_get(&number, (int)i)));
    PGD_TRY(gpu_stream_error(host, l, names[GPU_STREAM_device_bytes],
                             api->device_bytes(&bytes, number)));
    PGD_TRY(gpu_stream_error(host, l, names[GPU_STREAM_device_name],
                             api->device_name(out->name, (int)sizeof(out->name) - 1, number)));
    if (api->device_pci(out->pci, (int)sizeof(out->pci) - 1, number) != 0) {
        out->pci[0] = '\0';
    }
    if (api->device_uuid(out->uuid, number) != 0) {
        memset(out->uuid, 0, sizeof(out->uuid));
    }
    out->bytes = bytes;
    out->align = 256;
    out->kind = PGD_DEVICE_GPU;
    out->has_f64 = 1;
    out->units = (uint32_t)gpu_stream_attribute(l, l->vendor->processors, number);
    out->bytes_per_s = 2 * // transfers a clock
                       ((uint64_t)gpu_stream_attribute(l, l->vendor->memory_clock, number) * 1000) *
                       ((uint64_t)gpu_stream_attribute(l, l->vendor->memory_bus, number) / 8);
    l->vendor->arch(l, number, out->arch, sizeof(out->arch));
    return PGD_OK;
}

// ---- kernels -----------------------------------------------------------------------------------

// A file as a whole, with a zero behind it (PTX is text); the caller frees it.
static pgd_status read_file(const pgd_host *host, const gpu_stream_vendor *v, const char *path,
                            char **out) {
    FILE *f = fopen(path, "rbe");
    char *bytes = NULL;
    long n = -1;
    *out = NULL;
    if (f != NULL && fseek(f, 0, SEEK_END) == 0) {
        n = ftell(f);
        rewind(f);
    }
    if (n > 0 && (uint64_t)n <= MOST_BYTES) {
        bytes = host->alloc(host, (size_t)n + 1, 0);
    }
    if (bytes != NULL && fread(bytes, 1, (size_t)n, f) != (size_t)n) {
        host->free(host, bytes);
        bytes = NULL;
    }
    if (f != NULL) {
        (void)fclose(f);
    }
    if (bytes == NULL) {
        return GPU_STREAM_FAIL(host, v, PGD_NOT_FOUND, "the file of kernels %s cannot be read",
                               path);
    }
    *out = bytes;
    return PGD_OK;
}

// The image for a chip: "gfx942:sramecc+" is served by gfx942.
const void *gpu_stream_image_of(const gpu_stream_image *images, const char *arch) {
    const size_t n = strcspn(arch, ":");
    for (const gpu_stream_image *i = images; i->data != NULL; i++) {
        if (i->arch[0] == '\0' || (strlen(i->arch) == n && strncmp(i->arch, arch, n) == 0)) {
            return i->data;
        }
    }
    return NULL;
}

static pgd_status no_image(const pgd_host *host, const gpu_stream_vendor *v, const char *arch) {
    char list[160] = "";
    size_t at = 0;
    if (v->built_with == NULL) {
        return GPU_STREAM_FAIL(host, v, PGD_UNSUPPORTED, "%s",
                               "this plugin was built without its compiler and has no "
                               "kernels; the option 'kernels' names a file of them");
    }
    for (const gpu_stream_image *i = v->images; i->data != NULL && at < sizeof(list); i++) {
        at += (size_t)snprintf(list + at, sizeof(list) - at, " %s", i->arch);
    }
    return GPU_STREAM_FAIL(host, v, PGD_UNSUPPORTED, "no kernels for the chip %s; there are:%s",
                           arch, list);
}

static pgd_status load_module(const pgd_host *host, gpu_stream_device *d, const char *arch,
                              const void *image) {
    const gpu_stream_library *l = d->library;
    const gpu_stream_vendor *v = l->vendor;
    const int error = d->api->module_load(&d->module, image);
    if (status_of(error) == PGD_UNSUPPORTED) {
        const char *text = v->error_text(l, error);
        return GPU_STREAM_FAIL(host, v, PGD_UNSUPPORTED,
                               "the %s (version %d) does not take the kernels for %s, which were "
                               "built with %s: it is too old, or the chip is not among theirs: %s "
                               "(%d)",
                               v->driver, l->version, arch,
                               v->built_with == NULL ? "another compiler" : v->built_with,
                               text == NULL ? "no text" : text, error);
    }
    PGD_TRY(gpu_stream_error(host, l, v->names[GPU_STREAM_module_load], error));
    for (int i = 0; i < PGD_PORTABLE_COUNT; i++) {
        PGD_TRY(gpu_stream_error(
            host, l, pgd_portable_kernels[i].name,
            d->api->module_function(&d->functions[i], d->module, pgd_portable_kernels[i].name)));
    }
    return PGD_OK;
}

enum { PLAIN_SHARED = 48 << 10 }; // bytes a kernel gets without asking

// The tuned kernels, where the device is to have them: what it said of itself counts on them.
static pgd_status load_tuned(const pgd_host *host, gpu_stream_device *d, const char *arch) {
    const gpu_stream_library *l = d->library;
    const gpu_stream_vendor *v = l->vendor;
    const gpu_tuned *t = v->tuned;
    gpu_device_facts facts = {0};
    char reason[96];
    snprintf(facts.arch, sizeof(facts.arch), "%s", arch);
    if (t == NULL || !t->usable(host, &facts, reason, sizeof(reason))) {
        return PGD_OK;
    }
    const void *image = gpu_stream_image_of(v->tuned_images, arch);
    PGD_TRY(gpu_stream_error(host, l, v->names[GPU_STREAM_module_load],
                             d->api->module_load(&d->tuned_module, image)));
    for (uint32_t i = 0; i < t->n_kernels; i++) {
        const gpu_kernel *k = &t->kernels[i];
        void **function = &d->functions[PGD_PORTABLE_COUNT + i];
        if (k->arch != NULL && strcmp(k->arch, arch) != 0) {
            continue; // not loaded, and its shared memory is more than this chip may have
        }
        PGD_TRY(gpu_stream_error(host, l, k->name,
                                 d->api->module_function(function, d->tuned_module, k->name)));
        if (k->shared > PLAIN_SHARED) {
            PGD_TRY(gpu_stream_error(host, l, k->name, v->allow_shared(d, *function, k->shared)));
        }
    }
    d->overlaps = v->overlaps != NULL && v->overlaps(host, l, arch);
    return PGD_OK;
}

pgd_status gpu_stream_load_kernels(const pgd_host *host, gpu_stream_device *d, const char *arch) {
    const gpu_stream_vendor *v = d->library->vendor;
    const char *path = host->option == NULL ? NULL : host->option(host, "kernels");
    const void *image = gpu_stream_image_of(v->images, arch);
    char *bytes = NULL;
    if (path != NULL && path[0] != '\0') {
        PGD_TRY(read_file(host, v, path, &bytes));
        image = bytes;
    }
    if (image == NULL) {
        return no_image(host, v, arch);
    }
    pgd_status code = load_module(host, d, arch, image);
    host->free(host, bytes);
    return code == PGD_OK ? load_tuned(host, d, arch) : code;
}
