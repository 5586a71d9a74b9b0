// What each API key may use: requests at once, and tokens a minute (a bucket that holds a minute's
// tokens). Without keys all callers are one.
#ifndef PGD_SERVE_QUOTA_H
#define PGD_SERVE_QUOTA_H

#include "api/error.h"

typedef struct pgd_serve_quotas pgd_serve_quotas;

typedef struct pgd_serve_quota_limits {
    int32_t requests; // at once, 0 = no limit
    int32_t reserved0;
    int64_t tokens; // a minute, 0 = no limit
} pgd_serve_quota_limits;

// For keys 0 (none) to n_keys.
pgd_status pgd_serve_quotas_open(const pgd_serve_quota_limits *limits, int32_t n_keys,
                                 pgd_serve_quotas **out) PGD_MUST_USE;
void pgd_serve_quotas_close(pgd_serve_quotas *q); // NULL is fine
// [any] A request of the key begins at `now`. 0, or -1 with e (429) and Retry-After.
int32_t pgd_serve_quota_enter(pgd_serve_quotas *q, int32_t key, uint64_t now_ns, pgd_api_error *e);
// [any] It uses so many tokens; what is used beyond the bucket must be made good by time.
void pgd_serve_quota_spend(pgd_serve_quotas *q, int32_t key, uint64_t now_ns, int64_t tokens);
// [any] A request that has entered is over.
void pgd_serve_quota_leave(pgd_serve_quotas *q, int32_t key);

#endif
