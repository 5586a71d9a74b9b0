// Token ids of both files, and generation_config.json: what a request gets that says nothing.
#include "base/fail.h"
#include "load/config_inner.h"

// One id; -1 (none) is written by some tools.
static pgd_status read_id(const pgd_load_fields *f, const char *key, int32_t *io) {
    return pgd_load_fields_i32(f, key, PGD_LOAD_OPTIONAL, -1, PGD_LOAD_MAX_VOCAB, io);
}

static pgd_status read_eos(const pgd_load_fields *f, pgd_load_config *c) {
    const char *key = "eos_token_id";
    const pgd_json *v = pgd_json_get(f->object, key);
    int32_t one = -1;
    if (!pgd_load_fields_has(f, key)) {
        return PGD_OK;
    }
    c->n_eos = 0;
    if (!pgd_json_is(v, PGD_JSON_ARRAY)) {
        PGD_TRY(read_id(f, key, &one));
        c->n_eos = one >= 0;
        c->eos[0] = one;
        return PGD_OK;
    }
    if (v->n > PGD_LOAD_MAX_EOS) {
        return pgd_load_fields_wrong(f, key, v, "a list of at most 16 ids");
    }
    for (uint32_t i = 0; i < v->n; i++) {
        int64_t id = -1;
        if (!pgd_json_to_i64(&v->items[i], &id) || id < -1 || id > PGD_LOAD_MAX_VOCAB) {
            return pgd_load_fields_wrong(f, key, v, "an id or a list of ids");
        }
        if (id >= 0) {
            c->eos[c->n_eos++] = (int32_t)id;
        }
    }
    return PGD_OK;
}

pgd_status pgd_load_config_tokens(const pgd_load_fields *f, pgd_load_config *c) {
    PGD_TRY(read_eos(f, c));
    PGD_TRY(read_id(f, "bos_token_id", &c->bos));
    return read_id(f, "pad_token_id", &c->pad);
}

pgd_status pgd_load_config_generation(const pgd_load_fields *f, pgd_load_config *c) {
    pgd_load_generation *g = &c->generation;
    struct {
        const char *key;
        double min;
        double max;
        double *value;
        int32_t *has;
    } numbers[] = {
        {"temperature", 0, 100, &g->temperature, &g->has_temperature},
        {"top_p", 0, 1, &g->top_p, &g->has_top_p},
        {"min_p", 0, 1, &g->min_p, &g->has_min_p},
        {"repetition_penalty", 0.01, 100, &g->repetition_penalty, &g->has_repetition_penalty},
    };
    for (size_t i = 0; i < sizeof(numbers) / sizeof(numbers[0]); i++) {
        PGD_TRY(pgd_load_fields_f64(f, numbers[i].key, PGD_LOAD_OPTIONAL, numbers[i].min,
                                    numbers[i].max, numbers[i].value));
        *numbers[i].has = pgd_load_fields_has(f, numbers[i].key);
    }
    PGD_TRY(pgd_load_fields_i32(f, "top_k", PGD_LOAD_OPTIONAL, -1, INT32_MAX, &g->top_k));
    g->has_top_k = pgd_load_fields_has(f, "top_k");
    g->top_k = g->top_k < 0 ? 0 : g->top_k;
    PGD_TRY(pgd_load_fields_i32(f, "max_new_tokens", PGD_LOAD_OPTIONAL, 1, INT32_MAX,
                                &g->max_new_tokens));
    g->has_max_new_tokens = pgd_load_fields_has(f, "max_new_tokens");
    PGD_TRY(pgd_load_fields_bool(f, "do_sample", PGD_LOAD_OPTIONAL, &g->do_sample));
    g->has_do_sample = pgd_load_fields_has(f, "do_sample");
    return pgd_load_config_tokens(f, c);
}
