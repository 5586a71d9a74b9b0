// Names of contents: 128 bits of xxHash. Equal bytes, equal hash, on every machine; not for use
// against somebody who wants two contents with one name.
#ifndef PGD_BASE_HASH_H
#define PGD_BASE_HASH_H

#include <stddef.h>
#include <stdint.h>

typedef struct pgd_hash {
    uint64_t low;
    uint64_t high;
} pgd_hash;

// [any]
pgd_hash pgd_hash_of(const void *bytes, size_t n);
int32_t pgd_hash_equal(pgd_hash a, pgd_hash b); // 1 or 0

#endif
