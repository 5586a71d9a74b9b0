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

static pgd_status open_backend(pgd_dev_level *level) {
    const pgd_plugin *plugin = level->plugin;
    pgd_tables tables = {.size = sizeof(tables)};
    pgd_dev_listen();
    pgd_status code = plugin->open(&level->host->host, &level->backend, &tables);
    if (code != PGD_OK) {
        level->backend = NULL;
        return pgd_dev_note(code, plugin->name, "open its backend");
    }
    level->has_backend = 1;
    level->extension = tables.extension;
    pgd_dev_merge(&tables, &level->tables);
    return PGD_OK;
}

// Asks the backend for the device of that number.
static pgd_status find_device(pgd_dev *dev, uint32_t index) {
    uint32_t n = 0;
    const pgd_dev_level *level = &dev->levels[0];
    const char *kind = dev->plugin->name;
    PGD_TRY(pgd_dev_merge_check(kind, &level->tables));
    pgd_dev_listen();
    pgd_status code = level->tables.device.count(level->backend, &n);
    if (code != PGD_OK) {
        return pgd_dev_note(code, kind, "count its devices");
    }
    if (index >= n) {
        return pgd_fail(PGD_NOT_FOUND, "there is no device %s:%u; plugin '%s' has %u", kind, index,
                        kind, n);
    }
    dev->info.size = sizeof(dev->info);
    code = level->tables.device.info(level->backend, index, &dev->info);
    if (code != PGD_OK) {
        return pgd_dev_note(code, kind, "describe a device");
    }
    snprintf(dev->uri, sizeof(dev->uri), "%.24s:%u", kind, index);
    snprintf(dev->info.uri, sizeof(dev->info.uri), "%.31s", dev->uri);
    return PGD_OK;
}

static void point_at(pgd_device *device, const pgd_dev_tables *tables) {
    device->device = &tables->device;
    device->memory = &tables->memory;
    device->queue = &tables->queue;
    device->weight = &tables->weight;
    device->kv = &tables->kv;
    device->ops = &tables->ops;
    device->graph = &tables->graph;
}

// Opens the device at one level; next is the level under it.
static pgd_status open_level(pgd_dev_level *level, uint32_t index, const pgd_device *next) {
    level->device =
        (pgd_device){.size = sizeof(level->device), .host = &level->host->host, .next = next};
    point_at(&level->device, &level->tables);
    if (level->tables.device.open != NULL) {
        pgd_dev_listen();
        pgd_status code =
            level->tables.device.open(level->backend, index, next, &level->device.self);
        if (code != PGD_OK) {
            return pgd_dev_note(code, level->plugin->name, "open a device");
        }
    }
    level->is_open = 1;
    return PGD_OK;
}

static pgd_status open_layer(pgd_dev_level *level, uint32_t index, const pgd_device *next,
                             const pgd_dev_tables *under) {
    PGD_TRY(open_backend(level));
    pgd_dev_pass(under, &level->tables);
    return open_level(level, index, next);
}

// The level of the filler: it takes the place of the highest level below it, with full tables.
static void wire(pgd_dev *dev) {
    const pgd_dev_level *under = &dev->levels[dev->n_below - 1];
    dev->native = under->tables;
    dev->device = under->device;
    point_at(&dev->device, &dev->merged);
    dev->top = &dev->device;
    dev->maps = dev->native.memory.map != NULL;
    pgd_dev_fill(dev);
    pgd_dev_settle(dev);
}

static pgd_status open_levels(pgd_dev *dev, uint32_t index) {
    PGD_TRY(probe(dev->plugin, dev->levels[0].host, &dev->score));
    PGD_TRY(open_backend(&dev->levels[0]));
    PGD_TRY(find_device(dev, index));
    PGD_TRY(open_level(&dev->levels[0], index, NULL));
    for (uint32_t i = 1; i < dev->n_below; i++) {
        const pgd_dev_level *under = &dev->levels[i - 1];
        PGD_TRY(open_layer(&dev->levels[i], index, &under->device, &under->tables));
    }
    wire(dev);
    const pgd_dev_tables *under = &dev->merged;
    for (uint32_t i = dev->n_below; i < dev->n_levels; i++) {
        PGD_TRY(open_layer(&dev->levels[i], index, dev->top, under));
        dev->top = &dev->levels[i].device;
        under = &dev->levels[i].tables;
    }
    return PGD_OK;
}

