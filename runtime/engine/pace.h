// How many prompt tokens a step may take so that those who wait for their next token wait no longer
// than a bound.
//
//   time of a step = base + cost * prompt tokens; both are measured, step by step
//   limit          = (0.9 * bound - base) / cost, at most twice what was measured lately
//
// Dearer at once, cheaper by quarters: a step that was too long is answered by a shorter one, and
// noise does not make the next ones longer than they may be. Pure: the caller has the clock.
#ifndef PGD_ENGINE_PACE_H
#define PGD_ENGINE_PACE_H

#include <stdint.h>

typedef struct pgd_engine_pace {
    uint64_t bound_ns;    // 0 = no bound
    uint64_t longest_ns;  // step with prompt tokens that running answers waited for
    uint64_t n_limited;   // steps that took as many prompt tokens as they were allowed
    double base_ns;       // of a step that gives next tokens only
    double cost_ns;       // of a prompt token, 0 = not measured
    double reach;         // prompt tokens of a step, the most measured lately
    int32_t limit;        // of the next step, 0 = none
    int32_t least_tokens; // below this the limit does not fall: prompts go on
} pgd_engine_pace;

// What a step took: its rows by kind, and its time. Sets the limit of the next one.
void pgd_engine_pace_add(pgd_engine_pace *p, int32_t n_decode, int32_t n_prefill, uint64_t ns);
// 0 = no limit.
int32_t pgd_engine_pace_limit(const pgd_engine_pace *p);

#endif
