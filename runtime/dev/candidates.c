// Every device that could be used, with the reason against those that cannot, and the choices made
// among them: "auto", pci:... and uuid:... .
//
//   manifests -> absent? (nothing opened) -> plugin opened -> devices -> one of each chip
#include "dev/inner.h"

#include <stdio.h>
#include <string.h>

#include "base/fail.h"
#include "base/mem.h"

#define MAX_DEVICES 65536u

typedef struct list {
    pgd_dev_candidate *items;
    uint32_t n;
    uint32_t reserved0;
} list;

static pgd_status append(list *l, const pgd_dev_candidate *c) {
    pgd_dev_candidate *grown = pgd_mem_realloc(l->items, (size_t)l->n + 1, sizeof(*grown));
    if (grown == NULL) {
        return PGD_MEM_FAIL("the list of devices", ((size_t)l->n + 1) * sizeof(*grown));
    }
    grown[l->n] = *c;
    l->items = grown;
    l->n++;
    return PGD_OK;
}

static pgd_status append_refused(list *l, const pgd_dev_manifest *m, const char *why) {
    pgd_dev_candidate c = {.manifest = m};
    snprintf(c.reason, sizeof(c.reason), "%s", why);
    return append(l, &c);
}

// Opens device after device of one plugin; each that opens is usable.
static pgd_status look(list *l, const pgd_dev_manifest *m, pgd_team *team) {
    const pgd_plugin *plugin = NULL;
    pgd_status code = pgd_dev_load(m, &plugin);
    if (code != PGD_OK) {
        return append_refused(l, m, pgd_fail_text(code));
    }
    for (uint32_t i = 0; i < MAX_DEVICES; i++) {
        pgd_dev *dev = NULL;
        code = pgd_dev_open_plugin(plugin, (pgd_str){0}, i, team, 1, &dev);
        if (code == PGD_OUT_OF_MEMORY) {
            return code;
        }
        if (code != PGD_OK) {
            // The first index behind the last device ends the walk.
            return i > 0 && code == PGD_NOT_FOUND ? PGD_OK
                                                  : append_refused(l, m, pgd_fail_text(code));
        }
        pgd_dev_candidate c = {
            .manifest = m, .info = *pgd_dev_info(dev), .usable = 1, .score = dev->score};
        snprintf(c.reason, sizeof(c.reason), "usable");
        pgd_dev_close(dev);
        PGD_TRY(append(l, &c));
    }
    return PGD_OK;
}

// ---- one of each chip --------------------------------------------------------------------------

static int32_t has_uuid(const pgd_device_info *info) {
    static const uint8_t none[16];
    return memcmp(info->uuid, none, sizeof(none)) != 0;
}

// Devices of one plugin are never the same: parts of one chip share its address.
static int32_t is_same_chip(const pgd_dev_candidate *a, const pgd_dev_candidate *b) {
    pgd_dev_pci at;
    pgd_dev_pci bt;
    if (a->manifest == b->manifest) {
        return 0;
    }
    if (has_uuid(&a->info) && memcmp(a->info.uuid, b->info.uuid, sizeof(a->info.uuid)) == 0) {
        return 1;
    }
    return pgd_dev_uri_pci(pgd_str_of(a->info.pci), &at) &&
           pgd_dev_uri_pci(pgd_str_of(b->info.pci), &bt) && pgd_dev_uri_same_pci(&at, &bt);
}

static void merge_chips(list *l) {
    for (uint32_t i = 0; i < l->n; i++) {
        for (uint32_t k = i + 1; k < l->n && l->items[i].usable; k++) {
            pgd_dev_candidate *a = &l->items[i];
            pgd_dev_candidate *b = &l->items[k];
            if (!b->usable || !is_same_chip(a, b)) {
                continue;
            }
            pgd_dev_candidate *kept = b->score > a->score ? b : a;
            pgd_dev_candidate *other = kept == a ? b : a;
            other->usable = 0;
            snprintf(
                other->reason, sizeof(other->reason),
                "the same chip as %s%s%s, which is taken: its plugin's score is %d, this one's "
                "%d; %s by name works",
                kept->info.uri, kept->info.pci[0] != '\0' ? " at " : "", kept->info.pci,
                kept->score, other->score, other->info.uri);
        }
    }
}

