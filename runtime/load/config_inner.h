// What the files of config.h share among themselves.
#ifndef PGD_LOAD_CONFIG_INNER_H
#define PGD_LOAD_CONFIG_INNER_H

#include "load/config.h"
#include "load/fields.h"

// Reads rope_scaling or rope_parameters of config.json; head_dim and max_position of c are set.
pgd_status pgd_load_config_rope(const pgd_load_fields *f, pgd_load_config *c) PGD_MUST_USE;
// Reads generation_config.json.
pgd_status pgd_load_config_generation(const pgd_load_fields *f, pgd_load_config *c) PGD_MUST_USE;
// eos_token_id (a number or a list), bos_token_id, pad_token_id; keys that are missing leave c.
pgd_status pgd_load_config_tokens(const pgd_load_fields *f, pgd_load_config *c) PGD_MUST_USE;

#endif
