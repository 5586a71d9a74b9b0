// SplitMix64: Steele, Lea, Flood, "Fast splittable pseudorandom number generators", OOPSLA 2014.
#include "base/rng.h"

#include "os/env.h"

uint64_t pgd_rng_next(uint64_t *state) {
    uint64_t z = *state += 0x9E3779B97F4A7C15u;
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9u;
    z = (z ^ z >> 27) * 0x94D049BB133111EBu;
    return z ^ z >> 31;
}

uint64_t pgd_rng_seed(void) {
    uint64_t seed = 0;
    if (!pgd_os_random(&seed, sizeof(seed))) {
        // Without a source of randomness seeds differ at least from moment to moment.
        seed = pgd_os_monotonic_ns() ^ (uint64_t)pgd_os_unix_ms() << 20;
        seed = pgd_rng_next(&seed);
    }
    return seed;
}