// ---- lists -------------------------------------------------------------------------------------

// 0 when the name asked for cannot be one of the plugin's devices.
static int32_t may_be(const pgd_dev_registry *r, const pgd_dev_manifest *m,
                      const pgd_dev_uri_parts *only) {
    if (only == NULL) {
        return 1;
    }
    return only->by == PGD_DEV_BY_PCI ? pgd_dev_may_drive(r, m, &only->pci) : !m->drives_no_pci;
}

// only: a pci or uuid name; NULL = all.
static pgd_status collect(pgd_dev_registry *r, const pgd_dev_uri_parts *only, list *l) {
    char why[sizeof(((pgd_dev_candidate *)0)->reason)];
    pgd_status code = PGD_OK;
    for (uint32_t i = 0; i < pgd_dev_registry_count(r) && code == PGD_OK; i++) {
        const pgd_dev_manifest *m = pgd_dev_registry_get(r, i);
        if (m->unusable != NULL) {
            code = append_refused(l, m, m->unusable);
        } else if (m->role != PGD_ROLE_BACKEND) {
            code = append_refused(l, m, "a layer, not a device: it is written around one");
        } else if (pgd_dev_is_absent(r, m, why, sizeof(why))) {
            code = append_refused(l, m, why);
        } else if (may_be(r, m, only)) {
            code = look(l, m, pgd_dev_registry_team(r));
        }
    }
    if (code != PGD_OK) {
        pgd_dev_candidates_free(l->items);
        *l = (list){0};
        return code;
    }
    merge_chips(l);
    return PGD_OK;
}

pgd_status pgd_dev_candidates(pgd_dev_registry *r, pgd_dev_candidate **out, uint32_t *out_n) {
    list l = {0};
    pgd_status code = collect(r, NULL, &l);
    *out = l.items;
    *out_n = l.n;
    return code;
}

void pgd_dev_candidates_free(pgd_dev_candidate *items) {
    pgd_mem_free(items);
}

// Moves candidate `from` to place `to` before it; the order of the others stays.
static void move_up(pgd_dev_candidate *items, uint32_t from, uint32_t to) {
    const pgd_dev_candidate c = items[from];
    memmove(&items[to + 1], &items[to], (from - to) * sizeof(*items));
    items[to] = c;
}

pgd_status pgd_dev_auto_order(pgd_dev_registry *r, pgd_dev_candidate **out, uint32_t *out_n,
                              uint32_t *out_usable) {
    uint32_t n = 0;
    *out_usable = 0;
    PGD_TRY(pgd_dev_candidates(r, out, out_n));
    pgd_dev_candidate *items = *out;
    for (uint32_t i = 0; i < *out_n; i++) {
        if (items[i].usable && strcmp(items[i].manifest->kind, "null") == 0) {
            items[i].usable = 0;
            snprintf(items[i].reason, sizeof(items[i].reason), "computes nothing");
        }
        if (!items[i].usable) {
            continue;
        }
        uint32_t at = n;
        while (at > 0 && items[at - 1].info.bytes_per_s < items[i].info.bytes_per_s) {
            at--;
        }
        move_up(items, i, at);
        n++;
    }
    *out_usable = n;
    return PGD_OK;
}

// ---- choices -----------------------------------------------------------------------------------

