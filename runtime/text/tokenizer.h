// The tokenizer: text to ids and back, from a Hugging Face tokenizer.json.
//
//   text -> added tokens -> normalizer -> added tokens -> pre-tokenizer -> BPE -> post-processor
//
// The answer is the one of the `tokenizers` library for the same file. Known parts: model BPE;
// normalizers, pre-tokenizers, post-processors and decoders of the lists in README.md; any other
// is refused by name when the file is opened.
#ifndef PGD_TEXT_TOKENIZER_H
#define PGD_TEXT_TOKENIZER_H

#include <stdint.h>

#include "base/str.h"

typedef struct pgd_text_tokenizer pgd_text_tokenizer;

// Reads tokenizer.json and, when there is one, tokenizer_config.json (bos_token, eos_token,
// add_bos_token, add_eos_token) from a folder, or what a GGUF file (FILE.gguf) says instead.
//   fails  NOT_FOUND (no tokenizer.json), INVALID (damaged file), UNSUPPORTED (unknown part)
pgd_status pgd_text_tokenizer_open(const char *folder, pgd_text_tokenizer **out) PGD_MUST_USE;
// The same from memory: the text of tokenizer.json, and that of tokenizer_config.json or nothing.
pgd_status pgd_text_tokenizer_parse(pgd_str tokenizer, pgd_str config,
                                    pgd_text_tokenizer **out) PGD_MUST_USE;
void pgd_text_tokenizer_close(pgd_text_tokenizer *t); // NULL is fine

enum {
    PGD_TEXT_ADD_SPECIAL = 1u << 0,      // run the post-processor's template (BOS, EOS)
    PGD_TEXT_NO_PARSE_SPECIAL = 1u << 1, // special tokens in the text are ordinary text
};

// Growing list of ids; zero-initialise it.
typedef struct pgd_text_ids {
    int32_t *ids;
    size_t n;
    size_t cap;
} pgd_text_ids;

pgd_status pgd_text_ids_add(pgd_text_ids *ids, int32_t id) PGD_MUST_USE;
void pgd_text_ids_free(pgd_text_ids *ids);

// [any] Appends the ids of text. Ill-formed UTF-8 is replaced by U+FFFD first, as Python's
// bytes.decode("utf-8", "replace") does.
//   fails  OUT_OF_MEMORY; INVALID when a split pattern of the file needs too many steps for this
//          text. `out` is then as it was before.
//   cost   O(n log n) of the longest piece between split points
pgd_status pgd_text_encode(const pgd_text_tokenizer *t, pgd_str text, uint32_t flags,
                           pgd_text_ids *out) PGD_MUST_USE;

// [any] Appends the text of ids; ids without a token add nothing. skip_special 1 drops special
// tokens.
pgd_status pgd_text_decode(const pgd_text_tokenizer *t, const int32_t *ids, size_t n,
                           int32_t skip_special, pgd_text *out) PGD_MUST_USE;

// [any] Highest id + 1.
int32_t pgd_text_vocab_size(const pgd_text_tokenizer *t);
// [any] The id of a token's content as it stands in the file ("Ġthe"); -1 = none.
int32_t pgd_text_token_id(const pgd_text_tokenizer *t, pgd_str content);
// [any] Content of an id, borrowed from the tokenizer; empty when there is no such id.
pgd_str pgd_text_token_content(const pgd_text_tokenizer *t, int32_t id);
// [any] 1 when the id is an added token marked special.
int32_t pgd_text_token_is_special(const pgd_text_tokenizer *t, int32_t id);
// [any] From tokenizer_config.json; -1 = none.
int32_t pgd_text_bos(const pgd_text_tokenizer *t);
int32_t pgd_text_eos(const pgd_text_tokenizer *t);

#endif
