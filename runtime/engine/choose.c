// Which device: the one that was named, or for "auto" the one with the most memory bandwidth on
// which this model's plan fits and no operation is refused.
#include "engine/inner.h"

#include <stdio.h>
#include <string.h>

#include "base/fail.h"
#include "base/mem.h"

pgd_status pgd_engine_open_named(pgd_engine *e, const char *uri) {
    const pgd_dev_desc desc = {.uri = uri,
                               .team = e->team,
                               .allow_slow = e->names.allow_slow,
                               .no_deterministic = e->names.no_deterministic};
    PGD_TRY(pgd_dev_open(e->registry, &desc, &e->dev));
    e->d = pgd_dev_device(e->dev);
    (void)snprintf(e->names.uri, sizeof(e->names.uri), "%s", pgd_dev_uri(e->dev));
    (void)snprintf(e->names.product, sizeof(e->names.product), "%.63s", pgd_dev_info(e->dev)->name);
    return PGD_OK;
}

// The device that was asked for; its name is kept for when it is lost.
static pgd_status open_first(pgd_engine *e, const char *uri) {
    pgd_mem_free(e->names.device);
    e->names.device = NULL;
    PGD_TRY(pgd_mem_copy_text(uri, &e->names.device));
    return pgd_engine_open_named(e, uri);
}

#define DEFAULT_TIMEOUT_MS 600000

static pgd_status copy_names(pgd_engine *e, const pgd_engine_options *o) {
    e->names.allow_slow = o->allow_slow;
    e->names.no_deterministic = o->no_deterministic;
    e->trouble.timeout_ns =
        (o->step_timeout_ms != 0 ? o->step_timeout_ms : DEFAULT_TIMEOUT_MS) * UINT64_C(1000000);
    if (o->memory != NULL) {
        PGD_TRY(pgd_mem_copy_text(o->memory, &e->names.memory));
    }
    if (o->quant != NULL) {
        PGD_TRY(pgd_mem_copy_text(o->quant, &e->names.quant));
    }
    if (o->standby == NULL || o->standby[0] == '\0') {
        return PGD_OK;
    }
    if (pgd_dev_is_auto(o->standby)) {
        return pgd_fail(PGD_INVALID, "standby is '%s'; name a device", o->standby);
    }
    PGD_TRY(pgd_fail_note(pgd_dev_check(e->registry, o->standby), "looking for the standby"));
    return pgd_mem_copy_text(o->standby, &e->names.standby);
}

pgd_status pgd_engine_open_device(pgd_engine *e, const pgd_engine_options *o) {
    if (o->threads < 0 || o->threads > 1024) {
        return pgd_fail(PGD_OUT_OF_RANGE, "threads is %d; 0 (one per core) to 1024 is allowed",
                        o->threads);
    }
    PGD_TRY(pgd_team_open((uint32_t)o->threads, &e->team));
    const pgd_dev_search search = {
        .files = o->plugins, .n_files = o->n_plugins, .team = e->team};
    PGD_TRY(pgd_dev_registry_create(&search, &e->registry));
    PGD_TRY(copy_names(e, o));
    if (pgd_dev_is_auto(o->device)) {
        return PGD_OK; // chosen when the model is known
    }
    return open_first(e, o->device);
}

// Opens a candidate and plans the model on it.
static pgd_status try_device(pgd_engine *e, const pgd_engine_options *o, const char *name,
                             const pgd_load_plan *plan) {
    pgd_text uri = {0};
    pgd_status status = pgd_dev_replace_auto(o->device, name, &uri);
    if (status == PGD_OK) {
        status = open_first(e, uri.ptr);
    }
    pgd_text_free(&uri);
    PGD_TRY(status);
    status = pgd_engine_plan(e, o, plan);
    if (status != PGD_OK) {
        pgd_dev_close(e->dev);
        e->dev = NULL;
        e->d = NULL;
    }
    return status;
}

// What would be wrong on every device: a value the user gave.
static int32_t is_users(pgd_status status) {
    return status == PGD_INVALID || status == PGD_OUT_OF_RANGE;
}

// Adds "; acme:1 is not: why" to a text.
static void add_refusal(char *text, size_t cap, const char *uri, const char *why) {
    size_t used = strlen(text);
    (void)snprintf(text + used, cap - used, "%s%s is not: %s", used > 0 ? "; " : "", uri, why);
}

// Says what was chosen and why, if there was a choice.
static void say_choice(pgd_engine *e, const pgd_dev_candidate *c, uint32_t n,
                       const char *refusals) {
    char speed[48] = "bandwidth unknown";
    if (c->info.bytes_per_s > 0) {
        (void)snprintf(speed, sizeof(speed), "%.1f GB/s", (double)c->info.bytes_per_s / 1e9);
    }
    if (n > 1) {
        (void)snprintf(e->choice, sizeof(e->choice),
                       "device %s (%s) is chosen: the most memory bandwidth (%s) of the devices "
                       "that this model fits%s%s",
                       c->info.uri, c->info.name, speed, refusals[0] != '\0' ? "; " : "", refusals);
    }
}

static pgd_status choose(pgd_engine *e, const pgd_engine_options *o, const pgd_load_plan *plan,
                         const pgd_dev_candidate *items, uint32_t n) {
    char refusals[600] = "";
    pgd_status status = PGD_NOT_FOUND;
    for (uint32_t i = 0; i < n; i++) {
        status = try_device(e, o, items[i].info.uri, plan);
        if (status == PGD_OK) {
            say_choice(e, &items[i], n, refusals);
            return PGD_OK;
        }
        if (is_users(status) || n == 1) {
            return status;
        }
        add_refusal(refusals, sizeof(refusals), items[i].info.uri, pgd_fail_text(status));
    }
    return pgd_fail(status, "auto finds no device for this model: %s", refusals);
}

pgd_status pgd_engine_choose(pgd_engine *e, const pgd_engine_options *o,
                             const pgd_load_plan *plan) {
    pgd_dev_candidate *items = NULL;
    uint32_t n = 0;
    uint32_t n_usable = 0;
    if (e->dev != NULL) {
        return pgd_engine_plan(e, o, plan);
    }
    PGD_TRY(pgd_dev_auto_order(e->registry, &items, &n, &n_usable));
    // Without a usable device the usual way says why, device by device.
    pgd_status status =
        n_usable > 0 ? choose(e, o, plan, items, n_usable) : try_device(e, o, "auto", plan);
    pgd_dev_candidates_free(items);
    return status;
}
