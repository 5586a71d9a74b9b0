// Pinned host memory by way of the device's own buffers. See staging.h.
#include "dev/staging.h"

#include "base/fail.h"
#include "base/mem.h"

static pgd_status create_pinned(const pgd_device *d, uint64_t bytes, pgd_dev_staging *s) {
    const pgd_buffer_desc desc = {
        .size = sizeof(desc), .place = PGD_PLACE_STAGING, .bytes = bytes, .align = 64};
    void *host = NULL;
    PGD_TRY(d->memory->create(d, &desc, &s->buffer));
    const pgd_status status = d->memory->map(d, s->buffer, &host);
    s->host = host;
    if (status != PGD_OK) {
        pgd_dev_staging_destroy(d, s);
    }
    return status;
}

pgd_status pgd_dev_staging_create(const pgd_device *d, uint64_t bytes, pgd_dev_staging *out) {
    *out = (pgd_dev_staging){0};
    const pgd_status status = create_pinned(d, bytes, out);
    if (status != PGD_UNSUPPORTED) {
        return pgd_fail_note(status, "making %llu bytes of memory for copies",
                             (unsigned long long)bytes);
    }
    out->host = pgd_mem_alloc_aligned(bytes, 64);
    return out->host != NULL ? PGD_OK : PGD_MEM_FAIL("memory for copies", bytes);
}

void pgd_dev_staging_destroy(const pgd_device *d, pgd_dev_staging *s) {
    if (s->buffer != NULL) {
        d->memory->destroy(d, s->buffer);
    } else {
        pgd_mem_free(s->host);
    }
    *s = (pgd_dev_staging){0};
}
