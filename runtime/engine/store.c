// Where packed weights are kept: the options cache and weight_cache.
#include "engine/inner.h"

#include <string.h>

#include "base/fail.h"

#define AUTO_LEAST (UINT64_C(64) << 20) // smaller models are packed in a moment
#define AUTO_MOST  (UINT64_C(20) << 30)

pgd_status pgd_engine_open_store(pgd_engine *e, const pgd_engine_options *o) {
    const char *text = o->weight_cache;
    const int32_t is_auto = text == NULL || strcmp(text, "auto") == 0;
    uint64_t most = AUTO_MOST;
    if (!is_auto && strcmp(text, "off") == 0) {
        return PGD_OK;
    }
    if (!is_auto && !pgd_str_to_bytes(pgd_str_of(text), &most)) {
        return pgd_fail(PGD_INVALID,
                        "weight-cache is \"%s\"; auto, off or bytes (4GiB, 500MB) are allowed",
                        text);
    }
    pgd_status status = pgd_dev_store_folder(o->cache, e->store_folder, sizeof(e->store_folder));
    if (status == PGD_NOT_FOUND && is_auto) {
        return PGD_OK; // a process without a home keeps nothing
    }
    PGD_TRY(status);
    e->store = (pgd_dev_store){.folder = e->store_folder, .most_bytes = most};
    e->store_least = is_auto ? AUTO_LEAST : 0;
    return PGD_OK;
}
