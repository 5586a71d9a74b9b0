// What the host lends a plugin: one pgd_host per open of a device, with its own options.
//
// The plugin sees only the table; everything the functions need is behind host->ctx, which is the
// pgd_dev_host around it.
#include "dev/inner.h"

#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/fail.h"
#include "base/log.h"
#include "base/mem.h"

static void host_log(const pgd_host *h, int32_t level, const char *text) {
    const pgd_dev_host *self = h->ctx;
    pgd_log(level, "%s: %s", self->kind, text);
}

static pgd_status host_fail(const pgd_host *h, pgd_status code, const char *file, int32_t line,
                            const char *fmt, ...) {
    va_list args;
    (void)h;
    va_start(args, fmt);
    pgd_fail_va(code, file, line, fmt, args);
    va_end(args);
    return code;
}

static uint64_t host_clock_ns(const pgd_host *h) {
    (void)h;
    return pgd_clock_ns();
}

static void *host_alloc(const pgd_host *h, uint64_t bytes, uint64_t align) {
    (void)h;
    if (bytes > SIZE_MAX || align > 4096 || (align & (align - 1)) != 0) {
        return NULL;
    }
    return pgd_mem_alloc_aligned((size_t)bytes, align < 16 ? 16 : (size_t)align);
}

static void host_free(const pgd_host *h, void *ptr) {
    (void)h;
    pgd_mem_free(ptr);
}

static uint32_t host_team_size(const pgd_host *h) {
    const pgd_dev_host *self = h->ctx;
    return self->team == NULL ? 1 : pgd_team_size(self->team);
}

static void host_team_run(const pgd_host *h, pgd_team_fn fn, void *arg) {
    const pgd_dev_host *self = h->ctx;
    if (self->team == NULL) {
        fn(arg, 0, 1);
        return;
    }
    pgd_team_run(self->team, fn, arg);
}

static void host_team_barrier(const pgd_host *h) {
    const pgd_dev_host *self = h->ctx;
    if (self->team != NULL) {
        pgd_team_barrier(self->team);
    }
}

static const char *host_option(const pgd_host *h, const char *key) {
    const pgd_dev_host *self = h->ctx;
    const char *at = self->text;
    for (uint32_t i = 0; i < self->n_options; i++) {
        const char *value = at + strlen(at) + 1;
        if (strcmp(at, key) == 0) {
            return value;
        }
        at = value + strlen(value) + 1;
    }
    return NULL;
}

// Writes "key\0value\0" for each option; the text is as long as the input plus one NUL at most,
// because each separator becomes a NUL.
static pgd_status cut_options(pgd_dev_host *h, pgd_str options) {
    char *to = h->text;
    while (options.len > 0) {
        pgd_str rest = {0};
        pgd_str item = pgd_str_cut(options, ';', &rest);
        pgd_str value = {0};
        pgd_str key = pgd_str_trim(pgd_str_cut(item, '=', &value));
        options = rest;
        if (pgd_str_trim(item).len == 0) {
            continue;
        }
        if (key.len == 0 || memchr(item.ptr, '=', item.len) == NULL) {
            return pgd_fail(PGD_INVALID,
                            "device option '%.*s' of '%s' is not written as key=value; options "
                            "are joined by semicolons",
                            (int)item.len, item.ptr, h->kind);
        }
        value = pgd_str_trim(value);
        memcpy(to, key.ptr, key.len);
        to[key.len] = '\0';
        if (host_option(&h->host, to) != NULL) {
            return pgd_fail(PGD_INVALID, "device option '%s' of '%s' is given twice", to, h->kind);
        }
        to += key.len + 1;
        memcpy(to, value.ptr, value.len);
        to[value.len] = '\0';
        to += value.len + 1;
        h->n_options++;
    }
    return PGD_OK;
}

