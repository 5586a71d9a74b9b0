// Whole models: golden tokens of other people's software, and what the engine gives alone against
// what it gives under load.
#include "engine.h"

#include <stdio.h>
#include <string.h>

#include "dev/inner.h"

void engine_model(conform *c, const char *name, char *out, size_t cap) {
    MUST(c, c->options->folder[0] != '\0',
         "the tool does not find its models: share/pagoda/conform beside its bin/");
    snprintf(out, cap, "%s/%s", c->options->folder, name);
}

pgd_engine *engine_open(conform *c, const char *model, pgd_engine_options o) {
    pgd_engine *e = NULL;
    o.size = sizeof(o);
    o.threads = (int32_t)c->options->threads;
    o.model = model;
    o.device = c->uri;
    o.plugins = &c->options->plugin;
    o.n_plugins = 1;
    o.memory = o.memory != NULL ? o.memory : "256MiB";
    o.weight_cache = "off";
    MUST_OK(c, pgd_engine_create(&o, &e), "loading a model");
    return e;
}

static pgd_request *submit(conform *c, pgd_engine *e, const engine_case *k) {
    const pgd_request_desc desc = {.size = sizeof(desc),
                                   .ids = k->ids,
                                   .n_ids = k->n_ids,
                                   .max_tokens = k->max_tokens,
                                   .ignore_eos = !k->stops,
                                   .temperature = k->temperature,
                                   .repetition_penalty = k->penalty,
                                   .has_seed = 1,
                                   .seed = k->seed};
    pgd_request *r = NULL;
    MUST_OK(c, pgd_engine_submit(e, &desc, &r), "submitting a request");
    return r;
}

static void step(conform *c, pgd_engine *e) {
    while (pgd_engine_busy(e) > 0) {
        MUST_OK(c, pgd_engine_step(e), "a step");
    }
}

static void judge(conform *c, const engine_case *k, const pgd_output *o, int32_t i,
                  const char *what) {
    int32_t same = 0;
    MUST(c, o->error == NULL, "%s, request %d: %s", what, (int)i, o->error);
    while (same < o->n_ids && same < k->n_want && o->ids[same] == k->want[same]) {
        same++;
    }
    if (same < k->n_want || o->n_ids != k->n_want) {
        conform_fail(c, "%s, request %d (%d prompt tokens): token %d of %d is %d instead of %d",
                     what, (int)i, (int)k->n_ids, (int)same, (int)k->n_want,
                     same < o->n_ids ? (int)o->ids[same] : -1,
                     same < k->n_want ? (int)k->want[same] : -1);
        conform_end(c);
    }
}

void engine_run(conform *c, pgd_engine *e, engine_case *cases, int32_t n, const char *what) {
    pgd_request *requests[ENGINE_PROMPTS] = {0};
    for (int32_t i = 0; i < n; i++) {
        requests[i] = submit(c, e, &cases[i]);
    }
    step(c, e);
    for (int32_t i = 0; i < n; i++) {
        pgd_output o = {.size = sizeof(o)};
        pgd_request_output(requests[i], &o);
        judge(c, &cases[i], &o, i, what);
        pgd_request_release(requests[i]);
    }
}

void engine_learn(conform *c, pgd_engine *e, engine_case *cases, int32_t n) {
    for (int32_t i = 0; i < n; i++) {
        pgd_output o = {.size = sizeof(o)};
        pgd_request *r = submit(c, e, &cases[i]);
        step(c, e);
        pgd_request_output(r, &o);
        MUST(c, o.error == NULL, "request %d alone: %s", (int)i, o.error);
        cases[i].n_want = o.n_ids;
        memcpy(cases[i].want, o.ids, (size_t)o.n_ids * sizeof(o.ids[0]));
        pgd_request_release(r);
    }
}

static uint64_t next(uint64_t *state) {
    *state = *state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return *state >> 33;
}

