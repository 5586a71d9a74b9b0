// What a GGUF file says about its model, in the forms the rest of the tree reads: the configuration
// as pgd_load_config, the tokenizer as the texts of tokenizer.json and tokenizer_config.json,
// tensors by the names of the Hugging Face layout. So there is one checked reader of each.
//
// Architectures: llama (Llama and Mistral), qwen2, qwen3. Rows of q and k of arch llama lie such
// that interleaved rope turns them: the configuration says so (rope.style), the bytes stay as they
// are. rope_freqs.weight (divisors of the frequencies) becomes factors of kind longrope.
#ifndef PGD_LOAD_GGUF_MODEL_H
#define PGD_LOAD_GGUF_MODEL_H

#include "load/config.h"
#include "load/gguf.h"

#define PGD_LOAD_GGUF_NAME 128 // bytes of a translated name

// Name of a tensor in GGUF files: "model.layers.3.self_attn.q_proj.weight" ->
// "blk.3.attn_q.weight". A name that has no other stays as it is.
void pgd_load_gguf_name(const char *name, char out[PGD_LOAD_GGUF_NAME]);

// Files of the set that g is the first of.
//   fails  INVALID when g is another one of its set
pgd_status pgd_load_gguf_parts(const pgd_load_gguf *g, int32_t *out_n) PGD_MUST_USE;
// Path of part i of n of the set whose first file is `first` (NAME-00001-of-0000n.gguf).
pgd_status pgd_load_gguf_part(const char *first, int32_t i, int32_t n, char *out,
                              size_t cap) PGD_MUST_USE;
// The file is part i of n.
pgd_status pgd_load_gguf_check_part(const pgd_load_gguf *g, int32_t i, int32_t n) PGD_MUST_USE;

// The configuration in the file at path.
//   fails  as pgd_load_config_read, and as pgd_load_weights_open
pgd_status pgd_load_gguf_config(const char *path, pgd_load_config **out) PGD_MUST_USE;

// Appends the texts of tokenizer.json and of tokenizer_config.json.
//   fails  NOT_FOUND (no tokenizer in the file), UNSUPPORTED (its model or pre-tokenizer, by name),
//          INVALID, DATA_LOSS
pgd_status pgd_load_gguf_tokenizer(const char *path, pgd_text *tokenizer,
                                   pgd_text *config) PGD_MUST_USE;
// Appends the chat template.
//   fails  NOT_FOUND (the file has none)
pgd_status pgd_load_gguf_template(const char *path, pgd_text *out) PGD_MUST_USE;

// Ids that end an answer: eos, eot and eom of the file, and tokens with the names models use for
// that. At most PGD_LOAD_MAX_EOS, in this order.
pgd_status pgd_load_gguf_ends(const pgd_load_gguf *g, int32_t *ids, int32_t *out_n) PGD_MUST_USE;

#endif
