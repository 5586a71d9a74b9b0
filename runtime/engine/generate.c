// Offline batch over the same engine. See <pagoda/pagoda.h>.
#include "engine/inner.h"

#include <string.h>

#include "base/fail.h"

static pgd_status run_all(pgd_engine *e, pgd_request **requests, size_t n,
                          void (*on_done)(void *, size_t, size_t), void *arg) {
    size_t reported = 0;
    while (pgd_engine_busy(e) > 0) {
        PGD_TRY(pgd_engine_step(e));
        size_t n_done = 0;
        for (size_t i = 0; i < n; i++) {
            n_done += requests[i]->n_running == 0;
        }
        for (; on_done != NULL && reported < n_done; reported++) {
            on_done(arg, reported + 1, n);
        }
    }
    return PGD_OK;
}

pgd_status pgd_engine_generate(pgd_engine *e, const pgd_request_desc *descs, size_t n,
                               void (*on_done)(void *arg, size_t n_done, size_t n), void *arg,
                               pgd_request **out) {
    memset(out, 0, n * sizeof(*out));
    pgd_status status = PGD_OK;
    for (size_t i = 0; i < n && status == PGD_OK; i++) {
        const unsigned char *at = (const unsigned char *)descs + i * descs[0].size;
        status = pgd_engine_submit(e, (const pgd_request_desc *)(const void *)at, &out[i]);
        status = pgd_fail_note(status, "submitting request %zu", i);
    }
    if (status == PGD_OK) {
        status = run_all(e, out, n, on_done, arg);
    }
    for (size_t i = 0; i < n && status != PGD_OK; i++) {
        pgd_request_release(out[i]);
        out[i] = NULL;
    }
    return status;
}