void engine_draw(uint64_t seed, int32_t vocab, int32_t longest, engine_case *cases, int32_t n) {
    uint64_t state = seed + 77;
    for (int32_t i = 0; i < n; i++) {
        engine_case *k = &cases[i];
        *k = (engine_case){.n_ids = 1 + (int32_t)(next(&state) % (uint64_t)longest),
                           .max_tokens = 1 + (int32_t)(next(&state) % 24),
                           .temperature = i % 2 == 0 ? 0 : 0.8F,
                           .penalty = i % 4 == 1 ? 1.2F : 0,
                           .seed = next(&state)};
        for (int32_t j = 0; j < k->n_ids; j++) {
            k->ids[j] = (int32_t)(next(&state) % (uint64_t)vocab);
        }
        if (i % 3 != 0) { // begins like an earlier one
            const engine_case *other = &cases[next(&state) % (uint64_t)i];
            const int32_t m = other->n_ids < k->n_ids ? other->n_ids : k->n_ids;
            memcpy(k->ids, other->ids, (size_t)m * sizeof(k->ids[0]));
        }
    }
}

// ---- golden tokens -----------------------------------------------------------------------------

static int32_t read_ids(const pgd_json *v, int32_t *out) {
    int32_t n = 0;
    for (uint32_t i = 0; pgd_json_is(v, PGD_JSON_ARRAY) && i < v->n && n < ENGINE_IDS; i++) {
        int64_t id = -1;
        (void)pgd_json_to_i64(&v->items[i], &id);
        out[n++] = (int32_t)id;
    }
    return n;
}

static int32_t read_list(const pgd_json *list, engine_case *cases, int32_t n) {
    for (uint32_t i = 0; pgd_json_is(list, PGD_JSON_ARRAY) && i < list->n && n < ENGINE_PROMPTS;
         i++) {
        engine_case *k = &cases[n++];
        pgd_str finish;
        *k = (engine_case){0};
        k->n_ids = read_ids(pgd_json_get(&list->items[i], "ids"), k->ids);
        k->n_want = read_ids(pgd_json_get(&list->items[i], "greedy"), k->want);
        k->stops = pgd_json_to_str(pgd_json_get(&list->items[i], "finish"), &finish);
        k->max_tokens = k->stops ? ENGINE_IDS : k->n_want;
    }
    return n;
}

void conform_golden(conform *c) {
    static engine_case cases[ENGINE_PROMPTS];
    char model[1200], file[1300];
    pgd_json_doc *doc = NULL;
    int64_t longest = 0;
    int32_t n;
    engine_model(c, c->check->part, model, sizeof(model));
    snprintf(file, sizeof(file), "%s/golden.json", model);
    MUST_OK(c, pgd_json_read_file(file, &doc), "reading the golden tokens");
    const pgd_json *root = pgd_json_root(doc);
    (void)pgd_json_to_i64(pgd_json_get(root, "max_model_len"), &longest);
    n = read_list(pgd_json_get(root, "prompts"), cases, 0);
    n = read_list(pgd_json_get(root, "stops"), cases, n);
    MUST(c, n > 0, "the golden file has no prompts");
    pgd_engine *e = engine_open(c, model,
                                (pgd_engine_options){.kv_cache_dtype = "f32",
                                                     .allow_slow = 1,
                                                     .max_model_len = (int32_t)longest});
    for (int32_t i = 0; i < n; i++) {
        engine_run(c, e, &cases[i], 1, "alone");
    }
    engine_run(c, e, cases, n, "together");
    pgd_engine_destroy(e);
    e = engine_open(c, model,
                    (pgd_engine_options){.kv_cache_dtype = "f32",
                                         .allow_slow = 1,
                                         .max_model_len = (int32_t)longest,
                                         .block_size = 3,
                                         .max_num_seqs = 3,
                                         .max_num_batched_tokens = 7});
    engine_run(c, e, cases, n, "in chunks of 7 rows and blocks of 3 tokens");
    pgd_engine_destroy(e);
    conform_note(c, "%d prompts, whole and in chunks", (int)n);
}
