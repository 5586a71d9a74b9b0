// Loading a plugin's library: dlopen, the entry symbol, and every check before anything of it is
// used. A library that fails a check stays mapped and unused.
//
//   path (absolute, from the manifest) -> entry symbol -> size, hash, minors -> manifest's truth
#include "dev/inner.h"

#include <inttypes.h>
#include <string.h>

#include "base/fail.h"
#include "os/dl.h"

static pgd_status check_versions(const pgd_plugin *p, const char *where) {
    if (p->size < sizeof(pgd_plugin)) {
        return pgd_fail(PGD_INCOMPATIBLE,
                        "plugin %s: its description has %" PRIu32 " bytes, this host needs %zu",
                        where, p->size, sizeof(pgd_plugin));
    }
    if (p->min_host_minor > PGD_ABI_MINOR) {
        return pgd_fail(PGD_INCOMPATIBLE,
                        "plugin %s needs a host of interface %d.%" PRIu32 " or later, this host "
                        "has %d.%d",
                        where, PGD_ABI_MAJOR, p->min_host_minor, PGD_ABI_MAJOR, PGD_ABI_MINOR);
    }
    if (p->abi_hash != PGD_ABI_HASH) {
        return pgd_fail(PGD_INCOMPATIBLE,
                        "plugin %s was built with headers of layout %016" PRIx64 " (interface "
                        "%d.%" PRIu32 "), this host has layout %016" PRIx64 " (interface %d.%d)",
                        where, p->abi_hash, PGD_ABI_MAJOR, p->abi_minor, (uint64_t)PGD_ABI_HASH,
                        PGD_ABI_MAJOR, PGD_ABI_MINOR);
    }
    return PGD_OK;
}

pgd_status pgd_dev_load_check(const pgd_plugin *p, const char *where) {
    if (p == NULL) {
        return pgd_fail(PGD_INCOMPATIBLE, "plugin %s does not run on a host of interface %d.%d",
                        where, PGD_ABI_MAJOR, PGD_ABI_MINOR);
    }
    PGD_TRY(check_versions(p, where));
    if (p->name == NULL || p->probe == NULL || p->open == NULL || p->close == NULL) {
        return pgd_fail(PGD_INVALID, "plugin %s leaves its name, probe, open or close empty",
                        where);
    }
    if (p->n_options > 0 && (p->options == NULL || p->option_stride < sizeof(pgd_option))) {
        return pgd_fail(PGD_INVALID,
                        "plugin %s declares %" PRIu32 " options of %" PRIu32 " bytes, at least "
                        "%zu are needed",
                        where, p->n_options, p->option_stride, sizeof(pgd_option));
    }
    return PGD_OK;
}

static pgd_status check_truth(const pgd_plugin *p, const pgd_dev_manifest *m) {
    if (strcmp(p->name, m->kind) != 0) {
        return pgd_fail(PGD_INVALID, "plugin %s calls itself '%s', but its manifest says '%s'",
                        m->path, p->name, m->kind);
    }
    if (p->role != (uint32_t)m->role) {
        return pgd_fail(PGD_INVALID, "plugin %s has role %" PRIu32 ", but its manifest says %d",
                        m->path, p->role, m->role);
    }
    if (p->abi_minor != m->abi_minor || p->min_host_minor != m->min_host_minor) {
        return pgd_fail(PGD_INVALID,
                        "plugin %s was built with interface %d.%" PRIu32 " and needs %d.%" PRIu32
                        ", but its manifest says %d.%" PRIu32 " and %d.%" PRIu32,
                        m->path, PGD_ABI_MAJOR, p->abi_minor, PGD_ABI_MAJOR, p->min_host_minor,
                        PGD_ABI_MAJOR, m->abi_minor, PGD_ABI_MAJOR, m->min_host_minor);
    }
    return PGD_OK;
}

pgd_status pgd_dev_load(const pgd_dev_manifest *m, const pgd_plugin **out) {
    char why[400] = "";
    void *lib = NULL;
    void *symbol = NULL;
    *out = NULL;
    if (m->unusable != NULL) {
        return pgd_fail(PGD_UNAVAILABLE, "plugin %s: %s", m->path, m->unusable);
    }
    PGD_TRY(pgd_dev_check_sha256(m));
    pgd_status code = pgd_os_dl_open(m->path, &lib, why, sizeof(why));
    if (code != PGD_OK) {
        return pgd_fail(code, "plugin %s cannot be loaded: %s", m->path,
                        why[0] == '\0' ? "the path is not absolute" : why);
    }
    if (pgd_os_dl_symbol(lib, PGD_PLUGIN_ENTRY, &symbol) != PGD_OK) {
        return pgd_fail(PGD_INCOMPATIBLE,
                        "plugin %s has no symbol %s: it is no plugin, or one for another major "
                        "version than %d",
                        m->path, PGD_PLUGIN_ENTRY, PGD_ABI_MAJOR);
    }
    pgd_plugin_entry entry = NULL;
    memcpy(&entry, &symbol, sizeof(entry)); // ISO C has no cast from void * to a function
    const pgd_plugin *p = entry(PGD_ABI_MINOR);
    PGD_TRY(pgd_dev_load_check(p, m->path));
    PGD_TRY(check_truth(p, m));
    *out = p;
    return PGD_OK;
}

void pgd_dev_listen(void) {
    pgd_fail_set(PGD_OK, "");
}

pgd_status pgd_dev_note(pgd_status code, const char *kind, const char *doing) {
    return pgd_fail_note(code, "while plugin '%s' was to %s", kind, doing);
}
