// The door of the CPU plugin: entry symbol, probe, open.
#include <stdio.h>
#include <string.h>

#include "library.h"

static const pgd_option options[] = {
    {.key = "isa",
     .type = "str",
     .value = "auto",
     .help = "instruction set of the kernels: auto, scalar, avx2, avx512, avx512_bf16 or amx"},
    {.key = "act",
     .type = "str",
     .value = "auto",
     .help =
         "activations in products with bf16 weights: f32, rounded to bf16 (bf16), or auto: bf16 "
         "where the processor's own dot products of bf16 are faster than f32"},
    {.key = "attn",
     .type = "str",
     .value = "f32",
     .help =
         "attention over a bf16 cache: f32, or with q and the weights of V rounded to bf16 (bf16)"},
    {.key = "deterministic",
     .type = "bool",
     .value = "on",
     .help = "off: f32 products of many rows may be made by OpenBLAS, whose sums depend on the "
             "number of rows"},
    {.key = "nodes",
     .type = "int",
     .value = "0",
     .help = "NUMA nodes that weights are placed on: 0 = those the workers are on, 1 = not placed, "
             "more: as if the workers were spread over so many"},
};

static pgd_status fail_isa(const pgd_host *host, const char *isa) {
    char names[96] = "auto";
    size_t n = strlen(names);
    for (const char *const *at = pgd_cpu_isas; *at != NULL; at++) {
        if (pgd_cpu_pick(*at) != NULL && n < sizeof(names)) {
            n += (size_t)snprintf(names + n, sizeof(names) - n, ", %s", *at);
        }
    }
    return PGD_HOST_FAIL(host, PGD_INVALID, "cpu: option isa is '%s', this machine has %s", isa,
                         names);
}

static pgd_status pick(const pgd_host *host, const pgd_cpu_kernels **out) {
    const char *isa = host->option == NULL ? NULL : host->option(host, "isa");
    *out = pgd_cpu_pick(isa);
    if (*out == NULL) {
        return fail_isa(host, isa);
    }
    return PGD_OK;
}

static pgd_status read_act(const pgd_host *host, const pgd_cpu_kernels *k, int32_t *out_dot_dtype) {
    const char *act = host->option == NULL ? NULL : host->option(host, "act");
    *out_dot_dtype = PGD_DTYPE_NONE;
    if (act == NULL || strcmp(act, "auto") == 0) {
        *out_dot_dtype = pgd_cpu_dot_pays(k) ? PGD_BF16 : PGD_DTYPE_NONE;
    } else if (strcmp(act, "bf16") == 0) {
        *out_dot_dtype = PGD_BF16;
    } else if (strcmp(act, "f32") != 0) {
        return PGD_HOST_FAIL(host, PGD_INVALID,
                             "cpu: option act is '%s', it may be auto, f32 or bf16", act);
    }
    return PGD_OK;
}

// What attention rounds q and the weights of V to, over a cache of bf16.
static pgd_status read_attn(const pgd_host *host, int32_t *out_dtype) {
    const char *attn = host->option == NULL ? NULL : host->option(host, "attn");
    *out_dtype = PGD_DTYPE_NONE;
    if (attn != NULL && strcmp(attn, "bf16") == 0) {
        *out_dtype = PGD_BF16;
    } else if (attn != NULL && strcmp(attn, "f32") != 0) {
        return PGD_HOST_FAIL(host, PGD_INVALID, "cpu: option attn is '%s', it may be f32 or bf16",
                             attn);
    }
    return PGD_OK;
}

static pgd_status probe(const pgd_host *host, pgd_probe *out) {
    const pgd_probe local = {.size = sizeof(local), .n_devices = 1, .score = 1};
    (void)host;
    PGD_OUT(out, local);
    return PGD_OK;
}

static const void *extension(void *backend, const char *name) {
    (void)backend;
    if (strcmp(name, PGD_YARDSTICKS_EXTENSION) == 0) {
        return &cpu_yardsticks_table;
    }
    return strcmp(name, PGD_LIMITS_EXTENSION) == 0 ? &cpu_limits_table : NULL;
}

static pgd_status plugin_open(const pgd_host *host, void **out_backend, pgd_tables *out) {
    const pgd_tables local = {
        .size = sizeof(local),
        .device = &cpu_device_table,
        .memory = &cpu_memory_table,
        .queue = &cpu_queue_table,
        .weight = &cpu_weight_table,
        .kv = &cpu_kv_table,
        .ops = &cpu_ops,
        .graph = &cpu_graph_table,
        .extension = extension,
    };
    const pgd_cpu_kernels *kernels = NULL;
    cpu_backend *self = NULL;
    *out_backend = NULL;
    int32_t dot_dtype = PGD_DTYPE_NONE;
    int32_t attn_dtype = PGD_DTYPE_NONE;
    PGD_TRY(pick(host, &kernels));
    PGD_TRY(read_act(host, kernels, &dot_dtype));
    PGD_TRY(read_attn(host, &attn_dtype));
    self = host->alloc(host, sizeof(*self), 0);
    if (self == NULL) {
        return PGD_HOST_FAIL(host, PGD_OUT_OF_MEMORY, "cpu: no memory for the backend");
    }
    self->host = host;
    self->kernels = kernels;
    self->dot_dtype = dot_dtype;
    self->attn_dtype = attn_dtype;
    self->blas = cpu_blas_wanted(host, kernels->isa);
    cpu_nodes_find(host, &self->nodes);
    self->bytes_per_s = cpu_bandwidth(host, kernels);
    *out_backend = self;
    PGD_OUT(out, local);
    return PGD_OK;
}

static void plugin_close(void *backend) {
    if (backend != NULL) {
        const pgd_host *host = ((cpu_backend *)backend)->host;
        host->free(host, ((cpu_backend *)backend)->limits_room);
        host->free(host, backend);
    }
}

static const pgd_plugin plugin = {
    .size = sizeof(plugin),
    .abi_minor = PGD_ABI_MINOR,
    .min_host_minor = 1,
    .role = PGD_ROLE_BACKEND,
    .n_options = sizeof(options) / sizeof(options[0]),
    .option_stride = sizeof(options[0]),
    .abi_hash = PGD_ABI_HASH,
    .name = "cpu",
    .vendor = "pagoda",
    .version = "0.1.0",
    .build = __VERSION__,
    .options = options,
    .probe = probe,
    .open = plugin_open,
    .close = plugin_close,
};

PGD_PLUGIN_DEFINE(cpu) {
    (void)host_minor;
    return &plugin;
}
