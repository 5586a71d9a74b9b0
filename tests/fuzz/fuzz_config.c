// config.json, a line "----", generation_config.json: what comes out is in the ranges it promises,
// and a rope table can be made of it.
#include "load/config.h"

#include "fuzz.h"

enum { POSITIONS = 64 };

static void check(const pgd_load_config *c) {
    FUZZ_CHECK(pgd_load_family_name(c->family)[0] != '?');
    FUZZ_CHECK(pgd_load_rope_name(c->rope.kind)[0] != '?');
    FUZZ_CHECK(c->n_layers >= 1 && c->n_layers <= PGD_LOAD_MAX_LAYERS);
    FUZZ_CHECK(c->hidden >= 1 && c->hidden <= PGD_LOAD_MAX_HIDDEN);
    FUZZ_CHECK(c->n_kv_heads >= 1 && c->n_heads % c->n_kv_heads == 0);
    FUZZ_CHECK(c->head_dim >= 2 && c->head_dim % 2 == 0 && c->head_dim <= PGD_LOAD_MAX_HEAD_DIM);
    FUZZ_CHECK(c->intermediate >= 1 && c->intermediate <= PGD_LOAD_MAX_WIDTH);
    FUZZ_CHECK(c->vocab >= 1 && c->vocab <= PGD_LOAD_MAX_VOCAB);
    FUZZ_CHECK(c->max_position >= 1 && c->max_position <= PGD_LOAD_MAX_POSITION);
    FUZZ_CHECK(c->rope.rot_dim >= 2 && c->rope.rot_dim <= c->head_dim && c->rope.rot_dim % 2 == 0);
    FUZZ_CHECK(c->n_eos >= 0 && c->n_eos <= PGD_LOAD_MAX_EOS);
    FUZZ_CHECK(c->norm_eps >= 0);
    for (int32_t i = 0; i < c->n_layers; i++) {
        FUZZ_CHECK(c->window[i] >= 0);
    }
    for (int32_t i = 0; i < c->n_eos; i++) {
        FUZZ_CHECK(c->eos[i] >= 0);
    }
}

pgd_status fuzz_one(const uint8_t *data, size_t size) {
    pgd_load_config *c = NULL;
    pgd_str generation;
    pgd_str config = fuzz_cut((pgd_str){(const char *)data, size}, &generation);
    pgd_status status =
        pgd_load_config_parse(config.ptr, config.len, generation.ptr, generation.len, "x", &c);
    FUZZ_CHECK((status == PGD_OK) == (c != NULL));
    if (c != NULL) {
        float *table = malloc(sizeof(*table) * POSITIONS * (size_t)c->rope.rot_dim);
        FUZZ_CHECK(table != NULL);
        check(c);
        status = pgd_load_rope_table(c, POSITIONS, table);
        free(table);
    }
    pgd_load_config_free(c);
    return status;
}
