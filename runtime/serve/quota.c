// See quota.h.
#include "serve/quota.h"

#include "base/fail.h"
#include "base/mem.h"
#include "os/thread.h"

#define MINUTE_S    60.0
#define MOST_WAIT_S 60

typedef struct quota {
    int32_t open;
    int32_t begun; // 1: the bucket has been filled
    double tokens; // in the bucket
    uint64_t seen_ns;
} quota;

struct pgd_serve_quotas {
    pgd_serve_quota_limits limits;
    pgd_os_mutex mutex;
    int32_t n;
    quota keys[];
};

pgd_status pgd_serve_quotas_open(const pgd_serve_quota_limits *limits, int32_t n_keys,
                                 pgd_serve_quotas **out) {
    const size_t bytes = sizeof(pgd_serve_quotas) + ((size_t)n_keys + 1) * sizeof(quota);
    *out = pgd_mem_alloc(bytes, 1);
    if (*out == NULL) {
        return PGD_MEM_FAIL("limits of keys", bytes);
    }
    (*out)->limits = *limits;
    (*out)->n = n_keys + 1;
    pthread_mutex_init(&(*out)->mutex, NULL);
    return PGD_OK;
}

void pgd_serve_quotas_close(pgd_serve_quotas *q) {
    if (q != NULL) {
        pthread_mutex_destroy(&q->mutex);
        pgd_mem_free(q);
    }
}

static quota *quota_of(pgd_serve_quotas *q, int32_t key) {
    return &q->keys[key > 0 && key < q->n ? key : 0];
}

static void refill(const pgd_serve_quotas *q, quota *k, uint64_t now_ns) {
    const double most = (double)q->limits.tokens;
    const double seconds = now_ns > k->seen_ns ? (double)(now_ns - k->seen_ns) / 1e9 : 0.0;
    k->tokens = k->begun ? k->tokens + seconds * most / MINUTE_S : most;
    k->tokens = k->tokens < most ? k->tokens : most;
    k->begun = 1;
    k->seen_ns = now_ns;
}

int32_t pgd_serve_quota_enter(pgd_serve_quotas *q, int32_t key, uint64_t now_ns, pgd_api_error *e) {
    quota *k = quota_of(q, key);
    int32_t result = 0;
    pthread_mutex_lock(&q->mutex);
    refill(q, k, now_ns);
    if (q->limits.requests > 0 && k->open >= q->limits.requests) {
        e->retry_after_s = 1;
        result = pgd_api_refuse(e, 429, NULL, "too_many_requests",
                                "this key has %d requests under way, which is the most allowed",
                                k->open);
    } else if (q->limits.tokens > 0 && k->tokens <= 0.0) {
        const double wait = (1.0 - k->tokens) * MINUTE_S / (double)q->limits.tokens;
        e->retry_after_s = wait < MOST_WAIT_S ? (int32_t)wait + 1 : MOST_WAIT_S;
        result = pgd_api_refuse(e, 429, NULL, "tokens_used_up",
                                "this key has used its %lld tokens a minute",
                                (long long)q->limits.tokens);
    } else {
        k->open++;
    }
    pthread_mutex_unlock(&q->mutex);
    return result;
}

void pgd_serve_quota_spend(pgd_serve_quotas *q, int32_t key, uint64_t now_ns, int64_t tokens) {
    quota *k = quota_of(q, key);
    pthread_mutex_lock(&q->mutex);
    refill(q, k, now_ns);
    k->tokens -= (double)tokens;
    pthread_mutex_unlock(&q->mutex);
}

void pgd_serve_quota_leave(pgd_serve_quotas *q, int32_t key) {
    pthread_mutex_lock(&q->mutex);
    quota_of(q, key)->open--;
    pthread_mutex_unlock(&q->mutex);
}
