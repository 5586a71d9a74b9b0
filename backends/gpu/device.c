// The backend and its devices: what every GPU says in the same way.
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "gpu.h"
#include "tuned.h"

pgd_status gpu_fail(const pgd_device *d, const char *file, int32_t line, pgd_status code,
                    const char *fmt, ...) {
    char text[400];
    va_list args;
    va_start(args, fmt);
    vsnprintf(text, sizeof(text), fmt, args);
    va_end(args);
    return (d->host->fail)(d->host, code, file, line, "%s: %s", gpu_of(d)->driver->kind, text);
}

pgd_status gpu_plugin_open(const pgd_host *host, const gpu_driver *driver, void **out_backend,
                           pgd_tables *out) {
    const pgd_tables local = {
        .size = sizeof(local),
        .device = &gpu_device_table,
        .memory = &gpu_memory_table,
        .queue = &gpu_queue_table,
        .weight = &gpu_weight_table,
        .kv = &gpu_kv_table,
        .ops = &gpu_ops,
        .graph = &gpu_graph_table,
    };
    gpu_backend *self = NULL;
    char text[240];
    *out_backend = NULL;
    if (driver->choose != NULL) {
        PGD_TRY(driver->choose(host, &driver));
    }
    self = host->alloc(host, sizeof(*self), 0);
    if (self == NULL) {
        return PGD_HOST_FAIL(host, PGD_OUT_OF_MEMORY, "%s: no memory for the backend",
                             driver->kind);
    }
    self->host = host;
    self->driver = driver;
    pgd_status code = gpu_load(host, driver, &self->library, text, sizeof(text));
    if (code != PGD_OK) {
        host->free(host, self);
        return PGD_HOST_FAIL(host, code, "%s", text);
    }
    self->n_devices = driver->count(self->library);
    *out_backend = self;
    PGD_OUT(out, local);
    return PGD_OK;
}

void gpu_plugin_close(void *backend) {
    gpu_backend *self = backend;
    if (self != NULL) {
        const pgd_host *host = self->host;
        self->driver->unload(host, self->library);
        host->free(host, self);
    }
}

pgd_status gpu_plugin_probe(const pgd_host *host, const gpu_driver *driver, pgd_probe *out) {
    pgd_probe local = {.size = sizeof(local), .score = 10};
    char text[240];
    void *library = NULL;
    if (gpu_load(host, driver, &library, text, sizeof(text)) == PGD_OK) {
        local.n_devices = driver->count(library);
        driver->unload(host, library);
        if (local.n_devices == 0) {
            snprintf(local.reason, sizeof(local.reason), "%s: there is no device", driver->kind);
        }
    } else {
        snprintf(local.reason, sizeof(local.reason), "%s", text);
    }
    PGD_OUT(out, local);
    return PGD_OK;
}

static pgd_status count(void *backend, uint32_t *out_n) {
    *out_n = ((const gpu_backend *)backend)->n_devices;
    return PGD_OK;
}

static pgd_status find(const gpu_backend *self, uint32_t i, gpu_device_facts *out) {
    if (i >= self->n_devices) {
        return PGD_HOST_FAIL(self->host, PGD_NOT_FOUND, "%s: device %u of %u", self->driver->kind,
                             (unsigned)i, (unsigned)self->n_devices);
    }
    memset(out, 0, sizeof(*out));
    return self->driver->facts(self->host, self->library, i, out);
}

// The tuned kernels of a device, NULL and why not.
static const gpu_tuned *tuned_of(const gpu_backend *self, const gpu_device_facts *f, char *reason,
                                 size_t bytes) {
    const gpu_tuned *t = self->driver->tuned;
    reason[0] = '\0';
    return t != NULL && t->usable(self->host, f, reason, bytes) ? t : NULL;
}

bool gpu_tuned_wanted(const pgd_host *host, bool has_images, const char *compiler, char *reason,
                      size_t bytes) {
    const char *file = host->option == NULL ? NULL : host->option(host, "kernels");
    const char *wanted = host->option == NULL ? NULL : host->option(host, "tuned");
    if (file != NULL && file[0] != '\0') {
        snprintf(reason, bytes, "the kernels come from a file, which has no tuned ones");
    } else if (!has_images) {
        snprintf(reason, bytes, "the plugin was built without %s, so without tuned kernels",
                 compiler);
    } else if (wanted != NULL && strcmp(wanted, "off") == 0) {
        snprintf(reason, bytes, "tuned kernels are off (option tuned)");
    } else {
        return true;
    }
    return false;
}

// The table of an open device: NULL where its driver does not build those kernels, else the better
// one where the device has shown that it may be taken.
static const gpu_tuned *tuned_of_open(gpu_self *self) {
    const gpu_driver *driver = self->driver;
    const gpu_tuned *t = self->tuned;
    const gpu_tuned *better = NULL;
    if (t == NULL || (driver->has_tuned != NULL &&
                      !driver->has_tuned(self->host, self->device, self->plain_reason,
                                         sizeof(self->plain_reason)))) {
        return NULL;
    }
    if (t->better != NULL) {
        better = t->better(self->host, driver, self->device, &self->facts);
    }
    return better == NULL ? t : better;
}

