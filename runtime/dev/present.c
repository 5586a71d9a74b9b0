// What a manifest lets one know without opening its plugin: is there a chip for it, is its driver
// installed, is the library the one it was written for.
#include "dev/inner.h"

#include <stdio.h>
#include <string.h>

#include "base/digest.h"
#include "base/fail.h"
#include "os/dl.h"
#include "os/env.h"
#include "os/file.h"
#include "os/pci.h"

// "10de" or "*" against a number.
static int32_t is_number(pgd_str pattern, uint32_t value) {
    char text[9];
    int n = snprintf(text, sizeof(text), "%04x", value);
    if (pgd_str_is(pattern, "*")) {
        return 1;
    }
    int32_t same = pattern.len == (size_t)n;
    for (size_t i = 0; same && i < pattern.len; i++) {
        char c = pattern.ptr[i];
        same = (c >= 'A' && c <= 'F' ? (char)(c - 'A' + 'a') : c) == text[i];
    }
    return same;
}

// 1 when "pci:VENDOR:DEVICE" means the chip. Another kind of pattern may mean anything.
static int32_t is_match(const char *pattern, const pgd_os_pci_chip *chip) {
    pgd_str rest = {0};
    pgd_str device = {0};
    pgd_str scheme = pgd_str_cut(pgd_str_of(pattern), ':', &rest);
    pgd_str vendor = pgd_str_cut(rest, ':', &device);
    return !pgd_str_is(scheme, "pci") ||
           (is_number(vendor, chip->vendor) && is_number(device, chip->device));
}

typedef struct search {
    const pgd_dev_manifest *m;
    const pgd_dev_pci *at; // NULL = anywhere
    int32_t found;
    int32_t seen; // a chip at the address
} search;

static int32_t visit(void *arg, const pgd_os_pci_chip *chip) {
    search *s = arg;
    pgd_dev_pci pci;
    if (s->at != NULL &&
        (!pgd_dev_uri_pci(pgd_str_of(chip->address), &pci) || !pgd_dev_uri_same_pci(&pci, s->at))) {
        return 0;
    }
    s->seen = 1;
    for (uint32_t i = 0; i < s->m->n_matches && !s->found; i++) {
        s->found = is_match(s->m->matches[i], chip);
    }
    return s->found;
}

int32_t pgd_dev_may_drive(const pgd_dev_registry *r, const pgd_dev_manifest *m,
                          const pgd_dev_pci *pci) {
    search s = {.m = m, .at = pci};
    if (m->n_matches == 0) {
        return !m->drives_no_pci;
    }
    // A system that does not list its chips rules out nothing.
    return pgd_os_pci_list(pgd_dev_registry_root(r), visit, &s) != PGD_OK || s.found || !s.seen;
}

// A need is a library, or several of which one is enough: "libx.so.2|libx.so.1".
static int32_t is_met(const char *root, const char *need) {
    char name[256];
    while (*need != '\0') {
        const size_t n = strcspn(need, "|");
        if (n < sizeof(name)) {
            memcpy(name, need, n);
            name[n] = '\0';
            if (n > 0 && pgd_os_dl_is_installed(root, name)) {
                return 1;
            }
        }
        need += n + (need[n] == '|');
    }
    return 0;
}

int32_t pgd_dev_is_absent(const pgd_dev_registry *r, const pgd_dev_manifest *m, char *reason,
                          size_t cap) {
    const char *root = pgd_dev_registry_root(r);
    search s = {.m = m};
    reason[0] = '\0';
    if (m->n_matches > 0 && pgd_os_pci_list(root, visit, &s) == PGD_OK && !s.found) {
        (void)snprintf(reason, cap, "no such chip: there is none that matches %s%s", m->matches[0],
                       m->n_matches > 1 ? " or the others its manifest lists" : "");
        return 1;
    }
    for (uint32_t i = 0; i < m->n_needs; i++) {
        const char *need = m->needs[i];
        const size_t n = strcspn(need, "|");
        if (!is_met(root, need)) {
            (void)snprintf(reason, cap, "driver not installed: %.*s is not found%s", (int)n, need,
                           need[n] == '|' ? ", nor another that its manifest lists" : "");
            return 1;
        }
    }
    return 0;
}

pgd_status pgd_dev_check_sha256(const pgd_dev_manifest *m) {
    char found[PGD_SHA256_HEX + 1] = "";
    pgd_os_map map = {0};
    if (m->sha256 == NULL) {
        return PGD_OK;
    }
    pgd_status code = pgd_os_map_file(m->path, &map);
    if (code != PGD_OK) {
        char text[128];
        return pgd_fail(code, "plugin %s cannot be read: %s", m->path,
                        pgd_os_error_text(pgd_os_last_error(), text, sizeof(text)));
    }
    const pgd_str body = {map.ptr != NULL ? map.ptr : "", (size_t)map.bytes};
    code = pgd_sha256_hex((pgd_str){"", 0}, body, found);
    pgd_os_unmap(&map);
    if (code == PGD_OK && strcmp(found, m->sha256) != 0) {
        return pgd_fail(PGD_DATA_LOSS,
                        "plugin %s is not the library its manifest was written for: its sha256 is "
                        "%s, the manifest says %s; install the two from one package again",
                        m->path, found, m->sha256);
    }
    return code;
}