static int32_t is_top(const pgd_plugin *plugin) {
    return plugin->role == PGD_ROLE_LAYER && (plugin->flags & PGD_PLUGIN_TOP) != 0;
}

static pgd_status make_levels(pgd_dev *dev, const pgd_dev_part *parts, uint32_t n, pgd_team *team) {
    dev->levels = pgd_mem_alloc(n, sizeof(*dev->levels));
    if (dev->levels == NULL) {
        return PGD_MEM_FAIL("the levels of a device", n * sizeof(*dev->levels));
    }
    dev->n_levels = n;
    for (uint32_t i = 0; i < n; i++) {
        dev->levels[i].plugin = parts[i].plugin;
        if (!is_top(parts[i].plugin)) {
            if (dev->n_below < i) {
                return pgd_fail(PGD_INVALID,
                                "layer '%s' stands around '%s', which must be the outer one: it "
                                "sees what the model asks for",
                                parts[i].plugin->name, parts[i - 1].plugin->name);
            }
            dev->n_below++;
        }
        PGD_TRY(pgd_dev_host_create(pgd_str_of(parts[i].plugin->name), parts[i].options, team,
                                    &dev->levels[i].host));
        PGD_TRY(pgd_dev_host_check(dev->levels[i].host, parts[i].plugin));
    }
    return PGD_OK;
}

// "trace(check(cpu:0))"
static void name_device(pgd_dev *dev) {
    char inner[sizeof(dev->uri)];
    for (uint32_t i = 1; i < dev->n_levels; i++) {
        memcpy(inner, dev->uri, sizeof(inner));
        snprintf(dev->uri, sizeof(dev->uri), "%.24s(%.130s)", dev->levels[i].plugin->name, inner);
    }
}

pgd_status pgd_dev_open_parts(const pgd_dev_part *parts, uint32_t n, uint32_t index, pgd_team *team,
                              uint32_t allow_slow, pgd_dev **out) {
    *out = NULL;
    pgd_dev *dev = pgd_mem_alloc(1, sizeof(*dev));
    if (dev == NULL) {
        return PGD_MEM_FAIL("a device", sizeof(*dev));
    }
    dev->plugin = parts[0].plugin;
    dev->allow_slow = allow_slow;
    pgd_status code = make_levels(dev, parts, n, team);
    if (code == PGD_OK) {
        code = open_levels(dev, index);
    }
    if (code != PGD_OK) {
        pgd_dev_close(dev);
        return code;
    }
    name_device(dev);
    *out = dev;
    return PGD_OK;
}

pgd_status pgd_dev_open_plugin(const pgd_plugin *plugin, pgd_str options, uint32_t index,
                               pgd_team *team, uint32_t allow_slow, pgd_dev **out) {
    const pgd_dev_part part = {.plugin = plugin, .options = options};
    return pgd_dev_open_parts(&part, 1, index, team, allow_slow, out);
}

static void close_level(pgd_dev_level *level) {
    if (level->is_open && level->tables.device.close != NULL) {
        level->tables.device.close(&level->device);
    }
    if (level->has_backend) {
        level->plugin->close(level->backend);
    }
    pgd_dev_host_destroy(level->host);
}

void pgd_dev_close(pgd_dev *dev) {
    if (dev == NULL) {
        return;
    }
    for (uint32_t i = dev->n_levels; i > dev->n_below; i--) {
        close_level(&dev->levels[i - 1]);
    }
    pgd_dev_mirrors_destroy(dev);
    for (uint32_t i = dev->n_below; i > 0; i--) {
        close_level(&dev->levels[i - 1]);
    }
    pgd_mem_free(dev->levels);
    pgd_mem_free(dev);
}

const pgd_device *pgd_dev_device(const pgd_dev *dev) {
    return dev->top;
}

const pgd_device_info *pgd_dev_info(const pgd_dev *dev) {
    return &dev->info;
}

