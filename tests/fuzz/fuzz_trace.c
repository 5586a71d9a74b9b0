// A trace of `pagoda simulate`.
#include "cli/simulate.h"

#include "fuzz.h"

pgd_status fuzz_one(const uint8_t *data, size_t size) {
    sim_trace t = {0};
    pgd_status status = cli_sim_trace_parse((pgd_str){(const char *)data, size}, "x.jsonl", &t);
    int64_t last = 0;
    size_t n_adds = 0;
    for (size_t i = 0; status == PGD_OK && i < t.n; i++) {
        const sim_event *e = &t.events[i];
        FUZZ_CHECK(e->at >= last);
        last = e->at;
        FUZZ_CHECK((e->kind == SIM_ADD) == (e->add != NULL));
        if (e->add != NULL) {
            n_adds++;
            FUZZ_CHECK(e->add->id.len > 0 && e->add->n_prompt >= 1);
            FUZZ_CHECK(e->add->min_tokens >= 0 && e->add->min_tokens <= e->add->max_tokens);
        }
    }
    FUZZ_CHECK(status != PGD_OK || n_adds == t.n_adds);
    cli_sim_trace_free(&t);
    return status;
}
