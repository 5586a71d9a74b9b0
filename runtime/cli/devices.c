// pagoda devices and pagoda plugins: what is there and why it is taken or refused.
#include <stdio.h>
#include <string.h>

#include "base/fail.h"
#include "base/json.h"
#include "cli/common.h"
#include "dev/dev.h"

typedef struct devices_values {
    int32_t explain;
    int32_t json;
    cli_list plugins;
} devices_values;

static devices_values values;

static const cli_flag devices_flags[] = {
    CLI_FLAG_SWITCH(0, "explain", &values.explain, "every candidate and the reason"),
    CLI_FLAG_LIST(0, "plugin", "PATH", &values.plugins, "one more plugin file; may be repeated"),
    CLI_FLAG_SWITCH(0, "json", &values.json, "print one JSON document"),
    {0},
};

static const cli_flag plugins_flags[] = {
    CLI_FLAG_LIST(0, "plugin", "PATH", &values.plugins, "one more plugin file; may be repeated"),
    CLI_FLAG_SWITCH(0, "json", &values.json, "print one JSON document"),
    {0},
};

static pgd_status open_registry(pgd_dev_registry **out) {
    const pgd_dev_search search = {.files = values.plugins.items, .n_files = values.plugins.n};
    return pgd_dev_registry_create(&search, out);
}

static pgd_status field(pgd_text *t, const char *key, const char *value) {
    PGD_TRY(pgd_text_format(t, "%s\"%s\":", t->ptr[t->len - 1] == '{' ? "" : ",", key));
    return pgd_json_add_str(t, pgd_str_of(value));
}

// ---- devices ---------------------------------------------------------------------------------

// "GPU-01234567-89ab-cdef-0123-456789abcdef", "" for none.
static void format_uuid(const uint8_t *uuid, char out[41]) {
    static const uint8_t none[16];
    size_t n = 4;
    if (memcmp(uuid, none, sizeof(none)) == 0) {
        out[0] = '\0';
        return;
    }
    memcpy(out, "GPU-", 5);
    for (int i = 0; i < 16; i++) {
        const char *dash = i == 4 || i == 6 || i == 8 || i == 10 ? "-" : "";
        n += (size_t)snprintf(out + n, 41 - n, "%s%02x", dash, uuid[i]);
    }
}

// The names of the chip itself, one a line.
static void print_chip(const pgd_device_info *info) {
    char uuid[41];
    format_uuid(info->uuid, uuid);
    if (info->pci[0] != '\0') {
        printf("           pci:%s\n", info->pci);
    }
    if (uuid[0] != '\0') {
        printf("           uuid:%s\n", uuid);
    }
}

static void print_device(const pgd_dev_candidate *c) {
    const char *uri = c->info.uri[0] != '\0' ? c->info.uri : c->manifest->kind;
    if (c->usable) {
        printf("%-10s %-44s %8.1f GiB  %s (%s %s)\n", uri, c->info.name,
               (double)c->info.bytes / (double)(1 << 30), c->info.arch, c->manifest->name,
               c->manifest->version);
    }
    if (values.explain) {
        if (!c->usable) {
            printf("%-10s refused\n", uri[0] != '\0' ? uri : "?");
        }
        print_chip(&c->info);
        printf("           %s: %s\n", c->manifest->path, c->reason);
    }
}

static pgd_status json_device(pgd_text *t, const pgd_dev_candidate *c) {
    char uuid[41];
    format_uuid(c->info.uuid, uuid);
    PGD_TRY(pgd_text_format(t, "%s{", t->ptr[t->len - 1] == '[' ? "" : ","));
    PGD_TRY(field(t, "uri", c->info.uri));
    PGD_TRY(field(t, "kind", c->manifest->kind));
    PGD_TRY(field(t, "name", c->info.name));
    PGD_TRY(field(t, "arch", c->info.arch));
    PGD_TRY(field(t, "pci", c->info.pci));
    PGD_TRY(field(t, "uuid", uuid));
    PGD_TRY(pgd_text_format(t, ",\"memory_bytes\":%llu,\"units\":%u,\"usable\":%s",
                            (unsigned long long)c->info.bytes, c->info.units,
                            c->usable ? "true" : "false"));
    PGD_TRY(field(t, "plugin", c->manifest->path));
    PGD_TRY(field(t, "version", c->manifest->version));
    PGD_TRY(field(t, "reason", c->reason));
    return pgd_text_format(t, "}");
}