const char *pgd_dev_uri(const pgd_dev *dev) {
    return dev->uri;
}

const void *pgd_dev_extension(const pgd_dev *dev, const char *name) {
    const pgd_dev_level *level = &dev->levels[0];
    return dev->n_levels == 1 && level->extension != NULL ? level->extension(level->backend, name)
                                                          : NULL;
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

// "cpu, null, ...": the kinds of usable plugins of a role, behind `first`.
static pgd_str list_kinds(const pgd_dev_registry *r, int32_t role, const char *first, char *text,
                          size_t cap) {
    size_t used = (size_t)snprintf(text, cap, "%s", first);
    for (uint32_t i = 0; i < pgd_dev_registry_count(r); i++) {
        const pgd_dev_manifest *m = pgd_dev_registry_get(r, i);
        if (m->unusable != NULL || m->role != role) {
            continue;
        }
        int n = snprintf(text + used, cap - used, "%s%s", used == 0 ? "" : ", ", m->kind);
        used += n > 0 ? (size_t)n : 0;
        used = used < cap ? used : cap - 1;
    }
    return pgd_str_of(text);
}

// A plugin that does not even say its kind may be the one that was meant.
static pgd_status unknown_kind(const pgd_dev_registry *r, const char *uri) {
    char kinds[400];
    const pgd_dev_manifest *nameless = NULL;
    pgd_str list = list_kinds(r, PGD_ROLE_BACKEND, "", kinds, sizeof(kinds));
    for (uint32_t i = 0; i < pgd_dev_registry_count(r) && nameless == NULL; i++) {
        const pgd_dev_manifest *m = pgd_dev_registry_get(r, i);
        nameless = m->kind[0] == '\0' && m->unusable != NULL ? m : NULL;
    }
    return pgd_fail(PGD_INVALID, "device '%s': there is no such kind; %s%s%s%s%s%s", uri,
                    list.len == 0 ? "no plugin was found" : "there are auto, ", kinds,
                    nameless != NULL ? "; plugin " : "", nameless != NULL ? nameless->path : "",
                    nameless != NULL ? " is unusable: " : "",
                    nameless != NULL ? nameless->unusable : "");
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

// The backend that the name asks for: its manifest, and the name cut into parts. chosen[cap] holds
// the name that auto, pci or uuid came to.
static pgd_status find_backend(pgd_dev_registry *r, const char *uri, char *chosen, size_t cap,
                               pgd_dev_uri_parts *parts, const pgd_dev_manifest **out) {
    char why[240];
    PGD_TRY(pgd_dev_uri_parse(uri, parts));
    pgd_str options = parts->options;
    if (pgd_str_is(parts->kind, "auto")) {
        if (parts->has_index) {
            return pgd_fail(PGD_INVALID, "device '%s': auto takes no number", uri);
        }
        PGD_TRY(pgd_dev_auto(r, chosen, cap));
    } else if (parts->by != PGD_DEV_BY_KIND) {
        PGD_TRY(pgd_dev_find_chip(r, uri, parts, chosen, cap));
    }
    if (chosen[0] != '\0') {
        PGD_TRY(pgd_dev_uri_parse(chosen, parts));
        parts->options = options;
    }
    const pgd_dev_manifest *m = find(r, parts->kind);
    if (m == NULL) {
        return unknown_kind(r, uri);
    }
    if (m->unusable == NULL && m->role != PGD_ROLE_BACKEND) {
        return pgd_fail(PGD_INVALID,
                        "device '%s': '%s' is a layer, not a device; it is written around one, for "
                        "example %s(cpu)",
                        uri, m->kind, m->kind);
    }
    if (m->unusable == NULL && pgd_dev_is_absent(r, m, why, sizeof(why))) {
        return pgd_fail(PGD_NOT_FOUND, "device '%s': %s (plugin %s)", uri, why, m->path);
    }
    *out = m;
    return PGD_OK;
}

static pgd_status find_layer(pgd_dev_registry *r, const char *uri, const pgd_dev_uri_layer *layer,
                             pgd_dev_part *out) {
    char kinds[400];
    const pgd_dev_manifest *m = find(r, layer->kind);
    out->options = layer->options;
    if (m != NULL && (m->unusable != NULL || m->role == PGD_ROLE_LAYER)) {
        return pgd_dev_load(m, &out->plugin);
    }
    pgd_str list = list_kinds(r, PGD_ROLE_LAYER, "", kinds, sizeof(kinds));
    return pgd_fail(PGD_INVALID, "device '%s': %s'%.*s'%s; %s%s", uri,
                    m == NULL ? "there is no layer " : "", (int)layer->kind.len, layer->kind.ptr,
                    m == NULL ? "" : " is a device, not a layer",
                    list.len == 0 ? "no layer was found" : "layers are ", kinds);
}

// A device's name with everything found that it speaks of.
typedef struct found {
    pgd_dev_part parts[1 + PGD_DEV_MAX_LAYERS];
    uint32_t n_layers;
    uint32_t index;
    pgd_str options;           // of the device
    const pgd_dev_manifest *m; // of the backend
    pgd_text device;           // the device's own name; owned
    char chosen[48];
} found;

// Of two plugins of one kind the first is used; when that fails, who else there was helps.
static pgd_status note_other(const pgd_dev_registry *r, const pgd_dev_manifest *m,
                             pgd_status status) {
    for (uint32_t i = 0; status != PGD_OK && i < pgd_dev_registry_count(r); i++) {
        const pgd_dev_manifest *other = pgd_dev_registry_get(r, i);
        if (other != m && strcmp(other->kind, m->kind) == 0) {
            return pgd_fail_note(status, "while %s is of kind '%s' too; remove one of the two",
                                 other->path, m->kind);
        }
    }
    return status;
}

static pgd_status find_all(pgd_dev_registry *r, const char *uri, found *f) {
    pgd_dev_uri_layer layers[PGD_DEV_MAX_LAYERS];
    pgd_dev_uri_parts name = {0};
    pgd_str device = {0};
    PGD_TRY(pgd_dev_uri_layers(uri, layers, &f->n_layers, &device));
    PGD_TRY(pgd_text_reserve(&f->device, 1));
    PGD_TRY(pgd_text_add_str(&f->device, device));
    for (uint32_t i = 0; i < f->n_layers; i++) { // the outermost is written first
        PGD_TRY(find_layer(r, uri, &layers[i], &f->parts[f->n_layers - i]));
    }
    PGD_TRY(find_backend(r, f->device.ptr, f->chosen, sizeof(f->chosen), &name, &f->m));
    f->index = name.index;
    f->options = name.options;
    return note_other(r, f->m, pgd_dev_load(f->m, &f->parts[0].plugin));
}

// The levels are made as for opening, which reads the options, and nothing is opened.
static pgd_status check_options(const pgd_dev_part *parts, uint32_t n) {
    pgd_dev *dev = pgd_mem_alloc(1, sizeof(*dev));
    if (dev == NULL) {
        return PGD_MEM_FAIL("a device", sizeof(*dev));
    }
    dev->plugin = parts[0].plugin;
    const pgd_status status = make_levels(dev, parts, n, NULL);
    pgd_dev_close(dev);
    return status;
}

pgd_status pgd_dev_check(pgd_dev_registry *r, const char *uri) {
    found f = {0};
    pgd_status status = find_all(r, uri, &f);
    if (status == PGD_OK) {
        f.parts[0].options = f.options;
        status = check_options(f.parts, 1 + f.n_layers);
    }
    pgd_text_free(&f.device);
    return status;
}

pgd_status pgd_dev_open(pgd_dev_registry *r, const pgd_dev_desc *desc, pgd_dev **out) {
    found f = {0};
    pgd_text all = {0};
    *out = NULL;
    pgd_status status = find_all(r, desc->uri, &f);
    if (status == PGD_OK) {
        status = add_options(desc, f.m, f.options, &all);
    }
    if (status == PGD_OK) {
        f.parts[0].options = pgd_text_view(&all);
        status =
            pgd_dev_open_parts(f.parts, 1 + f.n_layers, f.index, desc->team, desc->allow_slow, out);
    }
    pgd_text_free(&all);
    pgd_text_free(&f.device);
    return status;
}
