// Which cases run.
#include "ops.h"

#include <string.h>

int32_t ops_wanted(const ops_session *s, const char *name) {
    return s->only == NULL || strcmp(s->only, name) == 0;
}

void ops_cases(ops_session *s, const char *name, int32_t cases, ops_case_fn run) {
    static ops_fixture f;
    int32_t i;
    if (!ops_wanted(s, name)) {
        return;
    }
    for (i = 0; i < cases; i++) {
        ops_open(&f, s, name, i);
        if (!f.broken) {
            run(&f);
        }
        ops_close(&f);
    }
}

void ops_suites(ops_session *s) {
    ops_suite_rows(s);
    ops_suite_gemm(s);
    ops_suite_quant(s);
    ops_suite_attn(s);
    ops_suite_sample(s);
    ops_suite_invariant(s);
    ops_suite_graph(s);
}
