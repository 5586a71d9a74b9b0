// Open addressing with linear probing; a power of two of cells, at most 3/4 of them used; cells
// are never removed. The stored hash spares comparisons of keys and is never 0 in a used cell.
#include "base/map.h"

#include <xxhash.h>

#include "base/fail.h"
#include "base/mem.h"

typedef struct cell {
    uint64_t hash; // 0 = free
    pgd_str key;
    uint64_t value;
} cell;

struct pgd_map {
    cell *cells;
    size_t n_cells; // a power of two
    size_t n_used;
};

enum { LEAST_CELLS = 16 };

static uint64_t hash_of(pgd_str key) {
    uint64_t h = XXH3_64bits(key.len > 0 ? key.ptr : "", key.len);
    return h != 0 ? h : 1;
}

// The cell that holds key, or the free one where it belongs.
static cell *find_cell(cell *cells, size_t n_cells, uint64_t hash, pgd_str key) {
    size_t i = (size_t)hash & (n_cells - 1);
    while (cells[i].hash != 0 && (cells[i].hash != hash || !pgd_str_equal(cells[i].key, key))) {
        i = (i + 1) & (n_cells - 1);
    }
    return &cells[i];
}

pgd_status pgd_map_create(size_t n_expected, pgd_map **out) {
    size_t n_cells = LEAST_CELLS;
    *out = NULL;
    while (n_cells - n_cells / 4 < n_expected) {
        if (n_cells > SIZE_MAX / 4) {
            return PGD_MEM_FAIL("a map", SIZE_MAX);
        }
        n_cells *= 2;
    }
    pgd_map *map = pgd_mem_alloc(1, sizeof(*map));
    if (map == NULL) {
        return PGD_MEM_FAIL("a map", sizeof(*map));
    }
    map->cells = pgd_mem_alloc(n_cells, sizeof(cell));
    if (map->cells == NULL) {
        pgd_mem_free(map);
        return PGD_MEM_FAIL("the cells of a map", n_cells);
    }
    map->n_cells = n_cells;
    *out = map;
    return PGD_OK;
}

void pgd_map_destroy(pgd_map *map) {
    if (map != NULL) {
        pgd_mem_free(map->cells);
        pgd_mem_free(map);
    }
}

static pgd_status grow(pgd_map *map) {
    size_t n_cells = map->n_cells * 2;
    cell *cells = pgd_mem_alloc(n_cells, sizeof(cell));
    if (cells == NULL) {
        return PGD_MEM_FAIL("the cells of a map", n_cells);
    }
    for (size_t i = 0; i < map->n_cells; i++) {
        const cell *c = &map->cells[i];
        if (c->hash != 0) {
            *find_cell(cells, n_cells, c->hash, c->key) = *c;
        }
    }
    pgd_mem_free(map->cells);
    map->cells = cells;
    map->n_cells = n_cells;
    return PGD_OK;
}

pgd_status pgd_map_set(pgd_map *map, pgd_str key, uint64_t value) {
    uint64_t hash = hash_of(key);
    cell *c = find_cell(map->cells, map->n_cells, hash, key);
    if (c->hash == 0) {
        if (map->n_used >= map->n_cells - map->n_cells / 4) {
            PGD_TRY(grow(map));
            c = find_cell(map->cells, map->n_cells, hash, key);
        }
        c->hash = hash;
        c->key = key;
        map->n_used++;
    }
    c->value = value;
    return PGD_OK;
}

int32_t pgd_map_get(const pgd_map *map, pgd_str key, uint64_t *out) {
    const cell *c = find_cell(map->cells, map->n_cells, hash_of(key), key);
    if (c->hash == 0) {
        return 0;
    }
    *out = c->value;
    return 1;
}

size_t pgd_map_count(const pgd_map *map) {
    return map->n_used;
}
