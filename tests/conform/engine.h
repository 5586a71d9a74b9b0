// Whole models inside checks: an engine on the plugin under test.
#ifndef PGD_TESTS_CONFORM_ENGINE_H
#define PGD_TESTS_CONFORM_ENGINE_H

#include "conform.h"

#include <pagoda/pagoda.h>

enum { ENGINE_IDS = 160, ENGINE_PROMPTS = 40 };

// A request and the tokens that it must give.
typedef struct engine_case {
    int32_t ids[ENGINE_IDS];
    int32_t want[ENGINE_IDS];
    int32_t n_ids;
    int32_t n_want;
    int32_t max_tokens;
    int32_t stops; // 1: the model's end ends it
    float temperature;
    float penalty; // repetition, 0 = off
    uint64_t seed;
} engine_case;

// Folder of a model that comes with the tool.
void engine_model(conform *c, const char *name, char *out, size_t cap);
pgd_engine *engine_open(conform *c, const char *model, pgd_engine_options options);
// Runs all together; each must give its tokens. what: for sentences.
void engine_run(conform *c, pgd_engine *e, engine_case *cases, int32_t n, const char *what);
// The same, taking what comes as what must come.
void engine_learn(conform *c, pgd_engine *e, engine_case *cases, int32_t n);
// Random requests to a vocabulary; many begin alike.
void engine_draw(uint64_t seed, int32_t vocab, int32_t longest, engine_case *cases, int32_t n);

#endif
