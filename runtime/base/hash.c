// See hash.h.
#include "base/hash.h"

#include <xxhash.h>

pgd_hash pgd_hash_of(const void *bytes, size_t n) {
    XXH128_hash_t h = XXH3_128bits(n > 0 ? bytes : "", n);
    return (pgd_hash){.low = h.low64, .high = h.high64};
}

int32_t pgd_hash_equal(pgd_hash a, pgd_hash b) {
    return a.low == b.low && a.high == b.high;
}