// The device's own name within layers, up to its options: "auto" of "trace(auto{key=value})".
static pgd_str innermost(const char *uri) {
    pgd_dev_uri_layer layers[PGD_DEV_MAX_LAYERS];
    pgd_str name = {0};
    uint32_t n = 0;
    if (pgd_dev_uri_layers(uri, layers, &n, &name) != PGD_OK) {
        return (pgd_str){0};
    }
    const char *brace = memchr(name.ptr, '{', name.len);
    name.len = brace != NULL ? (size_t)(brace - name.ptr) : name.len;
    return pgd_str_trim(name);
}

int32_t pgd_dev_is_auto(const char *uri) {
    return uri == NULL || pgd_str_is(innermost(uri), "auto");
}

pgd_status pgd_dev_replace_auto(const char *uri, const char *name, pgd_text *out) {
    pgd_str kind = uri != NULL ? innermost(uri) : (pgd_str){0};
    if (uri == NULL || kind.ptr == NULL) {
        return pgd_text_format(out, "%s", name);
    }
    return pgd_text_format(out, "%.*s%s%s", (int)(kind.ptr - uri), uri, name, kind.ptr + kind.len);
}

// "; cpu: why; acme: why"
static void add_reasons(const pgd_dev_candidate *items, uint32_t n, char *out, size_t cap) {
    size_t used = 0;
    out[0] = '\0';
    for (uint32_t i = 0; i < n; i++) {
        const pgd_dev_candidate *c = &items[i];
        const char *name = c->info.uri[0] != '\0'         ? c->info.uri
                           : c->manifest->kind[0] != '\0' ? c->manifest->kind
                                                          : c->manifest->path;
        int k = c->usable && c->info.pci[0] != '\0'
                    ? snprintf(out + used, cap - used, "; %s: at %s", name, c->info.pci)
                    : snprintf(out + used, cap - used, "; %s: %s", name,
                               c->usable ? "without an address" : c->reason);
        used += k > 0 ? (size_t)k : 0;
        used = used < cap ? used : cap - 1;
    }
}

pgd_status pgd_dev_auto(pgd_dev_registry *r, char *text, size_t cap) {
    pgd_dev_candidate *items = NULL;
    uint32_t n = 0;
    uint32_t n_usable = 0;
    char reasons[800];
    PGD_TRY(pgd_dev_auto_order(r, &items, &n, &n_usable));
    if (n_usable > 0) {
        snprintf(text, cap, "%s", items[0].info.uri);
    }
    add_reasons(items, n, reasons, sizeof(reasons));
    pgd_dev_candidates_free(items);
    return n_usable > 0 ? PGD_OK
                        : pgd_fail(PGD_NOT_FOUND,
                                   "auto finds no usable device among %u candidates%s", n, reasons);
}

static int32_t is_chip(const pgd_dev_candidate *c, const pgd_dev_uri_parts *parts) {
    pgd_dev_pci pci;
    if (parts->by == PGD_DEV_BY_UUID) {
        return has_uuid(&c->info) && memcmp(c->info.uuid, parts->uuid, sizeof(parts->uuid)) == 0;
    }
    return pgd_dev_uri_pci(pgd_str_of(c->info.pci), &pci) &&
           pgd_dev_uri_same_pci(&pci, &parts->pci);
}

pgd_status pgd_dev_find_chip(pgd_dev_registry *r, const char *uri, const pgd_dev_uri_parts *parts,
                             char *text, size_t cap) {
    list l = {0};
    char reasons[800];
    int32_t found = 0;
    PGD_TRY(collect(r, parts, &l));
    for (uint32_t i = 0; i < l.n && !found; i++) {
        found = l.items[i].usable && is_chip(&l.items[i], parts);
        if (found) {
            snprintf(text, cap, "%s", l.items[i].info.uri);
        }
    }
    add_reasons(l.items, l.n, reasons, sizeof(reasons));
    pgd_dev_candidates_free(l.items);
    return found ? PGD_OK
                 : pgd_fail(PGD_NOT_FOUND, "device '%s': no usable device is that chip%s", uri,
                            reasons);
}