static pgd_status list_devices(const pgd_dev_candidate *list, uint32_t n) {
    if (!values.json) {
        uint32_t n_usable = 0;
        for (uint32_t i = 0; i < n; i++) {
            n_usable += list[i].usable != 0;
            print_device(&list[i]);
        }
        if (n_usable == 0) {
            printf("no usable device; `pagoda devices --explain` says why\n");
        }
        return PGD_OK;
    }
    pgd_text t = {0};
    pgd_status status = pgd_text_format(&t, "{\"devices\":[");
    for (uint32_t i = 0; i < n && status == PGD_OK; i++) {
        if (list[i].usable || values.explain) {
            status = json_device(&t, &list[i]);
        }
    }
    if (status == PGD_OK) {
        status = pgd_text_format(&t, "]}");
    }
    if (status == PGD_OK) {
        printf("%s\n", t.ptr);
    }
    pgd_text_free(&t);
    return status;
}

int cli_devices(int argc, char **argv) {
    cli_args args = {.command = cli_find("devices"),
                     .flags = {devices_flags},
                     .titles = {"flags"},
                     .n_groups = 1};
    pgd_dev_registry *registry = NULL;
    pgd_dev_candidate *list = NULL;
    uint32_t n = 0;
    pgd_status status = cli_parse(&args, argc, argv);
    if (status == PGD_OK && args.help) {
        return 0;
    }
    if (status == PGD_OK) {
        status = open_registry(&registry);
    }
    if (status == PGD_OK) {
        status = pgd_dev_candidates(registry, &list, &n);
    }
    if (status == PGD_OK) {
        status = list_devices(list, n);
    }
    int code = status == PGD_OK ? 0 : cli_failed(status);
    pgd_dev_candidates_free(list);
    pgd_dev_registry_destroy(registry);
    return code;
}

// ---- plugins ---------------------------------------------------------------------------------

// Why a plugin cannot be used here, "" if it can.
static const char *why_not(const pgd_dev_registry *r, const pgd_dev_manifest *m, char *text,
                           size_t cap) {
    if (m->unusable != NULL) {
        return m->unusable;
    }
    return pgd_dev_is_absent(r, m, text, cap) ? text : "";
}

static void print_list(const char *title, const char *const *items, uint32_t n) {
    for (uint32_t i = 0; i < n; i++) {
        printf("  %-8s %s\n", title, items[i]);
    }
}

static void print_plugin(const pgd_dev_registry *r, const pgd_dev_manifest *m, int32_t all) {
    char text[240];
    const char *why = why_not(r, m, text, sizeof(text));
    const char *role = m->role == PGD_ROLE_LAYER ? "layer" : "backend";
    const char *state = why[0] != '\0' ? why : role;
    printf("%-10s %-28s %-10s ABI %u.%u (host %u.%u or later)  %s\n",
           m->kind[0] != '\0' ? m->kind : "?", m->name, m->version, m->abi_major, m->abi_minor,
           m->abi_major, m->min_host_minor, state);
    if (!all) {
        return;
    }
    printf("  library  %s\n  vendor   %s\n  license  %s\n", m->path, m->vendor, m->license);
    print_list("alias", m->aliases, m->n_aliases);
    print_list("matches", m->matches, m->n_matches);
    print_list("needs", m->needs, m->n_needs);
    if (m->sha256 != NULL) {
        print_list("sha256", &m->sha256, 1);
    }
    for (uint32_t i = 0; i < m->n_options; i++) {
        const pgd_option *o = &m->options[i];
        printf("  option   %s (%s, default %s): %s\n", o->key, o->type, o->value, o->help);
    }
}

