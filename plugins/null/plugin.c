// The null device: entry, options, device table.
#include "null.h"

#include <stdlib.h>
#include <string.h>

#define DEFAULT_BYTES (UINT64_C(4) << 30)

static pgd_status device_count(void *backend, uint32_t *out_n) {
    (void)backend;
    *out_n = 1;
    return PGD_OK;
}

static pgd_status device_info(void *backend, uint32_t i, pgd_device_info *out) {
    const uint32_t dtypes = 1u << PGD_F32 | 1u << PGD_BF16 | 1u << PGD_F16;
    const null_backend *self = backend;
    pgd_device_info local = {
        .size = sizeof(local),
        .kind = PGD_DEVICE_OTHER,
        .name = "Null device (computes nothing)",
        .bytes = self->bytes,
        .units = 1,
        .numa = -1,
        .align = 64,
        .caps = PGD_CAP_HOST_VISIBLE | PGD_CAP_INVARIANT,
        .weight_dtypes = dtypes,
        .act_dtypes = dtypes,
        .kv_dtypes = dtypes,
        .act_dtype = PGD_BF16,
        .residual_dtype = PGD_BF16,
        .kv_dtype = PGD_BF16,
    };
    (void)i;
    PGD_OUT(out, local);
    return PGD_OK;
}

static pgd_status device_open(void *backend, uint32_t i, const pgd_device *next, void **out_self) {
    (void)i;
    (void)next;
    *out_self = backend;
    return PGD_OK;
}

static void device_close(const pgd_device *d) {
    (void)d;
}

static pgd_status device_memory(const pgd_device *d, uint64_t *out_free, uint64_t *out_total) {
    const null_backend *self = null_of(d);
    *out_free = self->bytes - self->used;
    *out_total = self->bytes;
    return PGD_OK;
}

static pgd_status device_support(const pgd_device *d, const pgd_query *query, pgd_support *out) {
    pgd_support local = {
        .size = sizeof(local),
        .level = PGD_LEVEL_NATIVE,
        .flags = PGD_SUPPORT_INVARIANT,
        .kernel = "null",
    };
    (void)query;
    local.est_ns = null_of(d)->step_ns;
    PGD_OUT(out, local);
    return PGD_OK;
}

// ---- options -----------------------------------------------------------------------------------

static const pgd_option options[] = {
    {"step_us", "us", "0", "how long a step takes, in microseconds"},
    {"tokens", "str", "words",
     "words: ids from the middle half of the vocabulary; hash: any id; zero: always 0"},
    {"memory", "bytes", "4GiB", "size of the device's memory, for example 80GiB"},
};

// "4096", "512MiB", "4GiB", "4G", "80GB". 0 = not a size.
static uint64_t parse_bytes(const char *text) {
    static const struct {
        const char *unit;
        uint64_t factor;
    } units[] = {
        {"", 1},
        {"B", 1},
        {"KiB", UINT64_C(1) << 10},
        {"K", UINT64_C(1) << 10},
        {"MiB", UINT64_C(1) << 20},
        {"M", UINT64_C(1) << 20},
        {"GiB", UINT64_C(1) << 30},
        {"G", UINT64_C(1) << 30},
        {"TiB", UINT64_C(1) << 40},
        {"T", UINT64_C(1) << 40},
        {"KB", UINT64_C(1000)},
        {"MB", UINT64_C(1000000)},
        {"GB", UINT64_C(1000000000)},
        {"TB", UINT64_C(1000000000000)},
    };
    char *end = NULL;
    uint64_t n = strtoull(text, &end, 10);
    for (size_t i = 0; end != text && i < sizeof(units) / sizeof(units[0]); i++) {
        if (strcmp(end, units[i].unit) == 0 && n <= (UINT64_C(1) << 50) / units[i].factor) {
            return n * units[i].factor;
        }
    }
    return 0;
}

static pgd_status read_options(const pgd_host *host, null_backend *self) {
    const char *step = host->option(host, "step_us");
    const char *tokens = host->option(host, "tokens");
    const char *memory = host->option(host, "memory");
    self->bytes = memory == NULL ? DEFAULT_BYTES : parse_bytes(memory);
    if (self->bytes == 0) {
        return PGD_HOST_FAIL(host, PGD_INVALID,
                             "option memory of the null device is '%s'; a size up to 1024TiB with "
                             "a unit is allowed, for example 80GiB",
                             memory == NULL ? "" : memory);
    }
    uint64_t step_us = step == NULL ? 0 : strtoull(step, NULL, 10);
    if (step_us > UINT64_C(3600000000)) {
        return PGD_HOST_FAIL(host, PGD_INVALID,
                             "option step_us of the null device is '%s'; allowed is 0 to "
                             "3600000000 (an hour)",
                             step);
    }
    self->step_ns = step_us * 1000;
    if (tokens == NULL || strcmp(tokens, "words") == 0) {
        self->tokens = TOKENS_WORDS;
    } else if (strcmp(tokens, "hash") == 0) {
        self->tokens = TOKENS_HASH;
    } else if (strcmp(tokens, "zero") == 0) {
        self->tokens = TOKENS_ZERO;
    } else {
        return PGD_HOST_FAIL(host, PGD_INVALID,
                             "option tokens of the null device is '%s'; allowed: words, hash, zero",
                             tokens);
    }
    return PGD_OK;
}

// ---- entry -------------------------------------------------------------------------------------

static pgd_status plugin_probe(const pgd_host *host, pgd_probe *out) {
    pgd_probe local = {.size = sizeof(local), .n_devices = 1};
    (void)host;
    PGD_OUT(out, local);
    return PGD_OK;
}

static pgd_status plugin_open(const pgd_host *host, void **out_backend, pgd_tables *out) {
    static const pgd_device_table device = {
        .size = sizeof(device),
        .count = device_count,
        .info = device_info,
        .open = device_open,
        .close = device_close,
        .memory = device_memory,
        .support = device_support,
    };
    pgd_tables local = {
        .size = sizeof(local),
        .device = &device,
        .memory = null_memory(),
        .queue = null_queue(),
        .weight = null_weight(),
        .kv = null_kv(),
        .ops = null_ops(),
    };
    *out_backend = NULL;
    null_backend *self = host->alloc(host, sizeof(*self), 0);
    if (self == NULL) {
        return PGD_HOST_FAIL(host, PGD_OUT_OF_MEMORY, "no memory for the null device");
    }
    self->host = host;
    pgd_status code = read_options(host, self);
    if (code != PGD_OK) {
        host->free(host, self);
        return code;
    }
    *out_backend = self;
    PGD_OUT(out, local);
    return PGD_OK;
}

static void plugin_close(void *backend) {
    null_backend *self = backend;
    self->host->free(self->host, self);
}

PGD_PLUGIN_DEFINE(null) {
    static const pgd_plugin plugin = {
        .size = sizeof(plugin),
        .abi_minor = PGD_ABI_MINOR,
        .min_host_minor = 1,
        .role = PGD_ROLE_BACKEND,
        .n_options = sizeof(options) / sizeof(options[0]),
        .option_stride = sizeof(options[0]),
        .abi_hash = PGD_ABI_HASH,
        .name = "null",
        .vendor = "pagoda",
        .version = "0.1.0",
        .build = "",
        .options = options,
        .probe = plugin_probe,
        .open = plugin_open,
        .close = plugin_close,
    };
    (void)host_minor;
    return &plugin;
}