// The vendor's library of products, NULL and why not.
static const char *library_of(const gpu_backend *self, char *reason, size_t bytes) {
    reason[0] = '\0';
    return self->driver->products == NULL
               ? NULL
               : self->driver->products(self->host, self->library, reason, bytes);
}

// Wide enough for the tiles of a large chip, small enough for its cache.
enum { LIBRARY_COLUMNS = 1024, LIBRARY_PART = 16 << 20 };

static int32_t library_rows(const pgd_host *host) {
    const char *text = host->option == NULL ? NULL : host->option(host, "library_rows");
    const long n = text == NULL ? 0 : strtol(text, NULL, 10);
    return n > 0 && n < INT32_MAX ? (int32_t)n : GPU_LIBRARY_ROWS;
}

static pgd_status info(void *backend, uint32_t i, pgd_device_info *out) {
    const gpu_backend *self = backend;
    char reason[96];
    const uint32_t floats = 1u << PGD_F32 | 1u << PGD_BF16 | 1u << PGD_F16;
    gpu_device_facts f;
    PGD_TRY(find(self, i, &f));
    pgd_device_info local = {
        .size = sizeof(local),
        .kind = (uint32_t)f.kind,
        .bytes = f.bytes,
        .bytes_per_s = f.bytes_per_s,
        .units = f.units,
        .numa = -1,
        .align = GPU_ALIGN,
        .caps = PGD_CAP_INVARIANT,
        .weight_dtypes = floats,
        .act_dtypes = floats,
        .kv_dtypes = floats,
        .act_dtype = PGD_F32,
        .residual_dtype = PGD_F32,
        .kv_dtype = PGD_BF16,
    };
    const gpu_tuned *tuned = tuned_of(self, &f, reason, sizeof(reason));
    if (tuned != NULL) {
        local.act_dtype = tuned->act_dtype;
        local.dot_dtype = tuned->dot_dtype;
    }
    if (library_of(self, reason, sizeof(reason)) != NULL) { // x is to be of a weight's type
        local.act_dtype = PGD_BF16;
        local.caps &= ~(uint32_t)PGD_CAP_INVARIANT;
    }
    snprintf(local.name, sizeof(local.name), "%s", f.name);
    snprintf(local.uri, sizeof(local.uri), "%s:%u", self->driver->kind, (unsigned)i);
    snprintf(local.pci, sizeof(local.pci), "%s", f.pci);
    snprintf(local.arch, sizeof(local.arch), "%s", f.arch);
    memcpy(local.uuid, f.uuid, sizeof(local.uuid));
    PGD_OUT(out, local);
    return PGD_OK;
}

static pgd_status device_open(void *backend, uint32_t i, const pgd_device *next, void **out_self) {
    const gpu_backend *b = backend;
    gpu_device_facts facts;
    gpu_self *self = NULL;
    (void)next;
    *out_self = NULL;
    PGD_TRY(find(b, i, &facts));
    self = b->host->alloc(b->host, sizeof(*self), 0);
    if (self == NULL) {
        return PGD_HOST_FAIL(b->host, PGD_OUT_OF_MEMORY, "%s: no memory for a device",
                             b->driver->kind);
    }
    self->host = b->host;
    self->driver = b->driver;
    self->facts = facts;
    self->tuned = tuned_of(b, &facts, self->plain_reason, sizeof(self->plain_reason));
    self->library = library_of(b, self->library_reason, sizeof(self->library_reason));
    self->library_columns = LIBRARY_COLUMNS;
    self->library_part = LIBRARY_PART;
    self->library_rows = library_rows(b->host);
    pgd_status code = b->driver->open(b->host, b->library, i, &self->device);
    if (code != PGD_OK) {
        b->host->free(b->host, self);
        return code;
    }
    self->tuned = tuned_of_open(self);
    *out_self = self;
    return PGD_OK;
}

static void device_close(const pgd_device *d) {
    gpu_self *self = d->self;
    if (self != NULL) {
        self->driver->close(self->host, self->device);
        self->host->free(self->host, self);
    }
}

static pgd_status memory(const pgd_device *d, uint64_t *out_free, uint64_t *out_total) {
    const gpu_self *self = gpu_of(d);
    *out_free = *out_total = self->facts.bytes;
    return self->driver->memory == NULL
               ? PGD_OK
               : self->driver->memory(self->host, self->device, out_free, out_total);
}

static pgd_status status(const pgd_device *d) {
    const gpu_self *self = gpu_of(d);
    return self->driver->status == NULL ? PGD_OK : self->driver->status(self->host, self->device);
}

const pgd_device_table gpu_device_table = {
    .size = sizeof(pgd_device_table),
    .count = count,
    .info = info,
    .open = device_open,
    .close = device_close,
    .memory = memory,
    .support = gpu_support,
    .status = status,
};
