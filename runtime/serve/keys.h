// API keys: kept as SHA-256, compared in constant time.
#ifndef PGD_SERVE_KEYS_H
#define PGD_SERVE_KEYS_H

#include "base/str.h"

typedef struct pgd_serve_keys pgd_serve_keys;

// keys [n]; file: a key a line, # begins a comment, NULL = none. No key at all: *out NULL.
//   fails  NOT_FOUND, DENIED (file), INVALID (an empty key)
pgd_status pgd_serve_keys_open(const char *const *keys, uint32_t n, const char *file,
                               pgd_serve_keys **out) PGD_MUST_USE;
void pgd_serve_keys_close(pgd_serve_keys *k);          // NULL is fine
int32_t pgd_serve_keys_count(const pgd_serve_keys *k); // NULL: 0
// [any] Number of the key (from 1) that an Authorization header "Bearer KEY" holds; 0 = none.
int32_t pgd_serve_keys_find(const pgd_serve_keys *k, const char *authorization);

#endif
