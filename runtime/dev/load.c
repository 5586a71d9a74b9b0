// Loading a plugin's library: dlopen, the entry symbol, and every check before anything of it is
// used. A library that fails a check stays mapped and unused.
//
//   path (absolute, from the manifest) -> entry symbol -> size, minors, hash -> manifest's truth
#include "dev/inner.h"

#include <inttypes.h>
#include <string.h>

#include "base/fail.h"
#include "dev/minors.h"
#include "os/dl.h"

// Bytes that a description and a row of options had in interface 0.1; both only grow.
#define PLUGIN_BYTES (offsetof(pgd_plugin, close) + sizeof(((pgd_plugin *)0)->close))
#define OPTION_BYTES (offsetof(pgd_option, help) + sizeof(((pgd_option *)0)->help))

// The layout that headers of this minor have; 0 for a minor that never was.
static uint64_t layout_of(uint32_t minor) {
    if (minor == PGD_ABI_MINOR) {
        return PGD_ABI_HASH;
    }
    switch (minor) {
#define KEPT(number, hash) \
    case number: return hash;
        PGD_DEV_MINORS(KEPT)
#undef KEPT
    default: return 0;
    }
}

// A minor up to this host's must have the layout of that minor; a later one is the plugin's word,
// given by min_host_minor, that it runs here too.
static pgd_status check_versions(const pgd_plugin *p, const char *where) {
    if (p->size < PLUGIN_BYTES) {
        return pgd_fail(PGD_INCOMPATIBLE,
                        "plugin %s: its description has %" PRIu32 " bytes, the smallest there ever "
                        "was has %zu; it must set size = sizeof(pgd_plugin)",
                        where, p->size, PLUGIN_BYTES);
    }
    if (p->min_host_minor > PGD_ABI_MINOR) {
        return pgd_fail(PGD_INCOMPATIBLE,
                        "plugin %s needs a host of interface %d.%" PRIu32 " or later, this host "
                        "has %d.%d; take a newer pagoda or an older build of the plugin",
                        where, PGD_ABI_MAJOR, p->min_host_minor, PGD_ABI_MAJOR, PGD_ABI_MINOR);
    }
    if (p->abi_minor <= PGD_ABI_MINOR && p->abi_hash != layout_of(p->abi_minor)) {
        return pgd_fail(PGD_INCOMPATIBLE,
                        "plugin %s was built with headers of layout %016" PRIx64 " and says that "
                        "this is interface %d.%" PRIu32 ", whose layout is %016" PRIx64 "; build "
                        "it with the headers of a released pagoda-sdk",
                        where, p->abi_hash, PGD_ABI_MAJOR, p->abi_minor, layout_of(p->abi_minor));
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
    if (p->n_options > 0 && (p->options == NULL || p->option_stride < OPTION_BYTES)) {
        return pgd_fail(PGD_INVALID,
                        "plugin %s declares %" PRIu32 " options of %" PRIu32 " bytes, at least "
                        "%zu are needed",
                        where, p->n_options, p->option_stride, OPTION_BYTES);
    }
    return PGD_OK;
}

// A library that is not what its manifest says: the manifest is corrected, or the file beside it.
#define CORRECT "; correct the manifest, or put the library there that it describes"

static const char *role_name(uint32_t role) {
    return role == PGD_ROLE_BACKEND ? "backend" : role == PGD_ROLE_LAYER ? "layer" : "unknown";
}

static pgd_status check_truth(const pgd_plugin *p, const pgd_dev_manifest *m) {
    if (strcmp(p->name, m->kind) != 0) {
        return pgd_fail(PGD_INVALID,
                        "plugin %s calls itself '%s', but its manifest says kind '%s'" CORRECT,
                        m->path, p->name, m->kind);
    }
    if (p->version == NULL || strcmp(p->version, m->version) != 0) {
        return pgd_fail(PGD_INVALID,
                        "plugin %s is version '%s', but its manifest says '%s'" CORRECT, m->path,
                        p->version == NULL ? "" : p->version, m->version);
    }
    if (p->role != (uint32_t)m->role) {
        return pgd_fail(PGD_INVALID, "plugin %s has the role %s, but its manifest says %s" CORRECT,
                        m->path, role_name(p->role), role_name((uint32_t)m->role));
    }
    if (p->abi_minor != m->abi_minor || p->min_host_minor != m->min_host_minor) {
        return pgd_fail(PGD_INVALID,
                        "plugin %s was built with interface %d.%" PRIu32 " and needs %d.%" PRIu32
                        ", but its manifest says %d.%" PRIu32 " and %d.%" PRIu32 CORRECT,
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
