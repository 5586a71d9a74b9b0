// See pace.h.
#include "engine/pace.h"

#define SHARE         0.9 // of the bound; the rest is for what is not measured: mail, sockets
#define BASE_WEIGHT   0.125
#define CHEAPER       0.25
#define REACH_DECAY   0.95
#define FIRST_TOKENS  64.0 // where nothing that large was measured
#define SMALL_SHARE   0.25 // of reach: a smaller step tells little of a token's cost
#define LARGEST_LIMIT 1000000000.0

static void add_cost(pgd_engine_pace *p, int32_t n_prefill, double ns) {
    const double n = n_prefill;
    const int32_t tells = n >= p->reach * SMALL_SHARE;
    p->reach = n > p->reach * REACH_DECAY ? n : p->reach * REACH_DECAY;
    if (!tells && p->cost_ns > 0.0) {
        return;
    }
    const double cost = ns > p->base_ns ? (ns - p->base_ns) / n : 0.0;
    p->cost_ns += (cost - p->cost_ns) * (cost > p->cost_ns ? 1.0 : CHEAPER);
}

static int32_t limit_of(const pgd_engine_pace *p) {
    const double time = SHARE * (double)p->bound_ns - p->base_ns;
    const double near = 2.0 * p->reach > FIRST_TOKENS ? 2.0 * p->reach : FIRST_TOKENS;
    double limit = p->cost_ns > 0.0 ? time / p->cost_ns : near;
    limit = limit < near ? limit : near;
    limit = limit < LARGEST_LIMIT ? limit : LARGEST_LIMIT;
    return limit > p->least_tokens ? (int32_t)limit : p->least_tokens;
}

void pgd_engine_pace_add(pgd_engine_pace *p, int32_t n_decode, int32_t n_prefill, uint64_t ns) {
    if (n_decode > 0 && n_prefill > 0) {
        p->longest_ns = ns > p->longest_ns ? ns : p->longest_ns;
        p->n_limited += p->limit > 0 && n_prefill >= p->limit;
    }
    if (p->bound_ns == 0) {
        return;
    }
    if (n_prefill > 0) {
        add_cost(p, n_prefill, (double)ns);
    } else if (n_decode > 0) {
        p->base_ns += ((double)ns - p->base_ns) * (p->base_ns > 0.0 ? BASE_WEIGHT : 1.0);
    }
    p->limit = limit_of(p);
}

int32_t pgd_engine_pace_limit(const pgd_engine_pace *p) {
    return p->limit;
}
