// Every device that could be used, with the reason against those that cannot, and the choice of
// "auto": the most memory bandwidth among the usable ones. The null device is never chosen.
#include "dev/inner.h"

#include <stdio.h>
#include <string.h>

#include "base/fail.h"
#include "base/mem.h"

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
static pgd_status look(list *l, const pgd_dev_manifest *m) {
    const pgd_plugin *plugin = NULL;
    pgd_status code = pgd_dev_load(m, &plugin);
    if (code != PGD_OK) {
        return append_refused(l, m, pgd_fail_text(code));
    }
    for (uint32_t i = 0; i < 65536; i++) {
        pgd_dev *dev = NULL;
        code = pgd_dev_open_plugin(plugin, (pgd_str){0}, i, NULL, 1, &dev);
        if (code == PGD_OUT_OF_MEMORY) {
            return code;
        }
        if (code != PGD_OK) {
            // The first index behind the last device ends the walk.
            return i > 0 && code == PGD_NOT_FOUND ? PGD_OK
                                                  : append_refused(l, m, pgd_fail_text(code));
        }
        pgd_dev_candidate c = {.manifest = m, .info = *pgd_dev_info(dev), .usable = 1};
        snprintf(c.reason, sizeof(c.reason), "usable");
        pgd_dev_close(dev);
        PGD_TRY(append(l, &c));
    }
    return PGD_OK;
}

pgd_status pgd_dev_candidates(pgd_dev_registry *r, pgd_dev_candidate **out, uint32_t *out_n) {
    list l = {0};
    *out = NULL;
    *out_n = 0;
    for (uint32_t i = 0; i < pgd_dev_registry_count(r); i++) {
        const pgd_dev_manifest *m = pgd_dev_registry_get(r, i);
        pgd_status code = PGD_OK;
        if (m->unusable != NULL) {
            code = append_refused(&l, m, m->unusable);
        } else if (m->role != PGD_ROLE_BACKEND) {
            code = append_refused(&l, m, "a layer, not a device");
        } else {
            code = look(&l, m);
        }
        if (code != PGD_OK) {
            pgd_dev_candidates_free(l.items);
            return code;
        }
    }
    *out = l.items;
    *out_n = l.n;
    return PGD_OK;
}

void pgd_dev_candidates_free(pgd_dev_candidate *items) {
    pgd_mem_free(items);
}

pgd_status pgd_dev_auto(pgd_dev_registry *r, char *text, size_t cap) {
    pgd_dev_candidate *items = NULL;
    uint32_t n = 0;
    PGD_TRY(pgd_dev_candidates(r, &items, &n));
    const pgd_dev_candidate *best = NULL;
    char reasons[800] = "";
    size_t used = 0;
    for (uint32_t i = 0; i < n; i++) {
        const pgd_dev_candidate *c = &items[i];
        if (c->usable && strcmp(c->manifest->kind, "null") != 0) {
            if (best == NULL || c->info.bytes_per_s > best->info.bytes_per_s) {
                best = c;
            }
            continue;
        }
        int k = snprintf(reasons + used, sizeof(reasons) - used, "; %s: %s",
                         c->manifest->kind[0] == '\0' ? c->manifest->path : c->manifest->kind,
                         c->usable ? "computes nothing" : c->reason);
        used += k > 0 ? (size_t)k : 0;
        used = used < sizeof(reasons) ? used : sizeof(reasons) - 1;
    }
    if (best != NULL) {
        snprintf(text, cap, "%s", best->info.uri);
    }
    int32_t found = best != NULL;
    pgd_dev_candidates_free(items);
    if (!found) {
        return pgd_fail(PGD_NOT_FOUND, "auto finds no usable device among %u candidates%s", n,
                        reasons);
    }
    return PGD_OK;
}
