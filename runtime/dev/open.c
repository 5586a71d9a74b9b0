// Opening a device: name -> manifest -> library -> probe -> open -> merged and filled tables.
#include "dev/inner.h"

#include <stdio.h>
#include <string.h>

#include "base/fail.h"
#include "base/mem.h"

static pgd_status probe(const pgd_plugin *plugin, const pgd_dev_host *host, int32_t *out_score) {
    pgd_probe p = {.size = sizeof(p)};
    pgd_dev_listen();
    pgd_status code = plugin->probe(&host->host, &p);
    if (code != PGD_OK) {
        return pgd_dev_note(code, plugin->name, "look for devices");
    }
    p.reason[sizeof(p.reason) - 1] = '\0';
    if (p.n_devices == 0) {
        return pgd_fail(PGD_NOT_FOUND, "plugin '%s' has no device: %s", plugin->name,
                        p.reason[0] == '\0' ? "it gives no reason" : p.reason);
    }
    *out_score = p.score;
    return PGD_OK;
}

static pgd_status open_backend(pgd_dev *dev) {
    const pgd_plugin *plugin = dev->plugin;
    pgd_tables tables = {.size = sizeof(tables)};
    pgd_dev_listen();
    pgd_status code = plugin->open(&dev->host->host, &dev->backend, &tables);
    if (code != PGD_OK) {
        dev->backend = NULL;
        return pgd_dev_note(code, plugin->name, "open its backend");
    }
    dev->has_backend = 1;
    dev->extension = tables.extension;
    pgd_dev_merge(&tables, &dev->native);
    return pgd_dev_merge_check(plugin->name, &dev->native);
}

static pgd_status open_device(pgd_dev *dev, uint32_t index) {
    uint32_t n = 0;
    const char *kind = dev->plugin->name;
    pgd_dev_listen();
    pgd_status code = dev->native.device.count(dev->backend, &n);
    if (code != PGD_OK) {
        return pgd_dev_note(code, kind, "count its devices");
    }
    if (index >= n) {
        return pgd_fail(PGD_NOT_FOUND, "there is no device %s:%u; plugin '%s' has %u", kind, index,
                        kind, n);
    }
    dev->info.size = sizeof(dev->info);
    code = dev->native.device.info(dev->backend, index, &dev->info);
    if (code != PGD_OK) {
        return pgd_dev_note(code, kind, "describe a device");
    }
    snprintf(dev->uri, sizeof(dev->uri), "%s:%u", kind, index);
    snprintf(dev->info.uri, sizeof(dev->info.uri), "%.31s", dev->uri);
    code = dev->native.device.open(dev->backend, index, NULL, &dev->device.self);
    if (code != PGD_OK) {
        return pgd_dev_note(code, kind, "open a device");
    }
    dev->is_open = 1;
    return PGD_OK;
}

// The merged level: every table pointer leads to the host's own full-size tables.
static void wire(pgd_dev *dev) {
    dev->device.size = sizeof(dev->device);
    dev->device.host = &dev->host->host;
    dev->device.device = &dev->merged.device;
    dev->device.memory = &dev->merged.memory;
    dev->device.queue = &dev->merged.queue;
    dev->device.weight = &dev->merged.weight;
    dev->device.kv = &dev->merged.kv;
    dev->device.ops = &dev->merged.ops;
    dev->device.graph = &dev->merged.graph;
    dev->maps = dev->native.memory.map != NULL;
    pgd_dev_fill(dev);
    pgd_dev_settle(dev);
}

pgd_status pgd_dev_open_plugin(const pgd_plugin *plugin, pgd_str options, uint32_t index,
                               pgd_team *team, uint32_t allow_slow, pgd_dev **out) {
    *out = NULL;
    pgd_dev *dev = pgd_mem_alloc(1, sizeof(*dev));
    if (dev == NULL) {
        return PGD_MEM_FAIL("a device", sizeof(*dev));
    }
    dev->plugin = plugin;
    dev->allow_slow = allow_slow;
    pgd_status code = pgd_dev_host_create(pgd_str_of(plugin->name), options, team, &dev->host);
    if (code == PGD_OK) {
        code = pgd_dev_host_check(dev->host, plugin);
    }
    if (code == PGD_OK) {
        code = probe(plugin, dev->host, &dev->score);
    }
    if (code == PGD_OK) {
        code = open_backend(dev);
    }
    if (code == PGD_OK) {
        code = open_device(dev, index);
    }
    if (code != PGD_OK) {
        pgd_dev_close(dev);
        return code;
    }
    wire(dev);
    *out = dev;
    return PGD_OK;
}

void pgd_dev_close(pgd_dev *dev) {
    if (dev == NULL) {
        return;
    }
    pgd_dev_mirrors_destroy(dev);
    if (dev->is_open) {
        dev->native.device.close(&dev->device);
    }
    if (dev->has_backend) {
        dev->plugin->close(dev->backend);
    }
    pgd_dev_host_destroy(dev->host);
    pgd_mem_free(dev);
}

const pgd_device *pgd_dev_device(const pgd_dev *dev) {
    return &dev->device;
}

const pgd_device_info *pgd_dev_info(const pgd_dev *dev) {
    return &dev->info;
}

const char *pgd_dev_uri(const pgd_dev *dev) {
    return dev->uri;
}

const void *pgd_dev_extension(const pgd_dev *dev, const char *name) {
    return dev->extension != NULL ? dev->extension(dev->backend, name) : NULL;
}

// ---- by name -----------------------------------------------------------------------------------

