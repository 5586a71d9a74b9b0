// A hash map from byte strings to 64-bit values (open addressing, xxHash). Keys are views: their
// bytes must outlive the map. Single-threaded; reads may run together.
#ifndef PGD_BASE_MAP_H
#define PGD_BASE_MAP_H

#include "base/str.h"

typedef struct pgd_map pgd_map;

// n_expected sizes the table; it grows.
pgd_status pgd_map_create(size_t n_expected, pgd_map **out) PGD_MUST_USE;
void pgd_map_destroy(pgd_map *map); // NULL is fine
// Sets or replaces.
pgd_status pgd_map_set(pgd_map *map, pgd_str key, uint64_t value) PGD_MUST_USE;
// 1 and *out when there, else 0.
int32_t pgd_map_get(const pgd_map *map, pgd_str key, uint64_t *out);
size_t pgd_map_count(const pgd_map *map);

#endif
