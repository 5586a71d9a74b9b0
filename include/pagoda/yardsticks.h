// Extension "x.yardsticks.1": other people's libraries, run by a plugin on its own units.
//
// A plugin that has it answers pgd_tables.extension(backend, PGD_YARDSTICKS_EXTENSION) with a
// pgd_yardsticks. Programs that judge speed time these products beside the plugin's own, in the
// same process and on the same shapes. The plugin opens the libraries when they are asked for; one
// that is not installed says so. No operation of the plugin goes through here.
#ifndef PAGODA_YARDSTICKS_H
#define PAGODA_YARDSTICKS_H

#include <pagoda/backend.h>
#include <pagoda/limits.h>

#ifdef __cplusplus
extern "C" {
#endif

#define PGD_YARDSTICKS_EXTENSION "x.yardsticks.1"

// One product made ready: its weights in the library's own layout.
typedef struct pgd_yardstick pgd_yardstick;

typedef struct pgd_yardstick_info {
    uint32_t size;
    uint32_t limits; // bit i set: products that PGD_LIMIT_DOT_... i judges
    char name[32];   // "OpenBLAS"
    char version[64];
    char reason[160]; // why it cannot be used, as one sentence; "" = it can
} pgd_yardstick_info;

// y [m, n] = x [m, k] W[n, k]^T: f32 all; bf16 x and W, f32 y; or 8-bit x and W, 32-bit y.
typedef struct pgd_yardstick_desc {
    uint32_t size;
    int32_t limit; // PGD_LIMIT_DOT_...: the type
    int64_t m;
    int64_t n;
    int64_t k;
    uint32_t n_weights; // that calls go round
    uint32_t reserved0;
} pgd_yardstick_desc;

typedef struct pgd_yardsticks {
    uint32_t size;
    uint32_t n; // libraries
    // [queue] looks for library i.
    pgd_status (*info)(const pgd_device *d, uint32_t i, pgd_yardstick_info *out);
    // [queue] makes x, y and n_weights weights and packs them.
    //   fails  UNAVAILABLE (the library's or the type's reason), OUT_OF_MEMORY
    pgd_status (*create)(const pgd_device *d, uint32_t i, const pgd_yardstick_desc *desc,
                         pgd_yardstick **out);
    // [queue] one product with weight number `which`, on all units; returns when it is done.
    pgd_status (*run)(const pgd_device *d, pgd_yardstick *y, uint32_t which);
    // [queue] NULL is fine.
    void (*destroy)(const pgd_device *d, pgd_yardstick *y);
} pgd_yardsticks;

#ifdef __cplusplus
}
#endif
#endif
