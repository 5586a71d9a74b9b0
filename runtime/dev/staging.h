// Host memory for copies to and from a device: pinned where the device has that, so that a copy
// does not hold up the thread that asks for it; plain memory where buffers have no host address.
#ifndef PGD_DEV_STAGING_H
#define PGD_DEV_STAGING_H

#include <pagoda/backend.h>

typedef struct pgd_dev_staging {
    unsigned char *host; // zeroed; borrow
    pgd_buffer *buffer;  // that it is the address of, NULL: plain memory
} pgd_dev_staging;

// [setup] On a failure *out is zero.
//   fails  as memory.create of the device; OUT_OF_MEMORY
pgd_status pgd_dev_staging_create(const pgd_device *d, uint64_t bytes,
                                  pgd_dev_staging *out) PGD_MUST_USE;
// [setup] The queue has passed every use; a zero one is fine.
void pgd_dev_staging_destroy(const pgd_device *d, pgd_dev_staging *s);

#endif
