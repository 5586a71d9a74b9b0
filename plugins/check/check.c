// The check layer: a host that breaks the contract is told so. Entry, and how it tells.
#include "check.h"

#include <stdarg.h>
#include <stdio.h>

pgd_status check_wrong(check_self *c, const char *fmt, ...) {
    char text[400];
    va_list args;
    va_start(args, fmt);
    (void)vsnprintf(text, sizeof(text), fmt, args);
    va_end(args);
    c->n_wrong++;
    c->host->log(c->host, PGD_LOG_ERROR, text);
    return c->stop ? PGD_HOST_FAIL(c->host, PGD_INVALID, "check: %s", text) : PGD_OK;
}

static const pgd_option options[] = {
    {"stop", "bool", "on",
     "on: a wrong call fails and is not made; off: it is told of in the log only"},
};

// Graphs are refused: each operation is looked at.
static pgd_status graph_begin(const pgd_device *d, pgd_queue *q, const pgd_graph_desc *desc) {
    (void)q;
    (void)desc;
    return PGD_HOST_FAIL(d->host, PGD_UNSUPPORTED, "the check layer looks at each operation");
}

static pgd_status plugin_open(const pgd_host *host, void **out_backend, pgd_tables *out) {
    static const pgd_device_table device = {.size = sizeof(device), .open = layer_open_device};
    static const pgd_graph_table graph = {.size = sizeof(graph), .begin = graph_begin};
    const pgd_tables local = {.size = sizeof(local),
                              .device = &device,
                              .memory = check_memory(),
                              .queue = check_queues(),
                              .weight = check_weight(),
                              .kv = check_kv(),
                              .ops = check_ops(),
                              .graph = &graph};
    *out_backend = NULL;
    check_self *c = host->alloc(host, sizeof(*c), 0);
    if (c == NULL) {
        return PGD_HOST_FAIL(host, PGD_OUT_OF_MEMORY, "no memory for the check layer");
    }
    c->host = host;
    c->handles.host = host;
    c->stop = layer_is_on(host, "stop", 1);
    atomic_flag_clear(&c->lock);
    *out_backend = c;
    PGD_OUT(out, local);
    return PGD_OK;
}

static void free_handles(check_self *c, int32_t *n) {
    for (uint32_t i = 0; i < c->handles.cap; i++) {
        check_handle *h = c->handles.values[i];
        if (h != NULL) {
            n[h->kind]++;
            if (h->kind == CHECK_QUEUE) {
                check_free_queue(c, (check_queue *)h);
            } else {
                c->host->free(c->host, h);
            }
        }
    }
}

static void plugin_close(void *backend) {
    check_self *c = backend;
    const pgd_host *host = c->host;
    int32_t n[CHECK_KINDS] = {0};
    free_handles(c, n);
    for (int32_t kind = 0; kind < CHECK_KINDS; kind++) {
        if (n[kind] > 0) {
            (void)check_wrong(c, "the device is closed and %d %s%s not destroyed", n[kind],
                              check_kind_name(kind), n[kind] == 1 ? " is" : "s are");
        }
    }
    layer_map_free(&c->handles);
    host->free(host, c);
}

PGD_PLUGIN_DEFINE(check) {
    static const pgd_plugin plugin = LAYER_PLUGIN("check", plugin_open, plugin_close);
    (void)host_minor;
    return &plugin;
}