pgd_status pgd_dev_host_create(pgd_str kind, pgd_str options, pgd_team *team, pgd_dev_host **out) {
    *out = NULL;
    pgd_dev_host *h = pgd_mem_alloc(1, sizeof(*h));
    if (h == NULL) {
        return PGD_MEM_FAIL("a host table", sizeof(*h));
    }
    h->host = (pgd_host){
        .size = sizeof(pgd_host),
        .minor = PGD_ABI_MINOR,
        .ctx = h,
        .log = host_log,
        .fail = host_fail,
        .clock_ns = host_clock_ns,
        .alloc = host_alloc,
        .free = host_free,
        .team_size = host_team_size,
        .team_run = host_team_run,
        .team_barrier = host_team_barrier,
        .option = host_option,
    };
    h->team = team;
    snprintf(h->kind, sizeof(h->kind), "%.*s", (int)kind.len, kind.ptr == NULL ? "" : kind.ptr);
    h->text = pgd_mem_alloc(options.len + 2, 1);
    if (h->text == NULL) {
        pgd_mem_free(h);
        return PGD_MEM_FAIL("device options", options.len + 2);
    }
    pgd_status code = cut_options(h, options);
    if (code != PGD_OK) {
        pgd_dev_host_destroy(h);
        return code;
    }
    *out = h;
    return PGD_OK;
}

void pgd_dev_host_destroy(pgd_dev_host *h) {
    if (h != NULL) {
        pgd_mem_free(h->text);
        pgd_mem_free(h);
    }
}

// ---- options -----------------------------------------------------------------------------------

static const pgd_option *option_at(const pgd_plugin *plugin, uint32_t i) {
    const unsigned char *base = (const unsigned char *)plugin->options;
    return (const pgd_option *)(const void *)(base + (size_t)i * plugin->option_stride);
}

static int32_t value_fits(const char *type, pgd_str value) {
    int64_t i = 0;
    uint64_t u = 0;
    if (strcmp(type, "int") == 0) {
        return pgd_str_to_i64(value, &i);
    }
    if (strcmp(type, "us") == 0) {
        return pgd_str_to_u64(value, &u);
    }
    if (strcmp(type, "bytes") == 0) {
        return pgd_str_to_bytes(value, &u);
    }
    if (strcmp(type, "bool") == 0) {
        return pgd_str_is(value, "true") || pgd_str_is(value, "false") || pgd_str_is(value, "on") ||
               pgd_str_is(value, "off") || pgd_str_is(value, "1") || pgd_str_is(value, "0");
    }
    return 1;
}

static pgd_status check_option(const pgd_dev_host *h, const pgd_plugin *plugin, const char *key,
                               const char *value) {
    char allowed[600] = "";
    size_t used = 0;
    for (uint32_t i = 0; i < plugin->n_options; i++) {
        const pgd_option *o = option_at(plugin, i);
        if (strcmp(o->key, key) == 0) {
            if (value_fits(o->type, pgd_str_of(value))) {
                return PGD_OK;
            }
            return pgd_fail(PGD_INVALID, "device option '%s' of '%s' is '%s', which is no %s value",
                            key, h->kind, value, o->type);
        }
        int n =
            snprintf(allowed + used, sizeof(allowed) - used, "%s%s", used == 0 ? "" : ", ", o->key);
        used += n > 0 ? (size_t)n : 0;
        used = used < sizeof(allowed) ? used : sizeof(allowed) - 1;
    }
    return pgd_fail(PGD_INVALID, "%s '%s' has no option '%s'; allowed: %s",
                    plugin->role == PGD_ROLE_LAYER ? "layer" : "device", h->kind, key,
                    used == 0 ? "none" : allowed);
}

pgd_status pgd_dev_host_check(const pgd_dev_host *h, const pgd_plugin *plugin) {
    const char *at = h->text;
    for (uint32_t i = 0; i < h->n_options; i++) {
        const char *value = at + strlen(at) + 1;
        PGD_TRY(check_option(h, plugin, at, value));
        at = value + strlen(value) + 1;
    }
    return PGD_OK;
}