static pgd_status json_options(pgd_text *t, const pgd_dev_manifest *m) {
    PGD_TRY(pgd_text_format(t, ",\"options\":["));
    for (uint32_t i = 0; i < m->n_options; i++) {
        const pgd_option *o = &m->options[i];
        PGD_TRY(pgd_text_format(t, "%s{", i > 0 ? "," : ""));
        PGD_TRY(field(t, "key", o->key));
        PGD_TRY(field(t, "type", o->type));
        PGD_TRY(field(t, "default", o->value));
        PGD_TRY(field(t, "help", o->help));
        PGD_TRY(pgd_text_format(t, "}"));
    }
    return pgd_text_format(t, "]");
}

static pgd_status json_plugin(pgd_text *t, const pgd_dev_registry *r, const pgd_dev_manifest *m) {
    char text[240];
    const char *why = why_not(r, m, text, sizeof(text));
    PGD_TRY(pgd_text_format(t, "%s{", t->ptr[t->len - 1] == '[' ? "" : ","));
    PGD_TRY(field(t, "kind", m->kind));
    PGD_TRY(field(t, "name", m->name));
    PGD_TRY(field(t, "vendor", m->vendor));
    PGD_TRY(field(t, "version", m->version));
    PGD_TRY(field(t, "license", m->license));
    PGD_TRY(field(t, "role", m->role == PGD_ROLE_LAYER ? "layer" : "backend"));
    PGD_TRY(field(t, "library", m->path));
    PGD_TRY(pgd_text_format(t, ",\"abi\":{\"major\":%u,\"minor\":%u,\"min_host_minor\":%u}",
                            m->abi_major, m->abi_minor, m->min_host_minor));
    PGD_TRY(pgd_text_format(t, ",\"usable\":%s", why[0] == '\0' ? "true" : "false"));
    PGD_TRY(field(t, "reason", why));
    PGD_TRY(json_options(t, m));
    return pgd_text_format(t, "}");
}

static pgd_status list_plugins(const pgd_dev_registry *r, const char *name) {
    pgd_text t = {0};
    uint32_t n_shown = 0;
    pgd_status status = pgd_text_format(&t, "{\"plugins\":[");
    for (uint32_t i = 0; i < pgd_dev_registry_count(r) && status == PGD_OK; i++) {
        const pgd_dev_manifest *m = pgd_dev_registry_get(r, i);
        if (name != NULL && strcmp(name, m->kind) != 0) {
            continue;
        }
        n_shown++;
        if (values.json) {
            status = json_plugin(&t, r, m);
        } else {
            print_plugin(r, m, name != NULL);
        }
    }
    if (status == PGD_OK) {
        status = pgd_text_format(&t, "]}");
    }
    if (status == PGD_OK && values.json) {
        printf("%s\n", t.ptr);
    }
    pgd_text_free(&t);
    if (status == PGD_OK && name != NULL && n_shown == 0) {
        return pgd_fail(PGD_NOT_FOUND, "no plugin is called \"%s\"; `pagoda plugins` lists them",
                        name);
    }
    return status;
}

int cli_plugins(int argc, char **argv) {
    cli_args args = {.command = cli_find("plugins"),
                     .flags = {plugins_flags},
                     .titles = {"flags"},
                     .n_groups = 1,
                     .max_positional = 1};
    pgd_dev_registry *registry = NULL;
    pgd_status status = cli_parse(&args, argc, argv);
    if (status == PGD_OK && args.help) {
        return 0;
    }
    if (status == PGD_OK) {
        status = open_registry(&registry);
    }
    if (status == PGD_OK) {
        status = list_plugins(registry, args.positional[0]);
    }
    int code = status == PGD_OK ? 0 : cli_failed(status);
    pgd_dev_registry_destroy(registry);
    return code;
}
