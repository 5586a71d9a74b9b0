// Which device: the one that was named, or for "auto" the one with the most memory bandwidth on
// which this model's plan fits and no operation is refused.
#include "engine/inner.h"

#include <stdio.h>
#include <string.h>

#include "base/fail.h"

static pgd_status open_named(pgd_engine *e, const pgd_engine_options *o, const char *uri) {
    const pgd_dev_desc desc = {.uri = uri,
                               .team = e->team,
                               .allow_slow = o->allow_slow,
                               .no_deterministic = o->no_deterministic};
    PGD_TRY(pgd_dev_open(e->registry, &desc, &e->dev));
    e->d = pgd_dev_device(e->dev);
    return PGD_OK;
}

pgd_status pgd_engine_open_device(pgd_engine *e, const pgd_engine_options *o) {
    if (o->threads < 0 || o->threads > 1024) {
        return pgd_fail(PGD_OUT_OF_RANGE, "threads is %d; 0 (one per core) to 1024 is allowed",
                        o->threads);
    }
    PGD_TRY(pgd_team_open((uint32_t)o->threads, &e->team));
    const pgd_dev_search search = {.files = o->plugins, .n_files = o->n_plugins};
    PGD_TRY(pgd_dev_registry_create(&search, &e->registry));
    if (pgd_dev_is_auto(o->device)) {
        return PGD_OK; // chosen when the model is known
    }
    return open_named(e, o, o->device);
}

// Opens a candidate and plans the model on it.
static pgd_status try_device(pgd_engine *e, const pgd_engine_options *o, const char *name,
                             const pgd_load_plan *plan) {
    pgd_text uri = {0};
    pgd_status status = pgd_dev_replace_auto(o->device, name, &uri);
    if (status == PGD_OK) {
        status = open_named(e, o, uri.ptr);
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
