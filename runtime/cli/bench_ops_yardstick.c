// Yardsticks of `pagoda bench ops`: libraries that the device runs on the shapes of the model.
#include <stdio.h>
#include <string.h>

#include "base/fail.h"
#include "base/json.h"
#include "cli/bench_ops.h"

#define MOST_BYTES (UINT64_C(512) << 20) // of weights that calls go round

static int32_t element_bytes(int32_t limit) {
    return limit == PGD_LIMIT_DOT_F32 ? 4 : (limit == PGD_LIMIT_DOT_BF16 ? 2 : 1);
}

void cli_ops_yardstick_list(const ops_run *r) {
    for (int32_t i = 0; i < r->n_libraries; i++) {
        const pgd_yardstick_info *l = &r->libraries[i];
        if (l->reason[0] != '\0') {
            printf("yardstick %s is left out: %s\n", l->name, l->reason);
        } else {
            printf("yardstick %s %s\n", l->name, l->version);
        }
    }
}

int32_t cli_ops_yardstick_cases(const ops_run *r, const ops_case *like, ops_case *out) {
    int32_t n = 0;
    for (int32_t i = 0; i < r->n_libraries; i++) {
        for (int32_t limit = PGD_LIMIT_DOT_F32; limit < PGD_LIMIT_COUNT; limit++) {
            if (r->libraries[i].reason[0] == '\0' && (r->libraries[i].limits >> limit & 1u) != 0) {
                out[n] = *like;
                out[n].yardstick = i;
                out[n++].limit = limit;
            }
        }
    }
    return n;
}

pgd_status cli_ops_yardstick_prepare(ops_run *r, const ops_case *c) {
    const pgd_load_matrix *m = cli_ops_matrix(r, c->row, 0);
    const uint64_t bytes = (uint64_t)m->n * (uint64_t)m->k * (uint64_t)element_bytes(c->limit);
    uint64_t n = MOST_BYTES / (bytes > 0 ? bytes : 1);
    cli_ops_yardstick_close(r);
    n = n < 1 ? 1 : n;
    n = n < (uint64_t)r->config->n_layers ? n : (uint64_t)r->config->n_layers;
    const pgd_yardstick_desc desc = {.size = sizeof(desc),
                                     .limit = c->limit,
                                     .m = c->rows,
                                     .n = m->n,
                                     .k = m->k,
                                     .n_weights = (uint32_t)n};
    PGD_TRY(r->yardsticks->create(r->b.d, (uint32_t)c->yardstick, &desc, &r->yardstick));
    r->n_yardstick_weights = (int32_t)n;
    return PGD_OK;
}

pgd_status cli_ops_yardstick_call(const ops_run *r, int32_t at) {
    return r->yardsticks->run(r->b.d, r->yardstick, (uint32_t)(at % r->n_yardstick_weights));
}

void cli_ops_yardstick_close(ops_run *r) {
    if (r->yardstick != NULL) {
        r->yardsticks->destroy(r->b.d, r->yardstick);
        r->yardstick = NULL;
    }
}

const char *cli_ops_yardstick_name(const ops_run *r, const ops_case *c) {
    return r->libraries[c->yardstick].name;
}

static pgd_status add_text(pgd_text *t, const char *key, const char *value) {
    PGD_TRY(pgd_text_format(t, "%s\"%s\":", t->ptr[t->len - 1] == '{' ? "" : ",", key));
    return pgd_json_add_str(t, pgd_str_of(value));
}

pgd_status cli_ops_yardstick_json(const ops_run *r, pgd_text *t) {
    PGD_TRY(pgd_text_format(t, ",\"yardsticks\":["));
    for (int32_t i = 0; i < r->n_libraries; i++) {
        PGD_TRY(pgd_text_format(t, "%s{", i > 0 ? "," : ""));
        PGD_TRY(add_text(t, "name", r->libraries[i].name));
        PGD_TRY(add_text(t, "version", r->libraries[i].version));
        PGD_TRY(add_text(t, "reason", r->libraries[i].reason));
        PGD_TRY(pgd_text_format(t, "}"));
    }
    return pgd_text_format(t, "]");
}
