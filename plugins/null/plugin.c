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
    {"token_us", "us", "0", "how long each row of a step takes, in microseconds"},
    {"tokens", "str", "words",
     "words: ids from the middle half of the vocabulary; hash: any id; zero: always 0; 5,7,9: "
     "these "
     "ids in turn, then the last one for ever"},
    {"nan_after", "int", "-1", "behind this token id the logits are not numbers"},
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

static pgd_status read_us(const pgd_host *host, const char *key, uint64_t *out_ns) {
    const char *text = host->option(host, key);
    uint64_t us = text == NULL ? 0 : strtoull(text, NULL, 10);
    if (us > UINT64_C(3600000000)) {
        return PGD_HOST_FAIL(host, PGD_INVALID,
                             "option %s of the null device is '%s'; allowed is 0 to 3600000000 (an "
                             "hour)",
                             key, text);
    }
    *out_ns = us * 1000;
    return PGD_OK;
}

// "5,7,9" into self->script.
static pgd_status read_script(const pgd_host *host, null_backend *self, const char *text) {
    self->script = host->alloc(host, (NULL_SCRIPT_MAX + NULL_SLOTS) * sizeof(int32_t), 0);
    if (self->script == NULL) {
        return PGD_HOST_FAIL(host, PGD_OUT_OF_MEMORY, "no memory for a script of tokens");
    }
    self->script_at = self->script + NULL_SCRIPT_MAX;
    memset(self->script_at, 0, NULL_SLOTS * sizeof(int32_t));
    const char *at = text;
    for (self->n_script = 0; self->n_script < NULL_SCRIPT_MAX;) {
        char *end = NULL;
        unsigned long id = strtoul(at, &end, 10);
        if (end == at || *at < '0' || *at > '9' || id > INT32_MAX) {
            break;
        }
        self->script[self->n_script++] = (int32_t)id;
        if (*end == '\0') {
            self->tokens = TOKENS_SCRIPT;
            return PGD_OK;
        }
        at = end + (*end == ',');
    }
    return PGD_HOST_FAIL(host, PGD_INVALID,
                         "option tokens of the null device is '%.40s'; allowed: words, hash, zero, "
                         "up to %d ids with commas between them",
                         text, NULL_SCRIPT_MAX);
}

static pgd_status read_tokens(const pgd_host *host, null_backend *self) {
    static const char *const names[] = {"words", "hash", "zero"};
    const char *text = host->option(host, "tokens");
    const char *nan_after = host->option(host, "nan_after");
    self->nan_after = nan_after == NULL ? -1 : (int32_t)strtol(nan_after, NULL, 10);
    self->tokens = TOKENS_WORDS;
    for (int32_t i = 0; text != NULL && i < 3; i++) {
        if (strcmp(text, names[i]) == 0) {
            self->tokens = i;
            return PGD_OK;
        }
    }
    return text == NULL ? PGD_OK : read_script(host, self, text);
}

static pgd_status read_options(const pgd_host *host, null_backend *self) {
    const char *memory = host->option(host, "memory");
    self->bytes = memory == NULL ? DEFAULT_BYTES : parse_bytes(memory);
    if (self->bytes == 0) {
        return PGD_HOST_FAIL(host, PGD_INVALID,
                             "option memory of the null device is '%s'; a size up to 1024TiB with "
                             "a unit is allowed, for example 80GiB",
                             memory == NULL ? "" : memory);
    }
    PGD_TRY(read_us(host, "step_us", &self->step_ns));
    PGD_TRY(read_us(host, "token_us", &self->token_ns));
    return read_tokens(host, self);
}

static void free_backend(null_backend *self) {
    const pgd_host *host = self->host;
    host->free(host, self->script);
    host->free(host, self);
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
        free_backend(self);
        return code;
    }
    *out_backend = self;
    PGD_OUT(out, local);
    return PGD_OK;
}

static void plugin_close(void *backend) {
    free_backend(backend);
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
