// The device: the processor as one device, its name and its memory.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/sysinfo.h>
#include <unistd.h>

#include "cpu.h"

// Copies what follows ": " in the first line of a file that begins with key.
static void read_line(const char *path, const char *key, char *out, size_t out_bytes) {
    char line[256];
    FILE *f = fopen(path, "re");
    out[0] = '\0';
    if (f == NULL) {
        return;
    }
    while (fgets(line, sizeof(line), f) != NULL) {
        const char *value = strchr(line, ':');
        if (strncmp(line, key, strlen(key)) != 0 || value == NULL) {
            continue;
        }
        value += 1 + strspn(value + 1, " \t");
        snprintf(out, out_bytes, "%.*s", (int)strcspn(value, "\n"), value);
        break;
    }
    fclose(f);
}

// Bytes in a file that holds one number; UINT64_MAX when there is no limit in it.
static uint64_t read_number(const char *path) {
    char line[64];
    char *end = NULL;
    unsigned long long n = 0;
    FILE *f = fopen(path, "re");
    if (f == NULL) {
        return UINT64_MAX;
    }
    if (fgets(line, sizeof(line), f) == NULL) {
        line[0] = '\0';
    }
    fclose(f);
    n = strtoull(line, &end, 10);
    return end == line ? UINT64_MAX : (uint64_t)n;
}

static uint64_t memory_total(void) {
    struct sysinfo s;
    uint64_t total = sysinfo(&s) == 0 ? (uint64_t)s.totalram * s.mem_unit : 0;
    uint64_t limit = read_number("/sys/fs/cgroup/memory.max");
    return limit < total ? limit : total;
}

static uint64_t memory_free(uint64_t total) {
    char text[64];
    uint64_t used = read_number("/sys/fs/cgroup/memory.current");
    uint64_t limit = read_number("/sys/fs/cgroup/memory.max");
    uint64_t free_bytes = 0;
    read_line("/proc/meminfo", "MemAvailable", text, sizeof(text));
    free_bytes = (uint64_t)strtoull(text, NULL, 10) * 1024;
    if (limit != UINT64_MAX && used != UINT64_MAX) {
        uint64_t left = used < limit ? limit - used : 0;
        free_bytes = left < free_bytes ? left : free_bytes;
    }
    return free_bytes < total ? free_bytes : total;
}

static pgd_status count(void *backend, uint32_t *out_n) {
    (void)backend;
    *out_n = 1;
    return PGD_OK;
}

static pgd_status info(void *backend, uint32_t i, pgd_device_info *out) {
    const cpu_backend *self = backend;
    const uint32_t floats = 1u << PGD_F32 | 1u << PGD_BF16 | 1u << PGD_F16;
    pgd_device_info local = {
        .size = sizeof(local),
        .kind = PGD_DEVICE_CPU,
        .uri = "cpu:0",
        .bytes = memory_total(),
        .bytes_per_s = self->bytes_per_s,
        .numa = -1,
        .align = CPU_ALIGN,
        .caps = PGD_CAP_HOST_VISIBLE | (self->blas == NULL ? PGD_CAP_INVARIANT : 0u),
        .weight_dtypes = floats,
        .act_dtypes = 1u << PGD_F32,
        .kv_dtypes = floats | 1u << PGD_I8,
        .act_dtype = PGD_F32,
        .residual_dtype = PGD_F32,
        .kv_dtype = PGD_BF16,
        .dot_dtype = self->dot_dtype,
    };
    if (i != 0) {
        return PGD_HOST_FAIL(self->host, PGD_NOT_FOUND, "cpu: there is one device, cpu:0");
    }
    local.units = self->host->team_size(self->host);
    read_line("/proc/cpuinfo", "model name", local.name, sizeof(local.name));
    if (local.name[0] == '\0') {
        snprintf(local.name, sizeof(local.name), "processor");
    }
    snprintf(local.arch, sizeof(local.arch), "%s", self->kernels->isa);
    PGD_OUT(out, local);
    return PGD_OK;
}

static pgd_status device_open(void *backend, uint32_t i, const pgd_device *next, void **out_self) {
    const cpu_backend *self = backend;
    (void)next;
    *out_self = NULL;
    if (i != 0) {
        return PGD_HOST_FAIL(self->host, PGD_NOT_FOUND, "cpu: there is one device, cpu:0");
    }
    *out_self = backend;
    return PGD_OK;
}

static void device_close(const pgd_device *d) {
    (void)d;
}

static pgd_status memory(const pgd_device *d, uint64_t *out_free, uint64_t *out_total) {
    (void)d;
    *out_total = memory_total();
    *out_free = memory_free(*out_total);
    return PGD_OK;
}

static pgd_status status(const pgd_device *d) {
    (void)d;
    return PGD_OK;
}

const pgd_device_table cpu_device_table = {
    .size = sizeof(pgd_device_table),
    .count = count,
    .info = info,
    .open = device_open,
    .close = device_close,
    .memory = memory,
    .support = cpu_support,
    .status = status,
};