static int32_t answers_to(const pgd_dev_manifest *m, pgd_str kind) {
    if (pgd_str_is(kind, m->kind)) {
        return 1;
    }
    for (uint32_t i = 0; i < m->n_aliases; i++) {
        if (pgd_str_is(kind, m->aliases[i])) {
            return 1;
        }
    }
    return 0;
}

// Usable plugins first, so that a broken one of the same kind elsewhere does not stand in the way.
static const pgd_dev_manifest *find(const pgd_dev_registry *r, pgd_str kind) {
    const pgd_dev_manifest *broken = NULL;
    for (uint32_t i = 0; i < pgd_dev_registry_count(r); i++) {
        const pgd_dev_manifest *m = pgd_dev_registry_get(r, i);
        if (!answers_to(m, kind)) {
            continue;
        }
        if (m->unusable == NULL) {
            return m;
        }
        broken = broken == NULL ? m : broken;
    }
    return broken;
}

static pgd_status unknown_kind(const pgd_dev_registry *r, const char *uri) {
    char kinds[400] = "";
    size_t used = 0;
    for (uint32_t i = 0; i < pgd_dev_registry_count(r); i++) {
        const pgd_dev_manifest *m = pgd_dev_registry_get(r, i);
        if (m->unusable != NULL || m->role != PGD_ROLE_BACKEND) {
            continue;
        }
        int n =
            snprintf(kinds + used, sizeof(kinds) - used, "%s%s", used == 0 ? "" : ", ", m->kind);
        used += n > 0 ? (size_t)n : 0;
        used = used < sizeof(kinds) ? used : sizeof(kinds) - 1;
    }
    return pgd_fail(PGD_INVALID, "device '%s': there is no such kind; %s%s", uri,
                    used == 0 ? "no plugin was found" : "there are auto, ", kinds);
}

#define DETERMINISTIC "deterministic"

static int32_t has_option(const pgd_dev_manifest *m, const char *key) {
    for (uint32_t i = 0; i < m->n_options; i++) {
        if (strcmp(m->options[i].key, key) == 0) {
            return 1;
        }
    }
    return 0;
}

static int32_t is_set(pgd_str options, const char *key) {
    while (options.len > 0) {
        pgd_str value = {0};
        pgd_str item = pgd_str_cut(options, ';', &options);
        if (pgd_str_is(pgd_str_trim(pgd_str_cut(item, '=', &value)), key)) {
            return 1;
        }
    }
    return 0;
}

// The URI's options and what the desc says beside them.
static pgd_status add_options(const pgd_dev_desc *desc, const pgd_dev_manifest *m, pgd_str options,
                              pgd_text *out) {
    PGD_TRY(pgd_text_add_str(out, options));
    if (desc->no_deterministic && has_option(m, DETERMINISTIC) && !is_set(options, DETERMINISTIC)) {
        PGD_TRY(pgd_text_format(out, "%s" DETERMINISTIC "=off", out->len > 0 ? ";" : ""));
    }
    return PGD_OK;
}

// Of two plugins of one kind the first is used; when that fails, who else there was helps.
static pgd_status note_other(const pgd_dev_registry *r, const pgd_dev_manifest *m,
                             pgd_status status) {
    for (uint32_t i = 0; i < pgd_dev_registry_count(r); i++) {
        const pgd_dev_manifest *other = pgd_dev_registry_get(r, i);
        if (other != m && strcmp(other->kind, m->kind) == 0) {
            return pgd_fail_note(status, "while %s is of kind '%s' too; remove one of the two",
                                 other->path, m->kind);
        }
    }
    return status;
}

pgd_status pgd_dev_open(pgd_dev_registry *r, const pgd_dev_desc *desc, pgd_dev **out) {
    pgd_dev_uri_parts parts = {0};
    char chosen[48] = "";
    char why[240];
    *out = NULL;
    PGD_TRY(pgd_dev_uri_parse(desc->uri, &parts));
    pgd_str options = parts.options;
    if (pgd_str_is(parts.kind, "auto")) {
        if (parts.has_index) {
            return pgd_fail(PGD_INVALID, "device '%s': auto takes no number", desc->uri);
        }
        PGD_TRY(pgd_dev_auto(r, chosen, sizeof(chosen)));
    } else if (parts.by != PGD_DEV_BY_KIND) {
        PGD_TRY(pgd_dev_find_chip(r, desc->uri, &parts, chosen, sizeof(chosen)));
    }
    if (chosen[0] != '\0') {
        PGD_TRY(pgd_dev_uri_parse(chosen, &parts));
    }
    const pgd_dev_manifest *m = find(r, parts.kind);
    if (m == NULL) {
        return unknown_kind(r, desc->uri);
    }
    if (m->unusable == NULL && m->role != PGD_ROLE_BACKEND) {
        return pgd_fail(PGD_INVALID, "device '%s': '%s' is a layer, not a device", desc->uri,
                        m->kind);
    }
    if (m->unusable == NULL && pgd_dev_is_absent(r, m, why, sizeof(why))) {
        return pgd_fail(PGD_NOT_FOUND, "device '%s': %s (plugin %s)", desc->uri, why, m->path);
    }
    const pgd_plugin *plugin = NULL;
    pgd_text all = {0};
    pgd_status status = pgd_dev_load(m, &plugin);
    if (status == PGD_OK) {
        status = add_options(desc, m, options, &all);
    }
    if (status == PGD_OK) {
        status = pgd_dev_open_plugin(plugin, pgd_text_view(&all), parts.index, desc->team,
                                     desc->allow_slow, out);
    }
    pgd_text_free(&all);
    return status == PGD_OK ? status : note_other(r, m, status);
}
